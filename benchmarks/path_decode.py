"""Path decoding on credit default: for how many trees the label holder reads the whole path off a score.

    python benchmarks/path_decode.py [--trees 5 10 20 40] [--depth 4] [--holder-columns 5 12]
        [--records 200] [--fraction-bits 40] [--json]

Needs TREETAP_DATA (the folder with credit_default.parquet). The model is trained centrally, which gives the
federation's model, on 24,000 records. The label holder has the first columns (5 as in Fed-EINI, or 12, which leaves
most splits to it), two feature parties the others. Tried are records that the model has not seen. `score`: from the
decrypted score alone. `score + SHAP`: with attributions, where the players are the label holder's features and the
feature parties.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from path_options import Game, decode_explained, explained_options, explained_terms, score_options

from treetap import terminal
from treetap.attacks.predictions.decoding import Options, decode
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.candidates import column_goes_left
from treetap.trees.centralised import CentralModel, train
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.params import BoostingParams
from treetap.trees.paths import candidate_bits, candidate_leaves, output_bits, spare_bits

LABEL = "default.payment.next.month"
HOLDER, FEATURE_PARTIES = "label-holder", ("feature-b", "feature-c")
TRAINING = 24_000
#: Combinations of masks per tree up to which attributions are used.
MASKS = 2**14
Bools = npt.NDArray[np.bool_]


def read(path: Path, holder_columns: int) -> tuple[dict[str, npt.NDArray[np.float64]], npt.NDArray[np.int64]]:
    """The parties' columns and the labels, records in one random order."""
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != LABEL]
    order = np.random.default_rng(0).permutation(table.num_rows)
    x = np.stack([table.column(name).to_numpy() for name in names], axis=1).astype(np.float64)[order]
    columns = {HOLDER: x[:, :holder_columns]}
    for m, party in enumerate(FEATURE_PARTIES):
        columns[party] = x[:, holder_columns + m :: len(FEATURE_PARTIES)]
    return columns, table.column(LABEL).to_numpy()[order]


def decide(model: CentralModel, tables: dict[str, BinnedTable], split: Split) -> Bools:
    """Which of the tried records go left."""
    candidate, _ = model.entry(split)
    table = tables[split.owner]
    n_bins = table.features[candidate.feature].n_bins
    return column_goes_left(table.codes[:, candidate.feature], candidate, n_bins)


def player_of(model: CentralModel, split: Split) -> str:
    """The label holder's features one by one, each feature party as one."""
    return split.owner if split.owner != HOLDER else f"{HOLDER}:{model.entry(split)[0].feature}"


def masks_of(tree: Tree, n: int, goes_left: Callable[[Split], Bools], key: Callable[[Split], str]) -> dict[str, Bools]:
    """Candidate leaves (n, leaves) by player."""

    def of(player: str, split: Split) -> Bools | None:
        return goes_left(split) if key(split) == player else None

    return {player: candidate_leaves(tree, n, partial(of, player)) for player in {key(s) for s in tree.splits}}


