"""BookKeeper's LedgerMetadataFormat."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import CorruptIndexError, FormatError, OptionError, UnknownFormatError
from arrow_io.format.ledger_metadata import (
    DigestType,
    LedgerMetadata,
    LedgerSegment,
    LedgerState,
    parse_ledger_metadata,
)
from tests.support.golden import GoldenLedger, golden_topics
from tests.support.reference_ledger import read_index

VECTOR = bytes.fromhex(
    "08021002180e2002280332140a0762313a333138310a0762323a333138311000380348025080d095ffbc31"
    "5a1b0a09636f6d706f6e656e74120e6d616e616765642d6c6564676572"
)
MEANING = LedgerMetadata(
    length_bytes=14,
    last_entry_id=2,
    write_quorum_size=2,
    ensemble_size=2,
    state=LedgerState.CLOSED,
    segments=(LedgerSegment(0, ("b1:3181", "b2:3181")),),
    digest_type=DigestType.CRC32C,
    ack_quorum_size=2,
    ctime_ms=1_700_000_000_000,
    custom_metadata={"component": b"managed-ledger"},
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
METADATA = st.builds(
    LedgerMetadata,
    length_bytes=st.integers(0, 2**63 - 1),
    last_entry_id=st.integers(0, 2**63 - 1),
    write_quorum_size=INT32,
    ensemble_size=INT32,
    state=st.sampled_from(LedgerState),
    segments=st.lists(
        st.builds(LedgerSegment, INT64, st.lists(TEXT, max_size=3).map(tuple)), max_size=3
    ).map(tuple),
    digest_type=st.none() | st.sampled_from(DigestType),
    password=st.none() | st.binary(max_size=10),
    ack_quorum_size=st.none() | INT32,
    ctime_ms=st.none() | INT64,
    custom_metadata=st.dictionaries(TEXT, st.binary(max_size=20), max_size=4),
    c_token=st.none() | INT64,
)


def test_vector_is_read() -> None:
    """The known bytes must have the known meaning."""
    assert parse_ledger_metadata(VECTOR) == MEANING


def test_vector_is_written() -> None:
    """The known meaning must have the known bytes."""
    assert MEANING.serialize() == VECTOR


@pytest.mark.parametrize(
    "ledger",
    [ledger for topic in golden_topics() for ledger in topic.ledgers],
    ids=lambda ledger: ledger.data_object.name,
)
def test_golden_metadata_is_written_as_the_broker_wrote_it(ledger: GoldenLedger) -> None:
    """Metadata of a broker must come out byte for byte, from its fields alone as well."""
    reference = read_index(ledger.index_object.read_bytes())

    metadata = parse_ledger_metadata(reference.metadata)

    assert metadata.managed_ledger_name == reference.managed_ledger
    assert (metadata.length_bytes, metadata.last_entry_id) == (
        reference.ledger_length,
        reference.last_entry_id,
    )
    assert metadata.serialize() == reference.metadata
    assert replace(metadata).raw is None
    assert replace(metadata).serialize() == reference.metadata


def test_fields_that_pulsar_does_not_write_have_their_numbers() -> None:
    """Password and token, which no broker writes, must stand in BookKeeper's fields 8 and 12."""
    raw = VECTOR.replace(b"\x38\x03", b"\x38\x03\x42\x02pw") + b"\x60\x07"

    assert parse_ledger_metadata(raw) == replace(MEANING, password=b"pw", c_token=7)


@given(METADATA)
def test_any_metadata_is_read_back(metadata: LedgerMetadata) -> None:
    """Every field must survive writing and reading."""
    parsed = parse_ledger_metadata(metadata.serialize())

    assert parsed == metadata
    assert list(parsed.custom_metadata) == list(metadata.custom_metadata)


