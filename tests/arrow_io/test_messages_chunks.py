"""Chunked messages are joined by the rules of Pulsar's consumer, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptEntryError, DecryptionError, EncryptedPayloadError
from arrow_io.messages import chunks, layout
from arrow_io.messages.chunks import ChunkAssembler, ChunkLookback
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import MessageReader, Needs
from arrow_io.read_metrics import ReadMetrics, Tally
from tests.support.encryption import key_pair, sealed_entry
from tests.support.entries import Framing, Message, encode_chunks, encode_entry
from tests.support.pulsar_proto import varint
from tests.support.runs import entry_run, runs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arrow_io.messages.entry_run import EntryRun


pytestmark = pytest.mark.usefixtures("build")

_PAYLOAD = b"abcdefghi"
_ABC = encode_chunks(Message(payload=_PAYLOAD), chunk_count=3, uuid="abc")
_XY = encode_chunks(Message(payload=b"xxxyyy"), chunk_count=2, uuid="xy")
_FOUR = encode_chunks(Message(payload=b"0123456789"), chunk_count=4, uuid="four")
_BROKEN = b"\xff" * 20
_SINGLE = encode_entry([Message(payload=b"single")], batched=False)
_PAIR = key_pair("P-256")
_SEALED = [sealed_entry(entry, _PAIR) for entry in _ABC]
_DECRYPTOR = PayloadDecryptor(_PAIR.keys())


def _assembler(tally: Tally | None = None, **options: Any) -> ChunkAssembler:  # noqa: ANN401
    arguments: dict[str, Any] = {
        "join_payloads": True,
        "decryptor": PayloadDecryptor(),
        "lookback": None,
        **options,
    }
    return ChunkAssembler(tally or Tally(), **arguments)


def _add_all(assembler: ChunkAssembler, run: EntryRun) -> list[bytes | None]:
    return [assembler.add(run, index) for index in run.flagged(layout.CHUNKED)]


def _damaged(entry: bytes) -> bytes:
    return entry[:-1] + bytes([entry[-1] ^ 1])


def _looking_back(before: list[bytes]) -> ChunkLookback:
    return ChunkLookback(lambda _: runs_of(before, length=9))


def _no_entries_before(_run: EntryRun) -> Iterator[EntryRun]:
    return iter(())


def test_message_whose_first_chunks_are_there_is_awaited() -> None:
    """What may still come is told apart from what a gap has lost, with how many chunks it lacks."""
    tally = Tally()
    assembler = _assembler(tally)

    _add_all(assembler, entry_run([_ABC[0], _ABC[2], _XY[0]]))
    assembler.finish()

    metrics = tally.metrics
    assert (metrics.incomplete_messages, metrics.awaited_messages, metrics.awaited_chunks) == (
        2,
        1,
        1,
    )
    assert metrics.waiting() == [
        "1 chunked message is waiting for 1 chunk that is not offloaded yet"
    ]
    assert metrics.notices() == [
        "1 chunked message was left out, because not all its chunks are in the offloaded ledgers"
    ]


def test_announced_size_is_compared() -> None:
    """Chunks that do not add up to the size that each announces are corrupt."""
    longer = encode_chunks(Message(payload=b"abcdefghijkl"), chunk_count=3, uuid="abc")
    assembler = _assembler()
    run = entry_run([_ABC[0], _ABC[1], longer[2]])

    with pytest.raises(CorruptEntryError, match="have 10 bytes, not the 12 announced"):
        _add_all(assembler, run)

    assert not assembler.has_unfinished


def test_encrypted_chunks_are_decrypted_each_by_itself() -> None:
    """Each has an IV of its own; the size announced is that before encryption."""
    longer = encode_chunks(Message(payload=b"abcdefghijkl"), chunk_count=3, uuid="abc")

    joined = _add_all(_assembler(decryptor=_DECRYPTOR), entry_run(_SEALED))

    assert joined == [None, None, _PAYLOAD]
    with pytest.raises(CorruptEntryError, match="have 10 bytes, not the 12 announced"):
        _add_all(
            _assembler(decryptor=_DECRYPTOR),
            entry_run([*_SEALED[:2], sealed_entry(longer[2], _PAIR)]),
        )


def test_encrypted_chunk_that_cannot_be_opened() -> None:
    """Without a key, or damaged, it is an error that tells where; whole, it may come again."""
    tally = Tally()
    assembler = _assembler(tally, decryptor=_DECRYPTOR)
    run = entry_run([_SEALED[0], _damaged(_SEALED[1]), _SEALED[1], _SEALED[2]])

    assert assembler.add(run, 0) is None
    with pytest.raises(DecryptionError, match="does not authenticate") as caught:
        assembler.add(run, 1)
    assert [assembler.add(run, index) for index in (2, 3)] == [None, _PAYLOAD]
    assert caught.value.entry_id == 1
    with pytest.raises(EncryptedPayloadError, match="the keys: key") as caught_too:
        _assembler().add(run, 0)
    assert caught_too.value.entry_id == 0


def test_encrypted_chunks_need_no_key_where_nobody_asks() -> None:
    """The order of the chunks stands in the clear."""
    assembler = _assembler(join_payloads=False, lookback=_looking_back(_SEALED[:1]))

    assert _add_all(assembler, entry_run(_SEALED[1:], first_entry_id=1)) == [None, b""]


def test_first_encrypted_chunks_are_found_before_the_entries() -> None:
    """What stands before is decrypted too; a damaged chunk does no harm if it came twice."""
    before = [_damaged(_SEALED[0]), _SEALED[0], _damaged(_SEALED[1]), _SEALED[1]]
    assembler = _assembler(decryptor=_DECRYPTOR, lookback=_looking_back(before))

    assert _add_all(assembler, entry_run([_SEALED[2]], first_entry_id=4)) == [_PAYLOAD]


@pytest.mark.parametrize("damaged", [0, 1])
def test_damaged_chunk_before_the_entries(damaged: int) -> None:
    """It is the error of the message that it belongs to; salvaging, the message is incomplete."""
    before = [_SINGLE, *_SEALED[:2]]
    before[1 + damaged] = _damaged(before[1 + damaged])
    run = entry_run([_SEALED[2]], first_entry_id=3)

    def assembler(tally: Tally) -> ChunkAssembler:
        return _assembler(tally, decryptor=_DECRYPTOR, lookback=_looking_back(before))

    with pytest.raises(DecryptionError, match="does not authenticate") as caught:
        _add_all(assembler(Tally()), run)
    assert caught.value.entry_id == 1 + damaged
    salvaging = Tally(salvage=True)
    assert _add_all(assembler(salvaging), run) == [None]
    assert salvaging.metrics.incomplete_messages == 1


def _behind(before: list[bytes], tally: Tally) -> list[bytes | None]:
    """What comes of the last chunk of "abc" where these entries stand before it."""
    assembler = _assembler(tally, lookback=_looking_back(before))
    return _add_all(assembler, entry_run([_ABC[2]], first_entry_id=len(before)))


@pytest.mark.parametrize(
    ("before", "entry_id"),
    [
        ([_BROKEN], 0),
        ([_ABC[1], _BROKEN], 1),
        ([_BROKEN, _ABC[1]], 0),
        ([_ABC[0], _BROKEN], 1),
        ([_BROKEN, _ABC[0], _BROKEN, _BROKEN], 3),
    ],
)
def test_broken_entry_that_may_have_been_the_missing_chunk(
    before: list[bytes], entry_id: int
) -> None:
    """The nearest entry that cannot be read tells of a missing chunk; salvaging, it is counted."""
    with pytest.raises(CorruptEntryError) as caught:
        _behind(before, Tally())
    assert caught.value.entry_id == entry_id

    salvaging = Tally(salvage=True)
    assert _behind(before, salvaging) == [None]
    assert salvaging.metrics.incomplete_messages == 1


@pytest.mark.parametrize(
    "before", [[_BROKEN, *_ABC[:2]], [_ABC[0], _BROKEN, _ABC[1]], [*_ABC[:2], _BROKEN, _SINGLE]]
)
def test_broken_entry_that_no_chunk_is_missing_for(before: list[bytes]) -> None:
    """Where the chunks are all there, what else stands between them is nobody's loss here."""
    tally = Tally()

    assert _behind(before, tally) == [_PAYLOAD]
    assert tally.metrics == ReadMetrics()


