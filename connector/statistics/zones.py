"""Statistics of a zone: consecutive entries of a data block, about 1 MiB of the data object.

Unknown values are null. Times, keys and schema versions are those of the columns of the same name.
They are null if the zone has chunks, encrypted or damaged entries, because its rows cannot be
determined from it alone. Transactions are null if a message follows the marker of its transaction.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.storage.object_version import ETag, WriteTime
from connector.filters.row_filters import row_numbers

if TYPE_CHECKING:
    from arrow_io.storage.object_version import ObjectVersion

ZONE_BYTES: Final = (1 << 20) - 256
"""Maximum bytes of a zone, unless one entry has more. With a block's header it fits one request."""

_NUMBER: Final = pa.int64()
_TIME: Final = pa.timestamp("us", "UTC")
_TRANSACTION: Final = pa.struct({"txn_id": pa.string(), "first_entry_id": _NUMBER})
_OUTCOME: Final = pa.struct({"txn_id": pa.string(), "committed": pa.bool_()})

IDENTITY: Final = ("topic", "ledger_id", "object", "object_bytes", "object_version")
"""The columns that identify a ledger's data object in one version."""
_CLOCKS: Final = ("publish", "event", "broker")
_ZONE_ONLY_COLUMNS: Final = (
    *("schema_versions", "transactions", "outcomes", "keys"),
    *("min_entry_hash", "max_entry_hash", "keys_have_hashes"),
)

ZONE_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "ledger_id": _NUMBER,
        "object": pa.string(),
        "object_bytes": _NUMBER,
        "object_version": pa.string(),
        "first_entry_id": _NUMBER,
        "last_entry_id": _NUMBER,
        "start": _NUMBER,
        "stop": _NUMBER,
        "messages": _NUMBER,
        "min_publish_time": _TIME,
        "max_publish_time": _TIME,
        "min_event_time": _TIME,
        "max_event_time": _TIME,
        "null_event_times": _NUMBER,
        "min_broker_time": _TIME,
        "max_broker_time": _TIME,
        "null_broker_times": _NUMBER,
        "null_keys": _NUMBER,
        "schema_versions": pa.list_(_NUMBER),
        "markers": _NUMBER,
        "chunks": _NUMBER,
        "encrypted": _NUMBER,
        "damaged": _NUMBER,
        "transactional": _NUMBER,
        "transactions": pa.list_(_TRANSACTION),
        "outcomes": pa.list_(_OUTCOME),
        "keys": pa.binary(),
        "min_entry_hash": _NUMBER,
        "max_entry_hash": _NUMBER,
        "keys_have_hashes": pa.bool_(),
    }
)
"""One row per zone:

- topic, ledger, and the name, length and version of the data object. In streaming offload, the
  length is the offset at which the ledger ends in the object;
- its entries (both ends inclusive), their bytes `[start, stop)`, and the number of messages;
- minimum and maximum times, how many messages have no such time, and how many have no key;
- the schema versions, including null if a message has none;
- how many entries are markers, chunks, encrypted, damaged, or of transactions;
- the transactions with messages in it, and the outcomes in its markers;
- the Bloom filter of its keys (`arrow_io.messages.key_filters`), null if no message has one;
- the range of hashes that producers of Pulsar 5.0 stamped on its entries, both ends inclusive, null
  without stamps; and whether the hashes of all its keys are within it.
"""

EARLIER_ZONE_SCHEMA: Final = pa.schema(list(ZONE_SCHEMA)[: ZONE_SCHEMA.get_field_index("keys") + 1])
"""The schema of files without stamps."""

_LEAST: Final = ("first_entry_id", "start", *(f"min_{each}_time" for each in _CLOCKS))
_GREATEST: Final = ("last_entry_id", "stop", *(f"max_{each}_time" for each in _CLOCKS))
_COUNTS: Final = (
    *("messages", "null_event_times", "null_broker_times", "null_keys"),
    *("markers", "chunks", "encrypted", "damaged", "transactional"),
)

LEDGER_SCHEMA: Final = pa.schema(
    [
        *(field for field in ZONE_SCHEMA if field.name not in _ZONE_ONLY_COLUMNS),
        pa.field("zones", _NUMBER),
        pa.field("size_bytes", _NUMBER),
        pa.field("first_row", _NUMBER),
    ]
)
"""One row per ledger: aggregates of its zones, their number and bytes, and the index of the first
among all zones of the file. Entries that are missing between zones count as damaged. In streaming
offload (PIP-76), several objects may hold a ledger; then each part of it has a row."""


def ledgers_of(zones: pa.Table) -> pa.Table:
    """Return the ledgers of some zones, as rows of `LEDGER_SCHEMA`.

    `zones` are rows of `ZONE_SCHEMA`; those of one ledger are adjacent.
    """
    lengths = {
        "entries": ("first_entry_id", "last_entry_id"),
        "size_bytes": ("start", "stop"),
    }
    for name, (start, stop) in lengths.items():
        length = pc.subtract(zones.column(stop), zones.column(start))
        zones = zones.append_column(name, length)
    rows = row_numbers(zones.num_rows)
    zones = zones.append_column("first_row", rows)
    zones = zones.append_column("part", _part_numbers(zones))
    aggregations = {name: (name, "min") for name in (*_LEAST, "first_row")} | {
        name: (name, "max") for name in _GREATEST
    }
    aggregations |= {name: (name, "sum") for name in (*_COUNTS, *lengths)}
    aggregations |= {"zones": ("ledger_id", "count")}
    grouped = zones.group_by([*IDENTITY, "part"], use_threads=False).aggregate(
        list(aggregations.values())
    )
    grouped = grouped.sort_by("first_row_min")
    aggregated = {name: grouped.column(name) for name in IDENTITY}
    aggregated |= {name: grouped.column("_".join(each)) for name, each in aggregations.items()}
    spans = pc.add(pc.subtract(aggregated["last_entry_id"], aggregated["first_entry_id"]), 1)
    recorded_entries = pc.add(aggregated.pop("entries"), aggregated["zones"])
    aggregated["damaged"] = pc.add(aggregated["damaged"], pc.subtract(spans, recorded_entries))
    columns = [aggregated[field.name].cast(field.type) for field in LEDGER_SCHEMA]
    return pa.table(columns, schema=LEDGER_SCHEMA)


def _part_numbers(zones: pa.Table) -> pa.Array:
    """Number each zone's part (`DataPart`), which is the zones of a ledger in one object.

    In streaming offload, a ledger may continue in an object after its part in another one.
    """
    names = (zones.column(name).combine_chunks() for name in ("topic", "ledger_id", "object"))
    changes = (pc.not_equal(each[1:], each[:-1]) for each in names)
    is_new = reduce(pc.or_, changes).cast(pa.int64())
    return pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), is_new]))


def version_text(version: ObjectVersion | None) -> str | None:
    """Return a version as statistics record it; None if it is unknown.

    Example:
        >>> version_text(ETag("a"))
        'etag a'
    """
    if isinstance(version, ETag):
        return f"etag {version.text}"
    if isinstance(version, WriteTime):
        return f"written {version.modified.isoformat()} {version.size_bytes}"
    return None
