"""Products of ciphertexts, counted by layout: the most that records, nodes and bins of these numbers can take.

The number that is computed depends on the data: on the bins that records share, on the entries that a mask keeps. A
party's account goes to the coordinator, so the account has these counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from treetap.trees.shapes import Shape


def candidate_products(records: int, shapes: Sequence[Shape], nodes: int, workers: int) -> int:
    """Products for the candidates of the nodes of one level.

    Each of the tree's `records` enters one bin of each feature at most, whichever node it is in; the workers' bins are
    merged; each candidate takes one product, one of a category against the rest up to three. `shapes`: those of the
    features.
    """
    bins = sum(shape.n_bins + shape.has_missing for shape in shapes)
    candidates = sum(shape.products for shape in shapes)
    return records * len(shapes) + nodes * ((workers - 1) * bins + candidates)


def masked_products(records: int, outgoing: Sequence[int]) -> int:
    """Products for the sums of the entries that go on as one; `outgoing`: the outgoing entry of each incoming one."""
    return records * (len(outgoing) - len(set(outgoing)))
