/* Products in Z[X]/(X^4096 + 1) modulo 2^104 by a complex transform of doubles modulo X^2048 - i, LANES of them side by side.
 *
 * A real polynomial of 4,096 coefficients is folded, z_j = a_j + i*a_(j+2048), as X^2048 is i; a vector has z_j's real parts
 * of LANES polynomials, the next one their imaginary parts. Numbers modulo 2^104 are four limbs of 26 bits, -2^25 to 2^25 - 1,
 * each transformed by itself: products of limbs and small polynomials are whole numbers, rounded to after the inverse
 * transform. Levels: radix 2 at X^2048 - i, radix 4 at its two halves, then eight tiles of 256 in four levels of radix 4,
 * each of butterflies (x, y) -> (x + w*y, x - w*y), backwards (x, y) -> (x + y, (x - y)/w).
 *
 * How far a sum of products is from a whole number. Let u = 2^-53, I_b the indicator of a set in block b (0 and 1 at up to
 * 4,096 places), a_b a limb, |I_b| <= 2^6 and |a_b| <= 2^25 * 2^6 in the 2-norm, and everything to first order in u.
 *
 *  roots      both parts are rounded to nearest, from integers of 128 bits: off by at most u/sqrt(2) = 0.71u.
 *  forward    per level, relative to the 2-norm, which a level multiplies by sqrt(2) =: g exactly, for (x, y) of norm 1.
 *             Fused: x + wr*y is rounded (<= u*g), then P = x + w*y (<= u|P|), then Q = 2x - P (<= u|Q|); errors of P are in
 *             Q too. With |P|^2 + |Q|^2 = 2: g*u*g + max(g|P| + |Q|)*u = (2 + sqrt(6))u, divided by g: 3.15u.
 *             Plain: t = w*y is off by sqrt(5)u|y| (Brent, Percival and Zimmermann, Math. Comp. 76 (2007)), then P, Q are
 *             rounded: (sqrt(5) + 1)u = 3.24u. With the roots k = 3.95u in each form; eleven levels 11k = 43.5u.
 *  indicators Three levels are sums of m <= 16 powers of a tile's root, added one by one: off by (0.71m + m(m + 1)/2 - 1)u in
 *             each of eight tiles, of values whose 2-norm is sqrt(8m): at most 37u of it, for m = 16. Then eight levels:
 *             37u + 8k = 68.6u.
 *  products   Sum over frequencies of |I^ - error||a^ - error|, divided by 2048: by Cauchy and Schwarz a block's is within
 *             (68.6 + 43.5)u * |I_b||a_b| <= 112.1u * 2^37. A product that is not fused adds sqrt(5)u * 2^37: 114.4u * 2^37.
 *  additions  of block b to the sum of b - 1 others, in two roundings of at most b terms: 2b*u * 2^37.
 *  backward   errors of a level are at most k of each value, as |(x - y)/w| is the value itself: subtraction u, product 2u
 *             fused and sqrt(5)u plain, root 0.71u. A coefficient of the result is the sum, with weights of modulus 1/2048,
 *             of 2^(11-j) values of level j, and these of all frequencies: 11k * |I_b||a_b| = 43.5u * 2^37 a block.
 *
 * One full block: (114.4 + 2 + 43.5)u * 2^37 = 160 * 2^-16 = 0.0025. Sixty-four full blocks before rounding (MOST_BLOCKS):
 * (64 * 157.9 + 64 * 65)u * 2^37 = 0.218, less than the 1/4 at which a call is refused; seen are 10^-5 with random limbs.
 * A product with a ternary polynomial, of 2-norm 2^6 at most, has three full transforms: (3 * 43.5 + 5)u * 2^37 = 0.0021. Scaling by
 * 1/2048 is exact; whole numbers are below 64 * 2^12 * 2^25 = 2^43, so that adding 1.5 * 2^52 rounds to the nearest.
 * Numbers too small for a double's exponent do not matter (DAZ, FTZ); the rounding mode does.
 */
#pragma once
#include "lanes.h"

