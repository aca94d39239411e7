/* Polynomials of the lattice scheme: transforms and sampling.
 *
 * Ring Z[X]/(X^n + 1), n = 8192 or 16384. A number modulo q is given by its residues modulo `primes` primes below 2^30,
 * q = q_0 * ... * q_(primes-1); slots are numbers modulo a further prime, t. All of them are 1 modulo 2n. With residues
 * of 32 bits a processor computes with four (SSE2) or eight (AVX2) at once, where residues of 60 bits would leave it one.
 *
 * Transforms. Harvey, "Faster arithmetic for number-theoretic transforms", J. Symb. Comput. 60 (2014): values of a forward
 * transform stay below 4q, of an inverse one below 2q; a product with a constant w uses w' = floor(w * 2^32 / q) (Shoup).
 * Longa and Naehrig, "Speeding up the Number Theoretic Transform for Faster Ideal Lattice-Based Cryptography", CANS 2016:
 * powers of a 2n-th root in bit-reversed order, so that X^n + 1 needs no scaling. In the last three levels values are 4,
 * 2 and 1 apart; blocks of 64 are transposed before these, so that eight groups of eight lie side by side. They stay
 * so: the value that belongs at 64*b + 8*g + l is at 64*b + 8*l + g. Every transformed polynomial has this order.
 *
 * Products of two transformed polynomials are Montgomery's (1985), R = 2^32: one operand is kept multiplied by R.
 *
 * Randomness. A seed of 32 bytes from the operating system is expanded as sampling.h has it.
 *
 * No branch and no address depends on a secret but for rejected draws, of which only the number shows. All functions are
 * inlined, into code for AVX2 and for any processor: see the end of lattice.c.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LARGEST 16384
#define MOST_PRIMES 14
#define INLINE static inline __attribute__((always_inline))
#include "sampling.h"
#define BLOCK (GROUP * GROUP)

int treetap_has_avx2(void);

/* What the functions need of a scheme, in arrays that treetap/native/lattice.py makes. For each prime and then for t,
 * `constants` has the rows below and `tables` powers of the root and of its inverse, each followed by its w'. */
enum { MODULUS, MONTGOMERY, MESSAGE, R_MOD, OPENING, ONE_NTH, ROWS };
typedef struct {
    size_t n, primes;
    const uint32_t *constants; /* (ROWS, primes + 1) */
    const uint32_t *tables;    /* (primes + 1, 4, n) */
} scheme;

INLINE uint32_t constant(const scheme *s, int row, size_t k) { return s->constants[(size_t)row * (s->primes + 1) + k]; }
INLINE const uint32_t *table(const scheme *s, size_t k, int part) { return s->tables + (4 * k + (size_t)part) * s->n; }

INLINE uint32_t high(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }

/* x - bound if that is not negative; x below 2*bound gives a result below bound. */
INLINE uint32_t once(uint32_t x, uint32_t bound) {
    const uint32_t less = x - bound;
    return less < x ? less : x;
}

INLINE uint32_t companion(uint32_t w, uint32_t q) { return (uint32_t)(((uint64_t)w << 32) / q); }

/* x*w modulo q, below 2q, for any x. */
INLINE uint32_t times(uint32_t x, uint32_t w, uint32_t w1, uint32_t q) { return x * w - high(x, w1) * q; }

/* a*b/R modulo q, below 2q, for a*b below q*R; `inverse` is 1/q modulo R. */
INLINE uint32_t product(uint32_t a, uint32_t b, uint32_t q, uint32_t inverse) {
    return high(a, b) - high(a * b * inverse, q) + q;
}

/* ---- transforms ---- */

INLINE void forward_pair(uint32_t *x, uint32_t *y, uint32_t w, uint32_t w1, uint32_t q) {
    const uint32_t a = once(*x, 2 * q), b = times(*y, w, w1, q);
    *x = a + b;
    *y = a - b + 2 * q;
}

INLINE void inverse_pair(uint32_t *x, uint32_t *y, uint32_t w, uint32_t w1, uint32_t q) {
    const uint32_t a = *x, b = *y;
    *x = once(a + b, 2 * q);
    *y = times(a - b + 2 * q, w, w1, q);
}

