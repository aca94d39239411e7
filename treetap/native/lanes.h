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

#if defined(PLAIN)
#define TARGET
#else
#include <immintrin.h>
#ifndef TARGET /* the tests' header, which emulates instructions, says that none is needed */
#define TARGET __attribute__((target(INSTRUCTIONS)))
#endif
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
#endif

#if LANES == 8 && !defined(PLAIN)
#define SAME(word) ((vector)_mm512_set1_epi64((long long)(word)))
#define REAL(x) ((reals)_mm512_set1_pd(x))
#define FMA(a, b, c) ((reals)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#elif defined(AVX2)
#define SAME(word) ((vector)_mm256_set1_epi64x((long long)(word)))
#define REAL(x) ((reals)_mm256_set1_pd(x))
#define FMA(a, b, c) ((reals)_mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c)))
#elif LANES == 4
#define SAME(word) ((vector){(word), (word), (word), (word)})
#define REAL(x) ((reals){(x), (x), (x), (x)})
INLINE reals fma_lanes(reals a, reals b, reals c) {
    UNROLL for (int i = 0; i < LANES; i++) a[i] = __builtin_fma(a[i], b[i], c[i]);
    return a;
}
#define FMA(a, b, c) fma_lanes(a, b, c)
#endif

#if defined(IFMA)
#define LOW(sum, x, y) ((vector)_mm512_madd52lo_epu64((__m512i)(sum), (__m512i)(x), (__m512i)(y)))
#define HIGH(sum, x, y) ((vector)_mm512_madd52hi_epu64((__m512i)(sum), (__m512i)(x), (__m512i)(y)))
#endif

/* Lanes of y where the mask is all ones, of x where it is zero. */
INLINE vector chosen(vector mask, vector y, vector x) { return (mask & y) | (~mask & x); }
