"""Topics with a column of every type that the tables of `arrow_io.columns` name, and those tables.

`pulsar_types` and `engine_types` read the tables where users read them, so a row without data, and
data without a row, are seen; `type_in_engine` spells any Arrow type as an engine does.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import re
import struct
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from arrow_io import columns
from tests.support.buckets import offload
from tests.support.entries import Message, encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Schema: TypeAlias = dict[str, Any]

_INSTANT: Final = dt.datetime(2026, 11, 21, 12, 48, 25, 123456, tzinfo=dt.UTC)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY: Final = 20_778
_NANOS: Final = 46_105_123_456_000


@dataclass(frozen=True)
class TypedColumn:
    """A column of a typed topic.

    Attributes:
        name: Its name.
        placeholders: What stands in its type for the letters that the table has.
        rows: How many rows of the topic are not null in it.
    """

    name: str
    placeholders: Mapping[str, str] = field(default_factory=dict)
    rows: int = 1


@dataclass(frozen=True)
class TypedTopic:
    """A topic of a few messages, the last of which has a null value.

    Attributes:
        name: Its name.
        schema: Its schema, as `open_topic` takes it.
        payloads: The payloads of the other messages.
        columns: Its typed columns, by the name that the table has for their Pulsar type.
    """

    name: str
    schema: Schema
    payloads: tuple[bytes, ...]
    columns: dict[str, TypedColumn]

    def objects(self) -> dict[str, bytes]:
        """The topic as it lies in a bucket."""
        messages = [Message(payload=each) for each in self.payloads]
        null = Message(null_value=True)
        entry = encode_entry([*messages, null], batched=True)
        return offload([(1, [entry])], managed_ledger=f"public/default/persistent/{self.name}")

    @property
    def type_of(self) -> dict[str, str]:
        """The Arrow type of each column, by name, as the table has it; with `unit`, maybe."""
        types = pulsar_types()
        return {
            column.name: _filled(types[label], column.placeholders)
            for label, column in self.columns.items()
        }


def write_topics(folder: Path) -> None:
    """Offload all typed topics to a folder."""
    for topic in TYPED_TOPICS:
        for name, data in topic.objects().items():
            (folder / name).write_bytes(data)


# The tables


def pulsar_types() -> dict[str, str]:
    """The Arrow type of each Pulsar type, remarks left out."""
    types: dict[str, str] = {}
    for labels, given in _rows(2):
        names, arrow = labels.split("; "), given.split("; ")
        kind = re.match(r"(Avro |protobuf )?", labels)
        assert kind is not None
        prefix = kind[0]
        if len(names) == 1:
            arrow = [given]
        for name, type_ in zip(names, arrow, strict=True):
            label = prefix + name.removeprefix(prefix)
            assert label not in types, label
            types[label] = type_.partition(" (")[0]
    return types


def engine_types() -> dict[str, dict[str, str]]:
    """The type that each engine has for each Arrow type; empty where it is never given one."""
    (_, *engines), *rows = _rows(5)
    return {row[0]: dict(zip(engines, row[1:], strict=True)) for row in rows}


def _rows(width: int) -> list[list[str]]:
    """The rows of the table that has so many columns; without its header, if that has two."""
    lines = (columns.__doc__ or "").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    rows = [row for row in rows if len(row) == width and not row[0].startswith("-")]
    return rows[1:] if width == 2 else rows


def type_in_engine(type_: pa.DataType, engine: str) -> str:
    """The type of an engine, as the table spells it."""
    types = engine_types()

    def inner(below: pa.DataType) -> str:
        return type_in_engine(below, engine)

    if pa.types.is_struct(type_):
        form = types["struct<a: T>"][engine]
        part = re.search(r"('?)\ba\b\1\W+T\b", form)
        if part is None:
            return form
        fields = [_filled(part[0], {"a": each.name, "T": inner(each.type)}) for each in type_]
        return form.replace(part[0], ("," if engine == "Spark" else ", ").join(fields))
    if pa.types.is_list(type_):
        return _filled(types["list<T>"][engine], {"T": inner(type_.value_type)})
    if pa.types.is_map(type_):
        given = {"K": inner(type_.key_type), "V": inner(type_.item_type)}
        return _filled(types["map<K, V>"][engine], given)
    if pa.types.is_decimal(type_):
        given = {"p": str(type_.precision), "s": str(type_.scale)}
        return _filled(types["decimal128(p, s)"][engine], given)
    return types[str(type_)][engine].partition(" (µs")[0]


def arrow_text(type_: pa.DataType) -> str:
    """An Arrow type as the table spells it: the item of a list has no name."""
    return str(type_).replace("<element: ", "<")


def _filled(form: str, placeholders: Mapping[str, str]) -> str:
    if not placeholders:
        return form
    names = "|".join(map(re.escape, placeholders))
    return re.sub(rf"\b({names})\b", lambda match: placeholders[match[0]], form)


# The topics


def _primitive(type_: str, payload: bytes) -> TypedTopic:
    name = type_.lower().replace("_", "-")
    return TypedTopic(name, {"type": type_}, (payload,), {type_: TypedColumn("__value__")})


_PRIMITIVES: Final = [
    _primitive(type_, payload)
    for type_, payload in {
        "BYTES": b"\0\xff",
        "STRING": "数据 ledger".encode(),
        "BOOLEAN": b"\1",
        "INT8": struct.pack(">b", -128),
        "INT16": struct.pack(">h", -32768),
        "INT32": struct.pack(">i", -(1 << 31)),
        "INT64": struct.pack(">q", -(1 << 63)),
        "FLOAT": struct.pack(">f", 0.1),
        "DOUBLE": struct.pack(">d", 0.1),
        "DATE": struct.pack(">q", 1_700_000_000_123),
        "TIMESTAMP": struct.pack(">q", -1),
        "INSTANT": struct.pack(">qi", 1_700_000_000, 123_456_000),
        "TIME": struct.pack(">q", 86_399_999),
        "LOCAL_TIME": struct.pack(">q", _NANOS),
        "LOCAL_DATE": struct.pack(">q", -_DAY),
        "LOCAL_DATE_TIME": struct.pack(">qq", _DAY, _NANOS),
    }.items()
]


@dataclass(frozen=True)
class _Field:
    """A field of the record that has all types of Avro.

    Attributes:
        type: Its Avro type.
        value: A value for fastavro.
        placeholders: As in `TypedColumn`.
        json: The value as JSON has it; None: the same.
    """

    type: Any
    value: Any
    placeholders: Mapping[str, str] = field(default_factory=dict)
    json: Any = None


def _logical(type_: str, logical: str, **more: object) -> Schema:
    return {"type": type_, "logicalType": logical, **more}


def _micros(time: dt.datetime) -> int:
    return (time - _EPOCH) // dt.timedelta(microseconds=1)


_MICROS: Final = _micros(_INSTANT)
_MILLIS: Final = _MICROS // 1000
_AVRO_FIELDS: Final[dict[str, _Field]] = {
    "null": _Field("null", None),
    "boolean": _Field("boolean", True),  # noqa: FBT003 - a value
    "int": _Field("int", -(1 << 31)),
    "long": _Field("long", (1 << 63) - 1),
    "float": _Field("float", 0.5),
    "double": _Field("double", 0.1),
    "bytes": _Field("bytes", b"\0\xff", json="AP8="),
    "fixed": _Field({"type": "fixed", "name": "F", "size": 2}, b"\1\2", json="AQI="),
    "string": _Field("string", "数据 ledger"),
    "enum": _Field({"type": "enum", "name": "E", "symbols": ["NEW", "PAID"]}, "PAID"),
    "uuid": _Field(_logical("string", "uuid"), str(uuid.UUID(int=1))),
    "decimal": _Field(
        _logical("bytes", "decimal", precision=9, scale=2),
        Decimal("-1234567.89"),
        {"p": "9", "s": "2"},
        json=-1234567.89,
    ),
    "date": _Field(_logical("int", "date"), _DAY),
    "time-millis": _Field(_logical("int", "time-millis"), 86_399_999),
    "time-micros": _Field(_logical("long", "time-micros"), 86_399_999_999),
    "timestamp-millis": _Field(_logical("long", "timestamp-millis"), _MILLIS),
    "timestamp-micros": _Field(_logical("long", "timestamp-micros"), _MICROS),
    "timestamp-nanos": _Field(_logical("long", "timestamp-nanos"), _MICROS * 1000),
    "local-timestamp-millis": _Field(_logical("long", "local-timestamp-millis"), _MILLIS),
    "local-timestamp-micros": _Field(_logical("long", "local-timestamp-micros"), _MICROS),
    "local-timestamp-nanos": _Field(_logical("long", "local-timestamp-nanos"), _MICROS * 1000),
    "array": _Field(
        {"type": "array", "items": ["null", _logical("int", "time-millis")]},
        [1, None],
        {"T": "time64[us]"},
    ),
    "map": _Field(
        {"type": "map", "values": ["null", _logical("int", "time-millis")]},
        {"b": 2, "a": None},
        {"T": "time64[us]"},
    ),
    "record": _Field(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "a", "type": ["null", _logical("long", "timestamp-nanos")]}],
        },
        {"a": 1000},
        {"T": "timestamp[unit, tz=UTC]"},
    ),
    "record without fields": _Field({"type": "record", "name": "Empty", "fields": []}, {}),
    "union of null and T": _Field(["null", "string"], "x", {"T": "string"}),
    "wider union": _Field(["null", "string", "long"], 5, {"a: T": "string: string, long: int64"}),
    "recursive type": _Field("Row", {}, json={}),
}
_ROW_NAMES: Final = {label: label.replace("-", "_").replace(" ", "_") for label in _AVRO_FIELDS}


def _nullable(type_: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(type_, list):
        return type_
    return "null" if type_ == "null" else ["null", type_]


_ROW: Final = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": _ROW_NAMES[label], "type": _nullable(each.type), "default": None}
        for label, each in _AVRO_FIELDS.items()
    ],
}


def _plain(type_: Any) -> Any:  # noqa: ANN401 - JSON
    """Without the logical types that fastavro would take Python's times for; decimals stay."""
    if isinstance(type_, list):
        return [_plain(each) for each in type_]
    if isinstance(type_, dict):
        kept = type_.get("logicalType") == "decimal"
        return {name: _plain(each) for name, each in type_.items() if name != "logicalType" or kept}
    return type_


