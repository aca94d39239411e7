"""Writes small tables of three parties: 400 customers to train on, 60 new ones. The bank knows who repaid.

For an audit of the bank: 40 customers to train on, of whom it is assumed to know the others' columns.
"""

from __future__ import annotations

import csv
import math
import random

COLUMNS = {
    "bank": ["income", "age", "tenure"],
    "telco": ["calls", "data", "roaming"],
    "shop": ["spent", "returns"],
}


def main() -> None:
    """Write the tables beside this file's copy, in the current folder."""
    draw = random.Random(7)  # noqa: S311 - made-up customers, the same at every run
    for table, count in (("train", 400), ("new", 60)):
        rows = [_customer(draw, f"{table}-{number:03d}") for number in range(count)]
        for party, columns in COLUMNS.items():
            names = ["id", *columns, *(["repaid"] if (party, table) == ("bank", "train") else [])]
            _write(f"{party}-{table}.csv", names, draw.sample(rows, len(rows)))
            if (party, table) in (("telco", "train"), ("shop", "train")):
                _write(f"{party}-known.csv", names, rows[:40])


def _write(path: str, names: list[str], rows: list[dict[str, object]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def _customer(draw: random.Random, name: str) -> dict[str, object]:
    """A customer of all three; whether one repays depends on what each party knows."""
    values = {column: draw.gauss(0, 1) for columns in COLUMNS.values() for column in columns}
    score = values["income"] + 1.2 * values["calls"] - values["returns"] + 0.8 * math.sin(2 * values["data"])
    repaid = "yes" if score + draw.gauss(0, 0.3) > 0 else "no"
    return {"id": name, **{column: f"{value:.3f}" for column, value in values.items()}, "repaid": repaid}


if __name__ == "__main__":
    main()
