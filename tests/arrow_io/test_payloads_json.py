"""JSON text is read by its schema, exactly, or refused, whatever else it holds."""

from __future__ import annotations

import base64
import json
import struct
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.payloads.json import canonical_json, json_program, json_shape
from tests.support.avro_payloads import array_of, decimal_of, enum_of, fixed_of, map_of
from tests.support.avro_schemas import schemas
from tests.support.floats import nearest_float
from tests.support.golden import golden_topic, row_payload
from tests.support.golden_values import golden_schema
from tests.support.json_payloads import MisfitError, Oracle, texts
from tests.support.payloads import json_text, record, shredded_alike

_WIDE = Context(prec=60)

if TYPE_CHECKING:
    from arrow_io.payloads.shredding import Misfit
    from tests.support.avro_schemas import Schema


def rows_of_text(schema: object, *texts: str | bytes, **options: str) -> list[Any]:
    """The values of some texts, all of which fit."""
    payloads = [text.encode() if isinstance(text, str) else text for text in texts]
    found = shredded_alike(json_text(schema, **options), payloads)
    assert found.misfits == []
    return found.rows


def value_of_text(schema: object, text: str | bytes, **options: str) -> Any:  # noqa: ANN401
    """The value of one text, which fits."""
    (row,) = rows_of_text(schema, text, **options)
    return row


def misfit_of_text(schema: object, text: str | bytes, **options: str) -> Misfit:
    """What is wrong with a text."""
    payload = text.encode() if isinstance(text, str) else text
    (misfit,) = shredded_alike(json_text(schema, **options), [payload]).misfits
    return misfit


def code_of_text(schema: object, text: str | bytes, **options: str) -> int:
    """Why a text does not fit."""
    return misfit_of_text(schema, text, **options).code


_CONNECT_DECIMAL = decimal_of(5, 2) | {"connect.name": "org.apache.kafka.connect.data.Decimal"}


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 4), st.booleans())
def test_decimals_of_kafka_connect(unscaled: int, additional_bytes: int, padded: bool) -> None:
    """Connect's converter writes the bytes of `BigInteger` as Base64, other writers a number."""
    schema = decimal_of(38, 3) | {"connect.name": "org.apache.kafka.connect.data.Decimal"}
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1 + additional_bytes, signed=True)
    text = base64.b64encode(data).decode()
    value = Decimal(unscaled).scaleb(-3, _WIDE)
    escaped = text.replace("/", "\\/")
    texts = [f'"{text if padded else text.rstrip("=")}"', f'"{escaped}"', f"{value:f}", "null"]

    assert rows_of_text(schema, *texts) == [value, value, value, None]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('""', tables.BAD_BASE64),
        ('"A"', tables.BAD_BASE64),
        ('"AAAAA"', tables.BAD_BASE64),
        ('"AA="', tables.BAD_BASE64),
        ('"AA==="', tables.BAD_BASE64),
        ('"A=A="', tables.BAD_BASE64),
        ('"12.5"', tables.BAD_BASE64),
        ('"AYag"', tables.OUT_OF_RANGE),
        ('"/nlg"', tables.OUT_OF_RANGE),
        ('"' + "f" * 40 + '"', tables.OUT_OF_RANGE),
        ("100000", tables.OUT_OF_RANGE),
    ],
)
def test_texts_that_are_no_decimals_of_kafka_connect(text: str, code: int) -> None:
    """They are neither Base64 nor a number, or exceed the precision: ±1000.00 here."""
    assert code_of_text(_CONNECT_DECIMAL, text) == code
    assert rows_of_text(_CONNECT_DECIMAL, '"AYaf"', '"/nlh"') == [
        Decimal("999.99"),
        Decimal("-999.99"),
    ]


