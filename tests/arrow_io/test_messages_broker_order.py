"""`arrow_io.messages.broker_order`: each entry is compared with the one before it, in any runs."""

from __future__ import annotations

from array import array
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.messages import layout
from arrow_io.messages.broker_order import BrokerOrder
from arrow_io.messages.entry_run import EntryRun

pytestmark = pytest.mark.usefixtures("build")

_NUMBERED: Final = layout.HAS_BROKER_INDEX
_FLAGS: Final = st.sampled_from((_NUMBERED, _NUMBERED, _NUMBERED, 0, _NUMBERED | layout.BROKEN))
_ENTRIES: Final = st.tuples(_FLAGS, st.integers(0, 6), st.integers(0, 3))
"""Flags, the broker's index, and how many messages the entry has."""


def _run(entries: list[tuple[int, int, int]], first: int) -> EntryRun:
    table = array("q", bytes(8 * layout.ENTRY_WIDTH * len(entries)))
    for place, (flags, index, messages) in enumerate(entries):
        base = place * layout.ENTRY_WIDTH
        table[base + layout.ENTRY_ID] = first + place
        table[base + layout.FLAGS] = flags
        table[base + layout.BROKER_INDEX] = index
        table[base + layout.BATCH_SIZE] = messages
    nothing = memoryview(b"")
    return EntryRun(7, "object", nothing, 0, nothing, first, len(entries), _table=memoryview(table))


@given(st.lists(st.lists(_ENTRIES, min_size=1, max_size=6), min_size=1, max_size=4))
def test_what_goes_back_is_told_whatever_the_runs(parts: list[list[tuple[int, int, int]]]) -> None:
    """As by a walk over all entries, one after the other."""
    order, found, before, first = BrokerOrder(), [], None, 0
    for part in parts:
        found += [each.entry_id for each in order.errors(_run(part, first))]
        first += len(part)
    expected = []
    for entry_id, (flags, index, messages) in enumerate(each for part in parts for each in part):
        if flags != _NUMBERED:
            before = None
            continue
        begins = index + 1 == max(messages, 1)
        if before is not None and index <= before and not begins:
            expected.append(entry_id)
        before = index
    assert found == expected
    assert order.last == before
