# What C has and Python has not: a hint that some bytes will be read soon. It may point anywhere.
cdef extern from *:
    """
    #if defined(__GNUC__)
    #define pulsar_offload_prefetch(address) __builtin_prefetch(address)
    #else
    #define pulsar_offload_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "pulsar_offload_prefetch"(const void* address) noexcept nogil
cdef enum:
    PREFETCH_AHEAD = 12  # rows
    PREFETCHED_BYTES = 2048  # ahead, of messages that stand back to back
    PREFETCHED_ENTRY_BYTES = 8192  # ahead, of entries: they come from farther away
    LONGEST_PREFETCHED = 2048  # bytes of an entry; to wait for longer ones takes less
    CACHE_LINE_BYTES = 64


cdef inline void prefetch_lines(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t line = 0
    while line < length:
        prefetch(at + line)
        line += CACHE_LINE_BYTES
