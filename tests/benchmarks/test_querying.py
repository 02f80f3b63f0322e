"""Benchmarks of questions in SQL; run untimed in the test suite, on few messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.querying import measure_queries, table

if TYPE_CHECKING:
    from pathlib import Path


def test_both_answer_the_same(tmp_path: Path) -> None:
    """What is measured has to be the same question of the same messages."""
    rows = measure_queries(str(tmp_path), messages=2000, rounds=1)

    topic, lines = rows
    assert topic.answer == lines.answer
    assert sum(count for _, count in topic.answer) == 2000
    assert len(table(rows)) == 1 + len(rows)
