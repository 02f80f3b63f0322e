"""Registries as the schema of a topic: `confluent:SOURCE[#SUBJECT[#MESSAGE]]`.

The source is the URL of a registry, or the path of a file or folder with its answers. The subject
determines the reader schema. Messages were written with any schema of the registry, whose id each
of them has.
"""

from __future__ import annotations

import json
import threading
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError, PulsarOffloadError, SchemaError
from arrow_io.payloads.schema_info import SchemaInfo, TopicSchema
from arrow_io.storage.hidden import hidden_url
from connector.catalog.registry.definitions import schema_info
from connector.catalog.registry.sources import RestApi, SavedAnswers
from connector.catalog.schemas.forms import MAX_SOURCE_BYTES
from connector.inputs.cluster_access import REGISTRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from connector.catalog.registry.sources import RegistrySource

_MAX_SHOWN: Final = 20
_SEPARATOR: Final = b",\n"


class RegistryPlace(NamedTuple):
    """The parts of a value of `schema` that names a registry.

    Attributes:
        source: URL of the registry, or path or URL of a file or folder.
        subject: The subject; None for the only one.
        message_name: Full name of the protobuf message; None for the first.
    """

    source: str
    subject: str | None
    message_name: str | None

    @classmethod
    def parse(cls, value: object) -> Self | None:
        """Parse a value of the option `schema`; return None if it names no registry."""
        if not isinstance(value, str) or not value.strip().lower().startswith(REGISTRY_PREFIX):
            return None
        source, _, rest = value.strip()[len(REGISTRY_PREFIX) :].partition("#")
        subject, _, message_name = rest.partition("#")
        return cls(hidden_url(source), subject or None, message_name or None)

    def open(
        self,
        storage_options: Mapping[str, object] | None = None,
        schema_options: Mapping[str, object] | None = None,
    ) -> RegistrySource:
        """Return the source of schemas; reads it if it is a file or folder.

        Args:
            storage_options: Options of the fsspec file system of the file or folder.
            schema_options: Options of the registry (`RegistryAccess`).

        Raises:
            OptionError: The source does not exist, or an option cannot be used.
            SchemaError: A file is malformed.
            StorageError: The store refused, or all attempts failed.
        """
        if self.source.lower().startswith(("http://", "https://")):
            return RestApi(self.source, schema_options or {}, self.subject)
        if not self.source:
            message = (
                f"{REGISTRY_PREFIX} must be followed by the URL of a registry, or a file or folder"
            )
            raise OptionError(message)
        return SavedAnswers.read(self.source, storage_options)


