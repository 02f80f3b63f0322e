"""Options of the Spark source: strings → one frozen value.

Spark gives names of options in lower case and values as text. Names are compared without case and
underscores, so `task_bytes` and `taskBytes` are the same. What a value may be beyond its form is
decided where it is used, by `connector.open_topic`; what each option means is told by
`PulsarOffloadDataSource`.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from arrow_io.errors import OptionError
from arrow_io.messages.message_reader import BatchLimits
from arrow_io.storage.hidden import hidden, hidden_url
from arrow_io.storage.location import Location
from arrow_io.storage.ranges import DEFAULT_RANGE_BYTES
from connector.bounds import Bounds
from connector.catalog_tables import TABLES
from connector.decryption_keys import read_decryption_keys
from connector.pulsar_time import time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from arrow_io.messages.encryption import DecryptionKeys
    from connector.bounds import Bound

_MESSAGES: Final = "messages"
_STORAGE_PREFIXES: Final = ("storage.", "secret.")
"""Spark masks options with `secret` in their names wherever it shows options."""
_METADATA_PREFIXES: Final = ("metadata.", "secret.metadata.")

_SCHEMES: Final = {
    "aws-s3": "s3",
    "s3": "s3",
    "google-cloud-storage": "gs",
    "azureblob": "abfs",
}
"""URL scheme of each offload driver (`JCloudBlobStoreProvider`), its name in lower case."""

_TEXT_OPTIONS: Final = re.compile(r"key|secret|token|pass|user|account|name|profile|project|_id$")
"""Storage options whose values are text, though it may look like a number."""

_JSON_SCALAR: Final = re.compile(r"true|false|null|-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, and how. Shows no secret when it is printed.

    Attributes:
        location: The bucket.
        topics: Names and globs; or a regular expression, which full names have to match. A listing
            may have none: it is of all topics then.
        table: `messages`, or the listing that is asked for.
        start: As in `connector.open_topic`, like all that follow, except for the last.
        task_bytes: How many bytes of data objects a Spark task should read, about; None: by the
            size of the scan.
    """

    location: Location
    topics: tuple[str, ...] | re.Pattern[str] = ()
    table: str = _MESSAGES
    start: Bound | None = None
    end: Bound | None = None
    columns: tuple[str, ...] | None = None
    schema: str | None = None
    schema_version: int | None = None
    value: str = "flat"
    time_unit: str = "us"
    naming: str = "pulsar-sql"
    transactions: str = "committed"
    on_corruption: str = "raise"
    verify_checksums: bool = True
    range_bytes: int = DEFAULT_RANGE_BYTES
    batch_rows: int = BatchLimits().max_rows
    batch_bytes: int = BatchLimits().max_bytes
    decryption_keys: DecryptionKeys | None = None
    metadata: str | None = None
    metadata_options: Mapping[str, object] | None = field(default=None, repr=False)
    buckets: Mapping[str, str] | None = None
    task_bytes: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read the options that a user gave.

        Raises:
            OptionError: An option is unknown (names near it are listed), given twice, missing, or
                has a value of another form. No value of a storage option is shown.
        """
        storage: list[tuple[str, str]] = []
        metadata: list[tuple[str, str]] = []
        values: dict[str, tuple[str, str]] = {}
        unknown = []
        for name, text in given.items():
            known = _KNOWN.get(_normal(name))
            if known is None and (prefix := _prefix(name, _METADATA_PREFIXES)):
                metadata.append((name[len(prefix) :], text))
            elif known is None and (prefix := _prefix(name, _STORAGE_PREFIXES)):
                storage.append((name[len(prefix) :], text))
            elif known is None:
                unknown.append(name)
            elif known in values:
                message = f"option {known} is given twice: as {values[known][0]} and as {name}"
                raise OptionError(message)
            else:
                values[known] = name, text
        if unknown or not given:
            raise OptionError(_unknown_options(sorted(unknown)))
        texts = {known: text for known, (_, text) in values.items()}
        location = _location(texts, storage)
        fields = _fields(texts)
        table = fields.get("table", _MESSAGES)
        if "topics" not in fields and table == _MESSAGES:
            message = "option topic is missing: a name, a glob, or several, separated by commas"
            raise OptionError(message)
        strange = [name for name in texts if name in _PARSERS and not _is_for_listing(name)]
        if table != _MESSAGES and strange:
            message = f"option {strange[0]} is for messages, not for the table {table}"
            raise OptionError(message)
        if metadata:
            _put_texts(fields.setdefault("metadata_options", {}), "metadata option", metadata)
        return cls(location=location, **fields)


def hide_secrets(given: Mapping[str, str]) -> dict[str, str]:
    """The same options; what may be secret of them is not shown by frames that hold it."""
    return {name: _hidden(name, text) for name, text in given.items()}


def _hidden(name: str, text: str) -> str:
    is_secret = _prefix(name, (*_STORAGE_PREFIXES, *_METADATA_PREFIXES))
    return hidden(text) if is_secret or _normal(name) in _SECRETS else hidden_url(text)


def _fields(texts: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    given_as: dict[str, str] = {}
    for name, text in texts.items():
        if name not in _PARSERS:
            continue
        field, parse = _PARSERS[name]
        if field in given_as:
            message = f"options {given_as[field]} and {name} say the same: give one of them"
            raise OptionError(message)
        given_as[field] = name
        fields[field] = parse(name, text.strip())
    return fields


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        message = f"{option} must be one name or several, separated by commas, not {text!r}"
        raise OptionError(message)
    return names


def _pattern(option: str, text: str) -> re.Pattern[str]:
    """A regular expression of full names; as in pulsar-spark, their first parts may be left out."""
    if "://" not in text:
        text = f"persistent://{text if '/' in text else f'public/default/{text}'}"
    try:
        return re.compile(text)
    except re.error as error:
        message = f"{option} must be a regular expression: {error}"
        raise OptionError(message) from None


def _text(_option: str, text: str) -> str:
    return text


def _number(option: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        message = f"{option} must be a whole number, not {text!r}"
        raise OptionError(message) from None


def _positive(option: str, text: str) -> int:
    number = _number(option, text)
    if number < 1:
        message = f"{option} must be at least 1, not {number}"
        raise OptionError(message)
    return number


def _flag(option: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        message = f"{option} must be true or false, not {text!r}"
        raise OptionError(message)
    return text.lower() == "true"


def _listing(option: str, text: str) -> str:
    names = (_MESSAGES, *TABLES)
    if text not in names:
        message = f"{option} must be one of {', '.join(names)}, not {text!r}"
        raise OptionError(message)
    return text


def _time_unit(option: str, text: str) -> str:
    if text != "us":
        message = f"{option} must be us, not {text!r}: times in Spark are in microseconds"
        raise OptionError(message)
    return text


def _fail_on_data_loss(option: str, text: str) -> str:
    return "raise" if _flag(option, text) else "salvage"


def _time(option: str, text: str) -> datetime:
    time = time_of(_number(option, text))
    if time is None:
        message = f"{option} must be in milliseconds since 1970, not {text}"
        raise OptionError(message)
    return time


def _offset(unbounded: str) -> Callable[[str, str], Bound | None]:
    """Reads startingOffsets and endingOffsets: the word for "no bound", or one message id."""

    def parse(option: str, text: str) -> Bound | None:
        if text.lower() == unbounded:
            return None
        try:
            message_id = Bounds.parse(text, None).start_id
        except OptionError:
            message_id = None
        if message_id is None:
            message = (
                f"{option} must be {unbounded}, or one message id: (ledger,entry[,batch]) or"
                f" ledger:entry[:partition[:batch]], not {text!r}"
            )
            if text.startswith("{"):
                message += "; offsets of each topic by itself are not supported"
            raise OptionError(message)
        return message_id

    return parse


def _json_object(option: str, text: str) -> dict[str, object]:
    value = _json(option, text)
    if not isinstance(value, dict):
        message = f"{option} must be a JSON object"
        raise OptionError(message)
    return value


def _key_files(option: str, text: str) -> DecryptionKeys:
    """Private keys by the path of their file or folder, which may be seen."""
    if "-----BEGIN" in text:
        message = (
            f"{option} takes a path: give PEM text as secret.{option}, which Spark masks wherever"
            " it shows options"
        )
        raise OptionError(message)
    return read_decryption_keys(text)


def _keys(_option: str, text: str) -> DecryptionKeys:
    return read_decryption_keys(text)


_Parser: TypeAlias = "Callable[[str, str], object]"
_PARSERS: Final[Mapping[str, tuple[str, _Parser]]] = {
    "topic": ("topics", _names),
    "topics": ("topics", _names),
    "topicsPattern": ("topics", _pattern),
    "start": ("start", _text),
    "startingOffsets": ("start", _offset("earliest")),
    "startingTime": ("start", _time),
    "end": ("end", _text),
    "endingOffsets": ("end", _offset("latest")),
    "endingTime": ("end", _time),
    "columns": ("columns", _names),
    "schema": ("schema", _text),
    "schema_version": ("schema_version", _number),
    "value": ("value", _text),
    "time_unit": ("time_unit", _time_unit),
    "naming": ("naming", _text),
    "transactions": ("transactions", _text),
    "on_corruption": ("on_corruption", _text),
    "failOnDataLoss": ("on_corruption", _fail_on_data_loss),
    "verify_checksums": ("verify_checksums", _flag),
    "range_bytes": ("range_bytes", _number),
    "batch_rows": ("batch_rows", _number),
    "batch_bytes": ("batch_bytes", _number),
    "decryption_keys": ("decryption_keys", _key_files),
    "secret.decryption_keys": ("decryption_keys", _keys),
    "metadata": ("metadata", _text),
    "metadata_options": ("metadata_options", _json_object),
    "secret.metadata_options": ("metadata_options", _json_object),
    "buckets": ("buckets", _json_object),
    "table": ("table", _listing),
    "task_bytes": ("task_bytes", _positive),
}
"""The field of each option, and how its text is read."""

_LISTING_FIELDS: Final = frozenset(
    {"topics", "table", "metadata", "metadata_options", "buckets", "range_bytes"}
)

_LOCATION_OPTIONS: Final = (
    "url",
    "path",
    "storage_options",
    "managedLedgerOffloadDriver",
    "managedLedgerOffloadBucket",
    "managedLedgerOffloadServiceEndpoint",
    "managedLedgerOffloadRegion",
)


def _normal(name: str) -> str:
    return name.lower().replace("_", "")


_SECRETS: Final = frozenset(
    map(_normal, ("storage_options", "metadata_options", "decryption_keys"))
)

_KNOWN: Final = {_normal(name): name for name in (*_LOCATION_OPTIONS, *_PARSERS)}


def _prefix(name: str, prefixes: Iterable[str]) -> str | None:
    """The one of some prefixes, in lower case, that a name has in any."""
    return next((prefix for prefix in prefixes if name.lower().startswith(prefix)), None)


def _is_for_listing(option: str) -> bool:
    return _PARSERS[option][0] in _LISTING_FIELDS


def _unknown_options(names: list[str]) -> str:
    # What Spark makes of CREATE TABLE: no options at all, or the table's own properties.
    if not names or "provider" in names:
        return (
            "no options came from Spark, which hands on none of CREATE TABLE: use CREATE TEMPORARY"
            " VIEW … USING pulsar_offload OPTIONS (…), or spark.read with options url and topic"
        )
    if "paths" in names:
        return (
            "load() takes one path or URL, and was given several: read each by itself, and put the"
            " frames together by union()"
        )
    near = {name: difflib.get_close_matches(_normal(name), _KNOWN) for name in names}
    said = [
        f"unknown option {name}"
        + (f", did you mean {' or '.join(_KNOWN[each] for each in found)}?" if found else "")
        for name, found in near.items()
    ]
    if not all(near.values()):
        said.append(
            f"there are {', '.join(_KNOWN.values())}, storage.<name>, metadata.<name>,"
            " secret.<name> and secret.metadata.<name>"
        )
    return "; ".join(said)


def _location(texts: Mapping[str, str], storage: list[tuple[str, str]]) -> Location:
    """The bucket, by its URL or the keys of broker.conf, and storage options of all spellings."""
    # An empty key of broker.conf is one that is not set.
    texts = {name: text.strip() for name, text in texts.items() if text.strip()}
    url, path = texts.get("url"), texts.get("path")
    if url is not None and path is not None:
        message = "url and path say the same: give one of them, as an option or to load()"
        raise OptionError(message)
    url = url or path
    bucket = texts.get("managedLedgerOffloadBucket")
    driver = texts.get("managedLedgerOffloadDriver")
    if url is not None and (bucket is not None or driver is not None):
        message = "url and managedLedgerOffload… say the same: give one of them"
        raise OptionError(message)
    if url is None:
        if bucket is None:
            message = "option url is missing: where the objects lie, such as s3://bucket/prefix"
            raise OptionError(message)
        url = f"{_scheme(driver or 'aws-s3')}://{bucket}"
    options = _json_object("storage_options", texts.get("storage_options", "{}"))
    _put_texts(options, "storage option", storage)
    for name, value in _broker_options(texts, url.partition("://")[0]).items():
        _put(options, "storage option", name, value)
    return Location(url, options)


def _scheme(driver: str) -> str:
    scheme = _SCHEMES.get(driver.lower())
    if scheme is None:
        message = f"managedLedgerOffloadDriver must be one of {', '.join(_SCHEMES)}, not {driver!r}"
        raise OptionError(message)
    return scheme


def _broker_options(texts: Mapping[str, str], scheme: str) -> dict[str, str]:
    """What broker.conf says of the store, as storage options; a region matters to S3 alone."""
    options = {}
    endpoint = texts.get("managedLedgerOffloadServiceEndpoint")
    if endpoint is not None:
        if scheme not in {"s3", "s3a", "gs", "gcs"}:
            message = f"managedLedgerOffloadServiceEndpoint has no meaning for {scheme}://"
            raise OptionError(message)
        options["endpoint_url"] = endpoint
    region = texts.get("managedLedgerOffloadRegion")
    if region is not None and scheme in {"s3", "s3a"}:
        options["client_kwargs.region_name"] = region
    return options


def _json(option: str, text: str) -> object:
    try:
        return hidden(json.loads(text))
    except json.JSONDecodeError as error:
        # Without the text, and without the error as its cause: both hold what may be a secret.
        message = f"{option} looks like JSON and is not: {error.msg} at character {error.pos}"
        raise OptionError(message) from None


def _put_texts(options: dict[str, object], kind: str, given: Iterable[tuple[str, str]]) -> None:
    """Set the options of the storage, or of the source of metadata, that have names of their own.

    Args:
        options: Those that are set already.
        kind: What an error calls one.
        given: Names and texts.
    """
    for name, text in given:
        _put(options, kind, name, _value(kind, name, text))


def _value(kind: str, name: str, text: str) -> object:
    """JSON for objects and arrays; for numbers, true, false and null only where no text is due."""
    is_text = _TEXT_OPTIONS.search(name.lower().rpartition(".")[2])
    if text.startswith(("{", "[")) or (not is_text and _JSON_SCALAR.fullmatch(text)):
        return _json(f"{kind} {name}", text)
    return text


def _put(options: dict[str, object], kind: str, name: str, value: object) -> None:
    """Set an option; dots lead into nested ones."""
    *path, last = name.split(".")
    if not all((*path, last)):
        message = f"{kind} {name!r} lacks a part of its name"
        raise OptionError(message)
    inner: object = options
    for step in path:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or last in inner:
        message = f"{kind} {name} is given twice"
        raise OptionError(message)
    inner[last] = value
