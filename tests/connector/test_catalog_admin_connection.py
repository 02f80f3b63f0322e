"""Requests to the admin API go where they may, end, and never show the token."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest
from cryptography.hazmat.primitives import serialization

from arrow_io.errors import FormatError, OptionError, StorageError
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.hidden import HiddenText
from connector.catalog.metadata import admin_connection
from connector.catalog.metadata.admin_client import AdminApi
from connector.catalog.metadata.admin_connection import AdminConnection, AdminOptions, parse_options
from tests.support.admin_server import (
    AdminServer,
    Answer,
    Certificates,
    running_admin_server,
)
from tests.support.faulty_storage import whole
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL: Final = "pulsar-4.0.7-small"
TOKEN: Final = "secret-token"  # noqa: S105 - invented
TENANTS: Final = "/admin/v2/tenants"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and certificates by it."""
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def server() -> Iterator[AdminServer]:
    """A cluster with the topics of the small golden set, which asks for a token."""
    with running_admin_server(SMALL, token=TOKEN) as running:
        yield running


@contextmanager
def _dripping(beginning: bytes, permits: threading.Semaphore) -> Iterator[str]:
    """The URL of a server that sends the beginning of an answer, then a byte for each permit."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connected, _ = listening.accept()
            with connected:
                connected.recv(1 << 16)
                connected.sendall(beginning)
                while permits.acquire(timeout=PATIENCE_S) and not is_over.is_set():
                    connected.sendall(b"1")

        is_over = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            is_over.set()
            permits.release()
            thread.join()


def _connection(url: str, **options: object) -> tuple[AdminConnection[AdminOptions], list[float]]:
    """A connection, and the pauses that it makes, which take no time."""
    pauses_s: list[float] = []
    retry = RetryPolicy(attempts=3, sleep=pauses_s.append, jitter=whole)
    return AdminConnection(url, parse_options(options), retry), pauses_s


class TestFailures:
    """What goes wrong is told, with the URL and without the token."""

    @pytest.mark.parametrize("status", [500, 502, 503, 429])
    def test_failures_that_pass_are_tried_again(self, server: AdminServer, status: int) -> None:
        """As often as the policy says, with its pauses."""
        connection, pauses_s = _connection(server.url, token=TOKEN)
        server.script.extend([Answer(status), Answer(status)])

        assert connection.get(TENANTS) == b'["public"]'
        assert pauses_s == [0.1, 0.2]

    def test_failures_that_stay_are_told(self, server: AdminServer) -> None:
        """After the last attempt, with what the server says."""
        connection, _ = _connection(server.url, token=TOKEN)
        server.script.extend([Answer(503, b'{"reason":"Namespace\n bundle"}')] * 3)

        with pytest.raises(
            StorageError, match=r"after 3 attempts: HTTP 503.*Namespace bundle"
        ) as error:
            connection.get(TENANTS)
        assert f"{server.url}{TENANTS}" in str(error.value)

    @pytest.mark.parametrize("token", [None, "wrong-token"])
    def test_refusals_name_the_url_and_no_token(
        self, server: AdminServer, token: str | None
    ) -> None:
        """401 and 403 are not tried again."""
        connection, pauses_s = _connection(server.url, token=token)

        with pytest.raises(StorageError, match=r"the server refuses .*HTTP 40[13]") as error:
            connection.get(TENANTS)
        assert f"{server.url}{TENANTS}" in str(error.value)
        assert "wrong-token" not in f"{error.value!r}{error.value}"
        assert pauses_s == []

    def test_token_that_a_server_repeats_is_masked(self, server: AdminServer) -> None:
        """A server's own words must not bring the token into a log."""
        connection, _ = _connection(server.url, token=TOKEN)
        server.script.append(Answer(400, f"bad {TOKEN}".encode()))

        with pytest.raises(StorageError, match="HTTP 400: bad") as error:
            connection.get(TENANTS)
        assert TOKEN not in str(error.value)

    def test_long_words_of_a_server_are_cut(self, server: AdminServer) -> None:
        """An error page must not fill the screen."""
        connection, _ = _connection(server.url, token=TOKEN)
        server.script.append(Answer(404 + 1, b"x" * 100_000))

        with pytest.raises(StorageError, match=r"HTTP 405: x+…") as error:
            connection.get(TENANTS)
        assert len(str(error.value)) < 500

    def test_cut_answers_are_tried_again(self, server: AdminServer) -> None:
        """An answer shorter than announced is none."""
        connection, pauses_s = _connection(server.url, token=TOKEN)
        server.script.append(Answer(200, b'["publ', {"Content-Length": "10"}))

        assert connection.get(TENANTS) == b'["public"]'
        assert len(pauses_s) == 1

    def test_long_answers_are_refused(
        self, server: AdminServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No more than the bound is read."""
        monkeypatch.setattr(admin_connection, "MAX_METADATA_BYTES", 10)
        connection, _ = _connection(server.url, token=TOKEN)
        server.script.extend([Answer(200, b"x" * 10), Answer(200, b"x" * 11)])

        assert connection.get(TENANTS) == b"x" * 10
        with pytest.raises(FormatError, match="longer than the 10 bytes"):
            connection.get(TENANTS)

    @pytest.mark.parametrize("body", [b"[[],[]]", b'{"a":{},"b":{}}', b"[1,2,3,4]"])
    def test_answers_of_many_values_are_refused(
        self, server: AdminServer, monkeypatch: pytest.MonkeyPatch, body: bytes
    ) -> None:
        """A short text may hold many times its length in values."""
        monkeypatch.setattr(admin_connection, "MAX_ANSWER_VALUES", 5)
        connection, _ = _connection(server.url, token=TOKEN)
        server.script.extend([Answer(200, body), Answer(200, b"[1]" + body)])

        assert connection.get(TENANTS) == body
        with pytest.raises(FormatError, match=r"an answer of http.* values; 5 are allowed"):
            connection.get(TENANTS)

    def test_all_answers_together_are_bounded(
        self, server: AdminServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server with endless topics must not fill the memory, answer by answer."""
        monkeypatch.setattr(admin_connection, "MAX_ALL_VALUES", 10)
        connection, _ = _connection(server.url, token=TOKEN)
        server.script.extend([Answer(200, b"[1,2,3,4]")] * 3)

        assert [connection.get(TENANTS) for _ in range(2)] == [b"[1,2,3,4]"] * 2
        with pytest.raises(FormatError, match=r"the answers of http.* 15 values; 10 are allowed"):
            connection.get(TENANTS)

    def test_server_that_is_not_there_is_told(self) -> None:
        """A port where nobody listens any more."""
        with running_admin_server() as server:
            url = server.url
        connection, _ = _connection(url)

        with pytest.raises(StorageError, match="after 3 attempts: ConnectionRefusedError"):
            connection.get(TENANTS)

    def test_silent_server_is_told(self) -> None:
        """A server that takes connections and never answers is waited for as long as allowed."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            connection, pauses_s = _connection(url, timeout_s=0.01)

            with pytest.raises(StorageError, match="after 3 attempts: TimeoutError"):
                connection.get(TENANTS)
        assert len(pauses_s) == 2

    @pytest.mark.parametrize(
        "beginning",
        [
            b"",
            b"HTTP/1.1 200 OK\r\nX: ",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\n\r\n",
        ],
    )
    def test_server_that_never_ends_is_told(self, beginning: bytes) -> None:
        """A byte now and then is no silence; a whole answer has ten times as long."""
        permits = threading.Semaphore(0)
        seconds = itertools.count(0, 7)

        def clock() -> float:
            permits.release()
            return next(seconds)

        with _dripping(beginning, permits) as url:
            pauses_s: list[float] = []
            connection = AdminConnection(
                url,
                parse_options({"timeout_s": 10}),
                RetryPolicy(sleep=pauses_s.append),
                clock,
            )
            with pytest.raises(StorageError, match=f"{url} is incomplete after 100 seconds"):
                connection.get(TENANTS)
        # 0, then up to 105 in steps of 7: no second attempt.
        assert (next(seconds), pauses_s) == (112, [])

    def test_host_that_cannot_be_looked_up_is_told(self) -> None:
        """A part of a host's name has 63 characters at most."""
        connection, _ = _connection(f"http://{'x' * 64}.invalid")

        with pytest.raises(StorageError, match="UnicodeError"):
            connection.get(TENANTS)


class TestRedirects:
    """Brokers send requests on to the owner of a topic."""

    def test_redirects_are_followed_with_the_token(self, server: AdminServer) -> None:
        """At the same server, by any redirect that there is."""
        connection, _ = _connection(server.url, token=TOKEN)
        for status in (301, 302, 303, 307, 308):
            server.redirect(f"{server.url}{TENANTS}", status=status)

            assert connection.get(TENANTS) == b'["public"]'
        assert {asked.token for asked in server.asked} == {TOKEN}

    def test_redirects_are_followed_five_times(self, server: AdminServer) -> None:
        """Five lead to the answer, six to an error."""
        connection, pauses_s = _connection(server.url, token=TOKEN)
        for _ in range(5):
            server.redirect(TENANTS)
        assert connection.get(TENANTS) == b'["public"]'
        for _ in range(6):
            server.redirect(TENANTS)

        with pytest.raises(StorageError, match="more than 5 times"):
            connection.get(TENANTS)
        assert (len(server.script), pauses_s) == (0, [])

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    def test_token_stays_at_its_server_over_plain_http(
        self, server: AdminServer, host: str
    ) -> None:
        """Another port or host gets the request without it; a refusal then says why."""
        with running_admin_server(SMALL, token=TOKEN) as other:
            connection, _ = _connection(server.url, token=TOKEN)
            elsewhere = other.url.replace("127.0.0.1", host)
            server.redirect(f"{elsewhere}{TENANTS}")

            with pytest.raises(StorageError, match="credentials were not sent on with a redirect"):
                connection.get(TENANTS)
            assert [asked.token for asked in other.asked] == [None]

    def test_token_stays_at_its_host_over_plain_http(self, server: AdminServer) -> None:
        """Another name may be another machine."""
        connection, _ = _connection(server.url, token=TOKEN)
        server.redirect(server.url.replace("127.0.0.1", "localhost") + TENANTS)

        with pytest.raises(StorageError, match="credentials were not sent on with a redirect"):
            connection.get(TENANTS)
        assert [asked.token for asked in server.asked] == [TOKEN, None]

    def test_https_is_not_left(self, certificates: Certificates, server: AdminServer) -> None:
        """Neither the token nor an answer goes over plain http, if https was asked for."""
        with running_admin_server(SMALL, certificates=certificates) as secure:
            connection, _ = _connection(secure.url, token=TOKEN, ca_file=str(certificates.ca_file))
            secure.redirect(f"{server.url}{TENANTS}")

            with pytest.raises(StorageError, match=r"redirects to http://.* not followed"):
                connection.get(TENANTS)
            assert server.asked == []

    @pytest.mark.parametrize(
        "location",
        ["ftp://127.0.0.1/", "http://:80/", "http://u:p@127.0.0.1/", "http://[", "http://a b/"],
    )
    def test_redirects_to_nowhere_are_told(self, server: AdminServer, location: str) -> None:
        """A location that is no URL of a server must be a typed error."""
        server.redirect(location)

        with pytest.raises(StorageError, match="not a URL of a server"):
            _connection(server.url, token=TOKEN)[0].get(TENANTS)


class TestTls:
    """Certificates of both sides."""

    @pytest.mark.parametrize("is_checked", [True, False])
    def test_token_goes_on_with_a_redirect_over_https(
        self, certificates: Certificates, *, is_checked: bool
    ) -> None:
        """To another host too, if its certificate is checked to be that host's."""
        with running_admin_server(SMALL, token=TOKEN, certificates=certificates) as server:
            connection, _ = _connection(
                server.url,
                token=TOKEN,
                ca_file=str(certificates.ca_file),
                verify_hostname=is_checked,
            )
            server.redirect(server.url.replace("127.0.0.1", "localhost") + TENANTS)

            if is_checked:
                assert connection.get(TENANTS) == b'["public"]'
            else:
                with pytest.raises(StorageError, match="credentials were not sent on"):
                    connection.get(TENANTS)
            expected = TOKEN if is_checked else None
            assert [asked.token for asked in server.asked] == [TOKEN, expected]

    def test_token_stays_at_its_port_over_https(self, certificates: Certificates) -> None:
        """Whoever listens at another port is not who the user named."""
        with (
            running_admin_server(SMALL, token=TOKEN, certificates=certificates) as server,
            running_admin_server(SMALL, token=TOKEN, certificates=certificates) as other,
        ):
            connection, _ = _connection(server.url, token=TOKEN, ca_file=str(certificates.ca_file))
            server.redirect(f"{other.url}{TENANTS}")

            with pytest.raises(StorageError, match="credentials were not sent on"):
                connection.get(TENANTS)
            assert [asked.token for asked in other.asked] == [None]

    def test_unknown_authorities_are_refused(self, certificates: Certificates) -> None:
        """Without the authority's file the certificate is nobody's, and is tried once."""
        with running_admin_server(certificates=certificates) as server:
            connection, pauses_s = _connection(server.url, token=TOKEN)

            with pytest.raises(StorageError, match="SSLCertVerificationError"):
                connection.get(TENANTS)
            assert (server.asked, pauses_s) == ([], [])

    def test_host_must_be_the_certificates(self, tmp_path: Path) -> None:
        """A certificate for another host is refused, unless the user says otherwise."""
        made = Certificates.make(tmp_path, "pulsar.example")
        with running_admin_server(SMALL, certificates=made) as server:
            checked, _ = _connection(server.url, ca_file=str(made.ca_file))
            unchecked, _ = _connection(server.url, ca_file=str(made.ca_file), verify_hostname=False)

            with pytest.raises(StorageError, match="SSLCertVerificationError"):
                checked.get(TENANTS)
            assert unchecked.get(TENANTS) == b'["public"]'

    def test_client_may_have_a_certificate(self, certificates: Certificates) -> None:
        """A cluster that asks for one must get it, key in the same file or in another."""
        both = certificates.ca_file.with_name("client-both.pem")
        both.write_bytes(
            certificates.client_file.read_bytes() + certificates.client_key_file.read_bytes()
        )
        ca_file = str(certificates.ca_file)
        with running_admin_server(
            SMALL, certificates=certificates, asks_for_certificate=True
        ) as server:
            for options in (
                {
                    "cert_file": str(certificates.client_file),
                    "key_file": str(certificates.client_key_file),
                },
                {"cert_file": str(both)},
            ):
                connection, _ = _connection(server.url, ca_file=ca_file, **options)
                assert connection.get(TENANTS) == b'["public"]'
            without, _ = _connection(server.url, ca_file=ca_file)
            with pytest.raises(StorageError):
                without.get(TENANTS)


class TestOptions:
    """Options are checked before anything is sent, and never shown where they are secret."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"tokn": TOKEN}, "unknown metadata option 'tokn'; the options are ca_file, cert_file"),
            ({"token": TOKEN, "token_file": "file"}, "both token and token_file"),
            ({"token": 7}, "token must be text, not int"),
            ({"token": ""}, "not a token"),
            ({"token": f"{TOKEN}\r\nX: y"}, "not a token"),
            ({"token": f"{TOKEN}é"}, "not a token"),
            ({"token": TOKEN * 100_000}, "not a token"),
            ({"verify_hostname": "maybe"}, "verify_hostname must be true or false"),
            ({"verify_hostname": 1}, "verify_hostname must be true or false"),
            ({"timeout_s": 0}, "above 0"),
            ({"timeout_s": "nan"}, "above 0"),
            ({"timeout_s": "inf"}, "above 0"),
            ({"timeout_s": "soon"}, "timeout_s must be a number"),
            ({"timeout_s": True}, "timeout_s must be a number"),
            ({"timeout_s": 10**400}, "timeout_s must be a number"),
            ({"namespaces": 7}, "namespaces must be a list"),
            ({"namespaces": [7]}, "namespaces must be text"),
            ({"namespaces": "public"}, "a namespace is tenant/namespace"),
            ({"namespaces": "a/"}, "a namespace is tenant/namespace"),
            ({"key_file": "key.pem"}, "key_file needs cert_file"),
        ],
    )
    def test_wrong_options_are_refused(self, options: dict[str, object], words: str) -> None:
        """The message says what is allowed, and never shows a token."""
        with pytest.raises(OptionError, match=words) as error:
            parse_options(options)
        assert TOKEN not in str(error.value)

    def test_options_may_be_text(self) -> None:
        """On the command line and in Spark all options are; None is no option."""
        options = {
            "verify_hostname": "False",
            "timeout_s": "1.5",
            "namespaces": "a/b",
            "token": None,
        }

        assert parse_options(options) == AdminOptions(
            verify_hostname=False, timeout_s=1.5, namespaces=("a/b",)
        )

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("http://", "not a URL of a server"),
            ("http://:80", "not a URL of a server"),
            ("http://host:0", "not a URL of a server"),
            ("http://host:99999", "is not a URL"),
            ("http://[", "is not a URL"),
            ("http://a b", "must be encoded"),
            ("http://a\r\nb", "must be encoded"),
            ("http://é", "must be encoded"),
            (f"http://me:{TOKEN}@host", "credentials in the URL"),
        ],
    )
    def test_urls_of_no_server_are_refused(self, url: str, words: str) -> None:
        """Before anything is sent, and without showing credentials."""
        with pytest.raises(OptionError, match=words) as error:
            _connection(url)
        assert TOKEN not in str(error.value)

    @pytest.mark.parametrize(
        "options", [{"ca_file": "x"}, {"cert_file": "x"}, {"verify_hostname": False}]
    )
    def test_tls_options_need_https(self, options: dict[str, object]) -> None:
        """Who gives certificates must not be served in the clear."""
        with pytest.raises(OptionError, match="not an https URL"):
            _connection("http://host", **options)

    @pytest.mark.parametrize("option", ["ca_file", "cert_file"])
    def test_unusable_certificates_are_told(self, option: str, tmp_path: Path) -> None:
        """A file that is not there, or holds no certificate."""
        empty = tmp_path / "empty.pem"
        empty.write_bytes(b"")
        for file in (tmp_path / "no-such.pem", empty):
            with pytest.raises(OptionError, match=f"{file} cannot be used"):
                _connection("https://host", **{option: str(file)})

    def test_encrypted_keys_are_refused(self, certificates: Certificates, tmp_path: Path) -> None:
        """No passphrase is asked for on a terminal that nobody may sit at."""
        key = serialization.load_pem_private_key(certificates.client_key_file.read_bytes(), None)
        file = tmp_path / "encrypted.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(b"passphrase"),
            )
        )

        with pytest.raises(OptionError, match=f"private key in {file} is encrypted"):
            _connection("https://host", cert_file=str(certificates.client_file), key_file=str(file))

    def test_token_file_is_read_for_each_request(self, server: AdminServer, tmp_path: Path) -> None:
        """A token that was renewed counts from then on."""
        file = tmp_path / "token"
        connection, _ = _connection(server.url, token_file=str(file))
        with pytest.raises(OptionError, match=f"cannot read the token file {file}: No such"):
            connection.get(TENANTS)
        file.write_text("old")
        with pytest.raises(StorageError, match="HTTP 403"):
            connection.get(TENANTS)
        file.write_text(f"{TOKEN}\n")

        assert connection.get(TENANTS) == b'["public"]'

        file.write_text("two\nlines")
        with pytest.raises(OptionError, match="not a token") as error:
            connection.get(TENANTS)
        assert "two" not in str(error.value)

    def test_token_is_not_shown(self) -> None:
        """Neither connection nor source nor options show it when they are printed."""
        connection, _ = _connection("http://host", token=TOKEN)

        assert TOKEN not in f"{connection!r}{AdminApi(connection)!r}{connection.options!r}"
        assert "http://host" in repr(AdminApi(connection))

    @pytest.mark.parametrize("is_file", [False, True])
    @pytest.mark.parametrize(
        "answer",
        [b"", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"],
        ids=["silence", "500"],
    )
    def test_token_is_not_in_frames(self, *, is_file: bool, answer: bytes, tmp_path: Path) -> None:
        """Tools that print the variables of an error's frames, and of its context's, show none."""
        file = tmp_path / "token"
        file.write_text(TOKEN)
        options = {"token_file": str(file)} if is_file else {"token": HiddenText(TOKEN)}
        permits = threading.Semaphore(0)
        with _dripping(answer, permits) as url:
            connection, _ = _connection(url, **options, timeout_s=0.01)
            with pytest.raises(StorageError) as error:
                connection.get(TENANTS)

        assert error.value.__context__ is None
        frames = [frame.locals for frame in error.traceback[1:]]
        assert frames
        assert TOKEN not in repr(frames)

    def test_https_is_checked_by_default(self) -> None:
        """Without options the system's authorities count, and the host's name."""
        tls = _connection("https://host")[0]._tls

        assert tls is not None
        assert (tls.check_hostname, tls.verify_mode) == (True, ssl.CERT_REQUIRED)
