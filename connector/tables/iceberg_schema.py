"""Conversion of an Iceberg table's columns and partitions to and from those of a copy.

Iceberg identifies a column by its field id. Files store it in the metadata of each field of their
schema, at every depth (`PARQUET:field_id`). So a column can be renamed, and another can take its
name, without rewriting files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DoubleType, FloatType

from arrow_io.errors import LakeTableError
from connector.tables.evolution import storable_schema
from connector.tables.transforms import PartitionField, Partitioning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from connector.tables.transforms import Transform

_FIELD_ID: Final = b"PARQUET:field_id"
_TRANSFORM: Final = re.compile(r"(identity|year|month|day|hour)|bucket\[(\d+)\]")


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return a table's columns with the types in which copies write them, and their field ids.

    Raises:
        LakeTableError: A column has a type that Arrow lacks.
    """
    try:
        columns = schema_to_pyarrow(schema, include_field_ids=True)
    except (TypeError, ValueError) as error:
        message = f"the Iceberg table has a column that Arrow has no type for: {error}"
        raise LakeTableError(message) from error
    return storable_schema(columns, "iceberg")


def new_schema(columns: pa.Schema, *, has_identifier: bool) -> Schema:
    """Return the columns of a new table.

    Args:
        columns: The columns, with field ids.
        has_identifier: Whether the columns that are never null identify a row. Iceberg does not
            allow floating-point numbers among them: then the table has no identifier.
    """
    schema = pyarrow_to_schema(columns)
    required = [each for each in schema.fields if each.required]
    if not has_identifier or any(
        isinstance(each.field_type, FloatType | DoubleType) for each in required
    ):
        return schema
    return Schema(*schema.fields, identifier_field_ids=[each.field_id for each in required])


def partitioning_from_spec(spec: PartitionSpec, schema: Schema) -> Partitioning:
    """Return the partitioning that a partition spec describes.

    Raises:
        LakeTableError: A copy does not support a partition field. The message names it.
    """
    fields = []
    for field in spec.fields:
        source = schema.find_column_name(field.source_id)
        match = _TRANSFORM.fullmatch(str(field.transform))
        if match is None or source is None or source not in {each.name for each in schema.fields}:
            message = (
                f"the Iceberg table is partitioned by {field.name} ({field.transform} of {source}),"
                " which a copy cannot write"
            )
            raise LakeTableError(message)
        transform = cast("Transform", match[1] or "bucket")
        fields.append(PartitionField(source, transform, int(match[2] or 0)))
    return Partitioning(tuple(fields))


def partition_spec(partitioning: Partitioning, schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table with the columns of `schema`."""
    fields = []
    for number, field in enumerate(partitioning.fields, PARTITION_FIELD_ID_START):
        text = f"bucket[{field.buckets}]" if field.transform == "bucket" else field.transform
        source = schema.find_field(field.source)
        transform = parse_transform(text)
        fields.append(
            IcebergField(
                source_id=source.field_id, field_id=number, transform=transform, name=field.name
            )
        )
    return PartitionSpec(*fields)


def find_misnumbered_field(files: pa.Schema, table: pa.Schema) -> str | None:
    """Return a field whose id differs between files and table, or None if there is none."""
    numbers = dict(_field_ids(table))
    for path, number in _field_ids(files):
        if number is None or numbers.get(path) != number:
            return ".".join(path)
    return None


def _field_ids(
    fields: Iterable[pa.Field], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], bytes | None]]:
    """Yield the path of names and the id of each field, at every depth."""
    types = pa.types
    for field in fields:
        field_path = (*path, field.name)
        yield field_path, (field.metadata or {}).get(_FIELD_ID)
        type_ = field.type
        if types.is_struct(type_):
            yield from _field_ids(type_, field_path)
        elif types.is_map(type_):
            yield from _field_ids((type_.key_field, type_.item_field), field_path)
        elif types.is_list(type_):
            yield from _field_ids((type_.value_field,), field_path)
