"""AVRO: programs that read data written with one schema as values of another.

They follow Avro 1.12, "Schema Resolution", which leaves some choices open. Here, a branch of a
union is chosen by its kind and name, without comparing its fields. Times are converted between
units. Decimals match if precision and scale are equal; those of Kafka Connect, which are columns of
databases, also if the reader's precision is greater.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.core.wording import counted
from arrow_io.errors import SchemaError
from arrow_io.payloads import tables
from arrow_io.payloads.avro_binary import encode_default
from arrow_io.payloads.avro_schema import MISSING, AvroField, AvroType, avro_type_shape
from arrow_io.payloads.program import Program, ProgramBuilder, scale_limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.payloads.shape import Shape

_WIDER: Final = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
"""The types that each type may be read as."""

_UNITS: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_DAY_SECONDS: Final = 86_400
_SIMPLE: Final = {
    "string": tables.AVRO_STRING,
    "bytes": tables.AVRO_BYTES,
    "boolean": tables.AVRO_BOOLEAN,
    "float": tables.AVRO_FLOAT,
    "double": tables.AVRO_DOUBLE,
    "null": tables.AVRO_NULL,
}

_SHORT_NUMBERS: Final = 64
"""Numbers from 0 on that take one byte."""
_SIZES: Final = {"float": 4, "double": 8}
_SKIP_OPCODES: Final = {
    "int": tables.AVRO_INTEGER,
    "long": tables.AVRO_INTEGER,
    "string": tables.AVRO_BYTES,
    "bytes": tables.AVRO_BYTES,
    "boolean": tables.AVRO_BOOLEAN,
    "null": tables.AVRO_NULL,
}


def avro_shape(reader: AvroType, time_unit: str) -> Shape:
    """Return the shape of values read with a schema; a recursive type becomes its Avro bytes.

    Raises:
        SchemaError: The schema has too many fields.
    """
    return avro_type_shape(reader, time_unit, pa.binary())


def avro_program(writer: AvroType, shape: Shape, prefix_bytes: int = 0) -> Program:
    """Compile the program that reads data written with `writer` into a shape.

    The shape is that of `avro_shape` for the reader's schema; a record may have fewer fields.

    Args:
        writer: The writer's schema.
        shape: The shape.
        prefix_bytes: Number of bytes before each value, which are skipped.

    Raises:
        SchemaError: The default of a field does not fit its type; or values that are no records
            have a prefix.
    """
    if prefix_bytes:
        writer = _with_prefix(writer, prefix_bytes)
    builder = ProgramBuilder("avro", shape)
    compiler = _Compiler(builder)
    compiler.value(writer, shape, 0)
    return builder.build()


def _with_prefix(writer: AvroType, prefix_bytes: int) -> AvroType:
    """Return a record that begins with additional bytes: a field that no reader has."""
    if writer.kind != "record":
        message = (
            f"the schema says that {counted(prefix_bytes, 'byte')} before each value must be"
            f" skipped, which is supported for records only, but its type is {writer.kind}"
        )
        raise SchemaError(message)
    prefix = AvroField("", AvroType("fixed", size=prefix_bytes))
    return AvroType("record", writer.name, fields=[prefix, *writer.fields])


class _Compiler:
    def __init__(self, builder: ProgramBuilder) -> None:
        self._builder = builder
        self._values: dict[tuple[int, int], int] = {}
        self._skips: dict[int, int] = {}
        self._members: dict[int, _Members] = {}
        self._enums: dict[tuple[int, int], tuple[int, int]] = {}

    def value(self, writer: AvroType, shape: Shape, node: int) -> int:
        """Return an op that reads a value of `writer` into a node."""
        # Compile each pair once: otherwise nested unions of records make programs of any size.
        compiled = self._values.get((id(writer), node))
        if compiled is not None:
            return compiled
        op = self._values[id(writer), node] = self._builder.reserve()
        return self._value(writer, shape, node, op)

    def _symbols(self, writer: AvroType, reader: AvroType) -> tuple[int, int]:
        """Return the index of an enum's symbols, and the length in bytes of the longest.

        The length is `MAX_OFFSET` if a number takes more than a byte, or the reader lacks a symbol.
        """
        pair = id(writer), id(reader)
        if pair not in self._enums:
            names = _map_symbols(writer, reader)
            lengths = [len(each.encode()) for each in names if each is not None]
            is_simple = 0 < len(names) <= _SHORT_NUMBERS and len(lengths) == len(names)
            symbols = self._builder.symbols(pair, lambda: names)
            self._enums[pair] = symbols, max(lengths) if is_simple else tables.MAX_OFFSET
        return self._enums[pair]

    def _value(self, writer: AvroType, shape: Shape, node: int, op: int) -> int:
        builder = self._builder
        reader: AvroType = shape.origin
        if writer.kind == "union":
            branches = [self.value(each, shape, node) for each in writer.branches]
            return builder.set(op, tables.AVRO_UNION, node, builder.link(branches), len(branches))
        if writer.kind == "null":
            if shape.accepts_null:
                return builder.set(op, tables.AVRO_NULL, node)
            return self._fail(op, node)
        if reader.kind == "union":
            return self._member(writer, shape, node, op)
        if reader.kind == "record" and writer.kind == "record":
            if not shape.is_record and shape.storage != tables.BYTE:
                return builder.set(op, tables.AVRO_RAW, node, self._skip(writer))
            return self._record(writer, shape, node, op)
        if reader.kind in {"array", "map"} and writer.kind == reader.kind:
            is_array = reader.kind == "array"
            item = shape.children[0] if is_array else shape.children[0].children[1]
            item_op = self.value(writer.item, item, node + (1 if is_array else 3))
            opcode = tables.AVRO_ARRAY if is_array else tables.AVRO_MAP
            return builder.set(op, opcode, node, item_op)
        if not _matches(writer, reader):
            return self._fail(op, node)
        return self._scalar(writer, shape, node, op)

    def _fail(self, op: int, node: int, code: int = tables.NO_MATCH) -> int:
        return self._builder.set(op, tables.AVRO_FAIL, node, code)

    def _member(self, writer: AvroType, shape: Shape, node: int, op: int) -> int:
        """Compile a branch of the reader's union, which is a member of a struct."""
        if node not in self._members:
            self._members[node] = _Members(shape, node)
        nearest = self._members[node].nearest(writer)
        if nearest is None:
            return self._fail(op, node)
        member, child_node = nearest
        return self._builder.set(
            op, tables.AVRO_MEMBER, node, self.value(writer, member, child_node)
        )

    def _record(self, writer: AvroType, shape: Shape, node: int, op: int) -> int:
        builder = self._builder
        reader: AvroType = shape.origin
        nodes = {child.name: (child, child_node) for child, child_node in shape.children_at(node)}
        read_as = _map_names(writer, reader)
        ops = []
        for is_read, fields in groupby(
            writer.fields, lambda each: read_as.get(each.name, "") in nodes
        ):
            if is_read:
                ops += [self.value(each.type, *nodes[read_as[each.name]]) for each in fields]
            else:
                ops.append(self._skip_fields(list(fields)))
        defaults: list[int] = []
        source_names = set(read_as.values())
        for each in reader.fields:
            if each.name in nodes and each.name not in source_names:
                child, child_node = nodes[each.name]
                if each.default is MISSING:
                    defaults += [self._fail(builder.reserve(), child_node, tables.NO_DEFAULT), 0]
                    continue
                data = encode_default(each.type, each.default)
                defaults += [self.value(each.type, child, child_node), builder.constant(data)]
        return builder.set(
            op,
            tables.AVRO_RECORD,
            node,
            builder.link(ops),
            len(ops),
            builder.link(defaults),
            len(defaults) // 2,
        )

    def _scalar(self, writer: AvroType, shape: Shape, node: int, op: int) -> int:
        builder = self._builder
        reader: AvroType = shape.origin
        if reader.kind == "enum":
            symbols, longest = self._symbols(writer, reader)
            return builder.set(op, tables.AVRO_ENUM, node, symbols, len(writer.symbols), longest)
        if reader.logical == "decimal":
            size = writer.size if writer.kind == "fixed" else tables.ABSENT
            high, low = divmod(10**reader.precision, 1 << 64)
            bound = builder.link([high, low - (1 << 64) if low >> 63 else low])
            return builder.set(op, tables.AVRO_DECIMAL, node, size, bound)
        if writer.kind == "fixed":
            is_text = reader.logical == "uuid"
            opcode = tables.AVRO_UUID if is_text else tables.AVRO_FIXED
            return builder.set(op, opcode, node, writer.size)
        if writer.kind in {"int", "long"}:
            if reader.kind in {"float", "double"}:
                return builder.set(op, tables.AVRO_INTEGER_TO_FLOAT, node)
            return builder.set(op, tables.AVRO_INTEGER, node, time_scale(builder, shape, writer))
        # A string that is read as bytes is not checked; bytes that are read as string are.
        kind = reader.kind if reader.kind in {"string", "bytes"} else writer.kind
        return builder.set(op, _SIMPLE[kind], node)

    def _skip_fields(self, fields: Iterable[AvroField]) -> int:
        op = self._builder.reserve()
        ops = [self._skip(each.type) for each in fields]
        return self._builder.set(
            op, tables.AVRO_SKIP, tables.ABSENT, self._builder.link(ops), len(ops)
        )

    def _skip(self, writer: AvroType) -> int:
        """Return an op that skips a value; ops of recursive types refer back to themselves."""
        compiled = self._skips.get(id(writer))
        if compiled is not None:
            return compiled
        builder = self._builder
        op = self._skips[id(writer)] = builder.reserve()
        absent = tables.ABSENT
        if writer.kind == "record":
            ops = [self._skip(each.type) for each in writer.fields]
            return builder.set(op, tables.AVRO_RECORD, absent, builder.link(ops), len(ops))
        if writer.kind == "union":
            ops = [self._skip(each) for each in writer.branches]
            return builder.set(op, tables.AVRO_UNION, absent, builder.link(ops), len(ops))
        if writer.kind == "array":
            return builder.set(op, tables.AVRO_ARRAY, absent, self._skip(writer.item))
        if writer.kind == "map":
            return builder.set(op, tables.AVRO_MAP, absent, self._skip(writer.item))
        if writer.kind == "enum":
            return builder.set(op, tables.AVRO_ENUM, absent, 0, len(writer.symbols))
        size = writer.size if writer.kind == "fixed" else _SIZES.get(writer.kind)
        if size is not None:
            return builder.set(op, tables.AVRO_FIXED, absent, size)
        return builder.set(op, _SKIP_OPCODES[writer.kind], absent)


