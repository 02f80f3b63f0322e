"""A topic's nodes in the metadata store (Pulsar's MetaStoreImpl, MLDataFormats.proto).

The value of `/managed-ledgers/<managed ledger name>` is a bare protobuf message, the topic's
ledgers. Nodes below it are its cursors. If the broker has `managedLedgerInfoCompressionType` or
`managedCursorInfoCompressionType` set, the values are compressed:

======= ======= ========================== =====================================================
Offset  Size    Field                      Value
======= ======= ========================== =====================================================
0       2       magic                      `47 78`, with which no bare message can start
2       4       size N, int32              big-endian
6       N       ManagedLedgerInfoMetadata  {1 compressionType enum, 2 uncompressedSize int32}; that
                                           of a cursor has another name and the same fields
6 + N   rest    compressed message         in the forms of `arrow_io.messages.codecs`
======= ======= ========================== =====================================================

ManagedLedgerInfo (proto2): {1 repeated LedgerInfo, 2 terminatedPosition {1 ledgerId, 2 entryId}, 3
properties}. `_MESSAGES` below has the fields of its parts. An absent flag is false. An absent time
is written as 0 for the open ledger, which has neither entries nor size yet. ManagedCursorInfo has
further fields, about single messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from arrow_io.core.wording import agreeing, counted
from arrow_io.errors import (
    CorruptEntryError,
    CorruptMetadataError,
    OptionError,
)
from arrow_io.format.object_names import offload_uuid
from arrow_io.format.protobuf_messages import message_classes
from arrow_io.messages import codecs
from connector.catalog.metadata.topic_metadata import (
    MAX_METADATA_BYTES,
    LedgerInfo,
    OffloadContext,
    OffloadSegment,
    TopicMetadata,
    checked_ledgers,
    checked_position,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from connector.inputs.topic_names import TopicName

_MAGIC: Final = b"\x47\x78"
_SIZE_BYTES: Final = 4
_HALF_BITS: Final = 64
_SIGN: Final = 1 << (_HALF_BITS - 1)
_SHOWN_BYTES: Final = 64
_LOAD_FACTOR: Final = 0.75
_NO_LEDGER: Final = -1
"""`cursorsLedgerId` of a cursor whose position is in the metadata store."""

_MESSAGES: Final = {
    "KeyValue": """
        1 key required bytes
        2 value required bytes
    """,
    "OffloadDriverMetadata": """
        1 name required bytes
        2 properties repeated KeyValue
    """,
    "OffloadSegment": """
        1 uidMsb optional int64
        2 uidLsb optional int64
        3 complete optional bool
        4 assignedTimestamp optional int64
        5 offloadedTimestamp optional int64
        6 endEntryId optional int64
        7 driverMetadata optional OffloadDriverMetadata
    """,
    "OffloadContext": """
        1 uidMsb optional int64
        2 uidLsb optional int64
        3 complete optional bool
        4 bookkeeperDeleted optional bool
        5 timestamp optional int64
        6 driverMetadata optional OffloadDriverMetadata
        7 offloadSegment repeated OffloadSegment
    """,
    "LedgerInfo": """
        1 ledgerId required int64
        2 entries optional int64
        3 size optional int64
        4 timestamp optional int64
        5 offloadContext optional OffloadContext
        6 properties repeated KeyValue
    """,
    "NestedPositionInfo": """
        1 ledgerId required int64
        2 entryId required int64
    """,
    "ManagedLedgerInfo": """
        1 ledgerInfo repeated LedgerInfo
        2 terminatedPosition optional NestedPositionInfo
        3 properties repeated KeyValue
    """,
    "ManagedCursorInfo": """
        1 cursorsLedgerId required int64
        2 markDeleteLedgerId optional int64
        3 markDeleteEntryId optional int64
    """,
    "ManagedLedgerInfoMetadata": """
        1 compressionType required int32
        2 uncompressedSize required int32
    """,
}


_CLASSES: Final = message_classes(_MESSAGES)


def parse_managed_ledger_info(data: bytes, topic: TopicName) -> TopicMetadata:
    """Parse the metadata store's value of a topic; ignore unknown fields.

    Args:
        data: The value, bare or compressed; an empty one is a topic without ledgers.
        topic: The topic, which the value does not name.

    Raises:
        CorruptMetadataError: It is not such a value, is longer than `MAX_METADATA_BYTES`, or a
            topic cannot have its ledgers.
    """
    message = _parse("ManagedLedgerInfo", _bare_message(data))
    terminated = _optional(message, "terminatedPosition")
    return TopicMetadata(
        topic=topic,
        ledgers=checked_ledgers(_ledger_info(ledger) for ledger in message.ledgerInfo),
        terminated_position=(
            None
            if terminated is None
            else checked_position(terminated.ledgerId, terminated.entryId)
        ),
        properties=_properties(message.properties),
    )


def parse_managed_cursor_info(data: bytes) -> tuple[int, int] | None:
    """Parse the metadata store's value of a cursor; return its mark-delete position.

    The position is the ledger and entry id up to which the subscription has acknowledged everything
    (inclusive); (-1, -1) before the first message. It is None while the cursor is open: then
    BookKeeper has the current position, and the store none or an old one.

    Raises:
        CorruptMetadataError: It is not such a value, is longer than `MAX_METADATA_BYTES`, or a
            topic cannot have the position.
    """
    message = _parse("ManagedCursorInfo", _bare_message(data))
    if message.cursorsLedgerId != _NO_LEDGER or not message.HasField("markDeleteLedgerId"):
        return None
    ids = message.markDeleteLedgerId, message.markDeleteEntryId
    return (-1, -1) if ids[0] < 0 else checked_position(*ids)


def serialize_managed_ledger_info(metadata: TopicMetadata) -> bytes:
    """Return the value that a broker would write to its metadata store.

    It is a bare message, which every version of Pulsar reads. A bare value that a broker wrote and
    `parse_managed_ledger_info` read is reproduced byte for byte. An offload that is not known to be
    complete is written as incomplete.

    Raises:
        OptionError: A number is outside the range of its field, or an offload has properties but no
            driver.
    """
    message = _CLASSES["ManagedLedgerInfo"]()
    try:
        for ledger in _hash_map_order(metadata.ledgers):
            _fill_ledger(message.ledgerInfo.add(), ledger)
        if metadata.terminated_position is not None:
            ledger_id, entry_id = metadata.terminated_position
            message.terminatedPosition.ledgerId = ledger_id
            message.terminatedPosition.entryId = entry_id
        _add_properties(message.properties, metadata.properties)
    except ValueError as error:
        text = f"the managed ledger of {metadata.topic} cannot be written: {error}"
        raise OptionError(text) from error
    data: bytes = message.SerializeToString()
    return data


def _bare_message(data: bytes) -> bytes:
    """Return a value without compression."""
    _check_size(len(data))
    return _decompress(memoryview(data)[len(_MAGIC) :]) if data.startswith(_MAGIC) else data


def _decompress(data: memoryview) -> bytes:
    """Return the bare message of a compressed value without its magic.

    If this fails, Pulsar reads the value as a bare message. That would fail too, because no field
    has the wire type that `47` encodes.
    """
    size = int.from_bytes(data[:_SIZE_BYTES], signed=True)
    if not 0 <= size <= len(data) - _SIZE_BYTES:
        has, end = counted(len(data), "byte"), agreeing(len(data), "ends", "end")
        text = f"the compressed managed ledger has {has}, which {end} in its header"
        raise CorruptMetadataError(text)
    header = _parse("ManagedLedgerInfoMetadata", bytes(data[_SIZE_BYTES : _SIZE_BYTES + size]))
    compressed = data[_SIZE_BYTES + size :]
    if header.compressionType == codecs.NONE:
        return bytes(compressed)
    _check_size(header.uncompressedSize)
    try:
        return bytes(codecs.decompress(header.compressionType, compressed, header.uncompressedSize))
    except CorruptEntryError as error:
        text = f"the compressed managed ledger cannot be read: {error.message}"
        raise CorruptMetadataError(text) from error


def _check_size(size_bytes: int) -> None:
    if not 0 <= size_bytes <= MAX_METADATA_BYTES:
        text = f"a managed ledger of {size_bytes} bytes; {MAX_METADATA_BYTES} are allowed"
        raise CorruptMetadataError(text)


def _parse(name: str, data: bytes) -> Any:  # noqa: ANN401 - a message class has no static type
    try:
        message = _CLASSES[name].FromString(data)
    except DecodeError as error:
        text = f"the managed ledger is not a {name}"
        raise CorruptMetadataError(text) from error
    # The message does not list the absent fields: there could be millions.
    if not message.IsInitialized():
        text = f"a {name} lacks required fields"
        raise CorruptMetadataError(text)
    return message


def _optional(message: Any, name: str) -> Any:  # noqa: ANN401 - protobuf has no static types
    return getattr(message, name) if message.HasField(name) else None


def _ledger_info(message: Any) -> LedgerInfo:  # noqa: ANN401
    offload = _optional(message, "offloadContext")
    return LedgerInfo(
        ledger_id=message.ledgerId,
        entries=_optional(message, "entries"),
        size_bytes=_optional(message, "size"),
        timestamp_ms=message.timestamp or None,
        offload=None if offload is None else _offload_context(offload),
        properties=_properties(message.properties),
    )


def _offload_context(message: Any) -> OffloadContext:  # noqa: ANN401
    has_uuid = message.HasField("uidMsb") or message.HasField("uidLsb")
    driver = _optional(message, "driverMetadata")
    return OffloadContext(
        uuid=offload_uuid(message.uidMsb, message.uidLsb) if has_uuid else None,
        complete=message.complete,
        bookkeeper_deleted=message.bookkeeperDeleted,
        timestamp_ms=message.timestamp or None,
        driver=None if driver is None else _utf8(driver.name),
        driver_properties={} if driver is None else _properties(driver.properties),
        segments=tuple(map(_offload_segment, message.offloadSegment)),
    )


def _offload_segment(message: Any) -> OffloadSegment:  # noqa: ANN401
    driver = _optional(message, "driverMetadata")
    return OffloadSegment(
        uuid=offload_uuid(message.uidMsb, message.uidLsb),
        complete=_optional(message, "complete"),
        assigned_timestamp_ms=_optional(message, "assignedTimestamp"),
        timestamp_ms=_optional(message, "offloadedTimestamp"),
        end_entry_id=_optional(message, "endEntryId"),
        driver=None if driver is None else _utf8(driver.name),
        driver_properties={} if driver is None else _properties(driver.properties),
    )


def _hash_map_order(ledgers: Sequence[LedgerInfo]) -> list[LedgerInfo]:
    """Return ledgers as brokers order them, like a Java HashMap; they accept any order."""
    buckets = 1
    while buckets < int(len(ledgers) / _LOAD_FACTOR + 1):
        buckets *= 2

    def bucket(ledger: LedgerInfo) -> int:
        hash_code = (ledger.ledger_id ^ ledger.ledger_id >> 32) & 0xFFFF_FFFF
        return (hash_code ^ hash_code >> 16) & (buckets - 1)

    return sorted(sorted(ledgers, key=lambda ledger: ledger.ledger_id), key=bucket)


def _fill_ledger(message: Any, ledger: LedgerInfo) -> None:  # noqa: ANN401
    message.ledgerId = ledger.ledger_id
    if ledger.entries is not None:
        message.entries = ledger.entries
    if ledger.size_bytes is not None:
        message.size = ledger.size_bytes
    # Brokers write the time 0 for the open ledger.
    if ledger.timestamp_ms is not None or ledger.entries is None:
        message.timestamp = ledger.timestamp_ms or 0
    if ledger.offload is not None:
        message.offloadContext.SetInParent()
        _fill_offload(message.offloadContext, ledger.offload)
    _add_properties(message.properties, ledger.properties)


def _fill_offload(message: Any, offload: OffloadContext) -> None:  # noqa: ANN401
    if offload.uuid is not None:
        message.uidMsb, message.uidLsb = _halves(offload.uuid)
    if offload.complete:
        message.complete = True
    if offload.bookkeeper_deleted:
        message.bookkeeperDeleted = True
    if offload.timestamp_ms is not None:
        message.timestamp = offload.timestamp_ms
    _fill_driver(message, offload)
    for segment in offload.segments:
        _fill_segment(message.offloadSegment.add(), segment)


def _fill_segment(message: Any, segment: OffloadSegment) -> None:  # noqa: ANN401
    message.uidMsb, message.uidLsb = _halves(segment.uuid)
    for name, value in (
        ("complete", segment.complete),
        ("assignedTimestamp", segment.assigned_timestamp_ms),
        ("offloadedTimestamp", segment.timestamp_ms),
        ("endEntryId", segment.end_entry_id),
    ):
        if value is not None:
            setattr(message, name, value)
    _fill_driver(message, segment)


def _fill_driver(message: Any, offload: OffloadContext | OffloadSegment) -> None:  # noqa: ANN401
    if offload.driver is not None:
        message.driverMetadata.name = offload.driver.encode()
        _add_properties(message.driverMetadata.properties, offload.driver_properties)
    elif offload.driver_properties:
        text = "an offload has driver properties but no driver"
        raise ValueError(text)


def _halves(uuid: UUID) -> tuple[int, int]:
    msb, lsb = divmod(uuid.int, 1 << _HALF_BITS)
    return (msb ^ _SIGN) - _SIGN, (lsb ^ _SIGN) - _SIGN


def _properties(messages: Iterable[Any]) -> dict[str, str]:
    return {_utf8(message.key): _utf8(message.value) for message in messages}


def _add_properties(messages: Any, properties: Mapping[str, str]) -> None:  # noqa: ANN401
    for key, value in properties.items():
        messages.add(key=key.encode(), value=value.encode())


def _utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        message = f"text in the managed ledger is not UTF-8: {text[:_SHOWN_BYTES]!r}"
        raise CorruptMetadataError(message) from error