def _avro_payload(row: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_plain(_ROW)), row)
    return out.getvalue()


def _record_columns(labels: Iterable[str]) -> dict[str, TypedColumn]:
    return {
        f"Avro {label}": TypedColumn(
            _ROW_NAMES[label], _AVRO_FIELDS[label].placeholders, rows=0 if label == "null" else 1
        )
        for label in labels
    }


_AVRO: Final = TypedTopic(
    "avro",
    {"type": "AVRO", "schema": json.dumps(_ROW)},
    (
        _avro_payload({_ROW_NAMES[label]: each.value for label, each in _AVRO_FIELDS.items()}),
        _avro_payload({}),
    ),
    _record_columns(_AVRO_FIELDS),
)
JSON_TOPIC: Final = TypedTopic(
    "json",
    {"type": "JSON", "schema": json.dumps(_ROW)},
    (
        json.dumps(
            {
                _ROW_NAMES[label]: each.value if each.json is None else each.json
                for label, each in _AVRO_FIELDS.items()
            }
        ).encode(),
        b"{}",
    ),
    # Of a record inside itself the text is given, not Avro's bytes.
    _record_columns(_AVRO_FIELDS.keys() - {"recursive type"}),
)
"""The same record as JSON."""


_NUMBER_TYPES: Final = (
    "double", "float", "int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64",
    "sfixed64", "uint64", "fixed64",
)  # fmt: skip


