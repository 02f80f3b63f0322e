"""Filters say which columns they look at, keep exactly the rows that pass, and rule out nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from connector.filters import row_filters as filters
from connector.filters.row_filters import ArrowFilter, BothFilters
from connector.frames.polars_source import PolarsFilter

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCHEMA: Final = pa.schema(
    [
        ("ledger", pa.int64()),
        ("key", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("null", pa.bool_()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)


def _batch(*keys: str | None) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array(keys, pa.string())})


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        (pc.field("ledger") > 3, ("ledger",)),
        (pc.field("key").is_null(), ("key",)),
        ((pc.field("null")) | (pc.field("ledger") == 1), ("ledger", "null")),
        (~pc.field("key").isin(["a", "b"]), ("key",)),
        (pc.map_lookup(pc.field("properties"), pa.scalar("a"), "last") == "b", ("properties",)),
        (pc.field("null"), ("null",)),
        (pc.scalar(True), ()),  # noqa: FBT003
    ],
    ids=str,
)
def test_filter_knows_its_columns(expression: pc.Expression, columns: tuple[str, ...]) -> None:
    """Just the columns that the expression looks at, in the order of the schema."""
    assert ArrowFilter.from_expression(expression, _SCHEMA).columns == columns


@pytest.mark.parametrize("places", [(0,), (777,), (3, 500, 999), (998, 999)], ids=str)
def test_columns_of_a_wide_schema(places: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found by attempts that take, together, a few times the width of the schema."""
    schema = pa.schema([(f"f{number}", pa.int64()) for number in range(1000)])
    expression = pc.scalar(True)  # noqa: FBT003
    for place in reversed(places):
        expression = (pc.field(f"f{place}") > 1) | expression
    widths: list[int] = []
    is_applicable = filters._is_applicable

    def counted(expression: pc.Expression, columns: Sequence[pa.Field]) -> bool:
        widths.append(len(columns))
        return is_applicable(expression, columns)

    monkeypatch.setattr(filters, "_is_applicable", counted)
    found = ArrowFilter.from_expression(expression, schema).columns

    assert found == tuple(f"f{place}" for place in places)
    assert sum(widths) <= 6 * len(places) * len(schema)


_NOT_APPLIED: Final = r"^the filter .* cannot be applied: "
_COUNTED: Final = "must refer to columns by name"
_NO_EXPRESSION: Final = "a filter must be an Arrow expression, such as"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("ledger = 1", _NO_EXPRESSION),
        ([("ledger", "=", 1)], _NO_EXPRESSION),
        (True, _NO_EXPRESSION),
        (None, _NO_EXPRESSION),
        (pc.field("time") > datetime(2026, 1, 1), _NOT_APPLIED),  # noqa: DTZ001 - the column has a time zone
        (pc.field("nothing") == 1, _NOT_APPLIED),
        (pc.field("key") == 1, _NOT_APPLIED),
        (pc.field("ledger"), _NOT_APPLIED),
        (pc.field("ledger") == "text", _NOT_APPLIED),
        (pc.field("properties") == "text", _NOT_APPLIED),
        (pc.field(0) == 1, _COUNTED),
        ((pc.field("key") == "a") & pc.field(1).is_null(), _COUNTED),
        (pc.field(("properties", 0)) == 1, _COUNTED),
    ],
    ids=str,
)
def test_what_is_no_filter_of_these_columns_is_an_option_error(value: object, said: str) -> None:
    """The error names the expression, and comes before anything is read."""
    with pytest.raises(OptionError, match=said) as caught:
        ArrowFilter.from_expression(value, _SCHEMA)

    if said == _NOT_APPLIED:
        assert str(value) in str(caught.value)


def test_filters_that_fail_for_a_value_are_option_errors() -> None:
    """Arrow looks at some values only when it filters; the error is ours then, too."""
    number = pc.field("key").cast(pa.int64())
    schema = pa.schema([("key", pa.string())])

    found = ArrowFilter.from_expression(number == 1, schema)

    with pytest.raises(OptionError, match="cannot be applied: Failed to parse string: 'a'"):
        found.matching_rows(pa.record_batch({"key": ["1", "a"]}))


def test_values_may_look_like_a_position() -> None:
    """What a filter compares with is no reference to a column, whatever its text."""
    expression = pc.field("key").isin(["FieldPath(0)", "b"])

    row_filter = ArrowFilter.from_expression(expression, _SCHEMA)

    assert row_filter.columns == ("key",)
    assert row_filter.matching_rows(_batch("a", "FieldPath(0)")).to_pylist() == [1]


def test_filter_that_looks_at_no_column_keeps_all_rows_or_none() -> None:
    """A constant is a filter too: the neutral one, to which engines and users add others."""
    batch = _without_columns(2)

    always = ArrowFilter.from_expression(pc.scalar(value=True), _SCHEMA)
    never = ArrowFilter.from_expression(pc.scalar(value=False), _SCHEMA)
    assert always.matching_rows(batch).to_pylist() == [0, 1]
    assert never.matching_rows(batch).to_pylist() == []


