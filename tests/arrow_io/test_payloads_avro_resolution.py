"""What one schema wrote is read as another has it, by Avro's rules.

Each case is written by hand, byte by byte, and read by both builds.
"""

from __future__ import annotations

import json
import struct
from array import array
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.errors import SchemaError
from arrow_io.payloads import tables
from arrow_io.payloads.avro_binary import encode_default
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.payloads.shape import Budget
from arrow_io.payloads.shredding import Misfit
from tests.support.arenas import GuardedShredding
from tests.support.avro_payloads import (
    array_of,
    avro_long,
    code_of,
    decimal_of,
    enum_of,
    fixed_of,
    map_of,
    sized,
    time_of,
    value_of,
)
from tests.support.payloads import avro, record, shredded_alike

if TYPE_CHECKING:
    from collections.abc import Callable

_UTC_MS = {"type": "long", "logicalType": "timestamp-millis"}


def test_aliases() -> None:
    """A field is found by an earlier name, unless its own or another field's is there."""
    writer = record(("a", "int"), ("b", "int"))
    payload = avro_long(1) + avro_long(2)

    def read(*fields: dict[str, object]) -> object:
        return value_of(
            writer, payload, record(*({"type": "int", "default": 9, **f} for f in fields))
        )

    assert read({"name": "x", "aliases": ["never", "b"]}) == {"x": 2}
    assert read({"name": "b", "aliases": ["a"]}) == {"b": 2}
    assert read({"name": "x", "aliases": ["a"]}, {"name": "a"}) == {"x": 9, "a": 1}
    assert read({"name": "x", "aliases": ["a"]}, {"name": "y", "aliases": ["a"]}) == {
        "x": 1,
        "y": 9,
    }
    assert read({"name": "x", "aliases": ["b", "a"]}) == {"x": 2}


_NODE = record(("value", "int"), ("next", ["null", "Node"]), name="Node")


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -5, -5),
        ("long", 2**63 - 1, 2**63 - 1),
        ("float", 0.5, 0.5),
        ("double", 1, 1.0),
        ("string", "поток", "поток"),
        ("bytes", "\xff\0", b"\xff\0"),
        (fixed_of(2), "\xfe\1", b"\xfe\1"),
        (fixed_of(16, logicalType="uuid"), "\0" * 16, "00000000-0000-0000-0000-000000000000"),
        (decimal_of(3, 1), "\x7b", Decimal("12.3")),
        (_UTC_MS, 7, 7_000),
        (time_of("time-millis"), 1, 1_000),
        (enum_of("A", "B"), "B", "B"),
        (array_of("int"), [1, 2], [1, 2]),
        (array_of("int"), [], []),
        (map_of("string"), {"k": "v"}, {"k": "v"}),
        (map_of("string"), {}, {}),
        (["null", "int"], None, None),
        (["int", "null"], 5, 5),
        (["null", "int"], 5, 5),
        (["int", "string"], "s", {"int": None, "string": "s"}),
        (record(name="Empty"), {}, True),
        (record(("a", "int"), name="S"), {"a": 1}, {"a": 1}),
        (record({"name": "a", "type": "int", "default": 7}, name="S"), {}, {"a": 7}),
        (_NODE, {"value": 1, "next": {"value": 2, "next": None}},
         {"value": 1, "next": avro_long(2) + avro_long(0)}),
    ],
    ids=str,
)  # fmt: skip
def test_defaults(type_: object, default: object, expected: object) -> None:
    """A field that the writer had not has the reader's default, however it is nested."""
    reader = record(("a", "int"), {"name": "new", "type": type_, "default": default})
    program = avro(record(("a", "int")), reader)

    found = shredded_alike(program, [avro_long(1), avro_long(2)])
    assert found.rows == [{"a": 1, "new": expected}, {"a": 2, "new": expected}]
    nested = avro(array_of(record(("a", "int"))), array_of(reader))
    two = shredded_alike(nested, [avro_long(2) + avro_long(1) + avro_long(2) + b"\0"])
    assert two.rows == [found.rows]


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("null", 0),
        ("boolean", 1),
        ("int", True),
        ("int", 1.5),
        ("int", "1"),
        ("int", None),
        ("long", 2**63),
        ("float", 1e39),
        ("double", "1"),
        ("double", 10**400),
        ("string", 5),
        ("bytes", "\u0100"),
        ("string", "\ud800"),
        (fixed_of(2), "a"),
        (enum_of("A"), "B"),
        (array_of("int"), {}),
        (array_of("int"), ["x"]),
        (map_of("int"), []),
        (map_of("int"), {"\ud800": 1}),
        (record(("a", "int"), name="S"), {}),
        (record(("a", "int"), name="S"), []),
        (["null", "int"], "x"),
    ],
    ids=str,
)
def test_defaults_that_are_none(type_: object, default: object) -> None:
    """A default that is no value of its type is an error of the schema, where it is used."""
    reader = record({"name": "new", "type": type_, "default": default})

    with pytest.raises(SchemaError, match="default"):
        avro(record(), reader)
    assert avro(reader, reader).node_count > 1


