"""Easy attacks, written apart from the audit's, beside the audit's own: no figure of an audit may be beaten by one.

    python benchmarks/beaten.py [--sets NAME …] [--ways NAME …] [--records 5000] [--trees 10] [--depth 4] [--json]

Two parties have the first and the second half of the columns, each in turn with the labels. The centralised trainer
gives the federation's trees, and what the feature party sees of them is read off. A row for each question: the best
easy attack, the audit's best, and the difference. Labels, by AUC, of several classes the mean of each against the rest,
either side: with the training, and before it by own columns alone.

The easy attacks know no label. Of own splits: the first, a vote of all turned to agree with the heaviest, and the first
principal component, with three discounts of trees; of leaves the first two components. Before: those of own columns.

breast_cancer comes with scikit-learn, loans with the project; the others need TREETAP_DATA, and are skipped without.
Ends with status 1 where an easy attack is better by more than the comparison allows. Needs the `audit` extra.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from attacks.known_labels.evidence import SignatureEvidence
from attacks.known_labels.labels import KnownLabels
from attacks.known_labels.schema import KnownSettings
from attacks.registry import Needs, rows
from attacks.view.expected_leakage import expected_views
from attacks.view.known_trees import TreeView
from treetap import terminal
from treetap.tables.labels import Labels
from treetap.trees import metrics
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.centralised_forest import train_forest
from treetap.trees.ensemble import ROOT
from treetap.trees.grower import CentralTrees
from treetap.trees.params import BoostingParams, ForestParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
HOLDER, PARTY = "label-holder", "feature-party"
LOANS = Path(__file__).parents[1] / "examples" / "loans" / "loans.csv"


class TableFile(NamedTuple):
    """A table: its file, below TREETAP_DATA unless it is whole (None: comes with scikit-learn), label and ids."""

    file: str | Path | None
    label: str
    ids: tuple[str, ...] = ()


SETS = {
    "breast_cancer": TableFile(None, "target"),
    "credit_default": TableFile("credit_default.parquet", "default.payment.next.month", ("ID",)),
    "bank": TableFile("bank_marketing.parquet", "y"),
    "loans": TableFile(LOANS, "defaulted", ("customer",)),
    "obesity": TableFile("obesity.parquet", "NObeyesdad"),
    "fars": TableFile("fars.parquet", "target"),
}
WAYS = ("boosting", "withheld", "forest")


@dataclass(frozen=True)
class Trained:
    """One training: columns (N, d) of both parties, classes (N,), and the feature party's view of the trees."""

    blocks: list[tuple[str, Floats]]
    labels: Ints
    trees: tuple[TreeView, ...]

    @property
    def own(self) -> Floats:
        """The feature party's columns."""
        return self.blocks[1][1]


class Best(NamedTuple):
    """The best attack of some and its figure; `every`: those of all."""

    name: str
    figure: float
    every: dict[str, float] | None = None


#: What a comparison finds of a training: question → the best easy attack, and the audit's.
Compare = Callable[[Trained], Iterator[tuple[str, Best, Best]]]


@dataclass(frozen=True)
class Comparison:
    """A kind of question. `allowed`: how much better an easy attack may be in its `measure`."""

    measure: str
    allowed: float
    compare: Compare


