"""`open_catalog`: the catalog of a bucket, with metadata from any source."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from arrow_io.core import telemetry
from arrow_io.core.option_names import option_name
from arrow_io.errors import OptionError
from arrow_io.storage.location import Location
from arrow_io.storage.trace import RequestTrace
from connector.catalog.catalog import Catalog
from connector.catalog.catalog_options import CatalogOptions
from connector.catalog.snapshot.snapshot import is_snapshot, load_snapshot
from connector.catalog.snapshot_catalog import SnapshotCatalog
from connector.options.option import selected_options, takes_options
from connector.options.topic_request import OPTIONS, TopicRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.catalog.catalog_options import Metadata


@takes_options(OPTIONS)
def open_catalog(  # noqa: D417 - the decorator describes the options
    url: str,
    *,
    storage_options: Mapping[str, object] | None = None,
    metadata: Metadata | None = None,
    metadata_options: Mapping[str, object] | None = None,
    buckets: Mapping[str, str] | None = None,
    range_bytes: int | None = None,
    index_cache: bool = True,
    trace: RequestTrace | None = None,
) -> Catalog:
    """Find the topics of a bucket: one listing, and without metadata each index object.

    With metadata, index objects are read topic by topic, on first use. Index objects that the
    metadata of no topic names, and which may be newer, are read with the first topic. Those that
    the index cache has are not read again.

    Metadata has information that the bucket lacks: which of several copies counts, which ledgers
    are missing, which are still in BookKeeper only, and the schemas. A catalog snapshot replaces
    the listing and the metadata: the bucket is not listed.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows.

    Raises:
        OptionError: An option has a value that is not allowed.
        MissingObjectError: There is no such bucket or folder, or no such snapshot.
        StorageError: The bucket or the snapshot cannot be read.
        CorruptSnapshotError: The file is not a catalog snapshot.
    """
    # The constructor raises for values that are not allowed.
    TopicRequest(**selected_options(OPTIONS, locals()))
    options = CatalogOptions(
        location=Location(
            url,
            storage_options,
            range_bytes=range_bytes,
            trace=trace or RequestTrace(),
            caches_indexes=index_cache,
        ),
        metadata=metadata,
        metadata_options=metadata_options,
        buckets=buckets,
    )
    if metadata is None and (metadata_options or buckets):
        option = option_name("metadata_options" if metadata_options else "buckets")
        message = f"{option} cannot be used without {option_name('metadata')}: give that too"
        raise OptionError(message)
    with telemetry.operation("open", url=str(options.location)):
        if not isinstance(metadata, str | os.PathLike) or not is_snapshot(metadata):
            return Catalog.from_options(options)
        file = load_snapshot(
            os.fspath(metadata), options.location, buckets=buckets, storage_options=metadata_options
        )
        return SnapshotCatalog(options, file)
