"""Charts of the HTML report, as SVG that the page's style colours.

Horizontal positions are percentages, and heights are pixels. So a chart fits any width without a
script, and its text keeps its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from arrow_io.core.wording import agreeing
from connector.catalog.topic_ledgers import LedgerState
from connector.display.text import size_text
from connector.inputs.times import milliseconds_of
from connector.report.axes import count_text, time_text, time_ticks, value_ticks
from connector.report.page import Html, escape, join_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connector.report.data import LedgerSpan, Rate
    from connector.report.publish_times import WriteSpan

STATE_TEXTS: Final = {
    LedgerState.OFFLOADED: "in the bucket",
    LedgerState.BOTH: "in the bucket and in BookKeeper",
    LedgerState.BOOKKEEPER: "closed, and in BookKeeper only",
    LedgerState.OFFLOADING: "in BookKeeper; an offload was started but is not complete",
    LedgerState.OPEN: "still being written",
    LedgerState.EMPTY: "closed without an entry",
    LedgerState.TRIMMED: "in the bucket, but no longer part of the topic",
    LedgerState.UNKNOWN: "in the bucket, but not offloaded according to the metadata",
    LedgerState.UNSOUND: "in the bucket, but cannot be read",
    LedgerState.MISSING: "offloaded according to the metadata, but not in the bucket",
}
"""The meaning of each state, from best to worst; worse states are drawn on top of better ones."""

IN_BUCKET: Final = frozenset(
    {
        LedgerState.OFFLOADED,
        LedgerState.BOTH,
        LedgerState.TRIMMED,
        LedgerState.UNKNOWN,
        LedgerState.UNSOUND,
    }
)

_RANKS: Final = {state: rank for rank, state in enumerate(STATE_TEXTS)}
_CELLS: Final = 400
"""Number of cells in a lane. Neighbours of one state within a cell are drawn as one bar, a cell
wide."""
_WIDE_CELLS: Final = 7
"""Bars wider than this number of cells have a separating line."""
_MOST_BARS: Final = 4000
"""Maximum number of bars in all lanes together, so that the page stays small."""
_LANE_PX: Final = 20
_PLOT_PX: Final = 150
_LEAST_PX: Final = 2.0
_MOST_TICKS: Final = 6
_MOST_SLOTS: Final = 250
_FEWEST_SLOTS: Final = 8
_OPEN_SHARE: Final = 0.03
_EDGE: Final = 0.07
_FEW_LABELS: Final = 3
_FIRST_MS: Final = milliseconds_of(datetime.min.replace(tzinfo=UTC))
_LAST_MS: Final = milliseconds_of(datetime.max.replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The time range of a chart, from its left edge to its right.

    Attributes:
        start_ms: Time at the left edge, ms since the epoch.
        stop_ms: The last known time; later than the first.
        is_open: Whether space is left at the right for ledgers that are still being written.
    """

    start_ms: int
    stop_ms: int
    is_open: bool = False

    @classmethod
    def from_spans(cls, spans: Iterable[LedgerSpan]) -> TimeScale | None:
        """Return the scale that contains all these ledgers; None if none has a time."""
        spans = list(spans)
        times = [
            time for span in spans for time in (span.start_ms, span.stop_ms) if time is not None
        ]
        if not times:
            return None
        is_open = any(span.state is LedgerState.OPEN for span in spans)
        # The only time may be the last of the calendar.
        start_ms = min(*times, _LAST_MS - 1)
        return cls(start_ms, max(*times, start_ms + 1), is_open)

    @classmethod
    def from_zones(cls, zones: Sequence[WriteSpan]) -> TimeScale | None:
        """Return the scale of publish times; None without zones.

        Up to a thousandth of the messages may be outside at each end. Otherwise one producer with a
        wrong clock would compress the rest of the chart.
        """
        if not zones:
            return None
        allowance = sum(each.count for each in zones) / 1000
        start_ms, stop_ms = zones[0].start_ms, zones[0].stop_ms
        earlier_count = later_count = 0
        for each in sorted(zones, key=attrgetter("start_ms")):
            start_ms = each.start_ms
            earlier_count += each.count
            if earlier_count > allowance:
                break
        for each in sorted(zones, key=attrgetter("stop_ms"), reverse=True):
            stop_ms = each.stop_ms
            later_count += each.count
            if later_count > allowance:
                break
        first = int(min(max(start_ms, _FIRST_MS), _LAST_MS - 1))
        return cls(first, int(min(max(stop_ms, first + 1), _LAST_MS)))

    def share(self, time_ms: float) -> float:
        """Return the position of a time: 0 at the left edge, 1 at the right."""
        scale_share = 1 - _OPEN_SHARE if self.is_open else 1
        return (time_ms - self.start_ms) / (self.stop_ms - self.start_ms) * scale_share


