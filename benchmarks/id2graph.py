"""Attacks on the leaves a feature party sees: seconds by step, peak memory, growth with the records, V-measure.

    python benchmarks/id2graph.py [--rows 80774 250000 1000000] [--attacks NAME …] [--strategy NAME] [--json]

Needs TREETAP_DATA (the folder with fars.parquet) and the `audit` extra. The model is boosted centrally: 5 rounds of
depth 6, columns split half and half by the seed, 80 % of the records; what the federation would show the party without
labels is read off its trees. Rows beyond these are synthetic: a record drawn again, with a tenth of its cells taken
from another. Every attack runs in a process of its own, whose peak resident memory is its own.

The ID2Graph paper's own experiments are in benchmarks/reproductions.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from rich.progress import Progress
from rich.table import Table

from treetap import terminal, usage
from treetap.arrays import Ints
from treetap.attacks.id2graph.schema import SEQUENTIAL_DISCOUNT, Settings
from treetap.attacks.registry import GROUPING, OWN_CUTS, attack
from treetap.attacks.scores import score
from treetap.attacks.view.known_trees import expected_views
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.params import BoostingParams

HOLDER, ATTACKER = "label-holder", "attacker"
SEED = 42
SHARE = 0.8
LIMIT_S = 3600
ATTACKS = [name for name in GROUPING if name != OWN_CUTS]


@dataclass(frozen=True)
class Case:
    """The input of an attack, and the labels to score it with."""

    leaves: list[list[Ints]]
    features: npt.NDArray[np.float64]
    labels: npt.NDArray[Any]
    clusters: int


def make_case(x: npt.NDArray[np.float64], y: npt.NDArray[Any], seed: int, strategy: str) -> Case:
    """Train on all rows of x (N, d) and y (N,) of classes 0..C−1, columns halved by the seed, and look on."""
    classes = int(y.max()) + 1
    varied = [j for j in range(x.shape[1]) if len(np.unique(x[:, j])) > 1]
    drawn = np.random.default_rng(seed).permutation(varied)
    half = len(drawn) // 2
    own = {HOLDER: np.sort(drawn[:half]), ATTACKER: np.sort(drawn[half:])}
    tables = [(name, bin_table(x[:, columns], [str(j) for j in columns], 32)) for name, columns in own.items()]
    params = BoostingParams(
        objective="binary:logistic" if classes == 2 else "multi:softprob",
        n_estimators=5,
        max_depth=6,
        max_bin=32,
        learning_rate=0.3,
        reg_lambda=1.0,
        colsample_bytree=0.8,
        multi_strategy=strategy,
        seed=seed,
    )
    model = centralised.train(tables, y, params, classes)
    blocks = [(name, x[:, columns]) for name, columns in own.items()]
    views = expected_views(model, blocks, ATTACKER, [str(j) for j in own[ATTACKER]])
    return Case([[leaf.records for leaf in view.leaves()] for view in views], blocks[1][1], y, classes)


def fars(rows: int, seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
    """`rows` records of the training part of the set, or drawn anew if it has fewer."""
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "fars.parquet")
    y = table.column("target").to_numpy()
    x = np.stack([table.column(name).to_numpy() for name in table.column_names if name != "target"], axis=1)
    draw = np.random.default_rng(seed)
    part = draw.permutation(len(y))[: int(SHARE * len(y))]
    if rows <= len(part):
        kept = np.sort(part[:rows])
        return x[kept].astype(np.float64), y[kept]
    one, other = draw.choice(part, rows), draw.choice(part, rows)
    taken = np.stack([np.where(draw.random(rows) < 0.1, column[other], column[one]) for column in x.T], axis=1)
    return taken.astype(np.float64), y[one]


def run_here(path: Path, name: str) -> dict[str, Any]:
    """One attack on a stored case: the child's work."""
    with path.open("rb") as file:
        case: Case = pickle.load(file)
    before = usage.measure().peak_rss_mb
    start = time.perf_counter()
    settings = Settings(discount=SEQUENTIAL_DISCOUNT)
    found = attack(name, case.leaves, len(case.labels), case.features, case.clusters, settings)
    wall = time.perf_counter() - start
    peak = usage.measure().peak_rss_mb
    return {
        "attack": name,
        "records": len(case.labels),
        "trees": len(case.leaves),
        "leaves": sum(len(tree) for tree in case.leaves),
        "wall_s": wall,
        "seconds": found.seconds,
        "peak_mb": peak,
        "loaded_mb": before,
        "vertices": found.vertices,
        "groups": found.found,
        "modularity": found.modularity,
        "scores": asdict(score(case.labels, found.clusters)),
        "group_scores": None if found.groups is None else asdict(score(case.labels, found.groups)),
    }


def run_apart(case: Case, names: list[str], advance: Any) -> list[dict[str, Any]]:
    """The attacks on one case, each in a process of its own."""
    found = []
    with tempfile.TemporaryDirectory(prefix="treetap-attacks-") as folder:
        path = Path(folder) / "case"
        path.write_bytes(pickle.dumps(case))
        for name in names:
            command = [sys.executable, __file__, "--case", str(path), "--attacks", name]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            if ended.returncode:
                raise SystemExit(f"{name} on {len(case.labels):,} records: {ended.stderr.strip()}")
            found.append(json.loads(ended.stdout))
            advance()
    return found


def grow(rows: list[int], names: list[str], strategy: str) -> list[dict[str, Any]]:
    """Every attack at every size."""
    found: list[dict[str, Any]] = []
    with Progress(console=terminal.err, transient=True) as bars:
        bar = bars.add_task("attacks", total=len(rows) * (len(names) + 1))
        for count in rows:
            bars.update(bar, description=f"{count:,} records")
            case = make_case(*fars(count, SEED), SEED, strategy)
            bars.advance(bar)
            found += run_apart(case, names, lambda: bars.advance(bar))
    return found


def report(found: list[dict[str, Any]]) -> None:
    """The growth table."""
    table = Table(
        "attack", "records", "trees", "leaves", "vertices", "groups", "Q", "graph s", "communities s", "k-means s"
    )
    for title in ("wall s", "peak MiB", "V"):
        table.add_column(title)
    for row in found:
        steps = [row["seconds"].get(step) for step in ("graph", "communities", "clustering")]
        table.add_row(
            row["attack"],
            f"{row['records']:,}",
            str(row["trees"]),
            str(row["leaves"]),
            "" if row["vertices"] is None else f"{row['vertices']:,}",
            "" if row["groups"] is None else f"{row['groups']:,}",
            "" if row["modularity"] is None else f"{row['modularity']:.3f}",
            *("" if each is None else f"{each:.2f}" for each in steps),
            f"{row['wall_s']:.1f}",
            f"{row['peak_mb']:.0f}",
            f"{row['scores']['v_measure']:.3f}",
        )
    terminal.out.print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[80_774, 250_000, 1_000_000])
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, metavar="NAME", help=", ".join(ATTACKS))
    strategies = ("multi_output_tree", "one_output_per_tree")
    parser.add_argument("--strategy", choices=strategies, default=strategies[0], help="5 trees, or 5 per class")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    parser.add_argument("--case", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(run_here(given.case, given.attacks[0])))
        return
    if "TREETAP_DATA" not in os.environ:
        sys.exit("id2graph: set TREETAP_DATA to the folder with fars.parquet")
    found = grow(given.rows, given.attacks or [name for name in ATTACKS if name != "id2graph"], given.strategy)
    if not given.as_json:
        report(found)
        return
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
