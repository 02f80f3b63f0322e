"""Views over topics in a DuckDB database in memory, which bind when they are used.

A view binds its SELECT when it is created, which would open every topic. So the views are created
over a macro that only has the columns that all topics have, and then the macro is replaced: DuckDB
binds a view again whenever a statement uses it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError
from connector.engines.duckdb_macros import READ, macro_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

VIEW_MACRO: Final = "pulsar_offload_read_"
"""The macro that the views call, which only a database of views has."""


@dataclass(frozen=True)
class Views:
    """Views over topics.

    Attributes:
        database: Name of the database that has them.
        names: Names of topics, in the form of `table_names`. Names that differ only in case get no
            view, because DuckDB ignores case.
        columns: The columns that every topic has.
    """

    database: str
    names: Sequence[str]
    columns: pa.Schema


def create_views(cursor: DuckDBPyConnection, views: Views, function: str) -> None:
    """Attach a database with a view for each topic, or update the views of one.

    Views that a user created in the database stay, also in the place of a topic's.
    Other connections see the new views, and the new macro that they call, all at once.

    Args:
        cursor: A connection without a transaction.
        views: The views.
        function: The scalar function that opens topics.

    Raises:
        OptionError: There is another database or schema of this name; or the function was created
            in a transaction that has not been committed.
    """
    database = views.database
    place = f"{_quoted(database)}.main"
    _check_committed(cursor, function)
    attach = f"ATTACH ':memory:' AS {_quoted(database)} (READ_WRITE)"
    is_attached = _is_attached(cursor, database)
    counts = Counter(name.lower() for name in views.names)
    new = {name for name in views.names if counts[name.lower()] == 1}
    rows = cursor.execute(
        "SELECT view_name FROM duckdb_views()"
        " WHERE database_name = ? AND schema_name = 'main' AND contains(sql, ?)",
        [database, f"{VIEW_MACRO}("],
    ).fetchall()
    old = {name for (name,) in rows}
    statements = [
        "BEGIN",
        *(() if is_attached else (attach,)),
        f"CREATE OR REPLACE MACRO {place}.{_columns_macro(cursor, views.columns)}",
        *(f"DROP VIEW {place}.{_quoted(name)}" for name in sorted(old - new)),
        *(
            f"CREATE VIEW IF NOT EXISTS {place}.{_quoted(name)}"
            f" AS FROM {place}.{VIEW_MACRO}({_literal(name)})"
            for name in sorted(new - old)
        ),
        f"CREATE OR REPLACE MACRO {macro_sql(READ, function, f'{place}.{VIEW_MACRO}')}",
        "COMMIT",
    ]
    cursor.execute(";".join(statements))


def _check_committed(cursor: DuckDBPyConnection, function: str) -> None:
    [(is_committed,)] = cursor.execute(
        "SELECT EXISTS (FROM duckdb_functions() WHERE function_name = ?)", [function]
    ).fetchall()
    if not is_committed:
        message = "views cannot be created in a transaction of the connection: commit it first"
        raise OptionError(message)


def _is_attached(cursor: DuckDBPyConnection, database: str) -> bool:
    """Return whether the database of the views exists.

    Raises:
        OptionError: There is another database or schema of this name.
    """
    [(is_name_used, is_attached)] = cursor.execute(
        "SELECT"
        " EXISTS (FROM duckdb_databases() WHERE lower(database_name) = lower($1))"
        " OR EXISTS (FROM duckdb_schemas() WHERE lower(schema_name) = lower($1)),"
        " EXISTS (FROM duckdb_functions() WHERE database_name = $1 AND function_name = $2)",
        [database, VIEW_MACRO],
    ).fetchall()
    if is_name_used and not is_attached:
        message = (
            f"views: there is another database or schema {database!r}: choose another name for that"
            " of the views"
        )
        raise OptionError(message)
    return bool(is_attached)


def _columns_macro(cursor: DuckDBPyConnection, columns: pa.Schema) -> str:
    relation = cursor.from_arrow(columns.empty_table())
    nulls = (
        f"NULL::{type_} AS {_quoted(name)}"
        for name, type_ in zip(relation.columns, relation.types, strict=True)
    )
    return f"{VIEW_MACRO}(topic) AS TABLE SELECT {', '.join(nulls)} LIMIT 0"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
