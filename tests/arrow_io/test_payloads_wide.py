"""One row of a wide schema takes work that grows with the width, not with its square."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from arrow_io.columns import Origin, projection
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from arrow_io.read_metrics import Tally
from tests.support.avro_payloads import avro_long
from tests.support.builds import using_build
from tests.support.entries import Message, encode_entry
from tests.support.payloads import record
from tests.support.protobuf_payloads import schema_data
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_NARROW: Final = 60
_TIMES: Final = 8
_MOST_GROWTH: Final = 2 * _TIMES
"""Linear work grows as the width, quadratic work with its square."""


class _Steps:
    """Counts the instructions of Python, and comparisons of the names of a schema."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        """Trace a frame and those that it calls."""
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.count += event == "opcode"
        return self.trace

    def named(self, value: Any) -> Any:  # noqa: ANN401 - JSON
        """Return the same JSON with texts whose comparisons count, as in a search of a tuple."""
        if isinstance(value, str):
            return _text_of(self)(value)
        if isinstance(value, list):
            return [self.named(each) for each in value]
        if isinstance(value, dict):
            return {self.named(name): self.named(each) for name, each in value.items()}
        return value


def _text_of(steps: _Steps) -> type[str]:
    class Text(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            steps.count += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    return Text


def _names(width: int) -> list[str]:
    return [f"field{number}" for number in range(width)]


def _json(width: int) -> tuple[TopicSchema, bytes]:
    schema = record(*((name, "long") for name in _names(width)))
    # From the last to the first, as no hint knows them.
    text = json.dumps(dict.fromkeys(reversed(_names(width)), 1) | {"other": 1})
    return TopicSchema(SchemaInfo("JSON", json.dumps(schema))), text.encode()


def _unknown_json(width: int) -> tuple[TopicSchema, bytes]:
    schema, _ = _json(width)
    return schema, json.dumps({f"other{number}": number for number in range(width)}).encode()


def _avro(width: int) -> tuple[TopicSchema, bytes]:
    schema = record(*((name, "long") for name in _names(width)))
    return TopicSchema(SchemaInfo("AVRO", json.dumps(schema))), b"\x02" * width


def _evolved(width: int) -> tuple[TopicSchema, bytes]:
    """Half of the fields were renamed, half are new."""
    names = _names(width)
    written = record(*((f"old_{name}", "long") for name in names[: width // 2]))
    read = record(
        *(
            {"name": name, "type": "long", "aliases": [f"older_{name}", f"old_{name}"]}
            for name in names[: width // 2]
        ),
        *({"name": name, "type": "long", "default": 7} for name in names[width // 2 :]),
    )
    infos = [SchemaInfo("AVRO", json.dumps(each)) for each in (written, read)]
    return TopicSchema(infos[1], ((0, infos[0]),)), b"\x02" * (width // 2)


def _enum(width: int) -> tuple[TopicSchema, bytes]:
    enum = {"type": "enum", "name": "E", "symbols": _names(width)}
    fields = (("first", enum), *((f"other{number}", "E") for number in range(width)))
    schema = SchemaInfo("AVRO", json.dumps(record(*fields)))
    return TopicSchema(schema), avro_long(width - 1) * (width + 1)


def _union(width: int) -> tuple[TopicSchema, bytes]:
    branches = [record(("a", "long"), name=f"n{number}.R") for number in range(width)]
    schema = record(("value", branches))
    return TopicSchema(SchemaInfo("AVRO", json.dumps(schema))), avro_long(width - 1) + b"\x02"


def _protobuf(width: int) -> tuple[TopicSchema, bytes]:
    file = FileDescriptorProto(name="w.proto", package="t", syntax="proto3")
    message = file.message_type.add(name="W")
    for number, name in enumerate(_names(width), 1):
        message.field.add(
            name=name,
            number=number,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
            type=FieldDescriptorProto.TYPE_INT64,
        )
    data = schema_data([file], "t.W", "w.proto")
    return TopicSchema(SchemaInfo("PROTOBUF_NATIVE", data)), b"\x08\x02"


_SCHEMAS: Final = {
    "json": _json,
    "unknown json": _unknown_json,
    "avro": _avro,
    "evolved avro": _evolved,
    "avro enum": _enum,
    "avro union": _union,
    "protobuf": _protobuf,
}


def _decoded(schema: TopicSchema, payload: bytes) -> list[dict[str, Any]]:
    columns = projection(values=ValueColumns(schema))
    version = bytes(8) if schema.versions else None
    fields: Any = {} if version is None else {"schema_version": version}
    entries = [encode_entry([Message(payload=payload)], batched=True, **fields)]
    (rows,) = MessageReader([entry_run(entries)], Needs(), Tally())
    (batch,) = columns.assembly(Origin("t")).record_batches(rows, Tally())
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def _steps(monkeypatch: pytest.MonkeyPatch, schema: TopicSchema, payload: bytes) -> int:
    steps = _Steps()
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda text: steps.named(loads(text)))
    before = sys.gettrace()
    sys.settrace(steps.trace)
    try:
        _decoded(schema, payload)
    finally:
        sys.settrace(before)
        monkeypatch.undo()
    return steps.count


@pytest.mark.parametrize("kind", _SCHEMAS)
def test_work_grows_with_the_width(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a schema and reading one row of it takes steps in proportion to its width."""
    with using_build("pure"):
        narrow = _steps(monkeypatch, *_SCHEMAS[kind](_NARROW))
        wide = _steps(monkeypatch, *_SCHEMAS[kind](_NARROW * _TIMES))

    assert wide / narrow < _MOST_GROWTH


@pytest.mark.parametrize("width", [1, 2, 63, 100])
@pytest.mark.usefixtures("build")
def test_json_fields_in_any_order(width: int) -> None:
    """A name is found wherever it is among the names of the schema; others are not."""
    names = [f"{'n' * (number % 5)}{number % 7}_{number}" for number in range(width)]
    schema = TopicSchema(
        SchemaInfo("JSON", json.dumps(record(*((name, ["null", "long"]) for name in names))))
    )
    for shift in range(0, width, max(1, width // 9)):
        turned = names[shift:] + names[:shift]
        value = {name: number for number, name in enumerate(reversed(turned)) if number % 3}
        others = {f"{name}x": -1 for name in turned} | {name[:-1]: -2 for name in turned}
        unknown = {name: number for name, number in others.items() if name not in names}
        (row,) = _decoded(schema, json.dumps(unknown | value | {"ä": 1, "": 2}).encode())

        assert {name: row[name] for name in names} == dict.fromkeys(names) | value