def test_only_kafka_connect_writes_decimals_as_text() -> None:
    """Others write numbers, so a text is an error: it might be a number in quotes."""
    assert code_of_text(decimal_of(5, 2), '"AYaf"') == tables.WRONG_TOKEN


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("int", "2147483647", 2**31 - 1),
        ("int", "-2147483648", -(2**31)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "-0", 0),
        ("long", "1.0", 1),
        ("long", "1e3", 1000),
        ("long", "1E+3", 1000),
        ("long", "1200e-2", 12),
        ("long", "0.0000000000000000000000000001e28", 1),
        ("long", "92233720368547758070e-1", 2**63 - 1),
        ("long", "1.00000000000000000000000000", 1),
        ("long", "0e999999999999", 0),
        ("long", "0.000e-999999999999", 0),
        ("int", "0.0", 0),
    ],
)
def test_whole_numbers(kind: str, text: str, expected: int) -> None:
    """A whole number is what it is worth, however it is spelled."""
    assert value_of_text(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "code"),
    [
        ("int", "2147483648", tables.OUT_OF_RANGE),
        ("int", "-2147483649", tables.OUT_OF_RANGE),
        ("long", "9223372036854775808", tables.OUT_OF_RANGE),
        ("long", "-9223372036854775809", tables.OUT_OF_RANGE),
        ("long", "18446744073709551616", tables.OUT_OF_RANGE),
        ("long", "1" * 5_000, tables.OUT_OF_RANGE),
        ("long", "1e19", tables.OUT_OF_RANGE),
        ("long", "1e99999999999999999999", tables.OUT_OF_RANGE),
        ("long", "1.5", tables.TOO_PRECISE),
        ("long", "1e-1", tables.TOO_PRECISE),
        ("long", "1e-99999999999999999999", tables.TOO_PRECISE),
        ("long", "1.00000000000000000000000001", tables.TOO_PRECISE),
        ("long", "1234567890123456789.5", tables.TOO_PRECISE),
        ("long", '"1"', tables.WRONG_TOKEN),
        ("long", "true", tables.WRONG_TOKEN),
        ("long", "NaN", tables.WRONG_TOKEN),
        ("long", "-Infinity", tables.BAD_JSON),
        ("long", "01", tables.BAD_JSON),
        ("long", "-01", tables.BAD_JSON),
        ("long", "-", tables.BAD_JSON),
        ("long", "+1", tables.BAD_JSON),
        ("long", "1.", tables.BAD_JSON),
        ("long", "1.e1", tables.BAD_JSON),
        ("long", "1e", tables.BAD_JSON),
        ("long", "1e+", tables.BAD_JSON),
        ("long", "1 1", tables.TRAILING),
        ("long", "1,", tables.TRAILING),
    ],
    ids=lambda value: str(value)[:40],
)
def test_numbers_that_are_no_whole_ones(kind: str, text: str, code: int) -> None:
    """What has a fraction, or is beyond the type, is never rounded or wrapped."""
    assert code_of_text(kind, text) == code


_NUMBERS = [
    "0", "-0", "0.1", "1e23", "-1.7976931348623157e308", "1.7976931348623158e308", "5e-324",
    "2.4703282292062328e-324", "2.4703282292062327e-324", "4.9e-400", "1e-9999999999",
    "9007199254740993", "9007199254740992.9999999999999999999999999999", "123456789012345678901",
    "0.1000000000000000055511151231257827021181583404541015625", "2.2250738585072011e-308",
    "179769313486231570000000000000000000000000000000000000", "1." + "0" * 400 + "1", "7e22",
    "7e23",
    "123456789e-22", "123456789e-23", "1" * 400 + "e-300", "0." + "0" * 400 + "1e300",
]  # fmt: skip


@pytest.mark.parametrize("text", _NUMBERS, ids=lambda text: text[:30])
def test_floating_point_numbers(text: str) -> None:
    """The nearest number, as Python has it, to the last bit; of four bytes too."""
    found = shredded_alike(json_text("double"), [text.encode()])
    assert bytes(found.values.buffers()[1])[:8] == struct.pack("<d", float(text))
    if abs(float(text)) < 1e38:
        single = shredded_alike(json_text("float"), [text.encode()])
        nearest = nearest_float(Decimal(text)) if float(text) else float(text)
        assert bytes(single.values.buffers()[1])[:4] == struct.pack("<f", nearest)


