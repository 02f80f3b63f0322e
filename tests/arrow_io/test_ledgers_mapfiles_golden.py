"""MapFiles that Pulsar's own offloader wrote: their entries, and their bytes once more."""

from __future__ import annotations

import pickle
from random import Random
from typing import Final

import pytest

from arrow_io.errors import FormatError, TruncatedObjectError
from arrow_io.format.checksum_file import check_checksums, checksum_file
from arrow_io.format.map_file_index import read_map_file_index
from arrow_io.format.sequence_file import BYTES_CLASS, LONG_CLASS, parse_header
from arrow_io.ledgers.mapfiles.reader import OffloadedMapFile
from arrow_io.read_metrics import Tally
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from tests.arrow_io.test_ledgers_segments_ledger import entries_of
from tests.support.map_files import (
    COMPRESSIONS,
    GoldenMapFile,
    digest,
    golden_map_files,
    write_map_file,
)

pytestmark = [pytest.mark.usefixtures("build"), pytest.mark.both_builds]

_COMPLETE: Final = [each for each in golden_map_files() if each.is_complete]
_FAILED: Final = [each for each in golden_map_files() if not each.is_complete]
_complete = pytest.mark.parametrize("golden", _COMPLETE, ids=str)


def test_all_compressions_are_among_the_sets() -> None:
    """And ledgers with more than one pair in the index, blocks, and escapes before records."""
    found = [parse_header(each.data[:1000], BYTES_CLASS)[0].compression for each in _COMPLETE]
    assert set(found) == set(COMPRESSIONS)
    assert len(_COMPLETE) > 80
    assert len(_FAILED) == 2


@_complete
def test_entries_are_those_that_pulsars_reader_gave(golden: GoldenMapFile) -> None:
    """All of them, some from anywhere on, in ranges of any length, from a pickled ledger too."""
    ledger, expected = golden.open(), golden.digests
    last = len(expected) - 1
    assert (ledger.warnings, ledger.index_error, ledger.end_error) == ((), None, None)
    assert ledger.broker_problems() == []
    assert ledger.last_entry_id == last
    assert ledger.ledger_metadata.length_bytes == sum(size for size, _ in expected)
    assert [digest(each.data) for each in ledger.read_entries(0, last)] == expected
    tally, random = Tally(), Random(golden.name.ledger_id)
    for range_bytes in (4 << 10, 1 << 20):
        data = pickle.loads(pickle.dumps(golden.open(range_bytes=range_bytes).data))
        for first in {0, last // 2, random.randint(0, last), last}:
            stop = random.randint(first, last)
            found = entries_of(data, first, stop, tally)
            assert {each: digest(found[each]) for each in found} == dict(
                enumerate(expected[first : stop + 1], first)
            )
    assert not tally.metrics.doubts


def test_opening_a_ledger_takes_few_requests() -> None:
    """Index, start of the data file, and its end, unless 128 records of that are long."""
    few = 0
    for golden in _COMPLETE:
        trace = RequestTrace()
        golden.open(trace=trace)
        requests = trace.counts.requests - (golden.checksums is not None)
        assert requests <= 3 + len(golden.data) // (64 << 10)
        few += requests == 3
    assert few > len(_COMPLETE) * 0.8


@_complete
def test_index_and_checksums_are_written_as_hadoop_does(golden: GoldenMapFile) -> None:
    """Byte for byte; the index from a walk over the data file."""
    header, _ = parse_header(golden.index, LONG_CLASS)
    index = read_map_file_index(golden.index, object_key="index")
    assert index.serialize(header.sync_marker) == golden.index
    location = Location(str(golden.base))
    ledger, rebuilt = OffloadedMapFile.with_rebuilt_index(location, golden.name, len(golden.data))
    assert (list(rebuilt.keys), list(rebuilt.positions)) == (
        list(index.keys),
        list(index.positions),
    )
    assert ledger == golden.open()
    assert rebuilt.serialize(header.sync_marker) == golden.index
    for content, expected in zip((golden.index, golden.data), golden.checksums or (), strict=False):
        assert checksum_file(content) == expected
        check_checksums(content, 0, expected[8:], 512)


@_complete
def test_the_writer_of_these_tests_writes_what_hadoop_wrote(golden: GoldenMapFile) -> None:
    """Byte for byte, so what it writes of other entries can be trusted."""
    ledger = golden.open()
    entries = [each.data for each in ledger.read_entries(0, ledger.last_entry_id)]
    written = write_map_file(
        entries,
        metadata=ledger.ledger_metadata.serialize(),
        compression=str(ledger.header.compression),
        marker=ledger.header.sync_marker,
    )
    marker = parse_header(golden.index, LONG_CLASS)[0].sync_marker
    assert written.data == golden.data
    assert written.index.replace(ledger.header.sync_marker, marker) == golden.index


@pytest.mark.parametrize("golden", _FAILED, ids=str)
def test_a_failed_offload_is_not_finished(golden: GoldenMapFile) -> None:
    """Without records it is no ledger; otherwise its whole records can be read."""
    if not golden.data:
        with pytest.raises(TruncatedObjectError) as caught:
            golden.open()
        assert caught.value.object_key == golden.name.data_name
        assert caught.value.ledger_id == golden.name.ledger_id
        return
    ledger = golden.open()
    assert isinstance(ledger.end_error, TruncatedObjectError)
    assert isinstance(ledger.index_error, TruncatedObjectError)
    assert ledger.index_error.object_key == golden.name.index_name
    assert ledger.last_entry_id == len(golden.digests) - 1
    with pytest.raises(FormatError):
        list(ledger.read_entries(0, ledger.last_entry_id))
    tally = Tally(salvage=True)
    found = entries_of(ledger.data, 0, ledger.last_entry_id, tally)
    assert [digest(each) for each in found.values()] == golden.digests[: len(found)]
    assert tally.metrics.lost.total() == len(golden.digests) - len(found)
    assert len(found) == 298
