"""Entries become message columns of bounded size, by the rules of Pulsar's client."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from arrow_io.errors import ChecksumError, CorruptEntryError, DecryptionError, EncryptedPayloadError
from arrow_io.messages import layout
from arrow_io.messages.delivery import Delivery
from arrow_io.messages.encryption import PayloadDecryptor
from arrow_io.messages.message_reader import BatchLimits, MessageReader, Needs
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import Tally, Unit
from tests.support.encryption import KINDS, key_pair, sealed_entry
from tests.support.entries import Framing, Message, encode_chunks, encode_entry, encode_marker
from tests.support.pulsar_proto import EncryptionKeys, varint
from tests.support.runs import OBJECT_KEY, batch_indexes, entry_run, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.message_columns import MessageColumns

pytestmark = pytest.mark.usefixtures("build")

_EVERYTHING = Needs()
_NO_PAYLOAD = Needs(payload=False)
_NO_MEMBERS = Needs(payload=False, members=False)
_POSITIONS = Needs(metadata=False, members=False, payload=False)
_DEPTHS = [_EVERYTHING, _NO_PAYLOAD, _NO_MEMBERS, _POSITIONS]
_LZ4 = Framing(codec="LZ4")
_KEYS = [EncryptionKeys(key="rsa", value=b"wrapped")]


def _single(text: str) -> bytes:
    return encode_entry([Message(payload=text.encode())], batched=False)


def _batch(*texts: str, framing: Framing = _LZ4) -> bytes:
    return encode_entry(
        [Message(payload=text.encode()) for text in texts], batched=True, framing=framing
    )


def _damaged(entry: bytes) -> bytes:
    return entry[:-1] + bytes([entry[-1] ^ 1])


def _read(
    runs: Iterable[EntryRun],
    needs: Needs = _EVERYTHING,
    *,
    tally: Tally | None = None,
    limits: BatchLimits | None = None,
    skip_gap: Callable[[], None] | None = None,
    decryptor: PayloadDecryptor | None = None,
) -> list[MessageColumns]:
    counted = Tally() if tally is None else tally
    keys = decryptor or PayloadDecryptor()
    delivered = Delivery(
        runs, counted, keys, join_payloads=needs.payload, verify=True, skip_gap=skip_gap
    )
    return list(MessageReader(delivered, needs, counted, limits=limits, decryptor=keys))


def _values(columns: Iterable[MessageColumns]) -> list[bytes | None]:
    return [value for each in columns for value in each.row_bytes(layout.ROW_PAYLOAD).to_pylist()]


def _positions(columns: Iterable[MessageColumns]) -> list[tuple[int, int | None]]:
    return [
        position
        for each in columns
        for position in zip(
            each.entry_numbers(layout.ENTRY_ID).to_pylist(),
            batch_indexes(each).to_pylist(),
            strict=True,
        )
    ]


# Sizes


@pytest.mark.parametrize("needs", _DEPTHS)
@pytest.mark.parametrize("entries", ["singles", "batches"])
def test_columns_grow_from_few_rows_to_many(needs: Needs, entries: str) -> None:
    """Each may have twice the rows of the one before; the last has what is left."""
    limits = BatchLimits(first_rows=2, max_rows=9)
    made = (
        [_single("x") for _ in range(30)]
        if entries == "singles"
        else [_batch(*"abcdefghij"), _batch(*"klm"), _batch(*"nopqrstuvwxyzabcd")]
    )

    columns = _read([entry_run(made)], needs, limits=limits)

    assert [each.count for each in columns] == [2, 4, 8, 9, 7]
    assert len(set(_positions(columns))) == 30


@pytest.mark.parametrize(("needs", "times"), [(Needs(), 2), (_NO_PAYLOAD, 1), (_POSITIONS, 1)])
@pytest.mark.parametrize("batched", [False, True], ids=["singles", "batches"])
@pytest.mark.parametrize("length", [1, 8])
def test_bytes_bound_the_columns_too(
    length: int, needs: Needs, times: int, *, batched: bool
) -> None:
    """No further entry is added to columns that hold enough bytes; values are counted as well."""
    entry = encode_entry([Message(payload=b"x" * 1000)], batched=batched)
    limits = BatchLimits(first_bytes=1500 * times, max_bytes=4000 * times)

    columns = _read(runs_of([entry] * 8, length=length), needs, limits=limits)

    assert [each.count for each in columns] == [2, 3, 3]


def test_decompressed_bytes_are_counted() -> None:
    """A compressed payload is as large as what it becomes."""
    entries = [
        encode_entry([Message(payload=bytes(3000))], batched=False, framing=_LZ4) for _ in range(3)
    ]
    batches = [
        encode_entry([Message(payload=bytes(3000))], batched=True, framing=_LZ4) for _ in range(3)
    ]
    limits = BatchLimits(max_bytes=3000)

    assert [each.count for each in _read([entry_run(entries)], limits=limits)] == [1, 1, 1]
    assert [each.count for each in _read([entry_run(batches)], limits=limits)] == [1, 1, 1]


def test_nothing_gives_no_columns() -> None:
    """Entries without rows, and no entries, give nothing, not empty columns."""
    assert _read([]) == []
    assert _read([entry_run([encode_marker(10)])]) == []
    assert _read([entry_run([encode_entry([], batched=True)])]) == []


# Kinds of entries


def test_null_values_need_no_sound_payload() -> None:
    """A null value is null, whatever bytes its compression left behind."""
    message = Message(payload=b"", null_value=True)
    entry = encode_entry([message], batched=False, framing=Framing(codec="LZ4", checksum=False))
    broken = encode_entry([message], batched=False, framing=Framing(codec="SNAPPY", checksum=False))

    assert _values(_read([entry_run([entry, broken[:-1]])])) == [None, None]


@pytest.mark.parametrize("needs", [_NO_PAYLOAD, _NO_MEMBERS, _POSITIONS])
def test_encrypted_singles_are_given_without_values(needs: Needs) -> None:
    """Metadata of a message that is no batch stands in the clear."""
    entry = encode_entry(
        [Message(payload=b"cipher", partition_key="k")], batched=False, encryption_keys=_KEYS
    )

    (columns,) = _read([entry_run([entry])], needs)

    if needs.members:
        assert columns.row_bytes(layout.ROW_KEY).to_pylist() == [b"k"]
    assert columns.count == 1


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize(
    ("batched", "needs"), [(False, _EVERYTHING), *((True, needs) for needs in _DEPTHS)]
)
def test_encrypted_payload_is_no_damage(needs: Needs, *, batched: bool, salvage: bool) -> None:
    """Salvaging passes over damage, not over what takes a key."""
    entry = encode_entry([Message(payload=b"cipher")], batched=batched, encryption_keys=_KEYS)
    run = entry_run([_single("a"), entry], ledger_id=3, first_entry_id=5)

    with pytest.raises(EncryptedPayloadError, match="rsa") as caught:
        _read([run], needs, tally=Tally(salvage=salvage))

    error = caught.value
    assert (error.object_key, error.ledger_id, error.entry_id) == (OBJECT_KEY, 3, 6)


# Transactions


def _in_transaction(text: str, least: int) -> bytes:
    return encode_entry(
        [Message(payload=text.encode())], batched=False, txnid_most_bits=1, txnid_least_bits=least
    )


# Ranges of tasks


class _Gapped:
    """Runs of one entry each; those of a gap are noted as they are asked for, until it is skipped.

    Args:
        ranges: Entries of each range, and of the gap behind it.
        is_end_lost: Whether no run is told to be the last of its range.
    """

    def __init__(self, *ranges: tuple[list[bytes], list[bytes]], is_end_lost: bool = False) -> None:
        self._ranges = ranges
        self._is_end_lost = is_end_lost
        self._is_skipped = False
        self.asked: list[int] = []

    def skip_gap(self) -> None:
        """Go on with the next range."""
        self._is_skipped = True

    def __iter__(self) -> Iterator[EntryRun]:
        """The runs."""
        entry_id = 0
        for owned, gap in self._ranges:
            for number, entry in enumerate((*owned, *gap)):
                run = entry_run([entry], first_entry_id=entry_id + number)
                run.is_in_range = number < len(owned)
                run.is_before_gap = number == len(owned) - 1 and not self._is_end_lost
                if not run.is_in_range:
                    if self._is_skipped:
                        break
                    self.asked.append(run.last_entry_id)
                yield run
            self._is_skipped = False
            entry_id += len(owned) + len(gap)


_CHUNKS = encode_chunks(Message(payload=b"chunked"), chunk_count=3, uuid="u")


def test_gap_is_asked_for_only_while_something_is_open() -> None:
    """Where nothing is open at the end of a range, nothing behind it is read."""
    closed = _Gapped(([_single("a")], [_single("b")]))
    assert _values(_read(closed, skip_gap=closed.skip_gap)) == [b"a"]
    assert closed.asked == []

    behind = [_single("b"), _CHUNKS[1], _single("c"), _CHUNKS[2], _single("d")]
    opened = _Gapped(([_single("a"), _CHUNKS[0]], behind))
    assert _values(_read(opened, skip_gap=opened.skip_gap)) == [b"a", b"chunked"]
    assert opened.asked == [2, 3, 4, 5]


def test_reading_goes_on_behind_a_gap() -> None:
    """What one range opened closes in the gap or in a later range, and both ranges give rows."""
    gapped = _Gapped(
        ([_single("a"), _CHUNKS[0]], [_CHUNKS[1], _single("no")]),
        ([_single("b")], [_single("no"), _CHUNKS[2], _single("no")]),
        ([_single("c")], [_single("no")]),
    )

    values = _values(_read(gapped, skip_gap=gapped.skip_gap))

    assert values == [b"a", b"b", b"chunked", b"c"]
    assert gapped.asked == [2, 3, 5, 6]


@pytest.mark.parametrize("max_buffered_bytes", [1, 1 << 20])
def test_what_the_look_ahead_has_read_is_skipped_once(max_buffered_bytes: int) -> None:
    """A transaction's marker in a gap, or behind it, neither hides the next range nor a chunk."""
    gapped = _Gapped(
        ([_in_transaction("a", 1)], [_single("no")]),
        ([_CHUNKS[0]], [_CHUNKS[1], _CHUNKS[2], encode_marker(21, txn_id=(1, 1))]),
        ([_single("b")], []),
    )
    again = list(gapped)
    runs = TransactionLookahead(
        iter(gapped),
        lambda run: iter([each for each in again if each.last_entry_id > run.last_entry_id]),
        gapped.skip_gap,
        max_buffered_bytes=max_buffered_bytes,
    )

    assert _values(_read(runs, skip_gap=runs.skip_gap)) == [b"a", b"chunked", b"b"]


