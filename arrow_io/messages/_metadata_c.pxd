# C declarations of the functions of `_metadata_py.py` that `_entries_py.py` calls.

cdef long long read_broker_metadata(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, long long* t, Py_ssize_t base
) noexcept nogil
cdef long long read_message_metadata(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, long long* t, Py_ssize_t base
) noexcept nogil
