"""A training on many records, by real processes: peak memory of each, workers included, wall and processor time.

    python benchmarks/large_training.py [--records 1000000] [--columns 50] [--parties 2] [--trees 5] [--depth 3]
                                        [--scheme NAME] [--key-bits 2048] [--workers 2] [--alignment sorted-ids]
                                        [--arithmetic auto] [--line "1 Gbit/s"] [--seed 0] [--classes 2]
                                        [--folder FOLDER] [--json]

Linux only: memory is VmHWM of /proc. Tables are generated from the seed (`generated_tables.py`) and written as
Parquet, with the columns spread evenly over the parties: 25 of the label holder and 25 of the feature party unless
told. 32 bins, learning rate 0.3, λ 1, `short-exponent`. `--line`: what a job on a lattice states of it, which chooses
the way of its sums. Wall: prepare, bin, train, publish; CPU: all processes, the whole job. The mean load of the machine
stands beside them: above 2 on two cores, others used it and wall says little.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generated_tables import ID, LABEL, LABEL_HOLDER, Plan, write
from he_blocks import gmpy2_product
from measured_trainings import PRODUCT_BITS, TRAINING
from rich.table import Table
from watched_processes import Watched

from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import Interrupted
from treetap.lab.experiment.joint_model import traffic
from treetap.lab.local_federation import LocalFederation
from treetap.native import arithmetic, library
from treetap.protocols.key_options import LATTICE, LINE_KEY, PAILLIER, SCHEMES
from treetap.wire.v2 import jobs_pb2


@dataclass(frozen=True)
class Training:
    """One training: its tables and the job."""

    plan: Plan
    trees: int = 5
    depth: int = 3
    scheme: str = PAILLIER
    key_bits: int = 2048
    workers: int = 2
    alignment: str = "sorted-ids"
    arithmetic: str = "auto"
    line: str = LINE_KEY

    def job(self) -> JobTable:
        """The job's parameters."""
        found: JobTable = JobTable.model_validate(
            {
                "n_estimators": self.trees,
                "max_depth": self.depth,
                "max_bin": 32,
                "learning_rate": 0.3,
                "reg_lambda": 1.0,
                "scheme": self.scheme,
                **(
                    {"line": self.line}
                    if self.scheme == LATTICE
                    else {"key_bits": self.key_bits, "obfuscation": "short-exponent"}
                ),
                "alignment": self.alignment,
                **({} if self.plan.classes == 2 else {"objective": "multi:softprob"}),
            }
        )
        return found

    def settings(self, paths: dict[str, Path]) -> dict[str, dict[str, Any]]:
        """The parties' configurations. Nothing is recorded: a transcript would hold every ciphertext on disk."""
        found = {}
        for name, columns in self.plan.columns_of().items():
            labelled = {"label": LABEL} if name == LABEL_HOLDER else {}
            found[name] = {
                "policy": {
                    "people": {"record": "off"},
                    "keys": {"schemes": [self.scheme], "min_key_bits": self.key_bits},
                },
                "workers": self.workers,
                "arithmetic": self.arithmetic,
                "tables": {"train": {"path": str(paths[name]), "id": ID, "columns": columns, **labelled}},
            }
        return found


def run(training: Training, folder: Path, show: Callable[[jobs_pb2.JobStatus], None]) -> dict[str, Any]:
    """Generate, train, measure. `show` gets the job's statuses."""
    names, product = training.plan.names, gmpy2_product(PRODUCT_BITS)
    began = time.monotonic()
    paths = write(training.plan, folder / "tables")
    generated = time.monotonic() - began
    with LocalFederation(folder / "federation", training.settings(paths)) as federation:
        watched = Watched({name: federation.pid(name) for name in (*names, "coordinator")})

        def update(status: jobs_pb2.JobStatus) -> None:
            phase = f"train {status.round}" if status.phase == "train" else status.phase
            if status.state == "running" and watched.enter(phase):
                terminal.err.print(f"{phase}: {status.seconds:.0f} s, {watched.largest_mib:.0f} MiB")
            show(status)

        with watched:
            spec = training.job().spec(names[0], names[1:], "train")
            job = federation.operator.submit(jobs_pb2.SubmitRequest(job="large", spec=spec))
            status = federation.operator.watch(job, update)
        if status.state != "finished":
            raise Interrupted(status.error or status.state)
        manifest = json.loads((federation.state(names[0]) / "models" / job / "manifest.json").read_text())
    phases = {row.name: row.amount for row in status.phases}
    return {
        "records": training.plan.records,
        "columns": training.plan.columns,
        "classes": training.plan.classes,
        "parties": training.plan.parties,
        "trees": training.trees,
        "depth": training.depth,
        "scheme": training.scheme,
        "key_bits": training.key_bits,
        "workers": training.workers,
        "alignment": training.alignment,
        "processor": library.processor(),
        "arithmetic": sorted(set(progress_view.backends(status).values())),
        "product_us": product,
        "load": round(watched.load, 2),
        "generated_s": generated,
        "wall_s": sum(phases[name] for name in TRAINING),
        "cpu_s": watched.cpu_s,
        "phases_s": phases,
        "largest_process_mib": watched.largest_mib,
        "peak_mib": {name: round(each.peak_rss_mb, 1) for name, each in watched.used.items()},
        "peak_mib_by_phase": {phase: _rounded(peaks) for phase, peaks in watched.by_phase.items()},
        "cpu_s_by_process": {name: each.cpu_seconds for name, each in watched.used.items()},
        "bytes": sum(row.bytes for row in traffic([status])),
        "auc": manifest["training_metrics"]["train_auc"],
    }


def _rounded(peaks: dict[str, float]) -> dict[str, float]:
    return {name: round(peak) for name, peak in peaks.items()}


def report(found: dict[str, Any]) -> None:
    """The figures for a person."""
    title = f"{found['records']:,} records, {found['columns']} columns, {found['trees']} trees, {found['scheme']}"
    table = Table("process", "peak MiB", "CPU s", title=title)
    for name, peak in found["peak_mib"].items():
        table.add_row(name, f"{peak:.0f}", f"{found['cpu_s_by_process'][name]:.1f}")
    terminal.out.print(table)
    sent = terminal.size(found["bytes"])
    terminal.out.print(
        f"largest process {found['largest_process_mib']:.0f} MiB; wall {found['wall_s']:.1f} s, CPU "
        f"{found['cpu_s']:.1f} s, sent {sent}, AUC {found['auc']:.4f}; mean load {found['load']:.1f}"
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--parties", type=int, default=2)
    parser.add_argument("--trees", type=int, default=5)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--scheme", choices=list(SCHEMES), default=PAILLIER)
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--alignment", default="sorted-ids")
    parser.add_argument("--arithmetic", choices=arithmetic.CHOICES, default="auto")
    parser.add_argument("--line", default=LINE_KEY)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--classes", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where tables and states go, kept; by default a temporary folder")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    plan = Plan(given.records, given.columns, given.parties, given.seed, given.classes)
    training = Training(
        plan,
        given.trees,
        given.depth,
        given.scheme,
        given.key_bits,
        given.workers,
        given.alignment,
        given.arithmetic,
        given.line,
    )
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as held, progress_view.live("training") as show:
        found = run(training, given.folder or Path(held), show)
    if given.as_json:
        print(json.dumps(found, indent=1))
    else:
        report(found)


if __name__ == "__main__":
    main()
