"""A folder of statistics: what can be used of it is used, and why the rest is not is told."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from connector import OptionError, UnusedStatisticsWarning, open_topic
from connector.statistics import zone_files
from connector.statistics.store import open_statistics
from connector.statistics.zone_files import encode_zone_file
from connector.statistics.zones import ZONE_SCHEMA
from tests.support.buckets import TOPIC, MemoryBucket, memory_bucket, offload
from tests.support.damage import flipped
from tests.support.entries import Message, encode_entry
from tests.support.expected import COLUMNS, time_of
from tests.support.model_store import ModelBucket
from tests.support.reading import read
from tests.support.statistics import analyzed, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.scan.topic_read import Pruning
    from connector.scan.topic_scan import Scan
    from tests.support.grids import Grid

_FIRST_MS: Final = 1_700_000_000_000
_WANTED: Final = (pc.field("__key__") == "key-7") & (
    pc.field("__publish_time__") >= time_of(_FIRST_MS + 3)
)


def _entry(number: int) -> bytes:
    message = Message(payload=b"value", partition_key=f"key-{number}")
    return encode_entry([message], batched=False, publish_time=_FIRST_MS + number)


def _objects() -> dict[str, bytes]:
    """A topic of two ledgers with the keys 0 to 11, published in their order."""
    return offload([(3, [*map(_entry, range(6))]), (4, [*map(_entry, range(6, 12))])])


def _scan(url: str, folder: str | None, wanted: pc.Expression = _WANTED) -> Scan:
    return open_topic(url, TOPIC, columns=COLUMNS, statistics=folder).scan.where(wanted)


def _skipped(scan: Scan) -> Pruning:
    [topic_read] = scan.reads()
    return topic_read.pruning


def _files(folder: MemoryBucket) -> dict[str, bytes]:
    location = open_statistics(folder.url).location
    return {
        each.name: location.read_object(each.name, max_bytes=1 << 20).data
        for each in location.list_objects()
    }


def _damaged_forms(files: dict[str, bytes], grid: Grid) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Folders in which something became of the files."""
    (name, data), (_, other) = files.items()
    rest = {each: bytes_ for each, bytes_ in files.items() if each != name}
    for at in grid.of(range(len(data)), count=40):
        yield f"flipped at {at}", rest | {name: flipped(data, at, 1 + at % 255)}
    for at in grid.of(range(0, len(data), 40), count=10):
        yield f"cut at {at}", rest | {name: data[:at]}
        yield f"a range twice at {at}", rest | {name: data[:at] + data[at : at + 300] + data[at:]}
        yield f"a range gone at {at}", rest | {name: data[:at] + data[at + 300 :]}
        yield f"mixed at {at}", rest | {name: data[:at] + other[at:]}
    yield "renamed", rest | {f"zones-{'0' * 32}{name[38:]}": data}
    yield "exchanged", dict(zip(files, [other, data], strict=True))
    yield "not ours", files | {"notes.txt": b"x", "other.parquet": data, "zones-1.parquet": b""}


