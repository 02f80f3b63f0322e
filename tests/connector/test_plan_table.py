"""`plan_table` and `pulsar_plan`: what a read fetches, and what it leaves out and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import duckdb
import pyarrow.compute as pc
import pytest

from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog, open_topic, register_duckdb
from connector.scan.plan_table import PLAN_SCHEMA, plan_table
from tests.support.golden import GOLDEN, golden_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SET: Final = GOLDEN / "pulsar-4.0.7"
URL: Final = str(SET / "objects")
SINCE: Final = "2026-11-21T12:48:28.7Z"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Statistics of one topic, and of none other."""
    folder = str(tmp_path_factory.mktemp("statistics"))
    open_catalog(URL).analyze(folder, "multi-block")
    return folder


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads the golden set."""
    with duckdb.connect() as opened:
        register_duckdb(opened, url=URL)
        yield opened


def _planned(**options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - open_topic's
    scan = open_topic(URL, options.pop("topic", "multi-block"), value="raw", **options).scan
    rows: list[dict[str, Any]] = plan_table(scan).to_pylist()
    return rows


def test_a_plan_is_what_a_read_takes(folder: str) -> None:
    """Requests and bytes of data, with and without statistics; the first process to read."""
    for statistics in (None, folder):
        trace = RequestTrace(keep_records=True)
        catalog = open_catalog(URL, trace=trace)
        options: dict[str, Any] = {"catalog": catalog, "start": SINCE, "value": "raw"}
        dataset = open_topic(URL, "multi-block", statistics=statistics, **options)
        [plan] = plan_table(dataset.scan).to_pylist()
        dataset.to_table()
        data = [
            (each.stop or 0) - (each.start or 0)
            for each in trace.records
            if each.kind is RequestKind.RANGE_GET and not each.name.startswith("zones-")
        ]
        assert 0 < len(data) <= plan["requests"]
        assert 0 < sum(data) <= plan["read_bytes"]
        assert (plan["skipped_zones"] > 0) == (statistics is not None)
        assert plan["skipped_zones"] == dataset.metrics.skipped_zones
        assert plan["skipped_bytes"] == dataset.metrics.skipped_bytes


def test_each_reason_has_its_columns(folder: str) -> None:
    """Statistics, those that know nothing, positions, and the user's word on clocks."""
    blocks, *others = _planned(topic="multi-*", start=SINCE, statistics=folder)
    assert (blocks["ledgers"], blocks["read_ledgers"], blocks["unknown_ledgers"]) == (1, 1, 0)
    assert [(each["unknown_ledgers"], each["skipped_zones"]) for each in others] == [(6, 0)]
    assert blocks["read_bytes"] + blocks["skipped_bytes"] < blocks["bytes"]
    first = golden_topic("multi-ledger").ledgers[0].ledger_id
    [cut] = _planned(topic="multi-ledger", end=(first + 1, 0))
    assert (cut["ledgers"], cut["read_ledgers"]) == (6, 1)
    late: dict[str, Any] = {"start": "2027-01-01", "metadata": str(SET), "clock_slack": "1d"}
    [spared] = _planned(topic="multi-ledger", **late)
    assert (spared["skipped_ledgers"], spared["read_ledgers"], spared["tasks"]) == (6, 0, 0)


def test_what_cannot_be_used_is_told(tmp_path: Path) -> None:
    """A file that is damaged."""
    open_catalog(URL).analyze(tmp_path, "multi-block")
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")

    [plan] = _planned(start=SINCE, statistics=tmp_path)

    assert ["is not as it was written" in each for each in plan["unused_statistics"]] == [True]
    assert plan["unknown_ledgers"] == 1


def test_pulsar_plan_is_that_of_python(con: duckdb.DuckDBPyConnection, folder: str) -> None:
    """By the options of a read, and a condition of its own; without a schema."""
    key = open_topic(URL, "multi-block", value="raw", statistics=folder).filter(
        pc.field("__key__") == "k21"
    )
    expected = plan_table(key.scan)

    table = con.sql(
        "FROM pulsar_plan('multi-block', statistics := $1, \"where\" := $2)",
        params=[folder, "__key__ = 'k21'"],
    ).to_arrow_table()

    assert table.cast(PLAN_SCHEMA).equals(expected)
    assert expected["skipped_zones"][0].as_py() == 4
    sql = "SELECT sum(read_bytes), sum(skipped_bytes) FROM pulsar_plan(['multi-*'], start := $1)"
    assert con.execute(sql, [SINCE]).fetchall()[0][1] == 0


def test_pulsar_plan_reads_no_data() -> None:
    """Nothing but the bucket's list, its index objects, and statistics."""
    trace = RequestTrace()
    with (
        duckdb.connect() as con,
        patch("connector.scan.scanner.execute", side_effect=AssertionError),
    ):
        register_duckdb(con, url=URL, catalog=open_catalog(URL, trace=trace))
        before = trace.counts.range_requests
        con.execute("FROM pulsar_plan('multi-block')").fetchall()
        assert trace.counts.range_requests == before
        con.execute("FROM pulsar_plan('multi-block', until := '2020-01-01')").fetchall()
        sql = "FROM pulsar_plan('json-orders', \"where\" := 'status = ''NEW''', schema := $1)"
        schema = str(SET / "public__default__json-orders" / "schemas-rest.json")
        con.execute(sql, [schema]).fetchall()
        assert trace.counts.range_requests == before


def test_a_condition_that_is_no_text_is_refused(con: duckdb.DuckDBPyConnection) -> None:
    """A number is no condition."""
    with pytest.raises(duckdb.Error, match="where must be a text, not"):
        con.execute("FROM pulsar_plan('multi-block', \"where\" := 5)")


def test_a_plan_is_made_for_each_execution(tmp_path: Path) -> None:
    """A prepared statement sees what was analyzed since."""
    open_catalog(URL).analyze(tmp_path / "later", "string")
    with duckdb.connect() as con:
        register_duckdb(con, url=URL, statistics=str(tmp_path / "later"))
        con.execute(
            "PREPARE planned AS SELECT unknown_ledgers, skipped_zones"
            " FROM pulsar_plan('multi-block', start := '2026-11-21T12:48:28.7Z')"
        )
        assert con.execute("EXECUTE planned").fetchall() == [(1, 0)]
        open_catalog(URL).analyze(tmp_path / "later", "multi-block")
        assert con.execute("EXECUTE planned").fetchall() == [(0, 12)]
