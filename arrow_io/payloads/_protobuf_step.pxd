# One step of `Shredder` for one message, in C: read one field, or start a group of messages. The steps
# for all messages of a group are in `_protobuf_steps`.
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
    /* `tables.GROUP`, and the ends and rows of a group: `tables.STOPS` and `tables.ROWS`. */
    #define PULSAR_OFFLOAD_GROUP 256
    #define PULSAR_OFFLOAD_STOPS(group) ((group) + 264)
    #define PULSAR_OFFLOAD_ROWS(group) ((group) + 528)
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
            const long long start = (long long)((uint64_t)positions[n] >> 32);
            const long long end = start + (positions[n] & 0xFFFFFFFF);
            missing |= positions[n] == -1;
            stop = stop > end ? stop : end;
        }
        return missing ? -1 : stop;
    }
    /* Start a group of payloads in the rows from `row` on. */
    PULSAR_OFFLOAD_INLINE void pulsar_offload_step_start(
            const long long* positions, long long count, long long row, long long* group) {
        for (long long n = 0; n < count; n++) {
            const long long start = (long long)((uint64_t)positions[n] >> 32);
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
    """
    # Read a number of up to ten bytes; return its size in bytes, or 0 if that is more.
    int step_number "pulsar_offload_step_number"(
        const unsigned char* at, unsigned long long* number) noexcept nogil