def test_damaged_files_are_not_used_and_that_is_told(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever becomes of files, the rows are the same; what is sound of the rest spares reads."""
    monkeypatch.setattr(zone_files, "_PIECE_BYTES", 512)
    objects = _objects()
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        expected = read(_scan(bucket.url, None))
        assert expected.num_rows == 1
        for ledger_id in (3, 4):
            analyzed(bucket.url, TOPIC, folder.url, ledger_ids=[ledger_id])
        files = _files(folder)
        assert len(files) == 2
        told = 0
        for what, changed in _damaged_forms(files, grid):
            with memory_bucket(changed) as other:
                scan = _scan(bucket.url, other.url)
                assert read(scan).equals(expected), what
                skipped = _skipped(scan)
                # A part of a file that is not read may be anything; another name is another file.
                assert skipped.problems or skipped.zones == 11, what
                told += bool(skipped.problems)
                assert all("statistics" in each for each in skipped.problems)
        assert told > 40


def test_statistics_of_another_version_are_not_used() -> None:
    """An object that was written anew, with the same name and length, is another object."""
    objects = _objects()
    names = list(objects)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        assert _skipped(_scan(bucket.url, folder.url)).zones == 11
        # All keys of the first ledger are others now.
        bucket.put({names[0]: objects[names[0]].replace(b"key-5", b"key-7")})
        scan = open_topic(
            bucket.url, TOPIC, statistics=folder.url, verify_checksums=False
        ).scan.where(_WANTED)
        skipped = _skipped(scan)
        rows = read(scan)

    assert rows["__ledger_id__"].to_pylist() == [3, 4]
    assert (skipped.zones, skipped.unknown_ledgers) == (5, 1)


@pytest.mark.parametrize("tells_times", [True, False])
def test_statistics_of_a_whole_object_are_not_those_of_a_cut_one(tells_times: bool) -> None:
    """Be its version known or not: what is lost of it has to be met."""
    objects = _objects()
    name = next(iter(objects))
    store = ModelBucket(lambda: _FIRST_MS, tells_times=tells_times)
    try:
        for each, data in objects.items():
            store.put(each, data)
        with memory_bucket({}) as folder:
            # Stores of other kinds hold the statistics, and so do folders.
            known = analyzed(store.url, TOPIC, folder.url)
            assert known.files
            store.put(name, objects[name][:-60])
            scan = open_topic(
                store.url, TOPIC, columns=COLUMNS, statistics=folder.url, on_corruption="salvage"
            ).scan.where(_WANTED)
            assert _skipped(scan).unknown_ledgers == 1
    finally:
        store.drop()


def test_files_that_vanish_or_change_are_told() -> None:
    """A folder may be cleaned while it is in use."""
    with memory_bucket(_objects()) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        [(name, data)] = _files(folder).items()
        expected = read(_scan(bucket.url, None))
        for changed in (flipped(data, 9, 0x10), data[: len(data) // 9], b"", None):
            folder.put({name: data})
            scan = _scan(bucket.url, folder.url)
            if changed is None:
                folder.delete(name)
            else:
                folder.put({name: changed})
            assert read(scan).equals(expected)
            assert len(_skipped(scan).problems) == 1
            assert _skipped(scan).zones == 0


def test_filters_of_keys_that_are_damaged_are_told() -> None:
    """What is known besides is used."""
    with memory_bucket(_objects()) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        [(name, data)] = _files(folder).items()
        table = pq.read_table(pa.BufferReader(data))
        # Filters that take many pieces of their own.
        place = ZONE_SCHEMA.get_field_index("keys")
        keys = pa.array([each.as_py() * 4000 for each in table["keys"]], pa.binary())
        grown, data = encode_zone_file(table.set_column(place, "keys", keys))
        chunk = pq.read_metadata(pa.BufferReader(data)).row_group(0)
        last = chunk.column(chunk.num_columns - 1)
        at = last.data_page_offset + last.total_compressed_size - 5
        folder.delete(name)
        folder.put({grown: flipped(data, at, 0x01)})
        scan = _scan(bucket.url, folder.url)
        rows, skipped = read(scan), _skipped(scan)
        expected = read(_scan(bucket.url, None))

    assert rows.equals(expected)
    assert skipped.zones in {0, 3}
    assert len(skipped.problems) == 1


def test_no_folder_is_refused_and_an_empty_one_knows_nothing() -> None:
    """A name that was mistyped is an error; statistics that were not gathered yet are a warning."""
    with memory_bucket(_objects()) as bucket, memory_bucket({"notes.txt": b"x"}) as folder:
        with pytest.warns(UnusedStatisticsWarning, match="there are no statistics in memory://"):
            scan = _scan(bucket.url, folder.url)
        assert read(scan).num_rows == 1
        assert _skipped(scan).unknown_ledgers == 2
        assert not _skipped(scan).problems
        with pytest.raises(OptionError, match=f"there is no folder {folder.url}/nothing"):
            _scan(bucket.url, f"{folder.url}/nothing")


def test_opened_statistics_can_be_pickled() -> None:
    """With the footers that were read."""
    with memory_bucket(_objects()) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        known = open_statistics(folder.url)
        copy = pickle.loads(pickle.dumps(known))
        tables = [[table for _, table in one.ledgers(TOPIC)] for one in (known, copy)]
        rows = [rows_of(one, TOPIC) for one in (known, copy)]

    assert tables[0] == tables[1]
    assert tables[0][0]["zones"].to_pylist() == [6, 6]
    assert rows[0] == rows[1]
