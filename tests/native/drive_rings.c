/* Runs the kernels for numbers modulo 2^(64*w) at all numbers of words and odd numbers of rows, each array in memory of its
 * own size, for a sanitiser to watch; what they compute is compared with laws of arithmetic and with single bits. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void treetap_rings_sum(
    uint64_t *, const uint64_t *, size_t, size_t, const uint64_t *, size_t, size_t, size_t, size_t, size_t, size_t);
void treetap_rings_mac(
    uint64_t *, const uint64_t *, size_t, size_t, const uint64_t *, size_t, size_t, size_t, size_t, size_t, size_t);
void treetap_rings_joined(uint64_t *, const uint64_t *, const uint64_t *, size_t, size_t, size_t);
void treetap_rings_bits(uint64_t *, const uint64_t *, size_t, size_t, size_t);
void treetap_rings_minors(
    uint64_t *, const uint64_t *, size_t, size_t, const uint64_t *, size_t, size_t, size_t, size_t, size_t, size_t,
    const int64_t *, const int64_t *);
void treetap_rings_crt(
    uint64_t *, const uint64_t *, const uint64_t *, const uint64_t *, const uint64_t *, size_t, size_t, size_t);

#define CHECK(holds)                                                    \
    do {                                                                \
        if (!(holds)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds); \
            exit(1);                                                    \
        }                                                               \
    } while (0)

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) { /* xorshift: reproducible */
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint64_t *room(size_t words) { /* random words, exactly as many as needed, so that a sanitiser sees every slip */
    uint64_t *made = malloc(words ? words * 8 : 1);
    CHECK(made);
    for (size_t k = 0; k < words; k++) made[k] = next();
    return made;
}

static void numbers(size_t w, size_t outer, size_t inner) {
    const size_t n = outer * inner, words = n * w, in = inner * w, columns = (n + 63) / 64, pairs = inner ? 3 : 0;
    uint64_t *a = room(words), *b = room(words), *one = room(w), *c = room(words), *d = room(words);
    memset(one, 0, w * 8), one[0] = 1;
    treetap_rings_sum(c, a, in, w, b, in, w, outer, inner, w, 0);
    treetap_rings_sum(c, c, in, w, b, in, w, outer, inner, w, 1);
    CHECK(!memcmp(a, c, words * 8));
    treetap_rings_mac(c, a, in, w, b, in, w, outer, inner, w, 0); /* a + a*b - b*a */
    treetap_rings_mac(c, b, in, w, a, in, w, outer, inner, w, 1);
    CHECK(!memcmp(a, c, words * 8));
    treetap_rings_mac(c, a, in, w, one, 0, 0, outer, inner, w, 0); /* 2a, by a number that serves all rows */
    treetap_rings_sum(d, a, in, w, a, in, w, outer, inner, w, 0);
    CHECK(!memcmp(d, c, words * 8));
    uint64_t *bits = room((64 * w - 1) * columns);
    treetap_rings_bits(bits, a, n, w, 64 * w - 1);
    for (size_t bit = 0; bit < 64 * w - 1; bit++)
        for (size_t k = 0; k < 64 * columns; k++)
            CHECK((bits[bit * columns + k / 64] >> k % 64 & 1) == (k < n ? a[k * w + bit / 64] >> bit % 64 & 1 : 0));
    int64_t *i = (int64_t *)room(pairs), *j = (int64_t *)room(pairs);
    for (size_t k = 0; k < pairs; k++) i[k] = (int64_t)(next() % inner), j[k] = (int64_t)(k ? inner - 1 : 0);
    uint64_t *p = room(outer * pairs * w), *q = room(outer * pairs * w);
    memcpy(q, p, outer * pairs * w * 8);
    treetap_rings_minors(p, a, in, w, b, in, w, outer, inner, w, pairs, i, j); /* the same with both turned */
    treetap_rings_minors(q, b, in, w, a, in, w, outer, inner, w, pairs, j, i);
    CHECK(!memcmp(p, q, outer * pairs * w * 8));
    free(a), free(b), free(one), free(c), free(d), free(bits), free(i), free(j), free(p), free(q);
}

/* One bit of each of k digits, of which both shares are known and no mask is: g and p. */
static void digits(size_t k, size_t starts, size_t size) {
    const size_t half = (size_t)1 << (k - 1), rows = half * (2 + starts) - 2, wires = 2 * k - 3 + starts;
    uint64_t *table = room(rows * size), *opened = room(wires * size), *out = room(starts * size), *top = room(size);
    memset(table, 0, rows * size * 8), memset(table, 255, size * 8);
    memset(out, 0, starts * size * 8), memcpy(out, top, size * 8);
    treetap_rings_joined(out, table, opened, size, starts, k);
    for (size_t c = 0; c < size; c++) {
        uint64_t g = opened[(k - 1) * size + c], p = starts > 1 ? opened[k * size + c] : 0;
        for (size_t i = 0; i < k - 1; i++) {
            const uint64_t wire = opened[i * size + c];
            g = (g & wire) ^ (i + 2 < k ? opened[(k - 1 + starts + i) * size + c] : top[c]), p &= wire;
        }
        CHECK(out[c] == g && (starts == 1 || out[size + c] == p));
    }
    free(table), free(opened), free(out), free(top);
}

/* Numbers below a product of three moduli from their residues. */
static void remainders(size_t n, size_t w) {
    static const uint64_t t[3] = {65536, 65535, 65533}, whole = 65536ull * 65535 * 65533;
    uint64_t *moduli = room(6), *parts = room(3 * w), *product = room(w), *residues = room(3 * n), *out = room(n * w);
    uint64_t *values = room(n);
    memset(parts, 0, 24 * w), memset(product, 0, 8 * w);
    product[0] = whole;
    for (size_t j = 0; j < 3; j++) {
        moduli[2 * j] = t[j], moduli[2 * j + 1] = 1, parts[j * w] = whole / t[j];
        while (whole / t[j] % t[j] * moduli[2 * j + 1] % t[j] != 1) moduli[2 * j + 1]++;
    }
    for (size_t k = 0; k < n; k++) {
        values[k] = k ? values[k] % whole : whole - 1;
        for (size_t j = 0; j < 3; j++) residues[3 * k + j] = values[k] % t[j];
    }
    treetap_rings_crt(out, residues, moduli, parts, product, n, 3, w);
    for (size_t k = 0; k < n * w; k++) CHECK(out[k] == (k % w ? 0 : values[k / w]));
    free(moduli), free(parts), free(product), free(residues), free(out), free(values);
}

int main(void) {
    static const size_t sizes[] = {0, 1, 63, 64, 65};
    for (size_t w = 1; w <= 8; w++)
        for (size_t k = 0; k < 5; k++) numbers(w, 1 + k % 2, sizes[k]), remainders(sizes[k], w);
    for (size_t k = 2; k <= 6; k++)
        for (size_t size = 1; size < 20; size++) digits(k, 1, size), digits(k, 2, size);
    return 0;
}
