"""Which ledgers and entries will a read of some topics lack, as far as the catalog shows?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.errors import MissingObjectError
from arrow_io.format.object_names import has_ledger_id
from arrow_io.read_metrics import Tally, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.errors import PulsarOffloadError
    from connector.catalog.bucket import Bucket
    from connector.catalog.metadata.source import MetadataSource
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.catalog.unfinished_offloads import UnfinishedOffloads
    from connector.display.topic_metrics import TopicMetrics
    from connector.inputs.topic_names import TopicName


def count_read_gaps(
    bucket: Bucket,
    source: MetadataSource | None,
    offloads: UnfinishedOffloads,
    topics: Sequence[TopicLedgers],
    metrics: TopicMetrics,
    *,
    requested_ids: range,
    unattributed_errors: Callable[[], list[PulsarOffloadError]],
    salvage: bool,
) -> None:
    """Count the faults of topics, and the ledgers that are not offloaded yet or not listed.

    Args:
        bucket: The bucket that the topics were selected from.
        source: Its metadata, or None.
        offloads: The topics of the bucket's unfinished offloads.
        topics: The topics, each partition separately.
        metrics: Receives the counts.
        requested_ids: Ids of the requested ledgers; faults of other ledgers are ignored.
        unattributed_errors: Returns the errors of ledgers whose topic is unknown.
        salvage: Whether unsound ledgers are counted instead of raised.

    Raises:
        PulsarOffloadError: A ledger of these topics, or one whose topic is unknown, is unsound, and
            `salvage` is not set.
    """
    tally = Tally(metrics, salvage=salvage)
    # For a topic with metadata, the list of ledgers in the metadata is complete.
    without_metadata = [each for each in topics if each.metadata is None]
    problems = [problem for each in topics for problem in each.problems]
    for error in problems + (unattributed_errors() if without_metadata else []):
        if error.ledger_id is None or error.ledger_id in requested_ids:
            tally.lose(Unit.LEDGER, error)
    if without_metadata:
        metrics.unfinished_ledgers += _count_unfinished(
            bucket, offloads, without_metadata, tally, requested_ids
        )
    for each in topics:
        pending = [ledger for ledger in each.pending if ledger.ledger_id in requested_ids]
        metrics.pending_ledgers += len(pending)
        metrics.pending_entries += sum(ledger.entries or 0 for ledger in pending)
        unlisted = [ledger for ledger in each.unknown if ledger.ledger_id in requested_ids]
        metrics.unlisted_ledgers += len(unlisted)
    scalable = {each.topic.base for each in topics if each.topic.is_scalable}
    segment_ledgers = {
        each.topic.base: each.segment_ledgers
        for each in topics
        if each.topic.scalable not in scalable
    }
    metrics.segment_ledgers += sum(segment_ledgers.values())
    if source is not None:
        by_bucket = sum(each.node is not None for each in without_metadata)
        metrics.segments_by_bucket += by_bucket
        metrics.unknown_topics += len(without_metadata) - by_bucket
        metrics.doubts += _doubts(source, topics)


def _doubts(source: MetadataSource, topics: Sequence[TopicLedgers]) -> list[str]:
    """Return warnings of the metadata about topics; if there are several, each names its topic."""
    prefixes = tuple(f"{each.topic}: " for each in topics)
    doubts = [each for each in dict.fromkeys(source.warnings) if each.startswith(prefixes)]
    # The report of a single topic starts with its name already.
    return doubts if len(topics) > 1 else [each.removeprefix(prefixes[0]) for each in doubts]


def _count_unfinished(
    bucket: Bucket,
    offloads: UnfinishedOffloads,
    topics: Sequence[TopicLedgers],
    tally: Tally,
    requested_ids: range,
) -> int:
    """Return the number of offloads without an index object that may still be running.

    An offload is counted as lost instead if a later ledger of the same topic is offloaded.
    """
    names = [each.name for each in bucket.unfinished]
    unfinished = list(filter(has_ledger_id, names))
    # The names of the other objects contain no ledger id, and their index object is missing.
    running_count = len(names) - len(unfinished)
    if not unfinished:
        return running_count
    copies = bucket.copies_of({name.ledger_id for name in unfinished})
    sound_ledgers = {
        (copy.topic, copy.name.ledger_id) for copy in copies if copy.ledger is not None
    }
    # An offload whose topic nothing names may belong to any topic that has the ledger.
    sound_ledgers |= {(None, ledger_id) for _, ledger_id in sound_ledgers}
    last_ids: dict[TopicName | None, int] = {
        each.topic: max((ledger.ledger_id for ledger in each.ledgers), default=-1)
        for each in topics
    }
    last_ids[None] = -1
    for name in unfinished:
        ledger_id = name.ledger_id
        try:
            owner = offloads.topic(name)
        except MissingObjectError:
            # Deleted since the bucket was listed.
            continue
        if owner not in last_ids or (owner, ledger_id) in sound_ledgers:
            continue
        if ledger_id not in requested_ids:
            continue
        if ledger_id < last_ids[owner]:
            message = "the data object exists, but its index object is missing"
            error = MissingObjectError(message, object_key=name.index_name, ledger_id=ledger_id)
            tally.lose(Unit.LEDGER, error)
        else:
            running_count += 1
    return running_count
