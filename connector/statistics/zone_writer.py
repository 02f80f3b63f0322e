"""A writer that adds zones of whole ledgers to a folder of statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from connector.statistics.zones import ZONE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.statistics.gathering import ZoneRow
    from connector.statistics.store import Statistics
    from connector.statistics.whole_ledgers import WholeLedger

_FILE_ROWS: Final = 16_384
"""Approximate number of zones in a file: 16 GiB of data, which a killed run has to read again."""
_FILE_BYTES: Final = 64 << 20
"""Approximate maximum bytes of Bloom filters of keys in a file."""


class ZoneWriter:
    """Adds files to a folder; a context manager that writes the remaining zones on exit.

    Each file holds whole ledgers, so a run that was killed or failed can be continued by the next.
    `statistics` is the folder with the new files.

    Raises:
        OptionError: The folder cannot be written to.
    """

    def __init__(self, statistics: Statistics) -> None:
        statistics.location.check_writable()
        self.statistics = statistics
        self._pending: list[ZoneRow] = []
        self._key_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write the remaining zones, even after an error.

        Raises:
            StorageError: The request was refused, or failed after all retries.
        """
        self.write()

    def add(self, whole: WholeLedger[Any, Any], rows: Iterable[ZoneRow]) -> None:
        """Add the zones of a ledger, unless an error ended the read of it.

        If damage was found outside its zones, all its entries are recorded as damaged.

        Raises:
            StorageError: The request was refused, or failed after all retries.
        """
        if whole.error is None:
            # A read must not prune any of it, or it would miss the damage between entries.
            self.add_zones(rows if whole.is_sound else map(_all_damaged, rows))

    def add_zones(self, rows: Iterable[ZoneRow]) -> None:
        """Add all zones of a ledger.

        Raises:
            StorageError: The request was refused, or failed after all retries.
        """
        for row in rows:
            self._pending.append(row)
            self._key_bytes += len(row.get("keys", b""))
        if len(self._pending) >= _FILE_ROWS or self._key_bytes >= _FILE_BYTES:
            self.write()

    def write(self) -> None:
        """Write a file of the zones added since the last one, if there are any.

        Raises:
            StorageError: The request was refused, or failed after all retries; the zones are
                dropped.
        """
        if self._pending:
            table = pa.Table.from_pylist(self._pending, ZONE_SCHEMA)
            self._pending, self._key_bytes = [], 0
            self.statistics = self.statistics.with_zones(table)


def _all_damaged(row: ZoneRow) -> ZoneRow:
    return row | {"damaged": row["last_entry_id"] - row["first_entry_id"] + 1}
