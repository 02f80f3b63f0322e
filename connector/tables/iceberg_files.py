"""Data files of an Iceberg table: entries of its manifests, and snapshots that replace them."""

from __future__ import annotations

import re
import struct
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, pyarrow_to_schema
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import DecimalType, DoubleType, FloatType, ListType, MapType, StructType
from pyiceberg.utils.truncate import (
    truncate_upper_bound_binary_string,
    truncate_upper_bound_text_string,
)

from arrow_io.errors import LakeTableError, StorageError
from arrow_io.storage.redaction import redacted
from connector.tables.evolution import fit_rows
from connector.tables.iceberg_schema import arrow_schema, partitioning_from_spec
from connector.tables.table import TableFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType, PrimitiveType

    from connector.tables.data_file import ColumnStats, DataFile

_BOUND_LENGTH: Final = 16
"""Maximum length of a string bound in characters, or a binary one in bytes: Iceberg's default
(`write.metadata.metrics.default`)."""
_EXACT: Final = Context(prec=38)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
"""Matches a bound that became invalid when its last character was incremented."""


def iceberg_file(file: DataFile, url: str, spec: PartitionSpec, schema: Schema) -> IcebergFile:
    """Return a file as an entry of Iceberg's manifests. Its partition has the fields of `spec`."""
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    nans: dict[int, int] = {}
    for name, stats in file.stats.items():
        field = schema.find_field(name)
        nulls[field.field_id] = stats.nulls
        least, greatest = _bounds(cast("PrimitiveType", field.field_type), stats)
        if least is not None and isinstance(field.field_type, FloatType | DoubleType):
            nans[field.field_id] = 0  # Without a NaN count, bounds are ignored.
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
    """A snapshot that adds and removes files.

    Neither of the library's own producers suffices. An overwrite keeps one manifest per commit
    forever, even if it lists only removed files. An append removes nothing.

    If the rows stay the same, the snapshot is a *replace*, which streams ignore.
    """

    def __init__(
        self,
        table: Table,
        transaction: Transaction,
        summary: Mapping[str, str],
        branch: str,
        *,
        has_same_rows: bool,
    ) -> None:
        super().__init__(
            Operation.OVERWRITE,
            transaction,
            table.io,
            snapshot_properties=dict(summary),
            branch=branch,
        )
        self._has_same_rows = has_same_rows

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        if not self._has_same_rows:
            return summary
        # The library computes totals of other operations only.
        return Summary(Operation.REPLACE, **summary.additional_properties)

    def _existing_manifests(self) -> list[ManifestFile]:
        """Return the manifests that list files of the current snapshot."""
        manifests = super()._existing_manifests()
        return [each for each in manifests if each.has_added_files() or each.has_existing_files()]


def has_renamed_columns(metadata: TableMetadata) -> bool:
    """Return whether a column has another name in older files, or a name had another column."""
    names: dict[int, str] = {}
    for schema in metadata.schemas:
        for field_id in schema.field_ids:
            name = schema.find_column_name(field_id) or ""
            if names.setdefault(field_id, name) != name:
                return True
    return len(set(names.values())) < len(names)


def table_file(
    task: FileScanTask, schema: Schema, spec: PartitionSpec, columns: Sequence[str], folder: str
) -> TableFile:
    """Return a file of the table's manifests, with the bounds of `columns`.

    The task has the deletes that apply to the file, which was written with the partition spec. The
    path is relative to `folder`, unless that is empty.
    """
    try:
        fields = partitioning_from_spec(spec, schema).fields
        values: Sequence[Any] = [task.file.partition[n] for n in range(len(fields))]
        partition = {str(each): value for each, value in zip(fields, values, strict=True)}
    except LakeTableError:  # Written by others, with a partitioning that no copy supports.
        partition = {}
    bounds = {}
    for name in columns:
        field = schema.find_field(name)
        low, high = (
            _read_bound(cast("PrimitiveType", field.field_type), each)
            for each in (
                (task.file.lower_bounds or {}).get(field.field_id),
                (task.file.upper_bounds or {}).get(field.field_id),
            )
        )
        bounds[name] = (partition[name], partition[name]) if name in partition else (low, high)
    rows = None if task.delete_files else task.file.record_count
    nulls = task.file.null_value_counts or {}
    not_null = frozenset(
        each for each in columns if nulls.get(schema.find_field(each).field_id) == 0
    )
    size_bytes, url = task.file.file_size_in_bytes, task.file.file_path
    has_path = folder and url.startswith(folder) and not task.delete_files
    path = url.removeprefix(folder) if has_path else None
    return TableFile(task, bounds, partition, size_bytes, rows, not_null, path)


