"""Sums over the left side of every candidate, and over categories that are partitioned, in exact integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.trees.candidates import CandidateList
from treetap.trees.shapes import Shape

Ints = npt.NDArray[np.int64]


def left_sums(
    codes: npt.NDArray[Any],
    shapes: Sequence[tuple[int, bool] | Shape] | CandidateList,
    values: Ints,
    nodes: Sequence[npt.NDArray[Any]],
) -> Ints:
    """Σ of values over the records of a node that a candidate sends left, or that have a category of `groups`.

    codes (N, d) bin numbers, values (N, S) int64, nodes: row numbers of each node. Returns (nodes, candidates, S)
    int64, exact while every sum over a node stays within int64 (see `loss`).
    """
    candidates = shapes if isinstance(shapes, CandidateList) else CandidateList(shapes)
    width = int(candidates.cell[-1])
    slots = values.shape[1]
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *nodes]).astype(np.int64, copy=False)
    base: Ints | int = 0 if len(nodes) == 1 else np.repeat(np.arange(len(nodes)) * width, [len(node) for node in nodes])
    picked = [np.ascontiguousarray(values[rows, s]) for s in range(slots)]
    cells = np.zeros((slots, len(nodes) * width), dtype=np.int64)
    for f in range(len(candidates.shapes)):
        index = base + candidates.cell[f] + codes[rows, f]
        for s in range(slots):
            np.add.at(cells[s], index, picked[s])
    return _accumulate(cells.reshape(slots, len(nodes), width), candidates)


def _accumulate(cells: Ints, candidates: CandidateList) -> Ints:
    """Histogram cells (S, nodes, width) → left sums (nodes, candidates, S).

    One cumulative sum runs over all features; its start per feature is taken off again. It may wrap around int64 when
    there are many features, which the subtraction undoes: both are arithmetic modulo 2^64.
    """
    slots, nodes, width = cells.shape
    running = np.zeros((slots, nodes, width + 1), dtype=np.int64)
    np.cumsum(cells, axis=2, out=running[:, :, 1:])
    start = candidates.cell[candidates.feature]
    missing = candidates.cell[candidates.feature + 1] - 1
    left = running[:, :, start + candidates.bin + 1] - running[:, :, start]
    if candidates.one_hot.any() or candidates.groups:
        category = cells[:, :, start + candidates.bin]
        present = running[:, :, missing] - running[:, :, start]
        left = np.where(candidates.one_hot, present - category, np.where(candidates.grouped, category, left))
    left += np.where(candidates.missing_left, cells[:, :, missing], 0)
    return np.ascontiguousarray(np.moveaxis(left, 0, 2))
