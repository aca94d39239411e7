/* Digits of 49 bits, whose products are split by the fused multiply-add of doubles: the block of multiply.h.
 *
 * A product of two digits is split exactly into a high part, a multiple of 2^49, and a low part with a sign (Dekker, Numer.
 * Math. 18, 1971; by FMA: Emmart, Zheng and Weems, "Faster Modular Exponentiation using Double Precision Floating Point
 * Arithmetic on the GPU", ARITH 2018, with five instructions and 52 bits). Here four instructions do, as the high part of
 * one product is what the next product of the same column is added to:
 *
 *     h' = fma(x, y, h)        2^101 <= h < 2^102, so that its last place is 2^49: h' - h is the high part
 *     w += fma(x, y, h - h')   the low part, at most 2^48 either way
 *
 * h begins with START, w with MAGIC; the bits of both, read as integers, are the sums of high parts (in units of 2^49) and
 * of low parts, plus constants. Seven products fit (ROWS):
 *
 *     digits without a sign, below 2^49, START = 2^101           7 * 2^98 + 7 * 2^48 <  2^101
 *     digits with a sign, START = 1.5 * 2^101, see `differences`  11 * 2^96           <  2^100
 *     low parts, MAGIC = 1.5 * 2^52                               7 * 2^48            <  2^51
 *
 * Low parts are that small when rounding is to the nearest, as in every thread that has not changed it; they are twice as
 * large otherwise, and seven would not fit. `rounds_to_nearest` is asked in every call. Every number here is an integer or
 * zero: whether numbers too small for a double's exponent count as zero (DAZ, FTZ) does not matter.
 *
 * The columns of a sum. A block adds to a column at most 7 * (2^49 + 2^48) either way. The 39 blocks of the largest product,
 * twice as much for each of two levels of Karatsuba, and the 39 blocks of its reduction make less than 2^61, which is BIAS. */
#pragma once
#include "lanes.h"

#define WORD_BITS 49
#define ROWS 7      /* digits that are multiplied at a time */
#define LARGEST 273 /* digits: moduli of up to 13,373 bits */
#define SPLIT 28    /* digits of the smallest product that is worth Karatsuba's three, and of the smallest square */
#define SQUARE_SPLIT 42
#define BIAS (1ull << 61)
#define MAGIC 0x1.8p52
#define START REAL(with_signs ? 0x1.8p101 : 0x1p101)
/* Columns that are summed side by side, of which clang keeps more in registers than gcc, and as many at a block's ends. */
#if LANES == 8 && defined(__clang__)
#define TILE 6
#elif defined(__clang__)
#define TILE 4
#else
#define TILE 3
#endif
#define EDGE 3

typedef reals digit;   /* a digit of each of LANES numbers */
typedef double scalar; /* a digit of one */

/* Digits from words below 2^49, and back. */
INLINE digit digit_of(vector word) { return (reals)(word | (vector)REAL(0x1p52)) - REAL(0x1p52); }
INLINE vector word_of(digit x) { return (vector)(x + REAL(0x1p52)) & SAME((1ull << WORD_BITS) - 1); }

#define AT(y, k) (broadcast ? REAL(((const double *)(y))[k]) : ((const reals *)(y))[k])

/* Columns j .. j + many - 1 of x times y: row t multiplies y[j + d - t] in column d, if low >= t - d > high; they are
 * added to the sums, or (fresh) are the sums. Returns the last column's high parts, which belong to the next one. */
INLINE vector tile(
    const int many, const int low, const int high, const digit x[ROWS], const void *y, const int broadcast,
    const int with_signs, ptrdiff_t j, vector before, const int fresh, vector *sums) {
    reals H[6], W[6];
    UNROLL for (int d = 0; d < many; d++) H[d] = START, W[d] = REAL(MAGIC);
#define COLUMNS UNROLL for (int d = 0; d < many; d++) if (t - d <= low && t - d > high)
    UNROLL for (int t = 0; t < ROWS; t++) {
        reals h[6], l[6];
        COLUMNS h[d] = FMA(x[t], AT(y, j + d - t), H[d]);
        COLUMNS l[d] = H[d] - h[d];
        COLUMNS l[d] = FMA(x[t], AT(y, j + d - t), l[d]);
        COLUMNS W[d] += l[d];
        COLUMNS H[d] = h[d];
    }
#undef COLUMNS
    UNROLL for (int d = 0; d < many; d++) {
        const vector both = (vector)W[d] + before;
        sums[j + d] = fresh ? both : sums[j + d] + both;
        before = (vector)H[d];
    }
    return before;
}