def time_scale(builder: ProgramBuilder, shape: Shape, writer: AvroType) -> int:
    """Link the scale from a number as written to the unit of its column."""
    reader: AvroType = shape.origin
    bits = shape.type.bit_width
    if reader.logical in {"", "date"}:
        return builder.scale(*scale_limits(bits))
    family, _, unit = reader.logical.rpartition("-")
    source_family, _, source_unit = writer.logical.rpartition("-")
    # Timestamps and local timestamps both count from 1970: only the time zone differs.
    is_alike = source_family.removeprefix("local-") == family.removeprefix("local-")
    source = _UNITS[source_unit if is_alike else unit]
    target = {"ns": 10**9, "us": 10**6}[shape.type.unit]
    if family == "time":
        return builder.scale(0, _DAY_SECONDS * source - 1, multiplier=target // source)
    if source > target:
        return builder.scale(*scale_limits(bits), divisor=source // target)
    multiplier = target // source
    return builder.scale(*scale_limits(bits, multiplier), multiplier=multiplier)


def _matches(writer: AvroType, reader: AvroType) -> bool:
    if writer.kind == reader.kind:
        if writer.kind == "fixed" and writer.size != reader.size:
            return False
        if reader.logical == "decimal" and writer.logical:
            is_wider = reader.is_connect_decimal and reader.precision > writer.precision
            precision = reader.precision if is_wider else writer.precision
            return (writer.logical, precision, writer.scale) == (
                reader.logical, reader.precision, reader.scale
            )  # fmt: skip
        return True
    return reader.kind in _WIDER.get(writer.kind, ()) and reader.logical != "decimal"


class _Members:
    """The branches of a reader's union, which are fields of a struct, by the writer's type."""

    def __init__(self, shape: Shape, node: int) -> None:
        self._first: dict[tuple[object, ...], tuple[int, Shape, int]] = {}
        for number, (child, child_node) in enumerate(shape.children_at(node)):
            reader: AvroType = child.origin
            own = reader.kind, reader.size
            # Decimals match by logical type as well; all other types only by kind and name.
            kinds: list[tuple[object, ...]] = [(*own, "")]
            if reader.logical == "decimal":
                kinds = [(*own, "decimal"), (*own, "decimal", reader.precision, reader.scale)]
            for kind in kinds:
                names = {reader.name, *reader.aliases}
                keys = [*((kind, 0, name) for name in names), (kind, 1, reader.short_name), (kind,)]
                for key in keys:
                    self._first.setdefault(key, (number, child, child_node))

    def nearest(self, writer: AvroType) -> tuple[Shape, int] | None:
        """Return the first of the branches that match a type best, and its node."""
        own = writer.kind, writer.size
        kinds: list[tuple[object, ...]] = [(*own, "")]
        if writer.logical:
            kinds.append((*own, writer.logical, writer.precision, writer.scale))
        else:
            kinds.append((*own, "decimal"))
        wider = _WIDER.get(writer.kind, set()) - {writer.kind}
        keys = (
            [(kind, 0, writer.name) for kind in kinds],
            [(kind, 1, writer.short_name) for kind in kinds],
            [(kind,) for kind in kinds],
            [((kind, 0, ""),) for kind in wider],
        )
        for each in keys:
            candidates = [self._first[key] for key in each if key in self._first]
            if candidates:
                return min(candidates, key=lambda one: one[0])[1:]
        return None


def _map_names(writer: AvroType, reader: AvroType) -> dict[str, str]:
    """Return the reader's field names by the writer's; a name takes precedence over an alias."""
    writer_names = {each.name for each in writer.fields}
    read_as = {each.name: each.name for each in reader.fields if each.name in writer_names}
    free = writer_names - read_as.keys()
    for each in reader.fields:
        alias = next((alias for alias in each.aliases if alias in free), None)
        if alias is not None and each.name not in writer_names:
            read_as[alias] = each.name
            free.remove(alias)
    return read_as


def _map_symbols(writer: AvroType, reader: AvroType) -> list[str | None]:
    """Return the reader's symbol for each of the writer's symbols; None if the reader has none."""
    reader_symbols = set(reader.symbols)
    return [each if each in reader_symbols else reader.default for each in writer.symbols]
