"""Verification of whole ledgers: the id and checksum of every entry, which no index object has.

Headers, entry ids and lengths are compared with the index object, checksums with the entries, and
what only brokers use (user metadata, `.crc` files) with Pulsar's requirements. Damage is reported
and skipped, so that all of it is found.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from arrow_io.core.prefetch import prefetch_units
from arrow_io.core.wording import agreeing, counted
from arrow_io.messages import layout
from arrow_io.messages.broker_order import BrokerOrder, goes_back, order_error
from arrow_io.read_metrics import ReadMetrics, Unit
from connector.statistics.analysis import unknown_ledgers
from connector.statistics.gathering import zone_row
from connector.statistics.whole_ledgers import unexplained, whole_ledgers
from connector.statistics.zone_writer import ZoneWriter
from connector.upkeep.verify.journal import VerifiedLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence

    from arrow_io.ledgers.ledger import Ledger
    from arrow_io.ledgers.open_ledger import OpenLedger
    from arrow_io.messages.entry_run import EntryRun
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.statistics.gathering import ZoneRow
    from connector.statistics.store import Statistics
    from connector.statistics.whole_ledgers import Explaining, WholeLedger
    from connector.upkeep.verify.journal import VerificationJournal


def verify(
    topics: Iterable[TopicLedgers],
    *,
    journal: VerificationJournal | None = None,
    statistics: Statistics | None = None,
    progress: Callable[[VerifiedLedger], None] = lambda _: None,
    explaining: Explaining = unexplained,
) -> Generator[VerifiedLedger, None, None]:
    """Read all sound ledgers of some topics completely, in as many threads as there are cores.

    Args:
        topics: The topics.
        journal: Has the results of earlier runs, and records new ones. A ledger with problems is
            read again.
        statistics: A folder to write the zones of ledgers to that it does not have yet. These
            ledgers are read even if the journal has them, because the earlier run may have been
            stopped before it wrote the zones.
        progress: Called after each ledger that was read.
        explaining: Replaces the error of a missing object if the object is missing for a reason
            other than damage.

    Yields:
        The result of each ledger, including those in the journal.

    Raises:
        OptionError: Statistics cannot be written to their folder.
        TrimmedEntriesError: The cluster trimmed a ledger before it was read. Earlier results are in
            the journal.
        StorageError: A request kept failing, or the journal cannot be written. Earlier results are
            in the journal.
    """
    every = [(str(topic.topic), ledger) for topic in topics for ledger in topic.ledgers]
    unknown = frozenset(() if statistics is None else _select_unknown(statistics, every))
    journal_results = [
        None if journal is None or (topic, ledger.ledger_id) in unknown else journal.find(ledger)
        for topic, ledger in every
    ]
    pending = [
        ledger
        for ledger, journal_result in zip(every, journal_results, strict=True)
        if journal_result is None or journal_result.problems
    ]
    last: VerifiedLedger | None = None
    with ExitStack() as stack:
        writer = None
        if statistics is not None:
            writer = stack.enter_context(ZoneWriter(statistics))
        read = stack.enter_context(closing(_read(pending, unknown, writer, explaining)))
        for journal_result in journal_results:
            result = journal_result
            if result is None or result.problems:
                result = next(read)
                if journal is not None:
                    journal.add(result)
                progress(result)
            yield _check_order(result, last)
            last = result


def _read(
    ledgers: Sequence[tuple[str, OpenLedger]],
    unknown: Collection[tuple[str, int]],
    writer: ZoneWriter | None,
    explaining: Explaining,
) -> Generator[VerifiedLedger, None, None]:
    """Read ledgers, yield the results, and write the zones of those without statistics."""
    pairs: list[tuple[str, Ledger]] = [(topic, ledger.data) for topic, ledger in ledgers]
    units = (ledger.broker_problems for _, ledger in ledgers)
    threads = max((ledger.location.max_connections for _, ledger in ledgers), default=1)
    with ExitStack() as stack:
        metadata = stack.enter_context(closing(prefetch_units(units, threads=threads)))
        check = partial(_check_zone, unknown)
        read = stack.enter_context(closing(whole_ledgers(pairs, check, explaining=explaining)))
        for (_, ledger), whole, problems in zip(ledgers, read, metadata, strict=True):
            rows = [each.row for each in whole.zones if each.row is not None]
            if writer is not None and (whole.topic, ledger.ledger_id) in unknown:
                writer.add(whole, rows)
            yield _merge_results(ledger, whole, problems)


def _select_unknown(
    statistics: Statistics, ledgers: Iterable[tuple[str, OpenLedger]]
) -> Iterator[tuple[str, int]]:
    for topic, topic_ledgers in groupby(ledgers, key=itemgetter(0)):
        data = [each.data for _, each in topic_ledgers]
        for ledger in unknown_ledgers(statistics, topic, data):
            yield topic, ledger.ledger_id


@dataclass(frozen=True, slots=True)
class _ZoneResult:
    """The result of reading a zone.

    Attributes:
        first: Its first entry, without the entry's bytes.
        entries: Number of undamaged entries.
        unchecked_entries: Number of these entries that have no checksum.
        order: The broker's indexes of its entries.
        row: Its row of statistics, if requested.
    """

    first: EntryRun
    entries: int
    unchecked_entries: int
    metrics: ReadMetrics
    order: BrokerOrder
    row: ZoneRow | None


def _check_zone(
    unknown: Collection[tuple[str, int]],
    ledger: Ledger,
    topic: str,
    runs: Sequence[EntryRun],
) -> _ZoneResult:
    metrics, order = ReadMetrics(), BrokerOrder()
    entries = unchecked = 0
    for run in runs:
        broken = list(run.flagged(layout.BROKEN))
        for index in broken:
            metrics.lose(Unit.ENTRY, run.error(index))
        for error in order.errors(run):
            metrics.lose(Unit.ENTRY, error)
        entries += run.count - len(broken)
        stop = run.count * layout.ENTRY_WIDTH
        checksums = run.table[layout.CHECKSUM : stop : layout.ENTRY_WIDTH].tolist()
        unchecked += checksums.count(layout.ABSENT)
    row = None
    if (topic, ledger.ledger_id) in unknown:
        row = zone_row(ledger, topic, runs)
    # Results are held until the ledger's last zone is read, so they must not keep buffers alive.
    first = runs[0].detach_entry(0)
    return _ZoneResult(first, entries, unchecked, metrics, order, row)


def _merge_results(
    ledger: OpenLedger, whole: WholeLedger[Ledger, _ZoneResult], broker_problems: Sequence[str]
) -> VerifiedLedger:
    metrics = ReadMetrics().add(whole.metrics)
    last_index = None
    for each in whole.zones:
        metrics.add(each.metrics)
        if goes_back(last_index, each.order.first):
            error = order_error(last_index, each.order.first)
            each.first.locate(error, 0)
            metrics.lose(Unit.ENTRY, error)
        last_index = each.order.last
    read_errors = [] if whole.error is None else [str(whole.error)]
    problems = [*broker_problems, *read_errors, *metrics.losses]
    more = metrics.lost.total() - len(metrics.losses)
    if more > 0:
        problems.append(f"{more} more {agreeing(more, 'is', 'are')} lost")
    entries = sum(each.entries for each in whole.zones)
    missing = ledger.entry_count - entries
    if missing and len(problems) == len(broker_problems):
        verb = agreeing(missing, "was", "were")
        problems.append(f"{counted(missing, 'entry')} of {ledger.entry_count} {verb} not found")
    return VerifiedLedger(
        url=str(ledger.location),
        topic=whole.topic,
        ledger_id=ledger.ledger_id,
        object=ledger.data_names,
        stored_bytes=ledger.data.stored_bytes,
        entries=entries,
        unchecked_entries=sum(each.unchecked_entries for each in whole.zones),
        problems=tuple(problems),
        first_index=whole.zones[0].order.first if whole.zones else None,
        last_index=last_index,
        broker_problems=tuple(broker_problems),
    )


def _check_order(verified: VerifiedLedger, before: VerifiedLedger | None) -> VerifiedLedger:
    """Add a problem if the ledger's broker indexes do not follow the previous ledger's."""
    if before is None or before.topic != verified.topic:
        return verified
    if not goes_back(before.last_index, verified.first_index):
        return verified
    error = order_error(before.last_index, verified.first_index).located(
        object_key=verified.object, ledger_id=verified.ledger_id
    )
    return replace(verified, problems=(*verified.problems, str(error)))
