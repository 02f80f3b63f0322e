"""The command `copy`: golden topics become tables, and what it will cost is said before."""

from __future__ import annotations

import gzip
import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.dataset as pads
import pytest

from connector.catalog.schemas.answers import schemas_json
from tests.support.command_line import (
    NOT_FOUND,
    ORDERS,
    UNREADABLE,
    URL,
    USAGE,
    lines_of,
    run,
    store_arguments,
)
from tests.support.debezium import event_objects, recording
from tests.support.golden import GOLDEN, golden_topic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3_server import S3Server

METADATA = ("--metadata", str(GOLDEN / "pulsar-4.0.7"))


def table_row(target: Path | str, **counts: Any) -> dict[str, Any]:  # noqa: ANN401
    """What is printed of a table."""
    return {"table": str(target), **counts}


def test_copies_what_is_new(tmp_path: Path) -> None:
    """The first run makes the table, and the next one finds nothing new."""
    target = tmp_path / "orders"
    arguments = ("copy", URL, "json-orders", str(target), *METADATA)
    [line] = lines_of(*arguments, "--partition-by", "day(__publish_time__)")
    assert line.pop("bytes") > 0
    assert line == table_row(target, rows=400, files=1, dead_letters=0, commits=1)
    [line] = lines_of(*arguments)
    assert line == table_row(target, rows=0, files=0, bytes=0, dead_letters=0, commits=0)
    frame = pl.read_delta(str(target))
    assert frame.height == ORDERS.message_count == 400
    assert frame.columns[-1] == "__publish_time___day"


def test_message_whose_chunks_are_not_offloaded_yet_is_awaited(tmp_path: Path) -> None:
    """A copy says what it waits for, ends well, and the next one copies it."""
    topic, bucket = golden_topic("small-chunked"), tmp_path / "bucket"
    bucket.mkdir()
    target = str(tmp_path / "lake")
    for ledgers, is_waiting in ((topic.ledgers[:4], True), (topic.ledgers[4:], False)):
        for each in ledgers:
            shutil.copy(each.data_object, bucket)
            shutil.copy(each.index_object, bucket)
        result = run("copy", str(bucket), "small-chunked", target, "--format", "parquet")
        assert result.exit_code == 0, result.stderr
        assert ("1 chunked message is waiting for 6 chunks" in result.stderr) == is_waiting
    assert pads.dataset(target, format="parquet").count_rows() == topic.message_count


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "table"])
def test_what_was_copied_before_an_error_is_told(tmp_path: Path, *, as_json: bool) -> None:
    """A topic that cannot be copied is named, and all others have their line."""
    (tmp_path / "int32").mkdir()
    (tmp_path / "int32" / "_delta_log").mkdir()
    target = str(tmp_path / "{topic}")
    arguments = ["copy", URL, "int*", target, "--format", "parquet", *METADATA]
    result = run(*arguments, *["--json"][:as_json], ends=USAGE)
    for name in ("int16", "int64", "int8"):
        assert str(tmp_path / name) in result.stdout
    assert str(tmp_path / "int32") not in result.stdout
    assert str(tmp_path / "int32") in result.stderr


def test_a_dry_run_says_what_it_will_cost(tmp_path: Path) -> None:
    """And writes nothing."""
    target = tmp_path / "t"
    arguments = ("copy", URL, "multi-ledger", str(target), "--dry-run", "--value", "raw")
    result = run(*arguments)
    assert "note: these are example prices" in result.stderr
    [line] = lines_of(*arguments)
    assert line.pop("bytes") > 0
    assert line == table_row(target, tasks=1, ledgers=6, requests=9, commits=1, money=line["money"])
    assert not target.exists()


def test_dead_letters_go_to_a_second_table(tmp_path: Path) -> None:
    """By choice; else the first value that cannot be decoded stops the copy."""
    target = tmp_path / "t"
    arguments = ("copy", URL, "json-orders", str(target), "--schema", "INT64")
    run(*arguments, ends=UNREADABLE)
    [line] = lines_of(*arguments, "--dead-letters", "--commit-bytes", "1")
    assert (line["rows"], line["dead_letters"]) == (10, 390)
    assert pl.read_delta(f"{target}_dead_letters").height == 390


def test_copies_to_a_bucket(s3_server: S3Server) -> None:
    """Options of the table's file system are given apart from those of the topics."""
    target = f"s3://{s3_server.new_bucket()}/orders"
    options = store_arguments(s3_server.storage_options, "--target-option")
    for kind in ("delta", "parquet"):
        [line] = lines_of(
            "copy", URL, "json-orders", f"{target}-{kind}", "--format", kind, *METADATA, *options
        )
        assert line["rows"] == 400


@pytest.mark.parametrize(
    ("arguments", "ends"),
    [
        (("no-such-topic", "t"), NOT_FOUND),
        (("json-orders", "t", "--partition-by", "week(x)"), USAGE),
        (("json-orders", "t", "--format", "hudi"), USAGE),
        (("json-orders", "t", "--table-option", "a=1", "--format", "parquet"), USAGE),
    ],
    ids=["topic", "partition", "format", "table-option"],
)
def test_what_is_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], ends: int
) -> None:
    """By exit codes, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    run("copy", URL, *arguments, *METADATA, ends=ends)
    assert list(tmp_path.iterdir()) == []


def test_the_latest_row_of_each_key(tmp_path: Path) -> None:
    """A broker compacted this topic to as many rows; the table stays one of latest rows."""
    arguments = ("copy", URL, "compacted", str(tmp_path / "t"), *METADATA)
    [line] = lines_of(*arguments, "--latest-per-key")
    compacted = GOLDEN / "pulsar-4.0.7" / "public__default__compacted" / "compacted.jsonl.gz"
    with gzip.open(compacted, "rt") as lines:
        assert line["rows"] == sum(1 for _ in lines)
    assert "the latest row of each key" in run(*arguments, ends=USAGE).stderr
    result = run(*arguments, "--latest-per-key", "--format", "parquet", ends=USAGE)
    assert "needs a Delta or Iceberg table" in result.stderr
    result = run(*arguments, "--latest-per-key", "--dry-run")
    assert "rows are written twice" in result.stderr


def test_change_events(tmp_path: Path) -> None:
    """They are copied as rows, identified by columns, and notes count what changes no row."""
    recorded = recording("mariadb", "mysrv.shop.orders", "json")
    bucket, schema = tmp_path / "bucket", tmp_path / "schema.json"
    bucket.mkdir()
    for name, data in event_objects(recorded.events).items():
        (bucket / name).write_bytes(data)
    schema.write_text(schemas_json(recorded.schema, timestamp_ms=0), "utf-8")
    arguments = ("copy", str(bucket), "orders", "--schema", str(schema), "--unwrap", "debezium")

    result = run(*arguments, str(tmp_path / "log"), "--json")
    keys = ("--latest-per-key", "--key-column", "region", "--key-column", "number")
    [line] = lines_of(*arguments, str(tmp_path / "rows"), *keys)

    assert "2 tombstones left out" in result.stderr
    assert json.loads(result.stdout)["rows"] == 9
    assert line["rows"] == 3
