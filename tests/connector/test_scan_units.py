"""Units of a scan, done in any order, give what the scan gives in one thread."""

from __future__ import annotations

import json
import random
import threading
import weakref
from collections import Counter
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core.memory import allocate
from arrow_io.errors import ChecksumError, PulsarOffloadError
from arrow_io.messages import layout, message_reader
from arrow_io.messages.message_columns import MessageColumns
from arrow_io.messages.message_reader import BatchLimits, MessageReader
from arrow_io.payloads.shredding import Shredding
from arrow_io.read_metrics import ReadMetrics, Unit
from arrow_io.storage.range_prefetch import RangePrefetcher
from arrow_io.storage.trace import RequestTrace
from connector import open_topic
from connector.scan import scan_units as cutting
from connector.scan.execution import RecordBatchBuilder, byte_spans, execute
from connector.scan.scan_units import scan_units
from tests.support.buckets import (
    TOPIC,
    golden_objects,
    memory_bucket,
    object_name,
    offload_ledger,
    with_lost_entries,
)
from tests.support.encryption import key_pair, sealed_entry
from tests.support.entries import Framing, Message, encode_entry
from tests.support.golden import GOLDEN, golden_topics
from tests.support.golden_datasets import open_golden
from tests.support.payloads import record

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from connector import TopicDataset
    from connector.scan.scan_units import ScanUnit, UnitResult
    from connector.scan.topic_read import ScanTask
    from tests.support.codecs import Codec
    from tests.support.golden import GoldenTopic

_OPTIONS: dict[str, Any] = {"value": "raw", "decryption_keys": str(GOLDEN / "keys")}
_SMALL = [
    each for each in golden_topics() if sum(one.length_bytes for one in each.ledgers) < 20_000
]

Result = tuple[pa.Table, str, dict[str, Any]]
"""Rows, the error that ended the read or nothing, and what was counted."""


def _counts(metrics: ReadMetrics) -> dict[str, Any]:
    counts = {each.name: getattr(metrics, each.name) for each in fields(metrics)}
    return counts | {name: sorted(counts[name]) for name in ("doubts", "losses")}


def _in_turn(tasks: Sequence[ScanTask]) -> Result:
    metrics = ReadMetrics()
    batches: list[pa.RecordBatch] = []
    failure = ""
    try:
        for task in tasks:
            batches.extend(execute(task, metrics))
    except PulsarOffloadError as error:
        failure = repr(error)
    return _result(tasks, batches, failure, metrics)


def _result(
    tasks: Sequence[ScanTask], batches: list[pa.RecordBatch], failure: str, metrics: ReadMetrics
) -> Result:
    schema = tasks[0].read.options.projection.schema
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    return table, failure, {} if failure else _counts(metrics)


def _units(tasks: Sequence[ScanTask]) -> Generator[ScanUnit, None, None]:
    return scan_units(tasks, RangePrefetcher(byte_spans(tasks)), cutting.decoding_threads())


def _batches(units: Iterable[ScanUnit]) -> list[Sequence[pa.RecordBatch]]:
    """Those of each unit that has any: the last one tells of what was lost behind the others."""
    return [done.batches for unit in units if (done := unit()).batches]


