"""Options of the Spark source: parses Spark's strings into one frozen value.

Spark passes option names in lower case and values as text. Names are compared without case and
underscores, so `task_bytes` and `taskBytes` are the same. This module has only Spark's own options
and spellings. All others are those of `connector.options.topic_request`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import hidden, hidden_url
from arrow_io.storage.location import Location
from connector.catalog.tables import TABLES
from connector.inputs.decryption_keys import read_decryption_keys
from connector.inputs.times import time_of
from connector.options.kinds import read_count, read_flag, read_names, read_number, read_text
from connector.options.nested import put_text, put_value
from connector.options.topic_request import OPTIONS, TopicRequest
from spark_ds.offsets import LATEST, StartingOffsets, read_message_id, read_starting_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from arrow_io.messages.encryption import DecryptionKeys
    from connector.inputs.bounds import Bound
    from connector.options.option import Option

_MESSAGES: Final = "messages"
STORAGE_PREFIXES: Final = ("storage.", "secret.")
"""Prefixes of options of the store. Spark masks options with `secret` in their names wherever it
shows them."""
METADATA_PREFIXES: Final = ("metadata.", "secret.metadata.")

_UNITS: Final = "kmgt"
"""Suffixes of sizes: powers of 1024."""

_SCHEMES: Final = {
    "aws-s3": "s3",
    "s3": "s3",
    "google-cloud-storage": "gs",
    "azureblob": "abfs",
}
"""URL scheme of each offload driver (`JCloudBlobStoreProvider`), by its name in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a read. Printing it shows no secrets.

    Attributes:
        request: Options that all surfaces share.
        topics: Names and globs, or a regular expression of full names. Empty for a listing of all
            topics.
        table: `messages`, or the name of a listing.
        where: SQL condition that rows must match; None for all rows.
        task_bytes: Bytes of data objects that a Spark task should read, approximately; None: by the
            size of the scan.
        offsets: Start of a stream, if batch reads do not have such a start.
        max_bytes: Maximum size of the data objects in a batch of a stream, in bytes; None:
            unlimited.
        max_ledgers: Maximum number of ledgers in a batch of a stream; None: unlimited.
    """

    location: Location
    request: TopicRequest
    topics: tuple[str, ...] | re.Pattern[str] = ()
    table: str = _MESSAGES
    where: str | None = None
    task_bytes: int | None = None
    offsets: StartingOffsets | None = None
    max_bytes: int | None = None
    max_ledgers: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse the user's options.

        Raises:
            OptionError: An option is unknown (similar names are listed), repeated, missing, or has
                a value that is not allowed. Values of storage options are never shown.
        """
        _check_passed(options)
        passed = PassedOptions.sort(options, _PARSERS)
        location = bucket_location(passed.texts, passed.storage)
        fields = passed.fields(_PARSERS)
        table = fields.get("table", _MESSAGES)
        if "topics" not in fields and table == _MESSAGES:
            message = "option topic is missing: give names or globs, separated by commas"
            raise OptionError(message)
        for name in passed.texts if table != _MESSAGES else ():
            if name in _PARSERS and _PARSERS[name][0] not in _LISTING_FIELDS:
                message = f"option {name} is only for messages, not for the table {table}"
                raise OptionError(message)
        if isinstance(fields.get("start"), StartingOffsets):
            fields["offsets"] = fields.pop("start")
        own_values = {name: fields.pop(name) for name in _OWN_FIELDS if name in fields}
        request = TopicRequest(
            **{"time_unit": "us", "storage_options": location.storage_options, **fields}
        )
        return cls(location=location, request=request, **own_values)


