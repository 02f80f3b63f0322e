"""The text of a `.proto` file, from its descriptor, which has no comments.

protoc compiles the text to the same descriptor again, except for the order of elements whose order
is not recorded.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, text_encoding, text_format
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from arrow_io.core.wording import counted
from arrow_io.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.descriptor_pb2 import (
        EnumDescriptorProto,
        FileDescriptorProto,
        ServiceDescriptorProto,
    )
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

_F: Final = FieldDescriptorProto
_TYPES_WITH_NAMES: Final = frozenset({_F.TYPE_MESSAGE, _F.TYPE_ENUM, _F.TYPE_GROUP})
_PROTO2: Final = ("", "proto2")
_LABELS: Final = {_F.LABEL_OPTIONAL: "optional ", _F.LABEL_REQUIRED: "required "}
_VISIBILITIES: Final = {0: "", 1: "local ", 2: "export "}
_MAX_FIELD_STOP: Final = 1 << 29
_MAX_ENUM_NUMBER: Final = (1 << 31) - 1
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def proto_text(file: FileDescriptorProto, pool: DescriptorPool) -> str:
    """Return the text of a `.proto` file.

    The pool contains the file, which validates it, and defines the custom options that the file
    uses.

    Raises:
        SchemaError: A reserved name is not a name, text is not UTF-8, a map has an invalid entry
            type, or an option has a malformed or undefined value.
    """
    if not _is_text(file):
        raise SchemaError("the descriptor has text that is not UTF-8")
    writer = _FileWriter(file, pool)
    writer.write()
    return writer.text()


def _is_text(message: Message) -> bool:
    """Return whether all string fields of a message are UTF-8; others are returned as bytes."""
    for field, found in message.ListFields():
        for each in found if field.is_repeated else [found]:
            if field.message_type is not None:
                if not _is_text(each):
                    return False
            elif field.type == field.TYPE_STRING and isinstance(each, bytes):
                return False
    return True


def _quoted(text: str | bytes) -> str:
    if isinstance(text, str):
        # JSON's escapes are a subset of protobuf's.
        return json.dumps(text, ensure_ascii=False)
    return f'"{text_encoding.CEscape(text, as_utf8=False)}"'


class _FileWriter:
    def __init__(self, file: FileDescriptorProto, pool: DescriptorPool) -> None:
        self._file = file
        self._pool = pool
        self._is_edition = file.syntax == "editions"
        self._lines: list[str] = []
        self._depth = 0
        self._left_out = 0

    def text(self) -> str:
        head = []
        if self._left_out:
            options = counted(self._left_out, "custom option")
            head.append(f"// Without {options} that no file of the schema defines.\n")
        return "".join((*head, *self._lines))

    def _line(self, text: str) -> None:
        self._lines.append(f"{'  ' * self._depth}{text}\n")

    @contextmanager
    def _block(self, header: str) -> Iterator[None]:
        if not self._depth:
            self._lines.append("\n")
        self._line(f"{header} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self._line("}")

    def write(self) -> None:
        file = self._file
        if self._is_edition:
            edition = descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")
            self._line(f'edition = "{edition}";')
        else:
            self._line(f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._line(f"package {file.package};")
        kinds = dict.fromkeys(file.public_dependency, "public ")
        kinds |= dict.fromkeys(file.weak_dependency, "weak ")
        for number, name in enumerate(file.dependency):
            self._line(f"import {kinds.get(number, '')}{_quoted(name)};")
        for name in file.option_dependency:
            self._line(f"import option {_quoted(name)};")
        self._options(file.options)
        for enum in file.enum_type:
            self._enum(enum)
        groups = self._groups(file.extension)
        for message in file.message_type:
            if f"{self._scope('')}.{message.name}" not in groups:
                self._message(message, self._scope(""))
        self._extensions(file.extension, file.message_type)
        for service in file.service:
            self._service(service)

    def _scope(self, scope: str) -> str:
        return scope or (f".{self._file.package}" if self._file.package else "")

    def _groups(self, fields: Iterable[FieldDescriptorProto]) -> set[str]:
        """Return the full names of messages that are written inline with a field of their type."""
        if self._is_edition:
            return set()
        return {field.type_name for field in fields if field.type == _F.TYPE_GROUP}

    def _message(self, message: DescriptorProto, scope: str) -> None:
        visibility = _VISIBILITIES[message.visibility]
        with self._block(f"{visibility}message {message.name}"):
            self._message_body(message, f"{scope}.{message.name}")

    def _message_body(self, message: DescriptorProto, name: str) -> None:
        self._options(message.options)
        nested = {f"{name}.{each.name}": each for each in message.nested_type}
        inline = self._groups((*message.field, *message.extension))
        for enum in message.enum_type:
            self._enum(enum)
        for each_name, each in nested.items():
            if each_name not in inline and not each.options.map_entry:
                self._message(each, name)
        written_oneofs: set[int] = set()
        for field in message.field:
            number = _oneof_of(field)
            if number is None:
                self._field(field, nested)
            elif number not in written_oneofs:
                written_oneofs.add(number)
                self._oneof(message, number, nested)
        for extensions in message.extension_range:
            options = self._bracketed(self._option_texts(extensions.options))
            last = _range_text(extensions.start, extensions.end - 1, _MAX_FIELD_STOP - 1)
            self._line(f"extensions {last}{options};")
        self._extensions(message.extension, message.nested_type, name)
        ranges = [
            _range_text(each.start, each.end - 1, _MAX_FIELD_STOP - 1)
            for each in message.reserved_range
        ]
        self._reserved(ranges, message.reserved_name)

    def _oneof(
        self, message: DescriptorProto, number: int, nested: dict[str, DescriptorProto]
    ) -> None:
        oneof = message.oneof_decl[number]
        with self._block(f"oneof {oneof.name}"):
            self._options(oneof.options)
            for field in message.field:
                if _oneof_of(field) == number:
                    self._field(field, nested)

    def _field(self, field: FieldDescriptorProto, nested: dict[str, DescriptorProto]) -> None:
        entry = nested.get(field.type_name)
        options = self._bracketed(self._field_options(field))
        if entry is not None and entry.options.map_entry:
            if [each.number for each in entry.field] != [1, 2]:
                raise SchemaError(
                    f"an entry of the map {field.name!r} does not consist of key and value"
                )
            key, value = entry.field
            types = f"{self._type(key)}, {self._type(value)}"
            self._line(f"map<{types}> {field.name} = {field.number}{options};")
        elif entry is not None and field.type_name in self._groups((field,)):
            with self._block(f"{self._label(field)}group {entry.name} = {field.number}{options}"):
                self._message_body(entry, field.type_name)
        else:
            declaration = f"{self._label(field)}{self._type(field)}"
            self._line(f"{declaration} {field.name} = {field.number}{options};")

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == _F.LABEL_REPEATED:
            return "repeated "
        if _oneof_of(field) is not None or self._is_edition:
            return ""
        has_label = self._file.syntax in _PROTO2 or field.proto3_optional
        return _LABELS[field.label] if has_label else ""

    def _type(self, field: FieldDescriptorProto) -> str:
        if field.type in _TYPES_WITH_NAMES:
            return field.type_name
        return _F.Type.Name(field.type).removeprefix("TYPE_").lower()

    def _field_options(self, field: FieldDescriptorProto) -> Iterator[str]:
        if field.HasField("default_value"):
            yield f"default = {_default_text(field)}"
        if field.json_name and not field.extendee and field.json_name != _json_name(field.name):
            yield f"json_name = {_quoted(field.json_name)}"
        yield from self._option_texts(field.options)

    def _extensions(
        self,
        extensions: Iterable[FieldDescriptorProto],
        messages: Iterable[DescriptorProto],
        scope: str = "",
    ) -> None:
        known = {f"{self._scope(scope)}.{each.name}": each for each in messages}
        for extendee, fields in groupby(extensions, key=lambda field: field.extendee):
            with self._block(f"extend {extendee}"):
                for field in fields:
                    self._field(field, known)

    def _enum(self, enum: EnumDescriptorProto) -> None:
        with self._block(f"{_VISIBILITIES[enum.visibility]}enum {enum.name}"):
            self._options(enum.options)
            for value in enum.value:
                options = self._bracketed(self._option_texts(value.options))
                self._line(f"{value.name} = {value.number}{options};")
            ranges = [
                _range_text(each.start, each.end, _MAX_ENUM_NUMBER) for each in enum.reserved_range
            ]
            self._reserved(ranges, enum.reserved_name)

    def _reserved(self, ranges: Iterable[str], names: Iterable[str]) -> None:
        for numbers in ranges:
            self._line(f"reserved {numbers};")
        for name in names:
            if self._is_edition and not _IDENTIFIER.fullmatch(name):
                raise SchemaError(f"the reserved name {name[:100]!r} is not an identifier")
            self._line(f"reserved {name if self._is_edition else _quoted(name)};")

    def _service(self, service: ServiceDescriptorProto) -> None:
        with self._block(f"service {service.name}"):
            self._options(service.options)
            for method in service.method:
                request = f"{'stream ' * method.client_streaming}{method.input_type}"
                response = f"{'stream ' * method.server_streaming}{method.output_type}"
                signature = f"rpc {method.name} ({request}) returns ({response})"
                if not method.HasField("options"):
                    self._line(f"{signature};")
                    continue
                with self._block(signature):
                    self._options(method.options)

    def _options(self, options: Message) -> None:
        for text in self._option_texts(options):
            self._line(f"option {text};")

    @staticmethod
    def _bracketed(texts: Iterable[str]) -> str:
        text = ", ".join(texts)
        return f" [{text}]" if text else ""

    def _option_texts(self, options: Message) -> Iterator[str]:
        """Yield the text after `option`, for protobuf's options and those that files define."""
        try:
            option_type = self._pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        except KeyError:
            known_options = options
        else:
            try:
                known_options = GetMessageClass(option_type).FromString(options.SerializeToString())
            except DecodeError as error:
                raise SchemaError(f"options of the schema are malformed: {error}") from error
        self._left_out += len(UnknownFieldSet(known_options))
        yield from _values_of(known_options, "")


