"""The command `analyze`, which gathers statistics of topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from arrow_io.core.wording import agreeing, counted
from connector.cli.app import ExitCode, command
from connector.cli.options import AsJson, Place, Url, Verbose  # noqa: TC001 - typer reads annotations
from connector.cli.output import say, shows_each_ledger
from connector.cli.place import catalog_at, note_empty_location
from connector.display.text import size_text

if TYPE_CHECKING:
    from connector.statistics.analysis import Analyzed


@command("json-orders --statistics statistics", writes=True)
def analyze(
    url: Url,
    topics: Annotated[
        list[str] | None, typer.Argument(help="Names or globs. By default, all topics.")
    ] = None,
    *,
    statistics: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder or URL for the statistics.")
    ],
    place: Place,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Gather statistics of topics, which let later reads skip data.

    Statistics are the positions, times and keys of messages in zones of about 1 MiB. To see them,
    run SELECT * FROM 'FOLDER/*.parquet'. Ledgers with statistics in the folder are not read again,
    so a run that was stopped can be resumed.

    Exits with 5 if entries cannot be read; statistics of all others are stored.
    """
    catalog = catalog_at(url, place)
    note_empty_location(catalog)
    prints_each = shows_each_ledger(verbose=verbose)
    unreadable = 0

    def print_ledger(each: Analyzed) -> None:
        nonlocal unreadable
        unreadable += bool(each.losses)
        if prints_each:
            say(
                "analyzed",
                f"{each.topic}, ledger {each.ledger_id}: {size_text(each.bytes)}",
                topic=each.topic,
                ledger_id=each.ledger_id,
                bytes=each.bytes,
                zones=each.zones,
            )
        for loss in each.losses:
            say("lost", loss, topic=each.topic, ledger_id=each.ledger_id)

    results = catalog.analyze(statistics, topics or "*", progress=print_ledger)
    size_bytes, zones = sum(each.bytes for each in results), sum(each.zones for each in results)
    if as_json:
        counts = {"ledgers": len(results), "bytes": size_bytes, "zones": zones}
        typer.echo(json.dumps(counts | {"unreadable_ledgers": unreadable}))
    else:
        text = f"{counted(len(results), 'ledger')}, {size_text(size_bytes)}"
        typer.echo(f"analyzed {text}: {counted(zones, 'zone')}")
    if unreadable:
        text = agreeing(unreadable, "has entries", "have entries")
        say("note", f"{counted(unreadable, 'ledger')} {text} that cannot be read")
        raise typer.Exit(ExitCode.UNREADABLE)
