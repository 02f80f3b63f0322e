"""The BookKeeper metadata of a ledger, as the index block stores it.

A bare protobuf message `LedgerMetadataFormat` (proto2; BookKeeper's DataFormats.proto), written by
Pulsar's `OffloadUtils.buildLedgerMetadataFormat`:

== ============== ===================================================== ===================
#  Field          Type                                                  Written by Pulsar
== ============== ===================================================== ===================
1  quorumSize     required int32, the write quorum                      yes
2  ensembleSize   required int32                                        yes
3  length         required int64, sum of the entries' data in bytes     yes
4  lastEntryId    optional int64                                        yes
5  state          required enum OPEN=1, IN_RECOVERY=2, CLOSED=3         CLOSED
6  segment        repeated {1 ensembleMember repeated string,           yes
                  2 firstEntryId required int64}
7  digestType     optional enum CRC32=1, HMAC=2, CRC32C=3, DUMMY=4      yes
8  password       optional bytes                                        no
9  ackQuorumSize  optional int32                                        yes
10 ctime          optional int64, ms since the epoch                    yes
11 customMetadata repeated {1 key optional string,                      yes
                  2 value optional bytes}
12 cToken         optional int64                                        no
== ============== ===================================================== ===================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from arrow_io.core.wording import counted
from arrow_io.errors import CorruptIndexError, OptionError, UnknownFormatError
from arrow_io.format.protobuf_messages import message_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGED_LEDGER_KEY = "pulsar/managed-ledger"
"""Custom metadata key whose value is the managed-ledger name (Pulsar's LedgerMetadataUtils)."""

_MESSAGES = {
    "LedgerMetadataFormat": """
        1 quorumSize required int32
        2 ensembleSize required int32
        3 length required int64
        4 lastEntryId optional int64
        5 state required LedgerState
        6 segment repeated Segment
        7 digestType optional DigestType
        8 password optional bytes
        9 ackQuorumSize optional int32
        10 ctime optional int64
        11 customMetadata repeated cMetadataMapEntry
        12 cToken optional int64
    """,
    "Segment": """
        1 ensembleMember repeated bytes
        2 firstEntryId required int64
    """,
    "cMetadataMapEntry": """
        1 key optional bytes
        2 value optional bytes
    """,
}

# BookKeeper's metadata store uses forms that start with this text; Pulsar never writes them.
_STORE_VERSION_LINE = b"BookieMetadataFormatVersion"


class LedgerState(IntEnum):
    """`LedgerMetadataFormat.State`."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """`LedgerMetadataFormat.DigestType`: how BookKeeper, not the bucket, protects entries."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


_LedgerMetadataFormat = message_classes(_MESSAGES, (LedgerState, DigestType))[
    "LedgerMetadataFormat"
]


@dataclass(frozen=True, slots=True)
class LedgerSegment:
    """A run of entries that one ensemble of bookies stored."""

    first_entry_id: int
    ensemble_members: tuple[str, ...]
    """Bookie ids, usually `host:port`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """LedgerMetadataFormat, with the names of BookKeeper's `LedgerMetadata` interface."""

    length_bytes: int
    """Sum of the lengths of all entries' data."""
    last_entry_id: int
    """Id of the last entry (inclusive)."""
    write_quorum_size: int
    ensemble_size: int
    state: LedgerState
    segments: tuple[LedgerSegment, ...] = ()
    digest_type: DigestType | None = None
    """None if the field is absent or has an unknown value."""
    password: bytes | None = None
    ack_quorum_size: int | None = None
    ctime_ms: int | None = None
    """Creation time of the ledger, ms since the epoch."""
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    """In the order of the message."""
    c_token: int | None = None
    raw: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """The bytes that this was parsed from. `dataclasses.replace` drops them, as it must."""

    @property
    def managed_ledger_name(self) -> str | None:
        """Name of the managed ledger, `tenant/namespace/persistent/topic`; None if absent.

        Raises:
            CorruptIndexError: The name is not UTF-8.
        """
        name = self.custom_metadata.get(MANAGED_LEDGER_KEY)
        return None if name is None else _utf8(name)

    def serialize(self) -> bytes:
        """Return the protobuf message; for parsed metadata, the original bytes.

        Raises:
            OptionError: A number is outside the range of its field.
        """
        return _encode(self) if self.raw is None else self.raw


def parse_ledger_metadata(data: bytes) -> LedgerMetadata:
    """Read the ledger metadata of an index block.

    Args:
        data: Exactly the serialised LedgerMetadataFormat.

    Raises:
        UnknownFormatError: The bytes have the form of BookKeeper's metadata store.
        CorruptIndexError: The bytes are not a LedgerMetadataFormat, a required field is absent, a
            text is not UTF-8, or the length or the last entry id is negative.
    """
    if data.startswith(_STORE_VERSION_LINE):
        message = "ledger metadata in the form of BookKeeper's metadata store"
        raise UnknownFormatError(message)
    try:
        message = _LedgerMetadataFormat.FromString(data)
    except DecodeError as error:
        text = "the ledger metadata is not a LedgerMetadataFormat"
        raise CorruptIndexError(text) from error
    absent = message.FindInitializationErrors()
    if not message.HasField("lastEntryId"):
        absent.append("lastEntryId")
    if absent:
        text = f"the ledger metadata lacks {', '.join(absent)}"
        raise CorruptIndexError(text)
    if message.length < 0 or message.lastEntryId < 0:
        text = (
            f"the ledger metadata gives a length of {counted(message.length, 'byte')} and the last"
            f" entry id {message.lastEntryId}"
        )
        raise CorruptIndexError(text)

    def optional(name: str) -> Any:  # noqa: ANN401 - protobuf's values have no static type
        return getattr(message, name) if message.HasField(name) else None

    digest = optional("digestType")
    metadata = LedgerMetadata(
        length_bytes=message.length,
        last_entry_id=message.lastEntryId,
        write_quorum_size=message.quorumSize,
        ensemble_size=message.ensembleSize,
        state=LedgerState(message.state),
        segments=tuple(
            LedgerSegment(
                segment.firstEntryId, tuple(_utf8(member) for member in segment.ensembleMember)
            )
            for segment in message.segment
        ),
        digest_type=None if digest is None else DigestType(digest),
        password=optional("password"),
        ack_quorum_size=optional("ackQuorumSize"),
        ctime_ms=optional("ctime"),
        custom_metadata={_utf8(entry.key): entry.value for entry in message.customMetadata},
        c_token=optional("cToken"),
    )
    object.__setattr__(metadata, "raw", data)
    return metadata


def _encode(metadata: LedgerMetadata) -> bytes:
    try:
        message = _LedgerMetadataFormat(
            quorumSize=metadata.write_quorum_size,
            ensembleSize=metadata.ensemble_size,
            length=metadata.length_bytes,
            lastEntryId=metadata.last_entry_id,
            state=metadata.state,
            digestType=metadata.digest_type,
            password=metadata.password,
            ackQuorumSize=metadata.ack_quorum_size,
            ctime=metadata.ctime_ms,
            cToken=metadata.c_token,
        )
        for segment in metadata.segments:
            message.segment.add(
                ensembleMember=[member.encode() for member in segment.ensemble_members],
                firstEntryId=segment.first_entry_id,
            )
        for key, value in metadata.custom_metadata.items():
            message.customMetadata.add(key=key.encode(), value=value)
    except ValueError as error:
        text = f"the ledger metadata cannot be written: {error}"
        raise OptionError(text) from error
    serialized: bytes = message.SerializeToString()
    return serialized


def _utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        message = f"text in the ledger metadata is not UTF-8: {text[:64]!r}"
        raise CorruptIndexError(message) from error
