"""Options of the Spark source: strings → one frozen value.

Spark gives names of options in lower case and values as text. Names are compared without case and
underscores, so `task_bytes` and `taskBytes` are the same. Only Spark's own options and spellings
are here; all others, and what their texts mean, are those of `connector.options.topic_request`.
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
"""Spark masks options with `secret` in their names wherever it shows options."""
METADATA_PREFIXES: Final = ("metadata.", "secret.metadata.")

_UNITS: Final = "kmgt"
"""Of 1024 bytes, of as many of these, and so on."""

_SCHEMES: Final = {
    "aws-s3": "s3",
    "s3": "s3",
    "google-cloud-storage": "gs",
    "azureblob": "abfs",
}
"""URL scheme of each offload driver (`JCloudBlobStoreProvider`), its name in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, and how. Shows no secret when it is printed.

    Attributes:
        location: The bucket.
        request: How it is read.
        topics: Names and globs; or a regular expression, which full names have to match. A listing
            without any is of all topics.
        table: `messages`, or the listing that is asked for.
        where: A condition in SQL, which rows have to meet; None: there is none.
        task_bytes: About how many bytes of data objects a Spark task should read; None: by the
            size of the scan.
        offsets: Where a stream begins, if not at a bound that a batch read has too.
        max_bytes: Most bytes of data objects in a batch of a stream; None: any number.
        max_ledgers: Most ledgers in one, likewise.
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
        """Read the options that a user gave.

        Raises:
            OptionError: An option is unknown (similar names are listed), given twice or missing, or
                has a value that is not allowed. No value of a storage option is shown.
        """
        _check_passed(options)
        passed = PassedOptions.sort(options, _PARSERS)
        location = bucket_location(passed.texts, passed.storage)
        fields = passed.fields(_PARSERS)
        table = fields.get("table", _MESSAGES)
        if "topics" not in fields and table == _MESSAGES:
            message = "option topic is missing: a name, a glob, or several, separated by commas"
            raise OptionError(message)
        for name in passed.texts if table != _MESSAGES else ():
            if name in _PARSERS and _PARSERS[name][0] not in _LISTING_FIELDS:
                message = f"option {name} is for messages, not for the table {table}"
                raise OptionError(message)
        if isinstance(fields.get("start"), StartingOffsets):
            fields["offsets"] = fields.pop("start")
        own = {name: fields.pop(name) for name in _OWN_FIELDS if name in fields}
        request = TopicRequest(
            **{"time_unit": "us", "storage_options": location.storage_options, **fields}
        )
        return cls(location=location, request=request, **own)


