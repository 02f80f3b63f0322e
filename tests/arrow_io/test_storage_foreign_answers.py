"""What a proxy answers in the place of the store is no object, and nothing that was written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from arrow_io.errors import StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from tests.support.stalling_server import StallingServer, stalling_server, without_pauses

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler


def _upload(location: Location) -> None:
    with location.upload("name", user_metadata={}) as upload:
        upload.write_part(b"data")


_READS: Final[dict[str, Callable[[Location], object]]] = {
    "object": lambda location: location.read_object("name", max_bytes=1 << 20),
    "range": lambda location: location.read_range("name", 0, 10),
    "user metadata": lambda location: location.user_metadata("name"),
    "size": lambda location: location.find("name"),
    "listing": lambda location: location.list_objects(),
}
_WRITES: Final[dict[str, Callable[[Location], object]]] = {
    "object": lambda location: location.write_object("name", b"data", user_metadata={}),
    "new object": lambda location: location.write_new_object("name", b"data"),
    "deletion": lambda location: location.delete_objects(["name"]),
    "upload": _upload,
    "abortion": lambda location: location.abort_upload("name", "id"),
}
_PAGES: Final = {
    "HTML": b"<html><body>Please log in</body></html>",
    "error": b"<Error><Code>InternalError</Code></Error>",
}


def _serving(page: bytes) -> Callable[[BaseHTTPRequestHandler, StallingServer], None]:
    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/html")
        request.send_header("Content-Length", str(len(page)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(page)

    return answer


def _location(server: StallingServer, client: str) -> Location:
    options = server.storage_options | {"client": client, "request_attempts": 2}
    retry = RetryPolicy(sleep=lambda _seconds: None)
    return Location("s3://bucket/folder", options, retry)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


@pytest.mark.parametrize("client", ["fsspec", "obstore"])
@pytest.mark.parametrize("page", _PAGES)
@pytest.mark.parametrize("what", _READS)
def test_a_page_of_a_proxy_is_not_read(what: str, page: str, client: str) -> None:
    """It is not the object, and does not say that there is none or that it is damaged."""
    with stalling_server(_serving(_PAGES[page])) as server, pytest.raises(StorageError):
        _READS[what](_location(server, client))


@pytest.mark.parametrize("page", _PAGES)
@pytest.mark.parametrize("what", _WRITES)
def test_nothing_is_said_to_be_written_by_a_page_of_a_proxy(what: str, page: str) -> None:
    """Nor to be deleted."""
    with stalling_server(_serving(_PAGES[page])) as server:
        with pytest.raises(StorageError):
            _WRITES[what](_location(server, "fsspec"))
        assert server.requests > 1
