"""Tables as pandas frames: nothing is changed on the way, whatever the types and values are."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.frames.pandas_frames import exact_frame
from tests.support.golden_values import comparable

_LONG = st.integers(-(2**63), 2**63 - 1)
_DAY = 86_400 * 10**6


def _stored(numbers: st.SearchStrategy[int], type_: pa.DataType) -> st.SearchStrategy[pa.Scalar]:
    """Values of a type by the numbers that Arrow stores of them."""
    plain = pa.int32() if type_ == pa.date32() else pa.int64()
    return numbers.map(lambda number: pa.scalar(number, plain).cast(type_))


_SCALARS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): _LONG,
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(20, 0): st.integers(-(10**20) + 1, 10**20 - 1).map(Decimal),
    pa.decimal128(38, 9): st.integers(-(10**28), 10**28).map(lambda n: Decimal(n).scaleb(-9)),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.date32(): _stored(st.integers(-(2**31), 2**31 - 1), pa.date32()),
    pa.time64("us"): _stored(st.integers(0, _DAY - 1), pa.time64("us")),
    pa.time64("ns"): _stored(st.integers(0, 1000 * _DAY - 1), pa.time64("ns")),
    pa.timestamp("us"): _stored(_LONG, pa.timestamp("us")),
    pa.timestamp("ns"): _stored(_LONG, pa.timestamp("ns")),
    pa.timestamp("us", "UTC"): _stored(_LONG, pa.timestamp("us", "UTC")),
    pa.timestamp("ns", "UTC"): _stored(_LONG, pa.timestamp("ns", "UTC")),
}
"""Every type that is not nested of the tables in `arrow_io.columns`, over its whole range."""


def _nested(type_: pa.DataType, values: st.SearchStrategy[Any]) -> list[tuple[pa.DataType, Any]]:
    lists = st.lists(values | st.none(), max_size=3)
    pairs = st.dictionaries(st.text(max_size=2), values | st.none(), max_size=3)
    return [
        (pa.list_(type_), lists),
        (pa.map_(pa.string(), type_), pairs.map(lambda each: list(each.items()))),
        (pa.struct({"a": type_}), st.fixed_dictionaries({"a": values | st.none()})),
    ]


_TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *_SCALARS.items(),
    *(each for type_, values in _SCALARS.items() for each in _nested(type_, values)),
]


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    """Tables of a few columns of any type, in several chunks."""
    chosen = draw(st.lists(st.sampled_from(_TYPES), max_size=4))
    lengths = draw(st.lists(st.integers(0, 4), max_size=3))
    columns = {}
    for number, (type_, values) in enumerate(chosen):
        may_be_null = draw(st.booleans())
        given = values | st.none() if may_be_null else values
        chunks = [
            pa.array(draw(st.lists(given, min_size=length, max_size=length)), type_)
            for length in lengths
        ]
        columns[f"column {number}"] = pa.chunked_array(chunks, type_)
    return pa.table(columns)


@given(_tables())
def test_each_value_survives(table: pa.Table) -> None:
    """A frame of any table, made a table again, has the same values and the same nulls."""
    frame = exact_frame(table)

    again = pa.Table.from_pandas(frame, table.schema, preserve_index=False)
    assert len(frame) == len(table)
    assert list(frame.columns) == table.column_names
    for name in table.column_names:
        assert comparable(again[name]) == comparable(table[name])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pa.array([1, 2]), "int64"),
        (pa.array([1, None]), "int64[pyarrow]"),
        (pa.array([2**53 + 1, None]), "int64[pyarrow]"),
        (pa.array([True, None]), "bool[pyarrow]"),
        (pa.array([0.5, None]), "float64"),
        (pa.array([0.5, math.nan]), "double[pyarrow]"),
        (pa.array([dt.datetime(2026, 1, 1), None], pa.timestamp("us")), "datetime64[us]"),  # noqa: DTZ001
        (pa.array([dt.date(9999, 12, 31), None]), "object"),
        (pa.array([2_932_897], pa.int32()).cast(pa.date32()), "date32[day][pyarrow]"),
        (pa.array([-719_163], pa.int32()).cast(pa.date32()), "date32[day][pyarrow]"),
        (pa.array([Decimal("1.5")]), "object"),
        (pa.array([[1]]), "list<item: int64>[pyarrow]"),
    ],
    ids=str,
)
def test_types(values: pa.Array, dtype: str) -> None:
    """A column keeps Arrow's type only where NumPy's would not hold it."""
    assert str(exact_frame(pa.table({"a": values}))["a"].dtype) == dtype


def test_no_columns() -> None:
    """Rows without a column are rows still."""
    nothing = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))

    assert exact_frame(pa.Table.from_batches([nothing])).shape == (2, 0)
    assert isinstance(exact_frame(pa.table({})), pd.DataFrame)


def test_two_columns_of_one_name() -> None:
    """Both are in the frame, in their places and of their own types, as Arrow gives them."""
    arrays = [pa.array([1, None]), pa.array(["x", "y"]), pa.array([1, 2])]

    frame = exact_frame(pa.table(arrays, ["a", "b", "a"]))

    assert list(frame.columns) == ["a", "b", "a"]
    text = "object" if pd.__version__ < "3" else "str"
    assert [str(each) for each in frame.dtypes] == ["int64[pyarrow]", text, "int64"]
    assert frame.iloc[1].tolist() == [pd.NA, "y", 2]
