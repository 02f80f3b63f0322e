"""Staging of messages: encode entries, fill ledgers and write their data objects.

A ledger's metadata contains its length and last entry id, and is part of the first block. So no
block can be written before all entries are known. The entries of the current ledger are buffered in
memory, or in a temporary file if they are too large.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
from array import array
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Self

from arrow_io.core.option_names import option_name
from arrow_io.core.wording import counted
from arrow_io.errors import PulsarOffloadError, StorageError
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.messages.entry_writer import EntryWriter
from connector.catalog.metadata.topic_metadata import LedgerInfo
from connector.catalog.schemas.answers import schemas_json
from connector.writing.ledger_ids import LedgerIds, ledger_uuid
from connector.writing.message_router import MessageRouter
from connector.writing.message_rows import MessageRows
from connector.writing.offloader import LedgerToOffload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType
    from uuid import UUID

    from arrow_io.payloads.schema_info import TopicSchema
    from connector.writing.ledger_ids import IdRange
    from connector.writing.offloader import IndexObject, LedgerOffloader
    from connector.writing.write_target import LedgerLimits, WriteTarget

_LENGTHS = "Q"
_EARLIEST_MS = 1
"""Earliest close time: a broker takes 0 to mean that the ledger is closed at load time
(MetaStoreImpl)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Parameters that all processes of a write share. Sent to them by pickle.

    Attributes:
        started_ms: When the write began, in ms since the epoch; publish time of messages without
            one.
        schema: The schema that encodes values, with all versions that the topic has.
        warnings: Conditions that may do harm later.
    """

    mark: UUID
    started_ms: int
    ids: IdRange
    schema: TopicSchema | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedLedger:
    """A ledger whose data object is written, but not published.

    Attributes:
        info: The ledger as a cluster records it.
        index: The index object, which publishes the ledger.
    """

    managed_ledger: str
    info: LedgerInfo
    index: IndexObject


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """Staged ledgers of a write, or one process's share of them.

    Attributes:
        schemas: The admin API's answer with the schemas that encoded the values.
        properties: Properties of the managed ledgers, by name.
        warnings: Harmless problems, without duplicates.
    """

    mark: UUID
    started_ms: int
    message_count: int
    ledgers: tuple[StagedLedger, ...]
    schemas: bytes
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class LedgerStager:
    """Writer of the data objects of consecutive ledgers. Their uuids are derived from the mark."""

    def __init__(self, offloader: LedgerOffloader, ids: LedgerIds, mark: UUID) -> None:
        self._offloader = offloader
        self._ids = ids
        self._mark = mark
        self._staged: list[tuple[int, UUID]] = []
        self.warnings: list[str] = []
        """Harmless problems, without duplicates."""

    def stage(
        self, spool: EntrySpool, managed_ledger: str, *, created_ms: int, closed_ms: int
    ) -> StagedLedger:
        """Stage a ledger of one or more entries, with times to record, in ms since the epoch.

        Raises:
            OptionError: The ledger id is used already.
            EntryTooLargeError: An entry is longer than a block.
            StorageError: The store refused a request, retries were exhausted, or the temporary file
                cannot be read.
        """
        ledger_id = self._ids.next_id()
        uuid = ledger_uuid(self._mark)
        metadata = new_ledger_metadata(
            spool.lengths_bytes, managed_ledger=managed_ledger, ctime_ms=created_ms
        )
        # Recorded before it is written: an interrupt may come between the two, and deleting a
        # missing object is no error.
        self._staged.append((ledger_id, uuid))
        objects = self._offloader.stage(LedgerToOffload(ledger_id, metadata, spool), uuid)
        self.warnings += [each for each in objects.warnings if each not in self.warnings]
        info = LedgerInfo(
            ledger_id=ledger_id,
            entries=metadata.last_entry_id + 1,
            size_bytes=metadata.length_bytes,
            timestamp_ms=closed_ms,
            # BookKeeper never had the ledger, and must not delete another with this id.
            offload=replace(objects.context, bookkeeper_deleted=True),
        )
        return StagedLedger(managed_ledger, info, objects.index)

    def undo(self, error: BaseException) -> bool:
        """Delete the staged ledgers. Failures are added to the error as notes.

        Returns:
            Whether all were deleted.
        """
        notes: list[str] = []
        is_undone = True
        for ledger_id, uuid in reversed(self._staged):
            try:
                notes += self._offloader.delete_offloaded(ledger_id, uuid)
            except PulsarOffloadError as failure:
                notes.append(f"ledger {ledger_id} of uuid {uuid} was not deleted: {failure}")
                is_undone = False
        for note in dict.fromkeys(notes):
            error.add_note(note)
        return is_undone


class LedgerFiller:
    """Collects entries of a topic or partition, and stages a ledger whenever one is full.

    A context manager, which removes the temporary file on exit.
    """

    def __init__(self, stager: LedgerStager, managed_ledger: str, limits: LedgerLimits) -> None:
        self._stager = stager
        self._managed_ledger = managed_ledger
        self._limits = limits
        self._spool = EntrySpool(limits.in_memory_bytes)
        self._published_ms: tuple[int, int] | None = None
        self.ledgers: list[StagedLedger] = []
        """The staged ledgers, in order."""

    def add(self, entry: bytes, *, publish_time_ms: int) -> None:
        """Add the next entry. Raises the errors of `LedgerStager.stage` and `EntrySpool.add`.

        Args:
            entry: The entry's bytes.
            publish_time_ms: Publish time of its messages. A ledger is recorded as created at the
                least publish time and as closed at the greatest. A broker that seeks a time stops
                at the first ledger that was closed after it (PersistentMessageFinder), and counts
                retention from the close time.
        """
        spool, limits = self._spool, self._limits
        is_full = len(spool) >= limits.entries or spool.size_bytes + len(entry) > limits.size_bytes
        if is_full and len(spool):
            self.close_ledger()
        self._spool.add(entry)
        least, greatest = self._published_ms or (publish_time_ms, publish_time_ms)
        self._published_ms = min(least, publish_time_ms), max(greatest, publish_time_ms)

    def close_ledger(self) -> None:
        """Stage the collected entries, if any. Raises the errors of `LedgerStager.stage`."""
        if self._published_ms is not None:
            created_ms, closed_ms = self._published_ms
            ledger = self._stager.stage(
                self._spool,
                self._managed_ledger,
                created_ms=created_ms,
                closed_ms=max(_EARLIEST_MS, closed_ms),
            )
            self.ledgers.append(ledger)
            self._spool.clear()
            self._published_ms = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._spool.close()


class EntrySpool:
    """Buffer of entries, in order.

    Args:
        in_memory_bytes: Maximum size in memory; a larger buffer moves to a temporary file.
    """

    def __init__(self, in_memory_bytes: int) -> None:
        # Stays open until `close`.
        self._file = SpooledTemporaryFile(max_size=in_memory_bytes)  # noqa: SIM115
        self.lengths_bytes = array(_LENGTHS)
        """Lengths of the entries."""
        self.size_bytes = 0
        """Sum of the lengths."""

    def __len__(self) -> int:
        return len(self.lengths_bytes)

    def __iter__(self) -> Iterator[bytes]:
        try:
            self._file.seek(0)
        except OSError as error:
            raise _temporary_file_error(error) from error
        for length in self.lengths_bytes:
            yield self._read(length)

    def _read(self, length: int) -> bytes:
        try:
            return self._file.read(length)
        except OSError as error:
            raise _temporary_file_error(error) from error

    def add(self, entry: bytes) -> None:
        """Append an entry.

        Raises:
            StorageError: The temporary file cannot be created or written.
        """
        try:
            self._file.write(entry)
        except OSError as error:
            raise _temporary_file_error(error) from error
        self.lengths_bytes.append(len(entry))
        self.size_bytes += len(entry)

    def clear(self) -> None:
        """Remove all entries. Raises the errors of `add`."""
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise _temporary_file_error(error) from error
        del self.lengths_bytes[:]
        self.size_bytes = 0

    def close(self) -> None:
        """Remove the temporary file."""
        # Closing flushes, which may fail again, but the content is not needed any more.
        with contextlib.suppress(OSError):
            self._file.close()


def _temporary_file_error(error: OSError) -> StorageError:
    folder = tempfile.tempdir or "that TMPDIR names"
    message = (
        f"entries cannot be stored in the temporary folder {folder}: {error.strerror or error}"
    )
    if error.errno == errno.EMFILE:
        message += (
            "; each partition needs an open file: write fewer partitions, or allow more files"
            " (ulimit -n)"
        )
    return StorageError(message)


def stage(target: WriteTarget, plan: WritePlan, ids: IdRange, messages: object) -> StagedWrite:
    """Stage messages. On failure, delete what was written, or add notes to the error.

    Several processes can stage shares of one write at once, each with ids of its own. The messages
    are those of `write_messages`.

    Raises:
        OptionError: A column or value is not usable. Or a ledger id is used already or not among
            `ids`.
        EntryTooLargeError: A message exceeds the maximum size of an entry, or an entry that of a
            block.
        StorageError: The store refused a request, or retries were exhausted.
        Exception: Any error that the messages raise.
    """
    stager = LedgerStager(target.offloader, LedgerIds(ids), plan.mark)
    try:
        return fill(target, plan, stager, messages)
    except BaseException as error:
        stager.undo(error)
        raise


def fill(
    target: WriteTarget, plan: WritePlan, stager: LedgerStager, messages: object
) -> StagedWrite:
    """Stage messages. Unlike `stage`, the caller must call `stager.undo` on failure."""
    names, options = target.names, target.entry_options
    rows = MessageRows(plan.schema, publish_time_ms=plan.started_ms).messages(messages)
    router = MessageRouter(len(names), batch_messages=options.batch_messages)
    writers = [EntryWriter(options) for _ in names]
    with ExitStack() as stack:
        fillers = [
            stack.enter_context(LedgerFiller(stager, each.managed_ledger_name, target.limits))
            for each in names
        ]
        for message in rows:
            number = router.route(message)
            for entry in writers[number].add(message):
                fillers[number].add(entry.data, publish_time_ms=entry.publish_time_ms)
        for writer, filler in zip(writers, fillers, strict=True):
            for entry in writer.flush():
                filler.add(entry.data, publish_time_ms=entry.publish_time_ms)
            filler.close_ledger()
    return StagedWrite(
        mark=plan.mark,
        started_ms=plan.started_ms,
        message_count=sum(writer.message_count for writer in writers),
        schemas=schemas_json(plan.schema, timestamp_ms=plan.started_ms).encode(),
        ledgers=tuple(ledger for filler in fillers for ledger in filler.ledgers),
        # A broker continues its message index from here (ManagedLedgerInterceptorImpl).
        properties={
            name.managed_ledger_name: {"index": str(writer.last_index)}
            for name, writer in zip(names, writers, strict=True)
            if options.broker_metadata
        },
        warnings=(*stager.warnings, *_retiming_notes(target, writers)),
    )


def _retiming_notes(target: WriteTarget, writers: Sequence[EntryWriter]) -> list[str]:
    """Return a note on changed publish times, unless `batch_delay_ms` is set."""
    count = sum(each.retimed_messages for each in writers)
    if not count or target.request.batch_delay_ms is not None:
        return []
    most_ms = max(each.retimed_ms for each in writers)
    note = (
        f"{counted(count, 'message')} took the publish time of the first in their batch, which is"
        f" up to {most_ms} ms away; give {option_name('batch_delay_ms', 0)} to keep their own"
    )
    return [note]
