"""Files of statistics: Parquet, with a hash of every byte, so that no damage goes unnoticed.

The name of a file has the hash and the length of its footer, from the end of the last row group on;
the footer has a hash of each piece of what stands before it. So any part can be read by itself, and
is known to be as it was written. A file never changes, and each writer's stand beside the others'.

The footer also has a row for each ledger, which often spares reading those of its zones.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import accumulate
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from arrow_io.core.lazy import cached_property
from arrow_io.errors import CorruptStatisticsError
from connector.statistics.zones import LEDGER_SCHEMA, ZONE_SCHEMA, ledgers_of

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
    """A file of some zones: its name and its bytes.

    Args:
        zones: Of `ZONE_SCHEMA`; those of one ledger stand together.
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
    """A file of statistics in a folder.

    Attributes:
        location: The folder.
        name: Name of the file.
        size_bytes: Its length.
    """

    location: Location
    name: str
    size_bytes: int

    def __getstate__(self) -> dict[str, Any]:
        """Pickled by its fields; what was read of it is read anew."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @staticmethod
    def is_one(name: str) -> bool:
        """Whether a name is that of a file of statistics."""
        return _NAME.fullmatch(name) is not None

    @cached_property
    def footer(self) -> pq.FileMetaData:
        """What the file says of itself; one request.

        Raises:
            CorruptStatisticsError: It is damaged.
            PulsarOffloadError: It cannot be read.
        """
        named = _NAME.fullmatch(self.name)
        if named is None:
            raise self._damage_error("is not named as one of statistics")
        length = int(named[2], 16)
        if not 0 < length <= min(self.size_bytes, _MAX_FOOTER_BYTES):
            raise self._damage_error("is shorter than its name says")
        footer = self._read(self.size_bytes - length, self.size_bytes)
        if _hash(footer) != named[1]:
            raise self._damage_error("is not as it was written")
        try:
            metadata = pq.read_metadata(pa.BufferReader(footer))
        except (pa.ArrowException, OSError) as error:
            raise self._damage_error(f"cannot be read: {error}") from None
        if metadata.schema.to_arrow_schema() != ZONE_SCHEMA:
            raise self._damage_error("has other columns than this version knows")
        if self._piece_hashes(metadata.metadata) is None:
            raise self._damage_error("has no hash of what it holds")
        return metadata

    def _piece_hashes(self, metadata: Mapping[bytes, bytes]) -> tuple[int, list[str]] | None:
        """The length of what is hashed, and the hash of each piece; None if they are not told."""
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
        """The ledgers whose zones stand in the file, in this order: of `LEDGER_SCHEMA`.

        Raises:
            CorruptStatisticsError: The file is damaged.
            PulsarOffloadError: It cannot be read.
        """
        metadata = self.footer.metadata
        try:
            with pa.ipc.open_stream(b64decode(metadata[_LEDGERS_KEY])) as stream:
                ledgers = stream.read_all()
        except (KeyError, ValueError, OSError, pa.ArrowException) as error:
            raise self._damage_error(f"does not tell its ledgers: {error}") from None
        if ledgers.schema != LEDGER_SCHEMA:
            raise self._damage_error("has other columns than this version knows")
        return ledgers

    def ledgers_of(self, topic: str, ids: Sequence[int] | None = None) -> pa.Table:
        """Those of `ledgers` that are of a topic or partition, in this order.

        Args:
            topic: Its full name.
            ids: Ascending; only ledgers with one of these ids. None: all.
        """
        by_id = self._by_topic.get(topic)
        if by_id is None:
            by_id = self._by_topic[topic] = _ById.from_ledgers(self.ledgers, topic)
        return by_id.ledgers if ids is None else by_id.some(ids)

    @cached_property
    def _by_topic(self) -> dict[str, _ById]:
        return {}

    @cached_property
    def group_stops(self) -> tuple[int, ...]:
        """Behind the last row of each row group."""
        footer = self.footer
        counts = (footer.row_group(each).num_rows for each in range(footer.num_row_groups))
        return tuple(accumulate(counts))

    def row_groups_of(self, ledgers: pa.Table) -> Iterator[tuple[range, list[tuple[int, int]]]]:
        """Where the zones of some of the file's ledgers stand.

        Args:
            ledgers: Some rows of `ledgers`, in their order.

        Yields:
            Consecutive row groups; and of each ledger in them the first row, counted from the first
            of these groups, and how many rows it has.
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
            before = stops[begin - 1] if begin else 0
            yield range(begin, end + 1), [(first - before, count) for first, count in rows]

    def zones(self, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Some columns of some row groups.

        Raises:
            CorruptStatisticsError: What is read is damaged.
            PulsarOffloadError: It cannot be read.
        """
        footer = self.footer
        projection = set(columns)
        pieces: set[int] = set()
        for number in row_groups:
            group = footer.row_group(number)
            for place in range(group.num_columns):
                chunk = group.column(place)
                if chunk.path_in_schema.partition(".")[0] in projection:
                    first = chunk.data_page_offset
                    if chunk.has_dictionary_page:
                        first = min(first, chunk.dictionary_page_offset)
                    last = first + chunk.total_compressed_size - 1
                    pieces |= set(range(first // _PIECE_BYTES, last // _PIECE_BYTES + 1))
        # Pages that nothing is written to take no memory.
        file = mmap(-1, self.size_bytes)
        for start, data in self._read_checked(pieces):
            file[start : start + len(data)] = data
        try:
            opened = pq.ParquetFile(pa.py_buffer(file), metadata=footer)
            return opened.read_row_groups(row_groups, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise self._damage_error(f"cannot be read: {error}") from None

    def _read_checked(self, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Pieces that are as they were written, and where they begin; neighbours together."""
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
        with ThreadPoolExecutor(threads) as executor:
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
    """Ledgers of one topic, which are found by their ids without looking at all of them.

    Attributes:
        ledgers: In the order of their file.
        ids: Their ids, ascending.
        places: Where the ledger of each id stands; None: in the same order.
        nothing: None of them: of many files, most have nothing of what is looked up.
    """

    ledgers: pa.Table
    ids: memoryview
    places: pa.Array | None
    nothing: pa.Table

    @classmethod
    def from_ledgers(cls, ledgers: pa.Table, topic: str) -> _ById:
        """Those of a topic, among others."""
        is_in_topic = pc.equal(ledgers.column("topic"), topic)
        if not pc.all(is_in_topic).as_py():
            ledgers = ledgers.filter(is_in_topic)
        ids = pa.concat_arrays([pa.array([], pa.int64()), *ledgers.column("ledger_id").chunks])
        places = None
        if pc.any(pc.less(ids[1:], ids[:-1])).as_py():
            places = pc.sort_indices(ids)
            ids = ids.take(places)
        view = memoryview(ids.buffers()[1]).cast("B").cast("q")[: len(ids)]
        return cls(ledgers, view, places, ledgers.slice(0, 0))

    def some(self, ids: Sequence[int]) -> pa.Table:
        """The ledgers with some ids, which ascend."""
        start = bisect_left(self.ids, ids[0]) if ids else 0
        stop = bisect_right(self.ids, ids[-1]) if ids else 0
        if start == stop:
            return self.nothing
        if self.places is None:
            near = self.ledgers.slice(start, stop - start)
        else:
            near = self.ledgers.take(self.places[start:stop].sort())
        # Of all that are asked for, only those near by are made a hash table, file by file.
        nearby_ids = ids[bisect_left(ids, self.ids[start]) : bisect_right(ids, self.ids[stop - 1])]
        if list(nearby_ids) == self.ids[start:stop].tolist():
            return near
        value_set = pa.array(nearby_ids, pa.int64())
        return near.filter(pc.is_in(near.column("ledger_id"), value_set=value_set))


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
