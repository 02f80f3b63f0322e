# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""The hot loop: the bytes of entries → positions and numbers (`arrow_io.messages.layout`).

Cython in pure-Python mode. This file is also compiled, as `_decode_c`; `_decode` chooses. Both
builds give the same numbers for every input, hostile input included.

Rules of this file:

* Input is a read-only byte view and is never copied, but for the gathering of asked-for columns.
* Bounds checks are off in the compiled build, so every length read from the bytes is compared with
  what remains *before* it is used, and every shift is masked to 64 bits.
* No Python object is made and no error is raised for bad bytes: a code is left in the table (or
  returned), and the caller raises the typed error, because only the caller knows object, ledger and
  entry.

The layouts are those of Pulsar's `Commands.java` (entry), `PulsarApi.proto` (MessageMetadata,
SingleMessageMetadata, BrokerEntryMetadata) and of PIP-17 (entry header).
"""

from __future__ import annotations

from arrow_io.messages import layout

try:
    import cython
except ImportError:
    from arrow_io.messages import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.messages._prefetch import prefetch
    from cython.cimports.cpython.memoryview import PyMemoryView_FromMemory
    from cython.cimports.libc.string import memcpy

IS_COMPILED = cython.compiled

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_MAX63 = cython.declare(cython.ulonglong, 0x7FFFFFFFFFFFFFFF)
_MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
_MAX31 = cython.declare(cython.longlong, 0x7FFFFFFF)
_TWO31 = cython.declare(cython.longlong, 0x80000000)
_TWO32 = cython.declare(cython.longlong, 0x100000000)

_MAX_MILLISECONDS = cython.declare(cython.longlong, layout.MAX_MILLISECONDS)
_NO_TIME = cython.declare(cython.longlong, layout.NO_TIME)
_AHEAD = cython.declare(cython.Py_ssize_t, 12)

_ENTRY_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 12)

_ENTRY_ID = cython.declare(cython.Py_ssize_t, layout.ENTRY_ID)
_FRAME = cython.declare(cython.Py_ssize_t, layout.FRAME)
_ERROR = cython.declare(cython.Py_ssize_t, layout.ERROR)
_FLAGS = cython.declare(cython.Py_ssize_t, layout.FLAGS)
_CHECKSUM = cython.declare(cython.Py_ssize_t, layout.CHECKSUM)
_CHECKED = cython.declare(cython.Py_ssize_t, layout.CHECKED)
_PAYLOAD = cython.declare(cython.Py_ssize_t, layout.PAYLOAD)
_METADATA = cython.declare(cython.Py_ssize_t, layout.METADATA)
_PUBLISH_TIME = cython.declare(cython.Py_ssize_t, layout.PUBLISH_TIME)
_EVENT_TIME = cython.declare(cython.Py_ssize_t, layout.EVENT_TIME)
_SEQUENCE_ID = cython.declare(cython.Py_ssize_t, layout.SEQUENCE_ID)
_PRODUCER_NAME = cython.declare(cython.Py_ssize_t, layout.PRODUCER_NAME)
_KEY = cython.declare(cython.Py_ssize_t, layout.KEY)
_ORDERING_KEY = cython.declare(cython.Py_ssize_t, layout.ORDERING_KEY)
_PROPERTY_COUNT = cython.declare(cython.Py_ssize_t, layout.PROPERTY_COUNT)
_BATCH_SIZE = cython.declare(cython.Py_ssize_t, layout.BATCH_SIZE)
_COMPRESSION = cython.declare(cython.Py_ssize_t, layout.COMPRESSION)
_UNCOMPRESSED_SIZE = cython.declare(cython.Py_ssize_t, layout.UNCOMPRESSED_SIZE)
_SCHEMA_VERSION = cython.declare(cython.Py_ssize_t, layout.SCHEMA_VERSION)
_BROKER_TIME = cython.declare(cython.Py_ssize_t, layout.BROKER_TIME)
_BROKER_INDEX = cython.declare(cython.Py_ssize_t, layout.BROKER_INDEX)
_DELIVER_AT = cython.declare(cython.Py_ssize_t, layout.DELIVER_AT)
_REPLICATED_FROM = cython.declare(cython.Py_ssize_t, layout.REPLICATED_FROM)
_MARKER_TYPE = cython.declare(cython.Py_ssize_t, layout.MARKER_TYPE)
_TXN_MOST = cython.declare(cython.Py_ssize_t, layout.TXN_MOST)
_TXN_LEAST = cython.declare(cython.Py_ssize_t, layout.TXN_LEAST)
_UUID = cython.declare(cython.Py_ssize_t, layout.UUID)
_CHUNK_COUNT = cython.declare(cython.Py_ssize_t, layout.CHUNK_COUNT)
_CHUNK_TOTAL_SIZE = cython.declare(cython.Py_ssize_t, layout.CHUNK_TOTAL_SIZE)
_CHUNK_ID = cython.declare(cython.Py_ssize_t, layout.CHUNK_ID)
_ENTRY_WIDTH = cython.declare(cython.Py_ssize_t, layout.ENTRY_WIDTH)

_ROW_ENTRY = cython.declare(cython.Py_ssize_t, layout.ROW_ENTRY)
_ROW_BATCH_INDEX = cython.declare(cython.Py_ssize_t, layout.ROW_BATCH_INDEX)
_ROW_EVENT_TIME = cython.declare(cython.Py_ssize_t, layout.ROW_EVENT_TIME)
_ROW_SEQUENCE_ID = cython.declare(cython.Py_ssize_t, layout.ROW_SEQUENCE_ID)
_ROW_FLAGS = cython.declare(cython.Py_ssize_t, layout.ROW_FLAGS)
_ROW_KEY = cython.declare(cython.Py_ssize_t, layout.ROW_KEY)
_ROW_ORDERING_KEY = cython.declare(cython.Py_ssize_t, layout.ROW_ORDERING_KEY)
_ROW_PROPERTY_COUNT = cython.declare(cython.Py_ssize_t, layout.ROW_PROPERTY_COUNT)
_ROW_METADATA = cython.declare(cython.Py_ssize_t, layout.ROW_METADATA)
_ROW_PAYLOAD = cython.declare(cython.Py_ssize_t, layout.ROW_PAYLOAD)
_ROW_WIDTH = cython.declare(cython.Py_ssize_t, layout.ROW_WIDTH)

_DONE = cython.declare(cython.longlong, layout.DONE)
_CUT = cython.declare(cython.longlong, layout.CUT)
_PADDING = cython.declare(cython.longlong, layout.PADDING)
_WRONG_ENTRY_ID = cython.declare(cython.longlong, layout.WRONG_ENTRY_ID)

_BAD_BROKER_METADATA = cython.declare(cython.longlong, layout.BAD_BROKER_METADATA)
_BAD_FRAME = cython.declare(cython.longlong, layout.BAD_FRAME)
_BAD_METADATA = cython.declare(cython.longlong, layout.BAD_METADATA)
_MISSING_FIELD = cython.declare(cython.longlong, layout.MISSING_FIELD)
_BAD_MESSAGE_SIZE = cython.declare(cython.longlong, layout.BAD_MESSAGE_SIZE)
_BAD_MESSAGE_METADATA = cython.declare(cython.longlong, layout.BAD_MESSAGE_METADATA)
_BAD_PAYLOAD_SIZE = cython.declare(cython.longlong, layout.BAD_PAYLOAD_SIZE)
_TRAILING_BYTES = cython.declare(cython.longlong, layout.TRAILING_BYTES)
_BAD_PROPERTY = cython.declare(cython.longlong, layout.BAD_PROPERTY)
_BAD_BATCH_SIZE = cython.declare(cython.longlong, layout.BAD_BATCH_SIZE)
_MIN_MEMBER_BYTES = cython.declare(cython.longlong, layout.MIN_MEMBER_BYTES)
_MAX_RATIO = cython.declare(cython.longlong, layout.MAX_COMPRESSION_RATIO)
_MAX_COMPARED = cython.declare(cython.Py_ssize_t, layout.MAX_COMPARED_PROPERTIES)

_KEY_IS_BASE64 = cython.declare(cython.longlong, layout.KEY_IS_BASE64)
_NULL_VALUE = cython.declare(cython.longlong, layout.NULL_VALUE)
_NULL_KEY = cython.declare(cython.longlong, layout.NULL_KEY)
_BROKEN = cython.declare(cython.longlong, layout.BROKEN)
_IS_MARKER = cython.declare(cython.longlong, layout.MARKER)
_TRANSACTION = cython.declare(cython.longlong, layout.TRANSACTION)
_ENCRYPTED = cython.declare(cython.longlong, layout.ENCRYPTED)
_CHUNKED = cython.declare(cython.longlong, layout.CHUNKED)
_BATCHED = cython.declare(cython.longlong, layout.BATCHED)
_COMPRESSED = cython.declare(cython.longlong, layout.COMPRESSED)
_HAS_BROKER_INDEX = cython.declare(cython.longlong, layout.HAS_BROKER_INDEX)
_ROW_FLAG_BITS = cython.declare(
    cython.longlong, layout.KEY_IS_BASE64 | layout.NULL_VALUE | layout.NULL_KEY
)


# ----------------------------------------------------------------------------
# Numbers


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.Py_ssize_t))
def _varint(
    p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t, stop: cython.Py_ssize_t
):
    """A protobuf varint of at most ten bytes, and the position behind it; −1 if it is not whole."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    shift: cython.int = 0
    while i < stop and shift < 70:
        byte = p[i]
        i += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, i
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _signed(value: cython.ulonglong):
    """The 64-bit two's complement of an unsigned value, spelled so that both builds agree."""
    rest: cython.longlong
    if value > _MAX63:
        rest = _MASK64 - value
        return -rest - 1
    return value


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _int32(value: cython.ulonglong):
    """What protobuf makes of a varint in an int32 field: the low 32 bits, signed."""
    low: cython.longlong = value & _MASK32
    if low >= _TWO31:
        low -= _TWO32
    return low


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _uint32_be(p: cython.pointer[cython.const[cython.uchar]], i: cython.Py_ssize_t):
    a: cython.longlong = p[i]
    b: cython.longlong = p[i + 1]
    c: cython.longlong = p[i + 2]
    d: cython.longlong = p[i + 3]
    return (a << 24) | (b << 16) | (c << 8) | d


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _position(start: cython.longlong, length: cython.longlong):
    return (start << 32) | length


