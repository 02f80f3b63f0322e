"""Entries of a ledger → a row of statistics for each segment; segments by any number of threads."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import Origin, projection
from arrow_io.core import builds
from arrow_io.errors import FormatError
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.messages import layout
from arrow_io.messages.key_filters import key_filter
from arrow_io.messages.message_reader import MessageReader
from arrow_io.messages.transactions import TXN_ABORT, TXN_COMMIT
from arrow_io.tally import Tally
from connector.statistics.segments import SEGMENT_BYTES, version_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from arrow_io.ledger_data import LedgerData
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.storage.ranges_ahead import RangesAhead

    SegmentRow: TypeAlias = dict[str, Any]

_KEY: Final = "__key__"
_VERSION: Final = "__schema_version__"
_TIMES: Final = {
    "publish": "__publish_time__",
    "event": "__event_time__",
    "broker": "__broker_time__",
}
_LOOKED_AT: Final = projection([*_TIMES.values(), _KEY, _VERSION])
_NEEDS: Final = replace(_LOOKED_AT.needs, payload=True)
"""A reader decompresses payloads before it filters: what fails must have been met here."""
_UNTOLD: Final = layout.CHUNKED | layout.ENCRYPTED | layout.BROKEN
"""Entries with one of these have rows that cannot be told from the segment alone."""


def segment_units(
    ledger: LedgerData, topic: str, tally: Tally, ahead: RangesAhead
) -> Iterator[Callable[[], SegmentRow]]:
    """Cut a ledger into segments; whoever takes one has its row made, in any thread.

    Entries that are lost are in no segment.

    Args:
        ledger: The ledger.
        topic: Its topic, as rows name it.
        tally: Counts what is lost, if it salvages.
        ahead: Sends the requests.

    Raises:
        PulsarOffloadError: The entries cannot be read.
    """
    taken: list[EntryRun] = []
    limit = 0  # where in the data object the segment has to end
    for run in ledger.entry_runs(0, ledger.last_entry_id, tally, ahead=ahead):
        index = 0
        while index < run.count:
            is_next = taken and taken[-1].last_entry_id + 1 == run.number(index, layout.ENTRY_ID)
            stop = _stop_within(run, index, limit) if is_next else index
            if stop == index:
                if taken:
                    yield partial(_row, ledger, topic, taken)
                taken, limit = [], _start(run, index) + SEGMENT_BYTES
                stop = max(_stop_within(run, index, limit), index + 1)
            taken.append(run.part(index, stop))
            index = stop
    if taken:
        yield partial(_row, ledger, topic, taken)


def _stop_within(run: EntryRun, first: int, limit: int) -> int:
    """Behind the entries from the first on that end at a position of the data object, or before."""
    return bisect_right(range(run.count), limit, lo=first, key=partial(_stop, run))


def _row(ledger: LedgerData, topic: str, runs: Sequence[EntryRun]) -> SegmentRow:
    first, last = runs[0], runs[-1]
    for run in runs:
        run.verify_checksums()
    entries = builds.in_use.entries
    row: SegmentRow = {
        "topic": topic,
        "ledger_id": ledger.ledger_id,
        "object": ledger.name.data_name,
        "object_bytes": ledger.data_stop,
        "object_version": version_text(ledger.version),
        "first_entry_id": first.number(0, layout.ENTRY_ID),
        "last_entry_id": last.last_entry_id,
        "start": _start(first, 0),
        "stop": _stop(last, last.count - 1),
        "messages": sum(entries.count_messages(run.table, 0, run.count) for run in runs),
        "markers": _count(runs, layout.MARKER),
        "chunks": _count(runs, layout.CHUNKED),
        "encrypted": _count(runs, layout.ENCRYPTED),
        "damaged": _count(runs, layout.BROKEN),
        "transactional": _count(runs, layout.TRANSACTION),
    }
    row |= _transactions(runs)
    if any(row[name] for name in ("chunks", "encrypted", "damaged")):
        return row
    try:
        return row | _of_rows(Origin(topic, -1), runs)
    except FormatError:
        # What is wrong in it is met by whoever reads it.
        return row | {"damaged": sum(run.count for run in runs)}


def _of_rows(origin: Origin, runs: Sequence[EntryRun]) -> SegmentRow:
    """What is known of the messages of entries none of which is `_UNTOLD`."""
    tally = Tally()
    reader = MessageReader(runs, _NEEDS, tally)
    batches = [_LOOKED_AT.record_batch(rows, origin, tally) for rows in reader]
    table = pa.Table.from_batches(batches, _LOOKED_AT.schema)
    found: SegmentRow = {"messages": table.num_rows}
    for name, column in _TIMES.items():
        ends = pc.min_max(table.column(column))
        found[f"min_{name}_time"], found[f"max_{name}_time"] = ends["min"], ends["max"]
        found[f"null_{name}_times"] = table.column(column).null_count
    del found["null_publish_times"]
    keys = table.column(_KEY)
    found["null_keys"] = keys.null_count
    if keys.null_count < len(keys):
        found["keys"] = key_filter(keys.combine_chunks())
    found["schema_versions"] = pc.unique(table.column(_VERSION)).to_pylist()
    return found


def _transactions(runs: Sequence[EntryRun]) -> SegmentRow:
    """The transactions with messages in some entries, and the outcomes that markers tell."""
    begun: dict[str, int] = {}
    outcomes: dict[str, bool] = {}
    for run in runs:
        for index in run.flagged(layout.TRANSACTION | layout.MARKER):
            most = run.number(index, layout.TXN_MOST)
            txn_id = f"({most},{run.number(index, layout.TXN_LEAST)})"
            kind = run.number(index, layout.MARKER_TYPE)
            if not run.number(index, layout.FLAGS) & layout.MARKER:
                begun.setdefault(txn_id, run.number(index, layout.ENTRY_ID))
            elif kind in {TXN_COMMIT, TXN_ABORT}:
                outcomes[txn_id] = kind == TXN_COMMIT
    return {
        "transactions": [
            {"txn_id": txn_id, "first_entry_id": entry_id} for txn_id, entry_id in begun.items()
        ],
        "outcomes": [
            {"txn_id": txn_id, "committed": committed} for txn_id, committed in outcomes.items()
        ],
    }


def _count(runs: Sequence[EntryRun], flag: int) -> int:
    return sum(sum(1 for _ in run.flagged(flag)) for run in runs)


def _start(run: EntryRun, index: int) -> int:
    """Where the header of an entry begins in the data object."""
    return run.offset + (run.number(index, layout.FRAME) >> 32) - ENTRY_HEADER_BYTES


def _stop(run: EntryRun, index: int) -> int:
    """Where an entry ends in the data object (exclusive)."""
    frame = run.number(index, layout.FRAME)
    return run.offset + (frame >> 32) + (frame & 0xFFFFFFFF)