def test_floating_point_numbers_out_of_range() -> None:
    """A number beyond the type is an error; an infinity is one only where it is written so."""
    assert code_of_text("double", "1.7976931348623159e308") == tables.OUT_OF_RANGE
    assert code_of_text("double", "-1e400") == tables.OUT_OF_RANGE
    assert code_of_text("float", "3.4028235677973367e38") == tables.OUT_OF_RANGE
    assert code_of_text("float", "-1e39") == tables.OUT_OF_RANGE
    assert rows_of_text("float", "3.4028235677973362e38", "1e-60") == [(2 - 2**-23) * 2.0**127, 0.0]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_spellings_of_what_is_no_number(kind: str) -> None:
    """NaN and infinities are read as writers of JSON spell them: bare, or in quotes as Jackson."""
    texts = ["NaN", '"NaN"', "Infinity", '"Infinity"', "-Infinity", '"-Infinity"', "null"]
    infinity = float("inf")

    assert rows_of_text(kind, *texts) == ["NaN"] * 2 + [infinity] * 2 + [-infinity] * 2 + [None]
    for text in (
        "nan",
        "inf",
        "-NaN",
        "+Infinity",
        "Infinit",
        '"NaN',
        '"NaN "',
        '"1.5"',
        '""',
        "--Infinity",
    ):
        assert code_of_text(kind, text) in {tables.WRONG_TOKEN, tables.BAD_JSON}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'""', ""),
        (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
        (r'"\u0041\u00e9\u00E9\u20ac\uffff\u0000"', "Aéé€\uffff\0"),
        (r'"\ud83d\ude00 😀"', "😀 😀"),
        (r'"\uD800\uDC00\udbff\udfff"', "\U00010000\U0010ffff"),
        ('"\u2028\x7f"', "\u2028\x7f"),
        ('"' + "x" * 1000 + r"\n" + "y" * 1000 + '"', "x" * 1000 + "\n" + "y" * 1000),
        *(
            (f'"{"é" * n}{"a" * m}\\t"', f"{'é' * n}{'a' * m}\t")
            for n in (1, 4)
            for m in range(6, 10)
        ),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_text(text: str, expected: str) -> None:
    """Escapes stand for their characters, pairs of surrogates for one; all else is as it is."""
    assert value_of_text("string", text) == expected
    assert value_of_text(map_of("string"), f"{{{text}: {text}}}") == {expected: expected}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (r'"\ud800"', tables.BAD_ESCAPE),
        (r'"\ude00"', tables.BAD_ESCAPE),
        (r'"\ud800\ud800\udc00"', tables.BAD_ESCAPE),
        (r'"\ud800\n"', tables.BAD_ESCAPE),
        (r'"\ud800\u0041"', tables.BAD_ESCAPE),
        (r'"\ud800\u12"', tables.BAD_ESCAPE),
        (r'"\x41"', tables.BAD_ESCAPE),
        (r'"\u00g0"', tables.BAD_ESCAPE),
        (r'"\u 041"', tables.BAD_ESCAPE),
        (r'"\U0041"', tables.BAD_ESCAPE),
        ('"\\u00', tables.BAD_ESCAPE),
        ('"\\', tables.ENDS_EARLY),
        ('"', tables.ENDS_EARLY),
        ('"abc', tables.ENDS_EARLY),
        ('"\\"', tables.ENDS_EARLY),
        ('"a\nb"', tables.BAD_JSON),
        ('"12345678\x00"', tables.BAD_JSON),
        ('"12345678\x1f12345678"', tables.BAD_JSON),
        (b'"\x80"', tables.BAD_UTF8),
        (b'"1234567890123456\xff"', tables.BAD_UTF8),
        (b'"\xed\xa0\x80"', tables.BAD_UTF8),
        (b'"\xc3\\n\xa9"', tables.BAD_UTF8),
        (b'"\xc0\xaf"', tables.BAD_UTF8),
        (b'"\xf4\x90\x80\x80"', tables.BAD_UTF8),
        ("abc", tables.BAD_JSON),
        ("'a'", tables.BAD_JSON),
        ("5", tables.WRONG_TOKEN),
    ],
    ids=repr,
)
def test_text_that_is_none(text: str | bytes, code: int) -> None:
    """Half characters, control characters and open ends are refused, in values and in keys."""
    payload = text.encode() if isinstance(text, str) else text

    assert code_of_text("string", payload) == code
    if payload[:1] == b'"':
        assert code_of_text(map_of("string"), b"{" + payload) == code


