"""The files of `sql_examples` run in DuckDB; Spark's are run with Spark's tests."""

from __future__ import annotations

import pytest

from tests.support.sql_examples import EXAMPLES, NAMES, duckdb_rows


def test_there_are_five_questions() -> None:
    """Each of the five questions stands in both dialects, and in the list."""
    listed = (EXAMPLES / "README.md").read_text("utf-8")

    assert len(NAMES) == 5
    assert sorted(each.stem for each in (EXAMPLES / "spark").glob("*.sql")) == NAMES
    assert all(f"`{name}`" in listed for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_answers(name: str) -> None:
    """DuckDB answers the question with rows."""
    assert duckdb_rows(name)


def test_revenue_counts_every_order() -> None:
    """The orders of all statuses together are the messages of the topic that have a value."""
    assert sum(row[1] for row in duckdb_rows("1_revenue_by_status")) == 390
