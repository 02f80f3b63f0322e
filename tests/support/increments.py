"""Increments of topics, read as another process would read them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from connector import open_catalog, open_topic
from connector.increments.increment import Increments, execute_increment
from tests.support.buckets import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arrow_io.read_metrics import ReadMetrics
    from connector.increments.increment import Increment, Limits
    from connector.increments.progress import Progress

POSITION = ("__ledger_id__", "__entry_id__", "__batch_index__")


def increments_of(
    url: str,
    wanted: Sequence[str] = (TOPIC,),
    catalog_options: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - those of open_topic
) -> Increments:
    """Increments of topics in a bucket, opened anew."""
    catalog = open_catalog(url, **(catalog_options or {}))
    scan = open_topic(url, list(wanted), catalog=catalog, **{"value": "raw", **options}).scan
    return Increments(catalog, wanted, scan.options, scan.statistics)


def read_increment(
    increment: Increment, task_bytes: int = 1 << 20, metrics: ReadMetrics | None = None
) -> list[pa.RecordBatch]:
    """The rows of an increment, whose tasks are pickled."""
    tasks = [task for read in increment.reads for task in read.tasks(task_bytes)]
    return [
        batch
        for task in pickle.loads(pickle.dumps(tasks))
        for batch in execute_increment(task, metrics)
    ]


def read_on(
    source: Increments, progress: Progress, limits: Limits | None = None, task_bytes: int = 1 << 20
) -> tuple[list[pa.RecordBatch], Progress]:
    """All that is new and settled, in as many increments as it takes."""
    batches: list[pa.RecordBatch] = []
    while True:
        increment = source.next_increment(progress, limits)
        if increment.after == progress:
            return batches, progress
        batches += read_increment(increment, task_bytes)
        progress = increment.after


def in_order(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> list[dict[str, Any]]:
    """Rows by partition and position, of whichever batches they are."""
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, schema).to_pylist()
    return sorted(rows, key=position_of)


def position_of(row: dict[str, Any]) -> tuple[int, ...]:
    """Partition, ledger, entry and batch index of a row; −1 for those that it does not have."""
    names = ("__partition__", *POSITION)
    return tuple(-1 if row.get(name) is None else row[name] for name in names)