@dataclass(frozen=True, slots=True)
class _PlacedLedgers:
    """Some ledgers of one state, and where they are drawn, in fractions of the width."""

    left: float
    right: float
    spans: Sequence[LedgerSpan]

    @property
    def state(self) -> LedgerState:
        return self.spans[0].state


@dataclass(frozen=True, slots=True)
class _Bar:
    """A rectangle: left edge and width in fractions of the width, top and height in pixels."""

    left: float
    width: float
    top: float
    height: float
    style: str
    title: str


def pattern_definitions() -> Html:
    """Return the fill patterns that distinguish states without colours; needed once per page."""
    stripe = '<rect width="3" height="6" class="{ink}"/>'
    turned = 'patternTransform="rotate(45)"'
    cross = '<rect width="6" height="2" class="{ink}"/><rect width="2" height="6" class="{ink}"/>'
    figures = {
        LedgerState.BOTH: ("blue", turned, stripe),
        LedgerState.OFFLOADING: ("teal", turned, stripe),
        LedgerState.OPEN: ("teal", "", '<circle cx="3" cy="3" r="1.3" class="{ink}"/>'),
        LedgerState.MISSING: ("red", turned, cross),
        LedgerState.UNSOUND: ("orange", "", '<rect width="6" height="3" class="{ink}"/>'),
        LedgerState.TRIMMED: ("grey", 'patternTransform="rotate(-45)"', stripe),
        LedgerState.UNKNOWN: ("violet", "", '<circle cx="3" cy="3" r="1.8" class="{ink}"/>'),
    }
    patterns = join_parts(
        Html(
            f'<pattern id="{state}" width="6" height="6" patternUnits="userSpaceOnUse" {turn}>'
            f'<rect width="6" height="6" class="{colour}-soft"/>'
            f"{figure.format(ink=f'{colour}-ink')}</pattern>"
        )
        for state, (colour, turn, figure) in figures.items()
    )
    return Html(f'<svg class="defs" aria-hidden="true"><defs>{patterns}</defs></svg>\n')


def swatch(style: str) -> Html:
    """Return a small sample of the fill of a state, or of a class of bars."""
    return Html(
        f'<svg class="swatch" width="18" height="11" aria-hidden="true">'
        f'<rect width="18" height="11" rx="2" class="{style}"/></svg>'
    )


def legend(states: Mapping[LedgerState, int]) -> Html:
    """Return a legend of the states that occur, with the number of ledgers in each."""
    items = [
        _legend_item(state, f"{state} ({states[state]:,})", f" – {text}")
        for state, text in STATE_TEXTS.items()
        if states.get(state)
    ]
    return Html(f'<ul class="legend">{join_parts(items)}</ul>\n')


def _legend_item(style: str, name: str, explanation: str = "") -> Html:
    return Html(f"<li>{swatch(style)}<span><b>{escape(name)}</b>{escape(explanation)}</span></li>")


def timeline(topics: Iterable[tuple[str, Sequence[LedgerSpan]]], scale: TimeScale | None) -> Html:
    """Return one lane per topic or partition, with its ledgers from creation to closing.

    Ledgers are in the order of their ids. If a topic has no times, they are spaced evenly.
    """
    lanes = [(name, spans, _place_spans(spans, scale)) for name, spans in topics]
    cells = _CELLS
    lane_bars = [_group_places(places, cells) for _, _, places in lanes]
    while cells > 1 and sum(map(len, lane_bars)) > _MOST_BARS:
        cells //= 2
        lane_bars = [_group_places(places, cells) for _, _, places in lanes]
    ticks = _time_ticks(scale) if scale else []
    lane_parts = [
        _lane(name, spans, bars, ticks)
        for (name, spans, _), bars in zip(lanes, lane_bars, strict=True)
    ]
    axis = f'<svg height="18" aria-hidden="true">{_labels(ticks, 13)}</svg>\n' if ticks else ""
    return Html(f"{join_parts(lane_parts)}{axis}")


