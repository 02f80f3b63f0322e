/* What gcc and clang have built in, for Microsoft's compiler; `setup.py` includes it in each module. */
#include <intrin.h>
#include <stdint.h>
#include <stdlib.h>

#define __attribute__(what)

static __forceinline int pulsar_offload_ctz(unsigned long bits) {
    unsigned long index;
    _BitScanForward(&index, bits);
    return (int)index;
}

static __forceinline int pulsar_offload_ctzll(unsigned long long bits) {
    unsigned long index;
    _BitScanForward64(&index, bits);
    return (int)index;
}

#define __builtin_ctz(bits) pulsar_offload_ctz((unsigned long)(bits))
#define __builtin_ctzll(bits) pulsar_offload_ctzll(bits)
#define __builtin_bswap32(word) _byteswap_ulong(word)
#define __builtin_bswap64(word) _byteswap_uint64(word)
