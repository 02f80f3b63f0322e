"""What several sources say of a topic is taken together, and contradictions are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest

from arrow_io.errors import CorruptMetadataError
from connector.catalog.metadata.merge import merge_metadata
from connector.catalog.metadata.topic_metadata import (
    LedgerInfo,
    OffloadContext,
    OffloadSegment,
    TopicMetadata,
)
from connector.inputs.topic_names import TopicName

TOPIC: Final = TopicName.parse("orders")
COMPLETE: Final = OffloadContext(uuid=None, complete=True)


def _topic(*ledgers: LedgerInfo) -> TopicMetadata:
    return TopicMetadata(topic=TOPIC, ledgers=ledgers)


def _ledger(
    ledger_id: int, offload: OffloadContext | None = None, entries: int | None = 5
) -> LedgerInfo:
    return LedgerInfo(ledger_id=ledger_id, entries=entries, offload=offload)


def _offload(
    number: int, *others: int, complete: bool | None = True, driver: str | None = None
) -> OffloadContext:
    other_uuids = tuple(UUID(int=other) for other in others)
    return OffloadContext(
        uuid=UUID(int=number), complete=complete, other_uuids=other_uuids, driver=driver
    )


def _begun(number: int) -> OffloadContext:
    """What internal-info says of an offload."""
    return _offload(number, complete=None)


def _merged(
    value: TopicMetadata | None = None,
    info: TopicMetadata | None = None,
    stats: TopicMetadata | None = None,
) -> tuple[dict[int, OffloadContext | None], list[str]]:
    """Offloads by ledger id, and what was told."""
    warnings: list[str] = []
    merged = merge_metadata(value, info, stats, warnings)
    assert merged is not None
    return {ledger.ledger_id: ledger.offload for ledger in merged.ledgers}, warnings


def test_nothing_is_known_of_a_topic_without_sources() -> None:
    """No source, no metadata."""
    assert merge_metadata(None, None, None, []) is None


def test_uuid_is_of_info_and_completeness_of_stats() -> None:
    """Neither answer alone tells both."""
    info = _topic(_ledger(1, _begun(1)), _ledger(2, _begun(2)), _ledger(3))
    stats = _topic(_ledger(1, COMPLETE), _ledger(2), _ledger(3))

    assert _merged(info=info, stats=stats) == (
        {1: _offload(1), 2: _offload(2, complete=False), 3: None},
        [],
    )


def test_info_alone_leaves_completeness_open() -> None:
    """What nobody said is neither true nor false."""
    assert _merged(info=_topic(_ledger(1, _begun(1)), _ledger(2))) == ({1: _begun(1), 2: None}, [])


def test_stats_alone_have_no_uuids() -> None:
    """Stats alone are accepted; what they do not know stays unknown."""
    assert _merged(stats=_topic(_ledger(1, COMPLETE))) == ({1: COMPLETE}, [])


def test_stats_that_are_newer_than_info_count() -> None:
    """An offload that began after internal-info was asked for is complete without a uuid."""
    assert _merged(info=_topic(_ledger(1)), stats=_topic(_ledger(1, COMPLETE))) == (
        {1: COMPLETE},
        [],
    )


def test_value_wins_over_the_answers() -> None:
    """Where two uuids claim one ledger, the broker's own is taken, and the other is told."""
    value = _topic(_ledger(1, _offload(1, driver="aws-s3")))
    info, stats = _topic(_ledger(1, _begun(2))), _topic(_ledger(1, COMPLETE))

    offloads, warnings = _merged(value, info, stats)

    assert offloads == {1: _offload(1, 2, driver="aws-s3")}
    assert len(warnings) == 1
    for words in ("ledger 1", str(UUID(int=1)), str(UUID(int=2))):
        assert words in warnings[0]


def test_segments_of_an_attempt_that_does_not_count_are_kept_in_mind() -> None:
    """What any source names is not nobody's, be it a segment of streaming offload."""
    segments = tuple(OffloadSegment(uuid=UUID(int=number)) for number in (5, 6))
    begun = OffloadContext(uuid=None, complete=False, segments=segments)
    value, stats = _topic(_ledger(1, begun)), _topic(_ledger(1, COMPLETE))
    info = _topic(_ledger(1, _begun(9)))

    assert _merged(value, info, stats)[0] == {1: _offload(9, 5, 6)}


def test_answers_fill_what_the_value_lacks() -> None:
    """Entries of a ledger that was open, and an offload that was begun later."""
    value = _topic(_ledger(1), _ledger(2, entries=None))
    info = _topic(_ledger(1, _begun(1)), _ledger(2), _ledger(3, entries=None))
    stats = _topic(_ledger(1, COMPLETE), _ledger(2), _ledger(3, entries=None))

    warnings: list[str] = []
    merged = merge_metadata(value, info, stats, warnings)

    assert merged == _topic(_ledger(1, _offload(1)), _ledger(2), _ledger(3, entries=None))
    assert warnings == []


