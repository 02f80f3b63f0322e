"""Conversion of registered schemas to `SchemaInfo`, with the schemas that they refer to.

| registered | becomes |
|---|---|
| AVRO | AVRO; a referenced type is defined where it is first used |
| JSON | JSON, whose definition is the JSON Schema; references to other schemas stay JSON text |
| PROTOBUF | PROTOBUF_NATIVE, with all imported files |
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from arrow_io.errors import OptionError, SchemaError
from arrow_io.payloads.avro_schema import PRIMITIVES
from arrow_io.payloads.json_schema import DIALECT
from arrow_io.payloads.schema_info import SchemaInfo
from connector.catalog.registry.registered import parse_answer
from connector.catalog.schemas.forms import MAX_SCHEMA_BYTES, descriptor_schema
from connector.catalog.schemas.proto_parser import parse_proto

if TYPE_CHECKING:
    from connector.catalog.registry.registered import RegisteredSchema
    from connector.catalog.registry.sources import RegistrySource

_MAX_REFERENCED: Final = 1000
_MAX_DEPTH: Final = 64
_TYPE_FIELDS: Final = ("type", "items", "values")
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_OPTIONS_ONLY: Final = frozenset({"confluent/meta.proto"})
"""Files that registries have without a reference, and that define nothing but options."""


def schema_info(
    registered: RegisteredSchema, source: RegistrySource, message_name: str | None = None
) -> SchemaInfo:
    """Convert a registered schema.

    Args:
        registered: The schema.
        source: Where schemas that it refers to are read.
        message_name: Full name of the protobuf message; by default the first in its file.

    Raises:
        SchemaError: The schema is malformed, or one that it refers to is missing.
        StorageError: The registry cannot be asked.
    """
    if registered.type == "PROTOBUF":
        return _protobuf(registered, source, message_name)
    what = f"a schema of {source}"
    definition = parse_answer(registered.text.encode(), what)
    if registered.type == "AVRO":
        referenced = _referenced(registered, source) if registered.references else {}
        definition = _Inliner(referenced, what).inline(definition, "", 0)
    else:
        definition = {DIALECT: "", **(definition if isinstance(definition, dict) else {})}
    text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"))
    if len(text) > MAX_SCHEMA_BYTES:
        message = f"{what} is longer than the {MAX_SCHEMA_BYTES} characters allowed"
        raise SchemaError(message)
    return SchemaInfo(registered.type, text)


def _referenced(registered: RegisteredSchema, source: RegistrySource) -> dict[str, str]:
    """Return the texts of all schemas that a schema needs, by the names that refer to them."""
    texts: dict[str, str] = {}
    characters = len(registered.text)
    queue = list(registered.references)
    while queue:
        reference = queue.pop()
        if reference.name in texts:
            continue
        found = source.version(reference.subject, reference.version)
        if found is None or found.type != registered.type:
            message = (
                f"{source} lacks the {registered.type} schema {reference.name[:100]!r}, version"
                f" {reference.version} of {reference.subject[:100]!r}, which another one refers to"
            )
            raise SchemaError(message)
        if len(texts) >= _MAX_REFERENCED:
            message = f"a schema of {source} refers to more than {_MAX_REFERENCED} others"
            raise SchemaError(message)
        characters += len(found.text)
        if characters > MAX_SCHEMA_BYTES:
            message = (
                f"a schema of {source} and those it refers to are together longer than the"
                f" {MAX_SCHEMA_BYTES} characters allowed"
            )
            raise SchemaError(message)
        texts[reference.name] = found.text
        queue += found.references
    return texts


def _protobuf(
    registered: RegisteredSchema, source: RegistrySource, message_name: str | None
) -> SchemaInfo:
    texts = _referenced(registered, source)
    name = "schema.proto"
    while name in texts:
        name = f"_{name}"
    files = [_proto_file(text, each) for each, text in texts.items()]
    files.append(_proto_file(registered.text, name))
    own = files[-1]
    imports = {each for file in files for each in file.dependency}
    files += [FileDescriptorProto(name=each) for each in _OPTIONS_ONLY & imports - texts.keys()]
    if not own.message_type:
        message = f"a protobuf schema of {source} has no message"
        raise SchemaError(message)
    first = f"{own.package}.{own.message_type[0].name}".removeprefix(".")
    data = FileDescriptorSet(file=files).SerializeToString(deterministic=True)
    try:
        info = descriptor_schema(data, message_name or first)
    except OptionError as error:
        raise SchemaError(error.message) from None
    assert info is not None  # noqa: S101 - the set is not empty
    return info


def _proto_file(text: str, name: str) -> FileDescriptorProto:
    """Read a file from its text, or from the Base64 of a `FileDescriptorProto`.

    Clients in Python and Go register the latter, and some registries return it unchanged.
    """
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return parse_proto(text, name)
    file.name = name
    return file


class _Inliner:
    """Replaces names of types that other schemas define by their definitions.

    Args:
        texts: Definitions of the other schemas, by any name.
        what: Name of the schema, for errors.
    """

    def __init__(self, texts: dict[str, str], what: str) -> None:
        self._what = what
        self._definitions: dict[str, dict[str, object]] = {}
        self._defined: set[str] = set()
        for text in texts.values():
            self._collect(parse_answer(text.encode(), what), "", 0)

    def _collect(self, schema: object, namespace: str, depth: int) -> None:
        """Collect the named types in a schema, each with its namespace."""
        self._check_depth(depth)
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, namespace, depth + 1)
        if not isinstance(schema, dict):
            return
        if _is_named(schema):
            full_name, namespace = _name(schema, namespace)
            own = {"name": full_name.rpartition(".")[2], "namespace": namespace}
            self._definitions.setdefault(full_name, {**schema, **own})
        fields = schema.get("fields")
        fields = fields if isinstance(fields, list) else []
        parts = [each.get("type") for each in fields if isinstance(each, dict)]
        for each in (*parts, *(schema.get(name) for name in _TYPE_FIELDS)):
            self._collect(each, namespace, depth + 1)

    def inline(self, schema: object, namespace: str, depth: int) -> object:
        """Return a schema in which each named type of another schema is defined once."""
        self._check_depth(depth)
        if isinstance(schema, str):
            return self._resolve(schema, namespace, depth)
        if isinstance(schema, list):
            return [self.inline(each, namespace, depth + 1) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if _is_named(schema):
            full_name, namespace = _name(schema, namespace)
            self._defined.add(full_name)
            fields = schema.get("fields")
            if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
                return schema
            types = [self.inline(each.get("type"), namespace, depth + 1) for each in fields]
            inlined = [{**each, "type": type_} for each, type_ in zip(fields, types, strict=True)]
            return {**schema, "fields": inlined}
        inner = {
            name: self.inline(schema[name], namespace, depth + 1)
            for name in _TYPE_FIELDS
            if name in schema
        }
        return {**schema, **inner}

    def _resolve(self, name: str, namespace: str, depth: int) -> object:
        if name in PRIMITIVES:
            return name
        candidates = [name] if "." in name or not namespace else [f"{namespace}.{name}", name]
        for each in candidates:
            if each in self._defined:
                return name
            if each in self._definitions:
                return self.inline(self._definitions[each], "", depth + 1)
        return name

    def _check_depth(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            message = f"{self._what} nests types more than {_MAX_DEPTH} levels deep"
            raise SchemaError(message)


def _is_named(schema: dict[str, object]) -> bool:
    kind = schema.get("type")
    return isinstance(kind, str) and kind in _NAMED


def _name(schema: dict[str, object], namespace: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace of the names in it."""
    name, own = str(schema.get("name") or ""), schema.get("namespace", namespace)
    full_name = name if "." in name or not own else f"{own}.{name}"
    return full_name, full_name.rpartition(".")[0]
