"""Small HTML tables, which notebooks show for a dataset and a catalog."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from connector.display.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SHOWN_ROWS: Final = 50
_MAX_CELL_CHARACTERS: Final = 200


def html_table(caption: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table of the first `MAX_SHOWN_ROWS` rows, and the number of the others.

    Example:
        >>> html_table("a & b", ["n"], [[1]])
        '<table><caption>a &amp; b</caption><tr><th>n</th></tr><tr><td>1</td></tr></table>'
    """
    head = _row("th", header)
    body = "".join(_row("td", row) for row in rows[:MAX_SHOWN_ROWS])
    left = len(rows) - MAX_SHOWN_ROWS
    more = _row("td", [f"… and {left:,} more"]) if left > 0 else ""
    return f"<table><caption>{_cell(caption)}</caption>{head}{body}{more}</table>"


def _row(tag: str, cells: Sequence[object]) -> str:
    inner = "".join(f"<{tag}>{_cell(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def _cell(text: str) -> str:
    cut = f"{text[:_MAX_CELL_CHARACTERS]}…" if len(text) > _MAX_CELL_CHARACTERS else text
    return escape(printable(cut))
