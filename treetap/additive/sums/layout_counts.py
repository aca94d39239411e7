"""Products of ciphertexts, counted by layout: the most that records, nodes and bins of these numbers can take.

The number that is computed depends on the data: on the bins that records share, on the entries that a mask keeps. A
party's account goes to the coordinator, so the account has these counts.
"""

from __future__ import annotations

from collections.abc import Sequence


def candidate_products(records: int, shapes: Sequence[tuple[int, bool]], nodes: int, workers: int) -> int:
    """Products for the candidates of the nodes of one level.

    Each of the tree's `records` enters one bin of each feature at most, whichever node it is in; the workers' bins are
    merged; each candidate takes one product. `shapes`: (n_bins, has_missing) of each feature.
    """
    bins = sum(count + missing for count, missing in shapes)
    candidates = sum(2 * count - 1 if missing else count - 1 for count, missing in shapes)
    return records * len(shapes) + nodes * ((workers - 1) * bins + candidates)


def masked_products(records: int, outgoing: Sequence[int]) -> int:
    """Products for the sums of the entries that go on as one; `outgoing`: the outgoing entry of each incoming one."""
    return records * (len(outgoing) - len(set(outgoing)))