def test_what_is_given_up_is_not_looked_for_again() -> None:
    """A message that a gap behind the start lost does not come back by way of the chunks before."""
    tally = Tally()
    searches: list[int] = []

    def before(_run: EntryRun) -> Iterator[EntryRun]:
        searches.append(1)
        return runs_of([_ABC[0]], length=9)

    assembler = _assembler(tally, lookback=ChunkLookback(before))
    run = entry_run([_ABC[2], _ABC[1], _ABC[2]], first_entry_id=1)

    assert _add_all(assembler, run) == [None, None, None]
    assert tally.metrics.incomplete_messages == 1
    assert len(searches) == 1


def test_what_was_whole_before_is_looked_for_once() -> None:
    """Chunks that come again behind the start cost one look back, and then count as duplicates."""
    tally = Tally()
    searches: list[int] = []

    def before(_run: EntryRun) -> Iterator[EntryRun]:
        searches.append(1)
        return runs_of(_ABC, length=9)

    assembler = _assembler(tally, lookback=ChunkLookback(before))
    run = entry_run([_ABC[1], _ABC[2], _ABC[1]], first_entry_id=3)

    assert _add_all(assembler, run) == [None, None, None]
    assert tally.metrics.duplicate_chunks == 2
    assert tally.metrics.incomplete_messages == 0
    assert len(searches) == 1


