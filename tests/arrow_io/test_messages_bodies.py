"""Messages that are compressed one by one, decompressed together: the same as one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import zstandard

from arrow_io.errors import CorruptEntryError
from arrow_io.messages import codecs, layout
from arrow_io.messages.bodies import decompress_bodies
from arrow_io.messages.message_reader import BatchLimits, MessageReader, Needs
from arrow_io.read_metrics import ReadMetrics, Tally, Unit
from tests.support.codecs import CODECS, Codec, compress
from tests.support.entries import Framing, Message, encode_entry
from tests.support.pulsar_proto import COMPRESSION_TYPES, MessageMetadata
from tests.support.runs import entry_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.messages.entry_run import EntryRun

pytestmark = pytest.mark.usefixtures("build")

_COMPRESSED: list[Codec] = [codec for codec in CODECS if codec != "NONE"]
_PAYLOADS = [b"%d " % n * (n % 7 * 30 + 1) for n in range(40)]


def _single(payload: bytes, codec: Codec) -> bytes:
    return encode_entry([Message(payload=payload)], batched=False, framing=Framing(codec=codec))


def _said(stored: bytes, codec: Codec, size: int) -> bytes:
    """An entry of one message whose payload stands as it is, and is said to become `size` bytes."""
    return _raw(stored, COMPRESSION_TYPES[codec], size)


def _raw(stored: bytes, compression: int, size: int) -> bytes:
    metadata: bytes = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        compression=compression,
        uncompressed_size=size,
    ).SerializeToString()
    return len(metadata).to_bytes(4) + metadata + stored


def _read(
    runs: Iterable[EntryRun], tally: Tally | None = None, limits: BatchLimits | None = None
) -> list[list[bytes | None]]:
    reader = MessageReader(runs, Needs(), Tally() if tally is None else tally, limits=limits)
    return [each.row_bytes(layout.ROW_PAYLOAD).to_pylist() for each in reader]


def _values(runs: Iterable[EntryRun], tally: Tally | None = None) -> list[bytes | None]:
    return [value for each in _read(runs, tally) for value in each]


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_empty_payloads(codec: Codec) -> None:
    """They are compressed to something, or to nothing."""
    entries = [_said(compress(codec, b""), codec, 0), _said(b"", codec, 0), _single(b"x", codec)]

    assert _values([entry_run(entries)]) == [b"", b"", b"x"]


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_damage_is_of_one_message_alone(codec: Codec) -> None:
    """Each bad payload is counted by itself, with its place; its neighbours are given."""
    stored = [compress(codec, each) for each in _PAYLOADS]
    sizes = [len(each) for each in _PAYLOADS]
    stored[3] = b"\xff" * 20
    sizes[11] += 1
    sizes[17] = codecs.MAX_MESSAGE_BYTES + 1
    stored[-1] = stored[-1][: len(stored[-1]) // 2]
    bad = {3, 11, 17, len(_PAYLOADS) - 1}
    run = entry_run(
        [_said(data, codec, size) for data, size in zip(stored, sizes, strict=True)],
        ledger_id=7,
        first_entry_id=100,
    )
    metrics = ReadMetrics()

    values = _values([run], Tally(metrics, salvage=True))

    assert values == [each for n, each in enumerate(_PAYLOADS) if n not in bad]
    assert sum(metrics.lost.values()) == len(bad)
    assert {unit for unit, _ in metrics.lost} == {Unit.ENTRY}
    with pytest.raises(CorruptEntryError) as caught:
        _values([run])
    assert (caught.value.ledger_id, caught.value.entry_id) == (7, 103)


def test_unknown_codec_is_of_one_message_alone() -> None:
    """Neighbours of the same unknown codec are told one by one."""
    known = _raw(b"x", 4, 1)
    entries = [known.replace(b"\x40\x04", b"\x40\x09")] * 3
    metrics = ReadMetrics()

    assert _values([entry_run([*entries, _single(b"y", "LZ4")])], Tally(metrics, salvage=True)) == [
        b"y"
    ]
    assert sum(metrics.lost.values()) == 3


_FRAME = compress("ZSTD", b"abc" * 50)
_SKIPPED = b"\x50\x2a\x4d\x18\x02\x00\x00\x00--"


@pytest.mark.parametrize(
    ("stored", "size"),
    [
        (_FRAME + b"behind", 150),
        (_FRAME + b"\x00", 150),
        (_FRAME + _FRAME, 300),
        (_FRAME + _FRAME, 150),
        (_FRAME + _SKIPPED, 150),
        (_SKIPPED + _FRAME, 150),
        (_FRAME[:-1], 150),
        (_FRAME, 149),
        (_FRAME, 151),
        (_FRAME[:4] + bytes([_FRAME[4] | 3]) + _FRAME[5:], 150),
        (zstandard.ZstdCompressor(write_checksum=True).compress(b"abc" * 50), 150),
        (zstandard.ZstdCompressor(write_checksum=True).compress(b"abc" * 50)[:-1] + b"-", 150),
        (zstandard.ZstdCompressor().compress(bytes(70_000)), 70_000),
        (zstandard.ZstdCompressor().compress(bytes(300)), 300),
        (b"\x28\xb5\x2f\xfd", 1),
        (b"\x28\xb5\x2f\xfd\x20\x01\x01", 1),
        (b"\x28\xb5\x2f\xfd\x20\x01\x0b\x00\x00a", 1),
        (b"\x28\xb5\x2f\xfd\x20\x01\x0f\x00\x00a", 1),
        (b"\x28\xb5\x2f\xfd\xe0\x01" + bytes(6) + b"\x01\x09\x00\x00a", 1),
    ],
)
def test_frames_of_zstd_are_read_as_one_by_one(stored: bytes, size: int) -> None:
    """What stands around or behind a frame changes nothing about what is believed."""
    try:
        alone = [bytes(codecs.decompress(codecs.ZSTD, memoryview(stored), size))]
    except CorruptEntryError:
        alone = []
    entries = [_single(b"a" * 30, "ZSTD"), _said(stored, "ZSTD", size), _single(b"b" * 30, "ZSTD")]

    values = _values([entry_run(entries)], Tally(salvage=True))

    assert values == [b"a" * 30, *alone, b"b" * 30]


@pytest.mark.parametrize("codec", _COMPRESSED)
def test_memory_is_bounded(codec: Codec) -> None:
    """However well payloads compress, no more is decompressed at once than there is room for."""
    size = 100_000
    run = entry_run([_single(bytes(size), codec) for _ in range(50)])

    before = pa.total_allocated_bytes()
    body, stop, is_any_alone = decompress_bodies(run, 2, 50, 3 * size)
    taken = pa.total_allocated_bytes() - before

    assert 2 < stop <= 5
    assert not is_any_alone
    assert run.body_bytes(2, stop) == (stop - 2) * size <= len(body) < taken + 1 < 5 * size
    limits = BatchLimits(max_bytes=3 * size)
    given = _read([run], limits=limits)
    assert sum(map(len, given)) == 50
    assert max(map(len, given)) <= 3


def test_room_is_for_one_at_the_least() -> None:
    """A message larger than all the room there is is taken, and alone."""
    run = entry_run([_single(bytes(1000), "LZ4") for _ in range(3)])

    assert decompress_bodies(run, 0, 3, 1)[1] == 1
    assert decompress_bodies(run, 1, 3, -5)[1] == 2


def test_values_not_asked_for_are_not_decompressed() -> None:
    """Without their values, messages need no sound payload."""
    run = entry_run([_said(b"\xff", "LZ4", 1000) for _ in range(3)])

    (columns,) = MessageReader([run], Needs(payload=False), Tally())

    assert columns.count == 3
