# What C has and Python has not: a hint that some bytes will be read soon.
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
    PREFETCHED_BYTES = 2048  # ahead, of what stands back to back
    CACHE_LINE_BYTES = 64