def test_gap_is_dropped_where_the_end_of_its_range_was_lost() -> None:
    """If the last entry of a range never came, the first run behind it is all that is read."""
    gapped = _Gapped(([_single("a")], [_single("no")] * 3), ([_single("b")], []), is_end_lost=True)

    assert _values(_read(gapped, skip_gap=gapped.skip_gap)) == [b"a", b"b"]
    assert gapped.asked == [1]


# Damage


def test_broken_entry_is_an_error() -> None:
    """By default the first damage ends the reading, with its place."""
    run = entry_run([_single("a"), _damaged(_single("b"))], ledger_id=3, first_entry_id=5)
    run.verify_checksums()

    with pytest.raises(ChecksumError) as caught:
        _read([run])

    assert (caught.value.ledger_id, caught.value.entry_id) == (3, 6)


def test_broken_entry_is_passed_over_when_salvaging() -> None:
    """The entries around it are given, and it is counted."""
    tally = Tally(salvage=True)
    run = entry_run([_single("a"), _damaged(_single("b")), b"", _single("d")])
    run.verify_checksums()

    assert _values(_read([run], tally=tally)) == [b"a", b"d"]
    assert tally.metrics.lost == {
        (Unit.ENTRY, "ChecksumError"): 1,
        (Unit.ENTRY, "CorruptEntryError"): 1,
    }


