"""Ledgers in MapFiles: what their entries cost beside those of PIP-17, and beside ZLIB alone."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import fsspec

from arrow_io.ledgers.reader import OffloadedLedger
from arrow_io.read_metrics import Tally
from arrow_io.storage.location import Location
from tests.benchmarks.decoding import BLOCK_RANGE_BYTES
from tests.benchmarks.resident import RESIDENT_URL, ResidentFileSystem
from tests.support.benchmark_ledgers import JSON_LZ4, SINGLE_UNCOMPRESSED, TEXT_UNCOMPRESSED
from tests.support.buckets import object_name, offload_ledger
from tests.support.map_files import COMPRESSIONS, MapFile, open_map_file, write_map_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from arrow_io.ledgers.open_ledger import OpenLedger

_SHARE = 10
"""Of the messages of a ledger, one in so many is written: deflating takes long."""


@dataclass(frozen=True, slots=True)
class MeasuredMapFile:
    """One row of the table.

    Attributes:
        ledger: Name of the ledger.
        layout: `pip-17`, or the compression.
        entry_seconds: CPU time of reading all entries.
        scan_seconds: CPU time of reading all columns.
        zlib_seconds: CPU time of decompressing the ZLIB streams alone; None: there are none.
    """

    ledger: str
    layout: str
    entry_seconds: float
    scan_seconds: float
    zlib_seconds: float | None = None


def measure_map_files(*, messages: int | None = None, rounds: int = 7) -> list[MeasuredMapFile]:
    """Measure the same entries in data blocks and in MapFiles of each compression.

    Args:
        messages: Messages of each ledger; None: a share of those of the ledger.
        rounds: How often each is done; the least CPU time counts.
    """
    rows = []
    for ledger in (JSON_LZ4, TEXT_UNCOMPRESSED, SINGLE_UNCOMPRESSED):
        entries = list(ledger.entries(messages or ledger.message_count // _SHARE))
        name = object_name(1)
        location = Location(
            _put("pip-17", offload_ledger(name, entries, block_bytes=BLOCK_RANGE_BYTES)),
            range_bytes=BLOCK_RANGE_BYTES,
        )
        in_blocks = OffloadedLedger.open(location, name)
        rows.append(_measured(ledger.name, "pip-17", in_blocks, rounds))
        for compression in COMPRESSIONS:
            file = write_map_file(entries, compression=compression)
            url = _put(compression, file.objects())
            opened = open_map_file(url, len(file.data), range_bytes=BLOCK_RANGE_BYTES)
            row = _measured(ledger.name, compression, opened, rounds)
            if compression != "none":
                row = replace(row, zlib_seconds=_least(partial(_inflate, file), rounds))
            rows.append(row)
        ResidentFileSystem.objects.clear()
    return rows


def table(rows: Sequence[MeasuredMapFile]) -> list[tuple[str, ...]]:
    """The cells of the table, its head first."""
    lines: list[tuple[str, ...]] = [
        (
            "MapFiles",
            "layout",
            "entries",
            "to pip-17",
            "all columns",
            "to pip-17",
            "entries to zlib",
        )
    ]
    for row in rows:
        base = next(each for each in rows if each.ledger == row.ledger)
        by_zlib = (
            "–" if row.zlib_seconds is None else f"{row.entry_seconds / row.zlib_seconds:.2f}×"
        )
        lines.append(
            (
                row.ledger,
                row.layout,
                f"{row.entry_seconds:.3f} s",
                f"{row.entry_seconds / base.entry_seconds:.2f}×",
                f"{row.scan_seconds:.3f} s",
                f"{row.scan_seconds / base.scan_seconds:.2f}×",
                by_zlib,
            )
        )
    return lines


def _put(folder: str, objects: dict[str, bytes]) -> str:
    url = f"{RESIDENT_URL}/{folder}"
    file_system, root = fsspec.url_to_fs(url)
    for name, data in objects.items():
        file_system.pipe_file(f"{root}/{name}", data)
    return url


def _measured(ledger: str, layout: str, opened: OpenLedger, rounds: int) -> MeasuredMapFile:
    entries = _least(partial(_read_entries, opened), rounds)
    return MeasuredMapFile(ledger, layout, entries, _least(partial(_read_rows, opened), rounds))


def _read_entries(opened: OpenLedger) -> int:
    runs = opened.data.entry_runs(0, opened.last_entry_id, Tally())
    return sum(run.count for run in runs)


def _read_rows(opened: OpenLedger) -> int:
    return sum(batch.num_rows for batch in opened.record_batches())


def _inflate(file: MapFile) -> None:
    for stream in file.streams:
        zlib.decompress(stream)


def _least(action: Callable[[], object], rounds: int) -> float:
    def once() -> float:
        start = time.process_time()
        action()
        return time.process_time() - start

    return min(once() for _ in range(rounds))