def _read_bound(type_: PrimitiveType, data: bytes | None) -> object:
    """Return a bound as a value; None if it is not recorded, or malformed.

    Some writers truncate texts within a character.
    """
    try:
        return None if data is None else from_bytes(type_, data)
    except (struct.error, ValueError):
        return None


def read_file(
    metadata: TableMetadata, io: FileIO, file: TableFile, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file, without deleted rows.

    Args:
        metadata: The table's metadata.
        io: The table's store.
        file: A file that `table_file` returned.
        columns: Columns of the table. None reads all.

    Raises:
        LakeTableError: The library would change rows of the file.
        StorageError: The library cannot read the file.
    """
    schema = metadata.schema() if columns is None else metadata.schema().select(*columns)
    task = scan_task_from_file(file)
    try:
        with io.new_input(task.file.file_path).open() as source, pq.ParquetFile(source) as parquet:
            if not task.delete_files and _has_columns_of(metadata, parquet.schema_arrow):
                fields = arrow_schema(schema)
                names = [each for each in fields.names if each in parquet.schema_arrow.names]
                for batch in parquet.iter_batches(columns=names):
                    yield fit_rows(batch, fields, "iceberg")
                return
        _check_nulls(metadata, schema)
        yield from ArrowScan(metadata, io, schema, AlwaysTrue()).to_record_batches([task])
    except LakeTableError:
        raise
    except Exception as error:  # noqa: BLE001 - what stores raise has no base
        text = redacted(str(error), io.properties) or type(error).__name__
        message = f"a file of the Iceberg table at {metadata.location} cannot be read: {text}"
        raise StorageError(message) from None


def _has_columns_of(metadata: TableMetadata, columns: pa.Schema) -> bool:
    """Return whether a file's columns have the names of the table's, and the others are null."""
    schema = metadata.schema()
    try:
        file_schema = pyarrow_to_schema(columns)
    except Exception:  # noqa: BLE001 - the file has no field ids, or types that only a scan knows
        return False
    missing = schema.field_ids - file_schema.field_ids
    partitioned = {each.source_id for spec in metadata.partition_specs for each in spec.fields}
    has_values = any(schema.find_field(each).initial_default is not None for each in missing)
    return not (has_values or missing & partitioned) and all(
        schema.find_column_name(each) == file_schema.find_column_name(each)
        for each in file_schema.field_ids
    )


def _check_nulls(metadata: TableMetadata, schema: Schema) -> None:
    """Raise `LakeTableError` if the library's scan would change rows with these columns."""
    if any(_loses_nulls(each.field_type) for each in schema.fields):
        message = (
            f"a file of the Iceberg table at {metadata.location} has deleted rows, or columns that"
            " were renamed since, and PyIceberg would read lists and maps of structs that are null"
            " as empty: rewrite the table's files with Spark or Trino"
        )
        raise LakeTableError(message)


def _loses_nulls(type_: IcebergType) -> bool:
    """Return whether the library (0.12) reads null values of a type as empty ones."""
    if isinstance(type_, StructType):
        return any(_loses_nulls(each.field_type) for each in type_.fields)
    if isinstance(type_, ListType | MapType):
        inner = type_.element_type if isinstance(type_, ListType) else type_.value_type
        return isinstance(inner, StructType) or _loses_nulls(inner)
    return False


def scan_task_from_file(file: TableFile) -> FileScanTask:
    """Return the library's object for a file that `table_file` returned."""
    assert isinstance(file.token, FileScanTask)  # noqa: S101 - what `table_file` returned
    return file.token


def _partition(file: DataFile, spec: PartitionSpec, schema: Schema) -> Record:
    """Return the partition's values as Iceberg stores them: dates and times as numbers."""
    return Record(
        *(
            partition_record_value(field, value, schema)
            if isinstance(field.transform, IdentityTransform)
            else value
            for field, value in zip(spec.fields, file.partition, strict=True)
        )
    )


def _bounds(type_: PrimitiveType, stats: ColumnStats) -> tuple[bytes | None, bytes | None]:
    """Return the minimum and maximum as Iceberg stores them. None if one is not recorded."""
    least: Any = stats.least
    greatest: Any = stats.greatest
    if least is None or greatest is None:
        return None, None
    if isinstance(type_, DecimalType):
        # `to_bytes` rejects a scale other than the type's.
        unit = Decimal((0, (1,), -type_.scale))
        least, greatest = (_EXACT.quantize(each, unit) for each in (least, greatest))
    elif isinstance(least, float):
        # Engines order -0.0 before 0.0, and Parquet footers do not tell which zero a bound is.
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
