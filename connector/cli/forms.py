"""Output formats of rows, and the lines of CSV and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Form: TypeAlias = Literal["table", "csv", "json", "jsonl", "markdown"]

_QUOTED_IN_CSV: Final = frozenset(',"\r\n')


def csv_line(cells: Iterable[str | None]) -> str:
    """Return a line of CSV (RFC 4180): null is empty, an empty text is `""`."""
    return ",".join(map(_csv_cell, cells)) + "\n"


def _csv_cell(cell: str | None) -> str:
    if cell is None:
        return ""
    if not cell or cell != cell.strip() or not _QUOTED_IN_CSV.isdisjoint(cell):
        quoted = cell.replace('"', '""')
        return f'"{quoted}"'
    return cell


def markdown_head(names: Sequence[str], is_number: Sequence[bool]) -> str:
    """Return the head of a Markdown table, with numbers aligned to the right."""
    rule = ["---:" if each else "---" for each in is_number]
    return markdown_line(names) + f"| {' | '.join(rule)} |\n"


def markdown_line(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    escaped = (each.replace("\\", "\\\\").replace("|", "\\|") for each in cells)
    return f"| {' | '.join(escaped)} |\n"
