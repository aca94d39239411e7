/* Runs the kernels for encrypted histograms in one form, which -D names as for them, for a sanitiser to watch: at odd numbers
 * of records, cells, words and candidates, each in memory of its own size, and what is summed must open. */
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../treetap/native/lanes.h"

#define N 4096
#define TRANSFORMED 16384 /* doubles of a public polynomial */
#define MOST 3072
typedef unsigned __int128 wide;

int FN(treetap_has)(void);
size_t FN(treetap_histograms_roots)(const double (*)[2], double *);
int FN(treetap_histograms_limbs)(const uint8_t *, uint32_t, size_t, int32_t *);
int FN(treetap_histograms_public)(const double *, const int32_t *, size_t, double *);
int FN(treetap_histograms_secrets)(const double *, const uint8_t *, size_t, uint32_t, int8_t *, double *);
int FN(treetap_histograms_encrypt)(
    const double *, const double *, uint32_t, const double *, size_t, const uint8_t *, size_t, const uint32_t *,
    const uint64_t *, size_t, size_t, size_t, uint8_t *, double *);
int FN(treetap_histograms_unpack)(const uint8_t *, size_t, uint64_t *);
int FN(treetap_histograms_write)(const uint64_t *, size_t, size_t, uint8_t *);
int FN(treetap_histograms_read)(const uint8_t *, size_t, size_t, uint64_t *);
int FN(treetap_histograms_sum)(
    const uint64_t *, size_t, size_t, size_t, const uint8_t *, size_t, const uint32_t *, size_t, uint64_t *);
int FN(treetap_histograms_cells)(
    const double *, const double *, size_t, size_t, size_t, const uint8_t *, size_t, const uint8_t *, const uint32_t *,
    size_t, size_t, uint64_t *, double *);
int FN(treetap_histograms_hide)(
    const double *, const uint64_t *, size_t, const double *, size_t, const uint8_t *, uint32_t, uint32_t, int8_t *,
    uint64_t *, double *);
int FN(treetap_histograms_answer)(
    const uint64_t *, size_t, const uint64_t *, size_t, const int8_t *, size_t, size_t, const uint8_t *, uint32_t,
    uint64_t *);
int FN(treetap_histograms_sum_masks)(
    const uint8_t *, size_t, size_t, const uint32_t *, size_t, uint64_t *, uint64_t *);
int FN(treetap_histograms_open)(
    const uint64_t *, const uint64_t *, size_t, const int8_t *, size_t, size_t, size_t, const uint32_t *, uint64_t *,
    double *);

