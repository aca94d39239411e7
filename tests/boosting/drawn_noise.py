"""The noise that parties draw for their sums (`column_privacy`), noted; and the model of all columns that follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.trees.repairs import by_number
from tests.worlds import PARTIES, World
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.party.defences.settings import Defences
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.growth.feature_party import OwnTree
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams


class Draw(NamedTuple):
    """The noise of one node: by whom, for which job and attempt, and where."""

    party: str
    job: str
    attempt: int
    tree: int
    node: int


class DrawnNoise:
    """The noise that parties have drawn.

    Attributes:
        sums: (job, party, tree, node) → the last draw, (candidates, S) in the canonical order.
        draws: how often noise was drawn.
        values: the draws as bytes, each with the number of its draws.
    """

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.sums: dict[tuple[str, str, int, int], npt.NDArray[np.int64]] = {}
        self.draws = Counter[Draw]()
        self.values = Counter[bytes]()
        draw = ColumnNoise.of

        async def drawn(noise: ColumnNoise, tree: OwnTree, stage: int, nodes: list[int]) -> Any:
            added = await draw(noise, tree, stage, nodes)
            context = noise._context
            if added is not None:
                order, places = tree.columns.order(1), added.reshape(len(nodes), -1, added.shape[1])
                for node, of_node in zip(nodes, places, strict=True):
                    kept = np.empty_like(of_node)
                    kept[order] = of_node
                    self.sums[context.job, context.party, tree.index, node] = kept
                    self.draws[Draw(context.party, context.job, context.attempt, tree.index, node)] += 1
                    self.values[kept.tobytes()] += 1
            return added

        patched.setattr(ColumnNoise, "of", drawn)

    def of(self, job: str, party: str, t: int, node: int) -> npt.NDArray[np.int64]:
        """The last draw of a node."""
        return self.sums[job, party, t, node]

    def attempts(self, party: str, job: str = "job") -> set[int]:
        """The attempts for which a party has drawn."""
        return {draw.attempt for draw in self.draws if (draw.party, draw.job) == (party, job)}


def central(
    here: World, params: BoostingParams, defences: Mapping[str, Defences], drawn: DrawnNoise, job: str = "job"
) -> centralised.CentralModel:
    """The model of all columns at hand with the noise that was drawn last."""
    tables = []
    for name, block in here.parties:
        tables.append((name, bin_table(block, [str(j) for j in range(block.shape[1])], params.max_bin)))
    outputs = params.outputs_per_tree(here.classes)
    noised = {}
    for party, own in defences.items():
        if (table := own.column_privacy) is not None:
            noise = ColumnPrivacy(table.epsilon, table.delta, table.trees).noise(params, outputs)
            noised[party] = noise, partial(drawn.of, job, party)
    return centralised.train(tables, here.y, params, here.classes, noised=noised)


def assert_drawn_model(
    states: Mapping[str, Path],
    here: World,
    params: BoostingParams,
    defences: Mapping[str, Defences],
    drawn: DrawnNoise,
    job: str = "job",
) -> list[Tree]:
    """Assert that the published trees are those of the noise that was drawn last, bit for bit; returns them."""
    expected = central(here, params, defences, drawn, job)
    shards = {party: read_model(states[party] / "models" / job)[1] for party in PARTIES if party in states}
    trees = [Tree.from_dict(line["tree"]) for line in shards[PARTIES[0]]]
    assert [by_number(tree) for tree in trees] == [by_number(tree) for tree in expected.ensemble.trees]
    for party, lines in shards.items():
        kept = [
            OwnSplit.from_dict(split) for line in lines for split in line["own" if party == PARTIES[0] else "splits"]
        ]
        assert [(split.feature, split.bin, split.missing_left) for split in kept] == [
            (candidate.feature, candidate.bin, candidate.missing_left) for candidate, _ in expected.splits[party]
        ]
    return trees
