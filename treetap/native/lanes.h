/* Vectors of one form: each file of kernels is compiled once for each of IFMA, AVX512, AVX2 and PLAIN.
 *
 *     IFMA     AVX-512 with IFMA                 8 lanes   products of 52-bit words by VPMADD52
 *     AVX512   AVX-512 F, DQ, BW, VL             8 lanes   products by fused multiply-adds of doubles
 *     AVX2     AVX2 and FMA                      4 lanes   the same
 *     PLAIN    GCC's vectors, fma() for a lane   4 lanes   the same, wherever a C compiler is (arm64 among them)
 *
 * `vector` has words of 64 bits without a sign, `reals` doubles; + - & | ^ ~ << >> and comparisons are the compiler's own,
 * a comparison gives a `vector` of all ones or zeros for each lane. Functions of a form end with its name: FN(name).
 * A file that defines WORDS_IN_PLAIN before has one lane there: a `vector` is then a word, and no `reals` are.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <fenv.h>
#endif

#if defined(IFMA)
#define FN(name) name##_ifma
#define INSTRUCTIONS "avx2,fma,avx512f,avx512dq,avx512bw,avx512vl,avx512ifma"
#define LANES 8
#elif defined(AVX512)
#define FN(name) name##_avx512
#define INSTRUCTIONS "avx2,fma,avx512f,avx512dq,avx512bw,avx512vl"
#define LANES 8
#elif defined(AVX2)
#define FN(name) name##_avx2
#define INSTRUCTIONS "avx2,fma"
#define LANES 4
#elif defined(PLAIN)
#define FN(name) name##_plain
#if defined(WORDS_IN_PLAIN)
#define LANES 1
#else
#define LANES 4
#endif
#else
#error "compile with -DIFMA, -DAVX512, -DAVX2 or -DPLAIN"
#endif

#if defined(PLAIN) || defined(EMULATED) /* by a compiler's own code; the tests emulate a form that their processor lacks */
#define TARGET
#else
#include <immintrin.h>
#define TARGET __attribute__((target(INSTRUCTIONS)))
#endif

#define INLINE static inline __attribute__((always_inline, unused)) TARGET
#define CALLED static __attribute__((noinline, unused)) TARGET
#define ALIGNED __attribute__((aligned(64)))
#define UNROLL _Pragma("GCC unroll 16")

#if LANES == 1
typedef uint64_t vector;
#define SAME(word) ((vector)(word))
#else
typedef uint64_t vector __attribute__((vector_size(8 * LANES)));
typedef double reals __attribute__((vector_size(8 * LANES)));

#if defined(PLAIN) || defined(EMULATED)
#if LANES == 4
#define SAME(word) ((vector){(word), (word), (word), (word)})
#define REAL(x) ((reals){(x), (x), (x), (x)})
#else
#define SAME(word) ((vector){(word), (word), (word), (word), (word), (word), (word), (word)})
#define REAL(x) ((reals){(x), (x), (x), (x), (x), (x), (x), (x)})
#endif
INLINE reals fma_lanes(reals a, reals b, reals c) {
    UNROLL for (int i = 0; i < LANES; i++) a[i] = __builtin_fma(a[i], b[i], c[i]);
    return a;
}
#define FMA(a, b, c) fma_lanes(a, b, c)
#elif LANES == 8
#define SAME(word) ((vector)_mm512_set1_epi64((long long)(word)))
#define REAL(x) ((reals)_mm512_set1_pd(x))
#define FMA(a, b, c) ((reals)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#else
#define SAME(word) ((vector)_mm256_set1_epi64x((long long)(word)))
#define REAL(x) ((reals)_mm256_set1_pd(x))
#define FMA(a, b, c) ((reals)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#endif

#if defined(IFMA) && defined(EMULATED) /* the low or high 52 bits of the product of the operands' low 52 bits are added */
INLINE vector half_added(vector sum, vector x, vector y, int shift) {
    const uint64_t mask = (1ull << 52) - 1;
    for (int i = 0; i < LANES; i++)
        sum[i] += (uint64_t)((unsigned __int128)(x[i] & mask) * (y[i] & mask) >> shift) & mask;
    return sum;
}
#define LOW(sum, x, y) half_added(sum, x, y, 0)
#define HIGH(sum, x, y) half_added(sum, x, y, 52)
#elif defined(IFMA)
#define LOW(sum, x, y) ((vector)_mm512_madd52lo_epu64((__m512i)(sum), (__m512i)(x), (__m512i)(y)))
#define HIGH(sum, x, y) ((vector)_mm512_madd52hi_epu64((__m512i)(sum), (__m512i)(x), (__m512i)(y)))
#endif

/* Transposes LANES rows of LANES words. */
INLINE void transpose(vector r[LANES]) {
    vector s[LANES];
#if defined(PLAIN) || defined(EMULATED)
    memcpy(s, r, sizeof s);
    UNROLL for (int i = 0; i < LANES; i++) UNROLL for (int k = 0; k < LANES; k++) r[i][k] = s[k][i];
#elif LANES == 8
    vector t[8];
    const __m512i near_low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i near_high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    UNROLL for (int i = 0; i < 4; i++) {
        s[2 * i] = (vector)_mm512_unpacklo_epi64((__m512i)r[2 * i], (__m512i)r[2 * i + 1]);
        s[2 * i + 1] = (vector)_mm512_unpackhi_epi64((__m512i)r[2 * i], (__m512i)r[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i++) {
        const int low = (i & 4) + (i & 1);
        t[i] = (vector)_mm512_permutex2var_epi64((__m512i)s[low], i & 2 ? near_high : near_low, (__m512i)s[low + 2]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        r[i] = (vector)_mm512_shuffle_i64x2((__m512i)t[i], (__m512i)t[i + 4], 0x44);
        r[i + 4] = (vector)_mm512_shuffle_i64x2((__m512i)t[i], (__m512i)t[i + 4], 0xee);
    }
#else
    UNROLL for (int i = 0; i < 4; i += 2) {
        s[i] = (vector)_mm256_unpacklo_epi64((__m256i)r[i], (__m256i)r[i + 1]);
        s[i + 1] = (vector)_mm256_unpackhi_epi64((__m256i)r[i], (__m256i)r[i + 1]);
    }
    UNROLL for (int i = 0; i < 2; i++) {
        r[i] = (vector)_mm256_permute2x128_si256((__m256i)s[i], (__m256i)s[i + 2], 0x20);
        r[i + 2] = (vector)_mm256_permute2x128_si256((__m256i)s[i], (__m256i)s[i + 2], 0x31);
    }
#endif
}
#endif /* LANES == 1 */

/* True if this thread rounds as products by fused multiply-adds need it. */
INLINE int rounds_to_nearest(void) {
#if defined(__x86_64__)
    return !(_mm_getcsr() & 0x6000);
#else
    return fegetround() == FE_TONEAREST;
#endif
}

/* Lanes of y where the mask is all ones, of x where it is zero. */
INLINE vector chosen(vector mask, vector y, vector x) {
#if LANES == 8 && !defined(EMULATED)
    return (vector)_mm512_ternarylogic_epi64((__m512i)mask, (__m512i)y, (__m512i)x, 0xca);
#else
    return (mask & y) | (~mask & x);
#endif
}
