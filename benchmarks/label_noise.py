"""The share of labels that LP-MST leaves as they are, and the time of a draw, on half the columns of each data set.

    python benchmarks/label_noise.py [--draws 5]

Needs TREETAP_DATA (the folder with obesity.parquet, credit_default.parquet and fars.parquet) and scikit-learn. The
label holder has every other column, text as numbers. Draws are the operating system's: shares vary by about 0.01 in
thousands of records, more in fewer.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.datasets import load_breast_cancer

from treetap import terminal
from treetap.privacy.label_dp import staged
from treetap.protocols.own_priors import by_own_trees
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

FILES = {"obesity": "NObeyesdad", "credit_default": "default.payment.next.month", "fars": "target"}
STAGES = (1, 2, 4)
EPSILONS = (0.5, 1.0, 2.0)


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5, help="of sets with fewer than 10,000 records; one of others")
    draws = parser.parse_args().draws
    if "TREETAP_DATA" not in os.environ:
        sys.exit("label_noise: set TREETAP_DATA to the folder with fars.parquet")
    shown = terminal.table("data", "records", "classes", "stages", *(f"ε {each:g}" for each in EPSILONS), "seconds")
    for name, features, labels in _sets():
        classes, n = int(labels.max()) + 1, len(labels)
        names = [str(place) for place in range(features.shape[1])]
        table = Table(Path(name), Ids.of(map(str, range(n))), names, Held(features), None, np.arange(n))
        for stages in STAGES:
            kept, seconds = [], []
            for epsilon in EPSILONS:
                begun, count = time.perf_counter(), draws if n < 10_000 else 1
                drawn = [
                    staged(labels, classes, epsilon, stages, by_own_trees(table, classes).of) for _ in range(count)
                ]
                seconds.append((time.perf_counter() - begun) / count)
                kept.append(np.mean([np.mean(each == labels) for each in drawn]))
            cells = (name, n, classes, stages, *(f"{each:.2f}" for each in kept), f"{max(seconds):.1f}")
            shown.add_row(*map(str, cells))
    terminal.out.print(shown)


def _sets() -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Name, columns (N, d) and class numbers (N,)."""
    cancer = load_breast_cancer()
    yield "breast cancer", cancer.data[:, ::2], cancer.target.astype(np.int64)
    for name, label in FILES.items():
        table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / f"{name}.parquet")
        columns = {column: _numbers(table[column].to_numpy()) for column in table.column_names}
        labels = np.unique(columns.pop(label), return_inverse=True)[1].astype(np.int64)
        yield name, np.column_stack(list(columns.values()))[:, ::2], labels


def _numbers(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.dtype == object:
        values = np.unique(values.astype(str), return_inverse=True)[1]
    return values.astype(np.float64)


if __name__ == "__main__":
    main()
