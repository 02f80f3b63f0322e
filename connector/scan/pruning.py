"""Pruning: which entries of a topic can hold requested rows, decided without reading them.

Without statistics, only positions are used. Publish times prove nothing, because they come from the
producer's clock and are not monotonic. With statistics, zones are pruned if none of their rows can
match.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import Origin
from arrow_io.messages import layout
from connector.filters.combinations import matching_combinations
from connector.filters.row_filters import failing_filter
from connector.scan import zone_predicates
from connector.scan.topic_read import EntryRange, Pruning, TopicRead
from connector.scan.zone_lookup import ENTRY_COLUMNS, prunable_zones
from connector.scan.zone_predicates import CountPredicate, ZonePredicate
from connector.statistics.zones import LEDGER_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.ledgers.ledger import Ledger
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.filters.combinations import Cell, Combination
    from connector.filters.row_filters import RowFilter
    from connector.inputs.bounds import Bounds
    from connector.scan.read_options import ReadOptions
    from connector.statistics.store import Statistics

_EVERYTHING: Final[list[Combination]] = [{}]


def topic_read(
    topic: TopicLedgers, options: ReadOptions, statistics: Statistics | None = None
) -> TopicRead:
    """Return the read of one topic partition; it has no ranges if no row can match.

    Bounds, the filter and recorded zones narrow the ranges.

    Raises:
        StorageError: Statistics cannot be read.
    """
    origin = Origin(str(topic.topic), topic.topic.partition, topic.topic.segment_id)
    combinations = _combinations(origin, options, options.row_filter)
    ranges = [
        each for ledger in topic.data for each in _ranges(ledger, options.bounds, combinations)
    ]
    pruning = Pruning()
    predicate = ZonePredicate(combinations, options.bounds)
    if ranges and options.clock_slack is not None and not predicate.matches_all:
        unmatched_ids = _ledgers_pruned_by_time(topic, predicate, options.clock_slack)
        pruned_ids = {each.ledger_id for each in ranges} & unmatched_ids
        ranges = [each for each in ranges if each.ledger_id not in unmatched_ids]
        pruning = Pruning(ledgers_by_time=len(pruned_ids))
    if ranges and statistics is not None and not predicate.matches_all:
        prunable, zone_pruning = prunable_zones(topic, ranges, predicate, statistics)
        pruning += zone_pruning
        ranges = zone_predicates.subtract_entries(
            ranges, *(zone_predicates.column(prunable, name) for name in ENTRY_COLUMNS)
        )
    return TopicRead(
        origin,
        topic.data,
        tuple(ranges),
        options,
        pruning,
        segment_outcomes=topic.segment_outcomes,
    )


def _combinations(
    origin: Origin, options: ReadOptions, row_filter: RowFilter | None
) -> list[Combination]:
    """Return value ranges of rows that match a filter, by the default names of columns."""
    if row_filter is None:
        return _EVERYTHING
    names = {own: name for name, own in options.filterable.columns}
    own_names = {name: own for own, name in names.items()}
    segment = pc.field(names["__segment_id__"])
    guarantee = (
        (pc.field(names["__partition__"]) == origin.partition)
        & (pc.field(names["__topic__"]) == origin.topic)
        & (segment.is_null() if origin.segment_id is None else segment == origin.segment_id)
    )
    combinations = matching_combinations(
        row_filter,
        options.filterable.schema,
        [names[each] for each in zone_predicates.PRUNABLE_COLUMNS],
        guarantee,
    )
    return [{own_names[name]: cells for name, cells in each.items()} for each in combinations]


def _ranges(
    ledger: Ledger, bounds: Bounds, combinations: Sequence[Combination]
) -> list[EntryRange]:
    """Return the entries of a ledger that can hold a row, judged by position alone.

    Gaps between ranges are whole blocks: within a block, an entry is found only by reading the
    entries before it.
    """
    first, last = _entry_limits(ledger, bounds)
    limits: list[tuple[int, int]] = []
    for each in combinations:
        if _contains(each.get("__ledger_id__"), ledger.ledger_id):
            limits += _intersect_cells(each.get("__entry_id__"), first, last)
    joined_ranges: list[EntryRange] = []
    for start, end in sorted(limits):
        if joined_ranges and len(ledger.blocks(joined_ranges[-1].last_entry_id, start)) <= 1:
            last_entry_id = max(end, joined_ranges[-1].last_entry_id)
            joined_ranges[-1] = joined_ranges[-1]._replace(last_entry_id=last_entry_id)
        else:
            joined_ranges.append(EntryRange(ledger.ledger_id, start, end))
    return joined_ranges


def _contains(cells: Sequence[Cell] | None, value: int) -> bool:
    return cells is None or bool(_intersect_cells(cells, value, value))


def _intersect_cells(cells: Sequence[Cell] | None, first: int, last: int) -> list[tuple[int, int]]:
    """Return the parts of `first` … `last` that are in a cell; both ends inclusive."""
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


def _entry_limits(ledger: Ledger, bounds: Bounds) -> tuple[int, int]:
    """Return the first and last (inclusive) entry of a ledger within the bounds by id."""
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


def _ledgers_pruned_by_time(
    topic: TopicLedgers, predicate: ZonePredicate, slack: timedelta
) -> frozenset[int]:
    """Return the ledgers whose messages cannot match, judged by when the ledgers were open.

    Messages may have been published earlier or later than that, by at most `slack`.
    """
    slack_ms = min(slack // timedelta(milliseconds=1), layout.MAX_MILLISECONDS // 2)
    times = [
        (each.ledger_id, 1000 * (created - slack_ms), 1000 * (closed + slack_ms))
        for each in topic.states
        if each.copy is not None and each.copy.ledger is not None and each.info is not None
        if (metadata := each.copy.ledger.ledger_metadata) is not None
        if (created := metadata.ctime_ms) is not None
        if (closed := each.info.timestamp_ms) is not None
        # If a ledger was closed before it was created, the clocks disagree and prove nothing.
        if created <= closed
        if abs(created) < layout.MAX_MILLISECONDS // 2 > abs(closed)
    ]
    if not times:
        return frozenset()
    ids, first, last = (pa.array(each, pa.int64()) for each in zip(*times, strict=True))
    columns = {"ledger_id": ids, "min_publish_time": first, "max_publish_time": last}
    columns |= dict.fromkeys(("chunks", "encrypted", "damaged"), pa.repeat(0, len(ids)))
    nulls = pa.nulls(len(ids))
    ledgers = pa.table(
        [columns.get(each.name, nulls).cast(each.type) for each in LEDGER_SCHEMA],
        schema=LEDGER_SCHEMA,
    )
    return frozenset(ids.filter(pc.invert(predicate.may_match(ledgers))).to_pylist())


def plan_recorded(
    topic: TopicLedgers, read: TopicRead, statistics: Statistics, columns: Sequence[str]
) -> tuple[TopicRead, pa.Table]:
    """Return the read of the rows that must be read, and the recorded zones of the rest.

    All messages in these zones are rows. They have the columns of `prunable_zones`.

    Raises:
        StorageError: Statistics cannot be read.
    """
    options, row_filter = read.options, read.options.row_filter
    failing: list[Combination] = []
    if row_filter is not None:
        failing = _combinations(read.origin, options, failing_filter(row_filter))
    predicate = CountPredicate(options.bounds, options.uncommitted, failing)
    prunable, pruning = prunable_zones(topic, read.ranges, predicate, statistics, columns)
    entries = (prunable.column(name).to_pylist() for name in ENTRY_COLUMNS)
    # A bound by id may split a zone, and even an entry; the recorded count covers it whole.
    bounds = options.bounds
    split_entries = [
        each[:2] for each in (bounds.start_id, bounds.end_id) if each is not None and each[2]
    ]
    is_whole = [
        read.is_read_whole(EntryRange(ledger_id, first, last))
        and not any(
            cut_ledger_id == ledger_id and first <= entry_id <= last
            for cut_ledger_id, entry_id in split_entries
        )
        for ledger_id, first, last in zip(*entries, strict=True)
    ]
    prunable = prunable.filter(pa.array(is_whole, pa.bool_()))
    remaining = zone_predicates.subtract_entries(
        read.ranges, *(zone_predicates.column(prunable, name) for name in ENTRY_COLUMNS)
    )
    pruning = replace(read.pruning + pruning, unknown_ledgers=pruning.unknown_ledgers)
    return replace(read, ranges=tuple(remaining), pruning=pruning), prunable
