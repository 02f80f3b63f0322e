"""The index block: where the data object stores which entries (PIP-17, OffloadIndexBlockImpl).

====== ==== ===================== ==== =========================================================
Offset Size Field                 Type Value
====== ==== ===================== ==== =========================================================
0      4    index_magic           u32  0xDE47DE47
4      4    index_len             i32  length of the whole index object
8      8    data_object_length    i64  length of the data object
16     8    data_header_length    i64  length of each data block's header, 128
24     4    index_entry_count     i32  number of data blocks
28     4    segment_metadata_len  i32  M
32     M    segment_metadata           see `ledger_metadata`
32+M   20*n entries                    one for each data block, ascending
====== ==== ===================== ==== =========================================================

One index entry:

====== ==== ======== ==== ==============================================================
0      8    entry_id i64  id of the block's first entry
8      4    part_id  i32  1, 2, 3, …: number of the part in the multipart upload
12     8    offset   i64  where the block's header starts in the data object, in bytes
====== ==== ======== ==== ==============================================================

All numbers are big-endian. An index object has no checksum, so its fields are checked against each
other here. The headers of the data blocks (`data_block`) show whether the two objects belong
together.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import (
    CorruptIndexError,
    PulsarOffloadError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.block_table import (
    INDEX_ENTRY,
    INDEX_ENTRY_BYTES,
    BlockEntry,
    BlockTable,
)
from arrow_io.format.data_block import (
    BLOCK_FIELDS_BYTES,
    BLOCK_HEADER_BYTES,
    MAX_BLOCK_HEADER_BYTES,
)
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES
from arrow_io.format.ledger_metadata import LedgerMetadata, parse_ledger_metadata
from arrow_io.format.magics import INDEX_BLOCK_MAGIC, check_magic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

INDEX_LENGTH_OFFSET = 4
DATA_OBJECT_LENGTH_OFFSET = 8
DATA_HEADER_LENGTH_OFFSET = 16
INDEX_ENTRY_COUNT_OFFSET = 24
METADATA_LENGTH_OFFSET = 28
METADATA_OFFSET = 32
MAX_INDEX_OBJECT_BYTES = 64 << 20
"""Maximum length of an index object that is read (inclusive): 3.3 million data blocks."""

FORMAT_VERSION_KEY = "s3managedledgeroffloaderformatversion"
"""User metadata key of both objects, in any case; the same for all drivers, not only S3."""
FORMAT_VERSION = "1"
CLUSTER_NAME_KEY = "pulsarclustername"
"""User metadata key of both objects, in lower case; newer releases set it."""
MANAGED_LEDGER_NAME_KEY = "managedledgername"
"""User metadata key of both objects, in lower case; the first releases did not set it."""

# A fork of Pulsar appends a directory of all entries, which starts with this magic.
_ENTRY_DIRECTORY_MAGIC = b"\xe1\xd3\xe1\xd3"
_FIXED = struct.Struct(">Iiqqii")


@dataclass(frozen=True, slots=True)
class IndexBlock(BlockTable):
    """An index block whose fields are consistent."""

    ledger_metadata: LedgerMetadata
    """Metadata of the ledger; its last entry id is also the table's."""
    warnings: tuple[str, ...] = ()
    """Harmless irregularities of the index object, as sentences."""

    @property
    def block_table(self) -> BlockTable:
        """The block table without the ledger's metadata."""
        return BlockTable(
            self.data_object_length_bytes,
            self.data_header_length_bytes,
            self.entry_table,
            self.last_entry_id,
        )

    def serialize(self) -> bytes:
        """Return the bytes of the index object, without a fork's additions."""
        metadata = self.ledger_metadata.serialize()
        fixed = _FIXED.pack(
            INDEX_BLOCK_MAGIC,
            METADATA_OFFSET + len(metadata) + len(self.entry_table),
            self.data_object_length_bytes,
            self.data_header_length_bytes,
            len(self.entry_table) // INDEX_ENTRY_BYTES,
            len(metadata),
        )
        return fixed + metadata + self.entry_table


