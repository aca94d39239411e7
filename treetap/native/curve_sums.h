/* Sums of multiples of points, on edwards25519; included by curve.c alone, at its end.
 *
 * Points and numbers are public: addresses depend on them (the method is Pippenger's, "On the evaluation of powers and
 * related problems", FOCS 1976). A number is WINDOWS digits of a byte, from -128 to 127, the lowest first. Each window
 * has a bucket for each absolute value of a digit, the sum of the points with that digit, and a lane of its own. */
#pragma once

#define WINDOWS 16
#define BUCKETS 129
#define BUCKET_WORDS 24 /* x, y, z, t, and four unused ones */
#if LANES > WINDOWS
#error "a lane has no window"
#endif

/* The buckets of LANES windows, one of each, whose places are given. */
INLINE edwards load_buckets(const uint64_t *const place[LANES]) {
    vector words[BUCKET_WORDS];
    for (int first = 0; first < BUCKET_WORDS; first += LANES) {
        for (int lane = 0; lane < LANES; lane++) memcpy(&words[first + lane], place[lane] + first, sizeof(vector));
#if LANES > 1
        transpose(&words[first]);
#endif
    }
    wide of[4];
    memcpy(of, words, sizeof of);
    return (edwards){element_of(&of[0]), element_of(&of[1]), element_of(&of[2]), element_of(&of[3])};
}

INLINE void store_buckets(const edwards *p, uint64_t *const place[LANES]) {
    vector words[BUCKET_WORDS] = {SAME(0)};
    const wide of[4] = {words_of(&p->x), words_of(&p->y), words_of(&p->z), words_of(&p->t)};
    memcpy(words, of, sizeof of);
    for (int first = 0; first < BUCKET_WORDS; first += LANES) {
#if LANES > 1
        transpose(&words[first]);
#endif
        for (int lane = 0; lane < LANES; lane++) memcpy(place[lane] + first, &words[first + lane], sizeof(vector));
    }
}

typedef struct {
    element plus, minus, t2d; /* y + x, y - x and 2*d*x*y of a point with z = 1 */
} addend;

/* "add-2008-hwcd-3" with t2d of the second point, and twice the product of both z, whose words are below 2^62: complete
 * on this curve */
INLINE edwards added(const edwards *p, const addend *q, const wide *twice_z) {
    const wide x = words_of(&p->x), y = words_of(&p->y);
    const element pm = carry(subtract_wide(&y, &x, ELEMENT)), pp = carry(add_wide(&y, &x));
    const wide a = multiply(&pm, &q->minus), b = multiply(&pp, &q->plus), c = multiply(&p->t, &q->t2d);
    const element e = carry(subtract_wide(&b, &a, PRODUCT)), f = carry(subtract_wide(twice_z, &c, PRODUCT));
    const element g = carry(add_wide(twice_z, &c)), h = carry(add_wide(&b, &a));
    return (edwards){
        carry(multiply(&e, &f)), carry(multiply(&g, &h)), carry(multiply(&f, &g)), carry(multiply(&e, &h))};
}

CALLED edwards sum_of(const edwards *p, const edwards *q) {
    const element xy = scaled(&q->t, TWICE_D);
    const wide zz = multiply(&p->z, &q->z), twice_z = add_wide(&zz, &zz);
    const addend other = {sum(&q->y, &q->x), difference(&q->y, &q->x), xy};
    return added(p, &other, &twice_z);
}

/* LANES * BATCH points at most as rows of the words of addends. `signs`: of each point a byte: 0 for the even v, 1 for
 * the odd one, whichever `roots` has. */
