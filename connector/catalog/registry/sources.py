"""Sources of registered schemas: a registry's REST API, or files with its answers.

| source | reads |
|---|---|
| `RestApi` | `/subjects`, `/subjects/{subject}/versions[/{version}]`, `/schemas/ids/{id}` |
| `SavedAnswers` | JSON files with these answers, or with the answer to `/schemas`, which has all |

In a folder, an answer without an id, as `/schemas/ids/{id}` gives it, has the id as its file's
name (`7.json`).
"""

from __future__ import annotations

import re
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote

from arrow_io.core.lazy import cached_property
from arrow_io.errors import FormatError, MissingObjectError, OptionError, SchemaError, StorageError
from arrow_io.storage.location import Location, folder_and_name
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.metadata.admin_connection import AdminConnection
from connector.catalog.registry.registered import (
    RegisteredSchema,
    is_registered,
    parse_answer,
    read_names,
    read_registered,
    read_versions,
)
from connector.catalog.schemas.forms import MAX_SOURCE_BYTES
from connector.inputs.cluster_access import RegistryAccess, read_access

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ID_NAME: Final = re.compile(r"[0-9]{1,10}")
_CONTEXT: Final = re.compile(r":\.[^:]*:")
_MAX_UNKNOWN_IDS: Final = 1000
"""Number of unknown ids after which a registry is not asked for more. Damaged payloads can name any
number of ids."""


