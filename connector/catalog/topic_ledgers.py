"""The ledgers of one topic: its metadata compared with the contents of the bucket.

Without metadata, every ledger in the bucket that names the topic is one of its ledgers. If a ledger
has several copies with different uuids, the newest copy with a sound index object counts (the index
object is written last). With metadata, its list of ledgers is the topic, and the copy with the uuid
in the metadata counts.

The metadata may be older than the bucket. A ledger that it does not list, or lists as open, closed
or being offloaded, is `UNKNOWN` if the bucket has it: it is reported, but not read. (Damaged copies
of a closed ledger do not count: it is reported for being in BookKeeper only.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from arrow_io.core.lazy import cached_property
from arrow_io.core.option_names import option_name
from arrow_io.errors import (
    CorruptIndexError,
    CorruptMetadataError,
    MissingEntriesError,
    MissingObjectError,
    PulsarOffloadError,
    TruncatedObjectError,
)
from arrow_io.messages.transactions import TransactionOutcomes
from connector.catalog.kinds.registry import join_shares, named_pairs
from connector.catalog.ledger_origin import is_from_other_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.ledgers.open_ledger import OpenLedger
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.metadata.scalable import SegmentNode
    from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
    from connector.inputs.topic_names import TopicName


class LedgerState(StrEnum):
    """Where a ledger of a topic is stored."""

    OFFLOADED = "offloaded"
    """In the bucket. BookKeeper's copy was deleted, or nothing is known of it."""
    BOTH = "both"
    """In the bucket and in BookKeeper."""
    BOOKKEEPER = "bookkeeper"
    """Closed, and in BookKeeper only."""
    OFFLOADING = "offloading"
    """In BookKeeper. An offload was started and has not completed so far."""
    OPEN = "open"
    """In BookKeeper, and still being written."""
    EMPTY = "empty"
    """Closed without an entry, so never offloaded."""
    MISSING = "missing"
    """Offloaded according to the metadata, but its objects are missing."""
    UNSOUND = "unsound"
    """In the bucket, but it cannot be read or contradicts the metadata."""
    TRIMMED = "trimmed"
    """In the bucket, but older than the topic's first ledger: retention removed it."""
    UNKNOWN = "unknown"
    """In the bucket, but not offloaded according to the metadata, which may be older."""

    @property
    def is_readable(self) -> bool:
        """Whether the topic has the ledger and the bucket has a sound copy of it."""
        return self in {LedgerState.OFFLOADED, LedgerState.BOTH}

    @property
    def is_pending(self) -> bool:
        """Whether it is in BookKeeper only."""
        return self in {LedgerState.BOOKKEEPER, LedgerState.OFFLOADING, LedgerState.OPEN}

    @property
    def is_lost(self) -> bool:
        """Whether the topic has the ledger but it cannot be read anywhere."""
        return self in {LedgerState.MISSING, LedgerState.UNSOUND}

    @property
    def is_stray(self) -> bool:
        """Whether it is in the bucket, but the metadata does not name its copy."""
        return self in {LedgerState.TRIMMED, LedgerState.UNKNOWN}


@dataclass(frozen=True)
class TopicLedger:
    """One ledger in the metadata and in the bucket.

    Attributes:
        info: The ledger in the metadata; None without metadata, or if it does not list the ledger.
        copy: The copy in the bucket that counts, or None.
        others: Additional copies, newest first.
        error: Why it cannot be read, if the topic is incomplete without it.
    """

    ledger_id: int
    state: LedgerState
    info: LedgerInfo | None = None
    copy: LedgerCopy | None = None
    others: tuple[LedgerCopy, ...] = ()
    error: PulsarOffloadError | None = None

    @property
    def entries(self) -> int | None:
        """The number of entries by its index object, else by the metadata."""
        if self.copy is not None and self.copy.ledger is not None:
            return self.copy.ledger.entry_count
        return self.info.entries if self.info else None


