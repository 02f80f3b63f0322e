"""What may pass a filter is told by its cells: nothing that passes lies outside of them."""

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
from connector.filters import combinations as combinations_module
from connector.filters.combinations import Cell, matching_combinations
from connector.filters.row_filters import ArrowFilter, BothFilters
from tests.support.row_filters import beside, row_filters

if TYPE_CHECKING:
    from connector.filters.combinations import Combination
    from connector.filters.row_filters import RowFilter

_SCHEMA: Final = pa.schema(
    {
        "number": pa.int64(),
        "small": pa.int32(),
        "time": pa.timestamp("us", "UTC"),
        "text": pa.string(),
    }
)
_NAMES: Final = _SCHEMA.names
_TRUE: Final = pc.scalar(value=True)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES: Final[dict[str, list[Any]]] = {
    "number": [0, 5, 7, -1, 2**53 + 1, 2**63 - 1, -(2**63)],
    "small": [0, 5, 6, 2**31 - 1, -(2**31)],
    "time": [
        _EPOCH,
        _EPOCH - timedelta(microseconds=1500),
        datetime(2024, 2, 29, 5, 0, 0, 1, tzinfo=UTC),
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(9999, 12, 30, tzinfo=UTC),
    ],
    "text": ["", "a", "ab", "b", "z\0", "поток", "\U0010ffff"],
}
_ROWS: Final[dict[str, list[Any]]] = {
    name: [
        None,
        *(
            each
            for each in beside(values)
            if not isinstance(each, int)
            or abs(each) < 1 << (_SCHEMA.field(name).type.bit_width - 1)
        ),
    ]
    for name, values in _VALUES.items()
}
"""What rows have: the values themselves, what is just before and behind them, and null."""


def _lies_in(value: Any, type_: pa.DataType, cell: Cell) -> bool:  # noqa: ANN401 - of any column
    if value is None or cell.is_null:
        return value is None and cell.is_null
    if pa.types.is_string(type_):
        if cell.is_one_value:
            return bool(value == cell.least)
        return (cell.least is None or value > cell.least) and (
            cell.greatest is None or value < cell.greatest
        )
    number = pa.scalar(value, type_).cast(pa.int64()).as_py()
    return (cell.least is None or number >= cell.least) and (
        cell.greatest is None or number <= cell.greatest
    )


def _is_told(row: dict[str, Any], combinations: list[Combination]) -> bool:
    return any(
        all(
            any(_lies_in(row[name], _SCHEMA.field(name).type, cell) for cell in cells)
            for name, cells in each.items()
        )
        for each in combinations
    )


def _passing_rows(row_filter: RowFilter, rows: pa.Table) -> list[dict[str, Any]]:
    """The rows that a filter keeps; without those of which it cannot be evaluated."""
    [batch] = rows.to_batches()
    try:
        kept = batch.take(row_filter.matching_rows(batch))
    except OptionError:
        if batch.num_rows == 1:
            return []
        parts = (rows.slice(number, 1) for number in range(batch.num_rows))
        return [row for part in parts for row in _passing_rows(row_filter, part)]
    found: list[dict[str, Any]] = kept.to_pylist()
    return found


@st.composite
def _some_rows(draw: st.DrawFn, names: tuple[str, ...]) -> pa.Table:
    """All combinations of a few values of some columns."""
    columns = {
        name: draw(st.lists(st.sampled_from(_ROWS[name]), min_size=1, max_size=9, unique=True))
        if name in names
        else [None]
        for name in _NAMES
    }
    rows = [dict(zip(columns, each, strict=True)) for each in itertools.product(*columns.values())]
    return pa.Table.from_pylist(rows, _SCHEMA).combine_chunks()


@st.composite
def _filters(draw: st.DrawFn, names: tuple[str, ...], max_leaves: int = 5) -> ArrowFilter:
    """Filters on some columns that Arrow can apply to them."""
    values = {name: _VALUES[name] for name in names}
    expression = draw(row_filters(_SCHEMA, values, max_leaves=max_leaves, has_floats=True))
    try:
        return ArrowFilter.from_expression(expression, _SCHEMA)
    except OptionError:
        reject()


@given(data=st.data(), most=st.sampled_from((4096, 4096, 4096, 8)))
def test_each_row_that_passes_lies_in_a_combination(data: st.DataObject, most: int) -> None:
    """Whatever a filter compares with what, and whether columns are looked at together or alone."""
    drawn = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=2, unique=True)
    names = data.draw(drawn.map(tuple))
    chosen = data.draw(_filters(names), label="filter")
    rows = data.draw(_some_rows(names))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(combinations_module, "_MAX_COMBINATIONS", most)
        combinations = matching_combinations(chosen, _SCHEMA, names, _TRUE)

    for row in _passing_rows(chosen, rows):
        assert _is_told(row, combinations), row


