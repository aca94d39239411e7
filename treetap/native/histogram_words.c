/* The key holder of encrypted histograms (histograms.h): public polynomials, secrets, words of records, and opening. */
#include <math.h>

#include "histograms.h"

#define PRODUCTS (LANES / LIMBS) /* of a secret and four limbs of a, that lie side by side */

/* Roots of unity (8192, 2), the k-th e^(2*pi*i*k/8192), in the order of use; for no address, the bytes that they take. */
TARGET size_t FN(treetap_histograms_roots)(const double (*circle)[2], roots *out) {
    if (!out) return sizeof *out;
    size_t angle[64], next[256];
#define BUTTERFLY(to, e) (memcpy(to, circle[2 * (e) % 8192], 16), memcpy((to) + 2, circle[(e) % 8192], 16))
    BUTTERFLY(out->top[0], 512);
    for (size_t half = 0; half < 2; half++) BUTTERFLY(out->top[1 + half], 256 + 1024 * half);
    for (size_t t = 0; t < TILES; t++) {
        static const size_t quarters[4] = {0, 1024, 512, 1536};
        size_t at = 0;
        angle[0] = 64 + 256 * (t / 4) + quarters[t % 4];
        for (size_t k = 0; k < POWERS; k++) memcpy(out->power[t][k], circle[4 * k * angle[0] % 8192], 16);
        for (size_t blocks = 1; blocks <= 64; blocks *= 4) {
            for (size_t block = 0; block < blocks; block++) {
                BUTTERFLY(out->tile[t][at], angle[block]);
                at++;
                for (size_t k = 0; k < 4; k++) next[4 * block + k] = angle[block] / 4 + quarters[k];
            }
            if (blocks < 64) memcpy(angle, next, 4 * blocks * sizeof *angle);
        }
    }
    return sizeof *out;
}

/* ---- public polynomials and secrets ---- */

/* Limbs of a (count, DEGREE, LIMBS), uniform in [-2^25, 2^25). */
TARGET int FN(treetap_histograms_limbs)(const uint8_t *seed, uint32_t first, size_t count, int32_t *out) {
    stream from;
    for (size_t block = 0; block < count; block++) {
        drawn(&from, seed, first + (uint32_t)block, 0, PUBLIC);
        for (size_t at = 0; at < DEGREE * LIMBS; at += DRAWN, out += DRAWN) {
            refill(&from);
            for (size_t i = 0; i < DRAWN; i++) out[i] = (int32_t)(from.words[i] & LIMB_MASK) - (1 << (LIMB_BITS - 1));
        }
    }
    return 0;
}

/* Their transforms (count, HALF, real parts of four limbs and imaginary parts). */
TARGET int FN(treetap_histograms_public)(const roots *w, const int32_t *limbs, size_t count, double *out) {
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    reals *z = memory(2 * HALF * sizeof *z);
    if (!z) return NO_MEMORY;
    for (size_t block = 0; block < count; block += PRODUCTS) {
        for (size_t lane = 0; lane < LANES; lane++) {
            const size_t of = block + lane / LIMBS < count ? block + lane / LIMBS : block;
            const int32_t *from = limbs + of * DEGREE * LIMBS + lane % LIMBS;
            for (size_t p = 0; p < DEGREE; p++) ((double *)&z[2 * (p % HALF) + p / HALF])[lane] = from[LIMBS * p];
        }
        forward(z, w);
        for (size_t k = 0; k < PRODUCTS && block + k < count; k++)
            for (size_t at = 0; at < 2 * HALF; at++)
                memcpy(out + ((block + k) * 2 * HALF + at) * LIMBS, (const double *)&z[at] + LIMBS * k, 8 * LIMBS);
    }
    free(z);
    return 0;
}

