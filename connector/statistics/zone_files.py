"""Files of statistics: Parquet, in which every byte is hashed, so that any damage is detected.

The name of a file contains the hash and the length of its footer, which starts after the last row
group. The footer has a hash of each piece of the data. So any part can be read and verified
independently. A file never changes; each writer adds files of its own.

The footer also has a row for each ledger, which often makes reading zones unnecessary.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, fields
from itertools import accumulate
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arrow_io.core.lazy import cached_property
from arrow_io.core.threads import ContextThreadPool
from arrow_io.errors import CorruptStatisticsError
from connector.statistics.zones import (
    EARLIER_ZONE_SCHEMA,
    LEDGER_SCHEMA,
    ZONE_SCHEMA,
    ledgers_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from arrow_io.storage.location import Location

_PIECE_BYTES: Final = 64 << 10
_HASH_BYTES: Final = 16
_ROW_GROUP_ROWS: Final = 4096
_MAX_FOOTER_BYTES: Final = 64 << 20
_PIECES_KEY: Final = b"pulsar_offload.pieces"
_DATA_KEY: Final = b"pulsar_offload.data_bytes"
_LEDGERS_KEY: Final = b"pulsar_offload.ledgers"
_NAME: Final = re.compile(r"zones-([0-9a-f]{32})-([0-9a-f]{1,8})\.parquet")


def encode_zone_file(zones: pa.Table) -> tuple[str, bytes]:
    """Return name and content of a file of some zones.

    `zones` are rows of `ZONE_SCHEMA`; those of one ledger are adjacent.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, ZONE_SCHEMA, compression="zstd") as writer:
        for start in range(0, zones.num_rows, _ROW_GROUP_ROWS):
            writer.write_table(zones.slice(start, _ROW_GROUP_ROWS))
        data_bytes = sink.tell()
        hashes = [_hash(piece) for piece in _pieces(sink.getbuffer()[:data_bytes])]
        writer.add_key_value_metadata(
            {
                _DATA_KEY: str(data_bytes),
                _PIECES_KEY: json.dumps(hashes),
                _LEDGERS_KEY: b64encode(_pack(ledgers_of(zones))),
            }
        )
    content = sink.getvalue()
    footer = content[data_bytes:]
    return f"zones-{_hash(footer)}-{len(footer):x}.parquet", content


