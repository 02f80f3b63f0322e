"""A self-contained HTML page: no script, and nothing is loaded from anywhere.

Text from a bucket (names, error messages) enters the page only through `escape`. If markup slipped
through anyway, the page's content security policy would forbid it to load or run anything. The
markup is also valid XML.
"""

from __future__ import annotations

import base64
import hashlib
import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NewType

from connector.display.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Html = NewType("Html", str)
"""Markup in which all text is escaped."""

_MOST_CHARACTERS: Final = 400

_CSS: Final = """
:root {
  color-scheme: light dark;
  --page: #f4f6f8; --card: #ffffff; --ink: #18202a; --muted: #566272; --line: #dde3ea;
  --track: #eef1f5; --grid: #d3dae3;
  --blue: #2b66d9; --blue-soft: #a9c5f8; --teal: #0b8577; --teal-soft: #a5dcd3;
  --grey: #77838f; --grey-soft: #d9dfe6; --red: #c8232c; --red-soft: #f9c6c8;
  --orange: #b85c00; --orange-soft: #fbd9ae; --violet: #7440d8; --violet-soft: #d7c6fa;
  --good: #17713a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1217; --card: #171d24; --ink: #e7ebf0; --muted: #9caab9; --line: #2b343f;
    --track: #202831; --grid: #35404c;
    --blue: #6ea1ff; --blue-soft: #254579; --teal: #3fc7b4; --teal-soft: #17524b;
    --grey: #8c99a6; --grey-soft: #323d48; --red: #ff7b81; --red-soft: #6b2226;
    --orange: #ffae57; --orange-soft: #684012; --violet: #b594ff; --violet-soft: #48327a;
    --good: #5fd08a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 27px; line-height: 1.2; margin: 2px 0 14px; overflow-wrap: anywhere; }
h2 { font-size: 18px; line-height: 1.3; margin: 0 0 4px; }
h3 { font-size: 14px; line-height: 1.4; margin: 22px 0 8px; font-weight: 600; }
p { margin: 0 0 10px; }
.eyebrow { color: var(--muted); font-size: 13px; margin: 0; }
.note { color: var(--muted); font-size: 13px; max-width: 76ch; }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px 22px; margin: 0 0 18px;
}
.card > :last-child { margin-bottom: 0; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 3px 18px; margin: 0 0 22px; }
.facts dt { color: var(--muted); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.totals {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 0 0 18px;
}
.totals div {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px;
}
.totals dt { color: var(--muted); font-size: 13px; }
.totals dd { margin: 0; font-size: 22px; font-weight: 600; line-height: 1.3; }
.totals .small { display: block; font-size: 13px; font-weight: 400; color: var(--muted); }
.verdict { border-left: 5px solid var(--good); }
.verdict.loss { border-left-color: var(--red); }
.verdict h2 { margin: 0; }
.verdict p { margin: 6px 0 0; }
td .loss { color: var(--red); }
td .deletable { color: var(--orange); }
.legend { list-style: none; margin: 12px 0 18px; padding: 0; display: grid; gap: 4px 22px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); font-size: 13px; }
.legend li { display: flex; align-items: flex-start; gap: 9px; }
.legend svg { flex: none; margin: 4px 0 0; }
.legend span { color: var(--muted); }
.legend b { color: var(--ink); font-weight: 600; }
svg { display: block; width: 100%; overflow: visible; }
svg.defs { position: absolute; width: 0; height: 0; }
svg text { fill: var(--muted); font-size: 12px; font-variant-numeric: tabular-nums; }
.lane { margin: 0 0 10px; }
.lane .name {
  display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 16px; font-size: 13px;
  margin: 0 0 2px;
}
.lane .name b { font-weight: 600; overflow-wrap: anywhere; }
.lane .name span { color: var(--muted); font-variant-numeric: tabular-nums; }
.track { fill: var(--track); }
.grid { stroke: var(--grid); stroke-width: 1; }
.base { stroke: var(--muted); stroke-width: 1; }
.wide { stroke: var(--card); stroke-width: 1.5; }
.plot { display: grid; grid-template-columns: 62px 1fr; }
.solid { fill: var(--blue); }
.rest { fill: var(--grey-soft); }
.solid, .rest { shape-rendering: crispEdges; }
.offloaded { fill: var(--blue); }
.both { fill: url(#both); }
.bookkeeper { fill: var(--teal); }
.offloading { fill: url(#offloading); }
.open { fill: url(#open); }
.empty { fill: var(--grey-soft); }
.missing { fill: url(#missing); }
.unsound { fill: url(#unsound); }
.trimmed { fill: url(#trimmed); }
.unknown { fill: url(#unknown); }
.lane .missing, .lane .unsound, .lane .open { stroke: currentColor; stroke-width: 1; }
.blue-ink { fill: var(--blue); } .blue-soft { fill: var(--blue-soft); }
.teal-ink { fill: var(--teal); } .teal-soft { fill: var(--teal-soft); }
.grey-ink { fill: var(--grey); } .grey-soft { fill: var(--grey-soft); }
.red-ink { fill: var(--red); } .red-soft { fill: var(--red-soft); }
.orange-ink { fill: var(--orange); } .orange-soft { fill: var(--orange-soft); }
.violet-ink { fill: var(--violet); } .violet-soft { fill: var(--violet-soft); }
.missing { color: var(--red); }
.unsound { color: var(--orange); }
.open { color: var(--teal); }
.legend rect { stroke: var(--grid); }
.scroll { overflow-x: auto; margin: 8px 0 0; border: 1px solid var(--line); border-radius: 8px; }
.scroll:focus-visible { outline: 2px solid var(--blue); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; vertical-align: top; padding: 6px 12px; white-space: nowrap; }
th { color: var(--muted); font-weight: 600; background: var(--track); }
tr + tr td, thead + tbody tr:first-child td { border-top: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.long { white-space: normal; min-width: 32em; overflow-wrap: anywhere; }
.line { max-width: 52ch; overflow: hidden; text-overflow: ellipsis; }
.code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: 12px; }
.swatch { display: inline-block; width: 18px; height: 11px; margin-right: 7px; }
footer { color: var(--muted); font-size: 13px; }
@media (max-width: 640px) {
  main { padding: 18px 12px 40px; }
  h1 { font-size: 22px; }
  .card { padding: 15px 13px 16px; }
  .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: 7px; }
  .totals { grid-template-columns: 1fr 1fr; gap: 8px; }
  .totals div { padding: 9px 12px; }
  .totals dd { font-size: 19px; }
  .minor { display: none; }
  th, td { padding: 6px 8px; }
  .long { min-width: 20em; }
}
@media print {
  :root { --page: #ffffff; }
  body { font-size: 11px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; }
  .card { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: 12px 0; }
  .card.verdict { border-left: 5px solid var(--good); padding-left: 12px; }
  .card.verdict.loss { border-left-color: var(--red); }
  .scroll { overflow: visible; border: 0; }
  th, td, .code { font-size: 9px; }
  th, td { white-space: normal; padding: 3px 6px; }
  td { overflow-wrap: anywhere; }
  .long { min-width: 0; }
  .line { max-width: none; overflow: visible; }
  .lane, .plot, .totals, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
"""
"""Contains neither `<` nor `&`, which XML and HTML read differently."""

