# The C declarations of `_json_values_py.py`, for `_json_py.py`. A method is inline for calls in the first
# file only.
from arrow_io.payloads._arena_c cimport Arena

# Objects that are read together. Their cursors move through their bytes, up to the stops of their
# payloads; `next` is the object whose value is next.
ctypedef struct Group:
    long long* cursors
    long long* stops
    Py_ssize_t next
    Py_ssize_t count

# The texts of a node while more are added. The node has `count` and `used` after a whole array or
# map alone.
ctypedef struct Texts:
    Py_ssize_t node
    int* ends
    unsigned char* bytes
    long long capacity
    long long room
    long long count
    long long used


cdef class ValueReader(Arena):
    cdef inline Py_ssize_t _json(self, long long op, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_boolean(self, Py_ssize_t node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_other(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_string(self, Py_ssize_t node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_string_slowly(self, Py_ssize_t node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_text(self, Py_ssize_t node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_escape(self, Py_ssize_t node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_digits(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_digits_slowly(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_point(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_point_slowly(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_number(self, long long node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef bint _json_whole(self, long long node, Py_ssize_t offset) noexcept nogil
    cdef Py_ssize_t _json_double(self, Py_ssize_t node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef bint _put_rounded(self, Py_ssize_t node, double value, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef bint _is_number(self, Py_ssize_t node, double tie, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_not_a_number(self, Py_ssize_t node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_decimal(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_base64_decimal(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef long long _json_significant(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_base64(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_base64_slowly(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline long long _base64_digits(self, const unsigned char* source, Py_ssize_t k, Py_ssize_t count) noexcept nogil
    cdef Py_ssize_t _json_enum(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_symbol(self, Py_ssize_t node, Py_ssize_t link, Py_ssize_t last, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline bint _is_overfull(self, Py_ssize_t node) noexcept nogil
    cdef inline bint _is_constant(self, const unsigned char* source, Py_ssize_t start, long long length, long long position) noexcept nogil
    cdef Py_ssize_t _json_record(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline bint _end_record(self, Py_ssize_t node) noexcept nogil
    cdef void _fill_nulls(self, Py_ssize_t node, long long stop) noexcept nogil
    cdef inline void _clear_bytes(self, Py_ssize_t start, Py_ssize_t count) noexcept nogil
    cdef inline Py_ssize_t _skip_name(self, Py_ssize_t field, Py_ssize_t fields_stop, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_slot(self, Py_ssize_t table, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_other_field(self, Py_ssize_t i, Py_ssize_t stop, bint is_field) noexcept nogil
    cdef inline Py_ssize_t _json_name(self, long long node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_colon(self, long long node, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline Py_ssize_t _json_next(self, Py_ssize_t i, Py_ssize_t stop, int close) noexcept nogil
    cdef Py_ssize_t _json_array(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_map(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_union(self, Py_ssize_t at, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _skip_object(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _json_skip(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef inline bint _append_sorted(self, long long position) noexcept nogil
    cdef Py_ssize_t _sorted_record(self, Py_ssize_t at, long long delimiter, Py_ssize_t stop) noexcept nogil
    cdef inline bint _sorted_value(self, long long op, long long delimiter, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
    cdef Py_ssize_t _sorted_array(self, Py_ssize_t at, long long delimiter, Py_ssize_t stop) noexcept nogil
    cdef inline long long _take_slot_inline(self, Py_ssize_t node) noexcept nogil
    cdef inline void _put_copied(self, Py_ssize_t node, long long k, long long used) noexcept nogil
    cdef inline bint _put_list(self, Py_ssize_t node) noexcept nogil
    cdef inline bint _put_integer(self, Py_ssize_t node, Py_ssize_t scale, Py_ssize_t offset) noexcept nogil
    cdef inline bint _put_number(self, Py_ssize_t node, double value, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
