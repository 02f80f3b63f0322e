"""The read of one topic partition, shared by all its tasks; a task is a list of entry ranges.

A task returns the rows of the messages that *begin* in its ranges:

- A chunked message begins with the first of its chunks that any task reads. Its row has the
  position of its last chunk, which must be in the ranges of some task.
- A message of a transaction begins at its own position, and is returned once the transaction is
  known to be committed.

So a task reads on after its ranges, through gaps too, until everything that began in them is
closed. Each row is returned exactly once, wherever ranges are split or have gaps.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from arrow_io.core.lazy import cached_property
from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from connector.display.text import size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from arrow_io.columns import Origin
    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.messages.later_entries import LaterEntries
    from arrow_io.messages.transactions import RecordedOutcome, TransactionOutcomes
    from connector.scan.read_options import ReadOptions


_ledger_id: Final = attrgetter("ledger_id")


class EntryRange(NamedTuple):
    """Consecutive entries of one ledger."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    """Inclusive."""


class TaskHandle(NamedTuple):
    """A task without its read, for processes that already have the read (`task_of`).

    Pickled, it takes about a hundred bytes, and a dozen for each range after the first.
    """

    read_fingerprint: int
    """The `TopicRead.fingerprint` of the task's read."""
    data: bytes
    """The ranges, and the byte offsets of their starts and ends in data objects, if known."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ranges that follow each other without an entry between them; no range is empty."""

    ranges: tuple[EntryRange, ...]

    @property
    def first(self) -> tuple[int, int]:
        """Ledger and entry id of the first entry."""
        return self.ranges[0].ledger_id, self.ranges[0].first_entry_id

    @property
    def last(self) -> tuple[int, int]:
        """Ledger and entry id of the last entry (inclusive)."""
        return self.ranges[-1].ledger_id, self.ranges[-1].last_entry_id