def _by_units(tasks: Sequence[ScanTask], chance: random.Random) -> Result:
    """The units run in any order, those after an error too, and some of them again."""
    failure = ""
    units: list[ScanUnit] = []
    metrics = ReadMetrics()
    units.extend(_units(tasks))
    order = [*range(len(units)), *(each for each in range(len(units)) if chance.random() < 0.5)]
    done = {number: units[number]() for number in chance.sample(order, len(order))}
    batches: list[pa.RecordBatch] = []
    for number in range(len(units)):
        metrics.add(done[number].metrics)
        metrics.rows += sum(batch.num_rows for batch in done[number].batches)
        batches += done[number].batches
        if done[number].error is not None:
            failure = repr(done[number].error)
            break
    assert all(batch.num_rows for batch in batches)
    return _result(tasks, batches, failure, metrics)


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
@pytest.mark.parametrize("task_bytes", [1, 256 << 20])
def test_units_give_what_one_thread_gives(
    topic: GoldenTopic, task_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of real topics, with chunks, transactions, markers and encrypted messages."""
    monkeypatch.setattr("arrow_io.ledgers.block_walk._RUN_BYTES", 1000)
    scan = open_golden(topic, batch_rows=50, batch_bytes=20_000, **_OPTIONS).scan
    tasks = scan.plan(task_bytes)

    assert _by_units(tasks, random.Random(str(topic))) == _in_turn(tasks)


@given(
    topic=st.sampled_from(_SMALL),
    on_corruption=st.sampled_from(("raise", "salvage")),
    columns=st.sampled_from((None, [], ["__entry_id__"], ["__publish_time__"])),
    range_bytes=st.sampled_from((100, 1000, 1 << 20)),
    batch_rows=st.sampled_from((1, 3, 65_536)),
    batch_bytes=st.sampled_from((1, 1000, 1 << 22)),
    place=st.floats(0, 1, exclude_max=True),
    seed=st.randoms(use_true_random=False),
)
def test_damage_is_met_by_units_as_by_one_thread(
    *,
    topic: GoldenTopic,
    on_corruption: str,
    columns: list[str] | None,
    range_bytes: int,
    batch_rows: int,
    batch_bytes: int,
    place: float,
    seed: random.Random,
) -> None:
    """The same rows, then the same error; or the same rows around it, and the same counts."""
    objects = golden_objects(topic)
    name = seed.choice([each for each in objects if not each.endswith("-index")])
    at = int(place * len(objects[name]))
    changed = bytes([objects[name][at] ^ 1 << seed.randrange(8)])
    objects[name] = objects[name][:at] + changed + objects[name][at + 1 :]
    options = _OPTIONS | {"on_corruption": on_corruption, "columns": columns}
    options |= {"range_bytes": range_bytes, "batch_rows": batch_rows, "batch_bytes": batch_bytes}

    with memory_bucket(objects) as bucket:
        tasks = open_topic(bucket.url, topic.name, **options).scan.plan()
        rows, failure, counts = _in_turn(tasks)
        by_units, *told = _by_units(tasks, seed)

    assert told == [failure, counts]
    assert rows.equals(by_units)


def test_first_unit_is_small_and_the_others_fill_record_batches() -> None:
    """Rows come soon; then as many go together as one record batch has room for.

    Each unit may have twice as many of them as the one before.
    """
    entry = encode_entry([Message(payload=bytes(80))] * 10, batched=True)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 400)) as bucket:
        scan = open_topic(bucket.url, TOPIC, value="raw", range_bytes=4000).scan
        limits = replace(scan.options.limits, max_rows=1000, first_rows=10, max_bytes=1 << 20)
        scan = replace(scan, options=replace(scan.options, limits=limits))

        units = _units(scan.plan())
        first, *others = _batches(units)

    assert next(iter(first)).num_rows == 10
    assert sum(batch.num_rows for batch in first) <= 40
    assert [len(each) for each in others] == [1, 2, 1]
    sizes = [batch.num_rows for each in others[:-1] for batch in each]
    assert all(900 < rows <= 1000 for rows in sizes)
    assert sum(batch.num_rows for each in (first, *others) for batch in each) == 4000


def test_only_the_first_unit_of_all_is_small() -> None:
    """A read of many tasks, which may be small ledgers, begins small once, and grows."""
    entry = encode_entry([Message(payload=bytes(80))] * 10, batched=True)
    objects = offload_ledger(object_name(1), [entry] * 40) | offload_ledger(
        object_name(2), [entry] * 40
    )
    with memory_bucket(objects) as bucket:
        tasks = open_topic(bucket.url, TOPIC, value="raw", batch_rows=20).scan.plan(1)
        rows = [sum(batch.num_rows for batch in each) for each in _batches(_units(tasks))]

    assert len(tasks) == 2
    assert rows == [20, 20, 40, 80, 160, 80, 400]


@pytest.mark.parametrize("options", [{}, {"batch_rows": 30}, {"batch_bytes": 3000}], ids=str)
def test_all_rows_before_a_bad_checksum_are_given(options: dict[str, Any]) -> None:
    """However many record batches of its unit they are in; then the error is raised."""
    entry = encode_entry([Message(payload=bytes(80))] * 10, batched=True)
    name = object_name(1)
    objects = offload_ledger(name, [entry] * 400)
    data = bytearray(objects[name.data_name])
    data[data.index(entry) + 301 * (12 + len(entry)) - 13] ^= 1
    objects[name.data_name] = bytes(data)

    for read in (_of_one_thread, _ahead):
        given_rows: list[int] = []
        with memory_bucket(objects) as bucket:
            dataset = open_topic(bucket.url, TOPIC, value="raw", **options)
            with pytest.raises(ChecksumError, match="entry 300"):
                given_rows.extend(batch.num_rows for batch in read(dataset))
        assert sum(given_rows) == 3000


def _of_one_thread(dataset: TopicDataset) -> Iterator[pa.RecordBatch]:
    for task in dataset.scan.plan():
        yield from execute(task, ReadMetrics())


def _ahead(dataset: TopicDataset) -> Iterator[pa.RecordBatch]:
    return dataset.to_batches()


@pytest.mark.parametrize("smaller", [{"batch_rows": 7}, {"batch_bytes": 2000}], ids=str)
def test_small_record_batches_are_no_small_units(smaller: dict[str, Any]) -> None:
    """A hand-over to another thread takes longer than a few rows do."""
    entry = encode_entry([Message(payload=bytes(80))] * 10, batched=True)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 400)) as bucket:
        found: dict[str, list[Sequence[pa.RecordBatch]]] = {}
        for name, options in (("all", {}), ("smaller", smaller)):
            tasks = open_topic(bucket.url, TOPIC, value="raw", **options).scan.plan()
            found[name] = _batches(_units(tasks))

    assert len(found["smaller"]) <= 12
    assert sum(batch.num_rows for batch in found["smaller"][0]) <= 20
    batches = [batch for each in found["smaller"] for batch in each]
    assert len(batches) > 150
    assert max(batch.num_rows for batch in batches) <= 20
    assert sum(batch.num_rows for batch in batches) == 4000


@pytest.mark.parametrize("columns", [None, ["__entry_id__"], ["__key__"]], ids=str)
@pytest.mark.parametrize("codec", ["NONE", "ZLIB"])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_unit_has_as_many_bytes_as_a_record_batch(
    columns: list[str] | None,
    codec: Codec,
    *,
    batched: bool,
    encrypted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If memory has room for one only; whatever is asked for, none gives a batch and a rest."""
    monkeypatch.setattr(cutting, "unit_limits", cutting.batch_limits)
    pair = key_pair()
    entry = encode_entry(
        [Message(payload=bytes(200), partition_key="k")] * (5 if batched else 1),
        batched=batched,
        framing=Framing(codec=codec),
    )
    if encrypted:
        entry = sealed_entry(entry, pair)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 2000)) as bucket:
        options: dict[str, Any] = {"range_bytes": 4000, "batch_bytes": 20_000}
        options |= {"columns": columns, "decryption_keys": pair.keys()}
        tasks = open_topic(bucket.url, TOPIC, value="raw", **options).scan.plan()
        _, *others = _batches(_units(tasks))
        of_one_thread = [each.num_rows for task in tasks for each in execute(task, ReadMetrics())]

    rows = [batch.num_rows for batches in others for batch in batches]
    assert len(rows) == len(others) > 2
    assert max(rows) <= max(of_one_thread) <= 1.4 * max(rows)


