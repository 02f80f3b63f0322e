"""Floats of four bytes: the nearest one to any number, and numbers that lie near a tie of two."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final

from hypothesis import strategies as st

GREATEST: Final = 0x7F7FFFFF
"""The bits of the greatest float."""
_FRACTION_BITS: Final = 23
_LEAST_EXPONENT: Final = -149
_LIMIT: Final = 1 << 128
_EXACT: Final = Context(prec=400)


def nearest_float(number: float | Fraction | Decimal) -> float:
    """The float nearest to a number, the even one of two that are as near; by exact fractions.

    Raises:
        OverflowError: It is beyond all floats.
    """
    exact = Fraction(number)
    if exact == 0:
        return float(number)
    exponent = abs(exact.numerator).bit_length() - exact.denominator.bit_length()
    if abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - _FRACTION_BITS, _LEAST_EXPONENT)
    nearest = round(exact / unit) * unit
    if abs(nearest) >= _LIMIT:
        raise OverflowError
    # A number that is rounded to zero keeps its sign.
    return float(nearest) if nearest else 0.0 * (1 if exact > 0 else -1)


def tie_above(bits: int) -> float:
    """The middle between a float and the next, given the first one's bits; a double has it."""
    if bits == GREATEST:
        return (float_of(bits) + _LIMIT) / 2
    return (float_of(bits) + float_of(bits + 1)) / 2


def float_of(bits: int) -> float:
    """The float that has these bits."""
    (number,) = struct.unpack("<f", bits.to_bytes(4, "little"))
    assert isinstance(number, float)
    return number


@st.composite
def numbers_near_ties(draw: st.DrawFn) -> Decimal:
    """A number on the middle of two floats, or so little beside it that no double tells."""
    ordinary, least = st.integers(0, GREATEST), st.integers(0, 1 << _FRACTION_BITS)
    tie = tie_above(draw(ordinary | least | st.just(GREATEST)))
    exact = Decimal(tie)
    if draw(st.booleans()):
        # The shortest text of the double, which is on either side.
        exact = Decimal(repr(tie))
    last = exact.as_tuple().exponent
    assert isinstance(last, int)
    step = Decimal(draw(st.integers(-1, 1))).scaleb(min(last, 0) - draw(st.integers(0, 30)), _EXACT)
    return _EXACT.multiply(_EXACT.add(exact, step), draw(st.sampled_from((1, -1))))


@st.composite
def spellings(draw: st.DrawFn, number: Decimal) -> str:
    """One of the ways in which JSON spells a number."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    zeros = draw(st.sampled_from((0, 0, 1, 20)))
    text = "".join(map(str, digits)) + "0" * zeros
    exponent -= zeros
    match draw(st.integers(0, 2)):
        case 0:
            text = format(Decimal(f"{text}e{exponent}"), "f")
        case 1:
            text += f"e{exponent}"
        case _:
            text, exponent = f"{text[0]}.{text[1:]}0", exponent + len(text) - 1
            text += draw(st.sampled_from(("e", "E"))) + format(
                exponent, draw(st.sampled_from(("", "+")))
            )
    return "-" * sign + text
