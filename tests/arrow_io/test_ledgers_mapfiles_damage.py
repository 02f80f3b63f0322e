"""Damage to MapFiles: whatever byte is flipped, wherever a file is cut, no entry becomes another.

Salvaging reads every whole record or block, and counts all others.
"""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import CorruptBlockError, FormatError, TruncatedObjectError
from arrow_io.ledgers.mapfiles import ledger as ledger_module
from arrow_io.ledgers.mapfiles import walk as walk_module
from arrow_io.read_metrics import Tally, Unit
from tests.arrow_io.test_ledgers_segments_ledger import entries_of
from tests.support.buckets import memory_bucket
from tests.support.damage import flipped
from tests.support.map_files import (
    COMPRESSIONS,
    ESCAPE,
    MARKER,
    NAME,
    MapFile,
    open_map_file,
    raw_block,
    vint,
    write_map_file,
    write_records,
)

if TYPE_CHECKING:
    from arrow_io.ledgers.mapfiles.reader import OffloadedMapFile
    from tests.support.grids import Grid

pytestmark = pytest.mark.usefixtures("build", "close_positions")

_ENTRIES: Final = [b"first", b"", ESCAPE * 3, b"fourth " * 9, bytes(70), b"6", MARKER, b"last"]
_LAST: Final = len(_ENTRIES) - 1
_PATTERNS: Final = (0x01, 0x80, 0xFF)
_FILES: Final = {
    each: write_map_file(_ENTRIES, compression=each, block_bytes=90, sync_bytes=150, interval=3)
    for each in COMPRESSIONS
}


