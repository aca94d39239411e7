/* Runs the kernels of numbers.c in one form, which -D names as for them, and those of words.c over extreme and
 * pseudo-random operands, for a sanitiser to watch.
 *
 * Results are compared with each other, not with another library: a*b = b*a, a*a by a square and by a product, (a*b)*c =
 * a*(b*c), a power by a program equals repeated products, blocks come back as they were, and numbers leave Montgomery's form
 * below the modulus. In another rounding mode a form refuses or gives the same. */
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../treetap/native/lanes.h"

#if defined(IFMA)
#define WORD_BITS 52
#define ROWS 4
static const size_t LIMBS[] = {8, 12, 20, 40, 64, 80, 128, 256};
#else
#define WORD_BITS 49
#define ROWS 7
static const size_t LIMBS[] = {14, 21, 28, 42, 63, 84, 126, 273};
#endif

int FN(treetap_has)(void);
size_t treetap_read(size_t, size_t, const uint8_t *, size_t, size_t, const uint64_t *, uint64_t *);
void treetap_write(size_t, size_t, const uint64_t *, size_t, size_t, uint8_t *);
void treetap_sums(
    size_t, size_t, const uint64_t *, uint64_t *, const uint64_t *, const uint64_t *, size_t, size_t);
size_t FN(treetap_modulus)(void *, size_t, const uint64_t *, const uint64_t *, const uint64_t *);
int FN(treetap_products)(
    const void *, uint64_t *, const int64_t *, const uint64_t *, const int64_t *, const uint64_t *, const int64_t *,
    size_t, size_t);
int FN(treetap_leave)(const void *, uint64_t *, const uint64_t *, size_t);
int FN(treetap_fixed_base)(const void *, uint64_t *, const uint64_t *, size_t, size_t, const uint16_t *, size_t);
int FN(treetap_chain)(
    const void *, const uint64_t *, uint64_t *, const uint64_t *, size_t, const uint64_t *, const int64_t *, size_t,
    const int32_t *, const int32_t *, size_t, size_t, size_t);
int FN(treetap_join)(const void *, size_t, uint64_t *, const uint64_t *, const uint64_t *, size_t);

#define CHECK(holds)                                                        \
    do {                                                                    \
        if (!(holds)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);     \
            exit(1);                                                        \
        }                                                                   \
    } while (0)
