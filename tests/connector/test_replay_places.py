"""Places of messages, and the sequence ids that stand for them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import UnsupportedFormatError
from connector.inputs.message_ids import MessageId
from connector.replay.places import (
    MAX_BATCH_INDEX,
    MAX_ENTRY_ID,
    POSITION_COLUMNS,
    entry_from_place,
    era_from_place,
    eras_from_ledgers,
    message_id_from_place,
    place_from_sequence_id,
    places_from_batch,
    rows_after,
    sequence_id_from_place,
)

# The ids of a topic may be those of a cluster that has had any number of ledgers.
POSITIONS = st.tuples(
    st.integers(0, 2**63 - 1),
    st.integers(0, MAX_ENTRY_ID),
    st.none() | st.integers(0, MAX_BATCH_INDEX),
)


def batch_of(*positions: tuple[int, int, int | None]) -> pa.RecordBatch:
    """A record batch with these positions."""
    arrays = [
        pa.array([each[number] for each in positions], kind)
        for number, kind in enumerate((pa.int64(), pa.int64(), pa.int32()))
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(POSITION_COLUMNS))


def order(position: tuple[int, int, int | None]) -> tuple[int, int, int]:
    """What positions are ordered by; one that is not batched is alone in its entry."""
    return position[0], position[1], position[2] or 0


@given(st.lists(POSITIONS, max_size=20))
def test_places_are_ordered_as_positions_are(positions: list[tuple[int, int, int | None]]) -> None:
    """Whatever the ids: a later message has a greater place, and no other has the same."""
    places = places_from_batch(batch_of(*positions))

    for one, place in zip(positions, places, strict=True):
        for other, other_place in zip(positions, places, strict=True):
            assert (order(one) < order(other)) == (place < other_place)


@given(POSITIONS)
def test_a_sequence_id_leads_back_to_its_place(position: tuple[int, int, int | None]) -> None:
    """Era and sequence id are all there is of a place, and a broker can keep the sequence id."""
    [place] = places_from_batch(batch_of(position))

    assert 1 <= sequence_id_from_place(place) < 2**63
    assert place_from_sequence_id(era_from_place(place), sequence_id_from_place(place)) == place
    assert entry_from_place(place) == position[:2]
    assert MessageId.parse(message_id_from_place(place)) == MessageId(*order(position))
    assert eras_from_ledgers([position[0]]) == [era_from_place(place)]


@given(st.lists(POSITIONS, max_size=20), POSITIONS)
def test_what_is_behind_a_place_is_kept(
    positions: list[tuple[int, int, int | None]], at: tuple[int, int, int | None]
) -> None:
    """The message at the place itself is not."""
    [place] = places_from_batch(batch_of(at))

    rows = rows_after(batch_of(*positions), place)

    assert places_from_batch(rows) == [
        each for each in places_from_batch(batch_of(*positions)) if each > place
    ]


def test_all_is_behind_no_place() -> None:
    """The first message of the first ledger that a cluster has is behind 0."""
    assert rows_after(batch_of((0, 0, None)), 0).num_rows == 1


@pytest.mark.parametrize(
    ("position", "what"),
    [
        ((7, MAX_ENTRY_ID + 1, None), "67108865 entries of a ledger do not fit .* 67108864"),
        ((7, 0, MAX_BATCH_INDEX + 1), "65536 messages of an entry do not fit .* 65535"),
    ],
)
def test_positions_without_room_are_refused(
    position: tuple[int, int, int | None], what: str
) -> None:
    """Nothing is sent with a sequence id that another message may have."""
    with pytest.raises(UnsupportedFormatError, match=what) as raised:
        places_from_batch(batch_of((6, 1, 0), position))

    assert raised.value.ledger_id == 7


def test_eras_are_told_once_and_in_order() -> None:
    """Ledgers of two million ids share one; a topic without ledgers has the first."""
    assert eras_from_ledgers([2**21, 5, 2**21 - 1, 3 << 21]) == [0, 1, 3]
    assert eras_from_ledgers([]) == [0]
