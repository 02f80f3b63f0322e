"""The options of the commands, and how their texts are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import typer

from arrow_io.columns import ALL_COLUMNS
from arrow_io.errors import OptionError
from arrow_io.storage.redaction import redacted_urls

if TYPE_CHECKING:
    from collections.abc import Iterable

Url = Annotated[
    str,
    typer.Argument(
        help="Bucket, prefix or folder: a path, s3://bucket/prefix, or any URL of fsspec."
    ),
]
Topic = Annotated[str, typer.Argument(help="Name (orders), full name, or glob (sales-*).")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Option of the fsspec file system; may be repeated. Dots nest"
        " (client_kwargs.region_name=…). A value that is JSON is taken as JSON: quote a number that"
        " is text (key='\"12\"'). What s3fs finds in the environment need not be given.",
    ),
]
Metadata = Annotated[
    str | None,
    typer.Option(
        metavar="SOURCE",
        help="What the topics' cluster knows: URL of the admin API, whose brokers load the topics"
        " that they are asked about; a folder with a folder for each topic"
        " (managed-ledger-info.bin, or internal-info.json and internal-stats.json); or a saved"
        " catalog (….json.gz).",
    ),
]
MetadataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata-option",
        metavar="KEY=VALUE",
        help="Option of the source, such as token_file; may be repeated, as --storage-option.",
    ),
]
Buckets = Annotated[
    list[str] | None,
    typer.Option(
        "--bucket",
        metavar="NAME=URL",
        help="Where a further bucket is that ledgers were written to, by the metadata's name for"
        " it; may be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
OnCorruption = Annotated[
    Literal["raise", "salvage"],
    typer.Option(help="Whether damage is an error, or left out and told."),
]
Transactions = Annotated[
    Literal["committed", "all"],
    typer.Option(
        help="Whether messages of aborted and open transactions are left out, or given too."
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEMA",
        help="What values are decoded by: a file or folder of what Pulsar's admin API or CLI gives,"
        " an Avro schema, a protobuf descriptor set (FILE#Message), JSON text, or the name of a"
        " type (STRING). Without it, values are bytes.",
    ),
]
SchemaVersion = Annotated[
    int | None, typer.Option(help="Version of the schema that gives the columns; else the newest.")
]
Value = Annotated[
    Literal["flat", "struct", "raw"],
    typer.Option(help="A column to each field of a value, one column in all, or its bytes."),
]
TimeUnit = Annotated[
    Literal["ns", "us"], typer.Option(help="Unit of times whose type counts nanoseconds.")
]
DecryptionKeys = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Private key for encrypted messages, a PEM file; or a folder of them, where a file"
        " NAME.pem or NAME-priv.pem is the key NAME.",
    ),
]
RangeBytes = Annotated[
    int, typer.Option(min=1, help="Most bytes that one request for data asks for.")
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help="Columns, of those that the schema gives, * for the default ones, and:"
        f" {', '.join(each.name for each in ALL_COLUMNS)}.",
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        help="First message, inclusive: publish time (ISO 8601; UTC) or id (ledger:entry)."
    ),
]
End = Annotated[str | None, typer.Option(help="Behind the last message, exclusive; likewise.")]


class Place(TypedDict):
    """The options of `open_catalog` and `open_topic` that say where."""

    storage_options: dict[str, object]
    metadata: str | None
    metadata_options: dict[str, object]
    buckets: dict[str, str]


def place_of(
    storage_option: Iterable[str] | None,
    metadata: str | None = None,
    metadata_option: Iterable[str] | None = None,
    bucket: Iterable[str] | None = None,
) -> Place:
    """Read the texts of the options that say where.

    Raises:
        OptionError: A text is not of its option's form.
    """
    return Place(
        storage_options=storage_options(storage_option),
        metadata=metadata,
        metadata_options=metadata_options(metadata_option),
        buckets=bucket_urls(bucket),
    )


def column_names(text: str | None) -> list[str] | None:
    """The names in a text with commas; None for the default columns."""
    return None if text is None else [name.strip() for name in text.split(",")]


def storage_options(given: Iterable[str] | None) -> dict[str, object]:
    """Options of fsspec from `key=value` texts; see `key_values`."""
    return key_values("--storage-option", given)


def metadata_options(given: Iterable[str] | None) -> dict[str, object]:
    """Options of a source of metadata from `key=value` texts; see `key_values`."""
    return key_values("--metadata-option", given)


def bucket_urls(given: Iterable[str] | None) -> dict[str, str]:
    """URLs of buckets from `name=url` texts.

    Raises:
        OptionError: A text is no pair.
    """
    pairs = [each.partition("=") for each in given or ()]
    for pair in pairs:
        name, _, url = pair
        if not (name and url):
            message = (
                "--bucket must be NAME=URL, such as archive=s3://archive, not"
                f" {redacted_urls(''.join(pair))!r}"
            )
            raise OptionError(message)
    return {name: url for name, _, url in pairs}


def key_values(option: str, given: Iterable[str] | None) -> dict[str, object]:
    """Options from `key=value` texts; no message shows a value, which may be a secret.

    Args:
        option: Name of the command's option, for messages.
        given: The texts.

    Raises:
        OptionError: A text is no pair, or a name stands for a value and for options below it.
    """
    options: dict[str, object] = {}
    for each in given or ():
        path, is_pair, text = each.partition("=")
        *parents, name = path.split(".")
        if not is_pair or not name or not all(parents):
            message = f"{option} must be KEY=VALUE"
            raise OptionError(message)
        inner = options
        for parent in parents:
            below = inner.setdefault(parent, {})
            if not isinstance(below, dict):
                message = f"{option} {path}: {parent} has a value already"
                raise OptionError(message)
            inner = below
        inner[name] = _json_or_text(text)
    return options


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
