"""Hosts that URLs lead to, so that credentials are sent only to the hosts that they belong to.

A SQL statement may name other locations than those that the credentials were registered with. Two
URLs share credentials if they have the same origin:

| URL | origin |
|---|---|
| `http`, `https`, `sftp`, and any other with a host | scheme, host and port |
| `s3`, `gs`, `oss`, `az`, `abfs` | the kind of store, because options, not the URL, name its host |
| … with an account, `abfs://container@account…` | the kind of store and the account |
| a local path, `file`, `memory` | none: no request leaves the machine |

In a chained URL such as `zip::https://host`, every link counts. A registry, `confluent:https://host`,
has the origin of its URL.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from arrow_io.storage.store_kinds import StoreKind, store_kind
from connector.inputs.cluster_access import REGISTRY_PREFIX

Origin: TypeAlias = tuple[str, str, int | None]
"""Scheme or kind of store, host or account, port."""

HOSTLESS: Final[frozenset[Origin]] = frozenset((str(kind), "", None) for kind in StoreKind)
"""Origins without a host: options name the host, so the URL cannot redirect credentials."""

_URL: Final = re.compile(r"[A-Za-z][\w+.-]*(?:://|::)")
_LINK_END: Final = re.compile(r"::(?![^\[]*\])")
"""The end of a link in a chained URL, which is not within the brackets of an IPv6 address."""
_DEFAULT_PORTS: Final = {
    "http": 80,
    "https": 443,
    "sftp": 22,
    "ssh": 22,
    "ftp": 21,
    "webhdfs": 9870,
}
_LOCAL_SCHEMES: Final = frozenset({"", "file", "local", "memory"})


def origins(location: object) -> frozenset[Origin]:
    """Return the origins that requests for some locations go to.

    Args:
        location: A URL or path; a list of these, or a mapping with these as values; or the JSON
            text of a list. Anything that is not a URL has no origin.

    Example:
        >>> sorted(origins(["https://HOST/a", "https://host:443/b", "s3://bucket", "folder"]))
        [('S3', '', None), ('https', 'host', 443)]
    """
    if isinstance(location, os.PathLike):
        location = os.fspath(location)
    if isinstance(location, str):
        text = location.strip()
        if text.lower().startswith(REGISTRY_PREFIX):
            text = text[len(REGISTRY_PREFIX) :]
        return _list_origins(text) if text.startswith("[") else _url_origins(text)
    if isinstance(location, Mapping):
        location = location.values()
    if isinstance(location, Iterable) and not isinstance(location, bytes):
        return frozenset().union(*map(origins, location))
    return frozenset()


def _list_origins(text: str) -> frozenset[Origin]:
    try:
        return origins(json.loads(text))
    except (ValueError, RecursionError):
        return frozenset()


def _url_origins(url: str) -> frozenset[Origin]:
    if not _URL.match(url):
        return frozenset()
    links = [_origin(link) for link in _LINK_END.split(url)]
    return frozenset(link for link in links if link is not None)


def _origin(link: str) -> Origin | None:
    scheme, is_url, rest = link.partition("://")
    scheme = scheme.lower()
    if not is_url or scheme in _LOCAL_SCHEMES:
        return None
    kind = store_kind(link)
    authority = rest.partition("/")[0]
    if kind is not None:
        has_account = kind is StoreKind.AZURE and "@" in authority
        return str(kind), authority.rpartition("@")[2].lower() if has_account else "", None
    try:
        split = urlsplit(link)
        port = split.port or _DEFAULT_PORTS.get(scheme)
    except ValueError:
        return scheme, authority, None
    return scheme, (split.hostname or "").lower(), port
