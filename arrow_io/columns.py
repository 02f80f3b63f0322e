"""Names, types and meaning of every column, and the building of record batches.

The names are those of Pulsar SQL, so that old queries run; `naming="pulsar-spark"` uses those of
the pulsar-spark connector instead.

With a schema, values become typed columns, all of them nullable. A value that does not fit its type
is an error; only numbers in JSON text are rounded, to the nearest floating-point number. `unit` is
the option `time_unit`: `ns` by default, and always `us` in Spark.

| Pulsar | Arrow |
|---|---|
| BYTES; STRING; BOOLEAN | binary; string; bool |
| INT8; INT16; INT32; INT64; FLOAT; DOUBLE | int8; int16; int32; int64; float; double |
| DATE; TIMESTAMP; INSTANT | timestamp[us, tz=UTC]; timestamp[us, tz=UTC]; timestamp[unit, tz=UTC] |
| TIME; LOCAL_TIME | time64[us]; time64[unit] |
| LOCAL_DATE; LOCAL_DATE_TIME | date32[day]; timestamp[unit] |
| Avro null; boolean; int; long | bool (never set); bool; int32; int64 |
| Avro float; double; bytes; fixed | float; double; binary; binary |
| Avro string; enum; uuid | string; string; string |
| Avro decimal | decimal128(p, s) (binary if p > 38) |
| Avro date; time-millis; time-micros | date32[day]; time64[us]; time64[us] |
| Avro timestamp-millis; timestamp-micros | timestamp[us, tz=UTC]; timestamp[us, tz=UTC] |
| Avro local-timestamp-millis; local-timestamp-micros | timestamp[us]; timestamp[us] |
| Avro timestamp-nanos; local-timestamp-nanos | timestamp[unit, tz=UTC]; timestamp[unit] |
| Avro array; map; record | list<T>; map<string, T>; struct<a: T> |
| Avro record without fields | bool (true if there is one) |
| Avro union of null and T | T |
| Avro wider union | struct<a: T> (a field for each branch, by its type; one is not null) |
| Avro recursive type | binary (the inner value as Avro; in JSON string, its text) |
| protobuf double; float; bool; string; bytes | double; float; bool; string; binary |
| protobuf int32; sint32; sfixed32; uint32; fixed32 | int32; int32; int32; int64; int64 |
| protobuf int64; sint64; sfixed64 | int64; int64; int64 |
| protobuf uint64; fixed64 | decimal128(20, 0); decimal128(20, 0) |
| protobuf enum | string (its name; the number if that has none) |
| protobuf message; repeated; map | struct<a: T>; list<T>; map<K, V> |
| protobuf message without fields | bool (true if there is one) |
| protobuf recursive type | binary |
| protobuf google.protobuf.Timestamp | timestamp[unit, tz=UTC] |
| protobuf google.protobuf wrappers | T |

JSON has the types of Avro, because Pulsar stores an Avro schema for it. At every depth, only types
that all engines support are used: no view, large, dictionary or unsigned types. In pandas, a column
keeps Arrow's type (`ArrowDtype`) if the table says "Arrow's" (in brackets: if it has nulls), and
whenever the type below cannot represent a value (`connector.frames.pandas_frames`). With
`arrow_types=True` all columns keep Arrow's types. `str` is the type in pandas 3; pandas 2, which
Spark needs, has `object`.

| Arrow | DuckDB | Spark | pandas | Polars |
|---|---|---|---|---|
| bool | BOOLEAN | boolean | bool (Arrow's) | Boolean |
| int8 | TINYINT | tinyint | int8 (Arrow's) | Int8 |
| int16 | SMALLINT | smallint | int16 (Arrow's) | Int16 |
| int32 | INTEGER | int | int32 (Arrow's) | Int32 |
| int64 | BIGINT | bigint | int64 (Arrow's) | Int64 |
| float | FLOAT | float | float32 | Float32 |
| double | DOUBLE | double | float64 | Float64 |
| decimal128(p, s) | DECIMAL(p,s) | decimal(p,s) | object | Decimal(precision=p, scale=s) |
| string | VARCHAR | string | str | String |
| binary | BLOB | binary | object | Binary |
| date32[day] | DATE | date | object | Date |
| time64[us] | TIME | bigint (µs since midnight) | object | Time |
| time64[ns] | TIME_NS | | Arrow's | Time |
| timestamp[us] | TIMESTAMP | timestamp_ntz | datetime64[us] | Datetime('us') |
| timestamp[ns] | TIMESTAMP_NS | | datetime64[ns] | Datetime('ns') |
| timestamp[us, tz=UTC] | TIMESTAMPTZ | timestamp | datetime64[us, UTC] | Datetime('us', 'UTC') |
| timestamp[ns, tz=UTC] | TIMESTAMPTZ_NS | | datetime64[ns, UTC] | Datetime('ns', 'UTC') |
| list<T> | T[] | array<T> | Arrow's | List(T) |
| map<K, V> | MAP(K, V) | map<K,V> | Arrow's | Map(K, V) |
| struct<a: T> | STRUCT(a T) | struct<a:T> | Arrow's | Struct({'a': T}) |

DuckDB compares a type with `_NS` to another type only if the SQL casts one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import OptionError
from arrow_io.messages import layout
from arrow_io.messages.column_names import DEFAULT_COLUMNS, NAMINGS
from arrow_io.messages.gathering import PROPERTIES, Gathered, Gathering
from arrow_io.messages.message_columns import TIMESTAMP
from arrow_io.messages.message_reader import Needs
from arrow_io.payloads.value_columns import VALUE_COLUMN, ValueColumns
from arrow_io.payloads.writer_schemas import version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from arrow_io.messages.message_columns import MessageColumns
    from arrow_io.payloads.shredding import Shredding
    from arrow_io.payloads.value_columns import ValueField
    from arrow_io.read_metrics import Tally


@dataclass(frozen=True, slots=True)
class Origin:
    """Values that are the same for all rows of a record batch.

    Attributes:
        topic: Full topic name, with `-partition-N`.
        partition: Partition number; −1 if the topic is not partitioned.
        segment_id: Id of the segment of a scalable topic; None if the topic is no segment.
        unknown: Names of columns whose values are not available, so they are null.
    """

    topic: str = ""
    partition: int = -1
    segment_id: int | None = None
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Column:
    """One column that a topic can have.

    Attributes:
        name: Its name.
        type: Its Arrow type.
        doc: What it holds, in one line.
        build: How it is gathered, or a function that builds it for all rows.
        needs: The parts of messages that it is made from.
        default: Whether it is returned unless columns are named.
    """

    name: str
    type: pa.DataType
    doc: str
    build: Gathered | Callable[[MessageColumns, Origin, Tally], pa.Array]
    needs: Needs
    default: bool = True


_POSITION = Needs(metadata=False, members=False, payload=False)
_ENTRY = Needs(metadata=True, members=False, payload=False)
_MEMBER = Needs(metadata=True, members=True, payload=False)
_PAYLOAD = Needs(metadata=True, members=True, payload=True)


def _with_nulls(values: pa.Array, type_: pa.DataType, absent: pa.BooleanArray) -> pa.Array:
    """Return the values as `type_`, null where `absent` is true."""
    # The data buffer of a boolean array has the form of a validity bitmap.
    present = pc.invert(absent)
    validity, data = present.buffers()[1], values.buffers()[1]
    return pa.Array.from_buffers(type_, len(values), [validity, data])


def _has_flag(flags: pa.Int64Array, flag: int) -> pa.BooleanArray:
    return pc.not_equal(pc.bit_wise_and(flags, flag), 0)


def _schema_version(rows: MessageColumns, _origin: Origin, _tally: Tally) -> pa.Array:
    # Versions may be long, so they are not copied for each row.
    return pa.concat_arrays(
        pa.repeat(pa.scalar(version_number(version), pa.int64()), stop - start)
        for start, stop, _, _, version in rows.payload_sources(layout.SCHEMA_VERSION)
    )


def _broker_index(rows: MessageColumns, _origin: Origin, _tally: Tally) -> pa.Array:
    """Return the broker index of each message; an entry stores that of its last (PIP-70)."""
    last = rows.entry_numbers(layout.BROKER_INDEX)
    size = pc.max_element_wise(rows.entry_numbers(layout.BATCH_SIZE), 1)
    member = pc.max_element_wise(rows.row_numbers(layout.ROW_BATCH_INDEX), 0)
    index = pc.add(pc.subtract(last, pc.subtract(size, 1)), member)
    absent = pc.invert(_has_flag(rows.entry_numbers(layout.FLAGS), layout.HAS_BROKER_INDEX))
    return _with_nulls(index, pa.int64(), absent)


def _join_numbers(*numbers: pa.Array) -> pa.StringArray:
    """Return the numbers as `(a,b,…)`, as Pulsar SQL and Pulsar's TxnID write them."""
    texts = [each.cast(pa.string()) for each in numbers]
    inner = pc.binary_join_element_wise(*texts, ",")
    return pc.binary_join_element_wise("(", inner, ")", "")


