"""Which zones can contain rows that match a predicate, judged by their statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from sys import maxsize
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.messages.key_filters import hash_range, match_filters
from connector.filters.combinations import Cell
from connector.filters.row_filters import row_numbers
from connector.inputs.bounds import Bounds
from connector.scan.topic_read import EntryRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from connector.filters.combinations import Combination

KEY: Final = "__key__"
_UNPRUNABLE: Final = ("chunks", "encrypted", "damaged")
"""Columns that count entries whose rows cannot be determined from their zone alone."""
_PUBLISH_TIME: Final = "__publish_time__"
_TIMES: Final = {
    _PUBLISH_TIME: ("min_publish_time", "max_publish_time", None),
    "__event_time__": ("min_event_time", "max_event_time", "null_event_times"),
    "__broker_time__": ("min_broker_time", "max_broker_time", "null_broker_times"),
}
_HASHES: Final = ("min_entry_hash", "max_entry_hash", "keys_have_hashes")
_COLUMNS: Final = {
    "__ledger_id__": (),
    "__entry_id__": (),
    "__schema_version__": ("schema_versions",),
    KEY: ("null_keys", "keys", *_HASHES),
} | {name: tuple(each for each in columns if each is not None) for name, columns in _TIMES.items()}
_NO_CUT: Final = maxsize, maxsize
PRUNABLE_COLUMNS: Final = tuple(_COLUMNS)
"""The row columns for which statistics can prune zones."""


@dataclass(frozen=True, slots=True)
class ZonePredicate:
    """A predicate on rows, in a form that statistics of zones can decide.

    Attributes:
        combinations: Values that matching rows have (`connector.filters.combinations`); none match
            if empty.
        bounds: Bounds of publish times; bounds by id are ignored.
    """

    combinations: Sequence[Combination]
    bounds: Bounds

    @property
    def matches_all(self) -> bool:
        """Whether every row may match, so that nothing can be pruned."""
        return not self.bounds.by_time and any(not each for each in self.combinations)

    @property
    def has_key(self) -> bool:
        """Whether Bloom filters of keys can prune more."""
        keys = (cell for each in self.combinations for cell in each.get(KEY, ()))
        return any(cell.is_one_value for cell in keys)

    @property
    def columns(self) -> list[str]:
        """The statistics columns that it needs, except positions and Bloom filters of keys."""
        columns = {*_UNPRUNABLE, "messages"}
        for each in self.combinations:
            columns |= {needed for name in each for needed in _COLUMNS.get(name, ())}
        if self.bounds.by_time:
            columns |= {"min_publish_time", "max_publish_time"}
        return sorted(columns - {"keys"})

    def may_match(self, zones: pa.Table) -> pa.BooleanArray:
        """Return for each zone or ledger whether it may have a matching row; never null.

        `zones` has `columns`, and `keys` if Bloom filters should be used.
        """
        passes = _constant(zones, value=False)
        for one in self.combinations:
            is_match = (_may_be_in_cells(zones, name, cells) for name, cells in one.items())
            passes = pc.or_kleene(passes, _all(zones, is_match))
        if self.bounds.by_time:
            is_in_bounds = _may_be_in_cells(zones, _PUBLISH_TIME, [_publish_time_cell(self.bounds)])
            passes = pc.and_kleene(passes, is_in_bounds)
        # Null means that statistics cannot decide.
        return pc.or_(_has_any(zones, _UNPRUNABLE), pc.fill_null(passes, fill_value=True))

    def all_may_match(self, ledgers: pa.Table) -> pa.BooleanArray:
        """Return for each ledger whether all its zones may match: then none can be pruned."""
        passes = _constant(ledgers, value=False)
        for one in self.combinations:
            is_match = (_all_in_cells(ledgers, name, cells) for name, cells in one.items())
            passes = pc.or_kleene(passes, _all(ledgers, is_match))
        passes = pc.and_kleene(passes, _is_in_bounds(ledgers, self.bounds))
        return pc.fill_null(passes, fill_value=False)


@dataclass(frozen=True, slots=True)
class CountPredicate:
    """A predicate for counting rows: matches zones whose row count statistics do not record.

    Attributes:
        bounds: Bounds of publish times; bounds by id are ignored.
        uncommitted: Whether messages of transactions always count, whatever their outcomes.
        failing: Values that rows have that fail the filter; no row fails it if empty.
    """

    bounds: Bounds
    uncommitted: bool
    failing: Sequence[Combination] = ()

    has_key: ClassVar[bool] = False

    @property
    def columns(self) -> list[str]:
        """The statistics columns that it needs, except positions."""
        own = [*_UNPRUNABLE, "messages", "transactional", "min_publish_time", "max_publish_time"]
        return sorted({*own, *self._failing_zones.columns})

    @property
    def _failing_zones(self) -> ZonePredicate:
        return ZonePredicate(self.failing, Bounds())

    def may_match(self, zones: pa.Table) -> pa.BooleanArray:
        """Return for each zone or ledger whether it has to be read; never null."""
        unprunable = _UNPRUNABLE if self.uncommitted else (*_UNPRUNABLE, "transactional")
        is_in_bounds = pc.fill_null(_is_in_bounds(zones, self.bounds), fill_value=False)
        has_none = pc.equal(column(zones, "messages"), 0)
        is_counted = pc.and_(is_in_bounds, pc.invert(self._failing_zones.may_match(zones)))
        return pc.or_(_has_any(zones, unprunable), pc.invert(pc.or_(is_counted, has_none)))

    def all_may_match(self, ledgers: pa.Table) -> pa.BooleanArray:
        """Return False for each ledger, because ledger statistics never prove that."""
        return _constant(ledgers, value=False)


def _has_any(zones: pa.Table, names: Iterable[str]) -> pa.BooleanArray:
    """Return whether zones have entries of some kinds; true if that is not recorded."""
    number = reduce(pc.add, (column(zones, name) for name in names))
    return pc.fill_null(pc.not_equal(number, 0), fill_value=True)


def _is_in_bounds(zones: pa.Table, bounds: Bounds) -> pa.BooleanArray:
    """Return whether all messages were published within bounds by time; null if unknown."""
    if not bounds.by_time:
        return _constant(zones, value=True)
    return _all_in_cells(zones, _PUBLISH_TIME, [_publish_time_cell(bounds)])


def _publish_time_cell(bounds: Bounds) -> Cell:
    """Return the publish times, in µs, that are within bounds by time."""
    return Cell(
        None if bounds.start_ms is None else _storable(bounds.start_ms * 1000),
        None if bounds.end_ms is None else _storable(bounds.end_ms * 1000 - 1),
    )


def _storable(microseconds: int) -> int:
    """Clamp a time to 64 bits: bounds may exceed any storable time."""
    return max(-maxsize - 1, min(microseconds, maxsize))


def _all_in_cells(ledgers: pa.Table, name: str, cells: Sequence[Cell]) -> pa.BooleanArray:
    """Return whether all values of a column are in some cells; null if unknown."""
    if name in {KEY, "__schema_version__"} or name not in _COLUMNS:
        return _constant(ledgers, value=False)
    least, greatest, nulls = _ends(ledgers, name)
    is_match = _constant(ledgers, value=True)
    if nulls is not None and not any(cell.is_null for cell in cells):
        is_match = pc.equal(nulls, 0)
    joined = _join_cells(cells)
    return pc.and_kleene(
        is_match, _any(ledgers, (_between(each, least, greatest) for each in joined))
    )


def _may_be_in_cells(zones: pa.Table, name: str, cells: Sequence[Cell]) -> pa.BooleanArray:
    """Return whether a value of a column may be in one of some cells; null if unknown."""
    if name not in _COLUMNS:
        return _constant(zones, value=True)
    if name == KEY:
        return _any(zones, (_may_be_key(zones, cell) for cell in cells))
    if name == "__schema_version__":
        if "schema_versions" not in zones.column_names:
            return pa.nulls(zones.num_rows, pa.bool_())
        versions = zones.column("schema_versions").combine_chunks()
        return _any(zones, (_has_version(versions, cell) for cell in cells))
    least, greatest, nulls = _ends(zones, name)
    return _any(zones, (_overlaps(zones, least, greatest, nulls, cell) for cell in cells))


def _ends(zones: pa.Table, name: str) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """Return minimum and maximum of a column, and its number of nulls; None if it has no nulls."""
    if name == "__ledger_id__":
        ids = column(zones, "ledger_id")
        return ids, ids, None
    if name == "__entry_id__":
        return column(zones, "first_entry_id"), column(zones, "last_entry_id"), None
    first, last, null_column = _TIMES[name]
    nulls = None if null_column is None else column(zones, null_column)
    return _microseconds(zones, first), _microseconds(zones, last), nulls


def _join_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells except nulls, ascending, with adjacent cells merged."""
    joined: list[Cell] = []
    for each in cells:
        if each.is_null:
            continue
        if joined and joined[-1].greatest is not None and each.least == joined[-1].greatest + 1:
            joined[-1] = replace(joined[-1], greatest=each.greatest)
        else:
            joined.append(each)
    return joined