def main() -> int:
    """Measure, print, and judge; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="NAME")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="NAME")
    parser.add_argument("--records", type=int, default=5000, help="of a table, at most, drawn")
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    given = parser.parse_args()
    found = list[dict[str, Any]]()
    for name in given.sets:
        if (reason := absent(name)) is not None:
            print(f"{name}: skipped: {reason}", file=sys.stderr)
            continue
        columns, labels = table_of(name, given.records)
        for way in given.ways:
            for second in (False, True):
                with threadpool_limits(1):
                    found += compared(name, trained(columns, labels, way, given, second=second), way, second)
    if given.as_json:
        print(json.dumps(found, indent=1))
    else:
        report(found)
    beaten = [row for row in found if row["difference"] > row["allowed"]]
    for row in beaten:
        print(
            f"{row['set']}, {row['way']}, {row['holder']}: {row['question']}: {row['easy']} beats the audit",
            file=sys.stderr,
        )
    return int(bool(beaten))


def absent(name: str) -> str | None:
    """The reason why a table is not at hand; None where it is."""
    file = SETS[name].file
    if file is None or isinstance(file, Path):
        return None
    if "TREETAP_DATA" not in os.environ:
        return f"set TREETAP_DATA to the folder with {file}"
    return None if (Path(os.environ["TREETAP_DATA"]) / file).is_file() else f"TREETAP_DATA has no {file}"


def table_of(name: str, records: int) -> tuple[Floats, Ints]:
    """Columns (N, d), texts by number, and classes (N,) of a table; `records` drawn of a larger one."""
    it = SETS[name]
    if it.file is None:
        from sklearn.datasets import load_breast_cancer

        columns, labels = load_breast_cancer(return_X_y=True)
        return columns, labels.astype(np.int64)
    if isinstance(it.file, Path):
        table = pacsv.read_csv(it.file)
    else:
        table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / it.file)
    kept = np.sort(np.random.default_rng(0).permutation(table.num_rows)[:records])
    numbers = [numbered(table.column(column)) for column in table.column_names if column not in (it.label, *it.ids)]
    return np.stack(numbers, axis=1)[kept], numbered(table.column(it.label)).astype(np.int64)[kept]


def numbered(column: pa.ChunkedArray) -> Floats:
    """A column (N,) as numbers, NaN where missing; anything else by the order of its texts."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.asarray(column.cast(pa.float64()).to_numpy())
    return np.unique([str(value) for value in column.to_pylist()], return_inverse=True)[1].astype(np.float64)


