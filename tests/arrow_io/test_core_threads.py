"""Calls in threads: in order, so many at a time, and no longer than somebody wants them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from contextvars import ContextVar
from functools import partial

import pytest

from arrow_io.core import threads
from arrow_io.core.threads import WorkerPool, run_in_thread, shared_workers


@pytest.mark.parametrize("most", [1, 2, 16])
def test_so_many_calls_are_under_way_as_may_be(most: int) -> None:
    """As many that wait for each other come to an end, and never more run."""
    barrier = threading.Barrier(most)
    lock = threading.Lock()
    running = peak = 0

    def meet(number: int) -> int:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        barrier.wait(timeout=30)
        with lock:
            running -= 1
        return number

    pool = WorkerPool(most)
    results = [pool.submit(partial(meet, number)) for number in range(10 * most)]

    assert [each.result(timeout=30) for each in results] == list(range(10 * most))
    assert peak == most


def test_calls_begin_in_order() -> None:
    """One at a time, they also end in it."""
    done: list[int] = []
    pool = WorkerPool(1)

    results = [pool.submit(partial(done.append, number)) for number in range(100)]

    for each in results:
        each.result(timeout=30)
    assert done == list(range(100))


def test_what_has_not_begun_is_cancelled() -> None:
    """By itself, or all together by `stop`, which waits for nothing."""
    begun, gate = threading.Event(), threading.Event()
    done: list[str] = []

    def wait() -> str:
        begun.set()
        assert gate.wait(timeout=30)
        return "under way"

    pool = WorkerPool(1)
    first = pool.submit(wait)
    assert begun.wait(timeout=30)
    alone, other = (pool.submit(partial(done.append, name)) for name in ("a", "b"))

    assert alone.cancel()
    pool.stop()
    gate.set()

    assert first.result(timeout=30) == "under way"
    with pytest.raises(CancelledError):
        other.result(timeout=30)
    assert done == []


def test_errors_are_those_of_the_result() -> None:
    """Any error, and the thread goes on with the next call."""
    pool = WorkerPool(1)

    failed = pool.submit(partial(int, "x"))

    assert pool.submit(partial(int, "1")).result(timeout=30) == 1
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(timeout=30)


def test_calls_run_in_the_context_of_who_asks() -> None:
    """Of that moment."""
    variable: ContextVar[str] = ContextVar("variable", default="")
    variable.set("asked")
    pool = WorkerPool(1)

    results = [run_in_thread(variable.get), pool.submit(variable.get)]
    variable.set("later")

    assert [each.result(timeout=30) for each in results] == ["asked"] * 2


def test_threads_are_used_again_and_end_when_nothing_is_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a process keeps none for the most that it ever needed at once."""
    monkeypatch.setattr(threads, "_MAX_IDLE_S", 0.0)
    pool = threads._Threads()
    gate = threading.Event()
    results = [pool.run(lambda: (gate.wait(30), threading.current_thread())[1]) for _ in range(8)]
    gate.set()
    used = {each.result(timeout=30) for each in results}

    assert len(used) == 8
    for thread in used:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert pool.run(partial(int, "1")).result(timeout=30) == 1


def test_calls_are_run_though_a_thread_could_not_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever asked then hears of it; those who ask later do not wait for a thread that is not."""
    pool = WorkerPool(1)

    def fail(_call: object) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as patch:
        patch.setattr(threads, "run_in_thread", fail)
        with pytest.raises(RuntimeError, match="start new thread"):
            pool.submit(partial(int, "1"))

    assert pool.submit(partial(int, "2")).result(timeout=30) == 2


@pytest.mark.posix
def test_workers_are_those_of_the_process() -> None:
    """The same for everybody; a forked child, which has no threads of its parent, has its own."""
    used = shared_workers(2)
    assert shared_workers(2) is used
    assert shared_workers(3) is not used
    assert used.submit(partial(int, "1")).result(timeout=30) == 1
    child = os.fork()
    if not child:
        found = 0
        try:
            found = shared_workers(2).submit(partial(int, "1")).result(timeout=30)
        finally:
            os._exit(found != 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared_workers(2) is used


def test_no_program_waits_for_a_call() -> None:
    """Neither for one under way nor for those behind it."""
    program = """
import threading
from arrow_io.core.threads import WorkerPool, run_in_thread
pool = WorkerPool(2)
for _ in range(10):
    pool.submit(threading.Event().wait)
run_in_thread(threading.Event().wait)
print("ends", flush=True)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert (ended.stdout, ended.stderr) == ("ends\n", "")


def test_threads_may_be_asked_while_the_program_ends() -> None:
    """A thread that is no daemon keeps the program alive, and reads to its end."""
    program = """
import threading
from arrow_io.core.threads import WorkerPool
def read():
    threading.main_thread().join()
    print([WorkerPool(2).submit(lambda: 1).result() for _ in range(3)], flush=True)
threading.Thread(target=read).start()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert (ended.stdout, ended.stderr) == ("[1, 1, 1]\n", "")
