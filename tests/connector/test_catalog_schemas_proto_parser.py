"""A `.proto` file is parsed to what protoc makes of it, or refused."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import SchemaError
from arrow_io.payloads.protobuf_schema import proto_files
from connector.catalog.schemas.proto_parser import parse_proto
from connector.catalog.schemas.proto_text import proto_text
from tests.support.proto_sources import SOURCES, compiled
from tests.support.protobuf_strategies import schemas

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    from tests.support.protobuf_strategies import Schema

_READ: Final = [name for name in SOURCES if name.startswith("proto")]


_GROUPS: Final = {"a.b.M.Extended", "a.b.Far"}
"""Messages of extensions that are groups, which are skipped."""


def _enum_facts(enum: EnumDescriptor | None) -> object:
    if enum is None:
        return None
    return enum.full_name, enum.is_closed, [(each.name, each.number) for each in enum.values]


def _message_facts(message: Descriptor) -> object:
    """All of a message that its values are decoded by, and of the messages in it."""
    fields = [
        (
            each.name,
            each.number,
            each.type,
            each.is_repeated,
            each.is_required,
            each.has_presence,
            each.message_type and each.message_type.full_name,
            _enum_facts(each.enum_type),
            each.containing_oneof and each.containing_oneof.name,
        )
        for each in message.fields
        if not each.is_extension
    ]
    options = message.GetOptions().map_entry
    nested = [
        _message_facts(each) for each in message.nested_types if each.full_name not in _GROUPS
    ]
    return message.full_name, sorted(fields), options, nested


def _facts(files: list[FileDescriptorProto], name: str) -> object:
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    messages = pool.FindFileByName(name).message_types_by_name.values()
    return [_message_facts(each) for each in messages if each.full_name not in _GROUPS]


@pytest.mark.parametrize("name", _READ)
def test_all_that_the_language_has(name: str, tmp_path: Path) -> None:
    """Messages, enums, oneofs, maps, groups and all that is skipped come out as by protoc."""
    found = compiled({"a/file.proto": SOURCES[name]}, tmp_path)
    others = [each for each in found.values() if each.name != "a/file.proto"]

    parsed = parse_proto(SOURCES[name], "a/file.proto")

    assert list(parsed.dependency) == list(found["a/file.proto"].dependency)
    expected = _facts([*others, found["a/file.proto"]], "a/file.proto")
    assert _facts([*others, parsed], "a/file.proto") == expected


@given(schema=schemas())
def test_random_files(schema: Schema) -> None:
    """What `proto_text` writes of any schema is parsed to the same messages."""
    pool, files = proto_files(schema.data)
    (file,) = (each for each in files if each.package == "t")
    text = proto_text(file, pool)
    if file.syntax == "editions":
        with pytest.raises(SchemaError, match="edition"):
            parse_proto(text, file.name)
        return
    library = [pool.FindFileByName(each) for each in file.dependency]
    others = []
    for each in library:
        copied = type(file)()
        each.CopyToProto(copied)
        others.append(copied)

    parsed = parse_proto(text, file.name)

    assert _facts([*others, parsed], file.name) == _facts([*others, file], file.name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('edition = "2023";', "edition"),
        ('syntax = "proto4";', "unknown syntax 'proto4'"),
        ("syntax = 'proto3'", "line 1 .*the end instead of ';'"),
        ("message M { int32 x = 1 }", "line 1 .*'}' instead of ';'"),
        ("message M {\n int32 x = ;\n}", "line 2 .*';' instead of a whole number"),
        ("message M { int32 x = 08; }", "whole number"),
        ("message M { int32 x = 99999999999; }", "32 bits"),
        ("message M { map<string> m = 1; }", "instead of ','"),
        ("message M { int32 a.b = 1; }", "without dots"),
        ("message M { oneof o { int32 x = 1; }", "the end"),
        ("message M { option (a) = { b: [1", "the end"),
        ("message M { int32 x = 1 [(a) = {", "the end"),
        ("/* no end", "invalid character"),
        ('import "no end', "invalid character"),
        ("\x00", "invalid character"),
        ("message M {" * 70, "nested more than 64"),
        pytest.param(";" * 600_000, "more than 500000 words", id="long"),
    ],
)
def test_malformed_files(text: str, reason: str) -> None:
    """The error has the line, and what is expected there."""
    with pytest.raises(SchemaError, match=reason):
        parse_proto(text, "f")


@given(
    data=st.data(),
    name=st.sampled_from(_READ),
    cuts=st.lists(st.integers(0, 4000), max_size=4),
)
def test_changed_files(data: st.DataObject, name: str, cuts: list[int]) -> None:
    """Whatever is cut from a file, the result is a file or an error of ours."""
    text = SOURCES[name]
    for place in cuts:
        length = data.draw(st.integers(1, 40))
        text = text[:place] + text[place + length :]
    with suppress(SchemaError):
        assert parse_proto(text, "f").name == "f"
