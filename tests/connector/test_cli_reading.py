"""The commands `topics`, `ledgers`, `head` and `plan`, over golden topics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from connector import open_catalog
from connector.catalog.tables import ledgers_table, topics_table
from tests.support.buckets import (
    golden_objects,
    memory_bucket,
    object_name,
    offload,
    with_lost_entries,
)
from tests.support.command_line import (
    INCOMPLETE,
    LEDGERS,
    ORDERS,
    UNREADABLE,
    URL,
    cells,
    lines_of,
    run,
    unsound_ledgers,
)
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic
from tests.support.owned_bucket import OwnedBucket

if TYPE_CHECKING:
    from pathlib import Path


def incomplete_ledger() -> dict[str, bytes]:
    """A topic of 13 entries, of which the offloader lost the last 5, as its index object tells."""
    ledger = ORDERS.ledgers[0]
    written = with_lost_entries(ledger.index_object.read_bytes(), 5)
    return golden_objects(ORDERS) | {ledger.index_object.name: written}


def offloaded(payload: bytes) -> dict[str, bytes]:
    """A topic of one message."""
    message = Message(payload=payload)
    entry = encode_entry([message], batched=False, producer_name="p", sequence_id=0, publish_time=1)
    return offload([(7, [entry])])


# topics


def test_topics_lists_what_the_broker_offloaded() -> None:
    """Each golden topic has one line, with its ledgers and entries; partitions are one topic."""
    expected = topics_table(open_catalog(URL)).to_pylist()

    assert lines_of("topics", URL) == expected
    assert "persistent://public/default/partitioned" in [row["topic"] for row in expected]


def test_topics_tells_what_older_metadata_does_not_have(tmp_path: Path) -> None:
    """A listing leaves as little out without a word as a read does."""
    bucket = OwnedBucket.copied(tmp_path)
    known = bucket.known("persistent://public/default/small-chunked")
    bucket.tell(replace(known, ledgers=known.ledgers[:-2]))
    arguments = ("topics", str(bucket.objects), "small-chunked", "--metadata", str(bucket.metadata))

    [row] = lines_of(*arguments, ends=INCOMPLETE)

    assert row["unlisted_ledgers"] == 1
    assert "the bucket has 1 ledger that the metadata" in run(*arguments, ends=INCOMPLETE).stderr


def test_topics_as_a_table_takes_a_pattern() -> None:
    """Without --json, the same stands in a table; a glob picks topics."""
    header, *rows = cells(run("topics", URL, "multi-*").stdout)

    assert header == ["topic", "partitions", "segments", "ledgers", "entries", "bytes", "unsound"]
    assert [row[0].rpartition("/")[2] for row in rows] == ["multi-block", "multi-ledger"]
    assert rows[1][1:5] == ["0", "0", "6", "135"]


@pytest.mark.parametrize(
    ("options", "ends"), [([], UNREADABLE), (["--on-corruption", "salvage"], INCOMPLETE)]
)
def test_topics_tells_unsound_ledgers(options: list[str], ends: int) -> None:
    """A ledger without its data object is counted and told, and the exit code tells of it."""
    missing = LEDGERS.ledgers[2]
    with memory_bucket(unsound_ledgers()) as bucket:
        [row] = lines_of("topics", bucket.url, *options, ends=ends)
        result = run("topics", bucket.url, *options, ends=ends)

    assert (row["ledgers"], row["unsound"]) == (5, 1)
    assert missing.data_object.name in row["problems"][0]
    assert cells(result.stdout)[1][-1] == "1"
    assert result.stderr.startswith("unsound: ")
    assert missing.data_object.name in result.stderr


def test_topics_tells_ledgers_that_belong_to_no_topic() -> None:
    """A ledger of which nothing tells the topic is told, in JSON as a line without a topic."""
    index_object = ORDERS.ledgers[0].index_object.name
    with memory_bucket(golden_objects(LEDGERS) | {index_object: b"no index"}) as bucket:
        *_, row = lines_of("topics", bucket.url, ends=UNREADABLE)
        result = run("topics", bucket.url, ends=UNREADABLE)

    assert row["topic"] is None
    assert index_object in row["problems"][0]
    assert result.stderr.count("unsound: ") == 1
    assert len(cells(result.stdout)) == 2


def test_topics_tells_offloads_that_never_completed() -> None:
    """A data object without an index object is a note, and no reason for another exit code."""
    with memory_bucket(golden_objects(LEDGERS) | {object_name(5).data_name: b""}) as bucket:
        result = run("topics", bucket.url)

    assert result.stderr == "note: 1 offload never completed: the index object is missing\n"


# ledgers


def test_ledgers_lists_each_ledger() -> None:
    """Each ledger has a line: ids, uuid, entries, blocks, bytes, and when it was offloaded."""
    listed = lines_of("ledgers", URL, "multi-ledger")

    assert [row.pop("offloaded")[-1] for row in listed] == ["Z"] * 6
    assert [row.pop("created")[:10] for row in listed] == ["2026-11-21"] * 6
    expected = ledgers_table(open_catalog(URL), "multi-ledger")
    assert listed == expected.drop_columns(["offloaded", "created"]).to_pylist()
    assert [row["uuid"] for row in listed] == [ledger.uuid for ledger in LEDGERS.ledgers]


def test_ledgers_notes_what_is_odd_yet_harmless() -> None:
    """Bytes behind a data object's end are a note, and no reason for another exit code."""
    objects = golden_objects(ORDERS)
    objects[ORDERS.ledgers[0].data_object.name] += b"more"
    with memory_bucket(objects) as bucket:
        result = run("ledgers", bucket.url, "json-orders")
        [row] = lines_of("ledgers", bucket.url, "json-orders")

    assert result.stderr.startswith("note: ")
    assert len(row["warnings"]) == 1


