"""The tables that a program of the shredder is made of, and the codes it answers with.

All of them are flat arrays of int64, so that both builds of the shredder share one layout. A
*program* says how bytes are read (`OP_WIDTH` numbers an op), a *node* is one Arrow array to be
filled (`NODE_WIDTH` numbers a node, in the order of the Arrow type tree: each node before its
children). Positions are `start << 32 | length`, as in `arrow_io.messages.layout`.
"""

from __future__ import annotations

ABSENT = -1
"""Position, node or op that is not there."""

# Nodes

STORAGE = 0
"""How the values of a node are stored: one of the storages below."""
STOP = 1
"""Number behind the last node below this one."""
CAPACITY = 2
"""How many values fit."""
VALID = 3
"""Where its validity stands in the arena: one byte a value, 0 = null, 1 from the start."""
DATA = 4
"""Where its values or its int32 offsets stand in the arena, in units of their own width."""
BYTES = 5
"""Where the bytes of its values stand in the arena, if it is of `VARIABLE` storage."""
BYTES_CAPACITY = 6
"""How many bytes fit."""
IF_MISSING = 7
"""What a value becomes that its record leaves out: `NULL`, `ZERO`, or a constant's position."""
NODE_WIDTH = 8

BYTE, INT16, INT32, INT64, INT128, VARIABLE, LIST, STRUCT = range(8)
"""Storages. Booleans take a byte; `LIST` is also that of maps, whose entries are a struct."""

WIDTHS = {BYTE: 1, INT16: 2, INT32: 4, INT64: 8, INT128: 16, VARIABLE: 4, LIST: 4, STRUCT: 0}
"""Bytes that a value (or its offset) takes in the arena."""

NULL = -1
ZERO = -2

# Ops

OPCODE = 0
NODE = 1
"""Which node the value goes to; `ABSENT`: it is read over."""
A = 2
B = 3
C = 4
D = 5
E = 6
F = 7
OP_WIDTH = 8

(
    # Pulsar's primitives, big-endian; the payload is nothing else.
    VALUE_BYTES,  # as it is
    VALUE_BOOLEAN,  # one byte
    VALUE_INTEGER,  # A bytes, signed; B: link of a scale
    VALUE_FLOAT,  # A bytes: 4 or 8
    VALUE_INSTANT,  # int64 seconds, int32 nanoseconds; A: units a second
    VALUE_TIME,  # int64 milliseconds, of which the time of day counts; A: units a millisecond
    VALUE_DATE_TIME,  # int64 day, int64 nanosecond of the day; A: units a second
    # Avro's binary encoding.
    AVRO_NULL,
    AVRO_BOOLEAN,
    AVRO_INTEGER,  # int or long; A: link of a scale
    AVRO_INTEGER_TO_FLOAT,
    AVRO_FLOAT,
    AVRO_DOUBLE,
    AVRO_STRING,
    AVRO_BYTES,
    AVRO_FIXED,  # A: bytes
    AVRO_UUID,  # 16 bytes, given as text
    AVRO_DECIMAL,  # A: bytes, ABSENT if they are counted; B: digits
    AVRO_ENUM,  # A: link of B positions of symbols among the constants
    AVRO_ARRAY,  # A: op of an item
    AVRO_MAP,  # A: op of a value
    AVRO_RECORD,  # A: link of B ops; C: link of D pairs of an op and a position for missing fields
    AVRO_UNION,  # A: link of B ops
    AVRO_MEMBER,  # A: op of the value, which a member of the struct takes
    AVRO_RAW,  # A: op that reads over the value
    AVRO_FAIL,  # A: code
    AVRO_UNWANTED,  # fields that nobody wants; A: link of B ops
    # JSON text.
    JSON_BOOLEAN,
    JSON_INTEGER,  # A: link of a scale
    JSON_FLOAT,
    JSON_STRING,
    JSON_BASE64,  # A: bytes, ABSENT for any number
    JSON_DECIMAL,  # A: digits; B: of these behind the point
    JSON_ENUM,  # A: link of B positions; C: position for any other, or ABSENT
    JSON_ARRAY,  # A: op of an item
    JSON_MAP,  # A: op of a value
    # A: link of B pairs of a name with its quotes and colon, and an op, ABSENT if nobody
    # wants it; C: two hints of the first, those of each other one follow; D: how many are wanted,
    # ABSENT if they are not nodes of a struct; E: link of B places of such pairs behind A, by the
    # length and the bytes of the name
    JSON_RECORD,
    JSON_UNION,  # A: link of an op for each kind of token
    JSON_RAW,
    # Protobuf's wire format. Each has C: its bit in the message around it, a negative number if
    # none was left for it, 0 if it is no field but an item. What is a message has B: tag that ends
    # it, if it is a group; D: link of its fields. What can be read by columns has E: hint of how
    # many tokens it has, which follow; F: most of them, a power of two, less one.
    PROTO_INT32,  # of a number its lower half; or four bytes as they are
    PROTO_INT64,  # a number, or eight bytes, as they are
    PROTO_SINT32,
    PROTO_SINT64,
    PROTO_BOOL,
    PROTO_UINT32,
    PROTO_UINT64,
    PROTO_STRING,
    PROTO_BYTES,
    PROTO_ENUM,  # A: link of a table, positions by number; its MORE: whether all others are unknown
    PROTO_RAW,  # a message, as its bytes
    PROTO_OTHER,  # a field of the message of its node, read over; A: link of its oneof
    PROTO_PACKED,  # A: op of an item; B: its bytes, 0 if it is a number
    PROTO_SKIPPED,  # a field that nobody asks for, in columns and steps; A: whether it is a list
    PROTO_PART,  # A: 0 seconds, 1 nanoseconds of the timestamp around it
    PROTO_MESSAGE,  # A: link of a table, ops by tag; its MORE: link of its oneofs, or ABSENT
    PROTO_ENTRY,  # of a map; A as above; MORE: op of a value that is a message, or ABSENT
    PROTO_WRAPPER,  # A as above; the only field has the same node
    PROTO_TIMESTAMP,  # A as above; MORE: units a second
) = range(58)

