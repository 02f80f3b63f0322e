"""Chunked messages are joined by the rules of Pulsar's consumer, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

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


def test_chunked_entries_are_those_of_chunked_messages() -> None:
    """Entries that hold a whole message are passed over."""
    run = entry_run([_SINGLE, _ABC[0], _SINGLE, _ABC[1], _ABC[2], _SINGLE])

    assert list(run.flagged(layout.CHUNKED)) == [1, 3, 4]


def test_interleaved_messages_are_joined() -> None:
    """Each message is given with its last chunk, whatever stands between its chunks."""
    tally = Tally()
    assembler = _assembler(tally)

    joined = _add_all(assembler, entry_run([_ABC[0], _XY[0], _ABC[1], _XY[1], _ABC[2]]))

    assert joined == [None, None, None, b"xxxyyy", _PAYLOAD]
    assert not assembler.has_unfinished
    assembler.finish()
    assert tally.metrics == ReadMetrics()


def test_chunks_seen_before_are_ignored_and_counted() -> None:
    """A chunk that a producer sent twice, before the message is whole or after, changes nothing."""
    tally = Tally()
    assembler = _assembler(tally)

    joined = _add_all(assembler, entry_run([_ABC[0], _ABC[1], _ABC[1], _ABC[2], _ABC[2], _ABC[1]]))

    assert joined == [None, None, None, _PAYLOAD, None, None]
    assert tally.metrics.duplicate_chunks == 3
    assert tally.metrics.incomplete_messages == 0


def test_gap_loses_the_message() -> None:
    """A message without one of its chunks is not given, and is counted once."""
    tally = Tally()
    assembler = _assembler(tally)

    joined = _add_all(assembler, entry_run([_ABC[0], _ABC[2], _XY[0], _XY[1]]))

    assert joined == [None, None, None, b"xxxyyy"]
    assert tally.metrics.incomplete_messages == 1
    assert not assembler.has_unfinished


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


def test_first_chunk_begins_anew() -> None:
    """A producer that sends a message again begins with chunk 0; what came before is given up."""
    tally = Tally()
    assembler = _assembler(tally)

    joined = _add_all(assembler, entry_run([_ABC[0], _ABC[1], *_ABC]))

    assert joined == [None, None, None, None, _PAYLOAD]
    assert tally.metrics.incomplete_messages == 1


def test_lost_message_can_begin_anew() -> None:
    """Nothing but chunk 0 brings a message back whose chunk was missing."""
    assembler = _assembler()

    joined = _add_all(assembler, entry_run([_ABC[0], _ABC[2], _ABC[1], _ABC[2], *_ABC]))

    assert joined == [None] * 6 + [_PAYLOAD]


def test_message_whose_chunks_end_is_incomplete() -> None:
    """What is open at the end of all entries is counted when there are no more."""
    tally = Tally()
    assembler = _assembler(tally)

    _add_all(assembler, entry_run([_ABC[0], _XY[0]]))

    assert assembler.has_unfinished
    assembler.finish()
    assert tally.metrics.incomplete_messages == 2
    assert not assembler.has_unfinished


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


def test_payloads_are_not_held_where_nobody_asks() -> None:
    """Without payloads, the order of the chunks still decides which message is whole."""
    assembler = _assembler(join_payloads=False)

    joined = _add_all(assembler, entry_run([_ABC[0], _XY[0], _ABC[1], _ABC[2]]))

    assert joined == [None, None, None, b""]


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


def test_chunks_before_a_task_are_others() -> None:
    """Without looking back, a message that began before is ignored, for it is not this task's."""
    tally = Tally()

    assert _add_all(_assembler(tally), entry_run(_ABC[1:], first_entry_id=1)) == [None, None]
    assert tally.metrics == ReadMetrics()


@pytest.mark.parametrize("length", [1, 2, 9])
@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ([_ABC[0]], [_ABC[1], _ABC[2]]),
        ([_ABC[0], _ABC[1]], [_ABC[2]]),
        ([_ABC[0], _ABC[1], _ABC[1]], [_ABC[2]]),
        ([_ABC[0], _ABC[1]], [_ABC[1], _ABC[2]]),
        ([*_ABC, _ABC[0], _SINGLE, _ABC[1]], [_ABC[2]]),
        ([_XY[0], _ABC[0], _XY[1]], [_ABC[1], _SINGLE, _ABC[2]]),
    ],
)
def test_first_chunks_are_found_before_the_entries(
    before: list[bytes], behind: list[bytes], length: int
) -> None:
    """A message that `start` cuts is completed from what stands before, the nearest first."""
    lookback = ChunkLookback(lambda _: reversed(list(runs_of(before, length=length))))
    assembler = _assembler(lookback=lookback)

    joined = _add_all(assembler, entry_run(behind, first_entry_id=len(before)))

    assert joined[-1] == _PAYLOAD
    assert set(joined[:-1]) <= {None}


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
    numbers = b"\xd8\x01" + _varint(count) + b"\xe8\x01" + _varint(chunk_id)
    metadata = rest[4 : 4 + size] + numbers
    return len(metadata).to_bytes(4) + metadata + rest[4 + size :]


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def test_a_compressed_message_may_be_as_large_as_its_chunks_may_be() -> None:
    """What is read of a chunked message does not depend on whether it was compressed."""
    payload = bytes(MAX_MESSAGE_BYTES + 1)
    zstd = Framing(codec="ZSTD")
    entries = encode_chunks(Message(payload=payload), chunk_count=2, uuid="u", framing=zstd)
    tally = Tally()
    runs = Delivery([entry_run(entries)], tally, PayloadDecryptor())

    (rows,) = MessageReader(runs, Needs(), tally)

    assert pc.binary_length(rows.row_bytes(layout.ROW_PAYLOAD)).to_pylist() == [len(payload)]
