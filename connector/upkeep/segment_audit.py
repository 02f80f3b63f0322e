"""Segments of streaming offload (PIP-76) in an audit: each is judged whole.

A segment is needed as long as any of its ledgers needs its share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from connector.catalog.segment_copies import SegmentedCopy
from connector.catalog.topic_ledgers import LedgerStanding
from connector.topic_name import TopicName
from connector.upkeep.findings import (
    NO_TOPIC,
    REPAIRABLE,
    FindingKind,
    doubted,
    judged,
    of_objects,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from connector.catalog.catalog import Catalog
    from connector.catalog.ledger_copy import LedgerCopy
    from connector.catalog.segment_copies import SegmentCopy
    from connector.catalog.topic_ledgers import TopicLedgers
    from connector.upkeep.deletability import Deletability
    from connector.upkeep.findings import Finding


class SegmentAuditor:
    """Says what is wrong with segments.

    Args:
        catalog: The bucket, with the metadata if there is any.
        topics: Every topic of the catalog.
        deletability: Tells why what a segment has of a ledger may be needed.
    """

    def __init__(
        self, catalog: Catalog, topics: Sequence[TopicLedgers], deletability: Deletability
    ) -> None:
        self._catalog = catalog
        self._deletability = deletability
        self._topics = {each.topic: each for each in topics}
        has_metadata = catalog.source is not None
        self._needed_segments = {
            segment.name
            for topic in topics
            if topic.metadata is not None or not has_metadata
            for ledger in topic.states
            if isinstance(ledger.copy, SegmentedCopy) and not ledger.state.is_stray
            for segment in ledger.copy.segments
        }

    def of_segment(self, segment: SegmentCopy) -> Iterator[Finding]:
        """A segment of streaming offload that no ledger needs, or that is not as it should be."""
        if segment.segment is None:
            text = str(segment.error)
            if segment.data is not None and segment.name.uuid in self._deletability.named:
                text = f"{text}; {REPAIRABLE}"
            found = _segment_finding(FindingKind.FORMAT_MISMATCH, text, segment)
            yield replace(found, is_loss=self._catalog.source is None)
            return
        if segment.segment.starts is not None:
            text = segment.segment.warnings[0]
            yield _segment_finding(FindingKind.MISCOUNTED, text, segment)
        if segment.name in self._needed_segments:
            return
        owners = [self._owner(copy) for copy in segment.copies]
        if None in owners:
            text = "a segment of streaming offload (PIP-76) of which nothing names the topic"
            found = _segment_finding(FindingKind.STREAMING, text, segment)
            is_known = self._catalog.source is not None
            yield doubted(found, NO_TOPIC) if is_known else replace(found, is_loss=True)
            return
        known = [(copy, of) for copy, of in zip(segment.copies, owners, strict=True) if of]
        states = [self._state(of, copy) for copy, of in known]
        kind, text = FindingKind.ORPHAN, "a segment of ledgers that their topic does not have"
        if LedgerStanding.UNKNOWN in states:
            kind = FindingKind.UNLISTED
            text = "a segment that the metadata, which may be older, does not have"
        elif any(state is not None and not state.is_stray for state in states):
            kind, text = FindingKind.DOUBLE, "a segment of ledgers of which other copies count"
        found = _segment_finding(kind, text, segment, known[0][1].topic)
        if self._catalog.source is None:
            yield found
            return
        yield judged(found, lambda: self._doubt_of_segment(segment, known, found.modified))

    def _doubt_of_segment(
        self,
        segment: SegmentCopy,
        shares: Sequence[tuple[LedgerCopy, TopicLedgers]],
        modified: datetime | None,
    ) -> str | None:
        """Why a ledger may need its share of a segment; the first reason of any."""
        # Its index object may lack a ledger for which the metadata names it.
        state = self._deletability.named.get(segment.name.uuid)
        if state is not None:
            return f"the metadata names it: {state}"
        if len({topic.topic for _, topic in shares}) > 1:
            return "its ledgers are of several topics, of which no writer makes a segment"
        doubts = (self._deletability.doubt_of_copy(topic, copy, modified) for copy, topic in shares)
        return next((doubt for doubt in doubts if doubt is not None), None)

    def _owner(self, copy: LedgerCopy) -> TopicLedgers | None:
        """The topic of a ledger in a segment: the one it names, or that has a ledger of its id."""
        if isinstance(copy.topic, TopicName):
            return self._topics.get(copy.topic)
        if copy.topic is not None:
            return None
        owners = self._deletability.owners.get(copy.name.ledger_id, [])
        return owners[0] if len(owners) == 1 else None

    def _state(self, topic: TopicLedgers, copy: LedgerCopy) -> LedgerStanding | None:
        """Where the topic has a ledger; None if it does not have it, or nothing is known of it."""
        ids = (each for each in topic.states if each.ledger_id == copy.name.ledger_id)
        found = next(ids, None) if topic.metadata is not None else None
        return None if found is None else found.state


def _segment_finding(
    kind: FindingKind, text: str, segment: SegmentCopy, topic: TopicName | None = None
) -> Finding:
    return of_objects(kind, text, segment.objects, topic or segment.topic)
