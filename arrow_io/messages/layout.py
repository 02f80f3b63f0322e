"""The fixed-width tables that the hot loop fills: meaning of each number.

Both tables hold only signed 64-bit integers, so the compiled and the pure build of the hot loop
share one layout, and a numeric column can serve as an Arrow buffer.

**Entry table**, row-major, `ENTRY_WIDTH` numbers per entry: the entry's frame, its
BrokerEntryMetadata and its MessageMetadata (PulsarApi.proto).

**Row table**, column-major, `ROW_WIDTH` columns: the numbers of one message. The starts of two
columns are `stride` numbers apart, at least the number of rows.

A *position* packs the location of bytes in a buffer: `start << 32 | length`, both in bytes;
`ABSENT` (−1) if the message has none. Buffers are therefore below 2 GiB.
"""

from __future__ import annotations

ABSENT = -1
NO_TIME = -(1 << 63)
"""A missing time of an entry, in ms. Event times use 0 instead, as in Pulsar."""
MAX_MILLISECONDS = (2**63 - 1) // 1000
"""Greatest time in ms, before or after 1970, that a timestamp in microseconds can hold."""

# Entry table.
ENTRY_ID = 0
FRAME = 1
"""Position of the entry's data (after the 12-byte entry header)."""
ERROR = 2
"""0, or the `BAD_…` code of the first part of this entry that could not be decoded."""
FLAGS = 3
CHECKSUM = 4
"""CRC32C stored in the entry (unsigned), or ABSENT."""
CHECKED = 5
"""Position of the bytes that the checksum covers, or ABSENT."""
PAYLOAD = 6
METADATA = 7
"""Position of the serialised MessageMetadata."""
PUBLISH_TIME = 8
EVENT_TIME = 9
SEQUENCE_ID = 10
PRODUCER_NAME = 11
KEY = 12
ORDERING_KEY = 13
PROPERTY_COUNT = 14
BATCH_SIZE = 15
"""num_messages_in_batch; ABSENT if the entry is not a batch."""
COMPRESSION = 16
UNCOMPRESSED_SIZE = 17
SCHEMA_VERSION = 18
BROKER_TIME = 19
BROKER_INDEX = 20
"""Index of the *last* message of the entry (PIP-70)."""
DELIVER_AT = 21
REPLICATED_FROM = 22
MARKER_TYPE = 23
TXN_MOST = 24
TXN_LEAST = 25
UUID = 26
CHUNK_COUNT = 27
CHUNK_TOTAL_SIZE = 28
CHUNK_ID = 29
BODY = 30
"""Position of the decompressed payload, in the buffer that several entries share."""
SCHEMA_ID = 31
"""Position of the id of the schema in an external registry (PIP-420)."""
KEY_HASHES = 32
"""Range of the keys' hashes that the producer stamped (PIP-486), `entry_hash_min << 16 |
entry_hash_max`; ABSENT if there is none."""
ENTRY_WIDTH = 33

# Bits of FLAGS, in the entry table and (the first three) in the row table.
KEY_IS_BASE64 = 1 << 0
NULL_VALUE = 1 << 1
NULL_KEY = 1 << 2
BROKEN = 1 << 3
MARKER = 1 << 4
TRANSACTION = 1 << 5
ENCRYPTED = 1 << 6
CHUNKED = 1 << 7
BATCHED = 1 << 8
COMPRESSED = 1 << 9
HAS_BROKER_INDEX = 1 << 10
ALONE = 1 << 11
"""The payload must be decompressed separately from those of other entries."""
MIXED = 1 << 12
"""Flag of a run, not of an entry: its entries differ in kind (`kind_stop`)."""
LEFT_OUT = 1 << 13
"""A Pulsar consumer receives no message at this entry."""
SPECIAL = BROKEN | ENCRYPTED | CHUNKED
"""An entry without any of these flags is read together with its neighbours."""
DEPENDENT = MARKER | TRANSACTION | CHUNKED
"""An entry without any of these flags is independent of all other entries."""

# COMPRESSION, as PulsarApi.proto has it.
LZ4 = 1
ZLIB = 2
ZSTD = 3
SNAPPY = 4

