"""Ledgers of 32 data blocks, for what a read of many of them weighs; none has objects."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING
from uuid import UUID

from arrow_io.format.block_table import INDEX_ENTRY, BlockTable
from arrow_io.format.object_names import LedgerObjectName
from arrow_io.ledgers.data import LedgerData
from arrow_io.storage.location import Location
from arrow_io.storage.object_version import ETag

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


def large_ledgers(rng: random.Random) -> Callable[[int], LedgerData]:
    """Return a function that makes the ledger of an id, with a source of all that differs."""
    location = Location("s3://bucket", {"key": "me"})

    def ledger(ledger_id: int) -> LedgerData:
        firsts = itertools.accumulate((rng.randrange(4000, 6000) for _ in range(31)), initial=0)
        rows = [INDEX_ENTRY.pack(first, i + 1, i << 26) for i, first in enumerate(firsts)]
        table = BlockTable(32 << 26, 128, b"".join(rows), 200_000)
        name = LedgerObjectName(UUID(bytes=rng.randbytes(16)), ledger_id)
        version = ETag(rng.randbytes(16).hex())
        return LedgerData(location, name, table, 2 << 30, "public/default/x", version)

    return ledger
