"""The payloads of the comparison: records of one kind each, as JSON, Avro or protobuf.

The same count always gives the same bytes.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from array import array
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import fastavro
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from tests.support.avro_payloads import (
    array_of,
    avro_long,
    decimal_of,
    enum_of,
    map_of,
    sized,
    time_of,
)
from tests.support.payloads import record
from tests.support.protobuf_files import ENUM, data_of, file_of, nested
from tests.support.protobuf_payloads import library_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    _Records = Callable[[random.Random], Iterator[dict[str, Any]]]

MESSAGES: Final = 65_536
WIDE_MESSAGES: Final = 8_192
"""Messages of kinds with 200 fields, so that they take as much memory as others."""

_Record: TypeAlias = dict[str, Any]
_P = FieldDescriptorProto
_BLOCK_BYTES: Final = 64_000
"""Length of a block in an Avro file: the default of Java's writer."""
_SYNC: Final = bytes(range(16))
_WIDE_FIELDS: Final = 200
_PRESENT_FIELDS: Final = 10
_STATUSES: Final = ("NEW", "PAID", "SHIPPED", "CANCELLED")
_CITIES: Final = ("Berlin", "Lisbon", "Nairobi", "Osaka", None)
_START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Payloads:
    """Payloads of one kind in one buffer.

    Attributes:
        kind: Name of the kind.
        type: Name of the `SchemaType`: `JSON`, `AVRO` or `PROTOBUF_NATIVE`.
        definition: Data of the schema, as Pulsar keeps it.
        data: The payloads; each JSON text is followed by a line feed.
        positions: Start in `data`, shifted left by 32, and length of each payload.
        stored_units: Units of the timestamps that JSON holds as numbers, by field name.
    """

    kind: str
    type: str
    definition: str
    data: bytes
    positions: array[int]
    stored_units: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Length of all payloads without line feeds."""
        return sum(position & 0xFFFFFFFF for position in self.positions)

    def payloads(self) -> Iterator[bytes]:
        """Yield each payload."""
        for position in self.positions:
            start = position >> 32
            yield self.data[start : start + (position & 0xFFFFFFFF)]

    def avro_file(self) -> bytes:
        """Return an Avro object container file of the payloads, without compression."""
        metadata = {"avro.schema": self.definition.encode(), "avro.codec": b"null"}
        parts = [b"Obj\x01", avro_long(len(metadata))]
        parts += [sized(name.encode()) + sized(value) for name, value in metadata.items()]
        parts += [b"\0", _SYNC]
        block: list[bytes] = []
        size_bytes = 0
        for payload in (*self.payloads(), b""):
            if block and (size_bytes >= _BLOCK_BYTES or not payload):
                parts += [avro_long(len(block)), sized(b"".join(block)), _SYNC]
                block, size_bytes = [], 0
            block.append(payload)
            size_bytes += len(payload)
        return b"".join(parts)


@dataclass(frozen=True)
class Kind:
    """A kind of payload.

    Attributes:
        name: Name on the command line and in the table.
        make: Makes that many payloads.
        messages: Number of payloads that are compared and timed.
    """

    name: str
    make: Callable[[str, int], Payloads]
    messages: int = MESSAGES

    def payloads(self, count: int) -> Payloads:
        """Make that many payloads."""
        return self.make(self.name, count)


# Records


def _orders(dice: random.Random) -> Iterator[_Record]:
    """Yield orders of 10.5 values each, lists counted by their items."""
    number = 0
    while True:
        customer = number * 31 % 499
        items = [
            {
                "sku": f"SKU-{dice.randint(1, 9999)}",
                "quantity": dice.randint(1, 9),
                "price": dice.randint(1, 99_999) / 100,
            }
            for _ in range((0, 1, 1, 2, 2, 1)[number % 6])
        ]
        yield {
            "id": number * 7919,
            "customer": {
                "id": customer,
                "name": f"Customer {customer}",
                "city": _CITIES[customer % 5],
            },
            "items": items,
            "status": dice.choice(_STATUSES),
            "paid": dice.random() < 0.7,
            "total": dice.randint(1, 9_999_999) / 100,
        }
        number += 1


def _shuffled(dice: random.Random) -> Iterator[_Record]:
    def shuffle(value: Any) -> Any:  # noqa: ANN401 - a value of JSON
        if isinstance(value, list):
            return [shuffle(item) for item in value]
        if not isinstance(value, dict):
            return value
        names = dice.sample(list(value), len(value))
        return {name: shuffle(value[name]) for name in names}

    return map(shuffle, _orders(dice))


def _escaped(dice: random.Random) -> Iterator[_Record]:
    names = ('Zoë "Zed" Müller', "line\nfeed\tand tab", "C:\\temp\\", "数据 поток", "plain text")
    for order in _orders(dice):
        order["customer"]["name"] = f"{dice.choice(names)} {dice.randint(1, 99)}"
        for item in order["items"]:
            item["sku"] = f"Größe “{item['quantity']}” \\ {item['sku']}"
        yield order


def _with_unknown_fields(dice: random.Random) -> Iterator[_Record]:
    for order in _orders(dice):
        number = order["id"]
        trace = {"span": f"{number:016x}", "parents": [number, number + 1], "sampled": True}
        customer = {"segment": "retail", **order["customer"], "score": number / 1000}
        yield {"version": 3, "trace": trace, **order, "customer": customer, "debug": "a b c " * 4}


def _with_nulls(dice: random.Random) -> Iterator[_Record]:
    for order in _orders(dice):
        for name in ("status", "paid", "total"):
            if dice.random() < 0.1:
                order[name] = None
        yield order


def _flat(dice: random.Random) -> Iterator[_Record]:
    for order in _orders(dice):
        yield {name: order[name] for name in ("id", "total", "status", "paid")}


def _times(dice: random.Random) -> Iterator[_Record]:
    while True:
        created = _START + dt.timedelta(milliseconds=dice.randrange(10**10))
        updated = created + dt.timedelta(microseconds=dice.randrange(10**9))
        yield {"id": dice.randrange(10**6), "created": created, "updated": updated}


def _times_as_numbers(dice: random.Random) -> Iterator[_Record]:
    millisecond, microsecond = (dt.timedelta(**{unit: 1}) for unit in _UNITS)
    epoch = dt.datetime.fromtimestamp(0, dt.UTC)
    for times in _times(dice):
        yield times | {
            "created": (times["created"] - epoch) // millisecond,
            "updated": (times["updated"] - epoch) // microsecond,
        }


def _decimals(dice: random.Random) -> Iterator[_Record]:
    while True:
        price, rate = dice.randrange(-(10**9), 10**9), dice.randrange(10**9)
        yield {
            "id": dice.randrange(10**6),
            "price": Decimal(price).scaleb(-2),
            "rate": Decimal(rate).scaleb(-4),
        }


def _enums(dice: random.Random) -> Iterator[_Record]:
    while True:
        status, side = dice.choice(_STATUSES), dice.choice(("BUY", "SELL"))
        yield {"id": dice.randrange(10**6), "status": status, "side": side}


def _enums_of_protobuf(dice: random.Random) -> Iterator[_Record]:
    names = ("ZERO", "ONE", "FAR")
    while True:
        yield {
            "id": dice.randrange(10**6),
            "status": dice.choice(names),
            "side": dice.choice(names),
        }


def _maps(dice: random.Random) -> Iterator[_Record]:
    while True:
        counts = {f"c{n}": dice.randrange(10**6) for n in range(dice.randrange(4))}
        labels = {f"label-{n}": f"v{dice.randrange(10**4)}" for n in range(dice.randrange(4))}
        yield {"id": dice.randrange(10**6), "counts": counts, "labels": labels}


def _lists(dice: random.Random) -> Iterator[_Record]:
    while True:
        yield {
            "counts": [dice.randrange(10**6) for _ in range(dice.randrange(12))],
            "levels": [dice.randrange(10**4) / 8 for _ in range(dice.randrange(4))],
            "readings": [
                {"sensor": dice.randrange(100), "value": dice.randrange(100) / 4}
                for _ in range(dice.randrange(4))
            ],
        }


def _unions(dice: random.Random) -> Iterator[_Record]:
    while True:
        amount = dice.choice((None, dice.randrange(10**6), f"{dice.randrange(100)} boxes"))
        level = dice.choice((dice.randrange(10**4) / 8, dice.random() < 0.5))
        yield {"id": dice.randrange(10**6), "amount": amount, "level": level}


def _wide(dice: random.Random) -> Iterator[_Record]:
    makers = [_makers(dice)[n % 5] for n in range(_WIDE_FIELDS)]
    while True:
        yield {f"field_{n}": make() for n, make in enumerate(makers)}


def _sparse(dice: random.Random) -> Iterator[_Record]:
    makers = _makers(dice)
    while True:
        present = sorted(dice.sample(range(_WIDE_FIELDS), _PRESENT_FIELDS))
        yield {f"field_{n}": makers[n % 5]() for n in present}


def _makers(dice: random.Random) -> list[Callable[[], Any]]:
    """Return makers of values of `_WIDE_TYPES`, none of which is 0 or empty."""
    return [
        lambda: dice.randrange(1, 1 << 40),
        lambda: dice.randrange(1, 9_999_999) / 100,
        lambda: f"text-{dice.randrange(10**5)}",
        lambda: dice.random() < 0.5,
        lambda: dice.randrange(1, 1000),
    ]


# Schemas

_UNITS: Final = ("milliseconds", "microseconds")
_STORED_UNITS: Final = {"created": "ms", "updated": "us"}
_WIDE_TYPES: Final = ("long", "double", "string", "boolean", "int")
_ITEM: Final = record(("sku", "string"), ("quantity", "int"), ("price", "double"), name="Item")
_CUSTOMER: Final = record(
    ("id", "long"), ("name", "string"), ("city", ["null", "string"]), name="Customer"
)
_ORDER: Final = record(
    ("id", "long"),
    ("customer", _CUSTOMER),
    ("items", array_of(_ITEM)),
    ("status", "string"),
    ("paid", "boolean"),
    ("total", "double"),
    name="Order",
)
_FLAT: Final = record(
    ("id", "long"), ("total", "double"), ("status", "string"), ("paid", "boolean")
)
_TIMES: Final = record(
    ("id", "long"),
    ("created", time_of("timestamp-millis")),
    ("updated", time_of("timestamp-micros")),
)
_DECIMALS: Final = record(("id", "long"), ("price", decimal_of(18, 2)), ("rate", decimal_of(18, 4)))
_ENUMS: Final = record(
    ("id", "long"),
    ("status", enum_of(*_STATUSES) | {"name": "Status"}),
    ("side", enum_of("BUY", "SELL") | {"name": "Side"}),
)
_MAPS: Final = record(("id", "long"), ("counts", map_of("long")), ("labels", map_of("string")))
_LISTS: Final = record(
    ("counts", array_of("long")),
    ("levels", array_of("double")),
    ("readings", array_of({**record(("sensor", "int"), ("value", "float")), "name": "Reading"})),
)
_UNIONS: Final = record(
    ("id", "long"), ("amount", ["null", "long", "string"]), ("level", ["double", "boolean"])
)


def _wide_schema(*, is_nullable: bool) -> _Record:
    """Return the schema of `_wide` and `_sparse`."""
    types = [_WIDE_TYPES[n % 5] for n in range(_WIDE_FIELDS)]
    schema: _Record = record(
        *((f"field_{n}", ["null", each] if is_nullable else each) for n, each in enumerate(types))
    )
    return schema


def _nullable(schema: Any) -> Any:  # noqa: ANN401 - a schema as `json.loads` returns it
    """Make fields of records and items of arrays nullable, as Pulsar's client does."""
    if isinstance(schema, list):
        return schema
    if isinstance(schema, dict) and schema["type"] == "record":
        fields = [(each["name"], _nullable(each["type"])) for each in schema["fields"]]
        return ["null", record(*fields, name=schema["name"])]
    if isinstance(schema, dict) and schema["type"] == "array":
        return ["null", array_of(_nullable(schema["items"]))]
    return ["null", schema]


