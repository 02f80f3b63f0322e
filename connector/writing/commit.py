"""Two-phase commit of a write: begin it, then publish or discard its staged ledgers.

A *staged* ledger has a data object, but no index object, so readers ignore it. To *publish* it, its
index object is written. Each run of a write has a *mark*, which the uuids of its ledgers contain
(`connector.writing.ledger_ids`). A write with metadata leaves a *note* until it is finished
(`connector.writing.metadata_files`).

A commit record is stored as an object only if another process may look for it: one that repeats a
write with an id, or one that finds a note.

Functions raise `StorageError` if the store refuses a request, or retries are exhausted.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError, PulsarOffloadError
from arrow_io.storage.store_kinds import prefix_in_store, store_kind
from connector.catalog.bucket import read_bucket
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata, checked_ledgers
from connector.inputs.times import time_of
from connector.inputs.topic_names import TopicName
from connector.writing.commit_record import CommitRecord, carry_out
from connector.writing.ledger_ids import (
    IdRange,
    LedgerIds,
    check_alone,
    delete_marked,
    find_unpublished,
    has_mark,
    ledger_object_names,
    list_names,
)
from connector.writing.metadata_files import MetadataFiles, check_partitions
from connector.writing.staging import WritePlan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from arrow_io.format.object_names import LedgerObjectName
    from arrow_io.storage.location import Location
    from connector.catalog.bucket import BucketContents
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.writing.commit_record import CommitRecordFile
    from connector.writing.staging import StagedWrite
    from connector.writing.write_target import WriteTarget

_STALE_METADATA_WARNING: Final = (
    "Metadata that was saved before lacks the new ledgers, so readers that use it miss these"
    " messages. Give {option} to extend metadata that write made."
)
_FREE_RANGES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StartedWrite:
    """A write that this process has begun.

    Attributes:
        files: The metadata to extend; None if the write has no metadata folder.
        contents: The bucket's contents before the write; None if it had no ledger.
    """

    plan: WritePlan
    files: MetadataFiles | None
    contents: BucketContents | None


def metadata_files(target: WriteTarget) -> MetadataFiles | None:
    """Return the metadata files of the topic; None if the write has no metadata folder."""
    root = target.metadata_root
    if root is None:
        return None
    return MetadataFiles(root, target.topic, target.names, target.offloader)


def begin(
    target: WriteTarget,
    file: CommitRecordFile,
    *,
    id_stride: int | None = None,
    previous: BucketContents | None = None,
) -> StartedWrite:
    """Begin a write and plan its ledger ids.

    Ids of ledgers that earlier runs of the same write have staged may be used again.

    Args:
        target: The topic to write to.
        file: The write's commit record file, which must not exist yet. The write may get its id
            later.
        id_stride: Spread of the first id, unless the user chose it. The first id is the next free
            one plus a random multiple of this number, so that writers that begin at the same time
            hardly ever collide. None: the next free id.
        previous: Contents of the bucket at an earlier write. Objects that have not changed are not
            read again.

    Raises:
        OptionError: The topic cannot be written to: see `MetadataFiles.open`, `check_new` and
            `check_appendable`. Or the first ledger id is not greater than the topic's ids.
        CorruptMetadataError: The metadata to extend is malformed.
        SchemaError: The schema cannot be read.
    """
    request = target.request
    schema = target.read_schema()
    files = metadata_files(target)
    if files is not None:
        files.open(append=request.append)
        schema = files.merge_schema(schema)
    names = list_names(target.bucket)
    reserved_names = ledger_object_names(names)
    contents = read_bucket(target.bucket, previous=previous) if names else None
    existing_ids = _check_topic_ledgers(target, contents, files)
    if file.is_named:
        # Objects of earlier runs are kept until one run commits: one of them may still be running.
        reserved_names -= find_unpublished(names, file.is_own)
    used_ids = {name.ledger_id for name in reserved_names}.union(files.ledger_ids if files else ())
    # Some kinds of objects list their ledgers only in index objects, not in their names.
    listed_names = ledger_object_names(names)
    copies = contents.copies if contents else ()
    used_ids |= {copy.name.ledger_id for copy in copies if copy.name not in listed_names}
    first = request.first_ledger_id
    if first is not None:
        check_first_ledger_id(first, existing_ids.union(files.ledger_ids if files else ()))
    else:
        first = max(used_ids, default=-1) + 1
        if id_stride is not None:
            first += id_stride * secrets.randbelow(_FREE_RANGES)
    warnings = [*(files.warnings if files else ())]
    if files is not None:
        warnings += _cluster_warnings(target.bucket, request.first_ledger_id)
    elif existing_ids:
        warnings.append(_STALE_METADATA_WARNING.format(option=option_name("metadata_folder")))
    plan = WritePlan(
        mark=file.mark,
        started_ms=time.time_ns() // 1_000_000,
        ids=IdRange(first=first, used_ids=frozenset(each for each in used_ids if each >= first)),
        schema=schema,
        warnings=tuple(warnings),
    )
    if files is not None:
        files.begin(file)
    return StartedWrite(plan, files, contents)


def _check_topic_ledgers(
    target: WriteTarget, contents: BucketContents | None, files: MetadataFiles | None
) -> set[int]:
    """Check the topic's ledgers in the bucket against the options, and return their ids."""
    if contents is None:
        return set()
    if not target.request.append:
        check_new(target.topic, contents.copies)
        return set()
    metadata = None if files is None else files.metadata
    return check_appendable(target.topic, target.names, contents.copies, metadata)


