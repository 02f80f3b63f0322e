"""Whatever a server does, a request ends: in a time that an option says, with a typed error."""

from __future__ import annotations

import pickle
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from botocore.parsers import ResponseParserError

from arrow_io.errors import OptionError, StorageError
from arrow_io.storage import listing_pages
from arrow_io.storage.attempts import Attempts, RetryPolicy
from arrow_io.storage.failures import RequestGivenUpError
from arrow_io.storage.hidden import hidden
from arrow_io.storage.location import Location
from tests.support.faulty_storage import FakeBody, FakeS3, FaultScript, s3_error, whole
from tests.support.stalling_server import (
    fail_503,
    never,
    requests_of,
    stalling_server,
    stop_in_the_body,
    trickle,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_DEADLINE_S = 0.5
_TOO_FAST = 1 << 40
"""No byte that comes puts off the end of a request by anything that counts."""


@pytest.mark.parametrize("answer", [never, stop_in_the_body, trickle, fail_503])
@pytest.mark.parametrize("what", ["list", "object", "range"])
@pytest.mark.parametrize("client", ["auto", "fsspec", "obstore"])
def test_a_server_that_never_ends_is_given_up(
    client: str, answer: Callable[..., None], what: str
) -> None:
    """Silent, silent in the middle of a body, a byte at a time, or in an endless storm of 503."""
    with stalling_server(answer) as server:
        options = server.storage_options | {"request_deadline_s": _DEADLINE_S, "client": client}
        retry = RetryPolicy(least_bytes_per_s=_TOO_FAST)
        location = Location("s3://bucket/folder", options, retry)

        with pytest.raises(
            StorageError, match=r"request_deadline_s|took longer than|bytes \[0, 100\)"
        ):
            requests_of(location)[what]()


class _Clock:
    """A clock that stands still, but for pauses and for what a test adds."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds


def _try(attempts: Attempts, times: list[float], pass_by: Callable[[], None]) -> None:
    """Fail until there is no further attempt, and note how long each may take."""
    times.append(attempts.begin().seconds)
    pass_by()
    while attempts.pause_after(s3_error(503, "SlowDown")):
        times.append(attempts.begin().seconds)
        pass_by()


def test_attempts_end_at_the_deadline() -> None:
    """However many attempts are left, and each attempt is told how long it may take."""
    clock = _Clock()
    told: list[float] = []
    policy = RetryPolicy(attempts=100, sleep=clock.pass_by, clock=clock, jitter=whole)

    _try(Attempts(policy), told, lambda: clock.pass_by(20))
    assert told == pytest.approx([60, 39.9, 19.7])
    assert clock.now_s <= 1000 + 60 + 0.3


def test_error_that_the_server_gave_is_told_of_a_request_given_up() -> None:
    """That the last attempt was cut short says less than what the one before it ended with."""
    errors = [s3_error(503, "SlowDown", "fewer, please"), RequestGivenUpError("too slow")]
    policy = RetryPolicy(attempts=2, sleep=lambda _seconds: None)

    def request() -> None:
        raise errors.pop(0)

    with pytest.raises(OSError, match="fewer, please"):
        policy.call(request)


@pytest.mark.parametrize(
    ("options", "attempts", "deadline_s"),
    [
        ({}, None, 60),
        ({"request_attempts": 2}, 2, 60),
        ({"request_attempts": "7", "request_deadline_s": "2.5"}, 7, 2.5),
    ],
)
def test_storage_options_say_how_long_a_request_may_take(
    options: dict[str, object], attempts: int | None, deadline_s: float
) -> None:
    """As text too; they go to other processes, and never to the file system."""
    script = FaultScript({"a": b"data"})
    location = Location("faulty://folder", {"script": script, **options})

    for each in (location, location.child("folder")):
        assert (each.retry.attempts, each.retry.deadline_s) == (attempts, deadline_s)
    assert location.read_object("a", max_bytes=4).data == b"data"
    plain = Location("memory://folder", options)
    assert pickle.loads(pickle.dumps(plain)).retry == plain.retry


def test_our_own_options_are_shown_though_others_are_hidden() -> None:
    """A number is no secret, and whoever mistyped it has to see it."""
    with pytest.raises(OptionError, match=r"request_deadline_s must be .* not '1m'"):
        Location("memory://folder", hidden({"request_deadline_s": "1m"}))


@pytest.mark.parametrize(
    "options",
    [
        {"request_attempts": 0},
        {"request_attempts": 1.5},
        {"request_attempts": True} | {"request_attempts": None},
        {"request_deadline_s": 0},
        {"request_deadline_s": "soon"},
        {"request_deadline_s": float("nan")},
        {"request_deadline_s": 1e9},
    ],
)
def test_numbers_out_of_bounds_are_refused(options: dict[str, object]) -> None:
    """Before any request, by the option's name."""
    with pytest.raises(OptionError, match=next(iter(options))):
        Location("memory://folder", options)


def _page(*names: str, **fields: object) -> dict[str, Any]:
    contents = [{"Key": name, "Size": 1, "ETag": '"e"'} for name in names]
    return {"Contents": contents, "KeyCount": len(names), **fields}


@pytest.mark.parametrize(
    "pages",
    [
        [_page("a", KeyCount=2)],
        [_page("a", IsTruncated=True)],
        [_page("a", IsTruncated=True, NextContinuationToken="t")] * 3,
        [_page("a", IsTruncated=True, NextContinuationToken="t"), {"KeyCount": 1}],
        [ResponseParserError("no element found")] * 5,
        [_page("a", IsTruncated=True, NextContinuationToken="t")]
        + [ResponseParserError("no element found")] * 5,
    ],
)
def test_a_listing_cut_short_is_an_error(pages: list[Any]) -> None:
    """Fewer keys than the page says, no way to the next page, the same page again, broken XML."""
    for listing in ("list_objects", "list_folders"):
        location = FakeS3(*pages, *pages).location(attempts=2)
        with pytest.raises(StorageError):
            getattr(location, listing)()


class _SlowS3(FakeS3):
    """Takes a time for each answer; the clock is its own."""

    def __init__(self, *answers: Any, seconds: float) -> None:  # noqa: ANN401 - as of `FakeS3`
        super().__init__(*answers)
        self.clock = _Clock()
        self._seconds = seconds

    def location(self, *, attempts: int = 5) -> Location:
        """The bucket, where each attempt takes so many seconds."""
        clock, seconds = self.clock, self._seconds

        class Answers(deque[Any]):
            def popleft(self) -> Any:  # noqa: ANN401
                clock.pass_by(seconds)
                return super().popleft()

        retry = RetryPolicy(attempts=attempts, sleep=self.pauses_s.append, clock=clock)
        self.answers = Answers(self.answers)
        return Location("fake-s3://bucket", {"store": self}, retry)


def _long_listing(count: int) -> list[dict[str, Any]]:
    names = [[f"{number:04}-{each:04}" for each in range(1000)] for number in range(count)]
    tokens = [
        {"IsTruncated": True, "NextContinuationToken": str(number)} for number in range(count)
    ]
    tokens[-1] = {}
    return [_page(*each, **fields) for each, fields in zip(names, tokens, strict=True)]


@pytest.mark.parametrize("listing", ["list_objects", "list_folders"])
def test_each_page_of_a_listing_has_its_attempts(listing: str) -> None:
    """However long the pages before it took, for it is a request of its own."""
    pages: list[Any] = _long_listing(4)
    pages.insert(3, s3_error(503, "SlowDown"))
    store = _SlowS3(*pages, seconds=29)

    found = getattr(store.location(), listing)()

    assert len(found) == (4000 if listing == "list_objects" else 0)
    assert store.clock.now_s - 1000 == 5 * 29
    assert len(store.pauses_s) == 1


def test_each_page_of_uploads_has_its_attempts() -> None:
    """As with the pages of objects."""
    uploads = [{"Key": "a", "UploadId": str(number)} for number in range(1000)]
    page = {"Uploads": uploads, "IsTruncated": True, "NextKeyMarker": "a"}
    first = {**page, "NextUploadIdMarker": "999"}
    second = {**page, "NextKeyMarker": "b", "NextUploadIdMarker": "1"}
    store = _SlowS3(first, second, s3_error(503, "SlowDown"), {"Uploads": []}, seconds=29)

    assert len(store.location().unfinished_uploads()) == 2000


def test_pages_that_bring_nothing_have_a_deadline_together() -> None:
    """A server that always has another, empty page is given up."""
    pages = [_page(IsTruncated=True, NextContinuationToken=str(each)) for each in range(100)]
    store = _SlowS3(*pages, seconds=25)

    with pytest.raises(StorageError, match="3 pages of a listing, with 0 keys"):
        store.location().list_objects()


@pytest.mark.parametrize("limit", ["MAX_KEYS", "MAX_PAGES"])
def test_a_listing_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """However fast its pages come."""
    monkeypatch.setattr(listing_pages, limit, 3)

    with pytest.raises(StorageError, match="does not seem to end"):
        _SlowS3(*_long_listing(5), seconds=0).location().list_objects()


@pytest.mark.parametrize("what", ["object", "part"])
def test_bytes_that_are_sent_extend_the_deadline(what: str) -> None:
    """A body of 64 MiB at 1 MB/s takes longer than a minute, and has its second attempt then."""
    begun: list[Any] = [{"UploadId": "u"}] if what == "part" else []
    answers = [*begun, ConnectionResetError("reset"), {"ETag": '"e"'}, {}]
    store = _SlowS3(*answers, seconds=70)
    location, body = store.location(), bytes(64 << 20)

    if what == "object":
        location.write_object("name", body, user_metadata={})
    else:
        with location.upload("name", user_metadata={}) as upload:
            upload.write_part(body)

    assert len(store.pauses_s) == 1


def test_an_attempt_that_sends_a_body_is_given_up_at_the_end() -> None:
    """What the body is allowed is added once: a second attempt gets what the first has left."""
    clock = _Clock()
    told: list[float] = []
    policy = RetryPolicy(least_bytes_per_s=10, sleep=clock.pass_by, clock=clock, jitter=whole)

    _try(Attempts(policy, sent_bytes=1000), told, lambda: clock.pass_by(90))
    assert told == pytest.approx([160, 69.9])


def test_a_body_that_comes_in_time_is_whole() -> None:
    """Each byte that comes puts off the end, so a long body of a slow server is no error."""
    body = FakeBody(*[b"x" * 10] * 100)
    location = FakeS3({"Body": body}).location()

    assert location.read_object("a", max_bytes=1000).data == b"x" * 1000
