"""Table functions in DuckDB's SQL: read topics, and list what a bucket contains.

`read_pulsar` is a macro (`duckdb_macros`) that calls a scalar function, which opens the topic.
DuckDB pushes projection and filters down to `TopicDataset.scanner`. It does not repeat the filters
that it pushes down, and applies the others itself.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from arrow_io.core.option_names import option_name, use_spelling
from arrow_io.core.option_values import path_or_url, type_name
from arrow_io.errors import OptionError, PulsarOffloadError
from connector.engines.credential_scope import HOSTLESS, origins
from connector.engines.duckdb_binding import (
    PLACE_OPTIONS,
    ROWS,
    Catalogs,
    Variable,
    convert_argument,
    is_string_list,
    topic_label,
)
from connector.engines.duckdb_macros import (
    BOUNDS,
    LIST_ZONES,
    LISTINGS,
    PLAN,
    STATISTICS,
    UNTIL,
    WHERE,
    read_call,
)
from connector.engines.duckdb_registration import register
from connector.engines.duckdb_views import Views
from connector.options.option import takes_options
from connector.options.topic_request import (
    OPTIONS,
    TopicRequest,
    check_options,
    check_place,
    check_with_catalog,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from connector.catalog.catalog import Catalog
    from connector.dataset import TopicDataset
    from connector.engines.duckdb_sources import BoundListing, BoundTopic

_NUMBERS = itertools.count(1)
_CREDENTIALS = {
    "storage_options": ("url", "buckets"),
    "metadata_options": ("metadata",),
    "schema_options": ("schema",),
    "lake_options": ("lake",),
}
"""By option that holds credentials, the options that name the locations they are for."""


@takes_options(OPTIONS)
def register_duckdb(
    con: DuckDBPyConnection | ModuleType,
    url: str | None = None,
    *,
    on_bind: Callable[[TopicDataset], None] | None = None,
    views: str | None = None,
    **options: object,
) -> None:
    """Add the table function `read_pulsar`, and listings of the bucket, to a DuckDB connection.

    In SQL, call `read_pulsar(topic, option := …, …)`. `topic` is a name, a glob, or a list of
    these. The options are those of `open_topic`, all optional. `until` is an alias of `"end"`,
    which SQL requires to be quoted. A bound is a timestamp (UTC if it has no time zone), a text, or
    a message id: `[ledger, entry, batch]` or `{'ledger': …, 'entry': …, 'batch': …}`, with or
    without the batch index.

    Types of the options that are not plain values:

    - `storage_options`, `metadata_options`, `schema_options`, `buckets`: a STRUCT, a MAP, or the
      text of a JSON object.
    - `metadata`: a VARCHAR, or a STRUCT or MAP by topic.
    - `decryption_keys`: a VARCHAR (path or PEM text), or a STRUCT or MAP of these by name.
    - `schema`: a VARCHAR (path, JSON text, name of a type, or registry), a JSON, or a STRUCT, a MAP
      or a list.

    Arguments are constants or parameters of the statement, named by `:=`, `=>` or `=`. Options that
    it does not set are taken from the SQL variables `pulsar_<option>`, then from this call. Each
    execution reads the topic's current data, with the schema that the statement was bound with.

    On an in-memory database, connections made by `con.cursor()` have the function too, until `con`
    is closed. Nothing is written to a database file, so register each connection to it; the file
    can store views over `read_pulsar`. Registering a connection again replaces its previous
    options.

    `pulsar_topics()`, `pulsar_ledgers()`, `pulsar_blocks()` and `pulsar_objects()` list the current
    content of the bucket as tables (`connector.catalog.tables`). Their parameters are `topic` (a
    name, a glob or a list of these) and the options for the location: `url`, `storage_options`,
    `metadata`, `metadata_options`, `buckets`. `pulsar_zones()` lists the recorded statistics, and
    also takes `statistics`, unless that is registered.

    `pulsar_plan(topic, option := …, …)` returns what `read_pulsar` with the same arguments would
    read, and what it prunes and why, as `connector.scan.plan_table.PLAN_SCHEMA`. It does not see
    the statement's WHERE, so it takes a condition as `"where"`: a VARCHAR in SQL
    (`connector.filters.where`). `pulsar_bounds` takes the same arguments, and returns number,
    first and last position, and times of the rows, as `connector.scan.bounds_table.BOUNDS_SCHEMA`.

    Registered credentials are sent only to the host that they were registered with. If a statement
    names `url`, `buckets`, `metadata` or a registry as `schema` without the options for it, the
    registered `storage_options`, `metadata_options` and `schema_options` apply only if the host is
    the same (`connector.engines.credential_scope`). Another bucket of the same store has the same
    host. The rule also covers files that a statement names as `schema`. `statistics` on another
    host are refused unless the statement has the options for them and for the bucket. Credentials
    that are registered without a location apply to stores whose host is not in the URL, such as S3.

    DuckDB quotes the statement in its errors. So pass secrets in `storage_options`,
    `metadata_options`, `schema_options` and `decryption_keys` here, or in a parameter of the
    statement, not in its text.

    Args:
        con: The connection; or the module `duckdb`, for its default connection.
        url: The URL to read if a statement names none.
        on_bind: Called with each topic that a statement names, when DuckDB binds it, even for
            EXPLAIN. Use it to learn what a statement would read before it runs.
        views: Name of a database in memory that is attached, with a view of each topic over
            `read_pulsar` with these options. Calling again with this name adds views of new topics
            and drops views of deleted ones. None: no views.
        options: Options of `open_topic` that apply if a statement does not set them. `catalog`
            applies only if the statement sets none of `url`, `storage_options`, `metadata`,
            `metadata_options` and `buckets`. With a catalog, these options are for statements that
            name another location.

    Raises:
        OptionError: An option does not exist, or its value is not allowed; the catalog belongs to
            another URL; `con` is not a connection, `on_bind` not a function, or `views` not a name
            or the name of another database or schema; or `views` are created in a transaction.
        PulsarOffloadError: The topics for `views` cannot be listed.

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
    _check_parameters(con, on_bind, views)
    binder = _Binder(defaults, on_bind)
    if views is None:
        register(con, binder)
    else:
        register(con, binder, Views(views, binder.table_names(), binder.message_columns()))