# ----------------------------------------------------------------------------
# Entries


def read_entries(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    entry_id: cython.longlong,
    last_entry_id: cython.longlong,
    table: cython.longlong[::1],
    capacity: cython.Py_ssize_t,
    result: cython.longlong[::1],
) -> None:
    """Walk entries that stand back to back; decode frame and metadata of each into the entry table.

    Args:
        data: Bytes of (part of) a data block.
        start: Where the first entry's 12-byte header begins in `data`.
        stop: End (exclusive) of the bytes that may be read; at most `len(data)`.
        entry_id: Id that the first entry must have; each further one must have the next.
        last_entry_id: Last id to read (inclusive).
        table: Receives `ENTRY_WIDTH` numbers an entry; at least `capacity * ENTRY_WIDTH` long.
        capacity: How many entries the table takes.
        result: Receives `[count, position, status, needed]`: entries read; position behind the last
            of them; why the walk stopped (`DONE`, `CUT`, `PADDING`,
            `WRONG_ENTRY_ID`); for `CUT`, how many bytes the next entry (or its header) takes.
    """
    count: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t = start
    length: cython.longlong
    found: cython.longlong
    status: cython.longlong = _DONE
    needed: cython.longlong = 0
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        t: cython.pointer[cython.longlong] = cython.address(table[0])
    else:
        p = data
        t = table
    with cython.nogil:
        while count < capacity and entry_id <= last_entry_id:
            if stop - i < _ENTRY_HEADER_BYTES:
                status = _CUT
                needed = _ENTRY_HEADER_BYTES
                break
            length = _uint32_be(p, i)
            if length >= _TWO31:
                status = _PADDING
                break
            # Both halves of an id are below 2**32; an id of 2**63 and more wraps to a negative
            # number.
            found = _uint32_be(p, i + 4)
            if found >= _TWO31:
                found -= _TWO32
            found = found * _TWO32 + _uint32_be(p, i + 8)
            if found != entry_id:
                status = _WRONG_ENTRY_ID
                break
            if length > stop - i - _ENTRY_HEADER_BYTES:
                status = _CUT
                needed = _ENTRY_HEADER_BYTES + length
                break
            i += _ENTRY_HEADER_BYTES
            _read_frame(p, i, i + length, t, count * _ENTRY_WIDTH, entry_id)
            i += length
            count += 1
            entry_id += 1
    result[0] = count
    result[1] = i
    result[2] = status
    result[3] = needed


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.void)
def _read_frame(
    p: cython.pointer[cython.const[cython.uchar]],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    t: cython.pointer[cython.longlong],
    base: cython.Py_ssize_t,
    entry_id: cython.longlong,
):
    """Decode `[broker metadata] [checksum] metadata payload` of one entry (Commands.java)."""
    i: cython.Py_ssize_t = start
    size: cython.longlong
    error: cython.longlong = 0
    t[base + _ENTRY_ID] = entry_id
    t[base + _FRAME] = _position(start, stop - start)
    t[base + _FLAGS] = 0
    t[base + _CHECKSUM] = -1
    t[base + _CHECKED] = -1
    t[base + _BROKER_TIME] = _NO_TIME
    t[base + _BROKER_INDEX] = -1
    if stop - i >= 2 and p[i] == 0x0E and p[i + 1] == 0x02:
        if stop - i < 6:
            error = _BAD_FRAME
        else:
            size = _uint32_be(p, i + 2)
            i += 6
            if size > stop - i:
                error = _BAD_FRAME
            else:
                error = _read_broker_metadata(p, i, i + size, t, base)
                i += size
    if error == 0 and stop - i >= 2 and p[i] == 0x0E and p[i + 1] == 0x01:
        if stop - i < 6:
            error = _BAD_FRAME
        else:
            t[base + _CHECKSUM] = _uint32_be(p, i + 2)
            i += 6
            t[base + _CHECKED] = _position(i, stop - i)
    if error == 0:
        if stop - i < 4:
            error = _BAD_FRAME
        else:
            size = _uint32_be(p, i)
            i += 4
            if size > stop - i:
                error = _BAD_FRAME
            else:
                t[base + _METADATA] = _position(i, size)
                t[base + _PAYLOAD] = _position(i + size, stop - i - size)
                error = _read_metadata(p, i, i + size, t, base)
    t[base + _ERROR] = error
    if error != 0:
        t[base + _FLAGS] = _BROKEN


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _read_broker_metadata(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    t: cython.pointer[cython.longlong],
    base: cython.Py_ssize_t,
):
    """BrokerEntryMetadata (PIP-70): 1 broker_timestamp, 2 index; 0, or the error."""
    tag: cython.ulonglong
    value: cython.ulonglong
    while i < stop:
        tag, i = _varint(p, i, stop)
        if i < 0 or tag < 8:
            return _BAD_BROKER_METADATA
        if tag & 7 == 0:
            value, i = _varint(p, i, stop)
            if i < 0:
                return _BAD_BROKER_METADATA
            if tag == 8:
                t[base + _BROKER_TIME] = _signed(value)
            elif tag == 16:
                t[base + _BROKER_INDEX] = _signed(value)
                t[base + _FLAGS] |= _HAS_BROKER_INDEX
        else:
            i = _skip(p, i, stop, tag)
            if i < 0:
                return _BAD_BROKER_METADATA
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _skip(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    tag: cython.ulonglong,
):
    """The position behind a field that is no varint; −1 if it is not whole or of unknown kind."""
    wire: cython.ulonglong = tag & 7
    length: cython.ulonglong
    room: cython.ulonglong
    if wire == 2:
        length, i = _varint(p, i, stop)
        if i < 0:
            return -1
        room = stop - i
    elif wire == 1:
        length = 8
        room = stop - i
    elif wire == 5:
        length = 4
        room = stop - i
    else:
        return -1
    if length > room:
        return -1
    return i + length


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _read_metadata(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    t: cython.pointer[cython.longlong],
    base: cython.Py_ssize_t,
):
    """MessageMetadata → the entry's row of the table; 0, or the error."""
    tag: cython.ulonglong
    value: cython.ulonglong
    room: cython.ulonglong
    where: cython.longlong
    flags: cython.longlong = t[base + _FLAGS]
    required: cython.int = 0
    transaction: cython.int = 0
    properties: cython.longlong = 0
    t[base + _PUBLISH_TIME] = 0
    t[base + _EVENT_TIME] = 0
    t[base + _SEQUENCE_ID] = 0
    t[base + _PRODUCER_NAME] = -1
    t[base + _KEY] = -1
    t[base + _ORDERING_KEY] = -1
    t[base + _BATCH_SIZE] = -1
    t[base + _COMPRESSION] = 0
    t[base + _UNCOMPRESSED_SIZE] = 0
    t[base + _SCHEMA_VERSION] = -1
    t[base + _DELIVER_AT] = _NO_TIME
    t[base + _REPLICATED_FROM] = -1
    t[base + _MARKER_TYPE] = -1
    t[base + _TXN_MOST] = 0
    t[base + _TXN_LEAST] = 0
    t[base + _UUID] = -1
    t[base + _CHUNK_COUNT] = 0
    t[base + _CHUNK_TOTAL_SIZE] = 0
    t[base + _CHUNK_ID] = 0
    while i < stop:
        tag = p[i]
        if tag < 0x80:
            i += 1
        else:
            tag, i = _varint(p, i, stop)
            if i < 0:
                return _BAD_METADATA
        if tag < 8:
            return _BAD_METADATA
        if tag & 7 == 0:
            value, i = _varint(p, i, stop)
            if i < 0:
                return _BAD_METADATA
            if tag == 16:
                t[base + _SEQUENCE_ID] = _signed(value)
                required |= 2
            elif tag == 24:
                t[base + _PUBLISH_TIME] = _signed(value)
                required |= 4
            elif tag == 64:
                t[base + _COMPRESSION] = _int32(value)
            elif tag == 72:
                t[base + _UNCOMPRESSED_SIZE] = value & _MASK32
            elif tag == 88:
                t[base + _BATCH_SIZE] = _int32(value)
                flags |= _BATCHED
            elif tag == 96:
                t[base + _EVENT_TIME] = _signed(value)
            elif tag == 136:
                flags = (flags | _KEY_IS_BASE64) if value else (flags & ~_KEY_IS_BASE64)
            elif tag == 152:
                t[base + _DELIVER_AT] = _signed(value)
            elif tag == 160:
                t[base + _MARKER_TYPE] = _int32(value)
                flags |= _IS_MARKER
            elif tag == 176:
                t[base + _TXN_LEAST] = _signed(value)
                transaction |= 1
            elif tag == 184:
                t[base + _TXN_MOST] = _signed(value)
                transaction |= 2
            elif tag == 200:
                flags = (flags | _NULL_VALUE) if value else (flags & ~_NULL_VALUE)
            elif tag == 216:
                t[base + _CHUNK_COUNT] = _int32(value)
            elif tag == 224:
                t[base + _CHUNK_TOTAL_SIZE] = _int32(value)
            elif tag == 232:
                t[base + _CHUNK_ID] = _int32(value)
            elif tag == 240:
                flags = (flags | _NULL_KEY) if value else (flags & ~_NULL_KEY)
        elif tag & 7 == 2:
            value, i = _varint(p, i, stop)
            if i < 0:
                return _BAD_METADATA
            room = stop - i
            if value > room:
                return _BAD_METADATA
            where = _position(i, value)
            i += value
            if tag == 10:
                t[base + _PRODUCER_NAME] = where
                required |= 1
            elif tag == 34:
                properties += 1
            elif tag == 42:
                t[base + _REPLICATED_FROM] = where
            elif tag == 50:
                t[base + _KEY] = where
            elif tag == 106:
                flags |= _ENCRYPTED
            elif tag == 130:
                t[base + _SCHEMA_VERSION] = where
            elif tag == 146:
                t[base + _ORDERING_KEY] = where
            elif tag == 210:
                t[base + _UUID] = where
        else:
            i = _skip(p, i, stop, tag)
            if i < 0:
                return _BAD_METADATA
    if required != 7:
        return _MISSING_FIELD
    if transaction == 3:
        flags |= _TRANSACTION
    if t[base + _CHUNK_COUNT] > 1 and flags & _BATCHED == 0:
        flags |= _CHUNKED
    if t[base + _COMPRESSION] != 0:
        flags |= _COMPRESSED
    t[base + _PROPERTY_COUNT] = properties
    t[base + _FLAGS] = flags
    return 0


