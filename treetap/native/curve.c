/* Blinded identifiers: arithmetic on Curve25519, eight points side by side, with the AVX-512 IFMA instructions.
 *
 * The curve is v^2 = u^3 + A*u^2 + u over the field of p = 2^255 - 19, A = 486662 (Bernstein, "Curve25519: new
 * Diffie-Hellman speed records", PKC 2006; RFC 7748). A point is known by its u alone, 32 bytes, the lowest first.
 *
 * Field elements are five words of 51 bits, the lowest first, in vectors of eight lanes, a lane for each point. 51 is
 * the width at which 2^255 = 19 falls between two words. VPMADD52LUQ and VPMADD52HUQ (Gueron and Krasnov, "Accelerating
 * Big Integer Arithmetic Using Intel IFMA Extensions", ARITH 2016) multiply the low 52 bits of two words and add the
 * low or the high 52 bits of the product; the high ones weigh 2^52 = 2 * 2^51, so they count twice in the next column.
 *
 * Bounds. An `element` has words below 2^51 + 2^17, hence below the 2^52 of the multiplier, and a value below 2p;
 * `freeze` gives the one below p. Sums, differences and products are `wide` first, with words below 2^63, which `carry`
 * makes an element; the ladder adds and swaps wide ones, to carry less often.
 *
 * Ladder. `ladder` is Montgomery's (Math. Comp. 48, 1987) as in RFC 7748; one exponent serves all lanes. It neither
 * branches nor reads memory by the exponent's bits. The maps from uniform bytes and the checks have no secret branch
 * either: they choose by masks.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
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
#define POINT_BYTES 32
#define AT_ONCE 4   /* vectors of independent powers: they hide each other's latencies */
#define BATCH 32    /* vectors that share one inversion */
#define CURVE_A 486662

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

/* Constants modulo p. I is the square root of -1 with I = 2^((p-1)/4), N stands for A^2 - 4. */
static const uint64_t ONE[WORDS] = {1, 0, 0, 0, 0};
static const uint64_t CURVE[WORDS] = {CURVE_A, 0, 0, 0, 0};
static const uint64_t I[WORDS] = {0x61b274a0ea0b0, 0xd5a5fc8f189d, 0x7ef5e9cbd0c60, 0x78595a6804c9e, 0x2b8324804fc1d};
/* 2^((p+3)/8) */
static const uint64_t TWO_ROOT[WORDS] = {
    0x61b274a0ea0b1, 0xd5a5fc8f189d, 0x7ef5e9cbd0c60, 0x78595a6804c9e, 0x2b8324804fc1d};
/* sqrt(-486664): (u, v) of the curve is (TO_EDWARDS * u/v, (u-1)/(u+1)) of edwards25519 */
static const uint64_t TO_EDWARDS[WORDS] = {
    0x604aaff457e06, 0x2296fa350598d, 0x7f13dfb16874f, 0x35de93d846e01, 0xf26edf460a00};
/* 2*d of edwards25519 */
static const uint64_t TWICE_D[WORDS] = {
    0x69b9426b2f159, 0x35050762add7a, 0x3cf44c0038052, 0x6738cc7407977, 0x2406d9dc56dff};
/* sqrt(-I*N), sqrt(I*N) */
static const uint64_t ROOT_OF_MINUS_IN[WORDS] = {
    0x71277b3ba5222, 0x2970a394eb516, 0xb29a3e775c7b, 0xf75f12ecb490, 0x219fc5bc27acf};
static const uint64_t ROOT_OF_IN[WORDS] = {
    0x48befa14b6386, 0x3d8b4d0d98017, 0x40e99219f1a86, 0x5f873e60f4e67, 0x797f018b3b0ee};

/* ---- the field */

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

/* Eight rows of 32 bytes, `stride` bytes apart, rows without a point repeat the last one; the top bits apart. */
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
        for (int i = 0; i < 4; i++) memcpy(bytes + POINT_BYTES * lane + 8 * i, &raw[i][lane], 8);
}