@pytest.mark.parametrize("cores", [2, 16])
def test_what_many_threads_make_is_memory_of_the_system(
    monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """Of Arrow's allocator each thread would keep much more than the batches take together."""
    monkeypatch.setattr(cutting, "processor_count", lambda: cores)
    entry = encode_entry([Message(payload=bytes(80), partition_key="k")] * 10, batched=True)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 400)) as bucket:
        units = _units(open_topic(bucket.url, TOPIC, value="raw").scan.plan())
        before = pa.system_memory_pool().bytes_allocated()
        made = [batch for unit in units for batch in unit().batches]
        taken = pa.system_memory_pool().bytes_allocated() - before

    assert sum(batch.num_rows for batch in made) == 4000
    made_bytes = sum(batch.nbytes for batch in made)
    if cores > 2:
        assert taken > 0.9 * made_bytes
    elif pa.default_memory_pool().backend_name != "system":
        assert taken < 0.1 * made_bytes


def test_other_memory_of_the_thread_is_not_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither between two units, nor after scans of which neither stands within the other."""
    monkeypatch.setattr(cutting, "processor_count", lambda: 16)
    if pa.default_memory_pool().backend_name == "system":
        pytest.skip("Arrow's default is the system's allocator here")
    entry = encode_entry([Message(payload=bytes(80))] * 10, batched=True)
    pool = pa.system_memory_pool()
    found = []
    with memory_bucket(offload_ledger(object_name(1), [entry] * 400)) as bucket:
        tasks = open_topic(bucket.url, TOPIC, value="raw", range_bytes=4000).scan.plan()
        one, other = (_units(tasks) for _ in range(2))
        for step in (partial(next, one), partial(next, other), one.close, other.close):
            step()
            before = pool.bytes_allocated()
            kept = allocate(1 << 20)
            found.append(pool.bytes_allocated() - before >= kept.size)

    assert found == [False] * 4


@pytest.mark.parametrize(("before", "after"), [(16, 1), (1, 16)])
def test_processors_that_change_within_a_read_change_no_unit(
    before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many units are prefetched as before, so larger ones would take too much memory."""
    entry = encode_entry([Message(payload=bytes(1000))] * 100, batched=True)
    objects = offload_ledger(object_name(1), [entry] * 100)
    objects |= offload_ledger(object_name(2), [entry] * 300)
    found: list[list[int]] = []
    with memory_bucket(objects) as bucket:
        tasks = open_topic(bucket.url, TOPIC, value="raw").scan.plan(10 << 20)
        for later in (before, after):
            monkeypatch.setattr(cutting, "processor_count", lambda: before)
            units = _units(tasks)
            first = next(units)
            monkeypatch.setattr(cutting, "processor_count", lambda later=later: later)
            found.append(
                [sum(each.num_rows for each in unit().batches) for unit in (first, *units)]
            )

    assert len(tasks) > 2
    assert found[0] == found[1]


