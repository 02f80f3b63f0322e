"""The command `analyze`, and what commands that read spare by what it keeps."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from tests.support.buckets import golden_objects, memory_bucket
from tests.support.command_line import (
    LEDGERS,
    NOT_FOUND,
    ORDERS,
    UNREADABLE,
    URL,
    USAGE,
    Row,
    broken,
    lines_of,
    run,
    store_arguments,
    unsound_ledgers,
)
from tests.support.golden import golden_topic
from tests.support.s3_server import running_s3_server

BLOCKS: Final = golden_topic("multi-block")
DATA: Final = ORDERS.ledgers[0].data_object
ENTRY_ID: Final = 128 + 4 + 7
"""Where the last byte of the first entry's id stands in a data object."""
SINCE: Final = "2026-11-21T12:48:28.7Z"
"""Only the last message of `BLOCKS` was published since."""


@pytest.fixture
def statistics(tmp_path: Path) -> str:
    """A folder that is not there yet."""
    return str(tmp_path / "statistics")


def analyzed(statistics: str, *arguments: str, url: str = URL, ends: int = 0) -> str:
    """What `analyze` says in the end."""
    return run("analyze", url, *arguments, "--statistics", statistics, ends=ends).stdout.strip()


def known(statistics: str) -> list[Row]:
    """The zones in a folder; no file has any of another."""
    files = sorted(Path(statistics).iterdir())
    return [row for path in files for row in pq.read_table(path).to_pylist()]


def test_analysis_is_summed_up_for_logs_and_programs(statistics: str) -> None:
    """Without a terminal there is no line for each ledger; --json gives the same counts."""
    result = run("analyze", URL, "multi-l*", ORDERS.name, "--statistics", statistics)

    assert "analyzed: " not in result.stderr
    assert result.stdout == "analyzed 7 ledgers, 85.6 kB: 7 zones\n"
    assert lines_of("analyze", URL, "multi-l*", "--statistics", statistics) == [
        {"ledgers": 0, "bytes": 0, "zones": 0, "unreadable_ledgers": 0}
    ]


def test_a_glob_names_topics(statistics: str) -> None:
    """What is read is told for each ledger, and in the end together; nothing else is read."""
    result = run("analyze", URL, "multi-l*", ORDERS.name, "--statistics", statistics, "--verbose")

    ledgers = [*ORDERS.ledgers, *LEDGERS.ledgers]
    told = [line for line in result.stderr.splitlines() if line.startswith("analyzed: ")]
    assert len(told) == len(ledgers)
    assert f"analyzed: {ORDERS.name}, ledger {ORDERS.ledgers[0].ledger_id}: 50.4 kB" in told
    assert result.stdout == "analyzed 7 ledgers, 85.6 kB: 7 zones\n"
    assert {(row["topic"], row["ledger_id"]) for row in known(statistics)} == {
        (topic.name, each.ledger_id) for topic in (ORDERS, LEDGERS) for each in topic.ledgers
    }


def test_all_topics_are_read_if_none_is_named(statistics: str) -> None:
    """And what came since is read by the next run."""
    with memory_bucket(golden_objects(ORDERS)) as bucket:
        assert analyzed(statistics, url=bucket.url).startswith("analyzed 1 ledger,")
        bucket.put(golden_objects(LEDGERS))
        assert analyzed(statistics, url=bucket.url).startswith("analyzed 6 ledgers,")
    assert len(known(statistics)) == 7


def test_what_is_asked_must_be_there(statistics: str) -> None:
    """A folder has to be named, and topics that there are; nothing is made otherwise."""
    result = run("analyze", URL, "json-orders", ends=USAGE)
    assert "--statistics" in result.stderr
    analyzed(statistics, "nowhere", ends=NOT_FOUND)
    assert not Path(statistics).exists()


