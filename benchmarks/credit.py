"""Credit default, three parties, 5 trees of depth 3: wall and processor time, where it goes, ratio to xgboost.

    python benchmarks/credit.py [--scheme NAME] [--obfuscation NAME …] [--key-bits 2048] [--repeat 3] [--json]
                                [--arithmetic gmpy2 auto …] [--min-cell-records M …]

Needs TREETAP_DATA (the folder with credit_default.parquet) and the `bench` extra. xgboost's `hist` on the joined table
runs in the same process, before each federation, so that both see the same machine. The names after --arithmetic, gmpy2
and auto by default, are measured in turn, with ratios to gmpy2; docs/deploy.md lists them. Wall: prepare, bin, train,
publish. CPU: all processes, the whole job with keys. Both are also scaled to a product of gmpy2 modulo 4,096 bits of
4.15 µs, which is measured before each. --min-cell-records: that of both feature parties, each in turn; 0, the default:
they merge no bins.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from backends import add_arithmetic, backends, machine, print_machine
from measured_trainings import measured, print_medians
from rich.table import Table

from treetap import terminal
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table, split
from treetap.native import arithmetic
from treetap.protocols.key_options import LATTICE, PAILLIER, SCHEMES
from treetap.trees import metrics

HOLDER = ["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE", "PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5", "PAY_6"]
COLUMNS = {
    "label-holder": [*HOLDER, "BILL_AMT1"],
    "feature-b": ["BILL_AMT2", "BILL_AMT3", "BILL_AMT4", "BILL_AMT5", "BILL_AMT6", "PAY_AMT1"],
    "feature-c": ["PAY_AMT2", "PAY_AMT3", "PAY_AMT4", "PAY_AMT5", "PAY_AMT6"],
}


def experiment(obfuscation: str, key_bits: int, scheme: str = PAILLIER, min_cell_records: int = 0) -> ExperimentFile:
    """The benchmark's federation."""
    defences = {"defences": {"min_cell_records": min_cell_records}} if min_cell_records else {}
    return ExperimentFile.model_validate(
        {
            "data": {"path": "$TREETAP_DATA/credit_default.parquet", "label": "default.payment.next.month"},
            "party": [
                {"name": name, "columns": names, "labels": True}
                if name == "label-holder"
                else {"name": name, "columns": names, **defences}
                for name, names in COLUMNS.items()
            ],
            "job": {
                "n_estimators": 5,
                "max_depth": 3,
                "max_bin": 32,
                "learning_rate": 0.3,
                "reg_lambda": 1.0,
                "scheme": scheme,
                **({} if scheme == LATTICE else {"key_bits": key_bits, "obfuscation": obfuscation}),
            },
        }
    )


def xgboost_on_joined(setting: ExperimentFile, table: pa.Table) -> dict[str, float]:
    """xgboost's hist on all columns of the same rows, both cores: seconds of fit, AUC on the test rows."""
    import xgboost

    drawn = split(setting, table, 0)
    names = [name for each in COLUMNS.values() for name in each]
    x = np.stack([table.column(name).to_numpy() for name in names], axis=1).astype(np.float64)
    y = table.column(setting.data.label).to_numpy()
    model = xgboost.XGBClassifier(
        n_estimators=5, max_depth=3, max_bin=32, learning_rate=0.3, reg_lambda=1.0, tree_method="hist", base_score=0.5
    )
    start = time.perf_counter()
    model.fit(x[drawn.train], y[drawn.train])
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "auc": metrics.auc(model.predict_proba(x[drawn.test])[:, 1], y[drawn.test])}


def run(
    obfuscation: str,
    key_bits: int,
    backend: arithmetic.Name = "gmpy2",
    scheme: str = PAILLIER,
    min_cell_records: int = 0,
) -> dict[str, Any]:
    """One pair: xgboost, then the federation."""
    setting = experiment(obfuscation, key_bits, scheme, min_cell_records)
    table = read_table(setting, Path())
    reference = xgboost_on_joined(setting, table)
    found = measured(setting, table, backend)
    return {
        "scheme": scheme,
        "obfuscation": obfuscation,
        "key_bits": key_bits,
        "min_cell_records": min_cell_records,
        **found,
        "xgboost_s": reference["seconds"],
        "ratio": found["wall_s"] / reference["seconds"],
        "xgboost_auc": reference["auc"],
    }


def report(runs: list[dict[str, Any]], asked: list[str]) -> None:
    """The figures for a person: medians, and the last run's time by step."""
    print_machine(asked)
    told_apart = ("obfuscation", "key_bits", "min_cell_records", "arithmetic")
    print_medians(runs, told_apart, [("ratio", "÷ xgboost", ".0f")])
    for (obfuscation, backend), each in {(run["obfuscation"], run["arithmetic"]): run for run in runs}.items():
        title = f"{obfuscation}, {backend}: wall seconds by step and party"
        steps = Table("step", *each["seconds_by_step"], title=title)
        names = dict.fromkeys(step for row in each["seconds_by_step"].values() for step in row)
        for step in names:
            cells = (row.get(step, 0.0) for row in each["seconds_by_step"].values())
            steps.add_row(step, *(f"{value:.2f}" if value else "" for value in cells))
        terminal.out.print(steps)
        terminal.out.print({"cpu_seconds": each["cpu_seconds"], "operations": each["operations"]})


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", choices=list(SCHEMES), default=PAILLIER)
    parser.add_argument("--obfuscation", nargs="*", default=["short-exponent", "half-length"])
    add_arithmetic(parser)
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--min-cell-records", type=int, nargs="+", default=[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("credit: set TREETAP_DATA to the folder with credit_default.parquet")
    runs = [
        run(name, given.key_bits, backend, given.scheme, least)
        for _ in range(given.repeat)
        for name in given.obfuscation
        for backend in backends(given.arithmetic)
        for least in given.min_cell_records
    ]
    if given.as_json:
        print(json.dumps({"machine": machine(given.arithmetic), "runs": runs}, indent=1))
    else:
        report(runs, given.arithmetic)


if __name__ == "__main__":
    main()
