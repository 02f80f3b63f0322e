"""What stands behind the last entry that a reader is given, where somebody can be asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import ReadMetrics


class LaterEntries(Protocol):
    """Whoever has the entries behind the last one: a broker."""

    def reaches(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a client is given messages from an entry on; none behind an open transaction.

        Args:
            ledger_id: The ledger of the entry.
            entry_id: The entry.
        """

    def delivers(self, ledger_id: int, entry_id: int, *, is_chunked: bool) -> bool | None:
        """Whether a client is given the messages of an entry; if not, they were aborted.

        Args:
            ledger_id: The ledger of an entry with messages of a transaction.
            entry_id: The entry.
            is_chunked: Whether it is the first chunk of a message.

        Returns:
            None if that is not known.

        Raises:
            PulsarOffloadError: It cannot be asked.
        """

    def adopts(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a message in chunks that begins with an entry, and ends behind, is given there.

        Args:
            ledger_id: The ledger of its first chunk.
            entry_id: The entry of its first chunk.
        """

    def read_completed(
        self, first_chunks: Collection[tuple[int, int]], metrics: ReadMetrics
    ) -> Iterator[tuple[tuple[int, int], EntryRun]]:
        """The messages in chunks that begin before the last entry, and end behind it.

        Args:
            first_chunks: Ledger and entry id of the first chunk of each.
            metrics: Receives counts.

        Yields:
            For each that is complete its first chunk, and a run of one entry with all of it, in the
            place of its last chunk; in the order of these places.

        Raises:
            PulsarOffloadError: They cannot be read.
        """