/* sums[0 .. limbs + ROWS) += x*y, plus constants; y has a digit of each of LANES numbers, or (broadcast) of one. With `fresh`
 * the highest ROWS columns held nothing before. */
INLINE void block(
    size_t limbs, const digit x[ROWS], const void *y, const int broadcast, const int with_signs, const int fresh,
    vector *sums) {
    const ptrdiff_t end = (ptrdiff_t)limbs;
    ptrdiff_t j = ROWS - 1;
    vector before = SAME(0);
    UNROLL for (int d = 0; d < ROWS - 1; d += EDGE)
        before = tile(EDGE, d, -ROWS, x, y, broadcast, with_signs, d, before, 0, sums);
    for (; j + TILE <= end; j += TILE) before = tile(TILE, ROWS, -ROWS, x, y, broadcast, with_signs, j, before, 0, sums);
    if (TILE > 3)
        for (; j + 3 <= end; j += 3) before = tile(3, ROWS, -ROWS, x, y, broadcast, with_signs, j, before, 0, sums);
    for (; j < end; j++) before = tile(1, ROWS, -ROWS, x, y, broadcast, with_signs, j, before, 0, sums);
    UNROLL for (int d = 0; d < ROWS - 1; d += EDGE)
        before = tile(EDGE, ROWS, d, x, y, broadcast, with_signs, end + d, before, fresh, sums);
    sums[end + ROWS - 1] = fresh ? before : sums[end + ROWS - 1] + before;
}

/* sums[0 .. ROWS) += the lowest columns of x*y, plus constants; y is of one number. */
INLINE void low_block(const digit x[ROWS], const double *y, vector *sums) {
    vector before = SAME(0);
    UNROLL for (int d = 0; d < ROWS; d++) before = tile(1, d, -ROWS, x, y, 1, 0, d, before, 0, sums);
}

/* sums[0 .. 2 * ROWS) += the products of two different digits of x, each once, plus constants. */
INLINE void cross_block(const digit x[ROWS], const int with_signs, vector *sums) {
    vector before = SAME(0);
    UNROLL for (int s = 1; s < 2 * ROWS - 2; s++) {
        reals H = START, W = REAL(MAGIC);
        UNROLL for (int t = 0; t < ROWS; t++)
            if (s - t > t && s - t < ROWS) {
                const reals h = FMA(x[t], x[s - t], H);
                W += FMA(x[t], x[s - t], H - h);
                H = h;
            }
        sums[s] += (vector)W + before;
        before = (vector)H;
    }
    sums[2 * ROWS - 2] += before;
}

/* Adds the halves of a digit's square, plus constants. */
INLINE void add_square(digit x, const int with_signs, vector *low, vector *high) {
    const reals h = FMA(x, x, START);
    *low += (vector)(FMA(x, x, START - h) + REAL(MAGIC));
    *high += (vector)h;
}

/* The digits of a - b with a sign, carried once: from digits without one they are at most 2^48 + 1 either way, the highest
 * at most 2^49; from such digits again 2^48 + 1, the highest 3 * 2^48 + 2. A column has one highest digit of each factor:
 * 5 * 2^96 + 2 * 3 * 2^96 and little more. Returns the lanes that need `correct`: none. */
INLINE vector differences(size_t limbs, const digit *a, const digit *b, digit *out) {
    reals over = REAL(0);
    for (size_t j = 0; j + 1 < limbs; j++) {
        const reals d = a[j] - b[j], c = d + REAL(0x1.8p101) - REAL(0x1.8p101); /* to the nearest multiple of 2^49 */
        out[j] = FMA(over, REAL(0x1p-49), d - c);
        over = c;
    }
    out[limbs - 1] = FMA(over, REAL(0x1p-49), a[limbs - 1] - b[limbs - 1]);
    return SAME(0);
}

INLINE void correct(size_t limbs, vector at_a, const digit *a, vector at_b, const digit *b, vector *sums) {
    (void)limbs, (void)at_a, (void)a, (void)at_b, (void)b, (void)sums;
}
