"""Which columns a schema gives, under which names, and that each can be read by itself."""

from __future__ import annotations

import json
import pickle
from itertools import permutations

import pyarrow as pa
import pytest

from arrow_io.errors import PayloadDecodeError, SchemaError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.value_columns import ValueColumns, ValueField
from tests.support.payload_rows import messages, rows_of, values_of
from tests.support.payloads import record

pytestmark = pytest.mark.usefixtures("build")


def _info(type_: str, *fields: object) -> SchemaInfo:
    return SchemaInfo(type_, json.dumps(record(*fields)))


def _names(schema: SchemaInfo, **options: object) -> list[str]:
    return [each.name for each in ValueColumns(TopicSchema(schema), **options).fields]  # type: ignore[arg-type]


_ABC = _info(
    "AVRO", ("a", "int"), ("b", record(("x", "string"), name="S")), ("c", ["null", "long"])
)
_PAIR = SchemaInfo("KEY_VALUE", key=_ABC, value=_info("JSON", ("a", "double")))
_S = pa.struct([("x", pa.string())])


def test_flat_columns() -> None:
    """Each field of a record is a column; of a KEY_VALUE the fields of the key come first."""
    assert ValueColumns(TopicSchema(_ABC)).fields == (
        ValueField("a", pa.int32(), False, "a"),  # noqa: FBT003
        ValueField("b", _S, False, "b"),  # noqa: FBT003
        ValueField("c", pa.int64(), False, "c"),  # noqa: FBT003
    )
    assert _names(_PAIR) == ["__key.a", "__key.b", "__key.c", "a"]


def test_struct_columns() -> None:
    """A value is one column, and so is a key."""
    whole = pa.struct([("a", pa.int32()), ("b", _S), ("c", pa.int64())])

    assert ValueColumns(TopicSchema(_ABC), is_flat=False).fields == (
        ValueField("__value__", whole, False, None),  # noqa: FBT003
    )
    assert _names(_PAIR, is_flat=False) == ["__key", "__value__"]