/* Vectors of the next batch. */
INLINE size_t vectors_of(size_t left) { return left < BATCH * LANES ? (left + LANES - 1) / LANES : BATCH; }

/* ---- raising */

INLINE void swap_if(__mmask8 mask, wide *a, wide *b) {
    const wide first = choose(mask, b, a);
    *b = choose(mask, a, b);
    *a = first;
}

/* scalar * (u : 1) = (x : z), of a scalar of 255 bits; the names are those of RFC 7748, section 5. The mask of a swap is
 * made from a bit without a branch. */
CALLED void ladder(const uint8_t scalar[32], const element *u, element *x, element *z) {
    wide x2 = constant(ONE), z2 = {{ZERO, ZERO, ZERO, ZERO, ZERO}}, x3 = *u, z3 = constant(ONE);
    uint32_t swap = 0;
    for (int t = 254; t >= 0; t--) {
        const uint32_t bit = scalar[t >> 3] >> (t & 7) & 1;
        const __mmask8 mask = (__mmask8)(0 - (swap ^ bit));
        swap_if(mask, &x2, &x3);
        swap_if(mask, &z2, &z3);
        swap = bit;
        const element a = carry(add_wide(&x2, &z2)), b = carry(subtract_wide(&x2, &z2, PRODUCT));
        const element c = carry(add_wide(&x3, &z3)), d = carry(subtract_wide(&x3, &z3, PRODUCT));
        const element aa = carry(square(&a)), bb = carry(square(&b));
        const wide da = multiply(&d, &a), cb = multiply(&c, &b);
        const element plus = carry(add_wide(&da, &cb)), minus = carry(subtract_wide(&da, &cb, PRODUCT));
        const element minus2 = carry(square(&minus)), e = carry(subtract_wide(&aa, &bb, ELEMENT));
        const element inner = carry(multiply_small_add(&e, (CURVE_A - 2) / 4, &aa));
        x3 = square(&plus);
        z3 = multiply(u, &minus2);
        x2 = multiply(&aa, &bb);
        z2 = multiply(&e, &inner);
    }
    const __mmask8 mask = (__mmask8)(0 - swap);
    swap_if(mask, &x2, &x3);
    swap_if(mask, &z2, &z3);
    *x = carry(x2);
    *z = carry(z2);
}

/* Every point times the scalar, which is clamped: 2^254 + 8j. The points have been checked. */
TARGET void treetap_raise_points(const uint8_t scalar[32], const uint8_t *points, uint8_t *raised, size_t count) {
    element x[BATCH], z[BATCH];
    while (count) {
        const size_t vectors = vectors_of(count), taken = count < vectors * LANES ? count : vectors * LANES;
        for (size_t k = 0; k < vectors; k++) {
            vector top;
            const element u = load(points + LANES * POINT_BYTES * k, POINT_BYTES, count - LANES * k, &top);
            ladder(scalar, &u, &x[k], &z[k]);
        }
        invert(z, vectors);
        for (size_t k = 0; k < vectors; k++) {
            const element u = product(&x[k], &z[k]);
            store(&u, raised + LANES * POINT_BYTES * k, count - LANES * k);
        }
        points += POINT_BYTES * taken, raised += POINT_BYTES * taken, count -= taken;
    }
}

/* ---- checking: halving twice (the idea is Pornin's, "Point-Halving and Subgroup Membership in Twisted Edwards
 * Curves", IACR ePrint 2022/1164; here on the Montgomery form, by u alone).
 *
 * The curve's group is cyclic of order 8*l, l prime, and (0, 0) its only point of order 2. With D = u^2 + A*u + 1, u is
 * on the curve iff u*D is a square, and a point is the double of another one iff u is a square too. Then, with
 * r = sqrt(D), exactly one of w = 2*(u + r) and w = 2*(u - r) makes w + A a square, since the product of both w + A is
 * N = A^2 - 4, no square. Halves have x + 1/x = w, so x = w/2 + sqrt(u)*sqrt(w + A); the point is four times another one
 * iff x is a square. As x^2 + A*x + 1 = x*(w + A), half of that half needs w' = 2*(x + sqrt(x)*sqrt(w + A)), and the
 * point is eight times another one, hence in the subgroup of order l, iff (w' + A)*(w' + 2) is a square. Both roots of
 * every choice lead to the same answer: A^2 - 4 and 2 - A are no squares. Five powers in all. */

