"""`open_topic`: a URL, a topic and options → a dataset. The one place where options are checked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.columns import every_column, projection
from arrow_io.errors import OptionError
from arrow_io.messages.message_reader import BatchLimits
from arrow_io.read_report import ReadReport
from arrow_io.storage.ranges import DEFAULT_RANGE_BYTES
from connector.bounds import Bounds
from connector.catalog.catalog import Catalog, open_catalog
from connector.dataset import TopicDataset
from connector.scan import ReadOptions, Scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from arrow_io.storage.trace import RequestTrace
    from connector.bounds import Bound

VALUES = ("flat", "struct", "raw")
TRANSACTIONS = ("committed", "all")
ON_CORRUPTION = ("raise", "salvage")


def open_topic(
    url: str,
    topic: str | Sequence[str],
    *,
    storage_options: Mapping[str, object] | None = None,
    catalog: Catalog | None = None,
    start: Bound | None = None,
    end: Bound | None = None,
    columns: Sequence[str] | None = None,
    value: str = "flat",
    naming: str = "pulsar-sql",
    transactions: str = "committed",
    on_corruption: str = "raise",
    verify_checksums: bool = True,
    range_bytes: int = DEFAULT_RANGE_BYTES,
    batch_rows: int = BatchLimits().max_rows,
    batch_bytes: int = BatchLimits().max_bytes,
    trace: RequestTrace | None = None,
) -> TopicDataset:
    """Open topics that were offloaded to a bucket.

    Sends one listing and one request for each index object in the bucket, unless a catalog is
    given.

    Args:
        url: Bucket, prefix or folder: a local path, `memory://`, `s3://bucket/prefix` or any other
            URL that fsspec knows.
        topic: A short name (`orders`), a full one (`persistent://tenant/ns/orders`), a glob
            (`sales-*`), or a list of these. A partitioned topic is one dataset.
        storage_options: Options of the fsspec file system.
        catalog: What `open_catalog` gave for this URL, to spare the requests.
        start: First message, inclusive: a datetime (publish time), or `(ledger, entry[, batch])`.
        end: Behind the last message, exclusive; likewise.
        columns: Names of columns, on-request ones included (`arrow_io.columns.ALL_COLUMNS`); None
            for the default ones.
        value: Shape of decoded values: `flat`, `struct` or `raw`. Where the schema is not known,
            each of them gives the undecoded bytes as `__value__`.
        naming: `pulsar-sql`, or `pulsar-spark` for the column names of that connector.
        transactions: `committed`: as a client sees them; `all`: also messages of aborted and open
            transactions.
        on_corruption: `raise`: damage is an error; `salvage`: it is counted (`TopicDataset.report`)
            and what is sound around it is given.
        verify_checksums: Whether to compare the CRC32C of each entry; a scan that reads positions
            only (a count of rows) never does.
        range_bytes: Most bytes that one request for data asks for.
        batch_rows: Most rows of a record batch.
        batch_bytes: Bytes of entries and payloads after which a record batch is given.
        trace: Counts the requests.

    Raises:
        OptionError: An option has a value that is not allowed.
        TopicNotFoundError: No ledger in the bucket belongs to the topic; names near it are listed.
        StorageError: The bucket cannot be read.
        PulsarOffloadError: A ledger of the topic is unsound.
    """
    _check("value", value, VALUES)
    _check("transactions", transactions, TRANSACTIONS)
    _check("on_corruption", on_corruption, ON_CORRUPTION)
    for option, number in (
        ("range_bytes", range_bytes),
        ("batch_rows", batch_rows),
        ("batch_bytes", batch_bytes),
    ):
        if number < 1:
            message = f"{option} must be at least 1, not {number}"
            raise OptionError(message)
    limits = BatchLimits()
    options = ReadOptions(
        projection=projection(columns, naming=naming),
        filterable=every_column(naming),
        bounds=Bounds.parse(start, end),
        uncommitted=transactions == "all",
        verify_checksums=verify_checksums,
        salvage=on_corruption == "salvage",
        limits=replace(
            limits,
            first_rows=min(limits.first_rows, batch_rows),
            max_rows=batch_rows,
            max_bytes=batch_bytes,
        ),
    )
    known = catalog or open_catalog(
        url, storage_options=storage_options, range_bytes=range_bytes, trace=trace
    )
    unsound = ReadReport(salvage=options.salvage)
    topics = known.select(topic, unsound)
    return TopicDataset(Scan(tuple(topics), options), unsound)


def _check(option: str, given: str, allowed: Sequence[str]) -> None:
    if given not in allowed:
        message = f"{option} must be one of {', '.join(allowed)}, not {given!r}"
        raise OptionError(message)
