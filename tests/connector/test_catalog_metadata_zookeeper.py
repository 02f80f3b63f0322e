"""Nodes of a real ZooKeeper are read as they are, within limits, and failures are typed errors."""

from __future__ import annotations

import contextlib
import gc
import logging
import shlex
import socket
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from arrow_io.errors import CorruptMetadataError, OptionError, StorageError
from connector import open_catalog
from connector.catalog.metadata import zookeeper_store
from connector.catalog.metadata.folder import MetadataFolder
from connector.catalog.metadata.source import open_metadata_source
from connector.catalog.metadata.zookeeper_store import ZooKeeperOptions, open_store
from connector.inputs.topic_names import TopicName
from tests.support.admin_server import Certificates
from tests.support.command_line import run
from tests.support.golden import GOLDEN, golden_topics
from tests.support.memory_metadata_store import MemoryMetadataStore, golden_nodes
from tests.support.snippets import snippets_of
from tests.support.waiting import PATIENCE_S
from tests.support.zookeeper_server import SASL_USER, ZooKeeperServer, running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark

ROOT: Final = Path(__file__).parents[2]
SMALL: Final = "pulsar-4.0.7-small"
_PAGE_URL: Final = "zk://zk-0:2181,zk-1:2181"
PASSWORD: Final = "secret-password"  # noqa: S105 - invented
OWNER: Final = ("me", PASSWORD)
_CONNECTED: Final = struct.pack(">iiiqi16s?", 37, 0, 30_000, 1, 16, bytes(16), False)  # noqa: FBT003


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of the server and of a client."""
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[ZooKeeperServer]:
    """A server with the nodes of two golden sets, one of them below a chroot."""
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper"), certificates) as server:
        server.put(golden_nodes("pulsar-4.0.7"))
        server.put({f"/pulsar/{SMALL}{path}": v for path, v in golden_nodes(SMALL).items()})
        server.put({"/empty/nothing": b"", "/secured/node": b"1"})
        server.put({"/secured/own": b"2"}, owner=OWNER)
        yield server


@contextlib.contextmanager
def _scripted_server(*answers: bytes) -> Iterator[str]:
    """Run a server that sends one answer for each request, and then nothing; yield its URL."""
    is_over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            for answer in answers:
                connection.recv(1 << 16)
                connection.sendall(answer)
            is_over.wait(PATIENCE_S)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        yield f"zk://127.0.0.1:{server.getsockname()[1]}"
        is_over.set()
        server.shutdown(socket.SHUT_RDWR)


def _saved_values(set_name: str) -> dict[str, Path]:
    return {
        topic.name: topic.folder / "managed-ledger-info.bin"
        for topic in golden_topics()
        if topic.set_name == set_name
    }


def test_nodes_are_those_that_were_stored(zookeeper: ZooKeeperServer) -> None:
    """Values and children must equal those of the golden set, and other nodes are absent."""
    nodes = golden_nodes("pulsar-4.0.7")
    expected = MemoryMetadataStore(nodes)
    store = open_store(zookeeper.url, {})
    for path in (*nodes, "/managed-ledgers/none"):
        assert store.get(path) == expected.get(path)
    for path in ("/managed-ledgers", "/managed-ledgers/public/default/persistent", "/none"):
        assert store.children(path) == expected.children(path)
    assert store.get("/empty/nothing") == b""


@pytest.mark.parametrize(
    ("set_name", "chroot"), [("pulsar-4.0.7", ""), (SMALL, f"/pulsar/{SMALL}")]
)
def test_ledgers_equal_those_of_the_saved_values(
    zookeeper: ZooKeeperServer, set_name: str, chroot: str
) -> None:
    """The source must have the topics and ledgers that a folder has on the same bytes."""
    folder = MetadataFolder(_saved_values(set_name))
    source = open_metadata_source(f"{zookeeper.url}{chroot}/")
    assert source.is_live
    assert source.topics() == folder.topics()
    for topic in folder.topics():
        own, saved = source.topic_metadata(topic), folder.topic_metadata(topic)
        assert own == saved
        assert own is not None
        assert own.proven_to_ledger_id == own.last_ledger_id


def test_any_server_of_several_answers(zookeeper: ZooKeeperServer) -> None:
    """A server that is down is passed over."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    store = open_store(f"zk://127.0.0.1:{port},127.0.0.1:{zookeeper.port}/empty", {})
    assert store.get("/nothing") == b""


