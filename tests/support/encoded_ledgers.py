"""Both objects of a ledger that fits in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.ledgers.writer import DEFAULT_BLOCK_BYTES, LedgerWriter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from arrow_io.format.entry_frame import BytesLike
    from arrow_io.format.ledger_metadata import LedgerMetadata


@dataclass(frozen=True, slots=True)
class EncodedLedger:
    """Both objects of an offloaded ledger."""

    data: bytes
    index: bytes


def encode_ledger(
    entries: Iterable[BytesLike],
    ledger_metadata: LedgerMetadata,
    *,
    block_bytes: int = DEFAULT_BLOCK_BYTES,
) -> EncodedLedger:
    """Both objects of a ledger that fits in memory; arguments and errors are `LedgerWriter`'s."""
    writer = LedgerWriter(ledger_metadata, block_bytes=block_bytes)
    data = b"".join(writer.blocks(entries))
    return EncodedLedger(data, writer.index())
