"""The command `demo`, which needs neither a bucket nor a network."""

from __future__ import annotations

import shlex
import shutil
import time
from importlib.resources import as_file, files
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import Annotated, Final

import typer

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector.cli.app import command
from connector.cli.options import Printing  # noqa: TC001 - typer reads annotations
from connector.cli.output import cost_text, print_rows, say
from connector.cli.place import catalog_at
from connector.cli.sql import run_sql
from connector.options.topic_request import TopicRequest

SQL: Final = """\
SELECT customer.country AS country, count(*) AS orders, round(sum(total), 2) AS revenue
FROM orders
WHERE status = 'PAID'
GROUP BY country
ORDER BY revenue DESC"""


@command("--copy shop", url=None)
def demo(
    *,
    copy: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Copy the bucket to this new folder, which other commands can then read.",
        ),
    ] = None,
    form: Printing,
) -> None:
    """Ask a question in SQL about a topic of this package.

    The package contains a bucket to which a broker of Pulsar offloaded the orders of a shop, and
    the cluster's metadata.
    """
    with as_file(files("connector") / "demo-bucket") as bucket:
        if copy is not None:
            _copy(bucket, copy)
        if form == "table":
            typer.echo(SQL)
        _ask(str(bucket), form)
    if form == "table":
        typer.echo("\nNext:\n" + "\n".join(f"  pulsar-offload {line}" for line in _steps(copy)))


def _ask(bucket: str, form: Printing) -> None:
    start_s = time.monotonic()
    trace = RequestTrace()
    request = TopicRequest(metadata=bucket, trace=trace)
    row_schema, batches = run_sql(SQL, catalog_at(bucket, request, trace), bucket, request)
    rows = print_rows(row_schema, batches, form)
    say("cost", cost_text(trace.counts, rows, time.monotonic() - start_s))


def _copy(bucket: Path, folder: Path) -> None:
    try:
        shutil.copytree(bucket, folder)
    except FileExistsError:
        message = f"{folder} exists: give --copy the path of a new folder"
        raise OptionError(message) from None
    except OSError as error:
        message = f"cannot copy the bucket to {folder}: {error.strerror or error}"
        raise OptionError(message) from None


def _steps(copy: Path | None) -> list[str]:
    """Return the arguments of commands that a user can try next."""
    own = "topics s3://bucket/prefix --metadata https://broker:8443"
    if copy is None:
        return ["demo --copy shop", own]
    folder = shlex.quote(str(copy))
    return [f"head {folder} orders --metadata {folder}", own]
