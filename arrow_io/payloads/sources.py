"""Sources of payloads: where the values of rows are stored, and which schema they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.messages.message_columns import MessageColumns


class Source(NamedTuple):
    """Rows `[start, stop)` whose payloads are in one buffer and have one schema."""

    start: int
    stop: int
    data: memoryview
    positions: memoryview
    """Positions of the payloads of all rows in `data`; −1: no payload."""
    schema_name: bytes | None
    """What the messages name their schema by; None: they name none."""


def value_sources(rows: MessageColumns) -> Iterator[Source]:
    """Yield the sources of the values of all rows, with their schema versions."""
    positions = rows.payloads()
    versions = rows.version_spans()
    stop, version = 0, None
    for start, end, data in rows.payload_spans():
        row = start
        while row < end:
            if row >= stop:
                _, stop, version = next(versions)
            source_stop = min(end, stop)
            yield Source(row, source_stop, data, positions, version)
            row = source_stop