@pytest.mark.parametrize(
    "schema",
    [
        SchemaInfo("STRING"),
        SchemaInfo("AVRO", '"int"'),
        SchemaInfo("AVRO", '{"type": "array", "items": "int"}'),
        SchemaInfo("JSON", '{"type": "map", "values": "int"}'),
        _info("AVRO"),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_flat", [True, False])
def test_values_without_fields(schema: SchemaInfo, is_flat: bool) -> None:
    """What is no record with fields is one column in either shape."""
    assert _names(schema, is_flat=is_flat) == ["__value__"]
    pair = SchemaInfo("KEY_VALUE", key=schema, value=schema)
    assert _names(pair, is_flat=is_flat) == ["__key", "__value__"]


@pytest.mark.parametrize("is_flat", [True, False])
def test_a_wide_union_at_the_top(is_flat: bool) -> None:
    """It is one value: its branches are no fields, which could be read without each other."""
    avro = TopicSchema(SchemaInfo("AVRO", '["null", "int", "string"]'))
    rows = rows_of((None, messages(b"\x02\x0a", b"\0", b"\x04\x02x", None)))
    expected = [{"int": 5, "string": None}, None, {"int": None, "string": "x"}, None]

    assert values_of(avro, rows, is_flat=is_flat) == {"__value__": expected}
    texts = rows_of((None, messages(b"5", b"null", b'"x"', None)))
    as_json = TopicSchema(SchemaInfo("JSON", '["null", "int", "string"]'))
    assert values_of(as_json, texts, is_flat=is_flat) == {"__value__": expected}


@pytest.mark.parametrize("order", [["null", None], [None, "null"]])
def test_a_record_or_null_at_the_top(order: list[object]) -> None:
    """The record's fields are columns, all of them null where the value is."""
    fields = record(("a", "int"), ("b", "string"))
    schema = TopicSchema(SchemaInfo("AVRO", json.dumps([each or fields for each in order])))
    branches = [bytes([2 * order.index(each)]) for each in ("null", None)]
    rows = rows_of((None, messages(branches[0], branches[1] + b"\x0a\x02x", None)))
    expected = {"a": [None, 5, None], "b": [None, "x", None]}

    assert values_of(schema, rows) == expected
    for name, values in expected.items():
        assert values_of(schema, rows, names=[name]) == {name: values}
    whole = [None, {"a": 5, "b": "x"}, None]
    assert values_of(schema, rows, is_flat=False) == {"__value__": whole}


def test_names_that_are_taken() -> None:
    """A field that is named as another column is given with a number, whatever the case."""
    fields = [(name, "int") for name in ("__key__", "A", "a", "a_2", "__Topic__")]
    reserved = ("__key__", "__topic__", "a")
    rows = rows_of((None, messages(b"\x02\x04\x06\x08\x0a")))
    expected = {"__key___2": [1], "A_2": [2], "a_3": [3], "a_2_2": [4], "__Topic___2": [5]}

    schema = TopicSchema(_info("AVRO", *fields))
    assert values_of(schema, rows, reserved=reserved) == expected
    for name, values in expected.items():
        assert values_of(schema, rows, reserved=reserved, names=[name]) == {name: values}


def test_names_of_keys_and_values() -> None:
    """The field of a value may be named as a column of the key is."""
    value = _info("AVRO", ("__key.a", "int"), ("__KEY", "int"))
    assert _names(SchemaInfo("KEY_VALUE", key=_ABC, value=value)) == [
        "__key.a", "__key.b", "__key.c", "__key.a_2", "__KEY",
    ]  # fmt: skip
    text = SchemaInfo("STRING")
    assert _names(SchemaInfo("KEY_VALUE", key=text, value=value)) == ["__key", "__key.a", "__KEY_2"]
    pair = SchemaInfo("KEY_VALUE", key=text, value=text)
    assert _names(pair, reserved=("__key", "__VALUE__")) == ["__key_2", "__value___2"]


_ROWS = (b"\x02\x02x\x02\x06", b"\x04\x02y\x00", None)
_EXPECTED = {"a": [1, 2, None], "b": [{"x": "x"}, {"x": "y"}, None], "c": [3, None, None]}


@pytest.mark.parametrize("names", [p for n in range(1, 4) for p in permutations("abc", n)], ids=str)
def test_any_columns_in_any_order(names: tuple[str, ...]) -> None:
    """What is asked for is given, in the order that is asked for."""
    rows = rows_of((None, messages(*_ROWS)))
    found = values_of(TopicSchema(_ABC), rows, names=names)

    assert list(found) == list(names)
    assert found == {name: _EXPECTED[name] for name in names}


def test_no_column_at_all() -> None:
    """Nothing is decoded for nothing."""
    rows = rows_of((None, messages(b"\xff", b"")))

    assert values_of(TopicSchema(_ABC), rows, names=[]) == {}


def test_what_is_not_asked_for_is_no_error() -> None:
    """A value that its column cannot hold is an error of that column alone."""
    rows = rows_of((None, messages(b"\x02\x02x\x02\x06", b"\x80\x80\x80\x80\x80\x01\x02y\0")))

    assert values_of(TopicSchema(_ABC), rows, names=["b"])["b"] == [{"x": "x"}, {"x": "y"}]
    with pytest.raises(PayloadDecodeError, match=r"^a: a number"):
        values_of(TopicSchema(_ABC), rows)


def test_columns_are_carried_to_other_processes() -> None:
    """They are hashable and picklable, and the same there."""
    columns = ValueColumns(TopicSchema(_PAIR), reserved=("a",))
    again = pickle.loads(pickle.dumps(columns))

    assert again == columns
    assert hash(again) == hash(columns)
    assert again.fields == columns.fields


@pytest.mark.parametrize(
    "schema",
    [SchemaInfo("AVRO", ""), SchemaInfo("KEY_VALUE"), SchemaInfo("KEY_VALUE", key=_ABC)],
    ids=str,
)
def test_schemas_that_cannot_be_read(schema: SchemaInfo) -> None:
    """They are known for it before anything is read."""
    with pytest.raises(SchemaError):
        _ = ValueColumns(TopicSchema(schema)).fields
