"""`connector.catalog.topic_ledgers`: which of several copies counts, and why others do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from arrow_io.errors import (
    CorruptIndexError,
    CorruptMetadataError,
    MissingObjectError,
    StorageError,
    TruncatedObjectError,
)
from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata
from connector.catalog.topic_ledgers import LedgerState, from_bucket, from_metadata
from connector.inputs.topic_names import TopicName
from tests.support.deletion_scenes import (
    OTHER_UUID,
    TOPIC,
    changed,
    golden,
    ledger_metadata,
    named,
    told,
    under,
    unreadable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.catalog.kinds.offloaded_copy import OffloadedCopy
    from connector.catalog.topic_ledgers import TopicLedger, TopicLedgers

_ID: Final = 17
_COPY: Final = 3
"""Place of that ledger's copy."""


def _topic(
    info: LedgerInfo,
    *copies: OffloadedCopy,
    elsewhere: OffloadedCopy | StorageError | None = None,
) -> TopicLedgers:
    """The golden topic, with something else said of ledger 17, and other copies of it."""
    infos = tuple(info if each.name.ledger_id == _ID else told(each) for each in golden())
    there = (*golden()[:_COPY], *copies, *golden()[_COPY + 1 :])
    metadata = TopicMetadata(topic=TOPIC, ledgers=infos)
    return from_metadata(metadata, there, lambda _: elsewhere)


def _ledger(topic: TopicLedgers) -> TopicLedger:
    (ledger,) = (each for each in topic.states if each.ledger_id == _ID)
    return ledger


def _info(uuid: UUID | None = None, *, complete: bool | None = True) -> LedgerInfo:
    offload = OffloadContext(uuid=uuid, complete=complete)
    return replace(told(golden()[_COPY]), offload=offload)


def _of_another_cluster(copy: OffloadedCopy) -> OffloadedCopy:
    """A copy of a ledger of as many entries and bytes."""
    return changed(copy, ctime_ms=1)


def test_bucket_alone_takes_the_newest_sound_copy_and_tells_of_the_others() -> None:
    """All of them, also those that are newer and cannot be read."""
    sound = golden()[_COPY]
    newer, older = unreadable(under(sound, UUID(int=8))), under(sound, UUID(int=9))

    topic = from_bucket(TOPIC, [newer, sound, older])

    assert topic.topic == TOPIC
    ledger = _ledger(topic)
    assert (ledger.state, ledger.copy, ledger.others) == (
        LedgerState.OFFLOADED,
        sound,
        (newer, older),
    )
    assert ledger.error is None


def test_unlisted_ledger_tells_of_all_its_copies() -> None:
    """So that an audit names each."""
    first, second = under(golden()[_COPY], UUID(int=8)), under(golden()[_COPY], UUID(int=9))
    infos = tuple(told(copy) for copy in golden() if copy.name.ledger_id != _ID)
    metadata = TopicMetadata(topic=TOPIC, ledgers=infos)

    ledger = _ledger(from_metadata(metadata, [first, second], lambda _: None))

    assert (ledger.state, ledger.copy, ledger.others) == (LedgerState.UNKNOWN, first, (second,))


def test_ledger_0_of_a_topic_without_ledgers_is_unknown() -> None:
    """Nothing tells that retention took it."""
    name = replace(golden()[0].name, ledger_id=0)
    metadata = TopicMetadata(topic=TOPIC, ledgers=())

    topic = from_metadata(metadata, [replace(golden()[0], name=name)], lambda _: None)

    assert [each.state for each in topic.states] == [LedgerState.UNKNOWN]


@pytest.mark.parametrize("ledger_id", [0, 1])
def test_first_ledger_is_pending_where_none_is_offloaded(ledger_id: int) -> None:
    """The first ids that BookKeeper gives out are no others."""
    infos = (LedgerInfo(ledger_id=ledger_id, entries=5, timestamp_ms=1),)

    topic = from_metadata(TopicMetadata(topic=TOPIC, ledgers=infos), (), lambda _: None)

    assert topic.problems == ()
    assert [each.ledger_id for each in topic.pending] == [ledger_id]


def test_copy_that_cannot_be_read_is_why_a_ledger_without_uuid_is_unsound() -> None:
    """It is there, so it is not said to be missing; the newest speaks for all."""
    newest, older = (unreadable(under(golden()[_COPY], UUID(int=number))) for number in (8, 9))

    topic = _topic(_info(), newest, older)

    assert topic.problems == (newest.error,)
    ledger = _ledger(topic)
    assert (ledger.state, ledger.copy, ledger.others) == (LedgerState.UNSOUND, newest, (older,))


