/* The field of p = 2^255 - 19 in vectors of eight lanes, with the AVX-512 IFMA instructions; included by curve.c alone.
 *
 * Elements are five words of 51 bits, the lowest first, in vectors of eight lanes, a lane for each element. 51 is
 * the width at which 2^255 = 19 falls between two words. VPMADD52LUQ and VPMADD52HUQ (Gueron and Krasnov, "Accelerating
 * Big Integer Arithmetic Using Intel IFMA Extensions", ARITH 2016) multiply the low 52 bits of two words and add the
 * low or the high 52 bits of the product; the high ones weigh 2^52 = 2 * 2^51, so they count twice in the next column.
 *
 * Bounds. An `element` has words below 2^51 + 2^17, hence below the 2^52 of the multiplier, and a value below 2p;
 * `freeze` gives the one below p. Sums, differences and products are `wide` first, with words below 2^63, which `carry`
 * makes an element; the ladder adds and swaps wide ones, to carry less often.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <immintrin.h>

#ifndef TARGET /* the tests' header, which emulates these instructions, says that none is needed */
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512ifma")))
#endif
#define INLINE static inline __attribute__((always_inline)) TARGET
#define CALLED static __attribute__((noinline)) TARGET
#ifndef HOT /* the tests' header, which takes long to compile, says that these are to be called */
#define HOT INLINE
#endif
#define LANES 8
#define WORDS 5
#define WORD_BITS 51
#define MASK ((1ull << WORD_BITS) - 1)
#define ELEMENT_BYTES 32
#define AT_ONCE 4 /* vectors of independent powers: they hide each other's latencies */
#define BATCH 32  /* vectors that share one inversion */

typedef __m512i vector;
typedef struct {
    vector word[WORDS];
} element, wide;

#define LOW(sum, x, y) _mm512_madd52lo_epu64(sum, x, y)
#define HIGH(sum, x, y) _mm512_madd52hi_epu64(sum, x, y)
#define SAME(word) _mm512_set1_epi64((long long)(word))
#define ADD(x, y) _mm512_add_epi64(x, y)
#define SUB(x, y) _mm512_sub_epi64(x, y)
#define AND(x, y) _mm512_and_si512(x, y)
#define OR(x, y) _mm512_or_si512(x, y)
#define LEFT(x, n) _mm512_slli_epi64(x, n)
#define RIGHT(x, n) _mm512_srli_epi64(x, n)
#define ZERO _mm512_setzero_si512()

static const uint64_t ONE[WORDS] = {1, 0, 0, 0, 0};
/* The square root of -1 that is 2^((p-1)/4). */
static const uint64_t I[WORDS] = {0x61b274a0ea0b0, 0xd5a5fc8f189d, 0x7ef5e9cbd0c60, 0x78595a6804c9e, 0x2b8324804fc1d};

INLINE element constant(const uint64_t words[WORDS]) {
    element x;
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++) x.word[i] = SAME(words[i]);
    return x;
}

INLINE vector times19(vector x) { /* 2*9 + 1: one shift, as fewer ports shift than add */
    const vector nine = ADD(LEFT(x, 3), x);
    return ADD(ADD(nine, nine), x);
}

/* Each word gives what is above 51 bits to the next one, once, all at the same time; the last gives to the first, 19
 * times. What is given is below 2^12. */
INLINE element carry(const wide c) {
    element x;
    vector over[WORDS];
    const vector mask = SAME(MASK);
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++) over[i] = RIGHT(c.word[i], WORD_BITS);
    x.word[0] = ADD(AND(c.word[0], mask), times19(over[WORDS - 1]));
#pragma GCC unroll 4
    for (int i = 1; i < WORDS; i++) x.word[i] = ADD(AND(c.word[i], mask), over[i - 1]);
    return x;
}

/* For elements, and for products, whose words are below 2^61. */
INLINE wide add_wide(const wide *a, const wide *b) {
    wide c;
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++) c.word[i] = ADD(a->word[i], b->word[i]);
    return c;
}

/* a + 2^bits*p - b: every word of 2^bits*p is above every word of b. */
INLINE wide subtract_wide(const wide *a, const wide *b, int bits) {
    wide c;
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++) {
        const vector multiple = SAME((MASK - (i == 0 ? 18 : 0)) << bits);
        c.word[i] = SUB(ADD(a->word[i], multiple), b->word[i]);
    }
    return c;
}
#define ELEMENT 1  /* words of an element are below those of 2*p */
#define PRODUCT 11 /* words of a product are below those of 2^11*p, which are below 2^62 */

