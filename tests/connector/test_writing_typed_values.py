"""Values and keys of every schema type are written from columns, and read as what was given."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from connector import open_topic, write_messages
from tests.support.buckets import TOPIC, MemoryBucket
from tests.support.protobuf_files import data_of, file_of

_F: Final = FieldDescriptorProto
_TEXTS: Final = st.sampled_from(("", "x", "поток"))
_INTS: Final = st.integers(-(2**31), 2**31 - 1)


def _avro(type_: str, *fields: tuple[str, object]) -> SchemaInfo:
    record = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": each} for name, each in fields],
    }
    return SchemaInfo(type_, json.dumps(record))


_NULLABLE: Final = (("a", ["null", "int"]), ("A", ["string", "null"]))
_PRESENT: Final = (("id", "long"), ("note", ["null", "string"]))
_PROTO: Final = file_of(
    M={
        "number": _F.TYPE_INT32,
        "word": {"type": _F.TYPE_STRING, "oneof_index": 0, "proto3_optional": True},
    }
)
_PROTO_OPTIONAL: Final = file_of("proto2", M={"number": _F.TYPE_INT32, "word": _F.TYPE_STRING})
_PARTS: Final[dict[str, tuple[SchemaInfo, st.SearchStrategy[Any]]]] = {
    "INT32": (SchemaInfo("INT32"), _INTS),
    "STRING": (SchemaInfo("STRING"), _TEXTS),
    "BYTES": (SchemaInfo("BYTES"), st.binary(max_size=3)),
    "JSON": (
        _avro("JSON", *_NULLABLE),
        st.fixed_dictionaries({"a": st.none() | _INTS, "A_2": st.none() | _TEXTS}),
    ),
    "AVRO of nullable fields": (
        _avro("AVRO", *_NULLABLE),
        st.fixed_dictionaries({"a": st.none() | _INTS, "A_2": st.none() | _TEXTS}),
    ),
    "AVRO": (
        _avro("AVRO", *_PRESENT),
        st.fixed_dictionaries({"id": _INTS, "note": st.none() | _TEXTS}),
    ),
    "AVRO of one value": (SchemaInfo("AVRO", '"long"'), _INTS),
    "AVRO with null": (SchemaInfo("AVRO", '["null","string"]'), _TEXTS),
    "PROTOBUF_NATIVE": (
        SchemaInfo("PROTOBUF_NATIVE", data_of(_PROTO)),
        st.fixed_dictionaries({"number": _INTS, "word": st.none() | _TEXTS}),
    ),
    "PROTOBUF_NATIVE of nullable fields": (
        SchemaInfo("PROTOBUF_NATIVE", data_of(_PROTO_OPTIONAL)),
        st.fixed_dictionaries({"number": st.none() | _INTS, "word": st.none() | _TEXTS}),
    ),
}


def _table(schema: TopicSchema, rows: list[dict[str, Any]]) -> pa.Table:
    """A table of whole keys and values."""
    types = {each.name: each.type for each in ValueColumns(schema, is_flat=False).fields}
    return pa.table(
        {name: pa.array([row[name] for row in rows], type_) for name, type_ in types.items()}
    )


def _read(url: str, schema: TopicSchema, **options: Any) -> pa.Table:  # noqa: ANN401
    return open_topic(url, TOPIC, schema=schema, **options).to_table()


def _refusal(url: str, table: pa.Table, schema: TopicSchema) -> str:
    """Write a table; tell why it is refused, or nothing."""
    try:
        write_messages(url, TOPIC, table, schema=schema)
    except OptionError as error:
        return str(error)
    return ""


def _check(schema: TopicSchema, rows: list[dict[str, Any]]) -> None:
    """Written, read in each shape, and written again, rows are the same, or refused by name."""
    names = [*rows[0], "__null_value__"]
    first = MemoryBucket()
    write_messages(first.url, TOPIC, _table(schema, rows), schema=schema)
    whole = _read(first.url, schema, value="struct", columns=names)
    assert whole.select([*rows[0]]).to_pylist() == rows
    for shape in ("flat", "struct"):
        for columns in (["*"], ["*", "__null_value__", "__key_bytes__"]):
            hints = ["__null_value__ too", "__key_bytes__ too"] if len(columns) == 1 else []
            hints += ['read it with value="struct"'] if shape == "flat" else []
            again = MemoryBucket()
            table = _read(first.url, schema, value=shape, columns=columns)
            refusal = _refusal(again.url, table, schema)
            if refusal:
                assert any(hint in refusal for hint in hints), refusal
            else:
                assert _read(again.url, schema, value="struct", columns=names).equals(whole)
                again.drop()
    first.drop()


@given(data=st.data(), value=st.sampled_from([*_PARTS]))
def test_values_are_written_as_they_were_read(data: st.DataObject, value: str) -> None:
    """Of every schema type, in whatever shape they were read, null values among them."""
    schema, values = _PARTS[value]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=4))

    _check(TopicSchema(schema), [{"__value__": row} for row in rows])


@pytest.mark.parametrize("is_separated", [False, True], ids=["INLINE", "SEPARATED"])
@given(data=st.data(), key=st.sampled_from([*_PARTS]), value=st.sampled_from([*_PARTS]))
def test_keys_and_values_are_written_as_they_were_read(
    data: st.DataObject, key: str, value: str, *, is_separated: bool
) -> None:
    """Each part by its own schema, in the payload or as the message's key; either may be null."""
    (key_schema, keys), (value_schema, values) = _PARTS[key], _PARTS[value]
    schema = TopicSchema(
        SchemaInfo("KEY_VALUE", key=key_schema, value=value_schema, is_separated=is_separated)
    )
    row = st.fixed_dictionaries({"__key": st.none() | keys, "__value__": st.none() | values})

    _check(schema, data.draw(st.lists(row, min_size=1, max_size=4)))
