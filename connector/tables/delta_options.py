"""Options of a Delta table: those of `deltalake`'s storage, and properties of a new table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import shown_to_library
from arrow_io.storage.obstore_options import (
    S3_NAMES,
    TRANSFER_OPTIONS,
    obstore_place,
    s3_environment,
)
from arrow_io.storage.own_options import library_options
from arrow_io.storage.store_kinds import StoreKind, store_kind

if TYPE_CHECKING:
    from arrow_io.storage.location import Location

_TRANSFER_OPTIONS: Final = TRANSFER_OPTIONS | {"config_kwargs", "use_ssl", "verify"}
"""Options of s3fs that control how requests are sent, not where."""


_PROPERTY: Final = "delta."
"""Prefix of the properties of Delta tables."""
_UNSUPPORTED: Final = frozenset(
    {"delta.minReaderVersion", "delta.minWriterVersion", "delta.columnMapping.mode"}
)
_OF_ICEBERG: Final = {"branch": "branches", "tag": "tags", "sort-order": "sort order"}
"""Options that have no counterpart, and what tables lack."""


def split_properties(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split the properties of a new table, which start with `delta.`, from storage options.

    Raises:
        OptionError: An option is one of Iceberg tables, or one with which copies cannot write.
    """
    for name in texts:
        if name in _UNSUPPORTED:
            message = f"a copy cannot set {name} of a Delta table, since it could not write to it"
            raise OptionError(message)
        if name in _OF_ICEBERG:
            message = f"{name} is an option of Iceberg tables: Delta tables have no"
            raise OptionError(f"{message} {_OF_ICEBERG[name]}")
        if name in {"catalog", "location"} or name.startswith("table-default."):
            message = (
                f"{name} is an option of Iceberg tables: a Delta table is named by the URL of its"
                f" folder, and properties of a new one start with {_PROPERTY}"
            )
            raise OptionError(message)
    properties = {name: each for name, each in texts.items() if name.startswith(_PROPERTY)}
    return properties, {name: each for name, each in texts.items() if name not in properties}


def delta_storage_options(location: Location) -> dict[str, str]:
    """Return the storage options that `deltalake` needs for a location.

    Raises:
        OptionError: An option of the location has no counterpart, or the location is in memory,
            which `deltalake` cannot access.
    """
    if location.url.startswith("memory:"):
        message = "a Delta table cannot be stored in memory: use a folder or a bucket"
        raise OptionError(message)
    options = shown_to_library(library_options(location.storage_options or {}))
    kind = store_kind(location.url)
    if kind in {StoreKind.GCS, StoreKind.AZURE}:
        return _cloud_options(location.url, options)
    if kind is not StoreKind.S3:
        return {}
    delta_options = s3_environment()
    client = options.get("client_kwargs")
    flat = {**options, **(client if isinstance(client, Mapping) else {})}
    for name, value in flat.items():
        if name in S3_NAMES:
            delta_options[S3_NAMES[name]] = str(value)
        elif name == "anon":
            delta_options["AWS_SKIP_SIGNATURE"] = "true" if value else "false"
        elif name not in {*_TRANSFER_OPTIONS, "client_kwargs"} and value is not None:
            message = (
                f"deltalake has no counterpart of the storage option {name}: use key, secret, token"
                " and endpoint_url, or pass deltalake's own options as table options"
            )
            raise OptionError(message)
    if delta_options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        delta_options["AWS_ALLOW_HTTP"] = "true"
    return delta_options


def _cloud_options(url: str, options: Mapping[str, object]) -> dict[str, str]:
    """Return options for Google Cloud Storage or Azure."""
    try:
        place = obstore_place(url, options)
    except OptionError as error:
        message = (
            "deltalake has no counterpart of one of the storage options"
            f" {', '.join(sorted(options))}: pass deltalake's own options as table options"
        )
        raise OptionError(message) from error
    allow_http = {"allow_http": "true"} if place.allows_http else {}
    return {**place.config, **allow_http}
