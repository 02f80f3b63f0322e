"""The origin of a ledger according to its index object: cluster name, bookies and times.

BookKeeper assigns ledger ids in the order in which ledgers are created, and each cluster has its
own bookies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from arrow_io.format.index_block import CLUSTER_NAME_KEY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from arrow_io.format.ledger_metadata import LedgerMetadata
    from connector.catalog.kinds.ledger_copy import LedgerCopy
    from connector.catalog.metadata.topic_metadata import LedgerInfo

_BROKER_CLOCKS_MS: Final = 60_000
"""Assumed maximum difference between the clocks of brokers, which record these times."""
_NO_BOOKIE: Final = "127.0.0.1:3181"
"""The bookie that `new_ledger_metadata` names if there was none. Clusters on one machine use it
too."""


class LedgerTimes:
    """Times at which a cluster's ledgers were created and closed.

    The index objects of its own copies record the first, its metadata the second.
    """

    def __init__(self, own_copies: Collection[LedgerCopy], infos: Iterable[LedgerInfo]) -> None:
        created = {
            copy.name.ledger_id: metadata.ctime_ms
            for copy in own_copies
            if (metadata := ledger_metadata_of(copy)) and metadata.ctime_ms is not None
        }
        closed = [(each.ledger_id, each.timestamp_ms) for each in infos if each.timestamp_ms]
        # Ledgers that were written without a broker may record the times of their messages.
        if any(time_ms < created.get(ledger_id, 0) for ledger_id, time_ms in closed):
            closed = []
        times = sorted((*created.items(), *closed))
        self._ledger_ids = [ledger_id for ledger_id, _ in times]
        self._latest_ms = list(accumulate((time for _, time in times), max))
        self._earliest_ms = list(accumulate((time for _, time in reversed(times)), min))[::-1]

    def allow(self, ledger_id: int, created_ms: int | None) -> bool:
        """Return whether a ledger can have been created at a time, because ids ascend with it.

        A time that is unknown (None) is allowed.
        """
        if created_ms is None:
            return True
        left = bisect_left(self._ledger_ids, ledger_id)
        right = bisect_right(self._ledger_ids, ledger_id)
        is_early = left > 0 and created_ms < self._latest_ms[left - 1] - _BROKER_CLOCKS_MS
        is_late = (
            right < len(self._ledger_ids)
            and created_ms > self._earliest_ms[right] + _BROKER_CLOCKS_MS
        )
        return not is_early and not is_late


def recorded_cluster(user_metadata: Mapping[str, str] | None) -> str | None:
    """Return the cluster name in user metadata; None in folders and copies, which lack it."""
    return (user_metadata or {}).get(CLUSTER_NAME_KEY) or None


def ledger_metadata_of(copy: LedgerCopy) -> LedgerMetadata | None:
    """Return the ledger metadata in the index object; None if it cannot be read."""
    ledger = copy.ledger or copy.cut
    return None if ledger is None else ledger.ledger_metadata


def bookies_of(copy: LedgerCopy) -> set[str]:
    """Return the bookies that stored the ledger; empty if it was written without BookKeeper."""
    metadata = ledger_metadata_of(copy)
    segments = () if metadata is None else metadata.segments
    bookies = {member for segment in segments for member in segment.ensemble_members}
    return bookies - {_NO_BOOKIE}


def is_from_other_cluster(
    copy: LedgerCopy,
    info: LedgerInfo,
    own_copies: Collection[LedgerCopy],
    infos: Iterable[LedgerInfo],
) -> bool:
    """Return whether there is evidence that a sound copy belongs to another cluster's ledger.

    Sends no request. If the copy names no bookie, it was written without BookKeeper, and its times
    prove nothing: they may be those of its messages.

    Args:
        copy: The copy.
        info: The ledger in the metadata.
        own_copies: Copies of the topic's ledgers that are certainly the cluster's own.
        infos: All ledgers of the topic in the metadata.
    """
    clusters = {_cluster_of(each) for each in own_copies} - {None}
    if clusters and _cluster_of(copy) not in {None, *clusters}:
        return True
    bookies = bookies_of(copy)
    if not bookies:
        return False
    own_bookies = {bookie for each in own_copies for bookie in bookies_of(each)}
    if own_bookies and own_bookies.isdisjoint(bookies):
        return True
    metadata = ledger_metadata_of(copy)
    created_ms = None if metadata is None else metadata.ctime_ms
    if created_ms is None:
        return False
    closed_ms = info.timestamp_ms or created_ms
    is_late = created_ms > closed_ms + _BROKER_CLOCKS_MS
    broker_copies = [each for each in own_copies if bookies_of(each)]
    # Ledgers written without a broker have the times of their messages; so may those without a
    # copy.
    times = LedgerTimes(broker_copies, infos if len(broker_copies) == len(own_copies) else ())
    return is_late or not times.allow(info.ledger_id, created_ms)


def _cluster_of(copy: LedgerCopy) -> str | None:
    ledger = copy.ledger or copy.cut
    return None if ledger is None else recorded_cluster(ledger.user_metadata)
