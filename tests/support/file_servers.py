"""Servers of FTP and SFTP on loopback, each with the files of one folder."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import asyncssh

with warnings.catch_warnings():
    # Its modules import asyncore, which Python 3.11 deprecates and later ones get from PyPI.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler
    from pyftpdlib.ioloop import IOLoop
    from pyftpdlib.servers import FTPServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER: Final = "reader"
PASSWORD: Final = "correct-horse"  # noqa: S105 - of servers that end with a test


@contextlib.contextmanager
def running_ftp_server(folder: Path) -> Iterator[str]:
    """Run an FTP server; yields the URL of the folder, without credentials."""
    authorizer = DummyAuthorizer()
    authorizer.add_user(USER, PASSWORD, str(folder), perm="elradfmwMT")
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer})
    loop = IOLoop()
    server = FTPServer(("127.0.0.1", 0), handler, ioloop=loop)
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            loop.loop(timeout=0.05, blocking=False)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"ftp://127.0.0.1:{server.address[1]}/"
    finally:
        is_over.set()
        thread.join()
        server.close_all()


class _Server(asyncssh.SSHServer):
    def __init__(self, connections: list[asyncssh.SSHServerConnection]) -> None:
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        return username == USER

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)


@contextlib.contextmanager
def running_sftp_server(folder: Path) -> Iterator[str]:
    """Run an SFTP server; yields the URL of the folder, without credentials."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def files(channel: asyncssh.SSHServerChannel[bytes]) -> asyncssh.SFTPServer:
        return asyncssh.SFTPServer(channel, chroot=str(folder).encode())

    connections: list[asyncssh.SSHServerConnection] = []

    async def listen() -> Any:  # noqa: ANN401 - asyncssh's own
        return await asyncssh.create_server(
            partial(_Server, connections),
            "127.0.0.1",
            0,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            sftp_factory=files,
        )

    async def close() -> None:
        server.close()
        for connection in connections:
            connection.close()
            await connection.wait_closed()
        await server.wait_closed()

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield f"sftp://127.0.0.1:{server.get_port()}/"
    finally:
        asyncio.run_coroutine_threadsafe(close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
