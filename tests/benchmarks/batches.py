"""The fixed cost of a record batch: message columns and typed values, of one row and of many."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from arrow_io.columns import Origin, projection
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from arrow_io.read_metrics import Tally
from tests.benchmarks.threads import count_calls
from tests.support.entries import Message, encode_entry
from tests.support.payloads import record
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from arrow_io.columns import Assembly
    from arrow_io.messages.message_columns import MessageColumns

_ROWS = (1, 1024)
_ROWS_A_ROUND = 2048
_FLAT = (("id", "long"), ("name", "string"), ("price", "double"), ("ok", "boolean"))
_ITEM = record(("sku", "string"), ("tags", {"type": "array", "items": "string"}), name="I")
_NESTED = record(*_FLAT, ("items", {"type": "array", "items": _ITEM}))
_FLAT_AVRO = b"\x08\x06abc" + bytes(8) + b"\x01"
_WIDE = record(*((f"f{number}", "long") for number in range(200)))


def _payloads() -> dict[str, tuple[str, Any, bytes]]:
    """Return the type of the schema, its definition, and a payload."""
    flat: dict[str, Any] = {"id": 4, "name": "abc", "price": 0.5, "ok": True}
    nested = flat | {"items": [{"sku": "ab", "tags": ["x"]}]}
    return {
        "Avro, 4 fields": ("AVRO", record(*_FLAT), _FLAT_AVRO),
        "Avro, nested": ("AVRO", _NESTED, _FLAT_AVRO + b"\x02\x04ab\x02\x02x\0\0"),
        "JSON, nested": ("JSON", _NESTED, json.dumps(nested).encode()),
        "Avro, 200 fields": ("AVRO", _WIDE, b"\x02" * 200),
    }


@dataclass(frozen=True)
class MeasuredBatch:
    """One row of the table of record batches.

    Attributes:
        name: The encoding and the fields.
        rows: Number of rows of the record batch.
        seconds: CPU time of a record batch of the default columns and all fields.
        calls: Calls of functions by Python for it.
    """

    name: str
    rows: int
    seconds: float
    calls: int


def record_batches(count: int) -> dict[str, Callable[[], pa.RecordBatch]]:
    """Return what makes a record batch of so many equal rows, by encoding and fields."""
    makers: dict[str, Callable[[], pa.RecordBatch]] = {}
    for name, (type_, definition, payload) in _payloads().items():
        schema = TopicSchema(SchemaInfo(type_, json.dumps(definition)))
        assembly = projection(values=ValueColumns(schema)).assembly(Origin("topic"))
        message = Message(payload=payload, partition_key="k", properties=(("a", "1"),))
        run = entry_run([encode_entry([message] * count, batched=True)])
        (rows,) = MessageReader([run], Needs(), Tally())
        makers[name] = partial(_make, assembly, rows)
    return makers


def measure_batches(rounds: int = 7) -> list[MeasuredBatch]:
    """Measure record batches, of which the least CPU time of some rounds counts."""
    measured = []
    for count in _ROWS:
        repeats = max(1, _ROWS_A_ROUND // (count + 10))
        for name, make in record_batches(count).items():
            make()
            seconds = min(_seconds(make, repeats) for _ in range(rounds))
            measured.append(MeasuredBatch(name, count, seconds, count_calls(make)))
    return measured


def _make(assembly: Assembly, rows: MessageColumns) -> pa.RecordBatch:
    (batch,) = assembly.record_batches(rows, Tally())
    assert batch.num_rows == rows.count
    return batch


def _seconds(make: Callable[[], object], repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        make()
    return (time.process_time() - start) / repeats
