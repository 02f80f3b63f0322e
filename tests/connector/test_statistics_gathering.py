"""What is told of a zone, and that whatever is wrong in it is met by whoever reads."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import PulsarOffloadError
from arrow_io.read_metrics import ReadMetrics
from connector import open_catalog, open_topic
from connector.statistics.store import open_statistics
from tests.support.buckets import (
    TOPIC,
    memory_bucket,
    offload,
    with_longer_ledger,
    with_lost_entries,
)
from tests.support.damage import Part, flipped, regions, woven_objects
from tests.support.entries import Framing, Message, encode_entry
from tests.support.expected import COLUMNS, time_of
from tests.support.reading import read
from tests.support.slow_store import SlowStore
from tests.support.statistics import analyzed, rows_of

_NEVER: Final = pc.field("__publish_time__") == datetime(1980, 1, 1, tzinfo=UTC)
"""No row passes, so that without damage nothing need be read."""


def _rows_and_losses(url: str, **options: Any) -> tuple[str | pa.Table, dict[Any, int]]:  # noqa: ANN401
    metrics = ReadMetrics()
    try:
        scan = open_topic(url, TOPIC, columns=COLUMNS, **options).scan.where(_NEVER)
        rows = read(scan, metrics=metrics)
    except PulsarOffloadError as error:
        return f"{type(error).__name__}: {error}", {}
    return rows, dict(metrics.lost)


def _check_is_met(objects: dict[str, bytes]) -> None:
    """What is read with statistics must be what is read without."""
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        for on_corruption in ("raise", "salvage"):
            without = _rows_and_losses(bucket.url, on_corruption=on_corruption)
            given = _rows_and_losses(bucket.url, on_corruption=on_corruption, statistics=folder.url)
            assert given == without


@pytest.mark.parametrize("part", Part)
def test_damage_of_any_part_of_an_object_is_met(part: Part) -> None:
    """Of entries, of what stands around them, and of padding, be there a row or not."""
    objects = woven_objects()
    for name, data in objects.items():
        found = [] if name.endswith("-index") else list(regions(data))
        mine = [each for each in found if each.part is part and each.start < each.stop]
        for region in {mine[at].start: mine[at] for at in (0, -1) if mine}.values():
            _check_is_met(objects | {name: flipped(data, region.start, 0x40)})


def _single(payload: bytes = b"value", *, framing: Framing | None = None, **message: Any) -> bytes:  # noqa: ANN401
    fields = {name: message.pop(name) for name in tuple(message) if name in _OUTER}
    return encode_entry(
        [Message(payload=payload, **message)],
        batched=False,
        framing=framing or Framing(),
        **fields,
    )


_OUTER: Final = {"publish_time", "schema_version", "txnid_most_bits", "txnid_least_bits"}


def test_payloads_that_cannot_be_decompressed_are_met() -> None:
    """A reader decompresses a payload before a filter is applied, be it of a batch or not."""
    for batched in (False, True):
        entry = encode_entry(
            [Message(payload=b"value " * 9)],
            batched=batched,
            framing=Framing(codec="ZSTD", checksum=False),
        )
        _check_is_met(offload([(3, [entry[:-7] + b"garbage", _single()])]))


def test_lengths_that_do_not_add_up_are_met() -> None:
    """The length of a whole ledger is compared only by who reads it whole."""
    objects = offload([(3, [_single(), _single()])])
    name = next(each for each in objects if each.endswith("-index"))
    objects[name] = with_longer_ledger(objects[name], -1)

    _check_is_met(objects)


def test_entries_that_the_offloader_lost_are_met() -> None:
    """They are in no zone."""
    objects = offload([(3, [_single(), _single()])])
    name = next(each for each in objects if each.endswith("-index"))
    objects[name] = with_lost_entries(objects[name], 2)

    _check_is_met(objects)


def test_counts_that_begin_anew_are_no_error() -> None:
    """Of a topic that was made anew, the first entries of the newer ledger may be left out."""
    ledgers = [
        (
            ledger_id,
            [
                _single(
                    publish_time=1_700_000_000_000 + (index == skipped),
                    framing=Framing(broker_metadata=(1_700_000_000_000, index)),
                )
                for index in indexes
            ],
        )
        for ledger_id, indexes, skipped in ((3, (7, 8, 9), 8), (4, (0, 1, 2), 0))
    ]
    passing = pc.field("__publish_time__") == time_of(1_700_000_000_000)
    with memory_bucket(offload(ledgers)) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url)
        scan = open_topic(bucket.url, TOPIC, statistics=folder.url).scan.where(passing)
        [topic_read] = scan.reads()
        rows = read(scan)

    assert topic_read.pruning.zones == 2
    assert rows["__entry_id__"].to_pylist() == [0, 2, 1, 2]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    zone_bytes=st.integers(1, 1500),
    block_bytes=st.sampled_from((1200, 1 << 20)),
)
def test_zones_are_as_long_as_they_may_be(
    sizes: list[int], zone_bytes: int, block_bytes: int
) -> None:
    """Each entry stands in one; none is longer than wanted but that of one long entry."""
    objects = offload([(3, [_single(bytes(size)) for size in sizes])], block_bytes=block_bytes)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        known = analyzed(bucket.url, TOPIC, folder.url, zone_bytes=zone_bytes)
        rows = rows_of(known, TOPIC)
    firsts, lasts = ([row[name] for row in rows] for name in ("first_entry_id", "last_entry_id"))
    assert firsts == [0, *(last + 1 for last in lasts[:-1])]
    assert lasts[-1] == len(sizes) - 1
    for row in rows:
        is_one = row["first_entry_id"] == row["last_entry_id"]
        assert is_one or row["stop"] - row["start"] <= zone_bytes
    (data,) = (data for name, data in objects.items() if not name.endswith("-index"))
    entry_stops = {each.entry_id: each.stop for each in regions(data) if each.entry_id is not None}
    for row, following in pairwise(rows):
        is_end_of_block = row["stop"] < following["start"]
        is_full = entry_stops[row["last_entry_id"] + 1] - row["start"] > zone_bytes
        assert is_end_of_block or is_full


def test_each_zone_is_one_request() -> None:
    """Whatever stands around it, none takes a second one for its last bytes."""
    entries = [_single(bytes(size)) for size in (*range(9_000, 180_000, 4_500), 40)]
    store = SlowStore(offload([(3, entries)], block_bytes=3 << 20), tells_times=False)
    with memory_bucket({}) as folder:
        open_catalog(store.url).analyze(folder.url, [TOPIC])
        rows = rows_of(open_statistics(folder.url), TOPIC)
        for row in rows:
            first, last = row["first_entry_id"], row["last_entry_id"]
            entry_id = pc.field("__entry_id__")
            known = open_topic(store.url, TOPIC, statistics=folder.url, value="raw")
            store.measure_anew()
            found = known.to_table(filter=(entry_id >= first) & (entry_id <= last))
            assert found.num_rows == last - first + 1
            assert store.flights.count == 1
    store.drop()


_HASHES: Final = {"a": 27_058, "b": 32_259}
"""The lower 16 bits of the hashes of two keys."""


def _stamped(key: str | None, stamp: tuple[int, int] | None) -> bytes:
    message = Message(partition_key=key)
    if stamp is None:
        return encode_entry([message], batched=False)
    return encode_entry([message], batched=False, entry_hash_min=stamp[0], entry_hash_max=stamp[1])


@pytest.mark.parametrize(
    ("entries", "stamps"),
    [
        ([("a", None), (None, None)], (None, None, None)),
        ([("a", (_HASHES["a"], _HASHES["a"]))], (_HASHES["a"], _HASHES["a"], True)),
        ([("a", (0, 30_000)), ("b", (31_000, 40_000))], (0, 40_000, True)),
        ([("a", (0, 30_000)), ("b", None)], (0, 30_000, False)),
        ([("a", (0, 9)), (None, None)], (0, 9, False)),
        ([(None, (3, 9)), (None, None)], (3, 9, True)),
    ],
)
@pytest.mark.usefixtures("build")
def test_stamps_are_recorded_with_whether_they_hold(
    entries: list[tuple[str | None, tuple[int, int] | None]], stamps: tuple[Any, ...]
) -> None:
    """Each key of the zone must hash into the range of all stamps, or they prove nothing."""
    objects = offload([(0, [_stamped(*each) for each in entries])])
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        [row] = rows_of(analyzed(bucket.url, TOPIC, folder.url, zone_bytes=1 << 20), TOPIC)

    names = ("min_entry_hash", "max_entry_hash", "keys_have_hashes")
    assert tuple(row[name] for name in names) == stamps
