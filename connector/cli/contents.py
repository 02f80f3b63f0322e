"""The commands that list topics, ledgers, data blocks and objects, and save a catalog snapshot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from arrow_io.core.wording import counted
from connector.catalog.tables import (
    TEXTS,
    blocks_table,
    counted_topics,
    ledgers_table,
    objects_table,
    topics_table,
)
from connector.cli.app import ExitCode, command
from connector.cli.options import AsJson, Bucket, Listing, Place, Printing, Topic, Url  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_rows, print_table, say
from connector.cli.place import catalog_at, note_empty_location

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.catalog.catalog import Catalog
    from connector.cli.forms import Form

_Pattern = Annotated[str | None, typer.Argument(help="Name or glob. By default, all topics.")]


@command("'multi-*'")
def topics(
    url: Url,
    pattern: _Pattern = None,
    *,
    request: Listing,
    form: Printing,
) -> None:
    """List topics and their offloaded ledgers.

    Bytes are the size of the data objects. According to the metadata, pending ledgers are only in
    BookKeeper. Unsound ledgers cannot be read completely. An unsound ledger of an unknown topic is
    reported by a note, and in JSON by a line without a topic.
    """
    catalog = catalog_at(url, request)
    table = topics_table(catalog, pattern)
    note_empty_location(catalog)
    unfinished = [each for each in catalog.bucket.unfinished if each.name.ledger_id is not None]
    if unfinished and catalog.source is None:
        offloads = counted(len(unfinished), "offload")
        say("note", f"{offloads} never completed: the index object is missing")
    _print_listing(table, catalog, request.on_corruption, form)
    unlisted = sum(each or 0 for each in table["unlisted_ledgers"].to_pylist())
    if unlisted:
        say(
            "note",
            f"the bucket has {counted(unlisted, 'ledger')} that the metadata, which may be older,"
            " does not list as offloaded: reads leave them out",
        )
        raise typer.Exit(ExitCode.INCOMPLETE)


@command("multi-ledger")
def ledgers(
    url: Url,
    topic: Topic,
    *,
    request: Listing,
    form: Printing,
) -> None:
    """List the ledgers of a topic, and where they are.

    With --metadata, the list includes ledgers that are not offloaded, missing or deleted. Bytes are
    the size of the data object, and entry_bytes the size of its entries.
    """
    catalog = catalog_at(url, request)
    _print_listing(ledgers_table(catalog, topic), catalog, request.on_corruption, form)


@command("multi-ledger")
def blocks(
    url: Url,
    topic: Topic,
    *,
    place: Place,
    form: Printing,
) -> None:
    """List the data blocks of a topic's offloaded ledgers."""
    catalog = catalog_at(url, place)
    _print(blocks_table(catalog, topic), form)


@command("multi-ledger")
def objects(
    url: Url,
    topic: _Pattern = None,
    *,
    bucket: Bucket,
    form: Printing,
) -> None:
    """List the objects of the bucket or of a topic.

    Without a topic, the list includes objects that belong to no ledger.
    """
    catalog = catalog_at(url, bucket)
    _print(objects_table(catalog, topic), form)


@command("catalog.json.gz --metadata tests/data/golden/pulsar-4.0.7", writes=True)
def save(
    url: Url,
    file: Annotated[str, typer.Argument(help="Path or URL; ends with .json.gz.")],
    *,
    statistics: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder or URL of statistics (analyze) to record in the file."
        ),
    ] = None,
    place: Place,
    as_json: AsJson = False,
) -> None:
    """Save a catalog snapshot of the bucket to a file, for --metadata.

    Commands with this file as --metadata neither list the bucket nor read index objects. They do
    not see ledgers that are offloaded later.
    """
    catalog = catalog_at(url, place)
    storage_options = place.storage_options if "://" in file else None
    catalog.save(file, statistics=statistics, storage_options=storage_options)
    for warning in catalog.source.warnings if catalog.source else ():
        say("note", warning)
    topics, ledgers = catalog.topics(), catalog.bucket.copy_count
    if as_json:
        bases = len({topic.base for topic in topics})
        typer.echo(json.dumps({"file": file, "topics": bases, "ledgers": ledgers}))
        return
    typer.echo(f"{counted_topics(topics)}, {counted(ledgers, 'ledger')} saved to {file}")


def _print_listing(table: pa.Table, catalog: Catalog, on_corruption: str, form: Form) -> None:
    """Print a table, its warnings and its problems; exit with a code if there are problems."""
    # With metadata, ledgers of unknown topics are not among those that it lists.
    nowhere = [] if catalog.source else [str(error) for error in catalog.unattributed_errors()]
    if form != "table":
        problem_rows = [{"problems": [problem]} for problem in nowhere]
        batches = [*table.to_batches(), *table.from_pylist(problem_rows, table.schema).to_batches()]
        print_rows(table.schema, batches, form)
    else:
        _print(table, form)
    rows = table.select([name for name in ("warnings", "problems") if name in table.column_names])
    records = rows.to_pylist()
    for warning in (each for row in records for each in row.get("warnings") or ()):
        say("note", warning)
    problems = [each for row in records for each in row["problems"]] + nowhere
    for problem in problems:
        say("unsound", problem)
    if problems:
        raise typer.Exit(ExitCode.UNREADABLE if on_corruption == "raise" else ExitCode.INCOMPLETE)


def _print(table: pa.Table, form: Form) -> None:
    """Print a table. In the form "table", leave out columns without values."""
    if form != "table":
        print_rows(table.schema, table.to_batches(), form)
        return
    names_with_values = [
        field.name
        for field in table.schema
        if field.type != TEXTS
        and (table.num_rows == 0 or table[field.name].null_count < table.num_rows)
    ]
    table = table.select(names_with_values)
    print_table(table.schema, table.to_batches())
