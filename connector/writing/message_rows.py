"""Tables → messages: a row is a message, columns are named as `arrow_io.columns` names them.

What a missing column, or a null in one, stands for:

========================= =====================================================================
Column                    Without it
========================= =====================================================================
`__value__`               null is a null value; the column may be missing if a JSON schema
                          is given, whose fields are columns then
`__publish_time__`        the time at which writing began
`__sequence_id__`         how many messages were written before
`__producer_name__`       `pulsar-offload`
`__schema_version__`      the version of the schema that is given, else none
`__null_value__`          the value is null if `__value__` is; a row whose fields are all null is
                          a record of nulls
`__key__`                 no key; text is a text, binary are bytes
`__key_bytes__`           the key is a text; if it says other bytes than the text of `__key__`,
                          the key is these bytes
others that are read      none
========================= =====================================================================

Columns that say where a message stood, or what a broker said of it (`GIVEN_ANEW`), are passed over,
so that what was read can be written. What would not be written as it was read, for want of a column
that is given on request, is refused, and the error names the column.

Columns may also have the names of `naming="pulsar-spark"`. A name that the schema gives to a field
as well is refused if nothing says which of both is meant.

Properties are a map; a list of pairs, or of structs with `key` and `value`; or a struct, of which
each field that is not null is one. Dictionary- and run-end-encoded columns are as their values.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import Dataset

from arrow_io.columns import every_column
from arrow_io.errors import OptionError
from arrow_io.messages.message_metadata import DEFAULT_PRODUCER_NAME, Message, wrong_field
from arrow_io.payloads.encoder import PayloadEncoder
from arrow_io.payloads.value_columns import VALUE_COLUMN, ValueColumns
from connector.catalog.schemas.answers import registered_versions
from connector.writing.column_values import (
    COLUMN_TYPES,
    cast,
    column_values,
    first_failing,
    is_binary,
    is_text,
    keys,
    plain_batch,
    properties,
    unusable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.payloads.schema_info import TopicSchema

_LISTED: Final = 20
_SHOWN: Final = 40
_JSON_NULL: Final = b"null"
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
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
"""If one of these is there, the rows were read from a topic."""
_PULSAR_SPARK_NAMES: Final = {
    given: own for given, own in every_column("pulsar-spark").columns if given != own
}
"""Our own name of each column that has another one there."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of a file, by which name errors call it; their rows count from its beginning.

    Attributes:
        name: Name of the file.
        batches: Its rows.
    """

    name: str
    batches: Iterable[pa.RecordBatch]


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
                of messages, or of `FileRows`.

        Raises:
            OptionError: The source is not one of these; a column is unknown, stands twice, or
                cannot be cast; a value does not fit the schema, or is not what its type says.
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
            elif isinstance(each, FileRows):
                try:
                    yield from self.messages(each.batches)
                except OptionError as error:
                    error.message = f"{each.name}: {error.message}"
                    raise
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

    def _rows(self, given: pa.RecordBatch, first_row: int) -> Iterator[Message]:
        named = given.rename_columns(self._own_names(given.schema.names))
        self._check_names(named.schema.names)
        batch = plain_batch(named, first_row)
        was_read = not GIVEN_ANEW.isdisjoint(batch.schema.names)
        told_keys, empty = keys(batch, first_row), self._empty_rows(batch)
        if was_read:
            self._check_told_apart(batch, told_keys, empty, first_row)
        fields = {
            "payload": self._payloads(batch, empty, first_row),
            "key": told_keys,
            "properties": properties(batch, first_row),
        }
        for field, (name, default) in {
            "publish_time_ms": ("__publish_time__", self._publish_time_ms),
            "ordering_key": ("__ordering_key__", None),
            "event_time_ms": ("__event_time__", None),
            "sequence_id": ("__sequence_id__", None),
            "producer_name": ("__producer_name__", DEFAULT_PRODUCER_NAME),
            "schema_version": ("__schema_version__", self._schema_version),
            "replicated_from": ("__replicated_from__", None),
            "deliver_at_ms": ("__deliver_at__", None),
        }.items():
            # A message that was read without a version had none.
            had_none = was_read and field == "schema_version" and name in batch.schema.names
            default = None if had_none else default  # noqa: PLW2901
            fields[field] = column_values(batch, name, first_row, default)
        for row in zip(*fields.values(), strict=True):
            yield Message(**dict(zip(fields, row, strict=True)))

    def _own_names(self, names: Sequence[str]) -> list[str]:
        """Our own names of columns, some of which may be those of `naming="pulsar-spark"`.

        Raises:
            OptionError: A name may be that of a field too.
        """
        theirs = {
            name: own
            for name, own in _PULSAR_SPARK_NAMES.items()
            if name in names and own not in names
        }
        fields = [name for name in names if name in self._fields]
        if theirs.keys() <= set(fields):
            return list(names)
        # Beside other fields, it is one of them.
        is_field = len(fields) == len(self._fields) > 1
        for name in theirs.keys() & set(fields):
            if theirs[name] != VALUE_COLUMN or not is_field:
                message = (
                    f'the column {name} may be what naming="pulsar-spark" calls so, or a field of'
                    f' the schema: read it with naming="pulsar-sql"'
                )
                raise OptionError(message)
        return [name if name in fields else theirs.get(name, name) for name in names]

    def _check_told_apart(
        self,
        batch: pa.RecordBatch,
        told_keys: Sequence[str | bytes | None],
        empty: pa.BooleanArray,
        first_row: int,
    ) -> None:
        """Refuse rows of a topic that would be written otherwise than they were read.

        A reader gives in columns on request what the default ones leave open.
        """
        names = batch.schema.names
        if "__key__" in names and "__key_bytes__" not in names:
            for row, key in enumerate(told_keys, first_row):
                if key and _may_be_bytes(key):
                    reason = f"its key {key[:_SHOWN]!r} may be text or Base64"
                    raise _untold(row, reason, "__key_bytes__")
        if self._is_json and "__null_value__" not in names:
            for row, is_empty in enumerate(empty.to_pylist(), first_row):
                if is_empty:
                    reason = "its value may be a null value or a record of nulls"
                    raise _untold(row, reason, "__null_value__")
        has_bytes = VALUE_COLUMN in names and is_binary(batch.schema.field(VALUE_COLUMN).type)
        if has_bytes and self._has_versions and "__schema_version__" not in names:
            reason = "its bytes may be of any of the schema's versions"
            raise _untold(first_row, reason, "__schema_version__")

    def _empty_rows(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows have no value; none of those whose values are bytes."""
        if VALUE_COLUMN in batch.schema.names:
            values = batch.column(VALUE_COLUMN)
            is_typed = not is_binary(values.type)
            return values.is_null() if is_typed else pa.array([False] * batch.num_rows)
        names = set(batch.schema.names).intersection(self._fields)
        return reduce(pc.and_, (batch.column(name).is_null() for name in names))

    def _check_names(self, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            message = f"two columns have one name: {_listed(names)}"
            raise OptionError(message)
        values = {VALUE_COLUMN} if VALUE_COLUMN in names else set(self._fields)
        known = {*COLUMN_TYPES, *GIVEN_ANEW, *values}
        unknown = [name for name in names if name not in known]
        if unknown or values.isdisjoint(names):
            what = f"unknown columns: {_listed(unknown)}" if unknown else f"no {VALUE_COLUMN}"
            message = f"{what}; beside {', '.join(COLUMN_TYPES)} there must be {VALUE_COLUMN}"
            raise OptionError(message + self._or_fields())

    def _or_fields(self) -> str:
        """What may stand for the column of values, for messages."""
        if self._fields:
            return f", or the fields of the schema: {_listed(self._fields)}"
        if self._schema is None:
            return ", or the fields of a JSON schema, of which none is given"
        return (
            f": the schema is of type {self._schema.reader.type}, whose fields are not encoded; of"
            f' a topic, value="raw" gives {VALUE_COLUMN} and __schema_version__'
        )

    @cached_property
    def _fields(self) -> Mapping[str, str]:
        """The fields of a JSON schema's record, by the names that their columns have."""
        if self._schema is None or not self._is_json:
            return {}
        values = every_column(values=ValueColumns(self._schema)).values
        fields = () if values is None else values.fields
        return {each.name: each.field for each in fields if each.field is not None}

    @property
    def _is_json(self) -> bool:
        return self._schema is not None and self._schema.reader.type == "JSON"

    @cached_property
    def _has_versions(self) -> bool:
        return len(registered_versions(self._schema)) > 1

    @cached_property
    def _encoder(self) -> PayloadEncoder:
        if self._schema is None:
            message = f"{VALUE_COLUMN} must be bytes or text, unless a schema is given"
            raise OptionError(message)
        return PayloadEncoder(self._schema.reader)

    def _payloads(
        self, batch: pa.RecordBatch, empty: pa.BooleanArray, first_row: int
    ) -> list[bytes | None]:
        told = column_values(batch, "__null_value__", first_row)
        if VALUE_COLUMN in batch.schema.names:
            payloads = self._values(batch, first_row)
        else:
            nulls = pa.array([bool(is_null) for is_null in told], pa.bool_())
            payloads = self._records(batch, nulls, empty, first_row)
        for row, is_null in enumerate(told):
            if is_null:
                payloads[row] = None
            elif is_null is False and payloads[row] is None:
                if not self._is_json:
                    reason = "__null_value__ says that there is a value; a salvage may have lost it"
                    raise unusable(VALUE_COLUMN, first_row + row, reason)
                payloads[row] = _JSON_NULL
        return payloads

    def _values(self, batch: pa.RecordBatch, first_row: int) -> list[bytes | None]:
        values = batch.column(VALUE_COLUMN)
        if (is_text(values.type) and self._schema is None) or is_binary(values.type):
            payloads: list[bytes | None] = cast(
                batch, VALUE_COLUMN, pa.binary(), first_row
            ).to_pylist()
            return payloads
        return self._encoded(values, first_row)

    def _records(
        self, batch: pa.RecordBatch, nulls: pa.BooleanArray, empty: pa.BooleanArray, first_row: int
    ) -> list[bytes | None]:
        names = [name for name in batch.schema.names if name in self._fields]
        arrays = [batch.column(name) for name in names]
        fields = [
            pa.field(self._fields[name], array.type)
            for name, array in zip(names, arrays, strict=True)
        ]
        records = pa.StructArray.from_arrays(arrays, fields=fields, mask=nulls)
        try:
            return self._encoded(records, first_row)
        except OptionError as error:
            if pc.any(empty).as_py() and "__null_value__" not in batch.schema.names:
                error.message += "; a row that is a null value says so in a column __null_value__"
            raise

    def _encoded(self, values: pa.Array, first_row: int) -> list[bytes | None]:
        """Payloads; an error names the first row that has none."""

        def error_of(start: int, length: int) -> OptionError | None:
            try:
                self._encoder.encode(values.slice(start, length))
            except OptionError as error:
                return error
            return None

        try:
            return self._encoder.encode(values)
        except OptionError as error:
            row = first_failing(len(values), lambda *rows: error_of(*rows) is not None)
            if row is None:
                raise
            alone = error_of(row, 1) or error
            message = f"row {first_row + row} (from 0): {alone.message}"
            raise OptionError(message) from None


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


def _may_be_bytes(key: str | bytes) -> bool:
    """Whether a key, which is not empty, is what a reader gives of some bytes."""
    text = key if isinstance(key, str) else key.decode("ascii", "replace")
    if _BASE64.fullmatch(text) is None:
        return False
    return base64.b64encode(base64.b64decode(text)).decode() == text


def _untold(row: int, reason: str, asked_for: str) -> OptionError:
    """The error for rows of a topic that lack a column."""
    return OptionError(
        f"row {row} (from 0) was read from a topic, and {reason}: read {asked_for} too, or add"
        " that column"
    )


def _listed(names: Iterable[str]) -> str:
    """The first few names."""
    return ", ".join(islice(names, _LISTED))
