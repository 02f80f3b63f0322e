# The steps of `Shredder`: read one field of each message of a group, in C, so that each kind of field has
# its own loop without unpredictable branches. A group (`tables.GROUP`) has four arrays: the current
# position, the end and the row of each message, and the number of members of its oneof.
#
# Sixteen bytes after the end of each message must be readable. The position never passes the end: the
# size of a field is compared with the remaining bytes before the position advances.
#
# Lanes read the field in eight messages at once on Intel's processors with AVX-512, in four on others with
# AVX2. The plain loops read the messages after the last eight or four, and all messages on other processors.
from arrow_io.payloads._protobuf_avx2 cimport find_avx2  # its lanes in the C below
from arrow_io.payloads._protobuf_avx512 cimport find_avx512


cdef extern from *:
    """
    /* Number of messages that are read at once. */
    static int pulsar_offload_lanes = 1;

    static int pulsar_offload_choose_lanes(int most) {
        pulsar_offload_lanes = 1;
        if (most >= 4 && pulsar_offload_find_avx2()) pulsar_offload_lanes = 4;
        if (most >= 8 && pulsar_offload_find_avx512()) pulsar_offload_lanes = 8;
        return pulsar_offload_lanes;
    }

    /* AMD's processors have AVX-512, but take longer by it to write to scattered places than one by one. */
    static int pulsar_offload_most_lanes(void) {
    #if defined(__x86_64__) && defined(__GNUC__)
        __builtin_cpu_init();
        if (__builtin_cpu_is("amd")) return 4;
    #endif
        return 8;
    }

    static long long pulsar_offload_step_furthest_any(const long long* positions, long long count) {
        if (pulsar_offload_lanes == 8) return pulsar_offload_avx512_furthest(positions, count);
        if (pulsar_offload_lanes == 4) return pulsar_offload_avx2_furthest(positions, count);
        return pulsar_offload_step_furthest(positions, count);
    }
    static void pulsar_offload_step_start_any(
            const long long* positions, long long count, long long row, long long* group) {
        if (pulsar_offload_lanes == 8) pulsar_offload_avx512_start(positions, count, row, group);
        else if (pulsar_offload_lanes == 4) pulsar_offload_avx2_start(positions, count, row, group);
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
        if (pulsar_offload_lanes == 8)
            n = pulsar_offload_avx512_over_any(p, group, count, step, &found);
        else if (pulsar_offload_lanes == 4)
            n = pulsar_offload_avx2_over_any(p, group, count, step, &found);
        if (n < 0) return n;
        if (step[3] == 1) return pulsar_offload_step_over_of(p, group, n, count, step, 1, found);
        return pulsar_offload_step_over_of(p, group, n, count, step, step[3], found);
    }
    static long long pulsar_offload_step_delimited_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            unsigned char* valid, int blank, long long* below) {
        long long n = 0, found = 0;
        if (pulsar_offload_lanes == 8)
            n = pulsar_offload_avx512_delimited(
                p, group, count, step, valid, blank, below, &found);
        else if (pulsar_offload_lanes == 4)
            n = pulsar_offload_avx2_delimited(
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
        if (pulsar_offload_lanes == 8)
            n = pulsar_offload_avx512_numbers(p, group, count, step, below, &found);
        else if (pulsar_offload_lanes == 4)
            n = pulsar_offload_avx2_numbers(p, group, count, step, below, &found);
        if (n < 0) return n;
        if (step[3] == 1)
            return pulsar_offload_step_numbers(p, group, n, count, step, 1, below, found);
        return pulsar_offload_step_numbers(p, group, n, count, step, step[3], below, found);
    }
    static long long pulsar_offload_step_put_any(
            const unsigned char* p, long long* group, long long count, const long long* step,
            int how, unsigned char* valid, int blank, void* to) {
        long long n = 0, found = 0;
        if (pulsar_offload_lanes == 8)
            n = pulsar_offload_avx512_put_any(
                p, group, count, step, how, valid, blank, to, &found);
        else if (pulsar_offload_lanes == 4)
            n = pulsar_offload_avx2_put_any(
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
        if (pulsar_offload_lanes > 1)
            n = pulsar_offload_avx2_bytes(
                p, size, group, n, count, high, to, room, used, ends);
        return pulsar_offload_step_bytes(p, size, group, n, count, high, to, room, used, ends);
    }
    /* Each message has a fixed number of attempts to find an item, so that no branch depends on how many
       it has. Messages with more items have more rounds of attempts. */
    #define PULSAR_OFFLOAD_ATTEMPTS 4
    PULSAR_OFFLOAD_INLINE long long pulsar_offload_step_items(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long size, long long* below, long long* found,
            long long* items, long long room, int* list_ends) {
        const uint64_t tag = (uint64_t)step[1], mask = (uint64_t)step[2];
        /* Of items shorter than 0x80 bytes. */
        const uint64_t short_mask = mask | UINT64_C(0x80) << 8 * size;
        const long long first = *found, least = PULSAR_OFFLOAD_GROUP < first + room - *items
            ? PULSAR_OFFLOAD_GROUP : first + room - *items;
        long long next = first;
        int attempts = 1;
        for (; n < count; n++) {
            const long long stop = PULSAR_OFFLOAD_STOPS(group)[n];
            long long at = group[n], k = next;
            uint64_t word = pulsar_offload_protobuf_block(p + at);
            do {
                const long long before = k;
                if (k + PULSAR_OFFLOAD_ATTEMPTS > least) goto end;
                for (int attempt = 0; attempt < attempts; attempt++) {
                    const long long start = at + size + 1;
                    const long long after = start + (long long)(word >> 8 * size & 0xFF);
                    const long long here = ((word & short_mask) == tag) & (after <= stop);
                    below[k] = start;
                    PULSAR_OFFLOAD_STOPS(below)[k] = after;
                    at += (after - at) & -here;
                    k += here;
                    word = pulsar_offload_protobuf_block(p + at);
                }
                if (((word & mask) != tag) | (at >= stop)) break;
                if (k == before) goto end;
                attempts += attempts < PULSAR_OFFLOAD_ATTEMPTS;
            } while (1);
            group[n] = at;
            next = k;
            list_ends[PULSAR_OFFLOAD_ROWS(group)[n]] = (int)(*items + next - first);
        }
    end:
        for (long long k = first; k < next; k++)
            PULSAR_OFFLOAD_ROWS(below)[k] = *items + k - first;
        *found = next;
        *items += next - first;
        return n;
    }
    static long long pulsar_offload_step_items_any(
            const unsigned char* p, long long* group, long long n, long long count,
            const long long* step, long long* below, long long* found, long long* items,
            long long room, int* list_ends) {
        if (pulsar_offload_lanes == 8)
            return pulsar_offload_avx512_items(
                p, group, n, count, step, below, found, items, room, list_ends);
        if (pulsar_offload_lanes == 4)
            n = pulsar_offload_avx2_items(
                p, group, n, count, step, below, found, items, room, list_ends);
        if (step[3] == 1)
            return pulsar_offload_step_items(
                p, group, n, count, step, 1, below, found, items, room, list_ends);
        return pulsar_offload_step_items(
            p, group, n, count, step, step[3], below, found, items, room, list_ends);
    }
    static long long pulsar_offload_step_instants(
            const unsigned char* p, const long long* group, long long n, long long count,
            long long units, long long* to) {
        if (pulsar_offload_lanes == 8)
            return pulsar_offload_avx512_instants(p, group, n, count, units, to);
        if (pulsar_offload_lanes == 4)
            return pulsar_offload_avx2_instants(p, group, n, count, units, to);
        return n;
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
        long long at;
        if (pulsar_offload_lanes > 1)
            n = pulsar_offload_avx2_names(
                numbers, rows, n, count, table, constants, missing, valid, to, room, used, ends);
        at = *used;
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
    # How many messages it pays to read at once on this kind of processor, at most.
    int most_lanes "pulsar_offload_most_lanes"() noexcept
    # Choose how many messages are read at once, at most so many; return the number: 1, 4 or 8.
    int choose_lanes "pulsar_offload_choose_lanes"(int most) noexcept
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
    long long take_items "pulsar_offload_step_items_any"(
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
