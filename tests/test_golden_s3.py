"""Golden topics from S3: the same rows, for the fewest requests and bytes that can be.

The server is moto's, on loopback; the objects have the user metadata that the broker gave them.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector import open_catalog, open_topic
from connector.scan.execution import execute
from tests.support.buckets import offload
from tests.support.builds import BUILDS, using_build
from tests.support.expected import COLUMNS, rows_of
from tests.support.golden import GOLDEN, GoldenTopic, golden_topic, golden_topics
from tests.support.golden_datasets import open_golden
from tests.support.golden_entries import golden_entries
from tests.support.reading import block_table
from tests.support.reference import decode_topic

if TYPE_CHECKING:
    from connector import Catalog, TopicDataset
    from tests.support.s3_server import S3Address, S3Server

pytestmark = [pytest.mark.s3, pytest.mark.both_builds]

_RANGE_BYTES = 1 << 20
_TOPICS = [
    golden_topic(name)
    for name in (
        "bytes-batched-lz4",  # one ledger, shorter than a range
        "multi-ledger",  # six ledgers
        "chunked",  # chunked messages in one ledger
        "multi-block",  # one ledger of 16 ranges
        "small-chunked",  # chunked messages across ledgers
        "small-transactions",  # transactions across ledgers
    )
]


@pytest.fixture(scope="module")
def buckets(s3_server: S3Server) -> dict[str, S3Address]:
    """A bucket for each of two golden sets, with a prefix for one of them."""
    return {
        "pulsar-4.0.7": s3_server.upload_golden(GOLDEN / "pulsar-4.0.7"),
        "pulsar-4.0.7-small": s3_server.upload_golden(GOLDEN / "pulsar-4.0.7-small", prefix="a/b"),
    }


def _open(bucket: S3Address, topic: str, trace: RequestTrace, **options: Any) -> TopicDataset:  # noqa: ANN401
    return open_topic(
        bucket.url, topic, storage_options=bucket.storage_options, trace=trace, **options
    )


def _ledgers_of_set(topic: GoldenTopic) -> int:
    return sum(len(t.ledgers) for t in golden_topics() if t.set_name == topic.set_name)


def _index_bytes_of_set(topic: GoldenTopic) -> int:
    return sum(
        ledger.index_object.stat().st_size
        for t in golden_topics()
        if t.set_name == topic.set_name
        for ledger in t.ledgers
    )


def _data_bytes(topic: GoldenTopic) -> list[int]:
    return [ledger.data_object.stat().st_size for ledger in topic.ledgers]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("topic", _TOPICS, ids=str)
def test_rows_and_requests_of_a_whole_topic(
    buckets: dict[str, S3Address], topic: GoldenTopic, build: str
) -> None:
    """One listing, one GET for each index object, and each byte of the topic's data just once."""
    trace = RequestTrace()

    with using_build(build):
        dataset = _open(buckets[topic.set_name], topic.name, trace)
        opened = trace.counts
        table = dataset.to_table(columns=COLUMNS)

    assert opened == RequestCounts(
        list_requests=1,
        index_requests=_ledgers_of_set(topic),
        index_bytes=_index_bytes_of_set(topic),
    )
    assert trace.counts == opened + RequestCounts(
        range_requests=sum(math.ceil(size / _RANGE_BYTES) for size in _data_bytes(topic)),
        range_bytes=sum(_data_bytes(topic)),
    )
    assert rows_of(table) == rows_of(open_golden(topic).to_table(columns=COLUMNS))


@pytest.mark.parametrize("range_bytes", [5_000, 64 << 10, 16 << 20])
def test_ranges_have_the_length_that_was_asked_for(
    buckets: dict[str, S3Address], range_bytes: int
) -> None:
    """`range_bytes` decides how many requests a ledger takes, not how many bytes."""
    topic, trace = golden_topic("chunked"), RequestTrace(keep_records=True)
    (size,) = _data_bytes(topic)

    dataset = _open(buckets[topic.set_name], topic.name, trace, range_bytes=range_bytes)
    dataset.to_table()

    assert trace.counts.range_requests == math.ceil(size / range_bytes)
    assert trace.counts.range_bytes == size
    ranges = sorted((r.start, r.stop) for r in trace.records if r.start is not None)
    assert ranges == [
        (start, min(start + range_bytes, size)) for start in range(0, size, range_bytes)
    ]


@pytest.fixture(scope="module")
def catalog(buckets: dict[str, S3Address]) -> tuple[Catalog, RequestTrace]:
    """The topics of the larger set, and what counts the requests of all that reads them."""
    trace = RequestTrace()
    bucket = buckets["pulsar-4.0.7"]
    options = bucket.storage_options
    return open_catalog(bucket.url, storage_options=options, trace=trace), trace


def _spent(trace: RequestTrace, before: RequestCounts) -> tuple[int, int]:
    """Requests for ranges, and their bytes, since `before`; there must be no others."""
    after = trace.counts
    assert after.requests - after.range_requests == before.requests - before.range_requests
    return (after.range_requests - before.range_requests, after.range_bytes - before.range_bytes)


def _positions(topic: GoldenTopic) -> list[tuple[int, int]]:
    """Where each entry of a topic of one ledger begins in the data object, and where it ends."""
    ((_, data_object, _),) = topic.offloaded_objects()
    (ledger,) = open_golden(topic).scan.topics[0].ledgers
    data, index, places = data_object.read_bytes(), block_table(ledger), []
    for block in range(index.block_count):
        position = index.block_start(block) + index.data_header_length_bytes
        for _ in range(index.first_entry_id(block), index.block_last_entry_id(block) + 1):
            stop = position + 12 + int.from_bytes(data[position : position + 4])
            places.append((position, stop))
            position = stop
    return places


