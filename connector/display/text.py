"""The format of text, numbers and sizes for people, on a terminal and on a page."""

from __future__ import annotations

from typing import Final

_HUNDRED: Final = 100


def printable(text: str) -> str:
    """Escape each character that is not printable, as Python does.

    Those are control characters, marks that change the writing direction, and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def size_text(size_bytes: float) -> str:
    """Format a number of bytes in decimal units, by which stores charge.

    Example:
        >>> size_text(0), size_text(999), size_text(7128), size_text(250e6)
        ('0 B', '999 B', '7.13 kB', '250 MB')
    """
    for unit, symbol in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        # A size that rounds to 1,000 of a unit is shown as 1 of the next one.
        if size_bytes >= unit * 0.9995:
            return f"{three_digits(size_bytes / unit)} {symbol}"
    return f"{three_digits(size_bytes)} B"


def three_digits(number: float) -> str:
    """Format a number with three digits, or with more if it is a whole one.

    Example:
        >>> three_digits(0.25), three_digits(12.345), three_digits(1234)
        ('0.25', '12.3', '1,234')
    """
    if number >= _HUNDRED or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"
