"""PROTOBUF_NATIVE: descriptors from the `FileDescriptorSet` that Pulsar stores as a schema."""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from arrow_io.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_LIBRARY: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2,
        api_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )
}
"""Files that every protobuf library contains, so that a `FileDescriptorSet` may omit them."""

_TIMESTAMP: Final = timestamp_pb2.Timestamp.DESCRIPTOR
_WRAPPERS: Final = wrappers_pb2.DESCRIPTOR.message_types_by_name
_PACKAGE: Final = "google.protobuf."
_MAX_DATA_CHARACTERS: Final = 16 << 20


def root_message(schema_data: str) -> Descriptor:
    """Return the descriptor of a schema's outermost message, in its own pool.

    Raises:
        SchemaError: The text is not that of `protobuf_shape`, or does not describe that message.
    """
    message, _ = _read_descriptor(schema_data)
    return message


def messages_at(schema_data: str, indexes: Sequence[int]) -> set[str]:
    """Return the full names of the messages at a path in the file of the outermost message.

    `indexes` are the positions of the message and of those that contain it, outermost first. The
    entries of maps are messages too, which Confluent's clients for Python and Go count, and the one
    for Java does not. So a path may lead to no message, or to two.

    Raises:
        SchemaError: See `root_message`.
    """
    file = _root_file(schema_data)
    found = set()
    for counts_entries in (True, False):
        names, level = [file.package] if file.package else [], list(file.message_type)
        for index in indexes:
            message = level[index] if 0 <= index < len(level) else None
            if message is None or message.options.map_entry:
                break
            names.append(message.name)
            nested = message.nested_type
            level = [each for each in nested if counts_entries or not each.options.map_entry]
        else:
            found.add(".".join(names))
    return found


# Messages of other types may alternate with those that are read.
@lru_cache(maxsize=16)
def _root_file(schema_data: str) -> FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    root_message(schema_data).file.CopyToProto(file)
    return file


def proto_files(schema_data: str) -> tuple[DescriptorPool, list[FileDescriptorProto]]:
    """Return the files of a schema, and a pool that has validated them.

    Returns:
        The pool, and the file of the outermost message with its dependencies, except for files that
        every protobuf library contains.

    Raises:
        SchemaError: See `root_message`.
    """
    message, files = _read_descriptor(schema_data)
    return message.file.pool, [file for file in files if file.name not in _LIBRARY]


def _read_descriptor(schema_data: str) -> tuple[Descriptor, list[FileDescriptorProto]]:
    """Return the outermost message, and its files in the order of their dependencies."""
    if len(schema_data) > _MAX_DATA_CHARACTERS:
        raise SchemaError(f"the schema is longer than {_MAX_DATA_CHARACTERS} characters")
    try:
        data = json.loads(schema_data)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise SchemaError("the schema is not a JSON object")
    encoded = _text(data, "fileDescriptorSet")
    name = _text(data, "rootMessageTypeName")
    file_name = _text(data, "rootFileDescriptorName")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(
            base64.b64decode(encoded, validate=True)
        )
    except (ValueError, DecodeError) as error:
        raise SchemaError("the fileDescriptorSet is not a FileDescriptorSet in Base64") from error
    needed = _select_files(files, file_name)
    pool = _pool(needed)
    try:
        message = pool.FindMessageTypeByName(name)
    except KeyError:
        message = None
    if message is None or message.file.name != file_name:
        raise SchemaError(
            f"the file {file_name[:100]!r} does not define the message {name[:100]!r}"
        )
    return message, needed


def _text(data: dict[str, object], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise SchemaError(f"the schema has no {name}")
    return value


def _select_files(files: descriptor_pb2.FileDescriptorSet, root: str) -> list[FileDescriptorProto]:
    """Return the file `root` and its dependencies, which the set may contain in any order."""
    files_by_name: dict[str, FileDescriptorProto] = {}
    for file in files.file:
        if files_by_name.setdefault(file.name, file) != file:
            raise SchemaError(f"the fileDescriptorSet has two files named {file.name[:100]!r}")
    order: TopologicalSorter[str] = TopologicalSorter()
    queue, needed = [root], {root}
    while queue:
        name = queue.pop()
        if name not in files_by_name and name in _LIBRARY:
            files_by_name[name] = descriptor_pb2.FileDescriptorProto()
            _LIBRARY[name].CopyToProto(files_by_name[name])
        if name not in files_by_name:
            raise SchemaError(f"the fileDescriptorSet lacks the file {name[:100]!r}")
        order.add(name, *files_by_name[name].dependency)
        queue += set(files_by_name[name].dependency) - needed
        needed.update(files_by_name[name].dependency)
    try:
        return [files_by_name[name] for name in order.static_order()]
    except CycleError as error:
        raise SchemaError("files of the fileDescriptorSet depend on each other") from error


def _pool(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
    except TypeError as error:
        raise SchemaError(f"the fileDescriptorSet is not valid: {str(error)[:200]}") from error
    return pool


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    type_ = field.message_type
    return type_ is not None and field.is_repeated and type_.GetOptions().map_entry


def is_timestamp(message: Descriptor) -> bool:
    """Return whether a message is protobuf's own `Timestamp`, not just a type with its name."""
    return message.full_name == _TIMESTAMP.full_name and _fields(message) == _fields(_TIMESTAMP)


def is_wrapper(message: Descriptor) -> bool:
    """Return whether a message is one of protobuf's own scalar wrappers, such as `Int32Value`."""
    library_type = _WRAPPERS.get(message.full_name.removeprefix(_PACKAGE))
    return (
        library_type is not None
        and library_type.full_name == message.full_name
        and _fields(library_type) == _fields(message)
    )


def _fields(message: Descriptor) -> list[tuple[object, ...]]:
    """Return the properties by which a message is recognized as the library's own."""
    return [
        (each.name, each.number, each.type, each.is_repeated, each.has_presence)
        for each in message.fields
    ]


def entry_fields(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """Return the key and the value field of a map.

    Raises:
        SchemaError: The map's entries have other fields.
    """
    assert field.message_type is not None  # noqa: S101 - called for maps only
    fields = field.message_type.fields_by_number
    if set(fields) != {1, 2}:
        raise SchemaError(f"an entry of the map {field.full_name[:100]!r} is not a key and value")
    return fields[1], fields[2]
