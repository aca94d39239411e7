/* Runs the kernels of curve.c in one form, which -D names as for them, over extreme and pseudo-random points, for a
 * sanitiser to watch.
 *
 * The field's functions get words at the ends of their bounds, which no point can bring about, and are compared with
 * sums modulo p. Results of kernels are compared with each other and with the multiple of RFC 7748, section 5.2: hashes
 * are of the group, raising commutes and gives points of the group, blocks of every length give what their points give
 * one by one, and encodings that are of no point, or of no point of the group, are refused at their places. Roots that
 * are made by raising are those of a check, but for their sign, and sums do not depend on the points' order. */
#include <stdio.h>
#include <stdlib.h>

#include "../../treetap/native/curve_field.h"

int FN(treetap_has)(void);
void FN(treetap_hash_points)(const uint8_t *, uint8_t *, uint8_t *, size_t);
void FN(treetap_raise_points)(const uint8_t *, const uint8_t *, const uint8_t *, uint8_t *, uint8_t *, size_t);
size_t FN(treetap_check_points)(const uint8_t *, uint8_t *, size_t);
void FN(treetap_sum_multiples)(
    const uint8_t *, const uint8_t *, const uint8_t *, const int8_t *, size_t, uint64_t *, uint8_t *);
void treetap_sha512(const uint8_t *, size_t, const uint8_t *, const int64_t *, size_t, uint8_t *);

#define CHECK(holds)                                                        \
    do {                                                                    \
        if (!(holds)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);     \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) { /* xorshift: reproducible */
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* ---- the field, by sums modulo p of numbers below p */

typedef struct {
    uint64_t word[4];
} number;

static const number P = {{~18ull, ~0ull, ~0ull, ~0ull >> 1}};

static int below(const number *a, const number *b) {
    for (int i = 3; i >= 0; i--)
        if (a->word[i] != b->word[i]) return a->word[i] < b->word[i];
    return 0;
}

static number plus(number a, number b) {
    unsigned __int128 over = 0;
    for (int i = 0; i < 4; i++) over += (unsigned __int128)a.word[i] + b.word[i], a.word[i] = (uint64_t)over, over >>= 64;
    if (below(&a, &P)) return a;
    unsigned __int128 borrow = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned __int128 rest = (unsigned __int128)a.word[i] - P.word[i] - borrow;
        a.word[i] = (uint64_t)rest, borrow = rest >> 127;
    }
    return a;
}

static number times(number a, number b) {
    number made = {{0}};
    for (int bit = 254; bit >= 0; bit--) {
        made = plus(made, made);
        if (b.word[bit / 64] >> bit % 64 & 1) made = plus(made, a);
    }
    return made;
}

static number of_words(const uint64_t words[WORDS]) {
    number made = {{0}};
    for (int i = WORDS - 1; i >= 0; i--) {
        for (int bit = 0; bit < WORD_BITS; bit++) made = plus(made, made);
        made = plus(made, (number){{words[i]}});
    }
    return made;
}

typedef struct {
    uint64_t word[WORDS][LANES];
} columns; /* of all lanes */

static number of_lane(const columns *c, int lane) {
    uint64_t words[WORDS];
    for (int i = 0; i < WORDS; i++) words[i] = c->word[i][lane];
    return of_words(words);
}

/* Words that are 0, 1, at a bound, or random below it. */
static columns extreme(uint64_t bound) {
    columns made;
    for (int i = 0; i < WORDS; i++)
        for (int lane = 0; lane < LANES; lane++) {
            const uint64_t ends[] = {0, 1, bound - 1, MASK, next() % bound};
            made.word[i][lane] = ends[next() % (sizeof ends / sizeof *ends)];
        }
    return made;
}

TARGET static wide read(const columns *c) {
    wide made;
    memcpy(&made, c, sizeof made);
    return made;
}

/* The element is within its bounds, and has these residues. */
TARGET static void has_residues(const element *x, const number *expected) {
    const wide words = words_of(x), frozen = freeze(x);
    columns loose, tight;
    memcpy(&loose, &words, sizeof words);
    memcpy(&tight, &frozen, sizeof frozen);
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < WORDS; i++) CHECK(loose.word[i][lane] < (1ull << 51) + (1ull << 17));
        for (int i = 0; i < WORDS; i++) CHECK(tight.word[i][lane] <= MASK);
        CHECK(tight.word[0][lane] < MASK - 18 || tight.word[1][lane] < MASK || tight.word[2][lane] < MASK ||
              tight.word[3][lane] < MASK || tight.word[4][lane] < MASK);
        const number one = of_lane(&loose, lane), other = of_lane(&tight, lane);
        CHECK(!memcmp(&one, &expected[lane], sizeof one) && !memcmp(&other, &expected[lane], sizeof other));
    }
}

static void words_below(const wide *c, uint64_t bound) {
    columns words;
    memcpy(&words, c, sizeof words);
    for (int i = 0; i < WORDS; i++)
        for (int lane = 0; lane < LANES; lane++) CHECK(words.word[i][lane] < bound);
}

