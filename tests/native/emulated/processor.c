/* Stands for `treetap/native/processor.c` where the instructions are emulated: every processor has them then. */
int treetap_has_ifma(void);

int treetap_has_ifma(void) { return 1; }
