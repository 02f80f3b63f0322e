"""Batch decompression: payloads of neighbouring entries into one buffer, in few calls.

A Python call and a new library context take longer than decompressing one small payload. A payload
that may be damaged is left to `codecs`, which decompresses it alone and reports its error.
"""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING

import zstandard

from arrow_io.core import builds
from arrow_io.core.memory import allocate
from arrow_io.messages import layout
from arrow_io.messages.codecs import MAX_MESSAGE_BYTES, MAX_RATIO

if TYPE_CHECKING:
    from arrow_io.messages.entry_run import EntryRun

_SLACK_BYTES = 64
"""Room after the last body, so that its end can be copied as fast as the rest."""


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.zstd = zstandard.ZstdDecompressor()
        self.scratch = array("i", bytes(4 * builds.in_use.inflate.SCRATCH_WIDTH))


_CONTEXTS = _Contexts()


def decompress_bodies(
    run: EntryRun, first: int, stop: int, room_bytes: int
) -> tuple[memoryview, int, bool]:
    """Decompress the payloads of entries `[first, stop)`, all compressed by the same codec.

    The entry table receives the positions of the bodies in the buffer. Entries that may be damaged
    are flagged as `ALONE`, and must be decompressed separately. No entry is added after entries
    and bodies together have `room_bytes`.

    Returns:
        The buffer, the first entry that was not added, and whether any is flagged.
    """
    compression = run.number(first, layout.COMPRESSION)
    result = array("q", bytes(8 * 4))
    builds.in_use.codecs.place_bodies(
        run.data,
        run.table,
        first,
        stop,
        MAX_RATIO.get(compression, 0),
        MAX_MESSAGE_BYTES,
        room_bytes,
        result,
    )
    stop, body_bytes, payload_bytes, alone = result
    out = memoryview(allocate(body_bytes + _SLACK_BYTES)).cast("B")
    if not body_bytes:
        return out, stop, alone > 0
    if compression == layout.ZSTD:
        if not _decompress_frames(run, first, stop, payload_bytes, out[:body_bytes]):
            run.flag(first, stop, layout.ALONE)
            alone = stop - first
    else:
        alone += builds.in_use.codecs.decompress_blocks(
            run.data, run.table, first, stop, out, _CONTEXTS.scratch
        )
    return out, stop, alone > 0


def _decompress_frames(
    run: EntryRun, first: int, stop: int, payload_bytes: int, out: memoryview
) -> bool:
    """Decompress ZSTD frames that announce their sizes; return whether all are valid."""
    joined = memoryview(allocate(payload_bytes)).cast("B")
    builds.in_use.codecs.join_payloads(run.data, run.table, first, stop, joined)
    reader = _CONTEXTS.zstd.stream_reader(joined, read_across_frames=True)
    try:
        return reader.readinto(out) == len(out)
    except zstandard.ZstdError:
        return False
