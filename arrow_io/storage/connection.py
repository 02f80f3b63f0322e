"""The store for a URL and storage options."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from fsspec.asyn import AsyncFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from arrow_io.core.extras import install_command
from arrow_io.errors import OptionError
from arrow_io.storage.cloud_object_stores import AzureObjectStore, GcsObjectStore
from arrow_io.storage.hdfs_object_store import HdfsObjectStore
from arrow_io.storage.hidden import shown_to_library
from arrow_io.storage.object_store import (
    LocalObjectStore,
    MemoryObjectStore,
    ObjectStore,
    protocols,
)
from arrow_io.storage.obstore_options import obstore_place, read_certificates
from arrow_io.storage.obstore_reader import ObstoreReader
from arrow_io.storage.own_options import Client, chosen_client, library_options
from arrow_io.storage.redaction import redacted
from arrow_io.storage.s3_object_store import S3ObjectStore
from arrow_io.storage.server_object_stores import BlockingObjectStore, HttpObjectStore
from arrow_io.storage.store_kinds import StoreKind, store_kind
from arrow_io.storage.turns import shared_turns
from arrow_io.storage.webhdfs_object_store import WebHdfsObjectStore

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

    from arrow_io.storage.attempts import RetryPolicy


_WEBHDFS_PORT: Final = 9870
"""Port of Hadoop 3's NameNode; fsspec's default is that of Hadoop 2."""
_HDFS_ATTEMPTS: Final = "dfs.client.failover.max.attempts"
"""Option of hdfs-native, which tries a NameNode that is down for minutes by default."""
_HDFS_SCHEMES: Final = ("hdfs://", "viewfs://")


def open_store(
    url: str, storage_options: Mapping[str, object], max_connections: int, retry: RetryPolicy
) -> ObjectStore:
    """Connect to the store of a URL.

    fsspec caches one file system for each set of options and process, and drops them all in a
    forked child. So this is cheap, and must be called again after a fork.

    Args:
        url: Any fsspec URL of a folder, bucket or prefix.
        storage_options: Options of the file system and of this project.
        max_connections: Maximum number of concurrent requests.
        retry: How often a request is sent, and how long it may take.

    Raises:
        OptionError: The client is unknown, or does not support this store or these options.
        Exception: Whatever fsspec or the file system's library raises.
    """
    fsspec_options = library_options(storage_options)
    client = chosen_client(storage_options)
    if client is Client.OBSTORE:
        return _open_obstore(url, fsspec_options, max_connections, retry)
    store, file_system = _open_fsspec(url, fsspec_options, max_connections)
    is_bucket = "::" not in url and isinstance(store, _BUCKETS)
    if client is Client.AUTO and is_bucket and find_spec("obstore") is not None:
        store.read_through(ObstoreReader(url, store, file_system, max_connections, retry))
    return store


_BUCKETS: Final = (S3ObjectStore, GcsObjectStore, AzureObjectStore)
"""The stores whose GETs obstore can send."""


def _open_fsspec(
    url: str, fsspec_options: Mapping[str, object], max_connections: int
) -> tuple[ObjectStore, AbstractFileSystem]:
    # fsspec caches file systems by the repr of their options; all hidden values have the same repr.
    options = _add_pool_size(url, shown_to_library(fsspec_options), max_connections)
    options = _add_hdfs_options(url, options)
    if url.startswith(_HDFS_SCHEMES) and find_spec("hdfs_native") is None:
        # fsspec would look for libhdfs and Java.
        message = "no module named 'hdfs_native'"
        raise ImportError(message)
    file_system, root = url_to_fs(str(url), **options)
    store = _store(file_system, root)
    if isinstance(store, WebHdfsObjectStore):
        store.keep_connections(max_connections)
    return store, file_system


def _store(file_system: AbstractFileSystem, root: str) -> ObjectStore:
    if isinstance(file_system, AsyncFileSystem) and hasattr(file_system, "_call_s3"):
        return S3ObjectStore(file_system, root)
    if isinstance(file_system, MemoryFileSystem):
        return MemoryObjectStore(file_system, root)
    if isinstance(file_system, LocalFileSystem):
        return LocalObjectStore(file_system, root)
    for store in (
        GcsObjectStore,
        AzureObjectStore,
        HttpObjectStore,
        HdfsObjectStore,
        WebHdfsObjectStore,
    ):
        if store.PROTOCOLS.intersection(protocols(file_system)):
            return store(file_system, root)
    if (turns := shared_turns(file_system)) is not None:
        return BlockingObjectStore(file_system, root, turns)
    return ObjectStore(file_system, root)


def _add_hdfs_options(url: str, options: Mapping[str, object]) -> Mapping[str, object]:
    """Return the options with better defaults than those of fsspec and hdfs-native."""
    if url.startswith(_HDFS_SCHEMES):
        return {_HDFS_ATTEMPTS: "3", **options}
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    if scheme == "webhdfs" and ":" not in host:
        return {"port": _WEBHDFS_PORT, **options}
    return options


def _open_obstore(
    url: str, options: Mapping[str, object], max_connections: int, retry: RetryPolicy
) -> ObjectStore:
    from arrow_io.storage.obstore_object_store import ObstoreObjectStore  # noqa: PLC0415 - an extra

    place = obstore_place(url, options)
    connect_witness = None
    if place.kind in _WITNESSES:
        package, extra = _WITNESSES[place.kind]
        if find_spec(package) is None:
            message = (
                f"client 'obstore' needs {package} for listings, because obstore treats a broken"
                f" page as an empty one: {install_command(extra)}"
            )
            raise OptionError(message)
        connect_witness = partial(_connect_witness, url, options, max_connections, package)
    return ObstoreObjectStore(place, max_connections, retry, connect_witness)


_WITNESSES: Final[Mapping[StoreKind, tuple[str, str]]] = {
    StoreKind.S3: ("s3fs", "s3"),
    StoreKind.GCS: ("gcsfs", "gcs"),
}
"""The package of the *witness* (`obstore_object_store`), and the extra that installs it."""


def _connect_witness(
    url: str, options: Mapping[str, object], max_connections: int, package: str
) -> ObjectStore:
    """Connect to a bucket through another library, only for listings."""
    try:
        store, _ = _open_fsspec(url, options, max_connections)
        if isinstance(store, S3ObjectStore):
            store.connect()
    except (ImportError, TypeError, ValueError, KeyError) as error:
        message = f"{package}, which client 'obstore' lists with, rejects the options: {error}"
        raise OptionError(redacted(message, options)) from None
    return store


def _add_pool_size(
    url: str, options: Mapping[str, object], max_connections: int
) -> Mapping[str, object]:
    """Return the options with the size of botocore's connection pool, which is 10 by default.

    If the file of certificates cannot be read, raise an error that names it, unlike botocore's.
    """
    config, client = (options.get(name) or {} for name in ("config_kwargs", "client_kwargs"))
    if "::" in url or store_kind(url) is not StoreKind.S3 or not isinstance(config, Mapping):
        return options
    if isinstance(client, Mapping) and isinstance(verify := client.get("verify"), str):
        read_certificates(verify)
    return {**options, "config_kwargs": {"max_pool_connections": max_connections, **config}}
