/* Asks the processor for its instructions, for a sanitiser to watch: the answer is 0 or 1, and always the same. */
int treetap_has_ifma(void);

int main(void) {
    const int first = treetap_has_ifma();
    return first != treetap_has_ifma() || (first != 0 && first != 1);
}
