"""Trainings by experiments, measured: wall and processor time by backend, beside a product of gmpy2 in the same run.

What `credit.py` and `two_party.py` share.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from backends import print_ratios
from he_blocks import gmpy2_product
from rich.table import Table

from treetap import terminal
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.results import RunResult
from treetap.lab.experiment.run import run_seed
from treetap.native import arithmetic

#: From the accepted job to the stored shards, without key generation and alignment.
TRAINING = ("prepare", "bin", "train", "publish")
#: Bits of the product by which machines are compared, and its microseconds on the machine that figures are scaled to.
PRODUCT_BITS, PRODUCT_US = 4096, 4.15
#: Figures whose ratios to gmpy2 are stated.
SPEEDS = {"wall": "wall_s", "CPU": "cpu_s"}
#: Columns of tables for people: name of a figure → title and format.
SHOWN = {
    "wall_s": ("wall s", ".2f"),
    "cpu_s": ("cpu s", ".2f"),
    "product_us": ("gmpy2 product µs", ".2f"),
    "scaled_wall_s": ("scaled wall s", ".2f"),
    "scaled_cpu_s": ("scaled cpu s", ".2f"),
    "keys_s": ("keys s", ".2f"),
    "align_s": ("align s", ".2f"),
    "auc": ("AUC", ".4f"),
    "largest_process_mb": ("largest process MiB", ".0f"),
}


def forced(setting: ExperimentFile, backend: arithmetic.Name) -> ExperimentFile:
    """The experiment with this backend at every party."""
    return setting.model_copy(
        update={"party": [party.model_copy(update={"arithmetic": backend}) for party in setting.party]}
    )


def measured(setting: ExperimentFile, table: pa.Table, backend: arithmetic.Name) -> dict[str, Any]:
    """One federation with a backend, from its start to its end.

    Wall is that of the phases in `TRAINING`, CPU that of all parties, their workers and the coordinator for the whole
    job. Scaled, both are what they would be on a machine whose gmpy2 product takes `PRODUCT_US`.
    """
    product = gmpy2_product(PRODUCT_BITS)
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        result = run_seed(forced(setting, backend), table, 0, Path(folder) / "federation")
    assert set(result.arithmetic.values()) == {backend}, result.arithmetic
    return {"arithmetic": backend, "product_us": product, **figures(result, product)}


def figures(result: RunResult, product: float) -> dict[str, Any]:
    """The figures of an experiment's run, beside a product of gmpy2 in microseconds."""
    cpu, memory = result.cpu_seconds, result.peak_rss_mb
    wall, all_cpu = sum(result.seconds[phase] for phase in TRAINING), sum(cpu.values())
    return {
        "wall_s": wall,
        "cpu_s": all_cpu,
        "scaled_wall_s": wall * PRODUCT_US / product,
        "scaled_cpu_s": all_cpu * PRODUCT_US / product,
        "keys_s": result.seconds["keys"],
        "align_s": result.seconds["align"],
        "auc": result.metrics["test"]["auc"],
        "records": result.records["train"],
        "largest_process_mb": max(memory.values()),
        "ciphertexts": result.ciphertexts,
        "operations": result.operations,
        "seconds_by_step": result.seconds_by_step,
        "cpu_seconds": cpu,
        "bytes": sum(row.bytes for row in result.traffic),
    }


def print_medians(runs: Sequence[dict[str, Any]], by: Sequence[str], more: Iterable[tuple[str, str, str]] = ()) -> None:
    """A row of medians for each combination of the figures `by`; `more`: (figure, title, format) of further columns."""
    shown = {**SHOWN, **{name: (title, how) for name, title, how in more}}
    table = Table(*by, *(title for title, _ in shown.values()), "sent")
    for key in dict.fromkeys(tuple(run[name] for name in by) for run in runs):
        some = [run for run in runs if tuple(run[name] for name in by) == key]
        cells = [format(statistics.median(run[name] for run in some), how) for name, (_, how) in shown.items()]
        table.add_row(*map(str, key), *cells, terminal.size(statistics.median(run["bytes"] for run in some)))
    terminal.out.print(table)
    print_ratios(runs, [name for name in by if name != "arithmetic"], SPEEDS)
