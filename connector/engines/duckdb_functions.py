"""Table functions in DuckDB's SQL: the topic that a statement names becomes a dataset to scan.

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

import itertools
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from arrow_io.core.option_names import option_name, use_spelling
from arrow_io.core.option_values import path_or_url, type_name
from arrow_io.errors import OptionError, PulsarOffloadError
from connector.engines.credential_scope import HOSTLESS, origins
from connector.engines.duckdb_binding import (
    PLACE_OPTIONS,
    Catalogs,
    Variable,
    argument,
    is_texts,
    shown,
)
from connector.options.kinds import FLAG
from connector.options.option import hidden_arguments, takes_options
from connector.options.topic_request import (
    OPTIONS,
    TopicRequest,
    check_options,
    check_place,
    check_with_catalog,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from connector.catalog.catalog import Catalog
    from connector.dataset import TopicDataset
    from connector.engines.duckdb_sources import BoundListing

_FUNCTION = "pulsar_offload_bind_"
_READ = "read_pulsar"
_PLAN = "pulsar_plan"
_NUMBERS = itertools.count(1)

_UNTIL = "until"
"""The option `end` by a name that SQL takes without quotes."""
_ZONES = "pulsar_zones"
_STATISTICS = "statistics"
LISTINGS = ("pulsar_topics", "pulsar_ledgers", "pulsar_blocks", "pulsar_objects")
"""The table functions of `connector.catalog.tables.TABLES`."""
_CREDENTIALS = {"storage_options": ("url", "buckets"), "metadata_options": ("metadata",)}
"""Options that hold credentials, and those that name the places that they are for."""
_READING = ("url", *(n for n, each in OPTIONS.items() if each.in_python_only is None), _UNTIL)
_WHERE = "where"
_MACROS = {
    _READ: _READING,
    _PLAN: (*_READING, _WHERE),
    _ZONES: ("topic", _STATISTICS, *PLACE_OPTIONS),
} | dict.fromkeys(LISTINGS, ("topic", *PLACE_OPTIONS))
"""The named parameters of each table function; those that read have the topic before them."""


@takes_options(OPTIONS)
def register_duckdb(
    con: DuckDBPyConnection | ModuleType,
    url: str | None = None,
    *,
    on_bind: Callable[[TopicDataset], None] | None = None,
    **options: object,
) -> None:
    """Give a DuckDB connection the table function `read_pulsar`, and tables of what there is.

    In SQL it is `read_pulsar(topic, option := …, …)`. `topic` is a name, a glob, or a list of
    these; the options are those of `open_topic`, none of them required; `until` is the same as
    `"end"`, which has to be quoted. A bound is a timestamp (UTC if it has no time zone), a text, or
    a message id: `[ledger, entry, batch]` or `{'ledger': …, 'entry': …, 'batch': …}`, with or
    without the batch index.
    `storage_options`, `metadata_options` and `buckets` are each a STRUCT, a MAP, or the text of a
    JSON object; `metadata` is a VARCHAR, or a STRUCT or MAP by topic; `decryption_keys` a VARCHAR
    (path or PEM text), or a STRUCT or MAP of these by name; `schema` a VARCHAR (path, JSON text, or
    name of a type), a JSON, or a STRUCT, MAP or list of them. Arguments are constants or parameters
    of the statement. Each execution reads the topic as it is then, by the schema that the statement
    was bound with.

    On an in-memory database, connections made by `con.cursor()` have the function too. To a
    database file nothing is written, so each connection to it has to be registered; views over
    `read_pulsar` can be kept in it. Registering a connection again replaces what was given before.

    `pulsar_topics()`, `pulsar_ledgers()`, `pulsar_blocks()` and `pulsar_objects()` give the bucket
    as tables (`connector.catalog.tables`), as it is then too. Their parameters are `topic`, a
    name, a glob or a list of these, and the options that say where: `url`, `storage_options`,
    `metadata`, `metadata_options`, `buckets`. `pulsar_zones()` gives what statistics know, and
    takes `statistics` too, unless that is registered.

    `pulsar_plan(topic, option := …, …)` says what `read_pulsar` of the same would read, and what it
    leaves out and why, in `connector.scan.plan_table.PLAN_SCHEMA`. It takes a condition besides, as
    `"where"`: a VARCHAR in SQL (`connector.filters.where`), for it does not see the WHERE of a
    statement.

    Credentials that are registered go to no other host than the one registered with them. If a
    statement names `url`, `buckets` or `metadata` without the options for it, the registered
    `storage_options` and `metadata_options` hold only if that is the same place
    (`connector.engines.credential_scope`). The same goes for files that it names as `schema`;
    `statistics` elsewhere are refused unless the statement has the options for them, and for the
    bucket. Another bucket of the same store is the same place. Credentials that are registered
    without a place hold for stores whose host is not in the URL, such as S3.

    DuckDB quotes the statement in its errors, so secrets belong in `storage_options`,
    `metadata_options` and `decryption_keys` here, or in a parameter of the statement, not in its
    text.

    Args:
        con: The connection; or the module `duckdb`, for its default connection.
        url: The URL that is read if a statement names none.
        on_bind: Called with each topic that a statement names, when it is bound, even if only for
            EXPLAIN; with it, what a statement would read is known before it is run.
        options: Options of `open_topic` that hold if a statement does not name them; `catalog`
            only if it names none of `url`, `storage_options`, `metadata`, `metadata_options` and
            `buckets`. Beside a catalog, these options are for statements that name another place.

    Raises:
        OptionError: There is no such option, or its value is not allowed; the catalog is that of
            another URL; `con` is not a connection, or `on_bind` not a function.

    Example:
        >>> import duckdb
        >>> con = duckdb.connect()
        >>> register_duckdb(con, url="s3://bucket/prefix", storage_options={"anon": True})
        >>> con.execute("select count(*) from read_pulsar('orders')")  # doctest: +SKIP
    """
    check_options({name: value for name, value in options.items() if value is not None})
    if url is not None:
        path_or_url("url", url)
    defaults: dict[str, Any] = {"url": url, **options}
    defaults = {name: value for name, value in defaults.items() if value is not None}
    if "url" in defaults and "catalog" in defaults:
        check_place(defaults["url"], defaults["catalog"])
    if not callable(getattr(con, "create_function", None)):
        message = f"con must be a DuckDB connection or the module duckdb, not {type_name(con)}"
        raise OptionError(message)
    if on_bind is not None and not callable(on_bind):
        message = f"on_bind must be a function, not {type_name(on_bind)}"
        raise OptionError(message)
    function = f"{_FUNCTION}{next(_NUMBERS)}"
    con.create_function(
        function,
        _Binder(defaults, on_bind),
        ["VARCHAR"],
        "VARCHAR",
        side_effects=True,
    )
    replaced = _registered_function(con)
    for name in _MACROS:
        con.execute(f"CREATE OR REPLACE TEMP MACRO {_macro(name, function)}")
        if _is_in_memory(con):
            con.execute(f"CREATE OR REPLACE MACRO {_macro(name, function)}")
    if replaced is not None:
        con.remove_function(replaced)


def _statistics_folder(request: TopicRequest, catalog: Catalog) -> str | os.PathLike[str]:
    folder = catalog.statistics if request.statistics is None else request.statistics
    if folder is None:
        message = (
            "no statistics are given, neither in the statement (statistics := …) nor to"
            " register_duckdb"
        )
        raise OptionError(message)
    return folder


def _in_sql(name: str, value: object) -> str:
    return name if value is None else f"{name} := {value!r}"


def _macro(name: str, function: str) -> str:
    named = ", ".join(f'"{parameter}" := NULL' for parameter in _MACROS[name])
    parameters = f"topic, {named}" if name in {_READ, _PLAN} else named
    arguments = ", ".join(
        [f"'function': '{name}'"]
        + [f"'{each}': {_pass_argument(each)}" for each in dict.fromkeys(("topic", *_MACROS[name]))]
    )
    return (
        f"{name}({parameters}) AS TABLE"
        f" FROM query_table({function}(to_json({{{arguments}}})::VARCHAR))"
    )


def _pass_argument(parameter: str) -> str:
    """Return the SQL that passes an argument of a macro on.

    To DuckDB, `start = '…'` is the first argument without a name. It compares a text of the name
    with the value, which fails if the text cannot be cast. So a BOOLEAN is passed on without being
    computed, unless the parameter takes one, and `_check_booleans` refuses it.
    """
    if _takes_boolean(parameter):
        return f'"{parameter}"'
    is_boolean = f"typeof(\"{parameter}\") = 'BOOLEAN'"
    return f'CASE WHEN {is_boolean} THEN to_json(false) ELSE to_json("{parameter}") END'


def _takes_boolean(parameter: str) -> bool:
    return parameter in OPTIONS and OPTIONS[parameter].kind is FLAG


def _check_booleans(function: object, arguments: Mapping[str, object]) -> None:
    """Refuse a BOOLEAN for a parameter that takes none.

    Raises:
        OptionError: There is one, probably because `=` was written for `:=`.
    """
    for name, value in arguments.items():
        if isinstance(value, bool) and not _takes_boolean(name):
            message = (
                "use := or => to name an argument, as in start := '2026-01-31' (DuckDB takes"
                f" start = '2026-01-31' for a comparison): {name} of {function} cannot be a BOOLEAN"
            )
            raise OptionError(message)


def _registered_function(con: DuckDBPyConnection | ModuleType) -> str | None:
    """The function behind this connection's own macro, if it has one."""
    row = con.execute(
        "SELECT macro_definition FROM duckdb_functions()"
        " WHERE database_name = 'temp' AND function_name = 'read_pulsar'"
    ).fetchone()
    match = re.search(rf"{_FUNCTION}\d+", row[0]) if row else None
    return match and match[0]


