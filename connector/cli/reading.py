"""The commands that ask DuckDB, and tell before what reading will cost."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated, Final

import pyarrow as pa
import typer

from arrow_io.core.wording import counted
from arrow_io.storage.trace import RequestTrace
from connector.cli.app import command
from connector.cli.options import Printing, PrintingWhole, Reading, Topic, Url, Where  # noqa: TC001 - typer reads annotations
from connector.cli.output import (
    cost_text,
    print_rows,
    print_texts,
    progress,
    say,
    show_progress,
)
from connector.cli.place import catalog_at, tell_read, tell_snapshot
from connector.cli.sql import run_sql, sql_text
from connector.display.text import size_text
from connector.filters.where import where_expression
from connector.topic import open_request
from connector.upkeep.forecast.cost import read_cost

PLAN_SCHEMA = pa.schema(
    {"topic": pa.string()}
    | dict.fromkeys(
        ("ledger_id", "first_entry_id", "last_entry_id", "requests", "bytes"), pa.int64()
    )
)
_EXPLANATION: Final = ["explain_key", "explain_value"]
"""The columns that EXPLAIN gives."""


@command("multi-ledger --start 87:1")
def plan(
    url: Url,
    topic: Topic,
    *,
    where: Where = None,
    request: Reading,
    form: PrintingWhole,
) -> None:
    """Tell what reading a topic will cost.

    It reads only index objects, and statistics. Data blocks are counted whole, unless statistics
    tell where entries stand. If a message in chunks or a transaction is open at the end, a read
    goes on until it is closed, which is not counted.
    """
    trace = RequestTrace()
    tell_snapshot(request.metadata)
    with progress(trace):
        value = request.value if request.schema is not None else "raw"
        dataset = open_request(url, topic, replace(request, value=value, trace=trace))
        if where is not None:
            dataset = dataset.filter(
                where_expression(where, dataset.scan.options.filterable.schema)
            )
    tell_read(dataset.unsound, dataset.scan)
    cost = read_cost(dataset.scan, range_bytes=request.range_bytes)
    skipped = dataset.scan.pruning()
    rows = [asdict(each) for each in cost.ranges]
    requests, size_bytes = cost.reading.requests, cost.reading.received_bytes
    sent = trace.counts
    if form in {"json", "jsonl"}:
        whole = {"tasks": cost.tasks, "requests": requests, "bytes": size_bytes, "ranges": rows}
        whole |= {"requests_sent": sent.requests, "bytes_received": sent.received_bytes}
        whole |= {"skipped_zones": skipped.zones, "skipped_bytes": skipped.bytes}
        typer.echo(json.dumps(whole))
        return
    print_rows(PLAN_SCHEMA, pa.Table.from_pylist(rows, PLAN_SCHEMA).to_batches(), form)
    if form != "table":
        return
    for label, number, size in (
        (f"to read, in {counted(cost.tasks, 'task')}", requests, size_bytes),
        ("already read", sent.requests, sent.received_bytes),
    ):
        typer.echo(f"{label}: {counted(number, 'request')}, {size_text(size)}")
    for line in skipped.lines():
        typer.echo(line)


@command("'SELECT __key__, count(*) FROM partitioned GROUP BY ALL ORDER BY ALL'")
def query(
    url: Url,
    sql: Annotated[
        str | None,
        typer.Argument(
            help="SQL of DuckDB; the last statement's rows are printed. A hyphen alone reads it"
            " from standard input."
        ),
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="File with the SQL.")
    ] = None,
    request: Reading,
    form: Printing,
) -> None:
    """Run SQL over topics, and tell what it cost.

    A topic's name is a table: "json-orders", or "tenant/namespace/name" outside of public/default.
    So is read_pulsar('json-orders', start := …, "end" := …, columns := […], schema := '…').
    What --schema gives holds for each topic for which the SQL names no schema.
    """
    started = time.monotonic()
    text = sql_text(sql, file)
    trace = RequestTrace()
    catalog = catalog_at(url, request, trace)
    with progress(trace):
        row_schema, batches = run_sql(text, catalog, url, replace(request, trace=trace))
    if row_schema.names == _EXPLANATION and form == "table":
        rows = print_texts(_EXPLANATION[-1], show_progress(batches, trace))
    else:
        rows = print_rows(row_schema, show_progress(batches, trace), form)
    say("cost", cost_text(trace.counts, rows, time.monotonic() - started))
