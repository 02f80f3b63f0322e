"""Which place a URL leads to, so that credentials go only to places that they were given for.

A SQL statement may name other places than the one that credentials were registered with. Two URLs
lead to the same place, as far as credentials go, if all this is equal:

| URL | what is compared |
|---|---|
| `http`, `https`, `sftp`, and any other with a host | scheme, host and port |
| `s3`, `gs`, `oss`, `az`, `abfs` | the kind of store, whose host the options name, not the URL |
| … with an account, `abfs://container@account…` | the account too |
| a local path, `file`, `memory` | nothing: no request leaves the machine |

Of a chain, such as `zip::https://host`, every link counts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from arrow_io.storage.store_kinds import StoreKind, store_kind

Origin: TypeAlias = tuple[str, str, int | None]
"""Scheme or kind of store, host or account, port."""

HOSTLESS: Final[frozenset[Origin]] = frozenset((str(kind), "", None) for kind in StoreKind)
"""Stores whose host the options name: a URL that leads there brings no host of its own."""

_URL: Final = re.compile(r"[A-Za-z][\w+.-]*(?:://|::)")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "sftp": 22, "ssh": 22, "ftp": 21}
_LOCAL_SCHEMES: Final = frozenset({"", "file", "local", "memory"})


def origins(place: object) -> frozenset[Origin]:
    """The places to which requests go for what a user names.

    Args:
        place: A URL or path; a list of these, or the values of a mapping; JSON text of a list. What
            is not a URL is not a place.

    Example:
        >>> sorted(origins(["https://HOST/a", "https://host:443/b", "s3://bucket", "folder"]))
        [('S3', '', None), ('https', 'host', 443)]
    """
    if isinstance(place, os.PathLike):
        place = os.fspath(place)
    if isinstance(place, str):
        text = place.strip()
        return _list_origins(text) if text.startswith("[") else _url_origins(text)
    if isinstance(place, Mapping):
        place = place.values()
    if isinstance(place, Iterable) and not isinstance(place, bytes):
        return frozenset().union(*map(origins, place))
    return frozenset()


def _list_origins(text: str) -> frozenset[Origin]:
    try:
        return origins(json.loads(text))
    except (ValueError, RecursionError):
        return frozenset()


def _url_origins(url: str) -> frozenset[Origin]:
    if not _URL.match(url):
        return frozenset()
    links = [_origin(link) for link in url.split("::")]
    return frozenset(link for link in links if link is not None)


def _origin(link: str) -> Origin | None:
    scheme, is_url, rest = link.partition("://")
    scheme = scheme.lower()
    if not is_url or scheme in _LOCAL_SCHEMES:
        return None
    kind = store_kind(link)
    authority = rest.partition("/")[0]
    if kind is not None:
        is_named = kind is StoreKind.AZURE and "@" in authority
        return str(kind), authority.rpartition("@")[2].lower() if is_named else "", None
    try:
        split = urlsplit(link)
        port = split.port or _DEFAULT_PORTS.get(scheme)
    except ValueError:
        return scheme, authority, None
    return scheme, (split.hostname or "").lower(), port
