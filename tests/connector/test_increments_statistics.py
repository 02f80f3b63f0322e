"""With statistics increments have the same rows, and where they end is known without reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import FormatError
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog, open_topic
from connector.increments.increment import Increments, Limits
from connector.increments.progress import Position, Progress, TopicProgress
from connector.inputs.topic_names import TopicName
from connector.statistics.transactions import RecordedTransactions
from tests.support.buckets import (
    TOPIC,
    memory_bucket,
    object_name,
    offload,
    offload_ledger,
    with_lost_entries,
)
from tests.support.damage import Part, flipped, regions
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.expected import COLUMNS, time_of
from tests.support.increments import in_order, read_increment, read_on
from tests.support.statistics import analyzed
from tests.support.topics import SHAPES, topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from arrow_io.ledgers.ledger import Ledger
    from connector.increments.increment import Increment
    from tests.support.topics import Topic

NAME: Final = TopicName.parse(TOPIC)
BEGINNING: Final = Progress()
SINGLE: Final = encode_entry([Message(payload=b"x")], batched=False)
COMMIT: Final = encode_marker(21, txn_id=(1, 2))
_SHAPES: Final = (*SHAPES, "transaction", "chunked", "transaction")
_ZONE_BYTES: Final = st.sampled_from((1, 1, 300, 1 << 20))


def _of_transaction(least: int = 2, publish_time: int = 1_700_000_000_000) -> bytes:
    return encode_entry(
        [Message(payload=b"t")],
        batched=False,
        txnid_most_bits=1,
        txnid_least_bits=least,
        publish_time=publish_time,
    )


def _source(
    url: str,
    statistics: str | None,
    row_filter: pc.Expression | None = None,
    trace: RequestTrace | None = None,
    **options: Any,  # noqa: ANN401 - open_topic's
) -> Increments:
    catalog = open_catalog(url, trace=trace)
    dataset = open_topic(
        url, TOPIC, catalog=catalog, columns=COLUMNS, statistics=statistics, **options
    )
    scan = dataset.scan if row_filter is None else dataset.scan.where(row_filter)
    return Increments(catalog, (TOPIC,), scan.options, scan.statistics)


@st.composite
def _asked(draw: st.DrawFn, topic: Topic) -> dict[str, Any]:
    """A bound, a filter, both or neither, at values that occur."""
    times = sorted({each.delivered.outer["publish_time"] for each in topic.delivered}) or [1]
    asked: dict[str, Any] = {}
    if draw(st.booleans()):
        time = time_of(draw(st.sampled_from(times)))
        asked["row_filter"] = draw(
            st.sampled_from(
                (
                    pc.field("__publish_time__") >= time,
                    pc.field("__publish_time__") < time,
                    pc.field("__key__") == "a",
                )
            )
        )
    if draw(st.booleans()):
        asked["start"] = draw(st.integers(0, 3))
    return asked


@pytest.mark.filterwarnings("ignore::arrow_io.errors.UnusedStatisticsWarning")
@given(
    topic=topics(compacted=False, shapes=_SHAPES),
    block_bytes=st.sampled_from((140, 300, 1 << 20)),
    task_bytes=st.sampled_from((1, 500, 1 << 20)),
    transactions=st.sampled_from(("committed", "committed", "all")),
    data=st.data(),
)
def test_increments_are_those_without_statistics(
    *, topic: Topic, block_bytes: int, task_bytes: int, transactions: str, data: st.DataObject
) -> None:
    """However many ledgers are known, when they are analyzed, and whatever is asked for."""
    count = data.draw(st.integers(1, len(topic.ledgers)), label="ledgers at first")
    zone_bytes = data.draw(_ZONE_BYTES, label="zone bytes")
    asked = data.draw(_asked(topic), label="asked for") | {"transactions": transactions}
    limits = data.draw(
        st.builds(Limits, max_bytes=st.none() | st.sampled_from((1, 300)), max_ledgers=st.none()),
        label="limits",
    )
    if "start" in asked:
        positions = [(ledger_id, 0) for ledger_id, _ in topic.ledgers]
        asked["start"] = positions[asked["start"] % len(positions)]
    with (
        memory_bucket(offload(topic.ledgers[:count], block_bytes=block_bytes)) as bucket,
        memory_bucket({"notes.txt": b"x"}) as folder,
        patch("connector.increments.settled._PROBED_BLOCKS", 1000),
    ):
        sources = [_source(bucket.url, each, **asked) for each in (None, folder.url)]
        rows: list[list[pa.RecordBatch]] = [[], []]
        ends = [BEGINNING, BEGINNING]
        for ledgers in (topic.ledgers[:count], topic.ledgers[count:]):
            bucket.put(offload(ledgers, block_bytes=block_bytes))
            known = data.draw(st.sets(st.sampled_from([n for n, _ in topic.ledgers])))
            analyzed(bucket.url, TOPIC, folder.url, zone_bytes=zone_bytes, ledger_ids=known)
            if data.draw(st.booleans(), label="begin a new run"):
                sources = [_source(bucket.url, each, **asked) for each in (None, folder.url)]
            for number, source in enumerate(sources):
                source.refresh()
                found, ends[number] = read_on(source, ends[number], limits, task_bytes)
                rows[number] += found
        schema = sources[0].options.projection.schema

    assert in_order(rows[1], schema) == in_order(rows[0], schema)
    assert ends[1] == ends[0]


def _known_increment(
    ledgers: list[list[bytes]],
    before: Progress = BEGINNING,
    **options: Any,  # noqa: ANN401 - open_topic's
) -> tuple[Increment, int]:
    """What is new in a topic that statistics know whole, and how many requests for data it took."""
    objects: dict[str, bytes] = {}
    for number, entries in enumerate(ledgers):
        objects |= offload_ledger(object_name(number), entries)
    trace = RequestTrace(keep_records=True)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url, zone_bytes=1 << 20)
        source = _source(bucket.url, folder.url, trace=trace, **options)
        increment = source.next_increment(before)
    data = [each for each in trace.records if each.kind is RequestKind.RANGE_GET]
    return increment, sum("zones-" not in each.name for each in data)


@pytest.mark.parametrize(
    ("ledgers", "begins", "ends", "is_read"),
    [
        # Transactions that are closed in another ledger, and one that is open.
        (
            [[SINGLE, _of_transaction()], [SINGLE], [COMMIT, _of_transaction(3), SINGLE]],
            (0, 0),
            (2, 1),
            False,
        ),
        ([[SINGLE] * 3] * 3, (0, 0), (3, 0), False),
        # A zone that the progress cuts does not say whether a transaction has a message behind.
        ([[_of_transaction(), SINGLE, SINGLE]], (0, 1), (1, 0), True),
        ([[_of_transaction(), SINGLE, SINGLE, _of_transaction()]], (0, 1), (0, 3), True),
        # Nobody will say what became of a message behind the marker of its transaction.
        ([[_of_transaction(), COMMIT, _of_transaction()]], (0, 0), (0, 2), True),
    ],
    ids=["settled", "no transactions", "cut zone", "cut zone, held", "behind the marker"],
)
def test_what_is_settled_is_known_without_reading(
    ledgers: list[list[bytes]], begins: tuple[int, int], ends: tuple[int, int], *, is_read: bool
) -> None:
    """Only what statistics do not tell is read."""
    before = Progress({NAME: TopicProgress.at(Position(*begins))}) if any(begins) else BEGINNING
    increment, requests = _known_increment(ledgers, before)

    assert increment.after.topic_progress(NAME).next == ends
    assert (requests > 0) == is_read
    if ends == (2, 1):
        assert "ledger 2, entry 1 on: its transaction has no outcome" in increment.notices[0]


def test_many_ledgers_are_looked_up_together() -> None:
    """Whether they have transactions is not asked for one by one."""
    asked: list[int] = []
    have = RecordedTransactions.have_transactions

    def noted(known: RecordedTransactions, ledgers: Sequence[Ledger]) -> dict[int, bool]:
        asked.append(len(ledgers))
        return have(known, ledgers)

    with patch.object(RecordedTransactions, "have_transactions", noted):
        increment, _ = _known_increment([[SINGLE]] * 130)

    assert increment.after.topic_progress(NAME).next == (130, 0)
    assert len(asked) <= 4


def test_what_nobody_asks_for_is_passed_over() -> None:
    """By a start in time; it counts for no limit, and the next run goes on behind it."""
    old, new = (
        encode_entry([Message(payload=b"x")], batched=False, publish_time=t) for t in (5, 9)
    )
    objects: dict[str, bytes] = {}
    for number, entry in enumerate((old, old, new, new)):
        objects |= offload_ledger(object_name(number), [entry] * 2)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        source = _source(bucket.url, folder.url, start="1970-01-01T00:00:00.009Z")
        first = source.next_increment(BEGINNING, Limits(max_ledgers=1))
        again = source.increment_between(first.before, first.after)
        rows = [row["__ledger_id__"] for b in read_increment(first) for row in b.to_pylist()]

    assert rows == [2, 2]
    assert first.after.topic_progress(NAME).next == (3, 0)
    assert first.ledgers == again.ledgers == 1
    assert first.data_bytes == again.data_bytes == sum(each.data_bytes for each in first.reads)


def test_damaged_statistics_are_told() -> None:
    """The entries are read instead."""
    ledgers = [[SINGLE, _of_transaction()], [COMMIT, SINGLE]]
    objects: dict[str, bytes] = {}
    for number, entries in enumerate(ledgers):
        objects |= offload_ledger(object_name(number), entries)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        [file] = analyzed(bucket.url, TOPIC, folder.url).files
        data = file.location.read_object(file.name, max_bytes=file.size_bytes).data
        folder.put({file.name: bytes([data[0] ^ 1]) + bytes(data[1:])})
        increment = _source(bucket.url, folder.url).next_increment(BEGINNING)

    assert increment.after.topic_progress(NAME).next == (2, 0)
    assert ["is not as it was written" in each for each in increment.notices] == [True]


@pytest.mark.parametrize("what", ["damaged", "lost"])
def test_ledgers_that_are_not_whole_are_read(what: str) -> None:
    """A marker may have stood where an entry cannot be read: that is an error, with or without."""
    objects = offload([(0, [_of_transaction(), SINGLE, COMMIT])])
    for name, data in objects.items():
        if what == "lost" and name.endswith("-index"):
            objects[name] = with_lost_entries(data, 3)
        elif what == "damaged" and not name.endswith("-index"):
            [*_, last] = (each for each in regions(data) if each.part is Part.CHECKED)
            objects[name] = flipped(data, last.start, 0x80)
    errors = []
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        for statistics in (None, folder.url):
            with pytest.raises(FormatError) as caught:
                _source(bucket.url, statistics).next_increment(BEGINNING)
            errors.append(str(caught.value))

    assert errors[0] == errors[1]