/* The five words that ten columns stand for: column k + 5 counts 19 times in column k. At most five low halves and twice
 * five high ones are in a column: it is below 15 * 2^52, and twenty of them below 2^61. */
INLINE wide fold(const vector column[2 * WORDS]) {
    wide c;
#pragma GCC unroll 5
    for (int k = 0; k < WORDS; k++) c.word[k] = ADD(column[k], times19(column[k + WORDS]));
    return c;
}

/* High halves are summed first, then doubled, and low halves are added to them. */
HOT wide multiply(const element *a, const element *b) {
    vector column[2 * WORDS];
#pragma GCC unroll 10
    for (int k = 0; k < 2 * WORDS; k++) column[k] = ZERO;
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++)
#pragma GCC unroll 5
        for (int j = 0; j < WORDS; j++) column[i + j + 1] = HIGH(column[i + j + 1], a->word[i], b->word[j]);
#pragma GCC unroll 9
    for (int k = 1; k < 2 * WORDS; k++) column[k] = ADD(column[k], column[k]);
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++)
#pragma GCC unroll 5
        for (int j = 0; j < WORDS; j++) column[i + j] = LOW(column[i + j], a->word[i], b->word[j]);
    return fold(column);
}

/* With C for the products of different words, which count twice, and S for squares: 4*C.high + 2*C.low + 2*S.high +
 * S.low, by two doublings. */
HOT wide square(const element *a) {
    vector column[2 * WORDS];
#pragma GCC unroll 10
    for (int k = 0; k < 2 * WORDS; k++) column[k] = ZERO;
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++)
#pragma GCC unroll 4
        for (int j = i + 1; j < WORDS; j++) column[i + j + 1] = HIGH(column[i + j + 1], a->word[i], a->word[j]);
#pragma GCC unroll 7
    for (int k = 2; k < 2 * WORDS - 1; k++) column[k] = ADD(column[k], column[k]);
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++) {
        column[2 * i + 1] = HIGH(column[2 * i + 1], a->word[i], a->word[i]);
#pragma GCC unroll 4
        for (int j = i + 1; j < WORDS; j++) column[i + j] = LOW(column[i + j], a->word[i], a->word[j]);
    }
#pragma GCC unroll 9
    for (int k = 1; k < 2 * WORDS; k++) column[k] = ADD(column[k], column[k]);
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++) column[2 * i] = LOW(column[2 * i], a->word[i], a->word[i]);
    return fold(column);
}

/* number*a + b, for a number below 2^20. */
HOT wide multiply_small_add(const element *a, uint32_t number, const element *b) {
    wide c;
    vector high[WORDS];
#pragma GCC unroll 5
    for (int i = 0; i < WORDS; i++) {
        c.word[i] = LOW(b->word[i], a->word[i], SAME(number));
        high[i] = HIGH(ZERO, a->word[i], SAME(number));
        high[i] = ADD(high[i], high[i]);
    }
    c.word[0] = ADD(c.word[0], times19(high[WORDS - 1]));
#pragma GCC unroll 4
    for (int i = 1; i < WORDS; i++) c.word[i] = ADD(c.word[i], high[i - 1]);
    return c;
}

/* The same residue below p: 19 is added if the value is at least p, and bit 255 dropped. */
CALLED element freeze(const element *a) {
    element x = *a;
    vector over = SAME(19);
    for (int i = 0; i < WORDS; i++) over = RIGHT(ADD(x.word[i], over), WORD_BITS);
    over = times19(over);
    for (int i = 0; i < WORDS; i++) {
        x.word[i] = ADD(x.word[i], over);
        over = RIGHT(x.word[i], WORD_BITS);
        x.word[i] = AND(x.word[i], SAME(MASK));
    }
    return x;
}

/* Lanes in which frozen elements are equal. */
INLINE __mmask8 equal(const element *a, const element *b) {
    __mmask8 same = 0xff;
    for (int i = 0; i < WORDS; i++) same &= _mm512_cmpeq_epi64_mask(a->word[i], b->word[i]);
    return same;
}

