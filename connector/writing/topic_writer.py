"""`write_messages`: messages → entries → ledgers → a topic that lies in a bucket as if offloaded.

What a producer, a broker, BookKeeper and the offloader do together, without any of them: messages
are batched into entries, entries fill ledgers, and each ledger is offloaded when it is full. A
cluster that the topic is to be attached to must not know the ledgers' ids, nor ever give them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.core.option_names import option_name
from arrow_io.core.wording import counted
from arrow_io.errors import PulsarOffloadError
from arrow_io.ledgers.writer import DEFAULT_BLOCK_BYTES
from arrow_io.messages.entry_writer import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
)
from connector.options.option import selected_options, takes_options
from connector.options.write_request import (
    DEFAULT_LEDGER_BYTES,
    DEFAULT_LEDGER_ENTRIES,
    WRITE_OPTIONS,
    WriteRequest,
)
from connector.writing.commit import begin, publish, publish_earlier
from connector.writing.ledger_ids import LedgerIds
from connector.writing.staging import LedgerStager, fill
from connector.writing.topic_files import NewFolders
from connector.writing.write_target import WriteTarget

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from arrow_io.payloads.schema_info import TopicSchema
    from arrow_io.storage.trace import RequestTrace
    from connector.catalog.metadata.topic_metadata import TopicMetadata
    from connector.catalog.schemas.loading import SchemaSource
    from connector.inputs.topic_names import TopicName
    from connector.writing.commit import Published
    from connector.writing.commit_record import CommitRecordFile
    from connector.writing.metadata_files import MetadataFiles


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WrittenTopic:
    """What `write_messages` wrote."""

    topic: TopicName
    message_count: int
    partitions: tuple[TopicMetadata, ...]
    """The ledgers of the topic, or of each of its partitions, as a cluster records them. The last
    of each is open and empty: a broker that loads the topic looks for it in BookKeeper, and makes
    another if it is not there."""
    is_earlier: bool = False
    """Whether a write of the same id was published before, of which all this tells; nothing was
    written now."""
    warnings: tuple[str, ...] = ()
    """What went wrong, yet does no harm, or may do so when the topic is attached to a cluster."""

    def __repr__(self) -> str:
        """The counts in one line: there may be thousands of ledgers."""
        ledgers = sum(ledger.offload is not None for p in self.partitions for ledger in p.ledgers)
        return (
            f"WrittenTopic({self.topic}: {counted(self.message_count, 'message')} in"
            f" {counted(ledgers, 'ledger')} of {counted(len(self.partitions), 'partition')})"
        )


@takes_options(WRITE_OPTIONS)
def write_messages(  # noqa: D417 - the decorator describes the options
    url: str,
    topic: str,
    messages: object,
    *,
    storage_options: Mapping[str, object] | None = None,
    schema: SchemaSource | TopicSchema | None = None,
    schema_version: int | None = None,
    compression: str = "lz4",
    batch_messages: int | None = None,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    batch_delay_ms: int | None = None,
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
    write_id: str | None = None,
    trace: RequestTrace | None = None,
) -> WrittenTopic:
    """Write messages to a bucket, as the offloaded ledgers of a topic.

    Entries of the ledger that is being filled, one for each partition, are kept in temporary files,
    since a ledger's length must be known before its first block; and one batch of messages of each
    is in memory. Readers see no ledger before all of them are written. An error, an interrupt too,
    deletes all that was written; what could not be deleted is noted on the error. What a killed
    process left is undone, or finished if only publishing was left to do, by the next call that
    writes the topic with the same `metadata_folder`; a warning says so.

    One writer at a time: two that write to one bucket at once choose the same ledger ids. The one
    that ends later finds out, deletes what it wrote, and fails.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows, but for a chain of them.
        topic: A short name (`orders`) or a full one (`persistent://tenant/ns/orders`).
        messages: A table, record batch, dataset or whatever else streams Arrow data, or an iterable
            of record batches, with columns named as `open_topic` names them; or an iterable of
            `Message`. `connector.writing.message_rows` says what missing columns stand for.

    Raises:
        OptionError: An option has a value that is not allowed; a column or value is not usable;
            there is no message; the store cannot keep a `write_id`; a ledger id is taken, perhaps
            by another writer at the same time; the bucket or the metadata folder has the topic
            already, or, to append to it, has it otherwise: with other partitions or schemas, or
            metadata that was not written here.
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
    request = WriteRequest(**selected_options(WRITE_OPTIONS, locals()))
    return write_to(WriteTarget.from_name(url, topic, request), messages)


def write_to(target: WriteTarget, messages: object) -> WrittenTopic:
    """Write messages; as `write_messages`, whose options are made sense of."""
    write_id = target.request.write_id
    file = target.commit_record_file(write_id)
    earlier = publish_earlier(target, file)
    if earlier is not None:
        return _to_written_topic(target, earlier, ())
    new_folders = NewFolders(target.bucket)
    started = begin(target, file)
    stager = LedgerStager(target.offloader, LedgerIds(started.plan.ids), file.mark)
    try:
        staged = fill(target, started.plan, stager, messages)
        published = publish(target, [staged], file, files=started.files)
    except BaseException as error:
        _undo(error, file, started.files, stager)
        new_folders.remove()
        raise
    return _to_written_topic(target, published, (*staged.warnings, *started.plan.warnings))


def _undo(
    error: BaseException, file: CommitRecordFile, files: MetadataFiles | None, stager: LedgerStager
) -> None:
    """Delete what a failed write wrote, unless it stays; what is left is noted on the error."""
    try:
        stays = file.is_committed()
        if stays and not file.is_named:
            # Before anything is undone, lest somebody go on with it half undone.
            file.revoke()
            stays = False
    except PulsarOffloadError as failure:
        error.add_note(f"whether the write is decided could not be seen to: {failure}")
        stays = True
    if stays:
        error.add_note(
            f"the write may be decided: give {option_name('write_id', file.write_id)} again, or"
            " write more with the same metadata folder, which ends it"
        )
    elif files is None:
        stager.undo(error)
    else:
        files.undo(error, stager)


def _to_written_topic(
    target: WriteTarget, published: Published, warnings: Iterable[str]
) -> WrittenTopic:
    return WrittenTopic(
        topic=target.topic,
        message_count=published.record.message_count,
        partitions=published.record.partitions or (),
        is_earlier=published.is_earlier,
        warnings=(*warnings, *published.warnings),
    )
