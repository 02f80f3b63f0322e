"""Which ledgers of a topic are due: its progress compared with the current catalog.

| a ledger is | below the position | at the position or above |
|---|---|---|
| in the bucket, and was when the progress was recorded | already read | due |
| in the bucket, and was not | late: an error | due |
| no longer in the bucket | trimmed by retention: no error | lost: an error |
| missing according to the metadata | skipped | nothing is due from here on |

A ledger is missing if it should be offloaded, or if later ledgers are offloaded and it has entries.

When salvaging, each of these errors becomes a notice, and what exists is read, as in a batch read.
Ledgers that are only in BookKeeper so far still hold back the ones after them.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import LateLedgerError, MissingObjectError, PulsarOffloadError
from connector.increments.progress import TopicProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from arrow_io.ledgers.ledger import Ledger
    from connector.catalog.catalog import Catalog
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.inputs.topic_names import TopicName


@dataclass(frozen=True)
class DueLedgers:
    """What can be read of one topic since a position, before looking at transactions.

    Attributes:
        topic: The topic, with all its readable ledgers.
        ledgers: The ledgers that are due, ascending.
        last_read: The last ledger below the position, or None.
        blocked_ledgers: Ledgers that are in the bucket, but come after a missing one.
        notices: One sentence for each thing that a consumer of the rows must know.
        progress: The progress with an updated list of ledgers, at the same position.
    """

    topic: TopicLedgers
    ledgers: tuple[Ledger, ...]
    last_read: Ledger | None
    blocked_ledgers: tuple[Ledger, ...]
    notices: tuple[str, ...]
    progress: TopicProgress


def due_ledgers(
    topic: TopicLedgers,
    progress: TopicProgress,
    unfinished: Iterable[int] = (),
    *,
    salvage: bool,
) -> DueLedgers:
    """Compare a topic with its progress, and return the ledgers that are due.

    `unfinished` has the ids of ledgers with a data object but no index object. With `salvage`, the
    errors below are notices instead.

    Raises:
        LateLedgerError: A ledger appeared below the position.
        MissingObjectError: A ledger that was in the bucket was deleted before it was read.
        PulsarOffloadError: A ledger that is due cannot be read.
    """
    problems = _Problems(topic.topic, salvage=salvage)
    if salvage:
        topic = topic.salvaged()
    ledgers = {each.ledger_id: each for each in topic.data}
    for ledger_id in progress.late_ledgers(ledgers):
        problems.raise_or_note(_late_ledger_error(ledger_id, progress))
    lost_ids = {each for each in progress.unread_ledger_ids if each not in ledgers}
    for ledger_id in sorted(lost_ids):
        problems.raise_or_note(lost_ledger_error(ledger_id))
    first_missing = _first_missing_ledger(topic, progress, {*unfinished} - ledgers.keys(), problems)
    unlisted = [each for each in topic.unknown if each.ledger_id >= progress.next.ledger_id]
    if unlisted:
        problems.note(
            f"the metadata does not list {counted(len(unlisted), 'ledger')} in the bucket as"
            f" offloaded, so {agreeing(len(unlisted), 'it is', 'they are')} not read yet; the"
            " metadata may be out of date"
        )
    read = [each for each in ledgers.values() if each.ledger_id < progress.next.ledger_id]
    unread = [each for each in ledgers.values() if each.ledger_id >= progress.next.ledger_id]
    return DueLedgers(
        topic,
        tuple(each for each in unread if first_missing is None or each.ledger_id < first_missing),
        max(read, default=None, key=lambda each: each.ledger_id),
        tuple(
            each for each in unread if first_missing is not None and each.ledger_id >= first_missing
        ),
        tuple(problems.notices),
        _next_progress(progress, ledgers.keys(), lost_ids),
    )


class _Problems:
    """Raises errors, or when salvaging collects them as notices."""

    def __init__(self, topic: TopicName, *, salvage: bool) -> None:
        self._topic = topic
        self.salvage = salvage
        self.notices: list[str] = []

    def raise_or_note(self, error: PulsarOffloadError) -> None:
        if not self.salvage:
            raise error
        self.note(str(error))

    def note(self, sentence: str) -> None:
        self.notices.append(f"{self._topic}: {sentence}")


def _late_ledger_error(ledger_id: int, progress: TopicProgress) -> LateLedgerError:
    ledger, entry = progress.next
    message = (
        "the ledger appeared in the bucket after the topic was read up to ledger"
        f" {ledger}, entry {entry}: its rows were not read, and will not be"
    )
    return LateLedgerError(message, ledger_id=ledger_id)


def lost_ledger_error(ledger_id: int) -> MissingObjectError:
    """Return the error for an unread ledger that is no longer in the bucket."""
    message = (
        "the ledger was in the bucket when the progress was recorded, and is missing now: it was"
        " deleted before it was read; or the catalog is older than the progress: open it again"
    )
    return MissingObjectError(message, ledger_id=ledger_id)


def _first_missing_ledger(
    topic: TopicLedgers, progress: TopicProgress, unfinished: set[int], problems: _Problems
) -> int | None:
    """Return the id of the first missing ledger, which holds back all later ones; or None."""
    if topic.metadata_error is not None:
        problems.raise_or_note(topic.metadata_error)
    present_ids = {each.ledger_id for each in topic.data}
    pending: dict[int, str] = {}
    missing = {
        each: "its data object exists, but its index object is missing"
        for each in unfinished
        if progress.next.ledger_id <= each < max(present_ids, default=0)
    }
    for each in topic.states:
        if (
            each.error is None
            or each.ledger_id < progress.next.ledger_id
            or each.ledger_id in present_ids
        ):
            continue
        if each.state.is_pending:
            pending[each.ledger_id] = each.error.message
        elif isinstance(each.error, MissingObjectError):
            missing[each.ledger_id] = each.error.message
        else:
            problems.raise_or_note(each.error)
    if not problems.salvage:
        pending |= missing
    first_missing = min(pending, default=None)
    for ledger_id, reason in sorted((pending | missing).items()):
        if ledger_id == first_missing:
            problems.note(f"nothing is read from ledger {first_missing} on: {reason}")
            break
        problems.note(f"ledger {ledger_id} is left out: {reason}")
    return first_missing


def _next_progress(
    progress: TopicProgress, present_ids: Iterable[int], lost_ids: set[int]
) -> TopicProgress:
    """Return the progress with ledgers of the bucket added, and trimmed or lost ones removed."""
    first = progress.first_ledger_id
    ids = {each for each in present_ids if each >= first}
    oldest = min(ids, default=progress.next.ledger_id)
    trimmed_ids = [
        each for each in progress.ledger_ids if each < min(oldest, progress.next.ledger_id)
    ]
    if trimmed_ids:
        first = max(trimmed_ids) + 1
    ids |= {each for each in progress.ledger_ids if each >= first} - lost_ids
    return replace(progress, ledger_ids=tuple(sorted(ids)), first_ledger_id=first)


def unfinished_ledgers(
    catalog: Catalog, topics: Sequence[TopicLedgers], progress: Mapping[TopicName, TopicProgress]
) -> dict[TopicName, set[int]]:
    """Return the ids of unread ledgers with a data object but no index object, by topic.

    Topics with metadata are left out, because their metadata lists all their ledgers.
    """
    by_bucket = [each for each in topics if each.metadata is None and each.ledgers]
    id_ranges = [
        range(progress.get(each.topic, TopicProgress()).next.ledger_id, each.ledgers[-1].ledger_id)
        for each in by_bucket
    ]
    names = {each.topic for each in by_bucket}
    unfinished: dict[TopicName, set[int]] = defaultdict(set)
    for each in catalog.bucket.unfinished:
        ledger_id = each.name.ledger_id
        if ledger_id is not None and any(ledger_id in id_range for id_range in id_ranges):
            # It may have been deleted since the bucket was listed.
            with suppress(MissingObjectError):
                owner = catalog.unfinished.topic(each.name)
                if owner in names:
                    unfinished[owner].add(ledger_id)
    return unfinished
