"""What the rows of a table must be, by the reference decoder or by Pulsar's own client."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from arrow_io.columns import ALL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from tests.support.golden import GoldenRow
    from tests.support.reference import ReferenceMessage

Row: TypeAlias = dict[str, Any]
"""The values of one row by column."""

COLUMNS: Final = [column.name for column in ALL_COLUMNS]
"""Every column, on-request ones included."""

CLEAR_COLUMNS: Final = [name for name in COLUMNS if name != "__value__"]
"""The columns that stand in the clear metadata of an encrypted message that is no batch."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONG_BYTES: Final = 8


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """The rows of a table; properties as a dict, after a check that no name stands twice."""
    rows: list[Row] = table.to_pylist()
    for row in rows:
        if "__properties__" in row:
            pairs = row["__properties__"]
            row["__properties__"] = dict(pairs)
            assert len(row["__properties__"]) == len(pairs), pairs
    return rows


def expected_rows(
    messages: Iterable[ReferenceMessage], *, topic: str, partition: int = -1
) -> list[Row]:
    """All columns of messages that the reference decoded."""
    return [_expected_row(message, topic, partition) for message in messages]


def _expected_row(message: ReferenceMessage, topic: str, partition: int) -> Row:
    batch_index = message.batch_index
    return {
        "__entry_id__": message.entry_id,
        "__ledger_id__": message.ledger_id,
        "__batch_index__": None if batch_index < 0 else batch_index,
        "__partition__": partition,
        "__publish_time__": time_of(message.publish_time_ms),
        "__event_time__": time_of(message.event_time_ms) if message.event_time_ms else None,
        "__sequence_id__": message.sequence_id,
        "__producer_name__": message.producer_name,
        "__key__": message.key,
        "__properties__": message.properties,
        "__value__": message.payload,
        "__message_id__": f"({message.ledger_id},{message.entry_id},{batch_index})",
        "__topic__": topic,
        "__key_bytes__": _key_bytes(message.key, is_base64=message.key_b64),
        "__ordering_key__": message.ordering_key,
        "__schema_version__": _schema_version(message.schema_version),
        "__null_value__": message.null_value,
        "__broker_time__": _optional_time(message.broker_time_ms),
        "__broker_index__": message.broker_index,
        "__deliver_at__": _optional_time(message.deliver_at_ms),
        "__replicated_from__": message.replicated_from,
        "__txn_id__": None if message.txn_id is None else "({},{})".format(*message.txn_id),
        "__segment_id__": None,
    }


def expected_golden_row(row: GoldenRow, *, topic: str, partition: int) -> Row:
    """The columns of which a line of `messages.jsonl.gz` tells; `__value__` as `fingerprint`."""
    schema_version = row.get("schema_version")
    ordering_key = row.get("ordering_key")
    key = row.get("key")
    return {
        "__entry_id__": row["entry"],
        "__ledger_id__": row["ledger"],
        "__batch_index__": None if row["batch"] < 0 else row["batch"],
        "__partition__": partition,
        "__publish_time__": time_of(row["publish_time"]),
        "__event_time__": time_of(row["event_time"]) if row["event_time"] else None,
        "__sequence_id__": row["sequence_id"],
        "__producer_name__": row["producer"],
        "__key__": key,
        "__properties__": row["properties"],
        "__value__": (row["size"], row["sha256"]) if "sha256" in row else None,
        "__message_id__": f"({row['ledger']},{row['entry']},{row['batch']})",
        "__topic__": topic,
        "__key_bytes__": _key_bytes(key, is_base64=row.get("key_b64", False)),
        "__ordering_key__": None if ordering_key is None else bytes.fromhex(ordering_key),
        "__schema_version__": _schema_version(
            None if schema_version is None else bytes.fromhex(schema_version)
        ),
        "__null_value__": row["null_value"],
        "__deliver_at__": _optional_time(row.get("deliver_at")),
    }


def fingerprint(payload: bytes | None) -> tuple[int, str] | None:
    """Length and SHA-256 of a payload, as the golden files tell them; None if it is null."""
    return None if payload is None else (len(payload), hashlib.sha256(payload).hexdigest())


def time_of(ms: int) -> datetime:
    """The time so many ms after 1970 began."""
    return _EPOCH + timedelta(milliseconds=ms)


def _optional_time(ms: int | None) -> datetime | None:
    return None if ms is None else time_of(ms)


def _key_bytes(key: str | None, *, is_base64: bool) -> bytes | None:
    if key is None:
        return None
    return base64.b64decode(key) if is_base64 else key.encode()


def _schema_version(version: bytes | None) -> int | None:
    if version is None or len(version) != _LONG_BYTES:
        return None
    return int.from_bytes(version, signed=True)