@pytest.mark.parametrize("needs", [_EVERYTHING, _NO_PAYLOAD])
def test_batch_is_salvaged_up_to_the_damage(needs: Needs) -> None:
    """Members before a damaged one are given; those behind it cannot be found, and are counted."""
    tally = Tally(salvage=True)
    entry = bytearray(_batch("aa", "bb", "cc", framing=Framing(checksum=False)))
    entry[entry.index(b"bb") + 2 + 4] = 0x1B  # the third member's metadata begins with a group

    columns = _read([entry_run([bytes(entry), _single("d")])], needs, tally=tally)

    assert _positions(columns) == [(0, 0), (0, 1), (1, None)]
    assert tally.metrics.lost == {(Unit.MESSAGE, "CorruptEntryError"): 1}
    assert "batch index 2" in tally.metrics.losses[0]


# Encryption


@pytest.mark.parametrize("kind", KINDS)
def test_encrypted_entries_are_decrypted(kind: str) -> None:
    """A batch is decrypted whole, then decompressed; a null value stays null, a marker as it is."""
    pair = key_pair(kind)
    null = encode_entry([Message(null_value=True)], batched=False, framing=_LZ4)
    compressed = encode_entry([Message(payload=b"d" * 99)], batched=False, framing=_LZ4)
    plain_batch = _batch("e", "f", framing=Framing(codec="NONE"))
    chunks = encode_chunks(Message(payload=b"g" * 99), chunk_count=3, uuid="g", framing=_LZ4)
    clear = [_batch("a", "b"), _single("c"), null, compressed, plain_batch, *chunks]
    clear += [encode_marker(10), _single("")]
    runs = runs_of([sealed_entry(entry, pair) for entry in clear], length=3)

    columns = _read(runs, decryptor=PayloadDecryptor(pair.keys()))

    assert _values(columns) == [
        b"a", b"b", b"c", None, b"d" * 99, b"e", b"f", b"g" * 99, b"",
    ]  # fmt: skip
    assert _positions(columns) == _positions(_read(runs_of(clear, length=3)))


