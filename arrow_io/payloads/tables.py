"""Layout of the shredder's programs, and its result codes.

To *shred* payloads is to append each of their values to the Arrow array that it belongs to. A
*program* describes how, in flat arrays of int64, a layout that both builds of the shredder share:

- An *op* is an instruction that reads or skips a value: `OP_WIDTH` numbers.
- A *node* is an Arrow array to be filled: `NODE_WIDTH` numbers, in preorder of the type tree.
- A *link* is the index of numbers that an op refers to, in the program's `links`.
- A *hint* is a number that the shredder itself writes, to read what follows faster.
- A *position* is `start << 32 | length`, as in `arrow_io.messages.layout`.
"""

from __future__ import annotations

ABSENT = -1
"""A missing position, node or op."""

# Nodes

STORAGE = 0
"""Storage of the node's values: one of the storages below."""
STOP = 1
"""End of the numbers of this node's descendants, exclusive."""
CAPACITY = 2
"""Number of values that fit."""
VALID = 3
"""Start of its validity in the arena: one byte per value, 0 = null, initially 1."""
DATA = 4
"""Start of its values or int32 offsets in the arena, in units of their own width."""
BYTES = 5
"""Start of the bytes of its values in the arena, for `VARIABLE` storage."""
BYTES_CAPACITY = 6
"""Number of bytes that fit."""
IF_MISSING = 7
"""Value if the record omits it: `NULL`, `ZERO`, or a constant's position."""
NODE_WIDTH = 8

BYTE, INT16, INT32, INT64, INT128, VARIABLE, LIST, STRUCT = range(8)
"""Storages. A boolean takes a byte. Maps have `LIST` storage, and their entries are a struct."""

WIDTHS = {BYTE: 1, INT16: 2, INT32: 4, INT64: 8, INT128: 16, VARIABLE: 4, LIST: 4, STRUCT: 0}
"""Bytes per value (or per offset) in the arena."""

PLAIN, IS_BOOLEAN, IS_MAP = range(3)
"""Kinds of nodes: booleans become bits, and maps may have equal keys."""

NULL = -1
ZERO = -2

# Ops

OPCODE = 0
NODE = 1
"""Node that receives the value; `ABSENT`: the value is skipped."""
A = 2
B = 3
C = 4
D = 5
E = 6
F = 7
OP_WIDTH = 8

