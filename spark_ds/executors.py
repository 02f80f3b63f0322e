"""Execution of a driver's work on Spark's executors."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    _T = TypeVar("_T")

_RESULT: Final = "result"


def run_on_executors(spark: SparkSession, work: Callable[[int], _T], count: int) -> list[_T]:
    """Run numbered pieces of work, one Spark task each, and return their results in order.

    Spark repeats a task that raises, and may run one twice at the same time. So an error for the
    driver must be returned as a result.

    Args:
        spark: The session.
        work: Does the piece of work with a number from 0. The function and its results must be
            picklable.
        count: Number of pieces.
    """
    if count == 0:
        return []

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({_RESULT: [pickle.dumps(work(number))]})

    numbers = spark.range(0, count, 1, count)
    rows = numbers.mapInArrow(run, f"{_RESULT} binary").collect()
    return [pickle.loads(bytes(row[_RESULT])) for row in rows]  # noqa: S301 - pickled above
