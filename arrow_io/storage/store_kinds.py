"""What a URL alone says of the store that it leads to."""

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
"""By scheme of a URL, in lower case."""

_ARCHIVES: Final = frozenset({"libarchive", "tar", "zip"})
"""Protocols of archives, whose files have paths in them."""

_WITH_SERVER: Final = ("http://", "https://", "ftp://", "sftp://", "ssh://")
"""Where a host and perhaps a port stand behind."""

_MAX_LINKS: Final = 16
"""Most URLs in a chain; fsspec opens each in a call within a call."""

_WITHOUT_USER_PART = (StoreKind.S3, StoreKind.GCS)
"""Stores whose URLs begin with the bucket; Azure's may have the container before an `@`."""


def store_kind(url: str) -> StoreKind | None:
    """The object store that a URL leads to; None for a file system.

    Of a chain of URLs, the first that has a scheme counts.

    Example:
        >>> store_kind("zip::S3A://bucket/prefix")
        <StoreKind.S3: 'S3'>
    """
    scheme = url.partition("://")[0].rpartition("::")[2]
    return OBJECT_STORE_SCHEMES.get(scheme.lower())


def prefix_in_store(url: str) -> str:
    """What stands behind the bucket in the URL of an object store, without slashes around it.

    Example:
        >>> prefix_in_store("s3://bucket/some/prefix/")
        'some/prefix'
    """
    return url.partition("://")[2].partition("/")[2].strip("/")


def check_url(url: str, shown: str) -> None:
    """Refuse the URL of a bucket that a library would take for that of another place.

    Args:
        url: The URL, perhaps a chain.
        shown: What is shown of it.

    Raises:
        OptionError: It names no bucket; or it holds credentials, which belong in the options; or it
            is of S3 and has a `?`, from which on s3fs would cut it off; or it leads through a
            cache, whose copies stay when objects are replaced, or through references; or it
            names no archive for a path in one.
    """
    links = url.split("::")
    if len(links) > _MAX_LINKS:
        message = f"a chain of {len(links)} URLs: {_MAX_LINKS} are allowed"
        raise OptionError(message)
    for link in links:
        kind = store_kind(link)
        rest = link.partition("://")[2]
        bucket = rest.partition("/")[0]
        if kind in _WITHOUT_USER_PART and not bucket:
            message = f"{shown} names no bucket"
            raise OptionError(message)
        if kind in _WITHOUT_USER_PART and _has_user_part(bucket):
            message = f"credentials in the URL {shown}: give them as storage options (key, secret)"
            raise OptionError(message)
        if kind is StoreKind.S3 and "?" in rest:
            message = f"{shown} has a '?', at which s3fs cuts a URL off: give it without one"
            raise OptionError(message)
    _check_links(links, shown)


def check_server(label: str, url: str) -> None:
    """Refuse the URL of a store's server that no client could send a request to.

    Args:
        label: What an error calls it.
        url: The URL.

    Raises:
        OptionError: It is neither `http://` nor `https://`, or names no host or no possible port.
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
    """Refuse what keeps copies, what lies elsewhere, and a path without its archive."""
    protocols = [link.partition("://")[0].lower() for link in links]
    if any(map(_is_cache, protocols)):
        message = (
            f"{shown} leads through a cache, which gives old bytes of objects that were"
            " replaced: give the URL of the store itself"
        )
        raise OptionError(message)
    if "reference" in protocols:
        message = (
            f"{shown} is a list of references to objects that lie elsewhere: give the URL of"
            " their folder"
        )
        raise OptionError(message)
    for link in links:
        if link.lower().startswith(_WITH_SERVER) and not _has_server(link):
            message = f"{shown} names no host, or a port that cannot be"
            raise OptionError(message)
    protocol, is_url, _ = links[-1].partition("://")
    if is_url and protocol.lower() in _ARCHIVES:
        message = f"{shown} names no archive: {protocol}://folder::path reads a folder in one"
        raise OptionError(message)


def _is_cache(protocol: str) -> bool:
    """Whether a protocol of fsspec keeps copies of objects: `simplecache`, `filecache`, …."""
    # fsspec takes long to import, and a URL is checked when it is opened.
    from fsspec.registry import known_implementations  # noqa: PLC0415

    entry = known_implementations.get(protocol)
    return entry is not None and entry["class"].startswith("fsspec.implementations.cached.")


def _has_user_part(bucket: str) -> bool:
    return "@" in bucket or (":" in bucket and not bucket.startswith("arn:"))
