"""Tables keep what readers give, widen so that more fits, and say which field cannot."""

from __future__ import annotations

import re
from datetime import time, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import (
    _pyarrow_to_schema_without_ids,
    schema_to_pyarrow,
)

from arrow_io.errors import LakeTableError
from connector.tables.evolution import fit_rows, storable_schema, widen_schema
from tests.support.lake_rows import COLUMN_TYPES, batches, column_values, struct_types

if TYPE_CHECKING:
    from connector.tables.evolution import TableKind

_KINDS: Final[tuple[TableKind, ...]] = ("delta", "iceberg", "parquet")
_UTC_MICROSECONDS: Final = pa.timestamp("us", "UTC")


@given(batches())
def test_kept_in_every_kind(batch: pa.RecordBatch) -> None:
    """What readers give has a type in each kind of table, which keeps its values."""
    kept = {kind: storable_schema(batch.schema, kind) for kind in _KINDS}
    rows = {kind: fit_rows(batch, schema, kind) for kind, schema in kept.items()}

    assert rows["parquet"].to_pylist() == batch.to_pylist()
    file = BytesIO()
    pq.write_table(pa.table(rows["parquet"]), file)
    assert pq.read_table(file).schema == kept["parquet"]
    iceberg = _pyarrow_to_schema_without_ids(kept["iceberg"])
    assert storable_schema(schema_to_pyarrow(iceberg), "iceberg") == kept["iceberg"]
    delta = deltalake.Schema.from_arrow(kept["delta"])
    assert storable_schema(pa.schema(delta.to_arrow()), "delta") == kept["delta"]
    for kind, schema in kept.items():
        assert storable_schema(schema, kind) == schema
        assert fit_rows(rows[kind], schema, kind) == rows[kind]


_WIDER: Final = {
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
    pa.decimal128(9, 2): pa.decimal128(20, 2),
}


def _changes(type_: pa.DataType, *, wider: bool) -> st.SearchStrategy[pa.DataType]:
    """Types of later rows: fields of structs are gone or new; what can be wider may be so."""
    if pa.types.is_struct(type_):
        kept = {each.name: _changes(each.type, wider=wider) for each in type_}
        new = dict.fromkeys("xy", COLUMN_TYPES)
        fields = st.fixed_dictionaries({}, optional={**kept, **new})
        return fields.filter(lambda fields: fields != {}).map(pa.struct)
    if pa.types.is_list(type_):
        return _changes(type_.value_type, wider=wider).map(pa.list_)
    if pa.types.is_map(type_):
        items = _changes(type_.item_type, wider=wider)
        return items.map(lambda item: pa.map_(type_.key_type, item))
    return st.sampled_from([type_, _WIDER[type_]] if wider and type_ in _WIDER else [type_])


@given(st.data(), st.sampled_from(_KINDS), st.booleans())
def test_widened_takes_both(data: st.DataObject, kind: TableKind, forwards: bool) -> None:
    """Rows of before and after a change fit into the widened table, whichever came first."""
    before = data.draw(struct_types(COLUMN_TYPES))
    after = data.draw(_changes(before, wider=kind != "delta"))
    batches = [
        pa.RecordBatch.from_pylist(
            data.draw(st.lists(column_values(type_).filter(bool), max_size=3)),
            pa.schema(list(type_)),
        )
        for type_ in ((before, after) if forwards else (after, before))
    ]
    standing, wanted = (storable_schema(each.schema, kind) for each in batches)

    schema = widen_schema(standing, wanted, kind)

    assert schema.names[: len(standing)] == standing.names
    assert sorted(schema.names) == sorted({*standing.names, *wanted.names})
    assert widen_schema(schema, wanted, kind) == widen_schema(schema, standing, kind) == schema
    for batch, columns in zip(batches, (standing, wanted), strict=True):
        rows = fit_rows(batch, schema, kind)
        assert rows == fit_rows(fit_rows(batch, columns, kind), schema, kind)
        kept = batch if kind == "parquet" else fit_rows(batch, columns, kind)
        for row, expected in zip(rows.to_pylist(), kept.to_pylist(), strict=True):
            _assert_kept(row, expected)


def _assert_kept(value: Any, expected: Any) -> None:  # noqa: ANN401 - any value
    """Everything of a value is in a wider one, whose further fields are null."""
    if isinstance(expected, dict):
        assert {name for name in value if value[name] is not None} <= expected.keys()
        for name, inner in expected.items():
            _assert_kept(value[name], inner)
    elif isinstance(expected, list | tuple):
        assert len(value) == len(expected)
        for each, inner in zip(value, expected, strict=True):
            _assert_kept(each, inner)
    else:
        assert value == expected


