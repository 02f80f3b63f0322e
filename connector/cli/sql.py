"""SQL over a bucket's topics in DuckDB, with `read_pulsar` and topic names as tables."""

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
from connector.engines.topic_tables import is_topic, named_topics, table_names

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
_SHARED_OPTIONS = ("storage_options", "range_bytes", "index_cache", "trace")
"""Options of a catalog that also apply to other locations in a statement."""
_ERROR_NAME = re.compile(r"\b(\w+Error): (.+)")
_UNQUOTED = re.compile(r"[\w./-]+")
"""A word that may be meant as a topic name, but that DuckDB reads as arithmetic or a schema's
table."""
_STRING = re.compile(r"'[^']*'")
_SHOW_TABLES = ["SHOW", "TABLES"]
_NO_COLUMN = (('Referenced column "', '" not found'),)
"""Text of DuckDB's error before and after the name of a missing column."""
# The second form occurs if a Python variable in scope has the name.
_NO_TABLE = (("Table with name ", " does not exist"), ('Python Object "', '"'))
"""Text of DuckDB's error before and after the name of a missing table."""


def sql_text(sql: str | None, file: Path | None) -> str:
    """Return the SQL of a command line, a file, or standard input (`-`).

    Raises:
        OptionError: Both or neither are given, the SQL cannot be read, or it is longer than
            `_MAX_SQL_BYTES`.
    """
    if (sql is None) == (file is None):
        message = "give either SQL or --file"
        raise OptionError(message)
    if sql is not None and sql != "-":
        return sql
    source = "standard input" if file is None else str(file)
    if file is None and sys.stdin is None:
        message = f"cannot read SQL from {source}: it is closed"
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
        message = f"cannot read SQL from {source}: {error.strerror}"
    raise OptionError(message)


