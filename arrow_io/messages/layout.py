"""The fixed-width tables that the hot loop fills: what each number in them means.

Both tables hold nothing but signed 64-bit integers, so the compiled and the pure build of the hot
loop share one layout, and a numeric column is an Arrow buffer as it stands.

**Entry table**, row-major, `ENTRY_WIDTH` numbers an entry: what the entry's frame, its
BrokerEntryMetadata and its MessageMetadata (PulsarApi.proto) say.

**Row table**, column-major, `ROW_WIDTH` columns of numbers: what belongs to one message. From the
begin of one column to that of the next are `stride` numbers, at least as many as there are rows.

A *position* packs where bytes stand in a buffer: `start << 32 | length`, both in bytes; `ABSENT`
(−1) if the message has none. Buffers are therefore below 2 GiB.
"""

from __future__ import annotations

ABSENT = -1
NO_TIME = -(1 << 63)
"""Stands for a time in ms that an entry does not have; for event times that is 0, as in Pulsar."""
MAX_MILLISECONDS = (2**63 - 1) // 1000
"""Greatest time, before or after 1970, that a timestamp in microseconds can hold."""

# Entry table.
ENTRY_ID = 0
FRAME = 1
"""Position of the entry's data (behind the 12-byte entry header)."""
ERROR = 2
"""0, or the `BAD_…` code of the first thing in this entry that could not be decoded."""
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
"""Place of the decompressed payload in the buffer of a stretch of entries; set by that stretch."""
ENTRY_WIDTH = 31

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
"""The payload is not decompressed together with those of other entries."""
MIXED = 1 << 12
"""Of a run, not of an entry: its entries are not all of one kind (`kind_stop`)."""
LEFT_OUT = 1 << 13
"""No client is given a message in the place of the entry."""
SPECIAL = BROKEN | ENCRYPTED | CHUNKED
"""An entry with none of these is read together with its neighbours."""
BOUND = MARKER | TRANSACTION | CHUNKED
"""With none of these, nothing depends on other entries, and no other entry on this one."""

# COMPRESSION, as PulsarApi.proto has it.
LZ4 = 1
ZLIB = 2
ZSTD = 3
SNAPPY = 4

# Row table.
ROW_ENTRY = 0
"""Index of the message's entry in the entry table that its part names."""
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

# How the values of a column are gathered: numbers of 64 bits, then of 32 bits, then bytes.
GATHERED_ENTRY_NUMBERS = 0
GATHERED_ROW_NUMBERS = 1
GATHERED_LEDGER_IDS = 2
GATHERED_ENTRY_TIMES = 3
"""Milliseconds in the entry table, of which `NO_TIME` is none → microseconds."""
GATHERED_ROW_TIMES = 4
"""The same of the row table, where 0 is none."""
GATHERED_BATCH_INDEXES = 5
GATHERED_CONSTANTS = 6
"""The same number for each row, which stands in place of the field."""
GATHERED_PROPERTIES = 7
"""Where the properties of each row begin; their names and values are the two columns behind it."""
GATHERED_ENTRY_BYTES = 8
GATHERED_ROW_BYTES = 9
GATHERED_NAMES = 10
"""Names of properties; these and their values are as many as there are properties."""
GATHERED_VALUES = 11

# What is noted of a column that is gathered.
NOTE_VALIDITY = 0
"""Where in the body its validity bits begin, in bytes; likewise the two below."""
NOTE_DATA = 1
NOTE_BYTES = 2
NOTE_LENGTH = 3
"""How many bytes the values take."""
NOTE_NULLS = 4
NOTE_ODD = 5
"""Of times, how many a timestamp cannot hold; of bytes but payloads, 1 if any is above 127."""
NOTE_WIDTH = 6

# Why `read_entries` stopped.
COMPLETE = 0
"""The table is full, or `last_entry_id` is read."""
CUT = 1
"""The next entry is not whole in the buffer."""
PADDING = 2
"""The next length is negative: padding, or the header of the next block."""
WRONG_ENTRY_ID = 3

# What is wrong with an entry, a message, or a property.
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
    TRAILING_BYTES: "bytes are left behind the last message of the batch",
    BAD_PROPERTY: "a property of the message cannot be decoded",
    BAD_BATCH_SIZE: "the batch is too small for the number of messages it announces",
    BAD_CHECKSUM: "the CRC32C of the entry is not the one stored in it",
}

MAX_COMPRESSION_RATIO = 1 << 16
"""More bytes than one compressed byte can become with any codec."""
MIN_MEMBER_BYTES = 6
"""A message in a batch takes four bytes of length and two of `payload_size` at the least."""
MAX_COMPARED_PROPERTIES = 64
"""If a message has no more properties, the hot loop compares all pairs to find equal names."""
