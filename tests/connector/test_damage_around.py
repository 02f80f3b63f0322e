"""Damage around what is read, and numbers that lie: told where rows may be missing, nowhere else.

Strict reads raise the error that a reader of the damaged entry would meet; salvaging ones give all
rows that are sound.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import (
    ChecksumError,
    CorruptBlockError,
    CorruptEntryError,
    IncompleteReadWarning,
    OptionError,
)
from arrow_io.format.index_block import read_index_block
from arrow_io.messages import chunks
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import ReadMetrics, Unit
from connector import open_topic
from connector.scan import execution as scan_module
from connector.scan.execution import execute
from tests.support.buckets import TOPIC, memory_bucket, object_name, offload_ledger
from tests.support.entries import Framing, Message, encode_chunks, encode_entry, encode_marker
from tests.support.reading import block_table, read
from tests.support.reference import TXN_COMMIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.options.topic_request import OnCorruption

pytestmark = pytest.mark.usefixtures("build")

_LEDGER: Final = 5
_ENTRY_PER_BLOCK: Final = 140
_ALL_IN_ONE_BLOCK: Final = 1 << 20
_BLOCK_SIZES: Final = (_ENTRY_PER_BLOCK, _ALL_IN_ONE_BLOCK)
_TXN: Final = (1, 2)

_BARE: Final = Framing(checksum=False)
_CHUNKS: Final = encode_chunks(Message(payload=b"abcdefghi"), chunk_count=3, uuid="abc")
_SINGLE: Final = encode_entry([Message(payload=b"single")], batched=False)
_OPENED: Final = encode_entry(
    [Message(payload=b"in transaction")], batched=False, txnid_most_bits=1, txnid_least_bits=2
)
_COMMIT: Final = encode_marker(TXN_COMMIT, txn_id=_TXN)


def _with_bad_checksum(entry: bytes) -> bytes:
    """The entry, of no broker metadata, with another CRC32C behind the two bytes of its magic."""
    return entry[:2] + bytes([entry[2] ^ 0xFF]) + entry[3:]


def _without_checksum(entry: bytes, fields: bytes = b"") -> bytes:
    """The entry without its CRC32C, with serialised fields behind those of its metadata."""
    rest = entry[6:]
    stop = 4 + int.from_bytes(rest[:4])
    metadata = rest[4:stop] + fields
    return len(metadata).to_bytes(4) + metadata + rest[stop:]


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _uncompressed_size(size_bytes: int) -> bytes:
    return b"\x48" + _varint(size_bytes)


def _batch_size(members: int) -> bytes:
    return b"\x58" + _varint(members)


def _chunk_fields(uuid: bytes, chunk_count: int, total_bytes: int, chunk_id: int) -> bytes:
    uuid_field = b"\xd2\x01" + _varint(len(uuid)) + uuid
    numbers = (b"\xd8\x01", chunk_count), (b"\xe0\x01", total_bytes), (b"\xe8\x01", chunk_id)
    return uuid_field + b"".join(tag + _varint(number) for tag, number in numbers)


def _values(
    entries: Sequence[bytes],
    *,
    salvage: bool = False,
    block_bytes: int = _ALL_IN_ONE_BLOCK,
    broken_block: int | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[list[bytes], ReadMetrics]:
    """The values of the only ledger of a topic, read task by task, one for each block."""
    name = object_name(_LEDGER)
    objects = offload_ledger(name, entries, block_bytes=block_bytes)
    metrics = ReadMetrics()
    on_corruption: OnCorruption = "salvage" if salvage else "raise"
    with memory_bucket(objects) as bucket:
        dataset = open_topic(bucket.url, TOPIC, on_corruption=on_corruption, **options)
        scan = dataset.scan.select(["__value__"])
        if broken_block is not None:
            index = block_table(scan.topics[0].ledgers[0])
            damaged = bytearray(objects[name.data_name])
            damaged[index.block_start(broken_block) + 4] ^= 0xFF
            bucket.rot(name.data_name, bytes(damaged))
        return read(scan, scan.plan(1), metrics)["__value__"].to_pylist(), metrics


_BROKEN_CHUNK: Final = _with_bad_checksum(_CHUNKS[1])


@pytest.mark.parametrize("block_bytes", _BLOCK_SIZES)
@pytest.mark.parametrize(
    ("entries", "bounds", "entry_id", "counts"),
    [
        ([_CHUNKS[0], _BROKEN_CHUNK, _CHUNKS[2], _SINGLE], {"start": (_LEDGER, 2)}, 1, (1, 0)),
        ([_CHUNKS[0], _SINGLE, _BROKEN_CHUNK, _CHUNKS[2]], {}, 2, (1, 0)),
        ([_OPENED, _SINGLE, _with_bad_checksum(_COMMIT)], {"end": (_LEDGER, 2)}, 2, (0, 1)),
    ],
    ids=["chunk before the start", "chunk behind a task", "marker behind the end"],
)
def test_damage_that_a_row_needs_is_no_silent_loss(
    entries: list[bytes],
    bounds: dict[str, Any],
    entry_id: int,
    counts: tuple[int, int],
    block_bytes: int,
) -> None:
    """A message whose chunk, or a transaction whose marker, cannot be read is told of."""
    bounded = partial(_values, entries, block_bytes=block_bytes, **bounds)

    with pytest.raises(ChecksumError) as caught:
        bounded()
    values, metrics = bounded(salvage=True)

    assert (caught.value.ledger_id, caught.value.entry_id) == (_LEDGER, entry_id)
    assert values == [b"single"]
    assert (metrics.incomplete_messages, metrics.open_messages) == counts
    if not bounds:
        assert metrics.lost == {(Unit.ENTRY, "ChecksumError"): 1}


@pytest.mark.parametrize("block_bytes", _BLOCK_SIZES)
def test_looking_back_over_damage_needs_no_report(block_bytes: int) -> None:
    """`execute` on its own salvages before `start` as behind it, and warns of what is not whole."""
    entries = [_CHUNKS[0], _with_bad_checksum(_CHUNKS[1]), _CHUNKS[2], _SINGLE]
    objects = offload_ledger(object_name(_LEDGER), entries, block_bytes=block_bytes)
    with memory_bucket(objects) as bucket:
        dataset = open_topic(bucket.url, TOPIC, on_corruption="salvage", start=(_LEDGER, 2))
        (task,) = dataset.scan.select(["__value__"]).plan()

        with pytest.warns(IncompleteReadWarning, match="1 chunked message was left out") as told:
            values = [value for batch in execute(task) for value in batch["__value__"].to_pylist()]

    assert values == [b"single"]
    assert len(told) == 1


def test_looking_back_over_a_broken_block_is_counted_by_nobody() -> None:
    """It is the task's that gives the rows of it; here there is none, and no row is missing."""
    entries = [_CHUNKS[0], _SINGLE, _CHUNKS[1], _CHUNKS[2]]
    name = object_name(_LEDGER)
    objects = offload_ledger(name, entries, block_bytes=140)
    index = read_index_block(objects[name.index_name], object_key=name.index_name)
    data = bytearray(objects[name.data_name])
    data[index.block_start(1) + 4] ^= 0xFF
    objects[name.data_name] = bytes(data)

    metrics = ReadMetrics()
    with memory_bucket(objects) as bucket:
        options: dict[str, Any] = {"on_corruption": "salvage", "start": (_LEDGER, 2)}
        scan = open_topic(bucket.url, TOPIC, **options).scan.select(["__value__"])
        values = read(scan, metrics=metrics)["__value__"].to_pylist()

    assert values == [b"abcdefghi"]
    assert metrics.lost == {}


