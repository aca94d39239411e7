/* Montgomery products and squares of LANES numbers side by side, on the digits of multiply_ifma.h or multiply_fma.h.
 *
 * Numbers. A number is `limbs` digits of WORD_BITS bits, the lowest first; `limbs` is a multiple of ROWS. Outside of products
 * digits are 64-bit words. The columns of a product are 64-bit sums, whose carries wait.
 *
 * Products. Montgomery, "Modular Multiplication Without Trial Division", Math. Comp. 44 (1985): with R = 2^(WORD_BITS*limbs),
 * product(a, b) = a*b/R mod N, so numbers are kept as a*R mod N ("Montgomery form") and products stay in that form. There
 * is no final subtraction ("almost" Montgomery, Gueron 2012).
 *
 * Reduction without waiting digits. Let B = 2^(WORD_BITS*ROWS) and k*N = -1 modulo B. The multiple of k*N that clears the
 * lowest ROWS digits q of a sum is q itself; it leaves q*m, m = (k*N + 1)/B, a number of `limbs` digits, ROWS columns further
 * up: no digit waits for another one's product. Only the last ROWS digits are cleared by N, times q*k modulo B.
 *
 * Bounds. With `limbs` = ROWS*(s + 1), the blocks q_0 .. q_(s-1) add q_i*k*N*B^i, and the last one q*N*B^s. As q, k < B,
 *
 *     sum of q_i*k*B^i <= (B-1)^2 * (B^s - 1)/(B - 1) < B^(s+1) = R   and   q*B^s < R:   the result is below a*b/R + 2N.
 *
 * Callers choose `limbs` such that R >= 16*N: a*b/R <= N for a, b < 4*N, as for a < R and b <= N, and the result is below
 * 3*N. A number alone, a < R, leaves Montgomery form below a/R + 2N, at most as 2*N.
 *
 * What columns begin with. Blocks leave constants in the columns (multiply_fma.h), the same for every operand. `first` takes
 * them off: it is minus what zeros leave, by the same functions, once per modulus. It adds BIAS to each column and takes the
 * carry of that from the next, so that no sum is negative on the way. */
#pragma once

#define MASK ((1ull << WORD_BITS) - 1)

enum kind { PRODUCT, SQUARE, LEAVE, JOIN, KINDS };

/* Constants of a modulus. */
typedef struct {
    uint64_t limbs, levels, square_levels; /* levels of Karatsuba's products and squares */
    uint64_t words[LARGEST];               /* N */
    uint64_t first[KINDS][2 * LARGEST];    /* what the columns begin with */
    uint64_t low[ROWS], first_low[ROWS];   /* what a block of zeros leaves in its lowest columns; what takes that off */
    scalar n[LARGEST], m[LARGEST], k[ROWS];
} modulus;

/* sums[0 .. 2*limbs) = a*b; b is of LANES numbers, or (broadcast) of one. */
INLINE void school(
    size_t limbs, const digit *a, const void *b, const int broadcast, const int with_signs, vector *sums) {
    for (size_t j = 0; j < limbs; j++) sums[j] = SAME(0);
    for (size_t i = 0; i < limbs; i += ROWS) {
        digit x[ROWS];
        UNROLL for (int t = 0; t < ROWS; t++) x[t] = a[i + (size_t)t];
        block(limbs, x, b, broadcast, with_signs, 1, sums + i);
    }
}

CALLED void school_lanes(size_t limbs, const digit *a, const digit *b, int with_signs, vector *sums) {
    school(limbs, a, b, 0, with_signs, sums);
}

/* sums[0 .. 2*limbs) = a*b; Karatsuba and Ofman 1962: a1*b0 + a0*b1 = a0*b0 + a1*b1 + (a1 - a0)*(b0 - b1). */
CALLED void times(uint64_t levels, size_t limbs, const digit *a, const digit *b, int with_signs, vector *sums) {
    if (!levels || limbs < 2 * ROWS) {
        school_lanes(limbs, a, b, with_signs, sums);
        return;
    }
    const size_t half = limbs / 2;
    digit x[LARGEST / 2] ALIGNED, y[LARGEST / 2] ALIGNED;
    vector middle[LARGEST] ALIGNED;
    const vector at_x = differences(half, a + half, a, x), at_y = differences(half, b, b + half, y);
    times(levels - 1, half, a, b, with_signs, sums);
    times(levels - 1, half, a + half, b + half, with_signs, sums + limbs);
    times(levels - 1, half, x, y, 1, middle);
    for (size_t j = 0; j < half; j++) {
        const vector both = sums[half + j] + sums[limbs + j];
        sums[half + j] = both + sums[j] + middle[j];
        sums[limbs + j] = both + sums[limbs + half + j] + middle[half + j];
    }
    correct(half, at_x, x, at_y, y, sums + limbs);
}

