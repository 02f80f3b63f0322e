"""Plans leave out what cannot hold a row that is wanted, and nothing else."""

from __future__ import annotations

import pickle
import random
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from arrow_io.columns import Origin
from arrow_io.errors import IncompleteReadWarning, MissingObjectError, TrimmedEntriesError
from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_topic
from connector.scan.execution import execute
from connector.scan.topic_read import EntryRange, TopicRead
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_chunks, encode_entry
from tests.support.expected import COLUMNS
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.large_ledgers import large_ledgers
from tests.support.reading import block_table, read
from tests.support.trimmed_topic import trimmed_topic

if TYPE_CHECKING:
    from pathlib import Path

    from connector import TopicDataset
    from connector.scan.topic_scan import Scan

pytestmark = pytest.mark.usefixtures("build")

_LEDGERS: Final = (85, 86, 87, 88, 89, 90)
_CHUNKED: Final = golden_topic("small-chunked")
_LEDGER: Final = pc.field("__ledger_id__")
_PARTITION: Final = pc.field("__partition__")
_TOPIC: Final = pc.field("__topic__")


@cache
def _whole(name: str) -> pa.Table:
    return read(open_golden(golden_topic(name)).scan.select(COLUMNS))


def _traced(name: str, **options: Any) -> tuple[TopicDataset, RequestTrace]:  # noqa: ANN401
    trace = RequestTrace(keep_records=True)
    topic = golden_topic(name)
    folder = str(topic.objects_folder)
    wanted = topic.name.partition("-partition-")[0]
    return open_topic(folder, wanted, trace=trace, **options), trace


def _ledgers_read(trace: RequestTrace) -> list[int]:
    names = [each.name for each in trace.records if each.kind is RequestKind.RANGE_GET]
    return sorted({int(name.rpartition("-ledger-")[2]) for name in names})


@pytest.mark.parametrize(
    ("expression", "ledgers"),
    [
        (_LEDGER == 87, [87]),
        (_LEDGER > 88, [89, 90]),
        (_LEDGER < 87, [85, 86]),
        ((_LEDGER >= 86) & (_LEDGER <= 87), [86, 87]),
        (_LEDGER.isin([85, 88]), [85, 88]),
        (_LEDGER == 1, []),
        (_TOPIC == "another", []),
        (_PARTITION >= 0, []),
        ((_LEDGER == 90) & (pc.field("__key__") != ""), [90]),
        ((_LEDGER == 90) | (pc.field("__key__") == "no such key"), list(_LEDGERS)),
        (pc.scalar(True), list(_LEDGERS)),  # noqa: FBT003
    ],
    ids=str,
)
def test_only_ledgers_that_can_hold_rows_are_read(
    expression: pc.Expression, ledgers: list[int]
) -> None:
    """Filters on ledger, partition and topic spare requests, and change no row."""
    dataset, trace = _traced("multi-ledger", columns=COLUMNS)

    table = dataset.to_table(filter=expression)

    assert table.equals(_whole("multi-ledger").filter(expression))
    assert _ledgers_read(trace) == ledgers


@pytest.mark.parametrize(
    ("expression", "ledgers"),
    [
        (_PARTITION == 1, [48]),
        (_PARTITION != 1, [46, 49, 50]),
        (_TOPIC.isin([golden_topic("small-partitioned-partition-2").name]), [49, 50]),
        ((_PARTITION == 2) & (_LEDGER == 50), [50]),
        ((_PARTITION == 0) & (_LEDGER == 50), []),
    ],
    ids=str,
)
def test_only_partitions_that_can_hold_rows_are_read(
    expression: pc.Expression, ledgers: list[int]
) -> None:
    """A partition is left out as a whole."""
    dataset, trace = _traced("small-partitioned-partition-0", columns=COLUMNS)
    whole = dataset.to_table()
    before = len(trace.records)

    table = dataset.to_table(filter=expression)

    assert table.equals(whole.filter(expression))
    del trace._records[:before]
    assert _ledgers_read(trace) == ledgers


def test_chunks_before_the_start_are_looked_for() -> None:
    """Of the message that ends in entry 0 of ledger 16, the first chunk stands in ledger 14."""
    dataset, trace = _traced("small-chunked", start=(16, 0), end=(16, 1), columns=COLUMNS)

    table = dataset.to_table()

    assert table["__message_id__"].to_pylist() == ["(16,0,-1)"]
    assert table.equals(_whole("small-chunked").filter(_LEDGER == 16))
    assert _ledgers_read(trace) == [14, 15, 16]