def _proto_fields() -> dict[str, tuple[dict[str, Any], Any, Mapping[str, str]]]:
    """Of each label, the field's descriptor, a value, and placeholders."""
    kinds = FieldDescriptorProto
    message = {"type": kinds.TYPE_MESSAGE}
    unsigned = {"uint32": (1 << 32) - 1, "fixed32": (1 << 32) - 1}
    unsigned |= {"uint64": (1 << 64) - 1, "fixed64": (1 << 64) - 1}
    fields: dict[str, tuple[dict[str, Any], Any, Mapping[str, str]]] = {
        name: ({"type": getattr(kinds, f"TYPE_{name.upper()}")}, unsigned.get(name, -1), {})
        for name in _NUMBER_TYPES
    }
    fields |= {
        "bool": ({"type": kinds.TYPE_BOOL}, True, {}),
        "string": ({"type": kinds.TYPE_STRING}, "数据 ledger", {}),
        "bytes": ({"type": kinds.TYPE_BYTES}, b"\0\xff", {}),
        "enum": ({"type": kinds.TYPE_ENUM, "type_name": ".typed.Mode"}, 1, {}),
        "message": (message | {"type_name": ".typed.Inner"}, {"a": 1}, {"T": "int32"}),
        "repeated": (
            message | {"type_name": ".google.protobuf.Timestamp", "label": kinds.LABEL_REPEATED},
            [{"seconds": 1, "nanos": 1000}],
            {"T": "timestamp[unit, tz=UTC]"},
        ),
        "map": (
            message | {"type_name": ".typed.Row.MapEntry", "label": kinds.LABEL_REPEATED},
            {7: 1.5},
            {"K": "int64", "V": "float"},
        ),
        "message without fields": (message | {"type_name": ".typed.Empty"}, {}, {}),
        "recursive type": (message | {"type_name": ".typed.Row"}, {"int32": 5}, {}),
        "google.protobuf.Timestamp": (
            message | {"type_name": ".google.protobuf.Timestamp"},
            {"seconds": 1_700_000_000, "nanos": 123_456_000},
            {},
        ),
        "google.protobuf wrappers": (
            message | {"type_name": ".google.protobuf.UInt64Value"},
            {"value": 5},
            {"T": "decimal128(20, 0)"},
        ),
    }
    return fields


