"""AUC of models whose feature party adds noise to its sums: the trial of docs/column-privacy.md, whatever the scheme.

    python benchmarks/column_privacy.py [--set breast_cancer credit bank credit-2 generated] [--records N]
        [--epsilon 1 4 16 64] [--delta 1e-6] [--trees 20] [--depth 4] [--bins 32] [--seeds 3]
        [--protocol boosting] [--bootstrap]

The trainer on the joined table, 80 % of the records drawn by seed, AUC on the others, mean and deviation over seeds.
breast_cancer is of scikit-learn, generated is drawn (--records, 30,000 by default), the others need TREETAP_DATA. The
label holder has the first columns; "alone" is its model without the feature party, "exact" the one without noise.
Noise is drawn as a feature party draws it. Forests draw four fifths of the records, or as many as there are with
--bootstrap.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from party.forest.layout import noise_of as noise_of_forest
from treetap import terminal
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_sums, most_draws
from treetap.trees import metrics
from treetap.trees.binning import BinnedTable, bin_table, encode
from treetap.trees.candidates import CandidateList
from treetap.trees.centralised import train
from treetap.trees.centralised_forest import train_forest
from treetap.trees.noised_sums import NoisedParty, SumNoise
from treetap.trees.params import BoostingParams, ForestParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Set → file, label, columns of the label holder.
FILES = {
    "credit": ("credit_default.parquet", "default.payment.next.month", 5),
    "bank": ("bank_marketing.parquet", "y", 8),
    "credit-2": ("give_me_some_credit.parquet", "SeriousDlqin2yrs", 3),
}
HOLDER, PARTY = "holder", "party"


def case(name: str, records: int) -> tuple[Floats, Ints, int]:
    """Columns (n, d), labels (n,) and the number of the label holder's columns."""
    from sklearn import datasets

    if name == "breast_cancer":
        inputs, labels = datasets.load_breast_cancer(return_X_y=True)
        return inputs[:, :20], labels, 2
    if name == "generated":
        shape = {"n_informative": 12, "random_state": 1, "flip_y": 0.1, "class_sep": 0.7}
        inputs, labels = datasets.make_classification(records, 20, **shape)
        return inputs, labels, 10
    file, label, own = FILES[name]
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / file)
    columns = [_numbered(table.column(column)) for column in table.column_names if column != label]
    return np.stack(columns, axis=1), _numbered(table.column(label)).astype(np.int64), own


def _numbered(column: Any) -> Floats:
    values = column.to_numpy(zero_copy_only=False)
    return (np.unique(values, return_inverse=True)[1] if values.dtype == object else values).astype(np.float64)


def aucs(
    inputs: Floats,
    labels: Ints,
    own: int,
    params: BoostingParams | ForestParams,
    privacy: ColumnPrivacy | None,
    seeds: int,
) -> list[float]:
    """AUC by seed; privacy None: without noise."""
    reached = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(labels))
        before, after = np.split(order, [int(0.8 * len(labels))])
        blocks = {HOLDER: inputs[:, :own]} | ({PARTY: inputs[:, own:]} if own < inputs.shape[1] else {})
        tables = [
            (name, bin_table(block[before], [f"{name} {j}" for j in range(block.shape[1])], params.max_bin))
            for name, block in blocks.items()
        ]
        noised = {}
        if privacy is not None:
            noised[PARTY] = noised_party(tables[1][1], params, noise_of(params, privacy, len(before)))
        if isinstance(params, ForestParams):
            rows = [(name, block[before]) for name, block in blocks.items()]
            forest = train_forest(rows, labels[before], params, 2, tables, noised=noised)
            outcome = forest.predict([(name, block[after]) for name, block in blocks.items()])
        else:
            model = train(tables, labels[before], params, noised=noised)
            asked = [(name, encode(blocks[name][after], table.features)) for name, table in tables]
            outcome = model.ensemble.outcome(model.predict(asked))
        reached.append(metrics.evaluate(params.objective, outcome, labels[after])["auc"])
    return reached


def noise_of(params: BoostingParams | ForestParams, privacy: ColumnPrivacy, records: int) -> SumNoise:
    """The noise of a party on sums of two classes."""
    if isinstance(params, ForestParams):
        return noise_of_forest(params, privacy, 2, most_draws(params, PARTY, records))
    return privacy.noise(params, 1)


def noised_party(table: BinnedTable, params: BoostingParams | ForestParams, noise: SumNoise) -> NoisedParty:
    """The feature party with noise that is drawn for each node, in a tree's columns."""

    def drawn(tree: int, _node: int) -> Ints:
        kept = params.columns(tree, PARTY, len(table.features))
        sums: Ints = drawn_sums(CandidateList([table.features[j].shape for j in kept]), noise, 1)[0]
        return sums

    return NoisedParty(noise, drawn)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ["breast_cancer", *FILES, "generated"]
    parser.add_argument("--set", nargs="+", default=sets, choices=sets, dest="sets")
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--protocol", choices=("boosting", "forest"), default="boosting")
    parser.add_argument("--bootstrap", action="store_true", help="of a forest: draw with replacement")
    given = parser.parse_args()
    sizes = {"n_estimators": given.trees, "max_depth": given.depth, "max_bin": given.bins}
    params: BoostingParams | ForestParams = BoostingParams(**sizes)
    if given.protocol == "forest":
        params = ForestParams(**sizes, bootstrap=given.bootstrap, subsample=1.0 if given.bootstrap else 0.8)
    noises = [ColumnPrivacy(epsilon, given.delta, given.trees) for epsilon in given.epsilon]
    table = terminal.table("set", "records", "alone", "exact", *(f"ε {epsilon:g}" for epsilon in given.epsilon))
    for name in given.sets:
        inputs, labels, own = case(name, given.records)
        said: Callable[[list[float]], str] = lambda found: f"{np.mean(found):.3f} ± {np.std(found):.3f}"  # noqa: E731
        ways = [(inputs[:, :own], None), (inputs, None), *((inputs, privacy) for privacy in noises)]
        cells = [said(aucs(columns, labels, own, params, privacy, given.seeds)) for columns, privacy in ways]
        table.add_row(name, f"{len(labels):,}", *cells)
        terminal.out.print(table)
        sizes_of_noise = ", ".join(
            f"{float(noise_of(params, privacy, int(0.8 * len(labels))).variance) ** 0.5:.1f}" for privacy in noises
        )
        terminal.out.print(f"{given.protocol}, {name}: z {sizes_of_noise}")


if __name__ == "__main__":
    main()
