/* The order in which values are multiplied into cells: which product is computed when, without looking at a number.
 *
 * Every cell has a row for its product. A value is multiplied into its cell's row in place, in the order in which the
 * values come, so that they are read one after the other. Kernels compute eight products at a time, and within eight no
 * row may occur twice: a value whose cell has no row free opens a spare row for its cell, where the value is put. A cell
 * so has eight rows at most. At the end of a pass the rows of each cell are multiplied together by pairs, in at most
 * three rounds. A pass ends when all values or all spare rows are taken.
 *
 * A cell of c values takes c - 1 products, however many rows it opens: each value that is put saves one, and each row
 * beyond a cell's first costs one at the end.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TOGETHER = 8, ROUNDS = 3 };

/* One pass. Rows 0..cells-1 are those of the cells, the next `spares` are spare.
 *
 * places, cell_of: for each of n values its place and its cell.
 * held: for each cell 1 if its row holds a product, else 0; kept up to date.
 * work: room for 4 * (cells + spares) numbers.
 * put_row, put_at: rows that get a value, and the value's place (n).
 * row, at: products of a row and the value at a place, into the row (n).
 * left, right: products of two rows, into the left one (spares); rounds follow each other.
 * counts: how many values were put, products with values, spare rows, rounds; then the pairs of each round.
 * Returns how many values were taken. */
size_t treetap_pairs(
    size_t cells, size_t spares, size_t n, const int64_t *places, const int64_t *cell_of, uint8_t *held, int64_t *work,
    int64_t *put_row, int64_t *put_at, int64_t *row, int64_t *at, int64_t *left, int64_t *right, int64_t *counts) {
    const size_t rows = cells + spares;
    int64_t *const next = work;          /* the next row of the same cell, in a ring */
    int64_t *const last = next + rows;   /* of a cell: the row of its ring that was taken last */
    int64_t *const taken = last + rows;  /* of a row: the last eight that have it */
    int64_t *const several = taken + rows; /* cells of more than one row */
    size_t taken_values = 0, put = 0, products = 0, used = 0, many = 0;
    for (size_t k = 0; k < rows; k++) next[k] = last[k] = (int64_t)k, taken[k] = -1;
    for (; taken_values < n; taken_values++) {
        const int64_t cell = cell_of[taken_values], place = places[taken_values];
        const int64_t eight = (int64_t)(products / TOGETHER);
        if (!held[cell]) {
            held[cell] = 1;
            put_row[put] = cell, put_at[put++] = place;
            continue;
        }
        const int64_t before = last[cell];
        int64_t free = next[before];
        if (taken[free] == eight) { /* the row that was taken longest ago: no other one is free */
            if (used == spares) break;
            if (next[cell] == cell) several[many++] = cell;
            free = (int64_t)(cells + used++);
            next[free] = next[before], next[before] = free;
            put_row[put] = free, put_at[put++] = place;
            continue;
        }
        last[cell] = free, taken[free] = eight;
        row[products] = free, at[products++] = place;
    }
    size_t pairs = 0, rounds = 0;
    for (; many && rounds < ROUNDS; rounds++) {
        const size_t start = pairs;
        size_t still = 0;
        for (size_t k = 0; k < many; k++) {
            const int64_t cell = several[k];
            int64_t one = cell;
            do {
                const int64_t other = next[one];
                if (other == cell) break; /* an odd row waits */
                left[pairs] = one, right[pairs++] = other;
                one = next[one] = next[other];
            } while (one != cell);
            if (next[cell] != cell) several[still++] = cell;
        }
        many = still;
        counts[4 + rounds] = (int64_t)(pairs - start);
    }
    counts[0] = (int64_t)put, counts[1] = (int64_t)products, counts[2] = (int64_t)used, counts[3] = (int64_t)rounds;
    return taken_values;
}

/* out[out_at[k]] = numbers[at[k]] for k < count. */
void treetap_put(
    size_t limbs, uint64_t *out, const int64_t *out_at, const uint64_t *numbers, const int64_t *at, size_t count) {
    for (size_t k = 0; k < count; k++)
        memcpy(out + limbs * (size_t)out_at[k], numbers + limbs * (size_t)at[k], limbs * sizeof *out);
}