def _message_id(rows: MessageColumns, _origin: Origin, _tally: Tally) -> pa.Array:
    return _join_numbers(
        rows.ledger_ids(),
        rows.entry_numbers(layout.ENTRY_ID),
        rows.row_numbers(layout.ROW_BATCH_INDEX),
    )


def _txn_id(rows: MessageColumns, _origin: Origin, _tally: Tally) -> pa.Array:
    present = _has_flag(rows.entry_numbers(layout.FLAGS), layout.TRANSACTION)
    if not pc.any(present).as_py():
        return pa.nulls(rows.count, pa.string())
    most, least = (rows.entry_numbers(each) for each in (layout.TXN_MOST, layout.TXN_LEAST))
    return pc.if_else(present, _join_numbers(most, least), pa.scalar(None, pa.string()))


def _segment_id(rows: MessageColumns, origin: Origin, _tally: Tally) -> pa.Array:
    return pa.repeat(pa.scalar(origin.segment_id, pa.int64()), rows.count)


def _null_value(rows: MessageColumns, _origin: Origin, _tally: Tally) -> pa.BooleanArray:
    return _has_flag(rows.row_numbers(layout.ROW_FLAGS), layout.NULL_VALUE)


def _repeat_text(text: str, count: int) -> pa.StringArray:
    """Return `count` copies of a text: a slice of a cached, shared array."""
    return _repeat_cached(text, 1 << max(0, count - 1).bit_length()).slice(0, count)


