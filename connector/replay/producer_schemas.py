"""Schemas that a replay's producers register with the target, by schema version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arrow_io.errors import UnknownSchemaVersionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pulsar.schema

    from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema

_UNKNOWN_TO_CLIENT: Final = frozenset(
    {
        "BOOLEAN",
        "DATE",
        "INSTANT",
        "LOCAL_DATE",
        "LOCAL_DATE_TIME",
        "LOCAL_TIME",
        "TIME",
        "TIMESTAMP",
    }
)
_NEEDS_PROPERTIES: Final = "KEY_VALUE"
"""A type whose key and value schemas are in schema properties, which the client does not send."""


class ProducerSchemas:
    """Chooses the schema that messages are sent with; without a topic schema, there is none."""

    def __init__(self, schema: TopicSchema | None) -> None:
        self._reader = None if schema is None else schema.reader
        self._versions = {} if schema is None else dict(schema.versions)

    @property
    def first(self) -> SchemaInfo | None:
        """The oldest schema, which the first producer registers, or None."""
        return next(iter(self._versions.values()), self._reader)

    def schema_for_version(self, version: int | None) -> SchemaInfo | None:
        """Return the schema of messages of a version. None: they are sent without a schema.

        Messages without a version have the reader's schema, and so have all if no version is
        recorded.

        Raises:
            UnknownSchemaVersionError: Versions are recorded, but not this one.
        """
        if version is None or not self._versions:
            return self._reader
        if version not in self._versions:
            message = (
                f"unknown schema version {version}; the topic has the versions"
                f" {', '.join(map(str, self._versions))}"
            )
            raise UnknownSchemaVersionError(message)
        return self._versions[version]

    def notices(self) -> Iterator[str]:
        """Yield a sentence for each schema type that the client cannot register."""
        infos = {self._reader, *self._versions.values()}
        for kind in sorted({each.type for each in infos if each and not is_registered(each)}):
            yield (
                f"Pulsar's Python client cannot register schemas of type {kind}: messages are sent"
                " without a schema; post it to the target's admin API first"
            )


def is_registered(info: SchemaInfo | None) -> bool:
    """Return whether a producer can register a schema; bytes need no registration."""
    return info is None or info.type not in {*_UNKNOWN_TO_CLIENT, _NEEDS_PROPERTIES}


def library_schema(info: SchemaInfo | None) -> pulsar.schema.Schema:
    """Return the library's schema object. Its values are bytes, so payloads are sent unchanged."""
    import _pulsar  # noqa: PLC0415 - of the same extra
    from pulsar.schema import BytesSchema  # noqa: PLC0415 - an extra

    schema = BytesSchema()
    if info is not None and info.type != "BYTES" and is_registered(info):
        kind = getattr(_pulsar.SchemaType, info.type)
        schema._schema_info = _pulsar.SchemaInfo(kind, info.type, info.data)  # noqa: SLF001
    return schema