def test_offload_completed_after_the_value_was_saved_is_complete() -> None:
    """The same attempt keeps the value's driver; another attempt is taken as it is."""
    value = _topic(_ledger(1, _offload(1, complete=False, driver="aws-s3")))
    stats = _topic(_ledger(1, COMPLETE))

    same, _ = _merged(value, _topic(_ledger(1, _begun(1))), stats)
    other, _ = _merged(value, _topic(_ledger(1, _begun(2))), stats)
    unnamed, _ = _merged(value, None, stats)

    assert same == unnamed == {1: _offload(1, driver="aws-s3")}
    assert other == {1: _offload(2, 1)}


def test_info_without_stats_makes_no_offload_of_the_value_complete() -> None:
    """Its flag is true from an offload's beginning, and the value knows better, if it knows."""
    value = _topic(*(_ledger(number, _offload(number, complete=False)) for number in (1, 2)))
    info = _topic(_ledger(1, _begun(1)), _ledger(2, _begun(7)), _ledger(3, _begun(3)))

    assert _merged(value, info) == (
        {1: _offload(1, complete=False), 2: _offload(2, 7, complete=False), 3: _begun(3)},
        [],
    )


def test_newer_list_is_the_topics() -> None:
    """The one that ends later, or begins later; trimmed ledgers are told, empty ones are not."""
    value = _topic(_ledger(1), _ledger(2), _ledger(4, entries=0))
    stats = _topic(_ledger(2), _ledger(5, entries=None))

    offloads, warnings = _merged(value, stats=stats)

    assert list(offloads) == [2, 5]
    assert len(warnings) == 1
    assert "1 ledger more" in warnings[0]
    assert "the first: 1" in warnings[0]
    assert list(_merged(stats, stats=value)[0]) == [2, 5]
    assert list(_merged(_topic(_ledger(1), _ledger(2)), stats=_topic(_ledger(2)))[0]) == [2]
    assert list(_merged(_topic(), stats=_topic(_ledger(2)))[0]) == [2]


def test_cursors_are_where_they_were_seen_last() -> None:
    """Acknowledging moves a cursor on, so the later position was read later."""
    value, stats = (
        replace(_topic(_ledger(1)), cursors=cursors)
        for cursors in (
            {"ahead": (1, 3), "behind": (1, 1), "only here": (1, 2)},
            {"ahead": (1, 2), "behind": (2, 0), "only there": (1, 4)},
        )
    )

    merged = merge_metadata(value, None, stats, [])

    assert merged is not None
    assert merged.cursors == {
        "ahead": (1, 3),
        "behind": (2, 0),
        "only here": (1, 2),
        "only there": (1, 4),
    }


def _proven_to(*sources: TopicMetadata | None, is_checked: bool = False) -> int:
    value, info, stats = sources
    merged = merge_metadata(value, info, stats, [], is_checked=is_checked)
    assert merged is not None
    return merged.proven_to_ledger_id


def test_two_sources_that_agree_prove_what_both_reach() -> None:
    """One alone proves nothing, unless it is known to be as it was written."""
    whole = _topic(*(_ledger(number) for number in (1, 2, 4)), _ledger(5, entries=None))
    older, trimmed = _topic(*whole.ledgers[:2]), _topic(*whole.ledgers[1:])

    unchecked = merge_metadata(whole, None, None, [])
    assert unchecked is not None
    assert unchecked.proven_to_ledger_id == -1
    for alone in ((whole, None, None), (None, whole, None), (None, None, whole)):
        assert _proven_to(*alone) == -1
        assert _proven_to(*alone, is_checked=True) == 5
    for both in ((whole, whole, None), (whole, None, whole), (None, whole, whole)):
        assert _proven_to(*both) == 5
    assert _proven_to(whole, older, None) == _proven_to(older, None, whole) == 2
    assert _proven_to(whole, older, older) == _proven_to(older, older, older) == 2
    assert _proven_to(older, whole, whole) == _proven_to(older, whole, whole) == 5
    assert _proven_to(_topic(), whole, None) == -1
    # What was trimmed only one of them tells.
    for is_checked in (False, True):
        assert _proven_to(whole, trimmed, None, is_checked=is_checked) == 0
        assert _proven_to(None, trimmed, whole, is_checked=is_checked) == 0


