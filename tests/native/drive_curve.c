/* Runs every kernel of curve.c over extreme and pseudo-random points, for a sanitiser to watch.
 *
 * Results are compared with each other and with the multiple of RFC 7748, section 5.2: hashes are of the group, raising
 * commutes and gives points of the group, blocks of every length give what their points give one by one, and encodings
 * that are of no point, or of no point of the group, are refused at their places. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int treetap_has_ifma(void);
void treetap_hash_points(const uint8_t *, uint8_t *, size_t);
void treetap_raise_points(const uint8_t *, const uint8_t *, uint8_t *, size_t);
size_t treetap_check_points(const uint8_t *, size_t);

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

static uint8_t *bytes(size_t count) {
    uint8_t *made = malloc(count + !count); /* exactly as large as needed, so that a sanitiser sees every slip */
    CHECK(made);
    return made;
}

static void clamped(uint8_t scalar[32]) {
    for (int i = 0; i < 32; i++) scalar[i] = (uint8_t)next();
    scalar[0] &= 248;
    scalar[31] = (scalar[31] & 127) | 64;
}

static void published(void) { /* the first test vector of RFC 7748, section 5.2; its point is checked by nothing here */
    static const char *const hex[3] = {
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"};
    uint8_t value[3][32], found[32];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 32; i++) {
            unsigned byte;
            CHECK(sscanf(hex[k] + 2 * i, "%2x", &byte) == 1);
            value[k][i] = (uint8_t)byte;
        }
    value[0][0] &= 248;
    value[0][31] = (value[0][31] & 127) | 64;
    treetap_raise_points(value[0], value[1], found, 1);
    CHECK(!memcmp(found, value[2], 32));
}

static void drive(size_t count) {
    uint8_t *uniform = bytes(64 * count), *points = bytes(32 * count), *one = bytes(32 * count);
    uint8_t *other = bytes(32 * count), first[32], second[32];
    for (size_t i = 0; i < 64 * count; i++) uniform[i] = (uint8_t)next();
    for (size_t i = 0; i < 64 * count && i < 64 * 6; i++) uniform[i] = i / 32 % 2 ? 0xff : 0; /* halves of extremes */
    for (size_t i = 0; i < count && i < 3; i++) uniform[64 * i + 17 * i] += 1;
    treetap_hash_points(uniform, points, count);
    CHECK(treetap_check_points(points, count) == count);
    clamped(first);
    clamped(second);
    treetap_raise_points(first, points, one, count);
    CHECK(treetap_check_points(one, count) == count);
    treetap_raise_points(second, one, one, count); /* in place */
    treetap_raise_points(second, points, other, count);
    treetap_raise_points(first, other, other, count);
    CHECK(!memcmp(one, other, 32 * count));
    if (count) {
        const size_t last = count - 1;
        treetap_hash_points(uniform + 64 * last, other, 1);
        CHECK(!memcmp(other, points + 32 * last, 32));
        /* 0, 1 (of order 4), the largest number, and a point with its top bit set */
        for (int fault = 0; fault < 4; fault++) {
            memcpy(other, points, 32 * count);
            uint8_t *spoilt = other + 32 * (next() % count);
            if (fault < 3) memset(spoilt, fault == 2 ? 0xff : 0, 32);
            if (fault == 1) spoilt[0] = 1;
            if (fault == 3) spoilt[31] |= 128;
            CHECK(treetap_check_points(other, count) == (size_t)(spoilt - other) / 32);
        }
    }
    free(uniform), free(points), free(one), free(other);
}

int main(void) {
    if (!treetap_has_ifma()) {
        fprintf(stderr, "no AVX-512 IFMA: the kernels for points were not run\n");
        return 77;
    }
    published();
    static const size_t counts[] = {0, 1, 7, 8, 9, 16, 17, 129, 257};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) drive(counts[k]);
    puts("points: all kernels");
    return 0;
}
