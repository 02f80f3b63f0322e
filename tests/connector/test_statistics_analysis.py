"""What is not known yet is read once, whole ledgers are written, and little is read with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pyarrow.compute as pc
import pytest

from arrow_io.errors import OptionError, StorageError, TrimmedEntriesError
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_catalog, open_topic
from connector.statistics import whole_ledgers, zone_writer
from connector.statistics.analysis import analyze, unknown_ledgers
from connector.statistics.store import open_statistics
from tests.support.buckets import TOPIC, memory_bucket, offload
from tests.support.damage import Part, flipped, regions
from tests.support.entries import (
    Framing,
    Message,
    encode_chunks,
    encode_entry,
    encode_marker,
)
from tests.support.expected import time_of
from tests.support.reading import read
from tests.support.reference import TXN_ABORT, TXN_COMMIT
from tests.support.slow_store import SlowStore
from tests.support.statistics import analyzed, ledgers_of, rows_of
from tests.support.trimmed_topic import trimmed_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from connector.scan.topic_scan import Scan
    from connector.statistics.analysis import Analyzed

_FIRST_MS: Final = 1_700_000_000_000
_ZONES: Final = 200
_ENTRIES_OF_ZONE: Final = 5


def _entry(number: int, *, size_bytes: int = 6) -> bytes:
    message = Message(payload=b"v" * size_bytes, partition_key=f"key-{number}")
    return encode_entry([message], batched=False, publish_time=_FIRST_MS + number)


def _rows(folder: str) -> list[dict[str, Any]]:
    return rows_of(open_statistics(folder), TOPIC)


def test_each_ledger_is_read_once() -> None:
    """Those that are known are not read again; what is new is put beside them."""
    first = offload([(3, [_entry(0), _entry(1)]), (4, [_entry(2)])])
    told: list[Analyzed] = []
    with memory_bucket(first) as bucket, memory_bucket({}) as folder:
        known = open_statistics(folder.url)
        ledgers = ledgers_of(bucket.url, TOPIC)
        assert unknown_ledgers(known, TOPIC, [each for _, each in ledgers]) == [
            each for _, each in ledgers
        ]
        known = analyze(known, ledgers, told.append)
        assert [(each.ledger_id, each.zones, each.losses) for each in told] == [
            (3, 1, ()),
            (4, 1, ()),
        ]
        bucket.put(offload([(9, [_entry(3)])]))
        for statistics in (known, open_statistics(folder.url)):
            unknown = unknown_ledgers(
                statistics, TOPIC, [each for _, each in ledgers_of(bucket.url, TOPIC)]
            )
            assert [each.ledger_id for each in unknown] == [9]
        again = analyze(known, [(TOPIC, each) for each in unknown])
        assert len(again.files) == 2
        every = [each for _, each in ledgers_of(bucket.url, TOPIC)]
        assert not unknown_ledgers(again, TOPIC, every)
        # Of another topic or partition nothing is known.
        assert unknown_ledgers(again, f"{TOPIC}-partition-0", every) == every


def test_nothing_to_read_writes_nothing() -> None:
    """Neither without ledgers nor without a sound entry."""
    objects = offload([(3, [_entry(0)])])
    name = next(iter(objects))
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        assert not analyze(open_statistics(folder.url), []).files
        bucket.put({name: flipped(objects[name], 0, 0xFF)})
        told: list[Analyzed] = []
        assert not analyze(
            open_statistics(folder.url), ledgers_of(bucket.url, TOPIC), told.append
        ).files

    assert (told[0].zones, len(told[0].losses)) == (0, 1)


def test_objects_that_are_deleted_meanwhile_end_nothing() -> None:
    """Nothing is known of their ledgers; the others are read."""
    ledgers = [(ledger_id, [_entry(n) for n in range(4)]) for ledger_id in (3, 4, 5)]
    objects = offload(ledgers)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        chosen = ledgers_of(bucket.url, TOPIC)
        bucket.delete(next(name for name in objects if name.endswith("ledger-4")))
        told: list[Analyzed] = []
        analyze(open_statistics(folder.url), chosen, told.append)
        found = {row["ledger_id"] for row in _rows(folder.url)}

    assert [len(each.losses) for each in told] == [0, 1, 0]
    assert found == {3, 5}


def test_a_ledger_that_the_cluster_trims_is_no_damage(tmp_path: Path) -> None:
    """The run ends with the reason; one whose objects are lost is damaged, and ends nothing."""
    with trimmed_topic(tmp_path / "bucket") as topic, memory_bucket({}) as folder:
        catalogs = [open_catalog(topic.url, metadata=topic.metadata) for _ in range(2)]
        for each in catalogs:
            each.select(TOPIC)
        topic.lose()
        done = catalogs[0].analyze(f"{folder.url}/lost", TOPIC, storage_options={})
        assert [len(each.losses) for each in done] == [1, 0, 0]
        topic.trim()
        with pytest.raises(TrimmedEntriesError, match="open it again"):
            catalogs[1].analyze(f"{folder.url}/trimmed", TOPIC, storage_options={})


def test_a_run_that_fails_leaves_whole_ledgers() -> None:
    """What was read before is written, and of the ledger in hand nothing."""
    ledgers = [(ledger_id, [_entry(n) for n in range(4)]) for ledger_id in (3, 4, 5)]
    objects = offload(ledgers)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        chosen = ledgers_of(bucket.url, TOPIC)

        units = whole_ledgers._units

        def failing(_: object, made: Any, *rest: Any) -> Iterator[Any]:  # noqa: ANN401 - as of what it stands for
            yield from units(chosen[:2], made, *rest)
            yield from list(units(chosen[2:], made, *rest))[:1]
            raise StorageError("gone")

        with (
            patch("connector.statistics.whole_ledgers.ZONE_BYTES", 1),
            patch.object(whole_ledgers, "_units", failing),
            pytest.raises(StorageError),
        ):
            analyze(open_statistics(folder.url), chosen)
        found = {row["ledger_id"] for row in _rows(folder.url)}

    assert found == {3, 4}


def _entry_with_key(number: int) -> bytes:
    return encode_entry([Message(payload=b"a", partition_key=f"key-{number}")], batched=True)


@pytest.mark.parametrize(("limit", "most"), [("_FILE_ROWS", 5), ("_FILE_BYTES", 5 * 32)])
def test_files_grow_to_a_number_of_rows_or_bytes(limit: str, most: int) -> None:
    """Then they are written, each with whole ledgers."""
    ledgers = [(ledger_id, [_entry_with_key(n) for n in range(4)]) for ledger_id in (3, 4, 5)]
    with (
        memory_bucket(offload(ledgers)) as bucket,
        memory_bucket({}) as folder,
        patch.object(zone_writer, limit, most),
    ):
        known = analyzed(bucket.url, TOPIC, folder.url)
        rows = _rows(folder.url)

    assert len(known.files) == 2
    assert sorted((row["ledger_id"], row["first_entry_id"]) for row in rows) == [
        (ledger_id, entry_id) for ledger_id in (3, 4, 5) for entry_id in range(4)
    ]


def test_folders_that_take_nothing_are_refused_at_once() -> None:
    """Before anything is read."""
    store = SlowStore(offload([(3, [_entry(0)])]))
    known = open_statistics(store.url)
    with (
        patch.object(Location, "check_writable", side_effect=OptionError("cannot be written")),
        pytest.raises(OptionError),
    ):
        analyze(known, ledgers_of(store.url, TOPIC))
    assert store.flights.count == 1
    store.drop()


def test_what_is_told_of_a_zone() -> None:
    """Its messages' times, keys and versions; its markers, transactions and outcomes."""
    entries = [
        encode_entry(
            [
                Message(payload=b"a", partition_key="k", event_time=5),
                Message(payload=b"b", event_time=9),
            ],
            batched=True,
            publish_time=_FIRST_MS + 7,
            schema_version=bytes(7) + b"\x03",
            framing=Framing(broker_metadata=(_FIRST_MS + 100, 1)),
        ),
        encode_entry(
            [Message(payload=b"c")],
            batched=False,
            publish_time=_FIRST_MS,
            txnid_most_bits=1,
            txnid_least_bits=2,
        ),
        encode_marker(TXN_COMMIT, txn_id=(1, 2)),
        encode_marker(TXN_ABORT, txn_id=(1, 3)),
        encode_marker(10),
    ]
    chunks = encode_chunks(Message(payload=b"value " * 9), chunk_count=2, uuid="u")
    objects = offload([(3, entries), (4, chunks), (5, [_entry(5)])])
    names = [name for name in objects if not name.endswith("-index")]
    checked = [each for each in regions(objects[names[2]]) if each.part is Part.CHECKED]
    objects[names[2]] = flipped(objects[names[2]], checked[0].stop - 1, 0x01)
    with memory_bucket(objects) as bucket, memory_bucket({}) as folder:
        analyzed(bucket.url, TOPIC, folder.url, zone_bytes=1 << 20)
        plain, chunked, damaged = _rows(folder.url)

    data = objects[names[0]]
    found = [each for each in regions(data) if each.entry_id is not None]
    expected: dict[str, Any] = {
        "topic": TOPIC,
        "ledger_id": 3,
        "object": names[0],
        "object_bytes": len(data),
        "first_entry_id": 0,
        "last_entry_id": 4,
        "start": found[0].start,
        "stop": found[-1].stop,
        "messages": 3,
        "min_publish_time": time_of(_FIRST_MS),
        "max_publish_time": time_of(_FIRST_MS + 7),
        "min_event_time": time_of(5),
        "max_event_time": time_of(9),
        "null_event_times": 1,
        "min_broker_time": time_of(_FIRST_MS + 100),
        "max_broker_time": time_of(_FIRST_MS + 100),
        "null_broker_times": 1,
        "null_keys": 2,
        "schema_versions": [3, None],
        "markers": 3,
        "chunks": 0,
        "encrypted": 0,
        "damaged": 0,
        "transactions": [{"txn_id": "(1,2)", "first_entry_id": 1}],
        "outcomes": [
            {"txn_id": "(1,2)", "committed": True},
            {"txn_id": "(1,3)", "committed": False},
        ],
    }
    assert {name: plain[name] for name in expected} == expected
    assert (chunked["chunks"], chunked["last_entry_id"], damaged["damaged"]) == (2, 1, 1)
    for row in (chunked, damaged):
        assert row["min_publish_time"] is row["keys"] is row["schema_versions"] is None