@pytest.mark.parametrize(
    ("type_", "delta", "iceberg", "parquet"),
    [
        (pa.uint8(), pa.int16(), pa.int32(), pa.uint8()),
        (pa.uint16(), pa.int32(), pa.int32(), pa.uint16()),
        (pa.uint32(), pa.int64(), pa.int64(), pa.uint32()),
        (pa.uint64(), pa.decimal128(20, 0), pa.decimal128(20, 0), pa.uint64()),
        (pa.float16(), pa.float32(), pa.float32(), pa.float16()),
        (pa.decimal32(5, 2), *[pa.decimal128(5, 2)] * 3),
        (pa.decimal256(38, 2), *[pa.decimal128(38, 2)] * 3),
        (pa.decimal128(2, 2), *[pa.decimal128(2, 2)] * 3),
        (pa.decimal128(38, 38), *[pa.decimal128(38, 38)] * 3),
        (pa.large_string(), *[pa.string()] * 3),
        (pa.string_view(), *[pa.string()] * 3),
        (pa.binary(4), *[pa.binary()] * 3),
        (pa.dictionary(pa.int8(), pa.string()), *[pa.string()] * 3),
        (pa.date64(), *[pa.date32()] * 3),
        (pa.time32("ms"), pa.int64(), pa.time64("us"), pa.time64("us")),
        (pa.time64("ns"), pa.int64(), pa.time64("us"), pa.time64("ns")),
        (pa.timestamp("s", "Europe/Berlin"), *[_UTC_MICROSECONDS] * 3),
        (
            pa.timestamp("ns", "UTC"),
            _UTC_MICROSECONDS,
            _UTC_MICROSECONDS,
            pa.timestamp("ns", "UTC"),
        ),
        (pa.large_list(pa.int16()), *map(pa.list_, (pa.int16(), pa.int32(), pa.int16()))),
        (pa.list_(pa.bool_(), 2), *[pa.list_(pa.bool_())] * 3),
        (pa.uuid(), *[pa.binary()] * 3),
    ],
    ids=str,
)
def test_types(
    type_: pa.DataType, delta: pa.DataType, iceberg: pa.DataType, parquet: pa.DataType
) -> None:
    """Each type of Arrow becomes the one that the table of types gives."""
    schema = pa.schema({"a": type_})

    for kind, expected in zip(_KINDS, (delta, iceberg, parquet), strict=True):
        kept = storable_schema(schema, kind)
        assert kept == pa.schema({"a": expected})
        assert "item" not in str(kept)  # Parquet, Delta and Iceberg have another word.
        assert fit_rows(pa.RecordBatch.from_pylist([], schema), kept, kind).num_rows == 0


@pytest.mark.parametrize(
    "type_",
    [
        pa.null(),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.decimal128(2, 5),
        pa.struct({}),
        pa.dense_union([pa.field("x", pa.int8())]),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", _KINDS)
def test_no_place(kind: TableKind, type_: pa.DataType) -> None:
    """A type that a table has no place for is an error that names the field, however deep."""
    schema = pa.schema({"a": pa.list_(pa.struct({"b": pa.map_(pa.string(), type_)}))})

    with pytest.raises(LakeTableError, match=r"column a\.element\.b\.value, which is"):
        storable_schema(schema, kind)


def test_values_that_do_not_fit() -> None:
    """A value that a table's type cannot hold exactly is an error, and never rounded."""
    batch = pa.record_batch({"at": pa.array([1_001], pa.timestamp("ns"))})

    with pytest.raises(LakeTableError, match=r"column at does not fit timestamp\[us\]"):
        fit_rows(batch, storable_schema(batch.schema, "iceberg"), "iceberg")


def test_times_of_day_as_numbers() -> None:
    """Delta has no time of day: it is kept in µs since midnight, from whichever unit it came."""
    noon = timedelta(hours=12) // timedelta(microseconds=1)
    batch = pa.record_batch(
        {
            "ms": pa.array([time(12), None], pa.time32("ms")),
            "ns": pa.array([[time(12)], None], pa.list_(pa.time64("ns"))),
        }
    )

    rows = fit_rows(batch, storable_schema(batch.schema, "delta"), "delta")

    assert rows.to_pylist() == [{"ms": noon, "ns": [noon]}, {"ms": None, "ns": None}]


_INNER: Final = pa.struct({"x": pa.int32()})
_WITH_Y: Final = pa.struct({"x": pa.int32(), "y": pa.string()})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2)),
    ],
)
@pytest.mark.parametrize(
    "nested",
    [
        lambda type_: type_,
        pa.list_,
        lambda type_: pa.struct({"x": type_}),
        lambda type_: pa.map_(pa.string(), pa.list_(type_)),
    ],
    ids=["itself", "list", "struct", "map"],
)
def test_wider_types(before: pa.DataType, after: pa.DataType, nested: Any) -> None:  # noqa: ANN401
    """Iceberg and Parquet take a wider type, at any depth; a Delta table refuses, by its name."""
    standing, wanted = (pa.schema({"a": nested(type_)}) for type_ in (before, after))

    assert widen_schema(standing, wanted, "iceberg") == wanted
    assert widen_schema(standing, wanted, "parquet") == wanted
    with pytest.raises(LakeTableError, match=r"a Delta table cannot change column a"):
        widen_schema(standing, wanted, "delta")


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (pa.int32(), pa.string(), "a"),
        (pa.int32(), pa.float64(), "a"),
        (pa.date32(), pa.timestamp("us"), "a"),
        (pa.timestamp("us"), _UTC_MICROSECONDS, "a"),
        (pa.string(), pa.binary(), "a"),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), "a"),
        (pa.decimal128(5, 0), pa.int64(), "a"),
        (_INNER, pa.struct({"x": pa.string()}), "a.x"),
        (_INNER, pa.int32(), "a"),
        (pa.list_(_INNER), pa.list_(pa.struct({"x": pa.bool_()})), "a.element.x"),
        (pa.map_(pa.int32(), _INNER), pa.map_(pa.int64(), _INNER), "a.key"),
        (pa.map_(_INNER, _INNER), pa.map_(_WITH_Y, _INNER), "a.key"),
        (pa.map_(pa.string(), _INNER), pa.map_(pa.string(), pa.int32()), "a.value"),
    ],
)
@pytest.mark.parametrize("kind", _KINDS)
def test_what_cannot_be_widened(
    kind: TableKind, before: pa.DataType, after: pa.DataType, field: str
) -> None:
    """A change that no table can make is an error that names the field and both types."""
    message = f"cannot change column {re.escape(field)} from .* so that (?!None).* fits"
    with pytest.raises(LakeTableError, match=message):
        widen_schema(pa.schema({"a": before}), pa.schema({"a": after}), kind)


