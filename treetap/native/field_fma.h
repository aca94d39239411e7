/* Products in the field of p = 2^255 - 19 by fused multiply-adds of doubles; included by curve_field.h alone.
 *
 * Words of elements are doubles. A product of two of them is split without an error (Dekker, Numer. Math. 18, 1971;
 * Emmart, Zheng, Weems, "Faster Modular Exponentiation Using Double Precision Floating Point Arithmetic on the GPU",
 * ARITH 2018), whatever the rounding mode is:
 *
 *     h = fma(x, y, 2^103)                       h's last place is 2^51, as x*y < 2^103
 *     l = fma(x, y, 2^103 + 1.5*2^52 - h)        the rest of x*y is below 2^51, with a sign; l's last place is 1
 *
 * The bits of h, read as an integer, are HIGH_ZERO + its multiple of 2^51, those of l are LOW_ZERO + the rest. They are
 * added to columns as integers, and columns begin with what takes HIGH_ZERO and LOW_ZERO off again, and with a word of
 * 2^8*p, so that none is negative.
 */
#pragma once

#define SPLIT 0x1p103
#define REST 0x1.8p52
#define HIGH_ZERO 0x4660000000000000ull
#define LOW_ZERO 0x4338000000000000ull
#define INTEGERS 0x1p52 /* a double from here to 2^53 has its integer in its low bits */
#define INTEGER_ZERO 0x4330000000000000ull

INLINE factor factor_of(uint64_t word) { return REAL((double)(int64_t)word); }

/* Words below 2^52 as they go into products, and back. */
INLINE factor into_factor(vector word) { return (reals)(word | SAME(INTEGER_ZERO)) - REAL(INTEGERS); }
INLINE vector out_of_factor(factor word) { return (vector)(word + REAL(INTEGERS)) ^ SAME(INTEGER_ZERO); }

INLINE element carry(const wide c) {
    element x;
    vector y[WORDS];
    UNROLL for (int i = 0; i < WORDS; i++) y[i] = (c.word[i] & SAME(MASK)) | SAME(INTEGER_ZERO);
    y[0] += times19(c.word[WORDS - 1] >> WORD_BITS);
    UNROLL for (int i = 1; i < WORDS; i++) y[i] += c.word[i - 1] >> WORD_BITS;
    UNROLL for (int i = 0; i < WORDS; i++) x.word[i] = (reals)y[i] - REAL(INTEGERS);
    return x;
}

#define ADD_PRODUCT(low, high, x, y)                                \
    do {                                                            \
        const reals h_ = FMA(x, y, REAL(SPLIT));                    \
        (low) += (vector)FMA(x, y, REAL(SPLIT + REST) - h_);        \
        (high) += (vector)h_;                                       \
    } while (0)

/* The start of column k, to which so many low and high halves will be added. A word of 2^8*p is 2^59: a folded word has
 * at most 77 halves with a sign that pull down, each above -2^51, and 200 that add up to 2^51 each: it stays above 0 and
 * below 2^60. */
#define START(k, lows, highs) (((k) < WORDS ? MULTIPLE(k, 8) : 0) - (lows) * LOW_ZERO - (highs) * HIGH_ZERO)

INLINE wide multiply(const element *a, const element *b) {
    vector column[2 * WORDS];
    UNROLL for (int k = 0; k < 2 * WORDS; k++) {
        const uint64_t lows = k < 5 ? k + 1 : 9 - k, highs = k < 6 ? k : 10 - k;
        column[k] = SAME(START(k, lows, highs));
    }
    UNROLL for (int k = 0; k < 2 * WORDS - 1; k++)
        UNROLL for (int i = 0; i < WORDS; i++)
            if (k - i >= 0 && k - i < WORDS) ADD_PRODUCT(column[k], column[k + 1], a->word[i], b->word[k - i]);
    return fold(column);
}

/* Products of different words are summed and doubled, then squares are added: half of a start, which is even, is there
 * before the doubling. */
INLINE wide square(const element *a) {
    vector column[2 * WORDS];
    UNROLL for (int k = 0; k < 2 * WORDS; k++) {
        const uint64_t lows = (k < 5 ? k + 1 : 9 - k) / 2, highs = (k < 6 ? k : 10 - k) / 2; /* of different words */
        const uint64_t of_squares = START(k, (uint64_t)(k % 2 == 0), (uint64_t)(k % 2));
        column[k] = SAME(of_squares / 2 - lows * LOW_ZERO - highs * HIGH_ZERO);
    }
    UNROLL for (int k = 1; k < 2 * WORDS - 2; k++)
        UNROLL for (int i = 0; i < WORDS; i++)
            if (k - i > i && k - i < WORDS) ADD_PRODUCT(column[k], column[k + 1], a->word[i], a->word[k - i]);
    UNROLL for (int k = 0; k < 2 * WORDS; k++) column[k] += column[k];
    UNROLL for (int i = 0; i < WORDS; i++) ADD_PRODUCT(column[2 * i], column[2 * i + 1], a->word[i], a->word[i]);
    return fold(column);
}

INLINE wide multiply_small_add(const element *a, uint32_t number, const wide *b) {
    wide c;
    vector high[WORDS];
    UNROLL for (int i = 0; i < WORDS; i++) {
        c.word[i] = b->word[i] + SAME(MULTIPLE(i, 2) - LOW_ZERO);
        high[i] = SAME(-HIGH_ZERO);
        ADD_PRODUCT(c.word[i], high[i], a->word[i], REAL((double)number));
    }
    c.word[0] += times19(high[WORDS - 1]);
    UNROLL for (int i = 1; i < WORDS; i++) c.word[i] += high[i - 1];
    return c;
}
