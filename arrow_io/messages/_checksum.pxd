# The checksum of `checksum.py` in C, by the fastest instructions of the processor.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define PULSAR_OFFLOAD_THIRD 512
    #define PULSAR_OFFLOAD_PREFETCH_BYTES 3072
    static uint32_t pulsar_offload_crc_table[8][256];
    static uint32_t pulsar_offload_crc_shifts[2];
    static uint64_t pulsar_offload_crc_folds[5][2];

    /* x to the power of n. */
    static uint32_t pulsar_offload_crc_power(int n) {
        uint32_t power = 0x80000000u;
        for (; n > 0; n--) power = (power >> 1) ^ (power & 1 ? 0x82F63B78u : 0);
        return power;
    }

    static void pulsar_offload_crc_prepare(void) {
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t crc = n;
            for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
            pulsar_offload_crc_table[0][n] = crc;
        }
        for (int k = 1; k < 8; k++)
            for (uint32_t n = 0; n < 256; n++) {
                uint32_t crc = pulsar_offload_crc_table[k - 1][n];
                pulsar_offload_crc_table[k][n] =
                    (crc >> 8) ^ pulsar_offload_crc_table[0][crc & 255];
            }
        /* A carry-less product with x to the power of 8 n - 33 shifts 8 bytes over n bytes. The
           first factors shift over one third or two thirds, including the last word. The others
           shift each word of a 16-byte lane to the end of the lane that it is folded into, which
           begins `distances[k]` bytes later. */
        for (int thirds = 1; thirds < 3; thirds++)
            pulsar_offload_crc_shifts[thirds - 1] =
                pulsar_offload_crc_power(8 * (PULSAR_OFFLOAD_THIRD * thirds + 8) - 33);
        const int distances[5] = {256, 64, 48, 32, 16};
        for (int k = 0; k < 5; k++)
            for (int word = 0; word < 2; word++)
                pulsar_offload_crc_folds[k][word] =
                    pulsar_offload_crc_power(8 * (distances[k] + 8 * (1 - word)) - 33);
    }

    /* Eight bytes at a time, by tables. */
    static uint32_t pulsar_offload_crc_by_tables(uint32_t crc, const unsigned char* at, long long n) {
        uint32_t (*table)[256] = pulsar_offload_crc_table;
        for (; n >= 8; n -= 8, at += 8) {
            crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16
                | (uint32_t)at[3] << 24;
            crc = table[7][crc & 255] ^ table[6][(crc >> 8) & 255]
                ^ table[5][(crc >> 16) & 255] ^ table[4][crc >> 24]
                ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
        }
        for (; n > 0; n--, at++) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 255];
        return crc;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define PULSAR_OFFLOAD_CRC __attribute__((target("sse4.2,pclmul")))

    /* The instruction has a latency of three cycles and a throughput of one, so three lanes run in
       parallel. Carry-less products shift the checksums of the first two lanes over the bytes after
       them. The hardware prefetcher does not recognize the three lanes, hence the prefetches. */
    PULSAR_OFFLOAD_CRC
    static uint32_t pulsar_offload_crc_by_instruction(
            uint32_t crc, const unsigned char* at, long long n) {
        const long long third = PULSAR_OFFLOAD_THIRD;
        uint64_t a = crc, b, c, first, second, last;
        for (; n >= 3 * third + 8; n -= 3 * third + 8, at += 2 * third + 8) {
            const unsigned char* end = at + third;
            for (long long line = 0; line < 3 * third; line += 64)
                __builtin_prefetch(at + PULSAR_OFFLOAD_PREFETCH_BYTES + line);
            for (b = c = 0; at < end; at += 8) {
                memcpy(&first, at, 8);
                memcpy(&second, at + third, 8);
                memcpy(&last, at + 2 * third, 8);
                a = _mm_crc32_u64(a, first);
                b = _mm_crc32_u64(b, second);
                c = _mm_crc32_u64(c, last);
            }
            memcpy(&last, at + 2 * third, 8);
            last ^= (uint64_t)_mm_cvtsi128_si64(_mm_xor_si128(
                _mm_clmulepi64_si128(
                    _mm_cvtsi64_si128((long long)a),
                    _mm_cvtsi64_si128((long long)pulsar_offload_crc_shifts[1]), 0),
                _mm_clmulepi64_si128(
                    _mm_cvtsi64_si128((long long)b),
                    _mm_cvtsi64_si128((long long)pulsar_offload_crc_shifts[0]), 0)));
            a = _mm_crc32_u64(c, last);
        }
        for (; n >= 8; n -= 8, at += 8) {
            memcpy(&first, at, 8);
            a = _mm_crc32_u64(a, first);
        }
        for (; n > 0; n--, at++) a = _mm_crc32_u8((uint32_t)a, *at);
        return (uint32_t)a;
    }

    #if __GNUC__ >= 10 || defined(__clang__)
    #define PULSAR_OFFLOAD_CRC_FOLDS
    #define PULSAR_OFFLOAD_FOLD \
        __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

    PULSAR_OFFLOAD_FOLD
    static inline __m512i pulsar_offload_crc_fold(__m512i lanes, __m512i factors) {
        return _mm512_xor_si512(
            _mm512_clmulepi64_epi128(lanes, factors, 0x00),
            _mm512_clmulepi64_epi128(lanes, factors, 0x11));
    }

    /* Fold 256 bytes at a time into the next 256. The remainder has the same checksum as all bytes,
       if its computation does not start with ones again. */
    PULSAR_OFFLOAD_FOLD
    static uint32_t pulsar_offload_crc_by_folding(
            uint32_t crc, const unsigned char* at, long long n) {
        if (n < 256) return pulsar_offload_crc_by_instruction(crc, at, n);
        const uint64_t (*by)[2] = (const uint64_t (*)[2])pulsar_offload_crc_folds;
        __m512i factors = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)by[0]));
        __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
        __m512i c = _mm512_loadu_si512(at + 128), d = _mm512_loadu_si512(at + 192);
        a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
        for (at += 256, n -= 256; n >= 256; at += 256, n -= 256) {
            a = _mm512_xor_si512(
                pulsar_offload_crc_fold(a, factors), _mm512_loadu_si512(at));
            b = _mm512_xor_si512(
                pulsar_offload_crc_fold(b, factors), _mm512_loadu_si512(at + 64));
            c = _mm512_xor_si512(
                pulsar_offload_crc_fold(c, factors), _mm512_loadu_si512(at + 128));
            d = _mm512_xor_si512(
                pulsar_offload_crc_fold(d, factors), _mm512_loadu_si512(at + 192));
        }
        factors = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)by[1]));
        a = _mm512_xor_si512(pulsar_offload_crc_fold(a, factors), b);
        a = _mm512_xor_si512(pulsar_offload_crc_fold(a, factors), c);
        a = _mm512_xor_si512(pulsar_offload_crc_fold(a, factors), d);
        /* The last 16 bytes are not shifted. */
        factors = _mm512_maskz_loadu_epi64(0x3F, by[2]);
        b = pulsar_offload_crc_fold(a, factors);
        __m128i last = _mm_xor_si128(
            _mm_xor_si128(_mm512_extracti32x4_epi32(b, 0), _mm512_extracti32x4_epi32(b, 1)),
            _mm_xor_si128(_mm512_extracti32x4_epi32(b, 2), _mm512_extracti32x4_epi32(a, 3)));
        uint64_t left = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last));
        left = _mm_crc32_u64(left, (uint64_t)_mm_extract_epi64(last, 1));
        /* Without it the following code runs up to three times slower; the compiler does not insert
           it before a tail call. */
        _mm256_zeroupper();
        return pulsar_offload_crc_by_instruction((uint32_t)left, at, n);
    }
    #endif

    /* The fastest implementation that the processor supports. */
    static int pulsar_offload_crc_ways(void) {
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return 0;
    #ifdef PULSAR_OFFLOAD_CRC_FOLDS
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")
                && __builtin_cpu_supports("vpclmulqdq")) return 2;
    #endif
        return 1;
    }
    #elif defined(__ARM_FEATURE_CRC32)
    #include <arm_acle.h>

    static uint32_t pulsar_offload_crc_by_instruction(
            uint32_t crc, const unsigned char* at, long long n) {
        uint64_t word;
        for (; n >= 8; n -= 8, at += 8) { memcpy(&word, at, 8); crc = __crc32cd(crc, word); }
        for (; n > 0; n--, at++) crc = __crc32cb(crc, *at);
        return crc;
    }
    static int pulsar_offload_crc_ways(void) { return 1; }
    #else
    #define pulsar_offload_crc_by_instruction pulsar_offload_crc_by_tables
    static int pulsar_offload_crc_ways(void) { return 0; }
    #endif
    #ifndef PULSAR_OFFLOAD_CRC_FOLDS
    #define pulsar_offload_crc_by_folding pulsar_offload_crc_by_instruction
    #endif

    static int pulsar_offload_crc_way = -1;

    static int pulsar_offload_crc_choose(int fastest) {
        pulsar_offload_crc_prepare();
        const int supported = pulsar_offload_crc_ways();
        pulsar_offload_crc_way = fastest < supported ? fastest : supported;
        return pulsar_offload_crc_way;
    }

    static inline long long pulsar_offload_crc32c(const unsigned char* at, long long i, long long n) {
        const uint32_t ones = ~(uint32_t)0;
        uint32_t crc;
        switch (pulsar_offload_crc_way) {
            case 2: crc = pulsar_offload_crc_by_folding(ones, at + i, n); break;
            case 1: crc = pulsar_offload_crc_by_instruction(ones, at + i, n); break;
            default: crc = pulsar_offload_crc_by_tables(ones, at + i, n);
        }
        return (long long)(uint32_t)~crc;
    }
    """
    # Choose the implementation before the first checksum: 0 lookup tables, 1 the processor's
    # instruction, 2 carry-less products of 64-byte vectors. Returns the one in use, which is slower
    # if the processor lacks it.
    int choose_crc32c "pulsar_offload_crc_choose"(int fastest) noexcept nogil
    # Return the CRC32C of the n bytes from at[i].
    long long crc32c "pulsar_offload_crc32c"(
        const unsigned char* at, long long i, long long n) noexcept nogil
