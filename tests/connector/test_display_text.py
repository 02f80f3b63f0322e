"""`connector.display.text`: what is written for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.core.wording import counted
from connector.display.text import printable, size_text, three_digits


@given(text=st.text() | st.text("a\0\x1b\u202e\ud800\n"))
def test_printable_text_can_be_printed(text: str) -> None:
    """Every character of it, so that it is escaped once only."""
    shown = printable(text)

    assert shown.isprintable()
    assert printable(shown) == shown


@given(text=st.text(st.characters(max_codepoint=127, exclude_characters="\\")))
def test_printable_text_can_be_read_back(text: str) -> None:
    """What is escaped is spelled as in Python."""
    assert printable(text).encode("ascii").decode("unicode_escape") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("grün 数据", "grün 数据"),
        ("\x1b[31m\x07", "\\x1b[31m\\x07"),
        ("a\nb", "a\\nb"),
        ("\u202eevil\u200b", "\\u202eevil\\u200b"),
        ("\x9b2J", "\\x9b2J"),
        ("\ud800", "\\ud800"),
    ],
)
def test_printable_escapes_as_python(text: str, shown: str) -> None:
    """Letters of any script stay; control characters and marks of direction do not."""
    assert printable(text) == shown


def test_numbers_of_things() -> None:
    """One, or several."""
    assert [counted(number, "ledger") for number in (0, 1, 2)] == [
        *("0 ledgers", "1 ledger", "2 ledgers"),
    ]
    assert [counted(number, "entry") for number in (1, 2)] == ["1 entry", "2 entries"]


def test_sizes_have_three_digits() -> None:
    """In decimal units; what would be rounded to 1,000 of one is 1 of the next."""
    assert [size_text(each) for each in (0, 999, 999.9, 1000, 7128, 999_990, 25e7, 2e15)] == [
        *("0 B", "999 B", "1 kB", "1 kB", "7.13 kB", "1 MB", "250 MB", "2 PB"),
    ]
    assert [three_digits(each) for each in (0.25, 12, 12.345, 1234.5)] == [
        *("0.25", "12", "12.3", "1,234"),
    ]