@dataclass(frozen=True, slots=True)
class Pruning:
    """What need not be read of a topic, by its statistics or the times of its ledgers.

    Attributes:
        unknown_ledgers: Ledgers to read that statistics do not record in their current version.
        zones: Pruned zones.
        bytes: Size of the pruned zones.
        ledgers_by_time: Ledgers pruned because of when they were written.
        problems: Why some of the statistics could not be used, as sentences.
    """

    unknown_ledgers: int = 0
    zones: int = 0
    bytes: int = 0
    ledgers_by_time: int = 0
    problems: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return the same as sentences; none if nothing was pruned or looked up."""
        lines = []
        if self.zones:
            lines.append(
                f"pruned by statistics: {counted(self.zones, 'zone')}, {size_text(self.bytes)}"
            )
        if self.ledgers_by_time:
            ledgers = counted(self.ledgers_by_time, "ledger")
            lines.append(f"pruned by the times at which they were written: {ledgers}")
        if self.unknown_ledgers:
            lines.append(f"not in the statistics: {counted(self.unknown_ledgers, 'ledger')}")
        return [*lines, *self.problems]

    def __add__(self, other: Pruning) -> Pruning:
        """Return the sum for two topics; a problem of both appears once."""
        return Pruning(
            self.unknown_ledgers + other.unknown_ledgers,
            self.zones + other.zones,
            self.bytes + other.bytes,
            self.ledgers_by_time + other.ledgers_by_time,
            tuple(dict.fromkeys((*self.problems, *other.problems))),
        )


@dataclass(frozen=True)
class TopicRead:
    """The read of one topic partition. Picklable; holds no connection.

    Attributes:
        origin: Topic and partition.
        ledgers: All its ledgers, ascending; those without a range may be read too, to close what
            began elsewhere.
        ranges: The entries whose rows all tasks together return: ascending and disjoint. A message
            that ends outside them has no row.
        options: How entries become rows.
        pruning: Zones and ledgers that were pruned from the ranges.
        outcomes: Recorded outcomes of transactions, by `__txn_id__`.
        segment_outcomes: The outcomes of a segment's transactions, which has no markers; None if
            markers decide.
        later_entries: Source of the entries after the last ledger, such as a live tail; or None.
    """

    origin: Origin
    ledgers: tuple[Ledger, ...]
    ranges: tuple[EntryRange, ...]
    options: ReadOptions
    pruning: Pruning = field(default_factory=Pruning)
    outcomes: Mapping[str, RecordedOutcome] = field(default_factory=dict)
    segment_outcomes: TransactionOutcomes | None = None
    later_entries: LaterEntries | None = None

    @property
    def data_bytes(self) -> int:
        """How many bytes of data objects have to be read, counting whole blocks."""
        return self.task(self.ranges).data_bytes

    @property
    def is_size_known(self) -> bool:
        """Whether `data_bytes` tells how much is read: not if only brokers have the data."""
        return self.ledgers[-1].stored_bytes > 0

    def ledger(self, ledger_id: int) -> Ledger:
        """Return the ledger with an id, which must be one of `ledgers`."""
        return self.ledgers[self.ledger_index(ledger_id)]

    def ledger_index(self, ledger_id: int) -> int:
        """Return the index in `ledgers` of the ledger with an id."""
        return bisect_left(self.ledgers, ledger_id, key=_ledger_id)

    def is_read(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether a task returns rows of an entry."""
        return self.is_read_whole(EntryRange(ledger_id, entry_id, entry_id))

    def is_read_whole(self, entries: EntryRange) -> bool:
        """Return whether one of the ranges contains all of some entries."""
        ledger_id, first, last = entries
        index = bisect_right(self.ranges, (ledger_id, first), key=_first_position)
        if index == 0:
            return False
        nearest = self.ranges[index - 1]
        return nearest.ledger_id == ledger_id and last <= nearest.last_entry_id

    def intersect_ranges(self, entries: EntryRange) -> list[EntryRange]:
        """Return the parts of some entries whose rows tasks return."""
        ledger_id, first, last = entries
        ranges = []
        start_index = bisect_right(self.ranges, (ledger_id, first), key=_first_position)
        for index in range(max(0, start_index - 1), len(self.ranges)):
            each = self.ranges[index]
            if (ledger_id, last) < _first_position(each):
                break
            start, end = max(first, each.first_entry_id), min(last, each.last_entry_id)
            if each.ledger_id == ledger_id and start <= end:
                ranges.append(EntryRange(ledger_id, start, end))
        return ranges

    def stretches(self, ranges: Sequence[EntryRange]) -> list[Stretch]:
        """Group ascending ranges that have no entry of the topic between them."""
        stretches: list[list[EntryRange]] = []
        for each in ranges:
            if stretches and self._is_next(stretches[-1][-1], each):
                stretches[-1].append(each)
            else:
                stretches.append([each])
        return [Stretch(tuple(each)) for each in stretches]

    def _is_next(self, one: EntryRange, other: EntryRange) -> bool:
        if one.ledger_id == other.ledger_id:
            return one.last_entry_id + 1 == other.first_entry_id
        index = self.ledger_index(one.ledger_id)
        return (
            other.first_entry_id == 0
            and one.last_entry_id == self.ledgers[index].last_entry_id
            and self.ledgers[index + 1].ledger_id == other.ledger_id
        )

    def task(self, ranges: Iterable[EntryRange]) -> ScanTask:
        """Return a task for some ranges, which must be ascending and within `ranges`."""
        return ScanTask(self, tuple(ranges))

    @cached_property
    def fingerprint(self) -> int:
        """A checksum that distinguishes this read from those of other topics and ranges."""
        bounds = self.options.bounds
        return zlib.crc32(repr((self.origin.topic, self.ranges, bounds)).encode())

    def task_from_handle(self, handle: TaskHandle) -> ScanTask:
        """Return the task of a handle that `ScanTask.handle` returned.

        This process's ledgers also get the byte offsets of entries that the sender knew.
        """
        numbers = _numbers(zlib.decompress(handle.data))
        ranges: list[EntryRange] = []
        last = EntryRange(0, 0, 0)
        for _ in range(next(numbers)):
            ledger_id = last.ledger_id + next(numbers)
            first = next(numbers) + (last.last_entry_id if ledger_id == last.ledger_id else 0)
            last = EntryRange(ledger_id, first, first + next(numbers))
            ranges.append(last)
        offset = 0
        for each in ranges:
            ledger = self.ledger(each.ledger_id)
            for entry_id in (each.first_entry_id, each.last_entry_id + 1):
                encoded = next(numbers)
                if encoded:
                    offset += _unzigzag(encoded - 1)
                    ledger.remember(entry_id, offset)
        return self.task(ranges)

    def tasks(self, task_bytes: int) -> Iterator[ScanTask]:
        """Split the ranges into tasks of about `task_bytes`; a block is never split."""
        pending: list[EntryRange] = []
        size_bytes = 0
        for piece, piece_bytes in self._pieces():
            if pending and size_bytes + piece_bytes > task_bytes:
                yield self.task(pending)
                pending, size_bytes = [], 0
            if (
                pending
                and self._is_next(pending[-1], piece)
                and pending[-1].ledger_id == piece.ledger_id
            ):
                pending[-1] = pending[-1]._replace(last_entry_id=piece.last_entry_id)
            else:
                pending.append(piece)
            size_bytes += piece_bytes
        if pending:
            yield self.task(pending)

    def _pieces(self) -> Iterator[tuple[EntryRange, int]]:
        """Yield the ranges, split at the ends of blocks, with the size of each one's block."""
        for each in self.ranges:
            ledger = self.ledger(each.ledger_id)
            blocks = ledger.blocks(each.first_entry_id, each.last_entry_id)
            if not blocks:
                # The offloader lost every entry. The range stays, so that the loss is reported.
                yield each, 0
            first = each.first_entry_id
            # Lost entries belong to the piece of the block before them, or to the first piece.
            ends = [*(block.first_entry_id - 1 for block in blocks[1:]), each.last_entry_id]
            for block, last in zip(blocks, ends, strict=False):
                extents = ledger.extents(
                    max(first, block.first_entry_id), min(last, block.last_entry_id)
                )
                yield EntryRange(each.ledger_id, first, last), _size_bytes(extents)
                first = last + 1


