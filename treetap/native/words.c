/* Numbers as words outside of products: conversions from and to bytes, and sums. `bits` of a word are used, 49 or 52, the
 * lowest word first; the machine is little-endian. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LARGEST_BYTES 1680 /* of 273 words of 49 bits and of 256 of 52 */
#define LARGEST_WORDS 273

/* The bytes that the words of a number fill. */
static size_t held_by(size_t bits, size_t limbs) { return (limbs * bits + 7) / 8; }

/* Numbers from blocks of `width` big-endian bytes. Returns the number of leading blocks that are above 0 and below `bound`,
 * which may be NULL: any number will do that fits into the words. */
size_t treetap_read(
    size_t bits, size_t limbs, const uint8_t *bytes, size_t width, size_t count, const uint64_t *bound,
    uint64_t *numbers) {
    uint8_t little[LARGEST_BYTES + 8];
    const size_t held = held_by(bits, limbs), taken = width < held ? width : held;
    const uint64_t mask = (1ull << bits) - 1;
    memset(little, 0, sizeof little);
    for (size_t k = 0; k < count; k++, bytes += width, numbers += limbs) {
        for (size_t at = 0; at < taken; at++) little[at] = bytes[width - 1 - at];
        for (size_t at = taken; at < width; at++)
            if (bytes[width - 1 - at]) return k;
        if (limbs * bits % 8 && little[held - 1] >> limbs * bits % 8) return k;
        uint64_t any = 0;
        int smaller = 0; /* decided by the highest word that differs */
        for (size_t j = 0; j < limbs; j++) {
            uint64_t word;
            memcpy(&word, little + j * bits / 8, sizeof word);
            word = word >> j * bits % 8 & mask;
            any |= word;
            if (bound && word != bound[j]) smaller = word < bound[j];
            numbers[j] = word;
        }
        if (bound && (!any || !smaller)) return k;
    }
    return count;
}

/* Blocks of `width` big-endian bytes from numbers that fit into them. */
void treetap_write(
    size_t bits, size_t limbs, const uint64_t *numbers, size_t count, size_t width, uint8_t *bytes) {
    uint8_t little[LARGEST_BYTES + 8];
    const size_t held = held_by(bits, limbs);
    for (size_t k = 0; k < count; k++, bytes += width, numbers += limbs) {
        memset(little, 0, held + 8);
        for (size_t j = 0; j < limbs; j++) {
            uint64_t word;
            memcpy(&word, little + j * bits / 8, sizeof word);
            word |= numbers[j] << j * bits % 8;
            memcpy(little + j * bits / 8, &word, sizeof word);
        }
        for (size_t at = 0; at < width; at++) bytes[width - 1 - at] = at < held ? little[at] : 0;
    }
}

/* out[k] = a[k] + b[k] modulo 4*N for numbers below 4*N; b_step 0: every number plus the first of b. */
void treetap_sums(
    size_t bits, size_t limbs, const uint64_t *n, uint64_t *out, const uint64_t *a, const uint64_t *b, size_t b_step,
    size_t count) {
    const uint64_t mask = (1ull << bits) - 1;
    for (size_t k = 0; k < count; k++) {
        const uint64_t *other = b + limbs * b_step * k;
        uint64_t less[LARGEST_WORDS], over = 0;
        int64_t borrow = 0;
        for (size_t j = 0; j < limbs; j++) {
            over += a[k * limbs + j] + other[j];
            out[k * limbs + j] = over & mask;
            borrow += (int64_t)(over & mask) - 4 * (int64_t)n[j];
            less[j] = (uint64_t)borrow & mask;
            over >>= bits;
            borrow >>= bits;
        }
        if (borrow == 0) memcpy(out + k * limbs, less, limbs * sizeof *less);
    }
}
