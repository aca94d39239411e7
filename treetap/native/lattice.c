/* The lattice scheme, BFV: encoding, encryption, masks, flooding and decryption, on the polynomials of polynomials.h.
 *
 * Fan and Vercauteren, "Somewhat Practical Fully Homomorphic Encryption", 2012. treetap/lattice/parameters.py has the sizes
 * and what they hide.
 */
#include "polynomials.h"

/* ---- encoding ---- */

INLINE uint32_t residue(int32_t x, uint32_t q) { return (uint32_t)x + (q & (uint32_t)(x >> 31)); }

/* factor/n times the polynomial whose slots are given, its coefficients between -t/2 and t/2. */
INLINE void coefficients(const scheme *s, uint32_t *slots, uint32_t factor, int32_t *out) {
    const uint32_t t = constant(s, MODULUS, s->primes);
    inverse_of(s, s->primes, slots, factor);
    for (size_t j = 0; j < s->n; j++) out[j] = (int32_t)slots[j] - (int32_t)(slots[j] > t / 2 ? t : 0);
}

/* Integers between -t/2 and t/2, zeros behind them, as slots. */
INLINE void slots_of(const scheme *s, const int64_t *values, size_t count, uint32_t *slots) {
    const uint32_t t = constant(s, MODULUS, s->primes);
    for (size_t j = 0; j < count; j++) slots[j] = residue((int32_t)values[j], t);
    memset(slots + count, 0, (s->n - count) * sizeof *slots);
}

/* (q/t)*m rounded is (q*m - r)/t with r = q*m modulo t, hence -r/t modulo each prime; `noise` is added if not NULL. */
INLINE void message(const scheme *s, const int64_t *values, size_t count, const int32_t *noise, uint32_t *out) {
    uint32_t slots[LARGEST];
    int32_t r[LARGEST];
    slots_of(s, values, count, slots);
    coefficients(s, slots, constant(s, MESSAGE, s->primes), r);
    for (size_t k = 0; k < s->primes; k++, out += s->n) {
        const uint32_t q = constant(s, MODULUS, k), w = constant(s, MESSAGE, k), w1 = companion(w, q);
        for (size_t j = 0; j < s->n; j++)
            out[j] = times(residue(r[j], q), w, w1, q) + (noise ? residue(noise[j], q) : 0);
        forward_of(s, k, out);
    }
}

/* ---- operations: names end with _body, and are made into two functions each below ---- */

INLINE void words_body(const uint8_t *seed, uint32_t number, size_t blocks, uint32_t *out) {
    stream from;
    opened(&from, seed, number);
    for (size_t b = 0; b < blocks; b += GROUP, out += 16 * GROUP, from.state[12] += GROUP) blocks_of(from.state, out);
}

INLINE void transform_body(const scheme *s, size_t k, int back, uint32_t *x) {
    if (back)
        inverse_of(s, k, x, constant(s, ONE_NTH, k));
    else
        forward_of(s, k, x);
}

INLINE void uniform_body(const scheme *s, const uint8_t *seed, uint32_t *out) {
    for (size_t k = 0; k < s->primes; k++, out += s->n) uniform(seed, (uint32_t)k, constant(s, MODULUS, k), s->n, out);
}

INLINE void blinds_body(const scheme *s, const uint8_t *seed, size_t count, uint32_t *out) {
    uniform(seed, 0, constant(s, MODULUS, s->primes), count, out);
}

/* out += x modulo each prime. */
INLINE void add_body(const scheme *s, uint32_t *restrict out, const uint32_t *restrict x) {
    for (size_t k = 0; k < s->primes; k++, out += s->n, x += s->n) {
        const uint32_t q = constant(s, MODULUS, k);
        for (size_t j = 0; j < s->n; j++) out[j] = once(out[j] + x[j], q);
    }
}

/* out += x*y; y is in Montgomery form. */
INLINE void multiply_add_body(
    const scheme *s, uint32_t *restrict out, const uint32_t *restrict x, const uint32_t *restrict y) {
    for (size_t k = 0; k < s->primes; k++, out += s->n, x += s->n, y += s->n) {
        const uint32_t q = constant(s, MODULUS, k), inverse = constant(s, MONTGOMERY, k);
        for (size_t j = 0; j < s->n; j++) out[j] = once(out[j] + once(product(x[j], y[j], q, inverse), q), q);
    }
}

