"""Tables → messages: a row is a message, columns are named as `arrow_io.columns` names them.

What a missing column, or a null in one, stands for:

========================= =====================================================================
Column                    Without it
========================= =====================================================================
`__value__`               null is a null value; the column may be missing where a JSON schema
                          is given, whose fields are columns then
`__publish_time__`        the time at which writing began
`__sequence_id__`         how many messages were written before
`__producer_name__`       `pulsar-offload`
`__schema_version__`      the version of the schema that is given, else none
`__null_value__`          the value is null where `__value__` is; a row whose fields are all null is
                          a record of nulls
`__key__`                 no key; text is a text, binary are bytes
`__key_bytes__`           the key is a text; where it says other bytes than the text of `__key__`,
                          the key is these bytes
others that are read      none
========================= =====================================================================

Columns that say where a message stood, or what a broker said of it (`GIVEN_ANEW`), are passed over,
so that what was read can be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import Dataset

from arrow_io.columns import every_column
from arrow_io.errors import OptionError
from arrow_io.messages.message_metadata import DEFAULT_PRODUCER_NAME, Message, wrong_field
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.value_columns import VALUE_COLUMN, ValueColumns
from connector.catalog.schema_answers import registered_versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.payloads.schema_info import TopicSchema

_LISTED: Final = 20
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "__publish_time__": _MILLISECONDS,
    "__event_time__": _MILLISECONDS,
    "__deliver_at__": _MILLISECONDS,
    "__sequence_id__": pa.int64(),
    "__schema_version__": pa.int64(),
    "__producer_name__": pa.string(),
    "__replicated_from__": pa.string(),
    "__key__": pa.string(),
    "__key_bytes__": pa.binary(),
    "__ordering_key__": pa.binary(),
    "__properties__": pa.map_(pa.string(), pa.string()),
    "__null_value__": pa.bool_(),
}
"""What columns are cast to, without loss."""
GIVEN_ANEW: Final = frozenset(
    {
        "__entry_id__",
        "__ledger_id__",
        "__batch_index__",
        "__partition__",
        "__message_id__",
        "__topic__",
        "__broker_time__",
        "__broker_index__",
        "__txn_id__",
    }
)


class MessageRows:
    """Makes messages of tables.

    Args:
        schema: The schema of the values; None: they are bytes.
        publish_time_ms: Publish time of messages that have none, ms since the epoch.
    """

    def __init__(self, schema: TopicSchema | None, *, publish_time_ms: int) -> None:
        self._schema = schema
        self._publish_time_ms = publish_time_ms
        versions = registered_versions(schema)
        own = (version for version, info in versions if schema and info == schema.reader)
        self._schema_version = max(own, default=None)

    def messages(self, source: object) -> Iterator[Message]:
        """The messages of a source, in order; no more than a record batch of it is held.

        Args:
            source: A table, record batch, dataset or whatever else streams Arrow data
                (`__arrow_c_stream__`: DuckDB, Polars, pandas); or an iterable of record batches or
                of messages.

        Raises:
            OptionError: The source is none of these; a column is unknown, stands twice, or cannot
                be cast; a value does not fit the schema, or is not what its type says.
            SchemaError: The schema cannot be read.
        """
        count = 0
        for each in _parts(source):
            if isinstance(each, Message):
                yield self._stamped(each, count)
                count += 1
            elif isinstance(each, pa.RecordBatch):
                yield from self._rows(each, count)
                count += each.num_rows
            else:
                message = f"neither a record batch nor a Message: {type(each).__name__}"
                raise OptionError(message)

    def _stamped(self, message: Message, number: int) -> Message:
        wrong = wrong_field(message)
        if wrong is not None:
            text = f"message {number} has a wrong {wrong}: {type(getattr(message, wrong)).__name__}"
            raise OptionError(text)
        if self._schema_version is None or message.schema_version is not None:
            return message
        return replace(message, schema_version=self._schema_version)

    def _rows(self, batch: pa.RecordBatch, first_row: int) -> Iterator[Message]:
        self._check_names(batch.schema.names)
        _check_columns(batch, first_row)
        nulls = _values(batch, "__null_value__", default=False)
        payloads = self._payloads(batch, nulls)
        fields = {
            "payload": [
                None if is_null else payload
                for payload, is_null in zip(payloads, nulls, strict=True)
            ],
            "publish_time_ms": _values(batch, "__publish_time__", default=self._publish_time_ms),
            "key": _keys(batch),
            "ordering_key": _values(batch, "__ordering_key__"),
            "properties": _properties(batch, first_row),
            "event_time_ms": _values(batch, "__event_time__"),
            "sequence_id": _values(batch, "__sequence_id__"),
            "producer_name": _values(batch, "__producer_name__", default=DEFAULT_PRODUCER_NAME),
            "schema_version": _values(batch, "__schema_version__", default=self._schema_version),
            "replicated_from": _values(batch, "__replicated_from__"),
            "deliver_at_ms": _values(batch, "__deliver_at__"),
        }
        for row in zip(*fields.values(), strict=True):
            yield Message(**dict(zip(fields, row, strict=True)))

    def _check_names(self, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            message = f"two columns have one name: {_listed(names)}"
            raise OptionError(message)
        values = {VALUE_COLUMN} if VALUE_COLUMN in names else set(self._fields)
        known = {*_TYPES, *GIVEN_ANEW, *values}
        unknown = [name for name in names if name not in known]
        if unknown or values.isdisjoint(names):
            what = f"unknown columns: {_listed(unknown)}" if unknown else f"no {VALUE_COLUMN}"
            message = f"{what}; beside {', '.join(_TYPES)} there must be {VALUE_COLUMN}"
            raise OptionError(message + self._or_fields())

    def _or_fields(self) -> str:
        """What may stand for the column of values, for messages."""
        if self._fields:
            return f", or the fields of the schema: {_listed(self._fields)}"
        if self._schema is None:
            return ", or the fields of a JSON schema, of which none is given"
        return f": the schema is of type {self._schema.reader.type}, which has no fields to write"

    @cached_property
    def _fields(self) -> Mapping[str, str]:
        """The fields of a JSON schema's record, by the names that their columns have."""
        if self._schema is None or self._schema.reader.type != "JSON":
            return {}
        values = every_column(values=ValueColumns(self._schema)).values
        fields = () if values is None else values.fields
        return {each.name: each.field for each in fields if each.field is not None}

    @cached_property
    def _encoder(self) -> PayloadEncoder:
        if self._schema is None:
            message = f"{VALUE_COLUMN} must be bytes or text, unless a schema is given"
            raise OptionError(message)
        return PayloadEncoder(self._schema.reader)

    def _payloads(self, batch: pa.RecordBatch, nulls: list[bool]) -> list[bytes | None]:
        if VALUE_COLUMN in batch.schema.names:
            values = batch.column(VALUE_COLUMN)
            is_text = _is_text(values.type) and self._schema is None
            if is_text or _is_binary(values.type):
                payloads: list[bytes | None] = _cast(batch, VALUE_COLUMN, pa.binary()).to_pylist()
                return payloads
            return self._encoder.encode(values)
        names = [name for name in batch.schema.names if name in self._fields]
        arrays = [batch.column(name) for name in names]
        fields = [
            pa.field(self._fields[name], array.type)
            for name, array in zip(names, arrays, strict=True)
        ]
        mask = pa.array(nulls, pa.bool_())
        records = pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
        try:
            return self._encoder.encode(records)
        except OptionError as error:
            # A reader gives a null value so, and with it, if asked, the column that tells it apart.
            empty = reduce(pc.and_, (array.is_null() for array in arrays))
            if "__null_value__" not in batch.schema.names and pc.any(empty).as_py():
                error.message += "; a row that is a null value says so in a column __null_value__"
            raise


