"""The writer of a closed ledger: entries → its data object and its index object, as in Pulsar.

The bytes are those of PIP-17 (Pulsar's BlobStoreManagedLedgerOffloader): with the same entries,
ledger metadata and block size, both objects are identical to a broker's. Nothing is stored here.
The caller takes the blocks one by one, each a part of a multipart upload, and finally the index
object.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from arrow_io.core.wording import counted
from arrow_io.errors import EntryTooLargeError, MissingEntriesError, OptionError
from arrow_io.format.block_table import BlockEntry
from arrow_io.format.data_block import (
    BLOCK_HEADER_BYTES,
    BlockHeader,
    block_length_bytes,
    padding,
    write_block_header,
)
from arrow_io.format.entry_frame import ENTRY_HEADER_BYTES, BytesLike, write_entry
from arrow_io.format.index_block import write_index_block
from arrow_io.format.ledger_metadata import (
    MANAGED_LEDGER_KEY,
    DigestType,
    LedgerMetadata,
    LedgerSegment,
    LedgerState,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEFAULT_BLOCK_BYTES = 64 << 20
"""Pulsar's default of `managedLedgerOffloadMaxBlockSizeInBytes`."""
MIN_BLOCK_BYTES = BLOCK_HEADER_BYTES + ENTRY_HEADER_BYTES
"""Smallest block size (inclusive): room for one empty entry. Object stores require more."""
MAX_BLOCK_BYTES = 2**31 - 1
"""Greatest block size (inclusive): Pulsar stores it in a Java int."""


class LedgerWriter:
    """Writes one ledger block by block; holds at most one block in memory.

    Args:
        ledger_metadata: Metadata of the closed ledger. Block sizes depend on its length and last
            entry id, so both must be right before the first entry is written.
        block_bytes: Length of every block but the last, in bytes; 140 … 2^31 - 1 (inclusive). An
            entry can be `block_bytes - 140` bytes long at most.

    Raises:
        OptionError: The block size is out of bounds, or the ledger is empty or not closed.

    Example:
        >>> entries = [b"one", b"two"]
        >>> name = "public/default/persistent/orders"
        >>> metadata = new_ledger_metadata([3, 3], managed_ledger=name, ctime_ms=0)
        >>> writer = LedgerWriter(metadata)
        >>> [len(block) for block in writer.blocks(entries)]
        [158]
        >>> writer.index()[:4].hex()
        'de47de47'
    """

    def __init__(
        self, ledger_metadata: LedgerMetadata, *, block_bytes: int = DEFAULT_BLOCK_BYTES
    ) -> None:
        if not MIN_BLOCK_BYTES <= block_bytes <= MAX_BLOCK_BYTES:
            message = (
                f"block_bytes is {block_bytes}; allowed are {MIN_BLOCK_BYTES} … {MAX_BLOCK_BYTES}"
            )
            raise OptionError(message)
        if ledger_metadata.last_entry_id < 0 or ledger_metadata.length_bytes < 0:
            message = (
                f"an empty ledger has no offloaded form: last entry id "
                f"{ledger_metadata.last_entry_id}, length {ledger_metadata.length_bytes}"
            )
            raise OptionError(message)
        if ledger_metadata.state is not LedgerState.CLOSED:
            message = f"a ledger to offload is CLOSED, not {ledger_metadata.state.name}"
            raise OptionError(message)
        self._metadata = ledger_metadata
        self._block_bytes = block_bytes
        self._index: bytes | None = None

    def blocks(self, entries: Iterable[BytesLike]) -> Iterator[bytes]:
        """Yield the data object block by block; a second call starts over.

        Args:
            entries: Data of the entries 0, 1, 2, … in order. Each is copied when it is consumed.

        Raises:
            EntryTooLargeError: An entry is longer than `block_bytes - 140`.
            MissingEntriesError: The entries end before the ledger metadata's last entry id.
            OptionError: The number or length of the entries differs from the ledger metadata.
        """
        self._index = None
        rows: list[BlockEntry] = []
        offset = entries_bytes = 0
        block = self._open_block(0, entries_bytes)
        for entry in entries:
            while not block.add(entry):
                if block.is_empty:
                    raise self._misfit(block.next_entry_id, len(entry))
                rows.append(BlockEntry(block.first_entry_id, len(rows) + 1, offset))
                offset += block.length_bytes
                entries_bytes += block.entry_bytes
                following = self._open_block(block.next_entry_id, entries_bytes)
                yield block.close()
                block = following
        self._check_complete(block.next_entry_id, entries_bytes + block.entry_bytes)
        rows.append(BlockEntry(block.first_entry_id, len(rows) + 1, offset))
        yield block.close()
        self._index = write_index_block(
            data_object_length_bytes=offset + block.length_bytes,
            entries=rows,
            ledger_metadata=self._metadata,
        )

    def index(self) -> bytes:
        """Return the index object, which is complete after the last block.

        Raises:
            MissingEntriesError: Not all blocks were consumed, or an error stopped them.
        """
        if self._index is None:
            message = "no index object: not every block of the ledger has been written"
            raise MissingEntriesError(message)
        return self._index

    def _open_block(self, first_entry_id: int, earlier_bytes: int) -> _OpenBlock:
        return _OpenBlock(
            first_entry_id,
            block_length_bytes(
                max_block_bytes=self._block_bytes,
                first_entry_id=first_entry_id,
                last_entry_id=self._metadata.last_entry_id,
                ledger_length_bytes=self._metadata.length_bytes,
                earlier_length_bytes=earlier_bytes,
            ),
        )

    def _misfit(self, entry_id: int, entry_bytes: int) -> EntryTooLargeError | OptionError:
        """Return the error for an entry that does not fit in a block of its own."""
        limit = self._block_bytes - MIN_BLOCK_BYTES
        if entry_bytes > limit:
            entry = counted(entry_bytes, "byte")
            message = (
                f"the entry has {entry}; blocks of {self._block_bytes} bytes hold at most {limit}"
            )
            return EntryTooLargeError(message, entry_id=entry_id)
        message = (
            f"the entries are more or longer than the ledger metadata says: last entry id "
            f"{self._metadata.last_entry_id}, {self._metadata.length_bytes} bytes"
        )
        return OptionError(message, entry_id=entry_id)

    def _check_complete(self, entry_count: int, length_bytes: int) -> None:
        expected_count, expected_bytes = (
            self._metadata.last_entry_id + 1,
            self._metadata.length_bytes,
        )
        if entry_count < expected_count:
            message = f"the entries end after {entry_count} of {expected_count}"
            raise MissingEntriesError(message, entry_id=entry_count)
        if (entry_count, length_bytes) != (expected_count, expected_bytes):
            message = (
                f"{counted(entry_count, 'entry')} of {counted(length_bytes, 'byte')} in all; the"
                f" ledger metadata says {counted(expected_count, 'entry')} of"
                f" {counted(expected_bytes, 'byte')}"
            )
            raise OptionError(message)