/* A query's secrets (words, DEGREE), and their transforms (words, HALF, real and imaginary part). */
TARGET int FN(treetap_histograms_secrets)(
    const roots *w, const uint8_t *seed, size_t words, uint32_t most, int8_t *out, double *values) {
    stream from;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    reals *z = memory(2 * HALF * sizeof *z);
    if (!z) return NO_MEMORY;
    for (size_t j = 0; j < words; j++) light(drawn(&from, seed, 0, (uint32_t)j, SECRET), most, out + j * DEGREE);
    for (size_t j = 0; j < words; j += LANES) {
        const size_t some = words - j < LANES ? words - j : LANES;
        small_forward(w, out + j * DEGREE, some, z);
        for (size_t lane = 0; lane < some; lane++)
            for (size_t at = 0; at < 2 * HALF; at++) values[(j + lane) * VALUES + at] = z[at][lane];
    }
    wiped(z, 2 * HALF * sizeof *z), wiped(&from, sizeof from);
    free(z);
    return 0;
}

/* ---- encryption ---- */

/* The first lanes of x's four and y's four numbers; of one number each. */
INLINE reals side_by_side(const double *x, const double *y) {
#if LANES == 4
    reals r;
    (void)y;
    memcpy(&r, x, sizeof r);
    return r;
#elif defined(EMULATED)
    return (reals){x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3]};
#else
    return (reals)_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd(x)), _mm256_loadu_pd(y), 1);
#endif
}
INLINE reals one_by_one(double x, double y) {
#if LANES == 4
    (void)y;
    return REAL(x);
#elif defined(EMULATED)
    return (reals){x, x, x, x, y, y, y, y};
#else
    return (reals)_mm512_insertf64x4(_mm512_set1_pd(x), _mm256_set1_pd(y), 1);
#endif
}

/* What residues modulo t and (q/t)*m need of t, in integers that no division's time depends on. */
typedef struct {
    uint64_t t, over;    /* floor((2^64 - 1)/t) */
    uint64_t top;        /* 2^(bits of a value) modulo t: what two's complement is too much for negative ones */
    size_t by;           /* (q/t)*m is m*step/2^by, its error below 2^-20 */
    wide step;
} modulus;

INLINE uint64_t modulo(uint64_t x, const modulus *m) {
    x -= (uint64_t)((wide)x * m->over >> 64) * m->t; /* the quotient is at most one too small */
    return x - (m->t & -(uint64_t)(x >= m->t));
}

INLINE modulus modulus_of(size_t bits, uint32_t less, size_t value_words) {
    modulus m = {.t = (1ull << bits) - less, .by = bits + 20};
    const wide q = (wide)1 << (LIMBS * LIMB_BITS);
    m.over = ~0ull / m.t;
    m.step = (q / m.t << m.by) + (q % m.t << m.by) / m.t;
    m.top = 1 % m.t;
    for (size_t half = 0; half < 4 * value_words; half++) m.top = modulo(m.top << 16, &m);
    return m;
}

#define SPLIT 21 /* residues below 2^42 are two numbers of 21 bits */

/* Residues of values, two's complement of `value_words` rows that are `stride` apart, lowest words first. */
INLINE void residues(
    const modulus *m, const uint64_t *values, size_t value_words, size_t stride, size_t count, uint64_t *out, uint64_t *up) {
    uint64_t power = 1 % m->t;
    memset(out, 0, count * sizeof *out);
    memset(up, 0, count * sizeof *up);
    for (size_t row = 0; row < value_words; row++, values += stride)
        for (int part = 0; part < 64; part += 32) {
            /* at most 2 * MOST_VALUE_WORDS = 128 products of 32 and 21 bits are added: below 2^60 */
            const uint32_t low = (uint32_t)(power & ((1u << SPLIT) - 1)), high = (uint32_t)(power >> SPLIT);
            for (size_t p = 0; p < count; p++) {
                const uint64_t x = values[p] >> part & 0xffffffff;
                out[p] += x * low;
                up[p] += x * high;
            }
            power = modulo(modulo(power << 16, m) << 16, m);
        }
    values -= stride;
    for (size_t p = 0; p < count; p++) {
        const uint64_t x = modulo(out[p] + (modulo(up[p], m) << SPLIT), m);
        const uint64_t less = m->top & -(values[p] >> 63);
        out[p] = x - less + (m->t & -(uint64_t)(x < less));
    }
}

