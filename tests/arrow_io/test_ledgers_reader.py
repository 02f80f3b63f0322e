"""One ledger, read by few requests, and never wrongly: whatever is cut, shifted or lost is told."""

from __future__ import annotations

import math
import pickle
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pytest

from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    EntryNotInLedgerError,
    MissingEntriesError,
    MissingObjectError,
    PulsarOffloadError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.block_table import BlockEntry
from arrow_io.format.index_block import write_index_block
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers import data as ledger_data
from arrow_io.ledgers.offset_memory import OffsetMemory
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.messages import layout
from arrow_io.read_metrics import ReadMetrics, Tally, Unit
from arrow_io.storage.location import Location
from arrow_io.storage.range_prefetch import RangePrefetcher
from arrow_io.storage.trace import RequestCounts, RequestTrace
from tests.support.buckets import (
    MANAGED_LEDGER,
    MemoryBucket,
    memory_bucket,
    object_name,
    offload_ledger,
)
from tests.support.encoded_ledgers import encode_ledger
from tests.support.entries import Message, encode_entry
from tests.support.expected import COLUMNS, rows_of
from tests.support.golden import golden_topic
from tests.support.golden_datasets import reference_rows
from tests.support.golden_entries import golden_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_RANGE_BYTES: Final = 1 << 20
_MULTI_BLOCK: Final = golden_topic("multi-block")
_HEADER: Final = 128
_FRAME: Final = 12

pytestmark = pytest.mark.usefixtures("build", "memory")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> OffsetMemory:
    """An empty memory of offsets, in place of the one that the process shares."""
    fresh = OffsetMemory()
    monkeypatch.setattr(ledger_data, "_OFFSETS", fresh)
    return fresh


def _golden(trace: RequestTrace) -> OffloadedLedger:
    """The ledger of 16 MB: 76 entries of about 210 kB in one block."""
    name = LedgerObjectName(UUID(_MULTI_BLOCK.ledgers[0].uuid), 91)
    return OffloadedLedger.open(Location(str(_MULTI_BLOCK.objects_folder), trace=trace), name)


@pytest.fixture(scope="module")
def entries() -> list[bytes]:
    """Entries of the golden ledger of 16 MB, by the reference."""
    ((_, entries),) = golden_entries(_MULTI_BLOCK)
    return entries


def _offsets(entries: Iterable[bytes]) -> list[int]:
    """Where the header of each entry of a ledger of one block begins."""
    offsets, position = [], _HEADER
    for entry in entries:
        offsets.append(position)
        position += _FRAME + len(entry)
    return offsets


def test_index_is_one_request() -> None:
    """Opening reads the index object and nothing else."""
    trace = RequestTrace()

    ledger = _golden(trace)

    size = _MULTI_BLOCK.ledgers[0].index_object.stat().st_size
    assert trace.counts == RequestCounts(index_requests=1, index_bytes=size)
    assert (ledger.ledger_id, ledger.last_entry_id) == (91, 75)


def test_cold_point_reads_within_a_range_take_two_requests(
    monkeypatch: pytest.MonkeyPatch, entries: list[bytes]
) -> None:
    """From the start of the block: every entry that begins within the first range."""
    near = [n for n, offset in enumerate(_offsets(entries)) if offset < _RANGE_BYTES]
    assert len(near) > 3
    for entry_id in near:
        monkeypatch.setattr(ledger_data, "_OFFSETS", OffsetMemory())
        trace = RequestTrace()
        ledger = _golden(trace)

        (entry,) = ledger.read_entries(entry_id, entry_id)

        assert (entry.ledger_id, entry.entry_id, entry.data) == (91, entry_id, entries[entry_id])
        assert trace.counts.range_requests <= 2


