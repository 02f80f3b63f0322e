"""Entries as the hot loop decodes them: one buffer, and a table of positions in it."""

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
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

_LARGE_BATCH_BYTES = 4096
"""Mean size of large batches in bytes."""


def int64_view(count: int) -> tuple[pa.Buffer, memoryview]:
    """Allocate an Arrow buffer of `count` uninitialised 64-bit numbers; return it with a view."""
    buffer = allocate(8 * count)
    return buffer, memoryview(buffer).cast("q")


@dataclass(slots=True)
class EntryRun:
    """Consecutive entries of one ledger, complete in one buffer.

    Attributes:
        ledger_id: BookKeeper ledger id.
        object_key: Name of the data object, for errors.
        data: The buffer (unsigned bytes).
        offset: Start of the buffer in the data object, in bytes.
        table: Entry table (`arrow_io.messages.layout`), row-major.
        count: Number of entries.
        is_in_range: False for entries outside the task's ranges. They are read only to complete
            messages and transactions that began in the ranges.
        is_before_gap: Whether the next entries are not in range.
        possible_flags: Flags that an entry may have, and `MIXED`; all flags until a scan narrows
            them. Never `ALONE`.
        is_verified: Whether checksums were compared.
        scale: Bytes of the entries in the data object and in the buffer, if they differ: positions
            in the object are then interpolated. None if the buffer is a part of the object.
        joined_payloads: Payloads of chunked messages by the id of their last entry: all chunks
            joined, decrypted and still compressed.
    """

    ledger_id: int
    object_key: str
    data: memoryview
    offset: int
    table: memoryview
    count: int
    is_in_range: bool = True
    is_before_gap: bool = False
    possible_flags: int = -1
    is_verified: bool = False
    scale: tuple[int, int] | None = None
    joined_payloads: dict[int, bytes] = field(default_factory=dict)

    def fields(self, index: int) -> list[int]:
        """Return all numbers of one entry."""
        start = index * layout.ENTRY_WIDTH
        return self.table[start : start + layout.ENTRY_WIDTH].tolist()

    def number(self, index: int, field: int) -> int:
        """Return one number of one entry."""
        value: int = self.table[index * layout.ENTRY_WIDTH + field]
        return value

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        last: int = self.table[(self.count - 1) * layout.ENTRY_WIDTH + layout.ENTRY_ID]
        return last

    @property
    def frame_bytes(self) -> int:
        """Total length of the entries' data in bytes, without the 12-byte entry headers."""
        return self.bytes_between(0, self.count)

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the entries and their table, in bytes."""
        return self.frame_bytes + self.table.nbytes

    def entry_bytes(self, index: int) -> int:
        """Return the length of one entry's data in bytes."""
        return self.table[index * layout.ENTRY_WIDTH + layout.FRAME] & 0xFFFFFFFF

    def entry_start(self, index: int) -> int:
        """Return the start of one entry's header in the data object, in bytes."""
        frame: int = self.table[index * layout.ENTRY_WIDTH + layout.FRAME]
        return self._in_object((frame >> 32) - ENTRY_HEADER_BYTES)

    def entry_stop(self, index: int) -> int:
        """Return the end of one entry in the data object, in bytes (exclusive)."""
        frame = self.number(index, layout.FRAME)
        return self._in_object((frame >> 32) + (frame & 0xFFFFFFFF))

    def _in_object(self, position: int) -> int:
        """Return the position in the data object of a position in the buffer."""
        if self.scale is not None:
            stored_bytes, buffer_bytes = self.scale
            position = position * stored_bytes // buffer_bytes
        return self.offset + position

    def bytes_between(self, first: int, stop: int) -> int:
        """Return the data length of the entries `[first, stop)`, at least one, without headers."""
        table = self.table
        last: int = table[(stop - 1) * layout.ENTRY_WIDTH + layout.FRAME]
        start: int = table[first * layout.ENTRY_WIDTH + layout.FRAME] >> 32
        span = (last >> 32) + (last & 0xFFFFFFFF) - start
        return span - ENTRY_HEADER_BYTES * (stop - 1 - first)

    def stop_at_bytes(self, first: int, stop: int, size_bytes: int) -> int:
        """Return the end of the first entries of `[first, stop)` that reach a size, else `stop`."""
        if self.bytes_between(first, stop) < size_bytes:
            return stop
        stops = range(first + 1, stop)
        return first + 1 + bisect_left(stops, size_bytes, key=partial(self.bytes_between, first))

    def parts(
        self, max_messages: int, max_bytes: int, *, members: bool, payload: bool
    ) -> Iterator[MeasuredRun]:
        """Split the entries into as few runs as possible within both limits.

        A single entry may exceed the limits. `max_bytes` limits what `BatchLimits.max_bytes`
        counts; `members` and `payload` are those of `Needs`.
        """
        totals = partial(self._totals, members=members, payload=payload)
        messages, size_bytes = totals(0, self.count)
        if messages <= max_messages and size_bytes <= max_bytes:
            yield MeasuredRun(self, messages, size_bytes)
            return
        # Search from where a part would end if all entries were alike.
        share = min(max_messages / max(messages, 1), max_bytes / max(size_bytes, 1))
        usual_count = max(1, int(self.count * share))
        first = stop = 0
        while first < self.count:
            messages = size_bytes = 0
            step = usual_count
            while step and stop < self.count:
                step = min(step, self.count - stop)
                more_messages, more_bytes = totals(stop, stop + step)
                fits = messages + more_messages <= max_messages
                fits &= size_bytes + more_bytes <= max_bytes
                if fits or (stop == first and step == 1):
                    messages, size_bytes = messages + more_messages, size_bytes + more_bytes
                    stop += step
                else:
                    step //= 2
            yield MeasuredRun(self.part(first, stop), messages, size_bytes)
            first = stop

    def _totals(self, first: int, stop: int, *, members: bool, payload: bool) -> tuple[int, int]:
        """Return the number of messages of the entries `[first, stop)`, and their counted bytes."""
        entries = builds.in_use.entries
        return (
            self.message_count(first, stop),
            entries.counted_bytes(self.table, first, stop, members, payload),
        )

    def part(self, first: int, stop: int) -> EntryRun:
        """Return the entries `[first, stop)` as a run."""
        table = self.table[first * layout.ENTRY_WIDTH : stop * layout.ENTRY_WIDTH]
        is_last = self.is_before_gap and stop == self.count
        return replace(self, table=table, count=stop - first, is_before_gap=is_last)

    def drop_flagged(self, mask: int) -> EntryRun:
        """Return the entries without any flag of `mask`.

        They are moved within the same table, so this run must not be read any more.
        """
        count: int = builds.in_use.delivery.move_unflagged(self.table, self.count, mask)
        if count == self.count:
            return self
        return replace(self, table=self.table[: count * layout.ENTRY_WIDTH], count=count)

    def detach_entry(self, index: int) -> EntryRun:
        """Return one entry's row of the table, without references to the buffer or the table."""
        own = self.part(index, index + 1).copy_table()
        return replace(own, data=memoryview(b""))

    def copy_table(self) -> EntryRun:
        """Return the same entries with a copy of the table, to be flagged independently."""
        return replace(self, table=memoryview(bytearray(self.table)).cast("q"))

    def flagged(self, mask: int) -> Iterator[int]:
        """Return the indexes of the entries with any flag of `mask`."""
        index = self.next_flagged(0, mask)
        while index < self.count:
            yield index
            index = self.next_flagged(index + 1, mask)

    def has_flag(self, mask: int) -> bool:
        """Return whether any entry has any flag of `mask`."""
        return self.next_flagged(0, mask) < self.count

    def next_flagged(self, first: int, mask: int) -> int:
        """Return the index of the first entry from `first` with any flag of `mask`, or `count`."""
        if not self.possible_flags & mask:
            return self.count
        index: int = builds.in_use.entries.next_flagged(self.table, first, self.count, mask)
        return index

    def kind_stop(self, first: int, stop: int) -> int:
        """Return the end of the entries from `first` that have the same kind; at most `stop`.

        Entries are of the same kind if all or none are batches, and all use the same codec or none
        is compressed.
        """
        if not self.possible_flags & layout.MIXED:
            return stop
        end: int = builds.in_use.entries.kind_stop(self.table, first, stop)
        return end

    def message_count(self, first: int, stop: int) -> int:
        """Return the number of messages that the entries `[first, stop)` announce."""
        return int(builds.in_use.entries.count_messages(self.table, first, stop))

    @property
    def has_only_plain_batches(self) -> bool:
        """Whether every entry is a large batch that is neither compressed, encrypted nor broken.

        A batch is large if looking up its flags costs little, compared with reading its bytes.
        """
        kind = self.number(0, layout.FLAGS) & (layout.BATCHED | layout.COMPRESSED)
        return (
            kind == layout.BATCHED
            and self.frame_bytes >= _LARGE_BATCH_BYTES * self.count
            and self.kind_stop(0, self.count) == self.count
            and not self.has_flag(layout.SPECIAL)
        )

    def flag(self, first: int, stop: int, flag: int) -> None:
        """Set a flag of the entries `[first, stop)`."""
        for base in range(
            first * layout.ENTRY_WIDTH, stop * layout.ENTRY_WIDTH, layout.ENTRY_WIDTH
        ):
            self.table[base + layout.FLAGS] |= flag

    def join(self, index: int, payload: bytes) -> None:
        """Store the payload of a chunked message at the entry of its last chunk."""
        self.joined_payloads[self.number(index, layout.ENTRY_ID)] = payload

    def set_body(self, index: int, body: memoryview | None) -> None:
        """Set an entry's body to the whole of a buffer; None removes it."""
        position = layout.ABSENT if body is None else len(body)
        self.table[index * layout.ENTRY_WIDTH + layout.BODY] = position

    def body_bytes(self, first: int, stop: int) -> int:
        """Return the total length of the bodies of the entries `[first, stop)`."""
        return self.total_bytes(layout.BODY, first, stop)

    def total_bytes(self, field: int, first: int, stop: int) -> int:
        """Return the total length at a position field of the entries `[first, stop)`, in bytes."""
        return int(builds.in_use.codecs.total_length(self.table, field, first, stop))

    def view(self, index: int, field: int) -> memoryview:
        """Return the bytes at a position field of one entry; empty if it is absent."""
        return self.bytes_at(self.number(index, field))

    def bytes_at(self, position: int) -> memoryview:
        """Return the bytes at a position; empty if it is ABSENT."""
        if position < 0:
            return self.data[:0]
        start = position >> 32
        return self.data[start : start + (position & 0xFFFFFFFF)]

    def verify_checksums(self) -> None:
        """Compare the CRC32C of each entry that has one; flag the entry as `BROKEN` if it differs.

        A second call does nothing.
        """
        if not self.is_verified:
            self.possible_flags = builds.in_use.entries.mark_bad_checksums(
                self.data, self.table, self.count
            )
            self.is_verified = True

    def error(self, index: int) -> CorruptEntryError:
        """Return the typed error of a `BROKEN` entry."""
        code = self.number(index, layout.ERROR)
        kind = ChecksumError if code == layout.BAD_CHECKSUM else CorruptEntryError
        error = kind(layout.REASONS[code])
        self.locate(error, index)
        return error

    def locate(self, error: PulsarOffloadError, index: int) -> None:
        """Add the location of an entry to an error."""
        error.located(
            object_key=self.object_key,
            ledger_id=self.ledger_id,
            entry_id=self.number(index, layout.ENTRY_ID),
            offset=self._in_object(self.number(index, layout.FRAME) >> 32),
        )


class MeasuredRun(NamedTuple):
    """A run with its number of messages and bytes."""

    run: EntryRun
    message_count: int
    """Number of messages that its entries announce."""
    counted_bytes: int
    """Bytes as `BatchLimits.max_bytes` counts them, by the sizes that the entries announce."""


def encode_run(
    ledger_id: int, first_entry_id: int, object_key: str, frames: Sequence[bytes]
) -> EntryRun:
    """Return the run of entries with consecutive ids, from their frames (`write_entry`).

    `object_key` is for errors.
    """
    data = memoryview(b"".join(frames))
    count = len(frames)
    _, table = int64_view(count * layout.ENTRY_WIDTH)
    _, result = int64_view(4)
    last_entry_id = first_entry_id + count - 1
    builds.in_use.entries.read_entries(
        data, 0, len(data), first_entry_id, last_entry_id, table, count, result
    )
    return EntryRun(ledger_id, object_key, data, 0, table, count)