def _recursive_defaults() -> list[tuple[object, object]]:
    node = record({"name": "n", "type": "Node", "default": {}}, name="Node")
    twice = record(("a", ["Twice", record(("a", ["Twice", "Other"]), name="Other")]), name="Twice")
    wrong: Any = 5
    for _ in range(60):
        wrong = {"a": wrong}
    deep: Any = None
    for _ in range(400):
        deep = {"value": 1, "next": deep}
    return [(node, {}), (twice, wrong), (_NODE, deep)]


@pytest.mark.parametrize(
    ("type_", "default"), _recursive_defaults(), ids=["endless", "forks", "deep"]
)
def test_defaults_of_any_size(type_: object, default: object) -> None:
    """Defaults that would go on for ever, or be tried in 2^60 ways, are refused soon."""
    with pytest.raises(SchemaError):
        avro(record(), record({"name": "new", "type": type_, "default": default}))


def test_encoded_defaults() -> None:
    """They are encoded as Avro's specification says."""
    schema = parse_avro(json.dumps(map_of(["null", "double"])))

    assert encode_default(schema, {"a": None, "b": 1}) == (
        avro_long(2)
        + sized(b"a")
        + avro_long(0)
        + sized(b"b")
        + avro_long(1)
        + struct.pack("<d", 1)
        + b"\0"
    )


def test_fields_without_default() -> None:
    """A field that neither the writer nor a default gives is an error that names it, once read."""
    program = avro(
        array_of(record(("a", "int"))),
        array_of(record(("a", "int"), ("b", record(("c", "int"), name="S")))),
    )

    found = shredded_alike(program, [b"\0", avro_long(1) + avro_long(7) + b"\0"])
    assert found.misfits == [Misfit(1, tables.NO_DEFAULT, "[].b", 0)]
    assert found.rows == [[], None]


def test_enums_without_default() -> None:
    """A symbol that the reader lacks is refused where it is met, not before."""
    program = avro(record(("e", enum_of("A", "B"))), record(("e", enum_of("A"))))

    found = shredded_alike(program, [avro_long(0), avro_long(1), avro_long(2), avro_long(-1)])
    assert found.rows[0] == {"e": "A"}
    assert found.misfits == [
        Misfit(1, tables.NO_MATCH, "e", 0),
        Misfit(2, tables.BAD_SYMBOL, "e", 0),
        Misfit(3, tables.BAD_SYMBOL, "e", 0),
    ]


_A = record(("x", "int"), name="n.A")
_B = record(("x", "int"), name="n.B")


