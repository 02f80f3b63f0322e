"""Stores on loopback: emulators of Google Cloud Storage and of Azure, and a gateway from S3.

`make stores` brings them: fake-gcs-server and versitygw, built by Go, and Azurite, by npm. The
first knows GCS's JSON interface, which gcsfs speaks; of the XML interface, which obstore speaks, it
knows reading. The emulators keep all in memory, the gateway in a folder.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fsspec

from arrow_io.storage.own_options import Client
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Of the account that every Azurite has."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Emulator:
    """A running emulator.

    Attributes:
        scheme: Of URLs that lead to it.
        options: Storage options by client.
    """

    scheme: str
    options: dict[str, dict[str, object]]
    make_container: Callable[[str], None]

    def new_container(self) -> str:
        """Make an empty bucket or container and return its URL."""
        name = f"offloaded-{next(_numbers)}"
        self.make_container(name)
        return f"{self.scheme}://{name}"


@contextmanager
def running_gcs() -> Iterator[Emulator]:
    """Run an emulator of Google Cloud Storage, with no buckets."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ("-scheme=http", "-backend=memory", "-host=127.0.0.1", "-log-level=error")
    address = (f"-port={port}", f"-public-host=127.0.0.1:{port}", f"-external-url={url}")

    def make(name: str) -> None:
        body = json.dumps({"name": name}).encode()
        with urllib.request.urlopen(f"{url}/storage/v1/b?project=none", body):  # noqa: S310
            pass

    options: dict[str, object] = {"endpoint_url": url, "token": "anon", "project": "none"}
    with running(port, os.environ["FAKE_GCS_SERVER"], *arguments, *address):
        yield Emulator("gs", dict.fromkeys(Client, options), make)


@contextmanager
def running_azure() -> Iterator[Emulator]:
    """Run an emulator of Azure Blob Storage, with no containers."""
    port = free_port()
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={_AZURE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    )
    options: dict[str, object] = {"connection_string": connection}

    def make(name: str) -> None:
        fsspec.filesystem("az", **options).mkdir(name)

    address = ("--blobHost=127.0.0.1", f"--blobPort={port}")
    settings = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
    with running(port, os.environ["AZURITE"], *address, *settings):
        yield Emulator("az", dict.fromkeys(Client, options), make)


@contextmanager
def running_gateway(
    program: str, folder: str, *, keep_alive: bool = True
) -> Iterator[dict[str, object]]:
    """Run a gateway from S3 to a folder; yields storage options of s3fs that lead to it.

    Args:
        program: The program of versitygw.
        folder: Where it keeps the objects; empty.
        keep_alive: Whether a connection takes several requests.
    """
    port = free_port()
    access, secret = "gateway", "gateway-secret"
    account = {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret}
    connections = ("--keep-alive",) if keep_alive else ()
    arguments = ("--port", f"127.0.0.1:{port}", *connections, "--quiet", "posix", folder)
    with running(port, program, *arguments, environment=account):
        yield {"key": access, "secret": secret, "endpoint_url": f"http://127.0.0.1:{port}"}


def free_port() -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def running(
    port: int, *command: str, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a program until the context ends, and wait at first until it listens.

    Args:
        port: Where it will listen.
        command: The program and its arguments.
        environment: Variables beside those of this process.
    """
    variables = os.environ | (environment or {})
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=variables)
    try:

        def listens() -> bool:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                assert process.poll() is None, f"{command[0]} ended"
                return False
            return True

        wait_until(listens)
        yield
    finally:
        process.kill()
        process.wait()
