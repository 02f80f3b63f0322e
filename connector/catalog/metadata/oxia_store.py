"""The records of an Oxia cluster, read by its gRPC protocol (Oxia's `client.proto`).

Oxia has no nodes: Pulsar's `OxiaMetadataStore` stores the value of a node as the record of its
path, and an empty record for each node above. Keys are sorted by the number of their slashes, and
then by bytes with the slash last. A double slash at the end of a key counts as one. So the children
of `/a` are the keys from `/a/` (inclusive) to `/a//` (exclusive).

Records are distributed over shards, by a hash of the key or of a partition key that the writer has
chosen. A reader does not know partition keys, so each request goes to all shards. The leader of a
shard answers, with the newest value.

==================== ============================ ================================================
Call                 Request                      Answers, a stream
==================== ============================ ================================================
GetShardAssignments  ShardAssignmentsRequest      ShardAssignments; only the first one is awaited
Read                 ReadRequest                  ReadResponse, one record for each key in order
List                 ListRequest                  ListResponse, keys in order
==================== ============================ ================================================

The package `oxia` of PyPI is not used: it has neither TLS nor credentials, nor time limits.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from arrow_io.errors import CorruptMetadataError, OptionError, StorageError
from arrow_io.format.protobuf_messages import message_classes
from arrow_io.storage.attempts import RetryPolicy
from arrow_io.storage.redaction import redacted, redacted_urls
from connector.catalog.metadata.metadata_store import MAX_CHILDREN
from connector.catalog.metadata.topic_metadata import MAX_METADATA_BYTES
from connector.inputs.cluster_access import ClusterAccess, read_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SCHEME: Final = "oxia://"
_SERVER: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}", re.ASCII)
_DEFAULT_NAMESPACE: Final = "default"
_SERVICES: Final = ("io.streamnative.oxia.proto.OxiaClient", "io.oxia.proto.v1.OxiaClient")
"""Names of the service, which has the same calls and messages. Each server has one of them or both.
"""
_ATTEMPTS: Final = 3
_HASHES: Final = 1 << 32
_OK: Final = 0
_KEY_NOT_FOUND: Final = 1
_NATURAL: Final = 1
"""`KEY_SORTING_NATURAL`, by bytes: children of a node are no range then."""
_MAX_ANSWER_BYTES: Final = MAX_METADATA_BYTES + (1 << 20)
"""Maximum length of an answer on the wire, in one message or several."""
_MAX_SHARDS: Final = 10_000
_MAX_CERTIFICATE_BYTES: Final = 1 << 20
_SHOWN_CHARACTERS: Final = 200

_CLASSES: Final = message_classes(
    {
        "ShardAssignmentsRequest": "1 namespace optional bytes",
        "Int32HashRange": """
            1 minHashInclusive optional fixed32
            2 maxHashInclusive optional fixed32
        """,
        "ShardAssignment": """
            1 shard optional int64
            2 leader optional bytes
            3 int32HashRange optional Int32HashRange
        """,
        "NamespaceShardsAssignment": """
            1 assignments repeated ShardAssignment
            3 keySorting optional int32
        """,
        "NamespaceEntry": """
            1 key optional bytes
            2 value optional NamespaceShardsAssignment
        """,
        "ShardAssignments": "1 namespaces repeated NamespaceEntry",
        "GetRequest": """
            1 key optional bytes
            2 includeValue optional bool
        """,
        "ReadRequest": """
            1 shard optional int64
            2 gets repeated GetRequest
        """,
        "GetResponse": """
            1 status optional int32
            3 value optional bytes
        """,
        "ReadResponse": "1 gets repeated GetResponse",
        "ListRequest": """
            1 shard optional int64
            2 startInclusive optional bytes
            3 endExclusive optional bytes
        """,
        "ListResponse": "1 keys repeated bytes",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OxiaOptions(ClusterAccess):
    """Options of an Oxia cluster. `timeout_s` is for a request with all its attempts.

    Without `ca_file`, the certificate authorities that gRPC brings with it are trusted.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    tls: bool = False
    """Whether connections are encrypted; a token needs it, because leaders are other servers than
    the one that the user names."""

    def __post_init__(self) -> None:
        # Without arguments, `super` would refer to the class that `slots` replaces.
        super(OxiaOptions, self).__post_init__()
        if not self.verify_hostname:
            message = "verify_hostname cannot be false: gRPC always verifies the host name"
            raise OptionError(message)
        if (self.has_tls_options or self.token or self.token_file) and not self.tls:
            message = "there is a token, or an option for TLS, but tls is not true"
            raise OptionError(message)