def run_sql(
    sql: str, catalog: Catalog, url: str, request: TopicRequest
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run one or several statements. Return the schema and the rows of the last.

    `read_pulsar('…')` reads topics. A topic's name is a table too, unless the SQL creates a table
    with that name.

    Raises:
        OptionError: DuckDB is not installed, or the SQL is wrong.
        PulsarOffloadError: A topic cannot be read, or the query failed.
    """
    with _connect(sql, catalog, url, request) as connection:
        reader = _reader(connection, sql)
    return reader.schema, _read(reader, catalog)


def bound_topics(sql: str, catalog: Catalog, url: str, request: TopicRequest) -> list[TopicDataset]:
    """Return the topics that a SELECT would read, without reading rows.

    A topic is returned as often as the query names it.

    Raises:
        OptionError: DuckDB is not installed, the SQL is wrong, or it is another kind of statement.
        PulsarOffloadError: A topic cannot be opened.
    """
    datasets: list[TopicDataset] = []
    with _connect(sql, catalog, url, request, on_bind=datasets.append) as connection:
        # Creating the views has bound their topics.
        datasets.clear()
        _explain(connection, sql)
    return datasets


@contextmanager
def _connect(
    sql: str,
    catalog: Catalog,
    url: str,
    request: TopicRequest,
    *,
    on_bind: Callable[[TopicDataset], None] | None = None,
) -> Iterator[DuckDBPyConnection]:
    """Yield a connection on which the SQL can run. Translate DuckDB's errors to ours."""
    try:
        import duckdb  # noqa: PLC0415 - an optional engine
    except ModuleNotFoundError:
        message = f"SQL needs DuckDB: {install_command('cli', 'duckdb')}"
        raise OptionError(message) from None
    connection = duckdb.connect()
    # The metadata describes this bucket only, not other locations in a statement.
    shared_options = {
        n: each for n, each in request.catalog_options().items() if n in _SHARED_OPTIONS
    }
    options = request.reading_options() | shared_options | {"catalog": catalog}
    register_duckdb(connection, url, on_bind=on_bind, **options)
    try:
        _create_views(duckdb, connection, sql, catalog)
        yield connection
    except duckdb.Error as error:
        raise _explain_error(duckdb, error, sql, catalog) from None


def _explain_error(
    duckdb: ModuleType, error: DuckDBError, sql: str, catalog: Catalog
) -> PulsarOffloadError:
    """Translate an error that DuckDB raised for the SQL, and add its location and hints."""
    text = str(error)
    is_wrong_sql = isinstance(error, duckdb.ProgrammingError | duckdb.DataError)
    project_error = _to_project_error(
        text, catalog, OptionError if is_wrong_sql else PulsarOffloadError
    )
    _, _, location = text.partition("\n\n")
    if location.startswith("LINE "):
        project_error.add_note(location.rstrip())
    topics = named_topics(catalog.topics())
    # A name in a string needs no quotes.
    words = {word for each in _UNQUOTED.findall(_STRING.sub("", sql)) for word in each.split("--")}
    # Words with dots may be meant as tenant, namespace and name.
    names = {word if is_topic(topics, word) else word.replace(".", "/") for word in words}
    names = {name for name in names if not name.isidentifier() and is_topic(topics, name)}
    quoted = [f'"{name}"' for name in sorted(names) if f'"{name}"' not in sql]
    if quoted:
        sign = "slashes" if any("/" in each for each in quoted) else "a hyphen"
        project_error.add_note(f"in SQL, a name with {sign} needs quotes: {', '.join(quoted)}")
    missing_name = _name_in(text, _NO_COLUMN)
    if missing_name in COLUMN_NAMES:
        project_error.add_note(
            f"{missing_name} is not a default column: give --columns '*,{missing_name}', or"
            f" read_pulsar('…', columns := ['*', '{missing_name}'])"
        )
    return project_error


def _explain(connection: DuckDBPyConnection, sql: str) -> None:
    """Bind SQL. DuckDB looks up tables among local variables, so this function has few."""
    kinds = [str(each.type).rpartition(".")[2] for each in connection.extract_statements(sql)]
    if kinds != ["SELECT"]:
        message = f"--sql must be one SELECT, not {', '.join(kinds) or 'no statement'}"
        raise OptionError(message)
    connection.execute(f"EXPLAIN {sql}").fetchall()


def _reader(connection: DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """Run SQL. DuckDB looks up tables among local variables, so this function has few."""
    relation = connection.sql(sql)
    if relation is None:
        message = "the SQL has no statement"
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
    """Create a view for each word of the SQL that names a topic.

    DuckDB's list of a query's tables needs their columns for USING, so words are matched instead. A
    column with the name of a topic thus creates a superfluous view, which reads nothing. The SQL's
    own tables take precedence over the views. Names that differ only in case become no views, since
    SQL ignores case.
    """
    connection.execute("CREATE SCHEMA pulsar")
    connection.execute("SET search_path = 'main,pulsar'")
    connection.execute("SET TimeZone = 'UTC'")
    topics = named_topics(catalog.topics())
    topic_words: dict[str, set[str]] = {}
    for word in _words(duckdb, sql):
        if is_topic(topics, word):
            topic_words.setdefault(word.lower(), set()).add(word)
    for words in topic_words.values():
        if len(words) == 1:
            [word] = words
            text = word.replace("'", "''")
            _create_view(duckdb, connection, word, f"FROM read_pulsar('{text}')", catalog)
    statements = (each.query.replace(";", " ") for each in connection.extract_statements(sql))
    if any(each.upper().split() == _SHOW_TABLES for each in statements):
        # The SQL does not name the other topics, so their views are never read.
        for name in table_names(topics):
            if name.lower() not in topic_words:
                _create_view(duckdb, connection, name, "SELECT NULL", catalog)


def _create_view(
    duckdb: ModuleType, connection: DuckDBPyConnection, name: str, rows: str, catalog: Catalog
) -> None:
    quoted = name.replace('"', '""')
    with warnings.catch_warnings():
        # The warning is issued again when the view is read.
        warnings.simplefilter("ignore", UndecodedValuesWarning)
        try:
            connection.execute(f'CREATE VIEW IF NOT EXISTS pulsar."{quoted}" AS {rows}')
        except duckdb.Error as error:
            # The user did not write this statement, so leave out the location in it.
            raise _to_project_error(str(error), catalog, PulsarOffloadError) from None


def _words(duckdb: ModuleType, sql: str) -> Iterator[str]:
    """Yield all words of the SQL that may be table names, without quotes."""
    data = sql.encode(errors="replace")
    kinds = duckdb.token_type
    tokens = duckdb.tokenize(sql)
    stops = [start for start, _ in tokens] + [len(data)]
    for (start, kind), stop in zip(tokens, stops[1:], strict=True):
        if kind in {kinds.identifier, kinds.keyword, kinds.string_const}:
            text = data[start:stop].decode(errors="replace").strip()
            quote = text[:1] if text[:1] in {'"', "'"} else ""
            yield text[1:-1].replace(quote * 2, quote) if quote else text


def _to_project_error(
    text: str, catalog: Catalog, default_class: type[PulsarOffloadError]
) -> PulsarOffloadError:
    """Translate a DuckDB error. Only its text shows whether one of our errors caused it."""
    for name, message in reversed(_ERROR_NAME.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PulsarOffloadError):
            return kind(message)
    missing_name = _name_in(text, _NO_TABLE)
    if missing_name:
        return _no_table(missing_name, catalog)
    return default_class(_first_paragraph(text))


def _name_in(text: str, affixes: Sequence[tuple[str, str]]) -> str | None:
    """Return the name in an error's text, found by the texts before and after it."""
    for prefix, suffix in affixes:
        name, is_whole, _ = text.partition(prefix)[2].partition(suffix)
        if is_whole and name:
            return name
    return None


def _no_table(name: str, catalog: Catalog) -> PulsarOffloadError:
    try:
        catalog.select_names(name)
    except TopicNotFoundError as error:
        return error
    except OptionError as error:
        # DuckDB's own error would suggest an unrelated table.
        return error
    message = f"{name} differs from another topic only in case: use read_pulsar('…')"
    return OptionError(message)


def _first_paragraph(text: str) -> str:
    """Return DuckDB's message without the excerpt of the SQL."""
    return " ".join(text.partition("\n\n")[0].split())
