"""Rows of whole ledgers → files in a folder of statistics."""

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
"""About how many zones stand in a file: 16 GiB of data, which a killed run has to read again."""
_FILE_BYTES: Final = 64 << 20
"""Fewer do if their filters of keys have so many bytes."""


class ZoneWriter:
    """Adds files to a folder; a context manager, at the end of which all is written.

    Each file holds whole ledgers. So if a run is killed or fails, the next one goes on behind it.

    Args:
        statistics: The folder.

    Attributes:
        statistics: The folder, with the new files.

    Raises:
        OptionError: The folder cannot be written to.
    """

    def __init__(self, statistics: Statistics) -> None:
        statistics.location.check_writable()
        self.statistics = statistics
        self._pending: list[ZoneRow] = []
        self._key_bytes = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Write what is left, behind an error too.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        self.write()

    def add(self, whole: WholeLedger[Any, Any], rows: Iterable[ZoneRow]) -> None:
        """Add a ledger; if reading it ended before its end, nothing is known of it.

        Args:
            whole: The ledger.
            rows: Of each of its zones.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        if whole.error is None:
            # Whoever reads has to read it whole, to meet what is wrong around its entries.
            self.add_zones(rows if whole.is_sound else map(_all_damaged, rows))

    def add_zones(self, rows: Iterable[ZoneRow]) -> None:
        """Add all zones of a ledger.

        Raises:
            StorageError: The store refused, or went on failing.
        """
        for row in rows:
            self._pending.append(row)
            self._key_bytes += len(row.get("keys", b""))
        if len(self._pending) >= _FILE_ROWS or self._key_bytes >= _FILE_BYTES:
            self.write()

    def write(self) -> None:
        """Write a file of what was added since the last one, if anything was.

        Raises:
            StorageError: The store refused, or went on failing; those ledgers are not known.
        """
        if self._pending:
            table = pa.Table.from_pylist(self._pending, ZONE_SCHEMA)
            self._pending, self._key_bytes = [], 0
            self.statistics = self.statistics.added(table)


def _all_damaged(row: ZoneRow) -> ZoneRow:
    return row | {"damaged": row["last_entry_id"] - row["first_entry_id"] + 1}
