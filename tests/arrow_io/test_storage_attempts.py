"""What a task of an event loop does is cancelled when its time is over; bytes put that off.

The clock is the test's: it goes on by as much as the event loop would wait.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import TYPE_CHECKING, Any

import pytest

from arrow_io.storage.attempts import Attempt, Attempts, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


class _Clock(selectors.DefaultSelector):
    """Stands still, but for waits of the event loop, which end at once."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "the event loop would wait for ever"
            self.now_s += timeout
        return ready


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """The clock of attempts."""
    clock = _Clock()
    monkeypatch.setattr("arrow_io.storage.attempts.time", clock)
    return clock


@pytest.fixture
def run(clock: _Clock) -> Iterator[Callable[[Awaitable[bool]], bool]]:
    """Runs something in an event loop of the same clock; nothing of it may be left there."""
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = clock.monotonic  # type: ignore[method-assign]
    errors: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _loop, error: errors.append(error))
    yield loop.run_until_complete
    left = [each for each in loop._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
    loop.close()
    assert (left, errors) == ([], [])


def _attempt(seconds: float, least_bytes_per_s: float) -> Attempt:
    retry = RetryPolicy(deadline_s=seconds, least_bytes_per_s=least_bytes_per_s)
    attempt = Attempts(retry).begin()
    attempt.start()
    return attempt


async def _is_given_up(attempt: Attempt, parts: list[tuple[float, int]]) -> bool:
    """Receive parts, each after a wait in seconds and of so many bytes."""
    try:
        async with attempt.timeout() as limit:
            for wait_s, size_bytes in parts:
                await asyncio.sleep(wait_s)
                attempt.extend(size_bytes)
    except TimeoutError:
        assert limit.expired()
        return True
    assert not limit.expired()
    return False


@pytest.mark.parametrize(
    ("parts", "given_up_s"),
    [
        ([(9.9, 0)], None),
        ([(10.1, 0)], 10),
        ([(9, 100), (10.9, 0)], None),
        ([(9, 100), (11.1, 0)], 20),
        ([(1, 100)] * 100, None),
        ([(1, 100)] * 3 + [(50, 0)], 40),
        ([(9, 10)] * 3, 11),
        ([(0, 100_000), (10_009, 0)], None),
        ([(0, 100_000), (10_011, 0)], 10_010),
    ],
)
def test_bytes_put_off_the_end(
    clock: _Clock,
    run: Callable[[Awaitable[bool]], bool],
    parts: list[tuple[float, int]],
    given_up_s: float | None,
) -> None:
    """Ten bytes by one second: exactly then what waits longer is cancelled, and never sooner."""
    given_up = run(_is_given_up(_attempt(10, least_bytes_per_s=10), parts))

    passed_s = clock.now_s - 1000
    if given_up_s is None:
        assert not given_up
        assert passed_s == pytest.approx(sum(wait_s for wait_s, _ in parts))
    else:
        assert given_up
        assert passed_s == pytest.approx(given_up_s)


def test_timers_of_a_loop_may_be_coarse(
    clock: _Clock, run: Callable[[Awaitable[bool]], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvloop's, which fall on milliseconds, in the order in which they were set."""
    call_at = asyncio.SelectorEventLoop.call_at

    def rounded(
        loop: asyncio.SelectorEventLoop,
        when: float,
        *what: Any,  # noqa: ANN401 - as of `call_at`
        **context: Any,  # noqa: ANN401
    ) -> asyncio.TimerHandle:
        return call_at(loop, math.ceil(when * 1000) / 1000, *what, **context)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "call_at", rounded)

    assert not run(_is_given_up(_attempt(10.0004, least_bytes_per_s=10), [(9, 100), (10.9, 0)]))
    assert run(_is_given_up(_attempt(10.0004, least_bytes_per_s=10), [(9, 100), (11.1, 0)]))
    assert clock.now_s == pytest.approx(1000 + 19.9 + 20, abs=0.002)


def test_a_cancellation_of_somebody_else_stays_one(
    run: Callable[[Awaitable[bool]], bool],
) -> None:
    """It is not taken for the end of the time."""

    async def cancelled() -> bool:
        task = asyncio.ensure_future(_is_given_up(_attempt(10, least_bytes_per_s=1), [(5, 0)]))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert run(cancelled())
