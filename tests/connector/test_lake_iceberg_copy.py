"""Copies to Iceberg tables have the rows of a batch read, and go on where they were stopped."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from connector import copy_topics, open_topic, register_duckdb
from connector.lake.copy_plan import CopySizes
from connector.tables import iceberg
from connector.tables.evolution import fit_rows, storable_schema
from tests.support.golden import golden_topic
from tests.support.lake_copies import (
    COLUMNS,
    SCHEMA,
    batch_rows,
    in_order,
    sound_rows,
    write_topic,
)
from tests.support.stopped_iceberg import Killed, WatchedCatalog, watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask
    from tests.support.buckets import MemoryBucket
    from tests.support.grids import Grid

_NAME: Final = "shop.orders"
_GOLDEN: Final = [
    "persistent://public/default/json-orders",
    "persistent://public/default/avro-evolved",
    "persistent://public/default/avro-logical",
    "persistent://public/default/protobuf-native",
    "persistent://public/default/kv-json-inline",
    "persistent://public/default/chunked",
    "persistent://public/default/transactions",
    "persistent://public/default/time",
]
_POSITION: Final = ["__ledger_id__", "__entry_id__", "__batch_index__"]
_SMALL: Final = CopySizes(task_bytes=1, commit_bytes=1)


@pytest.fixture(name="catalog")
def _catalog(tmp_path: Path) -> Iterator[WatchedCatalog]:
    """The catalog that copies find by `_options`."""
    catalog = WatchedCatalog(tmp_path)
    yield catalog
    catalog.close()


def _options(folder: Path) -> dict[str, str]:
    return {
        "catalog": "lake",
        "type": "sql",
        "uri": f"sqlite:///{folder}/lake.db",
        "warehouse": f"file://{folder}/lake",
    }


def _one_by_one(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
    return map(write, tasks)


def _table(catalog: WatchedCatalog, name: str = _NAME) -> pa.Table:
    table = catalog.load_table(name).scan().to_arrow()
    return table.cast(storable_schema(table.schema, "iceberg"))


@pytest.mark.parametrize("name", _GOLDEN, ids=lambda name: name.rpartition("/")[2])
def test_a_table_equals_a_batch_read(name: str, catalog: WatchedCatalog, tmp_path: Path) -> None:
    """Of golden topics, copied in the smallest commits."""
    topic = golden_topic(name)
    options: dict[str, Any] = {"columns": [*_POSITION, "*"], "time_unit": "us"}
    schemas = topic.folder / "schemas-rest.json"
    options |= {"schema": str(schemas)} if schemas.exists() else {"value": "raw"}

    [summary] = copy_topics(
        str(topic.objects_folder),
        name,
        _NAME,
        format="iceberg",
        table_options=_options(tmp_path),
        sizes=_SMALL,
        **options,
    )

    expected = open_topic(str(topic.objects_folder), name, **options).to_table()
    assert summary.rows == expected.num_rows
    schema = storable_schema(expected.schema, "iceberg")
    table = catalog.load_table(_NAME)
    assert storable_schema(table.schema().as_arrow(), "iceberg") == schema
    [batch] = expected.combine_chunks().to_batches()
    # PyIceberg itself takes a null list of structs for an empty one.
    with mock.patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):
        found = pl.scan_iceberg(table).collect()
    assert_frame_equal(
        found.sort(_POSITION), pl.DataFrame(fit_rows(batch, schema, "iceberg")).sort(_POSITION)
    )


def _copy(bucket: MemoryBucket, folder: Path, **options: Any) -> int:  # noqa: ANN401
    """Copy what is new, and say how many rows that was."""
    given = {"topic": "orders", "target": _NAME, "schema": SCHEMA} | options
    summaries = copy_topics(bucket.url, format="iceberg", table_options=_options(folder), **given)
    return sum(each.rows for each in summaries)


def test_each_run_copies_what_is_new(
    bucket: MemoryBucket, catalog: WatchedCatalog, tmp_path: Path
) -> None:
    """A run without news makes no commit; the next goes on behind it; engines agree on the rows."""
    by = {"partition_by": ["day(__publish_time__)", "bucket(4, __key__)"]}
    write_topic(bucket.url, range(10))
    assert _copy(bucket, tmp_path, **by) == 10
    assert _copy(bucket, tmp_path, **by) == 0
    assert len(catalog.load_table(_NAME).snapshots()) == 1
    write_topic(bucket.url, range(10, 25), append=True)
    assert _copy(bucket, tmp_path) == 15

    assert in_order(_table(catalog).select(list(COLUMNS))) == batch_rows(bucket.url)
    sums = "select count(*), sum(number), count(country), max(__publish_time__) from"
    with duckdb.connect() as connection:
        register_duckdb(connection)
        catalog.load_table(_NAME).scan().to_duckdb("copied", connection)
        of_topic = f"{sums} read_pulsar('orders', url := ?, schema := ?)"
        expected = connection.execute(of_topic, [bucket.url, json.dumps(SCHEMA)]).fetchall()
        assert connection.execute(f"{sums} copied").fetchall() == expected


def test_dead_letters(bucket: MemoryBucket, catalog: WatchedCatalog, tmp_path: Path) -> None:
    """Values that cannot be decoded are in a table beside it."""
    write_topic(bucket.url, range(20), with_odd=True)
    rows, dead = sound_rows(bucket.url)

    assert _copy(bucket, tmp_path, dead_letters=True) == len(rows)

    assert in_order(_table(catalog).select(list(COLUMNS))) == rows
    letters = in_order(_table(catalog, f"{_NAME}_dead_letters"))
    assert [each["__value__"] for each in letters] == dead


def test_a_place_of_its_own(bucket: MemoryBucket, catalog: WatchedCatalog, tmp_path: Path) -> None:
    """A new table lies where the options say."""
    write_topic(bucket.url, range(3))
    options = _options(tmp_path) | {"location": str(tmp_path / "elsewhere")}

    copy_topics(bucket.url, "orders", _NAME, format="iceberg", table_options=options, schema=SCHEMA)

    assert catalog.load_table(_NAME).location() == f"file://{tmp_path}/elsewhere"
    assert (tmp_path / "elsewhere" / "data").is_dir()


def test_killed_at_each_request(bucket: MemoryBucket, grid: Grid, tmp_path: Path) -> None:
    """A copy that is killed at any request to the catalog, or for metadata, is gone on with."""
    write_topic(bucket.url, range(8))
    by = {"sizes": _SMALL, "executor": _one_by_one, "partition_by": ["country"]}
    rows = batch_rows(bucket.url)
    steps = grid.steps()
    for step in steps:
        folder = tmp_path / str(step)
        folder.mkdir()
        catalog = WatchedCatalog(folder)

        def kill(number: int, step: int = step) -> None:
            if number + 1 >= step:
                raise Killed

        with mock.patch.object(iceberg, "load_catalog", return_value=catalog):
            try:
                with watched(kill):
                    _copy(bucket, folder, **by)
            except Killed:
                _copy(bucket, folder, **by)
            else:
                steps.passed()
        assert in_order(_table(catalog).select(list(COLUMNS))) == rows, step
        assert len(catalog.load_table(_NAME).snapshots()) == 2
        catalog.close()
    assert steps.count > 20
