"""Payloads made Arrow by a program, without a topic around them; on one build or on both."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from arrow_io.payloads import tables
from arrow_io.payloads.avro import avro_program, avro_shape
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.payloads.json import json_program, json_shape
from tests.support.arenas import GuardedShredding
from tests.support.builds import BUILDS, using_build
from tests.support.golden_values import comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.payloads.program import Program
    from arrow_io.payloads.shredding import Misfit

AvroSchema: TypeAlias = Any
"""An Avro schema as `json.loads` gives it."""


@dataclass(frozen=True, slots=True)
class Shredded:
    """What payloads became.

    Attributes:
        values: Their array; null for each that does not fit.
        misfits: Those that do not fit.
        growths: How often the arena grew.
    """

    values: pa.Array
    misfits: list[Misfit] = field(default_factory=list)
    growths: int = 0

    @property
    def rows(self) -> list[Any]:
        """The values, as `tests.support.golden_values` writes them."""
        return comparable(self.values)

    @property
    def codes(self) -> list[int]:
        """Why each misfit is none."""
        return [misfit.code for misfit in self.misfits]


def shredded(
    program: Program,
    payloads: Sequence[bytes | None],
    *,
    believed_bytes: int | None = None,
    arena: type[GuardedShredding] = GuardedShredding,
    between: bytes = b"\x01",
) -> Shredded:
    """Read payloads with the build in use; None stands for a null value.

    They stand in one buffer. If an arena is full, another one takes the payloads from there on.

    Args:
        program: Reads them.
        payloads: The payloads.
        believed_bytes: How many bytes the arena is told that they have; None: as many as they have.
        arena: Holds their values.
        between: Stands before, between and behind them, so that a read beyond a payload gives
            another value; without it a sanitizer sees one beyond the last.
    """
    data = array("B", between)
    positions = array("q")
    for payload in payloads:
        if payload is None:
            positions.append(tables.ABSENT)
            continue
        positions.append(len(data) << 32 | len(payload))
        data.frombytes(payload + between)
    believed = len(data) if believed_bytes is None else believed_bytes
    shredding = arena(program, len(positions), believed)
    misfits: list[Misfit] = []
    arrays, growths = [], 0
    first = row = 0
    while True:
        misfit = shredding.append(
            program, memoryview(data), memoryview(positions), row, len(positions)
        )
        if misfit is not None and misfit.code == tables.FULL and misfit.row == first:
            shredding = arena.for_one(program)
        elif misfit is not None and misfit.code != tables.FULL:
            misfits.append(misfit)
            shredding.append_null(program)
            row = misfit.row + 1
        else:
            arrays.append(shredding.finish())
            growths += shredding.growths
            if misfit is None:
                break
            first = row = misfit.row
            shredding = arena(program, len(positions) - first, believed)
    values = pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]
    values.validate(full=True)
    assert len(values) == len(payloads)
    return Shredded(values, misfits, growths)


def shredded_alike(program: Program, payloads: Sequence[bytes | None]) -> Shredded:
    """Read payloads with both builds, after a check that they agree to the bit.

    Both have them a byte apart. The compiled build also has them so far apart that it may look at
    whole blocks of bytes; and each would be longer if what stands behind it were its own. Each has
    them in an arena with room for them, and in one that has to grow.
    """
    first, *others = [
        _of_build(name, program, payloads, between, believed_bytes)
        for name in BUILDS
        for between in ((b"\x01", b'7,"]}' * 16) if name == "compiled" else (b"\x01",))
        for believed_bytes in (None, 0)
    ]
    for other in others:
        assert first.misfits == other.misfits
        assert bits(first.values) == bits(other.values)
    return first


def _of_build(
    name: str,
    program: Program,
    payloads: Sequence[bytes | None],
    between: bytes,
    believed_bytes: int | None,
) -> Shredded:
    program.observed_sizes[:] = array("d", [-1.0] * len(program.observed_sizes))
    with using_build(name):
        return shredded(program, payloads, believed_bytes=believed_bytes, between=between)


def bits(values: pa.Array) -> tuple[object, ...]:
    """All that an array holds, to the bit: also of a NaN, and what stands below a null."""
    valid = values.is_valid().to_pylist()
    kind = values.type
    if pa.types.is_struct(kind):
        return len(values), valid, *(bits(values.field(n)) for n in range(kind.num_fields))
    if pa.types.is_map(kind):
        return valid, values.offsets.to_pylist(), bits(values.keys), bits(values.items)
    if pa.types.is_list(kind):
        return valid, values.offsets.to_pylist(), bits(values.values)
    if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return valid, values.to_pylist()
    width = kind.bit_width // 8
    start = values.offset * width
    return valid, bytes(values.buffers()[1])[start : start + len(values) * width]


def avro(writer: AvroSchema, reader: AvroSchema = None, *, time_unit: str = "ns") -> Program:
    """The program that reads what one schema wrote as another (None: the same) has it."""
    read = parse_avro(json.dumps(writer if reader is None else reader))
    return avro_program(parse_avro(json.dumps(writer)), avro_shape(read, time_unit))


def json_text(schema: AvroSchema, *, time_unit: str = "ns") -> Program:
    """The program that reads JSON text by an Avro schema."""
    return json_program(json_shape(parse_avro(json.dumps(schema)), time_unit))


def record(*fields: AvroSchema, name: str = "R", **more: AvroSchema) -> AvroSchema:
    """An Avro record; a field is its whole definition, or a pair of name and type."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": each[0], "type": each[1]} if isinstance(each, tuple) else each
            for each in fields
        ],
        **more,
    }
