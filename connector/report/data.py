"""Data of the HTML report: when each ledger was written, and the resulting rates.

The tables are those of `connector.catalog.tables`, and the findings those of
`connector.upkeep.audit`. A ledger's creation time comes from its index object, and its closing time
from the metadata, so one of them is often unknown. It is then taken from the previous or the next
ledger, because a topic writes one ledger after another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from connector.catalog.tables import ledgers_table, topics_table
from connector.catalog.topic_ledgers import LedgerState
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
    """A ledger, and the time range in which it was written."""

    topic: str
    """Full name of the topic, with the partition."""
    ledger_id: int
    state: LedgerState
    entries: int
    """0 if unknown."""
    size_bytes: int
    """Length of the data object, or of the entries if there is no data object; 0 if unknown."""
    start_ms: int | None
    """When it was created, ms since the epoch; None if unknown."""
    stop_ms: int | None
    """When it was closed, ms since the epoch, at least `start_ms`; None if unknown."""

    @property
    def write_span(self) -> WriteSpan | None:
        """The entries, as if written evenly in that time; None if the time is unknown."""
        if self.start_ms is None or self.stop_ms is None:
            return None
        return WriteSpan(self.start_ms, self.stop_ms, self.entries, self.size_bytes)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast topics were written in a time range.

    Attributes:
        start_ms: Start of the range, ms since the epoch.
        stop_ms: End of the range, exclusive.
        count_per_s: Entries or messages per second.
    """

    start_ms: float
    stop_ms: float
    count_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """The data that an HTML report shows of a bucket, or of some topics in it."""

    topics: pa.Table
    """In `connector.catalog.tables.TOPIC_SCHEMA`."""
    ledgers: pa.Table
    """In `connector.catalog.tables.LEDGER_SCHEMA`."""
    spans: tuple[LedgerSpan, ...]
    """The ledgers, in the same order."""
    findings: tuple[Finding, ...]
    """Findings about these topics: losses first, then what can be deleted."""
    findings_elsewhere: int
    """Number of other findings: about other topics, or about an unknown topic."""
    has_metadata: bool
    """Whether there was metadata to compare with."""
    metadata_warnings: tuple[str, ...]
    """Why the metadata may be incomplete or out of date."""
    listed_at: datetime
    """When the bucket was listed."""
    publish_times: PublishTimes | None
    """When messages were published; None without statistics."""


def report_data(
    catalog: Catalog,
    audit: Audit,
    topic: str | Sequence[str] | None = None,
    statistics: str | os.PathLike[str] | None = None,
) -> ReportData:
    """Collect the data of an HTML report; see `render_report`.

    Raises:
        OptionError: The folder `statistics` does not exist.
        TopicNotFoundError: A name or glob selects no topic.
        PulsarOffloadError: The metadata or the statistics cannot be read.
    """
    folder = catalog.statistics if statistics is None else statistics
    ledgers = ledgers_table(catalog, topic)
    findings = audit.findings
    if topic is not None:
        selected = set(catalog.select_names(topic, segments="all"))
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
            state=LedgerState(state),
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
    """Fill in unknown times of a topic's ledgers from the previous and next ledgers.

    The ledgers are ordered by id. Consecutive ledgers without any time share the time between their
    neighbours evenly.
    """
    starts = [span.start_ms for span in spans]
    stops = [span.stop_ms for span in spans]
    for index in range(1, len(spans)):
        if stops[index - 1] is None:
            stops[index - 1] = starts[index]
        elif starts[index] is None:
            starts[index] = stops[index - 1]
    index = 1
    while index < len(spans):
        stop = index
        while stop < len(spans) and starts[stop] is None:
            stop += 1
        first, last = starts[index - 1], stops[stop - 1]
        if stop > index and first is not None and last is not None:
            for step in range(index, stop):
                time_ms = first + (last - first) * (step - index + 1) // (stop - index + 1)
                stops[step - 1] = starts[step] = time_ms
        index = stop + 1
    return [
        replace(span, start_ms=start, stop_ms=_clamp_stop(start, stop))
        for span, start, stop in zip(spans, starts, stops, strict=True)
    ]


def _clamp_stop(start_ms: int | None, stop_ms: int | None) -> int | None:
    """Return a closing time that is not before the creation time: their clocks may differ."""
    return stop_ms if start_ms is None or stop_ms is None else max(start_ms, stop_ms)


def rates(spans: Iterable[WriteSpan], start_ms: int, stop_ms: int, *, bins: int) -> list[Rate]:
    """Return the rate in each bin, as if each span had been written evenly.

    Args:
        spans: The written entries or messages; parts outside the bins are ignored.
        start_ms: Start of the first bin, ms since the epoch.
        stop_ms: End of the last bin, inclusive; later than the start.
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
        for index in range(first, last + 1):
            share = 1.0
            if begin < end and (first < last or begin < 0 or end > bins):
                share = max(0, min(end, index + 1) - max(begin, index)) / (end - begin)
            counts[index] += each.count * share
            sizes[index] += each.size_bytes * share
    width_s = width_ms / _MS_PER_S
    return [
        Rate(
            start_ms + index * width_ms,
            start_ms + (index + 1) * width_ms,
            counts[index] / width_s,
            sizes[index] / width_s,
        )
        for index in range(bins)
    ]
