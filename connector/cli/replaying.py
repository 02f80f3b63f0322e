"""The command `replay`, which sends the messages of a bucket to a live topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector.cli.app import command
from connector.cli.event_lines import write_event
from connector.cli.options import Printing, Replaying, Topic, Url, key_values
from connector.cli.output import print_rows, progress, say
from connector.cli.place import catalog_at
from connector.display.text import size_text
from connector.options.kinds import read_names
from connector.options.write_request import Compression  # noqa: TC001 - typer looks it up
from connector.replay.replay import plan_replay, replay_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.cli.forms import Form
    from connector.replay.partition_replay import ReplaySummary
    from connector.replay.replay import ReplayPlan

_SENT_SCHEMA = pa.schema(
    {"topic": pa.string(), "targets": pa.string(), "messages": pa.int64(), "bytes": pa.int64()}
    | dict.fromkeys(("resumed_after", "sent_to"), pa.string())
)
_PLANNED_SCHEMA = pa.schema(
    {"topic": pa.string()} | dict.fromkeys(("ledgers", "bytes", "behind_bytes"), pa.int64())
)


@command("json-orders --to pulsar://localhost:6650 --dry-run")
def replay(
    url: Url,
    topic: Topic,
    *,
    to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Brokers of the target: pulsar://… or pulsar+ssl://…."),
    ] = None,
    to_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Name of the target; by default that of the topic."),
    ] = None,
    to_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Connection option of the brokers, such as token_file=…. May be repeated.",
        ),
    ] = None,
    by_key: Annotated[
        bool,
        typer.Option(
            "--by-key",
            help="Route messages to partitions by key, as Pulsar's producers do. By default, each"
            " partition is sent to the one with its number.",
        ),
    ] = False,
    keep_batches: Annotated[
        bool,
        typer.Option(
            "--keep-batches", help="Send each entry as one batch. By default, fill batches."
        ),
    ] = False,
    carry: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Columns to carry as properties, such as __publish_time__,__message_id__.",
        ),
    ] = None,
    compression: Annotated[Compression, typer.Option(help="Codec of batches.")] = "lz4",
    rate: Annotated[float | None, typer.Option(help="Maximum messages per second.")] = None,
    replay_id: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Name of this replay: messages replayed under it are never replayed again.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what a first replay would read; asks no broker."),
    ] = False,
    request: Replaying,
    form: Printing,
) -> None:
    """Send a topic of a bucket to a live topic, each message once.

    The target needs message deduplication. Its brokers remember which messages were sent, so each
    run resumes where the last one ended or was stopped.
    """
    start_s = time.monotonic()
    trace = RequestTrace()
    catalog = catalog_at(url, request, trace)
    options = request.reading_options() | {"catalog": catalog}
    if dry_run:
        with progress(trace):
            plans = plan_replay(url, topic, **options)
        _print_plans(plans, form)
        return
    if to is None:
        message = "--to is missing: give the URL of the target's brokers"
        raise OptionError(message)
    status = _Status()
    summaries: list[ReplaySummary] = []

    def add(summary: ReplaySummary) -> None:
        summaries.append(summary)
        write_event("partition", **_row(summary), lag_bytes=summary.lag_bytes)

    try:
        with progress(trace, status=status):
            replay_topic(
                url,
                topic,
                to=to,
                to_topic=to_topic,
                to_options=key_values("--to-option", to_option),
                by_key=by_key,
                keep_batches=keep_batches,
                carry=() if carry is None else read_names("carry", carry),
                compression=compression,
                rate=rate,
                replay_id=replay_id,
                on_progress=status.update,
                on_partition=add,
                **options,
            )
    finally:
        # Report the sent partitions even if another one failed.
        if summaries:
            _print_summaries(summaries, form)
    messages = sum(each.messages for each in summaries)
    value_bytes = sum(each.value_bytes for each in summaries)
    seconds = time.monotonic() - start_s
    say(
        "sent",
        f"{counted(messages, 'message')} of {size_text(value_bytes)}, {seconds:.2f} s",
        messages=messages,
        bytes=value_bytes,
        seconds=round(seconds, 3),
    )


class _Status:
    def __init__(self) -> None:
        self._messages = 0

    def update(self, messages: int) -> None:
        self._messages = messages

    def text(self) -> str:
        return f"replaying … {counted(self._messages, 'message')} of this partition"

    def fields(self) -> dict[str, object]:
        return {"partition_messages": self._messages}


def _print_summaries(summaries: Sequence[ReplaySummary], form: Form) -> None:
    for notice in dict.fromkeys(notice for each in summaries for notice in each.notices):
        say("note", notice)
    table = pa.Table.from_pylist([_row(each) for each in summaries], _SENT_SCHEMA)
    print_rows(table.schema, table.to_batches(), form)


def _row(summary: ReplaySummary) -> dict[str, object]:
    return {
        "topic": summary.topic,
        "targets": ", ".join(summary.targets),
        "messages": summary.messages,
        "bytes": summary.value_bytes,
        "resumed_after": summary.resumed_after,
        "sent_to": summary.sent_to,
    }


def _print_plans(plans: Sequence[ReplayPlan], form: Form) -> None:
    for notice in dict.fromkeys(notice for each in plans for notice in each.notices):
        say("note", notice)
    rows = [(each.topic, each.ledgers, each.data_bytes, each.lag_bytes) for each in plans]
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = pa.Table.from_arrays(columns, schema=_PLANNED_SCHEMA)
    print_rows(table.schema, table.to_batches(), form)
