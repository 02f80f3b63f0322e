"""Rebuilding the index object of an offloaded ledger (PIP-17) from its data object.

The data object tells the position of each entry. The rest of an index object is BookKeeper's
metadata of the ledger. It is taken from the damaged index object or from another copy of the
ledger, or is created anew.
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
    from arrow_io.ledgers.data_object_walk import WalkedObject
    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectContent, ObjectInfo
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.inputs.topic_names import AnyTopic

_Name = TypeVar("_Name", bound="PairName")

REBUILT: Final = "made anew"
"""The source of the ledger's metadata if it exists nowhere: see docs/command-line.md."""
FROM_DAMAGED: Final = "the damaged index object"
_FROM_METADATA: Final = "the metadata"
IS_SOUND: Final = "the index object matches the data object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(Generic[_Name]):
    """One offload attempt.

    Attributes:
        data: Listing entry of the data object. None if it is missing.
        index: Listing entry of the index object. None if it is missing.
        ledger_ids: Ledgers that it has entries of, as far as they are known.
        problem: What is wrong with the index object. None if no problem is known.
        topic: Topic of the ledgers, if the metadata or the index object names it.
        other_copies: Metadata of the ledger in other copies with a sound index object, by their
            uuid.
        refusal: Why the index object is not rebuilt. None if it is.
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
        """Return the existing index object. None if it is missing, or too large to be one."""
        if self.index is None or self.index.size_bytes > MAX_INDEX_OBJECT_BYTES:
            return None
        return location.read_object(
            self.index.name, max_bytes=MAX_INDEX_OBJECT_BYTES, version=self.index.version
        )


@dataclass(frozen=True, slots=True)
class RebuiltLedger:
    """The ledger of a rebuilt index object.

    Attributes:
        entries: Number of its entries in the data object.
        blocks: Number of its data blocks.
        metadata_from: The source of its metadata in the new index object.
    """

    ledger_id: int
    entries: int
    blocks: int
    metadata_from: str | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair of one offload attempt.

    Attributes:
        attempt: The attempt, and what is wrong with its index object.
        index: The index object to write. None if none is written.
        checksums: The object with the checksums of the index object, to be written before it. None
            if none is written.
        ledger: The ledger as found in the data object. None if it was not read.
        error: Why no index object can be rebuilt. None if one can, or need not be.
        refusal: Why no index object is written. None if one is.
    """

    attempt: Attempt[Any]
    index: IndexObject | None = None
    ledger: RebuiltLedger | None = None
    error: PulsarOffloadError | None = None
    refusal: str | None = None
    checksums: IndexObject | None = None


def plan_ledger_repair(
    location: Location, attempt: Attempt[LedgerObjectName], data: ObjectInfo, *, verify: bool
) -> Repair:
    """Rebuild the index object of a ledger in memory, without writing it.

    If `verify` is set, all entries are read with the new index object, and their checksums
    compared.

    Raises:
        FormatError: The objects contradict each other, or are incomplete.
        MissingObjectError: An object was deleted since the bucket was listed.
        ObjectChangedError: An object was replaced since the bucket was listed.
        StorageError: The store refused, or kept failing.
    """
    reader = RangeReader(location, attempt.name.data_name, data.size_bytes, data.version)
    walk = walk_data_object(reader, attempt.name.ledger_id)
    return _IndexRebuilder(location, attempt, walk).plan(verify=verify)


