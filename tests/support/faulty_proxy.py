"""A proxy before an S3 server that answers some requests wrongly, as networks and servers do.

with running_proxy(options_that_lead_to_the_server) as proxy:
    with proxy.failing(Plan(Fault.HTML, after=3)):
        ...  # requests with proxy.options
"""

from __future__ import annotations

import http.client
import select
import socket
import struct
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tests.support.http_servers import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SLOW_PARTS: Final = 8
_SLOW_PART_S: Final = 0.02
_LOOK_S: Final = 0.02
"""How often a stalled answer looks whether its client has hung up."""
_NO_BODY: Final = frozenset({204, 304})


class Fault(Enum):
    """What happens to a request."""

    SLOW = "slow"
    """The right answer, in parts."""
    SILENT = "silent"
    """No answer. The server is not asked."""
    STALLED = "stalled"
    """The headers and half of the body, if there is one, and then nothing."""
    TRUNCATED = "truncated"
    """As `STALLED`, but then the connection ends."""
    SHORTENED = "shortened"
    """Half of the body, with a `Content-Length` that fits it."""
    EMPTIED = "emptied"
    """No body, with a `Content-Length` that fits it."""
    ZEROED = "zeroed"
    """A body of zeros, of the right length."""
    HTML = "HTML"
    """Status 200 and a page for people. The server is not asked."""
    ERROR_IN_200 = "error in 200"
    """Status 200 and an error of S3's. The server is not asked."""
    BUSY = "busy"
    """Status 503, SlowDown. The server is not asked."""
    RESET = "reset"
    """The connection is reset. The server is not asked."""
    LOST_ANSWER = "lost answer"
    """The server does what it is asked for, and the connection is reset."""
    EXPIRED = "expired"
    """Status 400, ExpiredToken. The server is not asked."""
    REDIRECTED = "redirected"
    """Status 307, to a port on which nobody listens. The server is not asked."""
    MOVED = "moved"
    """Status 301, PermanentRedirect, with no address. The server is not asked."""
    CHANGED_ETAG = "changed ETag"
    """The right answer, but for its ETag."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which requests fail, and how."""

    fault: Fault
    after: int = 0
    """How many requests are answered rightly before any fails."""
    probability: float = 1.0
    """The share of the further requests that fail."""
    seed: int = 0
    """Decides which of them do."""
    listings: bool = False
    """Whether requests for listings alone are counted, and fail."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class _HangUpError(ConnectionError):
    """The connection was closed on purpose."""


class FaultyProxy:
    """Decides which requests fail, and knows which are under way.

    Args:
        server_options: Storage options of s3fs that lead to the server.
        url: Where the proxy listens.
        closed_url: A URL at which nobody listens.
    """

    def __init__(self, server_options: Mapping[str, object], url: str, closed_url: str) -> None:
        self.server_options = dict(server_options)
        self.options = self.server_options | {"endpoint_url": url}
        self.server_port = urlsplit(str(server_options["endpoint_url"])).port
        self.closed_url = closed_url
        self.over = threading.Event()
        """Set when nobody needs an answer any more."""
        self.request_count = 0
        """Requests since the last plan began."""
        self._plan: Plan | None = None
        self._random = Random(0)
        self._under_way = 0
        self._changed = threading.Condition()

    @contextmanager
    def failing(self, plan: Plan) -> Iterator[None]:
        """Let requests fail as planned until the context ends."""
        with self._changed:
            self._plan, self._random, self.request_count = plan, Random(plan.seed), 0
        try:
            yield
        finally:
            with self._changed:
                self._plan = None

    def wait_for_silence(self, seconds: float) -> int:
        """Wait until no request is under way; return how many still are after that time."""
        with self._changed:
            self._changed.wait_for(lambda: self._under_way == 0, timeout=seconds)
            return self._under_way

    @contextmanager
    def request(self, *, is_listing: bool) -> Iterator[Fault | None]:
        """Count a request until the context ends; yields what happens to it."""
        with self._changed:
            self._under_way += 1
            plan, fault = self._plan, None
            is_meant = plan is None or is_listing or not plan.listings
            self.request_count += is_meant
            if plan is not None and is_meant and self.request_count > plan.after:
                fault = plan.fault if self._random.random() < plan.probability else None
        try:
            yield fault
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def proxy(self) -> FaultyProxy:
        """Return the proxy whose request this is."""
        return self.server.proxy

    def do_GET(self) -> None:
        """Answer a request of any method."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        assert "Transfer-Encoding" not in self.headers, "a body without a length"
        query = urlsplit(self.path).query
        is_listing = self.command == "GET" and ("list-type=" in query or "uploads" in query)
        with self.proxy.request(is_listing=is_listing) as fault:
            _ANSWERED_BY[fault](self, body)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - as the base class calls them

    def log_message(self, *_arguments: object) -> None:
        """Be silent."""

    def forward(self, body: bytes) -> _Answer:
        """Return the server's answer."""
        server = http.client.HTTPConnection("127.0.0.1", self.proxy.server_port, timeout=60)
        try:
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"connection", "expect"}:
                    server.putheader(name, value)
            server.putheader("Connection", "close")
            server.endheaders(body or None)
            answer = server.getresponse()
            return _Answer(answer.status, tuple(answer.getheaders()), answer.read())
        finally:
            server.close()

    def begin(self, answer: _Answer) -> None:
        """Send status and headers."""
        self.send_response_only(answer.status)
        is_head = self.command == "HEAD"
        for name, value in answer.headers:
            own_length = name.lower() in {"content-length", "transfer-encoding"}
            if name.lower() != "connection" and (is_head or not own_length):
                self.send_header(name, value)
        if not is_head and answer.status not in _NO_BODY:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()

    def send(self, answer: _Answer) -> None:
        """Send a whole answer."""
        self.begin(answer)
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def refuse(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        """Send an answer of the proxy's own."""
        self.send(_Answer(status, (("Content-Type", "application/xml"), *headers), body))

    def reset(self) -> None:
        """Reset the connection.

        Raises:
            _HangUpError: Always.
        """
        # With no time to linger, closing resets.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.wfile.close()
        self.connection.close()
        raise _HangUpError

    def hold(self) -> None:
        """Wait until the client hangs up.

        Raises:
            _HangUpError: Always.
        """
        while not self.proxy.over.wait(_LOOK_S):
            if select.select([self.connection], [], [], 0)[0]:
                break
        self.close_connection = True
        raise _HangUpError


def _right(handler: _Handler, body: bytes) -> None:
    handler.send(handler.forward(body))


def _slow(handler: _Handler, body: bytes) -> None:
    answer = handler.forward(body)
    handler.begin(answer)
    if handler.command == "HEAD":
        return
    step = max(1, -(-len(answer.body) // _SLOW_PARTS))
    for start in range(0, len(answer.body), step):
        handler.proxy.over.wait(_SLOW_PART_S)
        handler.wfile.write(answer.body[start : start + step])


def _silent(handler: _Handler, _body: bytes) -> None:
    handler.hold()


def _send_half(handler: _Handler, body: bytes) -> None:
    answer = handler.forward(body)
    # To a client that waits for no body, the headers alone would be a whole answer.
    if handler.command != "HEAD" and answer.body:
        handler.begin(answer)
        handler.wfile.write(answer.body[: len(answer.body) // 2])
        handler.wfile.flush()


def _stalled(handler: _Handler, body: bytes) -> None:
    _send_half(handler, body)
    handler.hold()


def _truncated(handler: _Handler, body: bytes) -> None:
    _send_half(handler, body)
    handler.close_connection = True


def _changed_body(change: Callable[[bytes], bytes]) -> Callable[[_Handler, bytes], None]:
    def answer(handler: _Handler, body: bytes) -> None:
        right = handler.forward(body)
        handler.send(replace(right, body=change(right.body)))

    return answer


def _changed_etag(handler: _Handler, body: bytes) -> None:
    right = handler.forward(body)
    headers = tuple(
        (name, f'"{"0" * 32}"' if name.lower() == "etag" else value)
        for name, value in right.headers
    )
    handler.send(replace(right, headers=headers))


def _html(handler: _Handler, _body: bytes) -> None:
    page = b"<html><body>Please log in<br/></body></html>"
    handler.send(_Answer(200, (("Content-Type", "text/html"),), page))


def _error_in_200(handler: _Handler, _body: bytes) -> None:
    handler.refuse(200, _error("SlowDown"))


def _busy(handler: _Handler, _body: bytes) -> None:
    handler.refuse(503, _error("SlowDown"))


def _reset(handler: _Handler, _body: bytes) -> None:
    handler.reset()


def _lost_answer(handler: _Handler, body: bytes) -> None:
    handler.forward(body)
    handler.reset()


def _expired(handler: _Handler, _body: bytes) -> None:
    handler.refuse(400, _error("ExpiredToken"))


def _redirected(handler: _Handler, _body: bytes) -> None:
    location = handler.proxy.closed_url + handler.path
    handler.refuse(307, _error("TemporaryRedirect"), ("Location", location))


def _moved(handler: _Handler, _body: bytes) -> None:
    handler.refuse(301, _error("PermanentRedirect"))


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>not now</Message></Error>".encode()


_ANSWERED_BY: Final[dict[Fault | None, Callable[[_Handler, bytes], None]]] = {
    None: _right,
    Fault.SLOW: _slow,
    Fault.SILENT: _silent,
    Fault.STALLED: _stalled,
    Fault.TRUNCATED: _truncated,
    Fault.SHORTENED: _changed_body(lambda body: body[: len(body) // 2]),
    Fault.EMPTIED: _changed_body(lambda _body: b""),
    Fault.ZEROED: _changed_body(lambda body: bytes(len(body))),
    Fault.HTML: _html,
    Fault.ERROR_IN_200: _error_in_200,
    Fault.BUSY: _busy,
    Fault.RESET: _reset,
    Fault.LOST_ANSWER: _lost_answer,
    Fault.EXPIRED: _expired,
    Fault.REDIRECTED: _redirected,
    Fault.MOVED: _moved,
    Fault.CHANGED_ETAG: _changed_etag,
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: FaultyProxy

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as there
        """Be silent of connections that were closed, by either side."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def running_proxy(server_options: Mapping[str, object]) -> Iterator[FaultyProxy]:
    """Run a proxy on a free port of loopback, which fails no request until it has a plan.

    Args:
        server_options: Storage options of s3fs that lead to the server.
    """
    # Bound and never listening: whoever connects is refused as long as this proxy runs.
    server = _Server(("127.0.0.1", 0), _Handler)
    with socket.socket() as closed, serving(server) as url:
        closed.bind(("127.0.0.1", 0))
        closed_url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        proxy = server.proxy = FaultyProxy(server_options, url, closed_url)
        try:
            yield proxy
        finally:
            proxy.over.set()
