"""The files of an Iceberg table: as its manifests have them, and as its snapshots change them."""

from __future__ import annotations

import re
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, FloatType
from pyiceberg.utils.truncate import (
    truncate_upper_bound_binary_string,
    truncate_upper_bound_text_string,
)

from arrow_io.errors import LakeTableError
from connector.lake.iceberg_schema import partitioning_from_spec
from connector.lake.table import TableFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.manifest import ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
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


class ReplaceFiles(_OverwriteFiles, _MergeAppendFiles):
    """Adds and removes files in one snapshot.

    Of the library's two ways to do so, an overwrite keeps a manifest for each commit for good, even
    one that names nothing but files that were removed, and an append removes nothing.
    """

    def __init__(self, table: Table, transaction: Transaction, summary: Mapping[str, str]) -> None:
        super().__init__(
            Operation.OVERWRITE, transaction, table.io, snapshot_properties=dict(summary)
        )

    def _existing_manifests(self) -> list[ManifestFile]:
        """Those that name files which the table has."""
        manifests = super()._existing_manifests()
        return [each for each in manifests if each.has_added_files() or each.has_existing_files()]


def table_file(
    task: FileScanTask, schema: Schema, spec: PartitionSpec, columns: Sequence[str]
) -> TableFile:
    """A file as the table's manifests have it.

    Args:
        task: The file, and what was deleted of it.
        schema: Columns of the table.
        spec: How the file's rows were divided.
        columns: Columns of which bounds are wanted.
    """
    try:
        fields = partitioning_from_spec(spec, schema).fields
        values: Sequence[Any] = [task.file.partition[n] for n in range(len(fields))]
        partition = {str(each): value for each, value in zip(fields, values, strict=True)}
    except LakeTableError:  # It was written when others divided the table, as no copy can.
        partition = {}
    bounds = {}
    for name in columns:
        field = schema.find_field(name)
        low, high = (
            None if each is None else from_bytes(cast("PrimitiveType", field.field_type), each)
            for each in (
                (task.file.lower_bounds or {}).get(field.field_id),
                (task.file.upper_bounds or {}).get(field.field_id),
            )
        )
        bounds[name] = (partition[name], partition[name]) if name in partition else (low, high)
    return TableFile(task, bounds, partition)


def scan_task_from_file(file: TableFile) -> FileScanTask:
    """The file as the library has it."""
    assert isinstance(file.token, FileScanTask)  # noqa: S101 - what `table_file` gave
    return file.token


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
