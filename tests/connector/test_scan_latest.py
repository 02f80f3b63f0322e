"""`view="latest"`: what a dictionary of all messages has, and what Pulsar's compaction left."""

from __future__ import annotations

import gzip
import json
import pickle
from typing import TYPE_CHECKING, Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import ChecksumError, OptionError, UnsupportedFormatError
from arrow_io.storage.trace import RequestTrace
from connector import copy_topics, open_topic, register_duckdb, write_messages
from connector.display.topic_metrics import TopicMetrics
from connector.scan import latest
from connector.upkeep.forecast.cost import read_cost
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.command_line import USAGE, run
from tests.support.damage import Part, flipped, regions
from tests.support.entries import Message, encode_entry
from tests.support.expected import time_of
from tests.support.golden import golden_topic, golden_topics

if TYPE_CHECKING:
    from pathlib import Path

    from connector import TopicDataset
    from tests.support.golden import GoldenTopic

_COLUMNS: Final = (
    "__topic__",
    "__ledger_id__",
    "__entry_id__",
    "__batch_index__",
    "__publish_time__",
    "__key__",
    "__null_value__",
    "__value__",
)
_KINDS: Final = ("chunked", "transactions", "partitioned", "compacted", "encrypted", "multi-")
_SPECIAL: Final = [each for each in golden_topics() if any(kind in each.name for kind in _KINDS)]
"""Golden topics whose rows are not simply their entries'."""
_KEYS: Final = st.none() | st.sampled_from(["a", "b", "", "a\nb", "é"])
_VALUES: Final = st.none() | st.sampled_from([b"", b"x", b"yz"])


