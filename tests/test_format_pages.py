"""The tables of `docs/format` agree with the code that reads and writes these bytes."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from arrow_io.format import ledger_metadata, magics
from arrow_io.format.block_table import BlockEntry
from arrow_io.format.checksum_file import CHUNK_BYTES, checksum_file
from arrow_io.format.data_block import BlockHeader, write_block_header
from arrow_io.format.entry_frame import write_entry
from arrow_io.format.index_block import write_index_block
from arrow_io.format.ledger_metadata import LedgerMetadata, LedgerState
from arrow_io.format.object_names import MapFileName
from arrow_io.format.sequence_file import (
    BYTES_CLASS,
    LONG_CLASS,
    Compression,
    SequenceFileHeader,
    read_vint,
)
from arrow_io.format.streaming_block import StreamingBlockHeader
from arrow_io.format.streaming_index import read_segment_index
from arrow_io.messages import transactions
from arrow_io.messages.codecs import COMPRESSION_TYPES, LZ4, compress
from arrow_io.payloads.schema_info import SCHEMA_TYPES
from connector.catalog.metadata import managed_ledger
from connector.catalog.metadata.managed_ledger import parse_managed_ledger_info
from connector.inputs.topic_names import TopicName
from tests.support import pulsar_proto
from tests.support.golden import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES: Final = Path(__file__).parents[1] / "docs" / "format"
_TYPES: Final = {"u16": "H", "u32": "I", "i32": "i", "i64": "q"}
_METADATA: Final = LedgerMetadata(
    length_bytes=14, last_entry_id=2, write_quorum_size=2, ensemble_size=2, state=LedgerState.CLOSED
)


def _rows(page: str, before: str) -> list[list[str]]:
    """Return the cells of the first table after some text, without its header."""
    text = (PAGES / page).read_text("utf-8").partition(before)[2]
    table = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert table is not None, before
    lines = [line.strip("|").split("|") for line in table[0].splitlines()]
    return [[cell.strip().replace("`", "") for cell in line] for line in lines[2:]]


def _read(page: str, heading: str, data: bytes, start: int = 0) -> dict[str, int]:
    """Return the numbers of a layout by their fields; their places and the magic are checked."""
    numbers = {}
    end = 0
    for offset, size, field, type_name, value in _rows(page, f"# {heading}\n"):
        if not offset.isdecimal():
            continue
        assert int(offset) == end, field
        if type_name in _TYPES:
            assert int(size) == struct.calcsize(f">{_TYPES[type_name]}")
            (number,) = struct.unpack_from(f">{_TYPES[type_name]}", data, start + end)
            numbers[field] = number
            if "magic" in field:
                assert number == int(value, 16)
        end += int(size) if size.isdecimal() else 0
    return numbers


def test_block_header() -> None:
    """A written block header has the fields of the table, and zero bytes after them."""
    header = write_block_header(BlockHeader(1000, 7))

    assert _read("pip-17.md", "Block header", header) == {
        "magic": magics.DATA_BLOCK_MAGIC,
        "header_len": 128,
        "block_len": 1000,
        "first_entry_id": 7,
    }
    *_, zeroes = _rows("pip-17.md", "# Block header\n")
    assert header[int(zeroes[0]) :] == bytes(int(zeroes[1]))


def test_entry_frame() -> None:
    """A written entry has its length and id where the table says."""
    assert _read("pip-17.md", "Entry", write_entry(7, b"abc")) == {"entry_len": 3, "entry_id": 7}


def test_index_object() -> None:
    """A written index object has the fields of both tables."""
    rows = [BlockEntry(0, 1, 0), BlockEntry(2, 2, 160)]
    index = write_index_block(data_object_length_bytes=302, entries=rows, ledger_metadata=_METADATA)
    metadata_length = len(_METADATA.serialize())

    assert _read("pip-17.md", "Index object", index) == {
        "index_magic": magics.INDEX_BLOCK_MAGIC,
        "index_len": len(index),
        "data_object_length": 302,
        "data_header_length": 128,
        "index_entry_count": 2,
        "segment_metadata_len": metadata_length,
    }
    second = _read("pip-17.md", "Index entry", index, 32 + metadata_length + 20)
    assert tuple(second.values()) == rows[1]


def test_streaming_block_header() -> None:
    """A written block header of streaming offload has the fields of the table."""
    header = StreamingBlockHeader(1000, 7, 42).serialize()

    assert _read("pip-76.md", "Block header", header) == {
        "magic": magics.STREAMING_DATA_BLOCK_MAGIC,
        "header_len": 128,
        "block_len": 1000,
        "first_entry_id": 7,
        "ledger_id": 42,
    }


def test_streaming_index_object() -> None:
    """An index object of Pulsar's has the fields of the tables."""
    objects = GOLDEN / "streaming-4.0.6-one-entry" / "objects"
    data = next(objects.glob("*-index")).read_bytes()
    index = read_segment_index(data, object_key="index")
    (group,) = index.groups

    fields = _read("pip-76.md", "Index object", data)
    assert fields == {
        "index_magic": magics.STREAMING_INDEX_BLOCK_MAGIC,
        "index_len": len(data),
        "data_object_length": index.data_object_length_bytes,
        "data_header_length": index.data_header_length_bytes,
    }
    assert _read("pip-76.md", "Ledger group", data, 24) == {
        "ledger_id": group.ledger_id,
        "index_entry_count": len(group.rows),
        "metadata_len": len(data) - 24 - 16 - 20 * len(group.rows),
    }


