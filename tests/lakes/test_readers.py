"""Tables that copies wrote have the same rows in every reader that engines use.

Spark reads them by Delta's and Iceberg's own jars, Polars, `deltalake` and PyIceberg by their code,
and DuckDB by its extensions, if these are installed: it downloads them from a server of its own.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import deltalake
import duckdb
import polars as pl
import pytest

from connector import CopySizes, MaintenanceSettings, copy_topics, maintain_table, open_topic
from connector.lake.copy import MESSAGE_COLUMNS
from connector.tables.iceberg import IcebergTable
from tests.lakes.conftest import FORMATS, VERSION
from tests.support.golden import golden_topic
from tests.support.lake_copies import SCHEMA, batch_rows, in_order, write_topic
from tests.support.lake_kinds import table_in
from tests.support.latest_rows import catalog_options, latest_rows, write_keyed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable

    Rows = list[dict[str, Any]]

pytestmark = [
    pytest.mark.lakes,
    pytest.mark.timeout(600),
    # Spark 4.1 leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

KINDS: Final[tuple[TableKind, ...]] = ("delta", "iceberg")
SMALL: Final = CopySizes(task_bytes=1)
MERGE: Final = MaintenanceSettings(
    min_files=2, sort_by=("number",), expire_after=timedelta(), delete_after=timedelta()
)
WIDER: Final = {
    "type": "JSON",
    "schema": json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "number", "type": "long"},
                {"name": "country", "type": ["null", "string"]},
                {"name": "note", "type": ["null", "string"], "default": None},
            ],
        }
    ),
}


class Lake:
    """A bucket and a table of a folder.

    Attributes:
        url: The bucket.
        folder: The folder of both.
        kind: The table's format.
    """

    def __init__(self, folder: Path, kind: TableKind) -> None:
        self.url = str(folder / "bucket")
        self.folder = folder
        self.kind = kind
        self.target = "shop.t" if kind == "iceberg" else str(folder / "t")
        self.options: dict[str, Any] = {"format": kind}
        if kind == "iceberg":
            self.options["table_options"] = catalog_options(folder)

    def copy(self, topic: str = "orders", url: str | None = None, **options: Any) -> None:  # noqa: ANN401 - those of `copy_topics`
        """Copy what is new."""
        copy_topics(url or self.url, topic, self.target, sizes=SMALL, **self.options, **options)

    def maintain(self) -> None:
        """Merge small files, and delete the old ones."""
        for _ in range(2):
            maintain_table(self.target, settings=MERGE, **self.options)


def appended(lake: Lake, **options: Any) -> Rows:  # noqa: ANN401 - those of a copy
    """Copy a topic in three runs."""
    for first in (0, 30, 50):
        write_topic(lake.url, range(first, first + 25), append=first > 0)
        lake.copy(schema=SCHEMA, **options)
    return batch_rows(lake.url)


def by_day(lake: Lake) -> Rows:
    """Partition the rows by day."""
    return appended(lake, partition_by=["day(__publish_time__)"])


def by_bucket(lake: Lake) -> Rows:
    """Partition the rows by buckets of keys, and by a column."""
    return appended(lake, partition_by=["bucket(4, __key__)", "country"])


def maintained(lake: Lake) -> Rows:
    """Merge files, expire versions, and copy again."""
    appended(lake)
    lake.maintain()
    write_topic(lake.url, range(80, 90), append=True)
    lake.copy(schema=SCHEMA)
    return batch_rows(lake.url)


def maintained_by_day(lake: Lake) -> Rows:
    """Do the same to a partitioned table."""
    by_day(lake)
    lake.maintain()
    return batch_rows(lake.url)


def latest(lake: Lake) -> Rows:
    """Keep the latest row of each key, of which some are replaced and some deleted."""
    given: dict[str, Any] = {"latest_per_key": True, "value": "raw"}
    write_keyed(lake.url, [(f"k{n % 9}", b"%d" % n) for n in range(30)])
    lake.copy(**given)
    write_keyed(lake.url, [("k1", None), ("k2", b"new"), ("k9", b"new")], append=True)
    lake.copy(**given)
    return in_order_of(latest_rows(lake.url).values())


def latest_by_bucket(lake: Lake) -> Rows:
    """Do the same to a partitioned table, and merge its files."""
    given: dict[str, Any] = {"latest_per_key": True, "value": "raw"}
    write_keyed(lake.url, [(f"k{n % 9}", b"%d" % n) for n in range(30)])
    lake.copy(partition_by=["bucket(3, __key__)"], **given)
    write_keyed(lake.url, [("k1", None), ("k2", b"new"), ("k9", b"new")], append=True)
    lake.copy(**given)
    maintain_table(lake.target, settings=MaintenanceSettings(min_files=2), **lake.options)
    return in_order_of(latest_rows(lake.url).values())


def widened(lake: Lake) -> Rows:
    """Add a column, in which the rows before are null."""
    write_topic(lake.url, range(20))
    lake.copy(schema=SCHEMA)
    write_topic(lake.url, range(20, 40), append=True)
    lake.copy(schema=WIDER)
    return batch_rows(lake.url, schema=WIDER, columns=[*MESSAGE_COLUMNS, "number", "note"])


def nested(lake: Lake) -> Rows:
    """Copy lists, structs and maps."""
    topic = golden_topic("persistent://public/default/json-orders")
    url = str(topic.objects_folder)
    given: dict[str, Any] = {"schema": str(topic.folder / "schemas-rest.json")}
    lake.copy("json-orders", url, **given)
    names = list(MESSAGE_COLUMNS)
    rows = open_topic(url, "json-orders", time_unit="us", **given)
    values = [each for each in rows.schema.names if not each.startswith("__")]
    return in_order(rows.to_table(columns=[*names, *values]))


SCENARIOS: Final = [
    appended,
    by_day,
    by_bucket,
    maintained,
    maintained_by_day,
    latest,
    latest_by_bucket,
    widened,
    nested,
]


def in_order_of(rows: Any) -> Rows:  # noqa: ANN401 - of any mapping's values
    """Rows with the columns that a table of latest rows has, by position."""
    names = ("__ledger_id__", "__entry_id__", "__batch_index__", "__key__", "__value__")
    found = [{name: row[name] for name in names} for row in rows]
    return sorted(
        found, key=lambda row: (row["__ledger_id__"], row["__entry_id__"], row["__batch_index__"])
    )


def by_spark(spark: SparkSession, table: LakeTable) -> pa.Table:
    """Read by Delta's or Iceberg's own reader."""
    if isinstance(table, IcebergTable):
        metadata = table.catalog.load_table(table.identifier).metadata_location
        frame = spark.read.format("iceberg").load(metadata)
    else:
        frame = spark.read.format("delta").load(table.location.url)
    rows = frame.toArrow()
    assert frame.count() == rows.num_rows
    return rows


def by_polars(_spark: SparkSession, table: LakeTable) -> pa.Table:
    """Read by Polars."""
    if isinstance(table, IcebergTable):
        frame = pl.scan_iceberg(table.catalog.load_table(table.identifier))
    else:
        frame = pl.scan_delta(table.location.url)
    return frame.collect().to_arrow()


def by_library(_spark: SparkSession, table: LakeTable) -> pa.Table:
    """Read by PyIceberg or `deltalake`."""
    if isinstance(table, IcebergTable):
        return table.catalog.load_table(table.identifier).scan().to_arrow()
    return deltalake.DeltaTable(table.location.url).to_pyarrow_table()


def by_duckdb(_spark: SparkSession, table: LakeTable) -> pa.Table:
    """Read by DuckDB's extension."""
    kind = "iceberg" if isinstance(table, IcebergTable) else "delta"
    path = table.location.url
    if isinstance(table, IcebergTable):
        path = table.catalog.load_table(table.identifier).metadata_location
    with duckdb.connect() as connection:
        try:
            connection.execute(f"LOAD {kind}")
        except duckdb.Error as error:
            pytest.skip(f"DuckDB's extension is not installed: {error}")
        return connection.sql(f"SELECT * FROM {kind}_scan('{path}')").to_arrow_table()  # noqa: S608


