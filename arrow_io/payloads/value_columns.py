"""Typed columns of a topic: the fields of keys and values that exist, and their arrays.

With `flat`, each field of a record is a column; with `struct`, the whole value is one column.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core import builds
from arrow_io.core.lazy import cached_property
from arrow_io.errors import PayloadDecodeError, SchemaError
from arrow_io.messages import layout
from arrow_io.messages.entry_run import int64_view
from arrow_io.payloads.decoder import PayloadDecoder, decode, lose_values
from arrow_io.payloads.envelopes import CHANGE_COLUMNS, Envelope
from arrow_io.payloads.frames import framed_sources
from arrow_io.payloads.program import value_columns
from arrow_io.payloads.shape import make_distinct
from arrow_io.payloads.writer_schemas import PulsarVersions, RegistryIds, version_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from arrow_io.core.ipc_message import ColumnGroup
    from arrow_io.errors import PulsarOffloadError
    from arrow_io.messages.gathered_message import GatheredMessage
    from arrow_io.messages.message_columns import MessageColumns, PayloadSource
    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
    from arrow_io.payloads.shape import Selection
    from arrow_io.payloads.shredding import Shredding
    from arrow_io.read_metrics import Tally

VALUE_COLUMN = "__value__"
KEY_COLUMN = "__key"


@dataclass(frozen=True, slots=True)
class ValueField:
    """A column that is decoded from payloads."""

    name: str
    # Arrow formats a type to hash it, which is slow, and fields are hashed for each task.
    type: pa.DataType = dataclass_field(hash=False)
    is_key: bool
    """Whether the column belongs to the key of a KEY_VALUE."""
    field: str | None
    """Field of the record; None: the whole key or value."""
    is_change: bool = False
    """Whether the column describes a change; `field` is a name in `CHANGE_COLUMNS` then."""

    @property
    def is_whole_value(self) -> bool:
        """Whether the column is the whole value: not a field of it, and not of the key."""
        return self.field is None and not self.is_key


@dataclass(frozen=True, slots=True)
class ValueColumns:
    """The typed columns of a topic. Hashable and picklable: tasks carry it to other processes.

    Attributes:
        schema: The topic's schemas.
        is_flat: Whether the fields of a record become columns.
        time_unit: `ns` or `us`: unit of columns whose schema type counts nanoseconds.
        reserved: Names of other columns. A field with such a name, ignoring case, gets a suffix
            `_2`, `_3`, …
        is_unwrapped: Whether values are Debezium's envelopes, and the columns those of the changed
            row and the change.
    """

    schema: TopicSchema
    is_flat: bool = True
    time_unit: str = "ns"
    reserved: tuple[str, ...] = ()
    is_unwrapped: bool = False

    @property
    def fields(self) -> tuple[ValueField, ...]:
        """All typed columns: those of the key, those of the change, and those of the value.

        Raises:
            SchemaError: A schema cannot be read.
            OptionError: Values are to be unwrapped, but the schema is that of no envelope.
        """
        return _fields(self)

    @property
    def node_count(self) -> int:
        """Number of Arrow arrays that all fields together consist of, including nested ones."""
        parts = (True, False) if self.schema.reader.type == "KEY_VALUE" else (False,)
        shapes = (self.decoder(is_key=each).shape for each in parts)
        return sum(1 for shape in shapes for _ in shape.walk())

    def decoder(self, *, is_key: bool) -> PayloadDecoder:
        """Return the decoder of keys or values, which all record batches of a process share.

        Raises:
            SchemaError: A schema cannot be read.
        """
        is_debezium = self.is_unwrapped and not is_key
        return _decoder(self.schema, self.time_unit, is_key=is_key, is_debezium=is_debezium)

    @property
    def envelope(self) -> Envelope | None:
        """The envelope of values; None if they are not unwrapped.

        Raises:
            SchemaError: A schema cannot be read.
            OptionError: The schema is that of no envelope.
        """
        return _envelope(self.decoder(is_key=False)) if self.is_unwrapped else None

    def select(self, fields: Sequence[ValueField]) -> SelectedValues:
        """Return a decoder of some fields.

        Raises:
            SchemaError: A schema cannot be read.
        """
        return SelectedValues(self, fields)


class SelectedValues:
    """A decoder of some of the typed columns, which may be repeated.

    The message of a record batch has room for one arena: that of the values, or of the keys if no
    field of the values is requested. The other columns are built from other arrays.

    Args:
        columns: All typed columns of the topic.
        fields: The requested fields.

    Attributes:
        message_fields: The requested fields that are columns of the message.
        other_fields: The requested fields that `arrays` returns.

    Raises:
        SchemaError: A schema cannot be read.
    """

    def __init__(self, columns: ValueColumns, fields: Sequence[ValueField]) -> None:
        self.fields = tuple(fields)
        self.message_fields: tuple[ValueField, ...] = ()
        self._schema = columns.schema
        self._envelope = columns.envelope
        self._parts: list[tuple[bool, PayloadDecoder, Selection | None]] = []
        numbers: dict[ValueField, tuple[int, int]] = {}
        for is_key in (True, False):
            part = [each for each in dict.fromkeys(fields) if each.is_key == is_key]
            if part:
                numbers |= {each: (len(self._parts), index) for index, each in enumerate(part)}
                selection = self._selection(part)
                self._parts.append((is_key, columns.decoder(is_key=is_key), selection))
                is_plain = selection is not None and (is_key or self._envelope is None)
                self.message_fields = tuple(part) if is_plain else ()
        in_message = set(self.message_fields)
        self.other_fields = [each for each in fields if each not in in_message]
        self._indexes = [numbers[each] for each in self.other_fields]

    def _selection(self, part: Sequence[ValueField]) -> Selection | None:
        if self._envelope is not None and not part[0].is_key:
            return self._envelope.selection(_row_fields(part))
        return tuple(each.field for each in part if each.field is not None) or None

    def columns(self, names: Mapping[ValueField, str]) -> ColumnGroup:
        """Return the columns of the message, of which the fields have these names."""
        _, decoder, selection = self._parts[-1]
        shape = decoder.shape if selection is None else decoder.shape.select(selection)
        return value_columns(shape, [names[each] for each in self.message_fields])

    def decode(self, message: GatheredMessage, tally: Tally) -> list[Shredding]:
        """Decode the fields of a message's rows, or of the first if not all fit into an arena.

        If the read salvages, a payload that cannot be decoded is null, and counted.

        Args:
            message: The message of at least one row; its last columns are those of `columns`.
            tally: Decides whether to raise or count a value that cannot be decoded.

        Returns:
            The decoded payloads: those of keys, those of values, or both. The last has the fewest
            rows, at least one, and fills the message.

        Raises:
            PayloadDecodeError: A payload does not fit its schema.
            UnknownSchemaVersionError: The schema of a payload is missing.
            SchemaError: The schema of a payload or its character set cannot be used, or one row
                takes too much memory.
            StorageError: The registry cannot be asked for the schema of a payload.
        """
        rows = message.rows
        stop = rows.count
        decoded: list[Shredding] = []
        for part, sources in zip(self._parts, self._sources(rows, tally), strict=True):
            is_key, decoder, fields = part
            shredding = decode(
                decoder,
                sources,
                fields,
                rows,
                tally,
                stop=stop,
                message=message if part is self._parts[-1] else None,
                path_prefix=KEY_COLUMN if is_key else "",
            )
            stop = shredding.count
            decoded.append(shredding)
        return decoded

    def _sources(self, rows: MessageColumns, tally: Tally) -> list[Iterable[PayloadSource]]:
        """Return the sources of each part: of the keys, of the values, or of both."""
        reader, registry = self._schema.reader, self._schema.registry
        if reader.type == "KEY_VALUE":
            pairs = _KeyValueSources(self._schema, rows, tally)
            return [pairs.sources(is_key=is_key) for is_key, _, _ in self._parts]
        if registry is None:
            return [rows.payload_sources(layout.SCHEMA_VERSION)]

        def lose(row: int, error: PulsarOffloadError) -> None:
            lose_values(rows, [row], error, tally)

        has_indexes = reader.type == "PROTOBUF_NATIVE"
        return [framed_sources(rows, lose, has_indexes=has_indexes)]

    def arrays(
        self,
        decoded: Sequence[Shredding],
        batch: pa.RecordBatch,
        rows: MessageColumns,
        tally: Tally,
    ) -> list[pa.Array]:
        """Return the arrays of `other_fields`.

        Args:
            decoded: What `decode` returned.
            batch: The record batch of the message.
            rows: The messages of the batch.
            tally: See `decode`.

        Raises:
            PayloadDecodeError: A value is not an envelope.
            SchemaError: The schema's character set cannot be used.
        """
        whole = [each.finish() for each in decoded[:-1]]
        if not self.message_fields:
            whole.append(batch.column(batch.num_columns - 1))
        columns = []
        for values, (is_key, decoder, selection) in zip(whole, self._parts, strict=False):
            if len(values) > rows.count:
                values = values.slice(0, rows.count)  # noqa: PLW2901 - only these rows
            texts = decoder.texts(values, tally)
            if self._envelope is not None and not is_key:
                columns.append(self._unwrap(self._envelope, texts, rows, tally))
            elif selection is None:
                columns.append([texts])
            else:
                columns.append([texts.field(n) for n in range(len(selection))])
        return [columns[part][index] for part, index in self._indexes]

    def _unwrap(
        self,
        envelope: Envelope,
        values: pa.StructArray,
        rows: MessageColumns,
        tally: Tally,
    ) -> list[pa.Array]:
        def lose(numbers: list[int], error: PayloadDecodeError) -> None:
            lose_values(rows, numbers, error, tally)

        part = [each for each in dict.fromkeys(self.fields) if not each.is_key]
        lost = None
        if rows.undecoded_rows:
            numbers = pa.array(range(len(values)), pa.int64())
            lost = pc.is_in(numbers, value_set=pa.array(rows.undecoded_rows, pa.int64()))
        row, changes = envelope.columns(values, _row_fields(part), lose, lost)
        return [(changes if each.is_change else row)[str(each.field)] for each in part]


def _row_fields(part: Sequence[ValueField]) -> list[str]:
    return [each.field for each in part if each.field is not None and not each.is_change]


@lru_cache(maxsize=64)
def _fields(columns: ValueColumns) -> tuple[ValueField, ...]:
    fields: list[tuple[str, pa.DataType, bool, str | None, bool]] = []
    has_key = columns.schema.reader.type == "KEY_VALUE"
    for is_key in (True, False) if has_key else (False,):
        decoder = columns.decoder(is_key=is_key)
        if columns.envelope is not None and not is_key:
            fields += [(name, type_, False, name, True) for name, type_ in CHANGE_COLUMNS.items()]
            fields += [(name, type_, False, name, False) for name, type_ in columns.envelope.fields]
        elif columns.is_flat and decoder.has_fields:
            for child, field in zip(decoder.shape.children, decoder.arrow_type, strict=True):
                name = f"{KEY_COLUMN}.{child.name}" if is_key else child.name
                fields.append((name, field.type, is_key, child.name, False))
        else:
            name = KEY_COLUMN if is_key else VALUE_COLUMN
            fields.append((name, decoder.arrow_type, is_key, None, False))
    names = make_distinct([name for name, *_ in fields], columns.reserved)
    return tuple(ValueField(name, *rest) for name, (_, *rest) in zip(names, fields, strict=True))


@lru_cache(maxsize=64)
def _envelope(decoder: PayloadDecoder) -> Envelope:
    return Envelope.from_shape(decoder.shape)


@lru_cache(maxsize=64)
def _decoder(
    schema: TopicSchema, time_unit: str, *, is_key: bool, is_debezium: bool
) -> PayloadDecoder:
    """Return a decoder that is shared by all record batches of a process: it caches programs."""
    is_pair = schema.reader.type == "KEY_VALUE"

    def part(info: SchemaInfo) -> SchemaInfo | None:
        if not is_pair:
            return info
        return info.key if is_key else info.value

    reader = part(schema.reader)
    if reader is None:
        message = "the KEY_VALUE schema lacks the schema of its key or value"
        raise SchemaError(message)
    if schema.registry is not None:
        ids = RegistryIds(reader, schema.registry)
        return PayloadDecoder(reader, ids, time_unit, is_debezium=is_debezium)
    versions: dict[int, SchemaInfo] = {}
    foreign: dict[int, str] = {}
    for number, info in schema.versions:
        own = part(info) if (info.type == "KEY_VALUE") == is_pair else None
        if own is not None:
            versions[number] = own
        else:
            foreign[number] = (
                f"schema version {number} is of type {info.type}, not {schema.reader.type}"
            )
    writers = PulsarVersions(reader, versions, foreign)
    return PayloadDecoder(reader, writers, time_unit, is_debezium=is_debezium)


class _KeyValueSources:
    """The sources of keys and values of KEY_VALUE messages, by the encoding of each version."""

    def __init__(self, schema: TopicSchema, rows: MessageColumns, tally: Tally) -> None:
        # Versions of other types are not split: decoding them is an error.
        self._is_separated: dict[int | None, bool] = {
            number: info.is_separated or info.type != "KEY_VALUE"
            for number, info in schema.versions
        }
        self._is_separated[None] = schema.reader.is_separated
        self._rows = rows
        self._tally = tally
        self._values = rows.payload_sources(layout.SCHEMA_VERSION)

    def sources(self, *, is_key: bool) -> Iterator[PayloadSource]:
        for source in self._values:
            if not self._separates(source):
                yield source._replace(positions=self._inline[0 if is_key else 1])
            elif is_key:
                data, positions = self._separate_keys
                yield source._replace(data=data, positions=positions)
            else:
                yield source

    def _separates(self, source: PayloadSource) -> bool:
        number = version_number(source.schema_name)
        return self._is_separated.get(number, self._is_separated[None])

    @cached_property
    def _inline(self) -> tuple[memoryview, memoryview]:
        """Positions of the keys and values that share a payload (`kv.encoding.type=INLINE`)."""
        _, keys = int64_view(max(1, self._rows.count))
        _, values = int64_view(max(1, self._rows.count))
        for source in self._values:
            row = source.start
            while row < source.stop and not self._separates(source):
                row = builds.in_use.columns.split_key_values(
                    source.data, source.positions, row, source.stop, keys, values
                )
                if row < source.stop:
                    error = PayloadDecodeError("the payload is not a key and value with lengths")
                    lose_values(self._rows, [row], error, self._tally)
                    keys[row] = values[row] = layout.ABSENT
                    row += 1
        return keys, values

    @cached_property
    def _separate_keys(self) -> tuple[memoryview, memoryview]:
        """The keys that are stored as keys of the messages, and their positions."""
        keys = self._rows.key_bytes(self._tally)
        offsets = pa.Array.from_buffers(pa.int32(), len(keys) + 1, [None, keys.buffers()[1]])
        starts = offsets.slice(0, len(keys)).cast(pa.int64())
        lengths = pc.subtract(offsets.slice(1).cast(pa.int64()), starts)
        positions = pc.add(pc.shift_left(starts, 32), lengths)
        positions = pc.if_else(keys.is_valid(), positions, layout.ABSENT)
        view = memoryview(positions.buffers()[1]).cast("B").cast("q")
        return memoryview(keys.buffers()[2] or b"").cast("B"), view
