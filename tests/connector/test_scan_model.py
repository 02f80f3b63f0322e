"""Rows, counts, losses and requests of a scan are those that a plain model of the topic tells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arrow_io.errors import ChecksumError
from arrow_io.format.block_table import BlockEntry
from arrow_io.format.index_block import read_index_block, write_index_block
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.read_metrics import ReadMetrics, Unit
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_topic
from connector.scan.execution import execute
from tests.support.buckets import MANAGED_LEDGER, TOPIC, memory_bucket, object_name
from tests.support.encoded_ledgers import encode_ledger
from tests.support.entries import Message, encode_entry
from tests.support.reading import block_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from connector import TopicDataset
    from connector.scan.topic_read import ScanTask

Position: TypeAlias = tuple[int, int, int]

_LATER: Final[Any] = datetime(2100, 1, 1, tzinfo=UTC)
"""Behind all publish times."""
_COLUMNS: Final = ["__ledger_id__", "__entry_id__", "__batch_index__", "__value__"]


@dataclass(frozen=True)
class Layout:
    """One ledger, as it lies in the bucket.

    Attributes:
        ledger_id: Its id.
        batches: Number of messages of each entry; 0: one that is not batched.
        stored: How many entries the offloader stored; it lost the others.
        block_bytes: Length of its blocks.
    """

    ledger_id: int
    batches: tuple[int, ...]
    stored: int
    block_bytes: int

    def objects(self) -> dict[str, bytes]:
        """Its objects, by name; with lost entries, as Pulsar's offloader leaves them."""
        entries = [
            encode_entry(
                [Message(payload=repr(at).encode()) for at in self.positions(entry)],
                batched=size > 0,
            )
            for entry, size in enumerate(self.batches)
        ]
        metadata = new_ledger_metadata(
            [len(each) for each in entries], managed_ledger=MANAGED_LEDGER, ctime_ms=0
        )
        name = object_name(self.ledger_id)
        kept = entries[: self.stored]
        blocks: list[BlockEntry] = []
        data = b""
        if kept:
            lengths = [len(each) for each in kept]
            of_kept = new_ledger_metadata(lengths, managed_ledger=MANAGED_LEDGER, ctime_ms=0)
            block_bytes = max(self.block_bytes, max(lengths) + 140)
            encoded = encode_ledger(kept, of_kept, block_bytes=block_bytes)
            blocks += read_index_block(encoded.index, object_key="").entries
            data = encoded.data
        if len(kept) < len(entries):
            blocks.append(BlockEntry(len(kept), len(blocks) + 1, len(data)))
        index = write_index_block(
            data_object_length_bytes=len(data), entries=blocks, ledger_metadata=metadata
        )
        return {name.data_name: data, name.index_name: index}

    def positions(self, entry: int) -> list[Position]:
        """Ids of the messages of an entry."""
        return [(self.ledger_id, entry, member) for member in range(self.batches[entry] or 1)]


@st.composite
def layouts(draw: st.DrawFn) -> list[Layout]:
    """One to four ledgers, some with lost entries, in small blocks or large."""
    ledger_ids = draw(st.lists(st.integers(3, 9), min_size=1, max_size=4, unique=True))
    drawn = []
    for ledger_id in sorted(ledger_ids):
        batches = tuple(draw(st.lists(st.integers(0, 4), min_size=2, max_size=7)))
        stored = draw(st.just(len(batches)) | st.integers(0, len(batches)))
        drawn.append(Layout(ledger_id, batches, stored, draw(st.sampled_from((140, 500, 1 << 20)))))
    return drawn


@st.composite
def _bounds(draw: st.DrawFn, ledgers: list[Layout]) -> tuple[Position | None, Position | None]:
    """Start and end: messages' ids as a rule, of lost ones too; or ids near by, or none."""
    ids = [
        at for each in ledgers for entry in range(len(each.batches)) for at in each.positions(entry)
    ]
    near = st.tuples(st.integers(2, 10), st.integers(0, 7), st.integers(0, 4))
    bound = st.sampled_from(ids) | st.sampled_from(ids) | near | st.none()
    start, end = draw(bound), draw(bound)
    # The wrong way round is an error.
    if start is not None and end is not None and start > end:
        start, end = end, start
    return start, end


Filter: TypeAlias = tuple[pc.Expression, "Callable[[int, int], bool]"]
"""The expression, and of which ledger and entry it keeps messages."""


def _filters() -> st.SearchStrategy[Filter | None]:
    ledger, entry = pc.field("__ledger_id__"), pc.field("__entry_id__")
    ledger_ids = st.integers(3, 9)
    return (
        st.just((entry >= 1, lambda _, at: at >= 1))
        | ledger_ids.map(lambda it: (ledger == it, lambda of, _: of == it))
        | ledger_ids.map(lambda it: (ledger > it, lambda of, _: of > it))
        | ledger_ids.map(lambda it: (ledger <= it, lambda of, _: of <= it))
        | st.none()
        | ledger_ids.map(
            lambda it: ((ledger >= it) & (entry != 2), lambda of, at: of >= it and at != 2)
        )
        | ledger_ids.map(
            lambda it: (
                ((ledger == it) & entry.isin([0, 3])) | ((ledger < it) & (entry > 2)),
                lambda of, at: (of == it and at in {0, 3}) or (of < it and at > 2),
            )
        )
    )


BlockCount: TypeAlias = "Callable[[int, int, int], int]"


