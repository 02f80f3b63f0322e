"""AVRO: programs that read what one schema wrote as another schema has it.

The rules are those of Avro 1.12, "Schema Resolution".

Avro leaves some choices, and its Java implementation goes its own way in places. Here names of
records, enums and fixed types tell branches of a union apart, and nothing else does; times written
in one unit and read in another are converted; decimals match if precision and scale do.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.payloads import tables
from arrow_io.payloads.avro_binary import encode_default
from arrow_io.payloads.avro_schema import MISSING, AvroType, avro_type_shape
from arrow_io.payloads.program import Program, ProgramBuilder, scale_limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.payloads.avro_schema import AvroField
    from arrow_io.payloads.shape import Shape

_WIDER: Final = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
"""What each type may be read as, besides itself."""

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

_SIZES: Final = {"float": 4, "double": 8}
_UNWANTED: Final = {
    "int": tables.AVRO_INTEGER,
    "long": tables.AVRO_INTEGER,
    "string": tables.AVRO_BYTES,
    "bytes": tables.AVRO_BYTES,
    "boolean": tables.AVRO_BOOLEAN,
    "null": tables.AVRO_NULL,
}


def avro_shape(reader: AvroType, time_unit: str) -> Shape:
    """The shape of values read by a schema; a type inside itself is given as its Avro bytes.

    Raises:
        SchemaError: The schema has too many fields.
    """
    return avro_type_shape(reader, time_unit, pa.binary())


def avro_program(writer: AvroType, shape: Shape) -> Program:
    """The program that reads what `writer` wrote into a shape.

    Args:
        writer: The schema that the payloads were written with.
        shape: What `avro_shape` gave for the schema they are read by; a record may have fewer
            fields than that schema.

    Raises:
        SchemaError: The default of a field does not fit its type.
    """
    builder = ProgramBuilder("avro", shape)
    compiler = _Compiler(builder)
    compiler.value(writer, shape, 0)
    return builder.build()


class _Compiler:
    def __init__(self, builder: ProgramBuilder) -> None:
        self._builder = builder
        self._values: dict[tuple[int, int], int] = {}
        self._skips: dict[int, int] = {}
        self._members: dict[int, _Members] = {}

    def value(self, writer: AvroType, shape: Shape, node: int) -> int:
        """An op that reads a value of `writer` into a node."""
        # Once only, or unions of records of unions would make a program of any size.
        compiled = self._values.get((id(writer), node))
        if compiled is not None:
            return compiled
        op = self._values[id(writer), node] = self._builder.reserve()
        return self._value(writer, shape, node, op)

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
            below = self.value(writer.item, item, node + (1 if is_array else 3))
            opcode = tables.AVRO_ARRAY if is_array else tables.AVRO_MAP
            return builder.set(op, opcode, node, below)
        if not _matches(writer, reader):
            return self._fail(op, node)
        return self._scalar(writer, shape, node, op)

    def _fail(self, op: int, node: int, code: int = tables.NO_MATCH) -> int:
        return self._builder.set(op, tables.AVRO_FAIL, node, code)

    def _member(self, writer: AvroType, shape: Shape, node: int, op: int) -> int:
        """The branch of the reader's union that takes what was written, as a member of a struct."""
        if node not in self._members:
            self._members[node] = _Members(shape, node)
        nearest = self._members[node].nearest(writer)
        if nearest is None:
            return self._fail(op, node)
        member, below = nearest
        return self._builder.set(op, tables.AVRO_MEMBER, node, self.value(writer, member, below))

    def _record(self, writer: AvroType, shape: Shape, node: int, op: int) -> int:
        builder = self._builder
        reader: AvroType = shape.origin
        nodes = {child.name: (child, below) for child, below in shape.children_at(node)}
        read_as = _map_names(writer, reader)
        ops = []
        for is_read, fields in groupby(
            writer.fields, lambda each: read_as.get(each.name, "") in nodes
        ):
            if is_read:
                ops += [self.value(each.type, *nodes[read_as[each.name]]) for each in fields]
            else:
                ops.append(self._over(list(fields)))
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
            symbols = builder.symbols(
                (id(writer), id(reader)), lambda: _map_symbols(writer, reader)
            )
            return builder.set(op, tables.AVRO_ENUM, node, symbols, len(writer.symbols))
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
        # Text read as bytes is not looked at, and bytes read as text must be text.
        kind = reader.kind if reader.kind in {"string", "bytes"} else writer.kind
        return builder.set(op, _SIMPLE[kind], node)

    def _over(self, fields: Iterable[AvroField]) -> int:
        """An op that reads over fields which stand one behind the other."""
        op = self._builder.reserve()
        ops = [self._skip(each.type) for each in fields]
        return self._builder.set(
            op, tables.AVRO_UNWANTED, tables.ABSENT, self._builder.link(ops), len(ops)
        )

    def _skip(self, writer: AvroType) -> int:
        """An op that reads over a value; a type inside itself points back."""
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
        return builder.set(op, _UNWANTED[writer.kind], absent)


def time_scale(builder: ProgramBuilder, shape: Shape, writer: AvroType) -> int:
    """The scale from a number as it is written to the unit of its column."""
    reader: AvroType = shape.origin
    bits = shape.type.bit_width
    if reader.logical in {"", "date"}:
        return builder.scale(*scale_limits(bits))
    family, _, unit = reader.logical.rpartition("-")
    source_family, _, source_unit = writer.logical.rpartition("-")
    # Both kinds of timestamp count from 1970, and differ only in whose clock they mean.
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
            return (writer.logical, writer.precision, writer.scale) == (
                reader.logical, reader.precision, reader.scale
            )  # fmt: skip
        return True
    return reader.kind in _WIDER.get(writer.kind, ()) and reader.logical != "decimal"


class _Members:
    """The branches of a reader's union, to be looked up by what was written.

    Args:
        shape: The struct that has a field for each branch.
        node: Its node.
    """

    def __init__(self, shape: Shape, node: int) -> None:
        self._first: dict[tuple[object, ...], tuple[int, Shape, int]] = {}
        for number, (child, below) in enumerate(shape.children_at(node)):
            reader: AvroType = child.origin
            own = reader.kind, reader.size
            # What was written with a logical type is told apart by it, other bytes are not.
            kinds: list[tuple[object, ...]] = [(*own, "")]
            if reader.logical == "decimal":
                kinds = [(*own, "decimal"), (*own, "decimal", reader.precision, reader.scale)]
            for kind in kinds:
                names = {reader.name, *reader.aliases}
                keys = [*((kind, 0, name) for name in names), (kind, 1, reader.short_name), (kind,)]
                for key in keys:
                    self._first.setdefault(key, (number, child, below))

    def nearest(self, writer: AvroType) -> tuple[Shape, int] | None:
        """Return the first of the branches that are nearest to a type, and its node."""
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
    """The reader's names of fields, by the writer's; a name goes before an alias."""
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
    """Return what each symbol that may be written is read as; None if the reader lacks it."""
    reader_symbols = set(reader.symbols)
    return [each if each in reader_symbols else reader.default for each in writer.symbols]
