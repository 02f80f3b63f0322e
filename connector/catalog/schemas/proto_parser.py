"""Parser of `.proto` files (proto2 and proto3) to protobuf's `FileDescriptorProto`.

It is the inverse of `connector.catalog.schemas.proto_text`, as far as values are decoded by the
result. Options, services, extensions and reserved ranges are skipped. Names of types are left to
the pool that resolves them. The grammar is that of protobuf's language specification.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from arrow_io.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*(?s:.*?)\*/)
    |(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<number>\d[\w.]*(?:(?<=[eE])[+-]\d+)?|\.\d[\w.]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[-+=;:,<>(){}\[\]/])
    """,
    re.VERBOSE,
)
_MAX_DEPTH: Final = 64
_MAX_TOKENS: Final = 500_000
"""About 80,000 fields. A word takes more memory and time than its text suggests."""
_MAX_NUMBER: Final = (1 << 31) - 1
_SHOWN_CHARACTERS: Final = 40
_OPENERS: Final = {"{": "}", "[": "]", "(": ")", "<": ">"}

_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_SCALARS: Final = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
        "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
    )
}  # fmt: skip


def parse_proto(text: str, name: str) -> FileDescriptorProto:
    """Parse the text of a `.proto` file.

    Args:
        text: The text.
        name: Name of the file, which other files import it by.

    Raises:
        SchemaError: The text is not a `.proto` file, or is in an edition instead of a syntax.
    """
    return _Parser(_tokens(text)).file(name)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            message = f"line {line} of the .proto file has an invalid character"
            raise SchemaError(message)
        kind = str(match.lastgroup)
        if kind != "space":
            if len(tokens) >= _MAX_TOKENS:
                message = f"the .proto file has more than {_MAX_TOKENS} words"
                raise SchemaError(message)
            tokens.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
        position = match.end()
    tokens.append(_Token("end", "", line))
    return tokens