/* A secret key in Montgomery form. */
INLINE void secret_body(const scheme *s, const uint8_t *seed, uint32_t *out) {
    int32_t u[LARGEST];
    stream from;
    ternary(opened(&from, seed, 0), s->n, u);
    for (size_t k = 0; k < s->primes; k++, out += s->n) {
        const uint32_t q = constant(s, MODULUS, k), w = constant(s, R_MOD, k), w1 = companion(w, q);
        for (size_t j = 0; j < s->n; j++) out[j] = times(residue(u[j], q), w, w1, q);
        forward_of(s, k, out);
    }
}

/* The first half of an encryption under the secret key, of which `second` is the second: `uniform` of a public seed. */
INLINE void encrypt_body(
    const scheme *s, const uint32_t *secret, const int64_t *values, size_t count, const uint8_t *seed,
    const uint32_t *second, uint32_t *out) {
    int32_t noise[LARGEST];
    stream from;
    errors(opened(&from, seed, 0), s->n, noise, NULL);
    message(s, values, count, noise, out);
    for (size_t k = 0; k < s->primes; k++, out += s->n, second += s->n, secret += s->n) {
        const uint32_t q = constant(s, MODULUS, k), inverse = constant(s, MONTGOMERY, k);
        for (size_t j = 0; j < s->n; j++)
            out[j] = once(out[j] + q - once(product(second[j], secret[j], q, inverse), q), q);
    }
}

/* A mask as a polynomial in Montgomery form. */
INLINE void mask_body(const scheme *s, const uint8_t *mask, size_t count, uint32_t *out) {
    uint32_t slots[LARGEST];
    int32_t p[LARGEST];
    for (size_t j = 0; j < count; j++) slots[j] = mask[j] != 0;
    memset(slots + count, 0, (s->n - count) * sizeof *slots);
    coefficients(s, slots, constant(s, ONE_NTH, s->primes), p);
    for (size_t k = 0; k < s->primes; k++, out += s->n) {
        const uint32_t q = constant(s, MODULUS, k), w = constant(s, R_MOD, k), w1 = companion(w, q);
        for (size_t j = 0; j < s->n; j++) out[j] = times(residue(p[j], q), w, w1, q);
        forward_of(s, k, out);
    }
}

/* An encryption of zero under a public key in Montgomery form, (2, primes, n) as the result: (b*u + e, a*u + e'). */
INLINE void zero_body(const scheme *s, const uint32_t *key, const uint8_t *seed, uint32_t *out) {
    int32_t u[LARGEST], noise[2][LARGEST];
    uint32_t factor[LARGEST];
    const size_t half = s->primes * s->n;
    stream from;
    ternary(opened(&from, seed, 0), s->n, u);
    errors(opened(&from, seed, 1), s->n, noise[0], NULL);
    errors(opened(&from, seed, 2), s->n, noise[1], NULL);
    for (size_t k = 0; k < s->primes; k++) {
        const uint32_t q = constant(s, MODULUS, k), inverse = constant(s, MONTGOMERY, k);
        for (size_t j = 0; j < s->n; j++) factor[j] = residue(u[j], q);
        forward_of(s, k, factor);
        for (size_t part = 0; part < 2; part++) {
            uint32_t *restrict to = out + part * half + k * s->n;
            const uint32_t *restrict base = key + part * half + k * s->n;
            for (size_t j = 0; j < s->n; j++) to[j] = residue(noise[part][j], q);
            forward_of(s, k, to);
            for (size_t j = 0; j < s->n; j++) to[j] = once(to[j] + once(product(factor[j], base[j], q, inverse), q), q);
        }
    }
}

/* floor(2^64 / q) of an odd q. */
INLINE uint64_t reciprocal(uint32_t q) { return ~0ull / q; }

/* floor(x / q) for x below 2^62, without a division, whose time would depend on x (Barrett 1986). */
INLINE uint64_t quotient(uint64_t x, uint32_t q, uint64_t reciprocal_of_q) {
    const uint64_t least = (uint64_t)((unsigned __int128)x * reciprocal_of_q >> 64); /* at most one too small */
    return least + (x - least * q >= q);
}

