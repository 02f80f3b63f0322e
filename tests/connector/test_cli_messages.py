"""The commands `tail` and `get`, and the last rows of a dataset."""

from __future__ import annotations

import json
import weakref
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import typer

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector import open_topic
from connector.cli import messages
from connector.scan.execution import execute
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.command_line import INCOMPLETE, LEDGERS, URL, USAGE, lines_of, run
from tests.support.entries import Message, encode_entry
from tests.support.golden import golden_topic

_ID: Final = ("__topic__", "__ledger_id__", "__entry_id__", "__batch_index__")


def _id_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _ID)


@pytest.mark.parametrize(
    "name", ["multi-ledger", "partitioned", "small-chunked", "small-transactions", "compacted"]
)
@pytest.mark.parametrize("view", ["all", "latest"])
def test_the_last_rows_are_those_of_a_whole_read(name: str, view: Any) -> None:  # noqa: ANN401
    """Of each partition; chunks and transactions begin before them."""
    set_name = "pulsar-4.0.7-small" if name.startswith("small") else "pulsar-4.0.7"
    url = URL.replace("pulsar-4.0.7", set_name)
    dataset = open_topic(url, name, value="raw", columns=["*", *_ID], view=view)
    whole: dict[str, list[dict[str, Any]]] = {}
    for row in dataset.to_table().to_pylist():
        whole.setdefault(row["__topic__"], []).append(row)
    most = max(map(len, whole.values()))
    for count in (0, 1, 7, most - 1, most, most + 1):
        expected = [row for rows in whole.values() for row in rows[max(0, len(rows) - count) :]]
        assert dataset.tail(count).to_pylist() == expected


def test_the_last_rows_pass_a_filter() -> None:
    """However far before the end they stand."""
    entries = [
        encode_entry([Message(payload=b"value", partition_key=f"key-{n // 90}")], batched=False)
        for n in range(100)
    ]
    with memory_bucket(offload([(3, entries[:60]), (4, entries[60:])], block_bytes=900)) as bucket:
        trace = RequestTrace()
        dataset = open_topic(bucket.url, TOPIC, value="raw", trace=trace)
        before = trace.counts.received_bytes
        last = dataset.tail(2, ["__ledger_id__", "__entry_id__"])
        assert last.to_pydict() == {"__ledger_id__": [4, 4], "__entry_id__": [38, 39]}
        assert trace.counts.received_bytes - before <= 2 * 900
        found = dataset.tail(3, ["__entry_id__"], pc.field("__key__") == "key-0")
        assert found.column(0).to_pylist() == [27, 28, 29]
        with pytest.raises(OptionError, match="num_rows"):
            dataset.tail(-1)
        assert isinstance(dataset.tail(0), pa.Table)


def test_the_end_of_a_topic_is_not_read_for_each_ledger() -> None:
    """An open transaction is looked for to the end, but only a few times."""
    open_ = encode_entry(
        [Message(payload=b"t")], batched=False, txnid_most_bits=1, txnid_least_bits=2
    )
    ledgers = [(n, [open_, *[encode_entry([Message()], batched=False)] * 3]) for n in range(40)]
    with memory_bucket(offload(ledgers)) as bucket:
        trace = RequestTrace()
        dataset = open_topic(bucket.url, TOPIC, value="raw", trace=trace)
        with pytest.warns(UserWarning, match="40 messages"):
            assert dataset.tail(3, filter=pc.field("__key__") == "none").num_rows == 0
    assert trace.counts.range_requests < 40 * 5


