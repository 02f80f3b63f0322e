"""Times the benchmarks of one checkout, in a process of its own: `worker.py FOLDER [MESSAGES]`.

The process reads commands and writes answers, each a line of JSON. Its modules `tests`, `arrow_io`
and `connector` are those of the checkout that `PYTHONPATH` names, and of `tests` this file imports
`tests.benchmarks.regressions.rows` alone.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Prepared(Protocol):
    """A benchmark whose input is in memory or in a local folder."""

    @property
    def run(self) -> Callable[[], int]:
        """Does what is timed, and returns the number of rows."""

    @property
    def floor(self) -> Callable[[], object]:
        """Does what the benchmark is compared with in one run: its yardstick."""


class Timer:
    """Benchmarks that run in this process, one after another.

    Args:
        rows: Prepares each benchmark, by name.
        clock: CPU time in seconds.
    """

    def __init__(
        self, rows: Mapping[str, Callable[[], Prepared]], clock: Callable[[], float]
    ) -> None:
        self.names = list(rows)
        self._rows = rows
        self._clock = clock
        self._prepared: Prepared | None = None

    def prepare(self, name: str) -> tuple[int, float]:
        """Prepare a benchmark in the place of the last one, and run it twice.

        Returns:
            The number of rows, and the CPU time of the second run in seconds.
        """
        self._prepared = None  # frees the memory of the last one
        self._prepared = self._rows[name]()
        rows = self._prepared.run()
        return rows, self._seconds(self._prepared.run, 1)

    def run(self, repeats: int) -> float:
        """Return the CPU time of one of so many runs, in seconds."""
        assert self._prepared is not None
        return self._seconds(self._prepared.run, repeats)

    def floor(self) -> float:
        """Return the CPU time of the yardstick, in seconds: the least of three runs."""
        assert self._prepared is not None
        floor = self._prepared.floor
        return min(self._seconds(floor, 1) for _ in range(3))

    def _seconds(self, action: Callable[[], object], repeats: int) -> float:
        gc.collect()
        gc.disable()  # a collection would be of whichever run it happens in
        try:
            start = self._clock()
            for _ in range(repeats):
                action()
            return (self._clock() - start) / repeats
        finally:
            gc.enable()


def cpu_seconds() -> float:
    """CPU time of this process and of those that it started and waited for, in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    """Answer commands until the input ends."""
    # Before any library is loaded that starts as many threads as there are processors.
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not answer

    def answer(value: Any) -> None:  # noqa: ANN401 - a value of JSON
        print(json.dumps(value), file=answers, flush=True)

    import arrow_io.core.builds  # noqa: PLC0415
    from tests.benchmarks.regressions import rows  # noqa: PLC0415

    folder, messages = sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else None
    timer = Timer(rows.open_rows(folder, messages), cpu_seconds)
    gc.freeze()  # imported modules are never garbage, and to look through them takes long
    build = "compiled" if arrow_io.core.builds.in_use.is_compiled else "pure"
    answer({"names": timer.names, "package": arrow_io.__file__, "build": build})
    for line in sys.stdin:
        match json.loads(line):
            case ["prepare", str(name)]:
                answer(timer.prepare(name))
            case ["run", int(repeats)]:
                answer(timer.run(repeats))
            case ["floor"]:
                answer(timer.floor())
            case command:
                raise ValueError(command)


if __name__ == "__main__":
    main()
