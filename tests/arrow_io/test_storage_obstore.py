"""Through obstore S3 is read as through s3fs: the same bytes, versions, errors and limits."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.core.extras import install_command
from arrow_io.errors import MissingObjectError, ObjectChangedError, OptionError, StorageError
from arrow_io.storage.attempts import Attempt, Attempts, RetryPolicy
from arrow_io.storage.failures import RequestGivenUpError
from arrow_io.storage.location import Location
from arrow_io.storage.own_options import Client
from arrow_io.storage.request import Operation, Request
from arrow_io.storage.request_threads import send_in_thread
from arrow_io.storage.trace import RequestTrace
from connector import open_topic
from tests.support.faulty_s3 import Fault, S3Faults
from tests.support.golden import GOLDEN
from tests.support.s3_server import S3Address, S3Server, running_s3_server
from tests.support.stalling_server import StallingServer, answer_with, stalling_server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler


GOLDEN_SET = GOLDEN / "pulsar-4.0.7-small"
_DEADLINE_S = 0.3
_TOO_FAST = 1 << 40
"""No byte that comes puts off the end of a request by anything that counts."""
_FAULTS = S3Faults()


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """An S3 server, perhaps with faults."""
    with running_s3_server(_FAULTS.wrap) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_faults() -> None:
    _FAULTS.heal()


def _location(address: S3Address, retry: RetryPolicy | None = None, **options: object) -> Location:
    retry = retry or RetryPolicy(sleep=lambda _seconds: None)
    return Location(address.url, address.storage_options | {"client": "obstore"} | options, retry)


def _stalling(server: StallingServer, url: str = "s3://bucket/folder") -> Location:
    options = {"client": "obstore", "request_deadline_s": _DEADLINE_S, "request_attempts": 2}
    retry = RetryPolicy(least_bytes_per_s=_TOO_FAST, sleep=lambda _seconds: None)
    return Location(url, server.storage_options | options, retry)


def test_a_topic_is_read_as_through_s3fs(s3_server: S3Server) -> None:
    """Rows, and the requests that they take."""
    address = s3_server.upload_golden(GOLDEN_SET)
    reads = []
    for client in Client:
        options = address.storage_options | {"client": client}
        trace = RequestTrace()
        dataset = open_topic(
            address.url, "small-chunked", storage_options=options, value="raw", trace=trace
        )
        reads.append((dataset.to_table(), trace.counts))

    assert reads[0][0].num_rows > 0
    assert all(table.equals(reads[0][0]) for table, _counts in reads)
    assert len({counts for _table, counts in reads}) == 1


def test_a_version_is_the_same_whoever_tells_it(s3_server: S3Server) -> None:
    """A listing, a HEAD and a GET; another client says the same."""
    address = s3_server.upload({"a": b"0123456789"})
    location = _location(address)

    listed = location.list_objects()[0].version
    assert listed is not None
    assert listed == location._head("a").version
    assert listed == location.read_object("a", max_bytes=10).version
    assert listed == location.read_range("a", 2, 5).version
    assert listed == Location(address.url, address.storage_options).list_objects()[0].version


def test_another_version_is_not_read(s3_server: S3Server) -> None:
    """Neither a part of an object that was replaced, nor all of it."""
    address = s3_server.upload({"a": b"0123456789"})
    location = _location(address)
    version = location.list_objects()[0].version
    bucket = address.url.removeprefix("s3://")
    s3_server.client.put_object(Bucket=bucket, Key="a", Body=b"9876543210")

    reads: list[Callable[[], object]] = [
        lambda: location.read_range("a", 2, 5, version=version),
        lambda: location.read_object("a", max_bytes=10, version=version),
    ]
    for read in reads:
        with pytest.raises(ObjectChangedError):
            read()


def test_an_empty_bucket_has_no_objects(s3_server: S3Server) -> None:
    """And is no error, as it is none through s3fs."""
    address = s3_server.upload({})

    assert _location(address).list_objects() == []
    assert _location(address).list_folders() == []


def test_a_request_of_ours_is_one_of_obstore(s3_server: S3Server) -> None:
    """Attempts are counted by us alone, and what fails at last is told with its status."""
    location = _location(s3_server.upload({"a": b"data"}), request_attempts=3)

    _FAULTS.plan(Fault.ERROR_503, first=1, last=2)
    assert location.read_range("a", 0, 4).data == b"data"
    assert len(_FAULTS.requests) == 3

    _FAULTS.plan(Fault.ERROR_503, first=1, last=99)
    with pytest.raises(StorageError, match="after 3 attempts, the last answer of status 503"):
        location.read_object("a", max_bytes=4)
    assert len(_FAULTS.requests) == 3


@pytest.mark.parametrize("fault", [Fault.ERROR_500, Fault.ERROR_503, Fault.CUT, Fault.LOST_ANSWER])
def test_what_may_pass_is_sent_again(s3_server: S3Server, fault: Fault) -> None:
    """A listing too, of which obstore itself sends a page again."""
    location = _location(s3_server.upload({"a": b"data"}))

    for request in (location.list_objects, lambda: location.read_object("a", max_bytes=4)):
        _FAULTS.plan(fault, first=1)
        assert request()


def test_a_cut_range_keeps_what_came() -> None:
    """The bytes before the cut are returned, so that the next request goes on behind them."""

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        request.send_response(206)
        request.send_header("Content-Length", "6")
        request.send_header("Content-Range", "bytes 3-8/10")
        request.send_header("ETag", '"x"')
        request.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        request.end_headers()
        request.wfile.write(b"345")

    with stalling_server(answer) as server:
        assert _stalling(server).read_range("b", 3, 9).data == b"345"


@pytest.mark.parametrize("content_range", [None, "bytes 0-5/10", "bytes 30-35/99"])
def test_another_range_is_never_taken(content_range: str | None) -> None:
    """An answer from elsewhere in the object is an error even if its length is right."""

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        request.send_response(206 if content_range else 200)
        request.send_header("Content-Length", "6")
        if content_range:
            request.send_header("Content-Range", content_range)
        request.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
        request.end_headers()
        request.wfile.write(b"012345")

    with stalling_server(answer) as server:
        with pytest.raises(StorageError, match=r"bytes \[3, 9\)"):
            _stalling(server).read_range("b", 3, 9)
        assert server.requests == 1


@pytest.mark.parametrize("name", ["../a", "a//b", "."])
def test_a_name_that_obstore_cannot_say_is_an_error(s3_server: S3Server, name: str) -> None:
    """Which names it, and is not taken for an object that is not there."""
    location = _location(s3_server.upload({"a": b"data"}))

    with pytest.raises(StorageError, match="path") as raised:
        location.read_object(name, max_bytes=9)
    assert not isinstance(raised.value, MissingObjectError)


def test_s3_is_not_written_to(s3_server: S3Server) -> None:
    """Whoever writes there may be killed, and obstore would not say what is left."""
    location = _location(s3_server.upload({"a": b"data"}))

    for write in (
        lambda: location.write_object("b", b"", user_metadata={}),
        lambda: location.write_new_object("b", b"x"),
        lambda: location.upload("b", user_metadata={}),
        location.check_writable,
    ):
        with pytest.raises(OptionError, match="without the storage option client"):
            write()


def test_uploads_of_others_are_listed_and_aborted(s3_server: S3Server) -> None:
    """As through s3fs, which does it."""
    location = _location(s3_server.upload({"a": b"data"}))
    bucket = location.url.removeprefix("s3://")
    s3_server.client.create_multipart_upload(Bucket=bucket, Key="b")

    (found,) = location.unfinished_uploads()
    assert found.name == "b"
    location.abort_upload(found.name, found.upload_id)
    assert location.unfinished_uploads() == []


def test_s3_is_listed_through_s3fs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed, the command that installs it is named."""
    monkeypatch.setattr("arrow_io.storage.connection.find_spec", lambda _name: None)

    with pytest.raises(OptionError, match=re.escape(install_command("s3"))):
        Location("s3://bucket", {"client": "obstore"}).list_objects()