def next_flagged(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    mask: cython.longlong,
) -> int:
    """Index of the first entry in `[first, stop)` that has any flag of `mask`; `stop` if none."""
    i: cython.Py_ssize_t = first
    while i < stop and table[i * _ENTRY_WIDTH + _FLAGS] & mask == 0:
        i += 1
    return i


def next_bad_checksum(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    crc32c,
) -> int:
    """Index of the first entry in `[first, stop)` whose CRC32C is not as stored; `stop` if none.

    Args:
        data: The buffer that the entry table was read from.
        table: Entry table.
        first: First entry looked at.
        stop: Behind the last entry looked at.
        crc32c: `crc32c(bytes_like) -> int`.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    where: cython.longlong
    begin: cython.Py_ssize_t
    length: cython.Py_ssize_t
    for i in range(first, stop):
        base = i * _ENTRY_WIDTH
        where = table[base + _CHECKED]
        if where < 0:
            continue
        begin = where >> 32
        length = where & _MASK32
        if cython.compiled:
            # A memoryview over the pointer costs a third of a slice of the typed view.
            covered = PyMemoryView_FromMemory(
                cython.cast(cython.p_char, cython.address(data[begin])), length, 0x100
            )
        else:
            covered = data[begin : begin + length]
        if crc32c(covered) != table[base + _CHECKSUM]:
            return i
    return stop


def count_messages(
    table: cython.const[cython.longlong][::1], first: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> int:
    """How many messages the entries in `[first, stop)` say they hold."""
    i: cython.Py_ssize_t
    size: cython.longlong
    total: cython.longlong = 0
    for i in range(first, stop):
        size = table[i * _ENTRY_WIDTH + _BATCH_SIZE]
        total += 1 if size < 0 else size
    return total


# ----------------------------------------------------------------------------
# Rows


def add_singles(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    rows: cython.longlong[::1],
    capacity: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
) -> None:
    """Give each entry in `[first, stop)` one row, from `row` on; its values are those of the entry.

    Args:
        table: Entry table.
        first: First entry.
        stop: Behind the last entry.
        rows: Row table, column-major.
        capacity: Rows that each column of `rows` takes; `row + stop - first` at most.
        row: First row written.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    with cython.nogil:
        for i in range(first, stop):
            base = i * _ENTRY_WIDTH
            rows[_ROW_ENTRY * capacity + row] = i
            rows[_ROW_BATCH_INDEX * capacity + row] = -1
            rows[_ROW_EVENT_TIME * capacity + row] = table[base + _EVENT_TIME]
            rows[_ROW_SEQUENCE_ID * capacity + row] = table[base + _SEQUENCE_ID]
            rows[_ROW_FLAGS * capacity + row] = table[base + _FLAGS] & _ROW_FLAG_BITS
            rows[_ROW_KEY * capacity + row] = table[base + _KEY]
            rows[_ROW_ORDERING_KEY * capacity + row] = table[base + _ORDERING_KEY]
            rows[_ROW_PROPERTY_COUNT * capacity + row] = table[base + _PROPERTY_COUNT]
            rows[_ROW_METADATA * capacity + row] = table[base + _METADATA]
            rows[_ROW_PAYLOAD * capacity + row] = (
                -1 if table[base + _FLAGS] & _NULL_VALUE else table[base + _PAYLOAD]
            )
            row += 1