@pytest.mark.parametrize(
    ("at", "damaged", "loss"),
    [
        (DATA.stat().st_size // 2, [1], "among entries 0 … 7 of ledger 49, 1 entry is damaged"),
        (ENTRY_ID, [], "found another entry id than the expected one"),
    ],
)
def test_losses_are_told(statistics: str, at: int, damaged: list[int], loss: str) -> None:
    """Damage ends with 5, and names what is lost; what stands around it is known all the same."""
    orders = broken(golden_objects(ORDERS), DATA.name, at)
    with memory_bucket(orders | golden_objects(LEDGERS)) as bucket:
        result = run("analyze", bucket.url, "--statistics", statistics, ends=UNREADABLE)

        [told] = [line for line in result.stderr.splitlines() if line.startswith("lost: ")]
        assert told.startswith(f"lost: {loss} (")
        assert DATA.name in told
        assert "note: 1 ledger has entries that cannot be read" in result.stderr
        zones = known(statistics)
        assert [row["damaged"] for row in zones if row["topic"] == ORDERS.name] == damaged
        whole = sum(row["messages"] for row in zones if row["topic"] == LEDGERS.name)
        assert whole == LEDGERS.message_count
        # Whoever reads the topic meets what is lost as before.
        sql = "SELECT __key__ FROM \"json-orders\" WHERE __publish_time__ < '2020-01-01'"
        run("query", bucket.url, sql, "--statistics", statistics, ends=UNREADABLE)


def test_ledgers_that_cannot_be_opened_are_passed_over(statistics: str) -> None:
    """The others of the topic are known."""
    with memory_bucket(unsound_ledgers()) as bucket:
        assert analyzed(statistics, url=bucket.url).startswith("analyzed 5 ledgers")
    assert len({row["ledger_id"] for row in known(statistics)}) == len(LEDGERS.ledgers) - 1


def test_plan_tells_what_statistics_spare(statistics: str) -> None:
    """Zones that cannot hold a row, and ledgers that nothing is known of."""
    analyzed(statistics, "multi-block")
    options = ("multi-block", "--start", SINCE, "--statistics", statistics)
    [whole] = lines_of("plan", URL, "multi-block", "--start", SINCE)

    [plan] = lines_of("plan", URL, *options)
    printed = run("plan", URL, *options).stdout

    zones = known(statistics)
    since = datetime.fromisoformat(SINCE)
    unread = [row for row in zones if row["max_publish_time"] < since]
    assert len(unread) == len(zones) - 1
    assert (plan["skipped_zones"], whole["skipped_zones"]) == (len(unread), 0)
    assert plan["skipped_bytes"] == sum(row["stop"] - row["start"] for row in unread)
    assert plan["bytes"] < whole["bytes"] / 4
    assert [each["last_entry_id"] for each in plan["ranges"]] == [zones[-1]["last_entry_id"]]
    assert f"pruned by statistics: {len(unread)} zones, 13.2 MB" in printed
    assert "do not know" not in printed
    told = run("plan", URL, *options[:-1], URL).stdout
    assert "not in the statistics: 1 ledger" in told
    assert "pruned" not in told


def test_plan_and_cost_take_a_condition(statistics: str) -> None:
    """They count what a query with it would read, by statistics or by position alone."""
    analyzed(statistics, "multi-block")
    options = ("multi-block", "--statistics", statistics)
    [whole] = lines_of("plan", URL, *options)

    [plan] = lines_of("plan", URL, *options, "--where", "__key__ = 'k21'")
    [cost] = lines_of("cost", URL, *options, "--where", "__key__ = 'k21'", "--value", "raw")
    [none] = lines_of("plan", URL, *options, "--where", "__entry_id__ < 0")

    assert (plan["skipped_zones"], whole["skipped_zones"]) == (4, 0)
    assert cost["data"]["bytes"] == plan["bytes"] < whole["bytes"]
    assert none["ranges"] == []
    run("plan", URL, *options, "--where", "__key__ =", ends=USAGE)


def test_a_catalog_snapshot_remembers_statistics(statistics: str, tmp_path: Path) -> None:
    """What reads by it goes by them without being told."""
    snapshot = str(tmp_path / "catalog.json.gz")
    with memory_bucket(golden_objects(LEDGERS)) as bucket:
        analyzed(statistics, url=bucket.url)
        run("save", bucket.url, snapshot, "--statistics", statistics)
        reading = ("plan", bucket.url, "multi-ledger", "--end", "2020-01-01")
        [plan] = lines_of(*reading, "--metadata", snapshot)
    assert (plan["skipped_zones"], plan["bytes"]) == (len(LEDGERS.ledgers), 0)


def test_commands_that_read_go_by_statistics(statistics: str) -> None:
    """The rows are the same, and `cost` and `query` fetch less."""
    analyzed(statistics, "multi-block")
    known_by = ("--statistics", statistics)
    sql = "SELECT count(*) AS n FROM \"multi-block\" WHERE __key__ = 'k21'"

    assert lines_of("query", URL, sql, *known_by) == lines_of("query", URL, sql) == [{"n": 16}]
    reading = ("multi-block", "--start", SINCE)
    head = ("head", URL, *reading, "--columns", "__entry_id__")
    assert lines_of(*head, *known_by) == lines_of(*head)
    [less], [whole] = (lines_of("cost", URL, *reading, *more) for more in (known_by, ()))
    assert less["data"]["bytes"] < whole["data"]["bytes"] / 4


@pytest.mark.s3
def test_statistics_of_a_private_bucket(statistics: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may lie in the bucket, for which the same options hold, or on the own disk."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with running_s3_server() as server:
        place = server.upload(golden_objects(BLOCKS))
        options = store_arguments(place.storage_options)
        for folder in (statistics, f"{place.url}/statistics"):
            told = analyzed(folder, *options, url=place.url)
            reading = ("multi-block", "--start", SINCE, "--statistics", folder, *options)
            [plan] = lines_of("plan", place.url, *reading)

            assert told.startswith("analyzed 1 ledger, 16.1 MB")
            assert plan["skipped_zones"] == 12
        again = analyzed(folder, *options, url=place.url)

    assert again.startswith("analyzed 0 ledgers")


def test_a_copy_makes_the_folder_of_what_it_analyzes(tmp_path: Path) -> None:
    """With --analyze the folder need not exist, not even for a plan."""
    folder = tmp_path / "statistics"
    options = ["--format", "parquet", "--value", "raw", "--analyze", "--statistics", str(folder)]

    run("copy", URL, "json-orders", str(tmp_path / "lake"), *options, "--dry-run")
    assert not folder.exists()
    run("copy", URL, "json-orders", str(tmp_path / "lake"), *options)

    assert len(known(str(folder))) == 1
