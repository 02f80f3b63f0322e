"""A listing of Google Cloud Storage or Azure whose answer is broken is an error, by either client.

Each client asks in its own words: gcsfs for JSON, obstore and adlfs for XML.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from arrow_io.errors import MissingObjectError, OptionError, StorageError
from arrow_io.storage import connection
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.location import Location
from tests.support.stalling_server import StallingServer, answer_with, never, stalling_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler

    Answer = Callable[[BaseHTTPRequestHandler, StallingServer], None]

_TIME: Final = "2026-01-01T00:00:00.000Z"
_HTTP_TIME: Final = "Thu, 01 Jan 2026 00:00:00 GMT"
_CLIENTS: Final = ("auto", "fsspec", "obstore")
_SCHEMES: Final = ("gs", "az")
_XML: Final = b'<?xml version="1.0" encoding="utf-8"?>'
_BROKEN: Final = {
    "HTML": b"<!DOCTYPE html><html><p>Sign in<br></html>",
    "XHTML": b"<html><body>Please log in<br/></body></html>",
    "XML error": _XML + b"<Error><Code>ServerBusy</Code><Message>later</Message></Error>",
    "JSON error": b'{"error": {"code": 503, "message": "later"}}',
    "JSON object": b"{}",
    "JSON list": b"[]",
    "JSON of other items": b'{"kind": "storage#objects", "items": [{"id": "a"}]}',
    "empty": b"",
    "zeros": bytes(50),
    "cut XML": _XML + b"<EnumerationResults><Blobs><Blob><Name>folder/a</Na",
    "cut JSON": b'{"kind": "storage#objects", "items": [{"na',
}


def _gcs_json(names: list[str], token: str = "") -> bytes:
    items = [
        {"name": f"folder/{name}", "size": "1", "etag": f"j{name}", "updated": _TIME}
        for name in names
    ]
    page = {"kind": "storage#objects"} | ({"items": items} if items else {})
    return json.dumps(page | ({"nextPageToken": token} if token else {})).encode()


def _gcs_xml(names: list[str], token: str = "") -> bytes:
    keys = "".join(
        f"<Contents><Key>folder/{name}</Key><Size>1</Size><ETag>x{name}</ETag>"
        f"<LastModified>{_TIME}</LastModified></Contents>"
        for name in names
    )
    more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return f"<ListBucketResult>{keys}{more}</ListBucketResult>".encode()


def _azure_xml(names: list[str], token: str = "") -> bytes:
    blobs = "".join(
        f"<Blob><Name>folder/{name}</Name><Properties><Last-Modified>{_HTTP_TIME}</Last-Modified>"
        f"<Etag>{name}</Etag><Content-Length>1</Content-Length>"
        "<Content-Type>text/plain</Content-Type><BlobType>BlockBlob</BlobType></Properties></Blob>"
        for name in names
    )
    return (
        _XML
        + (
            '<EnumerationResults ServiceEndpoint="http://127.0.0.1/" ContainerName="bucket">'
            f"<Prefix>folder/</Prefix><Delimiter>/</Delimiter><Blobs>{blobs}</Blobs>"
            f"<NextMarker>{token}</NextMarker></EnumerationResults>"
        ).encode()
    )


def _serving(names: list[str], broken: bytes | None = None, page: int = 1) -> Answer:
    """Answer listings of objects, of which a page has one; one page, from 1, may be broken."""

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        address = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        is_json = address.path.endswith("/o")
        if not (is_json or "prefix" in query or "list-type" in query or "comp" in query):
            # An object, of which there is none; or a container, which exists.
            answer_with(request, b"", 200 if "restype" in query else 404)
            return
        token = query.get("pageToken") or query.get("continuation-token") or query.get("marker")
        number = int(token or 0)
        if broken is not None and number + 1 == page and "startOffset" not in query:
            answer_with(request, broken, content_type="application/xml")
            return
        found = [each for each in names if f"folder/{each}" >= query.get("startOffset", "")]
        following = str(number + 1) if number + 1 < len(found) else ""
        make = _gcs_json if is_json else _azure_xml if "comp" in query else _gcs_xml
        answer_with(
            request, make(found[number : number + 1], following), content_type="application/xml"
        )

    return answer


def _location(
    server: StallingServer, scheme: str, client: str, url: str = "bucket/folder"
) -> Location:
    options: dict[str, object] = {"endpoint_url": server.endpoint_url, "token": "anon"}
    if scheme == "az":
        connection_string = (
            "DefaultEndpointsProtocol=http;AccountName=account;AccountKey=a2V5;"
            f"BlobEndpoint={server.endpoint_url}/account;"
        )
        options = {"connection_string": connection_string}
    elif client == "fsspec":
        options["project"] = "none"
    return Location(
        f"{scheme}://{url}",
        options | {"client": client, "request_attempts": 2},
        RetryPolicy(sleep=lambda _seconds: None),
    )


@pytest.mark.parametrize("client", _CLIENTS)
@pytest.mark.parametrize("scheme", _SCHEMES)
def test_whole_pages_are_read(scheme: str, client: str) -> None:
    """All of them, in their order; a folder without objects is missing, such a bucket empty."""
    with stalling_server(_serving(["a", "b", "c"])) as server:
        location = _location(server, scheme, client)
        assert [info.name for info in location.list_objects()] == ["a", "b", "c"]
        assert location.list_folders() == []
        assert location.list_tree() == location.list_objects()
        (tree, objects) = (
            _location(server, scheme, client, "bucket").list_tree("folder"),
            location.list_objects(),
        )
        assert [info.name for info in tree] == ["folder/a", "folder/b", "folder/c"]
        assert [info.version for info in tree] == [info.version for info in objects]
    with stalling_server(_serving([])) as server:
        with pytest.raises(MissingObjectError, match="no such folder or prefix"):
            _location(server, scheme, client).list_objects()
        assert _location(server, scheme, client).list_tree() == []
        assert _location(server, scheme, client, "bucket").list_objects() == []


@pytest.mark.parametrize("client", _CLIENTS)
@pytest.mark.parametrize("scheme", _SCHEMES)
@pytest.mark.parametrize("page", [1, 2])
@pytest.mark.parametrize("case", _BROKEN)
def test_a_broken_page_is_no_listing(case: str, page: int, scheme: str, client: str) -> None:
    """Neither an empty one nor the last one, in a folder or in a whole bucket."""
    with stalling_server(_serving(["a", "b", "c"], _BROKEN[case], page)) as server:
        for url in ("bucket/folder", "bucket"):
            location = _location(server, scheme, client, url)
            for listed in (location.list_folder, location.list_tree):
                with pytest.raises(StorageError, match="after 2 attempts"):
                    listed()


@pytest.mark.parametrize("case", _BROKEN)
def test_obstore_trusts_no_listing_that_gcsfs_cannot_confirm(case: str) -> None:
    """If each answer is broken, as one of a proxy that asks for a password."""

    def answer(request: BaseHTTPRequestHandler, _server: StallingServer) -> None:
        answer_with(request, _BROKEN[case])

    with stalling_server(answer) as server, pytest.raises(StorageError):
        _location(server, "gs", "obstore").list_objects()


def test_the_confirming_request_is_given_up_in_time() -> None:
    """As any other, if the server is silent."""

    def answer(request: BaseHTTPRequestHandler, server: StallingServer) -> None:
        if "list-type" in request.path:
            answer_with(request, _gcs_xml(["a"]))
        else:
            never(request, server)

    with stalling_server(answer) as server:
        options = {"endpoint_url": server.endpoint_url, "token": "anon", "client": "obstore"}
        location = Location("gs://bucket/folder", options | {"request_deadline_s": 0.05})
        with pytest.raises(StorageError, match="request_deadline_s"):
            location.list_objects()


def test_obstore_asks_for_gcsfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without it is told which extra to install, before any request."""
    monkeypatch.setattr(connection, "find_spec", lambda _name: None)

    with pytest.raises(OptionError, match=r"needs gcsfs for listings.*gcs"):
        Location("gs://bucket", {"client": "obstore", "token": "anon"}).list_objects()
