"""Topics to write: one for each thing in which what is stored can differ."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

import fastavro

from connector import Message

FIRST_TIME_MS: Final = 1_750_000_000_000
CODECS: Final = ("none", "lz4", "zlib", "zstd", "snappy")

SALE: Final = {
    "type": "record",
    "name": "Sale",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "sku", "type": ["null", "string"], "default": None},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": "double"},
    ],
}

# Batches of five, all of one publish time, so that each message keeps its own.
_PUBLISHED_AT_ONCE: Final = 5
_SMALL_ENTRY_BYTES: Final = 8192


@dataclass(frozen=True)
class Topic:
    """What is written, and how."""

    messages: list[Message]
    options: dict[str, Any] = field(default_factory=dict)
    """Those of `write_messages`."""
    schema: dict[str, Any] | None = None


def sale(number: int) -> dict[str, Any]:
    """A record of `SALE`."""
    sku = None if number % 5 == 4 else f"sku-{number % 17}"
    return {"id": number, "sku": sku, "quantity": number % 7, "price": number / 4}


def messages(count: int, payload_bytes: int) -> list[Message]:
    """Messages of every kind: with and without keys, properties, event times, values.

    Args:
        count: How many.
        payload_bytes: Most bytes of a payload; half of them compress well.
    """
    source = random.Random(count)
    return [
        Message(
            payload=_payload(source, number, payload_bytes),
            publish_time_ms=_publish_time_ms(number),
            key=(f"key-{number % 13}", b"\xff\0" + bytes([number % 256]), None)[number % 3],
            ordering_key=f"ordering-{number}".encode() if number % 8 == 3 else None,
            properties=(("поток", f"№ {number}"), ("b", "")) if number % 4 == 0 else (),
            event_time_ms=1_600_000_000_000 + number * 37 if number % 3 == 0 else None,
            producer_name="writer",
        )
        for number in range(count)
    ]


def _payload(source: random.Random, number: int, payload_bytes: int) -> bytes | None:
    if number % 29 == 28:
        return None
    if number % 31 == 30:
        return b""
    if number % 2:
        return source.randbytes(source.randint(1, payload_bytes))
    return f"message {number} ".encode() * source.randint(1, payload_bytes // 12)


def _publish_time_ms(number: int) -> int:
    return FIRST_TIME_MS + number // _PUBLISHED_AT_ONCE * 10


def _long_messages(count: int, shortest: int, longest: int) -> list[Message]:
    source = random.Random(count)
    return [
        Message(
            payload=source.randbytes(source.randint(shortest, longest)),
            publish_time_ms=FIRST_TIME_MS + number,
            key=f"key-{number % 7}",
            properties=(("number", str(number)),),
        )
        for number in range(count)
    ]


def _sales(count: int, kind: str) -> list[Message]:
    encode = {"JSON": _as_json, "AVRO": _as_avro}[kind]
    return [
        Message(
            payload=encode(sale(number)),
            publish_time_ms=_publish_time_ms(number),
            key=None if number % 3 == 0 else f"key-{number % 19}",
            producer_name="shop",
        )
        for number in range(count)
    ]


def _as_json(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


def _as_avro(record: dict[str, Any]) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(SALE), record)
    return buffer.getvalue()


_BATCHED: Final = {"batch_messages": 20, "batch_delay_ms": 0, "ledger_entries": 6}
_SINGLE: Final = {"batch_messages": 1, "ledger_entries": 15}

TOPICS: Final = {
    **{
        f"batched-{codec}": Topic(
            messages(150, 300),
            {**_BATCHED, "compression": codec, "broker_metadata": codec in {"lz4", "zstd"}},
        )
        for codec in CODECS
    },
    **{
        f"single-{codec}": Topic(
            messages(40, 1_500),
            {**_SINGLE, "compression": codec, "broker_metadata": codec == "zlib"},
        )
        for codec in CODECS
    },
    "chunks": Topic(
        _long_messages(16, 100, 60_000),
        {
            "batch_messages": 1,
            "chunking": True,
            "max_message_bytes": _SMALL_ENTRY_BYTES,
            "ledger_entries": 31,
            "compression": "zstd",
            "broker_metadata": True,
        },
    ),
    "blocks": Topic(_long_messages(240, 1_000, 60_000), {"block_bytes": 5 << 20}),
    "json": Topic(
        _sales(100, "JSON"), {**_BATCHED, "broker_metadata": True}, {"type": "JSON", "schema": SALE}
    ),
    "avro": Topic(
        _sales(100, "AVRO"), {**_BATCHED, "compression": "zstd"}, {"type": "AVRO", "schema": SALE}
    ),
    "partitioned": Topic(
        _sales(150, "JSON"), {**_BATCHED, "partitions": 3}, {"type": "JSON", "schema": SALE}
    ),
}
