# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""The entry walk: decodes the bytes of a block into the entry table (`arrow_io.messages.layout`).

This file, `_metadata_py`, `_codecs_py`, `_inflate_py` and `_columns_py` are Cython in pure-Python
mode. Each is also compiled under a name that ends in `_c` instead of `_py`; `arrow_io.core.builds`
chooses the build. Both builds return the same numbers for every input, including hostile input.

Rules of these files:

* Input is a read-only byte view. It is never copied, except to gather requested columns.
* A slow operation is one call for a run of entries, and releases the GIL.
* Bounds checks are off in the compiled build. Compare every length read from the bytes with the
  remaining bytes *before* using it, and mask every shift to 64 bits.
* Bad bytes create no Python object and raise no error. The function writes a code to the table (or
  returns it), and the caller raises the typed error, because only the caller knows object, ledger
  and entry.
* Code that runs for each byte or field must be compiled into the file that calls it: in the file
  itself, or as an inline function in a `.pxd` file. C functions of another module are called only
  once per entry.

The layouts are those of Pulsar's `Commands.java` (entry) and of PIP-17 (entry header).
"""

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core._prefetch import (
        LONGEST_PREFETCHED,
        PREFETCHED_ENTRY_BYTES,
        prefetch_lines,
    )
    from cython.cimports.arrow_io.messages import _layout as layout
    from cython.cimports.arrow_io.messages import _wire as wire
    from cython.cimports.arrow_io.messages._checksum import choose_crc32c, crc32c
    from cython.cimports.arrow_io.messages._heads import HEAD_BYTES, is_alike, memcpy, memset
    from cython.cimports.arrow_io.messages._metadata_c import (
        read_broker_metadata,
        read_message_metadata,
    )
    from cython.cimports.arrow_io.messages._wire import pack_position, uint32_be
else:
    from arrow_io.messages import layout, wire
    from arrow_io.messages._metadata_py import read_broker_metadata, read_message_metadata
    from arrow_io.messages.checksum import choose_crc32c, crc32c
    from arrow_io.messages.wire import pack_position, uint32_be

IS_COMPILED = cython.compiled

choose_crc32c(2)

_ENTRY_HEADER_BYTES = cython.declare(cython.Py_ssize_t, 12)

# A bit per field number: the varints and the byte strings that the metadata of a plain entry may
# have (PulsarApi.proto), the fields that it must have, and the varints of broker metadata.
_PLAIN_NUMBERS = cython.declare(
    cython.longlong, sum(1 << each for each in (2, 3, 9, 12, 17, 19, 25, 30, 33, 34))
)
_PLAIN_BYTES = cython.declare(cython.longlong, sum(1 << each for each in (1, 4, 5, 6, 16, 18, 32)))
_REQUIRED = cython.declare(cython.longlong, 1 << 1 | 1 << 2 | 1 << 3)
_EMPTY_ENTRY = {
    layout.CHECKSUM: -1,
    layout.CHECKED: -1,
    layout.PRODUCER_NAME: -1,
    layout.KEY: -1,
    layout.ORDERING_KEY: -1,
    layout.BATCH_SIZE: -1,
    layout.SCHEMA_VERSION: -1,
    layout.BROKER_TIME: layout.NO_TIME,
    layout.BROKER_INDEX: -1,
    layout.DELIVER_AT: layout.NO_TIME,
    layout.REPLICATED_FROM: -1,
    layout.MARKER_TYPE: -1,
    layout.UUID: -1,
    layout.SCHEMA_ID: -1,
    layout.KEY_HASHES: -1,
}
"""Values of missing fields of an entry, unless they are 0."""
_HEAD_BYTES = cython.declare(cython.Py_ssize_t, 128)
_BROKER_NUMBERS = cython.declare(cython.longlong, 1 << 1 | 1 << 2)


def find_entries(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    entry_id: cython.longlong,
    last_entry_id: cython.longlong,
    frames: cython.longlong[::1],
    capacity: cython.Py_ssize_t,
    result: cython.longlong[::1],
) -> None:
    """Find the frames of consecutive entries, and whether all of them are plain.

    An entry is plain if it holds one message that is independent of other entries, and neither
    batched nor compressed nor encrypted, and nothing of its frame and metadata is malformed.

    Args:
        data: Bytes of (part of) a data block.
        start: Position in `data` of the first entry's 12-byte header.
        stop: End (exclusive) of the bytes that may be read; at most `len(data)`.
        entry_id: Id that the first entry must have; each later entry must have the next id.
        last_entry_id: Last id to find (inclusive).
        frames: Receives the position of each entry's data; at least `capacity` long.
        capacity: Maximum number of entries.
        result: Receives `[count, position, status, needed, flags]`: the number of entries; the end
            of the last one in `data`; why the walk stopped (`COMPLETE`, `CUT`, `PADDING`,
            `WRONG_ENTRY_ID`); for `CUT`, the length in bytes of the next entry (or of its header);
            and the flags that the entries may have, −1 for all flags if any entry is not plain.
    """
    count: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t = start
    length: cython.longlong
    stored_id: cython.longlong
    status: cython.longlong = layout.COMPLETE
    needed: cython.longlong = 0
    flags: cython.longlong = layout.KEY_IS_BASE64 | layout.NULL_VALUE | layout.NULL_KEY
    # The last head that was looked at, a mask of the bits that heads of the same form have in
    # common, and its length if these are known, else 0.
    head: cython.uchar[128]
    mask: cython.uchar[128]
    head_bytes: cython.Py_ssize_t = 0
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        f: cython.pointer[cython.longlong] = cython.address(frames[0])
    else:
        p = data
        f = frames
        head = mask = bytearray(_HEAD_BYTES)
    # Ids are compared without counting beyond the last one, which may be the largest number.
    if capacity > last_entry_id - entry_id:
        capacity = last_entry_id - entry_id + 1
    with cython.nogil:
        while count < capacity:
            if stop - i < _ENTRY_HEADER_BYTES:
                status = layout.CUT
                needed = _ENTRY_HEADER_BYTES
                break
            length = uint32_be(p, i)
            if length >= wire.TWO31:
                status = layout.PADDING
                break
            # Both halves of an id are below 2**32; an id of 2**63 and more becomes negative.
            stored_id = uint32_be(p, i + 4)
            if stored_id >= wire.TWO31:
                stored_id -= wire.TWO32
            stored_id = stored_id * wire.TWO32 + uint32_be(p, i + 8)
            if stored_id != entry_id + count:
                status = layout.WRONG_ENTRY_ID
                break
            if length > stop - i - _ENTRY_HEADER_BYTES:
                status = layout.CUT
                needed = _ENTRY_HEADER_BYTES + length
                break
            i += _ENTRY_HEADER_BYTES
            f[count] = pack_position(i, length)
            if flags >= 0 and not (
                cython.compiled
                and 0 < head_bytes <= length
                and stop - i >= HEAD_BYTES
                and is_alike(p + i, head, mask, head_bytes)
            ):
                if cython.compiled:
                    memset(mask, 0, HEAD_BYTES)
                head_bytes = _plain_head(p, i, i + length, mask)
                if head_bytes < 0:
                    flags = -1
                elif p[i + 1] == 0x02:
                    flags |= layout.HAS_BROKER_INDEX
                if cython.compiled and head_bytes <= HEAD_BYTES <= stop - i:
                    memcpy(head, p + i, HEAD_BYTES)
                else:
                    head_bytes = 0
            if cython.compiled and length < LONGEST_PREFETCHED:
                # The starts of the following entries are not known yet: prefetch all their bytes.
                prefetch_lines(p + i + PREFETCHED_ENTRY_BYTES, length)
            i += length
            count += 1
    result[0] = count
    result[1] = i
    result[2] = status
    result[3] = needed
    result[4] = flags


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _plain_head(
    p: cython.pointer[cython.const[cython.uchar]],
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    mask: cython.pointer[cython.uchar],
):
    """Return the length of a plain entry's head: all before the payload; −1 if it is not plain.

    Only looks at which fields the metadata has: their values are decoded when they are needed. Sets
    the bits of `mask`, which has a byte for each of the first bytes of the head, that heads with
    fields of the same lengths in the same order have in common.
    """
    size: cython.longlong
    found: cython.longlong
    i: cython.Py_ssize_t = start
    if stop - i >= 6 and p[i] == 0x0E and p[i + 1] == 0x02:
        size = uint32_be(p, i + 2)
        _set_mask(mask, 0, 6, 0xFF)
        i += 6
        if size > stop - i or _fields(p, i, i + size, _BROKER_NUMBERS, 0, mask, i - start) < 0:
            return -1
        i += size
    if stop - i >= 6 and p[i] == 0x0E and p[i + 1] == 0x01:
        _set_mask(mask, i - start, 2, 0xFF)
        i += 6
    if stop - i < 4:
        return -1
    size = uint32_be(p, i)
    _set_mask(mask, i - start, 4, 0xFF)
    i += 4
    if size > stop - i:
        return -1
    found = _fields(p, i, i + size, _PLAIN_NUMBERS, _PLAIN_BYTES, mask, i - start)
    if found < 0 or found & _REQUIRED != _REQUIRED:
        return -1
    return i + size - start


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.void)
def _set_mask(
    mask: cython.pointer[cython.uchar],
    start: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    bits: cython.uchar,
):
    """Set `count` bytes of a mask to `bits`, as far as it reaches."""
    i: cython.Py_ssize_t
    for i in range(start, min(start + count, _HEAD_BYTES)):
        mask[i] = bits


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _fields(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    numbers: cython.longlong,
    strings: cython.longlong,
    mask: cython.pointer[cython.uchar],
    offset: cython.Py_ssize_t,
):
    """Return a bit for the number of each field of a protobuf message; −1 if any is not expected.

    `numbers` and `strings` have the bits of the fields that may be varints and byte strings; all
    field numbers are below 63. `offset` is the place of the message in `mask`, of which the bits
    are set that messages with fields of the same lengths in the same order have in common.
    """
    tag: cython.longlong
    length: cython.longlong
    first: cython.Py_ssize_t
    expected: cython.longlong
    field: cython.longlong
    found: cython.longlong = 0
    offset -= i
    while i < stop:
        first = i
        tag = p[i]
        i += 1
        if tag >= 0x80:
            if i >= stop or p[i] >= 0x03:
                return -1
            length = p[i]
            tag = (tag & 0x7F) | (length << 7)
            i += 1
        _set_mask(mask, offset + first, i - first, 0xFF)
        first = i
        if tag & 7 == 0:
            expected = numbers
            while i < stop and i - first < 9 and p[i] >= 0x80:
                i += 1
            if i >= stop or p[i] >= 0x80:
                return -1
            i += 1
            _set_mask(mask, offset + first, i - first, 0x80)
        elif tag & 7 == 2 and i < stop:
            expected = strings
            length = p[i]
            i += 1
            if length >= 0x80:
                if i >= stop or p[i] >= 0x80:
                    return -1
                field = p[i]
                length = (length & 0x7F) | (field << 7)
                i += 1
            if length > stop - i:
                return -1
            _set_mask(mask, offset + first, i - first, 0xFF)
            i += length
        else:
            return -1
        field = 1
        field <<= tag >> 3
        if expected & field == 0:
            return -1
        found |= field
    return found


def read_entries(
    data: cython.const[cython.uchar][::1],
    frames: cython.const[cython.longlong][::1],
    count: cython.Py_ssize_t,
    entry_id: cython.longlong,
    table: cython.longlong[::1],
    verify: cython.bint,
) -> int:
    """Decode the frames and metadata of consecutive entries into the entry table.

    Args:
        data: The buffer that the entries are stored in.
        frames: The position of each entry's data, as `find_entries` found it in `data`.
        count: Number of entries.
        entry_id: Id of the first entry.
        table: Receives `ENTRY_WIDTH` numbers per entry; at least `count * ENTRY_WIDTH` long.
        verify: Whether to compare the CRC32C of each entry, like `mark_bad_checksums`.

    Returns:
        The union of the flags of all entries, with `MIXED` if the unbroken entries differ in kind.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    start: cython.Py_ssize_t
    all_flags: cython.longlong = 0
    first: cython.Py_ssize_t = -1  # row in the table of the first entry that is not broken
    empty: cython.longlong[33]
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        t: cython.pointer[cython.longlong] = cython.address(table[0])
    else:
        p = data
        t = table
        empty = array("q", bytes(8 * layout.ENTRY_WIDTH))
    for i in range(layout.ENTRY_WIDTH):
        empty[i] = _EMPTY_ENTRY.get(i, 0)
    with cython.nogil:
        for i in range(count):
            base = i * layout.ENTRY_WIDTH
            start = frames[i] >> 32
            _read_frame(p, start, start + (frames[i] & wire.MASK32), t, base, entry_id + i, empty)
            if verify:
                _mark_bad_checksum(p, t, base)
            first = _first_unbroken(t, first, base)
            all_flags |= _flags_beside(t, first, base)
    return all_flags


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
    empty: cython.pointer[cython.const[cython.longlong]],
):
    """Decode `[broker metadata] [checksum] metadata payload` of one entry (`Commands.java`).

    `empty` is the row of an entry without any field.
    """
    i: cython.Py_ssize_t = start
    size: cython.longlong
    error: cython.longlong = 0
    if cython.compiled:
        # In parts that compilers replace by moves of vectors.
        memcpy(t + base, empty, 64)
        memcpy(t + base + 8, empty + 8, 64)
        memcpy(t + base + 16, empty + 16, 64)
        memcpy(t + base + 24, empty + 24, 72)
    else:
        t[base : base + layout.ENTRY_WIDTH] = empty
    t[base + layout.ENTRY_ID] = entry_id
    t[base + layout.FRAME] = pack_position(start, stop - start)
    if stop - i >= 2 and p[i] == 0x0E and p[i + 1] == 0x02:
        if stop - i < 6:
            error = layout.BAD_FRAME
        else:
            size = uint32_be(p, i + 2)
            i += 6
            if size > stop - i:
                error = layout.BAD_FRAME
            else:
                error = read_broker_metadata(p, i, i + size, t, base)
                i += size
    if error == 0 and stop - i >= 2 and p[i] == 0x0E and p[i + 1] == 0x01:
        if stop - i < 6:
            error = layout.BAD_FRAME
        else:
            t[base + layout.CHECKSUM] = uint32_be(p, i + 2)
            i += 6
            t[base + layout.CHECKED] = pack_position(i, stop - i)
    if error == 0:
        if stop - i < 4:
            error = layout.BAD_FRAME
        else:
            size = uint32_be(p, i)
            i += 4
            if size > stop - i:
                error = layout.BAD_FRAME
            else:
                t[base + layout.METADATA] = pack_position(i, size)
                t[base + layout.PAYLOAD] = pack_position(i + size, stop - i - size)
                error = read_message_metadata(p, i, i + size, t, base)
    t[base + layout.ERROR] = error
    if error != 0:
        t[base + layout.FLAGS] = layout.BROKEN


