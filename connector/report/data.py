"""What a report shows: when each ledger was written, and what that makes of entries a second.

The tables are those of `catalog_tables`, the findings those of `upkeep.audit`. A ledger's index
object says when it was created, and only the metadata says when it was closed, so one of both is
often not known. It is then taken from the ledger before or behind, since a topic writes one ledger
after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from connector.catalog.tables import ledgers_table, topics_table
from connector.catalog.topic_ledgers import LedgerStanding
from connector.inputs.topic_names import select_topics
from connector.report.publish_times import PublishTimes, WriteSpan, read_publish_times

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from connector.catalog.catalog import Catalog
    from connector.upkeep.audit.audit import Audit
    from connector.upkeep.audit.findings import Finding

_US_PER_MS = 1000
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSpan:
    """A ledger, and the time in which it was written."""

    topic: str
    """Full name of the topic, with the partition."""
    ledger_id: int
    state: LedgerStanding
    entries: int
    """0 if it is not known."""
    size_bytes: int
    """Length of the data object, or of the entries if it is not there; 0 if it is not known."""
    start_ms: int | None
    """When it was created, ms since the epoch; None if it is not known."""
    stop_ms: int | None
    """When it was closed, ms since the epoch, not before it was created; None if not known."""

    @property
    def write_span(self) -> WriteSpan | None:
        """The entries, as if written evenly in that time; None if it is not known."""
        if self.start_ms is None or self.stop_ms is None:
            return None
        return WriteSpan(self.start_ms, self.stop_ms, self.entries, self.size_bytes)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast topics were written in one span of time.

    Attributes:
        start_ms: When it begins, ms since the epoch.
        stop_ms: When it ends, exclusive.
        count_per_s: Entries or messages a second.
        bytes_per_s: Bytes a second.
    """

    start_ms: float
    stop_ms: float
    count_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """What a report shows of a bucket, or of some topics in it."""

    topics: pa.Table
    """In `catalog_tables.TOPIC_SCHEMA`."""
    ledgers: pa.Table
    """In `catalog_tables.LEDGER_SCHEMA`."""
    spans: tuple[LedgerSpan, ...]
    """The ledgers, in the same order."""
    findings: tuple[Finding, ...]
    """Findings about these topics: losses first, then what can be deleted."""
    findings_elsewhere: int
    """How many findings are left out: of other topics, or of a topic that is not known."""
    has_metadata: bool
    """Whether there was metadata to compare with."""
    metadata_warnings: tuple[str, ...]
    """What the metadata leaves unsure."""
    listed_at: datetime
    """When the bucket was listed."""
    publish_times: PublishTimes | None
    """When messages were published; None if there are no statistics."""


def report_data(
    catalog: Catalog,
    audit: Audit,
    topic: str | Sequence[str] | None = None,
    statistics: str | os.PathLike[str] | None = None,
) -> ReportData:
    """Gather what a report shows.

    Args:
        catalog: The bucket, with the metadata if there is any.
        audit: What an audit of the same catalog found.
        topic: Names or globs; None: the whole bucket.
        statistics: Folder or URL of statistics; None: those that the catalog was saved with, if
            there are any.

    Raises:
        OptionError: The folder `statistics` does not exist.
        TopicNotFoundError: A name or glob selects no topic.
        PulsarOffloadError: The metadata or the statistics cannot be read.
    """
    folder = catalog.statistics if statistics is None else statistics
    ledgers = ledgers_table(catalog, topic)
    findings = audit.findings
    if topic is not None:
        selected = set(select_topics(topic, catalog.topics()))
        findings = tuple(each for each in findings if each.topic in selected)
    return ReportData(
        topics=topics_table(catalog, topic),
        ledgers=ledgers,
        spans=tuple(_spans(ledgers)),
        findings=tuple(sorted(findings, key=lambda each: (not each.is_loss, not each.deletable))),
        findings_elsewhere=len(audit.findings) - len(findings),
        has_metadata=audit.has_metadata,
        metadata_warnings=tuple(catalog.source.warnings) if catalog.source else (),
        listed_at=audit.listed_at,
        publish_times=None if folder is None else read_publish_times(catalog, folder, topic),
    )


