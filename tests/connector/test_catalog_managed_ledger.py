"""The metadata store's value of a topic is read and written as a broker does it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_io.errors import (
    CorruptMetadataError,
    FormatError,
    OptionError,
)
from connector.catalog.metadata.managed_ledger import (
    parse_managed_ledger_info,
    serialize_managed_ledger_info,
)
from connector.catalog.metadata.topic_metadata import (
    MAX_METADATA_BYTES,
    LedgerInfo,
    OffloadContext,
    OffloadSegment,
    TopicMetadata,
    checked_ledgers,
)
from connector.inputs.topic_names import TopicName
from tests.support.codecs import CODECS, Codec, compressed_managed_ledger
from tests.support.golden import GOLDEN, GoldenTopic, golden_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC: Final = TopicName.parse("orders")
VECTOR: Final = bytes.fromhex(
    "0a2b"  # a ledger of 43 bytes
    "0807100318e707"  # ledgerId 7, entries 3, size 999
    "20e807"  # timestamp 1000
    "2a1f"  # offloadContext of 31 bytes
    "08ffffffffffffffffff011002"  # uidMsb −1, uidLsb 2
    "180120012801"  # complete, bookkeeperDeleted, timestamp 1
    "320a0a016412050a016b1200"  # driverMetadata {name "d", properties {"k": ""}}
    "0a04080b2000"  # a ledger with ledgerId 11 and timestamp 0
    "1204080b100a"  # terminatedPosition 11:10
    "1a060a01701201"  # property p
    "71"
)
MEANING: Final = TopicMetadata(
    topic=TOPIC,
    ledgers=(
        LedgerInfo(
            ledger_id=7,
            entries=3,
            size_bytes=999,
            timestamp_ms=1000,
            offload=OffloadContext(
                uuid=UUID("ffffffff-ffff-ffff-0000-000000000002"),
                complete=True,
                bookkeeper_deleted=True,
                timestamp_ms=1,
                driver="d",
                driver_properties={"k": ""},
            ),
        ),
        LedgerInfo(ledger_id=11),
    ),
    terminated_position=(11, 10),
    properties={"p": "q"},
)

_INT64: Final = st.integers(0, 2**63 - 1)
_SHARE: Final = st.integers(0, 2**58)
"""Of what the 20 ledgers of a topic may have together."""
_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_PROPERTIES: Final = st.dictionaries(_TEXT, _TEXT, max_size=3)
_OFFLOADS: Final = st.builds(
    OffloadContext,
    uuid=st.none() | st.uuids(),
    complete=st.booleans(),
    bookkeeper_deleted=st.booleans(),
    timestamp_ms=st.none() | st.integers(1, 2**63 - 1),
    driver=_TEXT,
    driver_properties=_PROPERTIES,
)
_LEDGERS: Final = st.builds(
    LedgerInfo,
    ledger_id=_INT64,
    entries=st.none() | _SHARE,
    size_bytes=st.none() | _SHARE,
    timestamp_ms=st.none() | st.integers(1, 2**63 - 1),
    offload=st.none() | _OFFLOADS,
    properties=_PROPERTIES,
)
_METADATA: Final = st.builds(
    TopicMetadata,
    topic=st.just(TOPIC),
    ledgers=st.lists(_LEDGERS, max_size=20, unique_by=lambda ledger: ledger.ledger_id).map(
        checked_ledgers
    ),
    terminated_position=st.none() | st.tuples(_INT64, st.integers(-1, 2**63 - 1)),
    properties=_PROPERTIES,
)


def _varint(number: int) -> bytes:
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes(group | 0x80 for group in groups[:-1]) + bytes(groups[-1:])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _listed(topic: GoldenTopic) -> Sequence[tuple[int, int, int, bool]]:
    topics = json.loads((GOLDEN / topic.set_name / "topics.json").read_text())
    return [
        (each["ledger"], each["entries"], each["size"], each["offloaded"])
        for each in topics[topic.name]["ledgers"]
    ]


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_value_is_read(topic: GoldenTopic) -> None:
    """A broker's value must give its ledgers in order, and the uuids that name the objects."""
    data = (topic.folder / "managed-ledger-info.bin").read_bytes()

    metadata = parse_managed_ledger_info(data, TopicName.parse(topic.name))

    *closed, last = metadata.ledgers
    # The value is older than the list: the open ledger was another one.
    assert [
        (each.ledger_id, each.entries, each.size_bytes, each.is_offloaded) for each in closed
    ] == list(_listed(topic)[:-1])
    assert (last.entries, last.size_bytes, last.timestamp_ms, last.offload) == (None,) * 4
    offloads = [each.offload for each in closed if each.offload]
    assert [str(each.uuid) for each in offloads] == [each.uuid for each in topic.ledgers]
    for offload in offloads:
        assert (offload.driver, offload.bookkeeper_deleted) == ("aws-s3", False)
        assert offload.bucket
        assert offload.timestamp_ms


