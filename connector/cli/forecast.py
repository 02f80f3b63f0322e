"""The commands `cost` and `policy`, which predict the cost of reads and the effect of settings."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from arrow_io.core.wording import counted
from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestCounts, RequestTrace
from connector.catalog.snapshot.snapshot import is_snapshot
from connector.cli.app import command
from connector.cli.options import Place, Printing, PrintingWhole, Reading, Topic, Url, Where  # noqa: TC001 - typer reads annotations
from connector.cli.output import print_rows, progress, say
from connector.cli.place import catalog_at
from connector.cli.sql import bound_topics
from connector.display.text import printable, size_text
from connector.filters.where import where_expression
from connector.inputs.times import milliseconds_of
from connector.scan.execution import warn_incomplete
from connector.topic import open_request
from connector.upkeep.forecast.cost import (
    EXAMPLE_PRICES,
    load_prices,
    read_cost,
    stored_bytes_for_topics,
)
from connector.upkeep.forecast.policy import Action, apply_policy, bucket_metadata
from connector.upkeep.forecast.policy_settings import (
    SETTING_NAMES,
    OffloadPolicy,
    broker_defaults,
    parse_conf,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from connector.cli.forms import Form
    from connector.inputs.topic_names import TopicName
    from connector.upkeep.forecast.cost import PriceTable, ReadCost
    from connector.upkeep.forecast.policy import LedgerFate

_POSITION = re.compile(r"(\d{1,19}):(-?\d{1,19})")
_MAX_CONF_BYTES = 1 << 20
_SHOWN_MONEY = pa.decimal128(38, 6)
_FATE_SCHEMA = pa.schema(
    {
        "topic": pa.string(),
        "ledger_id": pa.int64(),
        "action": pa.string(),
        "due": pa.bool_(),
        "when": pa.timestamp("ms", "UTC"),
        "bytes": pa.int64(),
        "reason": pa.string(),
    }
)

_TopicOrSql = Annotated[
    str | None, typer.Argument(help="Name (orders), full name, or glob; or --sql.")
]
_Sql = Annotated[
    str | None, typer.Option(help="A SELECT of DuckDB, as for query, instead of a topic.")
]
_Prices = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="TOML file of the store's prices: currency, as_of, list_per_1000, get_per_1000,"
        " put_per_1000, egress_per_gb, stored_per_gb_month. By default, example prices.",
    ),
]
_Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting. May be repeated. Sizes may end in k, m, g or t, times in s, m, h, d, w or"
        f" y; -1 is never. Names: {', '.join(SETTING_NAMES)}.",
    ),
]
_Conf = Annotated[
    str | None, typer.Option(metavar="FILE", help="A broker.conf; --set overrides its settings.")
]
_At = Annotated[
    str | None, typer.Option(help="Time to use instead of now (ISO 8601; UTC by default).")
]
_ConsumedTo = Annotated[
    str | None,
    typer.Option(
        metavar="LEDGER:ENTRY",
        help="Last message that every subscription has acknowledged. By default, the subscriptions'"
        " positions in the metadata; without any, all messages count as consumed.",
    ),
]


@command("multi-ledger --start 87:1")
def cost(
    url: Url,
    topic: _TopicOrSql = None,
    *,
    sql: _Sql = None,
    where: Where = None,
    prices: _Prices = None,
    request: Reading,
    form: PrintingWhole,
) -> None:
    """Estimate the cost in money of reading a topic or running a query.

    It reads only index objects, and not even these with a catalog snapshot. Like plan, it counts
    whole data blocks. A query is bound but not run: a topic counts each time that the query names
    it, within start and "end" of read_pulsar. A WHERE or a LIMIT may make the query cheaper. For a
    topic, --where prunes by position and by statistics. Not counted are requests for --metadata,
    requests that open other URLs of a query, and the storage of additional buckets.
    """
    if (topic is None) == (sql is None):
        message = "give either a topic or --sql"
        raise OptionError(message)
    if where is not None and sql is not None:
        message = "--where is only for a topic: the WHERE of a query has no effect on its estimate"
        raise OptionError(message)
    table = EXAMPLE_PRICES if prices is None else load_prices(prices)
    trace = RequestTrace()
    catalog = catalog_at(url, request, trace)
    with progress(trace):
        if sql is not None:
            datasets = bound_topics(sql, catalog, url, request)
        else:
            value = request.value if request.schema is not None else "raw"
            dataset = open_request(url, topic or "", replace(request, catalog=catalog, value=value))
            if where is not None:
                columns = dataset.scan.options.filterable.schema
                dataset = dataset.filter(where_expression(where, columns))
            datasets = [dataset]
    topics = {each.topic for dataset in datasets for each in dataset.scan.topics}
    for dataset in datasets:
        warn_incomplete(dataset.unsound, ", ".join(str(each.topic) for each in dataset.scan.topics))
    scans = (dataset.scan for dataset in datasets)
    opening = catalog.opening(topics)
    is_saved = request.metadata is not None and is_snapshot(request.metadata)
    estimate = read_cost(*scans, openings=[] if is_saved else [opening], prices=table)
    _print_cost(estimate, stored_bytes_for_topics(topics, opening.copies), form)
    if table is EXAMPLE_PRICES:
        say("note", f"these are example prices of {table.as_of}; give your own with --prices")


@command(
    "multi-ledger --metadata tests/data/golden/pulsar-4.0.7"
    " --set defaultRetentionTimeInMinutes=1w --set defaultRetentionSizeInMB=-1"
)
def policy(
    url: Url,
    topic: Topic,
    *,
    place: Place,
    settings: _Settings = None,
    conf: _Conf = None,
    at: _At = None,
    consumed_to: _ConsumedTo = None,
    form: Printing,
) -> None:
    """Predict what offload and retention settings would do to a topic.

    Prints a line for each ledger: the broker's next action and its earliest time, if no more
    messages are written. Missing settings have the broker's defaults, and a note lists those that
    matter. Without --metadata, only offloaded ledgers are known, without their close times.
    """
    offload_policy, defaults = _policy(settings, conf)
    at_ms = _moment_ms(at)
    trace = RequestTrace()
    catalog = catalog_at(url, place, trace)
    with progress(trace):
        names = catalog.select_names(topic)
        topics_metadata = [(name, catalog.metadata(name)) for name in names]
    position = _position(consumed_to, names)
    if defaults:
        say("note", f"broker defaults of missing settings: {', '.join(defaults)}")
    fates: list[tuple[TopicName, LedgerFate]] = []
    for name, metadata in topics_metadata:
        if metadata is None:
            say("note", f"{name}: no metadata, so only offloaded ledgers are known")
        each = bucket_metadata(catalog.ledgers(name)) if metadata is None else metadata
        rows = apply_policy(each, offload_policy, at_ms=at_ms, consumed_to=position)
        fates += [(name, fate) for fate in rows]
    for warning in catalog.source.warnings if catalog.source else ():
        say("note", warning)
    batches = pa.Table.from_pylist([_fate_row(*each) for each in fates], _FATE_SCHEMA).to_batches()
    print_rows(_FATE_SCHEMA, batches, form)
    if form != "table":
        return
    for line in _totals([fate for _, fate in fates]):
        typer.echo(line)


def _print_cost(cost: ReadCost, stored_bytes: int, form: Form) -> None:
    prices = cost.prices
    monthly = prices.stored_per_month(stored_bytes)
    opening = cost.opening
    parts = {
        "listing": RequestCounts(list_requests=opening.list_requests),
        "head": RequestCounts(head_requests=opening.head_requests),
        "index objects": RequestCounts(
            index_requests=opening.index_requests, index_bytes=opening.index_bytes
        ),
        "opening data": RequestCounts(
            range_requests=opening.range_requests, range_bytes=opening.range_bytes
        ),
        "data": cost.reading,
        "total": cost.counts,
    }
    if form in {"json", "jsonl"}:
        fields: dict[str, object] = {"currency": prices.currency, "as_of": str(prices.as_of)}
        fields |= {"tasks": cost.tasks}
        fields |= {name.replace(" ", "_"): _part(each, prices) for name, each in parts.items()}
        fields |= {"stored": {"bytes": stored_bytes, "money_per_month": _plain(monthly)}}
        typer.echo(json.dumps(fields))
        return
    money = f"money ({printable(prices.currency)})"
    schema = pa.schema(
        {"what": pa.string(), "requests": pa.int64(), "bytes": pa.int64(), money: _SHOWN_MONEY}
    )
    rows = [
        {
            "what": name,
            "requests": each.requests,
            "bytes": each.received_bytes,
            money: _round_money(prices.money(each).total),
        }
        for name, each in parts.items()
        if each.requests
    ]
    print_rows(schema, pa.Table.from_pylist(rows, schema).to_batches(), form)
    if form != "table":
        return
    typer.echo(f"data in {counted(cost.tasks, 'task')}")
    typer.echo(f"stored: {size_text(stored_bytes)}, {_round_money(monthly)} a month")


def _part(counts: RequestCounts, prices: PriceTable) -> dict[str, object]:
    money = _plain(prices.money(counts).total)
    return {"requests": counts.requests, "bytes": counts.received_bytes, "money": money}


def _plain(money: Decimal) -> str:
    """Format money without an exponent, with 12 decimal places."""
    return format(money, ".12f")


def _round_money(money: Decimal) -> Decimal:
    """Round money to 6 decimal places, the most that Python prints without an exponent."""
    return Decimal(format(money, ".6f"))


def _policy(settings: Iterable[str] | None, conf: str | None) -> tuple[OffloadPolicy, list[str]]:
    """Return the policy, and the broker's defaults of missing settings as `name=value`."""
    if not settings and conf is None:
        message = f"give --conf or --set NAME=VALUE; the names are {', '.join(SETTING_NAMES)}"
        raise OptionError(message)
    in_conf = {} if conf is None else parse_conf(_conf_text(conf))
    base = OffloadPolicy.parse(in_conf)
    cli_settings: dict[str, object] = {}
    for each in settings or ():
        name, is_pair, value = each.partition("=")
        if not is_pair:
            message = f"--set must be NAME=VALUE, such as retentionTimeInMinutes=1w, not {each!r}"
            raise OptionError(message)
        cli_settings[name.strip()] = value
    offload_policy = OffloadPolicy.parse(cli_settings, base)
    defaults = broker_defaults((*in_conf, *cli_settings))
    return offload_policy, [f"{name}={value}" for name, value in defaults.items()]


