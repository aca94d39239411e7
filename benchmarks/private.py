"""A private job beside a withheld one: processor time of each process, memory, bytes, messages and seconds of a level.

    python benchmarks/private.py [--records 30000] [--columns 23] [--parties 3] [--trees 5] [--depth 3] [--repeat 3]
        [--delay MS]

Linux only. Tables are generated (`generated_tables.py`), columns spread evenly over a label holder and feature parties.
A pair is a federation by either word, one after the other; figures are medians, and differences in each pair. CPU is
that of processes from the job on, so without start-up, the dealer's apart; memory VmHWM. --delay: milliseconds that
whatever goes from process to process takes one way (`delay.py`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from delay import DelayProxy
from generated_tables import ID, LABEL, LABEL_HOLDER, Plan, write
from rich.table import Table
from watched_processes import Watched

from treetap import terminal
from treetap.commands.jobs.job_file import JobTable
from treetap.lab.experiment.joint_model import traffic
from treetap.lab.local_federation import DEALER, LocalFederation, dealer_of
from treetap.protocols.job_spec import PRIVATE, WITHHELD
from treetap.protocols.key_options import LATTICE
from treetap.usage import measure_process
from treetap.wire.v2 import jobs_pb2


def run(word: str, given: argparse.Namespace, plan: Plan, paths: dict[str, Path], folder: Path) -> dict[str, float]:
    """One training by a word."""
    tree = {
        "alignment": "sorted-ids",
        "n_estimators": given.trees,
        "max_depth": given.depth,
        "max_bin": 32,
        "learning_rate": 0.3,
    }
    job = JobTable.model_validate({**tree, "privacy": word})
    policy, settings = {"columns": {"withheld_spaces": True}, "keys": {"schemes": [LATTICE]}}, dict[str, Any]()
    for name, columns in plan.columns_of().items():
        table = {"path": str(paths[name]), "id": ID, "columns": columns}
        table |= {"label": LABEL} if name == LABEL_HOLDER else {}
        settings[name] = {"policy": policy, "tables": {"train": table}}
    with ExitStack() as closing:

        def slow(address: str) -> str:
            proxy = DelayProxy(address, given.delay / 1e3)
            closing.callback(proxy.close)
            return proxy.address

        reached = slow if given.delay else None
        federation = closing.enter_context(LocalFederation(folder, settings, reached=reached, dealer=word == PRIVATE))
        pids = {name: federation.pid(name) for name in federation.addresses}
        before = {name: measure_process(pid).cpu_seconds for name, pid in pids.items()}
        with Watched(pids) as watched:
            spec = job.spec(plan.names[0], plan.names[1:], "train", dealer=dealer_of(job))
            asked = federation.operator.submit(jobs_pb2.SubmitRequest(job="private", spec=spec))
            status = federation.operator.watch(asked, lambda _: None)
    assert status.state == "finished", status.error
    cpu = {name: used.cpu_seconds - before[name] for name, used in watched.used.items()}
    rows, levels = traffic([status]), given.trees * given.depth
    said = [row.messages for row in rows if row.step == "shares" and row.disclosure == "SHARE"]
    return {
        **{f"CPU s of {name}": cpu.get(name, 0.0) for name in (*plan.names, "coordinator", DEALER)},
        "CPU s of all": sum(cpu.values()),
        "largest MiB": watched.largest_mib,
        "MB sent": sum(row.bytes for row in rows) / 1e6,
        "messages of shares, a level": sum(said) / levels,
        "s of a level": next(row.amount for row in status.phases if row.name == "train") / levels,
    }


def main() -> None:
    """Print medians of both words, and what the second costs more in each pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"records": 30_000, "columns": 23, "parties": 3, "trees": 5, "depth": 3, "repeat": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--delay", type=float, default=0.0, metavar="MS")
    given = parser.parse_args()
    plan = Plan(given.records, given.columns, given.parties)
    runs: dict[str, list[dict[str, float]]] = {WITHHELD: [], PRIVATE: []}
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as held:
        paths = write(plan, Path(held) / "tables")
        for number in range(given.repeat):
            for word, found in runs.items():
                found.append(run(word, given, plan, paths, Path(held) / f"{word}-{number}"))
    table = Table("", *runs, "more, by pair", title=f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name in runs[PRIVATE][0]:
        columns = [[found[name] for found in of_word] for of_word in runs.values()]
        more = " ".join(f"{after - before:+.2f}" for before, after in zip(*columns, strict=True))
        table.add_row(name, *(f"{statistics.median(column):.2f}" for column in columns), more)
    terminal.out.print(table)


if __name__ == "__main__":
    main()