@pytest.mark.parametrize("lost", [2, 3, 4])
@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("beside", [0, 1, 2])
def test_sources_that_disagree_in_the_middle_are_a_doubt(
    lost: int, damaged: int, beside: int
) -> None:
    """A part of a value lacks any ledgers; all that one of them has are the topic's."""
    whole = _topic(*(_ledger(number, _offload(number)) for number in range(1, 6)))
    part = replace(whole, ledgers=tuple(e for e in whole.ledgers if e.ledger_id != lost))
    if damaged == beside:
        beside = (beside + 1) % 3
    sources: list[TopicMetadata | None] = [None, None, None]
    sources[damaged], sources[beside] = part, whole

    offloads, warnings = _merged(*sources)

    assert list(offloads) == [1, 2, 3, 4, 5]
    assert len(warnings) == 1
    assert f"lacks 1 ledger among those that it lists, the first: {lost}" in warnings[0]
    assert _proven_to(*sources) == _proven_to(*sources, is_checked=True) == lost - 1


def test_empty_ledgers_may_come_and_go() -> None:
    """A broker that loads a topic drops the empty open ledger, and makes another."""
    before = _topic(_ledger(1), _ledger(2, entries=0))
    later = _topic(_ledger(1), _ledger(3, entries=None), _ledger(4, entries=None))

    assert _proven_to(before, later, None) == 1
    assert _merged(before, later)[1] == []


def test_numbers_that_differ_prove_nothing() -> None:
    """Of two sources that disagree one is wrong, and nothing tells which."""
    assert _proven_to(_topic(_ledger(1)), None, _topic(_ledger(1, entries=6))) == 0


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("zero", [0, None])
def test_end_of_a_terminated_topic_tells_its_last_ledger(place: int, zero: int | None) -> None:
    """Nothing is noted of the ledger that was open but the position, by one of the sources."""
    last = LedgerInfo(ledger_id=2, entries=zero, size_bytes=zero)
    metadata = _topic(_ledger(1), last)
    for position, entries in (((2, 6), 7), ((2, -1), 0), ((1, 4), 0)):
        sources: list[TopicMetadata | None] = [metadata, metadata, metadata]
        sources[place] = replace(metadata, terminated_position=position)
        warnings: list[str] = []

        merged = merge_metadata(sources[0], sources[1], sources[2], warnings)

        assert merged is not None
        assert merged.ledgers[-1] == LedgerInfo(ledger_id=2, entries=entries)
        assert merged.terminated_position == position
        assert warnings == []
        assert merged.proven_to_ledger_id == 2
    known = _topic(_ledger(1), _ledger(2))
    told = merge_metadata(replace(known, terminated_position=(2, 8)), None, None, [])
    assert told is not None
    assert [each.entries for each in told.ledgers] == [5, 5]


def test_sources_together_stay_within_range() -> None:
    """Numbers that each source may tell, and no topic can have in sum, must be an error."""
    value = _topic(_ledger(1, entries=2**63 - 1), _ledger(2, entries=None))
    stats = _topic(_ledger(1, entries=None), _ledger(2, entries=1))

    with pytest.raises(CorruptMetadataError, match=r"at most 2\^63 - 1 entries"):
        merge_metadata(value, None, stats, [])


def test_numbers_that_differ_are_told() -> None:
    """Entries are those of the source that is trusted more."""
    offloads, warnings = _merged(_topic(_ledger(1, entries=5)), stats=_topic(_ledger(1, entries=6)))

    assert list(offloads) == [1]
    assert len(warnings) == 1
    assert "5 entries" in warnings[0]


def test_what_only_one_source_has_is_kept() -> None:
    """Termination, properties and times come from whichever source has them."""
    value = TopicMetadata(topic=TOPIC, ledgers=(LedgerInfo(ledger_id=1, entries=1),))
    info = TopicMetadata(
        topic=TOPIC,
        ledgers=(LedgerInfo(ledger_id=1, size_bytes=2, timestamp_ms=3, properties={"a": "b"}),),
        terminated_position=(1, 0),
        properties={"c": "d"},
    )

    merged = merge_metadata(value, info, None, [])

    assert merged == TopicMetadata(
        topic=TOPIC,
        ledgers=(
            LedgerInfo(ledger_id=1, entries=1, size_bytes=2, timestamp_ms=3, properties={"a": "b"}),
        ),
        terminated_position=(1, 0),
        properties={"c": "d"},
    )


_VALUE: Final = "the metadata store's value"
_ANSWERS: Final = "the admin API's answers"


def _told(first: int, more: int, older: str, newer: str) -> str:
    counted, they_are = ("1 ledger", "it is") if more == 1 else (f"{more} ledgers", "they are")
    return (
        f"{TOPIC}: {older} has {counted} more than {newer}, which is newer,"
        f" the first: {first}; {they_are} assumed to be trimmed"
    )


def _lacks(lost: int, first: int, source: str) -> str:
    counted = "1 ledger" if lost == 1 else f"{lost} ledgers"
    return (
        f"{TOPIC}: {source} lacks {counted} among those that it lists, the first: {first};"
        " it may be damaged"
    )


