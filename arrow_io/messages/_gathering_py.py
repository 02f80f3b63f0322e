# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True, freethreading_compatible=True
"""The column gatherer: rows and the bytes they refer to → one Arrow buffer; see `_entries_py`.

One call measures all requested columns and another one fills them, because at each call a thread
may have to wait for the GIL. The buffer is an Arrow IPC message, so a single Arrow call creates all
arrays.
"""

from __future__ import annotations

from array import array

try:
    import cython
except ImportError:
    from arrow_io.core import _no_cython as cython

if cython.compiled:
    from cython.cimports.arrow_io.core import _ipc_message as ipc_message
    from cython.cimports.arrow_io.core._bits import same
    from cython.cimports.arrow_io.core._prefetch import PREFETCH_AHEAD, prefetch
    from cython.cimports.arrow_io.messages import _layout as layout
    from cython.cimports.arrow_io.messages import _wire as wire
    from cython.cimports.arrow_io.messages._copies import WORD, copy_word
    from cython.cimports.arrow_io.messages._wire import pack_position, skip, varint
    from cython.cimports.libc.string import memcpy
else:
    from arrow_io.core import ipc_message
    from arrow_io.messages import layout, wire
    from arrow_io.messages.wire import pack_position, skip, varint

_ALIGNMENT = cython.declare(cython.Py_ssize_t, 64)

# Fields of a part.
_STOP = cython.declare(cython.Py_ssize_t, 0)
_TABLE = cython.declare(cython.Py_ssize_t, 1)
_DATA = cython.declare(cython.Py_ssize_t, 2)
"""Address and length, as for the two fields below."""
_BODY = cython.declare(cython.Py_ssize_t, 4)
_PAYLOAD = cython.declare(cython.Py_ssize_t, 6)
_LEDGER_ID = cython.declare(cython.Py_ssize_t, 8)
_TAG = cython.declare(cython.Py_ssize_t, 9)
_PART_WIDTH = cython.declare(cython.Py_ssize_t, 10)