_PROTO_ORDER: Final = {
    "Item": {"sku": _P.TYPE_STRING, "quantity": _P.TYPE_INT32, "price": _P.TYPE_DOUBLE},
    "Customer": {"id": _P.TYPE_INT64, "name": _P.TYPE_STRING, "city": _P.TYPE_STRING},
    "M": {
        "id": _P.TYPE_INT64,
        "customer": nested("t.Customer"),
        "items": nested("t.Item", label=_P.LABEL_REPEATED),
        "status": _P.TYPE_STRING,
        "paid": _P.TYPE_BOOL,
        "total": _P.TYPE_DOUBLE,
    },
}
_PROTO_FLAT: Final = {
    "M": {
        "id": _P.TYPE_INT64,
        "total": _P.TYPE_DOUBLE,
        "status": _P.TYPE_STRING,
        "paid": _P.TYPE_BOOL,
    }
}
_PROTO_MAPS: Final = {
    "M": {
        "id": _P.TYPE_INT64,
        "counts": {"type": "map", "value": {"type": _P.TYPE_INT64}},
        "labels": {"type": "map", "value": {"type": _P.TYPE_STRING}},
    }
}
_PROTO_TIMES: Final = {
    "M": {
        "id": _P.TYPE_INT64,
        "created": nested("google.protobuf.Timestamp"),
        "updated": nested("google.protobuf.Timestamp"),
    }
}
_PROTO_ENUMS: Final = {"M": {"id": _P.TYPE_INT64, "status": ENUM, "side": ENUM}}
_PROTO_TYPES: Final = (
    _P.TYPE_INT64,
    _P.TYPE_DOUBLE,
    _P.TYPE_STRING,
    _P.TYPE_BOOL,
    _P.TYPE_INT32,
)
_PROTO_WIDE: Final = {"M": {f"field_{n}": _PROTO_TYPES[n % 5] for n in range(_WIDE_FIELDS)}}


