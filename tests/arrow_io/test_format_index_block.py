"""The index block: its layout, its checks, and finding entries with it."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptIndexError,
    EntryNotInLedgerError,
    FormatError,
    MissingEntriesError,
    OptionError,
    TruncatedObjectError,
    UnknownFormatError,
)
from arrow_io.format.block_table import BlockEntry
from arrow_io.format.damaged_index import DamagedIndex, read_damaged_index
from arrow_io.format.data_block import BlockHeader
from arrow_io.format.index_block import (
    MAX_INDEX_OBJECT_BYTES,
    METADATA_OFFSET,
    IndexBlock,
    check_format_version,
    read_index_block,
    write_index_block,
)
from arrow_io.format.ledger_metadata import parse_ledger_metadata
from tests.support.encoded_ledgers import encode_ledger
from tests.support.golden import GoldenLedger, golden_topics
from tests.support.offloads import ENTRIES, metadata_of

KEY = "0f8fad5b-d9cb-469f-a165-70867728950e-ledger-9-index"
METADATA = bytes.fromhex(
    "08021002180e2002280332140a0762313a333138310a0762323a333138311000380348025080d095ffbc31"
    "5a1b0a09636f6d706f6e656e74120e6d616e616765642d6c6564676572"
)
FIXED = bytes.fromhex("de47de47 000000a4 00000000000001ce 0000000000000080 00000003 00000048")
ROWS = ((0, 1, 0), (1, 2, 160), (2, 3, 320))
TABLE = bytes.fromhex(
    "0000000000000000 00000001 0000000000000000"
    "0000000000000001 00000002 00000000000000a0"
    "0000000000000002 00000003 0000000000000140"
)
VECTOR = FIXED + METADATA + TABLE


def read(data: bytes) -> IndexBlock:
    """Read an index object with a place for its errors."""
    return read_index_block(data, object_key=KEY, ledger_id=9)


def read_or_error(data: bytes) -> IndexBlock | FormatError:
    """Read an index object, or give the typed error; any other error ends the test."""
    try:
        return read(data)
    except FormatError as error:
        return error


def index_object(
    *,
    index_length: int | None = None,
    data_length: int = 462,
    header_length: int = 128,
    count: int | None = None,
    metadata_length: int | None = None,
    metadata: bytes = METADATA,
    rows: tuple[tuple[int, int, int], ...] = ROWS,
) -> bytes:
    """The index object of the vector with some of its fields changed."""
    table = b"".join(struct.pack(">qiq", *row) for row in rows)
    return (
        struct.pack(
            ">Iiqqii",
            0xDE47DE47,
            32 + len(metadata) + len(table) if index_length is None else index_length,
            data_length,
            header_length,
            len(rows) if count is None else count,
            len(metadata) if metadata_length is None else metadata_length,
        )
        + metadata
        + table
    )


def test_vector_is_read() -> None:
    """The known index object must have the known meaning, and nothing odd."""
    index = read(VECTOR)

    assert index.data_object_length_bytes == 462
    assert index.data_header_length_bytes == 128
    assert index.entries == tuple(BlockEntry(*row) for row in ROWS)
    assert index.ledger_metadata == parse_ledger_metadata(METADATA)
    assert index.warnings == ()


def test_vector_is_written() -> None:
    """The known meaning must have the known bytes."""
    written = write_index_block(
        data_object_length_bytes=462,
        entries=[BlockEntry(*row) for row in ROWS],
        ledger_metadata=parse_ledger_metadata(METADATA),
    )

    assert written == VECTOR == index_object()


@pytest.mark.parametrize(
    "ledger",
    [ledger for topic in golden_topics() for ledger in topic.ledgers],
    ids=lambda ledger: ledger.data_object.name,
)
def test_golden_index_is_read_and_written(ledger: GoldenLedger) -> None:
    """A broker's index must be read without oddities, agree with the admin API, be rewritten."""
    data = ledger.index_object.read_bytes()

    index = read(data)

    assert index.warnings == ()
    assert index.missing_from_entry_id is None
    assert index.entry_count == ledger.entry_count
    assert index.ledger_metadata.length_bytes == ledger.length_bytes
    assert index.data_object_length_bytes == ledger.data_object.stat().st_size
    assert (
        write_index_block(
            data_object_length_bytes=index.data_object_length_bytes,
            entries=index.entries,
            ledger_metadata=index.ledger_metadata,
        )
        == data
    )


