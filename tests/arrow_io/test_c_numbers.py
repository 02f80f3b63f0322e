"""The tables that both builds fill are said without contradiction, in Python and again for C."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from arrow_io.core import ipc_message
from arrow_io.messages import copies, layout, wire
from arrow_io.payloads import tables

_ENUMERATED: Final = re.compile(r"^    (\w+) = (-?\d+)$", re.MULTILINE)
_LONG: Final = re.compile(
    r'^    const long long (\w+) "(?:(-?\d+)LL|\((-?\d+)LL - 1\))"$', re.MULTILINE
)


def _python_numbers(module: ModuleType) -> dict[str, int]:
    """The numbers in capitals of a module, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if type(value) is int and not name.startswith("_") and name.isupper()
    }


def _c_numbers(module: ModuleType) -> dict[str, int]:
    """The numbers that C is told of a module, by name: in `_NAME.pxd`, beside it."""
    assert module.__file__ is not None
    source = Path(module.__file__)
    declared = source.with_name(f"_{source.stem}.pxd").read_text(encoding="utf-8")
    told = [(name, int(number)) for name, number in _ENUMERATED.findall(declared)]
    # C has no literal of the least number there is, so that is told as a difference.
    told += [
        (name, int(number) if number else int(above) - 1)
        for name, number, above in _LONG.findall(declared)
    ]
    assert len(dict(told)) == len(told)
    return dict(told)


def _between(module: ModuleType, first: str, stop: str) -> list[int]:
    """The constants from one name on up to another (half-open), in the order of the file."""
    names = list(vars(module))
    return [getattr(module, name) for name in names[names.index(first) : names.index(stop)]]


@pytest.mark.parametrize("module", [copies, ipc_message, layout, tables, wire])
def test_c_has_the_numbers_of_python(module: ModuleType) -> None:
    """Each number that Python has stands in the declarations for C, and no other."""
    assert _c_numbers(module) == _python_numbers(module) != {}


@pytest.mark.parametrize(
    ("module", "known"), [(layout, {"REASONS"}), (tables, {"REASONS", "WIDTHS"})]
)
def test_nothing_else_is_a_table(module: ModuleType, known: set[str]) -> None:
    """A number that is not in capitals would be missed by the comparison with C."""
    others = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    } - _python_numbers(module).keys()

    assert others == known | {"annotations"}


def test_each_flag_is_a_bit_of_its_own() -> None:
    """No flag can be taken for another."""
    flags = _between(layout, "KEY_IS_BASE64", "SPECIAL")

    assert flags == [1 << bit for bit in range(len(flags))]
    assert layout.SPECIAL
    assert layout.SPECIAL & sum(flags) == layout.SPECIAL


@pytest.mark.parametrize(
    ("module", "first", "width"),
    [
        (layout, "ENTRY_ID", "ENTRY_WIDTH"),
        (layout, "ROW_ENTRY", "ROW_WIDTH"),
        (tables, "STORAGE", "NODE_WIDTH"),
        (tables, "OPCODE", "OP_WIDTH"),
    ],
)
def test_fields_fill_the_width_of_their_table(module: ModuleType, first: str, width: str) -> None:
    """Each field of a table has a place of its own, and none is left over."""
    assert _between(module, first, width) == list(range(getattr(module, width)))


@pytest.mark.parametrize(("first", "stop"), [("VALUE_BYTES", "MULTIPLIER"), ("OK", "REASONS")])
def test_numbers_of_one_kind_are_counted_from_0(first: str, stop: str) -> None:
    """No op and no code can be taken for another, and no number is left out."""
    numbers = _between(tables, first, stop)

    assert numbers == list(range(len(numbers)))


def test_each_storage_has_a_width() -> None:
    """Each number of a storage is a key of the widths."""
    assert sorted(tables.WIDTHS) == _between(tables, "BYTE", "WIDTHS")


def test_each_error_has_its_words() -> None:
    """Each code that a user can meet is said in words, each in its own; others are never told."""
    codes = _between(layout, "BAD_BROKER_METADATA", "REASONS")
    silent = {tables.OK, tables.FULL, tables.NOT_CANONICAL}
    for reasons, told in (
        (layout.REASONS, set(codes)),
        (tables.REASONS, set(_between(tables, "OK", "REASONS")) - silent),
    ):
        assert set(reasons) == told
        assert len(set(reasons.values())) == len(reasons)

    assert len(set(codes)) == len(codes)
    assert 0 not in codes
