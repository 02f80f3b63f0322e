"""From a URL and options to the store that answers requests."""

from __future__ import annotations

from collections.abc import Mapping

from fsspec.asyn import AsyncFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from arrow_io.storage.hidden import shown_to_library
from arrow_io.storage.object_store import (
    ClosingObjectStore,
    LocalObjectStore,
    MemoryObjectStore,
    ObjectStore,
    protocols,
)
from arrow_io.storage.s3_object_store import S3ObjectStore
from arrow_io.storage.store_kinds import StoreKind, store_kind


def open_store(
    url: str, storage_options: Mapping[str, object], max_connections: int
) -> ObjectStore:
    """Connect to the store of a URL.

    fsspec keeps one file system for each set of options and process, and drops them all in a forked
    child, so this is cheap and must be called again after a fork.

    Args:
        url: Any fsspec URL of a folder, bucket or prefix.
        storage_options: Options of the file system.
        max_connections: Most requests at a time.

    Raises:
        Exception: What fsspec or the file system's library raises.
    """
    # fsspec keeps file systems by the text of their options, which hidden ones would share.
    options = _with_pool(url, shown_to_library(storage_options), max_connections)
    file_system, root = url_to_fs(str(url), **options)
    if isinstance(file_system, AsyncFileSystem) and hasattr(file_system, "_call_s3"):
        return S3ObjectStore(file_system, root)
    if isinstance(file_system, MemoryFileSystem):
        return MemoryObjectStore(file_system, root)
    if isinstance(file_system, LocalFileSystem):
        return LocalObjectStore(file_system, root)
    if ClosingObjectStore.PROTOCOLS.intersection(protocols(file_system)):
        return ClosingObjectStore(file_system, root)
    return ObjectStore(file_system, root)


def _with_pool(
    url: str, options: Mapping[str, object], max_connections: int
) -> Mapping[str, object]:
    """The options with botocore's pool of connections, which has ten unless it is told."""
    config = options.get("config_kwargs") or {}
    if "::" in url or store_kind(url) is not StoreKind.S3 or not isinstance(config, Mapping):
        return options
    return {**options, "config_kwargs": {"max_pool_connections": max_connections, **config}}
