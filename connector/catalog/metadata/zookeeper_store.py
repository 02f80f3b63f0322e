"""The nodes of a ZooKeeper ensemble, read with the client library kazoo.

A server may lag behind the leader of its ensemble. So each request is preceded by a `sync`, in the
same session and without waiting for it: the answer has all changes that were made before.

kazoo reads answers of any length, and writes requests with their credentials to a log. Here its
connections refuse answers longer than `_MAX_ANSWER_BYTES`, and its log goes nowhere.
"""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from arrow_io.errors import CorruptMetadataError, OptionError, StorageError
from arrow_io.storage.hidden import HiddenText
from arrow_io.storage.redaction import redacted_urls
from connector.catalog.metadata.metadata_store import MAX_CHILDREN
from connector.catalog.metadata.topic_metadata import MAX_METADATA_BYTES
from connector.inputs.cluster_access import ServerAccess, read_access

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SCHEME: Final = "zk://"
_HOST: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?", re.ASCII)
_MAX_PORT: Final = 65_535
_CONNECTION_CYCLES: Final = 3
"""Number of times that each server is tried before a connection fails."""
_SESSIONS: Final = 2
"""Number of sessions that a request is sent in: a server may have ended the first meanwhile."""
_MAX_ANSWER_BYTES: Final = MAX_METADATA_BYTES + (1 << 20)
"""Maximum length of an answer on the wire, which is a value or a list of names, and some more. (A
server sends at most 1 MiB unless its `jute.maxbuffer` is raised.)"""
_MALFORMED: Final = (struct.error, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of kazoo for malformed answers."""
_ENDED: Final = (ConnectionLoss, SessionExpiredError)
_REFUSED: Final = (AuthFailedError, NoAuthError, SessionClosedRequireSaslError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperOptions(ServerAccess):
    """Options of a ZooKeeper ensemble. `timeout_s` is for a request, including its connection.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    username: str | None = None
    """Name of the user; None to connect without credentials."""
    password: str | None = field(default=None, repr=False)
    """Password of the user."""
    sasl: bool = False
    """Whether the user authenticates by SASL (DIGEST-MD5), and not by ZooKeeper's scheme `digest`.
    """
    tls: bool = False
    """Whether the connection is encrypted."""

    def __post_init__(self) -> None:
        # Without arguments, `super` would refer to the class that `slots` replaces.
        super(ZooKeeperOptions, self).__post_init__()
        if (self.username is None) != (self.password is None):
            message = "username and password need each other: set both or neither"
            raise OptionError(message)
        if self.sasl and self.username is None:
            message = "sasl needs username and password"
            raise OptionError(message)
        if self.has_tls_options and not self.tls:
            message = "there are options for TLS, but tls is not true"
            raise OptionError(message)
        if self.password is not None:
            object.__setattr__(self, "password", HiddenText(self.password))


def open_store(url: str, options: Mapping[str, object]) -> ZooKeeper:
    """Return an ensemble; sends no request yet.

    Args:
        url: `zk://host:2181`, or `zk://host:2181,other:2181/chroot`.
        options: Options of `ZooKeeperOptions` as users pass them; numbers and flags may be text.

    Raises:
        OptionError: The URL is of another form, an option cannot be used, or a certificate file
            cannot be read.
    """
    return ZooKeeper(url, read_access(ZooKeeperOptions, "metadata option", options))


class ZooKeeper:
    """A ZooKeeper ensemble as a metadata store (`MetadataStore`).

    The session starts with the first request, and ends when this object is not used any more.

    Raises:
        OptionError: See `open_store`.
    """

    def __init__(self, url: str, options: ZooKeeperOptions) -> None:
        self.url = redacted_urls(url)
        self._options = options
        self._hosts = _parse_hosts(url)
        self._tls = options.tls_context() if options.tls else None
        self._lock = threading.Lock()
        self._session: _Session | None = None

    def __repr__(self) -> str:
        return f"ZooKeeper({self.url!r})"

    def get(self, path: str) -> bytes | None:
        """Return the value of a node; see `MetadataStore`."""
        answer = self._ask(path, lambda client: client.get_async(path))
        if answer is None:
            return None
        # A node that was created without a value has none.
        value: bytes = answer[0] or b""
        self._check_size(path, len(value))
        return value

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children; see `MetadataStore`."""
        # With the node's data, because those end the answer: a truncated one is recognized.
        answer = self._ask(path, lambda client: client.get_children_async(path, include_data=True))
        names = [] if answer is None else answer[0]
        if not all(names):
            raise self._corrupt(path, "a child has no name")
        if len(names) > MAX_CHILDREN:
            raise self._corrupt(path, f"the node has more than the {MAX_CHILDREN} children allowed")
        self._check_size(path, sum(map(len, names)))
        return sorted(names)

    def _check_size(self, path: str, size_bytes: int) -> None:
        if size_bytes > MAX_METADATA_BYTES:
            text = f"the answer is longer than the {MAX_METADATA_BYTES} bytes allowed"
            raise self._corrupt(path, text)

    def _corrupt(self, path: str, text: str) -> CorruptMetadataError:
        return CorruptMetadataError(text, object_key=f"{self.url}{path}")

    def _ask(self, path: str, send: Callable[[KazooClient], Any]) -> Any:  # noqa: ANN401 - kazoo's
        """Return the answer to a request; None if there is no such node."""
        stop_s = time.monotonic() + self._options.timeout_s
        for number in range(1, _SESSIONS + 1):
            session = self._connected_session(path, stop_s)
            try:
                session.client.sync_async(path)
                return send(session.client).get(timeout=max(0, stop_s - time.monotonic()))
            except NoNodeError:
                return None
            except _REFUSED as error:
                message = (
                    f"{self.url} refuses {path}: {_name(error)}; check the options username,"
                    " password and sasl"
                )
                raise StorageError(message) from None
            except KazooTimeoutError:
                message = (
                    f"{self.url} did not answer {path} within {self._options.timeout_s:g} seconds"
                )
                raise StorageError(message) from None
            except _ENDED as error:
                self._end(session)
                if isinstance(session.failure, _LongAnswerError):
                    raise self._corrupt(path, str(session.failure)) from None
                if number == _SESSIONS:
                    message = f"{self.url} ended the session during {path}: {_name(error)}"
                    raise StorageError(message) from None
            except KazooException as error:
                message = f"{self.url} cannot answer {path}: {_name(error)}"
                raise StorageError(message) from None
            except _MALFORMED as error:
                self._end(session)
                text = f"the answer is malformed: {type(error).__name__}"
                raise self._corrupt(path, text) from None
        raise AssertionError

    def _connected_session(self, path: str, stop_s: float) -> _Session:
        while True:
            session = self._current_session()
            if session.wait(stop_s - time.monotonic()):
                return session
            failure = session.failure
            if failure is not None:
                reason = str(failure) or type(failure).__name__
            elif session.is_over:
                reason = "no server has such a name"
            else:
                reason = f"no session within {self._options.timeout_s:g} seconds"
            # If another thread has ended it, it says nothing about the servers.
            if self._end(session):
                break
        if isinstance(failure, _LongAnswerError):
            raise self._corrupt(path, reason)
        message = f"cannot connect to {self.url}: {reason}"
        raise StorageError(message)

    def _current_session(self) -> _Session:
        with self._lock:
            session = self._session
            if session is not None and session.is_over:
                session.end()
                session = None
            if session is None:
                session = self._session = _Session(self._hosts, self._options, self._tls)
                # Whoever ends it first ends it: this object, or the garbage collector.
                session.end = weakref.finalize(self, session.close)
                session.end.atexit = False
            return session

    def _end(self, session: _Session) -> bool:
        """Let the next request start another session; return whether this one was current."""
        with self._lock:
            is_current = self._session is session
            if is_current:
                self._session = None
        session.end()
        return is_current


class _Session:
    """A session with one of the servers, which kazoo keeps up in threads of its own.

    Attributes:
        client: kazoo's client.
        end: Calls `close` the first time that it is called.
    """

    end: weakref.finalize[[], ZooKeeper]

    def __init__(self, hosts: str, options: ZooKeeperOptions, tls: ssl.SSLContext | None) -> None:
        self._handler = _Handler(tls)
        names = {"username": options.username, "password": options.password}
        has_digest = options.username is not None and not options.sasl
        credentials = HiddenText(f"{options.username}:{options.password}")
        silent = logging.Logger("kazoo", logging.CRITICAL + 1)  # noqa: LOG001 - nobody finds it
        self.client = KazooClient(
            hosts,
            timeout=options.timeout_s / (1 + hosts.partition("/")[0].count(",")),
            handler=self._handler,
            auth_data=[("digest", credentials)] if has_digest else None,
            sasl_options={"mechanism": "DIGEST-MD5", **names} if options.sasl else None,
            connection_retry=KazooRetry(max_tries=_CONNECTION_CYCLES - 1, max_delay=1),
            logger=silent,
        )
        self.client.add_listener(self._handler.note_state)
        self.client.start_async()

    @property
    def failure(self) -> Exception | None:
        """Why a connection failed; None if none did."""
        return self._handler.failure

    @property
    def is_over(self) -> bool:
        """Whether it has lost its connection. kazoo may restore that, but another is faster."""
        return self._handler.is_settled.is_set() and not self.client.connected

    def wait(self, timeout_s: float) -> bool:
        """Wait until requests can be sent; return False if none can after the time.

        A request in a session that a server has ended, such as one with a wrong password, raises
        why.
        """
        if not self._handler.is_settled.wait(max(0, timeout_s)):
            return False
        is_ended = self._handler.has_connected and self.client.state == KazooState.LOST
        return self.client.connected or (is_ended and self.failure is None)

    def close(self) -> None:
        """Close the session without waiting, because its server may be silent."""
        threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        # If the connection's thread still waits for a silent server, it ends by its own timeout.
        with suppress(WriterNotClosedException):
            self.client.stop()
            self.client.close()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """What kazoo starts its threads and connections with.

    Attributes:
        failure: Why the last failed connection failed; None if none did.
        has_connected: Whether there was a connection.
        is_settled: Set once there was a connection, or will be none.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.has_connected = False
        self.is_settled = threading.Event()
        self._tls = tls

    def note_state(self, state: str) -> None:
        """Note that the state of the connection has changed."""
        if state == KazooState.CONNECTED:
            self.has_connected = True
            self.is_settled.set()

    def spawn(self, func: Callable[..., object], *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        """Start a thread; the one of the connection ends after its last failure."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a malformed answer raises anything
                self.failure = error
            finally:
                self.is_settled.set()

        return super().spawn(run)

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> _BoundedSocket:
        """Connect to a server."""
        try:
            connection = socket.create_connection(address, timeout)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=hostname)
        except OSError as error:
            self.failure = error
            raise
        return _BoundedSocket(connection, self)


class _BoundedSocket:
    """A connection that receives no answer longer than `_MAX_ANSWER_BYTES`, and notes why it ends.

    kazoo reads an answer with one call of `recv` for all bytes that are left of it.
    """

    def __init__(self, connection: socket.socket, handler: _Handler) -> None:
        self._connection = connection
        self._handler = handler

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all other methods of the socket
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        if size > _MAX_ANSWER_BYTES:
            text = f"the answer is longer than the {_MAX_ANSWER_BYTES} bytes allowed"
            self._handler.failure = _LongAnswerError(text)
            raise self._handler.failure
        try:
            data = self._connection.recv(size)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except OSError as error:
            self._handler.failure = error
            raise
        if not data:
            self._handler.failure = ConnectionError("the server closed the connection")
        return data


class _LongAnswerError(OSError):
    """An answer that is too long to be received; never leaves this module."""


def _name(error: Exception) -> str:
    return type(error).__name__.removesuffix("Error")


def _parse_hosts(url: str) -> str:
    """Return hosts and chroot as kazoo takes them."""
    shown = redacted_urls(url)
    hosts, slash, chroot = url[len(_SCHEME) :].rstrip("/").partition("/")
    if "@" in hosts:
        message = f"credentials in the URL {shown!r}: give them as options (username and password)"
        raise OptionError(message)
    for host in hosts.split(","):
        match = _HOST.fullmatch(host)
        if match is None or not 0 < int(match[1] or 1) <= _MAX_PORT:
            message = (
                f"{shown!r} does not name servers of ZooKeeper: write zk://host:2181, or"
                " zk://host:2181,other:2181/chroot"
            )
            raise OptionError(message)
    parts = chroot.split("/") if slash else []
    if any(part in {"", ".", ".."} or not part.isprintable() for part in parts):
        message = f"the path in {shown!r} is not that of a node"
        raise OptionError(message)
    return f"{hosts}{slash}{chroot}"