class _IndexRebuilder:
    """Rebuilds the index object of a data object that was read completely."""

    def __init__(
        self, location: Location, attempt: Attempt[LedgerObjectName], walk: WalkedObject
    ) -> None:
        self._location = location
        self._attempt = attempt
        self._name = name = attempt.name
        self._walk = walk
        self._old = attempt.old_index(location)
        self._damaged = DamagedIndex() if self._old is None else read_damaged_index(self._old.data)
        self._user_metadata = location.user_metadata(name.data_name)
        check_format_version(self._user_metadata, object_key=name.data_name)
        self._managed_ledger = self._owner()

    def plan(self, *, verify: bool) -> Repair:
        table = self._walk.table
        topic = managed_ledger_owner(self._managed_ledger)
        attempt = replace(self._attempt, topic=topic)
        ledger = RebuiltLedger(self._name.ledger_id, table.entry_count, table.block_count)
        self._check_counts()
        if self._is_sound():
            return Repair(attempt, ledger=ledger, refusal=IS_SOUND)
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
        topic, info = self._attempt.topic, self._attempt.info
        topic_name = None if topic is None else topic.managed_ledger_name
        own = (self._user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        if None not in (info, own) and topic_name != own:
            message = (
                f"the data object is of managed ledger {own!r}, but its topic's is {topic_name!r}"
            )
            raise CorruptBlockError(message)
        damaged = self._damaged.ledger_metadata
        name = own or topic_name or (damaged and _name_in(damaged))
        if not name:
            message = "the topic of the ledger is unknown: pass metadata, which names it"
            raise CorruptIndexError(message, object_key=self._name.index_name)
        return name

    def _metadata(self) -> tuple[LedgerMetadata, str]:
        damaged = self._damaged.ledger_metadata
        if damaged is not None and (candidate := self._fit(damaged, max_wrong=1)):
            return candidate, FROM_DAMAGED
        for uuid, other in self._attempt.other_copies:
            if (candidate := self._fit(other, max_wrong=0)) is not None:
                return candidate, f"the copy with uuid {uuid}"
        # The creation time is unknown, and readers would skip ledgers because of a wrong one.
        new = new_ledger_metadata(
            [self._walk.length_bytes], managed_ledger=self._managed_ledger, ctime_ms=0
        )
        last_entry_id = self._walk.table.last_entry_id
        return replace(new, last_entry_id=last_entry_id, ctime_ms=None), REBUILT

    def _fit(self, metadata: LedgerMetadata, *, max_wrong: int) -> LedgerMetadata | None:
        """Return the metadata with corrected name and numbers, or None if it is another ledger's.

        At most `max_wrong` of its numbers may be wrong.
        """
        last_entry_id, length_bytes = self._walk.table.last_entry_id, self._walk.length_bytes
        wrong = (metadata.last_entry_id != last_entry_id) + (metadata.length_bytes != length_bytes)
        name = _name_in(metadata)
        if wrong > max_wrong or name not in {None, self._managed_ledger}:
            return None
        if wrong:
            metadata = replace(metadata, last_entry_id=last_entry_id, length_bytes=length_bytes)
        # Older releases store the name only in the user metadata.
        if name is None and self._user_metadata is None:
            named = {MANAGED_LEDGER_KEY: self._managed_ledger.encode()}
            metadata = replace(metadata, custom_metadata={**metadata.custom_metadata, **named})
        return metadata

    def _check_counts(self) -> None:
        """Compare the data object with the recorded entry count and length of the ledger."""
        info = self._attempt.info
        expected = [
            (f"the copy with uuid {uuid}", each.last_entry_id + 1, each.length_bytes)
            for uuid, each in self._attempt.other_copies
        ]
        if info is not None and info.entries is not None:
            expected = [(_FROM_METADATA, info.entries, info.size_bytes or 0)]
        walk, count = self._walk, self._walk.table.entry_count
        for who, entries, length_bytes in expected:
            if count != entries:
                message = (
                    f"{counted(count, 'entry')} in the data object, {entries} according to {who}"
                )
                raise (MissingEntriesError if count < entries else CorruptBlockError)(message)
            if length_bytes not in {0, walk.length_bytes}:
                have = counted(walk.length_bytes, "byte")
                message = f"the entries have {have}, {length_bytes} according to {who}"
                raise CorruptBlockError(message)
        if not expected:
            self._check_without_counts()

    def _check_without_counts(self) -> None:
        """Look for signs of missing entries if no other source has the ledger's counts."""
        walk, damaged = self._walk, self._damaged
        metadata = damaged.ledger_metadata
        if metadata is None:
            if not walk.looks_complete:
                message = (
                    "the number of entries of the ledger is unknown, and the data object does not"
                    " look complete: blocks after its last one may be missing"
                )
                raise TruncatedObjectError(message)
            return
        wrong = (
            damaged.data_object_length_bytes != walk.table.data_object_length_bytes,
            metadata.last_entry_id != walk.table.last_entry_id,
            metadata.length_bytes not in {0, walk.length_bytes},
        )
        # A single difference may be damage to the index object.
        if sum(wrong) > 1:
            message = (
                f"the index object has {counted(metadata.last_entry_id + 1, 'entry')}, the data"
                f" object has {walk.table.entry_count}"
            )
            raise CorruptIndexError(message, object_key=self._name.index_name)

    def _is_sound(self) -> bool:
        if self._old is None:
            return False
        try:
            old = read_index_block(self._old.data, object_key=self._name.index_name)
            name = old.ledger_metadata.managed_ledger_name
        except FormatError:
            return False
        if name is None:
            # It may be in the user metadata, which not every store returns with the object.
            user_metadata = self._old.user_metadata
            user_metadata = self._user_metadata if user_metadata is None else user_metadata
            name = (user_metadata or {}).get(MANAGED_LEDGER_NAME_KEY)
        return (
            name == self._managed_ledger
            and old.ledger_metadata.length_bytes in {0, self._walk.length_bytes}
            and old.block_table == self._walk.table
        )

    def _check_readable(self, data: bytes, *, verify: bool) -> None:
        name, info = self._name, self._attempt.data
        index = read_index_block(data, object_key=name.index_name, ledger_id=name.ledger_id)
        versions = ObjectVersions(None, None if info is None else info.version)
        ledger = OffloadedLedger(self._location, name, index, versions=versions).data
        last_entry_id = ledger.last_entry_id
        if verify:
            check_entries(ledger, 0, last_entry_id, verify=True)
            return
        ends = [-1]
        for block, position in enumerate(self._walk.last_positions):
            ends.append(ledger.table.block_last_entry_id(block))
            ledger.remember(ends[-1], position)
        for end in ends:
            check_entries(ledger, max(end, 0), min(end + 1, last_entry_id))


def check_entries(
    ledger: Ledger, first_entry_id: int, last_entry_id: int, *, verify: bool = False
) -> None:
    """Read entries up to the last (inclusive), and compare their checksums if `verify` is set.

    Raises:
        PulsarOffloadError: See `Ledger.entry_runs`; or an entry is damaged.
    """
    for run in ledger.entry_runs(first_entry_id, last_entry_id, Tally(), verify_checksums=verify):
        if verify:
            for broken in run.flagged(layout.BROKEN):
                raise run.error(broken)


def _name_in(metadata: LedgerMetadata) -> str | None:
    """Return the managed ledger that the metadata names, or an empty string if it is unreadable."""
    try:
        return metadata.managed_ledger_name
    except CorruptIndexError:
        return ""
