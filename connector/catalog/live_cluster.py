"""A live cluster, to distinguish ledgers that it trimmed during a read from lost ledgers."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arrow_io.errors import MissingObjectError, PulsarOffloadError, TrimmedEntriesError
from connector.catalog.metadata.source import open_metadata_source
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from connector.catalog.catalog_options import Metadata


@dataclass(frozen=True, kw_only=True, repr=False)
class LiveCluster:
    """A live cluster that is asked only about missing objects. Can be pickled.

    Attributes:
        metadata: The URL of its admin API or metadata store.
        topics: Full names of the topics and partitions that it knew before.
    """

    metadata: Metadata
    metadata_options: Mapping[str, object] | None
    topics: frozenset[str]

    def for_topic(self, topic: str) -> LiveCluster:
        """Return the same cluster restricted to at most one topic."""
        return replace(self, topics=self.topics & {topic})

    def has_trimmed(self, topic: str, ledger_id: int) -> bool:
        """Return whether a topic of `topics` does not have a ledger any more."""
        if topic not in self.topics:
            return False
        # If the cluster does not answer, the caller reports the missing object.
        with suppress(PulsarOffloadError):
            source = open_metadata_source(self.metadata, options=self.metadata_options)
            newer = source.topic_metadata(TopicName.parse(topic))
            return newer is None or not newer.has(ledger_id)
        return False


@contextmanager
def explain_missing(
    cluster: LiveCluster | None, find_topic: Callable[[int], str | None]
) -> Iterator[None]:
    """Explain missing objects: if the cluster trimmed the ledger of one, say so in the error.

    Retention may delete a ledger between any two requests of a read. Only a live cluster can tell
    that from data loss.

    Args:
        cluster: The cluster; None if the metadata is not live: then errors stay unchanged.
        find_topic: Returns the topic that has a ledger of this id, if any.

    Raises:
        TrimmedEntriesError: An object was missing, and the cluster has trimmed its ledger.
    """
    try:
        yield
    except MissingObjectError as error:
        if cluster is None or error.ledger_id is None:
            raise
        topic = find_topic(error.ledger_id)
        if topic is None or not cluster.has_trimmed(topic, error.ledger_id):
            raise
        message = "the cluster trimmed the ledger after the topic was opened: open it again"
        raise TrimmedEntriesError(
            message, object_key=error.object_key, ledger_id=error.ledger_id
        ) from error


def explain_missing_in_topic(
    cluster: LiveCluster | None, topic: str
) -> AbstractContextManager[None]:
    """Like `explain_missing`, while one topic is read."""
    return explain_missing(cluster, lambda _: topic)