def test_blocks_of_the_vector() -> None:
    """Each block must have its bytes (half-open), its entries (inclusive) and its header."""
    index = read(VECTOR)

    assert (index.block_count, index.entry_count, index.last_entry_id) == (3, 3, 2)
    assert index.missing_from_entry_id is None
    blocks = range(index.block_count)
    assert [(index.block_start(i), index.block_stop(i)) for i in blocks] == [
        (0, 160),
        (160, 320),
        (320, 462),
    ]
    assert [(index.first_entry_id(i), index.block_last_entry_id(i)) for i in blocks] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]
    assert index.block_header(1) == BlockHeader(160, 1, 128)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_block_of_finds_every_entry(counts: list[int]) -> None:
    """The block of an entry must be the one that holds it, for any numbers of entries in blocks."""
    rows, first_entry_id, offset = [], 0, 0
    for part_id, count in enumerate(counts, start=1):
        rows.append((first_entry_id, part_id, offset))
        first_entry_id += count
        offset += 128 + 12 * count
    metadata = replace(
        parse_ledger_metadata(METADATA), last_entry_id=first_entry_id - 1, length_bytes=0
    )
    index = read(index_object(data_length=offset, metadata=metadata.serialize(), rows=tuple(rows)))

    expected = [block for block, count in enumerate(counts) for _ in range(count)]
    assert [index.find_block(entry_id) for entry_id in range(index.entry_count)] == expected


@pytest.mark.parametrize("entry_id", [-1, 3, 2**63])
def test_entries_outside_the_ledger(entry_id: int) -> None:
    """An entry id outside the ledger must be a typed error that names it."""
    with pytest.raises(EntryNotInLedgerError, match="0 … 2") as caught:
        read(VECTOR).find_block(entry_id)

    assert caught.value.entry_id == entry_id


@pytest.mark.parametrize("block", [-1, 3])
def test_blocks_outside_the_ledger(block: int) -> None:
    """A block number outside the ledger must be a typed error in each method."""
    index = read(VECTOR)

    for method in (
        index.block_start,
        index.block_stop,
        index.first_entry_id,
        index.block_last_entry_id,
        index.block_header,
    ):
        with pytest.raises(OptionError, match=f"no block {block}"):
            method(block)


def test_index_is_picklable_and_compact() -> None:
    """Ten thousand blocks must cross processes in not much more than their bytes."""
    n_blocks = 10_000
    metadata = replace(parse_ledger_metadata(METADATA), last_entry_id=n_blocks - 1)
    index = read(
        index_object(
            data_length=200 * n_blocks,
            metadata=metadata.serialize(),
            rows=tuple((i, i + 1, 200 * i) for i in range(n_blocks)),
        )
    )

    pickled = pickle.dumps(index)

    assert pickle.loads(pickled) == index
    assert len(pickled) < 20 * n_blocks + 2000
    assert index.find_block(n_blocks - 1) == n_blocks - 1


def test_lost_entries_are_told() -> None:
    """An index entry at the end of the data object must mean that its entries were lost."""
    index = read(index_object(data_length=320))

    assert index.missing_from_entry_id == 2
    assert (index.block_count, index.last_entry_id) == (2, 2)
    assert index.find_block(1) == 1
    assert (index.block_stop(1), index.block_last_entry_id(1)) == (320, 1)
    with pytest.raises(MissingEntriesError, match="entries 2 … 2 were lost") as caught:
        index.find_block(2)
    assert caught.value.entry_id == 2
    with pytest.raises(OptionError):
        index.block_start(2)


def test_all_entries_may_be_lost() -> None:
    """A ledger whose first entry fits no block must still be read, as one without blocks."""
    index = read(index_object(data_length=0, rows=((0, 1, 0),)))

    assert (index.missing_from_entry_id, index.block_count, index.entry_count) == (0, 0, 3)
    with pytest.raises(MissingEntriesError, match="entries 0 … 2 were lost"):
        index.find_block(0)


@pytest.mark.parametrize(
    ("magic", "words"),
    [
        (0x3D1FB0BC, "3D1FB0BC.*index block of streaming offload"),
        (0xDEAD1234, "DEAD1234, expected 0xDE47DE47.*draft"),
        (1000, "000003E8, expected 0xDE47DE47.*prototype"),
        (0xFBDBABCB, "FBDBABCB, expected 0xDE47DE47.*a data block"),
        (0x504B0304, "504B0304, expected 0xDE47DE47"),
    ],
)
@pytest.mark.parametrize("length", [4, len(VECTOR)])
def test_other_magics_are_refused_by_name(magic: int, words: str, length: int) -> None:
    """Another magic must be named with the expected one, however short the object is."""
    with pytest.raises(UnknownFormatError, match=words) as caught:
        read((magic.to_bytes(4) + VECTOR[4:])[:length])

    assert (caught.value.object_key, caught.value.ledger_id) == (KEY, 9)
    assert caught.value.offset == 0


