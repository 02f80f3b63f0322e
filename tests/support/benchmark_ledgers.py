"""The ledgers of the benchmarks: four shapes of messages, any number of them, made quickly.

Protobuf is written by hand, in the field order of Pulsar's Java client, since the protobuf library
would take minutes. The same count always gives the same bytes.

| ledger | message | codec | batch | own fields |
|---|---|---|---|---|
| `JSON_LZ4` | order as JSON text, about 350 bytes | LZ4 | 500 | key, event time, 1 property |
| `AVRO_ZSTD` | order as an Avro datum, about 150 bytes | ZSTD | 500 | none |
| `TEXT_UNCOMPRESSED` | text, 1,100 bytes | none | 200 | none |
| `SINGLE_UNCOMPRESSED` | text, 100 bytes | none | not batched | none |
"""

from __future__ import annotations

import base64
import itertools
import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import crc32c
import pyarrow as pa

from tests.support.pulsar_proto import COMPRESSION_TYPES
from tests.support.reference import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FIRST_PUBLISH_TIME_MS: Final = 1_795_265_305_000
_PRODUCER: Final = b"standalone-0-7"
_SCHEMA_VERSION_0: Final = b"\x82\x01\x08" + bytes(8)
_LENGTH: Final = struct.Struct(">I")
_WORDS: Final = ("ledger", "entry", "offset", "amet", "dolor", "stream", "über", "поток", "数据")

# Compression levels are those of Pulsar's client.
_COMPRESSORS: Final = {
    "LZ4": pa.Codec("lz4_raw"),
    "ZSTD": pa.Codec("zstd", compression_level=3),
}


@dataclass(frozen=True, slots=True)
class BenchmarkLedger:
    """A ledger of one shape.

    Attributes:
        name: What the benchmark calls it.
        message_count: How many messages it has unless told otherwise.
        batch_size: Messages in a batch; None: not batched.
        codec: Pulsar's name of the codec.
        members: Gives the messages from sequence id 0 on, without end: serialised own metadata up
            to the sequence id, and payload. The metadata is `SingleMessageMetadata`, empty if not
            batched.
    """

    name: str
    message_count: int
    batch_size: int | None
    codec: str
    members: Callable[[], Iterator[tuple[bytes, bytes]]]

    def entries(
        self, message_count: int | None = None, *, broker_metadata: bool = False
    ) -> Iterator[bytes]:
        """Generate the ledger's entries, in order.

        Args:
            message_count: Number of messages; None: the ledger's own.
            broker_metadata: Put the broker's time and index before each entry.

        Returns:
            The entries, made one by one.
        """
        wanted = self.message_count if message_count is None else message_count
        members = itertools.islice(self.members(), wanted)
        if self.batch_size is None:
            frames = _single_frames(members)
        else:
            frames = _batch_frames(members, self.batch_size, self.codec)
        for last_index, frame in frames:
            yield _broker_metadata(last_index) + frame if broker_metadata else frame


def _json_orders() -> Iterator[tuple[bytes, bytes]]:
    order = _Orders()
    for number in itertools.count():
        payload = order.as_json(number)
        key = b"key-%d" % (number % 1000)
        own_metadata = (
            b"\x0a\x0e\x0a\x06source\x12\x04shop"
            + _bytes_field(b"\x12", key)
            + b"\x18"
            + _varint(len(payload))
            + b"\x28"
            + _varint(_FIRST_PUBLISH_TIME_MS - 3000 + number)
            + b"\x30\x00"
        )
        yield own_metadata, payload


def _avro_orders() -> Iterator[tuple[bytes, bytes]]:
    order = _Orders()
    for number in itertools.count():
        payload = order.as_avro(number)
        yield b"\x18" + _varint(len(payload)), payload


def _texts(length_bytes: int, *, batched: bool) -> Callable[[], Iterator[tuple[bytes, bytes]]]:
    """Messages of one length, cut from a text at places that do not repeat soon."""
    own_metadata = b"\x18" + _varint(length_bytes) if batched else b""

    def members() -> Iterator[tuple[bytes, bytes]]:
        dice = random.Random(length_bytes)
        text = " ".join(dice.choices(_WORDS, k=20_000)).encode()
        for number in itertools.count():
            start = number * 7919 % (len(text) - length_bytes)
            yield own_metadata, text[start : start + length_bytes]

    return members