_ON_NUMBERS: Final = _filters(("number",), max_leaves=2)


@given(one=_ON_NUMBERS, other=_ON_NUMBERS, rows=_some_rows(("number",)))
def test_two_filters_let_pass_what_both_do(
    one: ArrowFilter, other: ArrowFilter, rows: pa.Table
) -> None:
    """Cells are cut at the literals of both, and what only one keeps may be left out."""
    both = BothFilters(one, other)

    combinations = matching_combinations(both, _SCHEMA, _NAMES, _TRUE)

    for row in _passing_rows(both, rows):
        assert _is_told(row, combinations), row


_NUMBER, _TIME, _TEXT = (pc.field(name) for name in ("number", "time", "text"))
_NULL: Final = Cell(is_null=True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (_NUMBER == 5, [{"number": (Cell(5, 5),)}]),
        (_NUMBER > 5, [{"number": (Cell(6),)}]),
        ((_NUMBER >= 5) & (_NUMBER < 9), [{"number": (Cell(5, 5), Cell(6, 8))}]),
        (_NUMBER.isin([3, None]), [{"number": (Cell(3, 3), _NULL)}]),
        (_TEXT == "b", [{"text": (Cell("b", "b"),)}]),
        (_TEXT.isin(["b", "c"]), [{"text": (Cell("b", "b"), Cell("c", "c"))}]),
        (_TEXT < "b", [{"text": (Cell(greatest="b"),)}]),
        (_TEXT.is_null(), [{"text": (_NULL,)}]),
        ((_NUMBER == 5) & (_NUMBER == 6), []),
        (_TEXT.is_valid(), [{"text": (Cell(),)}]),
        (
            (_NUMBER == 5) | _TEXT.is_valid(),
            [{"number": (Cell(5, 5),), "text": (_NULL,)}, {"text": (Cell(),)}],
        ),
        (
            ((_NUMBER == 5) & (_TEXT == "a")) | ((_NUMBER == 6) & (_TEXT == "b")),
            [
                {"number": (Cell(5, 5),), "text": (Cell("a", "a"),)},
                {"number": (Cell(6, 6),), "text": (Cell("b", "b"),)},
            ],
        ),
        (
            pa.scalar(7, pa.int64()).cast(pa.timestamp("us", "UTC")) == _TIME,
            [{"time": (Cell(7, 7),)}],
        ),
    ],
    ids=str,
)
def test_what_is_proved(expression: pc.Expression, expected: list[Combination]) -> None:
    """Cells are as narrow as the filter is."""
    row_filter = ArrowFilter.from_expression(expression, _SCHEMA)

    found = matching_combinations(row_filter, _SCHEMA, _NAMES, _TRUE)

    assert sorted(found, key=str) == sorted(expected, key=str)


def test_what_is_known_of_all_rows_decides() -> None:
    """A column that is the same in all rows need not be cut."""
    row_filter = ArrowFilter.from_expression((pc.field("small") == 3) & (_NUMBER == 5), _SCHEMA)

    found = [
        matching_combinations(row_filter, _SCHEMA, ["number"], pc.field("small") == known)
        for known in (3, 4)
    ]

    assert found == [[{"number": (Cell(5, 5),)}], []]


@pytest.mark.parametrize(("count", "is_proved"), [(40, True), (1500, False)])
def test_sets_of_very_many_values_lose_none(count: int, is_proved: bool) -> None:
    """A column is cut at some of the values; the rest is one cell, and none is left out."""
    keys = [f"{number:05}" for number in range(count)]
    row_filter = ArrowFilter.from_expression(_TEXT.isin(keys), _SCHEMA)

    found = matching_combinations(row_filter, _SCHEMA, ["text"], _TRUE)

    assert all(_is_told({"text": each}, found) for each in keys[:: count // 20])
    assert _is_told({"text": f"{keys[-1]}x"}, found) is not is_proved
    assert not _is_told({"text": None}, found)


@pytest.mark.parametrize(
    "expression",
    [
        (pc.divide(pc.scalar(100), _NUMBER - 5) > 3) & (_NUMBER < 50),
        (_TEXT != "none") & (_TEXT.cast(pa.int64()) == 5),
        (_NUMBER + 1 > 2**63 - 1) | (_NUMBER < 5),
    ],
    ids=str,
)
def test_what_cannot_be_evaluated_proves_nothing(expression: pc.Expression) -> None:
    """A filter that fails for some values can be planned: no row may have them."""
    rows = pa.table(
        {"number": [6, 7, 20], "small": pa.nulls(3), "time": pa.nulls(3), "text": ["5", "6", None]}
    )
    row_filter = ArrowFilter.from_expression(expression, _SCHEMA)

    combinations = matching_combinations(row_filter, _SCHEMA, _NAMES, _TRUE)

    for row in _passing_rows(row_filter, rows.cast(_SCHEMA)):
        assert _is_told(row, combinations)