def _cluster_warnings(location: Location, first_ledger_id: int | None) -> list[str]:
    """Return warnings if the metadata would not be usable by a cluster."""
    if store_kind(location.url) is None:
        return []
    if prefix_in_store(location.url):
        warning = (
            f"the ledgers are stored below a prefix, {location}: a broker looks for them at the"
            " root of the bucket, so a cluster with this metadata would not find them"
        )
        return [warning]
    if first_ledger_id is None:
        warning = (
            "the ledger ids were not chosen for a cluster, which would lose them at once: use this"
            f" metadata for readers only, or write with {option_name('first_ledger_id')}"
        )
        return [warning]
    return []


@dataclass(frozen=True, slots=True)
class PublishResult:
    """Result of `publish`.

    Attributes:
        record: The commit record that was published: this write's, or that of an earlier write with
            the same id.
        is_earlier: Whether it is an earlier write's. Nothing staged by this write counts then.
        warnings: Harmless problems, and whether nothing was written.
    """

    record: CommitRecord
    is_earlier: bool
    warnings: tuple[str, ...]


def publish(
    target: WriteTarget,
    staged: Sequence[StagedWrite],
    file: CommitRecordFile,
    *,
    files: MetadataFiles | None,
) -> PublishResult:
    """Commit a write and publish its ledgers. Repeating the call changes nothing.

    If a write with this id was committed before, publish that one and discard this one.

    Args:
        target: The topic to write to.
        staged: The staged shares, in message order; at least one.
        file: The write's commit record file.
        files: The metadata to extend, after `begin` or `resume`; None if the write has no metadata
            folder.

    Returns:
        The valid commit record, whose ledgers are published.

    Raises:
        OptionError: Another writer used the same ledger ids or changed the metadata in the
            meantime. Or the write has an id, and the store cannot write an object only if its name
            is free. Nothing is published.
        CorruptMetadataError: An earlier commit record is damaged.
        StorageError: The store refused a request, or retries were exhausted. The write may have
            been committed.
    """
    record = _make_record(target, staged)
    committed = file.read() if file.is_named else None
    leftovers: set[LedgerObjectName] = set()
    if committed is None:
        ids = {each.ledger_id for topic in record.partitions or () for each in topic.ledgers}
        leftovers = check_alone(target.bucket, file.is_own, ids) - record.names
        if files is not None:
            files.check_unchanged(file)
        is_recorded = file.is_named or files is not None
        committed = file.commit(record) if is_recorded else record
    if committed.mark == record.mark and files is not None and not committed.is_published:
        files.carry_out(committed)
    else:
        carry_out(committed, target.offloader, target.metadata_root)
    return _to_result(committed, file, _clean_up(target, committed, file, files, leftovers))


def publish_earlier(target: WriteTarget, file: CommitRecordFile) -> PublishResult | None:
    """Finish publishing an earlier write that was committed under the same id.

    Returns:
        The earlier write; None if this write has no id, or none was committed under it.

    Raises:
        OptionError: A write of the topic to another bucket was interrupted.
        CorruptMetadataError: The commit record or the metadata is malformed.
    """
    earlier = file.read() if file.is_named else None
    if earlier is None:
        return None
    files = metadata_files(target)
    warnings = [] if files is None else files.finish()
    carry_out(earlier, target.offloader, target.metadata_root)
    warnings += _clean_up(target, earlier, file, None, ())
    return _to_result(earlier, file, warnings)


def _to_result(
    record: CommitRecord, file: CommitRecordFile, warnings: Sequence[str]
) -> PublishResult:
    if has_mark(record.mark, file.mark):
        return PublishResult(record, is_earlier=False, warnings=tuple(warnings))
    warning = (
        f"a write {file.write_id} of the topic, begun at {time_of(record.started_ms):%F %T} UTC,"
        " was published before: nothing was written now"
    )
    return PublishResult(record, is_earlier=True, warnings=(*warnings, warning))


def _clean_up(
    target: WriteTarget,
    record: CommitRecord,
    file: CommitRecordFile,
    files: MetadataFiles | None,
    leftovers: Iterable[LedgerObjectName],
) -> list[str]:
    """Delete the note and unpublished ledgers; return warnings, or why that failed."""
    try:
        if files is not None:
            # The note refers to the commit record, so delete it first.
            files.end()
        if not record.is_published and (file.is_named or files is not None):
            file.finish(record)
        if not has_mark(record.mark, file.mark):
            leftovers = find_unpublished(list_names(target.bucket), file.is_own)
        warnings = {
            warning: None
            for name in sorted(leftovers, key=lambda each: each.ledger_id)
            for warning in target.offloader.delete_offloaded(name.ledger_id, name.uuid)
        }
    except PulsarOffloadError as failure:
        return [f"everything is published, but not all leftovers could be deleted: {failure}"]
    return list(warnings)