def _check_parameters(con: object, on_bind: object, views: object) -> None:
    if not callable(getattr(con, "create_function", None)):
        message = f"con must be a DuckDB connection or the module duckdb, not {type_name(con)}"
        raise OptionError(message)
    if on_bind is not None and not callable(on_bind):
        message = f"on_bind must be a function, not {type_name(on_bind)}"
        raise OptionError(message)
    if views is not None and (not isinstance(views, str) or not views):
        message = f"views must be a name, not {views!r}"
        raise OptionError(message)


def _statistics_folder(request: TopicRequest, catalog: Catalog) -> str | os.PathLike[str]:
    folder = catalog.statistics if request.statistics is None else request.statistics
    if folder is None:
        message = "no statistics: set them in the statement (statistics := …) or in register_duckdb"
        raise OptionError(message)
    return folder


def _in_sql(name: str, value: object) -> str:
    return name if value is None else f"{name} := {value!r}"


class _Binder:
    """The scalar function: opens what a statement names, and returns SQL that selects from it.

    It holds no connection: DuckDB holds this object, and a reference cycle through DuckDB is never
    collected. Its methods import what they need, because the imports take many times longer than a
    registration.
    """

    _released: ClassVar[list[_Binder]] = []

    def __init__(
        self,
        defaults: dict[str, object],
        on_bind: Callable[[TopicDataset], None] | None,
    ) -> None:
        self._defaults = defaults
        self._on_bind = on_bind
        self._variable = Variable()
        self._catalogs = Catalogs()

    def __del__(self) -> None:
        """Drop all options, but never the object itself.

        Only the connection that registered the function holds this object, but all connections to
        the database can call the function, and DuckDB would then call freed memory.
        """
        vars(self).clear()
        self._released.append(self)

    def __call__(self, text: str) -> str:
        """Open a topic, or make a listing; return a SELECT of its rows.

        `text` is the JSON object of the macro's arguments and the macro's name.
        """
        if not vars(self):
            message = (
                "the connection that the table functions were registered with is closed: call"
                " register_duckdb with this one"
            )
            raise OptionError(message)
        function, arguments, reads_files = read_call(text)
        # The text may hold secrets, which tracebacks with local variables would show.
        del text
        if UNTIL in arguments and "end" in arguments:
            message = f'{UNTIL} and "end" are the same option: give one of them'
            raise OptionError(message)
        if UNTIL in arguments:
            arguments["end"] = arguments.pop(UNTIL)
        topic = arguments.pop("topic", None)
        is_listing = function in {LIST_ZONES, *LISTINGS}
        is_all = is_listing and topic is None
        if not is_all and not isinstance(topic, str) and not is_string_list(topic):
            message = f"the topic must be a name, a glob, or a list of these, not {topic!r}"
            raise OptionError(message)
        subject = function if is_all else topic_label(topic)
        source: object
        table: str | None = None
        with self._explaining(subject, arguments):
            if is_listing:
                source = self._listing(function, topic, arguments)
            elif function in {PLAN, BOUNDS}:
                source = self._plan(function, topic, arguments)
            else:
                # Loaded with the topic, as an import takes longer than a registration.
                from connector.engines.duckdb_sources import load_topic_source  # noqa: PLC0415

                dataset = self._topic(topic, arguments)
                if reads_files:
                    table = dataset.take_table_sql()
                source = load_topic_source()(dataset)
        name = f"{subject} ({next(_NUMBERS)})"
        self._variable.set(name, source)
        quoted = name.replace('"', '""')
        select = f'FROM "{quoted}"'
        return select if table is None else f"{table} UNION ALL {select}"

    @contextmanager
    def _explaining(self, subject: str, arguments: Mapping[str, object]) -> Iterator[None]:
        """Name the subject and withheld credentials in errors, and spell options as in SQL."""
        try:
            with use_spelling(_in_sql):
                yield
        except PulsarOffloadError as error:
            error.message = f"{subject}: {error.message}{self._withheld_note(arguments)}"
            raise

    def table_names(self) -> list[str]:
        """Return the names of all topics as names of tables.

        Raises:
            PulsarOffloadError: The topics cannot be listed.
        """
        from connector.engines.topic_tables import named_topics, table_names  # noqa: PLC0415

        topics = self._catalog(*self._request({}), {}).topics()
        return table_names(named_topics(topics))

    def message_columns(self) -> pa.Schema:
        """Return the registered columns that every topic has, whatever its schema."""
        import pyarrow as pa  # noqa: PLC0415

        from arrow_io.columns import every_column  # noqa: PLC0415
        from arrow_io.payloads.value_columns import VALUE_COLUMN  # noqa: PLC0415

        _, request = self._request({})
        every = every_column(request.naming)
        own_names = dict(every.columns)
        names = [each for each in request.columns or "*" if each in {"*", *own_names}]
        columns = every.select(names or "*").schema
        found = [each for each in columns if own_names[each.name] != VALUE_COLUMN]
        # A view has at least one column.
        return pa.schema(found or [every.schema.field(0)])

    def _topic(self, topic: str | list[str], arguments: dict[str, object]) -> BoundTopic:
        from connector.engines.duckdb_sources import BoundTopic  # noqa: PLC0415

        url, request = self._request(arguments)
        request = self._with_schema(request, arguments)
        dataset = self._open(topic, url, request, arguments)
        if not dataset.schema.names:
            message = f"{option_name('columns')} is empty: a table in DuckDB needs a column"
            raise OptionError(message)
        if ROWS in map(str.lower, dataset.schema.names):
            message = f"the topic has a field {ROWS!r}, a name that read_pulsar uses itself"
            raise OptionError(message)
        # The schema is fixed here, so that every execution has the columns that DuckDB bound.
        values = dataset.scan.options.filterable.values
        # So is the version of the table.
        bound = replace(request, schema_version=None, lake=None, lake_options=None)
        bound = (
            replace(bound, value="raw") if values is None else replace(bound, schema=values.schema)
        )
        if self._on_bind is not None:
            self._on_bind(dataset)
        return BoundTopic(
            dataset, lambda: self._open(topic, url, bound, arguments), self._variable.forget
        )

    def _plan(
        self, function: str, topic: str | list[str], arguments: dict[str, object]
    ) -> BoundListing:
        from connector.engines.duckdb_sources import BoundListing  # noqa: PLC0415
        from connector.filters.where import where_expression  # noqa: PLC0415
        from connector.scan.bounds_table import BOUNDS_SCHEMA, bounds_table  # noqa: PLC0415
        from connector.scan.plan_table import plan_table  # noqa: PLC0415

        is_bounds = function == BOUNDS
        where = arguments.pop(WHERE, None)
        if where is not None and not isinstance(where, str):
            message = f"{WHERE} must be a text, not {type_name(where)}"
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
            return bounds_table(scan) if is_bounds else plan_table(scan, planned.range_bytes)

        def late_table() -> pa.Table:
            with self._explaining(topic_label(topic), arguments):
                return table()

        if is_bounds:
            return BoundListing(late_table, self._variable.forget, BOUNDS_SCHEMA)
        return BoundListing(table, self._variable.forget)

    def _listing(
        self, function: str, topic: str | list[str] | None, arguments: dict[str, object]
    ) -> BoundListing:
        from connector.catalog.tables import TABLES, zones_table  # noqa: PLC0415
        from connector.engines.duckdb_sources import BoundListing  # noqa: PLC0415

        url, request = self._request(arguments)

        def table() -> pa.Table:
            catalog = self._catalog(url, request, arguments)
            if function == LIST_ZONES:
                return zones_table(catalog, _statistics_folder(request, catalog), topic)
            return TABLES[function.removeprefix("pulsar_")](catalog, topic)

        return BoundListing(table, self._variable.forget)

    def _with_schema(self, request: TopicRequest, arguments: Mapping[str, object]) -> TopicRequest:
        """Return the request, with a schema on another host read without registered credentials."""
        schema_places = (*_CREDENTIALS["storage_options"], "schema")
        is_foreign = "storage_options" not in arguments and not self._is_registered(
            schema_places, arguments
        )
        if not is_foreign or "schema" not in arguments:
            return request
        from connector.topic import read_schema  # noqa: PLC0415

        read = read_schema(request.schema, request.schema_version, None, request.schema_options)
        return replace(request, schema=read, schema_version=None)

    def _request(self, arguments: dict[str, object]) -> tuple[str, TopicRequest]:
        """Return the URL and the options that apply to a statement."""
        read = {name: convert_argument(name, value) for name, value in arguments.items()}
        options: dict[str, Any] = self._defaults | read
        for name in self._withheld_options(read):
            del options[name]
        if not arguments.keys().isdisjoint(PLACE_OPTIONS):
            options.pop("catalog", None)
        if "url" not in options:
            message = "no url: set it in the statement (url := …) or in register_duckdb"
            raise OptionError(message)
        url, request = options.pop("url"), TopicRequest(**options)
        # Options that are registered with a catalog are for other locations: the catalog fixes its
        # own.
        fixed: dict[str, Any] = {
            n: each for n, each in read.items() if n != "url" and OPTIONS[n].is_fixed_by_catalog
        }
        check_with_catalog(url, TopicRequest(catalog=request.catalog, **fixed))
        self._check_folders(arguments, request)
        return url, request

    def _check_folders(self, arguments: Mapping[str, object], request: TopicRequest) -> None:
        """Refuse folders on another host, which would receive the registered credentials."""
        catalog = request.catalog
        sent = request.storage_options if catalog is None else catalog.location.storage_options
        if not sent or "storage_options" in arguments:
            return
        for name in (STATISTICS, "lake"):
            places = (*_CREDENTIALS["storage_options"], name)
            if name in arguments and not self._is_registered(places, arguments):
                message = (
                    f"{name} is on another host, and register_duckdb's storage_options are for the"
                    " URL registered with them: set storage_options in the statement"
                )
                raise OptionError(message)
        options = request.lake_options or {}
        # Delta's options can name the host of a store.
        has_own = options.get("storage_options") is not None
        can_redirect = not has_own and options.keys() - {"format", "storage_options"}
        if "lake_options" in arguments and can_redirect and origins(request.lake):
            message = (
                "lake_options may lead to another host, and register_duckdb's storage_options are"
                " for the URL registered with them: set storage_options in lake_options"
            )
            raise OptionError(message)

    def _withheld_options(self, arguments: Mapping[str, object]) -> list[str]:
        """Return the registered credentials that a statement's locations must not receive."""
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
            f" them. Set {names} in the statement.)"
        )

    def _is_registered(self, places: Sequence[str], arguments: Mapping[str, object]) -> bool:
        """Return whether all locations in a statement have registered origins.

        If no location is registered, a store whose host is set by options counts as registered.
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
            # A catalog snapshot in a statement may itself name statistics.
            self._check_folders({**arguments, STATISTICS: catalog.statistics}, request)
        return catalog
