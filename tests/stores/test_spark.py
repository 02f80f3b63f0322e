"""Spark reads topics from S3, streams them to S3, and copies them to tables on S3."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import fsspec
import pytest

import spark_ds
from connector import CopySizes, open_topic
from connector.tables.delta import DeltaTable
from connector.tables.iceberg import IcebergTable
from connector.tables.parquet import ParquetTable
from connector.tables.table_kinds import open_table
from tests.spark_ds.conftest import spark, spark_environment, spark_log
from tests.spark_ds.golden_rows import COLUMNS, golden_rows, table_rows, topics_named
from tests.stores.emulators import running_gateway
from tests.support.golden import GOLDEN
from tests.support.lake_copies import in_order
from tests.support.lake_tables import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable

__all__ = ["spark", "spark_environment", "spark_log"]

pytestmark = [
    pytest.mark.stores,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

TOPIC: Final = "small-partitioned"
RAW: Final[dict[str, Any]] = {
    "value": "raw",
    "time_unit": "us",
    "columns": [
        "__partition__",
        "__ledger_id__",
        "__entry_id__",
        "__batch_index__",
        "__key__",
        "__value__",
    ],
}


@dataclass(frozen=True)
class Store:
    """A gateway from S3, with a bucket of golden topics and an empty one.

    Attributes:
        options: Storage options of s3fs.
    """

    options: dict[str, object]

    @property
    def spark_options(self) -> dict[str, str]:
        """The same, as Spark's options."""
        return {f"secret.{name}": str(value) for name, value in self.options.items()}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The gateway."""
    folder = str(tmp_path_factory.mktemp("gateway"))
    # It takes some requests of Arrow's client on a kept connection for malformed ones.
    with running_gateway(os.environ["VERSITYGW"], folder, keep_alive=False) as options:
        file_system = fsspec.filesystem("s3", **options)
        file_system.mkdir("topics")
        file_system.mkdir("lake")
        for topic in topics_named(TOPIC):
            for ledger in topic.ledgers:
                for path in (ledger.data_object, ledger.index_object):
                    file_system.put_file(str(path), f"topics/prefix/{path.name}")
        yield Store(options)


def expected() -> list[dict[str, Any]]:
    """The rows of the topic, from the golden folder."""
    url = str(GOLDEN / "pulsar-4.0.7-small" / "objects")
    return in_order(open_topic(url, TOPIC, **RAW).to_table())


def rows_of(table: LakeTable) -> pa.Table:
    """All rows; of Iceberg by PyIceberg."""
    if isinstance(table, IcebergTable):
        return table.catalog.load_table(table.identifier).scan().to_arrow()
    assert isinstance(table, DeltaTable | ParquetTable)
    return table_of(table)


def test_a_topic_on_s3_is_read_and_streamed(
    spark: SparkSession,
    store: Store,
    tmp_path: Path,
) -> None:
    """The rows are those of Pulsar's client; a topic that Spark writes has their values."""
    options = {"url": "s3://topics/prefix", "topic": TOPIC, **store.spark_options}
    read = spark.read.format("pulsar_offload").options(**options, columns=",".join(COLUMNS))
    assert table_rows(read.load().toArrow()) == golden_rows(topics_named(TOPIC))

    stream = spark.readStream.format("pulsar_offload").options(**options, value="raw").load()
    writer = stream.select("__key__", "__value__").writeStream.format("pulsar_offload")
    sink = {**options, "url": "s3://lake/topics", "topic": "streamed"}
    writer = writer.options(**sink, checkpointLocation=str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()

    written = open_topic("s3://lake/topics", "streamed", value="raw", storage_options=store.options)
    values = written.to_table(columns=["__value__"])["__value__"].to_pylist()
    assert sorted(values) == sorted(row["__value__"] for row in expected())


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_topic_on_s3_is_copied_to_a_table_on_s3(
    spark: SparkSession,
    store: Store,
    tmp_path: Path,
    kind: TableKind,
) -> None:
    """Executors write the files; a second copy finds nothing new."""
    target, table_options = f"s3://lake/{kind}", None
    if kind == "iceberg":
        target = "shop.copied"
        table_options = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": "s3://lake/warehouse",
            "s3.endpoint": store.options["endpoint_url"],
            "s3.access-key-id": store.options["key"],
            "s3.secret-access-key": store.options["secret"],
            "s3.region": "us-east-1",
        }
    table = open_table(kind, target, store.options, table_options)
    if isinstance(table, IcebergTable):
        table.catalog.create_namespace("shop")
    arguments = {
        "format": kind,
        "storage_options": store.options,
        "target_options": store.options,
        "table_options": table_options,
        "sizes": CopySizes(task_bytes=1),
        **RAW,
    }

    [first] = spark_ds.copy_topics(spark, "s3://topics/prefix", TOPIC, target, **arguments)
    [second] = spark_ds.copy_topics(spark, "s3://topics/prefix", TOPIC, target, **arguments)

    assert (first.rows, second.rows) == (len(expected()), 0)
    assert first.files >= 3
    assert in_order(rows_of(table).select(RAW["columns"])) == expected()
    if isinstance(table, IcebergTable):
        table.catalog.close()
