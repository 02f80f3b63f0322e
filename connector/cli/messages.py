"""The commands `head`, `tail` and `get`, which print messages."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

import pyarrow.compute as pc
import typer

from arrow_io.errors import OptionError, TopicNotFoundError
from arrow_io.storage.trace import RequestTrace
from connector.catalog.opening import open_catalog
from connector.cli.app import ExitCode, command
from connector.cli.options import Printing, Reading, Topic, Url  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_records, print_rows, progress, say
from connector.cli.place import note_incomplete_read, note_snapshot
from connector.display.topic_metrics import TopicMetrics
from connector.increments.following import new_from_brokers, new_in_bucket
from connector.inputs.message_ids import MessageId
from connector.inputs.times import duration
from connector.live.opening import partitions_of_brokers
from connector.topic import brokers_from_request, open_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from connector.catalog.catalog import Catalog
    from connector.dataset import TopicDataset
    from connector.increments.following import NewRows
    from connector.options.topic_request import TopicRequest

_POSITION = ("__ledger_id__", "__entry_id__", "__batch_index__", "__partition__")


@command("json-orders -n 3 --columns __publish_time__,__key__,__value__")
def head(
    url: Url,
    topic: Topic,
    *,
    rows: Annotated[int, typer.Option("-n", "--rows", min=0, help="Maximum number of rows.")] = 10,
    request: Reading,
    form: Printing,
) -> None:
    """Print the first messages of a topic.

    Bytes are printed as text, or in hexadecimal if they are not text.
    """
    with _open_dataset(url, topic, request) as dataset:
        table = dataset.head(rows)
    print_rows(table.schema, table.to_batches(), form)
    note_incomplete_read(dataset.metrics, dataset.scan)


@command("json-orders -n 3 --columns __publish_time__,__key__,__value__")
def tail(
    url: Url,
    topic: Topic,
    *,
    rows: Annotated[int, typer.Option("-n", "--rows", min=0, help="Maximum number of rows.")] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep printing new messages until Ctrl-C.")
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="With --follow: time between checks.")
    ] = "5s",
    request: Reading,
    form: Printing,
) -> None:
    """Print the last messages of a topic.

    These are the last offloaded messages, or the last that brokers have with --live. For several
    topics or partitions, they are those with the latest publish times. --follow waits for newly
    offloaded ledgers, or for new messages with --live.
    """
    pause = duration("--interval", interval)
    if follow and (request.end is not None or request.view != "all"):
        message = "--follow has no end and prints every new message: leave out --end and --view"
        raise OptionError(message)
    if follow and form not in {"table", "jsonl"}:
        message = f"--follow prints rows as a table or with --json, not as {form}"
        raise OptionError(message)
    catalog = _open_live_catalog(topic, url, request, pause.total_seconds()) if follow else None
    with _open_dataset(url, topic, request, catalog) as dataset:
        column_names, publish_time = dataset.schema.names, _names(dataset)["__publish_time__"]
        newest = dataset.tail(rows, [*dict.fromkeys([*column_names, publish_time])])
    if len(dataset.scan.topics) > 1:
        newest = newest.sort_by(publish_time)
    table = newest.slice(max(0, newest.num_rows - rows)).select(column_names)
    print_rows(table.schema, table.to_batches(), form)
    note_incomplete_read(dataset.metrics, dataset.scan)
    if catalog is not None:
        with _follow(catalog, topic, dataset, request) as new_rows:
            while True:
                _wait(pause.total_seconds())
                metrics = TopicMetrics()
                batches = [each.select(column_names) for each in new_rows(metrics)]
                if batches:
                    print_rows(batches[0].schema, batches, form)
                    sys.stdout.flush()
                note_incomplete_read(metrics, dataset.scan)


@command("json-orders 49:5 --key customer-3")
def get(
    url: Url,
    topic: Topic,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Message ids, in any form that Pulsar prints.")
    ] = None,
    *,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="Messages with this key. May be repeated."),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="Messages with this property. May be repeated.",
        ),
    ] = None,
    request: Reading,
    form: Printing,
) -> None:
    """Print the messages of an id, a key or a property.

    Prints all columns of each message, one per line. Finding an id takes a few requests. Finding a
    key reads the topic except zones that statistics prune, and finding a property reads all of it.
    Exits with 6 if there is no message of an id.
    """
    message_ids = [_message_id(each) for each in ids or ()]
    if not (message_ids or keys or properties):
        message = "give at least one message id, --key or --property"
        raise OptionError(message)
    pairs = [_property(each) for each in properties or ()]
    with _open_dataset(url, topic, request) as dataset:
        names = _names(dataset)
        conditions = [*(_has_id(each, names) for each in message_ids)]
        if keys:
            conditions.append(pc.field(names["__key__"]).isin(keys))
        conditions += [
            pc.equal(pc.map_lookup(pc.field(names["__properties__"]), name, "first"), value)
            for name, value in pairs
        ]
        column_names = dataset.schema.names if request.columns else [*names.values()]
        positions = [names[each] for each in _POSITION]
        matches = dataset.to_table(
            [*dict.fromkeys([*column_names, *positions])], filter=reduce(or_, conditions)
        )
    table = matches.select(column_names)
    if form == "table":
        print_records(table.schema, table.to_batches())
    else:
        print_rows(table.schema, table.to_batches(), form)
    note_incomplete_read(dataset.metrics, dataset.scan)
    missing_notes = [
        f"there is no message {text}{_other_reading(each)}"
        for text, each in zip(ids or (), message_ids, strict=True)
        if not matches.filter(_has_id(each, names)).num_rows
    ]
    for each in missing_notes:
        say("note", each)
    if missing_notes:
        raise typer.Exit(ExitCode.INCOMPLETE)


@contextmanager
def _open_dataset(
    url: str, topic: str, request: TopicRequest, catalog: Catalog | None = None
) -> Iterator[TopicDataset]:
    """Open the request's topics. Show progress while they are opened and read."""
    note_snapshot(request.metadata)
    if catalog is not None:
        yield open_request(url, topic, replace(request, catalog=catalog))
        return
    trace = RequestTrace()
    with progress(trace):
        yield open_request(url, topic, replace(request, trace=trace))