def test_encrypted_batch_is_counted_with_its_key_alone() -> None:
    """How many messages a batch has stands in the clear; they count if its key can be unwrapped."""
    pair, other = key_pair("P-256"), key_pair("P-384")
    run = entry_run([sealed_entry(_batch("a", "b"), pair)])

    columns = _read([run], _POSITIONS, decryptor=PayloadDecryptor(pair.keys()))

    assert _positions(columns) == [(0, 0), (0, 1)]
    with pytest.raises(DecryptionError, match="the private key key") as caught:
        _read([run], _POSITIONS, decryptor=PayloadDecryptor(other.keys()))
    assert (caught.value.object_key, caught.value.entry_id) == (OBJECT_KEY, 0)


def test_entry_that_cannot_be_decrypted_is_passed_over_when_salvaging() -> None:
    """What does not open is counted like other damage; what there is no key for is an error."""
    pair, other = key_pair("P-256"), key_pair("P-384", "other")
    tally = Tally(salvage=True)
    entries = [
        sealed_entry(_single("a"), pair),
        _damaged(sealed_entry(_single("b"), pair)),
        _damaged(sealed_entry(_batch("c", "d"), pair)),
        sealed_entry(_single("e"), dataclasses.replace(other, name="key")),
        _single("f"),
    ]
    decryptor = PayloadDecryptor(pair.keys())

    columns = _read([entry_run(entries)], tally=tally, decryptor=decryptor)

    assert _values(columns) == [b"a", b"f"]
    assert tally.metrics.lost == {(Unit.ENTRY, "DecryptionError"): 3}
    with pytest.raises(EncryptedPayloadError, match=r"keys: other; .*have other names: key"):
        _read(
            [entry_run([sealed_entry(_single("g"), other)])],
            tally=Tally(salvage=True),
            decryptor=decryptor,
        )


@pytest.mark.parametrize("clear", [_single("abc"), _batch("abc")], ids=["single", "batch"])
def test_no_byte_of_an_encrypted_entry_can_be_another(clear: bytes) -> None:
    """Where checksums are compared, a flip anywhere in an entry is a typed error."""
    pair = key_pair("P-256")
    entry = sealed_entry(clear, pair)
    decryptor = PayloadDecryptor(pair.keys())

    for at in range(len(entry)):
        run = entry_run([entry[:at] + bytes([entry[at] ^ 4]) + entry[at + 1 :]])
        run.verify_checksums()

        with pytest.raises(CorruptEntryError):
            _read([run], decryptor=decryptor)


@pytest.mark.parametrize("announced", [-1, 3, 1000, 2**31 - 1])
@pytest.mark.parametrize("needs", _DEPTHS)
def test_number_of_messages_that_is_a_lie(needs: Needs, announced: int) -> None:
    """A batch that announces what it cannot hold is corrupt before anything is allocated for it."""
    entry = encode_entry([Message()], batched=True, framing=Framing(checksum=False))
    lying = _announcing(entry, announced)

    with pytest.raises(CorruptEntryError) as caught:
        _read([entry_run([lying])], needs)

    assert caught.value.entry_id == 0


def _announcing(entry: bytes, members: int) -> bytes:
    """The entry with another num_messages_in_batch behind the one it has."""
    size = int.from_bytes(entry[:4])
    metadata = entry[4 : 4 + size] + b"\x58" + varint(members)
    return len(metadata).to_bytes(4) + metadata + entry[4 + size :]


@pytest.mark.parametrize("batched", [False, True])
def test_payload_that_does_not_decompress(*, batched: bool) -> None:
    """The error says where the payload stands."""
    framing = Framing(codec="ZSTD", checksum=False)
    entry = encode_entry([Message(payload=b"text")], batched=batched, framing=framing)

    with pytest.raises(CorruptEntryError, match="cannot be decompressed") as caught:
        _read([entry_run([_single("a"), entry[:-2]])])

    assert (caught.value.object_key, caught.value.entry_id) == (OBJECT_KEY, 1)


def test_needs_add_up() -> None:
    """What serves two readers is as deep as the deeper of them."""
    assert _NO_PAYLOAD | _POSITIONS == _NO_PAYLOAD
    assert _NO_MEMBERS | _NO_PAYLOAD == _NO_PAYLOAD
    assert _POSITIONS | _EVERYTHING == _EVERYTHING
