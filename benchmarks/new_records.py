"""New records of a served model: time and CPU of a look-up, or what varied fields tell of a feature party's columns.

    python benchmarks/new_records.py [--rows 100000] [--asked 200] [--prediction eini-lattice]
    python benchmarks/new_records.py --varied

The first serves a model of 20 trees of depth 4 by processes of this machine, and has one client ask over HTTP, a record
at a time, about records of both tables, then about as many that the label holder lacks. The second takes XGBoost's
trees, which are those of a federation, on credit_default of TREETAP_DATA with 5 columns at the label holder: the share
of the other columns' directions of a record that lie on its way, for own fields of 1, 10, 100 other records.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import psutil  # type: ignore[import-untyped]
import xgboost

import treetap

#: Records of both tables that are served.
COMMON = 1000


def cpu_of(party: str) -> float:
    """CPU seconds of a party's process."""
    every = psutil.Process().children(recursive=True)
    own = (one for one in every if any(f"/{party}/" in file.path for file in one.open_files()))
    return sum(sum(one.cpu_times()[:2]) for one in own)


def looked_up(rows: int, asked: int, prediction: str) -> None:
    """Print the median time of an answer in milliseconds, and the CPU of the feature party, for both kinds."""
    rng = np.random.default_rng(1)
    values = pd.DataFrame(rng.normal(size=(rows + asked, 6)), columns=list("abcdef"))
    values.insert(0, "id", [f"c{number:08d}" for number in range(len(values))])
    tables = {"bank": values[["id", "a", "b", "c"]], "telco": values[["id", "d", "e", "f"]]}
    label = (values[list("abcdef")].sum(axis=1) > 0).astype(int)[:5000]
    policy = {"partners": {"*": {"look_ups_per_day": 1_000_000}}}
    with treetap.federation(["bank", "telco"], serve=True, policy=policy) as running:
        model = treetap.FederatedClassifier(
            label_holder="bank",
            n_estimators=20,
            max_depth=4,
            id_column="id",
            federation=running,
            scheme="lattice",
            prediction=prediction,
        )
        model.fit({party: table[:5000] for party, table in tables.items()}, label)
        began = time.perf_counter()
        with (
            model.serve({**tables, "bank": tables["bank"][:COMMON]}, look_up=True) as served,
            served.client() as client,
        ):
            print(f"serves after {time.perf_counter() - began:.1f} s; a list of {32 * (rows + asked - COMMON)} bytes")
            cells: list[dict[str, Any]] = values.loc[rows:, ["id", "a", "b", "c"]].to_dict("records")
            new = [{"id": one.pop("id"), "fields": one} for one in cells]
            for kind, asks in (("known", [{"ids": [name]} for name in values["id"][:asked]]), ("new", new)):
                times, before = list[float](), cpu_of("telco")
                for one in asks:
                    began = time.perf_counter()
                    found = client.predict(**one) if kind == "known" else client.predict(records=[one])
                    times.append(1000 * (time.perf_counter() - began))
                    assert list(found["status"]) == ["predicted"], found
                spent = 1000 * (cpu_of("telco") - before) / asked
                p50, p99 = np.quantile(times, [0.5, 0.99])
                print(f"{kind}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, CPU of telco {spent:.2f} ms")


def varied() -> None:
    """Print the share of the other columns' directions of a record that its ways show, by the number of requests."""
    table = pd.read_parquet(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
    label = "default.payment.next.month"
    x, own = table.drop(columns=[label, "ID"], errors="ignore").to_numpy(dtype=float), 5
    settings = {"objective": "binary:logistic", "max_depth": 4}
    model = xgboost.train(settings, xgboost.DMatrix(x, table[label]), 20)
    trees = [
        {node.ID: node for node in frame.itertuples() if node.Feature != "Leaf"}
        for _, frame in model.trees_to_dataframe().groupby("Tree")
    ]
    foreign = sum(int(node.Feature[1:]) >= own for tree in trees for node in tree.values())
    rng, shares = np.random.default_rng(1), {1: list[float](), 10: list[float](), 100: list[float]()}
    for record in rng.choice(len(x), 30, replace=False):
        shown = set[str]()
        for number, other in enumerate([record, *rng.choice(len(x), 99)], start=1):
            cells = np.concatenate([x[other, :own], x[record, own:]])
            for tree in trees:
                at = next(iter(tree))
                while (node := tree.get(at)) is not None:
                    feature = int(node.Feature[1:])
                    shown |= {at} if feature >= own else set()
                    at = node.Yes if cells[feature] < node.Split else node.No
            if number in shares:
                shares[number].append(len(shown) / foreign)
    print(", ".join(f"{number} requests: {np.mean(found):.1%}" for number, found in shares.items()))


def main() -> None:
    """Print the figures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--prediction", default="interactive")
    parser.add_argument("--varied", action="store_true")
    given = parser.parse_args()
    varied() if given.varied else looked_up(given.rows, given.asked, given.prediction)


if __name__ == "__main__":
    main()
