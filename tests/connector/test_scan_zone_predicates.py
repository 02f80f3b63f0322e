"""A zone is left out only if none of its rows passes, and no other entry with it."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.messages.key_filters import key_filter
from connector.filters.combinations import Cell, matching_combinations
from connector.filters.row_filters import ArrowFilter
from connector.inputs.bounds import Bounds
from connector.scan.topic_read import EntryRange
from connector.scan.zone_predicates import (
    PRUNABLE_COLUMNS,
    CountPredicate,
    ZonePredicate,
    subtract_entries,
)
from connector.statistics.zones import ZONE_SCHEMA, ledgers_of
from tests.support.row_filters import beside, row_filters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.filters.combinations import Combination

_POSITION: Final = ("ledger_id", "first_entry_id", "last_entry_id", "start", "stop")
_LEDGER_IDS: Final = st.integers(1, 4)
_ENTRY_IDS: Final = st.integers(0, 12)
_TIME: Final = pa.timestamp("us", "UTC")
_ROWS: Final = pa.schema(
    {
        "__entry_id__": pa.int64(),
        "__ledger_id__": pa.int64(),
        "__publish_time__": _TIME,
        "__event_time__": _TIME,
        "__broker_time__": _TIME,
        "__key__": pa.string(),
        "__schema_version__": pa.int64(),
    }
)
_TIMES: Final = [datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(4)] + [
    datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
]
_KEYS: Final = ["", "a", "ab", "b", "ключ"]
_VERSIONS: Final = [0, 1, -1, 2**63 - 1]


@st.composite
def _ranges(draw: st.DrawFn) -> list[EntryRange]:
    """Ranges of entries, ascending, none in another; neighbours may touch."""
    found = []
    for ledger_id in sorted(draw(st.sets(_LEDGER_IDS))):
        ends = sorted(draw(st.sets(_ENTRY_IDS, min_size=2, max_size=8)))
        pairs = zip(ends[::2], ends[1::2], strict=False)
        found += [EntryRange(ledger_id, first, last) for first, last in pairs]
    return found


_STRETCHES: Final = st.lists(
    st.tuples(st.integers(0, 5), st.tuples(_ENTRY_IDS, _ENTRY_IDS).map(sorted)), max_size=12
)


def _entries(ranges: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [(ledger, entry) for ledger, first, last in ranges for entry in range(first, last + 1)]


@given(ranges=_ranges(), stretches=_STRETCHES)
def test_what_is_left_is_what_stands_in_no_stretch(
    ranges: list[EntryRange], stretches: list[tuple[int, list[int]]]
) -> None:
    """Stretches in any order, that overlap, reach beyond ranges, or are of other ledgers."""
    taken = [(ledger_id, first, last) for ledger_id, (first, last) in stretches]
    columns = zip(*taken, strict=True) if taken else ([], [], [])

    left = subtract_entries(ranges, *(pa.array(list(each), pa.int64()) for each in columns))

    gone = set(_entries(taken))
    assert _entries(left) == [each for each in _entries(ranges) if each not in gone]
    assert all(each.first_entry_id <= each.last_entry_id for each in left)


def test_ledgers_far_apart_do_not_meet() -> None:
    """Ids of ledgers and entries are of any size."""
    ranges = [EntryRange(2**62, 0, 2**40), EntryRange(2**63 - 1, 5, 2**41)]
    ledger_ids = pa.array([2**63 - 1, 2**62, 7])

    left = subtract_entries(ranges, ledger_ids, pa.array([0, 9, 0]), pa.array([2**41 - 1, 10, 5]))

    assert left == [
        EntryRange(2**62, 0, 8),
        EntryRange(2**62, 11, 2**40),
        EntryRange(2**63 - 1, 2**41, 2**41),
    ]


@st.composite
def _zones(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """The rows of some zones; one may have none, as one of markers."""
    row = st.fixed_dictionaries(
        {
            "__publish_time__": st.sampled_from(_TIMES),
            "__event_time__": st.none() | st.sampled_from(_TIMES),
            "__broker_time__": st.none() | st.sampled_from(_TIMES),
            "__key__": st.none() | st.sampled_from(_KEYS),
            "__schema_version__": st.none() | st.sampled_from(_VERSIONS),
        }
    )
    zones = draw(st.lists(st.lists(row, max_size=3), min_size=1, max_size=6))
    entry_ids = itertools.count()
    return [
        [{"__ledger_id__": 3, "__entry_id__": next(entry_ids), **each} for each in rows]
        for rows in zones
    ]


def _row(rows: list[dict[str, Any]], *, chunks: int = 0) -> dict[str, Any]:
    """What statistics tell of some rows."""
    table = pa.Table.from_pylist(rows, _ROWS)
    told: dict[str, Any] = dict.fromkeys(("markers", "encrypted", "damaged", "transactional"), 0)
    told |= {"topic": "t", "ledger_id": 3, "object": "o", "messages": len(rows), "chunks": chunks}
    ids = [each["__entry_id__"] for each in rows] or [0]
    told |= {"first_entry_id": ids[0], "last_entry_id": ids[-1], "start": 0, "stop": 1}
    if chunks:
        return told
    for name in ("publish", "event", "broker"):
        column = table[f"__{name}_time__"]
        ends = pc.min_max(column)
        told |= {f"min_{name}_time": ends["min"], f"max_{name}_time": ends["max"]}
        told[f"null_{name}_times"] = column.null_count
    keys = table["__key__"]
    told |= {"null_keys": keys.null_count, "keys": None}
    if keys.null_count < len(rows):
        told["keys"] = key_filter(keys.combine_chunks())
    return told | {"schema_versions": pc.unique(table["__schema_version__"]).to_pylist()}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, ZONE_SCHEMA)


def _is_within(row: dict[str, Any], bounds: Bounds) -> bool:
    ms = (row["__publish_time__"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return (bounds.start_ms is None or bounds.start_ms <= ms) and (
        bounds.end_ms is None or ms < bounds.end_ms
    )


_VALUES: Final = {
    "__entry_id__": [0, 1, 2, 3, 5, 8],
    "__ledger_id__": [2, 3, 4],
    "__publish_time__": beside(_TIMES[:5]),
    "__event_time__": beside(_TIMES[:5]),
    "__broker_time__": beside(_TIMES[:3]),
    "__key__": beside(_KEYS[1:]),
    "__schema_version__": [0, 1, 2, -1],
}
_MS: Final = st.sampled_from([-2, -1, 0, 1_704_067_200_000, 1_704_067_200_001, 1_704_067_203_000])


@given(
    zones=_zones(),
    expression=row_filters(_ROWS, _VALUES, max_leaves=4),
    bounds=st.builds(Bounds, start_ms=st.none() | _MS, end_ms=st.none() | _MS),
    with_keys=st.booleans(),
)
def test_no_zone_with_a_row_that_passes_is_left_out(
    *,
    zones: list[list[dict[str, Any]]],
    expression: pc.Expression,
    bounds: Bounds,
    with_keys: bool,
) -> None:
    """Whatever a filter looks at, and with or without the filters of keys."""
    try:
        row_filter = ArrowFilter.from_expression(expression, _ROWS)
    except OptionError:
        reject()
    combinations = matching_combinations(
        row_filter, _ROWS, list(PRUNABLE_COLUMNS), pc.scalar(value=True)
    )
    asked = ZonePredicate(combinations, bounds)
    table = _table([_row(each) for each in zones])
    columns = [*asked.columns, *_POSITION]

    told = asked.may_match(table.select([*columns, "keys"] if with_keys else columns))
    of_ledger = asked.may_match(ledgers_of(table))

    assert told.null_count == 0
    [ledger_may_match] = of_ledger.to_pylist()
    for rows, may_match in zip(zones, told.to_pylist(), strict=True):
        if rows and not (may_match and ledger_may_match):
            batch = pa.RecordBatch.from_pylist(rows, _ROWS)
            try:
                matching = row_filter.matching_rows(batch).to_pylist()
            except OptionError:
                reject()  # a literal in ns: Arrow cannot cast the year 9999 to it
            kept = [rows[each] for each in matching]
            assert not [each for each in kept if _is_within(each, bounds)]


@given(
    zones=_zones(),
    bounds=st.builds(Bounds, start_ms=st.none() | _MS, end_ms=st.none() | _MS),
)
def test_what_is_not_read_is_counted_right(
    zones: list[list[dict[str, Any]]], bounds: Bounds
) -> None:
    """Zones, and ledgers, that need not be read to count rows have all of theirs or none."""
    table = _table([_row(each) for each in zones])
    told = CountPredicate(bounds, uncommitted=False)

    for known, parts in (
        (table, zones),
        (ledgers_of(table), [list(itertools.chain.from_iterable(zones))]),
    ):
        unread = [not each for each in told.may_match(known).to_pylist()]
        counts = known["messages"].to_pylist()
        for rows, is_unread, count in zip(parts, unread, counts, strict=True):
            assert not is_unread or count == sum(_is_within(each, bounds) for each in rows)


_RICH: Final = [
    {"__ledger_id__": 3, "__entry_id__": 4, "__publish_time__": _TIMES[1], "__key__": "b"},
    {"__ledger_id__": 3, "__entry_id__": 5, "__publish_time__": _TIMES[2], "__key__": "c",
     "__event_time__": _TIMES[0], "__schema_version__": 7},
]  # fmt: skip
_ANY: Final[list[Combination]] = [{}]


@pytest.mark.parametrize(
    ("combination", "expected"),
    [
        ({"__key__": (Cell("b", "b"),)}, True),
        ({"__key__": (Cell("x", "x"), Cell("y", "y"))}, False),
        ({"__key__": (Cell("x", "x"), Cell("b", "b"))}, True),
        ({"__key__": (Cell("x", None),)}, True),
        ({"__key__": (Cell(is_null=True),)}, False),
        ({"__event_time__": (Cell(is_null=True),)}, True),
        ({"__broker_time__": (Cell(is_null=True),)}, True),
        ({"__broker_time__": (Cell(0, None),)}, False),
        ({"__publish_time__": (Cell(is_null=True),)}, False),
        ({"__publish_time__": (Cell(None, 1_704_067_200_999_999),)}, False),
        ({"__publish_time__": (Cell(None, 1_704_067_201_000_000),)}, True),
        ({"__publish_time__": (Cell(1_704_067_202_000_001, None),)}, False),
        ({"__publish_time__": (Cell(1_704_067_202_000_000, None),)}, True),
        ({"__schema_version__": (Cell(is_null=True),)}, True),
        ({"__schema_version__": (Cell(7, 7),)}, True),
        ({"__schema_version__": (Cell(8, None), Cell(None, 6))}, False),
        ({"__entry_id__": (Cell(5, 9),)}, True),
        ({"__entry_id__": (Cell(6, 9),)}, False),
        ({"__ledger_id__": (Cell(4, None),)}, False),
        ({"__sequence_id__": (Cell(4, None),)}, True),
        ({"__key__": (Cell("b", "b"),), "__entry_id__": (Cell(6, 9),)}, False),
    ],
    ids=str,
)
def test_what_zones_tell(combination: Combination, expected: bool) -> None:
    """Each column rules out what it can; what is not known of a zone rules out nothing."""
    table = _table([_row(_RICH), _row(_RICH, chunks=1), {"topic": "t"}])

    found = ZonePredicate([combination], Bounds()).may_match(table)

    assert found.to_pylist() == [expected, True, True]


def test_no_zones_are_no_error() -> None:
    """Of nothing, nothing is left out."""
    found = ZonePredicate(_ANY, Bounds(start_ms=5)).may_match(_table([]))

    assert found.to_pylist() == []


@pytest.mark.parametrize(
    ("stamps", "may_match"),
    [
        ((None, None, None), True),
        ((0, 27_057, True), False),
        ((0, 27_058, True), True),
        ((27_058, 65_535, True), True),
        ((27_059, 65_535, True), False),
        ((0, 9, False), True),
        ((0, 9, None), True),
    ],
)
@pytest.mark.parametrize("with_keys", [True, False])
def test_stamps_prune_only_if_the_keys_agree(
    stamps: tuple[Any, ...], *, may_match: bool, with_keys: bool
) -> None:
    """The hash of the key is 27,058; whether filters of keys are read does not matter."""
    names = ("min_entry_hash", "max_entry_hash", "keys_have_hashes")
    row = {"__ledger_id__": 3, "__entry_id__": 4, "__publish_time__": _TIMES[1], "__key__": "a"}
    table = _table([_row([row]) | dict(zip(names, stamps, strict=True))])
    predicate = ZonePredicate([{"__key__": (Cell("a", "a"),)}], Bounds())
    columns = [*predicate.columns, *_POSITION, *(["keys"] if with_keys else [])]

    assert predicate.may_match(table.select(columns)).to_pylist() == [may_match]
    assert predicate.may_match(ledgers_of(table)).to_pylist() == [True]