@dataclass(frozen=True, slots=True, repr=False)
class PassedOptions:
    """Options that Spark passed, grouped by purpose.

    Attributes:
        texts: Texts of known options, by name.
        storage: Names and texts of options of the store.
        metadata: Names and texts of options of the metadata source.
    """

    texts: dict[str, str]
    storage: list[tuple[str, str]]
    metadata: list[tuple[str, str]]

    @classmethod
    def sort(cls, options: Mapping[str, str], allowed: Iterable[str], suffix: str = "") -> Self:
        """Group options by purpose. Known names are `allowed` and those of a location.

        Raises:
            OptionError: An option is unknown (similar names are listed) or repeated. The suffix
                follows the name of an unknown option.
        """
        names = {normal_name(name): name for name in (*LOCATION_OPTIONS, *allowed)}
        passed = cls({}, [], [])
        spellings: dict[str, str] = {}
        unknown = []
        for spelling, text in options.items():
            name = names.get(normal_name(spelling))
            if name in spellings:
                message = f"option {name} is given twice: as {spellings[name]} and as {spelling}"
                raise OptionError(message)
            if name is not None:
                spellings[name] = spelling
                passed.texts[name] = text
            elif prefix := find_prefix(spelling, METADATA_PREFIXES):
                passed.metadata.append((spelling[len(prefix) :], text))
            elif prefix := find_prefix(spelling, STORAGE_PREFIXES):
                passed.storage.append((spelling[len(prefix) :], text))
            else:
                unknown.append(spelling)
        if unknown:
            raise OptionError(_unknown_options(sorted(unknown), names, suffix))
        return passed

    def fields(self, parsers: Mapping[str, tuple[str, Parser]]) -> dict[str, Any]:
        """Parse the options except those of a location, and return the values by field.

        Raises:
            OptionError: Two options set one field, or a value is not allowed.
        """
        fields: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, text in self.texts.items():
            if name not in parsers:
                continue
            field, parse = parsers[name]
            if field in names:
                message = f"options {names[field]} and {name} mean the same: give only one of them"
                raise OptionError(message)
            names[field] = name
            fields[field] = parse(name, text.strip())
        for name, text in self.metadata:
            put_text(fields.setdefault("metadata_options", {}), "metadata option", name, text)
        return fields


def hide_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with secret values hidden from tools that show a frame's variables."""
    return {name: _hidden(name, text) for name, text in options.items()}


def _hidden(name: str, text: str) -> str:
    is_secret = find_prefix(name, (*STORAGE_PREFIXES, *METADATA_PREFIXES))
    return hidden(text) if is_secret or normal_name(name) in _SECRETS else hidden_url(text)


def _read_pattern(option: str, text: str) -> re.Pattern[str]:
    """Compile a regular expression of full names, whose first parts may be missing."""
    if "://" not in text:
        text = f"persistent://{text if '/' in text else f'public/default/{text}'}"
    try:
        return re.compile(text)
    except re.error as error:
        message = f"{option} must be a regular expression: {error}"
        raise OptionError(message) from None


def _read_table_name(option: str, text: str) -> str:
    names = (_MESSAGES, *TABLES)
    if text not in names:
        message = f"{option} must be one of {', '.join(names)}, not {text!r}"
        raise OptionError(message)
    return text


def _read_time_unit(option: str, text: str) -> str:
    if text != "us":
        message = f"{option} must be us, not {text!r}: times in Spark are in microseconds"
        raise OptionError(message)
    return text


def _read_fail_on_data_loss(option: str, text: str) -> str:
    return "raise" if read_flag(option, text) else "salvage"


def _read_time(option: str, text: str) -> datetime:
    time = time_of(read_number(option, text))
    if time is None:
        message = f"{option} must be a time in milliseconds since 1970, not {text}"
        raise OptionError(message)
    return time


def _read_ending_offsets(option: str, text: str) -> Bound | None:
    if text.lower() == LATEST:
        return None
    message_id = read_message_id(text)
    if message_id is None:
        message = (
            f"{option} must be {LATEST}, or one message id: (ledger,entry[,batch]) or"
            f" ledger:entry[:partition[:batch]], not {text!r}"
        )
        if text.startswith("{"):
            message += "; separate offsets per topic are not supported"
        raise OptionError(message)
    return message_id


def _read_size(option: str, text: str) -> int:
    """Parse a size in bytes, as Spark writes it: `512m`, `1g`."""
    number, unit = text.lower().removesuffix("b"), 0
    if number.endswith(tuple(_UNITS)):
        number, unit = number[:-1], 1 + _UNITS.index(number[-1])
    return read_count(option, number) << 10 * unit


def _read_key_files(option: str, text: str) -> DecryptionKeys:
    """Read private keys from a path. Spark shows this option, so the text must be no key."""
    if "-----BEGIN" in text:
        message = (
            f"{option} must be a path: give PEM text as secret.{option}, which Spark masks wherever"
            " it shows options"
        )
        raise OptionError(message)
    return read_decryption_keys(text)


def _read_keys(_option: str, text: str) -> DecryptionKeys:
    return read_decryption_keys(text)


Parser: TypeAlias = "Callable[[str, str], object]"


def option_parser(option: Option) -> Parser:
    """Return a parser of an option's text."""
    return lambda _, text: option.read(text)


