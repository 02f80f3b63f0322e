"""Entries to the data and index objects of an offloaded ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import EntryTooLargeError, MissingEntriesError, OptionError
from arrow_io.format.index_block import read_index_block
from arrow_io.format.ledger_metadata import (
    LedgerMetadata,
    LedgerSegment,
    LedgerState,
    parse_ledger_metadata,
)
from arrow_io.ledgers.writer import LedgerWriter, new_ledger_metadata
from tests.support.encoded_ledgers import encode_ledger
from tests.support.golden import GoldenLedger, golden_topics
from tests.support.reference_ledger import read_entries, read_index

if TYPE_CHECKING:
    from collections.abc import Iterator

VECTOR_ENTRIES = [b"aaaaa", b"bbbbbbb", b"cc"]
VECTOR_METADATA = parse_ledger_metadata(
    bytes.fromhex(
        "08021002180e2002280332140a0762313a333138310a0762323a333138311000380348025080d095ffbc31"
        "5a1b0a09636f6d706f6e656e74120e6d616e616765642d6c6564676572"
    )
)
HEADERS = [
    f"fbdbabcb 0000000000000080 {length} {first_entry_id} {'00' * 100}"
    for length, first_entry_id in (
        ("00000000000000a0", "0000000000000000"),
        ("00000000000000a0", "0000000000000001"),
        ("000000000000008e", "0000000000000002"),
    )
]
VECTOR_BLOCKS = [
    bytes.fromhex(header + body)
    for header, body in zip(
        HEADERS,
        (
            "00000005 0000000000000000 6161616161 fedcdead fedcdead fedcdead fedcde",
            "00000007 0000000000000001 62626262626262 fedcdead fedcdead fedcdead fe",
            "00000002 0000000000000002 6363",
        ),
        strict=True,
    )
]
VECTOR_INDEX = bytes.fromhex(
    "de47de47 000000a4 00000000000001ce 0000000000000080 00000003 00000048"
    f"{VECTOR_METADATA.serialize().hex()}"
    "0000000000000000 00000001 0000000000000000"
    "0000000000000001 00000002 00000000000000a0"
    "0000000000000002 00000003 0000000000000140"
)


def golden_entries(ledger: GoldenLedger) -> list[bytes]:
    """The entries of a golden ledger, as the independent reader finds them."""
    return read_entries(ledger.data_object.read_bytes(), ledger.index_object.read_bytes())


def metadata_of(entries: list[bytes]) -> LedgerMetadata:
    """Metadata of a ledger with these entries."""
    return new_ledger_metadata(
        map(len, entries), managed_ledger="public/default/persistent/orders", ctime_ms=1
    )


def test_vector() -> None:
    """The known entries must give the known bytes of each block and of the index object."""
    writer = LedgerWriter(VECTOR_METADATA, block_bytes=160)

    assert list(writer.blocks(VECTOR_ENTRIES)) == VECTOR_BLOCKS
    assert writer.index() == VECTOR_INDEX


@pytest.mark.parametrize(
    "ledger",
    [ledger for topic in golden_topics() for ledger in topic.ledgers],
    ids=lambda ledger: ledger.data_object.name,
)
def test_golden_ledgers_are_written_as_the_broker_wrote_them(ledger: GoldenLedger) -> None:
    """Entries and metadata of a broker's ledger must give its two objects byte for byte."""
    index = ledger.index_object.read_bytes()
    metadata = read_index_block(index, object_key=ledger.index_object.name).ledger_metadata

    # Without the bytes it was parsed from, the metadata is written from its fields.
    written = encode_ledger(golden_entries(ledger), replace(metadata))

    assert written.data == ledger.data_object.read_bytes()
    assert written.index == index


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.integers(440, 3000))
def test_the_reference_reads_what_is_written(entries: list[bytes], block_bytes: int) -> None:
    """Any entries in blocks of any size must be read back by the independent reader."""
    metadata = metadata_of(entries)
    writer = LedgerWriter(metadata, block_bytes=block_bytes)

    blocks = list(writer.blocks(entries))

    assert read_entries(b"".join(blocks), writer.index()) == entries
    assert {len(block) for block in blocks[:-1]} <= {block_bytes}
    index = read_index_block(writer.index(), object_key="index")
    assert (index.ledger_metadata, index.warnings) == (metadata, ())
    assert [index.block_stop(i) - index.block_start(i) for i in range(index.block_count)] == list(
        map(len, blocks)
    )


@given(st.integers(0, 200), st.integers(-2, 2))
def test_entries_about_as_long_as_a_block(length_bytes: int, more: int) -> None:
    """An entry that just fits a block must be alone in it; one byte more must be refused."""
    block_bytes = 140 + length_bytes + more
    entries = [bytes(length_bytes)] * 3
    if more < 0:
        if block_bytes >= 140:
            with pytest.raises(EntryTooLargeError) as caught:
                encode_ledger(entries, metadata_of(entries), block_bytes=block_bytes)
            assert caught.value.entry_id == 0
        return
    written = encode_ledger(entries, metadata_of(entries), block_bytes=block_bytes)

    assert read_entries(written.data, written.index) == entries
    assert len(read_index(written.index).blocks) == 3