def _protobuf() -> TypedTopic:
    kinds = FieldDescriptorProto
    file = FileDescriptorProto(
        name="typed.proto",
        package="typed",
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name, wrappers_pb2.DESCRIPTOR.name],
    )
    row = DescriptorProto(name="Row")
    entry = row.nested_type.add(name="MapEntry")
    entry.options.map_entry = True
    for number, (name, kind) in enumerate(
        (("key", kinds.TYPE_SINT64), ("value", kinds.TYPE_FLOAT)), 1
    ):
        entry.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    file.message_type.add(name="Inner").field.add(
        name="a", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL
    )
    file.message_type.add(name="Empty")
    mode = file.enum_type.add(name="Mode")
    mode.value.add(name="UNSET", number=0)
    mode.value.add(name="DRIVING", number=1)
    values: dict[str, Any] = {}
    typed: dict[str, TypedColumn] = {}
    for number, (label, (spec, value, placeholders)) in enumerate(_proto_fields().items(), 1):
        name = re.sub(r"\W", "_", label)
        descriptor = kinds(name=name, number=number, label=kinds.LABEL_OPTIONAL)
        descriptor.MergeFrom(kinds(**spec))
        always = spec.get("label") == kinds.LABEL_REPEATED
        if spec["type"] != kinds.TYPE_MESSAGE:
            descriptor.proto3_optional = True
            descriptor.oneof_index = len(row.oneof_decl)
            row.oneof_decl.add(name=f"_{name}")
        row.field.append(descriptor)
        values[name] = value
        typed[f"protobuf {label}"] = TypedColumn(name, placeholders, rows=2 if always else 1)
    file.message_type.append(row)
    files = FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    row_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("typed.Row"))
    data = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": "typed.Row",
        "rootFileDescriptorName": file.name,
    }
    return TypedTopic(
        "protobuf",
        {"type": "PROTOBUF_NATIVE", "schema": json.dumps(data)},
        (row_class(**values).SerializeToString(), b""),
        typed,
    )


TYPED_TOPICS: Final[Sequence[TypedTopic]] = (*_PRIMITIVES, _AVRO, JSON_TOPIC, _protobuf())
