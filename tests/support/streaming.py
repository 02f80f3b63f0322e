"""Segments of streaming offload (PIP-76), as Pulsar's writer lays them out, and the golden ones."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.format.object_names import SegmentName
from arrow_io.ledgers.segments.ledger import SegmentedLedger
from arrow_io.ledgers.segments.reader import OffloadedSegment
from arrow_io.storage.location import Location
from connector.catalog.metadata.managed_ledger import serialize_managed_ledger_info
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, OffloadSegment
from tests.support.golden import GOLDEN
from tests.support.pulsar_proto import varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from connector.catalog.metadata.topic_metadata import TopicMetadata

_HEADER: Final = struct.Struct(">Iqqqq")
_HEADER_BYTES: Final = 128
_ENTRY_HEADER: Final = struct.Struct(">iq")
_PADDING: Final = b"\xfe\xdc\xde\xad"


@dataclass(frozen=True)
class Part:
    """What a segment is given of a ledger.

    Attributes:
        ledger_id: The ledger.
        entries: The entries, the first of which is `first_entry_id`.
        first_entry_id: Its id.
        ledger_entries: How many entries the whole ledger has; None: it ends with these.
        ledger_bytes: Sum of the lengths of all of its entries; None: of these.
        closed_ms: When the ledger was closed; None: it is still open.
        block_entries: How many entries each block has; None: as many as fit.
    """

    ledger_id: int
    entries: Sequence[bytes]
    first_entry_id: int = 0
    ledger_entries: int | None = None
    ledger_bytes: int | None = None
    closed_ms: int | None = 1_750_000_000_000
    block_entries: Sequence[int] | None = None

    @property
    def behind(self) -> int:
        """Id behind that of the last entry."""
        return self.first_entry_id + len(self.entries)

    @property
    def info(self) -> bytes:
        """The LedgerInfo of the index object."""
        if self.closed_ms is None:
            numbers = {1: self.ledger_id, 2: self.behind, 4: 0}
        else:
            entries = self.ledger_entries or self.behind
            size_bytes = self.ledger_bytes or sum(map(len, self.entries))
            numbers = {1: self.ledger_id, 2: entries, 3: size_bytes, 4: self.closed_ms}
        return b"".join(varint(name << 3) + varint(value) for name, value in numbers.items())

    def blocks(self, block_bytes: int) -> list[tuple[int, list[bytes]]]:
        """First entry id and entries of each block."""
        counts = list(self.block_entries or self._fitting(block_bytes))
        found, entry_id = [], self.first_entry_id
        rest = list(self.entries)
        for count in counts:
            found.append((entry_id, rest[:count]))
            rest, entry_id = rest[count:], entry_id + count
        assert not rest
        return found

    def _fitting(self, block_bytes: int) -> Iterable[int]:
        count, size_bytes = 0, _HEADER_BYTES
        for entry in self.entries:
            taken = _ENTRY_HEADER.size + len(entry)
            if count and size_bytes + taken > block_bytes:
                yield count
                count, size_bytes = 0, _HEADER_BYTES
            count, size_bytes = count + 1, size_bytes + taken
        yield count


@dataclass
class Segment:
    """The two objects of a segment.

    Attributes:
        data: The data object.
        index: The index object.
        lost: Ledger and entry id of each entry for which the writer left no room.
    """

    data: bytes
    index: bytes
    lost: list[tuple[int, int]] = field(default_factory=list)


def write_segment(
    parts: Sequence[Part], *, block_bytes: int = 4096, miscounts: bool = False
) -> Segment:
    """Lay out a segment.

    Args:
        parts: What it holds, in the order of the entries.
        block_bytes: Least size of a block.
        miscounts: Whether the length of a block leaves out its first entry, as with Pulsar's
            writer; what does not begin within that length is lost.
    """
    data, index, lost, told, part_id = b"", b"", [], 0, 0
    for part in parts:
        rows = b""
        for first, entries in part.blocks(block_bytes):
            part_id += 1
            counted = entries[1:] if miscounts else entries
            length = _HEADER_BYTES + _ENTRY_HEADER.size * len(entries) + sum(map(len, counted))
            length = max(block_bytes, length)
            fields = _HEADER.pack(0x26A66D32, _HEADER_BYTES, length, first, part.ledger_id)
            block = fields.ljust(_HEADER_BYTES, b"\0")
            for entry_id, entry in enumerate(entries, first):
                if len(block) < length:
                    block += _ENTRY_HEADER.pack(len(entry), entry_id) + entry
                else:
                    lost.append((part.ledger_id, entry_id))
            padding = max(0, length - len(block))
            data += block + (_PADDING * (padding // 4 + 1))[:padding]
            rows += struct.pack(">qiq", first, part_id, told)
            told += length
        info = part.info
        count = len(rows) // 20
        index += struct.pack(">qii", part.ledger_id, count, len(info)) + info + rows
    fixed = struct.pack(">Iiqq", 0x3D1FB0BC, 24 + len(index), told, _HEADER_BYTES)
    return Segment(data, fixed + index, lost)


def segment_objects(uuid: UUID, segment: Segment) -> dict[str, bytes]:
    """The objects of a segment by name, data object first."""
    return {str(uuid): segment.data, f"{uuid}-index": segment.index}


@dataclass(frozen=True)
class GoldenSegment:
    """A segment that Pulsar's own writer wrote.

    Attributes:
        folder: What is known of it.
        uuid: Its uuid.
        entries: The entries that were given, by ledger and entry id.
    """

    folder: Path
    uuid: UUID
    entries: dict[tuple[int, int], bytes]

    @property
    def data(self) -> bytes:
        """The data object."""
        return (self.folder / "objects" / str(self.uuid)).read_bytes()

    @property
    def index(self) -> bytes:
        """The index object."""
        return (self.folder / "objects" / f"{self.uuid}-index").read_bytes()

    @property
    def is_damaged(self) -> bool:
        """Whether the writer's defect met it."""
        return self.folder.name.endswith("blocks-too-short")

    def open(self) -> OffloadedSegment:
        """Open it where it lies."""
        location = Location(str(self.folder / "objects"))
        return OffloadedSegment.open(
            location, SegmentName(self.uuid), data_size_bytes=len(self.data)
        )


