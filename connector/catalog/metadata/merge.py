"""Merging the metadata of one topic from several sources.

The sources were read at different times. A topic gets ledgers at its end and loses them at its
start. So of two lists, the one that ends later is newer; if both end alike, the one that starts
later. The topic has the ledgers of the newer list. Ledgers that this list lacks in the middle are
added: one of the lists is damaged then. (A saved value may be truncated, and its ledgers are in no
order.) The data of each ledger comes from all sources. An offload is complete if any source says
so, and uuids that only other sources have are added as `other_uuids`.

A list is proven to be complete by checksums. Without them, two sources prove each other: as far as
both reach, and below the first ledger about which they disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from arrow_io.core.wording import agreeing, counted
from connector.catalog.metadata.topic_metadata import checked_ledgers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from connector.catalog.metadata.topic_metadata import LedgerInfo, OffloadContext, TopicMetadata

    OffloadJoin = Callable[[OffloadContext | None, OffloadContext | None], OffloadContext | None]

_Value = TypeVar("_Value")


def merge_metadata(
    value: TopicMetadata | None,
    info: TopicMetadata | None,
    stats: TopicMetadata | None,
    warnings: list[str],
    *,
    is_checked: bool = False,
) -> TopicMetadata | None:
    """Merge the metadata of a topic from its sources; None if all are missing.

    Args:
        value: The metadata store's value, which the broker itself uses.
        info: The admin API's internal-info, which does not say which offloads are complete.
        stats: The admin API's internalStats, which has no uuids.
        warnings: Receives doubts, and contradictions between the sources.
        is_checked: Whether each source is known to be unchanged and complete.

    Raises:
        CorruptMetadataError: The merged metadata is impossible for a topic.
    """
    sources = [each for each in (value, info, stats) if each is not None]
    value, info, stats = _share_termination(value, info, stats)
    names = ("internalStats", "internal-info")
    answers, answers_disagreement = _merge_pair(stats, info, _join_answers, names)
    names = ("the metadata store's value", "the admin API's answers")
    merged, overall_disagreement = _merge_pair(value, answers, _join_offloads, names)
    if merged is None:
        return None
    # Two lists that both reach a ledger confirm each other up to it.
    lasts = sorted((each.last_ledger_id for each in sources), reverse=True)
    proven_to = lasts[0] if is_checked else [*lasts, -1][1]
    for disagreement in (answers_disagreement, overall_disagreement):
        warnings.extend(f"{merged.topic}: {text}" for text in disagreement.texts())
        if disagreement.first_ledger_id is not None:
            proven_to = min(proven_to, disagreement.first_ledger_id - 1)
    return replace(merged, proven_to_ledger_id=proven_to)


def _share_termination(*sources: TopicMetadata | None) -> Iterator[TopicMetadata | None]:
    """Yield the sources, each with the termination that one of them may record.

    When a topic is terminated, Pulsar records its end, but no entries of the ledger that was open.
    """
    positions = (each.terminated_position for each in sources if each is not None)
    position = next((each for each in positions if each is not None), None)
    for source in sources:
        if source is None or position is None:
            yield source
        else:
            ledgers = _fill_last_ledger(source.ledgers, position)
            yield replace(source, ledgers=ledgers, terminated_position=position)


def _fill_last_ledger(
    ledgers: Sequence[LedgerInfo], position: tuple[int, int]
) -> Sequence[LedgerInfo]:
    if not ledgers or ledgers[-1].entries or position[0] > ledgers[-1].ledger_id:
        return ledgers
    *previous, last = ledgers
    entries = position[1] + 1 if position[0] == last.ledger_id else 0
    return *previous, replace(last, entries=entries, size_bytes=last.size_bytes or None)


def _join_answers(
    stats: OffloadContext | None, info: OffloadContext | None
) -> OffloadContext | None:
    """Return the uuid of internal-info with the completeness of internalStats."""
    return stats if info is None else replace(info, complete=stats is not None)


def _join_offloads(
    value: OffloadContext | None, answers: OffloadContext | None
) -> OffloadContext | None:
    """Return the offload of the value, unless only the answers record its completion."""
    if value is None or answers is None:
        return value or answers
    are_newer = bool(answers.complete and not value.complete)
    if are_newer and answers.uuid in {None, value.uuid}:
        return replace(value, complete=True)
    base, other = (answers, value) if are_newer else (value, answers)
    others = tuple(each for each in other.uuids if each not in base.uuids)
    return replace(base, other_uuids=others) if others else base


@dataclass(frozen=True, slots=True, kw_only=True)
class _Disagreement:
    """Contradictions between two lists of one topic's ledgers, as far as both reach.

    Attributes:
        older: The name of the source of the older list.
        newer: The name of the source of the newer list.
        trimmed_ids: Ids that only the older list has, before the start of the newer list.
        lost_ids: Ids that only the older list has, after the start of the newer list.
        added_ids: Ids that only the newer list has, though the older list reaches further.
        empty_ids: Ids that only one list has, of ledgers that are not known to have an entry.
        contradictions: Ledger id and text for each number that differs.
    """

    older: str = ""
    newer: str = ""
    trimmed_ids: tuple[int, ...] = ()
    lost_ids: tuple[int, ...] = ()
    added_ids: tuple[int, ...] = ()
    empty_ids: tuple[int, ...] = ()
    contradictions: tuple[tuple[int, str], ...] = ()

    @property
    def first_ledger_id(self) -> int | None:
        """The smallest id about which the lists disagree; None if they agree.

        Empty and open ledgers count: if one is missing, a broker may have dropped it because it
        stayed empty, or the list may be damaged.
        """
        disputed = (
            *(*self.trimmed_ids, *self.lost_ids, *self.added_ids, *self.empty_ids),
            *(ledger_id for ledger_id, _ in self.contradictions),
        )
        return min(disputed, default=None)

    def texts(self) -> Iterator[str]:
        """Yield warnings. Empty ledgers have none: a broker that loads a topic drops them."""
        for ledger_id, text in self.contradictions:
            yield f"ledger {ledger_id} has {text}"
        if self.trimmed_ids:
            yield (
                f"{self.older} has {counted(len(self.trimmed_ids), 'ledger')} more than"
                f" {self.newer}, which is newer, the first: {self.trimmed_ids[0]};"
                f" {agreeing(len(self.trimmed_ids), 'it is', 'they are')} assumed to be trimmed"
            )
        for source, ids in ((self.newer, self.lost_ids), (self.older, self.added_ids)):
            if ids:
                yield (
                    f"{source} lacks {counted(len(ids), 'ledger')} among those that it lists,"
                    f" the first: {ids[0]}; it may be damaged"
                )


def _disagreement(
    older: TopicMetadata,
    newer: TopicMetadata,
    names: tuple[str, str],
    contradictions: Iterable[tuple[int, str]],
) -> _Disagreement:
    if not older.ledgers or not newer.ledgers:
        return _Disagreement()
    older_ids, newer_ids = (
        {each.ledger_id for each in source.ledgers} for source in (older, newer)
    )
    absent = [each for each in older.ledgers if each.ledger_id not in newer_ids]
    added = [
        each
        for each in newer.ledgers
        if each.ledger_id not in older_ids and each.ledger_id < older.last_ledger_id
    ]
    first = newer.ledgers[0].ledger_id
    filled = [each for each in absent if each.entries]
    return _Disagreement(
        older=names[0],
        newer=names[1],
        trimmed_ids=_ids(each for each in filled if each.ledger_id < first),
        lost_ids=_ids(each for each in filled if each.ledger_id > first),
        added_ids=_ids(each for each in added if each.entries),
        empty_ids=_ids(each for each in (*absent, *added) if not each.entries),
        contradictions=tuple(contradictions),
    )


def _ids(ledgers: Iterable[LedgerInfo]) -> tuple[int, ...]:
    return tuple(each.ledger_id for each in ledgers)


def _merge_pair(
    first: TopicMetadata | None,
    second: TopicMetadata | None,
    join: OffloadJoin,
    names: tuple[str, str],
) -> tuple[TopicMetadata | None, _Disagreement]:
    """Merge two sources of one topic; where both have a value, the first wins."""
    if first is None or second is None:
        return first or second, _Disagreement()
    first_ledgers = {ledger.ledger_id: ledger for ledger in first.ledgers}
    second_ledgers = {ledger.ledger_id: ledger for ledger in second.ledgers}
    newer, older = sorted((first, second), key=_age_rank, reverse=True)
    disagreement = _disagreement(
        older,
        newer,
        names if older is first else names[::-1],
        (
            (ledger_id, contradiction)
            for ledger_id in sorted(first_ledgers.keys() & second_ledgers.keys())
            for contradiction in _contradictions(
                first_ledgers[ledger_id], second_ledgers[ledger_id], names
            )
        ),
    )
    ledgers: list[LedgerInfo] = []
    for ledger_id in sorted((*_ids(newer.ledgers), *disagreement.lost_ids)):
        ledger, other = first_ledgers.get(ledger_id), second_ledgers.get(ledger_id)
        if ledger is None or other is None:
            ledgers.extend(each for each in (ledger, other) if each is not None)
        else:
            ledgers.append(_merge_ledgers(ledger, other, join))
    merged = replace(
        first,
        ledgers=checked_ledgers(ledgers),
        properties=first.properties or second.properties,
        cursors=_join_cursors(first.cursors, second.cursors),
    )
    return merged, disagreement


def _join_cursors(
    first: Mapping[str, tuple[int, int]], second: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Return the cursors of both, each at its greater position: acknowledging moves it forward."""
    cursors = dict(first)
    for name, position in second.items():
        cursors[name] = max(position, cursors.get(name, position))
    return cursors