def _spans(ledgers: pa.Table) -> Iterable[LedgerSpan]:
    names = ("topic", "ledger_id", "state", "entries", "bytes", "entry_bytes")
    columns = [ledgers[name].to_pylist() for name in names]
    columns += [_milliseconds(ledgers[name]) for name in ("created", "closed")]
    spans = (
        LedgerSpan(
            topic=topic,
            ledger_id=ledger_id,
            state=LedgerStanding(state),
            entries=entries or 0,
            size_bytes=(entry_bytes if size_bytes is None else size_bytes) or 0,
            start_ms=created,
            stop_ms=closed,
        )
        for topic, ledger_id, state, entries, size_bytes, entry_bytes, created, closed in zip(
            *columns, strict=True
        )
    )
    for _, topic_spans in groupby(spans, attrgetter("topic")):
        yield from fill_times_from_neighbours(list(topic_spans))


def _milliseconds(times: pa.ChunkedArray) -> list[int | None]:
    return [
        None if time is None else time // _US_PER_MS for time in times.cast(pa.int64()).to_pylist()
    ]


def fill_times_from_neighbours(spans: Sequence[LedgerSpan]) -> list[LedgerSpan]:
    """Fill in times that are not known from the ledgers before and behind.

    Neighbours without any time share the time from the ledger before them to the one behind.

    Args:
        spans: The ledgers of one topic, by ledger id.
    """
    starts = [span.start_ms for span in spans]
    stops = [span.stop_ms for span in spans]
    for at in range(1, len(spans)):
        if stops[at - 1] is None:
            stops[at - 1] = starts[at]
        elif starts[at] is None:
            starts[at] = stops[at - 1]
    at = 1
    while at < len(spans):
        stop = at
        while stop < len(spans) and starts[stop] is None:
            stop += 1
        first, last = starts[at - 1], stops[stop - 1]
        if stop > at and first is not None and last is not None:
            for step in range(at, stop):
                shared = first + (last - first) * (step - at + 1) // (stop - at + 1)
                stops[step - 1] = starts[step] = shared
        at = stop + 1
    return [
        replace(span, start_ms=start, stop_ms=_clamp_stop(start, stop))
        for span, start, stop in zip(spans, starts, stops, strict=True)
    ]


def _clamp_stop(start_ms: int | None, stop_ms: int | None) -> int | None:
    """Clocks differ: a ledger that was closed before it was created lasted no time."""
    return stop_ms if start_ms is None or stop_ms is None else max(start_ms, stop_ms)


def rates(spans: Iterable[WriteSpan], start_ms: int, stop_ms: int, *, bins: int) -> list[Rate]:
    """How fast something was written, each part evenly from its first to its last moment.

    Args:
        spans: What was written; what lies outside of the bins is left out.
        start_ms: When the first bin begins, ms since the epoch.
        stop_ms: When the last bin ends, later than that; what was written then is in it.
        bins: Number of bins, which have equal lengths; 1 or more.
    """
    width_ms = (stop_ms - start_ms) / bins
    counts, sizes = [0.0] * bins, [0.0] * bins
    for each in spans:
        if each.stop_ms < start_ms or each.start_ms > stop_ms:
            continue
        begin = (each.start_ms - start_ms) / width_ms
        end = (each.stop_ms - start_ms) / width_ms
        first, last = max(0, min(int(begin), bins - 1)), min(int(end), bins - 1)
        for at in range(first, last + 1):
            share = 1.0
            if begin < end and (first < last or begin < 0 or end > bins):
                share = max(0, min(end, at + 1) - max(begin, at)) / (end - begin)
            counts[at] += each.count * share
            sizes[at] += each.size_bytes * share
    width_s = width_ms / _MS_PER_S
    return [
        Rate(
            start_ms + at * width_ms,
            start_ms + (at + 1) * width_ms,
            counts[at] / width_s,
            sizes[at] / width_s,
        )
        for at in range(bins)
    ]