READERS: Final = [by_spark, by_polars, by_library, by_duckdb]


@pytest.fixture(name="lake", params=KINDS)
def _lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Lake, LakeTable]]:
    with table_in(tmp_path, request.param) as table:
        yield Lake(tmp_path, request.param), table


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("read", READERS, ids=lambda each: each.__name__)
def test_rows_in_each_reader(
    lake: tuple[Lake, LakeTable],
    scenario: Callable[[Lake], Rows],
    read: Callable[[SparkSession, LakeTable], pa.Table],
    spark: SparkSession,
    request: pytest.FixtureRequest,
) -> None:
    """They are those of the topic."""
    if (lake[0].kind, scenario, read) == ("iceberg", nested, by_library):
        reason = "PyIceberg reads lists of structs that are null as empty"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    if read is by_spark and lake[0].kind not in FORMATS:
        pytest.skip(f"there are no jars of {lake[0].kind} for Spark {VERSION}")
    expected = scenario(lake[0])
    found = read(spark, lake[1]).select(list(expected[0]))

    assert len(expected) > 5
    assert normal(in_order(found)) == normal(expected)


def test_a_copy_after_delta_itself_maintained_the_table(
    tmp_path: Path, spark: SparkSession
) -> None:
    """`OPTIMIZE`, `VACUUM` and a deletion by Spark keep the progress, so rows are there once."""
    with table_in(tmp_path, "delta") as table:
        lake = Lake(tmp_path, "delta")
        appended(lake)
        name = f"delta.`{table.location.url}`"
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.sql(f"OPTIMIZE {name}")
        spark.sql(f"DELETE FROM {name} WHERE number < 3")  # noqa: S608
        spark.sql(f"VACUUM {name} RETAIN 0 HOURS")
        write_topic(lake.url, range(80, 90), append=True)
        lake.copy(schema=SCHEMA)

        expected = [each for each in batch_rows(lake.url) if each["number"] >= 3]
        found = by_spark(spark, table).select(list(expected[0]))
        assert normal(in_order(found)) == normal(expected)


def normal(value: Any) -> Any:  # noqa: ANN401 - of any type
    """Values as all readers give them: maps as sorted pairs, and bytes as such."""
    if isinstance(value, dict):
        return {name: normal(each) for name, each in value.items()}
    if isinstance(value, list):
        pairs = [each for each in value if isinstance(each, tuple)]
        if pairs and len(pairs) == len(value):
            return sorted(pairs)
        if value and all(
            isinstance(each, dict) and each.keys() == {"key", "value"} for each in value
        ):
            return sorted((each["key"], each["value"]) for each in value)
        return [normal(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value
