"""Messages to send, from record batches of a topic.

Message fields that a producer cannot set can be sent as properties: `CARRYABLE_COLUMNS` lists their
columns, and `property_name` returns the property names. Times are sent in ms since 1970, as in
Pulsar, and other values as text.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.columns import ALL_COLUMNS
from arrow_io.errors import OptionError
from connector.replay.places import POSITION_COLUMNS, places_from_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Properties: TypeAlias = "Sequence[tuple[str, str]]"
OutgoingMessage: TypeAlias = (
    "tuple[int, int, int | None, bytes | None, str | None, bytes | None, Properties, int]"
)
"""Place, size in bytes, schema version, value (None: a null value), key, ordering key, properties
and event time in ms (0: none) of a message. A tuple, because there may be 100,000 a second.
"""

CARRYABLE_COLUMNS: Final = tuple(
    each.name
    for each in ALL_COLUMNS
    if each.name
    in {
        "__message_id__",
        "__topic__",
        "__publish_time__",
        "__producer_name__",
        "__sequence_id__",
        "__schema_version__",
        "__broker_time__",
        "__broker_index__",
        "__deliver_at__",
        "__replicated_from__",
        "__txn_id__",
    }
)
"""Columns that can be sent as properties."""

_SENT: Final = (
    *POSITION_COLUMNS,
    "__schema_version__",
    "__value__",
    "__key__",
    "__key_bytes__",
    "__ordering_key__",
    "__properties__",
    "__event_time__",
)
_MS: Final = pa.timestamp("ms", "UTC")


def property_name(column: str) -> str:
    """Return the name of the property that a column is sent as.

    Example:
        >>> property_name("__publish_time__")
        'pulsar-offload.publish-time'
    """
    return f"pulsar-offload.{column.strip('_').replace('_', '-')}"


def check_carried(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to send as properties, without duplicates.

    Raises:
        OptionError: A column does not exist, or cannot be sent as a property.
    """
    unknown = [each for each in columns if each not in CARRYABLE_COLUMNS]
    if isinstance(columns, str) or unknown:
        wrong = columns if isinstance(columns, str) else unknown[0]
        message = (
            f"carry must be a list of columns among {', '.join(CARRYABLE_COLUMNS)}, not {wrong!r}"
        )
        raise OptionError(message)
    return tuple(dict.fromkeys(columns))


def sent_columns(carried: Sequence[str]) -> list[str]:
    """Return the columns that `outgoing_messages` needs."""
    return list(dict.fromkeys((*_SENT, *carried)))


def outgoing_messages(batch: pa.RecordBatch, carried: Sequence[str]) -> Iterator[OutgoingMessage]:
    """Yield the messages of a record batch with the columns `sent_columns`, in order."""
    values, keys, ordering_keys = (
        batch.column(name) for name in ("__value__", "__key__", "__ordering_key__")
    )
    properties = _properties(batch, carried)
    return zip(
        places_from_batch(batch),
        _sizes((values, keys, ordering_keys), properties),
        batch.column("__schema_version__").to_pylist(),
        values.to_pylist(),
        keys.to_pylist(),
        ordering_keys.to_pylist(),
        properties,
        pc.fill_null(_ms(batch.column("__event_time__")), 0).to_pylist(),
        strict=True,
    )


def count_base64_keys(batch: pa.RecordBatch) -> int:
    """Return how many messages have a key of bytes, which is sent as Base64 text."""
    keys = batch.column("__key__").cast(pa.binary())
    return pc.sum(pc.not_equal(keys, batch.column("__key_bytes__"))).as_py() or 0


def _sizes(arrays: Sequence[pa.Array], properties: Sequence[Properties]) -> list[int]:
    """Return the approximate size of each message; a character of a property counts as one byte."""
    lengths = [pc.fill_null(pc.binary_length(each), 0).cast(pa.int64()) for each in arrays]
    sizes: list[int] = reduce(pc.add, lengths).to_pylist()
    return [
        size + sum(len(name) + len(text) for name, text in pairs) if pairs else size
        for size, pairs in zip(sizes, properties, strict=True)
    ]


def _properties(batch: pa.RecordBatch, carried: Sequence[str]) -> list[Properties]:
    column = batch.column("__properties__")
    own = column.to_pylist() if len(column.keys) else [()] * len(column)
    if not carried:
        return own
    names = [property_name(each) for each in carried]
    texts = [_text(batch.column(each)).to_pylist() for each in carried]
    return [
        [*before, *(pair for pair in zip(names, row, strict=True) if pair[1] is not None)]
        for before, *row in zip(own, *texts, strict=True)
    ]


def _text(column: pa.Array) -> pa.StringArray:
    return (_ms(column) if pa.types.is_timestamp(column.type) else column).cast(pa.string())


def _ms(column: pa.TimestampArray) -> pa.Int64Array:
    return column.cast(_MS, safe=False).cast(pa.int64())