/* sums[0 .. 2*limbs) = a^2: products of different digits are summed once and doubled. */
CALLED void school_square(size_t limbs, const digit *a, int with_signs, vector *sums) {
    for (size_t j = 0; j < limbs; j++) sums[j] = SAME(0);
    for (size_t j = 2 * limbs - ROWS; j < 2 * limbs; j++) sums[j] = SAME(0); /* no block reaches them */
    for (size_t i = 0; i < limbs; i += ROWS) {
        digit x[ROWS];
        UNROLL for (int t = 0; t < ROWS; t++) x[t] = a[i + (size_t)t];
        cross_block(x, with_signs, sums + 2 * i);
        if (i + ROWS < limbs) block(limbs - i - ROWS, x, a + i + ROWS, 0, with_signs, 1, sums + 2 * i + ROWS);
    }
    for (size_t j = 0; j < limbs; j++) {
        vector low = sums[2 * j] + sums[2 * j], high = sums[2 * j + 1] + sums[2 * j + 1];
        add_square(a[j], with_signs, &low, &high);
        sums[2 * j] = low;
        sums[2 * j + 1] = high;
    }
}

/* sums[0 .. 2*limbs) = a^2; Karatsuba's: 2*a0*a1 = a0^2 + a1^2 - (a1 - a0)^2. */
CALLED void square_columns(uint64_t levels, size_t limbs, const digit *a, int with_signs, vector *sums) {
    if (!levels || limbs < 2 * ROWS) {
        school_square(limbs, a, with_signs, sums);
        return;
    }
    const size_t half = limbs / 2;
    digit x[LARGEST / 2] ALIGNED;
    vector middle[LARGEST] ALIGNED;
    differences(half, a + half, a, x); /* none to correct: SQUARE_SPLIT */
    square_columns(levels - 1, half, a, with_signs, sums);
    square_columns(levels - 1, half, a + half, with_signs, sums + limbs);
    square_columns(levels - 1, half, x, 1, middle);
    for (size_t j = 0; j < half; j++) {
        const vector both = sums[half + j] + sums[limbs + j];
        sums[half + j] = both + sums[j] - middle[j];
        sums[limbs + j] = both + sums[limbs + half + j] - middle[half + j];
    }
}

/* BIAS of a column less the carry of the one before. */
static inline uint64_t bias(size_t column) { return BIAS - (column ? BIAS >> WORD_BITS : 0); }

/* Digits of `count` sums with what they begin with, and of what was carried into the first; returns what they carry. */
INLINE vector carried(size_t count, vector over, const vector *sums, const uint64_t *first, digit *out) {
    for (size_t j = 0; j < count; j++) {
        const vector s = sums[j] + SAME(first[j]) + over;
        over = s >> WORD_BITS;
        out[j] = digit_of(s & SAME(MASK));
    }
    return over;
}

/* One block of the reduction: q times m above q, or at the end times N in its place. */
INLINE void reduce_block(const modulus *m, size_t i, const digit q[ROWS], vector *sums) {
    const int last = i + ROWS == m->limbs;
    block(m->limbs, q, last ? m->n : m->m, 1, 0, 0, sums + (last ? i : i + ROWS));
}

/* The sums of 2*limbs columns of a kind divided by R modulo N. */
CALLED void reduce(const modulus *m, enum kind kind, vector *sums, digit *out) {
    const size_t limbs = m->limbs;
    const uint64_t *first = m->first[kind];
    vector over = SAME(0), rest = over;
    for (size_t i = 0; i < limbs; i += ROWS) {
        digit q[ROWS];
        rest = over;
        if (i + ROWS < limbs)
            over = carried(ROWS, over, sums + i, first + i, q);
        else { /* its own block adds to these columns again */
            vector low[ROWS];
            UNROLL for (int t = 0; t < ROWS; t++) low[t] = sums[i + (size_t)t] + SAME(m->low[t]);
            carried(ROWS, over, low, first + i, q);
            UNROLL for (int t = 0; t < ROWS; t++) low[t] = SAME(0);
            low_block(q, m->k, low);
            carried(ROWS, SAME(0), low, m->first_low, q);
        }
        reduce_block(m, i, q, sums);
    }
    for (size_t j = limbs - ROWS; j < limbs; j++) rest = (sums[j] + SAME(first[j]) + rest) >> WORD_BITS;
    carried(limbs, rest, sums + limbs, first + limbs, out);
}

