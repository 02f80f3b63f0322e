"""A store that says "try later" is asked later, until the deadline, and not by all at once."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from arrow_io.errors import StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.failures import is_transient, says_try_later
from arrow_io.storage.location import Location
from tests.support.faulty_storage import FaultScript, raising, s3_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_Result = TypeVar("_Result")


class SimulatedTime:
    """A clock, and threads of which one runs at a time: the one whose pause ends first.

    So a run has one outcome, whatever the machine does.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        """The time, in seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let other threads run until so much time has passed."""
        turn = self._queue_up(seconds)
        self._wake_next()
        turn.wait()

    def run(self, calls: Sequence[Callable[[], _Result]]) -> list[_Result]:
        """Make calls side by side, each in a thread that is in this time."""

        def run(call: Callable[[], _Result], turn: threading.Event) -> _Result:
            turn.wait()
            try:
                return call()
            finally:
                self._wake_next()

        with ThreadPoolExecutor(len(calls)) as executor:
            results = [executor.submit(run, call, self._queue_up(0)) for call in calls]
            self._wake_next()
            return [result.result() for result in results]

    def _queue_up(self, seconds: float) -> threading.Event:
        turn = threading.Event()
        heapq.heappush(self._waiting, (self.now_s + seconds, next(self._order), turn))
        return turn

    def _wake_next(self) -> None:
        if self._waiting:
            self.now_s, _, turn = heapq.heappop(self._waiting)
            turn.set()


_RANGES = 200
_AT_A_TIME = 32
_AHEAD = 40
"""Requests that a read sends beyond the first that was not answered."""


class _LibraryError(Exception):
    """An error with its status where a library has it."""

    def __init__(self, **attributes: object) -> None:
        super().__init__()
        vars(self).update(attributes)


def _obstore_error(status: int, code: str) -> Exception:
    exceptions = pytest.importorskip("obstore.exceptions")
    from arrow_io.storage.obstore_errors import translate_error  # noqa: PLC0415 - needs obstore

    answer = f"<Error><Code>{code}</Code></Error>"
    return translate_error(
        exceptions.GenericError(f"Server returned non-2xx status code: {status}: {answer}")
    )


_OF_CLIENT = {"fsspec": s3_error, "obstore": _obstore_error}


@pytest.mark.parametrize("client", _OF_CLIENT)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (503, "SlowDown"),
        (503, "ServiceUnavailable"),
        (503, "ServerBusy"),
        (429, "TooManyRequests"),
        (400, "SlowDown"),
        (400, "ThrottlingException"),
        (400, "RequestLimitExceeded"),
        (509, "BandwidthLimitExceeded"),
    ],
)
def test_a_store_says_try_later(client: str, status: int, code: str) -> None:
    """By the status, or by a code that some stores send with another status."""
    error = _OF_CLIENT[client](status, code)

    assert says_try_later(error)
    assert is_transient(error)


@pytest.mark.parametrize("name", ["status", "status_code", "code"])
def test_any_library_says_try_later(name: str) -> None:
    """aiohttp, azure and gcsfs have the status under names of their own."""
    assert says_try_later(_LibraryError(**{name: 429}))
    assert not says_try_later(_LibraryError(**{name: 500}))


@pytest.mark.parametrize(
    "error",
    [
        s3_error(500, "InternalError"),
        s3_error(504, "504"),
        s3_error(403, "AccessDenied"),
        TimeoutError(),
        ConnectionResetError(),
        StorageError("503"),
    ],
)
def test_other_failures_do_not_say_try_later(error: Exception) -> None:
    """Nothing is known of when they will pass."""
    assert not says_try_later(error)


class _Store:
    """Takes so many requests at a time, or so many a second, and refuses the others."""

    def __init__(
        self,
        time: SimulatedTime,
        refusal: Callable[[], Exception],
        *,
        capacity: int | None = None,
        per_s: float | None = None,
    ) -> None:
        self._time = time
        self._refusal = refusal
        self._room = capacity
        self._per_s = per_s
        self._free_at_s = 0.0
        self.counts: Counter[str] = Counter()
        self.refused_at_s: list[float] = []

    def request(self) -> None:
        """One request, which takes 0.3 s unless it is refused."""
        if not self._has_room():
            self.counts["refused"] += 1
            self.refused_at_s.append(self._time.now_s)
            raise self._refusal()
        if self._room is not None:
            self._room -= 1
        self._time.sleep(0.3)
        self.counts["answered"] += 1
        if self._room is not None:
            self._room += 1

    def _has_room(self) -> bool:
        if self._per_s is not None:
            if self._free_at_s > self._time.now_s:
                return False
            self._free_at_s = self._time.now_s + 1 / self._per_s
        return self._room != 0


def _policy(time: SimulatedTime) -> RetryPolicy:
    chance = random.Random(7)
    return RetryPolicy(
        sleep=time.sleep, clock=time.clock, jitter=lambda longest_s: chance.uniform(0, longest_s)
    )


class _Read:
    """Sends requests for ranges ahead, in order, as a read does with default options."""

    def __init__(self, time: SimulatedTime, store: _Store) -> None:
        self._time = time
        self._store = store
        self._policy = _policy(time)
        self._left = deque(range(_RANGES))
        self._error_without_answer = set(self._left)

    def run(self) -> None:
        """Read all ranges; raises what the first that fails raises."""
        self._time.run([self._send] * _AT_A_TIME)

    def _send(self) -> None:
        while self._left:
            number = self._left.popleft()
            while number >= min(self._error_without_answer) + _AHEAD:
                self._time.sleep(0.2)
            self._policy.call(self._store.request)
            self._error_without_answer.remove(number)


