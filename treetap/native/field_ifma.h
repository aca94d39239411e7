/* Products in the field of p = 2^255 - 19 by VPMADD52; included by curve_field.h alone.
 *
 * VPMADD52LUQ and VPMADD52HUQ (Gueron and Krasnov, "Accelerating Big Integer Arithmetic Using Intel IFMA Extensions",
 * ARITH 2016) multiply the low 52 bits of two words and add the low or the high 52 bits of the product; the high ones
 * weigh 2^52 = 2 * 2^51, so they count twice in the next column.
 */
#pragma once

/* High halves are summed first, then doubled, and low halves are added to them. At most five low halves and twice five
 * high ones are in a column: it is below 15 * 2^52, and twenty of them below 2^61. */
INLINE wide multiply(const element *a, const element *b) {
    vector column[2 * WORDS];
    UNROLL for (int k = 0; k < 2 * WORDS; k++) column[k] = SAME(0);
    UNROLL for (int i = 0; i < WORDS; i++)
        UNROLL for (int j = 0; j < WORDS; j++) column[i + j + 1] = HIGH(column[i + j + 1], a->word[i], b->word[j]);
    UNROLL for (int k = 1; k < 2 * WORDS; k++) column[k] += column[k];
    UNROLL for (int i = 0; i < WORDS; i++)
        UNROLL for (int j = 0; j < WORDS; j++) column[i + j] = LOW(column[i + j], a->word[i], b->word[j]);
    return fold(column);
}

/* With C for the products of different words, which count twice, and S for squares: 4*C.high + 2*C.low + 2*S.high +
 * S.low, by two doublings. */
INLINE wide square(const element *a) {
    vector column[2 * WORDS];
    UNROLL for (int k = 0; k < 2 * WORDS; k++) column[k] = SAME(0);
    UNROLL for (int i = 0; i < WORDS; i++)
        UNROLL for (int j = i + 1; j < WORDS; j++) column[i + j + 1] = HIGH(column[i + j + 1], a->word[i], a->word[j]);
    UNROLL for (int k = 2; k < 2 * WORDS - 1; k++) column[k] += column[k];
    UNROLL for (int i = 0; i < WORDS; i++) {
        column[2 * i + 1] = HIGH(column[2 * i + 1], a->word[i], a->word[i]);
        UNROLL for (int j = i + 1; j < WORDS; j++) column[i + j] = LOW(column[i + j], a->word[i], a->word[j]);
    }
    UNROLL for (int k = 1; k < 2 * WORDS; k++) column[k] += column[k];
    UNROLL for (int i = 0; i < WORDS; i++) column[2 * i] = LOW(column[2 * i], a->word[i], a->word[i]);
    return fold(column);
}

INLINE wide multiply_small_add(const element *a, uint32_t number, const wide *b) {
    wide c;
    vector high[WORDS];
    UNROLL for (int i = 0; i < WORDS; i++) {
        c.word[i] = LOW(b->word[i], a->word[i], SAME(number));
        high[i] = HIGH(SAME(0), a->word[i], SAME(number));
        high[i] += high[i];
    }
    c.word[0] += times19(high[WORDS - 1]);
    UNROLL for (int i = 1; i < WORDS; i++) c.word[i] += high[i - 1];
    return c;
}
