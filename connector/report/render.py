"""Rendering of the HTML report of a topic or a whole bucket, as one self-contained page.

The page shows when each ledger was written and where it is stored, how large ledgers are, how fast
they were filled, and the findings of an audit.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from arrow_io.core.wording import agreeing, counted
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.snapshot.snapshot_file import SnapshotSource
from connector.catalog.topic_ledgers import LedgerState
from connector.display.text import size_text
from connector.report.axes import duration_text, time_text
from connector.report.charts import (
    STATE_TEXTS,
    TimeScale,
    legend,
    pattern_definitions,
    rate_charts,
    sizes_charts,
    swatch,
    timeline,
)
from connector.report.data import rates, report_data
from connector.report.page import (
    Column,
    Html,
    escape,
    facts,
    figures,
    heading,
    join_parts,
    note,
    page,
    section,
    table,
)
from connector.upkeep.forecast.cost import stored_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from connector.catalog.catalog import Catalog
    from connector.report.data import LedgerSpan, ReportData
    from connector.report.publish_times import PublishTimes
    from connector.upkeep.audit.audit import Audit
    from connector.upkeep.audit.findings import Finding

_MOST_ROWS: Final = 500
_MOST_LANES: Final = 40
_MOST_NAMES: Final = 5
_RATE_BINS: Final = 150
_PROBLEM_STATES: Final = frozenset({LedgerState.MISSING, LedgerState.UNSOUND, LedgerState.UNKNOWN})
_SEVERITIES: Final = ("loss", "deletable", "to look at")
"""Severities of findings, worst first."""
_NOTHING: Final = Html('<span class="note">–</span>')


def render_report(
    catalog: Catalog,
    audit: Audit,
    *,
    topic: str | Sequence[str] | None = None,
    metadata: str | None = None,
    statistics: str | os.PathLike[str] | None = None,
) -> str:
    """Return the HTML report.

    Args:
        catalog: The bucket, with the metadata if there is any.
        audit: The result of an audit of the same catalog.
        topic: Names or globs; None: the whole bucket.
        metadata: Source of the metadata; the page shows it without the secrets of URLs.
        statistics: Folder or URL of statistics, for publish times; None: those that a catalog
            snapshot names, if any.

    Returns:
        The HTML, to be written as UTF-8. It has at most two megabytes, unless names are unusually
        long.

    Raises:
        OptionError: The folder `statistics` does not exist.
        TopicNotFoundError: A name or glob selects no topic.
        PulsarOffloadError: The metadata or the statistics cannot be read.
    """
    data = report_data(catalog, audit, topic, statistics)
    selected = None if topic is None else set(catalog.select_names(topic, segments="all"))
    scale = TimeScale.from_spans(data.spans)
    bucket = str(catalog.location)
    names = data.topics["topic"].to_pylist()
    metadata_text = _metadata_text(catalog, metadata)
    title = f"Bucket {bucket}"
    if selected is not None:
        title = names[0] if len(names) == 1 else f"{len(names)} topics"
    parts = [
        pattern_definitions(),
        Html('<p class="eyebrow">Offloaded ledgers</p>'),
        heading(title),
        facts(_facts(data, None if selected is None else bucket, metadata_text, scale)),
        _totals(data, stored_bytes(catalog.contents, selected), scale),
        _verdict(data),
    ]
    if data.spans:
        parts += [_timeline(data, scale), _sizes(data)]
        parts.append(
            _rates(data, scale)
            if data.publish_times is None
            else _publish_rates(data.publish_times)
        )
    parts.append(_findings(data))
    if len(names) > 1:
        parts.append(_topics(data))
    if data.spans:
        parts.append(_ledgers(data))
    parts.append(Html("<footer>This page loads nothing and runs nothing.</footer>\n"))
    return page(f"{title} · offloaded ledgers", join_parts(parts))


def _facts(
    data: ReportData, bucket: str | None, metadata: str, scale: TimeScale | None
) -> Iterable[tuple[str, Html]]:
    names = data.topics["topic"].to_pylist()
    if bucket is not None:
        yield "Bucket", escape(bucket)
    if len(names) != 1 or bucket is None:
        yield "Topics", escape(_some(names) or "none")
    if scale is not None:
        times = f"{time_text(scale.start_ms)} to {time_text(scale.stop_ms)} UTC"
        yield "Written", escape(times)
    yield "Listed", escape(f"{_second(data.listed_at)} UTC")
    yield "Metadata", escape(metadata)


def _metadata_text(catalog: Catalog, metadata: str | None) -> str:
    if catalog.source is None:
        return "none: only the bucket is shown"
    origin = redacted_urls(metadata) if metadata else "available"
    if not isinstance(catalog.source, SnapshotSource):
        return origin
    return f"{origin}, a snapshot of {_second(catalog.source.listed_at)} UTC"


def _totals(data: ReportData, stored_bytes: int, scale: TimeScale | None) -> Html:
    entries = sum(data.topics["entries"].to_pylist())
    # Null if there is no metadata.
    pending = sum(filter(None, data.topics["pending_entries"].to_pylist()))
    states = Counter(span.state for span in data.spans)
    items = [
        ("Topics", f"{data.topics.num_rows:,}", _partitions(data)),
        ("Ledgers", f"{len(data.spans):,}", _counts(states, STATE_TEXTS)),
        (
            "Entries",
            f"{entries:,}",
            f"and {pending:,} in BookKeeper only" if pending else "readable from the bucket",
        ),
        ("Stored", size_text(stored_bytes), "with index objects and additional copies"),
        (
            "Findings",
            f"{len(data.findings):,}",
            _counts(Counter(map(_severity, data.findings)), _SEVERITIES) or "from the audit",
        ),
    ]
    if scale is not None:
        duration = duration_text(scale.stop_ms - scale.start_ms)
        items.insert(3, ("Written in", duration, "from the first to the last known time"))
    return figures(items)


def _partitions(data: ReportData) -> str:
    partitions = sum(data.topics["partitions"].to_pylist())
    noun = agreeing(partitions, "partition", "partitions")
    return f"with {partitions:,} {noun}" if partitions else "without partitions"


def _severity(finding: Finding) -> str:
    return "loss" if finding.is_loss else "deletable" if finding.deletable else "to look at"


def _counts(counts: Counter[Any], order: Iterable[str]) -> str:
    return ", ".join(f"{counts[each]:,} {each}" for each in order if counts[each])


def _verdict(data: ReportData) -> Html:
    losses = sum(finding.is_loss for finding in data.findings)
    if losses:
        say = agreeing(losses, "finding says", "findings say")
        verdict = f"{losses:,} {say} that messages cannot be read"
    elif data.findings:
        verdict = "All offloaded ledgers can be read, judged by index objects and sizes"
    else:
        verdict = "No problems found, judged by index objects and sizes"
    reservations = []
    if not data.has_metadata:
        reservations.append(
            "There was no metadata to compare with. So it is unknown which ledgers are missing"
            " before, between or after these, and which objects are no longer needed."
        )
    reservations += data.metadata_warnings[:_MOST_NAMES]
    further = len(data.metadata_warnings) - _MOST_NAMES
    if further > 0:
        points = agreeing(further, "point", "points")
        reservations.append(f"The metadata leaves {further:,} more {points} uncertain.")
    if data.findings_elsewhere:
        reservations.append(
            f"{data.findings_elsewhere:,} more"
            f" {agreeing(data.findings_elsewhere, 'finding is', 'findings are')} about other"
            " topics, or about an unknown topic; the report of the whole bucket shows"
            f" {agreeing(data.findings_elsewhere, 'it', 'them')}."
        )
    notes = join_parts(map(note, reservations))
    style = "card verdict loss" if losses else "card verdict"
    mark = "✕" if losses else "✓"
    return Html(
        f'<section class="{style}"><h2><span aria-hidden="true">{mark}</span> {escape(verdict)}'
        f"</h2>{notes}</section>\n"
    )


def _timeline(data: ReportData, scale: TimeScale | None) -> Html:
    grouped = groupby(data.spans, attrgetter("topic"))
    lanes = {topic: list(spans) for topic, spans in grouped}
    explanation = (
        "From the creation of each ledger to its closing, in UTC. If one of these times is"
        " unknown, that of the previous or next ledger is used; a ledger whose end is unknown is"
        " drawn as a stroke. Neighbours of one state that would be narrower than a stroke share"
        " one."
    )
    notes = [explanation]
    timeless = [
        name
        for name, spans in lanes.items()
        if all(span.start_ms is None and span.stop_ms is None for span in spans)
    ]
    if timeless:
        notes.append(f"No times are known for {_some(timeless)}: the ledgers are drawn in order.")
    selected = _select_lanes(lanes)
    if len(selected) < len(lanes):
        notes.append(
            f"{len(selected)} of {len(lanes):,} topics and partitions are drawn: first those with"
            " missing, unsound or unknown ledgers, then the largest."
        )
    return section(
        "Ledgers over time",
        *map(note, notes),
        legend(Counter(span.state for span in data.spans)),
        timeline([(name, lanes[name]) for name in selected], scale),
    )


def _some(names: Sequence[str]) -> str:
    first_names = ", ".join(names[:_MOST_NAMES])
    further = len(names) - _MOST_NAMES
    return f"{first_names} and {further:,} more" if further > 0 else first_names


def _select_lanes(lanes: dict[str, list[LedgerSpan]]) -> list[str]:
    def weight(name: str) -> tuple[int, int]:
        problem_count = sum(span.state in _PROBLEM_STATES for span in lanes[name])
        return problem_count, sum(span.size_bytes for span in lanes[name])

    largest = set(sorted(lanes, key=weight, reverse=True)[:_MOST_LANES])
    return [name for name in lanes if name in largest]


def _sizes(data: ReportData) -> Html:
    text = (
        "Bytes of data objects, or of entries if a ledger is not in the bucket, in the order of"
        " ledger ids."
    )
    return section("Sizes", note(text), sizes_charts(data.spans))


def _rates(data: ReportData, scale: TimeScale | None) -> Html:
    spans = [span.write_span for span in data.spans if span.write_span is not None]
    left_out = sum(span.entries > 0 and span.write_span is None for span in data.spans)
    explanation = (
        "As if each ledger had been filled evenly from its creation to its closing. With"
        " statistics, which pulsar-offload analyze gathers, publish times are shown instead."
    )
    if left_out:
        ledgers, are = agreeing(left_out, "ledger", "ledgers"), agreeing(left_out, "is", "are")
        explanation = f"{explanation} {left_out:,} {ledgers} with unknown times {are} left out."
    if scale is None or not spans:
        return section("Rate", note("The times at which these ledgers were written are unknown."))
    bins = min(_RATE_BINS, scale.stop_ms - scale.start_ms)
    per_bin = rates(spans, scale.start_ms, scale.stop_ms, bins=bins)
    return section("Rate", note(explanation), rate_charts(per_bin, scale, "Entries"))


def _publish_rates(times: PublishTimes) -> Html:
    """Return the rates by publish times, and how complete statistics are."""
    notes = list(_coverage(times))
    scale = TimeScale.from_zones(times.zones)
    if scale is None:
        return section("Rate", note("No publish times are known."), *map(note, notes))
    bins = min(_RATE_BINS, scale.stop_ms - scale.start_ms)
    per_bin = rates(times.zones, scale.start_ms, scale.stop_ms, bins=bins)
    explanation = (
        "By publish times, which are those of the producers' clocks. Statistics record them per"
        " zone of about 1 MiB; its messages are spread evenly from its earliest to its latest"
        " time. Messages of open and aborted transactions count; bytes are stored bytes."
    )
    drawn_count = sum(each.count_per_s * (each.stop_ms - each.start_ms) / 1000 for each in per_bin)
    outside = round(sum(each.count for each in times.zones) - drawn_count)
    if outside:
        are = agreeing(outside, "message was", "messages were")
        notes.append(f"About {outside:,} {are} published before or after that, and not drawn.")
    if times.timeless_zones:
        zones = agreeing(times.timeless_zones, "zone", "zones")
        notes.append(
            f"{times.timeless_zones:,} {zones} with"
            f" {counted(times.timeless_messages, 'message')} but without times (chunks, encrypted"
            f" or damaged entries) {agreeing(times.timeless_zones, 'is', 'are')} left out."
        )
    return section(
        "Rate", note(explanation), *map(note, notes), rate_charts(per_bin, scale, "Messages")
    )


def _coverage(times: PublishTimes) -> Iterable[str]:
    """Yield sentences about which ledgers statistics record, and which records are out of date."""
    yield (
        f"Statistics record {times.recorded_ledgers:,} of {counted(times.ledgers, 'ledger')} in"
        f" the bucket, {size_text(times.recorded_bytes)} of {size_text(times.data_bytes)}."
    )
    if times.stale:
        ledgers = _some([f"{topic}, ledger {ledger_id}" for topic, ledger_id in times.stale])
        yield f"They are stale for {ledgers}, because the object was replaced."
    if times.gone_ledgers:
        ledgers = counted(times.gone_ledgers, "ledger")
        yield f"They also record {ledgers} that can no longer be read from the bucket."
    yield from times.problems


def _findings(data: ReportData) -> Html:
    if not data.findings:
        return section("Findings", note("The audit found nothing."))
    columns = (
        *(Column("Severity"), Column("Kind"), Column("What", "long"), Column("Topic")),
        *(Column("Ledger", "number"), Column("Objects", "code"), Column("Bytes", "number")),
    )
    rows = (
        (
            Html(f'<b class="{_severity(each).replace(" ", "-")}">{_severity(each)}</b>'),
            escape(each.kind),
            escape(each.text),
            _or_nothing(each.topic),
            _or_nothing(each.ledger_id),
            Html("<br />".join(map(escape, each.objects))) or _NOTHING,
            escape(size_text(each.stored_bytes)) if each.objects else _NOTHING,
        )
        for each in data.findings[:_MOST_ROWS]
    )
    meaning = (
        "A loss means that messages cannot be read. Deletable objects are no longer needed,"
        " according to metadata that is newer than they are."
    )
    notes = [note(meaning), *_remainder(len(data.findings), "findings", "pulsar-offload audit")]
    return section("Findings", *notes, table("Findings", columns, rows))


def _topics(data: ReportData) -> Html:
    columns = (
        *(Column("Topic"), Column("Partitions", "number"), Column("Ledgers", "number")),
        *(Column("Entries", "number"), Column("Bytes", "number"), Column("Pending", "number")),
        *(Column("Unsound", "number"),),
    )
    rows = (
        (
            escape(row["topic"]),
            _or_nothing(row["partitions"] or None),
            _number(row["ledgers"]),
            _number(row["entries"]),
            escape(size_text(row["bytes"])),
            _number(row["pending_ledgers"]),
            _number(row["unsound"]),
        )
        for row in data.topics.slice(0, _MOST_ROWS).to_pylist()
    )
    text = (
        "What can be read from the bucket. Pending ledgers are in BookKeeper only, after all"
        " offloaded ones."
    )
    remainder = _remainder(data.topics.num_rows, "topics", "pulsar-offload topics")
    return section("Topics", note(text), *remainder, table("Topics", columns, rows))


def _ledgers(data: ReportData) -> Html:
    columns = (
        *(Column("Topic"), Column("Ledger", "number"), Column("State")),
        *(Column("Entries", "number"), Column("Bytes", "number")),
        *(Column("Entry bytes", "number"), Column("Blocks", "number")),
        *(Column("Created", "number"), Column("Closed", "number"), Column("Offloaded", "number")),
        *(Column("Copies", "number"), Column("Uuid", "code"), Column("Remarks", "line")),
    )
    rows = map(_ledger_cells, data.ledgers.slice(0, _MOST_ROWS).to_pylist())
    remainder = _remainder(data.ledgers.num_rows, "ledgers", "pulsar-offload ledgers")
    return section("Ledgers", *remainder, table("Ledgers", columns, rows))


def _ledger_cells(row: dict[str, Any]) -> tuple[Html, ...]:
    remarks = [*row["problems"], *row["warnings"]]
    return (
        escape(row["topic"]),
        escape(row["ledger_id"]),
        Html(f"{swatch(row['state'])}{escape(row['state'])}"),
        _number(row["entries"]),
        _size(row["bytes"]),
        _size(row["entry_bytes"]),
        _number(row["blocks"]),
        *(_or_nothing(row[name] and _second(row[name])) for name in ("created", "closed")),
        _or_nothing(row["offloaded"] and _second(row["offloaded"])),
        _number(row["copies"]),
        _or_nothing(row["uuid"]),
        _add_tooltip("; ".join(remarks)) if remarks else _NOTHING,
    )


def _add_tooltip(text: str) -> Html:
    """Return text with a tooltip that shows it whole if it is clipped."""
    return Html(f'<span title="{escape(text)}">{escape(text)}</span>')


def _remainder(rows: int, noun: str, command: str) -> list[Html]:
    if rows <= _MOST_ROWS:
        return []
    return [note(f"The first {_MOST_ROWS} of {rows:,} {noun}; {command} lists them all.")]


def _number(number: int | None) -> Html:
    return _NOTHING if number is None else escape(f"{number:,}")


def _size(size_bytes: int | None) -> Html:
    return _NOTHING if size_bytes is None else escape(size_text(size_bytes))


def _or_nothing(value: object) -> Html:
    return _NOTHING if value is None else escape(value)


def _second(time: datetime) -> str:
    return time.replace(tzinfo=None).isoformat(" ", "seconds")
