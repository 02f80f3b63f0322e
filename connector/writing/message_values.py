"""Encoding of value and key columns as payloads and as the keys of KEY_VALUE messages.

Each part of a KEY_VALUE has the columns that a read returns: `__key` or `__key.<field>`, and
`__value__` or the fields. If the parts are INLINE, the payload contains both (`KeyValue.encode` of
Pulsar's Java client). If they are SEPARATED, the key is the message's key. Without columns of the
key, values are payloads, and keys come from the columns that other messages use.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import every_column
from arrow_io.core.lazy import cached_property
from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.encoder import is_encodable
from arrow_io.payloads.value_columns import KEY_COLUMN, VALUE_COLUMN, ValueColumns
from connector.writing.column_values import column_values, missing_column_error, value_error
from connector.writing.column_values import keys as undecoded_keys
from connector.writing.value_part import ValuePart

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema

_NULL_VALUE: Final = "__null_value__"
_UNDECODED_KEYS: Final = frozenset({"__key__", "__key_bytes__"})
_LENGTH: Final = struct.Struct(">i")
_ABSENT: Final = _LENGTH.pack(-1)


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """Encoded values of rows.

    Attributes:
        payloads: The payload of each row; None for a null value.
        keys: The key of each row, None for a null key. None if no value column has keys.
    """

    payloads: list[bytes | None]
    keys: list[bytes | None] | None = None


class MessageValues:
    """Encoder of value columns. Without a schema, values are bytes."""

    def __init__(self, schema: TopicSchema | None) -> None:
        self._schema = schema

    @property
    def _is_keyed(self) -> bool:
        return self._schema is not None and self._schema.reader.type == "KEY_VALUE"

    @property
    def _is_separated(self) -> bool:
        return self._schema is not None and self._schema.reader.is_separated

    @cached_property
    def fields(self) -> list[str]:
        """Names of the columns of fields, and of a KEY_VALUE's key."""
        if self._typed is None:
            return []
        return [each.name for each in self._typed.fields if each.field is not None or each.is_key]

    @cached_property
    def pulsar_spark_names(self) -> Mapping[str, str]:
        """Our name of each value column that only `naming="pulsar-spark"` has, by that name."""
        if self._typed is None:
            return {}
        names: dict[str, str] = {}
        for is_flat in (True, False):
            own = replace(self._typed, is_flat=is_flat)
            spark_columns = every_column("pulsar-spark", own).values
            assert spark_columns is not None  # noqa: S101 - `own` are values
            pairs = zip(spark_columns.fields, own.fields, strict=True)
            names |= {spark_column.name: each.name for spark_column, each in pairs}
        return {
            spark_name: own for spark_name, own in names.items() if spark_name not in names.values()
        }

    def own_names(self, names: Collection[str]) -> set[str]:
        """Return our names of fields, and of a whole key, for a batch with these columns."""
        own = {*self.fields, *self.pulsar_spark_names.values()}
        # A batch has either the whole key or its fields.
        if self._has_keys(names) and not self.key.fields.keys().isdisjoint(names):
            own.discard(self.key.whole)
        return own

    @cached_property
    def _typed(self) -> ValueColumns | None:
        """The columns that a read returns; None if the schema has none or cannot be read."""
        if self._schema is None or not is_encodable(self._schema.reader):
            return None
        try:
            return every_column(values=ValueColumns(self._schema)).values
        except SchemaError:
            # Payloads can be written without the schema. Code that needs it raises the error.
            return None

    @cached_property
    def value(self) -> ValuePart:
        """The columns of values."""
        return self._part(is_key=False)

    @cached_property
    def key(self) -> ValuePart:
        """The columns of a KEY_VALUE's keys."""
        return self._part(is_key=True)

    def _part(self, *, is_key: bool) -> ValuePart:
        schema = None if self._schema is None else self._schema.reader
        if schema is not None and self._is_keyed:
            schema = schema.key if is_key else schema.value
        name = "the key" if is_key else "the value"
        if self._typed is None:
            return ValuePart(schema, name, VALUE_COLUMN)
        wholes = replace(self._typed, is_flat=False).fields
        (whole,) = (each for each in wholes if each.is_key == is_key)
        flat = [each for each in self._typed.fields if each.is_key == is_key]
        fields: dict[str, str] = {}
        if flat[0].field is not None:
            names = [field.name for field in whole.type]
            fields = {each.name: name for each, name in zip(flat, names, strict=True)}
        return ValuePart(schema, name, whole.name, whole.type, fields)

    @property
    def are_encoded(self) -> bool:
        """Whether values can be encoded from columns.

        Raises:
            SchemaError: The schema cannot be read.
        """
        return (
            self._schema is not None
            and is_encodable(self._schema.reader)
            and bool(ValueColumns(self._schema).fields)
        )

    def columns(self, names: Collection[str]) -> list[str]:
        """Return those names that are columns of values or their keys."""
        keys = self.key.columns(names) if self._has_keys(names) else []
        return [*keys, *self.value.columns(names)]

    def _has_keys(self, names: Collection[str]) -> bool:
        return self._is_keyed and self._typed is not None and bool(self.key.columns(names))

    def encoded_schemas(self, batch: pa.RecordBatch) -> list[SchemaInfo]:
        """Return the schemas that encode values and keys; none for columns of payloads."""
        parts = [self.key, self.value] if self._has_keys(batch.schema.names) else [self.value]
        return [each.schema for each in parts if each.schema and not each.is_raw(batch)]

    def encode(self, batch: pa.RecordBatch, first_row: int, *, was_read: bool) -> EncodedValues:
        """Encode the values of rows, and their keys if there are columns of keys.

        Args:
            batch: The rows.
            first_row: Number of the first row.
            was_read: Whether the rows were read from a topic.

        Raises:
            OptionError: A value does not match its schema, or rows of a topic might be written
                otherwise than they were read.
            SchemaError: A schema cannot be read, or values of its type cannot be encoded.
        """
        names = batch.schema.names
        null_flags = column_values(batch, _NULL_VALUE, first_row)
        is_guessed = was_read and _NULL_VALUE not in names
        if not self._has_keys(names):
            self._check_whole(batch)
            return EncodedValues(self._values(batch, null_flags, first_row, is_guessed=is_guessed))
        if self._is_separated:
            keys = self._separated_keys(batch, first_row, was_read=was_read)
            return EncodedValues(
                self._values(batch, null_flags, first_row, is_guessed=is_guessed), keys
            )
        nulls = pa.array([each is True for each in null_flags], pa.bool_())
        row = pc.index(pc.and_not(nulls, self.key.null_rows(batch)), value=True).as_py()
        if row >= 0:
            reason = "a null value cannot have a key if both are in one payload (INLINE)"
            raise value_error(_NULL_VALUE, first_row + row, reason)
        keys, values = (
            _part_payloads(part, batch, nulls, first_row, was_read=was_read)
            for part in (self.key, self.value)
        )
        return EncodedValues(_pairs(null_flags, keys, values, first_row, is_guessed=is_guessed))

    def _separated_keys(
        self, batch: pa.RecordBatch, first_row: int, *, was_read: bool
    ) -> list[bytes | None]:
        """Encode the keys of a KEY_VALUE whose parts are SEPARATED.

        If all fields of a key are null, the column of undecoded keys shows whether the key is null.
        """
        names = batch.schema.names
        no_nulls = pa.array([False] * batch.num_rows)
        if not was_read or self.key.is_whole(names) or _UNDECODED_KEYS.isdisjoint(names):
            return _part_payloads(self.key, batch, no_nulls, first_row, was_read=was_read)
        undecoded = undecoded_keys(batch, first_row)
        has_none = pa.array([key is None for key in undecoded], pa.bool_())
        ambiguous_rows = pc.and_not(self.key.ambiguous_rows(batch), has_none)
        nulls = pc.and_not(self.key.null_rows(batch), ambiguous_rows)
        encoded = self.key.payloads(batch, nulls, first_row)
        for row, is_ambiguous in enumerate(ambiguous_rows.to_pylist()):
            # With salvage, a key that could not be decoded is read as null fields.
            if is_ambiguous and not _is_key(undecoded[row], encoded[row]):
                raise _unclear_null_error(self.key, first_row + row)
        return encoded

    def _check_whole(self, batch: pa.RecordBatch) -> None:
        """Raise if values have no keys although INLINE payloads contain both."""
        if self._is_keyed and not self._is_separated and not self.value.is_raw(batch):
            message = (
                "a KEY_VALUE whose parts are INLINE needs its keys: give them as"
                f" {KEY_COLUMN} or its fields, or give payloads of key and value as {VALUE_COLUMN}"
            )
            raise OptionError(message)

    def _values(
        self, batch: pa.RecordBatch, null_flags: Sequence[Any], first_row: int, *, is_guessed: bool
    ) -> list[bytes | None]:
        """Return payloads that contain only values."""
        nulls = pa.array([each is True for each in null_flags], pa.bool_())
        if is_guessed:
            row = pc.index(self.value.ambiguous_rows(batch), value=True).as_py()
            if row >= 0:
                reason = "its value may be a null value or a record of nulls"
                raise missing_column_error(first_row + row, reason, _NULL_VALUE)
            nulls = self.value.null_rows(batch)
        try:
            payloads = self.value.payloads(batch, nulls, first_row)
        except OptionError as error:
            names = batch.schema.names
            is_silent = not self.value.is_whole(names) and _NULL_VALUE not in names
            if is_silent and pc.any(self.value.null_rows(batch)).as_py():
                error.message += f"; to write a null value, set {_NULL_VALUE} to true in its row"
            raise
        for row, is_null in enumerate(null_flags):
            if is_null:
                payloads[row] = None
            elif is_null is False and payloads[row] is None:
                if self.value.null is None:
                    reason = (
                        f"{_NULL_VALUE} is false, but the value is null; salvage may have lost it"
                    )
                    raise value_error(VALUE_COLUMN, first_row + row, reason)
                payloads[row] = self.value.null
        return payloads


