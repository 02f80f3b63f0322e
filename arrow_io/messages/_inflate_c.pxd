# The C declarations of what `_codecs_py.py` calls in `_inflate_py.py`.

cdef bint inflate(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t readable,
    unsigned char* q, Py_ssize_t o, Py_ssize_t end, Py_ssize_t writable, int* s,
) noexcept nogil
