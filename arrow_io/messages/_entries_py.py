# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""The walk of entries: the bytes of a block → the entry table (`arrow_io.messages.layout`).

Cython in pure-Python mode, as are `_metadata_py`, `_codecs_py`, `_inflate_py` and `_columns_py`.
Each of these files is also compiled, under a name that ends in `_c` instead of `_py`;
`arrow_io.core.builds` chooses. Both builds give the same numbers for every input, hostile input
included.

Rules of these files:

* Input is a read-only byte view and is never copied, but for the gathering of asked-for columns.
* What takes long is one call for many entries, and gives up Python's lock.
* Bounds checks are off in the compiled build, so every length read from the bytes is compared with
  what remains *before* it is used, and every shift is masked to 64 bits.
* No Python object is made and no error is raised for bad bytes: a code is left in the table (or
  returned), and the caller raises the typed error, because only the caller knows object, ledger and
  entry.
* What is called for each byte or field is compiled into the file that calls it: it stands there, or
  in a `.pxd` file as an inline function. C functions of another module are called once an entry.

The layouts are those of Pulsar's `Commands.java` (entry) and of PIP-17 (entry header).
"""

from __future__ import annotations

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
            of them; why the walk stopped (`COMPLETE`, `CUT`, `PADDING`, `WRONG_ENTRY_ID`); if
            `CUT`, how many bytes the next entry (or its header) takes.
    """
    count: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t = start
    length: cython.longlong
    stored_id: cython.longlong
    status: cython.longlong = layout.COMPLETE
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
            if stored_id != entry_id:
                status = layout.WRONG_ENTRY_ID
                break
            if length > stop - i - _ENTRY_HEADER_BYTES:
                status = layout.CUT
                needed = _ENTRY_HEADER_BYTES + length
                break
            i += _ENTRY_HEADER_BYTES
            _read_frame(p, i, i + length, t, count * layout.ENTRY_WIDTH, entry_id)
            if cython.compiled and length < LONGEST_PREFETCHED:
                # Where the entries behind begin is not known yet, so all their bytes are fetched.
                prefetch_lines(p + i + PREFETCHED_ENTRY_BYTES, length)
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
    t[base + layout.ENTRY_ID] = entry_id
    t[base + layout.FRAME] = pack_position(start, stop - start)
    t[base + layout.FLAGS] = 0
    t[base + layout.CHECKSUM] = -1
    t[base + layout.CHECKED] = -1
    t[base + layout.BROKER_TIME] = layout.NO_TIME
    t[base + layout.BROKER_INDEX] = -1
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
    """Index of the first entry in `[first, stop)` that has any flag of `mask`; `stop` if none."""
    i: cython.Py_ssize_t = first
    with cython.nogil:
        while i < stop and table[i * layout.ENTRY_WIDTH + layout.FLAGS] & mask == 0:
            i += 1
    return i


