"""Protobuf on the wire: fields in every order and number, hostile bytes, and schemas of them."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from arrow_io.errors import SchemaError
from arrow_io.payloads import shredding, tables
from arrow_io.payloads.protobuf_native import protobuf_shape
from arrow_io.payloads.shape import Budget
from arrow_io.payloads.shredding import Misfit
from tests.support.protobuf_files import data_of, file_of, nested, read, sized
from tests.support.protobuf_payloads import (
    library_class,
    library_value,
    program_of,
    read_payloads,
    schema_data,
)
from tests.support.protobuf_strategies import tag
from tests.support.pulsar_proto import varint

if TYPE_CHECKING:
    from collections.abc import Sequence

_F = FieldDescriptorProto

pytestmark = pytest.mark.usefixtures("build")


# ----------------------------------------------------------------------------
# Fields in every order and number

_CHOICE: dict[str, Any] = {
    "a": {"type": _F.TYPE_INT32, "oneof_index": 0},
    "b": {"type": _F.TYPE_STRING, "oneof_index": 0},
    "c": nested("t.I", oneof_index=0),
    "d": _F.TYPE_INT32,
}
_A, _B, _C = b"\x08\x01", b"\x12\x01x", b"\x1a\x02\x08\x05"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (_A, (1, None, None)),
        (_A + _B, (None, "x", None)),
        (_B + _A, (1, None, None)),
        (_C + _A + _C, (None, None, {"x": 5, "y": 0})),
        (_A + _C + b"\x1a\x02\x10\x06", (None, None, {"x": 5, "y": 6})),
        (_A + b"\x10\x01", (1, None, None)),
    ],
)
def test_oneofs(payload: bytes, expected: tuple[object, ...]) -> None:
    """Of the members of a oneof the last one counts, whether or not the others are asked for."""
    file = file_of(M=_CHOICE, I={"x": _F.TYPE_INT32, "y": _F.TYPE_INT32})
    values = dict(zip("abc", expected, strict=True))

    for names in ("abc", "a", "b", "c", "bd", "ca", "d"):
        found = read_payloads(program_of(data_of(file), names=names), [payload])

        assert found == [{name: {**values, "d": 0}[name] for name in names}]


@pytest.mark.parametrize("twice", [None, 1, 61, 62, 63, 64, 70])
def test_more_fields_than_have_a_bit(twice: int | None) -> None:
    """Whatever its place among many, a field may be there, be left out, or stand twice."""
    numbers = range(1, 71)
    file = file_of(M={f"f{number}": _F.TYPE_INT32 for number in numbers})
    there = [number for number in numbers if number % 3 or number == twice]
    payload = b"".join(tag(number, 0) + varint(number) for number in there)
    if twice is not None:
        payload += tag(twice, 0) + varint(twice + 1000)

    expected = {f"f{number}": number if number in there else 0 for number in numbers}
    if twice is not None:
        expected[f"f{twice}"] = twice + 1000
    assert read(file, payload, payload) == [expected, expected]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 33])
def test_packed_numbers_of_one_length_and_of_several(size: int) -> None:
    """Numbers of one byte, of two, and of more are told apart, wherever in a list they stand."""
    label = {"label": _F.LABEL_REPEATED}
    file = file_of(M={"a": {"type": _F.TYPE_INT32, **label}, "b": _F.TYPE_STRING})
    lists = [
        [number] * place + [other] + [number] * (size - place - 1)
        for number, other in itertools.permutations((7, 300, 70_000, -1), 2)
        for place in range(size)
    ]
    payloads = [sized(1, b"".join(map(varint, numbers))) for numbers in lists]

    found = read(file, *payloads)

    assert [each["a"] for each in found] == lists


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (_F.TYPE_BOOL, [b"\x08\x00", b"\x08\x01"]),
        *(
            (type_, [b"\x08" + varint(number) for number in (1, 257, 2, 1 << 20)])
            for type_ in (_F.TYPE_INT32, _F.TYPE_SINT64, _F.TYPE_UINT32, _F.TYPE_UINT64)
        ),
        (_F.TYPE_FIXED32, [b"\x0d" + bytes([*digits, 1]) for digits in (b"aaa", b"baa", b"aab")]),
        (_F.TYPE_SFIXED64, [b"\x09" + bytes([*digits, 1]) for digits in (b"aaaaaaa", b"aaaaaab")]),
        (_F.TYPE_STRING, [sized(1, text) for text in (b"", b"a", b"b", b"aa", b"ab", b"a" * 20)]),
    ],
)
def test_maps_with_equal_keys(key: int, keys: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever two of the keys are equal, the last counts; if none are, nothing is rewritten."""
    file = file_of(M={"map": {"type": "map", "key": key, "value": {"type": _F.TYPE_INT32}}})
    numbers = range(len(keys))
    different = [order for count in range(4) for order in itertools.permutations(numbers, count)]
    equal = [order for a, b in itertools.permutations(numbers, 2) for order in ([a, b, a], [a, a])]

    def payload(order: Sequence[int]) -> bytes:
        entries = [keys[n] + b"\x10" + varint(place) for place, n in enumerate(order, 1)]
        return b"".join(sized(1, entry) for entry in entries)

    for order in equal:
        (found,) = read(file, payload(order))
        assert list(found["map"].values()) == ([3, 2] if len(order) > 2 else [2])
    monkeypatch.setattr(shredding, "_keep_last_keys", None)
    found = read(file, *map(payload, different))
    assert [list(each["map"].values()) for each in found] == [
        list(range(1, len(order) + 1)) for order in different
    ]