def _parts(source: object) -> Iterable[object]:
    """Record batches and messages of a source."""
    if isinstance(source, pa.RecordBatch | Message):
        return [source]
    if isinstance(source, Dataset):
        batches: Iterable[object] = source.to_batches()
        return batches
    if hasattr(source, "__arrow_c_stream__"):
        stream: Iterable[object] = pa.RecordBatchReader.from_stream(source)
        return stream
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        return source
    message = f"messages are Arrow data or an iterable of it, not {type(source).__name__}"
    raise OptionError(message)


def _check_columns(batch: pa.RecordBatch, first_row: int) -> None:
    """Refuse columns that are not what their types say, such as text that is not UTF-8."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            rows = (number for number in range(len(column)) if _is_broken(column.slice(number, 1)))
            raise _unusable(name, first_row + next(rows, 0), str(error)) from None


def _is_broken(value: pa.Array) -> bool:
    try:
        value.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _unusable(name: str, row: int, reason: str) -> OptionError:
    return OptionError(f"the column {name}, row {row} (from 0): {reason}")


def _cast(batch: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
    try:
        return batch.column(name).cast(type_)
    except pa.ArrowException as error:
        given = batch.schema.field(name).type
        message = f"the column {name} of type {given} cannot be cast to {type_}: {error}"
        raise OptionError(message) from error


def _values(batch: pa.RecordBatch, name: str, default: object = None) -> list[Any]:
    """The values of a column as Python's, times in ms since the epoch."""
    if name not in batch.schema.names:
        return [default] * batch.num_rows
    column = _cast(batch, name, _TYPES[name])
    if column.type == _MILLISECONDS:
        column = column.view(pa.int64())
    return [default if value is None else value for value in column.to_pylist()]


def _keys(batch: pa.RecordBatch) -> list[str | bytes | None]:
    """Keys: text, or bytes where they are not the bytes of the text."""
    names = batch.schema.names
    if "__key__" in names and _is_binary(batch.schema.field("__key__").type):
        binary: list[str | bytes | None] = _cast(batch, "__key__", pa.binary()).to_pylist()
        return binary
    pairs = zip(_values(batch, "__key__"), _values(batch, "__key_bytes__"), strict=True)
    return [
        text if data is None or (text is not None and text.encode() == data) else data
        for text, data in pairs
    ]


def _properties(batch: pa.RecordBatch, first_row: int) -> list[tuple[tuple[str, str], ...]]:
    """Properties as pairs; engines without maps have lists of their entries."""
    name = "__properties__"
    type_ = batch.schema.field(name).type if name in batch.schema.names else None
    if _is_list_of_entries(type_):
        pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
        entries = _cast(batch, name, pairs).to_pylist()
        rows = [[each and (each["key"], each["value"]) for each in row or ()] for row in entries]
    else:
        rows = _values(batch, name, default=())
    for number, row in enumerate(rows):
        if any(pair is None or None in pair for pair in row):
            raise _unusable(name, first_row + number, "the name or value of a property is null")
    return [tuple(row) for row in rows]


def _is_list_of_entries(type_: pa.DataType | None) -> bool:
    if type_ is None or not (pa.types.is_list(type_) or pa.types.is_large_list(type_)):
        return False
    entry = type_.value_type
    return pa.types.is_struct(entry) and {field.name for field in entry} == {"key", "value"}


def _is_text(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


def _is_binary(type_: pa.DataType) -> bool:
    """Whether values are bytes, or all null."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or pa.types.is_fixed_size_binary(type_)
        or pa.types.is_null(type_)
    )


def _listed(names: Iterable[str]) -> str:
    """The first few names."""
    return ", ".join(islice(names, _LISTED))