def _age_rank(metadata: TopicMetadata) -> tuple[int, ...]:
    """Return a sort key that is greater for a source read later."""
    return tuple(each.ledger_id for each in (*metadata.ledgers[-1:], *metadata.ledgers[:1]))


def _merge_ledgers(ledger: LedgerInfo, other: LedgerInfo, join: OffloadJoin) -> LedgerInfo:
    return replace(
        ledger,
        entries=_coalesce(ledger.entries, other.entries),
        size_bytes=_coalesce(ledger.size_bytes, other.size_bytes),
        timestamp_ms=_coalesce(ledger.timestamp_ms, other.timestamp_ms),
        offload=join(ledger.offload, other.offload),
        properties=ledger.properties or other.properties,
    )


def _contradictions(ledger: LedgerInfo, other: LedgerInfo, names: tuple[str, str]) -> Iterator[str]:
    offload, other_offload = ledger.offload, other.offload
    both_complete = ledger.is_offloaded and other.is_offloaded
    for what, value, other_value in (
        ("entries", ledger.entries, other.entries),
        ("bytes", ledger.size_bytes, other.size_bytes),
        (
            "as the uuid of its offload",
            offload.uuid if offload and both_complete else None,
            other_offload.uuid if other_offload and both_complete else None,
        ),
    ):
        if value is not None and other_value is not None and value != other_value:
            yield (f"{value} {what} by {names[0]}, {other_value} by {names[1]}; the first is used")


def _coalesce(first: _Value | None, second: _Value | None) -> _Value | None:
    return second if first is None else first
