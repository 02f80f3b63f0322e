"""Entries as the hot loop reads them, without a ledger around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from arrow_io.format.entry_frame import write_entry
from arrow_io.messages import layout
from arrow_io.messages.entry_run import find_run
from arrow_io.messages.gathering import PROPERTIES, Gathered, Gathering
from arrow_io.read_metrics import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.message_columns import MessageColumns

OBJECT_KEY = "data-object"


def entry_run(
    entries: Sequence[bytes],
    *,
    ledger_id: int = 1,
    first_entry_id: int = 0,
    is_in_range: bool = True,
) -> EntryRun:
    """Consecutive entries, decoded by the build in use.

    Args:
        entries: The entries, at least one.
        ledger_id: Their ledger.
        first_entry_id: Id of the first.
        is_in_range: Whether the reader gives rows of them.
    """
    frames = [write_entry(first_entry_id + n, entry) for n, entry in enumerate(entries)]
    data = memoryview(b"".join(frames))
    ids = range(first_entry_id, first_entry_id + len(entries))
    found = find_run(ledger_id, OBJECT_KEY, data, 0, ids)
    assert found.run.count == len(entries)
    assert found[1:] == (len(data), layout.COMPLETE, 0)
    found.run.is_in_range = is_in_range
    return found.run


def runs_of(
    entries: Sequence[bytes], *, length: int, first_entry_id: int = 0
) -> Iterator[EntryRun]:
    """The same entries as several runs of `length` entries at the most."""
    for start in range(0, len(entries), length):
        yield entry_run(entries[start : start + length], first_entry_id=first_entry_id + start)


def batch_indexes(columns: MessageColumns) -> pa.Int32Array:
    """The batch index of each row; null if it was not batched."""
    indexes = Gathered(layout.GATHERED_BATCH_INDEXES, layout.ROW_BATCH_INDEX, pa.int32())
    return columns.measure(Gathering([("", indexes)])).record_batch(Tally()).column(0)


def properties_of(columns: MessageColumns, tally: Tally | None = None) -> pa.MapArray:
    """The properties of each row."""
    properties = Gathered(layout.GATHERED_PROPERTIES, 0, PROPERTIES)
    message = columns.measure(Gathering([("", properties)]))
    return message.record_batch(tally or Tally()).column(0)


def schema_names(columns: MessageColumns, field: int) -> list[tuple[int, int, bytes | None]]:
    """Spans of rows with values in one buffer, and what `field` of their entries says."""
    return [(each.start, each.stop, each.schema_name) for each in columns.payload_sources(field)]
