"""The scalar function and the macros of the table functions on a connection of DuckDB."""

from __future__ import annotations

import itertools
import re
from types import ModuleType
from typing import TYPE_CHECKING, Final

from arrow_io.errors import IncompleteReadWarning
from connector.display.warnings import warn_of_read
from connector.engines.duckdb_macros import MACROS, READ, macro_sql
from connector.engines.duckdb_views import VIEW_MACRO, create_views

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

    from connector.engines.duckdb_views import Views

_FUNCTION: Final = "pulsar_offload_bind_"
_NUMBERS: Final = itertools.count(1)


def register(
    con: DuckDBPyConnection | ModuleType,
    bind: Callable[[str], str],
    views: Views | None = None,
) -> None:
    """Create the table functions on a connection, and views, in place of earlier ones.

    Args:
        con: The connection; or the module `duckdb`, for its default connection.
        bind: The scalar function that the macros call (`duckdb_macros`).
        views: The views to create.

    Raises:
        OptionError: There is another database or schema of the views' name.
    """
    _warn_of_nan()
    function = f"{_FUNCTION}{next(_NUMBERS)}"
    con.create_function(function, bind, ["VARCHAR"], "VARCHAR", side_effects=True)
    replaced = {registered_function(con)}
    if views is not None:
        replaced.add(_called_function(con, views.database, VIEW_MACRO))
        try:
            with _cursor(con) as cursor:
                create_views(cursor, views, function)
        except BaseException:
            con.remove_function(function)
            raise
    add_macros(con, function)
    if _is_in_memory(con):
        add_macros(con, function, "MACRO")
    for each in replaced:
        if each is not None and not _is_called(con, each):
            con.remove_function(each)


def _warn_of_nan() -> None:
    """Warn that DuckDB 1 relies on comparisons that NaN fails, which its own tables do not."""
    # The caller has imported it. Here, so that without DuckDB the package can be imported.
    import duckdb

    if duckdb.__version__.startswith(("0.", "1.")):
        message = (
            f"DuckDB {duckdb.__version__} leaves out rows with NaN in comparisons of floats, such"
            " as price > 0: use DuckDB 2, or add OR isnan(price)"
        )
        warn_of_read(message, IncompleteReadWarning)


def add_macros(
    con: DuckDBPyConnection | ModuleType, function: str, kind: str = "TEMP MACRO"
) -> None:
    """Create the macros that call a registered scalar function.

    All connections to a database have the function, but only one connection has a `TEMP MACRO`.
    """
    macros = [macro_sql(name, function) for name in MACROS]
    con.execute(";".join(f"CREATE OR REPLACE {kind} {each}" for each in macros))


def registered_function(con: DuckDBPyConnection | ModuleType) -> str | None:
    """Return the scalar function that this connection's own macros call, if it has them."""
    return _called_function(con, "temp", READ)


def _cursor(con: DuckDBPyConnection | ModuleType) -> DuckDBPyConnection:
    connection: DuckDBPyConnection = (
        con.default_connection() if isinstance(con, ModuleType) else con
    )
    return connection.cursor()


def _called_function(con: DuckDBPyConnection | ModuleType, database: str, macro: str) -> str | None:
    """Return the scalar function that the macro in a database calls, if it has one."""
    # With `fetchone`, the result would be unfinished, and DuckDB refuses other calls until it is.
    rows = con.execute(
        "SELECT macro_definition FROM duckdb_functions()"
        " WHERE database_name = ? AND function_name = ?",
        [database, macro],
    ).fetchall()
    match = re.search(rf"{_FUNCTION}\d+", rows[0][0]) if rows else None
    return match and match[0]


def _is_called(con: DuckDBPyConnection | ModuleType, function: str) -> bool:
    """Return whether a macro calls a scalar function, such as that of another bucket's views."""
    [(is_called,)] = con.execute(
        "SELECT count(*) > 0 FROM duckdb_functions() WHERE contains(macro_definition, ? || '(')",
        [function],
    ).fetchall()
    return bool(is_called)


def _is_in_memory(con: DuckDBPyConnection | ModuleType) -> bool:
    """Return whether all cursors see a macro in the current database, and no file stores it."""
    rows = con.execute(
        "SELECT path IS NULL AND type = 'duckdb' FROM duckdb_databases()"
        " WHERE database_name = current_database()"
    ).fetchall()
    return rows == [(True,)]
