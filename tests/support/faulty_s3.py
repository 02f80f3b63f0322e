"""An S3 server that fails on command, as servers and the networks before them do.

faults = S3Faults()
with running_s3_server(faults.wrap) as server:
    faults.plan(Fault.LOST_ANSWER, first=3)
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_CODES = {500: "InternalError", 503: "ServiceUnavailable"}


class Fault(Enum):
    """What happens to a request."""

    ERROR_500 = "500"
    ERROR_503 = "503"
    CUT = "cut"
    """The connection is closed, and nothing is done."""
    LOST_ANSWER = "lost answer"
    """What was asked for is done, and the connection is closed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which requests fail, counted from 1 since the plan was made, both ends inclusive."""

    fault: Fault
    first: int
    last: int


class S3Faults:
    """Stands before a server and makes some of its requests fail.

    Attributes:
        requests: Method, and names of the query's parameters, of each request since the last plan.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._plan: Plan | None = None
        self._lock = threading.Lock()

    def plan(self, fault: Fault, *, first: int, last: int | None = None) -> None:
        """Make the requests `first … last` (inclusive, from 1) fail; without `last` only one."""
        self.requests.clear()
        self._plan = Plan(fault, first, first if last is None else last)

    def heal(self) -> None:
        """Make no request fail any more."""
        self.requests.clear()
        self._plan = None

    def wrap(self, server: WSGIApplication) -> WSGIApplication:
        """Stand before a server."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            fault = self._fault(environ)
            if fault is None:
                return server(environ, start_response)
            if fault is Fault.LOST_ANSWER:
                b"".join(server(environ, start_response))
            else:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            if fault in {Fault.CUT, Fault.LOST_ANSWER}:
                # Whatever is answered now finds nobody to read it.
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                start_response("200 OK", [])
                return []
            status = int(fault.value)
            start_response(f"{status} Failed", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{_CODES[status]}</Code></Error>".encode()]

        return answer

    def _fault(self, environ: WSGIEnvironment) -> Fault | None:
        with self._lock:
            names = sorted(dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True)))
            self.requests.append(" ".join([environ["REQUEST_METHOD"], *names]))
            plan = self._plan
            if plan is not None and plan.first <= len(self.requests) <= plan.last:
                return plan.fault
            return None
