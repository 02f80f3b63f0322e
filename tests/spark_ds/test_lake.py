"""Copies on Spark have the rows of local ones, and go on where those stopped."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import spark_ds
from arrow_io.errors import PayloadDecodeError, PulsarOffloadError
from arrow_io.storage.location import Location
from connector import (
    CopySizes,
    MaintenanceSettings,
    copy_topics,
    open_catalog,
    write_messages,
)
from connector.statistics.store import open_statistics
from connector.tables.delta import DeltaTable
from connector.tables.executors import run_tasks
from connector.tables.iceberg import IcebergTable
from connector.tables.parquet import ParquetTable
from connector.tables.table_kinds import KINDS
from spark_ds.lake import run_work
from tests.spark_ds.queries import frame
from tests.support.debezium import recording
from tests.support.lake_copies import (
    COLUMNS,
    SCHEMA,
    batch_rows,
    in_order,
    letters_target,
    sound_rows,
    write_topic,
)
from tests.support.lake_kinds import read_back, table_in
from tests.support.lake_tables import table_of
from tests.support.latest_rows import catalog_options, check_latest, copy_latest, write_keyed
from tests.support.statistics import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from connector.tables.evolution import TableKind

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
SMALL = CopySizes(task_bytes=1, commit_bytes=1 << 20)
"""A task for each data block."""


def test_either_engine_goes_on_where_the_other_stopped(spark: SparkSession, tmp_path: Path) -> None:
    """A table that was copied to by both has each row once; Spark reads its files."""
    url, target = str(tmp_path / "bucket"), str(tmp_path / "t")
    write_topic(url, range(20))
    [here] = copy_topics(url, "orders", target, format="parquet", schema=SCHEMA)
    write_topic(url, range(20, 50), append=True)
    [there] = spark_ds.copy_topics(
        spark, url, "orders", target, format="parquet", schema=SCHEMA, sizes=SMALL
    )
    write_topic(url, range(50, 53), append=True)
    [again] = copy_topics(url, "orders", target, format="parquet", schema=SCHEMA)

    assert (here.rows, there.rows, again.rows) == (20, 30, 3)
    assert there.files > 1
    table = ParquetTable(Location(target))
    assert in_order(table_of(table).select(list(COLUMNS))) == batch_rows(url)
    paths = [f"{target}/{each.path}" for each in table.files()]
    read = spark.read.parquet(*paths).selectExpr("count(*)", "sum(number)", "count(country)")
    assert read.first() == (53, sum(range(53)), sum(1 for n in range(53) if n % 3 != 1))


def test_executors_learn_in_passing(spark: SparkSession, tmp_path: Path) -> None:
    """Statistics are those that analyzing gives, of ledgers that several tasks read too."""
    url, folder, other = (str(tmp_path / name) for name in ("bucket", "statistics", "other"))
    write_topic(url, range(20), ledger_entries=5, block_bytes=600)
    [done] = spark_ds.copy_topics(
        spark,
        url,
        "orders",
        str(tmp_path / "t"),
        format="parquet",
        schema=SCHEMA,
        sizes=SMALL,
        statistics=folder,
        analyze=True,
    )
    catalog = open_catalog(url)
    [topic] = catalog.topics()

    assert done.files > done.analyzed_ledgers == len(catalog.analyze(other)) == 2
    found, expected = (rows_of(open_statistics(each), str(topic)) for each in (folder, other))
    assert found == expected


def test_dead_letters_and_partitions_come_from_executors(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Both tables equal those of a copy without Spark."""
    url, target = str(tmp_path / "bucket"), str(tmp_path / "t")
    write_topic(url, range(30), with_odd=True)
    spark_ds.copy_topics(
        spark,
        url,
        "orders",
        target,
        schema=SCHEMA,
        partition_by=["country"],
        dead_letters=True,
        sizes=SMALL,
    )
    rows, dead = sound_rows(url)
    found = in_order(table_of(DeltaTable(Location(target))).select(list(COLUMNS)))
    assert found == rows
    letters = in_order(table_of(DeltaTable(Location(letters_target(target)))))
    assert [each["__value__"] for each in letters] == dead


