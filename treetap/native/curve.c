/* Blinded identifiers: arithmetic on Curve25519, a point in each lane of the vectors of lanes.h.
 *
 * The curve is v^2 = u^3 + A*u^2 + u over the field of p = 2^255 - 19, A = 486662 (Bernstein, "Curve25519: new
 * Diffie-Hellman speed records", PKC 2006; RFC 7748). A point is known by its u alone, 32 bytes, the lowest first.
 *
 * No branch and no address depends on a scalar, a point or the bytes of an id: what depends on them is chosen by masks.
 */
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

/* ---- raising */

typedef struct {
    element x, z; /* of u = x/z */
} ratio;

/* scalar * (u : 1) = first, and (scalar + 1) * (u : 1) = second, for a scalar of 255 bits that serves all lanes. The
 * ladder is Montgomery's (Math. Comp. 48, 1987), the names are those of RFC 7748, section 5. There two points change
 * places by the scalar's bits. Here they stay: d*a + c*b is the same for either order, d*a - c*b but for its sign, which
 * its square loses; so the bit only chooses which point is doubled. (x2 : z2) is the doubled one. */

CALLED void ladder(const uint8_t scalar[32], const wide *u, ratio *first, ratio *second) {
    const element zero = constant(ZERO), one = constant(ONE), base = element_of(u);
    wide x2 = words_of(&one), z2 = words_of(&zero), x3 = *u, z3 = x2;
    uint64_t last = 0; /* the bit whose point is (x2 : z2) */
    for (int t = 254; t >= 0; t--) {
        const uint64_t bit = scalar[t >> 3] >> (t & 7) & 1;
        const vector other = opaque(SAME(0 - (bit ^ last)));
        last = bit;
        const element a = carry(add_wide(&x2, &z2)), b = carry(subtract_wide(&x2, &z2, PRODUCT));
        const element c = carry(add_wide(&x3, &z3)), d = carry(subtract_wide(&x3, &z3, PRODUCT));
        const element p = choose(other, &c, &a), q = choose(other, &d, &b);
        const wide pp = square(&p), qq = square(&q);
        const element e = carry(subtract_wide(&pp, &qq, PRODUCT));
        const element inner = carry(multiply_small_add(&e, (CURVE_A - 2) / 4, &pp));
        const element aa = carry(pp), bb = carry(qq);
        x2 = multiply(&aa, &bb);
        z2 = multiply(&e, &inner);
        const wide da = multiply(&d, &a), cb = multiply(&c, &b);
        const element plus = carry(add_wide(&da, &cb)), minus = carry(subtract_wide(&da, &cb, PRODUCT));
        const element minus2 = carry(square(&minus));
        x3 = square(&plus);
        z3 = multiply(&base, &minus2);
    }
    const vector odd = opaque(SAME(0 - last));
    const ratio two = {carry(x2), carry(z2)}, three = {carry(x3), carry(z3)};
    *first = (ratio){choose(odd, &three.x, &two.x), choose(odd, &three.z, &two.z)};
    *second = (ratio){choose(odd, &two.x, &three.x), choose(odd, &two.z, &three.z)};
}

/* x/z of each lane as bytes; 0 where z is 0, of the neutral element. `count`: of points, at most BATCH vectors. */
CALLED void store_ratios(const ratio *of, uint8_t *points, size_t count) {
    const size_t vectors = (count + LANES - 1) / LANES;
    element inverse[BATCH];
    for (size_t k = 0; k < vectors; k++) inverse[k] = of[k].z;
    invert(inverse, vectors);
    for (size_t k = 0; k < vectors; k++) {
        const element u = product(&of[k].x, &inverse[k]);
        store(&u, points + LANES * POINT_BYTES * k, count - LANES * k);
    }
}

/* Of points raised by a ladder, whose results `first` and `second` are, u and v, signed (Okeya and Sakurai, "Efficient
 * Elliptic Curve Cryptosystems from a Scalar Multiplication Algorithm with Recovery of the y-Coordinate on a
 * Montgomery-Form Elliptic Curve", CHES 2001, corollary 2). With u and v before, u' and v' after, and w the u of second,
 *
 *     2*v*v' = (u*u' + 1)*(u + u' + 2*A) - 2*A - (u - u')^2 * w
 *
 * is multiplied by the denominators z^2 of u' and that of w, so that one inversion serves all. No v of the group is 0.
 * Where second is the neutral element, which is -1 for a scalar modulo l, both become 0: 1 of 2^252 scalars. */
