"""Ids and uuids of ledgers: whose they are is known, and none is given twice."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import OptionError
from arrow_io.format.object_names import MAX_LEDGER_ID
from connector.inputs.topic_names import TopicName
from connector.writing.ledger_ids import (
    IdRange,
    LedgerIds,
    belongs_to_write,
    check_alone,
    delete_marked,
    has_mark,
    ledger_uuid,
    mark_with_id,
    new_mark,
)
from tests.support.offloads import ledger_of, memory_offloader, names

_TOPIC = TopicName.parse("orders")


def test_an_id_that_is_taken_is_refused() -> None:
    """A second copy of a ledger would hide the first from readers."""
    ids = LedgerIds(IdRange(first=41, used_ids=frozenset({42})))

    assert ids.next_id() == 41
    with pytest.raises(OptionError, match=r"this id.*first_ledger_id.*ledger 42"):
        ids.next_id()


def _until_refused(ids: LedgerIds) -> list[int]:
    """All ids that are given before it is said that there is no other."""
    given_ids = []
    while True:
        try:
            given_ids.append(ids.next_id())
        except OptionError as error:
            assert "task_ledgers" in error.message or "end at" in error.message  # noqa: PT017
            return given_ids


@given(
    first=st.integers(0, MAX_LEDGER_ID),
    size=st.integers(1, 5),
    numbers=st.sets(st.integers(0, 2**40), min_size=1, max_size=4),
)
def test_shares_have_no_id_in_common(first: int, size: int, numbers: set[int]) -> None:
    """Each gives as many ids as it has, in the order of the shares, and then says so."""
    given_ids: list[int] = []
    for number in sorted(numbers):
        ids = LedgerIds(IdRange(first=first).share(number, size))
        given_ids += _until_refused(ids)

    assert given_ids == sorted(set(given_ids))
    assert all(first <= each <= MAX_LEDGER_ID for each in given_ids)
    if first + (max(numbers) + 1) * size <= MAX_LEDGER_ID:
        assert len(given_ids) == size * len(numbers)


def test_a_uuid_tells_its_write() -> None:
    """Each ledger has another, which is as random uuids are, and is of its own write alone."""
    mine, other = uuid4(), uuid4()

    uuids = {ledger_uuid(mine) for _ in range(50)}

    assert len(uuids) == 50
    assert all(has_mark(each, mine) and not has_mark(each, other) for each in uuids)
    assert {(each.version, each.variant) for each in uuids} == {(4, uuid4().variant)}


def test_a_uuid_tells_the_id_of_its_write() -> None:
    """Whichever run of it wrote the ledger, and of this topic alone."""
    runs = [new_mark(_TOPIC, "q-0"), mark_with_id(new_mark(_TOPIC, None), _TOPIC, "q-0")]

    for mark in runs:
        uuid = ledger_uuid(mark)
        assert belongs_to_write(uuid, _TOPIC, "q-0")
        assert not belongs_to_write(uuid, _TOPIC, "q-1")
        assert not belongs_to_write(uuid, TopicName.parse("other"), "q-0")
    assert not has_mark(ledger_uuid(runs[0]), runs[1])
    first = new_mark(_TOPIC, None)
    assert has_mark(ledger_uuid(mark_with_id(first, _TOPIC, "q-0")), first)


def test_what_a_write_left_is_deleted_and_nothing_else() -> None:
    """Ledgers, staged ones too, of its mark; those of others stay."""
    offloader, mark = memory_offloader(), uuid4()
    offloader.offload(ledger_of([b"entry"]), UUID(int=1))
    before = names(offloader.location)
    offloader.offload(ledger_of([b"entry"]), ledger_uuid(mark))
    offloader.stage(ledger_of([b"entry"]), ledger_uuid(mark))

    assert delete_marked(offloader, mark) == (2, [])
    assert names(offloader.location) == before
    assert delete_marked(offloader, mark) == (0, [])


def test_another_writer_is_found() -> None:
    """By what it has staged already; attempts of the same write do not disturb."""
    offloader, mark, other = memory_offloader(), uuid4(), uuid4()

    def is_own(uuid: UUID) -> bool:
        return has_mark(uuid, mark)

    for _ in range(2):
        offloader.stage(ledger_of([b"entry"]), ledger_uuid(mark))
    check_alone(offloader.location, is_own, {42})

    offloader.stage(ledger_of([b"entry"]), ledger_uuid(other))

    check_alone(offloader.location, is_own, {41, 43})
    with pytest.raises(OptionError, match="one writer at a time") as raised:
        check_alone(offloader.location, is_own, {42})
    assert raised.value.ledger_id == 42
