"""`write_messages`: messages → entries → ledgers → a topic that lies in a bucket as if offloaded.

What a producer, a broker, BookKeeper and the offloader do together, without any of them: messages
are batched into entries, entries fill ledgers, and each ledger is offloaded when it is full. A
cluster that the topic is to be attached to must not know the ledgers' ids, nor ever give them out.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.ledger_writer import DEFAULT_BLOCK_BYTES
from arrow_io.messages.entry_writer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_MESSAGES,
    DEFAULT_MAX_MESSAGE_BYTES,
    EntryOptions,
    EntryWriter,
)
from arrow_io.option_names import option_name
from arrow_io.option_values import check_flag, check_whole_number
from arrow_io.storage.store_kinds import prefix_in_store, store_kind
from connector.catalog.bucket import read_bucket
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
from connector.offloader import LedgerOffloader
from connector.topic import read_schema
from connector.topic_name import TopicName
from connector.writing.ledger_filling import LedgerFiller, LedgerLimits, LedgerSeries
from connector.writing.message_router import MessageRouter
from connector.writing.message_rows import MessageRows
from connector.writing.metadata_files import MetadataFiles
from connector.writing.new_folders import NewFolders
from connector.writing.standing_topic import check_appendable, check_behind, check_new

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from arrow_io.messages.message_metadata import Message
    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.location import Location
    from arrow_io.storage.trace import RequestTrace
    from connector.catalog.schemas.loading import SchemaSource

DEFAULT_LEDGER_ENTRIES: Final = 50_000
"""A broker's `managedLedgerMaxEntriesPerLedger`."""
DEFAULT_LEDGER_BYTES: Final = 256 << 20
"""Less than a broker's `managedLedgerMaxSizePerLedgerMbytes`, since so much is kept aside."""

