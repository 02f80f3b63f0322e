"""`pulsar-offload demo`: the bucket of the package, and what it answers."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

import connector
from connector import open_topic
from connector.cli.demo import SQL
from tests.support.command_line import USAGE, lines_of, run
from tests.support.golden import GOLDEN

BUCKET: Final = Path(connector.__file__).parent / "demo-bucket"
SET: Final = GOLDEN / "pulsar-4.0.7-demo"
COLUMNS: Final = (
    "__ledger_id__", "__entry_id__", "__batch_index__", "__publish_time__", "__event_time__",
    "__producer_name__", "__key__",
)  # fmt: skip


@pytest.fixture(scope="module")
def messages() -> list[dict[str, Any]]:
    """What Pulsar's client read back of the offloaded topic."""
    with gzip.open(SET / "messages.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_the_bucket_holds_what_a_broker_wrote() -> None:
    """Each object of the set is there in its size, and nothing but the topic's metadata besides."""
    described = json.loads((SET / "objects.json").read_text("utf-8"))
    files = {path.name: path.stat().st_size for path in BUCKET.iterdir() if path.is_file()}

    assert files == {name: each["size"] for name, each in described.items()}
    assert {path.name for path in (BUCKET / "public" / "default" / "orders").iterdir()} == {
        "managed-ledger-info.bin",
        "schemas-rest.json",
    }


def test_every_row_is_that_of_pulsars_client(messages: list[dict[str, Any]]) -> None:
    """Positions, times, keys and values of the topic equal those that the client returned."""
    rows = open_topic(str(BUCKET), "orders", metadata=str(BUCKET)).to_table().to_pylist()

    found = [
        (
            *(row[name] for name in COLUMNS[:3]),
            *(round(row[name].timestamp() * 1000) for name in COLUMNS[3:5]),
            *(row[name] for name in COLUMNS[5:]),
            {name: row[name] for name in ("orderId", "status", "customer", "items", "total")},
            row["coupon"],
        )
        for row in rows
    ]
    assert found == [
        (
            *(each[name] for name in ("ledger", "entry", "batch", "publish_time", "event_time")),
            *(each[name] for name in ("producer", "key")),
            {name: value for name, value in each["value"].items() if name != "coupon"},
            each["value"].get("coupon"),
        )
        for each in messages
    ]


def test_the_answer_is_right(messages: list[dict[str, Any]]) -> None:
    """Orders and revenue by country are those of the messages that the client read."""
    totals = defaultdict(list)
    for value in (each["value"] for each in messages):
        if value["status"] == "PAID":
            totals[value["customer"]["country"]].append(value["total"])

    answer = lines_of("demo")
    assert answer == sorted(answer, key=lambda row: -row["revenue"])
    assert {row["country"]: (row["orders"], row["revenue"]) for row in answer} == {
        country: (len(each), round(sum(each), 2)) for country, each in totals.items()
    }


def test_the_table_has_the_statement_and_what_to_try_next() -> None:
    """The statement comes first, commands to type last."""
    printed = run("demo").stdout

    assert printed.startswith(SQL)
    assert "Next:\n  pulsar-offload demo --copy shop\n" in printed


def test_a_copy_can_be_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that is printed next works on the copy, whose name has a space."""
    monkeypatch.chdir(tmp_path)

    printed = run("demo", "--copy", "a shop").stdout

    assert "pulsar-offload head 'a shop' orders --metadata 'a shop'" in printed
    assert len(lines_of("head", "a shop", "orders", "--metadata", "a shop", "--rows", "3")) == 3
    assert run("audit", "a shop", "--metadata", "a shop").stdout == (
        "1 topic, 3 ledgers: nothing found\n"
    )


@pytest.mark.parametrize(("folder", "said"), [(".", "exists"), ("file/new", "Not a directory")])
def test_a_copy_replaces_nothing(
    folder: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that exists, or cannot be created, is an error that names it."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()

    result = run("demo", "--copy", folder, ends=USAGE)

    assert said in result.stderr
    assert folder in result.stderr
    assert result.stdout == ""
