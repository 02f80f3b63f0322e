# A hint to the processor that bytes will be read soon. Any address is safe.
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
    PREFETCHED_BYTES = 2048  # distance, for messages that are stored back to back
    PREFETCHED_ENTRY_BYTES = 8192  # distance, for entries: they are not in a near cache yet
    LONGEST_PREFETCHED = 2048  # bytes of an entry; for longer ones a prefetch does not pay
    CACHE_LINE_BYTES = 64


# Prefetch at most so many of the bytes [next, stop), and move `next` after them: all at once would take as
# long as reading them.
cdef inline void prefetch_next(
    const unsigned char* data, long long* next, long long stop, long long most
) noexcept nogil:
    cdef long long length = min(most, stop - next[0])
    if length > 0:
        prefetch_lines(data + next[0], length)
        next[0] += length


cdef inline void prefetch_lines(const unsigned char* at, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t line = 0
    while line < length:
        prefetch(at + line)
        line += CACHE_LINE_BYTES