@dataclass(frozen=True)
class ScanTask:
    """Some entries of one topic partition, for one reader. Picklable.

    It contains its read with all ledgers of the topic, which tasks that are pickled together share.
    To send many tasks, send the reads (`Scan.reads`) once to each process, and the `handle` of each
    task.

    Attributes:
        read: The read that it is a part of.
        ranges: The entries whose rows it returns; ascending.
    """

    read: TopicRead
    ranges: tuple[EntryRange, ...]

    @property
    def data_bytes(self) -> int:
        """How many bytes of data objects the task reads, counting whole blocks."""
        return sum(stop - start for *_, start, stop in self.block_ranges())

    def __reduce__(self) -> tuple[Callable[..., ScanTask], tuple[list[TopicRead], TaskHandle]]:
        """Pickle the read and the handle, which has the byte offsets that this process knows."""
        return task_of, ([self.read], self.handle())

    def handle(self) -> TaskHandle:
        """Return a handle: `task_of` restores the task where its read is available."""
        numbers = [len(self.ranges)]
        last = EntryRange(0, 0, 0)
        for each in self.ranges:
            if each.ledger_id != last.ledger_id:
                last = EntryRange(last.ledger_id, 0, 0)
            numbers += [each.ledger_id - last.ledger_id, each.first_entry_id - last.last_entry_id]
            numbers.append(each.last_entry_id - each.first_entry_id)
            last = each
        previous = 0
        for each in self.ranges:
            ledger = self.read.ledger(each.ledger_id)
            for entry_id in (each.first_entry_id, each.last_entry_id + 1):
                offset = ledger.position_of(entry_id)
                numbers.append(0 if offset is None else 1 + _zigzag(offset - previous))
                previous = previous if offset is None else offset
        return TaskHandle(self.read.fingerprint, zlib.compress(_varints(numbers)))

    def block_ranges(self) -> Iterator[tuple[Ledger, EntryRange, int, int]]:
        """Yield each range's ledger, the range, and its bytes `[start, stop)` in an object.

        A range that is stored in several objects is yielded once for each. A range whose entries
        are all lost is not yielded.
        """
        for each in self.ranges:
            ledger = self.read.ledger(each.ledger_id)
            for extent in ledger.extents(each.first_entry_id, each.last_entry_id):
                yield ledger, each, *extent


def task_of(reads: Iterable[TopicRead], handle: TaskHandle) -> ScanTask:
    """Return the task of a handle.

    Args:
        reads: The reads of the scan that planned the task (`Scan.reads`), or the task's read alone.
        handle: The result of `ScanTask.handle`.

    Raises:
        OptionError: The task belongs to none of the reads.
    """
    for each in reads:
        if each.fingerprint == handle.read_fingerprint:
            return each.task_from_handle(handle)
    message = "the task belongs to another read: pass the reads of the scan that planned it"
    raise OptionError(message)


def _zigzag(number: int) -> int:
    """Encode a signed number as a non-negative one that is small if the number is near zero."""
    return 2 * number if number >= 0 else -2 * number - 1


def _unzigzag(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _varints(numbers: Iterable[int]) -> bytes:
    """Encode numbers as bytes of seven bits each, the lowest first, like Protobuf's varints."""
    data = bytearray()
    for number in numbers:
        remainder = number
        while remainder > 0x7F:  # noqa: PLR2004 - what seven bits hold
            data.append(remainder & 0x7F | 0x80)
            remainder >>= 7
        data.append(remainder)
    return bytes(data)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for each in data:
        number |= (each & 0x7F) << shift
        shift += 7
        if each <= 0x7F:  # noqa: PLR2004 - the last byte of a number
            yield number
            number = shift = 0


def _first_position(entries: EntryRange) -> tuple[int, int]:
    return entries.ledger_id, entries.first_entry_id


def _size_bytes(extents: Iterable[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in extents)
