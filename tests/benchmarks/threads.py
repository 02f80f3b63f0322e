"""Two threads, each of which reads a ledger of its own, and how long a read holds Python's lock."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa

from arrow_io.core import builds
from arrow_io.messages import bodies
from connector.scan.execution import execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connector.scan.topic_read import ScanTask

_MODULES = ("entries", "metadata", "codecs", "columns", "gathering")
_UNLOCKED = {"Gatherer": ("measure", "fill"), "Shredder": ("shred", "finish")}
"""Classes of the core, and those of their methods that give up the lock."""
_OF_LIBRARIES = (
    (bodies, "_decompress_frames"),
    (pa.ipc, "read_record_batch"),
    (pa, "allocate_buffer"),
)
"""What else gives it up, but for a few steps at its begin and end, as the core does."""


@dataclass(frozen=True)
class MeasuredThreads:
    """One row of the table of threads.

    Attributes:
        name: The ledger, and what is read of it.
        speed_up: How many times as fast two threads are as one, by the clock.
        cpu_ratio: CPU time of the two, divided by twice that of one.
        locked: The part of its time that one thread holds Python's lock.
    """

    name: str
    speed_up: float
    cpu_ratio: float
    locked: float


def measure(name: str, tasks: list[ScanTask], rounds: int) -> MeasuredThreads:
    """Measure reads of the same tasks, of which the batches are thrown away.

    Args:
        name: What is read.
        tasks: What one thread reads.
        rounds: How often each is done; the least times count.
    """

    def read() -> None:
        for task in tasks:
            for _batch in execute(task):
                pass

    read()
    one = [_times(read, 1) for _ in range(rounds)]
    two = [_times(read, 2) for _ in range(rounds)]
    return MeasuredThreads(
        name,
        speed_up=2 * min(wall for wall, _ in one) / min(wall for wall, _ in two),
        cpu_ratio=min(cpu for _, cpu in two) / 2 / min(cpu for _, cpu in one),
        locked=min(_locked(read) for _ in range(rounds)),
    )


def _times(action: Callable[[], None], count: int) -> tuple[float, float]:
    """Wall and CPU time in seconds of as many threads that do the same."""
    threads = [threading.Thread(target=action) for _ in range(count)]
    wall, cpu = time.perf_counter(), time.process_time()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return time.perf_counter() - wall, time.process_time() - cpu


def _locked(action: Callable[[], None]) -> float:
    """The part of the time that is spent outside of calls which give up the lock.

    By the clock, of a single thread: to ask for its CPU time is a call of the system, which would
    take about as long as what stands between two calls of the core.
    """
    with _watched() as unlocked:
        start = time.perf_counter()
        action()
        return 1 - sum(unlocked) / (time.perf_counter() - start)


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Note the time of each call of the core and of libraries, while the context lasts."""
    unlocked: list[float] = []
    under_way: list[object] = []

    def watch(function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: object, **named: object) -> object:
            if under_way:
                # It is a part of what is noted already.
                return function(*args, **named)
            under_way.append(function)
            start = time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                unlocked.append(time.perf_counter() - start)
                under_way.clear()

        return watched

    with ExitStack() as patches:
        for owner, name in _OF_LIBRARIES:
            patches.enter_context(patch.object(owner, name, watch(getattr(owner, name))))
        patches.enter_context(patch.object(builds, "in_use", _WatchedBuild(builds.in_use, watch)))
        yield unlocked


class _WatchedModule:
    def __init__(self, module: object, watch: Callable[..., Any]) -> None:
        for name, each in vars(module).items():
            if name in _UNLOCKED:
                setattr(self, name, partial(_WatchedObject, each, watch, _UNLOCKED[name]))
            else:
                setattr(self, name, watch(each) if callable(each) else each)


class _WatchedObject:
    def __init__(
        self, kind: type, watch: Callable[..., Any], methods: Sequence[str], *args: object
    ) -> None:
        self._watched = kind(*args)
        for name in methods:
            setattr(self, name, watch(getattr(self._watched, name)))

    def join(self, other: _WatchedObject) -> None:
        self._watched.join(other._watched)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._watched, name)


class _WatchedBuild:
    def __init__(self, build: builds.Build, watch: Callable[..., Any]) -> None:
        self.is_compiled = build.is_compiled
        for name in _MODULES:
            setattr(self, name, _WatchedModule(getattr(build, name), watch))
        self._watch = watch
        self._build = build
        self._payloads: dict[str, _WatchedModule] = {}

    def payloads(self, name: str) -> _WatchedModule:
        if name not in self._payloads:
            self._payloads[name] = _WatchedModule(self._build.payloads(name), self._watch)
        return self._payloads[name]
