"""AVRO is read value by value, exactly, and refused where it does not fit.

Each case is written by hand, byte by byte, and read by both builds.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pytest
from fastavro.schema import SchemaParseException
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.payloads import tables
from arrow_io.payloads.avro import avro_program, avro_shape
from arrow_io.payloads.avro_schema import parse_avro
from tests.support.avro_evolutions import evolved
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
from tests.support.avro_schemas import NoPlaceError, schemas
from tests.support.fastavro_oracle import REFUSALS, read_datum, reading_of, write_datum
from tests.support.golden import golden_topic, row_payload
from tests.support.golden_values import golden_schema
from tests.support.payloads import avro, record, shredded_alike

if TYPE_CHECKING:
    from tests.support.avro_schemas import Schema


_UUID = "d9b84546-44ef-7007-601a-1e2082c668e2"
_NAN_BITS = (0x7FC00000, 0x7F800001, 0xFFC12345, 0x7F800000, 0x00000001, 0x80000000)


def _longs(*numbers: int) -> bytes:
    return b"".join(map(avro_long, numbers))


@pytest.mark.parametrize(
    ("writer", "reader", "payload", "expected"),
    [
        ("string", "bytes", sized(b"text"), b"text"),
        ("bytes", "string", sized("поток".encode()), "поток"),
        ("null", ["null", "int"], b"", None),
        (record(), record(), b"", True),
        (fixed_of(2), fixed_of(2, "G"), b"ab", b"ab"),
        (fixed_of(0), fixed_of(0), b"", b""),
        (fixed_of(16, logicalType="uuid"), None, bytes.fromhex(_UUID.replace("-", "")), _UUID),
        (fixed_of(16, logicalType="uuid"), fixed_of(16), b"x" * 16, b"x" * 16),
        ({"type": "string", "logicalType": "uuid"}, None, sized(b"as it is"), "as it is"),
        (enum_of("A", "B"), enum_of("B", "A"), avro_long(1), "B"),
        (enum_of("A", "B"), enum_of("C", "D", default="D"), avro_long(0), "D"),
        (array_of("int"), None, _longs(1, 7, 1, 8) + b"\0", [7, 8]),
        (array_of("int"), None, _longs(-2, 2, 7, 8) + b"\0", [7, 8]),
        (array_of("null"), None, avro_long(3) + b"\0", [None, None, None]),
        (map_of("int"), None, avro_long(1) + sized(b"k") + avro_long(7) + b"\0", {"k": 7}),
        (map_of("int"), None, _longs(-1, 3) + sized(b"k") + _longs(7, 0), {"k": 7}),
        (map_of("int"), map_of("string"), b"\0", {}),
    ],
    ids=str,
)
def test_values(writer: object, reader: object, payload: bytes, expected: object) -> None:
    """Each type, and each that it may be read as."""
    assert value_of(writer, payload, reader) == expected


def test_floats_keep_their_bits() -> None:
    """Also of numbers that are none; as doubles they become quiet, as everywhere."""
    payloads = [bits.to_bytes(4, "little") for bits in _NAN_BITS]

    values = shredded_alike(avro("float"), payloads).values
    assert bytes(values.buffers()[1])[: 4 * len(payloads)] == b"".join(payloads)
    doubles = shredded_alike(avro("float", "double"), payloads).rows
    assert doubles == ["NaN", "NaN", "NaN", float("inf"), 2**-149, "-0.0"]


def test_decimals_are_read_as_bytes_and_back() -> None:
    """A reader that knows nothing of decimals has their bytes; one that does reads plain bytes."""
    assert value_of(decimal_of(4, 2), sized(b"\x04\xd2"), "bytes") == b"\x04\xd2"
    assert value_of("bytes", sized(b"\x04\xd2"), decimal_of(4, 2)) == Decimal("12.34")
    fixed = fixed_of(3, logicalType="decimal", precision=4, scale=2)
    assert value_of(fixed, b"\xff\xfb\x2e") == Decimal("-12.34")
    assert value_of(fixed_of(3), b"\xff\xfb\x2e", fixed) == Decimal("-12.34")


@pytest.mark.parametrize("precision", [1, 18, 19, 20, 37, 38])
@pytest.mark.parametrize("padding", [0, 1, 20])
def test_limits_of_decimals(precision: int, padding: int) -> None:
    """All numbers of so many digits fit, the next do not, however many bytes spell them."""
    most = 10**precision - 1

    def spelled(number: int) -> bytes:
        return sized(number.to_bytes(number.bit_length() // 8 + 1 + padding, signed=True))

    numbers = [0, 1, -1, most, -most, most + 1, -most - 1, 2**127, -(2**127), 2**128, -(2**200)]
    found = shredded_alike(avro(decimal_of(precision)), [spelled(number) for number in numbers])

    assert found.rows == [Decimal(number) for number in numbers[:5]] + [None] * 6
    assert found.codes == [tables.OUT_OF_RANGE] * 6


def test_a_decimal_of_no_bytes() -> None:
    """As Java's BigInteger has it, no bytes are no number."""
    assert code_of(decimal_of(4), b"\0") == tables.BAD_LENGTH