def _between(cell: Cell, low: pa.Array, high: pa.Array) -> pa.BooleanArray:
    """Return whether `low` is at least a cell's lower bound, and `high` at most its upper one."""
    is_match = _constant(low, value=True)
    if cell.least is not None:
        is_match = pc.and_kleene(is_match, pc.greater_equal(low, cell.least))
    if cell.greatest is not None:
        is_match = pc.and_kleene(is_match, pc.less_equal(high, cell.greatest))
    return is_match


def _overlaps(
    zones: pa.Table, least: pa.Array, greatest: pa.Array, nulls: pa.Array | None, cell: Cell
) -> pa.BooleanArray:
    if cell.is_null:
        return _constant(zones, value=False) if nulls is None else pc.greater(nulls, 0)
    is_match = _between(cell, greatest, least)
    return (
        is_match
        if nulls is None
        else pc.and_kleene(pc.less(nulls, column(zones, "messages")), is_match)
    )


def _may_be_key(zones: pa.Table, cell: Cell) -> pa.BooleanArray:
    nulls = column(zones, "null_keys")
    if cell.is_null:
        return pc.greater(nulls, 0)
    is_match = pc.less(nulls, column(zones, "messages"))
    if cell.is_one_value and _HASHES[0] in zones.column_names:
        key_hash, _ = hash_range(pa.array([cell.least]))
        is_match = pc.and_kleene(is_match, _may_have_hash(zones, key_hash))
    if cell.is_one_value and "keys" in zones.column_names:
        return pc.and_kleene(is_match, match_filters(column(zones, "keys"), cell.least))
    return is_match


