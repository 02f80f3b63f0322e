"""The values of messages, decoded: which schema reads which payload, and what does not fit.

A `PayloadDecoder` reads one kind of payload, that of a key or that of a value; `value_columns` puts
the two together.
"""

from __future__ import annotations

from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from arrow_io.core.lazy import cached_property
from arrow_io.errors import (
    PayloadDecodeError,
    PulsarOffloadError,
    SchemaError,
    UnknownSchemaVersionError,
)
from arrow_io.messages.gathering import as_text
from arrow_io.payloads import tables
from arrow_io.payloads.avro import avro_program, avro_shape
from arrow_io.payloads.avro_schema import AvroType, parse_avro
from arrow_io.payloads.json import json_program, json_shape
from arrow_io.payloads.primitive import PRIMITIVE_TYPES, primitive_program, primitive_shape
from arrow_io.payloads.protobuf_native import protobuf_program, protobuf_shape
from arrow_io.payloads.shredding import Shredding
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.payloads.program import Program
    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
    from arrow_io.payloads.shape import Shape
    from arrow_io.read_metrics import ReadMetrics, Tally

_VERSION_BYTES = 8


def version_number(version: bytes | None) -> int | None:
    """The number of a schema version: 8 bytes, big-endian (`LongSchemaVersion`); None: it has none.

    Versions of other lengths come from other registries and are opaque.
    """
    if version is None or len(version) != _VERSION_BYTES:
        return None
    return int.from_bytes(version, signed=True)


def is_decodable(schema: TopicSchema) -> bool:
    """Return whether a schema says how payloads are read.

    EXTERNAL never does, and PROTOBUF only if a descriptor came with it.
    """
    info = schema.reader
    parts = (info.key, info.value) if info.type == "KEY_VALUE" else (info,)
    return all(each is None or _is_described(each) for each in parts)


def _is_described(info: SchemaInfo) -> bool:
    if info.type == "PROTOBUF":
        return "fileDescriptorSet" in info.data
    return info.type != "EXTERNAL"


