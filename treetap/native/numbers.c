/* Arithmetic modulo one odd number N on many numbers, LANES side by side, in one form of lanes.h.
 *
 * A number is an array of `limbs` words (multiply.h), and numbers lie one after the other. Inside a product LANES of them lie
 * side by side: a vector has the i-th digits of all. Results of products are below 3N; their operands may be below 4N.
 *
 * Every function answers 0, WRONG_ROUNDING or NO_MEMORY. Nothing here is constant-time in the addresses that it reads:
 * `fixed_base` and `chain` read tables at places that depend on exponents. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lanes.h"
#if defined(IFMA)
#include "multiply_ifma.h"
#else
#include "multiply_fma.h"
#endif
#include "multiply.h"

#define WRONG_ROUNDING 1
#define NO_MEMORY 2

/* LANES words at each of LANES addresses, at[k] + from: lane k of r[i] is the i-th word at the k-th address. */
INLINE void gather(size_t limbs, const uint64_t *const at[LANES], digit *lanes) {
    for (size_t i = 0; i < limbs; i += LANES) {
        const size_t from = i + LANES <= limbs ? i : limbs - LANES; /* the last ones overlap: limbs >= LANES */
        vector r[LANES];
        UNROLL for (int k = 0; k < LANES; k++) memcpy(&r[k], at[k] + from, sizeof r[k]);
        transpose(r);
        UNROLL for (int k = 0; k < LANES; k++) lanes[from + (size_t)k] = digit_of(r[k]);
    }
}

/* The first `count` lanes to addresses. */
INLINE void scatter(size_t limbs, const digit *lanes, size_t count, uint64_t *const at[LANES]) {
    for (size_t i = 0; i < limbs; i += LANES) {
        const size_t from = i + LANES <= limbs ? i : limbs - LANES;
        vector r[LANES];
        UNROLL for (int k = 0; k < LANES; k++) r[k] = word_of(lanes[from + (size_t)k]);
        transpose(r);
        for (size_t k = 0; k < count; k++) memcpy(at[k] + from, &r[k], sizeof r[k]);
    }
}

/* Addresses of the numbers k .. k + LANES - 1 of `count`, after the last one of the last again; their places are all of them
 * in turn, or (step 0) the first for each, or `at`. */
INLINE void addresses(
    size_t limbs, const uint64_t *numbers, const int64_t *places, size_t step, size_t k, size_t count,
    const uint64_t *at[LANES]) {
    for (size_t lane = 0; lane < LANES; lane++) {
        const size_t item = k + lane < count ? k + lane : count - 1;
        at[lane] = numbers + limbs * (places ? (size_t)places[item] : step * item);
    }
}

INLINE void load(size_t limbs, const uint64_t *numbers, size_t k, size_t count, digit *lanes) {
    const uint64_t *at[LANES];
    addresses(limbs, numbers, NULL, 1, k, count, at);
    gather(limbs, at, lanes);
}

/* Lanes to the numbers k .. of `out`, those that there are. */
CALLED void store(size_t limbs, const digit *lanes, uint64_t *out, const int64_t *places, size_t k, size_t count) {
    const size_t many = count - k < LANES ? count - k : LANES;
    uint64_t *at[LANES];
    for (size_t lane = 0; lane < many; lane++)
        at[lane] = out + limbs * (places ? (size_t)places[k + lane] : k + lane);
    scatter(limbs, lanes, many, at);
}

INLINE void prefetch(size_t limbs, const uint64_t *number) {
    for (size_t word = 0; word < limbs; word += 8) __builtin_prefetch(number + word);
}

/* The constants of a modulus from the words of N, of m and of k (multiply.h); for no address, the bytes that they take. In
 * another rounding mode a compiler may make zeros with a sign of words. */
TARGET size_t FN(treetap_modulus)(
    modulus *made, size_t limbs, const uint64_t *n, const uint64_t *m, const uint64_t *k) {
    if (!made) return sizeof *made;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    make_modulus(made, limbs, n, m, k);
    return 0;
}

/* out[out_at[k]] = a[a_at[k]] * b[b_at[k]] / R mod N. No places: the k-th number, or of b for step 0 the first. */
TARGET int FN(treetap_products)(
    const modulus *m, uint64_t *out, const int64_t *out_at, const uint64_t *a, const int64_t *a_at, const uint64_t *b,
    const int64_t *b_at, size_t b_step, size_t count) {
    digit x[LARGEST] ALIGNED, y[LARGEST] ALIGNED;
    const uint64_t *of_a[LANES], *of_b[LANES];
    const size_t limbs = m->limbs;
    const int squares = a == b && a_at == b_at && b_step, moves = b_at || b_step;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    if (!count) return 0;
    addresses(limbs, a, a_at, 1, 0, count, of_a);
    addresses(limbs, b, b_at, b_step, 0, count, of_b);
    for (size_t k = 0; k < count; k += LANES) {
        gather(limbs, of_a, x);
        if (!squares && (!k || moves)) gather(limbs, of_b, y);
        if (k + LANES < count) { /* while these are multiplied, memory sends the next ones */
            addresses(limbs, a, a_at, 1, k + LANES, count, of_a);
            addresses(limbs, b, b_at, b_step, k + LANES, count, of_b);
            for (int lane = 0; lane < LANES; lane++) prefetch(limbs, of_a[lane]);
            for (int lane = 0; lane < LANES && moves && !squares; lane++) prefetch(limbs, of_b[lane]);
        }
        if (squares)
            square(m, x, x);
        else
            multiply(m, x, y, x);
        store(limbs, x, out, out_at, k, count);
    }
    return 0;
}

