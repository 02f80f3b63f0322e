"""Calls of the hot loop, one build at a time, with tables that begin as zeroes."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.messages import layout

if TYPE_CHECKING:
    from arrow_io.core.builds import Build


@dataclass(frozen=True, slots=True)
class Walk:
    """What `find_entries` found, and `read_entries` made of it.

    Attributes:
        entries: The entry table, by entry; of a broken one only what stands for it.
        position: Behind the last entry, in bytes.
        status: Why the walk stopped.
        needed: How many bytes the next entry takes, if it is not whole.
        possible_flags: The flags that the entries may have; -1 for all.
    """

    entries: list[list[int]]
    position: int
    status: int
    needed: int
    possible_flags: int


def walk(
    build: Build,
    data: bytes,
    *,
    stop: int | None = None,
    first_entry_id: int = 0,
    last_entry_id: int = 10**6,
    capacity: int = 100,
    verify: bool = False,
) -> Walk:
    """Walk entries with their 12-byte headers."""
    frames = array("q", bytes(8 * capacity))
    result = array("q", bytes(40))
    build.entries.find_entries(
        memoryview(data),
        0,
        len(data) if stop is None else stop,
        first_entry_id,
        last_entry_id,
        frames,
        capacity,
        result,
    )
    count, position, status, needed, flags = result
    table = array("q", bytes(8 * capacity * layout.ENTRY_WIDTH))
    build.entries.read_entries(memoryview(data), frames, count, first_entry_id, table, verify)
    width = layout.ENTRY_WIDTH
    entries = [table[width * n : width * (n + 1)].tolist() for n in range(count)]
    return Walk([_told(entry) for entry in entries], position, status, needed, flags)


def _told(entry: list[int]) -> list[int]:
    if entry[layout.FLAGS] & layout.BROKEN:
        return [entry[each] for each in (layout.ENTRY_ID, layout.FRAME, layout.ERROR, layout.FLAGS)]
    return entry


def decode_entry(build: Build, entry: bytes) -> list[int]:
    """The entry table of one entry, which stands behind a header of 12 bytes.

    Of a broken one: entry id, frame, error, flags.
    """
    (decoded,) = walk(build, len(entry).to_bytes(4) + bytes(8) + entry).entries
    return decoded


def error_of(build: Build, entry: bytes) -> int:
    """Why an entry is broken; 0 if it is not."""
    decoded = decode_entry(build, entry)
    assert bool(decoded[layout.ERROR]) == bool(decoded[layout.FLAGS] & layout.BROKEN)
    return decoded[layout.ERROR]


@dataclass(frozen=True, slots=True)
class Split:
    """What `split_batches` found of one.

    Attributes:
        rows: The row table, by row.
        position: Behind the last message, in bytes.
        batch_index: Of the next message.
        error: What is wrong with it, or 0.
    """

    rows: list[tuple[int, ...]]
    position: int
    batch_index: int
    error: int


def split(build: Build, body: bytes, members: int, *, capacity: int = 50, flags: int = 0) -> Split:
    """Split a batch, as often as the row table is full."""
    entry = array("q", bytes(8 * layout.ENTRY_WIDTH))
    entry[layout.BATCH_SIZE] = members
    entry[layout.FLAGS] = layout.BATCHED | flags
    entry[layout.EVENT_TIME], entry[layout.SEQUENCE_ID] = 77, 88
    entry[layout.BODY], entry[layout.FRAME] = len(body), 1000
    result = array("q", bytes(8 * 7))
    found: list[tuple[int, ...]] = []
    while True:
        rows = array("q", bytes(8 * capacity * layout.ROW_WIDTH))
        _, _, position, batch_index, *_ = result
        build.metadata.split_batches(
            memoryview(body), entry, layout.BODY, 0, 1, position, batch_index,
            rows, capacity, capacity, 0, 0, memoryview(bytearray()), 0, 3, result,
        )  # fmt: skip
        columns = [rows[n * capacity :][: result[0]] for n in range(layout.ROW_WIDTH)]
        found += zip(*columns, strict=True)
        # What it passed ends where the next call begins, or with the batch.
        bodies = (len(body) if result[1] else result[2]) - position
        assert result[6] == bodies + 3 * 1000 * bool(result[1] or result[4])
        if result[1]:
            return Split(found, len(body), members, 0)
        if result[4]:
            return Split(found, result[2], result[3], result[4])
        # A table that was not filled, with messages left, would be asked for ever.
        assert result[0] == capacity


@dataclass(frozen=True, slots=True)
class Properties:
    """What `read_properties` found of one message.

    Attributes:
        pairs: Names and values.
        error: What is wrong, or 0.
        many: Whether the message has more than are compared.
    """

    pairs: list[tuple[bytes, bytes]]
    error: int
    many: bool


def properties(build: Build, metadata: bytes, *, tag: int, count: int | None = None) -> Properties:
    """The first `count` properties in one message's metadata, where `tag` is the field's."""
    data = b"-" + metadata  # so that no position is 0 by chance
    rows = array("q", bytes(8 * layout.ROW_WIDTH))
    rows[layout.ROW_METADATA] = 1 << 32 | len(metadata)
    rows[layout.ROW_PROPERTY_COUNT] = len(metadata) if count is None else count
    table = array("q", bytes(8 * layout.ENTRY_WIDTH))
    gatherer = build.gathering.Gatherer(rows, 1)
    gatherer.add(1, 0, table, data, data, data, tag)
    total = gatherer.property_total()
    numbers = array("q", bytes(8 * (2 * total + 1)))
    gatherer.set_properties(memoryview(numbers), total, 0)
    row, error, many = gatherer.read_properties(0)
    assert row == (0 if error else 1)
    found = memoryview(numbers)[2 * total :].cast("B").cast("i")[1]
    pairs = [(_at(data, numbers[n]), _at(data, numbers[total + n])) for n in range(found)]
    return Properties(pairs, error, bool(many))


def _at(data: bytes, position: int) -> bytes:
    start, length = position >> 32, position & 0xFFFFFFFF
    assert 0 <= start <= start + length <= len(data)
    return data[start : start + length]