def add_positions(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    batch_index: cython.longlong,
    stop: cython.Py_ssize_t,
    rows: cython.longlong[::1],
    capacity: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
    result: cython.longlong[::1],
) -> None:
    """Give each message of the entries in `[first, stop)` a row without a look into batches.

    For scans that ask for nothing that stands in a batch: only entry and batch index are written,
    the other columns are left as they are and must not be used. Stops at the last entry, or when
    the row table is full, or at a batch that cannot hold what it announces.

    Args:
        table: Entry table.
        first: First entry.
        batch_index: Batch index of the first entry's first message to be given, if it is a batch.
        stop: Behind the last entry.
        rows: Row table, column-major.
        capacity: Rows that each column of `rows` takes.
        row: First row written.
        result: Receives `[row, entry, batch_index, error]`: where to go on; error 0, or
            `BAD_BATCH_SIZE` for that entry.
    """
    base: cython.Py_ssize_t
    members: cython.longlong
    size: cython.longlong
    error: cython.longlong = 0
    with cython.nogil:
        while first < stop and row < capacity:
            base = first * _ENTRY_WIDTH
            members = table[base + _BATCH_SIZE]
            if table[base + _FLAGS] & _BATCHED == 0:
                rows[_ROW_ENTRY * capacity + row] = first
                rows[_ROW_BATCH_INDEX * capacity + row] = -1
                row += 1
                first += 1
                continue
            size = table[base + _PAYLOAD] & _MASK32
            if table[base + _FLAGS] & _COMPRESSED:
                size = min((size + 16) * _MAX_RATIO, table[base + _UNCOMPRESSED_SIZE])
            if members < 0 or members > size // _MIN_MEMBER_BYTES:
                error = _BAD_BATCH_SIZE
                break
            while batch_index < members and row < capacity:
                rows[_ROW_ENTRY * capacity + row] = first
                rows[_ROW_BATCH_INDEX * capacity + row] = batch_index
                batch_index += 1
                row += 1
            if batch_index >= members:
                batch_index = 0
                first += 1
    result[0] = row
    result[1] = first
    result[2] = batch_index
    result[3] = error


