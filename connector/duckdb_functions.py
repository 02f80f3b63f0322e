"""`read_pulsar` in DuckDB's SQL: the topic that a statement names becomes a dataset to scan.

`read_pulsar` is a table macro over `query_table(name)`. The name is the result of a scalar
function, which DuckDB evaluates while it binds the statement: the function opens the topic and puts
the dataset, under a name that is used once, among the Python variables in which DuckDB's
replacement scan looks. As soon as DuckDB has found it, the variable is gone, and the dataset lives
as long as the plan of the statement. Projection and filters reach `TopicDataset.scanner`. DuckDB
trusts it with the filters that it hands over, and applies the others itself.

Arguments travel from the macro to the function as JSON: DuckDB wants typed parameters of a function
in Python, and most options may have several types.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arrow_io.errors import OptionError, PulsarOffloadError
from connector.catalog.catalog import Catalog, open_catalog
from connector.dataset import TopicDataset, TopicScanner
from connector.topic import open_topic, topic_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    import pyarrow.compute as pc
    from duckdb import DuckDBPyConnection

    from connector.scan import Scan

_FUNCTION = "pulsar_offload_bind_"
_NUMBERS = itertools.count(1)
_MAX_SHOWN_CHARACTERS = 200
_BYTES_PER_ROW = 100
"""About how much of a data object a message takes, where DuckDB asks how many rows to expect."""

_DEFAULTS = {
    parameter.name: parameter.default
    for parameter in inspect.signature(open_topic).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY
}
_SQL_OPTIONS = ("url", *(name for name in _DEFAULTS if name not in {"catalog", "trace"}))
_SCALARS = {"url": str, "schema_version": int} | {
    n: type(each) for n, each in _DEFAULTS.items() if each is not None
}
_CATALOG_OPTIONS = ("url", "storage_options", "range_bytes", "trace")
_MAX_CATALOGS = 8
_SQL_TYPES = {str: "VARCHAR", int: "INTEGER", bool: "BOOLEAN"}


def register_duckdb(
    con: DuckDBPyConnection | ModuleType, url: str | None = None, **options: object
) -> None:
    """Give a DuckDB connection the table function `read_pulsar`.

    In SQL it is `read_pulsar(topic, option := …, …)`. `topic` is a name, a glob, or a list of
    these; the options are those of `open_topic`, none of them required. `"end"` has to be quoted. A
    bound is a timestamp (UTC if it has no time zone), a text, or a message id: `[ledger, entry,
    batch]` or `{'ledger': …, 'entry': …, 'batch': …}`, with or without the batch index.
    `storage_options` is a STRUCT, a MAP, or the text of a JSON object; `decryption_keys` a VARCHAR
    (path or PEM text), or a STRUCT or MAP of these by name; `schema` a VARCHAR (path, JSON text, or
    name of a type), a JSON, or a STRUCT, MAP or list of them. Arguments are constants or parameters
    of the statement. Each execution reads the topic as it is then, by the schema that the statement
    was bound with.

    On an in-memory database, connections made by `con.cursor()` have the function too. To a
    database file nothing is written, so each connection to it has to be registered; views over
    `read_pulsar` can be kept in it. Registering a connection again replaces what was given before.

    DuckDB quotes the statement in its errors, so secrets belong in `storage_options` and
    `decryption_keys` here, or in a parameter of the statement, not in its text.

    Args:
        con: The connection; or the module `duckdb`, for its default connection.
        url: The URL that is read where a statement names none.
        options: Options of `open_topic` that hold where a statement does not name them; `catalog`
            only where it names neither `url` nor `storage_options`.

    Raises:
        OptionError: There is no such option.

    Example:
        >>> import duckdb
        >>> con = duckdb.connect()
        >>> register_duckdb(con, url="s3://bucket/prefix", storage_options={"anon": True})
        >>> con.execute("select count(*) from read_pulsar('orders')")  # doctest: +SKIP
    """
    for name in options:
        if name not in _DEFAULTS:
            message = f"no option {name!r}; there are: url, {', '.join(_DEFAULTS)}"
            raise OptionError(message)
    defaults = options if url is None else {"url": url, **options}
    function = f"{_FUNCTION}{next(_NUMBERS)}"
    con.create_function(
        function,
        _Binder(defaults, _row_estimate()),
        ["VARCHAR"],
        "VARCHAR",
        side_effects=True,
    )
    replaced = _registered(con)
    con.execute(f"CREATE OR REPLACE TEMP MACRO {_macro(function)}")
    if _is_in_memory(con):
        con.execute(f"CREATE OR REPLACE MACRO {_macro(function)}")
    if replaced is not None:
        con.remove_function(replaced)


def _macro(function: str) -> str:
    parameters = ", ".join(f'"{name}" := NULL' for name in _SQL_OPTIONS)
    arguments = ", ".join(f"'{name}': \"{name}\"" for name in ("topic", *_SQL_OPTIONS))
    return (
        f"read_pulsar(topic, {parameters}) AS TABLE"
        f" FROM query_table({function}(to_json({{{arguments}}})::VARCHAR))"
    )


def _registered(con: DuckDBPyConnection | ModuleType) -> str | None:
    """The function behind this connection's own macro, if it has one."""
    found = con.execute(
        "SELECT macro_definition FROM duckdb_functions()"
        " WHERE database_name = 'temp' AND function_name = 'read_pulsar'"
    ).fetchone()
    match = re.search(rf"{_FUNCTION}\d+", found[0]) if found else None
    return match and match[0]