def test_bytes_of_a_fixed_size() -> None:
    """Fewer or more than the size are refused."""
    assert code_of_text(fixed_of(4), '"AAAA"') == code_of_text(fixed_of(2), '"AAAA"') != tables.OK
    assert code_of_text("bytes", "[1]") == code_of_text(fixed_of(1), "1") == tables.WRONG_TOKEN


@pytest.mark.parametrize("scale", [0, 1, 19, 38])
def test_limits_of_decimals(scale: int) -> None:
    """38 digits are read, wherever the point stands; the next number is refused."""
    digits = "98765432109876543210987654321098765432"
    spelled = f"{digits[: 38 - scale] or 0}.{digits[38 - scale :]}".rstrip(".")
    schema = decimal_of(38, scale)
    expected = Decimal((0, tuple(map(int, digits)), -scale))

    assert rows_of_text(schema, spelled, f"-{spelled}", f"{digits}e-{scale}") == [
        expected,
        expected.copy_negate(),
        expected,
    ]
    assert code_of_text(schema, f"1{digits}e-{scale}") == tables.OUT_OF_RANGE
    assert code_of_text(schema, f"{digits}1e-{scale + 1}") == tables.TOO_PRECISE


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("1000", tables.OUT_OF_RANGE),
        ("1e99999999999999", tables.OUT_OF_RANGE),
        ("0.001", tables.TOO_PRECISE),
        ("1e-99999999999999", tables.TOO_PRECISE),
        ("12.345", tables.TOO_PRECISE),
        ("12.3400000000000000000000000000000000000001", tables.TOO_PRECISE),
        ('"12.34"', tables.WRONG_TOKEN),
        ("NaN", tables.WRONG_TOKEN),
        ("true", tables.WRONG_TOKEN),
        ("1.", tables.BAD_JSON),
    ],
)
def test_decimals_that_do_not_fit(text: str, code: int) -> None:
    """Too many digits before or behind the point are refused, never rounded."""
    assert code_of_text(decimal_of(5, 2), text) == code


def test_enums() -> None:
    """A symbol is compared as text, escapes undone; others are the default or refused."""
    schema = enum_of("RED", "GRÜN")

    assert rows_of_text(schema, '"RED"', r'"\u0052ED"', r'"GR\u00dcN"', '"GRÜN"') == [
        "RED", "RED", "GRÜN", "GRÜN",
    ]  # fmt: skip
    assert [
        code_of_text(schema, text) for text in ('"BLUE"', '""', '"RE"', '"RED "', '"red"', "0")
    ] == [*[tables.BAD_SYMBOL] * 5, tables.WRONG_TOKEN]
    assert rows_of_text(enum_of("A", "B", default="B"), '"A"', '"unknown"') == ["A", "B"]


def test_logical_types_that_do_not_fit() -> None:
    """A time beyond its day or its unit is refused."""
    time, nanos = (
        {"type": kind, "logicalType": logical}
        for kind, logical in (("int", "time-millis"), ("long", "timestamp-nanos"))
    )

    assert code_of_text(time, "86400000") == code_of_text(time, "-1") == tables.OUT_OF_RANGE
    assert code_of_text(nanos, "1001", time_unit="us") == tables.TOO_PRECISE
    assert value_of_text(nanos, "1000", time_unit="us") == 1


