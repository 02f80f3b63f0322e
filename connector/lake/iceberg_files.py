"""What an Iceberg table says of a file, from what its writer counted: nothing is read again."""

from __future__ import annotations

import re
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, FloatType
from pyiceberg.utils.truncate import (
    truncate_upper_bound_binary_string,
    truncate_upper_bound_text_string,
)

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import PrimitiveType

    from connector.lake.data_file import ColumnStats, DataFile

_BOUND_LENGTH: Final = 16
"""Of a longer text or of longer bytes, so many characters or bytes are kept as a bound: Iceberg's
default (`write.metadata.metrics.default`)."""
_EXACT: Final = Context(prec=38)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
"""What a bound may become when its last character is raised by one, and no text can hold."""


def iceberg_file(file: DataFile, url: str, spec: PartitionSpec, schema: Schema) -> IcebergFile:
    """A file as Iceberg's manifests hold it.

    Args:
        file: What its writer knows of it.
        url: Where it lies.
        spec: How the table is partitioned; its fields are those of the file's partition.
        schema: Columns of the table.
    """
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    nans: dict[int, int] = {}
    for name, stats in file.stats.items():
        field = schema.find_field(name)
        nulls[field.field_id] = stats.nulls
        least, greatest = _bounds(cast("PrimitiveType", field.field_type), stats)
        if least is not None and isinstance(field.field_type, FloatType | DoubleType):
            nans[field.field_id] = 0  # Else there would be no bounds.
        if least is not None:
            lower[field.field_id] = least
        if greatest is not None:
            upper[field.field_id] = greatest
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=_partition(file, spec, schema),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        value_counts=dict.fromkeys(nulls, file.rows),
        null_value_counts=nulls,
        nan_value_counts=nans,
        lower_bounds=lower,
        upper_bounds=upper,
        spec_id=spec.spec_id,
    )


def _partition(file: DataFile, spec: PartitionSpec, schema: Schema) -> Record:
    """The partition's values as Iceberg keeps them: times and dates as numbers."""
    return Record(
        *(
            partition_record_value(field, value, schema)
            if isinstance(field.transform, IdentityTransform)
            else value
            for field, value in zip(spec.fields, file.partition, strict=True)
        )
    )


def _bounds(type_: PrimitiveType, stats: ColumnStats) -> tuple[bytes | None, bytes | None]:
    """The least and the greatest value as Iceberg keeps them; None: not known."""
    least: Any = stats.least
    greatest: Any = stats.greatest
    if least is None or greatest is None:
        return None, None
    if isinstance(type_, DecimalType):
        # Which is refused with another scale than the type's.
        unit = Decimal((0, (1,), -type_.scale))
        least, greatest = (_EXACT.quantize(each, unit) for each in (least, greatest))
    elif isinstance(least, float):
        # Engines hold the negative zero for less; which of the two a footer has is not told.
        least, greatest = least or -0.0, greatest or 0.0
    elif isinstance(least, str):
        least = least[:_BOUND_LENGTH]
        greatest = truncate_upper_bound_text_string(greatest, _BOUND_LENGTH)
        if greatest is not None and _SURROGATES.search(greatest):
            greatest = None
    elif isinstance(least, bytes):
        least = least[:_BOUND_LENGTH]
        greatest = truncate_upper_bound_binary_string(greatest, _BOUND_LENGTH)
    return to_bytes(type_, least), None if greatest is None else to_bytes(type_, greatest)
