"""The ledgers of topics, from metadata and buckets, while the cluster keeps changing both.

The buckets are listed before the metadata is read, and the cluster may offload and trim in between.
A ledger counts as missing only if it was looked up after its metadata was read and a live cluster,
asked once more, still lists it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import FormatError, StorageError
from connector.catalog.kinds.registry import named_pairs
from connector.catalog.metadata.topic_metadata import TopicMetadata
from connector.catalog.topic_ledgers import TopicLedgers, from_bucket, from_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.catalog.bucket import Bucket
    from connector.catalog.metadata.source import MetadataSource
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.catalog.other_buckets import OtherBuckets
    from connector.catalog.scalable_topics import ScalableTopics
    from connector.catalog.topic_copies import TopicCopies
    from connector.inputs.topic_names import TopicName

    MetadataResult: TypeAlias = TopicMetadata | FormatError | None
    """The metadata of a topic; the error, if it is malformed, or None."""

_CONCURRENT_TOPICS: Final = 8
_MAX_ROUNDS: Final = 10
"""How often topics whose ledgers appear or vanish are compared before giving up."""


class TopicLookup:
    """A lookup of the ledgers of topics. Safe to use from several threads."""

    def __init__(
        self,
        bucket: Bucket,
        source: MetadataSource | None,
        copies: TopicCopies,
        scalable_topics: ScalableTopics,
        other_buckets: OtherBuckets,
    ) -> None:
        self._bucket = bucket
        self._source = source
        self._copies = copies
        self._scalable_topics = scalable_topics
        self._other_buckets = other_buckets

    def find(self, topics: Sequence[TopicName]) -> list[TopicLedgers]:
        """Return the ledgers of each topic; several topics are looked up concurrently.

        Raises:
            StorageError: The metadata or an index object cannot be read, or ledgers changed faster
                than they could be looked up.
        """
        found: dict[TopicName, TopicLedgers] = {}
        with ContextThreadPool(_CONCURRENT_TOPICS) as executor:
            pending = dict(zip(topics, executor.map(self._read_metadata, topics), strict=True))
            self._copies.prefetch(
                None if isinstance(each, FormatError) else each for each in pending.values()
            )
            for _ in range(_MAX_ROUNDS):
                compared = dict(
                    zip(pending, executor.map(self._compare, *_unzip(pending)), strict=True)
                )
                unproven = {topic: each.unproven for topic, each in compared.items()}
                doubtful = {topic: pending[topic] for topic in pending if unproven[topic]}
                if doubtful:
                    # One request for all topics, because it may be a listing. The comparison is
                    # repeated even if nothing is new: another thread may have found it before.
                    self._look_again(unproven)
                    results = executor.map(self._compare, *_unzip(doubtful))
                    compared |= zip(doubtful, results, strict=True)
                found |= compared
                pending = self._changed(executor, compared)
                if not pending:
                    return [found[topic] for topic in topics]
        changed = ", ".join(map(str, pending))
        message = f"the ledgers of {changed} changed faster than they could be looked up: try again"
        raise StorageError(message)

    def _read_metadata(self, topic: TopicName, *, again: bool = False) -> MetadataResult:
        try:
            return self._source.topic_metadata(topic, again=again) if self._source else None
        except FormatError as error:
            return error

    def _compare(self, topic: TopicName, metadata: MetadataResult) -> TopicLedgers:
        """Compare the metadata of a topic with the known contents of the buckets."""
        if metadata is None:
            found = from_bucket(topic, self._copies.find_in_bucket(topic))
        elif isinstance(metadata, FormatError):
            found = from_bucket(topic, self._copies.find_in_bucket(topic)).with_metadata_error(
                metadata
            )
        else:
            copies = self._copies.find_by_metadata(metadata)
            self._other_buckets.prefetch(metadata, copies)
            found = from_metadata(
                metadata, copies, partial(self._other_buckets.find, metadata.topic)
            )
        known = metadata if isinstance(metadata, TopicMetadata) else None
        return replace(
            found,
            segment_ledgers=self._copies.segment_ledgers(topic, known),
            node=self._scalable_topics.node(topic),
        )

    def _changed(
        self, executor: ContextThreadPool, compared: dict[TopicName, TopicLedgers]
    ) -> dict[TopicName, MetadataResult]:
        """Ask a live cluster about topics that lack ledgers; return the answers that differ."""
        missing = {topic: each.missing for topic, each in compared.items() if each.missing}
        if self._source is None or not self._source.is_live:
            return {}
        answers = zip(
            missing, executor.map(partial(self._read_metadata, again=True), missing), strict=True
        )
        return {
            topic: newer
            for topic, newer in answers
            if newer is None
            or isinstance(newer, FormatError)
            or not {*missing[topic]} <= {*newer.ledgers}
        }

    def _look_again(self, unproven: Mapping[TopicName, Sequence[LedgerInfo]]) -> None:
        ledgers = [(topic, info) for topic, infos in unproven.items() for info in infos]
        names = [named_pairs(*each) for each in ledgers]
        self._bucket.look_again({name for each in names for name in each} if all(names) else None)
        self._other_buckets.look_again(info for _, info in ledgers)


def _unzip(
    answers: dict[TopicName, MetadataResult],
) -> tuple[Sequence[TopicName], Sequence[MetadataResult]]:
    return list(answers), list(answers.values())