def _part_payloads(
    part: ValuePart,
    batch: pa.RecordBatch,
    nulls: pa.BooleanArray,
    first_row: int,
    *,
    was_read: bool,
) -> list[bytes | None]:
    """Encode one part of a KEY_VALUE; no column says whether the part is null."""
    if was_read and not part.is_whole(batch.schema.names):
        row = pc.index(pc.and_not(part.ambiguous_rows(batch), nulls), value=True).as_py()
        if row >= 0:
            raise _unclear_null_error(part, first_row + row)
        nulls = pc.or_(nulls, part.null_rows(batch))
    return part.payloads(batch, nulls, first_row)


def _unclear_null_error(part: ValuePart, row: int) -> OptionError:
    return OptionError(
        f"row {row} (from 0) was read from a topic, and {part.name} may be null or a record of"
        ' nulls: read it with value="struct"'
    )


def _is_key(undecoded: str | bytes | None, encoded: bytes | None) -> bool:
    """Return whether a key from a read, perhaps in Base64, has these bytes."""
    if isinstance(undecoded, str) and encoded is not None:
        return undecoded in {base64.b64encode(encoded).decode(), encoded.decode("utf-8", "replace")}
    return undecoded == encoded


def _pairs(
    null_flags: Sequence[Any],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    first_row: int,
    *,
    is_guessed: bool,
) -> list[bytes | None]:
    """Return INLINE payloads: each part after its length. A null value is None."""
    pairs: list[bytes | None] = []
    for row, (is_null, key, value) in enumerate(
        zip(null_flags, keys, values, strict=True), first_row
    ):
        is_empty = key is None and value is None
        if is_empty and is_guessed:
            raise missing_column_error(
                row, "it may be a null value or a pair of nulls", _NULL_VALUE
            )
        if is_null or (is_null is None and is_empty):
            pairs.append(None)
        else:
            pairs.append(_prefix_length(key) + _prefix_length(value))
    return pairs


def _prefix_length(data: bytes | None) -> bytes:
    return _ABSENT if data is None else _LENGTH.pack(len(data)) + data
