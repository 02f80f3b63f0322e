"""Both builds copy the same entries of MapFiles for every input, and never leave their bounds."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.support.builds import BUILDS
from tests.support.map_files import ESCAPE, MARKER, vint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.core.builds import Build

_GUARD: Final = b"\xa5" * 16
_ESCAPED: Final = ESCAPE + MARKER


def _both(call: Callable[[Build], object]) -> None:
    """Check that a call gives the same on both builds."""
    assert call(BUILDS["pure"]) == call(BUILDS["compiled"])


def _guarded(size: int) -> bytearray:
    return bytearray(bytes(size) + _GUARD)


def frame_records(
    build: Build, data: bytes, *, start: int, stop: int, key: int, last_key: int
) -> tuple[list[int], bytes]:
    """The numbers, and the frames."""
    target, result = _guarded(stop - start), array("q", bytes(48))
    view = memoryview(target)[: stop - start]
    build.records.frame_records(data, start, stop, key, last_key, _ESCAPED, view, result)
    assert target.endswith(_GUARD)
    return list(result), bytes(target[: result[4]])


def frame_values(
    build: Build, values: bytes, lengths: Sequence[int], keys: bytes, *, first: int, key: int
) -> tuple[list[int], bytes]:
    """The numbers, and the frames."""
    count = len(lengths)
    size = len(values) + 8 * (count - first)
    target, result = _guarded(size), array("q", bytes(48))
    view = memoryview(target)[:size]
    build.records.frame_values(
        values, len(values), array("q", lengths), keys, first, count, key, view, result
    )
    assert target.endswith(_GUARD)
    return list(result), bytes(target[: result[4]])


def read_lengths(
    build: Build, data: bytes, count: int, longest: int
) -> tuple[list[int], list[int]]:
    """The numbers, and the lengths."""
    lengths, result = array("q", bytes(8 * count) + _GUARD), array("q", bytes(48))
    build.records.read_lengths(data, len(data), lengths, count, longest, result)
    assert lengths.tobytes().endswith(_GUARD)
    return list(result), list(lengths[: result[0]])


_KEY: Final = st.one_of(st.integers(-1, 3), st.sampled_from([2**31, 2**40, 2**62 - 1, -(2**63)]))


@st.composite
def _records(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records, mostly sound ones, and the first key."""
    key = first = draw(_KEY)
    parts = []
    for _ in range(draw(st.integers(0, 5))):
        value = draw(st.binary(max_size=20))
        lengths = [12 + len(value), 8, len(value)]
        if draw(st.integers(0, 9)) == 0:
            lengths[draw(st.integers(0, 2))] = draw(st.integers(-(2**31), 2**31 - 1))
        key = draw(_KEY) if draw(st.integers(0, 9)) == 0 else key
        parts.append(_ESCAPED if draw(st.booleans()) else b"")
        parts.append(struct.pack(">iiqi", *lengths[:2], key, lengths[2]) + value)
        key = min(key + 1, 2**63 - 1)
    return b"".join(parts), max(min(first, 2**62), -(2**62))


@given(_records(), st.data())
def test_records_are_copied_alike(records: tuple[bytes, int], data: st.DataObject) -> None:
    """From any position on, up to any other, and after any change."""
    content, key = records
    start = data.draw(st.integers(0, min(len(content), 3)))
    stop = data.draw(st.integers(start, len(content)))
    content += b"\0"
    at, bits = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 255))
    last_key = key + data.draw(st.integers(-1, 4))
    other = content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]
    place = {"start": start, "stop": stop, "key": key, "last_key": last_key}
    _both(lambda build: frame_records(build, content, **place))
    _both(lambda build: frame_records(build, other, **place))


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6), _KEY, st.integers(0, 5), st.data())
def test_values_are_copied_alike(
    entries: list[bytes], key: int, first: int, data: st.DataObject
) -> None:
    """From any of them on, with lengths and keys that are right or not, and cut anywhere."""
    first, key = min(first, len(entries)), max(min(key, 2**62), -(2**62))
    lengths = [4 + len(each) for each in entries]
    keys = [key - first + index for index in range(len(entries))]
    for numbers, other in ((lengths, st.integers(-(2**62), 2**62)), (keys, _KEY)):
        if data.draw(st.integers(0, 3)) == 0:
            numbers[data.draw(st.integers(0, len(entries) - 1))] = data.draw(other)
    values = b"".join(struct.pack(">i", len(each)) + each for each in entries[first:])
    if data.draw(st.booleans()):
        values = values[: data.draw(st.integers(0, len(values)))]
    packed = struct.pack(f">{len(keys)}q", *keys)
    _both(lambda build: frame_values(build, values, lengths, packed, first=first, key=key))


@given(
    st.lists(
        st.one_of(
            st.integers(-(2**63), 2**63 - 1).map(vint),
            st.integers(0, 300).map(vint),
            st.binary(max_size=3),
        ),
        max_size=8,
    ).map(b"".join),
    st.integers(0, 9),
    st.sampled_from([127, 300, 2**31, 2**32 - 1]),
)
def test_lengths_are_decoded_alike(data: bytes, count: int, longest: int) -> None:
    """Whatever the bytes are; and those of sound numbers are these numbers."""
    _both(lambda build: read_lengths(build, data, count, longest))


@given(st.lists(st.integers(0, 2**32 - 1), max_size=9))
def test_lengths_are_the_encoded_numbers(numbers: list[int]) -> None:
    """On both builds."""
    data = b"".join(map(vint, numbers))
    expected = [len(numbers), len(data), 0, max(numbers, default=0), sum(numbers), 0], numbers
    for build in BUILDS.values():
        assert read_lengths(build, data, len(numbers), 2**32 - 1) == expected