def _is_in_memory(con: DuckDBPyConnection | ModuleType) -> bool:
    """Whether a macro in the current database is seen by all cursors, and stored nowhere."""
    row = con.execute(
        "SELECT path IS NULL AND type = 'duckdb' FROM duckdb_databases()"
        " WHERE database_name = current_database()"
    ).fetchone()
    return row == (True,)


class _Binder:
    """The scalar function: opens what a statement names, and says where to find it.

    Holds no connection: DuckDB holds this object, and a circle through DuckDB is never collected.
    Its methods import what they need: a registration takes a fraction of the time of those imports.
    """

    def __init__(
        self,
        defaults: dict[str, object],
        on_bind: Callable[[TopicDataset], None] | None,
    ) -> None:
        self._defaults = defaults
        self._on_bind = on_bind
        self._variable = Variable()
        self._catalogs = Catalogs()

    def __call__(self, text: str) -> str:
        """Open a topic, or make a listing.

        Args:
            text: JSON object of the macro's arguments, and which macro it is.

        Returns:
            The name of the Python variable, as an SQL identifier.

        Raises:
            OptionError: An argument is not allowed.
            PulsarOffloadError: The topic or the listing cannot be opened.
        """
        arguments = {
            name: value
            for name, value in hidden_arguments(OPTIONS, json.loads(text)).items()
            if value is not None
        }
        # It may hold secrets, which no traceback shall show.
        del text
        function = arguments.pop("function", None)
        _check_booleans(function, arguments)
        if _UNTIL in arguments and "end" in arguments:
            message = f'{_UNTIL} and "end" say the same: give one of them'
            raise OptionError(message)
        if _UNTIL in arguments:
            arguments["end"] = arguments.pop(_UNTIL)
        topic = arguments.pop("topic", None)
        is_listing = function in {_ZONES, *LISTINGS}
        is_all = is_listing and topic is None
        if not is_all and not isinstance(topic, str) and not is_texts(topic):
            message = f"the topic must be a name, a glob, or a list of these, not {topic!r}"
            raise OptionError(message)
        subject = function if is_all else shown(topic)
        source: object
        try:
            with use_spelling(_in_sql):
                if is_listing:
                    source = self._listing(function, topic, arguments)
                elif function == _PLAN:
                    source = self._plan(topic, arguments)
                else:
                    source = self._topic(topic, arguments)
        except PulsarOffloadError as error:
            error.message = f"{subject}: {error.message}{self._withheld_note(arguments)}"
            raise
        name = f"{subject} ({next(_NUMBERS)})"
        self._variable.set(name, source)
        quoted = name.replace('"', '""')
        return f'"{quoted}"'

    def _topic(self, topic: str | list[str], arguments: dict[str, object]) -> object:
        from connector.engines.duckdb_sources import BoundTopic, row_estimate  # noqa: PLC0415

        url, request = self._request(arguments)
        request = self._with_schema(request, arguments)
        opened = self._open(topic, url, request, arguments)
        if not opened.schema.names:
            message = f"{option_name('columns')} names no column, and a table of DuckDB has one"
            raise OptionError(message)
        # Read once, so that no execution can have other columns than were bound.
        values = opened.scan.options.filterable.values
        bound = replace(request, schema_version=None)
        bound = (
            replace(bound, value="raw") if values is None else replace(bound, schema=values.schema)
        )
        if self._on_bind is not None:
            self._on_bind(opened)
        return row_estimate()(
            BoundTopic(
                opened, lambda: self._open(topic, url, bound, arguments), self._variable.forget
            )
        )

    def _plan(self, topic: str | list[str], arguments: dict[str, object]) -> BoundListing:
        from connector.engines.duckdb_sources import BoundListing  # noqa: PLC0415
        from connector.filters.where import where_expression  # noqa: PLC0415
        from connector.scan.plan_table import plan_table  # noqa: PLC0415

        where = arguments.pop(_WHERE, None)
        if where is not None and not isinstance(where, str):
            message = f"{_WHERE} must be a text, not {type_name(where)}"
            raise OptionError(message)
        url, request = self._request(arguments)
        request = self._with_schema(request, arguments)

        def table() -> pa.Table:
            catalog = self._catalog(url, request, arguments)
            is_raw = request.schema is None and catalog.source is None
            planned = replace(request, value="raw") if is_raw else request
            scan = self._open(topic, url, planned, arguments).scan
            if where is not None:
                scan = scan.where(where_expression(where, scan.options.filterable.schema))
            return plan_table(scan, planned.range_bytes)

        return BoundListing(table, self._variable.forget)

    def _listing(
        self, function: str, topic: str | list[str] | None, arguments: dict[str, object]
    ) -> BoundListing:
        from connector.catalog.tables import TABLES, zones_table  # noqa: PLC0415
        from connector.engines.duckdb_sources import BoundListing  # noqa: PLC0415

        url, request = self._request(arguments)

        def table() -> pa.Table:
            catalog = self._catalog(url, request, arguments)
            if function == _ZONES:
                return zones_table(catalog, _statistics_folder(request, catalog), topic)
            return TABLES[function.removeprefix("pulsar_")](catalog, topic)

        return BoundListing(table, self._variable.forget)

    def _with_schema(self, request: TopicRequest, arguments: Mapping[str, object]) -> TopicRequest:
        """The request; a schema that lies elsewhere is read, without registered credentials."""
        schema_places = (*_CREDENTIALS["storage_options"], "schema")
        is_foreign = "storage_options" not in arguments and not self._is_registered(
            schema_places, arguments
        )
        if not is_foreign or "schema" not in arguments:
            return request
        from connector.topic import read_schema  # noqa: PLC0415

        read = read_schema(request.schema, request.schema_version, None)
        return replace(request, schema=read, schema_version=None)

    def _request(self, arguments: dict[str, object]) -> tuple[str, TopicRequest]:
        """The URL, and the options, that hold for a statement.

        Raises:
            OptionError: One has a value that is not allowed, or nothing says where to look.
        """
        read = {name: argument(name, value) for name, value in arguments.items()}
        options: dict[str, Any] = self._defaults | read
        for name in self._withheld_options(read):
            del options[name]
        if not arguments.keys().isdisjoint(PLACE_OPTIONS):
            options.pop("catalog", None)
        if "url" not in options:
            message = "no url is given, neither in the statement (url := …) nor to register_duckdb"
            raise OptionError(message)
        url, request = options.pop("url"), TopicRequest(**options)
        # Options that are registered beside a catalog are for other places; its own are fixed.
        fixed: dict[str, Any] = {
            n: each for n, each in read.items() if n != "url" and OPTIONS[n].is_fixed_by_catalog
        }
        check_with_catalog(url, TopicRequest(catalog=request.catalog, **fixed))
        self._check_statistics(arguments, request)
        return url, request

    def _check_statistics(self, arguments: Mapping[str, object], request: TopicRequest) -> None:
        """Refuse statistics elsewhere, to which the registered credentials would go.

        Raises:
            OptionError: A statement names such a place.
        """
        catalog = request.catalog
        sent = request.storage_options if catalog is None else catalog.location.storage_options
        places = (*_CREDENTIALS["storage_options"], _STATISTICS)
        is_own = not sent or "storage_options" in arguments
        if _STATISTICS in arguments and not is_own and not self._is_registered(places, arguments):
            message = (
                "the statistics lie elsewhere, and register_duckdb's storage_options are for the"
                " URL registered with them: give storage_options in the statement"
            )
            raise OptionError(message)

    def _withheld_options(self, arguments: Mapping[str, object]) -> list[str]:
        """The registered credentials that must not go to a place that a statement names."""
        return [
            name
            for name, places in _CREDENTIALS.items()
            if name in self._defaults and name not in arguments
            if not self._is_registered(places, arguments)
        ]

    def _withheld_note(self, arguments: Mapping[str, object]) -> str:
        withheld = self._withheld_options(arguments)
        if not withheld:
            return ""
        names = " and ".join(withheld)
        return (
            f" (register_duckdb's {names} were not sent there: they are for the URL registered with"
            f" them. Give {names} in the statement.)"
        )

    def _is_registered(self, places: Sequence[str], arguments: Mapping[str, object]) -> bool:
        """Whether what a statement names leads to places that are registered.

        If none is registered, a store whose host the options name is known too.
        """
        registered = [self._defaults[place] for place in places if place in self._defaults]
        new = origins([arguments.get(place) for place in places]) - origins(registered)
        return not new or not (registered or new - HOSTLESS)

    def _open(
        self,
        topic: str | list[str],
        url: str,
        request: TopicRequest,
        arguments: Mapping[str, object],
    ) -> TopicDataset:
        from connector.topic import open_request  # noqa: PLC0415

        catalog = self._catalog(url, request, arguments)
        return open_request(url, topic, replace(request, catalog=catalog))

    def _catalog(self, url: str, request: TopicRequest, arguments: Mapping[str, object]) -> Catalog:
        catalog = request.catalog or self._catalogs.current(url, request)
        if (
            "metadata" in arguments
            and request.statistics is None
            and catalog.statistics is not None
        ):
            # A snapshot that a statement names, names statistics in its turn.
            self._check_statistics({**arguments, _STATISTICS: catalog.statistics}, request)
        return catalog
