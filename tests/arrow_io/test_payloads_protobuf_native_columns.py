"""Payloads that are read together, column by column, give what each gives alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.arenas import TightShredding
from tests.support.benchmark_ledgers import PROTOBUF_LZ4, READING_SCHEMA
from tests.support.builds import BUILDS, using_build
from tests.support.payloads import bits, shredded, shredded_alike
from tests.support.protobuf_payloads import library_class, library_value, program_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_READINGS: Final = [payload for _, payload in itertools.islice(PROTOBUF_LZ4.members(), 150)]
_CLASS: Final = library_class(READING_SCHEMA)
_WHOLE: Final = _CLASS(
    vehicle_id="veh-1",
    odometer_m=1 << 63,
    temperature_c=-5,
    ignition=True,
    mode=1,
    position={"lat": 1.5, "lon": 2.5, "accuracy_m": 0.5},
    cell_millivolts=[1, 300, 3700, -1],
    extras={"a": 0.5, "b": 1.5},
    note="süß",
    taken_at={"seconds": 1_700_000_000, "nanos": 5},
    trail=[{"lat": 1}, {}, {"accuracy_m": 2}],
    checksum=7,
    small=9,
).SerializeToString()
_ODD: Final = {
    "nothing": b"",
    "a field twice": b"\x10\x05\x10\x06",
    "a message twice": b"\x32\x00\x32\x09\x09" + bytes(8),
    "both of a oneof": b"\x4a\x01n\x52\x01b",
    "an unknown field": b"\xf8\x07\x05\x78\x05\x7d0000",
    "an unknown group": b"\x7b\x08\x01\x7c\x10\x05",
    "another wire type": b"\x0d0000\x10\x05",
    "an entry with an unknown field": b"\x42\x05\x0a\x01k\x18\x01",
    "an entry of nothing": b"\x42\x00\x42\x03\x0a\x01k",
    "numbers that are not packed": b"\x38\x05\x3a\x02\x06\x07\x38\x08",
    "an unknown name": b"\x28\x63",
    "a negative number": b"\x70" + b"\xff" * 9 + b"\x01",
    "no UTF-8": b"\x0a\x02\xff\xff",
    "a long text": b"\x0a\xac\x02" + b"x" * 300,
    "a length of five bytes": b"\x0a\x83\x80\x80\x80\x00abc",
    "a length of six bytes": b"\x0a\x83\x80\x80\x80\x80\x00abc",
    "a length beyond the end": b"\x0a\xff\xff\xff\xff\x0f",
    "many items": b"\x62\x00" * 300,
    "a time in another order": b"\x5a\x04\x10\x05\x08\x07",
    "a time that fits not": b"\x5a\x0b\x08" + b"\xff" * 8 + b"\x7f\x00",
    "field 0": b"\x00\x00",
    "the end of a group": b"\x7c",
}


@pytest.mark.parametrize("odd", [*_ODD.values(), None], ids=[*_ODD, "no value"])
@pytest.mark.parametrize("place", [0, 70, 149])
def test_an_odd_payload_among_others(odd: bytes | None, place: int) -> None:
    """Wherever it stands, it is what it is alone, and so are the others."""
    program = program_of(READING_SCHEMA)
    payloads: list[bytes | None] = [*_READINGS]
    payloads[place] = odd

    found = shredded_alike(program, payloads)

    alone = shredded_alike(program, [odd])
    expected = [library_value(_CLASS.FromString(each)) for each in _READINGS]
    assert found.rows == expected[:place] + alone.rows + expected[place + 1 :]
    assert [misfit.code for misfit in found.misfits] == [each.code for each in alone.misfits]


def test_cut_payloads_among_others() -> None:
    """A payload that ends early anywhere is read or refused as it is alone."""
    program = program_of(READING_SCHEMA)
    cuts = [_WHOLE[:length] for length in range(len(_WHOLE) + 1)]
    payloads = [each for cut in cuts for each in (*_READINGS[:17], cut)]

    found = shredded_alike(program, payloads)

    alone = shredded_alike(program, cuts)
    assert found.rows[17::18] == alone.rows
    assert [each.code for each in found.misfits] == [each.code for each in alone.misfits]


@pytest.mark.parametrize("names", [["temperature_c"], ["note"], ["trail", "small"], ["mode"]])
def test_some_of_the_fields(names: Sequence[str]) -> None:
    """Fields that nobody asks for are read over."""
    found = shredded_alike(program_of(READING_SCHEMA, names=names), [*_READINGS, _WHOLE])

    expected = [library_value(_CLASS.FromString(each)) for each in (*_READINGS, _WHOLE)]
    assert found.rows == [{name: each[name] for name in names} for each in expected]


def test_columns_that_grow() -> None:
    """Payloads that find no room come again, and then all of them are there."""
    payloads = [*_READINGS, *[_WHOLE] * 70]
    for build in BUILDS:
        with using_build(build):
            found = shredded(
                program_of(READING_SCHEMA), payloads, arena=TightShredding, believed_bytes=0
            )
            roomy = shredded(program_of(READING_SCHEMA), payloads)
        assert found.growths > 0
        assert bits(found.values) == bits(roomy.values)