def test_an_error_of_an_executor_is_what_it_was_there(spark: SparkSession, tmp_path: Path) -> None:
    """With its place; and the files of the tasks that went well are deleted."""
    url, target = str(tmp_path / "bucket"), tmp_path / "t"
    write_topic(url, range(30), with_odd=True)
    with pytest.raises(PayloadDecodeError) as caught:
        spark_ds.copy_topics(spark, url, "orders", str(target), schema=SCHEMA, sizes=SMALL)
    assert caught.value.ledger_id is not None
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_latest_rows_are_staged_by_executors(spark: SparkSession, tmp_path: Path) -> None:
    """Either engine replaces the rows of keys that the other one copied."""
    url = str(tmp_path / "bucket")
    with table_in(tmp_path, "delta") as table:
        write_keyed(url, [("a", b"1"), ("b", b"2"), ("a", b"3"), (None, b"4"), ("c", b"5")])
        copy_latest(url, tmp_path, "delta")
        write_keyed(url, [("b", None), ("a", b"6"), ("d", b"7"), ("a", b"8")], append=True)
        [there] = spark_ds.copy_topics(
            spark,
            url,
            "orders",
            str(tmp_path / "t"),
            latest_per_key=True,
            value="raw",
            sizes=SMALL,
        )
        assert (there.rows, there.replaced, there.commits) == (2, 2, 1)
        check_latest(url, table)
        write_keyed(url, [("a", b"9")], append=True)
        assert copy_latest(url, tmp_path, "delta").replaced == 1
        check_latest(url, table)


@pytest.mark.parametrize("kind", ["delta", "parquet", "iceberg"])
def test_executors_read_a_table_and_what_follows_it(
    kind: TableKind, spark: SparkSession, tmp_path: Path
) -> None:
    """Files of the table are tasks like others, with columns and conditions pushed down."""
    url = str(tmp_path / "bucket")
    with table_in(tmp_path, kind) as table:
        options: dict[str, object] = {"format": kind}
        target = str(tmp_path / "t")
        if isinstance(table, IcebergTable):
            database, target = f"sqlite:///{tmp_path}/catalog.db", "shop.t"
            options |= {"type": "sql", "uri": database, "warehouse": tmp_path.as_uri()}
        own = {name: each for name, each in options.items() if name != "format"}
        for numbers in (range(20), range(20, 40)):
            write_topic(url, numbers, append=numbers.start > 0)
            copy_topics(url, "orders", target, format=kind, schema=SCHEMA, table_options=own)
        write_topic(url, range(40, 45), append=True)
        reader = spark.read.format("pulsar_offload").options(
            path=url,
            topic="orders",
            schema=json.dumps(SCHEMA),
            lake=target,
            lake_options=json.dumps(options),
        )
        rows = reader.load().where("number >= 10").select("number", "country").collect()
    expected = [n for n in range(45) if n >= 10]
    assert sorted(each.number for each in rows) == expected
    assert {each.number: each.country for each in rows}[12] == "DE"


def test_change_events_on_executors(spark: SparkSession, tmp_path: Path) -> None:
    """Executors unwrap them, in reads and in copies, and count what changes no row."""
    recorded = recording("mariadb", "mysrv.shop.orders", "json")
    assert recorded.schema.reader.value is not None
    values = [each.value for each in recorded.events]
    keys = [None if each.key is None else each.key.decode() for each in recorded.events]
    url, target = str(tmp_path / "bucket"), str(tmp_path / "t")
    rows = pa.table({"__key__": keys, "__value__": pa.array(values, pa.binary())})
    write_messages(url, "orders", rows)
    schema = {"type": "JSON", "schema": recorded.schema.reader.value.data}

    read = frame(spark, url, "orders", schema=json.dumps(schema), unwrap="debezium")
    options = {"schema": schema, "unwrap": "debezium"}
    [log] = spark_ds.copy_topics(spark, url, "orders", target, **options)
    [latest] = spark_ds.copy_topics(
        spark, url, "orders", f"{target}-latest", latest_per_key=True, **options
    )

    assert {tuple(row) for row in read.groupBy("__op").count().collect()} == {
        ("r", 2), ("c", 3), ("u", 2), ("d", 2), (None, 2)
    }  # fmt: skip
    assert (log.rows, log.left_out.tombstones) == (9, 2)
    assert (latest.rows, latest.left_out.tombstones) == (3, 0)


