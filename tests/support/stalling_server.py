"""An HTTP server on loopback that answers as a test says, and may never come to an end of it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from arrow_io.storage.ranges import RangeReader
from tests.support.http_servers import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from arrow_io.storage.location import Location


def requests_of(location: Location) -> dict[str, Callable[[], object]]:
    """A request of each kind that a read sends: a listing, a whole object, a range."""
    return {
        "list": location.list_objects,
        "object": lambda: location.read_object("name", max_bytes=1 << 20),
        "range": lambda: RangeReader(location, "name", 100).read(0, 100),
    }


class StallingServer:
    """What requests came, and an end for those that would have none.

    Attributes:
        endpoint_url: Where it listens.
        arrived: Set when the first request has come.
        over: Set when the test is over: whatever waits has to end.
        requests: How many requests came.
    """

    def __init__(self, endpoint_url: str) -> None:
        self.endpoint_url = endpoint_url
        self.arrived = threading.Event()
        self.over = threading.Event()
        self.requests = 0

    @property
    def storage_options(self) -> dict[str, object]:
        """Options of s3fs that lead to this server."""
        return {
            "key": "key",
            "secret": "secret",
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": "us-east-1"},
        }


def never(_request: BaseHTTPRequestHandler, server: StallingServer) -> None:
    """Answer nothing at all."""
    server.over.wait()


def fail_503(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
    """Ask for fewer requests."""
    body = b"<Error><Code>SlowDown</Code><Message>fewer, please</Message></Error>"
    answer_with(request, body, status=503)


def stop_in_the_body(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
    """Send half of the body, and nothing more."""
    _begin(request, 100)
    request.wfile.write(b"x" * 50)
    server.over.wait()


def trickle(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
    """Send byte by byte, with a pause after each, for as long as somebody listens."""
    _begin(request, 1 << 20)
    while not server.over.wait(0.01):
        request.wfile.write(b"x")


def answer_with(
    request: BaseHTTPRequestHandler, body: bytes, status: int = 200, content_type: str | None = None
) -> None:
    """Answer with a whole body."""
    _begin(request, len(body), status, content_type)
    if request.command != "HEAD":
        request.wfile.write(body)


def _begin(
    request: BaseHTTPRequestHandler,
    size_bytes: int,
    status: int = 200,
    content_type: str | None = None,
) -> None:
    request.send_response(status)
    request.send_header("Content-Length", str(size_bytes))
    request.send_header("ETag", '"tag"')
    request.send_header("Connection", "close")
    if content_type is not None:
        request.send_header("Content-Type", content_type)
    request.end_headers()


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what botocore sends again follow at once."""

    async def pass_over(_endpoint: object, _seconds: float) -> None:
        """Do not wait."""

    monkeypatch.setattr("aiobotocore.endpoint.AioEndpoint._sleep", pass_over)


@contextmanager
def stalling_server(
    answer: Callable[[BaseHTTPRequestHandler, StallingServer], None],
) -> Iterator[StallingServer]:
    """Run a server on a free port of loopback.

    Args:
        answer: Answers each request.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.requests += 1
            state.arrived.set()
            self.close_connection = True
            try:
                answer(self, state)
            except ConnectionError:
                return

        do_DELETE = do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - as the base class calls them

        def end_headers(self) -> None:
            """Announce the end of the connection, so that clients do not use it again."""
            if self.close_connection:  # not yet when it answers `100 Continue`
                self.send_header("Connection", "close")
            super().end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state = StallingServer(f"http://127.0.0.1:{server.server_port}")
    with serving(server):
        try:
            yield state
        finally:
            state.over.set()
