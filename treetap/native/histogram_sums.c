/* The feature party of encrypted histograms (histograms.h): sums of words, second halves, hiding, and first halves. */
#include "histograms.h"

typedef int64_t words_of_4 __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t words_of_2 __attribute__((vector_size(16), aligned(8), may_alias));

/* ---- messages ---- */

/* Words as pairs of 52 bits, out (count, 2), from 13 bytes each. */
TARGET int FN(treetap_histograms_unpack)(const uint8_t *in, size_t count, uint64_t *out) {
    for (size_t i = 0; i < count; i++, in += WORD_BYTES) {
        uint64_t first, last;
        memcpy(&first, in, 8);
        memcpy(&last, in + WORD_BYTES - 8, 8);
        out[2 * i] = first & LOW_HALF;
        out[2 * i + 1] = last >> 12;
    }
    return 0;
}

/* Numbers of `bits` <= 52 bits one after the other, lowest bits first; the last byte is filled up with zeros. */
TARGET int FN(treetap_histograms_write)(const uint64_t *in, size_t count, size_t bits, uint8_t *out) {
    uint64_t held = 0;
    size_t have = 0;
    for (size_t i = 0; i < count; i++) {
        held |= in[i] << have;
        have += bits;
        if (have < 64) continue;
        memcpy(out, &held, 8);
        out += 8, have -= 64;
        held = in[i] >> (bits - have);
    }
    memcpy(out, &held, (have + 7) / 8);
    return 0;
}

TARGET int FN(treetap_histograms_read)(const uint8_t *in, size_t count, size_t bits, uint64_t *out) {
    const uint64_t mask = (1ull << bits) - 1;
    uint64_t held = 0;
    size_t have = 0, left = (count * bits + 7) / 8;
    for (size_t i = 0; i < count; i++) {
        if (have >= bits) {
            out[i] = held & mask;
            held >>= bits, have -= bits;
            continue;
        }
        uint64_t next = 0;
        const size_t some = left < 8 ? left : 8, needed = bits - have;
        memcpy(&next, in, some);
        in += some, left -= some;
        out[i] = (held | next << have) & mask;
        held = next >> needed;
        have = 8 * some - needed;
    }
    return 0;
}

/* ---- sums ---- */

INLINE void add_words(uint64_t *to, const uint64_t *from, size_t words) {
    size_t k = 0;
    for (; k + 4 <= words; k += 4) *(words_of_4 *)(to + k) += *(const words_of_4 *)(from + k);
    for (; k < words; k += 2) *(words_of_2 *)(to + k) += *(const words_of_2 *)(from + k);
}

#define STRIP 128 /* records whose words stay in the first cache while they are added for each feature */
#define UNCARRIED (31 * STRIP) /* records between carries: 2^12 additions of 52 bits would overflow */

INLINE void sums_of(
    const uint64_t *words, size_t from, size_t upto, size_t features, const uint8_t *codes, size_t stride,
    const uint32_t *starts, uint64_t *sums, size_t width) {
    for (size_t at = from; at < upto; at += STRIP) {
        const size_t end = upto - at < STRIP ? upto : at + STRIP;
        for (size_t f = 0; f < features; f++) {
            const uint8_t *code = codes + f * stride;
            uint64_t *base = sums + starts[f] * width;
            for (size_t i = at; i < end; i++) add_words(base + code[i] * width, words + i * width, width);
        }
    }
}

/* Adds words (count, r, 2) of records to the sums (cells, r, 2) of their cells, starts[f] + codes[f][record]. codes
 * (features, count), rows `stride` apart. Sums come out below 2^52 in each half. */
TARGET int FN(treetap_histograms_sum)(
    const uint64_t *words, size_t r, size_t count, size_t features, const uint8_t *codes, size_t stride,
    const uint32_t *starts, size_t cells, uint64_t *sums) {
#define SUMS_OF(width) sums_of(words, at, end, features, codes, stride, starts, sums, width)
    for (size_t at = 0; at < count; at += UNCARRIED) {
        const size_t end = count - at < UNCARRIED ? count : at + UNCARRIED;
        if (r == 2)
            SUMS_OF(4);
        else if (r == 3)
            SUMS_OF(6);
        else if (r == 4)
            SUMS_OF(8);
        else
            SUMS_OF(2 * r);
        for (size_t i = 0; i < cells * r; i++) {
            sums[2 * i + 1] = (sums[2 * i + 1] + (sums[2 * i] >> HALF_BITS)) & LOW_HALF;
            sums[2 * i] &= LOW_HALF;
        }
    }
    return 0;
}

