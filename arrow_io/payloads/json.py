"""JSON: programs that read JSON text by the Avro schema that Pulsar stores for it.

A JSON Schema takes its place in other registries, and in topics of old clients.

As in Pulsar's Java client, fields that the schema lacks are ignored, missing ones are null, and of
two fields with the same name the last one counts. Bytes are Base64 text, as Jackson writes them.
Integers and decimals are read exactly, or raise an error. Floating-point numbers are rounded to the
nearest value of the field's type.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.payloads import tables
from arrow_io.payloads.avro import time_scale
from arrow_io.payloads.avro_schema import JSON_TEXT, avro_type_shape, parse_avro
from arrow_io.payloads.json_names import name_table
from arrow_io.payloads.json_schema import is_json_schema, parse_json_schema
from arrow_io.payloads.program import Program, ProgramBuilder

if TYPE_CHECKING:
    from arrow_io.payloads.avro_schema import AvroType
    from arrow_io.payloads.shape import Shape

_SIMPLE: Final = {
    "boolean": tables.JSON_BOOLEAN,
    "float": tables.JSON_FLOAT,
    "double": tables.JSON_FLOAT,
    "string": tables.JSON_STRING,
    "bytes": tables.JSON_BASE64,
    "fixed": tables.JSON_BASE64,
}
_TOKENS: Final = {
    tables.TOKEN_STRING: ("string", "enum", "bytes", "fixed", "double", "float"),
    tables.TOKEN_INTEGER: ("long", "int", "double", "float"),
    tables.TOKEN_FRACTION: ("double", "float"),
    tables.TOKEN_BOOLEAN: ("boolean",),
    tables.TOKEN_OBJECT: ("record", "map"),
    tables.TOKEN_ARRAY: ("array",),
}
"""Kinds of branches that can hold a token; the first of these that a union has is used."""


def parse_json_definition(text: str) -> AvroType:
    """Parse the definition of a JSON schema: an Avro schema or a JSON Schema, as JSON text.

    Raises:
        SchemaError: It is neither.
    """
    return parse_json_schema(text) if is_json_schema(text) else parse_avro(text)


def json_shape(reader: AvroType, time_unit: str) -> Shape:
    """Return the shape of values read with a schema; a recursive type becomes its JSON text.

    Raises:
        SchemaError: The schema has too many fields.
    """
    return avro_type_shape(reader, time_unit, pa.string())


def json_program(shape: Shape, writer: AvroType | None = None) -> Program:
    """Compile the program that reads JSON text into a shape of `json_shape`, or fewer fields.

    Args:
        shape: The shape.
        writer: The schema that the text was written with. Only units of times and scales of
            decimals are taken from it. None: the reader's schema.
    """
    builder = ProgramBuilder("json", shape)
    # For the positions and numbers of `tables.DELIMITERS`.
    builder.reserve_hints(2 * tables.DELIMITERS)
    _compile(builder, shape, 0, builder.reserve(), writer)
    return builder.build(canonical_json)


def _compile(
    builder: ProgramBuilder, shape: Shape, node: int, op: int, writer: AvroType | None
) -> int:
    origin: AvroType = shape.origin
    writer = _sole_branch(writer)
    if writer is None or writer.kind != origin.kind:
        writer = origin
    if origin.kind == "union":
        return _union(builder, shape, node, op)
    if origin.kind == JSON_TEXT:
        return builder.set(op, tables.JSON_RAW, node)
    if origin.kind == "record":
        if pa.types.is_string(shape.type):
            return builder.set(op, tables.JSON_RAW, node)
        return _record(builder, shape, node, op, writer)
    if origin.kind == "array":
        item = _compile(builder, shape.children[0], node + 1, builder.reserve(), writer.item)
        return builder.set(op, tables.JSON_ARRAY, node, item)
    if origin.kind == "map":
        item_shape = shape.children[0].children[1]
        value = _compile(builder, item_shape, node + 3, builder.reserve(), writer.item)
        return builder.set(op, tables.JSON_MAP, node, value)
    if origin.kind == "null":
        no_branches = builder.link([tables.ABSENT] * tables.TOKENS)
        return builder.set(op, tables.JSON_UNION, node, no_branches)
    if origin.kind == "enum":
        symbols = builder.symbols(id(origin), lambda: origin.symbols)
        other = (
            tables.ABSENT if origin.default is None else builder.constant(origin.default.encode())
        )
        return builder.set(op, tables.JSON_ENUM, node, symbols, len(origin.symbols), other)
    if origin.logical == "decimal":
        # Bytes have no scale of their own, as numbers have.
        has_bytes = writer.is_connect_decimal and writer.scale == origin.scale
        return builder.set(
            op, tables.JSON_DECIMAL, node, origin.precision, origin.scale, int(has_bytes)
        )
    if origin.logical == "uuid":
        return builder.set(op, tables.JSON_STRING, node)
    if origin.kind in {"int", "long"}:
        scale = time_scale(builder, shape, writer)
        return builder.set(op, tables.JSON_INTEGER, node, scale)
    size = origin.size if origin.kind == "fixed" else tables.ABSENT
    return builder.set(op, _SIMPLE[origin.kind], node, size)


def _sole_branch(writer: AvroType | None) -> AvroType | None:
    """Return the type of a nullable value; other types, and wider unions, are returned as is."""
    if writer is None or writer.kind != "union":
        return writer
    branches = [each for each in writer.branches if each.kind != "null"]
    return branches[0] if len(branches) == 1 else writer


def _record(builder: ProgramBuilder, shape: Shape, node: int, op: int, writer: AvroType) -> int:
    origin: AvroType = shape.origin
    types = {each.name: each.type for each in writer.fields}
    ops = {
        child.name: _compile(builder, child, child_node, builder.reserve(), types.get(child.name))
        for child, child_node in shape.children_at(node)
    }
    fields = []
    for each in origin.fields:
        # The quotes and the colon are included, so that one comparison also finds the name's ends.
        name = f"{json.dumps(each.name, ensure_ascii=False)}:".encode()
        fields.append((name, builder.constant(name), ops.get(each.name, tables.ABSENT)))
    return builder.set(
        op,
        tables.JSON_RECORD,
        node,
        builder.link([number for _, *pair in fields for number in pair]),
        len(fields),
        builder.reserve_hints(2 * len(fields) + 5),
        builder.link(name_table(fields)),
        builder.reserve_hints(len(fields)),
    )


def _union(builder: ProgramBuilder, shape: Shape, node: int, op: int) -> int:
    """Compile a union: a struct with one member set, because JSON does not name the branch."""
    ops: dict[str, int] = {}
    for child, child_node in shape.children_at(node):
        compiled = _compile(builder, child, child_node, builder.reserve(), None)
        kind = child.origin.kind
        # A decimal is a number in JSON, whether Avro stores it as bytes or fixed. Kafka Connect
        # writes no unions of it and other types.
        ops.setdefault("double" if child.origin.logical == "decimal" else kind, compiled)
    chosen = [
        next((ops[kind] for kind in kinds if kind in ops), tables.ABSENT)
        for kinds in _TOKENS.values()
    ]
    return builder.set(op, tables.JSON_UNION, node, builder.link(chosen))


class _Number(str):
    """The text of a number."""

    __slots__ = ()


def canonical_json(payload: bytes) -> bytes:
    """Rewrite JSON with each name once, with its last value, and without unnecessary escapes.

    Raises:
        ValueError: The payload is not JSON.
    """
    value = json.loads(
        payload.decode(), parse_int=_Number, parse_float=_Number, parse_constant=_Number
    )
    # An unpaired surrogate stays an escape.
    return _to_json(value).encode(errors="backslashreplace")


def _to_json(value: object) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        fields = (f"{_to_json(name)}:{_to_json(each)}" for name, each in value.items())
        return "{" + ",".join(fields) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_to_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