@pytest.mark.parametrize("block_bytes", _BLOCK_SIZES)
def test_damage_before_the_start_that_no_row_needs_is_passed_over(block_bytes: int) -> None:
    """What stands before a message's first chunk, or where none goes on, is not looked at."""
    broken = _with_bad_checksum(_SINGLE)

    values, _ = _values([broken, *_CHUNKS, _SINGLE], block_bytes=block_bytes, start=(_LEDGER, 3))
    whole, _ = _values([broken, _SINGLE], block_bytes=block_bytes, start=(_LEDGER, 1))

    assert values == [b"abcdefghi", b"single"]
    assert whole == [b"single"]


@pytest.mark.parametrize("block_bytes", _BLOCK_SIZES)
def test_damage_before_a_sound_marker_is_passed_over(block_bytes: int) -> None:
    """What is known of a transaction is not put in doubt by what else is broken behind the end."""
    entries = [_OPENED, _with_bad_checksum(_SINGLE), _COMMIT]

    values, metrics = _values(entries, block_bytes=block_bytes, end=(_LEDGER, 1))

    assert values == [b"in transaction"]
    assert metrics.open_messages == 0


@pytest.mark.parametrize("max_buffered_bytes", [1, 32 << 20], ids=["spilled", "kept"])
def test_broken_block_behind_the_end_is_the_same_error_spilled_or_kept(
    monkeypatch: pytest.MonkeyPatch, max_buffered_bytes: int
) -> None:
    """How much a look-ahead can keep decides how often bytes are read, and nothing else."""
    limited = partial(TransactionLookahead, max_buffered_bytes=max_buffered_bytes)
    monkeypatch.setattr(scan_module, "TransactionLookahead", limited)
    entries = [_OPENED, *[_SINGLE] * 3, _COMMIT]
    bounded = partial(
        _values, entries, block_bytes=_ENTRY_PER_BLOCK, broken_block=4, end=(_LEDGER, 2)
    )

    with pytest.raises(CorruptBlockError) as caught:
        bounded()
    values, metrics = bounded(salvage=True)

    assert type(caught.value) is CorruptBlockError
    assert caught.value.ledger_id == _LEDGER
    assert values == [b"single"]
    assert metrics.open_messages == 1


