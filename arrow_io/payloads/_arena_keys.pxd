# Which maps have equal keys, for `_arena_py.py`.
cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define PULSAR_OFFLOAD_KEYS 256
    static inline int pulsar_offload_is_equal_key(
            const unsigned char* from, const int* ends, int has_ends, long long width, long long a,
            long long b) {
        long long start = a * width, other = b * width, length = width;
        if (has_ends) {
            start = ends[a], other = ends[b], length = ends[a + 1] - start;
            if (ends[b + 1] - other != length) return 0;
        }
        return memcmp(from + start, from + other, length) == 0;
    }
    /* Each key gets a tag of its map and a hash. Equal keys of one map have equal tags, at some distance
       that is less than the size of the map. No branch depends on the size of a single map. */
    static int pulsar_offload_equal_keys(
            const unsigned char* from, const int* ends, int has_ends, long long width,
            const int* maps, long long count, long long longest) {
        uint32_t tags[PULSAR_OFFLOAD_KEYS + 4];
        long long row = 0;
        while (row < count) {
            long long first = maps[row], keys = 0, most = 0, n, distance;
            uint32_t map = 0;
            for (; row < count; row++) {
                long long size = maps[row + 1] - maps[row];
                if (size > longest) return 1;
                if (keys + size > PULSAR_OFFLOAD_KEYS) break;
                for (n = 0; n < 4; n++) tags[keys + n] = map << 24;
                for (; n < size; n++) tags[keys + n] = map << 24;
                map += size > 0;
                keys += size;
                if (size > most) most = size;
            }
            if (most < 2) continue;
            for (n = 0; n < keys; n++) {
                uint64_t last, hash;
                long long start, length = width;
                int unused;
                if (has_ends) {
                    start = ends[first + n];
                    length = ends[first + n + 1] - start;
                } else {
                    start = (first + n) * width;
                }
                /* The last bytes of the key; bytes before it are in the arena, too. */
                memcpy(&last, from + start + length - 8, 8);
                unused = length < 8 ? 64 - 8 * (int)length : 0;
                last = length ? last >> (unused & 63) : 0;
                hash = (last ^ (uint64_t)length << 56) * UINT64_C(0x9E3779B97F4A7C15);
                tags[n] |= (uint32_t)(hash >> 40);
            }
            for (distance = 1; distance < most; distance++) {
                uint32_t is_any = 0;
                for (n = distance; n < keys; n++) is_any |= tags[n] == tags[n - distance];
                for (n = distance; is_any && n < keys; n++)
                    if (tags[n] == tags[n - distance] && pulsar_offload_is_equal_key(
                            from, ends, has_ends, width, first + n, first + n - distance))
                        return 1;
            }
        }
        return 0;
    }
    """
    # Whether one of `count` maps has equal keys, or more than `longest` keys, at most 64. The keys of
    # map k are those from maps[k] to maps[k + 1]. Key k ends at ends[k + 1] if they have ends; otherwise
    # each has `width` bytes. The 8 bytes before the first key must be readable.
    int has_equal_keys "pulsar_offload_equal_keys"(
        const unsigned char* at, const int* ends, bint has_ends, long long width, const int* maps,
        long long count, long long longest) noexcept nogil