def test_copies_of_two_clusters_are_ambiguous_where_no_uuid_is_told() -> None:
    """Neither is read, and the error says how many there are."""
    sound = golden()[_COPY]
    foreign = _of_another_cluster(under(sound, OTHER_UUID))

    topic = _topic(_info(), sound, foreign)

    (problem,) = topic.problems
    assert isinstance(problem, CorruptMetadataError)
    assert problem.ledger_id == _ID
    assert problem.message.startswith("the bucket has 2 different ledgers with this id")
    assert _ledger(topic).state == LedgerState.UNSOUND
    # Neither one that is under another topic's name nor one that cannot be read makes a doubt.
    elsewhere = replace(foreign, topic=TopicName.parse("another"))
    for other in (elsewhere, unreadable(foreign), under(sound, OTHER_UUID)):
        assert _topic(_info(), sound, other).problems == ()


def test_uuid_tells_which_of_two_clusters_copies_counts() -> None:
    """Whichever is newer."""
    sound = golden()[_COPY]
    foreign = _of_another_cluster(under(sound, OTHER_UUID))

    topic = _topic(_info(sound.name.uuid), foreign, sound)

    assert topic.problems == ()
    ledger = _ledger(topic)
    assert (ledger.state, ledger.copy, ledger.others) == (
        LedgerState.OFFLOADED,
        sound,
        (foreign,),
    )


def test_missing_ledger_is_told_with_all_that_is_known() -> None:
    """The object that should be there, why it cannot be found elsewhere, and what is there."""
    sound = golden()[_COPY]
    broken = unreadable(under(sound, UUID(int=8)))

    topic = _topic(_info(OTHER_UUID), broken, sound, elsewhere=StorageError("refused"))

    (problem,) = topic.problems
    assert isinstance(problem, MissingObjectError)
    assert problem.ledger_id == _ID
    assert problem.object_key == replace(sound.name, uuid=OTHER_UUID).index_name
    assert problem.message == (
        "the metadata says that the ledger is offloaded, but its index object is missing: refused;"
        f" there is another copy with the uuid {sound.name.uuid}"
    )
    (alone,) = _topic(_info()).problems
    assert alone.object_key is None
    assert alone.message == (
        "the metadata says that the ledger is offloaded, but its index object is missing"
    )


@pytest.mark.parametrize(
    ("info", "copy", "words"),
    [
        (
            told(golden()[_COPY]),
            replace(golden()[_COPY], topic=TopicName.parse("another")),
            (
                f"the metadata of {TOPIC} names this ledger, but its index object names"
                " another topic, persistent://public/default/another"
            ),
        ),
        (
            replace(told(golden()[_COPY]), entries=12_345),
            golden()[_COPY],
            "7 entries by its index object, 12345 by the metadata",
        ),
        (
            replace(told(golden()[_COPY]), size_bytes=12_345),
            golden()[_COPY],
            "43957 bytes by its index object, 12345 by the metadata",
        ),
    ],
    ids=["topic", "entries", "bytes"],
)
def test_copy_that_is_of_something_else_is_told_with_its_place(
    info: LedgerInfo, copy: OffloadedCopy, words: str
) -> None:
    """The object and the ledger, so that a user finds it, and what the metadata says of it."""
    topic = _topic(info, copy)

    (problem,) = topic.problems
    assert (_ledger(topic).info, _ledger(topic).copy) == (info, copy)
    assert isinstance(problem, CorruptIndexError)
    assert problem.message == words
    assert (problem.object_key, problem.ledger_id) == (copy.name.index_name, _ID)


def test_salvaging_reads_a_cut_copy_as_far_as_it_goes() -> None:
    """Once: what was salvaged has nothing left to salvage, and is of the same metadata."""
    sound = golden()[_COPY]
    error = TruncatedObjectError("cut", ledger_id=_ID)
    topic = _topic(told(sound), replace(sound, ledger=None, error=error, cut=sound.ledger))
    assert (topic.problems, topic.cut) == ((error,), (sound.ledger,))
    assert topic.metadata is not None
    assert len(topic.metadata.ledgers) == len(golden())

    salvaged = topic.salvaged()

    assert salvaged.ledgers == tuple(copy.ledger for copy in golden())
    assert (salvaged.problems, salvaged.cut) == ((), ())
    assert salvaged.metadata is topic.metadata


