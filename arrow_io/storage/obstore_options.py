"""Translation of a URL and fsspec storage options to the option names of Rust's `object_store`.

An option that cannot be translated is rejected: an option that is silently ignored may be the one
that protects the data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import shown_to_library
from arrow_io.storage.store_kinds import StoreKind, check_server, prefix_in_store, store_kind

if TYPE_CHECKING:
    from collections.abc import Callable

S3_NAMES: Final = {
    "key": "AWS_ACCESS_KEY_ID",
    "username": "AWS_ACCESS_KEY_ID",
    "secret": "AWS_SECRET_ACCESS_KEY",
    "password": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}
"""Options of `object_store`, by the names of s3fs and of boto's client (`client_kwargs`)."""

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "base_url", "endpoint")
"""The names of an endpoint in `ObstorePlace.config`."""

NO_UPLOADS_LISTED: Final = (
    "client 'obstore' does not list unfinished uploads, which S3 and Google Cloud Storage keep and"
    " bill until they are found: write without the storage option client"
)

_GCS_NAMES: Final = {"endpoint_url": "base_url"}
"""By the names of gcsfs."""

_AZURE_NAMES: Final = {
    "account_name": "account_name",
    "account_key": "account_key",
    "sas_token": "sas_key",
    "tenant_id": "tenant_id",
    "client_id": "client_id",
    "client_secret": "client_secret",
}
"""By the names of adlfs."""

_CONNECTION_NAMES: Final = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}
"""By the names in a connection string of Azure."""

_PUBLIC_SUFFIX: Final = "core.windows.net"
"""Suffix of Azure's hosts after the account, except in its national clouds."""

TRANSFER_OPTIONS: Final = frozenset(
    {
        "asynchronous",
        "cache_regions",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "fixed_upload_size",
        "loop",
        "max_concurrency",
        "skip_instance_cache",
        "use_listings_cache",
    }
)
"""Options of how any fsspec file system sends requests, which other clients do not need."""

_FSSPEC_OPTIONS: Final = TRANSFER_OPTIONS | {"block_size", "cache_timeout"}
"""The same, and those of gcsfs and adlfs alone."""

_BOTOCORE_OPTIONS: Final = frozenset(
    {"connect_timeout", "max_pool_connections", "read_timeout", "retries", "tcp_keepalive"}
)
"""Options in `config_kwargs` of how botocore sends requests."""


@dataclass(frozen=True, slots=True)
class ObstorePlace:
    """A bucket or container, a folder in it, and how to access it."""

    kind: StoreKind
    bucket: str
    prefix: str
    """Without slashes around it; empty for the bucket itself."""
    config: Mapping[str, str]
    client_options: Mapping[str, object]
    credentials: Callable[[], Mapping[str, object]] | None = None
    """Returns credentials when obstore asks for them; None if it finds them itself."""

    @property
    def allows_http(self) -> bool:
        """Whether the endpoint is one without TLS."""
        endpoint = next((self.config[name] for name in _ENDPOINTS if name in self.config), "")
        return endpoint.startswith("http://")


def check_obstore_writes(url: str) -> None:
    """Raise if a killed process could leave uploads behind when it writes through obstore.

    Raises:
        OptionError: The URL is not a bucket's, or the store is not Azure, which drops incomplete
            blobs itself.
    """
    _check_kind(url)
    if store_kind(url) is not StoreKind.AZURE:
        raise OptionError(NO_UPLOADS_LISTED)


def _check_kind(url: str) -> StoreKind:
    kind = store_kind(url)
    if "::" in url or kind is None or kind not in _TRANSLATORS:
        message = "client 'obstore' is for URLs of S3, Google Cloud Storage and Azure, without '::'"
        raise OptionError(message)
    return kind


def obstore_place(url: str, storage_options: Mapping[str, object]) -> ObstorePlace:
    """Translate a URL and storage options for obstore.

    Args:
        url: URL of S3, Google Cloud Storage or Azure.
        storage_options: Options of s3fs, gcsfs or adlfs; those about transfer are ignored.

    Raises:
        OptionError: The URL is of another store, or an option has no counterpart.
    """
    kind = _check_kind(url)
    options = {
        name: value
        for name, value in shown_to_library(storage_options).items()
        if value is not None and name not in _FSSPEC_OPTIONS
    }
    bucket, _, host = url.partition("://")[2].partition("/")[0].partition("@")
    if host:
        account, _, suffix = host.partition(".dfs.")
        options.setdefault("account_name", account)
        if suffix not in {"", _PUBLIC_SUFFIX}:
            options.setdefault("account_host", f"{account}.blob.{suffix}")
    client_options: dict[str, object] = {}
    config = _TRANSLATORS[kind](options, client_options)
    return ObstorePlace(kind, bucket, prefix_in_store(url), config, client_options)