@dataclass(frozen=True)
class TopicLedgers:
    """One topic, or one partition of a partitioned topic, and its ledgers.

    Attributes:
        topic: The topic, with its partition.
        ledgers: Sound offloaded ledgers, ascending by ledger id; one copy each.
        problems: Why the topic is incomplete: ledgers without a sound copy. With metadata, also
            ledgers that are missing, or only in BookKeeper although later ones are offloaded.
        cut: Truncated ledgers: their only fault is that their data objects are too short.
        states: Every ledger of the topic in the metadata or the bucket, ascending.
        unread: Those of `states` that are not among `ledgers`.
        metadata: The metadata of its cluster, or None.
        metadata_error: Why the metadata cannot be read, if it exists.
        segment_ledgers: The number of ledgers in the bucket of the scalable topic that continues
            this topic since Pulsar 5.0.
        node: The segment in the graph of its scalable topic; None if the metadata does not name it,
            or the topic is no segment.
    """

    topic: TopicName
    ledgers: Sequence[OpenLedger]
    problems: tuple[PulsarOffloadError, ...] = ()
    cut: tuple[OpenLedger, ...] = ()
    states: Sequence[TopicLedger] = ()
    unread: Sequence[TopicLedger] = ()
    metadata: TopicMetadata | None = None
    metadata_error: PulsarOffloadError | None = None
    segment_ledgers: int = 0
    node: SegmentNode | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields to pickle, without `data`, which follows from them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def data(self) -> tuple[Ledger, ...]:
        """The data of each of `ledgers`, from which its entries are read.

        It is cached, because `ledgers` may build its items on each access.
        """
        return tuple(ledger.data for ledger in self.ledgers)

    @property
    def segment_outcomes(self) -> TransactionOutcomes | None:
        """The outcomes of the transactions of a segment; None for a topic, which has markers."""
        if self.topic.segment is None:
            return None
        known = None if self.metadata is None else self.metadata.segment_outcomes
        return known or TransactionOutcomes()

    def with_metadata_error(self, error: PulsarOffloadError) -> TopicLedgers:
        """Return the topic with the error that its metadata cannot be read."""
        return replace(self, problems=(error, *self.problems), metadata_error=error)

    @property
    def substitutes(self) -> tuple[OpenLedger, ...]:
        """Other sound copies, which match the metadata, of ledgers whose own copy cannot be read.

        As far as known they are copies of the same ledger, but another cluster may have a ledger of
        the same id and size. Only salvaging reads them.
        """
        lost = [
            (each, each.info)
            for each in self.unread
            if each.error is not None and each.info is not None and each.info.is_offloaded
        ]
        if not lost:
            return ()
        infos = self.metadata.ledgers if self.metadata else ()
        own = self.own_copies
        found = (
            next(
                (
                    copy.ledger
                    for copy in _sound(self.topic, info, each.others)
                    if not is_from_other_cluster(copy, info, own, infos)
                ),
                None,
            )
            for each, info in lost
        )
        return tuple(ledger for ledger in found if ledger is not None)

    @property
    def own_copies(self) -> list[LedgerCopy]:
        """The copies that match the metadata including the uuid, ascending by ledger id.

        They certainly belong to the cluster that the metadata is from.
        """
        return [
            each.copy
            for each in self.states
            if each.copy is not None and each.state.is_readable
            if each.info and each.info.offload and each.info.offload.uuids
        ]

    @property
    def missing(self) -> list[LedgerInfo]:
        """Ledgers of the metadata whose objects should exist but are missing or unfinished."""
        return [
            each.info
            for each in self.unread
            if each.info is not None
            and each.info.offload is not None
            and each.info.offload.complete is not False
            and (_lacks_objects(each) or (each.copy is not None and each.copy.is_unfinished))
        ]

    @property
    def unproven(self) -> list[LedgerInfo]:
        """`missing`, and ledgers in segments that the metadata does not name.

        If such a segment was written after the bucket was listed, nothing shows that it is missing:
        the last segment that was found seems to have the rest of the ledger.
        """
        unnamed = [
            each.info
            for each in self.states
            if each.copy is not None
            and each.copy.is_shared
            and each.info is not None
            and each.info.offload is not None
            and not each.info.offload.uuids
        ]
        return self.missing + unnamed

    def salvaged(self) -> TopicLedgers:
        """Return the topic with truncated and substitute ledgers among its ledgers."""
        found = {ledger.ledger_id: ledger for ledger in (*self.cut, *self.substitutes)}
        ledgers = self.ledgers
        if found:
            every = (*ledgers, *found.values())
            ledgers = tuple(sorted(every, key=lambda ledger: ledger.ledger_id))
        lost = tuple(error for error in self.problems if error.ledger_id not in found)
        return replace(self, ledgers=ledgers, problems=lost, cut=())

    def without_broker_ledgers(self) -> TopicLedgers:
        """Return the topic up to the first ledger that is read from brokers instead of the bucket.

        Brokers serve everything from there on: ledgers in BookKeeper only, and ledgers that were
        offloaded after the metadata was read.
        """
        listed_ledgers = [each for each in self.unread if each.info is not None]
        broker_ledger_ids = [
            each.ledger_id
            for each in listed_ledgers
            if each.state.is_pending or each.state is LedgerState.UNKNOWN
        ]
        if not broker_ledger_ids:
            return self
        first = min(broker_ledger_ids)
        return replace(
            self,
            ledgers=tuple(each for each in self.ledgers if each.ledger_id < first),
            problems=tuple(
                each for each in self.problems if each.ledger_id is None or each.ledger_id < first
            ),
            cut=tuple(each for each in self.cut if each.ledger_id < first),
            states=tuple(each for each in self.states if each.ledger_id < first),
            unread=tuple(
                each for each in self.unread if each.ledger_id < first or each.info is None
            ),
        )

    @property
    def pending(self) -> tuple[TopicLedger, ...]:
        """Ledgers that are not offloaded yet and follow all offloaded ones.

        Ledgers without entries are left out, and so is the open one unless it is known to have
        entries.
        """
        return tuple(
            each
            for each in self.unread
            if each.state.is_pending
            and each.error is None
            and (each.entries or (each.entries is None and each.state is not LedgerState.OPEN))
        )

    @property
    def may_grow(self) -> bool:
        """Whether the metadata shows that more of the topic may be offloaded.

        False without metadata, which alone could show it.
        """
        if self.metadata is None:
            return False
        if self.metadata.terminated_position is None or self.pending:
            return True
        # A terminated topic gets no more ledgers, so others in the bucket are left over.
        return any(each.info is not None for each in self.unknown)

    @property
    def unknown(self) -> tuple[TopicLedger, ...]:
        """Ledgers in the bucket that the metadata, which may be older, does not have as offloaded.

        Ledgers older than the first of the metadata are left out, because retention explains them.
        """
        return tuple(each for each in self.unread if each.state is LedgerState.UNKNOWN)


