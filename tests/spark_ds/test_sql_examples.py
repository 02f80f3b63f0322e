"""The files of `sql_examples/spark` run, and give the rows that those of DuckDB give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.sql_examples import EXAMPLES, NAMES, comparable, duckdb_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("name", NAMES)
def test_spark_answers_what_duckdb_answers(spark: SparkSession, name: str) -> None:
    """The last statement of the file is the question; those before make its views."""
    text = (EXAMPLES / "spark" / f"{name}.sql").read_text("utf-8")
    *views, question = [each for each in text.split(";") if each.strip()]
    for view in views:
        spark.sql(view)

    rows = [tuple(row) for row in spark.sql(question).collect()]

    assert comparable(rows) == comparable(duckdb_rows(name))
