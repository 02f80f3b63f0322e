"""What Spark writes: each row once, as ledgers that every reader has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import StreamingQueryException

from arrow_io.storage.location import Location
from connector import open_catalog, open_topic
from connector.upkeep.audit.audit import audit
from tests.spark_ds.failing_source import FailingSource
from tests.support.offloads import names
from tests.support.snippets import snippets_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

TIMEOUT_SECONDS: Final = 300
SALE: Final = json.dumps(
    {
        "type": "JSON",
        "schema": {
            "type": "record",
            "name": "Sale",
            "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "double"}],
        },
    }
)


def _values(url: Path, **options: Any) -> list[int]:  # noqa: ANN401 - of open_topic
    dataset = open_topic(str(url), "orders", value="raw", **options)
    return [int(each) for each in dataset.to_table(columns=["__value__"])["__value__"].to_pylist()]


def _numbers(spark: SparkSession, start: int, stop: int, parts: int = 3) -> DataFrame:
    return spark.range(start, stop, 1, parts).selectExpr("CAST(id AS STRING) AS __value__")


def _write(frame: DataFrame, url: Path, **options: str) -> None:
    given = {"topic": "orders", "url": str(url), **options}
    frame.write.format("pulsar_offload").mode("append").options(**given).save()


def _start(frame: DataFrame, folder: Path, **options: str) -> StreamingQuery:
    """A stream into a bucket, of all that there is."""
    given = {"topic": "orders", "checkpointLocation": str(folder / "checkpoint"), **options}
    writer = frame.writeStream.format(given.pop("format", "pulsar_offload"))
    return writer.options(**given).trigger(availableNow=True).start(str(folder / "bucket"))


def _refused(frame: DataFrame, *, mode: str = "append", **options: str) -> str:
    with pytest.raises(Exception, match="OptionError") as raised:
        frame.write.format("pulsar_offload").mode(mode).options(**options).save()
    return str(raised.value)


def test_a_frame_is_written_in_its_order(spark: SparkSession, tmp_path: Path) -> None:
    """Tasks write ledgers of their own, which stand in the order of the frame's partitions."""
    for start in (0, 50):
        _write(_numbers(spark, start, start + 50), tmp_path, ledger_entries="2", batch_messages="5")

    assert _values(tmp_path) == [*range(100)]
    contents = open_catalog(str(tmp_path)).contents
    assert len(contents.copies) == 2 * 3 * 2
    assert contents.unfinished == ()


def test_typed_columns_keys_and_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """Values are encoded by their schema, keys go to their partitions; metadata tells of all."""
    bucket, folder = tmp_path / "bucket", tmp_path / "metadata"
    frame = spark.range(0, 60, 1, 2).selectExpr(
        "concat('key-', id % 7) AS __key__", "concat('sku-', id) AS sku", "id / 4 AS price",
        "map('n', CAST(id AS STRING)) AS __properties__",
        "timestamp_millis(1750000000000 + id) AS __event_time__",
    )  # fmt: skip
    for _ in range(2):
        _write(frame, bucket, schema=SALE, partitions="3", metadata_folder=str(folder))

    catalog = open_catalog(str(bucket), metadata=str(folder))
    columns = ["__partition__", "__key__", "sku", "price", "__properties__"]
    rows = open_topic(str(bucket), "orders", catalog=catalog).to_table(columns=columns).to_pylist()
    numbers = [int(row["sku"].removeprefix("sku-")) for row in rows]
    assert sorted(numbers) == sorted([*range(60)] * 2)
    for number, row in zip(numbers, rows, strict=True):
        assert (row["__key__"], row["price"]) == (f"key-{number % 7}", number / 4)
        assert row["__properties__"] == [("n", str(number))]
    assert len({(row["__key__"], row["__partition__"]) for row in rows}) == 7
    assert audit(catalog).findings == ()
    options = {"url": str(bucket), "topic": "orders", "metadata": str(folder), "columns": "sku"}
    read = spark.read.format("pulsar_offload").options(**options).load()
    assert sorted(row.sku for row in read.collect()) == sorted(f"sku-{n}" for n in numbers)


