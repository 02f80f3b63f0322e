"""Ledger ids for a write, and uuids that identify the ledgers it wrote.

The uuid of a ledger consists of three parts:

- 5 bytes that all runs of a write with an id share,
- 7 bytes of the run's *mark*, a uuid drawn for each run,
- 4 random bytes, drawn for each attempt at a ledger.

So a listing finds everything that a write has left, whichever process wrote it, and attributes no
other ledger to it.
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
    """Ids that ledgers may have. Can be sent to other processes."""

    first: int
    stop: int = MAX_LEDGER_ID + 1
    """End of the range (exclusive)."""
    used_ids: frozenset[int] = frozenset()
    """Ids in the range that existing ledgers have."""

    def share(self, number: int, size: int) -> IdRange:
        """Return the ids of one of several concurrent processes: that with this number, from 0."""
        first = min(self.first + number * size, self.stop)
        return replace(self, first=first, stop=min(first + size, self.stop))


class LedgerIds:
    """A generator of consecutive ledger ids."""

    def __init__(self, ids: IdRange) -> None:
        self._ids = ids
        self._next = ids.first

    def next_id(self) -> int:
        """Return the next ledger id.

        Raises:
            OptionError: A ledger with this id exists, or the range has no further id.
        """
        ledger_id = self._next
        if ledger_id > MAX_LEDGER_ID:
            first = option_name("first_ledger_id")
            message = f"ledger ids end at {MAX_LEDGER_ID}: give a smaller {first}"
            raise OptionError(message)
        if ledger_id >= self._ids.stop:
            capacity = counted(self._ids.stop - self._ids.first, "ledger")
            message = (
                f"a task may write {capacity}: raise {option_name('task_ledgers')}, allow more"
                " entries in a ledger, or use more tasks"
            )
            raise OptionError(message)
        if ledger_id in self._ids.used_ids:
            first = option_name("first_ledger_id")
            message = f"a ledger with this id exists already: give another {first}"
            raise OptionError(message, ledger_id=ledger_id)
        self._next += 1
        return ledger_id


def new_mark(topic: TopicName, write_id: str | None) -> UUID:
    """Return a mark for a run of a write: a random uuid whose first bytes identify the write.

    `write_id` is None if the write has no id, or not yet.
    """
    return mark_with_id(uuid4(), topic, write_id)


def mark_with_id(mark: UUID, topic: TopicName, write_id: str | None) -> UUID:
    """Return the run's mark for a write whose id has become known."""
    if write_id is None:
        return mark
    return UUID(bytes=_hash(topic, write_id) + mark.bytes[_WRITE_BYTES.stop :])


def ledger_uuid(mark: UUID) -> UUID:
    """Return a new uuid for a ledger of the run with this mark."""
    return UUID(bytes=mark.bytes[: _RUN_BYTES.stop] + secrets.token_bytes(_RANDOM_BYTES))


def has_mark(uuid: UUID, mark: UUID) -> bool:
    """Return whether a ledger's uuid belongs to the run with this mark."""
    return uuid.bytes[_RUN_BYTES] == mark.bytes[_RUN_BYTES]


def belongs_to_write(uuid: UUID, topic: TopicName, write_id: str) -> bool:
    """Return whether a ledger's uuid belongs to any run of the write with this id."""
    return uuid.bytes[_WRITE_BYTES] == _hash(topic, write_id)


def _hash(topic: TopicName, write_id: str) -> bytes:
    return sha256(f"{topic} {write_id}".encode()).digest()[_WRITE_BYTES]


def list_names(location: Location) -> list[ParsedName]:
    """Return the parsed names of all ledger objects in the bucket, from one listing."""
    try:
        objects = location.list_objects()
    except MissingObjectError:
        return []
    return _parse_names(each.name for each in objects)


def ledger_object_names(names: Iterable[ParsedName]) -> set[LedgerObjectName]:
    """Return the ledgers, and attempts to offload one, that the objects belong to."""
    return {name.ledger_object_name for name in names if not name.is_streaming}


def find_unpublished(
    names: Collection[ParsedName], is_own: Callable[[UUID], bool]
) -> set[LedgerObjectName]:
    """Return the write's ledgers that have a data object but no index object."""
    published = {name.uuid for name in names if name.is_index}
    return ledger_object_names(
        name for name in names if name.uuid not in published and is_own(name.uuid)
    )


def check_alone(
    location: Location, is_own: Callable[[UUID], bool], ids: Collection[int]
) -> set[LedgerObjectName]:
    """Check by one listing that nobody else wrote ledgers with these ids.

    If two writers have both written, at least the one that checks last finds the other. `is_own`
    returns whether a ledger's uuid belongs to this write.

    Returns:
        All ledgers that the write has in the bucket, including failed attempts.

    Raises:
        OptionError: Another writer has an object of a ledger with one of the ids.
    """
    names = ledger_object_names(list_names(location))
    own_names = {name for name in names if is_own(name.uuid)}
    for name in names - own_names:
        if name.ledger_id in ids:
            message = (
                "another writer used the ids of these ledgers in the meantime: write again, and"
                " let only one writer at a time write to a bucket"
            )
            raise OptionError(message, object_key=name.data_name, ledger_id=name.ledger_id)
    return own_names


def delete_marked(offloader: LedgerOffloader, mark: UUID) -> tuple[int, list[str]]:
    """Delete all ledgers that the run with a mark has written, including unfinished uploads.

    Returns:
        Number of ledgers, and warnings of `LedgerOffloader.delete_offloaded`.
    """
    names = ledger_object_names(list_names(offloader.location))
    try:
        uploads = offloader.location.unfinished_uploads()
    except MissingObjectError:
        uploads = []
    names |= ledger_object_names(_parse_names(each.name for each in uploads))
    own_names = [each for each in names if has_mark(each.uuid, mark)]
    warnings: dict[str, None] = {}
    # Newest first, so that no gap appears between ledgers if this is interrupted.
    for name in sorted(own_names, key=lambda each: each.ledger_id, reverse=True):
        warnings |= dict.fromkeys(offloader.delete_offloaded(name.ledger_id, name.uuid))
    return len(own_names), list(warnings)


def _parse_names(objects: Iterable[str]) -> list[ParsedName]:
    return [name for name in map(parse_object_name, objects) if name is not None]