def test_booleans() -> None:
    """They are the two words, and no number or text."""
    assert rows_of_text("boolean", "true", "false") == [True, False]
    for text in ("1", '"true"', "tru", "True", "truely", "falsey", "[true]"):
        assert code_of_text("boolean", text) in {
            tables.WRONG_TOKEN,
            tables.BAD_JSON,
            tables.TRAILING,
        }


# Objects, arrays and unions


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


def test_unions_that_take_no_such_token() -> None:
    """A token for which there is no branch is refused."""
    assert code_of_text(["int", "string"], "true") == tables.WRONG_TOKEN
    assert code_of_text(["int", "string"], "1.5") == tables.WRONG_TOKEN
    assert code_of_text(["int", "string"], "{}") == tables.WRONG_TOKEN
    assert code_of_text(["int", "string"], "-") == tables.BAD_JSON
    assert code_of_text(["int", "boolean"], "x") in {tables.WRONG_TOKEN, tables.BAD_JSON}


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
    assert code_of_text(deep, "[" * 100_000) in {tables.ENDS_EARLY, tables.WRONG_TOKEN}


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


# Any text


def _check_as_the_oracle(schema: Schema, payloads: list[bytes], time_unit: str = "ns") -> None:
    """The oracle refuses the same payloads and has the same values."""
    oracle = Oracle(schema, time_unit)
    expected, refused = [], []
    for row, payload in enumerate(payloads):
        try:
            expected.append(oracle.value(payload))
        except MisfitError:
            expected.append(None)
            refused.append(row)

    found = shredded_alike(json_text(schema, time_unit=time_unit), payloads)

    more = {misfit.row for misfit in found.misfits} - set(refused)
    assert not [payloads[row] for row in more if _is_text(payloads[row])]
    assert {misfit.row for misfit in found.misfits} == {*refused, *more}
    assert found.rows == [None if row in more else each for row, each in enumerate(expected)]
    for misfit in found.misfits:
        assert misfit.code in tables.REASONS
        assert 0 <= misfit.offset <= len(payloads[misfit.row])


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _schema(data: st.DataObject) -> Schema:
    return fastavro.parse_schema(data.draw(schemas(json=True)))


@given(data=st.data(), time_unit=st.sampled_from(("ns", "us")))
def test_any_text(data: st.DataObject, time_unit: str) -> None:
    """Text of any schema, or nearly of it."""
    schema = _schema(data)
    payloads = data.draw(st.lists(texts(schema), min_size=1, max_size=6))

    _check_as_the_oracle(schema, [each.encode() for each in payloads], time_unit)


@given(data=st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    """Every cut of a text, and every byte of it changed in some ways."""
    schema = _schema(data)

    _check_as_the_oracle(schema, _mutations(data.draw(texts(schema)).encode()[:70]))


def _mutations(payload: bytes) -> list[bytes]:
    others = [bytes([byte]) for byte in b'"\\{}[],:0e-.n \x00\x80\xc3']
    changed = [
        payload[:place] + other + payload[place + 1 :]
        for place in range(len(payload))
        for other in (bytes([payload[place] ^ 1]), *others)
    ]
    return [payload[:stop] for stop in range(len(payload))] + changed


@given(data=st.data(), payloads=st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes(data: st.DataObject, payloads: list[bytes]) -> None:
    """Random bytes."""
    _check_as_the_oracle(_schema(data), payloads)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["json-orders", "clients-cpp-json"])
def test_every_change_of_real_payloads(name: str) -> None:
    """Every cut and many changed bytes of payloads that Pulsar's clients wrote."""
    topic = golden_topic(name)
    schema = fastavro.parse_schema(json.loads(golden_schema(topic).reader.data))
    payloads = {row_payload(row) for row in topic.messages()}

    for payload in sorted(each for each in payloads if each)[:10]:
        _check_as_the_oracle(schema, _mutations(payload))
