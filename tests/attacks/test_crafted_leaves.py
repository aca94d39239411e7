"""A label holder with crafted leaves reads paths from one query of Fed-EINI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.oracle import OracleLeaf, OracleModel
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, spec, world
from treetap.models.own_split import ValuedTrees, valued_trees
from treetap.models.store import read_model
from treetap.party.growth import stored_trees
from treetap.party.prediction import tree_model
from treetap.protocols.prediction import predict_request
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams

LABEL_HOLDER = PARTIES[0]
PARAMS = BoostingParams(n_estimators=3, max_depth=3, max_bin=6, min_child_weight=0.1)
HERE = world(40, (1, 1, 1), seed=3, fresh=6)
ORACLE = HERE.oracle(PARAMS)
#: Tree and leaf (heap number) → the bit of a sum that says that the record ended there.
BITS = {
    place: bit
    for bit, place in enumerate(
        (number, node)
        for number, tree in enumerate(ORACLE)
        for node, it in tree.nodes.items()
        if isinstance(it, OracleLeaf)
    )
}


def crafted(tree: Tree) -> Tree:
    """The tree with a bit in the place of each weight."""
    bit = {leaf.node: 2.0 ** BITS[tree.index, leaf.node] for leaf in tree.leaves}
    return replace(tree, leaves=tuple(replace(leaf, weights=(bit[leaf.node],)) for leaf in tree.leaves))


def ends(model: OracleModel) -> list[set[tuple[int, int]]]:
    """Of each new record tree and leaf where it ends."""
    columns, reached = dict(HERE.newcomers), list[set[tuple[int, int]]]()
    for record in range(len(columns[LABEL_HOLDER])):
        places = set()
        for number, tree in enumerate(model):
            node = 1
            while not isinstance(split := tree.nodes[node], OracleLeaf):
                value = columns[split.owner][record, split.feature]
                left = split.missing_left if np.isnan(value) else value < split.cut
                node = 2 * node + (not left)
            places.add((number, node))
        reached.append(places)
    return reached


def read_off(federation: Federation, path: str) -> list[set[tuple[int, int]]]:
    """The leaves that the sum of each record names."""
    manifest, _ = read_model(federation.states[LABEL_HOLDER] / "models" / "job")
    scores = np.array(pq.read_table(path).column("score").to_pylist())
    sums = np.rint(scores - manifest["base_margin"][0]).astype(np.int64)
    return [{place for place, bit in BITS.items() if total >> bit & 1} for total in sums.tolist()]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("when", ["before the publication", "in a query"])
@pytest.mark.parametrize("protocol", ["eini", "eini-lattice"])
async def test_paths_are_read_off_one_query(
    protocol: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the leaves were crafted while trees were stored, or for the query alone."""
    if when == "in a query":

        def valued(*given: Any) -> ValuedTrees:
            made = valued_trees(*given)
            return replace(made, valued=tuple(map(crafted, made.valued)))

        monkeypatch.setattr(tree_model, "valued_trees", valued)
    else:
        add = stored_trees.StoredTrees.add

        def put(self: stored_trees.StoredTrees, index: int, content: dict[str, Any], *arrays: Any) -> None:
            if "own" in content:  # the label holder's
                content = {**content, "tree": crafted(Tree.from_dict(content["tree"])).to_dict()}
            add(self, index, content, *arrays)

        monkeypatch.setattr(stored_trees.StoredTrees, "add", put)

    assert len(BITS) >= 16
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(spec(PARAMS, obfuscation="standard"))).state == "finished"
    options = {} if protocol == "eini-lattice" else {"key_bits": 1024}
    status = finished(await federation.predict(predict_request(protocol, model="job", **options)))
    assert read_off(federation, status.predictions) == ends(ORACLE)
