"""Conversion of tables to messages: one row is one message, and columns have the names of a read.

Meaning of a missing column, or of a null in it:

========================= =====================================================================
Column                    If it is missing or null
========================= =====================================================================
`__value__`               a null value. The column may be missing if the schema has fields, which
                          are columns then
fields                    the field's default in the schema, or null; for protobuf, a field that
                          is not set
`__key` and its fields    only for KEY_VALUE. SEPARATED: keys come from the columns of other
                          messages' keys. INLINE: `__value__` has payloads with both parts
`__publish_time__`        the time at which the write began
`__sequence_id__`         the number of messages written before
`__producer_name__`       `pulsar-offload`
`__schema_version__`      the version of the schema passed to the write, or none
`__null_value__`          the value is null if `__value__` is; a row whose fields are all null is
                          a record of nulls
`__key__`                 no key. A text column has text keys, a binary one has bytes
`__key_bytes__`           the key is text. If these bytes differ from the text of `__key__`, they
                          are the key. Columns of a SEPARATED key take precedence over both
other columns of a read   none
========================= =====================================================================

Columns with a message's position or values set by a broker (`REGENERATED_COLUMNS`) are ignored, so
that rows of a topic can be written again. If such rows are ambiguous without a column that a read
returns only on request, they are refused, and the error names the column.

Typed values are what `open_topic` returns for the same schema, in one column or in one per field,
or anything that Arrow casts to that without loss. A binary column `__value__` contains payloads.

Columns may also have the names of `naming="pulsar-spark"`. A name that is also a field of the
schema is refused if it is ambiguous.

Properties are a map; a list of pairs, or of structs with `key` and `value`; or a struct whose
non-null fields are the properties. Dictionary- and run-end-encoded columns count as their values.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow.dataset import Dataset

from arrow_io.columns import every_column
from arrow_io.errors import OptionError
from arrow_io.messages.message_metadata import DEFAULT_PRODUCER_NAME, Message, wrong_field
from arrow_io.payloads.value_columns import VALUE_COLUMN
from connector.catalog.schemas.answers import registered_versions
from connector.writing.column_values import (
    COLUMN_TYPES,
    column_values,
    is_binary,
    keys,
    missing_column_error,
    plain_batch,
    properties,
    value_error,
)
from connector.writing.message_values import MessageValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.payloads.schema_info import TopicSchema

_MAX_NAMES: Final = 20
_MAX_KEY_LENGTH: Final = 40
_SCHEMA_VERSION: Final = "__schema_version__"
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
REGENERATED_COLUMNS: Final = frozenset(
    {
        "__entry_id__",
        "__ledger_id__",
        "__batch_index__",
        "__partition__",
        "__segment_id__",
        "__message_id__",
        "__topic__",
        "__broker_time__",
        "__broker_index__",
        "__txn_id__",
    }
)
"""Columns that are set anew when a message is stored. They show that rows were read from a
topic."""
_PULSAR_SPARK_NAMES: Final = {
    name: own for name, own in every_column("pulsar-spark").columns if name != own
}
"""Our name of each column whose name differs with `naming="pulsar-spark"`, by that name."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a file, whose name errors contain; row numbers start at 0 in each file."""

    name: str
    batches: Iterable[pa.RecordBatch]