# Encoding


def _join(
    kind: str,
    type_: str,
    definition: str,
    payloads: Iterable[bytes],
    stored_units: Mapping[str, str] | None = None,
) -> Payloads:
    data, positions = bytearray(), array("q")
    end = b"\n" if type_ == "JSON" else b""
    for payload in payloads:
        positions.append(len(data) << 32 | len(payload))
        data += payload + end
    return Payloads(kind, type_, definition, bytes(data), positions, stored_units or {})


def _first(records: _Records, count: int) -> Iterator[_Record]:
    made = records(random.Random(39))
    return (next(made) for _ in range(count))


def _json_text(value: _Record) -> bytes:
    # Decimals become numbers.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)
    return text.encode()


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - a value of JSON
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return value


def _as_json(
    records: _Records,
    schema: _Record,
    kind: str,
    count: int,
    *,
    stored_units: Mapping[str, str] | None = None,
) -> Payloads:
    texts = (_json_text(_without_nulls(each)) for each in _first(records, count))
    return _join(kind, "JSON", json.dumps(schema), texts, stored_units)


def _as_avro(
    records: _Records,
    schema: _Record,
    kind: str,
    count: int,
) -> Payloads:
    parsed = fastavro.parse_schema(schema)

    def datum(value: _Record) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        return buffer.getvalue()

    return _join(kind, "AVRO", json.dumps(schema), map(datum, _first(records, count)))


