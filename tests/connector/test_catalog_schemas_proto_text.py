"""`.proto` files that we write are what protoc makes the same descriptors of again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from google.protobuf.descriptor_pb2 import (
    DESCRIPTOR,
    EDITION_2023,
    DescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given

from arrow_io.errors import SchemaError
from arrow_io.payloads.protobuf_schema import proto_files
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.payloads.value_columns import ValueColumns
from connector.catalog.schemas.files import schema_files
from connector.catalog.schemas.proto_text import proto_text
from tests.support.proto_sources import SOURCES, compiled
from tests.support.protobuf_payloads import schema_data
from tests.support.protobuf_strategies import schemas

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.protobuf_strategies import Schema


def _texts(files: Iterable[FileDescriptorProto], pool: DescriptorPool) -> dict[str, str]:
    return {each.name: proto_text(each, pool) for each in files}


def _ordered(messages: Iterable[DescriptorProto]) -> None:
    """Bring nested messages and fields in one order: nothing depends on theirs."""
    for message in messages:
        _ordered(message.nested_type)
        message.nested_type.sort(key=lambda each: each.name)
        message.field.sort(key=lambda each: each.number)


def _comparable(file: FileDescriptorProto) -> FileDescriptorProto:
    """The file, without what may be said in two ways."""
    _ordered(file.message_type)
    file.syntax = file.syntax.removeprefix("proto2")
    return file


@pytest.mark.parametrize("name", SOURCES)
def test_all_that_the_language_has(name: str, tmp_path: Path) -> None:
    """Options, defaults, groups, extensions, reserved names, services: all comes back."""
    found = compiled({"a/file.proto": SOURCES[name]}, tmp_path / "given")
    pool = DescriptorPool()
    for each in found.values():
        pool.Add(each)
    file = found["a/file.proto"]

    again = compiled(_texts([file], pool), tmp_path / "written")

    assert _comparable(again["a/file.proto"]) == _comparable(file)


@given(schema=schemas())
def test_any_schema(schema: Schema, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of all types, labels, oneofs, maps and features."""
    pool, files = proto_files(schema.data)
    again = compiled(_texts(files, pool), tmp_path_factory.mktemp("written"))
    for file in files:
        copy = again[file.name]
        for message in _messages(copy.message_type):
            for field in message.field:
                field.ClearField("json_name")
        assert _comparable(copy) == _comparable(file)


def _messages(messages: Iterable[DescriptorProto]) -> Iterable[DescriptorProto]:
    for message in messages:
        yield message
        yield from _messages(message.nested_type)


def test_options_that_no_file_defines_are_counted() -> None:
    """The text says that they are not in it."""
    file = FileDescriptorProto(name="f.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    message.options.MergeFromString(b"\x8a\xb5\x18\x01x")
    pool, files = proto_files(schema_data([file], "M", "f.proto"))
    (text,) = _texts(files, pool).values()
    assert text.startswith("// Without 1 custom option that no file of the schema defines.\n")


def test_a_reserved_name_that_is_none_is_refused() -> None:
    """In editions it would be read as something else."""
    file = FileDescriptorProto(name="f.proto", syntax="editions", edition=EDITION_2023)
    file.message_type.add(name="M", reserved_name=["a; } message N {"])
    pool, files = proto_files(schema_data([file], "M", "f.proto"))
    with pytest.raises(SchemaError, match="reserved name"):
        _texts(files, pool)


@pytest.mark.parametrize(
    "name", ["../f.proto", "/f.proto", "a/../f.proto", "a//f.proto", "C:f", ""]
)
def test_files_stay_in_their_folder(name: str) -> None:
    """A schema may come from anyone."""
    file = FileDescriptorProto(name=name, syntax="proto3")
    file.message_type.add(name="M")
    info = SchemaInfo("PROTOBUF_NATIVE", schema_data([file], "M", name))
    with pytest.raises(SchemaError, match="unsafe name"):
        schema_files(TopicSchema(info))


@pytest.mark.parametrize("schema_type", ["AVRO", "PROTOBUF", "PROTOBUF_NATIVE"])
@pytest.mark.parametrize("data", ["", "{", "[" * 100_000])
def test_definitions_that_are_not_json_are_refused(schema_type: str, data: str) -> None:
    """Pulsar keeps what a client sends."""
    with pytest.raises(SchemaError, match="is not JSON"):
        schema_files(TopicSchema(SchemaInfo(schema_type, data)))


def test_a_definition_without_utf8_is_refused() -> None:
    """JSON can name half a character."""
    with pytest.raises(SchemaError, match="is not JSON"):
        schema_files(TopicSchema(SchemaInfo("AVRO", r'"\ud800"')))


def test_json_schemas_are_not_avro_files() -> None:
    """A file named .avsc is read as an Avro schema, which a JSON Schema is not."""
    info = SchemaInfo("JSON", '{"type": "object", "properties": {"a": {"type": "integer"}}}')
    assert set(schema_files(TopicSchema(info))) == {"schemas-rest.json", "v0.schema.json"}


@pytest.mark.parametrize("descriptor", [5, "é", "A", None])
def test_descriptors_of_another_form_are_refused(descriptor: object) -> None:
    """They are the client's, too."""
    names = {"rootMessageTypeName": "M", "rootFileDescriptorName": "f.proto"}
    data = json.dumps({"fileDescriptorSet": descriptor, **names})
    with pytest.raises(SchemaError):
        schema_files(TopicSchema(SchemaInfo("PROTOBUF_NATIVE", data)))


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ({"type": "TYPE_ENUM", "type_name": ".E"}, b"\x80\xb5\x18\x63"),
        ({"type": "TYPE_STRING"}, b"\x82\xb5\x18\x01\xff"),
    ],
    ids=["a number without a name", "bytes that are no text"],
)
def test_options_that_cannot_be_written_are_refused(field: dict[str, str], option: bytes) -> None:
    """No compiler makes such ones."""
    library = FileDescriptorProto()
    DESCRIPTOR.CopyToProto(library)
    file = FileDescriptorProto(name="f.proto", syntax="proto3", dependency=[library.name])
    file.enum_type.add(name="E").value.add(name="A", number=0)
    file.extension.add(
        name="x",
        number=50_000,
        label="LABEL_OPTIONAL",
        extendee=".google.protobuf.MessageOptions",
        **field,
    )
    file.message_type.add(name="M").options.MergeFromString(option)
    info = SchemaInfo("PROTOBUF_NATIVE", schema_data([library, file], "M", "f.proto"))
    with pytest.raises(SchemaError, match="option"):
        schema_files(TopicSchema(info))