def test_options_that_s3fs_refuses_are_an_error_of_options(s3_server: S3Server) -> None:
    """Though obstore takes them; their values are not shown."""
    location = _location(s3_server.upload({}), username="very-secret")

    with pytest.raises(OptionError, match="s3fs, which client 'obstore' lists with") as raised:
        location.list_objects()
    assert "very-secret" not in str(raised.value)


def test_objects_are_deleted(s3_server: S3Server) -> None:
    """One that is gone already is no error."""
    location = _location(s3_server.upload({"a": b"data", "b": b""}))

    location.delete_objects(["a", "none"])

    assert [info.name for info in location.list_objects()] == ["b"]


def test_an_error_shows_no_secret() -> None:
    """What the server answers may repeat what it was sent."""

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        answer_with(request, b"<Error><Code>AccessDenied</Code>very-secret</Error>", status=403)

    with stalling_server(answer) as server:
        options = server.storage_options | {"client": "obstore", "secret": "very-secret"}
        with pytest.raises(StorageError, match="AccessDenied") as raised:
            Location("s3://bucket", options).read_object("a", max_bytes=9)
    assert "very-secret" not in str(raised.value)
    assert server.requests == 1


@pytest.mark.posix
def test_a_forked_process_hears_that_obstore_does_not_follow(s3_server: S3Server) -> None:
    """At once, and not at the end of a deadline."""
    location = _location(s3_server.upload({"a": b"data"}))
    location.list_objects()

    child = os.fork()
    if child == 0:
        try:
            location.read_object("a", max_bytes=4)
        except StorageError as error:
            os._exit(0 if "fork" in str(error).lower() else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


_REQUEST: Final = Request(Operation.HEAD, "a")


class TestSendInThread:
    """A request that blocks ends for whoever waits for it."""

    def test_what_is_late_is_given_up(self) -> None:
        """The thread hears of it, and sends the next request when it is free."""
        free, heard = threading.Event(), []

        def send(_request: Request, attempt: Attempt) -> None:
            free.wait()
            heard.append(attempt.is_over)

        with pytest.raises(RequestGivenUpError, match=r"within 0\.01 s"):
            send_in_thread(send, _REQUEST, Attempts(RetryPolicy(deadline_s=0.01)).begin())
        free.set()
        send_in_thread(send, _REQUEST, Attempts(RetryPolicy()).begin())
        wait_until(lambda: len(heard) == 2)
        assert sorted(heard) == [False, True]

    def test_bytes_put_off_the_end(self) -> None:
        """What is received does, and what is to be sent."""
        policy = RetryPolicy(deadline_s=0, least_bytes_per_s=1)

        def send(_request: Request, attempt: Attempt) -> float:
            attempt.extend(1000)
            return attempt.remaining_s() or 0

        attempt = Attempts(policy, sent_bytes=100).begin()
        assert 1000 < send_in_thread(send, _REQUEST, attempt) <= 1100

    def test_an_error_is_raised_as_it_is(self) -> None:
        """One of a time that is over too, if the time is not."""

        def send(_request: Request, _attempt: Attempt) -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError) as raised:
            send_in_thread(send, _REQUEST, Attempts(RetryPolicy()).begin())
        assert not isinstance(raised.value, RequestGivenUpError)