/* out = a*b/R mod N; out may be a or b. */
CALLED void multiply(const modulus *m, const digit *a, const digit *b, digit *out) {
    vector sums[2 * LARGEST] ALIGNED;
    times(m->levels, m->limbs, a, b, 0, sums);
    reduce(m, PRODUCT, sums, out);
}

/* out = a*a/R mod N; out may be a. */
CALLED void square(const modulus *m, const digit *a, digit *out) {
    vector sums[2 * LARGEST] ALIGNED;
    square_columns(m->square_levels, m->limbs, a, 0, sums);
    reduce(m, SQUARE, sums, out);
}

/* out = a/R mod N, below N: a number that leaves Montgomery form. */
CALLED void leave(const modulus *m, const digit *a, digit *out) {
    vector sums[2 * LARGEST] ALIGNED, words[LARGEST] ALIGNED, less[LARGEST] ALIGNED;
    const size_t limbs = m->limbs;
    for (size_t j = 0; j < 2 * limbs; j++) sums[j] = j < limbs ? word_of(a[j]) : SAME(0);
    reduce(m, LEAVE, sums, out);
    for (size_t j = 0; j < limbs; j++) words[j] = word_of(out[j]);
    for (int twice = 0; twice < 2; twice++) { /* at most 2N */
        vector over = SAME(0);
        for (size_t j = 0; j < limbs; j++) {
            const vector d = words[j] - SAME(m->words[j]) - over;
            over = d >> 63;
            less[j] = d & SAME(MASK);
        }
        const vector smaller = SAME(0) - over;
        for (size_t j = 0; j < limbs; j++) words[j] = chosen(smaller, words[j], less[j]);
    }
    for (size_t j = 0; j < limbs; j++) out[j] = digit_of(words[j]);
}

/* out = a + b*N in plain integers of `wide` digits, at most 2*limbs. */
CALLED void multiple_plus(const modulus *m, const digit *a, const digit *b, size_t wide, digit *out) {
    vector sums[2 * LARGEST] ALIGNED;
    school(m->limbs, b, m->n, 1, 0, sums);
    for (size_t j = 0; j < m->limbs; j++) sums[j] += word_of(a[j]);
    carried(wide, SAME(0), sums, m->first[JOIN], out);
}

/* What zeros leave in the columns. */
static TARGET void zeros_leave(const modulus *m, enum kind kind, vector *sums) {
    const digit zero[LARGEST] ALIGNED = {{0}};
    const size_t limbs = m->limbs;
    if (kind == LEAVE)
        for (size_t j = 0; j < 2 * limbs; j++) sums[j] = SAME(0);
    if (kind == PRODUCT) times(m->levels, limbs, zero, zero, 0, sums);
    if (kind == SQUARE) square_columns(m->square_levels, limbs, zero, 0, sums);
    if (kind == JOIN)
        school(limbs, zero, m->n, 1, 0, sums);
    else
        for (size_t i = 0; i < limbs; i += ROWS) reduce_block(m, i, zero, sums);
}

/* Levels of Karatsuba's products that pay; no more than two, for which digits and columns have room. */
static uint64_t levels_for(size_t limbs, size_t split) {
    uint64_t levels = 0;
    for (; levels < 2 && limbs >= split && limbs % (2 * ROWS) == 0; limbs /= 2) levels++;
    return levels;
}

/* The constants, from the words of N, of m and of k. */
static TARGET void make_modulus(
    modulus *made, size_t limbs, const uint64_t *n, const uint64_t *m, const uint64_t *k) {
    vector sums[2 * LARGEST] ALIGNED;
    const digit zero[ROWS] ALIGNED = {{0}};
    made->limbs = limbs;
    made->levels = levels_for(limbs, SPLIT);
    made->square_levels = levels_for(limbs, SQUARE_SPLIT);
    for (size_t j = 0; j < limbs; j++) made->words[j] = n[j], made->n[j] = (scalar)n[j], made->m[j] = (scalar)m[j];
    for (size_t j = 0; j < ROWS; j++) made->k[j] = (scalar)k[j];
    for (enum kind kind = PRODUCT; kind < KINDS; kind++) {
        zeros_leave(made, kind, sums);
        for (size_t j = 0; j < 2 * limbs; j++)
            made->first[kind][j] = bias(j) - sums[j][0];
    }
    for (size_t j = 0; j < ROWS; j++) sums[j] = SAME(0);
    low_block(zero, made->k, sums);
    for (size_t j = 0; j < ROWS; j++) made->low[j] = sums[j][0], made->first_low[j] = bias(j) - sums[j][0];
}
