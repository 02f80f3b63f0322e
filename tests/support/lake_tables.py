"""Rows of lake tables: written to files for a commit, and read by readers that are not ours."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from connector.tables.delta import DeltaTable
from connector.tables.file_writer import FileSettings, FileWriter
from connector.tables.iceberg import IcebergTable
from connector.tables.table import Commit
from connector.tables.transforms import Partitioning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.tables.evolution import TableKind
    from connector.tables.parquet import ParquetTable
    from connector.tables.table import LakeTable, TableState


def staged(  # noqa: PLR0917 - in the order of what a commit has
    table: LakeTable,
    standing: TableState | None,
    rows: pa.RecordBatch | pa.Table,
    after: str,
    partition_by: Sequence[str] = (),
    summary: Mapping[str, str] | None = None,
) -> Commit:
    """Write rows to files, and return the commit that adds them to a table in this state."""
    schema = table.storable(rows.schema, standing)
    partitioning = standing.partitioning if standing else Partitioning.parse(partition_by, schema)
    kind: TableKind = "parquet"
    if isinstance(table, DeltaTable | IcebergTable):
        kind = "delta" if isinstance(table, DeltaTable) else "iceberg"
    settings = FileSettings(table.location, table.data_prefix, schema, partitioning, kind)
    with FileWriter(settings) as writer:
        for each in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            writer.write(each)
        files = writer.finish()
    before = standing.progress if standing else None
    return Commit(files, schema, partitioning, before, after, summary or {})


def table_of(table: DeltaTable | ParquetTable) -> pa.Table:
    """All rows of a table: of Delta's by Polars, of plain files by pyarrow."""
    if isinstance(table, DeltaTable):
        frame = pl.scan_delta(table.location.url, storage_options=table._options() or None)
        return frame.collect().to_arrow()
    tables = []
    for each in table.files():
        data = table.location.read_object(each.path, max_bytes=1 << 30).data
        read = pq.read_table(io.BytesIO(data))
        assert read.num_rows == each.rows
        assert len(data) == each.size_bytes
        tables.append(read)
    if not tables:
        return pa.table({})
    return pa.concat_tables(tables, promote_options="permissive")


def rows_of(table: DeltaTable | ParquetTable, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Some columns of all rows, in the order of the first."""
    rows: list[dict[str, Any]] = table_of(table).select(list(columns)).to_pylist()
    return sorted(rows, key=lambda row: row[columns[0]])
