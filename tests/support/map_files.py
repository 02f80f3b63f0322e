"""MapFiles of Pulsar's filesystem offloader: a writer of any, and the golden ones.

The writer knows nothing of the code under test. It follows Hadoop's `MapFile.Writer` and
`SequenceFile.Writer`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, Unpack
from uuid import UUID

from arrow_io.format.object_names import MapFileName
from arrow_io.ledgers.mapfiles.reader import OffloadedMapFile
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.storage.location import Location
from tests.support.buckets import MANAGED_LEDGER
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from arrow_io.storage.trace import RequestTrace

COMPRESSIONS: Final = ("none", "record", "block")
MARKER: Final = bytes(range(0xA0, 0xB0))
"""The sync marker of files that tests write."""
NAME: Final = MapFileName(MANAGED_LEDGER, UUID(int=7), 7)
ESCAPE: Final = b"\xff" * 4
_CLASS: Final = b"org.apache.hadoop.io."
_CODEC: Final = b"org.apache.hadoop.io.compress.DefaultCodec"


class Group(NamedTuple):
    """Records that are lost together: one record, or one block."""

    first_key: int
    last_key: int
    start: int
    """Where the group begins, or the escape before it."""
    stop: int


@dataclass(frozen=True)
class MapFile:
    """The files of a folder.

    Attributes:
        data: The data file.
        index: The index.
        groups: What is in the data file.
        streams: All ZLIB streams of the data file.
    """

    data: bytes
    index: bytes
    groups: Sequence[Group] = ()
    streams: Sequence[bytes] = ()

    def objects(self, name: MapFileName = NAME, *, has_checksums: bool = False) -> dict[str, bytes]:
        """The files by name."""
        files = {name.data_name: self.data, name.index_name: self.index}
        if has_checksums:
            for checksum_name, content in zip(
                name.checksum_names, (self.index, self.data), strict=True
            ):
                files[checksum_name] = checksums(content)
        return files


class Layout(TypedDict, total=False):
    """How a file is laid out; see `write_map_file`."""

    compression: str
    block_bytes: int
    sync_bytes: int
    interval: int
    marker: bytes


def write_map_file(
    entries: Sequence[bytes],
    *,
    metadata: bytes | None = None,
    managed_ledger: str = MANAGED_LEDGER,
    **layout: Unpack[Layout],
) -> MapFile:
    """Write the entries of a ledger.

    Args:
        entries: All of them.
        metadata: The ledger's metadata; None: right ones.
        managed_ledger: The managed ledger in them.
        layout: `compression` is one of `COMPRESSIONS`. Blocks end with the record with which they
            have `block_bytes`. An escape precedes a record once `sync_bytes` follow the last one.
            The index has each `interval`th record.
    """
    if metadata is None:
        lengths = [len(entry) for entry in entries]
        metadata = new_ledger_metadata(
            lengths, managed_ledger=managed_ledger, ctime_ms=0
        ).serialize()
    records = [(key, _bytes(value)) for key, value in enumerate([metadata, *entries], -1)]
    return write_records(records, **layout)


def write_records(records: Sequence[tuple[int, bytes]], **layout: Unpack[Layout]) -> MapFile:
    """Write records of any keys and serialized values; see `write_map_file`."""
    marker = layout.get("marker", MARKER)
    interval = layout.get("interval", 128)
    writer = _Writer(b"BytesWritable", **layout)
    pairs: list[tuple[int, bytes]] = []
    since, last_position = interval, -1
    for key, value in records:
        position = len(writer.data)
        if since >= interval and position > last_position:
            pairs.append((key, struct.pack(">q", position)))
            since, last_position = 0, position
        writer.append(key, value)
        since += 1
    writer.close()
    index = _Writer(b"LongWritable", compression="block", marker=marker)
    for key, value in pairs:
        index.append(key, value)
    index.close()
    return MapFile(
        bytes(writer.data), bytes(index.data), tuple(writer.groups), tuple(writer.streams)
    )


class _Writer:
    """`SequenceFile.Writer`, `RecordCompressWriter` and `BlockCompressWriter`."""

    def __init__(self, value_class: bytes, **layout: Unpack[Layout]) -> None:
        self._compression = layout.get("compression", "none")
        self._block_bytes = layout.get("block_bytes", 1_000_000)
        self._sync_bytes = layout.get("sync_bytes", 102_400)
        self._escape = ESCAPE + layout.get("marker", MARKER)
        is_compressed, is_in_blocks = self._compression != "none", self._compression == "block"
        self.data = bytearray(
            b"SEQ\x06"
            + text(_CLASS + b"LongWritable")
            + text(_CLASS + value_class)
            + bytes([is_compressed, is_in_blocks])
            + (text(_CODEC) if is_compressed else b"")
            + bytes(4)
            + self._escape[4:]
        )
        self._last_sync = 0
        self.groups: list[Group] = []
        self.streams: list[bytes] = []
        self._block: list[tuple[int, bytes]] = []
        self._pending_bytes = 0

    def append(self, key: int, value: bytes) -> None:
        if self._compression == "block":
            self._block.append((key, value))
            self._pending_bytes += 8 + len(value)
            if self._pending_bytes >= self._block_bytes:
                self.close()
            return
        start = len(self.data)
        if start >= self._last_sync + self._sync_bytes:
            self.data += self._escape
            self._last_sync = len(self.data)
        stored = value
        if self._compression == "record":
            stored = zlib.compress(value)
            self.streams.append(stored)
        self.data += struct.pack(">iiq", 8 + len(stored), 8, key) + stored
        self.groups.append(Group(key, key, start, len(self.data)))

    def close(self) -> None:
        if not self._block:
            return
        start, records = len(self.data), self._block
        buffers = (
            vint(8) * len(records),
            b"".join(struct.pack(">q", key) for key, _ in records),
            b"".join(vint(len(value)) for _, value in records),
            b"".join(value for _, value in records),
        )
        compressed = list(map(zlib.compress, buffers))
        self.data += raw_block(self._escape, len(records), compressed)
        self.streams += compressed
        self.groups.append(Group(records[0][0], records[-1][0], start, len(self.data)))
        self._block, self._pending_bytes = [], 0


def raw_block(escape: bytes, count: int, streams: Sequence[bytes]) -> bytes:
    """A block of any number of records and any streams."""
    parts = (vint(len(each)) + each for each in streams)
    return escape + vint(count) + b"".join(parts)


def vint(value: int) -> bytes:
    """`WritableUtils.writeVLong`."""
    if -112 <= value <= 127:
        return struct.pack(">b", value)
    first, rest = (-112, value) if value >= 0 else (-120, ~value)
    digits = rest.to_bytes(8, "big").lstrip(b"\0")
    return struct.pack(">b", first - len(digits)) + digits


def text(value: bytes) -> bytes:
    """`Text.writeString`."""
    return vint(len(value)) + value


def _bytes(value: bytes) -> bytes:
    """`BytesWritable.write`."""
    return struct.pack(">i", len(value)) + value


def checksums(content: bytes) -> bytes:
    """The file of checksums of another."""
    chunks = (content[start : start + 512] for start in range(0, len(content), 512))
    return (
        b"crc\0"
        + struct.pack(">i", 512)
        + b"".join(struct.pack(">I", zlib.crc32(c)) for c in chunks)
    )


class Options(TypedDict, total=False):
    """Fields of a location."""

    range_bytes: int
    trace: RequestTrace


def open_map_file(
    url: str,
    data_bytes: int,
    name: MapFileName = NAME,
    *,
    has_checksums: bool = False,
    **options: Unpack[Options],
) -> OffloadedMapFile:
    """Open a MapFile."""
    location = Location(url, **options)
    return OffloadedMapFile.open(location, name, data_bytes, has_checksums=has_checksums)


@dataclass(frozen=True)
class GoldenMapFile:
    """A folder that Pulsar's own offloader wrote.

    Attributes:
        base: The folder of all tenants.
        name: Names of the files.
        digests: Length and SHA-256 of each entry that Pulsar's own reader gave back; of a ledger
            that is not complete, of each that the offloader was given.
        is_complete: Whether the offload was finished.
    """

    base: Path
    name: MapFileName
    digests: Sequence[tuple[int, str]]
    is_complete: bool

    def __str__(self) -> str:
        """The set and the ledger."""
        return f"{self.base.relative_to(GOLDEN).parts[0]}:{self.name.ledger_id}"

    @property
    def data(self) -> bytes:
        """The data file."""
        return (self.base / self.name.data_name).read_bytes()

    @property
    def index(self) -> bytes:
        """The index."""
        return (self.base / self.name.index_name).read_bytes()

    @property
    def checksums(self) -> tuple[bytes, bytes] | None:
        """The checksums of index and data file."""
        index, data = (self.base / name for name in self.name.checksum_names)
        return (index.read_bytes(), data.read_bytes()) if index.exists() else None

    def open(self, **options: Unpack[Options]) -> OffloadedMapFile:
        """Open it where it lies."""
        size = (self.base / self.name.data_name).stat().st_size
        return open_map_file(
            str(self.base), size, self.name, has_checksums=self.checksums is not None, **options
        )


@cache
def golden_map_files() -> tuple[GoldenMapFile, ...]:
    """All folders of all sets."""
    return tuple(each for folder in sorted(GOLDEN.glob("filesystem-*")) for each in _of_set(folder))


def _of_set(folder: Path) -> Iterator[GoldenMapFile]:
    described = json.loads((folder / "set.json").read_text())
    unfinished = {
        row["ledger"] for row in described.get("ledgers", ()) if not row.get("complete", True)
    }
    digests: dict[int, list[tuple[int, str]]] = {}
    with gzip.open(folder / "entries.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            of_ledger = digests.setdefault(row["ledger"], [])
            assert row["entry"] == len(of_ledger)
            of_ledger.append((row["size"], row["sha256"]))
    for data in sorted(folder.rglob("data")):
        ledger_id, _, uuid = data.parent.name.partition("-")
        base = data.parents[5]
        managed_ledger = data.parents[1].relative_to(base).as_posix()
        yield GoldenMapFile(
            base,
            MapFileName(managed_ledger, UUID(uuid), int(ledger_id)),
            digests[int(ledger_id)],
            int(ledger_id) not in unfinished,
        )


def digest(entry: bytes) -> tuple[int, str]:
    """Length and SHA-256 of an entry, as `GoldenMapFile.digests` has them."""
    return len(entry), hashlib.sha256(entry).hexdigest()