def test_warm_point_reads_take_two_requests(memory: OffsetMemory, entries: list[bytes]) -> None:
    """Once the ledger was walked, entries within a range of an offset that is remembered do."""
    trace = RequestTrace()
    ledger = _golden(trace)
    assert [entry.data for entry in ledger.read_entries(0, 75)] == entries

    requests = []
    for entry_id, offset in enumerate(_offsets(entries)):
        _, start = memory.floor(ledger.data.memory_key, entry_id) or (0, 0)
        before = trace.counts.range_requests
        (entry,) = ledger.read_entries(entry_id, entry_id)
        assert entry.data == entries[entry_id]
        requests.append(trace.counts.range_requests - before)
        stop = offset + _FRAME + len(entry.data)
        assert requests[-1] <= math.ceil((stop - start) / _RANGE_BYTES), entry_id
    assert sum(each <= 2 for each in requests) > 70
    assert len(memory._objects[ledger.data.memory_key]) > 5


def test_another_process_starts_where_the_block_does(entries: list[bytes]) -> None:
    """What is remembered is no part of the ledger: a pickled one reads the same."""
    ledger = pickle.loads(pickle.dumps(_golden(RequestTrace())))

    assert [entry.data for entry in ledger.read_entries(3, 6)] == entries[3:7]
    assert ledger.index == _golden(RequestTrace()).index


def test_entries_are_given_lazily(entries: list[bytes]) -> None:
    """Whoever takes the first of many entries has not read them all."""
    trace = RequestTrace()

    taken = next(_golden(trace).read_entries(0, 75))

    assert taken.data == entries[0]
    assert trace.counts.range_requests == 1


@pytest.mark.parametrize("offset", [-(10**15), -1, 0, 1, 400, 1 << 20, 2**62])
@pytest.mark.parametrize("has_prefetcher", [False, True])
def test_wrong_offset_is_forgotten(
    memory: OffsetMemory, entries: list[bytes], offset: int, *, has_prefetcher: bool
) -> None:
    """A walk that fails forgets where it came from, and starts again at the block."""
    ledger = _golden(RequestTrace())
    key = ledger.data.memory_key
    for entry_id, shift in ((2, 0), (5, 40)):
        memory.remember(key, entry_id, _offsets(entries)[entry_id] + offset + shift)
    metrics = ReadMetrics()

    with RangePrefetcher(iter(ledger.data.byte_spans(3, 4))) as prefetcher:
        runs = ledger.data.entry_runs(
            3,
            4,
            Tally(metrics, salvage=True),
            verify_checksums=True,
            prefetcher=prefetcher if has_prefetcher else None,
        )
        found = [
            (each.is_in_range, each.is_verified, bytes(each.view(n, layout.FRAME)))
            for each in runs
            for n in range(each.count)
        ]

    # What cannot be is not looked at.
    assert (memory.floor(key, 2) is None) == (offset not in {0, -(10**15)})
    assert found == [(True, True, entry) for entry in entries[3:5]]
    assert not metrics.lost


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (0, 76), (76, 76), (5, 4), (2**63, 2**63)])
def test_entries_that_the_ledger_has_not_are_an_error(first: int, last: int) -> None:
    """Before any request; the error says which there are."""
    trace = RequestTrace()
    ledger = _golden(trace)

    with pytest.raises(EntryNotInLedgerError, match=r"the ledger has the entries 0 … 75") as caught:
        next(ledger.read_entries(first, last))

    assert (caught.value.object_key, caught.value.ledger_id) == (ledger.name.data_name, 91)
    assert trace.counts.range_requests == 0


@pytest.mark.parametrize("name", ["chunked", "transactions", "bytes-batched-lz4"])
def test_record_batches_of_one_ledger(name: str) -> None:
    """A ledger by itself gives the rows of a topic that has no other."""
    topic = golden_topic(name)
    (golden,) = topic.ledgers
    object_name_ = LedgerObjectName(UUID(golden.uuid), golden.ledger_id)
    ledger = OffloadedLedger.open(Location(str(topic.objects_folder)), object_name_)
    tally = Tally()

    rows = [row for batch in ledger.record_batches(COLUMNS, tally=tally) for row in rows_of(batch)]

    expected = reference_rows(topic)
    assert rows == [row | {"__topic__": "", "__partition__": -1} for row in expected]
    assert tally.metrics.rows == len(rows)
    assert tally.metrics.entries == golden.entry_count