class _Parser:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._is_proto3 = False

    # Tokens

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _fail(self, expected: str) -> SchemaError:
        found = repr(self._token.text[:_SHOWN_CHARACTERS]) if self._token.text else "the end"
        return SchemaError(
            f"line {self._token.line} of the .proto file has {found} instead of {expected}"
        )

    def _take(self, kind: str, expected: str) -> str:
        if self._token.kind != kind:
            raise self._fail(expected)
        self._next += 1
        return self._tokens[self._next - 1].text

    def _accepts(self, text: str) -> bool:
        is_next = self._token.text == text and self._token.kind in {"name", "mark"}
        self._next += is_next
        return is_next

    def _expect(self, text: str) -> None:
        if not self._accepts(text):
            raise self._fail(repr(text))

    def _name(self) -> str:
        return self._take("name", "a name")

    def _simple_name(self) -> str:
        if "." in self._token.text:
            raise self._fail("a name without dots")
        return self._name()

    def _integer(self) -> int:
        sign = -1 if self._accepts("-") else 1
        text = self._token.text
        is_octal = text.startswith("0") and text.isdigit()
        try:
            number = int(text, 8) if is_octal else int(text, 0)
        except ValueError:
            raise self._fail("a whole number") from None
        self._next += 1
        if not -_MAX_NUMBER - 1 <= sign * number <= _MAX_NUMBER:
            self._next -= 1
            raise self._fail("a number of 32 bits")
        return sign * number

    def _text(self) -> str:
        parts = [self._take("text", "a text in quotes")]
        while self._token.kind == "text":
            parts.append(self._take("text", "a text in quotes"))
        return "".join(part[1:-1] for part in parts)

    def _skip_statement(self) -> None:
        """Skip up to a semicolon or the end of a block, past all that is nested in between."""
        closers: list[str] = []
        while True:
            token = self._token
            if token.kind == "end":
                raise self._fail("the end of a statement")
            self._next += 1
            if token.kind != "mark":
                continue
            if token.text in _OPENERS and (token.text != "<" or closers):
                closers.append(_OPENERS[token.text])
            elif closers and token.text == closers[-1]:
                closers.pop()
                if token.text == "}" and not closers:
                    # An option may have a semicolon after its block.
                    self._accepts(";")
                    return
            elif token.text == ";" and not closers:
                return

    def _skip_field_options(self) -> None:
        if not self._accepts("["):
            return
        closers = ["]"]
        while closers:
            token = self._token
            if token.kind == "end":
                raise self._fail("]")
            self._next += 1
            if token.kind == "mark" and token.text == closers[-1]:
                closers.pop()
            elif token.kind == "mark" and token.text in _OPENERS:
                closers.append(_OPENERS[token.text])

    # Definitions

    def file(self, name: str) -> FileDescriptorProto:
        file = FileDescriptorProto(name=name)
        if self._accepts("edition"):
            message = "the .proto file is in an edition of protobuf, which is not supported"
            raise SchemaError(message)
        if self._accepts("syntax"):
            self._expect("=")
            syntax = self._text()
            if syntax not in {"proto2", "proto3"}:
                message = f"the .proto file has the unknown syntax {syntax[:_SHOWN_CHARACTERS]!r}"
                raise SchemaError(message)
            self._expect(";")
            file.syntax = syntax
            self._is_proto3 = syntax == "proto3"
        while self._token.kind != "end":
            self._definition(file)
        return file

    def _definition(self, file: FileDescriptorProto) -> None:
        if self._accepts("package"):
            file.package = self._name()
            self._expect(";")
        elif self._accepts("import"):
            if self._accepts("public"):
                file.public_dependency.append(len(file.dependency))
            else:
                self._accepts("weak")
            file.dependency.append(self._text())
            self._expect(";")
        elif self._accepts("message"):
            self._message(file.message_type.add(), 1)
        elif self._accepts("enum"):
            self._enum(file.enum_type.add())
        elif self._token.text in {"option", "service", "extend"}:
            self._skip_statement()
        else:
            self._expect(";")

    def _message(self, message: DescriptorProto, depth: int) -> None:
        message.name = self._simple_name()
        self._body(message, depth)
        synthetic = [each for each in message.field if each.proto3_optional]
        used_names = {each.name for each in message.field} | {
            each.name for each in message.oneof_decl
        }
        for field in synthetic:
            name = f"_{field.name}"
            while name in used_names:
                name = f"X{name}"
            used_names.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)

    def _body(self, message: DescriptorProto, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise SchemaError(f"messages of the .proto file are nested more than {_MAX_DEPTH} deep")
        self._expect("{")
        while not self._accepts("}"):
            if self._accepts("message"):
                self._message(message.nested_type.add(), depth + 1)
            elif self._accepts("enum"):
                self._enum(message.enum_type.add())
            elif self._accepts("oneof"):
                self._oneof(message, depth)
            elif self._token.text in {"option", "reserved", "extensions", "extend"}:
                self._skip_statement()
            elif not self._accepts(";"):
                self._field(message, depth)

    def _oneof(self, message: DescriptorProto, depth: int) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._simple_name())
        self._expect("{")
        while not self._accepts("}"):
            if self._token.text == "option":
                self._skip_statement()
            elif not self._accepts(";"):
                self._field(message, depth).oneof_index = index

    def _field(self, message: DescriptorProto, depth: int) -> FieldDescriptorProto:
        field = message.field.add(label=FieldDescriptorProto.LABEL_OPTIONAL)
        if self._token.text in _LABELS:
            label = self._name()
            field.label = _LABELS[label]
            if self._is_proto3 and label == "optional":
                field.proto3_optional = True
        type_name = self._name()
        if type_name == "map" and self._accepts("<"):
            key = self._name()
            self._expect(",")
            value = self._name()
            self._expect(">")
            field.name = self._simple_name()
            field.label = FieldDescriptorProto.LABEL_REPEATED
            field.type = FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = _add_entry(message, field.name, key, value)
        else:
            field.name = self._simple_name()
            _set_type(field, type_name)
        self._expect("=")
        field.number = self._integer()
        self._skip_field_options()
        if type_name == "group" and self._token.text == "{":
            group = message.nested_type.add(name=field.name)
            field.name = field.name.lower()
            field.type = FieldDescriptorProto.TYPE_GROUP
            field.type_name = group.name
            self._body(group, depth + 1)
        else:
            self._expect(";")
        return field

    def _enum(self, enum: EnumDescriptorProto) -> None:
        enum.name = self._simple_name()
        self._expect("{")
        while not self._accepts("}"):
            if self._token.text in {"option", "reserved"}:
                if self._tokens[self._next + 1].text == "allow_alias":
                    enum.options.allow_alias = True
                self._skip_statement()
            elif not self._accepts(";"):
                value = enum.value.add(name=self._simple_name())
                self._expect("=")
                value.number = self._integer()
                self._skip_field_options()
                self._expect(";")


def _set_type(field: FieldDescriptorProto, name: str) -> None:
    if name in _SCALARS:
        field.type = _SCALARS[name]
    else:
        field.type_name = name


def _add_entry(message: DescriptorProto, field_name: str, key: str, value: str) -> str:
    """Add the message of a map's entries, and return its name, as protobuf's compiler does."""
    words = field_name.split("_")
    entry = message.nested_type.add(
        name="".join(f"{w[:1].upper()}{w[1:]}" for w in words) + "Entry"
    )
    entry.options.map_entry = True
    for number, (name, type_name) in enumerate((("key", key), ("value", value)), start=1):
        field = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        _set_type(field, type_name)
    return entry.name
