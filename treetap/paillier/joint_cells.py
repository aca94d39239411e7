"""Products of ciphertexts per feature and bin, through joint cells of several features.

The plain way multiplies every record's ciphertext into one product per feature: d·n products. Records that agree in
several features can be multiplied together once: the product of a *joint cell* of a group of features enters each of
those features' bins afterwards, so a group with J occupied cells costs n + O(J) products instead of n per feature. Two
32-bin features have at most 1,024 cells; ten one-hot columns of one field have ten.

`plan` decides the groups from the data; `feature_sums` applies it recursively, since the marginals of a group with J
cells are the same problem again with J ciphertexts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.worker_process import finish_unit

UNIT = 4096  # products; some 16 ms at 2048 bits
PLANNED_ROWS = 8192  # counting cells on more records costs time and changes few decisions
_WORTHWHILE = 0.9  # a group must merge at least a tenth of the records, which also ends the recursion
_LARGEST_CELL = 2**62

Codes = npt.NDArray[np.integer]
Table = dict[int, mpz]


def plan(codes: Codes, radices: Sequence[int], rows: int | None = None) -> list[tuple[int, ...]]:
    """Group features so that the modelled number of products is small.

    Features are taken by rising number of occupied bins; each joins the open group if that lowers the model's cost, or
    opens a new one. A group of k features with J occupied cells costs n - J products into cells (the first of a cell is
    free) and about J·(1 + log2 k) for its marginals; a feature alone with J bins costs n - J.

    Args:
        codes: bin of each record and feature, shape (n, d).
        radices: number of bins of each feature, its missing bin included.
        rows: records that one worker sums; n by default. At most 8,192, evenly spaced, are looked at.

    Returns:
        Disjoint groups of feature positions that cover all d features.
    """
    considered = min(PLANNED_ROWS, len(codes) if rows is None else rows)
    if considered < 2:
        return [(feature,) for feature in range(len(radices))]
    sample = codes[np.linspace(0, len(codes) - 1, considered).astype(np.int64)] if considered < len(codes) else codes
    occupied = [int(np.count_nonzero(np.bincount(sample[:, feature]))) for feature in range(len(radices))]
    groups: list[tuple[int, ...]] = []
    group: tuple[int, ...] = ()
    cells, count, size = np.zeros(considered, dtype=np.int64), 1, 1
    for feature in sorted(range(len(radices)), key=lambda feature: (occupied[feature], feature)):
        radix = radices[feature]
        if group and size * radix < _LARGEST_CELL:
            wider, total = _number(cells * radix + sample[:, feature])
            saved = _cost(considered, count, len(group)) + _cost(considered, occupied[feature], 1)
            if total <= _WORTHWHILE * considered and _cost(considered, total, len(group) + 1) < saved:
                group, cells, count, size = (*group, feature), wider, total, size * radix
                continue
        if group:
            groups.append(group)
        cells, count = _number(sample[:, feature].astype(np.int64))
        group, size = (feature,), radix
    return [*groups, group] if group else groups


def _cost(rows: int, cells: int, features: int) -> float:
    """Modelled products of a group: into its cells, then its marginals."""
    marginals = 0.0 if features == 1 else cells * (1 + np.log2(features))
    return float(rows - cells + marginals)


def _number(cells: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Renumber cells 0..J-1 and count them."""
    largest = int(cells.max()) + 1
    if largest <= 4 * len(cells) + 4096:  # counting beats sorting
        seen = np.bincount(cells, minlength=largest) > 0
        return (np.cumsum(seen) - 1)[cells], int(np.count_nonzero(seen))
    values, numbers = np.unique(cells, return_inverse=True)
    return numbers.astype(np.int64), len(values)


def joint(codes: Codes, group: Sequence[int], radices: Sequence[int]) -> npt.NDArray[np.int64]:
    """Mixed-radix number of each record's cell in a group of features, shape (n,)."""
    cells = np.zeros(len(codes), dtype=np.int64)
    for feature in group:
        cells = cells * radices[feature] + codes[:, feature]
    return cells


def multiply_into(table: Table, cells: Sequence[int], values: Sequence[mpz], modulus: mpz) -> None:
    """Multiply each value into its cell's product modulo `modulus`; a cell that is absent stands for 1."""
    for start in range(0, len(values), UNIT):
        end = start + UNIT
        for cell, value in zip(cells[start:end], values[start:end], strict=True):
            if cell in table:
                table[cell] = table[cell] * value % modulus
            else:
                table[cell] = value
        finish_unit()


def marginals(table: Table, group: Sequence[int], radices: Sequence[int], modulus: mpz) -> tuple[dict[int, Table], int]:
    """Split a group's joint products into one table per feature.

    Returns:
        Per feature its table bin → product, and the number of products computed.
    """
    if len(group) == 1:
        return {group[0]: table}, 0
    rest = np.fromiter(table.keys(), dtype=np.int64, count=len(table))
    codes = np.empty((len(table), len(group)), dtype=np.int64)
    for place in range(len(group) - 1, -1, -1):
        rest, codes[:, place] = np.divmod(rest, radices[group[place]])
    inner = [radices[feature] for feature in group]
    tables, products = feature_sums(list(table.values()), codes, inner, modulus)
    return {group[place]: tables[place] for place in range(len(group))}, products


def feature_sums(
    values: Sequence[mpz], codes: Codes, radices: Sequence[int], modulus: mpz, joint_cells: bool = True
) -> tuple[list[Table], int]:
    """Product of the values in each bin of each feature.

    Args:
        values: n ciphertexts.
        codes: their bins, shape (n, d).
        radices: number of bins of each feature.
        modulus: n² of the key.
        joint_cells: True if features may share joint cells; otherwise each feature is summed by itself.

    Returns:
        Per feature a table bin → product, without empty bins, and the number of products computed.
    """
    tables: dict[int, Table] = {}
    products = 0
    groups = plan(codes, radices) if joint_cells else [(feature,) for feature in range(len(radices))]
    for group in groups:
        table: Table = {}
        multiply_into(table, joint(codes, group, radices).tolist(), values, modulus)
        parts, inner = marginals(table, group, radices, modulus)
        tables.update(parts)
        products += len(values) - len(table) + inner
    return [tables[feature] for feature in range(len(radices))], products
