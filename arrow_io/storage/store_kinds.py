"""Kinds of stores, and checks of URLs that need no request."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from arrow_io.errors import OptionError
from arrow_io.storage.redaction import redacted_urls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class StoreKind(StrEnum):
    """Stores that keep objects in buckets."""

    S3 = "S3"
    GCS = "Google Cloud Storage"
    AZURE = "Azure Blob Storage"
    OSS = "Alibaba Cloud OSS"


OBJECT_STORE_SCHEMES: Final[Mapping[str, StoreKind]] = {
    "s3": StoreKind.S3,
    "s3a": StoreKind.S3,
    "gs": StoreKind.GCS,
    "gcs": StoreKind.GCS,
    "az": StoreKind.AZURE,
    "abfs": StoreKind.AZURE,
    "abfss": StoreKind.AZURE,
    "oss": StoreKind.OSS,
}
"""By the scheme of a URL, in lower case."""

_ARCHIVES: Final = frozenset({"libarchive", "tar", "zip"})
"""Protocols of archives that contain folders."""

_SERVER_SCHEMES: Final = ("http://", "https://", "ftp://", "sftp://", "ssh://", "webhdfs://")
"""Starts of URLs that continue with a host and an optional port."""

_HDFS_SCHEMES: Final = ("hdfs://", "viewfs://", "webhdfs://")

_MAX_LINKS: Final = 16
"""Maximum number of URLs in a chain; fsspec opens them recursively."""

_BUCKET_FIRST_KINDS = (StoreKind.S3, StoreKind.GCS)
"""Stores whose URLs start with the bucket; Azure's may have the container before an `@`."""


def url_scheme(url: str) -> str:
    """Return the scheme of a URL in lower case; empty for a path."""
    return url.partition("://")[0].lower() if "://" in url else ""


def store_kind(url: str) -> StoreKind | None:
    """Return the object store of a URL; None for a file system.

    In a chain of URLs, the first one with a scheme counts.

    Example:
        >>> store_kind("zip::S3A://bucket/prefix")
        <StoreKind.S3: 'S3'>
    """
    scheme = url.partition("://")[0].rpartition("::")[2]
    return OBJECT_STORE_SCHEMES.get(scheme.lower())


def prefix_in_store(url: str) -> str:
    """Return the part after the bucket in the URL of an object store, without slashes around it.

    Example:
        >>> prefix_in_store("s3://bucket/some/prefix/")
        'some/prefix'
    """
    return url.partition("://")[2].partition("/")[2].strip("/")


def check_url(url: str, shown: str) -> None:
    """Raise if a library would misread a URL or chain; `shown` is the URL without secrets.

    Raises:
        OptionError: The URL names no bucket, host or archive, contains credentials, has a `?` on
            S3 or HDFS, or goes through a cache or references.
    """
    links = url.split("::")
    if len(links) > _MAX_LINKS:
        message = f"a chain of {len(links)} URLs: at most {_MAX_LINKS} are allowed"
        raise OptionError(message)
    for link in links:
        kind = store_kind(link)
        rest = link.partition("://")[2]
        bucket = rest.partition("/")[0]
        if kind in _BUCKET_FIRST_KINDS and not bucket:
            message = f"{shown} names no bucket"
            raise OptionError(message)
        if kind in _BUCKET_FIRST_KINDS and _has_user_part(bucket):
            message = f"credentials in the URL {shown}: pass them as storage options (key, secret)"
            raise OptionError(message)
        if "?" in rest and (kind is StoreKind.S3 or link.lower().startswith(_HDFS_SCHEMES)):
            message = f"{shown} has a '?', where fsspec would cut the URL: use a URL without one"
            raise OptionError(message)
    _check_links(links, shown)


def check_server(label: str, url: str) -> None:
    """Raise unless a URL is that of a server; `label` names the URL in the error.

    Raises:
        OptionError: It is neither `http://` nor `https://`, or names no host or an impossible port.
    """
    if not _has_server(url) or not url.lower().startswith(("http://", "https://")):
        message = (
            f"{label} must be the URL of a server, http://host or https://host:port, not"
            f" {redacted_urls(url)!r}"
        )
        raise OptionError(message)


def _has_server(url: str) -> bool:
    try:
        split = urlsplit(url)
        return bool(split.hostname) and split.port != 0
    except ValueError:
        return False


def _check_links(links: Sequence[str], shown: str) -> None:
    """Raise for caches, for references, and for a path without its archive."""
    protocols = [link.partition("://")[0].lower() for link in links]
    if any(map(_is_cache, protocols)):
        message = (
            f"{shown} goes through a cache, which returns old bytes of replaced objects: use"
            " the URL of the store itself"
        )
        raise OptionError(message)
    if "reference" in protocols:
        message = (
            f"{shown} is a list of references to objects in another place: use the URL of"
            " their folder"
        )
        raise OptionError(message)
    for link in links:
        if link.lower().startswith(_SERVER_SCHEMES) and not _has_server(link):
            message = f"{shown} names no host, or an impossible port"
            raise OptionError(message)
    protocol, is_url, _ = links[-1].partition("://")
    if is_url and protocol.lower() in _ARCHIVES:
        message = f"{shown} names no archive: {protocol}://folder::path reads a folder in one"
        raise OptionError(message)


def _is_cache(protocol: str) -> bool:
    """Return whether a protocol of fsspec caches objects: `simplecache`, `filecache`, …."""
    # Import it late: fsspec takes long to import.
    from fsspec.registry import known_implementations  # noqa: PLC0415

    entry = known_implementations.get(protocol)
    return entry is not None and entry["class"].startswith("fsspec.implementations.cached.")


def _has_user_part(bucket: str) -> bool:
    return "@" in bucket or (":" in bucket and not bucket.startswith("arn:"))
