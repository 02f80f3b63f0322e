"""The rows of lake tables, by readers that are not ours."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from connector.lake.delta import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.lake.parquet import ParquetTable


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