def test_unknown_fields_are_kept_until_a_field_is_changed() -> None:
    """Fields of a newer BookKeeper must be written back, but never beside a changed field."""
    raw = VECTOR + bytes.fromhex("f80601")
    parsed = parse_ledger_metadata(raw)

    assert parsed == MEANING
    assert parsed.serialize() == raw
    assert replace(parsed, last_entry_id=1).serialize() == VECTOR.replace(b"\x20\x02", b"\x20\x01")


def test_unknown_digest_is_none() -> None:
    """A digest type of a newer BookKeeper must not stop reading: the bucket has no digests."""
    parsed = parse_ledger_metadata(VECTOR.replace(b"\x38\x03", b"\x38\x63"))

    assert parsed == replace(MEANING, digest_type=None)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("0802", "quorumSize"),
        ("1002", "ensembleSize"),
        ("180e", "length"),
        ("2002", "lastEntryId"),
        ("2803", "state"),
    ],
)
def test_absent_fields_are_named(field: str, names: str) -> None:
    """A field that must be there must be named, whatever else is absent."""
    with pytest.raises(CorruptIndexError, match=f"lacks {names}$"):
        parse_ledger_metadata(VECTOR.replace(bytes.fromhex(field), b"", 1))
    with pytest.raises(CorruptIndexError, match=names):
        parse_ledger_metadata(b"")


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (VECTOR[:-1], "not a LedgerMetadataFormat"),
        (VECTOR + b"\x0a", "not a LedgerMetadataFormat"),
        (VECTOR.replace(b"\x28\x03", b"\x28\x07"), "lacks state"),
        (VECTOR.replace(b"b1:", b"\xff1:"), "not UTF-8"),
        (VECTOR.replace(b"component", b"\xffomponent"), "not UTF-8"),
        (VECTOR + b"\x20" + b"\xff" * 9 + b"\x01", "last entry id -1"),
        (VECTOR + b"\x18" + b"\xff" * 9 + b"\x01", "length of -1"),
        (b"\x0b" * 10_000, "not a LedgerMetadataFormat"),
    ],
)
def test_damaged_metadata_is_corrupt(damaged: bytes, words: str) -> None:
    """Damage that can be seen must be a typed error in words."""
    with pytest.raises(CorruptIndexError, match=words):
        parse_ledger_metadata(damaged)


def test_store_form_is_refused_by_name() -> None:
    """BookKeeper's own form in its metadata store must not be taken for protobuf."""
    with pytest.raises(UnknownFormatError, match="metadata store"):
        parse_ledger_metadata(b"BookieMetadataFormatVersion\t3\n" + VECTOR)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_metadata_or_an_error(data: bytes) -> None:
    """Whatever the bytes are, nothing but a typed error may come out."""
    try:
        metadata = parse_ledger_metadata(data)
    except FormatError:
        return
    assert metadata.serialize() == data


def test_managed_ledger_name() -> None:
    """The managed-ledger name must be the custom metadata's, be absent, or be a typed error."""
    name = "public/default/persistent/caf%C3%A9-partition-0"
    key = "pulsar/managed-ledger"

    assert MEANING.managed_ledger_name is None
    assert replace(MEANING, custom_metadata={key: name.encode()}).managed_ledger_name == name
    with pytest.raises(CorruptIndexError, match="not UTF-8"):
        _ = replace(MEANING, custom_metadata={key: b"\xff"}).managed_ledger_name


@pytest.mark.parametrize(
    "impossible",
    [
        replace(MEANING, ensemble_size=2**31),
        replace(MEANING, length_bytes=2**63),
        replace(MEANING, segments=(LedgerSegment(-(2**63) - 1, ()),)),
        replace(MEANING, custom_metadata={"\ud800": b""}),
    ],
)
def test_numbers_out_of_range_cannot_be_written(impossible: LedgerMetadata) -> None:
    """A value that its field cannot hold must be a typed error."""
    with pytest.raises(OptionError, match="cannot be written"):
        impossible.serialize()


def test_metadata_is_hashable() -> None:
    """Equal metadata must have equal hashes, although it holds a mapping."""
    assert hash(parse_ledger_metadata(VECTOR)) == hash(MEANING)