CALLED void store_addends(
    const uint8_t *points, const uint8_t *roots, const uint8_t *signs, uint64_t (*rows)[3][WORDS], size_t count) {
    const size_t vectors = (count + LANES - 1) / LANES;
    const element one = constant(ONE);
    element u[BATCH], v[BATCH], inverse[BATCH];
    for (size_t k = 0; k < vectors; k++) {
        const size_t here = count - LANES * k;
        vector top;
        uint64_t odd[LANES] ALIGNED;
        const wide of_u = load(points + LANES * POINT_BYTES * k, POINT_BYTES, here, &top);
        const wide of_v = load(roots + LANES * POINT_BYTES * k, POINT_BYTES, here, &top);
        for (size_t lane = 0; lane < LANES; lane++) odd[lane] = lane < here ? signs[LANES * k + lane] : 0;
        vector wanted;
        memcpy(&wanted, odd, sizeof wanted);
        u[k] = element_of(&of_u);
        const element root = element_of(&of_v), other = negative(&root);
        v[k] = choose(equal_words(freeze(&root).word[0] & SAME(1), wanted), &root, &other);
        const element next = sum(&u[k], &one);
        inverse[k] = product(&v[k], &next);
    }
    invert(inverse, vectors);
    for (size_t k = 0; k < vectors; k++) {
        const element next = sum(&u[k], &one), previous = difference(&u[k], &one);
        const element over_v = product(&inverse[k], &next), over_next = product(&inverse[k], &v[k]);
        const element y = product(&previous, &over_next), ratio_u = product(&u[k], &over_v);
        const element x = scaled(&ratio_u, TO_EDWARDS), xy = product(&x, &y);
        const element made[3] = {sum(&y, &x), difference(&y, &x), scaled(&xy, TWICE_D)};
        for (int part = 0; part < 3; part++) {
            uint64_t words[WORDS][LANES] ALIGNED;
            const wide of = freeze(&made[part]);
            memcpy(words, &of, sizeof words);
            for (size_t lane = 0; lane < LANES && LANES * k + lane < count; lane++)
                for (int i = 0; i < WORDS; i++) rows[LANES * k + lane][part][i] = words[i][lane];
        }
    }
}

/* For each window the sum of all points, each times its digit there, as x, y, z and t of edwards25519: x of all windows
 * first, 32 bytes each. `digits`: WINDOWS bytes for each point. `buckets`: a space of WINDOWS * BUCKETS * BUCKET_WORDS
 * words. The points are of the group, with roots and signs as for `store_addends`. */
TARGET void FN(treetap_sum_multiples)(
    const uint8_t *points, const uint8_t *roots, const uint8_t *signs, const int8_t *digits, size_t count,
    uint64_t *buckets, uint8_t *sums) {
    uint64_t rows[BATCH * LANES][3][WORDS];
    const element zero = constant(ZERO), one = constant(ONE);
    const edwards neutral = {zero, one, one, zero};
    uint64_t *place[LANES];
    for (int bucket = 0; bucket < WINDOWS * BUCKETS; bucket += LANES) {
        for (int lane = 0; lane < LANES; lane++) place[lane] = buckets + BUCKET_WORDS * (bucket + lane);
        store_buckets(&neutral, place);
    }
    while (count) {
        const size_t taken = count < BATCH * LANES ? count : BATCH * LANES;
        store_addends(points, roots, signs, rows, taken);
        for (size_t k = 0; k < taken; k++, digits += WINDOWS) {
            const addend point = {constant(rows[k][0]), constant(rows[k][1]), constant(rows[k][2])};
            const element turned = negative(&point.t2d);
            for (int window = 0; window < WINDOWS; window += LANES) {
                uint64_t below[LANES] ALIGNED;
                for (int lane = 0; lane < LANES; lane++) {
                    const int digit = digits[window + lane];
                    below[lane] = 0 - (uint64_t)(digit < 0);
                    place[lane] = buckets + BUCKET_WORDS * (WINDOWS * (digit < 0 ? -digit : digit) + window + lane);
                }
                vector minus;
                memcpy(&minus, below, sizeof minus);
                const addend signed_point = {
                    choose(minus, &point.minus, &point.plus), choose(minus, &point.plus, &point.minus),
                    choose(minus, &turned, &point.t2d)};
                const edwards before = load_buckets((const uint64_t *const *)place);
                const wide z = words_of(&before.z), twice_z = add_wide(&z, &z);
                const edwards after = added(&before, &signed_point, &twice_z);
                store_buckets(&after, place);
            }
        }
        points += POINT_BYTES * taken, roots += POINT_BYTES * taken, signs += taken, count -= taken;
    }
    for (int window = 0; window < WINDOWS; window += LANES) {
        edwards run = neutral, total = neutral; /* of the buckets from here on; and of all runs: digit times bucket */
        for (int digit = BUCKETS - 1; digit > 0; digit--) {
            for (int lane = 0; lane < LANES; lane++)
                place[lane] = buckets + BUCKET_WORDS * (WINDOWS * digit + window + lane);
            const edwards bucket = load_buckets((const uint64_t *const *)place);
            run = sum_of(&run, &bucket);
            total = sum_of(&total, &run);
        }
        const element *const parts[4] = {&total.x, &total.y, &total.z, &total.t};
        for (int part = 0; part < 4; part++)
            store(parts[part], sums + POINT_BYTES * (WINDOWS * part + window), LANES);
    }
}
