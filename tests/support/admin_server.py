"""The admin API of a cluster, on loopback, that answers with what a real broker answered.

with running_admin_server("pulsar-4.0.7-small", token="t") as server:
    source = open_metadata_source(server.url, options={"token": "t"})
"""

from __future__ import annotations

import json
import ssl
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connector.inputs.topic_names import TopicName
from tests.support.golden import golden_topics
from tests.support.http_servers import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Parts = tuple[str, ...]
"""Names in a path, decoded once."""


@dataclass(frozen=True)
class Answer:
    """What the server sends."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    path: str
    token: str | None


@dataclass
class AdminServer:
    """A running server.

    Attributes:
        url: Where it is.
        answers: What it answers, by the names in the path.
        token: Token that it asks for; None if it asks for none.
        script: What it sends instead, to the next requests, whatever they ask for.
        asked: The requests, in the order in which they came.
        fails_unknown_info: Whether it answers 500 to internal-info of a topic that it does not
            know, as brokers do.
        before_answer: Called before each answer; it may change the answers.
    """

    url: str
    answers: dict[Parts, bytes]
    token: str | None = None
    script: deque[Answer] = field(default_factory=deque)
    asked: list[Asked] = field(default_factory=list)
    fails_unknown_info: bool = False
    before_answer: Callable[[], object] = lambda: None

    def answer(self, path: str, token: str | None) -> Answer:
        """Note a request and answer it."""
        self.before_answer()
        self.asked.append(Asked(path, token))
        if self.script:
            return self.script.popleft()
        if self.token is not None and token != self.token:
            return Answer(403 if token else 401, b'{"reason":"Authentication required"}')
        body = self.answers.get(tuple(map(unquote, path.strip("/").split("/"))))
        if body is None and self.fails_unknown_info and path.endswith("/internal-info"):
            return Answer(500, b'{"reason":"Managed ledger not found"}')
        if body is None:
            return Answer(404, b'{"reason":"not found"}')
        return Answer(200, body)

    @property
    def paths(self) -> list[str]:
        """Paths of the requests that came."""
        return [asked.path for asked in self.asked]

    def redirect(self, url: str, *, status: int = 307) -> None:
        """Send the next request elsewhere."""
        self.script.append(Answer(status, headers={"Location": url}))


def golden_answers(set_name: str) -> dict[Parts, bytes]:
    """What the admin API answers about the topics of a golden set, by the names in the path."""
    answers: dict[Parts, bytes] = {}
    topics: dict[Parts, list[str]] = {}
    for topic in golden_topics():
        if topic.set_name != set_name:
            continue
        name = TopicName.parse(topic.name)
        place = (name.tenant, name.namespace)
        topics.setdefault(place, []).append(topic.name)
        for path, file in (
            (("persistent", *place, name.local_name, "internal-info"), "internal-info.json"),
            (("persistent", *place, name.local_name, "internalStats"), "internal-stats.json"),
            (("schemas", *place, name.base.local_name, "schemas"), "schemas-rest.json"),
        ):
            if (topic.folder / file).exists():
                answers[path] = (topic.folder / file).read_bytes()
    tenants = sorted({tenant for tenant, _ in topics})
    answers["clusters",] = b'["standalone"]'
    answers["tenants",] = json.dumps(tenants).encode()
    for tenant in tenants:
        namespaces = ["/".join(place) for place in topics if place[0] == tenant]
        answers["namespaces", tenant] = json.dumps(namespaces).encode()
    for namespace, names in topics.items():
        answers["persistent", *namespace] = json.dumps(names).encode()
    return {("admin", "v2", *path): answer for path, answer in answers.items()}


@contextmanager
def running_admin_server(
    set_name: str | None = None,
    *,
    token: str | None = None,
    certificates: Certificates | None = None,
    asks_for_certificate: bool = False,
) -> Iterator[AdminServer]:
    """Run a server on a free port of loopback.

    Args:
        set_name: Golden set whose topics the cluster has; None for a server that is none of Pulsar,
            and knows no path.
        token: Token that it asks for.
        certificates: Makes it a server of https.
        asks_for_certificate: Whether it talks to clients with a certificate only.
    """
    server = AdminServer("", golden_answers(set_name) if set_name else {}, token)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            header = self.headers["Authorization"]
            answer = server.answer(self.path, header and header.removeprefix("Bearer "))
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: Any) -> None:  # noqa: ANN401 - the base class's signature
            """Say nothing."""

    http_server = _Server(("127.0.0.1", 0), Handler)
    if certificates is not None:
        http_server.tls = certificates.server_context(asks_for_certificate=asks_for_certificate)
    with serving(http_server) as url:
        server.url = url if certificates is None else url.replace("http:", "https:")
        yield server


class _Server(ThreadingHTTPServer):
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Do the handshake in the thread of the request: the server is not held up by it."""
        if self.tls is not None:
            request = self.tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)
        if self.tls is not None:
            request.close()

    def handle_error(self, *_: Any) -> None:  # noqa: ANN401
        """Say nothing: clients that hang up are among the tests."""


@dataclass(frozen=True)
class Certificates:
    """PEM files of an authority and of what it certified, made for one test."""

    ca_file: Path
    server_file: Path
    """Certificate and key of the server."""
    client_file: Path
    """Certificate of a client."""
    client_key_file: Path

    @classmethod
    def make(cls, folder: Path, *server_names: str) -> Certificates:
        """Make an authority, and a certificate of a server and of a client by it.

        Args:
            folder: Where the files go.
            server_names: Addresses and hosts that the server's certificate is for; by default
                those of loopback.
        """
        authority = _Identity("authority", is_authority=True)
        server = _Identity(*(server_names or ("127.0.0.1", "localhost")), issuer=authority)
        client = _Identity("client", issuer=authority)
        made = cls(*(folder / f"{name}.pem" for name in ("ca", "server", "client", "client-key")))
        made.ca_file.write_bytes(authority.certificate_pem)
        made.server_file.write_bytes(server.certificate_pem + server.key_pem)
        made.client_file.write_bytes(client.certificate_pem)
        made.client_key_file.write_bytes(client.key_pem)
        return made

    def server_context(self, *, asks_for_certificate: bool) -> ssl.SSLContext:
        """What the server needs."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca_file))
        context.load_cert_chain(self.server_file)
        if asks_for_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class _Identity:
    """A key and its certificate."""

    def __init__(
        self, *names: str, issuer: _Identity | None = None, is_authority: bool = False
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        signer = issuer or self
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(signer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()),
                critical=False,
            )
            .add_extension(_usage(is_authority=is_authority), critical=True)
        )
        certificate = builder.sign(signer.key, hashes.SHA256())
        self.certificate_pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.key_pem = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def _general_name(name: str) -> x509.GeneralName:
    if name.replace(".", "").isdigit():
        return x509.IPAddress(IPv4Address(name))
    return x509.DNSName(name)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
