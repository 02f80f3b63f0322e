"""Protobuf payloads: how tests read them, and what the protobuf library says that they are.

Values are written as `golden_values.comparable` writes them.
"""

from __future__ import annotations

import base64
import json
from array import array
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf import message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from arrow_io.payloads.protobuf_native import protobuf_program, protobuf_shape
from arrow_io.payloads.shape import UNITS
from tests.support.arenas import GuardedShredding
from tests.support.avro_schemas import number_told
from tests.support.golden_values import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import Message

    from arrow_io.payloads.program import Program
    from arrow_io.payloads.shredding import Misfit

ProtoField: TypeAlias = Any
"""A field's descriptor: the library has two classes for it, of which it exports one."""

_LONG_MAX: Final = (1 << 63) - 1
_WRAPPED: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class NoValueError(Exception):
    """The library takes a payload that has no place in its columns."""


class RawMessage:
    """A message of which the column has the bytes; equal to all bytes that parse to it."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and type(self._message).FromString(other) == self._message

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RawMessage({self._message!r})"


def schema_data(files: Iterable[FileDescriptorProto], root: str, root_file: str) -> str:
    """PROTOBUF_NATIVE schema data, as Pulsar's `ProtobufNativeSchemaUtils` writes it."""
    descriptors = FileDescriptorSet(file=files)
    return json.dumps(
        {
            "fileDescriptorSet": base64.b64encode(descriptors.SerializeToString()).decode(),
            "rootMessageTypeName": root,
            "rootFileDescriptorName": root_file,
        }
    )


def program_of(data: str, time_unit: str = "ns", names: Sequence[str] | None = None) -> Program:
    """The program of a schema, for all fields or some."""
    shape = protobuf_shape(data, time_unit)
    return protobuf_program(shape if names is None else shape.select(names))


def read_payloads(program: Program, payloads: Sequence[bytes | None]) -> list[Any] | Misfit:
    """The values of some payloads, or the first that does not fit; None: no payload."""
    data, positions = bytearray(), array("q")
    for payload in payloads:
        positions.append(-1 if payload is None else len(data) << 32 | len(payload))
        data += payload or b""
    # Bytes behind the last payload, which is not to be read beyond.
    whole = memoryview(bytes(data) + b"\xff" * 16)
    shredding = GuardedShredding(program, len(payloads), len(data))
    misfit = shredding.append(program, whole, memoryview(positions), 0, len(payloads))
    values = shredding.finish()
    values.validate(full=True)
    return comparable(values) if misfit is None else misfit


def library_class(data: str) -> type[Message]:
    """The library's own class of the root message of a schema, in a pool of its own.

    Args:
        data: What `schema_data` gave, the files in the order in which they depend on each other.
    """
    described = json.loads(data)
    files = FileDescriptorSet.FromString(base64.b64decode(described["fileDescriptorSet"])).file
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        if module.DESCRIPTOR.name not in {file.name for file in files}:
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(described["rootMessageTypeName"])
    )


def library_value(message: Message, time_unit: str = "ns", around: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 - a value of any type
    """What a message is as a value.

    Raises:
        NoValueError: It has a time or a text that no column holds.
    """
    type_ = message.DESCRIPTOR
    if type_.full_name in around:
        return RawMessage(message)
    if type_.full_name == "google.protobuf.Timestamp":
        return _ticks(message.seconds, message.nanos, UNITS[time_unit])  # type: ignore[attr-defined]
    if type_.full_name in _WRAPPED:
        return _scalar(message.value, type_.fields[0])  # type: ignore[attr-defined]
    around = (*around, type_.full_name)
    if not type_.fields:
        return True
    return {field.name: _field(message, field, time_unit, around) for field in type_.fields}


def _field(message: Message, field: ProtoField, unit: str, around: tuple[str, ...]) -> Any:  # noqa: ANN401
    value = getattr(message, field.name)
    if is_map(field):
        item = field.message_type.fields_by_name["value"]
        key = field.message_type.fields_by_name["key"]
        return {_scalar(each, key): _single(value[each], item, unit, around) for each in value}
    if field.is_repeated:
        return [_single(each, field, unit, around) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(value, field, unit, around)


def _single(value: Any, field: ProtoField, unit: str, around: tuple[str, ...]) -> Any:  # noqa: ANN401
    if field.message_type is not None:
        return library_value(value, unit, around)
    return _scalar(value, field)


def _scalar(value: Any, field: ProtoField) -> Any:  # noqa: ANN401
    if field.enum_type is not None:
        names = [each.name for each in field.enum_type.values if each.number == value]
        return names[0] if names else str(value)
    if field.type in {Field.TYPE_UINT64, Field.TYPE_FIXED64}:
        return Decimal(value)
    if field.type == Field.TYPE_STRING and isinstance(value, bytes):
        # Where proto2 does not look at texts, one that is none is given as bytes.
        raise NoValueError
    return number_told(value) if isinstance(value, float) else value


def _ticks(seconds: int, nanoseconds: int, units: int) -> int:
    limit = _LONG_MAX // units
    ticks, rest = divmod(nanoseconds, 10**9 // units)
    if rest or not 0 <= ticks < units or not -limit <= seconds < limit:
        raise NoValueError
    return seconds * units + ticks


def is_map(field: ProtoField) -> bool:
    """Whether a field is a map."""
    type_ = field.message_type
    return type_ is not None and field.is_repeated and bool(type_.GetOptions().map_entry)
