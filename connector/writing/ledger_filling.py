"""Entries → ledgers: those of a topic or partition are gathered, and offloaded ledger by ledger.

A ledger's length and last entry id stand in its metadata, which decides the length of its first
block: no block can be written before all entries are known. So the entries of the ledger that is
being filled are kept aside, in memory first and in a temporary file once they are many.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
import time
from array import array
from dataclasses import dataclass, replace
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Self
from uuid import UUID, uuid4, uuid5

from arrow_io.errors import MissingObjectError, OptionError, PulsarOffloadError, StorageError
from arrow_io.format.object_names import MAX_LEDGER_ID, LedgerObjectName, parse_object_name
from arrow_io.ledger_writer import new_ledger_metadata
from arrow_io.option_names import option_name
from connector.catalog.metadata.topic_metadata import LedgerInfo
from connector.offloader import LedgerToOffload

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from types import TracebackType

    from connector.offloader import LedgerOffloader

_LENGTHS = "Q"
_EARLIEST_MS = 1
"""A broker takes a ledger that was closed at 0 to be closed when it reads that (MetaStoreImpl)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """When a ledger is full."""

    entries: int
    """Most entries."""
    size_bytes: int
    """Most bytes of entries, unless it has but one."""
    in_memory_bytes: int
    """Bytes of entries that are kept in memory before they go to a temporary file."""


class LedgerSeries:
    """Offloads ledgers under one id after the other.

    Ids are chosen once, so two series at a time would choose the same; `check_alone` finds out.

    Args:
        offloader: Offloads them.
        first_ledger_id: Id of the first; None: one more than the greatest that is taken.
        taken: Ids that are taken beside those in the bucket.

    Raises:
        StorageError: The bucket cannot be listed.
    """

    def __init__(
        self,
        offloader: LedgerOffloader,
        *,
        first_ledger_id: int | None,
        taken: Collection[int] = (),
    ) -> None:
        self._offloader = offloader
        self.attempt = uuid4()
        """What the uuids of its ledgers are made of."""
        listed = {name.ledger_id for name in _ledger_names(offloader)}
        self.is_first = not listed
        """Whether the bucket had no ledger when it began."""
        self._taken = listed.union(taken)
        self._next_id = (
            max(self._taken, default=-1) + 1 if first_ledger_id is None else first_ledger_id
        )
        self._written: list[tuple[int, UUID]] = []
        self.warnings: list[str] = []
        """What went wrong, yet does no harm, each once."""

    def next_id(self) -> int:
        """The next ledger id.

        Raises:
            OptionError: There is a ledger of that id, or there is no greater id.
        """
        ledger_id = self._next_id
        if ledger_id > MAX_LEDGER_ID:
            first = option_name("first_ledger_id")
            message = f"ledger ids end with {MAX_LEDGER_ID}: give a smaller {first}"
            raise OptionError(message)
        if ledger_id in self._taken:
            first = option_name("first_ledger_id")
            message = f"there is a ledger of this id already: give another {first}"
            raise OptionError(message, ledger_id=ledger_id)
        self._next_id += 1
        return ledger_id

    def offload(self, spool: EntrySpool, managed_ledger: str, *, closed_ms: int) -> LedgerInfo:
        """Offload a ledger.

        Args:
            spool: Its entries, at least one.
            managed_ledger: Name of the managed ledger.
            closed_ms: When it counts as closed, ms since the epoch.

        Returns:
            What a cluster records of it.

        Raises:
            OptionError: Its id is taken.
            EntryTooLargeError: An entry is longer than a block.
            StorageError: The store refused, or went on failing; or the temporary file cannot be
                read.
        """
        ledger_id, now_ms = self.next_id(), time.time_ns() // 1_000_000
        uuid = _uuid(self.attempt, ledger_id)
        metadata = new_ledger_metadata(
            spool.lengths_bytes, managed_ledger=managed_ledger, ctime_ms=now_ms
        )
        # Before it is written, lest an interrupt fall between the two; nothing there is no error.
        self._written.append((ledger_id, uuid))
        result = self._offloader.offload(LedgerToOffload(ledger_id, metadata, spool), uuid)
        self.warnings += [each for each in result.warnings if each not in self.warnings]
        return LedgerInfo(
            ledger_id=ledger_id,
            entries=metadata.last_entry_id + 1,
            size_bytes=metadata.length_bytes,
            timestamp_ms=closed_ms,
            # BookKeeper never had it, and would else be asked to delete a ledger of this id.
            offload=replace(result.context, bookkeeper_deleted=True),
        )

    def check_alone(self) -> None:
        """Check that nobody else wrote ledgers of these ids meanwhile; one listing.

        Of two writers, the one that ends later finds the ledgers of the other.

        Raises:
            OptionError: There is another ledger of an id.
            StorageError: The bucket cannot be listed.
        """
        ours = dict(self._written)
        for name in _ledger_names(self._offloader):
            if ours.get(name.ledger_id, name.uuid) != name.uuid:
                message = (
                    "another writer took ids of these ledgers meanwhile: write again, and let one"
                    " writer at a time write to a bucket"
                )
                raise OptionError(message, object_key=name.data_name, ledger_id=name.ledger_id)

    def undo(self, error: BaseException) -> bool:
        """Delete the ledgers that were offloaded; those that cannot be are noted on the error.

        Returns:
            Whether none is left.
        """
        notes: list[str] = []
        is_undone = True
        for ledger_id, uuid in reversed(self._written):
            try:
                notes += self._offloader.delete_offloaded(ledger_id, uuid)
            except PulsarOffloadError as failure:
                notes.append(f"ledger {ledger_id} of uuid {uuid} was not deleted: {failure}")
                is_undone = False
        for note in dict.fromkeys(notes):
            error.add_note(note)
        return is_undone


