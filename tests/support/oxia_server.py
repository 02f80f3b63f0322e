"""A server of Oxia's client protocol on loopback, in memory, with any number of shards.

It stands in for Oxia's own server. `SOURCE` states the messages in the language of protobuf, by the
names and numbers of Oxia's `client.proto`; so the server shares nothing with the reader under test.
"""

from __future__ import annotations

import functools
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import descriptor_pb2, message_factory
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.admin_server import Certificates

SOURCE: Final = """
syntax = "proto3";
package io.streamnative.oxia.proto;

message ShardAssignmentsRequest { string namespace = 1; }
message ShardAssignments { map<string, NamespaceShardsAssignment> namespaces = 1; }
message NamespaceShardsAssignment {
  repeated ShardAssignment assignments = 1;
  ShardKeyRouter shard_key_router = 2;
  KeySorting key_sorting = 3;
}
enum KeySorting { KEY_SORTING_UNKNOWN = 0; KEY_SORTING_NATURAL = 1; KEY_SORTING_HIERARCHICAL = 2; }
enum ShardKeyRouter { UNKNOWN = 0; XXHASH3 = 1; }
message ShardAssignment {
  int64 shard = 1;
  string leader = 2;
  oneof shard_boundaries { Int32HashRange int32_hash_range = 3; }
}
message Int32HashRange {
  fixed32 min_hash_inclusive = 1;
  fixed32 max_hash_inclusive = 2;
}
message ReadRequest {
  optional int64 shard = 1;
  repeated GetRequest gets = 2;
}
message GetRequest {
  string key = 1;
  bool include_value = 2;
}
message ReadResponse { repeated GetResponse gets = 1; }
message GetResponse {
  Status status = 1;
  Version version = 2;
  optional bytes value = 3;
  optional string key = 4;
}
enum Status { OK = 0; KEY_NOT_FOUND = 1; UNEXPECTED_VERSION_ID = 2; SESSION_DOES_NOT_EXIST = 3; }
message Version {
  int64 version_id = 1;
  int64 modifications_count = 2;
  fixed64 created_timestamp = 3;
  fixed64 modified_timestamp = 4;
}
message ListRequest {
  optional int64 shard = 1;
  string start_inclusive = 2;
  string end_exclusive = 3;
}
message ListResponse { repeated string keys = 1; }
"""

SERVICE: Final = "io.streamnative.oxia.proto.OxiaClient"
NEW_SERVICE: Final = "io.oxia.proto.v1.OxiaClient"
_HASHES: Final = 1 << 32
_KEYS_PER_ANSWER: Final = 3


