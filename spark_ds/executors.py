"""Work that Spark's executors do for the driver, piece by piece."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    _T = TypeVar("_T")

_RESULT: Final = "result"


def on_executors(spark: SparkSession, work: Callable[[int], _T], count: int) -> list[_T]:
    """Do pieces of work by their numbers, a Spark task for each, the first of them first.

    A task that fails is Spark's, which tries it again, and may do so while it runs: an error that
    the driver is to hear of must be among the results.

    Args:
        spark: The session.
        work: Does the piece of a number from 0; it and its results can be pickled.
        count: How many pieces there are.

    Returns:
        What came of them, by their numbers.
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