def split_batch(
    data: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    table: cython.const[cython.longlong][::1],
    entry: cython.Py_ssize_t,
    batch_index: cython.longlong,
    rows: cython.longlong[::1],
    capacity: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
    result: cython.longlong[::1],
) -> None:
    """Split (part of) a batch, `{u32 size, SingleMessageMetadata, payload}` a message, into rows.

    Stops when the batch is at its end or the row table is full; call again with the position and
    batch index it gives to go on. Members that are `compacted_out` get no row, but count in the
    batch index.

    Args:
        data: The decompressed payload of the entry.
        position: Where the next message begins in `data`.
        stop: End (exclusive) of the batch in `data`.
        table: Entry table, for what the batch's own metadata says.
        entry: Index of the entry in `table`.
        batch_index: Batch index of the next message.
        rows: Row table, column-major.
        capacity: Rows that each column of `rows` takes.
        row: First row written.
        result: Receives `[row, position, batch_index, error]`: behind what was read; error 0 or a
            `BAD_…` code, in which case `position` and `batch_index` are those of the bad message.
    """
    base: cython.Py_ssize_t = entry * _ENTRY_WIDTH
    size: cython.longlong
    length: cython.longlong
    error: cython.longlong = 0
    kept: cython.int
    begin: cython.Py_ssize_t
    batch_size: cython.longlong = table[base + _BATCH_SIZE]
    event_time: cython.longlong = table[base + _EVENT_TIME]
    sequence_id: cython.longlong = table[base + _SEQUENCE_ID]
    flags: cython.longlong = table[base + _FLAGS] & (_NULL_VALUE | _NULL_KEY)
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        r: cython.pointer[cython.longlong] = cython.address(rows[0])
    else:
        p = data
        r = rows
    with cython.nogil:
        while batch_index < batch_size and row < capacity:
            if stop - position < 4:
                error = _BAD_MESSAGE_SIZE
                break
            size = _uint32_be(p, position)
            begin = position + 4
            if size > stop - begin:
                error = _BAD_MESSAGE_SIZE
                break
            r[_ROW_ENTRY * capacity + row] = entry
            r[_ROW_BATCH_INDEX * capacity + row] = batch_index
            r[_ROW_EVENT_TIME * capacity + row] = event_time
            r[_ROW_SEQUENCE_ID * capacity + row] = sequence_id
            r[_ROW_FLAGS * capacity + row] = flags
            r[_ROW_METADATA * capacity + row] = _position(begin, size)
            length = _read_single_metadata(p, begin, begin + size, r, capacity, row)
            if length < 0:
                error = -length
                break
            kept = length & 1
            length >>= 1
            begin += size
            if length > stop - begin:
                error = _BAD_PAYLOAD_SIZE
                break
            r[_ROW_PAYLOAD * capacity + row] = (
                -1 if r[_ROW_FLAGS * capacity + row] & _NULL_VALUE else _position(begin, length)
            )
            position = begin + length
            batch_index += 1
            row += kept
        if error == 0 and batch_index >= batch_size and position != stop:
            error = _TRAILING_BYTES
    result[0] = row
    result[1] = position
    result[2] = batch_index
    result[3] = error


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _read_single_metadata(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    r: cython.pointer[cython.longlong],
    capacity: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
):
    """SingleMessageMetadata → row; `payload_size << 1 | not compacted_out`, or minus the error."""
    tag: cython.ulonglong
    value: cython.ulonglong
    room: cython.ulonglong
    payload_size: cython.longlong = -1
    properties: cython.longlong = 0
    kept: cython.longlong = 1
    key: cython.longlong = -1
    ordering_key: cython.longlong = -1
    flags: cython.longlong = r[_ROW_FLAGS * capacity + row]
    seen: cython.int = 0
    while i < stop:
        tag = p[i]
        if tag < 0x80:
            i += 1
        else:
            tag, i = _varint(p, i, stop)
            if i < 0:
                return -_BAD_MESSAGE_METADATA
        if tag < 8:
            return -_BAD_MESSAGE_METADATA
        if tag & 7 == 0:
            value, i = _varint(p, i, stop)
            if i < 0:
                return -_BAD_MESSAGE_METADATA
            if tag == 24:
                payload_size = _int32(value)
                seen = 1
            elif tag == 32:
                kept = 0 if value else 1
            elif tag == 40:
                r[_ROW_EVENT_TIME * capacity + row] = _signed(value)
            elif tag == 48:
                flags = (flags | _KEY_IS_BASE64) if value else (flags & ~_KEY_IS_BASE64)
            elif tag == 64:
                r[_ROW_SEQUENCE_ID * capacity + row] = _signed(value)
            elif tag == 72:
                flags = (flags | _NULL_VALUE) if value else (flags & ~_NULL_VALUE)
            elif tag == 80:
                flags = (flags | _NULL_KEY) if value else (flags & ~_NULL_KEY)
        elif tag & 7 == 2:
            value, i = _varint(p, i, stop)
            if i < 0:
                return -_BAD_MESSAGE_METADATA
            room = stop - i
            if value > room:
                return -_BAD_MESSAGE_METADATA
            if tag == 10:
                properties += 1
            elif tag == 18:
                key = _position(i, value)
            elif tag == 58:
                ordering_key = _position(i, value)
            i += value
        else:
            i = _skip(p, i, stop, tag)
            if i < 0:
                return -_BAD_MESSAGE_METADATA
    if seen == 0:
        return -_MISSING_FIELD
    if payload_size < 0:
        return -_BAD_PAYLOAD_SIZE
    r[_ROW_FLAGS * capacity + row] = flags
    r[_ROW_KEY * capacity + row] = key
    r[_ROW_ORDERING_KEY * capacity + row] = ordering_key
    r[_ROW_PROPERTY_COUNT * capacity + row] = properties
    return (payload_size << 1) | kept


