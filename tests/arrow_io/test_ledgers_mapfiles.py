"""MapFiles entry by entry: of any entries and layout, with indexes that lie."""

from __future__ import annotations

import pickle
import struct
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    FormatError,
    TruncatedObjectError,
)
from arrow_io.format.map_file_index import MapFileIndex
from arrow_io.ledgers.mapfiles import ledger as ledger_module
from arrow_io.ledgers.mapfiles.reader import OffloadedMapFile
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.read_metrics import Tally, Unit
from arrow_io.storage.trace import RequestTrace
from tests.arrow_io.test_ledgers_segments_ledger import entries_of
from tests.support.buckets import MANAGED_LEDGER, memory_bucket
from tests.support.map_files import (
    COMPRESSIONS,
    ESCAPE,
    MARKER,
    NAME,
    MapFile,
    Options,
    golden_map_files,
    open_map_file,
    write_map_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.ledgers.mapfiles.ledger import MapFileLedger

pytestmark = pytest.mark.usefixtures("build")

_ENTRY: Final = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 3000).map(lambda size: b"\xff" * size),
    st.tuples(st.binary(max_size=9), st.integers(1, 19)).map(
        lambda each: each[0] + (ESCAPE + MARKER)[: each[1]] + each[0]
    ),
    st.tuples(st.binary(min_size=1, max_size=30), st.integers(1, 300)).map(
        lambda each: each[0] * each[1]
    ),
)
_LAYOUT: Final = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(COMPRESSIONS),
        "block_bytes": st.sampled_from([1, 60, 700, 1_000_000]),
        "sync_bytes": st.sampled_from([1, 100, 5000, 102_400]),
        "interval": st.sampled_from([1, 2, 5, 128]),
    }
)


@contextmanager
def _opened(
    file: MapFile, *, has_checksums: bool = False, **options: Unpack[Options]
) -> Iterator[OffloadedMapFile]:
    """The ledger of a MapFile in memory."""
    with memory_bucket(file.objects(has_checksums=has_checksums)) as bucket:
        yield open_map_file(bucket.url, len(file.data), has_checksums=has_checksums, **options)


