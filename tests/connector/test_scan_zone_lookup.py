"""`connector.scan.zone_lookup`: files are looked into side by side, and no row counts twice."""

from __future__ import annotations

import itertools
import pickle
import warnings
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from unittest.mock import patch

import numpy as np
import pyarrow.compute as pc
import pytest

from arrow_io.storage.location import Location
from connector import open_topic
from connector.inputs.bounds import Bounds
from connector.scan.pruning import _ledgers_pruned_by_time
from connector.scan.zone_predicates import ZonePredicate
from connector.statistics.analysis import analyze
from connector.statistics.store import open_statistics
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.slow_store import SlowStore
from tests.support.statistics import analyzed, ledgers_of

if TYPE_CHECKING:
    from connector.catalog.topic_ledgers import TopicLedgers


_LEDGERS: Final = range(3, 11)
_WANTED: Final = pc.field("__key__") == "key-5-1"


def _objects() -> dict[str, bytes]:
    return offload([(each, [_entry(f"key-{each}-{n}") for n in range(3)]) for each in _LEDGERS])


def _entry(key: str) -> bytes:
    return encode_entry([Message(payload=b"value", partition_key=key)], batched=True)


def test_files_are_asked_at_once() -> None:
    """The store answers no footer, no column and no filter of keys before all are asked for."""
    with memory_bucket(_objects()) as bucket, memory_bucket({}) as folder:
        for ledger_id in _LEDGERS:
            analyzed(bucket.url, TOPIC, folder.url, ledger_ids=[ledger_id])
        location = Location(folder.url)
        files = {
            info.name: location.read_range(info.name, 0, info.size_bytes).data
            for info in location.list_objects()
        }
        count = len(files)
        store = SlowStore(files, waves=[count, count, count])
        try:
            topic = open_topic(bucket.url, TOPIC, statistics=store.url, value="raw")
            rows = topic.to_table(filter=_WANTED).num_rows
        finally:
            store.drop()

    assert count == len(_LEDGERS)
    assert store.waves_left == []
    assert rows == 1
    assert topic.metrics.skipped_zones == 3 * count - 1


@pytest.mark.parametrize("sound", range(3))
def test_what_damaged_files_do_not_tell_another_does(sound: int) -> None:
    """Whichever it is of three that know the same; a file that was in vain is told."""
    with memory_bucket(_objects()) as bucket, memory_bucket({}) as folder:
        for size in (1, 150, 1 << 20):
            analyzed(bucket.url, TOPIC, folder.url, zone_bytes=size)
        known = open_statistics(folder.url)
        topic = open_topic(bucket.url, TOPIC, statistics=folder.url, value="raw")
        for number, file in enumerate(known.files):
            if number != sound:
                data = bytes(known.location.read_range(file.name, 0, file.size_bytes).data)
                # Its footer is as it was: what stands before it is read when it is needed.
                folder.rot(file.name, bytes(64) + data[64:])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            rows = topic.to_table(filter=_WANTED).num_rows

    assert len(known.files) == 3
    assert rows == 1
    assert topic.metrics.unknown_ledgers == 0
    assert topic.metrics.skipped_zones > 0
    assert any("not as it was written" in str(each.message) for each in told) == (sound > 0)


_BATCHES = (3, 1, 4, 2)
_COUNTED = (5, 8)


def _counted_objects() -> dict[str, bytes]:
    entries = [
        encode_entry(
            [Message(payload=b"a", partition_key=f"{entry}-{n}") for n in range(size)],
            batched=True,
            publish_time=1_700_000_000_000 + entry,
        )
        for entry, size in enumerate(_BATCHES)
    ]
    return offload([(ledger_id, entries) for ledger_id in _COUNTED])