def _is_in_memory(con: DuckDBPyConnection | ModuleType) -> bool:
    """Whether a macro in the current database is seen by all cursors, and stored nowhere."""
    found = con.execute(
        "SELECT path IS NULL AND type = 'duckdb' FROM duckdb_databases()"
        " WHERE database_name = current_database()"
    ).fetchone()
    return found == (True,)


class _Binder:
    """The scalar function: opens the topic that a statement names, and says where to find it.

    Holds no connection: DuckDB holds this object, and a circle through DuckDB is never collected.
    """

    def __init__(
        self, defaults: dict[str, object], as_source: Callable[[_BoundTopic], object]
    ) -> None:
        self._defaults = defaults
        self._as_source = as_source
        self._variable = _Variable()
        self._catalogs = _Catalogs()

    def __call__(self, arguments: str) -> str:
        """Open a topic.

        Args:
            arguments: JSON object of the macro's arguments.

        Returns:
            The name of the Python variable, as an SQL identifier.
        """
        given = {name: value for name, value in json.loads(arguments).items() if value is not None}
        topic = given.pop("topic", None)
        if not isinstance(topic, str) and not _is_texts(topic):
            message = f"the topic must be a name, a glob, or a list of these, not {topic!r}"
            raise OptionError(message)
        shown = _shown(topic)
        try:
            dataset = self._bind(topic, given)
        except PulsarOffloadError as error:
            error.message = f"{shown}: {error.message}"
            raise
        name = f"{shown} ({next(_NUMBERS)})"
        self._variable.set(name, self._as_source(dataset))
        quoted = name.replace('"', '""')
        return f'"{quoted}"'

    def _bind(self, topic: str | list[str], given: dict[str, object]) -> _BoundTopic:
        options: dict[str, Any] = self._defaults | {n: _value(n, v) for n, v in given.items()}
        if "url" in given or "storage_options" in given:
            options.pop("catalog", None)
        if "url" not in options:
            message = "no url is given, neither in the statement (url := …) nor to register_duckdb"
            raise OptionError(message)
        # Read once, so that no execution can have other columns than were bound.
        version = options.pop("schema_version", None)
        schema = topic_schema(options.get("schema"), version, options.get("storage_options"))
        if schema is not None:
            options["schema"] = schema
        return _BoundTopic(lambda: self._open(topic, options), self._variable.forget)

    def _open(self, topic: str | list[str], options: dict[str, Any]) -> TopicDataset:
        catalog = options.get("catalog") or self._catalogs.of(options)
        return open_topic(topic=topic, **(options | {"catalog": catalog}))


