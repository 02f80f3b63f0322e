"""Schemas of a topic: Pulsar's `SchemaInfo`, one for each version.

Schemas are not among the offloaded objects; callers provide them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

SCHEMA_TYPES = {
    "NONE": 0,
    "STRING": 1,
    "JSON": 2,
    "PROTOBUF": 3,
    "AVRO": 4,
    "BOOLEAN": 5,
    "INT8": 6,
    "INT16": 7,
    "INT32": 8,
    "INT64": 9,
    "FLOAT": 10,
    "DOUBLE": 11,
    "DATE": 12,
    "TIME": 13,
    "TIMESTAMP": 14,
    "KEY_VALUE": 15,
    "INSTANT": 16,
    "LOCAL_DATE": 17,
    "LOCAL_TIME": 18,
    "LOCAL_DATE_TIME": 19,
    "PROTOBUF_NATIVE": 20,
    "EXTERNAL": 22,
    "BYTES": -1,
}
"""Names and numbers of Pulsar's `SchemaType`. The others are client modes and are never stored.

EXTERNAL (PIP-420) means that another registry holds the schema, and Pulsar stores none."""


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """One schema (Pulsar's `SchemaInfo`). Hashable and picklable.

    Attributes:
        type: A name in `SCHEMA_TYPES`; `BYTES` for Pulsar's `NONE`.
        data: AVRO, JSON: the Avro schema as JSON text. PROTOBUF_NATIVE: JSON text with
            `fileDescriptorSet` (Base64), `rootMessageTypeName` and `rootFileDescriptorName`.
            PROTOBUF: the same if a descriptor is available, otherwise what Pulsar stores. Other
            types: empty.
        properties: Pairs of name and value, by name.
        key: KEY_VALUE: schema of the key.
        value: KEY_VALUE: schema of the value.
        is_separated: KEY_VALUE: whether keys are stored as the messages' keys
            (`kv.encoding.type=SEPARATED`) instead of in the payload.
    """

    type: str
    data: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    key: SchemaInfo | None = None
    value: SchemaInfo | None = None
    is_separated: bool = False


class SchemaRegistry(Protocol):
    """A registry other than Pulsar's. Hashable, picklable and thread-safe; `str` names it."""

    def schema(self, schema_id: int) -> SchemaInfo | None:
        """Return the schema of an id; None if the registry has none.

        Raises:
            SchemaError: The schema cannot be read.
            StorageError: The registry cannot be asked.
        """


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """The schemas that a topic's messages were written with, and the one that reads them.

    Attributes:
        reader: The schema whose fields become columns.
        versions: Pairs of a version in Pulsar's schema registry and its schema, ascending. Empty if
            no versions are available: all messages then count as written with `reader`.
        registry: The registry whose schema ids the messages have, instead of versions; None for
            Pulsar's.
    """

    reader: SchemaInfo
    # Not hashed: a topic may have a thousand versions, and columns are looked up by their schema
    # for each record batch.
    versions: tuple[tuple[int, SchemaInfo], ...] = field(default=(), hash=False)
    registry: SchemaRegistry | None = None
