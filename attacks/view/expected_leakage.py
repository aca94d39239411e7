"""The expected views of a feature party, computed from the same model trained centrally.

Not an attack: it needs the whole model. A federation finds the centralised trainer's trees and sends a party the same
instance spaces, so these views equal those from transcripts, also for tables too large for repeated encryption.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treetap.attacks.view.known_trees import Ints, OwnSplit, TreeView, WholeCut, known_nodes
from treetap.errors import BadInput
from treetap.models.own_split import OwnSplit as MeaningOfSplit
from treetap.trees.ensemble import Tree
from treetap.trees.grower import CentralTrees

Floats = npt.NDArray[np.float64]


def expected_views(
    model: CentralTrees,
    blocks: Sequence[tuple[str, Floats]],
    party: str,
    columns: Sequence[str],
) -> tuple[TreeView, ...]:
    """The trees as `party` would see them, in training order.

    `blocks`: each party's columns of the training records (N, d), NaN where missing; `columns`: names of the party's
    own. The label holder relays the children that may be split further, unless the party made them itself; none where
    instance spaces are withheld.

    Raises:
        BadInput: a split is of a party that has no block, or `party` has none.
    """
    raw = dict(blocks)
    owners = {split.owner for tree in model.ensemble.trees for split in tree.splits} | {party}
    if absent := sorted(owners - raw.keys()):
        raise BadInput(f"the columns of {', '.join(absent)} are needed to follow the trees")
    return tuple(
        _tree(tree, model, raw, party, columns, nodes)
        for tree, nodes in zip(model.ensemble.trees, model.divisible, strict=True)
    )


def _tree(
    tree: Tree,
    model: CentralTrees,
    raw: dict[str, Floats],
    party: str,
    columns: Sequence[str],
    divisible: frozenset[int],
) -> TreeView:
    total = len(raw[party])
    if not model.params.takes_part(tree.index, party):  # it learns of the tree, but of no set of records
        nodes = known_nodes(np.arange(total, dtype=np.int64), {}, [])
        return TreeView(tree.index, 1, True, total, nodes, None)
    rows: dict[int, Ints] = {1: np.arange(total, dtype=np.int64)}
    received: dict[int, Ints] = {}
    own: list[tuple[OwnSplit, Ints, Ints]] = []
    whole: list[tuple[OwnSplit, Ints]] = []
    for split in sorted(tree.splits, key=lambda it: it.node):
        candidate, cut = model.entry(split)
        here = rows.pop(split.node)
        values = raw[split.owner][:, candidate.feature]
        everywhere = MeaningOfSplit.of(split.handle, split.node, candidate, cut).goes_left(values)
        left, right = here[everywhere[here]], here[~everywhere[here]]
        children = {2 * split.node: left, 2 * split.node + 1: right}
        rows |= children
        if split.owner == party:
            name = columns[candidate.feature]
            made = OwnSplit(
                split.node,
                split.handle,
                candidate.feature,
                name,
                max(candidate.bin, 0),  # as a transcript has it
                cut,
                candidate.missing_left,
                candidate.right or (),
            )
            if model.params.withheld:
                whole.append((made, np.flatnonzero(everywhere)))
            else:
                own.append((made, left, right))
        elif not model.params.withheld:
            received |= {node: part for node, part in children.items() if node in divisible}
    everybody = np.arange(total, dtype=np.int64)
    cuts = tuple(WholeCut(it.node, left, it) for it, left in whole)
    nodes = known_nodes(everybody, received, own, cuts=cuts)
    return TreeView(tree.index, 1, True, total, nodes, model.params.drawn(tree.index, total), cuts)
