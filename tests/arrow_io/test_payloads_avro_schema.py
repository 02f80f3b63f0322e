"""Avro schemas are parsed as the specification says, bounded, and become the documented types."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from arrow_io.errors import SchemaError
from arrow_io.payloads.avro import avro_shape
from arrow_io.payloads.avro_schema import MISSING, AvroType, parse_avro
from arrow_io.payloads.json import json_shape
from arrow_io.payloads.shape import Budget, make_distinct
from tests.support.payloads import record

_UTC = pa.timestamp("us", "UTC")


def _parse(schema: object) -> AvroType:
    return parse_avro(json.dumps(schema))


def _arrow(schema: object, time_unit: str = "ns") -> pa.DataType:
    return avro_shape(_parse(schema), time_unit).type


def _logical(kind: object, logical: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": logical, **more}


def _fixed(size: int, **more: object) -> dict[str, object]:
    return {"type": "fixed", "name": "F", "size": size, **more}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("null", pa.bool_()),
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ({"type": "string"}, pa.string()),
        ({"type": {"type": "string"}}, pa.string()),
        ({"type": "enum", "name": "E", "symbols": []}, pa.string()),
        (_fixed(3), pa.binary()),
        ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32()))),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int32())),
        (record(("a", "int"), ("b", "string")), pa.struct([("a", pa.int32()), ("b", pa.string())])),
        (record(), pa.bool_()),
        (record(("a", record(name="S"))), pa.struct([("a", pa.bool_())])),
        (_logical("string", "uuid"), pa.string()),
        (_fixed(16, logicalType="uuid"), pa.string()),
        (_logical("int", "date"), pa.date32()),
        (_logical("int", "time-millis"), pa.time64("us")),
        (_logical("long", "time-micros"), pa.time64("us")),
        (_logical("long", "timestamp-millis"), _UTC),
        (_logical("long", "timestamp-micros"), _UTC),
        (_logical("long", "timestamp-nanos"), pa.timestamp("ns", "UTC")),
        (_logical("long", "local-timestamp-millis"), pa.timestamp("us")),
        (_logical("long", "local-timestamp-micros"), pa.timestamp("us")),
        (_logical("long", "local-timestamp-nanos"), pa.timestamp("ns")),
        (_logical("bytes", "decimal", precision=5, scale=2), pa.decimal128(5, 2)),
        (_logical("bytes", "decimal", precision=38), pa.decimal128(38, 0)),
        (_fixed(4, logicalType="decimal", precision=9), pa.decimal128(9, 0)),
        (_fixed(17, logicalType="decimal", precision=38, scale=38), pa.decimal128(38, 38)),
    ],
    ids=str,
)
def test_types(schema: object, expected: pa.DataType) -> None:
    """Each type becomes the Arrow type of the documented table."""
    assert _arrow(schema) == expected


@pytest.mark.parametrize("family", ["timestamp", "local-timestamp"])
def test_microseconds_on_request(family: str) -> None:
    """What counts nanoseconds is given in the unit that is asked for."""
    assert _arrow(_logical("long", f"{family}-nanos"), "us") == _arrow(
        _logical("long", f"{family}-micros")
    )


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (_logical("int", "made-up"), pa.int32()),
        (_logical("long", "date"), pa.int64()),
        (_logical("int", "time-micros"), pa.int32()),
        (_logical("int", "timestamp-millis"), pa.int32()),
        (_logical("bytes", "uuid"), pa.binary()),
        (_fixed(15, logicalType="uuid"), pa.binary()),
        (_logical("string", "decimal", precision=3), pa.string()),
        (_logical("bytes", "decimal"), pa.binary()),
        (_logical("bytes", "decimal", precision=0), pa.binary()),
        (_logical("bytes", "decimal", precision=3, scale=4), pa.binary()),
        (_logical("bytes", "decimal", precision=3, scale=-1), pa.binary()),
        (_logical("bytes", "decimal", precision="3"), pa.binary()),
        (_logical("bytes", "decimal", precision=39), pa.binary()),
        (_fixed(4, logicalType="decimal", precision=10), pa.binary()),
        (_fixed(0, logicalType="decimal", precision=1), pa.binary()),
        (_logical("int", 5), pa.int32()),  # type: ignore[arg-type]
        (_logical("int", ["date"]), pa.int32()),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_invalid_logical_types_are_passed_over(schema: object, expected: pa.DataType) -> None:
    """As Avro wants it: the type below is used as if nothing had been said."""
    assert _arrow(schema) == expected


def test_logical_type_beside_the_type_of_a_field() -> None:
    """Old writers say it in the field instead of in its type."""
    field = {"name": "t", "type": "long", "logicalType": "timestamp-millis"}

    assert _arrow(record(field)) == pa.struct([("t", _UTC)])


@pytest.mark.parametrize(
    ("union", "expected"),
    [
        (["null"], pa.bool_()),
        (["int"], pa.int32()),
        (["null", "int"], pa.int32()),
        (["int", "null"], pa.int32()),
        (["int", "string"], pa.struct([("int", pa.int32()), ("string", pa.string())])),
        (["null", "int", "long"], pa.struct([("int", pa.int32()), ("long", pa.int64())])),
        (
            [record(name="a.X"), {"type": "enum", "name": "b.x", "symbols": ["s"]}, "null"],
            pa.struct([("X", pa.bool_()), ("x_2", pa.string())]),
        ),
        (
            [{"type": "array", "items": "int"}, {"type": "map", "values": "int"}],
            pa.struct(
                [
                    ("array", pa.list_(pa.field("element", pa.int32()))),
                    ("map", pa.map_(pa.string(), pa.int32())),
                ]
            ),
        ),
    ],
    ids=str,
)
def test_unions(union: list[object], expected: pa.DataType) -> None:
    """With null or alone a branch is itself; several are a struct, fields named by types."""
    assert _arrow(union) == expected


def test_names_and_namespaces() -> None:
    """A name is full, or in the namespace given, or in that around it; references likewise."""
    inner = record(("x", "int"), name="Inner")
    schema = record(
        ("a", inner),
        ("b", "Inner"),
        ("c", "n.s.Inner"),
        ("d", {**record(name="Other"), "namespace": "else.where"}),
        ("e", "else.where.Other"),
        ("f", {**record(name="Bare"), "namespace": ""}),
        ("g", {"type": "fixed", "name": "full.Name", "size": 1, "namespace": "ignored"}),
        namespace="n.s",
        aliases=["Old", "other.Old"],
    )

    parsed = _parse(schema)

    assert (parsed.name, parsed.short_name) == ("n.s.R", "R")
    assert parsed.aliases == ("n.s.Old", "other.Old")
    types = {each.name: each.type for each in parsed.fields}
    assert types["a"] is types["b"] is types["c"]
    assert types["d"] is types["e"]
    assert [types[name].name for name in "adfg"] == [
        "n.s.Inner",
        "else.where.Other",
        "Bare",
        "full.Name",
    ]


def test_names_that_java_writes() -> None:
    """The specification forbids the names of inner classes, which Pulsar's Java client writes."""
    parsed = _parse(record(("a", record(name="Gen$Order")), name="Gen$Outer", namespace="a.b"))

    assert parsed.name == "a.b.Gen$Outer"
    assert parsed.fields[0].type.name == "a.b.Gen$Order"


