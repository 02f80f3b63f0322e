"""Which entries need not be read, by what statistics say of the segments that they stand in."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from sys import maxsize
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.messages.key_filters import filters_with
from arrow_io.messages.message_columns import repeated
from connector.scan.topic_read import EntryRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from connector.bounds import Bounds
    from connector.scan.passing import Cell, Combination

KEY: Final = "__key__"
POSITION: Final = (
    "topic", "ledger_id", "object", "object_bytes", "object_version",
    "first_entry_id", "last_entry_id", "start", "stop",
)  # fmt: skip
SPECIAL: Final = ("chunks", "encrypted", "damaged")
"""How many entries of a segment have rows that cannot be told from it alone."""
_TIMES: Final = {
    "__publish_time__": ("min_publish_time", "max_publish_time", None),
    "__event_time__": ("min_event_time", "max_event_time", "null_event_times"),
    "__broker_time__": ("min_broker_time", "max_broker_time", "null_broker_times"),
}
_COLUMNS: Final = {
    "__ledger_id__": (),
    "__entry_id__": (),
    "__schema_version__": ("schema_versions",),
    KEY: ("null_keys", "keys"),
} | {name: tuple(each for each in columns if each is not None) for name, columns in _TIMES.items()}
_NO_CUT: Final = maxsize, maxsize
TOLD: Final = tuple(_COLUMNS)
"""The columns of rows of which statistics tell something."""


def needed_columns(combinations: Iterable[Combination], bounds: Bounds) -> list[str]:
    """The columns of statistics that `may_pass` looks at, but for the filters of keys."""
    wanted = {*POSITION, *SPECIAL, "messages"}
    for each in combinations:
        wanted |= {column for name in each for column in _COLUMNS.get(name, ())}
    if bounds.by_time:
        wanted |= {"min_publish_time", "max_publish_time"}
    return sorted(wanted - {"keys"})


def looks_at_key(combination: Combination) -> bool:
    """Whether filters of keys can tell more of it."""
    return any(cell.is_one_value for cell in combination.get(KEY, ()))


def may_pass(
    segments: pa.Table, combinations: Sequence[Combination], bounds: Bounds
) -> pa.BooleanArray:
    """For each segment whether it may have a row that passes; never null.

    Args:
        segments: Statistics with `needed_columns`; with `keys` too if keys are to be looked at.
        combinations: What rows that pass a filter look like (`passing`).
        bounds: Bounds by time.
    """
    special = reduce(pc.add, (_column(segments, name) for name in SPECIAL))
    is_special = pc.fill_null(pc.not_equal(special, 0), fill_value=True)
    passes = _same(segments, value=False)
    for one in combinations:
        held = _all(segments, (_may_lie(segments, name, cells) for name, cells in one.items()))
        passes = pc.or_kleene(passes, held)
    if bounds.start_ms is not None:
        latest = pc.divide(_microseconds(segments, "max_publish_time"), 1000)
        passes = pc.and_kleene(passes, pc.greater_equal(latest, bounds.start_ms))
    if bounds.end_ms is not None:
        first = pc.divide(_microseconds(segments, "min_publish_time"), 1000)
        passes = pc.and_kleene(passes, pc.less(first, bounds.end_ms))
    # What is null is not known.
    return pc.or_(is_special, pc.fill_null(passes, fill_value=True))


def _may_lie(segments: pa.Table, name: str, cells: Sequence[Cell]) -> pa.BooleanArray:
    """Whether a value of a column may lie in one of some cells; null: that is not known."""
    if name not in _COLUMNS:
        return _same(segments, value=True)
    if name == KEY:
        return _any(_may_be_key(segments, cell) for cell in cells)
    if name == "__schema_version__":
        versions = segments.column("schema_versions").combine_chunks()
        return _any(_has_version(versions, cell) for cell in cells)
    if name == "__ledger_id__":
        least = greatest = _column(segments, "ledger_id")
        nulls = None
    elif name == "__entry_id__":
        least, greatest = (_column(segments, f"{end}_entry_id") for end in ("first", "last"))
        nulls = None
    else:
        first, last, counted = _TIMES[name]
        least, greatest = (_microseconds(segments, end) for end in (first, last))
        nulls = None if counted is None else _column(segments, counted)
    return _any(_overlaps(segments, least, greatest, nulls, cell) for cell in cells)


def _overlaps(
    segments: pa.Table, least: pa.Array, greatest: pa.Array, nulls: pa.Array | None, cell: Cell
) -> pa.BooleanArray:
    if cell.is_null:
        return _same(segments, value=False) if nulls is None else pc.greater(nulls, 0)
    held = _same(segments, value=True)
    if nulls is not None:
        held = pc.less(nulls, _column(segments, "messages"))
    if cell.least is not None:
        held = pc.and_kleene(held, pc.greater_equal(greatest, cell.least))
    if cell.greatest is not None:
        held = pc.and_kleene(held, pc.less_equal(least, cell.greatest))
    return held


def _may_be_key(segments: pa.Table, cell: Cell) -> pa.BooleanArray:
    nulls = _column(segments, "null_keys")
    if cell.is_null:
        return pc.greater(nulls, 0)
    held = pc.less(nulls, _column(segments, "messages"))
    if cell.is_one_value and "keys" in segments.column_names:
        return pc.and_kleene(held, filters_with(_column(segments, "keys"), cell.least))
    return held


def _has_version(versions: pa.ListArray, cell: Cell) -> pa.BooleanArray:
    each = pc.list_flatten(versions)
    matches = pc.is_null(each)
    if not cell.is_null:
        matches = pc.invert(matches)
        if cell.least is not None:
            matches = pc.and_kleene(matches, pc.greater_equal(each, cell.least))
        if cell.greatest is not None:
            matches = pc.and_kleene(matches, pc.less_equal(each, cell.greatest))
    having = pc.filter(pc.list_parent_indices(versions), pc.fill_null(matches, fill_value=False))
    held = pc.is_in(pa.arange(0, len(versions)), value_set=having.cast(pa.int64()))
    return pc.if_else(pc.is_null(versions), pa.scalar(None, pa.bool_()), held)


def without(
    ranges: Sequence[EntryRange], ledger_ids: pa.Array, firsts: pa.Array, lasts: pa.Array
) -> list[EntryRange]:
    """What is left of some ranges without some stretches of entries.

    Args:
        ranges: Ascending, none in another.
        ledger_ids: The ledger of each stretch.
        firsts: First entry of each.
        lasts: Last entry of each (inclusive).
    """
    # All ledgers are laid end to end, so that a stretch is two numbers.
    sizes: dict[int, int] = {}
    for each in ranges:
        sizes[each.ledger_id] = each.last_entry_id + 1
    ends = accumulate(sizes.values())
    begins = {ledger_id: end - sizes[ledger_id] for ledger_id, end in zip(sizes, ends, strict=True)}
    cuts = iter(_joined(begins, sizes, ledger_ids, firsts, lasts))
    start, stop = next(cuts, _NO_CUT)
    left = []
    for each in ranges:
        shift = begins[each.ledger_id]
        at, end = each.first_entry_id + shift, each.last_entry_id + 1 + shift
        while stop <= at:
            start, stop = next(cuts, _NO_CUT)
        while start < end:
            if at < start:
                left.append(EntryRange(each.ledger_id, at - shift, start - 1 - shift))
            at = min(stop, end)
            if stop > end:
                break
            start, stop = next(cuts, _NO_CUT)
        if at < end:
            left.append(EntryRange(each.ledger_id, at - shift, end - 1 - shift))
    return left


def _joined(
    begins: Mapping[int, int],
    sizes: Mapping[int, int],
    ledger_ids: pa.Array,
    firsts: pa.Array,
    lasts: pa.Array,
) -> Iterator[tuple[int, int]]:
    """The stretches of ledgers that are laid end to end, half-open; those that touch are one."""
    place = pc.index_in(ledger_ids, value_set=pa.array(begins, pa.int64()))
    found = pc.is_valid(place)
    place = place.filter(found)
    begin = pa.array(begins.values(), pa.int64()).take(place)
    size = pa.array(sizes.values(), pa.int64()).take(place)
    behind = pc.min_element_wise(pc.add(lasts.filter(found), 1), size)
    starts, stops = pc.add(begin, firsts.filter(found)), pc.add(begin, behind)
    order = pc.sort_indices(starts)
    starts, stops = starts.take(order), pc.cumulative_max(stops.take(order))
    if not len(starts):
        return
    is_first = pc.greater(starts[1:], stops[:-1])
    begun = pa.concat_arrays([starts[:1], starts[1:].filter(is_first)])
    ended = pa.concat_arrays([stops[:-1].filter(is_first), stops[-1:]])
    for start, stop in zip(begun.to_pylist(), ended.to_pylist(), strict=True):
        if start < stop:
            yield start, stop


def _column(segments: pa.Table, name: str) -> pa.Array:
    return segments.column(name).combine_chunks()


def _microseconds(segments: pa.Table, name: str) -> pa.Int64Array:
    return _column(segments, name).cast(pa.int64())


def _same(segments: pa.Table, *, value: bool) -> pa.BooleanArray:
    return repeated(value, pa.bool_(), segments.num_rows)


def _any(answers: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
    return reduce(pc.or_kleene, answers)


def _all(segments: pa.Table, answers: Iterable[pa.BooleanArray]) -> pa.BooleanArray:
    return reduce(pc.and_kleene, answers, _same(segments, value=True))