# Ledgers that are damaged by hand: five entries, two to a block.

_VALUES: Final = [bytes([65 + n]) * (50 + n) for n in range(5)]
_ENTRIES: Final = [encode_entry([Message(payload=value)], batched=False) for value in _VALUES]
_BLOCK_BYTES: Final = _HEADER + 2 * _FRAME + len(_ENTRIES[2]) + len(_ENTRIES[3])
_ALL: Final = list(enumerate(_VALUES))


class Damaged:
    """One ledger in a bucket, whose bytes a test changes."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self.bucket = bucket
        self.name = object_name(7)
        objects = offload_ledger(self.name, _ENTRIES, block_bytes=_BLOCK_BYTES)
        self.data = bytearray(objects[self.name.data_name])
        self.index = bytearray(objects[self.name.index_name])

    def open(self, **options: Any) -> OffloadedLedger:  # noqa: ANN401
        """The ledger as it is now."""
        self.bucket.put(
            {self.name.data_name: bytes(self.data), self.name.index_name: bytes(self.index)}
        )
        return OffloadedLedger.open(Location(self.bucket.url), self.name, **options)

    def read(self, first: int = 0, last: int = 4) -> list[tuple[int, bytes]]:
        """Ids and values of entries."""
        return [
            (entry.entry_id, entry.data[-50 - entry.entry_id :])
            for entry in self.open().read_entries(first, last)
        ]

    def salvage(self) -> tuple[list[tuple[int, bytes]], ReadMetrics]:
        """Ids and values of what can be saved."""
        tally = Tally(salvage=True)
        batches = self.open().record_batches(["__entry_id__", "__value__"], tally=tally)
        rows = [row for batch in batches for row in rows_of(batch)]
        return [(row["__entry_id__"], row["__value__"]) for row in rows], tally.metrics

    def assert_lost(
        self,
        error: type[PulsarOffloadError],
        *entry_ids: int,
        match: str,
        offset: int | None = None,
    ) -> None:
        """Reads raise the error at the first entry lost; salvaging loses these and no other."""
        with pytest.raises(error, match=match) as caught:
            self.read()
        assert type(caught.value) is error
        assert caught.value.object_key == self.name.data_name
        assert caught.value.ledger_id == 7
        assert caught.value.entry_id == entry_ids[0]
        if offset is not None:
            assert caught.value.offset == offset
        rows, metrics = self.salvage()
        assert rows == [(n, value) for n, value in _ALL if n not in entry_ids]
        assert metrics.lost == {(Unit.ENTRY, error.__name__): len(entry_ids)}
        assert metrics.losses == [str(caught.value)]


@pytest.fixture
def damaged() -> Iterator[Damaged]:
    """A sound ledger with the entries 0 … 4 in blocks of two."""
    with memory_bucket({}) as bucket:
        yield Damaged(bucket)


def test_ledger_is_sound_before_it_is_damaged(damaged: Damaged) -> None:
    """Three blocks, and each entry, by itself and with the others."""
    index = damaged.open().index

    assert [index.first_entry_id(block) for block in range(3)] == [0, 2, 4]
    assert damaged.read() == _ALL
    for first in range(5):
        for last in range(first, 5):
            assert damaged.read(first, last) == _ALL[first : last + 1]
    assert damaged.salvage() == (_ALL, ReadMetrics(rows=5, entries=5))


@pytest.mark.parametrize(
    ("is_index_deleted", "message"),
    [(False, "but its index object exists"), (True, "both objects of the ledger were deleted")],
)
def test_missing_data_object_is_an_error(
    damaged: Damaged, message: str, *, is_index_deleted: bool
) -> None:
    """A read raises it, not opening; the message tells whether the index object exists."""
    ledger = damaged.open()
    damaged.bucket.delete(damaged.name.data_name)
    if is_index_deleted:
        damaged.bucket.delete(damaged.name.index_name)

    with pytest.raises(MissingObjectError, match=message) as caught:
        list(ledger.read_entries(0, 4))

    assert (caught.value.object_key, caught.value.ledger_id) == (damaged.name.data_name, 7)


def test_missing_index_object_is_an_error(damaged: Damaged) -> None:
    """It names object and ledger."""
    damaged.open()
    damaged.bucket.delete(damaged.name.index_name)

    with pytest.raises(MissingObjectError) as caught:
        OffloadedLedger.open(Location(damaged.bucket.url), damaged.name)

    assert (caught.value.object_key, caught.value.ledger_id) == (damaged.name.index_name, 7)


def test_cut_data_object_loses_what_is_cut(damaged: Damaged) -> None:
    """Without the length, the entries before the cut are read, and the others are missed."""
    del damaged.data[_BLOCK_BYTES + _HEADER + 5 :]

    with pytest.raises(TruncatedObjectError) as caught:
        damaged.read()
    assert (caught.value.ledger_id, caught.value.offset) == (7, len(damaged.data))
    assert damaged.read(0, 1) == _ALL[:2]
    rows, metrics = damaged.salvage()
    assert rows == _ALL[: len(rows)]
    assert metrics.lost == {(Unit.ENTRY, "TruncatedObjectError"): 5 - len(rows)}


def test_longer_data_object_is_read_with_a_warning(damaged: Damaged) -> None:
    """What stands behind the end that the index gives is no part of the ledger."""
    size = len(damaged.data)
    damaged.data += b"what is this?"

    ledger = damaged.open(data_size_bytes=len(damaged.data))

    assert (
        f"the data object has {size + 13} bytes, its index object says {size}" in ledger.warnings[0]
    )
    assert damaged.read() == _ALL


def test_block_of_another_ledger_is_an_error(damaged: Damaged) -> None:
    """A header that says another first entry is not this ledger's block."""
    struct.pack_into(">q", damaged.data, _BLOCK_BYTES + 20, 3)

    damaged.assert_lost(
        CorruptBlockError,
        2,
        3,
        match="first entry id is 3 in the block header, but 2 in the index block",
        offset=_BLOCK_BYTES + 20,
    )