@pytest.mark.parametrize("topic", golden_topics(), ids=str)
def test_golden_value_is_written_as_the_broker_wrote_it(topic: GoldenTopic) -> None:
    """A broker's value must come out byte for byte, in the broker's own order of ledgers."""
    data = (topic.folder / "managed-ledger-info.bin").read_bytes()

    metadata = parse_managed_ledger_info(data, TopicName.parse(topic.name))

    assert serialize_managed_ledger_info(metadata) == data


def test_vector_has_its_meaning() -> None:
    """Every field must have the number that MLDataFormats.proto gives it."""
    assert parse_managed_ledger_info(VECTOR, TOPIC) == MEANING
    assert serialize_managed_ledger_info(MEANING) == VECTOR


@given(_METADATA, st.sampled_from(CODECS))
def test_any_metadata_is_read_back(metadata: TopicMetadata, codec: Codec) -> None:
    """What is written must be read back the same, bare or in any codec."""
    data = serialize_managed_ledger_info(metadata)

    assert parse_managed_ledger_info(data, TOPIC) == metadata
    compressed = compressed_managed_ledger(codec, data)
    assert parse_managed_ledger_info(compressed, TOPIC) == metadata


@pytest.mark.parametrize("ledger_id", [2**16 + 1, 2**32 + 1], ids=["16-bits", "32-bits"])
def test_great_ledger_ids_are_written_in_the_brokers_order(ledger_id: int) -> None:
    """Java folds the upper bits of a long into its hash: these come into the bucket before 1."""
    ledgers = (LedgerInfo(ledger_id=1, entries=1), LedgerInfo(ledger_id=ledger_id, entries=1))

    data = serialize_managed_ledger_info(TopicMetadata(topic=TOPIC, ledgers=ledgers))

    assert data == b"".join(
        _field(1, b"\x08" + _varint(each) + b"\x10\x01") for each in (ledger_id, 1)
    )


def test_empty_value_is_a_topic_without_ledgers() -> None:
    """A topic that has no value yet has no ledgers."""
    assert parse_managed_ledger_info(b"", TOPIC) == TopicMetadata(topic=TOPIC, ledgers=())


def test_absent_is_not_zero() -> None:
    """A ledger closed without entries must not become one whose entries are not told."""
    data = _field(1, b"\x08\x07\x10\x00\x18\x00")

    parsed = parse_managed_ledger_info(data, TOPIC)

    assert parsed.ledgers == (LedgerInfo(ledger_id=7, entries=0, size_bytes=0),)
    assert serialize_managed_ledger_info(parsed) == data


def test_unknown_fields_are_left_out() -> None:
    """Fields of a newer Pulsar must not stop reading."""
    assert parse_managed_ledger_info(VECTOR + bytes.fromhex("f80601"), TOPIC) == MEANING


