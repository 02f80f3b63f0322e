"""Shapes are Arrow types that know how they are stored; names in them are told apart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from arrow_io.errors import SchemaError
from arrow_io.payloads import tables
from arrow_io.payloads.program import ProgramBuilder, scale_limits
from arrow_io.payloads.shape import Budget, array, make_distinct, map_, record, scalar


@pytest.mark.parametrize(
    ("names", "taken", "expected"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["a", "a", "a"], [], ["a", "a_2", "a_3"]),
        (["a", "A"], [], ["a", "A_2"]),
        (["a", "a_2", "a"], [], ["a", "a_2", "a_3"]),
        (["a", "a", "a_2"], [], ["a", "a_2", "a_2_2"]),
        (["a"], ["A"], ["a_2"]),
        (["a", "a_2"], ["a"], ["a_2", "a_2_2"]),
        (["straße", "STRASSE"], [], ["straße", "STRASSE_2"]),
        (["", ""], [], ["", "_2"]),
        ([], ["a"], []),
    ],
    ids=str,
)
def test_names_are_told_apart(names: list[str], taken: list[str], expected: list[str]) -> None:
    """The first has its name, the next ones numbers, whatever the letters' case."""
    assert make_distinct(names, taken) == expected
    assert len({name.casefold() for name in [*taken, *expected]}) == len(taken) + len(expected)


@pytest.mark.parametrize(
    ("type_", "storage"),
    [
        (pa.bool_(), tables.BYTE),
        (pa.int8(), tables.BYTE),
        (pa.int16(), tables.INT16),
        (pa.int32(), tables.INT32),
        (pa.float32(), tables.INT32),
        (pa.date32(), tables.INT32),
        (pa.int64(), tables.INT64),
        (pa.float64(), tables.INT64),
        (pa.time64("us"), tables.INT64),
        (pa.timestamp("ns", "UTC"), tables.INT64),
        (pa.decimal128(38, 5), tables.INT128),
        (pa.string(), tables.VARIABLE),
        (pa.binary(), tables.VARIABLE),
    ],
    ids=str,
)
def test_scalars(type_: pa.DataType, storage: int) -> None:
    """A value is stored by its width."""
    shape = scalar("x", type_)

    assert (shape.name, shape.type, shape.storage) == ("x", type_, storage)
    assert not shape.is_record


def test_nested_shapes() -> None:
    """The Arrow type is made of those of the children, all of them nullable but keys of maps."""
    key = scalar("key", pa.string())
    shape = record(
        "", [array("a", scalar("", pa.int32())), map_("m", key, scalar("value", pa.bool_()))]
    )

    assert shape.type == pa.struct(
        [
            ("a", pa.list_(pa.field("element", pa.int32()))),
            ("m", pa.map_(pa.string(), pa.bool_())),
        ]
    )
    assert [each.name for each in shape.walk()] == ["", "a", "", "m", "", "key", "value"]
    assert shape.is_record
    assert not shape.type.field("m").type.key_field.nullable


def test_records() -> None:
    """Without fields it is a boolean; fields of equal names are told apart in the type alone."""
    empty = record("e", [])
    twice = record("", [scalar("a", pa.int32()), scalar("A", pa.string())])

    assert (empty.type, empty.storage, empty.is_record) == (pa.bool_(), tables.BYTE, False)
    assert twice.type == pa.struct([("a", pa.int32()), ("A_2", pa.string())])
    assert [each.name for each in twice.children] == ["a", "A"]


def test_selections() -> None:
    """Some fields of a record, in the order that is asked for."""
    shape = record("r", [scalar(name, pa.int32()) for name in "abc"], origin="o")

    chosen = shape.select(["c", "a"])
    assert chosen.type == pa.struct([("c", pa.int32()), ("a", pa.int32())])
    assert (chosen.name, chosen.origin) == ("r", "o")


def test_null_among_the_values() -> None:
    """Whether the schema has null is known beside the type, which always takes it."""
    shape = scalar("x", pa.int32())

    assert not shape.accepts_null
    assert shape.nullable().accepts_null
    assert shape.nullable().type == shape.type


def test_budgets() -> None:
    """So many fields and so deep, and no more."""
    budget = Budget()
    for _ in range(Budget.MAX_FIELDS):
        budget.spend(Budget.MAX_DEPTH)

    with pytest.raises(SchemaError, match="20000 fields"):
        budget.spend(0)
    with pytest.raises(SchemaError, match="64 levels deep"):
        Budget().spend(Budget.MAX_DEPTH + 1)


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("multiplier", [1, 1_000, 7])
def test_limits_of_scales(bits: int, multiplier: int) -> None:
    """Multiplied, the limits fit so many bits, and the numbers next to them do not."""
    low, high = scale_limits(bits, multiplier)

    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    assert least <= low * multiplier < least + multiplier
    assert most - multiplier < high * multiplier <= most


def test_paths_of_nodes() -> None:
    """A node is named from the outermost field in; items and entries are `[]`."""
    key = scalar("key", pa.string())
    pair = record("value", [scalar("key", pa.int32()), scalar("x", pa.int32())])
    shape = record("", [array("a", array("", scalar("", pa.int32()))), map_("m", key, pair)])

    program = ProgramBuilder("avro", shape).build()
    assert program.paths == (
        "", "a", "a[]", "a[][]", "m", "m[]", "m[]", "m[]", "m[].key", "m[].x",
    )  # fmt: skip
    assert program.item_nodes == (0, 0, 2, 3, 0, *[5] * 5)
    assert program.node_count == 10
