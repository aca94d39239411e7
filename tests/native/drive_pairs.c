/* Runs the order of products into cells over cells of many kinds, and words over blocks of all widths, for a sanitiser
 * to watch. What the order leads to is computed with sums: every cell ends with the sum of its values. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t treetap_pairs(
    size_t, size_t, size_t, const int64_t *, const int64_t *, uint8_t *, int64_t *, int64_t *, int64_t *, int64_t *,
    int64_t *, int64_t *, int64_t *, int64_t *);
void treetap_put(size_t, uint64_t *, const int64_t *, const uint64_t *, const int64_t *, size_t);
size_t treetap_read(size_t, size_t, const uint8_t *, size_t, size_t, const uint64_t *, uint64_t *);
void treetap_write(size_t, size_t, const uint64_t *, size_t, size_t, uint8_t *);
void treetap_reduce(size_t, size_t, const uint64_t *, size_t, uint64_t *, size_t);

#define CHECK(holds)                                                        \
    do {                                                                    \
        if (!(holds)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);     \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

static uint64_t state = 88172645463325252ull;

static uint64_t next(void) { /* xorshift: reproducible */
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static void *room(size_t bytes) {
    void *made = malloc(bytes ? bytes : 1); /* exactly as large as needed, so that a sanitiser sees every slip */
    CHECK(made);
    return made;
}

static void pair(size_t cells, size_t spares, size_t n, size_t kind) {
    int64_t *places = room(n * 8), *of = room(n * 8), *work = room(4 * (cells + spares) * 8);
    uint8_t *held = room(cells);
    uint64_t *values = room(n * 8), *rows = room((cells + spares) * 8), *sums = calloc(cells + 1, 8);
    CHECK(sums);
    memset(held, 0, cells);
    for (size_t k = 0; k < n; k++) {
        places[k] = (int64_t)(n - 1 - k), values[n - 1 - k] = next();
        of[k] = (int64_t)(kind == 0 ? next() % cells : kind == 1 ? k * cells / n : kind == 2 ? cells - 1 : k % cells);
        sums[of[k]] += values[n - 1 - k];
    }
    for (size_t first = 0; first < n;) {
        const size_t left_over = n - first;
        int64_t *put = room(left_over * 8), *put_at = room(left_over * 8), *row = room(left_over * 8);
        int64_t *at = room(left_over * 8), *left = room(spares * 8), *right = room(spares * 8), counts[7] = {0};
        const size_t taken = treetap_pairs(
            cells, spares, left_over, places + first, of + first, held, work, put, put_at, row, at, left, right, counts);
        CHECK(taken > 0);
        treetap_put(1, rows, put, values, put_at, (size_t)counts[0]);
        for (int64_t k = 0; k < counts[1]; k++) rows[row[k]] += values[at[k]];
        int64_t k = 0;
        for (int64_t round = 0, end = 0; round < counts[3]; round++)
            for (end += counts[4 + round]; k < end; k++) rows[left[k]] += rows[right[k]];
        CHECK(k == counts[2]); /* every spare row goes into another one */
        first += taken;
        free(put), free(put_at), free(row), free(at), free(left), free(right);
    }
    for (size_t cell = 0; cell < cells; cell++) CHECK(held[cell] ? rows[cell] == sums[cell] : !sums[cell]);
    free(places), free(of), free(work), free(held), free(values), free(rows), free(sums);
}

static void convert(size_t bits, size_t limbs, size_t width) {
    enum { COUNT = 3 };
    const size_t held = bits * limbs;
    uint8_t *bytes = room(COUNT * width), *again = room(COUNT * width);
    uint64_t *words = room(COUNT * limbs * 8), *bound = room(limbs * 8);
    for (size_t i = 0; i < COUNT * width; i++) {
        const size_t low = 8 * (width - 1 - i % width); /* the byte's lowest bit */
        bytes[i] = low >= held ? 0 : (uint8_t)(next() & (held - low < 8 ? (1u << (held - low)) - 1 : 255u));
    }
    bytes[width - 1] |= 1;
    CHECK(treetap_read(bits, limbs, bytes, width, COUNT, NULL, words) == COUNT);
    for (size_t j = 0; j < COUNT * limbs; j++) CHECK(words[j] >> bits == 0);
    treetap_write(bits, limbs, words, COUNT, width, again);
    CHECK(!memcmp(bytes, again, COUNT * width));
    memcpy(bound, words, limbs * 8); /* a number is not below itself */
    CHECK(treetap_read(bits, limbs, bytes, width, 1, bound, words) == 0);
    bytes[width - 1] ^= 1; /* one less, perhaps zero */
    size_t any = 0;
    for (size_t i = 0; i < width; i++) any |= bytes[i];
    CHECK(treetap_read(bits, limbs, bytes, width, 1, bound, words) == (any != 0));
    if (8 * width > held) {
        bytes[width - 1 - held / 8] |= (uint8_t)(1u << held % 8); /* a bit above the words */
        CHECK(treetap_read(bits, limbs, bytes, width, 1, NULL, words) == 0);
    }
    free(bytes), free(again), free(words), free(bound);
}

/* Numbers k*N + rest, k up to 2 and rest 0, 1 or N - 1, are reduced to the rest. */
static void reduce(size_t bits, size_t limbs) {
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    uint64_t *n = room(limbs * 8), *number = room(limbs * 8), *rest = room(limbs * 8);
    for (size_t j = 0; j < limbs; j++) n[j] = next() & mask;
    n[0] |= 1, n[limbs - 1] = (n[limbs - 1] & mask >> 2) | 2;
    for (uint64_t times = 0; times <= 2; times++)
        for (uint64_t kind = 0; kind < 3; kind++) {
            for (size_t j = 0; j < limbs; j++) rest[j] = kind == 2 ? n[j] : 0;
            rest[0] = kind == 2 ? n[0] - 1 : kind;
            uint64_t over = 0;
            for (size_t j = 0; j < limbs; j++) {
                over += times * n[j] + rest[j];
                number[j] = over & mask, over >>= bits;
            }
            CHECK(!over);
            treetap_reduce(bits, limbs, n, 2, number, 1);
            CHECK(!memcmp(number, rest, limbs * 8));
        }
    free(n), free(number), free(rest);
}

int main(void) {
    for (size_t kind = 0; kind < 4; kind++)
        for (size_t cells = 1; cells <= 100; cells += cells < 10 ? 1 : 30)
            for (size_t spares = 1; spares <= 400; spares *= 5)
                for (size_t n = 0; n <= 700; n += n < 20 ? 1 : 170) pair(cells, spares, n, kind);
    const size_t bits[] = {52, 49, 57, 31};
    for (size_t k = 0; k < 4; k++)
        for (size_t limbs = 1; limbs <= 32; limbs += 1 + limbs / 3)
            for (size_t width = 1; width <= bits[k] * limbs / 8 + 12; width++) convert(bits[k], limbs, width);
    for (size_t limbs = 1; limbs <= 32; limbs++) reduce(52, limbs), reduce(49, limbs);
    puts("pairs and words: all kernels");
    return 0;
}