def test_fields() -> None:
    """Defaults that are null are told from none at all; unknown attributes are passed over."""
    parsed = _parse(
        record(
            ("a", "int"),
            {"name": "b", "type": ["null", "int"], "default": None, "order": "ignore", "doc": 1},
            {"name": "c", "type": "int", "default": 5, "aliases": ["d", "e"]},
        )
    )

    assert [each.default for each in parsed.fields] == [MISSING, None, 5]
    assert parsed.fields[2].aliases == ("d", "e")


def test_defaults_of_enums() -> None:
    """The symbol for unknown ones must be one of the enum's own."""

    def default(value: object) -> str | None:
        return _parse({"type": "enum", "name": "E", "symbols": ["A"], "default": value}).default

    assert (default("A"), default("B"), default(1), default(None)) == ("A", None, None, None)


def test_a_type_inside_itself() -> None:
    """The inner occurrence is bytes for Avro and text for JSON; side by side each is a struct."""
    node = record(("value", "int"), ("next", ["null", "Node"]), name="Node")
    schema = record(("a", node), ("b", "Node"), ("c", {"type": "array", "items": "Node"}))

    def expected(inner: pa.DataType) -> pa.DataType:
        one = pa.struct([("value", pa.int32()), ("next", inner)])
        return pa.struct([("a", one), ("b", one), ("c", pa.list_(pa.field("element", one)))])

    assert _arrow(schema) == expected(pa.binary())
    assert json_shape(_parse(schema), "ns").type == expected(pa.string())


