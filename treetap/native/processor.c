/* Instructions that this processor offers and that its operating system saves at a change of tasks.
 *
 * Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 15.2: AVX-512 may be used if CPUID
 * says OSXSAVE, XCR0 has the bits of SSE, AVX and the three states of AVX-512 set, and CPUID's leaf 7 names it.
 */
#include <stdint.h>

/* The interface of all kernels: see INTERFACE in library.py. */
int treetap_interface(void) { return 2; }

#if defined(__x86_64__)
#include <cpuid.h>

static uint64_t enabled_states(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

/* 1 if AVX-512 with IFMA (and F, DQ, VL, BW) can be used, else 0. */
int treetap_has_ifma(void) {
    unsigned a, b, c, d;
    const unsigned needed = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 30 | 1u << 31; /* F, DQ, IFMA, BW, VL */
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    if ((enabled_states() & 0xe6) != 0xe6) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & needed) == needed;
}

/* 1 if AVX2 can be used, else 0. */
int treetap_has_avx2(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    if ((enabled_states() & 6) != 6) return 0; /* SSE and AVX */
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 5 & 1;
}

#else

int treetap_has_ifma(void) { return 0; }
int treetap_has_avx2(void) { return 0; }

#endif
