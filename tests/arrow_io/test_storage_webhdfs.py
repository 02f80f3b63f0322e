"""WebHDFS: what is asked of a NameNode and a DataNode, and which answers are not believed."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from arrow_io.errors import (
    MissingObjectError,
    OptionError,
    StorageError,
    TruncatedObjectError,
)
from arrow_io.storage import webhdfs_object_store
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.connection import open_store
from arrow_io.storage.location import Location
from tests.support.stalling_server import (
    StallingServer,
    answer_with,
    never,
    stalling_server,
    stop_in_the_body,
    trickle,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from http.server import BaseHTTPRequestHandler

    Answer = Callable[[BaseHTTPRequestHandler, StallingServer], None]

_BYTES: Final = "application/octet-stream"
_FILE: Final = {
    "pathSuffix": "a",
    "type": "FILE",
    "length": 10,
    "modificationTime": 1_700_000_000_001,
}
_DATA: Final = b"0123456789"


def _location(server: StallingServer, path: str = "/root", **options: object) -> Location:
    retry = RetryPolicy(sleep=lambda _seconds: None)
    url = server.endpoint_url.replace("http://", "webhdfs://") + path
    return Location(url, {"request_attempts": 2, **options}, retry)


def _query(request: BaseHTTPRequestHandler) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}


def _always(body: bytes, status: int = 200, content_type: str = "application/json") -> Answer:
    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        answer_with(request, body, status, content_type)

    return answer


def _listing(*entries: Mapping[str, object], remaining: object = 0) -> bytes:
    statuses = {"FileStatuses": {"FileStatus": list(entries)}}
    return json.dumps(
        {"DirectoryListing": {"partialListing": statuses, "remainingEntries": remaining}}
    ).encode()


def _remote_exception(name: str, message: str) -> bytes:
    return json.dumps({"RemoteException": {"exception": name, "message": message}}).encode()


def _redirect(request: BaseHTTPRequestHandler, location: str) -> None:
    request.send_response(307)
    request.send_header("Location", location)
    request.send_header("Connection", "close")
    request.send_header("Content-Length", "0")
    request.end_headers()


class TestRequests:
    """What is sent."""

    def test_bytes_come_from_a_data_node_without_credentials(self) -> None:
        """The NameNode gets them; another server gets what the NameNode's answer says."""
        seen: list[tuple[str, dict[str, str], str | None]] = []

        def note(request: BaseHTTPRequestHandler) -> None:
            path = unquote(urlsplit(request.path).path)
            seen.append((path, _query(request), request.headers.get("Authorization")))

        def data_node(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            note(request)
            query = _query(request)
            start = int(query["offset"])
            answer_with(request, _DATA[start : start + int(query["length"])], 200, _BYTES)

        with stalling_server(data_node) as data:

            def name_node(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
                note(request)
                _redirect(request, f"{data.endpoint_url}{request.path}&delegation=of-the-node")

            with stalling_server(name_node) as names:
                location = _location(names, "/r%25", user="me", password="secret")
                assert location.read_range("x%3A1/+ é", 3, 6).data == b"345"

        query = {"op": "OPEN", "offset": "3", "length": "3"}
        path = "/webhdfs/v1/r%25/x%3A1/+ é"
        assert seen == [
            (path, query, "Basic bWU6c2VjcmV0"),
            (path, {**query, "delegation": "of-the-node"}, None),
        ]

    def test_a_server_that_answers_itself_gets_credentials(self) -> None:
        """As HttpFS and Knox, which redirect a request to themselves or not at all."""
        seen: list[str | None] = []

        def answer(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
            seen.append(request.headers.get("Authorization"))
            if "data" in _query(request):
                answer_with(request, _DATA, 200, _BYTES)
            else:
                _redirect(request, f"{server.endpoint_url}{request.path}&data=true")

        with stalling_server(answer) as server:
            location = _location(server, user="me", password="secret")
            assert location.read_object("a", max_bytes=10).data == _DATA
        assert seen == ["Basic bWU6c2VjcmV0"] * 2

    def test_a_listing_has_pages(self) -> None:
        """Each starts after the last name of the one before it."""
        starts: list[str | None] = []

        def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            query = _query(request)
            assert query["op"] == "LISTSTATUS_BATCH"
            starts.append(query.get("startAfter"))
            number = len(starts)
            entry = {**_FILE, "pathSuffix": f"x%3A+{number}"}
            answer_with(request, _listing(entry, remaining=3 - number), 200, "application/json")

        with stalling_server(answer) as server:
            infos = _location(server).list_objects()
        assert [info.name for info in infos] == ["x%3A+1", "x%3A+2", "x%3A+3"]
        assert starts == [None, "x%3A+1", "x%3A+2"]
        assert infos[0].modified is not None
        assert infos[0].modified.timestamp() == 1_700_000_000.001

    def test_the_port_is_that_of_hadoop_3(self) -> None:
        """Unless the URL or the options have another one."""
        urls: dict[str, Mapping[str, object]] = {
            "webhdfs://host/a": {},
            "webhdfs://me@host": {"port": 9871},
            "webhdfs://me:pass@host:14000/a": {},
        }
        ports = [
            open_store(url, options, 1, RetryPolicy())._file_system.url
            for url, options in urls.items()
        ]
        assert ports == [f"http://host:{port}/webhdfs/v1" for port in (9870, 9871, 14000)]


class TestAnswers:
    """What a server may say."""

    @pytest.mark.parametrize(
        "body",
        [
            b"<!DOCTYPE html><html>Sign in</html>",
            b"",
            b"[]",
            b"{}",
            b"\xff\xfe",
            b"[" * 100_000,
            _listing(_FILE)[:-20],
            _listing({**_FILE, "length": -1}),
            _listing({**_FILE, "length": "10"}),
            _listing({**_FILE, "length": True}),
            _listing({**_FILE, "pathSuffix": "../a"}),
            _listing({**_FILE, "pathSuffix": None}),
            _listing({**_FILE, "type": 1}),
            _listing({**_FILE, "modificationTime": 10**30}),
            _listing({**_FILE, "modificationTime": None}),
            _listing({"pathSuffix": "a"}),
            _listing(remaining=1),
            _listing(_FILE, remaining="many"),
            _listing(_FILE, remaining=1),
        ],
    )
    def test_a_broken_listing_is_none(self, body: bytes) -> None:
        """Neither an empty folder nor the last page; the last case is one page over and over."""
        with stalling_server(_always(body)) as server:
            for listed in (_location(server).list_folder, _location(server).list_tree):
                with pytest.raises(StorageError):
                    listed()

    @pytest.mark.parametrize("body", [b"<html></html>", b"{}", b'{"FileStatus": {}}'])
    def test_a_broken_file_status_is_none(self, body: bytes) -> None:
        """It is asked for again, and then an error."""
        with (
            stalling_server(_always(body)) as server,
            pytest.raises(StorageError, match="after 2 attempts"),
        ):
            _location(server).find("a")

    def test_a_page_of_a_proxy_is_not_the_bytes_of_a_file(self) -> None:
        """Its status is that of success, but its type is another."""
        with stalling_server(_always(b"<html>Sign in</html>", content_type="text/html")) as server:
            location = _location(server)
            with pytest.raises(StorageError, match="application/octet-stream"):
                location.read_object("a", max_bytes=100)
            with pytest.raises(StorageError, match="application/octet-stream"):
                location.read_range("a", 0, 10)

    def test_bytes_of_unknown_number_are_refused(self) -> None:
        """Nobody could tell whether all have come."""

        def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            request.send_response(200)
            request.send_header("Content-Type", _BYTES)
            request.send_header("Connection", "close")
            request.end_headers()
            request.wfile.write(_DATA)

        with (
            stalling_server(answer) as server,
            pytest.raises(StorageError, match="how long it is"),
        ):
            _location(server).read_object("a", max_bytes=10)

    def test_a_body_that_is_no_http_is_told(self) -> None:
        """Its chunks have impossible lengths."""

        def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            request.send_response(200)
            request.send_header("Content-Type", _BYTES)
            request.send_header("Transfer-Encoding", "chunked")
            request.send_header("Connection", "close")
            request.end_headers()
            request.wfile.write(b"not a length\r\n")

        with stalling_server(answer) as server:
            with pytest.raises(StorageError, match="after 2 attempts"):
                _location(server).read_range("a", 0, 10)
            with pytest.raises(StorageError, match="after 2 attempts"):
                _location(server).list_folder()

    def test_more_bytes_than_a_range_has_are_refused(self) -> None:
        """A server that ignores offset and length would send each file again and again."""
        with (
            stalling_server(_always(bytes(1000), content_type=_BYTES)) as server,
            pytest.raises(StorageError, match="did not answer with the requested bytes"),
        ):
            _location(server).read_range("a", 3, 9)

    def test_an_answer_too_long_is_not_received(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long it is."""
        monkeypatch.setattr(webhdfs_object_store, "_MAX_JSON_BYTES", 100)
        with (
            stalling_server(_always(_listing(_FILE) + b" " * 100)) as server,
            pytest.raises(StorageError, match="longer than 100 bytes"),
        ):
            _location(server).list_objects()

    @pytest.mark.parametrize(
        ("status", "name", "message", "error"),
        [
            (403, "IOException", "Offset=10 out of the range [0, 10); OPEN", TruncatedObjectError),
            (404, "FileNotFoundException", "File does not exist: /root/a", MissingObjectError),
            (403, "AccessControlException", "Permission denied: user=me", StorageError),
            (400, "IllegalArgumentException", "Invalid value", StorageError),
        ],
    )
    def test_an_error_is_told_once(
        self, status: int, name: str, message: str, error: type[Exception]
    ) -> None:
        """As the server words it, if it says that another request would not help."""

        def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            if _query(request)["op"] == "OPEN":
                answer_with(request, _remote_exception(name, message), status)
            else:
                answer_with(
                    request, json.dumps({"FileStatus": {**_FILE, "pathSuffix": ""}}).encode()
                )

        with stalling_server(answer) as server:
            with pytest.raises(error) as raised:
                _location(server).read_range("a", 10, 20)
            assert server.requests == (2 if error is TruncatedObjectError else 1)
        if error is StorageError:
            assert message in str(raised.value)

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (_remote_exception("StandbyException", "Operation category READ"), 403),
            (_remote_exception("RetriableException", "NameNode still not started"), 403),
            (b"<html>Bad gateway</html>", 502),
        ],
    )
    def test_a_name_node_that_is_not_ready_is_asked_again(self, body: bytes, status: int) -> None:
        """While another one takes over, or a gateway starts."""

        def answer(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
            answer_with(request, *((body, status) if server.requests == 1 else (_listing(_FILE),)))

        with stalling_server(answer) as server:
            assert len(_location(server).list_objects()) == 1

    def test_what_came_of_a_cut_range_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A whole object that was cut is asked for again."""
        monkeypatch.setattr(webhdfs_object_store, "_CHUNK_BYTES", 2)

        def answer(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
            request.send_response(200)
            request.send_header("Content-Type", _BYTES)
            request.send_header("Content-Length", "10")
            request.send_header("Connection", "close")
            request.end_headers()
            request.wfile.write(_DATA[: 4 if server.requests < 3 else 10])

        with stalling_server(answer) as server:
            location = _location(server)
            assert location.read_range("a", 0, 10).data == b"0123"
            assert location.read_object("a", max_bytes=10).data == _DATA
            assert server.requests == 3

    @pytest.mark.parametrize("answer", [never, stop_in_the_body, trickle])
    def test_a_silent_server_is_given_up(self, answer: Answer) -> None:
        """At the deadline, whatever is asked."""
        with stalling_server(answer) as server:
            location = _location(server, request_deadline_s=0.05)
            for call in (
                location.list_folder,
                location.list_tree,
                lambda: location.find("a"),
                lambda: location.write_object("a", b"1", user_metadata={}),
                lambda: location.delete_folder("a"),
            ):
                with pytest.raises(StorageError):
                    call()


class TestWrites:
    """No object is lost, and none is believed to be written that is not."""

    def test_a_rename_that_fails_is_told(self) -> None:
        """HttpFS answers that a name is taken, instead of replacing the object."""
        operations: list[tuple[str, str]] = []

        def answer(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
            operation = _query(request)["op"]
            operations.append((request.command, operation))
            if operation == "CREATE" and "data" not in _query(request):
                _redirect(request, f"{server.endpoint_url}{request.path}&data=true")
            elif operation == "OPEN":
                answer_with(request, b"other", 200, _BYTES)
            else:
                flag = {"boolean": operation == "DELETE"}
                answer_with(request, json.dumps(flag).encode(), 200, "application/json")

        with stalling_server(answer) as server:
            assert not _location(server).write_new_object("a", b"mine")
            with pytest.raises(StorageError, match="File exists"):
                _location(server).write_object("a", b"mine", user_metadata={})
        written = [("PUT", "CREATE"), ("PUT", "CREATE"), ("PUT", "RENAME"), ("DELETE", "DELETE")]
        assert operations == [*written, ("GET", "OPEN"), *written]

    @pytest.mark.parametrize("body", [b"", b"<html></html>", b"{}"])
    def test_a_server_that_takes_no_bytes_is_told(self, body: bytes) -> None:
        """Success of the request to the NameNode alone writes nothing."""
        with stalling_server(_always(body)) as server:
            with pytest.raises(StorageError):
                _location(server).write_object("a", b"1", user_metadata={})
            with pytest.raises(StorageError):
                _location(server).delete_objects(["a"])


class TestSecrets:
    """Tokens and passwords are in URLs and headers, never in errors."""

    def test_no_error_has_a_token(self) -> None:
        """Neither that of the options nor that which a NameNode issues for a DataNode."""

        def redirect(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            _redirect(request, "http://127.0.0.1:1/webhdfs/v1/a?op=OPEN&delegation=of-the-node")

        def close(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            request.connection.close()

        def bad_location(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
            _redirect(request, "other://host:x/?delegation=of-the-node")

        for answer in (redirect, close, bad_location, never):
            with stalling_server(answer) as server:
                options: dict[str, Any] = {"token": "a-secret-token", "request_deadline_s": 0.2}
                with pytest.raises(StorageError) as raised:
                    _location(server, **options).read_object("a", max_bytes=9)
            for secret in ("a-secret-token", "of-the-node", "delegation"):
                assert secret not in "".join(traceback.format_exception(raised.value))

    def test_no_location_shows_a_password(self) -> None:
        """In the URL or in the options."""
        location = Location("webhdfs://me:pass-word@host:1/a", {"password": "pass-word"})

        assert "pass-word" not in f"{location} {location!r}"


@pytest.mark.parametrize("url", ["webhdfs:///a", "webhdfs://", "webhdfs://h:99999/a"])
def test_a_url_without_a_server_is_refused(url: str) -> None:
    """Before any request."""
    with pytest.raises(OptionError, match="names no host, or an impossible port"):
        Location(url)


@pytest.mark.parametrize("scheme", ["webhdfs", "hdfs", "viewfs"])
def test_a_url_with_a_query_is_refused(scheme: str) -> None:
    """The rest of the path would be lost."""
    with pytest.raises(OptionError, match="would cut the URL"):
        Location(f"{scheme}://host:1/a?b")
