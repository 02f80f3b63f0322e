"""Rows of every type that readers give, for lake tables to keep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_LEAVES: Final[dict[pa.DataType, st.SearchStrategy[Any]]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): _integers(8),
    pa.int16(): _integers(16),
    pa.int32(): _integers(32),
    pa.int64(): _integers(64),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(20, 0): st.decimals(0, 2**64 - 1, places=0),
    pa.decimal128(9, 2): st.decimals(-1000, 1000, places=2),
    pa.decimal128(20, 2): st.decimals(-(10**17), 10**17, places=2),
    pa.string(): st.text(),
    pa.binary(): st.binary(),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.time64("ns"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(UTC)),
    pa.timestamp("ns"): st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001
}
"""The types that readers give, with values that have no parts of a microsecond."""


def struct_types(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Structs of a few fields."""
    return st.dictionaries(st.sampled_from("abcd"), types, min_size=1, max_size=3).map(pa.struct)


COLUMN_TYPES: Final = st.recursive(
    st.sampled_from(list(_LEAVES)),
    lambda types: (
        types.map(pa.list_)
        | types.map(lambda type_: pa.map_(pa.string(), type_))
        | struct_types(types)
    ),
    max_leaves=4,
)


def column_values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, and null."""
    if pa.types.is_struct(type_):
        return st.none() | st.fixed_dictionaries(
            {each.name: column_values(each.type) for each in type_}
        )
    if pa.types.is_map(type_):
        items = st.dictionaries(st.text(), column_values(type_.item_type), max_size=3)
        return st.none() | items.map(lambda each: list(each.items()))
    if pa.types.is_list(type_):
        return st.none() | st.lists(column_values(type_.value_type), max_size=3)
    return st.none() | _LEAVES[type_]


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """A few rows of a few columns of any type that readers give."""
    type_ = draw(struct_types(COLUMN_TYPES))
    rows = draw(st.lists(column_values(type_).filter(lambda row: row is not None), max_size=4))
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(type_)))