def topic_with_ledger(topics: Iterable[TopicLedgers], ledger_id: int) -> str | None:
    """Return the topic whose metadata lists a ledger, or None."""
    known = ((each.topic, each.metadata) for each in topics)
    found = (str(topic) for topic, metadata in known if metadata and metadata.has(ledger_id))
    return next(found, None)


def from_bucket(topic: TopicName, copies: Iterable[LedgerCopy]) -> TopicLedgers:
    """Return a topic as the bucket shows it; `copies` of one ledger are newest first."""
    return _topic_from_states(
        topic,
        [
            _ledger_from_copies(each, join_shares(ledger_copies))
            for each, ledger_copies in _by_ledger(copies)
        ],
    )


def from_metadata(
    metadata: TopicMetadata,
    copies: Iterable[LedgerCopy],
    find_elsewhere: Callable[[LedgerInfo], LedgerCopy | PulsarOffloadError | None],
) -> TopicLedgers:
    """Return a topic as its metadata lists it.

    Args:
        metadata: The metadata of its cluster.
        copies: All copies of its ledgers in the bucket; those of one ledger newest first.
        find_elsewhere: Finds an offloaded ledger in another bucket that the metadata names. Returns
            the error if that cannot be read.
    """
    copies_by_ledger = dict(_by_ledger(copies))
    ledgers = [
        (
            info,
            _offloaded(
                metadata.topic, info, copies_by_ledger.pop(info.ledger_id, ()), find_elsewhere
            ),
        )
        for info in metadata.ledgers
    ]
    first = min((info.ledger_id for info in metadata.ledgers), default=0)
    last_offloaded = max(
        (info.ledger_id for info, each in ledgers if each.state is not LedgerState.BOOKKEEPER),
        default=-1,
    )
    states = [
        _not_offloaded(metadata, info, each, last_offloaded)
        if each.state is LedgerState.BOOKKEEPER
        else each
        for info, each in ledgers
    ]
    for ledger_id, (copy, *others) in copies_by_ledger.items():
        state = LedgerState.TRIMMED if ledger_id < first else LedgerState.UNKNOWN
        states.append(TopicLedger(ledger_id, state, copy=copy, others=tuple(others)))
    states.sort(key=lambda each: each.ledger_id)
    return replace(_topic_from_states(metadata.topic, states), metadata=metadata)


