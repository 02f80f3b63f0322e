"""Rebuilds index objects that are lost or damaged from their data objects, and writes them."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from arrow_io.core.prefetch import read_ahead
from arrow_io.errors import FormatError, MissingObjectError, ObjectChangedError
from arrow_io.format.object_names import LedgerObjectName, SegmentName
from connector.catalog.ledger_origin import ledger_metadata_of
from connector.upkeep.repair.ledger_repair import Attempt, LedgerAttempt, Repair, planned_ledger

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from arrow_io.storage.location import Location
    from arrow_io.storage.object_store import ObjectInfo
    from connector.catalog.bucket import BucketContents
    from connector.catalog.catalog import Catalog
    from connector.catalog.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import AnyTopic, TopicName
    from connector.writing.offloader import IndexObject

_CONCURRENT_LEDGERS: Final = 8
_NO_INDEX: Final = "there is no index object"
_UNDER_WAY: Final = "the metadata says that this offload is under way, or failed"
_NO_DATA: Final = "its data object is not there"
_STREAMING: Final = "segments of streaming offload (PIP-76) are read, and not rebuilt"
_NOT_NAMED: Final = "the metadata of no topic names this offload"


def plan_repair(
    catalog: Catalog, ledger_ids: Collection[int] = (), *, verify: bool = False
) -> Generator[Repair, None, None]:
    """Rebuild the index objects that are missing or unsound, without writing them.

    Data objects are walked from end to end, several at once. Each new index object is read by this
    project's own reader, and the entries on both sides of each block's bounds by what it says.

    Args:
        catalog: The bucket, with the metadata if there is any. What the metadata does not name is
            not rebuilt; without metadata, no ledger is of which another copy is sound.
        ledger_ids: Ledgers whose every attempt is compared with its data object, even if nothing
            seems to be wrong with it; none: all ledgers with which something is.
        verify: Whether to read all entries by the new index object, and compare their checksums.

    Yields:
        One for each attempt, by the names of their objects.

    Raises:
        PulsarOffloadError: The metadata or the bucket cannot be read.
    """
    location = catalog.location
    units = (
        partial(_planned, location, each, verify=verify)
        for each in _repairable_attempts(catalog, ledger_ids)
    )
    threads = min(_CONCURRENT_LEDGERS, location.max_connections)
    yield from read_ahead(units, threads=threads)


def repair(location: Location, plan: Iterable[Repair]) -> Iterator[Repair]:
    """Write the index objects of a plan.

    Each is written only if there is none, or in place of the very one that was found unsound.

    Args:
        location: The bucket.
        plan: What `plan_repair` gives; each is written before the next is asked for.

    Yields:
        Each when it is done, those too of which nothing is written.

    Raises:
        ObjectChangedError: An object was written or replaced since the bucket was listed.
        MissingObjectError: One was deleted since.
        StorageError: The store refused, or went on failing.
    """
    for each in plan:
        if each.index is not None:
            _write(location, each.attempt, each.index)
        yield each


def _write(location: Location, attempt: Attempt, index: IndexObject) -> None:
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
        message = "an index object is there that is not the one that was listed"
        raise ObjectChangedError(message, object_key=index.name)


def _planned(location: Location, attempt: Attempt, *, verify: bool) -> Repair:
    if not isinstance(attempt, LedgerAttempt) or attempt.refusal or attempt.data is None:
        return Repair(attempt, refusal=attempt.refusal)
    try:
        return planned_ledger(location, attempt, attempt.data, verify=verify)
    except (FormatError, MissingObjectError) as error:
        error.located(object_key=attempt.name.data_name, ledger_id=attempt.name.ledger_id)
        return Repair(attempt, error=error, refusal=str(error))


def _repairable_attempts(catalog: Catalog, ledger_ids: Collection[int] = ()) -> list[Attempt]:
    """The attempts whose index object is missing or unsound, by the names of their objects.

    Args:
        catalog: The bucket, with the metadata if there is any.
        ledger_ids: Ledgers whose every attempt is wanted, and no others; none: all ledgers.

    Raises:
        PulsarOffloadError: The metadata or an object cannot be read.
    """
    ledgers = _KnownLedgers(catalog, catalog.every_ledger())
    wanted = [
        each
        for each in (*ledgers.attempts(), *_segments(catalog.contents))
        if not set(each.ledger_ids).isdisjoint(ledger_ids)
        or (each.problem is not None and not ledger_ids)
    ]
    return sorted(wanted, key=lambda each: (min(each.ledger_ids, default=-1), each.name.data_name))


class _KnownLedgers:
    """What the bucket and the metadata say of ledgers of PIP-17."""

    def __init__(self, catalog: Catalog, topics: Sequence[TopicLedgers]) -> None:
        self._topics = topics
        self._contents = catalog.contents
        self._has_metadata = catalog.source is not None
        self._named: dict[LedgerObjectName, tuple[TopicName, LedgerInfo]] = {}
        self._unnamed: dict[int, list[tuple[TopicName, LedgerInfo]]] = defaultdict(list)
        self._sound: dict[int, list[LedgerCopy]] = defaultdict(list)
        for topic in self._topics:
            for info in topic.metadata.ledgers if topic.metadata else ():
                self._learn(topic.topic, info)
        for copy in self._contents.copies:
            if copy.ledger is not None:
                self._sound[copy.name.ledger_id].append(copy)

    def _learn(self, topic: TopicName, info: LedgerInfo) -> None:
        offload = info.offload
        if offload is None:
            return
        for uuid in offload.uuids:
            self._named[LedgerObjectName(uuid, info.ledger_id)] = topic, info
        if not offload.uuids:
            self._unnamed[info.ledger_id].append((topic, info))

    def attempts(self) -> Iterator[LedgerAttempt]:
        """All attempts."""
        # An index object may be sound, and contradict the metadata.
        errors = {
            state.copy.name: state.error
            for topic in self._topics
            for state in topic.states
            if state.copy is not None and state.error is not None
        }
        for copy in self._contents.copies:
            if isinstance(copy.name, LedgerObjectName):
                error = copy.error or errors.get(copy.name)
                problem = None if error is None else str(error)
                yield self._attempt(copy.name, copy.data, copy.index, problem, copy.topic)
        for each in self._contents.unfinished:
            yield self._attempt(each.name, each.data, None, _NO_INDEX, None)

    def _attempt(
        self,
        name: LedgerObjectName,
        data: ObjectInfo | None,
        index: ObjectInfo | None,
        problem: str | None,
        topic: AnyTopic | None,
    ) -> LedgerAttempt:
        others = [each for each in self._sound[name.ledger_id] if each.name != name]
        known = self._owner(name, others)
        told = [(each.name.uuid, ledger_metadata_of(each)) for each in others]
        return LedgerAttempt(
            name=name,
            data=data,
            index=index,
            ledger_ids=(name.ledger_id,),
            problem=problem,
            topic=topic if known is None else known[0],
            info=None if known is None else known[1],
            others=tuple((uuid, metadata) for uuid, metadata in told if metadata is not None),
            refusal=self._refusal(data, known, others),
        )

    def _owner(
        self, name: LedgerObjectName, others: list[LedgerCopy]
    ) -> tuple[TopicName, LedgerInfo] | None:
        """The topic whose metadata says that this attempt counts, or may count."""
        unnamed = self._unnamed[name.ledger_id]
        if name in self._named or len(unnamed) != 1 or others:
            return self._named.get(name)
        return unnamed[0]

    def _refusal(
        self,
        data: ObjectInfo | None,
        known: tuple[TopicName, LedgerInfo] | None,
        others: list[LedgerCopy],
    ) -> str | None:
        if data is None:
            return _NO_DATA
        if self._has_metadata and known is None:
            return _NOT_NAMED
        if known is not None and known[1].offload and known[1].offload.complete is False:
            return _UNDER_WAY
        if not self._has_metadata and others:
            return f"another copy of the ledger is sound, under the uuid {others[0].name.uuid}"
        return None


def _segments(contents: BucketContents) -> Iterator[Attempt]:
    """All segments of streaming offload (PIP-76), none of which is rebuilt."""
    for each in contents.segments:
        yield Attempt(
            name=each.name,
            data=each.data,
            index=each.index,
            ledger_ids=each.segment.ledger_ids if each.segment else (),
            problem=None if each.error is None else str(each.error),
            topic=each.topic,
            refusal=_STREAMING,
        )
    for info in contents.streaming:
        yield Attempt(
            name=SegmentName(UUID(info.name)),
            data=info,
            index=None,
            ledger_ids=(),
            problem=_NO_INDEX,
            refusal=_STREAMING,
        )