def next_going_back(
    table: cython.const[cython.longlong][::1], first: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> int:
    """Index of the next entry that the broker numbered no higher than the one before it.

    Of the entries in `[first, stop)`, of which `first` is compared with none; `stop` if there is no
    such entry. Entries without a number, and broken ones, are compared with none.
    """
    i: cython.Py_ssize_t = first
    mask: cython.longlong = layout.HAS_BROKER_INDEX | layout.BROKEN
    is_numbered: cython.bint = False
    was_numbered: cython.bint = False
    number: cython.longlong = 0
    before: cython.longlong = 0
    with cython.nogil:
        while i < stop:
            is_numbered = table[i * layout.ENTRY_WIDTH + layout.FLAGS] & mask == (
                layout.HAS_BROKER_INDEX
            )
            number = table[i * layout.ENTRY_WIDTH + layout.BROKER_INDEX]
            if was_numbered and is_numbered and number <= before:
                break
            was_numbered = is_numbered
            before = number
            i += 1
    return i


def kind_stop(
    table: cython.const[cython.longlong][::1], first: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> int:
    """The entry behind those from `first` on, up to `stop`, that are of its kind.

    They are all batches or none is, and all are compressed by the same codec or none is.
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
    """Mark each of `count` entries whose CRC32C is not as stored as `BROKEN`.

    Args:
        data: The buffer that the entry table was read from.
        table: Entry table.
        count: How many entries it has.

    Returns:
        The flags that any entry has then; with `MIXED` if the entries are not all of one kind.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    where: cython.longlong
    all_flags: cython.longlong = 0
    kinds: cython.longlong = layout.BATCHED | layout.COMPRESSED
    kind: cython.longlong = -1  # of the first entry that is not broken
    codec: cython.longlong = 0
    if cython.compiled:
        p: cython.pointer[cython.const[cython.uchar]] = cython.address(data[0])
    else:
        p = data
    with cython.nogil:
        for i in range(count):
            base = i * layout.ENTRY_WIDTH
            where = table[base + layout.CHECKED]
            if (
                where >= 0
                and crc32c(p, where >> 32, where & wire.MASK32) != table[base + layout.CHECKSUM]
            ):
                table[base + layout.ERROR] = layout.BAD_CHECKSUM
                table[base + layout.FLAGS] = layout.BROKEN
            all_flags |= table[base + layout.FLAGS]
            if table[base + layout.FLAGS] & layout.BROKEN:
                # It is read by itself, and perhaps nothing is known of how it is compressed.
                continue
            if kind < 0:
                kind = table[base + layout.FLAGS] & kinds
                codec = table[base + layout.COMPRESSION]
            elif (
                table[base + layout.FLAGS] & kinds != kind
                or table[base + layout.COMPRESSION] != codec
            ):
                all_flags |= layout.MIXED
    return all_flags


def choose_checksum(fastest: cython.int) -> int:
    """Choose how checksums are made; for tests.

    Args:
        fastest: 0: by tables; 1: by the processor's instruction; 2: by products of 64 bytes at
            once. If the processor does not know the way, the next slower one is taken.

    Returns:
        Which way is taken.
    """
    return choose_crc32c(fastest)


def count_messages(
    table: cython.const[cython.longlong][::1], first: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> int:
    """How many messages the entries in `[first, stop)` say they hold."""
    i: cython.Py_ssize_t
    size: cython.longlong
    total: cython.longlong = 0
    for i in range(first, stop):
        size = table[i * layout.ENTRY_WIDTH + layout.BATCH_SIZE]
        total += 1 if size < 0 else size
    return total


def counted_bytes(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    members: cython.bint,
    payload: cython.bint,
) -> int:
    """How many bytes `BatchLimits.max_bytes` counts of the entries in `[first, stop)`.

    Each counts; and so does what is decompressed, decrypted or copied of it, which has as many
    bytes as the entry says.

    Args:
        table: Entry table.
        first: First entry.
        stop: Behind the last entry.
        members: As `Needs.members`.
        payload: As `Needs.payload`.
    """
    i: cython.Py_ssize_t
    base: cython.Py_ssize_t
    flags: cython.longlong
    size: cython.longlong
    is_opened: cython.bint
    total: cython.longlong = 0
    for i in range(first, stop):
        base = i * layout.ENTRY_WIDTH
        flags = table[base + layout.FLAGS]
        size = table[base + layout.FRAME] & wire.MASK32
        total += size
        is_opened = members if flags & layout.BATCHED else payload
        if flags & layout.COMPRESSED:
            total += table[base + layout.UNCOMPRESSED_SIZE] & wire.MASK32 if is_opened else 0
        elif flags & layout.ENCRYPTED:
            total += table[base + layout.PAYLOAD] & wire.MASK32 if is_opened else 0
        elif payload:
            total += size
    return total


def add_singles(
    table: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    field: cython.Py_ssize_t,
    rows: cython.longlong[::1],
    stride: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
) -> None:
    """Give each entry in `[first, stop)` one row, from `row` on; its values are those of the entry.

    Args:
        table: Entry table.
        first: First entry.
        stop: Behind the last entry.
        field: Where the entry table has the position of the value: `PAYLOAD`, or `BODY`.
        rows: Row table, column-major.
        stride: Numbers from the begin of one column of `rows` to that of the next; at least
            `row + stop - first`.
        row: First row written.
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
        stride: Numbers from the begin of one column of `rows` to that of the next.
        capacity: Rows that it takes; at most `stride`.
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
