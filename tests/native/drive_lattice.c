/* Runs every kernel for polynomials, with AVX2 where the processor has it and without, over both degrees and the most
 * primes, for a sanitiser to watch; what is encrypted, masked, refreshed and flooded must come out again. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t n, primes;
    const uint32_t *constants, *tables;
} scheme;

int treetap_lattice_avx2(int wanted);
void treetap_lattice_tables(size_t n, uint32_t q, uint32_t root, uint32_t *out);
void treetap_lattice_words(const uint8_t *seed, uint32_t number, size_t blocks, uint32_t *out);
void treetap_lattice_transform(const scheme *s, size_t k, int back, uint32_t *x);
void treetap_lattice_uniform(const scheme *s, const uint8_t *seed, uint32_t *out);
void treetap_lattice_blinds(const scheme *s, const uint8_t *seed, size_t count, uint32_t *out);
void treetap_lattice_add(const scheme *s, uint32_t *out, const uint32_t *x);
void treetap_lattice_multiply_add(const scheme *s, uint32_t *out, const uint32_t *x, const uint32_t *y);
void treetap_lattice_secret(const scheme *s, const uint8_t *seed, uint32_t *out);
void treetap_lattice_encrypt(
    const scheme *s, const uint32_t *secret, const int64_t *values, size_t count, const uint8_t *seed,
    const uint32_t *second, uint32_t *out);
void treetap_lattice_mask(const scheme *s, const uint8_t *mask, size_t count, uint32_t *out);
void treetap_lattice_zero(const scheme *s, const uint32_t *key, const uint8_t *seed, uint32_t *out);
void treetap_lattice_flood(
    const scheme *s, const uint8_t *seed, size_t limbs, const uint32_t *width, const uint32_t *bound, uint32_t *out);
void treetap_lattice_plain(const scheme *s, const int64_t *values, size_t count, uint32_t *out);
int treetap_lattice_decrypt(const scheme *s, const uint32_t *secret, const uint32_t *ciphertext, uint32_t *slots);

#define MOST 15 /* fourteen primes and t */
#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);             \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

static uint32_t *words(size_t count) {
    uint32_t *made = calloc(count, sizeof *made);
    CHECK(made);
    return made;
}

static uint64_t power(uint64_t base, uint64_t exponent, uint64_t q) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base = base * base % q)
        if (exponent & 1) result = result * base % q;
    return result;
}

static int prime(uint32_t x) {
    for (uint32_t d = 3; (uint64_t)d * d <= x; d += 2)
        if (x % d == 0) return 0;
    return 1;
}