def _by_ledger(copies: Iterable[LedgerCopy]) -> Iterator[tuple[int, Sequence[LedgerCopy]]]:
    grouped: dict[int, list[LedgerCopy]] = defaultdict(list)
    for copy in copies:
        grouped[copy.name.ledger_id].append(copy)
    yield from sorted(grouped.items())


def _ledger_from_copies(ledger_id: int, copies: Sequence[LedgerCopy]) -> TopicLedger:
    best = next((copy for copy in copies if copy.ledger is not None), copies[0])
    others = tuple(copy for copy in copies if copy is not best)
    state = LedgerState.OFFLOADED if best.ledger is not None else LedgerState.UNSOUND
    error = best.error
    if error is not None and best.is_unfinished:
        advice = (
            "the offload may be under way: open the topic with metadata, which says so, or read the"
            f" whole entries with {option_name('on_corruption', 'salvage')}"
        )
        error = _located_like(error, f"{error.message}; {advice}")
    return TopicLedger(ledger_id, state, copy=best, others=others, error=error)


def _offloaded(
    topic: TopicName,
    info: LedgerInfo,
    copies: Sequence[LedgerCopy],
    find_elsewhere: Callable[[LedgerInfo], LedgerCopy | PulsarOffloadError | None],
) -> TopicLedger:
    """Return a ledger of the metadata with the copy that the metadata names, if any."""
    ledger_id, offload = info.ledger_id, info.offload
    copies = join_shares(copies, info)
    not_offloaded = TopicLedger(ledger_id, LedgerState.BOOKKEEPER, info, others=tuple(copies))
    if offload is None or offload.complete is False:
        return not_offloaded
    if not offload.uuids:
        best = next((copy for copy in copies if copy.ledger), copies[0] if copies else None)
    else:
        named_uuids = set(offload.uuids)
        best = next((copy for copy in copies if not named_uuids.isdisjoint(copy.uuids)), None)
    others = tuple(copy for copy in copies if copy is not best)
    error: PulsarOffloadError | None = None
    if best is None:
        found = find_elsewhere(info)
        if found is None or isinstance(found, PulsarOffloadError):
            if offload.complete is None:
                return not_offloaded
            error = _missing(topic, info, others, found)
            return TopicLedger(ledger_id, LedgerState.MISSING, info, others=others, error=error)
        best = found
    error = _objection(topic, info, best)
    if error is None and not offload.uuids:
        error = _ambiguity(topic, info, copies)
    if offload.complete is None and error is not None:
        # The object may be one half of an offload that is still running.
        return not_offloaded
    state = _offloaded_state(error, is_in_bookkeeper=offload.bookkeeper_deleted is False)
    return TopicLedger(ledger_id, state, info, best, others, error)