/* out[k] = numbers[k] / R mod N, below N: out of Montgomery form. */
TARGET int FN(treetap_leave)(const modulus *m, uint64_t *out, const uint64_t *numbers, size_t count) {
    digit x[LARGEST] ALIGNED;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    for (size_t k = 0; k < count; k += LANES) {
        load(m->limbs, numbers, k, count, x);
        leave(m, x, x);
        store(m->limbs, x, out, NULL, k, count);
    }
    return 0;
}

/* out[k] = product over rows of table[row][digits[k][row]], for a table of rows * entries numbers. */
TARGET int FN(treetap_fixed_base)(
    const modulus *m, uint64_t *out, const uint64_t *table, size_t rows, size_t entries, const uint16_t *digits,
    size_t count) {
    digit x[LARGEST] ALIGNED, y[LARGEST] ALIGNED;
    const uint64_t *at[LANES];
    const size_t limbs = m->limbs;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    for (size_t k = 0; k < count; k += LANES) {
        for (size_t row = 0; row < rows; row++) {
            for (size_t lane = 0; lane < LANES; lane++) {
                const size_t item = k + lane < count ? k + lane : count - 1;
                at[lane] = table + limbs * (row * entries + digits[item * rows + row]);
                if (row + 1 < rows)
                    prefetch(limbs, table + limbs * ((row + 1) * entries + digits[item * rows + row + 1]));
            }
            gather(limbs, at, row ? y : x);
            if (row) multiply(m, x, y, x);
        }
        store(limbs, x, out, NULL, k, count);
    }
    return 0;
}

/* Simultaneous powers of many numbers by one program (Straus 1964; sliding windows where there is one base).
 *
 * The k-th result is computed from 1, `one`: step s squares `squarings[s]` times, then multiplies by an operand: for
 * operands[s] = -1-w by base[k]^(2*w+1), else by values[places[k * width + operands[s]]]; at the end it squares `last`
 * times more. NO_MEMORY if there is none for the `powers` odd powers of the base. */
TARGET int FN(treetap_chain)(
    const modulus *m, const uint64_t *one, uint64_t *out, const uint64_t *base, size_t powers, const uint64_t *values,
    const int64_t *places, size_t width, const int32_t *squarings, const int32_t *operands, size_t steps, size_t last,
    size_t count) {
    digit x[LARGEST] ALIGNED, y[LARGEST] ALIGNED;
    const uint64_t *at[LANES];
    const size_t limbs = m->limbs;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    digit *odd = powers ? aligned_alloc(sizeof *odd, powers * limbs * sizeof *odd) : NULL;
    if (powers && !odd) return NO_MEMORY;
    for (size_t k = 0; k < count; k += LANES) {
        if (powers) {
            load(limbs, base, k, count, odd);
            square(m, odd, y);
            for (size_t w = 1; w < powers; w++) multiply(m, odd + (w - 1) * limbs, y, odd + w * limbs);
        }
        addresses(limbs, one, NULL, 0, k, count, at);
        gather(limbs, at, x);
        for (size_t s = 0; s < steps; s++) {
            for (int32_t t = 0; t < squarings[s]; t++) square(m, x, x);
            const digit *operand = y;
            if (operands[s] < 0)
                operand = odd + (size_t)(-1 - operands[s]) * limbs;
            else {
                for (size_t lane = 0; lane < LANES; lane++) {
                    const size_t item = k + lane < count ? k + lane : count - 1;
                    at[lane] = values + limbs * (size_t)places[item * width + (size_t)operands[s]];
                }
                gather(limbs, at, y);
            }
            multiply(m, x, operand, x);
        }
        for (size_t t = 0; t < last; t++) square(m, x, x);
        store(limbs, x, out, NULL, k, count);
    }
    free(odd);
    return 0;
}

/* out[k] = a[k] + factor[k] * N: the last step of the Chinese remainder theorem, in plain integers of `wide` words. */
TARGET int FN(treetap_join)(
    const modulus *m, size_t wide, uint64_t *out, const uint64_t *a, const uint64_t *factor, size_t count) {
    digit x[LARGEST] ALIGNED, y[LARGEST] ALIGNED, sums[2 * LARGEST] ALIGNED;
    if (!rounds_to_nearest()) return WRONG_ROUNDING;
    for (size_t k = 0; k < count; k += LANES) {
        load(m->limbs, a, k, count, x);
        load(m->limbs, factor, k, count, y);
        multiple_plus(m, x, y, wide, sums);
        store(wide, sums, out, NULL, k, count);
    }
    return 0;
}