def _conf_text(path: str) -> str:
    try:
        with Path(path).expanduser().open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_CONF_BYTES + 1)
    except OSError as error:
        message = f"the settings in {path} cannot be read: {error.strerror}"
        raise OptionError(message) from None
    if len(text) > _MAX_CONF_BYTES:
        message = f"{path} is too long for a broker.conf: more than {_MAX_CONF_BYTES} characters"
        raise OptionError(message)
    return text


def _moment_ms(text: str | None) -> int:
    """Return a time in ms since the epoch; now if `text` is None."""
    if text is None:
        moment = datetime.now(UTC)
    else:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            message = f"--at must be a time in ISO 8601, not {text!r}"
            raise OptionError(message) from None
    return milliseconds_of(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _position(text: str | None, topics: Sequence[TopicName]) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _POSITION.fullmatch(text.strip())
    if match is None:
        message = f"--consumed-to must be LEDGER:ENTRY, such as 12:3, not {text!r}"
        raise OptionError(message)
    if len(topics) > 1:
        message = (
            f"--consumed-to needs one topic or partition, but {len(topics)} are selected: name one"
        )
        raise OptionError(message)
    return int(match[1]), int(match[2])


def _fate_row(topic: TopicName, fate: LedgerFate) -> dict[str, object]:
    return {
        "topic": str(topic),
        "ledger_id": fate.ledger_id,
        "action": str(fate.action),
        "due": fate.is_due,
        "when": fate.when_ms,
        "bytes": fate.size_bytes,
        "reason": fate.reason,
    }


def _totals(fates: Iterable[LedgerFate]) -> list[str]:
    """Return a line of text per action, due ones first, and one for kept ledgers."""
    sizes: dict[tuple[str, str], list[int]] = {}
    for fate in fates:
        when = "" if fate.action is Action.KEEP else "now: " if fate.is_due else "later: "
        sizes.setdefault((when, fate.action), []).append(fate.size_bytes or 0)
    order = ["now: ", "later: ", ""]
    return [
        f"{when}{action} {counted(len(each), 'ledger')}, {size_text(sum(each))}"
        for (when, action), each in sorted(sizes.items(), key=lambda pair: order.index(pair[0][0]))
    ]
