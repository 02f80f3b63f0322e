"""Opening of the catalog for a command's options, with notes for its user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestTrace
from connector.catalog.bucket_summary import describe_contents
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


def note_empty_location(catalog: Catalog) -> None:
    """Print what a location without ledgers contains, since it may be the wrong one."""
    if not catalog.bucket.copy_count:
        say("note", describe_contents(catalog.bucket))


def note_snapshot(metadata: Metadata | None, created: datetime | None = None) -> None:
    """Print that a catalog snapshot lacks newer ledgers, if the metadata is one.

    `created` is when the snapshot was made; None if that is not known yet.
    """
    if metadata is not None and is_snapshot(metadata):
        when = "" if created is None else f" of {created:%F %T} UTC"
        say("note", f"the metadata is a catalog snapshot{when}, which lacks newer ledgers")


def check_no_snapshot(metadata: Metadata | None) -> None:
    """Raise if the metadata is a catalog snapshot: the command needs the bucket's current objects.

    Raises:
        OptionError: It is one.
    """
    if metadata is not None and is_snapshot(metadata):
        message = (
            "--metadata is a catalog snapshot, which does not list the bucket's current objects:"
            " give the metadata itself"
        )
        raise OptionError(message)


def note_incomplete_read(metrics: TopicMetrics, scan: Scan) -> None:
    """Warn if a read left something out."""
    warn_incomplete(metrics, ", ".join(str(each.topic) for each in scan.topics))


def catalog_at(url: str, request: TopicRequest, trace: RequestTrace | None = None) -> Catalog:
    """Open the catalog of a request, and show progress.

    Raises:
        PulsarOffloadError: See `open_catalog`.
    """
    counting_trace = trace or RequestTrace()
    with progress(counting_trace):
        catalog = open_catalog(url, **(request.catalog_options() | {"trace": counting_trace}))
    note_snapshot(request.metadata, catalog.listed_at)
    return catalog
