"""What is kept of a zone: consecutive entries of a data block, about 1 MiB of the data object.

Whatever is not known of a zone is null. Times, keys and schema versions are those of the columns
of the same name; if a zone has entries in chunks, encrypted or damaged ones, they are null,
because its rows cannot be told from it alone. Transactions are null if a message of one stands
behind its marker.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.storage.object_version import ETag, WriteTime

if TYPE_CHECKING:
    from arrow_io.storage.object_version import ObjectVersion

ZONE_BYTES: Final = (1 << 20) - 256
"""Most bytes of a zone, unless an entry has more: with a block's header it is one request."""

_NUMBER: Final = pa.int64()
_TIME: Final = pa.timestamp("us", "UTC")
_TRANSACTION: Final = pa.struct({"txn_id": pa.string(), "first_entry_id": _NUMBER})
_OUTCOME: Final = pa.struct({"txn_id": pa.string(), "committed": pa.bool_()})

IDENTITY: Final = ("topic", "ledger_id", "object", "object_bytes", "object_version")
"""What names the data object of a ledger, in one version."""
_CLOCKS: Final = ("publish", "event", "broker")
_ZONE_ONLY_COLUMNS: Final = ("schema_versions", "transactions", "outcomes", "keys")

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
    }
)
"""One row a zone: its topic, ledger and data object (name, length, and version as the store has
it; of streaming offload the length up to where the ledger ends in it); its entries (both ends
inclusive) and their bytes `[start, stop)`; how many messages they hold; least and greatest times
and how many messages have none; how many have no key; the schema versions, null among them if a
message has none; how many entries are markers, chunks, encrypted, damaged, or of transactions; the
transactions that have messages in it, and the outcomes that markers in it tell; and the filter of
its keys (`arrow_io.messages.key_filters`), null if no message has one."""

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
"""One row a ledger: what its zones are together; how many there are, how many bytes they have,
and the number of the first among all. If entries are missing between them, some count as damaged.
Of streaming offload (PIP-76), where several objects hold a ledger, each stretch of it that one of
them holds has a row."""


def ledgers_of(zones: pa.Table) -> pa.Table:
    """The ledgers of some zones, of `LEDGER_SCHEMA`.

    Args:
        zones: Of `ZONE_SCHEMA`; those of one ledger stand together.
    """
    lengths = {
        "entries": ("first_entry_id", "last_entry_id"),
        "size_bytes": ("start", "stop"),
    }
    for name, (start, stop) in lengths.items():
        length = pc.subtract(zones.column(stop), zones.column(start))
        zones = zones.append_column(name, length)
    rows = pa.arange(0, zones.num_rows)
    zones = zones.append_column("first_row", rows)
    zones = zones.append_column("stretch", _stretches(zones))
    aggregations = {name: (name, "min") for name in (*_LEAST, "first_row")} | {
        name: (name, "max") for name in _GREATEST
    }
    aggregations |= {name: (name, "sum") for name in (*_COUNTS, *lengths)}
    aggregations |= {"zones": ("ledger_id", "count")}
    grouped = zones.group_by([*IDENTITY, "stretch"], use_threads=False).aggregate(
        list(aggregations.values())
    )
    grouped = grouped.sort_by("first_row_min")
    aggregated = {name: grouped.column(name) for name in IDENTITY}
    aggregated |= {name: grouped.column("_".join(each)) for name, each in aggregations.items()}
    spanned = pc.add(pc.subtract(aggregated["last_entry_id"], aggregated["first_entry_id"]), 1)
    recorded_entries = pc.add(aggregated.pop("entries"), aggregated["zones"])
    aggregated["damaged"] = pc.add(aggregated["damaged"], pc.subtract(spanned, recorded_entries))
    columns = [aggregated[field.name].cast(field.type) for field in LEDGER_SCHEMA]
    return pa.table(columns, schema=LEDGER_SCHEMA)


def _stretches(zones: pa.Table) -> pa.Array:
    """A number for the zones that stand together in one object of a ledger.

    A ledger of streaming offload may go on in an object behind what it has in another one.
    """
    names = (zones.column(name).combine_chunks() for name in ("topic", "ledger_id", "object"))
    changes = (pc.not_equal(each[1:], each[:-1]) for each in names)
    is_new = reduce(pc.or_, changes).cast(pa.int64())
    return pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), is_new]))


def version_text(version: ObjectVersion | None) -> str | None:
    """A version as statistics name it; None if none is known.

    Example:
        >>> version_text(ETag("a"))
        'etag a'
    """
    if isinstance(version, ETag):
        return f"etag {version.text}"
    if isinstance(version, WriteTime):
        return f"written {version.modified.isoformat()} {version.size_bytes}"
    return None
