"""Registries of schemas for tests: by ids in memory, and a recorded one on loopback."""

from __future__ import annotations

import base64
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.support.golden import GOLDEN
from tests.support.http_servers import serving

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

    from arrow_io.payloads.schema_info import SchemaInfo

RECORDED: Final = GOLDEN / "schema-registry"
"""Answers of a registry, and payloads of Confluent's client whose schemas it had."""


def frame(schema_id: int, indexes: bytes = b"") -> bytes:
    """The frame of a payload."""
    return b"\0" + schema_id.to_bytes(4, signed=True) + indexes


@dataclass(frozen=True)
class IdsInMemory:
    """Schemas by id."""

    schemas: tuple[tuple[int, SchemaInfo], ...]

    def schema(self, schema_id: int) -> SchemaInfo | None:
        """The schema of an id; None: it is unknown."""
        return dict(self.schemas).get(schema_id)


class RecordedMessage(NamedTuple):
    """A payload with its frame, and its value as JSON; or the name of its message alone."""

    subject: str
    payload: bytes
    value: dict[str, Any]


def recorded_messages(subject: str, *, others: bool = False) -> list[RecordedMessage]:
    """The messages of a subject; with `others` those of another protobuf message."""
    lines = map(json.loads, (RECORDED / "messages.jsonl").read_text("utf-8").splitlines())
    return [
        RecordedMessage(subject, base64.b64decode(each["payload"]), each["value"])
        for each in lines
        if each["subject"] == subject and ("message" in each["value"]) == others
    ]


def recorded_answers() -> dict[str, tuple[int, bytes]]:
    """Status and body of each answer, by path."""
    answers = json.loads((RECORDED / "answers.json").read_text("utf-8"))
    return {path: (status, body.encode()) for path, (status, body) in answers.items()}


@dataclass
class RegistryServer:
    """A running server.

    Attributes:
        url: Where it is.
        answers: Status and body by path; anything else is unknown.
        authorization: The header that a request must have; None: any.
        paths: The paths that were asked for.
        authorizations: The header of each request; None if it has none.
        redirects: URLs by path, each of which the path is redirected to once.
    """

    answers: dict[str, tuple[int, bytes]]
    authorization: str | None = None
    url: str = ""
    paths: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)


@contextmanager
def running_registry(
    answers: Mapping[str, tuple[int, bytes]] | None = None,
    *,
    authorization: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[RegistryServer]:
    """A registry on loopback that gives the recorded answers, or others; with `tls` by https."""
    running = RegistryServer(
        dict(recorded_answers() if answers is None else answers), authorization
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            running.paths.append(self.path)
            running.authorizations.append(self.headers["Authorization"])
            redirect = running.redirects.pop(self.path, None)
            if redirect is not None:
                self.send_response(307)
                self.send_header("Location", redirect)
                self.end_headers()
                return
            status, body = running.answers.get(self.path, (404, b'{"error_code":40403}'))
            if running.authorization not in (None, self.headers["Authorization"]):
                status, body = 401, f"no {self.headers['Authorization']}".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    http_server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        http_server.socket = tls.wrap_socket(http_server.socket, server_side=True)
    with serving(http_server) as url:
        running.url = url if tls is None else url.replace("http:", "https:")
        yield running
