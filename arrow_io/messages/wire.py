"""The encodings of numbers in entries: protobuf varints and Java's big-endian integers.

For the pure build of the core; the compiled build has the same functions in `_wire.pxd`, where C
can inline them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MASK32 = 0xFFFFFFFF
MAX31 = 0x7FFFFFFF
TWO31 = 0x80000000
TWO32 = 0x100000000

_MASK64 = 0xFFFFFFFFFFFFFFFF
_TWO63 = 1 << 63
_TWO64 = 1 << 64


_ONE_BYTE = tuple(bytes([number]) for number in range(0x80))


def varint_bytes(number: int) -> bytes:
    """Encode a number (at least 0) as a varint: seven bits per byte, the lowest first."""
    if number < len(_ONE_BYTE):
        return _ONE_BYTE[number]
    encoded = []
    while more := number >> 7:
        encoded.append(number & 0x7F | 0x80)
        number = more
    encoded.append(number)
    return bytes(encoded)


def varint(p: Sequence[int], i: int, stop: int) -> tuple[int, int]:
    """Decode a protobuf varint of at most ten bytes.

    Returns:
        The value and the position after it; −1 as the position if it is incomplete.
    """
    value = 0
    shift = 0
    while i < stop and shift < 70:  # noqa: PLR2004 - ten times seven bits
        byte = p[i]
        i += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the highest bit says that more follow
            return value & _MASK64, i
        shift += 7
    return 0, -1


def skip(p: Sequence[int], i: int, stop: int, tag: int) -> int:
    """Return the position after a field that is not a varint; −1 if it is incomplete or unknown.

    `i` is the start of the field's value. `tag` holds the field's number and wire type: 1 is eight
    bytes, 2 a length and that many bytes, 5 four bytes.
    """
    wire_type = tag & 7
    if wire_type == 2:  # noqa: PLR2004
        length, i = varint(p, i, stop)
        if i < 0:
            return -1
    elif wire_type == 1:
        length = 8
    elif wire_type == 5:  # noqa: PLR2004
        length = 4
    else:
        return -1
    return i + length if length <= stop - i else -1


def int64(value: int) -> int:
    """Convert a varint to the value of an int64 field: the 64-bit two's complement."""
    return value - _TWO64 if value >= _TWO63 else value


def int32(value: int) -> int:
    """Convert a varint to the value of an int32 field: the low 32 bits, signed."""
    low = value & MASK32
    return low - TWO32 if low >= TWO31 else low


def uint32_be(p: Sequence[int], i: int) -> int:
    """Return the unsigned big-endian number in the four bytes from `i`."""
    return p[i] << 24 | p[i + 1] << 16 | p[i + 2] << 8 | p[i + 3]


def pack_position(start: int, length: int) -> int:
    """Return the position (`arrow_io.messages.layout`) of `length` bytes from `start`."""
    return start << 32 | length
