"""Offloaded topics to be damaged byte by byte, and what each byte of a data object belongs to.

In come golden topics and one woven to have all that a small topic can have; out come specimens: a
bucket in memory, the rows that it gives while sound, and reads of it with one object replaced.
"""

from __future__ import annotations

import itertools
import struct
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import PulsarOffloadError
from arrow_io.format.object_names import parse_object_name
from arrow_io.ledgers.reader import UNKNOWN_VERSIONS, OffloadedLedger
from arrow_io.read_metrics import ReadMetrics
from arrow_io.storage.trace import RequestTrace
from connector import open_catalog, open_topic
from tests.support.buckets import TOPIC, MemoryBucket, golden_objects, memory_bucket, offload
from tests.support.builds import BUILDS, using_build
from tests.support.codecs import CODECS
from tests.support.entries import (
    Framing,
    Message,
    encode_chunks,
    encode_entry,
    encode_marker,
    renumbered,
)
from tests.support.expected import COLUMNS
from tests.support.golden import golden_topic
from tests.support.reading import read
from tests.support.reference import BROKER_METADATA_MAGIC, TXN_COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from arrow_io.ledgers.open_ledger import OpenLedger
    from connector import TopicDataset
    from connector.scan.topic_scan import Scan

WOVEN: Final = "woven"
"""The specimen that no broker wrote: all codecs, all kinds of entries, blocks with padding."""

BROKER_COLUMNS: Final = ("__broker_time__", "__broker_index__")
"""The columns that are made of BrokerEntryMetadata, which no checksum covers."""

MAX_MEMORY_BYTES: Final = 256 << 20

_BLOCK_HEADER: Final = struct.Struct(">Iqqq")
_ENTRY_HEADER: Final = struct.Struct(">iq")
_LENGTH: Final = struct.Struct(">I")
_PADDING_WORD_BYTES: Final = 4


