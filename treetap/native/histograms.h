/* Encrypted histograms on ring LWE, in one form of lanes.h (AVX512, AVX2, PLAIN): what both roles need.
 *
 * A record has r words b_j = -(a*s_j)[i] + e + (q/t_j)*m modulo q = 2^104, under r secrets that share the public a of its
 * block of 4,096 records; i is its place there. A candidate with records S has first halves, the sums of b_j over S, and one
 * second half, coefficient for coefficient a*I with I = sum of X^(4095-i) over S: (first + (second*s_j)[4095]) opens to the
 * sum of m. histogram_words.c is the key holder's arithmetic, histogram_sums.c the
 * feature party's; treetap/native/histograms.py has the calls, treetap/lattice/histogram_parameters.py the sizes.
 *
 * Numbers modulo q are two words of 52 bits, the low one first; in messages they have 13 bytes, lowest first, as the machine
 * is little-endian. Randomness comes as seeds of 32 bytes: a draw's stream (sampling.h) has a number, a word and a use
 * in its nonce, below, so that a seed serves all of a query's draws and the same call gives the same bytes.
 *
 *     use          seed      number            word
 *     PUBLIC       joint     block             0       limbs of a
 *     SECRET       query's   0                 j       s_j
 *     ERROR        query's   block             j       e, and the random rounding of (q/t_j)*m
 *     MASK         answer's  candidate         0       u_k
 *     MASK_ERROR   answer's  candidate         0       e'
 *     FLOOD        answer's  candidate         0       three uniform numbers for each first half
 *     SUM_MASK     answer's  0                 j       r_j of all candidates, uniform modulo t_j
 *
 * Functions answer 0, WRONG_ROUNDING or NO_MEMORY; those that transform also say how far a limb was from a whole number.
 * At the key holder no branch and no address depends on a secret, an error or a value but for rejected draws. What is
 * secret is overwritten before memory is given back. Nothing is shared between calls.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fourier.h"
#include "sampling.h"

#define WRONG_ROUNDING 1
#define NO_MEMORY 2
#define WORD_BYTES 13
#define VALUES (2 * HALF) /* doubles of one transformed polynomial */

enum { PUBLIC, SECRET, ERROR, MASK, MASK_ERROR, FLOOD, SUM_MASK };
typedef unsigned __int128 wide;

INLINE stream *drawn(stream *from, const uint8_t *seed, uint32_t number, uint32_t word, uint32_t use) {
    opened(from, seed, number);
    from->state[14] = word;
    from->state[15] = use;
    return from;
}

/* Memory for vectors, of which `wiped` overwrites as much. */
static void *memory(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }
static void wiped(void *secret, size_t bytes) {
    if (secret) memset(secret, 0, bytes);
    __asm__ volatile("" : : "r"(secret) : "memory");
}

/* A ternary polynomial of at most `most` coefficients that are not 0: drawn until there are no more. */
INLINE void light(stream *from, uint32_t most, int8_t *out) {
    int32_t drawn_now[DEGREE];
    uint32_t weight;
    do {
        weight = 0;
        ternary(from, DEGREE, drawn_now);
        for (size_t i = 0; i < DEGREE; i++) weight += (uint32_t)drawn_now[i] & 1;
    } while (weight > most);
    for (size_t i = 0; i < DEGREE; i++) out[i] = (int8_t)drawn_now[i];
    wiped(drawn_now, sizeof drawn_now);
}

/* Transforms of up to LANES small polynomials side by side; those that lack are 0. */
INLINE void small_forward(const roots *w, const int8_t *polynomials, size_t count, reals *z) {
    memset(z, 0, 2 * HALF * sizeof *z);
    for (size_t lane = 0; lane < count; lane++)
        for (size_t p = 0; p < DEGREE; p++)
            ((double *)&z[2 * (p % HALF) + p / HALF])[lane] = polynomials[lane * DEGREE + p];
    forward(z, w);
}

/* ---- one coefficient of a product ---- */

/* Half a number modulo q is four digits of 13 bits: products of 4,096 with ternary numbers stay below 2^25. */
#define DIGIT_BITS 13
#define DIGIT_MASK ((1 << DIGIT_BITS) - 1)
#define OF_HALF (HALF_BITS / DIGIT_BITS)

/* The sum of x[i] * y[i], both of DEGREE small numbers. */
INLINE int32_t dot(const int16_t *x, const int16_t *y) {
    int32_t sum = 0;
    for (size_t i = 0; i < DEGREE; i++) sum += (int32_t)x[i] * y[i];
    return sum;
}
