"""The benchmarks that are compared with those of an earlier commit.

`worker.py` of a later commit calls `open_rows` of this one, so its parameters, and the attributes
`run` and `floor` of what it prepares, stay as they are. A benchmark that does something else from
now on gets another name. The later commit opens its rows first, and this one reads the ledgers and
payloads that it finds in the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from array import array
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import fsspec
import pyarrow as pa

from tests.benchmarks import copying
from tests.benchmarks.batches import record_batches
from tests.benchmarks.decoding import (
    BLOCK_RANGE_BYTES,
    SCANS,
    TYPED_SCANS,
    StoredLedger,
    decompress_all,
    payloads,
    scan,
    store,
    topic_name,
)
from tests.benchmarks.peers.decoders import Ours
from tests.benchmarks.peers.payloads import KINDS, Payloads
from tests.benchmarks.querying import open_queries
from tests.benchmarks.resident import RESIDENT_URL, ResidentFileSystem
from tests.support.benchmark_ledgers import BENCHMARK_LEDGERS, JSON_LZ4

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.peers.payloads import Kind
    from tests.support.benchmark_ledgers import BenchmarkLedger

REMOVED: Final[dict[str, str]] = {}
"""Why benchmarks that records may have exist no more, by name."""

_MESSAGES: Final = 100_000
_BATCH_ROWS: Final = (65_536, 1_024)
_BATCHES: Final = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A benchmark whose input is in memory or in a local folder.

    Attributes:
        run: Does what is timed, and returns the number of rows.
        floor: Does what the benchmark is compared with in one run: its yardstick.
    """

    run: Callable[[], int]
    floor: Callable[[], object]


def open_rows(folder: str, messages: int | None) -> dict[str, Callable[[], Row]]:
    """Return what prepares each benchmark, by name.

    Args:
        folder: Local folder for ledgers and payloads; those that it has are read, not made again.
        messages: Messages of each ledger and payloads of each kind; None: enough of each.
    """
    inputs = _Inputs(folder, messages)
    rows: dict[str, Callable[[], Row]] = {}
    for ledger in BENCHMARK_LEDGERS:
        scans = (*SCANS, *(TYPED_SCANS if ledger.schema else ()))
        rows |= {f"{ledger.name}, {name}": partial(_scan, inputs, ledger, name) for name in scans}
    for name, make in record_batches(1).items():
        rows[f"one row of {name}"] = partial(_one_row, make)
    for kind in KINDS:
        for size in _BATCH_ROWS:
            rows[f"{kind.name}, {size:,} rows a batch"] = partial(_decoder, inputs, kind, size)
    rows[f"copy of {JSON_LZ4.name}"] = partial(_copy, inputs)
    rows["SQL query"] = partial(_query, inputs)
    rows["command --version"] = partial(_command, inputs, "--version")
    rows["command head"] = partial(_command, inputs, "head")
    return rows


class _Inputs:
    """Ledgers and payloads, which are made once for all processes that compare."""

    def __init__(self, folder: str, messages: int | None) -> None:
        self.folder = folder
        self.messages = messages or _MESSAGES
        self._payloads = messages

    def ledger(self, ledger: BenchmarkLedger) -> StoredLedger:
        """Return a ledger in the local folder."""
        url = f"{self.folder}/{topic_name(ledger)}"
        if not Path(url).exists():
            return store(ledger, self.folder, self.messages)
        schema = None if ledger.schema is None else (ledger.schema_type, ledger.schema)
        return StoredLedger(url, topic_name(ledger), self.messages, schema)

    def resident_ledger(self, ledger: BenchmarkLedger) -> StoredLedger:
        """Return a ledger in memory, where it takes the place of the last one."""
        stored = self.ledger(ledger)
        ResidentFileSystem.objects.clear()
        file_system, root = fsspec.url_to_fs(f"{RESIDENT_URL}/{stored.topic}")
        for file in Path(stored.url).iterdir():
            file_system.pipe_file(f"{root}/{file.name}", file.read_bytes())
        url = f"{RESIDENT_URL}/{stored.topic}"
        return StoredLedger(url, stored.topic, stored.messages, stored.schema)

    def payloads(self, kind: Kind) -> Payloads:
        """Return payloads of a kind."""
        described = Path(self.folder) / f"{kind.name}.json"
        data = described.with_suffix(".bin")
        if not described.exists():
            made = kind.payloads(self._payloads or kind.messages)
            data.write_bytes(made.data)
            values = {
                "type": made.type,
                "definition": made.definition,
                "positions": made.positions.tolist(),
            }
            described.write_text(json.dumps(values), encoding="utf-8")
        values = json.loads(described.read_text(encoding="utf-8"))
        return Payloads(
            kind.name, values["type"], values["definition"], data.read_bytes(),
            array("q", values["positions"]),
        )  # fmt: skip


def _scan(inputs: _Inputs, ledger: BenchmarkLedger, name: str) -> Row:
    """Compare a scan with the decompression of every payload."""
    stored = inputs.resident_ledger(ledger)
    is_typed = name in TYPED_SCANS
    columns = stored.typed_columns()[name] if is_typed else SCANS[name]
    dataset = stored.open(BLOCK_RANGE_BYTES, typed=is_typed)
    floor = partial(decompress_all, payloads(dataset))
    return Row(partial(scan, dataset, columns), floor)


def _one_row(make: Callable[[], pa.RecordBatch]) -> Row:
    """Compare record batches of one row with those that Arrow makes of Python's values."""
    batch = make()
    rows, schema = batch.to_pylist(), batch.schema

    def run() -> int:
        return sum(make().num_rows for _ in range(_BATCHES))

    def floor() -> None:
        for _ in range(_BATCHES):
            pa.RecordBatch.from_pylist(rows, schema)

    return Row(run, floor)


def _decoder(inputs: _Inputs, kind: Kind, size: int) -> Row:
    """Compare a decoder with the decompression of its payloads."""
    of_kind = inputs.payloads(kind)
    codec = pa.Codec("lz4_raw")
    compressed = codec.compress(of_kind.data, asbytes=True)
    return Row(Ours(of_kind, size).run, partial(codec.decompress, compressed, len(of_kind.data)))


def _copy(inputs: _Inputs) -> Row:
    """Compare a copy to plain Parquet with the same by hand."""
    stored = inputs.ledger(JSON_LZ4)

    def into_new_folder(write: Callable[[StoredLedger, str], int]) -> int:
        with tempfile.TemporaryDirectory(dir=inputs.folder) as folder:
            return write(stored, folder)

    return Row(partial(into_new_folder, copying.copy), partial(into_new_folder, copying.by_hand))


def _query(inputs: _Inputs) -> Row:
    """Compare DuckDB's query of a topic with its query of the same lines of JSON."""
    connection, questions = open_queries(inputs.folder, inputs.ledger(JSON_LZ4), threads=1)

    def ask(function: str) -> int:
        answer: list[Any] = connection.execute(questions[function]).fetchall()
        return len(answer)

    return Row(partial(ask, "read_pulsar"), partial(ask, "read_json"))


def _command(inputs: _Inputs, name: str) -> Row:
    """Compare a command of the shell with the start of the interpreter."""
    stored = inputs.ledger(JSON_LZ4)
    arguments = [name]
    if name == "head":
        arguments += [stored.url, stored.topic, "--value", "raw"]

    def run(*command: str) -> int:
        printed = subprocess.run(
            [sys.executable, "-P", *command], check=True, stdout=subprocess.PIPE
        )
        return len(printed.stdout.splitlines())

    return Row(partial(run, "-m", "connector.cli", *arguments), partial(run, "-c", ""))