/* Low and high halves of -(a*s_j) + e + (q/t_j)*m at 13 bytes each, `apart` bytes from one to the next. */
INLINE void write_words(
    const modulus *m, const uint64_t *low, const uint64_t *high, const int32_t *error, const uint32_t *dither,
    const uint64_t *values, size_t count, size_t apart, uint8_t *out) {
    const uint64_t step_low = (uint64_t)m->step, step_high = (uint64_t)(m->step >> 64);
    for (size_t p = 0; p < count; p++, out += apart) {
        wide x = -((wide)low[p] + ((wide)high[p] << HALF_BITS)) + (wide)(__int128)error[p];
        if (values) { /* rounded at random: the mean of the error is 0 to 2^-22 and the step's 2^-20 */
            const wide rest = (wide)values[p] * step_low + ((uint64_t)dither[p] << (m->by - 22));
            x += ((wide)values[p] * step_high << (64 - m->by)) + (rest >> m->by);
        }
        const uint64_t first = (uint64_t)x, last = (uint64_t)(x >> 40);
        memcpy(out, &first, 8);
        memcpy(out + WORD_BYTES - 8, &last, 8);
    }
}

/* Low and high halves (PRODUCTS, 2, DEGREE) of products whose limbs lie side by side. */
INLINE void products_of_limbs(const reals *z, uint64_t *out, guard *seen) {
    for (size_t part = 0; part < 2; part++)
        for (size_t j = 0; j < HALF; j += LANES) {
            vector x[LANES];
            UNROLL for (int k = 0; k < LANES; k++) x[k] = whole(z[2 * (j + (size_t)k) + part], seen);
            transpose(x);
            for (size_t k = 0; k < PRODUCTS; k++) {
                vector low, high, *to = (vector *)(out + k * 2 * DEGREE + part * HALF + j);
                joined(x[4 * k], x[4 * k + 1], x[4 * k + 2], x[4 * k + 3], &low, &high);
                to[0] = low, to[DEGREE / LANES] = high;
            }
        }
}

/* Words (count, words, WORD_BYTES) of records; `public` has the blocks from number `first` on, values may be NULL for zeros.
 * The secrets' transforms are (words, HALF, 2). */