/* Lanes of y where the mask has a bit, else those of x. */
INLINE element choose(__mmask8 mask, const element *y, const element *x) {
    element z;
    for (int i = 0; i < WORDS; i++) z.word[i] = _mm512_mask_mov_epi64(x->word[i], mask, y->word[i]);
    return z;
}

/* The functions above are inlined where time goes: in the ladder and in the squarings of powers. */
CALLED element product(const element *a, const element *b) { return carry(multiply(a, b)); }
CALLED element squared(const element *a) { return carry(square(a)); }
CALLED element sum(const element *a, const element *b) { return carry(add_wide(a, b)); }
CALLED element difference(const element *a, const element *b) { return carry(subtract_wide(a, b, ELEMENT)); }

CALLED element scaled(const element *a, const uint64_t words[WORDS]) {
    const element b = constant(words);
    return carry(multiply(a, &b));
}

CALLED element negative(const element *a) {
    const element zero = {{ZERO, ZERO, ZERO, ZERO, ZERO}};
    return carry(subtract_wide(&zero, a, ELEMENT));
}

/* ---- powers, of `count` <= AT_ONCE elements at the same time */

INLINE void squarings(element *x, size_t count, int times) {
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
    __mmask8 none[BATCH];
    const element one = constant(ONE), zero = {{ZERO, ZERO, ZERO, ZERO, ZERO}};
    for (size_t k = 0; k < count; k++) {
        const element frozen = freeze(&x[k]);
        none[k] = equal(&frozen, &zero);
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
    __mmask8 one, minus_one, i, minus_i;
} character;

INLINE character character_of(const element *a, const element *e) {
    const element e2 = squared(e), q = product(&e2, a), frozen = freeze(&q);
    /* the lowest words of 1, -1, I, -I and 0 differ */
    const vector low = frozen.word[0];
    return (character){
        _mm512_cmpeq_epi64_mask(low, SAME(1)), _mm512_cmpeq_epi64_mask(low, SAME(MASK - 19)),
        _mm512_cmpeq_epi64_mask(low, SAME(I[0])), _mm512_cmpeq_epi64_mask(low, SAME(MASK - 18 - I[0]))};
}

/* A root of a where it is a square. */
INLINE element root(const element *a, const element *e, character q) {
    const element first = product(a, e), other = scaled(&first, I);
    return choose(q.minus_one, &other, &first);
}

/* ---- bytes */

/* Eight rows of 32 bytes, `stride` bytes apart, lanes without a row repeat the last one; the top bits apart. */
INLINE element load(const uint8_t *bytes, size_t stride, size_t count, vector *top) {
    uint64_t raw[4][LANES];
    for (size_t lane = 0; lane < LANES; lane++) {
        const uint8_t *row = bytes + stride * (lane < count ? lane : count - 1);
        for (int i = 0; i < 4; i++) memcpy(&raw[i][lane], row + 8 * i, 8);
    }
    vector w[4];
    for (int i = 0; i < 4; i++) w[i] = _mm512_loadu_si512(raw[i]);
    const vector mask = SAME(MASK);
    *top = RIGHT(w[3], 63);
    return (element){
        {AND(w[0], mask), AND(OR(RIGHT(w[0], 51), LEFT(w[1], 13)), mask),
         AND(OR(RIGHT(w[1], 38), LEFT(w[2], 26)), mask), AND(OR(RIGHT(w[2], 25), LEFT(w[3], 39)), mask),
         AND(RIGHT(w[3], 12), mask)}};
}

/* The first `count` lanes as rows of 32 bytes, below p. */
INLINE void store(const element *a, uint8_t *bytes, size_t count) {
    const element x = freeze(a);
    const vector *w = x.word;
    uint64_t raw[4][LANES];
    _mm512_storeu_si512(raw[0], OR(w[0], LEFT(w[1], 51)));
    _mm512_storeu_si512(raw[1], OR(RIGHT(w[1], 13), LEFT(w[2], 38)));
    _mm512_storeu_si512(raw[2], OR(RIGHT(w[2], 26), LEFT(w[3], 25)));
    _mm512_storeu_si512(raw[3], OR(RIGHT(w[3], 39), LEFT(w[4], 12)));
    for (size_t lane = 0; lane < count && lane < LANES; lane++)
        for (int i = 0; i < 4; i++) memcpy(bytes + ELEMENT_BYTES * lane + 8 * i, &raw[i][lane], 8);
}
