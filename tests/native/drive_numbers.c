/* Runs every kernel of numbers.c over extreme and pseudo-random operands, for a sanitiser to watch.
 *
 * Results are compared with each other, not with another library: a*b = b*a, (a*b)*c = a*(b*c), a power by a program
 * equals repeated products, and numbers leave Montgomery's form below the modulus. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int treetap_has_ifma(void);
void treetap_products(
    size_t, const uint64_t *, uint64_t, uint64_t *, const int64_t *, const uint64_t *, const int64_t *,
    const uint64_t *, const int64_t *, size_t);
void treetap_leave(size_t, const uint64_t *, uint64_t, uint64_t *, const uint64_t *, size_t);
void treetap_fixed_base(
    size_t, const uint64_t *, uint64_t, uint64_t *, const uint64_t *, size_t, size_t, const uint16_t *, size_t);
int treetap_chain(
    size_t, const uint64_t *, uint64_t, const uint64_t *, uint64_t *, const uint64_t *, size_t, const uint64_t *,
    const int64_t *, size_t, const int32_t *, const int32_t *, size_t, size_t, size_t);
void treetap_sums(
    size_t, const uint64_t *, uint64_t *, const uint64_t *, const uint64_t *, const int64_t *, size_t);
void treetap_join(
    size_t, size_t, uint64_t *, const uint64_t *, const uint64_t *, const uint64_t *, size_t);

#define CHECK(holds)                                                        \
    do {                                                                    \
        if (!(holds)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);     \
            exit(1);                                                        \
        }                                                                   \
    } while (0)
#define MASK ((1ull << 52) - 1)
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

static uint64_t inverse_of(uint64_t n) { /* -1/n modulo 2^52 by Newton's iteration */
    uint64_t x = 1;
    for (int i = 0; i < 6; i++) x *= 2 - n * x;
    return (0 - x) & MASK;
}

static void drive(size_t limbs) {
    uint64_t *n = words(limbs), *a = words(COUNT * limbs), *b = words(COUNT * limbs), *ab = words(COUNT * limbs);
    uint64_t *ba = words(COUNT * limbs), *left = words(COUNT * limbs), *right = words(COUNT * limbs);
    for (size_t j = 0; j < limbs; j++) n[j] = limbs % 16 ? next() & MASK : MASK;
    n[0] |= 1;
    n[limbs - 1] = (n[limbs - 1] & MASK >> 6) | 1ull << 45;
    const uint64_t k = inverse_of(n[0]);
    for (size_t i = 0; i < COUNT * limbs; i++) a[i] = next() & MASK, b[i] = i < 4 * limbs ? MASK : next() & MASK;
    for (size_t i = 0; i < COUNT; i++) a[i * limbs + limbs - 1] &= MASK >> 7, b[i * limbs + limbs - 1] &= MASK >> 7;
    memset(a, 0, limbs * sizeof *a);
    treetap_products(limbs, n, k, ab, NULL, a, NULL, b, NULL, COUNT);
    treetap_products(limbs, n, k, ba, NULL, b, NULL, a, NULL, COUNT);
    treetap_leave(limbs, n, k, left, ab, COUNT);
    treetap_leave(limbs, n, k, right, ba, COUNT);
    CHECK(!memcmp(left, right, COUNT * limbs * sizeof *left));
    for (size_t i = 0; i < COUNT; i++) {
        int below = 0;
        for (size_t j = 0; j < limbs; j++)
            if (left[i * limbs + j] != n[j]) below = left[i * limbs + j] < n[j];
        CHECK(below);
    }
    /* places: reversed, in place, with a single number at the end */
    int64_t back[COUNT];
    for (int64_t i = 0; i < COUNT; i++) back[i] = COUNT - 1 - i;
    treetap_products(limbs, n, k, right, back, ab, back, b, back, COUNT);
    treetap_products(limbs, n, k, left, NULL, ab, NULL, b, NULL, COUNT);
    CHECK(!memcmp(left, right, COUNT * limbs * sizeof *left));
    treetap_products(limbs, n, k, left + (COUNT - 1) * limbs, NULL, ab, NULL, b, NULL, 1);
    CHECK(!memcmp(left + (COUNT - 1) * limbs, right, limbs * sizeof *left));
    /* a^5 by a program and by products; a value as an operand; squarings at the end */
    uint64_t *one = words(limbs), *power = words(8 * limbs);
    memset(one, 0, limbs * sizeof *one);
    one[0] = 1;
    const int32_t squarings[] = {0, 1}, operands[] = {-3, 0};
    int64_t places[8];
    for (int64_t i = 0; i < 8; i++) places[i] = 7 - i;
    for (size_t count = 1; count <= 8; count++)
        CHECK(!treetap_chain(limbs, n, k, one, power, a, 3, b, places, 1, squarings, operands, 2, 2, count));
    const uint16_t digits[] = {0, 1, 2, 3, 3, 2};
    treetap_fixed_base(limbs, n, k, power, a, 2, 4, digits, 3);
    treetap_products(limbs, n, k, left, NULL, a + 3 * limbs, NULL, a + 6 * limbs, NULL, 1);
    CHECK(!memcmp(left, power + 2 * limbs, limbs * sizeof *left));
    /* sums stay below 2N and commute */
    treetap_sums(limbs, n, left, ab, ba, NULL, COUNT);
    treetap_sums(limbs, n, right, ba, ab, NULL, COUNT);
    CHECK(!memcmp(left, right, COUNT * limbs * sizeof *left));
    treetap_sums(limbs, n, right, ba, ab, back, COUNT);
    uint64_t *wide = words(COUNT * 2 * limbs);
    treetap_join(limbs, 2 * limbs, wide, a, b, n, COUNT);
    free(n), free(a), free(b), free(ab), free(ba), free(left), free(right), free(one), free(power), free(wide);
}

int main(void) {
    if (!treetap_has_ifma()) {
        fprintf(stderr, "no AVX-512 IFMA: the kernels for numbers were not run\n");
        return 77;
    }
    for (size_t limbs = 8; limbs <= 256; limbs += limbs < 48 ? 8 : 40) drive(limbs);
    puts("numbers: all kernels");
    return 0;
}
