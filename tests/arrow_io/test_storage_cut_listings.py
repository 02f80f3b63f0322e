"""What S3, or a proxy in its place, answers by halves or not at all is told as that, and soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from arrow_io.errors import StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from tests.support.stalling_server import (
    StallingServer,
    answer_with,
    stalling_server,
    without_pauses,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler


_HEAD: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE: Final = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_KEYS: Final = [
    f"<Contents><Key>folder/{name}</Key><Size>1</Size><ETag>&quot;e&quot;</ETag></Contents>"
    for name in "ab"
]
_NEXT: Final = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>"

_WRITTEN: Final = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
_CLIENTS: Final = ("auto", "fsspec", "obstore")


def _page(*parts: str, root: str = "ListBucketResult") -> bytes:
    return f"{_HEAD}<{root} {_NAMESPACE}>{''.join(parts)}</{root}>".encode()


_PAGE: Final = _page(*_KEYS)
_BROKEN: Final = {
    "empty": (b"", "is cut"),
    "in the declaration": (_PAGE[:10], "is cut"),
    "in the first tag": (_PAGE[: len(_HEAD) + 5], "is cut"),
    "in a tag": (_PAGE[: _PAGE.index(b"<Size>") + 3], "is cut"),
    "in an entity": (_PAGE[: _PAGE.index(b"&quot;") + 3], "is cut"),
    "in a key": (_PAGE[: _PAGE.index(b"folder/a") + 4], "is cut"),
    "between two keys": (_PAGE[: _PAGE.index(b"</Contents>") + 11], "is cut"),
    "before the last tag": (_PAGE.removesuffix(b"</ListBucketResult>"), "is cut"),
    "in the last byte": (_PAGE[:-1], "is cut"),
    "HTML": (b"<!DOCTYPE html><html><p>Sign in<br></html>", "is not an XML listing"),
    "XHTML": (b"<html><body>Sign in</body></html>", "is not an XML listing"),
    "JSON": (b'{"keys": []}', "is not an XML listing"),
    "broken within": (_PAGE.replace(b"</Key>", b"</Kay>", 1), "is not an XML listing"),
    "another answer": (_page("", root="ListAllMyBucketsResult"), "is not an XML listing"),
}
_LATER: Final = {"empty", "before the last tag", "HTML"}
"""Those that come as the second page, too, by default."""


def _serving(broken: bytes, page: int) -> Callable[[BaseHTTPRequestHandler, StallingServer], None]:
    """Answers a listing whose page of this number, from 1, is broken."""

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        is_second = "continuation-token" in parse_qs(urlsplit(request.path).query)
        first = broken if page == 1 else _page(*_KEYS, _NEXT)
        answer_with(request, broken if is_second else first)

    return answer


@pytest.mark.parametrize("client", _CLIENTS)
@pytest.mark.parametrize(
    ("case", "page"),
    [
        *((case, 1) for case in _BROKEN),
        *(
            pytest.param(case, 2, marks=() if case in _LATER else pytest.mark.exhaustive)
            for case in _BROKEN
        ),
    ],
)
def test_a_listing_answer_that_is_none_is_told_as_that(case: str, page: int, client: str) -> None:
    """Wherever it is cut, each attempt is one request, and the error says where and how often."""
    broken, told = _BROKEN[case]
    pauses_s: list[float] = []
    with stalling_server(_serving(broken, page)) as server:
        options = server.storage_options | {"request_attempts": 3, "client": client}
        location = Location("s3://bucket/folder", options, RetryPolicy(sleep=pauses_s.append))

        for listed in (location.list_folder, location.list_tree):
            server.requests = 0
            with pytest.raises(StorageError, match=told) as raised:
                listed()
            assert server.requests == 3 + (page - 1)
            assert "s3://bucket/folder" in str(raised.value)
            assert "after 3 attempts" in str(raised.value)
            assert "request_attempts" in str(raised.value)
    assert len(pauses_s) == 4


@pytest.mark.parametrize("case", ["empty", "in the declaration", "XHTML"])
def test_uploads_that_are_listed_in_no_whole_page_are_told_too(case: str) -> None:
    """As those of objects."""
    broken, told = _BROKEN[case]
    with stalling_server(_serving(broken, 1)) as server:
        location = Location("s3://bucket/folder", server.storage_options | {"request_attempts": 1})

        with pytest.raises(StorageError, match=told):
            location.unfinished_uploads()
        assert server.requests == 1


@pytest.mark.parametrize("client", _CLIENTS)
def test_a_listing_that_is_whole_at_the_next_attempt_is_read(client: str) -> None:
    """What was cut once is asked for again, and nothing of it is left over."""
    answers = [_PAGE[:-30], _page(*_KEYS, _NEXT), b"", _page(_KEYS[1].replace("/b", "/c"))]

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        answer_with(request, answers.pop(0))

    with stalling_server(answer) as server:
        retry = RetryPolicy(sleep=lambda _seconds: None)
        options = server.storage_options | {"client": client}
        location = Location("s3://bucket/folder", options, retry)

        assert [info.name for info in location.list_objects()] == ["a", "b", "c"]


@pytest.mark.parametrize("client", _CLIENTS)
def test_an_error_in_place_of_a_listing_is_told_in_its_own_words(client: str) -> None:
    """S3 may send one with status 200, if it was late to fail."""
    error = b"<Error><Code>AccessDenied</Code><Message>not for you</Message></Error>"
    with stalling_server(_serving(error, 1)) as server:
        options = server.storage_options | {"request_attempts": 1, "client": client}
        location = Location("s3://bucket/folder", options)

        with pytest.raises(StorageError, match="not for you"):
            location.list_objects()


@pytest.mark.parametrize("bound", ["request_attempts", "request_deadline_s"])
def test_a_storm_of_errors_is_told_with_all_requests(bound: str) -> None:
    """Those too that botocore sent again, with the last status and the option that ended it."""
    now_s = 0.0

    def fail_502(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        nonlocal now_s
        now_s += 100 if bound == "request_deadline_s" else 0
        answer_with(request, b"<Error><Code>BadGateway</Code></Error>", status=502)

    with stalling_server(fail_502) as server:
        retry = RetryPolicy(sleep=lambda _seconds: None, clock=lambda: now_s)
        options = server.storage_options | {"request_attempts": 2}
        location = Location("s3://bucket/folder", options, retry)

        with pytest.raises(StorageError) as raised:
            location.read_object("name", max_bytes=1)

    attempts = "2 attempts" if bound == "request_attempts" else "1 attempt"
    sent = f"after {attempts} with {server.requests} requests, the last answer of status 502"
    assert server.requests > 2
    assert sent in str(raised.value)
    assert f"the storage option {bound}" in str(raised.value)


_BUSY: Final = b"<Error><Code>SlowDown</Code><Message>fewer, please</Message></Error>"


@pytest.mark.parametrize("place", ["s3-fsspec", "s3-obstore", "gs-obstore"])
def test_a_listing_goes_on_from_the_page_that_was_refused(place: str) -> None:
    """A busy store is not asked for the pages before it again."""
    scheme, _, client = place.partition("-")
    first_pages, refusals = 0, 12
    keys = [each.replace("<ETag>", f"{_WRITTEN}<ETag>") for each in _KEYS]

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        nonlocal first_pages, refusals
        query = parse_qs(urlsplit(request.path).query)
        if urlsplit(request.path).path.endswith("/o"):
            # gcsfs confirms what obstore listed.
            answer_with(request, b'{"kind": "storage#objects"}')
        elif "continuation-token" not in query:
            first_pages += 1
            answer_with(request, _page(*keys, _NEXT))
        elif refusals:
            refusals -= 1
            answer_with(request, _BUSY, status=503)
        else:
            answer_with(request, _page(keys[1].replace("/b", "/c")))

    with stalling_server(answer) as server:
        options = server.storage_options
        if scheme == "gs":
            options = {"endpoint_url": server.endpoint_url, "token": "anon"}
        retry = RetryPolicy(first_delay_s=0.001, max_delay_s=0.002)
        location = Location(f"{scheme}://bucket/folder", options | {"client": client}, retry)
        listed = [info.name for info in location.list_objects()]

    assert listed == ["a", "b", "c"]
    assert first_pages == 1
    if scheme == "s3":
        assert location.refusals.count > 0


@pytest.mark.parametrize("client", _CLIENTS)
def test_that_a_store_refused_is_known_whoever_sends_again(client: str) -> None:
    """Botocore and s3fs send again by themselves, and tell nobody."""
    statuses = [503, 200]

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        status = statuses.pop(0)
        answer_with(request, _BUSY if status != 200 else b"data", status=status)

    with stalling_server(answer) as server:
        options = server.storage_options | {"client": client}
        location = Location("s3://bucket", options, RetryPolicy(sleep=lambda _seconds: None))

        assert location.read_object("name", max_bytes=4).data == b"data"
    assert location.refusals.count == 1


# Pages of a proxy


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


def _serving_page(page: bytes) -> Callable[[BaseHTTPRequestHandler, StallingServer], None]:
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


@pytest.mark.parametrize("client", ["auto", "fsspec", "obstore"])
@pytest.mark.parametrize("page", _PAGES)
@pytest.mark.parametrize("what", _READS)
def test_a_page_of_a_proxy_is_not_read(what: str, page: str, client: str) -> None:
    """It is not the object, and does not say that there is none or that it is damaged."""
    with stalling_server(_serving_page(_PAGES[page])) as server, pytest.raises(StorageError):
        _READS[what](_location(server, client))


@pytest.mark.parametrize("page", _PAGES)
@pytest.mark.parametrize("what", _WRITES)
def test_nothing_is_said_to_be_written_by_a_page_of_a_proxy(what: str, page: str) -> None:
    """Nor to be deleted."""
    with stalling_server(_serving_page(_PAGES[page])) as server:
        with pytest.raises(StorageError):
            _WRITES[what](_location(server, "fsspec"))
        assert server.requests > 1
