/* Numbers modulo 2^(64*w), w words of 64 bits each, lowest first (rings.py), and their bits side by side.
 *
 * Numbers lie in `outer` times `inner` rows. An operand says by how many words its rows are apart, 0 where one serves
 * several, so that neither parts of wider rows nor repeated numbers are copied. No branch and no address depends on a
 * number. There is one form: a compiler's own code for AVX2 and AVX-512 was measured and is not faster. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef unsigned __int128 wide;
typedef struct {
    const uint64_t *at;
    size_t outer, inner; /* words from one row to the next */
} rows;

#define INLINE static inline __attribute__((always_inline))
#define MOST_WORDS 8
#define WITH_WORDS(w, call)                            \
    switch (w) {                                       \
    case 2: { enum { WORDS = 2 }; call; } break;       \
    case 3: { enum { WORDS = 3 }; call; } break;       \
    case 4: { enum { WORDS = 4 }; call; } break;       \
    case 5: { enum { WORDS = 5 }; call; } break;       \
    default: { const size_t WORDS = w; call; }         \
    }

INLINE void sum(uint64_t *out, const uint64_t *a, const uint64_t *b, size_t w, int minus) {
    uint64_t carry = 0;
    for (size_t i = 0; i < w; i++) {
        const wide t = minus ? (wide)a[i] - b[i] - carry : (wide)a[i] + b[i] + carry;
        out[i] = (uint64_t)t;
        carry = (uint64_t)(t >> 64) & 1;
    }
}

INLINE void product(uint64_t *out, const uint64_t *a, const uint64_t *b, size_t w) {
    memset(out, 0, w * sizeof *out);
    for (size_t i = 0; i < w; i++) {
        uint64_t carry = 0;
        for (size_t j = 0; i + j < w; j++) {
            const wide t = (wide)a[i] * b[j] + out[i + j] + carry;
            out[i + j] = (uint64_t)t;
            carry = (uint64_t)(t >> 64);
        }
    }
}

INLINE void sums(uint64_t *out, rows a, rows b, size_t outer, size_t inner, size_t w, int minus) {
    for (size_t k = 0; k < outer; k++)
        for (size_t i = 0; i < inner; i++, out += w)
            sum(out, a.at + k * a.outer + i * a.inner, b.at + k * b.outer + i * b.inner, w, minus);
}

/* out = a + b, or a - b. */
void treetap_rings_sum(
    uint64_t *out, const uint64_t *a, size_t a_outer, size_t a_inner, const uint64_t *b, size_t b_outer, size_t b_inner,
    size_t outer, size_t inner, size_t w, size_t minus) {
    const rows x = {a, a_outer, a_inner}, y = {b, b_outer, b_inner};
    WITH_WORDS(w, sums(out, x, y, outer, inner, WORDS, minus != 0))
}

/* Numbers i[.] of a's inner rows times numbers j[.] of b's, or each times the one beside it. */
INLINE void products(
    uint64_t *out, rows a, rows b, const int64_t *i, const int64_t *j, size_t outer, size_t inner, size_t w, int minus) {
    for (size_t k = 0; k < outer; k++)
        for (size_t n = 0; n < inner; n++, out += w) {
            const size_t one = i ? (size_t)i[n] : n, other = j ? (size_t)j[n] : n;
            uint64_t p[MOST_WORDS];
            product(p, a.at + k * a.outer + one * a.inner, b.at + k * b.outer + other * b.inner, w);
            sum(out, out, p, w, minus);
        }
}

/* out += a * b, or out -= a * b. */
void treetap_rings_mac(
    uint64_t *out, const uint64_t *a, size_t a_outer, size_t a_inner, const uint64_t *b, size_t b_outer, size_t b_inner,
    size_t outer, size_t inner, size_t w, size_t minus) {
    const rows x = {a, a_outer, a_inner}, y = {b, b_outer, b_inner};
    WITH_WORDS(w, products(out, x, y, NULL, NULL, outer, inner, WORDS, minus != 0))
}

/* out (outer, pairs) += a[j] * b[i] - a[i] * b[j] for places i, j (pairs) among the inner rows of a and b. */
void treetap_rings_minors(
    uint64_t *out, const uint64_t *a, size_t a_outer, size_t a_inner, const uint64_t *b, size_t b_outer, size_t b_inner,
    size_t outer, size_t inner, size_t w, size_t pairs, const int64_t *i, const int64_t *j) {
    const rows x = {a, a_outer, a_inner}, y = {b, b_outer, b_inner};
    (void)inner;
    WITH_WORDS(w, products(out, x, y, j, i, outer, pairs, WORDS, 0))
    WITH_WORDS(w, products(out, x, y, i, j, outer, pairs, WORDS, 1))
}

/* Rows of a 64 x 64 matrix of bits become its columns. */
INLINE void transpose(uint64_t a[64]) {
    uint64_t mask = 0x00000000ffffffff;
    for (size_t j = 32; j; j >>= 1, mask ^= mask << j)
        for (size_t k = 0; k < 64; k = (k + j + 1) & ~j) {
            const uint64_t t = ((a[k] >> j) ^ a[k + j]) & mask;
            a[k] ^= t << j;
            a[k + j] ^= t;
        }
}

