"""The read of a topic's live tail: the entries that only its brokers have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from connector.live.broker import EntryId
from connector.live.entries import UNAVAILABLE_COLUMNS
from connector.live.tail import LiveTail
from connector.scan.topic_read import EntryRange, TopicRead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.ledgers.ledger import Ledger


_ADOPTED_BLOCKS: Final = 1
"""Number of the bucket's last data blocks in which a chunked message that no task reads may
begin."""


def add_tail(read: TopicRead, tail: LiveTail | None) -> TopicRead:
    """Return the read of a topic's objects, connected to its live tail if there is one.

    The tail returns chunked messages that begin in unread entries near the end of the objects.
    """
    if tail is None:
        return read
    unread = (gap for each in _last_blocks(read.ledgers) for gap in _unread(read, each))
    return replace(read, later_entries=replace(tail, adopted_ranges=tuple(unread)))


def _last_blocks(ledgers: Sequence[Ledger]) -> list[EntryRange]:
    ranges: list[EntryRange] = []
    blocks_left = _ADOPTED_BLOCKS
    for ledger in reversed(ledgers):
        blocks = ledger.blocks(0, ledger.last_entry_id)[-blocks_left:]
        if blocks:
            first = blocks[0].first_entry_id
            ranges.append(EntryRange(ledger.ledger_id, first, ledger.last_entry_id))
        blocks_left -= len(blocks)
        if not blocks_left:
            break
    return ranges[::-1]


def _unread(read: TopicRead, entries: EntryRange) -> Iterator[tuple[EntryId, EntryId]]:
    """Yield first and last entry of each stretch of `entries` that no task reads."""
    ledger_id, first, end = entries
    for _, start, last in (
        *read.intersect_ranges(entries),
        EntryRange(ledger_id, end + 1, end + 1),
    ):
        if first < start:
            yield EntryId(ledger_id, first), EntryId(ledger_id, start - 1)
        first = last + 1


def tail_read(read: TopicRead) -> TopicRead | None:
    """Return the read of a topic's live tail (`add_tail`); None without one or outside bounds.

    The tail is read whole or not at all, because only a read from its first entry sees where
    chunked messages begin.
    """
    tail = read.later_entries
    if not isinstance(tail, LiveTail):
        return None
    bounds = read.options.bounds
    is_before = bounds.end_id is not None and bounds.end_id <= (*tail.first, 0)
    is_after = bounds.start_id is not None and bounds.start_id[:2] > tail.last
    if tail.first > tail.last or is_before or is_after:
        return None
    whole_tail = EntryRange(tail.ledger_id, 0, tail.last_entry_id)
    origin = replace(read.origin, unknown=UNAVAILABLE_COLUMNS)
    return TopicRead(origin, (tail,), (whole_tail,), read.options)
