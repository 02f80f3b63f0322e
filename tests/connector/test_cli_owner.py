"""The commands `cost` and `policy`, over golden topics."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.admin_server import running_admin_server
from tests.support.buckets import golden_objects, memory_bucket
from tests.support.command_line import (
    INCOMPLETE,
    LEDGERS,
    NOT_FOUND,
    STORAGE,
    URL,
    USAGE,
    Row,
    cells,
    lines_of,
    run,
    unsound_ledgers,
)
from tests.support.golden import GOLDEN, golden_topic
from tests.support.owned_bucket import SMALL, OwnedBucket, gone

if TYPE_CHECKING:
    from pathlib import Path

METADATA: Final = str(GOLDEN / "pulsar-4.0.7")
PRICES: Final = """
currency = "EUR"
as_of = 2026-01-31
list_per_1000 = 1000
get_per_1000 = 100
put_per_1000 = 0
egress_per_gb = 0
stored_per_gb_month = 1024
"""
IDS: Final = [ledger.ledger_id for ledger in LEDGERS.ledgers]
SIZES: Final = [ledger.data_object.stat().st_size for ledger in LEDGERS.ledgers]


def cost_of(*arguments: str, ends: int = 0) -> Row:
    """The line that `cost` prints as JSON."""
    [line] = lines_of("cost", *arguments, ends=ends)
    return line


# cost


def test_cost_is_plan_with_money() -> None:
    """Requests and bytes of the data are those of plan; what opening costs comes on top."""
    arguments = ("multi-ledger", "--range-bytes", "4000", "--start", f"{IDS[1]}:0")

    whole = cost_of(URL, *arguments)
    [plan] = lines_of("plan", URL, *arguments)

    assert (whole["data"]["requests"], whole["data"]["bytes"]) == (plan["requests"], plan["bytes"])
    opening = [whole[part] for part in ("listing", "head", "index_objects")]
    assert sum(each["requests"] for each in opening) == plan["requests_sent"]
    assert sum(each["bytes"] for each in opening) == plan["bytes_received"]
    assert whole["total"]["requests"] == plan["requests_sent"] + plan["requests"]
    assert whole["tasks"] == plan["tasks"]


def test_cost_takes_a_price_table(tmp_path: Path) -> None:
    """Money is that of the table, and no note says that it is an example."""
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)

    result = run("cost", URL, "multi-ledger", "--prices", str(path), "--json")

    whole = json.loads(result.stdout)
    assert result.stderr == ""
    assert (whole["currency"], whole["as_of"]) == ("EUR", "2026-01-31")
    assert float(whole["listing"]["money"]) == 1
    assert float(whole["data"]["money"]) == pytest.approx(0.6)
    assert float(whole["total"]["money"]) == pytest.approx(1 + 5.2 + 0.6)
    kept = sum(SIZES) + sum(each.index_object.stat().st_size for each in LEDGERS.ledgers)
    assert whole["stored"]["bytes"] == kept
    assert float(whole["stored"]["money_per_month"]) == pytest.approx(kept / 2**20)


def test_cost_as_a_table(tmp_path: Path) -> None:
    """Each kind of request that is sent has a line, and a text of the file steers no terminal."""
    path = tmp_path / "prices.toml"
    path.write_text(PRICES.replace("EUR", r"E\u001b[2J"))

    table = run("cost", URL, "multi-ledger", "--prices", str(path)).stdout

    header, *rows = cells(table)
    assert header == ["what", "requests", "bytes", "money (E\\x1b[2J)"]
    assert [row[0] for row in rows] == ["listing", "index objects", "data", "total"]
    assert rows[2] == ["data", "6", str(sum(SIZES)), "0.600000"]
    assert "data in 1 task\n" in table
    assert "a month\n" in table


@pytest.mark.parametrize(
    ("sql", "ledgers"),
    [
        ("FROM read_pulsar('multi-ledger')", [0, 1, 2, 3, 4, 5]),
        ('SELECT count(*) FROM "multi-ledger" LIMIT 1', [0, 1, 2, 3, 4, 5]),
        (f"FROM read_pulsar('multi-ledger', start := [{IDS[4]}, 0])", [4, 5]),
        (f"FROM read_pulsar('multi-ledger', \"end\" := [{IDS[1]}, 0])", [0]),
        (
            'FROM "multi-ledger" a JOIN "multi-ledger" b USING (__entry_id__)',
            [0, 1, 2, 3, 4, 5] * 2,
        ),
        ("SELECT 'multi-ledger' AS n", []),
    ],
    ids=["whole", "limit", "start", "end", "twice", "not read"],
)
def test_cost_of_a_query(sql: str, ledgers: list[int]) -> None:
    """Each topic counts as often as the query names it, within its bounds; nothing is read."""
    whole = cost_of(URL, "--sql", sql, "--value", "raw")

    assert whole["data"]["requests"] == len(ledgers)
    assert whole["data"]["bytes"] == sum(SIZES[number] for number in ledgers)
    assert (whole["stored"]["bytes"] > 0) == bool(ledgers)


def test_cost_of_a_query_is_what_it_takes() -> None:
    """A query that reads all that it names sends exactly the requests foreseen."""
    sql = 'SELECT count(__value__) FROM "multi-ledger"'

    whole = cost_of(URL, "--sql", sql, "--value", "raw", "--range-bytes", "3000")

    told = run("query", URL, sql, "--value", "raw", "--range-bytes", "3000").stderr
    assert f" {whole['total']['requests']} requests " in told


@pytest.mark.parametrize(
    ("arguments", "ends", "said"),
    [
        ([], USAGE, "a topic or --sql"),
        (["multi-ledger", "--sql", "SELECT 1"], USAGE, "a topic or --sql"),
        (["--sql", ""], USAGE, "no statement"),
        (["--sql", "SELECT 1; SELECT 2"], USAGE, "one SELECT"),
        (["--sql", "CREATE TABLE t AS SELECT 1"], USAGE, "one SELECT"),
        (["--sql", 'PIVOT "multi-ledger" ON __partition__ USING count(*)'], USAGE, "one SELECT"),
        (["--sql", "CHOOSE 1"], USAGE, "Parser Error"),
        (["--sql", "FROM read_pulsar('multi-ledge')"], NOT_FOUND, "did you mean"),
        (["multi-ledge"], NOT_FOUND, "did you mean"),
        (["--sql", "SELECT 1", "--where", "x = 1"], USAGE, "--where is only for a topic"),
        (["multi-ledger", "--where", "x = 1"], USAGE, "there is no column x"),
        (["multi-ledger", "--metadata-option", "token"], USAGE, "--metadata-option must be"),
        (["multi-ledger", "--bucket", "a=b"], USAGE, "without --metadata"),
        (["multi-ledger", "--prices", "no/such/file"], USAGE, "no price table"),
    ],
)
def test_cost_refuses(arguments: list[str], ends: int, said: str) -> None:
    """What cannot be told a cost of is an error of one line."""
    result = run("cost", URL, *arguments, "--value", "raw", ends=ends)

    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["cost", "plan"])
def test_ledgers_that_would_be_left_out_are_told(command: str) -> None:
    """What a salvaging read would lose is a note before it is read, too."""
    with memory_bucket(unsound_ledgers()) as bucket:
        arguments = (command, bucket.url, "multi-ledger", "--on-corruption", "salvage")
        result = run(*arguments, ends=INCOMPLETE)

    assert "1 × ledger lost: MissingObjectError" in result.stderr


CHUNKED: Final = golden_topic("small-chunked")


def test_cost_by_the_metadata(tmp_path: Path) -> None:
    """What the metadata lists is read, wherever it is; a ledger that it does not have is not."""
    bucket = OwnedBucket.copied(tmp_path)
    topic = (str(bucket.objects), CHUNKED.name)
    known = ("--metadata", str(bucket.metadata))
    whole, by_metadata = cost_of(*topic), cost_of(*topic, *known)
    assert by_metadata["index_objects"]["requests"] == len(CHUNKED.ledgers)
    for part in ("listing", "data", "stored"):
        assert by_metadata[part] == whole[part]
    bucket.change(CHUNKED.name, {CHUNKED.ledgers[0].ledger_id: gone})
    other = tmp_path / "other"
    other.mkdir()
    for path in (CHUNKED.ledgers[3].data_object, CHUNKED.ledgers[3].index_object):
        shutil.move(bucket.objects / path.name, other)

    rest = cost_of(*topic, *known, "--bucket", f"goldensmall={other}")
    query = f"FROM read_pulsar('{CHUNKED.name}')"
    asked = cost_of(topic[0], "--sql", query, *known, "--bucket", f"goldensmall={other}")

    trimmed_bytes = CHUNKED.ledgers[0].data_object.stat().st_size
    assert rest["data"]["requests"] == whole["data"]["requests"] - 1
    assert rest["data"]["bytes"] == whole["data"]["bytes"] - trimmed_bytes
    assert asked["data"] == rest["data"]
    assert "the metadata says" in run("cost", *topic, *known, ends=STORAGE).stderr


def test_cost_of_opening_a_snapshot_is_none(tmp_path: Path) -> None:
    """No listing and no index object is read, so none is counted."""
    path = str(tmp_path / "catalog.json.gz")
    run("save", URL, path)

    whole = cost_of(URL, "multi-ledger", "--metadata", path)

    assert whole["listing"]["requests"] == whole["index_objects"]["requests"] == 0
    assert whole["total"] == whole["data"]
    assert whole["data"]["bytes"] == sum(SIZES)


@pytest.mark.parametrize("name", ["cost", "policy"])
def test_options_of_metadata_reach_it(name: str) -> None:
    """A cluster that wants a token gets it, and without it nothing is told."""
    objects = str(GOLDEN / SMALL / "objects")
    given = (*LAG, "--json") if name == "policy" else ("--json",)
    with running_admin_server(SMALL, token="letmein") as server:
        arguments = (name, objects, CHUNKED.name, "--metadata", server.url, *given)
        token = ("--metadata-option", "token=letmein")
        known = run(*arguments, *token, "--bucket", "old=no/such/folder").stdout
        refused = run(*arguments, ends=STORAGE).stderr

    assert known
    assert refused.startswith("error: ")


# policy

LAG: Final = ("--set", "managedLedgerOffloadDeletionLagMs=4h")
KEEP: Final = ("--set", "retentionTimeInMinutes=-1", "--set", "retentionSizeInMB=-1")


def fates_of(*arguments: str) -> list[Row]:
    """The lines that `policy` prints as JSON of a topic with metadata."""
    return lines_of("policy", URL, "multi-ledger", "--metadata", METADATA, *arguments)


def test_policy_of_what_is_offloaded() -> None:
    """Copies in BookKeeper go 4 hours after the offload; the open ledger stays."""
    before = fates_of(*KEEP, "--at", "2026-11-21T16:00:00")
    after = fates_of(*LAG, *KEEP, "--at", "2026-11-21T18:00:00+01:00")

    assert [row["ledger_id"] for row in after] == [*IDS, 192]
    assert [row["action"] for row in after] == ["delete BookKeeper copy"] * 6 + ["keep"]
    assert [row["due"] for row in before] == [False] * 7
    assert [row["due"] for row in after] == [True] * 6 + [False]
    assert after[0]["when"] == before[0]["when"] == "2026-11-21T16:48:43.873Z"
    assert [row["bytes"] for row in after[:6]] == [each.length_bytes for each in LEDGERS.ledgers]
    assert {row["topic"] for row in after} == {LEDGERS.name}


def test_policy_takes_a_broker_conf(tmp_path: Path) -> None:
    """What --set gives replaces what stands in the file."""
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "defaultRetentionTimeInMinutes=0\nmanagedLedgerOffloadDriver=aws-s3\n"
        "managedLedgerOffloadDeletionLagMs=-1\ndefaultRetentionSizeInMB=-1\n"
    )
    at = ("--at", "2026-12-01")

    by_conf = fates_of("--conf", str(conf), *at)
    by_both = fates_of("--conf", str(conf), "--set", "retentionTimeInMinutes=9w", *at)

    assert [row["action"] for row in by_conf] == ["trim"] * 6 + ["keep"]
    assert all(row["due"] for row in by_conf[:6])
    assert not any(row["due"] for row in by_both)


def test_policy_tells_which_defaults_it_takes() -> None:
    """A retention time without a size keeps nothing, which a user must learn before it is so."""
    arguments = ("policy", URL, "multi-ledger", "--metadata", METADATA)

    result = run(*arguments, "--set", "retentionTimeInMinutes=9w")
    given = run(*arguments, *LAG, *KEEP)

    assert result.stderr == (
        "note: broker defaults of missing settings:"
        " managedLedgerOffloadDeletionLagMs=14400000, defaultRetentionSizeInMB=0\n"
    )
    assert "now: trim 6 ledgers" in result.stdout
    assert given.stderr == ""


def test_policy_as_a_table_has_totals() -> None:
    """Below the ledgers stand number and size of what goes now, later, or stays."""
    last_entry_id = LEDGERS.ledgers[1].entry_count - 1
    arguments = (
        *LAG, "--set", "retentionSizeInMB=0", "--set", "retentionTimeInMinutes=-1",
        "--consumed-to", f"{IDS[1]}:{last_entry_id}",
    )  # fmt: skip

    result = run("policy", URL, "multi-ledger", "--metadata", METADATA, *arguments)

    header, *rows = cells(result.stdout)
    assert header == ["topic", "ledger_id", "action", "due", "when", "bytes", "reason"]
    assert len(rows) == 7
    trimmed = sum(each.length_bytes for each in LEDGERS.ledgers[:2])
    assert f"now: trim 2 ledgers, {trimmed / 1000:.1f} kB\n" in result.stdout
    assert result.stdout.endswith("keep 1 ledger, 0 B\n")
    assert result.stderr == ""


def test_policy_without_metadata_knows_what_is_offloaded() -> None:
    """The bucket alone tells sizes and times of offload, and a note says so."""
    with memory_bucket(golden_objects(LEDGERS)) as bucket:
        result = run("policy", bucket.url, "multi-ledger", *LAG, *KEEP, "--json")

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["ledger_id"] for row in rows] == IDS
    assert [row["action"] for row in rows] == ["delete BookKeeper copy"] * 6
    assert "only offloaded ledgers are known" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "ends", "said"),
    [
        (["multi-ledger"], USAGE, "give --conf or --set"),
        (["multi-ledger", "--set", "retention"], USAGE, "NAME=VALUE"),
        (["multi-ledger", "--set", "retention=1"], USAGE, "retentionSizeInMB"),
        (["multi-ledger", "--conf", "no/such/file"], USAGE, "no/such/file cannot be read: No such"),
        (["multi-ledger", *LAG, "--at", "soon"], USAGE, "'soon'"),
        (["multi-ledger", *LAG, "--consumed-to", "last"], USAGE, "'last'"),
        (["multi-*", *LAG, "--consumed-to", "1:1"], USAGE, "one topic or partition, but 2 are"),
        (
            ["multi-ledger", *LAG, "--metadata", METADATA, "--consumed-to", "1:1"],
            USAGE,
            "has no position 1:1: it has 7 ledgers, 85",
        ),
        (["multi-ledge", *LAG], NOT_FOUND, "did you mean"),
        (["multi-ledger", *LAG, "--metadata-option", "token"], USAGE, "--metadata-option must be"),
        (
            ["multi-ledger", *LAG, "--bucket", "a"],
            USAGE,
            "--bucket must be NAME=URL, such as archive=s3://archive, not 'a'",
        ),
    ],
)
def test_policy_refuses(arguments: list[str], ends: int, said: str) -> None:
    """What is no setting, time or position is an error of one line."""
    result = run("policy", URL, *arguments, ends=ends)

    assert said in result.stderr
    assert result.stdout == ""


def test_policy_reads_no_endless_conf(tmp_path: Path) -> None:
    """A file that is no broker.conf is not read whole."""
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"#" * (1 << 21))

    assert "too long for" in run("policy", URL, "x", "--conf", str(conf), ends=USAGE).stderr
