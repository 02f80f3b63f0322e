"""Places: message positions packed into integers, and the sequence ids derived from them.

The lowest 16 bits of a place are the message's number in its entry (from 1), the next 26 bits are
the entry id, and the rest is the ledger id. So places are in message order, and do not change when
retention deletes ledgers. A sequence id is the low 63 bits of a place. The bits above are the
place's *era*, which changes once in two million ledger ids. The era is part of the producer's name,
by which brokers remember sequence ids (PIP-6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from arrow_io.errors import UnsupportedFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

POSITION_COLUMNS: Final = ("__ledger_id__", "__entry_id__", "__batch_index__")

_MESSAGE_BITS: Final = 16
_ENTRY_BITS: Final = 26
_LEDGER_SHIFT: Final = _MESSAGE_BITS + _ENTRY_BITS
_SEQUENCE_BITS: Final = 63
_MESSAGE_MASK: Final = (1 << _MESSAGE_BITS) - 1
_ENTRY_MASK: Final = (1 << _ENTRY_BITS) - 1

MAX_ENTRY_ID: Final = _ENTRY_MASK
"""Greatest entry id that fits a place."""
MAX_BATCH_INDEX: Final = _MESSAGE_MASK - 1
"""Greatest batch index that fits a place."""


def places_from_batch(batch: pa.RecordBatch) -> list[int]:
    """Return the places of messages, from the columns `POSITION_COLUMNS`.

    Raises:
        UnsupportedFormatError: An entry id or batch index does not fit a place.
    """
    ledgers, lower = _split(batch)
    return [
        ledger << _LEDGER_SHIFT | low
        for ledger, low in zip(ledgers.to_pylist(), lower.to_pylist(), strict=True)
    ]


def rows_after(batch: pa.RecordBatch, place: int) -> pa.RecordBatch:
    """Return the messages of a record batch after a place. Raises as `places_from_batch` does."""
    ledgers, lower = _split(batch)
    ledger_id = place >> _LEDGER_SHIFT
    is_after = pc.or_(
        pc.greater(ledgers, ledger_id),
        pc.and_(
            pc.equal(ledgers, ledger_id),
            pc.greater(lower, place & ((1 << _LEDGER_SHIFT) - 1)),
        ),
    )
    return batch.filter(is_after)


def place_from_sequence_id(era: int, sequence_id: int) -> int:
    """Return the place of a sequence id in an era."""
    return era << _SEQUENCE_BITS | sequence_id


def era_from_place(place: int) -> int:
    """Return the era of a place, 0 or more."""
    return place >> _SEQUENCE_BITS


def sequence_id_from_place(place: int) -> int:
    """Return the sequence id of a place in its era, 1 or more and below 2^63."""
    return place & ((1 << _SEQUENCE_BITS) - 1)


def entry_from_place(place: int) -> tuple[int, int]:
    """Return the ledger id and entry id of a place."""
    return place >> _LEDGER_SHIFT, place >> _MESSAGE_BITS & _ENTRY_MASK


def message_id_from_place(place: int) -> str:
    """Return a place in the spelling of `start`: `(ledger,entry,batch)`; 0 if not batched."""
    ledger_id, entry_id = entry_from_place(place)
    return f"({ledger_id},{entry_id},{(place & _MESSAGE_MASK) - 1})"


def eras_from_ledgers(ledger_ids: Iterable[int]) -> list[int]:
    """Return the eras of ledger ids, ascending. Without ledgers, return the first era."""
    return sorted({era_from_place(each << _LEDGER_SHIFT) for each in ledger_ids}) or [0]


def _split(batch: pa.RecordBatch) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Return the ledger ids of messages, and the bits of their places below the ledger id."""
    ledgers, entries, indexes = (batch.column(name) for name in POSITION_COLUMNS)
    _check(entries, MAX_ENTRY_ID, "entries of a ledger", ledgers)
    _check(indexes, MAX_BATCH_INDEX, "messages of an entry", ledgers)
    numbers = pc.add(pc.fill_null(indexes.cast(pa.int64()), 0), 1)
    return ledgers, pc.bit_wise_or(pc.shift_left(entries, _MESSAGE_BITS), numbers)


def _check(numbers: pa.Array, greatest: int, noun: str, ledgers: pa.Int64Array) -> None:
    most = pc.max(numbers).as_py()
    if most is not None and most > greatest:
        message = f"{most + 1} {noun} do not fit sequence ids: at most {greatest + 1} do"
        raise UnsupportedFormatError(message, ledger_id=pc.max(ledgers).as_py())
