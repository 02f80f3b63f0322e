"""The representations of a catalog: one line, or an HTML table of its topics."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.format.object_names import has_ledger_id
from connector.display.html import html_table
from connector.display.text import size_text
from connector.inputs.topic_names import TopicName

if TYPE_CHECKING:
    from arrow_io.storage.location import Location
    from connector.catalog.bucket import Bucket
    from connector.inputs.topic_names import AnyTopic


def catalog_repr(bucket: Bucket, *, has_metadata: bool) -> str:
    """Return the URL and the number of topics and ledgers, as far as index objects were read."""
    bases = {
        copy.topic.classic for copy in bucket.opened_copies if isinstance(copy.topic, TopicName)
    }
    return counts_repr(
        bucket.listing.location,
        topics=len(bases) if bucket.is_fully_opened else None,
        ledgers=len(bucket.ledger_ids),
        has_metadata=has_metadata,
    )


def counts_repr(location: Location, *, topics: int | None, ledgers: int, has_metadata: bool) -> str:
    """Return the URL and the number of topics, if known, and of ledgers."""
    parts = [] if topics is None else [counted(topics, "topic")]
    parts.append(counted(ledgers, "ledger"))
    if has_metadata:
        parts.append("with metadata")
    return f"Catalog({str(location)!r}: {', '.join(parts)})"


def catalog_html(caption: str, bucket: Bucket) -> str:
    """Return an HTML table of the topics with their ledgers and bytes, and of unread ledgers."""
    ledgers: dict[str, set[int]] = defaultdict(set)
    sizes: dict[str, int] = defaultdict(int)

    def add(topic_text: str, ledger_id: int, size_bytes: int | None) -> None:
        ledgers[topic_text].add(ledger_id)
        sizes[topic_text] += size_bytes or 0

    opened_copies = bucket.opened_copies
    for copy in opened_copies:
        topic_text = "(topic unknown)" if copy.topic is None else _topic_text(copy.topic)
        add(topic_text, copy.name.ledger_id, copy.data_bytes)
    opened_names = {pair.name for copy in opened_copies for pair in copy.pairs}
    for name in bucket.listing.indexes:
        if has_ledger_id(name) and name not in opened_names:
            data = bucket.listing.data.get(name)
            size_bytes = None if data is None else data.size_bytes
            add("(index object not read)", name.ledger_id, size_bytes)
    rows = [
        (topic_text, len(ids), size_text(sizes[topic_text]))
        for topic_text, ids in sorted(ledgers.items())
    ]
    return html_table(caption, ["topic", "ledgers", "bytes"], rows)


def _topic_text(topic: AnyTopic) -> str:
    return str(topic.base if isinstance(topic, TopicName) else topic)
