"""Ledger ids that a write may give, and uuids by which what it wrote is known as its own.

The uuid of a ledger has 5 bytes that are the same for all runs of a write that has an id, 7 of the
mark of the run, and 4 that are drawn anew for each attempt at a ledger. So all that a write has
left is found in a listing, whichever process wrote it, and no other ledger is taken for it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from arrow_io.core.option_names import option_name
from arrow_io.core.wording import counted
from arrow_io.errors import MissingObjectError, OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID, LedgerObjectName, parse_object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from arrow_io.format.object_names import ParsedName
    from arrow_io.storage.location import Location
    from connector.inputs.topic_names import TopicName
    from connector.writing.offloader import LedgerOffloader

_WRITE_BYTES: Final = slice(0, 5)
_RUN_BYTES: Final = slice(5, 12)
_RANDOM_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRange:
    """Ids that ledgers may have: a value that goes to other processes."""

    first: int
    stop: int = MAX_LEDGER_ID + 1
    """Behind the last (half-open)."""
    used: frozenset[int] = frozenset()
    """Those that there is a ledger of."""

    def share(self, number: int, size: int) -> IdRange:
        """The ids of one of several that write at once, without knowing of each other.

        Args:
            number: Which of them, from 0.
            size: How many ids each has.
        """
        first = min(self.first + number * size, self.stop)
        return replace(self, first=first, stop=min(first + size, self.stop))


class LedgerIds:
    """Gives ids, one after the other.

    Args:
        ids: The ids that may be given.
    """

    def __init__(self, ids: IdRange) -> None:
        self._ids = ids
        self._next = ids.first

    def next_id(self) -> int:
        """The next ledger id.

        Raises:
            OptionError: There is a ledger of that id, or no further id may be given.
        """
        ledger_id = self._next
        if ledger_id > MAX_LEDGER_ID:
            first = option_name("first_ledger_id")
            message = f"ledger ids end with {MAX_LEDGER_ID}: give a smaller {first}"
            raise OptionError(message)
        if ledger_id >= self._ids.stop:
            most = counted(self._ids.stop - self._ids.first, "ledger")
            message = (
                f"a task may write {most}: give"
                f" {option_name('task_ledgers')} for more, let ledgers have more entries, or have"
                " more tasks"
            )
            raise OptionError(message)
        if ledger_id in self._ids.used:
            first = option_name("first_ledger_id")
            message = f"there is a ledger of this id already: give another {first}"
            raise OptionError(message, ledger_id=ledger_id)
        self._next += 1
        return ledger_id


def new_mark(topic: TopicName, write_id: str | None) -> UUID:
    """A mark for a run of a write, as random as a uuid is but for what tells of the write.

    Args:
        topic: The topic that is written to.
        write_id: The id of the write; None: it has none, or not yet.
    """
    return mark_with_id(uuid4(), topic, write_id)


def mark_with_id(mark: UUID, topic: TopicName, write_id: str | None) -> UUID:
    """The mark of the same run of a write, of which the id is known now."""
    if write_id is None:
        return mark
    return UUID(bytes=_hash(topic, write_id) + mark.bytes[_WRITE_BYTES.stop :])


def ledger_uuid(mark: UUID) -> UUID:
    """A new uuid for a ledger of a write.

    Args:
        mark: The mark of the run.
    """
    return UUID(bytes=mark.bytes[: _RUN_BYTES.stop] + secrets.token_bytes(_RANDOM_BYTES))


def has_mark(uuid: UUID, mark: UUID) -> bool:
    """Whether a ledger of this uuid is of the run of a write with this mark."""
    return uuid.bytes[_RUN_BYTES] == mark.bytes[_RUN_BYTES]


def belongs_to_write(uuid: UUID, topic: TopicName, write_id: str) -> bool:
    """Whether a ledger of this uuid is of any run of the write with this id."""
    return uuid.bytes[_WRITE_BYTES] == _hash(topic, write_id)


def _hash(topic: TopicName, write_id: str) -> bytes:
    return sha256(f"{topic} {write_id}".encode()).digest()[_WRITE_BYTES]


def list_names(location: Location) -> list[ParsedName]:
    """The names of all objects of ledgers in the bucket; one listing.

    Raises:
        StorageError: The bucket cannot be listed.
    """
    try:
        objects = location.list_objects()
    except MissingObjectError:
        return []
    return _parse_names(each.name for each in objects)


def ledger_object_names(names: Iterable[ParsedName]) -> set[LedgerObjectName]:
    """The ledgers, and attempts to offload one, that some objects are of."""
    return {name.ledger_object_name for name in names if not name.is_streaming}


def find_unpublished(
    names: Collection[ParsedName], is_own: Callable[[UUID], bool]
) -> set[LedgerObjectName]:
    """The ledgers of some uuids that have a data object among the names, and no index object."""
    published = {name.uuid for name in names if name.is_index}
    return ledger_object_names(
        name for name in names if name.uuid not in published and is_own(name.uuid)
    )


def check_alone(
    location: Location, is_own: Callable[[UUID], bool], ids: Collection[int]
) -> set[LedgerObjectName]:
    """Check that nobody else wrote ledgers of these ids; one listing.

    Of two writers that have both written, at least the one that asks later finds the other.

    Args:
        location: The bucket.
        is_own: Whether a ledger of a uuid is of the write that asks.
        ids: The ids of its ledgers.

    Returns:
        All that the write has in the bucket, attempts that came to nothing too.

    Raises:
        OptionError: There is another ledger, or a part of one, of an id.
        StorageError: The bucket cannot be listed.
    """
    names = ledger_object_names(list_names(location))
    own = {name for name in names if is_own(name.uuid)}
    for name in names - own:
        if name.ledger_id in ids:
            message = (
                "another writer took ids of these ledgers meanwhile: write again, and let one"
                " writer at a time write to a bucket"
            )
            raise OptionError(message, object_key=name.data_name, ledger_id=name.ledger_id)
    return own


def delete_marked(offloader: LedgerOffloader, mark: UUID) -> tuple[int, list[str]]:
    """Delete what a write has left, which is no more, half-written ledgers too.

    Args:
        offloader: What it offloaded with, or alike.
        mark: Its mark.

    Returns:
        How many ledgers there were, and warnings of `LedgerOffloader.delete_offloaded`.

    Raises:
        StorageError: The store refused, or went on failing.
    """
    names = ledger_object_names(list_names(offloader.location))
    try:
        uploads = offloader.location.unfinished_uploads()
    except MissingObjectError:
        uploads = []
    names |= ledger_object_names(_parse_names(each.name for each in uploads))
    own = [each for each in names if has_mark(each.uuid, mark)]
    warnings: dict[str, None] = {}
    # The newest first, so that no ledger is ever missing between others.
    for name in sorted(own, key=lambda each: each.ledger_id, reverse=True):
        warnings |= dict.fromkeys(offloader.delete_offloaded(name.ledger_id, name.uuid))
    return len(own), list(warnings)


def _parse_names(objects: Iterable[str]) -> list[ParsedName]:
    return [name for name in map(parse_object_name, objects) if name is not None]