@lru_cache(maxsize=64)
def _repeat_cached(text: str, count: int) -> pa.StringArray:
    return pa.repeat(text, count)


# `Assembly` replaces the field by the number of the partition.
_PARTITION = Gathered(layout.GATHERED_CONSTANTS, 0, pa.int32())

ALL_COLUMNS: tuple[Column, ...] = (
    Column("__entry_id__", pa.int64(), needs=_POSITION,
           doc="entry id of the message; of its last chunk if it has several",
           build=Gathered(layout.GATHERED_ENTRY_NUMBERS, layout.ENTRY_ID, pa.int64())),
    Column("__ledger_id__", pa.int64(), needs=_POSITION,
           doc="ledger id of the message",
           build=Gathered(layout.GATHERED_LEDGER_IDS, 0, pa.int64())),
    Column("__batch_index__", pa.int32(), needs=_POSITION,
           doc="0-based position in its batch; null if not batched",
           build=Gathered(layout.GATHERED_BATCH_INDEXES, layout.ROW_BATCH_INDEX, pa.int32())),
    Column("__partition__", pa.int32(), needs=_POSITION,
           doc="partition number; -1 if the topic is not partitioned",
           build=_PARTITION),
    Column("__publish_time__", TIMESTAMP, needs=_ENTRY,
           doc="when the producer published it, by its clock",
           build=Gathered(layout.GATHERED_ENTRY_TIMES, layout.PUBLISH_TIME, TIMESTAMP)),
    Column("__event_time__", TIMESTAMP, needs=_MEMBER,
           doc="event time the producer gave; null if none",
           build=Gathered(layout.GATHERED_ROW_TIMES, layout.ROW_EVENT_TIME, TIMESTAMP)),
    Column("__sequence_id__", pa.int64(), needs=_MEMBER,
           doc="the producer's sequence id",
           build=Gathered(layout.GATHERED_ROW_NUMBERS, layout.ROW_SEQUENCE_ID, pa.int64())),
    Column("__producer_name__", pa.string(), needs=_ENTRY,
           doc="name of the producer",
           build=Gathered(layout.GATHERED_ENTRY_BYTES, layout.PRODUCER_NAME, pa.string())),
    Column("__key__", pa.string(), needs=_MEMBER,
           doc="partition key; Base64 text if the producer gave bytes",
           build=Gathered(layout.GATHERED_ROW_BYTES, layout.ROW_KEY, pa.string())),
    Column("__properties__", PROPERTIES, needs=_MEMBER,
           doc="properties; the last value wins if a name occurs twice",
           build=Gathered(layout.GATHERED_PROPERTIES, 0, PROPERTIES)),
    Column(VALUE_COLUMN, pa.binary(), needs=_PAYLOAD,
           doc="the value's bytes; null if the message has a null value",
           build=Gathered(layout.GATHERED_ROW_BYTES, layout.ROW_PAYLOAD, pa.binary())),
    Column("__message_id__", pa.string(), needs=_POSITION, default=False,
           doc="(ledger,entry,batch); batch -1 if not batched",
           build=_message_id),
    Column("__topic__", pa.string(), needs=_POSITION, default=False,
           doc="full topic name, with its partition or segment",
           build=lambda rows, origin, _: _repeat_text(origin.topic, rows.count)),
    Column("__key_bytes__", pa.binary(), needs=_MEMBER, default=False,
           doc="the key as bytes, decoded if it is Base64",
           build=lambda rows, _, tally: rows.key_bytes(tally)),
    Column("__ordering_key__", pa.binary(), needs=_MEMBER, default=False,
           doc="ordering key; null if none",
           build=Gathered(layout.GATHERED_ROW_BYTES, layout.ROW_ORDERING_KEY, pa.binary())),
    Column("__schema_version__", pa.int64(), needs=_ENTRY, default=False,
           doc="version of the schema it was written with; null if none",
           build=_schema_version),
    Column("__null_value__", pa.bool_(), needs=_MEMBER, default=False,
           doc="whether the producer sent a null value",
           build=_null_value),
    Column("__broker_time__", TIMESTAMP, needs=_ENTRY, default=False,
           doc="when the broker stored the entry; null if it did not say",
           build=Gathered(layout.GATHERED_ENTRY_TIMES, layout.BROKER_TIME, TIMESTAMP)),
    Column("__broker_index__", pa.int64(), needs=_ENTRY, default=False,
           doc="the broker's running number of the message; null if none",
           build=_broker_index),
    Column("__deliver_at__", TIMESTAMP, needs=_ENTRY, default=False,
           doc="time before which it was not to be delivered; null if none",
           build=Gathered(layout.GATHERED_ENTRY_TIMES, layout.DELIVER_AT, TIMESTAMP)),
    Column("__replicated_from__", pa.string(), needs=_ENTRY, default=False,
           doc="cluster it was replicated from; null if none",
           build=Gathered(layout.GATHERED_ENTRY_BYTES, layout.REPLICATED_FROM, pa.string())),
    Column("__txn_id__", pa.string(), needs=_ENTRY, default=False,
           doc="(most,least) bits of its transaction; null if none",
           build=_txn_id),
    Column("__segment_id__", pa.int64(), needs=_POSITION, default=False,
           doc="segment of a scalable topic; null if its topic is not scalable",
           build=_segment_id),
)  # fmt: skip
"""Every column, cheapest first: an engine that counts rows reads the first one."""

