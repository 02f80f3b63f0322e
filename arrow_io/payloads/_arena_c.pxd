# The C declarations of `_arena_py.py`, for the compiled subclasses.

cdef class Arena:
    cdef const long long* ops
    cdef const long long* links
    cdef const unsigned char* constants
    cdef long long* nodes
    cdef long long* counts
    cdef long long* used
    cdef long long* saved
    cdef long long* hints
    cdef const double* powers
    cdef const long long* layout
    cdef const long long* items
    cdef const unsigned char* kinds
    cdef double* observed
    cdef long long* numbers
    cdef long long* result
    cdef const unsigned char* p
    cdef Py_ssize_t size
    cdef unsigned char* a8
    cdef short* a16
    cdef int* a32
    cdef long long* a64
    cdef float* f32
    cdef double* f64
    cdef Py_ssize_t node_count
    cdef Py_ssize_t hint_count
    cdef Py_ssize_t size_bytes
    cdef bint is_blank
    cdef bint is_prepared
    cdef long long number
    cdef long long empty_items
    cdef double value
    cdef unsigned long long mantissa
    cdef long long exponent
    cdef bint is_cut
    cdef bint negative
    cdef bint is_canonical
    cdef long long code
    cdef long long code_node
    cdef long long code_offset
    cdef object held_buffers
    cdef object held_arena
    cdef readonly tuple views

    cdef void _use(self, long long* numbers) noexcept
    cdef void _set_capacities(self, long long rows, long long payload_bytes, bint is_expecting) noexcept nogil
    cdef void _prepare(self) noexcept nogil
    cdef void _make_message(self, Py_ssize_t body, Py_ssize_t first_node, Py_ssize_t array, Py_ssize_t buffer) noexcept nogil
    cdef bint _has_equal_keys(self, Py_ssize_t node) noexcept nogil
    cdef bint _append(self, long long position) noexcept nogil
    cdef Py_ssize_t _read_payload(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef bint _append_batch(self, const long long* positions, Py_ssize_t count) noexcept nogil
    cdef void _settle_counts(self) noexcept nogil
    cdef void _blank_rolled_back(self) noexcept nogil
    cdef void _blank(self, Py_ssize_t node, long long first, long long stop) noexcept nogil
    cdef Py_ssize_t _fail(self, long long code, long long node, long long offset) noexcept nogil
    cdef void _reset_code(self) noexcept nogil
    cdef void _roll_back(self) noexcept nogil
    cdef void _restart(self) noexcept nogil
    cdef Py_ssize_t _set_error_node(self, long long node) noexcept nogil
    cdef long long _take_slot(self, Py_ssize_t node) noexcept nogil
    cdef long long _count_overflow(self, Py_ssize_t node, long long values) noexcept nogil
    cdef bint _count_overflow_bytes(self, Py_ssize_t node, long long length) noexcept nogil
    cdef void _note_full(self, Py_ssize_t node) noexcept nogil
    cdef bint _null(self, Py_ssize_t node) noexcept nogil
    cdef void _zero(self, Py_ssize_t node, long long k) noexcept nogil
    cdef bint _put(self, Py_ssize_t node, long long value) noexcept nogil
    cdef bint _put_double(self, Py_ssize_t node, double value, Py_ssize_t offset) noexcept nogil
    cdef bint _is_tie(self, Py_ssize_t node, double value) noexcept nogil
    cdef bint _put_int128(self, Py_ssize_t node, unsigned long long high, unsigned long long low) noexcept nogil
    cdef bint _add_bytes(self, Py_ssize_t node, const unsigned char* source, Py_ssize_t start, long long length) noexcept nogil
    cdef bint _add_byte(self, Py_ssize_t node, long long byte) noexcept nogil
    cdef bint _close_bytes(self, Py_ssize_t node) noexcept nogil
    cdef bint _put_bytes(self, Py_ssize_t node, const unsigned char* source, Py_ssize_t start, long long length) noexcept nogil
    cdef bint _put_constant(self, Py_ssize_t node, long long position) noexcept nogil
    cdef bint _put_text(self, Py_ssize_t node, Py_ssize_t start, long long length) noexcept nogil
    cdef bint _close_struct(self, Py_ssize_t node) noexcept nogil
    cdef bint _put_scaled(self, Py_ssize_t node, Py_ssize_t scale, long long value, Py_ssize_t offset) noexcept nogil
    cdef bint _convert_instant(self, Py_ssize_t node, long long seconds, long long nanoseconds, long long units, Py_ssize_t offset) noexcept nogil
    cdef long long _big_endian(self, Py_ssize_t i, long long size) noexcept nogil
    cdef long long _little_endian(self, Py_ssize_t i, long long size) noexcept nogil
    cdef bint _is_text(self, Py_ssize_t i, Py_ssize_t stop) noexcept nogil
