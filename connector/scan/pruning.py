"""Which entries of a topic can hold rows that are asked for, by what is known without reading them.

Without statistics, only what follows from a row's position is used: publish times prove nothing,
for they are the clock of the producer, and not in order. With statistics, segments are left out of
which it is proved that none of their rows passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import Origin
from connector.scan import skipping
from connector.scan.passing import passing
from connector.scan.topic_read import EntryRange, Skipped, TopicRead
from connector.statistics.segments import version_text
from connector.statistics.store import UNUSABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.ledger import Ledger
    from arrow_io.ledger_data import LedgerData
    from connector.bounds import Bounds
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.scan.passing import Cell, Combination
    from connector.scan.read_options import ReadOptions
    from connector.statistics.store import Statistics

_EVERYTHING: Final[list[Combination]] = [{}]
_STRETCH: Final = ("ledger_id", "first_entry_id", "last_entry_id", "start", "stop")
_MAX_REMEMBERED: Final = 10_000
"""Of how many ranges readers are told where they stand; others they find block by block."""


def topic_read(
    topic: TopicLedgers, options: ReadOptions, statistics: Statistics | None = None
) -> TopicRead:
    """What has to be read of one topic or partition; without ranges if nothing has to.

    Args:
        topic: The topic and its ledgers.
        options: How it is read; its bounds and its filter narrow the ranges.
        statistics: What is known of its segments, if anything is.

    Raises:
        StorageError: Statistics cannot be read.
    """
    origin = Origin(str(topic.topic), topic.topic.partition)
    combinations = _combinations(origin, options)
    ranges = [
        each for ledger in topic.data for each in _ranges(ledger, options.bounds, combinations)
    ]
    skipped = Skipped()
    asks = options.bounds.by_time or combinations != _EVERYTHING
    if ranges and statistics is not None and asks:
        ranges, skipped = _without_segments(topic, ranges, options.bounds, combinations, statistics)
    return TopicRead(origin, topic.data, tuple(ranges), options, skipped)


def _combinations(origin: Origin, options: ReadOptions) -> list[Combination]:
    """What rows that pass the filter look like, by the names that columns have without naming."""
    if options.row_filter is None:
        return _EVERYTHING
    names = {own: given for given, own in options.filterable.columns}
    own_names = {given: own for own, given in names.items()}
    known = (pc.field(names["__partition__"]) == origin.partition) & (
        pc.field(names["__topic__"]) == origin.topic
    )
    found = passing(
        options.row_filter,
        options.filterable.schema,
        [names[each] for each in skipping.TOLD],
        known,
    )
    return [{own_names[name]: cells for name, cells in each.items()} for each in found]


def _ranges(
    ledger: Ledger, bounds: Bounds, combinations: Sequence[Combination]
) -> Iterator[EntryRange]:
    """The entries of a ledger that can hold a row by its position.

    What lies between two ranges is whole blocks: inside a block, entries are found by reading those
    before them.
    """
    first, last = _entries_within(ledger, bounds)
    found: list[tuple[int, int]] = []
    for each in combinations:
        if _has(each.get("__ledger_id__"), ledger.ledger_id):
            found += _stretches(each.get("__entry_id__"), first, last)
    joined: list[EntryRange] = []
    for start, end in sorted(found):
        if joined and len(ledger.blocks(joined[-1].last_entry_id, start)) <= 1:
            behind = max(end, joined[-1].last_entry_id)
            joined[-1] = joined[-1]._replace(last_entry_id=behind)
        else:
            joined.append(EntryRange(ledger.ledger_id, start, end))
    return iter(joined)


def _has(cells: Sequence[Cell] | None, value: int) -> bool:
    return cells is None or bool(_stretches(cells, value, value))


def _stretches(cells: Sequence[Cell] | None, first: int, last: int) -> list[tuple[int, int]]:
    """The numbers from `first` to `last` that lie in one of some cells; both ends inclusive."""
    if cells is None:
        return [(first, last)] if first <= last else []
    ends = (
        (
            first if each.least is None else max(first, each.least),
            last if each.greatest is None else min(last, each.greatest),
        )
        for each in cells
        if not each.is_null
    )
    return [(start, end) for start, end in ends if start <= end]


def _entries_within(ledger: Ledger, bounds: Bounds) -> tuple[int, int]:
    """First and last (inclusive) entry of a ledger that can hold a row within the bounds by id."""
    first, last = 0, ledger.last_entry_id
    if bounds.start_id is not None:
        start_ledger, start_entry, _ = bounds.start_id
        if ledger.ledger_id == start_ledger:
            first = max(0, start_entry)
        elif ledger.ledger_id < start_ledger:
            last = -1
    if bounds.end_id is not None:
        end_ledger, end_entry, end_batch = bounds.end_id
        if ledger.ledger_id == end_ledger:
            last = min(last, end_entry if end_batch else end_entry - 1)
        elif ledger.ledger_id > end_ledger:
            last = -1
    return first, last


def _without_segments(
    topic: TopicLedgers,
    ranges: Sequence[EntryRange],
    bounds: Bounds,
    combinations: Sequence[Combination],
    statistics: Statistics,
) -> tuple[list[EntryRange], Skipped]:
    """What is left of ranges without the segments that cannot hold a row which passes."""
    problems = list(statistics.problems)
    columns = skipping.needed_columns(combinations, bounds)
    objects = _Objects(topic.data, ranges)
    looks_at_keys = any(skipping.looks_at_key(each) for each in combinations)
    known: list[pa.Table] = []
    for found in statistics.segments(str(topic.topic), columns, problems):
        segments = found.table
        usable = objects.are_same(segments)
        may_pass = skipping.may_pass(segments, combinations, bounds)
        asked = pc.and_(usable, may_pass)
        if looks_at_keys and pc.any(asked).as_py():
            try:
                segments = segments.append_column("keys", found.keys(asked))
            except UNUSABLE as error:
                problems.append(str(error))
            else:
                may_pass = skipping.may_pass(segments, combinations, bounds)
        segments = segments.select(_STRETCH).append_column("may_pass", may_pass)
        known.append(segments.filter(usable))
    if not known:
        return list(ranges), Skipped(objects.count, problems=tuple(problems))
    told = pa.concat_tables(known).combine_chunks()
    unread = told.filter(pc.invert(told.column("may_pass")))
    left = skipping.without(
        ranges, *(unread.column(name).combine_chunks() for name in _STRETCH[:3])
    )
    _remember(topic.data, left, told)
    skipped = Skipped(
        objects.count - len(pc.unique(told.column("ledger_id"))),
        unread.num_rows,
        pc.sum(pc.subtract(unread.column("stop"), unread.column("start"))).as_py() or 0,
        tuple(problems),
    )
    return left, skipped


class _Objects:
    """The data objects that are to be read, to be compared with those that statistics are of."""

    def __init__(self, ledgers: Sequence[LedgerData], ranges: Sequence[EntryRange]) -> None:
        wanted = {each.ledger_id for each in ranges}
        chosen = [each for each in ledgers if each.ledger_id in wanted]
        self.count = len(chosen)
        self._ids = pa.array((each.ledger_id for each in chosen), pa.int64())
        self._names = pa.array(each.name.data_name for each in chosen)
        self._bytes = pa.array(each.table.data_object_length_bytes for each in chosen)
        self._versions = pa.array((version_text(each.version) for each in chosen), pa.string())

    def are_same(self, segments: pa.Table) -> pa.BooleanArray:
        """For each segment whether it is of one of these objects, in the same version."""
        place = pc.index_in(segments.column("ledger_id").combine_chunks(), value_set=self._ids)
        same = pc.is_valid(place)
        for name, own in (("object", self._names), ("object_bytes", self._bytes)):
            equal = _equal(segments, name, own.take(place))
            same = pc.and_(same, pc.fill_null(equal, fill_value=False))
        versions = _equal(segments, "object_version", self._versions.take(place))
        # Where one is not known, there is nothing to tell them apart.
        return pc.and_(same, pc.fill_null(versions, fill_value=True))


def _equal(segments: pa.Table, name: str, expected: pa.Array) -> pa.BooleanArray:
    return pc.equal(segments.column(name).combine_chunks(), expected)


def _remember(
    ledgers: Sequence[LedgerData], ranges: Sequence[EntryRange], segments: pa.Table
) -> None:
    """Have readers know where ranges begin and end whose ends are those of segments."""
    data = {each.ledger_id: each for each in ledgers}
    for name, offset, shift in (("first_entry_id", "start", 0), ("last_entry_id", "stop", 1)):
        wanted = {(each.ledger_id, getattr(each, name)) for each in ranges[:_MAX_REMEMBERED]}
        ids = pa.array({each[0] for each in wanted}, pa.int64())
        mine = segments.filter(pc.is_in(segments.column("ledger_id"), value_set=ids))
        columns = (mine.column(each).to_pylist() for each in ("ledger_id", name, offset))
        for ledger_id, entry_id, position in zip(*columns, strict=True):
            if (ledger_id, entry_id) in wanted:
                data[ledger_id].remember(entry_id + shift, position)
