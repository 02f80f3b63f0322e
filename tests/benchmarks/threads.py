"""Two threads beside two processes that read the same, and how long a read holds the lock."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

import pyarrow as pa

from arrow_io.core import builds
from arrow_io.messages import bodies
from connector.scan.execution import execute
from tests.benchmarks.resident import ResidentFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.queues import SimpleQueue
    from multiprocessing.synchronize import Barrier

    import zstandard

    from connector.scan.topic_read import ScanTask

_MODULES = ("entries", "metadata", "codecs", "columns", "gathering")
_UNLOCKED = {
    "Gatherer": ("measure", "fill", "property_total", "read_properties", "payload_stop"),
    "Shredder": ("shred", "finish"),
}
"""Classes of the core, and those of their methods that give up the lock."""
_OF_LIBRARIES = ((pa.ipc, "read_record_batch"), (pa, "allocate_buffer"))
"""What else gives it up, but for a few steps at its begin and end, as the core and ZSTD do."""


@dataclass(frozen=True)
class MeasuredThreads:
    """One row of the table of threads.

    Attributes:
        name: The ledger, and what is read of it.
        speed_up: How many times as fast two threads are as one, by the clock.
        process_speed_up: How many times as fast two processes are as one, by the clock.
        cpu_ratio: CPU time of the two threads, divided by twice that of one.
        locked: The part of its time that one thread holds Python's lock.
        calls: Calls of functions by Python for a record batch.
    """

    name: str
    speed_up: float
    process_speed_up: float
    cpu_ratio: float
    locked: float
    calls: float


def measure(name: str, tasks: list[ScanTask], rounds: int) -> MeasuredThreads:
    """Measure reads of the same tasks, of which the batches are thrown away.

    Args:
        name: What is read.
        tasks: What one thread reads.
        rounds: How often each is done; the least times count.
    """
    read = partial(_read, tasks)
    batches = read()
    one: list[tuple[float, float]] = []
    two: list[tuple[float, float]] = []
    processes: dict[int, list[float]] = {1: [], 2: []}
    with _Readers(tasks) as readers:
        for _ in range(rounds):
            # In turn, so that another load of the machine is one of all of them.
            one.append(_times(read, 1))
            two.append(_times(read, 2))
            for count, seconds in processes.items():
                seconds.append(readers.seconds(count))
    return MeasuredThreads(
        name,
        speed_up=2 * min(wall for wall, _ in one) / min(wall for wall, _ in two),
        process_speed_up=2 * min(processes[1]) / min(processes[2]),
        cpu_ratio=min(cpu for _, cpu in two) / 2 / min(cpu for _, cpu in one),
        locked=min(_locked(read) for _ in range(rounds)),
        calls=count_calls(read) / batches,
    )


def _read(tasks: list[ScanTask]) -> int:
    """Read all tasks, throw the batches away, and return their number."""
    return sum(1 for task in tasks for _batch in execute(task))


def count_calls(action: Callable[[], object]) -> int:
    """Return how many functions an action calls by Python."""
    calls = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


class _Readers:
    """Two processes that read the same tasks when they are asked to.

    Args:
        tasks: What each of them reads.
    """

    def __init__(self, tasks: list[ScanTask]) -> None:
        # A fork of a process with threads may have locks that nobody gives up.
        context = multiprocessing.get_context("spawn")
        objects = {path: bytes(data) for path, data in ResidentFileSystem.objects.items()}
        self._begins = [context.Barrier(count) for count in (1, 2)]
        self._questions = [context.SimpleQueue() for _ in range(2)]
        self._spans = context.SimpleQueue()
        self._processes = [
            context.Process(
                target=_answer, args=(objects, tasks, question, self._begins, self._spans)
            )
            for question in self._questions
        ]

    def __enter__(self) -> Self:
        for each in self._processes:
            each.start()
        return self

    def __exit__(self, *_error: object) -> None:
        for each in self._questions:
            each.put(0)
        for process in self._processes:
            process.join()

    def seconds(self, count: int) -> float:
        """Wall time in seconds of a read by one process, or by each of both at a time."""
        for each in self._questions[:count]:
            each.put(count)
        spans = [self._spans.get() for _ in range(count)]
        return float(max(stop for _, stop in spans) - min(start for start, _ in spans))


def _answer(
    objects: dict[str, bytes],
    tasks: list[ScanTask],
    questions: SimpleQueue[int],
    begins: Sequence[Barrier],
    spans: SimpleQueue[tuple[float, float]],
) -> None:
    """Read the tasks together with as many processes as a question says; end at 0."""
    ResidentFileSystem.objects.update({path: memoryview(data) for path, data in objects.items()})
    _read(tasks)
    while count := questions.get():
        begins[count - 1].wait()
        start = time.monotonic()
        _read(tasks)
        spans.put((start, time.monotonic()))


def _times(action: Callable[[], object], count: int) -> tuple[float, float]:
    """Wall and CPU time in seconds of as many threads that do the same."""
    threads = [threading.Thread(target=action) for _ in range(count)]
    wall, cpu = time.perf_counter(), time.process_time()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return time.perf_counter() - wall, time.process_time() - cpu


def _locked(action: Callable[[], object]) -> float:
    """The part of the time that is spent outside of calls which give up the lock.

    By the clock, of a single thread: to ask for its CPU time is a call of the system, which would
    take about as long as what stands between two calls of the core.
    """
    with watched(time.perf_counter) as unlocked:
        start = time.perf_counter()
        action()
        return 1 - sum(unlocked) / (time.perf_counter() - start)


def locked_s(action: Callable[[], object]) -> float:
    """CPU time in seconds that this thread spends outside of calls which give up the lock.

    The time of the clock's own calls is subtracted.
    """
    with watched(time.thread_time) as unlocked:
        start = time.thread_time()
        action()
        seconds = time.thread_time() - start
        watched_count, watched_s = len(unlocked), sum(unlocked)
        # The same number of calls that do nothing.
        nothing = _watch(unlocked, [], time.thread_time)(int)
        start = time.thread_time()
        for _ in range(watched_count):
            nothing()
        clock_s = time.thread_time() - start - sum(unlocked[watched_count:])
        return max(0.0, seconds - watched_s - clock_s)


@contextmanager
def watched(clock: Callable[[], float]) -> Iterator[list[float]]:
    """Note the time of each call of the core and of libraries, while the context lasts.

    Calls by other threads that decompress with ZSTD are not noted.
    """
    unlocked: list[float] = []
    watch = _watch(unlocked, [], clock)
    with ExitStack() as patches:
        for owner, name in _OF_LIBRARIES:
            patches.enter_context(patch.object(owner, name, watch(getattr(owner, name))))
        patches.enter_context(patch.object(builds, "in_use", _WatchedBuild(builds.in_use, watch)))
        # Types of compiled modules cannot be patched.
        contexts = bodies._CONTEXTS
        zstd = _WatchedDecompressor(contexts.zstd, watch)
        patches.enter_context(patch.object(contexts, "zstd", zstd))
        yield unlocked


def _watch(
    unlocked: list[float], under_way: list[object], clock: Callable[[], float]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a function that makes functions note how long each call takes."""

    def watch(function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: object, **named: object) -> object:
            if under_way:
                # It is a part of what is noted already.
                return function(*args, **named)
            under_way.append(function)
            start = clock()
            try:
                return function(*args, **named)
            finally:
                unlocked.append(clock() - start)
                under_way.clear()

        return watched

    return watch


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


class _WatchedDecompressor:
    def __init__(self, zstd: zstandard.ZstdDecompressor, watch: Callable[..., Any]) -> None:
        self._zstd = zstd
        self._watch = watch

    def stream_reader(self, *args: Any, **named: Any) -> SimpleNamespace:  # noqa: ANN401
        reader = self._zstd.stream_reader(*args, **named)
        return SimpleNamespace(readinto=self._watch(reader.readinto))


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
