"""Payloads that are read in step, each field of all of them before the next, give what each gives.

What was read in step is told from what was not by a program that has two steps exchanged.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any, Final

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from arrow_io.payloads import tables
from tests.support.benchmark_ledgers import PROTOBUF_LZ4, READING_SCHEMA
from tests.support.builds import BUILDS, using_build
from tests.support.payloads import shredded, shredded_alike
from tests.support.protobuf_files import ENUM, data_of, file_of, nested, sized
from tests.support.protobuf_payloads import library_class, library_value, program_of
from tests.support.protobuf_strategies import tag
from tests.support.pulsar_proto import varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.payloads.program import Program


_F: Final = FieldDescriptorProto
_ONE, _TWO = b"\x08\x01", b"\x10\x02"
_BEHIND: Final = bytes(16)
_REPEATED: Final = {"label": _F.LABEL_REPEATED}


@pytest.fixture(params=[1, 4, 8], autouse=True)
def lanes(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of messages that steps read at once, if the processor can."""
    compiled = BUILDS["compiled"].payloads("protobuf")
    compiled.choose_steps(request.param)
    yield request.param
    compiled.choose_steps(8)


def test_number_of_lanes(lanes: int) -> None:
    """The tests here compare all kinds of steps."""
    assert BUILDS["compiled"].payloads("protobuf").choose_steps(lanes) in {1, lanes // 2, lanes}
    assert BUILDS["pure"].payloads("protobuf").choose_steps(lanes) == 1


def _program(**more: Any) -> Program:  # noqa: ANN401 - of fields
    """Of a message with the numbers `a` and `b` and more fields."""
    return program_of(data_of(file_of(M={"a": _F.TYPE_INT32, "b": _F.TYPE_INT32, **more})))


def _is_in_step(program: Program, payloads: Sequence[bytes], between: bytes = _BEHIND) -> bool:
    """Whether the compiled build reads payloads in step; `a` is 1 and `b` is 2 in the last."""
    link = program.links[program.ops[tables.D] + tables.STEPS] + 2
    first, second = link + tables.STEP_OP, link + tables.STEP_WIDTH + tables.STEP_OP
    ops = program.links[first], program.links[second]
    program.links[first], program.links[second] = ops[1], ops[0]
    with using_build("compiled"):
        found = shredded(program, payloads, between=between).rows[-1]
    program.links[first], program.links[second] = ops
    assert {found["a"], found["b"]} == {1, 2}
    return bool(found["a"] == 2)


@pytest.mark.parametrize(
    "among",
    [
        _ONE,
        b"",
        _ONE + sized(3, b"x" * 127) + b"\x20\x01",
        _ONE + sized(3, b"x" * 128) + b"\x20\x01",
        _ONE + sized(3, b"x" * 20_000),
        b"\x08" + varint((1 << 64) - 1) + _TWO,
        b"\x08" + varint(5, 9) + _TWO,
        b"\x1a\x83\x80\x80\x80\x00abc",
        b"\x20\x81\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    ],
)
@pytest.mark.parametrize("place", [0, 5, 63])
def test_payloads_in_step(among: bytes, place: int) -> None:
    """Whatever fields are there, as long as they are in order."""
    program = _program(text=_F.TYPE_STRING, number=_F.TYPE_UINT64)
    payloads = [_ONE + _TWO] * 64
    payloads[place] = among
    message_class = library_class(data_of(file_of(M={"a": 5, "b": 5, "text": 9, "number": 4})))

    assert _is_in_step(program, [*payloads, *[_ONE + _TWO] * 8])
    found = shredded_alike(program, payloads)

    assert found.rows == [library_value(message_class.FromString(each)) for each in payloads]


@pytest.mark.parametrize(
    "odd",
    [
        _TWO + _ONE,
        _ONE + _ONE,
        _ONE + _TWO + b"\x78\x01",
        b"\x08\x81\x00" + _TWO + b"\x1a",
        _ONE + b"\x10" + b"\x80" * 10 + b"\x00",
        b"\x1a\x83\x80\x80\x80\x80\x00abc",
        b"\x1a\xff\xff\xff\xff\x0f",
        b"\x88\x00\x01" + _TWO,
        _ONE + b"\x11",
    ],
)
def test_payloads_out_of_step(odd: bytes) -> None:
    """What is unusual is read otherwise, as are the next payloads, and then in step again."""
    program = _program(text=_F.TYPE_STRING)
    ordered = [_ONE + _TWO] * 64

    assert not _is_in_step(program, [odd, *ordered[:-1]])
    assert not _is_in_step(program, [odd, *ordered[:-1], *ordered * 14])
    assert _is_in_step(program, [odd, *ordered[:-1], *ordered * 16])
    found = shredded_alike(program, [*ordered, odd, *ordered])
    alone = shredded_alike(program, [odd])

    assert found.codes == alone.codes
    assert found.rows == [*[{"a": 1, "b": 2, "text": ""}] * 64, *alone.rows, *found.rows[:64]]


def test_no_bytes_behind() -> None:
    """Payloads are not read in step if they end where the bytes do."""
    assert not _is_in_step(_program(), [_ONE + _TWO] * 10, between=b"")
    assert not _is_in_step(_program(), [_ONE + _TWO] * 10, between=bytes(15))
    assert _is_in_step(_program(), [_ONE + _TWO] * 10, between=bytes(16))


def test_few_fields_of_many() -> None:
    """If most fields are not there, looking for them takes longer than looking what is there."""
    program = _program(**{f"c{n}": _F.TYPE_INT64 for n in range(8)})

    assert _is_in_step(program, [_ONE + _TWO] * 64)
    assert not _is_in_step(program, [_ONE + _TWO] * 128)


def test_more_fields_than_have_a_bit() -> None:
    """Payloads of a wide message are read in steps, too."""
    program = _program(**{f"c{n}": _F.TYPE_INT64 for n in range(tables.MAX_FIELD_BITS)})
    rest = b"".join(tag(number, 0) + b"\x05" for number in range(3, tables.MAX_FIELD_BITS + 3))

    assert _is_in_step(program, [_ONE + _TWO + rest] * 64)
    assert not _is_in_step(program, [_ONE + _TWO + rest + rest[-3:]] * 64)


_NUMBERS: Final = (
    *(_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_SINT32, _F.TYPE_SINT64, _F.TYPE_UINT32),
    *(_F.TYPE_UINT64, _F.TYPE_BOOL, _F.TYPE_DOUBLE, _F.TYPE_FIXED32, _F.TYPE_FIXED64, _F.TYPE_ENUM),
)
_VARINTS: Final = (
    0,
    1,
    0x7F,
    0x80,
    -1,
    5,
    1 << 14,
    1 << 20,
    1 << 31,
    1 << 48,
    1 << 56,
    (1 << 63) - 1,
)


@pytest.mark.parametrize("type_", _NUMBERS)
@pytest.mark.parametrize("number", [1, 17, 3000])
def test_numbers_in_steps(type_: int, number: int) -> None:
    """Messages have a number, lack it, or end within it, at any place among eight."""
    dice = random.Random(number)
    field = {**(ENUM if type_ == _F.TYPE_ENUM else {}), "type": type_, "number": number}
    file = file_of(M={"a": field, "n": nested("t.N", number=4000)}, N={"x": field})
    message_class = library_class(data_of(file))
    wire_types: dict[int, int] = {_F.TYPE_DOUBLE: 1, _F.TYPE_FIXED64: 1, _F.TYPE_FIXED32: 5}

    def value() -> bytes:
        bits = dice.choice(_VARINTS) & (1 << 64) - 1
        wire_type = wire_types.get(type_, 0)
        body = bits.to_bytes(8, "little")[: 4 if wire_type == 5 else 8]
        field_bytes = tag(number, wire_type) + (body if wire_type else varint(bits))
        return field_bytes if dice.random() < 0.7 else b""

    payloads = [
        value() + (sized(4000, value()) if dice.random() < 0.7 else b"") for _ in range(300)
    ]
    cuts = [payload[: dice.randrange(len(payload) + 1)] for payload in payloads[:64]]
    program = program_of(data_of(file))

    found = shredded_alike(program, payloads)

    assert found.rows == [library_value(message_class.FromString(each)) for each in payloads]
    for place in range(0, 64, 13):
        shredded_alike(program, [*payloads[:place], cuts[place], *payloads[place : 70 - place]])


@pytest.mark.parametrize("number", [1, 17, 3000])
def test_items_in_steps(number: int) -> None:
    """Messages have any number of items of any length, or end within one that seems to go on."""
    dice = random.Random(number)
    data = data_of(file_of(M={"a": {"type": _F.TYPE_STRING, "number": number, **_REPEATED}}))
    message_class = library_class(data)
    program = program_of(data)

    def payload(lengths: Sequence[int], most: int) -> bytes:
        count = dice.randrange(most + 1)
        return b"".join(sized(number, b"x" * dice.choice(lengths)) for _ in range(count))

    payloads = [payload((0, 1, 16, 17, 32), 3) for _ in range(200)]
    payloads += [payload((5, 33, 127, 128), 9) for _ in range(100)]

    found = shredded_alike(program, payloads)

    assert found.rows == [library_value(message_class.FromString(each)) for each in payloads]
    between = sized(number, b"z") * 20
    for place in range(0, 64, 5):
        cut = payloads[place] + tag(number, 2) + dice.choice((b"", b"\x05", b"\x05xx", b"\xff"))
        among = [*payloads[:place], cut, *payloads[place : 70 - place]]
        results = []
        for build in BUILDS:
            with using_build(build):
                results.append(shredded(program, among, between=between))
        assert results[0].misfits == results[1].misfits
        assert results[0].rows == results[1].rows


_TIMES: Final = (
    b"",
    b"\x08\x05",
    b"\x10\x05",
    b"\x08\x05\x10\x00",
    b"\x10\x05\x08\x05",
    b"\x08\x05\x08\x06",
    b"\x08\x05\x10\x05\x18\x05",
    *(
        b"\x08" + varint(seconds & (1 << 64) - 1) + b"\x10" + varint(nanos & (1 << 64) - 1)
        for seconds in (1, 1_700_000_000, (1 << 33) - 1, 1 << 33, -1)
        for nanos in (1, 1000, 999_999_000, 999_999_999, 10**9, -1)
    ),
    *(b"\x08\x85\x80\x80\x80\x80\x80\x80\x00", b"\x08\x85", b"\x08\x05\x10", b"\x08\x05\x10\x85"),
)


@pytest.mark.parametrize("unit", ["ns", "us"])
@pytest.mark.parametrize("time", _TIMES)
def test_times_in_steps(unit: str, time: bytes) -> None:
    """A timestamp among others is what it is alone, whatever is unusual about it."""
    data = data_of(file_of(M={"t": nested("google.protobuf.Timestamp"), "a": _F.TYPE_INT32}))
    program = program_of(data, unit)
    usual = sized(1, b"\x08\x80\x94\xeb\xdc\x03\x10\xc0\x84\x3d") + b"\x10\x07"
    odd = sized(1, time) + b"\x10\x07"
    (alone,) = shredded_alike(program, [odd]).rows
    (usually,) = shredded_alike(program, [usual]).rows

    for place in (6, 20):
        found = shredded_alike(program, [usual] * place + [odd] + [usual] * (20 - place))
        assert found.rows == [usually] * place + [alone] + [usually] * (20 - place)


@pytest.mark.parametrize("count", [1, 3, 100, 257, 700])
def test_names_of_many_numbers(count: int) -> None:
    """Enums have any number of names, short and long ones, and numbers without a name."""
    dice = random.Random(count)
    file = file_of(M={"a": ENUM, "b": {**ENUM, "oneof_index": 0, "proto3_optional": True}})
    numbers = [0, *dice.sample(range(-(1 << 31), 1 << 31), count - 1)]
    del file.enum_type[0].value[:]
    file.enum_type[0].options.Clear()
    for n, number in enumerate(numbers):
        file.enum_type[0].value.add(name=f"N{'x' * (n % 40)}{n}", number=number)
    data = data_of(file)
    message_class = library_class(data)
    made = [
        message_class(
            a=dice.choice([*numbers, number ^ 1]),
            **({} if n % 3 == 0 else {"b": dice.choice([*numbers, number ^ 2])}),
        )
        for n, number in enumerate(dice.choices(numbers, k=200))
    ]

    found = shredded_alike(program_of(data), [each.SerializeToString() for each in made])

    assert found.rows == [library_value(each) for each in made]


_KINDS: Final[tuple[Any, ...]] = (
    _F.TYPE_INT32,
    ENUM,
    _F.TYPE_STRING,
    {"type": _F.TYPE_SINT32, **_REPEATED},
    _F.TYPE_DOUBLE,
    _F.TYPE_BOOL,
    nested("t.N"),
)


@pytest.mark.parametrize("oneof", [(), (0, 4), (0, 70), (70, 74)])
@pytest.mark.parametrize("share", [0.04, 0.5, 1.0])
def test_wide_payloads(oneof: tuple[int, ...], share: float) -> None:
    """Fields of every kind are found or filled wherever they are among many, in any order."""
    dice = random.Random(7)
    kinds = [_KINDS[n % len(_KINDS)] for n in range(90)]
    for n in oneof:
        kinds[n] = {"type": _F.TYPE_INT32, "oneof_index": 0}
    fields = {f"f{n}": kind for n, kind in enumerate(kinds)}
    data = data_of(file_of(M=fields, N={"x": _F.TYPE_INT32, "kind": ENUM}))
    message_class = library_class(data)
    values = [
        message_class(**{name: _wide_value(fields[name])}).SerializeToString() for name in fields
    ]

    def payload(*, is_ordered: bool) -> bytes:
        among = [each for each in values if dice.random() < share]
        return b"".join(among if is_ordered else dice.sample(among, len(among)))

    payloads = [payload(is_ordered=n < 100 or n % 2 == 0) for n in range(250)]

    found = shredded_alike(program_of(data), payloads)

    assert found.rows == [library_value(message_class.FromString(each)) for each in payloads]


def _wide_value(field: Any) -> object:  # noqa: ANN401 - a type, or what a field has set
    details = field if isinstance(field, dict) else {"type": field}
    if details["type"] == _F.TYPE_MESSAGE:
        return {"x": 3}
    value = {_F.TYPE_STRING: "text", _F.TYPE_DOUBLE: 1.5}.get(details["type"], 1)
    return [value] * 2 if "label" in details else value


@pytest.mark.parametrize("numbers", [(15, 16), (16, 2047), (2048, 1 << 18), (1, (1 << 29) - 1)])
@pytest.mark.parametrize("names", [None, ["a"], ["b"], ["text"]])
def test_tags_of_any_length(numbers: tuple[int, int], names: Sequence[str] | None) -> None:
    """Fields have numbers up to 2²⁹ − 1, and the tags of most have more than a byte."""
    far = {"text": {"type": _F.TYPE_STRING, "number": 17, **_REPEATED}}
    far |= {
        name: {"type": _F.TYPE_INT32, "number": number}
        for name, number in zip("ab", numbers, strict=True)
    }
    data = data_of(file_of(M=far))
    one, two = (tag(number, 0) + bytes([n]) for n, number in enumerate(numbers, 1))
    message_class = library_class(data)
    payloads = [
        message_class(a=n % 3, b=-(n % 2), text=["x"] * (n % 4)).SerializeToString()
        for n in range(200)
    ]

    if names is None and numbers[0] < 17:
        program = program_of(data)
        assert program.links[program.ops[tables.D] + tables.COLUMNS] == tables.ABSENT
    found = shredded_alike(program_of(data, names=names), [*payloads, one + two])

    rows = [library_value(message_class.FromString(each)) for each in (*payloads, one + two)]
    kept = names or ["text", "a", "b"]
    assert found.rows == [{name: row[name] for name in kept} for row in rows]


@pytest.mark.parametrize("names", [None, ["a"], ["items"], ["texts", "numbers"]])
def test_lists_of_any_length(names: Sequence[str] | None) -> None:
    """A payload may have more items than are read in one go."""
    data = data_of(
        file_of(
            M={
                "a": _F.TYPE_INT32,
                "items": nested("t.N", **_REPEATED),
                "texts": {"type": _F.TYPE_STRING, **_REPEATED},
                "numbers": {"type": _F.TYPE_INT32, **_REPEATED},
                "times": nested("google.protobuf.Timestamp", **_REPEATED),
            },
            N={"x": _F.TYPE_SINT64, "texts": {"type": _F.TYPE_BYTES, **_REPEATED}},
        )
    )
    message_class = library_class(data)
    made = [
        message_class(
            a=n,
            items=[{"x": -x, "texts": [b"t"] * (x % 3)} for x in range(length)],
            texts=[str(x) for x in range(length)],
            numbers=range(length),
            times=[{"seconds": x} for x in range(length)],
        )
        for n, length in enumerate([1, 2, 300, 0, 257, 256, 255, 3, 600, 1] * 7)
    ]

    found = shredded_alike(
        program_of(data, names=names), [each.SerializeToString() for each in made]
    )

    rows = [library_value(each) for each in made]
    assert found.rows == [{name: row[name] for name in names or row} for row in rows]


# Column by column


_READINGS: Final = [payload for _, payload in itertools.islice(PROTOBUF_LZ4.members(), 150)]
_CLASS: Final = library_class(READING_SCHEMA)
_WHOLE: Final = _CLASS(
    vehicle_id="veh-1",
    odometer_m=1 << 63,
    temperature_c=-5,
    ignition=True,
    mode=1,
    position={"lat": 1.5, "lon": 2.5, "accuracy_m": 0.5},
    cell_millivolts=[1, 300, 3700, -1],
    extras={"a": 0.5, "b": 1.5},
    note="süß",
    taken_at={"seconds": 1_700_000_000, "nanos": 5},
    trail=[{"lat": 1}, {}, {"accuracy_m": 2}],
    checksum=7,
    small=9,
).SerializeToString()
_ODD: Final = {
    "nothing": b"",
    "a field twice": b"\x10\x05\x10\x06",
    "a message twice": b"\x32\x00\x32\x09\x09" + bytes(8),
    "both of a oneof": b"\x4a\x01n\x52\x01b",
    "an unknown field": b"\xf8\x07\x05\x78\x05\x7d0000",
    "an unknown group": b"\x7b\x08\x01\x7c\x10\x05",
    "another wire type": b"\x0d0000\x10\x05",
    "an entry with an unknown field": b"\x42\x05\x0a\x01k\x18\x01",
    "an entry of nothing": b"\x42\x00\x42\x03\x0a\x01k",
    "numbers that are not packed": b"\x38\x05\x3a\x02\x06\x07\x38\x08",
    "an unknown name": b"\x28\x63",
    "a negative number": b"\x70" + b"\xff" * 9 + b"\x01",
    "no UTF-8": b"\x0a\x02\xff\xff",
    "a long text": b"\x0a\xac\x02" + b"x" * 300,
    "a length of five bytes": b"\x0a\x83\x80\x80\x80\x00abc",
    "a length of six bytes": b"\x0a\x83\x80\x80\x80\x80\x00abc",
    "a length beyond the end": b"\x0a\xff\xff\xff\xff\x0f",
    "many items": b"\x62\x00" * 300,
    "a time in another order": b"\x5a\x04\x10\x05\x08\x07",
    "a time that fits not": b"\x5a\x0b\x08" + b"\xff" * 8 + b"\x7f\x00",
    "field 0": b"\x00\x00",
    "the end of a group": b"\x7c",
}


@pytest.mark.parametrize("odd", [*_ODD.values(), None], ids=[*_ODD, "no value"])
@pytest.mark.parametrize("place", [0, 70, 149])
def test_an_odd_payload_among_others(odd: bytes | None, place: int) -> None:
    """Wherever it stands, it is what it is alone, and so are the others."""
    program = program_of(READING_SCHEMA)
    payloads: list[bytes | None] = [*_READINGS]
    payloads[place] = odd

    found = shredded_alike(program, payloads)

    alone = shredded_alike(program, [odd])
    expected = [library_value(_CLASS.FromString(each)) for each in _READINGS]
    assert found.rows == expected[:place] + alone.rows + expected[place + 1 :]
    assert [misfit.code for misfit in found.misfits] == [each.code for each in alone.misfits]


def test_cut_payloads_among_others() -> None:
    """A payload that ends early anywhere is read or refused as it is alone."""
    program = program_of(READING_SCHEMA)
    cuts = [_WHOLE[:length] for length in range(len(_WHOLE) + 1)]
    payloads = [each for cut in cuts for each in (*_READINGS[:17], cut)]

    found = shredded_alike(program, payloads)

    alone = shredded_alike(program, cuts)
    assert found.rows[17::18] == alone.rows
    assert [each.code for each in found.misfits] == [each.code for each in alone.misfits]