/* Lanes with a point of the subgroup, for `count` <= AT_ONCE / 2 vectors of frozen u. */
CALLED void check_vectors(const element *u, __mmask8 *good, size_t count) {
    element a[AT_ONCE], e[AT_ONCE], half[AT_ONCE / 2], rest[AT_ONCE / 2];
    const element curve = constant(CURVE), one = constant(ONE);
    for (size_t k = 0; k < count; k++) {
        const element u_plus_a = sum(&u[k], &curve), inner = product(&u[k], &u_plus_a);
        a[2 * k] = sum(&inner, &one); /* D */
        a[2 * k + 1] = u[k];
    }
    memcpy(e, a, 2 * count * sizeof *a);
    root_power(e, 2 * count);
    element r[AT_ONCE / 2], root_u[AT_ONCE / 2];
    for (size_t k = 0; k < count; k++) {
        const character of_d = character_of(&a[2 * k], &e[2 * k]);
        const character of_u = character_of(&a[2 * k + 1], &e[2 * k + 1]);
        good[k] = (of_d.one | of_d.minus_one) & (of_u.one | of_u.minus_one);
        r[k] = root(&a[2 * k], &e[2 * k], of_d);
        root_u[k] = root(&a[2 * k + 1], &e[2 * k + 1], of_u);
    }
    for (size_t k = 0; k < count; k++) { /* w + A with +r */
        const element s = sum(&u[k], &r[k]), w = sum(&s, &s);
        half[k] = sum(&w, &curve);
    }
    memcpy(e, half, count * sizeof *e);
    root_power(e, count);
    for (size_t k = 0; k < count; k++) {
        /* where it is no square, w + A with -r is N/(w + A) = N*e^2/q, whose root is e*sqrt(N/q) */
        const character q = character_of(&half[k], &e[k]);
        const element times_i = scaled(&half[k], I), plus = constant(ROOT_OF_MINUS_IN), minus = constant(ROOT_OF_IN);
        element factor = choose(q.minus_one, &times_i, &half[k]);
        factor = choose(q.i, &plus, &factor);
        factor = choose(q.minus_i, &minus, &factor);
        rest[k] = product(&e[k], &factor); /* sqrt(w + A) */
        const element minus_r = negative(&r[k]), signed_r = choose(q.i | q.minus_i, &minus_r, &r[k]);
        const element w_half = sum(&u[k], &signed_r), other = product(&root_u[k], &rest[k]);
        half[k] = sum(&w_half, &other); /* x */
    }
    memcpy(e, half, count * sizeof *e);
    root_power(e, count);
    for (size_t k = 0; k < count; k++) {
        const character of_x = character_of(&half[k], &e[k]);
        good[k] &= of_x.one | of_x.minus_one;
        const element root_x = root(&half[k], &e[k], of_x), other = product(&root_x, &rest[k]);
        const element s = sum(&half[k], &other), w = sum(&s, &s), w_plus_a = sum(&w, &curve), two = sum(&one, &one);
        const element w_plus_2 = sum(&w, &two);
        a[k] = product(&w_plus_a, &w_plus_2);
    }
    memcpy(e, a, count * sizeof *e);
    root_power(e, count);
    for (size_t k = 0; k < count; k++) {
        const character last = character_of(&a[k], &e[k]);
        good[k] &= last.one | last.minus_one;
    }
}

/* The number of leading points that are whole numbers below p and of the subgroup of order l, without its neutral
 * element. */