@pytest.fixture
def close_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads start at each position of an index, and tasks are small."""
    monkeypatch.setattr(ledger_module, "SEEK_DISTANCE_BYTES", 1)
    monkeypatch.setattr(ledger_module, "_BLOCK_BYTES", 2000)


@pytest.mark.usefixtures("close_positions")
@given(st.lists(_ENTRY, min_size=1, max_size=30), _LAYOUT, st.data())
def test_any_entries_in_any_layout_are_read(
    entries: list[bytes], layout: dict[str, Any], data: st.DataObject
) -> None:
    """From any entry on, in ranges of any size; no byte is requested twice, and none is missed."""
    last = len(entries) - 1
    first = data.draw(st.integers(0, last))
    stop = data.draw(st.integers(first, last))
    range_bytes = data.draw(st.sampled_from([1, 7, 64, 4096, 1 << 20]))
    has_checksums = data.draw(st.booleans())
    file = write_map_file(entries, **layout)
    with _opened(
        file,
        has_checksums=has_checksums,
        range_bytes=range_bytes,
        trace=RequestTrace(keep_records=True),
    ) as mapped:
        assert (mapped.warnings, mapped.index_error, mapped.end_error) == ((), None, None)
        assert mapped.broker_problems() == []
        assert (mapped.last_entry_id, mapped.length_bytes) == (last, sum(map(len, entries)))
        assert [each.data for each in mapped.read_entries(0, last)] == entries
        ledger = pickle.loads(pickle.dumps(mapped)).data
        assert ledger == mapped.data
        trace = ledger.location.trace
        tally = Tally()
        before = len(trace.records)
        found = entries_of(ledger, first, stop, tally)
        assert found == dict(enumerate(entries[first : stop + 1], first))
        assert not tally.metrics.doubts
        requested = [(each.start, each.stop) for each in trace.records[before:]]
        assert requested == sorted(requested)
        assert all(one[1] <= two[0] for one, two in pairwise(requested))
        (extent,) = ledger.extents(first, stop)
        _check_plan(ledger, file, first, stop, extent)


def _check_plan(
    ledger: MapFileLedger,
    file: MapFile,
    first: int,
    stop: int,
    extent: tuple[int, int],
) -> None:
    """Blocks cover the records, extents those of some entries, and spans begin where reads do."""
    blocks = ledger.blocks(0, ledger.last_entry_id)
    assert blocks[0].start == file.groups[0].start
    assert blocks[-1].stop == len(file.data)
    assert ledger.stored_bytes == sum(each.stop - each.start for each in blocks)
    assert [each.first_entry_id for each in blocks] == [
        0,
        *(each.last_entry_id + 1 for each in blocks[:-1]),
    ]
    assert blocks[-1].last_entry_id == ledger.last_entry_id
    some = ledger.blocks(first, stop)
    assert some == [
        each for each in blocks if each.last_entry_id >= first and each.first_entry_id <= stop
    ]
    mine = [each for each in file.groups if each.last_key >= first and each.first_key <= stop]
    assert extent[0] <= mine[0].start < mine[-1].stop <= extent[1]
    (span,) = ledger.byte_spans(first, stop)
    assert (span.start, span.stop) == (extent[0], len(file.data))
    assert span.start < span.sure_stop <= span.stop


_MIB: Final = 1 << 20


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("range_bytes", [64 << 10, 64 * _MIB])
@pytest.mark.parametrize(
    ("sizes", "block_bytes"),
    [([5 * _MIB, 0, 3 * _MIB, 1], 1), ([3 * _MIB, 200, 2 * _MIB, 5 * _MIB, 0], 1 << 30)],
    ids=["alone", "in one block"],
)
def test_entries_of_several_mib_are_read(
    compression: str, range_bytes: int, sizes: list[int], block_bytes: int
) -> None:
    """Values of a block are decompressed a piece at a time."""
    entries = [(bytes([number]) + b"\xff" * 6) * (size // 7) for number, size in enumerate(sizes)]
    file = write_map_file(entries, compression=compression, block_bytes=block_bytes)
    with _opened(file, range_bytes=range_bytes) as mapped:
        last = len(entries) - 1
        assert [each.data for each in mapped.read_entries(0, last)] == entries
        for entry_id, entry in enumerate(entries):
            assert entries_of(mapped.data, entry_id, entry_id) == {entry_id: entry}


# Indexes


_COUNT: Final = 12


def _index(pairs: Sequence[tuple[int, int]]) -> bytes:
    keys, positions = zip(*pairs, strict=True) if pairs else ((), ())
    return MapFileIndex(keys, positions).serialize(MARKER)


def _record(key: int, value: bytes) -> bytes:
    return struct.pack(">iiqi", 12 + len(value), 8, key, len(value)) + value


def _imitating(compression: str) -> tuple[list[bytes], MapFile]:
    """Entries, of which each looks as though it held the records of the entries around it."""
    entries = [
        b"%04d" % n + b"".join(_record(key, b"wrong") for key in range(n, n + 3))
        for n in range(_COUNT)
    ]
    return entries, write_map_file(
        entries, compression=compression, block_bytes=1, interval=1, sync_bytes=100
    )


@pytest.mark.usefixtures("close_positions")
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("range_bytes", [64, 1 << 20])
def test_an_index_that_lies_misleads_no_read(compression: str, range_bytes: int) -> None:
    """Each entry is read once, and it is told that the index is wrong if it is used and is."""
    entries, file = _imitating(compression)
    sound = [(each.first_key, each.start) for each in file.groups]
    header = sound[0][1]
    inner = file.groups[5].start + 20 + 20 + 4
    lies: dict[str, list[tuple[int, int]]] = {
        "some pairs": sound[::5],
        "one pair": sound[:1],
        "within an entry": [*sound[:6], (5, inner), *sound[7:]],
        "within an escape": [*sound[:6], (5, sound[6][1] + 3), *sound[7:]],
        "all shifted": [sound[0], *((key, at + 1) for key, at in sound[1:])],
        "keys too small": [sound[0], *((key, sound[key + 2][1]) for key, _ in sound[1:-1])],
        "keys too great": [sound[0], *((key + 1, at) for key, at in sound[1:])],
        "far keys": [*sound[:-1], (2**62, sound[-1][1])],
        "last shifted": [*sound[:-1], (sound[-1][0], sound[-1][1] - 1)],
        "beyond the end": [*sound[:-1], (sound[-1][0], len(file.data))],
        "before the start": [(-1, header - 1), *sound[1:]],
        "descending positions": [*sound[:4], (sound[4][0], sound[3][1] - 9), *sound[5:]],
        "descending keys": [*sound[:4], (1, sound[4][1]), *sound[5:]],
        "no first": sound[1:],
        "empty": [],
    }
    for name, pairs in lies.items():
        is_sound = name in {"some pairs", "one pair"}
        index = file.index if name == "sound" else _index(pairs)
        with _opened(MapFile(file.data, index), range_bytes=range_bytes) as mapped:
            assert mapped.end_error is None, name
            doubts = []
            for first in range(_COUNT):
                tally = Tally(salvage=first % 2 == 1)
                found = entries_of(mapped.data, first, _COUNT - 1, tally)
                assert found == dict(enumerate(entries[first:], first)), (name, first)
                assert entries_of(mapped.data, first, first, tally) == {first: entries[first]}, name
                assert not tally.metrics.lost
                doubts += tally.metrics.doubts
            if is_sound:
                assert (mapped.index_error, mapped.warnings, doubts) == (None, (), []), name
            elif mapped.index_error is None:
                harmless = compression == "block" and name == "keys too great"
                assert bool(doubts) is not harmless, name
                assert NAME.index_name in "".join(doubts) or harmless, name
            else:
                assert doubts == [], name
                (warning,) = mapped.warnings
                assert warning == f"{NAME.index_name}: {mapped.index_error.message}"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_any_damage_of_an_index_leaves_the_entries(compression: str) -> None:
    """Flipped or cut anywhere: the data file is walked, and says the same."""
    entries, file = _imitating(compression)
    cuts = [file.index[:length] for length in range(len(file.index))]
    flips = [
        file.index[:at] + bytes([file.index[at] ^ 0x55]) + file.index[at + 1 :]
        for at in range(len(file.index))
    ]
    with memory_bucket(file.objects()) as bucket:
        sound = open_map_file(bucket.url, len(file.data))
        for number, content in enumerate((*cuts[::3], *flips[::3])):
            bucket.put({NAME.index_name: content})
            mapped = open_map_file(bucket.url, len(file.data))
            assert isinstance(mapped.index_error, FormatError), number
            assert mapped.index_error.object_key == NAME.index_name
            assert mapped.end_error is None
            assert mapped.table == sound.table
            assert mapped.broker_problems() == [str(mapped.index_error)]
            if number % 20 == 0:
                assert [e.data for e in mapped.read_entries(0, _COUNT - 1)] == entries


# Opening


def test_a_ledger_of_one_block_that_is_cut_is_an_error() -> None:
    """A full disk did it (set `full`): Pulsar's reader fails, and there is no whole block."""
    (golden,) = (each for each in golden_map_files() if str(each) == "filesystem-4.0.8:506")
    objects = {golden.name.data_name: golden.data[:163_840], golden.name.index_name: b""}
    with memory_bucket(objects) as bucket, pytest.raises(TruncatedObjectError) as caught:
        open_map_file(bucket.url, 163_840, golden.name)
    assert (caught.value.object_key, caught.value.ledger_id) == (golden.name.data_name, 506)


