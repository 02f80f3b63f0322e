"""Maintenance of a table on a cluster, whose first task is killed once its files are written.

Run by `test_upkeep` in an interpreter of its own: one process can have one Spark.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import SparkSession

from connector import MaintenanceSettings, maintain_table
from spark_ds.lake import run_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connector.tables.executors import Work

    _Task = TypeVar("_Task")
    _Result = TypeVar("_Result")


@dataclass(frozen=True)
class KilledWork:
    """Work whose process is killed after one task, as an executor may be that has too much memory.

    Attributes:
        work: The work.
        mark: File that shows that it has happened.
    """

    work: Work[Any, Any]
    mark: str

    def __call__(self, task: Any) -> Any:  # noqa: ANN401 - those of the work
        """Run a task."""
        result = self.work(task)
        with suppress(FileExistsError):
            Path(self.mark).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def discard(self, result: Any, error: BaseException) -> None:  # noqa: ANN401 - as above
        """Delete the files of a task."""
        self.work.discard(result, error)


def main(argument: str) -> None:
    """Maintain a table.

    Args:
        argument: JSON object: `settings` of the session, `target` and `format` of the table, and
            `mark` and `result`, files to write.
    """
    given = json.loads(argument)
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def run(work: Work[_Task, _Result], tasks: Sequence[_Task], /) -> Iterator[_Result]:
        return run_work(spark, KilledWork(work, given["mark"]), tasks)

    summary = maintain_table(
        given["target"],
        format=given["format"],
        settings=MaintenanceSettings(min_files=2),
        executor=run,
    )
    Path(given["result"]).write_text(json.dumps(asdict(summary)), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
