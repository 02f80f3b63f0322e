"""Two-phase commit of a write: start it, then publish or discard its staged ledgers.

A decision is an object of its own only if somebody may look for it: who repeats a write that has an
id, and who finds the note of a write with metadata.
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
    "Metadata that was saved before lacks the new ledgers, so whoever reads by it misses these"
    " messages. Give {option} to extend metadata that write made."
)
_FREE_RANGES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StartedWrite:
    """A write that has begun, in the process that began it.

    Attributes:
        plan: What others need to know.
        files: The metadata that is to be extended; None: none is written.
        contents: What the bucket held; None if it had no ledger.
    """

    plan: WritePlan
    files: MetadataFiles | None
    contents: BucketContents | None


def metadata_files(target: WriteTarget) -> MetadataFiles | None:
    """The metadata of a topic that is written to; None: none is written."""
    root = target.metadata_root
    if root is None:
        return None
    return MetadataFiles(root, target.topic, target.names, target.offloader)


def begin(
    target: WriteTarget,
    file: CommitRecordFile,
    *,
    ids_apart: int | None = None,
    previous: BucketContents | None = None,
) -> StartedWrite:
    """Begin a write, of which ledgers that runs before it have staged take no ids.

    Args:
        target: What is written to.
        file: Where the write will be decided, unless it gets an id later; it is not decided.
        ids_apart: Unless ids are chosen by the user: how many ids lie between the places of which
            one is drawn for the first, so that writers that begin at once hardly ever meet; None:
            it is the one behind the greatest in the bucket.
        previous: What the bucket held before, of which nothing is read again that has not changed.

    Raises:
        OptionError: The topic cannot be written to: see `MetadataFiles.open`, `check_new` and
            `check_appendable`; or the first ledger id is not behind those that it has.
        CorruptMetadataError: Metadata that is to be extended is malformed.
        SchemaError: The schema cannot be read.
        StorageError: The store refused, or went on failing.
    """
    request = target.request
    schema = target.read_schema()
    files = metadata_files(target)
    if files is not None:
        files.open(append=request.append)
        schema = files.merge_schema(schema)
    names = list_names(target.bucket)
    listed = ledger_object_names(names)
    contents = read_bucket(target.bucket, previous=previous) if names else None
    existing_ids = _check_topic_ledgers(target, contents, files)
    if file.is_named:
        # What earlier runs have left stays until one is decided, lest one that still runs miss it.
        listed -= find_unpublished(names, file.is_own)
    used_ids = {name.ledger_id for name in listed}.union(files.ledger_ids if files else ())
    # Other kinds of objects have ledgers too, which only their index objects may tell.
    named = ledger_object_names(names)
    copies = contents.copies if contents else ()
    used_ids |= {copy.name.ledger_id for copy in copies if copy.name not in named}
    first = request.first_ledger_id
    if first is not None:
        check_first_ledger_id(first, existing_ids.union(files.ledger_ids if files else ()))
    else:
        first = max(used_ids, default=-1) + 1
        if ids_apart is not None:
            first += ids_apart * secrets.randbelow(_FREE_RANGES)
    warnings = [*(files.warnings if files else ())]
    if files is not None:
        warnings += _cluster_warnings(target.bucket, request.first_ledger_id)
    elif existing_ids:
        warnings.append(_STALE_METADATA_WARNING.format(option=option_name("metadata_folder")))
    plan = WritePlan(
        mark=file.mark,
        started_ms=time.time_ns() // 1_000_000,
        ids=IdRange(first=first, used=frozenset(each for each in used_ids if each >= first)),
        schema=schema,
        warnings=tuple(warnings),
    )
    if files is not None:
        files.begin(file)
    return StartedWrite(plan, files, contents)


def _check_topic_ledgers(
    target: WriteTarget, contents: BucketContents | None, files: MetadataFiles | None
) -> set[int]:
    """Check what the bucket has of the topic; ids of its ledgers."""
    if contents is None:
        return set()
    if not target.request.append:
        check_new(target.topic, contents.copies)
        return set()
    metadata = None if files is None else files.metadata
    return check_appendable(target.topic, target.names, contents.copies, metadata)


def _cluster_warnings(location: Location, first_ledger_id: int | None) -> list[str]:
    """Warnings of metadata in an object store that no cluster should be given."""
    if store_kind(location.url) is None:
        return []
    if prefix_in_store(location.url):
        warning = (
            f"the ledgers lie below a prefix, {location}: a broker looks for them at the root of"
            " the bucket, so a cluster with this metadata would not find them"
        )
        return [warning]
    if first_ledger_id is None:
        warning = (
            "the ids of the ledgers were not chosen for a cluster, which would lose them at once:"
            f" this metadata is for readers alone, unless {option_name('first_ledger_id')} is given"
        )
        return [warning]
    return []


@dataclass(frozen=True, slots=True)
class Published:
    """What `publish` gave.

    Attributes:
        record: What was published: what was staged, unless a write of its id was decided before.
        is_earlier: Whether one was; nothing of what was staged counts then.
        warnings: What went wrong, yet does no harm, and whether nothing was written, in words.
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
    return _to_published(committed, file, _clean_up(target, committed, file, files, leftovers))


