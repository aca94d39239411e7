"""What the recipient of masked predictions finds: exact weights of leaves below its own splits, and paths of records.

    python benchmarks/reproductions/pivodl/recipient.py [--seeds 0] [--records 200] [--trees 5]

The model is the centralised one, which a federation equals bit for bit; the parties that keep leaves are drawn as in a
job. Each party in turn is the recipient of the scores of all test rows. Needs TREETAP_DATA.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cells import SPREAD, Cell  # noqa: E402
from worlds import Joined, experiment_of, joined  # noqa: E402

from treetap import terminal  # noqa: E402
from treetap.attacks.predictions.decoding import MaskedTree, decode_paths, invert, possible_leaves  # noqa: E402
from treetap.errors import BadInput, TreetapError  # noqa: E402
from treetap.party.masked.passing import FRACTION  # noqa: E402
from treetap.privacy.masks import encode  # noqa: E402
from treetap.trees.candidates import column_goes_left  # noqa: E402
from treetap.trees.centralised_pivodl import CentralPivodlModel, train  # noqa: E402
from treetap.trees.ensemble import ROOT  # noqa: E402
from treetap.trees.pivodl_params import PivodlParams  # noqa: E402
from treetap.trees.pivodl_rules import NONCE_BYTES, RoleDraws, barred  # noqa: E402

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def ways(model: CentralPivodlModel, t: int, here: Joined) -> tuple[dict[int, Bools], dict[int, Bools]]:
    """Node → the test rows that arrive at it; split → those that go left."""
    tables, tree = dict(here.after), model.trees[t]
    arrived: dict[int, Bools] = {ROOT: np.ones(len(here.truth), dtype=bool)}
    lefts: dict[int, Bools] = {}
    for node, split in sorted(tree.splits.items()):
        table = tables[split.source]
        column = table.codes[:, split.candidate.feature]
        left = column_goes_left(column, split.candidate, table.features[split.candidate.feature].n_bins)
        lefts[node] = left
        arrived[2 * node], arrived[2 * node + 1] = arrived[node] & left, arrived[node] & ~left
    return arrived, lefts


def keepers(model: CentralPivodlModel, t: int, draws: RoleDraws) -> dict[int, str]:
    """Leaf → the party that keeps its weight: the split party of the split above."""
    tree = model.trees[t]
    sources = {node: split.source for node, split in tree.splits.items()}
    openers = {}
    for node, split in tree.splits.items():
        level = node.bit_length()
        known = [
            leaf
            for leaf in tree.leaves
            if leaf.bit_length() < level or (leaf.bit_length() == level and leaf not in tree.divisible)
        ]
        openers[node] = draws.split_party(t, node, split.source, barred(node, sources, known))
    return {leaf: str(openers.get(leaf >> 1, "")) for leaf in tree.leaves}


def seen_by(party: str, model: CentralPivodlModel, here: Joined, draws: RoleDraws) -> tuple[list[MaskedTree], Ints]:
    """The trees as a recipient knows them, and the scores."""
    trees, scores = [], np.zeros((len(here.truth), model.params.width), dtype=np.int64)
    for t, tree in enumerate(model.trees):
        arrived, lefts = ways(model, t, here)
        keeper, leaves = keepers(model, t, draws), np.array(sorted(tree.leaves), dtype=np.int64)
        weights = np.stack([encode(tree.leaves[leaf], len(model.trees), FRACTION) for leaf in leaves.tolist()])
        weights = weights.astype(np.int64)
        scores += weights[np.stack([arrived[leaf] for leaf in leaves.tolist()], axis=1).argmax(axis=1)]
        own = [node for node, split in tree.splits.items() if split.source == party]
        held = {node: arrived[node] for node in [*own, *(leaf for leaf, name in keeper.items() if name == party)]}
        known = np.array([leaf == ROOT or tree.splits[leaf >> 1].source != party for leaf in leaves.tolist()])
        possible = possible_leaves(leaves, held, {node: lefts[node] for node in own}, len(here.truth))
        trees.append(MaskedTree(leaves, possible, np.where(known[:, np.newaxis], weights, 0), known))
    return trees, scores


def outcomes(trees: list[MaskedTree], scores: Ints, rows: Ints) -> Counter[str]:
    """How many records are decoded to which outcome; "weights unknown" where one is missing."""
    found: Counter[str] = Counter()
    for row in rows.tolist():
        decoded = decode_paths(trees, scores, row)
        found["weights unknown" if decoded is None else decoded.outcome] += 1
    return found


def measured(seed: int, count: int, trees: int) -> list[dict[str, Any]]:
    """A row per recipient."""
    cell = Cell("centralised", "credit", seed, trees=trees)
    here, params = joined(cell.set, seed, cell.parties, SPREAD), experiment_of(cell).job.params()
    assert isinstance(params, PivodlParams)
    model = train(here.before, here.labels.values, params, here.ownership)
    names = [name for name, _ in here.before]
    draws = RoleDraws(seed, names, {name: secrets.token_bytes(NONCE_BYTES) for name in names})
    rows = np.sort(np.random.default_rng(seed).choice(len(here.truth), count, replace=False))
    found = []
    for name in names:
        before, scores = seen_by(name, model, here, draws)
        after = invert(before, scores)
        truth = [
            {leaf: encode(weight, len(model.trees), FRACTION).astype(np.int64).tolist() for leaf, weight in it.items()}
            for it in (tree.leaves for tree in model.trees)
        ]
        gained = [
            (after[t].weights[k].tolist(), truth[t][int(leaf)])
            for t, tree in enumerate(before)
            for k, leaf in enumerate(tree.leaves)
            if after[t].known[k] and not tree.known[k]
        ]
        found.append(
            {
                "seed": seed,
                "recipient": name,
                "unknown": sum(int((~tree.known).sum()) for tree in before),
                "found": len(gained),
                "right": sum(one == other for one, other in gained),
                "paths": count,
                "unique before": outcomes(before, scores, rows)["unique"],
                "unique after": outcomes(after, scores, rows)["unique"],
            }
        )
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--records", type=int, default=200, help="test rows whose paths are decoded")
    parser.add_argument("--trees", type=int, default=5)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in given.seeds:
        rows += measured(seed, given.records, given.trees)
    shown = terminal.table(*rows[0])
    for row in rows:
        shown.add_row(*(str(value) for value in row.values()))
    terminal.out.print(shown)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TreetapError as failure:
        terminal.err.print(f"recipient.py: {failure}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2 if isinstance(failure, BadInput) else 1)