/* ---- second halves ---- */

/* A record of a group of LANES cells is a number of 16 bits: where its coefficient lies among the TILE first values of a
 * tile, and by which power of the tile's root it counts there. */
INLINE uint16_t entry_of(size_t record, size_t lane) {
    const size_t at = DEGREE - 1 - record % DEGREE;
    return (uint16_t)(at / TILE << 12 | at % TILE * 2 * LANES | lane);
}

/* Entries of the cells `first` to first + cells - 1, sorted by group of LANES cells and then by block: those of group g and
 * block b are from[g*blocks + b] to from[g*blocks + b + 1]. Which records count is decided without a branch, as a processor
 * could not foretell it: those that do not are written to the place `spare`. */
INLINE void sorted_entries(
    size_t blocks, size_t count, size_t features, const uint8_t *codes, size_t stride, const uint8_t *inside,
    const uint32_t *starts, size_t first, size_t cells, size_t spare, size_t *from, uint16_t *entries) {
    const size_t lists = (cells + LANES - 1) / LANES * blocks;
    memset(from, 0, (lists + 2) * sizeof *from);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t f = 0; f < features; f++) {
            const size_t before = starts[f] - first; /* modulo the size of a word: cells before the first are beyond all */
            if (starts[f] >= first + cells || starts[f + 1] <= first) continue;
            for (size_t i = 0; i < count; i++) {
                const size_t cell = before + codes[f * stride + i], counts = (cell < cells) & (!inside || inside[i]);
                size_t *const at = from + (counts ? cell / LANES * blocks : 0) + i / DEGREE;
                if (pass) {
                    entries[counts ? at[1] : spare] = entry_of(i, cell % LANES);
                    at[1] += counts;
                } else
                    at[2] += counts;
            }
        }
        if (!pass)
            for (size_t list = 0; list < lists; list++) from[list + 2] += from[list + 1];
    }
}

#define ABREAST 4 /* blocks whose products are added at once */

/* Adds to a tile's sums (LIMBS, HALF) the products of up to ABREAST indicators x (TILE values each) and public polynomials. */
INLINE void add_products(reals *sums, const reals *x, const double *const public[ABREAST], size_t blocks) {
    for (size_t f = 0; f < TILE; f++)
        UNROLL for (size_t h = 0; h < PARTS; h++) {
            part s[2 * LIMBS], *to = (part *)(sums + 2 * f) + h;
            UNROLL for (size_t l = 0; l < LIMBS; l++) {
                s[2 * l] = to[l * 2 * HALF * PARTS];
                s[2 * l + 1] = to[l * 2 * HALF * PARTS + PARTS];
            }
            for (size_t k = 0; k < blocks; k++) {
                const part *values = (const part *)(x + 2 * (TILE * k + f)) + h;
                const part re = values[0], im = values[PARTS], minus = -im;
                const double *a = public[k] + 2 * LIMBS * f;
                UNROLL for (size_t l = 0; l < LIMBS; l++) {
                    const part ar = PART(a[l]), ai = PART(a[LIMBS + l]);
                    s[2 * l] = PLUS(minus, ai, PLUS(re, ar, s[2 * l]));
                    s[2 * l + 1] = PLUS(im, ar, PLUS(re, ai, s[2 * l + 1]));
                }
            }
            UNROLL for (size_t l = 0; l < LIMBS; l++) {
                to[l * 2 * HALF * PARTS] = s[2 * l];
                to[l * 2 * HALF * PARTS + PARTS] = s[2 * l + 1];
            }
        }
}

