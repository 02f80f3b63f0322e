"""Entries as the hot loop found them: one buffer, and a table that says what stands where in it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from arrow_io.core import builds
from arrow_io.core.memory import allocate
from arrow_io.errors import ChecksumError, CorruptEntryError, PulsarOffloadError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.messages import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def int64_view(count: int) -> tuple[pa.Buffer, memoryview]:
    """A new Arrow buffer for `count` 64-bit numbers, which are not set, and a view to set them."""
    buffer = allocate(8 * count)
    return buffer, memoryview(buffer).cast("q")


@dataclass(slots=True)
class EntryRun:
    """Consecutive entries of one ledger that stand whole in one buffer.

    Attributes:
        ledger_id: BookKeeper ledger id.
        object_key: Name of the data object, for errors.
        data: The buffer (unsigned bytes).
        offset: Where in the data object the buffer begins, in bytes.
        table: Entry table (`arrow_io.messages.layout`), row-major.
        count: How many entries there are.
        is_in_range: False for entries outside the ranges that a task gives rows of, which are read
            only to close what the task opened.
        before_gap: Whether it is the last before entries that are not in range.
        possible_flags: Flags that an entry may have, and `MIXED`; all, until it is known better.
            `ALONE` is not among them.
        is_verified: Whether checksums were compared.
        joined: By entry id, the payload of a message whose last chunk stands in that entry: that of
            all chunks, decrypted and still compressed.
    """

    ledger_id: int
    object_key: str
    data: memoryview
    offset: int
    table: memoryview
    count: int
    is_in_range: bool = True
    before_gap: bool = False
    possible_flags: int = -1
    is_verified: bool = False
    joined: dict[int, bytes] = field(default_factory=dict)

    def fields(self, index: int) -> list[int]:
        """All numbers of one entry."""
        start = index * layout.ENTRY_WIDTH
        return self.table[start : start + layout.ENTRY_WIDTH].tolist()

    def number(self, index: int, field: int) -> int:
        """One number of one entry."""
        value: int = self.table[index * layout.ENTRY_WIDTH + field]
        return value

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        last: int = self.table[(self.count - 1) * layout.ENTRY_WIDTH + layout.ENTRY_ID]
        return last

    @property
    def frame_bytes(self) -> int:
        """Length of the entries' data together, in bytes, without the 12-byte entry headers."""
        return self.bytes_between(0, self.count)

    @property
    def held_bytes(self) -> int:
        """About how many bytes of memory the entries and their table take."""
        return self.frame_bytes + self.table.nbytes

    def entry_bytes(self, index: int) -> int:
        """Length of the data of one entry."""
        return self.table[index * layout.ENTRY_WIDTH + layout.FRAME] & 0xFFFFFFFF

    def entry_start(self, index: int) -> int:
        """Where the header of one entry begins in the data object, in bytes."""
        frame: int = self.table[index * layout.ENTRY_WIDTH + layout.FRAME]
        return self.offset + (frame >> 32) - ENTRY_HEADER_BYTES

    def entry_stop(self, index: int) -> int:
        """Where one entry ends in the data object, in bytes (exclusive)."""
        frame = self.number(index, layout.FRAME)
        return self.offset + (frame >> 32) + (frame & 0xFFFFFFFF)

    def bytes_between(self, first: int, stop: int) -> int:
        """Length of the data of the entries `[first, stop)`, at least one; no entry headers."""
        table = self.table
        last: int = table[(stop - 1) * layout.ENTRY_WIDTH + layout.FRAME]
        start: int = table[first * layout.ENTRY_WIDTH + layout.FRAME] >> 32
        span = (last >> 32) + (last & 0xFFFFFFFF) - start
        return span - ENTRY_HEADER_BYTES * (stop - 1 - first)

    def stop_with(self, first: int, stop: int, size_bytes: int) -> int:
        """Behind the first entries of `[first, stop)` that have so many bytes, or else `stop`."""
        if self.bytes_between(first, stop) < size_bytes:
            return stop
        stops = range(first + 1, stop)
        return first + 1 + bisect_left(stops, size_bytes, key=partial(self.bytes_between, first))

    def parts(
        self, max_messages: int, max_bytes: int, *, members: bool, payload: bool
    ) -> Iterator[MeasuredRun]:
        """The entries in as few runs as have no more than that each, or else a single entry.

        Args:
            max_messages: Most messages.
            max_bytes: Most bytes, as `BatchLimits.max_bytes` counts them.
            members: As `Needs.members`.
            payload: As `Needs.payload`.
        """
        entries = builds.in_use.entries
        messages = entries.count_messages(self.table, 0, self.count)
        size_bytes = entries.counted_bytes(self.table, 0, self.count, members, payload)
        if messages <= max_messages and size_bytes <= max_bytes:
            yield MeasuredRun(self, messages, size_bytes)
            return
        first = messages = size_bytes = 0
        for index in range(self.count):
            more_messages = entries.count_messages(self.table, index, index + 1)
            more_bytes = entries.counted_bytes(self.table, index, index + 1, members, payload)
            is_full = messages + more_messages > max_messages or size_bytes + more_bytes > max_bytes
            if first < index and is_full:
                yield MeasuredRun(self.part(first, index), messages, size_bytes)
                first, messages, size_bytes = index, 0, 0
            messages += more_messages
            size_bytes += more_bytes
        yield MeasuredRun(self.part(first, self.count), messages, size_bytes)

    def part(self, first: int, stop: int) -> EntryRun:
        """The entries `[first, stop)` alone."""
        table = self.table[first * layout.ENTRY_WIDTH : stop * layout.ENTRY_WIDTH]
        is_last = self.before_gap and stop == self.count
        return replace(self, table=table, count=stop - first, before_gap=is_last)

    def drop_flagged(self, mask: int) -> EntryRun:
        """The entries that have no flag of `mask`.

        They stand in the same table, of which the run itself cannot be read any more.
        """
        count: int = builds.in_use.delivery.move_unflagged(self.table, self.count, mask)
        if count == self.count:
            return self
        return replace(self, table=self.table[: count * layout.ENTRY_WIDTH], count=count)

    def detach_entry(self, index: int) -> EntryRun:
        """What the table says of one entry; keeps neither the buffer nor the table."""
        own = self.part(index, index + 1).copy_table()
        return replace(own, data=memoryview(b""))

    def copy_table(self) -> EntryRun:
        """The same entries; what readers mark in one table is not seen in the other."""
        return replace(self, table=memoryview(bytearray(self.table)).cast("q"))

    def flagged(self, mask: int) -> Iterator[int]:
        """Indexes of the entries that have any flag of `mask`."""
        index = self.next_flagged(0, mask)
        while index < self.count:
            yield index
            index = self.next_flagged(index + 1, mask)

    def has(self, mask: int) -> bool:
        """Whether any entry has any flag of `mask`."""
        return self.next_flagged(0, mask) < self.count

    def next_flagged(self, first: int, mask: int) -> int:
        """Index of the first entry from `first` on that has any flag of `mask`; `count` if none."""
        if not self.possible_flags & mask:
            return self.count
        index: int = builds.in_use.entries.next_flagged(self.table, first, self.count, mask)
        return index

    def kind_stop(self, first: int, stop: int) -> int:
        """The entry behind those from `first` on, up to `stop`, that are of its kind.

        They are all batches or none is, and all are compressed by the same codec or none is.
        """
        if not self.possible_flags & layout.MIXED:
            return stop
        end: int = builds.in_use.entries.kind_stop(self.table, first, stop)
        return end

    def flag(self, first: int, stop: int, flag: int) -> None:
        """Give the entries `[first, stop)` a flag."""
        for base in range(
            first * layout.ENTRY_WIDTH, stop * layout.ENTRY_WIDTH, layout.ENTRY_WIDTH
        ):
            self.table[base + layout.FLAGS] |= flag

    def join(self, index: int, payload: bytes) -> None:
        """Say that a message stands in the place of its last chunk."""
        self.joined[self.number(index, layout.ENTRY_ID)] = payload

    def set_body(self, index: int, body: memoryview | None) -> None:
        """Say that one entry's body is all of a buffer; None: it has none."""
        position = layout.ABSENT if body is None else len(body)
        self.table[index * layout.ENTRY_WIDTH + layout.BODY] = position

    def body_bytes(self, first: int, stop: int) -> int:
        """Length of the bodies of the entries `[first, stop)`."""
        return int(builds.in_use.codecs.total_length(self.table, layout.BODY, first, stop))

    def view(self, index: int, field: int) -> memoryview:
        """The bytes at a position of one entry; empty if it has none."""
        return self.at(self.number(index, field))

    def at(self, position: int) -> memoryview:
        """The bytes at a position; empty if it is ABSENT."""
        if position < 0:
            return self.data[:0]
        start = position >> 32
        return self.data[start : start + (position & 0xFFFFFFFF)]

    def verify_checksums(self) -> None:
        """Compare the CRC32C of each entry that has one; if it differs, mark the entry `BROKEN`.

        Does nothing if that was done.
        """
        if not self.is_verified:
            self.possible_flags = builds.in_use.entries.mark_bad_checksums(
                self.data, self.table, self.count
            )
            self.is_verified = True

    def error(self, index: int) -> CorruptEntryError:
        """The typed error of a `BROKEN` entry."""
        code = self.number(index, layout.ERROR)
        kind = ChecksumError if code == layout.BAD_CHECKSUM else CorruptEntryError
        error = kind(layout.REASONS[code])
        self.locate(error, index)
        return error

    def locate(self, error: PulsarOffloadError, index: int) -> None:
        """Say in an error which entry it is about."""
        error.located(
            object_key=self.object_key,
            ledger_id=self.ledger_id,
            entry_id=self.number(index, layout.ENTRY_ID),
            offset=self.offset + (self.number(index, layout.FRAME) >> 32),
        )


class MeasuredRun(NamedTuple):
    """A run, and how much there is in it."""

    run: EntryRun
    message_count: int
    """How many messages its entries say they hold."""
    counted_bytes: int
    """As `BatchLimits.max_bytes` counts them, if its entries are as long as they say."""
