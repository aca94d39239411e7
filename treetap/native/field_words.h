/* Products in the field of p = 2^255 - 19 by the multiplier of 64-bit words; included by curve_field.h alone.
 *
 * The plain form. Its lanes are one: a processor multiplies two words to 128 bits in one instruction, whose time depends
 * on no data, while fma() without an instruction for it is a slow function with branches on its arguments. Columns of
 * 128 bits need no halves (as in Langley's curve25519-donna-c64).
 */
#pragma once

typedef unsigned __int128 column_sum;

/* Columns are below 77 * 2^103, the last one, which has no product that counts 19 times, below 2^106: the lowest word
 * is below 2^60, the others below 2^51. */
INLINE wide carry_columns(column_sum column[WORDS]) {
    wide c;
    UNROLL for (int i = 0; i < WORDS - 1; i++) column[i + 1] += column[i] >> WORD_BITS;
    UNROLL for (int i = 0; i < WORDS; i++) c.word[i] = (uint64_t)column[i] & MASK;
    c.word[0] += 19 * (uint64_t)(column[WORDS - 1] >> WORD_BITS);
    return c;
}

INLINE wide multiply(const element *a, const element *b) {
    column_sum column[WORDS] = {0};
    uint64_t b19[WORDS];
    UNROLL for (int j = 0; j < WORDS; j++) b19[j] = 19 * b->word[j];
    UNROLL for (int i = 0; i < WORDS; i++)
        UNROLL for (int j = 0; j < WORDS; j++)
            column[(i + j) % WORDS] += (column_sum)a->word[i] * (i + j < WORDS ? b->word[j] : b19[j]);
    return carry_columns(column);
}

INLINE wide square(const element *a) {
    column_sum column[WORDS] = {0};
    UNROLL for (int i = 0; i < WORDS; i++)
        UNROLL for (int j = i; j < WORDS; j++) {
            const uint64_t times = (j > i ? 2 : 1) * (i + j < WORDS ? 1 : 19);
            column[(i + j) % WORDS] += (column_sum)a->word[i] * (times * a->word[j]);
        }
    return carry_columns(column);
}

INLINE wide multiply_small_add(const element *a, uint32_t number, const wide *b) {
    wide c = *b;
    UNROLL for (int i = 0; i < WORDS; i++) {
        const column_sum product = (column_sum)a->word[i] * number;
        const uint64_t over = (uint64_t)(product >> WORD_BITS);
        c.word[i] += (uint64_t)product & MASK;
        c.word[(i + 1) % WORDS] += i + 1 < WORDS ? over : 19 * over;
    }
    return c;
}
