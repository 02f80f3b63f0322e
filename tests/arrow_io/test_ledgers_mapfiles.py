"""MapFiles entry by entry: of any entries and layout, with indexes that lie."""

from __future__ import annotations

import pickle
import struct
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    FormatError,
    TruncatedObjectError,
)
from arrow_io.format.map_file_index import MapFileIndex, build_index
from arrow_io.ledgers.mapfiles import ledger as ledger_module
from arrow_io.ledgers.mapfiles.reader import OffloadedMapFile
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.read_metrics import Tally, Unit
from arrow_io.storage.trace import RequestTrace
from tests.arrow_io.test_ledgers_segments_ledger import entries_of
from tests.support.buckets import MANAGED_LEDGER, MemoryBucket, memory_bucket
from tests.support.map_files import (
    COMPRESSIONS,
    ESCAPE,
    MARKER,
    NAME,
    MapFile,
    block,
    checksums,
    golden_map_files,
    open_map_file,
    raw_block,
    vint,
    write_map_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    file: MapFile, *, has_checksums: bool = False, **options: Any
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
        assert all(one[1] <= two[0] for one, two in zip(requested, requested[1:], strict=False))
        (extent,) = ledger.extents(first, stop)
        _check_plan(ledger, file, first, stop, extent)


def _check_plan(
    ledger: Any,
    file: MapFile,
    first: int,
    stop: int,
    extent: tuple[int, int],  # noqa: ANN401
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
