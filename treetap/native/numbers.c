/* Arithmetic modulo one odd number N, eight numbers side by side, with the AVX-512 IFMA instructions.
 *
 * Numbers. A number is an array of `limbs` words that hold 52 bits each, the lowest first; `limbs` is a multiple of 8.
 * Outside of this file numbers lie one after the other. Inside a product eight of them lie side by side: a vector has
 * the i-th words of all eight ("lanes"), as in Gueron and Krasnov, "Accelerating Big Integer Arithmetic Using Intel
 * IFMA Extensions", ARITH 2016. VPMADD52LUQ and VPMADD52HUQ multiply the low 52 bits of eight pairs of words and add
 * the low or high half of each 104-bit product to a 64-bit word, so that carries can wait: a word of a sum collects at
 * most 4 * limbs halves below 2^52, which stays below 2^64 up to 1,024 limbs.
 *
 * Products. Montgomery, "Modular Multiplication Without Trial Division", Math. Comp. 44 (1985): with R = 2^(52*limbs),
 * product(a, b) = a*b/R mod N, so numbers are kept as a*R mod N ("Montgomery form") and products stay in that form.
 * There is no final subtraction ("almost" Montgomery, Gueron 2012): the callers choose `limbs` such that R >= 64*N, and
 *
 *     a*b < 64*N^2  =>  (a*b + q*N)/R < 64*N^2/R + N <= 2*N,
 *
 * so every product of numbers below 8*N is below 2*N. `treetap_leave` takes the form off and reduces below N.
 *
 * The order of the sums. Four words of `a` are taken at a time. Four columns are summed one after the other, since the
 * lowest word of each determines the multiple q of N which makes it divisible by 2^52; all further columns are then
 * independent of each other, and each is loaded and stored once per four words.
 *
 * Nothing here is constant-time in the addresses that it reads: `treetap_fixed_base` and `treetap_chain` read tables at
 * places that depend on exponents.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS 52
#define MASK ((1ull << WORD_BITS) - 1)
#define LARGEST 256 /* limbs: moduli of up to 13,306 bits */

#if defined(__x86_64__)
#include <immintrin.h>

#ifndef TARGET /* the tests' header, which emulates these instructions, says that none is needed */
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma")))
#endif
#define INLINE static inline __attribute__((always_inline)) TARGET
#define LANES 8
#define ROWS 4 /* words of `a` that are taken at a time */

typedef __m512i vector;

#define LOW(sum, x, y) _mm512_madd52lo_epu64(sum, x, y)
#define HIGH(sum, x, y) _mm512_madd52hi_epu64(sum, x, y)
#define SAME(word) _mm512_set1_epi64((long long)(word))
#define ADD(x, y) _mm512_add_epi64(x, y)

/* Transposes eight rows of eight words. */
INLINE void transpose(vector r[8]) {
    vector s[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        s[2 * i] = _mm512_unpacklo_epi64(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm512_unpackhi_epi64(r[2 * i], r[2 * i + 1]);
    }
    const vector near_low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const vector near_high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        r[i] = _mm512_permutex2var_epi64(s[i], near_low, s[i + 2]);
        r[i + 2] = _mm512_permutex2var_epi64(s[i], near_high, s[i + 2]);
        r[i + 4] = _mm512_permutex2var_epi64(s[i + 4], near_low, s[i + 6]);
        r[i + 6] = _mm512_permutex2var_epi64(s[i + 4], near_high, s[i + 6]);
    }
    vector t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i64x2(r[i], r[i + 4], 0x44);
        t[i + 4] = _mm512_shuffle_i64x2(r[i], r[i + 4], 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = t[i];
}

/* Eight numbers, at eight addresses, into lanes. */
INLINE void gather(size_t limbs, const uint64_t *const at[LANES], vector *lanes) {
    for (size_t i = 0; i < limbs; i += 8) {
        vector r[8];
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) r[k] = _mm512_loadu_si512(at[k] + i);
        transpose(r);
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) lanes[i + k] = r[k];
    }
}

