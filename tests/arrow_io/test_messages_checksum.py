"""The CRC32C of entries, by whichever way the processor allows, is that of another library."""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.messages import layout
from tests.support.builds import BUILDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.core.builds import Build

_DATA = random.Random(7).randbytes(9000)
_LENGTHS = [*range(1100), *range(1530, 1560), *range(3080, 3100), 5000, 8192, 8999]
_WAYS = ["tables", "instruction", "products"]


@pytest.fixture(params=range(len(_WAYS)), ids=_WAYS)
def fastest(request: pytest.FixtureRequest, build: Build) -> Iterator[int]:
    """The fastest way of making checksums that may be taken, as on a processor with no other."""
    build.entries.choose_checksum(request.param)
    yield request.param
    build.entries.choose_checksum(len(_WAYS) - 1)


def _bad(build: Build, spans: list[tuple[int, int]], stored: list[int]) -> list[int]:
    """Which of the spans (start, length) have another checksum than the one stored."""
    table = array("q", bytes(8 * len(spans) * layout.ENTRY_WIDTH))
    for n, ((start, length), checksum) in enumerate(zip(spans, stored, strict=True)):
        table[n * layout.ENTRY_WIDTH + layout.CHECKED] = start << 32 | length
        table[n * layout.ENTRY_WIDTH + layout.CHECKSUM] = checksum
    seen = build.entries.mark_bad_checksums(memoryview(_DATA), table, len(spans))
    entries = [table[n * layout.ENTRY_WIDTH :][: layout.ENTRY_WIDTH] for n in range(len(spans))]
    bad = [n for n, entry in enumerate(entries) if entry[layout.FLAGS] == layout.BROKEN]
    assert bad == [n for n, entry in enumerate(entries) if entry[layout.ERROR]]
    assert {entries[n][layout.ERROR] for n in bad} <= {layout.BAD_CHECKSUM}
    assert seen == (layout.BROKEN if bad else 0)
    return bad


@pytest.mark.usefixtures("fastest")
def test_checksums_of_every_length(build: Build) -> None:
    """From any place on and of any length, the checksum is the same; another one is told."""
    spans = [(n % 3 if length < 8990 else 0, length) for n, length in enumerate(_LENGTHS)]
    stored = [crc32c.crc32c(_DATA[start : start + length]) for start, length in spans]

    assert _bad(build, spans, stored) == []
    assert _bad(build, spans, [each ^ 1 << 31 for each in stored]) == list(range(len(spans)))
    assert _bad(build, spans, [stored[0] ^ 1, *stored[1:]]) == [0]


def test_no_faster_way_is_chosen(build: Build, fastest: int) -> None:
    """What the test above compares is not twice the same, unless the processor knows no more."""
    assert build.entries.choose_checksum(fastest) <= fastest


def test_entries_without_a_checksum_are_not_compared(build: Build) -> None:
    """Old clients write none."""
    table = array("q", bytes(8 * layout.ENTRY_WIDTH))
    table[layout.CHECKED] = table[layout.CHECKSUM] = layout.ABSENT

    build.entries.mark_bad_checksums(memoryview(_DATA), table, 1)

    assert table[layout.FLAGS] == 0


@pytest.mark.parametrize("name", BUILDS)
@given(
    kinds=st.lists(
        st.tuples(
            st.booleans(),  # whether it is a batch
            st.integers(0, 2),  # codec
            st.sampled_from(("sound", "broken", "checksum")),
        ),
        max_size=6,
    )
)
def test_broken_entries_are_of_no_kind(name: str, kinds: list[tuple[bool, int, str]]) -> None:
    """They are read by themselves; and of how they are compressed, perhaps nothing is known."""
    table = array("q", [0x55] * max(1, len(kinds) * layout.ENTRY_WIDTH))
    for n, (batched, codec, state) in enumerate(kinds):
        base = n * layout.ENTRY_WIDTH
        flags = layout.BATCHED * batched | layout.COMPRESSED * (codec > 0)
        table[base + layout.FLAGS] = layout.BROKEN if state == "broken" else flags
        table[base + layout.CHECKED] = 5 if state == "checksum" else layout.ABSENT
        table[base + layout.CHECKSUM] = crc32c.crc32c(_DATA[:5]) ^ 1
        if state != "broken":
            table[base + layout.COMPRESSION] = codec

    seen = BUILDS[name].entries.mark_bad_checksums(memoryview(_DATA), table, len(kinds))

    sound = {(batched, codec) for batched, codec, state in kinds if state == "sound"}
    assert bool(seen & layout.MIXED) == (len(sound) > 1)
    assert bool(seen & layout.BROKEN) == any(state != "sound" for *_, state in kinds)
