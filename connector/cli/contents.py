"""The commands that list what there is: topics, ledgers, data blocks, objects; and save it."""

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
from connector.cli.place import catalog_at, tell_place

if TYPE_CHECKING:
    import pyarrow as pa

    from connector.catalog.catalog import Catalog
    from connector.cli.forms import Form

_Pattern = Annotated[str | None, typer.Argument(help="Name or glob; all topics if none.")]


@command("'multi-*'")
def topics(
    url: Url,
    pattern: _Pattern = None,
    *,
    request: Listing,
    form: Printing,
) -> None:
    """List topics, and what of them is offloaded.

    Bytes are those of the data objects. Pending is what is in BookKeeper only, by the metadata.
    Unsound ledgers cannot be read, or not as a whole. If the topic of one is not known, it has a
    note of its own, and in JSON a line without a topic.
    """
    catalog = catalog_at(url, request)
    table = topics_table(catalog, pattern)
    tell_place(catalog)
    unfinished = [each for each in catalog.bucket.unfinished if each.name.ledger_id is not None]
    if unfinished and catalog.source is None:
        offloads = counted(len(unfinished), "offload")
        say("note", f"{offloads} never completed: no index object")
    _print_listing(table, catalog, request.on_corruption, form)
    unlisted = sum(each or 0 for each in table["unlisted_ledgers"].to_pylist())
    if unlisted:
        say(
            "note",
            f"the metadata, which may be older, does not have {counted(unlisted, 'ledger')} of the"
            " bucket as offloaded: a read of a topic leaves them out",
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

    With --metadata, it also lists those that are not offloaded, that are missing, or that the
    topic has no more. Bytes are those of the data object, entry_bytes those of the entries alone.
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
    """List the objects of the bucket, or those of a topic.

    Objects that belong to no ledger are listed too, unless a topic is named.
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
            metavar="FOLDER", help="Folder or URL of statistics (analyze) for reads by the file."
        ),
    ] = None,
    place: Place,
    as_json: AsJson = False,
) -> None:
    """Save what is known of the bucket to a file, for --metadata.

    Commands that are given the file list no bucket and read no index object. Ledgers that are
    offloaded later are not in it.
    """
    catalog = catalog_at(url, place)
    storage_options = place.storage_options if "://" in file else None
    catalog.save(file, statistics=statistics, storage_options=storage_options)
    topics, ledgers = catalog.topics(), catalog.bucket.copy_count
    if as_json:
        bases = len({topic.base for topic in topics})
        typer.echo(json.dumps({"file": file, "topics": bases, "ledgers": ledgers}))
        return
    typer.echo(f"{counted_topics(topics)}, {counted(ledgers, 'ledger')} saved to {file}")


def _print_listing(table: pa.Table, catalog: Catalog, on_corruption: str, form: Form) -> None:
    """Print rows that may have problems, and exit with a code that tells of them."""
    # With metadata, a ledger that names no topic is not one of those that it lists.
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
    """Print a table; for people, columns that have nothing in them are left out."""
    if form != "table":
        print_rows(table.schema, table.to_batches(), form)
        return
    shown = [
        field.name
        for field in table.schema
        if field.type != TEXTS
        and (table.num_rows == 0 or table[field.name].null_count < table.num_rows)
    ]
    table = table.select(shown)
    print_table(table.schema, table.to_batches())