class MessageRows:
    """Converter of tables to messages.

    Args:
        schema: The schema of the values; None if values are bytes.
        publish_time_ms: Publish time of messages without one, in ms since the epoch.
    """

    def __init__(self, schema: TopicSchema | None, *, publish_time_ms: int) -> None:
        self._schema = schema
        self._values = MessageValues(schema)
        self._publish_time_ms = publish_time_ms
        versions = registered_versions(schema)
        self._has_versions = len(versions) > 1
        self._own_versions = {
            version for version, info in versions if schema and info == schema.reader
        }
        self._schema_version = max(self._own_versions, default=None)

    def messages(self, source: object) -> Iterator[Message]:
        """Yield the messages of a source in order; at most one record batch is in memory.

        Args:
            source: A table, record batch, dataset or other object that streams Arrow data
                (`__arrow_c_stream__`: DuckDB, Polars, pandas). Or an iterable of record batches, of
                messages or of `FileRows`.

        Raises:
            OptionError: The source has another type; a column is unknown, duplicate or cannot be
                cast; or a value does not match the schema or the type of its column.
            SchemaError: The schema cannot be read.
        """
        count = 0
        for each in _parts(source):
            if isinstance(each, Message):
                yield self._add_schema_version(each, count)
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
                message = (
                    f"messages must be record batches or Message objects, not {type(each).__name__}"
                )
                raise OptionError(message)

    def _add_schema_version(self, message: Message, number: int) -> Message:
        wrong = wrong_field(message)
        if wrong is not None:
            text = f"message {number} has a wrong {wrong}: {type(getattr(message, wrong)).__name__}"
            raise OptionError(text)
        if self._schema_version is None or message.schema_version is not None:
            return message
        return replace(message, schema_version=self._schema_version)

    def _rows(self, rows: pa.RecordBatch, first_row: int) -> Iterator[Message]:
        renamed_batch = rows.rename_columns(self._own_names(rows.schema.names))
        self._check_names(renamed_batch.schema.names)
        batch = plain_batch(renamed_batch, first_row)
        was_read = not REGENERATED_COLUMNS.isdisjoint(batch.schema.names)
        # Read these first: encoding the values takes longest, and errors here should not wait.
        fields = self._read_fields(batch, first_row, was_read=was_read)
        encoded = self._values.encode(batch, first_row, was_read=was_read)
        if was_read:
            read_keys = fields["key"] if encoded.keys is None else ()
            self._check_unambiguous(batch, read_keys, first_row)
        fields["payload"] = encoded.payloads
        if encoded.keys is not None:
            fields["key"] = encoded.keys
            fields["is_null_key"] = [key is None for key in encoded.keys]
        self._check_versions(batch, fields, first_row)
        for row in zip(*fields.values(), strict=True):
            yield Message(**dict(zip(fields, row, strict=True)))

    def _read_fields(
        self, batch: pa.RecordBatch, first_row: int, *, was_read: bool
    ) -> dict[str, list[Any]]:
        """Return the message fields that do not depend on the schema, by name."""
        fields: dict[str, list[Any]] = {}
        for field, (name, default) in {
            "publish_time_ms": ("__publish_time__", self._publish_time_ms),
            "event_time_ms": ("__event_time__", None),
            "deliver_at_ms": ("__deliver_at__", None),
            "ordering_key": ("__ordering_key__", None),
            "sequence_id": ("__sequence_id__", None),
            "producer_name": ("__producer_name__", DEFAULT_PRODUCER_NAME),
            "schema_version": ("__schema_version__", self._schema_version),
            "replicated_from": ("__replicated_from__", None),
        }.items():
            # In rows that were read from a topic, null means that the message had no version.
            had_none = was_read and field == "schema_version" and name in batch.schema.names
            default = None if had_none else default  # noqa: PLW2901
            fields[field] = column_values(batch, name, first_row, default)
        fields["key"] = keys(batch, first_row)
        fields["properties"] = properties(batch, first_row)
        return fields

    def _own_names(self, names: Sequence[str]) -> list[str]:
        """Translate names of `naming="pulsar-spark"` to ours. Raises if one may be a field's."""
        pulsar_spark_names = self._values.pulsar_spark_names
        translations = {
            name: own
            for name, own in _PULSAR_SPARK_NAMES.items()
            if name in names and own not in names
        }
        if not pulsar_spark_names.keys().isdisjoint(names):
            return [pulsar_spark_names.get(name, translations.get(name, name)) for name in names]
        own_fields = self._values.own_names(names)
        fields = [name for name in names if name in own_fields]
        if translations.keys() <= set(fields):
            return list(names)
        # A column named like the value is a field if all other fields have columns too.
        is_field = len(self._values.fields) > 1 and set(self._values.fields) <= set(names)
        for name in translations.keys() & set(fields):
            if translations[name] != VALUE_COLUMN or not is_field:
                message = (
                    f'the column {name} may be a column of naming="pulsar-spark" or a field of the'
                    f' schema: read it with naming="pulsar-sql"'
                )
                raise OptionError(message)
        return [name if name in fields else translations.get(name, name) for name in names]

    def _check_unambiguous(
        self, batch: pa.RecordBatch, read_keys: Sequence[str | bytes | None], first_row: int
    ) -> None:
        """Raise if rows of a topic might be written otherwise than they were read.

        Some differences are visible only in columns that a read returns on request.
        """
        names = batch.schema.names
        if "__key__" in names and "__key_bytes__" not in names:
            for row, key in enumerate(read_keys, first_row):
                if key and _may_be_bytes(key):
                    reason = f"its key {key[:_MAX_KEY_LENGTH]!r} may be text or Base64"
                    raise missing_column_error(row, reason, "__key_bytes__")
        has_bytes = VALUE_COLUMN in names and is_binary(batch.schema.field(VALUE_COLUMN).type)
        if has_bytes and self._has_versions and _SCHEMA_VERSION not in names:
            reason = "its bytes may be of any of the schema's versions"
            raise missing_column_error(first_row, reason, _SCHEMA_VERSION)

    def _check_versions(
        self, batch: pa.RecordBatch, fields: Mapping[str, Sequence[Any]], first_row: int
    ) -> None:
        """Raise if Avro rows have another schema version than the one that encodes them.

        Other encodings can be read by any version.
        """
        schemas = self._values.encoded_schemas(batch)
        if all(schema.type != "AVRO" for schema in schemas):
            return
        rows = zip(fields["schema_version"], fields["payload"], strict=True)
        for row, (version, payload) in enumerate(rows, first_row):
            if payload is not None and version is not None and version not in self._own_versions:
                reason = (
                    f"its fields are encoded by version {self._schema_version} of the schema, not"
                    f" by version {version}: leave the column out"
                )
                raise value_error(_SCHEMA_VERSION, row, reason)

    def _check_names(self, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            message = f"two columns have the same name: {_list_names(names)}"
            raise OptionError(message)
        values = self._values.columns(names)
        allowed = {*COLUMN_TYPES, *REGENERATED_COLUMNS, *values}
        unknown = [name for name in names if name not in allowed]
        if unknown or not self._values.value.columns(names):
            problem = f"no {VALUE_COLUMN}"
            if unknown:
                hint = _suggest_names(unknown, (VALUE_COLUMN, *COLUMN_TYPES, *self._values.fields))
                problem = f"unknown columns: {_list_names(unknown)}{hint}"
            message = f"{problem}; besides {', '.join(COLUMN_TYPES)} give {VALUE_COLUMN}"
            raise OptionError(message + self._describe_alternatives())

    def _describe_alternatives(self) -> str:
        """Return which columns may replace the column of values, for error messages."""
        if self._values.fields:
            return f", or the fields of the schema: {_list_names(self._values.fields)}"
        if self._schema is None:
            return ", or give a schema and its fields"
        type_ = self._schema.reader.type
        if self._values.are_encoded:
            return f": the schema, of type {type_}, has no fields"
        return (
            f": fields of a schema of type {type_} cannot be encoded. To copy a topic, read it with"
            f' value="raw", which returns {VALUE_COLUMN} and __schema_version__'
        )


def _parts(source: object) -> Iterable[object]:
    if isinstance(source, pa.RecordBatch | Message):
        return [source]
    if isinstance(source, Dataset):
        batches: Iterable[object] = source.to_batches()
        return batches
    if hasattr(source, "__arrow_c_stream__"):
        try:
            stream: Iterable[object] = pa.RecordBatchReader.from_stream(source)
        except pa.ArrowInvalid:
            message = f"messages must have named columns, which a {type(source).__name__} lacks"
            raise OptionError(message) from None
        return stream
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | Mapping):
        return source
    message = f"messages must be Arrow data or an iterable of it, not {type(source).__name__}"
    raise OptionError(message)


def _may_be_bytes(key: str | bytes) -> bool:
    """Return whether a reader may have encoded this non-empty key in Base64."""
    text = key if isinstance(key, str) else key.decode("ascii", "replace")
    if _BASE64.fullmatch(text) is None:
        return False
    return base64.b64encode(base64.b64decode(text)).decode() == text


def _suggest_names(unknown: Iterable[str], allowed: Iterable[str]) -> str:
    """Return a hint at known columns whose names resemble unknown ones."""
    by_plain_name = {_plain_name(name): name for name in allowed}
    near = (by_plain_name.get(_plain_name(name)) for name in islice(unknown, _MAX_NAMES))
    suggestions = [name for name in near if name is not None]
    return f" (did you mean {', '.join(suggestions)}?)" if suggestions else ""


def _plain_name(name: str) -> str:
    return name.lower().replace("_", "")


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(islice(names, _MAX_NAMES))
