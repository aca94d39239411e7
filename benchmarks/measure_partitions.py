"""What the first winning set of categories tells its owner of labels that are independent of them: docs/threats.md.

    python benchmarks/measure_partitions.py

A thousand records, labels by coin, one column of categories of equally many records each. The owner of the column knows
the two sides of the root of the first tree, as after any split, and guesses one class for all records of a side. A cut
of the categories' places is compared with a partition.
"""

from __future__ import annotations

import numpy as np

from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

RECORDS, DRAWS, MOST = 1000, 50, 512


def main() -> None:
    """Print a line per number of categories."""
    print("categories  records of each   labels guessed: by a cut   by a partition")
    for categories in (10, 50, 100, 250):
        found = [np.mean([guessed(categories, seed, of_places=places) for seed in range(DRAWS)]) for places in (1, 0)]
        print(f"{categories:10d}  {RECORDS // categories:15d}   {found[0]:24.1%}   {found[1]:14.1%}")


def guessed(categories: int, seed: int, *, of_places: int) -> float:
    """The share of labels that the owner guesses; `of_places`: the column holds the places of categories as numbers."""
    labels = np.random.default_rng(seed).integers(0, 2, RECORDS)
    column = np.repeat(np.arange(categories, dtype=np.float64), RECORDS // categories)[:, None]
    table = bin_table(column, ["c"], MOST, categories={} if of_places else {"c": categories})
    params = BoostingParams(n_estimators=1, max_depth=1, max_bin=MOST, max_cat_threshold=MOST)
    tables = [("owner", table)]
    high = train(tables, labels, params).predict(tables)[:, 0] > 0
    same = float((high == labels).mean())
    return max(same, 1 - same)


if __name__ == "__main__":
    main()
