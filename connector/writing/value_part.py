"""Encoding of the columns of a value, or of one part of a KEY_VALUE, as payloads."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.core.lazy import cached_property
from arrow_io.errors import OptionError
from arrow_io.payloads.encoder import PayloadEncoder
from connector.writing.column_values import cast, first_failing, is_binary, is_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from arrow_io.payloads.schema_info import SchemaInfo


class ValuePart:
    """Encoder of one column of whole values, or of one column per field.

    Args:
        schema: The schema of the values; None if values are bytes.
        name: Description of a value, for error messages.
        whole: Name of the column of whole values.
        type_: Type of whole values in a read; None if unknown.
        fields: Name of each field in the struct of the whole value, by column name.
    """

    def __init__(
        self,
        schema: SchemaInfo | None,
        name: str,
        whole: str,
        type_: pa.DataType | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.schema = schema
        self.name = name
        self.whole = whole
        self.fields = fields or {}
        self._type = type_

    def columns(self, names: Collection[str]) -> list[str]:
        """Return the names of the columns that have the values, in order: the whole or fields."""
        fields = [name for name in names if name in self.fields]
        return [self.whole] if self.is_whole(names) else fields

    def is_whole(self, names: Collection[str]) -> bool:
        """Return whether one column has whole values."""
        # A field may have the name of the whole column. Then other fields have columns too.
        fields = self.fields.keys() & set(names)
        return self.whole in names and not (self.whole in fields and len(fields) > 1)

    def is_raw(self, batch: pa.RecordBatch) -> bool:
        """Return whether the values are payloads already.

        Raises:
            OptionError: The values may be payloads or typed values that are bytes.
        """
        if not self.is_whole(batch.schema.names):
            return False
        column_type = batch.schema.field(self.whole).type
        if is_text(column_type):
            return self.schema is None
        if not is_binary(column_type):
            return False
        is_bytes = self._type is not None and pa.types.is_binary(self._type)
        if (
            is_bytes
            and self.schema
            and self.schema.type != "BYTES"
            and not _is_all_null(column_type)
        ):
            message = (
                f"the column {self.whole} may be payloads, or the values of a schema of type"
                f" {self.schema.type}, which are bytes too: pass Message objects with the payloads"
            )
            raise OptionError(message)
        return True

    def null_rows(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows have nulls in all columns."""
        names = self.columns(batch.schema.names)
        return reduce(pc.and_, (batch.column(name).is_null() for name in names))

    def ambiguous_rows(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows a read may have made from a null value or from a payload of nulls."""
        names = self.columns(batch.schema.names)
        if self.is_raw(batch):
            is_ambiguous = False
        elif self.is_whole(names):
            is_ambiguous = self._encoder.null is not None
        else:
            fields = [self.fields[name] for name in names]
            is_ambiguous = self._encoder.null is not None or self._encoder.may_be_null(fields)
        return self.null_rows(batch) if is_ambiguous else pa.array([False] * batch.num_rows)

    @property
    def null(self) -> bytes | None:
        """A payload that is read as null; None if there is no such payload."""
        return self._encoder.null if self.schema is not None else None

    @cached_property
    def _encoder(self) -> PayloadEncoder:
        if self.schema is None:
            message = f"{self.whole} must be bytes or text unless a schema is given"
            raise OptionError(message)
        return PayloadEncoder(self.schema, self.name)

    def payloads(
        self, batch: pa.RecordBatch, nulls: pa.BooleanArray, first_row: int
    ) -> list[bytes | None]:
        """Return the payloads of rows; None for null.

        Args:
            batch: The rows.
            nulls: Mask of the rows that are null even if they have fields.
            first_row: Number of the first row.

        Raises:
            OptionError: A value does not match the schema; the error names the row.
            SchemaError: The schema cannot be read, or values of its type cannot be encoded.
        """
        if self.is_raw(batch):
            raw: list[bytes | None] = cast(batch, self.whole, pa.binary(), first_row).to_pylist()
            return raw
        names = self.columns(batch.schema.names)
        if self.is_whole(names):
            return self._encode(batch.column(self.whole), first_row)
        arrays = [batch.column(name) for name in names]
        fields = [
            pa.field(self.fields[name], array.type)
            for name, array in zip(names, arrays, strict=True)
        ]
        records = pa.StructArray.from_arrays(arrays, fields=fields, mask=nulls)
        return self._encode(records, first_row)

    def _encode(self, values: pa.Array, first_row: int) -> list[bytes | None]:
        """Encode values; an error names the first row that fails."""

        def find_error(start: int, length: int) -> OptionError | None:
            try:
                self._encoder.encode(values.slice(start, length))
            except OptionError as error:
                return error
            return None

        try:
            return self._encoder.encode(values)
        except OptionError as error:
            row = first_failing(len(values), lambda *rows: find_error(*rows) is not None)
            if row is None:
                raise
            row_error = find_error(row, 1) or error
            message = f"row {first_row + row} (from 0): {row_error.message}"
            raise OptionError(message) from None


def _is_all_null(type_: pa.DataType) -> bool:
    return bool(pa.types.is_null(type_))