@pytest.mark.parametrize("magic", [0xDEADBEEF, 0x26A66D32])
def test_block_of_another_format_is_an_error(damaged: Damaged, magic: int) -> None:
    """Unknown magics, and those of streaming offload."""
    struct.pack_into(">I", damaged.data, _BLOCK_BYTES, magic)

    damaged.assert_lost(UnknownFormatError, 2, 3, match="magic")


def test_padding_in_place_of_an_entry_is_an_error(damaged: Damaged) -> None:
    """The index says that the entry is there."""
    at = _BLOCK_BYTES + _HEADER + _FRAME + len(_ENTRIES[2])
    length = _FRAME + len(_ENTRIES[3])
    damaged.data[at : at + length] = (b"\xfe\xdc\xde\xad" * length)[:length]

    damaged.assert_lost(CorruptBlockError, 3, match="padding or the next block", offset=at)


def test_another_entry_id_is_an_error(damaged: Damaged) -> None:
    """Ids in a block go up by one."""
    at = _BLOCK_BYTES + _HEADER
    struct.pack_into(">q", damaged.data, at + 4, 3)

    damaged.assert_lost(CorruptBlockError, 2, 3, match="another entry id", offset=at)


@pytest.mark.parametrize("length", [10_000, 2**31 - 1])
def test_entry_that_is_longer_than_its_block_is_an_error(damaged: Damaged, length: int) -> None:
    """Nothing is requested or allocated on its word."""
    at = _BLOCK_BYTES + _HEADER
    struct.pack_into(">i", damaged.data, at, length)

    damaged.assert_lost(CorruptBlockError, 2, 3, match="the block ends before entry 2", offset=at)


