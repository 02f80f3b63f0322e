"""What several sources say of a topic is taken together, and contradictions are told."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, starmap
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


_Offloads = dict[int, OffloadContext | None]
_STARTED: Final = _offload(1, complete=False, driver="aws-s3")
_UNNAMED: Final = _offload(1, complete=False)
_SEGMENTED: Final = OffloadContext(
    uuid=None,
    complete=False,
    segments=tuple(OffloadSegment(uuid=UUID(int=number)) for number in (5, 6)),
)


def test_nothing_is_known_of_a_topic_without_sources() -> None:
    """No source, no metadata."""
    assert merge_metadata(None, None, None, []) is None


@pytest.mark.parametrize(
    ("value", "info", "stats", "merged"),
    [
        ({}, {1: _begun(1)}, {1: COMPLETE}, {1: _offload(1)}),
        ({}, {1: _begun(2)}, {1: None}, {1: _offload(2, complete=False)}),
        ({}, {1: _begun(1), 2: None}, {}, {1: _begun(1), 2: None}),
        ({}, {}, {1: COMPLETE}, {1: COMPLETE}),
        ({}, {1: None}, {1: COMPLETE}, {1: COMPLETE}),
        ({1: _SEGMENTED}, {1: _begun(9)}, {1: COMPLETE}, {1: _offload(9, 5, 6)}),
        ({1: _STARTED}, {1: _begun(1)}, {1: COMPLETE}, {1: _offload(1, driver="aws-s3")}),
        ({1: _STARTED}, {1: _begun(2)}, {1: COMPLETE}, {1: _offload(2, 1)}),
        ({1: _STARTED}, {}, {1: COMPLETE}, {1: _offload(1, driver="aws-s3")}),
        ({1: _STARTED}, {1: _begun(1)}, {}, {1: _STARTED}),
        ({1: _UNNAMED}, {1: _begun(7)}, {}, {1: _offload(1, 7, complete=False)}),
        ({1: _UNNAMED}, {1: None, 3: _begun(3)}, {}, {1: _UNNAMED, 3: _begun(3)}),
    ],
    ids=[
        "both answers", "both answers, begun", "info alone", "stats alone", "stats are newer",
        "segments are kept in mind", "completed later", "another attempt", "completed, no uuid",
        "info completes nothing", "other uuid of info", "a later ledger",
    ],
)  # fmt: skip
def test_each_source_tells_what_it_knows(
    value: _Offloads, info: _Offloads, stats: _Offloads, merged: _Offloads
) -> None:
    """Neither answer alone tells both uuid and completeness; the value knows better."""
    sources = (
        _topic(*starmap(_ledger, each.items())) if each else None for each in (value, info, stats)
    )

    assert _merged(*sources) == (merged, [])


def test_answers_fill_what_the_value_lacks() -> None:
    """Entries of a ledger that was open, and an offload that was begun later."""
    value = _topic(_ledger(1), _ledger(2, entries=None))
    info = _topic(_ledger(1, _begun(1)), _ledger(2), _ledger(3, entries=None))
    stats = _topic(_ledger(1, COMPLETE), _ledger(2), _ledger(3, entries=None))

    warnings: list[str] = []
    merged = merge_metadata(value, info, stats, warnings)

    assert merged == _topic(_ledger(1, _offload(1)), _ledger(2), _ledger(3, entries=None))
    assert warnings == []


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


_SUBSETS: Final = [ids for count in range(4) for ids in combinations(range(4), count)]


def _listed(ledger_ids: tuple[int, ...], last_entries: int | None) -> TopicMetadata:
    """A list of ledgers, the last of them with so many entries; None: it is open."""
    ledgers = [
        LedgerInfo(ledger_id=each, entries=last_entries if each == ledger_ids[-1] else 5)
        for each in ledger_ids
    ]
    return TopicMetadata(topic=TOPIC, ledgers=tuple(ledgers))


@pytest.mark.parametrize("last_entries", [None, 0, 5], ids=["open", "empty", "filled"])
@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_is_proven_from_the_first_ledger_that_one_of_two_lists_has(
    last_entries: int | None, place: int, *, is_checked: bool
) -> None:
    """Whatever ledgers two lists have, and whatever is known of the last of the shorter one."""
    for one in _SUBSETS:
        for other in _SUBSETS:
            lists: list[TopicMetadata | None] = [
                _listed(one, last_entries),
                _listed((*other, 9), 5),
            ]
            lists.insert(place, None)
            merged = merge_metadata(lists[0], lists[1], lists[2], [], is_checked=is_checked)
            assert merged is not None
            shared = set(range(one[-1] + 1 if one else 0))
            disputed = (set(one) ^ set(other)) & shared
            assert merged.proven_to_ledger_id < min(disputed, default=10), (one, other)


def test_ledger_that_was_open_in_the_older_list_ends_the_proof() -> None:
    """It may have stayed empty, as brokers drop it then, or the newer list may be damaged."""
    older, newer = _listed((1, 2, 3), None), _listed((1, 2, 4, 5), None)
    warnings: list[str] = []

    merged = merge_metadata(newer, None, older, warnings)

    assert merged is not None
    assert [each.ledger_id for each in merged.ledgers] == [1, 2, 4, 5]
    assert merged.proven_to_ledger_id == 2
    assert warnings == []


def test_number_that_differs_ends_the_proof() -> None:
    """Whichever of the sources is wrong, what both say of the ledgers before it stands."""
    value, stats = _listed((1, 2, 3), 5), _listed((1, 2, 3), 6)

    merged = merge_metadata(value, None, stats, [])

    assert merged is not None
    assert merged.proven_to_ledger_id == 2