@cython.final
@cython.cclass
class Gatherer:
    """The rows of a batch, in parts that share the same buffers.

    Args:
        rows: Row table, column-major.
        stride: Distance between the starts of two of its columns, in numbers.
    """

    row_buffers: tuple
    properties: object
    owners: list
    parts: object
    stride: cython.Py_ssize_t
    count: cython.Py_ssize_t
    items: cython.Py_ssize_t
    a: cython.pointer[cython.longlong]
    rows: cython.pointer[cython.longlong]
    names: cython.pointer[cython.longlong]
    values: cython.pointer[cython.longlong]
    ends: cython.pointer[cython.int]
    name: cython.longlong
    value: cython.longlong

    def __init__(self, rows: object, stride: cython.Py_ssize_t) -> None:
        r: cython.longlong[::1] = rows
        # References that keep alive the memory that the pointers point to.
        self.row_buffers = (rows,)
        self.properties = None
        self.owners = []
        self.parts = array("q")
        self.stride = stride
        self.count = 0
        self.items = 0
        if cython.compiled:
            self.rows = cython.address(r[0])
        else:
            self.rows = r
            self.names = self.values = r[:0]

    def add(
        self,
        stop: cython.Py_ssize_t,
        ledger_id: cython.longlong,
        table: object,
        data: object,
        body: object,
        payload: object,
        tag: cython.longlong,
    ) -> None:
        """Append a part.

        Args:
            stop: End of its rows (exclusive).
            ledger_id: Ledger of its entries.
            table: Entry table of its entries.
            data: Buffer that positions in that table refer to.
            body: Buffer that the positions of keys, ordering keys and metadata refer to.
            payload: Buffer that the positions of values refer to.
            tag: Protobuf tag of the field of metadata that holds a property: 34 in MessageMetadata,
                10 in SingleMessageMetadata.
        """
        self.owners.append((table, data, body, payload))
        if cython.compiled:
            t: cython.const[cython.longlong][::1] = table
            d: cython.const[cython.uchar][::1] = data
            b: cython.const[cython.uchar][::1] = body
            v: cython.const[cython.uchar][::1] = payload
            self.parts.extend(
                (
                    stop,
                    cython.cast(cython.Py_ssize_t, cython.address(t[0])),
                    cython.cast(cython.Py_ssize_t, cython.address(d[0])),
                    d.shape[0],
                    cython.cast(cython.Py_ssize_t, cython.address(b[0])),
                    b.shape[0],
                    cython.cast(cython.Py_ssize_t, cython.address(v[0])),
                    v.shape[0],
                    ledger_id,
                    tag,
                )
            )
        else:
            sizes = len(data), len(body), len(payload)
            self.parts.extend((stop, 0, 0, sizes[0], 0, sizes[1], 0, sizes[2], ledger_id, tag))
        self.count = stop

    def payload_stop(self, first: cython.Py_ssize_t, field: cython.Py_ssize_t) -> int:
        """Return the end of the rows from `first` on with one source of payloads.

        Their values share a buffer, and their entries have the same bytes at the positions in
        `field` of their entry tables, `SCHEMA_VERSION` or `SCHEMA_ID`, or all have none.
        """
        s: cython.longlong[::1] = self.parts
        row: cython.Py_ssize_t = first
        part: cython.Py_ssize_t = 0
        entry: cython.longlong = -1
        name: cython.longlong
        first_name: cython.longlong
        first_part: cython.Py_ssize_t
        first_data: cython.pointer[cython.const[cython.uchar]]
        entries: cython.pointer[cython.longlong] = self._numbers(
            layout.GATHERED_ROW_BYTES, layout.ROW_ENTRY
        )
        if cython.compiled:
            self.a = cython.address(s[0])
        else:
            self.a = s
        with cython.nogil:
            while self.a[part + _STOP] <= first:
                part += _PART_WIDTH
            first_part = part
            first_data = self._buffer(part, _DATA)
            first_name = self._table(part)[entries[first] * layout.ENTRY_WIDTH + field]
            while row < self.count and self._has_same_payload(part, first_part):
                entry = -1
                while row < self.a[part + _STOP]:
                    if entries[row] != entry:
                        entry = entries[row]
                        name = self._table(part)[entry * layout.ENTRY_WIDTH + field]
                        if (name < 0) != (first_name < 0):
                            break
                        if name >= 0 and not _same_bytes(
                            self._buffer(part, _DATA), name, first_data, first_name
                        ):
                            break
                    row += 1
                if row < self.a[part + _STOP]:
                    break
                part += _PART_WIDTH
        return row

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_same_payload(self, part: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
        """Return whether the values of two parts are in the same buffer."""
        if cython.compiled:
            return (
                self.a[part + _PAYLOAD] == self.a[other + _PAYLOAD]
                and self.a[part + _PAYLOAD + 1] == self.a[other + _PAYLOAD + 1]
            )
        return self.owners[part // _PART_WIDTH][3] is self.owners[other // _PART_WIDTH][3]

    # Properties

    def property_total(self) -> int:
        """Return the number of properties of all rows, repeated names included."""
        row: cython.Py_ssize_t
        total: cython.longlong = 0
        counts: cython.pointer[cython.longlong] = self._numbers(
            layout.GATHERED_ROW_BYTES, layout.ROW_PROPERTY_COUNT
        )
        with cython.nogil:
            for row in range(self.count):
                total += counts[row]
        return total

    def set_properties(
        self, numbers: object, total: cython.Py_ssize_t, items: cython.Py_ssize_t
    ) -> None:
        """Set the buffer of properties: 64-bit numbers.

        These are `total` positions of names and `total` positions of values; then Arrow list
        offsets of 32 bits: the number of properties before each row, and of all rows. The first
        `items` properties are in the buffer.
        """
        n: cython.longlong[::1] = numbers
        self.properties = numbers
        self.items = items
        if cython.compiled:
            self.names = cython.address(n[0])
            self.values = self.names + total
            self.ends = cython.cast(cython.pointer[cython.int], self.values + total)
        else:
            self.names, self.values = n[:total], n[total : 2 * total]
            self.ends = n[2 * total :].cast("B").cast("i")

    def read_properties(self, first: cython.Py_ssize_t) -> tuple[int, int, bool]:
        """Find names and values of the properties of the rows from `first` on.

        If a message repeats a name, the last value wins, as in Pulsar's client. A message with more
        than `MAX_COMPARED_PROPERTIES` properties keeps duplicates, which the caller must remove.

        Returns:
            The number of rows and 0, or a row whose properties cannot be decoded and its error
            code: it gets none, and reading continues at the next row. Then, whether a row has more
            properties than are compared.
        """
        s: cython.longlong[::1] = self.parts
        row: cython.Py_ssize_t = first
        part: cython.Py_ssize_t = 0
        begin: cython.Py_ssize_t
        error: cython.longlong = 0
        is_many: cython.bint = False
        counts: cython.pointer[cython.longlong] = self._numbers(
            layout.GATHERED_ROW_BYTES, layout.ROW_PROPERTY_COUNT
        )
        metadata: cython.pointer[cython.longlong] = self._numbers(
            layout.GATHERED_ROW_BYTES, layout.ROW_METADATA
        )
        if cython.compiled:
            self.a = cython.address(s[0])
        else:
            self.a = s
        with cython.nogil:
            if first == 0:
                self.ends[0] = 0
            while row < self.count and error == 0:
                while self.a[part + _STOP] <= row:
                    part += _PART_WIDTH
                if cython.compiled and row + PREFETCH_AHEAD < self.a[part + _STOP]:
                    prefetch(self._buffer(part, _BODY) + (metadata[row + PREFETCH_AHEAD] >> 32))
                begin = self.items
                error = self._read_row_properties(part, metadata[row], counts[row])
                is_many |= self.items - begin > layout.MAX_COMPARED_PROPERTIES
                if error != 0:
                    self.items = begin
                self.ends[row + 1] = self.items
                row += error == 0
        return row, error, is_many

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.longlong)
    def _read_row_properties(
        self, part: cython.Py_ssize_t, position: cython.longlong, left: cython.longlong
    ):
        """Add up to `left` properties in the metadata at a position; return 0 or an error code."""
        p: cython.pointer[cython.const[cython.uchar]] = self._buffer(part, _BODY)
        tag: cython.ulonglong = self.a[part + _TAG]
        i: cython.Py_ssize_t = position >> 32
        end: cython.Py_ssize_t = i + (position & wire.MASK32)
        begin: cython.Py_ssize_t = self.items
        k: cython.Py_ssize_t
        field: cython.ulonglong
        length: cython.ulonglong
        room: cython.ulonglong
        while left > 0 and i < end:
            if self._read_short_property(p, i, end, tag):
                i += 2 + p[i + 1]
            else:
                field, i = varint(p, i, end)
                if i < 0:
                    return layout.BAD_PROPERTY
                if field != tag:
                    i = _skip_field(p, i, end, field)
                    if i < 0:
                        return layout.BAD_PROPERTY
                    continue
                length, i = varint(p, i, end)
                room = end - i
                if i < 0 or length > room:
                    return layout.BAD_PROPERTY
                i = self._read_property(p, i, i + length)
                if i < 0:
                    return layout.BAD_PROPERTY
            k = begin
            if self.items - begin < layout.MAX_COMPARED_PROPERTIES:
                while k < self.items and not _same_bytes(p, self.names[k], p, self.name):
                    k += 1
            else:
                k = self.items
            self.names[k] = self.name
            self.values[k] = self.value
            if k == self.items:
                self.items += 1
            left -= 1
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.bint)
    def _read_short_property(
        self,
        p: cython.pointer[cython.const[cython.uchar]],
        i: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        tag: cython.ulonglong,
    ):
        """Set `name` and `value` if the field at `i` has the usual form; return whether it has.

        In the usual form, the field is a property of less than 128 bytes, a name and then a value.
        """
        size: cython.Py_ssize_t
        middle: cython.Py_ssize_t
        if end - i < 6 or p[i] != tag or p[i + 1] >= 0x80 or p[i + 2] != 10 or p[i + 3] >= 0x80:
            return False
        size = p[i + 1]
        middle = i + 4 + p[i + 3]
        if size > end - i - 2 or middle + 2 > i + 2 + size:
            return False
        if p[middle] != 18 or p[middle + 1] >= 0x80 or middle + 2 + p[middle + 1] != i + 2 + size:
            return False
        self.name = pack_position(i + 4, p[i + 3])
        self.value = pack_position(middle + 2, p[middle + 1])
        return True

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.Py_ssize_t)
    def _read_property(
        self,
        p: cython.pointer[cython.const[cython.uchar]],
        i: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ):
        """Set `name` and `value` to the positions of a property's in `[i, end)`.

        Return `end`, or −1 if they are missing or damaged.
        """
        field: cython.ulonglong
        length: cython.ulonglong
        room: cython.ulonglong
        self.name = -1
        self.value = -1
        while i < end:
            field, i = varint(p, i, end)
            if i < 0 or field < 8:
                return -1
            if field != 10 and field != 18:
                i = _skip_field(p, i, end, field)
                if i < 0:
                    return -1
                continue
            length, i = varint(p, i, end)
            room = end - i
            if i < 0 or length > room:
                return -1
            if field == 10:
                self.name = pack_position(i, length)
            else:
                self.value = pack_position(i, length)
            i += length
        return -1 if self.name < 0 or self.value < 0 else end

    def measure(self, columns: object, count: cython.Py_ssize_t, notes: object) -> int:
        """Assign each column its regions in the body of a message.

        Args:
            columns: Kind and field of each column (`layout.GATHERED_…`).
            count: Number of columns.
            notes: Receives `NOTE_WIDTH` numbers per column: `NOTE_VALIDITY`, `NOTE_DATA` and
                `NOTE_BYTES`, the starts of its regions in the body, in bytes; `NOTE_LENGTH`, the
                length of the last region in bytes.

        Returns:
            Length of the body in bytes, a multiple of 64; −1 if the bytes of a column exceed 32-bit
            offsets.
        """
        c: cython.const[cython.longlong][::1] = columns
        n: cython.longlong[::1] = notes
        s: cython.longlong[::1] = self.parts
        k: cython.Py_ssize_t
        base: cython.Py_ssize_t
        rows: cython.longlong
        place: cython.longlong = 0
        length: cython.longlong = 0
        kind: cython.longlong
        if cython.compiled:
            self.a = cython.address(s[0])
        else:
            self.a = s
        with cython.nogil:
            for k in range(count):
                base = k * layout.NOTE_WIDTH
                kind = c[2 * k]
                rows = self._values(kind)
                n[base + layout.NOTE_VALIDITY] = place
                place += _aligned(rows // 8 + 1)
                n[base + layout.NOTE_DATA] = place
                place += _aligned(_data_bytes(kind, rows))
                length = 0
                if kind >= layout.GATHERED_ENTRY_BYTES and kind != layout.GATHERED_ROW_OFFSETS:
                    length = self._length(kind, c[2 * k + 1])
                    if length > wire.MAX31:
                        break
                n[base + layout.NOTE_BYTES] = place
                n[base + layout.NOTE_LENGTH] = length
                place += _aligned(length)
        return -1 if length > wire.MAX31 else place

    def fill(
        self,
        columns: object,
        count: cython.Py_ssize_t,
        notes: object,
        out: object,
        body: cython.Py_ssize_t,
        start: cython.Py_ssize_t,
        buffer: cython.Py_ssize_t,
    ) -> int:
        """Fill the first columns of a message, and record their regions in its header.

        Args:
            columns: The columns that were measured.
            count: Number of columns.
            notes: Output of `measure`. Receives for each column `NOTE_NULLS`, the number of its
                nulls, and `NOTE_ODD`: for times, the number that a timestamp cannot hold; for
                bytes, 1 if any is above 127.
            out: The message; its header is complete except for the numbers.
            body: Start of the body in the message, in bytes, a multiple of 64.
            start: Start of the columns in the body, in bytes, a multiple of 64.
            buffer: Position in the header of the first buffer, in 64-bit words.

        Returns:
            Number of columns with a `NOTE_ODD` other than 0.
        """
        c: cython.const[cython.longlong][::1] = columns
        n: cython.longlong[::1] = notes
        s: cython.longlong[::1] = self.parts
        b: cython.uchar[::1] = out
        k: cython.Py_ssize_t
        odd: cython.Py_ssize_t = 0
        if cython.compiled:
            self.a = cython.address(s[0])
            kinds: cython.pointer[cython.const[cython.longlong]] = cython.address(c[0])
            note: cython.pointer[cython.longlong] = cython.address(n[0])
            message: cython.pointer[cython.longlong] = cython.cast(
                cython.pointer[cython.longlong], cython.address(b[0])
            )
            p8: cython.pointer[cython.uchar] = cython.address(b[0]) + body + start
            p32: cython.pointer[cython.int] = cython.cast(cython.pointer[cython.int], p8)
            p64: cython.pointer[cython.longlong] = cython.cast(cython.pointer[cython.longlong], p8)
            size: cython.Py_ssize_t = b.shape[0]
        else:
            self.a = s
            kinds, note, size = c, n, len(b)
            message, p8 = b[:body].cast("q"), b[body + start :]
            p32, p64 = p8.cast("i"), p8.cast("q")
        with cython.nogil:
            for k in range(count):
                self._fill(c[2 * k], c[2 * k + 1], note, k * layout.NOTE_WIDTH, p8, p32, p64)
                odd += note[k * layout.NOTE_WIDTH + layout.NOTE_ODD] != 0
            message[ipc_message.BODY_BYTES] = size - body
            message[ipc_message.ROWS] = self.count
            self._write_regions(kinds, count, note, message, start, buffer)
        return odd

    # Sources of a column

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.Py_ssize_t)
    def _values(self, kind: cython.longlong):
        """Return the number of values of a column."""
        return self.items if kind >= layout.GATHERED_NAMES else self.count

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.Py_ssize_t)
    def _stop(self, kind: cython.longlong, part: cython.Py_ssize_t):
        """Return the end of a part's values in a column."""
        row: cython.Py_ssize_t = self.a[part + _STOP]
        if kind >= layout.GATHERED_NAMES:
            return self.ends[row]
        return row

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _numbers(
        self, kind: cython.longlong, field: cython.longlong
    ) -> cython.pointer[cython.longlong]:
        """Return a column's numbers: positions of properties, or a row-table column."""
        if kind == layout.GATHERED_NAMES:
            return self.names
        if kind == layout.GATHERED_VALUES:
            return self.values
        if cython.compiled:
            return self.rows + field * self.stride
        return self.rows[field * self.stride :]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _table(self, part: cython.Py_ssize_t) -> cython.pointer[cython.longlong]:
        if cython.compiled:
            return cython.cast(cython.pointer[cython.longlong], self.a[part + _TABLE])
        return self.owners[part // _PART_WIDTH][0]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.Py_ssize_t)
    def _source(self, kind: cython.longlong, field: cython.longlong):
        """Return which buffer of a part the positions of a column refer to."""
        if kind == layout.GATHERED_ENTRY_BYTES:
            return _DATA
        if (
            kind in (layout.GATHERED_ROW_BYTES, layout.GATHERED_ROW_OFFSETS)
            and field == layout.ROW_PAYLOAD
        ):
            return _PAYLOAD
        return _BODY

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _buffer(
        self, part: cython.Py_ssize_t, source: cython.Py_ssize_t
    ) -> cython.pointer[cython.const[cython.uchar]]:
        if cython.compiled:
            return cython.cast(cython.pointer[cython.const[cython.uchar]], self.a[part + source])
        return self.owners[part // _PART_WIDTH][source // 2]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.longlong)
    def _length(self, kind: cython.longlong, field: cython.longlong):
        """Return the total length of a column's values in bytes; more than `MAX31` if too long."""
        i: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        part: cython.Py_ssize_t = 0
        entry: cython.longlong
        length: cython.longlong
        where: cython.longlong
        total: cython.longlong = 0
        t: cython.pointer[cython.longlong]
        entries: cython.pointer[cython.longlong]
        positions: cython.pointer[cython.longlong]
        if kind == layout.GATHERED_ENTRY_BYTES:
            entries = self._numbers(kind, layout.ROW_ENTRY)
            while i < self.count:
                t = self._table(part)
                stop = self._stop(kind, part)
                while i < stop:
                    entry = entries[i]
                    where = t[entry * layout.ENTRY_WIDTH + field]
                    length = (where & wire.MASK32) if where >= 0 else 0
                    while i < stop and entries[i] == entry:
                        total += length
                        i += 1
                part += _PART_WIDTH
            return total
        positions = self._numbers(kind, field)
        stop = self._values(kind)
        for i in range(stop):
            # Without a branch, the compiler adds several at once. Absent positions are below 0.
            total += positions[i] & wire.MASK32 & ~(positions[i] >> 63)
        return total

    # Filling

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.void)
    def _fill(
        self,
        kind: cython.longlong,
        field: cython.longlong,
        note: cython.pointer[cython.longlong],
        base: cython.Py_ssize_t,
        p8: cython.pointer[cython.uchar],
        p32: cython.pointer[cython.int],
        p64: cython.pointer[cython.longlong],
    ):
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t = note[base + layout.NOTE_DATA]
        validity: cython.Py_ssize_t = note[base + layout.NOTE_VALIDITY]
        note[base + layout.NOTE_NULLS] = 0
        note[base + layout.NOTE_ODD] = 0
        if kind == layout.GATHERED_BATCH_INDEXES:
            note[base + layout.NOTE_NULLS] = self._fill_indexes(p8, validity, p32, place // 4)
        elif kind == layout.GATHERED_CONSTANTS:
            for i in range(self.count):
                p32[place // 4 + i] = cython.cast(cython.int, field) if cython.compiled else field
        elif kind == layout.GATHERED_PROPERTIES:
            # Unset if no row has a property.
            for i in range(self.count + 1):
                p32[place // 4 + i] = self.ends[i] if self.items > 0 else 0
        elif kind >= layout.GATHERED_ENTRY_BYTES:
            self._fill_bytes(kind, field, note, base, p8, p32)
        else:
            self._fill_numbers(kind, field, p64, place // 8)
            if kind >= layout.GATHERED_ENTRY_TIMES:
                self._make_times(
                    0 if kind == layout.GATHERED_ROW_TIMES else layout.NO_TIME,
                    note, base, p8, p64,
                )  # fmt: skip

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.void)
    def _fill_numbers(
        self,
        kind: cython.longlong,
        field: cython.longlong,
        out: cython.pointer[cython.longlong],
        place: cython.Py_ssize_t,
    ):
        """Write to each row its own number, its entry's number, or its ledger id."""
        i: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        part: cython.Py_ssize_t = 0
        is_row_field: cython.bint = kind in (layout.GATHERED_ROW_NUMBERS, layout.GATHERED_ROW_TIMES)
        ledger_id: cython.longlong
        numbers: cython.pointer[cython.longlong] = self._numbers(
            kind, field if is_row_field else layout.ROW_ENTRY
        )
        t: cython.pointer[cython.longlong]
        while i < self.count:
            t = self._table(part)
            stop = self._stop(kind, part)
            if kind == layout.GATHERED_LEDGER_IDS:
                ledger_id = self.a[part + _LEDGER_ID]
                while i < stop:
                    out[place + i] = ledger_id
                    i += 1
            while i < stop:
                out[place + i] = (
                    numbers[i] if is_row_field else t[numbers[i] * layout.ENTRY_WIDTH + field]
                )
                i += 1
            part += _PART_WIDTH

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.void)
    def _make_times(
        self,
        absent: cython.longlong,
        note: cython.pointer[cython.longlong],
        base: cython.Py_ssize_t,
        p8: cython.pointer[cython.uchar],
        p64: cython.pointer[cython.longlong],
    ):
        """Convert milliseconds to microseconds in place; `absent` becomes null."""
        i: cython.Py_ssize_t
        out_of_range: cython.Py_ssize_t = 0
        nulls: cython.Py_ssize_t = 0
        time: cython.longlong
        bits: cython.int = 0
        validity: cython.Py_ssize_t = note[base + layout.NOTE_VALIDITY]
        place: cython.Py_ssize_t = note[base + layout.NOTE_DATA] // 8
        for i in range(self.count):
            time = p64[place + i]
            if time != absent and -layout.MAX_MILLISECONDS <= time <= layout.MAX_MILLISECONDS:
                bits |= 1 << (i & 7)
                p64[place + i] = time * 1000
            else:
                nulls += 1
                out_of_range += time != absent
                p64[place + i] = 0
            if i & 7 == 7:
                p8[validity + (i >> 3)] = bits
                bits = 0
        if self.count & 7 != 0:
            p8[validity + (self.count >> 3)] = bits
        note[base + layout.NOTE_NULLS] = nulls
        note[base + layout.NOTE_ODD] = out_of_range

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.Py_ssize_t)
    def _fill_indexes(
        self,
        p8: cython.pointer[cython.uchar],
        validity: cython.Py_ssize_t,
        p32: cython.pointer[cython.int],
        place: cython.Py_ssize_t,
    ):
        """Write the batch indexes as 32-bit numbers; return the number of nulls."""
        i: cython.Py_ssize_t
        nulls: cython.Py_ssize_t = 0
        bits: cython.int = 0
        indexes: cython.pointer[cython.longlong] = self._numbers(
            layout.GATHERED_BATCH_INDEXES, layout.ROW_BATCH_INDEX
        )
        for i in range(self.count):
            p32[place + i] = cython.cast(cython.int, indexes[i]) if cython.compiled else indexes[i]
            if indexes[i] < 0:
                nulls += 1
            else:
                bits |= 1 << (i & 7)
            if i & 7 == 7:
                p8[validity + (i >> 3)] = bits
                bits = 0
        if self.count & 7 != 0:
            p8[validity + (self.count >> 3)] = bits
        return nulls

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.void)
    def _fill_bytes(
        self,
        kind: cython.longlong,
        field: cython.longlong,
        note: cython.pointer[cython.longlong],
        base: cython.Py_ssize_t,
        p8: cython.pointer[cython.uchar],
        p32: cython.pointer[cython.int],
    ):
        i: cython.Py_ssize_t = 0
        stop: cython.Py_ssize_t
        part: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = self._values(kind)
        source: cython.Py_ssize_t = self._source(kind, field)
        is_entry_field: cython.bint = kind == layout.GATHERED_ENTRY_BYTES
        is_copied: cython.bint = kind != layout.GATHERED_ROW_OFFSETS
        numbers: cython.pointer[cython.longlong] = self._numbers(
            kind, layout.ROW_ENTRY if is_entry_field else field
        )
        where: cython.longlong
        begin: cython.Py_ssize_t
        length: cython.Py_ssize_t
        end: cython.Py_ssize_t = 0
        nulls: cython.Py_ssize_t = 0
        bits: cython.int = 0
        all_bytes: cython.int = 0
        validity: cython.Py_ssize_t = note[base + layout.NOTE_VALIDITY]
        offsets: cython.Py_ssize_t = note[base + layout.NOTE_DATA] // 4
        place: cython.Py_ssize_t = note[base + layout.NOTE_BYTES]
        writable: cython.Py_ssize_t = note[base + layout.NOTE_LENGTH]
        readable: cython.Py_ssize_t
        p: cython.pointer[cython.const[cython.uchar]]
        t: cython.pointer[cython.longlong]
        p32[offsets] = 0
        while i < count:
            p = self._buffer(part, source)
            t = self._table(part)
            readable = self.a[part + source + 1]
            stop = self._stop(kind, part)
            while i < stop:
                if is_entry_field:
                    where = t[numbers[i] * layout.ENTRY_WIDTH + field]
                else:
                    if cython.compiled and is_copied and i + PREFETCH_AHEAD < stop:
                        prefetch(p + (numbers[i + PREFETCH_AHEAD] >> 32))
                    where = numbers[i]
                if where < 0:
                    nulls += 1
                else:
                    bits |= 1 << (i & 7)
                    begin = where >> 32
                    length = where & wire.MASK32
                    if not is_copied:
                        pass
                    elif cython.compiled:
                        # The next values overwrite the excess bytes of a whole word.
                        if length <= WORD <= readable - begin and WORD <= writable - end:
                            copy_word(p8 + place, end, p, begin)
                        else:
                            memcpy(p8 + place + end, p + begin, length)
                    else:
                        p8[place + end : place + end + length] = p[begin : begin + length]
                    end += length
                p32[offsets + i + 1] = end
                if i & 7 == 7:
                    p8[validity + (i >> 3)] = bits
                    bits = 0
                i += 1
            part += _PART_WIDTH
        if count & 7 != 0:
            p8[validity + (count >> 3)] = bits
        note[base + layout.NOTE_NULLS] = nulls
        if source != _PAYLOAD and is_copied:
            for i in range(place, place + end):
                all_bytes |= p8[i]
        note[base + layout.NOTE_ODD] = all_bytes >> 7

    # Writing the header

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    @cython.returns(cython.void)
    def _write_regions(
        self,
        columns: cython.pointer[cython.const[cython.longlong]],
        count: cython.Py_ssize_t,
        notes: cython.pointer[cython.longlong],
        message: cython.pointer[cython.longlong],
        start: cython.Py_ssize_t,
        buffer: cython.Py_ssize_t,
    ):
        """Write the nodes and buffers of the message (`FieldNode` and `Buffer` of Message.fbs)."""
        k: cython.Py_ssize_t
        base: cython.Py_ssize_t
        kind: cython.longlong
        rows: cython.longlong
        node: cython.Py_ssize_t = ipc_message.NODES
        for k in range(count):
            base = k * layout.NOTE_WIDTH
            kind = columns[2 * k]
            rows = self._values(kind)
            message[node] = rows
            message[node + 1] = notes[base + layout.NOTE_NULLS]
            message[buffer] = start + notes[base + layout.NOTE_VALIDITY]
            message[buffer + 1] = rows // 8 + 1
            message[buffer + 2] = start + notes[base + layout.NOTE_DATA]
            message[buffer + 3] = _data_bytes(kind, rows)
            node += 2
            buffer += 4
            if kind == layout.GATHERED_PROPERTIES:
                # The entries of a map, structs of name and value, are an additional array.
                message[node] = self.items
                message[node + 1] = 0
                message[buffer] = start + notes[base + layout.NOTE_VALIDITY]
                message[buffer + 1] = 0
                node += 2
                buffer += 2
            elif kind >= layout.GATHERED_ENTRY_BYTES:
                message[buffer] = start + notes[base + layout.NOTE_BYTES]
                message[buffer + 1] = notes[base + layout.NOTE_LENGTH]
                buffer += 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _aligned(length: cython.longlong):
    return (length + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.longlong)
def _data_bytes(kind: cython.longlong, rows: cython.longlong):
    """Return the length in bytes of a column's numbers or offsets."""
    if kind < layout.GATHERED_BATCH_INDEXES:
        return 8 * rows
    return 4 * (rows + (kind >= layout.GATHERED_PROPERTIES))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.Py_ssize_t)
def _skip_field(
    p: cython.pointer[cython.const[cython.uchar]],
    i: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    tag: cython.ulonglong,
):
    """Return the position after a field whose value starts at `i`; −1 if it is damaged."""
    if tag & 7 != 0:
        return skip(p, i, stop, tag)
    _, i = varint(p, i, stop)
    return i


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns(cython.bint)
def _same_bytes(
    p: cython.pointer[cython.const[cython.uchar]],
    a: cython.longlong,
    q: cython.pointer[cython.const[cython.uchar]],
    b: cython.longlong,
):
    """Return whether there are the same bytes at position `a` of `p` and at position `b` of `q`."""
    length: cython.Py_ssize_t = a & wire.MASK32
    i: cython.Py_ssize_t = a >> 32
    k: cython.Py_ssize_t = b >> 32
    if length != (b & wire.MASK32):
        return False
    if cython.compiled:
        return same(p + i, q + k, length)
    return p[i : i + length] == q[k : k + length]