class LedgerFiller:
    """Gathers the entries of a topic or partition, and has them offloaded.

    A context manager, which removes what is kept aside.

    Args:
        series: Offloads the ledgers.
        managed_ledger: Name of the managed ledger.
        limits: When a ledger is full.
    """

    def __init__(self, series: LedgerSeries, managed_ledger: str, limits: LedgerLimits) -> None:
        self._series = series
        self._managed_ledger = managed_ledger
        self._limits = limits
        self._spool = EntrySpool(limits.in_memory_bytes)
        self._closed_ms = _EARLIEST_MS
        self.ledgers: list[LedgerInfo] = []
        """The ledgers that were offloaded, in order."""

    def add(self, entry: bytes, *, publish_time_ms: int) -> None:
        """Take the next entry; errors are those of `LedgerSeries.offload` and `EntrySpool.add`.

        Args:
            entry: Its bytes.
            publish_time_ms: When its messages were published. A ledger counts as closed at the
                greatest of these: a broker that seeks a time stops at the first ledger that was
                closed behind it (PersistentMessageFinder), and its retention counts from there.
        """
        spool, limits = self._spool, self._limits
        is_full = len(spool) >= limits.entries or spool.size_bytes + len(entry) > limits.size_bytes
        if is_full and len(spool):
            self.close_ledger()
        self._spool.add(entry)
        self._closed_ms = max(self._closed_ms, publish_time_ms)

    def close_ledger(self) -> None:
        """Offload what is kept aside, if there is any; errors are those of `LedgerSeries`."""
        if len(self._spool):
            ledger = self._series.offload(
                self._spool, self._managed_ledger, closed_ms=self._closed_ms
            )
            self.ledgers.append(ledger)
            self._spool.clear()
            self._closed_ms = _EARLIEST_MS

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


def delete_attempt(offloader: LedgerOffloader, attempt: UUID) -> tuple[int, list[str]]:
    """Delete what a series has written, which is no more, half-written ledgers too.

    Args:
        offloader: What it offloaded with, or alike.
        attempt: Its `LedgerSeries.attempt`.

    Returns:
        How many ledgers there were, and warnings of `LedgerOffloader.delete_offloaded`.

    Raises:
        StorageError: The store refused, or went on failing.
    """
    names = _ledger_names(offloader)
    try:
        uploads = offloader.location.unfinished_uploads()
    except MissingObjectError:
        uploads = []
    names |= _of_ledgers(each.name for each in uploads)
    ours = [each for each in names if each.uuid == _uuid(attempt, each.ledger_id)]
    warnings: dict[str, None] = {}
    # The newest first, so that no ledger is ever missing between others.
    for name in sorted(ours, key=lambda each: each.ledger_id, reverse=True):
        warnings |= dict.fromkeys(offloader.delete_offloaded(name.ledger_id, name.uuid))
    return len(ours), list(warnings)


def _uuid(attempt: UUID, ledger_id: int) -> UUID:
    """The uuid of a ledger of a series, by which it is known after a kill."""
    return uuid5(attempt, str(ledger_id))


def _ledger_names(offloader: LedgerOffloader) -> set[LedgerObjectName]:
    """The ledgers, and attempts to offload one, that have an object in the bucket."""
    try:
        objects = offloader.location.list_objects()
    except MissingObjectError:
        return set()
    return _of_ledgers(each.name for each in objects)


def _of_ledgers(objects: Iterable[str]) -> set[LedgerObjectName]:
    names = map(parse_object_name, objects)
    return {name.ledger_object_name for name in names if name and not name.is_streaming}
