"""The cost of a read before it runs: requests, bytes, and money according to a price table.

The inputs are scans, whose plans know the data blocks to read, and the contents of a bucket. The
outputs are `RequestCounts`, which a `RequestTrace` of the real read would count as well, and their
price. Nothing here sends a request.

Data blocks are counted whole. A read takes less if its bounds fall into a block, if it stops early
(LIMIT), if a byte range is only padding, or if this process has cached entry positions. A read
takes more in two cases that no index shows:

- A chunked message or a transaction is open at its end: it continues until that is closed.
- A request fails and is sent again.

Projections make no difference, because an entry contains whole messages.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

from arrow_io.errors import OptionError
from arrow_io.storage.trace import RequestCounts
from connector.scan.planned_ranges import planned_ranges
from connector.scan.topic_scan import DEFAULT_TASK_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from connector.catalog.bucket import BucketContents, Opening
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.inputs.topic_names import TopicName
    from connector.scan.planned_ranges import PlannedRange
    from connector.scan.topic_scan import Scan

LIST_PAGE_KEYS = 1000
"""Maximum number of keys in one response of S3's ListObjectsV2."""
_GB_BYTES = 1 << 30
"""What object stores bill as one GB."""
_MAX_PRICES_BYTES = 1 << 16
_MAX_PRICE = 1_000_000_000
"""Maximum price (inclusive), whatever the currency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """A price and its parts, in the currency of the table."""

    list_requests: Decimal = Decimal(0)
    get_requests: Decimal = Decimal(0)
    """GET and HEAD."""
    put_requests: Decimal = Decimal(0)
    """PUT, and the requests that start and complete a multipart upload."""
    egress: Decimal = Decimal(0)

    @property
    def total(self) -> Decimal:
        """Sum of the parts."""
        return self.list_requests + self.get_requests + self.put_requests + self.egress


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """The prices of a store.

    The defaults are an EXAMPLE: the list prices of S3 Standard in us-east-1, first tier, without
    tax, free quota or discount. Take your own from the bill (`load_prices`).

    Raises:
        OptionError: A price is not a Decimal in 0 … 10^9.
    """

    currency: str = "USD"
    as_of: date = date(2025, 11, 1)
    """Date of the prices."""
    list_per_1000: Decimal = Decimal("0.005")
    """1,000 listings, each of up to 1,000 keys."""
    get_per_1000: Decimal = Decimal("0.0004")
    """1,000 GET or HEAD requests."""
    put_per_1000: Decimal = Decimal("0.005")
    """1,000 requests that write an object or a part of one."""
    egress_per_gb: Decimal = Decimal("0.09")
    """2^30 bytes sent to the internet. Within the bucket's region it is 0."""
    stored_per_gb_month: Decimal = Decimal("0.023")
    """2^30 bytes stored for a month."""

    def __post_init__(self) -> None:
        names = (field.name for field in fields(self))
        for name in (each for each in names if each not in {"currency", "as_of"}):
            price: object = getattr(self, name)
            if isinstance(price, Decimal) and price.is_finite() and 0 <= price <= _MAX_PRICE:
                continue
            # The value is not shown: it may be very long.
            message = f"{name} must be a decimal number in 0 … {_MAX_PRICE:,}"
            raise OptionError(message)

    def money(self, counts: RequestCounts) -> Money:
        """Return the price of requests and received bytes. Sent and deleted bytes are free."""
        gets = counts.head_requests + counts.index_requests + counts.range_requests
        puts = counts.put_requests + counts.upload_requests + counts.part_requests
        return Money(
            list_requests=self.list_per_1000 * counts.list_requests / 1000,
            get_requests=self.get_per_1000 * gets / 1000,
            put_requests=self.put_per_1000 * puts / 1000,
            egress=self.egress_per_gb * counts.received_bytes / _GB_BYTES,
        )

    def stored_per_month(self, size_bytes: int) -> Decimal:
        """Return the monthly price of storing bytes."""
        return self.stored_per_gb_month * size_bytes / _GB_BYTES


EXAMPLE_PRICES = PriceTable()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """The cost of opening a bucket and reading topics of it.

    Attributes:
        tasks: Number of tasks of the reads.
        ranges: The byte ranges that they read, in order.
        opening: Requests before the first byte of data.
    """

    tasks: int
    ranges: tuple[PlannedRange, ...]
    opening: RequestCounts
    prices: PriceTable

    @property
    def reading(self) -> RequestCounts:
        """Range requests for data, and their bytes."""
        return RequestCounts(
            range_requests=sum(each.requests for each in self.ranges),
            range_bytes=sum(each.bytes for each in self.ranges),
        )

    @property
    def counts(self) -> RequestCounts:
        """All requests and bytes."""
        return self.opening + self.reading

    @property
    def money(self) -> Money:
        """The price of all requests and bytes."""
        return self.prices.money(self.counts)


