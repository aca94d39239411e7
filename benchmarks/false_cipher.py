"""Processor time of a training that is no arithmetic: credit.py's job under a cipher that hides nothing.

    python benchmarks/false_cipher.py [--repeat 3] [--json]

The job of credit.py: three parties and a coordinator, real processes and sockets, ciphertexts of a 2,048-bit Paillier
key by size. Products of ciphertexts are sums of small numbers (`false_residues`), so that next to nothing is left of
the arithmetic; what is left is messages, pipes, copies, plans, checks and accounts. The model is the true one: sums
come back right. Seconds are those of the job and its prediction. What a process does once is apart: its start-up, and
a first small training and prediction. A run beforehand leaves the byte code of modules.

Needs TREETAP_DATA (the folder with credit_default.parquet). This is the only way to such processes: they are forked
with `false_party` in treetap's place, which no party's file can ask for.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import false_party
from credit import experiment
from measured_trainings import forced
from rich.table import Table
from watched_processes import Watched

from treetap import terminal
from treetap.lab import local_federation
from treetap.lab.experiment import run
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import jobs_pb2

#: Kinds of processes, in the order of the table.
KINDS = "label holder", "feature parties", "coordinator"
#: Figure → title of its column.
SHOWN = {"cpu_s": "job", "started_cpu_s": "start-up", "first_cpu_s": "first small job"}
ALL = "all"


class Federation(local_federation.LocalFederation):
    """One that does a small training first; processor seconds by process when it serves, and after that training."""

    first: ClassVar[ExperimentFile]
    started: ClassVar[dict[str, float]] = {}
    ready: ClassVar[dict[str, float]] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        self._read(self.started)
        operator = self.operator
        spec = self.first.spec(self.first.job.model_copy(update={"n_estimators": 1, "subsample": 0.01}))
        name = operator.submit(jobs_pb2.SubmitRequest(job="first", spec=spec))
        trained = operator.watch(name, _unseen)
        asked = predict_request(self.first.protocols[0], job="first-predict", model=name, table="predict")
        for status in (trained, operator.watch(operator.predict(asked), _unseen)):
            assert status.state == "finished", status.error
        self._read(self.ready)
        return self

    def _read(self, seconds: dict[str, float]) -> None:
        watched = Watched({name: self.pid(name) for name in self.addresses})
        watched.read()
        seconds.clear()
        seconds.update((name, used.cpu_seconds) for name, used in watched.used.items())


def _unseen(_: jobs_pb2.JobStatus) -> None:
    """Progress that is not shown."""


def by_kind(seconds: Mapping[str, float], holder: str) -> dict[str, float]:
    """Processor seconds by kind of process, and their sum. `seconds`: by process, as accounts name them."""
    sums = dict.fromkeys(KINDS, 0.0)
    for name, used in seconds.items():
        sums[name if name in KINDS else "label holder" if name == holder else "feature parties"] += used
    return {**sums, ALL: sum(sums.values())}


def measured(key_bits: int) -> dict[str, Any]:
    """One training and prediction; the model's AUC shows that sums came back right."""
    setting = forced(experiment("short-exponent", key_bits), "gmpy2")
    table = read_table(setting, Path())
    Federation.first = setting
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        result = run.run_seed(setting, table, 0, Path(folder) / "federation")
    holder = next(party.name for party in setting.party if party.labels)
    return {
        "cpu_s": by_kind(result.cpu_seconds, holder),
        "started_cpu_s": by_kind(Federation.started, holder),
        "first_cpu_s": by_kind(
            {name: used - Federation.started[name] for name, used in Federation.ready.items()}, holder
        ),
        "auc": result.metrics["test"]["auc"],
        "bytes": sum(row.bytes for row in result.traffic),
        "messages": sum(row.messages for row in result.traffic),
        "processes": result.cpu_seconds,
    }


def report(runs: Sequence[Mapping[str, Any]]) -> None:
    """Medians for a person."""

    def median(figure: str, kind: str) -> str:
        return f"{statistics.median(run[figure][kind] for run in runs):.2f}"

    table = Table("CPU s", *SHOWN.values(), title=f"a false cipher, medians of {len(runs)}")
    for kind in (*KINDS, ALL):
        table.add_row(kind, *(median(figure, kind) for figure in SHOWN))
    terminal.out.print(table)
    terminal.out.print({name: runs[-1][name] for name in ("auc", "bytes", "messages")})


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("false_cipher: set TREETAP_DATA to the folder with credit_default.parquet")
    local_federation.serve = false_party.serve
    run.LocalFederation = Federation  # type: ignore[attr-defined] # the name is another module's
    runs = [measured(given.key_bits) for _ in range(1 + given.repeat)][1:]
    if given.as_json:
        print(json.dumps({"runs": runs}, indent=1))
    else:
        report(runs)


if __name__ == "__main__":
    main()
