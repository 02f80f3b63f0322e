"""The blocks of pages that need Spark run, and print what the pages show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.golden import GOLDEN
from tests.support.snippets import snippets_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.snippets import Snippet

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
REASON = "not run here: the Spark tests run it"
BLOCKS = {
    f"{page.relative_to(DOCS)}-{number}": snippet
    for page in [DOCS / "index.md", *sorted((DOCS / "recipes").glob("*.md"))]
    for number, snippet in enumerate(snippets_of(page.read_text("utf-8")))
    if snippet.skipped == REASON
}


def test_pages_have_blocks_for_spark() -> None:
    """The front page and the recipes show how Spark reads a topic."""
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("snippet", BLOCKS.values(), ids=BLOCKS)
def test_block_prints_what_the_page_shows(
    snippet: Snippet, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The block names the target of the link: Spark's processes run in another folder."""
    text = re.sub(r"\bgolden\b", str(GOLDEN / "pulsar-4.0.7"), snippet.text)

    exec(text, {"spark": spark, "folder": str(tmp_path)})  # noqa: S102 - it is our own page

    assert capsys.readouterr().out.strip() == snippet.printed
