# Lanes that read the field of a step in four messages at once, for x86-64 processors with AVX2.
from arrow_io.payloads._protobuf_step cimport step_number  # pulsar_offload_step in the C below


cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define PULSAR_OFFLOAD_AVX2 __attribute__((target("avx2")))
    #define PULSAR_OFFLOAD_AVX2_INLINE PULSAR_OFFLOAD_INLINE PULSAR_OFFLOAD_AVX2
    static int pulsar_offload_find_avx2(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx2") != 0;
    }
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_furthest(
            const long long* positions, long long count) {
        return pulsar_offload_step_furthest(positions, count);
    }
    static PULSAR_OFFLOAD_AVX2 void pulsar_offload_avx2_start(
            const long long* positions, long long count, long long row, long long* group) {
        pulsar_offload_step_start(positions, count, row, group);
    }
    /* The eight bytes from each of four positions on. Loads are faster than a gather. */
    PULSAR_OFFLOAD_AVX2_INLINE __m256i pulsar_offload_avx2_words(
            const unsigned char* p, const long long* at) {
        const long long first = (long long)pulsar_offload_protobuf_block(p + at[0]);
        const long long second = (long long)pulsar_offload_protobuf_block(p + at[1]);
        const long long third = (long long)pulsar_offload_protobuf_block(p + at[2]);
        const long long fourth = (long long)pulsar_offload_protobuf_block(p + at[3]);
        return _mm256_set_epi64x(fourth, third, second, first);
    }
    /* A bit for each lane. */
    PULSAR_OFFLOAD_AVX2_INLINE int pulsar_offload_avx2_bits(__m256i here) {
        return _mm256_movemask_pd(_mm256_castsi256_pd(here));
    }
    /* The lower halves of four words. */
    PULSAR_OFFLOAD_AVX2_INLINE __m128i pulsar_offload_avx2_halves(__m256i words) {
        const __m256i even = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
        return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(words, even));
    }
    /* `pulsar_offload_protobuf_join`, and the number of bytes. */
    PULSAR_OFFLOAD_AVX2_INLINE __m256i pulsar_offload_avx2_join(
            __m256i words, __m256i ends, __m256i* bytes) {
        const __m256i before = _mm256_xor_si256(ends, _mm256_add_epi64(ends, _mm256_set1_epi64x(-1)));
        *bytes = _mm256_sad_epu8(
            _mm256_and_si256(before, _mm256_set1_epi8(1)), _mm256_setzero_si256());
        words = _mm256_and_si256(_mm256_and_si256(words, before), _mm256_set1_epi8(0x7F));
        /* By pairs of bytes, then of pairs: the first plus the second times 1 << 7, or 1 << 14. */
        words = _mm256_maddubs_epi16(_mm256_set1_epi16((short)0x8001), words);
        words = _mm256_madd_epi16(words, _mm256_set1_epi32(0x40000001));
        return _mm256_or_si256(
            _mm256_and_si256(words, _mm256_set1_epi64x(0x0FFFFFFF)),
            _mm256_and_si256(
                _mm256_srli_epi64(words, 4), _mm256_set1_epi64x(0x00FFFFFFF0000000)));
    }
    /* `pulsar_offload_step` for the four messages from `group` on. */
    PULSAR_OFFLOAD_AVX2_INLINE int pulsar_offload_avx2_step(
            const unsigned char* p, long long* group, const long long* step, int kind,
            __m256i* here, __m256i* value) {
        const long long size = step[3];
        const __m256i at = _mm256_loadu_si256((const __m256i*)group);
        const __m256i stop = _mm256_loadu_si256((const __m256i*)PULSAR_OFFLOAD_STOPS(group));
        const __m256i words = pulsar_offload_avx2_words(p, group);
        const __m256i tags = _mm256_and_si256(words, _mm256_set1_epi64x(step[2]));
        const __m256i found = _mm256_and_si256(
            _mm256_cmpeq_epi64(tags, _mm256_set1_epi64x(step[1])), _mm256_cmpgt_epi64(stop, at));
        __m256i highs = _mm256_set1_epi8((char)0x80), rare = _mm256_setzero_si256(), bytes, after;
        int lanes, lane;
        if (kind == 2) {
            *value = _mm256_and_si256(
                _mm256_srl_epi64(words, _mm_cvtsi64_si128(8 * size)), _mm256_set1_epi64x(0xFF));
            bytes = _mm256_add_epi64(*value, _mm256_set1_epi64x(size + 1));
            rare = _mm256_and_si256(found, _mm256_cmpgt_epi64(*value, _mm256_set1_epi64x(0x7F)));
        } else if (kind == 0 && size <= 2) {
            /* The numbers are in the same words, unless they are large. */
            *value = _mm256_srl_epi64(words, _mm_cvtsi64_si128(8 * size));
            highs = _mm256_srl_epi64(highs, _mm_cvtsi64_si128(8 * size));
        } else {
            *value = pulsar_offload_avx2_words(p + size, group);
            bytes = _mm256_set1_epi64x(size + (kind == 1 ? 8 : 4));
        }
        if (kind == 5) *value = _mm256_and_si256(*value, _mm256_set1_epi64x(0xFFFFFFFF));
        if (kind == 0) {
            const __m256i ends = _mm256_andnot_si256(*value, highs);
            rare = _mm256_and_si256(found, _mm256_cmpeq_epi64(ends, _mm256_setzero_si256()));
            *value = pulsar_offload_avx2_join(*value, ends, &bytes);
            bytes = _mm256_add_epi64(bytes, _mm256_set1_epi64x(size));
        }
        after = _mm256_add_epi64(
            at, _mm256_and_si256(bytes, _mm256_andnot_si256(rare, found)));
        if (pulsar_offload_avx2_bits(_mm256_cmpgt_epi64(after, stop)) != 0) return 0;
        _mm256_storeu_si256((__m256i*)group, after);
        *here = found;
        if (kind != 0 && kind != 2) return 1;
        lanes = pulsar_offload_avx2_bits(rare);
        if (PULSAR_OFFLOAD_SELDOM(lanes != 0)) {
            uint64_t values[4];
            long long lane_here = 0;
            _mm256_storeu_si256((__m256i*)values, *value);
            for (lane = 0; lane < 4; lane++) {
                if ((lanes >> lane & 1) == 0) continue;
                if (!pulsar_offload_step(
                        p, group + lane, step[1], step[2], kind, size, &lane_here, values + lane))
                    return 0;
            }
            *value = _mm256_loadu_si256((const __m256i*)values);
        }
        return 1;
    }
    /* Whether the rows of four messages follow each other. */
    PULSAR_OFFLOAD_INLINE int pulsar_offload_avx2_dense(const long long* rows) {
        return rows[3] - rows[0] == 3;
    }
    /* Put a byte, 0 or 1, for each bit. */
    PULSAR_OFFLOAD_INLINE void pulsar_offload_avx2_flag(
            unsigned char* to, const long long* rows, int bits) {
        const uint32_t flags = (uint32_t)bits * UINT32_C(0x00204081) & UINT32_C(0x01010101);
        if (pulsar_offload_avx2_dense(rows)) memcpy(to + rows[0], &flags, 4);
        else for (int n = 0; n < 4; n++) to[rows[n]] = (unsigned char)(flags >> 8 * n);
    }
    PULSAR_OFFLOAD_AVX2_INLINE void pulsar_offload_avx2_store(
            void* to, const long long* rows, int how, __m256i values) {
        const long long k = rows[0];
        uint64_t each[4];
        if (how == 4) {
            const __m256i zeros = _mm256_cmpeq_epi64(values, _mm256_setzero_si256());
            pulsar_offload_avx2_flag(
                (unsigned char*)to, rows, pulsar_offload_avx2_bits(zeros) ^ 0xF);
            return;
        }
        if (how != 6 && pulsar_offload_avx2_dense(rows)) {
            if (how == 2 || how == 5)
                values = _mm256_and_si256(values, _mm256_set1_epi64x(0xFFFFFFFF));
            if (how == 2 || how == 3)
                values = _mm256_xor_si256(
                    _mm256_srli_epi64(values, 1),
                    _mm256_sub_epi64(
                        _mm256_setzero_si256(), _mm256_and_si256(values, _mm256_set1_epi64x(1))));
            if (how == 0 || how == 2)
                _mm_storeu_si128((__m128i*)((int*)to + k), pulsar_offload_avx2_halves(values));
            else
                _mm256_storeu_si256((__m256i*)((long long*)to + k), values);
            return;
        }
        _mm256_storeu_si256((__m256i*)each, values);
        for (int n = 0; n < 4; n++) pulsar_offload_step_store(to, rows[n], how, each[n]);
    }
    /* Each of these reads as many messages as it can, and returns their number, or -1. */
    PULSAR_OFFLOAD_AVX2_INLINE long long pulsar_offload_avx2_over(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, long long* found) {
        __m256i here = _mm256_setzero_si256(), value;
        long long n = 0;
        for (; n + 4 <= count; n += 4) {
            if (!pulsar_offload_avx2_step(p, group + n, step, kind, &here, &value)) return -1;
            *found += __builtin_popcount(pulsar_offload_avx2_bits(here));
        }
        return n;
    }
    PULSAR_OFFLOAD_AVX2_INLINE long long pulsar_offload_avx2_put(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, int how, unsigned char* valid, int blank, void* to, long long* found) {
        const int all = blank ? 0xF : 0;
        __m256i here = _mm256_setzero_si256(), value;
        long long n = 0, total = 0;
        for (; n + 4 <= count; n += 4) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            if (!pulsar_offload_avx2_step(p, group + n, step, kind, &here, &value)) return -1;
            const int bits = pulsar_offload_avx2_bits(here);
            pulsar_offload_avx2_flag(valid, rows, bits | all);
            pulsar_offload_avx2_store(to, rows, how, _mm256_and_si256(here, value));
            total += __builtin_popcount(bits);
        }
        *found = total;
        return n;
    }
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_over_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* found) {
        const int kind = (int)(step[1] & 7);
        if (kind == 0) return pulsar_offload_avx2_over(p, group, count, step, 0, found);
        if (kind == 2) return pulsar_offload_avx2_over(p, group, count, step, 2, found);
        return pulsar_offload_avx2_over(p, group, count, step, kind, found);
    }
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_put_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int how, unsigned char* valid, int blank, void* to, long long* found) {
    #define PULSAR_OFFLOAD_PUT(kind, how) \\
        return pulsar_offload_avx2_put(p, group, count, step, kind, how, valid, blank, to, found);
        const int kind = (int)(step[1] & 7);
        if (kind == 1 && how == 1) PULSAR_OFFLOAD_PUT(1, 1)
        if (kind != 0) PULSAR_OFFLOAD_PUT(kind, how)
        if (how == 0) PULSAR_OFFLOAD_PUT(0, 0)
        if (how == 1) PULSAR_OFFLOAD_PUT(0, 1)
        if (how == 4) PULSAR_OFFLOAD_PUT(0, 4)
        PULSAR_OFFLOAD_PUT(0, how)
    #undef PULSAR_OFFLOAD_PUT
    }
    /* The order of half words that moves the words of these lanes to the front. */
    #define PULSAR_OFFLOAD_PAIR(n) 2 * (n), 2 * (n) + 1
    #define PULSAR_OFFLOAD_FRONT(a, b, c, d) \\
        {PULSAR_OFFLOAD_PAIR(a), PULSAR_OFFLOAD_PAIR(b), PULSAR_OFFLOAD_PAIR(c), PULSAR_OFFLOAD_PAIR(d)}
    static const int pulsar_offload_avx2_front[16][8] = {
        PULSAR_OFFLOAD_FRONT(0, 0, 0, 0), PULSAR_OFFLOAD_FRONT(0, 0, 0, 0),
        PULSAR_OFFLOAD_FRONT(1, 0, 0, 0), PULSAR_OFFLOAD_FRONT(0, 1, 0, 0),
        PULSAR_OFFLOAD_FRONT(2, 0, 0, 0), PULSAR_OFFLOAD_FRONT(0, 2, 0, 0),
        PULSAR_OFFLOAD_FRONT(1, 2, 0, 0), PULSAR_OFFLOAD_FRONT(0, 1, 2, 0),
        PULSAR_OFFLOAD_FRONT(3, 0, 0, 0), PULSAR_OFFLOAD_FRONT(0, 3, 0, 0),
        PULSAR_OFFLOAD_FRONT(1, 3, 0, 0), PULSAR_OFFLOAD_FRONT(0, 1, 3, 0),
        PULSAR_OFFLOAD_FRONT(2, 3, 0, 0), PULSAR_OFFLOAD_FRONT(0, 2, 3, 0),
        PULSAR_OFFLOAD_FRONT(1, 2, 3, 0), PULSAR_OFFLOAD_FRONT(0, 1, 2, 3),
    };
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_delimited(
            const unsigned char* p, long long* group, long long count, const long long* step,
            unsigned char* valid, int blank, long long* below, long long* found) {
        const int all = blank ? 0xF : 0;
        __m256i here = _mm256_setzero_si256(), value;
        long long n = 0, total = 0;
        /* At most `n` values were recorded, so that there is room for four. */
        for (; n + 4 <= count; n += 4) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            if (!pulsar_offload_avx2_step(p, group + n, step, 2, &here, &value)) return -1;
            const int bits = pulsar_offload_avx2_bits(here);
            const __m256i front = _mm256_loadu_si256(
                (const __m256i*)pulsar_offload_avx2_front[bits]);
            const __m256i stop = _mm256_loadu_si256((const __m256i*)(group + n));
            const __m256i start = _mm256_sub_epi64(stop, value);
            const __m256i row = _mm256_loadu_si256((const __m256i*)rows);
            long long* to = below + total;
            _mm256_storeu_si256((__m256i*)to, _mm256_permutevar8x32_epi32(start, front));
            _mm256_storeu_si256(
                (__m256i*)PULSAR_OFFLOAD_STOPS(to), _mm256_permutevar8x32_epi32(stop, front));
            _mm256_storeu_si256(
                (__m256i*)PULSAR_OFFLOAD_ROWS(to), _mm256_permutevar8x32_epi32(row, front));
            if (valid) pulsar_offload_avx2_flag(valid, rows, bits | all);
            total += __builtin_popcount(bits);
        }
        *found = total;
        return n;
    }
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_numbers(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* below, long long* found) {
        __m256i here = _mm256_setzero_si256(), value;
        long long n = 0;
        for (; n + 4 <= count; n += 4) {
            if (!pulsar_offload_avx2_step(p, group + n, step, 0, &here, &value)) return -1;
            value = _mm256_and_si256(here, value);
            _mm256_storeu_si256(
                (__m256i*)(below + n), _mm256_cvtepi32_epi64(pulsar_offload_avx2_halves(value)));
            _mm256_storeu_si256(
                (__m256i*)PULSAR_OFFLOAD_STOPS(below + n), _mm256_srli_epi64(here, 63));
            *found += __builtin_popcount(pulsar_offload_avx2_bits(here));
        }
        return n;
    }
    /* `pulsar_offload_step_bytes` for four values at once, until one of them needs more work. */
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_bytes(
            const unsigned char* p, long long size, const long long* group, long long n,
            long long count, uint32_t high, unsigned char* to, long long room, long long* used,
            int* ends) {
        const __m256i last = _mm256_set1_epi64x(size - 32);
        long long at = *used, each[4];
        for (; n + 4 <= count && room - at >= 4 * 32; n += 4) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            const __m256i start = _mm256_loadu_si256((const __m256i*)(group + n));
            const __m256i stop = _mm256_loadu_si256((const __m256i*)PULSAR_OFFLOAD_STOPS(group + n));
            const __m256i lengths = _mm256_sub_epi64(stop, start);
            const __m256i unusual = _mm256_or_si256(
                _mm256_cmpgt_epi64(lengths, _mm256_set1_epi64x(32)), _mm256_cmpgt_epi64(start, last));
            const int is_long = pulsar_offload_avx2_bits(
                _mm256_cmpgt_epi64(lengths, _mm256_set1_epi64x(16)));
            long long next = at;
            uint64_t found = 0;
            if (PULSAR_OFFLOAD_SELDOM(pulsar_offload_avx2_bits(unusual) != 0)) break;
            _mm256_storeu_si256((__m256i*)each, lengths);
            for (int lane = 0; lane < 4; lane++) {
                const __m128i* from = (const __m128i*)(p + group[n + lane]);
                const __m128i block = _mm_loadu_si128(from);
                uint64_t bits = (uint64_t)_mm_movemask_epi8(block);
                _mm_storeu_si128((__m128i*)(to + next), block);
                if (is_long) {
                    const __m128i second = _mm_loadu_si128(from + 1);
                    _mm_storeu_si128((__m128i*)(to + next + 16), second);
                    bits |= (uint64_t)_mm_movemask_epi8(second) << 16;
                }
                found |= bits & ((UINT64_C(1) << each[lane]) - 1);
                next += each[lane];
                ends[rows[lane]] = (int)next;
            }
            if (PULSAR_OFFLOAD_SELDOM(found & high)) break;
            at = next;
        }
        *used = at;
        return n;
    }
    /* Put the first word of each of four vectors in the first vector, and so on. */
    PULSAR_OFFLOAD_AVX2_INLINE void pulsar_offload_avx2_transpose(__m256i* rows) {
        const __m256i a = _mm256_unpacklo_epi64(rows[0], rows[1]);
        const __m256i b = _mm256_unpackhi_epi64(rows[0], rows[1]);
        const __m256i c = _mm256_unpacklo_epi64(rows[2], rows[3]);
        const __m256i d = _mm256_unpackhi_epi64(rows[2], rows[3]);
        rows[0] = _mm256_permute2x128_si256(a, c, 0x20);
        rows[1] = _mm256_permute2x128_si256(b, d, 0x20);
        rows[2] = _mm256_permute2x128_si256(a, c, 0x31);
        rows[3] = _mm256_permute2x128_si256(b, d, 0x31);
    }
    /* Each of four messages has the same number of attempts to find an item, so that no branch depends on
       how many it has. Stop before messages with more items than attempts, and before unusual ones. */
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_items(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long* below, long long* found, long long* items,
            long long room, int* list_ends) {
        const __m256i tag = _mm256_set1_epi64x(step[1]), mask = _mm256_set1_epi64x(step[2]);
        const __m256i head = _mm256_set1_epi64x(step[3] + 1);
        const __m128i shift = _mm_cvtsi64_si128(8 * step[3]);
        const long long first = *found;
        long long next = first;
        int attempts = 1;
        while (n + 4 <= count && next + 16 <= PULSAR_OFFLOAD_GROUP
                && *items + next - first + 16 <= room) {
            const __m256i stop = _mm256_loadu_si256((const __m256i*)PULSAR_OFFLOAD_STOPS(group + n));
            __m256i at = _mm256_loadu_si256((const __m256i*)(group + n));
            __m256i counts = _mm256_setzero_si256(), has, start, after, length, words;
            __m256i starts[4], stops[4];
            long long each[4];
            int attempt = 0;
            for (;; attempt++) {
                _mm256_storeu_si256((__m256i*)each, at);
                words = pulsar_offload_avx2_words(p, each);
                has = _mm256_and_si256(
                    _mm256_cmpeq_epi64(_mm256_and_si256(words, mask), tag),
                    _mm256_cmpgt_epi64(stop, at));
                if (attempt == attempts) break;
                length = _mm256_and_si256(
                    _mm256_srl_epi64(words, shift), _mm256_set1_epi64x(0xFF));
                start = _mm256_add_epi64(at, head);
                after = _mm256_add_epi64(start, length);
                has = _mm256_andnot_si256(
                    _mm256_or_si256(
                        _mm256_cmpgt_epi64(after, stop),
                        _mm256_cmpgt_epi64(length, _mm256_set1_epi64x(0x7F))),
                    has);
                starts[attempt] = start;
                stops[attempt] = after;
                counts = _mm256_sub_epi64(counts, has);
                at = _mm256_blendv_epi8(at, after, has);
            }
            if (PULSAR_OFFLOAD_SELDOM(pulsar_offload_avx2_bits(has) != 0)) {
                if (attempts == 4) break;
                attempts++;
                continue;
            }
            for (; attempt < 4; attempt++) starts[attempt] = stops[attempt] = at;
            pulsar_offload_avx2_transpose(starts);
            pulsar_offload_avx2_transpose(stops);
            _mm256_storeu_si256((__m256i*)(group + n), at);
            _mm256_storeu_si256((__m256i*)each, counts);
            for (int lane = 0; lane < 4; lane++) {
                _mm256_storeu_si256((__m256i*)(below + next), starts[lane]);
                _mm256_storeu_si256(
                    (__m256i*)PULSAR_OFFLOAD_STOPS(below + next), stops[lane]);
                next += each[lane];
                list_ends[PULSAR_OFFLOAD_ROWS(group)[n + lane]] = (int)(*items + next - first);
            }
            n += 4;
        }
        for (long long k = first; k < next; k++)
            PULSAR_OFFLOAD_ROWS(below)[k] = *items + k - first;
        *found = next;
        *items += next - first;
        return n;
    }
    /* `pulsar_offload_step_names` for four numbers at once, until one of them needs more work. */
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_names(
            const long long* numbers, const long long* rows, long long n, long long count,
            const long long* table, const unsigned char* constants, long long missing,
            unsigned char* valid, unsigned char* to, long long room, long long* used, int* ends) {
        const __m256i multiplier = _mm256_set1_epi64x(table[0]);
        const __m128i shift = _mm_cvtsi64_si128(32 + table[1]);
        const __m256i constant = _mm256_set1_epi64x(missing >= 0 ? missing : 0);
        const int all = missing >= 0 ? 0xF : 0;
        const long long* slots = table + 2;
        long long at = *used, each[4];
        for (; n + 4 <= count && room - at >= 4 * 32; n += 4) {
            const __m256i number = _mm256_loadu_si256((const __m256i*)(numbers + n));
            const __m256i here = _mm256_sub_epi64(
                _mm256_setzero_si256(),
                _mm256_loadu_si256((const __m256i*)PULSAR_OFFLOAD_STOPS(numbers + n)));
            const __m256i hashes = _mm256_slli_epi64(_mm256_mul_epu32(number, multiplier), 32);
            const int is_dense = pulsar_offload_avx2_dense(rows + n);
            __m256i even, odd, names, lengths, unusual;
            int is_long;
            _mm256_storeu_si256((__m256i*)each, _mm256_srl_epi64(hashes, shift));
            even = _mm256_set_m128i(
                _mm_loadu_si128((const __m128i*)(slots + 2 * each[2])),
                _mm_loadu_si128((const __m128i*)(slots + 2 * each[0])));
            odd = _mm256_set_m128i(
                _mm_loadu_si128((const __m128i*)(slots + 2 * each[3])),
                _mm_loadu_si128((const __m128i*)(slots + 2 * each[1])));
            names = _mm256_blendv_epi8(constant, _mm256_unpackhi_epi64(even, odd), here);
            lengths = _mm256_and_si256(names, _mm256_set1_epi64x(0xFFFFFFFF));
            unusual = _mm256_andnot_si256(
                _mm256_cmpeq_epi64(_mm256_unpacklo_epi64(even, odd), number), here);
            unusual = _mm256_or_si256(
                unusual, _mm256_cmpgt_epi64(lengths, _mm256_set1_epi64x(32)));
            if (PULSAR_OFFLOAD_SELDOM(pulsar_offload_avx2_bits(unusual) != 0)) break;
            _mm256_storeu_si256((__m256i*)each, names);
            is_long = pulsar_offload_avx2_bits(
                _mm256_cmpgt_epi64(lengths, _mm256_set1_epi64x(16)));
            for (int lane = 0; lane < 4; lane++) {
                const unsigned char* name = constants + (each[lane] >> 32);
                _mm_storeu_si128((__m128i*)(to + at), _mm_loadu_si128((const __m128i*)name));
                if (is_long)
                    _mm_storeu_si128(
                        (__m128i*)(to + at + 16), _mm_loadu_si128((const __m128i*)name + 1));
                at += each[lane] & 0xFFFFFFFF;
                ends[is_dense ? rows[n] + lane : rows[n + lane]] = (int)at;
            }
            pulsar_offload_avx2_flag(valid, rows + n, pulsar_offload_avx2_bits(here) | all);
        }
        *used = at;
        return n;
    }
    /* A number of a timestamp after its tag, and whether each is there and usual. */
    PULSAR_OFFLOAD_AVX2_INLINE __m256i pulsar_offload_avx2_part(
            const unsigned char* p, const long long* at, int tag, __m256i* bytes, __m256i* usual) {
        const __m256i words = pulsar_offload_avx2_words(p, at);
        const __m256i ends = _mm256_andnot_si256(
            _mm256_srli_epi64(words, 8), _mm256_set1_epi64x(0x0080808080808080));
        const __m256i tags = _mm256_and_si256(words, _mm256_set1_epi64x(0xFF));
        *usual = _mm256_andnot_si256(
            _mm256_cmpeq_epi64(ends, _mm256_setzero_si256()),
            _mm256_cmpeq_epi64(tags, _mm256_set1_epi64x(tag)));
        return pulsar_offload_avx2_join(_mm256_srli_epi64(words, 8), ends, bytes);
    }
    /* `seconds` and `nanos` of timestamps in this order, in `units` per second; stop before four of
       which one is unusual. */
    static PULSAR_OFFLOAD_AVX2 long long pulsar_offload_avx2_instants(
            const unsigned char* p, const long long* group, long long n, long long count,
            long long units, long long* to) {
        const __m256i one = _mm256_set1_epi64x(1), scale = _mm256_set1_epi64x(units);
        for (; n + 4 <= count; n += 4) {
            const __m256i stop = _mm256_loadu_si256((const __m256i*)PULSAR_OFFLOAD_STOPS(group + n));
            __m256i at = _mm256_loadu_si256((const __m256i*)(group + n));
            __m256i seconds, nanos, bytes, usual, usual_nanos, more, high;
            long long each[4];
            seconds = pulsar_offload_avx2_part(p, group + n, 0x08, &bytes, &usual);
            usual = _mm256_and_si256(
                usual, _mm256_cmpgt_epi64(_mm256_set1_epi64x(1LL << 33), seconds));
            if (pulsar_offload_avx2_bits(usual) != 0xF) return n;
            at = _mm256_add_epi64(_mm256_add_epi64(at, bytes), one);
            more = _mm256_cmpgt_epi64(stop, at);
            _mm256_storeu_si256((__m256i*)each, at);
            nanos = pulsar_offload_avx2_part(p, each, 0x10, &bytes, &usual_nanos);
            nanos = _mm256_and_si256(nanos, more);
            usual = _mm256_and_si256(
                usual_nanos, _mm256_cmpgt_epi64(_mm256_set1_epi64x(1000000000), nanos));
            at = _mm256_add_epi64(at, _mm256_and_si256(more, _mm256_add_epi64(bytes, one)));
            if (units != 1000000000) {
                /* Divide by 1000: correct for all numbers below 1 << 32. */
                const __m256i most = nanos;
                nanos = _mm256_srli_epi64(
                    _mm256_mul_epu32(nanos, _mm256_set1_epi64x(0x10624DD3)), 38);
                usual = _mm256_and_si256(
                    usual,
                    _mm256_cmpeq_epi64(_mm256_mul_epu32(nanos, _mm256_set1_epi64x(1000)), most));
            }
            usual = _mm256_or_si256(usual, _mm256_xor_si256(more, _mm256_set1_epi64x(-1)));
            usual = _mm256_and_si256(usual, _mm256_cmpeq_epi64(at, stop));
            if (pulsar_offload_avx2_bits(usual) != 0xF) return n;
            high = _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(seconds, 32), scale), 32);
            seconds = _mm256_add_epi64(_mm256_mul_epu32(seconds, scale), high);
            pulsar_offload_avx2_store(
                to, PULSAR_OFFLOAD_ROWS(group + n), 1, _mm256_add_epi64(seconds, nanos));
        }
        return n;
    }
    #else
    static int pulsar_offload_find_avx2(void) { return 0; }
    #define pulsar_offload_avx2_furthest pulsar_offload_step_furthest
    #define pulsar_offload_avx2_start pulsar_offload_step_start
    #define pulsar_offload_avx2_over_any(p, group, count, step, found) 0
    #define pulsar_offload_avx2_put_any(p, group, count, step, how, valid, blank, to, found) 0
    #define pulsar_offload_avx2_delimited(p, group, count, step, valid, blank, below, found) 0
    #define pulsar_offload_avx2_numbers(p, group, count, step, below, found) 0
    #define pulsar_offload_avx2_bytes( \\
        p, size, group, n, count, high, to, room, used, ends) (n)
    #define pulsar_offload_avx2_items( \\
        p, group, n, count, step, below, found, items, room, list_ends) (n)
    #define pulsar_offload_avx2_names( \\
        numbers, rows, n, count, table, constants, missing, valid, to, room, used, ends) (n)
    #define pulsar_offload_avx2_instants(p, group, n, count, units, to) (n)
    #endif
    """
    # Return whether the processor has the instructions.
    int find_avx2 "pulsar_offload_find_avx2"() noexcept