#define MASK ((1ull << WORD_BITS) - 1)
#define COUNT 19

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) { /* xorshift: reproducible */
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint64_t *words(size_t count) {
    uint64_t *made = malloc(count * sizeof *made); /* exactly as large as needed, so that a sanitiser sees every slip */
    CHECK(made);
    return made;
}

static void *constants(size_t limbs, const uint64_t *n) { /* of a modulus: k*N = -1 modulo the lowest words, k*N + 1 */
    uint64_t k[ROWS], *sum = words(limbs + ROWS), inverse = 1;
    for (int i = 0; i < 6; i++) inverse *= 2 - n[0] * inverse;
    memset(sum, 0, (limbs + ROWS) * sizeof *sum);
    sum[0] = 1;
    for (size_t i = 0; i < ROWS; i++) {
        unsigned __int128 over = 0;
        k[i] = (0 - sum[i] * inverse) & MASK;
        for (size_t j = 0; j < limbs + ROWS - i; j++) {
            over += sum[i + j] + (unsigned __int128)k[i] * (j < limbs ? n[j] : 0);
            sum[i + j] = (uint64_t)over & MASK;
            over >>= WORD_BITS;
        }
    }
    void *made = malloc(FN(treetap_modulus)(NULL, limbs, n, sum + ROWS, k));
    CHECK(made);
    FN(treetap_modulus)(made, limbs, n, sum + ROWS, k);
    free(sum);
    return made;
}

static void same(const uint64_t *x, const uint64_t *y, size_t count) { CHECK(!memcmp(x, y, count * sizeof *x)); }

static void drive(size_t limbs) {
    const size_t all = COUNT * limbs;
    uint64_t *n = words(limbs), *a = words(all), *b = words(all), *ab = words(all), *ba = words(all), *c = words(all);
    uint64_t *left = words(all), *right = words(all);
    for (size_t j = 0; j < limbs; j++) n[j] = limbs % 16 ? next() & MASK : MASK;
    n[0] |= 1;
    n[limbs - 1] = (n[limbs - 1] & MASK >> 6) | 1ull << (WORD_BITS - 7);
    for (size_t i = 0; i < all; i++) a[i] = next() & MASK, b[i] = i < 4 * limbs ? MASK : next() & MASK;
    for (size_t i = 0; i < COUNT; i++) a[i * limbs + limbs - 1] &= MASK >> 7, b[i * limbs + limbs - 1] &= MASK >> 7;
    memset(a, 0, limbs * sizeof *a);
    void *m = constants(limbs, n);
    CHECK(!FN(treetap_products)(m, ab, NULL, a, NULL, b, NULL, 1, COUNT));
    CHECK(!FN(treetap_products)(m, ba, NULL, b, NULL, a, NULL, 1, COUNT));
    CHECK(!FN(treetap_leave)(m, left, ab, COUNT));
    CHECK(!FN(treetap_leave)(m, right, ba, COUNT));
    same(left, right, all);
    for (size_t i = 0; i < COUNT; i++) {
        int below = 0;
        for (size_t j = 0; j < limbs; j++)
            if (left[i * limbs + j] != n[j]) below = left[i * limbs + j] < n[j];
        CHECK(below);
    }
    /* squares, (a*b)*b = a*(b*b), one number with every other */
    memcpy(c, b, all * sizeof *b);
    CHECK(!FN(treetap_products)(m, left, NULL, b, NULL, b, NULL, 1, COUNT));
    CHECK(!FN(treetap_products)(m, right, NULL, b, NULL, c, NULL, 1, COUNT));
    CHECK(!FN(treetap_leave)(m, c, left, COUNT));
    CHECK(!FN(treetap_leave)(m, right, right, COUNT));
    same(c, right, all);
    CHECK(!FN(treetap_products)(m, right, NULL, ab, NULL, b, NULL, 1, COUNT));
    CHECK(!FN(treetap_products)(m, c, NULL, a, NULL, left, NULL, 1, COUNT));
    CHECK(!FN(treetap_leave)(m, left, c, COUNT));
    CHECK(!FN(treetap_leave)(m, right, right, COUNT));
    same(left, right, all);
    int64_t back[COUNT], first[COUNT] = {0};
    for (int64_t i = 0; i < COUNT; i++) back[i] = COUNT - 1 - i;
    CHECK(!FN(treetap_products)(m, left, NULL, a, NULL, b, NULL, 0, COUNT));
    CHECK(!FN(treetap_products)(m, right, NULL, a, NULL, b, first, 1, COUNT));
    same(left, right, all);
    /* places: reversed, in place, with a single number at the end */
    CHECK(!FN(treetap_products)(m, right, back, ab, back, b, back, 1, COUNT));
    CHECK(!FN(treetap_products)(m, left, NULL, ab, NULL, b, NULL, 1, COUNT));
    same(left, right, all);
    CHECK(!FN(treetap_products)(m, left + all - limbs, NULL, ab, NULL, b, NULL, 1, 1));
    same(left + all - limbs, right, limbs);
    CHECK(!FN(treetap_products)(m, left, NULL, ab, NULL, b, NULL, 1, 0));
    /* a^5 by a program and by products; a value as an operand; squarings at the end */
    uint64_t *one = words(limbs), *power = words(8 * limbs);
    memset(one, 0, limbs * sizeof *one);
    one[0] = 1;
    const int32_t squarings[] = {0, 1}, operands[] = {-3, 0};
    int64_t places[8];
    for (int64_t i = 0; i < 8; i++) places[i] = 7 - i;
    for (size_t count = 1; count <= 8; count++)
        CHECK(!FN(treetap_chain)(m, one, power, a, 3, b, places, 1, squarings, operands, 2, 2, count));
    const uint16_t digits[] = {0, 1, 2, 3, 3, 2};
    CHECK(!FN(treetap_fixed_base)(m, power, a, 2, 4, digits, 3));
    CHECK(!FN(treetap_products)(m, left, NULL, a + 3 * limbs, NULL, a + 6 * limbs, NULL, 1, 1));
    same(left, power + 2 * limbs, limbs);
    /* sums stay in their words and commute */
    treetap_sums(WORD_BITS, limbs, n, left, ab, ba, 1, COUNT);
    treetap_sums(WORD_BITS, limbs, n, right, ba, ab, 1, COUNT);
    same(left, right, all);
    treetap_sums(WORD_BITS, limbs, n, right, ba, ab, 0, COUNT);
    /* bytes there and back, for widths around the words */
    for (size_t width = limbs * WORD_BITS / 8 - 3; width <= limbs * WORD_BITS / 8 + 5; width++) {
        uint8_t *bytes = malloc(COUNT * width), *again = malloc(COUNT * width);
        CHECK(bytes && again);
        for (size_t i = 0; i < COUNT * width; i++) bytes[i] = i % width < 9 ? 0 : (uint8_t)next();
        bytes[width - 1] |= 1;
        CHECK(treetap_read(WORD_BITS, limbs, bytes, width, COUNT, NULL, left) == COUNT);
        treetap_write(WORD_BITS, limbs, left, COUNT, width, again);
        CHECK(!memcmp(bytes, again, COUNT * width));
        memset(bytes + width, 0, width); /* the second number is zero, which a bound refuses */
        CHECK(treetap_read(WORD_BITS, limbs, bytes, width, COUNT, n, left) == 1);
        free(bytes);
        free(again);
    }
    uint64_t *wide = words(COUNT * 2 * limbs);
    CHECK(!FN(treetap_join)(m, 2 * limbs, wide, a, b, COUNT));
    /* rounding of other kinds is refused, or changes nothing */
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (int i = 0; i < 3; i++) {
        fesetround(modes[i]);
        const int refused = FN(treetap_products)(m, left, NULL, a, NULL, b, NULL, 1, COUNT);
        CHECK(refused == FN(treetap_leave)(m, right, ab, COUNT));
        CHECK(refused == FN(treetap_chain)(m, one, power, a, 3, b, places, 1, squarings, operands, 2, 2, 8));
        CHECK(refused == FN(treetap_fixed_base)(m, power, a, 2, 4, digits, 3));
        CHECK(refused == FN(treetap_join)(m, 2 * limbs, wide, a, b, COUNT));
        fesetround(FE_TONEAREST);
        CHECK(refused == (WORD_BITS == 49));
        if (!refused) same(left, ab, all);
    }
    free(n), free(a), free(b), free(c), free(ab), free(ba), free(left), free(right), free(one), free(power), free(wide);
    free(m);
}

int main(void) {
#if !defined(EMULATED)
    if (!FN(treetap_has)()) return 77;
#endif
    for (size_t i = 0; i < sizeof LIMBS / sizeof *LIMBS; i++) drive(LIMBS[i]);
    puts("numbers: all kernels");
    return 0;
}
