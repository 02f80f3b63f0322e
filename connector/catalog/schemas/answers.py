"""Schemas as the admin API's answer to `GET /admin/v2/schemas/<topic>/schemas`.

The inverse of `connector.catalog.schemas.forms`, for the first of its forms (Pulsar's
`GetSchemaResponse`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from connector.catalog.schemas.forms import ALL_VERSIONS

if TYPE_CHECKING:
    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema


def registered_versions(schema: TopicSchema | None) -> tuple[tuple[int, SchemaInfo], ...]:
    """Return pairs of version and schema, ascending, as Pulsar's registry would have them.

    A reader schema that differs from all versions becomes the next version. Topics without a schema
    (`BYTES`) have no version.
    """
    if schema is None:
        return ()
    versions = schema.versions
    if schema.reader in (info for _, info in versions):
        return versions
    if not versions and schema.reader.type == "BYTES":
        return ()
    return (*versions, (versions[-1][0] + 1 if versions else 0, schema.reader))


def schemas_json(schema: TopicSchema | None, *, timestamp_ms: int) -> str:
    """Return the answer for a topic whose schemas were registered at a time."""
    answers = [
        {
            "version": version,
            "type": info.type,
            "timestamp": timestamp_ms,
            "data": _data(info),
            "properties": _properties(info),
        }
        for version, info in registered_versions(schema)
    ]
    return json.dumps({ALL_VERSIONS: answers})


def _data(info: SchemaInfo) -> str:
    """Return the definition; for KEY_VALUE, an object with key and value."""
    if info.type != "KEY_VALUE":
        return info.data
    parts = {"key": info.key, "value": info.value}
    return json.dumps({name: _definition(part) for name, part in parts.items()})


def _definition(part: SchemaInfo | None) -> object:
    """Return the definition of a key or value; as JSON text, if it is a JSON string (`"long"`)."""
    definition = json.loads(part.data) if part is not None and part.data else ""
    return part.data if part is not None and isinstance(definition, str) else definition


def _properties(info: SchemaInfo) -> dict[str, str]:
    properties = dict(info.properties)
    if info.type == "KEY_VALUE":
        properties["kv.encoding.type"] = "SEPARATED" if info.is_separated else "INLINE"
        for name, part in (("key", info.key), ("value", info.value)):
            if part is not None:
                properties[f"{name}.schema.name"] = ""
                properties[f"{name}.schema.type"] = part.type
                properties[f"{name}.schema.properties"] = json.dumps(dict(part.properties))
    return properties
