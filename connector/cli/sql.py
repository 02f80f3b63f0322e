"""SQL over the topics of a bucket: DuckDB, with `read_pulsar` and the topics' names as tables."""

from __future__ import annotations

import re
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io import errors
from arrow_io.core.extras import install_command
from arrow_io.errors import (
    OptionError,
    PulsarOffloadError,
    TopicNotFoundError,
    UndecodedValuesWarning,
)
from arrow_io.messages.column_names import COLUMN_NAMES
from connector.engines.duckdb_functions import register_duckdb
from connector.inputs.topic_names import TopicName, select_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import ModuleType

    from duckdb import DuckDBPyConnection
    from duckdb import Error as DuckDBError

    from connector.catalog.catalog import Catalog
    from connector.dataset import TopicDataset
    from connector.options.topic_request import TopicRequest

_MAX_SQL_BYTES = 1 << 20
_ELSEWHERE = ("storage_options", "range_bytes", "trace")
"""Options of a catalog that hold for other places that a statement names too."""
_ERROR_NAME = re.compile(r"\b(\w+Error): (.+)")
_UNQUOTED = re.compile(r"[\w./-]+")
"""What may be meant as the name of a topic, and is arithmetic or a schema's table to DuckDB."""
_STRING = re.compile(r"'[^']*'")
_SHOW_TABLES = ["SHOW", "TABLES"]
_NO_COLUMN = (('Referenced column "', '" not found'),)
"""What stands before and after the name of a column that is missing."""
# In the second case DuckDB found a variable of this module under the name.
_NO_TABLE = (("Table with name ", " does not exist"), ('Python Object "', '"'))
"""What stands before and after the name of a table that is missing."""


def sql_text(sql: str | None, file: Path | None) -> str:
    """The SQL that a command line gives: as it stands, from standard input, or from a file.

    Args:
        sql: The SQL; `-` for standard input.
        file: The file; None if there is none.

    Raises:
        OptionError: Both are given, or neither; or the SQL cannot be read, or is longer than
            `_MAX_SQL_BYTES`.
    """
    if (sql is None) == (file is None):
        message = "give the SQL or --file, and not both"
        raise OptionError(message)
    if sql is not None and sql != "-":
        return sql
    source = "standard input" if file is None else str(file)
    if file is None and sys.stdin is None:
        message = f"no SQL in {source}: it is closed"
        raise OptionError(message)
    try:
        with sys.stdin.buffer if file is None else file.expanduser().open("rb") as stream:
            data = stream.read(_MAX_SQL_BYTES + 1)
        if len(data) > _MAX_SQL_BYTES:
            message = f"the SQL in {source} is longer than {_MAX_SQL_BYTES} bytes"
            raise OptionError(message)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the SQL in {source} is not UTF-8 at byte {error.start}"
    except OSError as error:
        message = f"no SQL in {source}: {error.strerror}"
    raise OptionError(message)