def test_as_much_is_held_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that take just the bytes and the places that there are, become whole."""
    monkeypatch.setattr(chunks, "MAX_HELD_BYTES", len(_PAYLOAD) + 3)
    monkeypatch.setattr(chunks, "MAX_OPEN_MESSAGES", 2)

    joined = _add_all(_assembler(), entry_run([_XY[0], *_ABC, _XY[1]]))

    assert joined == [None, None, None, _PAYLOAD, b"xxxyyy"]


def test_what_is_lost_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that lost a chunk takes no room from one that may become whole."""
    monkeypatch.setattr(chunks, "MAX_HELD_BYTES", len(_PAYLOAD))
    assembler = _assembler()

    joined = _add_all(assembler, entry_run([_FOUR[0], _FOUR[2], *_ABC]))

    assert joined == [None] * 4 + [_PAYLOAD]
    assert [each.parts for each in assembler._open.values()] == [[]]


def test_lost_messages_leave_the_bound_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of them, just as many bytes are held as before, and no more."""
    monkeypatch.setattr(chunks, "MAX_HELD_BYTES", len(_PAYLOAD) - 1)
    assembler = _assembler()
    lost = [_FOUR[0], _FOUR[2], _FOUR[3]] * 3
    run = entry_run([*lost, *_ABC])

    assert [assembler.add(run, index) for index in range(len(lost) + 2)] == [None] * (len(lost) + 2)
    with pytest.raises(CorruptEntryError, match="that were open at once exceed"):
        assembler.add(run, len(lost) + 2)


def test_chunks_of_others_open_nothing() -> None:
    """Behind a task's own range only what began in it goes on."""
    tally = Tally()
    assembler = _assembler(tally)
    _add_all(assembler, entry_run([_ABC[0]]))

    behind = entry_run([_XY[0], _ABC[1], _XY[1], _ABC[2]], first_entry_id=1, is_in_range=False)

    assert _add_all(assembler, behind) == [None, None, None, _PAYLOAD]
    assert tally.metrics == ReadMetrics()
    assert not assembler.has_unfinished


def test_chunk_0_of_others_gives_a_message_up() -> None:
    """A message that begins anew behind a task's range is for the task there."""
    tally = Tally()
    assembler = _assembler(tally)
    _add_all(assembler, entry_run([_ABC[0]]))

    assert _add_all(assembler, entry_run(_ABC, first_entry_id=1, is_in_range=False)) == [None] * 3
    assert tally.metrics.incomplete_messages == 1


@pytest.mark.parametrize(
    ("before", "incomplete"),
    [([], 1), ([_SINGLE, _XY[0]], 1), ([_ABC[1]], 1), ([_ABC[0], _ABC[2]], 1), (_ABC, 0)],
)
def test_last_chunk_alone_gives_nothing(before: list[bytes], incomplete: int) -> None:
    """If the chunks before are missing the message is lost; if they are whole, it was given."""
    tally = Tally()
    lookback = ChunkLookback(lambda _: runs_of(before, length=9))
    assembler = _assembler(tally, lookback=lookback)

    assert _add_all(assembler, entry_run([_ABC[2]], first_entry_id=9)) == [None]
    assert tally.metrics.incomplete_messages == incomplete


def test_message_that_goes_on_in_another_task_is_that_tasks() -> None:
    """Of a message that began before the scan, the task gives it where it first goes on."""
    before = [_ABC[0], _ABC[1]]

    def lookback(others_from: int) -> ChunkLookback:
        return ChunkLookback(
            lambda _: runs_of(before, length=9), lambda *place: place >= (1, others_from)
        )

    mine = _assembler(lookback=lookback(2))
    others = _assembler(tally := Tally(), lookback=lookback(1))

    assert _add_all(mine, entry_run([_ABC[2]], first_entry_id=2)) == [_PAYLOAD]
    assert _add_all(others, entry_run([_ABC[2]], first_entry_id=2)) == [None]
    assert tally.metrics.incomplete_messages == 0


