# The copies of `copies.py` in C. If both buffers have room, whole words are copied: the excess bytes
# are overwritten later, or never shown.
from libc.string cimport memcpy, memset

cdef enum:
    WORD = 16
    ROOM = 48  # one word that is copied whatever the length, and two more


cdef inline void copy_word(
    unsigned char* q, Py_ssize_t o, const unsigned char* p, Py_ssize_t i
) noexcept nogil:
    memcpy(q + o, p + i, WORD)


cdef inline void copy_words_back(unsigned char* q, Py_ssize_t o, Py_ssize_t offset) noexcept nogil:
    memcpy(q + o, q + o - offset, WORD)
    memcpy(q + o + WORD, q + o + WORD - offset, WORD)
    memcpy(q + o + 2 * WORD, q + o + 2 * WORD - offset, WORD)


cdef inline void copy_literals(
    unsigned char* q, Py_ssize_t o, Py_ssize_t writable,
    const unsigned char* p, Py_ssize_t i, Py_ssize_t readable, Py_ssize_t length,
) noexcept nogil:
    cdef unsigned char* to = q + o
    cdef const unsigned char* at = p + i
    cdef unsigned char* stop = to + length
    if length + ROOM > readable - i or length + ROOM > writable - o:
        memcpy(to, at, length)
        return
    memcpy(to, at, WORD)
    if length <= WORD:
        return
    to += WORD
    at += WORD
    while to < stop:
        memcpy(to, at, WORD)
        memcpy(to + WORD, at + WORD, WORD)
        to += 2 * WORD
        at += 2 * WORD


cdef inline void copy_match(
    unsigned char* q, Py_ssize_t o, Py_ssize_t writable, Py_ssize_t offset, Py_ssize_t length
) noexcept nogil:
    cdef unsigned char* to = q + o
    cdef unsigned char* at = to - offset
    cdef unsigned char* stop = to + length
    cdef Py_ssize_t k
    if length + ROOM > writable - o:
        while to < stop:
            to[0] = at[0]
            to += 1
            at += 1
        return
    if offset < WORD:
        if offset == 1:
            memset(to, at[0], length)
            return
        # The bytes repeat at every multiple of the offset.
        for k in range(WORD):
            to[k] = at[k]
        to += WORD
        at = to - (WORD + offset - 1) // offset * offset
    else:
        memcpy(to, at, WORD)
        to += WORD
        at += WORD
    if to >= stop:
        return
    while True:
        memcpy(to, at, WORD)
        memcpy(to + WORD, at + WORD, WORD)
        to += 2 * WORD
        at += 2 * WORD
        if to >= stop:
            return
