"""JSON objects, arrays and unions are read by their schema, whatever else they hold."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from arrow_io.payloads import tables
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.payloads.json import canonical_json, json_program, json_shape
from tests.support.avro_payloads import array_of, decimal_of, enum_of, fixed_of, map_of
from tests.support.json_cases import code_of_text, misfit_of_text, rows_of_text, value_of_text
from tests.support.payloads import record, shredded_alike

_SPACE = " \t\r\n"


_FIELDS = record(("a", "int"), ("b", "string"), ("c", record(("d", "int"), name="S")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {"a": None, "b": None, "c": None}),
        ("{ }", {"a": None, "b": None, "c": None}),
        ('{"a":1}', {"a": 1, "b": None, "c": None}),
        ('{"c":{"d":2},"b":"x","a":1}', {"a": 1, "b": "x", "c": {"d": 2}}),
        ('{"a":null,"b":null,"c":null}', {"a": None, "b": None, "c": None}),
        ('{"c":{}}', {"a": None, "b": None, "c": {"d": None}}),
        ('{"A":1,"aa":2,"":3,"a ":4}', {"a": None, "b": None, "c": None}),
        ('{"x":[1,{"a":5,"y":"\\n"}],"a":1,"z":{"b":"no"}}', {"a": 1, "b": None, "c": None}),
        ('{"x":NaN,"y":-Infinity,"z":Infinity,"w":1e999,"a":1}', {"a": 1, "b": None, "c": None}),
        (r'{"x":"\ud800","a":1}', {"a": 1, "b": None, "c": None}),
        (r'{"\u0061":1,"\u0062":"x"}', {"a": 1, "b": "x", "c": None}),
        (r'{"\ud83d\ude00":1,"\ud800":2,"a":3}', {"a": 3, "b": None, "c": None}),
        ('{"a":1,"a":2}', {"a": 2, "b": None, "c": None}),
        ('{"a":1,"b":"x","a":null}', {"a": None, "b": "x", "c": None}),
        ('{"c":{"d":1,"d":2},"a":3}', {"a": 3, "b": None, "c": {"d": 2}}),
        ('{"c":{"d":1},"c":{}}', {"a": None, "b": None, "c": {"d": None}}),
        ('{"a":"no number","a":1}', {"a": 1, "b": None, "c": None}),
        ('{"c":[],"c":{"d":1.5,"d":1}}', {"a": None, "b": None, "c": {"d": 1}}),
        (r'{"a":5,"x":"\ud800\udfff\udc00","\u0061":1}', {"a": 1, "b": None, "c": None}),
        (b'{"x":"\xff\xed\xa0\x80","a":1}', {"a": 1, "b": None, "c": None}),
        ("null", None),
    ],
    ids=str,
)
def test_fields(text: str | bytes, expected: object) -> None:
    """Unknown ones are passed over, missing ones are null, the last of equal names counts."""
    assert value_of_text(_FIELDS, text) == expected


def test_text_that_two_halves_would_make() -> None:
    """Writing a payload anew joins no halves of characters that were none."""
    schema = record(("a", "string"), ("b", "int"))

    for text in (b'{"a":"\\ud83d\xc2","b":1,"b":2}', b'{"a":"\\ud83d\x80","b":1,"b":2}'):
        assert code_of_text(schema, text) in {tables.BAD_ESCAPE, tables.BAD_JSON}


def test_where_a_misfit_is() -> None:
    """Its field path and its byte are told, also of a payload that was written anew."""
    schema = record(("x", "string"), ("list", array_of(record(("m", map_of("int")), name="S"))))

    text = '{"list":[{"m":{"k":1,"l":"no"}}]}'
    assert misfit_of_text(schema, text) == (
        0, tables.WRONG_TOKEN, "list[].m[]", text.index('"no"'),
    )  # fmt: skip
    again = misfit_of_text(schema, '{"x":"","x":"y","list":[{"m":{"k":1.5}}]}')
    assert again[:3] == (0, tables.TOO_PRECISE, "list[].m[]")
    first = misfit_of_text(schema, '{"list":[{"m":{"k":1.5}}],"x":"","x":"y"}')
    assert first == (0, tables.TOO_PRECISE, "list[].m[]", 19)


@pytest.mark.parametrize(
    "name",
    ["", "a b", 'quo"te', "back\\slash", "tab\t", "nul\0", "поток", "😀", "a/b", "\x7f", "\u2028"],
)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_names(name: str, is_ascii: bool) -> None:
    """Any name of a field is found, spelled with escapes or without."""
    schema = {"type": "record", "name": "R", "fields": [{"name": f"_{name}", "type": "int"}]}
    text = json.dumps({f"_{name}": 1, f"_{name}x": 2, f"x_{name}": 3}, ensure_ascii=is_ascii)

    assert value_of_text(schema, text) == {f"_{name}": 1}


def test_names_that_begin_alike() -> None:
    """A name is compared to its end, in whatever order the fields come."""
    schema = record(("a", "int"), ("ab", "int"), ("abc", "int"))

    assert rows_of_text(
        schema, '{"ab":2,"a":1,"abc":3}', '{"abc":3,"ab":2,"a":1}', '{"a":1,"ab":2}'
    ) == [
        {"a": 1, "ab": 2, "abc": 3},
        {"a": 1, "ab": 2, "abc": 3},
        {"a": 1, "ab": 2, "abc": None},
    ]


def test_the_order_of_fields_may_change() -> None:
    """What was learned of the order before is a guess, checked each time."""
    schema = record(*((f"f{number}", "int") for number in range(6)))
    orders = [range(6), range(5, -1, -1), [3, 1, 4], [0], [], [5, 0], range(6)] * 3
    texts = [json.dumps({f"f{n}": n for n in order}) for order in orders]

    assert rows_of_text(schema, *texts) == [
        {f"f{n}": n if n in order else None for n in range(6)} for order in orders
    ]


@pytest.mark.parametrize(
    "text",
    ["{", "[1", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{"a":1 "b":2}', '{"a" 1}',
     "{a:1}", "{,}", '{"a":1}}', '{"a":1}]', "{1:1}", '{"a":1]', '{"x":[1,]}', '{"x":[,1]}',
     '{"x":[1 2]}', '{"x":{"y"}}', '{"x":tru}', '{"x":nul}', '{"x":falsy}', '{"x":01}',
     '{"x":"\n"}', r'{"x":"\x"}', '{"x":.5}', '{"x":-}', '{"x":-Inf}', '{"x":Na}', '{"x":}',
     '{"x":\'\'}', '{"a":1}//', "", " ", "\x00", "\ufeff{}", "[]", '"a"', "1", "true"]
)  # fmt: skip
def test_what_is_no_object(text: str) -> None:
    """Broken JSON is refused, also in fields that are passed over; so is what is no object."""
    assert code_of_text(record(("a", "int")), text) in {
        tables.BAD_JSON, tables.ENDS_EARLY, tables.WRONG_TOKEN, tables.TRAILING, tables.BAD_ESCAPE,
    }  # fmt: skip


def test_space() -> None:
    """JSON's four kinds of white space may stand anywhere between tokens, and no other."""
    s = _SPACE
    text = f'{s}{{{s}"a"{s}:{s}1{s},{s}"b"{s}:{s}[{s}1{s},{s}2{s}]{s},{s}"c"{s}:{s}{{{s}}}{s}}}{s}'
    schema = record(("a", "int"), ("b", array_of("int")), ("c", map_of("int")))

    assert value_of_text(schema, text) == {"a": 1, "b": [1, 2], "c": {}}
    assert value_of_text(record(), text) is True
    for other in ("\v", "\f", "\u00a0", "\0"):
        assert code_of_text("int", f"{other}1") == tables.BAD_JSON
        assert code_of_text("int", f"1{other}") == tables.TRAILING


