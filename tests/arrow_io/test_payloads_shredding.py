"""The arena grows where it must, takes back what does not fit, and believes no past."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from arrow_io.errors import SchemaError
from arrow_io.messages import gathered_message
from arrow_io.payloads import shredding, tables
from arrow_io.payloads.shredding import Misfit, Shredding
from tests.support.arenas import GuardedShredding
from tests.support.payloads import avro, json_text, record, shredded, shredded_alike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.payloads import AvroSchema

_SCHEMA = record(
    ("text", "string"),
    ("bytes", "bytes"),
    ("byte", "boolean"),
    ("i32", "int"),
    ("i64", ["null", "long"]),
    ("i128", {"type": "bytes", "logicalType": "decimal", "precision": 30}),
    ("list", {"type": "array", "items": {"type": "array", "items": "string"}}),
    ("map", {"type": "map", "values": record(("x", "double"), ("y", "string"), name="S")}),
    ("enum", {"type": "enum", "name": "E", "symbols": ["A", "LONGER" * 100], "default": "A"}),
)


def _value(size: int) -> dict[str, Any]:
    """A value of the schema, JSON for all of it, the larger the larger `size`."""
    return {
        "text": "é" * size,
        "bytes": "QUJD" * size,
        "byte": size % 2 == 0,
        "i32": size,
        "i64": None if size % 3 else size,
        "i128": size,
        "list": [["x" * size] * 2] * size,
        "map": {f"{'k' * size}{number}": {"x": 0.5, "y": "z" * size} for number in range(size)},
        "enum": "LONGER" * 100 if size else "A",
    }


def _text(size: int) -> bytes:
    return json.dumps(_value(size), ensure_ascii=False).encode()


def _expected(size: int) -> dict[str, Any]:
    return _value(size) | {"bytes": b"ABC" * size}


@pytest.mark.usefixtures("build")
def test_every_region_grows() -> None:
    """However much more there is than was believed, every value is kept."""
    sizes = [0, 1, 0, 30, 2, 100, 0, 7] * 3
    found = shredded(json_text(_SCHEMA), [_text(size) for size in sizes])

    assert found.misfits == []
    assert found.rows == [_expected(size) for size in sizes]


@pytest.mark.usefixtures("build")
def test_an_arena_for_nothing() -> None:
    """It begins with room for next to nothing, and no rows at all are an array too."""
    program = json_text(_SCHEMA)
    found = shredded(program, [_text(size) for size in range(20)], believed_bytes=0)

    assert found.rows == [_expected(size) for size in range(20)]
    empty = GuardedShredding(json_text(_SCHEMA), 0, 0).finish()
    empty.validate(full=True)
    assert len(empty) == 0


_BREAKS = {
    "text": b'{"text":"' + b"x" * 5_000 + b'","bytes":"?"}',
    "list": b'{"text":"a","list":[["' + b"x" * 5_000 + b'"],["b","c"],["d",5]]}',
    "list of lists": b'{"list":[["a"],[]' + b',["b"]' * 500 + b",[[]]]}",
    "map": b'{"map":{"k":{"x":1,"y":"z"},"l":{"x":2,"y":' + b"5}}}",
    "key": b'{"map":{"k":{"x":1,"y":"z"},"\\x":{}}}',
    "behind": b'{"text":"a","list":[["b"]],"map":{"k":{}}} x',
    "end": b'{"text":"a","list":[["b"]],"map":{"k":{}}',
    "again": b'{"list":[["a","b"]],"list":[["c"],5],"text":"t"}',
}


@pytest.mark.parametrize("broken", _BREAKS.values(), ids=_BREAKS)
def test_what_does_not_fit_leaves_nothing(broken: bytes) -> None:
    """Values of a payload that is refused in its middle are taken back, from nested lists too."""
    sizes = [3, 0, 5]
    payloads = [part for size in sizes for part in (_text(size), broken, broken)]
    found = shredded_alike(json_text(_SCHEMA), [broken, *payloads, None])

    expected = [part for size in sizes for part in (_expected(size), None, None)]
    assert found.rows == [None, *expected, None]
    assert [misfit.row for misfit in found.misfits] == [0, 2, 3, 5, 6, 8, 9]
    sound = shredded_alike(json_text(_SCHEMA), [_text(size) for size in sizes])
    for name in ("list", "map"):
        flat, sound_flat = (
            (each.values.field(name).flatten() for each in (found, sound))
            if (name == "list")
            else (each.values.field(name).items for each in (found, sound))
        )
        assert len(flat) == len(sound_flat)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("believed_bytes", [0, 1 << 20])
@pytest.mark.parametrize("broken", [(0,), (63,), (64,), (65, 66), (1, 128, 199), range(0, 200, 7)])
def test_payloads_before_one_that_does_not_fit_are_kept(
    broken: Sequence[int], believed_bytes: int
) -> None:
    """Wherever it stands among those that the arena takes together, and whether it has room."""
    payloads = [_BREAKS["list"] if row in broken else _text(row % 5) for row in range(200)]
    found = shredded(json_text(_SCHEMA), payloads, believed_bytes=believed_bytes)

    assert [misfit.row for misfit in found.misfits] == list(broken)
    assert found.rows == [None if row in broken else _expected(row % 5) for row in range(200)]


@pytest.mark.usefixtures("build")
def test_nulls_in_a_full_arena() -> None:
    """There is room for a null instead of each payload, in structs and in all below them."""
    program = json_text(_SCHEMA)
    started = GuardedShredding(program, 300, 0)
    for _ in range(300):
        started.append_null(program)

    values = started.finish()
    values.validate(full=True)
    assert values.to_pylist() == [None] * 300


@pytest.mark.usefixtures("build")
def test_values_that_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that does not fit an arena alone is refused, and those after it are read."""
    monkeypatch.setattr(Shredding, "max_bytes", 100_000)
    schema = record(("a", {"type": "array", "items": "null"}), ("s", "string"))
    many = b'{"a":[' + b",".join([b"null"] * 60_000) + b"]}"
    long = b'{"s":"' + b"x" * 200_000 + b'"}'
    twice = b'{"s":"","s":"' + b"x" * 200_000 + b'"}'
    small = b'{"a":[null],"s":"x"}'

    payloads = [small, many, small, long, twice, small]
    found = shredded(json_text(schema), payloads, believed_bytes=0)
    assert found.misfits[:2] == [
        Misfit(1, tables.TOO_LARGE, "a[]", 0),
        Misfit(3, tables.TOO_LARGE, "s", 0),
    ]
    assert [(m.row, m.code) for m in found.misfits[2:]] == [(4, tables.TOO_LARGE)]
    row = {"a": [None], "s": "x"}
    assert found.rows == [row, None, row, None, None, row]