/* Sums (LIMBS, HALF) over blocks of products of public polynomials and indicators of LANES cells, transformed. */
INLINE void group_products(
    const roots *w, const double *public, size_t blocks, const size_t *from, const uint16_t *entries, reals *x,
    reals *sums) {
    size_t some[MOST_BLOCKS], many = 0;
    for (size_t b = 0; b < blocks; b++)
        if (from[b + 1] > from[b]) some[many++] = b;
    memset(sums, 0, LIMBS * 2 * HALF * sizeof *sums);
    for (size_t t = 0; t < TILES; t++)
        for (size_t first = 0; first < many; first += ABREAST) {
            const size_t abreast = many - first < ABREAST ? many - first : ABREAST;
            const double *of[ABREAST];
            memset(x, 0, abreast * 2 * TILE * sizeof *x);
            for (size_t k = 0; k < abreast; k++) {
                const size_t b = some[first + k];
                double *const values = (double *)(x + k * 2 * TILE);
                of[k] = public + (b * HALF + t * TILE) * 2 * LIMBS;
                for (size_t i = from[b]; i < from[b + 1]; i++) {
                    double *const to = values + (entries[i] & 0xfff);
                    const double *power = w->power[t][entries[i] >> 12];
                    to[0] += power[0];
                    to[LANES] += power[1];
                }
                tile_forward(x + k * 2 * TILE, w->tile[t]);
            }
            add_products(sums + 2 * TILE * t, x, of, abreast);
        }
}

/* Rows (LANES, 2, DEGREE) of low and high halves of LANES products, from the limbs' transforms (LIMBS, HALF). */
INLINE void rows_of(const roots *w, reals *limbs, uint64_t *rows, guard *seen) {
    for (size_t l = 0; l < LIMBS; l++) backward(limbs + l * 2 * HALF, w);
    for (size_t part = 0; part < 2; part++)
        for (size_t j = 0; j < HALF; j += LANES) {
            vector low[LANES], high[LANES];
            UNROLL for (int k = 0; k < LANES; k++) {
                const reals *z = limbs + 2 * (j + (size_t)k) + part;
                vector x[LIMBS];
                UNROLL for (int l = 0; l < LIMBS; l++) x[l] = whole(z[(size_t)l * 2 * HALF], seen);
                joined(x[0], x[1], x[2], x[3], &low[k], &high[k]);
            }
            transpose(low);
            transpose(high);
            for (int lane = 0; lane < LANES; lane++) {
                vector *to = (vector *)(rows + (size_t)lane * 2 * DEGREE + part * HALF + j);
                to[0] = low[lane], to[DEGREE / LANES] = high[lane];
            }
        }
}

/* Adds sums of a*I over up to MOST_BLOCKS blocks to `out` (cells, 2, DEGREE), of cells `first` to first + cells - 1. `public`
 * has the blocks' transforms, codes (features, records) the cells of their `count` records as in `sum`, starts one more than
 * there are features; `inside` (count) says which records count, or is NULL. Halves come out below 2^52. */
TARGET int FN(treetap_histograms_cells)(
    const roots *w, const double *public, size_t blocks, size_t count, size_t features, const uint8_t *codes,
    size_t stride, const uint8_t *inside, const uint32_t *starts, size_t first, size_t cells, uint64_t *out,
    double *farthest) {
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    size_t overlap = 0;
    for (size_t f = 0; f < features; f++) overlap += starts[f] < first + cells && starts[f + 1] > first;
    const size_t groups = (cells + LANES - 1) / LANES;
    size_t *from = memory((groups * blocks + 2) * sizeof *from);
    uint16_t *entries = memory(overlap * count * sizeof *entries + 2);
    reals *x = memory(ABREAST * 2 * TILE * sizeof *x), *sums = memory(LIMBS * 2 * HALF * sizeof *sums);
    uint64_t *rows = memory(LANES * 2 * DEGREE * sizeof *rows);
    guard seen = {0};
    const int lacks = !from || !entries || !x || !sums || !rows;
    if (!lacks)
        sorted_entries(blocks, count, features, codes, stride, inside, starts, first, cells, overlap * count, from, entries);
    for (size_t g = 0; g < groups && !lacks; g++) {
        group_products(w, public, blocks, from + g * blocks, entries, x, sums);
        rows_of(w, sums, rows, &seen);
        const size_t some = cells - g * LANES < LANES ? cells - g * LANES : LANES;
        for (size_t c = 0; c < some; c++) {
            uint64_t *low = out + (g * LANES + c) * 2 * DEGREE, *high = low + DEGREE;
            const uint64_t *more = rows + c * 2 * DEGREE;
            for (size_t p = 0; p < DEGREE; p++) {
                const uint64_t sum = low[p] + more[p];
                high[p] = (high[p] + more[DEGREE + p] + (sum >> HALF_BITS)) & LOW_HALF;
                low[p] = sum & LOW_HALF;
            }
        }
    }
    free(from), free(entries), free(x), free(sums), free(rows);
    *farthest = farthest_of(&seen);
    return lacks ? NO_MEMORY : 0;
}

