"""Rebuilds the index object of an offloaded ledger (PIP-17) from its data object.

The data object says where each entry stands. What else an index object has is BookKeeper's metadata
of the ledger: what is left of it in the damaged index object, or another copy's, or a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from arrow_io.core.wording import counted
from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    FormatError,
    MissingEntriesError,
    TruncatedObjectError,
)
from arrow_io.format.damaged_index import DamagedIndex, read_damaged_index
from arrow_io.format.index_block import (
    MANAGED_LEDGER_NAME_KEY,
    MAX_INDEX_OBJECT_BYTES,
    IndexBlock,
    check_format_version,
    read_index_block,
)
from arrow_io.format.ledger_metadata import MANAGED_LEDGER_KEY
from arrow_io.ledgers.data_object_walk import walk_data_object
from arrow_io.ledgers.reader import ObjectVersions, OffloadedLedger
from arrow_io.ledgers.writer import new_ledger_metadata
from arrow_io.messages import layout
from arrow_io.read_metrics import Tally
from arrow_io.storage.ranges import RangeReader
from connector.inputs.topic_names import managed_ledger_owner
from connector.writing.offloader import IndexObject, index_user_metadata

if TYPE_CHECKING:
    from uuid import UUID

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.format.ledger_metadata import LedgerMetadata
    from arrow_io.format.object_names import LedgerObjectName, PairName
    from arrow_io.ledgers.data import LedgerData
    from arrow_io.ledgers.data_object_walk import WalkedObject
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectContent, ObjectInfo
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.inputs.topic_names import AnyTopic

_Name = TypeVar("_Name", bound="PairName")

REBUILT: Final = "made anew"
"""Where the metadata of a ledger comes from if nothing has it: see docs/command-line.md."""
FROM_DAMAGED: Final = "the damaged index object"
_FROM_METADATA: Final = "the metadata"
_IS_SOUND: Final = "the index object says what the data object has"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Generic[_Name]):
    """One offload attempt.

    Attributes:
        name: Names of its objects.
        data: What the listing said of its data object; None if there is none.
        index: What it said of its index object; None likewise.
        ledger_ids: The ledgers that it has entries of, as far as they are known.
        problem: What is wrong with the index object, in words; None if nothing is known to be.
        topic: The topic that has its ledgers, as far as the metadata or the index object says it.
        info: What the metadata says of its ledger.
        other_copies: Metadata of the ledger in other copies of it, whose index objects are sound.
        refusal: Why its index object is not to be rebuilt; None if it is.
    """

    name: _Name
    data: ObjectInfo | None
    index: ObjectInfo | None
    ledger_ids: tuple[int, ...]
    problem: str | None
    topic: AnyTopic | None = None
    info: LedgerInfo | None = None
    other_copies: tuple[tuple[UUID, LedgerMetadata], ...] = ()
    refusal: str | None = None

    def old_index(self, location: Location) -> ObjectContent | None:
        """The index object that is there; None if there is none, or one that none can be."""
        if self.index is None or self.index.size_bytes > MAX_INDEX_OBJECT_BYTES:
            return None
        return location.read_object(
            self.index.name, max_bytes=MAX_INDEX_OBJECT_BYTES, version=self.index.version
        )


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

    attempt: Attempt[Any]
    index: IndexObject | None = None
    ledger: RebuiltLedger | None = None
    error: PulsarOffloadError | None = None
    refusal: str | None = None


def planned_ledger(
    location: Location, attempt: Attempt[LedgerObjectName], data: ObjectInfo, *, verify: bool
) -> Repair:
    """Rebuild the index object of a ledger, without writing it.

    Args:
        location: The bucket.
        attempt: The attempt.
        data: Its data object.
        verify: Whether to read all entries by the new index object, and compare their checksums.

    Raises:
        FormatError: What is there contradicts itself, or lacks something.
        MissingObjectError: An object was deleted since the bucket was listed.
        ObjectChangedError: One was replaced since.
        StorageError: The store refused, or went on failing.
    """
    reader = RangeReader(location, attempt.name.data_name, data.size_bytes, data.version)
    walked = walk_data_object(reader, attempt.name.ledger_id)
    return _IndexRebuilder(location, attempt, walked).plan(verify=verify)


class _IndexRebuilder:
    """Makes the index object of a data object that was walked."""

    def __init__(
        self, location: Location, attempt: Attempt[LedgerObjectName], walked: WalkedObject
    ) -> None:
        self._location = location
        self._attempt = attempt
        self._name = name = attempt.name
        self._walked = walked
        self._old = attempt.old_index(location)
        self._damaged = DamagedIndex() if self._old is None else read_damaged_index(self._old.data)
        self._user_metadata = location.user_metadata(name.data_name)
        check_format_version(self._user_metadata, object_key=name.data_name)
        self._managed_ledger = self._owner()

    def plan(self, *, verify: bool) -> Repair:
        """What is to be done.

        Raises:
            FormatError: What is there contradicts itself, or lacks something.
        """
        table = self._walked.table
        topic = managed_ledger_owner(self._managed_ledger)
        attempt = replace(self._attempt, topic=topic)
        ledger = RebuiltLedger(self._name.ledger_id, table.entry_count, table.block_count)
        self._check_counts()
        if self._is_sound():
            return Repair(attempt, ledger=ledger, refusal=_IS_SOUND)
        metadata, source = self._metadata()
        data = IndexBlock(
            table.data_object_length_bytes,
            table.data_header_length_bytes,
            table.entry_table,
            table.last_entry_id,
            metadata,
        ).serialize()
        self._check_readable(data, verify=verify)
        user_metadata = index_user_metadata(self._user_metadata or {}, self._managed_ledger)
        index = IndexObject(self._name.index_name, data, user_metadata)
        return Repair(attempt, index, replace(ledger, metadata_from=source))

    def _owner(self) -> str:
        """The managed ledger."""
        topic, info = self._attempt.topic, self._attempt.info
        topic_name = None if topic is None else topic.managed_ledger_name
        own = (self._user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        if None not in (info, own) and topic_name != own:
            message = f"the data object is of managed ledger {own!r}, its topic's is {topic_name!r}"
            raise CorruptBlockError(message)
        damaged = self._damaged.ledger_metadata
        name = own or topic_name or (damaged and _name_in(damaged))
        if not name:
            message = "nothing tells which topic the ledger belongs to: metadata would"
            raise CorruptIndexError(message, object_key=self._name.index_name)
        return name

    def _metadata(self) -> tuple[LedgerMetadata, str]:
        """The ledger's metadata, and where it comes from."""
        damaged = self._damaged.ledger_metadata
        if damaged is not None and (fitting := self._fit(damaged, most_wrong=1)):
            return fitting, FROM_DAMAGED
        for uuid, other in self._attempt.other_copies:
            if (fitting := self._fit(other, most_wrong=0)) is not None:
                return fitting, f"the copy under the uuid {uuid}"
        # When the ledger was created, nothing says: readers would skip ledgers by a wrong time.
        new = new_ledger_metadata(
            [self._walked.length_bytes], managed_ledger=self._managed_ledger, ctime_ms=0
        )
        last_entry_id = self._walked.table.last_entry_id
        return replace(new, last_entry_id=last_entry_id, ctime_ms=None), REBUILT

    def _fit(self, metadata: LedgerMetadata, *, most_wrong: int) -> LedgerMetadata | None:
        """The metadata with the right name and numbers; None if it is another ledger's.

        Args:
            metadata: The metadata.
            most_wrong: How many of its numbers may be wrong.
        """
        last_entry_id, length_bytes = self._walked.table.last_entry_id, self._walked.length_bytes
        wrong = (metadata.last_entry_id != last_entry_id) + (metadata.length_bytes != length_bytes)
        name = _name_in(metadata)
        if wrong > most_wrong or name not in {None, self._managed_ledger}:
            return None
        if wrong:
            metadata = replace(metadata, last_entry_id=last_entry_id, length_bytes=length_bytes)
        # Ledgers of older releases have the name in the user metadata alone.
        if name is None and self._user_metadata is None:
            named = {MANAGED_LEDGER_KEY: self._managed_ledger.encode()}
            metadata = replace(metadata, custom_metadata={**metadata.custom_metadata, **named})
        return metadata

    def _check_counts(self) -> None:
        """Compare what the data object has with what is known of the ledger."""
        info = self._attempt.info
        expected = [
            (f"the copy under the uuid {uuid}", each.last_entry_id + 1, each.length_bytes)
            for uuid, each in self._attempt.other_copies
        ]
        if info is not None and info.entries is not None:
            expected = [(_FROM_METADATA, info.entries, info.size_bytes or 0)]
        walked, count = self._walked, self._walked.table.entry_count
        for who, entries, length_bytes in expected:
            if count != entries:
                message = f"{counted(count, 'entry')} in the data object, {entries} by {who}"
                raise (MissingEntriesError if count < entries else CorruptBlockError)(message)
            if length_bytes not in {0, walked.length_bytes}:
                have = counted(walked.length_bytes, "byte")
                message = f"the entries have {have}, {length_bytes} by {who}"
                raise CorruptBlockError(message)
        if not expected:
            self._check_without_counts()

    def _check_without_counts(self) -> None:
        """Look for signs that entries are missing, if only the objects themselves could say it."""
        walked, damaged = self._walked, self._damaged
        metadata = damaged.ledger_metadata
        if metadata is None:
            if not walked.shows_its_end:
                message = (
                    "nothing says how many entries the ledger has, and the object does not look"
                    " like a whole one: there may have been blocks behind its last"
                )
                raise TruncatedObjectError(message)
            return
        wrong = (
            damaged.data_object_length_bytes != walked.table.data_object_length_bytes,
            metadata.last_entry_id != walked.table.last_entry_id,
            metadata.length_bytes not in {0, walked.length_bytes},
        )
        # One of them may be what is damaged.
        if sum(wrong) > 1:
            message = (
                f"the index object is of {counted(metadata.last_entry_id + 1, 'entry')}, the data"
                f" object has {walked.table.entry_count}"
            )
            raise CorruptIndexError(message, object_key=self._name.index_name)

    def _is_sound(self) -> bool:
        """Whether the index object that is there says the same."""
        if self._old is None:
            return False
        try:
            old = read_index_block(self._old.data, object_key=self._name.index_name)
            name = old.ledger_metadata.managed_ledger_name
        except FormatError:
            return False
        if name is None:
            # It may be in the user metadata, which not every store gives with the bytes.
            user_metadata = self._old.user_metadata
            user_metadata = self._user_metadata if user_metadata is None else user_metadata
            name = (user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        return (
            name == self._managed_ledger
            and old.ledger_metadata.length_bytes in {0, self._walked.length_bytes}
            and old.block_table == self._walked.table
        )

    def _check_readable(self, data: bytes, *, verify: bool) -> None:
        """Read entries by the new index object."""
        name, info = self._name, self._attempt.data
        index = read_index_block(data, object_key=name.index_name, ledger_id=name.ledger_id)
        versions = ObjectVersions(None, None if info is None else info.version)
        ledger = OffloadedLedger(self._location, name, index, versions=versions).data
        last_entry_id = ledger.last_entry_id
        if verify:
            _check_entries(ledger, 0, last_entry_id, verify=True)
            return
        ends = [-1]
        for block, position in enumerate(self._walked.last_positions):
            ends.append(ledger.table.block_last_entry_id(block))
            ledger.remember(ends[-1], position)
        for end in ends:
            _check_entries(ledger, max(end, 0), min(end + 1, last_entry_id))


def _check_entries(
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


def _name_in(metadata: LedgerMetadata) -> str | None:
    """The managed ledger that it names; empty if that cannot be read."""
    try:
        return metadata.managed_ledger_name
    except CorruptIndexError:
        return ""