def test_memory_is_of_the_thread_that_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages belong to the memory of the processor that first writes to them: all but tables."""
    allocated: Counter[threading.Thread] = Counter()
    allocate_buffer = pa.allocate_buffer

    def count(size_bytes: int, **options: Any) -> pa.Buffer:  # noqa: ANN401
        allocated[threading.current_thread()] += size_bytes
        return allocate_buffer(size_bytes, **options)

    monkeypatch.setattr(pa, "allocate_buffer", count)
    entry = encode_entry(
        [Message(payload=bytes(1000))] * 10, batched=True, framing=Framing(codec="LZ4")
    )
    made: list[UnitResult] = []
    with memory_bucket(offload_ledger(object_name(1), [entry] * 400)) as bucket:
        units = list(_units(open_topic(bucket.url, TOPIC, value="raw").scan.plan()))
        decoder = threading.Thread(target=lambda: made.extend(unit() for unit in units))
        decoder.start()
        decoder.join()

    made_bytes = sum(batch.nbytes for each in made for batch in each.batches)
    assert allocated[decoder] > made_bytes > 4_000_000
    assert allocated[threading.current_thread()] <= 2 * 400 * 8 * layout.ENTRY_WIDTH


@pytest.mark.parametrize("batched", [True, False])
def test_a_unit_of_one_record_batch_has_one_set_of_tables(
    *, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a second one, which would be twice as large, for messages that do not come."""
    monkeypatch.setattr(cutting, "unit_limits", cutting.batch_limits)
    capacities: list[int] = []

    class CountedColumns(MessageColumns):
        def __init__(self, capacity: int) -> None:
            capacities.append(capacity)
            super().__init__(capacity)

    monkeypatch.setattr(message_reader, "MessageColumns", CountedColumns)
    entry = encode_entry([Message(payload=bytes(80))] * (10 if batched else 1), batched=batched)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 4000)) as bucket:
        # All but the first unit, which has record batches of its own sizes.
        options: dict[str, Any] = {"range_bytes": 4000, "batch_bytes": 100_000}
        _, *units = _units(open_topic(bucket.url, TOPIC, value="raw", **options).scan.plan())
        found = [[each.num_rows for each in unit().batches] for unit in units]

    assert sum(map(len, found)) == len(units) - 1 > 3
    assert len(capacities) == len(units) - 1
    assert sum(capacities) <= sum(map(sum, found)) + len(units)


