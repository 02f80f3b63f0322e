"""What a record batch of typed values costs besides its rows."""

from __future__ import annotations

import json
import time
from array import array
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from arrow_io.payloads.shredding import Shredding
from tests.benchmarks.threads import count_calls
from tests.support.payloads import avro, json_text, record

if TYPE_CHECKING:
    import pyarrow as pa

    from arrow_io.payloads.program import Program

_BATCHES = 200
_FLAT = (("id", "long"), ("name", "string"), ("price", "double"), ("ok", "boolean"))
_ITEM = record(("sku", "string"), ("tags", {"type": "array", "items": "string"}), name="I")
_NESTED = record(*_FLAT, ("items", {"type": "array", "items": _ITEM}))
_FLAT_AVRO = b"\x08\x06abc" + bytes(8) + b"\x01"
_WIDE = record(*((f"f{number}", "long") for number in range(200)))


def one_row_payloads() -> dict[str, tuple[Program, bytes]]:
    """Return a program and a payload for each row of the table, by its name."""
    flat: dict[str, Any] = {"id": 4, "name": "abc", "price": 0.5, "ok": True}
    nested = flat | {"items": [{"sku": "ab", "tags": ["x"]}]}
    return {
        "Avro, 4 fields": (avro(record(*_FLAT)), _FLAT_AVRO),
        "Avro, nested": (avro(_NESTED), _FLAT_AVRO + b"\x02\x04ab\x02\x02x\0\0"),
        "JSON, nested": (json_text(_NESTED), json.dumps(nested).encode()),
        "Avro, 200 fields": (avro(_WIDE), b"\x02" * 200),
    }


@dataclass(frozen=True)
class MeasuredBatch:
    """One row of the table of record batches.

    Attributes:
        name: The encoding and the fields.
        seconds: CPU time of a record batch of one row.
        calls: Calls of functions by Python for it.
    """

    name: str
    seconds: float
    calls: int


def measure_batches(rounds: int = 7) -> list[MeasuredBatch]:
    """Measure record batches of one row, of which the least CPU time of some rounds counts."""
    rows = []
    for name, (program, payload) in one_row_payloads().items():
        decode = partial(decode_row, program, payload)
        decode()
        seconds = min(_seconds(decode) for _ in range(rounds))
        rows.append(MeasuredBatch(name, seconds, count_calls(decode)))
    return rows


def decode_row(program: Program, payload: bytes) -> pa.Array:
    """Decode a record batch of one row."""
    positions = memoryview(array("q", [len(payload)]))
    shredding = Shredding(program, 1, len(payload))
    misfit = shredding.append(program, memoryview(payload), positions, 0, 1)
    assert misfit is None
    return shredding.finish()


def _seconds(decode: partial[pa.Array]) -> float:
    start = time.process_time()
    for _ in range(_BATCHES):
        decode()
    return (time.process_time() - start) / _BATCHES