/* The first `count` lanes to addresses. */
INLINE void scatter(size_t limbs, const vector *lanes, size_t count, uint64_t *const at[LANES]) {
    for (size_t i = 0; i < limbs; i += 8) {
        vector r[8];
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) r[k] = lanes[i + k];
        transpose(r);
        for (size_t k = 0; k < count; k++) _mm512_storeu_si512(at[k] + i, r[k]);
    }
}

/* Carries: words below 2^52 from sums below 2^64. */
INLINE void carry(size_t limbs, vector *sums) {
    const vector mask = SAME(MASK);
    vector over = _mm512_setzero_si512();
    for (size_t j = 0; j < limbs; j++) {
        const vector s = ADD(sums[j], over);
        over = _mm512_srli_epi64(s, WORD_BITS);
        sums[j] = _mm512_and_si512(s, mask);
    }
}

/* out = a*b/R mod N in eight lanes; out may be a or b. `inverse` is -1/N modulo 2^52. */
INLINE void multiply(size_t limbs, const uint64_t *n, uint64_t inverse, const vector *a, const vector *b, vector *out) {
    vector sums[LARGEST];
    const vector k = SAME(inverse), zero = _mm512_setzero_si512();
    for (size_t j = 0; j < limbs; j++) sums[j] = zero;
    for (size_t i = 0; i < limbs; i += ROWS) {
        vector x[ROWS], q[ROWS], over = zero;
#pragma GCC unroll 4
        for (int t = 0; t < ROWS; t++) x[t] = a[i + t];
#pragma GCC unroll 4
        for (int j = 0; j < ROWS; j++) { /* columns that decide q */
            vector s = ADD(sums[j], over), u = zero;
#pragma GCC unroll 4
            for (int t = 0; t <= j; t++) s = LOW(s, x[t], b[j - t]);
#pragma GCC unroll 4
            for (int t = 0; t < j; t++) {
                s = HIGH(s, x[t], b[j - t - 1]);
                u = LOW(u, q[t], SAME(n[j - t]));
                u = HIGH(u, q[t], SAME(n[j - t - 1]));
            }
            s = ADD(s, u);
            q[j] = LOW(zero, s, k);
            s = LOW(s, q[j], SAME(n[0]));
            over = _mm512_srli_epi64(s, WORD_BITS);
        }
        for (size_t j = ROWS; j < limbs; j++) {
            vector s = sums[j], u = zero;
#pragma GCC unroll 4
            for (int t = 0; t < ROWS; t++) {
                s = LOW(s, x[t], b[j - t]);
                u = LOW(u, q[t], SAME(n[j - t]));
                s = HIGH(s, x[t], b[j - t - 1]);
                u = HIGH(u, q[t], SAME(n[j - t - 1]));
            }
            sums[j - ROWS] = ADD(s, u);
        }
#pragma GCC unroll 4
        for (int d = 0; d < ROWS; d++) { /* columns limbs + d, which only the last words reach */
            vector s = zero, u = zero;
#pragma GCC unroll 4
            for (int t = d + 1; t < ROWS; t++) {
                s = LOW(s, x[t], b[limbs + d - t]);
                u = LOW(u, q[t], SAME(n[limbs + d - t]));
            }
#pragma GCC unroll 4
            for (int t = d; t < ROWS; t++) {
                s = HIGH(s, x[t], b[limbs + d - t - 1]);
                u = HIGH(u, q[t], SAME(n[limbs + d - t - 1]));
            }
            sums[limbs + d - ROWS] = ADD(s, u);
        }
        sums[0] = ADD(sums[0], over);
    }
    carry(limbs, sums);
    for (size_t j = 0; j < limbs; j++) out[j] = sums[j];
}

/* Addresses of eight numbers from place k on; lanes without a number repeat the last one. */
INLINE void addresses(
    size_t limbs, const uint64_t *numbers, const int64_t *places, size_t k, size_t count, const uint64_t *at[LANES]) {
    for (size_t lane = 0; lane < LANES; lane++) {
        const size_t item = k + lane < count ? k + lane : count - 1;
        at[lane] = numbers + limbs * (places ? (size_t)places[item] : item);
    }
}