class Registry:
    """A registry whose schemas are converted once. Thread-safe; equal if the sources are."""

    def __init__(self, source: RegistrySource) -> None:
        self._source = source
        self._schemas: dict[int, SchemaInfo | SchemaError] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return Registry, (self._source,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and other._source == self._source

    def __hash__(self) -> int:
        return hash(self._source)

    def __str__(self) -> str:
        return str(self._source)

    def __repr__(self) -> str:
        return f"Registry({self._source!r})"

    def schema(self, schema_id: int) -> SchemaInfo | None:
        """Return the schema of an id; see `arrow_io.payloads.schema_info.SchemaRegistry`."""
        found = self._schemas.get(schema_id)
        if found is None:
            # Threads that need the same id wait for one request.
            with self._lock:
                found = self._schemas.get(schema_id) or self._request(schema_id)
        if isinstance(found, SchemaError):
            raise SchemaError(f"the schema id {schema_id}: {found.message}")
        return found

    def _request(self, schema_id: int) -> SchemaInfo | SchemaError | None:
        try:
            registered = self._source.by_id(schema_id)
            if registered is None:
                return None
            self._schemas[schema_id] = schema_info(registered, self._source)
        except SchemaError as error:
            self._schemas[schema_id] = error
        return self._schemas[schema_id]

    def reader(
        self, subject: str | None, version: int | None, message_name: str | None
    ) -> SchemaInfo:
        """Return a version of a subject as a reader schema.

        Args:
            subject: The subject; None for the only one of the registry.
            version: The version; None for the newest.
            message_name: Full name of the protobuf message; None for the first.

        Raises:
            OptionError: There is no such subject, version or message; or `subject` is None, and the
                registry has several.
            StorageError: The registry cannot be asked.
        """
        source = self._source
        try:
            if subject is None:
                subject = _only(source.subjects(), source)
            registered = source.version(subject, version)
            if registered is None:
                raise _unknown(source, subject, version)
            if message_name is not None and registered.type != "PROTOBUF":
                message = f"{subject} is of type {registered.type}, so # cannot choose a message"
                raise OptionError(message)
            return schema_info(registered, source, message_name)
        except SchemaError as error:
            message = f"{source}: {subject or 'its subjects'}: {error.message}"
            raise OptionError(message) from None


def registry_schema(
    place: RegistryPlace,
    *,
    schema_version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    schema_options: Mapping[str, object] | None = None,
) -> TopicSchema:
    """Return the schemas of a topic whose messages have ids of a registry.

    Args:
        place: The registry and the subject.
        schema_version: Version of the subject whose schema is the reader schema; None for the
            newest.
        storage_options: See `RegistryPlace.open`.
        schema_options: See `RegistryPlace.open`.

    Raises:
        OptionError: The registry, the subject or the version does not exist, a schema is malformed,
            or an option cannot be used.
        StorageError: The registry cannot be asked.
    """
    try:
        registry = Registry(place.open(storage_options, schema_options))
    except SchemaError as error:
        raise OptionError(error.message) from None
    reader = registry.reader(place.subject, schema_version, place.message_name)
    return TopicSchema(reader, registry=registry)


def saved_answers(source: RegistrySource, subject: str | None = None) -> bytes:
    """Return the versions of a subject and all that they refer to, as the answer to `/schemas`.

    If `subject` is None, all subjects are included. `SavedAnswers` reads a file of it.

    Raises:
        OptionError: There is no such subject, or the file would be longer than `MAX_SOURCE_BYTES`.
        SchemaError: An answer is malformed, or a referenced schema is missing.
        StorageError: The registry cannot be asked.
    """
    subjects = source.subjects() if subject is None else [subject]
    answers: dict[tuple[str, int], bytes] = {}
    size_bytes = 0
    queue = [(each, version) for each in subjects for version in source.versions(each)]
    if not queue:
        raise _unknown(source, subject, None)
    while queue:
        key = queue.pop()
        if key in answers:
            continue
        registered = source.version(*key)
        if registered is None:
            message = f"{source} lacks version {key[1]} of {key[0]}, which it lists or refers to"
            raise SchemaError(message)
        answers[key] = json.dumps(registered.answer(), ensure_ascii=False).encode()
        size_bytes += len(answers[key]) + len(_SEPARATOR)
        if size_bytes > MAX_SOURCE_BYTES - len(_SEPARATOR):
            message = (
                f"the schemas of {source} are longer than {MAX_SOURCE_BYTES} bytes: name a subject"
            )
            raise OptionError(message)
        queue += [(each.subject, each.version) for each in registered.references]
    return b"[\n%b\n]" % _SEPARATOR.join(answers[key] for key in sorted(answers))


def _only(subjects: Collection[str], source: RegistrySource) -> str:
    if len(subjects) != 1:
        message = (
            f"{option_name('schema')} names no subject of {source}, which has"
            f" {_shown(subjects)}: add one after a #"
        )
        raise OptionError(message)
    return next(iter(subjects))


def _unknown(
    source: RegistrySource, subject: str | None, version: int | None
) -> PulsarOffloadError:
    if subject is not None and (versions := source.versions(subject)):
        message = (
            f"{source} has no version {version} of {subject}; it has"
            f" {_shown([str(each) for each in versions[-_MAX_SHOWN:]])}"
        )
    elif subject is not None:
        message = f"{source} has no subject {subject!r}; it has {_shown(source.subjects())}"
    else:
        message = f"{source} has no subject"
    return OptionError(message)


def _shown(names: Collection[str]) -> str:
    shown = ", ".join(islice(names, _MAX_SHOWN))
    hidden_count = len(names) - _MAX_SHOWN
    return f"{shown} and {hidden_count} more" if hidden_count > 0 else shown or "none"