# Row table.
ROW_ENTRY = 0
"""Index of the message's entry in its run."""
ROW_BATCH_INDEX = 1
"""0-based; ABSENT if the message was not batched."""
ROW_EVENT_TIME = 2
ROW_SEQUENCE_ID = 3
ROW_FLAGS = 4
ROW_KEY = 5
ROW_ORDERING_KEY = 6
ROW_PROPERTY_COUNT = 7
ROW_METADATA = 8
"""Position of the message's metadata: SingleMessageMetadata in a batch, else MessageMetadata."""
ROW_PAYLOAD = 9
"""Position of the value; ABSENT if it is null."""
ROW_WIDTH = 10

# Sources of a column's values: 64-bit numbers, then 32-bit numbers, then bytes.
GATHERED_ENTRY_NUMBERS = 0
GATHERED_ROW_NUMBERS = 1
GATHERED_LEDGER_IDS = 2
GATHERED_ENTRY_TIMES = 3
"""Milliseconds of the entry table, `NO_TIME` if missing → microseconds."""
GATHERED_ROW_TIMES = 4
"""Milliseconds of the row table, 0 if missing → microseconds."""
GATHERED_BATCH_INDEXES = 5
GATHERED_CONSTANTS = 6
"""The same number for every row; `field` is the number."""
GATHERED_PROPERTIES = 7
"""List offsets of the properties; their names and values are the next two columns."""
GATHERED_ENTRY_BYTES = 8
GATHERED_ROW_BYTES = 9
GATHERED_ROW_OFFSETS = 10
"""Like `GATHERED_ROW_BYTES`, without the bytes: they are stored back to back, in row order."""
GATHERED_NAMES = 11
"""Names of properties. This column and the next have one value per property."""
GATHERED_VALUES = 12

# Notes about a gathered column.
NOTE_VALIDITY = 0
"""Start of the validity bits in the body, in bytes. The two below are starts, too."""
NOTE_DATA = 1
NOTE_BYTES = 2
NOTE_LENGTH = 3
"""Length of the values in bytes."""
NOTE_NULLS = 4
NOTE_ODD = 5
"""For times, the number that a timestamp cannot hold; for bytes except payloads, 1 if any is above
127."""
NOTE_WIDTH = 6

# Why `read_entries` stopped.
COMPLETE = 0
"""The table is full, or `last_entry_id` was read."""
CUT = 1
"""The buffer ends within the next entry."""
PADDING = 2
"""The next length is negative: padding, or the header of the next block."""
WRONG_ENTRY_ID = 3

# Errors of an entry, a message, or a property.
BAD_BROKER_METADATA = 1
BAD_FRAME = 2
BAD_METADATA = 3
MISSING_FIELD = 4
BAD_MESSAGE_SIZE = 5
BAD_MESSAGE_METADATA = 6
BAD_PAYLOAD_SIZE = 7
TRAILING_BYTES = 8
BAD_PROPERTY = 9
BAD_CHECKSUM = 10
BAD_BATCH_SIZE = 11

REASONS = {
    BAD_BROKER_METADATA: "the broker entry metadata cannot be decoded",
    BAD_FRAME: "the entry is too short for the lengths in it",
    BAD_METADATA: "the message metadata cannot be decoded",
    MISSING_FIELD: "the message metadata lacks a required field",
    BAD_MESSAGE_SIZE: "the batch is too short for the metadata of its next message",
    BAD_MESSAGE_METADATA: "the metadata of a message in the batch cannot be decoded",
    BAD_PAYLOAD_SIZE: "the batch is too short for the payload of its next message",
    TRAILING_BYTES: "bytes follow the last message of the batch",
    BAD_PROPERTY: "a property of the message cannot be decoded",
    BAD_BATCH_SIZE: "the batch is too small for the number of messages it announces",
    BAD_CHECKSUM: "the CRC32C of the entry differs from the one stored in it",
}

MAX_COMPRESSION_RATIO = 1 << 16
"""Upper bound of the number of bytes that one compressed byte can become with any codec."""
MIN_MEMBER_BYTES = 6
"""Minimum size of a message in a batch: four bytes of length and two of `payload_size`."""
MAX_COMPARED_PROPERTIES = 64
"""Up to this number of properties, the hot loop compares all pairs of names of a message."""