# ----------------------------------------------------------------------------
# Columns


def spread_entry_field(
    table: cython.const[cython.longlong][::1],
    field: cython.Py_ssize_t,
    entries: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    out: cython.longlong[::1],
) -> None:
    """Give rows `[first, stop)` of `out` one field of their entries, which `entries` names."""
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(first, stop):
            out[i] = table[entries[i] * _ENTRY_WIDTH + field]


def end_of_version(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][::1],
    entries: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> int:
    """The row behind those from `first` on, up to `stop`, that have its schema version.

    Args:
        data: The bytes that the entries stand in.
        table: The entry table.
        entries: The number of each row's entry.
        first: The first row.
        stop: Behind the last row.
    """
    row: cython.Py_ssize_t = first
    entry: cython.longlong = entries[first]
    wanted: cython.longlong = table[entry * _ENTRY_WIDTH + _SCHEMA_VERSION]
    found: cython.longlong
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        while row < stop:
            if entries[row] != entry:
                entry = entries[row]
                found = table[entry * _ENTRY_WIDTH + _SCHEMA_VERSION]
                if (found < 0) != (wanted < 0):
                    break
                if wanted >= 0 and not _same_bytes(p, found, wanted):
                    break
            row += 1
    return row


def split_key_values(
    data: cython.const[cython.uchar][::1],
    payloads: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    keys: cython.longlong[::1],
    values: cython.longlong[::1],
) -> int:
    """Find key and value in payloads `[first, stop)` of Pulsar's `KeyValue`, encoded INLINE.

    Args:
        data: The bytes that the payloads stand in.
        payloads: Positions of the payloads; −1: there is none.
        first: Number of the first payload.
        stop: Behind the last payload.
        keys: Receives the positions of the keys, −1 for null.
        values: Receives the positions of the values, −1 for null.

    Returns:
        Number of the first payload that is none, or `stop`.
    """
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    end: cython.Py_ssize_t
    part: cython.int
    length: cython.longlong
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    for row in range(first, stop):
        keys[row] = -1
        values[row] = -1
        if payloads[row] < 0:
            continue
        i = payloads[row] >> 32
        end = i + (payloads[row] & _MASK32)
        for part in range(2):
            if end - i < 4:
                return row
            length = _uint32_be(p, i)
            i += 4
            if length >= _TWO31:
                if length != _MASK32:
                    return row
                continue
            if length > end - i:
                return row
            if part == 0:
                keys[row] = _position(i, length)
            else:
                values[row] = _position(i, length)
            i += length
        if i != end:
            return row
    return stop