def test_rows_that_are_not_among_the_last_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pass a filter farther from the end than was looked at first."""
    entries = [
        encode_entry([Message(payload=b"v", partition_key="ab"[n >= 90])], batched=False)
        for n in range(100)
    ]
    held: list[weakref.ref[pa.RecordBatch]] = []
    most = 0

    def counted(*given: Any) -> Any:  # noqa: ANN401
        nonlocal most
        for batch in execute(*given):
            held.append(weakref.ref(batch))
            most = max(most, sum(each() is not None for each in held))
            yield batch
            del batch

    with memory_bucket(offload([(3, entries)])) as bucket:
        dataset = open_topic(bucket.url, TOPIC, value="raw", batch_rows=1)
        monkeypatch.setattr("connector.scan.scanner.execute", counted)
        found = dataset.tail(2, ["__entry_id__"], pc.field("__key__") == "a")
    assert found.column(0).to_pylist() == [88, 89]
    assert len(held) > 20
    assert most <= 5


def test_tail_prints_the_last_messages() -> None:
    """Of a partitioned topic those that were published last, whatever columns are shown."""
    shown = ("--columns", ",".join(_ID))
    for topic in (LEDGERS, golden_topic("partitioned-partition-0")):
        name = topic.name.rpartition("/")[2].removesuffix("-partition-0")
        rows = open_topic(URL, name, value="raw", columns=[*_ID, "__publish_time__"]).to_table()
        rows = rows.sort_by("__publish_time__").slice(rows.num_rows - 4)

        found = lines_of("tail", URL, name, "-n", "4", *shown)

        assert list(map(_id_of, found)) == list(map(_id_of, rows.to_pylist()))
        assert run("tail", URL, name, "-n", "0", "--value", "raw").stdout.count("\n") == 4


def test_get_finds_messages_by_id_key_and_property() -> None:
    """An id without a batch index is all of an entry; what is known of each is a line."""
    rows = (
        open_topic(URL, "json-orders", value="raw", columns=[*_ID, "__key__", "__properties__"])
        .to_table()
        .to_pylist()
    )
    cases = {
        ("49:5",): [each for each in rows if each["__entry_id__"] == 5],
        ("(49,7,3)", "49:7:-1:4"): [
            each for each in rows if each["__entry_id__"] == 7 and each["__batch_index__"] in {3, 4}
        ],
        ("--key", "key-3", "--key", "key-4"): [
            each for each in rows if each["__key__"] in {"key-3", "key-4"}
        ],
        ("--property", "n=252"): [
            each for each in rows if dict(each["__properties__"]).get("n") == "252"
        ],
    }
    for asked, expected in cases.items():
        found = lines_of("get", URL, "json-orders", *asked, "--value", "raw")
        assert list(map(_id_of, found)) == list(map(_id_of, expected))
        assert expected
    told = run("get", URL, "json-orders", "(49,7,3)", "--value", "raw").stdout.splitlines()
    assert told[0].startswith("── row 1 ─")
    assert any(line.split() == ["__broker_index__", "353"] for line in told)
    assert any(line.split() == ["__topic__", golden_topic("json-orders").name] for line in told)


def test_get_tells_what_is_not_there_and_what_is_no_id() -> None:
    """A message that is there is printed all the same."""
    found = run("get", URL, "json-orders", "49:7:-1:3", "99:1", "--json", ends=INCOMPLETE)
    assert len(found.stdout.splitlines()) == 1
    assert json.loads(found.stdout)["__message_id__"] == "(49,7,3)"
    assert "note: there is no message 99:1\n" in found.stderr
    as_member = run("get", URL, "json-orders", "49:7:3", ends=INCOMPLETE).stderr
    hint = "in partition 3; if 3 is the index in the entry's batch, type '(49,7,3)'"
    assert f"note: there is no message 49:7:3 {hint}\n" in as_member
    for asked, said in (
        (("soon",), "'soon' is not the id of a message"),
        (("-1:-1",), "No such option"),
        (("--property", "n"), "--property must be NAME=VALUE, not 'n'"),
        ((), "give at least one message id, --key or --property"),
    ):
        assert said in run("get", URL, "json-orders", *asked, ends=USAGE).stderr


def test_an_id_takes_few_requests() -> None:
    """The rest of the ledger is not read."""
    entries = [encode_entry([Message(payload=bytes(1000))], batched=False) for _ in range(4000)]
    with memory_bucket(offload([(3, entries)], block_bytes=100_000)) as bucket:
        trace = RequestTrace()
        dataset = open_topic(bucket.url, TOPIC, value="raw", trace=trace)
        before = trace.counts
        wanted = (pc.field("__ledger_id__") == 3) & (pc.field("__entry_id__") == 2000)
        assert dataset.to_table(filter=wanted).num_rows == 1
        assert trace.counts.range_requests - before.range_requests == 1


def test_tail_follows_what_is_offloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ledger that comes is printed once; one that was there is not printed again."""
    ledgers = [
        (number, [encode_entry([Message(payload=b"%d" % number)], batched=False)])
        for number in range(3, 7)
    ]
    coming = iter([ledgers[2:3], [], ledgers[3:]])
    with memory_bucket(offload(ledgers[:2])) as bucket:

        def come(seconds: float) -> None:
            assert seconds == 90
            more = next(coming, None)
            if more is None:
                raise typer.Exit
            bucket.put(offload(more))

        monkeypatch.setattr(messages, "_wait", come)
        found = lines_of(
            "tail", bucket.url, TOPIC, "-n1", "--follow", "--interval", "90s", "--value", "raw"
        )
    assert [each["__value__"] for each in found] == ["4", "5", "6"]


def test_tail_waits_for_a_topic_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be followed may not have begun; that it is waited for is said once."""
    ledgers = [
        (number, [encode_entry([Message(payload=b"%d" % number)], batched=False)])
        for number in (3, 4)
    ]
    coming = iter([[], ledgers[:1], [], ledgers[1:]])
    with memory_bucket({"notes.txt": b"x"}) as bucket:

        def come(_seconds: float) -> None:
            more = next(coming, None)
            if more is None:
                raise typer.Exit
            bucket.put(offload(more))

        monkeypatch.setattr(messages, "_wait", come)
        result = run("tail", bucket.url, TOPIC, "--follow", "--value", "raw", "--json")

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["__value__"] for each in found] == ["3", "4"]
    assert result.stderr.count("note: waiting: no offloaded topic ") == 1


@pytest.mark.parametrize("option", [("--end", "9:0"), ("--view", "latest")])
def test_tail_follows_without_an_end_and_all_messages(option: tuple[str, str]) -> None:
    """What comes would not be what is asked for, or nothing would come, without a word."""
    result = run("tail", "memory://nowhere", TOPIC, "--follow", *option, ends=USAGE)
    assert "leave out --end and --view" in " ".join(result.stderr.split())
