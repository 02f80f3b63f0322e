"""JSON text is read alike wherever it stands in the blocks of bytes that are looked at at once.

`shredded_alike` has each payload far from the end of its buffer too, with bytes behind it that
could be its own.
"""

from __future__ import annotations

import base64
import json
import random
import string
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from arrow_io.payloads.avro_schema import parse_avro
from arrow_io.payloads.json import json_program, json_shape
from tests.support.avro_payloads import array_of, decimal_of, enum_of, fixed_of, map_of
from tests.support.builds import BUILDS
from tests.support.floats import nearest_float
from tests.support.payloads import json_text, record, shredded_alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.payloads.program import Program
    from tests.support.payloads import AvroSchema

_BLOCK = 64
_SEPARATORS: Final = ((",", ":"), (" , ", " : "))
_TEXT = json_text("string")
_LISTS = array_of(array_of(map_of("string")))


def _without_x() -> Program:
    """Reads a record's field "a", and passes over "x", whose schema it knows."""
    schema = record(("x", _LISTS), ("a", "int"))
    shape = json_shape(parse_avro(json.dumps(schema)), "ns")
    return json_program(shape.select(["a"]))


@pytest.fixture(params=[64, 32, 16])
def width(request: pytest.FixtureRequest) -> Iterator[int]:
    """Width of the vectors in bytes; a processor that lacks it uses narrower ones."""
    compiled = BUILDS["compiled"].payloads("json_values")
    yield compiled.choose_vectors(request.param)
    compiled.choose_vectors(64)


def _of_texts(texts: list[bytes]) -> list[str | None]:
    """What both builds make of texts in quotes; None for each that they refuse."""
    return shredded_alike(_TEXT, [b'"%b"' % each for each in texts]).rows


def _text_or_none(text: bytes) -> str | None:
    try:
        read = str(json.loads(f'"{text.decode()}"'))
        read.encode()
    except ValueError:
        return None
    return read


@pytest.mark.parametrize("special", [b"", b'"', b"\\", b'\\"', b"\\\\", b"\x00", b"\x1f", b"\x7f"])
def test_what_ends_a_text_at_each_place(special: bytes) -> None:
    """A quote, a backslash or a control character is met wherever it stands."""
    texts = [
        b"x" * place + special + tail for place in range(_BLOCK) for tail in (b"", b"y", b"y" * 40)
    ]

    assert _of_texts(texts) == [_text_or_none(each) for each in texts]


@pytest.mark.parametrize(
    "special",
    [
        b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc2", b"\xc2\x80", b"\xc2\xc2\x80",
        b"\xdf\xbf",
        b"\xe0\x9f\xbf", b"\xe0\xa0\x80", b"\xe2\x82", b"\xe2\x82\xac\x82", b"\xed\x9f\xbf",
        b"\xed\xa0\x80", b"\xee\x80\x80", b"\xef\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80",
        b"\xf0\x9f\x98", b"\xf3\xbf\xbf\xbf", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80", b"\xff", b"\xd0\xbf\xd0\xbe\xd1\x82\xd0\xbe\xd0\xba",
    ],
)  # fmt: skip
def test_utf8_at_each_place(special: bytes) -> None:
    """Exactly what Python decodes is text, across the borders of blocks too."""
    texts = [
        b"x" * place + special + tail
        for place in range(34)
        for tail in (b"", b"y" * 17, b"\xc3\xa9" * 9)
    ]

    assert _of_texts(texts) == [_text_or_none(each) for each in texts]


@pytest.mark.parametrize(
    "escape",
    [
        r"\n", r"\/", r"\"", r"\\", r"\x", r"\u", r"\u12", r"\u12g4", r"\u0000", r"\u0041",
        r"\u00e9", r"\u07FF", r"\u0800", r"\u20aC", r"\uffff", r"\uD83D\uDE00", r"\ud800\udc00",
        r"\udbff\udfff", r"\ud83d", r"\ude00", r"\ud83d\u0041", r"\ud83d\ud83d", r"\ud83d\n",
        r"\ud83dxude00", r"\ud83d\ude0", r"\n\u00e9\t", "\\",
    ],
)  # fmt: skip
def test_escapes_at_each_place(escape: str) -> None:
    """An escape becomes its character, or is refused, across the borders of blocks too."""
    texts = [
        f"{before}{'x' * place}{escape}{tail}".encode()
        for before in ("", "ä", r"\t")
        for place in range(34)
        for tail in ("", "y" * 40, "é" * 9)
    ]

    assert _of_texts(texts) == [_text_or_none(each) for each in texts]


