"""JSON values without parts are read by their schema, exactly, or refused."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest

from arrow_io.payloads import tables
from tests.support.avro_payloads import decimal_of, enum_of, fixed_of, map_of
from tests.support.floats import nearest_float
from tests.support.json_cases import code_of_text, misfit_of_text, rows_of_text, value_of_text
from tests.support.payloads import json_text, record, shredded_alike


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("AA==", b"\0"),
        ("AA", b"\0"),
        ("AAA=", b"\0\0"),
        ("AAA", b"\0\0"),
        ("AAAA", b"\0\0\0"),
        ("+/+/", b"\xfb\xff\xbf"),
        (r"+\/+\/", b"\xfb\xff\xbf"),
        (r"AA\u003d\u003D", b"\0"),
        (r"\u0041\u0041==", b"\0"),
        ("AB==", b"\0"),
        ("QUJD" * 1000, b"ABC" * 1000),
    ],
    ids=lambda text: str(text)[:20],
)
def test_bytes(text: str, expected: bytes) -> None:
    """They are Base64, padded or not, escapes within or not."""
    assert value_of_text("bytes", f'"{text}"') == expected
    assert value_of_text(fixed_of(len(expected)), f'"{text}"') == expected


@pytest.mark.parametrize(
    "text", ["A", "AAAAA", "=", "==", "A=", "A==", "A===", "====", "AA=A", "AAA==", "AAAA====",
             "AA-_", "AA A", "AA\\n==", "AAé", "AAAA=", "AA=="[:3]]
)  # fmt: skip
def test_bytes_that_are_none(text: str) -> None:
    """What is not Base64 is refused."""
    assert misfit_of_text(record(("a", "bytes")), f'{{"a":"{text}"}}')[1:3] == (
        tables.BAD_BASE64,
        "a",
    )


def test_bytes_of_a_fixed_size() -> None:
    """Fewer or more than the size are refused."""
    assert code_of_text(fixed_of(4), '"AAAA"') == code_of_text(fixed_of(2), '"AAAA"') != tables.OK
    assert code_of_text("bytes", "[1]") == code_of_text(fixed_of(1), "1") == tables.WRONG_TOKEN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.34", "12.34"),
        ("-12.3", "-12.3"),
        ("12", "12"),
        ("1234e-2", "12.34"),
        ("0.1234e2", "12.34"),
        ("1.2e1", "12"),
        ("12.340000000000000000000000000000000000000000", "12.34"),
        ("0.00000000000000000000000000000000000000e5", "0"),
        ("-0.00", "0"),
        ("0e99999999999", "0"),
        ("999.99", "999.99"),
        ("-999.99", "-999.99"),
        ("000.01"[2:], "0.01"),
    ],
)
def test_decimals(text: str, expected: str) -> None:
    """A decimal is the number that is spelled, exactly."""
    assert value_of_text(decimal_of(5, 2), text) == Decimal(expected)


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
    ] == [
        *[tables.BAD_SYMBOL] * 5,
        tables.WRONG_TOKEN,
    ]
    assert rows_of_text(enum_of("A", "B", default="B"), '"A"', '"unknown"') == ["A", "B"]


@pytest.mark.parametrize(
    ("logical", "kind", "text", "expected"),
    [
        ("date", "int", "-1", -1),
        ("time-millis", "int", "86399999", 86_399_999_000),
        ("time-micros", "long", "1", 1),
        ("timestamp-millis", "long", "1700000000123", 1_700_000_000_123_000),
        ("timestamp-micros", "long", "-1", -1),
        ("timestamp-nanos", "long", "-1", -1),
        ("local-timestamp-millis", "long", "1.7e12", 1_700_000_000_000_000),
        ("uuid", "string", '"any text"', "any text"),
    ],
)
def test_logical_types(logical: str, kind: str, text: str, expected: object) -> None:
    """Times are numbers of their units, as Pulsar's JSON schemas write them."""
    assert value_of_text({"type": kind, "logicalType": logical}, text) == expected


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
