"""Schemas as a registry's REST API returns them, and as files of such answers have them.

`GET /subjects/{subject}/versions/{version}` and each item of `GET /schemas` have the fields
`subject`, `version`, `id`, `schemaType` (AVRO by default), `schema` (its text), and `references`:
pairs of a name that the schema uses and a version of a subject. `GET /schemas/ids/{id}` has the
last three.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, cast

from arrow_io.errors import OptionError, SchemaError
from connector.catalog.schemas.forms import MAX_SCHEMA_BYTES, parse_json

TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
_MAX_REFERENCES: Final = 1000
_INT_STOP: Final = 1 << 31
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = 100

_T = TypeVar("_T")


class Reference(NamedTuple):
    """A schema that another one uses: an Avro type, or a protobuf file to import."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry.

    Attributes:
        type: A name in `TYPES`.
        text: Its definition, as it was registered.
        references: The schemas that it uses.
        schema_id: Its id; None if the answer lacks it, because the request had it.
        subject: Its subject; None if the answer lacks it.
        version: Its version in the subject; None if the answer lacks it.
    """

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    schema_id: int | None = None
    subject: str | None = None
    version: int | None = None

    def answer(self) -> dict[str, object]:
        """Return the object that the registry's answer has; the inverse of `read_registered`."""
        fields = {
            "subject": self.subject,
            "version": self.version,
            "id": self.schema_id,
            "schemaType": self.type,
            "references": [each._asdict() for each in self.references],
            "schema": self.text,
        }
        return {name: value for name, value in fields.items() if value is not None}


def parse_answer(answer: bytes, what: str) -> object:
    """Parse an answer of a registry, or a file of answers.

    Raises:
        SchemaError: It is too long, or not JSON.
    """
    try:
        return parse_json(answer)
    except OptionError as error:
        message = f"{what}: {error.message}"
        raise SchemaError(message) from None


def is_registered(value: object) -> bool:
    """Return whether parsed JSON is an answer with a schema, not another file of a folder."""
    return isinstance(value, Mapping) and isinstance(value.get("schema"), str)


def read_registered(value: object, what: str) -> RegisteredSchema:
    """Read a schema from the JSON of an answer.

    Raises:
        SchemaError: It has another form, an unknown type, or is too long.
    """
    if not isinstance(value, Mapping):
        message = f"{what} is not an object with a schema"
        raise SchemaError(message)
    kind = value.get("schemaType")
    kind = "AVRO" if kind is None else kind
    if kind not in TYPES:
        message = f"{what} has the type {_SHORT.repr(kind)}; known are {', '.join(TYPES)}"
        raise SchemaError(message)
    text = _field(value, "schema", str, what)
    if len(text) > MAX_SCHEMA_BYTES:
        message = f"{what} is longer than the {MAX_SCHEMA_BYTES} characters allowed"
        raise SchemaError(message)
    references = value.get("references") or []
    if not isinstance(references, list) or len(references) > _MAX_REFERENCES:
        message = f"{what} has references that are not a list of at most {_MAX_REFERENCES}"
        raise SchemaError(message)
    return RegisteredSchema(
        str(kind),
        text,
        tuple(_reference(each, what) for each in references),
        _optional(value, "id", int, what),
        _optional(value, "subject", str, what),
        _optional(value, "version", int, what),
    )


def read_names(value: object, what: str) -> list[str]:
    """Read a list of names from the JSON of an answer.

    Raises:
        SchemaError: It is not one.
    """
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        message = f"{what} is not a list of names"
        raise SchemaError(message)
    return value


def read_versions(value: object, what: str) -> list[int]:
    """Read a list of versions from the JSON of an answer.

    Raises:
        SchemaError: It is not one.
    """
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        message = f"{what} is not a list of versions"
        raise SchemaError(message)
    return value


def _reference(value: object, what: str) -> Reference:
    if not isinstance(value, Mapping):
        message = f"a reference of {what} is not an object"
        raise SchemaError(message)
    what = f"a reference of {what}"
    return Reference(
        _field(value, "name", str, what),
        _field(value, "subject", str, what),
        _field(value, "version", int, what),
    )


def _optional(value: Mapping[str, object], name: str, kind: type[_T], what: str) -> _T | None:
    return None if value.get(name) is None else _field(value, name, kind, what)


def _field(value: Mapping[str, object], name: str, kind: type[_T], what: str) -> _T:
    field = value.get(name)
    is_allowed = isinstance(field, kind) and not isinstance(field, bool)
    if not is_allowed or (isinstance(field, int) and not -_INT_STOP <= field < _INT_STOP):
        message = f"{what} lacks a valid {name}"
        raise SchemaError(message)
    if isinstance(field, str) and not _is_utf8(field):
        message = f"the {name} of {what} has half a surrogate pair, which UTF-8 cannot encode"
        raise SchemaError(message)
    return cast("_T", field)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
