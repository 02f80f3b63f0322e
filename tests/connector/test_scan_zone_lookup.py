"""`connector.scan.zone_lookup`: files of statistics are looked into side by side."""

from __future__ import annotations

import warnings
from typing import Final

import pyarrow.compute as pc
import pytest

from arrow_io.storage.location import Location
from connector import open_topic
from connector.statistics.store import open_statistics
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.entries import Message, encode_entry
from tests.support.slow_store import SlowStore
from tests.support.statistics import analyzed

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
