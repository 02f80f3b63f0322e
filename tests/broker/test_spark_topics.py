"""A topic that Spark wrote is given to a broker, and Pulsar's client reads it there."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.broker.client_messages import Position, read_all
from tests.broker.running_broker import MAX_LEDGER_ENTRIES
from tests.spark_ds.conftest import PYTHON_PATH, QUICK_JVM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.broker.cluster import Cluster

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TOPIC: Final = "from-spark"
TASKS: Final = 3
TASK_LEDGERS: Final = 4
ROWS: Final = 150


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that finds the source."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHON_PATH)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.extraJavaOptions", QUICK_JVM)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        yield session
        session.stop()


def test_a_client_reads_what_spark_wrote(cluster: Cluster, spark: SparkSession) -> None:
    """Every row must be a message, in the order of the frame, where our reader says that it is."""
    first = cluster.take_ledger_ids(TASKS * TASK_LEDGERS + 1)
    frame = spark.range(0, ROWS, 1, TASKS).selectExpr(
        "CAST(id AS STRING) AS __value__",
        "IF(id % 3 = 0, NULL, concat('key-', id % 7)) AS __key__",
        "map('n', CAST(id AS STRING)) AS __properties__",
        "timestamp_millis(1750000000000 + id) AS __publish_time__",
    )
    options = {
        "url": cluster.url,
        "topic": TOPIC,
        "storage_options": json.dumps(cluster.s3.storage_options),
        "metadata_folder": str(cluster.metadata_folder(TOPIC)),
        "cluster": "standalone",
        "first_ledger_id": str(first),
        "task_ledgers": str(TASK_LEDGERS),
        "ledger_entries": "2",
        "batch_messages": "20",
        "batch_delay_ms": "1000",
    }
    frame.write.format("pulsar_offload").mode("append").options(**options).save()
    cluster.attach(TOPIC)

    read = read_all(cluster.client, TOPIC)

    assert [int(message.payload or b"") for _, message in read] == [*range(ROWS)]
    for number, (_, message) in enumerate(read):
        assert message.key == ("" if number % 3 == 0 else f"key-{number % 7}")
        assert message.properties == {"n": str(number)}
    names = ["__partition__", "__ledger_id__", "__entry_id__", "__batch_index__"]
    rows = cluster.open_topic(TOPIC, value="raw").to_table(columns=names).to_pylist()
    assert [where for where, _ in read] == [
        Position(*(-1 if row[name] is None else row[name] for name in names)) for row in rows
    ]
    ledgers = {where.ledger_id for where, _ in read}
    assert len(ledgers) == TASKS * 2
    assert min(ledgers) == first


def test_spark_reads_what_brokers_have(cluster: Cluster, spark: SparkSession) -> None:
    """Behind what is offloaded of each partition; no task has the end of two."""
    topic, count = "to-spark", MAX_LEDGER_ENTRIES + 3
    cluster.admin.of_topic("PUT", topic, "partitions", 3)
    for number in range(3):
        cluster.produce(f"{topic}-partition-{number}", [b"%d" % each for each in range(count)])
    cluster.admin.offload(f"{topic}-partition-1")
    options = {
        "url": cluster.url,
        "topic": topic,
        "storage_options": json.dumps(cluster.s3.storage_options),
        "metadata": cluster.broker.admin_url,
        "live": cluster.broker.service_url,
        "value": "raw",
    }
    frame = spark.read.format("pulsar_offload").options(**options).load()
    rows = frame.selectExpr("__partition__", "CAST(__value__ AS STRING) AS value").collect()
    assert sorted((row["__partition__"], int(row.value)) for row in rows) == [
        (partition, number) for partition in range(3) for number in range(count)
    ]
    assert frame.rdd.getNumPartitions() == 3
