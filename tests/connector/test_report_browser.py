"""The page of a report in a real browser: it loads nothing, says nothing, and fits any window."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.bucket_reports import (
    FULL,
    SMALL,
    damaged_small_set,
    drawn_ledgers,
    parsed,
    report_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.browser import Browser

pytestmark = pytest.mark.browser

WIDTHS_PX: Final = (400, 1280)
SCHEMES: Final = ("light", "dark")
DARKEST, LIGHTEST = (14, 18, 23), (244, 246, 248)
BACKGROUND: Final = "getComputedStyle(document.body).backgroundColor"
OVERFLOW: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BARS: Final = """
[...document.querySelectorAll('.lane svg > rect')]
    .filter(bar => bar.querySelector('title'))
    .map(bar => [bar.getBoundingClientRect().width, bar.getBoundingClientRect().height])
"""
COVERED: Final = """
[...document.querySelectorAll('svg text')]
    .filter(text => getComputedStyle(text).display !== 'none')
    .map(text => [text.getBoundingClientRect(), text.closest('section').getBoundingClientRect()])
    .filter(([text, box]) => text.left < box.left || text.right > box.right).length
"""
FILLS: Final = """
[...document.querySelectorAll('.legend rect')].map(each => getComputedStyle(each).fill)
"""


@pytest.fixture(scope="module", params=["small set", "multi-ledger", "damaged", "bucket alone"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page in a file: of a bucket, of a topic, with findings of every severity, or bare."""
    folder = tmp_path_factory.mktemp("report")
    match request.param:
        case "small set":
            text = report_of(SMALL / "objects", metadata=str(SMALL))
        case "multi-ledger":
            text = report_of(FULL / "objects", metadata=str(FULL), topic="multi-ledger")
        case "damaged":
            bucket, metadata = damaged_small_set(folder)
            text = report_of(bucket, metadata=str(metadata))
        case _:
            text = report_of(FULL / "objects")
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def test_page_stands_alone_and_fits(browser: Browser, shown: Path) -> None:
    """Nothing is loaded but the file, nothing is logged, and no window has to be scrolled aside."""
    opened = browser.open(shown)

    assert opened.requests == [shown.as_uri()]
    assert opened.messages == []
    for width_px, scheme in itertools.product(WIDTHS_PX, SCHEMES):
        opened.show(width_px=width_px, scheme=scheme)
        assert opened.evaluate("window.innerWidth") == width_px
        assert opened.evaluate(OVERFLOW) == 0
        assert opened.evaluate(COVERED) == 0
        colour = DARKEST if scheme == "dark" else LIGHTEST
        assert opened.evaluate(BACKGROUND) == f"rgb{colour}"
    opened.show(width_px=720, media="print")
    assert opened.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
    assert opened.evaluate(OVERFLOW) == 0


def test_each_bar_can_be_seen(browser: Browser, shown: Path) -> None:
    """Every bar over time is as high as its lane and not thinner than three quarters of a pixel."""
    expected = len(drawn_ledgers(parsed(shown.read_text("utf-8")), "lane"))
    opened = browser.open(shown)

    for width_px in WIDTHS_PX:
        opened.show(width_px=width_px)
        bars = opened.evaluate(BARS)
        assert len(bars) == expected > 0
        assert all(width >= 0.75 and height == 20 for width, height in bars)


def test_states_are_filled_differently(browser: Browser, tmp_path: Path) -> None:
    """No two states of a ledger look the same, whether it is light or dark."""
    bucket, metadata = damaged_small_set(tmp_path)
    path = tmp_path / "report.html"
    path.write_text(report_of(bucket, metadata=str(metadata)), encoding="utf-8")
    opened = browser.open(path)

    for scheme in SCHEMES:
        opened.show(width_px=1280, scheme=scheme)
        fills = opened.evaluate(FILLS)
        assert len(fills) == 7 + 2  # of states, and of what is added up
        assert len(set(fills[:7])) == 7