def test_current_value_is_read(zookeeper: ZooKeeperServer) -> None:
    """Each request is answered with what the store has then."""
    store = open_store(zookeeper.url, {})
    for value in (b"1", b"2"):
        zookeeper.put({"/empty/changing": value})
        assert store.get("/empty/changing") == value


def test_session_is_renewed(zookeeper: ZooKeeperServer) -> None:
    """A connection that the server drops between two requests is replaced."""
    store = open_store(zookeeper.url, {})
    for _ in range(3):
        assert store.get("/secured/node") == b"1"
        zookeeper.drop_connections()


def test_many_threads_share_a_session(zookeeper: ZooKeeperServer) -> None:
    """Requests at once get their own answers."""
    nodes = golden_nodes("pulsar-4.0.7")
    store = open_store(zookeeper.url, {})
    wrong: list[str] = []

    def read() -> None:
        wrong.extend(path for path, value in nodes.items() if store.get(path) != value)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_session_ends_with_its_store(zookeeper: ZooKeeperServer) -> None:
    """No thread is left over once nobody uses the store."""
    before = set(threading.enumerate())
    store = open_store(zookeeper.url, {})
    store.get("/secured/node")
    own_threads = set(threading.enumerate()) - before
    assert own_threads
    del store
    gc.collect()
    for thread in own_threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


