# The checksum of `checksum.py`, as C makes it: by the processor's own instruction where it has one.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define PULSAR_OFFLOAD_THIRD 512
    #define PULSAR_OFFLOAD_AHEAD 3072
    static uint32_t pulsar_offload_crc_table[8][256];
    static uint32_t pulsar_offload_crc_over[2];

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
        /* x to the power of 8 n - 33, of one third and of two, each with the last word. */
        for (int thirds = 1; thirds < 3; thirds++) {
            uint32_t power = 0x80000000u;
            for (int n = 8 * (PULSAR_OFFLOAD_THIRD * thirds + 8) - 33; n > 0; n--)
                power = (power >> 1) ^ (power & 1 ? 0x82F63B78u : 0);
            pulsar_offload_crc_over[thirds - 1] = power;
        }
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

    /* The instruction takes three cycles, and can begin in each: three lanes go side by side. The
       first two checksums are moved over what stands behind them by a product without carry. The
       processor does not see that the lanes go through memory one behind the other, so it is told. */
    PULSAR_OFFLOAD_CRC
    static uint32_t pulsar_offload_crc_by_instruction(
            uint32_t crc, const unsigned char* at, long long n) {
        const long long third = PULSAR_OFFLOAD_THIRD;
        uint64_t a = crc, b, c, first, second, last;
        for (; n >= 3 * third + 8; n -= 3 * third + 8, at += 2 * third + 8) {
            const unsigned char* end = at + third;
            for (long long line = 0; line < 3 * third; line += 64)
                __builtin_prefetch(at + PULSAR_OFFLOAD_AHEAD + line);
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
                    _mm_cvtsi64_si128((long long)pulsar_offload_crc_over[1]), 0),
                _mm_clmulepi64_si128(
                    _mm_cvtsi64_si128((long long)b),
                    _mm_cvtsi64_si128((long long)pulsar_offload_crc_over[0]), 0)));
            a = _mm_crc32_u64(c, last);
        }
        for (; n >= 8; n -= 8, at += 8) {
            memcpy(&first, at, 8);
            a = _mm_crc32_u64(a, first);
        }
        for (; n > 0; n--, at++) a = _mm_crc32_u8((uint32_t)a, *at);
        return (uint32_t)a;
    }

    static int pulsar_offload_crc_has_instruction(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
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
    static int pulsar_offload_crc_has_instruction(void) { return 1; }
    #else
    #define pulsar_offload_crc_by_instruction pulsar_offload_crc_by_tables
    static int pulsar_offload_crc_has_instruction(void) { return 0; }
    #endif

    static int pulsar_offload_crc_is_fast = -1;

    static int pulsar_offload_crc_choose(int by_tables) {
        pulsar_offload_crc_prepare();
        pulsar_offload_crc_is_fast = !by_tables && pulsar_offload_crc_has_instruction();
        return pulsar_offload_crc_is_fast;
    }

    static inline long long pulsar_offload_crc32c(const unsigned char* at, long long i, long long n) {
        uint32_t crc = pulsar_offload_crc_is_fast
            ? pulsar_offload_crc_by_instruction(~(uint32_t)0, at + i, n)
            : pulsar_offload_crc_by_tables(~(uint32_t)0, at + i, n);
        return (long long)(uint32_t)~crc;
    }
    """
    # Choose how checksums are made, before the first is; whether that is by an instruction.
    int choose_crc32c "pulsar_offload_crc_choose"(int by_tables) noexcept nogil
    # The CRC32C of the n bytes from at[i] on.
    long long crc32c "pulsar_offload_crc32c"(
        const unsigned char* at, long long i, long long n) noexcept nogil