def test_habits() -> None:
    """What the payloads of one batch took is room for the next, which gives the same values."""
    program = json_text(_SCHEMA)
    first = shredded_alike(program, [_text(20)] * 3)
    assert program.observed_sizes[2:4].tolist() == [1.0, 40.0]
    items = {2 * item for item in program.item_nodes if item}
    assert items
    assert all(program.observed_sizes[each] > 0 for each in items)

    second = shredded_alike(program, [_text(20)] * 3)
    assert second.rows == first.rows
    assert shredded_alike(program, [b"{}"] * 100).rows == [dict.fromkeys(_value(0))] * 100


def test_hostile_habits() -> None:
    """After a batch of enormous lists the next asks for no more than its payloads could fill."""
    program = avro({"type": "array", "items": "int"})
    count = 500_000
    shredded(program, [b"\xc0\x84\x3d" + bytes(count) + b"\0"])
    assert program.observed_sizes[2] == count

    started = GuardedShredding(program, 60_000, 60_000)
    assert len(started._view) < 10_000_000


_WIDE = record(*((f"f{number}", "string") for number in range(100)))
_ITEM = record(*((f"g{number}", "double") for number in range(40)), name="I")
_HABITS = {
    "long texts": (
        _WIDE,
        json.dumps({f"f{number}": "x" * 8_000 for number in range(100)}),
        {"f1": "abc", "f99": "x" * 110},
    ),
    "many items": (
        record(("l", {"type": "array", "items": _ITEM})),
        json.dumps({"l": [{"g1": 1.5}] * 200}),
        {"l": [{"g1": 1.5}], "more": "x" * 90},
    ),
}


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(("schema", "huge", "small"), _HABITS.values(), ids=_HABITS)
def test_small_payloads_after_a_huge_one(
    schema: AvroSchema, huge: str, small: dict[str, object]
) -> None:
    """What fitted before it fits behind it, in the memory that it had before."""
    program = json_text(schema)
    payload = json.dumps(small).encode()
    rows = 60_000
    before = len(GuardedShredding(program, rows, rows * len(payload))._view)

    assert shredded(program, [huge.encode()]).misfits == []
    started = GuardedShredding(program, rows, rows * len(payload))
    assert len(started._view) == before < 100_000_000
    positions = memoryview(array("q", [len(payload)] * 50))
    assert started.append(program, memoryview(payload), positions, 0, 50) is None
    assert started.finish().to_pylist() == shredded(json_text(schema), [payload] * 50).rows


@pytest.mark.usefixtures("build")
def test_programs_that_nobody_else_holds() -> None:
    """One that was run is not taken for another that would be made in its place in memory."""
    a, b = ("a", "string"), ("b", "string")
    reader, swapped = record(a, b), record(b, a)
    programs = [avro(reader), avro(swapped, reader)]
    before = pa.total_allocated_bytes()
    data = memoryview(b"\x02A\x02B\x02B\x02A")
    positions = memoryview(array("q", [4, 4 << 32 | 4] * 20))
    started = GuardedShredding(programs[0], 40, 160)

    for row in range(40):
        program = replace(programs[row % 2])
        assert started.append(program, data, positions, row, row + 1) is None
        del program
    assert started.finish().to_pylist() == [{"a": "A", "b": "B"}] * 40
    del started
    assert pa.total_allocated_bytes() == before