class _Catalogs:
    """The catalogs of the buckets that statements have named: each is listed anew for a statement.

    Index objects that were read for a statement before are not read again.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Catalog] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, options: dict[str, Any]) -> Catalog:
        """The catalog of the bucket that the options name, as it is now."""
        wanted = {name: options[name] for name in _CATALOG_OPTIONS if name in options}
        key = repr(sorted(wanted.items(), key=lambda pair: pair[0]))
        with self._lock:
            known = self._known.get(key)
        catalog = open_catalog(**wanted) if known is None else known.refreshed()
        with self._lock:
            self._known[key] = catalog
            self._known.move_to_end(key)
            while len(self._known) > _MAX_CATALOGS:
                self._known.popitem(last=False)
        return catalog


class _Variable(threading.local):
    """The Python variable by which DuckDB finds what it binds: in each thread one at a time."""

    def __init__(self) -> None:
        self._places: list[tuple[dict[str, object], str]] = []

    def set(self, name: str, value: object) -> None:
        """Put an object where the replacement scan looks for the name, in place of the one before.

        Raises:
            OptionError: Nothing in Python called DuckDB.
        """
        # One that is still there was never looked for: replacement scans are switched off.
        self.forget()
        for namespace in _namespaces():
            namespace[name] = value
            self._places.append((namespace, name))

    def forget(self) -> None:
        """Take the variable away; does nothing if that is done."""
        while self._places:
            namespace, name = self._places.pop()
            namespace.pop(name, None)


def _namespaces() -> list[dict[str, object]]:
    """The global variables of those who called DuckDB, where its replacement scan looks.

    DuckDB passes over its own modules, which stand between it and its user where a relation is
    read.
    """
    namespaces: list[dict[str, object]] = []
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals is not globals():
            namespaces.append(frame.f_globals)
            if str(frame.f_globals.get("__name__")).partition(".")[0] != "duckdb":
                return namespaces
        frame = frame.f_back
    message = "call read_pulsar(…) behind FROM, not the function that it calls itself"
    raise OptionError(message)


def _shown(topic: str | list[str]) -> str:
    names = topic if isinstance(topic, str) else ", ".join(topic)
    cut = len(names) > _MAX_SHOWN_CHARACTERS
    return f"topic {names[:_MAX_SHOWN_CHARACTERS]}{'…' if cut else ''}"


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _value(name: str, value: object) -> object:
    """What `open_topic` takes for an argument as it comes out of JSON.

    Raises:
        OptionError: It is of another type. What it was is said of plain options only.
    """
    if name == "storage_options":
        return _storage_options(value)
    if name == "columns" and not _is_texts(value):
        message = f"columns must be a list of names, not {value!r}"
        raise OptionError(message)
    if name in {"start", "end"} and isinstance(value, dict):
        return _message_id(value)
    scalar = _SCALARS.get(name)
    if scalar is not None and type(value) is not scalar:
        message = f"{name} must be of type {_SQL_TYPES[scalar]}, not {value!r}"
        raise OptionError(message)
    return value


def _storage_options(value: object) -> dict[str, object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, dict):
        message = "storage_options must be a STRUCT, a MAP, or the text of a JSON object"
        raise OptionError(message)
    return value


def _message_id(parts: dict[str, object]) -> object:
    """A struct as a message id; another one as it is, to be refused like all that is no bound."""
    message_id = (parts.get("ledger"), parts.get("entry"), parts.get("batch") or 0)
    is_message_id = parts.keys() <= {"ledger", "entry", "batch"} and None not in message_id
    return message_id if is_message_id else parts


class _BoundTopic(TopicDataset):
    """A topic in the plan of a statement, opened anew for each execution but the first.

    Args:
        open_dataset: Opens the topic.
        found: Called when DuckDB asks for the columns, which it does once it holds the object.
    """

    def __init__(self, open_dataset: Callable[[], TopicDataset], found: Callable[[], None]) -> None:
        opened = open_dataset()
        super().__init__(opened.scan, opened.unsound)
        self._open = open_dataset
        self._found = found
        self._is_fresh = True

    @property
    def schema(self) -> pa.Schema:
        """The columns given unless others are named."""
        self._found()
        return super().schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name is Arrow's
        **tuning: object,
    ) -> TopicScanner:
        """A scan of the ledgers there are now: a statement may be prepared once and run often."""
        if not self._is_fresh:
            opened = self._open()
            self.scan, self.unsound = opened.scan, opened.unsound
        self._is_fresh = False
        return super().scanner(columns, filter, **tuning)

    def scanner_of(self, scan: Scan) -> TopicScanner:
        """The scanner of a scan that was made from this dataset's."""
        return _BoundScanner(scan, self.unsound)


class _BoundScanner(TopicScanner):
    """A scan of which DuckDB reports the errors."""

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader that decodes ahead in threads of its own."""
        return pa.RecordBatchReader.from_batches(
            self.projected_schema, _without_traceback(self.batches_ahead())
        )


def _without_traceback(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches; in DuckDB's message, an error's traceback would bury its own text."""
    try:
        yield from batches
    except PulsarOffloadError as error:
        raise error.with_traceback(None) from None


def _row_estimate() -> Callable[[_BoundTopic], object]:
    """How to tell DuckDB about how many rows a topic has.

    By default DuckDB expects one row of a dataset, and would make the hash table of a join of the
    topic, all of it in memory. Its class for this is not a public one, so a topic is a plain
    dataset where that is missing.
    """
    try:
        from duckdb._sources.pyarrow import PyArrowDatasetSource
    except ImportError:
        return lambda dataset: dataset

    class TopicSource(PyArrowDatasetSource):
        """A bound topic as DuckDB takes it."""

        def rows(self) -> int:
            """About how many rows a scan gives; DuckDB only chooses by it which plan is best."""
            topic: TopicDataset = self.obj
            ledgers = (ledger for each in topic.scan.topics for ledger in each.ledgers)
            stored_bytes = sum(ledger.index.data_object_length_bytes for ledger in ledgers)
            return max(1, stored_bytes // _BYTES_PER_ROW)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            """By having this method the object passes for one that DuckDB can scan."""
            return self.obj.__arrow_c_stream__(requested_schema)

    return TopicSource
