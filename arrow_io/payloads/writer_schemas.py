"""Schemas that payloads were written with: which one each message names, and where it is found.

A message names a version in Pulsar's schema registry, or the id of a schema in another registry.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from arrow_io.core.lazy import cached_property
from arrow_io.errors import SchemaError, UnknownSchemaVersionError
from arrow_io.payloads.frames import Frame
from arrow_io.payloads.protobuf_schema import messages_at, root_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arrow_io.payloads.schema_info import SchemaInfo, SchemaRegistry

_VERSION_BYTES = 8


def version_number(version: bytes | None) -> int | None:
    """Return a schema version as a number: 8 bytes, big-endian (`LongSchemaVersion`).

    Versions of other lengths come from other registries and are opaque: the result is None.
    """
    if version is None or len(version) != _VERSION_BYTES:
        return None
    return int.from_bytes(version, signed=True)


class WriterSchemas(Protocol):
    """The schemas that payloads were written with, by a number: a version or an id."""

    def resolve(self, name: bytes | None) -> int | None:
        """Return the number of the schema that a message names; None for the reader's schema.

        Raises:
            UnknownSchemaVersionError: Schemas are available, but not this one.
            SchemaError: It has another type than the reader's schema, or cannot be read.
        """

    def schema(self, number: int) -> SchemaInfo:
        """Return the schema of a number that `resolve` returned."""


class PulsarVersions:
    """Schemas by their version in Pulsar's schema registry. Messages hold its bytes.

    Args:
        reader: The reader's schema.
        versions: The schema of each version; empty if all payloads were written with `reader`.
        foreign: Error texts of the versions that this schema cannot read, because one of the two is
            a KEY_VALUE and the other is not.
    """

    def __init__(
        self,
        reader: SchemaInfo,
        versions: Mapping[int, SchemaInfo] = MappingProxyType({}),
        foreign: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._reader = reader
        self._versions = versions
        self._foreign = foreign

    def resolve(self, name: bytes | None) -> int | None:
        """Return the number of a version; see `WriterSchemas`."""
        if not name or not (self._versions or self._foreign):
            return None
        number = version_number(name)
        if number is not None and number in self._foreign:
            raise SchemaError(self._foreign[number])
        if number is None or number not in self._versions:
            label = f"0x{name.hex()}" if number is None else number
            available = ", ".join(map(str, sorted({*self._versions, *self._foreign})))
            message = (
                f"the schema version {label} is missing, available are: {available};"
                " add it to the versions in schema"
            )
            raise UnknownSchemaVersionError(message)
        _check_type(f"schema version {number}", self._versions[number], self._reader)
        return number

    def schema(self, number: int) -> SchemaInfo:
        """Return the schema of a version."""
        return self._versions[number]


class RegistryIds:
    """Schemas by their id in another registry than Pulsar's. Messages hold a frame (`Frame`).

    Args:
        reader: The reader's schema.
        registry: The registry.
    """

    def __init__(self, reader: SchemaInfo, registry: SchemaRegistry) -> None:
        self._reader = reader
        self._registry = registry
        self._schemas: dict[int, SchemaInfo] = {}
        self._resolved: set[bytes] = set()

    def resolve(self, name: bytes | None) -> int | None:
        """Return the id in a frame; see `WriterSchemas`.

        Raises:
            StorageError: The registry cannot be asked for the id.
        """
        if name is None:
            return None
        frame = Frame.parse(name)
        if name not in self._resolved:
            info = self._registry.schema(frame.schema_id)
            if info is None:
                message = f"the schema id {frame.schema_id} is unknown to {self._registry}"
                raise UnknownSchemaVersionError(message)
            _check_type(f"the schema id {frame.schema_id}", info, self._reader)
            if info.type == "PROTOBUF_NATIVE":
                self._check_message(info, frame)
            self._schemas[frame.schema_id] = info
            self._resolved.add(name)
        return frame.schema_id

    def schema(self, number: int) -> SchemaInfo:
        """Return the schema of an id."""
        return self._schemas[number]

    @cached_property
    def _own_message(self) -> str:
        return root_message(self._reader.data).full_name

    def _check_message(self, info: SchemaInfo, frame: Frame) -> None:
        if frame.indexes is None:
            return
        own = self._own_message
        found = messages_at(info.data, frame.indexes)
        if found != {own}:
            message = (
                f"the schema id {frame.schema_id} has {' or '.join(sorted(found)) or 'no message'}"
                f" at {list(frame.indexes)}, not {own}"
            )
            raise SchemaError(message)


def _check_type(name: str, writer: SchemaInfo, reader: SchemaInfo) -> None:
    if writer.type.removesuffix("_NATIVE") != reader.type.removesuffix("_NATIVE"):
        message = f"{name} is of type {writer.type}, not {reader.type}"
        raise SchemaError(message)