def test_segments_of_streaming_offload_are_told() -> None:
    """A ledger of PIP-76 names its segments in order, and what is not said of one stays unsaid."""
    whole = bytes.fromhex("0801 1002 1801 2005 2806 3007 3a0a 0a0164 1205 0a016b1200")
    context = _field(7, whole) + _field(7, b"\x08\x03\x10\x04\x18\x00")
    data = _field(1, b"\x08\x09\x10\x0c" + _field(5, b"\x18\x01" + context))

    parsed = parse_managed_ledger_info(data, TOPIC)

    first = OffloadSegment(
        uuid=UUID("00000000-0000-0001-0000-000000000002"),
        complete=True,
        assigned_timestamp_ms=5,
        timestamp_ms=6,
        end_entry_id=7,
        driver="d",
        driver_properties={"k": ""},
    )
    second = OffloadSegment(uuid=UUID("00000000-0000-0003-0000-000000000004"), complete=False)
    offload = parsed.ledgers[0].offload
    assert offload is not None
    assert offload.uuid is None
    assert offload.segments == (first, second)
    assert parsed.named_attempts == {(9, first.uuid), (9, second.uuid)}
    assert serialize_managed_ledger_info(parsed) == data


def test_a_segment_has_no_negative_entry() -> None:
    """An entry id that no ledger has is refused, as every other number."""
    data = _field(1, b"\x08\x09" + _field(5, _field(7, b"\x30" + _NEGATIVE)))

    with pytest.raises(CorruptMetadataError, match="last entry id of a segment") as info:
        parse_managed_ledger_info(data, TOPIC)
    assert info.value.ledger_id == 9


_NEGATIVE: Final = b"\xff" * 9 + b"\x01"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"\x0a\x7f", "not a ManagedLedgerInfo", id="cut"),
        pytest.param(b"not protobuf", "not a ManagedLedgerInfo", id="text"),
        pytest.param(b"\x0a\x02\x10\x01", "lacks required fields", id="no-ledger-id"),
        pytest.param(b"\x12\x02\x08\x01", "lacks required fields", id="half-a-position"),
        pytest.param(b"\x0a\x02\x08\x07\x0a\x02\x08\x07", "twice", id="doubled"),
        pytest.param(_field(1, b"\x08" + _NEGATIVE), "ledger id", id="negative-id"),
        pytest.param(_field(1, b"\x08\x07\x10" + _NEGATIVE), "entries", id="negative-entries"),
        pytest.param(_field(1, b"\x08\x07\x18" + _NEGATIVE), "size", id="negative-size"),
        pytest.param(_field(1, b"\x08\x07\x20" + _NEGATIVE), "closing", id="negative-time"),
        pytest.param(
            _field(1, b"\x08\x07" + _field(5, b"\x28" + _NEGATIVE)),
            "offload",
            id="negative-offload",
        ),
        pytest.param(_field(3, _field(1, b"\xff") + _field(2, b"")), "UTF-8", id="not-utf-8"),
        pytest.param(b"\x47\x78", "end in its header", id="magic-only"),
        pytest.param(b"\x47\x78\xff\xff\xff\xff", "end in its header", id="negative-header"),
        pytest.param(b"\x47\x78\x00\x00\x00\x09abc", "end in its header", id="long-header"),
        pytest.param(b"\x47\x78\x00\x00\x00\x00", "lacks required fields", id="empty-header"),
        pytest.param(b"\x47\x78\x00\x00\x00\x04\x08\x09\x10\x01a", "unknown", id="unknown-codec"),
        pytest.param(
            compressed_managed_ledger("LZ4", VECTOR, 7), "cannot be read", id="wrong-size"
        ),
        pytest.param(
            compressed_managed_ledger("ZSTD", VECTOR, 1 << 31), "allowed", id="size-beyond-bound"
        ),
        pytest.param(
            compressed_managed_ledger("ZLIB", VECTOR, (1 << 64) - 1),
            "-1 bytes",
            id="negative-uncompressed-size",
        ),
        pytest.param(bytes(MAX_METADATA_BYTES + 1), "allowed", id="too-long"),
    ],
)
def test_what_is_no_value_is_refused(data: bytes, words: str) -> None:
    """Bytes that no broker writes must give an error that says what is wrong."""
    with pytest.raises(CorruptMetadataError, match=words):
        parse_managed_ledger_info(data, TOPIC)


