"""The ledgers of a topic according to its cluster, from any source.

The names are those of Pulsar's MLDataFormats.proto (ManagedLedgerInfo and its parts). Sources: the
metadata store's value (`managed_ledger`), the admin API's answers (`admin_answers`), both
(`merge`), a catalog snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from arrow_io.errors import CorruptMetadataError
from arrow_io.format.object_names import MAX_LEDGER_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from arrow_io.messages.transactions import TransactionOutcomes
    from connector.inputs.topic_names import TopicName

MAX_METADATA_BYTES: Final = 32 << 20
"""Maximum size of one topic's metadata from any source, in bytes, uncompressed."""
FILESYSTEM_DRIVER: Final = "filesystem"
"""OffloadDriverMetadata.name of the driver that writes MapFiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSegment:
    """One segment of streaming offload (PIP-76) that has entries of a ledger."""

    uuid: UUID
    """Id of the segment, which names the objects."""
    complete: bool | None = None
    """Whether the objects were written whole; None if unknown."""
    assigned_timestamp_ms: int | None = None
    """When it was started, ms since the epoch."""
    timestamp_ms: int | None = None
    """When it was complete, ms since the epoch."""
    end_entry_id: int | None = None
    """Id of its last entry of the ledger (inclusive); None if unknown."""
    driver: str | None = None
    """OffloadDriverMetadata.name."""
    driver_properties: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadContext:
    """One offload of a ledger, as its cluster recorded it. Equal contexts are interchangeable."""

    uuid: UUID | None
    """Id of the attempt, which names the objects; None if the source does not record it."""
    complete: bool | None
    """Whether the objects were written whole; only then brokers read them. None: an offload was
    started, and the source, such as internal-info alone, does not record its completion."""
    other_uuids: tuple[UUID, ...] = ()
    """Ids that other answers of the same source have for the ledger."""
    bookkeeper_deleted: bool | None = None
    """Whether BookKeeper's copy was deleted; None if the source does not record it."""
    timestamp_ms: int | None = None
    """When the offload was complete, ms since the epoch."""
    driver: str | None = None
    """OffloadDriverMetadata.name, such as `aws-s3`."""
    driver_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Among them `bucket`, `region` and `serviceEndpoint`, empty if they were not set."""
    segments: tuple[OffloadSegment, ...] = ()
    """Segments with its entries, in order, if streaming offload (PIP-76) wrote them; else empty."""

    @property
    def uuids(self) -> tuple[UUID, ...]:
        """All uuids that name its objects, as far as the source records them."""
        own_uuid = () if self.uuid is None else (self.uuid,)
        return (*own_uuid, *(each.uuid for each in self.segments))

    @property
    def whole_segments(self) -> tuple[OffloadSegment, ...]:
        """Those of `segments` that count: one that was started and failed has no entry."""
        return tuple(each for each in self.segments if each.complete is not False)

    @property
    def bucket(self) -> str | None:
        """Bucket that the objects were written to; None if the source does not record it."""
        property_maps = (
            self.driver_properties,
            *(each.driver_properties for each in self.segments),
        )
        return next((each["bucket"] for each in property_maps if each.get("bucket")), None)

    @property
    def base_path(self) -> str | None:
        """Folder that the filesystem driver wrote to: a URL, or a path that may be relative.

        Releases before 3 record a path relative to the broker's working folder. None for other
        drivers, or if the source does not record it.
        """
        return self.driver_properties.get("storageBasePath") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerInfo:
    """One ledger of a topic (ManagedLedgerInfo.LedgerInfo)."""

    ledger_id: int
    entries: int | None = None
    """Number of entries; None while it is open, or if the source does not record it."""
    size_bytes: int | None = None
    """Sum of the lengths of its entries; None as for `entries`."""
    timestamp_ms: int | None = None
    """When it was closed, ms since the epoch; None as for `entries`."""
    offload: OffloadContext | None = None
    """Its offload; None if none was started."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_offloaded(self) -> bool:
        """Whether its objects are known to have been written whole."""
        return self.offload is not None and self.offload.complete is True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic, or one partition of a partitioned topic, as its cluster recorded it."""

    topic: TopicName
    ledgers: Sequence[LedgerInfo]
    """In the topic's order, which is ascending by id."""
    cursors: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    """Mark-delete positions of subscriptions, by name, as far as the source has them: ledger and
    entry id (inclusive) up to which each has acknowledged everything."""
    terminated_position: tuple[int, int] | None = None
    """Ledger and entry id of the last message, if the topic was terminated."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    segment_outcomes: TransactionOutcomes | None = None
    """The outcomes of the transactions of a segment; None for a topic, which has markers."""
    proven_to_ledger_id: int = field(default=-1, compare=False)
    """Greatest id (inclusive) up to which the list of ledgers is proven to be complete; -1 if
    nothing proves it. A truncated file without a checksum would parse too."""

    @property
    def last_ledger_id(self) -> int:
        """The greatest id of a ledger; -1 if there is none."""
        return self.ledgers[-1].ledger_id if self.ledgers else -1

    @property
    def named_attempts(self) -> set[tuple[int, UUID]]:
        """Ledger id and uuid of each offload, complete or not, whose uuid is recorded."""
        return {
            (info.ledger_id, uuid)
            for info in self.ledgers
            if info.offload is not None
            for uuid in info.offload.uuids
        }

    def has(self, ledger_id: int) -> bool:
        """Return whether a ledger of this id is listed."""
        index = bisect_left(self.ledgers, ledger_id, key=lambda ledger: ledger.ledger_id)
        return index < len(self.ledgers) and self.ledgers[index].ledger_id == ledger_id

    def lacks(self, ledger_id: int) -> bool:
        """Return whether ledgers with smaller and greater ids are listed, but none with this id.

        Brokers trim a topic from its front only. So an offloaded ledger of this id belongs to
        another cluster, or the list is damaged. (A ledger that stayed empty may be absent too, but
        is never offloaded.)
        """
        index = bisect_left(self.ledgers, ledger_id, key=lambda ledger: ledger.ledger_id)
        is_between = 0 < index < len(self.ledgers)
        return is_between and self.ledgers[index].ledger_id != ledger_id


def checked_ledgers(ledgers: Iterable[LedgerInfo]) -> tuple[LedgerInfo, ...]:
    """Return ledgers ascending by id, after checking that a topic can have them.

    Raises:
        CorruptMetadataError: A ledger is listed twice; its id, number of entries, size or a time is
            outside 0 … 2^63 - 1; or all entries or bytes together are more.
    """
    by_id: dict[int, LedgerInfo] = {}
    for ledger in ledgers:
        _check(ledger)
        if ledger.ledger_id in by_id:
            message = "the ledger is listed twice"
            raise CorruptMetadataError(message, ledger_id=ledger.ledger_id)
        by_id[ledger.ledger_id] = ledger
    for what, total in (
        ("entries", sum(ledger.entries or 0 for ledger in by_id.values())),
        ("bytes", sum(ledger.size_bytes or 0 for ledger in by_id.values())),
    ):
        if total > MAX_LEDGER_ID:
            message = f"the ledgers of a topic can have at most 2^63 - 1 {what}, not {total}"
            raise CorruptMetadataError(message)
    return tuple(by_id[ledger_id] for ledger_id in sorted(by_id))


def checked_position(ledger_id: int, entry_id: int) -> tuple[int, int]:
    """Return a position, after checking that a topic can have it.

    Entry -1 is the position before a ledger's first entry.

    Raises:
        CorruptMetadataError: The ledger id is outside 0 … 2^63 - 1, or the entry id outside -1 …
            2^63 - 1.
    """
    if not 0 <= ledger_id <= MAX_LEDGER_ID or not -1 <= entry_id <= MAX_LEDGER_ID:
        message = f"a topic cannot have the position {ledger_id}:{entry_id}"
        raise CorruptMetadataError(message)
    return ledger_id, entry_id


def _check(ledger: LedgerInfo) -> None:
    offloaded_ms = ledger.offload.timestamp_ms if ledger.offload else None
    segments = ledger.offload.segments if ledger.offload else ()
    for what, number in (
        ("ledger id", ledger.ledger_id),
        ("number of entries", ledger.entries),
        ("size in bytes", ledger.size_bytes),
        ("time of closing", ledger.timestamp_ms),
        ("time of the offload", offloaded_ms),
        *(("time of a segment", each.assigned_timestamp_ms) for each in segments),
        *(("time of a segment", each.timestamp_ms) for each in segments),
        *(("last entry id of a segment", each.end_entry_id) for each in segments),
    ):
        if number is not None and not 0 <= number <= MAX_LEDGER_ID:
            message = f"a {what} must be in 0 … 2^63 - 1, not {number}"
            raise CorruptMetadataError(message, ledger_id=ledger.ledger_id)