static void drive(size_t n, size_t primes) {
    uint32_t moduli[MOST], constants[6 * MOST], *tables = words((primes + 1) * 4 * n);
    const size_t all = primes + 1, half = primes * n;
    size_t found = 0;
    uint32_t from = 1u << 30;
    for (uint32_t p = from - 2 * (uint32_t)n + 1; found < primes; p -= 2 * (uint32_t)n)
        if (prime(p)) moduli[found++] = p;
    for (uint32_t p = (1u << 20) - 2 * (uint32_t)n + 1; found < all; p -= 2 * (uint32_t)n)
        if (prime(p)) moduli[found++] = p;
    const uint64_t t = moduli[primes];
    uint64_t q_mod_t = 1;
    for (size_t k = 0; k < primes; k++) q_mod_t = q_mod_t * moduli[k] % t;
    for (size_t k = 0; k < all; k++) {
        const uint64_t q = moduli[k];
        uint32_t inverse = 1, root = 0;
        for (int i = 0; i < 5; i++) inverse *= 2 - (uint32_t)q * inverse;
        for (uint64_t g = 2; !root; g++) {
            const uint64_t candidate = power(g, (q - 1) / (2 * n), q);
            if (power(candidate, n, q) == q - 1) root = (uint32_t)candidate;
        }
        uint64_t rest = 1; /* q over this prime */
        for (size_t j = 0; j < primes; j++)
            if (j != k) rest = rest * moduli[j] % q;
        const uint64_t one_nth = power(n, q - 2, q);
        constants[k] = (uint32_t)q;
        constants[all + k] = inverse;
        constants[2 * all + k] = (uint32_t)(k < primes ? q - power(t, q - 2, q) : q_mod_t * one_nth % t);
        constants[3 * all + k] = (uint32_t)((1ull << 32) % q);
        constants[4 * all + k] = (uint32_t)(k < primes ? power(n % q * rest % q, q - 2, q) : 0);
        constants[5 * all + k] = (uint32_t)one_nth;
        treetap_lattice_tables(n, (uint32_t)q, root, tables + 4 * n * k);
    }
    const scheme s = {n, primes, constants, tables};
    uint8_t seed[32], *mask = calloc(n, 1);
    int64_t *values = calloc(n, sizeof *values);
    uint32_t *secret = words(half), *second = words(half), *first = words(half), *factor = words(half);
    uint32_t *key = words(2 * half), *sum = words(2 * half), *slots = words(n), *drawn = words(2048);
    CHECK(mask && values);
    for (size_t i = 0; i < 32; i++) seed[i] = (uint8_t)(7 * i + n);
    treetap_lattice_words(seed, 1, 128, drawn);
    for (size_t j = 0; j < n; j++) {
        values[j] = (int64_t)(drawn[j % 2048] % 1000) - 500;
        mask[j] = drawn[(j + 77) % 2048] & 1;
    }
    treetap_lattice_secret(&s, seed, secret);
    treetap_lattice_uniform(&s, seed, second);
    for (size_t k = 0; k < primes; k++) {
        memcpy(slots, second + k * n, n * sizeof *slots);
        treetap_lattice_transform(&s, k, 1, slots);
        treetap_lattice_transform(&s, k, 0, slots);
        CHECK(!memcmp(slots, second + k * n, n * sizeof *slots));
    }
    treetap_lattice_encrypt(&s, secret, values, 0, seed, second, first);
    for (size_t k = 0; k < primes; k++) /* the public key in Montgomery form */
        for (size_t j = 0; j < n; j++) {
            key[k * n + j] = (uint32_t)(((uint64_t)first[k * n + j] << 32) % moduli[k]);
            key[half + k * n + j] = (uint32_t)(((uint64_t)second[k * n + j] << 32) % moduli[k]);
        }
    seed[0]++;
    treetap_lattice_encrypt(&s, secret, values, n, seed, second, first);
    treetap_lattice_zero(&s, key, seed, sum);
    treetap_lattice_mask(&s, mask, n, factor);
    treetap_lattice_multiply_add(&s, sum, first, factor);
    treetap_lattice_multiply_add(&s, sum + half, second, factor);
    uint32_t bound[2] = {0xfffffff0, 7}, width[2] = {0xffffffe1, 15};
    treetap_lattice_flood(&s, seed, 2, width, bound, factor);
    treetap_lattice_add(&s, sum, factor);
    values[n - 1] = 0; /* numbers that are added in the clear */
    treetap_lattice_plain(&s, values, n - 1, factor);
    treetap_lattice_add(&s, sum, factor);
    CHECK(!treetap_lattice_decrypt(&s, secret, sum, slots));
    for (size_t j = 0; j + 1 < n; j++)
        CHECK(slots[j] == (uint32_t)((int64_t)t + (mask[j] ? 2 : 1) * values[j]) % t);
    treetap_lattice_uniform(&s, seed, sum);
    CHECK(treetap_lattice_decrypt(&s, secret, sum, slots)); /* no ciphertext: all noise */
    treetap_lattice_blinds(&s, seed, n - 3, slots);
    for (size_t j = 0; j < n - 3; j++) CHECK(slots[j] < t);
    free(tables), free(mask), free(values), free(secret), free(second), free(first), free(factor), free(key), free(sum);
    free(slots), free(drawn);
}

int main(void) {
    for (int form = 0; form < 2; form++) {
        const int used = treetap_lattice_avx2(form);
        if (used != form) break;
        drive(8192, 4);
        drive(16384, 14);
        printf("polynomials: all kernels, %s\n", used ? "AVX2" : "plain instructions");
    }
    return 0;
}
