"""What reads ask the store for, and what they hold of its answers."""

from __future__ import annotations

import json
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.compute as pc
import pytest

from arrow_io.core.prefetch import most_units
from arrow_io.messages.message_reader import BatchLimits
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.storage.range_prefetch import DEFAULT_PREFETCH_BYTES
from arrow_io.storage.trace import RequestTrace
from connector import open_topic
from connector.scan import execution, scan_units
from connector.scan.read_options import ReadOptions
from tests.support.buckets import TOPIC, memory_bucket, object_name, offload, offload_ledger
from tests.support.entries import Message, encode_entry, encode_marker
from tests.support.reference import TXN_COMMIT
from tests.support.slow_store import SlowStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from arrow_io.columns import Projection
    from connector import TopicDataset

_LEDGERS = 12
_ENTRIES = 24
_MESSAGES = 100


@pytest.fixture(scope="module")
def store() -> Iterator[SlowStore]:
    """A topic of 29 MB: twelve ledgers with 2,400 messages of 1 KB each."""
    entry = encode_entry([Message(payload=bytes(1000))] * _MESSAGES, batched=True)
    objects: dict[str, bytes] = {}
    for number in range(1, _LEDGERS + 1):
        objects |= offload_ledger(object_name(number), [entry] * _ENTRIES)
    store = SlowStore(objects, tells_times=False)
    yield store
    store.drop()


def _opened(store: SlowStore) -> tuple[TopicDataset, RequestTrace]:
    trace = RequestTrace(keep_records=True)
    return open_topic(store.url, TOPIC, value="raw", trace=trace), trace


def _ranges(trace: RequestTrace) -> list[tuple[str, int, int]]:
    return sorted(
        (each.name, each.start, each.stop)
        for each in trace.records
        if each.start is not None and each.stop is not None
    )


@pytest.mark.parametrize(
    "read",
    [
        lambda dataset: len(dataset.head(10)),
        lambda dataset: len(duckdb.from_arrow(dataset).limit(10).fetchall()),
        lambda dataset: min(10, next(dataset.to_batches()).num_rows),
        lambda dataset: len(dataset.scan_polars().head(10).collect()),
    ],
    ids=["head", "DuckDB", "first batch", "Polars"],
)
def test_ten_rows_cost_two_requests_at_the_most(
    store: SlowStore, read: Callable[[TopicDataset], int]
) -> None:
    """However large the topic is."""
    dataset, trace = _opened(store)

    assert read(dataset) == 10
    assert 1 <= trace.counts.range_requests <= 2


def test_filter_that_never_holds_reads_what_a_scan_reads(store: SlowStore) -> None:
    """The same ranges, each once: filters are no reason to fetch anything twice, or otherwise."""
    found = []
    for condition in (None, pc.field("__sequence_id__") < -1, pc.field("__value__") == b"none"):
        dataset, trace = _opened(store)
        rows = sum(batch.num_rows for batch in dataset.to_batches(filter=condition))
        assert rows == (0 if condition is not None else _LEDGERS * _ENTRIES * _MESSAGES)
        found.append(_ranges(trace))

    assert sum(stop - start for _, start, stop in found[0]) == sum(
        len(data) for name, data in store.objects.items() if not name.endswith("-index")
    )
    assert found[1] == found[2] == found[0]


