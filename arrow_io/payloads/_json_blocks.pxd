# Reading of JSON text in blocks of bytes. Most values are handled here; for the others, and in Python,
# the callers read byte by byte. Bytes up to `limit` are readable, those from `stop` are ignored.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    static inline int pulsar_offload_json_is_space(unsigned char c) {
        return c <= 0x20 && (c == 0x20 || c == 0x0A || c == 0x0D || c == 0x09);
    }
    static inline int pulsar_offload_json_ends(unsigned char c) {
        return c == 0x2C || c == 0x7D || c == 0x5D || pulsar_offload_json_is_space(c);
    }
    static inline long long pulsar_offload_json_space(
            const unsigned char* from, long long i, long long stop) {
        while (i < stop && pulsar_offload_json_is_space(from[i])) i++;
        return i;
    }
    static const uint64_t pulsar_offload_json_powers[16] = {
        1ull, 10ull, 100ull, 1000ull, 10000ull, 100000ull, 1000000ull, 10000000ull, 100000000ull,
        1000000000ull, 10000000000ull, 100000000000ull, 1000000000000ull, 10000000000000ull,
        100000000000000ull, 1000000000000000ull};
    #if defined(__SSE2__)
    static inline unsigned int pulsar_offload_json_special(__m128i bytes) {
        return _mm_movemask_epi8(_mm_or_si128(
            _mm_or_si128(
                _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x22)),
                _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x5C))),
            _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes)));
    }
    /* The number of leading digits of 16 bytes. */
    static inline int pulsar_offload_json_count(const unsigned char* at) {
        __m128i bytes = _mm_sub_epi8(_mm_loadu_si128((const __m128i*)at), _mm_set1_epi8(0x30));
        __m128i digits = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(9)), bytes);
        return __builtin_ctz(~(unsigned int)_mm_movemask_epi8(digits));
    }
    /* A number of 1 to 8 digits: two by two, then four by four, then all. */
    static inline uint64_t pulsar_offload_json_digits(uint64_t word, int count) {
        word = (word << (64 - 8 * count)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
        word = (word * 10 + (word >> 8)) & UINT64_C(0x00FF00FF00FF00FF);
        word = (word * 100 + (word >> 16)) & UINT64_C(0x0000FFFF0000FFFF);
        return (word * 10000 + (word >> 32)) & UINT64_C(0xFFFFFFFF);
    }
    static inline uint64_t pulsar_offload_json_eight(const unsigned char* at, int count) {
        uint64_t word;
        memcpy(&word, at, 8);
        return pulsar_offload_json_digits(word, count);
    }
    /* A number of 1 to 16 digits. */
    static inline uint64_t pulsar_offload_json_sixteen(const unsigned char* at, int count) {
        if (count <= 8) return pulsar_offload_json_eight(at, count);
        return pulsar_offload_json_eight(at, 8) * pulsar_offload_json_powers[count - 8]
            + pulsar_offload_json_eight(at + 8, count - 8);
    }
    #endif

    static inline long long pulsar_offload_json_text(
            const unsigned char* from, long long i, long long stop, long long limit,
            unsigned char* to, long long room, unsigned int* high) {
    #if defined(__SSE2__)
        unsigned int above = 0;
        for (; limit - i >= 16 && room >= 16; i += 16, to += 16, room -= 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i*)(from + i));
            unsigned int found = pulsar_offload_json_special(bytes);
            unsigned int all = _mm_movemask_epi8(bytes);
            _mm_storeu_si128((__m128i*)to, bytes);
            if (found != 0) {
                *high = above | (all & (found - 1) & ~found);
                i += __builtin_ctz(found);
                return i < stop && from[i] == 0x22 ? i : -1;
            }
            above |= all;
        }
    #endif
        return -1;
    }

    #if defined(__SSE2__)
    static inline int pulsar_offload_json_hex(unsigned char c) {
        const unsigned int digit = c - 0x30u, letter = (c | 0x20u) - 0x61u;
        return digit < 10 ? (int)digit : letter < 6 ? (int)letter + 10 : -0x10000;
    }
    /* A UTF-16 unit; negative if a digit is malformed. */
    static inline int pulsar_offload_json_unit(const unsigned char* at) {
        return pulsar_offload_json_hex(at[0]) * 0x1000 + pulsar_offload_json_hex(at[1]) * 0x100
            + pulsar_offload_json_hex(at[2]) * 0x10 + pulsar_offload_json_hex(at[3]);
    }
    static inline unsigned char pulsar_offload_json_letter(unsigned char c) {
        switch (c) {
            case 0x22: case 0x5C: case 0x2F: return c;
            case 0x6E: return 0x0A;
            case 0x74: return 0x09;
            case 0x72: return 0x0D;
            case 0x62: return 0x08;
            case 0x66: return 0x0C;
            default: return 0;
        }
    }
    /* Write the character of an escape, of up to 12 bytes; return its length, or 0. */
    static inline int pulsar_offload_json_escape(
            const unsigned char* at, unsigned char* to, int* written) {
        int length = 6, unit;
        if (at[1] != 0x75) {
            *to = pulsar_offload_json_letter(at[1]);
            *written = 1;
            return *to != 0 ? 2 : 0;
        }
        unit = pulsar_offload_json_unit(at + 2);
        if (unit < 0) return 0;
        if ((unit & 0xFC00) == 0xD800 && at[6] == 0x5C && at[7] == 0x75) {
            const int low = pulsar_offload_json_unit(at + 8);
            if (low < 0 || (low & 0xFC00) != 0xDC00) return 0;
            unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            length = 12;
        }
        if ((unit & 0xFFFFF800) == 0xD800) return 0;
        *written = unit < 0x80 ? 1 : unit < 0x800 ? 2 : unit < 0x10000 ? 3 : 4;
        if (unit < 0x80) {
            to[0] = (unsigned char)unit;
            return length;
        }
        for (int n = *written - 1; n > 0; n--, unit >>= 6) to[n] = (unsigned char)(0x80 | (unit & 0x3F));
        to[0] = (unsigned char)((0xF00 >> *written) & 0xF0) | (unsigned char)unit;
        return length;
    }
    #endif

    static __attribute__((noinline)) long long pulsar_offload_json_unescape(
            const unsigned char* from, long long i, long long stop, long long limit,
            unsigned char* to, long long room, long long* length, unsigned int* high) {
    #if defined(__SSE2__)
        const unsigned char* start = to;
        unsigned int above = 0;
        while (limit - i >= 32 && room >= 32) {
            const __m128i bytes = _mm_loadu_si128((const __m128i*)(from + i));
            const unsigned int found = pulsar_offload_json_special(bytes);
            const unsigned int all = _mm_movemask_epi8(bytes);
            int count = 16, read, written;
            _mm_storeu_si128((__m128i*)to, bytes);
            if (found == 0) {
                above |= all;
                read = written = 16;
            } else {
                count = __builtin_ctz(found);
                above |= all & (found - 1) & ~found;
                if (from[i + count] == 0x22) {
                    *length = to + count - start;
                    *high = above;
                    return i + count < stop ? i + count : -1;
                }
                if (from[i + count] != 0x5C) return -1;
                read = pulsar_offload_json_escape(from + i + count, to + count, &written);
                if (read == 0) return -1;
                read += count;
                written += count;
            }
            i += read;
            to += written;
            room -= written;
        }
    #endif
        return -1;
    }

    static inline int pulsar_offload_json_begins(
            const unsigned char* from, long long i, long long limit,
            const unsigned char* name, long long n) {
    #if defined(__SSE2__)
        if (limit - i >= 32) {
            for (; n > 16; i += 16, name += 16, n -= 16) {
                __m128i bytes = _mm_loadu_si128((const __m128i*)(from + i));
                __m128i letters = _mm_loadu_si128((const __m128i*)name);
                if (_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, letters)) != 0xFFFF) return 0;
                if (limit - i < 48) return memcmp(from + i + 16, name + 16, n - 16) == 0;
            }
            __m128i bytes = _mm_loadu_si128((const __m128i*)(from + i));
            __m128i letters = _mm_loadu_si128((const __m128i*)name);
            unsigned int same = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, letters));
            return __builtin_ctz(~same) >= n;
        }
    #endif
        return memcmp(from + i, name, n) == 0;
    }

    static inline uint64_t pulsar_offload_json_load(const unsigned char* at, long long n) {
        uint64_t word = 0;
        for (long long k = 0; k < n; k++) word |= (uint64_t)at[k] << 8 * k;
        return word;
    }
    static inline uint64_t pulsar_offload_json_mix(uint64_t number) {
        number *= UINT64_C(0x9E3779B97F4A7C15);
        return number ^ number >> 32;
    }
    static inline long long pulsar_offload_json_slot(const long long* table, uint64_t hash) {
        return (long long)(hash * (uint64_t)table[2] >> table[3]) * 4 + 4;
    }
    static inline long long pulsar_offload_json_first(
            const long long* table, const unsigned char* name, long long n) {
        const long long offset = table[0];
        const uint64_t mask = (uint64_t)table[1];
        uint64_t number = (uint64_t)n;
        if (mask != 0) {
            const long long rest = n + 1 - offset;
            return pulsar_offload_json_slot(table, mask & (rest <= 0 ? 0
                : pulsar_offload_json_load(name + offset, rest < 8 ? rest : 8)));
        }
        for (long long k = 0; n - k >= 8; k += 8)
            number = pulsar_offload_json_mix(number + pulsar_offload_json_load(name + k, 8));
        return pulsar_offload_json_slot(table, number
            + (n < 8 ? pulsar_offload_json_load(name, n) : pulsar_offload_json_load(name + n - 8, 8)));
    }
    #if defined(__SSE2__)
    /* The length of a name, which a quote must end; -1 if it is empty or has escapes. */
    static inline long long pulsar_offload_json_length(const unsigned char* name, long long room) {
        long long n = 0;
        unsigned int found;
        while ((found = pulsar_offload_json_special(
                _mm_loadu_si128((const __m128i*)(name + n)))) == 0)
            if (room - (n += 16) < 16) return -1;
        n += __builtin_ctz(found);
        return name[n] == 0x22 && n > 0 ? n : -1;
    }
    #endif

    static inline long long pulsar_offload_json_name(
            const unsigned char* from, long long i, long long limit,
            const unsigned char* constants, const long long* table) {
    #if defined(__SSE2__)
        const unsigned char* name = from + i + 1;
        long long n = -1, slot, position;
        uint64_t mask = (uint64_t)table[1], word;
        if (limit - i < 64 + table[0] || from[i] != 0x22) return -1;
        if (mask != 0) {
            memcpy(&word, name + table[0], 8);
            slot = pulsar_offload_json_slot(table, word & mask);
        } else {
            uint64_t number;
            n = pulsar_offload_json_length(name, limit - i - 1);
            if (n < 0) return -1;
            number = (uint64_t)n;
            for (long long k = 0; n - k >= 8; k += 8) {
                memcpy(&word, name + k, 8);
                number = pulsar_offload_json_mix(number + word);
            }
            memcpy(&word, n < 8 ? name : name + n - 8, 8);
            if (n < 8) word &= ~UINT64_C(0) >> (64 - 8 * n);
            slot = pulsar_offload_json_slot(table, number + word);
        }
        for (; (position = table[slot]) >= 0; slot += 4) {
            const long long length = (position & 0xFFFFFFFF) - 1;
            if (length <= limit - i && pulsar_offload_json_begins(
                    from, i, limit, constants + (position >> 32), length))
                return slot << 32 | length;
        }
        if (n < 0) n = pulsar_offload_json_length(name, limit - i - 1);
        return n < 0 ? -1 : slot << 32 | (n + 2);
    #else
        return -1;
    #endif
    }

    static inline long long pulsar_offload_json_near_name(
            const unsigned char* from, long long i, const unsigned char* constants,
            const long long* table) {
    #if defined(__SSE2__)
        uint64_t mask = (uint64_t)table[1], word;
        long long slot, position;
        __m128i bytes, letters;
        if (mask == 0 || table[0] > 32) return -1;
        memcpy(&word, from + i + 1 + table[0], 8);
        slot = pulsar_offload_json_slot(table, word & mask);
        position = table[slot];
        if (position < 0 || (position & 0xFFFFFFFF) > 16) return -1;
        bytes = _mm_loadu_si128((const __m128i*)(from + i));
        letters = _mm_loadu_si128((const __m128i*)(constants + (position >> 32)));
        return __builtin_ctz(~_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, letters)))
            >= (position & 0xFFFFFFFF) ? slot : -1;
    #else
        return -1;
    #endif
    }

    static inline long long pulsar_offload_json_symbol(
            const unsigned char* from, long long i, long long stop, long long limit,
            const unsigned char* constants, const long long* positions, long long count,
            unsigned char* to, long long room) {
    #if defined(__SSE2__)
        if (limit - i >= 16 && room >= 16 && count <= 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i*)(from + i));
            int length = __builtin_ctz(pulsar_offload_json_special(bytes) | 0x10000), found = 0;
            unsigned int letters = (1u << length) - 1;
            if (length == 16 || i + length >= stop || from[i + length] != 0x22) return -1;
            /* Compare all of them: a branch would be unpredictable. */
            for (long long k = 0; k < count; k++) {
                __m128i symbol = _mm_loadu_si128((const __m128i*)(constants + (positions[k] >> 32)));
                unsigned int same = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, symbol));
                found |= ((positions[k] & 0xFFFFFFFF) == length) & ((same & letters) == letters);
            }
            _mm_storeu_si128((__m128i*)to, bytes);
            return found ? i + length : -1;
        }
    #endif
        return -1;
    }

    #if defined(__x86_64__) && defined(__SSE2__)
    static inline __m128i pulsar_offload_json_range(__m128i bytes, char first, char last) {
        __m128i places = _mm_sub_epi8(bytes, _mm_set1_epi8(first));
        return _mm_cmpeq_epi8(_mm_min_epu8(places, _mm_set1_epi8(last - first)), places);
    }
    /* Write the 12 bytes of 16 Base64 digits, and 2 more; return the number of leading digits. */
    static inline int pulsar_offload_json_sextets(__m128i bytes, unsigned char* to) {
        __m128i upper = pulsar_offload_json_range(bytes, 'A', 'Z');
        __m128i lower = pulsar_offload_json_range(bytes, 'a', 'z');
        __m128i digit = pulsar_offload_json_range(bytes, '0', '9');
        __m128i plus = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('+'));
        __m128i slash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('/'));
    #define PULSAR_OFFLOAD_MOVE(by) _mm_set1_epi8((char)(by))
        __m128i moves = _mm_or_si128(
            _mm_or_si128(
                _mm_and_si128(upper, PULSAR_OFFLOAD_MOVE(-'A')),
                _mm_and_si128(lower, PULSAR_OFFLOAD_MOVE(26 - 'a'))),
            _mm_or_si128(
                _mm_and_si128(digit, PULSAR_OFFLOAD_MOVE(52 - '0')),
                _mm_or_si128(
                    _mm_and_si128(plus, PULSAR_OFFLOAD_MOVE(62 - '+')),
                    _mm_and_si128(slash, PULSAR_OFFLOAD_MOVE(63 - '/')))));
    #undef PULSAR_OFFLOAD_MOVE
        __m128i known = _mm_or_si128(
            _mm_or_si128(upper, lower), _mm_or_si128(digit, _mm_or_si128(plus, slash)));
        /* 6 bits of each byte, 12 of each 2 bytes, 24 of 4, 48 of 8; the first ones are the highest. */
        __m128i six = _mm_add_epi8(bytes, moves);
        __m128i twelve = _mm_or_si128(
            _mm_and_si128(_mm_slli_epi16(six, 6), _mm_set1_epi16(0x0FC0)), _mm_srli_epi16(six, 8));
        __m128i more = _mm_madd_epi16(twelve, _mm_set1_epi32(0x00011000));
        __m128i all = _mm_or_si128(
            _mm_slli_epi64(more, 40), _mm_slli_epi64(_mm_srli_epi64(more, 32), 16));
        uint64_t first = __builtin_bswap64((uint64_t)_mm_cvtsi128_si64(all));
        uint64_t second = __builtin_bswap64(
            (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(all, all)));
        memcpy(to, &first, 8);
        memcpy(to + 6, &second, 8);
        return __builtin_ctz(~(unsigned int)_mm_movemask_epi8(known));
    }
    #endif

    static inline long long pulsar_offload_json_base64(
            const unsigned char* from, long long i, long long stop, long long limit,
            unsigned char* to, long long room, long long* length) {
    #if defined(__x86_64__) && defined(__SSE2__)
        const long long start = i;
        for (*length = 0; limit - i >= 32 && room - *length >= 16; i += 16, *length += 12) {
            __m128i bytes = _mm_loadu_si128((const __m128i*)(from + i));
            int digits = __builtin_ctz(pulsar_offload_json_special(bytes) | 0x10000);
            int known = pulsar_offload_json_sextets(bytes, to + *length);
            if (i + digits >= stop) return -1;
            if (digits == 16 && from[i + 16] != 0x22) {
                if (known < 16) return -1;
                continue;
            }
            if (from[i + digits] != 0x22) return -1;
            const long long end = i + digits;
            if (digits > 0 && (end - start) % 4 == 0) {
                /* Remove padding without branches, which would be unpredictable. */
                digits -= from[i + digits - 1] == 0x3D;
                digits -= (from[i + digits - 1] == 0x3D) & (digits % 4 == 3);
            }
            if (known < digits || digits % 4 == 1) return -1;
            *length += digits * 6 / 8;
            return end;
        }
    #endif
        return -1;
    }

    static inline int pulsar_offload_json_word(
            const unsigned char* from, long long i, long long stop, uint64_t letters, int length) {
        uint64_t word = 0;
        if (stop - i < length) return 0;
        if (stop - i >= 8) {
            for (int n = 0; n < 8; n++) word = word << 8 | from[i + n];
            return word >> (64 - 8 * length) == letters;
        }
        for (int n = 0; n < length; n++) word = word << 8 | from[i + n];
        return word == letters;
    }

    static inline int pulsar_offload_json_boolean(const unsigned char* at) {
        uint32_t word, is_true, is_false;
        memcpy(&word, at, 4);
        is_true = memcmp(&word, "true", 4) == 0;
        is_false = (memcmp(&word, "false", 4) == 0) & (at[4] == 0x65);
        return (is_true | is_false) != 0 ? (int)is_true : -1;
    }

    static inline long long pulsar_offload_json_whole(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* number) {
    #if defined(__SSE2__)
        if (limit - i >= 32) {
            int negative = from[i] == 0x2D;
            const unsigned char* at = from + i + negative;
            int count = pulsar_offload_json_count(at);
            i += negative + count;
            if (count >= 1 && count <= 15 && i < stop && pulsar_offload_json_ends(from[i])
                    && (at[0] != 0x30 || count == 1)) {
                long long value = (long long)pulsar_offload_json_sixteen(at, count);
                *number = negative ? -value : value;
                return i;
            }
        }
    #endif
        return -1;
    }

    /* Not inlined: most integers are shorter. */
    static __attribute__((noinline)) long long pulsar_offload_json_long(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* number) {
    #if defined(__SSE2__)
        if (limit - i >= 64) {
            int negative = from[i] == 0x2D;
            const unsigned char* at = from + i + negative;
            int more = pulsar_offload_json_count(at + 16);
            i += negative + 16 + more;
            if (pulsar_offload_json_count(at) == 16 && more <= 3 && i < stop
                    && pulsar_offload_json_ends(from[i]) && at[0] != 0x30) {
                uint64_t value = pulsar_offload_json_sixteen(at, 16);
                if (more > 0)
                    value = value * pulsar_offload_json_powers[more]
                        + pulsar_offload_json_eight(at + 16, more);
                if (value > INT64_MAX) return -1;
                *number = negative ? -(long long)value : (long long)value;
                return i;
            }
        }
    #endif
        return -1;
    }

    /* The sign, digits and point of a number, all found independently in one block. A number that is
       longer than the block ends with it. */
    typedef struct { int negative, count, decimals, length; } pulsar_offload_json_parts;
    #if defined(__SSE2__)
    static inline int pulsar_offload_json_split(
            const unsigned char* at, pulsar_offload_json_parts* parts) {
        __m128i bytes = _mm_loadu_si128((const __m128i*)at);
        __m128i values = _mm_sub_epi8(bytes, _mm_set1_epi8(0x30));
        unsigned int digits = _mm_movemask_epi8(
            _mm_cmpeq_epi8(_mm_min_epu8(values, _mm_set1_epi8(9)), values));
        unsigned int points = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x2E)));
        int negative = at[0] == 0x2D, length = __builtin_ctz(~(digits | negative)), decimals = 0;
        if (length == negative || (at[negative] == 0x30 && length > negative + 1)) return 0;
        parts->negative = negative;
        parts->count = length - negative;
        if (points >> length & 1) {
            decimals = __builtin_ctz(~(digits >> (length + 1)));
            if (decimals == 0) return 0;
            length += 1 + decimals;
        }
        parts->decimals = decimals;
        parts->length = length;
        return 1;
    }
    /* The position after a number with up to 15 digits, or -1. */
    static inline long long pulsar_offload_json_exact(
            const unsigned char* from, long long i, long long stop, long long limit,
            pulsar_offload_json_parts* parts) {
        if (limit - i < 64 || !pulsar_offload_json_split(from + i, parts)) return -1;
        if (parts->decimals > 0 && parts->length == 16) {
            int more = pulsar_offload_json_count(from + i + 16);
            parts->decimals += more;
            parts->length += more;
        }
        i += parts->length;
        return parts->count + parts->decimals <= 15 && i < stop
            && pulsar_offload_json_ends(from[i]) ? i : -1;
    }
    /* The digits before and after the point, as one number. */
    static inline uint64_t pulsar_offload_json_mantissa(
            const unsigned char* at, int count, int decimals) {
        if (decimals > 0 && count + decimals <= 8) {
            uint64_t before, without, point = UINT64_C(1) << 8 * count;
            memcpy(&before, at, 8);
            memcpy(&without, at + 1, 8);
            before = (before & (point - 1)) | (without & -point);
            return pulsar_offload_json_digits(before, count + decimals);
        }
        if (decimals == 0) return pulsar_offload_json_sixteen(at, count);
        return pulsar_offload_json_sixteen(at, count) * pulsar_offload_json_powers[decimals]
            + pulsar_offload_json_sixteen(at + count + 1, decimals);
    }
    #endif

    static inline long long pulsar_offload_json_fraction(
            const unsigned char* from, long long i, long long stop, long long limit,
            const double* powers, double* number) {
    #if defined(__SSE2__)
        pulsar_offload_json_parts parts;
        const long long end = pulsar_offload_json_exact(from, i, stop, limit, &parts);
        if (end >= 0) {
            /* Both operands are exact, so the only rounding gives the nearest number. */
            double value = (double)(long long)pulsar_offload_json_mantissa(
                from + i + parts.negative, parts.count, parts.decimals) / powers[parts.decimals];
            *number = parts.negative ? -value : value;
            return end;
        }
    #endif
        return -1;
    }

    static inline long long pulsar_offload_json_decimal(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long precision, long long scale, long long* number) {
    #if defined(__SSE2__)
        pulsar_offload_json_parts parts;
        const long long end = pulsar_offload_json_exact(from, i, stop, limit, &parts);
        if (end >= 0 && parts.decimals <= scale && scale <= 15 && parts.count + scale <= 18
                && parts.count + scale <= precision) {
            long long value = (long long)(pulsar_offload_json_mantissa(
                from + i + parts.negative, parts.count, parts.decimals)
                * pulsar_offload_json_powers[scale - parts.decimals]);
            *number = parts.negative ? -value : value;
            return end;
        }
    #endif
        return -1;
    }

    static inline long long pulsar_offload_json_number(
            const unsigned char* from, long long i, long long stop, long long limit) {
    #if defined(__SSE2__)
        pulsar_offload_json_parts parts;
        if (limit - i >= 64 && pulsar_offload_json_split(from + i, &parts)) {
            int length = parts.length;
            if (length == 16) length += pulsar_offload_json_count(from + i + 16);
            if (length < stop - i && pulsar_offload_json_ends(from[i + length]))
                return i + length;
        }
    #endif
        return -1;
    }

    #define PULSAR_OFFLOAD_JSON_DEPTH 66
    /* The positions of quotes, backslashes, brackets and commas in 64 bytes, including those in
       strings. */
    typedef struct { uint64_t quotes, slashes, opens, closes, commas; } pulsar_offload_json_marks;
    #if defined(__SSE2__)
    static inline void pulsar_offload_json_mark(
            const unsigned char* at, pulsar_offload_json_marks* marks) {
        for (int n = 0; n < 64; n += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i*)(at + n));
            __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
    #define PULSAR_OFFLOAD_MARK(of, byte) \
            (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(of, _mm_set1_epi8(byte))) << n
            marks->quotes |= PULSAR_OFFLOAD_MARK(bytes, 0x22);
            marks->slashes |= PULSAR_OFFLOAD_MARK(bytes, 0x5C);
            marks->opens |= PULSAR_OFFLOAD_MARK(folded, 0x7B);
            marks->closes |= PULSAR_OFFLOAD_MARK(folded, 0x7D);
            marks->commas |= PULSAR_OFFLOAD_MARK(bytes, 0x2C);
    #undef PULSAR_OFFLOAD_MARK
        }
    }
    /* Each bit: whether the number of quotes up to here is odd. */
    static inline uint64_t pulsar_offload_json_odd(uint64_t quotes) {
        quotes ^= quotes << 1; quotes ^= quotes << 2; quotes ^= quotes << 4;
        quotes ^= quotes << 8; quotes ^= quotes << 16;
        return quotes ^ quotes << 32;
    }
    /* The characters after a backslash that is not escaped itself. `*carry`: whether the first one
       follows such a backslash; then whether the one after the block does. */
    static inline uint64_t pulsar_offload_json_escaped(uint64_t slashes, uint64_t* carry) {
        const uint64_t even = UINT64_C(0x5555555555555555);
        uint64_t follows, starts, ends;
        slashes &= ~*carry;
        follows = slashes << 1 | *carry;
        /* An addition carries through a run of backslashes, to the character after it. */
        starts = slashes & ~even & ~follows;
        ends = starts + slashes;
        *carry = ends < starts;
        return (even ^ ends << 1) & follows;
    }
    /* Write the numbers of the bits, which are so many, from that of the first one. */
    static inline void pulsar_offload_json_number_bits(
            uint64_t bits, long long first, long long* to, long long count) {
        /* Twelve at a time: the exact number would be an unpredictable branch. */
        for (; count > 0; count -= 12, to += 12) {
            for (int n = 0; n < 12; n++) {
                long long number = first + __builtin_ctzll(bits | UINT64_C(1) << 63);
                /* To collect several in a vector would take longer. */
                __asm__("" : "+r"(number));
                to[n] = number;
                bits &= bits - 1;
            }
        }
    }
    static inline __attribute__((always_inline)) long long pulsar_offload_json_delimiters_by(
            void (*mark)(const unsigned char*, pulsar_offload_json_marks*),
            void (*number)(uint64_t, long long, long long*, long long),
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* places, long long* nexts, long long room) {
        long long last[PULSAR_OFFLOAD_JSON_DEPTH], count = 0, depth = 0;
        uint64_t text = 0, carry = 0;
        if (limit - stop < 64) return 0;
        for (; i < stop; i += 64) {
            pulsar_offload_json_marks marks = {0, 0, 0, 0, 0};
            uint64_t odd, found;
            long long total;
            if (room - count < 64 + 16) return 0;
            mark(from + i, &marks);
            if ((marks.slashes | carry) != 0)
                marks.quotes &= ~pulsar_offload_json_escaped(marks.slashes, &carry);
            odd = pulsar_offload_json_odd(marks.quotes) ^ text;
            text = (uint64_t)((int64_t)odd >> 63);
            found = (marks.opens | marks.closes | marks.commas) & ~odd;
            if (stop - i < 64) found &= (UINT64_C(1) << (stop - i)) - 1;
            total = count + __builtin_popcountll(found);
            number(found, i, places + count, total - count);
            count = total;
        }
        /* What precedes the first delimiter of a depth has no use for its number. */
        for (int n = 0; n < PULSAR_OFFLOAD_JSON_DEPTH; n++) last[n] = room - 1;
        for (long long k = 0; k < count; k++) {
            /* A comma has neither of the two lowest bits, an opening bracket both. */
            const unsigned int c = from[places[k]], is_open = c >> 1 & 1, is_close = c & ~(c >> 1) & 1;
            depth += is_open;
            nexts[last[depth]] = k;
            last[depth] = k;
            depth -= is_close;
            if ((unsigned long long)depth >= PULSAR_OFFLOAD_JSON_DEPTH - 1) return 0;
        }
        return depth == 0 ? count : 0;
    }
    static __attribute__((noinline)) long long pulsar_offload_json_delimiters_narrow(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* places, long long* nexts, long long room) {
        return pulsar_offload_json_delimiters_by(
            pulsar_offload_json_mark, pulsar_offload_json_number_bits, from, i, stop, limit, places, nexts, room);
    }
    /* Not inlined into the loop over fields, which has few registers to spare. */
    static inline __attribute__((always_inline)) long long pulsar_offload_json_leap_by(
            void (*mark)(const unsigned char*, pulsar_offload_json_marks*),
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* depth, long long* inside) {
        long long level = *depth;
        uint64_t text = *inside ? ~UINT64_C(0) : 0, carry = 0;
        while (i < stop && limit - i >= 64) {
            pulsar_offload_json_marks marks = {0, 0, 0, 0, 0};
            uint64_t odd, opens, keep = ~UINT64_C(0), next = carry;
            mark(from + i, &marks);
            if (stop - i < 64) keep = (UINT64_C(1) << (stop - i)) - 1;
            if ((marks.slashes | carry) != 0)
                marks.quotes &= ~pulsar_offload_json_escaped(marks.slashes, &next);
            odd = pulsar_offload_json_odd(marks.quotes) ^ text;
            keep &= ~odd;
            /* Only in a string does a backslash change what follows it. */
            if ((marks.slashes & keep) != 0) break;
            carry = next;
            opens = marks.opens & keep;
            for (keep &= marks.opens | marks.closes; keep != 0; keep &= keep - 1) {
                level += (opens & keep & -keep) != 0 ? 1 : -1;
                if (level == 0) {
                    *depth = 0;
                    return i + __builtin_ctzll(keep) + 1;
                }
            }
            text = (uint64_t)((int64_t)odd >> 63);
            i += 64;
        }
        *depth = level;
        *inside = text & 1;
        /* The byte after a backslash is in a string, and needs no look. */
        return i + (long long)carry;
    }
    static __attribute__((noinline)) long long pulsar_offload_json_leap_narrow(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* depth, long long* inside) {
        return pulsar_offload_json_leap_by(
            pulsar_offload_json_mark, from, i, stop, limit, depth, inside);
    }
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define PULSAR_OFFLOAD_WIDE __attribute__((target("avx2,bmi,popcnt")))
    PULSAR_OFFLOAD_WIDE
    static inline void pulsar_offload_json_mark_wide(
            const unsigned char* at, pulsar_offload_json_marks* marks) {
        for (int n = 0; n < 64; n += 32) {
            __m256i bytes = _mm256_loadu_si256((const __m256i*)(at + n));
            __m256i folded = _mm256_or_si256(bytes, _mm256_set1_epi8(0x20));
    #define PULSAR_OFFLOAD_MARK(of, byte) \
            (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(of, _mm256_set1_epi8(byte))) << n
            marks->quotes |= PULSAR_OFFLOAD_MARK(bytes, 0x22);
            marks->slashes |= PULSAR_OFFLOAD_MARK(bytes, 0x5C);
            marks->opens |= PULSAR_OFFLOAD_MARK(folded, 0x7B);
            marks->closes |= PULSAR_OFFLOAD_MARK(folded, 0x7D);
            marks->commas |= PULSAR_OFFLOAD_MARK(bytes, 0x2C);
    #undef PULSAR_OFFLOAD_MARK
        }
    }
    PULSAR_OFFLOAD_WIDE
    static __attribute__((noinline)) long long pulsar_offload_json_leap_wide(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* depth, long long* inside) {
        return pulsar_offload_json_leap_by(
            pulsar_offload_json_mark_wide, from, i, stop, limit, depth, inside);
    }
    PULSAR_OFFLOAD_WIDE
    static __attribute__((noinline)) long long pulsar_offload_json_delimiters_wide(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* places, long long* nexts, long long room) {
        return pulsar_offload_json_delimiters_by(
            pulsar_offload_json_mark_wide, pulsar_offload_json_number_bits,
            from, i, stop, limit, places, nexts, room);
    }
    #define PULSAR_OFFLOAD_WIDEST \
        __attribute__((target("avx2,bmi,popcnt,avx512f,avx512bw,avx512vbmi2")))
    PULSAR_OFFLOAD_WIDEST
    static inline void pulsar_offload_json_mark_widest(
            const unsigned char* at, pulsar_offload_json_marks* marks) {
        __m512i bytes = _mm512_loadu_si512(at);
        __m512i folded = _mm512_or_si512(bytes, _mm512_set1_epi8(0x20));
        marks->quotes = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(0x22));
        marks->slashes = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(0x5C));
        marks->opens = _mm512_cmpeq_epi8_mask(folded, _mm512_set1_epi8(0x7B));
        marks->closes = _mm512_cmpeq_epi8_mask(folded, _mm512_set1_epi8(0x7D));
        marks->commas = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(0x2C));
    }
    PULSAR_OFFLOAD_WIDEST
    static inline void pulsar_offload_json_number_bits_widest(
            uint64_t bits, long long first, long long* to, long long count) {
        static const unsigned char numbers[64] = {
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
            23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
            44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
        __m512i each = _mm512_maskz_compress_epi8(bits, _mm512_loadu_si512(numbers));
        for (; count > 0; count -= 16, to += 16) {
            __m128i sixteen = _mm512_castsi512_si128(each);
            _mm512_storeu_si512(to, _mm512_add_epi64(
                _mm512_set1_epi64(first), _mm512_cvtepu8_epi64(sixteen)));
            _mm512_storeu_si512(to + 8, _mm512_add_epi64(
                _mm512_set1_epi64(first), _mm512_cvtepu8_epi64(_mm_unpackhi_epi64(sixteen, sixteen))));
            each = _mm512_alignr_epi64(each, each, 2);
        }
    }
    PULSAR_OFFLOAD_WIDEST
    static __attribute__((noinline)) long long pulsar_offload_json_delimiters_widest(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* places, long long* nexts, long long room) {
        return pulsar_offload_json_delimiters_by(
            pulsar_offload_json_mark_widest, pulsar_offload_json_number_bits_widest,
            from, i, stop, limit, places, nexts, room);
    }
    static int pulsar_offload_json_most(void) {
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi")
                || !__builtin_cpu_supports("popcnt")) return 16;
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512vbmi2") ? 64 : 32;
    }
    #else
    #define pulsar_offload_json_leap_wide pulsar_offload_json_leap_narrow
    #define pulsar_offload_json_delimiters_wide pulsar_offload_json_delimiters_narrow
    #define pulsar_offload_json_delimiters_widest pulsar_offload_json_delimiters_narrow
    static int pulsar_offload_json_most(void) { return 16; }
    #endif
    #else
    #define pulsar_offload_json_leap_wide pulsar_offload_json_leap_narrow
    #define pulsar_offload_json_delimiters_wide pulsar_offload_json_delimiters_narrow
    #define pulsar_offload_json_delimiters_widest pulsar_offload_json_delimiters_narrow
    static inline long long pulsar_offload_json_delimiters_narrow(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* places, long long* nexts, long long room) {
        return 0;
    }
    static inline long long pulsar_offload_json_leap_narrow(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* depth, long long* inside) {
        return i;
    }
    static int pulsar_offload_json_most(void) { return 16; }
    #endif

    static int pulsar_offload_json_width;

    static int pulsar_offload_json_choose(int bytes) {
        const int most = pulsar_offload_json_most();
        pulsar_offload_json_width = bytes < most ? bytes : most;
        return pulsar_offload_json_width;
    }

    static inline long long pulsar_offload_json_leap(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* depth, long long* inside) {
        return pulsar_offload_json_width > 16
            ? pulsar_offload_json_leap_wide(from, i, stop, limit, depth, inside)
            : pulsar_offload_json_leap_narrow(from, i, stop, limit, depth, inside);
    }

    static inline long long pulsar_offload_json_delimiters(
            const unsigned char* from, long long i, long long stop, long long limit,
            long long* places, long long* nexts, long long room) {
        if (pulsar_offload_json_width > 32)
            return pulsar_offload_json_delimiters_widest(from, i, stop, limit, places, nexts, room);
        return pulsar_offload_json_width > 16
            ? pulsar_offload_json_delimiters_wide(from, i, stop, limit, places, nexts, room)
            : pulsar_offload_json_delimiters_narrow(from, i, stop, limit, places, nexts, room);
    }
    """
    # The position of the first byte that is no white space, or stop.
    long long skip_space "pulsar_offload_json_space"(
        const unsigned char* at, long long i, long long stop) noexcept nogil
    # Copy the string that starts at i to a target with room for so many bytes; return the position of
    # its closing quote, or -1. `high` is 0 if all of its bytes are below 128.
    long long take_text "pulsar_offload_json_text"(
        const unsigned char* at, long long i, long long stop, long long limit,
        unsigned char* to, long long room, unsigned int* high) noexcept nogil
    # The same for a string with escapes; `length` is that of the copy.
    long long unescape "pulsar_offload_json_unescape"(
        const unsigned char* at, long long i, long long stop, long long limit,
        unsigned char* to, long long room, long long* length, unsigned int* high) noexcept nogil
    # Return whether up to 8 letters, a big-endian number, are at i.
    int is_word "pulsar_offload_json_word"(
        const unsigned char* at, long long i, long long stop, unsigned long long letters,
        int length) noexcept nogil
    # Return whether the first n bytes are equal; 16 bytes of the name must be readable.
    int begins "pulsar_offload_json_begins"(
        const unsigned char* at, long long i, long long limit,
        const unsigned char* name, long long n) noexcept nogil
    # The first slot of a table of `json_names` that may hold a name of n bytes, which
    # a quote follows.
    long long first_slot "pulsar_offload_json_first"(
        const long long* table, const unsigned char* name, long long n) noexcept nogil
    # Find the quoted name that starts at i in a table. Return its slot, or an empty one, shifted left
    # by 32, plus the length with the quotes; -1 for a name with escapes, or near the limit.
    long long find_name "pulsar_offload_json_name"(
        const unsigned char* at, long long i, long long limit,
        const unsigned char* constants, const long long* table) noexcept nogil
    # The slot of a name of up to 16 bytes with its quotes and colon that is in its first slot; -1 for
    # other names. 64 bytes must be readable.
    long long find_near_name "pulsar_offload_json_near_name"(
        const unsigned char* at, long long i, const unsigned char* constants,
        const long long* table) noexcept nogil
    # Copy the string that starts at i if it equals one of the constants; return the position of its
    # closing quote, or -1. 16 bytes of each constant must be readable.
    long long take_symbol "pulsar_offload_json_symbol"(
        const unsigned char* at, long long i, long long stop, long long limit,
        const unsigned char* constants, const long long* positions, long long count,
        unsigned char* to, long long room) noexcept nogil
    # Decode the Base64 string that starts at i; return the position of its closing quote, or -1. More
    # bytes than its length may be written, but never beyond the room.
    long long take_base64 "pulsar_offload_json_base64"(
        const unsigned char* at, long long i, long long stop, long long limit,
        unsigned char* to, long long room, long long* length) noexcept nogil
    # Read `true` (1) or `false` (0) from 5 bytes; -1 for anything else.
    int take_boolean "pulsar_offload_json_boolean"(const unsigned char* at) noexcept nogil
    # Read an integer of up to 15 digits that a comma, a bracket or space follows; return the position of that, or -1.
    long long take_whole "pulsar_offload_json_whole"(
        const unsigned char* at, long long i, long long stop, long long limit,
        long long* number) noexcept nogil
    # The same for 16 to 19 digits.
    long long take_long "pulsar_offload_json_long"(
        const unsigned char* at, long long i, long long stop, long long limit,
        long long* number) noexcept nogil
    # The same for a number that may have a point.
    long long take_fraction "pulsar_offload_json_fraction"(
        const unsigned char* at, long long i, long long stop, long long limit,
        const double* powers, double* number) noexcept nogil
    # The same for a decimal of so many digits, times 10 to the power of its scale; the product has up
    # to 18 digits.
    long long take_decimal "pulsar_offload_json_decimal"(
        const unsigned char* at, long long i, long long stop, long long limit,
        long long precision, long long scale, long long* number) noexcept nogil
    # Skip a number in the same way.
    long long skip_number "pulsar_offload_json_number"(
        const unsigned char* at, long long i, long long stop, long long limit) noexcept nogil
    # Choose the width of the vectors of `leap` and `find_delimiters`: 16, 32 or 64 bytes, or less if the
    # processor lacks these; return it.
    int choose_blocks "pulsar_offload_json_choose"(int bytes) noexcept nogil
    # Count the brackets outside of strings, by blocks; stop after the one that brings the depth to 0, or
    # at a block with a backslash.
    long long leap "pulsar_offload_json_leap"(
        const unsigned char* at, long long i, long long stop, long long limit,
        long long* depth, long long* inside) noexcept nogil
    # Find the brackets and commas of [i, stop) outside of strings. Write their positions, and for each
    # bracket that opens and each comma in brackets, the number of the next comma or bracket that closes
    # at the same depth. Return their number; 0 if they are more than fit, if brackets are not
    # balanced or too deep, or near the limit. Text that is not JSON gives any numbers below that.
    long long find_delimiters "pulsar_offload_json_delimiters"(
        const unsigned char* at, long long i, long long stop, long long limit,
        long long* places, long long* nexts, long long room) noexcept nogil