@pytest.mark.parametrize(
    ("bound", "number"), [("MAX_HELD_BYTES", 7), ("MAX_HELD_BYTES", 8), ("MAX_OPEN_MESSAGES", 1)]
)
def test_oldest_open_message_gives_way(
    monkeypatch: pytest.MonkeyPatch, bound: str, number: int
) -> None:
    """What is never completed takes no room from what is; where it goes on, that is an error."""
    monkeypatch.setattr(chunks, bound, number)
    tally = Tally()
    assembler = _assembler(tally)
    run = entry_run([_ABC[0], _XY[0], _XY[1], _ABC[1]])

    assert [assembler.add(run, index) for index in range(3)] == [None, None, b"xxxyyy"]
    with pytest.raises(CorruptEntryError, match="that were open at once exceed"):
        assembler.add(run, 3)

    assert tally.metrics.incomplete_messages == 1
    assert not assembler.has_unfinished


@pytest.mark.parametrize("number", [2, 5, 8])
def test_message_beyond_the_bound_is_an_error(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """One that alone takes more than is held is given up; it can begin anew, to no better end."""
    monkeypatch.setattr(chunks, "MAX_HELD_BYTES", number)
    tally = Tally()
    assembler = _assembler(tally)
    run = entry_run([*_ABC, *_ABC])

    for first in (0, 3):
        for index in range(first, first + number // 3):
            assert assembler.add(run, index) is None
        with pytest.raises(CorruptEntryError, match="that were open at once exceed"):
            assembler.add(run, first + number // 3)

    assert tally.metrics.incomplete_messages == 2


def test_completed_messages_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many uuids are kept to tell duplicates by; the oldest goes first."""
    monkeypatch.setattr(chunks, "MAX_REMEMBERED_UUIDS", 1)
    tally = Tally()
    assembler = _assembler(tally)
    run = entry_run([*_ABC, *_XY, _XY[1], _ABC[2]])

    assert [assembler.add(run, index) for index in range(6)][5] is None
    assert tally.metrics.duplicate_chunks == 1
    assert assembler.add(run, 6) is None
    assert tally.metrics.duplicate_chunks == 1


@pytest.mark.parametrize(("chunk_id", "count"), [(5, 3), (-1, 3), (2**31 - 1, 2**31 - 1)])
def test_absurd_chunk_numbers_give_nothing(chunk_id: int, count: int) -> None:
    """Numbers that no producer sends lose the message and nothing else."""
    base = encode_chunks(Message(payload=b"ab"), chunk_count=2, uuid="abc")
    lying = [_with_numbers(entry, chunk_id, count) for entry in base[:1]]
    assembler = _assembler(lookback=ChunkLookback(_no_entries_before))

    joined = _add_all(assembler, entry_run([*lying, *_XY]))

    assert joined[-1] == b"xxxyyy"
    assert joined[0] is None


def _with_numbers(entry: bytes, chunk_id: int, count: int) -> bytes:
    """The entry, without its checksum, with other numbers behind those that it has."""
    rest = entry[6:]
    size = int.from_bytes(rest[:4])
    numbers = b"\xd8\x01" + varint(count) + b"\xe8\x01" + varint(chunk_id)
    metadata = rest[4 : 4 + size] + numbers
    return len(metadata).to_bytes(4) + metadata + rest[4 + size :]


def test_a_compressed_message_may_be_as_large_as_its_chunks_may_be() -> None:
    """What is read of a chunked message does not depend on whether it was compressed."""
    payload = bytes(MAX_MESSAGE_BYTES + 1)
    zstd = Framing(codec="ZSTD")
    entries = encode_chunks(Message(payload=payload), chunk_count=2, uuid="u", framing=zstd)
    tally = Tally()
    runs = Delivery([entry_run(entries)], tally, PayloadDecryptor())

    (rows,) = MessageReader(runs, Needs(), tally)

    assert pc.binary_length(rows.row_bytes(layout.ROW_PAYLOAD)).to_pylist() == [len(payload)]


# A model


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


@given(sequence=sequences(), length=st.sampled_from((1, 2, 3, 99)))
def test_chunks_from_the_beginning_give_what_the_model_gives(
    sequence: list[Chunk], length: int
) -> None:
    """Each message that is whole comes once, and what is not given is counted exactly."""
    expected = Consumer().read(sequence)

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