def test_chunks_before_the_start_are_not_looked_for_in_vain() -> None:
    """Where no message of the range begins before it, nothing before it is read."""
    dataset, trace = _traced("multi-ledger", start=(88, 0))

    assert dataset.to_table().num_rows > 0
    assert _ledgers_read(trace) == [88, 89, 90]


def _scan(ledgers: list[tuple[int, list[bytes]]], **options: Any) -> tuple[pa.Table, ReadMetrics]:  # noqa: ANN401
    with memory_bucket(offload(ledgers)) as bucket:
        metrics = ReadMetrics()
        return read(open_topic(bucket.url, TOPIC, **options).scan, metrics=metrics), metrics


def test_message_without_its_first_chunk_is_counted() -> None:
    """What was cut off before the first ledger that is offloaded is no row, and no silence."""
    chunks = encode_chunks(Message(payload=b"x" * 30), chunk_count=3, uuid="a")
    single = encode_entry([Message(payload=b"single")], batched=False)

    table, metrics = _scan([(7, [chunks[1], chunks[2], single])])

    assert table["__value__"].to_pylist() == [b"single"]
    assert metrics.incomplete_messages == 1


def test_incomplete_messages_are_told_once() -> None:
    """A read ends with one warning, of the number of messages left out."""
    chunks = encode_chunks(Message(payload=b"x" * 30), chunk_count=3, uuid="a")
    with memory_bucket(offload([(7, chunks[::2]), (8, chunks[::2])])) as bucket:
        dataset = open_topic(bucket.url, TOPIC)
        with pytest.warns(IncompleteReadWarning, match="2 chunked messages were left out") as told:
            assert dataset.to_table().num_rows == 0

    assert len(told) == 1


@pytest.mark.parametrize("task_bytes", [1, 10_000, 1 << 30])
def test_plan_takes_each_block_once(task_bytes: int) -> None:
    """Tasks are cut at blocks, as large as asked for but of one block at least."""
    scan = open_golden(_CHUNKED).scan
    blocks = [
        (
            ledger.ledger_id,
            block_table(ledger).block_start(i),
            block_table(ledger).block_stop(i),
        )
        for ledger in scan.topics[0].ledgers
        for i in range(block_table(ledger).block_count)
    ]

    tasks = scan.plan(task_bytes)

    planned = [
        (entries.ledger_id, start, stop)
        for task in tasks
        for _, entries, start, stop in task.block_ranges()
    ]
    assert planned == blocks
    assert sum(task.data_bytes for task in tasks) == sum(stop - start for _, start, stop in blocks)
    for task in tasks:
        assert task.data_bytes <= task_bytes or len(list(task.block_ranges())) == 1


def test_task_may_have_all_the_bytes_that_it_is_given() -> None:
    """What fits exactly is not cut; a byte less cuts it."""
    scan = open_golden(_CHUNKED).scan
    (whole,) = scan.plan()

    assert len(scan.plan(whole.data_bytes)) == 1
    assert len(scan.plan(whole.data_bytes - 1)) == 2


def test_plan_sends_no_request() -> None:
    """Planning is arithmetic on what opening has read."""
    dataset, trace = _traced("multi-ledger")
    before = trace.counts

    assert len(dataset.scan.where(_LEDGER > 86).plan(task_bytes=1)) == 4
    assert trace.counts == before


@pytest.mark.parametrize(
    ("start", "end", "expression", "ranges"),
    [
        ((86, 5), (89, 3), _LEDGER == 87, [(87, 0, 1)]),
        ((86, 5), (88, 3), _LEDGER <= 89, [(86, 5, 40), (87, 0, 1), (88, 0, 2)]),
        ((86, 5), (88, 3), _LEDGER <= 88, [(86, 5, 40), (87, 0, 1), (88, 0, 2)]),
        ((86, 5), (88, 3), (_LEDGER > 85) & (_LEDGER < 88), [(86, 5, 40), (87, 0, 1)]),
        ((86, 5), None, _LEDGER <= 86, [(86, 5, 40)]),
        ((86, 5), None, (_LEDGER >= 87) & (_LEDGER <= 88), [(87, 0, 1), (88, 0, 42)]),
        (None, (88, 3), _LEDGER >= 88, [(88, 0, 2)]),
        (None, (88, 3), _LEDGER <= 85, [(85, 0, 1)]),
        ((87, 0), None, _LEDGER <= 86, []),
        (None, (87, 0), _LEDGER >= 87, []),
    ],
    ids=str,
)
def test_bounds_and_filter_narrow_a_plan_together(
    start: tuple[int, int] | None,
    end: tuple[int, int] | None,
    expression: pc.Expression,
    ranges: list[tuple[int, int, int]],
) -> None:
    """The tighter of two bounds counts, be it the user's or the filter's."""
    topic = golden_topic("multi-ledger")
    scan = open_golden(topic, columns=COLUMNS, start=start, end=end).scan.where(expression)

    tasks = scan.plan()

    assert [each for task in tasks for each in task.ranges] == ranges
    whole = _whole("multi-ledger").filter(expression)
    places = zip(whole["__ledger_id__"].to_pylist(), whole["__entry_id__"].to_pylist(), strict=True)
    kept = [(start or (0, 0)) <= place < (end or (99, 0)) for place in places]
    assert read(scan, tasks).equals(whole.filter(pa.array(kept, pa.bool_())))


