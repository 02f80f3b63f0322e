"""The arena grows seldom, for all nodes at once, and no payload is taken back more than once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from arrow_io.payloads import tables
from tests.support.arenas import GuardedShredding, TightShredding
from tests.support.avro_payloads import avro_long
from tests.support.payloads import avro, json_text, record, shredded
from tests.support.protobuf_payloads import library_class, library_value, program_of, schema_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from arrow_io.payloads.program import Program

pytestmark = pytest.mark.usefixtures("build")

_F: Final = FieldDescriptorProto
_ARENAS: Final = (GuardedShredding, TightShredding)

# ----------------------------------------------------------------------------
# Values


def _numbers_schema(type_: int, *, packed: bool) -> str:
    """A message with one repeated field of a type, of an enum for `TYPE_ENUM`."""
    file = FileDescriptorProto(name="n.proto", package="t", syntax="proto2")
    message = file.message_type.add(name="N")
    field = message.field.add(name="items", number=1, label=_F.LABEL_REPEATED, type=type_)
    if type_ == _F.TYPE_ENUM:
        enum = file.enum_type.add(name="E")
        for name, number in (("ZERO", 0), ("ONE", 1)):
            enum.value.add(name=name, number=number)
        field.type_name = ".t.E"
    if type_ not in {_F.TYPE_STRING, _F.TYPE_BYTES}:
        field.options.packed = packed
    return schema_data([file], "t.N", "n.proto")


def _items(type_: int, count: int) -> list[Any]:
    if type_ == _F.TYPE_BOOL:
        return [number % 3 == 0 for number in range(count)]
    if type_ == _F.TYPE_ENUM:
        return [number % 2 for number in range(count)]
    if type_ == _F.TYPE_STRING:
        return [f"text {number}" for number in range(count)]
    if type_ == _F.TYPE_BYTES:
        return [bytes([100 + number % 100]) for number in range(count)]
    return [100 + number for number in range(count)]


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "packed"])
@pytest.mark.parametrize(
    "type_",
    [number for number in _F.Type.values() if number not in {_F.TYPE_GROUP, _F.TYPE_MESSAGE}],
    ids=lambda number: _F.Type.Name(number)[5:].lower(),
)
def test_items_of_protobuf(type_: int, *, packed: bool) -> None:
    """Lists of numbers of any length are what they were, whether or not they fill their node."""
    data = _numbers_schema(type_, packed=packed)
    class_ = library_class(data)
    for count in (63, 64, 65, 127, 150, 191, 256, 400):
        messages: list[Message] = [
            class_(items=_items(type_, items)) for items in (3, count, count, 1)
        ]
        payloads = [message.SerializeToString() for message in messages]
        expected = [library_value(message) for message in messages]
        for arena in _ARENAS:
            for believed_bytes in (0, 1_000):
                found = shredded(
                    program_of(data), payloads, arena=arena, believed_bytes=believed_bytes
                )
                assert found.rows == expected


@pytest.mark.parametrize("arena", _ARENAS)
def test_a_misfit_behind_a_full_node(arena: type[GuardedShredding]) -> None:
    """What does not fit is refused whether or not there was room for what stands before it."""
    program = json_text(record(("n", {"type": "array", "items": "int"}), ("b", "bytes")))
    items = ",".join(["7"] * 500)
    payloads = [
        f'{{"n":[{items}],"b":"QUJD"}}',
        f'{{"n":[{items},"x"]}}',
        f'{{"n":[{items}],"b":"{"A" * 1_000}?AA="}}',
        f'{{"n":[{items}],"n":[1],"b":"{"QUJD" * 300}"}}',
    ]
    found = shredded(program, [each.encode() for each in payloads], arena=arena, believed_bytes=0)

    assert [(misfit.row, misfit.code) for misfit in found.misfits] == [
        (1, tables.WRONG_TOKEN),
        (2, tables.BAD_BASE64),
    ]
    assert found.rows == [{"n": [7] * 500, "b": b"ABC"}, None, None, {"n": [1], "b": b"ABC" * 300}]


@pytest.mark.parametrize("arena", _ARENAS)
def test_symbols_behind_a_full_node(arena: type[GuardedShredding]) -> None:
    """A symbol of an enum is looked up where there is room for it, and only there."""
    symbols = {"type": "enum", "name": "E", "symbols": ["A" * 200, "B" * 300], "default": "A" * 200}
    program = json_text({"type": "array", "items": symbols})
    texts = [["B" * 300] * 20, ["C" * 301] * 20, ["A" * 200]]
    found = shredded(
        program, [json.dumps(each).encode() for each in texts], arena=arena, believed_bytes=0
    )

    assert found.misfits == []
    assert found.rows == [["B" * 300] * 20, ["A" * 200] * 20, ["A" * 200]]


# ----------------------------------------------------------------------------
# How often

_FIELDS: Final = 200
_WIDE: Final = record(*((f"f{number}", ["null", "int"]) for number in range(_FIELDS)), name="W")
_LIST: Final = {"type": "array", "items": ["null", _WIDE]}


def _json_nulls(count: int) -> bytes:
    return b"[" + b",".join([b"null"] * count) + b"]"


def _avro_nulls(count: int) -> bytes:
    return avro_long(count) + b"\0" * count + b"\0"


def _wide_protobuf() -> Program:
    file = FileDescriptorProto(name="w.proto", package="t", syntax="proto3")
    wide, many = file.message_type.add(name="W"), file.message_type.add(name="L")
    for number in range(1, _FIELDS + 1):
        wide.field.add(
            name=f"f{number}", number=number, label=_F.LABEL_OPTIONAL, type=_F.TYPE_INT32
        )
    many.field.add(
        name="items", number=1, label=_F.LABEL_REPEATED, type=_F.TYPE_MESSAGE, type_name=".t.W"
    )
    return program_of(schema_data([file], "t.L", "w.proto"))


_WRITERS: Final[dict[str, tuple[Callable[[], Program], Callable[[int], bytes]]]] = {
    "json": (lambda: json_text(_LIST), _json_nulls),
    "avro": (lambda: avro(_LIST), _avro_nulls),
    "protobuf": (_wide_protobuf, lambda count: b"\x0a\x00" * count),
}


@pytest.mark.parametrize("encoding", _WRITERS)
def test_many_nodes_that_are_full_at_once(encoding: str) -> None:
    """Items of many fields find room for all of these at the second try."""
    program, write = _WRITERS[encoding]
    found = shredded(program(), [write(80)])

    assert found.growths == 1


@pytest.mark.parametrize("encoding", _WRITERS)
def test_honest_messages_of_many_items(encoding: str) -> None:
    """As many messages as there are need no more growths than room can be doubled for them."""
    program, write = _WRITERS[encoding]
    found = shredded(program(), [write(100)] * 40)

    assert 1 <= found.growths <= 6


def _of_list(number: int, text: str) -> bytes:
    return f'{{"f{number}":{text}}}'.encode()


def test_nodes_that_are_full_in_turn() -> None:
    """Lists that become long one after the other, beside a large one, make few growths together."""
    lists = [(f"f{number}", {"type": "array", "items": "int"}) for number in range(_FIELDS)]
    large = _of_list(0, "[" + "1," * 200_000 + "1]")
    payloads = [large] + [
        _of_list(number, str(list(range(size))))
        for size in (5, 20, 80)
        for number in range(1, _FIELDS)
    ]
    found = shredded(json_text(record(*lists)), payloads)

    assert found.growths <= 3
    assert found.values.field("f0").slice(0, 1).to_pylist() == [[1] * 200_001]


@pytest.fixture(name="walks")
def _walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first row of each run of a shredder."""
    rows: list[int] = []
    arena_of = GuardedShredding._arena_of

    class _Counted:
        def __init__(self, run: Any) -> None:  # noqa: ANN401
            self._run = run

        def shred(self, data: memoryview, positions: memoryview, first: int, *rest: Any) -> object:  # noqa: ANN401
            rows.append(first)
            return self._run.shred(data, positions, first, *rest)

    monkeypatch.setattr(
        GuardedShredding, "_arena_of", lambda self, program: _Counted(arena_of(self, program))
    )
    return rows


def test_no_payload_is_walked_often(walks: list[int]) -> None:
    """A payload that fills all nodes, at several depths and with texts, begins anew once."""
    inner = record(("a", "string"), ("b", {"type": "array", "items": "string"}), name="I")
    nested = {"type": "array", "items": {"type": "array", "items": inner}}
    value = [[{"a": "x" * 50, "b": ["y" * 20] * 9}] * 8] * 7
    for arena in _ARENAS:
        walks.clear()
        shredded(json_text(nested), [json.dumps(value).encode()] * 5, arena=arena, believed_bytes=0)

        assert max(walks.count(row) for row in walks) <= 2


def test_guards_notice() -> None:
    """A write to the byte behind or before a region is noticed."""
    started = GuardedShredding(json_text({"type": "array", "items": "int"}), 3, 10)
    for start, stop in started._gaps:
        for place in (start, stop - 1) if start < stop else ():
            started._view[place] ^= 1
            with pytest.raises(AssertionError, match="beyond a region"):
                started.check()
            started._view[place] ^= 1
    started.check()