(
    # Pulsar's primitives, big-endian; the payload is one value.
    VALUE_BYTES,
    VALUE_BOOLEAN,  # one byte
    VALUE_INTEGER,  # A bytes, signed; B: link of a scale
    VALUE_FLOAT,  # A bytes: 4 or 8
    VALUE_INSTANT,  # int64 seconds, int32 nanoseconds; A: units per second
    VALUE_TIME,  # int64 milliseconds, whose date is ignored; A: units per millisecond
    VALUE_DATE_TIME,  # int64 day, int64 nanosecond of the day; A: units per second
    # Avro's binary encoding.
    AVRO_NULL,
    AVRO_BOOLEAN,
    AVRO_INTEGER,  # int or long; A: link of a scale
    AVRO_INTEGER_TO_FLOAT,
    AVRO_FLOAT,
    AVRO_DOUBLE,
    AVRO_STRING,
    AVRO_BYTES,
    AVRO_FIXED,  # A: size in bytes
    AVRO_UUID,  # 16 bytes, converted to text
    AVRO_DECIMAL,  # A: size in bytes, ABSENT if a length precedes them; B: link of the bound
    # A: link of B positions of symbols among the constants; C: length of the longest one, or
    # `MAX_OFFSET` if one is missing or has a number of several bytes
    AVRO_ENUM,
    AVRO_ARRAY,  # A: op of an item
    AVRO_MAP,  # A: op of a value
    AVRO_RECORD,  # A: link of B ops; C: link of D pairs of an op and a position for missing fields
    AVRO_UNION,  # A: link of B ops
    AVRO_MEMBER,  # A: op of the value, which goes to a member of the struct
    AVRO_RAW,  # A: op that skips the value
    AVRO_FAIL,  # A: code
    AVRO_SKIP,  # fields outside the projection; A: link of B ops
    # JSON text.
    JSON_BOOLEAN,
    JSON_INTEGER,  # A: link of a scale
    JSON_FLOAT,
    JSON_STRING,
    JSON_BASE64,  # A: size in bytes, ABSENT for any size
    # A: digits; B: digits after the point; C: 1 if it may be a Base64 string of its bytes
    JSON_DECIMAL,
    JSON_ENUM,  # A: link of B positions; C: position for any other symbol, or ABSENT
    JSON_ARRAY,  # A: op of an item
    JSON_MAP,  # A: op of a value
    # A: link of B pairs: a name with its quotes and colon, and an op, ABSENT outside the
    # projection; C: hint of the number of wrong hints, then two hints for the first field, and two
    # for the field after each field and after an unknown one; D: link of the table of names
    JSON_RECORD,
    JSON_UNION,  # A: link of an op for each kind of token
    JSON_RAW,
    # Protobuf's wire format. All ops have C: the bit in the enclosing message; negative if it has a
    # mark instead, 0 for an item. Messages have B: the tag that ends a group; D: link of the
    # fields. Ops that can be read by columns have E: hint of the number of tokens, followed by the
    # tokens; F: the maximum number of tokens, a power of two, minus one.
    PROTO_INT32,  # the lower half of a number; or four bytes
    PROTO_INT64,  # a number; or eight bytes
    PROTO_SINT32,
    PROTO_SINT64,
    PROTO_BOOL,
    PROTO_UINT32,
    PROTO_UINT64,
    PROTO_STRING,
    PROTO_BYTES,
    # A: link of a table, positions by number; its MORE: whether the enum is closed; B: link of the
    # same in a hash table
    PROTO_ENUM,
    PROTO_RAW,  # a message, stored as its bytes
    PROTO_OTHER,  # a skipped member of a oneof in the node's message; A: link of the oneof
    PROTO_PACKED,  # A: op of an item; B: its size in bytes, 0 for a varint
    PROTO_SKIPPED,  # a field outside the projection, in columns and steps; A: whether repeated
    PROTO_PART,  # A: 0 for the seconds, 1 for the nanoseconds of the enclosing timestamp
    PROTO_MESSAGE,  # A: link of a table, ops by tag; its MORE: link of its oneofs, or ABSENT
    PROTO_ENTRY,  # a map entry; A as above; MORE: op of a value that is a message, or ABSENT
    PROTO_WRAPPER,  # A as above; the only field has the same node
    PROTO_TIMESTAMP,  # A as above; MORE: units per second
) = range(58)

# A scale: four links. value × MULTIPLIER ÷ DIVISOR, for LOW ≤ value ≤ HIGH.
MULTIPLIER, DIVISOR, LOW, HIGH = range(4)

# The fields of a protobuf message: NEEDED, the bits of fields that must be seen, or else the end of
# the message needs work; ONEOF, the bits of its oneof if it has exactly one, of which only one may
# be seen; COLUMNS and STEPS, their links, or ABSENT; MARKS, the first hint of its marks, or ABSENT;
# COUNT, the number of fields that are not lists; FIELDS, the first of their nodes. If the message
# has marks, the marks of fields that become a constant if they are missing follow the nodes.
NEEDED, ONEOF, COLUMNS, STEPS, MARKS, COUNT, FIELDS = range(7)
MAX_FIELD_BITS = 62
"""Maximum number of fields of a message whose fields have bits."""
MARKS_PER_HINT = 32
"""If a message has more fields, each has a mark, a bit of a hint. In place of the field's bit, ops
have −1 − the number of the mark, counted from that of the first hint."""

# The columns of a protobuf message: ops by tags of one byte, ABSENT for unexpected tags.
BY_TAG = 128
"""Number of these tags. Two lists follow, each after its length: all ops, and the ops of fields
that become a constant if they are missing."""

# The steps of a protobuf message: their number; the hint of the group of messages; and for each
# field, in the order of the field numbers: its op, its tag as the low bytes of eight little-endian
# bytes, the mask of these bytes, and their number.
STEP_OP, STEP_TAG, STEP_MASK, STEP_BYTES = range(4)
STEP_WIDTH = 4
GROUP = 256
"""Maximum number of messages in a group, which has four arrays: their current positions, their
ends, their rows, and the number of members of their oneof that were seen. The first hints are
another group, for the values of one field."""
STOPS, ROWS, MEMBERS, GROUP_HINTS = 264, 528, 792, 1056
"""Start of each array but the first in a group, and the number of hints of the group. A cache line
follows each array: processors confuse addresses that differ by a multiple of 4 KiB."""