_MAX_PARTITIONS: Final = 500
_MAX_LIMIT: Final = 2**63 - 1
_IN_MEMORY_BYTES: Final = 32 << 20
_UNTOLD: Final = (
    "Metadata that was saved before lacks the new ledgers, so whoever reads by it misses these"
    " messages. Give {option} to extend metadata that write made."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTopic:
    """What `write_messages` wrote."""

    topic: TopicName
    message_count: int
    partitions: tuple[TopicMetadata, ...]
    """The ledgers of the topic, or of each of its partitions, as a cluster records them. The last
    of each is open and empty: a broker that loads the topic looks for it in BookKeeper, and makes
    another if it is not there."""
    warnings: tuple[str, ...] = ()
    """What went wrong, yet does no harm, or may do so when the topic is attached to a cluster."""


def write_messages(
    url: str,
    topic: str,
    messages: object,
    *,
    storage_options: Mapping[str, object] | None = None,
    schema: SchemaSource | TopicSchema | None = None,
    schema_version: int | None = None,
    compression: str = "lz4",
    batch_messages: int = DEFAULT_BATCH_MESSAGES,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    batch_delay_ms: int = 0,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    chunking: bool = False,
    broker_metadata: bool = False,
    partitions: int | None = None,
    ledger_entries: int = DEFAULT_LEDGER_ENTRIES,
    ledger_bytes: int = DEFAULT_LEDGER_BYTES,
    first_ledger_id: int | None = None,
    append: bool = False,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
    cluster: str | None = None,
    metadata_folder: str | os.PathLike[str] | None = None,
    metadata_options: Mapping[str, object] | None = None,
    trace: RequestTrace | None = None,
) -> WrittenTopic:
    """Write messages to a bucket, as the offloaded ledgers of a topic.

    Entries of the ledger that is being filled, one for each partition, are kept in temporary files,
    since a ledger's length must be known before its first block; and one batch of messages of each
    is in memory. An error, an interrupt too, deletes all that was written; what could not be
    deleted is noted on the error. What a killed process left is undone by the next call that writes
    the topic with the same `metadata_folder`; a warning says so.

    One writer at a time: two that write to one bucket at once choose the same ledger ids. The one
    that ends later finds out, deletes what it wrote, and fails.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows, but for a chain of them.
        topic: A short name (`orders`) or a full one (`persistent://tenant/ns/orders`).
        messages: A table, record batch, dataset or whatever else streams Arrow data, or an iterable
            of record batches, with columns named as `open_topic` names them; or an iterable of
            `Message`. `connector.writing.message_rows` says what missing columns stand for.
        storage_options: Options of the fsspec file system.
        schema: What values are encoded by, in any form that `open_topic` takes. Values of all types
            that `open_topic` decodes are encoded, from the columns that it gives of them; if
            `__value__` is binary, they are encoded already. None: `__value__` is bytes, or text.
        schema_version: Which version of the schema is meant; None for the newest.
        compression: `none`, `lz4`, `zlib`, `zstd` or `snappy`.
        batch_messages: Most messages of a batch; 1: no batches.
        batch_bytes: Most bytes of a batch before compression.
        batch_delay_ms: How much later than the first message of a batch its others may be
            published, in ms; they take its publish time. 0 keeps the publish time of each.
        max_message_bytes: Longest entry, without what the broker adds.
        chunking: Whether a longer message is stored in chunks instead of being refused.
        broker_metadata: Whether entries have broker entry metadata (PIP-70).
        partitions: Number of partitions; None: the topic is not partitioned. Keys are hashed as
            Pulsar's Java client does by default.
        ledger_entries: Most entries of a ledger.
        ledger_bytes: Most bytes of a ledger's entries, unless it has but one.
        first_ledger_id: Id of the first ledger; the others follow. None: behind the greatest in the
            bucket, which no cluster can be given. For a cluster that the topic is to be attached
            to, all ids, those of the open ledgers behind them too, must be free in its BookKeeper,
            and below the id that it gives to its next ledger. Ledgers of other ids are lost at
            once: the broker drops them from the topic, and messages newly produced with them.
        append: Whether the topic may have ledgers in the bucket already, of which the index objects
            of the whole bucket say. It must have as many partitions as are given. Sequence ids and
            broker indexes start anew nevertheless.
        block_bytes: Length of every data block but the last, in bytes.
        cluster: Name of the cluster, for the objects' user metadata; with `metadata_folder`, it
            must be given `first_ledger_id` too.
        metadata_folder: Path or URL of a folder that receives, in a folder for the topic or for
            each partition, what a cluster would record and answer: `managed-ledger-info.bin`,
            `internal-info.json`, `internal-stats.json` and `schemas-rest.json`. `open_catalog`
            takes it as `metadata`. With `append`, metadata of the topic that was written so before
            is extended, whole or not at all; without the folder, a warning says that such metadata
            would lack the new ledgers. Of a cluster that it is attached to, `first_ledger_id` says
            which ids it must have; a broker looks for the objects at the root of the bucket.
        metadata_options: Options of that folder's fsspec file system.
        trace: Counts the requests to the bucket.

    Raises:
        OptionError: An option has a value that is not allowed; a column or value is not usable;
            there is no message; a ledger id is taken, perhaps by another writer at the same time;
            the bucket or the metadata folder has the topic already, or, to append to it, has it
            otherwise: with other partitions or schemas, or metadata that was not written here.
        CorruptMetadataError: Metadata that is to be extended is malformed.
        EntryTooLargeError: A message is longer than an entry, or an entry longer than a block, may
            be.
        SchemaError: The schema cannot be read.
        StorageError: The store refused, or went on failing.
        Exception: What the messages raised.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"__key__": ["a", "b"], "__value__": [b"1", b"2"]})
        >>> write_messages("memory://written-example", "orders", table).message_count
        2
    """
    name = _topic_name(topic)
    names = _partition_names(name, partitions)
    limits = _ledger_limits(ledger_entries, ledger_bytes, len(names))
    _check_types(cluster, append=append, chunking=chunking, broker_metadata=broker_metadata)
    if first_ledger_id is not None:
        check_whole_number("first_ledger_id", first_ledger_id, 0, MAX_LEDGER_ID)
    options = EntryOptions(
        compression=compression,
        batch_messages=batch_messages,
        batch_bytes=batch_bytes,
        batch_delay_ms=batch_delay_ms,
        max_message_bytes=max_message_bytes,
        chunking=chunking,
        broker_metadata=broker_metadata,
    )
    if schema is None and schema_version is not None:
        message = "schema_version picks one of the versions of a schema: give schema too"
        raise OptionError(message)
    known = read_schema(schema, schema_version, storage_options)
    offloader = LedgerOffloader(
        url, storage_options=storage_options, block_bytes=block_bytes, cluster=cluster, trace=trace
    )
    files = None
    if metadata_folder is not None:
        _check_cluster_ids(cluster, first_ledger_id)
        files = MetadataFiles(
            metadata_folder, metadata_options, name, names, bucket=offloader, append=append
        )
        known = files.joined_schema(known)
    new_folders = NewFolders(offloader.location)
    taken = files.ledger_ids if files else ()
    series = LedgerSeries(offloader, first_ledger_id=first_ledger_id, taken=taken)
    standing = set() if series.is_first else _check_standing(name, names, offloader, files, append)
    if first_ledger_id is not None:
        check_behind(first_ledger_id, standing.union(taken))
    now_ms = time.time_ns() // 1_000_000
    rows = MessageRows(known, publish_time_ms=now_ms).messages(messages)
    try:
        if files is not None:
            files.begin(series.attempt)
        written = _write(name, names, rows, options=options, limits=limits, series=series)
        series.check_alone()
        if files is not None:
            files.write(written.partitions, known, now_ms=now_ms)
    except BaseException as error:
        _undo(error, files, series)
        new_folders.remove()
        raise
    warnings = [*series.warnings]
    if files is not None:
        warnings += [*files.warnings, *_for_readers_alone(offloader.location, first_ledger_id)]
    elif standing:
        warnings.append(_UNTOLD.format(option=option_name("metadata_folder")))
    return replace(written, warnings=tuple(warnings))


def _undo(error: BaseException, files: MetadataFiles | None, series: LedgerSeries) -> None:
    if files is None:
        series.undo(error)
    else:
        files.undo(error, series)


def _check_types(cluster: object, **flags: object) -> None:
    for option, value in flags.items():
        check_flag(option, value)
    if cluster is not None and not (isinstance(cluster, str) and cluster):
        message = f"cluster must be the name of a cluster, not {cluster!r}"
        raise OptionError(message)


def _topic_name(topic: object) -> TopicName:
    if not isinstance(topic, str):
        message = f"the name of a topic is text, not {type(topic).__name__}"
        raise OptionError(message)
    return TopicName.parse(topic)


def _check_cluster_ids(cluster: str | None, first_ledger_id: int | None) -> None:
    """Let nobody give a cluster's metadata ids that were not chosen for it."""
    if cluster is not None and first_ledger_id is None:
        message = (
            f"metadata for the cluster {cluster} needs {option_name('first_ledger_id')}, the first"
            " of ids that are free in its BookKeeper and below its next one: a broker loses ledgers"
            " of other ids at once, with what is produced behind them; for readers alone, leave"
            f" {option_name('cluster')} out"
        )
        raise OptionError(message)


def _check_standing(
    topic: TopicName,
    names: Sequence[TopicName],
    offloader: LedgerOffloader,
    files: MetadataFiles | None,
    append: bool,  # noqa: FBT001
) -> set[int]:
    """Check what the bucket has of the topic; ids of its ledgers."""
    copies = read_bucket(offloader.location).copies
    if not append:
        check_new(topic, copies)
        return set()
    return check_appendable(topic, names, copies, None if files is None else files.standing)


def _for_readers_alone(location: Location, first_ledger_id: int | None) -> list[str]:
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


def _partition_names(topic: TopicName, partitions: int | None) -> list[TopicName]:
    if partitions is None:
        return [topic]
    check_whole_number("partitions", partitions, 1, _MAX_PARTITIONS)
    if topic.partition >= 0:
        message = f"{topic} is a partition, so it cannot have partitions"
        raise OptionError(message)
    return [
        replace(topic, local_name=f"{topic.local_name}-partition-{number}")
        for number in range(partitions)
    ]


def _ledger_limits(entries: int, size_bytes: int, partition_count: int) -> LedgerLimits:
    for option, number in (("ledger_entries", entries), ("ledger_bytes", size_bytes)):
        check_whole_number(option, number, 1, _MAX_LIMIT)
    in_memory_bytes = _IN_MEMORY_BYTES // partition_count
    return LedgerLimits(entries=entries, size_bytes=size_bytes, in_memory_bytes=in_memory_bytes)


def _write(
    topic: TopicName,
    names: Sequence[TopicName],
    messages: Iterable[Message],
    *,
    options: EntryOptions,
    limits: LedgerLimits,
    series: LedgerSeries,
) -> WrittenTopic:
    router = MessageRouter(len(names), batch_messages=options.batch_messages)
    writers = [EntryWriter(options) for _ in names]
    with ExitStack() as stack:
        fillers = [
            stack.enter_context(LedgerFiller(series, each.managed_ledger_name, limits))
            for each in names
        ]
        for message in messages:
            number = router.route(message)
            for entry in writers[number].add(message):
                fillers[number].add(entry.data, publish_time_ms=entry.publish_time_ms)
        for writer, filler in zip(writers, fillers, strict=True):
            for entry in writer.flush():
                filler.add(entry.data, publish_time_ms=entry.publish_time_ms)
            filler.close_ledger()
    message_count = sum(writer.message_count for writer in writers)
    if not message_count:
        text = "there is no message to write"
        raise OptionError(text)
    partitions = tuple(
        TopicMetadata(
            topic=each,
            ledgers=(*filler.ledgers, LedgerInfo(ledger_id=series.next_id())),
            # Where a broker goes on counting (ManagedLedgerInterceptorImpl).
            properties={"index": str(writer.last_index)} if options.broker_metadata else {},
        )
        for each, writer, filler in zip(names, writers, fillers, strict=True)
    )
    return WrittenTopic(topic=topic, message_count=message_count, partitions=partitions)