def open_store(url: str, options: Mapping[str, object]) -> Oxia:
    """Return a cluster; sends no request yet.

    Args:
        url: `oxia://host:6648`, or `oxia://host:6648/namespace`.
        options: Options of `OxiaOptions` as users pass them; numbers and flags may be text.

    Raises:
        OptionError: The URL is of another form, an option cannot be used, or a certificate file
            cannot be read.
    """
    return Oxia(url, read_access(OxiaOptions, "metadata option", options))


class Oxia:
    """A namespace of an Oxia cluster as a metadata store (`MetadataStore`).

    Raises:
        OptionError: See `open_store`.
    """

    def __init__(self, url: str, options: OxiaOptions) -> None:
        self.url = redacted_urls(url)
        self._options = options
        self._server, self._namespace = _parse_url(url)
        self._credentials = _tls_credentials(options) if options.tls else None
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._shards: dict[int, str] | None = None
        self._service = _SERVICES[0]
        self._token: str | None = None

    def __repr__(self) -> str:
        return f"Oxia({self.url!r})"

    def get(self, path: str) -> bytes | None:
        """Return the value of a record; see `MetadataStore`."""

        def request(shard: int) -> Any:  # noqa: ANN401 - a message class has no static type
            get = _CLASSES["GetRequest"](key=path.encode(), includeValue=True)
            return _CLASSES["ReadRequest"](shard=shard, gets=[get])

        values: set[bytes] = set()
        for answers in self._ask_shards(path, "Read", request, "ReadResponse"):
            records = [record for answer in answers for record in answer.gets]
            if len(records) != 1 or records[0].status not in {_OK, _KEY_NOT_FOUND}:
                raise self._corrupt(path, "a shard did not answer with one record, or none")
            if records[0].status == _OK:
                values.add(records[0].value)
                self._check_size(path, len(records[0].value))
        if len(values) > 1:
            raise self._corrupt(path, "two shards have different values")
        return next(iter(values), None)

    def children(self, path: str) -> list[str]:
        """Return the names of a node's children; see `MetadataStore`."""
        parent = f"{path}/".encode()

        def request(shard: int) -> Any:  # noqa: ANN401
            return _CLASSES["ListRequest"](
                shard=shard, startInclusive=parent, endExclusive=parent + b"/"
            )

        names: set[str] = set()
        for answers in self._ask_shards(path, "List", request, "ListResponse"):
            for key in (key for answer in answers for key in answer.keys):
                name = key.removeprefix(parent)
                if not key.startswith(parent) or not name or b"/" in name:
                    raise self._corrupt(path, "a key is not that of a child")
                try:
                    names.add(name.decode())
                except UnicodeDecodeError:
                    raise self._corrupt(path, "a key is not UTF-8") from None
                if len(names) > MAX_CHILDREN:
                    text = f"the node has more than the {MAX_CHILDREN} children allowed"
                    raise self._corrupt(path, text)
        self._check_size(path, sum(map(len, names)))
        return sorted(names)

    def _check_size(self, path: str, size_bytes: int) -> None:
        if size_bytes > MAX_METADATA_BYTES:
            text = f"the answer is longer than the {MAX_METADATA_BYTES} bytes allowed"
            raise self._corrupt(path, text)

    def _ask_shards(
        self, path: str, call: str, request: Callable[[int], Any], answer: str
    ) -> list[list[Any]]:
        """Send a request to each shard; return the answers of each."""

        def ask(stop_s: float) -> list[list[Any]]:
            # Send all before awaiting the first answer.
            streams = [
                self._call(leader, call, request(shard), stop_s)
                for shard, leader in self._assignments(stop_s).items()
            ]
            try:
                return [_received(stream, answer) for stream in streams]
            finally:
                for stream in streams:
                    stream.cancel()

        return self._with_retries(path, ask)

    def _with_retries(self, path: str, ask: Callable[[float], list[list[Any]]]) -> list[list[Any]]:
        timeout_s = self._options.timeout_s
        stop_s = time.monotonic() + timeout_s

        def attempt() -> list[list[Any]]:
            try:
                return ask(stop_s)
            except DecodeError:
                raise self._corrupt(path, "an answer is not a message of Oxia") from None
            except _LongAnswerError as error:
                raise self._corrupt(path, str(error)) from None
            except grpc.RpcError as error:
                # A shard may have another leader now.
                self._forget_assignments()
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    self._service = _SERVICES[1 - _SERVICES.index(self._service)]
                raise self._error(path, error) from None

        try:
            return RetryPolicy(attempts=_ATTEMPTS, deadline_s=timeout_s).call(attempt)
        except ConnectionError as error:
            message = str(error)
        raise StorageError(message)

    def _error(self, path: str, error: grpc.RpcError) -> Exception:
        """Return the error to raise; a ConnectionError if the request may be repeated."""
        codes = grpc.StatusCode
        code = error.code()
        # Shortened afterwards: the beginning of a token would not be found.
        details = redacted(error.details() or "", {"token": self._token})
        details = " ".join(details.split())[:_SHOWN_CHARACTERS]
        text = f"{self.url}: {code.name.lower().replace('_', ' ')}: {details}"
        if code is codes.RESOURCE_EXHAUSTED and "larger than max" in details:
            return self._corrupt(path, f"the answer is too long: {details}")
        if code is codes.DEADLINE_EXCEEDED:
            timeout_s = self._options.timeout_s
            return StorageError(f"{self.url} did not answer {path} within {timeout_s:g} seconds")
        if code in {codes.UNAUTHENTICATED, codes.PERMISSION_DENIED}:
            return StorageError(f"the metadata store refuses {path}: {text}")
        return ConnectionError(f"request for {path} failed: {text}")

    def _assignments(self, stop_s: float) -> dict[int, str]:
        """Return the server that leads each shard of the namespace."""
        with self._lock:
            if self._shards is not None:
                return self._shards
        request = _CLASSES["ShardAssignmentsRequest"](namespace=self._namespace.encode())
        stream = self._call(self._server, "GetShardAssignments", request, stop_s)
        try:
            answer = next(stream, b"")
        finally:
            stream.cancel()
        shards = self._check_assignments(_CLASSES["ShardAssignments"].FromString(answer))
        with self._lock:
            self._shards = shards
        return shards

    def _check_assignments(self, answer: Any) -> dict[int, str]:  # noqa: ANN401
        """Return the leaders of shards, after checking that there is one for each hash."""
        name = self._namespace.encode()
        namespaces = [entry.value for entry in answer.namespaces if entry.key == name]
        if any(each.keySorting == _NATURAL for each in namespaces):
            message = (
                f"keys in {self.url} are sorted by bytes, so it is no metadata store of brokers"
            )
            raise StorageError(message)
        assignments = [each for namespace in namespaces for each in namespace.assignments]
        if not assignments:
            message = f"{self.url} has no namespace {self._namespace!r}"
            raise StorageError(message)
        if len(assignments) > _MAX_SHARDS:
            message = f"{self.url} has {len(assignments)} shards; {_MAX_SHARDS} are allowed"
            raise CorruptMetadataError(message)
        end = 0
        leaders: dict[int, str] = {}
        for each in sorted(assignments, key=lambda each: each.int32HashRange.minHashInclusive):
            if each.int32HashRange.minHashInclusive != end:
                break
            end = each.int32HashRange.maxHashInclusive + 1
            leaders[each.shard] = each.leader.decode("utf-8", "replace")
        # Both may be different soon, so the request is repeated after these errors.
        if end != _HASHES or len(leaders) != len(assignments):
            message = f"{self.url} does not list all shards of namespace {self._namespace!r}"
            raise ConnectionError(message)
        for shard, leader in leaders.items():
            if _SERVER.fullmatch(leader) is None:
                shown = leader[:_SHOWN_CHARACTERS]
                message = f"shard {shard} of {self.url} has no server as its leader, but {shown!r}"
                raise ConnectionError(message)
        return leaders

    def _forget_assignments(self) -> None:
        with self._lock:
            self._shards = None

    def _call(self, server: str, call: str, request: Any, stop_s: float) -> Any:  # noqa: ANN401
        """Send a request; return gRPC's stream of answers, which are bytes."""
        token = self._token = self._options.current_token()
        send = self._channel(server).unary_stream(
            f"/{self._service}/{call}",
            request_serializer=lambda message: message.SerializeToString(),
        )
        return send(
            request,
            timeout=max(0.0, stop_s - time.monotonic()),
            metadata=[("authorization", f"Bearer {token}")] if token else None,
        )

    def _channel(self, server: str) -> grpc.Channel:
        options = [
            ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
            ("grpc.enable_http_proxy", 0),
        ]
        with self._lock:
            channel = self._channels.get(server)
            if channel is None:
                channel = self._channels[server] = (
                    grpc.insecure_channel(server, options)
                    if self._credentials is None
                    else grpc.secure_channel(server, self._credentials, options)
                )
            return channel

    def _corrupt(self, path: str, text: str) -> CorruptMetadataError:
        return CorruptMetadataError(text, object_key=f"{self.url}{path}")


