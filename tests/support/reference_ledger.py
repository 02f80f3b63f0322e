"""An independent, slow reader of offloaded ledgers: the oracle for the real one.

It shares no code with the packages and parses even the protobuf by hand. It is as strict as can be:
bytes that Pulsar's offloader cannot have written are a `NotAsPulsarWritesError`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA_MAGIC = 0xFBDBABCB
INDEX_MAGIC = 0xDE47DE47
HEADER_BYTES = 128


class NotAsPulsarWritesError(Exception):
    """The objects are not what Pulsar's offloader writes."""


@dataclass(frozen=True, slots=True)
class ReferenceIndex:
    """What an index object says."""

    data_length: int
    blocks: list[tuple[int, int, int]]
    """(first entry id, part id, offset) of each block."""
    metadata: bytes
    ledger_length: int
    last_entry_id: int
    managed_ledger: str | None


def read_index(data: bytes) -> ReferenceIndex:
    """Read an index object."""
    magic, index_length, data_length, header_length, count, metadata_length = struct.unpack_from(
        ">Iiqqii", data
    )
    _require(magic == INDEX_MAGIC, "index magic")
    _require(header_length == HEADER_BYTES, "data header length")
    _require(index_length == len(data) == 32 + metadata_length + 20 * count, "index length")
    metadata = data[32 : 32 + metadata_length]
    fields = list(protobuf_fields(metadata))
    custom = [dict(protobuf_fields(_bytes(value))) for number, value in fields if number == 11]
    names = [_bytes(entry[2]).decode() for entry in custom if entry[1] == b"pulsar/managed-ledger"]
    scalars = dict(fields)
    return ReferenceIndex(
        data_length,
        [struct.unpack_from(">qiq", data, 32 + metadata_length + 20 * i) for i in range(count)],
        metadata,
        _int(scalars[3]),
        _int(scalars[4]),
        next(iter(names), None),
    )


def read_entries(data: bytes, index: bytes) -> list[bytes]:
    """All entries of a ledger, in order, every byte of both objects accounted for."""
    parsed = read_index(index)
    _require(len(data) == parsed.data_length, "data object length")
    entries: list[bytes] = []
    starts = [offset for _, _, offset in parsed.blocks]
    for number, (first_entry_id, part_id, start) in enumerate(parsed.blocks):
        stop = starts[number + 1] if number + 1 < len(starts) else len(data)
        _require(part_id == number + 1, "part id")
        _require(first_entry_id == len(entries), "first entry id by the index")
        _require(
            struct.unpack_from(">Iqqq", data, start)
            == (DATA_MAGIC, HEADER_BYTES, stop - start, first_entry_id),
            "block header",
        )
        _require(data[start + 28 : start + HEADER_BYTES] == bytes(100), "zeroes of the header")
        entries += _block_entries(data[start + HEADER_BYTES : stop], first_entry_id)
    _require(len(entries) == parsed.last_entry_id + 1, "last entry id")
    _require(sum(map(len, entries)) == parsed.ledger_length, "ledger length")
    return entries


def protobuf_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: (number, varint or bytes), in order."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        value, position = _varint(message, position)
        if key & 7 == 0:
            yield key >> 3, value
        else:
            _require(key & 7 == 2, "wire type")
            _require(position + value <= len(message), "length of a field")
            yield key >> 3, message[position : position + value]
            position += value


def _block_entries(body: bytes, first_entry_id: int) -> Iterator[bytes]:
    position, entry_id = 0, first_entry_id
    while len(body) - position >= 12:
        length, found = struct.unpack_from(">iq", body, position)
        if length < 0:
            break
        _require(found == entry_id, "entry id")
        _require(position + 12 + length <= len(body), "entry length")
        yield body[position + 12 : position + 12 + length]
        position += 12 + length
        entry_id += 1
    rest = body[position:]
    _require(rest == (b"\xfe\xdc\xde\xad" * len(rest))[: len(rest)], "padding")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _int(value: int | bytes) -> int:
    _require(isinstance(value, int), "a number")
    return int(value)


def _bytes(value: int | bytes) -> bytes:
    _require(isinstance(value, bytes), "bytes")
    return bytes(value)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise NotAsPulsarWritesError(what)
