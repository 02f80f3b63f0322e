"""What only brokers have of a topic: with it, a topic is what it is when all of it is offloaded."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.columns import ALL_COLUMNS
from arrow_io.errors import (
    BrokerError,
    OptionError,
    TopicNotFoundError,
    TrimmedEntriesError,
)
from arrow_io.messages.transactions import TXN_COMMIT
from arrow_io.read_metrics import ReadMetrics, Unit
from connector import open_topic
from connector.increments import following
from connector.increments.following import new_from_brokers
from connector.live.broker import Brokers, EntryId
from connector.live.entries import UNAVAILABLE_COLUMNS
from connector.scan.execution import execute
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.expected import expected_rows, rows_of
from tests.support.live_topics import LIVE_URL, live_brokers
from tests.support.reference import decode_topic
from tests.support.topics import topics

if TYPE_CHECKING:
    from connector import TopicDataset
    from tests.support.expected import Row
    from tests.support.live_topics import MemoryBrokers
    from tests.support.reference import ReferenceMessage
    from tests.support.topics import Topic

pytestmark = pytest.mark.filterwarnings("ignore::arrow_io.errors.IncompleteReadWarning")

_COLUMNS: Final = [each.name for each in ALL_COLUMNS]


def _position(message: ReferenceMessage) -> tuple[int, int]:
    return message.ledger_id, message.entry_id


def _expected(topic: Topic, count: int, brokers: MemoryBrokers) -> list[Row]:
    """The rows of a topic of which so many ledgers are in the bucket."""
    given_by_brokers = brokers.messages(TOPIC)
    until = max(map(_position, given_by_brokers), default=(-1, -1))
    in_bucket = {_position(each) for each in decode_topic(topic.ledgers[:count])}
    rows = [
        each
        for each in decode_topic(topic.ledgers)
        if _position(each) in in_bucket or _position(each) <= until
    ]
    return expected_rows(rows, topic=TOPIC)


def _comparable(rows: list[Row], behind: tuple[int, int]) -> list[Row]:
    """The rows in order of their positions, without what no client tells of those behind one."""
    found = []
    for row in rows:
        of_brokers = (row["__ledger_id__"], row["__entry_id__"]) > behind
        untold = (
            {*UNAVAILABLE_COLUMNS, "__ordering_key__", "__schema_version__"} if of_brokers else ()
        )
        told = {name: value for name, value in row.items() if name not in untold}
        # Nor does it tell an empty key from none.
        found.append(told | {"__key__": told["__key__"] or None} if of_brokers else told)
    return sorted(
        found, key=lambda x: (x["__ledger_id__"], x["__entry_id__"], x["__batch_index__"] or 0)
    )


@given(topic=topics(compacted=False), data=st.data())
def test_a_topic_is_the_same_wherever_its_ledgers_are(topic: Topic, data: st.DataObject) -> None:
    """Chunks and transactions that begin in the bucket, and end behind it, too."""
    count = data.draw(st.integers(1, len(topic.ledgers)), label="ledgers in the bucket")
    in_bucket = topic.ledgers[:count]
    end = in_bucket[-1][0], len(in_bucket[-1][1]) - 1
    with (
        memory_bucket(offload(in_bucket, block_bytes=400)) as bucket,
        live_brokers({TOPIC: topic.ledgers}) as brokers,
    ):
        dataset = open_topic(bucket.url, TOPIC, live=LIVE_URL, columns=_COLUMNS)
        expected = _expected(topic, count, brokers)

        table = dataset.to_table()
        counts = dataset.metrics

        assert _comparable(rows_of(table), end) == _comparable(expected, end)
        assert dataset.count_rows() == table.num_rows == dataset.metrics.rows
        assert pickle.loads(pickle.dumps(dataset)).to_table().equals(table)
        wanted = data.draw(st.integers(0, table.num_rows + 1), label="last rows")
        if not counts.ended_beyond:
            # Else they may begin before the entries that the last rows are looked for in.
            assert dataset.tail(wanted).equals(table.slice(max(0, table.num_rows - wanted)))
        assert dataset.head(wanted).equals(table.slice(0, wanted))


@given(topic=topics(compacted=False), data=st.data())
def test_bounds_and_filters_hold_behind_the_bucket_too(topic: Topic, data: st.DataObject) -> None:
    """By id and by time, and of each key the latest within them."""
    count = data.draw(st.integers(1, len(topic.ledgers)), label="ledgers in the bucket")
    ids = [(ledger, entry) for ledger, entries in topic.ledgers for entry in range(len(entries))]
    places = st.none() | st.sampled_from(ids)
    start, end = data.draw(places, label="start"), data.draw(places, label="end")
    if start is not None and end is not None and start > end:
        start, end = end, start
    with (
        memory_bucket(offload(topic.ledgers[:count], block_bytes=400)) as bucket,
        live_brokers({TOPIC: topic.ledgers}),
        patch("connector.scan.tail_read._ADOPTED_BLOCKS", 1000),
    ):
        options: dict[str, Any] = {"live": LIVE_URL, "columns": _COLUMNS}
        whole = open_topic(bucket.url, TOPIC, **options).to_table()
        within = open_topic(bucket.url, TOPIC, start=start, end=end, **options)
        # Whoever gives a chunked message that begins before the start may tell less of it.
        stop = topic.ledgers[count - 1][0], len(topic.ledgers[count - 1][1]) - 1
        rows = _comparable([x for x in rows_of(whole) if _is_within(x, start, end)], stop)
        assert _comparable(rows_of(within.to_table()), stop) == rows
        named = pc.field("__key__") == data.draw(st.sampled_from(["", "a"]))
        assert within.to_table(filter=named).equals(within.to_table().filter(named))
        latest = open_topic(bucket.url, TOPIC, start=start, end=end, view="latest", **options)
        assert _comparable(rows_of(latest.to_table()), stop) == _latest(rows)
        assert latest.count_rows() == len(_latest(rows))


def _is_within(row: Row, start: tuple[int, int] | None, end: tuple[int, int] | None) -> bool:
    at = row["__ledger_id__"], row["__entry_id__"]
    return (start is None or at >= start) and (end is None or at < end)


def _latest(rows: list[Row]) -> list[Row]:
    last = {row["__key__"]: row for row in rows if row["__key__"] is not None}
    return [row for row in rows if last.get(row["__key__"]) is row and row["__value__"]]


def _message(payload: bytes, **fields: Any) -> bytes:  # noqa: ANN401
    return encode_entry([Message(payload=payload, **fields)], batched=False)


_LEDGERS: Final = [
    (3, [_message(b"a"), _message(b"b")]),
    (5, [_message(b"c")]),
    (9, [_message(b"d"), _message(b"e")]),
]


def _values(dataset: TopicDataset) -> list[bytes]:
    values: list[bytes] = dataset.to_table(["__value__"]).column(0).to_pylist()
    return values


def test_what_comes_after_a_topic_is_opened_is_not_read() -> None:
    """A dataset is what there was; to open it again shows more."""
    with memory_bucket(offload(_LEDGERS[:1])) as bucket, live_brokers({TOPIC: _LEDGERS}) as brokers:
        dataset = open_topic(bucket.url, TOPIC, live=LIVE_URL)
        more = [*_LEDGERS[:2], (9, [*_LEDGERS[2][1], _message(b"f")]), (12, [_message(b"g")])]
        brokers.ledgers = {TOPIC: more}
        # Offloaded meanwhile, it is read once.
        bucket.put(offload(_LEDGERS[1:2]))
        assert _values(dataset) == [b"a", b"b", b"c", b"d", b"e"]
        again = open_topic(bucket.url, TOPIC, live=LIVE_URL)
        assert _values(again) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


@pytest.mark.parametrize("trimmed_before", [EntryId(5, 1), EntryId(9, 1), EntryId(20, 0)], ids=str)
def test_what_the_cluster_deletes_meanwhile_is_missed(trimmed_before: EntryId) -> None:
    """Whatever is left of it, for what was read before is not known."""
    with memory_bucket(offload(_LEDGERS[:1])) as bucket, live_brokers({TOPIC: _LEDGERS}) as brokers:
        strict = open_topic(bucket.url, TOPIC, live=LIVE_URL)
        salvaging = open_topic(bucket.url, TOPIC, live=LIVE_URL, on_corruption="salvage")
        brokers.trimmed_before = trimmed_before
        with pytest.raises(TrimmedEntriesError) as caught:
            strict.to_table()
        assert (caught.value.ledger_id, caught.value.entry_id) == (5, 0)
        left = {5: [b"d", b"e"], 9: [b"e"], 20: []}[trimmed_before.ledger_id]
        assert _values(salvaging) == [b"a", b"b", *left]
        assert salvaging.metrics.lost == {(Unit.LEDGER, "TrimmedEntriesError"): 1}


def test_what_was_deleted_before_is_no_part_of_the_topic() -> None:
    """Retention takes it from the cluster; the bucket may have it all the same."""
    with memory_bucket(offload(_LEDGERS[:1])) as bucket, live_brokers({TOPIC: _LEDGERS}) as brokers:
        brokers.trimmed_before = EntryId(9, 0)
        assert _values(open_topic(bucket.url, TOPIC, live=LIVE_URL)) == [b"a", b"b", b"d", b"e"]


def test_partitions_of_which_nothing_is_offloaded() -> None:
    """A client tells that they are there."""
    names = [f"{TOPIC}-partition-{number}" for number in range(3)]
    ledgers = {names[0]: _LEDGERS, names[1]: _LEDGERS[:1], names[2]: []}
    managed_ledger = "public/default/persistent/orders-partition-0"
    objects = offload(_LEDGERS[:2], managed_ledger=managed_ledger)
    with memory_bucket(objects) as bucket, live_brokers(ledgers) as brokers:
        for wanted in (TOPIC, "ord*"):
            table = open_topic(bucket.url, wanted, live=LIVE_URL).to_table()
            assert table.column("__partition__").to_pylist() == [0] * 5 + [1] * 2
        one = open_topic(bucket.url, names[1], live=LIVE_URL)
        assert _values(one) == [b"a", b"b"]
        asked = len(brokers.asked)
        with pytest.raises(TopicNotFoundError):
            open_topic(bucket.url, "no*", live=LIVE_URL)
        assert len(brokers.asked) == asked
        # A topic without partitions: to ask a client for it would make it.
        with pytest.raises(TopicNotFoundError, match="is found only with metadata"):
            open_topic(bucket.url, "other", live=LIVE_URL)


def test_brokers_that_give_nothing_are_an_error() -> None:
    """It is not taken for the end of the topic."""
    with memory_bucket(offload(_LEDGERS[:1])) as bucket, live_brokers({TOPIC: _LEDGERS}) as brokers:
        dataset = open_topic(bucket.url, TOPIC, live=LIVE_URL)
        brokers.ledgers = {TOPIC: _LEDGERS[:2]}
        with pytest.raises(BrokerError, match="nothing comes"):
            dataset.to_table()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"live": "http://host:8080"}, "is not the URL of brokers"),
        ({"live": "pulsar://me:secret@host:6650"}, "credentials in the URL"),
        ({"live": 1}, "must be the URL of brokers"),
        ({"live": "pulsar://[::1"}, "is not the URL of brokers"),
        ({"live": LIVE_URL, "transactions": "all"}, "that are not committed"),
        ({"live_options": {"token": "t"}}, "need"),
        ({"live": LIVE_URL, "live_options": {"timeout_s": 1e12}}, "timeout_s is at most"),
        ({"live": LIVE_URL, "live_options": {"tokens": "t"}}, "unknown live option 'tokens'"),
        ({"live": LIVE_URL, "live_options": {"timeout_s": 0}}, "a number of seconds above 0"),
    ],
)
def test_wrong_options_are_refused_before_any_request(
    options: dict[str, Any], message: str
) -> None:
    """The bucket is not looked at."""
    with pytest.raises(OptionError, match=message) as caught:
        open_topic("memory://nowhere", TOPIC, **options)
    assert "secret" not in str(caught.value)


def test_what_comes_is_followed() -> None:
    """Each message once, of the brokers; those that were there before are not given."""
    with memory_bucket(offload(_LEDGERS[:1])) as bucket, live_brokers({TOPIC: _LEDGERS}) as brokers:
        dataset = open_topic(bucket.url, TOPIC, live=LIVE_URL, columns=["__value__"])
        of_brokers = Brokers.from_options(LIVE_URL, {})
        found: list[list[bytes]] = []
        with new_from_brokers(of_brokers, dataset.scan) as new_rows:
            for more in ([], [b"f"], [b"f", b"g"], [b"f", b"g"]):
                grown = [*_LEDGERS, (12, [_message(each) for each in more])]
                brokers.ledgers = {TOPIC: grown if more else _LEDGERS}
                metrics = ReadMetrics()
                found.append([x for batch in new_rows(metrics) for x in batch[0].to_pylist()])
                assert metrics.rows == len(found[-1])
        assert found == [[], [b"f"], [b"g"], []]


def test_a_busy_topic_leaves_the_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its messages would be gathered, and none printed, as long as more come."""
    monkeypatch.setattr(following, "_MAX_AT_ONCE", 2)
    with memory_bucket(offload(_LEDGERS[:1])) as bucket, live_brokers({TOPIC: _LEDGERS}) as brokers:
        scan = open_topic(bucket.url, TOPIC, live=LIVE_URL, columns=["__value__"]).scan
        batch = encode_entry([Message(payload=each) for each in (b"g", b"h")], batched=True)
        more = [_message(b"f"), batch, _message(b"i")]
        brokers.ledgers = {TOPIC: [*_LEDGERS, (12, more)]}
        with new_from_brokers(Brokers.from_options(LIVE_URL, {}), scan) as new_rows:
            turns = [
                [x for batch in new_rows(ReadMetrics()) for x in batch[0].to_pylist()]
                for _ in range(3)
            ]
    assert turns == [[b"f", b"g", b"h"], [b"i"], []]


def test_rows_do_not_depend_on_what_is_read_together() -> None:
    """Of a committed transaction nothing is given behind one that is open, by any task."""
    stored = [
        encode_entry(
            [Message(payload=payload)], batched=False, txnid_most_bits=2, txnid_least_bits=least
        )
        for payload, least in ((b"a", 2), (b"b", 3), (b"c", 2))
    ]
    ledgers = [(3, stored), (5, [encode_marker(TXN_COMMIT, txn_id=(2, 2))])]
    objects = offload(ledgers[:1], block_bytes=200)
    with memory_bucket(objects) as bucket, live_brokers({TOPIC: ledgers}):
        dataset = open_topic(bucket.url, TOPIC, live=LIVE_URL, columns=["__value__"])
        plan = dataset.scan.plan(1)
        batches = (batch for task in plan for batch in execute(task, ReadMetrics()))
        by_task = [x for batch in batches for x in batch[0].to_pylist()]
        assert len(plan) > 1
        assert _values(dataset) == by_task == [b"a"]
        assert dataset.metrics.open_messages == 2