INLINE void transpose(const uint32_t *from, uint32_t *to) {
    for (size_t l = 0; l < GROUP; l++)
        for (size_t g = 0; g < GROUP; g++) to[GROUP * l + g] = from[GROUP * g + l];
}

/* From coefficients below 4q to values below q. */
INLINE void forward(uint32_t *restrict x, size_t n, uint32_t q, const uint32_t *restrict w, const uint32_t *restrict w1) {
    size_t apart = n / 2, m = 1;
    for (; apart >= GROUP; m *= 2, apart /= 2)
        for (size_t i = 0; i < m; i++) {
            uint32_t *restrict low = x + 2 * i * apart, *restrict up = low + apart;
            const uint32_t r = w[m + i], r1 = w1[m + i];
            for (size_t j = 0; j < apart; j++) forward_pair(low + j, up + j, r, r1, q);
        }
    w += m;
    w1 += m;
    for (size_t block = 0; block < n; block += BLOCK) {
        uint32_t u[BLOCK];
        transpose(x + block, u);
        for (size_t half = GROUP / 2; half; half /= 2)
            for (size_t first = 0; first < GROUP; first += 2 * half, w += GROUP, w1 += GROUP)
                for (size_t l = first; l < first + half; l++)
                    for (size_t g = 0; g < GROUP; g++)
                        forward_pair(u + GROUP * l + g, u + GROUP * (l + half) + g, w[g], w1[g], q);
        for (size_t j = 0; j < BLOCK; j++) x[block + j] = once(once(u[j], 2 * q), q);
    }
}

/* From values below 2q to coefficients times n*scale, below q. */
INLINE void inverse(
    uint32_t *restrict x, size_t n, uint32_t q, const uint32_t *restrict w, const uint32_t *restrict w1, uint32_t scale) {
    size_t m = n / GROUP;
    const uint32_t *last = w + m, *last1 = w1 + m;
    for (size_t block = 0; block < n; block += BLOCK, last += (GROUP - 1) * GROUP, last1 += (GROUP - 1) * GROUP) {
        uint32_t u[BLOCK];
        memcpy(u, x + block, sizeof u);
        for (size_t half = 1; half < GROUP; half *= 2) {
            const uint32_t *r = last + (GROUP / (2 * half) - 1) * GROUP, *r1 = last1 + (GROUP / (2 * half) - 1) * GROUP;
            for (size_t first = 0; first < GROUP; first += 2 * half, r += GROUP, r1 += GROUP)
                for (size_t l = first; l < first + half; l++)
                    for (size_t g = 0; g < GROUP; g++)
                        inverse_pair(u + GROUP * l + g, u + GROUP * (l + half) + g, r[g], r1[g], q);
        }
        transpose(u, x + block);
    }
    m /= 2;
    for (size_t apart = GROUP; m; m /= 2, apart *= 2)
        for (size_t i = 0; i < m; i++) {
            uint32_t *restrict low = x + 2 * i * apart, *restrict up = low + apart;
            const uint32_t r = w[m + i], r1 = w1[m + i];
            for (size_t j = 0; j < apart; j++) inverse_pair(low + j, up + j, r, r1, q);
        }
    const uint32_t scale1 = companion(scale, q);
    for (size_t j = 0; j < n; j++) x[j] = once(times(x[j], scale, scale1, q), q);
}

INLINE void forward_of(const scheme *s, size_t k, uint32_t *x) {
    forward(x, s->n, constant(s, MODULUS, k), table(s, k, 0), table(s, k, 1));
}

INLINE void inverse_of(const scheme *s, size_t k, uint32_t *x, uint32_t scale) {
    inverse(x, s->n, constant(s, MODULUS, k), table(s, k, 2), table(s, k, 3), scale);
}

/* ---- sampling ---- */

/* Numbers uniform modulo q: as many bits as q has, again if they are not below q. */
INLINE void uniform(const uint8_t *seed, uint32_t number, uint32_t q, size_t count, uint32_t *out) {
    stream from;
    uint32_t mask = q;
    for (int by = 1; by < 32; by *= 2) mask |= mask >> by;
    opened(&from, seed, number);
    for (size_t have = 0; have < count;) {
        refill(&from);
        for (size_t i = 0; i < DRAWN && have < count; i++) {
            out[have] = from.words[i] & mask;
            have += out[have] < q;
        }
    }
}