@given(st.data())
def test_damaged_values_give_typed_errors(data: st.DataObject) -> None:
    """Whatever bytes are flipped or cut off, the answer is metadata or a typed error."""
    bare = serialize_managed_ledger_info(MEANING)
    codec = data.draw(st.sampled_from([None, *CODECS]))
    value = bytearray(bare if codec is None else compressed_managed_ledger(codec, bare))
    for position in data.draw(st.lists(st.integers(0, len(value) - 1), max_size=3)):
        value[position] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])

    try:
        metadata = parse_managed_ledger_info(cut, TOPIC)
    except FormatError:
        return
    assert metadata.topic == TOPIC


@pytest.mark.parametrize("entries", [(1 << 62, 1 << 62), ((1 << 63) - 1, 1)])
def test_ledgers_together_are_within_range(entries: Sequence[int]) -> None:
    """Numbers that fit each by itself, and not in sum, must be an error."""
    ledgers = tuple(
        LedgerInfo(ledger_id=number, entries=each) for number, each in enumerate(entries)
    )
    value = serialize_managed_ledger_info(TopicMetadata(topic=TOPIC, ledgers=ledgers))

    with pytest.raises(CorruptMetadataError, match=r"at most 2\^63 - 1 entries"):
        parse_managed_ledger_info(value, TOPIC)


@pytest.mark.parametrize("position", [(-1, 0), (1, -2)])
def test_terminated_positions_are_checked(position: tuple[int, int]) -> None:
    """A ledger below 0, or an entry below -1, is nowhere in a topic."""
    metadata = TopicMetadata(topic=TOPIC, ledgers=(), terminated_position=position)

    with pytest.raises(
        CorruptMetadataError, match=f"cannot have the position {position[0]}:{position[1]}"
    ):
        parse_managed_ledger_info(serialize_managed_ledger_info(metadata), TOPIC)


def test_offload_that_may_be_complete_is_written_as_not() -> None:
    """A broker must not read objects of which nobody knows that they are whole."""
    offload = OffloadContext(uuid=UUID(int=1), complete=None, other_uuids=(UUID(int=2),))
    ledger = LedgerInfo(ledger_id=7, entries=3, offload=offload)
    value = serialize_managed_ledger_info(TopicMetadata(topic=TOPIC, ledgers=(ledger,)))

    (again,) = parse_managed_ledger_info(value, TOPIC).ledgers
    assert again.offload is not None
    assert (again.offload.uuid, again.offload.complete) == (UUID(int=1), False)
    assert again.offload.other_uuids == ()


@pytest.mark.parametrize(
    "metadata",
    [
        TopicMetadata(topic=TOPIC, ledgers=(LedgerInfo(ledger_id=1 << 63),)),
        TopicMetadata(
            topic=TOPIC,
            ledgers=(
                LedgerInfo(
                    ledger_id=1,
                    offload=OffloadContext(
                        uuid=None, complete=True, driver_properties={"bucket": "b"}
                    ),
                ),
            ),
        ),
        TopicMetadata(topic=TOPIC, ledgers=(), properties={"half a pair": "\ud800"}),
    ],
)
def test_what_cannot_be_written_is_refused(metadata: TopicMetadata) -> None:
    """Numbers and texts that the format cannot hold must be errors, not other bytes."""
    with pytest.raises(OptionError, match="cannot be written"):
        serialize_managed_ledger_info(metadata)
