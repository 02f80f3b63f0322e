"""The parts of a damaged index object that can still be read.

They are only candidates: check them against the data object.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.errors import FormatError
from arrow_io.format.block_table import INDEX_ENTRY, INDEX_ENTRY_BYTES
from arrow_io.format.index_block import (
    DATA_OBJECT_LENGTH_OFFSET,
    INDEX_ENTRY_COUNT_OFFSET,
    METADATA_OFFSET,
)
from arrow_io.format.ledger_metadata import parse_ledger_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.format.ledger_metadata import LedgerMetadata

_LENGTH = struct.Struct(">q")
_COUNTS = struct.Struct(">ii")
_FIRST_ROW = INDEX_ENTRY.pack(0, 1, 0)


@dataclass(frozen=True, slots=True)
class DamagedIndex:
    """The readable parts of a damaged index object; a part that cannot be read is None."""

    data_object_length_bytes: int | None = None
    ledger_metadata: LedgerMetadata | None = None


def read_damaged_index(data: bytes) -> DamagedIndex:
    """Read the fields of a damaged index object that are at their offsets and well-formed.

    The length of the metadata has two sources: its own field, and the number of index entries.
    """
    if len(data) < METADATA_OFFSET:
        return DamagedIndex()
    (data_object_length,) = _LENGTH.unpack_from(data, DATA_OBJECT_LENGTH_OFFSET)
    row_count, stored_length = _COUNTS.unpack_from(data, INDEX_ENTRY_COUNT_OFFSET)
    counted_length = len(data) - METADATA_OFFSET - row_count * INDEX_ENTRY_BYTES
    candidates = (
        metadata
        for length in dict.fromkeys((stored_length, counted_length))
        for metadata in _parse_metadata(data, length, is_sure=stored_length == counted_length)
    )
    return DamagedIndex(data_object_length, next(candidates, None))


def _parse_metadata(data: bytes, length: int, *, is_sure: bool) -> Iterator[LedgerMetadata]:
    """Yield the metadata if it can have this length: the first index entry must follow it."""
    stop = METADATA_OFFSET + length
    if length < 0 or stop > len(data):
        return
    following = data[stop : stop + INDEX_ENTRY_BYTES]
    if is_sure or _FIRST_ROW.startswith(following):
        try:
            yield parse_ledger_metadata(data[METADATA_OFFSET:stop])
        except FormatError:
            return
