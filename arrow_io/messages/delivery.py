"""Entries of one topic partition, in order → those whose messages a client of Pulsar is given.

What depends on other entries is decided here: which transactions were committed, and which chunks
make a message. So whoever takes the entries may read each by itself, in any thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from arrow_io.errors import CorruptEntryError, PulsarOffloadError
from arrow_io.messages import layout
from arrow_io.messages.chunks import ChunkAssembler
from arrow_io.messages.committed import CommittedTransactions, RunOutcomes
from arrow_io.messages.transactions import TransactionLookahead
from arrow_io.read_metrics import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from arrow_io.messages.chunks import ChunkLookback
    from arrow_io.messages.encryption import PayloadDecryptor
    from arrow_io.messages.entry_run import EntryRun
    from arrow_io.messages.later_entries import LaterEntries
    from arrow_io.read_metrics import Tally


class Delivery:
    """The entries that hold messages for a client, of consecutive ones.

    Markers, messages of transactions that were not committed, and chunks are left out; in the place
    of the last chunk of a message stands all of it (`EntryRun.joined`). Entries that are broken are
    given as they are.

    Args:
        runs: Entries of one partition, in order; those not `is_in_range` are read only as long as a
            chunked message is open. A `TransactionLookahead` tells which transactions were
            committed; of any other iterable the messages of all are given. Whoever takes the
            entries that are given must not ask for these runs again: their tables are changed.
        tally: Says whether damage is raised, or counted in its metrics, which receive the counts of
            what is left out.
        decryptor: Decrypts chunks, each by itself.
        join_payloads: Whether payloads are wanted; if not, `joined` has empty ones.
        verify: Whether checksums are compared before an entry is believed that decides of others,
            if they were not yet.
        lookback: Finds the first chunks of a message that began before the first entry; None if
            such a message belongs to another reader.
        is_requested: Whether a message that ends at an entry which is not `is_in_range` is to be
            given, by ledger and entry id; None: any is.
        skip_gap: Makes `runs` go on with the next that is `is_in_range`; called behind a run that
            is not, or that is `before_gap`, if nothing is open. None: all are given.
        later_entries: Whoever knows what became behind the last entry of transactions and of
            messages in chunks; None: nobody.
    """

    def __init__(
        self,
        runs: Iterable[EntryRun],
        tally: Tally,
        decryptor: PayloadDecryptor,
        *,
        join_payloads: bool = True,
        verify: bool = False,
        lookback: ChunkLookback | None = None,
        is_requested: Callable[[int, int], bool] | None = None,
        skip_gap: Callable[[], None] | None = None,
        later_entries: LaterEntries | None = None,
    ) -> None:
        self._runs = runs
        self._transactions = None
        self._undecided = layout.CHUNKED
        if isinstance(runs, TransactionLookahead):
            self._transactions = CommittedTransactions(runs, tally, later_entries)
            self._undecided |= layout.TRANSACTION
        self._tally = tally
        self._verify = verify
        self._is_requested = is_requested
        self._skip_gap = skip_gap
        self._later_entries = later_entries
        self._chunks = ChunkAssembler(
            tally, join_payloads=join_payloads, decryptor=decryptor, lookback=lookback
        )

    def __iter__(self) -> Iterator[EntryRun]:
        """The entries; those not `is_in_range` hold the last chunk of a message that began before.

        All that stand before an error are given before it.

        Raises:
            CorruptEntryError: A chunk cannot be decrypted, or chunks are not what they announce
                (counted instead when salvaging); or an entry is broken that may have been the
                marker of a transaction, or a chunk.
            EncryptedPayloadError: Chunks are encrypted, and no key is given for them.
            OptionError: A private key that was looked up cannot be used.
            PulsarOffloadError: The entries cannot be read.
        """
        for run in self._runs:
            if run.is_in_range:
                yield from self._deliver(run)
            else:
                yield from self._close_chunks(run)
            is_gap = run.before_gap or not run.is_in_range
            if is_gap and self._skip_gap is not None and not self._chunks.has_unfinished:
                self._chunks.skip()
                self._skip_gap()
        yield from self._read_later_chunks()
        self._chunks.finish()
        if self._transactions is not None:
            self._transactions.finish()

    def _deliver(self, run: EntryRun) -> Iterator[EntryRun]:
        if not run.has(layout.BOUND):
            yield run
            return
        if self._verify:
            run.verify_checksums()
        outcomes = RunOutcomes(self._tally.metrics, self._undecided)
        index = outcomes.apply(run, 0)
        try:
            while index < run.count:
                index = outcomes.apply(run, self._decide(run, index, outcomes))
        except PulsarOffloadError:
            yield from self._remaining(run.part(0, index))
            raise
        finally:
            outcomes.count()
        yield from self._remaining(run)

    def _remaining(self, run: EntryRun) -> Iterator[EntryRun]:
        """What is left of a run, if anything is; counts the entries that are not."""
        metrics = self._tally.metrics
        metrics.markers += sum(1 for _ in run.flagged(layout.MARKER))
        remaining = run.drop_flagged(layout.MARKER | layout.LEFT_OUT)
        metrics.entries += run.count - remaining.count
        if remaining.count:
            yield remaining

    def _close_chunks(self, run: EntryRun) -> Iterator[EntryRun]:
        """Outside the ranges whose rows are given, only chunks of what began in them matter."""
        for index in run.flagged(layout.CHUNKED | layout.BROKEN):
            if not self._chunks.has_unfinished:
                return
            entry = run.fields(index)
            if entry[layout.FLAGS] & layout.BROKEN:
                if not self._tally.salvage:
                    # It may have been a chunk that is waited for.
                    raise run.error(index)
            elif not entry[layout.FLAGS] & layout.MARKER and self._is_delivered(run, index, entry):
                yield run.part(index, index + 1)

    def _read_later_chunks(self) -> Iterator[EntryRun]:
        """Messages in chunks that end behind the last entry."""
        if self._later_entries is None:
            return
        firsts = {(each.ledger_id, each.entry_id): each for each in self._chunks.first_chunks()}
        for place in [place for place in firsts if self._later_entries.adopts(*place)]:
            self._chunks.complete(firsts.pop(place))
        if not firsts:
            return
        for first_chunk, run in self._later_entries.read_completed(firsts, self._tally.metrics):
            self._chunks.complete(firsts[first_chunk])
            self._tally.metrics.ended_beyond += 1
            run.table[layout.SEQUENCE_ID] = firsts[first_chunk].sequence_id
            run.table[layout.FLAGS] |= firsts[first_chunk].flags
            yield replace(run, is_in_range=False)

    def _decide(self, run: EntryRun, index: int, outcomes: RunOutcomes) -> int:
        """Decide of an entry, or of its transaction; gives the entry to go on with."""
        entry = run.fields(index)
        if self._transactions is not None and not entry[layout.FLAGS] & layout.CHUNKED:
            outcome = self._transactions.outcome(run, entry)
            if outcome is not None:
                outcomes.add(entry, outcome)
                return index
        if not self._is_delivered(run, index, entry):
            run.flag(index, index + 1, layout.LEFT_OUT)
        return index + 1

    def _is_delivered(self, run: EntryRun, index: int, entry: list[int]) -> bool:
        """Whether a client is given a message in the place of an entry; its chunks are joined."""
        flags = entry[layout.FLAGS]
        try:
            is_left_out = (
                flags & layout.TRANSACTION
                and self._transactions is not None
                and not self._transactions.is_committed(run, index, entry)
            )
            return not is_left_out and (
                not flags & layout.CHUNKED or self._is_last_chunk(run, index, entry)
            )
        except CorruptEntryError as error:
            run.locate(error, index)
            self._tally.lose(Unit.ENTRY, error)
            return False

    def _is_last_chunk(self, run: EntryRun, index: int, entry: list[int]) -> bool:
        """Take a chunk; whether it ends a message that is to be given, which is `joined` then."""
        payload = self._chunks.add(run, index)
        position = run.ledger_id, entry[layout.ENTRY_ID]
        is_requested = (
            run.is_in_range or self._is_requested is None or self._is_requested(*position)
        )
        if payload is None or not is_requested:
            return False
        run.join(index, payload)
        return True
