"""Entries as the hot loop decodes them: one buffer, and a table of positions in it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from arrow_io.core import builds
from arrow_io.core.lazy import cached_property
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


@dataclass
class EntryRun:
    """Consecutive entries of one ledger, complete in one buffer.

    The thread that needs the metadata of the entries first decodes it. If all entries are plain
    (`find_entries`), that is the thread that decodes their messages.

    Attributes:
        ledger_id: BookKeeper ledger id.
        object_key: Name of the data object, for errors.
        data: The buffer (unsigned bytes).
        offset: Start of the buffer in the data object, in bytes.
        frames: Position in the buffer of each entry's data.
        first_entry_id: Id of the first entry, while there is no table.
        count: Number of entries.
        is_in_range: False for entries outside the task's ranges. They are read only to complete
            messages and transactions that began in the ranges.
        is_before_gap: Whether the next entries are not in range.
        possible_flags: Flags that an entry may have, and `MIXED`; -1 for all flags. Never `ALONE`.
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
    frames: memoryview
    first_entry_id: int
    count: int
    possible_flags: int = -1
    is_in_range: bool = True
    is_before_gap: bool = False
    is_verified: bool = False
    scale: tuple[int, int] | None = None
    joined_payloads: dict[int, bytes] = field(default_factory=dict)
    _table: memoryview | None = None

    @cached_property
    def table(self) -> memoryview:
        """Entry table (`arrow_io.messages.layout`), row-major."""
        return self._read_table(verify=False) if self._table is None else self._table

    def _read_table(self, *, verify: bool) -> memoryview:
        """Decode the entries into the table."""
        _, self._table = int64_view(self.count * layout.ENTRY_WIDTH)
        flags = builds.in_use.entries.read_entries(
            self.data, self.frames, self.count, self.first_entry_id, self._table, verify
        )
        self.possible_flags = flags if verify else flags | layout.BROKEN
        self.is_verified = verify
        return self._table

    def fields(self, index: int) -> list[int]:
        """Return all numbers of one entry."""
        if self._table is None and not self.possible_flags & layout.DEPENDENT:
            # Leave the others to the thread that decodes their messages.
            return self.part(index, index + 1).table.tolist()
        start = index * layout.ENTRY_WIDTH
        return self.table[start : start + layout.ENTRY_WIDTH].tolist()

    def number(self, index: int, field: int) -> int:
        """Return one number of one entry."""
        value: int = self.table[index * layout.ENTRY_WIDTH + field]
        return value

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        if self._table is None:
            return self.first_entry_id + self.count - 1
        last: int = self._table[(self.count - 1) * layout.ENTRY_WIDTH + layout.ENTRY_ID]
        return last

    @property
    def frame_bytes(self) -> int:
        """Total length of the entries' data in bytes, without the 12-byte entry headers."""
        return self.bytes_between(0, self.count)

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the entries and their table, in bytes."""
        return self.frame_bytes + 8 * layout.ENTRY_WIDTH * self.count

    def entry_bytes(self, index: int) -> int:
        """Return the length of one entry's data in bytes."""
        length: int = self.frames[index] & 0xFFFFFFFF
        return length

    def entry_start(self, index: int) -> int:
        """Return the start of one entry's header in the data object, in bytes."""
        return self._in_object((self.frames[index] >> 32) - ENTRY_HEADER_BYTES)

    def entry_stop(self, index: int) -> int:
        """Return the end of one entry in the data object, in bytes (exclusive)."""
        frame = self.frames[index]
        return self._in_object((frame >> 32) + (frame & 0xFFFFFFFF))

    def _in_object(self, position: int) -> int:
        """Return the position in the data object of a position in the buffer."""
        if self.scale is not None:
            stored_bytes, buffer_bytes = self.scale
            position = position * stored_bytes // buffer_bytes
        return self.offset + position

    def bytes_between(self, first: int, stop: int) -> int:
        """Return the data length of the entries `[first, stop)`, at least one, without headers."""
        last: int = self.frames[stop - 1]
        span = (last >> 32) + (last & 0xFFFFFFFF) - (self.frames[first] >> 32)
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
        first = 0
        while first < self.count:
            if self._table is None and not self.possible_flags & layout.DEPENDENT:
                stop, messages, size_bytes = self._fit_plain(
                    first, max_messages, max_bytes, 1 + payload
                )
            else:
                result = array("q", bytes(8 * 3))
                builds.in_use.entries.count_fitting(
                    self.table, first, self.count, max_messages, max_bytes, members, payload, result
                )
                stop, messages, size_bytes = result
            run = self if stop - first == self.count else self.part(first, stop)
            yield MeasuredRun(run, messages, size_bytes)
            first = stop

    def _fit_plain(
        self, first: int, max_messages: int, max_bytes: int, weight: int
    ) -> tuple[int, int, int]:
        """Count as `count_fitting` does: each entry is a message and counts `weight` times."""
        stop = min(self.count, first + max(1, max_messages))
        if weight * self.bytes_between(first, stop) > max_bytes:
            stops = range(first + 2, stop + 1)
            key = partial(self.bytes_between, first)
            stop = first + 1 + bisect_right(stops, max_bytes // weight, key=key)
        return stop, stop - first, weight * self.bytes_between(first, stop)

    def part(self, first: int, stop: int) -> EntryRun:
        """Return the entries `[first, stop)` as a run."""
        table = self._table
        if table is not None:
            table = table[first * layout.ENTRY_WIDTH : stop * layout.ENTRY_WIDTH]
        return replace(
            self,
            frames=self.frames[first:stop],
            first_entry_id=self.first_entry_id + first,
            count=stop - first,
            is_before_gap=self.is_before_gap and stop == self.count,
            _table=table,
        )

    def drop_flagged(self, mask: int) -> EntryRun:
        """Return the entries without any flag of `mask`.

        They are moved within the same table, so this run must not be read any more.
        """
        count: int = builds.in_use.delivery.move_unflagged(self.table, self.count, mask)
        if count == self.count:
            return self
        return self._with_table(self.table[: count * layout.ENTRY_WIDTH])

    def detach_entry(self, index: int) -> EntryRun:
        """Return one entry's row of the table, without references to the buffer or the table."""
        own = self.part(index, index + 1).copy_table()
        return replace(own, data=memoryview(b""))

    def copy_table(self) -> EntryRun:
        """Return the same entries with a copy of the table, to be flagged independently."""
        return self._with_table(memoryview(bytearray(self.table)).cast("q"))

    def _with_table(self, table: memoryview) -> EntryRun:
        """Return a run of the entries of another table."""
        frames = table[layout.FRAME :: layout.ENTRY_WIDTH]
        return replace(self, frames=frames, count=len(frames), _table=table)

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
        kind = layout.BATCHED | layout.COMPRESSED
        return (
            bool(self.possible_flags & layout.BATCHED)
            and self.number(0, layout.FLAGS) & kind == layout.BATCHED
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
        if self._table is None:
            self._read_table(verify=True)
        elif not self.is_verified:
            self.possible_flags = builds.in_use.entries.mark_bad_checksums(
                self.data, self._table, self.count
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


class FoundRun(NamedTuple):
    """The entries that `find_run` found, and why it stopped."""

    run: EntryRun
    """It may have no entries."""
    stop: int
    """End of the last entry in the buffer (exclusive)."""
    status: int
    """`COMPLETE`, `CUT`, `PADDING` or `WRONG_ENTRY_ID`."""
    needed_bytes: int
    """For `CUT`, the length of the next entry, or of its header."""


def find_run(
    ledger_id: int,
    object_key: str,
    data: memoryview,
    offset: int,
    ids: range,
    *,
    start: int = 0,
    stop: int | None = None,
) -> FoundRun:
    """Find consecutive entries in a buffer.

    Args:
        ledger_id: See `EntryRun`, like the next three.
        object_key: For errors.
        data: The buffer.
        offset: Start of the buffer in the data object.
        ids: Ids of the entries; the run has fewer if it stops early.
        start: Start of the first entry's header in the buffer.
        stop: End of the bytes that may be read (exclusive); None: of the buffer.
    """
    _, frames = int64_view(len(ids))
    result = array("q", bytes(8 * 5))
    builds.in_use.entries.find_entries(
        data, start, len(data) if stop is None else stop, ids.start, ids.stop - 1,
        frames, len(ids), result,
    )  # fmt: skip
    count, position, status, needed, flags = result
    run = EntryRun(
        ledger_id, object_key, data, offset, frames[:count], ids.start, count, possible_flags=flags
    )
    return FoundRun(run, position, status, needed)


def encode_run(
    ledger_id: int, first_entry_id: int, object_key: str, frames: Sequence[bytes]
) -> EntryRun:
    """Return the run of entries with consecutive ids, from their frames (`write_entry`).

    `object_key` is for errors.
    """
    ids = range(first_entry_id, first_entry_id + len(frames))
    return find_run(ledger_id, object_key, memoryview(b"".join(frames)), 0, ids).run
