"""Protobuf (proto2) message classes from a few lines of text, without generated files or protoc.

Each set of messages has its own descriptor pool, because a user's classes may have taken Pulsar's
and BookKeeper's names in the default pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from enum import IntEnum


def message_classes(
    messages: Mapping[str, str], enums: Iterable[type[IntEnum]] = ()
) -> dict[str, Any]:
    r"""Return the classes of some messages, which may contain each other.

    Declare strings as bytes, which has the same wire form: protobuf's implementations differ in how
    they treat a proto2 string that is not UTF-8.

    Args:
        messages: A line for each field, by the name of the message: number, name, `required`,
            `optional` or `repeated`, type, and optionally the default. The type is a scalar type of
            proto2, or the name of a message or enum.
        enums: The enums; another number in a field is an unknown field.

    Returns:
        The classes by name; they have no static type.

    Example:
        >>> message_classes({"Pair": "1 key required bytes"})["Pair"](key=b"k").SerializeToString()
        b'\n\x01k'
    """
    file = descriptor_pb2.FileDescriptorProto(name="messages.proto", syntax="proto2")
    names = {each.__name__ for each in enums}
    for enum in enums:
        descriptor = file.enum_type.add(name=enum.__name__)
        for member in enum:
            descriptor.value.add(name=f"{enum.__name__}_{member.name}", number=member)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for line in fields.strip().splitlines():
            _add_field(message, line, messages, names)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in messages
    }


def _add_field(
    message: descriptor_pb2.DescriptorProto,
    line: str,
    messages: Mapping[str, str],
    enums: set[str],
) -> None:
    types = descriptor_pb2.FieldDescriptorProto
    number, name, label, kind, *default = line.split()
    field = message.field.add(
        name=name, number=int(number), label=types.Label.Value(f"LABEL_{label.upper()}")
    )
    if kind in messages or kind in enums:
        field.type = types.TYPE_ENUM if kind in enums else types.TYPE_MESSAGE
        field.type_name = f".{kind}"
    else:
        field.type = types.Type.Value(f"TYPE_{kind.upper()}")
    if default:
        field.default_value = default[0]
