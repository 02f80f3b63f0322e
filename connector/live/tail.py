"""The end of a topic partition that is not offloaded, as a ledger that its brokers give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrow_io.errors import TrimmedEntriesError
from arrow_io.read_metrics import Unit
from arrow_io.storage.location import Location
from connector.live.broker import EntryId, by_entry
from connector.live.entries import LiveEntries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from arrow_io.ledgers.ledger import Block, DataPart
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.read_metrics import ReadMetrics, Tally
    from arrow_io.storage.range_prefetch import RangePrefetcher
    from arrow_io.storage.ranges import ByteSpan
    from connector.inputs.topic_names import TopicName
    from connector.live.broker import Brokers, Client, ClientEntry, Place


@dataclass(frozen=True, slots=True)
class LiveTail:
    """The entries of a topic partition from one to another, which a broker gives: a `Ledger`.

    They may be of several ledgers, which only the broker can tell apart. So this stands for the
    last of them, whose entries are numbered as they are; its entry 0 stands for all that comes
    before the others, too. The entries that are read say which ledger they are of.

    Attributes:
        brokers: Who gives them.
        topic: The topic or partition.
        first: The first entry (inclusive), whether there is one or not.
        until: The last message of the topic, which may stand before the first; then there is none
            here.
        first_message: The first entry that had a message when this was made; None if none had.
        has_binary_keys: Whether the schema says that keys are bytes.
        adopted: Ranges of entries before the first, both ends inclusive, ascending: messages in
            chunks that begin there are given here, for nobody reads their first chunks.
    """

    brokers: Brokers
    topic: TopicName
    first: EntryId
    until: Place
    first_message: EntryId | None
    has_binary_keys: bool = False
    adopted: tuple[tuple[EntryId, EntryId], ...] = ()

    @property
    def last(self) -> EntryId:
        """The last entry (inclusive)."""
        return self.until.end

    @property
    def location(self) -> Location:
        """Where the brokers are."""
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
        """Nothing says it."""
        return 0

    @property
    def stored_bytes(self) -> int:
        """Nothing of it is stored in objects."""
        return 0

    def with_range_bytes(self, range_bytes: int) -> LiveTail:
        """The same: there are no requests for ranges of bytes."""
        del range_bytes
        return self

    @property
    def parts(self) -> Sequence[DataPart]:
        """No object holds it."""
        return ()

    def blocks(self, first_entry_id: int, last_entry_id: int) -> Sequence[Block]:
        """There are none."""
        del first_entry_id, last_entry_id
        return ()

    def extents(self, first_entry_id: int, last_entry_id: int) -> list[tuple[int, int]]:
        """There are none."""
        del first_entry_id, last_entry_id
        return []

    def byte_spans(self, first_entry_id: int, last_entry_id: int) -> list[ByteSpan]:
        """There are none."""
        del first_entry_id, last_entry_id
        return []

    def position_of(self, entry_id: int) -> int | None:
        """Entries stand in no object."""
        del entry_id
        return None

    def remember(self, entry_id: int, position: int) -> None:
        """Entries stand in no object."""

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
        """Read some entries; those without a message are passed over.

        Args:
            first_entry_id: First entry of the last ledger; 0: all from `first` on.
            last_entry_id: Last entry of the last ledger (inclusive).
            tally: Says whether it is raised, or counted, that entries were deleted meanwhile.
            verify_checksums: The client did.
            is_in_range: See `EntryRun.is_in_range`.
            prefetcher: Sends no request of these.

        Raises:
            TrimmedEntriesError: The cluster deleted entries since this was made.
            BrokerError: The broker cannot be asked, refuses, or gives nothing for too long.
        """
        del verify_checksums, prefetcher
        if first_entry_id > last_entry_id:
            return
        start = EntryId(self.ledger_id, first_entry_id) if first_entry_id else self.first
        stop = EntryId(self.ledger_id, last_entry_id)
        with self.brokers.connect() as client:
            # What is adopted stands before the first entry.
            begin = self.adopted[0][0] if self.adopted else self.first
            # What else begins before is given by whoever reads its first chunk.
            own = (
                each
                for each in self._client_entries(client, begin, stop)
                if start <= each.place.end <= stop
                and (each.place.begin >= self.first or self.adopts(*each.place.begin))
            )
            for run in self._entries(tally.metrics).runs(own):
                run.is_in_range = is_in_range
                yield run
            self._check_beginning(client, tally)

    def adopts(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a message in chunks that begins with an entry, and ends behind, is given here."""
        at = EntryId(ledger_id, entry_id)
        return any(first <= at <= last for first, last in self.adopted)

    def reaches(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a client was given messages from an entry on, when this was made.

        Args:
            ledger_id: The ledger of the entry.
            entry_id: The entry.
        """
        return (ledger_id, entry_id) <= self.last

    def delivers(self, ledger_id: int, entry_id: int, *, is_chunked: bool) -> bool | None:
        """Whether a client is given the messages of an entry; if not, they were aborted.

        Args:
            ledger_id: The ledger of an entry before `first`, with messages of a transaction.
            entry_id: The entry.
            is_chunked: Whether it is the first chunk of a message.

        Returns:
            None if it is not known: when this was made the transaction was open; or the entry is
            not in the cluster any more, or of a message in chunks that perhaps lacks others.

        Raises:
            BrokerError: See `entry_runs`.
        """
        at = EntryId(ledger_id, entry_id)
        if not self.reaches(*at):
            return None
        with self.brokers.connect() as client:
            begins = (each.place.begin for each in self._client_entries(client, at, self.last))
            if is_chunked:
                return True if at in begins else None
            if next(begins, None) == at:
                return True
            beginning = client.first(self.topic)
        return False if beginning is not None and beginning <= at else None

    def read_completed(
        self, first_chunks: Collection[tuple[int, int]], metrics: ReadMetrics
    ) -> Iterator[tuple[tuple[int, int], EntryRun]]:
        """The messages in chunks that begin with entries, and end at others from `first` on.

        Args:
            first_chunks: Ledger and entry id of their first chunks, before `first`.
            metrics: Receives counts.

        Yields:
            For each that is complete its first chunk, and a run of one entry with all of it, in the
            place of its last chunk; in the order of these places.

        Raises:
            BrokerError: See `entry_runs`.
        """
        remaining = set(first_chunks)
        live_entries = self._entries(metrics)
        with self.brokers.connect() as client:
            for each in self._client_entries(client, EntryId(*min(remaining)), self.last):
                begin, end = each.place
                if end >= self.first and begin in remaining:
                    remaining.remove(begin)
                    yield begin, next(live_entries.runs([each]))
                    if not remaining:
                        return

    def find_first_message(self, client: Client) -> EntryId | None:
        """The first entry with a message; None if none has.

        Args:
            client: A client of the brokers.

        Raises:
            BrokerError: See `entry_runs`.
        """
        begins = (each.place.begin for each in self._client_entries(client, self.first, self.last))
        return next(begins, None)

    def _entries(self, metrics: ReadMetrics) -> LiveEntries:
        return LiveEntries(str(self.topic), metrics, has_binary_keys=self.has_binary_keys)

    def _client_entries(
        self, client: Client, start: EntryId, stop: EntryId
    ) -> Iterator[ClientEntry]:
        """The messages that begin at an entry or behind it, and end at another (inclusive)."""
        # A reader that begins within the last message would wait for it in vain.
        with client.open_reader(self.topic, min(start, self.until.begin)) as reader:
            if not reader.has_more():
                # The cluster deleted them.
                return
            for each in by_entry(reader.messages()):
                begin, end = each.place
                if end > stop:
                    return
                if begin >= start:
                    yield each
                if end == self.last:
                    # Whether more comes may depend on a transaction that is open.
                    return

    def _check_beginning(self, client: Client, tally: Tally) -> None:
        """Lose what was deleted since this was made: a cluster deletes whole ledgers, oldest first.

        Perhaps it was read before, but that is not known.
        """
        if self.first_message is None:
            return
        beginning = client.first(self.topic)
        if beginning is None or beginning > self.first_message:
            message = (
                "the cluster deleted the beginning of what it had when the topic was opened, so"
                " messages may be missing: open the topic again"
            )
            error = TrimmedEntriesError(
                message,
                object_key=str(self.topic),
                ledger_id=self.first_message.ledger_id,
                entry_id=self.first_message.entry_id,
            )
            tally.lose(Unit.LEDGER, error)
