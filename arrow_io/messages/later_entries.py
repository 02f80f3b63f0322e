"""The interface to the entries after the last one that a reader has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import ReadMetrics


class LaterEntries(Protocol):
    """A source of the entries after the last offloaded one, such as a broker."""

    def reaches(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether a consumer receives messages that begin at an entry.

        It receives none after an open transaction.
        """

    def delivers(self, ledger_id: int, entry_id: int, *, is_chunked: bool) -> bool | None:
        """Return whether a consumer receives an entry of a transaction; False if that was aborted.

        `is_chunked` says whether the entry is the first chunk of a message.

        Returns:
            None if it cannot be determined.

        Raises:
            PulsarOffloadError: The source cannot be read.
        """

    def adopts(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether this source returns a chunked message that begins before its entries."""

    def read_completed(
        self, first_chunks: Collection[tuple[int, int]], metrics: ReadMetrics
    ) -> Iterator[tuple[tuple[int, int], EntryRun]]:
        """Read the chunked messages that begin before the last entry and end after it.

        Args:
            first_chunks: Ledger id and entry id of the first chunk of each message.
            metrics: Receives counts.

        Yields:
            For each complete message, its first chunk and a run of one entry with the whole
            message, at the position of its last chunk. Ordered by that position.

        Raises:
            PulsarOffloadError: The source cannot be read.
        """
