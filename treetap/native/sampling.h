/* Words, errors and ternary numbers from seeds, for the kernels of lattices: a file that defines INLINE includes this one.
 *
 * A seed of 32 bytes is expanded by ChaCha20 (RFC 8439), the stream's number as the first word of its nonce and a block
 * counter of 32 bits. Words are taken from eight blocks at a time, the first words of all eight first. Every form of a
 * kernel draws the same words.
 *
 * No branch and no address depends on a word but for rejected draws, of which only the number shows.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GROUP 8
#if defined(LANES) && LANES == 8 /* blocks that are made together */
#define TOGETHER (2 * GROUP)
#else
#define TOGETHER GROUP
#endif
typedef uint32_t lanes __attribute__((vector_size(4 * TOGETHER)));
#define DRAWN 1024 /* words that are drawn at once: eight times eight blocks */

typedef struct {
    uint32_t state[16];
    uint32_t words[DRAWN];
    size_t used;
} stream;

INLINE stream *opened(stream *from, const uint8_t *seed, uint32_t number) {
    static const uint32_t expand[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    memcpy(from->state, expand, sizeof expand);
    memcpy(from->state + 4, seed, 32);
    from->state[12] = 0;
    from->state[13] = number;
    from->state[14] = from->state[15] = 0;
    from->used = DRAWN;
    return from;
}

#define TURN(x, by) ((x) = (x) << (by) | (x) >> (32 - (by)))
#define QUARTER(a, b, c, d)          \
    do {                             \
        a += b, d ^= a, TURN(d, 16); \
        c += d, b ^= c, TURN(b, 12); \
        a += b, d ^= a, TURN(d, 8);  \
        c += d, b ^= c, TURN(b, 7);  \
    } while (0)

/* TOGETHER blocks: of eight of them, word i of block b is at 8*i + b. */
INLINE void blocks_of(const uint32_t *state, uint32_t *out) {
    lanes start[16], x[16];
    for (int i = 0; i < 16; i++) start[i] = (lanes){0} + state[i];
    for (int i = 0; i < TOGETHER; i++) start[12][i] += (uint32_t)i;
    memcpy(x, start, sizeof x);
    for (int round = 0; round < 10; round++) {
        QUARTER(x[0], x[4], x[8], x[12]);
        QUARTER(x[1], x[5], x[9], x[13]);
        QUARTER(x[2], x[6], x[10], x[14]);
        QUARTER(x[3], x[7], x[11], x[15]);
        QUARTER(x[0], x[5], x[10], x[15]);
        QUARTER(x[1], x[6], x[11], x[12]);
        QUARTER(x[2], x[7], x[8], x[13]);
        QUARTER(x[3], x[4], x[9], x[14]);
    }
    for (int i = 0; i < 16; i++) {
        x[i] += start[i];
        for (int eight = 0; eight < TOGETHER / GROUP; eight++)
            memcpy(out + (16 * eight + i) * GROUP, (const uint32_t *)&x[i] + GROUP * eight, 4 * GROUP);
    }
}

INLINE void refill(stream *from) {
    for (size_t at = 0; at < DRAWN; at += 16 * TOGETHER, from->state[12] += TOGETHER)
        blocks_of(from->state, from->words + at);
    from->used = 0;
}

INLINE uint32_t ones(uint32_t x) {
    x -= x >> 1 & 0x55555555;
    x = (x & 0x33333333) + (x >> 2 & 0x33333333);
    x = (x + (x >> 4)) & 0x0f0f0f0f;
    return x * 0x01010101 >> 24;
}

/* Centred binomial errors: the ones among 42 bits, less 21 (variance 10.5). `spare`, if not NULL, gets the 22 other bits
 * of the two words that each is made of. */
INLINE void errors(stream *from, size_t n, int32_t *out, uint32_t *spare) {
    for (size_t at = 0; at < n; at += DRAWN / 2) {
        refill(from);
        const uint32_t *first = from->words, *second = from->words + DRAWN / 2;
        for (size_t i = 0; i < DRAWN / 2; i++)
            out[at + i] = (int32_t)(ones(first[i] & 0x1fffff) + ones(second[i] & 0x1fffff)) - 21;
        for (size_t i = 0; i < DRAWN / 2 && spare; i++) spare[at + i] = first[i] >> 21 << 11 | second[i] >> 21;
    }
}

/* Uniform among -1, 0 and 1: a byte modulo 3, again if it is 255. */
INLINE void ternary(stream *from, size_t n, int32_t *out) {
    for (size_t have = 0; have < n;) {
        refill(from);
        for (size_t i = 0; i < 4 * DRAWN && have < n; i++) {
            const uint32_t byte = from->words[i / 4] >> 8 * (i % 4) & 255;
            out[have] = (int32_t)(byte % 3) - 1;
            have += byte < 255;
        }
    }
}