@pytest.mark.usefixtures("build")
def test_misfits_tell_where() -> None:
    """The byte is counted from the start of the payload, and lies in it or behind its last."""
    found = shredded(json_text("int"), [b"12345", b"12x", b"", b'"', b"99999999999"])

    assert [(misfit.row, misfit.offset) for misfit in found.misfits] == [
        (1, 2), (2, 0), (3, 0), (4, 0),
    ]  # fmt: skip


@pytest.mark.usefixtures("build")
def test_maps_with_many_entries() -> None:
    """Equal keys are found among few entries and among many, and in maps that are all empty."""
    schema = {"type": "map", "values": {"type": "map", "values": "int"}}
    sizes = [0, 1, 63, 64, 65, 200]
    texts, expected = [], []
    for size in sizes:
        pairs = [(f"k{number % 60}", {f"{number}": number}) for number in range(size)]
        texts.append("{" + ",".join(f'"{key}":{json.dumps(v)}' for key, v in pairs) + "}")
        expected.append(dict(pairs))

    assert shredded(json_text(schema), [text.encode() for text in texts]).rows == expected
    assert shredded(json_text(schema), [b"{}", None, b"{}"]).rows == [{}, None, {}]
    assert shredded(json_text(schema), [None]).rows == [None]


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("equal", [(), *"abcd", "ac", "bd", "abcd"])
def test_only_maps_with_equal_keys_are_rewritten(
    equal: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maps of other fields stay as they are in the arena, and so do those around or inside."""
    names = {"a": "outer", "b": "inner", "c": "one", "d": "listed"}
    maps = {"type": "map", "values": "int"}
    schema = record(
        ("nested", {"type": "map", "values": maps}),
        ("one", maps),
        ("list", {"type": "array", "items": record(("n", "int"), ("map", maps), name="S")}),
    )
    looked_at: list[str] = []

    def keep_last_of_equal(offsets: pa.Int32Array, keys: pa.Array) -> tuple[Any, ...]:
        looked_at.append(keys[-1].as_py())
        return gathered_message.keep_last_of_equal(offsets, keys)

    def entries(field: str, value: str) -> str:
        first = f'"{names[field]}":{value},' * (2 if field in equal else 1)
        return f'{{{first}"z{names[field]}":{value}}}'

    text = (
        f'{{"nested":{entries("a", entries("b", "1"))},"one":{entries("c", "2")},'
        f'"list":[{{"n":3,"map":{entries("d", "4")}}}]}}'
    )
    monkeypatch.setattr(shredding, "keep_last_of_equal", keep_last_of_equal)

    found = shredded(json_text(schema), [text.encode()] * 3)

    assert found.rows == [json.loads(text)] * 3
    assert sorted(looked_at) == sorted(f"z{names[field]}" for field in equal)


def test_schema_too_wide_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arena has room for as many rows of many fields as its maximum size allows."""
    program = json_text(record(*((f"f{number}", "double") for number in range(5000))))
    started = GuardedShredding(program, 65_536, 8 << 20)

    assert 1 < started.room < 65_536
    assert len(started._view) <= Shredding.max_bytes
    monkeypatch.setattr(Shredding, "max_bytes", 1000)
    with pytest.raises(SchemaError, match="one row of 5001 fields"):
        GuardedShredding(program, 65_536, 8 << 20)


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 21, 513])
def test_arena_becomes_a_message(count: int) -> None:
    """Each value and each null has its bit, wherever the null is, or if there is none."""
    program = json_text(record(("number", ["null", "int"]), ("flag", "boolean")))
    for null in {None, *range(min(count, 21)), *range(count)[-1:]}:
        rows = [
            {"number": row % 100 if row != null else None, "flag": row % 3 == 0}
            for row in range(count)
        ]

        found = shredded(program, [json.dumps(each).encode() for each in rows])

        assert found.rows == rows
        assert found.values.null_count == 0
        nulls = [found.values.field(name).null_count for name in ("number", "flag")]
        assert nulls == [int(null is not None), 0]


@pytest.mark.usefixtures("build")
def test_arenas_are_used_again() -> None:
    """An arena that was used before has neither its values nor its memory, whatever they were."""
    program = json_text(_SCHEMA)
    before = pa.total_allocated_bytes()
    for sizes in ([20], [0] * 70, [], [1, 30, 2]):
        payloads = [_text(size) for size in sizes]
        found = shredded(program, [*payloads, _BREAKS["list"], None])

        assert found.rows == [*map(_expected, sizes), None, None]
    arenas = [each for kind in program._idle_arenas.values() for each in kind]
    assert len(arenas) == 1
    del found
    assert pa.total_allocated_bytes() == before
    several = [GuardedShredding(program, 2, 0) for _ in range(3)]
    for row, each in enumerate(several):
        payload = _text(row)
        positions = memoryview(array("q", [len(payload)]))
        assert each.append(program, memoryview(payload), positions, 0, 1) is None
    for row, each in enumerate(several):
        assert each.finish().equals(shredded(program, [_text(row)]).values)