@pytest.fixture(scope="module")
def many_zones() -> Iterator[tuple[SlowStore, str, int]]:
    """A store with a topic of 200 zones, the folder of its statistics, and a zone's bytes."""
    entries = [_entry(n, size_bytes=2000) for n in range(_ZONES * _ENTRIES_OF_ZONE)]
    half = len(entries) // 2
    store = SlowStore(offload([(3, entries[:half]), (4, entries[half:])], block_bytes=1 << 18))
    zone_bytes = _ENTRIES_OF_ZONE * (len(entries[-1]) + 12)
    with memory_bucket({}) as folder:
        known = analyzed(store.url, TOPIC, folder.url, zone_bytes=zone_bytes)
        rows = _rows(folder.url)
        assert known.files
        assert _ZONES <= len(rows) <= 1.1 * _ZONES
        yield store, folder.url, max(row["stop"] - row["start"] for row in rows)
    store.drop()


def _requests(scan: Scan, trace: RequestTrace) -> tuple[list[dict[str, Any]], int, int]:
    """Rows, and the requests and bytes of data that they took."""
    scan.reads()
    before = len(trace.records)
    rows = read(scan).to_pylist()
    records = [each for each in trace.records[before:] if each.kind is RequestKind.RANGE_GET]
    data = [each for each in records if "-ledger-" in each.name]
    return rows, len(data), sum((each.stop or 0) - (each.start or 0) for each in data)


