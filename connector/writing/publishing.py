"""What was staged is decided, once, and published; or discarded, unless it was decided.

A decision is an object of its own only if somebody may look for it: who repeats a write that has an
id, and who finds the note of a write with metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.errors import OptionError, PulsarOffloadError
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata, in_order
from connector.pulsar_time import time_of
from connector.writing.beginning import metadata_files
from connector.writing.carrying_out import carry_out
from connector.writing.decision import Decision
from connector.writing.ledger_ids import (
    IdRange,
    LedgerIds,
    check_alone,
    delete_marked,
    has_mark,
    list_names,
    unpublished,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from arrow_io.format.object_names import LedgerObjectName
    from connector.writing.decision import DecisionFile
    from connector.writing.metadata_files import MetadataFiles
    from connector.writing.staged_write import StagedWrite
    from connector.writing.write_target import WriteTarget


@dataclass(frozen=True, slots=True)
class Published:
    """What `publish` gave.

    Attributes:
        decision: What was published: what was staged, unless a write of its id was decided before.
        is_earlier: Whether one was; nothing of what was staged counts then.
        warnings: What went wrong, yet does no harm, and whether nothing was written, in words.
    """

    decision: Decision
    is_earlier: bool
    warnings: tuple[str, ...]


def publish(
    target: WriteTarget,
    staged: Sequence[StagedWrite],
    file: DecisionFile,
    *,
    files: MetadataFiles | None,
) -> Published:
    """Decide a write, and publish its ledgers; repeated by anyone, it changes nothing.

    If a write of this id was decided before, that one is published, and this one is discarded.

    Args:
        target: What is written to.
        staged: What was staged, in the order that messages are to have; at least one.
        file: Where the write is decided.
        files: The metadata that is to be extended, begun or resumed; None: none is written.

    Returns:
        The decision that stands, which is carried out.

    Raises:
        OptionError: Another writer took ids of the ledgers, or wrote metadata, meanwhile; or the
            write has an id, and the store cannot decide. Nothing is published.
        CorruptMetadataError: An earlier decision is not as it was written.
        StorageError: The store refused, or went on failing; the write may be decided then.
    """
    decision = _decision(target, staged)
    standing = file.read() if file.is_named else None
    others: set[LedgerObjectName] = set()
    if standing is None:
        ids = {each.ledger_id for topic in decision.partitions or () for each in topic.ledgers}
        others = check_alone(target.bucket, file.is_ours, ids) - decision.names
        if files is not None:
            files.check_unchanged(file)
        is_kept = file.is_named or files is not None
        standing = file.decide(decision) if is_kept else decision
    if standing.mark == decision.mark and files is not None and not standing.is_published:
        files.carry_out(standing)
    else:
        carry_out(standing, target.offloader, target.metadata_root)
    return _published(standing, file, _tidied(target, standing, file, files, others))


def publish_earlier(target: WriteTarget, file: DecisionFile) -> Published | None:
    """Publish what was decided before under the id of a write, if that was left undone.

    Args:
        target: What is written to.
        file: Where the write is decided; nothing of it is begun.

    Returns:
        What stands; None: the write has no id, or is not decided.

    Raises:
        OptionError: A write of the topic to another bucket was cut off.
        CorruptMetadataError: The decision, or metadata, is not as it was written.
        StorageError: The store refused, or went on failing.
    """
    earlier = file.read() if file.is_named else None
    if earlier is None:
        return None
    files = metadata_files(target)
    warnings = [] if files is None else files.finish()
    carry_out(earlier, target.offloader, target.metadata_root)
    warnings += _tidied(target, earlier, file, None, ())
    return _published(earlier, file, warnings)


def _published(decision: Decision, file: DecisionFile, warnings: Sequence[str]) -> Published:
    if has_mark(decision.mark, file.mark):
        return Published(decision, is_earlier=False, warnings=tuple(warnings))
    told = (
        f"a write {file.write_id} of the topic, begun at {time_of(decision.begun_ms):%F %T} UTC,"
        " was published before: nothing was written now"
    )
    return Published(decision, is_earlier=True, warnings=(*warnings, told))


def _tidied(
    target: WriteTarget,
    decision: Decision,
    file: DecisionFile,
    files: MetadataFiles | None,
    others: Iterable[LedgerObjectName],
) -> list[str]:
    """Forget what was noted, and delete what was staged in vain; warnings of it, or why not."""
    try:
        if files is not None:
            # It leads to the decision, so it goes first.
            files.end()
        if not decision.is_published and (file.is_named or files is not None):
            file.settle(decision)
        if not has_mark(decision.mark, file.mark):
            others = unpublished(list_names(target.bucket), file.is_ours)
        warnings = {
            warning: None
            for name in sorted(others, key=lambda each: each.ledger_id)
            for warning in target.offloader.delete_offloaded(name.ledger_id, name.uuid)
        }
    except PulsarOffloadError as failure:
        return [f"all is published, but not all that is of no use any more was deleted: {failure}"]
    return list(warnings)


def discard(target: WriteTarget, file: DecisionFile) -> None:
    """Delete what was staged, by whichever process, unless it was decided and may be repeated.

    Args:
        target: What is written to.
        file: Where the write is decided.

    Raises:
        CorruptMetadataError: The decision is not as it was written.
        StorageError: The store refused, or went on failing.
    """
    if file.is_named and file.is_decided():
        return
    files = metadata_files(target)
    try:
        if files is not None:
            files.resume(file.mark)
    except OptionError:
        # What was noted is undone, or ended, by another writer or by this one.
        return
    if files is not None and not file.is_named:
        # Before anything is undone, lest somebody go on with it half undone.
        file.revoke()
    if files is not None:
        files.withdraw()
    else:
        delete_marked(target.offloader, file.mark)


def _decision(target: WriteTarget, staged: Sequence[StagedWrite]) -> Decision:
    ledgers = [ledger for each in staged for ledger in each.ledgers]
    if not ledgers:
        message = "there is no message to write"
        raise OptionError(message)
    greatest = max(each.info.ledger_id for each in ledgers)
    # Open ledgers, one for each partition, behind them all.
    open_ids = LedgerIds(IdRange(first=greatest + 1))
    partitions = []
    for name in target.names:
        own = name.managed_ledger_name
        infos = [each.info for each in ledgers if each.managed_ledger == own]
        properties = [each.properties[own] for each in staged if own in each.properties]
        partitions.append(
            TopicMetadata(
                topic=name,
                ledgers=in_order((*infos, LedgerInfo(ledger_id=open_ids.next_id()))),
                properties=properties[-1] if properties else {},
            )
        )
    return Decision(
        mark=staged[0].mark,
        begun_ms=staged[0].begun_ms,
        message_count=sum(each.message_count for each in staged),
        partitions=tuple(partitions),
        indexes=tuple(each.index for each in sorted(ledgers, key=lambda each: each.info.ledger_id)),
        schemas=staged[0].schemas,
    )
