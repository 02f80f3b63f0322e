"""An S3 server of this process on loopback, filled with golden objects as a broker left them.

Use it as a fixture of the widest scope that fits, because a server takes a second to start:

    @pytest.fixture(scope="session")
    def s3_server() -> Iterator[S3Server]:
        with running_s3_server() as server:
            yield server
"""

from __future__ import annotations

import itertools
import json
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from moto.server import ThreadedMotoServer

from arrow_io.core.lazy import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from wsgiref.types import WSGIApplication

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"  # noqa: S105 - the server takes any
REGION = "us-east-1"

# All servers of a process share their buckets.
_bucket_numbers = itertools.count()


@dataclass(frozen=True)
class S3Address:
    """What `Location`, and every door above it, takes to read from the server."""

    url: str
    """`s3://bucket` or `s3://bucket/prefix`."""
    storage_options: dict[str, object]
    """Options of s3fs."""


@dataclass
class S3Server:
    """A running server."""

    endpoint_url: str

    @property
    def storage_options(self) -> dict[str, object]:
        """Options of s3fs that lead to this server."""
        return {
            "key": ACCESS_KEY,
            "secret": SECRET_KEY,
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": REGION},
        }

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 - boto3 makes its classes at run time
        """A boto3 client of the server."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name=REGION,
        )

    def new_bucket(self) -> str:
        """Make an empty bucket and return its name."""
        bucket = f"offloaded-{next(_bucket_numbers)}"
        self.client.create_bucket(Bucket=bucket)
        return bucket

    def drop(self, bucket: str) -> None:
        """Delete a bucket with all that lies in it, if it is there.

        All servers of a process have the same buckets, also those that come later.
        """
        if bucket in {each["Name"] for each in self.client.list_buckets()["Buckets"]}:
            for each in self.client.list_objects_v2(Bucket=bucket).get("Contents", ()):
                self.client.delete_object(Bucket=bucket, Key=each["Key"])
            self.client.delete_bucket(Bucket=bucket)

    def upload(self, objects: Mapping[str, bytes], *, prefix: str = "") -> S3Address:
        """Put objects into a new bucket, without user metadata.

        Args:
            objects: Bytes by object name.
            prefix: Folder in the bucket, without slashes around it; empty for its root.
        """
        bucket, client = self.new_bucket(), self.client
        for name, data in objects.items():
            client.put_object(Bucket=bucket, Key=_key(prefix, name), Body=data)
        return self._address(bucket, prefix)

    def upload_golden(self, golden_set: Path, *, prefix: str = "") -> S3Address:
        """Put the objects of a golden set into a new bucket, as a broker left them.

        Args:
            golden_set: Folder with `objects/` and the `objects.json` that tells content type and
                user metadata of each.
            prefix: Folder in the bucket, without slashes around it; empty for its root.
        """
        bucket, client = self.new_bucket(), self.client
        descriptions = json.loads((golden_set / "objects.json").read_text())
        for name, description in descriptions.items():
            client.put_object(
                Bucket=bucket,
                Key=_key(prefix, name),
                Body=(golden_set / "objects" / name).read_bytes(),
                ContentType=description["content_type"],
                Metadata=description["user_metadata"],
            )
        return self._address(bucket, prefix)

    def _address(self, bucket: str, prefix: str) -> S3Address:
        url = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        return S3Address(url, self.storage_options)


def _key(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


@contextmanager
def running_s3_server(
    wrap: Callable[[WSGIApplication], WSGIApplication] | None = None,
) -> Iterator[S3Server]:
    """Run a server on a free port of loopback, with no buckets.

    Args:
        wrap: Makes what answers the requests out of what would; None: nothing comes between.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    if wrap is not None:
        assert server._server is not None
        server._server.app = wrap(server._server.app)
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()
