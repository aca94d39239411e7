"""An additive model beside 20 trees of depth 4: AUC, what others can learn, and processor time, by whole federations.

    python benchmarks/additive.py [--sets loans credit_default bank_marketing] [--rounds 20 40 100] [--seeds 0]

Each is one run of `treetap experiment`, its keys of 2048 bits. `loans` is that of examples/loans; of the
others, which need TREETAP_DATA, at most 15,000 records, two parties with half of the columns. A line of JSON each:
`auc` of held-out records, `alone` that of the label holder; `verdicts` on the feature party as a reader of labels and
on the label holder as one of columns, with the best guess before and after; `cells` that it placed, by left sets alone
and by all that it opened; `cpu` seconds of all processes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import measured_frontiers as frontiers
import pyarrow.parquet as pq

from treetap.lab.experiment.baselines import ALONE
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.kept import opened
from treetap.lab.experiment.run import run_seed

LOANS = Path(__file__).resolve().parents[1] / "examples" / "loans"
PARTIES = [{"name": "bank", "labels": True, "share": 0.5}, {"name": "telco", "share": 0.5}]
frontiers.SETS |= {
    "bank_marketing": frontiers.PublicTable("bank_marketing.parquet", "y"),
    "give_me_some_credit": frontiers.PublicTable("give_me_some_credit.parquet", "SeriousDlqin2yrs"),
}


def measured(name: str, job: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """The row of one run."""
    file = tomllib.loads((LOANS / "exp.toml").read_text(encoding="utf-8"))
    file["data"]["path"] = str(LOANS / "loans.csv")
    if name != "loans":
        pq.write_table(frontiers.table_of(name), path := folder / f"{name}.parquet")
        file = {"data": {"path": str(path), "label": frontiers.SETS[name].label, "encode": "ordinal"}, "party": PARTIES}
    kept = opened(ExperimentFile.model_validate(file | {"job": job}), folder / "kept", base=folder, place="empty")
    run = run_seed(kept.experiment, kept.table, seed, folder / "run", title=name)
    (read,) = (figures for it in (run.audit or {}).values() for figures in it.get("columns_read", {}).values())
    return {
        **{"set": name, "seed": seed, **job, "auc": run.metrics["test"]["auc"], "alone": run.metrics[ALONE]["auc"]},
        "verdicts": {it.learned: (it.before, it.after, it.measure, it.word) for it in run.verdicts},
        "cells": [it and it["placed"] for it in (read["left_sets"], read["together"] or read["differences"])],
        **{"placed_after": read.get("placed_after"), "cpu": round(sum(run.cpu_seconds.values()), 1)},
    }


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["loans", "credit_default", "bank_marketing"])
    parser.add_argument("--rounds", nargs="+", type=int, default=[20, 40, 100])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    given = parser.parse_args()
    additive = [{"model": "additive", "n_estimators": rounds} for rounds in given.rounds]
    for name in given.sets:
        several = {"objective": "multi:softprob"} if name in ("obesity", "fars") else {}
        for seed, job in itertools.product(given.seeds, [{"n_estimators": 20, "max_depth": 4}, *additive]):
            with tempfile.TemporaryDirectory(prefix="treetap-additive-") as folder:
                print(json.dumps(measured(name, several | job, seed, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
