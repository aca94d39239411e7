"""Nodes that each stage of an interactive prediction asks about; they follow from the trees, never from the records.

Records that stand at a split of another party have passed the same number of such splits in their tree. That number is
the stage at which the node's owner is asked, even if no record stands there: the owners that are asked, how often, and
about which nodes, reveal nothing of a record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from treetap.trees.ensemble import ROOT, Split, Tree


@dataclass(frozen=True)
class StageNodes:
    """The nodes of one owner in one tree that a stage asks about.

    `tree`: its number among the used trees. `at_once`: at how many of the nodes one record can stand; more than one
    below splits of parties that are away, where it goes both ways.
    """

    tree: int
    splits: tuple[Split, ...]
    at_once: int


#: Owner → its nodes, tree by tree.
Stage = Mapping[str, Sequence[StageNodes]]


def stages_of(trees: Sequence[Tree], asking: str, away: Collection[str], *, per_tree: bool) -> list[Stage]:
    """The stages in their order: of all trees at once, or of one tree after the other.

    `asking`: the label holder, which follows its own splits by itself.
    """
    if per_tree:
        return [stage for number, tree in enumerate(trees) for stage in _stages({number: tree}, asking, away)]
    return _stages(dict(enumerate(trees)), asking, away)


def _stages(trees: Mapping[int, Tree], asking: str, away: Collection[str]) -> list[Stage]:
    stages: list[defaultdict[str, list[StageNodes]]] = []
    for number, tree in trees.items():
        for stage, by_owner in enumerate(_asked(tree, asking, away)):
            if stage == len(stages):
                stages.append(defaultdict(list))
            for owner, splits in by_owner.items():
                at_once = _at_once(tree, {split.node for split in splits}, away)
                stages[stage][owner].append(StageNodes(number, tuple(splits), at_once))
    return list(stages)


def _asked(tree: Tree, asking: str, away: Collection[str]) -> list[dict[str, list[Split]]]:
    """Splits of one tree by stage and owner, in the order of their nodes."""
    stages: list[dict[str, list[Split]]] = []
    passed = {ROOT: 0}  # node → splits of asked parties above it
    for split in sorted(tree.splits, key=lambda split: split.node):
        stage = passed[split.node]
        asked = split.owner != asking and split.owner not in away
        if asked:
            if stage == len(stages):
                stages.append({})
            stages[stage].setdefault(split.owner, []).append(split)
        passed[2 * split.node] = passed[2 * split.node + 1] = stage + asked
    return stages


def _at_once(tree: Tree, nodes: Collection[int], away: Collection[str]) -> int:
    """The most of these nodes that one record can stand at, if none of them is above another."""
    splits = {split.node: split for split in tree.splits}

    def most(node: int) -> int:
        if node in nodes or node not in splits:
            return int(node in nodes)
        below = most(2 * node), most(2 * node + 1)
        return sum(below) if splits[node].owner in away else max(below)

    return most(ROOT)
