"""Write data/: the breast cancer table that ships with scikit-learn, measured by four hospitals.

Each hospital has a quarter of the measures of nearly all patients, and the diagnosis of those that it treats: the cell
of another hospital's patient is empty. Every fifth patient is new, to be predicted, and has no diagnosis anywhere.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path

from sklearn.datasets import load_breast_cancer

#: Hospital → n where it lacks every n-th patient whom another treats (0: it has all).
HOSPITALS = {"north": 0, "south": 37, "east": 0, "west": 41}
LABEL = "diagnosis"


def write(folder: Path) -> None:
    """Write one folder per hospital, with train.csv and predict.csv."""
    source = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in source.feature_names]
    new = range(0, len(source.target), 5)
    known = [patient for patient in range(len(source.target)) if patient not in new]
    draw = random.Random(2023)  # noqa: S311 - an order, no secret
    treated_by = {patient: draw.choice(list(HOSPITALS)) for patient in known}
    for number, (hospital, gap) in enumerate(HOSPITALS.items()):
        own = [p for place, p in enumerate(known, 1) if not gap or place % gap or treated_by[p] == hospital]
        columns = slice(number, None, len(HOSPITALS))
        (folder / hospital).mkdir(parents=True, exist_ok=True)
        for table, patients in (("train", own), ("predict", list(new))):
            label = [LABEL] if table == "train" else []
            rows: list[list[object]] = [["id", *names[columns], *label]]
            for patient in draw.sample(patients, len(patients)):
                diagnosis = str(source.target_names[source.target[patient]])
                cell = [diagnosis if treated_by[patient] == hospital else ""] if label else []
                rows.append([f"patient-{patient:03}", *source.data[patient, columns].tolist(), *cell])
            _write(folder / hospital / f"{table}.csv", rows)


def _write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", encoding="ascii", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    write(Path(__file__).resolve().parent / "data")