def test_the_lines_of_the_page_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They print what the page shows."""
    page = Path("docs/writing.md").read_text("utf-8")
    [snippet] = [each for each in snippets_of(page) if "spark.read" in each.text]
    (tmp_path / "incoming").mkdir()

    exec(snippet.text, {"spark": spark, "folder": str(tmp_path)})  # noqa: S102 - our own page

    assert capsys.readouterr().out.strip() == snippet.printed


def test_a_job_can_be_run_again_under_its_id(spark: SparkSession, tmp_path: Path) -> None:
    """The second run writes nothing, and leaves nothing."""
    for _ in range(2):
        _write(_numbers(spark, 0, 30), tmp_path, write_id="2026-11-22")
    there = names(Location(str(tmp_path)))
    _write(_numbers(spark, 30, 40), tmp_path, write_id="2026-11-23")

    assert _values(tmp_path) == [*range(40)]
    assert len(there) == 2 * 3


def test_a_frame_without_rows_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Neither ledgers nor notes."""
    bucket, folder = tmp_path / "bucket", tmp_path / "metadata"

    _write(_numbers(spark, 0, 0), bucket, metadata_folder=str(folder))

    assert names(Location(str(bucket))) == []
    assert names(Location(str(folder))) == []


def test_what_is_not_possible_is_told_before_any_task_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The error has the sentence, and names the option as Spark has it."""
    frame, url = _numbers(spark, 0, 3), str(tmp_path / "bucket")
    good = {"url": url, "topic": "orders"}

    assert "is never replaced: append" in _refused(frame, mode="overwrite", **good)
    assert "option topic is missing" in _refused(frame, url=url)
    assert "did you mean batch_messages" in _refused(frame, batchMessage="3", **good)
    assert 'mode("append") says it' in _refused(frame, append="true", **good)
    assert "unknown columns: id" in _refused(spark.range(3), **good)
    assert not Path(url).exists()


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Ledgers of the tasks that had ended are deleted too, and the note of the write.

    A task that Spark still lets run may leave its five, which no reader sees.
    """
    bucket, folder = tmp_path / "bucket", tmp_path / "metadata"
    frame = spark.range(0, 40, 1, 4).selectExpr(
        "CAST(id AS STRING) AS __value__",
        "IF(id < 35, CAST(id AS STRING), 'x') AS __sequence_id__",
    )

    with pytest.raises(Exception, match="column __sequence_id__"):
        _write(frame, bucket, metadata_folder=str(folder), ledger_entries="1", batch_messages="2")

    left = names(Location(str(bucket)))
    assert len(left) <= 5
    assert not any(name.endswith("-index") for name in left)
    assert names(Location(str(folder))) == []