def publish_earlier(target: WriteTarget, file: CommitRecordFile) -> Published | None:
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
    warnings += _clean_up(target, earlier, file, None, ())
    return _to_published(earlier, file, warnings)


def _to_published(
    record: CommitRecord, file: CommitRecordFile, warnings: Sequence[str]
) -> Published:
    if has_mark(record.mark, file.mark):
        return Published(record, is_earlier=False, warnings=tuple(warnings))
    warning = (
        f"a write {file.write_id} of the topic, begun at {time_of(record.started_ms):%F %T} UTC,"
        " was published before: nothing was written now"
    )
    return Published(record, is_earlier=True, warnings=(*warnings, warning))


def _clean_up(
    target: WriteTarget,
    record: CommitRecord,
    file: CommitRecordFile,
    files: MetadataFiles | None,
    leftovers: Iterable[LedgerObjectName],
) -> list[str]:
    """Forget what was noted, and delete what was staged in vain; warnings of it, or why not."""
    try:
        if files is not None:
            # It leads to the decision, so it goes first.
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
        return [f"all is published, but not all that is of no use any more was deleted: {failure}"]
    return list(warnings)


def discard(target: WriteTarget, file: CommitRecordFile) -> None:
    """Delete what was staged, by whichever process, unless it was decided and may be repeated.

    Args:
        target: What is written to.
        file: Where the write is decided.

    Raises:
        CorruptMetadataError: The decision is not as it was written.
        StorageError: The store refused, or went on failing.
    """
    if file.is_named and file.is_committed():
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


def _make_record(target: WriteTarget, staged: Sequence[StagedWrite]) -> CommitRecord:
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
    """Refuse a topic that has ledgers in the bucket.

    Args:
        topic: The topic.
        copies: What the bucket holds.

    Raises:
        OptionError: The topic itself, a partition of it, or what it is a partition of, has some.
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
    """Check that what is appended fits what is there.

    Args:
        topic: The topic.
        names: The topic, or all of its partitions.
        copies: What the bucket holds.
        metadata: What stands in the metadata that is to be extended; None: none is written.

    Returns:
        Ids of the ledgers that the topic or its partitions have in the bucket.

    Raises:
        OptionError: The topic has another number of partitions; or there is metadata to be written,
            and it lacks ledgers that the bucket has.
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
                "the bucket has a ledger of the topic that the metadata folder does not know, so"
                " what is appended would hide it: give the folder that was written with it, or none"
            )
            raise OptionError(message, ledger_id=copy.name.ledger_id)
    return ids


def check_first_ledger_id(first_ledger_id: int, ledger_ids: Collection[int]) -> None:
    """Refuse ledgers before those that a topic has: ids ascend with the order of messages.

    Args:
        first_ledger_id: The first id that was chosen for what is appended.
        ledger_ids: Ids of the ledgers that are there.

    Raises:
        OptionError: It is not greater than all of these.
    """
    greatest = max(ledger_ids, default=-1)
    if first_ledger_id <= greatest:
        message = (
            f"{option_name('first_ledger_id')} must be greater than {greatest}, the topic's last"
            " ledger: readers would get what is appended before what is there"
        )
        raise OptionError(message, ledger_id=first_ledger_id)