_PULSAR_SPARK_NAMES = {
    "__key__": "__key",
    "__topic__": "__topic",
    "__message_id__": "__messageId",
    "__publish_time__": "__publishTime",
    "__event_time__": "__eventTime",
    "__properties__": "__messageProperties",
    VALUE_COLUMN: "value",
}


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of a scan, in order, with their output names.

    Attributes:
        columns: Pairs of output name and own name, which is the name in `values` or `ALL_COLUMNS`.
        values: The typed columns of the topic's schema; None if values are bytes.
    """

    columns: tuple[tuple[str, str], ...]
    values: ValueColumns | None = None

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the record batches."""
        return _schema(self)

    @property
    def needs(self) -> Needs:
        """The parts of messages that the columns are made from."""
        return _needs(self)

    @property
    def has_value_bytes(self) -> bool:
        """Whether the values are requested as bytes."""
        return self.values is None and any(own == VALUE_COLUMN for _, own in self.columns)

    @property
    def _default_names(self) -> list[str]:
        on_request = {column.name for column in ALL_COLUMNS if not column.default}
        return [name for name, own in self.columns if own not in on_request]

    @property
    def _fields(self) -> Mapping[str, ValueField]:
        return {} if self.values is None else {each.name: each for each in self.values.fields}

    def select(self, names: Iterable[str]) -> Projection:
        """Return a projection of the named columns, in that order.

        Args:
            names: Names of columns. `*`, alone or among them, stands for the default columns; then
                each column appears once.

        Raises:
            OptionError: A column does not exist, or `names` is not a list.
        """
        if names == DEFAULT_COLUMNS:
            names = [DEFAULT_COLUMNS]
        if isinstance(names, str) or not isinstance(names, Iterable):
            message = f"columns must be a list of names, not {names!r}"
            raise OptionError(message)
        names = list(names)
        if DEFAULT_COLUMNS in names:
            default = self._default_names
            both = [[each] if each != DEFAULT_COLUMNS else default for each in names]
            names = dict.fromkeys(name for each in both for name in each)
        own_names = dict(self.columns)
        selected = []
        for name in names:
            if name not in own_names:
                message = f"no column {name!r}; the columns are: {', '.join(own_names)}"
                raise OptionError(message)
            selected.append((name, own_names[name]))
        return Projection(tuple(selected), self.values)

    def assembly(self, origin: Origin) -> Assembly:
        """Return the builder of record batches of these columns from the messages of a topic."""
        return _assembly(self, origin)