TARGET size_t treetap_check_points(const uint8_t *points, size_t count) {
    for (size_t at = 0; at < count; at += LANES * AT_ONCE / 2) {
        element u[AT_ONCE / 2];
        __mmask8 canonical[AT_ONCE / 2], good[AT_ONCE / 2];
        size_t vectors = 0;
        for (size_t k = 0; k < AT_ONCE / 2 && at + LANES * k < count; k++, vectors++) {
            vector top;
            u[k] = load(points + POINT_BYTES * (at + LANES * k), POINT_BYTES, count - at - LANES * k, &top);
            const element frozen = freeze(&u[k]);
            canonical[k] = equal(&frozen, &u[k]) & _mm512_cmpeq_epi64_mask(top, ZERO);
        }
        check_vectors(u, good, vectors);
        for (size_t k = 0; k < vectors; k++)
            for (size_t lane = 0; lane < LANES; lane++)
                if (!((good[k] & canonical[k]) >> lane & 1)) {
                    const size_t place = at + LANES * k + lane; /* a lane without a point repeats the last one's */
                    return place < count ? place : count;
                }
    }
    return count;
}

/* ---- hashing: uniform bytes to points, as libsodium's crypto_core_ed25519_from_uniform does */

typedef struct {
    element x, y, z, t; /* of the twisted Edwards form, extended: x*y = z*t */
} edwards;

/* Elligator 2 (Bernstein, Hamburg, Krasnova, Lange, CCS 2013) in the straight line of RFC 9380, G.2.1, whose names these
 * are: the point (xn/xd, y), y up to its sign, for `count` <= AT_ONCE elements r. */
CALLED void elligator(const element *r, element *xn, element *xd, element *y, size_t count) {
    element tv1[AT_ONCE], gx1[AT_ONCE], gxd[AT_ONCE], tv3[AT_ONCE], e[AT_ONCE];
    const element one = constant(ONE), curve = constant(CURVE), x1n = negative(&curve);
    for (size_t k = 0; k < count; k++) {
        const element r2 = squared(&r[k]);
        tv1[k] = sum(&r2, &r2);
        xd[k] = sum(&tv1[k], &one); /* not 0: -1 is a square, 2*r^2 is none */
        const element xd2 = squared(&xd[k]), j = product(&curve, &tv1[k]), jx = product(&j, &x1n);
        const element inner = sum(&jx, &xd2);
        gxd[k] = product(&xd2, &xd[k]);
        gx1[k] = product(&inner, &x1n);
        const element gxd2 = squared(&gxd[k]), gxd4 = squared(&gxd2), gxd3 = product(&gxd2, &gxd[k]);
        tv3[k] = product(&gxd3, &gx1[k]);
        e[k] = product(&gxd4, &tv3[k]);
    }
    root_power(e, count);
    for (size_t k = 0; k < count; k++) {
        const element y11 = product(&e[k], &tv3[k]), y12 = scaled(&y11, I);
        const element y11r = product(&y11, &r[k]), y21 = scaled(&y11r, TWO_ROOT), y22 = scaled(&y21, I);
        const element x2n = product(&x1n, &tv1[k]), gx2 = product(&gx1[k], &tv1[k]);
        const element goal1 = freeze(&gx1[k]), goal2 = freeze(&gx2);
        const element squares[3] = {squared(&y11), squared(&y12), squared(&y21)};
        __mmask8 holds[3];
        for (int i = 0; i < 3; i++) {
            const element found = product(&squares[i], &gxd[k]), frozen = freeze(&found);
            holds[i] = equal(&frozen, i < 2 ? &goal1 : &goal2);
        }
        const element y1 = choose(holds[0], &y11, &y12), y2 = choose(holds[2], &y21, &y22);
        const __mmask8 first = holds[0] | holds[1];
        xn[k] = choose(first, &x1n, &x2n);
        y[k] = choose(first, &y1, &y2);
    }
}

