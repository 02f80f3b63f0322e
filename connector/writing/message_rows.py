"""Tables → messages: a row is a message, columns are named as `arrow_io.columns` names them.

What a missing column, or a null in one, stands for:

========================= =====================================================================
Column                    Without it
========================= =====================================================================
`__value__`               null is a null value; the column may be missing if a schema with
                          fields is given, which are columns then
fields                    what the schema has as the field's default, or null; of protobuf, a
                          field that is not set
`__key` and its fields    of a KEY_VALUE: keys as of other messages, if the parts are SEPARATED;
                          INLINE, `__value__` has payloads with both parts
`__publish_time__`        the time at which writing began
`__sequence_id__`         how many messages were written before
`__producer_name__`       `pulsar-offload`
`__schema_version__`      the version of the schema that is given, else none
`__null_value__`          the value is null if `__value__` is; a row whose fields are all null is
                          a record of nulls
`__key__`                 no key; text is a text, binary are bytes
`__key_bytes__`           the key is a text; if it says other bytes than the text of `__key__`,
                          the key is these bytes. Columns of a SEPARATED key go before both
others that are read      none
========================= =====================================================================

Columns that say where a message stood, or what a broker said of it (`REGENERATED_COLUMNS`), are
passed over, so that what was read can be written. What would not be written as it was read, for
want of a column that is given on request, is refused, and the error names the column.

Typed values are what `open_topic` gives of the same schema, in one column or in one for each field,
or whatever Arrow casts to that without loss. A column `__value__` of binary data has payloads.

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
        "__message_id__",
        "__topic__",
        "__broker_time__",
        "__broker_index__",
        "__txn_id__",
    }
)
"""If one of these is there, the rows were read from a topic."""
_PULSAR_SPARK_NAMES: Final = {
    name: own for name, own in every_column("pulsar-spark").columns if name != own
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
        self._values = MessageValues(schema)
        self._publish_time_ms = publish_time_ms
        versions = registered_versions(schema)
        self._has_versions = len(versions) > 1
        self._own_versions = {
            version for version, info in versions if schema and info == schema.reader
        }
        self._schema_version = max(self._own_versions, default=None)

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
                message = f"neither a record batch nor a Message: {type(each).__name__}"
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
        named = rows.rename_columns(self._own_names(rows.schema.names))
        self._check_names(named.schema.names)
        batch = plain_batch(named, first_row)
        was_read = not REGENERATED_COLUMNS.isdisjoint(batch.schema.names)
        # Before the values, which take longest: what is wrong here is an error at once.
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
        """Return the fields of messages that do not depend on the schema, by name."""
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
            # A message that was read without a version had none.
            had_none = was_read and field == "schema_version" and name in batch.schema.names
            default = None if had_none else default  # noqa: PLW2901
            fields[field] = column_values(batch, name, first_row, default)
        fields["key"] = keys(batch, first_row)
        fields["properties"] = properties(batch, first_row)
        return fields

    def _own_names(self, names: Sequence[str]) -> list[str]:
        """Our own names of columns, some of which may be those of `naming="pulsar-spark"`.

        Raises:
            OptionError: A name may be that of a field too.
        """
        renamed = self._values.renamed
        theirs = {
            name: own
            for name, own in _PULSAR_SPARK_NAMES.items()
            if name in names and own not in names
        }
        if not renamed.keys().isdisjoint(names):
            return [renamed.get(name, theirs.get(name, name)) for name in names]
        own_fields = self._values.own_names(names)
        fields = [name for name in names if name in own_fields]
        if theirs.keys() <= set(fields):
            return list(names)
        # Beside other fields, it is one of them.
        is_field = len(self._values.fields) > 1 and set(self._values.fields) <= set(names)
        for name in theirs.keys() & set(fields):
            if theirs[name] != VALUE_COLUMN or not is_field:
                message = (
                    f'the column {name} may be what naming="pulsar-spark" calls so, or a field of'
                    f' the schema: read it with naming="pulsar-sql"'
                )
                raise OptionError(message)
        return [name if name in fields else theirs.get(name, name) for name in names]

    def _check_unambiguous(
        self, batch: pa.RecordBatch, read_keys: Sequence[str | bytes | None], first_row: int
    ) -> None:
        """Refuse rows of a topic that would be written otherwise than they were read.

        A reader gives in columns on request what the default ones leave open.
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
        """Refuse rows of another version than the one that Avro's bytes are written by.

        Other payloads are read by any version.
        """
        schemas = self._values.encoded_schemas(batch)
        if all(schema.type != "AVRO" for schema in schemas):
            return
        rows = zip(fields["schema_version"], fields["payload"], strict=True)
        for row, (version, payload) in enumerate(rows, first_row):
            if payload is not None and version is not None and version not in self._own_versions:
                reason = (
                    f"its fields are written by version {self._schema_version} of the schema, not"
                    f" by {version}: leave the column out"
                )
                raise value_error(_SCHEMA_VERSION, row, reason)

    def _check_names(self, names: Sequence[str]) -> None:
        if len(set(names)) < len(names):
            message = f"two columns have one name: {_list_names(names)}"
            raise OptionError(message)
        values = self._values.columns(names)
        allowed = {*COLUMN_TYPES, *REGENERATED_COLUMNS, *values}
        unknown = [name for name in names if name not in allowed]
        if unknown or not self._values.value.columns(names):
            problem = f"no {VALUE_COLUMN}"
            if unknown:
                hint = _suggest_names(unknown, (VALUE_COLUMN, *COLUMN_TYPES, *self._values.fields))
                problem = f"unknown columns: {_list_names(unknown)}{hint}"
            message = f"{problem}; beside {', '.join(COLUMN_TYPES)} there must be {VALUE_COLUMN}"
            raise OptionError(message + self._or_fields())

    def _or_fields(self) -> str:
        """What may stand for the column of values, for messages."""
        if self._values.fields:
            return f", or the fields of the schema: {_list_names(self._values.fields)}"
        if self._schema is None:
            return ", or the fields of a schema, of which none is given"
        type_ = self._schema.reader.type
        if self._values.are_encoded:
            return f": the schema, of type {type_}, has no fields"
        return (
            f": the schema is of type {type_}, whose fields are not encoded; of"
            f' a topic, value="raw" gives {VALUE_COLUMN} and __schema_version__'
        )


def _parts(source: object) -> Iterable[object]:
    """Record batches and messages of a source."""
    if isinstance(source, pa.RecordBatch | Message):
        return [source]
    if isinstance(source, Dataset):
        batches: Iterable[object] = source.to_batches()
        return batches
    if hasattr(source, "__arrow_c_stream__"):
        try:
            stream: Iterable[object] = pa.RecordBatchReader.from_stream(source)
        except pa.ArrowInvalid:
            message = f"messages are rows of named columns, which a {type(source).__name__} lacks"
            raise OptionError(message) from None
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


def _suggest_names(unknown: Iterable[str], allowed: Iterable[str]) -> str:
    """Return a hint at the known columns whose names are like those of unknown ones."""
    by_plain_name = {_plain_name(name): name for name in allowed}
    near = (by_plain_name.get(_plain_name(name)) for name in islice(unknown, _MAX_NAMES))
    suggestions = [name for name in near if name is not None]
    return f" (did you mean {', '.join(suggestions)}?)" if suggestions else ""


def _plain_name(name: str) -> str:
    return name.lower().replace("_", "")


def _list_names(names: Iterable[str]) -> str:
    """The first few names."""
    return ", ".join(islice(names, _MAX_NAMES))
