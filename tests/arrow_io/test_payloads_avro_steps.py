"""AVRO payloads that are read together, field by field, become what each becomes alone.

Only the compiled build reads payloads together, and only eight or more of them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from tests.support.avro_evolutions import evolved
from tests.support.avro_payloads import array_of, avro_long, decimal_of, enum_of, map_of, sized
from tests.support.avro_schemas import schemas
from tests.support.builds import using_build
from tests.support.fastavro_oracle import reading_of, write_datum
from tests.support.payloads import avro, record, shredded, shredded_alike

if TYPE_CHECKING:
    from arrow_io.payloads.program import Program
    from tests.support.payloads import AvroSchema

_ROWS = st.lists(st.integers(0, 3), min_size=8, max_size=150)


def _payloads(data: st.DataObject, writer: AvroSchema) -> list[bytes | None]:
    """Payloads of a few values, in a random order; some are missing."""
    reading = reading_of(writer)
    datums = data.draw(st.lists(reading.datums(reading.schema), min_size=1, max_size=4))
    choices: list[bytes | None] = [write_datum(writer, datum) for datum in datums]
    if data.draw(st.booleans()):
        choices.append(None)
    return [choices[row % len(choices)] for row in data.draw(_ROWS)]


def _check(program: Program, payloads: list[bytes | None]) -> None:
    """Compare what both builds make of all payloads with what each payload becomes alone."""
    together = shredded_alike(program, payloads)
    with using_build("compiled"):
        alone = {payload: shredded(program, [payload]) for payload in set(payloads)}
    assert together.rows == [alone[payload].rows[0] for payload in payloads]
    assert together.codes == [code for payload in payloads for code in alone[payload].codes]


@given(data=st.data())
def test_payloads_of_any_schema(data: st.DataObject) -> None:
    """Payloads that are read together have the values that each has alone."""
    writer = data.draw(schemas(plain=True))

    _check(avro(writer), _payloads(data, writer))


@given(data=st.data())
def test_payloads_of_evolved_schemas(data: st.DataObject) -> None:
    """The same if they are resolved to another schema."""
    writer = data.draw(schemas(plain=True))
    reader = data.draw(evolved(writer))

    _check(avro(writer, reader), _payloads(data, writer))


@given(data=st.data())
def test_damaged_payloads(data: st.DataObject) -> None:
    """A payload with a changed byte is refused alone, or has its own value."""
    writer = data.draw(schemas(max_depth=2, plain=True))
    payloads = _payloads(data, writer)
    row = data.draw(st.integers(0, len(payloads) - 1))
    damaged = bytearray(payloads[row] or b"\0")
    if damaged:
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    payloads[row] = bytes(damaged)

    _check(avro(writer), payloads)


def _nullable(type_: AvroSchema) -> AvroSchema:
    return ["null", type_]


_ITEM = record(("s", _nullable("string")), ("m", _nullable(map_of("long"))), name="Item")
_INNER = record(
    ("t", "string"), ("l", array_of("string")), ("i", _nullable("int")), ("e", enum_of("X", "Y")),
    name="Inner",
)  # fmt: skip
_OUTER = record(("inner", _nullable(_INNER)), ("b", "boolean"), ("t", "string"), name="Outer")
_WHOLE = record(
    ("id", "long"),
    ("outer", [_OUTER, "null"]),
    ("items", _nullable(array_of(_ITEM))),
    ("u", ["null", "long", "string", array_of("string")]),
    ("d", _nullable(decimal_of(20))),
    ("f", _nullable("float")),
)


def _whole(number: int) -> bytes:
    """A record with nulls in many places: texts below null records keep their order."""
    text = sized(f"text {number} ".encode() * (number % 7))
    inner = text + b"\x02" + text + b"\0" + (b"\0" if number % 3 else b"\x02\x09") + b"\x02"
    outer = (b"\0" if number % 2 else b"\x02" + inner) + b"\x01" + text
    entries = b"\x02" + sized(b"key") + avro_long(number) + b"\0"
    item = (b"\x02" + text if number % 2 else b"\0") + (b"\0" if number % 3 else b"\x02" + entries)
    count = number % 5
    items = (avro_long(count) + item * count if count else b"") + b"\0"
    if number % 4 == 1 and count:
        # The block's length in bytes follows a negative count; and there may be more blocks.
        block = avro_long(-count) + avro_long(len(item) * count) + item * count
        items = block + b"\x02" + item + b"\0"
    return b"".join(
        (
            avro_long(number * 123_456_789_123 * (-1) ** number),
            b"\x02" if number % 5 == 0 else b"\0" + outer,
            b"\0" if number % 6 == 0 else b"\x02" + items,
            (b"\0", b"\x02" + avro_long(number), b"\x04" + text, b"\x06\x02" + text + b"\0")[
                number % 4
            ],
            b"\0"
            if number % 3
            else b"\x02" + sized((number % 100).to_bytes(1 + number % 12, "big")),
            b"\0" if number % 2 else b"\x02\0\0\x80\x3f",
        )
    )


@pytest.mark.both_builds
def test_nulls_everywhere() -> None:
    """Nulls, items and blocks differ from payload to payload."""
    payloads: list[bytes | None] = [_whole(number) for number in range(300)]
    payloads[100] = None

    _check(avro(_WHOLE), payloads)


_ENTRY = b"\x02\x02a\x02b\0"
_PAIR = record(("text", "string"), ("flag", "boolean"), name="Pair")


@pytest.mark.both_builds
@pytest.mark.parametrize(
    ("type_", "usual", "unusual", "code"),
    [
        ("long", b"\x02", b"\x80" * 8 + b"\x02", None),
        ("long", b"\x02", b"\xff" * 9 + b"\x01", None),
        ("long", b"\x02", b"\xff" * 9 + b"\x02", tables.BAD_VARINT),
        ("int", b"\x02", avro_long(1 << 31), tables.OUT_OF_RANGE),
        ("boolean", b"\x01", b"\x02", tables.BAD_BOOLEAN),
        ("string", b"\x02a", sized(b"x" * 31 + b"\xc3\xa9"), None),
        ("string", b"\x02a", sized(b"x" * 31 + b"\xc3"), tables.BAD_UTF8),
        ("string", b"\x02a", b"\x82\x00a", None),
        ("string", b"\x02a", b"\x01", tables.BAD_LENGTH),
        ("string", b"\x02a", b"\x04a", tables.BAD_LENGTH),
        (["null", "long"], b"\0", b"\x82\x00\x02", None),
        (["null", "long"], b"\0", b"\x04\x02", tables.BAD_BRANCH),
        (enum_of("A", "B" * 40), b"\0", b"\x02", None),
        (enum_of("A"), b"\0", b"\x02", tables.BAD_SYMBOL),
        (enum_of("A"), b"\0", b"\x01", tables.BAD_SYMBOL),
        (enum_of("A", "B" * 17), b"\0", b"\x82\0", None),
        (enum_of(*(f"S{n}" for n in range(65))), b"\0", b"\x80\x01", None),
        (array_of("null"), b"\0", b"\x04\0", None),
        (array_of("long"), b"\0", avro_long(1 << 62) + b"\0", tables.ENDS_EARLY),
        (array_of("long"), b"\x04\x02\x04\0", b"\x04\x02\x04\x02\x06\0", None),
        (array_of("long"), b"\x04\x02\x04\0", b"\x03\x04\x02\x04\0", None),
        (array_of("string"), b"\x02\x02a\0", b"\x02\x04\xc3\xa9\0", None),
        (array_of("string"), b"\x02\x02a\0", b"\x02\x02\xc3\0", tables.BAD_UTF8),
        (array_of("string"), b"\x02\x02a\0", avro_long(1 << 40), tables.ENDS_EARLY),
        (array_of(["null", "string"]), b"\x02\x02\x02a\0", b"\x02\0\0", None),
        (array_of(["null", "string"]), b"\x02\x02\x02a\0", b"\x02\x04\0", tables.BAD_BRANCH),
        (array_of(array_of("int")), b"\x02\x02\x02\0\0", b"\x04\x02\x04\0\0\0", None),
        (map_of("string"), b"\x02\x02a\x02b\0", b"\x02\x02\xff\x02b\0", tables.BAD_UTF8),
        (map_of("double"), b"\0", b"\x02\x02a" + bytes(9), None),
        (map_of("string"), _ENTRY, b"\x02" + sized(b"k" * 17) + sized(b"v" * 16) + b"\0", None),
        (map_of("string"), _ENTRY, b"\x02" + sized(b"k" * 16) + sized(b"v" * 99) + b"\0", None),
        (map_of("string"), _ENTRY, b"\x02" + sized(b"k" * 99) + b"\x03\0", tables.BAD_LENGTH),
        (map_of("string"), _ENTRY, b"\x02\x02a\x7e", tables.BAD_LENGTH),
        (map_of("string"), _ENTRY, b"\x02\x02a\x02b\x02\x02c\x02d\0", None),
        (map_of("string"), _ENTRY, b"\x12" + b"\x02a\x02b" * 9 + b"\0", None),
        (map_of("bytes"), _ENTRY, b"\x02\x02a\x02\xff\0", None),
        (map_of("int"), b"\x02\x02a\x02\0", b"\x04\x02a\x02\x02b\x01\0", None),
        (map_of("int"), b"\x02\x02a\x02\0", b"\x02\x02a" + avro_long(1 << 31), tables.OUT_OF_RANGE),
        (map_of("long"), b"\x02\x02a\x02\0", b"\x02\x02a" + b"\xff" * 9 + b"\1\0", None),
        (map_of(["null", "long"]), b"\x02\x02a\0\0", b"\x02\x02a\x02\x02\0", None),
        (map_of(_PAIR), b"\x02\x02a\x02b\x01\0", b"\x02\x02a\x02b\x02\0", tables.BAD_BOOLEAN),
        (array_of(["null", "int"]), b"\4\0\2\2\0", b"\2\2\2\2\2\4\0", None),
        (array_of(_PAIR), b"\x02\x02b\x01\0", b"\x04\x02b\x01\x02\xff\0\0", tables.BAD_UTF8),
        (array_of(["null", _PAIR]), b"\x02\x02\x02b\x01\0", b"\x04\0\x02\x02b\0\0", None),
        (array_of(["null", _PAIR]), b"\x02\0\0", b"\x02\x04\0", tables.BAD_BRANCH),
        (decimal_of(12), b"\x02\xff", b"\x10" + b"\xff" * 7 + b"\x9c", None),
        (decimal_of(12), b"\x02\xff", b"\x12" + b"\xff" * 8 + b"\x9c", None),
        (decimal_of(12), b"\x02\xff", b"\x24" + b"\xff" * 18, None),
        (decimal_of(2), b"\x02\x63", b"\x02\x64", tables.OUT_OF_RANGE),
        (decimal_of(2), b"\x02\x63", b"\x02\x9c", tables.OUT_OF_RANGE),
        (decimal_of(18), b"\x02\x63", b"\x12\x01" + bytes(8), tables.OUT_OF_RANGE),
        (decimal_of(30), b"\x02\x63", b"\x12\x01" + bytes(8), None),
        (decimal_of(2), b"\x02\x63", b"\0", tables.BAD_LENGTH),
        (["null", decimal_of(2)], b"\0", b"\x02\x02\x9d", None),
        (["null", "long", "string"], b"\0", b"\x04\x02a", None),
        (["null", "long", "string"], b"\x02\x02", b"\0", None),
        (["null", "long", "string"], b"\x02\x02", b"\x06", tables.BAD_BRANCH),
    ],
)
@pytest.mark.parametrize("place", [0, 5, 63, 99])
def test_one_unusual_payload(
    type_: AvroSchema, usual: bytes, unusual: bytes, code: int | None, place: int
) -> None:
    """One payload that cannot be read together with others does not change theirs."""
    payloads: list[bytes | None] = [usual + sized(b"after")] * 100
    payloads[place] = unusual + sized(b"after")
    program = avro(record(("field", type_), ("after", "string")))

    _check(program, payloads)
    assert shredded_alike(program, payloads).codes == ([] if code is None else [code])


_KEYS = (
    "",
    "a",
    "b",
    "ab",
    "long key 1",
    "long key 2",
    "1 with the same end",
    "2 with the same end",
)


@pytest.mark.both_builds
@given(data=st.data())
def test_equal_keys(data: st.DataObject) -> None:
    """Of entries with the same key in a map, the last remains; maps of any length."""
    number = st.integers(0, 70).map("k{}".format)
    keys = st.lists(st.sampled_from(_KEYS) | number, max_size=70)
    drawn = data.draw(st.lists(st.lists(keys, min_size=1, max_size=4), min_size=1, max_size=3))
    maps = [each for choices in drawn for each in choices * 5]
    payloads = [_map_of(each) for each in maps]

    values = shredded_alike(avro(record(("m", map_of("long")))), payloads).values

    expected = [list({key: n for n, key in enumerate(each)}.items()) for each in maps]
    assert values.field("m").to_pylist() == expected


def _map_of(keys: list[str]) -> bytes:
    """A map of keys to their numbers."""
    entries = b"".join(sized(key.encode()) + avro_long(n) for n, key in enumerate(keys))
    return (avro_long(len(keys)) + entries if keys else b"") + b"\0"


@pytest.mark.both_builds
@pytest.mark.parametrize("counts", [(63, 64, 65), (62, 130, 190, 0), (1, 2, 0, 64, 128)])
@pytest.mark.parametrize(
    ("item", "value", "expected"),
    [
        ("long", b"\x06", 3),
        ("float", b"\0\0\xc0\x3f", 1.5),
        (_nullable("double"), b"\x02\0\0\0\0\0\0\xf8\x3f", 1.5),
        ("boolean", b"\x01", True),
        (decimal_of(12, 2), b"\x04\xff\x7f", Decimal("-1.29")),
        (decimal_of(38, 0), b"\x12\x01" + bytes(8), Decimal(1 << 64)),
        (enum_of("X", "YY"), b"\x02", "YY"),
        (_nullable("string"), b"\x02\x02x", "x"),
        (record(("n", "int"), ("f", "float")), b"\x06\0\0\xc0\x3f", {"n": 3, "f": 1.5}),
        (
            record(("s", "string"), ("d", decimal_of(38, 0)), ("f", "float")),
            b"\x02x\x12\x01" + bytes(8) + b"\0\0\xc0\x3f",
            {"s": "x", "d": Decimal(1 << 64), "f": 1.5},
        ),
        (
            record(("e", enum_of("X", "YY")), ("d", _nullable(decimal_of(4, 1)))),
            b"\x02\x02\x02\x81",
            {"e": "YY", "d": Decimal("-12.7")},
        ),
    ],
)
def test_many_items(
    counts: tuple[int, ...], item: AvroSchema, value: bytes, expected: object
) -> None:
    """Arrays may have more items than are sorted for the rounds at once."""
    payloads = [
        (avro_long(count) + value * count if count else b"") + b"\0" for count in counts * 20
    ]

    rows = shredded_alike(avro(record(("l", array_of(item)))), payloads).rows

    assert rows == [{"l": [expected] * count} for count in counts * 20]


@pytest.mark.both_builds
@pytest.mark.parametrize(
    ("item", "sound", "odd", "code"),
    [
        (decimal_of(2, 0), b"\x02\x63", b"\x02\x64", tables.OUT_OF_RANGE),
        (decimal_of(2, 0), b"\x02\x63", b"\0", tables.BAD_LENGTH),
        (decimal_of(2, 0), b"\x02\x9d", b"\x02\x9c", tables.OUT_OF_RANGE),
        ("boolean", b"\x01", b"\x02", tables.BAD_BOOLEAN),
        (enum_of("X", "YY"), b"\x02", b"\x04", tables.BAD_SYMBOL),
        (enum_of("X", "YY"), b"\x02", b"\x01", tables.BAD_SYMBOL),
    ],
)
@pytest.mark.parametrize("beside", [(), (("s", "string"),)])
def test_an_odd_item_among_many(
    beside: tuple[tuple[str, str], ...], item: AvroSchema, sound: bytes, odd: bytes, code: int
) -> None:
    """Only the payload with an item that does not fit is refused, with or without texts."""
    schema = avro(record(("l", array_of(record(*beside, ("v", item))))))
    text = b"\x02x" if beside else b""
    payloads = [avro_long(n) + (text + sound) * n + b"\0" for n in (1, 2, 3, 4) * 12]
    payloads[17] = avro_long(2) + text + sound + text + odd + b"\0"

    shredded = shredded_alike(schema, payloads)

    assert [(each.row, each.code) for each in shredded.misfits] == [(17, code)]


@pytest.mark.both_builds
@pytest.mark.parametrize("at", range(16))
def test_characters_across_texts(at: int) -> None:
    """Texts that are UTF-8 only one after another are refused."""
    payloads: list[bytes | None] = [sized(b"plain") for _ in range(16)]
    payloads[at] = sized("süß".encode()[:-1])
    payloads[(at + 1) % 16] = sized("süß".encode()[-1:] + b"!")

    together = shredded_alike(avro(record(("t", "string"))), payloads)

    assert sorted(together.codes) == [tables.BAD_UTF8, tables.BAD_UTF8]
