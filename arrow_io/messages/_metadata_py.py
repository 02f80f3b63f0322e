# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""The metadata decoder: metadata of entries and messages → `arrow_io.messages.layout` tables.

The layouts are those of Pulsar's `Commands.java` (batch) and `PulsarApi.proto` (MessageMetadata,
SingleMessageMetadata, BrokerEntryMetadata). `_metadata_c.pxd` declares to C the functions that
`_entries_py` calls. For the rules of this file see `_entries_py`.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._prefetch import PREFETCHED_BYTES, prefetch_lines
    from cython.cimports.arrow_io.messages import _layout as layout
    from cython.cimports.arrow_io.messages import _wire as wire
    from cython.cimports.arrow_io.messages._checksum import choose_crc32c, crc32c
    from cython.cimports.arrow_io.messages._copies import copy_literals
    from cython.cimports.arrow_io.messages._wire import (
        int32,
        int64,
        pack_position,
        skip,
        uint32_be,
        varint,
    )
else:
    from arrow_io.messages import layout, wire
    from arrow_io.messages.checksum import choose_crc32c, crc32c
    from arrow_io.messages.copies import copy_literals
    from arrow_io.messages.wire import int32, int64, pack_position, skip, uint32_be, varint

choose_crc32c(2)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _time(value: cython.ulonglong):
    """Replace 2⁶³, which would read as `NO_TIME`, by another time that no timestamp can hold."""
    time: cython.longlong = int64(value)
    return time + 1 if time == layout.NO_TIME else time


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def read_broker_metadata(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    t: cython.pointer[cython.longlong],
    base: cython.Py_ssize_t,
):
    """Decode BrokerEntryMetadata (PIP-70: 1 broker_timestamp, 2 index); return 0 or the error."""
    tag: cython.ulonglong
    value: cython.ulonglong
    while i < stop:
        tag, i = varint(p, i, stop)
        if i < 0 or tag < 8:
            return layout.BAD_BROKER_METADATA
        if tag & 7 == 0:
            value, i = varint(p, i, stop)
            if i < 0:
                return layout.BAD_BROKER_METADATA
            if tag == 8:
                t[base + layout.BROKER_TIME] = _time(value)
            elif tag == 16:
                t[base + layout.BROKER_INDEX] = int64(value)
                t[base + layout.FLAGS] |= layout.HAS_BROKER_INDEX
        else:
            i = skip(p, i, stop, tag)
            if i < 0:
                return layout.BAD_BROKER_METADATA
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def read_message_metadata(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    t: cython.pointer[cython.longlong],
    base: cython.Py_ssize_t,
):
    """Decode MessageMetadata into the entry's row of the table; return 0 or the error.

    The row has the values of missing fields, and what the broker metadata has set.
    """
    tag: cython.ulonglong
    value: cython.ulonglong
    room: cython.ulonglong
    where: cython.longlong
    flags: cython.longlong = t[base + layout.FLAGS]
    required: cython.int = 0
    transaction: cython.int = 0
    properties: cython.longlong = 0
    hash_min: cython.longlong = -1
    hash_max: cython.longlong = -1
    while i < stop:
        tag = p[i]
        if tag < 0x80:
            i += 1
        else:
            tag, i = varint(p, i, stop)
            if i < 0:
                return layout.BAD_METADATA
        if tag < 8:
            return layout.BAD_METADATA
        if tag & 7 == 0:
            value, i = varint(p, i, stop)
            if i < 0:
                return layout.BAD_METADATA
            if tag == 16:
                t[base + layout.SEQUENCE_ID] = int64(value)
                required |= 2
            elif tag == 24:
                t[base + layout.PUBLISH_TIME] = _time(value)
                required |= 4
            elif tag == 64:
                t[base + layout.COMPRESSION] = int32(value)
            elif tag == 72:
                t[base + layout.UNCOMPRESSED_SIZE] = value & wire.MASK32
            elif tag == 88:
                t[base + layout.BATCH_SIZE] = int32(value)
                flags |= layout.BATCHED
            elif tag == 96:
                t[base + layout.EVENT_TIME] = int64(value)
            elif tag == 136:
                flags = (flags | layout.KEY_IS_BASE64) if value else (flags & ~layout.KEY_IS_BASE64)
            elif tag == 152:
                t[base + layout.DELIVER_AT] = _time(value)
            elif tag == 160:
                t[base + layout.MARKER_TYPE] = int32(value)
                flags |= layout.MARKER
            elif tag == 176:
                t[base + layout.TXN_LEAST] = int64(value)
                transaction |= 1
            elif tag == 184:
                t[base + layout.TXN_MOST] = int64(value)
                transaction |= 2
            elif tag == 200:
                flags = (flags | layout.NULL_VALUE) if value else (flags & ~layout.NULL_VALUE)
            elif tag == 216:
                t[base + layout.CHUNK_COUNT] = int32(value)
            elif tag == 224:
                t[base + layout.CHUNK_TOTAL_SIZE] = int32(value)
            elif tag == 232:
                t[base + layout.CHUNK_ID] = int32(value)
            elif tag == 240:
                flags = (flags | layout.NULL_KEY) if value else (flags & ~layout.NULL_KEY)
            elif tag == 264:
                hash_min = value & wire.MASK32
            elif tag == 272:
                hash_max = value & wire.MASK32
        elif tag & 7 == 2:
            value, i = varint(p, i, stop)
            if i < 0:
                return layout.BAD_METADATA
            room = stop - i
            if value > room:
                return layout.BAD_METADATA
            where = pack_position(i, value)
            i += value
            if tag == 10:
                t[base + layout.PRODUCER_NAME] = where
                required |= 1
            elif tag == 34:
                properties += 1
            elif tag == 42:
                t[base + layout.REPLICATED_FROM] = where
            elif tag == 50:
                t[base + layout.KEY] = where
            elif tag == 106:
                flags |= layout.ENCRYPTED
            elif tag == 130:
                t[base + layout.SCHEMA_VERSION] = where
            elif tag == 146:
                t[base + layout.ORDERING_KEY] = where
            elif tag == 210:
                t[base + layout.UUID] = where
            elif tag == 258:
                t[base + layout.SCHEMA_ID] = where
        else:
            i = skip(p, i, stop, tag)
            if i < 0:
                return layout.BAD_METADATA
    if required != 7:
        return layout.MISSING_FIELD
    if transaction == 3:
        flags |= layout.TRANSACTION
    if t[base + layout.CHUNK_COUNT] > 1 and flags & layout.BATCHED == 0:
        flags |= layout.CHUNKED
    if t[base + layout.COMPRESSION] != 0:
        flags |= layout.COMPRESSED
    if 0 <= hash_min <= hash_max <= 0xFFFF:
        t[base + layout.KEY_HASHES] = hash_min << 16 | hash_max
    t[base + layout.PROPERTY_COUNT] = properties
    t[base + layout.FLAGS] = flags
    return 0