def _scan(known: tuple[SlowStore, str, int], **options: Any) -> tuple[Scan, RequestTrace]:  # noqa: ANN401
    """A scan that asks for a zone at a time, as it does of zones and ranges of 1 MiB."""
    store, folder, zone_bytes = known
    trace = RequestTrace(keep_records=True)
    dataset = open_topic(
        store.url, TOPIC, statistics=folder, range_bytes=zone_bytes, trace=trace, **options
    )
    return dataset.scan, trace


def test_a_short_time_takes_few_bytes(many_zones: tuple[SlowStore, str, int]) -> None:
    """A hundredth of a topic takes its zones, and two more at the most."""
    store, _, zone_bytes = many_zones
    total = sum(len(data) for data in store.objects.values())
    scan, trace = _scan(many_zones, start=time_of(_FIRST_MS + 703), end=time_of(_FIRST_MS + 713))

    rows, _, taken = _requests(scan, trace)

    assert [row["__key__"] for row in rows] == [f"key-{n}" for n in range(703, 713)]
    assert taken <= 0.015 * total + 2 * zone_bytes
    assert sum(each.pruning.zones for each in scan.reads()) >= _ZONES - 4


def test_a_key_takes_few_bytes(many_zones: tuple[SlowStore, str, int]) -> None:
    """It stands in one zone; hardly another may have it."""
    store, _, _ = many_zones
    total = sum(len(data) for data in store.objects.values())
    shares = []
    for number in (0, 444, 999):
        scan, trace = _scan(many_zones)
        rows, _, taken = _requests(scan.where(pc.field("__key__") == f"key-{number}"), trace)
        assert [row["__key__"] for row in rows] == [f"key-{number}"]
        shares.append(taken / total)
    scan, trace = _scan(many_zones)
    nothing = _requests(scan.where(pc.field("__key__") == "key-1000"), trace)

    assert max(shares) <= 0.02
    assert nothing[0] == []
    assert nothing[2] <= 0.02 * total


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(3, 0), (3, 333), (4, 499)])
def test_a_message_by_its_id_takes_one_request(
    many_zones: tuple[SlowStore, str, int], ledger_id: int, entry_id: int
) -> None:
    """And no more bytes than two zones have."""
    _, _, zone_bytes = many_zones
    scan, trace = _scan(many_zones)
    wanted = (pc.field("__ledger_id__") == ledger_id) & (pc.field("__entry_id__") == entry_id)

    rows, requests, taken = _requests(scan.where(wanted), trace)

    assert [row["__key__"] for row in rows] == [f"key-{entry_id + 500 * (ledger_id - 3)}"]
    assert requests == 1
    assert taken <= 2 * zone_bytes
