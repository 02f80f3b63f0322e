# The C declarations of `_avro_values_py.py`, for `_avro_py.py`. A method is inline for calls in the first
# file only.
from arrow_io.core._bits cimport take_varint
from arrow_io.payloads._arena_c cimport Arena


cdef class ValueReader(Arena):
    cdef inline Py_ssize_t _read_long(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _read_long_slowly(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _read_small(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _read_length(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _read_choice(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, long long code) noexcept nogil
    cdef inline Py_ssize_t _read_block(self, long long node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _read_value(self, long long op, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef Py_ssize_t _read_rare_value(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef Py_ssize_t _read_record(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef bint _put_defaults(self, Py_ssize_t link, Py_ssize_t last) noexcept nogil
    cdef Py_ssize_t _read_items(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef bint _count_empty_item(self, long long node, Py_ssize_t i) noexcept nogil
    cdef inline Py_ssize_t _skip(self, long long op, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef inline Py_ssize_t _skip_bytes(self, long long size, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _skip_rare_value(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef Py_ssize_t _skip_fields(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef Py_ssize_t _skip_items(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, int depth) noexcept nogil
    cdef bint _skip_each(self, long long op, Py_ssize_t* positions, Py_ssize_t count, Py_ssize_t stop, int depth) noexcept nogil
    cdef Py_ssize_t _find_items(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop, int depth, Py_ssize_t* positions, Py_ssize_t count) noexcept nogil
    cdef inline long long _take_slot_inline(self, Py_ssize_t node) noexcept nogil
    cdef inline bint _put_list(self, Py_ssize_t node) noexcept nogil
    cdef inline bint _put_integer(self, Py_ssize_t node, Py_ssize_t scale, Py_ssize_t offset) noexcept nogil
    cdef inline bint _put_eight(self, Py_ssize_t node, Py_ssize_t i) noexcept nogil
    cdef inline Py_ssize_t _put_run(self, Py_ssize_t node, Py_ssize_t i, long long length, bint is_text) noexcept nogil
    cdef bint _put_uuid(self, Py_ssize_t node, Py_ssize_t start) noexcept nogil
    cdef bint _put_decimal(self, Py_ssize_t node, Py_ssize_t start, long long length, Py_ssize_t bound) noexcept nogil

# Read a number of up to eight bytes; return its end, or a negative number. Bytes up to `limit` may be
# read; the number must end by `stop`.
cdef inline Py_ssize_t take_long(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t limit, long long* number
) noexcept nogil:
    cdef unsigned long long value = 0
    cdef Py_ssize_t end = take_varint(p, i, stop, limit, &value)
    if end >= 0:
        number[0] = <long long>(value >> 1) ^ -<long long>(value & 1)
    return end