@pytest.mark.parametrize(
    ("damaged", "words", "offset"),
    [
        (index_object(index_length=163), "index length 163, .* 164", 4),
        (index_object(index_length=168) + b"tail", "index length 168", 4),
        (index_object(index_length=-1), "index length -1", 4),
        (index_object(data_length=-1), "data object length -1 is negative", 8),
        (index_object(header_length=27), "block header length 27", 16),
        (index_object(header_length=4097), "block header length 4097", 16),
        (index_object(header_length=-128), "block header length -128", 16),
        (index_object(rows=()), "number of blocks 0", 24),
        (index_object(count=-1), "number of blocks -1", 24),
        (index_object(count=2), "fields add up to 144", 4),
        (index_object(count=2**31 - 1), "fields add up to 42949673044", 4),
        (index_object(metadata_length=-1), "ledger metadata length -1", 28),
        (index_object(metadata_length=2**31 - 1), "fields add up to 2147483739", 4),
        (index_object(metadata=b"\x08\x02"), "lacks ensembleSize", None),
        (index_object(rows=((1, 1, 0), *ROWS[1:])), "entry 1 at offset 0", 104),
        (index_object(rows=((0, 1, 1), *ROWS[1:])), "entry 0 at offset 1", 104),
        (index_object(rows=(*ROWS[:2], (1, 3, 320))), "160 bytes with 0 entries", 144),
        (index_object(rows=(*ROWS[:2], (0, 3, 320))), "160 bytes with -1 entries", 144),
        (index_object(rows=(*ROWS[:2], (2, 3, 160))), "of 0 bytes with 1 entry", 144),
        (index_object(rows=(*ROWS[:2], (2, 3, 159))), "of -1 bytes", 144),
        (index_object(rows=(*ROWS[:2], (3, 3, 320))), "142 bytes with 0 entries", 164),
        (index_object(rows=(*ROWS[:2], (2, 3, 463))), "of -1 bytes", 164),
        (index_object(rows=((0, 1, 0), (2, 2, 151))), "151 bytes with 2 entries", 124),
        (index_object(data_length=459), "139 bytes with 1 entry", 164),
        (index_object(data_length=320, rows=(*ROWS[:2], (3, 3, 320))), "id 3 is after .* 2", 164),
        (
            index_object(metadata=METADATA.replace(b"\x18\x0e", b"\x18\x2b")),
            "3 entries of 43 bytes do not fit in 462 bytes",
            8,
        ),
        (
            index_object(metadata=METADATA.replace(b"\x20\x02", b"\x20\x7f")),
            "142 bytes with 126 entries",
            164,
        ),
        (bytes(4) + bytes(MAX_INDEX_OBJECT_BYTES), "at most 67108864 allowed", 0),
    ],
)
def test_contradictions_are_corrupt(damaged: bytes, words: str, offset: int | None) -> None:
    """Each check must raise its typed error, with the place in the object, and take no memory."""
    tracemalloc.start()
    try:
        with pytest.raises(CorruptIndexError, match=words) as caught:
            read(damaged)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (caught.value.object_key, caught.value.ledger_id) == (KEY, 9)
    assert caught.value.offset == offset
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("length", range(len(VECTOR)))
def test_every_truncation_is_told(length: int) -> None:
    """An index object cut anywhere must be told as truncated."""
    with pytest.raises(TruncatedObjectError) as caught:
        read(VECTOR[:length])

    assert (caught.value.object_key, caught.value.offset) == (KEY, length)


def test_flipped_bytes_change_one_meaning_or_are_told() -> None:
    """Any value of any byte must give a typed error, or differ only in the field the byte is in."""
    intact = read(VECTOR)
    fields = {
        8: ("data_object_length_bytes",),
        16: ("data_header_length_bytes", "warnings"),
        32: ("ledger_metadata",),
        104: ("entry_table", "warnings"),
    }
    survivors = set()
    for position in range(len(VECTOR)):
        start = max(field for field in (*fields, 0, 4, 24, 28) if field <= position)
        for value in range(256):
            damaged = bytearray(VECTOR)
            damaged[position] = value
            outcome = read_or_error(bytes(damaged))
            if isinstance(outcome, FormatError):
                assert (outcome.object_key, outcome.ledger_id) == (KEY, 9)
            else:
                restored = {name: getattr(intact, name) for name in fields.get(start, ())}
                assert replace(outcome, **restored) == intact
                if value != VECTOR[position]:
                    survivors.add(start)
    assert survivors == {8, 16, 32, 104}


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_an_index_or_an_error(tail: bytes) -> None:
    """Whatever follows the magic, nothing but a typed error may come out."""
    for data in (tail, VECTOR[:4] + tail, VECTOR[:32] + tail, VECTOR[:104] + tail):
        outcome = read_or_error(data)
        if isinstance(outcome, FormatError):
            assert outcome.object_key == KEY
        else:
            assert outcome.block_count <= 3