INLINE void store(size_t limbs, const vector *lanes, uint64_t *numbers, const int64_t *places, size_t k, size_t count) {
    const uint64_t *at[LANES];
    addresses(limbs, numbers, places, k, count, at);
    scatter(limbs, lanes, count - k < LANES ? count - k : LANES, (uint64_t *const *)at);
}

/* out[out_at[k]] = a[a_at[k]] * b[b_at[k]] / R mod N for k < count; no places: the k-th number.
 * Within eight consecutive k no place of `out` may be among the places of `a` or `b` of another k. */
TARGET void treetap_products(
    size_t limbs, const uint64_t *n, uint64_t inverse, uint64_t *out, const int64_t *out_at, const uint64_t *a,
    const int64_t *a_at, const uint64_t *b, const int64_t *b_at, size_t count) {
    vector x[LARGEST], y[LARGEST];
    const uint64_t *at[LANES];
    for (size_t k = 0; k < count; k += LANES) {
        addresses(limbs, a, a_at, k, count, at);
        gather(limbs, at, x);
        addresses(limbs, b, b_at, k, count, at);
        gather(limbs, at, y);
        multiply(limbs, n, inverse, x, y, x);
        store(limbs, x, out, out_at, k, count);
    }
}

/* out[k] = numbers[k] / R mod N, below N: out of Montgomery form. */
TARGET void treetap_leave(
    size_t limbs, const uint64_t *n, uint64_t inverse, uint64_t *out, const uint64_t *numbers, size_t count) {
    vector x[LARGEST], one[LARGEST];
    const uint64_t *at[LANES];
    const vector mask = SAME(MASK);
    for (size_t j = 0; j < limbs; j++) one[j] = SAME(j == 0);
    for (size_t k = 0; k < count; k += LANES) {
        addresses(limbs, numbers, NULL, k, count, at);
        gather(limbs, at, x);
        multiply(limbs, n, inverse, x, one, x); /* at most N, and N only for 0 */
        vector less[LARGEST], over = _mm512_setzero_si512();
        for (size_t j = 0; j < limbs; j++) {
            const vector s = ADD(_mm512_sub_epi64(x[j], SAME(n[j])), over);
            over = _mm512_srai_epi64(s, WORD_BITS);
            less[j] = _mm512_and_si512(s, mask);
        }
        const __mmask8 smaller = _mm512_movepi64_mask(over);
        for (size_t j = 0; j < limbs; j++) x[j] = _mm512_mask_mov_epi64(less[j], smaller, x[j]);
        store(limbs, x, out, NULL, k, count);
    }
}

/* out[k] = product over rows of table[row][digits[k][row]], for a table of rows * entries numbers. */
TARGET void treetap_fixed_base(
    size_t limbs, const uint64_t *n, uint64_t inverse, uint64_t *out, const uint64_t *table, size_t rows,
    size_t entries, const uint16_t *digits, size_t count) {
    vector x[LARGEST], y[LARGEST];
    const uint64_t *at[LANES];
    for (size_t k = 0; k < count; k += LANES) {
        for (size_t row = 0; row < rows; row++) {
            for (size_t lane = 0; lane < LANES; lane++) {
                const size_t item = k + lane < count ? k + lane : count - 1;
                at[lane] = table + limbs * (row * entries + digits[item * rows + row]);
                if (row + 1 < rows)
                    for (size_t word = 0; word < limbs; word += 8)
                        __builtin_prefetch(
                            table + limbs * ((row + 1) * entries + digits[item * rows + row + 1]) + word);
            }
            gather(limbs, at, row ? y : x);
            if (row) multiply(limbs, n, inverse, x, y, x);
        }
        store(limbs, x, out, NULL, k, count);
    }
}

/* Simultaneous powers of up to eight numbers by one program (Straus 1964; sliding windows where there is one base).
 *
 * The k-th result is computed from 1: step s squares `squarings[s]` times, then multiplies by an operand: for
 * operands[s] = -1-w by base[k]^(2*w+1), else by values[places[k * width + operands[s]]]; at the end it squares `last`
 * times more.
 * Returns 0, or -1 if there is no memory for the `powers` odd powers of the base. */
