"""A JSON Schema gives typed columns, and JSON text where it says nothing that a column can hold."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pytest

from arrow_io.errors import PayloadDecodeError, SchemaError
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from tests.support.payload_rows import messages, rows_of, values_of

_TEXT: Final = pa.string()
_LEGACY: Final = {
    "type": "object",
    "id": "urn:jsonschema:com:acme:Order",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "open": {"type": "boolean"},
        "color": {"type": "string", "enum": ["RED", "BLUE"]},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "id": "urn:jsonschema:com:acme:Line",
                "properties": {"sku": {"type": "string"}, "note": {"type": "any"}},
            },
        },
        "first": {"type": "object", "$ref": "urn:jsonschema:com:acme:Line"},
        "parent": {"type": "object", "$ref": "urn:jsonschema:com:acme:Order"},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
}
"""What Jackson's module makes of a class, as old Java clients stored it."""


def _types(schema: object) -> dict[str, pa.DataType]:
    columns = ValueColumns(TopicSchema(SchemaInfo("JSON", json.dumps(schema)))).fields
    return {each.name: each.type for each in columns}


def _type(field: object, **definitions: object) -> pa.DataType:
    schema = {"type": "object", "properties": {"f": field}, "definitions": definitions}
    return _types(schema)["f"]


def _values(schema: object, *values: object) -> dict[str, list[Any]]:
    payloads = [json.dumps(each).encode() for each in values]
    info = SchemaInfo("JSON", json.dumps(schema))
    return values_of(TopicSchema(info), rows_of((None, messages(*payloads))))


@pytest.mark.usefixtures("build")
def test_schemas_of_old_java_clients() -> None:
    """A topic of SchemaType.JSON whose schema is a JSON Schema has columns."""
    line = pa.struct([("sku", _TEXT), ("note", _TEXT)])
    assert _types(_LEGACY) == {
        "id": pa.int64(),
        "price": pa.float64(),
        "open": pa.bool_(),
        "color": _TEXT,
        "lines": pa.list_(pa.field("element", line)),
        "first": line,
        "parent": _TEXT,
        "counts": pa.map_(_TEXT, pa.field("value", pa.int64())),
    }
    order = {
        "id": 2**53 + 1,
        "price": 1.5,
        "open": True,
        "color": "RED",
        "lines": [{"sku": "a", "note": {"x": [1, None]}}, {"sku": None}],
        "first": {"sku": "a"},
        "parent": {"id": 7},
        "counts": {"a": 1},
        "more": "ignored",
    }

    found = _values(_LEGACY, order, {"parent": None}, {})

    assert found["id"] == [2**53 + 1, None, None]
    assert found["price"] == [1.5, None, None]
    assert found["open"] == [True, None, None]
    assert found["color"] == ["RED", None, None]
    lines = [{"sku": "a", "note": '{"x": [1, null]}'}, {"sku": None, "note": None}]
    assert found["lines"] == [lines, None, None]
    assert found["first"] == [{"sku": "a", "note": None}, None, None]
    assert found["parent"] == ['{"id": 7}', None, None]
    assert found["counts"] == [{"a": 1}, None, None]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"type": ["null", "integer"]}, pa.int64()),
        ({"type": ["string", "integer"]}, _TEXT),
        ({"oneOf": [{"type": "null", "title": "Not included"}, {"type": "boolean"}]}, pa.bool_()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, pa.int64()),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, _TEXT),
        ({"allOf": [{"$ref": "#/definitions/N"}]}, pa.int64()),
        ({"type": "integer", "oneOf": [{"minimum": 1}]}, _TEXT),
        ({"$ref": "#/definitions/N"}, pa.int64()),
        ({"$ref": "#/definitions/a~1b%20c"}, pa.bool_()),
        ({"$ref": "#/definitions/missing"}, _TEXT),
        ({"$ref": "other.json"}, _TEXT),
        ({"$ref": "#/definitions/N", "minimum": 1}, pa.int64()),
        ({"$ref": "#/definitions/N", "properties": {"y": {"type": "integer"}}}, _TEXT),
        ({"$ref": "#/definitions/N", "allOf": [{"properties": {"y": {}}}]}, _TEXT),
        ({"enum": ["a", "b"]}, _TEXT),
        ({"enum": [1, 2]}, _TEXT),
        ({"type": "integer", "enum": [1, 2]}, pa.int64()),
        ({"const": "a"}, _TEXT),
        ({"properties": {"x": {"type": "number"}}}, pa.struct([("x", pa.float64())])),
        ({"type": "object"}, _TEXT),
        ({"type": "object", "additionalProperties": False}, _TEXT),
        ({"type": "array"}, _TEXT),
        ({"type": "array", "items": [{"type": "integer"}]}, _TEXT),
        ({"type": "array", "items": {}}, pa.list_(pa.field("element", _TEXT))),
        ({"type": "null"}, _TEXT),
        ({"type": {"odd": 1}}, _TEXT),
        ({}, _TEXT),
        (True, _TEXT),
        (5, _TEXT),
    ],
    ids=str,
)
def test_types(field: object, expected: pa.DataType) -> None:
    """What a column can hold exactly has a type; anything else is JSON text."""
    assert _type(field, N={"type": "integer"}, **{"a/b c": {"type": "boolean"}}) == expected


