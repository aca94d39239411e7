/* Numbers as words outside of products: conversions from and to bytes, reductions and sums. A number is `limbs` words that
 * hold `bits` bits each, the lowest first.
 *
 * A word is cut out of eight bytes at once, so `bits` is 57 at most; the forms of the kernels have 52 and 49, for which
 * the loops are compiled with a constant. The machine is little-endian. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LARGEST_WORDS 273

#define WITH_CONSTANT(bits, call) \
    switch (bits) {               \
    case 52: { enum { BITS = 52 }; call; } break; \
    case 49: { enum { BITS = 49 }; call; } break; \
    default: { const size_t BITS = bits; call; }  \
    }

INLINE uint64_t load(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return __builtin_bswap64(word);
}

/* One number from a block of `width` bytes; 1 if it fits into the words. `any` becomes 0 only for a number of zero. */
INLINE int read_number(size_t bits, size_t limbs, const uint8_t *bytes, size_t width, uint64_t *number, uint64_t *any) {
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint8_t head[16] = {0}; /* zeros above the block, then its first bytes */
    memcpy(head + 8, bytes, width < 8 ? width : 8);
    uint64_t all = 0;
    size_t j = 0;
    for (size_t at = 0; j < limbs && at / 8 + 8 <= width; j++, at += bits) {
        number[j] = load(bytes + width - 8 - at / 8) >> at % 8 & mask;
        all |= number[j];
    }
    for (size_t at = j * bits; j < limbs; j++, at += bits) {
        number[j] = at / 8 < width ? load(head + (width - at / 8)) >> at % 8 & mask : 0;
        all |= number[j];
    }
    *any = all;
    const size_t held = limbs * bits;
    uint8_t above = held / 8 < width ? (uint8_t)(bytes[width - 1 - held / 8] >> held % 8) : 0;
    for (size_t at = held / 8 + 1; at < width; at++) above |= bytes[width - 1 - at];
    return !above;
}

INLINE int below(size_t limbs, const uint64_t *number, const uint64_t *bound) {
    for (size_t j = limbs; j-- > 0;)
        if (number[j] != bound[j]) return number[j] < bound[j];
    return 0;
}

INLINE size_t read_numbers(
    size_t bits, size_t limbs, const uint8_t *bytes, size_t width, size_t count, const uint64_t *bound,
    uint64_t *numbers) {
    for (size_t k = 0; k < count; k++, bytes += width, numbers += limbs) {
        uint64_t any;
        if (!read_number(bits, limbs, bytes, width, numbers, &any)) return k;
        if (bound && !(any && below(limbs, numbers, bound))) return k;
    }
    return count;
}

/* Numbers from blocks of `width` bytes. Returns the number of leading blocks that are above 0 and below `bound`, which
 * may be NULL: any number will do that fits into the words. */
size_t treetap_read(
    size_t bits, size_t limbs, const uint8_t *bytes, size_t width, size_t count, const uint64_t *bound,
    uint64_t *numbers) {
    WITH_CONSTANT(bits, return read_numbers(BITS, limbs, bytes, width, count, bound, numbers))
}

/* The bytes of a block that the 64 bits from byte `at` on stand for, counted from the block's end. */
INLINE void store(uint64_t word, size_t at, uint8_t *bytes, size_t width) {
    if (at + 8 <= width) {
        word = __builtin_bswap64(word);
        memcpy(bytes + width - 8 - at, &word, sizeof word);
    } else
        for (; at < width; at++, word >>= 8) bytes[width - 1 - at] = (uint8_t)word;
}

INLINE void write_numbers(
    size_t bits, size_t limbs, const uint64_t *numbers, size_t count, size_t width, uint8_t *bytes) {
    for (size_t k = 0; k < count; k++, bytes += width, numbers += limbs) {
        uint64_t word = 0;
        size_t filled = 0, at = 0;
        for (size_t j = 0; j < limbs; j++) {
            word |= numbers[j] << filled;
            filled += bits;
            if (filled < 64) continue;
            store(word, at, bytes, width);
            at += 8, filled -= 64;
            word = numbers[j] >> (bits - filled); /* filled is below bits: bits are below 64 */
        }
        for (; at < width; at += 8, word = 0) store(word, at, bytes, width);
    }
}

/* Blocks of `width` bytes from numbers that fit into them. */
void treetap_write(
    size_t bits, size_t limbs, const uint64_t *numbers, size_t count, size_t width, uint8_t *bytes) {
    WITH_CONSTANT(bits, write_numbers(BITS, limbs, numbers, count, width, bytes))
}

/* Numbers below `times` + 1 times N, reduced below N. */
void treetap_reduce(size_t bits, size_t limbs, const uint64_t *n, size_t times, uint64_t *numbers, size_t count) {
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    for (size_t k = 0; k < count; k++, numbers += limbs)
        for (size_t time = 0; time < times && !below(limbs, numbers, n); time++) {
            uint64_t borrow = 0;
            for (size_t j = 0; j < limbs; j++) {
                const uint64_t word = numbers[j] - n[j] - borrow;
                numbers[j] = word & mask, borrow = word >> 63;
            }
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
