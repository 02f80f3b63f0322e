"""GETs go through obstore if it reaches the store as s3fs does, and through s3fs if not."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from aiobotocore.session import AioSession  # type: ignore[import-untyped]

from arrow_io.errors import MissingObjectError, StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from connector import open_topic
from tests.support.golden import GOLDEN
from tests.support.s3_server import S3Server, running_s3_server
from tests.support.stalling_server import StallingServer, answer_with, stalling_server
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_OBSTORE: Final = "object_store"
_S3FS: Final = "Botocore"
_BY_OBSTORE: Final = ("GET", _OBSTORE)


class _Senders:
    """Records which library sent each request, and with which key it was signed."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []

    def wrap(self, app: WSGIApplication) -> WSGIApplication:
        def watched(environment: WSGIEnvironment, start: StartResponse) -> Any:  # noqa: ANN401 - of WSGI
            agent = environment.get("HTTP_USER_AGENT", "")
            library = _OBSTORE if _OBSTORE in agent else _S3FS if _S3FS in agent else agent
            credential = environment.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2]
            method = environment["REQUEST_METHOD"]
            is_listing = "list-type" in environment.get("QUERY_STRING", "")
            kind = "LIST" if is_listing else method
            self.requests.append((kind, library, credential.partition("/")[0]))
            return app(environment, start)

        return watched

    def of(self, kind: str) -> set[str]:
        """Return the libraries that sent requests of a kind."""
        return {library for each, library, _key in self.requests if each == kind}