def fill_offsets(
    positions: cython.const[cython.longlong][::1],
    count: cython.Py_ssize_t,
    offsets: cython.int[::1],
    validity: cython.uchar[::1],
) -> tuple[int, int]:
    """Make Arrow offsets and validity bits of `count` positions.

    Args:
        positions: Positions; negative where the value is absent.
        count: How many.
        offsets: Receives `count + 1` offsets, the first 0.
        validity: Receives `count` bits, least significant first; `(count + 7) // 8` bytes.

    Returns:
        Total length in bytes, or −1 where it exceeds what 32-bit offsets can hold; number of absent
        values.
    """
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    absent: cython.Py_ssize_t = 0
    where: cython.longlong
    bits: cython.int = 0
    with cython.nogil:
        offsets[0] = 0
        for i in range(count):
            where = positions[i]
            if where < 0:
                absent += 1
            else:
                total += where & _MASK32
                bits |= 1 << (i & 7)
            if total > _MAX31:
                break
            offsets[i + 1] = total
            if i & 7 == 7:
                validity[i >> 3] = bits
                bits = 0
        if total <= _MAX31 and count & 7 != 0:
            validity[count >> 3] = bits
    if total > _MAX31:
        return -1, absent
    return total, absent


def fill_timestamps(
    milliseconds: cython.const[cython.longlong][::1],
    count: cython.Py_ssize_t,
    absent: cython.longlong,
    out: cython.longlong[::1],
    validity: cython.uchar[::1],
) -> tuple[int, int]:
    """Make microseconds and validity bits of `count` times in milliseconds.

    Args:
        milliseconds: Times.
        count: How many.
        absent: The time that stands for none.
        out: Receives the times in microseconds.
        validity: Receives `count` bits, least significant first; `(count + 7) // 8` bytes.

    Returns:
        Number of times without a validity bit; how many of them microseconds cannot hold.
    """
    i: cython.Py_ssize_t
    beyond: cython.Py_ssize_t = 0
    nulls: cython.Py_ssize_t = 0
    time: cython.longlong
    bits: cython.int = 0
    with cython.nogil:
        for i in range(count):
            time = milliseconds[i]
            if time != absent and -_MAX_MILLISECONDS <= time <= _MAX_MILLISECONDS:
                bits |= 1 << (i & 7)
                out[i] = time * 1000
            else:
                nulls += 1
                beyond += time != absent
                out[i] = 0
            if i & 7 == 7:
                validity[i >> 3] = bits
                bits = 0
        if count & 7 != 0:
            validity[count >> 3] = bits
    return nulls, beyond


def fill_batch_indexes(
    indexes: cython.const[cython.longlong][::1],
    count: cython.Py_ssize_t,
    out: cython.int[::1],
    validity: cython.uchar[::1],
) -> int:
    """Make 32-bit numbers and validity bits of `count` batch indexes; gives how many are absent."""
    i: cython.Py_ssize_t
    nulls: cython.Py_ssize_t = 0
    bits: cython.int = 0
    with cython.nogil:
        for i in range(count):
            out[i] = cython.cast(cython.int, indexes[i]) if cython.compiled else indexes[i]
            if indexes[i] < 0:
                nulls += 1
            else:
                bits |= 1 << (i & 7)
            if i & 7 == 7:
                validity[i >> 3] = bits
                bits = 0
        if count & 7 != 0:
            validity[count >> 3] = bits
    return nulls


def is_ascii(data: cython.const[cython.uchar][::1]) -> bool:
    """Whether all bytes are below 128: then any piece of them is UTF-8."""
    i: cython.Py_ssize_t
    stop: cython.Py_ssize_t = data.shape[0] if cython.compiled else len(data)
    seen: cython.int = 0
    with cython.nogil:
        for i in range(stop):
            seen |= data[i]
    return seen < 0x80


def total(numbers: cython.const[cython.longlong][::1], count: cython.Py_ssize_t) -> int:
    """The sum of `count` numbers."""
    i: cython.Py_ssize_t
    result: cython.longlong = 0
    with cython.nogil:
        for i in range(count):
            result += numbers[i]
    return result


def gather(
    data: cython.const[cython.uchar][::1],
    positions: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    offsets: cython.const[cython.int][::1],
    out: cython.uchar[::1],
) -> None:
    """Copy the bytes at positions `[first, stop)`, all in `data`, to their offsets in `out`."""
    i: cython.Py_ssize_t
    where: cython.longlong
    begin: cython.Py_ssize_t
    length: cython.Py_ssize_t
    if cython.compiled:
        source: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        target: cython.pointer[cython.uchar] = cython.address(out[0])
    with cython.nogil:
        for i in range(first, stop):
            if cython.compiled and i + _AHEAD < stop:
                prefetch(source + (positions[i + _AHEAD] >> 32))
            where = positions[i]
            if where <= 0 or where & _MASK32 == 0:
                continue
            begin = where >> 32
            length = where & _MASK32
            if cython.compiled:
                memcpy(target + offsets[i], source + begin, length)
            else:
                out[offsets[i] : offsets[i] + length] = data[begin : begin + length]