def _place_spans(spans: Sequence[LedgerSpan], scale: TimeScale | None) -> list[_PlacedLedgers]:
    if scale is None or all(span.start_ms is None and span.stop_ms is None for span in spans):
        return [
            _PlacedLedgers(index / len(spans), (index + 1) / len(spans), [span])
            for index, span in enumerate(spans)
        ]
    places: list[_PlacedLedgers] = []
    for span in spans:
        # A ledger without times follows the previous one.
        left = places[-1].right if places else 0.0
        begin = span.stop_ms if span.start_ms is None else span.start_ms
        if begin is not None:
            left = scale.share(begin)
        right = left if begin is not None else left + 1 / _CELLS
        if span.stop_ms is not None:
            right = scale.share(span.stop_ms)
        elif span.state is LedgerState.OPEN:
            right = 1.0
        places.append(_PlacedLedgers(left, min(right, 1.0), [span]))
    return places


def _group_places(places: Iterable[_PlacedLedgers], cells: int) -> list[_PlacedLedgers]:
    """Merge ledgers of one state that start in the same cell and end in the same cell."""
    groups: dict[tuple[int, int, LedgerState], list[_PlacedLedgers]] = {}
    for place in places:
        key = (int(place.left * cells), int(place.right * cells), place.state)
        groups.setdefault(key, []).append(place)
    grouped = [
        _PlacedLedgers(
            min(place.left for place in group),
            max(place.right for place in group),
            [span for place in group for span in place.spans],
        )
        for group in groups.values()
    ]
    return sorted(grouped, key=lambda place: _RANKS[place.state])


def _lane(
    name: str,
    spans: Sequence[LedgerSpan],
    places: Sequence[_PlacedLedgers],
    ticks: Sequence[tuple[float, str]],
) -> Html:
    bars = []
    for place in places:
        width = max(place.right - place.left, 1 / _CELLS)
        style = f"{place.state} wide" if width * _CELLS > _WIDE_CELLS else place.state.value
        left = min(place.left, 1 - width)
        bars.append(_Bar(left, width, 0, _LANE_PX, style, _ledgers_title(place.spans)))
    states = _counted_states(span.state for span in spans)
    size = size_text(sum(span.size_bytes for span in spans))
    return Html(
        f'<div class="lane"><p class="name"><b>{escape(name)}</b>'
        f"<span>{_ledgers(len(spans))} · {size}</span></p>"
        f'<svg height="{_LANE_PX}" role="img"><title>{escape(name)}</title>'
        f"<desc>{escape(states)}</desc>"
        f'<rect width="100%" height="{_LANE_PX}" class="track"/>'
        f"{_grid(ticks, _LANE_PX)}{_rectangles(bars)}</svg></div>\n"
    )