def test_text_that_is_not_utf8_is_refused() -> None:
    """Descriptors of proto2 may have such text."""
    file = FileDescriptorProto(name="f.proto")
    field = {"name": "f", "number": 1, "type": "TYPE_BYTES", "label": "LABEL_OPTIONAL"}
    file.message_type.add(name="M").field.add(**field).MergeFromString(b"\x3a\x01\xff")
    info = SchemaInfo("PROTOBUF_NATIVE", schema_data([file], "M", "f.proto"))
    with pytest.raises(SchemaError, match="UTF-8"):
        schema_files(TopicSchema(info))


@pytest.mark.parametrize("number", [1, 2])
def test_maps_of_other_entries_are_refused(number: int) -> None:
    """The library takes them; neither a file nor a column can be made of them."""
    file = FileDescriptorProto(name="f.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    message.field.add(
        name="f", number=1, type="TYPE_MESSAGE", type_name=".M.FEntry", label="LABEL_REPEATED"
    )
    entry = message.nested_type.add(name="FEntry", options={"map_entry": True})
    for name, its in (("key", 1), ("value", 2)):
        other = 3 if its == number else its
        entry.field.add(name=name, number=other, type="TYPE_INT32", label="LABEL_OPTIONAL")
    schema = TopicSchema(SchemaInfo("PROTOBUF_NATIVE", schema_data([file], "M", "f.proto")))
    with pytest.raises(SchemaError, match="key and value"):
        schema_files(schema)
    with pytest.raises(SchemaError, match="key and value"):
        assert ValueColumns(schema).fields


def test_files_that_import_each_other_are_all_written(tmp_path: Path) -> None:
    """By the names that they import each other by; not those that protoc brings."""
    sources = {
        "b/inner.proto": 'syntax = "proto3"; package b; message I { int32 i = 1; }',
        "outer.proto": (
            'syntax = "proto3"; import "b/inner.proto"; import "google/protobuf/any.proto";'
            " message O { b.I inner = 1; google.protobuf.Any any = 2; }"
        ),
    }
    given = compiled(sources, tmp_path / "given")
    info = SchemaInfo("PROTOBUF_NATIVE", schema_data(given.values(), "O", "outer.proto"))

    files = schema_files(TopicSchema(info, ((3, info),)))

    assert sorted(files) == ["schemas-rest.json", "v3.desc", "v3/b/inner.proto", "v3/outer.proto"]
    assert json.loads(files["schemas-rest.json"])
    texts = {name: files[f"v3/{name}"].decode() for name in sources}
    assert compiled(texts, tmp_path / "written") == given