TARGET int FN(treetap_histograms_encrypt)(
    const roots *w, const double *public, uint32_t first, const double *secrets, size_t words, const uint8_t *seed,
    size_t bits, const uint32_t *less, const uint64_t *values, size_t value_words, size_t stride, size_t count,
    uint8_t *out, double *farthest) {
    const size_t blocks = (count + DEGREE - 1) / DEGREE, all = blocks * words;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    const size_t bytes = 2 * HALF * sizeof(reals), halves = PRODUCTS * 2 * DEGREE * 8, numbers = DEGREE * 8;
    reals *z = memory(bytes);
    uint64_t *products = memory(halves), *m = memory(numbers), *up = memory(numbers);
    int32_t *error = memory(DEGREE * 4);
    uint32_t *dither = memory(DEGREE * 4);
    stream from;
    guard seen = {0};
    const int lacks = !z || !products || !m || !up || !error || !dither;
    for (size_t item = 0; item < all && !lacks; item += PRODUCTS) { /* of block item/words and word item%words */
        const size_t last = item + PRODUCTS - 1 < all ? item + PRODUCTS - 1 : item;
        const double *a = public + item / words * VALUES * LIMBS, *b = public + last / words * VALUES * LIMBS;
        const double *s = secrets + item % words * VALUES, *t = secrets + last % words * VALUES;
        for (size_t f = 0; f < HALF; f++, a += 2 * LIMBS, b += 2 * LIMBS) {
            const reals ar = side_by_side(a, b), ai = side_by_side(a + LIMBS, b + LIMBS);
            const reals sr = one_by_one(s[2 * f], t[2 * f]), si = one_by_one(s[2 * f + 1], t[2 * f + 1]);
            z[2 * f] = sr * ar - si * ai;
            z[2 * f + 1] = sr * ai + si * ar;
        }
        backward(z, w);
        products_of_limbs(z, products, &seen);
        for (size_t k = item; k <= last; k++) {
            const size_t block = k / words, j = k % words, at = block * DEGREE;
            const size_t some = count - at < DEGREE ? count - at : DEGREE;
            const modulus t_j = modulus_of(bits, less[j], value_words);
            const uint64_t *product = products + (k - item) * 2 * DEGREE;
            errors(drawn(&from, seed, first + (uint32_t)block, (uint32_t)j, ERROR), DEGREE, error, dither);
            if (values) residues(&t_j, values + at, value_words, stride, some, m, up);
            write_words(
                &t_j, product, product + DEGREE, error, dither, values ? m : NULL, some, words * WORD_BYTES,
                out + (at * words + j) * WORD_BYTES);
        }
    }
    wiped(z, bytes), wiped(products, halves), wiped(m, numbers), wiped(up, numbers), wiped(&from, sizeof from);
    wiped(error, DEGREE * 4), wiped(dither, DEGREE * 4);
    free(z), free(products), free(m), free(up), free(error), free(dither);
    *farthest = farthest_of(&seen);
    return lacks ? NO_MEMORY : 0;
}

/* ---- opening ---- */

/* Residues (count, words) of candidates' sums from first halves (count, words) and second halves (count, DEGREE), of `bits`
 * bits each, under secrets (words, DEGREE); `noise` is the largest error, as a part of the largest that would open. */
TARGET int FN(treetap_histograms_open)(
    const uint64_t *second, const uint64_t *firsts, size_t count, const int8_t *secrets, size_t words, size_t bits,
    size_t word_bits, const uint32_t *less, uint64_t *out, double *noise) {
    const size_t bytes = words * DEGREE * sizeof(int16_t), digits = (bits + DIGIT_BITS - 1) / DIGIT_BITS;
    int16_t *s = memory(bytes), *x = memory(OF_HALF * DEGREE * sizeof *x);
    double worst = 0;
    if (s && x) {
        for (size_t j = 0; j < words; j++)
            for (size_t i = 0; i < DEGREE; i++) s[j * DEGREE + i] = secrets[j * DEGREE + DEGREE - 1 - i];
        for (size_t c = 0; c < count; c++, second += DEGREE) {
            for (size_t k = 0; k < digits; k++)
                for (size_t i = 0; i < DEGREE; i++)
                    x[k * DEGREE + i] = (int16_t)(second[i] >> DIGIT_BITS * k & DIGIT_MASK);
            for (size_t j = 0; j < words; j++) {
                const modulus t_j = modulus_of(word_bits, less[j], 1);
                uint64_t y = firsts[c * words + j];
                for (size_t k = 0; k < digits; k++) y += (uint64_t)(int64_t)dot(x + k * DEGREE, s + j * DEGREE) << (DIGIT_BITS * k);
                const wide product = (wide)(y & ((1ull << bits) - 1)) * t_j.t;
                const wide nearest = (product + ((wide)1 << (bits - 1))) >> bits;
                const double off = ldexp(fabs((double)(__int128)(product - (nearest << bits))), 1 - (int)bits);
                worst = off > worst ? off : worst;
                out[c * words + j] = modulo((uint64_t)nearest, &t_j);
            }
        }
    }
    const int lacks = !s || !x;
    wiped(s, bytes), wiped(x, OF_HALF * DEGREE * sizeof *x);
    free(s), free(x);
    *noise = worst;
    return lacks ? NO_MEMORY : 0;
}