def test_no_tasks_are_no_units() -> None:
    """A topic without ledgers."""
    assert _batches(_units([])) == []


@given(
    entries=st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=30),
    max_rows=st.integers(1, 60),
    max_bytes=st.sampled_from((1, 100, 5000, 1 << 20)),
    times=st.sampled_from((1, 2, 7)),
)
def test_units_hold_no_more_than_they_may(
    entries: list[tuple[int, bool]], max_rows: int, max_bytes: int, times: int
) -> None:
    """Or else one entry: however much the entries that were fetched together decompress to."""
    encoded = [
        encode_entry(
            [Message(payload=bytes(100))] * messages,
            batched=True,
            framing=Framing(codec="ZLIB" if compressed else "NONE"),
        )
        for messages, compressed in entries
    ]
    with memory_bucket(offload_ledger(object_name(1), encoded)) as bucket:
        scan = open_topic(bucket.url, TOPIC, value="raw").scan
        limits = BatchLimits(first_rows=max_rows, max_rows=max_rows, max_bytes=max_bytes)
        scan = replace(scan, options=replace(scan.options, limits=limits))
        most = replace(limits, max_rows=times * max_rows, max_bytes=times * max_bytes)
        with patch.object(cutting, "unit_limits", lambda _options, _threads: most):
            found = _batches(_units(scan.plan()))

    batches = [[batch["__entry_id__"].to_pylist() for batch in each] for each in found]
    assert all(len(batch) <= max_rows for each in batches for batch in each)
    rows = [[row for batch in each for row in batch] for each in batches]
    expected = [entry for entry, (messages, _) in enumerate(entries) for _ in range(messages)]
    assert [row for each in rows for row in each] == expected
    for each in rows:
        assert len(set(each)) == 1 or (
            len(each) <= most.max_rows and 100 * len(each) <= most.max_bytes
        )


def _ledger(
    number: int, count: int, *, damaged: int | None = None, lost: int = 0
) -> dict[str, bytes]:
    """A ledger of entries of about 1,000 bytes; one may have another id than it should."""
    name = object_name(number)
    entry = encode_entry([Message(payload=bytes(900))], batched=False)
    objects = offload_ledger(name, [entry] * count)
    if damaged is not None:
        data = bytearray(objects[name.data_name])
        data[data.index(entry) + damaged * (12 + len(entry)) - 1] ^= 64
        objects[name.data_name] = bytes(data)
    if lost:
        objects[name.index_name] = with_lost_entries(objects[name.index_name], lost)
    return objects


def test_first_rows_need_no_second_request() -> None:
    """They are given before anything behind them is asked for."""
    trace = RequestTrace()
    with memory_bucket(_ledger(1, 40)) as bucket:
        tasks = open_topic(
            bucket.url, TOPIC, value="raw", range_bytes=2500, trace=trace
        ).scan.plan()
        with closing(_units(tasks)) as units:
            assert [batch.num_rows for batch in next(units)().batches] == [2]
            assert trace.counts.range_requests == 1


def test_what_stands_between_ranges_is_not_read_for_want_of_the_last_entry() -> None:
    """It was lost, so that none says that the range ends with it."""
    objects = _ledger(1, 3, lost=2) | _ledger(2, 40) | _ledger(3, 3)
    with memory_bucket(objects) as bucket:
        trace = RequestTrace()
        options: dict[str, Any] = {"on_corruption": "salvage", "range_bytes": 1000, "trace": trace}
        scan = open_topic(bucket.url, TOPIC, value="raw", **options).scan
        tasks = scan.where(pc.field("__ledger_id__") != 2).plan()
        metrics = ReadMetrics()
        rows = 0
        for unit in _units(tasks):
            done = unit()
            rows += sum(batch.num_rows for batch in done.batches)
            metrics.add(done.metrics)

    assert rows == 6
    assert metrics.lost == {(Unit.ENTRY, "MissingEntriesError"): 2}
    assert trace.counts.range_requests < 12