_CSS_HASH: Final = base64.b64encode(hashlib.sha256(_CSS.encode()).digest()).decode("ascii")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        style: Class of its cells: `number`, `code`, `long` (several lines), `line` (clipped), or
            none.
    """

    title: str
    style: str = ""


def escape(text: object) -> Html:
    """Return text as markup, safe whatever its source.

    Unprintable characters are shown as Python escapes them. Long text is truncated.
    """
    shown = str(text)
    if len(shown) > _MOST_CHARACTERS:
        shown = f"{shown[: _MOST_CHARACTERS - 1]}…"
    return Html(html.escape(printable(shown)))


def join_parts(parts: Iterable[Html]) -> Html:
    """Concatenate pieces of markup."""
    return Html("".join(parts))


def heading(title: str) -> Html:
    """Return the heading of the page; a long name may break after its slashes."""
    return Html(f"<h1>{escape(title).replace('/', '/<wbr />')}</h1>\n")


def section(title: str, *content: Html) -> Html:
    """Return a part of the page, with its heading."""
    return Html(f'<section class="card"><h2>{escape(title)}</h2>{join_parts(content)}</section>\n')


def note(text: str) -> Html:
    """Return an explanatory sentence as markup."""
    return Html(f'<p class="note">{escape(text)}</p>')


def facts(pairs: Iterable[tuple[str, Html]]) -> Html:
    """Return names and their values, one below the other."""
    items = (Html(f"<dt>{escape(name)}</dt><dd>{value}</dd>") for name, value in pairs)
    return Html(f'<dl class="facts">{join_parts(items)}</dl>\n')


def figures(items: Iterable[tuple[str, str, str]]) -> Html:
    """Return the key figures: the name of each, the figure, and a short explanation."""
    divisions = (
        Html(
            f"<div><dt>{escape(name)}</dt><dd>{escape(figure)}"
            f'<span class="small">{escape(small)}</span></dd></div>'
        )
        for name, figure, small in items
    )
    return Html(f'<dl class="totals">{join_parts(divisions)}</dl>\n')


def table(label: str, columns: Sequence[Column], rows: Iterable[Sequence[Html]]) -> Html:
    """Return a table that scrolls in its own box if it is wider than the page.

    The label describes it for screen readers.
    """
    classes = [f' class="{column.style}"' if column.style else "" for column in columns]
    # A heading is aligned right like its column's numbers, but never uses the font of code.
    head = join_parts(
        Html(f'<th scope="col"{style if column.style == "number" else ""}>{column.title}</th>')
        for style, column in zip(classes, columns, strict=True)
    )
    body = join_parts(
        Html(
            "<tr>"
            + "".join(f"<td{style}>{cell}</td>" for style, cell in zip(classes, row, strict=True))
            + "</tr>\n"
        )
        for row in rows
    )
    return Html(
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )


def page(title: str, content: Html) -> str:
    """Return a whole document."""
    policy = f"default-src 'none'; style-src 'sha256-{_CSS_HASH}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        '<meta name="referrer" content="no-referrer" />\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n"
        f"<body>\n<main>\n{content}</main>\n</body>\n</html>\n"
    )
