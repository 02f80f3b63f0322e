"""What is kept of a segment: consecutive entries of one ledger, about 1 MiB of its data object.

Whatever is not known of a segment is null. Times, keys and schema versions are those of the columns
of the same name; if a segment has entries in chunks, encrypted or damaged ones, they are null,
because its rows cannot be told from it alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from arrow_io.storage.object_version import ETag, WriteTime

if TYPE_CHECKING:
    from arrow_io.storage.object_version import ObjectVersion

SEGMENT_BYTES: Final = 1 << 20

_NUMBER: Final = pa.int64()
_TIME: Final = pa.timestamp("us", "UTC")
_TRANSACTION: Final = pa.struct({"txn_id": pa.string(), "first_entry_id": _NUMBER})
_OUTCOME: Final = pa.struct({"txn_id": pa.string(), "committed": pa.bool_()})

SEGMENT_SCHEMA: Final = pa.schema(
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
        "transactions": pa.list_(_TRANSACTION),
        "outcomes": pa.list_(_OUTCOME),
        "keys": pa.binary(),
    }
)
"""One row a segment: its topic, ledger and data object (name, length, and version as the store has
it); its entries (both ends inclusive) and their bytes `[start, stop)`; how many messages they hold;
least and greatest times and how many messages have none; how many have no key; the schema versions,
null among them if a message has none; how many entries are markers, chunks, encrypted, damaged; the
transactions that have messages in it, and the outcomes that markers in it tell; and the filter of
its keys (`arrow_io.messages.key_filters`), null if no message has one."""


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
