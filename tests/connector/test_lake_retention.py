"""Retention deletes rows whose age is known and too high, and no others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_io.errors import LakeTableError, OptionError
from arrow_io.storage.location import Location
from connector.lake.maintenance import MaintenanceSettings, maintain
from connector.tables.data_file import DataFile
from connector.tables.parquet import ParquetTable
from connector.tables.state_file import decode_state, encode_state
from connector.tables.table_kinds import KINDS
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_tables import staged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable, MaintainedTable

_EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
_SCHEMA: Final = pa.schema(
    [
        ("__publish_time__", pa.timestamp("us", "UTC")),
        ("n", pa.int64()),
        ("country", pa.string()),
    ]
)


def _numbers(table: LakeTable) -> list[int]:
    numbers: list[int] = sorted(read_back(table)["n"].to_pylist())
    return numbers


@pytest.fixture(name="folder_table", params=KINDS)
def _folder_table(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[LakeTable, TableKind]]:
    with table_in(tmp_path, request.param) as table:
        yield table, request.param


def test_a_table_without_the_column(folder_table: tuple[LakeTable, TableKind]) -> None:
    """Its rows have no age, so `keep` is refused before a file is read."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    state = table.read_state()
    table.commit(staged(table, state, pa.record_batch([[1]], names=["n"]), "1"), state)
    settings = MaintenanceSettings(keep=timedelta(days=1))

    for if_needed in (True, False):
        with pytest.raises(OptionError, match="no column __publish_time__, which keep needs"):
            maintain(table, kind, settings, _EPOCH, if_needed=if_needed)


def test_rows_without_a_time_stay(folder_table: tuple[LakeTable, TableKind]) -> None:
    """They were copied before the table had the column; their age is unknown."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    later = _EPOCH + timedelta(days=9)
    for numbers, times in (([1, 2, 3], [_EPOCH, None, later]), ([4, 5], [_EPOCH, None])):
        state = table.read_state()
        rows = pa.record_batch([times, numbers, ["DE"] * len(numbers)], schema=_SCHEMA)
        table.commit(staged(table, state, rows, str(numbers[-1])), state)

    summary = maintain(table, kind, MaintenanceSettings(keep=timedelta(days=1)), later)

    assert summary.deleted_rows == 2
    assert _numbers(table) == [2, 3, 5]


def test_which_files_are_read(folder_table: tuple[LakeTable, TableKind], tmp_path: Path) -> None:
    """Only those that may have both older and younger rows: bounds of times tell of the others."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    now = _EPOCH + timedelta(days=9)
    for number, ages in enumerate(([9, 8], [7, 1], [2, 0])):
        state = table.read_state()
        times = [now - timedelta(days=each) for each in ages]
        rows = pa.record_batch([times, [number] * 2, ["DE"] * 2], schema=_SCHEMA)
        before = set(tmp_path.rglob("*.parquet"))
        table.commit(staged(table, state, rows, str(number)), state)
        if number != 1:
            [file] = set(tmp_path.rglob("*.parquet")) - before
            file.write_bytes(bytes(file.stat().st_size))
    settings = MaintenanceSettings(keep=timedelta(days=5))

    planned = maintain(table, kind, settings, now, dry_run=True)
    summary = maintain(table, kind, settings, now)

    assert (planned.deleted_rows, summary.deleted_rows) == (4, 3)
    assert maintain(table, kind, settings, now).deleted_rows == 0


@pytest.mark.parametrize("recorded", [3, [], ["x", "y", 0]])
def test_malformed_bounds(recorded: object, tmp_path: Path) -> None:
    """A manifest with other values than times is malformed."""
    table = ParquetTable(Location(str(tmp_path)))
    rows = pa.record_batch([[_EPOCH], [1], ["DE"]], schema=_SCHEMA)
    table.commit(staged(table, None, rows, "1"), None)
    [manifest] = tmp_path.glob("_pulsar_offload/*.json")
    content = decode_state(manifest.read_bytes(), 1, {})
    content["files"][0]["times"] = {"__publish_time__": recorded}
    manifest.write_bytes(encode_state(1, content))

    with pytest.raises(LakeTableError, match="cannot be read"):
        maintain(table, "parquet", MaintenanceSettings(keep=timedelta()), _EPOCH)


def test_a_file_without_rows(folder_table: tuple[LakeTable, TableKind], tmp_path: Path) -> None:
    """Others may have written it, or deleted each of its rows."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    rows = pa.record_batch([[_EPOCH], [1], ["DE"]], schema=_SCHEMA)
    table.commit(staged(table, None, rows, "1"), None)
    state = table.read_state()
    assert state is not None
    commit = staged(table, state, rows.slice(0, 0), "2")
    data = tmp_path / "empty"
    pq.write_table(state.schema.empty_table(), data)
    name = f"{table.data_prefix}empty.parquet"
    table.location.write_object(name, data.read_bytes(), user_metadata={})
    file = DataFile(name, data.stat().st_size, 0, ())
    table.commit(replace(commit, files=(file,)), state)

    later = _EPOCH + timedelta(days=9)
    summary = maintain(table, kind, MaintenanceSettings(keep=timedelta(days=1)), later)

    assert summary.deleted_rows == 1
    assert _numbers(table) == []


def test_the_greatest_ages(folder_table: tuple[LakeTable, TableKind]) -> None:
    """Nothing is as old."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    table.commit(
        staged(table, None, pa.record_batch([[_EPOCH], [1], ["DE"]], schema=_SCHEMA), "1"), None
    )
    most = timedelta(days=365_000)
    settings = MaintenanceSettings(keep=most, expire_after=most, delete_after=most)

    summary = maintain(table, kind, settings, datetime.now(UTC))

    assert (summary.deleted_rows, summary.expired_versions, summary.deleted_files) == (0, 0, ())
    assert _numbers(table) == [1]


@pytest.mark.parametrize(
    "values",
    [pa.array([[1]]), pa.array([{"x": [1]}])],
)
def test_columns_without_an_order(
    folder_table: tuple[LakeTable, TableKind], values: pa.Array
) -> None:
    """Rows cannot be sorted by a list, nor by a structure that has one."""
    table, kind = cast("MaintainedTable", folder_table[0]), folder_table[1]
    for after in ("1", "2"):
        state = table.read_state()
        rows = pa.record_batch([values], names=["values"])
        table.commit(staged(table, state, rows, after), state)

    with pytest.raises(OptionError, match="cannot be sorted by values"):
        maintain(table, kind, MaintenanceSettings(min_files=2, sort_by=("values",)), _EPOCH)
