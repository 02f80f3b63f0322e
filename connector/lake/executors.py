"""Executors of a copy's tasks: threads of this process by default, or an engine."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, TypeAlias

from arrow_io.core.processors import processor_count
from arrow_io.core.threads import ContextThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask

    Executor: TypeAlias = Callable[[TaskWriter, Sequence[ScanTask]], Iterator[WrittenTask]]
    """Runs a writer on each task, and yields the results in any order.

    If a task fails, it yields the results of all other tasks that it started, and then raises: the
    caller can only delete files that it was given. If it is closed early, it discards the results
    that it has not yielded.
    """


def run_in_threads(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
    """Run tasks in one thread for each available processor; see `Executor`."""
    failure: BaseException | None = None
    with ContextThreadPool(min(len(tasks), processor_count()) or 1) as pool:
        futures = {pool.submit(write, each) for each in tasks}
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
                    write.discard(each.result(), error)
            raise
    if failure is not None:
        raise failure