# A protobuf oneof: the bits of its members, the number of members with a mark, and their marks.
# The number of oneofs precedes the oneofs of a message.

# A protobuf table: values by key. DENSE is the number of values for the keys from 0 (ABSENT for a
# missing key), SPARSE the number of pairs of key and value that follow them, ordered by key.
DENSE, SPARSE, MORE, TABLE = range(4)
SKIP_NUMBER, SKIP_EIGHT_BYTES, SKIP_BYTES, SKIP_FOUR_BYTES = range(-5, -1)
"""In place of an op, for fields without one: how to skip them."""

# The names of a protobuf enum, in a hash table: the multiplier of the hash, of 32 bits, and how far
# it is shifted right; then slots, each with a number and the position of its name. An empty slot
# has a number of more than 32 bits. Names whose slot is taken are only in the other table.

# The names of a JSON record, in a hash table: offset and mask of the bytes that are hashed, mask 0
# for names that no 8 bytes tell apart; the multiplier of the hash, and how far it is shifted right.
# Then slots, each with the position of a name with its quotes and colon, ABSENT if it is empty; the
# op of the field, ABSENT outside the projection; and the offset of its pair from A. A name that is
# not in its first slot is in one of the next, before an empty one.
SLOT_OP, SLOT_FIELD = 1, 2
SLOT_WIDTH = 4

DELIMITERS = 512
"""Maximum number of brackets and commas of a JSON text that is read in the order of the schema. The
first hints hold their positions; as many others the number of the next one at the same depth."""

MAX_MISSES = 64
"""From so many wrong hints on, none are used; half of them mean that names are in random order."""
MAX_SORTED = 64
"""Maximum number of fields of a JSON object that is read in the order of the schema."""

# Kinds of JSON tokens, in the order of the ops of `JSON_UNION`.
TOKEN_STRING, TOKEN_INTEGER, TOKEN_FRACTION, TOKEN_BOOLEAN, TOKEN_OBJECT, TOKEN_ARRAY = range(6)
TOKENS = 6

# The result of a run of the shredder.
RESULT_ROW, RESULT_CODE, RESULT_NODE, RESULT_OFFSET = range(4)
RESULT_WIDTH = 4

# Codes

OK = 0
FULL = 1
"""A node has no room for all values of a payload, or for all their bytes."""
NOT_CANONICAL = 2
"""A field occurs twice in a record, or a name has escapes: the payload is rewritten and retried."""
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
    TRAILING: "there are bytes after the value",
    BAD_VARINT: "a variable-length number has too many bytes",
    BAD_LENGTH: "a length is negative, beyond the payload, or not that of the type",
    BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    BAD_UTF8: "a text is not UTF-8",
    BAD_BRANCH: "a union has no branch with this number",
    BAD_SYMBOL: "an enum does not have this symbol",
    OUT_OF_RANGE: "a number or time is out of the range of its column",
    TOO_PRECISE: "a number or time has more digits than its column can hold",
    NO_MATCH: "the reader's schema does not accept the type of the value",
    TOO_MANY_ITEMS: "an array or map has more items without bytes than are allowed",
    TOO_DEEP: "values are nested deeper than is allowed",
    WRONG_TOKEN: "the JSON value has another type than the schema's",
    BAD_JSON: "the payload is not JSON",
    BAD_BASE64: "a text that represents bytes is not Base64",
    BAD_ESCAPE: "a text has an invalid escape",
    BAD_TAG: "a field has an invalid number or wire type",
    WRONG_SIZE: "the payload does not have the length of its type",
    NO_DEFAULT: "the writer's schema lacks this field, and the reader's has no default for it",
    BAD_MESSAGE: "the payload is not a protobuf message",
    TOO_LARGE: "the values take more memory than is allowed",
}
"""Error texts by code."""

MAX_OFFSET = (1 << 31) - 2
"""Maximum number of values of a node, and of their bytes."""
MAX_DEPTH = 64
"""Maximum nesting of values that are skipped or stored undecoded."""
MAX_EMPTY_ITEMS = 1 << 16
"""Maximum number of items without bytes in one payload."""
MAX_MESSAGE_DEPTH = 100
"""Maximum nesting of protobuf messages and groups, as in its parsers."""