def _offloaded_state(error: PulsarOffloadError | None, *, is_in_bookkeeper: bool) -> LedgerState:
    if isinstance(error, MissingObjectError):
        return LedgerState.MISSING
    if error is not None:
        return LedgerState.UNSOUND
    return LedgerState.BOTH if is_in_bookkeeper else LedgerState.OFFLOADED


def _missing(
    topic: TopicName,
    info: LedgerInfo,
    others: Sequence[LedgerCopy],
    cause: PulsarOffloadError | None,
) -> PulsarOffloadError:
    message = "the metadata says that the ledger is offloaded, but its index object is missing"
    if cause is not None:
        message = f"{message}: {cause}"
    sound = next((copy for copy in others if copy.ledger is not None), None)
    if sound is not None:
        message = f"{message}; there is another copy with the uuid {sound.name.uuid}"
    key = next((each.index_name for each in named_pairs(topic, info)), None)
    return MissingObjectError(message, object_key=key, ledger_id=info.ledger_id)


def _sound(topic: TopicName, info: LedgerInfo, copies: Iterable[LedgerCopy]) -> list[LedgerCopy]:
    """Return the copies that can be read and match the metadata of the ledger."""
    return [copy for copy in copies if copy.ledger and _objection(topic, info, copy) is None]


def _objection(topic: TopicName, info: LedgerInfo, copy: LedgerCopy) -> PulsarOffloadError | None:
    """Return why a copy cannot be read as a ledger of the topic; None if it can."""
    if copy.data is None and copy.cut is None and isinstance(copy.error, MissingObjectError):
        message = "the metadata says that the ledger is offloaded, but its data object is missing"
        key = copy.error.object_key
        return MissingObjectError(message, object_key=key, ledger_id=info.ledger_id)
    if copy.error is not None and copy.is_unfinished:
        message = f"the metadata says that the ledger is offloaded, but {copy.error.message}"
        return _located_like(copy.error, message)
    if copy.ledger is None:
        return copy.error
    if copy.topic != topic:
        message = (
            f"the metadata of {topic} names this ledger, but its index object names another topic,"
            f" {copy.topic}"
        )
        return CorruptIndexError(message, object_key=copy.name.index_name, ledger_id=info.ledger_id)
    return _contradiction(info, copy.ledger)


def _located_like(error: PulsarOffloadError, message: str) -> TruncatedObjectError:
    return TruncatedObjectError(
        message, object_key=error.object_key, ledger_id=error.ledger_id, offset=error.offset
    )


def _ambiguity(
    topic: TopicName, info: LedgerInfo, copies: Sequence[LedgerCopy]
) -> PulsarOffloadError | None:
    """Return an error if the copies are of different ledgers (two clusters) and no uuid decides."""
    metadata_by_uuid = {
        copy.name.uuid: copy.ledger.ledger_metadata
        for copy in _sound(topic, info, copies)
        if copy.ledger is not None and copy.ledger.ledger_metadata is not None
    }
    if len({each.serialize() for each in metadata_by_uuid.values()}) <= 1:
        return None
    message = (
        f"the bucket has {len(metadata_by_uuid)} different ledgers with this id, and the metadata"
        " does not name the uuid of one of them"
    )
    return CorruptMetadataError(message, ledger_id=info.ledger_id)