@pytest.mark.parametrize(("bound", "number"), [("MAX_HELD_BYTES", 12), ("MAX_OPEN_MESSAGES", 1)])
def test_abandoned_chunks_do_not_stop_a_read(
    monkeypatch: pytest.MonkeyPatch, bound: str, number: int
) -> None:
    """Producers that died amid a message leave chunks behind; those behind them are given."""
    monkeypatch.setattr(chunks, bound, number)
    abandoned = [
        encode_chunks(Message(payload=b"lost" * 5), chunk_count=5, uuid=f"lost-{i}")[:2]
        for i in range(3)
    ]

    values, metrics = _values([*[part for parts in abandoned for part in parts], *_CHUNKS, _SINGLE])

    assert values == [b"abcdefghi", b"single"]
    assert metrics.incomplete_messages == 3
    assert not metrics.lost


_MEMBERS: Final = [Message(payload=b"secret" * 9), Message(payload=b"value")]
_LZ4: Final = Framing(codec="LZ4")


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("off_by", [1, 300])
def test_size_that_no_checksum_vouches_for_is_compared(*, batched: bool, off_by: int) -> None:
    """Memory that an LZ4 block did not fill must not pass for messages, a batch's members too."""
    members = _MEMBERS if batched else _MEMBERS[:1]
    entry = encode_entry(members, batched=batched, framing=_LZ4)
    plain = encode_entry(members, batched=batched)
    size = len(plain) - plain.index(_MEMBERS[0].payload) if not batched else _body_bytes(members)
    fields = _uncompressed_size(size + off_by) + (_batch_size(3) if batched else b"")
    lying = _without_checksum(entry, fields)

    # With checksums off, one that is there, right or wrong, vouches for nothing.
    unchecked = b"\x0e\x01\0\0\0\0" + lying
    for given, verify in ((lying, True), (unchecked, False)):
        with pytest.raises(CorruptEntryError, match=f"not decompress to the {size + off_by} bytes"):
            _values([given], verify_checksums=verify)
        values, metrics = _values([given, _SINGLE], verify_checksums=verify, salvage=True)
        assert values == [b"single"]
        assert metrics.lost == {(Unit.ENTRY, "CorruptEntryError"): 1}


def _body_bytes(members: Sequence[Message]) -> int:
    """How many bytes the members of a batch take before compression."""
    entry = _without_checksum(encode_entry(members, batched=True))
    return len(entry) - 4 - int.from_bytes(entry[:4])


@pytest.mark.parametrize("block_bytes", _BLOCK_SIZES)
def test_batch_with_chunk_fields_is_a_batch(block_bytes: int) -> None:
    """Members are in one entry, whole: given once each, though a task before looks for chunks."""
    entries = [
        _without_checksum(
            encode_entry([Message(payload=b"%d%d" % (i, j)) for j in range(2)], batched=True),
            _chunk_fields(b"batch", 3, 9, i),
        )
        for i in range(3)
    ]

    values, metrics = _values([_CHUNKS[0], *entries, *_CHUNKS[1:]], block_bytes=block_bytes)
    behind, _ = _values(entries, block_bytes=block_bytes, start=(_LEDGER, 1))

    assert sorted(values) == [b"00", b"01", b"10", b"11", b"20", b"21", b"abcdefghi"]
    assert behind == [b"10", b"11", b"20", b"21"]
    assert (metrics.incomplete_messages, metrics.duplicate_chunks) == (0, 0)


