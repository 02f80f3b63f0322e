"""A column of floats has the float nearest to what was written, which is rounded only once.

A double between the text and the float would round before: what is a little beside the middle of
two floats would become the middle, and go to the even one of them.
"""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from tests.support.avro_payloads import avro_long
from tests.support.floats import GREATEST, float_of, nearest_float, numbers_near_ties, spellings
from tests.support.payloads import avro, json_text, record, shredded_alike

_RECORD = record(("a", "float"))
_LEAST = 2.0**-149


def _floats(payloads: list[bytes]) -> list[bytes | None]:
    """The bits that the field has; None for what is refused."""
    found = shredded_alike(json_text(_RECORD), payloads)
    assert set(found.codes) <= {tables.OUT_OF_RANGE}
    refused = {misfit.row for misfit in found.misfits}
    column = found.values.field("a")
    data = bytes(column.buffers()[1])
    return [None if n in refused else data[4 * n : 4 * n + 4] for n in range(len(column))]


def _nearest(number: float | Decimal) -> bytes | None:
    try:
        return struct.pack("<f", nearest_float(number))
    except OverflowError:
        return None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # As Java writes a float.
        ("7.038531E-26", float_of(0x15AE43FD)),
        # Of few digits, as most are.
        *(
            (text, nearest_float(Decimal(text)))
            for text in (
                "6.45230507850647",
                "-0.52559033036232",
                "4.49248194694519",
                "1.54713374376297",
            )
        ),
        ("8388608.5", 8388608.0),
        ("8388609.5", 8388610.0),
        ("8388609.4999999999999999", 8388609.0),
        ("8388608.5000000000000001", 8388609.0),
        ("8388608." + "5" + "0" * 5_000 + "1", 8388609.0),
        ("1.00000017881393432617187499", 1 + 2.0**-23),
        ("16777217", 2.0**24),
        ("16777217.0000000000000001", 2.0**24 + 2),
        ("1152921573326323713", 2.0**60 + 2**37),
        ("-1152921573326323713", -(2.0**60) - 2**37),
        (f"{2**-150:.130f}", 0.0),
        ("-" + f"{2**-150:.160f}", -0.0),
        (f"{2**-150:.160f}1", _LEAST),
        (f"{3 * 2**-150:.160f}", 2 * _LEAST),
        (f"{3 * 2**-150:.148e}".replace("e", "0e"), 2 * _LEAST),
        ("340282356779733661637539395458142568447.5", float_of(GREATEST)),
        ("3.4028235677973366163753939545814256844799999e38", float_of(GREATEST)),
    ],
    ids=lambda value: str(value)[:30],
)
def test_text_is_rounded_once(text: str, expected: float) -> None:
    """The nearest float, and of two that are as near the even one; whatever doubles there are."""
    assert _floats([f'{{"a":{text}}}'.encode()]) == [struct.pack("<f", expected)]
    assert _nearest(Decimal(text)) == struct.pack("<f", expected)


@pytest.mark.parametrize(
    "text",
    [
        "340282356779733661637539395458142568448",
        "-340282356779733661637539395458142568448",
        "340282356779733661637539395458142568448.0000000000001",
        "3.40282356779733661637539395458142568448e38",
        "3.4028235677973367e38",
        "1e39",
        "1e308",
    ],
)
def test_text_beyond_all_floats(text: str) -> None:
    """From the middle on between the greatest float and the power of two above, nothing is near."""
    assert _floats([f'{{"a":{text}}}'.encode()]) == [None]
    assert _nearest(Decimal(text)) is None


@given(data=st.data())
def test_text_near_any_tie(data: st.DataObject) -> None:
    """However little a number is beside the middle of two floats, and however it is spelled."""
    numbers = data.draw(st.lists(numbers_near_ties(), min_size=1, max_size=20))
    texts = [data.draw(spellings(number)) for number in numbers]

    found = _floats([f'{{"a":{text}}}'.encode() for text in texts])
    assert found == list(map(_nearest, numbers))


@given(bits=st.lists(st.integers(0, GREATEST), min_size=1, max_size=20))
def test_text_of_floats(bits: list[int]) -> None:
    """A float is read back from as many digits as tell it from all other floats."""
    payloads = [f'{{"a":{float_of(each):.8e}}}'.encode() for each in bits]

    assert _floats(payloads) == [each.to_bytes(4, "little") for each in bits]


@st.composite
def _longs_near_ties(draw: st.DrawFn) -> int:
    """A long on the middle of two floats, or a little beside it."""
    width = draw(st.integers(25, 63))
    half = 1 << width - 25
    middle = (draw(st.integers(1 << 23, (1 << 24) - 1)) * 2 + 1) * half
    middle += draw(st.sampled_from((0, 1, -1, 2, -2))) if half > 1 else 0
    return draw(st.sampled_from((middle, -middle)))


@given(numbers=st.lists(_longs_near_ties() | st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_longs_near_any_tie(numbers: list[int]) -> None:
    """A long that Avro resolves to a float, and one of JSON, as Java's `(float)` has it."""
    resolved = shredded_alike(avro("long", "float"), [avro_long(number) for number in numbers])

    assert resolved.misfits == []
    data = bytes(resolved.values.buffers()[1])[: 4 * len(numbers)]
    assert data == b"".join(struct.pack("<f", nearest_float(number)) for number in numbers)
    assert _floats([f'{{"a":{number}}}'.encode() for number in numbers]) == [
        data[4 * n : 4 * n + 4] for n in range(len(numbers))
    ]


@pytest.mark.parametrize(
    "number",
    [2**60 + 2**36 + 1, 2**60 + 2**36 - 1, 2**60 + 2**36, 2**62 - 2**37 - 1, 2**63 - 1, -(2**63),
     2**53 + 1, 2**53 + 2**29 + 1, 2**54 + 2**30 + 1, -(2**60 + 2**36 + 1)],
)  # fmt: skip
def test_longs(number: int) -> None:
    """Those that a double would round on to the middle of two floats; as doubles they stay so."""
    payloads = [avro_long(number)]

    narrow = shredded_alike(avro("long", "float"), payloads)
    assert narrow.rows == [nearest_float(number)]
    assert shredded_alike(avro("long", "double"), payloads).rows == [float(number)]