def _latest_of(rows: pa.Table) -> list[dict[str, Any]]:
    """By a dictionary, of rows in order of their positions in each topic partition."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows.to_pylist():
        if row["__key__"] is not None:
            found.pop((row["__topic__"], row["__key__"]), None)
            if row["__value__"]:
                found[row["__topic__"], row["__key__"]] = row
    return sorted(found.values(), key=_position)


def _position(row: dict[str, Any]) -> tuple[str, int, int, int]:
    batch_index = row["__batch_index__"]
    index = -1 if batch_index is None else batch_index
    return row["__topic__"], row["__ledger_id__"], row["__entry_id__"], index


def _check(url: str, topic: str = TOPIC, **options: Any) -> TopicDataset:  # noqa: ANN401
    options = {"value": "raw", "columns": _COLUMNS} | options
    expected = _latest_of(open_topic(url, topic, **options).to_table())
    dataset = open_topic(url, topic, view="latest", **options)
    assert sorted(dataset.to_table().to_pylist(), key=_position) == expected
    assert dataset.count_rows() == len(expected)
    assert dataset.head(2).num_rows == min(2, len(expected))
    return dataset


@pytest.mark.filterwarnings("ignore:.*without an outcome")
@pytest.mark.parametrize("topic", _SPECIAL, ids=str)
def test_golden_topics_are_what_a_dictionary_has(topic: GoldenTopic) -> None:
    """Chunked, transactional and partitioned ones too; the encrypted ones with their keys."""
    keys = str(topic.folder.parents[1] / "keys")
    _check(str(topic.objects_folder), topic.name, decryption_keys=keys)


@pytest.mark.parametrize("name", ["compacted", "small-compacted"])
def test_compacted_topics_are_what_the_broker_left(name: str) -> None:
    """As a reader with `readCompacted` saw them."""
    topic = golden_topic(name)
    with gzip.open(topic.folder / "compacted.jsonl.gz") as file:
        wanted = [json.loads(line) for line in file]
    dataset = open_topic(str(topic.objects_folder), topic.name, value="raw", view="latest")

    rows = dataset.to_table(["__ledger_id__", "__entry_id__", "__batch_index__", "__key__"])

    rows = rows.set_column(2, "batch", pc.fill_null(rows.column("__batch_index__"), -1))
    names = ["ledger", "entry", "batch", "key"]
    assert rows.rename_columns(names).to_pylist() == [
        {name: each[name] for name in names} for each in wanted
    ]
    keyless = sum("key" not in each for each in topic.messages())
    assert dataset.metrics.keyless == keyless > 0


@settings(max_examples=30, deadline=None)
@given(
    ledgers=st.lists(
        st.lists(
            st.tuples(st.booleans(), st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=4)),
            min_size=1,
            max_size=5,
        ),
        min_size=1,
        max_size=3,
    ),
    bounds=st.tuples(st.none() | st.integers(0, 60), st.none() | st.integers(0, 60)),
    gap_bytes=st.sampled_from((0, 100, 2 << 20)),
    data=st.data(),
)
def test_a_dictionary_has_the_same(
    ledgers: list[list[tuple[bool, list[tuple[str | None, bytes | None]]]]],
    bounds: tuple[int | None, int | None],
    gap_bytes: int,
    data: st.DataObject,
) -> None:
    """Whatever keys, values, batches, ledgers, bounds and filters there are."""
    clock = iter(range(1, 1000))
    objects = offload(
        [
            (
                number,
                [
                    encode_entry(
                        [_message(*each) for each in (members if batched else members[:1])],
                        batched=batched,
                        publish_time=next(clock),
                    )
                    for batched, members in entries
                ],
            )
            for number, entries in enumerate(ledgers, 3)
        ],
        block_bytes=400,
    )
    start, end = (None if each is None else time_of(each) for each in sorted_bounds(bounds))
    with memory_bucket(objects) as bucket, pytest.MonkeyPatch.context() as patch:
        patch.setattr(latest, "_GAP_BYTES", gap_bytes)
        dataset = _check(bucket.url, start=start, end=end)
        rows = dataset.to_table(_COLUMNS)
        wanted = pc.field("__key__") == data.draw(st.sampled_from(["a", "b", ""]))
        assert dataset.to_table(_COLUMNS, filter=wanted) == rows.filter(wanted)
        assert dataset.count_rows(wanted) == rows.filter(wanted).num_rows


def sorted_bounds(bounds: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """The lower one first."""
    start, end = bounds
    return (end, start) if start is not None and end is not None and end < start else bounds


def _message(key: str | None, value: bytes | None) -> Message:
    return Message(payload=value or b"", partition_key=key, null_value=value is None)


def test_filters_see_what_is_left() -> None:
    """An older message of a key is not given because the latest does not pass."""
    entries = [
        encode_entry([_message("a", b"old"), _message("b", b"b")], batched=True),
        encode_entry([_message("a", b"new")], batched=True),
    ]
    is_old = pc.field("__value__") == b"old"
    with memory_bucket(offload([(3, entries)])) as bucket:
        dataset = open_topic(bucket.url, TOPIC, value="raw", view="latest")
        assert dataset.to_table(filter=is_old).num_rows == 0
        assert dataset.filter(is_old).count_rows() == 0
        frame = dataset.scan_polars().filter(pl.col("__value__") == b"old")
        assert frame.collect().height == 0
        assert dataset.scan_polars().collect().height == 2
        connection = duckdb.connect()
        register_duckdb(connection, url=bucket.url)
        [found] = connection.sql(f"""
            SELECT count(*), count(*) FILTER (WHERE __value__ = 'old')
            FROM read_pulsar('{TOPIC}', value := 'raw', view := 'latest')
        """).fetchall()  # noqa: S608 - our own topic
    assert found == (2, 0)


def test_only_entries_with_a_message_that_is_left_are_read_again() -> None:
    """If a topic writes all keys anew at its end, only that is; a count reads nothing again."""
    entries = [
        encode_entry([_message(f"key-{n % 20}", bytes(60_000))], batched=False) for n in range(200)
    ]
    with memory_bucket(offload([(3, entries)], block_bytes=1 << 20)) as bucket:
        trace = RequestTrace()
        dataset = open_topic(bucket.url, TOPIC, value="raw", view="latest", trace=trace)
        assert dataset.count_rows() == 20
        first = trace.counts.received_bytes
        assert dataset.count_rows() == 20
        assert trace.counts.received_bytes == first
        assert dataset.to_table().num_rows == 20
        second = trace.counts.received_bytes - first
    assert second < 0.2 * first


def test_damage_is_met_once() -> None:
    """Strict, it is an error; salvaging counts it once, though topics are read twice."""
    entries = [encode_entry([_message(f"key-{n}", b"value")], batched=True) for n in range(4)]
    objects = offload([(3, entries)])
    name = next(iter(objects))
    checked = [each for each in regions(objects[name]) if each.part is Part.CHECKED]
    damaged = objects | {name: flipped(objects[name], checked[1].stop - 1, 1)}
    with memory_bucket(damaged) as bucket:
        with pytest.raises(ChecksumError) as caught:
            open_topic(bucket.url, TOPIC, value="raw", view="latest").to_table()
        assert (caught.value.ledger_id, caught.value.entry_id) == (3, 1)
        told: dict[str, Any] = {"value": "raw", "on_corruption": "salvage"}
        plain = open_topic(bucket.url, TOPIC, **told)
        dataset = open_topic(bucket.url, TOPIC, view="latest", **told)
        for each in (plain, dataset):
            with pytest.warns(UserWarning, match="1 × entry lost"):
                assert each.to_table().num_rows == 3
        assert dataset.metrics.lost == plain.metrics.lost
        assert dataset.metrics.losses == plain.metrics.losses


def test_values_that_cannot_be_decoded_are_counted() -> None:
    """By the second pass, which alone looks at them."""
    entries = [
        encode_entry([_message("a", b'{"n": 1}')], batched=True),
        encode_entry([_message("b", b"garbage")], batched=True),
    ]
    schema = {
        "type": "JSON",
        "schema": '{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}',
    }
    with memory_bucket(offload([(3, entries)])) as bucket:
        told: dict[str, Any] = {"schema": schema, "on_corruption": "salvage", "view": "latest"}
        dataset = open_topic(bucket.url, TOPIC, **told)
        with pytest.warns(UserWarning, match="1 × value lost"):
            rows = dataset.to_table()
    assert rows.column("n").to_pylist() == [1, None]
    assert sum(dataset.metrics.lost.values()) == len(dataset.metrics.losses) == 1


def test_positions_beyond_what_there_is_room_for() -> None:
    """No ledger has so many entries; one that says so is refused, and no row mistaken."""
    batch = pa.record_batch(
        {
            "__ledger_id__": pa.array([7]),
            "__entry_id__": pa.array([1 << 34]),
            "__batch_index__": pa.array([None], pa.int32()),
            "__key__": pa.array(["a"]),
            "__value__": pa.array([b"a"]),
        }
    )
    with pytest.raises(UnsupportedFormatError) as caught:
        latest._select_keyed(batch, TopicMetrics())
    assert caught.value.ledger_id == 7


def test_a_dataset_can_be_pickled() -> None:
    """Another process finds the messages anew."""
    entries = [encode_entry([_message("a", b"1"), _message("a", b"2")], batched=True)]
    with memory_bucket(offload([(3, entries)])) as bucket:
        dataset = open_topic(bucket.url, TOPIC, value="raw", view="latest")
        assert dataset.count_rows() == 1
        again = pickle.loads(pickle.dumps(dataset))
        assert again.to_table().equals(dataset.to_table())


def test_what_takes_no_view(tmp_path: Any) -> None:  # noqa: ANN401
    """Costs are not known before it is read, and a copy has an option of its own."""
    topic = golden_topic("compacted")
    url = str(topic.objects_folder)
    with pytest.raises(OptionError, match="is unknown before it is read"):
        read_cost(open_topic(url, topic.name, value="raw", view="latest").scan)
    with pytest.raises(OptionError, match="latest_per_key"):
        copy_topics(url, topic.name, str(tmp_path), format="parquet", view="latest", value="raw")
    assert "unknown before" in run("plan", url, "compacted", "--view", "latest", ends=USAGE).stderr
    shown = run(
        "head", url, "compacted", "--view", "latest", "--value", "raw", "-n", "100", "--json"
    )
    assert len(shown.stdout.splitlines()) == 25


@pytest.mark.parametrize("threads", [1, 64])
def test_memory_that_an_error_names_is_enough(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100,000 keys, however many processors DuckDB finds; what it says itself is not shown."""
    keys = pa.array([f"customer-number-{number}" for number in range(100_000)])
    table = pa.table({"__key__": keys, "__value__": pa.repeat(b"x", len(keys))})
    write_messages(str(tmp_path), TOPIC, table)
    connect = duckdb.connect
    monkeypatch.setattr(duckdb, "connect", lambda: connect(config={"threads": threads}))

    with pytest.raises(OptionError, match=r"view_bytes=8388608 is too little") as raised:
        _count(tmp_path, 8 << 20)
    assert "\n" not in str(raised.value)
    more = int(str(raised.value).rpartition(" ")[2])
    assert more == 16 << 20
    assert _count(tmp_path, more) == len(keys)


def _count(folder: Path, view_bytes: int) -> int:
    dataset = open_topic(str(folder), TOPIC, value="raw", view="latest", view_bytes=view_bytes)
    return dataset.count_rows()