@dataclass(frozen=True, slots=True, repr=False)
class PassedOptions:
    """The options that Spark passes, sorted by what they are about.

    Attributes:
        texts: Texts by the names that are known.
        storage: Names and texts of options of the store.
        metadata: Names and texts of options of the source of metadata.
    """

    texts: dict[str, str]
    storage: list[tuple[str, str]]
    metadata: list[tuple[str, str]]

    @classmethod
    def sort(cls, options: Mapping[str, str], allowed: Iterable[str], suffix: str = "") -> Self:
        """Sort options.

        Args:
            options: The options.
            allowed: Names that are known, but for those of a place.
            suffix: What an error appends to the name of an unknown option.

        Raises:
            OptionError: An option is unknown (similar names are listed), or given twice.
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
            elif prefix := prefix_of(spelling, METADATA_PREFIXES):
                passed.metadata.append((spelling[len(prefix) :], text))
            elif prefix := prefix_of(spelling, STORAGE_PREFIXES):
                passed.storage.append((spelling[len(prefix) :], text))
            else:
                unknown.append(spelling)
        if unknown:
            raise OptionError(_unknown_options(sorted(unknown), names, suffix))
        return passed

    def fields(self, parsers: Mapping[str, tuple[str, Parser]]) -> dict[str, Any]:
        """Return the values of the options that are not of a place, by their fields.

        Args:
            parsers: The field of each option, and how its text is read.

        Raises:
            OptionError: Two options have one field, or a value is not allowed.
        """
        fields: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name, text in self.texts.items():
            if name not in parsers:
                continue
            field, parse = parsers[name]
            if field in names:
                message = f"options {names[field]} and {name} say the same: give one of them"
                raise OptionError(message)
            names[field] = name
            fields[field] = parse(name, text.strip())
        for name, text in self.metadata:
            put_text(fields.setdefault("metadata_options", {}), "metadata option", name, text)
        return fields


def hide_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """The same options; tools that show the variables of a frame do not show the secret ones."""
    return {name: _hidden(name, text) for name, text in options.items()}


def _hidden(name: str, text: str) -> str:
    is_secret = prefix_of(name, (*STORAGE_PREFIXES, *METADATA_PREFIXES))
    return hidden(text) if is_secret or normal_name(name) in _SECRETS else hidden_url(text)


def _pattern(option: str, text: str) -> re.Pattern[str]:
    """A regular expression for full names; as in pulsar-spark, it may leave out the first parts."""
    if "://" not in text:
        text = f"persistent://{text if '/' in text else f'public/default/{text}'}"
    try:
        return re.compile(text)
    except re.error as error:
        message = f"{option} must be a regular expression: {error}"
        raise OptionError(message) from None


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
    return "raise" if read_flag(option, text) else "salvage"


def _time(option: str, text: str) -> datetime:
    time = time_of(read_number(option, text))
    if time is None:
        message = f"{option} must be a time in milliseconds since 1970, not {text}"
        raise OptionError(message)
    return time


def _ending_offsets(option: str, text: str) -> Bound | None:
    if text.lower() == LATEST:
        return None
    message_id = read_message_id(text)
    if message_id is None:
        message = (
            f"{option} must be {LATEST}, or one message id: (ledger,entry[,batch]) or"
            f" ledger:entry[:partition[:batch]], not {text!r}"
        )
        if text.startswith("{"):
            message += "; offsets of each topic by itself are not supported"
        raise OptionError(message)
    return message_id


def _size(option: str, text: str) -> int:
    """A number of bytes, as Spark writes it: `512m`, `1g`."""
    number, unit = text.lower().removesuffix("b"), 0
    if number.endswith(tuple(_UNITS)):
        number, unit = number[:-1], 1 + _UNITS.index(number[-1])
    return read_count(option, number) << 10 * unit


def _key_files(option: str, text: str) -> DecryptionKeys:
    """Private keys by the path of their file or folder: Spark shows this option."""
    if "-----BEGIN" in text:
        message = (
            f"{option} takes a path: give PEM text as secret.{option}, which Spark masks wherever"
            " it shows options"
        )
        raise OptionError(message)
    return read_decryption_keys(text)


def _keys(_option: str, text: str) -> DecryptionKeys:
    return read_decryption_keys(text)


Parser: TypeAlias = "Callable[[str, str], object]"


def option_parser(option: Option) -> Parser:
    """Return what reads the text of an option of a table."""
    return lambda _, text: option.read(text)


_SPARK_OPTIONS: Final[Mapping[str, tuple[str, Parser, str]]] = {
    "topic": ("topics", read_names, "Names and globs, separated by commas."),
    "topics": ("topics", read_names, "The same as topic."),
    "topicsPattern": ("topics", _pattern, "Instead of topic: a regular expression of full names."),
    "startingOffsets": (
        "start",
        read_starting_offsets,
        (
            "Instead of start: earliest, or one message id; for a stream also latest, or JSON with"
            " a place for each topic or partition."
        ),
    ),
    "startingTime": ("start", _time, "Instead of start: publish time in ms since 1970."),
    "endingOffsets": ("end", _ending_offsets, "Instead of end: latest, or one message id."),
    "endingTime": ("end", _time, "Instead of end: publish time in ms since 1970."),
    "failOnDataLoss": (
        "on_corruption",
        _fail_on_data_loss,
        "Instead of on_corruption: true raises, false salvages.",
    ),
    "secret.decryption_keys": ("decryption_keys", _keys, "As decryption_keys, or PEM text."),
    **{
        f"secret.{name}": (name, option_parser(OPTIONS[name]), f"As {name}.")
        for name in ("metadata_options", "live_options")
    },
    "table": ("table", _listing, f"{_MESSAGES}, or a listing: {', '.join(TABLES)}."),
    "where": ("where", read_text, "A condition in SQL, which rows have to meet."),
    "task_bytes": (
        "task_bytes",
        read_count,
        "About how many bytes of data objects a partition of the frame reads.",
    ),
    "maxBytesPerTrigger": (
        "max_bytes",
        _size,
        "Maximum size of the data objects in a batch of a stream, such as 512m.",
    ),
    "maxLedgersPerTrigger": (
        "max_ledgers",
        read_count,
        "Maximum number of ledgers in a batch of a stream.",
    ),
}
"""The options that only Spark has: the field of each, how its text is read, and its help."""

_PARSERS: Final[Mapping[str, tuple[str, Parser]]] = {
    **{name: (field, parse) for name, (field, parse, _) in _SPARK_OPTIONS.items()},
    **{
        name: (name, option_parser(option))
        for name, option in OPTIONS.items()
        if option.in_python_only is None and name != "storage_options"
    },
    "time_unit": ("time_unit", _time_unit),
    "decryption_keys": ("decryption_keys", _key_files),
}
"""The field of each option, and how its text is read: those of the table, and Spark's own."""

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
    "managedLedgerOffloadBucket": "Instead of url: the name of the bucket.",
    "managedLedgerOffloadServiceEndpoint": "Instead of a storage option: URL of the store.",
    "managedLedgerOffloadRegion": "Instead of a storage option: region of the bucket.",
    "storage.<name>": "An option of the fsspec file system. Dots lead into nested ones. Objects,"
    " arrays, true, false, null and numbers are read as JSON, the last four not for names such as"
    " key, secret or token.",
    "secret.<name>": "The same. Spark masks options with secret in their names.",
    "metadata.<name>": "An option of the source of metadata, likewise.",
    "secret.metadata.<name>": "The same.",
}
"""Help on the options of a place that only Spark has."""
LOCATION_OPTIONS: Final = tuple(name for name in LOCATION_HELP if "<" not in name)