def next_flagged(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    mask: cython.longlong,
) -> int:
    """Return the index of the first entry in `[first, stop)` with a flag of `mask`, or `stop`."""
    i: cython.Py_ssize_t = first
    with cython.nogil:
        while i < stop and table[i * layout.ENTRY_WIDTH + layout.FLAGS] & mask == 0:
            i += 1
    return i


def next_index_decrease(
    table: cython.const[cython.longlong][::1], first: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> int:
    """Return the next entry whose broker index is not above that of the entry before it.

    Compares neighbours within `[first, stop)`. Returns `stop` if the index always increases. Broken
    entries, and entries without a broker index, are not compared.
    """
    i: cython.Py_ssize_t = first
    mask: cython.longlong = layout.HAS_BROKER_INDEX | layout.BROKEN
    is_numbered: cython.bint = False
    was_numbered: cython.bint = False
    number: cython.longlong = 0
    previous: cython.longlong = 0
    with cython.nogil:
        while i < stop:
            is_numbered = table[i * layout.ENTRY_WIDTH + layout.FLAGS] & mask == (
                layout.HAS_BROKER_INDEX
            )
            number = table[i * layout.ENTRY_WIDTH + layout.BROKER_INDEX]
            if was_numbered and is_numbered and number <= previous:
                break
            was_numbered = is_numbered
            previous = number
            i += 1
    return i


def kind_stop(
    table: cython.const[cython.longlong][::1], first: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> int:
    """Return the end of the entries from `first` that have the same kind; at most `stop`.

    Entries are of the same kind if all or none are batches, and all use the same codec or none is
    compressed.
    """
    i: cython.Py_ssize_t = first
    mask: cython.longlong = layout.BATCHED | layout.COMPRESSED
    kind: cython.longlong = table[first * layout.ENTRY_WIDTH + layout.FLAGS] & mask
    codec: cython.longlong = table[first * layout.ENTRY_WIDTH + layout.COMPRESSION]
    with cython.nogil:
        while (
            i < stop
            and table[i * layout.ENTRY_WIDTH + layout.FLAGS] & mask == kind
            and table[i * layout.ENTRY_WIDTH + layout.COMPRESSION] == codec
        ):
            i += 1
    return i


def mark_bad_checksums(
    data: cython.const[cython.uchar][::1], table: cython.longlong[::1], count: cython.Py_ssize_t
) -> int:
    """Flag each entry as `BROKEN` whose CRC32C differs from the stored one.

    Returns:
        The union of the flags of all entries, with `MIXED` if the unbroken entries differ in kind.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    all_flags: cython.longlong = 0
    first: cython.Py_ssize_t = -1  # row in the table of the first entry that is not broken
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
        t: cython.pointer[cython.longlong] = cython.address(table[0])
    else:
        p = data
        t = table
    with cython.nogil:
        for i in range(count):
            base = i * layout.ENTRY_WIDTH
            _mark_bad_checksum(p, t, base)
            first = _first_unbroken(t, first, base)
            all_flags |= _flags_beside(t, first, base)
    return all_flags


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.void)
def _mark_bad_checksum(
    p: cython.pointer[cython.const[cython.uchar]],
    t: cython.pointer[cython.longlong],
    base: cython.Py_ssize_t,
):
    """Flag an entry as `BROKEN` if its CRC32C differs from the stored one."""
    where: cython.longlong = t[base + layout.CHECKED]
    if where >= 0 and crc32c(p, where >> 32, where & wire.MASK32) != t[base + layout.CHECKSUM]:
        t[base + layout.ERROR] = layout.BAD_CHECKSUM
        t[base + layout.FLAGS] = layout.BROKEN


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _flags_beside(
    t: cython.pointer[cython.longlong], first: cython.Py_ssize_t, base: cython.Py_ssize_t
):
    """Return an entry's flags, with `MIXED` if its kind differs from that of another entry.

    `first` and `base` are the rows of the other entry and of the entry in the table. A broken entry
    is read on its own, so its kind does not matter; its codec may be unknown.
    """
    kinds: cython.longlong = layout.BATCHED | layout.COMPRESSED
    flags: cython.longlong = t[base + layout.FLAGS]
    if flags & layout.BROKEN == 0 and (
        flags & kinds != t[first + layout.FLAGS] & kinds
        or t[base + layout.COMPRESSION] != t[first + layout.COMPRESSION]
    ):
        flags |= layout.MIXED
    return flags


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _first_unbroken(
    t: cython.pointer[cython.longlong], first: cython.Py_ssize_t, base: cython.Py_ssize_t
):
    """Return `first`, or the row of the next entry if that is the first one that is not broken."""
    return base if first < 0 and t[base + layout.FLAGS] & layout.BROKEN == 0 else first


def choose_checksum(fastest: cython.int) -> int:
    """Choose the CRC32C implementation; for tests.

    Args:
        fastest: 0: lookup tables; 1: the processor's CRC32C instruction; 2: carry-less
            multiplication of 64-byte vectors. If the processor lacks it, the next slower one is
            used.

    Returns:
        The implementation in use.
    """
    return choose_crc32c(fastest)


def count_messages(
    table: cython.const[cython.longlong][::1], first: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> int:
    """Return the number of messages that the entries in `[first, stop)` announce."""
    i: cython.Py_ssize_t
    size: cython.longlong
    total: cython.longlong = 0
    for i in range(first, stop):
        size = table[i * layout.ENTRY_WIDTH + layout.BATCH_SIZE]
        total += 1 if size < 0 else size
    return total


def count_fitting(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    max_messages: cython.longlong,
    max_bytes: cython.longlong,
    members: cython.bint,
    payload: cython.bint,
    result: cython.longlong[::1],
) -> None:
    """Count the first entries of `[first, stop)` that fit within both limits, and at least one.

    An entry counts by its own bytes, plus those to decompress, decrypt or copy from it, by the
    sizes that it announces.

    Args:
        table: Entry table.
        first: First entry.
        stop: End of the entries (exclusive), more than `first`.
        max_messages: Maximum number of messages that they announce.
        max_bytes: Maximum of their bytes, as `BatchLimits.max_bytes` counts them.
        members: As in `Needs`.
        payload: As in `Needs`.
        result: Receives the end of these entries (exclusive), their messages and their bytes.
    """
    base: cython.Py_ssize_t
    i: cython.Py_ssize_t = first
    flags: cython.longlong
    count: cython.longlong
    size: cython.longlong
    messages: cython.longlong = 0
    total: cython.longlong = 0
    is_opened: cython.bint
    while i < stop:
        base = i * layout.ENTRY_WIDTH
        flags = table[base + layout.FLAGS]
        count = table[base + layout.BATCH_SIZE]
        if count < 0:
            count = 1
        size = table[base + layout.FRAME] & wire.MASK32
        is_opened = members if flags & layout.BATCHED else payload
        if flags & layout.COMPRESSED:
            size += table[base + layout.UNCOMPRESSED_SIZE] & wire.MASK32 if is_opened else 0
        elif flags & layout.ENCRYPTED:
            size += table[base + layout.PAYLOAD] & wire.MASK32 if is_opened else 0
        elif payload:
            size += size
        if i > first and (messages + count > max_messages or total + size > max_bytes):
            break
        messages += count
        total += size
        i += 1
    result[0] = i
    result[1] = messages
    result[2] = total


def add_singles(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    field: cython.Py_ssize_t,
    rows: cython.longlong[::1],
    stride: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
) -> None:
    """Write one row for each entry in `[first, stop)`, from row `row`.

    `field` is the field of the entry table with the position of the value: `PAYLOAD` or `BODY`. The
    row table `rows` is column-major; the starts of two columns are `stride` numbers apart, at least
    `row + stop - first`.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    with cython.nogil:
        for i in range(first, stop):
            base = i * layout.ENTRY_WIDTH
            rows[layout.ROW_ENTRY * stride + row] = i
            rows[layout.ROW_BATCH_INDEX * stride + row] = -1
            rows[layout.ROW_EVENT_TIME * stride + row] = table[base + layout.EVENT_TIME]
            rows[layout.ROW_SEQUENCE_ID * stride + row] = table[base + layout.SEQUENCE_ID]
            rows[layout.ROW_FLAGS * stride + row] = table[base + layout.FLAGS] & (
                layout.KEY_IS_BASE64 | layout.NULL_VALUE | layout.NULL_KEY
            )
            rows[layout.ROW_KEY * stride + row] = table[base + layout.KEY]
            rows[layout.ROW_ORDERING_KEY * stride + row] = table[base + layout.ORDERING_KEY]
            rows[layout.ROW_PROPERTY_COUNT * stride + row] = table[base + layout.PROPERTY_COUNT]
            rows[layout.ROW_METADATA * stride + row] = table[base + layout.METADATA]
            rows[layout.ROW_PAYLOAD * stride + row] = (
                -1 if table[base + layout.FLAGS] & layout.NULL_VALUE else table[base + field]
            )
            row += 1


def add_positions(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    batch_index: cython.longlong,
    stop: cython.Py_ssize_t,
    rows: cython.longlong[::1],
    stride: cython.Py_ssize_t,
    capacity: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
    result: cython.longlong[::1],
) -> None:
    """Write a row for each message of the entries in `[first, stop)` without opening batches.

    For scans that need nothing stored inside a batch. Only entry and batch index are written; the
    other columns are left unset and must not be read. Stops after the last entry, when the row
    table is full, or at a batch that is too small for the number of messages it announces.

    Args:
        table: Entry table.
        first: First entry.
        batch_index: If the first entry is a batch, index in it of the first message to add.
        stop: End of the entries (exclusive).
        rows: Row table, column-major.
        stride: Distance between the starts of two columns of `rows`, in numbers.
        capacity: Maximum number of rows; at most `stride`.
        row: First row to write.
        result: Receives `[row, entry, batch_index, error]`: where to resume; error 0, or
            `BAD_BATCH_SIZE` for that entry.
    """
    base: cython.Py_ssize_t
    members: cython.longlong
    size: cython.longlong
    error: cython.longlong = 0
    with cython.nogil:
        while first < stop and row < capacity:
            base = first * layout.ENTRY_WIDTH
            members = table[base + layout.BATCH_SIZE]
            if table[base + layout.FLAGS] & layout.BATCHED == 0:
                rows[layout.ROW_ENTRY * stride + row] = first
                rows[layout.ROW_BATCH_INDEX * stride + row] = -1
                row += 1
                first += 1
                continue
            size = table[base + layout.PAYLOAD] & wire.MASK32
            if table[base + layout.FLAGS] & layout.COMPRESSED:
                size = min(
                    (size + 16) * layout.MAX_COMPRESSION_RATIO,
                    table[base + layout.UNCOMPRESSED_SIZE],
                )
            if members < 0 or members > size // layout.MIN_MEMBER_BYTES:
                error = layout.BAD_BATCH_SIZE
                break
            while batch_index < members and row < capacity:
                rows[layout.ROW_ENTRY * stride + row] = first
                rows[layout.ROW_BATCH_INDEX * stride + row] = batch_index
                batch_index += 1
                row += 1
            if batch_index >= members:
                batch_index = 0
                first += 1
    result[0] = row
    result[1] = first
    result[2] = batch_index
    result[3] = error
