# The constants and functions of `wire.py` for the C compiler.
cdef extern from *:
    """
    #include <string.h>

    /* Compilers do not make one load of the four bytes by themselves. */
    static inline unsigned int pulsar_offload_uint32_be(const unsigned char* p) {
    #if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        unsigned int number;
        memcpy(&number, p, 4);
        return __builtin_bswap32(number);
    #else
        return (unsigned int)p[0] << 24 | (unsigned int)p[1] << 16
            | (unsigned int)p[2] << 8 | (unsigned int)p[3];
    #endif
    }
    """
    unsigned int load_uint32_be "pulsar_offload_uint32_be"(const unsigned char* p) noexcept nogil
    const long long MASK32 "4294967295LL"
    const long long MAX31 "2147483647LL"
    const long long TWO31 "2147483648LL"
    const long long TWO32 "4294967296LL"


cdef inline (unsigned long long, Py_ssize_t) varint(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop
) noexcept nogil:
    cdef unsigned long long value = 0
    cdef unsigned long long byte
    cdef int shift = 0
    while i < stop and shift < 70:
        byte = p[i]
        i += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, i
        shift += 7
    return 0, -1


cdef inline Py_ssize_t skip(
    const unsigned char* p, Py_ssize_t i, Py_ssize_t stop, unsigned long long tag
) noexcept nogil:
    cdef unsigned long long wire_type = tag & 7
    cdef unsigned long long length
    cdef unsigned long long room
    if wire_type == 2:
        length, i = varint(p, i, stop)
        if i < 0:
            return -1
    elif wire_type == 1:
        length = 8
    elif wire_type == 5:
        length = 4
    else:
        return -1
    room = stop - i
    if length > room:
        return -1
    return i + length


cdef inline long long int64(unsigned long long value) noexcept nogil:
    return <long long>value


cdef inline long long int32(unsigned long long value) noexcept nogil:
    return <int>value


cdef inline long long uint32_be(const unsigned char* p, Py_ssize_t i) noexcept nogil:
    return load_uint32_be(p + i)


cdef inline long long pack_position(long long start, long long length) noexcept nogil:
    return (start << 32) | length
