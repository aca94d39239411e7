"""What a training costs, for eight sizes and both schemes: measured, with a formula for each cost, on a page.

    python benchmarks/sizes.py [--only N …]     # the sizes by their place, from 1; by default all
    python benchmarks/sizes.py --render

Each result is a federation of this machine (`large_training.py`): a label holder and a feature party with half of the
columns each and one worker, generated tables, 32 bins, the fastest kernels. Results that measured/sizes.jsonl has are
not measured again, so that a run that was interrupted goes on; on two idle cores all take some minutes. `--render`
fits the formulas and writes both tables into docs/operations.md.

A formula is a sum of `TERMS`, by least squares of relative errors; no coefficient is negative.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent / "reproductions"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from generated_tables import LABEL_HOLDER, Plan
from large_training import Training, run
from resumable import Results
from scipy.optimize import nnls

from tools.renderers.rendering import with_tables, write
from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.trees.binning import bin_table

RESULTS = Path(__file__).with_name("measured") / "sizes.jsonl"
BINS, PARTY = 32, "feature-1"


class Size(NamedTuple):
    """A training; columns are those of both parties."""

    records: int
    columns: int
    depth: int
    trees: int


SIZES = (
    Size(1_000, 10, 3, 5),
    Size(3_000, 100, 4, 2),
    Size(10_000, 20, 3, 5),
    Size(10_000, 60, 6, 1),
    Size(30_000, 20, 5, 2),
    Size(30_000, 100, 3, 1),
    Size(100_000, 30, 4, 1),
    Size(300_000, 60, 3, 1),
)
SCHEMES = (PAILLIER, LATTICE)
KEPT = ("wall_s", "cpu_s", "bytes", "peak_mib", "load", "arithmetic", "processor")


class Numbers(NamedTuple):
    """What costs grow with.

    Attributes:
        records: of all trees.
        candidates: of a node, at the feature party.
        nodes: of all trees, whose sums are made if all above the depth split: of two siblings the smaller one.
        trees: of the job.
    """

    records: float
    candidates: float
    nodes: float
    trees: float


#: Name of a column → the part of a cost.
TERMS: Mapping[str, Callable[[Numbers], float]] = {
    "once": lambda _: 1.0,
    "1,000 records": lambda job: job.records / 1e3,
    "1,000 candidates": lambda job: job.candidates / 1e3,
    "10⁶ records × candidates": lambda job: job.records * job.candidates / 1e6,
    "10⁶ records × nodes of a tree": lambda job: job.records / job.trees * job.nodes / 1e6,
    "10³ nodes × candidates": lambda job: job.nodes * job.candidates / 1e3,
}
#: A cost → the figure of a result.
COSTS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "CPU s": lambda result: float(result["cpu_s"]),
    "MB sent": lambda result: float(result["bytes"]) / 1e6,
    "MiB, label holder": lambda result: _memory(result, LABEL_HOLDER),
    "MiB, feature party": lambda result: _memory(result, PARTY),
}


def _memory(result: Mapping[str, Any], party: str) -> float:
    """Peaks of a party's processes, added up."""
    peaks: Mapping[str, float] = result["peak_mib"]
    return sum(peak for name, peak in peaks.items() if name == party or name.startswith(f"{party} "))


def measured(size: Size, scheme: str) -> dict[str, Any]:
    """The figures of one training, with the candidates that the feature party's columns have."""
    plan = Plan(size.records, size.columns)
    training = Training(plan, size.trees, size.depth, scheme, workers=1)
    title = f"{size.records:,} records, {size.columns} columns, {scheme}"
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder, progress_view.live(title) as show:
        result = run(training, Path(folder), show)
        names = plan.columns_of()[PARTY]
        table = pq.read_table(Path(folder) / "tables" / f"{PARTY}.parquet", columns=names)
    binned = bin_table(np.stack([table.column(name).to_numpy() for name in names], axis=1), names, BINS)
    return {"candidates": sum(shape.sums for shape in binned.shapes), **{name: result[name] for name in KEPT}}


class Fit(NamedTuple):
    """A formula: the coefficient of each term, and the largest relative error."""

    coefficients: npt.NDArray[np.float64]
    error: float


def fit(jobs: Sequence[Numbers], costs: Sequence[float], terms: Sequence[str]) -> Fit:
    """The formula of a cost; terms that are not named have no part in it."""
    parts = [
        [TERMS[name](job) * (name in terms) / cost for name in TERMS] for job, cost in zip(jobs, costs, strict=True)
    ]
    coefficients, _ = nnls(np.array(parts), np.ones(len(costs)))
    return Fit(coefficients, float(np.abs(np.array(parts) @ coefficients - 1).max()))


def tables(results: Results) -> dict[str, str]:
    """Both tables, by name; they need all results."""
    by_scheme: dict[str, list[dict[str, Any]]] = {scheme: [] for scheme in SCHEMES}
    for scheme, rows in by_scheme.items():
        for size in SIZES:
            if (row := results.get({**size._asdict(), "scheme": scheme})) is None:
                sys.exit(f"{results.path}: lacks {size}, {scheme}: run without --render first")
            rows.append(row)
    figures = {"wall s": lambda result: float(result["wall_s"]), **COSTS}
    head = [*Size._fields, "candidates", *figures]
    lines = [f"| {' | '.join(head)} |\n", f"|{'---|' * len(head)}\n"]
    for size, *both in zip(SIZES, *by_scheme.values(), strict=True):
        cells = [" / ".join(_rounded(figure(row)) for row in both) for figure in figures.values()]
        lines.append(f"| {' | '.join([*(f'{number:,}' for number in (*size, both[0]['candidates'])), *cells])} |\n")
    formulas = [f"| | {' | '.join(TERMS)} | largest error |\n", f"|{'---|' * (2 + len(TERMS))}\n"]
    for cost, figure in COSTS.items():
        for scheme, rows in by_scheme.items():
            once = cost.startswith("MiB")  # memory does not grow with trees
            names = [
                name for name in TERMS if name != ("10⁶ records × nodes of a tree" if once else "1,000 candidates")
            ]
            jobs = [_numbers(size, row["candidates"], once) for size, row in zip(SIZES, rows, strict=True)]
            found = fit(jobs, [figure(row) for row in rows], names)
            cells = [_rounded(number) if number else "" for number in found.coefficients]
            formulas.append(f"| {cost}, {scheme} | {' | '.join(cells)} | {found.error:.0%} |\n")
    return {"eight-sizes": "".join(lines), "formulas": "".join(formulas)}


def _numbers(size: Size, candidates: int, once: bool) -> Numbers:
    trees = 1 if once else size.trees
    return Numbers(trees * size.records, candidates, trees << (size.depth - 1), trees)


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def main() -> None:
    """Measure what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", type=int, choices=range(1, len(SIZES) + 1), metavar="N")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--render", action="store_true", help="write the page from the results")
    given = parser.parse_args()
    results = Results(given.results)
    if given.render:
        write(with_tables(tables(results)))
        return
    for place in given.only or range(1, len(SIZES) + 1):
        for scheme in SCHEMES:
            size = SIZES[place - 1]
            trial = {**size._asdict(), "scheme": scheme}
            if results.get(trial) is None:
                results.add(found := {"trial": trial, **measured(size, scheme)})
                seconds = f"{found['wall_s']:.1f} s, CPU {found['cpu_s']:.1f} s"
                terminal.out.print(f"{trial}: {seconds}, load {found['load']:.1f}")


if __name__ == "__main__":
    main()