def _open_live_catalog(topic: str, url: str, request: TopicRequest, pause_s: float) -> Catalog:
    """Wait until the topic exists, and return the catalog."""
    catalog = open_catalog(url, **request.catalog_options())
    brokers = brokers_from_request(request)
    more_partitions = None if brokers is None else partial(partitions_of_brokers, brokers)
    notes: set[str] = set()
    while True:
        try:
            catalog.select(topic, TopicMetrics(), salvage=True, more_partitions=more_partitions)
        except TopicNotFoundError as error:
            if str(error) not in notes:
                say("note", f"waiting: {error}")
            notes.add(str(error))
            _wait(pause_s)
            catalog = catalog.refreshed()
        else:
            return catalog


@contextmanager
def _follow(
    catalog: Catalog, topic: str, dataset: TopicDataset, request: TopicRequest
) -> Iterator[NewRows]:
    brokers = brokers_from_request(request)
    if brokers is None:
        yield new_in_bucket(catalog, [topic], dataset.scan, segments=request.segments)
        return
    with new_from_brokers(brokers, dataset.scan) as new_rows:
        yield new_rows


_wait = time.sleep


def _names(dataset: TopicDataset) -> dict[str, str]:
    """Return the name of each column in the dataset, by its name without `naming`."""
    return {default_name: name for name, default_name in dataset.scan.options.filterable.columns}


def _has_id(message_id: MessageId, names: Mapping[str, str]) -> pc.Expression:
    """Return the condition for messages of an id; without a batch index, for the whole batch."""
    condition = (pc.field(names["__ledger_id__"]) == message_id.ledger_id) & (
        pc.field(names["__entry_id__"]) == message_id.entry_id
    )
    if message_id.batch_index >= 0:
        condition &= pc.field(names["__batch_index__"]) == message_id.batch_index
    if message_id.partition >= 0:
        condition &= pc.field(names["__partition__"]) == message_id.partition
    return condition


def _message_id(text: str) -> MessageId:
    message_id = MessageId.parse(text)
    if message_id is None or min(message_id.ledger_id, message_id.entry_id) < 0:
        message = f"{text!r} is not the id of a message, such as 12:3 or (12,3,5)"
        raise OptionError(message)
    return message_id


def _other_reading(message_id: MessageId) -> str:
    """Return a hint at what else the id of a missing message may mean."""
    if message_id.partition < 0 or message_id.batch_index >= 0:
        return ""
    number, position = (
        message_id.partition,
        (message_id.ledger_id, message_id.entry_id, message_id.partition),
    )
    text = f"'({','.join(map(str, position))})'"
    return f" in partition {number}; if {number} is the index in the entry's batch, type {text}"


def _property(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not (name and is_pair):
        message = f"--property must be NAME=VALUE, not {text!r}"
        raise OptionError(message)
    return name, value