def write_index_block(
    *,
    data_object_length_bytes: int,
    entries: Iterable[BlockEntry],
    ledger_metadata: LedgerMetadata,
) -> bytes:
    """Return the bytes of an index object; `entries` are one for each data block, ascending."""
    table = b"".join(INDEX_ENTRY.pack(*entry) for entry in entries)
    index = IndexBlock(
        data_object_length_bytes,
        BLOCK_HEADER_BYTES,
        table,
        ledger_metadata.last_entry_id,
        ledger_metadata,
    )
    return index.serialize()


def read_index_block(data: bytes, *, object_key: str, ledger_id: int | None = None) -> IndexBlock:
    """Read an index object.

    Args:
        data: The whole index object.
        object_key: Its key, for errors.
        ledger_id: Ledger id, for errors.

    Raises:
        TruncatedObjectError: The object is shorter than its index_len.
        UnknownFormatError: The magic is another, or the ledger metadata has a form that Pulsar does
            not write.
        CorruptIndexError: Fields contradict each other, or the object is longer than
            `MAX_INDEX_OBJECT_BYTES`.
    """
    try:
        return _read_index_block(data)
    except PulsarOffloadError as error:
        error.located(object_key=object_key, ledger_id=ledger_id)
        raise


def check_format_version(user_metadata: Mapping[str, str] | None, *, object_key: str) -> str | None:
    """Check the format version in the user metadata of a data or index object.

    Args:
        user_metadata: The object's user metadata, keys in any case; None if it has none.
        object_key: Key of the object, for the error.

    Returns:
        A warning if the version is absent, as in copies made by other tools; None if it is right.

    Raises:
        UnknownFormatError: The metadata has another format version.
    """
    versions = [
        value for key, value in (user_metadata or {}).items() if key.lower() == FORMAT_VERSION_KEY
    ]
    for version in versions:
        if version != FORMAT_VERSION:
            message = f"offload format version {version!r}, expected {FORMAT_VERSION!r}"
            raise UnknownFormatError(message, object_key=object_key)
    if versions:
        return None
    return (
        f"{object_key} has no user metadata {FORMAT_VERSION_KEY}: it was copied without it; "
        "a broker would refuse to read it"
    )


def _read_index_block(data: bytes) -> IndexBlock:
    if len(data) > MAX_INDEX_OBJECT_BYTES:
        _corrupt(f"the object has {len(data)} bytes; at most {MAX_INDEX_OBJECT_BYTES} allowed", 0)
    # Check the magic first: an object of another kind should not be reported as truncated.
    if len(data) >= INDEX_LENGTH_OFFSET:
        check_magic(int.from_bytes(data[:INDEX_LENGTH_OFFSET]), INDEX_BLOCK_MAGIC, offset=0)
    if len(data) < METADATA_OFFSET:
        message = f"the index object ends within its first {METADATA_OFFSET} bytes"
        raise TruncatedObjectError(message, offset=len(data))
    _, index_length, *numbers = _FIXED.unpack_from(data)
    data_length, header_length, row_count, metadata_length = numbers
    if data_length < 0:
        _corrupt(f"data object length {data_length} is negative", DATA_OBJECT_LENGTH_OFFSET)
    if not BLOCK_FIELDS_BYTES <= header_length <= MAX_BLOCK_HEADER_BYTES:
        allowed = f"allowed are {BLOCK_FIELDS_BYTES} … {MAX_BLOCK_HEADER_BYTES}"
        _corrupt(f"block header length {header_length}; {allowed}", DATA_HEADER_LENGTH_OFFSET)
    if row_count < 1:
        _corrupt(f"number of blocks {row_count}; at least 1 required", INDEX_ENTRY_COUNT_OFFSET)
    if metadata_length < 0:
        _corrupt(f"ledger metadata length {metadata_length} is negative", METADATA_LENGTH_OFFSET)
    table_offset = METADATA_OFFSET + metadata_length
    table_stop = table_offset + row_count * INDEX_ENTRY_BYTES
    _check_lengths(data, index_length, table_stop)

    metadata = parse_ledger_metadata(data[METADATA_OFFSET:table_offset])
    index = IndexBlock(
        data_length, header_length, data[table_offset:table_stop], metadata.last_entry_id, metadata
    )
    _check_rows(index, table_offset)
    return replace(index, warnings=tuple(_oddities(data, index, table_stop)))