def new_ledger_metadata(
    entry_lengths_bytes: Iterable[int], *, managed_ledger: str, ctime_ms: int
) -> LedgerMetadata:
    """Return metadata like a broker's for a topic's closed ledger, on one bookie on loopback.

    Args:
        entry_lengths_bytes: Length of each entry's data, in order.
        managed_ledger: Name of the managed ledger, `tenant/namespace/persistent/topic`.
        ctime_ms: When the ledger was created, ms since the epoch.

    Raises:
        OptionError: There is no entry.
    """
    lengths = list(entry_lengths_bytes)
    if not lengths:
        message = "an empty ledger has no offloaded form"
        raise OptionError(message)
    return LedgerMetadata(
        length_bytes=sum(lengths),
        last_entry_id=len(lengths) - 1,
        write_quorum_size=1,
        ensemble_size=1,
        state=LedgerState.CLOSED,
        segments=(LedgerSegment(0, ("127.0.0.1:3181",)),),
        digest_type=DigestType.CRC32C,
        ack_quorum_size=1,
        ctime_ms=ctime_ms,
        custom_metadata={
            "component": b"managed-ledger",
            MANAGED_LEDGER_KEY: managed_ledger.encode(),
            "application": b"pulsar",
        },
    )


class _OpenBlock:
    """A data block under construction."""

    def __init__(self, first_entry_id: int, length_bytes: int) -> None:
        self.first_entry_id = first_entry_id
        self.next_entry_id = first_entry_id
        self.length_bytes = length_bytes
        self._bytes = io.BytesIO()
        self._bytes.write(write_block_header(BlockHeader(length_bytes, first_entry_id)))
        self._left_bytes = length_bytes - BLOCK_HEADER_BYTES

    @property
    def is_empty(self) -> bool:
        return self.next_entry_id == self.first_entry_id

    @property
    def entry_bytes(self) -> int:
        """Sum of the lengths of the entries' data so far."""
        framed = self.length_bytes - BLOCK_HEADER_BYTES - self._left_bytes
        return framed - (self.next_entry_id - self.first_entry_id) * ENTRY_HEADER_BYTES

    def add(self, entry: BytesLike) -> bool:
        """Add the next entry if it fits, and return whether it did."""
        frame_bytes = ENTRY_HEADER_BYTES + len(entry)
        if frame_bytes > self._left_bytes:
            return False
        self._bytes.write(write_entry(self.next_entry_id, entry))
        self._left_bytes -= frame_bytes
        self.next_entry_id += 1
        return True

    def close(self) -> bytes:
        self._bytes.write(padding(self._left_bytes))
        return self._bytes.getvalue()
