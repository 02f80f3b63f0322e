"""What is read of one topic partition, shared by all its tasks; and the tasks, which are ranges.

A task gives the rows of the messages that *begin* in its ranges. A message in chunks begins with
the first of them that any task reads. (Its row stands where its last chunk does, which must be in
the ranges of some task.) A message of a transaction begins where it stands, and is given once the
transaction is committed. So a task reads on behind its ranges, through what lies between, until all
that began in them is closed. No row is given twice and none is lost, wherever cuts and gaps are.
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from arrow_io.columns import Origin
    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.messages.later_entries import LaterEntries
    from arrow_io.messages.transactions import RecordedOutcome
    from connector.scan.read_options import ReadOptions


_ledger_id: Final = attrgetter("ledger_id")


class EntryRange(NamedTuple):
    """Consecutive entries of one ledger."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    """Inclusive."""


class TaskHandle(NamedTuple):
    """A task without its read, for processes that have the read already (`task_of`).

    Pickled, it takes about a hundred bytes, and a dozen for each range after the first.
    """

    read_fingerprint: int
    """That of the read which the task is a part of."""
    data: bytes
    """Its ranges, and where in data objects they begin and end, as far as that is known."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Ranges that follow each other with no entry between them; no range is empty."""

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
    """What of a topic need not be read, by its statistics or the times of its ledgers.

    Attributes:
        unknown_ledgers: Ledgers to be read of which nothing is known, in the version that they are.
        zones: Zones that are not read.
        bytes: How many bytes they have.
        ledgers_by_time: Ledgers that are not read because of when they were written.
        problems: Why some of the statistics could not be used, in words.
    """

    unknown_ledgers: int = 0
    zones: int = 0
    bytes: int = 0
    ledgers_by_time: int = 0
    problems: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The same in words; nothing if statistics were not looked at."""
        lines = []
        if self.zones:
            lines.append(
                f"not to read, by statistics: {counted(self.zones, 'zone')},"
                f" {size_text(self.bytes)}"
            )
        if self.ledgers_by_time:
            ledgers = counted(self.ledgers_by_time, "ledger")
            lines.append(f"not to read, by the times at which they were written: {ledgers}")
        if self.unknown_ledgers:
            lines.append(f"statistics do not know {counted(self.unknown_ledgers, 'ledger')}")
        return [*lines, *self.problems]

    def __add__(self, other: Pruning) -> Pruning:
        """What is skipped of two topics; a problem of both is told once."""
        return Pruning(
            self.unknown_ledgers + other.unknown_ledgers,
            self.zones + other.zones,
            self.bytes + other.bytes,
            self.ledgers_by_time + other.ledgers_by_time,
            tuple(dict.fromkeys((*self.problems, *other.problems))),
        )


@dataclass(frozen=True)
class TopicRead:
    """What is read of one topic or partition. Can be pickled; holds no connection.

    Attributes:
        origin: Topic and partition.
        ledgers: All its ledgers, ascending; those without a range may have to be read too, to close
            what began elsewhere.
        ranges: The entries that tasks give rows of, all together: ascending, none twice. A message
            that ends at another entry gives no row.
        options: How entries become rows.
        pruning: What statistics spare.
        outcomes: What is known of transactions without reading, by the ids that `__txn_id__` has.
        beyond: Who knows what stands behind the last ledger; None: nobody.
    """

    origin: Origin
    ledgers: tuple[Ledger, ...]
    ranges: tuple[EntryRange, ...]
    options: ReadOptions
    pruning: Pruning = field(default_factory=Pruning)
    outcomes: Mapping[str, RecordedOutcome] = field(default_factory=dict)
    beyond: LaterEntries | None = None

    @property
    def data_bytes(self) -> int:
        """How many bytes of data objects have to be read, blocks taken whole."""
        return self.task(self.ranges).data_bytes

    def ledger(self, ledger_id: int) -> Ledger:
        """One of the ledgers."""
        return self.ledgers[self.ledger_index(ledger_id)]

    def ledger_index(self, ledger_id: int) -> int:
        """Where one of the ledgers stands among them, from 0."""
        return bisect_left(self.ledgers, ledger_id, key=_ledger_id)

    def is_read(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a task gives rows of an entry."""
        return self.is_read_whole(EntryRange(ledger_id, entry_id, entry_id))

    def is_read_whole(self, entries: EntryRange) -> bool:
        """Whether tasks give rows of all of some entries, by one of the ranges."""
        ledger_id, first, last = entries
        index = bisect_right(self.ranges, (ledger_id, first), key=_first)
        if index == 0:
            return False
        nearest = self.ranges[index - 1]
        return nearest.ledger_id == ledger_id and last <= nearest.last_entry_id

    def intersect_ranges(self, entries: EntryRange) -> list[EntryRange]:
        """What tasks give rows of, of some entries."""
        ledger_id, first, last = entries
        ranges = []
        start_index = bisect_right(self.ranges, (ledger_id, first), key=_first)
        for at in range(max(0, start_index - 1), len(self.ranges)):
            each = self.ranges[at]
            if (ledger_id, last) < _first(each):
                break
            start, end = max(first, each.first_entry_id), min(last, each.last_entry_id)
            if each.ledger_id == ledger_id and start <= end:
                ranges.append(EntryRange(ledger_id, start, end))
        return ranges

    def stretches(self, ranges: Sequence[EntryRange]) -> list[Stretch]:
        """Put ranges together between which the topic has no entry.

        Args:
            ranges: Some ranges, ascending.
        """
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
        """The task of some of the ranges, or of parts of them; ascending."""
        return ScanTask(self, tuple(ranges))

    @cached_property
    def fingerprint(self) -> int:
        """A number that tells the read from those of other topics and of other ranges."""
        return zlib.crc32(repr((self.origin.topic, self.ranges)).encode())

    def tasks(self, task_bytes: int) -> Iterator[ScanTask]:
        """Cut the ranges into tasks, at blocks.

        Args:
            task_bytes: About how many bytes a task should have to read; a block is never cut.
        """
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
        """The ranges, cut where blocks end, and how many bytes the block of each has."""
        for each in self.ranges:
            ledger = self.ledger(each.ledger_id)
            blocks = ledger.blocks(each.first_entry_id, each.last_entry_id)
            if not blocks:
                # The offloader lost every entry: there is nothing to cut, yet the loss must be met.
                yield each, 0
            first = each.first_entry_id
            # Each piece has what was lost behind its block, too, and the first what was before it.
            ends = [*(block.first_entry_id - 1 for block in blocks[1:]), each.last_entry_id]
            for block, last in zip(blocks, ends, strict=False):
                extents = ledger.extents(
                    max(first, block.first_entry_id), min(last, block.last_entry_id)
                )
                yield EntryRange(each.ledger_id, first, last), _size_bytes(extents)
                first = last + 1


