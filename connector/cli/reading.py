"""The commands `plan` and `query`."""

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
from connector.cli.place import catalog_at, note_incomplete_read, note_snapshot
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
"""Columns of an EXPLAIN result."""


@command("multi-ledger --start 87:1")
def plan(
    url: Url,
    topic: Topic,
    *,
    where: Where = None,
    request: Reading,
    form: PrintingWhole,
) -> None:
    """Print the requests and bytes that reading a topic will take.

    It reads only index objects and statistics. It counts whole data blocks, unless statistics have
    the positions of entries. If a chunked message or a transaction is open at the end, a read
    continues until it is closed, which is not counted.
    """
    trace = RequestTrace()
    note_snapshot(request.metadata)
    with progress(trace):
        value = request.value if request.schema is not None else "raw"
        dataset = open_request(url, topic, replace(request, value=value, trace=trace))
        if where is not None:
            dataset = dataset.filter(
                where_expression(where, dataset.scan.options.filterable.schema)
            )
    note_incomplete_read(dataset.unsound, dataset.scan)
    cost = read_cost(dataset.scan, range_bytes=request.range_bytes)
    pruning, table = dataset.scan.pruning(), dataset.scan.table_read
    rows = [asdict(each) for each in cost.ranges]
    requests, size_bytes = cost.reading.requests, cost.reading.received_bytes
    sent = trace.counts
    if form in {"json", "jsonl"}:
        fields = {"tasks": cost.tasks, "requests": requests, "bytes": size_bytes, "ranges": rows}
        fields |= {"requests_sent": sent.requests, "bytes_received": sent.received_bytes}
        fields |= {"skipped_zones": pruning.zones, "skipped_bytes": pruning.bytes}
        fields |= {"table_bytes": 0 if table is None else table.data_bytes}
        typer.echo(json.dumps(fields))
        return
    print_rows(PLAN_SCHEMA, pa.Table.from_pylist(rows, PLAN_SCHEMA).to_batches(), form)
    if form != "table":
        return
    for label, number, size in (
        (f"to read, in {counted(cost.tasks, 'task')}", requests, size_bytes),
        ("already read", sent.requests, sent.received_bytes),
    ):
        typer.echo(f"{label}: {counted(number, 'request')}, {size_text(size)}")
    if table is not None:
        files = counted(len(table.numbers), "file")
        typer.echo(f"to read of the table: {files}, {size_text(table.data_bytes)}")
    for line in pruning.lines():
        typer.echo(line)


@command("'SELECT __key__, count(*) FROM partitioned GROUP BY ALL ORDER BY ALL'")
def query(
    url: Url,
    sql: Annotated[
        str | None,
        typer.Argument(
            help="SQL of DuckDB; the rows of the last statement are printed. A hyphen reads the SQL"
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
    """Run SQL over topics, and print its requests and bytes.

    A topic's name is a table: "json-orders", or "tenant/namespace/name" outside of public/default.
    So is read_pulsar('json-orders', start := …, "end" := …, columns := […], schema := '…').
    --schema applies to each topic for which the SQL has no schema.
    """
    start_s = time.monotonic()
    text = sql_text(sql, file)
    trace = RequestTrace()
    catalog = catalog_at(url, request, trace)
    with progress(trace):
        row_schema, batches = run_sql(text, catalog, url, replace(request, trace=trace))
    if row_schema.names == _EXPLANATION and form == "table":
        rows = print_texts(_EXPLANATION[-1], show_progress(batches, trace))
    else:
        rows = print_rows(row_schema, show_progress(batches, trace), form)
    say("cost", cost_text(trace.counts, rows, time.monotonic() - start_s))
