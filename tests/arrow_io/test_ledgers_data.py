"""What reads an offloaded ledger knows its blocks, and is the same in another process."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Final

import pytest

from arrow_io.format.block_table import pack_entry_table, unpack_entry_table
from arrow_io.ledgers.ledger import Block
from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag
from tests.support.buckets import memory_bucket, object_name, offload_ledger, with_lost_entries

_ENTRIES: Final = [bytes([number]) * 100 for number in range(5)]


def _opened(lost: int = 0) -> OffloadedLedger:
    """A ledger of which each of five entries has a block of its own; some more are lost."""
    name = object_name(7)
    objects = offload_ledger(name, _ENTRIES, block_bytes=240)
    if lost:
        objects[name.index_name] = with_lost_entries(objects[name.index_name], lost)
    with memory_bucket(objects) as bucket:
        return OffloadedLedger.open(Location(bucket.url), name)


@pytest.mark.parametrize("first", range(5))
@pytest.mark.parametrize("last", range(5))
def test_blocks_are_those_of_the_entries(first: int, last: int) -> None:
    """All blocks that hold any of them, in order; none if there are no entries."""
    data = _opened().data

    blocks = [Block(entry, entry, 240 * entry, 240 * entry + 240) for entry in range(5)]
    assert data.blocks(first, last) == blocks[first : last + 1]


def test_lost_entries_have_no_block() -> None:
    """Of those that the offloader lost nothing is stored."""
    data = _opened(lost=3).data

    assert data.last_entry_id == 7
    assert [block.first_entry_id for block in data.blocks(3, 7)] == [3, 4]
    assert data.blocks(5, 7) == []


def test_blocks_of_a_cut_object_end_where_it_does() -> None:
    """A block that is cut has fewer bytes, one behind the cut none."""
    data = _opened().cut_at(700).data

    sizes = [block.stop - block.start for block in data.blocks(0, 4)]
    assert sizes == [240, 240, 220, 0, 0]


@pytest.mark.parametrize("version", [None, ETag("abc")])
def test_it_is_the_same_in_another_process(version: ETag | None) -> None:
    """Whatever is known of it travels, with the ids of all blocks."""
    data = replace(_opened().cut_at(700).data, version=version)

    copy = pickle.loads(pickle.dumps(data))

    assert copy == data
    assert copy.blocks(0, 4) == data.blocks(0, 4)
    assert unpack_entry_table(pack_entry_table(data.table.entry_table)) == data.table.entry_table