CALLED void store_full(
    const element *u, const uint8_t *roots, const ratio *first, const ratio *second, uint8_t *raised, uint8_t *made,
    size_t count) {
    static const uint64_t TWICE_A[WORDS] = {2 * CURVE_A, 0, 0, 0, 0};
    const size_t vectors = (count + LANES - 1) / LANES;
    element of_u[BATCH], of_v[BATCH], inverse[BATCH];
    for (size_t k = 0; k < vectors; k++) {
        vector top;
        const wide words = load(roots + LANES * POINT_BYTES * k, POINT_BYTES, count - LANES * k, &top);
        const element v = element_of(&words), *const x = &first[k].x, *const z = &first[k].z;
        const element ux = product(&u[k], x), uz = product(&u[k], z), az = scaled(z, TWICE_A), azz = product(&az, z);
        const element left = sum(&ux, z), apart = difference(&uz, x), apart2 = squared(&apart);
        const element both = sum(&uz, x), right = sum(&both, &az), inner = product(&left, &right);
        const element rest = difference(&inner, &azz), more = product(&rest, &second[k].z);
        const element less = product(&apart2, &second[k].x);
        const element v2 = sum(&v, &v), v2z = product(&v2, z), under = product(&v2z, &second[k].z);
        of_u[k] = product(x, &under);
        of_v[k] = difference(&more, &less);
        inverse[k] = product(&under, z);
    }
    invert(inverse, vectors);
    for (size_t k = 0; k < vectors; k++) {
        const element after = product(&of_u[k], &inverse[k]), v = product(&of_v[k], &inverse[k]);
        store(&after, raised + LANES * POINT_BYTES * k, count - LANES * k);
        store(&v, made + LANES * POINT_BYTES * k, count - LANES * k);
    }
}

/* Every point times the scalar, which is clamped: 2^254 + 8j; with v of each in `made` for those in `roots`, unless both
 * are NULL. The points have been checked. `raised` may be `points`, and `made` may be `roots`. */