def _metadata(count: int, length: int, managed_ledger: str = MANAGED_LEDGER) -> bytes:
    lengths = [0] * (count - 1) + [length]
    return new_ledger_metadata(lengths, managed_ledger=managed_ledger, ctime_ms=0).serialize()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_last_key_shows_whether_the_offload_has_finished(compression: str) -> None:
    """Another number of entries is told at once, another length when all are read."""
    for count, length, error in (
        (3, 6, None),
        (4, 6, TruncatedObjectError),
        (2, 6, CorruptBlockError),
        (3, 7, None),
    ):
        file = write_map_file(
            [b"ab"] * 3, metadata=_metadata(count, length), compression=compression, block_bytes=30
        )
        with _opened(file) as mapped:
            assert mapped.index_error is None
            assert type(mapped.end_error) is (error or type(None))
            last = mapped.last_entry_id
            assert last == count - 1
            tally = Tally(salvage=True)
            assert len(entries_of(mapped.data, 0, last, tally)) == min(count, 3)
            if (count, length) == (3, 7):
                with pytest.raises(CorruptIndexError, match="have 6 bytes, the ledger had 7"):
                    entries_of(mapped.data, 0, last)
                assert tally.metrics.lost == {(Unit.LEDGER, "CorruptIndexError"): 1}
            if error is not None:
                assert mapped.end_error is not None
                assert mapped.end_error.object_key == NAME.data_name
                with pytest.raises(error):
                    OffloadedMapFile.with_rebuilt_index(mapped.location, NAME, len(file.data))


