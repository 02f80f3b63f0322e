# C declarations of the functions of `_inflate_py.py` that `_codecs_py.py` calls.

cdef bint inflate(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t readable,
    unsigned char* q, Py_ssize_t o, Py_ssize_t end, Py_ssize_t writable, int* s,
) noexcept nogil
