"""The commands of `pulsar-offload`: options → a call into `connector` → something printed."""

from __future__ import annotations

import functools
import json
import time
import warnings
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, ParamSpec

import pyarrow as pa
import typer
from rich.filesize import decimal as size_text

from arrow_io.errors import (
    EncryptedPayloadError,
    FormatError,
    IncompleteReadWarning,
    MissingObjectError,
    OptionError,
    PulsarOffloadError,
    StorageError,
    TopicNotFoundError,
    UndecodedValuesWarning,
)
from arrow_io.storage.ranges import DEFAULT_RANGE_BYTES
from arrow_io.storage.trace import RequestTrace
from connector.catalog.catalog import open_catalog
from connector.cli_listings import (
    LEDGER_SCHEMA,
    PLAN_SCHEMA,
    TEXTS,
    TOPIC_SCHEMA,
    ledger_rows,
    planned_ranges,
    topic_rows,
)
from connector.cli_options import (
    AsJson,
    Columns,
    DecryptionKeys,
    End,
    OnCorruption,
    RangeBytes,
    Schema,
    SchemaVersion,
    Start,
    StorageOptions,
    TimeUnit,
    Topic,
    Transactions,
    Url,
    Value,
    column_names,
    storage_options,
)
from connector.cli_output import (
    cost_text,
    counted,
    print_json,
    print_table,
    progress,
    say,
    watched,
)
from connector.cli_query import run_sql
from connector.scan import tell
from connector.topic import open_topic
from connector.topic_name import select_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from connector.catalog.catalog import Catalog
    from connector.cli_listings import Row
    from connector.dataset import TopicDataset

_Parameters = ParamSpec("_Parameters")
_NOTED = (IncompleteReadWarning, UndecodedValuesWarning)
_GOLDEN = "tests/data/golden/pulsar-4.0.7/objects"


class ExitCode(IntEnum):
    """How the command ends; scripts rely on the numbers, and `--help` says what they mean."""

    FAILED = 1
    USAGE = 2
    TOPIC_NOT_FOUND = 3
    STORAGE = 4
    UNREADABLE = 5
    INCOMPLETE = 6


