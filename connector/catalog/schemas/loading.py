"""Loading a topic's schemas, which are not among its offloaded objects, from any source.

Sources are files, folders, text and Python values, in the forms that
`connector.catalog.schemas.forms` reads. The result is a `TopicSchema`: the schema of each version,
and the reader schema.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from arrow_io.core.option_names import option_name
from arrow_io.errors import FormatError, MissingObjectError, OptionError
from arrow_io.payloads.schema_info import SCHEMA_TYPES, SchemaInfo, TopicSchema
from arrow_io.storage.hidden import hidden, hidden_url
from arrow_io.storage.location import Location, folder_and_name
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.schemas.forms import (
    ALL_VERSIONS,
    BARE_TYPES,
    CLIENT_MODES,
    DEFINED_TYPES,
    MAX_SOURCE_BYTES,
    descriptor_schema,
    error_prefix,
    holds_schemas,
    parse_json,
    type_name,
    versioned_schema,
)
from connector.inputs.cluster_access import REGISTRY_PREFIX

SchemaSource: TypeAlias = (
    str | os.PathLike[str] | bytes | FileDescriptorSet | Mapping[str, object] | Sequence[object]
)
"""Sources of schemas; see `load_schema`."""

_MAX_NESTED_LISTS: Final = 8
_MAX_PATH_LENGTH: Final = 4096
_MAX_VERSIONS: Final = 20
_SHOWN_LENGTH: Final = 200
_WITH_MESSAGE: Final = re.compile(r"(?P<path>.+)#(?P<message>[A-Za-z_.][\w.]*)")


def load_schema(
    source: SchemaSource,
    *,
    schema_version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> TopicSchema:
    """Read the schemas of a topic.

    Args:
        source: One of these, or a sequence of them, which are combined:

            - Path or URL of a file, as text or `os.PathLike`, with any of the JSON below in it or a
              protobuf `FileDescriptorSet` (`protoc --include_imports --descriptor_set_out=…`). The
              message follows after a `#` (`telemetry.desc#fleet.v1.Reading`); it can be left out if
              the set's last file has just one message at its top level.
            - Path or URL of a folder: all `*.json` and `*.avsc` files in it that contain schemas.
            - JSON text, which starts with `{` or `[`, or a dict: the admin API's answers (`GET
              …/schemas`, or for one version), the output of `pulsar-admin schemas get`, a
              SchemaInfo (`type`; `schema` or `data` as text or object, or `schema_base64`;
              `properties`), an Avro schema, or lists of these.
            - Bytes of such a file, or a `FileDescriptorSet`.
            - The name of a type of Pulsar's that needs no definition, such as `STRING`, in any
              letter case; a file of that name is `./string`.
        schema_version: Version in Pulsar's schema registry whose schema is the reader schema. By
            default the reader schema is the one that has no version (the reader's own), else the
            newest. A newest version of type NONE after others marks a schema that was deleted in
            Pulsar, and does not count.
        storage_options: Options of the fsspec file system for paths and URLs.

    Example:
        >>> load_schema("int32").reader.type
        'INT32'

    Raises:
        OptionError: There is no such file; it has no schema, or one that is malformed, too long, of
            an unknown type or a client mode; two different schemas have the same version; or there
            is none of `schema_version`.
        StorageError: The store refused, or all attempts failed.
    """
    source, storage_options = hidden_url(source), hidden(storage_options)
    reader = _SchemaReader(storage_options)
    reader.read(source)
    return reader.topic_schema(schema_version)


class _SchemaReader:
    """Collects schemas by version; the key None holds the one without a version."""

    def __init__(self, storage_options: Mapping[str, object] | None) -> None:
        self._storage_options = storage_options
        self._found: dict[int | None, tuple[SchemaInfo, str]] = {}

    def topic_schema(self, schema_version: int | None) -> TopicSchema:
        """Select the reader schema among the collected schemas.

        Raises:
            OptionError: Nothing was collected, `schema_version` was not, or a version is requested
                although there is a schema without one.
        """
        by_version = {
            version: self._found[version][0]
            for version in sorted(version for version in self._found if version is not None)
        }
        versions = tuple(by_version.items())
        own_schema, _ = self._found.get(None, (None, ""))
        if schema_version is None:
            reader = own_schema or _newest(versions)
            if reader is None:
                message = "the value of schema contains no schema"
                raise OptionError(message)
            return TopicSchema(reader, versions)
        if own_schema is not None:
            both = f"{option_name('schema_version')} and a schema without a version"
            message = f"both {both}: give one of them"
            raise OptionError(message)
        if schema_version not in by_version:
            known = ", ".join(map(str, list(by_version)[-_MAX_VERSIONS:])) or "none is known"
            newest = f" (the newest {_MAX_VERSIONS} of {len(by_version)})" * (
                len(by_version) > _MAX_VERSIONS
            )
            message = f"there is no schema of version {schema_version}; versions{newest}: {known}"
            raise OptionError(message)
        return TopicSchema(by_version[schema_version], versions)

    def read(self, source: object, depth: int = 0) -> None:
        if isinstance(source, str):
            self._read_text(source, depth)
        elif isinstance(source, os.PathLike):
            self._read_path(os.fspath(source))
        elif isinstance(source, bytes | bytearray | memoryview):
            self._read_content(bytes(source), "the bytes given as schema", None)
        elif isinstance(source, FileDescriptorSet):
            data = source.SerializeToString(deterministic=True)
            self._read_content(data, "the FileDescriptorSet given", None)
        elif isinstance(source, Mapping):
            self._add_json(source, "the object given as schema", depth)
        elif isinstance(source, Sequence):
            _check_nesting(depth)
            for each in source:
                self.read(each, depth + 1)
        else:
            message = f"a schema cannot be read from a value of type {type(source).__name__}"
            raise OptionError(message)

    def _read_text(self, text: str, depth: int) -> None:
        stripped = text.strip()
        name = stripped.upper()
        if stripped.lower().startswith(REGISTRY_PREFIX):
            message = "a schema registry cannot be combined with other schemas"
            raise OptionError(message)
        if stripped.startswith(("{", "[")):
            what = "the JSON text given as schema"
            with error_prefix(what):
                value = parse_json(text)
            if isinstance(value, list):
                self.read(value, depth)
            else:
                self._add_json(value, what, depth)
        elif name in SCHEMA_TYPES or name in CLIENT_MODES:
            what = f"the schema {name}"
            with error_prefix(what):
                if name in DEFINED_TYPES:
                    message = "needs a definition: give a file, an object or JSON text"
                    raise OptionError(message)
                schema = SchemaInfo(type_name(name))
            self._add(None, schema, what)
        else:
            self._read_path(text)

    def _read_path(self, path: str) -> None:
        if not path.strip() or len(path) > _MAX_PATH_LENGTH or not path.isprintable():
            message = f"a text of {len(path)} characters given as schema is neither JSON nor a path"
            raise OptionError(message)
        match = _WITH_MESSAGE.fullmatch(path)
        file, root_message = (match["path"], match["message"]) if match else (path, None)
        file = hidden_url(file)
        shown = _shorten(file)
        folder, name = map(hidden_url, folder_and_name(file))
        try:
            location = Location(folder or ".", self._storage_options)
            if name and location.exists(name):
                self._read_content(_content(location, name, shown), shown, root_message)
            else:
                self._read_folder(Location(file, self._storage_options), shown.rstrip("/"))
        except MissingObjectError:
            message = (
                f"schema {shown!r}: there is no such file or folder; the types that need no"
                f" definition are {', '.join(BARE_TYPES)}"
            )
            raise OptionError(message) from None

    def _read_folder(self, location: Location, shown: str) -> None:
        files = [
            file
            for file in location.list_objects()
            if file.name.lower().endswith((".json", ".avsc"))
        ]
        if sum(file.size_bytes for file in files) > MAX_SOURCE_BYTES:
            message = f"{shown}: its JSON files are longer than {MAX_SOURCE_BYTES} bytes together"
            raise OptionError(message)
        has_schemas = False
        for file in files:
            what = f"{shown}/{file.name}"
            content = _content(location, file.name, what)
            with error_prefix(what):
                value = parse_json(content)
            if holds_schemas(value):
                has_schemas = True
                self._add_json(value, what)
        if not has_schemas:
            message = f"{shown}: no *.json or *.avsc file in this folder contains a schema"
            raise OptionError(message)

    def _read_content(self, data: bytes, what: str, root_message: str | None) -> None:
        """Collect the schemas of a file: JSON, or a descriptor set, which is never valid JSON."""
        with error_prefix(what):
            if len(data) > MAX_SOURCE_BYTES:
                message = f"longer than the {MAX_SOURCE_BYTES} bytes allowed"
                raise OptionError(message)
            schema = None
            try:
                value = parse_json(data)
            except OptionError:
                schema = descriptor_schema(data, root_message)
                if schema is None:
                    raise
            if schema is None and root_message is not None:
                message = "not a descriptor set, so # cannot choose a message in it"
                raise OptionError(message)
        if schema is None:
            self._add_json(value, what)
        else:
            self._add(None, schema, what)

    def _add_json(self, value: object, what: str, depth: int = 0) -> None:
        if isinstance(value, Mapping):
            if ALL_VERSIONS in value:
                value = value[ALL_VERSIONS]
            else:
                with error_prefix(what):
                    version, schema = versioned_schema(value)
                self._add(version, schema, what)
                return
        if not isinstance(value, list):
            message = f"{what}: neither an object nor a list"
            raise OptionError(message)
        _check_nesting(depth)
        for each in value:
            self._add_json(each, what, depth + 1)

    def _add(self, version: int | None, schema: SchemaInfo, what: str) -> None:
        other, source = self._found.setdefault(version, (schema, what))
        if other != schema:
            claim = "without a version" if version is None else f"of version {version}"
            message = f"two different schemas {claim}: in {source} and in {what}"
            raise OptionError(message)


def _check_nesting(depth: int) -> None:
    if depth > _MAX_NESTED_LISTS:
        message = f"lists of schemas are nested more than {_MAX_NESTED_LISTS} deep"
        raise OptionError(message)


def _shorten(path: str) -> str:
    shown = redacted_urls(path)
    return shown if len(shown) <= _SHOWN_LENGTH else f"{shown[:_SHOWN_LENGTH]}…"


def _content(location: Location, name: str, shown: str) -> bytes:
    try:
        return location.read_object(name, max_bytes=MAX_SOURCE_BYTES).data
    except FormatError as error:
        message = f"{shown}: {error.message}"
        raise OptionError(message) from None


def _newest(versions: Sequence[tuple[int, SchemaInfo]]) -> SchemaInfo | None:
    infos = [info for _, info in versions]
    decodable = [info for info in infos if info.type != "BYTES"]
    return next(reversed(decodable or infos), None)