#define CHECK(holds)                                                                      \
    do {                                                                                  \
        if (!(holds)) {                                                                   \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #holds);             \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static void *made(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    CHECK(memory);
    return memory;
}

/* Two columns of bins[0] and bins[1] bins, r words of 30 bits, values of `width` words. */
static void drive(size_t records, const size_t bins[2], size_t r, size_t width) {
    const size_t blocks = (records + N - 1) / N, cells = bins[0] + bins[1], bits = 40;
    double(*circle)[2] = made(8192, sizeof *circle);
    for (size_t k = 0; k < 8192; k++) {
        const double angle = acos(-1.0) * (double)k / 4096;
        circle[k][0] = cos(angle), circle[k][1] = sin(angle);
    }
    double *roots = made(FN(treetap_histograms_roots)(circle, NULL), 1), far, noise;
    FN(treetap_histograms_roots)(circle, roots);
    uint8_t seed[32];
    for (size_t i = 0; i < 32; i++) seed[i] = (uint8_t)(11 * i + records);
    int32_t *limbs = made((blocks + 1) * N * 4, sizeof *limbs);
    double *public = made((blocks + 1) * TRANSFORMED, sizeof *public), *zero = public + blocks * TRANSFORMED;
    CHECK(!FN(treetap_histograms_limbs)(seed, 0, blocks, limbs));
    CHECK(!FN(treetap_histograms_limbs)(seed, ~0u, 1, limbs + blocks * N * 4));
    CHECK(!FN(treetap_histograms_public)(roots, limbs, blocks + 1, public));
    int8_t *secrets = made(r * N, 1);
    double *transforms = made(r * N, sizeof *transforms);
    CHECK(!FN(treetap_histograms_secrets)(roots, seed, r, MOST, secrets, transforms));
    uint32_t *less = made(r, sizeof *less);
    uint64_t *values = made(records * width, sizeof *values);
    for (size_t j = 0; j < r; j++) less[j] = (uint32_t)j;
    for (size_t i = 0; i < records * width; i++) values[i] = i / records == width - 1 ? i * 77 : 0x9e3779b97f4a7c15 * i;
    uint8_t *message = made((records + N) * r, 13);
    CHECK(!FN(treetap_histograms_encrypt)(
        roots, public, 0, transforms, r, seed, 30, less, values, width, records, records, message, &far));
    CHECK(far < 1e-4);
    CHECK(!FN(treetap_histograms_encrypt)(
        roots, zero, ~0u, transforms, r, seed, 30, less, NULL, 0, 0, N, message + records * r * 13, &far));
    uint64_t *words = made((records + N) * r * 2, sizeof *words);
    CHECK(!FN(treetap_histograms_unpack)(message, (records + N) * r, words));
    uint8_t *codes = made(2 * records, 1), *inside = made(records, 1);
    uint8_t *node_codes = made(2 * records, 1);
    uint64_t *node_words = made(records * r * 2, sizeof *node_words);
    uint32_t starts[3] = {0, (uint32_t)bins[0], (uint32_t)cells};
    size_t of_node = 0;
    for (size_t i = 0; i < records; i++) {
        codes[i] = (uint8_t)(i * 7 % bins[0]), codes[records + i] = (uint8_t)((i * i + 3) % bins[1]);
        inside[i] = i % 5 != 2;
        if (!inside[i]) continue;
        node_codes[of_node] = codes[i], node_codes[records + of_node] = codes[records + i];
        memcpy(node_words + of_node++ * r * 2, words + i * r * 2, r * 2 * sizeof *words);
    }
    uint64_t *sums = made(cells * r * 2, sizeof *sums), *seconds = made(cells * 2 * N, sizeof *seconds);
    CHECK(!FN(treetap_histograms_sum)(node_words, r, of_node, 2, node_codes, records, starts, cells, sums));
    for (size_t from = 0; from < cells; from += 13) {
        const size_t some = cells - from < 13 ? cells - from : 13;
        CHECK(!FN(treetap_histograms_cells)(
            roots, public, blocks, records, 2, codes, records, inside, starts, from, some, seconds + from * 2 * N, &far));
        CHECK(far < 1e-4);
    }
    int8_t *u = made(cells * N, 1);
    uint64_t *halves = made(cells * N, sizeof *halves), *firsts = made(cells * r, sizeof *firsts);
    uint64_t *opened = made(cells * r, sizeof *opened);
    CHECK(!FN(treetap_histograms_hide)(roots, seconds, cells, zero, bits, seed, 5, MOST, u, halves, &far));
    CHECK(!FN(treetap_histograms_answer)(sums, cells, words + records * r * 2, r, u, 60, bits, seed, 5, firsts));
    const size_t bytes = (cells * N * bits + 7) / 8, few = (cells * r * bits + 7) / 8;
    uint8_t *sent = made(bytes, 1), *also = made(few, 1);
    CHECK(!FN(treetap_histograms_write)(halves, cells * N, bits, sent) && !FN(treetap_histograms_write)(firsts, cells * r, bits, also));
    memset(halves, 0, cells * N * sizeof *halves), memset(firsts, 0, cells * r * sizeof *firsts);
    CHECK(!FN(treetap_histograms_read)(sent, cells * N, bits, halves) && !FN(treetap_histograms_read)(also, cells * r, bits, firsts));
    CHECK(!FN(treetap_histograms_open)(halves, firsts, cells, secrets, r, bits, 30, less, opened, &noise));
    CHECK(noise < 0.6);
    for (size_t cell = 0; cell < cells; cell++)
        for (size_t j = 0; j < r; j++) {
            const uint64_t t = (1ull << 30) - less[j];
            const size_t column = cell >= bins[0];
            uint64_t sum = 0;
            for (size_t i = 0; i < records; i++) {
                if (!inside[i] || codes[column * records + i] != cell - starts[column]) continue;
                wide m = 0;
                uint64_t top = 1;
                for (size_t k = width; k--;) m = ((m << 64) + values[k * records + i]) % t;
                for (size_t k = 0; k < 64 * width; k++) top = top * 2 % t;
                sum += (uint64_t)(m + (values[(width - 1) * records + i] >> 63 ? t - top : 0)) % t;
            }
            CHECK(opened[cell * r + j] == sum % t);
        }
    CHECK(!FN(treetap_histograms_sum_masks)(seed, cells, 30, less, r, opened, sums));
    for (size_t k = 0; k < cells * r; k++) { /* twice the distance of the words from q*r_j/t_j is no more than 1 */
        const wide t = (1ull << 30) - less[k % r], word = sums[2 * k] + ((wide)sums[2 * k + 1] << 52);
        const uint64_t off = (uint64_t)(word * t) - (uint64_t)((wide)opened[k] << 52 << 52); /* both modulo 2^64 */
        CHECK(opened[k] < t && sums[2 * k] >> 52 == 0 && sums[2 * k + 1] >> 52 == 0);
        CHECK(2 * (int64_t)off <= (int64_t)t && 2 * (int64_t)off >= -(int64_t)t);
    }
    const int before = fegetround();
    fesetround(FE_UPWARD);
    CHECK(FN(treetap_histograms_cells)(
        roots, public, blocks, records, 2, codes, records, NULL, starts, 0, cells, seconds, &far));
    fesetround(before);
    free(circle), free(roots), free(limbs), free(public), free(secrets), free(transforms), free(less), free(values);
    free(message), free(words), free(codes), free(inside), free(node_codes), free(node_words), free(sums), free(seconds), free(u);
    free(halves), free(firsts), free(opened), free(sent), free(also);
}

int main(void) {
#if !defined(EMULATED)
    if (!FN(treetap_has)()) return 77;
#endif
    drive(N + 1, (const size_t[]){9, 2}, 3, 2);
    drive(2 * N - 1, (const size_t[]){1, 25}, 4, 1);
    drive(1, (const size_t[]){3, 1}, 1, 8);
    return 0;
}
