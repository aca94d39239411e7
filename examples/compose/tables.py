"""Write data/: the breast cancer table that ships with scikit-learn, split by columns between three parties.

Every fifth record is new, to be predicted. Of the others each feature party lacks a few, so that the parties have to
align their records. No two parties keep the records in the same order.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path

from sklearn.datasets import load_breast_cancer

#: Party → its columns, and n where it lacks every n-th training record (0: it has all).
PARTIES = {"label-holder": (slice(10, 20), 0), "feature-b": (slice(0, 10), 19), "feature-c": (slice(20, 30), 23)}
LABEL = "benign"


def write(folder: Path) -> None:
    """Write one folder per party, with train.csv and predict.csv."""
    source = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in source.feature_names]
    new = range(0, len(source.target), 5)
    known = [record for record in range(len(source.target)) if record not in new]
    for number, (party, (columns, gap)) in enumerate(PARTIES.items()):
        own = [record for place, record in enumerate(known, 1) if not gap or place % gap]
        (folder / party).mkdir(parents=True, exist_ok=True)
        for table, records in (("train", own), ("predict", list(new))):
            labelled = party == "label-holder" and table == "train"
            rows: list[list[object]] = [["id", *names[columns], *([LABEL] if labelled else [])]]
            for record in random.Random(number).sample(records, len(records)):  # noqa: S311 - an order, no secret
                label = [int(source.target[record])] if labelled else []
                rows.append([f"patient-{record:03}", *source.data[record, columns].tolist(), *label])
            _write(folder / party / f"{table}.csv", rows)


def _write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", encoding="ascii", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    write(Path(__file__).resolve().parent / "data")