/* Second halves (count, DEGREE) of candidates `first`.., sums + a0*u + e' rounded to `bits` <= 52 bits, and their u (count,
 * DEGREE), of at most `most` coefficients that are not 0. Sums (count, 2, DEGREE) may be of up to 2^11 numbers uncarried;
 * `zero` is a0's transform. */
TARGET int FN(treetap_histograms_hide)(
    const roots *w, const uint64_t *sums, size_t count, const double *zero, size_t bits, const uint8_t *seed,
    uint32_t first, uint32_t most, int8_t *u, uint64_t *out, double *farthest) {
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    const size_t bytes = 2 * HALF * sizeof(reals), halves = LANES * 2 * DEGREE * 8, drop = HALF_BITS - bits;
    const uint64_t half = (1ull << drop) >> 1, mask = (1ull << bits) - 1;
    const uint64_t begins = (1ull << HALF_BITS) + (drop ? 0 : 1ull << (HALF_BITS - 1)); /* 2^52 keeps low halves positive */
    reals *x = memory(bytes), *limbs = memory(LIMBS * bytes);
    uint64_t *rows = memory(halves);
    int32_t *error = memory(DEGREE * 4);
    stream from;
    guard seen = {0};
    const int lacks = !x || !limbs || !rows || !error;
    for (size_t at = 0; at < count && !lacks; at += LANES) {
        const size_t some = count - at < LANES ? count - at : LANES;
        for (size_t k = at; k < at + some; k++)
            light(drawn(&from, seed, first + (uint32_t)k, 0, MASK), most, u + k * DEGREE);
        small_forward(w, u + at * DEGREE, some, x);
        for (size_t l = 0; l < LIMBS; l++) {
            reals *z = limbs + l * 2 * HALF;
            for (size_t f = 0; f < HALF; f++) {
                const reals ar = REAL(zero[2 * LIMBS * f + l]), ai = REAL(zero[2 * LIMBS * f + LIMBS + l]);
                z[2 * f] = x[2 * f] * ar - x[2 * f + 1] * ai;
                z[2 * f + 1] = x[2 * f] * ai + x[2 * f + 1] * ar;
            }
        }
        rows_of(w, limbs, rows, &seen);
        for (size_t k = at; k < at + some; k++) {
            const uint64_t *low = sums + k * 2 * DEGREE, *high = low + DEGREE, *more = rows + (k - at) * 2 * DEGREE;
            uint64_t *to = out + k * DEGREE;
            errors(drawn(&from, seed, first + (uint32_t)k, 0, MASK_ERROR), DEGREE, error, NULL);
            for (size_t p = 0; p < DEGREE; p++) {
                const uint64_t sum = low[p] + more[p] + begins + (uint64_t)(int64_t)error[p];
                to[p] = (high[p] + more[DEGREE + p] + (sum >> HALF_BITS) - 1 + half) >> drop & mask;
            }
        }
    }
    wiped(x, bytes), wiped(limbs, LIMBS * bytes), wiped(rows, halves), wiped(error, DEGREE * 4), wiped(&from, sizeof from);
    free(x), free(limbs), free(rows), free(error);
    *farthest = farthest_of(&seen);
    return lacks ? NO_MEMORY : 0;
}

/* ---- first halves ---- */

/* First halves (count, words) of candidates `first`..: sums (count, words, 2) + (b0_j*u)[4095] + flood, rounded to `bits` <=
 * 52 bits. Words of zeros b0 (DEGREE, words, 2), u (count, DEGREE); the flood is three uniform numbers of `flood` bits, less
 * their mean. Sums may be of up to 2^11 numbers uncarried. */