def test_shorter_entry_loses_the_next_one(damaged: Damaged) -> None:
    """Behind a length that is wrong, the next entry cannot be found."""
    at = _BLOCK_BYTES + _HEADER
    struct.pack_into(">i", damaged.data, at, len(_ENTRIES[2]) - 8)

    with pytest.raises(CorruptBlockError):
        damaged.read()
    rows, metrics = damaged.salvage()
    assert [n for n, _ in rows] == [0, 1, 4]
    assert sum(metrics.lost.values()) >= 1


def test_entries_that_are_not_in_the_index_are_told(damaged: Damaged) -> None:
    """An index that ends too early would lose entries silently: padding must follow the last."""
    metadata = new_ledger_metadata(
        [len(entry) for entry in _ENTRIES[:4]], managed_ledger=MANAGED_LEDGER, ctime_ms=0
    )
    one_block = encode_ledger(_ENTRIES, _metadata(5), block_bytes=1 << 20).data
    damaged.data = bytearray(one_block)
    damaged.index = bytearray(
        write_index_block(
            data_object_length_bytes=len(one_block),
            entries=[BlockEntry(0, 1, 0)],
            ledger_metadata=metadata,
        )
    )

    with pytest.raises(CorruptBlockError, match="the data after the last entry of a block is not"):
        list(damaged.open().read_entries(0, 3))


def _metadata(count: int) -> Any:  # noqa: ANN401
    lengths = [len(entry) for entry in _ENTRIES[:count]]
    return new_ledger_metadata(lengths, managed_ledger=MANAGED_LEDGER, ctime_ms=0)


def test_other_length_of_the_ledger_is_an_error(damaged: Damaged) -> None:
    """The entries together have the length that the ledger had, or something is missing."""
    metadata = replace(_metadata(5), length_bytes=_metadata(5).length_bytes - 1)
    index = damaged.open().index
    damaged.index = bytearray(
        write_index_block(
            data_object_length_bytes=len(damaged.data),
            entries=index.entries,
            ledger_metadata=metadata,
        )
    )

    with pytest.raises(CorruptIndexError, match="the ledger had") as caught:
        damaged.read()
    assert (caught.value.object_key, caught.value.ledger_id) == (damaged.name.index_name, 7)
    assert damaged.read(0, 3) == _ALL[:4]
    rows, metrics = damaged.salvage()
    assert rows == _ALL
    assert metrics.lost == {(Unit.LEDGER, "CorruptIndexError"): 1}


def _lose_from(damaged: Damaged, first_lost: int) -> None:
    """What Pulsar's offloader does with an entry that is larger than a block: it stops there."""
    rows = [BlockEntry(0, 1, 0)]
    damaged.data.clear()
    if first_lost:
        damaged.data += encode_ledger(_ENTRIES[:first_lost], _metadata(first_lost)).data
        rows.append(BlockEntry(first_lost, 2, len(damaged.data)))
    damaged.index = bytearray(
        write_index_block(
            data_object_length_bytes=len(damaged.data), entries=rows, ledger_metadata=_metadata(5)
        )
    )


@pytest.mark.parametrize("first_lost", [0, 1, 3, 4])
def test_entries_that_the_offloader_lost_are_named(damaged: Damaged, first_lost: int) -> None:
    """Those before are read; for the others there is an error, or their number when salvaging."""
    _lose_from(damaged, first_lost)

    damaged.assert_lost(MissingEntriesError, *range(first_lost, 5), match="the offloader lost")
    if first_lost:
        assert damaged.read(0, first_lost - 1) == _ALL[:first_lost]
    for entry_id in range(first_lost, 5):
        with pytest.raises(MissingEntriesError) as caught:
            damaged.read(entry_id, entry_id)
        assert caught.value.entry_id == entry_id
    assert list(damaged.open().data.entry_runs(5, 4, Tally())) == []
