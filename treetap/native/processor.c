/* Instructions that this processor offers and that its operating system saves at a change of tasks.
 *
 * Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 15.2: AVX-512 may be used if CPUID
 * says OSXSAVE, XCR0 has the bits of SSE, AVX and the three states of AVX-512 set, and CPUID's leaf 7 names it.
 */
#include <stdint.h>

/* The interface of all kernels: see INTERFACE in library.py. */
int treetap_interface(void) { return 8; }

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t enabled_states(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

/* 1 if the bits `needed` of CPUID's leaf 7, register EBX, FMA and the states of registers can all be used, else 0. */
static int has(unsigned needed, uint64_t states) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1) || !(c >> 12 & 1)) return 0; /* OSXSAVE, FMA */
    if ((enabled_states() & states) != states) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & needed) == needed;
}

#define NEEDS_AVX2 (1u << 5)
#define NEEDS_AVX512 (NEEDS_AVX2 | 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31) /* F, DQ, BW, VL */
int treetap_has_ifma(void) { return has(NEEDS_AVX512 | 1u << 21, 0xe6); }
int treetap_has_avx512(void) { return has(NEEDS_AVX512, 0xe6); }
int treetap_has_avx2(void) { return has(NEEDS_AVX2, 6); } /* SSE and AVX */

#else

int treetap_has_ifma(void) { return 0; }
int treetap_has_avx512(void) { return 0; }
int treetap_has_avx2(void) { return 0; }

#endif

/* The form that needs no instructions; see lanes.h. */
int treetap_has_plain(void) { return 1; }