def run_sql(
    sql: str, catalog: Catalog, url: str, request: TopicRequest
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run SQL: the schema of the last statement's rows, and the rows as they come.

    `read_pulsar('…')` reads topics. A topic's name is a table too, unless the SQL makes a table of
    that name.

    Args:
        sql: One or several statements.
        catalog: The topics at the URL.
        url: Where the topics are.
        request: How they are read.

    Raises:
        OptionError: DuckDB is not installed, or the SQL is wrong.
        PulsarOffloadError: A topic cannot be read, or the query failed.
    """
    with _connect(sql, catalog, url, request) as connection:
        reader = _reader(connection, sql)
    return reader.schema, _read(reader, catalog)


def bound_topics(sql: str, catalog: Catalog, url: str, request: TopicRequest) -> list[TopicDataset]:
    """What a statement would read, each topic as often as it is named; no rows are read for it.

    Args:
        sql: One statement that gives rows.
        catalog: The topics at the URL.
        url: Where the topics are.
        request: How they are read.

    Raises:
        OptionError: DuckDB is not installed, or the SQL is wrong, or another kind of statement.
        PulsarOffloadError: A topic cannot be opened.
    """
    bound: list[TopicDataset] = []
    with _connect(sql, catalog, url, request, on_bind=bound.append) as connection:
        # Views were bound as they were made.
        bound.clear()
        _explain(connection, sql)
    return bound


@contextmanager
def _connect(
    sql: str,
    catalog: Catalog,
    url: str,
    request: TopicRequest,
    *,
    on_bind: Callable[[TopicDataset], None] | None = None,
) -> Iterator[DuckDBPyConnection]:
    """A connection on which the SQL can be run; DuckDB's errors leave as ours."""
    try:
        import duckdb  # noqa: PLC0415 - an optional engine
    except ModuleNotFoundError:
        message = f"SQL needs DuckDB: {install_command('cli', 'duckdb')}"
        raise OptionError(message) from None
    connection = duckdb.connect()
    # The metadata is this bucket's, and holds for no other place that a statement names.
    elsewhere = {n: each for n, each in request.catalog_options().items() if n in _ELSEWHERE}
    options = request.reading_options() | elsewhere | {"catalog": catalog}
    register_duckdb(connection, url, on_bind=on_bind, **options)
    try:
        _create_views(duckdb, connection, sql, catalog)
        yield connection
    except duckdb.Error as error:
        raise _explain_error(duckdb, error, sql, catalog) from None


def _explain_error(
    duckdb: ModuleType, error: DuckDBError, sql: str, catalog: Catalog
) -> PulsarOffloadError:
    """Our error for one that DuckDB raised for the SQL: where it is, and what may help."""
    text = str(error)
    wrong = isinstance(error, duckdb.ProgrammingError | duckdb.DataError)
    project_error = _to_project_error(text, catalog, OptionError if wrong else PulsarOffloadError)
    _, _, place = text.partition("\n\n")
    if place.startswith("LINE "):
        project_error.add_note(place.rstrip())
    topics = _named_topics(catalog)
    # What stands in a string is a name already.
    words = {word for each in _UNQUOTED.findall(_STRING.sub("", sql)) for word in each.split("--")}
    # What has dots may be meant as tenant, namespace and name.
    names = {word if _is_topic(topics, word) else word.replace(".", "/") for word in words}
    names = {name for name in names if not name.isidentifier() and _is_topic(topics, name)}
    quoted = [f'"{name}"' for name in sorted(names) if f'"{name}"' not in sql]
    if quoted:
        sign = "slashes" if any("/" in each for each in quoted) else "a hyphen"
        project_error.add_note(f"in SQL, a name with {sign} needs quotes: {', '.join(quoted)}")
    missing = _name_in(text, _NO_COLUMN)
    if missing in COLUMN_NAMES:
        project_error.add_note(
            f"{missing} is a column on request: give --columns '*,{missing}', or"
            f" read_pulsar('…', columns := ['*', '{missing}'])"
        )
    return project_error


def _named_topics(catalog: Catalog) -> set[TopicName]:
    return {name for topic in catalog.topics() for name in (topic, topic.base)}


def _explain(connection: DuckDBPyConnection, sql: str) -> None:
    """Bind SQL. DuckDB takes a function's variables for tables, so this one has few."""
    kinds = [str(each.type).rpartition(".")[2] for each in connection.extract_statements(sql)]
    if kinds != ["SELECT"]:
        message = f"--sql must be one SELECT, not {', '.join(kinds) or 'no statement'}"
        raise OptionError(message)
    connection.execute(f"EXPLAIN {sql}").fetchall()


def _reader(connection: DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """Run SQL. DuckDB takes a function's variables for tables, so this one has few."""
    relation = connection.sql(sql)
    if relation is None:
        message = "there is no statement in the SQL"
        raise OptionError(message)
    return pa.RecordBatchReader.from_stream(relation)


def _read(reader: pa.RecordBatchReader, catalog: Catalog) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        raise _to_project_error(str(error), catalog, PulsarOffloadError) from None


def _create_views(
    duckdb: ModuleType, connection: DuckDBPyConnection, sql: str, catalog: Catalog
) -> None:
    """Make a view of each word of the SQL that names a topic, behind the tables that the SQL makes.

    DuckDB lists the tables of a query only if it need not know their columns, as it must for USING.
    If a column has the name of a topic, there is a view too many, which reads nothing. Names that
    differ in case only become no views, for SQL would take one for the other.
    """
    connection.execute("CREATE SCHEMA pulsar")
    connection.execute("SET search_path = 'main,pulsar'")
    connection.execute("SET TimeZone = 'UTC'")
    topics = _named_topics(catalog)
    named: dict[str, set[str]] = {}
    for word in _words(duckdb, sql):
        if _is_topic(topics, word):
            named.setdefault(word.lower(), set()).add(word)
    for words in named.values():
        if len(words) == 1:
            [word] = words
            text = word.replace("'", "''")
            _create_view(duckdb, connection, word, f"FROM read_pulsar('{text}')", catalog)
    statements = (each.query.replace(";", " ") for each in connection.extract_statements(sql))
    if any(each.upper().split() == _SHOW_TABLES for each in statements):
        # The SQL names none of the others, so their rows are never asked for.
        for name in sorted({_table_name(topic.base) for topic in catalog.topics()}):
            if name.lower() not in named:
                _create_view(duckdb, connection, name, "SELECT NULL", catalog)


def _create_view(
    duckdb: ModuleType, connection: DuckDBPyConnection, name: str, rows: str, catalog: Catalog
) -> None:
    quoted = name.replace('"', '""')
    with warnings.catch_warnings():
        # The warning comes when a view is read.
        warnings.simplefilter("ignore", UndecodedValuesWarning)
        try:
            connection.execute(f'CREATE VIEW IF NOT EXISTS pulsar."{quoted}" AS {rows}')
        except duckdb.Error as error:
            # The user wrote no such statement, so its place helps nobody.
            raise _to_project_error(str(error), catalog, PulsarOffloadError) from None


def _table_name(topic: TopicName) -> str:
    """The shortest name by which SQL finds a topic."""
    for name in (topic.local_name, f"{topic.full_namespace}/{topic.local_name}"):
        if _is_topic({topic}, name):
            return name
    return str(topic)


def _words(duckdb: ModuleType, sql: str) -> Iterator[str]:
    """Everything in the SQL that can be the name of a table, without its quotes."""
    data = sql.encode(errors="replace")
    kinds = duckdb.token_type
    tokens = duckdb.tokenize(sql)
    stops = [start for start, _ in tokens] + [len(data)]
    for (start, kind), stop in zip(tokens, stops[1:], strict=True):
        if kind in {kinds.identifier, kinds.keyword, kinds.string_const}:
            text = data[start:stop].decode(errors="replace").strip()
            quote = text[:1] if text[:1] in {'"', "'"} else ""
            yield text[1:-1].replace(quote * 2, quote) if quote else text


def _is_topic(topics: set[TopicName], word: str) -> bool:
    try:
        return TopicName.parse(word) in topics
    except OptionError:
        return False


def _to_project_error(
    text: str, catalog: Catalog, otherwise: type[PulsarOffloadError]
) -> PulsarOffloadError:
    """Our error for one that DuckDB raised; if ours was its cause, only the text shows that."""
    for name, message in reversed(_ERROR_NAME.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PulsarOffloadError):
            return kind(message)
    missing = _name_in(text, _NO_TABLE)
    if missing:
        return _no_table(missing, catalog)
    return otherwise(_first_paragraph(text))


def _name_in(text: str, places: Sequence[tuple[str, str]]) -> str | None:
    """Return the first name that stands in one of some places of an error's text."""
    for before, after in places:
        name, is_whole, _ = text.partition(before)[2].partition(after)
        if is_whole and name:
            return name
    return None


def _no_table(name: str, catalog: Catalog) -> PulsarOffloadError:
    try:
        select_topics(name, catalog.topics())
    except TopicNotFoundError as error:
        return error
    except OptionError as error:
        # DuckDB would propose a table of its own.
        return error
    message = f"SQL takes {name} for a name that differs in case only: use read_pulsar('…')"
    return OptionError(message)


def _first_paragraph(text: str) -> str:
    """DuckDB's message, without the part that shows the place in the SQL."""
    return " ".join(text.partition("\n\n")[0].split())