def _may_have_hash(zones: pa.Table, key_hash: int) -> pa.BooleanArray:
    """Return whether the stamps of a zone allow a key; stamps without their keys prove nothing."""
    least, greatest, is_verified = (column(zones, name) for name in _HASHES)
    is_within = pc.and_(pc.less_equal(least, key_hash), pc.greater_equal(greatest, key_hash))
    return pc.fill_null(pc.or_(is_within, pc.invert(is_verified)), fill_value=True)


def _has_version(versions: pa.ListArray, cell: Cell) -> pa.BooleanArray:
    each = pc.list_flatten(versions)
    matches = pc.is_null(each)
    if not cell.is_null:
        matches = pc.and_kleene(pc.invert(matches), _between(cell, each, each))
    having = pc.filter(pc.list_parent_indices(versions), pc.fill_null(matches, fill_value=False))
    is_match = pc.is_in(row_numbers(len(versions)), value_set=having.cast(pa.int64()))
    return pc.if_else(pc.is_null(versions), pa.scalar(None, pa.bool_()), is_match)


def subtract_entries(
    ranges: Sequence[EntryRange], ledger_ids: pa.Array, firsts: pa.Array, lasts: pa.Array
) -> list[EntryRange]:
    """Return what remains of some ranges without some intervals of entries.

    `ranges` are ascending and disjoint. Each interval has a ledger and its first and last entry,
    both inclusive.
    """
    # Number the entries of all ledgers consecutively, so that an interval is two numbers.
    sizes: dict[int, int] = {}
    for each in ranges:
        sizes[each.ledger_id] = each.last_entry_id + 1
    ends = accumulate(sizes.values())
    begins = {ledger_id: end - sizes[ledger_id] for ledger_id, end in zip(sizes, ends, strict=True)}
    cuts = iter(_join_intervals(begins, sizes, ledger_ids, firsts, lasts))
    start, stop = next(cuts, _NO_CUT)
    remaining = []
    for each in ranges:
        shift = begins[each.ledger_id]
        position, end = each.first_entry_id + shift, each.last_entry_id + 1 + shift
        while stop <= position:
            start, stop = next(cuts, _NO_CUT)
        while start < end:
            if position < start:
                remaining.append(EntryRange(each.ledger_id, position - shift, start - 1 - shift))
            position = min(stop, end)
            if stop > end:
                break
            start, stop = next(cuts, _NO_CUT)
        if position < end:
            remaining.append(EntryRange(each.ledger_id, position - shift, end - 1 - shift))
    return remaining


def _join_intervals(
    begins: Mapping[int, int],
    sizes: Mapping[int, int],
    ledger_ids: pa.Array,
    firsts: pa.Array,
    lasts: pa.Array,
) -> Iterator[tuple[int, int]]:
    """Yield the intervals as half-open ones of consecutive numbers; adjacent ones merge."""
    index = pc.index_in(ledger_ids, value_set=pa.array(begins, pa.int64()))
    is_present = pc.is_valid(index)
    index = index.filter(is_present)
    begin = pa.array(begins.values(), pa.int64()).take(index)
    size = pa.array(sizes.values(), pa.int64()).take(index)
    entry_stop = pc.min_element_wise(pc.add(lasts.filter(is_present), 1), size)
    starts, stops = pc.add(begin, firsts.filter(is_present)), pc.add(begin, entry_stop)
    order = pc.sort_indices(starts)
    starts, stops = starts.take(order), pc.cumulative_max(stops.take(order))
    if not len(starts):
        return
    is_first = pc.greater(starts[1:], stops[:-1])
    joined_starts = pa.concat_arrays([starts[:1], starts[1:].filter(is_first)])
    joined_stops = pa.concat_arrays([stops[:-1].filter(is_first), stops[-1:]])
    for start, stop in zip(joined_starts.to_pylist(), joined_stops.to_pylist(), strict=True):
        if start < stop:
            yield start, stop


def column(zones: pa.Table, name: str) -> pa.Array:
    """Return a column as one contiguous array."""
    return zones.column(name).combine_chunks()


def _microseconds(zones: pa.Table, name: str) -> pa.Int64Array:
    return column(zones, name).cast(pa.int64())


def _constant(zones: pa.Table | pa.Array, *, value: bool) -> pa.BooleanArray:
    return pa.repeat(value, len(zones))


def _any(zones: pa.Table, answers: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
    return reduce(pc.or_kleene, answers, _constant(zones, value=False))


def _all(zones: pa.Table, answers: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
    return reduce(pc.and_kleene, answers, _constant(zones, value=True))
