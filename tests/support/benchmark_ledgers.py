"""The ledgers of the benchmarks: five shapes of messages, any number of them, made quickly.

Protobuf and Avro are written by hand, in the field order of Pulsar's Java client, since libraries
would take minutes. The same count always gives the same bytes.

| ledger | message | codec | batch | own fields |
|---|---|---|---|---|
| `JSON_LZ4` | order as JSON text, about 350 bytes | LZ4 | 500 | key, event time, 1 property |
| `AVRO_ZSTD` | the same order as an Avro datum, about 150 bytes | ZSTD | 500 | none |
| `PROTOBUF_LZ4` | reading of a vehicle as protobuf, about 165 bytes | LZ4 | 500 | none |
| `TEXT_UNCOMPRESSED` | text, 1,100 bytes | none | 200 | none |
| `SINGLE_UNCOMPRESSED` | text, 100 bytes | none | not batched | none |
| `SINGLES` | three orders as JSON text, about 1,050 bytes | each | not batched | none |
"""

from __future__ import annotations

import base64
import itertools
import json
import random
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import crc32c
import pyarrow as pa

from tests.support.codecs import CODECS, compress
from tests.support.golden import golden_topic
from tests.support.pulsar_proto import COMPRESSION_TYPES
from tests.support.reference import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.support.codecs import Codec

_FIRST_PUBLISH_TIME_MS: Final = 1_795_265_305_000
_PRODUCER: Final = b"standalone-0-7"
_SCHEMA_VERSION_0: Final = b"\x82\x01\x08" + bytes(8)
_LENGTH: Final = struct.Struct(">I")
_WORDS: Final = ("ledger", "entry", "offset", "amet", "dolor", "stream", "über", "поток", "数据")

# Compression levels are those of Pulsar's client.
_COMPRESSORS: Final = {"LZ4": pa.Codec("lz4_raw"), "ZSTD": pa.Codec("zstd", compression_level=3)}


def _golden_schema(topic: str) -> str:
    """Data of the newest schema of a golden topic."""
    text = (golden_topic(topic).folder / "schemas-rest.json").read_text(encoding="utf-8")
    data: str = json.loads(text)["getSchemaResponses"][-1]["data"]
    return data


ORDER_SCHEMA: Final = _golden_schema("avro-orders")
"""The Avro schema of orders, by which Pulsar reads their JSON too."""

