"""The README's lines for Spark run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_spark_lines_of_the_readme(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They find the source by its name, and give typed columns in both ways."""
    shop = tmp_path / "shop"
    run("demo", "--copy", str(shop))
    blocks = re.findall(r"```python\n(.*?)\n```", Path("README.md").read_text("utf-8"), re.DOTALL)
    [block] = [each for each in blocks if "spark.read" in each]

    # Spark's Python processes work in another folder.
    block = re.sub("""(['"])shop['"]""", rf"\g<1>{shop}\g<1>", block)
    exec(block, {"spark": spark})  # noqa: S102 - it is our own README

    printed = capsys.readouterr().out
    assert re.search(r"\|\s+PAID\|\s+194\|", printed)
    assert "tea-green" in printed
    assert "honey" in printed