def run(model: CentralModel, tables: dict[str, BinnedTable], n: int, bits: int, trees: int) -> list[dict[str, Any]]:
    """The first `trees` trees of the model, attacked record by record, by score and with attributions."""
    whole = model.ensemble
    ensemble = Ensemble(whole.objective, whole.classes, whole.base_margin, whole.trees[:trees], 1)
    goes_left, player = partial(decide, model, tables), partial(player_of, model)
    masks = [masks_of(tree, n, goes_left, player) for tree in ensemble.trees]
    known = [{p: mask for p, mask in each.items() if p not in FEATURE_PARTIES} for each in masks]
    own = [
        np.logical_and.reduce([np.ones((n, len(tree.leaves)), bool), *each.values()])
        for tree, each in zip(ensemble.trees, known, strict=True)
    ]
    own_columns = len(tables[HOLDER].features)
    players = tuple(f"{HOLDER}:{j}" for j in range(own_columns)) + FEATURE_PARTIES
    game = Game(player, players, FEATURE_PARTIES)
    reached = [candidate_leaves(tree, n, goes_left).argmax(axis=1) for tree in ensemble.trees]
    rows = []
    for name in ("score", "score + SHAP"):
        outcomes, seconds, right, opened = Counter[str](), [], True, []
        for i in range(n):
            mine = [{p: mask[i] for p, mask in each.items()} for each in known]
            scored = score_options(ensemble, [mask[i] for mask in own], bits)
            explained: list[Options] | None = None
            target = np.array([sum(_weight(t, r[i], bits) for t, r in zip(ensemble.trees, reached, strict=True))])
            if name != "score":
                explained = explained_options(ensemble, game, mine, bits, MASKS)
                target = np.sum(
                    [
                        explained_terms(ensemble, tree, game, mine[k], _remote(masks[k], i), 1, bits).terms[0]
                        for k, tree in enumerate(ensemble.trees)
                    ],
                    axis=0,
                )
            start = time.perf_counter()
            found = decode(scored, target[:1]) if explained is None else decode_explained(scored, explained, target)
            seconds.append(time.perf_counter() - start)
            outcomes[found.outcome] += 1
            opened.append(float((found.leaves >= 0).mean()))
            truth = [tree.leaves[r[i]].node for tree, r in zip(ensemble.trees, reached, strict=True)]
            right &= all(leaf in (-1, true) for leaf, true in zip(found.leaves.tolist(), truth, strict=True))
        rows.append(
            {
                "trees": trees,
                "holder_columns": own_columns,
                "from": name,
                "records": n,
                "fraction_bits": bits,
                "least_spare_bits": float(spare_bits(ensemble, [candidate_bits([mask]) for mask in own], bits).min()),
                "candidate_bits": float(np.median(candidate_bits(own))),
                "output_bits": output_bits(ensemble.trees, bits),
                **{outcome: outcomes[outcome] for outcome in ("unique", "several", "undecided", "none")},
                "share_of_leaves_known": statistics.mean(opened),
                "leaves_right": right,
                "seconds_per_record": statistics.mean(seconds),
            }
        )
    return rows


def _weight(tree: Tree, leaf: int, bits: int) -> int:
    return round(tree.leaves[leaf].weights[0] * 2.0**bits)


def _remote(masks: dict[str, Bools], i: int) -> dict[str, Bools]:
    return {party: masks[party][i : i + 1] for party in FEATURE_PARTIES if party in masks}


def report(rows: list[dict[str, Any]]) -> None:
    """The figures for a person."""
    found = ("unique", "several", "undecided", "leaves known", "s/record")
    table = terminal.table("columns", "trees", "from", "candidate bits", "output bits", "least spare", *found)
    for row in rows:
        table.add_row(
            str(row["holder_columns"]),
            str(row["trees"]),
            row["from"],
            f"{row['candidate_bits']:.1f}",
            f"{row['output_bits']:.1f}",
            f"{row['least_spare_bits']:.1f}",
            *(str(row[outcome]) for outcome in ("unique", "several", "undecided")),
            f"{row['share_of_leaves_known']:.0%}",
            f"{row['seconds_per_record']:.3f}",
        )
    terminal.out.print(table)
    wrong = [row for row in rows if not row["leaves_right"] or row["none"]]
    terminal.out.print("every decoded leaf is the one reached" if not wrong else f"WRONG: {wrong}")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, nargs="+", default=[5, 10, 20, 40])
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--holder-columns", type=int, nargs="+", default=[5, 12])
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--fraction-bits", type=int, default=40)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("path_decode: set TREETAP_DATA to the folder with credit_default.parquet")
    rows = []
    for holder_columns in given.holder_columns:
        path = Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet"
        columns, labels = read(path, holder_columns)
        names = {party: [str(j) for j in range(x.shape[1])] for party, x in columns.items()}
        binned = [(party, bin_table(x[:TRAINING], names[party], 32)) for party, x in columns.items()]
        params = BoostingParams(n_estimators=max(given.trees), max_depth=given.depth)
        model = train(binned, labels[:TRAINING], params)
        tried = {party: table.encode(columns[party][TRAINING : TRAINING + given.records]) for party, table in binned}
        for trees in given.trees:
            rows += run(model, tried, given.records, given.fraction_bits, trees)
    if given.as_json:
        print(json.dumps({"depth": given.depth, "rows": rows}, indent=1))
    else:
        report(rows)


if __name__ == "__main__":
    main()