def test_lists_and_maps() -> None:
    """Items and values may be null and nested; the last of equal keys wins."""
    assert rows_of_text(array_of(array_of("int")), "[]", "[[],[1,null],null]") == [
        [],
        [[], [1, None], None],
    ]
    assert rows_of_text(map_of("int"), "{}", '{"":1,"b":null}', '{"a":1,"b":2,"a":3}') == [
        {}, {"": 1, "b": None}, {"a": 3, "b": 2},
    ]  # fmt: skip
    assert value_of_text(map_of("int"), r'{"a":1,"\u0061":2}') == {"a": 2}
    assert value_of_text(map_of("int"), '{"a":"no number","a":2}') == {"a": 2}
    many = {f"k{number % 500}": number for number in range(1_000)}
    text = "{" + ",".join(f'"k{number % 500}":{number}' for number in range(1_000)) + "}"
    assert value_of_text(map_of("int"), text) == many
    nested = '[{"a":{"b":1,"b":2},"a":{"c":3,"c":4}},null]'
    assert value_of_text(array_of(map_of(map_of("int"))), nested) == [{"a": {"c": 4}}, None]


@pytest.mark.parametrize("twice", ["none", "inner", "outer", "both"])
def test_equal_keys_inside_maps_and_lists(twice: str) -> None:
    """In maps of maps in records in lists, the last of equal keys counts; nothing else moves."""
    inner = map_of("int")
    schema = record(
        ("n", "int"),
        ("l", array_of(record(("m", map_of(inner)), ("s", "string"), name="S"))),
        ("m", inner),
    )
    below = '{"x":1,"x":2,"y":3}' if twice in {"inner", "both"} else '{"x":2,"y":3}'
    above = '"a":{"z":9},' if twice in {"outer", "both"} else ""
    text = (
        f'{{"n":4,"l":[{{"m":{{{above}"b":{{}},"a":{below}}},"s":"t"}},{{"m":{{}},"s":"u"}}],'
        '"m":{"k":5}}'
    )

    expected = {
        "n": 4,
        "l": [{"m": {"b": {}, "a": {"x": 2, "y": 3}}, "s": "t"}, {"m": {}, "s": "u"}],
        "m": {"k": 5},
    }
    assert rows_of_text(schema, text, text) == [expected, expected]


