/* Digits of 52 bits, whose products VPMADD52LUQ and VPMADD52HUQ add by halves: the block of multiply.h.
 *
 * The instructions multiply the low 52 bits of eight pairs of words and add the low or the high half of each 104-bit product
 * to a 64-bit word (Gueron and Krasnov, "Accelerating Big Integer Arithmetic Using Intel IFMA Extensions", ARITH 2016), so
 * that carries can wait. A column of the largest product collects 2 * 256 halves below 2^52, at most twice as many for each
 * level of Karatsuba's, and its reduction as many as the product: less than 2^64 with BIAS, which keeps it positive. */
#pragma once
#include "lanes.h"

#define WORD_BITS 52
#define ROWS 4      /* digits that are multiplied at a time, and columns that are summed side by side */
#define LARGEST 256 /* digits: moduli of up to 13,308 bits */
#define SPLIT 24    /* digits of the smallest product that is worth Karatsuba's three; no square is */
#define SQUARE_SPLIT (LARGEST + 1)
#define BIAS (1ull << 57)

typedef vector digit;    /* a digit of each of LANES numbers */
typedef uint64_t scalar; /* a digit of one */

#define rounds_to_nearest() 1 /* nothing is rounded */

INLINE digit digit_of(vector word) { return word; }
INLINE vector word_of(digit x) { return x; }

#define AT(y, k) (broadcast ? SAME(((const uint64_t *)(y))[k]) : ((const vector *)(y))[k])

/* Columns j .. j + ROWS - 1 of x times y: row t multiplies y[j + d - t] in column d, if low >= t - d > high; its high half
 * belongs to the next column. They are added to the sums, or (fresh) are the sums. */
INLINE void tile(
    const int low, const int high, const digit x[ROWS], const void *y, const int broadcast, ptrdiff_t j, const int fresh,
    vector *sums) {
    vector l[ROWS], h[ROWS];
    UNROLL for (int d = 0; d < ROWS; d++) l[d] = fresh ? SAME(0) : sums[j + d], h[d] = SAME(0);
    UNROLL for (int t = 0; t < ROWS; t++) {
        UNROLL for (int d = 0; d < ROWS; d++)
            if (t - d <= low && t - d > high) l[d] = LOW(l[d], x[t], AT(y, j + d - t));
        UNROLL for (int d = 0; d < ROWS; d++)
            if (t - d < low && t - d >= high) h[d] = HIGH(h[d], x[t], AT(y, j + d - 1 - t));
    }
    UNROLL for (int d = 0; d < ROWS; d++) sums[j + d] = l[d] + h[d];
}

/* sums[0 .. limbs + ROWS) += x*y; y has a digit of each of LANES numbers, or (broadcast) of one. With `fresh` the
 * highest ROWS columns held nothing before. */
INLINE void block(
    size_t limbs, const digit x[ROWS], const void *y, const int broadcast, const int with_signs, const int fresh,
    vector *sums) {
    const ptrdiff_t end = (ptrdiff_t)limbs;
    (void)with_signs;
    tile(0, -2 * ROWS, x, y, broadcast, 0, 0, sums);
    for (ptrdiff_t j = ROWS; j < end; j += ROWS) tile(2 * ROWS, -2 * ROWS, x, y, broadcast, j, 0, sums);
    tile(2 * ROWS, 0, x, y, broadcast, end, fresh, sums);
}

/* sums[0 .. ROWS) += the lowest columns of x*y; y is of one number. */
INLINE void low_block(const digit x[ROWS], const uint64_t *y, vector *sums) { tile(0, -2 * ROWS, x, y, 1, 0, 0, sums); }

/* sums[0 .. 2 * ROWS) += the products of two different digits of x, each once. */
INLINE void cross_block(const digit x[ROWS], const int with_signs, vector *sums) {
    (void)with_signs;
    UNROLL for (int s = 1; s < ROWS; s++)
        UNROLL for (int t = 0; t < s; t++) {
            sums[s + t] = LOW(sums[s + t], x[s], x[t]);
            sums[s + t + 1] = HIGH(sums[s + t + 1], x[s], x[t]);
        }
}

/* Adds the halves of a digit's square. */
INLINE void add_square(digit x, const int with_signs, vector *low, vector *high) {
    (void)with_signs;
    *low = LOW(*low, x, x);
    *high = HIGH(*high, x, x);
}

/* The digits of a - b, plus 2^(52 * limbs) in lanes where that is negative. Returns these lanes, for `correct`. */
INLINE vector differences(size_t limbs, const digit *a, const digit *b, digit *out) {
    vector over = SAME(0);
    for (size_t j = 0; j < limbs; j++) {
        const vector d = a[j] - b[j] - over;
        out[j] = d & SAME((1ull << WORD_BITS) - 1);
        over = d >> 63;
    }
    return SAME(0) - over;
}

/* sums -= what the factors of a product have too much, 2^(52 * limbs) in the lanes of at_a and of at_b; sums begins there. */
INLINE void correct(size_t limbs, vector at_a, const digit *a, vector at_b, const digit *b, vector *sums) {
    for (size_t j = 0; j < limbs; j++) sums[j] -= (b[j] & at_a) + (a[j] & at_b);
    sums[limbs] += at_a & at_b & SAME(1);
}
