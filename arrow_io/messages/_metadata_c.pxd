# The C declarations of what `_entries_py.py` calls in `_metadata_py.py`.

cdef long long read_broker_metadata(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, long long* t, Py_ssize_t base
) noexcept nogil
cdef long long read_message_metadata(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, long long* t, Py_ssize_t base
) noexcept nogil