@dataclass(frozen=True)
class ZoneFile:
    """A file of statistics in a folder."""

    location: Location
    name: str
    size_bytes: int

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: cached content is not pickled."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def is_file_name(name: str) -> bool:
        """Return whether a name is that of a file of statistics."""
        return _NAME.fullmatch(name) is not None

    @cached_property
    def footer(self) -> pq.FileMetaData:
        """The file's Parquet metadata, verified; takes one request.

        Raises:
            CorruptStatisticsError: The file is damaged.
            PulsarOffloadError: The file cannot be read.
        """
        match = _NAME.fullmatch(self.name)
        if match is None:
            raise self._damage_error("has another name than zones-<hash>-<length>.parquet")
        length = int(match[2], 16)
        if not 0 < length <= min(self.size_bytes, _MAX_FOOTER_BYTES):
            raise self._damage_error("is shorter than its name says")
        footer = self._read(self.size_bytes - length, self.size_bytes)
        if _hash(footer) != match[1]:
            raise self._damage_error("is not as it was written")
        try:
            metadata = pq.read_metadata(pa.BufferReader(footer))
        except (pa.ArrowException, OSError) as error:
            raise self._damage_error(f"cannot be read: {error}") from None
        if metadata.schema.to_arrow_schema() not in (ZONE_SCHEMA, EARLIER_ZONE_SCHEMA):
            raise self._damage_error("has other columns than this version knows")
        if self._piece_hashes(metadata.metadata) is None:
            raise self._damage_error("has no hashes of its data")
        return metadata

    def _piece_hashes(self, metadata: Mapping[bytes, bytes]) -> tuple[int, list[str]] | None:
        """Return length of the hashed data, and the hash of each piece; None if malformed."""
        try:
            data_bytes, hashes = int(metadata[_DATA_KEY]), json.loads(metadata[_PIECES_KEY])
            count = len(hashes)
        except (KeyError, TypeError, ValueError):
            return None
        if not 0 <= data_bytes <= self.size_bytes or count != -(-data_bytes // _PIECE_BYTES):
            return None
        return data_bytes, hashes

    @cached_property
    def _hashed(self) -> tuple[int, list[str]]:
        return self._piece_hashes(self.footer.metadata) or (0, [])

    @cached_property
    def ledgers(self) -> pa.Table:
        """The ledgers whose zones are in the file, in file order, as rows of `LEDGER_SCHEMA`.

        Raises:
            CorruptStatisticsError: The file is damaged.
            PulsarOffloadError: The file cannot be read.
        """
        metadata = self.footer.metadata
        try:
            with pa.ipc.open_stream(b64decode(metadata[_LEDGERS_KEY])) as stream:
                ledgers = stream.read_all()
        except (KeyError, ValueError, OSError, pa.ArrowException) as error:
            raise self._damage_error(f"has no readable list of ledgers: {error}") from None
        if ledgers.schema != LEDGER_SCHEMA:
            raise self._damage_error("has other columns than this version knows")
        return ledgers

    def ledgers_of(self, topic: str, ids: Sequence[int] | None = None) -> pa.Table:
        """Return the rows of `ledgers` of a topic or partition, in file order.

        With `ids`, which ascend, return only these ledgers.
        """
        by_id = self._by_topic.get(topic)
        if by_id is None:
            by_id = self._by_topic[topic] = _ById.from_ledgers(self.ledgers, topic)
        return by_id.ledgers if ids is None else by_id.select(ids)

    @cached_property
    def _by_topic(self) -> dict[str, _ById]:
        return {}

    @cached_property
    def group_stops(self) -> tuple[int, ...]:
        """Number of rows up to the end of each row group."""
        footer = self.footer
        counts = (footer.row_group(each).num_rows for each in range(footer.num_row_groups))
        return tuple(accumulate(counts))

    def row_groups_of(self, ledgers: pa.Table) -> Iterator[tuple[range, list[tuple[int, int]]]]:
        """Yield the row groups, and rows in them, that hold the zones of some ledgers.

        Args:
            ledgers: Some rows of `ledgers`, in their order.

        Yields:
            Consecutive row groups; and for each ledger in them its first row, counted from the
            start of these groups, and its number of rows.
        """
        stops = self.group_stops
        groups: list[tuple[int, int, list[tuple[int, int]]]] = []
        columns = (ledgers.column(name).to_pylist() for name in ("first_row", "zones"))
        for first, count in zip(*columns, strict=True):
            begin, end = bisect_right(stops, first), bisect_right(stops, first + count - 1)
            if groups and begin <= groups[-1][1] + 1:
                groups[-1] = groups[-1][0], end, [*groups[-1][2], (first, count)]
            else:
                groups.append((begin, end, [(first, count)]))
        for begin, end, rows in groups:
            first_row = stops[begin - 1] if begin else 0
            yield range(begin, end + 1), [(first - first_row, count) for first, count in rows]

    def zones(self, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Read some columns of some row groups, and verify them.

        Raises:
            CorruptStatisticsError: The data read is damaged.
            PulsarOffloadError: The data cannot be read.
        """
        footer = self.footer
        projection = set(columns)
        pieces: set[int] = set()
        for number in row_groups:
            group = footer.row_group(number)
            for index in range(group.num_columns):
                chunk = group.column(index)
                if chunk.path_in_schema.partition(".")[0] in projection:
                    first = chunk.data_page_offset
                    if chunk.has_dictionary_page:
                        first = min(first, chunk.dictionary_page_offset)
                    last = first + chunk.total_compressed_size - 1
                    pieces |= set(range(first // _PIECE_BYTES, last // _PIECE_BYTES + 1))
        # An anonymous map of the whole file: pages that are not written take no memory.
        file = mmap(-1, self.size_bytes)
        for start, data in self._read_checked(pieces):
            file[start : start + len(data)] = data
        try:
            parquet_file = pq.ParquetFile(pa.py_buffer(file), metadata=footer)
            zones = parquet_file.schema_arrow.empty_table()
            if row_groups:  # PyArrow 18 cannot read none
                zones = parquet_file.read_row_groups(row_groups, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise self._damage_error(f"cannot be read: {error}") from None
        for name in columns:
            if name not in zones.column_names:
                # The file has `EARLIER_ZONE_SCHEMA`.
                nulls = pa.nulls(zones.num_rows, ZONE_SCHEMA.field(name).type)
                zones = zones.append_column(name, nulls)
        return zones.select(list(columns))

    def _read_checked(self, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield start and bytes of verified pieces; adjacent pieces are read together."""
        data_bytes, hashes = self._hashed
        runs: list[tuple[int, int]] = []
        for number in sorted(numbers):
            start = number * _PIECE_BYTES
            stop = min(start + _PIECE_BYTES, data_bytes)
            if runs and runs[-1][1] == start:
                runs[-1] = runs[-1][0], stop
            else:
                runs.append((start, stop))
        threads = min(len(runs), self.location.max_connections) or 1
        with ContextThreadPool(threads) as executor:
            for (start, _), data in zip(
                runs, executor.map(lambda run: self._read(*run), runs), strict=True
            ):
                for number, piece in enumerate(_pieces(data), start // _PIECE_BYTES):
                    if _hash(piece) != hashes[number]:
                        raise self._damage_error("is not as it was written")
                yield start, data

    def _read(self, start: int, stop: int) -> bytes:
        parts = []
        while start < stop:
            part = self.location.read_range(self.name, start, stop).data
            parts.append(bytes(part))
            start += len(part)
        return b"".join(parts)

    def _damage_error(self, reason: str) -> CorruptStatisticsError:
        return CorruptStatisticsError(f"a file of statistics {reason}", object_key=self.name)


@dataclass(frozen=True, slots=True)
class _ById:
    """Ledgers of one topic, indexed by id.

    Attributes:
        ledgers: In the order of their file.
        ids: Their ids, ascending.
        rows: For each id the row of its ledger; None if the rows are in order of ids.
        empty: An empty slice of `ledgers`, cached because most files have none of the ids.
    """

    ledgers: pa.Table
    ids: memoryview
    rows: pa.Array | None
    empty: pa.Table

    @classmethod
    def from_ledgers(cls, ledgers: pa.Table, topic: str) -> _ById:
        is_in_topic = pc.equal(ledgers.column("topic"), topic)
        if not pc.all(is_in_topic).as_py():
            ledgers = ledgers.filter(is_in_topic)
        ids = pa.concat_arrays([pa.array([], pa.int64()), *ledgers.column("ledger_id").chunks])
        rows = None
        if pc.any(pc.less(ids[1:], ids[:-1])).as_py():
            rows = pc.sort_indices(ids)
            ids = ids.take(rows)
        view = memoryview(ids.buffers()[1]).cast("B").cast("q")[: len(ids)]
        return cls(ledgers, view, rows, ledgers.slice(0, 0))

    def select(self, ids: Sequence[int]) -> pa.Table:
        start = bisect_left(self.ids, ids[0]) if ids else 0
        stop = bisect_right(self.ids, ids[-1]) if ids else 0
        if start == stop:
            return self.empty
        if self.rows is None:
            candidates = self.ledgers.slice(start, stop - start)
        else:
            candidates = self.ledgers.take(self.rows[start:stop].sort())
        # A hash table of all requested ids, for each file, would take too long.
        nearby_ids = ids[bisect_left(ids, self.ids[start]) : bisect_right(ids, self.ids[stop - 1])]
        if list(nearby_ids) == self.ids[start:stop].tolist():
            return candidates
        value_set = pa.array(nearby_ids, pa.int64())
        return candidates.filter(pc.is_in(candidates.column("ledger_id"), value_set=value_set))


def _pack(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return sink.getvalue()


def _pieces(data: bytes | memoryview) -> list[memoryview]:
    view = memoryview(data)
    return [view[start : start + _PIECE_BYTES] for start in range(0, len(view), _PIECE_BYTES)]


def _hash(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()
