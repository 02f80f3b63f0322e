"""An offload attempt whose index object may have to be rebuilt, and what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arrow_io.format.index_block import MAX_INDEX_OBJECT_BYTES
from arrow_io.messages import layout
from arrow_io.tally import Tally

if TYPE_CHECKING:
    from uuid import UUID

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.format.object_names import LedgerObjectName, SegmentName
    from arrow_io.ledger_data import LedgerData
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectContent, ObjectInfo
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.offloader import IndexObject
    from connector.topic_name import AnyTopic

MADE_ANEW: Final = "made anew"
"""Where the metadata of a ledger comes from if nothing has it: see docs/command-line.md."""
FROM_DAMAGED: Final = "the damaged index object"
FROM_METADATA: Final = "the metadata"
IS_SOUND: Final = "the index object says what the data object has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One offload attempt.

    Attributes:
        name: Names of its objects.
        data: What the listing said of its data object; None if there is none.
        index: What it said of its index object; None likewise.
        ledger_ids: The ledgers that it has entries of, as far as they are known.
        problem: What is wrong with the index object, in words; None if nothing is known to be.
        topic: The topic that has its ledgers, as far as the metadata or the index object says it.
        refusal: Why its index object is not to be rebuilt; None if it is.
    """

    name: LedgerObjectName | SegmentName
    data: ObjectInfo | None
    index: ObjectInfo | None
    ledger_ids: tuple[int, ...]
    problem: str | None
    topic: AnyTopic | None = None
    refusal: str | None = None

    def old_index(self, location: Location) -> ObjectContent | None:
        """The index object that is there; None if there is none, or one that none can be."""
        if self.index is None or self.index.size_bytes > MAX_INDEX_OBJECT_BYTES:
            return None
        return location.read_object(
            self.index.name, max_bytes=MAX_INDEX_OBJECT_BYTES, version=self.index.version
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAttempt(Attempt):
    """An attempt of PIP-17, of one ledger.

    Attributes:
        info: What the metadata says of the ledger.
        others: Metadata of the ledger in other copies of it, whose index objects are sound.
    """

    name: LedgerObjectName
    info: LedgerInfo | None = None
    others: tuple[tuple[UUID, LedgerMetadata], ...] = ()


@dataclass(frozen=True, slots=True)
class RebuiltLedger:
    """The ledger of a rebuilt index object.

    Attributes:
        ledger_id: BookKeeper ledger id.
        entries: How many entries of it the data object has.
        blocks: How many data blocks of it.
        metadata_from: Where its metadata in the new index object comes from, in words.
    """

    ledger_id: int
    entries: int
    blocks: int
    metadata_from: str | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """What is to be done about one offload attempt.

    Attributes:
        attempt: The attempt, and what is wrong with its index object.
        index: The index object that is to be written; None if none is.
        ledger: What the data object has of the ledger; None if that was not found out.
        error: Why no index object can be made of what is there; None if one can, or need not be.
        refusal: Why none is written, in words; None if one is.
    """

    attempt: Attempt
    index: IndexObject | None = None
    ledger: RebuiltLedger | None = None
    error: PulsarOffloadError | None = None
    refusal: str | None = None


def check_entries(
    ledger: LedgerData, first_entry_id: int, last_entry_id: int, *, verify: bool = False
) -> None:
    """Read entries (inclusive).

    Args:
        ledger: The ledger.
        first_entry_id: First entry.
        last_entry_id: Last entry (inclusive).
        verify: Whether to compare their checksums.

    Raises:
        PulsarOffloadError: What `LedgerData.entry_runs` raises, or says of an entry.
    """
    for run in ledger.entry_runs(first_entry_id, last_entry_id, Tally(), verify_checksums=verify):
        if verify:
            for broken in run.flagged(layout.BROKEN):
                raise run.error(broken)