@pytest.fixture
def close_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads start at each position of an index."""
    monkeypatch.setattr(ledger_module, "SEEK_DISTANCE_BYTES", 1)


def _damaged(file: MapFile, data: bytes) -> MapFile:
    return replace(file, data=data)


def _try_open(url: str, data_bytes: int) -> OffloadedMapFile | FormatError:
    try:
        return open_map_file(url, data_bytes, range_bytes=64)
    except FormatError as caught:
        error = caught
    assert (error.ledger_id, error.object_key) == (NAME.ledger_id, NAME.data_name)
    return error


def _strict(mapped: OffloadedMapFile, first: int = 0) -> dict[int, bytes] | FormatError:
    try:
        return entries_of(mapped.data, first, mapped.last_entry_id)
    except FormatError as caught:
        error = caught
    assert (error.ledger_id, error.object_key) == (NAME.ledger_id, NAME.data_name)
    assert error.entry_id is not None or "ledger had" in str(error)
    return error


def _check(compression: str, data: bytes, what: str, spared: set[int], *, at: int = -1) -> None:
    """Check reads of a damaged data file.

    Args:
        compression: How it is compressed.
        data: Its bytes.
        what: What was done to it, in words.
        spared: Entries that salvaging must give.
        at: Where a byte was flipped, which no checksum covers if it is in the data of an entry.
    """
    file = _FILES[compression]
    changed = {
        each.first_key
        for each in file.groups
        if compression == "none" and each.stop - len(_ENTRIES[each.first_key]) <= at < each.stop
    }
    with memory_bucket(_damaged(file, data).objects()) as bucket:
        mapped = _try_open(bucket.url, len(data))
        if isinstance(mapped, FormatError):
            assert at < file.groups[0].stop or compression == "block", what
            return
        if mapped.last_entry_id > 1000:
            assert mapped.end_error is not None, what
            return
        for first in (0, 4, 5):
            if first > mapped.last_entry_id:
                continue
            expected = {each: _ENTRIES[each] for each in range(first, _LAST + 1)}
            found = _strict(mapped, first)
            if isinstance(found, dict):
                if mapped.last_entry_id == _LAST:
                    assert {k for k in found if found[k] != expected[k]} <= changed, what
                else:
                    assert mapped.end_error is not None, what
            tally = Tally(salvage=True)
            salvaged = entries_of(mapped.data, first, mapped.last_entry_id, tally)
            assert {k for k in salvaged if salvaged[k] != _ENTRIES[k]} <= changed, what
            lost = mapped.last_entry_id + 1 - first - len(salvaged)
            counts = {key: n for key, n in tally.metrics.lost.items() if key[0] is Unit.ENTRY}
            assert sum(counts.values()) == lost, what
            if mapped.last_entry_id == _LAST:
                assert {each for each in spared if each >= first} <= set(salvaged), what
            assert not tally.metrics.doubts, what
            if isinstance(found, FormatError):
                # Reads from an entry on start before it, where nothing may be lost.
                assert tally.metrics.lost or first, what


def _spared(compression: str, position: int) -> set[int]:
    """Entries that are not lost with a byte: those before, and from the next escape on."""
    file = _FILES[compression]
    if position < file.groups[0].start:
        return set()  # the header has the marker that all escapes have
    before = {e for each in file.groups if each.stop <= position for e in _ids(each)}
    after = [each for each in file.groups if each.start > position]
    while after and file.data[after[0].start :][:4] != ESCAPE:
        del after[0]
    return before | {e for each in after for e in _ids(each)}


def _ids(group: object) -> range:
    return range(group.first_key, group.last_key + 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_flipped_byte_is_an_error_or_of_no_consequence(compression: str, grid: Grid) -> None:
    """At any position of the data file."""
    data = _FILES[compression].data
    for position in grid.of(range(len(data)), count=len(data) // 3):
        for pattern in _PATTERNS if grid.is_whole else _PATTERNS[position % 3 :][:1]:
            what = f"{compression}, byte {position} ^ {pattern:#x}"
            spared = _spared(compression, position)
            _check(compression, flipped(data, position, pattern), what, spared, at=position)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_cut_file_is_read_as_far_as_it_goes(compression: str, grid: Grid) -> None:
    """All whole records or blocks are salvaged, and opening it says that entries are missing."""
    file = _FILES[compression]
    for length in grid.of(range(len(file.data)), count=len(file.data) // 3):
        data, what = file.data[:length], f"{compression} cut to {length} bytes"
        whole = {e for each in file.groups if each.stop <= length for e in _ids(each)} - {-1}
        with memory_bucket(_damaged(file, data).objects()) as bucket:
            if length < file.groups[0].stop and compression != "block":
                with pytest.raises(TruncatedObjectError):
                    open_map_file(bucket.url, length)
                continue
            mapped = _try_open(bucket.url, length)
            if isinstance(mapped, FormatError):
                assert length < file.groups[0].stop, what
                continue
            assert mapped.end_error is not None, what
            tally = Tally(salvage=True)
            assert set(entries_of(mapped.data, 0, _LAST, tally)) == whole, what
            assert tally.metrics.lost.total() == _LAST + 1 - len(whole), what
            with pytest.raises(FormatError):
                entries_of(mapped.data, 0, _LAST)


# Hostile bytes


_MIB: Final = 1 << 20


def _block_of(count: int, *streams: bytes) -> bytes:
    return raw_block(ESCAPE + MARKER, count, streams)


def _packed(content: bytes) -> bytes:
    return zlib.compress(content, 9)


_TWO: Final = (_packed(b"\x08\x08"), _packed(struct.pack(">qq", 0, 1)), _packed(b"\x05\x05"))
_VALUES: Final = _packed(b"\0\0\0\x01a\0\0\0\x01b")
_RECORD: Final = struct.Struct(">iiq")
_BOMB: Final = _packed(bytes(16 * _MIB))
"""Becomes a thousand times as long, and longer than a value may be in these tests."""


@pytest.mark.parametrize(
    ("compression", "piece"),
    [
        *(
            ("none", _RECORD.pack(length, key_length, key) + value)
            for length, key_length, key, value in (
                (2**31 - 1, 8, 0, b"\x7f\xff\xff\xf3"),
                (-2, 8, 0, b"\xff\xff\xff\xf2"),
                (13, 7, 0, b"\0\0\0\x01a"),
                (13, 8, 2**63 - 1, b"\0\0\0\x01a"),
                (13, 8, -2, b"\0\0\0\x01a"),
                (13, 8, 0, b"\0\0\0\x02a"),
                (0, 8, 0, b""),
                (-1, 8, 0, bytes(20)),
            )
        ),
        *(
            ("record", _RECORD.pack(length, key_length, key) + value)
            for length, key_length, key, value in (
                (2**31 - 1, 8, 0, b""),
                (7, 8, 0, b""),
                (8, 8, 0, b""),
                (8 + len(_VALUES), 8, 0, _VALUES),
                (8 + 3, 8, 0, b"abc"),
                (8 + len(_packed(b"abc")), 8, 0, _packed(b"abc")),
                (8 + len(_BOMB), 8, 0, _BOMB),
            )
        ),
        *(
            ("block", _block_of(*each))
            for each in (
                (2**31, *_TWO, _VALUES),
                (2**62, *_TWO, _VALUES),
                (1 << 23, *_TWO, _VALUES),
                (0, *_TWO, _VALUES),
                (-1, *_TWO, _VALUES),
                (1, *_TWO, _VALUES),
                (3, *_TWO, _VALUES),
                (2, _packed(b"\x08\x07"), *_TWO[1:], _VALUES),
                (2, _TWO[0], _packed(struct.pack(">qq", 0, 2)), _TWO[2], _VALUES),
                (2, _TWO[0], _packed(struct.pack(">qq", 2**63 - 2, 2**63 - 1)), _TWO[2], _VALUES),
                (2, _TWO[0], _packed(bytes(15)), _TWO[2], _VALUES),
                (2, *_TWO[:2], _packed(b"\x05\xff"), _VALUES),
                (2, *_TWO[:2], _packed(b"\x05\x80" + b"\xff" * 8), _VALUES),
                (2, *_TWO[:2], _packed(b"\x05\x88" + b"\xff" * 8), _VALUES),
                (2, *_TWO[:2], _packed(b"\x03\x05"), _VALUES),
                (2, *_TWO[:2], _packed(b"\x05\x04"), _VALUES),
                (2, *_TWO[:2], _packed(b"\x05\x06"), _VALUES),
                (2, *_TWO[:2], _packed(b"\x05"), _VALUES),
                (2, *_TWO[:2], _packed(b"\x05\x05\x05"), _VALUES),
                (2, *_TWO, _BOMB),
                (2, *_TWO[:2], _packed(vint(7 * _MIB) * 2), _BOMB),
                (2, _BOMB, *_TWO[1:], _VALUES),
                (2, *_TWO, _VALUES + b"more"),
                (2, *_TWO, _VALUES[:-1]),
            )
        ),
        ("block", ESCAPE + MARKER + vint(2) + vint(-5) + b"abc"),
        ("block", ESCAPE + MARKER + vint(2) + vint(2**62) + b"abc"),
        ("block", ESCAPE + MARKER + b"\x88" + b"\xff" * 7),
        ("block", ESCAPE + MARKER),
    ],
)
@pytest.mark.parametrize("has_more", [False, True])
def test_hostile_records_are_refused(
    monkeypatch: pytest.MonkeyPatch, compression: str, piece: bytes, *, has_more: bool
) -> None:
    """In no more memory than their bytes can justify; what follows is read when salvaging."""
    monkeypatch.setattr(walk_module, "_MAX_VALUE_BYTES", 8 * _MIB)
    sound = write_map_file([b"a", b"b", b"c"], compression=compression, block_bytes=1, sync_bytes=1)
    after = sound.data[sound.groups[3].start :] if has_more else b""
    data = sound.data[: sound.groups[1].start] + piece + after
    with memory_bucket({NAME.data_name: data, NAME.index_name: sound.index}) as bucket:
        tracemalloc.start()
        try:
            mapped = open_map_file(bucket.url, len(data))
            with pytest.raises((CorruptBlockError, TruncatedObjectError)) as caught:
                entries_of(mapped.data, 0, 2)
            tally = Tally(salvage=True)
            found = entries_of(mapped.data, 0, 2, tally)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert caught.value.object_key == NAME.data_name
    # The error of the first read keeps what that had decompressed.
    assert most < 4 * _MIB + 2 * 1100 * len(piece)
    assert found.get(2) == (b"c" if has_more else None)
    assert set(found.values()) <= {b"a", b"b", b"c"}
    assert tally.metrics.lost.total() == 3 - len(found)


def test_a_resumed_walk_whose_key_is_after_the_last_entry_ends() -> None:
    """Entries before it are lost, and it is not read."""
    for compression in COMPRESSIONS:
        keys = [-1, 0, 7, 8]
        metadata = _metadata_record(9)
        records = [(key, metadata if key < 0 else b"\0\0\0\x01x") for key in keys]
        file = write_records(records, compression=compression, block_bytes=1, sync_bytes=1)
        position = file.groups[1].start + 24
        damaged = _damaged(file, flipped(file.data, position, 0xFF))
        with memory_bucket(damaged.objects()) as bucket:
            ledger = open_map_file(bucket.url, len(file.data)).data
            tally = Tally(salvage=True)
            assert entries_of(ledger, 0, 5, tally) == {}
            assert tally.metrics.lost.total() == 6


def test_a_first_block_with_other_keys_and_no_index() -> None:
    """No position is known but that of the first record: a read fails with a typed error."""
    values = [_metadata_record(4), *[b"\0\0\0\x01x"] * 4]
    file = write_records(list(zip([-1, 0, 1, 5, 6], values, strict=True)), compression="block")
    objects = file.objects() | {NAME.index_name: b""}
    with memory_bucket(objects) as bucket:
        mapped = open_map_file(bucket.url, len(file.data))
        assert isinstance(mapped.end_error, CorruptBlockError)
        tally = Tally(salvage=True)
        assert entries_of(mapped.data, 0, 3, tally) == {0: b"x", 1: b"x"}
        assert tally.metrics.lost.total() == 2
        assert mapped.data.stored_bytes == len(file.data) - file.groups[0].start
        with pytest.raises(CorruptBlockError):
            entries_of(mapped.data, 0, 3)


def _metadata_record(count: int) -> bytes:
    """The serialized value of the first record of a ledger with entries of one byte."""
    metadata = write_map_file([b"x"] * count).data[95 + 16 :]
    return metadata[: 4 + int.from_bytes(metadata[:4])]
