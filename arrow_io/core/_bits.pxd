# Reads, comparisons and copies of several bytes at once, which Python lacks. Most texts are short, and
# a call of the C library would take longer than these loops.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    static inline int pulsar_offload_lowest(unsigned long long bits) {
        return __builtin_ctzll(bits);
    }
    static inline unsigned long long pulsar_offload_word(const unsigned char* from) {
        uint64_t word;
        memcpy(&word, from, 8);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }
    static inline long long pulsar_offload_varint(
            const unsigned char* from, long long i, long long stop, long long limit,
            unsigned long long* number) {
        uint64_t word, ends;
        int count;
        if (limit - i < 8) return -1;
        word = pulsar_offload_word(from + i);
        ends = ~word & UINT64_C(0x8080808080808080);
        if (ends == 0) return -1;
        count = (pulsar_offload_lowest(ends) >> 3) + 1;
        if (count > stop - i) return -1;
        /* Keep the bits below the end; then join the groups of seven bits: by two, four and eight. */
        word &= (ends ^ (ends - 1)) & UINT64_C(0x7F7F7F7F7F7F7F7F);
        word = (word & UINT64_C(0x007F007F007F007F)) | (word & UINT64_C(0x7F007F007F007F00)) >> 1;
        word = (word & UINT64_C(0x00003FFF00003FFF)) | (word & UINT64_C(0x3FFF00003FFF0000)) >> 2;
        *number = (word & UINT64_C(0x0FFFFFFF)) | (word & UINT64_C(0x0FFFFFFF00000000)) >> 4;
        return i + count;
    }
    static inline unsigned int pulsar_offload_half_word(const unsigned char* from) {
        uint32_t word;
        memcpy(&word, from, 4);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap32(word);
    #endif
        return word;
    }
    static inline long long pulsar_offload_plain(const unsigned char* from, long long i, long long stop) {
    #if defined(__SSE2__)
        const __m128i quote = _mm_set1_epi8(0x22), slash = _mm_set1_epi8(0x5C);
        const __m128i control = _mm_set1_epi8(0x1F);
        for (; stop - i >= 16; i += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i*)(from + i));
            __m128i found = _mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)),
                _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
            int bits = _mm_movemask_epi8(found);
            if (bits != 0) return i + __builtin_ctz(bits);
        }
    #endif
        while (i < stop && from[i] != 0x22 && from[i] != 0x5C && from[i] >= 0x20) i++;
        return i;
    }
    static inline int pulsar_offload_ascii(const unsigned char* from, long long n) {
        const uint64_t high = UINT64_C(0x8080808080808080);
        uint64_t word, last;
        uint32_t word4, last4;
        if (n >= 8) {
            memcpy(&last, from + n - 8, 8);
            for (; n >= 8; n -= 8, from += 8) { memcpy(&word, from, 8); last |= word; }
            return (last & high) == 0;
        }
        if (n >= 4) {
            memcpy(&word4, from, 4); memcpy(&last4, from + n - 4, 4);
            return ((word4 | last4) & (uint32_t)high) == 0;
        }
        for (word4 = 0; n > 0; n--) word4 |= from[n - 1];
        return word4 < 0x80;
    }
    static inline int pulsar_offload_ascii_near(const unsigned char* from, long long n, long long room) {
    #if defined(__SSE2__)
        unsigned int high = 0;
        for (; n > 16 && room >= 32; n -= 16, room -= 16, from += 16)
            high |= _mm_movemask_epi8(_mm_loadu_si128((const __m128i*)from));
        if (n <= 16 && room >= 16) {
            high |= _mm_movemask_epi8(_mm_loadu_si128((const __m128i*)from)) & ((1u << n) - 1);
            return high == 0;
        }
        if (high != 0) return 0;
    #endif
        return pulsar_offload_ascii(from, n);
    }
    static inline int pulsar_offload_utf8(const unsigned char* from, long long n, long long room) {
    #if defined(__SSE2__)
    #define PULSAR_OFFLOAD_FROM(least) _mm_cmpeq_epi8(_mm_max_epu8(bytes, _mm_set1_epi8((char)least)), bytes)
    #define PULSAR_OFFLOAD_IS(byte) _mm_cmpeq_epi8(bytes, _mm_set1_epi8((char)byte))
        /* Positions that must hold a continuation byte. */
        unsigned int owed = 0;
        for (; n > 0; n -= 16, room -= 16, from += 16) {
            unsigned int keep = n >= 16 ? 0xFFFF : (1u << n) - 1, wrong, first, on;
            __m128i bytes, second;
            if (room < 17) return -1;
            bytes = _mm_loadu_si128((const __m128i*)from);
            if ((_mm_movemask_epi8(bytes) & keep) == 0) {
                if (owed != 0) return 0;
                continue;
            }
            on = _mm_movemask_epi8(_mm_cmplt_epi8(bytes, _mm_set1_epi8(-64))) & keep;
            first = _mm_movemask_epi8(bytes) & keep & ~on;
            owed |= first << 1;
            owed |= (_mm_movemask_epi8(PULSAR_OFFLOAD_FROM(0xE0)) & keep) << 2;
            owed |= (_mm_movemask_epi8(PULSAR_OFFLOAD_FROM(0xF0)) & keep) << 3;
            wrong = first & ~_mm_movemask_epi8(PULSAR_OFFLOAD_FROM(0xC2));
            /* After E0, ED, F0 and F4 the second byte has a narrower range. */
            second = _mm_or_si128(
                _mm_or_si128(PULSAR_OFFLOAD_IS(0xE0), PULSAR_OFFLOAD_IS(0xED)),
                PULSAR_OFFLOAD_FROM(0xF0));
            if (_mm_movemask_epi8(second) & keep) {
                __m128i e0 = PULSAR_OFFLOAD_IS(0xE0), ed = PULSAR_OFFLOAD_IS(0xED);
                __m128i f0 = PULSAR_OFFLOAD_IS(0xF0), f4 = PULSAR_OFFLOAD_IS(0xF4);
                wrong |= _mm_movemask_epi8(PULSAR_OFFLOAD_FROM(0xF5));
                bytes = _mm_loadu_si128((const __m128i*)(from + 1));
                wrong |= _mm_movemask_epi8(_mm_or_si128(
                    _mm_or_si128(
                        _mm_andnot_si128(PULSAR_OFFLOAD_FROM(0xA0), e0),
                        _mm_and_si128(PULSAR_OFFLOAD_FROM(0xA0), ed)),
                    _mm_or_si128(
                        _mm_andnot_si128(PULSAR_OFFLOAD_FROM(0x90), f0),
                        _mm_and_si128(PULSAR_OFFLOAD_FROM(0x90), f4))));
            }
            if ((wrong & keep) != 0 || (owed & 0xFFFF) != on) return 0;
            owed >>= 16;
        }
        return owed == 0;
    #undef PULSAR_OFFLOAD_FROM
    #undef PULSAR_OFFLOAD_IS
    #else
        return -1;
    #endif
    }
    static inline int pulsar_offload_same(const unsigned char* a, const unsigned char* b, long long n) {
        uint64_t a8, b8, a8_last, b8_last;
        uint32_t a4, b4, a4_last, b4_last;
        if (n > 16) return memcmp(a, b, n) == 0;
        if (n >= 8) {
            memcpy(&a8, a, 8); memcpy(&b8, b, 8);
            memcpy(&a8_last, a + n - 8, 8); memcpy(&b8_last, b + n - 8, 8);
            return ((a8 ^ b8) | (a8_last ^ b8_last)) == 0;
        }
        if (n >= 4) {
            memcpy(&a4, a, 4); memcpy(&b4, b, 4);
            memcpy(&a4_last, a + n - 4, 4); memcpy(&b4_last, b + n - 4, 4);
            return ((a4 ^ b4) | (a4_last ^ b4_last)) == 0;
        }
        while (n > 0) { n--; if (a[n] != b[n]) return 0; }
        return 1;
    }
    static inline void pulsar_offload_copy(unsigned char* to, const unsigned char* from, long long n) {
        uint64_t first8, last8;
        uint32_t first4, last4;
        if (n > 16) { memcpy(to, from, n); return; }
        if (n >= 8) {
            memcpy(&first8, from, 8); memcpy(&last8, from + n - 8, 8);
            memcpy(to, &first8, 8); memcpy(to + n - 8, &last8, 8);
            return;
        }
        if (n >= 4) {
            memcpy(&first4, from, 4); memcpy(&last4, from + n - 4, 4);
            memcpy(to, &first4, 4); memcpy(to + n - 4, &last4, 4);
            return;
        }
        while (n > 0) { n--; to[n] = from[n]; }
    }
    static inline int pulsar_offload_copy_blocks(
            unsigned char* to, long long room, const unsigned char* from, long long readable,
            long long n, unsigned int* high) {
    #if defined(__SSE2__)
        if (n <= 32 && room >= 32 && readable >= 32) {
            __m128i first = _mm_loadu_si128((const __m128i*)from);
            __m128i second = _mm_loadu_si128((const __m128i*)(from + 16));
            _mm_storeu_si128((__m128i*)to, first);
            _mm_storeu_si128((__m128i*)(to + 16), second);
            uint64_t bits = (uint64_t)_mm_movemask_epi8(second) << 16 | _mm_movemask_epi8(first);
            *high = (unsigned int)(bits & ((UINT64_C(1) << n) - 1));
            return 1;
        }
    #endif
        return 0;
    }
    static inline void pulsar_offload_copy_near(
            unsigned char* to, const unsigned char* from, long long n, long long room) {
    #if defined(__SSE2__)
        if (n <= 16 && room >= 16) {
            _mm_storeu_si128((__m128i*)to, _mm_loadu_si128((const __m128i*)from));
            return;
        }
    #endif
        pulsar_offload_copy(to, from, n);
    }
    """
    # Whether all of n bytes are below 128.
    int is_ascii "pulsar_offload_ascii"(const unsigned char* at, long long n) noexcept nogil
    # The same, if `room` >= n bytes may be read.
    int is_ascii_near "pulsar_offload_ascii_near"(
        const unsigned char* at, long long n, long long room) noexcept nogil
    # Whether n bytes are UTF-8; -1 if this cannot tell, because a block needs more bytes than the
    # `room` bytes that may be read.
    int is_utf8 "pulsar_offload_utf8"(const unsigned char* at, long long n, long long room) noexcept nogil
    # Eight bytes as a little-endian number.
    unsigned long long word "pulsar_offload_word"(const unsigned char* at) noexcept nogil
    # Read a varint of up to eight bytes; return the position after it, or -1. Bytes up to `limit` may
    # be read; the varint must end before `stop`.
    long long take_varint "pulsar_offload_varint"(
        const unsigned char* at, long long i, long long stop, long long limit,
        unsigned long long* number) noexcept nogil
    # Four bytes as a little-endian number.
    unsigned int half_word "pulsar_offload_half_word"(const unsigned char* at) noexcept nogil
    # The number of the lowest bit that is set; `bits` must not be 0.
    int lowest "pulsar_offload_lowest"(unsigned long long bits) noexcept nogil
    # The position of the first quote, backslash or control character from i; stop without one.
    long long plain "pulsar_offload_plain"(
        const unsigned char* at, long long i, long long stop) noexcept nogil
    # Whether n bytes are equal.
    int same "pulsar_offload_same"(
        const unsigned char* a, const unsigned char* b, long long n) noexcept nogil
    # Copy n bytes; the ranges must not overlap.
    void copy "pulsar_offload_copy"(
        unsigned char* to, const unsigned char* at, long long n) noexcept nogil
    # Copy n <= 32 bytes as blocks, if `room` bytes may be written and `readable` bytes read. Return
    # whether the bytes were copied; then `high` is 0 if all of them are below 128.
    int copy_blocks "pulsar_offload_copy_blocks"(
        unsigned char* to, long long room, const unsigned char* at, long long readable,
        long long n, unsigned int* high) noexcept nogil
    # Copy n bytes, if `room` >= n bytes may be read and written.
    void copy_near "pulsar_offload_copy_near"(
        unsigned char* to, const unsigned char* at, long long n, long long room) noexcept nogil