_SPARK_OPTIONS: Final[Mapping[str, tuple[str, Parser, str]]] = {
    "topic": ("topics", read_names, "Names and globs, separated by commas."),
    "topics": ("topics", read_names, "The same as topic."),
    "topicsPattern": (
        "topics",
        _read_pattern,
        "Instead of topic: regular expression of full names.",
    ),
    "startingOffsets": (
        "start",
        read_starting_offsets,
        (
            "Instead of start: earliest, or one message id; for a stream also latest, or JSON with"
            " a start for each topic or partition."
        ),
    ),
    "startingTime": ("start", _read_time, "Instead of start: publish time in ms since 1970."),
    "endingOffsets": ("end", _read_ending_offsets, "Instead of end: latest, or one message id."),
    "endingTime": ("end", _read_time, "Instead of end: publish time in ms since 1970."),
    "failOnDataLoss": (
        "on_corruption",
        _read_fail_on_data_loss,
        "Instead of on_corruption: true raises, false salvages.",
    ),
    "secret.decryption_keys": (
        "decryption_keys",
        _read_keys,
        "The same as decryption_keys, or PEM text.",
    ),
    **{
        f"secret.{name}": (name, option_parser(OPTIONS[name]), f"The same as {name}.")
        for name in ("metadata_options", "schema_options", "live_options", "lake_options")
    },
    "table": ("table", _read_table_name, f"{_MESSAGES}, or a listing: {', '.join(TABLES)}."),
    "where": ("where", read_text, "SQL condition that rows must match."),
    "task_bytes": (
        "task_bytes",
        read_count,
        "Bytes of data objects that a partition of the frame reads, approximately.",
    ),
    "maxBytesPerTrigger": (
        "max_bytes",
        _read_size,
        "Maximum size of the data objects in a batch of a stream, such as 512m.",
    ),
    "maxLedgersPerTrigger": (
        "max_ledgers",
        read_count,
        "Maximum number of ledgers in a batch of a stream.",
    ),
}
"""Options that only Spark has: field, parser and help of each."""

_PARSERS: Final[Mapping[str, tuple[str, Parser]]] = {
    **{name: (field, parse) for name, (field, parse, _) in _SPARK_OPTIONS.items()},
    **{
        name: (name, option_parser(option))
        for name, option in OPTIONS.items()
        if option.in_python_only is None and name != "storage_options"
    },
    "time_unit": ("time_unit", _read_time_unit),
    "decryption_keys": ("decryption_keys", _read_key_files),
}
"""Field and parser of each option, shared and Spark's own."""

_OWN_FIELDS: Final = frozenset(
    {"topics", "table", "where", "task_bytes", "offsets", "max_bytes", "max_ledgers"}
)
_LISTING_FIELDS: Final = frozenset(
    {"topics", "table", *(name for name, option in OPTIONS.items() if option.is_fixed_by_catalog)}
)

LOCATION_HELP: Final = {
    "url": "Bucket, prefix or folder: a path, s3://bucket/prefix, or any URL of fsspec.",
    "path": "The same as url; load() sets it.",
    "storage_options": f"{OPTIONS['storage_options'].help} As a JSON object, in which names keep"
    " their case.",
    "managedLedgerOffloadDriver": f"Instead of url: {', '.join(_SCHEMES)}.",
    "managedLedgerOffloadBucket": "Instead of url: name of the bucket.",
    "managedLedgerOffloadServiceEndpoint": "Instead of a storage option: URL of the store.",
    "managedLedgerOffloadRegion": "Instead of a storage option: region of the bucket.",
    "storage.<name>": "Option of the fsspec file system. Dots nest. Objects, arrays, true, false,"
    " null and numbers are read as JSON, except the last four for names such as key, secret or"
    " token.",
    "secret.<name>": "The same as storage.<name>. Spark masks options with secret in their names.",
    "metadata.<name>": "Option of the metadata source, in the same form.",
    "secret.metadata.<name>": "The same as metadata.<name>, masked by Spark.",
}
"""Help of options of a location that only Spark has."""
LOCATION_OPTIONS: Final = tuple(name for name in LOCATION_HELP if "<" not in name)