/* A polynomial with coefficients uniform in [-A, A]; `width` is 2A + 1 and `bound` A, of `limbs` words, lowest first. */
INLINE void flood_body(
    const scheme *s, const uint8_t *seed, size_t limbs, const uint32_t *width, const uint32_t *bound, uint32_t *out) {
    stream from;
    uint32_t top = width[limbs - 1], drawn[MOST_PRIMES], least[MOST_PRIMES];
    uint64_t over[MOST_PRIMES];
    for (int by = 1; by < 32; by *= 2) top |= top >> by;
    for (size_t k = 0; k < s->primes; k++) {
        uint64_t r = 0;
        for (size_t i = limbs; i--;) r = (r << 32 | bound[i]) % constant(s, MODULUS, k);
        least[k] = (uint32_t)r;
        over[k] = reciprocal(constant(s, MODULUS, k));
    }
    opened(&from, seed, 0);
    for (size_t j = 0; j < s->n;) {
        if (from.used + limbs > DRAWN) refill(&from);
        memcpy(drawn, from.words + from.used, limbs * sizeof *drawn);
        from.used += limbs;
        drawn[limbs - 1] &= top;
        uint64_t borrow = 0; /* of drawn - width: 1 if it is below */
        for (size_t i = 0; i < limbs; i++) borrow = ((uint64_t)drawn[i] - width[i] - borrow) >> 63;
        if (!borrow) continue;
        for (size_t k = 0; k < s->primes; k++) {
            const uint32_t q = constant(s, MODULUS, k);
            uint64_t r = 0;
            for (size_t i = limbs; i--;) {
                const uint64_t x = r << 32 | drawn[i];
                r = x - quotient(x, q, over[k]) * q;
            }
            out[k * s->n + j] = once((uint32_t)r + q - least[k], q);
        }
        j++;
    }
    for (size_t k = 0; k < s->primes; k++) forward_of(s, k, out + k * s->n);
}

/* (q/t)*m of slots: to be added to the first half of a ciphertext. */
INLINE void plain_body(const scheme *s, const int64_t *values, size_t count, uint32_t *out) {
    message(s, values, count, NULL, out);
}

/* The slots of a ciphertext's plaintext. Returns 1 if the noise leaves less than one bit of budget in a coefficient.
 *
 * With x = c0 + c1*s = (q/t)*m + e and y_k = x/(q/q_k) modulo q_k: t*x/q = sum of t*y_k/q_k modulo t, which is m and
 * t*e/q; a budget of one bit is |t*e/q| <= 1/4. Sums of up to fourteen fractions of 53 bits are off by 2^-48 at most. */
INLINE int decrypt_body(const scheme *s, const uint32_t *secret, const uint32_t *ciphertext, uint32_t *slots) {
    static const double most = 0.25 + 1.0 / (1ull << 40);
    const uint32_t t = constant(s, MODULUS, s->primes);
    const uint64_t over_t = reciprocal(t);
    const size_t half = s->primes * s->n;
    uint64_t whole[LARGEST];
    double part[LARGEST];
    uint32_t y[LARGEST];
    int noisy = 0;
    memset(whole, 0, sizeof whole);
    memset(part, 0, sizeof part);
    for (size_t k = 0; k < s->primes; k++) {
        const uint32_t q = constant(s, MODULUS, k), inverse = constant(s, MONTGOMERY, k);
        const uint32_t *first = ciphertext + k * s->n, *second = first + half, *key = secret + k * s->n;
        for (size_t j = 0; j < s->n; j++) y[j] = first[j] + once(product(second[j], key[j], q, inverse), q);
        inverse_of(s, k, y, constant(s, OPENING, k));
        const uint64_t over_q = reciprocal(q);
        for (size_t j = 0; j < s->n; j++) {
            const uint64_t scaled = (uint64_t)t * y[j], times = quotient(scaled, q, over_q);
            whole[j] += times;
            part[j] += (double)(uint32_t)(scaled - times * q) / q;
        }
    }
    for (size_t j = 0; j < s->n; j++) {
        const uint64_t nearest = (uint64_t)(part[j] + 0.5);
        const double off = part[j] - (double)nearest;
        const uint64_t rounded = whole[j] + nearest;
        noisy |= (off > most) | (off < -most);
        slots[j] = (uint32_t)(rounded - quotient(rounded, t, over_t) * t);
    }
    forward_of(s, s->primes, slots);
    return noisy;
}

/* ---- two functions of each, and the choice between them ---- */