def test_null_everywhere() -> None:
    """A null is taken for any type, as Jackson does."""
    kinds: list[object] = ["null", "boolean", "int", "double", "bytes", "string", ["int", "string"]]
    kinds += [enum_of("A"), fixed_of(2), array_of("int"), map_of("int"), decimal_of(3), _FIELDS]

    for kind in kinds:
        assert value_of_text(kind, "null") is None
    assert code_of_text("null", "0") == tables.WRONG_TOKEN


@pytest.mark.parametrize(
    ("union", "text", "expected"),
    [
        (["null", "int"], "5", 5),
        (["null", "double"], '"NaN"', "NaN"),
        (["int", "string"], "5", {"int": 5, "string": None}),
        (["int", "string"], '"5"', {"int": None, "string": "5"}),
        (["int", "long"], "5", {"int": None, "long": 5}),
        (["double", "long"], "5", {"double": None, "long": 5}),
        (["double", "long"], "5.0", {"double": 5.0, "long": None}),
        (["double", "string"], "5", {"double": 5.0, "string": None}),
        (["double", "long"], "NaN", {"double": "NaN", "long": None}),
        (["double", "long"], '"NaN"', {"double": "NaN", "long": None}),
        (["double", "string"], '"NaN"', {"double": None, "string": "NaN"}),
        (["double", "long"], "-Infinity", {"double": float("-inf"), "long": None}),
        ([decimal_of(3, 1), "string"], "1.5", {"bytes": Decimal("1.5"), "string": None}),
        (["boolean", "null", "int"], "true", {"boolean": True, "int": None}),
        ([array_of("int"), map_of("int")], "[1]", {"array": [1], "map": None}),
        ([array_of("int"), map_of("int")], '{"k":1}', {"array": None, "map": {"k": 1}}),
        ([map_of("int"), record(("a", "int"))], '{"a":1}', {"map": None, "R": {"a": 1}}),
        (["bytes", "int"], '"AA=="', {"bytes": b"\0", "int": None}),
        ([enum_of("A"), "bytes"], '"A"', {"E": "A", "bytes": None}),
    ],
    ids=str,
)
def test_unions(union: list[object], text: str, expected: object) -> None:
    """JSON does not say which branch was meant: the first that takes such a token."""
    assert value_of_text(union, text) == expected


