"""Peers written in Rust and Go, which `make peers` builds in `build/peers`, called by `ctypes`."""

from __future__ import annotations

import base64
import ctypes
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.benchmarks.peers.decoders import UnsupportedError, stored_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.peers.decoders import Decoding
    from tests.benchmarks.peers.payloads import Payloads

_FOLDER: Final = Path(__file__).parents[3] / "build" / "peers"
_SUFFIX: Final = "dylib" if sys.platform == "darwin" else "so"
RUST: Final = _FOLDER / "release" / f"libpeers.{_SUFFIX}"
"""The library that cargo builds."""
GO: Final = _FOLDER / "libhyperpb.so"
"""The library that Go builds."""

_STREAM_BYTES: Final = 40
_SCHEMA_BYTES: Final = 72
"""Sizes of the structs of Arrow's C interfaces for a stream and a schema."""


class _Task(ctypes.Structure):
    _fields_ = (
        ("peer", ctypes.c_char_p),
        ("data", ctypes.c_char_p),
        ("data_bytes", ctypes.c_size_t),
        ("positions", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("rows", ctypes.c_size_t),
        ("definition", ctypes.c_char_p),
        ("definition_bytes", ctypes.c_size_t),
        ("root", ctypes.c_char_p),
        ("schema", ctypes.c_void_p),
    )


@cache
def _load(file: Path, program: str) -> ctypes.CDLL:
    """Load a library that `make peers` builds with a program.

    Raises:
        UnsupportedError: It is not built.
    """
    if not file.is_file():
        raise UnsupportedError(f"it is not built: make peers needs {program}")
    return ctypes.CDLL(str(file))


def _rust() -> ctypes.CDLL:
    library = _load(RUST, "cargo")
    library.peer_error.restype = ctypes.c_char_p
    library.peer_open.restype = ctypes.c_void_p
    library.peer_run.restype = library.peer_stream.restype = ctypes.c_int64
    library.peer_run.argtypes = library.peer_close.argtypes = (ctypes.c_void_p,)
    library.peer_stream.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return library


class RustPeer:
    """A peer of the library, opened by its name."""

    def __init__(self, name: str, payloads: Payloads, rows: int, data: bytes | None = None) -> None:
        self._library = _rust()
        self._data = payloads.data if data is None else data
        self._positions = payloads.positions
        definition, root = _definition(payloads)
        self._definition = definition
        schema = ctypes.create_string_buffer(_SCHEMA_BYTES)
        address = None
        if payloads.type == "JSON":
            address = ctypes.addressof(schema)
            stored_schema(payloads)._export_to_c(address)
        first, count = self._positions.buffer_info()
        task = _Task(
            name.encode(), self._data, len(self._data), first, count, rows,
            definition, len(definition), root.encode(), address,
        )  # fmt: skip
        self._peer = self._library.peer_open(ctypes.byref(task))
        if address is not None:
            # Imported again, so that it is released.
            pa.Schema._import_from_c(address)
        if not self._peer:
            raise UnsupportedError(self._error())

    def __del__(self) -> None:
        """Free the memory of the peer."""
        if getattr(self, "_peer", None):
            self._library.peer_close(self._peer)

    def run(self) -> int:
        """Decode all payloads; see `Decoding`."""
        rows: int = self._library.peer_run(self._peer)
        if rows < 0:
            raise UnsupportedError(self._error())
        return rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Decode all payloads; see `Decoding`."""
        stream = ctypes.create_string_buffer(_STREAM_BYTES)
        address = ctypes.addressof(stream)
        if self._library.peer_stream(self._peer, address) < 0:
            raise UnsupportedError(self._error())
        yield from pa.RecordBatchReader._import_from_c(address)

    def _error(self) -> str:
        return str(self._library.peer_error().decode()).partition("\n")[0]


def _definition(payloads: Payloads) -> tuple[bytes, str]:
    """Return the schema as the library takes it, and the name of the protobuf message."""
    if payloads.type == "JSON":
        return b"", ""
    if payloads.type == "AVRO":
        return payloads.definition.encode(), ""
    stored = json.loads(payloads.definition)
    files = FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.MergeFromString(base64.b64decode(stored["fileDescriptorSet"]))
    return files.SerializeToString(), stored["rootMessageTypeName"]


class HyperPb:
    """The Go library hyperpb, which parses messages and builds no columns."""

    def __init__(self, payloads: Payloads, rows: int) -> None:
        del rows
        self._library = _load(GO, "Go")
        for name in ("hyperpb_open", "hyperpb_run"):
            getattr(self._library, name).restype = ctypes.c_int64
        self._data, self._positions = payloads.data, payloads.positions
        definition, root = _definition(payloads)
        first, count = self._positions.buffer_info()
        long = ctypes.c_int64
        self._peer = self._library.hyperpb_open(
            definition, long(len(definition)), root.encode(), self._data, long(len(self._data)),
            ctypes.c_void_p(first), long(count),
        )  # fmt: skip
        if not self._peer:
            raise UnsupportedError("it cannot compile the message")

    def __del__(self) -> None:
        """Free the memory of the peer."""
        if getattr(self, "_peer", None):
            self._library.hyperpb_close(ctypes.c_int64(self._peer))

    def run(self) -> int:
        """Parse all payloads, and return their number."""
        rows: int = self._library.hyperpb_run(ctypes.c_int64(self._peer))
        return rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return nothing."""
        return iter(())


def open_avro_file(payloads: Payloads, rows: int) -> Decoding:
    """arrow-avro, of an object container file."""
    return RustPeer("arrow-avro file", payloads, rows, payloads.avro_file())


def open_compiled(name: str, payloads: Payloads, rows: int) -> Decoding:
    """A parser that is compiled for orders."""
    if "items" not in stored_schema(payloads).names:
        raise UnsupportedError("it is compiled for orders")
    return RustPeer(name, payloads, rows)
