"""The numbers of programs are said once: in Python, and again where C needs them."""

from __future__ import annotations

from types import ModuleType

from arrow_io.payloads import tables
from tests.support.c_numbers import c_numbers, python_numbers


def _between(first: str, stop: str) -> list[int]:
    """The constants from one name on up to another (half-open), in the order of the file."""
    names = list(vars(tables))
    return [getattr(tables, name) for name in names[names.index(first) : names.index(stop)]]


def test_c_has_the_numbers_of_python() -> None:
    """Each number that Python has stands in the declarations for C, and no other."""
    assert c_numbers(tables) == python_numbers(tables)


def test_each_op_has_a_number_of_its_own() -> None:
    """No op can be taken for another, and no number is left out."""
    ops = _between("VALUE_BYTES", "MULTIPLIER")

    assert ops == list(range(len(ops)))


def test_fields_of_nodes_and_ops_fill_their_width() -> None:
    """Each field of a node and of an op has a place of its own, and none is left over."""
    assert _between("STORAGE", "NODE_WIDTH") == list(range(tables.NODE_WIDTH))
    assert _between("OPCODE", "OP_WIDTH") == list(range(tables.OP_WIDTH))
    assert sorted(tables.WIDTHS) == _between("BYTE", "WIDTHS")


def test_each_misfit_has_its_words() -> None:
    """Whatever a user can meet is said in words, each code in its own; others are never told."""
    codes = _between("OK", "REASONS")

    assert codes == list(range(len(codes)))
    silent = {tables.OK, tables.FULL, tables.NOT_CANONICAL}
    assert set(tables.REASONS) == set(codes) - silent
    assert len(set(tables.REASONS.values())) == len(tables.REASONS)


def test_nothing_else_is_a_table() -> None:
    """A number that is not in capitals would be missed by the comparison with C."""
    others = {
        name
        for name, value in vars(tables).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    } - python_numbers(tables).keys()

    assert others == {"REASONS", "WIDTHS", "annotations"}