/* The sum of two points times eight, as (numerator : denominator) of u. */
CALLED void sum_times_eight(const edwards *p, const edwards *q, element *numerator, element *denominator) {
    element x, y, z, first, other;
    { /* addition, "add-2008-hwcd-3" of the Explicit-Formulas Database: complete on this curve */
        const element pm = difference(&p->y, &p->x), qm = difference(&q->y, &q->x), a = product(&pm, &qm);
        const element pp = sum(&p->y, &p->x), qp = sum(&q->y, &q->x), b = product(&pp, &qp);
        const element tt = product(&p->t, &q->t), c = scaled(&tt, TWICE_D);
        const element zz = product(&p->z, &q->z), d = sum(&zz, &zz);
        const element e = difference(&b, &a), f = difference(&d, &c), g = sum(&d, &c), h = sum(&b, &a);
        x = product(&e, &f), y = product(&g, &h), z = product(&f, &g);
    }
    for (int times = 0; times < 3; times++) { /* doubling, "dbl-2008-hwcd" with a = -1, all signs turned */
        const element a = squared(&x), b = squared(&y), zz = squared(&z), c = sum(&zz, &zz), xy = sum(&x, &y);
        const element xy2 = squared(&xy), h = sum(&a, &b), e = difference(&h, &xy2), g = difference(&a, &b);
        const element f = sum(&c, &g);
        x = product(&e, &f), y = product(&g, &h), z = product(&f, &g);
    }
    first = sum(&z, &y), other = difference(&z, &y);
    *numerator = first, *denominator = other;
}

/* Points from rows of 64 uniform bytes: each half is mapped to the curve, its top bit is the sign of the Edwards x; the
 * sum of both times eight. The neutral element, for which no bytes can be found but by chance, becomes 0. */
TARGET void treetap_hash_points(const uint8_t *uniform, uint8_t *points, size_t count) {
    enum { IDS = BATCH / 2 }; /* vectors of points of a batch */
    element xn[BATCH], xd[BATCH], y[BATCH], inverse[BATCH], numerator[IDS], denominator[IDS];
    vector sign[BATCH];
    while (count) {
        const size_t whole = (count + LANES - 1) / LANES, vectors = whole < IDS ? whole : IDS;
        for (size_t k = 0; k < 2 * vectors; k += 2) {
            element r[2];
            for (size_t half = 0; half < 2; half++)
                r[half] = load(uniform + 32 * LANES * k + 32 * half, 64, count - LANES / 2 * k, &sign[k + half]);
            elligator(r, &xn[k], &xd[k], &y[k], 2);
        }
        for (size_t k = 0; k < 2 * vectors; k++) inverse[k] = product(&xd[k], &y[k]);
        invert(inverse, 2 * vectors);
        for (size_t k = 0; k < vectors; k++) {
            edwards two[2];
            for (size_t half = 0; half < 2; half++) {
                const size_t at = 2 * k + half;
                const element ratio = product(&xn[at], &inverse[at]), x = scaled(&ratio, TO_EDWARDS);
                const element frozen = freeze(&x), turned = negative(&x);
                const vector parity = AND(frozen.word[0], SAME(1));
                const element x_signed = choose(_mm512_cmpeq_epi64_mask(parity, sign[at]), &x, &turned);
                two[half].y = difference(&xn[at], &xd[at]);
                two[half].z = sum(&xn[at], &xd[at]);
                two[half].x = product(&x_signed, &two[half].z);
                two[half].t = product(&x_signed, &two[half].y);
            }
            sum_times_eight(&two[0], &two[1], &numerator[k], &denominator[k]);
        }
        invert(denominator, vectors);
        for (size_t k = 0; k < vectors; k++) {
            const element u = product(&numerator[k], &denominator[k]);
            store(&u, points + POINT_BYTES * LANES * k, count - LANES * k);
        }
        const size_t taken = count < vectors * LANES ? count : vectors * LANES;
        uniform += 64 * taken, points += POINT_BYTES * taken, count -= taken;
    }
}
#endif