@pytest.mark.parametrize("command", [["topics"], ["ledgers"]])
def test_entries_that_the_offloader_lost_are_told(command: list[str]) -> None:
    """A ledger whose last entries are nowhere is listed, with which they are."""
    with memory_bucket(incomplete_ledger()) as bucket:
        [row] = lines_of(*command, bucket.url, "json-orders", ends=UNREADABLE)
        result = run(*command, bucket.url, "json-orders", ends=UNREADABLE)

    assert (row["entries"], len(row["problems"])) == (13, 1)
    assert "unsound: entries 8 … 12 were lost when the ledger was offloaded" in result.stderr


# head


def test_head_prints_the_first_messages_whole() -> None:
    """JSON lines hold the first rows of the topic, in its order, with complete values."""
    listed = lines_of("head", URL, "json-orders", "-n", "3", "--columns", "__key__, __value__")

    assert [set(row) for row in listed] == [{"__key__", "__value__"}] * 3
    assert [row["__key__"] for row in listed] == [row["key"] for row in ORDERS.messages()[:3]]
    assert json.loads(listed[1]["__value__"])["orderId"] == 1


def test_head_gives_ten_rows_of_the_default_columns() -> None:
    """Without options, ten rows of the default columns are printed, properties as an object."""
    listed = lines_of("head", URL, "json-orders")

    assert len(listed) == 10
    assert listed[0]["__properties__"] == ORDERS.messages()[0]["properties"]
    assert listed[0]["__publish_time__"] == "2026-11-21T12:48:25.123Z"


def test_head_with_uncommitted_messages() -> None:
    """--transactions all gives the messages of aborted and open transactions too."""
    topic = golden_topic("transactions-open")
    arguments = ("head", URL, "transactions-open", "-n", "1000", "--columns", "__entry_id__")

    committed = lines_of(*arguments, ends=INCOMPLETE)
    everything = lines_of(*arguments, "--transactions", "all")

    assert len(committed) >= topic.message_count
    assert len(everything) == len(committed) + 6 + 7


@pytest.mark.parametrize(
    ("payload", "in_json", "in_table"),
    [
        (b"plain text", "plain text", "plain text"),
        ("Ünïcödé 数据".encode(), "Ünïcödé 数据", "Ünïcödé 数据"),
        (b"two\nlines", "two\nlines", "two\\nlines"),
        (b"\xff\x00\x01", {"base64": "/wAB"}, "0xff0001"),
        (b"\x1b[2Jgone", "\x1b[2Jgone", "0x1b5b324a676f6e65"),
        (b"[red]not a style[/red]", "[red]not a style[/red]", "[red]not a style[/red]"),
    ],
    ids=["text", "unicode", "lines", "binary", "escapes", "markup"],
)
def test_payloads_are_shown_as_what_they_are(
    payload: bytes, in_json: object, in_table: str
) -> None:
    """Payloads are text where they are UTF-8, else Base64 or hexadecimal, and steer no terminal."""
    with memory_bucket(offloaded(payload)) as bucket:
        arguments = ("head", bucket.url, "orders", "--columns", "__value__")
        listed = lines_of(*arguments)
        result = run(*arguments)

    assert listed == [{"__value__": in_json}]
    assert cells(result.stdout) == [["__value__"], [in_table]]


# plan


def test_plan_tells_what_a_read_asks_for() -> None:
    """Requests and bytes are those that the scan then takes."""
    [whole] = lines_of("plan", URL, "multi-ledger", "--range-bytes", "4000")

    sizes = [ledger.data_object.stat().st_size for ledger in LEDGERS.ledgers]
    assert whole["bytes"] == sum(sizes) == sum(row["bytes"] for row in whole["ranges"])
    assert whole["requests"] == sum(-(-size // 4000) for size in sizes)
    assert whole["tasks"] == 1
    assert whole["requests_sent"] == 53
    result = run(
        "query", URL, 'SELECT count(__value__) FROM "multi-ledger"', "--range-bytes", "4000"
    )
    assert f"{whole['requests'] + 53} requests" in result.stderr


def test_plan_as_a_table_takes_bounds() -> None:
    """Ledgers outside of the bounds are not in the table; sums stand below it."""
    start = LEDGERS.ledgers[4].ledger_id

    result = run("plan", URL, "multi-ledger", "--start", f"{start}:1")

    header, *rows = cells(result.stdout)
    assert [row[header.index("ledger_id")] for row in rows] == [str(start), str(start + 1)]
    assert [row[header.index("first_entry_id")] for row in rows] == ["1", "0"]
    assert "to read, in 1 task: 2 requests, 12 kB\n" in result.stdout
    assert "already read: 53 requests" in result.stdout