_DAY_MS: Final = 86_400_000


def _in_other_bookies(copy: OffloadedCopy) -> OffloadedCopy:
    segment = replace(ledger_metadata(copy).segments[0], ensemble_members=("bookie-b:3181",))
    return changed(copy, segments=(segment,))


def _created(by_ms: int) -> Callable[[OffloadedCopy], OffloadedCopy]:
    return lambda copy: changed(copy, ctime_ms=(ledger_metadata(copy).ctime_ms or 0) + by_ms)


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: named(copy, "other"),
        _in_other_bookies,
        _created(_DAY_MS),
        _created(-_DAY_MS),
    ],
    ids=["name", "bookies", "created later", "created before"],
)
def test_salvaging_takes_no_copy_of_another_cluster(
    change: Callable[[OffloadedCopy], OffloadedCopy],
) -> None:
    """Of the same id, entries and bytes: the ledger stays lost, unless there is one of its own."""
    lost, own = UUID(int=1), under(golden()[_COPY], UUID(int=8))
    foreign = change(under(golden()[_COPY], UUID(int=9)))

    topic = _topic(_info(lost), foreign)
    assert topic.substitutes == ()
    assert [each.ledger_id for each in topic.salvaged().problems] == [_ID]
    assert _topic(_info(lost), foreign, own).substitutes == (own.ledger,)


def _without_bookies(copy: OffloadedCopy) -> OffloadedCopy:
    segment = replace(ledger_metadata(copy).segments[0], ensemble_members=("127.0.0.1:3181",))
    return changed(copy, segments=(segment,))


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: named(copy, None),
        lambda copy: changed(copy, ctime_ms=None),
        lambda copy: changed(_without_bookies(copy), ctime_ms=1),
        _created(0),
    ],
    ids=["no name", "no time", "no bookies", "the same"],
)
def test_salvaging_takes_a_copy_that_nothing_speaks_against(
    change: Callable[[OffloadedCopy], OffloadedCopy],
) -> None:
    """What tells nothing contradicts nothing."""
    copy = change(under(golden()[_COPY], UUID(int=9)))

    assert _topic(_info(UUID(int=1)), copy).substitutes == (copy.ledger,)


def test_ledgers_that_were_written_without_a_broker_do_not_tell_the_order_of_times() -> None:
    """They have the times of their messages, which may be older than any, or still to come."""
    lost, copy = _info(UUID(int=1)), under(golden()[_COPY], UUID(int=9))
    for place, time_ms in ((0, 10**13), (-1, 1)):
        written = golden()[place]
        there = [changed(_without_bookies(written), ctime_ms=time_ms), copy, *golden()[1:_COPY]]
        there += golden()[_COPY + 1 : -1]
        infos = tuple(
            lost
            if each.name.ledger_id == _ID
            else replace(told(each), timestamp_ms=time_ms)
            if each is written
            else told(each)
            for each in golden()
        )
        topic = from_metadata(TopicMetadata(topic=TOPIC, ledgers=infos), there, lambda _: None)

        assert topic.substitutes == (copy.ledger,)


def test_a_ledger_was_not_created_after_it_was_closed() -> None:
    """Which the metadata tells of the only ledger of a topic, but for a minute between clocks."""
    info = _info(UUID(int=1))
    copy = under(golden()[_COPY], UUID(int=9))
    minute_later_ms = (info.timestamp_ms or 0) + 60_000
    for by_ms, is_taken in ((0, True), (1, False)):
        other = changed(copy, ctime_ms=minute_later_ms + by_ms)
        metadata = TopicMetadata(topic=TOPIC, ledgers=(info,))
        topic = from_metadata(metadata, [other], lambda _: None)
        assert bool(topic.substitutes) == is_taken


@pytest.mark.parametrize("entries", [0, 1])
def test_copy_of_a_ledger_that_is_empty_by_the_metadata_is_newer(entries: int) -> None:
    """A closed ledger without entries is no gap; one with an entry is, whatever lies there."""
    copy = golden()[_COPY]
    size_bytes = None if entries else 0
    info = replace(told(copy), entries=entries, size_bytes=size_bytes, offload=None)
    one_entry = changed(copy, last_entry_id=0) if entries else copy

    topic = _topic(info, one_entry)

    if entries:
        (problem,) = topic.problems
        assert problem.ledger_id == _ID
    else:
        assert topic.problems == ()
        assert (_ledger(topic).state, _ledger(topic).copy) == (LedgerState.UNKNOWN, copy)
