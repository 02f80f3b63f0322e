"""One question asked in each engine, and by hand: `python -m tests.benchmarks.engines`.

Run it where `make test-engines` has installed the engines: `build/nox/engines/bin/python`.
"""

from __future__ import annotations

import operator
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from connector import read_daft, read_dask, read_ray
from tests.benchmarks.decoding import store
from tests.support.benchmark_ledgers import JSON_LZ4

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from connector import TopicDataset

MESSAGES = 1_000_000
ROUNDS = 3
TASK_BYTES = 16 << 20
_COLUMNS = ["status", "total"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One row of the table.

    Attributes:
        engine: Its name.
        rows: Number of messages that it counted.
        seconds: How long the answer took, at best.
        cpu_seconds: CPU time of this process in that time.
        workers: Number of processes that read.
    """

    engine: str
    rows: int
    seconds: float
    cpu_seconds: float
    workers: int = 1


def _arrow(dataset: TopicDataset) -> int:
    table = (
        dataset.to_table(_COLUMNS)
        .group_by("status")
        .aggregate([("total", "sum"), ([], "count_all")])
    )
    return int(pc.sum(table["count_all"]).as_py())


def _datafusion(dataset: TopicDataset) -> int:
    from datafusion import SessionContext  # noqa: PLC0415 - installed by `make test-engines`

    context = SessionContext()
    context.register_dataset("orders", dataset)
    rows = context.sql("SELECT count(*) AS n, sum(total) FROM orders GROUP BY status").to_pylist()
    return sum(each["n"] for each in rows)


def _daft(dataset: TopicDataset) -> int:
    from daft import col  # noqa: PLC0415 - as DataFusion

    frame = read_daft(dataset, task_bytes=TASK_BYTES).groupby("status")
    rows = frame.agg(col("total").sum(), col("status").count("all").alias("n")).to_pydict()
    return sum(rows["n"])


def _dask(dataset: TopicDataset) -> int:
    frame = read_dask(dataset, task_bytes=TASK_BYTES)
    groups = frame.groupby("status", dropna=False)
    rows = groups.agg({"total": ["sum", "size"]}).compute()
    return int(rows["total"]["size"].sum())


def _ray(dataset: TopicDataset) -> tuple[int, int]:
    def summed(table: pa.Table) -> pa.Table:
        groups = table.group_by("status").aggregate([("total", "sum"), ([], "count_all")])
        return groups.append_column("pid", [[os.getpid()] * groups.num_rows])

    frame = read_ray(dataset, task_bytes=TASK_BYTES).select_columns(_COLUMNS)
    parts = frame.map_batches(summed, batch_format="pyarrow", batch_size=None).take_all()
    return sum(each["count_all"] for each in parts), len({each["pid"] for each in parts})


@contextmanager
def _cluster() -> Iterator[None]:
    import daft  # noqa: PLC0415 - as DataFusion
    import ray  # noqa: PLC0415

    # By default, Daft runs on a cluster of Ray's that it finds.
    daft.set_runner_native()
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=200 << 20,
        _node_ip_address="127.0.0.1",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        ray.shutdown()


def ask(engine: str, question: Callable[[TopicDataset], Any], dataset: TopicDataset) -> Asked:
    """Ask an engine once."""
    started, cpu_started = time.perf_counter(), time.process_time()
    answer = question(dataset)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    rows, workers = answer if isinstance(answer, tuple) else (answer, 1)
    return Asked(engine, rows, seconds, cpu_seconds, workers)


def main() -> None:
    """Print how long each engine takes for a GROUP BY of a topic, in times of Arrow's."""
    questions = {
        "to_table, then Arrow": _arrow,
        "DataFusion": _datafusion,
        "Daft": _daft,
        "Dask, threads": _dask,
        "Ray": _ray,
    }
    with tempfile.TemporaryDirectory() as folder, _cluster():
        dataset = store(JSON_LZ4, folder, MESSAGES).open(typed=True)
        # In turns, because other programs may run beside some of them.
        rounds = [
            [ask(engine, question, dataset) for engine, question in questions.items()]
            for _ in range(ROUNDS)
        ]
    asked = [min(each, key=operator.attrgetter("seconds")) for each in zip(*rounds, strict=True)]
    for each in asked:
        sys.stdout.write(
            f"{each.engine:20} {each.rows:9,} rows {each.seconds:6.2f} s"
            f" {each.seconds / asked[0].seconds:5.1f} times Arrow's"
            f" {each.cpu_seconds:6.2f} s of CPU here, {each.workers} reading\n"
        )


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = os.environ["DAFT_ANALYTICS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    main()