@dataclass(frozen=True)
class ScanTask:
    """Some entries of one topic or partition, to be read by one reader. Can be pickled.

    It has its read, with all ledgers of the topic. What sends many tasks one by one sends the reads
    (`Scan.reads`) once to each process, and for each task its `handle`.

    Attributes:
        read: What it is a part of.
        ranges: The entries that it gives rows of; ascending.
    """

    read: TopicRead
    ranges: tuple[EntryRange, ...]

    @property
    def data_bytes(self) -> int:
        """How many bytes of data objects the task has to read, blocks taken whole."""
        return sum(stop - start for *_, start, stop in self.block_ranges())

    def handle(self) -> TaskHandle:
        """Return what `task_of` makes the task of, in any process that has its read."""
        numbers = [len(self.ranges)]
        last = EntryRange(0, 0, 0)
        for each in self.ranges:
            if each.ledger_id != last.ledger_id:
                last = EntryRange(last.ledger_id, 0, 0)
            numbers += [each.ledger_id - last.ledger_id, each.first_entry_id - last.last_entry_id]
            numbers.append(each.last_entry_id - each.first_entry_id)
            last = each
        position = 0
        for each in self.ranges:
            ledger = self.read.ledger(each.ledger_id)
            for entry_id in (each.first_entry_id, each.last_entry_id + 1):
                object_position = ledger.position_of(entry_id)
                numbers.append(
                    0 if object_position is None else 1 + _zigzag(object_position - position)
                )
                position = position if object_position is None else object_position
        return TaskHandle(self.read.fingerprint, zlib.compress(_varints(numbers)))

    def block_ranges(self) -> Iterator[tuple[Ledger, EntryRange, int, int]]:
        """Each range, with its ledger, and the bytes `[start, stop)` of an object where it stands.

        A range that stands in several objects is given for each. Ranges whose entries are all lost
        have none.
        """
        for each in self.ranges:
            ledger = self.read.ledger(each.ledger_id)
            for extent in ledger.extents(each.first_entry_id, each.last_entry_id):
                yield ledger, each, *extent


def task_of(reads: Iterable[TopicRead], handle: TaskHandle) -> ScanTask:
    """Return the task of a handle.

    From here on this process knows what the sender knew of where the task's entries stand.

    Args:
        reads: Those of the scan that the task was planned by (`Scan.reads`), or its read alone.
        handle: What `ScanTask.handle` returned.

    Raises:
        OptionError: The task is a part of none of the reads.
    """
    matches = [each for each in reads if each.fingerprint == handle.read_fingerprint]
    if not matches:
        message = "the task is of another read: give the reads of the scan that planned it"
        raise OptionError(message)
    numbers = _numbers(zlib.decompress(handle.data))
    ranges: list[EntryRange] = []
    last = EntryRange(0, 0, 0)
    for _ in range(next(numbers)):
        ledger_id = last.ledger_id + next(numbers)
        first = next(numbers) + (last.last_entry_id if ledger_id == last.ledger_id else 0)
        last = EntryRange(ledger_id, first, first + next(numbers))
        ranges.append(last)
    position = 0
    for each in ranges:
        ledger = matches[0].ledger(each.ledger_id)
        for entry_id in (each.first_entry_id, each.last_entry_id + 1):
            encoded = next(numbers)
            if encoded:
                position += _unzigzag(encoded - 1)
                ledger.remember(entry_id, position)
    return matches[0].task(ranges)


def _zigzag(number: int) -> int:
    """Return a number that is not negative, and small if the given one is near zero."""
    return 2 * number if number >= 0 else -2 * number - 1


def _unzigzag(number: int) -> int:
    return number // 2 if number % 2 == 0 else -(number + 1) // 2


def _varints(numbers: Iterable[int]) -> bytes:
    """Return numbers as bytes: seven bits in each, the lowest first."""
    data = bytearray()
    for number in numbers:
        rest = number
        while rest > 0x7F:  # noqa: PLR2004 - what seven bits hold
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
    return bytes(data)


def _numbers(data: bytes) -> Iterator[int]:
    """Return what `_varints` was made of."""
    number = shift = 0
    for each in data:
        number |= (each & 0x7F) << shift
        shift += 7
        if each <= 0x7F:  # noqa: PLR2004 - the last byte of a number
            yield number
            number = shift = 0


def _first(entries: EntryRange) -> tuple[int, int]:
    return entries.ledger_id, entries.first_entry_id


def _size_bytes(extents: Iterable[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in extents)