@pytest.mark.parametrize(
    ("writer", "reader", "number", "expected"),
    [
        ("date", "date", -1, -1),
        ("time-millis", "time-millis", 86_399_999, 86_399_999_000),
        ("time-millis", "time-micros", 5, 5_000),
        ("time-micros", "time-micros", 86_400 * 10**6 - 1, 86_400 * 10**6 - 1),
        (
            "timestamp-millis",
            "timestamp-millis",
            -(2**63) // 1000 + 1,
            (-(2**63) // 1000 + 1) * 1000,
        ),
        ("timestamp-millis", "timestamp-micros", 7, 7_000),
        ("timestamp-millis", "timestamp-nanos", 7, 7_000_000),
        ("timestamp-micros", "timestamp-millis", 7, 7),
        ("timestamp-micros", "timestamp-nanos", -7, -7_000),
        ("timestamp-nanos", "timestamp-millis", -7_000, -7),
        ("timestamp-nanos", "timestamp-micros", 7_000, 7),
        ("timestamp-nanos", "timestamp-nanos", 2**63 - 1, 2**63 - 1),
        ("local-timestamp-millis", "local-timestamp-nanos", 7, 7_000_000),
        ("local-timestamp-nanos", "local-timestamp-micros", 7_000, 7),
    ],
)
def test_times_in_other_units(writer: str, reader: str, number: int, expected: int) -> None:
    """A time that was written in one unit and is read in another is the same time."""
    assert value_of(time_of(writer), avro_long(number), time_of(reader)) == expected


@pytest.mark.parametrize("reader", ["timestamp-nanos", "timestamp-micros", "time-micros"])
def test_plain_numbers_read_as_times(reader: str) -> None:
    """A writer that says nothing of times writes them in the reader's unit."""
    assert value_of("long", avro_long(7), time_of(reader)) == 7
    assert value_of("int", avro_long(7), time_of(reader)) == 7


@pytest.mark.parametrize(
    ("writer", "reader", "number", "code"),
    [
        ("time-millis", "time-millis", 86_400_000, tables.OUT_OF_RANGE),
        ("time-millis", "time-millis", -1, tables.OUT_OF_RANGE),
        ("time-micros", "time-micros", 86_400 * 10**6, tables.OUT_OF_RANGE),
        ("timestamp-millis", "timestamp-millis", 2**63 // 1000 + 1, tables.OUT_OF_RANGE),
        ("timestamp-millis", "timestamp-nanos", 2**63 // 10**6 + 1, tables.OUT_OF_RANGE),
        ("timestamp-micros", "timestamp-nanos", -(2**63), tables.OUT_OF_RANGE),
        ("timestamp-nanos", "timestamp-micros", 7_001, tables.TOO_PRECISE),
        ("timestamp-nanos", "timestamp-millis", -1, tables.TOO_PRECISE),
        ("date", "date", 2**31, tables.OUT_OF_RANGE),
    ],
)
def test_times_that_do_not_fit(writer: str, reader: str, number: int, code: int) -> None:
    """A time beyond its day or its column is refused, and so are digits that would be lost."""
    assert code_of(time_of(writer), avro_long(number), time_of(reader)) == code


def test_nanoseconds_in_microseconds() -> None:
    """The unit that was asked for takes what it can hold exactly, to its limits."""
    program = avro(time_of("timestamp-nanos"), time_unit="us")
    found = shredded_alike(
        program, [avro_long(n) for n in (1_000, 999, -(2**63) + 808, 2**63 - 808)]
    )

    assert found.rows == [1, None, -(2**63 - 808) // 1000, (2**63 - 808) // 1000]
    assert found.codes == [tables.TOO_PRECISE]


def test_an_int_is_of_32_bits() -> None:
    """A longer number in an int is refused, though Avro's bytes have room for it."""
    found = shredded_alike(
        avro("int"), [avro_long(2**31), avro_long(-(2**31) - 1), avro_long(2**31 - 1)]
    )

    assert found.codes == [tables.OUT_OF_RANGE] * 2
    assert found.rows[2] == 2**31 - 1


_HUGE = 1 << 62


@pytest.mark.parametrize(
    ("schema", "payload", "code"),
    [
        ("string", avro_long(_HUGE), tables.BAD_LENGTH),
        ("string", avro_long(-1), tables.BAD_LENGTH),
        ("string", avro_long(2) + b"a", tables.BAD_LENGTH),
        ("bytes", avro_long(-(2**63)), tables.BAD_LENGTH),
        ("string", sized(b"\xff"), tables.BAD_UTF8),
        ("string", sized(b"\xed\xa0\x80"), tables.BAD_UTF8),
        (fixed_of(5), b"1234", tables.ENDS_EARLY),
        (fixed_of(1 << 30), b"1234", tables.ENDS_EARLY),
        ("double", b"1234567", tables.ENDS_EARLY),
        ("float", b"123", tables.ENDS_EARLY),
        ("boolean", b"", tables.ENDS_EARLY),
        ("boolean", b"\2", tables.BAD_BOOLEAN),
        ("int", b"", tables.ENDS_EARLY),
        ("int", b"\x80", tables.ENDS_EARLY),
        ("int", b"\0\0", tables.TRAILING),
        ("null", b"\0", tables.TRAILING),
        ("long", b"\xff" * 9 + b"\x02", tables.BAD_VARINT),
        ("long", b"\xff" * 10 + b"\x01", tables.BAD_VARINT),
        ("long", b"\x80" * 20, tables.BAD_VARINT),
        (array_of("int"), avro_long(_HUGE) + b"\0", tables.ENDS_EARLY),
        (array_of("int"), avro_long(-_HUGE) + b"\0", tables.BAD_LENGTH),
        (array_of("int"), avro_long(-(2**63)) + b"\0", tables.BAD_LENGTH),
        (array_of("int"), avro_long(-2) + avro_long(-9) + b"\0", tables.ENDS_EARLY),
        (array_of("null"), avro_long(_HUGE) + b"\0", tables.TOO_MANY_ITEMS),
        (array_of(record(name="X")), avro_long(_HUGE) + b"\0", tables.TOO_MANY_ITEMS),
        (array_of(fixed_of(0)), avro_long(_HUGE) + b"\0", tables.TOO_MANY_ITEMS),
        (
            array_of(array_of("null")),
            avro_long(30) + (avro_long(65_000) + b"\0") * 30 + b"\0",
            tables.TOO_MANY_ITEMS,
        ),
        (map_of("null"), avro_long(_HUGE) + b"\0", tables.ENDS_EARLY),
        (map_of("int"), avro_long(1) + avro_long(-1), tables.BAD_LENGTH),
        (map_of("int"), avro_long(1) + sized(b"\xff") + b"\0\0", tables.BAD_UTF8),
        (decimal_of(4), avro_long(_HUGE), tables.BAD_LENGTH),
    ],
    ids=str,
)
def test_hostile_payloads(schema: object, payload: bytes, code: int) -> None:
    """Whatever a payload claims is compared with what it is, given or read over."""
    inside = record(("x", schema), ("a", "int"))
    assert code_of(schema, payload) == code
    skipped = shredded_alike(avro(inside, record(("a", "int"))), [payload])
    if code not in {tables.BAD_UTF8, tables.TRAILING}:
        assert len(skipped.misfits) == 1


def test_overlong_numbers() -> None:
    """A number may have more bytes than it needs, up to ten, as Java's decoder allows."""
    assert value_of("int", b"\x82\x80\x80\x00") == 1
    assert value_of("long", b"\x80" * 9 + b"\x01") == 2**62


def test_items_without_bytes_are_believed_to_a_bound() -> None:
    """Some are, since an array of nulls is one; each payload has its own bound."""
    found = shredded_alike(
        avro(array_of("null")), [avro_long(n) + b"\0" for n in (65_000, 65_536, 65_537)]
    )

    assert [row and len(row) for row in found.rows] == [65_000, 65_536, None]
    assert found.codes == [tables.TOO_MANY_ITEMS]


# Any schema


_UNITS: Final = st.sampled_from(("ns", "us"))


@given(data=st.data(), time_unit=_UNITS)
def test_what_fastavro_writes(data: st.DataObject, time_unit: str) -> None:
    """Data of any schema are read as what was written, or do not fit their columns."""
    schema = data.draw(schemas())
    reading = reading_of(schema, time_unit)
    datums = data.draw(st.lists(reading.datums(reading.schema), min_size=1, max_size=3))
    expected = []
    for datum in datums:
        try:
            expected.append(reading.as_arrow(datum))
        except NoPlaceError:
            expected.append(None)

    found = shredded_alike(
        avro(schema, time_unit=time_unit), [write_datum(schema, datum) for datum in datums]
    )

    assert found.rows == expected
    assert {misfit.code for misfit in found.misfits} <= {tables.OUT_OF_RANGE, tables.TOO_PRECISE}
    assert [misfit.row for misfit in found.misfits] == [
        row for row, value in enumerate(expected) if value is None
    ]


@given(data=st.data())
def test_evolved_schemas(data: st.DataObject) -> None:
    """What one schema wrote is read by another as fastavro reads it, or both refuse it."""
    writer = data.draw(schemas(plain=True))
    reader = data.draw(evolved(writer))
    if isinstance(reader, list):
        reader = record(("only", reader), name="Whole")
        writer = record(("only", writer), name="Whole")
    try:
        reading = reading_of(reader)
    except SchemaParseException:
        pytest.fail("the strategy gives schemas that are none")
    written = reading_of(writer)
    datums = data.draw(st.lists(written.datums(written.schema), min_size=1, max_size=3))
    payloads = [write_datum(writer, datum) for datum in datums]
    expected = []
    for payload in payloads:
        try:
            expected.append(reading.as_arrow(read_datum(writer, payload, reader)))
        except REFUSALS:
            expected.append(None)

    found = shredded_alike(avro(writer, reader), payloads)

    assert found.rows == expected
    shape = avro_shape(parse_avro(json.dumps(reader)), "ns")
    for child in shape.children:
        one = shredded_alike(
            avro_program(parse_avro(json.dumps(writer)), shape.select([child.name])), payloads
        )
        for row, whole in enumerate(expected):
            assert whole is None or one.rows[row] == {child.name: whole[child.name]}


def _mutations(payload: bytes) -> list[bytes]:
    """Every cut, every byte changed in three ways, and one byte too many."""
    cuts = [payload[:stop] for stop in range(len(payload))]
    flips = [
        payload[:place] + bytes([payload[place] ^ mask]) + payload[place + 1 :]
        for place in range(len(payload))
        for mask in (0x01, 0x80, 0xFF)
    ]
    return [*cuts, *flips, payload + b"\0"]


def _check_as_the_oracle(schema: Schema, payloads: list[bytes]) -> None:
    """What we take of any bytes, fastavro takes for the same."""
    reading = reading_of(schema)
    found = shredded_alike(avro(schema), payloads)
    refused = {misfit.row for misfit in found.misfits}
    for row, payload in enumerate(payloads):
        if row not in refused:
            assert found.rows[row] == reading.as_arrow(read_datum(schema, payload)), payload
    for misfit in found.misfits:
        assert misfit.code in tables.REASONS
        assert 0 <= misfit.offset <= len(payloads[misfit.row])


@given(data=st.data())
def test_changed_bytes(data: st.DataObject) -> None:
    """Each cut and each changed byte is refused, or gives what fastavro gives."""
    schema = data.draw(schemas(max_depth=2, plain=True))
    reading = reading_of(schema)
    payload = write_datum(schema, data.draw(reading.datums(reading.schema)))

    _check_as_the_oracle(schema, _mutations(payload[:60]))


@given(data=st.data(), payloads=st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes(data: st.DataObject, payloads: list[bytes]) -> None:
    """Random bytes are refused, or give what fastavro gives."""
    _check_as_the_oracle(data.draw(schemas(plain=True)), payloads)


@given(data=st.data(), payloads=st.lists(st.binary(max_size=30), max_size=20))
def test_random_bytes_of_evolved_schemas(data: st.DataObject, payloads: list[bytes]) -> None:
    """Random bytes that are resolved to another schema never part the builds."""
    writer = data.draw(schemas(plain=True))

    shredded_alike(avro(writer, data.draw(evolved(writer))), payloads)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["avro-orders", "avro-logical", "clients-cpp-avro"])
def test_every_change_of_real_payloads(name: str) -> None:
    """Every cut and every changed byte of payloads that Pulsar's clients wrote."""
    topic = golden_topic(name)
    schema = json.loads(golden_schema(topic).reader.data)
    payloads = {row_payload(row) for row in topic.messages()}

    for payload in sorted(each for each in payloads if each)[:40]:
        _check_as_the_oracle(schema, _mutations(payload))