app = typer.Typer(
    name="pulsar-offload",
    help="Look into Apache Pulsar topics that were offloaded to a bucket, and query them.",
    epilog="""
\b
Exit codes:
  0  all is well
  1  the query failed in DuckDB, or something unexpected
  2  the command line, an option or the SQL is wrong
  3  no such topic in the bucket
  4  no such bucket, folder or object, or a request failed or was refused
  5  data cannot be read: damaged, encrypted, or of an unknown format
  6  something was left out, and told as a note; all the rest was printed
\b
Results go to stdout, everything else to stderr. Tables on a terminal are cut to
its width; elsewhere, and with --json, everything is printed whole.
\b
In JSON, bytes are text where they are UTF-8, else {"base64": "…"}; times are
ISO 8601; decimals with a fraction, infinities and NaN are text.
""",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _command(
    example: str,
) -> Callable[[Callable[_Parameters, None]], Callable[_Parameters, None]]:
    """Make a function a command, whose help ends with an example: arguments behind the URL."""

    def register(function: Callable[_Parameters, None]) -> Callable[_Parameters, None]:
        @functools.wraps(function)
        def run(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> None:
            with _errors_told():
                function(*args, **kwargs)

        line = f"pulsar-offload {function.__name__} {_GOLDEN} {example}"
        app.command(epilog=f"\b\nExample:\n  {line}")(run)
        return run

    return register


@_command("'multi-*'")
def topics(
    url: Url,
    pattern: Annotated[str | None, typer.Argument(help="Name or glob; all topics if none.")] = None,
    *,
    storage_option: StorageOptions = None,
    on_corruption: OnCorruption = "raise",
    as_json: AsJson = False,
) -> None:
    """List topics, and what of them is offloaded.

    Bytes are those of the data objects. Unsound are ledgers that cannot be read, or not whole; one
    whose topic nothing tells is told by itself, and is a line without a topic in JSON.
    """
    trace = RequestTrace()
    with progress(trace):
        catalog = open_catalog(url, storage_options=storage_options(storage_option), trace=trace)
    names = catalog.topics() if pattern is None else select_topics(pattern, catalog.topics())
    if catalog.contents.unfinished:
        offloads = counted(len(catalog.contents.unfinished), "offload")
        say("note", f"{offloads} never completed: no index object")
    rows = topic_rows([catalog.ledgers(name) for name in names])
    _print_listing(TOPIC_SCHEMA, rows, catalog, on_corruption, as_json=as_json)


@_command("multi-ledger")
def ledgers(
    url: Url,
    topic: Topic,
    *,
    storage_option: StorageOptions = None,
    on_corruption: OnCorruption = "raise",
    as_json: AsJson = False,
) -> None:
    """List the offloaded ledgers of a topic."""
    trace = RequestTrace()
    with progress(trace):
        catalog = open_catalog(url, storage_options=storage_options(storage_option), trace=trace)
    names = select_topics(topic, catalog.topics())
    rows = [row for name in names for row in ledger_rows(catalog.ledgers(name), catalog)]
    _print_listing(LEDGER_SCHEMA, rows, catalog, on_corruption, as_json=as_json)


@_command("json-orders -n 3 --columns __publish_time__,__key__,__value__")
def head(
    url: Url,
    topic: Topic,
    *,
    rows: Annotated[int, typer.Option("-n", "--rows", min=0, help="Most rows.")] = 10,
    columns: Columns = None,
    schema: Schema = None,
    schema_version: SchemaVersion = None,
    value: Value = "flat",
    time_unit: TimeUnit = "ns",
    start: Start = None,
    end: End = None,
    storage_option: StorageOptions = None,
    on_corruption: OnCorruption = "raise",
    transactions: Transactions = "committed",
    range_bytes: RangeBytes = DEFAULT_RANGE_BYTES,
    decryption_keys: DecryptionKeys = None,
    as_json: AsJson = False,
) -> None:
    """Print the first messages of a topic.

    Bytes are shown as text, or in hexadecimal where they are none.
    """
    trace = RequestTrace()
    with progress(trace):
        dataset = open_topic(
            url,
            topic,
            storage_options=storage_options(storage_option),
            start=start,
            end=end,
            columns=column_names(columns),
            schema=schema,
            schema_version=schema_version,
            value=value,
            time_unit=time_unit,
            transactions=transactions,
            on_corruption=on_corruption,
            range_bytes=range_bytes,
            decryption_keys=decryption_keys,
            trace=trace,
        )
        table = dataset.head(rows)
    _print_rows(table.schema, table.to_batches(), as_json=as_json)
    tell(dataset.report, _names_text(dataset))


@_command("multi-ledger --start 87:1")
def plan(
    url: Url,
    topic: Topic,
    *,
    columns: Columns = None,
    schema: Schema = None,
    schema_version: SchemaVersion = None,
    value: Value = "flat",
    time_unit: TimeUnit = "ns",
    start: Start = None,
    end: End = None,
    storage_option: StorageOptions = None,
    on_corruption: OnCorruption = "raise",
    transactions: Transactions = "committed",
    range_bytes: RangeBytes = DEFAULT_RANGE_BYTES,
    as_json: AsJson = False,
) -> None:
    """Tell what reading a topic will cost.

    Only index objects are read for it. Data blocks are counted whole. Where a message in chunks or
    a transaction is open at the end, a read goes on until it is closed.
    """
    trace = RequestTrace()
    with progress(trace):
        dataset = open_topic(
            url,
            topic,
            storage_options=storage_options(storage_option),
            start=start,
            end=end,
            columns=column_names(columns),
            schema=schema,
            schema_version=schema_version,
            value="raw" if schema is None else value,
            time_unit=time_unit,
            transactions=transactions,
            on_corruption=on_corruption,
            range_bytes=range_bytes,
            trace=trace,
        )
    tell(dataset.unsound, _names_text(dataset))
    tasks = dataset.scan.plan()
    rows = [row for task in tasks for row in planned_ranges(task, range_bytes)]
    requests = sum(row["requests"] for row in rows)
    size_bytes = sum(row["bytes"] for row in rows)
    sent = trace.counts
    if as_json:
        whole = {"tasks": len(tasks), "requests": requests, "bytes": size_bytes, "ranges": rows}
        whole |= {"requests_sent": sent.requests, "bytes_received": sent.received_bytes}
        typer.echo(json.dumps(whole))
        return
    print_table(PLAN_SCHEMA, pa.Table.from_pylist(rows, PLAN_SCHEMA).to_batches())
    for what, number, size in (
        (f"to read, in {counted(len(tasks), 'task')}", requests, size_bytes),
        ("already read", sent.requests, sent.received_bytes),
    ):
        typer.echo(f"{what}: {counted(number, 'request')}, {size_text(size)}")


@_command("'SELECT __key__, count(*) FROM partitioned GROUP BY ALL ORDER BY ALL'")
def query(
    url: Url,
    sql: Annotated[
        str, typer.Argument(help="SQL of DuckDB; the last statement's rows are printed.")
    ],
    *,
    schema: Schema = None,
    schema_version: SchemaVersion = None,
    value: Value = "flat",
    time_unit: TimeUnit = "ns",
    storage_option: StorageOptions = None,
    on_corruption: OnCorruption = "raise",
    transactions: Transactions = "committed",
    range_bytes: RangeBytes = DEFAULT_RANGE_BYTES,
    decryption_keys: DecryptionKeys = None,
    as_json: AsJson = False,
) -> None:
    """Run SQL over topics, and tell what it cost.

    A topic's name is a table: "json-orders", or "tenant/namespace/name" outside of public/default.
    So is read_pulsar('json-orders', start := …, "end" := …, columns := […], schema := '…').
    The schema that --schema gives is that of each topic for which the SQL names none.
    """
    started = time.monotonic()
    trace = RequestTrace()
    options = storage_options(storage_option)
    with progress(trace):
        catalog = open_catalog(url, storage_options=options, range_bytes=range_bytes, trace=trace)
        row_schema, batches = run_sql(
            sql,
            catalog,
            url,
            storage_options=options,
            schema=schema,
            schema_version=schema_version,
            value=value,
            time_unit=time_unit,
            transactions=transactions,
            on_corruption=on_corruption,
            range_bytes=range_bytes,
            decryption_keys=decryption_keys,
            trace=trace,
        )
    rows = _print_rows(row_schema, watched(batches, trace), as_json=as_json)
    say("cost", cost_text(trace.counts, rows, time.monotonic() - started))


def _print_listing(
    schema: pa.Schema,
    rows: list[Row],
    catalog: Catalog,
    on_corruption: str,
    *,
    as_json: bool,
) -> None:
    """Print rows that may have problems, and exit with a code that tells of them."""
    unattributed = [str(error) for error in catalog.unattributed()]
    if as_json:
        nowhere = [{"problems": [problem]} for problem in unattributed]
        print_json(pa.Table.from_pylist([*rows, *nowhere], schema).to_batches())
    else:
        shown = pa.schema([field for field in schema if field.type != TEXTS])
        print_table(shown, pa.Table.from_pylist(rows, shown).to_batches())
    for row in rows:
        for warning in row.get("warnings", []):
            say("note", warning)
    problems = [problem for row in rows for problem in row["problems"]] + unattributed
    for problem in problems:
        say("unsound", problem)
    if problems:
        raise typer.Exit(ExitCode.UNREADABLE if on_corruption == "raise" else ExitCode.INCOMPLETE)


def _print_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, as_json: bool) -> int:
    return print_json(batches) if as_json else print_table(schema, batches)


def _names_text(dataset: TopicDataset) -> str:
    return ", ".join(str(each.topic) for each in dataset.scan.topics)


@contextmanager
def _errors_told() -> Iterator[None]:
    """Errors of ours become one line on stderr, warnings notes, and both an exit code."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            for category in _NOTED:
                warnings.simplefilter("always", category)
            yield
    except PulsarOffloadError as error:
        say("error", str(error))
        # Who got no values need not know what form they have.
        caught = [each for each in caught if each.category is not UndecodedValuesWarning]
        raise typer.Exit(_exit_code(error)) from None
    finally:
        incomplete = _tell_warnings(caught)
    if incomplete:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _tell_warnings(caught: list[warnings.WarningMessage]) -> bool:
    """Print our warnings as notes, each once, and hand on others; whether rows were left out."""
    notes: dict[str, None] = {}
    for each in caught:
        if issubclass(each.category, _NOTED):
            notes[str(each.message)] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    for note in notes:
        say("note", note)
    return any(issubclass(each.category, IncompleteReadWarning) for each in caught)


def _exit_code(error: PulsarOffloadError) -> ExitCode:
    match error:
        case OptionError():
            return ExitCode.USAGE
        case TopicNotFoundError():
            return ExitCode.TOPIC_NOT_FOUND
        case StorageError() | MissingObjectError():
            return ExitCode.STORAGE
        case FormatError() | EncryptedPayloadError():
            return ExitCode.UNREADABLE
    return ExitCode.FAILED
