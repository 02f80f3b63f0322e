# Lanes that read the field of a step in eight messages at once, for x86-64 processors with AVX-512.
from arrow_io.payloads._protobuf_step cimport step_number  # pulsar_offload_step in the C below


cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define PULSAR_OFFLOAD_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
    #define PULSAR_OFFLOAD_AVX512_INLINE PULSAR_OFFLOAD_INLINE PULSAR_OFFLOAD_AVX512
    static int pulsar_offload_find_avx512(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    }
    static PULSAR_OFFLOAD_AVX512 long long pulsar_offload_avx512_furthest(
            const long long* positions, long long count) {
        return pulsar_offload_step_furthest(positions, count);
    }
    static PULSAR_OFFLOAD_AVX512 void pulsar_offload_avx512_start(
            const long long* positions, long long count, long long row, long long* group) {
        pulsar_offload_step_start(positions, count, row, group);
    }
    /* `pulsar_offload_protobuf_join`, and the number of bytes. */
    PULSAR_OFFLOAD_AVX512_INLINE __m512i pulsar_offload_avx512_join(
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
    PULSAR_OFFLOAD_AVX512_INLINE int pulsar_offload_avx512_step(
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
            *value = pulsar_offload_avx512_join(*value, ends, &bytes);
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
    PULSAR_OFFLOAD_INLINE int pulsar_offload_avx512_dense(const long long* rows) {
        return rows[7] - rows[0] == 7;
    }
    PULSAR_OFFLOAD_AVX512_INLINE void pulsar_offload_avx512_mark(
            unsigned char* valid, const long long* rows, __mmask8 here, int blank) {
        if (pulsar_offload_avx512_dense(rows)) {
            __m128i flags = _mm_maskz_set1_epi8(here | (blank ? 0xFF : 0), 1);
            _mm_storel_epi64((__m128i*)(valid + rows[0]), flags);
        } else {
            for (int n = 0; n < 8; n++) valid[rows[n]] = (unsigned char)((here >> n & 1) | blank);
        }
    }
    PULSAR_OFFLOAD_AVX512_INLINE void pulsar_offload_avx512_store(
            void* to, const long long* rows, int how, __m512i values) {
        const __m512i one = _mm512_set1_epi64(1), low = _mm512_set1_epi64(0xFFFFFFFF);
        const long long k = rows[0];
        uint64_t each[8];
        if (how != 6 && pulsar_offload_avx512_dense(rows)) {
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
    PULSAR_OFFLOAD_AVX512_INLINE long long pulsar_offload_avx512_over(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            if (!pulsar_offload_avx512_step(p, group + n, step, kind, &here, &value)) return -1;
            *found += __builtin_popcount(here);
        }
        return n;
    }
    PULSAR_OFFLOAD_AVX512_INLINE long long pulsar_offload_avx512_put(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int kind, int how, unsigned char* valid, int blank, void* to, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            if (!pulsar_offload_avx512_step(p, group + n, step, kind, &here, &value)) return -1;
            pulsar_offload_avx512_mark(valid, rows, here, blank);
            pulsar_offload_avx512_store(to, rows, how, _mm512_maskz_mov_epi64(here, value));
            *found += __builtin_popcount(here);
        }
        return n;
    }
    static PULSAR_OFFLOAD_AVX512 long long pulsar_offload_avx512_over_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* found) {
        const int kind = (int)(step[1] & 7);
        if (kind == 0) return pulsar_offload_avx512_over(p, group, count, step, 0, found);
        if (kind == 2) return pulsar_offload_avx512_over(p, group, count, step, 2, found);
        return pulsar_offload_avx512_over(p, group, count, step, kind, found);
    }
    static PULSAR_OFFLOAD_AVX512 long long pulsar_offload_avx512_put_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int how, unsigned char* valid, int blank, void* to, long long* found) {
    #define PULSAR_OFFLOAD_PUT(kind, how) \\
        return pulsar_offload_avx512_put(p, group, count, step, kind, how, valid, blank, to, found);
        const int kind = (int)(step[1] & 7);
        if (kind == 1 && how == 1) PULSAR_OFFLOAD_PUT(1, 1)
        if (kind != 0) PULSAR_OFFLOAD_PUT(kind, how)
        if (how == 0) PULSAR_OFFLOAD_PUT(0, 0)
        if (how == 1) PULSAR_OFFLOAD_PUT(0, 1)
        if (how == 4) PULSAR_OFFLOAD_PUT(0, 4)
        PULSAR_OFFLOAD_PUT(0, how)
    #undef PULSAR_OFFLOAD_PUT
    }
    static PULSAR_OFFLOAD_AVX512 long long pulsar_offload_avx512_delimited(
            const unsigned char* p, long long* group, long long count, const long long* step,
            unsigned char* valid, int blank, long long* below, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            const long long* rows = PULSAR_OFFLOAD_ROWS(group + n);
            if (!pulsar_offload_avx512_step(p, group + n, step, 2, &here, &value)) return -1;
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
            if (valid) pulsar_offload_avx512_mark(valid, rows, here, blank);
            *found += hits;
        }
        return n;
    }
    static PULSAR_OFFLOAD_AVX512 long long pulsar_offload_avx512_numbers(
            const unsigned char* p, long long* group, long long count, const long long* step,
            long long* below, long long* found) {
        __mmask8 here = 0;
        __m512i value;
        long long n = 0;
        for (; n + 8 <= count; n += 8) {
            if (!pulsar_offload_avx512_step(p, group + n, step, 0, &here, &value)) return -1;
            value = _mm512_maskz_mov_epi64(here, value);
            _mm512_storeu_si512(below + n, _mm512_cvtepi32_epi64(_mm512_cvtepi64_epi32(value)));
            _mm512_storeu_si512(
                PULSAR_OFFLOAD_STOPS(below + n), _mm512_maskz_set1_epi64(here, 1));
            *found += __builtin_popcount(here);
        }
        return n;
    }
    /* The items of lists in eight messages at once: first how many each has, then where each item is. */
    #define PULSAR_OFFLOAD_ROUNDS 8
    static PULSAR_OFFLOAD_AVX512 long long pulsar_offload_avx512_items(
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
            if (pulsar_offload_avx512_dense(rows))
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
    static PULSAR_OFFLOAD_AVX512 long long pulsar_offload_avx512_instants(
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
            seconds = pulsar_offload_avx512_join(words, last, &bytes);
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
            nanos = _mm512_maskz_mov_epi64(more, pulsar_offload_avx512_join(words, last, &bytes));
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
            pulsar_offload_avx512_store(to, rows, 1, _mm512_add_epi64(seconds, nanos));
        }
        return n;
    }
    #else
    static int pulsar_offload_find_avx512(void) { return 0; }
    #define pulsar_offload_avx512_furthest pulsar_offload_step_furthest
    #define pulsar_offload_avx512_start pulsar_offload_step_start
    #define pulsar_offload_avx512_over_any(p, group, count, step, found) 0
    #define pulsar_offload_avx512_put_any(p, group, count, step, how, valid, blank, to, found) 0
    #define pulsar_offload_avx512_delimited(p, group, count, step, valid, blank, below, found) 0
    #define pulsar_offload_avx512_numbers(p, group, count, step, below, found) 0
    #define pulsar_offload_avx512_items( \\
        p, group, n, count, step, below, found, items, room, list_ends) (n)
    #define pulsar_offload_avx512_instants(p, group, n, count, units, to) (n)
    #endif
    """
    # Return whether the processor has the instructions.
    int find_avx512 "pulsar_offload_find_avx512"() noexcept
