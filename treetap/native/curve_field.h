/* The field of p = 2^255 - 19 in vectors, a lane for each element; included by curve.c alone.
 *
 * Elements are five words of 51 bits, the lowest first. 51 is the width at which 2^255 = 19 falls between two words.
 *
 * Bounds. An `element` has words below 2^51 + 2^17, and a value below 2p; `freeze` gives the words of the one below p.
 * Sums, differences and products are `wide` first, with words below 2^63, which `carry` makes an element; the ladder adds
 * wide ones, to carry less often. Words of products are below 2^61.
 *
 * Products are made in three ways. field_ifma.h, field_fma.h and, where a vector is one word, field_words.h have
 *
 *     factor              a word of an element, as it goes into products
 *     factor_of           the same word in all lanes; into_factor, out_of_factor: from words below 2^52, and back
 *     carry               an element from words below 2^63. Each word gives what is above 51 bits, which is below 2^12,
 *                         to the next one, once, all at the same time; the last gives to the first, 19 times
 *     multiply, square    products of elements; column k + 5 counts 19 times in column k
 *     multiply_small_add  number*a + b, for a number below 2^17 and a product b; words are below 2^62
 */
#pragma once
#define WORDS_IN_PLAIN
#include "lanes.h"

#define WORDS 5
#define WORD_BITS 51
#define MASK ((1ull << WORD_BITS) - 1)
#define ELEMENT_BYTES 32
#define AT_ONCE 4 /* vectors of independent powers: they hide each other's latencies */
#define BATCH 32  /* vectors that share one inversion */

/* Word i of 2^bits * p. */
#define MULTIPLE(i, bits) ((MASK - ((i) == 0 ? 18 : 0)) << (bits))
#define ELEMENT 1  /* words of an element are below those of 2*p */
#define PRODUCT 11 /* words of a product are below those of 2^11*p, which are below 2^62 */

#if defined(AVX512) || defined(AVX2)
typedef reals factor;
#else
typedef vector factor;
#endif
typedef struct {
    factor word[WORDS];
} element;
typedef struct {
    vector word[WORDS];
} wide;

INLINE vector times19(vector x) { /* 2*9 + 1: one shift, as fewer ports shift than add */
    const vector nine = (x << 3) + x;
    return nine + nine + x;
}

/* The five words that ten columns stand for. */
INLINE wide fold(const vector column[2 * WORDS]) {
    wide c;
    UNROLL for (int k = 0; k < WORDS; k++) c.word[k] = column[k] + times19(column[k + WORDS]);
    return c;
}

#if defined(AVX512) || defined(AVX2)
#include "field_fma.h"
#else
INLINE factor factor_of(uint64_t word) { return SAME(word); }

/* Words below 2^52 as they go into products, and back. */
INLINE factor into_factor(vector word) { return word; }
INLINE vector out_of_factor(factor word) { return word; }

INLINE element carry(const wide c) {
    element x;
    x.word[0] = (c.word[0] & SAME(MASK)) + times19(c.word[WORDS - 1] >> WORD_BITS);
    UNROLL for (int i = 1; i < WORDS; i++) x.word[i] = (c.word[i] & SAME(MASK)) + (c.word[i - 1] >> WORD_BITS);
    return x;
}

#if defined(IFMA)
#include "field_ifma.h"
#else
#include "field_words.h"
#endif
#endif

static const uint64_t ZERO[WORDS] = {0, 0, 0, 0, 0};
static const uint64_t ONE[WORDS] = {1, 0, 0, 0, 0};
/* The square root of -1 that is 2^((p-1)/4). */
static const uint64_t I[WORDS] = {0x61b274a0ea0b0, 0xd5a5fc8f189d, 0x7ef5e9cbd0c60, 0x78595a6804c9e, 0x2b8324804fc1d};

INLINE element constant(const uint64_t words[WORDS]) {
    element x;
    UNROLL for (int i = 0; i < WORDS; i++) x.word[i] = factor_of(words[i]);
    return x;
}

/* An element from words below 2^51 + 2^17, and back. */
INLINE element element_of(const wide *a) {
    element x;
    UNROLL for (int i = 0; i < WORDS; i++) x.word[i] = into_factor(a->word[i]);
    return x;
}

INLINE wide words_of(const element *a) {
    wide c;
    UNROLL for (int i = 0; i < WORDS; i++) c.word[i] = out_of_factor(a->word[i]);
    return c;
}

/* For words of elements, and for products. */
INLINE wide add_wide(const wide *a, const wide *b) {
    wide c;
    UNROLL for (int i = 0; i < WORDS; i++) c.word[i] = a->word[i] + b->word[i];
    return c;
}

