"""The table kinds that topics can be copied to, and how to open a table of each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.extras import install_command
from arrow_io.errors import OptionError
from arrow_io.storage.location import Location
from connector.tables.delta_options import split_properties
from connector.tables.parquet import ParquetTable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from connector.tables.evolution import TableKind
    from connector.tables.table import LakeTable

KINDS: Final[tuple[TableKind, ...]] = ("delta", "iceberg", "parquet")
_LIBRARIES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}


def open_table(
    kind: TableKind,
    target: str,
    storage_options: Mapping[str, object] | None,
    table_options: Mapping[str, object] | None,
) -> LakeTable:
    """Return a table, which need not exist yet. Sends no request, except to an Iceberg catalog.

    Args:
        kind: The table's format.
        target: URL of the table's folder. For Iceberg, the table's name in the catalog,
            `namespace.table`.
        storage_options: Options of the fsspec file system that data files are written with.
        table_options: For Delta, options of `deltalake`'s own storage, and properties of a new
            table, which start with `delta.`. For Iceberg, the properties of the catalog, its name
            as `catalog`, the URL of a new table's folder as `location`, and options of the table
            (`connector.tables.iceberg_options`).

    Raises:
        OptionError: The format is unknown, its library is not installed, or the options do not
            apply to it.
    """
    texts = {name: str(value) for name, value in (table_options or {}).items()}
    if kind not in KINDS:
        message = f"format must be one of {', '.join(KINDS)}, not {kind!r}"
        raise OptionError(message)
    if kind == "parquet":
        if texts:
            message = "table_options are for Delta and Iceberg: plain Parquet has none"
            raise OptionError(message)
        return ParquetTable(Location(target, storage_options))
    module: Any = _module(kind)
    if kind == "delta":
        properties, storage = split_properties(texts)
        table: LakeTable = module.DeltaTable(Location(target, storage_options), storage, properties)
        return table
    iceberg: LakeTable = module.IcebergTable.open(target, texts, storage_options)
    return iceberg


def _module(kind: TableKind) -> ModuleType:
    try:
        return import_module(f"connector.tables.{kind}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != _LIBRARIES[kind]:
            raise
        message = f"{kind} tables need {_LIBRARIES[kind]}: {install_command(kind)}"
        raise OptionError(message) from None