TARGET static void field(void) {
    const uint64_t of_element = (1ull << 51) + (1ull << 17), of_product = 1ull << 61;
    for (int round = 0; round < 200; round++) {
        const columns ca = extreme(of_element), cb = extreme(of_element), cp = extreme(of_product);
        const columns cq = extreme(of_product), cw = extreme(1ull << 63);
        const wide wa = read(&ca), wb = read(&cb), wp = read(&cp), wq = read(&cq), ww = read(&cw);
        const element a = element_of(&wa), b = element_of(&wb);
        const wide ab = multiply(&a, &b), aa = square(&a), small = multiply_small_add(&a, 121665, &wp);
        const wide less = subtract_wide(&wp, &wq, PRODUCT);
        words_below(&ab, of_product), words_below(&aa, of_product), words_below(&small, 1ull << 62);
        const element made[] = {
            carry(ab), carry(aa), carry(small), carry(less), carry(ww), sum(&a, &b), difference(&a, &b)};
        number expected[7][LANES];
        for (int lane = 0; lane < LANES; lane++) {
            const number x = of_lane(&ca, lane), y = of_lane(&cb, lane), p = of_lane(&cp, lane), q = of_lane(&cq, lane);
            expected[0][lane] = times(x, y);
            expected[1][lane] = times(x, x);
            expected[2][lane] = plus(times(x, (number){{121665}}), p);
            expected[4][lane] = of_lane(&cw, lane);
            expected[5][lane] = plus(x, y);
            expected[3][lane] = plus(p, times(q, (number){{~19ull, ~0ull, ~0ull, ~0ull >> 1}})); /* times -1 */
            expected[6][lane] = plus(x, times(y, (number){{~19ull, ~0ull, ~0ull, ~0ull >> 1}}));
        }
        for (int i = 0; i < 7; i++) has_residues(&made[i], expected[i]);
    }
}

/* ---- the kernels */

static uint8_t *bytes(size_t count) {
    uint8_t *made = malloc(count + !count); /* exactly as large as needed, so that a sanitiser sees every slip */
    CHECK(made);
    return made;
}

static void clamped(uint8_t scalar[32]) {
    for (int i = 0; i < 32; i++) scalar[i] = (uint8_t)next();
    scalar[0] &= 248;
    scalar[31] = (scalar[31] & 127) | 64;
}

static void published(void) { /* the first test vector of RFC 7748, section 5.2; its point is checked by nothing here */
    static const char *const hex[3] = {
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"};
    uint8_t value[3][32], reached[32];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 32; i++) {
            unsigned byte;
            CHECK(sscanf(hex[k] + 2 * i, "%2x", &byte) == 1);
            value[k][i] = (uint8_t)byte;
        }
    value[0][0] &= 248;
    value[0][31] = (value[0][31] & 127) | 64;
    FN(treetap_raise_points)(value[0], value[1], NULL, reached, NULL, 1);
    CHECK(!memcmp(reached, value[2], 32));
}

static void drive(size_t count) {
    uint8_t *uniform = bytes(64 * count), *points = bytes(32 * count), *one = bytes(32 * count);
    uint8_t *other = bytes(32 * count), *roots = bytes(32 * count), first[32], second[32];
    for (size_t i = 0; i < 64 * count; i++) uniform[i] = (uint8_t)next();
    for (size_t i = 0; i < 64 * count && i < 64 * 6; i++) uniform[i] = i / 32 % 2 ? 0xff : 0; /* halves of extremes */
    for (size_t i = 0; i < count && i < 3; i++) uniform[64 * i + 17 * i] += 1;
    FN(treetap_hash_points)(uniform, points, roots, count);
    FN(treetap_hash_points)(uniform, points, NULL, count);
    CHECK(FN(treetap_check_points)(points, NULL, count) == count);
    clamped(first);
    clamped(second);
    FN(treetap_raise_points)(first, points, NULL, one, NULL, count);
    CHECK(FN(treetap_check_points)(one, NULL, count) == count);
    FN(treetap_raise_points)(first, points, roots, other, roots, count); /* roots in place */
    CHECK(!memcmp(one, other, 32 * count));
    FN(treetap_raise_points)(second, one, roots, one, roots, count); /* both in place */
    FN(treetap_raise_points)(second, points, NULL, other, NULL, count);
    FN(treetap_raise_points)(first, other, NULL, other, NULL, count);
    CHECK(!memcmp(one, other, 32 * count));
    if (count) {
        const size_t last = count - 1;
        FN(treetap_hash_points)(uniform + 64 * last, other, NULL, 1);
        CHECK(!memcmp(other, points + 32 * last, 32));
        /* 0, 1 (of order 4), the largest number, and a point with its top bit set */
        for (int fault = 0; fault < 4; fault++) {
            memcpy(other, points, 32 * count);
            uint8_t *spoilt = other + 32 * (next() % count);
            if (fault < 3) memset(spoilt, fault == 2 ? 0xff : 0, 32);
            if (fault == 1) spoilt[0] = 1;
            if (fault == 3) spoilt[31] |= 128;
            CHECK(FN(treetap_check_points)(other, roots, count) == (size_t)(spoilt - other) / 32);
        }
    }
    free(uniform), free(points), free(one), free(other), free(roots);
}

