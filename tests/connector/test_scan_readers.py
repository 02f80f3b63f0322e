"""Readers that are left half read: what they keep does not grow with what they have read."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from arrow_io.core import prefetch
from arrow_io.core.prefetch import most_units
from arrow_io.core.shared_budget import process_budgets
from arrow_io.storage.range_prefetch import DEFAULT_PREFETCH_BYTES
from connector import open_topic
from connector.scan import scan_units
from tests.support.buckets import TOPIC, object_name, offload_ledger
from tests.support.entries import Message, encode_entry
from tests.support.slow_store import SlowStore
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connector import TopicDataset

_LEDGERS = 4
_ENTRIES = 25
_MESSAGES = 100
_ROWS = _LEDGERS * _ENTRIES * _MESSAGES
_READERS = 100
_THREADS = 16
_BATCH_BYTES = 50_000


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """A topic of 2 MB: four ledgers with 2,500 messages of 200 bytes each."""
    objects: dict[str, bytes] = {}
    for number in range(1, _LEDGERS + 1):
        entries = [
            encode_entry([Message(payload=bytes([entry]) * 200)] * _MESSAGES, batched=True)
            for entry in range(_ENTRIES)
        ]
        objects |= offload_ledger(object_name(number), entries)
    return objects


@pytest.fixture
def dataset(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[TopicDataset]:
    """The topic; each unit of a scan has one record batch of 50 kB, for sixteen threads."""
    monkeypatch.setattr(scan_units, "processor_count", lambda: _THREADS)
    monkeypatch.setattr(scan_units, "unit_limits", scan_units.batch_limits)
    store = SlowStore(objects, tells_times=False)
    options: dict[str, Any] = {"value": "raw", "range_bytes": 100_000, "batch_bytes": _BATCH_BYTES}
    yield open_topic(store.url, TOPIC, **options)
    store.drop()


def _allocated_bytes() -> int:
    pools = {pa.default_memory_pool().backend_name: pa.default_memory_pool()}
    pools["system"] = pa.system_memory_pool()
    return sum(each.bytes_allocated() for each in pools.values())


def _generators(dataset: TopicDataset) -> Iterator[pa.RecordBatch]:
    return dataset.to_batches(["__value__"])


def _arrow_readers(dataset: TopicDataset) -> Iterator[pa.RecordBatch]:
    return iter(dataset.scanner(["__value__"]).to_reader())


@pytest.mark.parametrize("opened", [_generators, _arrow_readers])
@pytest.mark.parametrize("taken", [1, 12])
def test_half_read_readers_keep_a_unit_each_and_no_thread(
    opened: Callable[[TopicDataset], Iterator[pa.RecordBatch]], taken: int, dataset: TopicDataset
) -> None:
    """A hundred of them; all together have room for what one reads ahead, and each goes on."""
    threads, allocated_bytes = threading.active_count(), _allocated_bytes()
    budgets = process_budgets()
    # Columns, and what they are made of.
    unit_bytes = 3 * _BATCH_BYTES
    readers = []
    rows = []
    for _ in range(_READERS):
        readers.append(opened(dataset))
        rows.append(sum(next(readers[-1]).num_rows for _ in range(taken)))
        assert budgets.ranges.total <= DEFAULT_PREFETCH_BYTES
        assert budgets.results.total <= most_units(_THREADS)
    assert threading.active_count() - threads <= 2 * _THREADS + 40
    wait_until(
        lambda: (
            _allocated_bytes() - allocated_bytes
            <= (2 * _READERS + most_units(_THREADS)) * unit_bytes
        )
    )

    def is_released() -> bool:
        prefetch._keeper.release_idle(time.monotonic() + 60)
        return not (budgets.ranges.total or budgets.results.total)

    wait_until(is_released)
    wait_until(lambda: _allocated_bytes() - allocated_bytes <= 2 * _READERS * unit_bytes)
    for reader, count in zip(readers, rows, strict=True):
        assert count + sum(batch.num_rows for batch in reader) == _ROWS
    del readers
    wait_until(lambda: not (budgets.ranges.total or budgets.results.total))


def test_rows_and_counts_are_the_same_after_pauses(dataset: TopicDataset) -> None:
    """What was decoded again is neither given nor counted twice."""
    expected = dataset.to_table(["__value__", "__entry_id__"])
    metrics = dataset.metrics
    batches = []
    reader = dataset.to_batches(["__value__", "__entry_id__"])
    for number, batch in enumerate(reader):
        batches.append(batch)
        if number % 5 == 0:
            prefetch._keeper.release_idle(time.monotonic() + 60)

    assert pa.Table.from_batches(batches).equals(expected)
    assert dataset.metrics == metrics