def read_properties(
    data: cython.const[cython.uchar][::1],
    tag: cython.ulonglong,
    metadata: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    found: cython.Py_ssize_t,
    keys: cython.longlong[::1],
    values: cython.longlong[::1],
    list_offsets: cython.int[::1],
    result: cython.longlong[::1],
) -> None:
    """Find names and values of the properties of rows `[first, stop)`, all of which are in `data`.

    Where a message has a name twice, the last value wins, as in Pulsar's client; but a message with
    more than `MAX_COMPARED_PROPERTIES` properties keeps them all, for the caller to thin out.

    Args:
        data: The buffer.
        tag: Protobuf tag of the field that holds a property: 34 in MessageMetadata, 10 in
            SingleMessageMetadata.
        metadata: Position of each row's metadata.
        first: First row.
        stop: Behind the last row.
        found: Properties found so far: where in `keys` and `values` to go on.
        keys: Receives the positions of the names.
        values: Receives the positions of the values.
        list_offsets: Receives, at `row + 1`, the properties found up to and with that row.
        result: Receives `[row, found, error, many]`: `row` is `stop`, or the row with the error;
            `many` is 1 where a row has more properties than are compared.
    """
    row: cython.Py_ssize_t = first
    i: cython.Py_ssize_t
    end: cython.Py_ssize_t
    field_end: cython.Py_ssize_t
    begin: cython.Py_ssize_t = found
    k: cython.Py_ssize_t
    inner: cython.ulonglong
    field: cython.ulonglong
    value: cython.ulonglong
    room: cython.ulonglong
    key: cython.longlong
    text: cython.longlong
    error: cython.longlong = 0
    many: cython.longlong = 0
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        while row < stop:
            if cython.compiled and row + _AHEAD < stop:
                prefetch(p + (metadata[row + _AHEAD] >> 32))
            i = metadata[row] >> 32
            end = i + (metadata[row] & _MASK32)
            begin = found
            while i < end and error == 0:
                field, i = _varint(p, i, end)
                if i < 0:
                    error = _BAD_PROPERTY
                    break
                if field & 7 == 0:
                    value, i = _varint(p, i, end)
                    if i < 0:
                        error = _BAD_PROPERTY
                    continue
                if field != tag:
                    i = _skip(p, i, end, field)
                    if i < 0:
                        error = _BAD_PROPERTY
                    continue
                value, i = _varint(p, i, end)
                room = end - i
                if i < 0 or value > room:
                    error = _BAD_PROPERTY
                    break
                field_end = i + value
                key = -1
                text = -1
                while i < field_end:
                    inner, i = _varint(p, i, field_end)
                    if i < 0 or inner < 8:
                        error = _BAD_PROPERTY
                        break
                    if inner & 7 == 0:
                        value, i = _varint(p, i, field_end)
                        if i < 0:
                            error = _BAD_PROPERTY
                            break
                    elif inner == 10 or inner == 18:
                        value, i = _varint(p, i, field_end)
                        room = field_end - i
                        if i < 0 or value > room:
                            error = _BAD_PROPERTY
                            break
                        if inner == 10:
                            key = _position(i, value)
                        else:
                            text = _position(i, value)
                        i += value
                    else:
                        i = _skip(p, i, field_end, inner)
                        if i < 0:
                            error = _BAD_PROPERTY
                            break
                if error != 0:
                    break
                if key < 0 or text < 0:
                    error = _BAD_PROPERTY
                    break
                k = begin
                if found - begin < _MAX_COMPARED:
                    while k < found and not _same_bytes(p, keys[k], key):
                        k += 1
                else:
                    many = 1
                    k = found
                keys[k] = key
                values[k] = text
                if k == found:
                    found += 1
            if error != 0:
                break
            list_offsets[row + 1] = found
            row += 1
    result[0] = row
    result[1] = begin if error != 0 else found
    result[2] = error
    result[3] = many


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _same_bytes(
    p: cython.pointer[cython.const[cython.uchar]], a: cython.longlong, b: cython.longlong
):
    """Whether the bytes at two positions are the same."""
    length: cython.Py_ssize_t = a & _MASK32
    i: cython.Py_ssize_t = a >> 32
    k: cython.Py_ssize_t = b >> 32
    if length != (b & _MASK32):
        return False
    while length > 0:
        if p[i] != p[k]:
            return False
        i += 1
        k += 1
        length -= 1
    return True


def keep_rows(
    rows: cython.const[cython.longlong][::1],
    capacity: cython.Py_ssize_t,
    kept: cython.const[cython.longlong][::1],
    count: cython.Py_ssize_t,
    out: cython.longlong[::1],
    out_capacity: cython.Py_ssize_t,
) -> None:
    """Copy the rows that `kept` names (`count`, ascending) to the start of another row table."""
    column: cython.Py_ssize_t
    i: cython.Py_ssize_t
    with cython.nogil:
        for column in range(_ROW_WIDTH):
            for i in range(count):
                out[column * out_capacity + i] = rows[column * capacity + kept[i]]


# ----------------------------------------------------------------------------
# Lengths that compressed blocks give


def lz4_block_length(data: cython.const[cython.uchar][::1]) -> int:
    """Length in bytes that a raw LZ4 block decompresses to; −1 where its sequences are cut.

    A block is a row of sequences: token (literal length, match length), literals, u16 match offset;
    the last sequence ends behind its literals.
    """
    i: cython.Py_ssize_t = 0
    stop: cython.Py_ssize_t = data.shape[0] if cython.compiled else len(data)
    total: cython.longlong = 0
    token: cython.longlong
    length: cython.longlong
    byte: cython.longlong
    with cython.nogil:
        while i < stop:
            token = data[i]
            i += 1
            length = token >> 4
            byte = 255 if length == 15 else 0
            while byte == 255 and i < stop:
                byte = data[i]
                i += 1
                length += byte
            total += length
            if length > stop - i:
                total = -1
                break
            i += length
            if i == stop:
                break
            i += 2
            length = (token & 15) + 4
            byte = 255 if length == 19 else 0
            while byte == 255 and i < stop:
                byte = data[i]
                i += 1
                length += byte
            total += length
            if i >= stop:
                total = -1
                break
    return total


def snappy_block_length(data: cython.const[cython.uchar][::1]) -> int:
    """Length in bytes that a raw Snappy block begins with; −1 if it is cut or beyond 32 bits."""
    value: cython.ulonglong
    i: cython.Py_ssize_t
    stop: cython.Py_ssize_t = data.shape[0] if cython.compiled else len(data)
    if stop == 0:
        return -1
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    value, i = _varint(p, 0, stop)
    if i < 0 or value > _MAX31:
        return -1
    return value
