"""Processor seconds of the trainers on a joined table, of this tree of sources and another in turn.

    python benchmarks/central_trainers.py --base FOLDER

Each run is a process of its own: 10 trees of depth 6 in 32 bins by two parties, boosting and forest, with bins of the
job and of each node. With `--base`, a folder with other sources (`git worktree add FOLDER COMMIT`), runs alternate, and
the medians of both and of the pairs' ratios are printed. Trees of both must be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TREES = 10
TRAINERS = ("boosting", "lossguide", "forest", "per-node")


def measure(trainer: str, records: int, columns: int) -> dict[str, str | float]:
    """Seconds of one training, and a digest of its trees but for the order of leaves."""
    import numpy as np

    from treetap.trees.binning import bin_table
    from treetap.trees.centralised import train, train_forest
    from treetap.trees.params import BoostingParams, ForestParams

    rng = np.random.default_rng(0)
    features = rng.normal(size=(records, columns))
    labels = (features @ rng.normal(size=columns) + rng.normal(size=records) > 0).astype(np.int64)
    half = columns // 2
    blocks = [("label", features[:, :half]), ("other", features[:, half:])]
    tables = [(name, bin_table(block, [str(j) for j in range(block.shape[1])], 32)) for name, block in blocks]
    start = time.process_time()
    if trainer in ("boosting", "lossguide"):
        leaves = 31 if trainer == "lossguide" else 0
        order = "lossguide" if leaves else "depthwise"
        trees = train(
            tables, labels, BoostingParams(n_estimators=TREES, max_leaves=leaves, grow_policy=order)
        ).ensemble.trees
    else:
        params = ForestParams(n_estimators=TREES, binning="per-node" if trainer == "per-node" else "global")
        trees = train_forest(blocks, labels, params, tables=tables).ensemble.trees
    seconds = time.process_time() - start
    shape = [(tree.splits, sorted(tree.leaves, key=lambda leaf: leaf.node)) for tree in trees]
    return {"seconds": seconds, "trees": hashlib.sha256(repr(shape).encode()).hexdigest()}


def main() -> None:
    """Print a line for each trainer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--columns", type=int, default=23)
    parser.add_argument("--one", choices=TRAINERS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one, asked.records, asked.columns)))
        return
    here = Path(__file__).resolve().parents[1]
    sources = [here] if asked.base is None else [here, asked.base.resolve()]
    size = ["--records", str(asked.records), "--columns", str(asked.columns)]

    def run(trainer: str, folder: Path) -> dict[str, str | float]:
        command = [sys.executable, __file__, "--one", trainer, *size]
        paths = {**os.environ, "PYTHONPATH": str(folder)}
        ended = subprocess.run(command, env=paths, cwd=folder, capture_output=True, text=True, check=True)
        return json.loads(ended.stdout)  # type: ignore[no-any-return]

    for trainer in TRAINERS:
        pairs = [[run(trainer, folder) for folder in sources] for _ in range(asked.pairs)]
        if len({one["trees"] for pair in pairs for one in pair}) > 1:
            sys.exit(f"{trainer}: the trees differ")
        seconds = [[float(one["seconds"]) for one in pair] for pair in pairs]
        medians = [statistics.median(of_source) for of_source in zip(*seconds, strict=True)]
        line = f"{trainer:10} {medians[0]:.3f} s"
        if asked.base is not None:
            ratios = [new / old for new, old in seconds]
            line += f", base {medians[1]:.3f} s, ratio {statistics.median(ratios):.2f}"
            line += f" ({min(ratios):.2f} to {max(ratios):.2f})"
        print(line)


if __name__ == "__main__":
    main()