@pytest.mark.parametrize(
    ("writer", "reader", "payload", "expected"),
    [
        (["null", "int"], ["null", "int"], avro_long(0), None),
        (["null", "int"], ["int", "null"], avro_long(1) + avro_long(5), 5),
        (["null", "int"], ["null", "long"], avro_long(1) + avro_long(5), 5),
        (["null", "int"], "int", avro_long(1) + avro_long(5), 5),
        ("int", ["null", "int"], avro_long(5), 5),
        ("int", ["null", "double", "int"], avro_long(5), {"double": None, "int": 5}),
        ("int", ["null", "double", "string"], avro_long(5), {"double": 5.0, "string": None}),
        ("string", ["bytes", "int"], sized(b"s"), {"bytes": b"s", "int": None}),
        (["int", "string"], ["string", "int"], avro_long(1) + sized(b"s"),
         {"string": "s", "int": None}),
        (["int", "string"], ["string", "int", "null"], avro_long(0) + avro_long(5),
         {"string": None, "int": 5}),
        (["int", "long"], "long", avro_long(0) + avro_long(5), 5),
        (["int", "string"], "int", avro_long(0) + avro_long(5), 5),
        (["null", "int", "string"], ["string", "int"], avro_long(1) + avro_long(5),
         {"string": None, "int": 5}),
        ([_A, _B], [_B, _A], avro_long(1) + avro_long(5), {"B": {"x": 5}, "A": None}),
        (_A, [_B, record(("x", "int"), name="other.A")], avro_long(5), {"B": None, "A": {"x": 5}}),
        (_A, [_B, {**_B, "name": "C", "aliases": ["n.A"]}], avro_long(5),
         {"B": None, "C": {"x": 5}}),
        (_A, [_B, "int"], avro_long(5), {"B": {"x": 5}, "int": None}),
        (
            [fixed_of(1), fixed_of(2, "G")],
            [fixed_of(1), fixed_of(2, "G")],
            avro_long(1) + b"ab",
            {"F": None, "G": b"ab"},
        ),
        (array_of(["null", "int", "string"]), None,
         avro_long(2) + avro_long(0) + avro_long(2) + sized(b"s") + b"\0",
         [None, {"int": None, "string": "s"}]),
    ],
    ids=str,
)  # fmt: skip
def test_unions(writer: object, reader: object, payload: bytes, expected: object) -> None:
    """A branch is read as the nearest one of the reader's: of its name, its kind, or wider."""
    assert value_of(writer, payload, reader) == expected


@pytest.mark.parametrize("number", [-1, 2, 2**40, -(2**63)])
def test_branches_that_are_not_there(number: int) -> None:
    """The number of a branch is compared with how many there are, also where it is read over."""
    union = ["null", "int"]

    assert code_of(union, avro_long(number)) == tables.BAD_BRANCH
    assert code_of(
        record(("u", union), ("a", "int")), avro_long(number) + b"\0", record(("a", "int"))
    ) == (tables.BAD_BRANCH)
    found = shredded_alike(avro(record(("u", union))), [avro_long(number)])
    assert found.misfits == [Misfit(0, tables.BAD_BRANCH, "u", 0)]


def test_a_record_inside_itself() -> None:
    """The inner one is given as its own Avro bytes, of the writer's schema."""
    inner = avro_long(2) + avro_long(1) + avro_long(3) + avro_long(0)

    assert value_of(_NODE, avro_long(1) + avro_long(1) + inner) == {"value": 1, "next": inner}
    assert value_of(_NODE, avro_long(1) + avro_long(0)) == {"value": 1, "next": None}
    longer = record(("value", "int"), ("note", "string"), ("next", ["null", "Node"]), name="Node")
    written = (
        avro_long(1)
        + sized(b"n")
        + avro_long(1)
        + (inner := avro_long(2) + sized(b"m") + avro_long(0))
    )
    assert value_of(longer, written, _NODE) == {"value": 1, "next": inner}


def test_deep_records_inside_themselves() -> None:
    """They are read to a bound, given or read over."""

    def chain(length: int) -> bytes:
        return (avro_long(1) + avro_long(1)) * length + avro_long(1) + avro_long(0)

    for reader in (_NODE, record(name="Node")):
        found = shredded_alike(avro(_NODE, reader), [chain(tables.MAX_DEPTH - 3), chain(10_000)])
        assert found.codes == [tables.TOO_DEEP]
        assert found.rows[0] is not None


