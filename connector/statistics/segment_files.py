"""Files of statistics: Parquet, with a hash of every byte, so that no damage goes unnoticed.

The name of a file has the hash and the length of its footer, from the end of the last row group on;
the footer has a hash of each piece of what stands before it. So any part can be read by itself, and
is known to be as it was written. A file never changes, and each writer's stand beside the others'.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from mmap import mmap
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from arrow_io.errors import CorruptStatisticsError
from connector.statistics.segments import SEGMENT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from arrow_io.storage.location import Location

_PIECE_BYTES: Final = 64 << 10
_HASH_BYTES: Final = 16
_ROW_GROUP_ROWS: Final = 4096
_MAX_FOOTER_BYTES: Final = 64 << 20
_PIECES_KEY: Final = b"pulsar_offload.pieces"
_DATA_KEY: Final = b"pulsar_offload.data_bytes"
_NAME: Final = re.compile(r"segments-([0-9a-f]{32})-([0-9a-f]{1,8})\.parquet")


def file_of(segments: pa.Table) -> tuple[str, bytes]:
    """A file of some segments: its name and its bytes.

    Args:
        segments: Of `SEGMENT_SCHEMA`; those of one ledger stand together.
    """
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SEGMENT_SCHEMA, compression="zstd") as writer:
        for start in range(0, segments.num_rows, _ROW_GROUP_ROWS):
            writer.write_table(segments.slice(start, _ROW_GROUP_ROWS))
        data_bytes = sink.tell()
        hashes = [_hash(piece) for piece in _pieces(sink.getbuffer()[:data_bytes])]
        writer.add_key_value_metadata(
            {_DATA_KEY: str(data_bytes), _PIECES_KEY: json.dumps(hashes).encode()}
        )
    written = sink.getvalue()
    footer = written[data_bytes:]
    return f"segments-{_hash(footer)}-{len(footer):x}.parquet", written


@dataclass(frozen=True)
class SegmentFile:
    """A file of statistics in a folder.

    Attributes:
        location: The folder.
        name: Name of the file.
        size_bytes: Its length.
    """

    location: Location
    name: str
    size_bytes: int

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
            raise self._damaged("is not named as one of statistics")
        length = int(named[2], 16)
        if not 0 < length <= min(self.size_bytes, _MAX_FOOTER_BYTES):
            raise self._damaged("is shorter than its name says")
        footer = self._read(self.size_bytes - length, self.size_bytes)
        if _hash(footer) != named[1]:
            raise self._damaged("is not as it was written")
        try:
            found = pq.read_metadata(pa.BufferReader(footer))
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(f"cannot be read: {error}") from None
        if found.schema.to_arrow_schema() != SEGMENT_SCHEMA:
            raise self._damaged("has other columns than this version knows")
        return found

    def groups_between(self, column: str, least: object, greatest: object) -> list[int]:
        """The row groups that may have values of a column within bounds, both inclusive."""
        footer = self.footer
        place = SEGMENT_SCHEMA.get_field_index(column)
        found = []
        for number in range(footer.num_row_groups):
            told = footer.row_group(number).column(place).statistics
            if not told.has_min_max or (told.min <= greatest and told.max >= least):
                found.append(number)
        return found

    def segments(self, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Some columns of some row groups.

        Raises:
            CorruptStatisticsError: What is read is damaged.
            PulsarOffloadError: It cannot be read.
        """
        footer = self.footer
        wanted = set(columns)
        pieces: set[int] = set()
        for number in row_groups:
            group = footer.row_group(number)
            for place in range(group.num_columns):
                chunk = group.column(place)
                if chunk.path_in_schema.partition(".")[0] in wanted:
                    first = chunk.data_page_offset
                    if chunk.has_dictionary_page:
                        first = min(first, chunk.dictionary_page_offset)
                    last = first + chunk.total_compressed_size - 1
                    pieces |= set(range(first // _PIECE_BYTES, last // _PIECE_BYTES + 1))
        # Pages that nothing is written to take no memory.
        file = mmap(-1, self.size_bytes)
        for start, data in self._checked(pieces):
            file[start : start + len(data)] = data
        try:
            opened = pq.ParquetFile(pa.py_buffer(file), metadata=footer)
            return opened.read_row_groups(row_groups, columns=list(columns))
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(f"cannot be read: {error}") from None

    def _checked(self, numbers: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Pieces that are as they were written, and where they begin; neighbours together."""
        told = self.footer.metadata
        data_bytes, hashes = int(told[_DATA_KEY]), json.loads(told[_PIECES_KEY])
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
                        raise self._damaged("is not as it was written")
                yield start, data

    def _read(self, start: int, stop: int) -> bytes:
        parts = []
        while start < stop:
            part = self.location.read_range(self.name, start, stop).data
            parts.append(bytes(part))
            start += len(part)
        return b"".join(parts)

    def _damaged(self, what: str) -> CorruptStatisticsError:
        return CorruptStatisticsError(f"a file of statistics {what}", object_key=self.name)


def _pieces(data: bytes | memoryview) -> list[memoryview]:
    view = memoryview(data)
    return [view[start : start + _PIECE_BYTES] for start in range(0, len(view), _PIECE_BYTES)]


def _hash(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()