TARGET int treetap_chain(
    size_t limbs, const uint64_t *n, uint64_t inverse, const uint64_t *one, uint64_t *out, const uint64_t *base,
    size_t powers, const uint64_t *values, const int64_t *places, size_t width, const int32_t *squarings,
    const int32_t *operands, size_t steps, size_t last, size_t count) {
    vector x[LARGEST], y[LARGEST];
    const uint64_t *at[LANES];
    vector *odd = powers ? aligned_alloc(64, powers * limbs * sizeof *odd) : NULL;
    if (powers && !odd) return -1;
    for (size_t k = 0; k < count; k += LANES) {
        if (powers) {
            addresses(limbs, base, NULL, k, count, at);
            gather(limbs, at, odd);
            multiply(limbs, n, inverse, odd, odd, y);
            for (size_t w = 1; w < powers; w++)
                multiply(limbs, n, inverse, odd + (w - 1) * limbs, y, odd + w * limbs);
        }
        for (size_t j = 0; j < limbs; j++) x[j] = SAME(one[j]);
        for (size_t s = 0; s < steps; s++) {
            for (int32_t t = 0; t < squarings[s]; t++) multiply(limbs, n, inverse, x, x, x);
            const vector *operand = y;
            if (operands[s] < 0)
                operand = odd + (size_t)(-1 - operands[s]) * limbs;
            else {
                for (size_t lane = 0; lane < LANES; lane++) {
                    const size_t item = k + lane < count ? k + lane : count - 1;
                    at[lane] = values + limbs * (size_t)places[item * width + (size_t)operands[s]];
                }
                gather(limbs, at, y);
            }
            multiply(limbs, n, inverse, x, operand, x);
        }
        for (size_t t = 0; t < last; t++) multiply(limbs, n, inverse, x, x, x);
        store(limbs, x, out, NULL, k, count);
    }
    free(odd);
    return 0;
}

/* out[k] = a[k] + b[k] modulo 2*N for numbers below 2*N. No places: the k-th number. */
void treetap_sums(
    size_t limbs, const uint64_t *n, uint64_t *out, const uint64_t *a, const uint64_t *b, const int64_t *b_at,
    size_t count) {
    for (size_t k = 0; k < count; k++) {
        const uint64_t *other = b + limbs * (b_at ? (size_t)b_at[k] : k);
        uint64_t less[LARGEST], over = 0;
        int64_t borrow = 0;
        for (size_t j = 0; j < limbs; j++) {
            over += a[k * limbs + j] + other[j];
            out[k * limbs + j] = over & MASK;
            borrow += (int64_t)(over & MASK) - 2 * (int64_t)n[j];
            less[j] = (uint64_t)borrow & MASK;
            over >>= WORD_BITS;
            borrow >>= WORD_BITS;
        }
        if (borrow == 0) memcpy(out + k * limbs, less, limbs * sizeof *less);
    }
}

/* out[k] = a[k] + factor[k] * m: the last step of the Chinese remainder theorem, in plain integers.
 * Numbers of `limbs` words in, of `wide` words out; the result fits into them. */
TARGET void treetap_join(
    size_t limbs, size_t wide, uint64_t *out, const uint64_t *a, const uint64_t *factor, const uint64_t *m,
    size_t count) {
    vector x[LARGEST], y[LARGEST], sums[2 * LARGEST];
    const uint64_t *at[LANES];
    for (size_t k = 0; k < count; k += LANES) {
        addresses(limbs, a, NULL, k, count, at);
        gather(limbs, at, y);
        addresses(limbs, factor, NULL, k, count, at);
        gather(limbs, at, x);
        for (size_t j = 0; j < 2 * limbs || j < wide; j++) sums[j] = j < limbs ? y[j] : _mm512_setzero_si512();
        for (size_t i = 0; i < limbs; i++)
            for (size_t j = 0; j < limbs; j++) {
                sums[i + j] = LOW(sums[i + j], x[i], SAME(m[j]));
                sums[i + j + 1] = HIGH(sums[i + j + 1], x[i], SAME(m[j]));
            }
        carry(wide, sums);
        store(wide, sums, out, NULL, k, count);
    }
}
#endif
