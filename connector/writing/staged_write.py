"""What a process has staged: small facts, which go to whoever publishes the ledgers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from connector.catalog.metadata.topic_metadata import LedgerInfo
    from connector.offloader import IndexObject


@dataclass(frozen=True, slots=True)
class StagedLedger:
    """A ledger whose data object is in the bucket, where nobody reads it yet.

    Attributes:
        managed_ledger: Name of the managed ledger that it is of.
        info: What a cluster is to record of it.
        index: The index object, which publishes it.
    """

    managed_ledger: str
    info: LedgerInfo
    index: IndexObject


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """What `stage` gave: the ledgers of a write, or the share of one process in them.

    Attributes:
        mark: The mark of the write.
        begun_ms: When the write began, ms since the epoch.
        message_count: How many messages were staged.
        ledgers: Their ledgers.
        schemas: The answer of the admin API with the schemas that values were encoded by.
        properties: Properties of the managed ledgers, by name.
        warnings: What went wrong, yet does no harm, each once.
    """

    mark: UUID
    begun_ms: int
    message_count: int
    ledgers: tuple[StagedLedger, ...]
    schemas: bytes
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
