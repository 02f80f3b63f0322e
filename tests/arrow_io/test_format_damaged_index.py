"""`arrow_io.format.damaged_index`: one damaged byte leaves the metadata to be found."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from arrow_io.format.damaged_index import DamagedIndex, read_damaged_index
from arrow_io.format.index_block import METADATA_OFFSET, read_index_block
from tests.support.encoded_ledgers import encode_ledger
from tests.support.offloads import ENTRIES, metadata_of

_INDEX: Final = encode_ledger(ENTRIES, metadata_of(ENTRIES), block_bytes=250).index
_SOUND: Final = read_index_block(_INDEX, object_key="")
_METADATA_STOP: Final = len(_INDEX) - len(_SOUND.entry_table)


def test_a_sound_one_is_read() -> None:
    """What it says is what the index says."""
    found = read_damaged_index(_INDEX)
    assert found.data_object_length_bytes == _SOUND.data_object_length_bytes
    assert found.ledger_metadata == _SOUND.ledger_metadata


def test_one_byte_beside_the_metadata_hides_nothing_of_it() -> None:
    """Neither in the fields before it nor in the index entries behind it."""
    for place in (*range(METADATA_OFFSET), *range(_METADATA_STOP, len(_INDEX))):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(_INDEX)
            damaged[place] ^= flip
            assert read_damaged_index(bytes(damaged)).ledger_metadata == _SOUND.ledger_metadata


def test_what_is_cut_behind_the_metadata_still_has_it() -> None:
    """And what is cut before has nothing, or not that."""
    for length in range(len(_INDEX)):
        found = read_damaged_index(_INDEX[:length]).ledger_metadata
        assert found == (_SOUND.ledger_metadata if length >= _METADATA_STOP else None)
    assert read_damaged_index(b"") == DamagedIndex()


@given(data=st.binary(max_size=300))
def test_any_bytes_are_taken(data: bytes) -> None:
    """Nothing is raised, and nothing long is made."""
    read_damaged_index(data)
    read_damaged_index(_INDEX[:32] + data)