class _Orders:
    """Orders of a shop, put together from parts as a shop's own would be.

    Customers, items and notes recur and ids, times and totals do not, so that a batch compresses
    about as well as real orders do (3.5 to 1 by LZ4, as JSON).
    """

    def __init__(self) -> None:
        dice = random.Random(17)
        texts = [" ".join(dice.choices(_WORDS, k=dice.randint(1, 4))) for _ in range(50)]
        signatures = [dice.randbytes(dice.randint(1, 16)) for _ in range(997)]
        self._customers = [(n, dice.choice(texts), dice.random() < 0.5) for n in range(499)]
        self._items = [
            (f"SKU-{n}", dice.randint(1, 9), round(dice.random() * 100, 2)) for n in range(1009)
        ]
        self._statuses = ("NEW", "PAID", "SHIPPED", "CANCELLED")
        self._json_customers = [
            f'{{"id":{n},"name":"{name}"'
            + (f',"email":"c{n}@example.org"' if email else f',"tags":["a","b{n}",""]')
            + "}"
            for n, name, email in self._customers
        ]
        self._json_items = [
            f'{{"sku":"{sku}","qty":{quantity},"price":{price}'
            + (f',"attrs":{{"size":"{quantity % 4}","color":"red"}}' if quantity % 2 else "")
            + "}"
            for sku, quantity, price in self._items
        ]
        self._json_tails = [
            f'"signature":"{base64.b64encode(signature).decode()}","discount":'
            f'{dice.randint(0, 99) / 3:.6f},"note":"{dice.choice(texts)}"}}'
            for signature in signatures
        ]
        self._avro_customers = [
            _avro_long(n) + _avro_string(name) + b"\x02\x06" + _avro_string(f"c{n}@example.org")
            for n, name, _ in self._customers
        ]
        self._avro_items = [
            _avro_string(sku)
            + _avro_long(quantity)
            + struct.pack("<d", price)
            + b"\x02\x04\x08size\x02%d\x0acolor\x06red\x00" % (quantity % 4)
            for sku, quantity, price in self._items
        ]
        self._avro_tails = [_avro_long(len(signature)) + signature for signature in signatures]

    def as_json(self, number: int) -> bytes:
        """Order number `number` as JSON text in UTF-8, 250 to 510 bytes."""
        items = ",".join(self._json_items[place] for place in self._item_places(number))
        return (
            f'{{"orderId":{number},"customer":{self._json_customers[number * 31 % 499]},'
            f'"items":[{items}],"total":{number * 7919 % 1_000_003 / 100},'
            f'"status":"{self._statuses[number * 3 % 4]}",'
            f'"gift":{"true" if number % 3 else "false"},'
            f'"createdAt":{1_700_000_000_000 + number * 1000},{self._json_tails[number * 13 % 997]}'
        ).encode()

    def as_avro(self, number: int) -> bytes:
        """Order number `number` as one Avro datum, 80 to 220 bytes."""
        places = self._item_places(number)
        return b"".join(
            (
                _avro_long(number),
                self._avro_customers[number * 31 % 499],
                _avro_long(len(places)),
                *(self._avro_items[place] for place in places),
                b"\x00",
                struct.pack("<dd", number * 7919 % 1_000_003 / 100, number % 301 / 3),
                _avro_long(number * 3 % 4),
                _avro_long(1_700_000_000_000 + number * 1000),
                self._avro_tails[number * 13 % 997],
            )
        )

    def _item_places(self, number: int) -> range:
        first = number * 101 % 997
        return range(first, first + 1 + number % 3 * 4, 4)


def _avro_long(number: int) -> bytes:
    return _varint(number << 1)


def _avro_string(text: str) -> bytes:
    data = text.encode()
    return _avro_long(len(data)) + data


def _batch_frames(
    members: Iterator[tuple[bytes, bytes]], batch_size: int, codec: str
) -> Iterator[tuple[int, bytes]]:
    """Give `(number of the last message, entry without broker metadata)` of each batch."""
    sequence_id = 0
    while batch := list(itertools.islice(members, batch_size)):
        parts: list[bytes] = []
        last = sequence_id + len(batch) - 1
        for number, (own_metadata, payload) in enumerate(batch, start=sequence_id):
            metadata = own_metadata + b"\x40" + _varint(number)
            parts += (_LENGTH.pack(len(metadata)), metadata, payload)
        payload = b"".join(parts)
        compression = b""
        if codec in _COMPRESSORS:
            compression = b"\x40%c\x48" % COMPRESSION_TYPES[codec] + _varint(len(payload))
            payload = _COMPRESSORS[codec].compress(payload, asbytes=True)
        metadata = (
            _required_fields(sequence_id)
            + compression
            + b"\x58"
            + _varint(len(batch))
            + _SCHEMA_VERSION_0
            + b"\xc0\x01"
            + _varint(last)
        )
        yield last, _frame(metadata, payload)
        sequence_id = last + 1


def _single_frames(members: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Give `(number of the message, entry without broker metadata)` of each message."""
    for sequence_id, (own_metadata, payload) in enumerate(members):
        metadata = _required_fields(sequence_id) + own_metadata + b"\x48" + _varint(len(payload))
        yield sequence_id, _frame(metadata, payload)


def _required_fields(sequence_id: int) -> bytes:
    publish_time_ms = _FIRST_PUBLISH_TIME_MS + sequence_id // 100
    return (
        _bytes_field(b"\x0a", _PRODUCER)
        + b"\x10"
        + _varint(sequence_id)
        + b"\x18"
        + _varint(publish_time_ms)
    )


def _frame(metadata: bytes, payload: bytes) -> bytes:
    rest = b"".join((_LENGTH.pack(len(metadata)), metadata, payload))
    return b"".join((CHECKSUM_MAGIC, _LENGTH.pack(crc32c.crc32c(rest)), rest))


def _broker_metadata(last_index: int) -> bytes:
    time_ms = _FIRST_PUBLISH_TIME_MS + last_index // 100 + 2
    metadata = b"\x08" + _varint(time_ms) + b"\x10" + _varint(last_index)
    return BROKER_METADATA_MAGIC + _LENGTH.pack(len(metadata)) + metadata


def _bytes_field(tag: bytes, data: bytes) -> bytes:
    return tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """A number, 0 or more, as protobuf and Avro write it."""
    if number < 0x80:
        return number.to_bytes()
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


JSON_LZ4: Final = BenchmarkLedger("json-lz4", 1_000_000, 500, "LZ4", _json_orders)
AVRO_ZSTD: Final = BenchmarkLedger("avro-zstd", 500_000, 500, "ZSTD", _avro_orders)
TEXT_UNCOMPRESSED: Final = BenchmarkLedger(
    "text-uncompressed", 300_000, 200, "NONE", _texts(1100, batched=True)
)
SINGLE_UNCOMPRESSED: Final = BenchmarkLedger(
    "single-uncompressed", 1_000_000, None, "NONE", _texts(100, batched=False)
)
BENCHMARK_LEDGERS: Final = (JSON_LZ4, AVRO_ZSTD, TEXT_UNCOMPRESSED, SINGLE_UNCOMPRESSED)
