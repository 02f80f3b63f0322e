"""What is shown of a catalog where a value is printed: a line, or a table of its topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.wording import counted
from connector.plain_text import size_text
from connector.shown_html import html_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.catalog.bucket import BucketContents, LedgerCopy
    from connector.topic_name import TopicName

    Copies = Mapping[TopicName | None, Sequence[LedgerCopy]]


def catalog_line(contents: BucketContents, copies: Copies, *, has_metadata: bool) -> str:
    """The URL, and how many topics and ledgers were found there.

    Args:
        contents: What the bucket holds.
        copies: Of that, the copies of each topic's ledgers.
        has_metadata: Whether the catalog has metadata too, which is not asked.
    """
    bases = {topic.base for topic in copies if topic is not None}
    ledgers = counted(len({copy.name.ledger_id for copy in contents.copies}), "ledger")
    known = ", with metadata" if has_metadata else ""
    return f"Catalog({str(contents.location)!r}: {counted(len(bases), 'topic')}, {ledgers}{known})"


def catalog_table(caption: str, copies: Copies) -> str:
    """The topics in HTML, with the ledgers and bytes of each."""
    sizes: dict[str, list[int]] = {}
    for topic, of_topic in copies.items():
        name = "(topic not told)" if topic is None else str(topic.base)
        size = sizes.setdefault(name, [0, 0])
        size[0] += len({copy.name.ledger_id for copy in of_topic})
        size[1] += sum(copy.data.size_bytes for copy in of_topic if copy.data is not None)
    rows = [(name, count, size_text(size)) for name, (count, size) in sorted(sizes.items())]
    return html_table(caption, ["topic", "ledgers", "bytes"], rows)
