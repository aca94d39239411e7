"""Attacks by few known labels on trees of public tables: what the training told, and what was there before it.

    python benchmarks/known_labels.py [--sets NAME …] [--protocols NAME …] [--records 5000] [--trees 20] [--seeds 3]
        [--known 40] [--json]

Two parties have half of the columns each, by the seed. The centralised trainer gives the federation's trees, and what
the feature party sees of them is read off. AUCs by nodes, by the party's own columns alone, and of two controls:

- reassigned: the trees stay, and labels are exchanged between records that look alike in the party's own columns.
- anew: trees are trained on labels that were assigned at random, with as many of each class: no column says anything
  of them, so that what the attack scores there the training alone has told. This is the task reassignment of
  arXiv 2603.18680 as far as its abstract tells: train on a task that features are not aligned with, then attack it.

Needs the `audit` extra, and TREETAP_DATA, the folder of the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from id2graph_sets import SETS, table_of

from treetap import terminal
from treetap.attacks.id2graph.schema import KnownLabelResult, KnownSettings
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import KnownLabels
from treetap.attacks.registry import Needs, rows
from treetap.attacks.view.known_trees import expected_views
from treetap.tables.labels import Labels
from treetap.trees.binning import bin_table
from treetap.trees.centralised import CentralTrees, train, train_forest
from treetap.trees.params import BoostingParams, ForestParams

sys.path.insert(0, str(Path(__file__).parent / "reproductions"))

HOLDER, PARTY = "label-holder", "feature-party"
NAMES = ("breastcancer", "obesity", "credit_default")
PROTOCOLS = ("boosting", "forest")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def table(name: str, records: int) -> tuple[Floats, Ints]:
    """The first records of a set, which is shuffled: columns (N, d) and classes (N,) from 0."""
    content, label = table_of(name).slice(0, records), SETS[name].label
    columns = [content.column(column).to_numpy() for column in content.column_names if column != label]
    return np.stack(columns, axis=1).astype(np.float64), np.unique(content.column(label), return_inverse=True)[1]


def attacked(
    x: Floats, y: Ints, protocol: str, trees: int, seed: int, known: int
) -> tuple[dict[str, KnownLabelResult], float]:
    """Both attacks on one training, by name, and their processor seconds."""
    order, half = np.random.default_rng(seed).permutation(x.shape[1]), x.shape[1] // 2
    blocks = [(HOLDER, x[:, np.sort(order[:half])]), (PARTY, x[:, np.sort(order[half:])])]
    classes = int(y.max()) + 1
    if protocol == "forest":
        of_forest = ForestParams(n_estimators=trees, max_depth=6, max_bin=32, seed=seed)
        model: CentralTrees = train_forest(blocks, y, of_forest, classes)
    else:
        tables = [(name, bin_table(block, [str(j) for j in range(block.shape[1])], 32)) for name, block in blocks]
        objective = "binary:logistic" if classes == 2 else "multi:softprob"
        params = BoostingParams(objective=objective, n_estimators=trees, max_depth=6, max_bin=32, seed=seed)
        model = train(tables, y, params, classes)
    views = expected_views(model, blocks, PARTY, [str(j) for j in range(x.shape[1] - half)])
    labels = KnownLabels.of(len(y), Labels(y, [str(number) for number in range(classes)]), None)
    start = time.process_time()
    evidence = SignatureEvidence(views, labels, blocks[1][1], KnownSettings(known=known, seed=seed))
    every = {name: row.run(evidence) for name, row in rows(Needs.KNOWN_LABELS).items()}
    results = {name: it for name, it in every.items() if isinstance(it, KnownLabelResult)}  # others know no label
    assert not evidence.reasons, evidence.reasons
    return results, time.process_time() - start


def measured(name: str, protocol: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The figures of both attacks, means over the seeds."""
    x, y = table(name, given.records)
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(given.seeds):
        told, seconds = attacked(x, y, protocol, given.trees, seed, given.known)
        shuffled = np.random.default_rng([seed, 1]).permutation(y)
        anew, _ = attacked(x, shuffled, protocol, given.trees, seed, given.known)
        for attack, result in told.items():
            assert result.columns is not None
            assert result.reassigned_columns is not None
            figures = {
                "nodes": result.nodes.auc.mean,
                "columns": result.columns.auc.mean,
                "reassigned": result.reassigned.auc.mean,
                "columns, reassigned": result.reassigned_columns.auc.mean,
                "anew": anew[attack].nodes.auc.mean,
                "precision": result.nodes.precision.mean,
                "processor s, both": seconds,
            }
            found.setdefault(attack, []).append(figures)
    return [
        {"set": name, "protocol": protocol, "attack": attack, "records": len(y), "trees": given.trees}
        | {key: float(np.mean([figures[key] for figures in of_seeds])) for key in of_seeds[0]}
        for attack, of_seeds in found.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(NAMES), metavar="NAME")
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS), metavar="NAME")
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--known", type=int, default=40)
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    given = parser.parse_args()
    lines = [line for name in given.sets for protocol in given.protocols for line in measured(name, protocol, given)]
    if given.as_json:
        print(json.dumps(lines, indent=1))
        return
    shown = terminal.table(*lines[0])
    for line in lines:
        shown.add_row(*(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in line.values()))
    terminal.out.print(shown)


if __name__ == "__main__":
    main()