class _LongAnswerError(Exception):
    """A stream of answers that is longer than allowed; never leaves this module."""


def _received(stream: Iterable[bytes], answer: str) -> list[Any]:
    """Return the answers of a stream, at most `_MAX_ANSWER_BYTES`."""
    size_bytes = 0
    answers = []
    for data in stream:
        size_bytes += len(data)
        if size_bytes > _MAX_ANSWER_BYTES:
            text = f"the answer is longer than the {_MAX_ANSWER_BYTES} bytes allowed"
            raise _LongAnswerError(text)
        answers.append(_CLASSES[answer].FromString(data))
    return answers


def _parse_url(url: str) -> tuple[str, str]:
    """Return host with port, and namespace."""
    shown = redacted_urls(url)
    server, _, namespace = url[len(_SCHEME) :].rstrip("/").partition("/")
    if "@" in server:
        message = f"credentials in the URL {shown!r}: give them as options (token)"
        raise OptionError(message)
    if _SERVER.fullmatch(server) is None or "?" in namespace:
        message = (
            f"{shown!r} does not name a server of Oxia: write oxia://host:6648, or"
            " oxia://host:6648/namespace"
        )
        raise OptionError(message)
    return server, namespace or _DEFAULT_NAMESPACE


def _tls_credentials(options: OxiaOptions) -> grpc.ChannelCredentials:
    # It checks the files, which gRPC does only when it connects.
    options.tls_context()
    key_file = options.key_file or options.cert_file
    return grpc.ssl_channel_credentials(
        *(map(_read_certificates, (options.ca_file, key_file, options.cert_file)))
    )


def _read_certificates(file: str | None) -> bytes | None:
    if file is None:
        return None
    with Path(file).open("rb") as stream:
        return stream.read(_MAX_CERTIFICATE_BYTES)