#define DEGREE 4096
#define HALF 2048
#define TILES 8
#define TILE 256
#define POWERS (DEGREE / TILE)
#define LIMBS 4
#define LIMB_BITS 26
#define MOST_BLOCKS 64

/* Roots in the order of use, each (w1, w2) of a butterfly of radix 4: w1 of the first level, w2 and i*w2 of the second. */
typedef struct {
    double top[3][4];
    double tile[TILES][85][4];        /* 1, 4, 16 and 64 blocks */
    double power[TILES][POWERS][2];   /* of a tile's root: the values of X^0, X^256, ... */
} roots;

/* Transforms take a vector in parts, of as many doubles as a register has: the plain form has two, which gcc keeps in memory
 * otherwise. PLUS is a*b + c, rounded once but in the plain form. */
#if defined(PLAIN)
typedef double part __attribute__((vector_size(16), may_alias));
#define PARTS 2
#define FUSED 0
#define PART(x) ((part){(x), (x)})
#define PLUS(a, b, c) ((a) * (b) + (c))
#else
typedef reals part;
#define PARTS 1
#define FUSED 1
#define PART(x) REAL(x)
#define PLUS(a, b, c) FMA(a, b, c)
#endif

/* x, y = x + w*y, x - w*y; n is -w's imaginary part. */
#define FORWARD(x, y, wr, wi, n)                                                 \
    do {                                                                         \
        if (FUSED) {                                                             \
            const part pr = PLUS(n, y##i, PLUS(wr, y##r, x##r));                \
            const part pi = PLUS(wi, y##r, PLUS(wr, y##i, x##i));               \
            y##r = PLUS(PART(2.0), x##r, -pr), y##i = PLUS(PART(2.0), x##i, -pi); \
            x##r = pr, x##i = pi;                                                \
        } else {                                                                 \
            const part tr = wr * y##r + n * y##i, ti = wr * y##i + wi * y##r;   \
            y##r = x##r - tr, y##i = x##i - ti;                                  \
            x##r += tr, x##i += ti;                                              \
        }                                                                        \
    } while (0)
/* x, y = x + y, (x - y)/w. */
#define BACKWARD(x, y, wr, wi, n)                            \
    do {                                                     \
        const part lr = x##r - y##r, li = x##i - y##i;      \
        x##r += y##r, x##i += y##i;                          \
        y##r = PLUS(wi, li, wr * lr), y##i = PLUS(n, lr, wr * li); \
    } while (0)
#define TAKE(k, at) part k##r = z[2 * PARTS * (at) + h], k##i = z[2 * PARTS * (at) + PARTS + h]
#define GIVE(k, at) z[2 * PARTS * (at) + h] = k##r, z[2 * PARTS * (at) + PARTS + h] = k##i

INLINE void radix2(reals *values, const double *w, int back) {
    part *z = (part *)values;
    const part wr = PART(w[0]), wi = PART(w[1]), n = PART(-w[1]);
    for (size_t j = 0, h = 0; j < HALF / 2; j += (h + 1) / PARTS, h = (h + 1) % PARTS) {
        TAKE(a, j);
        TAKE(b, j + HALF / 2);
        if (back)
            BACKWARD(a, b, wr, wi, n);
        else
            FORWARD(a, b, wr, wi, n);
        GIVE(a, j);
        GIVE(b, j + HALF / 2);
    }
}

INLINE void radix4(reals *values, size_t size, size_t blocks, const double (*w)[4], int back) {
    const size_t q = size / 4;
    for (size_t block = 0; block < blocks; block++, values += 2 * size) {
        part *z = (part *)values;
        const part vr = PART(w[block][0]), vi = PART(w[block][1]), m = PART(-w[block][1]);
        const part wr = PART(w[block][2]), wi = PART(w[block][3]), n = PART(-w[block][3]), o = PART(-w[block][2]);
        for (size_t j = 0, h = 0; j < q; j += (h + 1) / PARTS, h = (h + 1) % PARTS) {
            TAKE(a, j);
            TAKE(b, j + q);
            TAKE(c, j + 2 * q);
            TAKE(d, j + 3 * q);
            if (back) {
                BACKWARD(a, b, wr, wi, n);
                BACKWARD(c, d, n, wr, o); /* i*w2 */
                BACKWARD(a, c, vr, vi, m);
                BACKWARD(b, d, vr, vi, m);
            } else {
                FORWARD(a, c, vr, vi, m);
                FORWARD(b, d, vr, vi, m);
                FORWARD(a, b, wr, wi, n);
                FORWARD(c, d, n, wr, o);
            }
            GIVE(a, j);
            GIVE(b, j + q);
            GIVE(c, j + 2 * q);
            GIVE(d, j + 3 * q);
        }
    }
}

CALLED void tile_forward(reals *z, const double (*w)[4]) {
    radix4(z, 256, 1, w, 0);
    radix4(z, 64, 4, w + 1, 0);
    radix4(z, 16, 16, w + 5, 0);
    radix4(z, 4, 64, w + 21, 0);
}

CALLED void tile_backward(reals *z, const double (*w)[4]) {
    radix4(z, 4, 64, w + 21, 1);
    radix4(z, 16, 16, w + 5, 1);
    radix4(z, 64, 4, w + 1, 1);
    radix4(z, 256, 1, w, 1);
}

CALLED void forward(reals *z, const roots *w) {
    radix2(z, w->top[0], 0);
    radix4(z, HALF / 2, 2, w->top + 1, 0);
    for (size_t t = 0; t < TILES; t++) tile_forward(z + 2 * TILE * t, w->tile[t]);
}

/* Times 2048. */
CALLED void backward(reals *z, const roots *w) {
    for (size_t t = 0; t < TILES; t++) tile_backward(z + 2 * TILE * t, w->tile[t]);
    radix4(z, HALF / 2, 2, w->top + 1, 1);
    radix2(z, w->top[0], 1);
}

/* ---- whole numbers ---- */

/* The farthest from a whole number of all that were rounded; `faults` becomes a NaN if one of them is none. */
typedef struct {
    reals far, faults;
} guard;

/* The whole numbers that `backward` stands for. */
INLINE vector whole(reals x, guard *seen) {
    const reals magic = REAL(0x1.8p52), scaled = x * REAL(1.0 / HALF), up = scaled + magic;
    const reals off = (reals)((vector)(scaled - (up - magic)) & SAME(~0ull >> 1));
    seen->faults += off * REAL(0.0);
    seen->far = (reals)chosen((vector)(off > seen->far), (vector)off, (vector)seen->far);
    return (vector)up - (vector)magic;
}

INLINE double farthest_of(const guard *seen) {
    double far = 0, faults = 0;
    for (int lane = 0; lane < LANES; lane++) {
        far = seen->far[lane] > far ? seen->far[lane] : far;
        faults += seen->faults[lane];
    }
    return far + faults;
}

#define HALF_BITS 52
#define LOW_HALF ((1ull << HALF_BITS) - 1)
#define LIMB_MASK ((1ull << LIMB_BITS) - 1)
#define BIAS (1ull << 60) /* makes whole numbers of these products positive */

/* x / 2^by rounded down, of two's complement above -BIAS. */
INLINE vector shifted(vector x, int by) { return ((x + SAME(BIAS)) >> by) - SAME(BIAS >> by); }

/* A number modulo 2^104 from limbs that overlap: its low and its high 52 bits. */
INLINE void carried(vector *low, vector *high) {
    *high = (*high + shifted(*low, HALF_BITS)) & SAME(LOW_HALF);
    *low &= SAME(LOW_HALF);
}

INLINE void joined(vector x0, vector x1, vector x2, vector x3, vector *low, vector *high) {
    *low = x0 + ((x1 & SAME(LIMB_MASK)) << LIMB_BITS);
    *high = shifted(x1, LIMB_BITS) + x2 + ((x3 & SAME(LIMB_MASK)) << LIMB_BITS);
    carried(low, high);
}
