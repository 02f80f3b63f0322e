"""The delivery filter: entries of one topic partition → those a Pulsar consumer would receive.

Decisions that depend on other entries are made here: which transactions were committed, and which
chunks form a message. Afterwards the entries can be read independently, in any thread.
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
    from arrow_io.messages.transactions import TransactionOutcomes
    from arrow_io.read_metrics import Tally


class Delivery:
    """Filters a run of entries down to those with messages for a consumer.

    Markers, messages of uncommitted transactions, and chunks are left out. A chunked message is
    returned at the entry of its last chunk (`EntryRun.joined_payloads`). Broken entries are
    returned unchanged.

    Args:
        runs: Entries of one partition, in order. Entries that are not `is_in_range` are read only
            while a chunked message is open. If it is a `TransactionLookahead`, only messages of
            committed transactions are returned. The tables of the runs are changed, so the runs
            must not be iterated again.
        tally: Decides whether damage is raised, or counted in its metrics, which also count the
            omitted entries.
        decryptor: Decrypts chunks, each separately.
        join_payloads: Whether payloads are read; if not, `joined_payloads` holds empty ones.
        verify: Whether to compare checksums, if that was not done, before an entry decides about
            others.
        lookback: Finds the first chunks of messages that began before the first entry; None if such
            messages belong to another reader.
        is_requested: Returns, by ledger and entry id, whether to return a message that ends at an
            entry which is not `is_in_range`; None: always.
        skip_gap: Makes `runs` continue with the next run that is `is_in_range`. Called after a run
            that is not in range, or is `is_before_gap`, if no message is open. None: no gap is
            skipped.
        later_entries: Source of the entries after the last one, for transactions and chunked
            messages that end there; None if there is none.
        outcomes: The recorded outcomes by which only messages of committed transactions are
            returned. None: `runs` decide, and if they do not, all messages are returned.
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
        outcomes: TransactionOutcomes | None = None,
    ) -> None:
        self._runs = runs
        self._transactions = None
        self._undecided = layout.CHUNKED
        decisive = runs if isinstance(runs, TransactionLookahead) else outcomes
        if decisive is not None:
            self._transactions = CommittedTransactions(decisive, tally, later_entries)
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
        """Return the entries. Those not `is_in_range` hold the last chunk of a message in range.

        All entries before an error are returned first.

        Raises:
            CorruptEntryError: A chunk cannot be decrypted, or chunks are inconsistent (counted
                instead when salvaging); or a broken entry may have been a chunk or the marker of a
                transaction.
            EncryptedPayloadError: Chunks are encrypted, and there is no key for them.
            OptionError: A looked-up private key cannot be used.
            PulsarOffloadError: The entries cannot be read.
        """
        for run in self._runs:
            if run.is_in_range:
                yield from self._deliver(run)
            else:
                yield from self._complete_chunks(run)
            is_gap = run.is_before_gap or not run.is_in_range
            if is_gap and self._skip_gap is not None and not self._chunks.has_unfinished:
                self._chunks.skip()
                self._skip_gap()
        yield from self._read_later_chunks()
        self._chunks.finish()
        if self._transactions is not None:
            self._transactions.finish()

    def _deliver(self, run: EntryRun) -> Iterator[EntryRun]:
        if not run.has_flag(layout.DEPENDENT):
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
            yield from self._drop_left_out(run.part(0, index))
            raise
        finally:
            outcomes.count()
        yield from self._drop_left_out(run)

    def _drop_left_out(self, run: EntryRun) -> Iterator[EntryRun]:
        """Return the entries of a run that are delivered, if any; count the others."""
        metrics = self._tally.metrics
        metrics.markers += sum(1 for _ in run.flagged(layout.MARKER))
        remaining = run.drop_flagged(layout.MARKER | layout.LEFT_OUT)
        metrics.entries += run.count - remaining.count
        if remaining.count:
            yield remaining

    def _complete_chunks(self, run: EntryRun) -> Iterator[EntryRun]:
        """Read chunks outside the ranges, which only complete messages that began in them."""
        for index in run.flagged(layout.CHUNKED | layout.BROKEN):
            if not self._chunks.has_unfinished:
                return
            entry = run.fields(index)
            if entry[layout.FLAGS] & layout.BROKEN:
                if not self._tally.salvage:
                    # It may have been a missing chunk.
                    raise run.error(index)
            elif not entry[layout.FLAGS] & layout.MARKER and self._is_delivered(run, index, entry):
                yield run.part(index, index + 1)

    def _read_later_chunks(self) -> Iterator[EntryRun]:
        """Return chunked messages that end after the last entry."""
        if self._later_entries is None:
            return
        firsts = {(each.ledger_id, each.entry_id): each for each in self._chunks.first_chunks()}
        adopted = [position for position in firsts if self._later_entries.adopts(*position)]
        for position in adopted:
            self._chunks.complete(firsts.pop(position))
        if not firsts:
            return
        for first_chunk, run in self._later_entries.read_completed(firsts, self._tally.metrics):
            self._chunks.complete(firsts[first_chunk])
            self._tally.metrics.ended_beyond += 1
            run.table[layout.SEQUENCE_ID] = firsts[first_chunk].sequence_id
            run.table[layout.FLAGS] |= firsts[first_chunk].flags
            yield replace(run, is_in_range=False)

    def _decide(self, run: EntryRun, index: int, outcomes: RunOutcomes) -> int:
        """Decide about an entry or its transaction; return the next entry to decide about."""
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
        """Return whether a consumer receives a message at an entry; join its chunks."""
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
        """Add a chunk; return whether it completes a requested message, and join that."""
        payload = self._chunks.add(run, index)
        position = run.ledger_id, entry[layout.ENTRY_ID]
        is_requested = (
            run.is_in_range or self._is_requested is None or self._is_requested(*position)
        )
        if payload is None or not is_requested:
            return False
        run.join(index, payload)
        return True
