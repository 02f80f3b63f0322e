# Groups of values with the same op, which `_avro_py.py` reads together, and their bytes.
cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__) && defined(__x86_64__)
    #include <emmintrin.h>
    #endif
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    /* Four varints at a time, as `pulsar_offload_avro_numbers` reads two. */
    __attribute__((target("avx2")))
    static ptrdiff_t pulsar_offload_avro_fours(
            const unsigned char* from, ptrdiff_t* at, const long long* masks, long long* numbers,
            ptrdiff_t n, ptrdiff_t count, unsigned long long* bits) {
        const __m256i zero = _mm256_setzero_si256(), one = _mm256_set1_epi64x(1);
        const __m256i ones = _mm256_set1_epi8(1), top = _mm256_set1_epi8((char)0x80);
        const __m256i low7 = _mm256_set1_epi8(0x7F), pairs = _mm256_set1_epi16((short)0x8001);
        const __m256i weights = _mm256_set1_epi32(0x40000001);
        const __m256i low28 = _mm256_set1_epi64x(0x0FFFFFFF);
        __m256i all = zero, mask = zero;
        uint64_t parts[4];
        for (; count - n >= 4; n += 4) {
            __m256i words, ends, before, number, half, length;
            for (int k = 0; k < 4; k++) memcpy(parts + k, from + at[n + k], 8);
            words = _mm256_set_epi64x(
                (long long)parts[3], (long long)parts[2], (long long)parts[1], (long long)parts[0]);
            if (masks) mask = _mm256_loadu_si256((const __m256i*)(masks + n));
            ends = _mm256_andnot_si256(words, top);
            before = _mm256_sub_epi64(ends, one);
            number = _mm256_andnot_si256(ends, before);
            if (masks) number = _mm256_and_si256(number, mask);
            if (_mm256_movemask_pd(_mm256_castsi256_pd(number))) break;
            before = _mm256_xor_si256(ends, before);
            length = _mm256_sad_epu8(_mm256_and_si256(before, ones), zero);
            words = _mm256_and_si256(words, _mm256_and_si256(before, low7));
            words = _mm256_maddubs_epi16(pairs, words);
            words = _mm256_madd_epi16(words, weights);
            words = _mm256_or_si256(
                _mm256_and_si256(words, low28),
                _mm256_srli_epi64(_mm256_andnot_si256(low28, words), 4));
            half = _mm256_srli_epi64(words, 1);
            number = _mm256_xor_si256(
                half, _mm256_sub_epi64(zero, _mm256_and_si256(words, one)));
            if (masks) {
                half = _mm256_and_si256(half, mask);
                number = _mm256_and_si256(number, mask);
                length = _mm256_and_si256(length, mask);
            }
            all = _mm256_or_si256(all, half);
            _mm256_storeu_si256((__m256i*)(numbers + n), number);
            _mm256_storeu_si256(
                (__m256i*)(at + n),
                _mm256_add_epi64(_mm256_loadu_si256((const __m256i*)(at + n)), length));
        }
        _mm256_storeu_si256((__m256i*)parts, all);
        *bits |= parts[0] | parts[1] | parts[2] | parts[3];
        return n;
    }
    #endif
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("avx2")))
    static ptrdiff_t pulsar_offload_avro_four_nulls(
            const unsigned char* branches, ptrdiff_t* at, ptrdiff_t count, int null_branch,
            long long* masks) {
        const __m256i null = _mm256_set1_epi64x(null_branch), ones = _mm256_set1_epi64x(-1);
        ptrdiff_t n = 0;
        for (; count - n >= 4; n += 4) {
            int four;
            __m256i is_null;
            memcpy(&four, branches + n, 4);
            is_null = _mm256_cmpeq_epi64(_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four)), null);
            _mm256_storeu_si256((__m256i*)(masks + n), _mm256_xor_si256(is_null, ones));
            _mm256_storeu_si256(
                (__m256i*)(at + n),
                _mm256_sub_epi64(_mm256_loadu_si256((const __m256i*)(at + n)), ones));
        }
        return n;
    }
    #endif
    static inline int pulsar_offload_avro_nulls(
            const unsigned char* from, ptrdiff_t* at, ptrdiff_t count, int null_branch,
            unsigned char* valid, long long* masks) {
        unsigned char bits = 0;
        ptrdiff_t n;
        for (n = 0; n < count; n++) valid[n] = from[at[n]];
        n = 0;
    #if defined(__x86_64__) && defined(__GNUC__)
        if (__builtin_cpu_supports("avx2"))
            n = pulsar_offload_avro_four_nulls(valid, at, count, null_branch, masks);
    #endif
        for (; n < count; n++) {
            masks[n] = -(long long)(valid[n] != null_branch);
            at[n]++;
        }
        for (n = 0; n < count; n++) {
            bits |= valid[n];
            valid[n] = valid[n] != null_branch;
        }
        return (bits & 0xFD) == 0;
    }
    /* Two varints at a time: a branch on their lengths is hard to predict. */
    static inline ptrdiff_t pulsar_offload_avro_numbers(
            const unsigned char* from, ptrdiff_t* at, const long long* masks, long long* numbers,
            ptrdiff_t n, ptrdiff_t count, unsigned long long* bits) {
    #if defined(__SSE2__) && defined(__x86_64__)
        const __m128i zero = _mm_setzero_si128(), one = _mm_set1_epi64x(1);
        const __m128i ones = _mm_set1_epi8(1), top = _mm_set1_epi8((char)0x80);
        const __m128i low7 = _mm_set1_epi8(0x7F);
        const __m128i even7 = _mm_set1_epi16(0x007F), odd7 = _mm_set1_epi16(0x7F00);
        const __m128i weights = _mm_set1_epi32(0x40000001);
        const __m128i low28 = _mm_set1_epi64x(0x0FFFFFFF);
        __m128i all = zero, mask = zero;
        uint64_t parts[2];
    #if defined(__GNUC__)
        if (__builtin_cpu_supports("avx2"))
            n = pulsar_offload_avro_fours(from, at, masks, numbers, n, count, bits);
    #endif
        for (; n < count; n += 2) {
            uint64_t first, second;
            __m128i words, ends, before, number, half, sign, length;
            memcpy(&first, from + at[n], 8);
            memcpy(&second, from + at[n + 1], 8);
            words = _mm_set_epi64x((long long)second, (long long)first);
            if (masks) mask = _mm_loadu_si128((const __m128i*)(masks + n));
            ends = _mm_andnot_si128(words, top);
            before = _mm_sub_epi64(ends, one);
            number = _mm_andnot_si128(ends, before);
            if (masks) number = _mm_and_si128(number, mask);
            /* The sign bit is set if no byte ends the number. */
            if (_mm_movemask_pd(_mm_castsi128_pd(number))) break;
            /* The bits of the number and its last byte's highest. */
            before = _mm_xor_si128(ends, before);
            length = _mm_sad_epu8(_mm_and_si128(before, ones), zero);
            words = _mm_and_si128(words, _mm_and_si128(before, low7));
            /* Join the groups of seven bits: by two, four and eight. */
            words = _mm_or_si128(
                _mm_and_si128(words, even7), _mm_srli_epi64(_mm_and_si128(words, odd7), 1));
            words = _mm_madd_epi16(words, weights);
            words = _mm_or_si128(
                _mm_and_si128(words, low28), _mm_srli_epi64(_mm_andnot_si128(low28, words), 4));
            half = _mm_srli_epi64(words, 1);
            sign = _mm_sub_epi64(zero, _mm_and_si128(words, one));
            number = _mm_xor_si128(half, sign);
            if (masks) {
                half = _mm_and_si128(half, mask);
                number = _mm_and_si128(number, mask);
                length = _mm_and_si128(length, mask);
            }
            all = _mm_or_si128(all, half);
            _mm_storeu_si128((__m128i*)(numbers + n), number);
            _mm_storeu_si128(
                (__m128i*)(at + n), _mm_add_epi64(_mm_loadu_si128((const __m128i*)(at + n)), length));
        }
        _mm_storeu_si128((__m128i*)parts, all);
        *bits |= parts[0] | parts[1];
    #endif
        return n;
    }
    #if defined(__x86_64__) && defined(__GNUC__)
    __attribute__((target("avx2")))
    static ptrdiff_t pulsar_offload_avro_four_starts(
            const long long* positions, ptrdiff_t count, ptrdiff_t* at,
            long long* least, long long* most, long long* total) {
        const __m256i low32 = _mm256_set1_epi64x(0xFFFFFFFF);
        const __m256i flip = _mm256_set1_epi64x((long long)0x80000000);
        const __m256i zero = _mm256_setzero_si256();
        __m256i stops = zero, sizes = zero, starts = _mm256_set1_epi64x(*least);
        long long parts[4];
        ptrdiff_t n = 0;
        for (; count - n >= 4; n += 4) {
            __m256i packed = _mm256_loadu_si256((const __m256i*)(positions + n));
            __m256i size = _mm256_and_si256(packed, low32), start, stop;
            /* Shift with the sign, so that a missing payload starts at -1. */
            start = _mm256_sub_epi64(
                _mm256_xor_si256(_mm256_srli_epi64(packed, 32), flip), flip);
            stop = _mm256_add_epi64(start, size);
            sizes = _mm256_add_epi64(sizes, size);
            starts = _mm256_blendv_epi8(starts, start, _mm256_cmpgt_epi64(starts, start));
            stops = _mm256_blendv_epi8(stops, stop, _mm256_cmpgt_epi64(stop, stops));
            _mm256_storeu_si256((__m256i*)(at + n), start);
        }
        _mm256_storeu_si256((__m256i*)parts, starts);
        for (int k = 0; k < 4; k++) if (parts[k] < *least) *least = parts[k];
        _mm256_storeu_si256((__m256i*)parts, stops);
        for (int k = 0; k < 4; k++) if (parts[k] > *most) *most = parts[k];
        _mm256_storeu_si256((__m256i*)parts, sizes);
        *total = parts[0] + parts[1] + parts[2] + parts[3];
        return n;
    }
    #endif
    static inline void pulsar_offload_avro_starts(
            const long long* positions, ptrdiff_t count, ptrdiff_t* at,
            long long* least, long long* most, long long* total) {
        ptrdiff_t n = 0;
        *least = positions[0] >> 32;
        *most = *total = 0;
    #if defined(__x86_64__) && defined(__GNUC__)
        if (__builtin_cpu_supports("avx2"))
            n = pulsar_offload_avro_four_starts(positions, count, at, least, most, total);
    #endif
        for (; n < count; n++) {
            long long start = positions[n] >> 32, size = positions[n] & 0xFFFFFFFF;
            at[n] = (ptrdiff_t)start;
            *total += size;
            if (start < *least) *least = start;
            if (start + size > *most) *most = start + size;
        }
    }
    static inline long long pulsar_offload_avro_blocks(
            unsigned char* to, int* ends, const unsigned char* numbers,
            const unsigned char* constants, const long long* symbols, ptrdiff_t count,
            long long used, size_t block_bytes) {
        for (ptrdiff_t n = 0; n < count; n++) {
            unsigned char block[32];
            const long long text = symbols[numbers[n] >> 1];
            memcpy(block, constants + (text >> 32), block_bytes);
            memcpy(to + used, block, block_bytes);
            used += text & 0xFFFFFFFF;
            ends[n] = (int)used;
        }
        return used;
    }
    static inline long long pulsar_offload_avro_symbols(
            unsigned char* to, int* ends, const unsigned char* from, ptrdiff_t* at,
            const unsigned char* constants, const long long* symbols, long long symbol_count,
            ptrdiff_t count, long long used, long long most) {
        unsigned char numbers[64], greatest = 0, bits = 0;
        ptrdiff_t n;
        for (n = 0; n < count; n++) numbers[n] = from[at[n]];
        for (n = 0; n < count; n++) {
            greatest = numbers[n] > greatest ? numbers[n] : greatest;
            bits |= numbers[n];
            at[n]++;
        }
        if ((bits & 0x81) != 0 || greatest >> 1 >= symbol_count) return -1;
        if (most <= 16)
            return pulsar_offload_avro_blocks(
                to, ends, numbers, constants, symbols, count, used, 16);
        return pulsar_offload_avro_blocks(to, ends, numbers, constants, symbols, count, used, 32);
    }
    static inline unsigned long long pulsar_offload_avro_equal(
            const unsigned char* bytes, ptrdiff_t count, int byte) {
        unsigned long long found = 0;
        ptrdiff_t n = 0;
    #if defined(__SSE2__) && defined(__x86_64__)
        const __m128i wanted = _mm_set1_epi8((char)byte);
        for (; n < count; n += 16)
            found |= (unsigned long long)_mm_movemask_epi8(_mm_cmpeq_epi8(
                _mm_loadu_si128((const __m128i*)(bytes + n)), wanted)) << n;
        if (count < 64) found &= (1ULL << count) - 1;
    #endif
        for (; n < count; n++) found |= (unsigned long long)(bytes[n] == byte) << n;
        return found;
    }
    static inline long long pulsar_offload_avro_items(
            const unsigned char* from, const ptrdiff_t* at, const long long* masks, ptrdiff_t count,
            ptrdiff_t* starts, unsigned char* lists, int* ends, long long first) {
        ptrdiff_t total = 0;
        for (ptrdiff_t n = 0; n < count; n++) {
            const uint64_t numbers = (uint64_t)n * UINT64_C(0x0101010101010101);
            const int size = (int)(from[at[n]] & masks[n]);
            if (size > 16 || (size & 1) != 0) return -1;
            memcpy(lists + total, &numbers, 8);
            total += size >> 1;
            ends[n] = (int)(first + total);
            starts[n] = at[n] - (ptrdiff_t)masks[n];
        }
        return total;
    }
    /* Compilers turn this into one load of swapped bytes. */
    static inline long long pulsar_offload_avro_big_endian(const unsigned char* from) {
        return (long long)(
            (uint64_t)from[0] << 56 | (uint64_t)from[1] << 48 | (uint64_t)from[2] << 40
            | (uint64_t)from[3] << 32 | (uint64_t)from[4] << 24 | (uint64_t)from[5] << 16
            | (uint64_t)from[6] << 8 | (uint64_t)from[7]);
    }
    static inline void pulsar_offload_avro_block(unsigned char* to, const unsigned char* from) {
        unsigned char block[16];
        memcpy(block, from, 16);
        memcpy(to, block, 16);
    }
    static inline void pulsar_offload_avro_run(
            unsigned char* to, const unsigned char* from, long long length) {
        if (length > 16) memcpy(to, from, (size_t)length);
        else pulsar_offload_avro_block(to, from);
    }
    static inline void pulsar_offload_avro_runs(
            unsigned char* to, int* ends, const unsigned char* from, const ptrdiff_t* starts,
            const long long* lengths, ptrdiff_t count, long long used, long long most) {
        ptrdiff_t n;
        unsigned char block[32];
        if (most <= 16) {
            for (n = 0; n < count; n++) {
                memcpy(block, from + starts[n], 16);
                memcpy(to + used, block, 16);
                ends[n] = (int)(used += lengths[n]);
            }
        } else if (most <= 32) {
            for (n = 0; n < count; n++) {
                memcpy(block, from + starts[n], 32);
                memcpy(to + used, block, 32);
                ends[n] = (int)(used += lengths[n]);
            }
        } else {
            for (n = 0; n < count; n++) {
                memcpy(to + used, from + starts[n], lengths[n]);
                ends[n] = (int)(used += lengths[n]);
            }
        }
    }
    """
    # Read the numbers `n` to `count` at these positions, and move the positions to their ends. Eight
    # bytes are readable at each. A number with the mask 0 is a null: 0, in no bytes. Other masks are
    # -1; `masks` is NULL if there are no nulls. `bits` receives the bits of x for each number x or
    # -x - 1. Return the first of two numbers of which one has more than eight bytes; or, if no number
    # does, at least `count`. The arrays must have room for an even number of values.
    Py_ssize_t read_numbers "pulsar_offload_avro_numbers"(
        const unsigned char* at, Py_ssize_t* positions, const long long* masks, long long* numbers,
        Py_ssize_t n, Py_ssize_t count, unsigned long long* bits) noexcept nogil
    # Split the positions of payloads: store where each starts, and set the least start, the most stop
    # and the sum of the lengths. A missing payload starts at -1. There must be a first payload.
    void split_positions "pulsar_offload_avro_starts"(
        const long long* positions, Py_ssize_t count, Py_ssize_t* starts,
        long long* least, long long* most, long long* total) noexcept nogil
    # Read the numbers of up to 64 symbols, of one byte each, copy the symbols' texts one after another,
    # from `used` on, and store their ends. Return the end of all, or -1 if a number is invalid or has
    # more than one byte. No text is longer than `most` <= 32. The target must have room for so many
    # bytes for each value, and `RUN_PADDING` more.
    long long copy_symbols "pulsar_offload_avro_symbols"(
        unsigned char* to, int* ends, const unsigned char* at, Py_ssize_t* positions,
        const unsigned char* constants, const long long* symbols, long long symbol_count,
        Py_ssize_t count, long long used, long long most) noexcept nogil
    # Read the numbers of items of up to 64 lists, of one byte each; a list with the mask 0 is null. Store
    # where the items of each list start, the list of each item, and the end of each list's items,
    # which are numbered from `first` on. Return the number of all items, or -1 if a list has more than
    # eight. `lists` must have `SHORT_LIST_ROOM` bytes.
    long long count_items "pulsar_offload_avro_items"(
        const unsigned char* at, const Py_ssize_t* positions, const long long* masks, Py_ssize_t count,
        Py_ssize_t* starts, unsigned char* lists, int* ends, long long first) noexcept nogil
    # A bit for each of up to 64 bytes that is equal to this one. 64 bytes are readable.
    unsigned long long find_equal "pulsar_offload_avro_equal"(
        const unsigned char* bytes, Py_ssize_t count, int byte) noexcept nogil
    # Read the branches of values in unions of null and another type, and move the positions to their
    # ends. Set for each value whether it is valid, and its mask: -1, or 0 if it is null. Return
    # whether all branches are valid.
    bint read_nulls "pulsar_offload_avro_nulls"(
        const unsigned char* at, Py_ssize_t* positions, Py_ssize_t count, int null_branch,
        unsigned char* valid, long long* masks) noexcept nogil
    # Eight bytes as a big-endian number.
    long long big_endian "pulsar_offload_avro_big_endian"(const unsigned char* at) noexcept nogil
    # Copy 16 bytes; the ranges may overlap.
    void copy_block "pulsar_offload_avro_block"(
        unsigned char* to, const unsigned char* at) noexcept nogil
    # Copy a run of bytes, or 16 bytes if it is shorter.
    void copy_run "pulsar_offload_avro_run"(
        unsigned char* to, const unsigned char* at, long long length) noexcept nogil
    # Copy runs of bytes one after another, from `used` on, and store their ends. No run is longer than
    # `most`. If that is at most 16 or 32, as many bytes are read and written for each run.
    void copy_runs "pulsar_offload_avro_runs"(
        unsigned char* to, int* ends, const unsigned char* at, const Py_ssize_t* starts,
        const long long* lengths, Py_ssize_t count, long long used, long long most) noexcept nogil

cdef enum:
    GROUP_SIZE = 64
    # Unions with more branches are read value by value.
    MAX_BRANCHES = 16
    # Items of a group of lists with up to eight items each, and eight more.
    SHORT_LIST_ROOM = 520
    # Items with more values are found before they are read.
    MAX_COLUMNS = 16
    # Rounds between two sorts of the lists that have more items; less than `GROUP_SIZE`.
    MAX_ROUNDS = 63
    # Bytes that `copy_runs` may copy after a run.
    RUN_PADDING = 32

cdef struct Group:
    # The number of values.
    Py_ssize_t count
    # The rows of the values' node: at least `first`, below `stop`; in ascending order, except in a
    # round. Other rows in this range belong to null records.
    long long first
    long long stop
    # Whether each row in the range has a value.
    bint is_dense
    # The position and the row of each value.
    Py_ssize_t at[GROUP_SIZE]
    long long rows[GROUP_SIZE]

# Where the values of an op are written, one after another.
cdef struct Column:
    Py_ssize_t op
    long long opcode
    Py_ssize_t node
    int null_branch
    # Whether the values are runs of bytes: texts, symbols or bytes.
    bint has_runs
    # Whether integers have eight bytes.
    bint is_wide
    # The scale of integers, or the positions of symbols.
    const long long* links
    unsigned char* valid
    # The values, by their width; `narrow` are the ends of runs.
    unsigned char* flags
    int* narrow
    long long* wide
    # The bytes of runs; the number of bytes that are used, and that may be used.
    unsigned char* bytes
    long long used
    long long room

# The values of each item of a list. If items are records, `null_branch` is that of these, and `valid`
# their flags.
cdef struct Items:
    Py_ssize_t count
    int null_branch
    unsigned char* valid
    # Whether any of the values are runs.
    bint has_runs
    # Whether these are entries of a map, whose values are runs or integers that are not null.
    bint is_map_of_plain
    Column columns[MAX_COLUMNS]