def test_report_of_an_unfinished_read_has_what_was_lost() -> None:
    """Nothing is left out before rows that are given, and not told."""
    with memory_bucket(_ledger(1, 3, lost=2) | _ledger(2, 40)) as bucket:
        dataset = open_topic(bucket.url, TOPIC, value="raw", on_corruption="salvage", batch_rows=5)
        batches = dataset.to_batches()
        assert {next(batches)["__ledger_id__"][0].as_py() for _ in range(3)} == {1, 2}
        del batches

    assert dataset.metrics.lost == {(Unit.ENTRY, "MissingEntriesError"): 2}


def test_a_unit_of_growing_values_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much memory its values take, little of it is taken before they are consumed."""
    monkeypatch.setattr(cutting, "_MAX_UNIT_BYTES", 50_000)
    monkeypatch.setattr(Shredding, "max_bytes", 40_000)
    wide = record(*((f"f{n}", ["null", "long"]) for n in range(30)), name="W")
    schema = record(("id", "long"), ("items", {"type": "array", "items": ["null", wide]}))
    payloads = [
        f'{{"id":{number % 7},"items":[{"null," * number}null]}}'.encode() for number in range(60)
    ]
    entry = encode_entry([Message(payload=each) for each in payloads], batched=True)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 3)) as bucket:
        dataset = open_topic(
            bucket.url, TOPIC, schema={"type": "JSON", "schema": json.dumps(schema)}
        )
        for unit in _units(dataset.scan.plan()):
            for part in (first := unit(), *first.remaining_parts):
                assert sum(each.get_total_buffer_size() for each in part.batches) < 90_000
        table = dataset.to_table()
        rows = dataset.metrics.rows
        by_id = dataset.to_table(filter=pc.field("id") > 2)
        long = dataset.to_table(filter=pc.list_value_length(pc.field("items")) > 20)

    lengths = [*range(1, 61)] * 3
    assert table["items"].combine_chunks().value_lengths().to_pylist() == lengths
    assert rows == 180
    assert by_id.equals(table.filter(pc.field("id") > 2).cast(by_id.schema))
    expected = [number for number in lengths if number > 20]
    assert long["items"].combine_chunks().value_lengths().to_pylist() == expected
    assert long["id"].to_pylist() == [(number - 1) % 7 for number in expected]


def test_messages_and_batches_are_dropped_before_the_next_ones() -> None:
    """A reader that keeps nothing holds the memory of one batch, and of what it was made from."""
    columns: list[weakref.ref[MessageColumns]] = []
    batches: list[weakref.ref[pa.RecordBatch]] = []

    read = MessageReader.__iter__

    def watched(reader: MessageReader) -> Iterator[MessageColumns]:
        messages = read(reader)
        while each := next(messages, None):
            columns.append(weakref.ref(each))
            yield each
            del each
            assert not any(ref() for ref in (*columns, *batches))

    entry = encode_entry([Message(payload=b"value")] * 4, batched=True)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 3)) as bucket:
        (task,) = open_topic(bucket.url, TOPIC, value="raw", batch_rows=4).scan.plan()
        with patch.object(MessageReader, "__iter__", watched):
            for batch in execute(task):
                batches.append(weakref.ref(batch))
                del batch

    assert len(batches) == len(columns) == 3


def test_the_result_of_a_unit_holds_nothing_else() -> None:
    """What it was decoded from is released while it waits for the consumer."""
    readers: list[weakref.ref[MessageReader]] = []
    read = RecordBatchBuilder.message_reader

    def watched(*args: Any, **named: Any) -> MessageReader:  # noqa: ANN401
        reader = read(*args, **named)
        readers.append(weakref.ref(reader))
        return reader

    entry = encode_entry([Message(payload=b"value")] * 4, batched=True)
    with memory_bucket(offload_ledger(object_name(1), [entry] * 3)) as bucket:
        tasks = open_topic(bucket.url, TOPIC, value="raw", batch_rows=4).scan.plan()
        with patch.object(RecordBatchBuilder, "message_reader", watched):
            results = [unit() for unit in _units(tasks)]

    assert sum(len(each.batches) for each in results) == 3
    assert readers
    assert not any(ref() for ref in readers)
