"""Read options: how entries become rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from arrow_io.messages.encryption import DecryptionKeys
from arrow_io.messages.message_reader import BatchLimits, Needs
from connector.inputs.bounds import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from arrow_io.columns import Projection
    from arrow_io.payloads.value_columns import ValueColumns
    from connector.filters.row_filters import RowFilter

_MAX_CELLS: Final = 8 << 20


def max_decoded_rows(values: ValueColumns | None) -> int:
    """Return the maximum number of rows to decode together; more fields mean fewer rows.

    If `values` is None, values stay bytes, and rows are unlimited.
    """
    return sys.maxsize if values is None else max(1, _MAX_CELLS // values.node_count)


@dataclass(frozen=True)
class ReadOptions:
    """How entries become rows.

    Attributes:
        projection: The columns to return.
        row_filter: The predicate on rows; None: all rows.
        filterable: The columns that a filter may use.
        bounds: Range of message ids or publish times.
        uncommitted: Whether messages of aborted and open transactions are returned too.
        verify_checksums: Whether the CRC32C of each entry is compared, if more than positions is
            read.
        salvage: Whether damage is counted and skipped instead of raised.
        keep_values: Whether values that cannot be decoded are counted, even if damage is raised.
        clock_slack: How far outside a ledger's creation and closing times its messages may have
            been published; None: unknown, so these times prune nothing.
        limits: Maximum sizes of record batches.
        decryption_keys: Private keys for encrypted payloads.
    """

    projection: Projection
    filterable: Projection
    row_filter: RowFilter | None = None
    bounds: Bounds = field(default_factory=Bounds)
    uncommitted: bool = False
    verify_checksums: bool = True
    salvage: bool = False
    keep_values: bool = False
    clock_slack: timedelta | None = None
    limits: BatchLimits = field(default_factory=BatchLimits)
    decryption_keys: DecryptionKeys = field(default_factory=DecryptionKeys)

    @property
    def compares_checksums(self) -> bool:
        """Whether the CRC32C of each entry is compared."""
        return self.verify_checksums and self.needs.metadata

    @property
    def needs(self) -> Needs:
        """The parts of messages that have to be decoded."""
        needs = self.projection.needs
        if self.row_filter is not None:
            needs = needs | self.filterable.select(self.row_filter.columns).needs
        return replace(needs, metadata=True) if self.bounds.by_time else needs

    @property
    def copies_values(self) -> bool:
        """Whether the values of nearly all rows are returned as bytes."""
        return self.row_filter is None and self.projection.has_value_bytes

    @property
    def is_unwrapped(self) -> bool:
        """Whether values are change events that are unwrapped."""
        values = self.filterable.values
        return values is not None and values.is_unwrapped

    def add_columns(self, names: Iterable[str]) -> ReadOptions:
        """Return options with additional columns after the others, unless they are among them."""
        current = self.projection.schema.names
        added = [each for each in names if each not in current]
        return replace(self, projection=self.filterable.select([*current, *added]))