def test_path_and_metadata_name_the_same_managed_ledger() -> None:
    """A folder that was moved to another topic is not read as that topic's."""
    file = write_map_file([b"a"], metadata=_metadata(1, 1, "public/default/persistent/other"))
    with pytest.raises(CorruptIndexError, match="persistent/other") as caught, _opened(file):
        pass
    assert (caught.value.object_key, caught.value.ledger_id) == (NAME.data_name, 7)


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (b"", FormatError),
        (b"\xff" * 40, FormatError),
        (b"BookieMetadataFormatVersion\t2\n", FormatError),
    ],
)
def test_metadata_that_is_none_is_an_error(metadata: bytes, error: type[FormatError]) -> None:
    """It names the data file."""
    file = write_map_file([b"a"], metadata=metadata)
    with pytest.raises(error) as caught, _opened(file):
        pass
    assert caught.value.object_key == NAME.data_name


def test_what_a_broker_refuses_is_told() -> None:
    """It compares files with their checksums; others read them all the same."""
    file = write_map_file([b"abc" * 400] * 3, compression="none")
    objects = file.objects(has_checksums=True)
    index_crc, data_crc = NAME.checksum_names
    changed = file.data[:-1] + b"x"
    cases: list[tuple[dict[str, bytes], str]] = [
        ({}, ""),
        ({NAME.data_name: changed}, r"differ from their CRC-32"),
        ({data_crc: objects[data_crc][:-4]}, "have none in the checksum file"),
        ({data_crc: objects[data_crc][:-1]}, "have none in the checksum file"),
        ({data_crc: b""}, "not a checksum file"),
        ({data_crc: b"crc\0" + struct.pack(">i", 2**31 - 1)}, "not a checksum file"),
        ({data_crc: b"crc\0" + struct.pack(">i", -1)}, "not a checksum file"),
        ({index_crc: objects[index_crc][:-1] + b"x"}, "differ from their CRC-32"),
        ({index_crc: b""}, "not a checksum file"),
    ]
    with memory_bucket(objects) as bucket:
        for changes, problem in cases:
            bucket.put({**objects, **changes})
            mapped = open_map_file(bucket.url, len(file.data), has_checksums=True)
            problems = mapped.broker_problems()
            assert len(problems) == bool(problem)
            assert problem in "".join(problems)
            assert (mapped.index_error is not None) is (index_crc in changes)
            assert len(list(mapped.read_entries(0, 2))) == 3


def test_checksums_that_are_deleted_after_the_listing_are_not_missed() -> None:
    """The ledger is sound: Hadoop compares nothing with checksums that do not exist."""
    file = write_map_file([b"a"])
    with memory_bucket(file.objects()) as bucket:
        mapped = open_map_file(bucket.url, len(file.data), has_checksums=True)
        assert (mapped.index_error, mapped.broker_problems()) == (None, [])
        assert len(list(mapped.read_entries(0, 0))) == 1
