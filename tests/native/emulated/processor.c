/* Stands for `treetap/native/processor.c` where the instructions are emulated: every processor has those of AVX-512. */
int treetap_has_avx2(void);
int treetap_has_ifma(void);
int treetap_interface(void);

int treetap_interface(void) { return 2; }
int treetap_has_avx2(void) { return 0; } /* these are not emulated: kernels have a portable form beside */
int treetap_has_ifma(void) { return 1; }