def test_a_required_column() -> None:
    """A table made by others, with a column that must not be null, takes no rows that may be."""
    standing = pa.schema([pa.field("a", pa.int32(), nullable=False)])
    required = pa.field("a", pa.int32(), nullable=False)

    assert widen_schema(standing, pa.schema([required]), "iceberg") == standing
    for wanted in (pa.schema({"a": pa.int32()}), pa.schema({"b": pa.int32()})):
        with pytest.raises(LakeTableError, match="column a of the table is not nullable"):
            widen_schema(standing, wanted, "iceberg")


@pytest.mark.parametrize("kind", _KINDS)
def test_names_that_are_alike(kind: TableKind) -> None:
    """Two columns of one name are refused; in Delta also two that differ by case alone."""
    twice = pa.schema([pa.field("a", pa.int32()), pa.field("a", pa.int32())])
    by_case = pa.schema({"s": pa.struct({"a": pa.int32(), "A": pa.int32()})})

    with pytest.raises(LakeTableError, match="cannot have both columns a and a"):
        storable_schema(twice, kind)
    if kind != "delta":
        assert storable_schema(by_case, kind) == by_case
        return
    with pytest.raises(LakeTableError, match=r"cannot have both columns s\.a and s\.A"):
        storable_schema(by_case, kind)
    with pytest.raises(LakeTableError, match="cannot have both columns a and A"):
        widen_schema(pa.schema({"a": pa.int32()}), pa.schema({"A": pa.int32()}), kind)
    with pytest.raises(LakeTableError, match=r"cannot have both columns s\.a and s\.A"):
        widen_schema(
            pa.schema({"s": pa.struct({"a": pa.int32()})}),
            pa.schema({"s": pa.struct({"A": pa.int32()})}),
            kind,
        )


@pytest.mark.parametrize(
    ("rows", "table", "field"),
    [
        (_WITH_Y, _INNER, "a.y"),
        (pa.list_(_WITH_Y), pa.list_(_INNER), "a.element.y"),
        (pa.map_(pa.string(), _WITH_Y), pa.map_(pa.string(), _INNER), "a.value.y"),
        (pa.map_(_WITH_Y, pa.string()), pa.map_(_INNER, pa.string()), "a.key.y"),
    ],
)
def test_nothing_is_left_out(rows: pa.DataType, table: pa.DataType, field: str) -> None:
    """A field that the table has not is an error, at any depth: a cast would leave it out."""
    batch = pa.RecordBatch.from_pylist([], pa.schema({"a": rows}))

    with pytest.raises(LakeTableError, match=f"the table has no column {re.escape(field)}$"):
        fit_rows(batch, pa.schema({"a": table}), "iceberg")
    with pytest.raises(LakeTableError, match=r"the table has no column a$"):
        fit_rows(batch, pa.schema({"b": rows}), "iceberg")