def sizes_charts(spans: Iterable[LedgerSpan]) -> Html:
    """Return a chart of the bytes of each ledger by id, and one of their cumulative sum.

    If there are many ledgers, several share a bar.
    """
    ordered = sorted(spans, key=lambda span: span.ledger_id)
    per_bar = -(-len(ordered) // _MOST_SLOTS)
    slots = [ordered[index : index + per_bar] for index in range(0, len(ordered), per_bar)]
    slot_width = 1 / max(len(slots), _FEWEST_SLOTS)
    gap = slot_width * 0.16 if len(slots) * 2 <= _MOST_SLOTS else 0.0
    highest = max(sum(span.size_bytes for span in slot) for slot in slots)
    ticks = value_ticks(highest, size_text)
    bars = []
    for index, slot in enumerate(slots):
        top = float(_PLOT_PX)
        for state in STATE_TEXTS:
            state_spans = [span for span in slot if span.state is state]
            if state_spans:
                share = sum(span.size_bytes for span in state_spans) / ticks[-1][0]
                height = max(share * _PLOT_PX, _LEAST_PX)
                top -= height
                geometry = (index * slot_width, slot_width - gap, max(top, 0.0), height)
                bars.append(_Bar(*geometry, state, _ledgers_title(state_spans)))
    ends = _slot_labels(slots, slot_width)
    name = "Bytes a ledger" if per_bar == 1 else f"Bytes, {per_bar} ledgers a bar"
    largest = f"{_ledgers(len(ordered))}; the highest bar has {size_text(highest)}"
    each = _plot(name, largest, bars, ticks, ends)
    return join_parts([each, _cumulative(slots, slot_width, ends)])


def _cumulative(
    slots: Sequence[Sequence[LedgerSpan]], slot_width: float, ends: Sequence[tuple[float, str]]
) -> Html:
    inside = outside = 0
    sums = []
    for slot in slots:
        inside += sum(span.size_bytes for span in slot if span.state in IN_BUCKET)
        outside += sum(span.size_bytes for span in slot if span.state not in IN_BUCKET)
        sums.append((slot[-1].ledger_id, inside, outside))
    ticks = value_ticks(inside + outside, size_text)
    bars = []
    for index, (ledger_id, in_bucket, not_in_bucket) in enumerate(sums):
        title = f"to ledger {ledger_id}: {size_text(in_bucket)} in the bucket"
        if not_in_bucket:
            title = f"{title}, {size_text(not_in_bucket)} not in the bucket"
        top = float(_PLOT_PX)
        for size, style in ((in_bucket, "solid"), (not_in_bucket, "rest")):
            height = size / ticks[-1][0] * _PLOT_PX
            top -= height
            if size:
                bars.append(_Bar(index * slot_width, slot_width, top, height, style, title))
    description = f"{size_text(inside)} in the bucket"
    items = [_legend_item("solid", description)]
    if outside:
        items.append(_legend_item("rest", f"{size_text(outside)} not in the bucket"))
        description = f"{description}, {size_text(outside)} not in the bucket"
    chart = _plot("Bytes, cumulative", description, bars, ticks, ends)
    return Html(f'{chart}<ul class="legend">{join_parts(items)}</ul>\n')


def _slot_labels(
    slots: Sequence[Sequence[LedgerSpan]], slot_width: float
) -> list[tuple[float, str]]:
    first = (0.0, f"ledger {slots[0][0].ledger_id}")
    if len(slots) == 1:
        return [first]
    return [first, (len(slots) * slot_width, f"ledger {slots[-1][-1].ledger_id}")]


def rate_charts(rates: Sequence[Rate], scale: TimeScale, quantity: str) -> Html:
    """Return charts of entries or messages (`quantity`) per second, and of bytes per second."""
    return join_parts(
        (
            _rate_chart(
                f"{quantity} a second", rates, attrgetter("count_per_s"), count_text, scale
            ),
            _rate_chart("Bytes a second", rates, attrgetter("bytes_per_s"), size_text, scale),
        )
    )


def _rate_chart(
    name: str,
    rates: Sequence[Rate],
    read_value: Callable[[Rate], float],
    text: Callable[[float], str],
    scale: TimeScale,
) -> Html:
    values = [read_value(rate) for rate in rates]
    levels = value_ticks(max(values), text)
    edges = [at for at in range(len(values)) if at == 0 or values[at] != values[at - 1]]
    bars = []
    for first, stop in pairwise([*edges, len(values)]):
        value = values[first]
        if value:
            left = scale.share(rates[first].start_ms)
            right = scale.share(rates[stop - 1].stop_ms)
            height = value / levels[-1][0] * _PLOT_PX
            begin, end = int(rates[first].start_ms), int(rates[stop - 1].stop_ms)
            title = f"{time_text(begin)} – {time_text(end)}: {text(value)} a second"
            bars.append(_Bar(left, right - left, _PLOT_PX - height, height, "solid", title))
    description = f"at most {text(max(values))} a second"
    return _plot(name, description, bars, levels, _time_ticks(scale))


def _plot(
    name: str,
    description: str,
    bars: Iterable[_Bar],
    levels: Sequence[tuple[float, str]],
    ticks: Sequence[tuple[float, str]],
) -> Html:
    heights = [(_PLOT_PX * (1 - value / levels[-1][0]), text) for value, text in levels]
    texts = join_parts(
        Html(f'<text x="54" y="{_number(y + 4)}" text-anchor="end">{escape(text)}</text>')
        for y, text in heights
    )
    lines = join_parts(
        Html(f'<line x2="100%" y1="{_number(y)}" y2="{_number(y)}" class="grid"/>')
        for y, _ in heights[1:]
    )
    base = f'<line x2="100%" y1="{_PLOT_PX}" y2="{_PLOT_PX}" class="base"/>'
    height = _PLOT_PX + 22
    return Html(
        f'<h3>{escape(name)}</h3><div class="plot"><svg height="{height}" aria-hidden="true">'
        f'{texts}</svg><svg height="{height}" role="img"><title>{escape(name)}</title>'
        f"<desc>{escape(description)}</desc>{lines}{_rectangles(bars)}{base}"
        f"{_labels(ticks, _PLOT_PX + 17)}</svg></div>\n"
    )


def _rectangles(bars: Iterable[_Bar]) -> Html:
    return join_parts(
        Html(
            f'<rect x="{_percent(bar.left)}" y="{_number(bar.top)}" width="{_percent(bar.width)}"'
            f' height="{_number(bar.height)}" class="{bar.style}"><title>{escape(bar.title)}'
            "</title></rect>"
        )
        for bar in bars
    )


def _grid(ticks: Iterable[tuple[float, str]], height: int) -> Html:
    return join_parts(
        Html(f'<line x1="{_percent(at)}" x2="{_percent(at)}" y2="{height}" class="grid"/>')
        for at, _ in ticks
    )


def _labels(ticks: Sequence[tuple[float, str]], y: int) -> Html:
    """Return labels below a chart; of more than three, narrow pages show every other one."""
    labels = []
    for number, (at, text) in enumerate(ticks):
        anchor = "start" if at < _EDGE else "end" if at > 1 - _EDGE else "middle"
        style = ' class="minor"' if len(ticks) > _FEW_LABELS and number % 2 else ""
        labels.append(
            Html(
                f'<text x="{_percent(at)}" y="{y}" text-anchor="{anchor}"{style}>'
                f"{escape(text)}</text>"
            )
        )
    return join_parts(labels)


def _time_ticks(scale: TimeScale) -> list[tuple[float, str]]:
    ticks = time_ticks(scale.start_ms, scale.stop_ms, most=_MOST_TICKS)
    return [(scale.share(time_ms), text) for time_ms, text in ticks]


def _ledgers_title(spans: Sequence[LedgerSpan]) -> str:
    first, last, state = spans[0], spans[-1], spans[0].state
    entries = sum(span.entries for span in spans)
    name = f"ledger {first.ledger_id}"
    if len(spans) > 1:
        name = f"{len(spans)} ledgers, {first.ledger_id} … {last.ledger_id}"
    parts = [f"{name}: {state}", f"{entries:,} {agreeing(entries, 'entry', 'entries')}"]
    parts.append(size_text(sum(span.size_bytes for span in spans)))
    if first.start_ms is not None:
        parts.append(f"from {time_text(first.start_ms)}")
    if last.stop_ms is not None:
        parts.append(f"to {time_text(last.stop_ms)}")
    return ", ".join(parts)


def _counted_states(states: Iterable[LedgerState]) -> str:
    state_list = list(states)
    counts = [(state, state_list.count(state)) for state in STATE_TEXTS]
    return f"{_ledgers(len(state_list))}: " + ", ".join(
        f"{count:,} {state}" for state, count in counts if count
    )


def _ledgers(count: int) -> str:
    return f"{count:,} {agreeing(count, 'ledger', 'ledgers')}"


def _percent(share: float) -> str:
    return f"{share * 100:.2f}%"


def _number(pixels: float) -> str:
    return f"{pixels:.1f}"
