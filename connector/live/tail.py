"""The end of a topic partition that is not offloaded, as a ledger that is read from brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.errors import TrimmedEntriesError
from arrow_io.read_metrics import Unit
from arrow_io.storage.location import Location
from connector.live.broker import EntryId, group_by_entry
from connector.live.entries import LiveEntries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from arrow_io.ledgers.ledger import Block, DataPart
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import ReadMetrics, Tally
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from arrow_io.storage.ranges import ByteSpan
    from connector.inputs.topic_names import TopicName
    from connector.live.broker import Brokers, Client, ClientEntry, EntrySpan


@dataclass(frozen=True, slots=True)
class LiveTail:
    """A range of entries of a topic partition, read from a broker: a `Ledger`.

    The entries may belong to several ledgers, which only the broker can tell apart. So the tail has
    the id of the last ledger, and uses its entry numbers. Entry 0 stands for all entries before
    entry 1, including those of earlier ledgers. The entries that are read have their real ledger
    ids.

    Attributes:
        first: The first entry (inclusive), whether it exists or not.
        last_message: The last message of the topic. If it precedes `first`, the tail has no
            message.
        first_message: The first entry with a message when the tail was created; None if there was
            none.
        has_binary_keys: Whether the schema has binary keys.
        adopted_ranges: Ranges of entries before `first`, ascending, both ends inclusive. Chunked
            messages that begin there belong to the tail, because no task reads their first chunks.
    """

    brokers: Brokers
    topic: TopicName
    first: EntryId
    last_message: EntrySpan
    first_message: EntryId | None
    has_binary_keys: bool = False
    adopted_ranges: tuple[tuple[EntryId, EntryId], ...] = ()

    @property
    def last(self) -> EntryId:
        """The last entry (inclusive)."""
        return self.last_message.end

    @property
    def location(self) -> Location:
        """Location of the brokers."""
        return Location(self.brokers.url)

    @property
    def ledger_id(self) -> int:
        """Id of the last ledger."""
        return self.last.ledger_id

    @property
    def last_entry_id(self) -> int:
        """Id of the last entry (inclusive)."""
        return self.last.entry_id

    @property
    def length_bytes(self) -> int:
        """0: brokers do not report it."""
        return 0

    @property
    def stored_bytes(self) -> int:
        """0: the tail is not stored in objects."""
        return 0

    def with_range_bytes(self, range_bytes: int) -> LiveTail:
        """Return the tail itself: it sends no range requests."""
        del range_bytes
        return self

    @property
    def parts(self) -> Sequence[DataPart]:
        """Empty: the tail is not stored in objects."""
        return ()

    def blocks(self, first_entry_id: int, last_entry_id: int) -> Sequence[Block]:
        """Return no blocks: the tail is not stored in objects."""
        del first_entry_id, last_entry_id
        return ()

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """Return no extents: the tail is not stored in objects."""
        del first_entry_id, last_entry_id
        return []

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """Return no spans: the tail is not stored in objects."""
        del first_entry_id, last_entry_id
        return []

    def position_of(self, entry_id: int) -> int | None:
        """Return None: the tail is not stored in objects."""
        del entry_id
        return None

    def remember(self, entry_id: int, position: int) -> None:
        """Do nothing: the tail is not stored in objects."""

    def entry_runs(
        self,
        first_entry_id: int,
        last_entry_id: int,
        tally: Tally,
        *,
        verify_checksums: bool = False,
        is_in_range: bool = True,
        prefetcher: RangePrefetcher | None = None,
    ) -> Iterator[EntryRun]:
        """Read a range of entries; entries without a message are skipped.

        Args:
            first_entry_id: First entry of the last ledger; 0 for all entries from `first`.
            last_entry_id: Last entry of the last ledger (inclusive).
            tally: Decides whether entries that were deleted meanwhile are raised or counted.
            verify_checksums: Ignored: the client has verified them.
            is_in_range: See `EntryRun.is_in_range`.
            prefetcher: Ignored: the tail sends no range requests.

        Raises:
            TrimmedEntriesError: The cluster deleted entries since the tail was created.
            BrokerError: The broker cannot be reached, refuses, or does not respond in time.
        """
        del verify_checksums, prefetcher
        if first_entry_id > last_entry_id:
            return
        start = EntryId(self.ledger_id, first_entry_id) if first_entry_id else self.first
        stop = EntryId(self.ledger_id, last_entry_id)
        with self.brokers.connect() as client:
            # Adopted messages begin before the first entry.
            begin = self.adopted_ranges[0][0] if self.adopted_ranges else self.first
            # Other messages that begin earlier belong to the reader of their first chunk.
            own = (
                each
                for each in self._client_entries(client, begin, stop)
                if start <= each.span.end <= stop
                and (each.span.begin >= self.first or self.adopts(*each.span.begin))
            )
            for run in self._entries(tally.metrics).runs(own):
                run.is_in_range = is_in_range
                yield run
            self._check_beginning(client, tally)

    def adopts(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the tail contains a chunked message that begins at an earlier entry."""
        position = EntryId(ledger_id, entry_id)
        return any(first <= position <= last for first, last in self.adopted_ranges)

    def reaches(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the tail's last message is at or after an entry.

        Then a client received messages that begin there, when the tail was created.
        """
        return (ledger_id, entry_id) <= self.last

    def delivers(self, ledger_id: int, entry_id: int, *, is_chunked: bool) -> bool | None:
        """Return whether a client receives the messages of an entry; False if aborted.

        Args:
            ledger_id: The ledger of an entry before `first`, with messages of a transaction.
            entry_id: The entry.
            is_chunked: Whether it is the first chunk of a message.

        Returns:
            None if it cannot be determined: the transaction was open when the tail was created; the
            cluster has deleted the entry; or it belongs to a chunked message that may lack chunks.

        Raises:
            BrokerError: See `entry_runs`.
        """
        position = EntryId(ledger_id, entry_id)
        if not self.reaches(*position):
            return None
        with self.brokers.connect() as client:
            begins = (each.span.begin for each in self._client_entries(client, position, self.last))
            if is_chunked:
                return True if position in begins else None
            if next(begins, None) == position:
                return True
            beginning = client.find_first_entry(self.topic)
        return False if beginning is not None and beginning <= position else None

    def read_completed(
        self, first_chunks: Collection[tuple[int, int]], metrics: ReadMetrics
    ) -> Iterator[tuple[tuple[int, int], EntryRun]]:
        """Read the chunked messages that begin at `first_chunks` and end at `first` or later.

        Args:
            first_chunks: Ledger id and entry id of their first chunks, before `first`.
            metrics: Receives counts.

        Yields:
            For each complete message, its first chunk and a run of one entry with the whole
            message, at the position of its last chunk. Ordered by that position.

        Raises:
            BrokerError: See `entry_runs`.
        """
        remaining = set(first_chunks)
        live_entries = self._entries(metrics)
        with self.brokers.connect() as client:
            for each in self._client_entries(client, EntryId(*min(remaining)), self.last):
                begin, end = each.span
                if end >= self.first and begin in remaining:
                    remaining.remove(begin)
                    yield begin, next(live_entries.runs([each]))
                    if not remaining:
                        return

    def find_first_message(self, client: Client) -> EntryId | None:
        """Return the first entry with a message; None if there is none.

        Raises:
            BrokerError: See `entry_runs`.
        """
        begins = (each.span.begin for each in self._client_entries(client, self.first, self.last))
        return next(begins, None)

    def _entries(self, metrics: ReadMetrics) -> LiveEntries:
        return LiveEntries(str(self.topic), metrics, has_binary_keys=self.has_binary_keys)

    def _client_entries(
        self, client: Client, start: EntryId, stop: EntryId
    ) -> Iterator[ClientEntry]:
        """Read the entries whose messages lie between `start` and `stop` (both inclusive)."""
        # A reader that starts within the last message would never receive it.
        with client.open_reader(self.topic, min(start, self.last_message.begin)) as reader:
            if not reader.has_more():
                # The cluster has deleted them.
                return
            for each in group_by_entry(reader.messages()):
                begin, end = each.span
                if end > stop:
                    return
                if begin >= start:
                    yield each
                if end == self.last:
                    # Do not wait for more: an open transaction may block the next messages.
                    return

    def _check_beginning(self, client: Client, tally: Tally) -> None:
        """Report entries that were deleted since the tail was created.

        A cluster deletes whole ledgers, oldest first. The entries may have been read before that.
        """
        if self.first_message is None:
            return
        beginning = client.find_first_entry(self.topic)
        if beginning is None or beginning > self.first_message:
            message = (
                "the cluster deleted entries since the topic was opened, so messages may be"
                " missing: open the topic again"
            )
            error = TrimmedEntriesError(
                message,
                object_key=str(self.topic),
                ledger_id=self.first_message.ledger_id,
                entry_id=self.first_message.entry_id,
            )
            tally.lose(Unit.LEDGER, error)