def _check_lengths(data: bytes, index_length: int, table_stop: int) -> None:
    """Compare the recorded length with the sum of the fields and with the object's length."""
    if index_length > len(data):
        message = f"the index object has {counted(len(data), 'byte')} of {index_length}"
        raise TruncatedObjectError(message, offset=len(data))
    has_directory = data.startswith(_ENTRY_DIRECTORY_MAGIC, table_stop)
    if index_length != table_stop and not (has_directory and index_length == len(data)):
        _corrupt(
            f"index length {index_length}, but the fields add up to {table_stop} bytes",
            INDEX_LENGTH_OFFSET,
        )


def _check_rows(index: IndexBlock, table_offset: int) -> None:
    """Check that the index entries ascend and that each block has room for its entries."""
    rows = enumerate(INDEX_ENTRY.iter_unpack(index.entry_table))
    _, (first_entry_id, _, offset) = next(rows)
    if (first_entry_id, offset) != (0, 0):
        _corrupt(
            f"the first block starts with entry {first_entry_id} at offset {offset}, not 0 at 0",
            table_offset,
        )
    for row, (next_first_entry_id, _, next_offset) in rows:
        _check_room(
            index,
            next_first_entry_id - first_entry_id,
            next_offset - offset,
            table_offset + row * INDEX_ENTRY_BYTES,
        )
        first_entry_id, offset = next_first_entry_id, next_offset
    table_stop = table_offset + len(index.entry_table)
    if index.missing_from_entry_id is None:
        # Index entries have no lengths; the ledger's length bounds the content of all blocks.
        _check_room(
            index,
            index.entry_count - first_entry_id,
            index.data_object_length_bytes - offset,
            table_stop,
        )
        needed = (
            index.block_count * index.data_header_length_bytes
            + index.entry_count * ENTRY_HEADER_BYTES
            + index.ledger_metadata.length_bytes
        )
        if needed > index.data_object_length_bytes:
            _corrupt(
                f"{counted(index.entry_count, 'entry')} of"
                f" {counted(index.ledger_metadata.length_bytes, 'byte')} do not fit in"
                f" {counted(index.data_object_length_bytes, 'byte')}",
                DATA_OBJECT_LENGTH_OFFSET,
            )
    elif first_entry_id > index.last_entry_id:
        _corrupt(
            f"first entry id {first_entry_id} is after the last entry id, {index.last_entry_id}",
            table_stop,
        )


def _check_room(index: IndexBlock, n_entries: int, n_bytes: int, position: int) -> None:
    """Check that a block of `n_bytes` has room for its entries; `position` is for the error."""
    needed = index.data_header_length_bytes + n_entries * ENTRY_HEADER_BYTES
    if n_entries < 1 or n_bytes < needed:
        _corrupt(
            f"a data block of {counted(n_bytes, 'byte')} with {counted(n_entries, 'entry')}",
            position,
        )


def _oddities(data: bytes, index: IndexBlock, table_stop: int) -> Iterator[str]:
    if index.data_header_length_bytes != BLOCK_HEADER_BYTES:
        yield (
            f"block headers of {index.data_header_length_bytes} bytes; "
            f"Pulsar writes {BLOCK_HEADER_BYTES}"
        )
    if any(entry.part_id != part_id for part_id, entry in enumerate(index.entries, start=1)):
        yield "the part ids are not 1, 2, 3, …"
    if len(data) > table_stop:
        trailing_bytes = len(data) - table_stop
        follow = agreeing(trailing_bytes, "follows", "follow")
        were = agreeing(trailing_bytes, "was", "were")
        yield f"{counted(trailing_bytes, 'byte')} {follow} the index block and {were} ignored"


def _corrupt(message: str, offset: int) -> NoReturn:
    raise CorruptIndexError(message, offset=offset)
