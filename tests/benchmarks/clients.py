"""What clients of S3 cost: CPU time beside decoding, and that of plain reads of the same ranges.

The server is versitygw, a gateway from S3 to a folder, in a process of its own.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fsspec
from obstore.store import S3Store

from arrow_io.storage.own_options import Client
from arrow_io.storage.range_prefetch import RangePrefetcher
from arrow_io.storage.range_stream import RangeStream
from arrow_io.storage.trace import RequestKind, RequestTrace
from connector import open_topic
from connector.scan.execution import byte_spans
from tests.benchmarks.decoding import DEFAULT_COLUMNS
from tests.benchmarks.fetching import read_all
from tests.benchmarks.resident import RESIDENT_URL, ResidentFileSystem
from tests.stores.emulators import running_gateway
from tests.support.benchmark_ledgers import SINGLE_UNCOMPRESSED
from tests.support.buckets import TOPIC, object_name, offload_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.storage.ranges import ByteSpan
    from arrow_io.storage.trace import RequestRecord

_CONNECTIONS = 32
_BUCKET = "offloaded"
_SCANS = {"positions": DEFAULT_COLUMNS[:3], "all columns": DEFAULT_COLUMNS}
CLIENTS = (Client.FSSPEC, Client.AUTO)


@dataclass(frozen=True, slots=True)
class MeasuredClient:
    """One row of the table; CPU times of this process, in seconds.

    Attributes:
        name: The client, and what is read.
        requests: How many ranges are read.
        seconds: The read.
        decoding_seconds: The same read of bytes in memory.
        fetching_seconds: The read without decoding: the ranges are prefetched, and dropped.
        plain_seconds: Plain reads of the same ranges by the library.
    """

    name: str
    requests: int
    seconds: float
    decoding_seconds: float
    fetching_seconds: float
    plain_seconds: float

    @property
    def fetching_ratio(self) -> float:
        """What fetching alone takes, divided by what plain reads take."""
        return self.fetching_seconds / self.plain_seconds

    @property
    def ratio(self) -> float:
        """What the read takes beside decoding, divided by what plain reads take."""
        return (self.seconds - self.decoding_seconds) / self.plain_seconds


def measure_clients(
    gateway: str, folder: str, *, messages: int, ledgers: int, rounds: int = 5
) -> list[MeasuredClient]:
    """Read ledgers of messages of 100 bytes through each client.

    Args:
        gateway: The program of versitygw.
        folder: Where it keeps the objects; empty.
        messages: Messages of each ledger.
        ledgers: How many ledgers there are.
        rounds: How often each is read; the least CPU time counts.
    """
    entries = list(SINGLE_UNCOMPRESSED.entries(messages))
    rows = []
    with running_gateway(gateway, folder) as options:
        system = fsspec.filesystem("s3", **options)
        system.mkdir(_BUCKET)
        for number in range(1, ledgers + 1):
            for name, data in offload_ledger(object_name(number), entries).items():
                system.pipe_file(f"{_BUCKET}/{name}", data)
                ResidentFileSystem().pipe_file(f"{RESIDENT_URL}/{name}", data)
        for client in CLIENTS:
            for name, columns in _SCANS.items():
                rows.append(_measured(name, columns, options | {"client": client}, rounds))
    ResidentFileSystem.objects.clear()
    return rows


def table(rows: list[MeasuredClient]) -> list[str]:
    """The lines of the table."""
    head = f"{'client, CPU time':22} {'requests':>8} {'read':>8} {'decoding':>8} {'fetching':>8}"
    return [
        f"{head} {'plain':>8} {'fetching, to plain':>18} {'beside decoding, to plain':>26}",
        *(
            f"{each.name:22} {each.requests:8,} {each.seconds:8.3f} {each.decoding_seconds:8.3f}"
            f" {each.fetching_seconds:8.3f} {each.plain_seconds:8.3f}"
            f" {each.fetching_ratio:17.2f}× {each.ratio:25.2f}×"
            for each in rows
        ),
    ]


def _measured(
    name: str, columns: tuple[str, ...], options: dict[str, object], rounds: int
) -> MeasuredClient:
    trace = RequestTrace(keep_records=True)
    stored = open_topic(f"s3://{_BUCKET}", TOPIC, value="raw", storage_options=options, trace=trace)
    read_all(stored, columns)
    ranges = [each for each in trace.records if each.kind is RequestKind.RANGE_GET]
    plain = _plain_obstore(options) if options["client"] == Client.AUTO else _plain_s3fs(options)
    resident = open_topic(RESIDENT_URL, TOPIC, value="raw")
    spans = list(byte_spans(stored.scanner(columns).scan.plan()))
    actions = (
        lambda: read_all(stored, columns),
        lambda: read_all(resident, columns),
        lambda: _fetch(spans),
        lambda: _read_plainly(plain, ranges),
    )
    return MeasuredClient(f"{options['client']}, {name}", len(ranges), *_least(actions, rounds))


def _fetch(spans: list[ByteSpan]) -> None:
    with RangePrefetcher(iter(spans)) as prefetcher:
        for span in spans:
            with RangeStream(span, prefetcher) as stream:
                position = span.start
                while position < span.stop:
                    view, index = stream.at(position, 1)
                    position += len(view) - index


def _plain_s3fs(options: dict[str, object]) -> Callable[[RequestRecord], int]:
    of_library = {name: each for name, each in options.items() if name != "client"}
    system = fsspec.filesystem("s3", **of_library)

    def read(each: RequestRecord) -> int:
        return len(system.cat_file(f"{_BUCKET}/{each.name}", start=each.start, end=each.stop))

    return read


def _plain_obstore(options: dict[str, object]) -> Callable[[RequestRecord], int]:
    store = S3Store(
        _BUCKET,
        access_key_id=str(options["key"]),
        secret_access_key=str(options["secret"]),
        endpoint=str(options["endpoint_url"]),
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )

    def read(each: RequestRecord) -> int:
        assert each.start is not None
        return len(store.get_range(each.name, start=each.start, end=each.stop))

    return read


def _read_plainly(read: Callable[[RequestRecord], int], ranges: list[RequestRecord]) -> None:
    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        list(threads.map(read, ranges))


def _least(actions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The least CPU time of each, done in turn: the machine may be slower for a while."""

    def once(action: Callable[[], object]) -> float:
        start = time.process_time()
        action()
        return time.process_time() - start

    times = [[once(each) for each in actions] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]
