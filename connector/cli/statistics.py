"""The command `analyze`, which gathers statistics of topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from arrow_io.core.wording import agreeing, counted
from connector.cli.app import ExitCode, command
from connector.cli.options import AsJson, Place, Url, Verbose  # noqa: TC001 - typer reads annotations
from connector.cli.output import say, shows_each_ledger
from connector.cli.place import catalog_at, tell_place
from connector.display.text import size_text

if TYPE_CHECKING:
    from connector.statistics.analysis import Analyzed


@command("json-orders --statistics statistics", writes=True)
def analyze(
    url: Url,
    topics: Annotated[
        list[str] | None, typer.Argument(help="Names or globs; all topics if there are none.")
    ] = None,
    *,
    statistics: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder or URL to keep them in.")
    ],
    place: Place,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Read topics once, and keep what spares reading them again.

    That is where messages stand, their times and keys, about 1 MiB at a time: see the columns by
    SELECT * FROM 'FOLDER/*.parquet'. What the folder knows already is not read again, so a run that
    was stopped goes on where it was.

    Ends with 5 if something cannot be read; what stands around it is known all the same.
    """
    catalog = catalog_at(url, place)
    tell_place(catalog)
    tells_each = shows_each_ledger(verbose=verbose)
    unreadable = 0

    def tell(each: Analyzed) -> None:
        nonlocal unreadable
        unreadable += bool(each.losses)
        if tells_each:
            say("analyzed", f"{each.topic}, ledger {each.ledger_id}: {size_text(each.bytes)}")
        for loss in each.losses:
            say("lost", loss)

    results = catalog.analyze(statistics, topics or "*", progress=tell)
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