/* The lowest `bits` <= 64*w bits of numbers (n, w) as rows (bits, columns), columns = ceil(n/64): number k has bit k%64
 * of word k/64 of each row, bits beyond the last number are 0. */
void treetap_rings_bits(uint64_t *out, const uint64_t *a, size_t n, size_t w, size_t bits) {
    const size_t columns = (n + 63) / 64;
    uint64_t block[64];
    for (size_t c = 0; c < columns; c++)
        for (size_t word = 0; 64 * word < bits; word++) {
            for (size_t k = 0; k < 64; k++) block[k] = 64 * c + k < n ? a[(64 * c + k) * w + word] : 0;
            transpose(block);
            for (size_t b = 0; b < 64 && 64 * word + b < bits; b++) out[(64 * word + b) * columns + c] = block[b];
        }
}

/* ---- digits of bits side by side (treetap/shares/signs.py) ---- */

#define MOST_DIGITS 6
#define SIDE_BY_SIDE 8

/* Shares of g and p (starts, size) of k digits, XORed into out: of the table's products of masks and what the wires open
 * to, rows of so many words; signs.py has the rows. */
void treetap_rings_joined(
    uint64_t *out, const uint64_t *table, const uint64_t *opened, size_t size, size_t starts, size_t k) {
    const size_t half = (size_t)1 << (k - 1);
    for (size_t at = 0; at < size; at += SIDE_BY_SIDE) {
        const size_t most = size - at < SIDE_BY_SIDE ? size - at : SIDE_BY_SIDE;
        const uint64_t *powers = table + at, *wire = opened + at, *rest = powers + half * size;
        uint64_t sums[2 << (MOST_DIGITS - 1)][SIDE_BY_SIDE];
        for (size_t j = 0; j < half * starts; j++, rest += size)
            for (size_t c = 0; c < most; c++)
                sums[j][c] = rest[c] ^ (powers[j / starts * size + c] & wire[(k - 1 + j % starts) * size + c]);
        for (size_t i = 0, n = half / 2; i < k - 1; i++, n /= 2) {
            for (size_t j = 0; j < n * starts; j++) {
                const size_t one = j / starts * 2 * starts + j % starts, later = i + 2 < k && j % starts == 0;
                for (size_t c = 0; c < most; c++) sums[j][c] = (sums[one][c] & wire[i * size + c]) ^ sums[one + starts][c];
                for (size_t c = 0; c < most && later; c++)
                    sums[j][c] ^= (powers[(j / starts << (i + 1)) * size + c] & wire[(k - 1 + starts + i) * size + c]) ^
                                  rest[c];
                rest += later * size;
            }
        }
        for (size_t s = 0; s < starts; s++)
            for (size_t c = 0; c < most; c++) out[s * size + at + c] ^= sums[s][c];
    }
}

/* ---- from residues ---- */

#define SPLIT 21 /* moduli of up to 42 bits: a residue is two numbers of 21 bits */

/* x modulo t, over = floor((2^64 - 1)/t): the quotient is at most one too small. */
INLINE uint64_t modulo(uint64_t x, uint64_t t, uint64_t over) {
    x -= (uint64_t)((wide)x * over >> 64) * t;
    return x - (t & -(uint64_t)(x >= t));
}

/* Numbers (n, w) modulo P = t_0 t_1 .. from their residues (n, count) modulo each t_j (Chinese remainders): the sum of
 * (P/t_j)*(r_j*i_j modulo t_j), i_j inverse to P/t_j. `moduli` has t_j and i_j (count, 2), `parts` P/t_j (count, w). */
void treetap_rings_crt(
    uint64_t *out, const uint64_t *residues, const uint64_t *moduli, const uint64_t *parts, const uint64_t *whole,
    size_t n, size_t count, size_t w) {
    for (size_t k = 0; k < n; k++, out += w, residues += count) {
        memset(out, 0, w * sizeof *out);
        for (size_t j = 0; j < count; j++) {
            const uint64_t t = moduli[2 * j], i = moduli[2 * j + 1], over = ~0ull / t;
            const uint64_t high = modulo((residues[j] >> SPLIT) * i, t, over), low = residues[j] & ((1 << SPLIT) - 1);
            const uint64_t times = modulo((high << SPLIT) + low * i, t, over);
            uint64_t carry = 0, less[MOST_WORDS], borrow = 0;
            for (size_t word = 0; word < w; word++) {
                const wide sum = (wide)parts[j * w + word] * times + out[word] + carry;
                const wide rest = (wide)(uint64_t)sum - whole[word] - borrow;
                out[word] = (uint64_t)sum, carry = (uint64_t)(sum >> 64);
                less[word] = (uint64_t)rest, borrow = (uint64_t)(rest >> 64) & 1;
            }
            const uint64_t over_whole = -(carry | (borrow ^ 1)); /* below 2 P: less P where that is not below 0 */
            for (size_t word = 0; word < w; word++) out[word] ^= (out[word] ^ less[word]) & over_whole;
        }
    }
}
