"""The tables that both builds fill are said without contradiction, in Python and again for C."""

from __future__ import annotations

from types import ModuleType

import pytest

from arrow_io.core import ipc_message
from arrow_io.messages import copies, layout, wire
from tests.support.c_numbers import c_numbers, python_numbers


def _numbers(first: str, stop: str) -> list[int]:
    """The constants from one name on up to another (half-open), in the order of the file."""
    names = list(vars(layout))
    return [getattr(layout, name) for name in names[names.index(first) : names.index(stop)]]


@pytest.mark.parametrize("module", [copies, ipc_message, layout, wire])
def test_c_has_the_numbers_of_python(module: ModuleType) -> None:
    """Each number that Python has stands in the declarations for C, and no other."""
    assert c_numbers(module) == python_numbers(module) != {}


def test_nothing_else_is_a_table() -> None:
    """A number that is not in capitals would be missed by the comparison with C."""
    others = {
        name
        for name, value in vars(layout).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    } - python_numbers(layout).keys()

    assert others == {"REASONS", "annotations"}


def test_each_flag_is_a_bit_of_its_own() -> None:
    """No flag can be taken for another."""
    flags = _numbers("KEY_IS_BASE64", "SPECIAL")

    assert flags == [1 << bit for bit in range(len(flags))]
    assert set(layout.SPECIAL.to_bytes(8)) != {0}
    assert layout.SPECIAL & sum(flags) == layout.SPECIAL


def test_fields_of_the_entry_table_fill_its_width() -> None:
    """Each field of the entry table has a place of its own, and none is left over."""
    assert _numbers("ENTRY_ID", "ENTRY_WIDTH") == list(range(layout.ENTRY_WIDTH))


def test_columns_of_the_row_table_fill_its_width() -> None:
    """Each column of the row table has a place of its own, and none is left over."""
    assert _numbers("ROW_ENTRY", "ROW_WIDTH") == list(range(layout.ROW_WIDTH))


def test_each_error_has_its_words() -> None:
    """Whatever code the hot loop leaves, a user can read what is wrong."""
    codes = _numbers("BAD_BROKER_METADATA", "REASONS")

    assert len(set(codes)) == len(codes)
    assert set(codes) == set(layout.REASONS)
    assert 0 not in codes
    assert len(set(layout.REASONS.values())) == len(codes)