@cache
def golden_segments() -> tuple[GoldenSegment, ...]:
    """All golden segments."""
    found = []
    for folder in sorted(GOLDEN.glob("streaming-*")):
        told = json.loads((folder / "set.json").read_text())
        with gzip.open(folder / "entries.jsonl.gz", "rt") as lines:
            rows = list(map(json.loads, lines))
        entries = {(row["ledger"], row["entry"]): base64.b64decode(row["data"]) for row in rows}
        found.append(GoldenSegment(folder, UUID(told["uuid"]), entries))
    return tuple(found)


def share_ledger(segment: OffloadedSegment, ledger_id: int) -> SegmentedLedger:
    """A ledger of which one segment is all there is."""
    return SegmentedLedger.from_shares(
        share for share in segment.shares if share.ledger_id == ledger_id
    )


@dataclass
class StreamedLedgers:
    """Ledgers that streaming offload has written.

    Attributes:
        objects: The objects, by name.
        infos: What the metadata says of each ledger.
        lost: Ledger and entry id of each entry for which the writer left no room.
    """

    objects: dict[str, bytes]
    infos: dict[int, LedgerInfo]
    lost: set[tuple[int, int]]


def stream_ledgers(
    ledgers: Sequence[tuple[int, Sequence[bytes]]],
    cuts: Sequence[int] = (),
    *,
    block_bytes: int = 4096,
    block_entries: int | None = None,
    miscounts: bool = False,
    number: int = 0xA000,
) -> StreamedLedgers:
    """Offload ledgers in segments.

    Args:
        ledgers: Ledger ids and entries, ascending.
        cuts: Before which entries of all, counted from 0, a segment ends.
        block_bytes: Least size of a block.
        block_entries: How many entries a block has, but for a ledger's last; None: all that fit.
        miscounts: As `write_segment` takes it.
        number: The first segment's uuid; the others follow.
    """
    entries = dict(ledgers)
    order = [(of, entry_id) for of, each in ledgers for entry_id in range(len(each))]
    ends = sorted({*(cut for cut in cuts if 0 < cut < len(order)), len(order)})
    found = StreamedLedgers({}, {}, set())
    segments: dict[int, list[OffloadSegment]] = {ledger_id: [] for ledger_id in entries}
    for place, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
        uuid = UUID(int=number + place)
        parts = []
        for ledger_id in dict.fromkeys(of for of, _ in order[start:stop]):
            ids = [entry_id for of, entry_id in order[start:stop] if of == ledger_id]
            whole = entries[ledger_id]
            size_bytes = sum(map(len, whole))
            mine = [whole[entry_id] for entry_id in ids]
            part = Part(ledger_id, mine, ids[0], len(whole), size_bytes)
            if block_entries is not None:
                part = replace(part, block_entries=_divided(len(mine), block_entries))
            parts.append(part)
            segments[ledger_id].append(
                OffloadSegment(uuid=uuid, complete=True, end_entry_id=ids[-1])
            )
        segment = write_segment(parts, block_bytes=block_bytes, miscounts=miscounts)
        found.objects |= segment_objects(uuid, segment)
        found.lost |= set(segment.lost)
    for ledger_id, whole in entries.items():
        found.infos[ledger_id] = LedgerInfo(
            ledger_id=ledger_id,
            entries=len(whole),
            size_bytes=sum(map(len, whole)),
            timestamp_ms=1_750_000_000_000,
            offload=OffloadContext(
                uuid=None,
                complete=True,
                bookkeeper_deleted=True,
                timestamp_ms=1_750_000_000_000,
                segments=tuple(segments[ledger_id]),
            ),
        )
    return found


def _divided(count: int, most: int) -> list[int]:
    """A number in parts of so many, the last of which may be less."""
    return [min(most, count - start) for start in range(0, count, most)]


def save_metadata(folder: Path, metadata: TopicMetadata) -> Path:
    """Write what the metadata store has of a topic; gives the folder of all topics."""
    (folder / "topic").mkdir(parents=True, exist_ok=True)
    value = serialize_managed_ledger_info(metadata)
    (folder / "topic" / "managed-ledger-info.bin").write_bytes(value)
    return folder / "topic"
