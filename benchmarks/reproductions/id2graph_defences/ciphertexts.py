"""Ciphertexts of a training, counted from its trees: as the paper counts them, and as they go over this wire.

The paper: the labels of all records (forest) or the gradients of each tree (boosting), one ciphertext for each class or
for each g and h, and a ciphertext for each class, or g and h, of every candidate of every node that the feature party
works on. ID-LMID in boosting adds the labels of all records, once, and their sums. A node has as many candidates for a
column as it has quantiles: no more than `max_bin`, nor than it has drawn records.

On this wire a record is one ciphertext, candidates are packed, each node of a tree offers the same number, and in
boosting the larger sibling is not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from id2graph_trial import ATTACKER

from treetap.party.boosting import ciphers as boosting_layout
from treetap.party.forest import ciphers as forest_layout
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.tables.binned import bin_columns
from treetap.tables.reading import Table
from treetap.trees import sampling
from treetap.trees.centralised import CentralTrees
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.tree_bins import GlobalBins, NodeBins
from treetap.trees.withholding import Withholding

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counting:
    """The training to count. `reached`: tree number → the leaf (N,) of each record in the shape that all know."""

    model: CentralTrees
    table: Table
    classes: int
    withholding: Withholding
    reached: Callable[[int], Ints]

    @property
    def records(self) -> int:
        """N."""
        return len(self.table.ids)

    @property
    def shared(self) -> list[int]:
        """The trees in which the feature party takes part."""
        return [tree.index for tree in self.model.ensemble.trees if not self.withholding.grows_alone(tree.index)]

    @property
    def limited(self) -> bool:
        """Whether Eq. 6 is tested."""
        return self.withholding.xi is not None


def as_the_paper(it: Counting) -> dict[str, int]:
    """`records` and `candidates`."""
    params, c, columns = it.model.params, it.classes, 0
    candidates = 0
    for t in it.shared:
        columns = len(sampling.columns(params.seed, t, ATTACKER, it.table.features.shape[1], params.colsample_bytree))
        sizes = _sizes(it.reached(t), params.drawn(t, it.records))
        candidates += sum(columns * min(params.max_bin, sizes[node]) for node in it.model.divisible[t])
    if isinstance(params, ForestParams):
        return {"records": c * it.records * bool(it.shared), "candidates": c * candidates}
    assert isinstance(params, BoostingParams)
    values, extra = 2 * params.outputs(c), c * it.limited
    records = sum(values * int((params.drawn(t, it.records) > 0).sum()) for t in it.shared) + extra * it.records
    return {"records": records, "candidates": (values + extra) * candidates}


def on_the_wire(it: Counting, key_bits: int) -> dict[str, int]:
    """`records`, `candidates`, and `groups`, the candidates in a ciphertext of keys of `bits`."""
    params = it.model.params
    if isinstance(params, ForestParams):
        slots = forest_layout.layout(params, it.records, it.classes)
        records = it.records * bool(it.shared)
    else:
        assert isinstance(params, BoostingParams)
        outputs, classes = params.outputs_per_tree(it.classes), it.classes if it.limited else 0
        slots = boosting_layout.layout(params, it.records, outputs, classes)
        every = it.limited and it.withholding.shown
        records = sum(it.records if every else int((params.drawn(t, it.records) > 0).sum()) for t in it.shared)
    groups = slots.groups_per_plaintext(KeyKind(PAILLIER, key_bits).plain_bits)
    binned = bin_columns(it.table, params.max_bin, params.one_hot_below)
    candidates = 0
    for t in it.shared:
        kept = sampling.columns(params.seed, t, ATTACKER, it.table.features.shape[1], params.colsample_bytree)
        bins: GlobalBins | NodeBins
        if isinstance(params, ForestParams):
            assert params.binning == "per-node"
            bins = NodeBins(it.table.features, kept, params.drawn(t, it.records), params.max_bin)
            nodes = Counter(node.bit_length() for node in it.model.divisible[t] | {1})
            sums = 2 if it.limited and it.withholding.shown else 1
        else:
            bins, sums = GlobalBins(binned, kept), 1
            pairs = {max(node >> 1, 0) for node in it.model.divisible[t]}  # of two siblings one is sent
            nodes = Counter(pair.bit_length() for pair in pairs | {0})
        candidates += sum(-(-count * sums * len(bins.candidates) // groups) for count in nodes.values())
    return {"records": records, "candidates": candidates, "groups": groups}


def _sizes(reached: Ints, drawn: Ints) -> Counter[int]:
    """Node → its drawn records, each as often as it is drawn."""
    found: Counter[int] = Counter()
    counts = np.bincount(reached, weights=drawn).astype(np.int64)
    for leaf in np.flatnonzero(counts).tolist():
        node = leaf
        while node:
            found[node] += int(counts[leaf])
            node >>= 1
    return found