@pytest.mark.parametrize("members", [1 << 20, (1 << 31) - 1])
def test_count_believes_no_number_of_members_that_cannot_be(members: int) -> None:
    """A few bytes do not decompress to millions of messages, whatever size they announce."""
    fields = _uncompressed_size((1 << 32) - 1) + _batch_size(members)
    lying = _without_checksum(encode_entry(_MEMBERS[1:], batched=True, framing=_LZ4), fields)
    objects = offload_ledger(object_name(_LEDGER), [lying, _SINGLE])

    with memory_bucket(objects) as bucket:
        with pytest.raises(CorruptEntryError) as caught:
            open_topic(bucket.url, TOPIC).count_rows()
        salvaging = open_topic(bucket.url, TOPIC, on_corruption="salvage")
        with pytest.warns(UserWarning, match="1 × entry lost: CorruptEntryError"):
            assert salvaging.count_rows() == 1

    assert caught.value.entry_id == 0


def test_count_believes_what_compresses_well() -> None:
    """Batches of members that are all alike are counted, though few bytes announce them."""
    entry = encode_entry([Message()] * 20_000, batched=True, framing=Framing(codec="ZSTD"))

    with memory_bucket(offload_ledger(object_name(_LEDGER), [entry])) as bucket:
        assert len(entry) < 200
        assert open_topic(bucket.url, TOPIC).count_rows() == 20_000


def test_ranges_of_more_than_a_gib_are_refused() -> None:
    """Before anything is asked of the store for them."""
    with pytest.raises(OptionError, match="range_bytes is 1073741825; allowed are 1 … 1073741824"):
        _values([_SINGLE], range_bytes=(1 << 30) + 1)
    assert _values([_SINGLE], range_bytes=1 << 30)[0] == [b"single"]


def test_names_that_become_the_same_text_stand_once(build: str) -> None:
    """Names that are no UTF-8 may all become U+FFFD, and engines refuse a name twice."""
    first, second = b"\x22\x06\x0a\x01\xff\x12\x01v", b"\x22\x06\x0a\x01\xfe\x12\x01w"
    entry = encode_entry([Message(payload=b"x", extra_fields=first + second)], batched=False)
    with memory_bucket(offload_ledger(object_name(_LEDGER), [entry])) as bucket:
        dataset = open_topic(bucket.url, TOPIC)

        with pytest.warns(IncompleteReadWarning, match="2 texts had invalid bytes"):
            table = dataset.to_table(columns=["__properties__"])

    assert build is not None
    assert table["__properties__"].to_pylist() == [[("\ufffd", "w")]]
    assert dataset.metrics.replaced_texts == 2


@pytest.mark.parametrize(
    ("column", "sound"),
    [
        ("__value__", Message(payload="\u00e9".encode())),
        ("__key__", Message(partition_key="\u00e9")),
        ("__properties__", Message(properties=(("\u00e9", "v"),))),
        ("__properties__", Message(properties=(("n", "\u00e9"),))),
    ],
)
def test_text_that_is_none_is_told(column: str, sound: Message) -> None:
    """Whoever reads a column with text that had to be replaced is warned; nobody else is."""
    entries = [
        encode_entry([sound], batched=True, framing=_BARE),
        encode_entry([sound], batched=True, framing=_BARE).replace(b"\xc3\xa9", b"\xff\xfe"),
    ]
    with memory_bucket(offload_ledger(object_name(_LEDGER), entries)) as bucket:
        told = open_topic(bucket.url, TOPIC, schema="STRING", columns=[column])
        untold = open_topic(bucket.url, TOPIC, schema="STRING", columns=["__publish_time__"])

        with pytest.warns(IncompleteReadWarning, match="1 text had invalid bytes"):
            rows = told.to_table().to_pylist()
        assert untold.to_table().num_rows == 2

    assert "\ufffd" in str(rows[1])
    assert "\ufffd" not in str(rows[0])
    assert told.metrics.replaced_texts == 1
    assert untold.metrics.replaced_texts == 0
