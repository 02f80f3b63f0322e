"""Records of Oxia are read as nodes, from any number of shards, within limits.

The server is a stand-in that speaks Oxia's protocol (`tests/support/oxia_server.py`).
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest

from arrow_io.errors import CorruptMetadataError, OptionError, StorageError
from connector.catalog.metadata import oxia_store
from connector.catalog.metadata.oxia_store import OxiaOptions, open_store
from connector.catalog.metadata.source import open_metadata_source
from connector.catalog.metadata.store_source import StoreSource
from tests.support.admin_server import Certificates
from tests.support.memory_metadata_store import MemoryMetadataStore, golden_nodes
from tests.support.oxia_server import NEW_SERVICE, by_levels, by_parts, running_oxia_server
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

TOKEN: Final = "secret-token"  # noqa: S105 - invented
NODES: Final = {
    "/a": b"1",
    "/a/b": b"",
    "/a/b/c": b"3",
    "/a/b0": b"4",
    "/a/ü%2F": b"5",
    "/a/b/d": b"6",
    "/a/b/e": b"7",
    "/a/b/f": b"8",
    "/a!": b"9",
    "/ab/c": b"11",
    "/a/b/c/d/e": b"12",
    "/b/a": b"10",
}


@pytest.mark.parametrize("shards", [1, 3, 7])
@pytest.mark.parametrize(
    "version",
    [
        {"sort_key": by_levels, "key_sorting": 2},
        {"sort_key": by_levels, "key_sorting": 2, "service": NEW_SERVICE},
        {"sort_key": by_parts, "key_sorting": 0},
    ],
    ids=["new", "newest", "old"],
)
def test_nodes_are_those_that_were_stored(shards: int, version: dict[str, Any]) -> None:
    """Values and children must equal those of the dict, whichever shard has a record."""
    expected = MemoryMetadataStore(NODES)
    with running_oxia_server(NODES, shards=shards, **version) as server:
        store = open_store(server.url, {})
        for path in (*NODES, "/none", "/a/b/c/none", "/b"):
            value = expected.get(path)
            assert store.get(path) == (b"" if path == "/b" else value), path
            assert store.children(path) == expected.children(path), path


def test_sources_on_oxia_and_in_memory_are_equal() -> None:
    """All topics of a golden set must have equal metadata, from either store."""
    nodes = golden_nodes("pulsar-4.0.7-small")
    expected = StoreSource(MemoryMetadataStore(nodes))
    with running_oxia_server(nodes, shards=2) as server:
        source = open_metadata_source(server.url)
        assert source.topics() == expected.topics()
        for topic in expected.topics():
            assert source.topic_metadata(topic) == expected.topic_metadata(topic)


def test_namespace_is_default_if_the_url_has_none() -> None:
    """Both URLs must lead to the same records."""
    with running_oxia_server(NODES) as server:
        assert open_store(f"oxia://{server.address}", {}).get("/a") == b"1"
        assert open_store(f"oxia://{server.address}/default", {}).get("/a") == b"1"
        with pytest.raises(StorageError, match="namespace not found"):
            open_store(f"oxia://{server.address}/other", {}).get("/a")


def test_natural_sorting() -> None:
    """A namespace that sorts keys by bytes has no children as ranges, so no broker uses it."""
    with running_oxia_server(NODES, key_sorting=1) as server:
        store = open_store(server.url, {})
        for request in (store.get, store.children):
            with pytest.raises(StorageError, match="are sorted by bytes"):
                request("/a")


def test_no_server() -> None:
    """A refused connection is an error that says so."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    store = open_store(f"oxia://{address[0]}:{address[1]}", {})
    with pytest.raises(StorageError, match=r"request for /a failed: .*unavailable"):
        store.get("/a")


def test_silent_server_meets_the_time_limit() -> None:
    """A server that accepts and never answers must not be awaited longer than `timeout_s`."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        store = open_store(f"oxia://{host}:{port}", {"timeout_s": 0.2})
        start = time.monotonic()
        with pytest.raises(StorageError):
            store.get("/a")
        assert time.monotonic() - start < PATIENCE_S


def test_slow_answer_meets_the_time_limit() -> None:
    """A server that answers one call and not the next must not be awaited either."""
    is_over = threading.Event()

    def hang(call: str, _: object) -> None:
        if call == "Read":
            is_over.wait(PATIENCE_S)

    with running_oxia_server(NODES, before_answer=hang) as server:
        store = open_store(server.url, {"timeout_s": 0.3})
        with pytest.raises(StorageError, match=r"did not answer /a within 0\.3 seconds"):
            store.get("/a")
        is_over.set()


def test_another_leader_is_asked_again() -> None:
    """After a failure the leaders of shards are requested anew."""
    failures = [grpc.StatusCode.UNKNOWN]

    def fail_once(call: str, context: Any) -> None:  # noqa: ANN401 - gRPC has no types
        if call == "Read" and failures:
            context.abort(failures.pop(), "oxia: node is not leader for shard 0")

    with running_oxia_server(NODES, before_answer=fail_once) as server:
        assert open_store(server.url, {}).get("/a") == b"1"
        assert server.calls == ["GetShardAssignments", "Read"] * 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"unlisted_shards": frozenset({1})}, "does not list all shards"),
        ({"unlisted_shards": frozenset({2})}, "does not list all shards"),
        ({"leader": ""}, "no server as its leader"),
    ],
)
def test_missing_shard_is_no_missing_record(settings: dict[str, Any], text: str) -> None:
    """A record may be in a shard that cannot be read, so it must not be reported as absent."""
    with (
        running_oxia_server(NODES, shards=3, **settings) as server,
        pytest.raises(StorageError, match=text),
    ):
        open_store(server.url, {}).get("/none")


def test_shards_that_disagree_are_an_error() -> None:
    """Of two values, none is chosen."""
    with running_oxia_server({}, shards=2) as server:
        server.shards[0]["/a"], server.shards[1]["/a"] = b"1", b"2"
        with pytest.raises(CorruptMetadataError, match="two shards have different values"):
            open_store(server.url, {}).get("/a")


def test_long_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value or a list of names may be as long as allowed, and no longer."""
    monkeypatch.setattr(oxia_store, "MAX_METADATA_BYTES", 100)
    nodes = {
        "/a": bytes(100),
        "/b": bytes(101),
        **{f"/c/{'n' * 20}{each}": b"" for each in "abcde"},
    }
    with running_oxia_server(nodes) as server:
        store = open_store(server.url, {})
        assert store.get("/a") == bytes(100)
        with pytest.raises(CorruptMetadataError, match="longer than the 100 bytes allowed"):
            store.get("/b")
        with pytest.raises(CorruptMetadataError, match="longer than the 100 bytes allowed"):
            store.children("/c")
        monkeypatch.setattr(oxia_store, "MAX_CHILDREN", 4)
        with pytest.raises(CorruptMetadataError, match="more than the 4 children allowed"):
            store.children("/c")


