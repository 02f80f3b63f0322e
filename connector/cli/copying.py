"""The command `copy`, which copies topics to lake tables."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector.cli.app import command, printed_warnings
from connector.cli.event_lines import write_event
from connector.cli.options import AsJson, Reading, Topic, Url, key_values
from connector.cli.output import print_rows, progress, say
from connector.cli.place import catalog_at
from connector.display.text import size_text
from connector.inputs.times import duration
from connector.lake.copy import copy_topics, plan_copy
from connector.lake.copy_plan import DEFAULT_SIZES, CopySizes
from connector.lake.follow import follow_copies
from connector.lake.maintenance import MaintenanceSettings
from connector.tables.evolution import TableKind  # noqa: TC001 - as above
from connector.upkeep.forecast.cost import EXAMPLE_PRICES, load_prices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from connector.lake.copy_plan import CopyPlan
    from connector.lake.follow import CopyRound
    from connector.lake.table_copy import TableSummary

_wait = time.sleep
_COPIED_SCHEMA = pa.schema(
    {"table": pa.string()}
    | dict.fromkeys(("rows", "files", "bytes", "dead_letters", "commits"), pa.int64())
)
_PLANNED_SCHEMA = pa.schema(
    {"table": pa.string()}
    | dict.fromkeys(("tasks", "ledgers", "bytes", "requests", "commits"), pa.int64())
    | {"money": pa.decimal128(38, 6)}
)


@command("json-orders lake/orders --partition-by 'day(__publish_time__)'", writes=True)
def copy(
    url: Url,
    topic: Topic,
    target: Annotated[
        str,
        typer.Argument(
            help="Folder of the table, a path or URL; for Iceberg its name, namespace.table. With"
            " {topic} in it, each topic has its own table. It may also contain {tenant} and"
            " {namespace}."
        ),
    ],
    *,
    format_: Annotated[TableKind, typer.Option("--format", help="Format of the table.")] = "delta",
    partition_by: Annotated[
        list[str] | None,
        typer.Option(
            help="Partition transform of a new table: day(__publish_time__), hour(…), month(…),"
            " year(…), bucket(16, customer), or a column. May be repeated."
        ),
    ] = None,
    dead_letters: Annotated[
        bool,
        typer.Option(
            "--dead-letters",
            help="Write messages whose value cannot be decoded to a second table, …_dead_letters."
            " Without this option, the first of them is an error.",
        ),
    ] = False,
    latest_per_key: Annotated[
        bool,
        typer.Option(
            "--latest-per-key",
            help="Keep only the latest row of each key; a null value deletes the row. Messages"
            " without a key are left out. For Delta and Iceberg.",
        ),
    ] = False,
    key_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --latest-per-key, a column that identifies rows. May be repeated. By"
            " default, the key of the message.",
        ),
    ] = None,
    target_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Option of the table's fsspec file system. May be repeated. By default, those of"
            " --storage-option if both URLs have the same scheme.",
        ),
    ] = None,
    table_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="For Iceberg: property of the catalog, whose name is catalog=…, or of a new table"
            " (table-default.…), its location or sort-order, a branch or a tag. For Delta:"
            " additional storage option of deltalake, or property of a new table (delta.…). May be"
            " repeated.",
        ),
    ] = None,
    file_bytes: Annotated[
        int, typer.Option(min=1, help="Size at which a new file starts, in bytes.")
    ] = DEFAULT_SIZES.file_bytes,
    commit_bytes: Annotated[
        int,
        typer.Option(min=1, help="Bytes of data objects to read for each commit."),
    ] = DEFAULT_SIZES.commit_bytes,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze",
            help="Store statistics of completely copied ledgers in --statistics, as analyze does.",
        ),
    ] = False,
    maintain: Annotated[
        bool,
        typer.Option(
            "--maintain",
            help="Afterwards, maintain tables with small files, as lake maintain does by default.",
        ),
    ] = False,
    metrics_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File for Prometheus' textfile collector, written when the copy ends or fails.",
        ),
    ] = None,
    follow: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Copy again and again, at this interval (5m), until Ctrl-C or SIGTERM. Of several"
            " processes that follow the same topics, one copies.",
        ),
    ] = None,
    holder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --follow: name of this process among those that follow the same topics. By"
            " default, the name of the machine.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what a copy would read, write and cost.")
    ] = False,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="With --dry-run: TOML file of the store's prices, as for cost."
        ),
    ] = None,
    request: Reading,
    as_json: AsJson = False,
) -> None:
    """Copy new messages of topics to Delta, Iceberg or Parquet tables.

    Each table stores the progress of its copy. So each run resumes where the last one ended or was
    stopped, and each row is written exactly once. If two runs overlap, one fails. By default, the
    columns are position, key, publish time and those of the values; --columns changes that.
    Messages before --start are never copied; --end is not allowed.
    """
    start_s = time.monotonic()
    trace = RequestTrace()
    catalog = catalog_at(url, request, trace)
    options = request.reading_options() | {
        "catalog": catalog,
        "format": format_,
        "partition_by": partition_by or None,
        "dead_letters": dead_letters,
        "latest_per_key": latest_per_key,
        "key_columns": key_column or None,
        "target_options": key_values("--target-option", target_option) or None,
        "table_options": key_values("--table-option", table_option) or None,
        "sizes": CopySizes(file_bytes=file_bytes, commit_bytes=commit_bytes),
        "analyze": analyze,
        "maintenance": MaintenanceSettings() if maintain else None,
        "metrics_file": metrics_file,
    }
    if follow is not None:
        if dry_run:
            message = "--dry-run plans one copy: leave out --follow"
            raise OptionError(message)
        interval = duration("--follow", follow)
        rounds = partial(
            follow_copies, url, topic, target, interval=interval, holder=holder, **options
        )
        _follow(rounds, trace, as_json=as_json)
        return
    if dry_run:
        with progress(trace):
            plans = plan_copy(url, topic, target, **options)
        _print_plans(plans, prices, as_json=as_json)
        return
    status = _Status()
    summaries: list[TableSummary] = []

    def add(summary: TableSummary) -> None:
        summaries.append(summary)
        _report_table(summary)

    try:
        with progress(trace, status=status):
            copy_topics(
                url,
                topic,
                target,
                on_progress=status.update,
                on_table=add,
                **options,
            )
    finally:
        # Report the copied tables even if another table failed.
        if summaries:
            _print_summaries(summaries, as_json=as_json)
    if analyze:
        ledgers = sum(each.analyzed_ledgers for each in summaries)
        say("analyzed", f"{counted(ledgers, 'ledger')}")
    rows = sum(each.rows for each in summaries)
    read_bytes = sum(each.data_bytes for each in summaries)
    seconds = time.monotonic() - start_s
    say(
        "copied",
        f"{counted(rows, 'row')} of {size_text(read_bytes)} of data objects, {seconds:.2f} s",
        rows=rows,
        data_bytes=read_bytes,
        seconds=round(seconds, 3),
    )


def _follow(
    follow_rounds: Callable[..., Generator[CopyRound, None, None]],
    trace: RequestTrace,
    *,
    as_json: bool,
) -> None:
    """Print each round. An interrupt ends the rounds, and releases the leases of their tables."""
    status = _Status()
    rounds = follow_rounds(on_progress=status.update, on_table=_report_table, wait=lambda _: None)
    # An interrupt need not be raised in the iterator itself.
    with closing(rounds):
        while True:
            with progress(trace, status=status), printed_warnings():
                copy_round = next(rounds)
            _print_round(copy_round, as_json=as_json)
            _wait(copy_round.wait_s)


def _print_round(copy_round: CopyRound, *, as_json: bool) -> None:
    for each in copy_round.failures:
        say(
            "failed",
            f"{each.text}: {each.error}",
            table=each.table,
            topic=each.topic,
            error_type=type(each.error).__name__,
        )
    copied = [each for each in copy_round.summaries if each.commits]
    if copied:
        _print_summaries(copied, as_json=as_json)
    sys.stdout.flush()
    write_event(
        "round",
        number=copy_round.number,
        tables=len(copy_round.summaries),
        rows=sum(each.rows for each in copied),
        lag_bytes=sum(each.lag_bytes for each in copy_round.summaries),
        failures=len(copy_round.failures),
        postponed=len(copy_round.postponed),
        standby=len(copy_round.standby),
        wait_s=round(copy_round.wait_s, 3),
    )


def _report_table(summary: TableSummary) -> None:
    write_event("table", **_row(summary), topic=summary.topic, lag_bytes=summary.lag_bytes)


class _Status:
    def __init__(self) -> None:
        self._bytes = (0, 0)

    def update(self, copied_bytes: int, total_bytes: int) -> None:
        self._bytes = copied_bytes, total_bytes

    def text(self) -> str:
        copied, total = self._bytes
        return f"copying … {size_text(copied)} of {size_text(total)}" if total else "copying …"

    def fields(self) -> dict[str, object]:
        copied, total = self._bytes
        return {"copied_bytes": copied, "total_bytes": total}


def _print_summaries(summaries: Sequence[TableSummary], *, as_json: bool) -> None:
    for each in summaries:
        for notice in each.notices:
            say("note", notice)
    _print(_COPIED_SCHEMA, [_row(each) for each in summaries], as_json=as_json)


def _row(summary: TableSummary) -> dict[str, object]:
    return {
        "table": summary.target,
        "rows": summary.rows,
        "files": summary.files,
        "bytes": summary.written_bytes,
        "dead_letters": summary.dead_letters,
        "commits": summary.commits,
    }


def _print_plans(plans: Sequence[CopyPlan], prices: str | None, *, as_json: bool) -> None:
    table = EXAMPLE_PRICES if prices is None else load_prices(prices)
    for each in plans:
        for notice in each.notices:
            say("note", notice)
    rows = [
        {
            "table": each.target,
            "tasks": each.tasks,
            "ledgers": each.ledgers,
            "bytes": each.data_bytes,
            "requests": each.counts.requests,
            "commits": each.commits,
            "money": round(table.money(each.counts).total, 6),
        }
        for each in plans
    ]
    _print(_PLANNED_SCHEMA, rows, as_json=as_json)
    counts = sum((each.counts for each in plans), RequestCounts())
    say("cost", f"about {table.money(counts).total:.6f} {table.currency}")
    if table is EXAMPLE_PRICES:
        say("note", f"these are example prices of {table.as_of}; give your own with --prices")


def _print(schema: pa.Schema, rows: list[dict[str, object]], *, as_json: bool) -> None:
    batches = pa.Table.from_pylist(rows, schema).to_batches()
    print_rows(schema, batches, "jsonl" if as_json else "table")