_SENDERS: Final = _Senders()


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """An S3 server that records who sends requests."""
    with running_s3_server(_SENDERS.wrap) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    _SENDERS.requests.clear()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def _written_config(folder: Path, **lines: str) -> dict[str, str]:
    """Write the files of the AWS CLI, and return the environment variables that name them."""
    text = "\n".join(f"{name} = {value}" for name, value in lines.items())
    (folder / "config").write_text(f"[profile other]\nregion = us-east-1\n{text}\n")
    (folder / "credentials").touch()
    return {
        "AWS_CONFIG_FILE": str(folder / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
    }


def test_obstore_sends_gets_and_s3fs_all_else(s3_server: S3Server) -> None:
    """Without an option."""
    address = s3_server.upload({"a": b"0123456789"})
    location = Location(address.url, address.storage_options)
    _SENDERS.requests.clear()
    version = location.list_objects()[0].version

    assert location.read_range("a", 2, 5, version=version).data == b"234"
    assert location.read_object("a", max_bytes=10, version=version).data == b"0123456789"
    assert location.find("a") is not None
    location.write_object("b", b"data", user_metadata={})
    assert location.unfinished_uploads() == []
    location.delete_objects(["b"])

    sent = [(kind, library) for kind, library, _key in _SENDERS.requests]
    assert sent == [
        ("LIST", _S3FS), ("GET", _OBSTORE), ("GET", _OBSTORE), ("HEAD", _S3FS), ("PUT", _S3FS),
        ("GET", _S3FS), ("DELETE", _S3FS),
    ]  # fmt: skip


def test_a_topic_needs_one_client_of_obstore(s3_server: S3Server) -> None:
    """All folders of a bucket share it, and all GETs of a read go through it."""
    address = s3_server.upload_golden(GOLDEN / "pulsar-4.0.7-small", prefix="some/prefix")
    options = address.storage_options
    table = open_topic(address.url, "small-chunked", storage_options=options).to_table()
    location = Location(address.url, options)

    assert table.num_rows > 0
    assert _OBSTORE in _SENDERS.of("GET")
    readers = [each._sender.store().reader for each in (location, location.child("other"))]
    assert readers[0]._client is readers[1]._client  # type: ignore[attr-defined]


_TRANSLATED: Final[dict[str, dict[str, object]]] = {
    "no option": {},
    "path-style addresses": {"config_kwargs": {"s3": {"addressing_style": "path"}}},
    "timeouts": {"config_kwargs": {"connect_timeout": 9, "read_timeout": 9}},
    "payer": {"requester_pays": True},
    "cache": {"default_block_size": 1 << 20, "use_listings_cache": False},
}
_UNTRANSLATED: Final[dict[str, dict[str, object]]] = {
    "fsspec": {"client": "fsspec"},
    "certificates": {"client_kwargs": {"verify": False}},
    "proxies": {"config_kwargs": {"proxies": {}}},
    "client certificate": {"config_kwargs": {"client_cert": None}},
    "another signature": {"config_kwargs": {"signature_version": "s3"}},
    "parameters of each request": {"s3_additional_kwargs": {"ExpectedBucketOwner": "123456789012"}},
    "object versions": {"version_aware": True},
}


@pytest.mark.parametrize("case", [*_TRANSLATED, *_UNTRANSLATED])
def test_options_decide_who_sends_gets(s3_server: S3Server, case: str) -> None:
    """Options that obstore cannot receive are left to s3fs: the object is read either way."""
    address = s3_server.upload({"a": b"data"})
    options = _TRANSLATED.get(case) or _UNTRANSLATED.get(case, {})
    location = Location(address.url, address.storage_options | options)

    assert location.read_range("a", 0, 4).data == b"data"
    assert _SENDERS.of("GET") == {_S3FS if case in _UNTRANSLATED else _OBSTORE}


def test_a_session_of_the_user_stays_in_use(s3_server: S3Server) -> None:
    """It may have hooks that obstore does not call."""
    address = s3_server.upload({"a": b"data"})
    options = address.storage_options | {"session": AioSession()}

    assert Location(address.url, options).read_range("a", 0, 4).data == b"data"
    assert _SENDERS.of("GET") == {_S3FS}


def test_a_proxy_of_the_environment_is_left_to_s3fs(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two libraries do not agree on the hosts that need none."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    address = s3_server.upload({"a": b"data"})

    assert Location(address.url, address.storage_options).read_range("a", 0, 4).data == b"data"
    assert _SENDERS.of("GET") == {_S3FS}


def test_an_endpoint_of_the_environment_is_found(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As s3fs finds it, and credentials too."""
    address = s3_server.upload({"a": b"data"})
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", str(address.storage_options["endpoint_url"]))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    location = Location(address.url, {"use_listings_cache": False})
    assert location.read_object("a", max_bytes=4).data == b"data"
    assert ("GET", _OBSTORE, "from-environment") in _SENDERS.requests


def test_a_profile_is_found(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the files of the AWS CLI, which obstore does not read."""
    address = s3_server.upload({"a": b"data"})
    names = {"aws_access_key_id": "from-profile", "aws_secret_access_key": "secret"}
    for name, value in _written_config(tmp_path, **names).items():
        monkeypatch.setenv(name, value)
    options = {"profile": "other", "endpoint_url": address.storage_options["endpoint_url"]}

    assert Location(address.url, options).read_object("a", max_bytes=4).data == b"data"
    assert ("GET", _OBSTORE, "from-profile") in _SENDERS.requests


def test_credentials_that_expire_are_fetched_again(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of an assumed role, or of a program as here, are s3fs's at each time."""
    address = s3_server.upload({"a": b"data"})
    expiration = (datetime.now(UTC) + timedelta(minutes=2)).isoformat()
    program = tmp_path / "credentials.py"
    program.write_text(
        "import json, pathlib\n"
        f"calls = pathlib.Path({str(tmp_path)!r}, 'calls')\n"
        "number = int(calls.read_text()) + 1 if calls.exists() else 1\n"
        "calls.write_text(str(number))\n"
        f"print(json.dumps({{'Version': 1, 'Expiration': {expiration!r},\n"
        "    'AccessKeyId': f'key-{number}', 'SecretAccessKey': 's', 'SessionToken': 't'}))\n"
    )
    settings = {"credential_process": f"{sys.executable} {program}"}
    for name, value in _written_config(tmp_path, **settings).items():
        monkeypatch.setenv(name, value)
    options = address.storage_options | {"profile": "other", "key": None, "secret": None}
    location = Location(address.url, options)

    def has_two_keys() -> bool:
        assert location.read_object("a", max_bytes=4).data == b"data"
        gets = [key for kind, library, key in _SENDERS.requests if (kind, library) == _BY_OBSTORE]
        return len(set(gets)) > 1

    # obstore asks again at the earliest after 0.1 s.
    wait_until(has_two_keys)


def test_public_buckets_need_no_credentials(s3_server: S3Server) -> None:
    """Requests are not signed."""
    address = s3_server.upload({"a": b"data"})
    bucket = address.url.removeprefix("s3://")
    s3_server.client.put_object_acl(Bucket=bucket, Key="a", ACL="public-read")
    options = {"anon": True, "endpoint_url": address.storage_options["endpoint_url"]}

    assert Location(address.url, options).read_object("a", max_bytes=4).data == b"data"
    assert ("GET", _OBSTORE, "") in _SENDERS.requests


def test_a_name_that_obstore_cannot_represent_is_read(s3_server: S3Server) -> None:
    """By s3fs, and other names by obstore as before."""
    address = s3_server.upload({"a//b": b"data", "c": b"data"})
    location = Location(address.url, address.storage_options)

    for name in ("c", "a//b", "c"):
        assert location.read_object(name, max_bytes=4).data == b"data"
    libraries = [library for kind, library, _key in _SENDERS.requests if kind == "GET"]
    assert libraries == [_OBSTORE, _S3FS, _OBSTORE]


@pytest.mark.posix
def test_a_forked_process_reads_through_s3fs(s3_server: S3Server) -> None:
    """The threads of obstore exist only in its parent."""
    address = s3_server.upload({"a": b"data"})
    location = Location(address.url, address.storage_options)
    location.read_object("a", max_bytes=4)

    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if location.read_object("a", max_bytes=4).data == b"data" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert _SENDERS.of("GET") == {_OBSTORE, _S3FS}


# A server that prefers one library


def _serving(
    refuse: Callable[[BaseHTTPRequestHandler, bool], bool], agents: list[str]
) -> Callable[[BaseHTTPRequestHandler, StallingServer], None]:
    """Return an answer of `data`, unless `refuse` answers; it receives the library that asks."""

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        is_obstore = _OBSTORE in request.headers["User-Agent"]
        agents.append(_OBSTORE if is_obstore else _S3FS)
        if not refuse(request, is_obstore):
            request.send_response(200)
            request.send_header("Content-Length", "4")
            request.send_header("ETag", '"x"')
            request.send_header("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")
            request.end_headers()
            request.wfile.write(b"data")

    return answer


def _location(server: StallingServer, **options: object) -> Location:
    retry = RetryPolicy(sleep=lambda _seconds: None)
    return Location("s3://bucket/folder", server.storage_options | options, retry)


def _error(status: int) -> Callable[[BaseHTTPRequestHandler, bool], bool]:
    def refuse(request: BaseHTTPRequestHandler, is_obstore: bool) -> bool:
        if is_obstore:
            answer_with(request, b"<Error><Code>No</Code></Error>", status=status)
        return is_obstore

    return refuse


def _reset(request: BaseHTTPRequestHandler, is_obstore: bool) -> bool:
    if is_obstore:
        request.close_connection = True
    return is_obstore


_STATUSES: Final = (301, 307, 400, 401, 403, 404, 500)


@pytest.mark.parametrize(
    "refuse",
    [*(_error(status) for status in _STATUSES), _reset],
    ids=[*map(str, _STATUSES), "reset"],
)
def test_s3fs_stays_if_the_first_get_needs_it(
    refuse: Callable[[BaseHTTPRequestHandler, bool], bool],
) -> None:
    """Another region, a proxy, a certificate: what s3fs can read stays readable."""
    agents: list[str] = []
    with stalling_server(_serving(refuse, agents)) as server:
        location = _location(server, request_attempts=1)
        for _ in range(2):
            assert location.read_object("name", max_bytes=4).data == b"data"

    assert agents == [_OBSTORE, _S3FS, _S3FS]


def test_a_refusal_after_the_first_get_is_final() -> None:
    """It is the store's answer to either library."""
    agents: list[str] = []

    def refuse(request: BaseHTTPRequestHandler, _is_obstore: bool) -> bool:
        if len(agents) > 1:
            answer_with(request, b"<Error><Code>AccessDenied</Code></Error>", status=403)
        return len(agents) > 1

    with stalling_server(_serving(refuse, agents)) as server:
        location = _location(server)
        assert location.read_object("name", max_bytes=4).data == b"data"
        with pytest.raises(StorageError, match="AccessDenied"):
            location.read_object("name", max_bytes=4)

    # s3fs asks if obstore did not reach the server.
    assert agents in ([_OBSTORE, _OBSTORE], [_OBSTORE, _S3FS])


def test_a_failure_after_the_first_get_is_repeated_by_s3fs() -> None:
    """With its own repeats; obstore sends the next GET again."""
    agents: list[str] = []

    def refuse(request: BaseHTTPRequestHandler, _is_obstore: bool) -> bool:
        is_failure = len(agents) in {2, 3}
        if is_failure:
            answer_with(request, b"<Error><Code>InternalError</Code></Error>", status=500)
        return is_failure

    with stalling_server(_serving(refuse, agents)) as server:
        location = _location(server, request_attempts=1)
        for _ in range(3):
            assert location.read_object("name", max_bytes=4).data == b"data"

    assert agents == [_OBSTORE, _OBSTORE, _S3FS, _S3FS, _OBSTORE]


def test_a_missing_object_is_reported_by_s3fs_first() -> None:
    """Until obstore has received an object, its address of the bucket may be wrong."""
    agents: list[str] = []

    def refuse(request: BaseHTTPRequestHandler, _is_obstore: bool) -> bool:
        answer_with(request, b"<Error><Code>NoSuchKey</Code></Error>", status=404)
        return True

    with stalling_server(_serving(refuse, agents)) as server, pytest.raises(MissingObjectError):
        _location(server).read_object("name", max_bytes=4)

    assert agents == [_OBSTORE, _S3FS]


def test_locations_share_the_connections_of_a_bucket() -> None:
    """`max_connections` bounds the requests of all readers with the same options, as in s3fs."""
    lock, gate = threading.Lock(), threading.Event()
    running = most = arrived = 0

    def refuse(_request: BaseHTTPRequestHandler, _is_obstore: bool) -> bool:
        nonlocal running, most, arrived
        with lock:
            running, arrived = running + 1, arrived + 1
            most = max(most, running)
            if arrived >= 2:
                gate.set()
        assert gate.wait(timeout=30)
        with lock:
            running -= 1
        return False

    with stalling_server(_serving(refuse, [])) as server, ThreadPoolExecutor(6) as readers:
        locations = [_location(server, max_connections=2).child(name) for name in "abcdef"]
        reads = [readers.submit(each.read_object, "name", max_bytes=4) for each in locations]
        assert [each.result(timeout=60).data for each in reads] == [b"data"] * 6
    assert most == 2


def test_the_log_names_the_client_and_the_reason(
    s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """One record for each bucket whose GETs obstore does not send."""
    address = s3_server.upload({"a": b"data"})
    options = address.storage_options | {"config_kwargs": {"proxies": {}}}
    with caplog.at_level("DEBUG", "pulsar_offload"):
        Location(address.url, options).read_object("a", max_bytes=4)

    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "client"]
    assert (
        record.getMessage()
        == f"client: client=fsspec reason={json.dumps('config_kwargs has proxies')}"
    )