def test_types_inside_each_other() -> None:
    """The circle is cut where it closes, not before."""
    a = record(("b", record(("a", ["null", "A"]), name="B")), name="A")

    assert _arrow(a) == pa.struct([("b", pa.struct([("a", pa.binary())]))])


def _nested(depth: int) -> Any:  # noqa: ANN401 - JSON
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def _doubling(times: int) -> Any:  # noqa: ANN401 - JSON
    """Records that have the one before twice: a tree of 2^times leaves, said in a few lines."""
    types: list[Any] = [record(name="T0")]
    for number in range(times):
        below = f"T{number}"
        types.append(record(("a", below), ("b", below), name=f"T{number + 1}"))
    return [*types, "null"]


@pytest.mark.parametrize(
    "schema",
    [
        _nested(Budget.MAX_ARRAY_DEPTH + 1),
        record(*((f"f{number}", "int") for number in range(Budget.MAX_FIELDS + 1))),
        _doubling(30),
    ],
    ids=["deep", "wide", "doubling"],
)
def test_trees_of_any_size_are_refused(schema: object) -> None:
    """A schema that would become too large a tree is refused before it is one."""
    with pytest.raises(SchemaError):
        _arrow(schema)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\ufeff",
        "5",
        "null",
        "[]",
        "{}",
        '"nothing"',
        '"record"',
        '{"type": 5}',
        '{"type": null}',
        '["int", ["string"]]',
        '{"type": "array"}',
        '{"type": "map"}',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": 5, "fields": []}',
        '{"type": "record", "name": "", "fields": []}',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": {}}',
        '{"type": "record", "name": "R", "fields": ["int"]}',
        '{"type": "record", "name": "R", "fields": [{"type": "int"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a"}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "S"}]}',
        '{"type": "record", "name": "R", "aliases": "x", "fields": []}',
        '{"type": "record", "name": "R", "aliases": [1], "fields": []}',
        '{"type": "enum", "name": "E", "symbols": "x"}',
        '{"type": "enum", "name": "E", "symbols": [1]}',
        '{"type": "enum", "name": "E", "symbols": ["\\ud800"]}',
        '{"type": "fixed", "name": "F"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '{"type": "fixed", "name": "F", "size": 4294967296}',
        '{"type": "fixed", "name": "F", "size": "1"}',
        '{"type": "record", "name": "\\ud800", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "\\udc00", "type": "int"}]}',
        '{"type": ' * 5_000 + "5" + "}" * 5_000,
        '{"type": 5, "x": ' + "[" * 900 + "]" * 900 + "}",
        "1" * 10_000,
    ],
    ids=lambda text: text[:70],
)
def test_what_is_no_schema(text: str) -> None:
    """Whatever else comes is refused with the one typed error."""
    with pytest.raises(SchemaError):
        parse_avro(text)


def test_two_fields_of_one_name() -> None:
    """They could not be told apart in the data."""
    with pytest.raises(SchemaError, match="two fields with the same name"):
        _parse(record(("a", "int"), ("a", "string")))


# Names and sizes


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


def test_budgets() -> None:
    """So many fields and so deep, and no more."""
    budget = Budget()
    for _ in range(Budget.MAX_FIELDS):
        budget.spend(Budget.MAX_DEPTH)

    with pytest.raises(SchemaError, match="20000 fields"):
        budget.spend(0)
    with pytest.raises(SchemaError, match="64 levels deep"):
        Budget().spend(Budget.MAX_DEPTH + 1)
