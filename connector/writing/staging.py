"""Messages → entries → ledgers, of which the data objects are written: nobody reads them yet.

A ledger's length and last entry id stand in its metadata, which decides the length of its first
block: no block can be written before all entries are known. So the entries of the ledger that is
being filled are kept aside, in memory first and in a temporary file once they are many.
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
"""A broker takes a ledger that was closed at 0 to be closed when it reads that (MetaStoreImpl)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What the processes that stage a write need to know; goes to them.

    Attributes:
        mark: The mark of the write.
        started_ms: When it began, ms since the epoch; the publish time of messages without one.
        ids: What ids its ledgers may have.
        schema: What values are encoded by, with all versions that the topic has.
        warnings: What may do harm later, in words.
    """

    mark: UUID
    started_ms: int
    ids: IdRange
    schema: TopicSchema | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedLedger:
    """A ledger whose data object is in the bucket, where nobody reads it yet.

    Attributes:
        managed_ledger: Name of the managed ledger that it is of.
        info: What a cluster is to record of it.
        index: The index object, which publishes it.
    """

    managed_ledger: str
    info: LedgerInfo
    index: IndexObject


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """What `stage` gave: the ledgers of a write, or the share of one process in them.

    Attributes:
        mark: The mark of the write.
        started_ms: When the write began, ms since the epoch.
        message_count: How many messages were staged.
        ledgers: Their ledgers.
        schemas: The answer of the admin API with the schemas that values were encoded by.
        properties: Properties of the managed ledgers, by name.
        warnings: What went wrong, yet does no harm, each once.
    """

    mark: UUID
    started_ms: int
    message_count: int
    ledgers: tuple[StagedLedger, ...]
    schemas: bytes
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class LedgerStager:
    """Stages ledgers under one id after the other.

    Args:
        offloader: Writes their data objects.
        ids: Gives their ids.
        mark: The mark of the write, from which their uuids are.
    """

    def __init__(self, offloader: LedgerOffloader, ids: LedgerIds, mark: UUID) -> None:
        self._offloader = offloader
        self._ids = ids
        self._mark = mark
        self._staged: list[tuple[int, UUID]] = []
        self.warnings: list[str] = []
        """What went wrong, yet does no harm, each once."""

    def stage(
        self, spool: EntrySpool, managed_ledger: str, *, created_ms: int, closed_ms: int
    ) -> StagedLedger:
        """Stage a ledger.

        Args:
            spool: Its entries, at least one.
            managed_ledger: Name of the managed ledger.
            created_ms: When it counts as created, ms since the epoch.
            closed_ms: When it counts as closed, likewise.

        Raises:
            OptionError: Its id is taken.
            EntryTooLargeError: An entry is longer than a block.
            StorageError: The store refused, or went on failing; or the temporary file cannot be
                read.
        """
        ledger_id = self._ids.next_id()
        uuid = ledger_uuid(self._mark)
        metadata = new_ledger_metadata(
            spool.lengths_bytes, managed_ledger=managed_ledger, ctime_ms=created_ms
        )
        # Before it is written, lest an interrupt fall between the two; nothing there is no error.
        self._staged.append((ledger_id, uuid))
        objects = self._offloader.stage(LedgerToOffload(ledger_id, metadata, spool), uuid)
        self.warnings += [each for each in objects.warnings if each not in self.warnings]
        info = LedgerInfo(
            ledger_id=ledger_id,
            entries=metadata.last_entry_id + 1,
            size_bytes=metadata.length_bytes,
            timestamp_ms=closed_ms,
            # BookKeeper never had it, and would else be asked to delete a ledger of this id.
            offload=replace(objects.context, bookkeeper_deleted=True),
        )
        return StagedLedger(managed_ledger, info, objects.index)

    def undo(self, error: BaseException) -> bool:
        """Delete the ledgers that were staged; those that cannot be are noted on the error.

        Returns:
            Whether none is left.
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
    """Gathers the entries of a topic or partition, and has them staged, ledger by ledger.

    A context manager, which removes what is kept aside.

    Args:
        stager: Stages the ledgers.
        managed_ledger: Name of the managed ledger.
        limits: When a ledger is full.
    """

    def __init__(self, stager: LedgerStager, managed_ledger: str, limits: LedgerLimits) -> None:
        self._stager = stager
        self._managed_ledger = managed_ledger
        self._limits = limits
        self._spool = EntrySpool(limits.in_memory_bytes)
        self._published_ms: tuple[int, int] | None = None
        self.ledgers: list[StagedLedger] = []
        """The ledgers that were staged, in order."""

    def add(self, entry: bytes, *, publish_time_ms: int) -> None:
        """Take the next entry; errors are those of `LedgerStager.stage` and `EntrySpool.add`.

        Args:
            entry: Its bytes.
            publish_time_ms: When its messages were published. A ledger counts as created at the
                least of these, and as closed at the greatest: a broker that seeks a time stops at
                the first ledger that was closed behind it (PersistentMessageFinder), and its
                retention counts from there.
        """
        spool, limits = self._spool, self._limits
        is_full = len(spool) >= limits.entries or spool.size_bytes + len(entry) > limits.size_bytes
        if is_full and len(spool):
            self.close_ledger()
        self._spool.add(entry)
        least, greatest = self._published_ms or (publish_time_ms, publish_time_ms)
        self._published_ms = min(least, publish_time_ms), max(greatest, publish_time_ms)

    def close_ledger(self) -> None:
        """Stage what is kept aside, if there is any; errors are those of `LedgerStager.stage`."""
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
    """Entries kept aside, in order.

    Args:
        in_memory_bytes: Bytes that are kept in memory; more go to a temporary file.
    """

    def __init__(self, in_memory_bytes: int) -> None:
        # Closed by `close`, which outlives this call.
        self._file = SpooledTemporaryFile(max_size=in_memory_bytes)  # noqa: SIM115
        self.lengths_bytes = array(_LENGTHS)
        """Lengths of the entries."""
        self.size_bytes = 0
        """Sum of them."""

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
        """Keep one more.

        Raises:
            StorageError: The temporary file cannot be made, or written to.
        """
        try:
            self._file.write(entry)
        except OSError as error:
            raise _temporary_file_error(error) from error
        self.lengths_bytes.append(len(entry))
        self.size_bytes += len(entry)

    def clear(self) -> None:
        """Forget all; errors are those of `add`."""
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise _temporary_file_error(error) from error
        del self.lengths_bytes[:]
        self.size_bytes = 0

    def close(self) -> None:
        """Remove the temporary file."""
        # What could not be written to it before cannot be now, and is of no use any more.
        with contextlib.suppress(OSError):
            self._file.close()