class TestStream:
    """Batches that Spark repeats."""

    def test_a_batch_that_is_repeated_is_there_once(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """As after a crash behind the publishing, in front of Spark's log of what is committed."""
        source = tmp_path / "source"
        source.mkdir()
        stream = spark.readStream.schema("__value__ STRING").parquet(str(source))
        for number in range(3):
            frame = _numbers(spark, 10 * number, 10 * number + 10, 2)
            frame.write.mode("append").parquet(str(source))
            assert _start(stream, tmp_path).awaitTermination(TIMEOUT_SECONDS)
            (tmp_path / "checkpoint" / "commits" / str(number)).unlink()
            (tmp_path / "checkpoint" / "commits" / f".{number}.crc").unlink()
            assert _start(stream, tmp_path).awaitTermination(TIMEOUT_SECONDS)

        assert sorted(_values(tmp_path / "bucket")) == [*range(30)]
        assert open_catalog(str(tmp_path / "bucket")).contents.unfinished == ()

    @pytest.mark.parametrize("step", ["deciding", "half published"])
    def test_a_batch_that_failed_is_repeated(
        self, spark: SparkSession, tmp_path: Path, step: str
    ) -> None:
        """Undone if it was not decided, and otherwise finished, with its metadata."""
        source = tmp_path / "source"
        source.mkdir()
        stream = spark.readStream.schema("__value__ STRING").parquet(str(source))
        _numbers(spark, 0, 10, 2).write.mode("append").parquet(str(source))
        spark.dataSource.register(FailingSource)
        folder = str(tmp_path / "metadata")
        failing = {"format": "failing", "failAt": step, "metadata_folder": folder}

        query = _start(stream, tmp_path, **failing)
        with pytest.raises(Exception, match="it fails here"):
            query.awaitTermination(TIMEOUT_SECONDS)
        query = _start(stream, tmp_path, metadata_folder=folder)
        assert query.awaitTermination(TIMEOUT_SECONDS)

        catalog = open_catalog(str(tmp_path / "bucket"), metadata=folder)
        assert sorted(_values(tmp_path / "bucket", catalog=catalog)) == [*range(10)]
        assert audit(catalog).findings == ()

    def test_processes_that_are_killed_at_any_step_write_each_row_once(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """A worker behind its task, the committing process behind the decision and the publishing.

        Nobody tells the write that it has failed, and nothing else is left when it was run again.
        """
        source = tmp_path / "source"
        source.mkdir()
        stream = spark.readStream.schema("__value__ STRING").parquet(str(source))
        spark.dataSource.register(FailingSource)
        steps = ("staged", "decided", "published")
        for number, step in enumerate([*steps, ""]):
            frame = _numbers(spark, 10 * number, 10 * number + 10, 2)
            frame.write.mode("append").parquet(str(source))
            if step:
                failing = {"format": "failing", "failAt": step, "killed": "process"}
                with pytest.raises(StreamingQueryException, match="worker exited unexpectedly"):
                    _start(stream, tmp_path, **failing).awaitTermination(TIMEOUT_SECONDS)
            else:
                assert _start(stream, tmp_path).awaitTermination(TIMEOUT_SECONDS)

        bucket = tmp_path / "bucket"
        assert audit(open_catalog(str(bucket))).findings == ()
        assert sorted(_values(bucket)) == [*range(10 * (len(steps) + 1))]

    def test_output_that_replaces_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        """The output mode `complete` would write the whole result anew with each batch."""
        stream = spark.readStream.format("rate").load().groupBy("value").count()
        writer = stream.selectExpr("CAST(value AS STRING) AS __value__").writeStream
        writer = writer.format("pulsar_offload").outputMode("complete").option("topic", "orders")
        checkpoint = str(tmp_path / "checkpoint")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)

        query = writer.start(str(tmp_path / "bucket"))
        with pytest.raises(Exception, match="is never replaced"):
            query.awaitTermination(TIMEOUT_SECONDS)


@pytest.mark.exhaustive
def test_a_driver_that_is_killed_writes_each_row_once(
    spark: SparkSession, spark_environment: dict[str, str], tmp_path: Path
) -> None:
    """With all of its processes, behind the decision; another driver publishes the batch."""
    program = Path(__file__).with_name("killed_writer.py")
    repository = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), "decided"],
        env={**os.environ, **spark_environment, "PYTHONPATH": str(repository)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout[-4000:]
    left = names(Location(str(tmp_path / "bucket")))
    assert left
    assert not any(name.endswith("-index") for name in left)

    source = str(tmp_path / "source")
    _numbers(spark, 10, 20, 2).write.mode("append").parquet(source)
    stream = spark.readStream.schema("__value__ STRING").parquet(source)
    assert _start(stream, tmp_path).awaitTermination(TIMEOUT_SECONDS)

    bucket = tmp_path / "bucket"
    assert audit(open_catalog(str(bucket))).findings == ()
    assert sorted(_values(bucket)) == [*range(20)]
