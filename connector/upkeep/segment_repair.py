"""Rebuilds the index object of a segment of streaming offload (PIP-76) from its data object.

The data object says where each entry stands. What else an index object has is the number of
entries, the size and the time of closing of each ledger: from the metadata, from other segments of
the ledger, or from what is left of the damaged index object. Of a ledger that may still be open,
Pulsar's writer notes up to which entry it has it, and so does this.

The new index object gives offsets by the writer's count, as Pulsar's own does, though it miscounts:
it is then the one that was lost, and whatever read that reads this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.errors import (
    CorruptBlockError,
    CorruptIndexError,
    FormatError,
    MissingEntriesError,
    TruncatedObjectError,
)
from arrow_io.format.damaged_index import read_damaged_segment_index
from arrow_io.format.index_block import MANAGED_LEDGER_NAME_KEY, check_format_version
from arrow_io.format.streaming_index import (
    ShareInfo,
    read_segment_index,
    serialize_segment_index,
)
from arrow_io.ledger_reader import ObjectVersions
from arrow_io.segment_reader import OffloadedSegment
from arrow_io.segment_walk import walk_segment
from arrow_io.storage.ranges import RangeReader
from arrow_io.wording import counted
from connector.offloader import IndexObject, index_user_metadata
from connector.upkeep.attempt import (
    FROM_DAMAGED,
    FROM_METADATA,
    IS_SOUND,
    MADE_ANEW,
    RebuiltLedger,
    Repair,
    check_entries,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arrow_io.segment_walk import WalkedSegment, WalkedShare
    from arrow_io.segmented_ledger import SegmentShare
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.upkeep.attempt import SegmentAttempt


def planned_segment(
    location: Location, attempt: SegmentAttempt, data: ObjectInfo, *, verify: bool
) -> Repair:
    """Rebuild the index object of a segment, without writing it.

    Args:
        location: The bucket.
        attempt: The segment.
        data: Its data object.
        verify: Whether to read all entries by the new index object, and compare their checksums.

    Raises:
        FormatError: What is there contradicts itself, or lacks something.
        MissingObjectError: An object was deleted since the bucket was listed.
        ObjectChangedError: One was replaced since.
        StorageError: The store refused, or went on failing.
    """
    reader = RangeReader(location, attempt.name.data_name, data.size_bytes, data.version)
    walked = walk_segment(reader)
    name = attempt.name
    user_metadata = location.user_metadata(name.data_name) or {}
    check_format_version(user_metadata, object_key=name.data_name)
    _check_topic(attempt, user_metadata.get(MANAGED_LEDGER_NAME_KEY))
    old = attempt.old_index(location)
    known = _Known(attempt, walked, b"" if old is None else old.data)
    shares = known.shares()
    ledgers = tuple(each.ledger for each in shares)
    if old is not None and _is_sound(old.data, walked, shares):
        return Repair(attempt, ledgers=ledgers, refusal=IS_SOUND)
    known.check_agreed()
    content = serialize_segment_index(
        walked.told_length_bytes,
        walked.header_length_bytes,
        [(each.info, each.walked.rows) for each in shares],
    )
    index = read_segment_index(content, object_key=name.index_name)
    segment = OffloadedSegment(
        location,
        name,
        index,
        data_size_bytes=data.size_bytes,
        versions=ObjectVersions(None, data.version),
    )
    _check_readable(segment.with_real_starts(), walked, verify=verify)
    return Repair(
        attempt,
        IndexObject(name.index_name, content, index_user_metadata(user_metadata, None)),
        ledgers,
    )


def _check_topic(attempt: SegmentAttempt, own: str | None) -> None:
    """Compare the topic that the data object names, if it does, with that of the metadata."""
    topic = attempt.topic
    if attempt.named and own is not None and topic and own != topic.managed_ledger_name:
        message = (
            f"the data object is of managed ledger {own!r}, its topic's is"
            f" {topic.managed_ledger_name!r}"
        )
        raise CorruptBlockError(message)


@dataclass(frozen=True, slots=True)
class _Share:
    """What the new index object says of a ledger."""

    walked: WalkedShare
    info: ShareInfo
    ledger: RebuiltLedger
    last_entry_id: int
    """The last entry of it that was given to the segment, whether it is there or lost."""

    def is_told_by(self, info: ShareInfo) -> bool:
        """Whether an index object says the same, or what was right while the ledger was open."""
        told = info.entries, info.size_bytes, info.timestamp_ms
        return told in {
            (self.info.entries, self.info.size_bytes, self.info.timestamp_ms),
            (self.last_entry_id + 1, None, None),
        }


class _Known:
    """Compares what was found in a data object with what is known of its ledgers."""

    def __init__(self, attempt: SegmentAttempt, walked: WalkedSegment, old_index: bytes) -> None:
        self._attempt = attempt
        self._walked = walked
        self._damaged = read_damaged_segment_index(old_index)

    def shares(self) -> list[_Share]:
        """What is to be said of each ledger, in the order in which they stand in the object.

        Raises:
            CorruptBlockError: The data object is not what is known of it.
            MissingEntriesError: It lacks entries for which its writer had room.
            TruncatedObjectError: Nothing tells whether it is whole.
        """
        found = {each.ledger_id for each in self._walked.shares}
        for ledger_id in self._attempt.named:
            if ledger_id not in found:
                message = "the data object has no entry of a ledger that the metadata says is in it"
                raise MissingEntriesError(message, ledger_id=ledger_id)
        return [self._share(each) for each in self._walked.shares]

    def check_agreed(self) -> None:
        """Check that all who say something of a ledger that was closed say the same.

        Only the metadata counts more than the index object that is there. Which of several is
        damaged, nothing else can tell; so a sound index object is to be kept before this.

        Raises:
            CorruptIndexError: They do not.
        """
        for walked in self._walked.shares:
            told, who = self._closed(walked)
            for other, teller in self._told_closed(walked):
                is_weaker = who == FROM_METADATA and teller == FROM_DAMAGED
                if told is not None and not is_weaker and not told.agrees(other):
                    message = f"{teller} says something else of the ledger than {who}"
                    raise CorruptIndexError(message, ledger_id=walked.ledger_id)

    def _share(self, walked: WalkedShare) -> _Share:
        try:
            self._check_begin(walked)
            closed, source = self._closed(walked)
            told, told_by = self._told_end(walked, closed)
            tail = self._missing_behind(walked, told, told_by)
        except FormatError as error:
            error.located(ledger_id=walked.ledger_id)
            raise
        last = walked.last_entry_id + tail
        rebuilt = RebuiltLedger(
            walked.ledger_id,
            walked.entry_count,
            len(walked.blocks),
            source or told_by or MADE_ANEW,
            last + 1 - walked.first_entry_id - walked.entry_count,
        )
        info = ShareInfo(walked.ledger_id, last + 1, None, None)
        if closed is not None and closed.is_closed:
            info = closed
        return _Share(walked, info, rebuilt, last)

    def _check_begin(self, walked: WalkedShare) -> None:
        """Check that no entry is missing between a segment and the one before it."""
        end = self._attempt.end_before(walked.ledger_id)
        if end is not None and walked.first_entry_id > end + 1:
            message = f"the ledger begins with entry {walked.first_entry_id} in the data object,"
            raise MissingEntriesError(f"{message} behind {end} by the metadata", entry_id=end + 1)

    def _is_last(self, walked: WalkedShare) -> bool:
        """Whether no other ledger follows in the object."""
        return walked is self._walked.shares[-1]

    def _has_end(self, walked: WalkedShare, closed: ShareInfo) -> bool:
        """Whether the ledger's last entry was given to the segment: it goes on in no other."""
        if not self._is_last(walked):
            return True
        end = self._attempt.named_end(walked.ledger_id)
        return self._attempt.ends(walked.ledger_id) if end is None else end == closed.entries - 1

    def _closed(self, walked: WalkedShare) -> tuple[ShareInfo | None, str | None]:
        """What is known of a ledger that was closed, and who says it; its time may be unknown."""
        told = next(self._told_closed(walked), None)
        if told is None:
            return None, None
        error = self._objection(walked, *told)
        if error is not None:
            raise error
        return told

    def _told_closed(self, walked: WalkedShare) -> Iterator[tuple[ShareInfo, str]]:
        """What is said of a ledger that was closed, the surest first."""
        ledger_id = walked.ledger_id
        others: list[tuple[ShareInfo, str]] = [
            (info, f"the segment {uuid}")
            for uuid, info in self._attempt.others.get(ledger_id, ())
            if uuid != self._attempt.name.uuid
        ]
        group = self._damaged.groups.get(ledger_id)
        if (
            group is not None
            and group.is_closed
            and group.size_bytes is not None
            and self._objection(walked, group, FROM_DAMAGED) is None
        ):
            others.append((group, FROM_DAMAGED))
        known = self._attempt.infos.get(ledger_id)
        if known is not None and known.entries:
            # Not every source says how long it was, and when it was closed.
            same = [each for each, _ in others if each.entries == known.entries]
            here = walked.length_bytes if walked.entry_count == known.entries else None
            sizes = (known.size_bytes, here, *(each.size_bytes for each in same))
            times = (known.timestamp_ms, *(each.timestamp_ms for each in same))
            size_bytes, closed_ms = (next(filter(None, each), None) for each in (sizes, times))
            yield ShareInfo(ledger_id, known.entries, size_bytes, closed_ms), FROM_METADATA
        yield from others

    def _objection(self, walked: WalkedShare, info: ShareInfo, who: str) -> FormatError | None:
        """Why entries that were found cannot be those of a ledger; None if they can."""
        if walked.last_entry_id >= info.entries:
            message = f"entry {walked.last_entry_id} is in the data object, {who} tells of"
            return CorruptBlockError(f"{message} {counted(info.entries, 'entry')}")
        if walked.first_entry_id or not self._has_end(walked, info):
            return None
        # All entries of the ledger were given to the segment.
        length_bytes = info.size_bytes or walked.length_bytes
        behind = info.entries - 1 - walked.last_entry_id
        if walked.may_lack(behind, length_bytes - walked.length_bytes):
            return None
        if walked.entry_count == info.entries:
            have = counted(walked.length_bytes, "byte")
            return CorruptBlockError(f"the entries have {have}, {length_bytes} by {who}")
        count = counted(walked.entry_count, "entry")
        return MissingEntriesError(f"{count} in the data object, {info.entries} by {who}")

    def _told_end(
        self, walked: WalkedShare, closed: ShareInfo | None
    ) -> tuple[int | None, str | None]:
        """The last entry of a ledger that was given to the segment, and who says it."""
        if closed is not None and self._has_end(walked, closed):
            return closed.entries - 1, None
        has_all = closed is not None and closed.entries - 1 == walked.last_entry_id
        named = self._attempt.named_end(walked.ledger_id)
        if named is not None:
            return named, FROM_METADATA
        group = self._damaged.groups.get(walked.ledger_id)
        if group is not None and not group.is_closed and walked.may_end_with(group.entries - 1):
            return group.entries - 1, FROM_DAMAGED
        # Another ledger may have followed, which only the index object can rule out.
        return (walked.last_entry_id if has_all and self._tells_end() else None), None

    def _missing_behind(self, walked: WalkedShare, told: int | None, who: str | None) -> int:
        """How many entries are missing behind the last of a ledger."""
        last, block = walked.last_entry_id, walked.blocks[-1]
        if told is None:
            if self._is_last(walked) and not self._tells_end():
                message = (
                    "nothing says where the segment ends: there may have been blocks behind the"
                    " last that is there"
                )
                raise TruncatedObjectError(message, offset=block.stop)
            if block.may_lack(1):
                message = (
                    "its writer may have left no room for entries behind the last that is there,"
                    " and nothing says how many there were"
                )
                raise MissingEntriesError(message, entry_id=last + 1, offset=block.stop)
            return 0
        if not walked.may_end_with(told):
            message = (
                f"the last entry of the ledger in the data object is {last}, {told} by"
                f" {who or 'the number of its entries'}"
            )
            kind = CorruptBlockError if told < last else MissingEntriesError
            raise kind(message, entry_id=min(last, told) + 1, offset=block.stop)
        return told - last

    def _tells_end(self) -> bool:
        """Whether what is left of the index object says that the data object is whole."""
        if self._damaged.data_object_length_bytes == self._walked.told_length_bytes:
            return True
        told = {each.ledger_id: each.rows for each in self._damaged.groups.values()}
        return told == {each.ledger_id: each.rows for each in self._walked.shares}


