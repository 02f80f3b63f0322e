"""Does units of work ahead of a consumer, side by side in threads of its own."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_T = TypeVar("_T")

_NAME: Final = "pulsar-offload-read-ahead"


def most_units(threads: int) -> int:
    """How many units are under way, or wait for the consumer, at the most."""
    return threads + threads // 2 + 1


class _Finished:
    """Stands behind the last unit."""


def read_ahead(units: Iterator[Callable[[], _T]], *, threads: int) -> Generator[_T, None, None]:
    """What comes of units, in their order, while the next ones are already being done.

    The first is done alone; with each that the consumer takes, the number of those that are under
    way or wait for it may double. So a consumer that stops early has had little done in vain.

    Args:
        units: The units; asked for in a thread of their own, and closed in it.
        threads: How many units are done at once, at the most. Half as many again may wait for the
            consumer.
    """
    most = most_units(threads)
    done: SimpleQueue[Future[_T] | BaseException | _Finished] = SimpleQueue()
    room = Semaphore(1)
    stopped = Event()
    # In the caller's context, which says how errors call options.
    context = copy_context()

    def feed() -> None:
        last: BaseException | _Finished = _Finished()
        try:
            while room.acquire() and not stopped.is_set():
                unit = next(units, None)
                if unit is None:
                    break
                done.put(pool.submit(context.copy().run, unit))
        except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
            last = error
        close = getattr(units, "close", None)
        if close is not None:
            close()
        done.put(last)

    pool = ThreadPoolExecutor(threads, thread_name_prefix=_NAME)
    feeder = Thread(target=context.copy().run, args=(feed,), name=_NAME, daemon=True)
    feeder.start()
    window = 1
    try:
        while True:
            item = done.get()
            if isinstance(item, _Finished):
                return
            if isinstance(item, BaseException):
                raise item
            yield item.result()
            del item
            wider = min(2 * window, most)
            room.release(1 + wider - window)
            window = wider
    finally:
        stopped.set()
        room.release()
        feeder.join()
        pool.shutdown(cancel_futures=True)