/* a + 2^bits*p - b: every word of 2^bits*p is above every word of b. */
INLINE wide subtract_wide(const wide *a, const wide *b, int bits) {
    wide c;
    UNROLL for (int i = 0; i < WORDS; i++) c.word[i] = a->word[i] + SAME(MULTIPLE(i, bits)) - b->word[i];
    return c;
}

/* The words of the same residue below p: 19 is added if the value is at least p, and bit 255 dropped. */
CALLED wide freeze(const element *a) {
    wide x = words_of(a);
    vector over = SAME(19);
    for (int i = 0; i < WORDS; i++) over = (x.word[i] + over) >> WORD_BITS;
    over = times19(over);
    for (int i = 0; i < WORDS; i++) {
        x.word[i] += over;
        over = x.word[i] >> WORD_BITS;
        x.word[i] &= SAME(MASK);
    }
    return x;
}

/* ---- choosing. A mask is all ones or zero in each lane. */

/* The same mask, of which a compiler does not know that its lanes have two values only: it makes no branch of a choice,
 * and no store that depends on the mask. */
INLINE vector opaque(vector mask) {
#if LANES == 1
    __asm__("" : "+r"(mask));
#elif !defined(EMULATED)
    __asm__("" : "+v"(mask));
#endif
    return mask;
}

/* The lanes in which words below 2^63 are equal, by the sign of their difference. */
INLINE vector equal_words(vector x, vector y) { return opaque(SAME(0) - (((x ^ y) - SAME(1)) >> 63)); }

/* The lanes in which frozen words are equal. */
INLINE vector equal(const wide *a, const wide *b) {
    vector differ = SAME(0);
    for (int i = 0; i < WORDS; i++) differ |= a->word[i] ^ b->word[i];
    return equal_words(differ, SAME(0));
}

/* Lanes of y where the mask is all ones, else those of x. */
INLINE element choose(vector mask, const element *y, const element *x) {
    element z;
    UNROLL for (int i = 0; i < WORDS; i++) z.word[i] = (factor)chosen(mask, (vector)y->word[i], (vector)x->word[i]);
    return z;
}

/* The functions above are inlined where time goes: in the ladder and in the squarings of powers. */
CALLED element product(const element *a, const element *b) { return carry(multiply(a, b)); }
CALLED element squared(const element *a) { return carry(square(a)); }

CALLED element sum(const element *a, const element *b) {
    const wide x = words_of(a), y = words_of(b);
    return carry(add_wide(&x, &y));
}

CALLED element difference(const element *a, const element *b) {
    const wide x = words_of(a), y = words_of(b);
    return carry(subtract_wide(&x, &y, ELEMENT));
}

CALLED element scaled(const element *a, const uint64_t words[WORDS]) {
    const element b = constant(words);
    return carry(multiply(a, &b));
}

CALLED element negative(const element *a) {
    const element zero = constant(ZERO);
    return difference(&zero, a);
}

/* ---- powers, of `count` <= AT_ONCE elements at the same time */

CALLED void squarings(element *x, size_t count, int times) {
    for (int t = 0; t < times; t++)
        for (size_t k = 0; k < count; k++) x[k] = carry(square(&x[k]));
}

INLINE void products(element *x, const element *y, size_t count) {
    for (size_t k = 0; k < count; k++) x[k] = product(&x[k], &y[k]);
}

/* x^(2^250 - 1), and x^11 beside it: the chain of Bernstein's curve25519, 249 squarings and 10 products. */
CALLED void common_power(element *x, element *eleventh, size_t count) {
    element base[AT_ONCE], a[AT_ONCE], b[AT_ONCE];
    const size_t size = count * sizeof *x;
    memcpy(base, x, size);
    squarings(x, count, 1); /* 2 */
    memcpy(a, x, size);
    squarings(a, count, 2);
    products(a, base, count); /* 9 */
    memcpy(eleventh, a, size);
    products(eleventh, x, count); /* 11 */
    memcpy(x, eleventh, size);
    squarings(x, count, 1);
    products(x, a, count); /* 2^5 - 1 */
    memcpy(a, x, size);
    squarings(x, count, 5);
    products(x, a, count); /* 2^10 - 1 */
    memcpy(a, x, size);
    squarings(x, count, 10);
    products(x, a, count); /* 2^20 - 1 */
    memcpy(b, x, size);
    squarings(x, count, 20);
    products(x, b, count); /* 2^40 - 1 */
    squarings(x, count, 10);
    products(x, a, count); /* 2^50 - 1 */
    memcpy(a, x, size);
    squarings(x, count, 50);
    products(x, a, count); /* 2^100 - 1 */
    memcpy(b, x, size);
    squarings(x, count, 100);
    products(x, b, count); /* 2^200 - 1 */
    squarings(x, count, 50);
    products(x, a, count); /* 2^250 - 1 */
}