def test_column_that_is_filtered_by_and_given_is_decoded_once() -> None:
    """Whatever is odd about a value is counted once, though two steps need the column."""
    entries = [
        encode_entry([Message(payload=payload)], batched=False) for payload in (b"a", b"\xff", b"c")
    ]
    with memory_bucket(offload([(5, entries)])) as bucket:
        dataset = open_topic(bucket.url, TOPIC, schema="STRING")
        value = pc.field("__value__")
        scanner = dataset.scanner(["__entry_id__", "__value__"], value != "a")
        with pytest.warns(IncompleteReadWarning, match="1 text"):
            table = scanner.to_table()

    assert table.to_pydict() == {"__entry_id__": [1, 2], "__value__": ["\ufffd", "c"]}
    assert scanner.metrics.replaced_texts == 1


def test_travelling_costs_a_read_once_and_a_few_bytes_a_task() -> None:
    """A ledger of 32 blocks takes 200 bytes at the most, whatever its ids; a task's ranges 100."""
    rng = random.Random(0)
    ledger = large_ledgers(rng)

    def topic_read(count: int) -> TopicRead:
        ledgers = tuple(ledger(10**6 + number) for number in range(count))
        ranges = tuple(EntryRange(each.ledger_id, 0, each.last_entry_id) for each in ledgers)
        return TopicRead(Origin("x"), ledgers, ranges, open_golden(_CHUNKED).scan.options)

    small, large = topic_read(10), topic_read(510)

    assert pickle.loads(pickle.dumps(large)) == large
    assert len(pickle.dumps(large)) - len(pickle.dumps(small)) <= 500 * 230
    assert max(len(pickle.dumps(task.ranges)) for task in large.tasks(256 << 20)) <= 100


def test_task_without_report_warns_itself() -> None:
    """`execute` on its own tells what it had to leave out; with metrics, the caller tells."""
    topic = golden_topic("transactions-open")
    (task,) = open_golden(topic).scan.plan()
    notice = f"^{topic.name}: 7 messages of 1 transaction without an outcome"

    with pytest.warns(IncompleteReadWarning, match=notice) as told:
        rows = sum(batch.num_rows for batch in list(execute(task)))
    assert len(told) == 1
    metrics = ReadMetrics()
    assert sum(batch.num_rows for batch in execute(task, metrics)) == rows == metrics.rows


def test_select_and_where_return_copies() -> None:
    """A scan is immutable: whoever holds it goes on reading what it was."""
    scan: Scan = open_golden(_CHUNKED).scan
    before = pickle.dumps(scan)

    narrowed = scan.select(["__key__"]).where(_LEDGER > 15).where(_LEDGER < 18)

    assert pickle.dumps(scan) == before
    assert narrowed.options.projection.schema.names == ["__key__"]
    assert read(narrowed.select(["__ledger_id__"]))["__ledger_id__"].to_pylist() == [16, 17, 17, 17]


def test_ledger_that_the_cluster_trims_is_no_damage(tmp_path: Path) -> None:
    """The error tells to open the topic again; a ledger whose objects are lost is missing."""
    with trimmed_topic(tmp_path / "bucket") as topic:
        dataset = open_topic(topic.url, TOPIC, metadata=topic.metadata, value="raw")
        topic.lose()
        with pytest.raises(MissingObjectError):
            dataset.to_table()
        topic.trim()
        with pytest.raises(TrimmedEntriesError, match="open it again"):
            dataset.to_table()


def test_scan_without_columns_gives_the_number_of_rows() -> None:
    """Engines that count ask for no column: batches have no column, and their rows."""
    scan = open_golden(_CHUNKED).scan.select([])

    assert read(scan).num_rows == _CHUNKED.message_count
    assert read(scan.where(_LEDGER == 14)).num_rows == 3
    (task,) = scan.where(_LEDGER == 14).plan()
    assert sum(batch.num_rows for batch in execute(task, ReadMetrics())) == 3
