"""Names that other libraries give storage options, translated to those of s3fs, gcsfs and adlfs.

Polars, deltalake and obstore share the names of Rust's `object_store`; PyArrow, boto3 and DuckDB
have their own. Users of those libraries can keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import shown_to_library
from arrow_io.storage.store_kinds import StoreKind, check_server, store_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

_S3: Final[Mapping[str, Iterable[str]]] = {
    "key": ("access_key_id", "access_key", "key_id"),
    "secret": ("secret_access_key", "secret_key"),
    "token": ("session_token",),
    "endpoint_url": ("endpoint", "endpoint_override"),
    "client_kwargs.region_name": ("region", "region_name", "default_region"),
    "anon": ("skip_signature", "anonymous"),
    "profile": ("profile_name",),
}
"""Aliases of S3 options, by the name in s3fs; each is also accepted with the prefix `aws_`."""

_GCS: Final[Mapping[str, Iterable[str]]] = {
    "token": ("application_credentials", "service_account", "service_account_path"),
}
"""Aliases of Google Cloud Storage options, by the name in gcsfs; also with `google_`."""

_AZURE: Final[Mapping[str, Iterable[str]]] = {
    "account_key": ("access_key", "master_key"),
    "sas_token": ("sas_key",),
    "tenant_id": ("authority_id",),
    **dict.fromkeys(("account_name", "client_id", "client_secret", "connection_string"), ()),
}
"""Aliases of Azure options, by the name in adlfs; also with `azure_` or `azure_storage_`."""

_PREFIXES: Final = {
    StoreKind.S3: ("aws_",),
    StoreKind.GCS: ("google_",),
    StoreKind.AZURE: ("azure_storage_", "azure_"),
}

_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


def _index_by_alias(kind: StoreKind, names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    by_alias: dict[str, str] = {}
    for name, aliases in names.items():
        by_alias |= dict.fromkeys(aliases, name)
        bases = aliases if "." in name else (name, *aliases)
        for prefix in _PREFIXES[kind]:
            by_alias |= dict.fromkeys((f"{prefix}{base}" for base in bases), name)
    return by_alias


_ALIASES: Final = {
    kind: _index_by_alias(kind, names)
    for kind, names in ((StoreKind.S3, _S3), (StoreKind.GCS, _GCS), (StoreKind.AZURE, _AZURE))
}


def resolve_aliases(url: str, storage_options: Mapping[str, object]) -> dict[str, object]:
    """Return storage options with the names of the store's file system instead of aliases.

    Case does not matter. The options of a chain of URLs are by protocol, and stay unchanged.

    Raises:
        OptionError: Two names of one option have different values; or `aws_allow_http` is false and
            the endpoint is `http://`; or the endpoint is not the URL of a server.
    """
    kind = store_kind(url)
    aliases = _ALIASES.get(kind) if kind is not None and "::" not in url else None
    if aliases is None:
        return dict(storage_options)
    resolved = {name: value for name, value in storage_options.items() if _key(name) not in aliases}
    nested = resolved.get("client_kwargs")
    for alias, value in storage_options.items():
        name = aliases.get(_key(alias))
        if name is None:
            continue
        outer, _, inner = name.partition(".")
        if inner and isinstance(nested, Mapping | None):
            nested = resolved[outer] = _add(nested or {}, inner, alias, value)
        else:
            resolved = _add(resolved, name, alias, value)
    for options in (resolved, resolved.get("client_kwargs")):
        endpoint = options.get("endpoint_url") if isinstance(options, Mapping) else None
        if isinstance(endpoint, str):
            check_server("the storage option endpoint_url", endpoint)
    return _without_http_flag(resolved) if kind is StoreKind.S3 else resolved


def similar_name(url: str, name: str) -> str | None:
    """Return the store's option name most similar to an unknown name, or None."""
    kind = store_kind(url)
    aliases = {} if kind is None else _ALIASES.get(kind, {})
    return next(iter(get_close_matches(name.lower(), [*aliases, *aliases.values()], 1)), None)


def _key(name: object) -> str:
    return str(name).lower()


def _add(options: Mapping[str, Any], name: str, alias: str, value: object) -> dict[str, Any]:
    if name == "anon":
        value = _FLAGS.get(str(shown_to_library(value)).lower(), value)
    if options.get(name, value) != value:
        message = f"the storage options {name} and {alias} mean the same: give only one of them"
        raise OptionError(message)
    return {**options, name: value}


def _without_http_flag(options: dict[str, object]) -> dict[str, object]:
    """Remove `aws_allow_http`, which s3fs does not need: the endpoint's scheme decides."""
    for name in [name for name in options if _key(name) in {"aws_allow_http", "allow_http"}]:
        is_allowed = _FLAGS.get(str(shown_to_library(options.pop(name))).lower(), True)
        if not is_allowed and str(options.get("endpoint_url", "")).startswith("http://"):
            message = f"the storage option {name} is false, but endpoint_url is http://"
            raise OptionError(message)
    return options