def test_endless_answers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a long message nor a long stream of messages is received whole."""
    monkeypatch.setattr(oxia_store, "_MAX_ANSWER_BYTES", 1000)
    nodes = {"/a": bytes(2000), **{f"/b/{each:0100}": b"" for each in range(30)}}
    with running_oxia_server(nodes) as server:
        store = open_store(server.url, {})
        with pytest.raises(CorruptMetadataError, match="too long"):
            store.get("/a")
        with pytest.raises(CorruptMetadataError, match="longer than the 1000 bytes allowed"):
            store.children("/b")


@pytest.mark.parametrize("call", ["GetShardAssignments", "Read", "List"])
@pytest.mark.parametrize(
    ("answer", "text"), [(b"\xff", "not a message of Oxia"), (b"", "no namespace|one record")]
)
def test_malformed_answer(call: str, answer: bytes, text: str) -> None:
    """Bytes that Oxia does not send are a typed error; no records are no children."""
    with running_oxia_server(NODES, replies={call: answer}) as server:
        store = open_store(server.url, {})
        if (call, answer) == ("List", b""):
            assert store.children("/a") == []
            return
        with pytest.raises((CorruptMetadataError, StorageError), match=text):
            store.children("/a") if call == "List" else store.get("/a")


def test_token_and_certificates(tmp_path: Path) -> None:
    """A token goes to a server whose certificate is trusted; no error shows it."""
    certificates = Certificates.make(tmp_path)
    with running_oxia_server(NODES, token=TOKEN, certificates=certificates) as server:
        options = {"tls": "true", "ca_file": str(certificates.ca_file), "token": TOKEN}
        assert open_store(server.url, options).get("/a") == b"1"
        file = tmp_path / "token"
        file.write_text("other-token" * 100)
        without_token = {**options, "token": None}
        for wrong in ({"token": "other-token"}, {"token_file": str(file)}):
            refused = open_store(server.url, {**without_token, **wrong})
            with pytest.raises(StorageError, match="refuses /a") as caught:
                refused.get("/a")
            assert "other-token" not in str(caught.value)
        assert TOKEN not in repr(refused)
        with pytest.raises(StorageError):
            open_store(server.url, {"tls": True, "token": TOKEN}).get("/a")


@pytest.mark.parametrize("padding", [0, 150], ids=["whole", "at the end of what is shown"])
def test_answers_that_repeat_the_token(tmp_path: Path, padding: int) -> None:
    """What a server says of a refusal shows nothing of a token, wherever that was read from."""
    certificates = Certificates.make(tmp_path)
    token = "abcdefghij" * 10
    file = tmp_path / "token"
    file.write_text(token)

    def refuse(_: str, context: grpc.ServicerContext) -> None:
        metadata = dict(context.invocation_metadata())
        text = f"{'-' * padding}{metadata['authorization']}"
        context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

    with running_oxia_server(NODES, before_answer=refuse, certificates=certificates) as server:
        options = {"tls": "true", "ca_file": str(certificates.ca_file), "token_file": str(file)}
        with pytest.raises(StorageError, match="refuses /a") as caught:
            open_store(server.url, options).get("/a")
    assert token[:10] not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("oxia://", {}, "does not name a server of Oxia"),
        ("oxia://host", {}, "does not name a server of Oxia"),
        ("oxia://a:1,b:2", {}, "does not name a server of Oxia"),
        ("oxia://host:6648/a?b=c", {}, "does not name a server of Oxia"),
        (f"oxia://me:{TOKEN}@host:6648", {}, "credentials in the URL"),
        ("oxia://host:6648", {"token": TOKEN}, "tls is not true"),
        ("oxia://host:6648", {"ca_file": "x"}, "tls is not true"),
        ("oxia://host:6648", {"verify_hostname": False}, "cannot be false"),
        ("oxia://host:6648", {"tls": True, "ca_file": "none.pem"}, "none.pem cannot be used"),
        ("oxia://host:6648", {"username": "me"}, "unknown metadata option 'username'"),
    ],
)
def test_unusable_options(url: str, options: dict[str, object], text: str) -> None:
    """What cannot be used is an error before anything is sent, without the secret."""
    with pytest.raises(OptionError, match=text) as caught:
        open_store(url, options)
    assert TOKEN not in str(caught.value)


def test_options_do_not_show_the_token() -> None:
    """The repr of options is free of secrets."""
    assert TOKEN not in repr(OxiaOptions(tls=True, token=TOKEN))