OWN_HELP: Final = LOCATION_HELP | {name: text for name, (_, _, text) in _SPARK_OPTIONS.items()}
"""Help on the options of reading that only Spark has."""
NOTES: Final = {
    "metadata_options": "As a JSON object.",
    "live_options": "As a JSON object.",
    "buckets": "As a JSON object.",
    "columns": "Separated by commas.",
    "schema": "A path is read by the driver.",
    "decryption_keys": "A path is read by the driver.",
    "time_unit": "Only us: Spark's times have microseconds.",
    "view": "Only all: Spark's SQL finds the latest message of each key.",
    "live": "Only batch reads have it.",
}
"""What is peculiar to Spark about options that every surface has."""
READING_HELP: Final = OWN_HELP | {
    name: " ".join(filter(None, (option.help, NOTES.get(name))))
    for name, option in OPTIONS.items()
    if option.in_python_only is None and name not in OWN_HELP
}
"""Help on each option of reading."""


def normal_name(name: str) -> str:
    """What names that mean the same have in common."""
    return name.lower().replace("_", "")


_SECRETS: Final = frozenset(
    normal_name(name) for name, option in OPTIONS.items() if option.is_secret
)


def prefix_of(name: str, prefixes: Iterable[str]) -> str | None:
    """The prefix, in lower case, that a name begins with in any case; None if it has none."""
    return next((prefix for prefix in prefixes if name.lower().startswith(prefix)), None)


def _check_passed(options: Mapping[str, str]) -> None:
    """Refuse options that Spark passes if it is used in a way that a source cannot serve."""
    # CREATE TABLE gives a source no options at all, or the table's own properties.
    if not options or "provider" in options:
        message = (
            "Spark passed no options, as it does for CREATE TABLE: use CREATE TEMPORARY VIEW …"
            " USING pulsar_offload OPTIONS (…), or spark.read with the options url and topic"
        )
        raise OptionError(message)
    if "paths" in options:
        message = (
            "load() takes one path or URL, and was given several: read each by itself, and join the"
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
            f"there are {', '.join(names.values())}, storage.<name>, metadata.<name>,"
            " secret.<name> and secret.metadata.<name>"
        )
    return "; ".join(sentences)


def bucket_location(texts: Mapping[str, str], storage: list[tuple[str, str]]) -> Location:
    """The bucket, by its URL or the keys of broker.conf, with storage options in any spelling.

    Args:
        texts: Options by their names as `LOCATION_OPTIONS` has them; others are passed over.
        storage: Names and texts of storage options.

    Raises:
        OptionError: There is none, or more than one; or an option is not usable.
    """
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
