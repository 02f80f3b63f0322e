"""What a catalog shows of itself when it is printed: a line, or a table of its topics."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.format.object_names import tells_ledger
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
    ledgers: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = defaultdict(int)

    def add(shown: str, ledger_id: int, size_bytes: int | None) -> None:
        ledgers[shown].add(ledger_id)
        sizes[shown] += size_bytes or 0

    opened = bucket.opened
    for copy in opened:
        shown = "(topic not known)" if copy.topic is None else _shown(copy.topic)
        add(shown, copy.name.ledger_id, copy.data_bytes)
    read = {pair.name for copy in opened for pair in copy.pairs}
    for name in bucket.listing.indexes:
        if tells_ledger(name) and name not in read:
            data = bucket.listing.data.get(name)
            size_bytes = None if data is None else data.size_bytes
            add("(index object not read)", name.ledger_id, size_bytes)
    rows = [(shown, len(ids), size_text(sizes[shown])) for shown, ids in sorted(ledgers.items())]
    return html_table(caption, ["topic", "ledgers", "bytes"], rows)


def _shown(topic: AnyTopic) -> str:
    return str(topic.base if isinstance(topic, TopicName) else topic)