@pytest.mark.usefixtures("width")
@pytest.mark.parametrize(
    "inner",
    [
        "[]", "[[]]", '[[{"k":"v"}],[{}]]', '[[{"k":"]}"}]]', r'[[{"k":"\\"}]]',
        r'[[{"k":"]\""}]]',
        r'[[{"k":"\\\\\\\"}]"}]]', '[[{"k":"[[[["}],[],[{},{"}":"{"}]]',
        "[[],[],[],[],[],[],[],[]]",
    ],
)  # fmt: skip
def test_brackets_at_each_place(inner: str) -> None:
    """A value that nobody wants ends at its own end, wherever it begins."""
    payloads = [
        f'{{"x":[{filled},{inner}],"a":{place}}}'.encode()
        for place in range(_BLOCK + 3)
        for filled in (f'["{"y" * place}"]', f"[{' ' * place}]")
    ]

    found = shredded_alike(_without_x(), payloads)

    assert found.misfits == []
    assert found.rows == [{"a": json.loads(each)["a"]} for each in payloads]


@pytest.mark.usefixtures("width")
def test_brackets_cut_at_each_place() -> None:
    """A value that nobody wants is not ended by what stands behind its payload."""
    whole = rb'{"x":[[{"kkkkkkkkkkkkkkkkkkkk":"v\"]}","l":"]"}],[],[{"m":"%b"}]],"a":1}' % (
        b"n" * 70
    )

    found = shredded_alike(_without_x(), [whole[:stop] for stop in range(1, len(whole))])

    assert found.rows == [None] * (len(whole) - 1)
    assert {misfit.offset for misfit in found.misfits} <= set(range(len(whole)))


def test_chosen_vectors(width: int, request: pytest.FixtureRequest) -> None:
    """Wider vectors than those of a test are not used, and Python has none."""
    most = BUILDS["compiled"].payloads("json_values").choose_vectors(64)
    assert width == min(most, request.node.callspec.params["width"])
    assert BUILDS["pure"].payloads("json_values").choose_vectors(64) == 0


@pytest.mark.parametrize("behind", ["", " ", ",", "x", "-", ".", "e1", "E+2", "}", '"'])
@pytest.mark.parametrize("type_", ["long", "double"])
def test_numbers_of_each_length(type_: str, behind: str) -> None:
    """A number has the value of its text, or is refused, however many digits it has."""
    payloads = [f'{{"a":{each}{behind}}}'.encode() for each in _numbers()]

    found = shredded_alike(json_text(record(("a", type_))), payloads).values

    expected = [_number_or_none(each, type_) for each in payloads]
    assert list(map(repr, found.field("a").to_pylist())) == list(map(repr, expected))


def _numbers() -> list[str]:
    """What is a number or looks like one."""
    return [
        sign + digits[:count] + point + (digits[:cut] if point else "")
        for sign in ("", "-")
        for digits in ("98765432109876543210", "0000", "1000000000000000000000")
        for count in range(len(digits))
        for point, cut in (("", 0), *((".", cut) for cut in (*range(10), 14, 15, 16)))
    ]


def _number_or_none(payload: bytes, type_: str) -> float | None:
    try:
        value = json.loads(payload, parse_int=Decimal, parse_float=Decimal)["a"]
    except ValueError:
        return None
    if type_ == "double":
        return float(value)
    return int(value) if value == int(value) and abs(value) < 1 << 63 else None


@pytest.mark.parametrize("behind", ["", " ", ",", "x", "-", ".", "e1", "]", "}", '"', "9" * 20])
def test_numbers_that_nobody_wants(behind: str) -> None:
    """A number is read over if it is one, however many digits it has."""
    payloads = [f'{{"x":{each}{behind},"a":1}}'.encode() for each in _numbers()]

    found = shredded_alike(_without_x(), payloads).rows

    assert found == [None if _value_or_none(each) is None else {"a": 1} for each in payloads]


@pytest.mark.parametrize(
    ("type_", "whole"),
    [
        ("string", json.dumps("x" * _BLOCK)),
        ("long", "-123456789012345678"),
        ("double", "-12345678.1234567"),
    ],
)
def test_payloads_cut_at_each_place(type_: str, whole: str) -> None:
    """A value ends with its payload, though what stands behind that would go on with it."""
    cuts = [whole[:stop].encode() for stop in range(1, len(whole) + 1)]

    found = shredded_alike(json_text(type_), cuts).values.to_pylist()

    assert found == list(map(_value_or_none, cuts))


