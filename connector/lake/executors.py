"""What runs the tasks of a copy: threads of this process, unless an engine does."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeAlias

from arrow_io.core.processors import processor_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from connector.lake.task_writer import TaskWriter, WrittenTask
    from connector.scan.topic_read import ScanTask

    Executor: TypeAlias = Callable[[TaskWriter, Sequence[ScanTask]], Iterator[WrittenTask]]
    """Runs a writer on each task, and gives what came of them, in any order.

    If a task fails, it gives what came of all others that it has begun, and raises then: files that
    nobody was told of would be left. If it is closed before its end, it discards what it has not
    given.
    """


def run_in_threads(write: TaskWriter, tasks: Sequence[ScanTask]) -> Iterator[WrittenTask]:
    """Run tasks in as many threads as there are processors for this process; see `Executor`."""
    failure: BaseException | None = None
    with ThreadPoolExecutor(min(len(tasks), processor_count()) or 1) as pool:
        # In the caller's context, which says how errors call options.
        futures = {pool.submit(copy_context().run, write, each) for each in tasks}
        try:
            while futures:
                finished, _ = wait(futures, return_when=FIRST_COMPLETED)
                for each in finished:
                    futures.remove(each)
                    try:
                        result = each.result()
                    except BaseException as error:  # noqa: BLE001 - raised below
                        failure = failure or error
                        # Whoever waits for one that is cancelled before it ran waits for ever.
                        futures -= {other for other in tuple(futures) if other.cancel()}
                        continue
                    yield result
        except BaseException as error:
            # Whoever took the others will not hear of these.
            pool.shutdown(cancel_futures=True)
            for each in futures:
                if not each.cancelled() and each.exception() is None:
                    write.discard(each.result(), error)
            raise
    if failure is not None:
        raise failure
