"""GET requests to the admin API of a live cluster, with credentials or a client certificate.

Brokers answer for the topics they own and redirect to the owner for others. With a redirect, the
token is sent on only to the port that the user named: over https to any host, because the host's
certificate is checked; over plain http, or if the host name is not checked, to the same host only.
Credentials for one server, such as a schema registry, are never sent on to another host. A redirect
from https to http, or back, is not followed.

A server that sends single bytes forever never exceeds the timeout between them, so an answer also
has a deadline. Three limits bound the memory that a server can make us use: the bytes of an answer,
the values in it, and the values of all answers.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

from arrow_io.core.wording import counted
from arrow_io.errors import FormatError, OptionError, StorageError
from arrow_io.storage.attempts import DEFAULT_ATTEMPTS, RetryPolicy
from arrow_io.storage.failures import http_status, is_transient
from arrow_io.storage.redaction import redacted, redacted_urls
from connector.catalog.metadata.topic_metadata import MAX_METADATA_BYTES
from connector.inputs.cluster_access import ClusterAccess, read_access

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from socket import SocketIO, socket
    from ssl import SSLContext

    from _typeshed import WriteableBuffer

    from connector.inputs.cluster_access import Authorization

_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_OK: Final = 200
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_MAX_REASON_BYTES: Final = 1 << 17
"""More than a token may have: a server may quote it, and part of one could not be redacted."""
_SHOWN_CHARACTERS: Final = 200
_NAMESPACE_PARTS: Final = (2, 3)
"""Tenant and namespace; Pulsar's first version had a cluster between them."""
_DEADLINE_TIMEOUTS: Final = 10
"""Maximum time from a request to the end of its answer, in multiples of `timeout_s`."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

MAX_ANSWER_VALUES: Final = 2_000_000
"""Maximum number of JSON values in one answer. A name is one, and a ledger about six. The shortest
take three bytes of text and a hundred of memory."""
MAX_ALL_VALUES: Final = 20_000_000
"""Maximum number of values in all answers to one `AdminConnection`: about three million ledgers."""


_AccessT = TypeVar("_AccessT", bound=ClusterAccess)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions(ClusterAccess):
    """Options of the admin API. A whole answer may take ten times `timeout_s`.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    namespaces: tuple[str, ...] = ()
    """Namespaces (`tenant/namespace`) whose topics are listed. The default is all, which only a
    superuser of the cluster may list."""

    def __post_init__(self) -> None:
        # Without arguments, `super` would refer to the class that `slots` replaces.
        super(AdminOptions, self).__post_init__()
        for namespace in self.namespaces:
            parts = namespace.split("/")
            if len(parts) not in _NAMESPACE_PARTS or not all(parts):
                message = f"a namespace is tenant/namespace, not {namespace!r}"
                raise OptionError(message)


def parse_options(options: Mapping[str, object]) -> AdminOptions:
    """Parse options as users pass them; numbers and flags may be text.

    Raises:
        OptionError: An option is unknown, or its value is not allowed.
    """
    return read_access(AdminOptions, "metadata option", options)


