"""JSON Schema: the columns of JSON values that have a JSON Schema instead of an Avro schema.

Confluent's registry stores one for JSON. Pulsar's brokers accepted one for the type JSON until
PIP-464. Java clients before 2.1 stored draft 3 with ids such as `urn:jsonschema:…`, as Jackson's
module generates it; some users of other clients stored later drafts.

| JSON Schema | Arrow |
|---|---|
| string, or only texts in `enum` | string |
| integer | int64 |
| number | float64 |
| boolean | bool |
| array whose items have one schema | list |
| object with `properties` | struct; other fields are ignored |
| object without, whose `additionalProperties` have a schema | map |
| anything else, or a type inside itself | string: the JSON text, unchanged |

All values may be null, so an alternative that only accepts null does not matter. Payloads are not
validated beyond these types.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from arrow_io.payloads.avro_schema import JSON_TEXT, AvroField, AvroType, encodable
from arrow_io.payloads.shape import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

DIALECT: Final = "$schema"
"""Field that names the dialect of a JSON Schema. No Avro schema has it."""

_UNTYPED: Final = frozenset({"properties", "$ref", "oneOf", "anyOf", "allOf"})
"""Fields by which a JSON Schema without a type is recognized. An Avro schema always has a type."""

_SCALARS: Final = {
    "string": "string",
    "integer": "long",
    "number": "double",
    "boolean": "boolean",
}


def is_json_schema(definition: str) -> bool:
    """Return whether the definition of a JSON schema is a JSON Schema, not an Avro schema."""
    try:
        schema = json.loads(definition)
    except (ValueError, RecursionError):
        return False
    if not isinstance(schema, dict):
        return False
    if DIALECT in schema or schema.get("type") == "object":
        return True
    return "type" not in schema and not schema.keys().isdisjoint(_UNTYPED)


def parse_json_schema(definition: str) -> AvroType:
    """Return the type that values of a JSON Schema are read as.

    Raises:
        SchemaError: It is nested too deeply, has too many fields, or a name is not valid text.
    """
    schema = json.loads(definition)
    return _Reader(schema).type(schema, 0)


class _Reader:
    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._budget = Budget()
        self._by_id: dict[str, object] = {}
        self._find_ids(root, 0)
        self._types: dict[int, AvroType] = {}

    def _find_ids(self, schema: object, depth: int) -> None:
        """Collect schemas by their ids, which draft 3 of Jackson's module refers to."""
        self._budget.spend(depth)
        if isinstance(schema, list):
            for each in schema:
                self._find_ids(each, depth + 1)
        if isinstance(schema, dict):
            own_id = schema.get("id")
            if isinstance(own_id, str):
                self._by_id.setdefault(own_id, schema)
            for each in schema.values():
                if isinstance(each, dict | list):
                    self._find_ids(each, depth + 1)

    def type(self, schema: object, depth: int) -> AvroType:
        self._budget.spend(depth)
        if not isinstance(schema, dict):
            return _text()
        if id(schema) not in self._types:
            # Until it is complete, a type inside itself is JSON text.
            self._types[id(schema)] = _text()
            self._types[id(schema)] = self._type(schema, depth)
        return self._types[id(schema)]

    def _type(self, schema: Mapping[str, object], depth: int) -> AvroType:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            # Since draft 2019-09, keywords beside a reference apply too.
            is_alone = schema.keys().isdisjoint(_UNTYPED - {"$ref"})
            return self.type(self._find(reference) if is_alone else None, depth + 1)
        if not schema.keys().isdisjoint({"oneOf", "anyOf", "allOf"}):
            return self._combination(schema, depth)
        names = schema.get("type")
        kinds = [each for each in (names if isinstance(names, list) else [names]) if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
        if kind is None and names is None:
            kind = _implied_kind(schema)
        if kind == "object":
            return self._object(schema, depth)
        items = schema.get("items")
        if kind == "array" and isinstance(items, dict):
            return AvroType("array", items=self.type(items, depth + 1))
        if isinstance(kind, str) and kind in _SCALARS:
            return AvroType(_SCALARS[kind])
        return _text()

    def _combination(self, schema: Mapping[str, object], depth: int) -> AvroType:
        """Return the only alternative that is not null; JSON text if there are several."""
        keywords = schema.keys() & {"oneOf", "anyOf", "allOf", "type", "properties"}
        alternatives = schema[next(iter(keywords))] if len(keywords) == 1 else None
        if not isinstance(alternatives, list):
            return _text()
        types = [each for each in alternatives if not _is_null(each)]
        return self.type(types[0], depth + 1) if len(types) == 1 else _text()

    def _object(self, schema: Mapping[str, object], depth: int) -> AvroType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            fields = [
                AvroField(encodable(name), self.type(each, depth + 1))
                for name, each in properties.items()
            ]
            return AvroType("record", fields=fields)
        values = schema.get("additionalProperties")
        if isinstance(values, dict) and values and "patternProperties" not in schema:
            return AvroType("map", items=self.type(values, depth + 1))
        return _text()

    def _find(self, reference: str) -> object:
        """Return the schema that a reference leads to; None if it is not in this schema."""
        if reference in self._by_id:
            return self._by_id[reference]
        if not reference.startswith("#"):
            return None
        found: object = self._root
        for part in unquote(reference[1:]).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found


def _text() -> AvroType:
    return AvroType(JSON_TEXT)


def _is_null(schema: object) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"


def _implied_kind(schema: Mapping[str, object]) -> str | None:
    """Return the type that other keywords of a schema without `type` imply."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list) and values and all(isinstance(each, str) for each in values):
        return "string"
    return "object" if "properties" in schema else None