_BY_NAME = {column.name: column for column in ALL_COLUMNS}


class Assembly:
    """A builder of record batches of a projection; set up once for all batches."""

    def __init__(self, projection: Projection, origin: Origin) -> None:
        self._schema = projection.schema
        self._origin = origin
        self._null_columns: list[tuple[int, pa.DataType]] = []
        self._builders: list[tuple[int, Callable[[MessageColumns, Origin, Tally], pa.Array]]] = []
        gathered: list[tuple[int, Gathered]] = []
        typed: list[tuple[int, ValueField]] = []
        fields = projection._fields
        for index, (_, own) in enumerate(projection.columns):
            if own in fields:
                typed.append((index, fields[own]))
                continue
            column = _BY_NAME[own]
            if own in origin.unknown:
                self._null_columns.append((index, column.type))
            elif column.build is _PARTITION:
                gathered.append((index, _PARTITION._replace(field=origin.partition)))
            elif isinstance(column.build, Gathered):
                gathered.append((index, column.build))
            else:
                self._builders.append((index, column.build))
        names = self._schema.names
        columns = [(names[index], each) for index, each in gathered]
        # The columns of the message, by their indexes in the record batch.
        self._in_message = {index: number for number, (index, _) in enumerate(gathered)}
        self._array_indexes: list[int] = []
        self._values = None
        if projection.values is not None and typed:
            self._values = projection.values.select([each for _, each in typed])
            numbers = {
                each: number
                for number, each in enumerate(self._values.message_fields, len(columns))
            }
            self._in_message |= {i: numbers[each] for i, each in typed if each in numbers}
            self._array_indexes = [index for index, each in typed if each not in numbers]
            following = self._values.columns({each: names[index] for index, each in typed})
            self._gathering = Gathering(columns, following)
        else:
            self._gathering = Gathering(columns)
        self._order: list[int] | None = None
        if len(self._in_message) == len(self._schema):
            self._order = [self._in_message[index] for index in range(len(self._schema))]
        self._is_ordered = self._order == list(range(len(self._schema)))

    def record_batches(self, rows: MessageColumns, tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of some messages: one, or several if one would be too large.

        A record batch ends at `Gathering.max_bytes` of bytes copied from entries, and at
        `Shredding.max_bytes` of decoded values. The next one starts with the row that did not fit.

        Args:
            rows: The messages, at least one.
            tally: Receives the counts, and decides whether damage is raised or counted.

        Raises:
            CorruptEntryError: A value of a message cannot be represented.
            PayloadDecodeError: A payload does not match its schema.
            UnknownSchemaVersionError: The schema of a payload is not known.
        """
        while True:
            batch = self._record_batch(rows, tally)
            count = batch.num_rows
            yield batch
            # Do not hold it while the next one is made.
            del batch
            if count == rows.count:
                return
            rows = rows.part(count, rows.count)

    def _record_batch(self, rows: MessageColumns, tally: Tally) -> pa.RecordBatch:
        """Return the record batch of all rows, or of as many of the first as fit."""
        message = rows.measure(self._gathering)
        decoded: list[Shredding] = []
        if self._values is None:
            batch = message.record_batch(tally)
        else:
            # Decode all typed columns of a payload together: the payload is parsed once.
            decoded = self._values.decode(message, tally)
            values = decoded[-1]
            if values.count < message.rows.count:
                message = message.first(values.count)
            values.close()
            batch = values.drop_equal_keys(message.record_batch(tally))
        return batch if self._is_ordered else self._complete(batch, message.rows, decoded, tally)

    def _complete(
        self,
        batch: pa.RecordBatch,
        rows: MessageColumns,
        decoded: Sequence[Shredding],
        tally: Tally,
    ) -> pa.RecordBatch:
        """Return the columns of a message in the order of the schema, with those it lacks."""
        if self._order is not None:
            return batch.select(self._order)
        columns = {index: batch.column(number) for index, number in self._in_message.items()}
        columns |= {index: pa.nulls(rows.count, type_) for index, type_ in self._null_columns}
        columns |= {index: build(rows, self._origin, tally) for index, build in self._builders}
        if self._values is not None:
            arrays = self._values.arrays(decoded, batch, rows, tally)
            columns |= zip(self._array_indexes, arrays, strict=True)
        in_order = [columns[index] for index in range(len(self._schema))]
        return pa.RecordBatch.from_arrays(in_order, schema=self._schema)


@lru_cache(maxsize=64)
def _assembly(projection: Projection, origin: Origin) -> Assembly:
    return Assembly(projection, origin)


@lru_cache(maxsize=64)
def _schema(projection: Projection) -> pa.Schema:
    """Return the schema, cached: all record batches of a scan share it."""
    fields = projection._fields
    return pa.schema(
        [
            pa.field(name, fields[own].type if own in fields else _BY_NAME[own].type)
            for name, own in projection.columns
        ]
    )


@lru_cache(maxsize=64)
def _needs(projection: Projection) -> Needs:
    """Return the needs, cached: a read looks at them several times."""
    fields = projection._fields
    each = [_PAYLOAD if own in fields else _BY_NAME[own].needs for _, own in projection.columns]
    return Needs(
        metadata=any(n.metadata for n in each),
        members=any(n.members for n in each),
        payload=any(n.payload for n in each),
    )


def every_column(naming: str = "pulsar-sql", values: ValueColumns | None = None) -> Projection:
    """Return the projection of all columns that a topic can have, cheapest first.

    Args:
        naming: `pulsar-sql` or `pulsar-spark`.
        values: The typed columns; None if values are bytes.

    Raises:
        OptionError: The naming is unknown.
        SchemaError: The topic's schema cannot be read.
    """
    if naming not in NAMINGS:
        message = f"naming must be one of {', '.join(NAMINGS)}, not {naming!r}"
        raise OptionError(message)
    names = _PULSAR_SPARK_NAMES if naming == "pulsar-spark" else {}
    pairs: list[tuple[str, str]] = []
    if values is not None:
        values = replace(values, reserved=_reserved(names))
    for column in ALL_COLUMNS:
        if column.name == VALUE_COLUMN and values is not None:
            # Only a whole value is renamed: a record may have a field with the same name.
            pairs += [
                (names.get(each.name, each.name) if each.is_whole_value else each.name, each.name)
                for each in values.fields
            ]
        else:
            pairs.append((names.get(column.name, column.name), column.name))
    return Projection(tuple(pairs), values)


def _reserved(names: Mapping[str, str]) -> tuple[str, ...]:
    own = [column.name for column in ALL_COLUMNS if column.name != VALUE_COLUMN]
    return tuple(dict.fromkeys([*own, *(names.get(name, name) for name in own)]))


def projection(
    columns: Sequence[str] | None = None,
    *,
    naming: str = "pulsar-sql",
    values: ValueColumns | None = None,
) -> Projection:
    """Return a projection of the named columns, or of the default columns.

    Args:
        columns: See `Projection.select`; None for the default columns.
        naming: `pulsar-sql` or `pulsar-spark`.
        values: The typed columns; None if values are bytes.

    Raises:
        OptionError: A column or the naming is unknown.
        SchemaError: The topic's schema cannot be read.
    """
    return every_column(naming, values).select(DEFAULT_COLUMNS if columns is None else columns)