class Part(Enum):
    """What a byte of a data object belongs to."""

    BLOCK_FIELDS = auto()
    BLOCK_FILL = auto()
    """The zeroes behind the fields of a block's header."""
    ENTRY_HEADER = auto()
    BROKER_FRAME = auto()
    """Magic and length of the BrokerEntryMetadata."""
    BROKER_METADATA = auto()
    CHECKED = auto()
    """The checksum's magic, the checksum, and all that it covers."""
    PADDING_START = auto()
    """The first word of padding, which must follow the last entry of a block."""
    PADDING = auto()
    """What follows that word."""


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes `[start, stop)` of a data object; `entry_id` is None in headers and padding."""

    part: Part
    start: int
    stop: int
    entry_id: int | None = None


def regions(data: bytes) -> Iterator[Region]:
    """What the bytes of a sound data object belong to, from its first byte to its last."""
    start = 0
    while start < len(data):
        _, header_bytes, block_bytes, _ = _BLOCK_HEADER.unpack_from(data, start)
        yield Region(Part.BLOCK_FIELDS, start, start + _BLOCK_HEADER.size)
        yield Region(Part.BLOCK_FILL, start + _BLOCK_HEADER.size, start + header_bytes)
        position, stop = start + header_bytes, start + block_bytes
        while stop - position >= _ENTRY_HEADER.size:
            length, entry_id = _ENTRY_HEADER.unpack_from(data, position)
            if length < 0:
                break
            begin = position + _ENTRY_HEADER.size
            yield Region(Part.ENTRY_HEADER, position, begin, entry_id)
            position = begin + length
            yield from _regions_of_entry(data, begin, position, entry_id)
        word = min(stop, position + _PADDING_WORD_BYTES)
        yield Region(Part.PADDING_START, position, word)
        yield Region(Part.PADDING, word, stop)
        start = stop


def _regions_of_entry(data: bytes, start: int, stop: int, entry_id: int) -> Iterator[Region]:
    if data.startswith(BROKER_METADATA_MAGIC, start):
        begin = start + len(BROKER_METADATA_MAGIC) + _LENGTH.size
        (length,) = _LENGTH.unpack_from(data, begin - _LENGTH.size)
        yield Region(Part.BROKER_FRAME, start, begin, entry_id)
        yield Region(Part.BROKER_METADATA, begin, begin + length, entry_id)
        start = begin + length
    yield Region(Part.CHECKED, start, stop, entry_id)


@dataclass(frozen=True)
class Specimen:
    """A topic in a bucket of its own.

    Attributes:
        topic: Its full name.
        objects: Its sound objects, by name.
        bucket: Where they are.
        rows: All columns of the rows that it gives while it is sound.
        trace: Counts the requests of all reads.
    """

    topic: str
    objects: Mapping[str, bytes]
    bucket: MemoryBucket
    rows: pa.Table
    trace: RequestTrace

    @classmethod
    def of(cls, topic: str, objects: Mapping[str, bytes], bucket: MemoryBucket) -> Self:
        """The specimen of a topic whose objects, all sound, are in a bucket."""
        unread = cls(topic, objects, bucket, pa.table({}), RequestTrace())
        return replace(unread, rows=read(unread.opened().scan))

    @property
    def data_names(self) -> list[str]:
        """Names of the data objects."""
        return [name for name in self.objects if not name.endswith("-index")]

    @property
    def index_names(self) -> list[str]:
        """Names of the index objects."""
        return [name for name in self.objects if name.endswith("-index")]

    def opened(self, *, salvage: bool = False, verify_checksums: bool = True) -> TopicDataset:
        """List the bucket, read its index objects, and give the dataset of all columns."""
        catalog = open_catalog(self.bucket.url, trace=self.trace)
        dataset = open_topic(
            self.bucket.url,
            self.topic,
            catalog=catalog,
            columns=COLUMNS,
            on_corruption="salvage" if salvage else "raise",
            verify_checksums=verify_checksums,
        )
        dataset.scan = unversioned(dataset.scan)
        return dataset

    @contextmanager
    def replaced(self, name: str, content: bytes) -> Iterator[None]:
        """Put another object in the place of one of them."""
        self.bucket.put({name: content})
        try:
            yield
        finally:
            self.bucket.put({name: self.objects[name]})

    def salvaged(self, scan: Scan, name: str, content: bytes) -> tuple[pa.Table, ReadMetrics]:
        """Read with an object replaced, salvaging."""
        metrics = ReadMetrics()
        with self.replaced(name, content):
            return read(scan, metrics=metrics), metrics

    def kept(self, rows: pa.Table) -> pa.Int64Array:
        """Numbers of the sound rows that are among `rows`, in their order; null for any other."""
        sought = self.rows["__message_id__"].combine_chunks()
        return pc.index_in(rows["__message_id__"].combine_chunks(), value_set=sought)


def unversioned(scan: Scan) -> Scan:
    """The same scan, to which damage that comes after it was opened looks as though it came before.

    Bytes rot in a store without its telling of another version.
    """

    def forget(ledger: OpenLedger) -> OpenLedger:
        assert isinstance(ledger, OffloadedLedger)
        return replace(ledger, versions=UNKNOWN_VERSIONS)

    topics = (replace(each, ledgers=tuple(map(forget, each.ledgers))) for each in scan.topics)
    return replace(scan, topics=tuple(topics))


@contextmanager
def specimen(name: str) -> Iterator[Specimen]:
    """A specimen: `WOVEN`, or a golden topic by its name."""
    topic, objects = (TOPIC, woven_objects()) if name == WOVEN else _golden(name)
    with memory_bucket(objects) as bucket:
        yield Specimen.of(topic, objects, bucket)


def _golden(name: str) -> tuple[str, dict[str, bytes]]:
    topic = golden_topic(name)
    return topic.name, golden_objects(topic)


def woven_objects() -> dict[str, bytes]:
    """The objects of a topic of two ledgers that a message and a transaction cross."""
    broker = (1_700_000_000_500, 300)
    batch = [
        Message(payload=b"value " * count, properties=(("n", str(count)),), partition_key="key")
        for count in (2, 3)
    ]
    entries = [
        encode_entry(batch, batched=True, framing=Framing(codec=codec, broker_metadata=broker))
        for codec in CODECS
    ]
    single = Message(payload=b"single", event_time=1, ordering_key=b"ordering")
    entries.append(encode_entry([single], batched=False, schema_version=bytes(8)))
    chunks = encode_chunks(
        Message(payload=bytes(range(90))), chunk_count=3, uuid="u", framing=Framing(codec="LZ4")
    )
    transactional = encode_entry(batch, batched=True, txnid_most_bits=1, txnid_least_bits=2)
    commit = encode_marker(TXN_COMMIT, txn_id=(1, 2), framing=Framing(broker_metadata=broker))
    last = encode_entry([single], batched=False, framing=Framing(broker_metadata=broker))
    ledgers = [(7, [*entries, transactional, *chunks[:2]]), (9, [chunks[2], commit, last])]
    indexes = itertools.count(300, 300)
    numbered = [
        (ledger_id, [renumbered(entry, next(indexes)) for entry in entries])
        for ledger_id, entries in ledgers
    ]
    return offload(numbered, block_bytes=480)


def ledger_id_of(name: str) -> int | None:
    """Ledger id in the name of an object."""
    parsed = parse_object_name(name)
    return None if parsed is None else parsed.ledger_id


def flipped(content: bytes, position: int, pattern: int) -> bytes:
    """The same bytes with the bits of `pattern` flipped at one position."""
    other = bytearray(content)
    other[position] ^= pattern
    return bytes(other)


def memory_growth_bytes(names: Sequence[str], stride: int) -> int:
    """By how much memory grows at most while damaged specimens are read, in this process.

    Nothing is verified, so that what the bytes say of sizes is believed as far as it ever is.

    Args:
        names: The specimens.
        stride: Each so many bytes of a data object, one of them is flipped.

    Returns:
        The greater of what Arrow had allocated and of what the process had in use beyond what
        reads of the sound specimens took.
    """
    pool = pa.default_memory_pool()
    in_use = 0
    for name in names:
        with specimen(name) as sound:
            in_use = in_use or _most_in_use_bytes()
            for build, salvage in itertools.product(BUILDS, (False, True)):
                with using_build(build):
                    scan = sound.opened(salvage=salvage, verify_checksums=False).scan
                    _read_damaged(sound, scan, stride)
    return max(int(pool.max_memory()), _most_in_use_bytes() - in_use)


def _read_damaged(sound: Specimen, scan: Scan, stride: int) -> None:
    for name in sound.data_names:
        content = sound.objects[name]
        for position in range(0, len(content), stride):
            with (
                sound.replaced(name, flipped(content, position, 0xFF)),
                suppress(PulsarOffloadError),
            ):
                read(scan)


def _most_in_use_bytes() -> int:
    """The most memory that this process has had in use so far."""
    import resource  # noqa: PLC0415 - Windows lacks it

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