#if defined(__x86_64__)
#define FOR_AVX2 __attribute__((target("avx2")))
#else
#define FOR_AVX2
#endif

static int vectors = -1;

/* Whether AVX2 is used: asked of the processor the first time, or set to 0 or to 1 where it has it. */
int treetap_lattice_avx2(int wanted) {
    if (wanted >= 0 || vectors < 0) vectors = wanted && treetap_has_avx2();
    return vectors;
}

#define EITHER(result, name, parameters, arguments)                                       \
    static result name##_portable parameters { return name##_body arguments; }            \
    FOR_AVX2 static result name##_avx2 parameters { return name##_body arguments; }       \
    result treetap_lattice_##name parameters {                                            \
        return treetap_lattice_avx2(-1) ? name##_avx2 arguments : name##_portable arguments; \
    }

EITHER(void, words, (const uint8_t *seed, uint32_t number, size_t blocks, uint32_t *out), (seed, number, blocks, out))
EITHER(void, transform, (const scheme *s, size_t k, int back, uint32_t *x), (s, k, back, x))
EITHER(void, uniform, (const scheme *s, const uint8_t *seed, uint32_t *out), (s, seed, out))
EITHER(void, blinds, (const scheme *s, const uint8_t *seed, size_t count, uint32_t *out), (s, seed, count, out))
EITHER(void, add, (const scheme *s, uint32_t *out, const uint32_t *x), (s, out, x))
EITHER(void, multiply_add, (const scheme *s, uint32_t *out, const uint32_t *x, const uint32_t *y), (s, out, x, y))
EITHER(void, secret, (const scheme *s, const uint8_t *seed, uint32_t *out), (s, seed, out))
EITHER(
    void, encrypt,
    (const scheme *s, const uint32_t *secret, const int64_t *values, size_t count, const uint8_t *seed,
     const uint32_t *second, uint32_t *out),
    (s, secret, values, count, seed, second, out))
EITHER(void, mask, (const scheme *s, const uint8_t *mask, size_t count, uint32_t *out), (s, mask, count, out))
EITHER(void, zero, (const scheme *s, const uint32_t *key, const uint8_t *seed, uint32_t *out), (s, key, seed, out))
EITHER(
    void, flood,
    (const scheme *s, const uint8_t *seed, size_t limbs, const uint32_t *width, const uint32_t *bound, uint32_t *out),
    (s, seed, limbs, width, bound, out))
EITHER(void, plain, (const scheme *s, const int64_t *values, size_t count, uint32_t *out), (s, values, count, out))
EITHER(
    int, decrypt, (const scheme *s, const uint32_t *secret, const uint32_t *ciphertext, uint32_t *slots),
    (s, secret, ciphertext, slots))

/* ---- tables ---- */

static uint32_t power(uint32_t base, uint64_t exponent, uint32_t q) {
    uint64_t result = 1, square = base;
    for (; exponent; exponent >>= 1, square = square * square % q)
        if (exponent & 1) result = result * square % q;
    return (uint32_t)result;
}

static size_t reversed(size_t x, size_t below) {
    size_t found = 0;
    for (; below > 1; below /= 2, x /= 2) found = 2 * found + x % 2;
    return found;
}

/* The place of the k-th constant: see the head of polynomials.h. */
static size_t place(size_t k, size_t n) {
    const size_t last = n / GROUP;
    if (k < last) return k;
    /* of the last three levels a block has 8 lanes of one, two and four constants */
    size_t each = 1;
    while (k >= 2 * last * each) each *= 2;
    const size_t group = (k - last * each) / each, which = (k - last * each) % each;
    return last + group / GROUP * (GROUP - 1) * GROUP + (each - 1 + which) * GROUP + group % GROUP;
}

/* The four tables (4, n) of a prime and a primitive 2n-th root. */
void treetap_lattice_tables(size_t n, uint32_t q, uint32_t root, uint32_t *out) {
    const uint32_t bases[2] = {root, power(root, q - 2, q)};
    for (size_t back = 0; back < 2; back++, out += 2 * n) {
        uint64_t w = 1;
        for (size_t k = 0; k < n; k++, w = w * bases[back] % q) {
            const size_t at = place(reversed(k, n), n);
            out[at] = (uint32_t)w;
            out[n + at] = companion((uint32_t)w, q);
        }
    }
}