def _s3_config(options: dict[str, Any], client_options: dict[str, object]) -> dict[str, str]:
    config: dict[str, str] = {}
    client = options.pop("client_kwargs", {})
    for name, value in {**options, **client}.items():
        if name in S3_NAMES:
            config[S3_NAMES[name]] = str(value)
        elif name == "anon":
            config["AWS_SKIP_SIGNATURE"] = _flag(value)
        elif name == "requester_pays":
            config["AWS_REQUEST_PAYER"] = _flag(value)
        elif name == "config_kwargs":
            config |= _botocore_config(value)
        elif name == "verify":
            client_options |= _verification(value)
        elif name != "use_ssl":
            raise _unknown_option(name, "key, secret, token, endpoint_url, client_kwargs and anon")
    return s3_environment() | config


def s3_environment() -> dict[str, str]:
    """Return the endpoint of the environment variables, interpreted like botocore does.

    `object_store` knows one of the two variables, and refuses `http://` unless it is allowed.

    Raises:
        OptionError: The endpoint is not the URL of a server.
    """
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return {}
    check_server("AWS_ENDPOINT_URL in the environment", endpoint)
    return {"AWS_ENDPOINT_URL": endpoint}


def _botocore_config(options: Mapping[str, Any]) -> dict[str, str]:
    config: dict[str, str] = {}
    for name, value in options.items():
        if name == "s3" and set(value) == {"addressing_style"}:
            config["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = _flag(
                value["addressing_style"] == "virtual"
            )
        elif name not in _BOTOCORE_OPTIONS:
            raise _unknown_option(f"config_kwargs[{name!r}]", "addressing_style in config_kwargs")
    return config


def _verification(verify: object) -> dict[str, object]:
    if isinstance(verify, str):
        return {"root_certificate": read_certificates(verify)}
    return {} if verify else {"allow_invalid_certificates": True}


def read_certificates(path: str) -> bytes:
    """Return the content of the file in the S3 storage option `verify`.

    Raises:
        OptionError: The file cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"the storage option verify: {path} cannot be read: {error.strerror}"
        raise OptionError(message) from None


def _gcs_config(options: dict[str, Any], client_options: dict[str, object]) -> dict[str, str]:
    del client_options
    config: dict[str, str] = {}
    for name, value in options.items():
        if name in _GCS_NAMES:
            config[_GCS_NAMES[name]] = str(value)
        elif name == "token":
            config |= _gcs_token(value)
        # The project is for making and listing buckets.
        elif name not in {"project", "consistency"}:
            raise _unknown_option(name, "token and endpoint_url")
    return config


def _gcs_token(token: object) -> dict[str, str]:
    if isinstance(token, Mapping):
        return {"service_account_key": json.dumps(token)}
    if token == "anon":  # noqa: S105 - a word of gcsfs
        return {"skip_signature": "true"}
    if token in {"google_default", "cloud"}:
        return {}
    if isinstance(token, str) and Path(token).is_file():
        return {"application_credentials": token}
    message = (
        "client 'obstore' takes as token the content of a service account's file, the path of such"
        " a file, 'anon', 'google_default' or 'cloud'"
    )
    raise OptionError(message)


def azure_config(options: Mapping[str, Any], client_options: dict[str, object]) -> dict[str, str]:
    """Translate the options of adlfs.

    Raises:
        OptionError: An option has no counterpart.
    """
    del client_options
    config: dict[str, str] = {}
    for name, value in options.items():
        if name in _AZURE_NAMES:
            config[_AZURE_NAMES[name]] = str(value)
        elif name == "connection_string":
            config |= _parse_connection_string(str(value))
        elif name == "account_host":
            config["endpoint"] = f"https://{value}"
        elif name == "anon":
            config["skip_signature"] = _flag(value)
        else:
            names = (*_AZURE_NAMES, "account_host", "connection_string", "anon")
            raise _unknown_option(name, ", ".join(names))
    # adlfs sends unsigned requests only if it has no credentials.
    if config.get("skip_signature") == "true" and {"account_key", "sas_key"} & config.keys():
        del config["skip_signature"]
    return config


def _parse_connection_string(text: str) -> dict[str, str]:
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    config = {key: parts[name] for name, key in _CONNECTION_NAMES.items() if name in parts}
    if "endpoint" not in config and "EndpointSuffix" in parts and "AccountName" in parts:
        protocol = parts.get("DefaultEndpointsProtocol", "https")
        host = f"{parts['AccountName']}.blob.{parts['EndpointSuffix']}"
        config["endpoint"] = f"{protocol}://{host}"
    return config


def _flag(value: object) -> str:
    return "true" if value else "false"


def _unknown_option(name: str, alternatives: str) -> OptionError:
    message = (
        f"client 'obstore' does not support the storage option {name}; it takes"
        f" {alternatives}: leave out the option client to use fsspec"
    )
    return OptionError(message)


_TRANSLATORS: Final[
    Mapping[StoreKind, Callable[[dict[str, Any], dict[str, object]], dict[str, str]]]
] = {
    StoreKind.S3: _s3_config,
    StoreKind.GCS: _gcs_config,
    StoreKind.AZURE: azure_config,
}
