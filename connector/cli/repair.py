"""The command `repair`, which rebuilds index objects from data objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import pyarrow as pa
import typer

from arrow_io.core.wording import counted
from connector.catalog.tables import table_of
from connector.cli.app import ExitCode, command
from connector.cli.options import Place, Printing, Url  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_rows, progress, say
from connector.cli.place import catalog_at, check_no_snapshot, note_empty_location
from connector.upkeep.repair.repair import plan_repair, repair

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from arrow_io.storage.location import Location
    from connector.upkeep.repair.ledger_repair import Attempt, RebuiltLedger, Repair

_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "ledger_id": pa.int64(),
        "object": pa.string(),
        "problem": pa.string(),
        "entries": pa.int64(),
        "blocks": pa.int64(),
        "metadata_from": pa.string(),
    }
)


@command("--metadata tests/data/golden/pulsar-4.0.7", writes=True)
def repair_(
    url: Url,
    ledger: Annotated[
        list[int] | None,
        typer.Argument(
            help="Ids of ledgers to compare with their data objects, even if they seem sound. By"
            " default, all ledgers whose index object is missing or unsound.",
        ),
    ] = None,
    *,
    place: Place,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Also read every entry through the new index object, and check its checksum.",
        ),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Write; without it, nothing is written.")
    ] = False,
    form: Printing,
) -> None:
    """Rebuild missing and damaged index objects from their data objects.

    Prints the index objects that it would write, and why it cannot write others. --yes writes them.

    Data objects are read completely. Their content must match the metadata.

    Exits with 5 if a data object is damaged too, or lacks entries.
    """
    check_no_snapshot(place.metadata)
    catalog = catalog_at(url, replace(place, index_cache=False))
    with progress(catalog.location.trace):
        plan = plan_repair(catalog, ledger or (), verify=verify)
        repairs = list(_write_repairs(catalog.location, plan) if yes else plan)
    note_empty_location(catalog)
    repaired = [each for each in repairs if each.index is not None]
    table = table_of([_row(each.attempt, each.ledger) for each in repaired if each.ledger], _SCHEMA)
    if table.num_rows or form != "table":
        print_rows(table.schema, table.to_batches(), form)
    for each in repairs:
        if each.refusal is not None:
            say("kept", f"{each.attempt.name.index_name}: {each.refusal}")
    if form == "table":
        text = counted(len(repaired), "index object")
        typer.echo(f"{text} written" if yes else f"{text} would be written by --yes")
    if any(each.error is not None for each in repairs):
        raise typer.Exit(ExitCode.UNREADABLE)


def _write_repairs(location: Location, plan: Iterable[Repair]) -> Iterator[Repair]:
    for each in repair(location, plan):
        if each.index is not None:
            say("written", each.index.name)
        yield each


def _row(attempt: Attempt[Any], ledger: RebuiltLedger) -> dict[str, object]:
    return {
        "topic": None if attempt.topic is None else str(attempt.topic),
        "ledger_id": ledger.ledger_id,
        "object": attempt.name.index_name,
        "problem": attempt.problem,
        "entries": ledger.entries,
        "blocks": ledger.blocks,
        "metadata_from": ledger.metadata_from,
    }
