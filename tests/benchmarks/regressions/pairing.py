"""Benchmarks of two checkouts, measured in turns by processes of their own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.benchmarks.regressions.verdicts import Comparison, Verdict, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

_WORKER: Final = Path(__file__).with_name("worker.py")
_RUN_SECONDS: Final = 0.01
"""A shorter benchmark is repeated until it takes about this long."""


class WorkerError(Exception):
    """A process that measures has ended, or measures another checkout than it should."""


class DifferentRowsError(Exception):
    """Both sides ran a benchmark of one name, and their numbers of rows differ."""


class Side(Protocol):
    """The benchmarks of one checkout; see `worker.Timer`."""

    @property
    def names(self) -> Collection[str]:
        """Names of its benchmarks."""

    def prepare(self, name: str) -> tuple[int, float]:
        """Prepare a benchmark; return its number of rows, and about its CPU time in seconds."""

    def run(self, repeats: int) -> float:
        """Return the CPU time of one of so many runs, in seconds."""

    def floor(self) -> float:
        """Return the CPU time of the yardstick, in seconds."""


class WorkerSide:
    """A process that measures the benchmarks of one checkout.

    Args:
        process: The process.
        checkout: Root of the checkout.

    Raises:
        WorkerError: The process has ended, or measures another checkout.
    """

    def __init__(self, process: subprocess.Popen[str], checkout: Path) -> None:
        self._process = process
        hello = self._answer()
        self.names: list[str] = hello["names"]
        self.build: str = hello["build"]
        if not Path(hello["package"]).is_relative_to(checkout):
            message = f"{hello['package']} was imported, which is not in {checkout}"
            raise WorkerError(message)

    def prepare(self, name: str) -> tuple[int, float]:
        """Prepare a benchmark; see `Side`."""
        rows, seconds = self._ask("prepare", name)
        return rows, seconds

    def run(self, repeats: int) -> float:
        """Run the benchmark; see `Side`."""
        return float(self._ask("run", repeats))

    def floor(self) -> float:
        """Run the yardstick; see `Side`."""
        return float(self._ask("floor"))

    def _ask(self, *command: str | int) -> Any:  # noqa: ANN401 - a value of JSON
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer is missing, too
            os.write(self._process.stdin.fileno(), (json.dumps(command) + "\n").encode())
        return self._answer()

    def _answer(self) -> Any:  # noqa: ANN401 - a value of JSON
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            message = f"the process that measures ended with code {self._process.wait()}"
            raise WorkerError(message)
        return json.loads(line)


@contextlib.contextmanager
def open_worker(checkout: Path, folder: str, messages: int | None) -> Iterator[WorkerSide]:
    """Start a process that measures the benchmarks of a checkout, and end it.

    Args:
        checkout: Root of the checkout, with a core.
        folder: Local folder for ledgers and payloads.
        messages: Messages of each ledger and payloads of each kind; None: enough of each.

    Raises:
        WorkerError: The process has ended, or measures another checkout.
    """
    command = [sys.executable, "-P", str(_WORKER), folder]
    if messages is not None:
        command.append(str(messages))
    # The index cache of the user is neither read nor changed.
    environment = os.environ | {
        "PYTHONPATH": str(checkout),
        "PULSAR_OFFLOAD_INDEX_CACHE": "0",
    }
    with subprocess.Popen(
        command, cwd=checkout, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield WorkerSide(process, checkout)


@dataclass
class Measured:
    """One benchmark.

    Attributes:
        name: Its name.
        seconds: Least CPU time of this tree in each session.
        floors: CPU time of the yardstick in each session.
        ratios: `seconds` divided by the least CPU time of the old side, in each session.
    """

    name: str
    seconds: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    @property
    def ratio_to_floor(self) -> float:
        """Least CPU time, divided by that of the yardstick."""
        return min(self.seconds) / min(self.floors)

    @property
    def comparison(self) -> Comparison | None:
        """The comparison with the old side; None if that lacks the benchmark."""
        return compare(self.ratios) if self.ratios else None


@dataclass(frozen=True, slots=True)
class Effort:
    """How often benchmarks are run.

    Attributes:
        sessions: Pairs of processes that measure every benchmark.
        max_sessions: The same, with those that measure undecided benchmarks again.
        pairs: Pairs of runs of each benchmark in a session.
    """

    sessions: int = 8
    max_sessions: int = 20
    pairs: int = 3


def measure(
    names: Sequence[str],
    open_new: Callable[[], AbstractContextManager[Side]],
    open_old: Callable[[], AbstractContextManager[Side]] | None = None,
    effort: Effort = Effort(),
) -> list[Measured]:
    """Measure benchmarks.

    Where the libraries and the heap of a process happen to be in memory changes its times by
    several percent, and stays as long as the process. So each session has processes of its own,
    and is one independent ratio: the least CPU time of one side divided by that of the other.

    Args:
        names: Names of benchmarks of the new side.
        open_new: Starts a process for this tree.
        open_old: Starts a process for the old checkout; None: only this tree is measured.
        effort: How often benchmarks are run.

    Raises:
        DifferentRowsError: The old side has another number of rows.
        WorkerError: A process has ended.
    """
    rows = [Measured(name) for name in names]
    for number in range(effort.max_sessions):
        due = rows
        if number >= effort.sessions:
            due = [row for row in rows if _is_undecided(row)]
        if not due:
            break
        with contextlib.ExitStack() as stack:
            new = stack.enter_context(open_new())
            old = stack.enter_context(open_old()) if open_old else None
            for row in due:
                _run_session(row, new, old, effort.pairs, is_old_first=bool(number % 2))
    return rows


def _is_undecided(row: Measured) -> bool:
    return row.comparison is not None and row.comparison.verdict is Verdict.UNDECIDED


def _run_session(
    row: Measured, new: Side, old: Side | None, pairs: int, *, is_old_first: bool
) -> None:
    """Add a session to a benchmark."""
    count, seconds = new.prepare(row.name)
    sides = [new]
    if old is not None and row.name in old.names:
        old_count, old_seconds = old.prepare(row.name)
        if old_count != count:
            message = f"{row.name}: {count:,} rows, and {old_count:,} in the old checkout"
            raise DifferentRowsError(message)
        seconds = min(seconds, old_seconds)
        sides.append(old)
    repeats = max(1, math.ceil(_RUN_SECONDS / max(seconds, 1e-9)))
    times: dict[int, list[float]] = {id(side): [] for side in sides}
    for number in range(pairs):
        for side in sides if (number % 2 == 1) == is_old_first else reversed(sides):
            times[id(side)].append(side.run(repeats))
    row.seconds.append(min(times[id(new)]))
    row.floors.append(new.floor())
    if len(sides) > 1:
        row.ratios.append(min(times[id(new)]) / min(times[id(sides[1])]))
