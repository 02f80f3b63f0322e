"""Whatever order chunks come in, and wherever a reader begins, a model tells what is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from arrow_io.messages import layout
from arrow_io.messages.chunks import ChunkAssembler, ChunkLookback
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.read_metrics import Tally
from tests.support.builds import BUILDS, using_build
from tests.support.entries import Message, encode_chunks, encode_entry
from tests.support.runs import runs_of

if TYPE_CHECKING:
    from arrow_io.read_metrics import ReadMetrics

Chunk: TypeAlias = tuple[str, int]
"""Uuid and chunk id; the uuid "" stands for an entry that is no chunk."""

_PAYLOADS: Final = {"abc": b"abcdefghi", "xy": b"xxxyyy", "five": b"0123456789"}
_COUNTS: Final = {"abc": 3, "xy": 2, "five": 5}
_ENTRIES: Final = {
    (uuid, chunk_id): entry
    for uuid, payload in _PAYLOADS.items()
    for chunk_id, entry in enumerate(
        encode_chunks(Message(payload=payload), chunk_count=_COUNTS[uuid], uuid=uuid)
    )
} | {("", 0): encode_entry([Message(payload=b"single")], batched=False)}

# Chunks in the right order, too, or few messages would ever be whole.
_ATTEMPTS: Final = st.sampled_from(sorted(_COUNTS)).flatmap(
    lambda uuid: st.sampled_from(
        [
            [(uuid, chunk_id) for chunk_id in range(_COUNTS[uuid])],
            [(uuid, chunk_id) for chunk_id in range(_COUNTS[uuid]) if chunk_id != 1],
            [(uuid, chunk_id) for chunk_id in range(1, _COUNTS[uuid])],
            [(uuid, chunk_id // 2) for chunk_id in range(2 * _COUNTS[uuid])],
        ]
    )
)


@st.composite
def sequences(draw: st.DrawFn) -> list[Chunk]:
    """Attempts to send messages, woven into each other, with chunks on the way moved about."""
    woven: list[Chunk] = []
    for attempt in draw(st.lists(_ATTEMPTS, min_size=1, max_size=4)):
        at = 0
        for chunk in attempt:
            at = draw(st.integers(at, len(woven)))
            woven.insert(at, chunk)
            at += 1
    for chunk in draw(st.lists(st.sampled_from(sorted(_ENTRIES)), max_size=3)):
        woven.insert(draw(st.integers(0, len(woven))), chunk)
    return woven


@dataclass
class Consumer:
    """What `ConsumerImpl` makes of chunks, one after the other.

    Attributes:
        given: Payload of each message that became whole, by the place of its last chunk.
        duplicates: How many chunks came again.
        incomplete: How many messages began and did not become whole.
    """

    given: dict[int, bytes] = field(default_factory=dict)
    duplicates: int = 0
    incomplete: int = 0

    def read(self, sequence: list[Chunk]) -> Consumer:
        """Take all chunks, to the end."""
        expected: dict[str, int] = {}  # the next chunk of each open message
        missed: set[str] = set()
        whole: set[str] = set()
        for place, (uuid, chunk_id) in enumerate(sequence):
            if not uuid:
                continue
            if chunk_id == 0:
                self.incomplete += uuid in expected
                expected[uuid] = 1
                missed.discard(uuid)
            elif uuid not in expected:
                self.duplicates += uuid in whole
            elif chunk_id < expected[uuid]:
                self.duplicates += 1
            else:
                if chunk_id > expected[uuid]:
                    missed.add(uuid)
                if uuid not in missed:
                    expected[uuid] += 1
                if chunk_id == _COUNTS[uuid] - 1:
                    del expected[uuid]
                    if uuid in missed:
                        self.incomplete += 1
                    else:
                        self.given[place] = _PAYLOADS[uuid]
                        whole.add(uuid)
        self.incomplete += len(expected)
        return self


def _read(
    sequence: list[Chunk], start: int, length: int, *, looks_back: bool
) -> tuple[dict[int, bytes], ReadMetrics]:
    """What the assembler gives of the chunks from `start` on, in runs of `length` entries."""
    entries = [_ENTRIES[chunk] for chunk in sequence]
    before = list(runs_of(entries[:start], length=length))
    tally = Tally()
    assembler = ChunkAssembler(
        tally,
        join_payloads=True,
        decryptor=PayloadDecryptor(),
        lookback=ChunkLookback(lambda _: reversed(before)) if looks_back else None,
    )
    joined: dict[int, bytes] = {}
    for run in runs_of(entries[start:], length=length, first_entry_id=start):
        for index in run.flagged(layout.CHUNKED):
            payload = assembler.add(run, index)
            if payload is not None:
                joined[run.number(index, layout.ENTRY_ID)] = payload
    assembler.finish()
    return joined, tally.metrics


@given(
    sequence=sequences(), length=st.sampled_from((1, 2, 3, 99)), build=st.sampled_from(list(BUILDS))
)
def test_chunks_from_the_beginning_give_what_the_model_gives(
    sequence: list[Chunk], length: int, build: str
) -> None:
    """Each message that is whole comes once, and what is not given is counted exactly."""
    expected = Consumer().read(sequence)
    with using_build(build):
        joined, metrics = _read(sequence, 0, length, looks_back=False)

    assert joined == expected.given
    assert metrics.duplicate_chunks == expected.duplicates
    assert metrics.incomplete_messages == expected.incomplete


@given(sequence=sequences(), length=st.sampled_from((1, 2, 3, 99)), data=st.data())
def test_a_reader_that_begins_later_gives_what_ends_behind_its_start(
    sequence: list[Chunk], length: int, data: st.DataObject
) -> None:
    """Looking back brings neither more nor less than reading from the beginning does."""
    start = data.draw(st.integers(0, len(sequence) - 1), label="start")
    expected = Consumer().read(sequence)

    joined, _ = _read(sequence, start, length, looks_back=True)

    assert joined == {place: whole for place, whole in expected.given.items() if place >= start}