@pytest.mark.parametrize(
    ("sources", "ledger_ids", "told"),
    [
        ({"value": (1, 2, 3), "stats": (3, 4)}, [3, 4], [_told(1, 2, _VALUE, _ANSWERS)]),
        ({"value": (3, 4), "info": (2, 3)}, [3, 4], [_told(2, 1, _ANSWERS, _VALUE)]),
        ({"info": (1, 2), "stats": (2,)}, [2], [_told(1, 1, "internal-info", "internalStats")]),
        ({"info": (2,), "stats": (1, 2)}, [2], [_told(1, 1, "internalStats", "internal-info")]),
        # One began before retention took a ledger, and each has lost one of the middle since.
        (
            {"value": (2, 4, 5, 6), "stats": (3, 5, 6, 7)},
            [3, 4, 5, 6, 7],
            [_told(2, 1, _VALUE, _ANSWERS), _lacks(1, 4, _ANSWERS), _lacks(1, 3, _VALUE)],
        ),
        ({"value": (2, 3, 4, 5), "stats": (2, 6)}, [2, 3, 4, 5, 6], [_lacks(3, 3, _ANSWERS)]),
        ({"value": (2, 6), "info": (2, 3, 4, 5)}, [2, 3, 4, 5, 6], [_lacks(3, 3, _VALUE)]),
        (
            {"value": (2, 5), "info": (2, 3, 4, 6)},
            [2, 3, 4, 5, 6],
            [_lacks(1, 5, _ANSWERS), _lacks(2, 3, _VALUE)],
        ),
        # Neither of the two is newer, so the first is taken for it.
        (
            {"value": (1, 2, 9), "info": (1, 3, 9)},
            [1, 2, 3, 9],
            [_lacks(1, 3, _VALUE), _lacks(1, 2, _ANSWERS)],
        ),
        ({"value": (), "stats": (0,)}, [0], []),
        ({"value": (0,), "stats": ()}, [0], []),
        ({"value": (1, 2), "stats": (1, 2)}, [1, 2], []),
    ],
    ids=str,
)
def test_user_is_told_which_source_is_behind(
    sources: dict[str, tuple[int, ...]], ledger_ids: list[int], told: list[str]
) -> None:
    """The newer list counts, whichever source it is of, and the words name the right one."""
    topics = {name: _topic(*map(_ledger, ids)) for name, ids in sources.items()}

    offloads, warnings = _merged(**topics)

    assert list(offloads) == ledger_ids
    assert warnings == told


def test_each_contradiction_is_told_with_both_numbers() -> None:
    """Entries, bytes and uuids that differ: what the value says is taken, and both are named."""
    value = LedgerInfo(ledger_id=1, entries=5, size_bytes=70, timestamp_ms=3, offload=_offload(1))
    stats = LedgerInfo(ledger_id=1, entries=6, size_bytes=80, timestamp_ms=4, offload=COMPLETE)
    info = LedgerInfo(ledger_id=1, entries=6, size_bytes=80, timestamp_ms=4, offload=_begun(2))
    warnings: list[str] = []

    merged = merge_metadata(_topic(value), _topic(info), _topic(stats), warnings)

    assert merged is not None
    assert merged.ledgers == (replace(value, offload=_offload(1, 2)),)
    contradictions = (
        ("5 entries", 6),
        ("70 bytes", 80),
        (f"{UUID(int=1)} as the uuid of its offload", UUID(int=2)),
    )
    assert warnings == [
        f"{TOPIC}: ledger 1 has {said} by {_VALUE}, {other} by {_ANSWERS}; the first is used"
        for said, other in contradictions
    ]


def test_uuid_of_an_offload_that_is_not_complete_contradicts_nothing() -> None:
    """An attempt that failed may have any uuid; the one that was completed counts."""
    for one, other in ((True, False), (False, True)):
        value = _topic(_ledger(1, _offload(1, complete=one)))
        info = _topic(_ledger(1, _begun(2)))
        stats = _topic(_ledger(1, COMPLETE if other else None))

        offloads, warnings = _merged(value, info, stats)

        assert warnings == []
        assert offloads[1] is not None
        assert offloads[1].uuid == UUID(int=1 if one else 2)


def test_where_both_sources_know_the_first_is_believed() -> None:
    """The value before the answers; where a topic ends, internal-info before internalStats."""
    value, answers = (
        TopicMetadata(
            topic=TOPIC,
            ledgers=(LedgerInfo(ledger_id=1, entries=1, properties={"of": name}),),
            terminated_position=(1, entry),
            properties={"of": name},
        )
        for name, entry in (("value", 0), ("answers", 7))
    )

    assert merge_metadata(value, answers, None, []) == value
    assert merge_metadata(None, answers, value, []) == replace(value, terminated_position=(1, 7))