class PayloadDecoder:
    """Decodes payloads that were written by the versions of one schema.

    Args:
        reader: The schema whose fields are given. A `KEY_VALUE` is not one: its parts are.
        versions: The schema of each version; empty if all payloads were written by `reader`.
        time_unit: `ns` or `us`: unit of what counts nanoseconds.
        foreign: What is wrong with each version that this schema cannot read, because one of the
            two is a KEY_VALUE and the other is not.

    Raises:
        SchemaError: The reader's schema cannot be read.
    """

    def __init__(
        self,
        reader: SchemaInfo,
        versions: Mapping[int, SchemaInfo],
        time_unit: str,
        foreign: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._reader = reader
        self._versions = versions
        self._foreign = foreign
        self._time_unit = time_unit
        self._programs: dict[tuple[int | None, tuple[str, ...] | None], Program] = {}

    @cached_property
    def shape(self) -> Shape:
        """What payloads become: a record, or one value.

        Raises:
            SchemaError: The schema cannot be read, or payloads of its type are not decoded.
        """
        type_, data, unit = self._reader.type, self._reader.data, self._time_unit
        if type_ in PRIMITIVE_TYPES:
            return primitive_shape(type_, unit)
        if type_ == "AVRO":
            return avro_shape(self._avro_reader, unit)
        if type_ == "JSON":
            return json_shape(self._avro_reader, unit)
        if type_ in {"PROTOBUF", "PROTOBUF_NATIVE"}:
            return protobuf_shape(data, unit)
        message = f"payloads of the schema type {type_} cannot be decoded"
        raise SchemaError(message)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the whole payload."""
        return pa.string() if self._reader.type == "STRING" else self.shape.type

    @property
    def has_fields(self) -> bool:
        """Whether payloads are records, whose fields can be columns; a wide union is one value."""
        origin = self.shape.origin
        is_union = isinstance(origin, AvroType) and origin.kind == "union"
        return self.shape.is_record and not is_union

    @cached_property
    def _avro_reader(self) -> AvroType:
        return parse_avro(self._reader.data)

    def program(self, version: bytes | None, fields: tuple[str, ...] | None) -> Program:
        """The program for what a version wrote.

        Args:
            version: The version, as it stands in the entry.
            fields: Fields of the record that are wanted; None for all, or if it is not a record.

        Raises:
            UnknownSchemaVersionError: There is no schema of this version, though others are known.
            SchemaError: That schema is of another type, or cannot be read.
        """
        number = self._resolve_version(version)
        # Only Avro's bytes cannot be read without the schema that wrote them.
        key = (number if self._reader.type == "AVRO" else None, fields)
        program = self._programs.get(key)
        if program is None:
            shape = self.shape if fields is None else self.shape.select(fields)
            # Of two threads that come here at once, one must not take the other's away.
            program = self._programs.setdefault(key, self._compile(key[0], shape))
        return program

    def _resolve_version(self, version: bytes | None) -> int | None:
        if not version or not (self._versions or self._foreign):
            return None
        number = version_number(version)
        if number is not None and number in self._foreign:
            raise SchemaError(self._foreign[number])
        if number is None or number not in self._versions:
            spelled = f"0x{version.hex()}" if number is None else number
            available = ", ".join(map(str, sorted({*self._versions, *self._foreign})))
            message = (
                f"the schema version {spelled} is not known, known are: {available};"
                " give it with the others in schema"
            )
            raise UnknownSchemaVersionError(message)
        writer_type = self._versions[number].type
        if writer_type.removesuffix("_NATIVE") != self._reader.type.removesuffix("_NATIVE"):
            message = f"schema version {number} is of type {writer_type}, not {self._reader.type}"
            raise SchemaError(message)
        return number

    def _compile(self, version: int | None, shape: Shape) -> Program:
        type_ = self._reader.type
        if type_ in PRIMITIVE_TYPES:
            return primitive_program(shape)
        if type_ == "JSON":
            return json_program(shape)
        if type_ != "AVRO":
            return protobuf_program(shape)
        writer = self._avro_reader if version is None else parse_avro(self._versions[version].data)
        return avro_program(writer, shape)

    def texts(self, values: pa.Array, tally: Tally) -> pa.Array:
        """Return decoded payloads in the type that the schema gives them: STRING's bytes as text.

        Raises:
            SchemaError: The character set that the schema names cannot be used.
        """
        if self._reader.type != "STRING":
            return values
        charset = dict(self._reader.properties).get("__charset", "UTF-8")
        if charset.upper() not in {"UTF-8", "UTF8"}:
            values = _recoded(values, charset, tally.metrics)
        return as_text(values, tally.metrics)


def _recoded(values: pa.BinaryArray, charset: str, metrics: ReadMetrics) -> pa.BinaryArray:
    def text(value: bytes) -> str:
        try:
            return value.decode(charset)
        except UnicodeDecodeError:
            replaced = value.decode(charset, "replace")
            metrics.replaced_texts += 1
            return replaced

    try:
        texts = [each if each is None else text(each) for each in values.to_pylist()]
    except (LookupError, ValueError) as error:
        message = f"the character set {charset!r} of the schema cannot be used"
        raise SchemaError(message) from error
    encoded = [t if t is None else t.encode(errors="surrogatepass") for t in texts]
    return pa.array(encoded, pa.binary())


class Source(NamedTuple):
    """Where payloads stand: rows `[start, stop)` in one buffer, written by one version.

    Attributes:
        start: First row.
        stop: Behind the last row.
        data: The buffer.
        positions: Positions of the payloads of all rows; −1: there is none.
        version: The schema version, as it stands in the entry; None: none.
    """

    start: int
    stop: int
    data: memoryview
    positions: memoryview
    version: bytes | None


def value_sources(rows: MessageColumns) -> Iterator[Source]:
    """Where the values of all rows stand."""
    positions = rows.payloads()
    versions = rows.version_spans()
    stop, version = 0, None
    for start, end, data in rows.payload_spans():
        row = start
        while row < end:
            if row >= stop:
                _, stop, version = next(versions)
            source_stop = min(end, stop)
            yield Source(row, source_stop, data, positions, version)
            row = source_stop


def decode(
    decoder: PayloadDecoder,
    sources: Iterable[Source],
    fields: tuple[str, ...] | None,
    rows: MessageColumns,
    tally: Tally,
    *,
    first: int,
    stop: int,
    around: str = "",
) -> pa.Array:
    """Decode the payloads of rows `[first, stop)`, as many of the first ones as fit one arena.

    Args:
        decoder: Knows their schema.
        sources: Where they stand; together all rows, in order.
        fields: Fields of the record that are wanted; None for all, or if it is not a record.
        rows: The messages, for errors.
        tally: Says whether a value that cannot be decoded is raised, or counted in its metrics.
        first: First row.
        stop: Behind the last row.
        around: What field paths in errors begin with.

    Returns:
        At least one value; `PayloadDecoder.texts` gives them their type.

    Raises:
        PayloadDecodeError: A payload does not fit its schema (when salvaging, its value is null).
        UnknownSchemaVersionError: The schema of a payload is not known (likewise).
        SchemaError: The schema of a version cannot be read (likewise); or one row of so many fields
            takes too much memory.
    """
    any_program = decoder.program(None, fields)
    payload_bytes = rows.size_bytes * (stop - first) // rows.count
    shredding = Shredding(any_program, stop - first, payload_bytes)
    for source in sources:
        row, end = max(source.start, first), min(source.stop, stop)
        if row >= end:
            continue
        try:
            program = decoder.program(source.version, fields)
        except (UnknownSchemaVersionError, SchemaError) as unread:
            fitting = min(end, row + shredding.room)
            undecoded = [n for n in range(row, fitting) if source.positions[n] != tables.ABSENT]
            lose_values(rows, undecoded, unread, tally)
            for _ in range(row, fitting):
                shredding.append_null(any_program)
            if fitting < end:
                break
            continue
        while row < end:
            misfit = shredding.append(program, source.data, source.positions, row, end)
            if misfit is None:
                break
            if misfit.code == tables.FULL:
                if misfit.row > first:
                    return shredding.finish()
                shredding, end, stop = Shredding.for_one(any_program), first + 1, first + 1
                continue
            path = ".".join(filter(None, (around, misfit.path)))
            error = PayloadDecodeError(tables.REASONS[misfit.code], field_path=path)
            lose_values(rows, [misfit.row], error, tally)
            shredding.append_null(program)
            row = misfit.row + 1
    return shredding.finish()


def lose_values(
    rows: MessageColumns, undecoded: list[int], error: PulsarOffloadError, tally: Tally
) -> None:
    """Count the values of some rows as lost, each once, however often they are decoded.

    Raises:
        PulsarOffloadError: `error`, unless the read salvages.
    """
    new = [row for row in undecoded if row not in rows.undecoded_rows]
    if new:
        anywhere = copy(error)
        additional_errors = (rows.locate(copy(anywhere), row) for row in new[1:])
        tally.lose(
            Unit.VALUE,
            rows.locate(error, new[0]),
            count=len(new),
            additional_errors=additional_errors,
        )
        rows.undecoded_rows.update(new)
