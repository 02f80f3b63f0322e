"""Whatever stops a copy to an Iceberg table, or runs beside it: each row is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from arrow_io.errors import ConcurrentCopyError, StorageError
from connector.tables.iceberg import IcebergTable
from connector.tables.table import Commit
from connector.tables.transforms import Partitioning
from tests.support.lake_tables import staged
from tests.support.stopped_iceberg import Killed, WatchedCatalog, watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.grids import Grid

_NAME: Final = "shop.orders"
_FIRST: Final = pa.record_batch({"n": pa.array([1, 2], pa.int32())})
_PLAIN: Final = (_FIRST, pa.record_batch({"n": pa.array([3], pa.int32())}))
"""What a topic has; each record batch makes a commit."""
_WIDENING: Final = (_FIRST, pa.record_batch({"n": pa.array([3], pa.int64()), "new": ["x"]}))
"""The same rows, the last of which widens the table."""
_ROWS: Final = [1, 2, 3]


@pytest.fixture(name="catalog")
def _catalog(tmp_path: Path) -> Iterator[WatchedCatalog]:
    catalog = WatchedCatalog(tmp_path)
    yield catalog
    catalog.close()


def _run(
    catalog: WatchedCatalog,
    increments: Sequence[pa.RecordBatch] = _PLAIN,
    partition_by: Sequence[str] = (),
) -> None:
    """Copy what is new, increment by increment, as every run does."""
    table = IcebergTable(catalog, _NAME)
    while True:
        standing = table.read_state()
        before = None if standing is None else standing.progress
        number = int(before or 0)
        if number == len(increments):
            return
        commit = staged(table, standing, increments[number], str(number + 1), partition_by)
        table.commit(commit, standing)


def _rows(catalog: WatchedCatalog) -> list[int]:
    return sorted(catalog.load_table(_NAME).scan().to_arrow()["n"].to_pylist())


def _requests_of_a_run(folder: Path) -> int:
    folder.mkdir()
    catalog = WatchedCatalog(folder)
    with watched(lambda _: None) as requests:
        _run(catalog)
        count = requests.count
    assert _rows(catalog) == _ROWS
    catalog.close()
    return count


def _folders(tmp_path: Path, grid: Grid) -> Iterator[tuple[int, Path]]:
    """For each request of a run that is tried its number, and an empty folder."""
    count = _requests_of_a_run(tmp_path / "whole")
    assert count > 15
    for number in grid.of(range(count)):
        folder = tmp_path / str(number)
        folder.mkdir()
        yield number, folder


def test_killed_at_each_request(grid: Grid, tmp_path: Path) -> None:
    """A run that is killed, at whatever request, is gone on with by the next."""
    for stop, folder in _folders(tmp_path, grid):

        def kill(number: int, stop: int = stop) -> None:
            if number >= stop:
                raise Killed

        catalog = WatchedCatalog(folder)
        with pytest.raises(Killed), watched(kill):
            _run(catalog, _WIDENING, ["bucket(2, n)"])
        catalog.close()

        catalog = WatchedCatalog(folder)
        _run(catalog, _WIDENING, ["bucket(2, n)"])
        assert _rows(catalog) == _ROWS, stop
        catalog.close()


def test_each_request_fails(grid: Grid, tmp_path: Path) -> None:
    """A request that fails, or whose answer is lost, is told, and never makes a row twice."""
    for stop, folder in _folders(tmp_path, grid):

        def fail(number: int, stop: int = stop) -> None:
            if number == stop:
                message = "the network is down"
                raise OSError(message)

        catalog = WatchedCatalog(folder)
        with pytest.raises(StorageError, match="the network is down"), watched(fail):
            _run(catalog)

        _run(catalog)
        assert _rows(catalog) == _ROWS, stop
        catalog.close()


def test_another_run_at_each_request(grid: Grid, tmp_path: Path) -> None:
    """Of two runs at a time one wins and the other says so, whenever the other comes between."""
    runs = told = 0
    for stop, folder in _folders(tmp_path, grid):
        runs += 1
        catalog = WatchedCatalog(folder)

        def run_another(number: int, stop: int = stop, catalog: WatchedCatalog = catalog) -> None:
            if number == stop:
                _run(catalog)

        with watched(run_another):
            try:
                _run(catalog)
            except ConcurrentCopyError:
                told += 1
        assert _rows(catalog) == _ROWS, stop
        catalog.close()
    assert told > runs / 2


def test_another_writer_at_each_request(grid: Grid, tmp_path: Path) -> None:
    """Rows that another program adds, whenever it does, stay beside those of the copy."""
    for stop, folder in _folders(tmp_path, grid):
        catalog = WatchedCatalog(folder)
        added: list[int] = []

        def add(
            number: int,
            stop: int = stop,
            catalog: WatchedCatalog = catalog,
            added: list[int] = added,
        ) -> None:
            if number == stop and catalog.table_exists(_NAME):
                columns = catalog.load_table(_NAME).schema().as_arrow()
                rows = pa.RecordBatch.from_pylist([{"n": 9}], columns)
                catalog.load_table(_NAME).append(pa.Table.from_batches([rows]))
                added.append(9)

        with watched(add):
            _run(catalog)
        assert _rows(catalog) == sorted([*_ROWS, *added]), stop
        catalog.close()


def test_a_commit_that_was_made_after_all(catalog: WatchedCatalog) -> None:
    """A commit that is said to have failed, and is found in the table, is not made again."""
    commit_table = catalog.commit_table

    def lie(*args: Any) -> None:  # noqa: ANN401 - those of the catalog
        commit_table(*args)
        message = "somebody was quicker"
        raise CommitFailedException(message)

    with mock.patch.object(catalog, "commit_table", lie):
        _run(catalog)

    assert _rows(catalog) == _ROWS
    assert len(catalog.load_table(_NAME).snapshots()) == len(_PLAIN)


def test_others_are_always_quicker(catalog: WatchedCatalog) -> None:
    """A commit that others are quicker than each time is given up, and says so."""
    _run(catalog, _PLAIN[:1])
    error = CommitFailedException("somebody was quicker")

    with (
        mock.patch.object(catalog, "commit_table", side_effect=error) as commit_table,
        pytest.raises(StorageError, match=r"writers committed to the Iceberg table shop\.orders"),
    ):
        _run(catalog)

    assert commit_table.call_count == 10
    _run(catalog)
    assert _rows(catalog) == _ROWS


def test_a_table_that_is_dropped_meanwhile(catalog: WatchedCatalog) -> None:
    """A table that was dropped has no progress, so a commit behind it is refused."""
    _run(catalog)
    table = IcebergTable(catalog, _NAME)
    standing = table.read_state()
    assert standing is not None
    catalog.drop_table(_NAME)

    commit = Commit((), standing.schema, standing.partitioning, standing.progress, "3")
    with pytest.raises(ConcurrentCopyError):
        table.commit(commit, standing)


def test_columns_without_numbers(catalog: WatchedCatalog) -> None:
    """Files whose columns have no numbers would read as null, and are refused."""
    table = IcebergTable(catalog, _NAME)
    _run(catalog)
    standing = table.read_state()
    schema = pa.schema({"n": pa.int32()})

    with pytest.raises(ConcurrentCopyError, match=r"column n of .* changed during the copy"):
        table.commit(Commit((), schema, Partitioning(), "2", "3"), standing)
