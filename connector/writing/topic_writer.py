"""`write_messages`: write messages to a bucket as the offloaded ledgers of a topic.

This does the work of a producer, a broker, BookKeeper and the offloader, without any of them.
Messages are batched into entries, entries fill ledgers, and each full ledger is offloaded. If the
topic is to be attached to a cluster, the cluster must not use the ledgers' ids for other ledgers,
now or later.
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
    from connector.writing.commit import PublishResult
    from connector.writing.commit_record import CommitRecordFile
    from connector.writing.metadata_files import MetadataFiles


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WrittenTopic:
    """Result of `write_messages`."""

    topic: TopicName
    message_count: int
    partitions: tuple[TopicMetadata, ...]
    """The ledgers of the topic, or of each of its partitions, as a cluster records them. The
    last ledger of each is open and empty. A broker that loads the topic looks for it in
    BookKeeper, and creates another if it is missing."""
    is_earlier: bool = False
    """Whether a write with the same id was published before. This is that write's result;
    nothing was written now."""
    warnings: tuple[str, ...] = ()
    """Harmless problems, and conditions that may do harm when the topic is attached to a
    cluster."""

    def __repr__(self) -> str:
        """Return only counts: there may be thousands of ledgers."""
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

    A ledger's length must be known before its first block is written. So each partition buffers the
    entries of its current ledger in a temporary file, and one batch of messages in memory.

    Readers see no ledger before all are written. If the write fails or is interrupted, everything
    that it wrote is deleted; failures to delete are added to the error as notes. If the process is
    killed, the next call that writes the topic with the same `metadata_folder` undoes the write, or
    finishes it if only publishing was left. A warning says so.

    Let only one writer at a time write to a bucket: two at once choose the same ledger ids. The one
    that ends later detects this, deletes what it wrote, and fails.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows, except chained URLs.
        topic: A short name (`orders`) or a full one (`persistent://tenant/ns/orders`).
        messages: A table, record batch, dataset or other object that streams Arrow data, or an
            iterable of record batches, with columns named as `open_topic` names them. Or an
            iterable of `Message`. For missing columns, see `connector.writing.message_rows`.

    Raises:
        OptionError: An option has a value that is not allowed; a column or value is not usable;
            there are no messages; the store cannot support `write_id`; or a ledger id is used
            already, perhaps by a concurrent writer. Or the bucket or metadata folder already has
            the topic, and `append` is False. Or it has the topic with other partitions or schemas,
            or with metadata that was not written here.
        CorruptMetadataError: The metadata to extend is malformed.
        EntryTooLargeError: A message exceeds the maximum size of an entry, or an entry that of a
            block.
        SchemaError: The schema cannot be read.
        StorageError: The store refused a request, or retries were exhausted.
        Exception: Any error that the messages raise.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"__key__": ["a", "b"], "__value__": [b"1", b"2"]})
        >>> write_messages("memory://written-example", "orders", table).message_count
        2
    """
    request = WriteRequest(**selected_options(WRITE_OPTIONS, locals()))
    return write_to(WriteTarget.from_name(url, topic, request), messages)


def write_to(target: WriteTarget, messages: object) -> WrittenTopic:
    """Write messages like `write_messages`, with checked options."""
    write_id = target.request.write_id
    file = target.commit_record_file(write_id)
    earlier = publish_earlier(target, file)
    if earlier is not None:
        return _to_written_topic(target, earlier, ())
    new_folders = NewFolders(target.bucket)
    write = begin(target, file)
    stager = LedgerStager(target.offloader, LedgerIds(write.plan.ids), file.mark)
    try:
        staged = fill(target, write.plan, stager, messages)
        result = publish(target, [staged], file, files=write.files)
    except BaseException as error:
        _undo(error, file, write.files, stager)
        new_folders.remove()
        raise
    return _to_written_topic(target, result, (*staged.warnings, *write.plan.warnings))


def _undo(
    error: BaseException, file: CommitRecordFile, files: MetadataFiles | None, stager: LedgerStager
) -> None:
    """Delete what a failed write wrote, unless it is committed; add notes about the rest."""
    try:
        must_keep = file.is_committed()
        if must_keep and not file.is_named:
            # Revoke first, so that nobody resumes a write that is half undone.
            file.revoke()
            must_keep = False
    except PulsarOffloadError as failure:
        error.add_note(f"the commit record could not be read or revoked: {failure}")
        must_keep = True
    if must_keep:
        error.add_note(
            "the write may be committed; to finish it, repeat it with"
            f" {option_name('write_id', file.write_id)}, or write again with the same metadata"
            " folder"
        )
    elif files is None:
        stager.undo(error)
    else:
        files.undo(error, stager)


def _to_written_topic(
    target: WriteTarget, result: PublishResult, warnings: Iterable[str]
) -> WrittenTopic:
    return WrittenTopic(
        topic=target.topic,
        message_count=result.record.message_count,
        partitions=result.record.partitions or (),
        is_earlier=result.is_earlier,
        warnings=(*warnings, *result.warnings),
    )