TARGET void FN(treetap_raise_points)(
    const uint8_t scalar[32], const uint8_t *points, const uint8_t *roots, uint8_t *raised, uint8_t *made,
    size_t count) {
    ratio first[BATCH], second[BATCH];
    element before[BATCH];
    while (count) {
        const size_t taken = count < BATCH * LANES ? count : BATCH * LANES;
        for (size_t k = 0; LANES * k < taken; k++) {
            vector top;
            const wide u = load(points + LANES * POINT_BYTES * k, POINT_BYTES, taken - LANES * k, &top);
            before[k] = element_of(&u);
            ladder(scalar, &u, &first[k], &second[k]);
        }
        if (roots) {
            store_full(before, roots, first, second, raised, made, taken);
            roots += POINT_BYTES * taken, made += POINT_BYTES * taken;
        } else {
            store_ratios(first, raised, taken);
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

/* Lanes with a point of the subgroup, and a v of each, for `count` <= AT_ONCE / 2 vectors of u below p. */
CALLED void check_vectors(const element *u, vector *good, element *v, size_t count) {
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
        v[k] = product(&r[k], &root_u[k]);
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

/* v or -v, whichever is an even number below p. */
INLINE element even(const element *v) {
    const element other = negative(v);
    return choose(equal_words(freeze(v).word[0] & SAME(1), SAME(0)), v, &other);
}

/* The number of leading points that are whole numbers below p and of the subgroup of order l, without its neutral
 * element. Unless `roots` is NULL, it gets the even v of each of them, 32 bytes. */
TARGET size_t FN(treetap_check_points)(const uint8_t *points, uint8_t *roots, size_t count) {
    for (size_t at = 0; at < count; at += LANES * AT_ONCE / 2) {
        element u[AT_ONCE / 2], v[AT_ONCE / 2];
        vector canonical[AT_ONCE / 2], good[AT_ONCE / 2];
        size_t vectors = 0;
        for (size_t k = 0; k < AT_ONCE / 2 && at + LANES * k < count; k++, vectors++) {
            vector top;
            const wide words = load(points + POINT_BYTES * (at + LANES * k), POINT_BYTES, count - at - LANES * k, &top);
            u[k] = element_of(&words);
            const wide frozen = freeze(&u[k]);
            canonical[k] = equal(&frozen, &words) & equal_words(top, SAME(0));
        }
        check_vectors(u, good, v, vectors);
        for (size_t k = 0; k < vectors; k++) {
            const vector all = good[k] & canonical[k];
            const size_t first = at + LANES * k, here = count - first < LANES ? count - first : LANES;
            uint64_t verdict[LANES];
            memcpy(verdict, &all, sizeof verdict);
            size_t leading = 0;
            while (leading < here && verdict[leading]) leading++;
            if (roots) {
                const element root = even(&v[k]);
                store(&root, roots + POINT_BYTES * first, leading);
            }
            if (leading < here) return first + leading;
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
        const wide goal1 = freeze(&gx1[k]), goal2 = freeze(&gx2);
        const element squares[3] = {squared(&y11), squared(&y12), squared(&y21)};
        vector holds[3];
        for (int i = 0; i < 3; i++) {
            const element reached = product(&squares[i], &gxd[k]);
            const wide frozen = freeze(&reached);
            holds[i] = equal(&frozen, i < 2 ? &goal1 : &goal2);
        }
        const element y1 = choose(holds[0], &y11, &y12), y2 = choose(holds[2], &y21, &y22);
        const vector first = holds[0] | holds[1];
        xn[k] = choose(first, &x1n, &x2n);
        y[k] = choose(first, &y1, &y2);
    }
}

/* The sum of two points times eight: u and v as ratios with one denominator. */
CALLED void sum_times_eight(const edwards *p, const edwards *q, ratio *u, ratio *v) {
    element x, y, z;
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
    /* u = (z + y)/(z - y), v = TO_EDWARDS*u*z/x */
    const element above = sum(&z, &y), below = difference(&z, &y), above_z = product(&above, &z);
    *u = (ratio){product(&above, &x), product(&below, &x)};
    *v = (ratio){scaled(&above_z, TO_EDWARDS), u->z};
}

/* Points from rows of 64 uniform bytes: each half is mapped to the curve, its top bit is the sign of the Edwards x; the
 * sum of both times eight; with a v of each, unless `roots` is NULL. The neutral element, for which no bytes can be found
 * but by chance, becomes 0. */
TARGET void FN(treetap_hash_points)(const uint8_t *uniform, uint8_t *points, uint8_t *roots, size_t count) {
    enum { IDS = BATCH / 2 }; /* vectors of points of a batch */
    element xn[BATCH], xd[BATCH], y[BATCH], inverse[BATCH];
    ratio u[IDS], v[IDS];
    vector sign[BATCH];
    while (count) {
        const size_t taken = count < IDS * LANES ? count : IDS * LANES, vectors = (taken + LANES - 1) / LANES;
        for (size_t k = 0; k < vectors; k++) {
            element r[2];
            for (size_t half = 0; half < 2; half++) {
                const uint8_t *rows = uniform + 64 * LANES * k + 32 * half;
                const wide words = load(rows, 64, taken - LANES * k, &sign[2 * k + half]);
                r[half] = element_of(&words);
            }
            elligator(r, &xn[2 * k], &xd[2 * k], &y[2 * k], 2);
        }
        for (size_t k = 0; k < 2 * vectors; k++) inverse[k] = product(&xd[k], &y[k]);
        invert(inverse, 2 * vectors);
        for (size_t k = 0; k < vectors; k++) {
            edwards two[2];
            for (size_t half = 0; half < 2; half++) {
                const size_t at = 2 * k + half;
                const element over = product(&xn[at], &inverse[at]), x = scaled(&over, TO_EDWARDS), turned = negative(&x);
                const vector parity = freeze(&x).word[0] & SAME(1);
                const element x_signed = choose(equal_words(parity, sign[at]), &x, &turned);
                two[half].y = difference(&xn[at], &xd[at]);
                two[half].z = sum(&xn[at], &xd[at]);
                two[half].x = product(&x_signed, &two[half].z);
                two[half].t = product(&x_signed, &two[half].y);
            }
            sum_times_eight(&two[0], &two[1], &u[k], &v[k]);
        }
        store_ratios(u, points, taken);
        if (roots) store_ratios(v, roots, taken), roots += POINT_BYTES * taken;
        uniform += 64 * taken, points += POINT_BYTES * taken, count -= taken;
    }
}

#include "curve_sums.h"