def split_batches(
    data: cython.const[cython.uchar][::1],
    table: cython.longlong[::1],
    field: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    position: cython.Py_ssize_t,
    batch_index: cython.longlong,
    rows: cython.longlong[::1],
    stride: cython.Py_ssize_t,
    capacity: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
    verify: cython.bint,
    values: cython.uchar[::1],
    value_stop: cython.Py_ssize_t,
    weight: cython.longlong,
    result: cython.longlong[::1],
) -> None:
    """Split batches, `{u32 size, SingleMessageMetadata, payload}` per message, into rows.

    Stops after the last batch, when the row table is full, or at a bad message. Call again with the
    returned entry, position and batch index to resume. Members that are `compacted_out` get no row,
    but count in the batch index.

    Comparing the checksum of a batch, splitting it and copying its values in one call reads its
    bytes from memory once: afterwards they are in the processor's cache.

    Args:
        data: The buffer that the bodies of the batches are stored in.
        table: Entry table; it holds the metadata of the batches.
        field: Field of the entry table with the position of the body: `PAYLOAD` or `BODY`.
        first: First entry.
        stop: End of the entries (exclusive).
        position: Start of the next message in the body of the first entry.
        batch_index: Batch index of that message.
        rows: Row table, column-major.
        stride: Distance between the starts of two columns of `rows`, in numbers.
        capacity: Maximum number of rows; at most `stride`.
        row: First row to write.
        verify: Whether to compare the CRC32C of each entry, if it has one, before its batch is
            split. An entry whose CRC32C differs is flagged as `BROKEN`, and its error is
            `BAD_CHECKSUM`. The bodies are then the payloads of the entries, in `data`.
        values: Receives the values of the rows, back to back; the positions of the values then
            refer to it. It has room for the rest of all bodies. Empty: the values are not copied.
        value_stop: End of the values that `values` already holds, in bytes.
        weight: How often the bytes of an entry count.
        result: Receives `[row, entry, position, batch_index, error, value_stop, size_bytes]`: where
            to resume; error 0, or a `BAD_…` code for the message at that position; and how many
            bytes were passed. These are those of entries without further messages, which an entry
            with an error is too unless its CRC32C differs; and of bodies, if `field` is `BODY`.
    """
    base: cython.Py_ssize_t
    where: cython.longlong
    readable: cython.Py_ssize_t = data.shape[0] if cython.compiled else len(data)
    writable: cython.Py_ssize_t = values.shape[0] if cython.compiled else len(values)
    is_copied: cython.bint = writable > 0
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    i: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    size: cython.longlong
    length: cython.longlong
    error: cython.longlong = 0
    is_included: cython.int
    batch_size: cython.longlong
    event_time: cython.longlong
    sequence_id: cython.longlong
    flags: cython.longlong
    entry_bytes: cython.longlong
    body_weight: cython.longlong = field == layout.BODY
    size_bytes: cython.longlong = -body_weight * position
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        r: cython.pointer[cython.longlong] = cython.address(rows[0])
        q: cython.pointer[cython.uchar] = cython.NULL
        if is_copied:
            q = cython.address(values[0])
    else:
        p = data
        r = rows
        q = values
    with cython.nogil:
        while first < stop:
            base = first * layout.ENTRY_WIDTH
            where = table[base + layout.CHECKED]
            if (
                verify
                and position == 0
                and where >= 0
                and crc32c(p, where >> 32, where & wire.MASK32) != table[base + layout.CHECKSUM]
            ):
                table[base + layout.ERROR] = layout.BAD_CHECKSUM
                table[base + layout.FLAGS] = layout.BROKEN
                error = layout.BAD_CHECKSUM
                break
            start = table[base + field] >> 32
            end = start + (table[base + field] & wire.MASK32)
            batch_size = table[base + layout.BATCH_SIZE]
            entry_bytes = weight * (table[base + layout.FRAME] & wire.MASK32)
            if batch_size < 0 or batch_size > (end - start) // layout.MIN_MEMBER_BYTES:
                error = layout.BAD_BATCH_SIZE
                size_bytes += entry_bytes
                break
            event_time = table[base + layout.EVENT_TIME]
            sequence_id = table[base + layout.SEQUENCE_ID]
            flags = table[base + layout.FLAGS] & (layout.NULL_VALUE | layout.NULL_KEY)
            i = start + position
            while batch_index < batch_size and row < capacity:
                if end - i < 4:
                    error = layout.BAD_MESSAGE_SIZE
                    break
                size = uint32_be(p, i)
                begin = i + 4
                if size > end - begin:
                    error = layout.BAD_MESSAGE_SIZE
                    break
                r[layout.ROW_ENTRY * stride + row] = first
                r[layout.ROW_BATCH_INDEX * stride + row] = batch_index
                r[layout.ROW_EVENT_TIME * stride + row] = event_time
                r[layout.ROW_SEQUENCE_ID * stride + row] = sequence_id
                r[layout.ROW_FLAGS * stride + row] = flags
                r[layout.ROW_METADATA * stride + row] = pack_position(begin, size)
                length = _read_single_metadata(p, begin, begin + size, r, stride, row)
                if length < 0:
                    error = -length
                    break
                is_included = length & 1
                length >>= 1
                begin += size
                if length > end - begin:
                    error = layout.BAD_PAYLOAD_SIZE
                    break
                if r[layout.ROW_FLAGS * stride + row] & layout.NULL_VALUE:
                    r[layout.ROW_PAYLOAD * stride + row] = -1
                elif not is_copied:
                    r[layout.ROW_PAYLOAD * stride + row] = pack_position(begin, length)
                elif is_included:
                    r[layout.ROW_PAYLOAD * stride + row] = pack_position(value_stop, length)
                    copy_literals(q, value_stop, writable, p, begin, readable, length)
                    value_stop += length
                if cython.compiled and length < PREFETCHED_BYTES // 4:
                    # The starts of the following messages are not known yet: prefetch all lines.
                    prefetch_lines(p + i + PREFETCHED_BYTES, begin + length - i)
                i = begin + length
                batch_index += 1
                row += is_included
            if error == 0 and batch_index >= batch_size and i != end:
                error = layout.TRAILING_BYTES
            if error != 0 or batch_index >= batch_size:
                size_bytes += entry_bytes
            if error != 0 or batch_index < batch_size:
                position = i - start
                break
            first += 1
            position = 0
            batch_index = 0
            size_bytes += body_weight * (end - start)
    result[0] = row
    result[1] = first
    result[2] = position
    result[3] = batch_index
    result[4] = error
    result[5] = value_stop
    result[6] = size_bytes + body_weight * position


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
    stride: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
):
    """Decode SingleMessageMetadata into a row.

    Returns `payload_size << 1 | not compacted_out`, or the negated error code.
    """
    tag: cython.ulonglong
    value: cython.ulonglong
    room: cython.ulonglong
    payload_size: cython.longlong = -1
    properties: cython.longlong = 0
    is_included: cython.longlong = 1
    key: cython.longlong = -1
    ordering_key: cython.longlong = -1
    flags: cython.longlong = r[layout.ROW_FLAGS * stride + row]
    has_size: cython.int = 0
    while i < stop:
        tag = p[i]
        if tag < 0x80:
            i += 1
        else:
            tag, i = varint(p, i, stop)
            if i < 0:
                return -layout.BAD_MESSAGE_METADATA
        if tag < 8:
            return -layout.BAD_MESSAGE_METADATA
        if tag & 7 == 0:
            value, i = varint(p, i, stop)
            if i < 0:
                return -layout.BAD_MESSAGE_METADATA
            if tag == 24:
                payload_size = int32(value)
                has_size = 1
            elif tag == 32:
                is_included = 0 if value else 1
            elif tag == 40:
                r[layout.ROW_EVENT_TIME * stride + row] = int64(value)
            elif tag == 48:
                flags = (flags | layout.KEY_IS_BASE64) if value else (flags & ~layout.KEY_IS_BASE64)
            elif tag == 64:
                r[layout.ROW_SEQUENCE_ID * stride + row] = int64(value)
            elif tag == 72:
                flags = (flags | layout.NULL_VALUE) if value else (flags & ~layout.NULL_VALUE)
            elif tag == 80:
                flags = (flags | layout.NULL_KEY) if value else (flags & ~layout.NULL_KEY)
        elif tag & 7 == 2:
            value, i = varint(p, i, stop)
            if i < 0:
                return -layout.BAD_MESSAGE_METADATA
            room = stop - i
            if value > room:
                return -layout.BAD_MESSAGE_METADATA
            if tag == 10:
                properties += 1
            elif tag == 18:
                key = pack_position(i, value)
            elif tag == 58:
                ordering_key = pack_position(i, value)
            i += value
        else:
            i = skip(p, i, stop, tag)
            if i < 0:
                return -layout.BAD_MESSAGE_METADATA
    if has_size == 0:
        return -layout.MISSING_FIELD
    if payload_size < 0:
        return -layout.BAD_PAYLOAD_SIZE
    r[layout.ROW_FLAGS * stride + row] = flags
    r[layout.ROW_KEY * stride + row] = key
    r[layout.ROW_ORDERING_KEY * stride + row] = ordering_key
    r[layout.ROW_PROPERTY_COUNT * stride + row] = properties
    return (payload_size << 1) | is_included
