/* The AVX-512 instructions that the kernels use, in plain C, for processors that lack them: the same results, slowly.
 *
 * Found before the compiler's header of this name by `-I tests/native/emulated`. Each function has the name and the
 * meaning of the intrinsic (Intel Intrinsics Guide); lanes are the eight 64-bit elements, the lowest first. */
#pragma once
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between the functions of one file only */
#include <stdint.h>
#include <string.h>

/* The kernels' functions get no target: nothing here needs one. */
#define TARGET
/* Nor are the functions where time goes inlined: each of these instructions is many. */
#define HOT static __attribute__((noinline))

typedef uint64_t __m512i __attribute__((vector_size(64)));
typedef int64_t treetap_signed __attribute__((vector_size(64)));
typedef uint8_t __mmask8;

#define EMULATED static inline __attribute__((always_inline, unused))
#define LANE(i) for (int i = 0; i < 8; i++)
#define LOW_52 ((1ull << 52) - 1)

EMULATED __m512i _mm512_setzero_si512(void) { return (__m512i){0}; }

EMULATED __m512i _mm512_set1_epi64(long long x) {
    const uint64_t u = (uint64_t)x;
    return (__m512i){u, u, u, u, u, u, u, u};
}

EMULATED __m512i _mm512_setr_epi64(
    long long a, long long b, long long c, long long d, long long e, long long f, long long g, long long h) {
    return (__m512i){(uint64_t)a, (uint64_t)b, (uint64_t)c, (uint64_t)d, (uint64_t)e, (uint64_t)f, (uint64_t)g, (uint64_t)h};
}

EMULATED __m512i _mm512_loadu_si512(const void *from) {
    __m512i x;
    memcpy(&x, from, sizeof x);
    return x;
}

EMULATED void _mm512_storeu_si512(void *to, __m512i x) { memcpy(to, &x, sizeof x); }

EMULATED __m512i _mm512_add_epi64(__m512i x, __m512i y) { return x + y; }
EMULATED __m512i _mm512_sub_epi64(__m512i x, __m512i y) { return x - y; }
EMULATED __m512i _mm512_and_si512(__m512i x, __m512i y) { return x & y; }
EMULATED __m512i _mm512_or_si512(__m512i x, __m512i y) { return x | y; }
EMULATED __m512i _mm512_xor_si512(__m512i x, __m512i y) { return x ^ y; }
EMULATED __m512i _mm512_andnot_si512(__m512i x, __m512i y) { return ~x & y; }
EMULATED __m512i _mm512_slli_epi64(__m512i x, unsigned n) { return x << n; }
EMULATED __m512i _mm512_srli_epi64(__m512i x, unsigned n) { return x >> n; }
EMULATED __m512i _mm512_srai_epi64(__m512i x, unsigned n) { return (__m512i)((treetap_signed)x >> n); }

/* The low (high) 52 bits of the product of the operands' low 52 bits, plus a 64-bit number. */
EMULATED __m512i _mm512_madd52lo_epu64(__m512i sum, __m512i x, __m512i y) {
    LANE(i) sum[i] += (uint64_t)((unsigned __int128)(x[i] & LOW_52) * (y[i] & LOW_52)) & LOW_52;
    return sum;
}

EMULATED __m512i _mm512_madd52hi_epu64(__m512i sum, __m512i x, __m512i y) {
    LANE(i) sum[i] += (uint64_t)((unsigned __int128)(x[i] & LOW_52) * (y[i] & LOW_52) >> 52);
    return sum;
}

/* Even (odd) lanes of both operands, by pairs. */
EMULATED __m512i _mm512_unpacklo_epi64(__m512i x, __m512i y) {
    return (__m512i){x[0], y[0], x[2], y[2], x[4], y[4], x[6], y[6]};
}

EMULATED __m512i _mm512_unpackhi_epi64(__m512i x, __m512i y) {
    return (__m512i){x[1], y[1], x[3], y[3], x[5], y[5], x[7], y[7]};
}

/* Lane i is lane at[i] of both operands, one after the other. */
EMULATED __m512i _mm512_permutex2var_epi64(__m512i x, __m512i at, __m512i y) {
    __m512i found;
    LANE(i) found[i] = at[i] & 8 ? y[at[i] & 7] : x[at[i] & 7];
    return found;
}

/* Two pairs of lanes of x, then two of y, chosen by two bits each. */
EMULATED __m512i _mm512_shuffle_i64x2(__m512i x, __m512i y, int which) {
    __m512i found;
    LANE(i) found[i] = (i < 4 ? x : y)[2 * (which >> (i & ~1) & 3) + (i & 1)];
    return found;
}

EMULATED __mmask8 _mm512_movepi64_mask(__m512i x) {
    __mmask8 mask = 0;
    LANE(i) mask |= (__mmask8)((x[i] >> 63) << i);
    return mask;
}

EMULATED __mmask8 _mm512_cmpeq_epi64_mask(__m512i x, __m512i y) {
    __mmask8 mask = 0;
    LANE(i) mask |= (__mmask8)((x[i] == y[i]) << i);
    return mask;
}

/* Lanes of y where the mask has a bit, else those of x. */
EMULATED __m512i _mm512_mask_mov_epi64(__m512i x, __mmask8 mask, __m512i y) {
    LANE(i) if (mask >> i & 1) x[i] = y[i];
    return x;
}
