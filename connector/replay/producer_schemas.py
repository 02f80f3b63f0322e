"""Schemas of a topic → those that its replay is produced with, version by version."""

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
"""What its parts are stands in the properties of the schema, and the client sends none."""


class ProducerSchemas:
    """Chooses the schema of messages.

    Args:
        schema: What is known of the topic's schemas; None: nothing, so messages are sent without.
    """

    def __init__(self, schema: TopicSchema | None) -> None:
        self._reader = None if schema is None else schema.reader
        self._versions = {} if schema is None else dict(schema.versions)

    @property
    def first(self) -> SchemaInfo | None:
        """The oldest one, by which a topic is opened; None if there is none."""
        return next(iter(self._versions.values()), self._reader)

    def schema_for_version(self, version: int | None) -> SchemaInfo | None:
        """The schema of messages of a version; None: they are sent without.

        Messages without a version are of the reader's schema, and so are all if no version is
        known.

        Raises:
            UnknownSchemaVersionError: Versions are known, and this one is not.
        """
        if version is None or not self._versions:
            return self._reader
        if version not in self._versions:
            message = (
                f"schema version {version} is not among the versions known:"
                f" {', '.join(map(str, self._versions))}"
            )
            raise UnknownSchemaVersionError(message)
        return self._versions[version]

    def notices(self) -> Iterator[str]:
        """What cannot be registered with the topic."""
        infos = {self._reader, *self._versions.values()}
        for kind in sorted({each.type for each in infos if each and not is_registered(each)}):
            yield (
                f"Pulsar's client for Python registers no schema of type {kind}: messages are sent"
                " without; post the schema to the topic's admin API before"
            )


def is_registered(info: SchemaInfo | None) -> bool:
    """Whether a producer registers a schema with its topic; bytes need none."""
    return info is None or info.type not in {*_UNKNOWN_TO_CLIENT, _NEEDS_PROPERTIES}


def library_schema(info: SchemaInfo | None) -> pulsar.schema.Schema:
    """A schema as the library wants it; it encodes nothing, for payloads are sent as they are."""
    import _pulsar  # noqa: PLC0415 - of the same extra
    from pulsar.schema import BytesSchema  # noqa: PLC0415 - an extra

    schema = BytesSchema()
    if info is not None and info.type != "BYTES" and is_registered(info):
        kind = getattr(_pulsar.SchemaType, info.type)
        schema._schema_info = _pulsar.SchemaInfo(kind, info.type, info.data)  # noqa: SLF001
    return schema