def _value_or_none(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None


@pytest.mark.parametrize(
    "name", ["", "n", "n" * 11, "n" * 12, "n" * 13, "n" * 14, "n" * 15, "n" * 16, "n" * 40, "поток"]
)
def test_names_of_each_length(name: str) -> None:
    """A name is compared to its end, and no further, wherever its payload ends."""
    names = [f"_{name}", f"_{name}a", f"a_{name}"]
    program = json_text(record(*((each, "int") for each in names)))
    whole = json.dumps(dict(zip(names, range(3), strict=True)), ensure_ascii=False).encode()
    spaced = whole.replace(b":", b" : ").replace(b",", b" , ")
    dense = whole.replace(b" ", b"")
    cuts = [text[:stop] for text in (dense, whole, spaced) for stop in range(1, len(text))]

    found = shredded_alike(program, [dense, whole, spaced, *cuts])

    assert found.rows == [json.loads(whole)] * 3 + [None] * len(cuts)


def test_fields_that_follow_in_turn() -> None:
    """Whichever field follows a field, each has its own value."""
    program = json_text(record(*((name, "int") for name in "abcd")))
    orders = ["abcd", "acbd", "adbc", "a", "dcba", "bd", "", "abdc", "ab", "ac", "ad", "ba"] * 2

    found = shredded_alike(
        program,
        [json.dumps({name: n for n, name in enumerate(order)}).encode() for order in orders],
    )

    assert found.misfits == []
    assert found.rows == [
        dict.fromkeys("abcd") | {name: n for n, name in enumerate(order)} for order in orders
    ]


_NAMES: Final = {
    "one byte": ["a", "b", "c"],
    "same ends": ["a1", "a10", "a100", "b1", "b10"],
    "numbered": [f"field_{n}" for n in range(120)],
    "long": [f"{'n' * 20}_{n}_{'m' * n}" for n in range(20)],
    "far": [f"{'n' * 70}{n}{'m' * 9}" for n in range(10)],
    "middle": [f"{'n' * 12}{n}{'m' * 12}" for n in range(10, 40)],
    "tail": [f"customer{n}" for n in ("Id", "Name", "Email", "Address")],
    "any": ["", "x", "поток", 'quo"te', "back\\slash", "n" * 15, "n" * 16],
}


@pytest.mark.parametrize("names", _NAMES.values(), ids=_NAMES)
def test_names_in_any_order(names: list[str]) -> None:
    """Each field has its own value in whichever order, and with others left out or unknown."""
    dice = random.Random(len(names))
    names = [f"_{name}" for name in names]
    unknown = [f"{names[0]}x", "x", "_", *(f"{name}_" for name in names[:3])]
    payloads = []
    for number in range(150):
        chosen = dice.sample(names, dice.randint(0, len(names)))
        chosen += dice.sample(unknown, dice.randint(0, 2))
        if number % 50 > 20:
            dice.shuffle(chosen)
        payloads.append({name: dice.randint(0, 999) for name in chosen})
    program = json_text(record(*((name, "int") for name in names)))

    found = shredded_alike(
        program,
        [
            json.dumps(each, ensure_ascii=False, separators=_SEPARATORS[number % 2]).encode()
            for number, each in enumerate(payloads)
        ],
    )

    assert found.misfits == []
    assert found.rows == [{name: each.get(name) for name in names} for each in payloads]


_CUSTOMER: Final = record(
    ("id", "long"), ("name", "string"), ("city", ["null", "string"]), name="C"
)
_ITEM: Final = record(
    ("sku", "string"), ("price", "double"), ("tags", array_of("string")), name="I"
)
_ORDERED: Final = record(
    ("id", "long"),
    ("customer", _CUSTOMER),
    ("items", array_of(_ITEM)),
    ("lists", array_of(array_of("int"))),
    ("counts", map_of("int")),
    ("empty", record(name="E")),
    ("paid", "boolean"),
    ("total", decimal_of(10, 2)),
)
_STRINGS: Final = ("", "plain", 'a "quoted\\" text', "\\" * 63 + '"', "[{,}]", "n" * 70, "Größe\n")


def _some_record(dice: random.Random) -> dict[str, Any]:
    def text() -> str:
        return dice.choice(_STRINGS)

    return {
        "id": dice.randint(-(10**6), 10 ** dice.randint(1, 18)),
        "customer": {"id": 7, "name": text(), "city": dice.choice((None, text()))},
        "items": [
            {
                "sku": text(),
                "price": dice.randint(0, 999) / 8,
                "tags": [text()] * dice.randint(0, 2),
            }
            for _ in range(dice.randint(0, 3))
        ],
        "lists": [[dice.randint(0, 9)] * dice.randint(0, 2) for _ in range(dice.randint(0, 3))],
        "counts": {text(): 1},
        "empty": {},
        "paid": dice.random() < 0.5,
        "total": dice.randint(0, 10**6) / 4,
    }


def _reordered(value: Any, dice: random.Random, unknown: list[Any]) -> Any:  # noqa: ANN401 - JSON
    """The same value in random order, with missing nulls and unknown fields."""
    if isinstance(value, list):
        return [_reordered(each, dice, unknown) for each in value]
    if not isinstance(value, dict) or any(name in _STRINGS for name in value):
        return value
    names = [name for name in value if value[name] is not None or dice.random() < 0.5]
    fields = {name: _reordered(value[name], dice, unknown) for name in names}
    if dice.random() < 0.2:
        fields["unknown"] = dice.choice(unknown)
    return {name: fields[name] for name in dice.sample(list(fields), len(fields))}


@pytest.mark.usefixtures("width")
@pytest.mark.parametrize("projection", [None, ["customer", "items", "paid"]], ids=["all", "some"])
@pytest.mark.parametrize("seed", range(2))
def test_records_in_random_order(seed: int, projection: list[str] | None) -> None:
    """Names in random order give the values and errors that names in the schema's order give."""
    dice = random.Random(seed)
    shape = json_shape(parse_avro(json.dumps(_ORDERED)), "ns")
    program = json_program(shape.select(projection) if projection else shape)
    records = [_some_record(dice) for _ in range(200)]
    unknown = [1, "]},", [], {}, {"id": [1, {"a": "\\"}]}, [[0] * 300] * 2, records[0]]
    ordered, payloads, damaged = [], [], set()
    for number, each in enumerate(records):
        separators = _SEPARATORS[dice.random() < 0.1]
        ordered.append(json.dumps(each).encode())
        payload = json.dumps(_reordered(each, dice, unknown), separators=separators).encode()
        if number % 100 > 60 and dice.random() < 0.2:
            damaged.add(number)
            payload = _damage(payload, dice)
        payloads.append(payload)

    found = shredded_alike(program, payloads)

    expected = shredded_alike(program, ordered)
    assert expected.misfits == []
    assert {misfit.row for misfit in found.misfits} <= damaged
    for number, row in enumerate(expected.rows):
        assert number in damaged or found.rows[number] == row


_SPACED: Final = {
    "none": {"separators": (",", ":")},
    "one": {},
    "lines": {"indent": 2},
    "around": {"separators": (" ,\t", " :\r\n ")},
}


@pytest.mark.usefixtures("width")
@pytest.mark.parametrize("space", _SPACED.values(), ids=_SPACED)
@pytest.mark.parametrize("projection", [None, ["items", "paid", "total"]], ids=["all", "some"])
@pytest.mark.parametrize("seed", range(2))
def test_records_in_an_order_of_their_own(
    seed: int, projection: list[str] | None, space: dict[str, Any]
) -> None:
    """Records that share an order, whichever it is, give what those in the schema's order give."""
    dice = random.Random(seed)
    shape = json_shape(parse_avro(json.dumps(_ORDERED)), "ns")
    program = json_program(shape.select(projection) if projection else shape)
    ranks = {name: dice.random() for name in ("before", *_field_names(_ORDERED), "last", "~")}
    records = [_some_record(dice) for _ in range(300)]
    payloads, damaged = [], set()
    for number, each in enumerate(records):
        payload = json.dumps(_ranked(each, ranks, dice), **space).encode()
        if number % 100 > 80 and dice.random() < 0.2:
            damaged.add(number)
            payload = _damage(payload, dice)
        payloads.append(payload)

    found = shredded_alike(program, payloads)

    expected = shredded_alike(program, [json.dumps(each).encode() for each in records])
    assert expected.misfits == []
    assert {misfit.row for misfit in found.misfits} <= damaged
    for number, row in enumerate(expected.rows):
        assert number in damaged or found.rows[number] == row


def _field_names(schema: Any) -> set[str]:  # noqa: ANN401 - a schema as `json.loads` returns it
    if isinstance(schema, list):
        return {name for each in schema for name in _field_names(each)}
    if not isinstance(schema, dict):
        return set()
    names = {each["name"] for each in schema.get("fields", [])}
    return names.union(*map(_field_names, (each for each in schema.values())))


def _ranked(value: Any, ranks: dict[str, float], dice: random.Random) -> Any:  # noqa: ANN401 - JSON
    """The same value with its names by rank, with missing nulls and unknown fields."""
    if isinstance(value, list):
        return [_ranked(each, ranks, dice) for each in value]
    if not isinstance(value, dict) or any(name in _STRINGS for name in value):
        return value
    fields = {
        name: _ranked(value[name], ranks, dice)
        for name in value
        if value[name] is not None or dice.random() < 0.5
    }
    fields |= {name: 0 if name == "~" else "{,]" for name in ("before", "last", "~")}
    if dice.random() < 0.1:
        fields["last"] = {"a": [{}, "\\"]}
    return {name: fields[name] for name in sorted(fields, key=ranks.__getitem__)}


@pytest.mark.parametrize(
    "wrong",
    [
        "{,}", "{1}", '{"n":1,}', '{"n":1,,"t":""}', '{"n":1 "t":""}', '{"n":1]', '{"n" 1}',
        '{"n":}', '{"n":1}}', '{"n":1,"n":2', '{"t":"a}', '{"t":"a"b}', '{"f":1.}', '{"f":.5}',
        '{"f":01}', '{"n":tru}', '{"b":truee}', '{"b":falsE}', '{"e":"A}', '{"e":"B"}',
        '{"e":"AA"}', '{"d":1.234}', '{"r":{"n":1,}}', '{"r":{"n":1}', '{"r":{"n":1}]}',
        '{"r":[{"n":1}]}', '{"a":[{"n":1},]}', '{"a":[{"n":1}}', '{"a":[{"n":1}{"n":2}]}',
        '{"a":[,{"n":1}]}', '{"a":{"n":1}}', '{"a":[}]}', '{"a":[{"n":1}]]}', '{"a":[{"n":"]"}]}',
        '{"x":,"n":1}', '{"x":[1,],"n":1}', '{"x":{"y"},"n":1}', '{"n":1,"x":}',
        '{"n":9223372036854775808}', "null", " ", "[]", '{"n":1}x',
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [None, "rnfabted"], ids=["in order", "other order"])
def test_what_is_wrong_among_others(wrong: str, names: str | None) -> None:
    """It is refused, or null, as if it was read alone."""
    inner = record(("n", "long"), ("t", "string"), ("f", "double"), name="I")
    symbols = enum_of("A") | {"name": "S"}
    program = json_text(
        record(
            ("n", "long"), ("t", "string"), ("f", "double"), ("b", "boolean"), ("e", symbols),
            ("d", decimal_of(10, 2)), ("r", inner), ("a", array_of({**inner, "name": "J"})),
        )
    )  # fmt: skip
    right: dict[str, Any] = {
        "n": 7, "t": "text", "f": 0.5, "b": True, "e": "A", "d": 1.25,
        "r": {"n": 1, "t": "", "f": 2},
    }  # fmt: skip
    right["a"] = [right["r"], {}]
    if names is not None:
        right = {name: right[name] for name in names}
    text = json.dumps(right, separators=_SEPARATORS[0]).encode()

    found = shredded_alike(program, [*[text] * 80, wrong.encode(), *[text] * 5])

    (alone,) = shredded_alike(program, [wrong.encode()]).rows
    assert found.rows[80] == alone
    assert {misfit.row for misfit in found.misfits} <= {80}
    assert len({str(row) for n, row in enumerate(found.rows) if n != 80}) == 1


@pytest.mark.parametrize("space", _SPACED.values(), ids=_SPACED)
def test_a_record_cut_at_each_place_among_others(space: dict[str, Any]) -> None:
    """It ends with its payload, and those read together with it have their values."""
    dice = random.Random(39)
    program = json_text(_ORDERED)
    whole = json.dumps(_some_record(dice), **space).encode()
    others = [json.dumps(_some_record(dice), **space).encode() for _ in range(7)]

    for stop in range(0, len(whole), 3):
        found = shredded_alike(program, [*others[:3], whole[:stop], *others[3:]])

        assert [misfit.row for misfit in found.misfits] == [3]
        assert found.rows[3] is None
        assert None not in found.rows[:3] + found.rows[4:]


def _damage(payload: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(payload))
    changes = [
        payload[:place],
        payload[:place] + dice.choice([b'"', b"{", b"}", b"]", b",", b"\\", b"\x80"])
        + payload[place + 1 :],
        b"%b,%b" % (payload[:-1], payload[1:]),
        payload.replace(b'"id"', b'"\\u0069d"'),
        payload.replace(b"{", b'{"id":tru,', 1),
        b"[" * 100 + payload,
    ]  # fmt: skip
    return dice.choice(changes)


_INNER: Final = record(
    ("n", "long"), ("t", "string"), ("f", "float"), ("d", decimal_of(30, 2)), name="I"
)
_SPARSE: Final = record(
    ("b", "boolean"), ("u", ["null", "long", "string", {**_INNER, "name": "U"}]), ("r", _INNER),
    ("a", array_of({**_INNER, "name": "A"})), ("m", map_of("int")), ("i", "int"), ("x", "bytes"),
)  # fmt: skip
_FULL: Final[dict[str, Any]] = {"n": 1, "t": "text", "f": 0.5, "d": 2}


@pytest.mark.parametrize("seed", range(4))
def test_missing_fields(seed: int) -> None:
    """A field that is left out is null, however many records lack it, beside misfits and nulls."""
    dice = random.Random(seed)

    def some(value: dict[str, Any]) -> dict[str, Any]:
        return {name: value[name] for name in value if dice.random() < dice.choice((0.02, 0.9))}

    def whole(value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else dict.fromkeys(_FULL) | value

    rows = [
        some(
            {
                "b": True, "u": dice.choice((1, "t", some(_FULL))), "r": some(_FULL),
                "a": [some(_FULL) for _ in range(dice.randint(0, 3))], "m": {"k": 1}, "i": 7,
                "x": "AAAA",
            }
        )
        for _ in range(200)
    ]  # fmt: skip
    bad = {number for number in range(200) if not dice.randint(0, 40)}
    texts = [json.dumps(each).encode() for each in rows]
    payloads = [text[:-1] if n in bad else text for n, text in enumerate(texts)]

    found = shredded_alike(json_text(_SPARSE), payloads)

    assert {misfit.row for misfit in found.misfits} == bad
    for number, (row, values) in enumerate(zip(rows, found.values.to_pylist(), strict=True)):
        if number in bad:
            assert values is None
            continue
        assert values["r"] == whole(row.get("r"))
        assert values["a"] == ([*map(whole, row["a"])] if "a" in row else None)
        assert (values["b"], values["i"]) == (row.get("b"), row.get("i"))
        assert values["m"] == ([*row["m"].items()] if "m" in row else None)
        chosen = [each for each in (values["u"] or {}).values() if each is not None]
        taken = row.get("u")
        expected = whole(taken) if isinstance(taken, dict) else taken
        assert chosen == ([] if taken is None else [expected])


_TEXT_LIST: Final = array_of("string")
_TEXT_MAP: Final = map_of("string")
_SPELLINGS: Final[dict[str, tuple[AvroSchema, list[str]]]] = {
    "float": (
        "float",
        ["0.1", "0", "-0", "-16777217", "16777217", "16777217.5", "8388608.5", "8388609.5",
         "6.45230507850647", "-0.52559033036232", "8388608.5000000000000001", "999999999999999",
         "1e39", "-1e39", "1e-50", "NaN", '"Infinity"', "null", '"1"', "1.", "01", "1]", "[1]"],
    ),
    "bytes": (
        "bytes",
        ['"AAAA"', '""', '"AAA="', '"AAA"', '"AA=="', '"AA"', '"A"', '"A==="', '"AA=A"', '"AAA-"',
         r'"\u0041AAA"', r'"AA\/A"', '"AAA', '"AAAA"A', "null", "1", "AAAA",
         *(f'"{"QUJD" * n}"' for n in (3, 4, 5, 9, 30)), f'"{"QUJD" * 9}AA=="',
         f'"{"QUJD" * 9}A"'],
    ),
    "fixed": (fixed_of(3), ['"AAAA"', '""', '"AAA="', '"AAAAAAAA"', r'"\u0041AAA"', "null"]),
    "symbol": (enum_of("A", "AA"), ['"A"', '"AA"', '"AAA"', '""', r'"\u0041"', "null", '"A']),
    "texts": (
        _TEXT_LIST,
        ['["a"]', "[]", "[ ]", '[ "a" , "" ]', '["a","b","c","d","e","f"]', r'["\n","a"]',
         '["a",null]', "[null]", '["é","数据"]', f'["{"x" * 70}","y"]', "[" + '"",' * 99 + '""]',
         "null", "[,]", '["a",]', '[,"a"]', '["a" "b"]', '["a","b"', '["a"}', '["a"]]', '["a', "[",
         '"a"', '{"a":"b"}', "[1]", '["a",1]', '[["a"]]', r'["\x"]', '["a\t"]', '[a"]', "]",
         '["\udcff"]', '{"a"]', '1"a"]'],
    ),
    "map": (
        _TEXT_MAP,
        ['{"k":"v"}', "{}", "{ }", '{ "k" : "v" , "l" : "" }', '{"":""}', r'{"\n":"\u00e9"}',
         '{"k":"v","k":"w"}', '{"k":null}', '{"é":"数据"}', f'{{"{"k" * 70}":"{"v" * 70}"}}',
         "{" + ",".join(f'"{n}":"v"' for n in range(99)) + "}", "null", "{,}", '{"k":"v",}',
         '{"k"}', '{"k":}', '{"k","v"}', '{"k" "v"}', '{"k"::"v"}', '{"k":"v" "l":"w"}', '{"k":"v"',
         '{"k":"v"]', '{"k":"v"}}', '{"k":"v', '{"k":', '{"k', "{", '{k:"v"}', '{1:"v"}', '{"k":1}',
         '{"k":{}}', '["k","v"]', '"k"', r'{"\x":"v"}', '{"k":"v\t"}', "}",
         '{"\udcff":"v"}', '{"k":"\udcff"}', '["k":"v"}'],
    ),
    "texts in items": (
        array_of(record(("t", _TEXT_LIST), ("m", _TEXT_MAP), name="I")),
        ['[{"t":["a"],"m":{"k":"v"}},{},{"m":{}},{"t":[],"m":{"k":"v","l":""}}]',
         '[{"t":["a"}]', '[{"t":["a"]},{"m":{"k":"v"]}]', '[{"t":["a"],"m":{"k":null}}]'],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "usual", "spelled"),
    [
        pytest.param(type_, spellings[0], spelled, id=f"{kind}-{number}")
        for kind, (type_, spellings) in _SPELLINGS.items()
        for number, spelled in enumerate(spellings)
    ],
)
def test_any_spelling_among_others(type_: AvroSchema, usual: str, spelled: str) -> None:
    """It has the value that it has alone, or is refused alone, and changes no other value."""
    schema = record(("a", type_), ("b", "int"))
    texts = [usual] * 6 + [spelled] + [usual] * 2
    payloads = [f'{{"a":{text},"b":1}}'.encode(errors="surrogateescape") for text in texts]

    found = shredded_alike(json_text(schema), payloads)

    alone = shredded_alike(json_text(schema), payloads[6:7])
    assert found.rows[6] == alone.rows[0]
    assert [misfit.row for misfit in found.misfits] == [6] * len(alone.misfits)
    assert found.codes == alone.codes
    (other,) = shredded_alike(json_text(schema), payloads[:1]).rows
    assert found.rows[:6] + found.rows[7:] == [other] * 8


def test_ties_of_floats_among_others() -> None:
    """A number is rounded once to a float, also if other numbers are read together with it."""
    texts = ["0.5", "6.45230507850647", "-0.52559033036232", "8388608.5", "8388609.5", "1e-3"]
    payloads = [f'{{"a":{text}}}'.encode() for text in texts for _ in range(5)]

    found = shredded_alike(json_text(record(("a", "float"))), payloads).values.field("a")

    assert found.to_pylist() == [nearest_float(Decimal(text)) for text in texts for _ in range(5)]


_TOGETHER: Final = record(
    ("f", "float"), ("x", "bytes"), ("t", _TEXT_LIST), ("m", _TEXT_MAP),
    ("i", array_of(record(("f", "float"), ("t", _TEXT_LIST), ("m", _TEXT_MAP), name="I"))),
    ("l", "long"),
)  # fmt: skip


def _some_values(dice: random.Random) -> dict[str, Any]:
    def texts() -> list[str]:
        return dice.choices(("", "a", "größer", "n" * 40), k=dice.choice((0, 1, 2, 3, 9)))

    def values() -> dict[str, Any]:
        return {
            "f": dice.randint(-999, 999) / 8,
            "t": texts(),
            "m": dict(zip(map(str, range(9)), texts(), strict=False)),
        }

    row = {
        **values(),
        "x": base64.b64encode(dice.randbytes(dice.choice((0, 1, 9, 40)))).decode(),
        "i": [values() for _ in range(dice.choice((0, 1, 2, 70)))],
        "l": 1,
    }
    missing = dice.random() / 4
    return {
        name: None if dice.random() < missing else row[name]
        for name in ("f", "x", "t", "m", "i", "l")
        if dice.random() > missing
    }


@pytest.mark.parametrize("space", _SPACED.values(), ids=_SPACED)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 63, 64, 65, 128, 200])
def test_lists_and_maps_of_texts(count: int, space: dict[str, Any]) -> None:
    """Any number of records has the values that were written."""
    dice = random.Random(count)
    rows = [_some_values(dice) for _ in range(count)]
    payloads = [json.dumps(row, ensure_ascii=False, **space).encode() for row in rows]

    found = shredded_alike(json_text(_TOGETHER), payloads)

    assert found.misfits == []
    for row, values in zip(rows, found.rows, strict=True):
        data = row.get("x")
        expected = dict.fromkeys("fxtmil") | row | {"x": data and base64.b64decode(data)}
        assert values == expected | ({"x": b""} if data == "" else {})


@pytest.mark.parametrize("space", _SPACED.values(), ids=_SPACED)
def test_lists_and_maps_of_texts_cut_at_each_place(space: dict[str, Any]) -> None:
    """They end with their payload, whatever follows it in the buffer."""
    row = {
        "t": ["a", "größer"], "m": {"k": "v", "l": ""}, "f": 1.5, "x": "QUJDRA==",
        "i": [{"m": {"k": "v"}, "t": [], "f": 2}],
    }  # fmt: skip
    whole = json.dumps(row, ensure_ascii=False, **space).encode()

    for stop in range(len(whole)):
        found = shredded_alike(json_text(_TOGETHER), [whole] * 3 + [whole[:stop]] + [whole] * 2)

        assert [misfit.row for misfit in found.misfits] == [3]
        assert None not in found.rows[:3] + found.rows[4:]


@pytest.mark.parametrize("count", range(40))
def test_base64_of_each_length(count: int) -> None:
    """Padding may be left out, and digits be escapes; nothing else may change."""
    data = bytes(range(251, 251 - count, -1))
    text = base64.b64encode(data).decode()
    bare = text.rstrip("=")
    good = [
        text,
        bare,
        text.replace("/", r"\/"),
        *([r"\u0041" + text[1:]] if text[:1] == "A" else []),
    ]
    bad = [
        text + "=",
        bare + "===",
        bare + "é",
        bare[:1] + "\x7f" + bare[2:],
        "A" * 4 * count + "A",
    ]
    payloads = [f'"{each}"'.encode() for each in good + bad]

    found = shredded_alike(json_text("bytes"), payloads)

    assert found.rows[: len(good)] == [data] * len(good)
    assert found.rows[len(good) :] == [None] * len(bad)
    assert set(found.codes) == {tables.BAD_BASE64}


@pytest.mark.parametrize("count", [3, 12, 15, 16, 33])
def test_base64_with_any_character_at_each_place(count: int) -> None:
    """It is the alphabet that RFC 4648 calls "base64", without line breaks, and no other."""
    digits = string.ascii_letters + string.digits + "+/"
    text = (digits * 2)[count : 2 * count]
    others = [chr(c) for c in range(0x20, 0x80) if chr(c) not in '"\\']
    texts = [text[:n] + each + text[n + 1 :] for n in range(count) for each in others]

    found = shredded_alike(json_text("bytes"), [f'"{each}"'.encode() for each in texts]).rows

    assert found == list(map(_decoded_or_none, texts))


@pytest.mark.parametrize("digits", range(0, 480, 12))
@pytest.mark.parametrize(
    ("items", "code"),
    [
        ("bytes", tables.BAD_BASE64),
        ({"type": "enum", "name": "E", "symbols": ["A" * 36]}, tables.BAD_SYMBOL),
    ],
)
def test_what_is_wrong_behind_texts_that_just_fit(items: object, code: int, digits: int) -> None:
    """What is wrong first is told, however much room the texts before it left."""
    texts = ["A" * 36] * (digits // 36) + ["A" * (digits % 36)] * (items == "bytes")
    payload = json.dumps([*texts, "====A"]).replace('A"]', 'A", x]').encode()

    (misfit,) = shredded_alike(json_text({"type": "array", "items": items}), [payload]).misfits

    assert (misfit.code, misfit.offset) == (code, payload.index(b"="))


def _decoded_or_none(text: str) -> bytes | None:
    """What Python's decoder makes of it, which takes padding for the end, and needs it."""
    bare = text.removesuffix("=") if len(text) % 4 == 0 else text
    if "=" in bare or len(bare) % 4 == 1:
        return None
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except ValueError:
        return None


@given(st.data())
def test_any_value_that_nobody_wants(data: st.DataObject) -> None:
    """Python's `json` finds the same end of it."""
    texts = st.text(st.sampled_from('"\\[]{}:,ax é\n'), max_size=20)
    value = st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner))
    payload = {"x": [data.draw(value)], "a": data.draw(st.integers(0, 99))}

    found = shredded_alike(_without_x(), [json.dumps(payload, ensure_ascii=False).encode()])

    assert found.rows == [{"a": payload["a"]}]


_LETTERS = st.text("ABÜ", min_size=1, max_size=19)


@given(
    symbols=st.lists(_LETTERS, min_size=1, max_size=20, unique=True),
    texts=st.lists(_LETTERS | st.sampled_from(["", '"', "\\", "A\x00", "\\u0041"]), max_size=20),
    is_escaped=st.booleans(),
)
def test_symbols_of_each_length(symbols: list[str], texts: list[str], *, is_escaped: bool) -> None:
    """Few or many, longer than a block or not, and begins of each other."""
    wanted = [*symbols, *texts, *(each[:-1] for each in symbols), *(f"{each}A" for each in symbols)]
    raw = [f'"{each}"'.encode() for each in wanted]
    payloads = raw + [json.dumps(each).encode() for each in wanted if is_escaped]

    found = shredded_alike(json_text(enum_of(*symbols)), payloads).rows

    read = [_text_or_none(each[1:-1]) for each in payloads]
    assert found == [each if each in symbols else None for each in read]