def test_what_stands_between_a_transaction_and_its_end_is_fetched_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If there is too much of it to be kept; but nothing that stands before it in their block."""
    limited = partial(TransactionLookahead, max_buffered_bytes=1)
    monkeypatch.setattr(execution, "TransactionLookahead", limited)
    single = encode_entry([Message(payload=bytes(100_000))], batched=False)
    opened = encode_entry(
        [Message(payload=b"in transaction")],
        batched=False,
        txnid_most_bits=1,
        txnid_least_bits=2,
    )
    between = [single] * 20
    entries = [*[single] * 100, opened, *between, encode_marker(TXN_COMMIT, txn_id=(1, 2))]
    objects = offload([(1, entries)], block_bytes=64 << 20)
    trace = RequestTrace()

    with memory_bucket(objects) as bucket:
        dataset = open_topic(bucket.url, TOPIC, value="raw", trace=trace)
        assert sum(batch.num_rows for batch in dataset.to_batches()) == 121

    largest = max(len(data) for data in objects.values())
    assert trace.counts.range_bytes <= largest + sum(map(len, between)) + (3 << 20)


@cache
def _every_column(fields: int) -> Projection:
    """All columns: with values of so many fields, or as bytes if there are none."""
    names = [{"name": f"f{number}", "type": "long"} for number in range(fields)]
    schema = {"type": "record", "name": "r", "fields": names}
    with memory_bucket(
        offload_ledger(object_name(1), [encode_entry([Message(payload=b"{}")], batched=False)])
    ) as bucket:
        typed: dict[str, Any] = {"schema": {"type": "JSON", "data": json.dumps(schema)}}
        options: dict[str, Any] = typed if fields else {"value": "raw"}
        return open_topic(bucket.url, TOPIC, **options).scan.options.projection


@pytest.mark.parametrize("threads", [1, 2, 16, 64])
@pytest.mark.parametrize("rows", [1, 700, 2000, 65_536, 1 << 30])
@pytest.mark.parametrize("size_bytes", [1, 100_000, 4 << 20, 1 << 40])
@pytest.mark.parametrize("fields", [0, 300, 5000])
def test_units_of_all_threads_hold_no_more_than_a_few_do(
    threads: int, rows: int, size_bytes: int, fields: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more are decoded at once, the smaller they are, whatever record batches are asked for.

    There are no more threads than those whose units hold Python's lock for a small part of the
    time that their decoding takes.
    """
    monkeypatch.setattr(scan_units, "processor_count", lambda: threads)
    decoding = scan_units.decoding_threads()
    every = _every_column(fields)
    limits = BatchLimits(max_rows=rows, max_bytes=size_bytes)
    options = ReadOptions(projection=every, filterable=every, limits=limits)

    batch = scan_units.batch_limits(options, decoding)
    unit = scan_units.unit_limits(options, decoding)

    # Entries, what their payloads decompress to, and as many bytes again of columns; what is noted
    # of each message; and what a record batch takes besides.
    most = scan_units.unit_memory_bytes(decoding)
    assert most >= 7 << 20
    assert most * most_units(decoding) <= scan_units.DECODED_PREFETCH_BYTES
    batches = unit.max_rows // batch.max_rows
    assert max(3 * unit.max_bytes, 2 * 41 * 8 * unit.max_rows) <= most
    assert batches == 1 or batches * (len(every.columns) + fields) * 1024 <= most // 4
    assert unit.max_rows == batches * batch.max_rows
    assert unit.max_bytes % batch.max_bytes == 0
    assert batch.max_rows <= rows
    assert batch.max_bytes <= size_bytes
    assert batch.first_rows <= batch.max_rows
    assert scan_units.DECODED_PREFETCH_BYTES + DEFAULT_PREFETCH_BYTES <= 300e6
    assert batches == 1 or unit.max_rows * fields <= 8 << 20
    if not fields and rows >= 65_536:
        assert unit.max_rows >= most // 2000
    if not fields and size_bytes >= 4 << 20:
        assert unit.max_bytes >= most // 3 // 2


@pytest.mark.parametrize(("has_lock", "threads"), [(True, 8), (False, 32)])
def test_python_without_a_global_lock_decodes_in_a_thread_per_core(
    has_lock: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the lock, more threads would wait for each other."""
    monkeypatch.setattr(scan_units, "processor_count", lambda: 32)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: has_lock, raising=False)

    assert scan_units.decoding_threads() == threads


def test_scan_with_many_threads_gives_smaller_batches(
    store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So memory does not grow with the number of cores."""
    dataset, _ = _opened(store)
    monkeypatch.setattr(scan_units, "processor_count", lambda: 16)

    batches = list(dataset.to_batches(["__value__"]))

    assert sum(batch.num_rows for batch in batches) == _LEDGERS * _ENTRIES * _MESSAGES
    most = scan_units.unit_memory_bytes(scan_units.decoding_threads())
    assert max(batch.nbytes for batch in batches) <= most // 2


def test_messages_of_transactions_are_in_smaller_batches_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are put together by one thread, and wait for many."""
    monkeypatch.setattr(scan_units, "processor_count", lambda: 64)
    ids: dict[str, Any] = {"txnid_most_bits": 1, "txnid_least_bits": 2}
    opened = encode_entry([Message(payload=bytes(1000))] * 100, batched=True, **ids)
    entries = [opened] * 20 + [encode_marker(TXN_COMMIT, txn_id=(1, 2))]
    with memory_bucket(offload_ledger(object_name(1), entries)) as bucket:
        batches = list(open_topic(bucket.url, TOPIC, value="raw").to_batches(["__value__"]))

    assert sum(batch.num_rows for batch in batches) == 2000
    most = scan_units.unit_memory_bytes(scan_units.decoding_threads())
    assert max(batch.nbytes for batch in batches) <= most // 2