class RegistrySource(Protocol):
    """Where registered schemas are read. Hashable, picklable and thread-safe; `str` names it."""

    def subjects(self) -> Sequence[str]:
        """Return the names of all subjects.

        Raises:
            SchemaError: An answer is malformed; so do the other methods.
            StorageError: The registry cannot be asked; so do the other methods.
        """

    def versions(self, subject: str) -> Sequence[int]:
        """Return the versions of a subject, ascending; empty if it is unknown."""

    def version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """Return a version of a subject, or the newest; None if it is unknown."""

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id; None if it is unknown."""


class RestApi:
    """The REST API of a registry. Two are equal only if one was pickled as the other.

    So a registry that is opened again does not remember which ids were unknown.

    Args:
        url: URL of the registry.
        options: Options of `RegistryAccess`, as users pass them.
        subject: The subject to read. If it names a context (`:.context:subject`), ids and the
            subjects of references are those of that context.
        opening: Identity of this opening; by default a new one.

    Raises:
        OptionError: The URL or an option cannot be used.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, object],
        subject: str | None = None,
        opening: str | None = None,
    ) -> None:
        self._url = url
        self._options = options
        self._subject = subject
        context = _CONTEXT.match(subject or "")
        self._context = context[0] if context else ""
        self._opening = opening or uuid.uuid4().hex
        self._access = read_access(RegistryAccess, "schema option", options)
        self._unknown: set[int] = set()
        self._lock = threading.Lock()
        # Raises for a URL or certificates that cannot be used.
        _ = self._connection

    def __reduce__(self) -> tuple[object, ...]:
        return RestApi, (self._url, self._options, self._subject, self._opening)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RestApi) and other._opening == self._opening

    def __hash__(self) -> int:
        return hash(self._opening)

    def __str__(self) -> str:
        return redacted_urls(self._url)

    def __repr__(self) -> str:
        return f"RestApi({str(self)!r})"

    @cached_property
    def _connection(self) -> AdminConnection[RegistryAccess]:
        return AdminConnection(self._url, self._access)

    def _get(self, path: str) -> object:
        """Return the parsed answer; None if the registry has no such thing."""
        try:
            answer = self._connection.get(path)
        except FormatError as error:
            raise SchemaError(error.message) from None
        return None if answer is None else parse_answer(answer, f"the answer of {self}{path}")

    def subjects(self) -> Sequence[str]:
        """Return the names of all subjects; see `RegistrySource`."""
        found = self._get("/subjects")
        if found is None:
            message = f"{self} is not the URL of a schema registry: it has no /subjects"
            raise StorageError(message)
        return sorted(read_names(found, f"the answer of {self}/subjects"))

    def _versions_path(self, subject: str) -> str:
        name = subject if _CONTEXT.match(subject) else f"{self._context}{subject}"
        return f"/subjects/{quote(name, safe='')}/versions"

    def versions(self, subject: str) -> Sequence[int]:
        """Return the versions of a subject; see `RegistrySource`."""
        found = self._get(self._versions_path(subject))
        return sorted(read_versions([] if found is None else found, f"{self}: {subject}"))

    def version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """Return a version of a subject; see `RegistrySource`."""
        name = "latest" if version is None else version
        found = self._get(f"{self._versions_path(subject)}/{name}")
        return None if found is None else read_registered(found, f"{self}: {subject} {name}")

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id; see `RegistrySource`.

        After a thousand unknown ids, all ids count as unknown.
        """
        if schema_id < 0:
            return None
        with self._lock:
            if schema_id in self._unknown or len(self._unknown) >= _MAX_UNKNOWN_IDS:
                return None
        path = f"/schemas/ids/{schema_id}"
        if self._context:
            path += f"?subject={quote(self._subject or '', safe='')}"
        found = self._get(path)
        if found is None:
            with self._lock:
                self._unknown.add(schema_id)
            return None
        return read_registered(found, f"{self}: id {schema_id}")


class SavedAnswers:
    """Answers of a registry in a file, or in the JSON files of a folder.

    Args:
        name: Path or URL, without secrets.
        schemas: The schemas. A version of a subject is used for its id too.
    """

    def __init__(self, name: str, schemas: Iterable[RegisteredSchema]) -> None:
        self._name = name
        self._schemas = tuple(schemas)
        self._by_id: dict[int, RegisteredSchema] = {}
        self._ambiguous_ids: set[int] = set()
        self._by_subject: dict[str, dict[int, RegisteredSchema]] = {}
        for each in self._schemas:
            if each.subject is not None and each.version is not None:
                self._by_subject.setdefault(each.subject, {})[each.version] = each
            if each.schema_id is not None:
                first = self._by_id.setdefault(each.schema_id, each)
                if (first.type, first.text) != (each.type, each.text):
                    self._ambiguous_ids.add(each.schema_id)

    @classmethod
    def read(cls, path: str, storage_options: Mapping[str, object] | None) -> SavedAnswers:
        """Read the files at a path or URL.

        Raises:
            OptionError: There is no such file or folder, or it is too long or has no schema.
            SchemaError: A file has a malformed schema.
            StorageError: The store refused, or all attempts failed.
        """
        shown = redacted_urls(path).rstrip("/")
        folder, name = folder_and_name(path)
        try:
            location = Location(folder or ".", storage_options)
            if name and location.exists(name):
                names = [name]
            else:
                location = Location(path, storage_options)
                names = _json_files(location, shown)
            schemas = [each for name in names for each in _read_file(location, name)]
        except FormatError as error:
            message = f"{shown}: {error.message}"
            raise OptionError(message) from None
        except MissingObjectError:
            message = f"there is no file or folder {shown!r} with answers of a schema registry"
            raise OptionError(message) from None
        if not schemas:
            message = f"{shown}: no *.json file in it is an answer of a schema registry"
            raise OptionError(message)
        return cls(shown, schemas)

    def __reduce__(self) -> tuple[object, ...]:
        return SavedAnswers, (self._name, self._schemas)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SavedAnswers) and other.__reduce__() == self.__reduce__()

    def __hash__(self) -> int:
        return hash(self._name)

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"SavedAnswers({self._name!r})"

    def subjects(self) -> Sequence[str]:
        """Return the names of all subjects; see `RegistrySource`."""
        return sorted(self._by_subject)

    def versions(self, subject: str) -> Sequence[int]:
        """Return the versions of a subject; see `RegistrySource`."""
        return sorted(self._by_subject.get(subject, ()))

    def version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """Return a version of a subject; see `RegistrySource`."""
        found = self._by_subject.get(subject, {})
        return found.get(max(found, default=0) if version is None else version)

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema of an id; see `RegistrySource`.

        Raises:
            SchemaError: Two schemas have the id, which is unique in one context of a registry only.
        """
        if schema_id in self._ambiguous_ids:
            message = f"{self}: id {schema_id}: two schemas of different contexts have it"
            raise SchemaError(message)
        return self._by_id.get(schema_id)


def _json_files(location: Location, shown: str) -> list[str]:
    files = [each for each in location.list_objects() if each.name.lower().endswith(".json")]
    if sum(each.size_bytes for each in files) > MAX_SOURCE_BYTES:
        message = f"{shown}: its JSON files are longer than {MAX_SOURCE_BYTES} bytes together"
        raise OptionError(message)
    return [each.name for each in files]


def _read_file(location: Location, name: str) -> list[RegisteredSchema]:
    data = location.read_object(name, max_bytes=MAX_SOURCE_BYTES).data
    value = parse_answer(data, name)
    schemas = []
    for each in value if isinstance(value, list) else [value]:
        if is_registered(each):
            registered = read_registered(each, name)
            stem = name.rpartition("/")[2].rpartition(".")[0]
            if registered.schema_id is None and _ID_NAME.fullmatch(stem):
                registered = replace(registered, schema_id=int(stem))
            schemas.append(registered)
    return schemas
