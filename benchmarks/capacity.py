"""Trainings by real processes beside their estimate: seconds of processors, wall, and bytes.

    python benchmarks/capacity.py [--cases NAME …] [--measurements FILE] [--only-estimate] [--further] [--json]

Each case makes a table (normal columns of which a few tell the label), trains on it in a federation of this machine,
and estimates the same training: counts and sizes by the protocol's own functions, the trees by the centralised trainer,
which the federation equals, and costs that were measured on this machine beforehand. Nothing of the federation's run
enters the estimate. All processes share the machine's cores, in the estimate too. Wall is that of the trees; on a
machine that does other work compare processor seconds of workers. `credit` and `two-party` are the trainings of
credit.py and two_party.py, for which TREETAP_DATA must name the folder with credit_default.parquet.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import credit
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import two_party
from grown_levels import grown_levels, records_of
from rich.table import Table

from treetap import terminal
from treetap.commands.capacity.measuring import Measurements, measure
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.report import estimate
from treetap.commands.capacity.training import PartyColumns, Training, agreed_sizes
from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.joined_table import read_table, split
from treetap.commands.experiment.run import run_seed
from treetap.protocols.key_options import LATTICE, PAILLIER, KeyKind
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

OBFUSCATION, BITS = "short-exponent", 2048
#: Further records that an experiment holds out.
HELD_OUT = 200


@dataclass(frozen=True)
class Case:
    """One training: columns of the label holder and of each feature party."""

    records: int
    own: int
    others: tuple[int, ...]
    scheme: str = PAILLIER
    workers: int = 2
    trees: int = 2
    depth: int = 3
    data: str = ""  # credit or two-party: the training of that benchmark

    def names(self, setting: ExperimentFile) -> list[str]:
        """Parties, the label holder first."""
        return [party.name for party in setting.party]


CASES = {
    "5k": Case(5_000, 6, (6,), trees=3),
    "10k-wide": Case(10_000, 5, (20,), trees=2),
    "20k-three": Case(20_000, 12, (6, 5), trees=2),
    "20k-one-worker": Case(20_000, 12, (11,), workers=1, trees=2),
    "30k": Case(30_000, 12, (11,), trees=2),
    "100k": Case(100_000, 12, (11,), trees=1),
    "credit": Case(24_000, 12, (6, 5), trees=5, data="credit"),
    "30k-lattice": Case(30_000, 12, (11,), LATTICE, trees=2),
    "20k-three-lattice": Case(20_000, 12, (6, 5), LATTICE, trees=2),
    "10k-deep-lattice": Case(10_000, 6, (6,), LATTICE, trees=2, depth=5),
    "500k-lattice": Case(500_000, 12, (11,), LATTICE, trees=5),
    "credit-lattice": Case(24_000, 12, (6, 5), LATTICE, trees=5, data="credit"),
    "two-party-lattice": Case(30_000, 12, (11,), LATTICE, trees=5, data="two-party"),
    "two-party": Case(30_000, 12, (11,), trees=5, data="two-party"),
}


def table_of(case: Case) -> pa.Table:
    """Normal columns; the label follows from one column of each party, with noise."""
    rng = np.random.default_rng(7)
    count = case.records + HELD_OUT
    widths = [case.own, *case.others]
    x = rng.normal(size=(count, sum(widths)))
    firsts = np.cumsum([0, *widths[:-1]])
    odds = x[:, firsts].sum(axis=1) + 0.5 * x[:, firsts[0] + 1] * x[:, firsts[-1]] + rng.logistic(size=count)
    columns = {f"x{place}": x[:, place] for place in range(sum(widths))}
    return pa.table({**columns, "label": (odds > 0).astype(np.int64)})


def experiment(case: Case, path: Path) -> ExperimentFile:
    """The federation of a case on a table in a file."""
    ends = np.cumsum([0, case.own, *case.others])
    names = [[f"x{place}" for place in range(ends[k], ends[k + 1])] for k in range(len(ends) - 1)]
    job = {
        "n_estimators": case.trees,
        "max_depth": case.depth,
        "max_bin": 32,
        "scheme": case.scheme,
        **({} if case.scheme == LATTICE else {"key_bits": BITS, "obfuscation": OBFUSCATION}),
        "alignment": "sorted-ids",
    }
    parties = [
        {"name": f"party-{k}", "columns": own, "labels": k == 0, "workers": case.workers} for k, own in enumerate(names)
    ]
    share = HELD_OUT / (case.records + HELD_OUT)
    return ExperimentFile.model_validate(
        {"data": {"path": str(path), "label": "label", "test_share": share}, "party": parties, "job": job}
    )


def prepared(case: Case, folder: Path) -> ExperimentFile:
    """The federation of a case, its table in a file of the folder."""
    path = folder / "table.parquet"
    if case.data == "credit":
        setting = credit.experiment(OBFUSCATION, BITS, case.scheme)
        return setting.model_copy(update={"job": setting.job.model_copy(update={"n_estimators": case.trees})})
    if case.data == "two-party":
        table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
        columns = [name for name in table.column_names if name not in ("ID", two_party.LABEL)]
        wanted = table.select([*columns, two_party.LABEL])
        pq.write_table(two_party.grown(wanted, case.records + two_party.HELD_OUT), path)
        return two_party.setting(path, columns, case.records, case.trees, case.scheme)
    pq.write_table(table_of(case), path)
    return experiment(case, path)


def trainings(case: Case, setting: ExperimentFile, table: pa.Table) -> list[Training]:
    """One for each tree, by the centralised trainer on the records that the federation trains on."""
    rows = np.sort(split(setting, table, 0).train)
    bins: list[tuple[str, BinnedTable]] = []
    for party in setting.party:
        names = list(party.columns or [])
        values = np.stack([table.column(name).to_numpy()[rows] for name in names], axis=1)
        bins.append((party.name, bin_table(values, names, 32)))
    params = setting.job.params()
    assert isinstance(params, BoostingParams)
    model = train(bins, table.column(setting.data.label).to_numpy()[rows], params)
    parties = [PartyColumns(tuple(f.shape for f in each.features), each.codes) for _, each in bins]
    jobs, parties_by_name = [], case.names(setting)
    for tree in model.ensemble.trees:
        owners = {made.node: parties_by_name.index(made.owner) for made in tree.splits}
        drawn = records_of(model, tree, dict(bins), len(rows))
        levels = grown_levels(owners, {node: len(records) for node, records in drawn.items()}, case.depth)
        others = dict(zip(parties_by_name[1:], parties[1:], strict=True))
        one, on_lattice = replace(params, n_estimators=1), case.scheme == LATTICE
        key = KeyKind(case.scheme, 0 if on_lattice else BITS)
        agreed = agreed_sizes(params, len(rows), parties[1:]) if on_lattice else None
        jobs.append(Training(len(rows), one, parties[0], others, levels, key, OBFUSCATION, agreed))
    return jobs


def estimated(case: Case, holder: str, jobs: list[Training], measured: Measurements) -> dict[str, Any]:
    """The figures of the estimate; `holder`: the name of the label holder."""
    site = Site(cores=os.cpu_count() or 1, workers=case.workers, one_machine=True)
    trees = [estimate(job, site, measured) for job in jobs]
    workers, operations = defaultdict[str, float](float), Counter[str]()
    if (kernels := measured.of(jobs[0].key, OBFUSCATION)) is not None:
        workers[holder] += case.workers * kernels.tables_s
    for name, seconds in trees[0].once_cpu.items():
        workers[name] += seconds
    for tree in trees:
        workers[holder] += tree.holder.workers_s
        for party in tree.others.values():
            workers[party.name] += party.workers_s
        for counts in tree.operations().values():
            operations.update(counts)
    mains = sum(party.main_s for tree in trees for party in (tree.holder, *tree.others.values()))
    return {
        "wall_s": trees[0].once_s + sum(tree.seconds for tree in trees),
        "workers_cpu_s": dict(workers),
        "mains_cpu_s": mains,
        "cpu_s": sum(workers.values()) + mains,
        "bytes": sum(line.bytes for tree in trees for line in (*tree.to.values(), *tree.back.values())),
        "operations": dict(operations),
    }


def run(name: str, case: Case, measured: Measurements, *, only_estimate: bool) -> dict[str, Any]:
    """One case, estimated and measured."""
    with tempfile.TemporaryDirectory(prefix="treetap-capacity-") as folder:
        setting = prepared(case, Path(folder))
        names, table = case.names(setting), read_table(setting, Path())
        predicted = estimated(case, names[0], trainings(case, setting, table), measured)
        if only_estimate:
            return {"case": name, "estimated": predicted}
        result = run_seed(setting, table, 0, Path(folder) / "federation")
    cpu = result.cpu_seconds
    workers = {party: sum(s for who, s in cpu.items() if who.startswith(f"{party} worker ")) for party in names}
    real = {
        "wall_s": result.seconds["train"],
        "workers_cpu_s": workers,
        "mains_cpu_s": sum(seconds for who, seconds in cpu.items() if who in names),
        "cpu_s": sum(seconds for who, seconds in cpu.items() if who != "coordinator"),
        "bytes": sum(row.bytes for row in result.traffic if row.receiver in names),
        "operations": result.operations,
        "peak_rss_mb": result.peak_rss_mb,
    }
    return {"case": name, "measured": real, "estimated": predicted}


def further(name: str, case: Case, measured: Measurements) -> dict[str, Any]:
    """Costs of the trees after the first: a run with one tree less, from one with all."""
    both = [run(name, each, measured, only_estimate=False) for each in (replace(case, trees=1), case)]
    return {"case": name, **{kind: _less(both[1][kind], both[0][kind]) for kind in ("measured", "estimated")}}


def _less(more: Any, fewer: Any) -> Any:
    """Each figure of one run less that of the other."""
    if isinstance(more, dict):
        return {key: _less(value, fewer.get(key, 0)) for key, value in more.items()}
    return more - fewer


def show(runs: list[dict[str, Any]]) -> None:
    """A row for each case: measured, simulated, and the difference."""
    titles = ("wall s", "workers' CPU s", "all CPU s", "sent MB")
    table = Table("case", *(head for title in titles for head in (title, "estimated", "")), "operations")
    for each in runs:
        model, real = figures(each["estimated"]), figures(each["measured"]) if "measured" in each else None
        cells = [each["case"]]
        for place, said in enumerate(model):
            was = None if real is None else real[place]
            cells += (
                ["", f"{said:.2f}", ""]
                if was is None
                else [f"{was:.2f}", f"{said:.2f}", f"{100 * (said / was - 1):+.0f} %"]
            )
        same = real is not None and each["measured"]["operations"] == each["estimated"]["operations"]
        table.add_row(*cells, "equal" if same else "" if real is None else "differ")
    terminal.out.print(table)


def figures(part: dict[str, Any]) -> tuple[float, ...]:
    """Wall, seconds of workers, of all processes, and megabytes."""
    return part["wall_s"], sum(part["workers_cpu_s"].values()), part["cpu_s"], part["bytes"] / 1e6


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument("--measurements", type=Path, help="use this file; without it this machine is measured first")
    parser.add_argument("--only-estimate", action="store_true", help="start no federation")
    parser.add_argument("--further", action="store_true", help="compare what the trees after the first take")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    measured = Measurements.load(given.measurements) if given.measurements else None
    for scheme in () if measured else (PAILLIER, LATTICE):
        measured = measure(KeyKind(scheme, 0 if scheme == LATTICE else BITS), OBFUSCATION, measured)
    assert measured is not None
    runs = [
        further(name, CASES[name], measured)
        if given.further
        else run(name, CASES[name], measured, only_estimate=given.only_estimate)
        for name in given.cases
    ]
    if given.as_json:
        print(json.dumps({"machine": measured.machine, "runs": runs}, indent=1))
    else:
        show(runs)


if __name__ == "__main__":
    main()