def _as_protobuf(
    records: _Records,
    messages: dict[str, Any],
    kind: str,
    count: int,
) -> Payloads:
    definition = data_of(file_of("proto3", **messages))
    root = library_class(definition)
    payloads = (
        root(**_without_nulls(each)).SerializeToString(deterministic=True)
        for each in _first(records, count)
    )
    return _join(kind, "PROTOBUF_NATIVE", definition, payloads)


_WIDE: Final = _wide_schema(is_nullable=False)
_SPARSE: Final = _wide_schema(is_nullable=True)

KINDS: Final = (
    Kind("json-nested", partial(_as_json, _orders, _ORDER)),
    Kind("json-random-order", partial(_as_json, _shuffled, _ORDER)),
    Kind("json-escapes", partial(_as_json, _escaped, _ORDER)),
    Kind("json-unknown-fields", partial(_as_json, _with_unknown_fields, _ORDER)),
    Kind("json-times", partial(_as_json, _times_as_numbers, _TIMES, stored_units=_STORED_UNITS)),
    Kind("json-decimals", partial(_as_json, _decimals, _DECIMALS)),
    Kind("json-enums", partial(_as_json, _enums, _ENUMS)),
    Kind("json-maps", partial(_as_json, _maps, _MAPS)),
    Kind("json-wide", partial(_as_json, _wide, _WIDE), WIDE_MESSAGES),
    Kind("json-sparse", partial(_as_json, _sparse, _SPARSE), WIDE_MESSAGES),
    Kind("protobuf-nested", partial(_as_protobuf, _orders, _PROTO_ORDER)),
    Kind("protobuf-flat", partial(_as_protobuf, _flat, _PROTO_FLAT)),
    Kind("protobuf-times", partial(_as_protobuf, _times, _PROTO_TIMES)),
    Kind("protobuf-enums", partial(_as_protobuf, _enums_of_protobuf, _PROTO_ENUMS)),
    Kind("protobuf-maps", partial(_as_protobuf, _maps, _PROTO_MAPS)),
    Kind("protobuf-wide", partial(_as_protobuf, _wide, _PROTO_WIDE), WIDE_MESSAGES),
    Kind("protobuf-sparse", partial(_as_protobuf, _sparse, _PROTO_WIDE), WIDE_MESSAGES),
    Kind("avro-nullable", partial(_as_avro, _with_nulls, _nullable(_ORDER)[1])),
    Kind("avro-nested", partial(_as_avro, _orders, _ORDER)),
    Kind("avro-flat", partial(_as_avro, _flat, _FLAT)),
    Kind("avro-times", partial(_as_avro, _times, _TIMES)),
    Kind("avro-decimals", partial(_as_avro, _decimals, _DECIMALS)),
    Kind("avro-enums", partial(_as_avro, _enums, _ENUMS)),
    Kind("avro-maps", partial(_as_avro, _maps, _MAPS)),
    Kind("avro-lists", partial(_as_avro, _lists, _LISTS)),
    Kind("avro-unions", partial(_as_avro, _unions, _UNIONS)),
    Kind("avro-wide", partial(_as_avro, _wide, _WIDE), WIDE_MESSAGES),
    Kind("avro-sparse", partial(_as_avro, _sparse, _SPARSE), WIDE_MESSAGES),
)
"""All kinds, those of one encoding together."""