def test_groups() -> None:
    """Groups of proto2 are structs, and inside their own type the bytes between their tags."""
    file = file_of("proto2", M={"x": _F.TYPE_INT32, "again": nested("t.M")})
    group = file.message_type[0].nested_type.add(name="G")
    group.field.add(name="y", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
    details = {"name": "g", "number": 3, "type": _F.TYPE_GROUP, "type_name": ".t.M.G"}
    file.message_type[0].field.add(label=_F.LABEL_OPTIONAL, **details)
    details = {"name": "g", "number": 2, "type": _F.TYPE_GROUP, "type_name": ".t.M.G"}
    group.field.add(label=_F.LABEL_REPEATED, **details)
    inner = b"\x08\x02\x13\x14"

    payload = b"\x1b\x08\x01\x13" + inner + b"\x14\x13\x14\x98\x06\x01\x1c\x08\x09"
    assert read(file, payload) == [{"x": 9, "again": None, "g": {"y": 1, "g": [inner, b""]}}]
    assert read(file, payload[:3]).code == tables.ENDS_EARLY
    assert read(file, b"\x1b\x14").code == tables.BAD_TAG


def test_high_field_numbers() -> None:
    """Fields are found by their number, however high it is and however many there are."""
    file = file_of(M={})
    numbers = [*range(1, 400), 5000, 70_000, (1 << 29) - 1]
    for number in numbers:
        file.message_type[0].field.add(
            name=f"f{number}", number=number, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32
        )
    payload = b"".join(tag(number, 0) + varint(number) for number in reversed(numbers))
    unknown = tag(450, 0) + b"\x01" + tag(69_999, 0) + b"\x01"

    assert read(file, unknown + payload) == [{f"f{number}": number for number in numbers}]


# ----------------------------------------------------------------------------
# The wire

_WIRE: dict[str, Any] = {
    "i": _F.TYPE_INT32,
    "s": _F.TYPE_STRING,
    "u": _F.TYPE_UINT64,
    "z": _F.TYPE_SINT32,
    "b": _F.TYPE_BOOL,
    "d": {"type": _F.TYPE_DOUBLE, "label": _F.LABEL_REPEATED},
    "l": {"type": _F.TYPE_INT32, "label": _F.LABEL_REPEATED},
    "f": _F.TYPE_FIXED32,
    "m": nested("t.M1"),
}


@pytest.mark.parametrize(
    "payload",
    [
        "0880808080808080808001",  # ten bytes
        "08ffffffffffffffffff7f",  # bits above the 64th
        "08ffffffffffffffffffff01",  # eleven bytes
        "0880",  # cut
        "0001",  # field 0
        "880001",  # long tag
        "888080800001",
        "88808080800001",  # too long
        "f8ffffff0f01",  # last field
        "f8ffffff1f01",  # beyond it
        "0a0101",  # wire types that are not the field's
        "0d01000000",
        "09" + "00" * 8,
        "0b0c",
        "1003",
        "4a020801",
        "4b4c",
        "2880808080808080808001",  # true by a high bit
        "2080808080f001",  # bits above the 32nd
        "18ffffffffffffffffff01",
        "3007",  # not packed, but of another wire type
        "320700000000000000",  # seven bytes of doubles
        "3210" + "00" * 16,
        "3900000000000000003a0102380339",  # items of both forms
        "3900000000000000003a01023803",
        "3a0180",
        "3a00",
        "3a0bffffffffffffffffff7f01",
        "4500",
        "45ffffffff",
        "3100000000000000",
        "0c",  # the end of no group
        "0b",
        "0b14",
        "0e",
        "0f",
        "9a06020801",
        "9a06ffffffff07",
        "9a06ffffffffffffffffff01",
        "12ffffffff0f",
        "12ffffffffffffffffff01",
        "1281800061",  # long length
        "12818080800061",
        "1281808080800061",
        "1202c3a4",
        "1203fffefd",
        "1205eda0806161",
        "120461626380",
        "1208616263646566c3a4",
        "1209616263646566676880",
        "12103031323334353637383930313233c3a4",
        "120ac3a4303132333435363738",
    ],
)
def test_wire_format(payload: str) -> None:
    """Each oddity of the wire format is taken or refused as the library does."""
    data = data_of(file_of(M=_WIRE, M1={**_WIRE, "m": _F.TYPE_INT32}))
    encoded = bytes.fromhex(payload)

    alone = (encoded, encoded + b"\x08\x01", b"\x12\x01a" + encoded)
    for given in (*alone, *(sized(9, each) + b"\x08\x01" for each in alone)):
        found = read_payloads(program_of(data), [given])
        try:
            expected = [library_value(library_class(data).FromString(given))]
        except DecodeError:
            assert isinstance(found, Misfit)
            assert found.code in tables.REASONS
        else:
            assert found == expected


def test_text_of_proto2() -> None:
    """Bytes that are no text do not fit a column of text, though proto2 does not look at them."""
    found = read(file_of("proto2", M={"s": _F.TYPE_STRING}), b"", b"\x0a\x01\xff")

    assert found == Misfit(1, tables.BAD_UTF8, "s", 2)


@pytest.mark.parametrize("around", [0, 1, 50])
@pytest.mark.parametrize("number", [1, 100])
def test_depth(around: int, number: int) -> None:
    """Unknown groups are read over as deep as the library reads: 100 with the messages around."""
    inner: dict[str, Any] = {f"M{n}": {"m": nested(f"t.M{n + 1}")} for n in range(50)}
    file = file_of(M={"m": nested("t.M0")}, **inner, M50={})
    data = data_of(file)
    for depth in (99, 100, 101):
        groups = depth - around
        payload = tag(number + 1, 3) * groups + tag(number + 1, 4) * groups
        for _ in range(around):
            payload = sized(1, payload)
        found = read_payloads(program_of(data), [payload])
        if depth > tables.MAX_MESSAGE_DEPTH:
            assert isinstance(found, Misfit)
            assert found.code == tables.TOO_DEEP
            with pytest.raises(DecodeError):
                library_class(data).FromString(payload)
        else:
            assert found == [library_value(library_class(data).FromString(payload))]


def test_deepest_lists_of_messages() -> None:
    """Messages of lists of each other are read as deep as schemas may nest; one deeper is not."""
    most = Budget.MAX_ARRAY_DEPTH // 2
    for depth in (most, most + 1):
        inner = {
            f"M{n}": {"m": nested(f"t.M{n + 1}", label=_F.LABEL_REPEATED)} for n in range(1, depth)
        }
        file = file_of(
            M={"m": nested("t.M1", label=_F.LABEL_REPEATED)}, **inner, **{f"M{depth}": {}}
        )
        if depth > most:
            with pytest.raises(SchemaError, match="deep"):
                read(file)
            continue
        payload = b""
        for _ in range(depth):
            payload = sized(1, payload)
        expected: Any = True
        for _ in range(depth):
            expected = {"m": [expected]}
        assert read(file, payload) == [expected]


def test_endless_groups() -> None:
    """A million groups inside each other are refused, not followed."""
    found = read(file_of(M={"x": _F.TYPE_INT32}), b"\x13" * 1_000_000)

    assert (found.code, found.path) == (tables.TOO_DEEP, "")


def test_where_it_is_wrong() -> None:
    """What does not fit is told by its row, its field and where in the payload that was seen."""
    file = file_of(M={"i": nested("t.I")}, I={"x": _F.TYPE_INT32, "s": _F.TYPE_STRING})
    fine = b"\x0a\x02\x08\x01"

    assert read(file, fine, b"\x0a\x03\x12\x01\xff") == Misfit(1, tables.BAD_UTF8, "i.s", 4)
    assert read(file, fine, b"\x0a\x02\x12\x01") == Misfit(1, tables.BAD_LENGTH, "i.s", 4)
    assert read(file, fine, fine, b"\x0a\x05") == Misfit(2, tables.BAD_LENGTH, "i", 2)


# ----------------------------------------------------------------------------
# Schemas


def test_files_in_any_order() -> None:
    """Files may depend on those behind them, and those of the library may be left out."""
    inner = FileDescriptorProto(name="inner.proto", package="i", syntax="proto3")
    inner.dependency.append("google/protobuf/wrappers.proto")
    message = inner.message_type.add(name="I")
    message.field.add(
        name="w", number=1, label=_F.LABEL_OPTIONAL, **nested("google.protobuf.BoolValue")
    )
    file = file_of(M={"i": nested("i.I")})
    file.dependency.append("inner.proto")
    stray = FileDescriptorProto(name="stray.proto", dependency=["gone.proto"])
    data = schema_data([stray, file, inner], "t.M", "t.proto")

    assert read_payloads(program_of(data), [b"\x0a\x02\x0a\x00"]) == [{"i": {"w": False}}]


def test_nested_root() -> None:
    """The outermost message may be one that another defines."""
    file = file_of(M={})
    inner = file.message_type[0].nested_type.add(name="I")
    inner.field.add(name="x", number=1, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32)
    data = schema_data([file], "t.M.I", "t.proto")

    assert read_payloads(program_of(data), [b"\x08\x07"]) == [{"x": 7}]


def _changed(**changes: object) -> str:
    data = json.loads(data_of(file_of(M={"x": _F.TYPE_INT32})))
    return json.dumps({**data, **changes})


_DEEP: dict[str, Any] = {f"M{n}": {"m": nested(f"t.M{n + 1}")} for n in range(100)}
_WIDE: dict[str, Any] = {
    f"M{n}": {f"m{k}": nested(f"t.M{n + 1}") for k in range(10)} for n in range(10)
}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        (" " * (1 << 25), "longer than"),
        ("{}", "has no fileDescriptorSet"),
        (_changed(rootMessageTypeName=7), "has no rootMessageTypeName"),
        (_changed(rootFileDescriptorName=None), "has no rootFileDescriptorName"),
        (_changed(fileDescriptorSet="@"), "not a FileDescriptorSet in Base64"),
        (_changed(fileDescriptorSet="//8="), "not a FileDescriptorSet in Base64"),
        (_changed(rootMessageTypeName="t.Gone"), "does not define the message 't.Gone'"),
        (_changed(rootMessageTypeName=""), "does not define the message"),
        (_changed(rootFileDescriptorName="gone.proto"), "lacks the file 'gone.proto'"),
        (data_of(file_of(M={"x": nested("t.Gone")})), "is not valid"),
        (data_of(file_of(M={"m": nested("t.M0")}, **_DEEP, M100={})), "nests them more than"),
        (data_of(file_of(M={"m": nested("t.M0")}, **_WIDE, M10={})), "more than 20000 fields"),
        (
            schema_data([file_of(M={}), file_of(M={"x": _F.TYPE_INT32})], "t.M", "t.proto"),
            "two files named 't.proto'",
        ),
        (
            schema_data(
                [
                    FileDescriptorProto(name="a.proto", dependency=["b.proto"]),
                    FileDescriptorProto(name="b.proto", dependency=["a.proto"]),
                ],
                "t.M",
                "a.proto",
            ),
            "depend on each other",
        ),
        (schema_data([file_of(M={})], "google.protobuf.Timestamp", "t.proto"), "does not define"),
    ],
)
def test_schemas_that_are_none(data: str, reason: str) -> None:
    """What is no schema is refused with what is wrong with it, in few words."""
    with pytest.raises(SchemaError, match=reason) as raised:
        protobuf_shape(data, "ns")

    assert len(str(raised.value)) < 400
