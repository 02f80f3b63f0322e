# Comparison of the heads of two entries: the bytes from the start of the entry's data to the end of
# its metadata.
cdef extern from *:
    """
    #include <stddef.h>
    #include <string.h>

    #define PULSAR_OFFLOAD_HEAD_BYTES 128

    /* Whether two heads have the same bits where `mask` has ones. Reads `length` bytes of each,
       rounded up to a multiple of 8. */
    static inline int pulsar_offload_is_alike(
        const unsigned char* head, const unsigned char* other, const unsigned char* mask,
        ptrdiff_t length
    ) {
        unsigned long long difference = 0;
        ptrdiff_t i;
        for (i = 0; i < length; i += 8) {
            unsigned long long a, b, m;
            memcpy(&a, head + i, 8);
            memcpy(&b, other + i, 8);
            memcpy(&m, mask + i, 8);
            difference |= (a ^ b) & m;
        }
        return difference == 0;
    }
    """
    const Py_ssize_t HEAD_BYTES "PULSAR_OFFLOAD_HEAD_BYTES"
    bint is_alike "pulsar_offload_is_alike"(
        const unsigned char* head, const unsigned char* other, const unsigned char* mask,
        ptrdiff_t length
    ) noexcept nogil
    void* memcpy(void* target, const void* source, size_t length) noexcept nogil
    void* memset(void* target, int value, size_t length) noexcept nogil