@pytest.mark.usefixtures("build")
def test_text_is_unchanged() -> None:
    """JSON text keeps its spaces, numbers and order; null is null."""
    schema = {"$schema": "x", "properties": {"f": {}}}
    payloads = [b'{"f": {"b" : 1e2, "a":[ ]} }', b'{"f":"\\u00e9"}', b'{"f":null}', b'{"f": 1.50}']
    rows = rows_of((None, messages(*payloads)))
    found = values_of(TopicSchema(SchemaInfo("JSON", json.dumps(schema))), rows)
    assert found == {"f": ['{"b" : 1e2, "a":[ ]}', '"\\u00e9"', None, "1.50"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/A"},
        {"$ref": "#/$defs/A"},
        {"properties": {"x": {"$ref": "#/$defs/A/properties/x"}}},
        {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
        {"type": "object", "allOf": [{"$ref": "#/$defs/A"}]},
    ],
)
def test_schemas_of_other_clients(schema: dict[str, object]) -> None:
    """A JSON Schema of any draft is recognized, with a type or without."""
    definitions = {"A": {"type": "object", "properties": {"x": {"type": "integer"}}}}
    expected = {"x": pa.int64()} if "allOf" not in schema else {"__value__": _TEXT}
    assert _types({**schema, "$defs": definitions}) == expected


def test_values_without_fields() -> None:
    """A schema that is no object is one column."""
    assert _types({"$schema": "", "type": "integer"}) == {"__value__": pa.int64()}
    assert _types({"$schema": ""}) == {"__value__": _TEXT}


def test_values_that_do_not_fit() -> None:
    """A value of another type than the schema's is an error that names the field."""
    with pytest.raises(PayloadDecodeError, match="id: the JSON value has another type"):
        _values(_LEGACY, {"id": "text"})
    with pytest.raises(PayloadDecodeError, match="id: a number or time is out of the range"):
        _values(_LEGACY, {"id": 2**63})


def test_schemas_that_are_refused() -> None:
    """Schemas of any depth or size are bounded, and names must be text that UTF-8 can encode."""
    deep: object = {"type": "integer"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    wide = {f"d{n}": {"type": "object", "properties": {
        "a": {"$ref": f"#/definitions/d{n + 1}"}, "b": {"$ref": f"#/definitions/d{n + 1}"}
    }} for n in range(30)}  # fmt: skip
    for refused in (
        {"type": "object", "properties": {"f": deep}},
        {"type": "object", "properties": {"f": {"$ref": "#/definitions/d0"}}, "definitions": wide},
        {"type": "object", "properties": {"\ud800": {}}},
    ):
        with pytest.raises(SchemaError):
            _types(refused)


def test_values_are_not_written_with_it() -> None:
    """A JSON Schema is only for reading, and the error says so."""
    with pytest.raises(SchemaError, match="only read with a JSON Schema"):
        PayloadEncoder(SchemaInfo("JSON", json.dumps(_LEGACY)))
