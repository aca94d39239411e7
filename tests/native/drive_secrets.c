/* Gives the kernels of curve.c and sha512.c, in the form that -D names, secrets whose bits valgrind's memcheck takes for
 * uninitialised: it then reports every branch and every address that depends on one of them.
 *
 * The method is Langley's "ctgrind". A scalar and what ids' texts and points hold are secret here; their lengths are not.
 * Checks and sums are not run: the verdict of the one is public, and memcheck cannot be told so in between; the other
 * gets points and numbers that both parties know. */
#include <valgrind/memcheck.h>

#include "../../treetap/native/lanes.h"

void FN(treetap_hash_points)(const uint8_t *, uint8_t *, uint8_t *, size_t);
void FN(treetap_raise_points)(const uint8_t *, const uint8_t *, const uint8_t *, uint8_t *, uint8_t *, size_t);
void treetap_sha512(const uint8_t *, size_t, const uint8_t *, const int64_t *, size_t, uint8_t *);

enum { COUNT = 9 };

int main(int count, char **words) {
    (void)words;
    uint8_t scalar[32] = {8}, text[200] = "id", digests[64 * COUNT], points[32 * COUNT], one[32 * COUNT], two[32 * COUNT];
    uint8_t roots[32 * COUNT];
    int64_t ends[COUNT + 1];
    for (int i = 0; i <= COUNT; i++) ends[i] = 22 * i;
    scalar[31] = 64;
    VALGRIND_MAKE_MEM_UNDEFINED(scalar, sizeof scalar);
    VALGRIND_MAKE_MEM_UNDEFINED(text, sizeof text);
    treetap_sha512(text, 27, text, ends, COUNT, digests);
    FN(treetap_hash_points)(digests, points, roots, COUNT);
    FN(treetap_raise_points)(scalar, points, NULL, one, NULL, COUNT);
    FN(treetap_raise_points)(scalar, points, roots, two, roots, COUNT);
    if (count > 1) return one[0] > 9; /* a branch that is to be reported */
    VALGRIND_CHECK_MEM_IS_DEFINED(one, 1); /* reported, as results depend on secrets */
    VALGRIND_CHECK_MEM_IS_DEFINED(two + sizeof two - 1, 1);
    VALGRIND_CHECK_MEM_IS_DEFINED(roots + sizeof roots - 1, 1);
    return 0;
}
