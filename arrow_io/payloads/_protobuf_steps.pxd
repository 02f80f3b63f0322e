# The steps of `Shredder`: read one field of each message of a group, in C, so that each kind of field has
# its own loop without unpredictable branches. A group (`tables.GROUP`) has four arrays: the current
# position, the end and the row of each message, and the number of members of its oneof.
#
# Sixteen bytes after the end of each message must be readable. The position never passes the end: the
# size of a field is compared with the remaining bytes before the position advances.
#
# Lanes read the field in eight messages at once, on processors with AVX-512. The plain loops read the
# messages after the last eight, and all messages on other processors.
from arrow_io.payloads._protobuf_blocks cimport take_number  # pulsar_offload_protobuf_join in the C below


cdef extern from *:
    """
    #if defined(__GNUC__)
    #define PULSAR_OFFLOAD_INLINE static inline __attribute__((always_inline))
    #define PULSAR_OFFLOAD_SELDOM(what) __builtin_expect(what, 0)
    #else
    #define PULSAR_OFFLOAD_INLINE static inline
    #define PULSAR_OFFLOAD_SELDOM(what) (what)
    #endif
    /* `tables.GROUP`, and the ends and rows of a group. */
    #define PULSAR_OFFLOAD_GROUP 256
    #define PULSAR_OFFLOAD_STOPS(group) ((group) + PULSAR_OFFLOAD_GROUP)
    #define PULSAR_OFFLOAD_ROWS(group) ((group) + 2 * PULSAR_OFFLOAD_GROUP)
    /* More than any message has. */
    #define PULSAR_OFFLOAD_TOO_MANY (1LL << 40)

    static int pulsar_offload_has_lanes;

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
        const long long stop = *PULSAR_OFFLOAD_STOPS(message);
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
        if (PULSAR_OFFLOAD_SELDOM(message[0] + bytes > stop)) {
            /* Bytes after the end of a message may look like its field. */
            *here = 0;
            return message[0] >= stop;
        }
        message[0] += bytes;
        return 1;
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

    /* The furthest end of a payload; -1 if one is missing. */
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_furthest(
            const long long* positions, long long count) {
        long long stop = 0, missing = 0;
        for (long long n = 0; n < count; n++) {
            const long long end = (positions[n] >> 32) + (positions[n] & 0xFFFFFFFF);
            missing |= positions[n] == -1;
            stop = stop > end ? stop : end;
        }
        return missing ? -1 : stop;
    }
    /* Start a group of payloads in the rows from `row` on. */
    PULSAR_OFFLOAD_INLINE void pulsar_offload_step_start(
            const long long* positions, long long count, long long row, long long* group) {
        for (long long n = 0; n < count; n++) {
            const long long start = positions[n] >> 32;
            group[n] = start;
            PULSAR_OFFLOAD_STOPS(group)[n] = start + (positions[n] & 0xFFFFFFFF);
            PULSAR_OFFLOAD_ROWS(group)[n] = row + n;
        }
    }
    static long long pulsar_offload_step_bytes(
            const unsigned char* p, long long size, const long long* group, long long n,
            long long count, uint32_t high, unsigned char* to, long long room, long long* used,
            int* ends) {
        long long at = *used;
        unsigned int found = 0;
        for (; n < count; n++) {
            const long long start = group[n], length = PULSAR_OFFLOAD_STOPS(group)[n] - start;
            if (!pulsar_offload_copy_blocks(
                    to + at, room - at, p + start, size - start, length, &found)
                    || (found & high) != 0)
                break;
            at += length;
            ends[PULSAR_OFFLOAD_ROWS(group)[n]] = (int)at;
        }
        *used = at;
        return n;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define PULSAR_OFFLOAD_LANES __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
    #define PULSAR_OFFLOAD_LANES_INLINE PULSAR_OFFLOAD_INLINE PULSAR_OFFLOAD_LANES
    static int pulsar_offload_find_lanes(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    }
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_furthest(
            const long long* positions, long long count) {
        return pulsar_offload_step_furthest(positions, count);
    }
    static PULSAR_OFFLOAD_LANES void pulsar_offload_lanes_start(
            const long long* positions, long long count, long long row, long long* group) {
        pulsar_offload_step_start(positions, count, row, group);
    }
    /* `pulsar_offload_protobuf_join`, and the number of bytes. */
    PULSAR_OFFLOAD_LANES_INLINE __m512i pulsar_offload_lanes_join(
            __m512i words, __m512i ends, __m512i* bytes) {
        const __m512i before = _mm512_xor_si512(ends, _mm512_add_epi64(ends, _mm512_set1_epi64(-1)));
        *bytes = _mm512_sad_epu8(
            _mm512_and_si512(before, _mm512_set1_epi8(1)), _mm512_setzero_si512());
        words = _mm512_and_si512(_mm512_and_si512(words, before), _mm512_set1_epi8(0x7F));
        /* By pairs of bytes, then of pairs: the first plus the second times 1 << 7, or 1 << 14. */
        words = _mm512_maddubs_epi16(_mm512_set1_epi16((short)0x8001), words);
        words = _mm512_madd_epi16(words, _mm512_set1_epi32(0x40000001));
        return _mm512_or_si512(
            _mm512_and_si512(words, _mm512_set1_epi64(0x0FFFFFFF)),
            _mm512_and_si512(
                _mm512_srli_epi64(words, 4), _mm512_set1_epi64(0x00FFFFFFF0000000)));
    }
    /* `pulsar_offload_step` for the eight messages from `group` on. */
    PULSAR_OFFLOAD_LANES_INLINE int pulsar_offload_lanes_step(
            const unsigned char* p, long long* group, const long long* step, int kind,
            __mmask8* here, __m512i* value) {
        const long long size = step[3];
        const __m512i at = _mm512_loadu_si512(group);
        const __m512i stop = _mm512_loadu_si512(PULSAR_OFFLOAD_STOPS(group));
        const __m512i words = _mm512_i64gather_epi64(at, p, 1);
        const __m512i tags = _mm512_and_si512(words, _mm512_set1_epi64(step[2]));
        const __mmask8 found = _mm512_cmpeq_epi64_mask(tags, _mm512_set1_epi64(step[1]))
            & _mm512_cmplt_epi64_mask(at, stop);
        __m512i highs = _mm512_set1_epi8((char)0x80), bytes, after;
        __mmask8 rare = 0, lane;
        if (kind == 2) {
            *value = _mm512_and_si512(
                _mm512_srl_epi64(words, _mm_cvtsi64_si128(8 * size)), _mm512_set1_epi64(0xFF));
            bytes = _mm512_add_epi64(*value, _mm512_set1_epi64(size + 1));
            rare = _mm512_mask_cmpge_epi64_mask(found, *value, _mm512_set1_epi64(0x80));
        } else if (kind == 0 && size <= 2) {
            /* The numbers are in the same words, unless they are large. */
            *value = _mm512_srl_epi64(words, _mm_cvtsi64_si128(8 * size));
            highs = _mm512_srl_epi64(highs, _mm_cvtsi64_si128(8 * size));
        } else {
            *value = _mm512_i64gather_epi64(_mm512_add_epi64(at, _mm512_set1_epi64(size)), p, 1);
            bytes = _mm512_set1_epi64(size + (kind == 1 ? 8 : 4));
        }
        if (kind == 5) *value = _mm512_and_si512(*value, _mm512_set1_epi64(0xFFFFFFFF));
        if (kind == 0) {
            const __m512i ends = _mm512_andnot_si512(*value, highs);
            rare = _mm512_mask_testn_epi64_mask(found, ends, ends);
            *value = pulsar_offload_lanes_join(*value, ends, &bytes);
            bytes = _mm512_add_epi64(bytes, _mm512_set1_epi64(size));
        }
        after = _mm512_mask_add_epi64(at, found & ~rare, at, bytes);
        if (_mm512_cmpgt_epi64_mask(after, stop) != 0) return 0;
        _mm512_storeu_si512(group, after);
        *here = found;
        if (PULSAR_OFFLOAD_SELDOM(rare != 0)) {
            uint64_t values[8];
            long long lane_here = 0;
            _mm512_storeu_si512(values, *value);
            for (lane = 0; lane < 8; lane++) {
                if ((rare >> lane & 1) == 0) continue;
                if (!pulsar_offload_step(
                        p, group + lane, step[1], step[2], kind, size, &lane_here, values + lane))
                    return 0;
            }
            *value = _mm512_loadu_si512(values);
        }
        return 1;
    }
    /* Whether the rows of eight messages follow each other. */
    PULSAR_OFFLOAD_INLINE int pulsar_offload_lanes_dense(const long long* rows) {
        return rows[7] - rows[0] == 7;
    }
    PULSAR_OFFLOAD_LANES_INLINE void pulsar_offload_lanes_mark(
            unsigned char* valid, const long long* rows, __mmask8 here, int blank) {
        if (pulsar_offload_lanes_dense(rows)) {
            __m128i flags = _mm_maskz_set1_epi8(here | (blank ? 0xFF : 0), 1);
            _mm_storel_epi64((__m128i*)(valid + rows[0]), flags);
        } else {
            for (int n = 0; n < 8; n++) valid[rows[n]] = (unsigned char)((here >> n & 1) | blank);
        }
    }
    PULSAR_OFFLOAD_LANES_INLINE void pulsar_offload_lanes_store(
            void* to, const long long* rows, int how, __m512i values) {
        const __m512i one = _mm512_set1_epi64(1), low = _mm512_set1_epi64(0xFFFFFFFF);
        const long long k = rows[0];
        uint64_t each[8];
        if (how != 6 && pulsar_offload_lanes_dense(rows)) {
            if (how == 2 || how == 5) values = _mm512_and_si512(values, low);
            if (how == 2 || how == 3)
                values = _mm512_xor_si512(
                    _mm512_srli_epi64(values, 1),
                    _mm512_sub_epi64(_mm512_setzero_si512(), _mm512_and_si512(values, one)));
            if (how == 0 || how == 2)
                _mm256_storeu_si256((__m256i*)((int*)to + k), _mm512_cvtepi64_epi32(values));
            else if (how == 4)
                _mm_storel_epi64(
                    (__m128i*)((unsigned char*)to + k),
                    _mm_maskz_set1_epi8(_mm512_test_epi64_mask(values, values), 1));
            else
                _mm512_storeu_si512((long long*)to + k, values);
            return;
        }
        _mm512_storeu_si512(each, values);
        for (int n = 0; n < 8; n++) pulsar_offload_step_store(to, rows[n], how, each[n]);
    }
    /* Each of these reads as many messages as it can, and returns their number, or -1. */
    PULSAR_OFFLOAD_LANES_INLINE long long pulsar_offload_lanes_over(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            if (!pulsar_offload_lanes_step(p, group + n, step, kind, &here, &value)) return -1;
            *found += __builtin_popcount(here);
        }
        return n;
    }
    PULSAR_OFFLOAD_LANES_INLINE long long pulsar_offload_lanes_put(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, int how, unsigned char* valid, int blank, void* to, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            if (!pulsar_offload_lanes_step(p, group + n, step, kind, &here, &value)) return -1;
            pulsar_offload_lanes_mark(valid, rows, here, blank);
            pulsar_offload_lanes_store(to, rows, how, _mm512_maskz_mov_epi64(here, value));
            *found += __builtin_popcount(here);
        }
        return n;
    }
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_over_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* found) {
        const int kind = (int)(step[1] & 7);
        if (kind == 0) return pulsar_offload_lanes_over(p, group, count, step, 0, found);
        if (kind == 2) return pulsar_offload_lanes_over(p, group, count, step, 2, found);
        return pulsar_offload_lanes_over(p, group, count, step, kind, found);
    }
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_put_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int how, unsigned char* valid, int blank, void* to, long long* found) {
    #define PULSAR_OFFLOAD_PUT(kind, how) \\
        return pulsar_offload_lanes_put(p, group, count, step, kind, how, valid, blank, to, found);
        const int kind = (int)(step[1] & 7);
        if (kind == 1 && how == 1) PULSAR_OFFLOAD_PUT(1, 1)
        if (kind != 0) PULSAR_OFFLOAD_PUT(kind, how)
        if (how == 0) PULSAR_OFFLOAD_PUT(0, 0)
        if (how == 1) PULSAR_OFFLOAD_PUT(0, 1)
        if (how == 4) PULSAR_OFFLOAD_PUT(0, 4)
        PULSAR_OFFLOAD_PUT(0, how)
    #undef PULSAR_OFFLOAD_PUT
    }
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_delimited(
            const unsigned char* p, long long* group, long long count, const long long* step,
            unsigned char* valid, int blank, long long* below, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            if (!pulsar_offload_lanes_step(p, group + n, step, 2, &here, &value)) return -1;
            const int hits = __builtin_popcount(here);
            const __mmask8 first = (__mmask8)((1u << hits) - 1);
            const __m512i stop = _mm512_loadu_si512(group + n);
            const __m512i start = _mm512_sub_epi64(stop, value);
            long long* to = below + *found;
            _mm512_mask_storeu_epi64(to, first, _mm512_maskz_compress_epi64(here, start));
            _mm512_mask_storeu_epi64(
                PULSAR_OFFLOAD_STOPS(to), first, _mm512_maskz_compress_epi64(here, stop));
            _mm512_mask_storeu_epi64(
                PULSAR_OFFLOAD_ROWS(to), first,
                _mm512_maskz_compress_epi64(here, _mm512_loadu_si512(rows)));
            if (valid) pulsar_offload_lanes_mark(valid, rows, here, blank);
            *found += hits;
        }
        return n;
    }
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_numbers(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* below, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            if (!pulsar_offload_lanes_step(p, group + n, step, 0, &here, &value)) return -1;
            value = _mm512_maskz_mov_epi64(here, value);
            _mm512_storeu_si512(below + n, _mm512_cvtepi32_epi64(_mm512_cvtepi64_epi32(value)));
            _mm512_storeu_si512(
                PULSAR_OFFLOAD_STOPS(below + n), _mm512_maskz_set1_epi64(here, 1));
            *found += __builtin_popcount(here);
        }
        return n;
    }
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_bytes(
            const unsigned char* p, long long size, const long long* group, long long n,
            long long count, uint32_t high, unsigned char* to, long long room, long long* used,
            int* ends) {
        long long at = *used;
        for (; n < count; n++) {
            const long long start = group[n], length = PULSAR_OFFLOAD_STOPS(group)[n] - start;
            __m256i block;
            if (PULSAR_OFFLOAD_SELDOM((length > 32) | (room - at < 32) | (size - start < 32))) break;
            block = _mm256_loadu_si256((const __m256i*)(p + start));
            _mm256_storeu_si256((__m256i*)(to + at), block);
            if (PULSAR_OFFLOAD_SELDOM(
                    _mm256_movepi8_mask(block) & (uint32_t)((1ULL << length) - 1) & high))
                break;
            at += length;
            ends[PULSAR_OFFLOAD_ROWS(group)[n]] = (int)at;
        }
        *used = at;
        return n;
    }
    /* The items of lists in eight messages at once: first how many each has, then where each item is. */
    #define PULSAR_OFFLOAD_ROUNDS 8
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_items(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long* below, long long* found, long long* items,
            long long room, int* list_ends) {
        const __m512i tag = _mm512_set1_epi64(step[1]), mask = _mm512_set1_epi64(step[2]);
        const __m512i head = _mm512_set1_epi64(step[3] + 1), one = _mm512_set1_epi64(1);
        const __m128i shift = _mm_cvtsi64_si128(8 * step[3]);
        const __m512i numbers = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
        for (; n + 8 <= count; n += 8) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            const __m512i stop = _mm512_loadu_si512(PULSAR_OFFLOAD_STOPS(group + n));
            __m512i at = _mm512_loadu_si512(group + n), counts = _mm512_setzero_si512(), place;
            __m512i starts[PULSAR_OFFLOAD_ROUNDS], stops[PULSAR_OFFLOAD_ROUNDS];
            __mmask8 here[PULSAR_OFFLOAD_ROUNDS];
            long long each[8], total = 0;
            int rounds = 0;
            for (;; rounds++) {
                const __m512i words = _mm512_i64gather_epi64(at, p, 1);
                const __mmask8 has = _mm512_cmpeq_epi64_mask(_mm512_and_si512(words, mask), tag)
                    & _mm512_cmplt_epi64_mask(at, stop);
                const __m512i length = _mm512_and_si512(
                    _mm512_srl_epi64(words, shift), _mm512_set1_epi64(0xFF));
                const __m512i start = _mm512_add_epi64(at, head);
                const __m512i after = _mm512_add_epi64(start, length);
                if (has == 0) break;
                if (rounds == PULSAR_OFFLOAD_ROUNDS
                        || _mm512_mask_cmpge_epi64_mask(has, length, _mm512_set1_epi64(0x80)) != 0
                        || _mm512_mask_cmpgt_epi64_mask(has, after, stop) != 0)
                    return n;
                starts[rounds] = start;
                stops[rounds] = after;
                here[rounds] = has;
                counts = _mm512_mask_add_epi64(counts, has, counts, one);
                at = _mm512_mask_mov_epi64(at, has, after);
            }
            _mm512_storeu_si512(each, counts);
            for (int lane = 0; lane < 8; lane++) {
                const long long lane_count = each[lane];
                each[lane] = total;
                total += lane_count;
            }
            if (total > PULSAR_OFFLOAD_GROUP - *found || total > room - *items) return n;
            place = _mm512_loadu_si512(each);
            _mm512_storeu_si512(
                each, _mm512_add_epi64(_mm512_add_epi64(place, counts), _mm512_set1_epi64(*items)));
            if (pulsar_offload_lanes_dense(rows))
                _mm256_storeu_si256(
                    (__m256i*)(list_ends + rows[0]),
                    _mm512_cvtepi64_epi32(_mm512_loadu_si512(each)));
            else
                for (int lane = 0; lane < 8; lane++) list_ends[rows[lane]] = (int)each[lane];
            place = _mm512_add_epi64(place, _mm512_set1_epi64(*found));
            for (int k = 0; k < rounds; k++) {
                _mm512_mask_i64scatter_epi64(below, here[k], place, starts[k], 8);
                _mm512_mask_i64scatter_epi64(
                    PULSAR_OFFLOAD_STOPS(below), here[k], place, stops[k], 8);
                place = _mm512_add_epi64(place, one);
            }
            for (long long k = 0; k < total; k += 8)
                _mm512_mask_storeu_epi64(
                    PULSAR_OFFLOAD_ROWS(below) + *found + k,
                    total - k >= 8 ? 0xFF : (__mmask8)((1u << (total - k)) - 1),
                    _mm512_add_epi64(numbers, _mm512_set1_epi64(*items + k)));
            _mm512_storeu_si512(group + n, at);
            *found += total;
            *items += total;
        }
        return n;
    }
    /* `seconds` and `nanos` of timestamps in this order, in `units` per second; stop before eight of
       which one is unusual. */
    static PULSAR_OFFLOAD_LANES long long pulsar_offload_lanes_instants(
            const unsigned char* p, const long long* group, long long n, long long count,
            long long units, long long* to) {
        const __m512i one = _mm512_set1_epi64(1), byte = _mm512_set1_epi64(0xFF);
        const __m512i ends = _mm512_set1_epi64(0x0080808080808080);
        for (; n + 8 <= count; n += 8) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            const __m512i stop = _mm512_loadu_si512(PULSAR_OFFLOAD_STOPS(group + n));
            __m512i at = _mm512_loadu_si512(group + n), words, seconds, nanos, bytes, last;
            __mmask8 usual, more;
            words = _mm512_i64gather_epi64(at, p, 1);
            usual = _mm512_cmpeq_epi64_mask(
                _mm512_and_si512(words, byte), _mm512_set1_epi64(0x08));
            words = _mm512_srli_epi64(words, 8);
            last = _mm512_andnot_si512(words, ends);
            usual &= _mm512_test_epi64_mask(last, last);
            seconds = pulsar_offload_lanes_join(words, last, &bytes);
            usual &= _mm512_cmplt_epu64_mask(seconds, _mm512_set1_epi64(1LL << 33));
            if (usual != 0xFF) return n;
            at = _mm512_add_epi64(_mm512_add_epi64(at, bytes), one);
            more = _mm512_cmplt_epi64_mask(at, stop);
            words = _mm512_i64gather_epi64(at, p, 1);
            usual = _mm512_cmpeq_epi64_mask(
                _mm512_and_si512(words, byte), _mm512_set1_epi64(0x10));
            words = _mm512_srli_epi64(words, 8);
            last = _mm512_andnot_si512(words, ends);
            usual &= _mm512_test_epi64_mask(last, last);
            nanos = _mm512_maskz_mov_epi64(more, pulsar_offload_lanes_join(words, last, &bytes));
            usual &= _mm512_cmplt_epu64_mask(nanos, _mm512_set1_epi64(1000000000));
            usual |= ~more;
            at = _mm512_mask_add_epi64(at, more, at, _mm512_add_epi64(bytes, one));
            usual &= _mm512_cmpeq_epi64_mask(at, stop);
            if (units != 1000000000) {
                const __m512i most = nanos;
                nanos = _mm512_cvtpd_epi64(
                    _mm512_mul_pd(_mm512_cvtepi64_pd(nanos), _mm512_set1_pd(1e-3)));
                usual &= _mm512_cmpeq_epi64_mask(
                    _mm512_mullo_epi64(nanos, _mm512_set1_epi64(1000)), most);
            }
            if (usual != 0xFF) return n;
            seconds = _mm512_mullo_epi64(seconds, _mm512_set1_epi64(units));
            pulsar_offload_lanes_store(to, rows, 1, _mm512_add_epi64(seconds, nanos));
        }
        return n;
    }
    #else
    static int pulsar_offload_find_lanes(void) { return 0; }
    #define pulsar_offload_lanes_furthest pulsar_offload_step_furthest
    #define pulsar_offload_lanes_start pulsar_offload_step_start
    #define pulsar_offload_lanes_over_any(p, group, count, step, found) 0
    #define pulsar_offload_lanes_put_any(p, group, count, step, how, valid, blank, to, found) 0
    #define pulsar_offload_lanes_delimited(p, group, count, step, valid, blank, below, found) 0
    #define pulsar_offload_lanes_numbers(p, group, count, step, below, found) 0
    #define pulsar_offload_lanes_bytes pulsar_offload_step_bytes
    #define pulsar_offload_lanes_items( \\
        p, group, n, count, step, below, found, items, room, list_ends) (n)
    #define pulsar_offload_lanes_instants(p, group, n, count, units, to) (n)
    #endif

    static int pulsar_offload_choose_lanes(int plain) {
        pulsar_offload_has_lanes = !plain && pulsar_offload_find_lanes();
        return pulsar_offload_has_lanes;
    }

    static long long pulsar_offload_step_furthest_any(const long long* positions, long long count) {
        return pulsar_offload_has_lanes
            ? pulsar_offload_lanes_furthest(positions, count)
            : pulsar_offload_step_furthest(positions, count);
    }
    static void pulsar_offload_step_start_any(
            const long long* positions, long long count, long long row, long long* group) {
        if (pulsar_offload_has_lanes) pulsar_offload_lanes_start(positions, count, row, group);
        else pulsar_offload_step_start(positions, count, row, group);
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_over(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, int kind, long long size, long long found) {
        long long here = 0;
        uint64_t value = 0;
        for (; n < count; n++) {
            if (!pulsar_offload_step(p, group + n, step[1], step[2], kind, size, &here, &value))
                return -1;
            found += here;
        }
        return found;
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_delimited(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long size, unsigned char* valid, int blank,
            long long* below, long long found) {
        const long long tag = step[1], mask = step[2];
        long long here = 0;
        uint64_t value = 0;
        for (; n < count; n++) {
            const long long row = PULSAR_OFFLOAD_ROWS(group)[n];
            if (!pulsar_offload_step(p, group + n, tag, mask, 2, size, &here, &value)) return -1;
            below[found] = group[n] - (long long)value;
            PULSAR_OFFLOAD_STOPS(below)[found] = group[n];
            PULSAR_OFFLOAD_ROWS(below)[found] = row;
            if (valid) valid[row] = (unsigned char)(here | blank);
            found += here;
        }
        return found;
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_numbers(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long size, long long* below, long long found) {
        const long long tag = step[1], mask = step[2];
        long long here = 0;
        uint64_t value = 0;
        for (; n < count; n++) {
            if (!pulsar_offload_step(p, group + n, tag, mask, 0, size, &here, &value)) return -1;
            below[n] = (int)value & -here;
            PULSAR_OFFLOAD_STOPS(below)[n] = here;
            found += here;
        }
        return found;
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_put(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, int kind, long long size, int how, unsigned char* valid,
            int blank, void* to, long long found) {
        const long long tag = step[1], mask = step[2];
        long long here = 0;
        uint64_t value = 0;
        for (; n < count; n++) {
            const long long row = PULSAR_OFFLOAD_ROWS(group)[n];
            if (!pulsar_offload_step(p, group + n, tag, mask, kind, size, &here, &value)) return -1;
            valid[row] = (unsigned char)(here | blank);
            pulsar_offload_step_store(to, row, how, value & -(uint64_t)here);
            found += here;
        }
        return found;
    }
    /* Separate loops for constant sizes, which the compiler optimizes better. */
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_over_of(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long size, long long found) {
        const int kind = (int)(step[1] & 7);
        if (kind == 0) return pulsar_offload_step_over(p, group, n, count, step, 0, size, found);
        if (kind == 2) return pulsar_offload_step_over(p, group, n, count, step, 2, size, found);
        return pulsar_offload_step_over(p, group, n, count, step, kind, size, found);
    }
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_put_of(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long size, int how, unsigned char* valid, int blank,
            void* to, long long found) {
    #define PULSAR_OFFLOAD_PUT(kind, how) \\
        return pulsar_offload_step_put( \\
            p, group, n, count, step, kind, size, how, valid, blank, to, found);
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
        long long n = 0, found = 0;
        if (pulsar_offload_has_lanes) n = pulsar_offload_lanes_over_any(p, group, count, step, &found);
        if (n < 0) return n;
        if (step[3] == 1) return pulsar_offload_step_over_of(p, group, n, count, step, 1, found);
        return pulsar_offload_step_over_of(p, group, n, count, step, step[3], found);
    }
    static long long pulsar_offload_step_delimited_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            unsigned char* valid, int blank, long long* below) {
        long long n = 0, found = 0;
        if (pulsar_offload_has_lanes)
            n = pulsar_offload_lanes_delimited(
                p, group, count, step, valid, blank, below, &found);
        if (n < 0) return n;
        if (step[3] == 1)
            return pulsar_offload_step_delimited(
                p, group, n, count, step, 1, valid, blank, below, found);
        return pulsar_offload_step_delimited(
            p, group, n, count, step, step[3], valid, blank, below, found);
    }
    static long long pulsar_offload_step_numbers_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* below) {
        long long n = 0, found = 0;
        if (pulsar_offload_has_lanes)
            n = pulsar_offload_lanes_numbers(p, group, count, step, below, &found);
        if (n < 0) return n;
        if (step[3] == 1)
            return pulsar_offload_step_numbers(p, group, n, count, step, 1, below, found);
        return pulsar_offload_step_numbers(p, group, n, count, step, step[3], below, found);
    }
    static long long pulsar_offload_step_put_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int how, unsigned char* valid, int blank, void* to) {
        long long n = 0, found = 0;
        if (pulsar_offload_has_lanes)
            n = pulsar_offload_lanes_put_any(
                p, group, count, step, how, valid, blank, to, &found);
        if (n < 0) return n;
        if (step[3] == 1)
            return pulsar_offload_step_put_of(
                p, group, n, count, step, 1, how, valid, blank, to, found);
        return pulsar_offload_step_put_of(
            p, group, n, count, step, step[3], how, valid, blank, to, found);
    }
    static long long pulsar_offload_step_bytes_any(
            const unsigned char* p, long long size, const long long* group, long long n,
            long long count, int is_text, unsigned char* to, long long room, long long* used,
            int* ends) {
        const uint32_t high = is_text ? 0xFFFFFFFF : 0;
        return pulsar_offload_has_lanes
            ? pulsar_offload_lanes_bytes(p, size, group, n, count, high, to, room, used, ends)
            : pulsar_offload_step_bytes(p, size, group, n, count, high, to, room, used, ends);
    }
    static long long pulsar_offload_step_items(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long* below, long long* found, long long* items,
            long long room, int* list_ends) {
        return pulsar_offload_has_lanes
            ? pulsar_offload_lanes_items(
                  p, group, n, count, step, below, found, items, room, list_ends)
            : n;
    }
    static long long pulsar_offload_step_instants(
            const unsigned char* p, const long long* group, long long n, long long count,
            long long units, long long* to) {
        return pulsar_offload_has_lanes
            ? pulsar_offload_lanes_instants(p, group, n, count, units, to) : n;
    }
    /* Names of up to 32 bytes are copied as blocks. No branch depends on the number, or on whether there
       is one. */
    static long long pulsar_offload_step_names(
            const long long* numbers, const long long* rows, long long n, long long count,
            const long long* table, const unsigned char* constants, long long missing,
            unsigned char* valid, unsigned char* to, long long room, long long* used, int* ends) {
        const uint32_t multiplier = (uint32_t)table[0];
        const int shift = (int)table[1];
        const long long blank = missing >= 0;
        long long at = *used;
        missing &= -blank;
        for (; n < count; n++) {
            const long long here = PULSAR_OFFLOAD_STOPS(numbers)[n], row = rows[n];
            const long long* slot = table + 2 + 2 * ((uint32_t)numbers[n] * multiplier >> shift);
            const long long name = missing ^ ((missing ^ slot[1]) & -here);
            const long long length = name & 0xFFFFFFFF;
            if (PULSAR_OFFLOAD_SELDOM(
                    ((here & (slot[0] != numbers[n])) | (length > 32) | (room - at < 32)) != 0))
                break;
            memcpy(to + at, constants + (name >> 32), 32);
            at += length;
            ends[row] = (int)at;
            valid[row] = (unsigned char)(here | blank);
        }
        *used = at;
        return n;
    }
    """
    # Choose how groups are read; return whether by lanes. If `plain`, by no more than every processor has.
    int choose_lanes "pulsar_offload_choose_lanes"(int plain) noexcept
    # Return the furthest end of a payload; -1 if one is missing.
    long long furthest_stop "pulsar_offload_step_furthest_any"(
        const long long* positions, long long count) noexcept nogil
    # Start a group of payloads, which fill the rows from `row` on.
    void start_group "pulsar_offload_step_start_any"(
        const long long* positions, long long count, long long row, long long* group) noexcept nogil
    # Skip a field; return how many messages had it, or -1 if one is damaged.
    long long skip_fields "pulsar_offload_step_over_any"(
        const unsigned char* p, long long* group, long long count,
        const long long* step) noexcept nogil
    # Record start, end and row of a field's bytes for each message that has it; return their number.
    long long take_delimited "pulsar_offload_step_delimited_any"(
        const unsigned char* p, long long* group, long long count, const long long* step,
        unsigned char* valid, int blank, long long* below) noexcept nogil
    # Record the lower half of a number, and whether it exists, for each message; return how many exist.
    long long take_numbers_of_all "pulsar_offload_step_numbers_any"(
        const unsigned char* p, long long* group, long long count, const long long* step,
        long long* below) noexcept nogil
    # Put a number in the row of each message, as the op of its type does; 0 if it is missing.
    long long put_numbers "pulsar_offload_step_put_any"(
        const unsigned char* p, long long* group, long long count, const long long* step,
        int how, unsigned char* valid, int blank, void* to) noexcept nogil
    # Copy values from the n-th on as blocks; return the number of the first that needs more work: it is
    # long, or not ASCII if it is text, or there is little room. `size` bytes are readable.
    long long put_bytes "pulsar_offload_step_bytes_any"(
        const unsigned char* p, long long size, const long long* group, long long n,
        long long count, int is_text, unsigned char* to, long long room, long long* used,
        int* ends) noexcept nogil
    # Record start, end and row of the items in messages from the n-th on, and end the list of each;
    # return the number of the first message that needs more work. `found` items were recorded, and
    # the node of items has `items` of up to `room`.
    long long take_items "pulsar_offload_step_items"(
        const unsigned char* p, long long* group, long long n, long long count,
        const long long* step, long long* below, long long* found, long long* items,
        long long room, int* list_ends) noexcept nogil
    # Put timestamps from the n-th on, in `units` per second; return the number of the first that needs
    # more work.
    long long put_instants "pulsar_offload_step_instants"(
        const unsigned char* p, const long long* group, long long n, long long count,
        long long units, long long* to) noexcept nogil
    # Put the names of the numbers that `take_numbers_of_all` recorded from the n-th on; return the
    # number of the first that needs more work: its name is not in the hash table, or is long, or there
    # is little room.
    long long put_names "pulsar_offload_step_names"(
        const long long* numbers, const long long* rows, long long n, long long count,
        const long long* table, const unsigned char* constants, long long missing,
        unsigned char* valid, unsigned char* to, long long room, long long* used,
        int* ends) noexcept nogil
