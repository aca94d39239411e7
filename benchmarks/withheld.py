"""Withheld instance spaces beside other ways to hide labels: what either side reads, AUC, seconds and bytes.

    python benchmarks/withheld.py [--sets NAME …] [--modes NAME …] [--records N] [--trees N] [--depth N]
        [--seconds S] [--json]

Boosting on a lattice by a federation on this machine, two parties with half of the columns each. `sent`: the label
holder relays instance spaces; `withheld`: it does not; `padded`: all trees look full, too; `id_lmid` (ξ 0.5) and
`label_dp` (ε 1, two stages) with spaces sent. Of each the audit:

- the label from the feature party's transcript: V-measure of its own columns (CL), of the best attack, which is named,
  and of the sides of own splits; AUC by 40 known labels and own columns alone (by the sets and sides that it knows);
- the feature party's cells from the label holder's transcript: placed in their bins by all equations, by left sets
  alone; known to lie between two neighbouring learned cuts, and the cuts learned.

AUC is that of held-out records; of label_dp with the leaf weights refitted too. Seconds are the processor time of all
processes of the job, bytes all that was sent. The sets are those of `measured_frontiers.py`, which need TREETAP_DATA;
of larger ones --records are drawn. Needs the `audit` extra.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import measured_frontiers
import pyarrow as pa
import pyarrow.parquet as pq
from measured_frontiers import HOLDER, OTHER, SETS, table_of
from measured_trainings import TRAINING

from treetap import terminal
from treetap.attacks.registry import OWN_CUTS
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.results import RunResult
from treetap.lab.experiment.run import run_seed
from treetap.protocols.key_options import LATTICE

#: Mode → what differs from `sent`: keys of the job, defences of labels.
MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sent": ({}, {}),
    "withheld": ({"instance_spaces": "withheld"}, {}),
    "padded": ({"instance_spaces": "withheld", "pad_trees": True}, {}),
    "id_lmid": ({}, {"id_lmid": {"xi": 0.5}}),
    "label_dp": ({}, {"label_dp": {"epsilon": 1.0, "stages": 2}}),
}
ATTACKS = ["cl", "uni", "uni+cl", "id2graph-quotient", OWN_CUTS]


def experiment(name: str, path: Path, mode: str, classes: int, given: argparse.Namespace) -> ExperimentFile:
    """The federation of a set in a mode."""
    job, defences = MODES[mode]
    several = {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"} if classes > 2 else {}
    common = {"protocol": "boosting", "scheme": LATTICE, "n_estimators": given.trees, "max_depth": given.depth}
    return ExperimentFile.model_validate(
        {
            "data": {"path": str(path), "label": SETS[name].label, "encode": "ordinal"},
            "party": [
                {"name": HOLDER, "labels": True, "share": 0.5, "record": "received"},
                {"name": OTHER, "share": 0.5},
            ],
            "job": {**common, "max_bin": 32, "learning_rate": 0.3, **several, **job},
            "defences": defences,
            "audit": {"attacks": ATTACKS, "by_tree": True, "sums": {"seconds": given.seconds}},
        }
    )


def figures(result: RunResult) -> dict[str, Any]:
    """The figures of a run."""
    assert result.audit is not None, result.audit_fault
    party, read = result.audit[OTHER], result.audit[HOLDER]["columns_read"][OTHER]
    reached = {
        attack: max(filter(None, party[attack]["by_tree"]), default=0.0) for attack in ATTACKS if attack in party
    }
    best = max((attack for attack in reached if attack != "cl"), key=reached.__getitem__, default="")
    known = party.get("known-regression")
    refitted = {} if result.defences is None else result.defences.variants
    return {
        "records": result.records["train"],
        "cl": reached.get("cl"),
        "best": reached.get(best),
        "attack": best,
        "own_cuts": reached.get(OWN_CUTS),
        "known_sets": None if known is None or known["nodes"] is None else known["nodes"]["auc"]["mean"],
        "known_columns": None if known is None or known["columns"] is None else known["columns"]["auc"]["mean"],
        "auc": result.metrics["test"]["auc"],
        "refitted": next((it["auc"] for variant, it in refitted.items() if "refit" in variant), None),
        "cells": None if read["together"] is None else read["together"]["placed"],
        "by_left_sets": read["left_sets"]["placed"],
        "between": sum(it["between"] for it in read["cuts"]) / max(1, len(read["cuts"])),
        "cuts": {it["column"]: it["cuts"] for it in read["cuts"]},
        "by_column": {it["column"]: it["between"] for it in read["cuts"]},
        "cpu_s": sum(result.cpu_seconds.values()),
        "wall_s": sum(result.seconds[phase] for phase in TRAINING),
        "bytes": sum(row.bytes for row in result.traffic),
    }


def measured(name: str, table: pa.Table, mode: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One federation and its audit."""
    path = folder / f"{name}.parquet"
    pq.write_table(table, path)
    setting = experiment(name, path, mode, len(table.column(SETS[name].label).unique()), given)
    result = run_seed(setting, read_table(setting, Path()), 0, folder / f"{name}-{mode}")
    return {"set": name, "mode": mode, **figures(result)}


def report(rows: list[dict[str, Any]]) -> None:
    """The figures for a person."""

    def number(value: float | None, how: str) -> str:
        return "–" if value is None else format(value, how)

    shown = terminal.table("set", "mode", "CL", "best attack", "", "own splits", "AUC, known", "own columns", "AUC")
    for row in rows:
        known = (number(row[key], ".3f") for key in ("known_sets", "known_columns"))
        auc = number(row["auc"], ".3f") + ("" if row["refitted"] is None else f" ({row['refitted']:.3f} refitted)")
        reached = (number(row[key], ".3f") for key in ("cl", "best"))
        shown.add_row(row["set"], row["mode"], *reached, row["attack"], number(row["own_cuts"], ".3f"), *known, auc)
    terminal.out.print(shown)
    costs = terminal.table(
        "set", "mode", "records", "cells read", "by left sets", "between cuts", "cuts", "CPU s", "sent"
    )
    for row in rows:
        cells = (number(row[key], ".1%") for key in ("cells", "by_left_sets", "between"))
        cuts = str(sum(row["cuts"].values()))
        costs.add_row(
            *(row["set"], row["mode"], str(row["records"]), *cells, cuts),
            *(f"{row['cpu_s']:.1f}", terminal.size(row["bytes"])),
        )
    terminal.out.print(costs)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--records", type=int, default=5000, help="of a table, at most")
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run of least squares on columns")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    measured_frontiers.RECORDS = given.records
    rows = []
    for name in given.sets:
        table = table_of(name)
        for mode in given.modes:
            with tempfile.TemporaryDirectory(prefix="treetap-withheld-") as folder:
                rows.append(measured(name, table, mode, given, Path(folder)))
            print(f"{name}, {mode}: {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
    if given.as_json:
        print(json.dumps({"trees": given.trees, "depth": given.depth, "rows": rows}, indent=1))
    else:
        report(rows)


if __name__ == "__main__":
    main()
