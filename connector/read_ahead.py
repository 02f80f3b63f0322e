"""Does units of work ahead of a consumer, side by side in threads of their own."""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from arrow_io.threads import SideBySide, in_thread

_T = TypeVar("_T")

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from concurrent.futures import Future

    _Done: TypeAlias = SimpleQueue[Future[_T] | BaseException | "_Finished"]
    """What comes of units, and what ended them."""


def most_units(threads: int) -> int:
    """How many units are under way, or wait for the consumer, at the most."""
    return threads + threads // 2 + 1


class _Finished:
    """Stands behind the last unit."""


def _feed(
    units: Iterator[Callable[[], _T]],
    room: SimpleQueue[None],
    side_by_side: SideBySide,
    done: _Done[_T],
) -> None:
    """Ask for a unit whenever there is room for one, until no more are wanted."""
    last: BaseException | _Finished = _Finished()
    try:
        while True:
            room.get()
            unit = None if side_by_side.is_stopped else next(units, None)
            if unit is None:
                break
            done.put(side_by_side.submit(unit))
    except BaseException as error:  # noqa: BLE001 - raised again in the consumer's thread
        last = error
    close = getattr(units, "close", None)
    if close is not None:
        close()
    done.put(last)


def read_ahead(
    units: Iterator[Callable[[], _T]],
    *,
    threads: int,
    stop: Callable[[], None] | None = None,
) -> Generator[_T, None, None]:
    """What comes of units, in their order, while the next ones are already being done.

    The first is done alone; with each that the consumer takes, the number of those that are under
    way or wait for it may double. So a consumer that stops early has had little done in vain. It
    waits for nothing that is under way, which ends by itself; nor does the interpreter.

    Args:
        units: The units; asked for in a thread of their own, and closed in it.
        threads: How many units are done at once, at the most. Half as many again may wait for the
            consumer.
        stop: Called when the consumer takes no more, so that whoever makes units stops soon;
            wherever Python collects garbage, so it may wait for nothing.
    """
    most = most_units(threads)
    done: _Done[_T] = SimpleQueue()
    room: SimpleQueue[None] = SimpleQueue()  # for a unit each
    side_by_side = SideBySide(threads)
    room.put(None)
    in_thread(partial(_feed, units, room, side_by_side, done))
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
            for _ in range(1 + wider - window):
                room.put(None)
            window = wider
    finally:
        # A queue takes this even in the middle of its own `get`, where garbage may be collected.
        side_by_side.stop()
        if stop is not None:
            stop()
        room.put(None)
