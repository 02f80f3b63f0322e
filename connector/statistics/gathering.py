"""Gathering: computes a zone's row of statistics from its entries."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import Origin, projection
from arrow_io.core import builds
from arrow_io.errors import FormatError
from arrow_io.messages import layout
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.key_filters import hash_range, key_filter
from arrow_io.messages.message_reader import MessageReader
from arrow_io.messages.transactions import TXN_ABORT, TXN_COMMIT
from arrow_io.read_metrics import Tally
from connector.statistics.data_objects import part_with
from connector.statistics.zones import version_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.messages.entry_run import EntryRun

    ZoneRow: TypeAlias = dict[str, Any]

_KEY: Final = "__key__"
_VERSION: Final = "__schema_version__"
_TIMES: Final = {
    "publish": "__publish_time__",
    "event": "__event_time__",
    "broker": "__broker_time__",
}
_PROJECTION: Final = projection([*_TIMES.values(), _KEY, _VERSION])
_NEEDS: Final = replace(_PROJECTION.needs, payload=True)
"""Payloads are decompressed as in a read with a filter, so that entries which fail there fail
here."""
_UNPRUNABLE: Final = layout.CHUNKED | layout.ENCRYPTED | layout.BROKEN
"""Flags of entries whose rows cannot be determined from their zone alone."""


def zone_row(ledger: Ledger, topic: str, runs: Sequence[EntryRun]) -> ZoneRow:
    """Return the row of statistics of a zone.

    `topic` is the name in the row. The runs have verified checksums; their tables are changed, so
    they cannot be read again.
    """
    first, last = runs[0], runs[-1]
    entry_id = first.number(0, layout.ENTRY_ID)
    data = part_with(ledger, entry_id)
    entries = builds.in_use.entries
    row: ZoneRow = {
        "topic": topic,
        "ledger_id": ledger.ledger_id,
        "object": data.data_name,
        "object_bytes": data.data_stop,
        "object_version": version_text(data.version),
        "first_entry_id": entry_id,
        "last_entry_id": last.last_entry_id,
        "start": first.entry_start(0),
        "stop": last.entry_stop(last.count - 1),
        "messages": sum(entries.count_messages(run.table, 0, run.count) for run in runs),
        "markers": _count(runs, layout.MARKER),
        "chunks": _count(runs, layout.CHUNKED),
        "encrypted": _count(runs, layout.ENCRYPTED),
        "damaged": _count(runs, layout.BROKEN),
        "transactional": _count(runs, layout.TRANSACTION),
    }
    row |= _summarize_transactions(runs)
    if any(row[name] for name in ("chunks", "encrypted", "damaged")):
        return row
    try:
        return row | _summarize_rows(Origin(topic, -1), runs)
    except FormatError:
        # Mark the zone as damaged, so that no read prunes it and every read reports the error.
        return row | {"damaged": sum(run.count for run in runs)}


def _summarize_rows(origin: Origin, runs: Sequence[EntryRun]) -> ZoneRow:
    """Return the columns about messages, for entries none of which is `_UNPRUNABLE`."""
    stamps = _stamps(runs)
    tally = Tally()
    reader = MessageReader(Delivery(runs, tally, PayloadDecryptor()), _NEEDS, tally)
    assembly = _PROJECTION.assembly(origin)
    batches = [each for rows in reader for each in assembly.record_batches(rows, tally)]
    table = pa.Table.from_batches(batches, _PROJECTION.schema)
    summary: ZoneRow = {"messages": table.num_rows}
    for name, column in _TIMES.items():
        ends = pc.min_max(table.column(column))
        # As numbers: some times are outside the range of Python's datetime.
        summary[f"min_{name}_time"] = ends["min"].value
        summary[f"max_{name}_time"] = ends["max"].value
        summary[f"null_{name}_times"] = table.column(column).null_count
    del summary["null_publish_times"]
    keys = table.column(_KEY)
    summary["null_keys"] = keys.null_count
    if keys.null_count < len(keys):
        summary["keys"] = key_filter(keys.combine_chunks())
    if stamps:
        least, greatest = min(each >> 16 for each in stamps), max(each & 0xFFFF for each in stamps)
        first, last = hash_range(keys.combine_chunks())
        summary["min_entry_hash"], summary["max_entry_hash"] = least, greatest
        summary["keys_have_hashes"] = least <= first and last <= greatest
    summary["schema_versions"] = pc.unique(table.column(_VERSION)).to_pylist()
    return summary


def _summarize_transactions(runs: Sequence[EntryRun]) -> ZoneRow:
    """Return the transactions with messages in some entries, and the outcomes in markers.

    Returns nothing if a message follows the marker of its transaction: the two lists cannot express
    that.
    """
    first_entry_ids: dict[str, int] = {}
    outcomes: dict[str, bool] = {}
    for run in runs:
        for index in run.flagged(layout.TRANSACTION | layout.MARKER):
            most = run.number(index, layout.TXN_MOST)
            txn_id = f"({most},{run.number(index, layout.TXN_LEAST)})"
            kind = run.number(index, layout.MARKER_TYPE)
            if not run.number(index, layout.FLAGS) & layout.MARKER:
                if txn_id in outcomes:
                    return {}
                first_entry_ids.setdefault(txn_id, run.number(index, layout.ENTRY_ID))
            elif kind in {TXN_COMMIT, TXN_ABORT}:
                outcomes[txn_id] = kind == TXN_COMMIT
    return {
        "transactions": [
            {"txn_id": txn_id, "first_entry_id": entry_id}
            for txn_id, entry_id in first_entry_ids.items()
        ],
        "outcomes": [
            {"txn_id": txn_id, "committed": committed} for txn_id, committed in outcomes.items()
        ],
    }


def _stamps(runs: Sequence[EntryRun]) -> set[int]:
    """Return the different ranges of hashes in some entries (`layout.KEY_HASHES`)."""
    width = layout.ENTRY_WIDTH
    columns = (run.table[layout.KEY_HASHES : run.count * width : width].tolist() for run in runs)
    return set(chain.from_iterable(columns)) - {layout.ABSENT}


def _count(runs: Sequence[EntryRun], flag: int) -> int:
    return sum(sum(1 for _ in run.flagged(flag)) for run in runs)
