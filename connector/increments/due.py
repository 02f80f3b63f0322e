"""Which ledgers of a topic are due: progress against what the catalog has of the topic now.

| a ledger is | below the position | at the position or above |
|---|---|---|
| in the bucket, and was when the progress was made | read | due |
| in the bucket, and was not | late: an error | due |
| not in the bucket any more | retention took it: no fault | lost: an error |
| missing, says the metadata | passed | nothing is due from here on |

A ledger is missing if it should be offloaded, or if later ones are and it has entries.

Who salvages is told of each error instead, and reads what there is, as in a batch; but what is only
in BookKeeper until now is waited for all the same.
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
    """What of one topic can be read since a position, whatever its transactions.

    Attributes:
        topic: The topic, with all its ledgers that can be read.
        ledgers: Those that are due, ascending.
        last_read: The last one below the position; None if none is there.
        waiting: Ledgers that will be due when another one is there, which is missing now.
        notices: One sentence for each thing a reader of the rows must know of.
        progress: What is known from now on, the position being as before.
    """

    topic: TopicLedgers
    ledgers: tuple[Ledger, ...]
    last_read: Ledger | None
    waiting: tuple[Ledger, ...]
    notices: tuple[str, ...]
    progress: TopicProgress


def due_ledgers(
    topic: TopicLedgers,
    before: TopicProgress,
    unfinished: Iterable[int] = (),
    *,
    salvage: bool,
) -> DueLedgers:
    """Compare a topic with how far it was read.

    Args:
        topic: The topic.
        before: Its progress.
        unfinished: Ledgers with a data object and no index object.
        salvage: Whether a late or lost ledger, and one that cannot be read, is told, and no error.

    Raises:
        LateLedgerError: A ledger came to light below the position.
        MissingObjectError: A ledger that was in the bucket was deleted before it was read.
        PulsarOffloadError: A ledger that is due cannot be read.
    """
    problems = _Problems(topic.topic, salvage=salvage)
    if salvage:
        topic = topic.salvaged()
    present = {each.ledger_id: each for each in topic.data}
    for ledger_id in present:
        if ledger_id < before.next.ledger_id and not before.knows(ledger_id):
            problems.raise_or_note(_late_ledger_error(ledger_id, before))
    lost_ids = {each for each in before.unread_ledger_ids if each not in present}
    for ledger_id in sorted(lost_ids):
        problems.raise_or_note(lost_ledger_error(ledger_id))
    wall = _first_missing_ledger(topic, before, {*unfinished} - present.keys(), problems)
    unlisted = [each for each in topic.unknown if each.ledger_id >= before.next.ledger_id]
    if unlisted:
        problems.note(
            f"the metadata does not list {counted(len(unlisted), 'ledger')} in the bucket as"
            f" offloaded, so {agreeing(len(unlisted), 'it waits', 'they wait')}; it may be older"
        )
    read = [each for each in present.values() if each.ledger_id < before.next.ledger_id]
    unread = [each for each in present.values() if each.ledger_id >= before.next.ledger_id]
    return DueLedgers(
        topic,
        tuple(each for each in unread if wall is None or each.ledger_id < wall),
        max(read, default=None, key=lambda each: each.ledger_id),
        tuple(each for each in unread if wall is not None and each.ledger_id >= wall),
        tuple(problems.notices),
        _next_progress(before, present.keys(), lost_ids),
    )


class _Problems:
    """Errors as they come: raised, or kept as sentences."""

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


def _late_ledger_error(ledger_id: int, before: TopicProgress) -> LateLedgerError:
    ledger, entry = before.next
    message = (
        "the ledger came to light after the topic was read up to ledger"
        f" {ledger}, entry {entry}: its rows were not given, and will not be"
    )
    return LateLedgerError(message, ledger_id=ledger_id)


def lost_ledger_error(ledger_id: int) -> MissingObjectError:
    """The error for a ledger that was in the bucket, and is to be read."""
    message = (
        "the ledger was in the bucket when the progress was made, and is not there: it was deleted"
        " before it was read; or the catalog is older than the progress, and has to be opened anew"
    )
    return MissingObjectError(message, ledger_id=ledger_id)


def _first_missing_ledger(
    topic: TopicLedgers, before: TopicProgress, unfinished: set[int], problems: _Problems
) -> int | None:
    """The first ledger that should be there before others and is not; None if there is none."""
    if topic.metadata_error is not None:
        problems.raise_or_note(topic.metadata_error)
    own = {each.ledger_id for each in topic.data}
    coming: dict[int, str] = {}
    missing = {
        each: "its data object is there, its index object is not"
        for each in unfinished
        if before.next.ledger_id <= each < max(own, default=0)
    }
    for each in topic.states:
        if each.error is None or each.ledger_id < before.next.ledger_id or each.ledger_id in own:
            continue
        if each.state.is_pending:
            coming[each.ledger_id] = each.error.message
        elif isinstance(each.error, MissingObjectError):
            missing[each.ledger_id] = each.error.message
        else:
            problems.raise_or_note(each.error)
    if not problems.salvage:
        coming |= missing
    wall = min(coming, default=None)
    for ledger_id, reason in sorted((coming | missing).items()):
        if ledger_id == wall:
            problems.note(f"nothing is read from ledger {wall} on: {reason}")
            break
        problems.note(f"ledger {ledger_id} is left out: {reason}")
    return wall


def _next_progress(
    before: TopicProgress, present: Iterable[int], lost_ids: set[int]
) -> TopicProgress:
    """Which ledgers are known; none of those that retention took, nor what is older."""
    first = before.first_ledger_id
    ids = {each for each in present if each >= first}
    oldest = min(ids, default=before.next.ledger_id)
    trimmed_ids = [each for each in before.ledger_ids if each < min(oldest, before.next.ledger_id)]
    if trimmed_ids:
        first = max(trimmed_ids) + 1
    ids |= {each for each in before.ledger_ids if each >= first} - lost_ids
    return replace(before, ledger_ids=tuple(sorted(ids)), first_ledger_id=first)


def unfinished_ledgers(
    catalog: Catalog, topics: Sequence[TopicLedgers], progress: Mapping[TopicName, TopicProgress]
) -> dict[TopicName, set[int]]:
    """Ledgers of topics without metadata that have a data object and no index object.

    Args:
        catalog: What the topics were chosen of.
        topics: The topics. What the metadata lists is all there is of those that have some.
        progress: How far they were read; of ledgers that lie before, nothing is asked.
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
        if ledger_id is not None and any(ledger_id in between for between in id_ranges):
            # It may have been deleted since the bucket was listed.
            with suppress(MissingObjectError):
                owner = catalog.unfinished.topic(each.name)
                if owner in names:
                    unfinished[owner].add(ledger_id)
    return unfinished
