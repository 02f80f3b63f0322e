"""Decoders: ours, and the peers that have a Python interface.

Each is opened for the payloads and the size of record batches, and then decodes the same payloads
as often as it is asked to.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
import pyarrow.json as pa_json

from arrow_io.messages.message_columns import MessageColumns, PayloadSource
from arrow_io.payloads.decoder import PayloadDecoder, decode
from arrow_io.payloads.schema_info import SchemaInfo
from arrow_io.payloads.writer_schemas import PulsarVersions
from arrow_io.read_metrics import Tally
from tests.support.protobuf_payloads import library_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.benchmarks.peers.payloads import Payloads

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - files of Linux that are in memory


class UnsupportedError(Exception):
    """A peer cannot decode a kind of payload, or cannot be had here; the text says why."""


class Decoding(Protocol):
    """Payloads that are decoded again at each call."""

    def run(self) -> int:
        """Decode all payloads, drop each batch, and return the number of rows."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decode all payloads."""
        ...


class Ours:
    """The decoder that reads use, without the messages around the payloads."""

    def __init__(self, payloads: Payloads, rows: int) -> None:
        info = SchemaInfo(payloads.type, payloads.definition)
        self._decoder = PayloadDecoder(info, PulsarVersions(info), "us")
        self.type = self._decoder.arrow_type
        # What errors locate messages by, and the size of arenas depends on.
        self._messages = MessageColumns(1)
        self._messages.count = len(payloads.positions)
        self._messages.size_bytes = len(payloads.data)
        # The core reads blocks of bytes; buffers of entries have bytes after the last payload, too.
        data = memoryview(payloads.data + bytes(64))[: len(payloads.data)]
        positions = memoryview(payloads.positions)
        parts = (positions[first : first + rows] for first in range(0, len(positions), rows))
        self._sources = [PayloadSource(0, len(part), data, part, None) for part in parts]
        self._tally = Tally()

    def _arrays(self) -> Iterator[pa.Array]:
        for source in self._sources:
            decoded = decode(
                self._decoder, [source], None, self._messages, self._tally, stop=source.stop
            )
            assert decoded.count == source.stop
            yield decoded.finish()

    def run(self) -> int:
        """Decode all payloads; see `Decoding`."""
        return sum(map(len, self._arrays()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decode all payloads; see `Decoding`."""
        return map(pa.RecordBatch.from_struct_array, self._arrays())


class _Reader:
    """A peer that is a function from nothing to record batches."""

    def __init__(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.batches = read

    def run(self) -> int:
        """Decode all payloads; see `Decoding`."""
        return sum(batch.num_rows for batch in self.batches())


def open_duckdb(payloads: Payloads, rows: int) -> Decoding:
    """DuckDB's `read_json` with one thread, of a file in memory."""
    import duckdb  # noqa: PLC0415 - an optional library

    folder = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    file = tempfile.NamedTemporaryFile(suffix=".ndjson", dir=folder)  # noqa: SIM115 - the reader keeps it
    file.write(payloads.data)
    file.flush()
    connection = duckdb.connect(config={"threads": 1})
    fields = list(Ours(payloads, rows).type)
    columns = ", ".join(f"'{each.name}': '{_duckdb_type(each.type)}'" for each in fields)
    functions = {"ms": "epoch_ms", "us": "make_timestamp"}
    values = ", ".join(
        f"{functions[unit]}({each.name}) AS {each.name}"
        if (unit := payloads.stored_units.get(each.name))
        else each.name
        for each in fields
    )
    options = f"format='newline_delimited', columns={{{columns}}}"
    question = f"SELECT {values} FROM read_json('{file.name}', {options})"  # noqa: S608

    def read() -> Iterator[pa.RecordBatch]:
        assert not file.closed
        yield from connection.sql(question).to_arrow_reader(rows)

    return _Reader(read)


def _duckdb_type(type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        return f"STRUCT({', '.join(f'{each.name} {_duckdb_type(each.type)}' for each in type_)})"
    if pa.types.is_map(type_):
        return f"MAP(VARCHAR, {_duckdb_type(type_.item_type)})"
    if pa.types.is_list(type_):
        return f"{_duckdb_type(type_.value_type)}[]"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    # Timestamps are numbers in JSON.
    names = {"int64": "BIGINT", "int32": "INTEGER", "bool": "BOOLEAN", "string": "VARCHAR"}
    return names.get(str(type_), "DOUBLE" if pa.types.is_floating(type_) else "BIGINT")


def stored_schema(payloads: Payloads) -> pa.Schema:
    """Return the columns of JSON as it is stored: timestamps in the units of its numbers."""
    units = payloads.stored_units
    # arrow-json knows no names of time zones.
    return pa.schema(
        each.with_type(pa.timestamp(units[each.name], "+00:00")) if each.name in units else each
        for each in Ours(payloads, 1).type
    )


def open_pyarrow(payloads: Payloads, rows: int) -> Decoding:
    """`pyarrow.json` with one thread, in blocks of about as many rows."""
    schema = stored_schema(payloads)
    _refuse(schema, pa.types.is_map, "maps are lists of pairs in its JSON")
    _refuse(schema, pa.types.is_decimal, "decimals are texts in its JSON")
    numbers = _numbers_of_times(schema)
    block_bytes = max(1024, len(payloads.data) * rows // len(payloads.positions))
    read_options = pa_json.ReadOptions(use_threads=False, block_size=block_bytes)
    parse_options = pa_json.ParseOptions(
        explicit_schema=numbers, unexpected_field_behavior="ignore"
    )
    buffer = pa.py_buffer(payloads.data)

    def read() -> Iterator[pa.RecordBatch]:
        reader = pa_json.open_json(pa.BufferReader(buffer), read_options, parse_options)
        return (batch.cast(schema) for batch in reader) if numbers != schema else iter(reader)

    return _Reader(read)


def open_polars(payloads: Payloads, rows: int) -> Decoding:
    """Polars' `read_ndjson`, called for as many lines as make a record batch."""
    import polars as pl  # noqa: PLC0415 - an optional library

    schema = stored_schema(payloads)
    _refuse(schema, pa.types.is_map, "it has no maps")
    _refuse(schema, pa.types.is_decimal, "its reader of JSON has no decimals")
    numbers = _numbers_of_times(schema)
    frame_schema = pl.from_arrow(numbers.empty_table()).schema  # type: ignore[union-attr]
    starts = [position >> 32 for position in payloads.positions[::rows]]
    parts = [
        payloads.data[start:stop]
        for start, stop in zip(starts, [*starts[1:], len(payloads.data)], strict=True)
    ]

    def read() -> Iterator[pa.RecordBatch]:
        for part in parts:
            table = pl.read_ndjson(part, schema=frame_schema).to_arrow()
            yield from (table if numbers == schema else table.cast(schema)).to_batches()

    return _Reader(read)


def open_polars_file(payloads: Payloads, rows: int) -> Decoding:
    """Polars' `read_avro`, which reads a file as one record batch."""
    import polars as pl  # noqa: PLC0415 - an optional library

    _refuse(Ours(payloads, rows).type, pa.types.is_map, "it has no maps")
    if payloads.kind == "avro-unions":
        raise UnsupportedError("it has no unions of two types")
    file = payloads.avro_file()
    return _Reader(lambda: iter(pl.read_avro(io.BytesIO(file)).to_arrow().to_batches()))


def _numbers_of_times(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        each.with_type(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in schema
    )


def _refuse(
    schema: Iterable[pa.Field], has_type: Callable[[pa.DataType], bool], reason: str
) -> None:
    if any(has_type(each.type) for each in schema):
        raise UnsupportedError(reason)


class _Parsed:
    """Messages that upb parses to objects; it builds no columns."""

    def __init__(self, payloads: Payloads) -> None:
        self._payloads = list(payloads.payloads())
        self._parse = library_class(payloads.definition).FromString

    def run(self) -> int:
        """Parse all payloads, and return their number."""
        parse = self._parse
        for payload in self._payloads:
            parse(payload)
        return len(self._payloads)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return nothing."""
        return iter(())


def open_upb(payloads: Payloads, rows: int) -> Decoding:
    """Python's protobuf library, which is upb."""
    del rows
    return _Parsed(payloads)