def test_unions_that_take_no_such_token() -> None:
    """A token for which there is no branch is refused."""
    assert code_of_text(["int", "string"], "true") == tables.WRONG_TOKEN
    assert code_of_text(["int", "string"], "1.5") == tables.WRONG_TOKEN
    assert code_of_text(["int", "string"], "{}") == tables.WRONG_TOKEN
    assert code_of_text(["int", "string"], "-") == tables.BAD_JSON
    assert code_of_text(["int", "boolean"], "x") in {
        tables.WRONG_TOKEN,
        tables.BAD_JSON,
    }


def test_a_record_inside_itself() -> None:
    """The inner one is given as its own text, as it stands."""
    node = record(("value", "int"), ("next", ["null", "Node"]), name="Node")
    inner = '{ "value":2, "next":{"x":"\\n"} }'

    assert value_of_text(node, f'{{"value":1,"next":{inner}}}') == {"value": 1, "next": inner}
    assert value_of_text(node, '{"value":1,"next":null}') == {"value": 1, "next": None}
    assert code_of_text(node, '{"next":{"a" 1}}') == tables.BAD_JSON
    assert code_of_text(node, b'{"next":{"a":"\xff"}}') == tables.BAD_UTF8


def test_depth() -> None:
    """What is only read over may be nested to a bound; what is far deeper is refused as soon."""
    schema, most = record(("a", "int")), tables.MAX_DEPTH

    def nested(depth: int, before: str = "") -> str:
        return f'{{{before}"x":{"[" * depth}{"]" * depth},"a":1}}'

    assert value_of_text(schema, nested(most)) == {"a": 1}
    for depth in (most + 1, 10_000, 1_000_000):
        assert code_of_text(schema, nested(depth)) == tables.TOO_DEEP
    assert code_of_text(schema, nested(100_000, before='"a":5,')) == tables.TOO_DEEP
    assert code_of_text(schema, '{"a":0,"a":1,"x":' + "[" * 100_000) in {
        tables.TOO_DEEP,
        tables.BAD_JSON,
    }
    assert code_of_text(schema, '{"x":' * 10_000) == tables.TOO_DEEP
    deep: Any = "int"
    for _ in range(60):
        deep = array_of(deep)
    assert json.dumps(value_of_text(deep, "[" * 60 + "]" * 60)) == "[" * 60 + "]" * 60
    assert code_of_text(deep, "[" * 100_000) in {
        tables.ENDS_EARLY,
        tables.WRONG_TOKEN,
    }


def test_projection() -> None:
    """Fields that are not asked for are only read over, their types not looked at."""
    shape = json_shape(parse_avro(json.dumps(_FIELDS)), "ns")
    program = json_program(shape.select(["c", "a"]))
    texts = [b'{"a":1,"b":5,"c":{"d":2}}', b'{"b":"\xff","a":1}', b'{"b":"\\x"}']

    found = shredded_alike(program, texts)
    assert found.rows == [{"c": {"d": 2}, "a": 1}, {"c": None, "a": 1}, None]
    assert found.codes == [tables.BAD_ESCAPE]
    assert pa.types.is_struct(shape.type)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a":1,"b":{"c":1,"c":[1,2]},"a":0.10}', b'{"a":0.10,"b":{"c":[1,2]}}'),
        (b" [ 1e5 , -0 , NaN , true , null ] ", b"[1e5,-0,NaN,true,null]"),
        (rb'{"\u0061":"\u00e9\n\/"}', '{"a":"é\\n/"}'.encode()),
        (rb'"\ud800"', rb'"\ud800"'),
        (b"123456789012345678901234567890", b"123456789012345678901234567890"),
        (b"1" * 5_000, b"1" * 5_000),
    ],
    ids=lambda text: str(text)[:40],
)
def test_canonical_text(text: bytes, expected: bytes) -> None:
    """Numbers stay as they are spelled; names stand once; escapes are those that are needed."""
    assert canonical_json(text) == expected


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":}', b'"\xff"', b'"\\x"'])
def test_text_that_has_no_canonical_one(text: bytes) -> None:
    """What is no JSON stays none; nor is what is no UTF-8, anywhere."""
    with pytest.raises(ValueError):
        canonical_json(text)
