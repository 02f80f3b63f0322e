"""Tasks that are sent one by one, beside reads that each process has once."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.columns import Origin
from arrow_io.errors import OptionError
from arrow_io.read_metrics import ReadMetrics
from connector.scan.execution import execute
from connector.scan.topic_read import EntryRange, TaskHandle, TopicRead, task_of
from tests.support.expected import COLUMNS
from tests.support.golden import golden_topic
from tests.support.golden_datasets import open_golden
from tests.support.large_ledgers import large_ledgers
from tests.support.reading import read

if TYPE_CHECKING:
    from arrow_io.ledgers.ledger import Ledger

_NAMES: Final = ("small-transactions", "small-chunked", "multi-ledger")
_IDS: Final = st.integers(0, 2**62) | st.integers(0, 300)

_reads: list[TopicRead] = []
"""What a process of a pool has once."""


def _receive(reads: bytes) -> None:
    _reads[:] = pickle.loads(reads)


def _rows(handle: TaskHandle) -> list[pa.RecordBatch]:
    return list(execute(task_of(_reads, handle), ReadMetrics()))


def test_processes_that_have_the_reads_execute_handles() -> None:
    """Spawned processes, which know nothing but what was pickled, give the rows of the whole."""
    scans = [open_golden(golden_topic(name)).scan.select(COLUMNS) for name in _NAMES]
    reads = [each for scan in scans for each in scan.reads()]
    handles = [task.handle() for scan in scans for task in scan.plan(task_bytes=1)]
    assert len(handles) > 20
    assert max(len(pickle.dumps(each)) for each in handles) < 200

    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(2, _receive, (pickle.dumps(reads),)) as pool:
        batches = list(itertools.chain.from_iterable(pool.imap(_rows, handles, chunksize=1)))

    whole = pa.concat_tables(map(read, scans))
    assert pa.Table.from_batches(batches, whole.schema).equals(whole)


def test_a_handle_is_small_however_many_ledgers_a_topic_has() -> None:
    """At most a kilobyte, even if a filter leaves every other zone of a large task out."""
    rng = random.Random(0)
    ledger = large_ledgers(rng)

    ledgers = tuple(ledger(10**7 + 37 * number) for number in range(1000))
    whole = tuple(EntryRange(each.ledger_id, 0, each.last_entry_id) for each in ledgers)
    options = open_golden(golden_topic("small-chunked")).scan.options
    read_whole = TopicRead(Origin("x"), ledgers, whole, options)
    holes = tuple(
        EntryRange(each.ledger_id, first, first + rng.randrange(60, 90))
        for each in ledgers
        for first in range(0, each.last_entry_id - 100, 160)
    )
    read_pruned = TopicRead(Origin("x"), ledgers, holes, options)

    for topic_read in (read_whole, read_pruned):
        tasks = list(itertools.islice(topic_read.tasks(128 << 20), 20))
        assert len(pickle.dumps(tasks[0])) > 100_000
        for task in tasks:
            assert len(pickle.dumps(task.handle())) <= 1024, len(task.ranges)
            assert task_of([topic_read], task.handle()).ranges == task.ranges


@dataclass
class _KnownLedger:
    """A ledger that knows where entries are, as those do whose statistics were read."""

    ledger_id: int
    positions: dict[int, int] = field(default_factory=dict)

    def position_of(self, entry_id: int) -> int | None:
        return self.positions.get(entry_id)

    def remember(self, entry_id: int, position: int) -> None:
        self.positions[entry_id] = position


@st.composite
def _some_ranges(draw: st.DrawFn) -> tuple[EntryRange, ...]:
    ranges = []
    for ledger_id in sorted(draw(st.sets(_IDS, max_size=4))):
        ends = sorted(draw(st.sets(_IDS, min_size=2, max_size=8)))
        pairs = zip(ends[::2], ends[1::2], strict=False)
        ranges += [EntryRange(ledger_id, first, last) for first, last in pairs]
    return tuple(ranges)


@given(ranges=_some_ranges(), data=st.data())
def test_a_handle_brings_ranges_and_positions(
    ranges: tuple[EntryRange, ...], data: st.DataObject
) -> None:
    """Whatever ledgers and entries they name; a position that is not known stays so."""
    ids = sorted({each.ledger_id for each in ranges})
    known: dict[int, dict[int, int]] = {each: {} for each in ids}
    for each in ranges:
        for entry_id in (each.first_entry_id, each.last_entry_id + 1):
            if data.draw(st.booleans()):
                known[each.ledger_id][entry_id] = data.draw(st.integers(0, 2**50))

    options = open_golden(golden_topic("small-chunked")).scan.options

    def topic_read(positions: dict[int, dict[int, int]]) -> TopicRead:
        ledgers = tuple(_KnownLedger(each, dict(positions.get(each, {}))) for each in ids)
        return TopicRead(Origin("x"), cast("tuple[Ledger, ...]", ledgers), ranges, options)

    elsewhere = topic_read({})
    handle = pickle.loads(pickle.dumps(topic_read(known).task(ranges).handle()))

    assert task_of([elsewhere], handle).ranges == ranges
    assert elsewhere == topic_read(known)


def test_a_handle_of_another_read_is_refused() -> None:
    """Its ranges would name entries of other ledgers."""
    one, other = (open_golden(golden_topic(name)).scan for name in _NAMES[:2])
    [task] = one.plan()
    assert task_of([*other.reads(), *one.reads()], task.handle()) == task

    with pytest.raises(OptionError, match="belongs to another read"):
        task_of(other.reads(), task.handle())