def _contradiction(info: LedgerInfo, ledger: OpenLedger) -> PulsarOffloadError | None:
    """Return an error if an index object contradicts the metadata, which may lack numbers."""
    for what, expected, actual in (
        ("entries", info.entries, ledger.entry_count),
        ("bytes", info.size_bytes, ledger.length_bytes),
    ):
        # 0 bytes are not compared: ledgers of empty entries have none, and some writers record 0.
        if expected and actual and expected != actual:
            message = f"{actual} {what} by its index object, {expected} by the metadata"
            return CorruptIndexError(
                message, object_key=ledger.name.index_name, ledger_id=info.ledger_id
            )
    return None


def _lacks_objects(ledger: TopicLedger) -> bool:
    """Return whether a ledger may be unreadable only because objects were not found.

    If nothing names its segments, a segment that was not found shows as missing entries.
    """
    is_shared = ledger.copy is not None and ledger.copy.is_shared
    return isinstance(ledger.error, MissingObjectError) or (
        is_shared and isinstance(ledger.error, MissingEntriesError)
    )


def _not_offloaded(
    metadata: TopicMetadata, info: LedgerInfo, ledger: TopicLedger, last_offloaded: int
) -> TopicLedger:
    """Return the state of a ledger that is not offloaded according to the metadata.

    Pulsar offloads the oldest ledgers first, so such ledgers are at the end of the topic, unless an
    offload failed. If offloaded ledgers follow one, that is an error.
    """
    # If the bucket has it, the metadata is older: open ledgers are never offloaded.
    newer = next(iter(_sound(metadata.topic, info, ledger.others)), None)
    if newer is None and _is_open(metadata, info):
        # A damaged copy shows that too; otherwise its messages would not be reported at all.
        newer = next(iter(ledger.others), None)
    is_after_offloaded = info.ledger_id > last_offloaded
    if newer is not None and (is_after_offloaded or info.entries == 0):
        others = tuple(copy for copy in ledger.others if copy is not newer)
        return replace(ledger, state=LedgerState.UNKNOWN, copy=newer, others=others)
    if _is_open(metadata, info):
        return replace(ledger, state=LedgerState.OPEN)
    if info.entries == 0:
        return replace(ledger, state=LedgerState.EMPTY)
    state = LedgerState.BOOKKEEPER if info.offload is None else LedgerState.OFFLOADING
    if is_after_offloaded:
        return replace(ledger, state=state)
    message = "the ledger is only in BookKeeper, although later ledgers are offloaded"
    if newer is not None:
        message = (
            f"the metadata says that the ledger is only in BookKeeper, although later ledgers are"
            f" offloaded; the bucket has it with the uuid {newer.name.uuid}, so the metadata may be"
            " outdated"
        )
    error = MissingObjectError(message, ledger_id=info.ledger_id)
    return replace(ledger, state=state, error=error)


def _is_open(metadata: TopicMetadata, info: LedgerInfo) -> bool:
    """Return whether a ledger is still being written: the topic's last, without a closing time."""
    is_last = info.ledger_id == metadata.last_ledger_id
    return is_last and info.timestamp_ms is None and metadata.terminated_position is None


def _topic_from_states(topic: TopicName, states: Sequence[TopicLedger]) -> TopicLedgers:
    sound = (each.copy.ledger for each in states if each.copy and each.state.is_readable)
    unread = tuple(each for each in states if not each.state.is_readable)
    return build_topic(
        topic, tuple(ledger for ledger in sound if ledger is not None), tuple(states), unread
    )


def build_topic(
    topic: TopicName,
    ledgers: Sequence[OpenLedger],
    states: Sequence[TopicLedger],
    unread: Sequence[TopicLedger],
) -> TopicLedgers:
    """Return a topic with its ledgers and the errors of those that are not read."""
    cut = (
        each.copy.cut
        for each in unread
        if each.copy and each.error is not None
        if each.error is each.copy.error or each.copy.is_unfinished
    )
    return TopicLedgers(
        topic,
        ledgers,
        tuple(each.error for each in unread if each.error is not None),
        tuple(ledger for ledger in cut if ledger is not None),
        states,
        unread,
    )
