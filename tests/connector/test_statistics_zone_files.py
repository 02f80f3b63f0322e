"""A file of statistics is as it was written, or is not used; and each part can be read alone."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptStatisticsError, TruncatedObjectError
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector.statistics import zone_files
from connector.statistics.zone_files import ZoneFile, encode_zone_file
from connector.statistics.zones import EARLIER_ZONE_SCHEMA, LEDGER_SCHEMA, ZONE_SCHEMA
from tests.support.buckets import memory_bucket
from tests.support.damage import flipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.grids import Grid


def _zones(count: int, *, topic: str = "orders", key_bytes: int = 64) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "topic": f"{topic}-{number // 10}",
                "ledger_id": number,
                "first_entry_id": 0,
                "last_entry_id": number,
                "start": 0,
                "stop": 9,
                "messages": number,
                "schema_versions": [None, number],
                "transactions": [{"txn_id": f"(0,{number})", "first_entry_id": number}],
                "keys": number.to_bytes(8) * (key_bytes // 8),
            }
            for number in range(count)
        ],
        ZONE_SCHEMA,
    )


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few rows have many pieces and row groups."""
    monkeypatch.setattr(zone_files, "_PIECE_BYTES", 512)
    monkeypatch.setattr(zone_files, "_ROW_GROUP_ROWS", 16)


def _opened(url: str, name: str, data: bytes) -> ZoneFile:
    return ZoneFile(Location(url, trace=RequestTrace()), name, len(data))


def _read_all(file: ZoneFile) -> pa.Table:
    assert file.ledgers.schema == LEDGER_SCHEMA
    return file.zones(range(file.footer.num_row_groups), ZONE_SCHEMA.names)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("count", [1, 15, 16, 17, 60])
