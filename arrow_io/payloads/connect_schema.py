"""Kafka Connect's schemas: the Avro schema of JSON that its converter wrote.

With `schemas.enable`, the converter writes `{"schema": …, "payload": …}` for each value. The schema
of a value, or a whole value, defines the columns of a topic like an Avro schema does.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import SchemaError
from arrow_io.payloads.avro_schema import CONNECT_DECIMAL, CONNECT_NAME
from arrow_io.payloads.shape import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRIMITIVES: Final = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_LOGICAL_TYPES: Final = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}


def avro_definition(definition: str) -> str:
    """Return the Avro schema of a schema or value of Kafka Connect; other texts are unchanged.

    Raises:
        SchemaError: The schema has a type that is unknown, or too many fields.
    """
    if '"field"' not in definition:
        return definition
    try:
        schema = json.loads(definition)
    except (ValueError, RecursionError):
        return definition
    if not isinstance(schema, dict):
        return definition
    if isinstance(schema.get("schema"), dict) and "payload" in schema:
        payload = {"field": "payload", **schema["schema"]}
        schema = {"type": "struct", "fields": [payload], "optional": True}
    if schema.get("type") != "struct":
        return definition
    return json.dumps(_Converter().type({**schema, "optional": False}, 0), ensure_ascii=False)


class _Converter:
    def __init__(self) -> None:
        self._budget = Budget()
        self._numbers = itertools.count()

    def type(self, schema: object, depth: int) -> object:
        self._budget.spend(depth)
        if not isinstance(schema, dict):
            message = f"Kafka Connect's schema contains {schema!r:.100}, which is not a type"
            raise SchemaError(message)
        type_: object = self._required(schema, depth)
        return ["null", type_] if schema.get("optional") is True else type_

    def _required(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        kind, name = schema.get("type"), schema.get("name")
        type_: dict[str, Any] = {} if name is None else {CONNECT_NAME: name}
        if kind == "struct":
            fields = schema.get("fields")
            if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
                raise SchemaError("a struct of Kafka Connect's schema has no list of fields")
            # Names of types do not matter, but those of Avro's are unique.
            return type_ | {
                "type": "record",
                "name": f"Struct{next(self._numbers)}",
                "fields": [
                    {"name": each.get("field"), "type": self.type(each, depth + 1)}
                    for each in fields
                ],
            }
        if kind == "array":
            return type_ | {"type": "array", "items": self.type(schema.get("items"), depth + 1)}
        if kind == "map" and _has_texts(schema.get("keys")):
            return type_ | {"type": "map", "values": self.type(schema.get("values"), depth + 1)}
        if not isinstance(kind, str) or kind not in _PRIMITIVES:
            message = f"the type {kind!r:.100} of Kafka Connect's schema is not supported"
            raise SchemaError(message)
        type_["type"] = _PRIMITIVES[kind]
        if name == CONNECT_DECIMAL:
            return type_ | _decimal(schema.get("parameters"))
        if name in _LOGICAL_TYPES:
            type_["logicalType"] = _LOGICAL_TYPES[str(name)]
        return type_


def _has_texts(keys: object) -> bool:
    """Return whether a map has texts as keys; others are not written as a JSON object."""
    return isinstance(keys, dict) and keys.get("type") == "string" and not keys.get("optional")


def _decimal(parameters: object) -> dict[str, object]:
    """Return Avro's logical type of a decimal; nothing if its precision is not recorded."""
    texts = parameters if isinstance(parameters, dict) else {}
    try:
        precision, scale = int(texts["connect.decimal.precision"]), int(texts["scale"])
    except (KeyError, TypeError, ValueError):
        return {}
    return {"logicalType": "decimal", "precision": precision, "scale": scale}
