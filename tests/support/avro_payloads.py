"""Avro schemas and data spelled by hand, and what both builds make of them."""

from __future__ import annotations

from typing import Any

from tests.support.payloads import avro, shredded_alike


def avro_long(number: int) -> bytes:
    """Avro's zigzag number."""
    rest = number << 1 if number >= 0 else ~(number << 1)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def sized(data: bytes) -> bytes:
    """Bytes behind their length."""
    return avro_long(len(data)) + data


def decimal_of(precision: int, scale: int = 0) -> dict[str, object]:
    """A decimal of bytes."""
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def time_of(logical: str) -> dict[str, object]:
    """A time, date or timestamp."""
    kind = "int" if logical in {"date", "time-millis"} else "long"
    return {"type": kind, "logicalType": logical}


def enum_of(*symbols: str, **more: str) -> dict[str, object]:
    """An enum."""
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed_of(size: int, name: str = "F", **more: object) -> dict[str, object]:
    """A fixed."""
    return {"type": "fixed", "name": name, "size": size, **more}


def array_of(items: object) -> dict[str, object]:
    """An array."""
    return {"type": "array", "items": items}


def map_of(values: object) -> dict[str, object]:
    """A map."""
    return {"type": "map", "values": values}


def value_of(writer: object, payload: bytes, reader: object = None, **options: str) -> Any:  # noqa: ANN401
    """The value of one payload, which fits."""
    found = shredded_alike(avro(writer, reader, **options), [payload])
    assert found.misfits == []
    return found.rows[0]


def code_of(writer: object, payload: bytes, reader: object = None, **options: str) -> int:
    """Why a payload does not fit."""
    (code,) = shredded_alike(avro(writer, reader, **options), [payload]).codes
    return code