def _without_columns(count: int) -> pa.RecordBatch:
    rows = pa.StructArray.from_buffers(pa.struct([]), count, [None])
    return pa.RecordBatch.from_struct_array(rows)


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (pc.field("ledger") == 7, True),
        (pc.field("ledger") == 8, False),
        (pc.field("ledger") < 7, False),
        (pc.field("ledger") >= 7, True),
        (pc.field("ledger").isin([1, 2]), False),
        (pc.field("ledger").isin([1, 7]), True),
        ((pc.field("ledger") == 8) & (pc.field("key") == "a"), False),
        ((pc.field("ledger") == 8) | (pc.field("key") == "a"), True),
        (pc.field("key") == "a", True),
        (pc.scalar(True), True),  # noqa: FBT003
    ],
    ids=str,
)
def test_guarantee_rules_out_only_what_is_proved(expression: pc.Expression, holds: bool) -> None:
    """Where rows are known to have ledger 7, filters on it are decided, others left open."""
    row_filter = ArrowFilter.from_expression(expression, _SCHEMA)

    guarantees = [pc.field("ledger") == 7, pc.scalar(True)]  # noqa: FBT003
    assert row_filter.can_match(guarantees, _SCHEMA) == [holds, True]


def test_both_filters_keep_what_each_keeps() -> None:
    """Filters of two engines together: rows by their number in the batch, columns of both."""
    arrow = ArrowFilter.from_expression(pc.field("key") > "a", _SCHEMA)
    polars = PolarsFilter(pl.col("key") < "d", ("key",))

    both = BothFilters(arrow, polars)

    assert both.columns == ("key",)
    assert both.matching_rows(_batch("a", "d", "c", None, "b", "e")).to_pylist() == [2, 4]
    assert both.matching_rows(_batch()).to_pylist() == []


def test_both_filters_rule_out_what_either_does() -> None:
    """It takes one of them to prove that no row can pass."""
    ledger = ArrowFilter.from_expression(pc.field("ledger") == 8, _SCHEMA)
    polars = PolarsFilter(pl.col("ledger") == 8, ("ledger",))
    ids = [pc.field("ledger") == 7, pc.field("ledger") == 8]

    assert BothFilters(polars, ledger).can_match(ids, _SCHEMA) == [False, True]
    assert BothFilters(ledger, polars).can_match(ids, _SCHEMA) == [False, True]
    assert BothFilters(polars, polars).can_match(ids, _SCHEMA) == [True, True]


def test_literals_are_what_columns_are_compared_with() -> None:
    """Also those in sets and in the options of functions; never null."""
    key = pc.field("key")
    expression = (key.isin(["b", "c", None]) | pc.starts_with(key, "d")) & (pc.field("ledger") > 7)

    literals = {each.as_py() for each in ArrowFilter.from_expression(expression, _SCHEMA).literals}

    assert {"b", "c", "d", 7} <= literals
    assert None not in literals
    both = BothFilters(
        ArrowFilter.from_expression(key == "x", _SCHEMA),
        ArrowFilter.from_expression(key == "y", _SCHEMA),
    )
    assert [each.as_py() for each in both.literals] == ["x", "y"]


_TIMES = pa.schema({"time": pa.timestamp("us", "UTC"), "key": pa.string(), "number": pa.int64()})
_NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("predicate", "answers"),
    [
        (pl.col("time") >= _NOON, [False, True]),
        (pl.col("key").is_in(["a", "b"]), [True, True]),
        ((pl.col("time") >= _NOON) & pl.col("key").str.contains("x+"), [False, True]),
        ((pl.col("time") >= _NOON) | pl.col("key").str.contains("x+"), [True, True]),
        (~(pl.col("time") < _NOON), [False, True]),
        (pl.col("number").is_null() & (pl.col("time") == _NOON), [False, True]),
        (pl.col("time").dt.hour() > 3, [True, True]),
        (pl.col("key").eq_missing("a"), [True, True]),
        (pl.lit(value=True), [True, True]),
    ],
    ids=str,
)
def test_polars_predicates_rule_out_what_they_imply(
    predicate: pl.Expr, answers: list[bool]
) -> None:
    """Polars itself says in Arrow's words what a predicate implies; the rest proves nothing."""
    row_filter = PolarsFilter.from_predicate(predicate, _TIMES)
    noon = pa.scalar(_NOON, pa.timestamp("us", "UTC"))

    found = row_filter.can_match([pc.field("time") < noon, pc.field("time") == noon], _TIMES)

    assert found == answers


_NUMBERS = st.integers(-3, 3)
_LEAVES = st.one_of(
    st.builds(lambda it: pl.col("number") > it, _NUMBERS),
    st.builds(lambda it: pl.col("number") == it, _NUMBERS),
    st.builds(lambda them: pl.col("number").is_in(them), st.lists(_NUMBERS, max_size=3)),
    st.builds(lambda it: pl.col("key") <= it, st.sampled_from("abc")),
    st.just(pl.col("key").is_null()),
    st.just(pl.col("number").is_not_null()),
    st.just(pl.col("number") + 1 > 2),
)
_PREDICATES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda one, other: one & other, inner, inner),
        st.builds(lambda one, other: one | other, inner, inner),
        st.builds(lambda one: ~one, inner),
    ),
    max_leaves=5,
)


@given(predicate=_PREDICATES)
def test_what_a_polars_predicate_implies_passes_what_it_passes(predicate: pl.Expr) -> None:
    """With nulls too."""
    rows = [(number, key) for number in (*range(-4, 5), None) for key in (*"aabbc", "d", None)]
    numbers, keys = (list(each) for each in zip(*rows, strict=True))
    batch = pa.record_batch({"number": pa.array(numbers, pa.int64()), "key": pa.array(keys)})

    row_filter = PolarsFilter.from_predicate(predicate, batch.schema)

    if row_filter.implied is not None:
        kept = set(row_filter.matching_rows(batch).to_pylist())
        assert kept <= set(row_filter.implied.matching_rows(batch).to_pylist())