def _values_of(message: Message, prefix: str) -> Iterator[str]:
    for field, found in message.ListFields():
        name = f"{prefix}({field.full_name})" if field.is_extension else f"{prefix}{field.name}"
        if field.is_repeated:
            yield from (f"{name} = {_value_text(field, each)}" for each in found)
        elif field.message_type is not None and not field.is_extension:
            yield from _values_of(found, f"{name}.")
        else:
            yield f"{name} = {_value_text(field, found)}"


def _value_text(field: FieldDescriptor, value: Any) -> str:  # noqa: ANN401 - of the field's type
    if field.message_type is not None:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if field.enum_type is not None:
        enum_value = field.enum_type.values_by_number.get(value)
        if enum_value is None:
            message = f"{value}, which option {field.full_name} has, is no value of its enum"
            raise SchemaError(message)
        return str(enum_value.name)
    if isinstance(value, str | bytes):
        return _quoted(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _oneof_of(field: FieldDescriptorProto) -> int | None:
    """Return the number of a field's oneof; an optional field of proto3 is in none."""
    is_member = field.HasField("oneof_index") and not field.proto3_optional
    return field.oneof_index if is_member else None


def _range_text(start: int, last: int, greatest: int) -> str:
    if start == last:
        return str(start)
    return f"{start} to {'max' if last == greatest else last}"


def _default_text(field: FieldDescriptorProto) -> str:
    if field.type == _F.TYPE_STRING:
        return _quoted(field.default_value)
    if field.type == _F.TYPE_BYTES:
        return _quoted(text_encoding.CUnescape(field.default_value))
    return field.default_value


def _json_name(name: str) -> str:
    """Return the name in JSON that protoc assigns to a field."""
    head, *tail = name.split("_")
    return head + "".join(each[:1].upper() + each[1:] for each in tail)