def test_magics() -> None:
    """The page lists each magic that the code knows."""
    listed = {int(magic, 16) for magic, *_ in _rows("pip-17.md", "# Other magic numbers\n")}

    assert listed == set(magics._STRUCTURES)


def _fields(lines: str) -> dict[int, tuple[str, str, str]]:
    split = [line.split() for line in lines.strip().splitlines()]
    return {int(number): (name, label, type_name) for number, name, label, type_name, *_ in split}


def _normal(type_name: str) -> str:
    """Return one name for types of one wire form, which pages and code name differently."""
    return {"string": "bytes", "LedgerState": "enum", "DigestType": "enum"}.get(
        type_name, type_name
    )


@pytest.mark.parametrize(
    ("page", "before", "messages", "name"),
    [
        ("pip-17.md", "# Ledger metadata\n", ledger_metadata._MESSAGES, "LedgerMetadataFormat"),
        ("messages.md", "# BrokerEntryMetadata\n", pulsar_proto._FIELDS, "BrokerEntryMetadata"),
        ("messages.md", "# MessageMetadata\n", pulsar_proto._FIELDS, "MessageMetadata"),
        ("messages.md", "nothing follows the last", pulsar_proto._FIELDS, "SingleMessageMetadata"),
        ("messages.md", "# Encryption\n", pulsar_proto._FIELDS, "EncryptionKeys"),
        ("metadata.md", "# ManagedLedgerInfo\n", managed_ledger._MESSAGES, "ManagedLedgerInfo"),
        ("metadata.md", "# LedgerInfo\n", managed_ledger._MESSAGES, "LedgerInfo"),
        ("metadata.md", "# OffloadContext\n", managed_ledger._MESSAGES, "OffloadContext"),
        ("metadata.md", "# ManagedCursorInfo\n", managed_ledger._MESSAGES, "ManagedCursorInfo"),
        ("metadata.md", "\n`OffloadDriver", managed_ledger._MESSAGES, "OffloadDriverMetadata"),
        ("metadata.md", "\n`OffloadSegment` (R", managed_ledger._MESSAGES, "OffloadSegment"),
    ],
)
def test_protobuf_fields(page: str, before: str, messages: Mapping[str, str], name: str) -> None:
    """The fields of a message have the numbers, labels and types that the code gives them."""
    listed = {
        int(number): (field, label, _normal(type_name))
        for number, field, label, type_name, _ in _rows(page, before)
    }

    assert listed == {
        number: (field, label, _normal(type_name))
        for number, (field, label, type_name) in _fields(messages[name]).items()
    }


def test_compression_types() -> None:
    """The page lists the codecs with their numbers."""
    listed = {name: int(n) for name, n, _ in _rows("messages.md", "# Compression\n")}

    assert listed == COMPRESSION_TYPES


def test_schema_types() -> None:
    """The page lists the schema types with their numbers."""
    listed = {
        name: int(number.replace("−", "-"))
        for numbers, names, _ in _rows("metadata.md", "# Types and bytes of values\n")
        for number, name in zip(numbers.split(", "), names.split(", "), strict=True)
    }

    assert listed == SCHEMA_TYPES


