"""Opens what a command's options name: a bucket, and what the topics' cluster knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector.catalog.bucket_summary import check_no_map_files, describe_contents
from connector.catalog.opening import open_catalog
from connector.catalog.snapshot.snapshot import is_snapshot
from connector.cli.output import progress, say
from connector.scan.execution import warn_incomplete

if TYPE_CHECKING:
    from datetime import datetime

    from connector.catalog.catalog import Catalog
    from connector.catalog.catalog_options import Metadata
    from connector.display.topic_metrics import TopicMetrics
    from connector.options.topic_request import TopicRequest
    from connector.scan.topic_scan import Scan


def tell_place(catalog: Catalog) -> None:
    """Say what lies at a place that has no ledgers, for it may be the wrong place.

    Raises:
        UnsupportedFormatError: They are MapFiles.
    """
    if not catalog.bucket.copy_count:
        check_no_map_files(catalog.bucket)
        say("note", describe_contents(catalog.bucket))


def tell_snapshot(metadata: Metadata | None, created: datetime | None = None) -> None:
    """Say that a snapshot does not have what came later.

    Args:
        metadata: What the command was given as metadata.
        created: When the snapshot was made, if that is known by now.
    """
    if metadata is not None and is_snapshot(metadata):
        when = "" if created is None else f" of {created:%F %T} UTC"
        say("note", f"the metadata is a snapshot{when}: ledgers that came since are not in it")


def check_no_snapshot(metadata: Metadata | None) -> None:
    """Refuse a snapshot where something is written or deleted by what is in the bucket now.

    Raises:
        OptionError: The metadata is a snapshot.
    """
    if metadata is not None and is_snapshot(metadata):
        message = "a snapshot does not say what is in the bucket now: give the metadata itself"
        raise OptionError(message)


def tell_read(metrics: TopicMetrics, scan: Scan) -> None:
    """Say what a read had to leave out, if it did."""
    warn_incomplete(metrics, ", ".join(str(each.topic) for each in scan.topics))


def catalog_at(url: str, request: TopicRequest, trace: RequestTrace | None = None) -> Catalog:
    """Open the catalog that a request names, with progress shown.

    Args:
        url: Where the topics are.
        request: How they are read.
        trace: Counts the requests.

    Raises:
        PulsarOffloadError: See `open_catalog`.
    """
    counted = trace or RequestTrace()
    with progress(counted):
        catalog = open_catalog(url, **(request.catalog_options() | {"trace": counted}))
    tell_snapshot(request.metadata, catalog.listed_at)
    return catalog