@functools.cache
def _messages() -> Mapping[str, Any]:
    """Compile `SOURCE`."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "client.proto").write_text(SOURCE, encoding="utf-8")
        compiled = Path(folder, "compiled")
        arguments = ["protoc", f"-I{folder}", f"--descriptor_set_out={compiled}", "client.proto"]
        assert protoc.main(arguments) == 0
        files = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes())
    classes = message_factory.GetMessages(files.file)
    return {name.rpartition(".")[2]: each for name, each in classes.items()}


def by_levels(key: str) -> tuple[int, bytes]:
    """Sort keys as a new Oxia does (`EncoderHierarchical`), which tells clients so."""
    levels = key.count("/") - key.endswith("//")
    return levels, key.encode().replace(b"/", b"\xff")


def by_parts(key: str) -> list[tuple[bool, bytes]]:
    """Sort keys as an old Oxia does (`CompareWithSlash`)."""
    *parents, last = key.encode().split(b"/")
    return [*((True, parent) for parent in parents), (False, last)]


@dataclass
class OxiaServer:
    """A running server.

    Attributes:
        address: Host and port.
        shards: The records of each shard.
        namespace: The only namespace.
        token: The token that it demands; None if it demands none.
        before_answer: Called before each answer with the name of the call and gRPC's context.
        leader: What it calls the leader of each shard; None: itself.
        unlisted_shards: Shards that its assignments lack.
        sort_key: How it sorts keys.
        key_sorting: What it says of that; 0: nothing, as an old Oxia.
        replies: What it answers to calls instead, by their names.
        calls: Names of the calls so far.
    """

    shards: list[dict[str, bytes]]
    address: str = ""
    namespace: str = "default"
    token: str | None = None
    before_answer: Callable[..., object] = lambda *_: None
    leader: str | None = None
    unlisted_shards: frozenset[int] = frozenset()
    sort_key: Callable[[str], Any] = by_levels
    key_sorting: int = 2
    replies: Mapping[str, bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The URL of the namespace."""
        return f"oxia://{self.address}/{self.namespace}"

    def replace(self, nodes: Mapping[str, bytes]) -> None:
        """Store nodes instead of all others, at once."""
        shards = self.shards
        self.shards = [{} for _ in shards]
        self.put(nodes)

    def put(self, nodes: Mapping[str, bytes]) -> None:
        """Store nodes as Pulsar's `OxiaMetadataStore` does, which adds empty records of parents."""
        for path, value in nodes.items():
            parts = path.split("/")
            for end in range(2, len(parts)):
                parent = "/".join(parts[:end])
                self.shard_of(parent).setdefault(parent, b"")
            self.shard_of(path)[path] = value

    def shard_of(self, key: str) -> dict[str, bytes]:
        """Return the shard that a writer chooses for a key, by some hash."""
        return self.shards[zlib.crc32(key.encode()) * len(self.shards) // _HASHES]

    def answers(self, call: str, request: Any, context: Any) -> Iterator[Any]:  # noqa: ANN401
        """Answer a call."""
        self.calls.append(call)
        self.before_answer(call, context)
        metadata = dict(context.invocation_metadata())
        if self.token is not None and metadata.get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not {metadata.get('authorization')}")
        if call in self.replies:
            yield self.replies[call]
            return
        for answer in getattr(self, f"_{call}")(request, context):
            yield answer.SerializeToString()

    def _GetShardAssignments(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: ANN401, N802
        if request.namespace != self.namespace:
            context.abort(grpc.StatusCode.UNKNOWN, "oxia: namespace not found")
        count = len(self.shards)
        # Rounded up, as `shard_of` rounds down.
        starts = [-(-_HASHES * number // count) for number in range(count + 1)]
        answer = _messages()["ShardAssignments"]()
        answer.namespaces[self.namespace].key_sorting = self.key_sorting
        for number in range(count):
            if number not in self.unlisted_shards:
                shard = answer.namespaces[self.namespace].assignments.add()
                shard.shard = number
                shard.leader = self.address if self.leader is None else self.leader
                shard.int32_hash_range.min_hash_inclusive = starts[number]
                shard.int32_hash_range.max_hash_inclusive = starts[number + 1] - 1
        yield answer

    def _Read(self, request: Any, _: object) -> Iterator[Any]:  # noqa: ANN401, N802
        answer = _messages()["ReadResponse"]()
        for get in request.gets:
            record = answer.gets.add(status=1)
            value = self.shards[request.shard].get(get.key)
            if value is not None:
                record.status = 0
                record.value = value
                record.version.version_id = 1
        yield answer

    def _List(self, request: Any, _: object) -> Iterator[Any]:  # noqa: ANN401, N802
        first, end = self.sort_key(request.start_inclusive), self.sort_key(request.end_exclusive)
        ordered = sorted(self.shards[request.shard], key=self.sort_key)
        keys = [key for key in ordered if first <= self.sort_key(key) < end]
        for start in range(0, len(keys), _KEYS_PER_ANSWER):
            yield _messages()["ListResponse"](keys=keys[start : start + _KEYS_PER_ANSWER])


@contextmanager
def running_oxia_server(
    nodes: Mapping[str, bytes],
    *,
    shards: int = 1,
    certificates: Certificates | None = None,
    service: str = SERVICE,
    **settings: Any,  # noqa: ANN401 - attributes of `OxiaServer`
) -> Iterator[OxiaServer]:
    """Run a server on a free port of loopback."""
    server = OxiaServer([{} for _ in range(shards)], **settings)
    server.put(nodes)
    grpc_server = grpc.server(ThreadPoolExecutor(16))
    handlers = {
        call: grpc.unary_stream_rpc_method_handler(
            functools.partial(server.answers, call),
            request_deserializer=_messages()[request].FromString,
        )
        for call, request in (
            ("GetShardAssignments", "ShardAssignmentsRequest"),
            ("Read", "ReadRequest"),
            ("List", "ListRequest"),
        )
    }
    grpc_server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    if certificates is None:
        port = grpc_server.add_insecure_port("127.0.0.1:0")
    else:
        pem = certificates.server_file.read_bytes()
        credentials = grpc.ssl_server_credentials([(pem, pem)])
        port = grpc_server.add_secure_port("127.0.0.1:0", credentials)
    server.address = f"127.0.0.1:{port}"
    grpc_server.start()
    try:
        yield server
    finally:
        grpc_server.stop(None).wait()