def test_entry_too_large_is_told() -> None:
    """An entry that fits no block must be refused with its id and the limit, not lost."""
    entries = [b"fits", bytes(101), b"fits"]

    with pytest.raises(
        EntryTooLargeError, match="101 bytes; blocks of 240 bytes hold at most 100"
    ) as caught:
        encode_ledger(entries, metadata_of(entries), block_bytes=240)

    assert caught.value.entry_id == 1


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        ([], MissingEntriesError, "end after 0 of 3"),
        (VECTOR_ENTRIES[:2], MissingEntriesError, "end after 2 of 3"),
        ([*VECTOR_ENTRIES, b"d"], OptionError, "more or longer"),
        ([*VECTOR_ENTRIES, b""], OptionError, "more or longer"),
        ([b"aaaaa", b"bbbbbbb", b"ccc"], OptionError, "more or longer"),
        ([b"aaaaa", b"bbbbbbb", bytes(20)], OptionError, "more or longer"),
        ([b"aaaaa", b"bbbbbbb", b"c"], OptionError, "3 entries of 13 bytes .* 3 entries of 14"),
        ([b"", b"", b"", b""], OptionError, "4 entries of 0 bytes .* 3 entries of 14"),
    ],
)
@pytest.mark.parametrize("block_bytes", [160, 10_000])
def test_entries_that_disagree_with_the_metadata(
    entries: list[bytes], error: type[Exception], words: str, block_bytes: int
) -> None:
    """Other entries than the metadata counts must be a typed error, and give no index object."""
    writer = LedgerWriter(VECTOR_METADATA, block_bytes=block_bytes)

    with pytest.raises(error, match=words):
        list(writer.blocks(entries))
    with pytest.raises(MissingEntriesError, match="not every block"):
        writer.index()


@pytest.mark.parametrize("block_bytes", [-1, 0, 139, 2**31])
def test_impossible_block_sizes_are_refused(block_bytes: int) -> None:
    """A block size that holds no entry, or no Java int, must be refused with what is allowed."""
    with pytest.raises(OptionError, match=f"is {block_bytes}; allowed are 140 … 2147483647"):
        LedgerWriter(VECTOR_METADATA, block_bytes=block_bytes)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (replace(VECTOR_METADATA, last_entry_id=-1, length_bytes=0), "an empty ledger"),
        (replace(VECTOR_METADATA, length_bytes=-1), "length -1"),
        (replace(VECTOR_METADATA, state=LedgerState.OPEN), "not OPEN"),
        (replace(VECTOR_METADATA, state=LedgerState.IN_RECOVERY), "not IN_RECOVERY"),
    ],
)
def test_ledgers_that_cannot_be_offloaded(metadata: LedgerMetadata, words: str) -> None:
    """An empty ledger and one that is not closed must be refused before anything is written."""
    with pytest.raises(OptionError, match=words):
        LedgerWriter(metadata)


def test_index_is_known_only_at_the_end() -> None:
    """The index object must not be given before all blocks are taken, nor while they are anew."""
    writer = LedgerWriter(VECTOR_METADATA, block_bytes=160)

    for attempt in range(2):
        blocks = writer.blocks(VECTOR_ENTRIES)
        for expected in VECTOR_BLOCKS:
            assert next(blocks) == expected, attempt
            with pytest.raises(MissingEntriesError):
                writer.index()
        assert next(blocks, None) is None
        assert writer.index() == VECTOR_INDEX


def test_blocks_are_given_as_soon_as_they_are_full() -> None:
    """No more entries may be taken than the block that is given out needs, but for the next one."""
    taken: list[bytes] = []

    def entries() -> Iterator[bytes]:
        for entry in VECTOR_ENTRIES:
            taken.append(entry)
            yield entry

    blocks = LedgerWriter(VECTOR_METADATA, block_bytes=160).blocks(entries())

    assert next(blocks) == VECTOR_BLOCKS[0]
    assert taken == VECTOR_ENTRIES[:2]


def test_a_buffer_may_be_used_again() -> None:
    """An entry must be copied when it is taken: callers read into one buffer over and over."""
    buffer = bytearray(7)

    def entries() -> Iterator[memoryview]:
        for entry in VECTOR_ENTRIES:
            view = memoryview(buffer)[: len(entry)]
            view[:] = entry
            yield view
            view[:] = bytes(len(entry))

    written = encode_ledger(entries(), VECTOR_METADATA, block_bytes=10_000)

    assert read_entries(written.data, written.index) == VECTOR_ENTRIES


def test_new_metadata() -> None:
    """Made metadata must have every field that a broker writes, and name the managed ledger."""
    metadata = new_ledger_metadata(
        [3, 0, 4], managed_ledger="public/default/persistent/orders", ctime_ms=1_700_000_000_000
    )

    assert (metadata.length_bytes, metadata.last_entry_id) == (7, 2)
    assert metadata.state is LedgerState.CLOSED
    assert metadata.segments == (LedgerSegment(0, ("127.0.0.1:3181",)),)
    assert None not in (metadata.digest_type, metadata.ack_quorum_size)
    assert metadata.ctime_ms == 1_700_000_000_000
    assert metadata.managed_ledger_name == "public/default/persistent/orders"
    assert parse_ledger_metadata(metadata.serialize()) == metadata


def test_new_metadata_of_an_empty_ledger() -> None:
    """An empty ledger must be refused: it has no offloaded form."""
    with pytest.raises(OptionError, match="empty ledger"):
        new_ledger_metadata([], managed_ledger="public/default/persistent/orders", ctime_ms=0)