@pytest.mark.parametrize(
    ("around", "levels", "begin", "expected_around"),
    [
        (array_of, 1, avro_long(1), lambda value: [value]),
        (map_of, 2, avro_long(1) + sized(b"k"), lambda value: {"k": value}),
    ],
    ids=["array", "map"],
)
def test_the_deepest_schema_can_be_read(
    around: Callable[[Any], Any], levels: int, begin: bytes, expected_around: Callable[[Any], Any]
) -> None:
    """What the bound of schemas lets through, those of payloads and of Arrow do too."""
    schema: Any = "int"
    expected: Any = 7
    times = Budget.MAX_ARRAY_DEPTH // levels
    for _ in range(times):
        schema, expected = around(schema), expected_around(expected)
    payload = begin * times + avro_long(7) + b"\0" * times

    assert value_of(schema, payload) == expected
    with pytest.raises(SchemaError, match=f"more than {Budget.MAX_ARRAY_DEPTH} levels deep"):
        value_of(around(schema), payload)


def test_where_a_misfit_is() -> None:
    """The error names the field, through lists, maps and records, and the byte."""
    schema = record(("a", array_of(record(("m", map_of("int")), name="S"))))
    entry = sized(b"k") + avro_long(2**40)

    found = shredded_alike(
        avro(schema), [avro_long(1) + avro_long(1) + entry + b"\0\0", avro_long(1) + avro_long(9)]
    )
    assert found.misfits == [
        Misfit(0, tables.OUT_OF_RANGE, "a[].m[]", 4),
        Misfit(1, tables.ENDS_EARLY, "a[].m", 2),
    ]


def test_many_versions_share_an_arena() -> None:
    """Programs of several writers fill one array, in turns."""
    reader = record(("a", "long"), {"name": "b", "type": "string", "default": "x"})
    programs = [avro(record(("a", "int")), reader), avro(reader)]
    payloads = [avro_long(1), avro_long(2) + sized(b"y")]
    shredding = GuardedShredding(programs[0], 6, 1)
    for row in range(6):
        payload = payloads[row % 2]
        positions = memoryview(array("q", [len(payload)]))
        assert shredding.append(programs[row % 2], memoryview(payload), positions, 0, 1) is None

    assert shredding.finish().to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}] * 3


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("long", "int"),
        ("float", "int"),
        ("double", "float"),
        ("boolean", "int"),
        ("int", "boolean"),
        ("int", "string"),
        ("string", "int"),
        ("string", enum_of("A")),
        (enum_of("A"), "string"),
        (fixed_of(4), "bytes"),
        ("bytes", fixed_of(4)),
        (fixed_of(4), fixed_of(5)),
        (array_of("int"), "int"),
        (array_of("int"), map_of("int")),
        (record(), map_of("int")),
        ("int", record()),
        ("null", "int"),
        ("int", "null"),
        ("string", decimal_of(4)),
        (decimal_of(4, 1), decimal_of(4, 2)),
        (decimal_of(4, 1), decimal_of(5, 1)),
        (fixed_of(16, logicalType="uuid"), fixed_of(16, logicalType="decimal", precision=4)),
        ("int", ["null", "string"]),
        ("boolean", ["int", "string"]),
    ],
    ids=str,
)
def test_types_that_do_not_match(writer: object, reader: object) -> None:
    """What was written as one type is never taken for another; where nothing was, it fits."""
    payload = {"null": b"", "int": avro_long(1), "boolean": b"\1"}
    written = payload.get(str(writer), sized(bytes(15)))
    inside = avro(record(("x", array_of(writer))), record(("x", array_of(reader))))

    assert code_of(writer, written, reader) == tables.NO_MATCH
    found = shredded_alike(inside, [b"\0", avro_long(1) + written + b"\0"])
    assert found.rows[0] == {"x": []}
    assert [(m.row, m.code, m.path) for m in found.misfits] == [(1, tables.NO_MATCH, "x[]")]


def test_a_program_of_bounded_size() -> None:
    """Unions of records of the same unions give no program that doubles with each level."""
    read: Any = "int"
    for number in range(40):
        read = record(("f", read), name=f"X{number}")
    b = record(("f", ["int", "A", "B"]), name="B")
    writer = record(("f", ["int", "A", b]), name="A")

    assert len(avro(writer, read).ops) < 10_000