def test_markers_of_transactions() -> None:
    """The page lists the two markers that decide a transaction."""
    rows = {numbers: text for numbers, text, *_ in _rows("messages.md", "# Markers\n")}

    assert rows[str(transactions.TXN_COMMIT)] == "transaction committed"
    assert rows[str(transactions.TXN_ABORT)] == "transaction aborted"


def test_compressed_managed_ledger() -> None:
    """A value that is made by the table is read."""
    bare = managed_ledger._CLASSES["ManagedLedgerInfo"]()
    bare.ledgerInfo.add(ledgerId=5, entries=3, size=30, timestamp=1)
    message = bare.SerializeToString()
    header = managed_ledger._CLASSES["ManagedLedgerInfoMetadata"](
        compressionType=LZ4, uncompressedSize=len(message)
    ).SerializeToString()
    (_, magic_size, _, _, magic), (size_offset, size_size, *_), (offset, *_), _ = _rows(
        "metadata.md", "# Compressed values\n"
    )

    value = int(magic, 16).to_bytes(int(magic_size)) + len(header).to_bytes(int(size_size))
    assert (len(value), int(size_offset)) == (int(offset), int(magic_size))
    value += header + compress(LZ4, message)
    info = parse_managed_ledger_info(value, TopicName.parse("orders"))
    assert [ledger.ledger_id for ledger in info.ledgers] == [5]


def test_map_file_header() -> None:
    """A written header of a SequenceFile has the fields of the table, in its order."""
    header = SequenceFileHeader(BYTES_CLASS, Compression.BLOCK, bytes(range(16)))
    data = header.serialize()
    position = 0
    for _, size, field, type_name, value in _rows("map-files.md", "# File header\n"):
        length = int(size) if size else 1 + data[position]
        part = data[position : position + length]
        position += length
        if field == "magic":
            assert part == value.encode()
        elif field == "sync_marker":
            assert part == header.sync_marker
        elif type_name == "Text":
            assert part[1:].decode() in value
        elif value.isdecimal():
            assert int.from_bytes(part, "big") == int(value)
        else:
            assert part == b"\1"
    assert position == len(data) == 138
    lengths = [
        len(SequenceFileHeader(*each, bytes(16)).serialize())
        for each in (
            (BYTES_CLASS, Compression.NONE),
            (BYTES_CLASS, Compression.RECORD),
            (LONG_CLASS, Compression.BLOCK),
        )
    ]
    assert lengths == [95, 138, 137]


def test_map_file_record() -> None:
    """A record that Pulsar wrote has its lengths and key where the table says."""
    (data,) = (GOLDEN / "filesystem-2.10.1-none").rglob("502-*/data")

    fields = _read("map-files.md", "Records", data.read_bytes(), 95)

    assert (fields["key_len"], fields["key"]) == (8, -1)
    stop = 95 + 8 + fields["record_len"]
    assert _read("map-files.md", "Records", data.read_bytes(), stop)["key"] == 0


def test_checksum_file() -> None:
    """A written checksum file has the fields of the table."""
    fields = _read("map-files.md", "Checksum file", checksum_file(b"abc"))

    assert fields == {
        "magic": int.from_bytes(b"crc\0", "big"),
        "chunk_len": CHUNK_BYTES,
        "checksum": zlib.crc32(b"abc"),
    }


def test_map_file_names() -> None:
    """The paths of the table are those of the four files."""
    name = MapFileName("a/b/persistent/c", UUID(int=1), 42)
    paths = {
        path.replace("<managed ledger>", name.managed_ledger)
        .replace("<ledger id>", "42")
        .replace("<uuid>", str(name.uuid))
        for _, path, _ in _rows("map-files.md", "# Folders and names\n")
    }
    assert paths == {name.data_name, name.index_name, *name.checksum_names}


def test_vint() -> None:
    """Numbers are read as the table says."""
    rows = [
        row[0].replace("−", "-").split("…") for row in _rows("map-files.md", "# SequenceFile\n")
    ]
    (single, positive, negative) = [[int(each) for each in row] for row in rows]
    for first in single:
        assert read_vint(memoryview(struct.pack(">b", first)), 0) == (first, 1)
    for first in positive:
        data = struct.pack(">b", first) + b"\x01" * (-112 - first)
        assert read_vint(memoryview(data), 0) == (int.from_bytes(data[1:], "big"), len(data))
    for first in negative:
        data = struct.pack(">b", first) + b"\x01" * (-120 - first)
        assert read_vint(memoryview(data), 0) == (~int.from_bytes(data[1:], "big"), len(data))