class AdminConnection(Generic[_AccessT]):
    """An HTTP client for one admin API, with a new connection for each request. Thread-safe.

    It also serves other REST APIs, such as a schema registry's.

    `url` is that of a broker or a proxy, such as `https://pulsar.example:8443`. `clock` returns
    seconds.

    Raises:
        OptionError: The URL is not a server's, or has credentials; an option does not fit it; or a
            certificate file cannot be used.
    """

    def __init__(
        self,
        url: str,
        options: _AccessT,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = redacted_urls(url.rstrip("/"))
        self.options = options
        self._retry = retry or RetryPolicy(attempts=DEFAULT_ATTEMPTS)
        self._clock = clock
        self._received_values = 0
        self._lock = threading.Lock()
        self._server = _parse_url(url.rstrip("/"))
        self._tls: SSLContext | None = None
        if self._server.scheme == "https":
            self._tls = options.tls_context()
        elif options.has_tls_options:
            message = f"{self.url} is not an https URL, but there are options for TLS"
            raise OptionError(message)

    def __repr__(self) -> str:
        return f"AdminConnection({self.url!r})"

    def get(self, path: str) -> bytes | None:
        """Request an encoded path; return the body, or None if the resource is unknown (404).

        Raises:
            OptionError: The token file cannot be read, or does not contain a token.
            StorageError: The cluster cannot be reached, refuses, keeps failing, or takes too long
                to answer.
            FormatError: The answer is longer than `MAX_METADATA_BYTES`, has more values than
                `MAX_ANSWER_VALUES`, or all answers together have more than `MAX_ALL_VALUES`.
        """
        authorization = self.options.authorization()
        try:
            return self._retry.call(lambda: self._get_with_redirects(path, authorization))
        except (OSError, HTTPException, UnicodeError) as error:
            # Looking up a malformed host name raises UnicodeError.
            if isinstance(error, StorageError):
                raise
            if http_status(error) == _NOT_FOUND:
                return None
            failure = StorageError(self._failure(path, error, authorization))
        # Raised outside `except`, so that it does not carry an error whose frames hold the token.
        raise failure

    def _get_with_redirects(self, path: str, authorization: Authorization | None) -> bytes:
        url = urlsplit(f"{self._server.geturl()}{path}")
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._answer(url, authorization if self._is_trusted(url) else None)
            if isinstance(answer, bytes):
                return answer
            url = answer
        message = f"{self.url}{path} is redirected more than {_MAX_REDIRECTS} times"
        raise StorageError(message)

    def _is_trusted(self, url: SplitResult) -> bool:
        if _port(url) != _port(self._server):
            return False
        is_checked = url.scheme == "https" and self.options.verify_hostname
        is_cluster = is_checked and self.options.has_many_hosts
        return is_cluster or url.hostname == self._server.hostname

    def _answer(self, url: SplitResult, authorization: Authorization | None) -> bytes | SplitResult:
        """Return the body, or the URL that the request is redirected to."""
        connection = self._connection(url)
        try:
            connection.connect()
            connection.sock = _TimedSocket(connection.sock, self._deadline_check())
            headers = {"Accept": "application/json", "Connection": "close"}
            if authorization is not None:
                headers["Authorization"] = authorization.header
            target = f"{url.path}?{url.query}" if url.query else url.path
            connection.request("GET", target or "/", headers=headers)
            with connection.getresponse() as response:
                if response.status in _REDIRECTS:
                    return self._redirect_target(url, response.getheader("Location"))
                if response.status != _OK:
                    reason = _reason(response.read(_MAX_REASON_BYTES), authorization)
                    raise _StatusError(response.status, reason, had_token=authorization is not None)
                return self._check_values(_body(response))
        finally:
            connection.close()

    def _check_values(self, body: bytes) -> bytes:
        """Return a body after checking the number of values in it and in all bodies so far."""
        values = 1 + body.count(b",") + body.count(b"[") + body.count(b"{")
        with self._lock:
            self._received_values += values
            total_values = self._received_values
        advice = ": name fewer namespaces" if isinstance(self.options, AdminOptions) else ""
        for what, count, limit in (
            ("an answer", values, MAX_ANSWER_VALUES),
            ("the answers", total_values, MAX_ALL_VALUES),
        ):
            if count > limit:
                message = (
                    f"{what} of {self.url} came to {count} values; {limit} are allowed{advice}"
                )
                raise FormatError(message)
        return body

    def _deadline_check(self) -> Callable[[], None]:
        """Return a function that raises once the deadline of a request sent now is over."""
        longest_s = _DEADLINE_TIMEOUTS * self.options.timeout_s
        deadline_s = self._clock() + longest_s

        def check() -> None:
            if self._clock() > deadline_s:
                message = f"an answer of {self.url} is incomplete after {longest_s:g} seconds"
                raise StorageError(message)

        return check

    def _connection(self, url: SplitResult) -> HTTPConnection:
        host, port = url.hostname or "", _port(url)
        timeout_s = self.options.timeout_s
        if self._tls is not None:
            return HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        return HTTPConnection(host, port, timeout=timeout_s)

    def _redirect_target(self, url: SplitResult, location: str | None) -> SplitResult:
        try:
            target = _parse_url(urljoin(url.geturl(), location or ""))
        except ValueError:
            message = f"{self.url} redirects to a location that is not a URL of a server"
            raise StorageError(message) from None
        if target.scheme != self._server.scheme:
            message = (
                f"{self.url} redirects to {target.scheme}://{target.netloc}, which is not followed"
            )
            raise StorageError(message)
        return target

    def _failure(self, path: str, error: Exception, authorization: Authorization | None) -> str:
        what = f"request to {self.url}{path} failed"
        if is_transient(error):
            what = f"{what}, after {counted(self._retry.most_failures, 'attempt')}"
        message = f"{what}: {type(error).__name__}: {error}"
        if isinstance(error, _StatusError):
            message = f"{what}: {error}"
            if error.status in {_UNAUTHORIZED, _FORBIDDEN}:
                message = f"the server refuses {self.url}{path}: {error}"
            if error.status == _UNAUTHORIZED and authorization is not None and not error.had_token:
                message += "; credentials were not sent on with a redirect to another host or port"
        return redacted(message, {} if authorization is None else authorization.secrets)


class _StatusError(OSError):
    """An answer with an error status; never leaves this module."""

    def __init__(self, status: int, reason: str, *, had_token: bool) -> None:
        super().__init__(f"HTTP {status}{reason and f': {reason}'}")
        self.status = status
        self.had_token = had_token


class _TimedSocket:
    """A connected socket for `HTTPConnection` that calls a check before each read."""

    def __init__(self, sock: socket, check: Callable[[], None]) -> None:
        self.sendall = sock.sendall
        self.close = sock.close
        self._sock = sock
        self._check = check

    def makefile(self, _: str) -> BufferedReader:
        raw = self._sock.makefile("rb", buffering=0)
        return BufferedReader(_CheckedReader(raw, self._check))


class _CheckedReader(RawIOBase):
    def __init__(self, raw: SocketIO, check: Callable[[], None]) -> None:
        self._raw = raw
        self._check = check

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._check()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _body(response: HTTPResponse) -> bytes:
    data = response.read(MAX_METADATA_BYTES + 1)
    if len(data) > MAX_METADATA_BYTES:
        message = f"the answer is longer than the {MAX_METADATA_BYTES} bytes allowed"
        raise FormatError(message)
    if response.length:
        raise IncompleteRead(data, response.length)
    return data


def _reason(body: bytes, authorization: Authorization | None) -> str:
    text = body.decode("utf-8", "replace")
    # Once the text is cut, a secret in it may no longer be whole.
    text = " ".join(redacted(text, authorization.secrets if authorization else {}).split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _port(url: SplitResult) -> int:
    return url.port or _DEFAULT_PORTS[url.scheme]


def _parse_url(url: str) -> SplitResult:
    shown = redacted_urls(url[:_SHOWN_CHARACTERS])
    if not url.isascii() or not url.isprintable() or " " in url:
        message = f"the URL {shown!r} has characters that must be encoded"
        raise OptionError(message)
    try:
        split = urlsplit(url)
        has_host = bool(split.hostname) and split.port != 0
    except ValueError:
        message = f"{shown!r} is not a URL"
        raise OptionError(message) from None
    if split.scheme not in _DEFAULT_PORTS or not has_host:
        message = f"{shown!r} is not a URL of a server"
        raise OptionError(message)
    if "@" in split.netloc:
        message = f"credentials in the URL {shown!r}: give them as options (token)"
        raise OptionError(message)
    return split
