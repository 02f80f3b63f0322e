"""Which entries of a topic can hold rows that are asked for, by what is known without a request.

Only what follows from a row's position is used. Publish times prove nothing: they are the clock of
the producer, and not in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from arrow_io.columns import Origin
from connector.scan.topic_read import EntryRange, TopicRead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.ledger import Ledger
    from connector.bounds import Bounds
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.scan.read_options import ReadOptions


def topic_read(topic: TopicLedgers, options: ReadOptions) -> TopicRead:
    """What has to be read of one topic or partition; without ranges if nothing has to.

    Args:
        topic: The topic and its ledgers.
        options: How it is read; its bounds and its filter narrow the ranges.
    """
    origin = Origin(str(topic.topic), topic.topic.partition)
    ranges = [
        EntryRange(ledger.ledger_id, *_entries_within(ledger, options.bounds))
        for ledger in _may_hold(topic.data, origin, options)
    ]
    wanted = tuple(each for each in ranges if each.first_entry_id <= each.last_entry_id)
    return TopicRead(origin, topic.data, wanted, options)


def _entries_within(ledger: Ledger, bounds: Bounds) -> tuple[int, int]:
    """First and last (inclusive) entry of a ledger that can hold a row within the bounds by id."""
    first, last = 0, ledger.last_entry_id
    if bounds.start_id is not None:
        start_ledger, start_entry, _ = bounds.start_id
        if ledger.ledger_id == start_ledger:
            first = max(0, start_entry)
        elif ledger.ledger_id < start_ledger:
            last = -1
    if bounds.end_id is not None:
        end_ledger, end_entry, end_batch = bounds.end_id
        if ledger.ledger_id == end_ledger:
            last = min(last, end_entry if end_batch else end_entry - 1)
        elif ledger.ledger_id > end_ledger:
            last = -1
    return first, last


def _may_hold(ledgers: Sequence[Ledger], origin: Origin, options: ReadOptions) -> Iterator[Ledger]:
    """The ledgers that may hold a row which passes the filter."""
    if options.row_filter is None:
        yield from ledgers
        return
    schema = options.filterable.schema
    names = {own: given for given, own in options.filterable.columns}
    same = _equals(names, "__partition__", origin.partition) & _equals(
        names, "__topic__", origin.topic
    )
    for each in ledgers:
        guarantee = same & _equals(names, "__ledger_id__", each.ledger_id)
        if options.row_filter.may_hold(guarantee, schema):
            yield each


def _equals(names: dict[str, str], column: str, value: object) -> pc.Expression:
    return pc.field(names[column]) == value
