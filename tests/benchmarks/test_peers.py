"""The comparison with peers, run untimed on few payloads."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
import pytest

from tests.benchmarks.peers import compiled
from tests.benchmarks.peers.__main__ import main, table
from tests.benchmarks.peers.decoders import Ours
from tests.benchmarks.peers.measuring import (
    PEERS,
    DifferentValuesError,
    as_type,
    cell_count,
    check_values,
    measure,
)
from tests.benchmarks.peers.payloads import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.benchmarks.peers.payloads import Kind, Payloads

PAYLOADS = 40
ROWS = 16


class _Changed:
    """A peer that decodes our values, of which the last is another."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def run(self) -> int:
        return len(self._values)

    def batches(self) -> Iterator[pa.RecordBatch]:
        first = self._values.slice(0, 1)
        changed = pa.concat_arrays([self._values.slice(0, len(self._values) - 1), first])
        yield pa.RecordBatch.from_struct_array(changed)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_peers_decode_the_same_values(kind: Kind) -> None:
    """Each peer that is here agrees with us, and is measured."""
    (row,) = measure([kind], rows=[ROWS], messages=PAYLOADS, rounds=1, min_seconds=0)

    assert row.count == PAYLOADS
    assert set(row.speed_ups) | set(row.reasons) == set(PEERS[row.type])
    assert all(ratio > 0 for ratio in row.speed_ups.values())
    assert len(table([row], PEERS[row.type])) == 2
    # Those that Python installs are here; the others are if they are built.
    is_built = compiled.RUST.is_file() and compiled.GO.is_file()
    assert any("not built" in each for each in row.reasons.values()) <= (not is_built)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_value_that_differs_is_noticed(kind: Kind) -> None:
    """Nothing is timed if a peer has another value."""
    payloads = kind.payloads(PAYLOADS)
    values = _values(payloads)

    with pytest.raises(DifferentValuesError, match=f"{kind.name}, row {PAYLOADS - 1}: X has"):
        check_values("X", payloads, values, _Changed(values))


def test_an_avro_file_holds_the_payloads() -> None:
    """Another library reads the file that peers read."""
    payloads = _payloads("avro-nullable", 2000)
    values = _values(payloads)

    file = io.BytesIO(payloads.avro_file())

    assert payloads.size_bytes > 64_000  # more than one block
    assert list(fastavro.reader(file)) == values.to_pylist()


def test_branches_of_a_union_become_fields() -> None:
    """Arrow's unions are compared with our structs."""
    values = _values(_payloads("avro-unions", PAYLOADS)).field("amount")
    longs, strings = values.field("long"), values.field("string")
    codes = [
        0 if value is None else 1 if value["long"] is not None else 2
        for value in values.to_pylist()
    ]
    union = pa.UnionArray.from_dense(
        pa.array(codes, pa.int8()),
        pa.array(range(PAYLOADS), pa.int32()),
        [pa.nulls(PAYLOADS), longs, strings],
        ["null", "long", "string"],
    )

    assert {0, 1, 2} == set(codes)
    assert as_type(union, values.type).equals(values)


def test_cells_are_values_without_children() -> None:
    """Items count each for itself, and nulls as values."""
    items = pa.array([[{"a": 1, "b": None}, {"a": 2, "b": "x"}], [], None])
    pairs = pa.array([[("k", 1)], [], []], pa.map_(pa.string(), pa.int64()))
    record = pa.StructArray.from_arrays([items, pairs, pa.nulls(3)], ["items", "pairs", "none"])

    assert cell_count(record) == 4 + 2 + 3


def test_the_comparison_is_narrowed() -> None:
    """To some peers, and to batches that there are enough payloads for."""
    (kind,) = (each for each in KINDS if each.name == "json-nested")

    rows = measure(
        [kind], rows=[8, 64, 128], peers=["pyarrow"], messages=100, rounds=1, min_seconds=0
    )

    assert [(row.rows, set(row.speed_ups)) for row in rows] == [(64, {"pyarrow"}), (8, {"pyarrow"})]


def test_peers_that_are_not_built_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without cargo and Go, the others are still compared."""
    monkeypatch.setattr(compiled, "RUST", tmp_path / "libpeers.so")
    monkeypatch.setattr(compiled, "GO", tmp_path / "libhyperpb.so")
    (kind,) = (each for each in KINDS if each.name == "protobuf-flat")

    (row,) = measure([kind], rows=[8], messages=8, rounds=1, min_seconds=0)

    assert set(row.speed_ups) == {"upb"}
    assert row.reasons == {
        "ptars": "it is not built: make peers needs cargo",
        "hyperpb": "it is not built: make peers needs Go",
    }


def test_the_tables_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints one table for each type of schema, and the peers that are left out."""
    words = "peers --payload json-maps --rows 8 --peer Polars --messages 20 --rounds 1 --seconds 0"
    monkeypatch.setattr("sys.argv", words.split())
    monkeypatch.delattr("os.sched_setaffinity", raising=False)

    main()

    printed, progress = capsys.readouterr()
    assert "| json-maps | 8 " in printed
    assert "- Polars of json-maps: it has no maps" in printed
    assert "- fastavro: " in printed
    assert progress.startswith("json-maps, 8, ")


def _payloads(name: str, count: int) -> Payloads:
    (kind,) = (each for each in KINDS if each.name == name)
    return kind.payloads(count)


def _values(payloads: Payloads) -> pa.StructArray:
    return pa.concat_arrays([each.to_struct_array() for each in Ours(payloads, ROWS).batches()])
