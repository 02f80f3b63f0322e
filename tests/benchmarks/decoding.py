"""The ledgers of the benchmarks, the scans that are measured, and the floor under them."""

from __future__ import annotations

import os
import uuid
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import fsspec
import pyarrow as pa
import zstandard

from arrow_io.columns import projection
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally
from connector import open_topic
from connector.scan.execution import execute
from tests.support.encoded_ledgers import encode_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connector import TopicDataset
    from tests.support.benchmark_ledgers import BenchmarkLedger

_ARROW = {
    layout.LZ4: pa.Codec("lz4_raw").decompress,
    layout.ZSTD: pa.Codec("zstd").decompress,
    layout.SNAPPY: pa.Codec("snappy").decompress,
}
LIBRARIES = _ARROW | {
    layout.ZLIB: lambda data, size: zlib.decompressobj().decompress(data, size),
    layout.ZSTD: zstandard.ZstdDecompressor().decompress,
}
"""By codec. ZSTD's context is used again: Arrow makes one for each call, which takes longer than to
decompress a small payload."""

_HEAVY = ("__value__", "__properties__")

BLOCK_RANGE_BYTES = 64 << 20
"""In memory there is no request to wait for, so a block is one range and no entry straddles two."""

DEFAULT_COLUMNS = tuple(projection().schema.names)

SCANS: dict[str, tuple[str, ...]] = {
    "all columns": DEFAULT_COLUMNS,
    "no value, no properties": tuple(each for each in DEFAULT_COLUMNS if each not in _HEAVY),
    "count(*)": DEFAULT_COLUMNS[:1],
}
"""The columns of each scan; an engine that counts rows reads the first column."""

TYPED_SCANS = ("typed columns", "one field")
"""Scans of ledgers that have a schema: the default columns and all fields; one field alone."""

_ONE_FIELD = {"JSON": "total", "AVRO": "total", "PROTOBUF_NATIVE": "temperature_c"}


@dataclass(frozen=True)
class StoredLedger:
    """A ledger that was written to a location.

    Attributes:
        url: The location.
        topic: The topic that it is the one ledger of.
        messages: How many messages it has.
        schema: Type and definition of its schema, as Pulsar keeps them; None: it has none.
    """

    url: str
    topic: str
    messages: int
    schema: tuple[str, str] | None = None

    def open(self, range_bytes: int | None = None, *, typed: bool = False) -> TopicDataset:
        """Open the topic; `typed`: by its schema, which it must have."""
        if not typed:
            return open_topic(self.url, self.topic, range_bytes=range_bytes, value="raw")
        assert self.schema is not None
        type_, definition = self.schema
        schema = {"type": type_, "data": definition}
        return open_topic(self.url, self.topic, range_bytes=range_bytes, schema=schema)

    def typed_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns of each of `TYPED_SCANS`; empty without a schema."""
        if self.schema is None:
            return {}
        every = tuple(self.open(typed=True).schema.names)
        return dict(zip(TYPED_SCANS, (every, (_ONE_FIELD[self.schema[0]],)), strict=True))


def topic_name(ledger: BenchmarkLedger) -> str:
    """Return the name of the topic that a ledger is stored as."""
    return ledger.name.lower().replace("_", "-")


def store(ledger: BenchmarkLedger, url: str, messages: int) -> StoredLedger:
    """Write a ledger of so many messages to a location, as the only ledger of its topic."""
    topic = topic_name(ledger)
    entries = list(ledger.entries(messages))
    metadata = new_ledger_metadata(
        [len(each) for each in entries],
        managed_ledger=f"public/default/persistent/{topic}",
        ctime_ms=1_795_265_305_000,
    )
    encoded = encode_ledger(entries, metadata)
    name = LedgerObjectName(uuid.UUID(int=1), 1)
    file_system, root = fsspec.url_to_fs(f"{url}/{topic}")
    file_system.makedirs(root, exist_ok=True)
    file_system.pipe_file(f"{root}/{name.data_name}", encoded.data)
    file_system.pipe_file(f"{root}/{name.index_name}", encoded.index)
    schema = None if ledger.schema is None else (ledger.schema_type, ledger.schema)
    return StoredLedger(f"{url}/{topic}", topic, messages, schema)


def store_alike(ledger: BenchmarkLedger, folder: str, messages: int, ledgers: int) -> StoredLedger:
    """Write a topic of so many alike ledgers to a local folder.

    Their objects are links to those of the first: none says of which ledger it is.
    """
    stored = store(ledger, folder, messages)
    first = LedgerObjectName(uuid.UUID(int=1), 1)
    for number in range(2, ledgers + 1):
        name = LedgerObjectName(uuid.UUID(int=number), number)
        os.link(f"{stored.url}/{first.data_name}", f"{stored.url}/{name.data_name}")
        os.link(f"{stored.url}/{first.index_name}", f"{stored.url}/{name.index_name}")
    return replace(stored, messages=messages * ledgers)


def scan(dataset: TopicDataset, columns: tuple[str, ...]) -> int:
    """Read some columns of all rows in this thread; gives the number of rows."""
    tasks = dataset.scanner(columns).scan.plan()
    return sum(batch.num_rows for task in tasks for batch in execute(task))


def payloads(dataset: TopicDataset) -> list[tuple[int, memoryview, int]]:
    """Codec, compressed bytes and uncompressed size of each entry's payload."""
    found = []
    for topic in dataset.scan.topics:
        for ledger in topic.ledgers:
            for run in ledger.data.entry_runs(0, ledger.last_entry_id, Tally()):
                for index in range(run.count):
                    entry = run.fields(index)
                    found.append(
                        (
                            entry[layout.COMPRESSION],
                            run.bytes_at(entry[layout.PAYLOAD]),
                            entry[layout.UNCOMPRESSED_SIZE],
                        )
                    )
    return found


def decompress_all(
    found: list[tuple[int, memoryview, int]],
    by: Mapping[int, Callable[[memoryview, int], object]] = _ARROW,
) -> None:
    """The floor: decompress every payload (copy it if it is not compressed), and nothing else."""
    for compression, data, size in found:
        if compression:
            by[compression](data, size)
        else:
            bytes(data)