@pytest.mark.parametrize("client", _OF_CLIENT)
@pytest.mark.parametrize("limit", [{"capacity": 8}, {"capacity": 1}, {"per_s": 20}, {"per_s": 3}])
def test_a_busy_store_answers_all_in_the_end(client: str, limit: dict[str, int]) -> None:
    """Though 32 requests are under way, and each has a minute."""
    time = SimulatedTime()
    store = _Store(time, partial(_OF_CLIENT[client], 503, "SlowDown"), **limit)

    _Read(time, store).run()

    assert store.counts["answered"] == _RANGES
    assert store.counts["refused"] > _AT_A_TIME


def test_those_who_are_refused_together_do_not_come_back_together() -> None:
    """Pauses are random between nothing and their longest, so they spread."""
    time = SimulatedTime()
    store = _Store(time, partial(s3_error, 503, "SlowDown"), capacity=1)
    policy = _policy(time)

    time.run([partial(policy.call, store.request)] * 32)

    at_once = Counter(store.refused_at_s)
    assert at_once.pop(0) == 31
    assert set(at_once.values()) == {1}


def test_pauses_grow_and_are_random() -> None:
    """What is random is a share of what the pause would be otherwise."""
    time, longest_s = SimulatedTime(), []

    def jitter(seconds: float) -> float:
        longest_s.append(seconds)
        return seconds / 2

    policy = RetryPolicy(sleep=time.sleep, clock=time.clock, jitter=jitter)

    with pytest.raises(OSError, match="no"):
        policy.call(partial(_fail, s3_error(503, "SlowDown")))
    assert longest_s[:8] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5])
    assert 50 < time.now_s < 60


def test_what_the_jitter_gives_is_bounded_by_the_pause() -> None:
    """The one that is used unless a test says otherwise."""
    pauses_s = [RetryPolicy().jitter(5) for _ in range(100)]

    assert all(0 <= pause_s <= 5 for pause_s in pauses_s)
    assert len(set(pauses_s)) > 1


def _fail(error: Exception) -> None:
    raise error


def test_other_failures_are_bounded_however_busy_the_store_is() -> None:
    """The five attempts are for them, and refusals between them take none away."""
    busy, broken = s3_error(503, "SlowDown"), ConnectionResetError("reset")
    errors = [*[busy] * 6, broken, busy, *[broken] * 4, busy]
    policy = RetryPolicy(sleep=lambda _seconds: None)

    with pytest.raises(ConnectionResetError):
        policy.call(lambda: _fail(errors.pop(0)))
    assert errors == [busy]


def test_attempts_that_were_asked_for_bound_all() -> None:
    """Whoever names a number gets no more requests than that."""
    sent: list[int] = []
    policy = RetryPolicy(sleep=lambda _seconds: None).with_options({"request_attempts": 3})

    def request() -> None:
        sent.append(1)
        raise s3_error(503, "SlowDown")

    with pytest.raises(OSError, match="no"):
        policy.call(request)
    assert len(sent) == 3


class _Refusing(FaultScript):
    """Answers each range only after it has refused it so many times."""

    def __init__(self, data: bytes, refusal: Callable[[], Exception], times: int) -> None:
        super().__init__({"a": data})
        self._refusal = refusal
        self._times = times
        self._refused: Counter[tuple[int, int]] = Counter()
        self.time = SimulatedTime()

    def throttled(self, **options: object) -> Location:
        """The folder, where pauses are all that takes time."""
        retry = RetryPolicy(sleep=self.time.sleep, clock=self.time.clock)
        return Location("faulty-async://folder", {"script": self, **options}, retry)

    def answer(self, path: str, start: int, stop: int) -> bytes:
        """Answer one request, or refuse it."""
        self._refused[start, stop] += 1
        if self._refused[start, stop] <= self._times:
            raise self._refusal()
        return super().answer(path, start, stop)


@pytest.mark.parametrize("client", _OF_CLIENT)
def test_a_location_waits_for_a_busy_store(client: str) -> None:
    """Through all that a request passes, and by default options."""
    script = _Refusing(b"data", partial(_OF_CLIENT[client], 503, "SlowDown"), times=12)
    location = script.throttled()

    assert location.read_range("a", 0, 4).data == b"data"
    assert script.time.now_s < 60


@pytest.mark.parametrize("client", _OF_CLIENT)
def test_an_outage_without_end_is_told(client: str) -> None:
    """At the deadline, by an error that names it."""
    refusal = partial(_OF_CLIENT[client], 503, "SlowDown")
    script = _Refusing(b"data", refusal, times=1_000_000)
    location = script.throttled(request_deadline_s=30)

    with pytest.raises(StorageError, match=r"after \d\d+ attempts.*request_deadline_s, now 30,"):
        location.read_range("a", 0, 4)
    assert 20 < script.time.now_s <= 30


def test_the_option_that_ended_the_attempts_is_named() -> None:
    """Also if the store was busy before it broke."""
    script = FaultScript({"a": b"data"})
    busy, broken = s3_error(503, "SlowDown"), ConnectionResetError("reset")
    script.faults.extend(map(raising, [*[busy] * 3, *[broken] * 5]))
    retry = RetryPolicy(sleep=script.pauses_s.append)
    location = Location("faulty://folder", {"script": script}, retry)

    with pytest.raises(
        StorageError, match=r"after 8 attempts.*request_attempts, now 5, allows more attempts"
    ):
        location.read_range("a", 0, 4)
