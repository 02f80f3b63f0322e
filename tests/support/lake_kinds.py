"""A table of each format, and its rows by the format's own library."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import deltalake

from connector.tables.iceberg import IcebergTable
from connector.tables.parquet import ParquetTable
from connector.tables.table_kinds import open_table
from tests.support.lake_tables import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable


@contextmanager
def table_in(folder: Path, kind: TableKind) -> Iterator[LakeTable]:
    """The table of a folder, which need not be there; of Iceberg, in a catalog that is a file."""
    if kind != "iceberg":
        yield open_table(kind, str(folder / "t"), None, None)
        return
    database = f"sqlite:///{folder}/catalog.db"
    options = {"type": "sql", "uri": database, "warehouse": folder.absolute().as_uri()}
    table = open_table(kind, "shop.t", None, options)
    assert isinstance(table, IcebergTable)
    table.catalog.create_namespace_if_not_exists("shop")
    try:
        yield table
    finally:
        table.catalog.close()


def read_back(table: LakeTable) -> pa.Table:
    """All rows: of Delta by `deltalake`, of Iceberg by `pyiceberg`, of plain files by `pyarrow`."""
    if isinstance(table, IcebergTable):
        return table.catalog.load_table(table.identifier).scan().to_arrow()
    if isinstance(table, ParquetTable):
        return table_of(table)
    return deltalake.DeltaTable(table.location.url).to_pyarrow_table()
