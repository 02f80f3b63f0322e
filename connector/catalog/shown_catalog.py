"""What a catalog shows of itself when it is printed: a line, or a table of its topics."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from connector.catalog.segment_copies import SegmentedCopy
from connector.display.html import html_table
from connector.display.text import size_text
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from arrow_io.storage.location import Location
    from connector.catalog.bucket import Bucket
    from connector.inputs.topic_names import AnyTopic


def catalog_line(bucket: Bucket, *, has_metadata: bool) -> str:
    """The URL, and how many topics and ledgers were found there, as far as index objects were read.

    Args:
        bucket: What was listed.
        has_metadata: Whether the catalog has metadata too, which is not asked.
    """
    bases = {copy.topic.base for copy in bucket.opened if isinstance(copy.topic, TopicName)}
    return counted_line(
        bucket.listing.location,
        topics=len(bases) if bucket.is_opened else None,
        ledgers=len(bucket.ledger_ids),
        has_metadata=has_metadata,
    )


def counted_line(
    location: Location, *, topics: int | None, ledgers: int, has_metadata: bool
) -> str:
    """The URL, and how many topics and ledgers were found there.

    Args:
        location: What was listed.
        topics: How many topics; None if that is not known.
        ledgers: How many ledgers.
        has_metadata: Whether the catalog has metadata too.
    """
    found = [] if topics is None else [counted(topics, "topic")]
    found.append(counted(ledgers, "ledger"))
    if has_metadata:
        found.append("with metadata")
    return f"Catalog({str(location)!r}: {', '.join(found)})"


def catalog_table(caption: str, bucket: Bucket) -> str:
    """The topics in HTML, with the ledgers and bytes of each; and the ledgers not read until now.

    Args:
        caption: What stands above it.
        bucket: What was listed.
    """
    opened = bucket.opened
    topics = {copy.name: copy.topic for copy in opened}
    ledgers: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = defaultdict(int)
    for attempt in bucket.listing.indexes:
        topic = topics.get(attempt)
        untold = "(topic not known)" if attempt in topics else "(index object not read)"
        shown = untold if topic is None else _shown(topic)
        data = bucket.listing.data.get(attempt)
        ledgers[shown].add(attempt.ledger_id)
        sizes[shown] += 0 if data is None else data.size_bytes
    for copy in (each for each in opened if isinstance(each, SegmentedCopy)):
        shown = "(topic not known)" if copy.topic is None else _shown(copy.topic)
        ledgers[shown].add(copy.name.ledger_id)
        sizes[shown] += copy.data_bytes or 0
    rows = [(shown, len(ids), size_text(sizes[shown])) for shown, ids in sorted(ledgers.items())]
    return html_table(caption, ["topic", "ledgers", "bytes"], rows)


def _shown(topic: AnyTopic) -> str:
    return str(topic.base if isinstance(topic, TopicName) else topic)