TARGET int FN(treetap_histograms_answer)(
    const uint64_t *sums, size_t count, const uint64_t *zero, size_t words, const int8_t *u, size_t flood, size_t bits,
    const uint8_t *seed, uint32_t first, uint64_t *out) {
    const size_t bytes = 2 * words * OF_HALF * DEGREE * sizeof(int16_t), drop = LIMBS * LIMB_BITS - bits;
    int16_t *digits = memory(bytes), *y = memory(DEGREE * sizeof *y);
    stream from;
    if (digits && y) {
        for (size_t row = 0; row < 2 * words; row++)
            for (size_t p = 0; p < DEGREE; p++) {
                const uint64_t x = zero[p * 2 * words + row];
                for (size_t k = 0; k < OF_HALF; k++)
                    digits[(row * OF_HALF + k) * DEGREE + p] = (int16_t)(x >> DIGIT_BITS * k & DIGIT_MASK);
            }
        const wide top = ((wide)1 << flood) - 1, mean = 3 * (top >> 1) + 1;
        for (size_t c = 0; c < count; c++) {
            uint32_t *at = from.words, *end = from.words;
            for (size_t i = 0; i < DEGREE; i++) y[i] = u[c * DEGREE + DEGREE - 1 - i];
            drawn(&from, seed, first + (uint32_t)c, 0, FLOOD);
            for (size_t j = 0; j < words; j++, sums += 2) {
                wide x = (wide)sums[0] + ((wide)sums[1] << HALF_BITS) - mean;
                const int16_t *of_j = digits + 2 * j * OF_HALF * DEGREE;
                for (size_t k = 0; k < 2 * OF_HALF; k++) x += (wide)(__int128)dot(of_j + k * DEGREE, y) << (DIGIT_BITS * k);
                for (int k = 0; k < 3; k++, at += 4) {
                    if (at == end) {
                        blocks_of(from.state, from.words);
                        from.state[12] += TOGETHER;
                        at = from.words, end = at + 16 * TOGETHER;
                    }
                    x += ((wide)at[0] | (wide)at[1] << 32 | (wide)at[2] << 64 | (wide)at[3] << 96) & top;
                }
                x += (wide)1 << (drop - 1);
                out[c * words + j] = (uint64_t)(x >> drop) & ((1ull << bits) - 1);
            }
        }
    }
    const int lacks = !digits || !y;
    wiped(y, DEGREE * sizeof *y), wiped(&from, sizeof from);
    free(digits), free(y);
    return lacks ? NO_MEMORY : 0;
}

/* ---- masks of sums ---- */

/* Quotient and rest of x*2^52/t for x < t <= 2^bits, over = floor(2^(52 + bits)/t): the quotient is at most one too small
 * before the rest, which then is below 2t, says so. */
INLINE uint64_t quotient(uint64_t x, uint64_t t, uint64_t over, size_t bits, uint64_t *rest) {
    const uint64_t q = (uint64_t)((wide)x * over >> bits), left = (x << HALF_BITS) - q * t, more = left >= t;
    *rest = left - (t & -more);
    return q + more;
}

/* Numbers r (count, words) uniform modulo t_j = 2^bits - less_j, and words (count, words, 2) of (q/t_j)*r_j, rounded to the
 * nearest. Only the number of rejected draws, those not below t_j, shows. */
TARGET int FN(treetap_histograms_sum_masks)(
    const uint8_t *seed, size_t count, size_t bits, const uint32_t *less, size_t words, uint64_t *r, uint64_t *out) {
    stream from;
    for (size_t j = 0; j < words; j++) {
        const uint64_t t = (1ull << bits) - less[j], over = (uint64_t)(((wide)1 << (HALF_BITS + bits)) / t);
        drawn(&from, seed, 0, (uint32_t)j, SUM_MASK);
        for (size_t at = j; at < count * words; at += words) {
            do {
                if (from.used == DRAWN) refill(&from);
                r[at] = (from.words[from.used] | (uint64_t)from.words[from.used + 1] << 32) & ((1ull << bits) - 1);
                from.used += 2;
            } while (r[at] >= t);
            uint64_t rest, below;
            out[2 * at + 1] = quotient(r[at], t, over, bits, &rest);
            out[2 * at] = quotient(rest, t, over, bits, &below);
            out[2 * at] += 2 * below >= t; /* of t <= 2^42 it is below 2^52 - 2^9, and carries nothing */
        }
    }
    wiped(&from, sizeof from);
    return 0;
}
