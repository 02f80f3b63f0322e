"""What has to be read of a topic's tail, which its brokers have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.columns import Origin
from connector.live.entries import UNTOLD
from connector.scan.topic_read import EntryRange, TopicRead

if TYPE_CHECKING:
    from connector.live.tail import LiveTail
    from connector.scan.read_options import ReadOptions


def tail_read(tail: LiveTail, options: ReadOptions) -> TopicRead | None:
    """What has to be read of a tail; None if no row of it lies within the bounds.

    It is read whole, or not at all: only whoever reads from its beginning on meets where messages
    in chunks begin.

    Args:
        tail: The tail.
        options: How it is read.
    """
    bounds = options.bounds
    is_before = bounds.end_id is not None and bounds.end_id <= (*tail.first, 0)
    is_behind = bounds.start_id is not None and bounds.start_id[:2] > tail.last
    if tail.first > tail.last or is_before or is_behind:
        return None
    whole = EntryRange(tail.ledger_id, 0, tail.last_entry_id)
    origin = Origin(str(tail.topic), tail.topic.partition, UNTOLD)
    return TopicRead(origin, (tail,), (whole,), options)