def trained(columns: Floats, labels: Ints, way: str, given: argparse.Namespace, *, second: bool) -> Trained:
    """A training; `second`: the party with the second half of the columns has the labels."""
    labels = np.unique(labels, return_inverse=True)[1]
    first = np.arange(columns.shape[1]) < columns.shape[1] // 2
    halves = (columns[:, ~first], columns[:, first]) if second else (columns[:, first], columns[:, ~first])
    blocks, classes = list(zip((HOLDER, PARTY), halves, strict=True)), int(labels.max()) + 1
    common: dict[str, Any] = {"n_estimators": given.trees, "max_depth": given.depth, "max_bin": 32}
    if way == "forest":
        model: CentralTrees = train_forest(blocks, labels, ForestParams(**common), classes)
    else:
        more = {"instance_spaces": "withheld"} if way == "withheld" else {}
        more |= {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"} if classes > 2 else {}
        tables = [(name, bin_table(block, [str(j) for j in range(block.shape[1])], 32)) for name, block in blocks]
        model = train(tables, labels, BoostingParams(**common | more), classes)
    names = [str(j) for j in range(halves[1].shape[1])]
    return Trained(blocks, labels, expected_views(model, blocks, PARTY, names))


def compared(name: str, it: Trained, way: str, second: bool) -> Iterator[dict[str, Any]]:
    """The rows of one training."""
    for kind, comparison in COMPARISONS.items():
        start = time.process_time()
        for question, easy, own in comparison.compare(it):
            yield {
                "set": name,
                "way": way,
                "holder": "second half" if second else "first half",
                "question": f"{kind}, {question}",
                "measure": comparison.measure,
                "easy": easy.name,
                "easy_figure": easy.figure,
                "audit": own.name,
                "audit_figure": own.figure,
                "difference": easy.figure - own.figure,
                "allowed": comparison.allowed,
                "audit_every": own.every,
                "cpu_s": time.process_time() - start,
            }


def either_side(scores: Floats, labels: Ints) -> float:
    """The AUC of scores (N,), of several classes the mean of each against the rest, each by its better side."""
    classes = range(1, 2) if labels.max() == 1 else range(int(labels.max()) + 1)
    aucs = [metrics.auc(scores, (labels == number).astype(np.int64)) for number in classes]
    return float(np.mean([max(value, 1 - value) for value in aucs]))


def components(points: Floats, count: int) -> Floats:
    """Records (N, ≤ count) on the first principal components of points (N, k)."""
    centred = points - points.mean(axis=0)
    directions = np.linalg.eigh(centred.T @ centred)[1]  # ascending by variance
    return np.asarray(centred @ directions[:, ::-1][:, :count])


def by_splits(it: Trained) -> Iterator[tuple[str, Floats]]:
    """Scores (N,) by the sides of own splits."""
    cuts = [(tree, cut) for tree, view in enumerate(it.trees) for cut in view.own_cuts()]
    if not cuts:
        return
    sides = np.zeros((len(it.labels), len(cuts)))
    for place, (_, cut) in enumerate(cuts):
        sides[cut.left, place], sides[cut.right, place] = -1, 1
    for discount in (0.6, 0.8, 1.0):
        weights = np.array([discount**tree * 0.5 ** (cut.node.bit_length() - 1) for tree, cut in cuts])
        heaviest = sides[:, weights.argmax()]
        turned = np.sign((heaviest - heaviest.mean()) @ (sides - sides.mean(axis=0)))
        yield f"first split, {discount}", heaviest
        yield f"vote, {discount}", sides @ (weights * turned)
        yield f"component of splits, {discount}", components(sides * np.sqrt(weights), 1)[:, 0]


def by_leaves(it: Trained) -> Iterator[tuple[str, Floats]]:
    """Scores (N,) by the leaves that the party knows."""
    leaves = [(tree, leaf.records) for tree, view in enumerate(it.trees) for leaf in view.leaves() if leaf.node != ROOT]
    if not leaves:
        return
    inside = np.zeros((len(it.labels), len(leaves)))
    for place, (tree, records) in enumerate(leaves):
        inside[records, place] = 0.9**tree / np.sqrt(max(1, len(records)))
    for number, scores in enumerate(components(inside, 2).T, 1):
        yield f"component {number} of leaves", scores


def by_columns(it: Trained) -> Iterator[tuple[str, Floats]]:
    """Scores (N,) by own columns, a missing cell as the mean."""
    filled = np.where(np.isfinite(it.own), it.own, np.nanmean(it.own, axis=0))
    centred = filled - filled.mean(axis=0)
    points = centred / np.where(centred.std(axis=0) > 0, centred.std(axis=0), 1.0)
    for number, scores in enumerate(components(points, 2).T, 1):
        yield f"component {number} of columns", scores
    correlated = points.T @ points
    yield "vote of columns", points @ np.sign(correlated[(correlated**2).sum(axis=1).argmax()])


def labels_compared(it: Trained) -> Iterator[tuple[str, Best, Best]]:
    """Labels with the training and before it."""
    classes = [str(number) for number in range(int(it.labels.max()) + 1)]
    known = KnownLabels.of(len(it.labels), Labels(it.labels, classes), None)
    evidence = SignatureEvidence(it.trees, known, it.own, KnownSettings())
    for row in rows(Needs.KNOWN_LABELS).values():
        row.run(evidence)
    if evidence.obstacle:
        return
    own = {(attack, kind): named.auc for (attack, kind), named in evidence.named.items()}
    easy_ways = {
        "with the training": (*by_splits(it), *by_leaves(it)),
        "before it": tuple(by_columns(it)),
    }
    for question, ways in easy_ways.items():
        of_columns = question == "before it"
        audit = {
            f"{attack} ({kind})": value for (attack, kind), value in own.items() if ("columns" in kind) == of_columns
        }
        yield question, _best({name: either_side(scores, it.labels) for name, scores in ways}), _best(audit)


def _best(figures: dict[str, float]) -> Best:
    name = max(figures, key=figures.__getitem__)
    return Best(name, figures[name], figures)


#: Kind of question → how it is compared; a further kind is a row here.
COMPARISONS = {"labels": Comparison("AUC", 0.01, labels_compared)}


def report(found: list[dict[str, Any]]) -> None:
    """The rows for a person."""
    shown = terminal.table("set", "way", "labels at", "question", "easy attack", "", "audit's", "", "difference")
    for row in found:
        figures = (row["easy"], f"{row['easy_figure']:.3f}", row["audit"], f"{row['audit_figure']:.3f}")
        shown.add_row(row["set"], row["way"], row["holder"], row["question"], *figures, f"{row['difference']:+.3f}")
    terminal.out.print(shown)


if __name__ == "__main__":
    sys.exit(main())