/* x^((p-5)/8) = x^(2^252 - 3) */
CALLED void root_power(element *x, size_t count) {
    element base[AT_ONCE], eleventh[AT_ONCE];
    memcpy(base, x, count * sizeof *x);
    common_power(x, eleventh, count);
    squarings(x, count, 2);
    products(x, base, count);
}

/* 1/x for `count` <= BATCH elements by one power, x^(p-2) = x^(2^255 - 21), and three products each (Montgomery 1987,
 * section 10.3.1). Of 0 the result is 0, and spoils no other element's. */
CALLED void invert(element *x, size_t count) {
    element before[BATCH], eleventh;
    vector none[BATCH];
    const element one = constant(ONE), zero = constant(ZERO);
    const wide nothing = words_of(&zero);
    for (size_t k = 0; k < count; k++) {
        const wide frozen = freeze(&x[k]);
        none[k] = equal(&frozen, &nothing);
        x[k] = choose(none[k], &one, &x[k]);
        before[k] = k ? product(&before[k - 1], &x[k]) : x[k];
    }
    element rest = before[count - 1];
    common_power(&rest, &eleventh, 1);
    squarings(&rest, 1, 5);
    rest = product(&rest, &eleventh);
    for (size_t k = count - 1; k > 0; k--) {
        const element inverse = product(&rest, &before[k - 1]);
        rest = product(&rest, &x[k]);
        x[k] = choose(none[k], &zero, &inverse);
    }
    x[0] = choose(none[0], &zero, &rest);
}

/* ---- square roots. p = 5 modulo 8: with e = a^((p-5)/8), q = e^2*a = a^((p-1)/4) is a fourth root of 1, namely 1 or -1
 * for a square a, I or -I for another one, 0 for 0. For q = 1 a root of a is a*e, for q = -1 it is I*a*e. 1/a = e^2/q. */

typedef struct {
    vector one, minus_one, i, minus_i;
} character;

INLINE character character_of(const element *a, const element *e) {
    const element e2 = squared(e), q = product(&e2, a);
    /* the lowest words of 1, -1, I, -I and 0 differ */
    const vector low = freeze(&q).word[0];
    return (character){
        equal_words(low, SAME(1)), equal_words(low, SAME(MASK - 19)), equal_words(low, SAME(I[0])),
        equal_words(low, SAME(MASK - 18 - I[0]))};
}

/* A root of a where it is a square. */
INLINE element root(const element *a, const element *e, character q) {
    const element first = product(a, e), other = scaled(&first, I);
    return choose(q.minus_one, &other, &first);
}

/* ---- bytes */

/* Rows of 32 bytes, `stride` bytes apart, one for each lane; lanes without a row repeat the last one. The top bits go
 * apart. */
INLINE wide load(const uint8_t *bytes, size_t stride, size_t count, vector *top) {
    uint64_t raw[4][LANES] ALIGNED;
    for (size_t lane = 0; lane < LANES; lane++) {
        const uint8_t *row = bytes + stride * (lane < count ? lane : count - 1);
        for (int i = 0; i < 4; i++) memcpy(&raw[i][lane], row + 8 * i, 8);
    }
    vector w[4];
    memcpy(w, raw, sizeof w);
    const vector mask = SAME(MASK);
    *top = w[3] >> 63;
    return (wide){
        {w[0] & mask, (w[0] >> 51 | w[1] << 13) & mask, (w[1] >> 38 | w[2] << 26) & mask,
         (w[2] >> 25 | w[3] << 39) & mask, w[3] >> 12 & mask}};
}

/* The first `count` lanes as rows of 32 bytes, below p. */
INLINE void store(const element *a, uint8_t *bytes, size_t count) {
    const wide x = freeze(a);
    const vector *w = x.word;
    const vector made[4] = {
        w[0] | w[1] << 51, w[1] >> 13 | w[2] << 38, w[2] >> 26 | w[3] << 25, w[3] >> 39 | w[4] << 12};
    uint64_t raw[4][LANES] ALIGNED;
    memcpy(raw, made, sizeof raw);
    for (size_t lane = 0; lane < count && lane < LANES; lane++)
        for (int i = 0; i < 4; i++) memcpy(bytes + ELEMENT_BYTES * lane + 8 * i, &raw[i][lane], 8);
}