READING_SCHEMA: Final = _golden_schema("protobuf-native")
"""The PROTOBUF_NATIVE schema data of readings: JSON text around a `FileDescriptorSet`."""


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
        schema_type: Name of the payloads' `SchemaType`.
        schema: Data of their schema; None: the type has none.
        transaction_size: So many messages, which are not batched, are of one transaction, which is
            committed behind them; None: of none.
    """

    name: str
    message_count: int
    batch_size: int | None
    codec: Codec
    members: Callable[[], Iterator[tuple[bytes, bytes]]]
    schema_type: str = "BYTES"
    schema: str | None = None
    transaction_size: int | None = None

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
            frames = _single_frames(members, self.codec, self.transaction_size)
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


def _three_orders() -> Iterator[tuple[bytes, bytes]]:
    order = _Orders()
    for number in itertools.count():
        yield b"", b"[%b]" % b",".join(order.as_json(3 * number + k) for k in range(3))


def _avro_orders() -> Iterator[tuple[bytes, bytes]]:
    order = _Orders()
    for number in itertools.count():
        payload = order.as_avro(number)
        yield b"\x18" + _varint(len(payload)), payload


def _protobuf_readings() -> Iterator[tuple[bytes, bytes]]:
    reading = _Readings()
    for number in itertools.count():
        payload = reading.as_protobuf(number)
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
    """Orders of a shop (`ORDER_SCHEMA`), put together from parts as a shop's own would be.

    Customers, items and notes recur and ids, times and totals do not, so that a batch compresses
    about as well as real orders do (3.1 to 1 by LZ4, as JSON).
    """

    def __init__(self) -> None:
        dice = random.Random(17)
        texts = [" ".join(dice.choices(_WORDS, k=dice.randint(1, 4))) for _ in range(50)]
        signatures = [dice.randbytes(dice.randint(1, 16)) for _ in range(997)]
        customers = [
            {"id": n, "name": dice.choice(texts)}
            | (
                {"email": f"c{n}@example.org"}
                if dice.random() < 0.5
                else {"tags": ["a", f"b{n}", ""]}
            )
            for n in range(499)
        ]
        items = [_order_item(n, dice) for n in range(1009)]
        discounts = [round(dice.randint(0, 99) / 3, 6) for _ in signatures]
        notes = [dice.choice(texts) if dice.random() < 0.9 else None for _ in signatures]
        self._statuses = ("NEW", "PAID", "SHIPPED", "CANCELLED")
        self._json_customers = list(map(_json, customers))
        self._json_items = list(map(_json, items))
        self._json_tails = [
            _json(
                {"signature": base64.b64encode(signature).decode(), "discount": discount}
                | ({} if note is None else {"note": note})
            ).removeprefix("{")
            for signature, discount, note in zip(signatures, discounts, notes, strict=True)
        ]
        self._avro_customers = list(map(_avro_customer, customers))
        self._avro_items = list(map(_avro_item, items))
        self._avro_discounts = [struct.pack("<f", discount) for discount in discounts]
        self._avro_notes = [
            _avro_nullable(None if note is None else _avro_string(note)) for note in notes
        ]
        self._avro_signatures = [
            _avro_nullable(_avro_long(len(signature)) + signature) for signature in signatures
        ]

    def as_json(self, number: int) -> bytes:
        """Order number `number` as JSON text in UTF-8, 220 to 510 bytes; nulls are left out."""
        items = ",".join(self._json_items[place] for place in self._item_places(number))
        return (
            f'{{"orderId":{number},"customer":{self._json_customers[number * 31 % 499]},'
            f'"items":[{items}],"total":{number * 7919 % 1_000_003 / 100},'
            f'"status":"{self._statuses[number * 3 % 4]}",'
            f'"gift":{"true" if number % 3 else "false"},'
            f'"createdAt":{1_700_000_000_000 + number * 1000},{self._json_tails[number * 13 % 997]}'
        ).encode()

    def as_avro(self, number: int) -> bytes:
        """Order number `number` as one Avro datum, 60 to 250 bytes; fields by name."""
        places = self._item_places(number)
        tail = number * 13 % 997
        return b"".join(
            (
                b"\x02",
                _avro_long(1_700_000_000_000 + number * 1000),
                self._avro_customers[number * 31 % 499],
                self._avro_discounts[tail],
                b"\x01" if number % 3 else b"\x00",
                b"\x02",
                _avro_long(len(places)),
                *(self._avro_items[place] for place in places),
                b"\x00",
                self._avro_notes[tail],
                _avro_long(number),
                self._avro_signatures[tail],
                b"\x02",
                _avro_long(number * 3 % 4),
                struct.pack("<d", number * 7919 % 1_000_003 / 100),
            )
        )

    def _item_places(self, number: int) -> range:
        first = number * 101 % 997
        return range(first, first + 1 + number % 3 * 4, 4)


def _order_item(number: int, dice: random.Random) -> dict[str, Any]:
    quantity = dice.randint(1, 9)
    item: dict[str, Any] = {"sku": f"SKU-{number}", "qty": quantity}
    if number % 11:
        item["price"] = round(dice.random() * 100, 2)
    if quantity % 2:
        item["attrs"] = {"size": str(quantity % 4), "color": "red"}
    return item


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _avro_customer(customer: dict[str, Any]) -> bytes:
    email, tags = customer.get("email"), customer.get("tags")
    return _avro_nullable(
        _avro_nullable(None if email is None else _avro_string(email))
        + _avro_long(customer["id"])
        + _avro_nullable(_avro_string(customer["name"]))
        + _avro_nullable(None if tags is None else _avro_blocks(map(_avro_string, tags)))
    )


def _avro_item(item: dict[str, Any]) -> bytes:
    attrs, price = item.get("attrs"), item.get("price")
    return (
        _avro_nullable(
            None
            if attrs is None
            else _avro_blocks(_avro_string(key) + _avro_string(attrs[key]) for key in attrs)
        )
        + _avro_nullable(None if price is None else struct.pack("<d", price))
        + _avro_long(item["qty"])
        + _avro_nullable(_avro_string(item["sku"]))
    )


def _avro_nullable(datum: bytes | None) -> bytes:
    """A datum of the union of null and its type."""
    return b"\x00" if datum is None else b"\x02" + datum


def _avro_blocks(items: Iterable[bytes]) -> bytes:
    """The items of an array or a map, one or more, as one block."""
    data = list(items)
    return _avro_long(len(data)) + b"".join(data) + b"\x00"


def _avro_long(number: int) -> bytes:
    return _varint(number << 1)


def _avro_string(text: str) -> bytes:
    data = text.encode()
    return _avro_long(len(data)) + data


class _Readings:
    """Readings of vehicles (`READING_SCHEMA`), put together from parts.

    Places, cells and notes recur and odometers, times and checksums do not, so that a batch
    compresses as well as the golden topic's readings do (2.1 to 1 by LZ4).
    """

    def __init__(self) -> None:
        dice = random.Random(19)
        texts = [" ".join(dice.choices(_WORDS, k=dice.randint(1, 4))) for _ in range(50)]
        self._vehicles = [_bytes_field(b"\x0a", b"veh-%d" % n) for n in range(499)]
        self._states = [_reading_state(dice) for _ in range(997)]
        self._measured = [_reading_measured(dice) for _ in range(103)]
        self._details = [
            dice.choice(
                (
                    b"",
                    _bytes_field(b"\x4a", dice.choice(texts).encode()),
                    _bytes_field(b"\x52", dice.randbytes(dice.randint(1, 16))),
                )
            )
            for _ in range(107)
        ]
        self._trails = [
            b"".join(_position(b"\x62", dice) for _ in range(dice.randint(0, 4)))
            for _ in range(109)
        ]

    def as_protobuf(self, number: int) -> bytes:
        """Reading number `number` as a protobuf message, 40 to 300 bytes; fields by number."""
        taken_at = (
            b"\x08"
            + _varint(1_700_000_000 + number)
            + b"\x10"
            + _varint((number % 999_983 + 1) * 1000)
        )
        return b"".join(
            (
                self._vehicles[number * 31 % 499],
                b"\x10",
                _varint((number + 1) * 7919),
                self._states[number * 13 % 997],
                self._measured[number * 17 % 103],
                self._details[number * 19 % 107],
                _bytes_field(b"\x5a", taken_at) if number % 7 else b"",
                self._trails[number * 23 % 109],
                b"\x6d",
                struct.pack("<I", (number + 1) * 2_654_435_761 % (1 << 32)),
                b"\x70",
                _varint(number % 9973 + 1),
            )
        )


def _reading_state(dice: random.Random) -> bytes:
    """Temperature, ignition and mode; each is absent where it is 0."""
    temperature = dice.randint(-40, 60)
    zigzag = temperature * 2 if temperature >= 0 else -temperature * 2 - 1
    fields = ((b"\x18", zigzag), (b"\x20", dice.randint(0, 1)), (b"\x28", dice.randint(0, 3)))
    return b"".join(tag + _varint(number) for tag, number in fields if number)


def _reading_measured(dice: random.Random) -> bytes:
    """Position, if there is one, cells and extras."""
    position = _position(b"\x32", dice) if dice.random() < 0.8 else b""
    cells = b"".join(_varint(dice.randint(3000, 4200)) for _ in range(dice.randint(8, 24)))
    extras = (
        _bytes_field(b"\x0a", b"x%d" % place) + b"\x11" + struct.pack("<d", dice.random() * 10)
        for place in range(dice.randint(0, 3))
    )
    return b"".join(
        (position, _bytes_field(b"\x3a", cells), *(_bytes_field(b"\x42", each) for each in extras))
    )


def _position(tag: bytes, dice: random.Random) -> bytes:
    latitude, longitude = round(dice.uniform(47, 55), 5), round(dice.uniform(6, 15), 5)
    message = b"\x09" + struct.pack("<d", latitude) + b"\x11" + struct.pack("<d", longitude)
    if dice.random() < 0.5:
        message += b"\x1d" + struct.pack("<f", dice.randint(1, 40) / 2)
    return _bytes_field(tag, message)


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


def _single_frames(
    members: Iterator[tuple[bytes, bytes]], codec: Codec, transaction_size: int | None
) -> Iterator[tuple[int, bytes]]:
    """Give `(number of the message, entry without broker metadata)` of each message and marker."""
    compression = b"" if codec == "NONE" else b"\x40%c" % COMPRESSION_TYPES[codec]
    for first in itertools.count(0, transaction_size or sys.maxsize):
        together = itertools.islice(members, transaction_size)
        transaction = b"\xb0\x01" + _varint(first) + b"\xb8\x01\x07" if transaction_size else b""
        last = None
        for last, (own_metadata, payload) in enumerate(together, start=first):
            metadata = (
                _required_fields(last)
                + own_metadata
                + compression
                + b"\x48"
                + _varint(len(payload))
                + transaction
            )
            yield last, _frame(metadata, compress(codec, payload))
        if last is None or not transaction_size:
            return
        yield last, _frame(_required_fields(last) + b"\xa0\x01\x15" + transaction, b"")


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


JSON_LZ4: Final = BenchmarkLedger(
    "json-lz4", 1_000_000, 500, "LZ4", _json_orders, "JSON", ORDER_SCHEMA
)
AVRO_ZSTD: Final = BenchmarkLedger(
    "avro-zstd", 500_000, 500, "ZSTD", _avro_orders, "AVRO", ORDER_SCHEMA
)
PROTOBUF_LZ4: Final = BenchmarkLedger(
    "protobuf-lz4", 500_000, 500, "LZ4", _protobuf_readings, "PROTOBUF_NATIVE", READING_SCHEMA
)
TEXT_UNCOMPRESSED: Final = BenchmarkLedger(
    "text-uncompressed", 300_000, 200, "NONE", _texts(1100, batched=True)
)
SINGLE_UNCOMPRESSED: Final = BenchmarkLedger(
    "single-uncompressed", 1_000_000, None, "NONE", _texts(100, batched=False)
)
BENCHMARK_LEDGERS: Final = (
    JSON_LZ4,
    AVRO_ZSTD,
    PROTOBUF_LZ4,
    TEXT_UNCOMPRESSED,
    SINGLE_UNCOMPRESSED,
)

SINGLES: Final = (
    *(
        BenchmarkLedger(f"single-{codec.lower()}", 100_000, None, codec, _three_orders)
        for codec in CODECS
    ),
    BenchmarkLedger(
        "single-transactions", 100_000, None, "NONE", _three_orders, transaction_size=100
    ),
)
"""Messages that are not batched, three orders as JSON in each, uncompressed and by each codec; and,
uncompressed, of transactions."""
