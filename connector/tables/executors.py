"""Executors of tasks that write files: threads of this process by default, or an engine."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, Protocol, TypeVar

from arrow_io.core.processors import processor_count
from arrow_io.core.threads import ContextThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_Task_contra = TypeVar("_Task_contra", contravariant=True)
_InOut = TypeVar("_InOut")


class Work(Protocol[_Task_contra, _InOut]):
    """Writes the files of a task. Can be pickled, like tasks and results."""

    def __call__(self, task: _Task_contra, /) -> _InOut:
        """Run a task.

        Raises:
            PulsarOffloadError: The task failed. Its files are deleted, unless a note on the error
                names some that are left.
        """

    def discard(self, result: _InOut, error: BaseException, /) -> None:
        """Delete a task's files after an error. If this fails, add a note to the error."""


class Executor(Protocol):
    """Runs tasks in parallel."""

    def __call__(self, work: Work[_Task, _Result], tasks: Sequence[_Task], /) -> Iterator[_Result]:
        """Run each task, and yield the results in any order.

        If a task fails, it yields the results of all other tasks that it started, and then raises:
        the caller can only delete files that it was given. If it is closed early, it discards the
        results that it has not yielded.
        """


def run_in_threads(work: Work[_Task, _Result], tasks: Sequence[_Task]) -> Iterator[_Result]:
    """Run tasks in one thread for each available processor; see `Executor`."""
    failure: BaseException | None = None
    with ContextThreadPool(min(len(tasks), processor_count()) or 1) as pool:
        futures = {pool.submit(work, each) for each in tasks}
        try:
            while futures:
                finished, _ = wait(futures, return_when=FIRST_COMPLETED)
                for each in finished:
                    futures.remove(each)
                    try:
                        result = each.result()
                    except BaseException as error:  # noqa: BLE001 - raised below
                        failure = failure or error
                        # `wait` never returns a future that was cancelled before it ran.
                        futures -= {other for other in tuple(futures) if other.cancel()}
                        continue
                    yield result
        except BaseException as error:
            # The caller cannot delete the files of results that it was not given.
            pool.shutdown(cancel_futures=True)
            for each in futures:
                if not each.cancelled() and each.exception() is None:
                    work.discard(each.result(), error)
            raise
    if failure is not None:
        raise failure


def run_tasks(
    executor: Executor,
    work: Work[_Task, _Result],
    tasks: Sequence[_Task],
    on_result: Callable[[_Result], object] | None = None,
) -> list[_Result]:
    """Run all tasks and return their results. If one fails, delete all files and re-raise.

    Args:
        executor: Runs the tasks.
        work: What is done to each task.
        tasks: The tasks.
        on_result: Called with each result. If it raises, all files are deleted too.
    """
    results: list[_Result] = []
    try:
        for each in executor(work, tasks):
            results.append(each)
            if on_result is not None:
                on_result(each)
    except BaseException as error:
        for each in results:
            work.discard(each, error)
        raise
    return results