def _temporary_file_error(error: OSError) -> StorageError:
    folder = tempfile.tempdir or "that TMPDIR names"
    message = f"entries cannot be kept in the temporary folder {folder}: {error.strerror or error}"
    if error.errno == errno.EMFILE:
        message += "; each partition has a file open, so write fewer, or allow more (ulimit -n)"
    return StorageError(message)


def stage(target: WriteTarget, plan: WritePlan, ids: IdRange, messages: object) -> StagedWrite:
    """Stage messages; if it fails, what was written is deleted, or noted on the error.

    Several processes can stage shares of one write at once.

    Args:
        target: What is written to.
        plan: The write.
        ids: The ids that this process may give.
        messages: The messages, as in `write_messages`.

    Raises:
        OptionError: A column or value is not usable; or a ledger id is taken, or not among `ids`.
        EntryTooLargeError: A message is longer than an entry, or an entry longer than a block, may
            be.
        StorageError: The store refused, or went on failing.
        Exception: What the messages raised.
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
    """Stage messages; as `stage`, but that who made the stager undoes what it has staged."""
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
        # Where a broker goes on counting (ManagedLedgerInterceptorImpl).
        properties={
            name.managed_ledger_name: {"index": str(writer.last_index)}
            for name, writer in zip(names, writers, strict=True)
            if options.broker_metadata
        },
        warnings=(*stager.warnings, *_retiming_notes(target, writers)),
    )


def _retiming_notes(target: WriteTarget, writers: Sequence[EntryWriter]) -> list[str]:
    """Return a note on publish times that changed, unless an option says by how much they may."""
    count = sum(each.retimed_messages for each in writers)
    if not count or target.request.batch_delay_ms is not None:
        return []
    most_ms = max(each.retimed_ms for each in writers)
    note = (
        f"{counted(count, 'message')} took the publish time of the first in their batch, which is"
        f" up to {most_ms} ms away; {option_name('batch_delay_ms', 0)} keeps that of each"
    )
    return [note]
