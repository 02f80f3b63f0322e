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

# The steps of `Shredder`: read one field of each message of a group, in C, so that each kind of field has
# its own loop without unpredictable branches. Each message has four numbers: its current position, its
# end, its row, and the number of members of its oneof.
#
# Sixteen bytes after the end of each message must be readable. The position never passes the end: the
# size of a field is compared with the remaining bytes before the position advances.
cdef extern from *:
    """
    #if defined(__GNUC__)
    #define PULSAR_OFFLOAD_INLINE static inline __attribute__((always_inline))
    #define PULSAR_OFFLOAD_SELDOM(what) __builtin_expect(what, 0)
    #else
    #define PULSAR_OFFLOAD_INLINE static inline
    #define PULSAR_OFFLOAD_SELDOM(what) (what)
    #endif
    /* More than any message has. */
    #define PULSAR_OFFLOAD_TOO_MANY (1LL << 40)
    /* A number of up to ten bytes, and how many it has; 0: it has more. */
    static int pulsar_offload_step_number(const unsigned char* at, uint64_t* number) {
        int count = 0;
        *number = 0;
        for (; count < 10; count++) {
            *number |= (uint64_t)(at[count] & 0x7F) << 7 * count;
            if (at[count] < 0x80) return count + 1;
        }
        return 0;
    }
    /* Advance a message past the field of a step; return 0 if it is damaged. Sets `here` to whether the
       field exists, and `value` to the number, or to the size of the bytes that end at the new position.
       If the field is missing, arbitrary bytes are read: branches depend on them only in rare cases. */
    PULSAR_OFFLOAD_INLINE int pulsar_offload_step(
            const unsigned char* p, long long* message, long long tag, long long mask, int kind,
            long long size, long long* here, uint64_t* value) {
        const unsigned char* at = p + message[0];
        long long bytes = kind == 1 ? 8 : 4;
        *here = size == 1
            ? at[0] == (unsigned char)tag
            : (pulsar_offload_protobuf_block(at) & (uint64_t)mask) == (uint64_t)tag;
        at += size;
        if (kind == 2) {
            *value = at[0];
            bytes = 1 + at[0];
        } else {
            *value = pulsar_offload_protobuf_block(at);
        }
        if (kind == 5) *value &= UINT64_C(0xFFFFFFFF);
        if (kind == 0) {
            uint64_t ends = ~*value & UINT64_C(0x8080808080808080);
            if (PULSAR_OFFLOAD_SELDOM(ends == 0)) {
                bytes = pulsar_offload_step_number(at, value);
                if (bytes == 0) bytes = PULSAR_OFFLOAD_TOO_MANY;
            } else {
                *value = pulsar_offload_protobuf_join(*value, ends);
                bytes = (pulsar_offload_lowest(ends) >> 3) + 1;
            }
        }
        bytes = (size + bytes) & -*here;
        if (kind == 2 && PULSAR_OFFLOAD_SELDOM(bytes > size + 0x80)) {
            bytes = pulsar_offload_step_number(at, value);
            if (bytes == 0 || bytes > 5) bytes = PULSAR_OFFLOAD_TOO_MANY;
            bytes += size + (long long)(*value & UINT64_C(0x7FFFFFFFF));
        }
        if (PULSAR_OFFLOAD_SELDOM(message[0] + bytes > message[1])) {
            /* Bytes after the end of a message may look like its field. */
            *here = 0;
            return message[0] >= message[1];
        }
        message[0] += bytes;
        return 1;
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_over(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, long long size) {
        const long long tag = step[1], mask = step[2];
        long long found = 0, here = 0;
        uint64_t value = 0;
        for (; count > 0; count--, group += 4) {
            if (!pulsar_offload_step(p, group, tag, mask, kind, size, &here, &value)) return -1;
            found += here;
        }
        return found;
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_delimited(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long size, unsigned char* valid, int blank, long long* below) {
        const long long tag = step[1], mask = step[2];
        long long found = 0, here = 0;
        uint64_t value = 0;
        for (; count > 0; count--, group += 4) {
            if (!pulsar_offload_step(p, group, tag, mask, 2, size, &here, &value)) return -1;
            below[4 * found] = group[0] - (long long)value;
            below[4 * found + 1] = group[0];
            below[4 * found + 2] = group[2];
            if (valid) valid[group[2]] = (unsigned char)(here | blank);
            found += here;
        }
        return found;
    }
    /* For each message: the lower half of the number, whether it exists, and the row. */
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_numbers(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long size, long long* below) {
        const long long tag = step[1], mask = step[2];
        long long found = 0, here = 0;
        uint64_t value = 0;
        for (; count > 0; count--, group += 4, below += 4) {
            if (!pulsar_offload_step(p, group, tag, mask, 0, size, &here, &value)) return -1;
            below[0] = (int)value;
            below[1] = here;
            below[2] = group[2];
            found += here;
        }
        return found;
    }
    /* The `how` of each op is its opcode, counted from the first opcode of numbers. */
    PULSAR_OFFLOAD_INLINE void pulsar_offload_step_store(
            void* to, long long k, int how, uint64_t value) {
        if (how == 0) ((int*)to)[k] = (int)value;
        else if (how == 1) ((long long*)to)[k] = (long long)value;
        else if (how == 2) ((int*)to)[k] = (int)((uint32_t)value >> 1 ^ -((uint32_t)value & 1));
        else if (how == 3) ((long long*)to)[k] = (long long)(value >> 1 ^ -(value & 1));
        else if (how == 4) ((unsigned char*)to)[k] = value != 0;
        else if (how == 5) ((long long*)to)[k] = (long long)(value & UINT64_C(0xFFFFFFFF));
        else { ((long long*)to)[2 * k] = (long long)value; ((long long*)to)[2 * k + 1] = 0; }
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_put(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, long long size, int how, unsigned char* valid, int blank, void* to) {
        const long long tag = step[1], mask = step[2];
        long long found = 0, here = 0;
        uint64_t value = 0;
        for (; count > 0; count--, group += 4) {
            if (!pulsar_offload_step(p, group, tag, mask, kind, size, &here, &value)) return -1;
            valid[group[2]] = (unsigned char)(here | blank);
            pulsar_offload_step_store(to, group[2], how, value & -(uint64_t)here);
            found += here;
        }
        return found;
    }
    /* Separate loops for constant sizes, which the compiler optimizes better. */
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_over_of(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long size) {
        const int kind = (int)(step[1] & 7);
        if (kind == 0) return pulsar_offload_step_over(p, group, count, step, 0, size);
        if (kind == 2) return pulsar_offload_step_over(p, group, count, step, 2, size);
        return pulsar_offload_step_over(p, group, count, step, kind, size);
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_put_of(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long size, int how, unsigned char* valid, int blank, void* to) {
    #define PULSAR_OFFLOAD_PUT(kind, how) \\
        return pulsar_offload_step_put(p, group, count, step, kind, size, how, valid, blank, to);
        const int kind = (int)(step[1] & 7);
        if (kind == 1 && how == 1) PULSAR_OFFLOAD_PUT(1, 1)
        if (kind == 5 && how == 0) PULSAR_OFFLOAD_PUT(5, 0)
        if (kind != 0) PULSAR_OFFLOAD_PUT(kind, how)
        if (how == 0) PULSAR_OFFLOAD_PUT(0, 0)
        if (how == 1) PULSAR_OFFLOAD_PUT(0, 1)
        if (how == 2) PULSAR_OFFLOAD_PUT(0, 2)
        if (how == 4) PULSAR_OFFLOAD_PUT(0, 4)
        PULSAR_OFFLOAD_PUT(0, how)
    #undef PULSAR_OFFLOAD_PUT
    }
    static long long pulsar_offload_step_over_any(
            const unsigned char* p, long long* group, long long count, const long long* step) {
        if (step[3] == 1) return pulsar_offload_step_over_of(p, group, count, step, 1);
        return pulsar_offload_step_over_of(p, group, count, step, step[3]);
    }
    static long long pulsar_offload_step_delimited_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            unsigned char* valid, int blank, long long* below) {
        if (step[3] == 1)
            return pulsar_offload_step_delimited(p, group, count, step, 1, valid, blank, below);
        return pulsar_offload_step_delimited(p, group, count, step, step[3], valid, blank, below);
    }
    static long long pulsar_offload_step_numbers_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* below) {
        if (step[3] == 1) return pulsar_offload_step_numbers(p, group, count, step, 1, below);
        return pulsar_offload_step_numbers(p, group, count, step, step[3], below);
    }
    static long long pulsar_offload_step_put_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int how, unsigned char* valid, int blank, void* to) {
        if (step[3] == 1)
            return pulsar_offload_step_put_of(p, group, count, step, 1, how, valid, blank, to);
        return pulsar_offload_step_put_of(p, group, count, step, step[3], how, valid, blank, to);
    }
    """
    # Skip a field; return how many messages had it, or -1 if one is damaged.
    long long skip_fields "pulsar_offload_step_over_any"(
        const unsigned char* p, long long* group, long long count,
        const long long* step) noexcept nogil
    # Record start, end and row of a field's bytes for each message that has it; return their number.
    long long take_delimited "pulsar_offload_step_delimited_any"(
        const unsigned char* p, long long* group, long long count, const long long* step,
        unsigned char* valid, int blank, long long* below) noexcept nogil
    # Record the lower half of a number, whether it exists, and the row, for each message; return how many
    # exist.
    long long take_numbers_of_all "pulsar_offload_step_numbers_any"(
        const unsigned char* p, long long* group, long long count, const long long* step,
        long long* below) noexcept nogil
    # Put a number in the row of each message, as the op of its type does; 0 if it is missing.
    long long put_numbers "pulsar_offload_step_put_any"(
        const unsigned char* p, long long* group, long long count, const long long* step,
        int how, unsigned char* valid, int blank, void* to) noexcept nogil