def _target(folder: Path, kind: TableKind) -> tuple[str, dict[str, Any]]:
    """Name the table of `table_in`, and return the options that open it."""
    if kind != "iceberg":
        return str(folder / "t"), {"format": kind}
    return "shop.t", {"format": kind, "table_options": catalog_options(folder)}


@pytest.mark.parametrize("kind", KINDS)
def test_executors_merge_files(spark: SparkSession, tmp_path: Path, kind: TableKind) -> None:
    """The rows stay, a copy on Spark maintains its table too, and old rows are deleted."""
    url, (target, options) = str(tmp_path / "bucket"), _target(tmp_path, kind)
    settings = MaintenanceSettings(min_files=2, sort_by=("number",))
    with table_in(tmp_path, kind) as table:
        for first in (0, 20):
            write_topic(url, range(first, first + 20), append=first > 0)
            copy_topics(url, "orders", target, schema=SCHEMA, partition_by=["country"], **options)

        done = spark_ds.maintain_table(spark, target, settings=settings, **options)
        write_topic(url, range(40, 50), append=True)
        [last] = spark_ds.copy_topics(
            spark, url, "orders", target, schema=SCHEMA, maintenance=settings, **options
        )

        assert (done.merged_files, done.new_files) == (6, 3)
        assert (last.rows, last.merged_files) == (10, 6)
        assert in_order(read_back(table).select(list(COLUMNS))) == batch_rows(url)
        *_, middle = sorted(each["__publish_time__"] for each in batch_rows(url))[:30]
        keep = MaintenanceSettings(keep=timedelta(), min_files=2)
        done = spark_ds.maintain_table(spark, target, settings=keep, now=middle, **options)
        left = [each for each in batch_rows(url) if each["__publish_time__"] >= middle]
        assert done.deleted_rows == 50 - len(left) > 20
        assert in_order(read_back(table).select(list(COLUMNS))) == left


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_a_file_that_an_executor_cannot_read(
    spark: SparkSession, tmp_path: Path, kind: TableKind
) -> None:
    """Its error is raised on the driver, and the files of the other tasks are deleted."""
    url, (target, options) = str(tmp_path / "bucket"), _target(tmp_path, kind)
    with table_in(tmp_path, kind):
        for first in (0, 20):
            write_topic(url, range(first, first + 20), append=first > 0)
            copy_topics(url, "orders", target, schema=SCHEMA, partition_by=["country"], **options)
        files = set(tmp_path.rglob("*.parquet"))
        damaged = min(files)
        damaged.write_bytes(bytes(damaged.stat().st_size))

        with pytest.raises(PulsarOffloadError, match="cannot be read"):
            spark_ds.maintain_table(
                spark, target, settings=MaintenanceSettings(min_files=2), **options
            )

        assert set(tmp_path.rglob("*.parquet")) == files


class _Numbers:
    """Work that writes nothing; `discarded` has the results that were discarded."""

    def __init__(self) -> None:
        self.discarded: list[int] = []

    def __call__(self, task: int) -> int:
        return task

    def discard(self, result: int, error: BaseException) -> None:
        assert isinstance(error, BaseException)
        self.discarded.append(result)


def test_a_caller_that_stops(spark: SparkSession) -> None:
    """Files of tasks whose results it did not get are deleted."""
    work = _Numbers()

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks(partial(run_work, spark), work, [1, 2, 3], stop)
    assert sorted(work.discarded) == [1, 2, 3]
