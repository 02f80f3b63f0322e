"""Opens the catalog of a bucket, with metadata of any kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from arrow_io.errors import OptionError
from arrow_io.option_names import option_name
from arrow_io.storage.hidden import hidden, hidden_url
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector.catalog.catalog import Catalog
from connector.catalog.catalog_options import CatalogOptions
from connector.catalog.snapshot import is_snapshot, load_snapshot
from connector.catalog.snapshot_catalog import SnapshotCatalog
from connector.options.topic_request import check_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.catalog.catalog_options import Metadata


def open_catalog(
    url: str,
    *,
    storage_options: Mapping[str, object] | None = None,
    metadata: Metadata | None = None,
    metadata_options: Mapping[str, object] | None = None,
    buckets: Mapping[str, str] | None = None,
    range_bytes: int | None = None,
    trace: RequestTrace | None = None,
) -> Catalog:
    """Find the topics of a bucket: one listing, and without metadata each index object.

    With metadata, the index objects of a topic are read when it is asked for, and with them those
    of ledgers that the metadata of no topic names, which may be newer than it.

    Metadata says what the bucket cannot: which of several copies counts, which ledgers should be
    there and are not, which are still in BookKeeper only, and the schemas. A snapshot is read
    instead of all that, and the bucket is not listed.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows.
        storage_options: Options of the fsspec file system.
        metadata: The URL of a cluster's admin API (`https://broker:8443`); a folder with one folder
            for each topic, which holds `managed-ledger-info.bin` (the metadata store's value) or
            `internal-info.json` and `internal-stats.json` (the admin API's answers), and
            `schemas-rest.json`; such folders by topic name; or a snapshot that `Catalog.save` made
            (`….json.gz`). None: the bucket alone.
        metadata_options: For the admin API `token`, `token_file`, `ca_file`, `cert_file`,
            `key_file`, `verify_hostname` and `timeout_s`; for folders and snapshots the options of
            their fsspec file system.
        buckets: URL of each further bucket that ledgers of these topics were written to, by the
            name that the metadata has for it. Without it such a bucket is looked for by its name,
            in the same store and with the same options.
        range_bytes: Most bytes that one request for data will ask for; None: 1 MiB at first, and
            up to 3 MiB in a long read.
        trace: Counts the requests.

    Raises:
        OptionError: An option has a value that is not allowed.
        MissingObjectError: There is no such bucket or folder, or no such snapshot.
        StorageError: The bucket, or the snapshot, cannot be read.
        CorruptSnapshotError: The file is not a snapshot.
    """
    url, metadata, buckets = hidden_url(url), hidden_url(metadata), hidden_url(buckets)
    storage_options, metadata_options = hidden(storage_options), hidden(metadata_options)
    check_options(
        {
            "storage_options": storage_options,
            "metadata_options": metadata_options,
            "buckets": buckets,
            "range_bytes": range_bytes,
            "trace": trace,
        }
    )
    options = CatalogOptions(
        location=Location(
            url, storage_options, range_bytes=range_bytes, trace=trace or RequestTrace()
        ),
        metadata=metadata,
        metadata_options=metadata_options,
        buckets=buckets,
    )
    if metadata is None and (metadata_options or buckets):
        given = option_name("metadata_options" if metadata_options else "buckets")
        message = f"{given} cannot be used without {option_name('metadata')}: give that too"
        raise OptionError(message)
    if not isinstance(metadata, str | os.PathLike) or not is_snapshot(metadata):
        return Catalog.listed(options)
    saved = load_snapshot(
        os.fspath(metadata), options.location, buckets=buckets, storage_options=metadata_options
    )
    return SnapshotCatalog(options, saved)
