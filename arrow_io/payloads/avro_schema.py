"""Avro schemas, as Pulsar stores them for AVRO and JSON: parsing, and shapes of Arrow columns.

Everything that Avro's specification allows is read. Names are not checked, because Pulsar's Java
client writes some (`Gen$Order`) that the specification forbids.
"""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from arrow_io.errors import SchemaError
from arrow_io.payloads.shape import UTC_MICROSECONDS, Budget, Shape, make_distinct, scalar
from arrow_io.payloads.shape import array as array_shape
from arrow_io.payloads.shape import map_ as map_shape
from arrow_io.payloads.shape import record as record_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_MAX_PRECISION = 38
_UUID_BYTES = 16
JSON_TEXT: Final = "JSON text"
"""Kind of values that stay JSON text. Only a JSON Schema has it."""
CONNECT_NAME: Final = "connect.name"
"""Field of Avro schemas that Kafka Connect makes: its own name of the type."""
CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
MISSING: Final = object()
"""The `default` of a field without a default."""


@dataclass(eq=False, slots=True)
class AvroType:
    """A type of an Avro schema. A named type is the same object wherever it is used."""

    kind: str
    """A primitive type, `record`, `enum`, `fixed`, `array`, `map`, `union`, or `JSON_TEXT`."""
    name: str = ""
    """Full name of a named type; `aliases` are full names too."""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    """Logical type, if it is valid for the type, otherwise empty."""
    precision: int = 0
    scale: int = 0
    is_connect_decimal: bool = False
    """Whether it is Kafka Connect's decimal, which JSON text has as Base64 of its bytes."""
    size: int = 0
    """Size of a fixed, in bytes."""
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """Symbol that replaces symbols that the enum lacks; None if there is no default."""
    items: AvroType | None = None
    """Type of an array's items, or of a map's values."""
    branches: tuple[AvroType, ...] = ()

    @property
    def short_name(self) -> str:
        """The branch name in a union: the kind, or a named type's name without namespace."""
        return self.name.rpartition(".")[2] or self.kind

    @property
    def item(self) -> AvroType:
        """The type `items` of an array or map, which is not None."""
        assert self.items is not None  # noqa: S101 - called for arrays and maps only
        return self.items


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record; `default` is `MISSING` if there is none."""

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = MISSING


def parse_avro(text: str) -> AvroType:
    """Parse an Avro schema, which is JSON text.

    Raises:
        SchemaError: The text is not an Avro schema.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"the schema is not JSON: {error}"
        raise SchemaError(message) from error
    return _Parser().type(schema, "", 0)


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._budget = Budget()

    def type(self, schema: object, namespace: str, depth: int) -> AvroType:
        self._budget.spend(depth)
        if isinstance(schema, str):
            return self._find_type(schema, namespace)
        if isinstance(schema, list):
            branches = tuple(self.type(each, namespace, depth + 1) for each in schema)
            if not branches or any(each.kind == "union" for each in branches):
                message = "a union of the Avro schema is empty or contains another union"
                raise SchemaError(message)
            return AvroType("union", branches=branches)
        if not isinstance(schema, dict):
            message = f"the Avro schema contains {reprlib.repr(schema)}, which is not a type"
            raise SchemaError(message)
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self.type(kind, namespace, depth + 1)
        if kind in _NAMED:
            return self._define(schema, str(kind), namespace, depth)
        if kind in {"array", "map"}:
            key = "items" if kind == "array" else "values"
            if key not in schema:
                message = f"the Avro schema has a type {kind!r} without {key!r}"
                raise SchemaError(message)
            return AvroType(str(kind), items=self.type(schema[key], namespace, depth + 1))
        if kind in PRIMITIVES:
            return _add_logical_type(AvroType(str(kind)), schema)
        if isinstance(kind, str):
            return self._find_type(kind, namespace)
        message = f"the Avro schema contains {reprlib.repr(schema)}, which has no type"
        raise SchemaError(message)

    def _find_type(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        type_ = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if type_ is None:
            message = f"the Avro schema uses a type {name[:100]!r} that it does not define"
            raise SchemaError(message)
        return type_

    def _define(
        self, schema: Mapping[str, object], kind: str, namespace: str, depth: int
    ) -> AvroType:
        own = schema.get("namespace", namespace)
        name = _full_name(_text(schema.get("name"), f"name of an Avro {kind}"), str(own or ""))
        namespace = name.rpartition(".")[0]
        aliases = tuple(_full_name(each, namespace) for each in _texts(schema.get("aliases")))
        result = AvroType("record" if kind == "error" else kind, name, aliases)
        self._named[name] = result
        if kind == "enum":
            result.symbols = _texts(schema.get("symbols"))
            default = schema.get("default")
            result.default = default if default in result.symbols else None
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or not 0 <= size <= 1 << 30:
                message = f"the Avro fixed {name!r} has no size"
                raise SchemaError(message)
            result.size = size
            _add_logical_type(result, schema)
        else:
            self._add_fields(result, schema.get("fields"), namespace, depth)
        return result

    def _add_fields(self, record: AvroType, fields: object, namespace: str, depth: int) -> None:
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            message = f"the Avro record {record.name!r} has no list of fields"
            raise SchemaError(message)
        for each in fields:
            name = _text(each.get("name"), f"name of a field of {record.name!r}")
            if "type" not in each:
                message = f"the field {name!r} of {record.name!r} has no type"
                raise SchemaError(message)
            type_ = self.type(each["type"], namespace, depth + 1)
            # Old writers put the logical type next to the type instead of inside it.
            if isinstance(each["type"], str) and type_.kind in PRIMITIVES:
                _add_logical_type(type_, each)
            record.fields.append(
                AvroField(name, type_, _texts(each.get("aliases")), each.get("default", MISSING))
            )
        names = [each.name for each in record.fields]
        if len(set(names)) < len(names):
            message = f"the Avro record {record.name!r} has two fields with the same name"
            raise SchemaError(message)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _text(value: object, label: str) -> str:
    if not isinstance(value, str) or not value:
        message = f"the {label} is missing"
        raise SchemaError(message)
    return encodable(value)


def encodable(name: str) -> str:
    """Return a name of a schema; raise SchemaError if it has an unpaired surrogate."""
    try:
        name.encode()
    except UnicodeEncodeError:
        message = f"a name of the schema has an unpaired surrogate: {name[:100]!r}"
        raise SchemaError(message) from None
    return name


def _texts(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        message = "symbols and aliases of an Avro schema must be lists of text"
        raise SchemaError(message)
    return tuple(map(encodable, value))


_LOGICAL_KINDS: Final = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "timestamp-nanos": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "local-timestamp-nanos": {"long"},
    "uuid": {"string", "fixed"},
    "decimal": {"bytes", "fixed"},
}
LOGICAL_UNITS: Final = {
    "time-millis": "ms",
    "time-micros": "us",
    "timestamp-millis": "ms",
    "timestamp-micros": "us",
    "timestamp-nanos": "ns",
    "local-timestamp-millis": "ms",
    "local-timestamp-micros": "us",
    "local-timestamp-nanos": "ns",
}
"""Arrow's unit of each logical type that counts fractions of a second."""


def _add_logical_type(type_: AvroType, schema: Mapping[str, object]) -> AvroType:
    """Apply a logical type if it is valid; Avro requires that an invalid one is ignored."""
    logical = schema.get("logicalType")
    if not isinstance(logical, str) or type_.kind not in _LOGICAL_KINDS.get(logical, ()):
        return type_
    if logical == "decimal":
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            return type_
        if not 0 <= scale <= precision or not 0 < precision <= _MAX_PRECISION:
            return type_
        # 16 bytes hold any number of digits that is allowed here.
        if type_.kind == "fixed" and 10**precision > 1 << 8 * min(type_.size, 16) >> 1:
            return type_
        type_.precision, type_.scale = precision, scale
        type_.is_connect_decimal = schema.get(CONNECT_NAME) == CONNECT_DECIMAL
    if logical == "uuid" and type_.kind == "fixed" and type_.size != _UUID_BYTES:
        return type_
    type_.logical = logical
    return type_


_PRIMITIVE_TYPES: Final[dict[str, Callable[[], pa.DataType]]] = {
    "null": pa.bool_,
    "boolean": pa.bool_,
    "int": pa.int32,
    "long": pa.int64,
    "float": pa.float32,
    "double": pa.float64,
    "bytes": pa.binary,
    "string": pa.string,
    "enum": pa.string,
    "fixed": pa.binary,
    JSON_TEXT: pa.string,
}


def arrow_type(type_: AvroType, time_unit: str) -> pa.DataType:
    """Return the Arrow type of a type without parts, with `time_unit` for nanosecond types."""
    logical = type_.logical
    if logical == "decimal":
        return pa.decimal128(type_.precision, type_.scale)
    if logical == "uuid":
        return pa.string()
    if logical == "date":
        return pa.date32()
    if logical.startswith("time-"):
        return pa.time64("us")
    unit = time_unit if logical.endswith("-nanos") else "us"
    if logical.startswith("timestamp-"):
        return pa.timestamp(unit, tz="UTC") if unit != "us" else UTC_MICROSECONDS
    if logical.startswith("local-timestamp-"):
        return pa.timestamp(unit)
    return _PRIMITIVE_TYPES[type_.kind]()


def avro_type_shape(type_: AvroType, time_unit: str, inner_type: pa.DataType) -> Shape:
    """Return the shape that values of a reader's schema are read into.

    `time_unit` is the unit of nanosecond types, `ns` or `us`. `inner_type` is the Arrow type of
    recursive types: binary or string.

    Raises:
        SchemaError: The schema has too many fields.
    """
    return _Shapes(time_unit, inner_type).shape("", type_, (), 0)


class _Shapes:
    def __init__(self, time_unit: str, inner_type: pa.DataType) -> None:
        self._time_unit = time_unit
        self._inner_type = inner_type
        self._budget = Budget(Budget.MAX_ARRAY_DEPTH)

    def shape(
        self, name: str, type_: AvroType, outer_types: tuple[AvroType, ...], depth: int
    ) -> Shape:
        self._budget.spend(depth)
        if type_.kind == "union":
            return self._union(name, type_, outer_types, depth)
        if type_.kind == "record":
            if type_ in outer_types:
                return scalar(name, self._inner_type, type_)
            fields = [
                self.shape(each.name, each.type, (*outer_types, type_), depth + 1)
                for each in type_.fields
            ]
            return record_shape(name, fields, type_)
        if type_.kind in {"array", "map"}:
            is_map = type_.kind == "map"
            item = self.shape(
                "value" if is_map else "", type_.item, outer_types, depth + 1 + is_map
            )
            if not is_map:
                return array_shape(name, item, type_)
            return map_shape(name, scalar("key", pa.string()), item, type_)
        shape = scalar(name, arrow_type(type_, self._time_unit), type_)
        return shape.nullable() if type_.kind == "null" else shape

    def _union(
        self, name: str, type_: AvroType, outer_types: tuple[AvroType, ...], depth: int
    ) -> Shape:
        branches = [each for each in type_.branches if each.kind != "null"]
        accepts_null = len(branches) < len(type_.branches)
        if not branches:
            return self.shape(name, type_.branches[0], outer_types, depth)
        if len(branches) == 1:
            shape = self.shape(name, branches[0], outer_types, depth)
        else:
            names = make_distinct([each.short_name for each in branches])
            members = [
                self.shape(branch_name, each, outer_types, depth + 1)
                for branch_name, each in zip(names, branches, strict=True)
            ]
            shape = record_shape(name, members, type_)
        return shape.nullable() if accepts_null else shape