def test_what_was_written_is_read(count: int) -> None:
    """Whole, and any columns of any row groups alone."""
    table = _zones(count)
    name, data = encode_zone_file(table)
    assert ZoneFile.is_file_name(name)
    with memory_bucket({name: data}) as bucket:
        file = _opened(bucket.url, name, data)
        groups = file.footer.num_row_groups
        assert groups == -(-count // 16)
        assert _read_all(file).equals(table)
        for group in range(groups):
            columns = ["messages", "schema_versions", "transactions"]
            expected = table.slice(16 * group, 16).select(columns)
            assert file.zones([group], columns).equals(expected)
        assert file.zones([], ["topic"]).num_rows == 0


def test_file_without_stamps_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of earlier releases lack the columns; their values are null."""
    table = _zones(5)
    monkeypatch.setattr(zone_files, "ZONE_SCHEMA", EARLIER_ZONE_SCHEMA)
    name, data = encode_zone_file(table.select(EARLIER_ZONE_SCHEMA.names))
    monkeypatch.undo()
    with memory_bucket({name: data}) as bucket:
        assert _read_all(_opened(bucket.url, name, data)).equals(table)


@pytest.mark.usefixtures("small_pieces")
def test_only_what_is_asked_for_is_requested() -> None:
    """A column of a row group takes the pieces that it stands in, not those of the filters."""
    name, data = encode_zone_file(_zones(60, key_bytes=1 << 14))
    with memory_bucket({name: data}) as bucket:
        file = _opened(bucket.url, name, data)
        assert file.footer.num_row_groups == 4
        before = file.location.trace.counts.received_bytes
        file.zones([1], ["topic", "messages"])
        assert file.location.trace.counts.received_bytes - before < 3000 < len(data)


def _damaged_forms(data: bytes, other: bytes, grid: Grid) -> Iterator[tuple[str, bytes]]:
    """Bytes that are not those that were written."""
    for at in grid.of(range(len(data)), count=150):
        yield f"flipped at {at}", flipped(data, at, 0x10)
    for at in grid.of(range(len(data)), count=24):
        yield f"cut at {at}", data[:at]
        yield f"without {at}", data[:at] + data[at + 1 :]
        yield f"twice from {at}", data[: at + 40] + data[at:]
        yield f"other behind {at}", data[:at] + other[at:]
        yield f"other before {at}", other[:at] + data[at:]
        yield f"zeroes at {at}", data[:at] + bytes(len(data[at : at + 99])) + data[at + 99 :]
    yield "longer", data + b"x"
    yield "other", other


@pytest.mark.usefixtures("small_pieces")
def test_no_damage_goes_unnoticed(grid: Grid) -> None:
    """Whatever becomes of the bytes: what was written, or the typed error."""
    table = _zones(40)
    name, data = encode_zone_file(table)
    _, other = encode_zone_file(_zones(41))
    noticed = 0
    with memory_bucket({}) as bucket:
        for what, damaged in _damaged_forms(data, other, grid):
            bucket.put({name: damaged})
            try:
                found = _read_all(_opened(bucket.url, name, damaged))
            except CorruptStatisticsError:
                noticed += 1
            else:
                assert damaged == data or found.equals(table), what
    assert noticed > 200


@given(
    rows=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=12, unique=True),
    ids=st.lists(st.integers(-1, 22), unique=True).map(sorted),
)
def test_ledgers_are_found_by_topic_and_id(rows: list[tuple[str, int]], ids: list[int]) -> None:
    """In whatever order they stand, as looking at each of them finds them; in that order."""
    topics = [topic for topic, _ in rows]
    numbers = [number for _, number in rows]
    table = pa.table({"topic": pa.array(topics, pa.string()), "ledger_id": pa.array(numbers)})
    if not rows:
        table = table.cast(pa.schema([("topic", pa.string()), ("ledger_id", pa.int64())]))
    file = ZoneFile(Location("memory://nothing"), "zones", 0)
    vars(file)["ledgers"] = table
    for topic in ("a", "b", "c"):
        mine = [each for each in rows if each[0] == topic]
        for wanted in (None, ids, [], list(range(30))):
            found = file.ledgers_of(topic, wanted)
            assert list(zip(*found.to_pydict().values(), strict=True)) == [
                each for each in mine if wanted is None or each[1] in wanted
            ]


def _named(footer: bytes) -> str:
    """The name of a file that has this footer."""
    return f"zones-{zone_files._hash(footer)}-{len(footer):x}.parquet"


def _parquet(table: pa.Table, **metadata: str) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata)
    return sink.getvalue()


_PIECES: Final = {"pulsar_offload.pieces": "[]", "pulsar_offload.data_bytes": "99"}


@pytest.mark.parametrize(
    "table_and_metadata",
    [
        (pa.table({"a": [1]}), {}),
        (pa.table({"a": [1]}), _PIECES),
        (_zones(2), {}),
        (_zones(2), _PIECES),
        (_zones(2), _PIECES | {"pulsar_offload.pieces": "no JSON"}),
        (_zones(2), _PIECES | {"pulsar_offload.pieces": "7"}),
        (_zones(2), _PIECES | {"pulsar_offload.data_bytes": "many"}),
        (_zones(2).drop_columns(["keys"]), _PIECES),
    ],
)
def test_files_of_others_are_not_used(table_and_metadata: tuple[pa.Table, dict[str, str]]) -> None:
    """Not even if they are named as one of ours would be: the error is typed."""
    table, metadata = table_and_metadata
    data = _parquet(table, **metadata)
    name = _named(data[4:])
    with memory_bucket({name: data}) as bucket, pytest.raises(CorruptStatisticsError):
        _read_all(_opened(bucket.url, name, data))


@pytest.mark.parametrize(
    "name", ["notes.txt", "zones.parquet", "zones-00-1.parquet", "x-zones-.parquet"]
)
def test_other_names_are_those_of_other_files(name: str) -> None:
    """They are not looked at."""
    assert not ZoneFile.is_file_name(name)
    with memory_bucket({name: b""}) as bucket, pytest.raises(CorruptStatisticsError):
        _opened(bucket.url, name, b"").footer  # noqa: B018


def test_footers_of_no_believable_length_are_not_read() -> None:
    """A name may say anything of a length."""
    name, data = encode_zone_file(_zones(2))
    for length in ("0", "ffffffff", f"{len(data) + 1:x}"):
        other = re.sub(r"-[0-9a-f]+\.parquet", f"-{length}.parquet", name)
        with memory_bucket({other: data}) as bucket, pytest.raises(CorruptStatisticsError):
            _opened(bucket.url, other, data).footer  # noqa: B018


@pytest.mark.usefixtures("small_pieces")
def test_files_that_end_early_are_no_endless_loop() -> None:
    """A file that became shorter than it was listed is an error."""
    name, data = encode_zone_file(_zones(40))
    with memory_bucket({name: data}) as bucket:
        file = _opened(bucket.url, name, data)
        assert file.footer.num_rows == 40
        bucket.put({name: data[:600]})
        with pytest.raises((CorruptStatisticsError, TruncatedObjectError)):
            _read_all(file)
