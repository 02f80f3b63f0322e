"""Repair of missing and damaged index objects: rebuild them from their data objects."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.prefetch import prefetch_units
from arrow_io.errors import FormatError, MissingObjectError, ObjectChangedError
from arrow_io.format.object_names import LedgerObjectName, MapFileName, has_ledger_id
from connector.catalog.kinds.registry import kind_of
from connector.catalog.ledger_origin import ledger_metadata_of
from connector.upkeep.repair.ledger_repair import Attempt, Repair, plan_ledger_repair
from connector.upkeep.repair.map_file_repair import plan_map_file_repair

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from uuid import UUID

    from arrow_io.errors import PulsarOffloadError
    from arrow_io.format.object_names import CopyName, PairName
    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.catalog import Catalog
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import TopicName
    from connector.writing.offloader import IndexObject

_CONCURRENT_LEDGERS: Final = 8
_NO_INDEX: Final = "there is no index object"
_UNDER_WAY: Final = "the metadata says that this offload is under way, or failed"
_NO_DATA: Final = "its data object is missing"
_NOT_NAMED: Final = "the metadata of no topic names this offload"
_PLANNERS: Final[Mapping[type, Callable[..., Repair]]] = {
    LedgerObjectName: plan_ledger_repair,
    MapFileName: plan_map_file_repair,
}
"""The function that rebuilds an index object, by the class of its name; other kinds have none."""


def plan_repair(
    catalog: Catalog, ledger_ids: Collection[int] = (), *, verify: bool = False
) -> Generator[Repair, None, None]:
    """Rebuild missing and unsound index objects in memory, without writing them.

    Data objects are read from start to end, several at once. Each new index object is checked with
    this project's own reader: the entries on both sides of each block boundary must be where it
    says.

    Args:
        catalog: The bucket, with metadata if available. With metadata, only attempts that it names
            are rebuilt. Without, an attempt is not rebuilt if another copy of its ledger is sound.
        ledger_ids: Ledgers whose every attempt is compared with its data object, even if no problem
            is known. Empty: all ledgers with a known problem.
        verify: Whether to read all entries with the new index object, and compare their checksums.

    Yields:
        The repair of each attempt, ordered by the names of the objects.

    Raises:
        PulsarOffloadError: The metadata or the bucket cannot be read.
    """
    location = catalog.location
    units = (
        partial(_plan, location, each, verify=verify)
        for each in _repairable_attempts(catalog, ledger_ids)
    )
    threads = min(_CONCURRENT_LEDGERS, location.max_connections)
    yield from prefetch_units(units, threads=threads)


def repair(location: Location, plan: Iterable[Repair]) -> Iterator[Repair]:
    """Write the index objects of a plan, each before the next one is planned.

    An index object is written only if none exists, or in place of the one that was found unsound.

    Yields:
        Each repair when it is finished, including those that write nothing.

    Raises:
        ObjectChangedError: An object was written or replaced since the bucket was listed.
        MissingObjectError: An object was deleted since the bucket was listed.
        StorageError: The store refused, or kept failing.
    """
    for each in plan:
        if each.index is not None:
            if each.checksums is not None:
                # First: nobody can read the index that they do not match, before or after.
                location.write_object(each.checksums.name, each.checksums.data, user_metadata={})
            _write(location, each.attempt, each.index)
        yield each


def _write(location: Location, attempt: Attempt[Any], index: IndexObject) -> None:
    old, data = attempt.index, attempt.data
    if data is not None and data.version is not None:
        location.check_version(data.name, data.version)
    user_metadata = index.user_metadata
    if old is None or old.version is None:
        is_written = location.write_new_object(index.name, index.data, user_metadata=user_metadata)
    else:
        is_written = location.replace_object(
            index.name, index.data, old.version, user_metadata=user_metadata
        )
    if not is_written:
        message = "the index object was written or replaced since the bucket was listed"
        raise ObjectChangedError(message, object_key=index.name)


def _plan(location: Location, attempt: Attempt[Any], *, verify: bool) -> Repair:
    if attempt.refusal or attempt.data is None:
        return Repair(attempt, refusal=attempt.refusal)
    try:
        return _PLANNERS[type(attempt.name)](location, attempt, attempt.data, verify=verify)
    except (FormatError, MissingObjectError) as error:
        error.located(object_key=attempt.name.data_name, ledger_id=attempt.name.ledger_id)
        return Repair(attempt, error=error, refusal=str(error))


def _repairable_attempts(catalog: Catalog, ledger_ids: Collection[int] = ()) -> list[Attempt[Any]]:
    """Return the attempts whose index object is missing or unsound, ordered by object names.

    If there are ledger ids, return every attempt of these ledgers, and no others.

    Raises:
        PulsarOffloadError: The metadata or an object cannot be read.
    """
    ledgers = _RecordedLedgers(catalog, catalog.every_ledger())
    attempts = [
        each
        for each in ledgers.attempts()
        if not set(each.ledger_ids).isdisjoint(ledger_ids)
        or (each.problem is not None and not ledger_ids)
    ]
    return sorted(
        attempts, key=lambda each: (min(each.ledger_ids, default=-1), each.name.data_name)
    )


class _RecordedLedgers:
    """Offload attempts, as the bucket and the metadata describe them."""

    def __init__(self, catalog: Catalog, topics: Sequence[TopicLedgers]) -> None:
        self._topics = topics
        self._contents = catalog.contents
        self._has_metadata = catalog.source is not None
        self._named: dict[tuple[int, UUID], tuple[TopicName, LedgerInfo]] = {}
        self._unnamed: dict[int, list[tuple[TopicName, LedgerInfo]]] = defaultdict(list)
        self._sound: dict[int, list[LedgerCopy]] = defaultdict(list)
        for topic in self._topics:
            for info in topic.metadata.ledgers if topic.metadata else ():
                self._add_offload(topic.topic, info)
        for copy in self._contents.copies:
            if copy.ledger is not None:
                self._sound[copy.name.ledger_id].append(copy)

    def _add_offload(self, topic: TopicName, info: LedgerInfo) -> None:
        offload = info.offload
        if offload is None:
            return
        for uuid in offload.uuids:
            self._named[info.ledger_id, uuid] = topic, info
        if not offload.uuids:
            self._unnamed[info.ledger_id].append((topic, info))

    def attempts(self) -> Iterator[Attempt[Any]]:
        # An index object may be readable, but contradict the metadata.
        errors: dict[PairName, PulsarOffloadError] = {
            state.copy.name: state.error
            for topic in self._topics
            for state in topic.states
            if state.copy is not None and state.error is not None
        }
        for pair in self._contents.pairs:
            error = pair.error or errors.get(pair.name) or pair.index_error
            yield self._attempt(
                Attempt(
                    name=pair.name,
                    data=pair.data,
                    index=pair.index,
                    ledger_ids=tuple(copy.name.ledger_id for copy in pair.copies),
                    problem=None if error is None else str(error),
                    topic=pair.topic,
                )
            )
        for each in self._contents.unfinished:
            ids = (each.name.ledger_id,) if has_ledger_id(each.name) else ()
            yield self._attempt(
                Attempt(
                    name=each.name, data=each.data, index=None, ledger_ids=ids, problem=_NO_INDEX
                )
            )

    def _attempt(self, attempt: Attempt[PairName]) -> Attempt[Any]:
        """Return an attempt with the metadata of its ledger, or with the reason for refusing it."""
        name = attempt.name
        if type(name) not in _PLANNERS or not has_ledger_id(name):
            kind = kind_of(name)
            refusal = f"{kind.unit}s of {kind.title} cannot be rebuilt"
            return replace(attempt, refusal=refusal)
        other_copies = [each for each in self._sound[name.ledger_id] if each.name != name]
        owner = self._owner(name, other_copies)
        metadata = [(each.name.uuid, ledger_metadata_of(each)) for each in other_copies]
        return replace(
            attempt,
            topic=attempt.topic if owner is None else owner[0],
            info=None if owner is None else owner[1],
            other_copies=tuple((uuid, each) for uuid, each in metadata if each is not None),
            refusal=self._refusal(attempt.data, owner, other_copies),
        )

    def _owner(
        self, name: CopyName, other_copies: list[LedgerCopy]
    ) -> tuple[TopicName, LedgerInfo] | None:
        """Return the topic whose metadata says that this attempt counts, or may count."""
        unnamed = self._unnamed[name.ledger_id]
        named = self._named.get((name.ledger_id, name.uuid))
        if named is not None or len(unnamed) != 1 or other_copies:
            return named
        return unnamed[0]

    def _refusal(
        self,
        data: ObjectInfo | None,
        owner: tuple[TopicName, LedgerInfo] | None,
        other_copies: list[LedgerCopy],
    ) -> str | None:
        if data is None:
            return _NO_DATA
        if self._has_metadata and owner is None:
            return _NOT_NAMED
        if owner is not None and owner[1].offload and owner[1].offload.complete is False:
            return _UNDER_WAY
        if not self._has_metadata and other_copies:
            return f"another copy of the ledger is sound, with uuid {other_copies[0].name.uuid}"
        return None