@pytest.mark.parametrize("part_ids", [(0, 1, 2), (1, 1, 1), (3, 2, 1)])
def test_odd_part_ids_are_a_warning(part_ids: tuple[int, int, int]) -> None:
    """Part ids serve nobody who reads: others than 1, 2, 3, … must be told, not refused."""
    rows = tuple(
        (first, part, offset) for part, (first, _, offset) in zip(part_ids, ROWS, strict=True)
    )
    index = read(index_object(rows=rows))

    assert index.warnings == ("the part ids are not 1, 2, 3, …",)
    assert index.block_stop(2) == 462


def test_odd_header_length_is_a_warning() -> None:
    """Block headers of another believable length must be told, not refused."""
    index = read(index_object(header_length=100))

    assert index.warnings == ("block headers of 100 bytes; Pulsar writes 128",)
    assert index.block_header(0) == BlockHeader(160, 0, 100)


@pytest.mark.parametrize(
    "data",
    [
        VECTOR + b"tail",
        VECTOR + b"\xe1\xd3\xe1\xd3",
        index_object(index_length=168) + b"\xe1\xd3\xe1\xd3",
    ],
)
def test_trailing_bytes_are_a_warning(data: bytes) -> None:
    """Bytes behind the index block must be ignored and told; a fork appends a directory there."""
    index = read(data)

    assert index.warnings == ("4 bytes follow the index block and were ignored",)
    assert replace(index, warnings=()) == read(VECTOR)


@pytest.mark.parametrize(
    "key", ["s3managedledgeroffloaderformatversion", "S3ManagedLedgerOffloaderFormatVersion"]
)
def test_format_version(key: str) -> None:
    """Version 1 must pass whatever the key's case; any other must be refused by name."""
    assert check_format_version({"role": "data", key: "1"}, object_key=KEY) is None
    for version in ("2", "aws-sdk-s3-1", "", "01"):
        with pytest.raises(UnknownFormatError, match=f"'{version}', expected '1'") as caught:
            check_format_version({key: version}, object_key=KEY)
        assert caught.value.object_key == KEY


@pytest.mark.parametrize("user_metadata", [None, {}, {"role": "data"}])
def test_absent_format_version_is_a_warning(user_metadata: dict[str, str] | None) -> None:
    """Copies by other tools lose the user metadata: that must be told, not refused."""
    warning = check_format_version(user_metadata, object_key=KEY)

    assert warning is not None
    assert KEY in warning
    assert "s3managedledgeroffloaderformatversion" in warning


def test_contradicting_format_versions_are_refused() -> None:
    """Where two keys differ in case only, one wrong version must be enough to refuse."""
    key = "s3managedledgeroffloaderformatversion"

    with pytest.raises(UnknownFormatError, match="'2'"):
        check_format_version({key: "1", key.upper(): "2"}, object_key=KEY)


# A damaged index


_INDEX: Final = encode_ledger(ENTRIES, metadata_of(ENTRIES), block_bytes=250).index
_SOUND: Final = read_index_block(_INDEX, object_key="")
_METADATA_STOP: Final = len(_INDEX) - len(_SOUND.entry_table)


def test_one_byte_beside_the_metadata_hides_nothing_of_it() -> None:
    """Neither in the fields before it nor in the index entries behind it."""
    for place in (*range(METADATA_OFFSET), *range(_METADATA_STOP, len(_INDEX))):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(_INDEX)
            damaged[place] ^= flip
            assert read_damaged_index(bytes(damaged)).ledger_metadata == _SOUND.ledger_metadata


def test_what_is_cut_behind_the_metadata_still_has_it() -> None:
    """And what is cut before has nothing, or not that."""
    assert read_damaged_index(_INDEX).data_object_length_bytes == _SOUND.data_object_length_bytes
    for length in range(len(_INDEX) + 1):
        found = read_damaged_index(_INDEX[:length]).ledger_metadata
        assert found == (_SOUND.ledger_metadata if length >= _METADATA_STOP else None)
    assert read_damaged_index(b"") == DamagedIndex()


@given(data=st.binary(max_size=300))
def test_any_bytes_are_taken(data: bytes) -> None:
    """Nothing is raised, and nothing long is made."""
    read_damaged_index(data)
    read_damaged_index(_INDEX[:32] + data)
