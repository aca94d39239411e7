"""Costs of agreement for a job: signatures, approvals, charges, and looks into a ledger that has grown for years.

    python benchmarks/agreements.py [--lines 10000] [--repeat 20] [--json]

A training of three parties, whose policies ask for approval by hand. Each operation is what production calls, files
synchronised; `ms` are medians of processor time and of wall time, `a job` is how often a job of three parties has the
operation; parties do theirs at once, and the wall time of the sum is that of all, one after the other.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from treetap import terminal
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import Pending
from treetap.models.line_file import LineFile
from treetap.party.approvals.decisions import Asked
from treetap.party.approvals.ledger import Approvals
from treetap.party.approvals.openings import admit, operator_of
from treetap.party.config import PartyConfig
from treetap.party.policy import Policy
from treetap.party.runtime.job_ledger import JobLedger
from treetap.party.runtime.ledger import LEDGER, SEED, Charge, Kind, Ledger, Occasion, ledger_of
from treetap.process.config import TlsConfig
from treetap.protocols.agreement import job_digest, statement
from treetap.protocols.job_spec import put_params, rows_of_training
from treetap.protocols.limits import Partner
from treetap.protocols.messages import members_of
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Role
from treetap.wire.signatures import signed
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import setup_pb2

BANK, OTHERS, COORDINATOR, ANN = "bank", ("shop", "telco"), "coordinator", "ann"
PARTIES = 1 + len(OTHERS)


class Bench:
    """The files of a party and an operator, and a job's opening. `lines`: of the ledger."""

    def __init__(self, folder: Path, lines: int) -> None:
        create_authority(folder)
        self.operator = issue(folder, "operator", Role.OPERATOR)
        own: TlsFiles = issue(folder, BANK, Role.PARTY)
        tls = TlsConfig(ca=own.ca, certificate=own.certificate, key=own.key)
        limits = Partner(jobs_per_day=10**9, records_per_day=10**12)
        people = {"approval": "manual", "approvers": [ANN], "peers": [*OTHERS], "operators": ["operator"]}
        policy = Policy.model_validate({"people": people, "partners": {"*": limits}})
        self.config = PartyConfig(name=BANK, state=folder / "state", tls=tls).under(policy)
        self.spec = setup_pb2.JobSpec(
            table="loans", alignment="psi", aggregator=OTHERS[0], feature_parties=[BANK, OTHERS[1]]
        )
        put_params(self.spec, BoostingParams(n_estimators=20, max_depth=4))
        self.members, self.rows = members_of(self.spec, COORDINATOR), rows_of_training(self.spec)
        self.approvals = Approvals(BANK, folder / "approvals", own)
        self._numbers, self._files = count(), own
        self._grow(lines)

    def _grow(self, lines: int) -> None:
        """Fill the ledger as one job after the other does."""
        kinds = (Kind.TRAINING, Kind.RECORDS)
        charges = (
            Charge(kinds[number % 2], self.occasion(number // 2), seconds=1e9 + number).plain()
            for number in range(lines)
        )
        LineFile(self.config.state / LEDGER, lambda: SEED).fill(list(charges))

    def occasion(self, number: int) -> Occasion:
        """The occasion of a job's charges."""
        return Occasion("loans", OTHERS, COORDINATOR, f"job-{number}", 1)

    def ledger(self) -> JobLedger:
        """The ledger for a new job."""
        number = next(self._numbers)
        return JobLedger(ledger_of(self.config.state), self.occasion(10**6 + number), BANK, self.config.policy)

    def job(self) -> tuple[str, setup_pb2.Prepare]:
        """A new job, signed."""
        name = f"job-{next(self._numbers)}"
        opening = setup_pb2.Prepare(spec=self.spec, submission=name)
        return name, self.sign(name, opening)

    def sign(self, name: str, opening: setup_pb2.Prepare) -> setup_pb2.Prepare:
        """The operator's part."""
        opening.signed.CopyFrom(signed(self.operator, statement(job_digest(name, opening)), "job", time.time_ns()))
        return opening

    def open(self, name: str, opening: setup_pb2.Prepare) -> None:
        """A party's check of the document, its signature and its approval."""
        admit(self.approvals, self.config, name, opening, job_digest(name, opening), self.members, self.rows, 0.0)

    def waiting(self) -> tuple[str, setup_pb2.Prepare]:
        """A job that waits."""
        name, opening = self.job()
        try:
            self.open(name, opening)
        except Pending:
            return name, opening
        raise AssertionError("the job does not wait")

    def asked(self, name: str) -> Asked:
        """The job as the party's people see it."""
        return self.approvals.listed(name)[0]

    def approve(self, name: str) -> None:
        """An approver's decision."""
        self.approvals.decide(ANN, name, self.asked(name).digest, days=7)


Operation = Callable[[], Callable[[], Any]]


def operations(bench: Bench) -> dict[str, tuple[int, Operation]]:
    """Operation → how often a job of three parties has it; what prepares a call, outside the time, and returns it."""

    def of_job(prepare: Callable[[], tuple[str, setup_pb2.Prepare]], call: Callable[..., Any]) -> Operation:
        def prepared() -> Callable[[], Any]:
            name, opening = prepare()
            return lambda: call(name, opening)

        return prepared

    def unsigned() -> tuple[str, setup_pb2.Prepare]:
        name, opening = bench.job()
        opening.ClearField("signed")
        return name, opening

    def check(name: str, opening: setup_pb2.Prepare, *, new: bool) -> None:
        digest, own = job_digest(name, opening), bench.config
        operator_of(BANK, name, opening, digest, own.transport(), own.policy, new=new)

    def approved() -> tuple[str, setup_pb2.Prepare]:
        name, opening = bench.waiting()
        bench.approve(name)
        return name, opening

    def ask(name: str, opening: setup_pb2.Prepare) -> None:
        try:
            bench.open(name, opening)
        except Pending:
            return

    def charge(kind: Kind) -> Operation:
        def prepared() -> Callable[[], Any]:
            own = bench.ledger()
            return lambda: own.enter(kind)

        return prepared

    def look() -> Callable[[], Any]:
        own = bench.ledger()
        return lambda: own.check_opening(Kind.TRAINING, "boosting", ["loans"])

    return {
        "sign a job's document (operator)": (1, of_job(unsigned, bench.sign)),
        "first check of a signature": (0, of_job(bench.job, lambda *job: check(*job, new=True))),
        "later check of it": (0, of_job(bench.job, lambda *job: check(*job, new=False))),
        "ask people: first check, words, file": (PARTIES, of_job(bench.job, ask)),
        "approve and countersign": (PARTIES, of_job(bench.waiting, lambda name, _: bench.approve(name))),
        "open: later check, countersignature": (PARTIES, of_job(approved, bench.open)),
        "look at a partner's limits": (2 * PARTIES, look),
        "charge an attempt": (PARTIES, charge(Kind.TRAINING)),
        "charge its records": (PARTIES, charge(Kind.RECORDS)),
        "read the ledger (once, after a start)": (0, lambda: Ledger(bench.config.state).charges),
    }


def measured(bench: Bench, repeat: int) -> dict[str, dict[str, float]]:
    """Operation → its milliseconds of processor and wall time, and how often a job has it."""
    figures = {}
    for name, (times, prepare) in operations(bench).items():
        runs = []
        for _ in range(repeat):
            call = prepare()
            cpu, wall = time.process_time(), time.perf_counter()
            call()
            runs.append((time.process_time() - cpu, time.perf_counter() - wall))
        cpu_ms, wall_ms = (1000 * statistics.median(column) for column in zip(*runs, strict=True))
        figures[name] = {"cpu_ms": cpu_ms, "wall_ms": wall_ms, "a_job": times}
    sums = {key: sum(row[key] * row["a_job"] for row in figures.values()) for key in ("cpu_ms", "wall_ms")}
    figures["sum of a job"] = {**sums, "a_job": 0}
    return figures


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    logging.disable()  # each approval is a line of the log
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(Bench(Path(folder), given.lines), given.repeat)
    if given.as_json:
        print(json.dumps(figures, indent=1))
        return
    table = terminal.table("operation", "ms of CPU", "ms of wall", "a job")
    for name, row in figures.items():
        table.add_row(name, f"{row['cpu_ms']:.2f}", f"{row['wall_ms']:.2f}", str(row["a_job"] or ""))
    terminal.out.print(table)


if __name__ == "__main__":
    main()
