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
from arrow_io.payloads.frames import framed_sources
from arrow_io.payloads.shape import make_distinct
from arrow_io.payloads.sources import Source, value_sources
from arrow_io.payloads.writer_schemas import PulsarVersions, RegistryIds, version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
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
    """

    schema: TopicSchema
    is_flat: bool = True
    time_unit: str = "ns"
    reserved: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[ValueField, ...]:
        """All typed columns, those of the key first.

        Raises:
            SchemaError: A schema cannot be read.
        """
        return _fields(self)

    @property
    def node_count(self) -> int:
        """Number of Arrow arrays that all fields together consist of, including nested ones."""
        parts = (True, False) if self.schema.reader.type == "KEY_VALUE" else (False,)
        shapes = (_decoder(self.schema, self.time_unit, is_key=each).shape for each in parts)
        return sum(1 for shape in shapes for _ in shape.walk())

    def select(self, fields: Sequence[ValueField]) -> SelectedValues:
        """Return a decoder of some fields.

        Raises:
            SchemaError: A schema cannot be read.
        """
        return SelectedValues(self, fields)


class SelectedValues:
    """A decoder of some of the typed columns, which may be repeated.

    Args:
        columns: All typed columns of the topic.
        fields: The requested fields.

    Raises:
        SchemaError: A schema cannot be read.
    """

    def __init__(self, columns: ValueColumns, fields: Sequence[ValueField]) -> None:
        self.fields = tuple(fields)
        self._schema = columns.schema
        self._parts: list[tuple[bool, PayloadDecoder, tuple[str, ...] | None]] = []
        numbers: dict[ValueField, tuple[int, int]] = {}
        for is_key in (True, False):
            part = [each for each in dict.fromkeys(fields) if each.is_key == is_key]
            if part:
                numbers |= {each: (len(self._parts), index) for index, each in enumerate(part)}
                names = tuple(each.field for each in part if each.field is not None)
                decoder = _decoder(columns.schema, columns.time_unit, is_key=is_key)
                self._parts.append((is_key, decoder, names or None))
        self._indexes = [numbers[each] for each in fields]

    def arrays(self, rows: MessageColumns, tally: Tally) -> Iterator[list[pa.Array]]:
        """Decode the fields of some rows, in one or more batches.

        If the read salvages, a payload that cannot be decoded is null, and counted.

        Args:
            rows: The messages.
            tally: Decides whether to raise or count a value that cannot be decoded.

        Yields:
            One array per field, all of the same length. A row that does not fit into a batch starts
            the next one.

        Raises:
            PayloadDecodeError: A payload does not fit its schema.
            UnknownSchemaVersionError: The schema of a payload is missing.
            SchemaError: The schema of a payload or its character set cannot be used, or one row
                takes too much memory.
            StorageError: The registry cannot be asked for the schema of a payload.
        """
        all_sources = self._sources(rows, tally)
        first = 0
        while first < rows.count:
            stop = rows.count
            decoded: list[pa.Array] = []
            for is_key, decoder, names in self._parts:
                decoded.append(
                    decode(
                        decoder,
                        all_sources(is_key=is_key),
                        names,
                        rows,
                        tally,
                        first=first,
                        stop=stop,
                        path_prefix=KEY_COLUMN if is_key else "",
                    )
                )
                stop = first + len(decoded[-1])
            yield self._select_fields([each.slice(0, stop - first) for each in decoded], tally)
            del decoded
            first = stop

    def _sources(self, rows: MessageColumns, tally: Tally) -> Callable[..., Iterable[Source]]:
        """Return a function that returns the sources of keys or of values (`is_key`)."""
        reader, registry = self._schema.reader, self._schema.registry
        if reader.type == "KEY_VALUE":
            return _KeyValueSources(self._schema, rows, tally).sources
        if registry is None:
            return lambda *, is_key: value_sources(rows)  # noqa: ARG005

        def lose(row: int, error: PulsarOffloadError) -> None:
            lose_values(rows, [row], error, tally)

        has_indexes = reader.type == "PROTOBUF_NATIVE"
        framed = list(framed_sources(rows, lose, has_indexes=has_indexes))
        return lambda *, is_key: framed  # noqa: ARG005

    def _select_fields(self, decoded: Sequence[pa.Array], tally: Tally) -> list[pa.Array]:
        """Return the arrays of the fields, in order, from the decoded key and value."""
        columns = []
        for values, (_, decoder, names) in zip(decoded, self._parts, strict=True):
            texts = decoder.texts(values, tally)
            fields = [texts.field(n) for n in range(len(names or ()))]
            columns.append([texts] if names is None else fields)
        return [columns[part][index] for part, index in self._indexes]


@lru_cache(maxsize=64)
def _fields(columns: ValueColumns) -> tuple[ValueField, ...]:
    fields: list[tuple[str, pa.DataType, bool, str | None]] = []
    has_key = columns.schema.reader.type == "KEY_VALUE"
    for is_key in (True, False) if has_key else (False,):
        decoder = _decoder(columns.schema, columns.time_unit, is_key=is_key)
        if columns.is_flat and decoder.has_fields:
            for child, field in zip(decoder.shape.children, decoder.arrow_type, strict=True):
                name = f"{KEY_COLUMN}.{child.name}" if is_key else child.name
                fields.append((name, field.type, is_key, child.name))
        else:
            name = KEY_COLUMN if is_key else VALUE_COLUMN
            fields.append((name, decoder.arrow_type, is_key, None))
    names = make_distinct([name for name, *_ in fields], columns.reserved)
    return tuple(ValueField(name, *rest) for name, (_, *rest) in zip(names, fields, strict=True))


@lru_cache(maxsize=64)
def _decoder(schema: TopicSchema, time_unit: str, *, is_key: bool) -> PayloadDecoder:
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
        return PayloadDecoder(reader, RegistryIds(reader, schema.registry), time_unit)
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
    return PayloadDecoder(reader, PulsarVersions(reader, versions, foreign), time_unit)


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
        self._values = list(value_sources(rows))

    def sources(self, *, is_key: bool) -> Iterator[Source]:
        for source in self._values:
            if not self._separates(source):
                yield source._replace(positions=self._inline[0 if is_key else 1])
            elif is_key:
                data, positions = self._separate_keys
                yield source._replace(data=data, positions=positions)
            else:
                yield source

    def _separates(self, source: Source) -> bool:
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