@pytest.mark.parametrize("sizes", list(itertools.permutations([1, 200, 1 << 20], 2)), ids=str)
def test_a_ledger_in_two_files_counts_once(sizes: tuple[int, int]) -> None:
    """Two runs at a time write the same ledgers, and may cut them at other places."""
    with memory_bucket(_counted_objects()) as bucket, memory_bucket({}) as folder:
        nothing_known = open_statistics(folder.url)
        for size in sizes:
            with patch("connector.statistics.whole_ledgers.ZONE_BYTES", size):
                analyze(nothing_known, ledgers_of(bucket.url, TOPIC))
        assert len(open_statistics(folder.url).files) == 2
        options: dict[str, Any] = {"value": "raw", "statistics": folder.url}
        dataset = open_topic(bucket.url, TOPIC, **options)

        assert dataset.count_rows() == len(_COUNTED) * sum(_BATCHES)
        assert dataset.metrics.rows == len(_COUNTED) * sum(_BATCHES)
        skipped = dataset.scan.where(pc.field("__key__") == "none").pruning()
        data = dataset.scan.topics[0].data
        assert skipped.bytes <= sum(each.stored_bytes for each in data)
        assert skipped.unknown_ledgers == 0


def test_bounds_inside_a_batch_count_its_part() -> None:
    """Every start and end, with and without statistics, in zones of an entry and of all."""
    ids = [
        (ledger_id, entry, member)
        for ledger_id in _COUNTED
        for entry, size in enumerate(_BATCHES)
        for member in range(size + 1)
    ]
    for size in (1, 1 << 20):
        with memory_bucket(_counted_objects()) as bucket, memory_bucket({}) as folder:
            analyzed(bucket.url, TOPIC, folder.url, zone_bytes=size)
            for bound, name in itertools.product(ids, ("start", "end")):
                options: dict[str, Any] = {"value": "raw", name: bound}
                dataset = open_topic(bucket.url, TOPIC, statistics=folder.url, **options)
                assert dataset.count_rows() == dataset.to_table().num_rows, (name, bound)


@pytest.mark.parametrize("sign", ["-", ""], ids=["early", "late"])
def test_bounds_may_lie_where_no_time_is(sign: str) -> None:
    """NumPy has times that are farther off than a timestamp in µs can tell."""
    far = np.datetime64(f"{sign}290000000-01-01", "ms")
    with memory_bucket(_counted_objects()) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        for name in ("start", "end"):
            options: dict[str, Any] = {"value": "raw", name: far}
            whole = open_topic(bucket.url, TOPIC, **options)
            known = open_topic(bucket.url, TOPIC, statistics=folder.url, **options)

            assert known.count_rows() == whole.count_rows()
            assert known.to_table().equals(whole.to_table())


def test_what_was_read_of_statistics_is_not_pickled() -> None:
    """Each process reads it when it needs it."""
    with memory_bucket(_counted_objects()) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        dataset = open_topic(bucket.url, TOPIC, value="raw", statistics=folder.url)
        assert dataset.count_rows() == dataset.to_table().num_rows

        sent = pickle.dumps(dataset)

        assert len(sent) < 6_000
        assert pickle.loads(sent).count_rows() == dataset.count_rows()


@pytest.mark.parametrize("closed_ms", [97_000, 100_000, 103_000])
def test_times_of_two_clocks_spare_nothing(closed_ms: int) -> None:
    """One broker made the ledger; if it was closed before that, by a clock that is behind."""
    info = SimpleNamespace(timestamp_ms=closed_ms)
    metadata = SimpleNamespace(ctime_ms=100_000)
    copy = SimpleNamespace(ledger=SimpleNamespace(ledger_metadata=metadata))
    state = SimpleNamespace(ledger_id=5, info=info, copy=copy)
    topic = cast("TopicLedgers", SimpleNamespace(states=[state]))

    for start_ms in range(95_000, 105_000, 100):
        bounds = Bounds(start_ms=start_ms, end_ms=start_ms + 100)
        left_out = _ledgers_pruned_by_time(topic, ZonePredicate([{}], bounds), timedelta(seconds=1))
        is_outside = start_ms + 100 <= 99_000 or start_ms > closed_ms + 1000
        assert bool(left_out) is (closed_ms >= 100_000 and is_outside)
