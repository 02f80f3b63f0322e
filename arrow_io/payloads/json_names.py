"""Hash tables that find a field of a JSON record by its name; `tables` has their layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from arrow_io.payloads import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_MULTIPLIERS: Final = 16
"""Number of multipliers to try for a table."""
_MAX63: Final = (1 << 63) - 1
_MASK64: Final = (1 << 64) - 1


def name_table(fields: list[tuple[bytes, int, int]]) -> list[int]:
    """Return the table that finds a field by its name: see `tables`.

    `fields` are names with their quotes and colon, positions of these, and ops. Of several
    multipliers, the table uses one with few collisions.
    """
    offset, mask = _distinctive_bytes([name[1:-1] for name, _, _ in fields])
    bits = max(1, (2 * len(fields)).bit_length())
    limit, slots = len(fields), None
    for number in range(_MULTIPLIERS):
        header = [offset, mask, _MULTIPLIER * (2 * number + 1) & _MAX63, 64 - bits]
        found = _fill_slots(header, fields, limit)
        if found is None:
            continue
        best, (slots, limit) = header, found
        if limit < 0:
            break
    if slots is None:
        # The names have one hash, whatever the multiplier is.
        best, found = header, _fill_slots(header, fields, len(fields) ** 2)
        assert found is not None  # noqa: S101 - no table has more collisions
        slots, _ = found
    last = max([tables.SLOT_WIDTH << bits, *slots]) + tables.SLOT_WIDTH
    empty = [tables.ABSENT, tables.ABSENT, 2 * len(fields), 0]
    places = range(tables.SLOT_WIDTH, last + 1, tables.SLOT_WIDTH)
    return best + [number for place in places for number in slots.get(place, empty)]


def _fill_slots(
    header: list[int], fields: list[tuple[bytes, int, int]], limit: int
) -> tuple[dict[int, list[int]], int] | None:
    """Return the slots of a table by their places, and its number of collisions minus one.

    Returns None if there are more than `limit` collisions.
    """
    slots: dict[int, list[int]] = {}
    collisions = 0
    for index, (name, position, op) in enumerate(fields):
        place = first_slot(header, name[1:-1])
        while place in slots:
            place += tables.SLOT_WIDTH
            collisions += 1
            if collisions > limit:
                return None
        slots[place] = [position, op, 2 * index, 0]
    return slots, collisions - 1


def _distinctive_bytes(names: list[bytes]) -> tuple[int, int]:
    """Return offset and mask of up to 8 bytes by which all names differ; the mask is 0 without.

    Each name ends with its quote. The bytes are within the shortest of them.
    """
    shortest = min(map(len, names), default=0)
    width = min(8, shortest)
    for offset in range(shortest - width + 1):
        if len({name[offset : offset + width] for name in names}) == len(names):
            mask = (1 << 8 * width) - 1
            return offset, mask - (1 << 64) if mask > _MAX63 else mask
    return 0, 0


def first_slot(header: Sequence[int], name: bytes) -> int:
    """Return the first place in a table of names where a name may be, as an index in the table.

    `header` holds the first `SLOT_WIDTH` numbers of the table; the name includes its end quote.
    """
    offset, mask, multiplier, shift = header
    if mask:
        number = _word(name[offset : offset + 8]) & mask
    else:
        number = length = len(name) - 1
        for start in range(0, length - 7, 8):
            number = (number + _word(name[start : start + 8])) * _MULTIPLIER & _MASK64
            number ^= number >> 32
        number += _word(name[max(0, length - 8) : length])
    return tables.SLOT_WIDTH * (1 + ((number * multiplier & _MASK64) >> shift))


def _word(data: bytes) -> int:
    return int.from_bytes(data, "little")