OWN_HELP: Final = LOCATION_HELP | {name: text for name, (_, _, text) in _SPARK_OPTIONS.items()}
"""Help of options for reading that only Spark has."""
NOTES: Final = {
    "metadata_options": "As a JSON object.",
    "schema_options": "As a JSON object.",
    "live_options": "As a JSON object.",
    "lake": "Only for batch reads.",
    "lake_options": "As a JSON object.",
    "buckets": "As a JSON object.",
    "columns": "Separated by commas.",
    "schema": "A path is read by the driver.",
    "decryption_keys": "A path is read by the driver.",
    "time_unit": "Only us: Spark's times have microseconds.",
    "view": "Only all: use SQL to find the latest message of each key.",
    "live": "Only for batch reads.",
}
"""Spark's peculiarities of shared options."""
READING_HELP: Final = OWN_HELP | {
    name: " ".join(filter(None, (option.help, NOTES.get(name))))
    for name, option in OPTIONS.items()
    if option.in_python_only is None and name not in OWN_HELP
}
"""Help of each option for reading."""


def normal_name(name: str) -> str:
    """Return the name in lower case without underscores."""
    return name.lower().replace("_", "")


_SECRETS: Final = frozenset(
    normal_name(name) for name, option in OPTIONS.items() if option.is_secret
)


def find_prefix(name: str, prefixes: Iterable[str]) -> str | None:
    """Return the prefix with which a name begins, ignoring case; None if it has no prefix."""
    return next((prefix for prefix in prefixes if name.lower().startswith(prefix)), None)


def _check_passed(options: Mapping[str, str]) -> None:
    """Raise if Spark is used in a way that a source cannot support."""
    # CREATE TABLE gives a source no options at all, or the table's own properties.
    if not options or "provider" in options:
        message = (
            "Spark passed no options, as it does for CREATE TABLE: use CREATE TEMPORARY VIEW …"
            " USING pulsar_offload OPTIONS (…), or spark.read with the options url and topic"
        )
        raise OptionError(message)
    if "paths" in options:
        message = (
            "load() takes one path or URL, not several: read each into a frame, and combine the"
            " frames with union()"
        )
        raise OptionError(message)


def _unknown_options(unknown: list[str], names: Mapping[str, str], suffix: str) -> str:
    near = {each: difflib.get_close_matches(normal_name(each), names) for each in unknown}
    sentences = [
        f"unknown option {each}{suffix}"
        + (f", did you mean {' or '.join(map(names.__getitem__, matches))}?" if matches else "")
        for each, matches in near.items()
    ]
    if not all(near.values()):
        sentences.append(
            f"options are {', '.join(names.values())}, storage.<name>, metadata.<name>,"
            " secret.<name> and secret.metadata.<name>"
        )
    return "; ".join(sentences)


def bucket_location(texts: Mapping[str, str], storage: list[tuple[str, str]]) -> Location:
    """Return the bucket from a URL or the keys of broker.conf, and from storage options.

    Raises:
        OptionError: There is no bucket or more than one, or an option is not usable.
    """
    # In broker.conf, an empty value means that the key is not set.
    texts = {name: text.strip() for name, text in texts.items() if text.strip()}
    url, path = texts.get("url"), texts.get("path")
    if url is not None and path is not None:
        message = "url and path mean the same: give only one of them, as an option or to load()"
        raise OptionError(message)
    url = url or path
    bucket = texts.get("managedLedgerOffloadBucket")
    driver = texts.get("managedLedgerOffloadDriver")
    if url is not None and (bucket is not None or driver is not None):
        message = "url and managedLedgerOffload… mean the same: give only one of them"
        raise OptionError(message)
    if url is None:
        if bucket is None:
            message = (
                "option url is missing: give the URL of the objects, such as s3://bucket/prefix"
            )
            raise OptionError(message)
        url = f"{_scheme(driver or 'aws-s3')}://{bucket}"
    options = OPTIONS["storage_options"].read(texts.get("storage_options", "{}"))
    for name, text in storage:
        put_text(options, "storage option", name, text)
    for name, value in _broker_options(texts, url.partition("://")[0]).items():
        put_value(options, "storage option", name, value)
    return Location(url, options)


def _scheme(driver: str) -> str:
    scheme = _SCHEMES.get(driver.lower())
    if scheme is None:
        message = f"managedLedgerOffloadDriver must be one of {', '.join(_SCHEMES)}, not {driver!r}"
        raise OptionError(message)
    return scheme


def _broker_options(texts: Mapping[str, str], scheme: str) -> dict[str, str]:
    """Return broker.conf's settings of the store as storage options. Only S3 uses the region."""
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
