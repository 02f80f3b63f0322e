"""`connector.catalog.metadata.merge`: sources prove nothing from where they disagree."""

from __future__ import annotations

from itertools import combinations
from typing import Final

import pytest

from connector.catalog.metadata.merge import merge_metadata
from connector.catalog.metadata.topic_metadata import LedgerInfo, TopicMetadata
from connector.inputs.topic_names import TopicName

TOPIC: Final = TopicName.parse("orders")
_SUBSETS: Final = [ids for count in range(4) for ids in combinations(range(4), count)]


def _topic(ledger_ids: tuple[int, ...], last_entries: int | None) -> TopicMetadata:
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
            lists: list[TopicMetadata | None] = [_topic(one, last_entries), _topic((*other, 9), 5)]
            lists.insert(place, None)
            merged = merge_metadata(lists[0], lists[1], lists[2], [], is_checked=is_checked)
            assert merged is not None
            shared = set(range(one[-1] + 1 if one else 0))
            disputed = (set(one) ^ set(other)) & shared
            assert merged.proven_to_ledger_id < min(disputed, default=10), (one, other)


def test_ledger_that_was_open_in_the_older_list_ends_the_proof() -> None:
    """It may have stayed empty, as brokers drop it then, or the newer list may be damaged."""
    older, newer = _topic((1, 2, 3), None), _topic((1, 2, 4, 5), None)
    warnings: list[str] = []

    merged = merge_metadata(newer, None, older, warnings)

    assert merged is not None
    assert [each.ledger_id for each in merged.ledgers] == [1, 2, 4, 5]
    assert merged.proven_to_ledger_id == 2
    assert warnings == []


def test_number_that_differs_ends_the_proof() -> None:
    """Whichever of the sources is wrong, what both say of the ledgers before it stands."""
    value, stats = _topic((1, 2, 3), 5), _topic((1, 2, 3), 6)

    merged = merge_metadata(value, None, stats, [])

    assert merged is not None
    assert merged.proven_to_ledger_id == 2