@pytest.mark.parametrize(
    ("first_entry_id", "last_entry_id"),
    [(0, 0), (0, 2), (1, 2), (0, 20), (20, 20), (0, 40), (20, 40), (30, 75), (75, 75)],
)
def test_bounded_scan_reads_little_more_than_it_needs(
    catalog: tuple[Catalog, RequestTrace], first_entry_id: int, last_entry_id: int
) -> None:
    """At most 1.02 times the bytes from the first block's start to the last entry, and a range.

    Where that entry ends is estimated from its share of the block, and so much is asked for.
    """
    known, trace = catalog
    topic = golden_topic("multi-block")
    (ledger,) = topic.ledgers
    dataset = open_topic(
        known.location.url,
        topic.name,
        catalog=known,
        start=(ledger.ledger_id, first_entry_id),
        end=(ledger.ledger_id, last_entry_id + 1),
    )
    (task,) = dataset.scan.plan()
    (of, entries, block_start, _), *_ = task.block_ranges()
    (span,) = of.byte_spans(entries.first_entry_id, entries.last_entry_id)
    assert span is not None
    last_block = of.blocks(last_entry_id, last_entry_id)[0]
    assert last_block.start < span.sure_stop <= last_block.stop
    needed = max(_positions(topic)[last_entry_id][1], span.sure_stop) - block_start
    before = trace.counts

    table = dataset.to_table()

    requests, received = _spent(trace, before)
    assert received <= 1.02 * needed + _RANGE_BYTES
    assert requests <= math.ceil(needed / _RANGE_BYTES) + 1
    assert set(table["__entry_id__"].to_pylist()) == set(range(first_entry_id, last_entry_id + 1))


def test_count_reads_the_same_ranges(catalog: tuple[Catalog, RequestTrace]) -> None:
    """Counting rows walks over all entries, because the index tells nothing of batches."""
    known, trace = catalog
    topic = golden_topic("multi-block")
    before = trace.counts
    dataset = open_topic(known.location.url, topic.name, catalog=known)

    assert dataset.count_rows() == topic.message_count

    (size,) = _data_bytes(topic)
    assert _spent(trace, before) == (math.ceil(size / _RANGE_BYTES), size)


def test_head_reads_no_further_than_it_must(catalog: tuple[Catalog, RequestTrace]) -> None:
    """A few rows of a large ledger cost the first range and what was fetched ahead of need."""
    known, trace = catalog
    topic = golden_topic("multi-block")
    before = trace.counts

    table = open_topic(known.location.url, topic.name, catalog=known).head(3)

    requests, received = _spent(trace, before)
    assert table.num_rows == 3
    assert requests == 1
    assert received == _RANGE_BYTES


def test_nothing_is_requested_before_rows_are(catalog: tuple[Catalog, RequestTrace]) -> None:
    """Opening with a catalog, planning, and scanners that nobody reads send no request."""
    known, trace = catalog
    before = trace.counts

    dataset = open_topic(known.location.url, "multi-block", catalog=known)
    dataset.scan.plan(task_bytes=1)
    dataset.scanner(["__key__"]).to_batches()

    assert trace.counts == before


def test_tasks_together_read_each_byte_once(s3_server: S3Server) -> None:
    """Where nothing is open at a cut, tasks of one block each read no byte that another reads."""
    topic, trace = golden_topic("multi-block"), RequestTrace()
    objects = offload(golden_entries(topic), block_bytes=5 << 20)
    dataset = _open(s3_server.upload(objects), topic.name.replace("multi-block", "orders"), trace)
    tasks = dataset.scan.plan(task_bytes=1)
    before = trace.counts

    rows = [sum(b.num_rows for b in execute(task, ReadMetrics())) for task in tasks]

    requests, received = _spent(trace, before)
    assert len(tasks) == 4
    assert sum(rows) == topic.message_count
    assert received == sum(task.data_bytes for task in tasks) == len(next(iter(objects.values())))
    assert requests == sum(math.ceil(task.data_bytes / _RANGE_BYTES) for task in tasks)


def test_a_task_reads_on_only_until_its_chunks_are_closed(buckets: dict[str, S3Address]) -> None:
    """Ledgers behind a task are read only as far as messages that began in it go on."""
    topic, trace = golden_topic("small-chunked"), RequestTrace(keep_records=True)
    tasks = _open(buckets[topic.set_name], topic.name, trace).scan.plan(task_bytes=1)
    names = {each.ledger_id: each.data_object.name for each in topic.ledgers}
    messages = decode_topic(golden_entries(topic))

    for ledger_id, task in zip(names, tasks, strict=True):
        closed_in = max(
            [ledger_id]
            + [m.ledger_id for m in messages if m.first_chunk and m.first_chunk[0] == ledger_id]
        )
        seen = len(trace.records)
        for _ in execute(task, ReadMetrics()):
            pass
        read = [record.name for record in trace.records[seen:]]

        # Where the entries stand in the ledgers behind, the task knows.
        assert read == [names[other] for other in range(ledger_id, closed_in + 1)]


def test_topics_of_a_prefix_are_those_below_it(buckets: dict[str, S3Address]) -> None:
    """A catalog of a prefix has the set's topics; the bucket's root, which has no objects, none."""
    bucket = buckets["pulsar-4.0.7-small"]
    wanted = {t.name for t in golden_topics() if t.set_name == "pulsar-4.0.7-small"}

    found = open_catalog(bucket.url, storage_options=bucket.storage_options).topics()
    root = bucket.url.removesuffix("/a/b")

    assert {str(topic) for topic in found} == wanted
    assert open_catalog(root, storage_options=bucket.storage_options).topics() == []
    for left, right in itertools.pairwise(found):
        assert (str(left.base), left.partition) < (str(right.base), right.partition)