# A scale: four links. value × MULTIPLIER ÷ DIVISOR, for LOW ≤ value ≤ HIGH.
MULTIPLIER, DIVISOR, LOW, HIGH = range(4)

# The fields of a message of protobuf's: bits, by which it needs no further look if all of them
# stood there; those of its oneof, of which one may, if it has just one; link of its columns, or
# ABSENT; link of its steps, or ABSENT; how many fields are no lists; and their nodes.
NEEDED, ONEOF, COLUMNS, STEPS, COUNT, FIELDS = range(6)
MOST_BITS = 62
"""How many fields of a message can have a bit."""
AWAITED, TWICE = 2, 3
"""Validity of any further field until it stands in a message, and once it stood there again."""

# The columns of a message of protobuf's: ops by tags of one byte, ABSENT for what is not expected.
BY_TAG = 128
"""Behind them stands how many ops there are, and these; how many become a constant if they are
missing, and these."""

# The steps of a message of protobuf's: how many there are; hint of the messages that are read in
# step; and for each field, in the order of their numbers: its op, its tag as the first eight bytes
# have it, which of these are the tag's, and how many.
STEP_OP, STEP_TAG, STEP_MASK, STEP_BYTES = range(4)
STEP_WIDTH = 4
GROUP = 256
"""Most messages that are read in step. Of each there are where it is read, where it ends, its row,
and how many members of its oneof it had."""
IN_GROUP = 4
"""How many numbers these are. The first hints are for as many, of what is found of a field."""

# A oneof of protobuf's: the bits of its members, how many further members it has, and their nodes.
# Before the oneofs of a message stands how many there are.

# A table of protobuf's: values by their keys. First the number of values for the keys from 0 on
# (ABSENT if there is none), then the number of pairs of a key and its value that follow, by key.
DENSE, SPARSE, MORE, TABLE = range(4)
SKIP_NUMBER, SKIP_EIGHT_BYTES, SKIP_BYTES, SKIP_FOUR_BYTES = range(-5, -1)
"""In place of the op of a field that a message does not have: how it is read over."""

# Kinds of JSON tokens, in the order of the ops of `JSON_UNION`.
TOKEN_STRING, TOKEN_INTEGER, TOKEN_FRACTION, TOKEN_BOOLEAN, TOKEN_OBJECT, TOKEN_ARRAY = range(6)
TOKENS = 6

# What a run of the shredder leaves in its result.
RESULT_ROW, RESULT_CODE, RESULT_NODE, RESULT_OFFSET = range(4)

# Codes

OK = 0
FULL = 1
"""A node has no room for all values of a payload, or for their bytes."""
NOT_CANONICAL = 2
"""A field stands twice in a record, or a name has escapes: `arrow_io.payloads` writes it anew."""
ENDS_EARLY = 3
TRAILING = 4
BAD_VARINT = 5
BAD_LENGTH = 6
BAD_BOOLEAN = 7
BAD_UTF8 = 8
BAD_BRANCH = 9
BAD_SYMBOL = 10
OUT_OF_RANGE = 11
TOO_PRECISE = 12
NO_MATCH = 13
TOO_MANY_ITEMS = 14
TOO_DEEP = 15
WRONG_TOKEN = 16
BAD_JSON = 17
BAD_BASE64 = 18
BAD_ESCAPE = 19
BAD_TAG = 20
WRONG_SIZE = 21
NO_DEFAULT = 22
TOO_LARGE = 23
BAD_MESSAGE = 24

REASONS = {
    ENDS_EARLY: "the payload ends too early",
    TRAILING: "bytes are left over behind the value",
    BAD_VARINT: "a number is longer than numbers can be",
    BAD_LENGTH: "a length is negative, beyond the payload, or not that of the type",
    BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    BAD_UTF8: "a text is not UTF-8",
    BAD_BRANCH: "a union has no such branch",
    BAD_SYMBOL: "an enum has no such symbol",
    OUT_OF_RANGE: "a number or time is beyond what its column can hold",
    TOO_PRECISE: "a number or time has more digits than its column can hold",
    NO_MATCH: "the value is of a type that the schema it is read by does not have",
    TOO_MANY_ITEMS: "an array or map has more items than are believed",
    TOO_DEEP: "values are nested deeper than is read",
    WRONG_TOKEN: "the JSON value is of another type than the schema's",
    BAD_JSON: "the payload is not JSON",
    BAD_BASE64: "a text that stands for bytes is not Base64",
    BAD_ESCAPE: "a text has an escape that stands for no character",
    BAD_TAG: "a field has an impossible number or wire type",
    WRONG_SIZE: "the payload does not have the length of its type",
    NO_DEFAULT: "the writer's schema does not have this field, and the reader's gives no default",
    BAD_MESSAGE: "the payload is not a protobuf message",
    TOO_LARGE: "the values take more memory than is believed",
}
"""In words, what is wrong with a payload."""

MAX_OFFSET = (1 << 31) - 2
"""Most values, and most bytes of them, that a node can have."""
MAX_DEPTH = 64
"""Deepest nesting that is read over or read as itself."""
MAX_EMPTY_ITEMS = 1 << 16
"""Most items believed in one payload that take no bytes."""
MAX_MESSAGE_DEPTH = 100
"""Deepest nesting of messages and groups of protobuf, as its parsers have it."""