def discard(target: WriteTarget, file: CommitRecordFile) -> None:
    """Delete what all processes staged, unless the write is committed and may be repeated.

    Raises:
        CorruptMetadataError: The commit record is damaged.
    """
    if file.is_named and file.is_committed():
        return
    files = metadata_files(target)
    try:
        if files is not None:
            files.resume(file.mark)
    except OptionError:
        # This or another writer has undone or finished the noted write.
        return
    if files is not None and not file.is_named:
        # Revoke first, so that nobody resumes a write that is half undone.
        file.revoke()
    if files is not None:
        files.withdraw()
    else:
        delete_marked(target.offloader, file.mark)


def _make_record(target: WriteTarget, staged: Sequence[StagedWrite]) -> CommitRecord:
    ledgers = [ledger for each in staged for ledger in each.ledgers]
    if not ledgers:
        message = "there is no message to write"
        raise OptionError(message)
    greatest = max(each.info.ledger_id for each in ledgers)
    # Each partition ends with an open ledger, whose id follows those of all ledgers.
    open_ids = LedgerIds(IdRange(first=greatest + 1))
    partitions = []
    for name in target.names:
        own = name.managed_ledger_name
        infos = [each.info for each in ledgers if each.managed_ledger == own]
        properties = [each.properties[own] for each in staged if own in each.properties]
        partitions.append(
            TopicMetadata(
                topic=name,
                ledgers=checked_ledgers((*infos, LedgerInfo(ledger_id=open_ids.next_id()))),
                properties=properties[-1] if properties else {},
            )
        )
    return CommitRecord(
        mark=staged[0].mark,
        started_ms=staged[0].started_ms,
        message_count=sum(each.message_count for each in staged),
        partitions=tuple(partitions),
        indexes=tuple(each.index for each in sorted(ledgers, key=lambda each: each.info.ledger_id)),
        schemas=staged[0].schemas,
    )


def check_new(topic: TopicName, copies: Iterable[LedgerCopy]) -> None:
    """Raise if the topic has ledgers in the bucket.

    Raises:
        OptionError: The topic, one of its partitions, or the partitioned topic that it belongs to
            has ledgers.
    """
    for copy in copies:
        owner = copy.topic
        if isinstance(owner, TopicName) and (owner in (topic, topic.base) or owner.base == topic):
            message = (
                f"the bucket has ledgers of {owner} already: give {option_name('append')} to write"
                " more, whose sequence ids and broker indexes start anew"
            )
            raise OptionError(message, ledger_id=copy.name.ledger_id)


def check_appendable(
    topic: TopicName,
    names: Sequence[TopicName],
    copies: Collection[LedgerCopy],
    metadata: Collection[TopicMetadata] | None,
) -> set[int]:
    """Check that appended ledgers fit the existing ones, in the bucket and in the metadata, if any.

    `names` are the topic, or all of its partitions.

    Returns:
        Ids of the ledgers that the topic or its partitions have in the bucket.

    Raises:
        OptionError: The topic has another number of partitions. Or the metadata lacks ledgers that
            the bucket has.
    """
    owners = {copy.topic for copy in copies if isinstance(copy.topic, TopicName)}
    partitions = {each.partition for each in owners if each.base == topic.base}
    check_partitions(topic, names, partitions, "the bucket", is_whole=not metadata)
    topic_copies = [copy for copy in copies if copy.topic in names]
    ids = {copy.name.ledger_id for copy in topic_copies}
    if metadata is None:
        return ids
    metadata_ledgers = {
        (each.topic, ledger.ledger_id) for each in metadata for ledger in each.ledgers[:-1]
    }
    for copy in topic_copies:
        if (copy.topic, copy.name.ledger_id) not in metadata_ledgers:
            message = (
                "the bucket has a ledger of the topic that the metadata folder lacks, so appending"
                " would hide it: give the folder that was written with this ledger, or no folder"
            )
            raise OptionError(message, ledger_id=copy.name.ledger_id)
    return ids


def check_first_ledger_id(first_ledger_id: int, ledger_ids: Collection[int]) -> None:
    """Check that the id that the user chose is greater than those of all existing ledgers.

    Raises:
        OptionError: It is not. Readers order messages by ledger id.
    """
    greatest = max(ledger_ids, default=-1)
    if first_ledger_id <= greatest:
        message = (
            f"{option_name('first_ledger_id')} must be greater than {greatest}, the topic's last"
            " ledger: readers would get the appended messages before the existing ones"
        )
        raise OptionError(message, ledger_id=first_ledger_id)
