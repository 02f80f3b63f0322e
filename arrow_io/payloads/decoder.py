"""Payload decoding: chooses the schema of each payload, and handles payloads that do not fit it.

A `PayloadDecoder` reads one kind of payload, keys or values; `value_columns` combines the two.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

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
from arrow_io.payloads.avro_schema import CONNECT_NAME, AvroType, parse_avro
from arrow_io.payloads.connect_schema import avro_definition
from arrow_io.payloads.envelopes import add_logical_types
from arrow_io.payloads.json import json_program, json_shape, parse_json_definition
from arrow_io.payloads.json_schema import is_json_schema
from arrow_io.payloads.primitive import PRIMITIVE_TYPES, primitive_program, primitive_shape
from arrow_io.payloads.protobuf_native import protobuf_program, protobuf_shape
from arrow_io.payloads.shredding import Shredding
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.core.ipc_message import IpcMessage
    from arrow_io.messages.message_columns import MessageColumns, PayloadSource
    from arrow_io.payloads.program import Program
    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
    from arrow_io.payloads.shape import Selection, Shape
    from arrow_io.payloads.shredding import Misfit
    from arrow_io.payloads.writer_schemas import WriterSchemas
    from arrow_io.read_metrics import ReadMetrics, Tally


_READ_OFFSET: Final = "__AVRO_READ_OFFSET__"
_MAX_OFFSET_DIGITS: Final = 4
_MAX_RECENT: Final = 16
"""Maximum number of names of schemas whose programs are found without resolving the name."""


def is_decodable(schema: TopicSchema) -> bool:
    """Return whether a schema describes how to read payloads.

    EXTERNAL never does, and PROTOBUF only if a descriptor came with it.
    """
    return all(_has_description(each) for each in _parts(schema.reader))


def is_external(info: SchemaInfo) -> bool:
    """Return whether a schema, or that of its key or value, is in another registry."""
    return any(each.type == "EXTERNAL" for each in _parts(info))


def _parts(info: SchemaInfo) -> list[SchemaInfo]:
    parts = (info.key, info.value) if info.type == "KEY_VALUE" else (info,)
    return [each for each in parts if each is not None]


def _has_description(info: SchemaInfo) -> bool:
    if info.type == "PROTOBUF":
        return "fileDescriptorSet" in info.data
    return info.type != "EXTERNAL"


class PayloadDecoder:
    """A decoder for payloads that were written with the versions of one schema.

    Args:
        reader: The schema that defines the columns. Not a `KEY_VALUE`, but one of its parts.
        writers: The schemas that payloads were written with.
        time_unit: `ns` or `us`: unit of columns whose schema type counts nanoseconds.
        is_debezium: Whether Debezium's names of types in AVRO and JSON schemas are applied.

    Raises:
        SchemaError: The reader's schema cannot be read.
    """

    def __init__(
        self,
        reader: SchemaInfo,
        writers: WriterSchemas,
        time_unit: str,
        *,
        is_debezium: bool = False,
    ) -> None:
        self._reader = reader
        self._writers = writers
        self._time_unit = time_unit
        self._is_debezium = is_debezium
        self._programs: dict[tuple[int | None, Selection | None], Program] = {}
        # By the name of the schema, the last selection of fields and its program.
        self._recent: dict[bytes | None, tuple[Selection | None, Program]] = {}

    @cached_property
    def shape(self) -> Shape:
        """The shape that payloads are decoded to: a record or one value.

        Raises:
            SchemaError: The schema cannot be read, or payloads of its type are not decoded.
        """
        type_, data, unit = self._reader.type, self._reader.data, self._time_unit
        if type_ in PRIMITIVE_TYPES:
            return primitive_shape(type_, unit)
        if type_ == "AVRO":
            return avro_shape(self._avro_reader, unit)
        if type_ == "JSON":
            return json_shape(parse_json_definition(self._definition(self._reader)), unit)
        if type_ in {"PROTOBUF", "PROTOBUF_NATIVE"}:
            return protobuf_shape(data, unit)
        message = f"payloads of the schema type {type_} cannot be decoded"
        raise SchemaError(message)

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of a whole payload."""
        return pa.string() if self._reader.type == "STRING" else self.shape.type

    @property
    def has_fields(self) -> bool:
        """Whether payloads are records, whose fields can be columns; a union is one value."""
        origin = self.shape.origin
        is_union = isinstance(origin, AvroType) and origin.kind == "union"
        return self.shape.is_record and not is_union

    @cached_property
    def _avro_reader(self) -> AvroType:
        return parse_avro(self._definition(self._reader))

    def _definition(self, info: SchemaInfo) -> str:
        data = avro_definition(info.data) if info.type == "JSON" else info.data
        return add_logical_types(data) if self._is_debezium else data

    def program(self, schema_name: bytes | None, fields: Selection | None) -> Program:
        """Return the program for payloads of a schema.

        Args:
            schema_name: What the messages name it by (`PayloadSource`).
            fields: Requested fields of the record; None for all, or if it is not a record.

        Raises:
            UnknownSchemaVersionError: Other schemas are available, but not this one.
            SchemaError: The schema has another type, or cannot be read.
            StorageError: The registry cannot be asked for the schema.
        """
        recent = self._recent.get(schema_name)
        if recent is not None and recent[0] is fields:
            return recent[1]
        number = self._writers.resolve(schema_name)
        key = (number if self._needs_writer else None, fields)
        program = self._programs.get(key)
        if program is None:
            shape = self.shape if fields is None else self.shape.select(fields)
            # If two threads compile the same program, both use the first one that is stored.
            program = self._programs.setdefault(key, self._compile(key[0], shape))
        if len(self._recent) >= _MAX_RECENT:
            # Names are those of messages, and may be any number.
            self._recent.clear()
        self._recent[schema_name] = fields, program
        return program

    @cached_property
    def _needs_writer(self) -> bool:
        """Whether the writer's schema is needed to read a payload.

        In JSON, only Kafka Connect writes numbers whose meaning is in the schema alone.
        """
        if self._reader.type != "JSON":
            return self._reader.type == "AVRO"
        definition = self._definition(self._reader)
        return CONNECT_NAME in definition and not is_json_schema(definition)

    def _compile(self, number: int | None, shape: Shape) -> Program:
        type_ = self._reader.type
        if type_ in PRIMITIVE_TYPES:
            return primitive_program(shape)
        if type_ == "JSON":
            return json_program(shape, self._json_writer(number))
        if type_ != "AVRO":
            return protobuf_program(shape)
        info = self._reader if number is None else self._writers.schema(number)
        writer = self._avro_reader if number is None else parse_avro(self._definition(info))
        return avro_program(writer, shape, _prefix_bytes(info))

    def _json_writer(self, number: int | None) -> AvroType | None:
        info = None if number is None else self._writers.schema(number)
        if info is None or info.type != "JSON":
            return None
        return parse_json_definition(self._definition(info))

    def texts(self, values: pa.Array, tally: Tally) -> pa.Array:
        """Convert decoded payloads to the schema's type: bytes of a STRING schema to text.

        Raises:
            SchemaError: The schema's character set cannot be used.
        """
        if self._reader.type != "STRING":
            return values
        charset = dict(self._reader.properties).get("__charset", "UTF-8")
        if charset.upper() not in {"UTF-8", "UTF8"}:
            values = _recode(values, charset, tally.metrics)
        return as_text(values, tally.metrics)


