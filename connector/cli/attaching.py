"""The command `attach`, which checks whether a cluster can take over a written topic."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Final

import pyarrow as pa
import typer

from arrow_io.core.option_values import path_or_url
from arrow_io.errors import OptionError
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.tables import table_of
from connector.cli.app import ExitCode, command
from connector.cli.options import Place, Printing, Topic, Url, key_values
from connector.cli.output import print_rows, print_table
from connector.cli.place import catalog_at
from connector.upkeep.attachment import check_attachment

_SCHEMA: Final = pa.schema({"what": pa.string(), "verdict": pa.string(), "text": pa.string()})


@command("sales --check --metadata metadata --to http://broker:8080", url="s3://offloaded")
def attach(
    url: Url,
    topic: Topic,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Required: this command changes nothing.")
    ] = False,
    to: Annotated[str, typer.Option(metavar="URL", help="Admin API of the cluster.")],
    to_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Connection option, see --metadata-option: token, ca_file … May be repeated.",
        ),
    ] = None,
    place: Place,
    form: Printing,
) -> None:
    """Check whether a written topic can be attached to a cluster.

    Prints possible problems, then the steps. --metadata is the metadata that was written with the
    topic. Exits with 7 if the topic or some of its messages would be lost or unreadable.
    """
    if not check:
        message = (
            "attach cannot change the cluster's metadata store: give --check to print the steps"
        )
        raise OptionError(message)
    cluster = AdminApi.from_options(path_or_url("to", to), key_values("--to-option", to_option))
    catalog = catalog_at(url, replace(place, index_cache=False))
    attachment = check_attachment(catalog, topic, cluster, now_ms=time.time_ns() // 1_000_000)
    checks = [
        {"what": each.subject, "verdict": each.verdict.value, "text": each.text}
        for each in attachment.checks
    ]
    steps = [
        {"what": f"step {number}", "verdict": "to do", "text": text}
        for number, text in enumerate(attachment.steps, 1)
    ]
    if form != "table":
        print_rows(_SCHEMA, table_of([*checks, *steps], _SCHEMA).to_batches(), form)
    else:
        print_table(_SCHEMA, table_of(checks, _SCHEMA).to_batches())
        for step in steps:
            typer.echo(f"{step['what']}: {step['text']}")
    if attachment.has_problems:
        raise typer.Exit(ExitCode.FOUND)