@dataclass(frozen=True)
class Model:
    """What a scan of some ledgers must give.

    Attributes:
        ledgers: The ledgers.
        start: First message id; None: from the beginning.
        end: Message id behind the last; None: to the end.
        wanted: The filter; None: all rows.
    """

    ledgers: list[Layout]
    start: Position | None
    end: Position | None
    wanted: Filter | None

    def rows(self) -> list[Position]:
        """Ids of the rows, in order."""
        return [
            at
            for ledger in self.ledgers
            for entry in range(ledger.stored)
            for at in ledger.positions(entry)
            if (self.start is None or self.start <= at)
            and (self.end is None or at < self.end)
            and (self.wanted is None or self.wanted[1](*at[:2]))
        ]

    def entries(self, blocks: BlockCount) -> Iterator[tuple[Layout, int]]:
        """The entries that have to be looked at: one task or another meets them, or their loss.

        Also those between two of them in one block: there is no way to the second but through them.

        Args:
            blocks: How many blocks hold some of the entries of a ledger, both ends inclusive.
        """
        for ledger in self.ledgers:
            before: int | None = None
            for entry in range(len(ledger.batches)):
                at = ledger.ledger_id, entry
                if (
                    (self.wanted is None or self.wanted[1](*at))
                    and (self.start is None or self.start[:2] <= at)
                    and (self.end is None or (*at, 0) < self.end)
                ):
                    if before is not None and blocks(ledger.ledger_id, before, entry) <= 1:
                        yield from ((ledger, between) for between in range(before + 1, entry))
                    yield ledger, entry
                    before = entry


def _rows(task: ScanTask, metrics: ReadMetrics) -> Iterator[tuple[Position, bytes]]:
    for batch in execute(task, metrics):
        for ledger_id, entry_id, member, value in zip(*batch.to_pydict().values(), strict=True):
            yield (ledger_id, entry_id, member or 0), value


def _blocks_bytes(dataset: TopicDataset, entries: Iterable[tuple[Layout, int]]) -> int:
    """Length of the blocks that hold the entries to look at."""
    indexes = {each.ledger_id: block_table(each) for each in dataset.scan.topics[0].ledgers}
    blocks = {
        (ledger.ledger_id, indexes[ledger.ledger_id].find_block(entry))
        for ledger, entry in entries
        if entry < ledger.stored
    }
    return sum(
        indexes[ledger_id].block_stop(block) - indexes[ledger_id].block_start(block)
        for ledger_id, block in blocks
    )


@settings(max_examples=2 * settings().max_examples)
@given(
    ledgers=layouts(),
    wanted=_filters(),
    task_bytes=st.sampled_from((1, 400, 1 << 20)),
    range_bytes=st.sampled_from((100, 1 << 20)),
    data=st.data(),
)
def test_scan_gives_what_the_model_gives(
    *,
    ledgers: list[Layout],
    wanted: Filter | None,
    task_bytes: int,
    range_bytes: int,
    data: st.DataObject,
) -> None:
    """Each row once, each loss once, and no byte of a ledger that can have neither."""
    start, end = data.draw(_bounds(ledgers), label="bounds")
    model = Model(ledgers, start, end, wanted)
    trace = RequestTrace(keep_records=True)
    objects = {name: data for each in ledgers for name, data in each.objects().items()}
    with memory_bucket(objects) as bucket:
        dataset = open_topic(
            bucket.url,
            TOPIC,
            columns=_COLUMNS,
            start=start,
            end=end,
            trace=trace,
            range_bytes=range_bytes,
            on_corruption="salvage",
        )
        scan = dataset.scan if wanted is None else dataset.scan.where(wanted[0])
        tasks = scan.plan(task_bytes)
        opened = len(trace.records)
        metrics, counted = ReadMetrics(), ReadMetrics()
        rows = [row for task in tasks for row in _rows(task, metrics)]
        read_ledgers = {
            int(each.name.rpartition("-")[2])
            for each in trace.records[opened:]
            if each.kind is RequestKind.RANGE_GET
        }
        numbers = [sum(each.num_rows for each in execute(task, counted)) for task in tasks]
        held = {each.ledger_id: each for each in dataset.scan.topics[0].data}
        entries = list(model.entries(lambda it, one, other: len(held[it].blocks(one, other))))
        data_bytes = _blocks_bytes(dataset, entries)

    lost = sum(entry >= ledger.stored for ledger, entry in entries)
    assert rows == [(at, repr(at).encode()) for at in model.rows()]
    assert sum(numbers) == metrics.rows == counted.rows == len(rows)
    for each in (metrics, counted):
        assert each.lost[Unit.ENTRY, "MissingEntriesError"] == each.lost.total() == lost
    planned = {ledger.ledger_id for ledger, entry in entries if entry < ledger.stored}
    # Behind lost entries, the next ledger is asked whether they leave anything open.
    assert planned == read_ledgers or (lost and planned < read_ledgers)
    assert sum(task.data_bytes for task in tasks) == data_bytes
    assert all(first <= last for task in tasks for _, first, last in task.ranges)


def test_positions_need_no_checksum_and_times_do() -> None:
    """Rows are counted by where they stand; by when they were published, only of sound entries."""
    objects = Layout(5, (0, 0), 2, 1 << 20).objects()
    changed = {name: data.replace(b"(5, 1, 0)", b"(5, 1, 9)") for name, data in objects.items()}
    with memory_bucket(changed) as bucket:
        assert open_topic(bucket.url, TOPIC).count_rows() == 2
        assert open_topic(bucket.url, TOPIC, start=(5, 1)).count_rows() == 1
        for bound in ("start", "end"):
            with pytest.raises(ChecksumError):
                open_topic(bucket.url, TOPIC, **{bound: _LATER}).count_rows()
            unchecked = open_topic(bucket.url, TOPIC, verify_checksums=False, **{bound: _LATER})
            assert unchecked.count_rows() == (0 if bound == "start" else 2)