def read_cost(
    *scans: Scan,
    openings: Iterable[Opening] = (),
    range_bytes: int | None = None,
    task_bytes: int = DEFAULT_TASK_BYTES,
    prices: PriceTable = EXAMPLE_PRICES,
) -> ReadCost:
    """Return the cost of reading scans, each once and completely.

    Args:
        scans: The scans. Pass a scan twice if it is read twice.
        openings: How the buckets are opened, to include that cost.
        range_bytes: Maximum size of one range request, in bytes. None: the setting of the opened
            ledgers.
        task_bytes: Approximate size of a task, in bytes. A split between tasks can add a request.
        prices: Prices of requests and bytes.

    Raises:
        OptionError: `range_bytes` is not positive, or a scan has a view, whose cost is unknown
            before it is read.
    """
    if any(scan.view is not None for scan in scans):
        message = "the cost of a view is unknown before it is read: pass scans without a view"
        raise OptionError(message)
    if range_bytes is not None and range_bytes < 1:
        message = f"range_bytes must be at least 1, not {range_bytes}"
        raise OptionError(message)
    tasks = [task for scan in scans for task in scan.plan(task_bytes)]
    return ReadCost(
        tasks=len(tasks),
        ranges=tuple(each for task in tasks for each in planned_ranges(task, range_bytes)),
        opening=sum(map(opening_requests, openings), RequestCounts()),
        prices=prices,
    )


def opening_requests(opening: Opening) -> RequestCounts:
    """Return the requests that open a bucket again and select the same topics.

    Each 1,000 keys of a listing are one request, as they are billed; a `RequestTrace` counts all
    pages as one. An index object that does not name its topic takes a HEAD request. If a topic
    without metadata is selected, each offload that never completed takes one, too. Opening a
    MapFile reads the start and the end of its data file.
    """
    nameless = sum(
        copy.ledger is not None
        and copy.ledger.ledger_metadata is not None
        and copy.ledger.ledger_metadata.managed_ledger_name is None
        for copy in opening.copies
    )
    indexes = {info.name: info for copy in opening.copies for info in copy.index_objects}
    pages = max(1, -(-opening.object_count // LIST_PAGE_KEYS))
    requests = RequestCounts(
        list_requests=pages + opening.folder_count,
        head_requests=nameless + opening.unfinished_count,
        index_requests=len(indexes),
        index_bytes=sum(info.size_bytes for info in indexes.values()),
    )
    return sum((copy.opening_ranges for copy in opening.copies), requests)


def stored_bytes(contents: BucketContents, topics: Collection[TopicName] | None = None) -> int:
    """Return the stored bytes of a bucket, including index objects and all copies of a ledger.

    Args:
        contents: Contents of the bucket.
        topics: Topics or partitions to count. None: everything, including foreign objects and
            offloads that never completed.
    """
    if topics is not None:
        return stored_bytes_for_topics(topics, contents.copies)
    in_pairs = (info for each in contents.pairs for info in each.objects)
    unfinished = (info for each in contents.unfinished for info in each.objects)
    return sum(info.size_bytes for info in (*in_pairs, *unfinished, *contents.foreign))


def stored_bytes_for_topics(topics: Collection[TopicName], copies: Iterable[LedgerCopy]) -> int:
    """Return the stored bytes of topics or partitions, including all copies of their ledgers."""
    return sum(copy.stored_bytes for copy in copies if copy.topic in topics)


def load_prices(path: str | Path) -> PriceTable:
    """Read a price table: a TOML file with exactly these keys.

    ```toml
    currency = "EUR"
    as_of = 2026-01-31
    list_per_1000 = 0.005         # listings
    get_per_1000 = 0.0004         # GET and HEAD
    put_per_1000 = 0.005          # PUT, and each step of a multipart upload
    egress_per_gb = 0             # read from within the region
    stored_per_gb_month = 0.0245
    ```

    Raises:
        OptionError: The file is missing or is not TOML, or a price is missing, unknown, or not a
            number in 0 … 10^9.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(_MAX_PRICES_BYTES + 1)
    except OSError as error:
        message = f"no price table at {path}: {error.strerror}"
        raise OptionError(message) from None
    if len(data) > _MAX_PRICES_BYTES:
        message = f"{path} is longer than a price table can be, {_MAX_PRICES_BYTES} bytes"
        raise OptionError(message)
    try:
        members = tomllib.loads(data.decode(), parse_float=Decimal)
    except ValueError as error:
        message = f"{path} is not TOML: {error}"
        raise OptionError(message) from None
    except (InvalidOperation, RecursionError):
        message = f"{path} has a number that is out of range, or is nested too deeply"
        raise OptionError(message) from None
    names = {field.name for field in fields(PriceTable)}
    if members.keys() != names:
        message = f"{path} must have exactly the keys {', '.join(sorted(names))}"
        raise OptionError(message)
    currency, as_of = members.pop("currency"), members.pop("as_of")
    # `type`, not `isinstance`: a TOML date-time is a `datetime`, a subclass of `date`.
    if not isinstance(currency, str) or type(as_of) is not date:
        message = f"{path}: currency must be a string, and as_of a date"
        raise OptionError(message)
    # Other numbers are Decimals already; a bool is an int too, but not a price.
    prices = {
        name: Decimal(value) if type(value) is int else value for name, value in members.items()
    }
    try:
        return PriceTable(currency=currency, as_of=as_of, **prices)
    except OptionError as error:
        message = f"{path}: {error.message}"
        raise OptionError(message) from None
