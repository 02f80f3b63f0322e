"""What statistics cost, and what they spare: reads through a simulated store, and large plans."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import every_column, projection
from arrow_io.format.block_table import BlockTable
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.data import LedgerData
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag
from connector import open_catalog, open_topic, register_duckdb
from connector.catalog.topic_ledgers import TopicLedgers
from connector.filters.row_filters import ArrowFilter, row_numbers
from connector.inputs.topic_names import TopicName
from connector.scan.read_options import ReadOptions
from connector.scan.topic_scan import Scan
from connector.statistics.store import Statistics
from connector.statistics.zones import ZONE_BYTES, ZONE_SCHEMA, version_text
from tests.benchmarks.fetching import slow_store
from tests.support.buckets import TOPIC, object_name, offload_ledger
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from connector.dataset import TopicDataset

_BATCH: Final = 100
_TIME: Final = pa.timestamp("us", "UTC")
_PUBLISHED: Final = "__publish_time__"
_ZONES_PER_LEDGER: Final = 100
_FILE_LEDGERS: Final = 500
_SPACING_US: Final = 60_000_000
_QUESTIONS: Final = {
    "count(*)": "SELECT count(*) FROM read_pulsar($1)",
    "count(*) of 1 % by time": (
        "SELECT count(*) FROM read_pulsar($1)"
        " WHERE __publish_time__ >= $2 AND __publish_time__ < $3"
    ),
    "max(time)": "SELECT max(__publish_time__) FROM read_pulsar($1)",
    "pulsar_bounds": "FROM pulsar_bounds($1)",
}
"""Questions in SQL, of a topic and the ends of a range of publish times."""


@dataclass(frozen=True, slots=True)
class Spared:
    """What one read fetched of a topic.

    Attributes:
        name: What was read.
        requests: Requests for data.
        share: Of the topic's bytes, the share that they asked for.
        seconds: How long it took.
    """

    name: str
    requests: float
    share: float
    seconds: float


def measure_reads(folder: Path, messages: int, ledgers: int) -> list[Spared]:
    """Analyze a topic, then ask questions of which statistics know much.

    Args:
        folder: Where statistics may be written.
        messages: Messages of about 300 bytes in each ledger, each with a key of its own.
        ledgers: How many ledgers there are.
    """
    objects: dict[str, bytes] = {}
    for number in range(ledgers):
        first = number * messages
        entries = [_entry(at) for at in range(first, first + messages, _BATCH)]
        objects |= offload_ledger(object_name(number + 1), entries, block_bytes=64 << 20)
    store = slow_store(objects)
    whole = sum(len(data) for name, data in objects.items() if not name.endswith("-index"))
    statistics = str(folder / "statistics")

    def opened(**options: Any) -> TopicDataset:  # noqa: ANN401 - those of `open_topic`
        return open_topic(store.url, TOPIC, value="raw", **options)

    def known(**options: Any) -> TopicDataset:  # noqa: ANN401 - those of `open_topic`
        return opened(statistics=statistics, **options)

    def measured(name: str, read: Callable[[], object], *, times: int = 1) -> Spared:
        store.measure_anew()
        began = time.perf_counter()
        read()
        seconds = time.perf_counter() - began
        requests, share = store.flights.count, store.flights.bytes / whole
        return Spared(name, requests / times, share / times, seconds / times)

    plain = opened()
    positions = ["__ledger_id__", "__entry_id__", "__batch_index__"]
    catalog = open_catalog(store.url)
    rows = [
        measured("positions, without statistics", lambda: plain.to_table(positions)),
        measured("analyze", lambda: catalog.analyze(statistics, storage_options={})),
    ]
    total = messages * ledgers
    begin, end = (
        pa.scalar(1000 * (at * total // 200), pa.int64()).cast(_TIME) for at in (100, 102)
    )
    window = (pc.field(_PUBLISHED) >= begin) & (pc.field(_PUBLISHED) < end)
    point = (pc.field("__ledger_id__") == 1) & (pc.field("__entry_id__") == messages // _BATCH // 2)
    topic = known()
    keys = [f"key-{total * share // 23}" for share in range(1, 21)]
    rows += [
        measured("1 % by time", lambda: topic.to_table(filter=window)),
        measured(
            f"one of {len(keys)} keys, the mean",
            lambda: [topic.to_table(filter=pc.field("__key__") == each) for each in keys],
            times=len(keys),
        ),
        measured("one message by id", lambda: topic.to_table(filter=point)),
        measured("count_rows", topic.count_rows),
    ]
    for suffix, folder_url in ((", without statistics", None), ("", statistics)):
        with duckdb.connect() as con:
            register_duckdb(con, store.url, value="raw", statistics=folder_url)
            for name, sql in _QUESTIONS.items():
                ask = partial(_answer, con, sql, begin, end)
                # The first statement reads footers.
                ask()
                rows.append(measured(f"{name}{suffix}", ask))
    store.drop()
    return rows


def _answer(
    con: duckdb.DuckDBPyConnection, sql: str, begin: pa.Scalar, end: pa.Scalar
) -> list[Any]:
    bound = [TOPIC, begin.as_py(), end.as_py()]
    return con.execute(sql, bound[: sql.count("$")]).fetchall()


def _entry(first: int) -> bytes:
    members = [
        Message(payload=f"{at:08d}".encode() * 30, partition_key=f"key-{at}")
        for at in range(first, first + _BATCH)
    ]
    return encode_entry(members, batched=True, publish_time=first)


@dataclass(frozen=True, slots=True)
class Planned:
    """What planning took.

    Attributes:
        name: What was asked.
        ranges: How many ranges are left to read.
        cpu_seconds: CPU time, statistics opened included.
        memory_bytes: Arrow's memory at its peak.
    """

    name: str
    ranges: int
    cpu_seconds: float
    memory_bytes: int


def measure_plans(folder: Path, ledgers: int) -> list[Planned]:
    """Plan reads of a topic of many ledgers, each of 100 zones.

    Args:
        folder: Where statistics may be written.
        ledgers: How many ledgers there are; a multiple of 500.
    """
    location = Location(str(folder / "large"))
    known = Statistics.open(location)
    for first in range(0, ledgers, _FILE_LEDGERS):
        known = known.with_zones(_zones(first))
    topic = TopicLedgers(TopicName.parse("large"), ())
    table = BlockTable(_ZONES_PER_LEDGER * ZONE_BYTES, 128, bytes(20), _ZONES_PER_LEDGER * 1000 - 1)
    # What a topic knows of its ledgers is made of index objects, which matter nothing here.
    vars(topic)["data"] = tuple(
        LedgerData(location, _name(number), table, 0, None, ETag(str(number)))
        for number in range(ledgers)
    )
    total_us = ledgers * _ZONES_PER_LEDGER * _SPACING_US
    field = pc.field(_PUBLISHED)
    questions = {
        "1 % by time": (field >= _at(total_us // 2)) & (field < _at(total_us * 51 // 100)),
        "everything by time": field >= _at(0),
        "nothing by time": field > _at(2 * total_us),
    }
    return [_planned(name, each, topic, location) for name, each in questions.items()]


def _planned(
    name: str, question: pc.Expression, topic: TopicLedgers, location: Location
) -> Planned:
    columns = every_column()
    options = ReadOptions(
        projection(), columns, row_filter=ArrowFilter.from_expression(question, columns.schema)
    )
    began = time.process_time()
    reads = Scan((topic,), options, Statistics.open(location)).reads()
    cpu_seconds = time.process_time() - began
    ranges = sum(len(each.ranges) for each in reads)
    return Planned(name, ranges, cpu_seconds, pa.default_memory_pool().max_memory())


def _zones(first: int) -> pa.Table:
    """The zones of the ledgers of one file."""
    ids = range(first, first + _FILE_LEDGERS)
    ledger_ids = pa.array(ids, pa.int64()).take(
        pc.divide(row_numbers(_FILE_LEDGERS * _ZONES_PER_LEDGER), _ZONES_PER_LEDGER)
    )
    place = pc.subtract(ledger_ids, first)
    number = pc.subtract(row_numbers(len(place)), pc.multiply(place, _ZONES_PER_LEDGER))
    begun = pc.multiply(pc.add(pc.multiply(ledger_ids, _ZONES_PER_LEDGER), number), _SPACING_US)
    counts = dict.fromkeys(
        ("null_keys", "markers", "chunks", "encrypted", "damaged", "transactional"), 0
    )
    same = {
        "topic": str(TopicName.parse("large")),
        "object_bytes": _ZONES_PER_LEDGER * ZONE_BYTES,
        "messages": 1000,
    } | counts
    columns = {name: pa.repeat(value, len(place)) for name, value in same.items()} | {
        "ledger_id": ledger_ids,
        "object": pa.array(_name(each).data_name for each in ids).take(place),
        "object_version": pa.array(version_text(ETag(str(each))) for each in ids).take(place),
        "first_entry_id": pc.multiply(number, 1000),
        "last_entry_id": pc.add(pc.multiply(number, 1000), 999),
        "start": pc.multiply(number, ZONE_BYTES),
        "stop": pc.multiply(pc.add(number, 1), ZONE_BYTES),
        "min_publish_time": begun,
        "max_publish_time": pc.add(begun, _SPACING_US * 3 // 2),
    }
    nothing = pa.nulls(len(place))
    arrays = [columns.get(each.name, nothing).cast(each.type) for each in ZONE_SCHEMA]
    return pa.table(arrays, schema=ZONE_SCHEMA)


def _name(number: int) -> LedgerObjectName:
    return LedgerObjectName(UUID(int=number), number)


def _at(microseconds: int) -> pa.Scalar:
    return pa.scalar(microseconds, pa.int64()).cast(_TIME)


def table(rows: list[Spared], plans: list[Planned]) -> list[str]:
    """The lines of the tables."""
    lines = [f"{'statistics':40} {'requests':>8} {'bytes':>8} {'seconds':>8}"]
    lines += [
        f"{each.name:40} {each.requests:8,.0f} {each.share:8.2%} {each.seconds:8.3f}"
        for each in rows
    ]
    lines += ["", f"{'plan of 100 zones a ledger':30} {'ranges':>8} {'CPU':>8} {'memory':>8}"]
    lines += [
        f"{each.name:30} {each.ranges:8,} {each.cpu_seconds:6.2f} s {each.memory_bytes >> 20:5} MB"
        for each in plans
    ]
    return lines
