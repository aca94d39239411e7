"""What a training costs, for eight sizes and both schemes: measured, with a formula for each cost, on a page.

    python benchmarks/sizes.py [--only N …]     # the sizes by their place, from 1; by default all
    python benchmarks/sizes.py --render

Each result is a federation of this machine (`large_training.py`): a label holder and a feature party with half of the
columns each and one worker, generated tables, 32 bins, the fastest kernels. Results that measured/sizes.jsonl has are
not measured again, so that a run that was interrupted goes on; on two idle cores all take some minutes. `--render`
fits the formulas and writes both tables into docs/operations.md.

A formula is a sum of `TERMS` with coefficients that are not negative, of which the squares of the relative errors are
least: `nodes` are those whose sums are made if every node above the depth splits, of two siblings the smaller one, and
`candidates` are columns of the feature party times bins.
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

sys.path.insert(0, str(Path(__file__).parent / "reproductions"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from generated_tables import LABEL_HOLDER, Plan
from large_training import Training, run
from resumable import Results
from scipy.optimize import nnls

from renderers.rendering import with_tables, write
from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.protocols.key_options import LATTICE, PAILLIER

RESULTS = Path(__file__).with_name("measured") / "sizes.jsonl"
BINS, PARTY = 32, "feature-1"


class Size(NamedTuple):
    """A training; columns are those of both parties."""

    records: int
    columns: int
    depth: int
    trees: int

    @property
    def candidates(self) -> int:
        """Of a node, at the feature party."""
        return self.columns // 2 * BINS

    @property
    def nodes(self) -> int:
        """Those whose sums are made, of all trees."""
        return self.trees << (self.depth - 1)


SIZES = (
    Size(1_000, 10, 3, 5),
    Size(3_000, 100, 4, 2),
    Size(10_000, 20, 3, 5),
    Size(10_000, 60, 6, 1),
    Size(30_000, 20, 5, 2),
    Size(30_000, 100, 3, 1),
    Size(100_000, 30, 4, 1),
    Size(300_000, 10, 3, 1),
)
#: What a cost may grow with.
TERMS: Mapping[str, Callable[[Size], float]] = {
    "a job": lambda _: 1.0,
    "1,000 records, each tree": lambda size: size.trees * size.records / 1e3,
    "1,000 records × nodes": lambda size: size.nodes * size.records / 1e3,
    "10⁶ records × candidates, each tree": lambda size: size.trees * size.records * size.candidates / 1e6,
    "1,000 nodes × candidates": lambda size: size.nodes * size.candidates / 1e3,
}
#: Memory does not grow with trees.
ONCE: Mapping[str, Callable[[Size], float]] = {
    name: lambda size, term=term: term(size._replace(trees=1))  # type: ignore[misc]
    for name, term in TERMS.items()
}
#: A cost → its terms, and the figure of a result.
COSTS: Mapping[str, tuple[Mapping[str, Callable[[Size], float]], Callable[[Mapping[str, Any]], float]]] = {
    "CPU seconds": (TERMS, lambda result: float(result["cpu_s"])),
    "MB sent": (TERMS, lambda result: float(result["bytes"]) / 1e6),
    "MiB, label holder": (ONCE, lambda result: _memory(result, LABEL_HOLDER)),
    "MiB, feature party": (ONCE, lambda result: _memory(result, PARTY)),
}
SCHEMES = (PAILLIER, LATTICE)
KEPT = ("wall_s", "cpu_s", "bytes", "peak_mib", "load", "arithmetic", "processor")


def _memory(result: Mapping[str, Any], party: str) -> float:
    """Peaks of a party's processes, added up."""
    return sum(peak for name, peak in result["peak_mib"].items() if name == party or name.startswith(f"{party} "))


def measured(size: Size, scheme: str) -> dict[str, Any]:
    """The figures of one training."""
    plan = Plan(size.records, size.columns)
    training = Training(plan, size.trees, size.depth, scheme, workers=1)
    title = f"{size.records:,} records, {size.columns} columns, {scheme}"
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder, progress_view.live(title) as show:
        result = run(training, Path(folder), show)
    return {name: result[name] for name in KEPT}


class Fit(NamedTuple):
    """A formula: a coefficient for each term, and its largest relative error."""

    coefficients: npt.NDArray[np.float64]
    error: float


def fit(terms: Mapping[str, Callable[[Size], float]], sizes: Sequence[Size], costs: Sequence[float]) -> Fit:
    """The formula of a cost."""
    parts = np.array([[term(size) for term in terms.values()] for size in sizes]) / np.array(costs)[:, None]
    coefficients, _ = nnls(parts, np.ones(len(costs)))
    return Fit(coefficients, float(np.abs(parts @ coefficients - 1).max()))


def tables(results: Results) -> dict[str, str]:
    """Both tables, by name; they need all results."""
    by_scheme = {scheme: [results.get(_trial(size, scheme)) for size in SIZES] for scheme in SCHEMES}
    if missing := sum(row is None for rows in by_scheme.values() for row in rows):
        sys.exit(f"{results.path}: lacks {missing} of {len(SIZES) * len(SCHEMES)} results: run without --render first")
    figures = {"wall seconds": (TERMS, lambda result: float(result["wall_s"])), **COSTS}
    lines = [f"| records | columns | depth | trees | {' | '.join(figures)} |\n", f"|{'---|' * (4 + len(figures))}\n"]
    for place, size in enumerate(SIZES):
        cells = [
            " / ".join(_rounded(figure(rows[place] or {})) for rows in by_scheme.values())
            for _, figure in figures.values()
        ]
        lines.append(f"| {' | '.join([*(f'{number:,}' for number in size), *cells])} |\n")
    formulas = [f"| cost | {' | '.join(TERMS)} | largest error |\n", f"|{'---|' * (2 + len(TERMS))}\n"]
    for cost, (terms, figure) in COSTS.items():
        for scheme, rows in by_scheme.items():
            found = fit(terms, SIZES, [figure(row or {}) for row in rows])
            cells = [_rounded(number) if number else "" for number in found.coefficients]
            formulas.append(f"| {cost}, {scheme} | {' | '.join(cells)} | {found.error:.0%} |\n")
    return {"sizes": "".join(lines), "formulas": "".join(formulas)}


def _trial(size: Size, scheme: str) -> dict[str, Any]:
    return {**size._asdict(), "scheme": scheme}


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
            trial = _trial(SIZES[place - 1], scheme)
            if results.get(trial) is None:
                results.add(found := {"trial": trial, **measured(SIZES[place - 1], scheme)})
                seconds = f"{found['wall_s']:.1f} s, CPU {found['cpu_s']:.1f} s"
                terminal.out.print(f"{trial}: {seconds}, load {found['load']:.1f}")


if __name__ == "__main__":
    main()
