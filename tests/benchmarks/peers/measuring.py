"""Comparisons of our decoders with peers: first of the values, then of the CPU time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from tests.benchmarks.peers.compiled import HyperPb, RustPeer, open_avro_file, open_compiled
from tests.benchmarks.peers.decoders import (
    Ours,
    UnsupportedError,
    open_duckdb,
    open_polars,
    open_polars_file,
    open_pyarrow,
    open_upb,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tests.benchmarks.peers.decoders import Decoding
    from tests.benchmarks.peers.payloads import Kind, Payloads

    _Open = Callable[[Payloads, int], Decoding]

PEERS: Final[dict[str, dict[str, _Open]]] = {
    "JSON": {
        "DuckDB": open_duckdb,
        "arrow-json": partial(RustPeer, "arrow-json"),
        "pyarrow": open_pyarrow,
        "Polars": open_polars,
        "sonic-rs": partial(open_compiled, "sonic-rs"),
        "simd-json": partial(open_compiled, "simd-json"),
    },
    "PROTOBUF_NATIVE": {
        "ptars": partial(RustPeer, "ptars"),
        "hyperpb": HyperPb,
        "upb": open_upb,
    },
    "AVRO": {
        "arrow-avro file": open_avro_file,
        "arrow-avro datums": partial(RustPeer, "arrow-avro datums"),
        "Polars file": open_polars_file,
    },
}
"""By type of the schema and name of the peer."""

ROWS: Final = (65_536, 8192, 1024)
"""Rows of a record batch."""


class DifferentValuesError(Exception):
    """A peer decodes other values."""


@dataclass
class Measured:
    """One row of the table.

    Attributes:
        kind: Name of the kind of payload.
        type: Type of its schema.
        rows: Rows of a record batch.
        count: Number of payloads.
        cells: Values of all columns without children, nulls included.
        size_bytes: Length of all payloads.
        seconds: Our least CPU time.
        speed_ups: Our speed divided by that of each peer, by name.
        reasons: Why other peers were not measured, by name.
    """

    kind: str
    type: str
    rows: int
    count: int
    cells: int
    size_bytes: int
    seconds: float
    speed_ups: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def measure(
    kinds: Iterable[Kind],
    *,
    rows: Iterable[int] = ROWS,
    peers: Collection[str] = (),
    messages: int | None = None,
    rounds: int = 3,
    min_seconds: float = 1.0,
) -> Iterator[Measured]:
    """Yield the rows of the table, one for each kind and size of record batches.

    Args:
        kinds: The kinds of payloads.
        rows: Rows of a record batch. Larger ones than the number of payloads are left out, except
            for the least of all.
        peers: Names of peers; empty for all.
        messages: Number of payloads; None for that of the kind.
        rounds: Least number of pairs; the least CPU times of each side are compared.
        min_seconds: Least CPU time of all pairs, so that short runs are repeated more often.

    Raises:
        DifferentValuesError: A peer decodes other values.
    """
    for kind in kinds:
        count = messages or kind.messages
        payloads = kind.payloads(count)
        for size in sorted(rows, reverse=True):
            if size <= count or size == min(rows):
                yield _measure(payloads, size, peers, rounds, min_seconds)


def _measure(
    payloads: Payloads, rows: int, peers: Collection[str], rounds: int, min_seconds: float
) -> Measured:
    ours = Ours(payloads, rows)
    values = _combined(ours)
    measured = Measured(
        payloads.kind, payloads.type, rows, len(values), cell_count(values),
        payloads.size_bytes, _seconds(ours),
    )  # fmt: skip
    for name, open_peer in PEERS[payloads.type].items():
        if peers and name not in peers:
            continue
        try:
            peer = open_peer(payloads, rows)
            check_values(name, payloads, values, peer)
        except (ImportError, UnsupportedError, pa.ArrowException) as error:
            measured.reasons[name] = str(error).partition("\n")[0]
            continue
        pairs: list[tuple[float, float]] = []
        while len(pairs) < rounds or sum(map(sum, pairs)) < min_seconds:
            pairs.append(_pair(ours, peer, is_peer_first=bool(len(pairs) % 2)))
        least, peer_least = (min(times) for times in zip(*pairs, strict=True))
        measured.seconds = min(measured.seconds, least)
        measured.speed_ups[name] = peer_least / least
    return measured


def _pair(ours: Decoding, peer: Decoding, *, is_peer_first: bool) -> tuple[float, float]:
    if is_peer_first:
        peer_seconds = _seconds(peer)
        return _seconds(ours), peer_seconds
    return _seconds(ours), _seconds(peer)


def _seconds(decoding: Decoding) -> float:
    start = time.process_time()
    decoding.run()
    return time.process_time() - start


# Values


def check_values(name: str, payloads: Payloads, values: pa.Array, peer: Decoding) -> None:
    """Compare a peer's values with ours, unless it builds no columns.

    Raises:
        DifferentValuesError: They differ.
    """
    if peer.run() != len(values):
        message = f"{payloads.kind}: {name} has another number of rows"
        raise DifferentValuesError(message)
    batches = list(peer.batches())
    if not batches:
        return
    others = as_type(pa.concat_arrays([each.to_struct_array() for each in batches]), values.type)
    if not others.equals(values):
        row = next(n for n, value in enumerate(values) if value != others[n])
        message = f"{payloads.kind}, row {row}: {name} has {others[row]}, we have {values[row]}"
        raise DifferentValuesError(message)


def _combined(decoding: Decoding) -> pa.Array:
    return pa.concat_arrays([each.to_struct_array() for each in decoding.batches()])


def as_type(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert a peer's values to our type of the same column."""
    if pa.types.is_union(array.type):
        return _branches(array, type_)
    if pa.types.is_struct(type_):
        fields = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
        children = [as_type(fields[each.name], each.type) for each in type_]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=pc.is_null(array))
    if pa.types.is_map(type_):
        keys = as_type(array.keys, type_.key_type)
        items = as_type(array.items, type_.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type_, mask=_nulls(array))
    if pa.types.is_list(type_):
        items = as_type(array.values, type_.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type_, mask=_nulls(array))
    return array.cast(type_)


def _nulls(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None


def _branches(array: pa.UnionArray, type_: pa.DataType) -> pa.Array:
    """Convert a dense union to a struct with a field for each branch that is not null."""
    codes = [
        code
        for code, each in zip(array.type.type_codes, array.type, strict=True)
        if not pa.types.is_null(each.type)
    ]
    children = [
        as_type(
            array.field(code).take(
                pc.if_else(pc.equal(array.type_codes, code), array.offsets, None)
            ),
            each.type,
        )
        for code, each in zip(codes, type_, strict=True)
    ]
    mask = pc.invert(pc.is_in(array.type_codes, pa.array(codes, pa.int8())))
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)


def cell_count(array: pa.Array) -> int:
    """Return the number of values of all arrays without children, nulls included."""
    if pa.types.is_struct(array.type):
        return sum(map(cell_count, array.flatten()))
    if pa.types.is_map(array.type):
        return cell_count(array.keys) + cell_count(array.items)
    if pa.types.is_list(array.type):
        return cell_count(array.flatten())
    return len(array)