static number of_bytes(const uint8_t *row) {
    number made;
    memcpy(&made, row, sizeof made);
    return made;
}

/* Sums of points in one order and in the other: the same ratios x/z and y/z of every window. */
static void sums(size_t count) {
    enum { WINDOWS = 16, SPACE = WINDOWS * 129 * 24 };
    uint8_t *uniform = bytes(64 * count), *points = bytes(32 * count), *roots = bytes(32 * count);
    uint8_t *raised = bytes(32 * count), *even = bytes(32 * count), *signs = bytes(count);
    int8_t *digits = (int8_t *)bytes(WINDOWS * count);
    uint64_t *buckets = (uint64_t *)bytes(8 * SPACE);
    uint8_t *made[2] = {bytes(4 * 32 * WINDOWS), bytes(4 * 32 * WINDOWS)}, scalar[32];
    for (size_t i = 0; i < 64 * count; i++) uniform[i] = (uint8_t)next();
    for (size_t i = 0; i < WINDOWS * count; i++) digits[i] = (int8_t)(i % 5 ? next() : 127 + i % 2);
    FN(treetap_hash_points)(uniform, points, roots, count);
    clamped(scalar);
    FN(treetap_raise_points)(scalar, points, roots, raised, roots, count);
    CHECK(FN(treetap_check_points)(raised, even, count) == count);
    for (size_t i = 0; i < count; i++) {
        const number v = of_bytes(roots + 32 * i), e = of_bytes(even + 32 * i), both = plus(v, e);
        signs[i] = roots[32 * i] & 1;
        CHECK(signs[i] ? !(both.word[0] | both.word[1] | both.word[2] | both.word[3]) : !memcmp(&v, &e, sizeof v));
    }
    FN(treetap_sum_multiples)(raised, even, signs, digits, count, buckets, made[0]);
    for (size_t i = 0, k = count; i + 1 < k--; i++)
        for (size_t byte = 0; byte < 32; byte++) {
            uint8_t *const blocks[3] = {raised, roots, (uint8_t *)digits};
            for (int block = 0; block < 3; block++) {
                const size_t width = block < 2 ? 32 : WINDOWS;
                if (byte >= width) continue;
                const uint8_t kept = blocks[block][width * i + byte];
                blocks[block][width * i + byte] = blocks[block][width * k + byte];
                blocks[block][width * k + byte] = kept;
            }
            if (!byte) {
                const uint8_t kept = signs[i];
                signs[i] = signs[k], signs[k] = kept;
            }
        }
    FN(treetap_sum_multiples)(raised, roots, signs, digits, count, buckets, made[1]);
    for (size_t window = 0; window < WINDOWS; window++)
        for (size_t part = 0; part < 2; part++) {
            const number a = times(of_bytes(made[0] + 32 * (WINDOWS * part + window)),
                                   of_bytes(made[1] + 32 * (WINDOWS * 2 + window)));
            const number b = times(of_bytes(made[1] + 32 * (WINDOWS * part + window)),
                                   of_bytes(made[0] + 32 * (WINDOWS * 2 + window)));
            CHECK(!memcmp(&a, &b, sizeof a));
        }
    free(uniform), free(points), free(roots), free(raised), free(even), free(signs), free(digits);
    free(buckets), free(made[0]), free(made[1]);
}

/* Digests of texts at every place of a block, in memory that ends with them. */
static void digests(void) {
    for (size_t length = 0; length < 300; length++) {
        uint8_t *texts = bytes(length), *made = bytes(2 * 64);
        const int64_t ends[3] = {0, (int64_t)(length / 2), (int64_t)length};
        memset(texts, 'a', length);
        treetap_sha512(texts, length, texts, ends, 2, made);
        free(texts), free(made);
    }
    static const uint8_t abc[8] = {0xdd, 0xaf, 0x35, 0xa1, 0x93, 0x61, 0x7a, 0xba}; /* FIPS 180-4's example */
    const int64_t ends[2] = {0, 2};
    uint8_t made[64];
    treetap_sha512((const uint8_t *)"a", 1, (const uint8_t *)"bc", ends, 1, made);
    CHECK(!memcmp(made, abc, sizeof abc));
}

int main(void) {
#ifndef EMULATED
    if (!FN(treetap_has)()) return 77;
#endif
    field();
    published();
    digests();
    static const size_t counts[] = {0, 1, 7, 8, 9, 16, 17, 129, 257};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) drive(counts[k]), sums(counts[k]);
    puts("points: all kernels");
    return 0;
}
