"""Ledgers to offload, and the offload that is measured: to memory, where nothing is waited for."""

from __future__ import annotations

import itertools
import random
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.ledgers.writer import DEFAULT_BLOCK_BYTES, new_ledger_metadata
from connector import LedgerOffloader, LedgerToOffload

if TYPE_CHECKING:
    from connector import OffloadResult

OFFLOAD_URL = "memory://offload-benchmark"

_LEDGER_ID = 1
_UUID = uuid.UUID(int=1)
_MIXED_ENTRIES = 64


@dataclass(frozen=True)
class EntrySize:
    """Entries of one size.

    Attributes:
        name: What it is called.
        size_bytes: Length of each entry, in bytes.
    """

    name: str
    size_bytes: int

    def ledger(self, length_bytes: int) -> LedgerToOffload:
        """A ledger of about so many bytes, at least one entry; few of its entries differ."""
        source = random.Random(self.size_bytes)
        mixed = [source.randbytes(self.size_bytes) for _ in range(_MIXED_ENTRIES)]
        count = max(1, length_bytes // self.size_bytes)
        entries = list(itertools.islice(itertools.cycle(mixed), count))
        metadata = new_ledger_metadata(
            map(len, entries), managed_ledger="public/default/persistent/benchmark", ctime_ms=0
        )
        return LedgerToOffload(_LEDGER_ID, metadata, entries)


ENTRY_SIZES = (EntrySize("single messages", 1 << 10), EntrySize("batches", 64 << 10))


def offload(ledger: LedgerToOffload, *, block_bytes: int = DEFAULT_BLOCK_BYTES) -> OffloadResult:
    """Offload a ledger, and delete it again so that the next time is like the first."""
    offloader = LedgerOffloader(OFFLOAD_URL, block_bytes=block_bytes)
    result = offloader.offload(ledger, _UUID)
    offloader.delete_offloaded(_LEDGER_ID, _UUID)
    return result