def _is_sound(data: bytes, walked: WalkedSegment, shares: Sequence[_Share]) -> bool:
    """Whether the index object that is there says the same."""
    try:
        old = read_segment_index(data, object_key="")
    except FormatError:
        return False
    lengths = old.data_object_length_bytes, old.data_header_length_bytes
    told = {each.ledger_id: each for each in old.groups}
    rows = {each.ledger_id: each.rows for each in old.groups}
    return (
        lengths == (walked.told_length_bytes, walked.header_length_bytes)
        and rows == {each.ledger_id: each.rows for each in walked.shares}
        and all(each.is_told_by(told[each.info.ledger_id]) for each in shares)
    )


def _check_readable(segment: OffloadedSegment, walked: WalkedSegment, *, verify: bool) -> None:
    """Read entries by the new index object."""
    for share, found in zip(segment.shares, walked.shares, strict=True):
        if verify:
            for block in found.blocks:
                check_entries(share, block.first_entry_id, block.last_entry_id, verify=True)
        else:
            _check_bounds(share, found)


def _check_bounds(share: SegmentShare, found: WalkedShare) -> None:
    """Read the entries on both sides of each block's bounds."""
    for block in found.blocks:
        share.remember(block.last_entry_id, block.last_position)
    ends = [each.last_entry_id for each in found.blocks]
    firsts = [each.first_entry_id for each in found.blocks]
    check_entries(share, firsts[0], firsts[0])
    for end, first in zip(ends, [*firsts[1:], None], strict=True):
        if first is None or first > end + 1:
            check_entries(share, end, end)
        if first is not None:
            check_entries(share, end if first == end + 1 else first, first)