def _prefix_bytes(info: SchemaInfo) -> int:
    """Return how many bytes precede each value of an Avro schema.

    Pulsar's sources that run Kafka Connect, such as Debezium, keep the five bytes that Confluent's
    converter writes before Avro, and say so in a property of the schema.
    """
    text = dict(info.properties).get(_READ_OFFSET, "0")
    if not text.isdecimal() or len(text) > _MAX_OFFSET_DIGITS:
        message = f"the schema's property {_READ_OFFSET} is not a number of bytes: {text[:100]!r}"
        raise SchemaError(message)
    return int(text)


def _recode(values: pa.BinaryArray, charset: str, metrics: ReadMetrics) -> pa.BinaryArray:
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


def decode(
    decoder: PayloadDecoder,
    sources: Iterable[PayloadSource],
    fields: Selection | None,
    rows: MessageColumns,
    tally: Tally,
    *,
    stop: int,
    message: IpcMessage | None = None,
    path_prefix: str = "",
) -> Shredding:
    """Decode the payloads of the first `stop` rows, or of as many as fit into one arena.

    Args:
        decoder: Decoder for their schema.
        sources: Sources that together cover all rows, in order.
        fields: Requested fields of the record; None for all, or if it is not a record.
        rows: The messages.
        tally: Decides whether to raise or count a value that cannot be decoded.
        stop: End of the rows, exclusive; at least 1.
        message: See `Shredding`.
        path_prefix: Start of field paths in errors.

    Returns:
        At least one value; `PayloadDecoder.texts` converts them to the column's type.

    Raises:
        PayloadDecodeError: A payload does not fit its schema. When salvaging, its value is null.
        PulsarOffloadError: See `PayloadDecoder.program` (salvaging as above, except storage errors)
            and `Shredding`.
    """
    any_program = decoder.program(None, fields)
    shredding = Shredding(any_program, stop, rows.size_bytes * stop // rows.count, message)
    for source in sources:
        row, end = source.start, min(source.stop, stop)
        if row >= end:
            break
        try:
            program = decoder.program(source.schema_name, fields)
        except (UnknownSchemaVersionError, SchemaError) as schema_error:
            fitting = min(end, row + shredding.room)
            undecoded = [n for n in range(row, fitting) if source.positions[n] != tables.ABSENT]
            lose_values(rows, undecoded, schema_error, tally)
            for _ in range(row, fitting):
                shredding.append_null(any_program)
            if fitting < end:
                break
            continue
        while row < end and (
            misfit := shredding.append(program, source.data, source.positions, row, end)
        ):
            if misfit.code == tables.FULL:
                if misfit.row > 0:
                    return shredding
                shredding = Shredding.for_one(any_program, message)
                end = stop = 1
                continue
            lose_values(rows, [misfit.row], _misfit_error(misfit, path_prefix), tally)
            shredding.append_null(program)
            row = misfit.row + 1
    return shredding


def _misfit_error(misfit: Misfit, path_prefix: str) -> PayloadDecodeError:
    path = ".".join(filter(None, (path_prefix, misfit.path)))
    return PayloadDecodeError(tables.REASONS[misfit.code], field_path=path)


def lose_values(
    rows: MessageColumns, undecoded: list[int], error: PulsarOffloadError, tally: Tally
) -> None:
    """Count the values of some rows as lost, each row only once even if it is decoded again.

    Raises:
        PulsarOffloadError: `error`, unless the read salvages.
    """
    new = [row for row in undecoded if row not in rows.undecoded_rows]
    if new:
        template = copy(error)
        additional_errors = (rows.locate(copy(template), row) for row in new[1:])
        tally.lose(
            Unit.VALUE,
            rows.locate(error, new[0]),
            count=len(new),
            additional_errors=additional_errors,
        )
        rows.undecoded_rows.update(new)
