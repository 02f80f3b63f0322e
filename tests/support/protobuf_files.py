"""Protobuf files made in code, for tests, and payloads read by them."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from tests.support.protobuf_payloads import program_of, read_payloads, schema_data
from tests.support.protobuf_strategies import tag
from tests.support.pulsar_proto import varint

_F = FieldDescriptorProto


def file_of(syntax: str = "proto3", /, **messages: dict[str, Any]) -> FileDescriptorProto:
    """A file with the enum `E` and messages of fields by name: a type, or what a field has set.

    Fields are numbered from 1 on.
    """
    file = FileDescriptorProto(
        name="t.proto",
        package="t",
        syntax=syntax,
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )
    enum = file.enum_type.add(name="E")
    enum.options.allow_alias = True
    for name, number in (("ZERO", 0), ("ONE", 1), ("UNO", 1), ("MINUS", -1), ("FAR", 1 << 20)):
        enum.value.add(name=name, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field_name, given) in enumerate(fields.items(), 1):
            details = given if isinstance(given, dict) else {"type": given}
            if details.get("type") == "map":
                value = {"label": _F.LABEL_OPTIONAL, **details["value"]}
                entry = message.nested_type.add(name=f"{field_name.capitalize()}Entry")
                entry.options.map_entry = True
                key = details.get("key", _F.TYPE_STRING)
                entry.field.add(name="key", number=1, label=_F.LABEL_OPTIONAL, type=key)
                entry.field.add(name="value", number=2, **value)
                details = nested(f"t.{name}.{entry.name}", label=_F.LABEL_REPEATED)
            message.field.add(
                **{"name": field_name, "number": number, "label": _F.LABEL_OPTIONAL, **details}
            )
            if details.get("oneof_index") == len(message.oneof_decl):
                message.oneof_decl.add(name=f"oneof_{field_name}")
    return file


def nested(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of a field
    """A field of a message."""
    return {"type": _F.TYPE_MESSAGE, "type_name": f".{name}", **more}


ENUM: dict[str, Any] = {"type": _F.TYPE_ENUM, "type_name": ".t.E"}
"""A field of the enum."""


def data_of(file: FileDescriptorProto) -> str:
    """The data of a PROTOBUF_NATIVE schema of the file's message `M`."""
    return schema_data([file], "t.M", "t.proto")


def read(file: FileDescriptorProto, *payloads: bytes | None, unit: str = "ns") -> Any:  # noqa: ANN401
    """The values of payloads of the message `M`."""
    return read_payloads(program_of(data_of(file), unit), payloads)


def sized(number: int, body: bytes) -> bytes:
    """A field of a length and so many bytes, on the wire."""
    return tag(number, 2) + varint(len(body)) + body
