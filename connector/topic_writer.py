"""`write_messages`: messages → entries → ledgers → a topic that lies in a bucket as if offloaded.

What a producer, a broker, BookKeeper and the offloader do together, without any of them: messages
are batched into entries, entries fill ledgers, and each ledger is offloaded when it is full.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError, PulsarOffloadError
from arrow_io.format.object_names import MAX_LEDGER_ID
from arrow_io.ledger_writer import DEFAULT_BLOCK_BYTES
from arrow_io.messages.entry_writer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BATCH_MESSAGES,
    DEFAULT_MAX_MESSAGE_BYTES,
    EntryOptions,
    EntryWriter,
)
from arrow_io.storage.location import Location
from connector.catalog.admin_answers import internal_info_json, internal_stats_json
from connector.catalog.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata_folder import INFO_FILE, SCHEMAS_FILE, STATS_FILE, VALUE_FILE
from connector.catalog.schema_answers import schemas_json
from connector.catalog.topic_metadata import LedgerInfo, TopicMetadata
from connector.ledger_filling import LedgerFiller, LedgerLimits, LedgerSeries
from connector.message_router import MessageRouter
from connector.message_rows import MessageRows
from connector.offloader import LedgerOffloader
from connector.topic import read_schema
from connector.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from arrow_io.messages.message_metadata import Message
    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.trace import RequestTrace
    from connector.catalog.schemas import SchemaSource

DEFAULT_LEDGER_ENTRIES: Final = 50_000
"""A broker's `managedLedgerMaxEntriesPerLedger`."""
DEFAULT_LEDGER_BYTES: Final = 256 << 20
"""Less than a broker's `managedLedgerMaxSizePerLedgerMbytes`, since so much is kept aside."""

_MAX_PARTITIONS: Final = 500
_IN_MEMORY_BYTES: Final = 32 << 20
_METADATA_FILES: Final = (VALUE_FILE, INFO_FILE, STATS_FILE, SCHEMAS_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTopic:
    """What `write_messages` wrote."""

    topic: TopicName
    message_count: int
    partitions: tuple[TopicMetadata, ...]
    """The ledgers of the topic, or of each of its partitions, as a cluster records them. The last
    of each is open and empty: a broker that loads the topic looks for it in BookKeeper, and makes
    another where it is not there."""


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
    deleted is noted on the error.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows.
        topic: A short name (`orders`) or a full one (`persistent://tenant/ns/orders`).
        messages: A table, record batch, dataset or whatever else streams Arrow data, or an iterable
            of record batches, with columns named as `open_topic` names them; or an iterable of
            `Message`. `connector.message_rows` says what missing columns stand for.
        storage_options: Options of the fsspec file system.
        schema: What values are encoded by, in any form that `open_topic` takes. Values of primitive
            types and of JSON are encoded; of other types, and where `__value__` is binary, they are
            taken to be encoded already. None: `__value__` is bytes, or text.
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
            bucket. A cluster that the topic is to be attached to must have no ledgers of these ids,
            nor of the open ones behind them, in BookKeeper.
        block_bytes: Length of every data block but the last, in bytes.
        cluster: Name of the cluster, for the objects' user metadata.
        metadata_folder: Path or URL of a folder that receives, in a folder for the topic or for
            each partition, what a cluster would record and answer: `managed-ledger-info.bin`,
            `internal-info.json`, `internal-stats.json` and `schemas-rest.json`. `open_catalog`
            takes it as `metadata`.
        metadata_options: Options of that folder's fsspec file system.
        trace: Counts the requests to the bucket.

    Raises:
        OptionError: An option has a value that is not allowed; a column or value is not usable;
            there is no message; a ledger id is taken; or the metadata folder has the topic already.
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
    name = TopicName.parse(topic)
    names = _partition_names(name, partitions)
    limits = _ledger_limits(ledger_entries, ledger_bytes, len(names))
    if not 0 <= (first_ledger_id or 0) <= MAX_LEDGER_ID:
        message = f"first_ledger_id is {first_ledger_id}; allowed are 0 … {MAX_LEDGER_ID}"
        raise OptionError(message)
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
    folder = None
    if metadata_folder is not None:
        folder = _MetadataFolder(Location(os.fspath(metadata_folder), metadata_options), names)
    series = LedgerSeries(offloader, first_ledger_id=first_ledger_id)
    now_ms = time.time_ns() // 1_000_000
    rows = MessageRows(known, publish_time_ms=now_ms).messages(messages)
    try:
        written = _write(name, names, rows, options=options, limits=limits, series=series)
        if folder is not None:
            folder.write(written.partitions, schemas_json(known, timestamp_ms=now_ms))
    except BaseException as error:
        if folder is not None:
            folder.undo(error)
        series.undo(error)
        raise
    return written


def _partition_names(topic: TopicName, partitions: int | None) -> list[TopicName]:
    if partitions is None:
        return [topic]
    if not 1 <= partitions <= _MAX_PARTITIONS:
        message = f"partitions is {partitions}; allowed are 1 … {_MAX_PARTITIONS}"
        raise OptionError(message)
    if topic.partition >= 0:
        message = f"{topic} is a partition, so it cannot have partitions"
        raise OptionError(message)
    return [
        replace(topic, local_name=f"{topic.local_name}-partition-{number}")
        for number in range(partitions)
    ]


def _ledger_limits(entries: int, size_bytes: int, partition_count: int) -> LedgerLimits:
    for option, number in (("ledger_entries", entries), ("ledger_bytes", size_bytes)):
        if number < 1:
            message = f"{option} must be at least 1, not {number}"
            raise OptionError(message)
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
                fillers[number].add(entry)
        for writer, filler in zip(writers, fillers, strict=True):
            for entry in writer.flush():
                filler.add(entry)
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


class _MetadataFolder:
    """Receives what a cluster would record of a topic, in a folder for each of its partitions.

    Args:
        location: Where the folders are made.
        names: The topic, or its partitions.

    Raises:
        OptionError: There is metadata of the topic already.
        StorageError: The store refused, or went on failing.
    """

    def __init__(self, location: Location, names: Iterable[TopicName]) -> None:
        self._folders = [location.child(_folder_name(name)) for name in names]
        for folder in self._folders:
            if any(folder.exists(name) for name in _METADATA_FILES):
                message = f"{folder} has metadata of this topic already"
                raise OptionError(message)

    def write(self, partitions: Iterable[TopicMetadata], schemas: str) -> None:
        """Write the files of each partition, the schemas into each folder."""
        for folder, metadata in zip(self._folders, partitions, strict=True):
            for name, data in (
                (VALUE_FILE, serialize_managed_ledger_info(metadata)),
                (INFO_FILE, internal_info_json(metadata).encode()),
                (STATS_FILE, internal_stats_json(metadata).encode()),
                (SCHEMAS_FILE, schemas.encode()),
            ):
                folder.write_object(name, data, user_metadata={})

    def undo(self, error: BaseException) -> None:
        """Delete what was written; of what cannot be, the error is told."""
        try:
            for folder in self._folders:
                folder.delete_objects(_METADATA_FILES)
        except PulsarOffloadError as failure:
            error.add_note(f"not all metadata that was written could be deleted: {failure}")


def _folder_name(topic: TopicName) -> str:
    """`tenant__namespace__topic`; what a name of a folder cannot have is encoded."""
    *parts, _domain, local_name = topic.managed_ledger_name.split("/")
    return "__".join((*parts, local_name))
