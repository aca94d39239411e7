/* Blinded identifiers: arithmetic on Curve25519, eight points side by side, with the AVX-512 IFMA instructions.
 *
 * The curve is v^2 = u^3 + A*u^2 + u over the field of p = 2^255 - 19, A = 486662 (Bernstein, "Curve25519: new
 * Diffie-Hellman speed records", PKC 2006; RFC 7748). A point is known by its u alone, 32 bytes, the lowest first.
 *
 * Ladder. `ladder` is Montgomery's (Math. Comp. 48, 1987) as in RFC 7748; one exponent serves all lanes. It neither
 * branches nor reads memory by the exponent's bits. The maps from uniform bytes and the checks have no secret branch
 * either: they choose by masks.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include "curve_field.h"

#define POINT_BYTES ELEMENT_BYTES
#define CURVE_A 486662

/* Constants modulo p; N stands for A^2 - 4. */
static const uint64_t CURVE[WORDS] = {CURVE_A, 0, 0, 0, 0};
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