class TestCredentials:
    """Users, passwords and certificates."""

    def test_acl_of_a_node(self, zookeeper: ZooKeeperServer) -> None:
        """Only its owner can read a node; no error shows the password."""
        options = {"username": "me", "password": PASSWORD}
        assert open_store(zookeeper.url, options).get("/secured/own") == b"2"
        for other in ({}, {"username": "you", "password": PASSWORD}):
            with pytest.raises(StorageError, match="refuses /secured/own: NoAuth") as caught:
                open_store(zookeeper.url, other).get("/secured/own")
            assert PASSWORD not in str(caught.value)

    def test_sasl(self, zookeeper: ZooKeeperServer) -> None:
        """A user with the right password is accepted, another one refused."""
        options = {**SASL_USER, "sasl": "true"}
        assert open_store(zookeeper.url, options).get("/secured/node") == b"1"
        refused = open_store(zookeeper.url, {**options, "password": PASSWORD})
        with pytest.raises(StorageError, match="refuses /secured/node: AuthFailed") as caught:
            refused.get("/secured/node")
        assert PASSWORD not in str(caught.value)

    def test_sasl_refused_before_the_request(
        self, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The reason is the same if the server has ended the session before a request is sent."""
        is_lost = threading.Event()
        note, wait = zookeeper_store._Handler.note_state, zookeeper_store._Session.wait

        def note_state(handler: zookeeper_store._Handler, state: str) -> None:
            note(handler, state)
            if state == "LOST":
                is_lost.set()

        def wait_for_the_end(session: zookeeper_store._Session, timeout_s: float) -> bool:
            assert is_lost.wait(PATIENCE_S)
            return wait(session, timeout_s)

        monkeypatch.setattr(zookeeper_store._Handler, "note_state", note_state)
        monkeypatch.setattr(zookeeper_store._Session, "wait", wait_for_the_end)
        refused = open_store(zookeeper.url, {**SASL_USER, "sasl": "true", "password": PASSWORD})

        with pytest.raises(StorageError, match="refuses /secured/node: AuthFailed"):
            refused.get("/secured/node")

    def test_tls(self, zookeeper: ZooKeeperServer, certificates: Certificates) -> None:
        """The server's certificate is verified, and the client's is sent."""
        url = f"zk://127.0.0.1:{zookeeper.tls_port}"
        trusting = {"tls": "true", "ca_file": str(certificates.ca_file)}
        client = {
            "cert_file": str(certificates.client_file),
            "key_file": str(certificates.client_key_file),
        }
        assert open_store(url, trusting | client).get("/secured/node") == b"1"
        for options, text in (
            (trusting, "alert"),
            ({"tls": True} | client, "certificate verify failed"),
            ({}, "the server closed the connection"),
        ):
            with pytest.raises(StorageError, match=f"cannot connect to {url}: .*{text}"):
                open_store(url, options).get("/secured/node")

    def test_nothing_shows_the_password(
        self, zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Neither a repr nor a log at the lowest level has it."""
        options = {"username": "me", "password": PASSWORD}
        with caplog.at_level(logging.NOTSET):
            store = open_store(zookeeper.url, options)
            store.get("/secured/own")
        assert PASSWORD not in caplog.text
        assert PASSWORD not in repr(store)
        assert PASSWORD not in repr(ZooKeeperOptions(username="me", password=PASSWORD))

    @pytest.mark.parametrize(
        ("url", "options", "text"),
        [
            ("zk://", {}, "does not name servers of ZooKeeper"),
            ("zk://a,,b", {}, "does not name servers of ZooKeeper"),
            ("zk://a:70000", {}, "does not name servers of ZooKeeper"),
            ("zk://a:1?b", {}, "does not name servers of ZooKeeper"),
            ("zk://a/b//c", {}, "is not that of a node"),
            ("zk://a/../c", {}, "is not that of a node"),
            (f"zk://me:{PASSWORD}@a", {}, "credentials in the URL"),
            ("zk://a", {"password": PASSWORD}, "need each other"),
            ("zk://a", {"sasl": True}, "sasl needs username and password"),
            ("zk://a", {"cert_file": "x"}, "tls is not true"),
            ("zk://a", {"tls": True, "ca_file": "none.pem"}, "none.pem cannot be used"),
            ("zk://a", {"token": PASSWORD}, "unknown metadata option 'token'"),
            ("zk://a", {"timeout_s": 0}, "timeout_s must be"),
        ],
    )
    def test_unusable_options(self, url: str, options: dict[str, Any], text: str) -> None:
        """What cannot be used is an error before anything is sent, without the secret."""
        with pytest.raises(OptionError, match=text) as caught:
            open_store(url, options)
        assert PASSWORD not in str(caught.value)


class TestFailures:
    """Servers that are missing, silent, too talkative or of something else."""

    def test_no_server(self) -> None:
        """A refused connection is an error at once."""
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        with pytest.raises(StorageError, match=r"cannot connect to zk://.*Connection refused"):
            open_store(f"zk://127.0.0.1:{port}", {}).get("/a")

    def test_unknown_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A host name that does not exist is named as the reason."""

        def look_up(*_: object) -> None:
            raise socket.gaierror

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        with pytest.raises(StorageError, match="no server has such a name"):
            open_store("zk://host.invalid", {}).get("/a")

    def test_silent_server(self) -> None:
        """A server that accepts and never answers must not be awaited longer than `timeout_s`."""
        with _scripted_server() as url:
            start = time.monotonic()
            with pytest.raises(StorageError, match=r"no session within 0\.2 seconds"):
                open_store(url, {"timeout_s": 0.2}).get("/a")
            assert time.monotonic() - start < PATIENCE_S

    def test_session_without_answers(self) -> None:
        """A server that starts a session and answers nothing must not be awaited either."""
        with (
            _scripted_server(_CONNECTED) as url,
            pytest.raises(StorageError, match=r"did not answer /a within 2 seconds"),
        ):
            open_store(url, {"timeout_s": 2}).get("/a")

    def test_long_values(self, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """A value or a list of names may be as long as allowed, and no longer."""
        monkeypatch.setattr(zookeeper_store, "MAX_METADATA_BYTES", 100)
        zookeeper.put({"/long/a": bytes(100), "/long/b": bytes(101), f"/long/{'n' * 99}": b""})
        store = open_store(zookeeper.url, {})
        assert store.get("/long/a") == bytes(100)
        with pytest.raises(CorruptMetadataError, match="longer than the 100 bytes allowed"):
            store.get("/long/b")
        with pytest.raises(CorruptMetadataError, match="longer than the 100 bytes allowed"):
            store.children("/long")
        monkeypatch.setattr(zookeeper_store, "MAX_CHILDREN", 2)
        with pytest.raises(CorruptMetadataError, match="more than the 2 children allowed"):
            store.children("/long")

    def test_endless_answer(self) -> None:
        """An answer that is announced as too long is not received."""
        length = struct.pack(">i", zookeeper_store._MAX_ANSWER_BYTES + 1) + b"x"
        with (
            _scripted_server(_CONNECTED, length) as url,
            pytest.raises(CorruptMetadataError, match="bytes allowed"),
        ):
            open_store(url, {}).get("/a")

    @pytest.mark.parametrize(
        "answer",
        [
            struct.pack(">i", -1),
            struct.pack(">i", 3) + b"abc",
            struct.pack(">iiqi", 16, 99, 1, 0),
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ],
        ids=["negative length", "short", "of another request", "of another protocol"],
    )
    @pytest.mark.parametrize("handshake", [(), (_CONNECTED,)], ids=["first", "later"])
    def test_malformed_answer(self, handshake: tuple[bytes, ...], answer: bytes) -> None:
        """Bytes that no ZooKeeper sends are a typed error, within the time limit."""
        with (
            _scripted_server(*handshake, answer) as url,
            pytest.raises((StorageError, CorruptMetadataError)),
        ):
            open_store(url, {"timeout_s": 1}).get("/a")

    @pytest.mark.parametrize("chroot", ["/empty", "/none"])
    def test_wrong_chroot(self, zookeeper: ZooKeeperServer, chroot: str) -> None:
        """A node that is no cluster's is an error, never a cluster without topics."""
        source = open_metadata_source(f"{zookeeper.url}{chroot}")
        for request in (
            source.topics,
            lambda: source.named_attempts(None, max_topics=10),
            lambda: source.topic_metadata(TopicName.parse("string")),
        ):
            with pytest.raises(StorageError, match="there are no managed ledgers in zk://"):
                request()


def test_catalog_equals_that_of_a_folder(zookeeper: ZooKeeperServer) -> None:
    """All topics of a bucket must have the same ledgers, whichever source lists them."""
    bucket = str(GOLDEN / SMALL / "objects")
    catalog = open_catalog(bucket, metadata=f"{zookeeper.url}/pulsar/{SMALL}")
    saved = open_catalog(bucket, metadata=_saved_values(SMALL))
    assert catalog.topics() == saved.topics()
    for own, other in zip(catalog.every_ledger(), saved.every_ledger(), strict=True):
        assert [(each.ledger_id, each.state) for each in own.states] == [
            (each.ledger_id, each.state) for each in other.states
        ]


@pytest.mark.posix
def test_commands_of_the_page(
    zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands that the recipe shows print what is below them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "golden").symlink_to(GOLDEN / "pulsar-4.0.7")
    page = (ROOT / "docs" / "recipes" / "operating.md").read_text("utf-8")
    [block] = [each for each in snippets_of(page) if _PAGE_URL in each.text]
    for arguments, expected in block.commands:
        result = run(*shlex.split(arguments.replace(_PAGE_URL, zookeeper.url)))
        assert result.stdout.strip() == expected.strip()
        assert ("lacks the schemas of" in result.stderr) == arguments.startswith("save ")
