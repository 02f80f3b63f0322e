# Reading of protobuf numbers in blocks of eight readable bytes. Python, and the callers for numbers that
# are not handled here, read byte by byte.
from arrow_io.core._bits cimport lowest  # pulsar_offload_lowest in the C below


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    static inline uint64_t pulsar_offload_protobuf_block(const unsigned char* from) {
        uint64_t word;
        memcpy(&word, from, 8);
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
    #endif
        return word;
    }
    /* Seven bits of each byte become fourteen of each two. */
    static inline uint64_t pulsar_offload_protobuf_pairs(uint64_t word) {
        return (word & UINT64_C(0x007F007F007F007F)) | (word >> 1 & UINT64_C(0x3F803F803F803F80));
    }
    static inline int pulsar_offload_protobuf_over(const unsigned char* from) {
        uint64_t ends = ~pulsar_offload_protobuf_block(from) & UINT64_C(0x8080808080808080);
        return ends == 0 ? 0 : (pulsar_offload_lowest(ends) >> 3) + 1;
    }
    /* The number in the bytes of a word before the first that has one of the `ends` set, and this byte. */
    static inline uint64_t pulsar_offload_protobuf_join(uint64_t word, uint64_t ends) {
        word = pulsar_offload_protobuf_pairs(word & (ends ^ (ends - 1)));
        word = (word & UINT64_C(0x00003FFF00003FFF)) | (word >> 2 & UINT64_C(0x0FFFC0000FFFC000));
        return (word & UINT64_C(0x000000000FFFFFFF)) | (word >> 4 & UINT64_C(0x00FFFFFFF0000000));
    }
    static inline int pulsar_offload_protobuf_number(const unsigned char* from, long long* number) {
        uint64_t word = pulsar_offload_protobuf_block(from);
        uint64_t ends = ~word & UINT64_C(0x8080808080808080);
        if (ends == 0) return 0;
        *number = (long long)pulsar_offload_protobuf_join(word, ends);
        return (pulsar_offload_lowest(ends) >> 3) + 1;
    }
    static inline int pulsar_offload_protobuf_eight(const unsigned char* from, int* to) {
    #if defined(__SSE2__)
        const __m128i zero = _mm_setzero_si128();
        __m128i pairs = _mm_loadu_si128((const __m128i*)from);
        if (_mm_movemask_epi8(pairs) == 0x5555) {
            pairs = _mm_or_si128(
                _mm_and_si128(pairs, _mm_set1_epi16(0x007F)),
                _mm_and_si128(_mm_srli_epi16(pairs, 1), _mm_set1_epi16(0x3F80)));
            _mm_storeu_si128((__m128i*)to, _mm_unpacklo_epi16(pairs, zero));
            _mm_storeu_si128((__m128i*)(to + 4), _mm_unpackhi_epi16(pairs, zero));
            return 1;
        }
    #endif
        return 0;
    }
    static inline int pulsar_offload_protobuf_numbers(
            const unsigned char* from, long long n, int* to) {
    #if defined(__SSE2__)
        const __m128i zero = _mm_setzero_si128();
        uint64_t word = pulsar_offload_protobuf_block(from);
        uint64_t keep = n < 8 ? (UINT64_C(1) << 8 * n) - 1 : ~UINT64_C(0);
        uint64_t high = word & keep & UINT64_C(0x8080808080808080);
        if (high == (keep & UINT64_C(0x0080008000800080)) && (n & 1) == 0) {
            __m128i pairs = _mm_cvtsi64_si128((long long)pulsar_offload_protobuf_pairs(word));
            _mm_storeu_si128((__m128i*)to, _mm_unpacklo_epi16(pairs, zero));
            return (int)(n >> 1);
        }
        if (high == 0) {
            __m128i pairs = _mm_unpacklo_epi8(_mm_cvtsi64_si128((long long)word), zero);
            _mm_storeu_si128((__m128i*)to, _mm_unpacklo_epi16(pairs, zero));
            _mm_storeu_si128((__m128i*)(to + 4), _mm_unpackhi_epi16(pairs, zero));
            return (int)n;
        }
    #endif
        return 0;
    }
    """
    # Read a number; return its size in bytes, or 0 if that is more than eight.
    int take_number "pulsar_offload_protobuf_number"(
        const unsigned char* at, long long* number) noexcept nogil
    # Skip a number in the same way.
    int skip_number "pulsar_offload_protobuf_over"(const unsigned char* at) noexcept nogil
    # Read eight numbers of two bytes each; return false if they have other sizes.
    bint take_eight "pulsar_offload_protobuf_eight"(
        const unsigned char* at, int* to) noexcept nogil
    # Read numbers from n bytes, 1 to 8; return how many, or 0 unless all have one byte or all have two.
    # The target must have room for eight.
    int take_numbers "pulsar_offload_protobuf_numbers"(
        const unsigned char* at, long long n, int* to) noexcept nogil
