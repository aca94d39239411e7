"""Processes of a federation over sockets suspended and killed in the middle of jobs, and what must come of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.system.federations import ended
from tests.worlds import PARTIES
from treetap.errors import TreetapError
from treetap.lab.local_federation import LocalFederation
from treetap.wire.v2 import jobs_pb2, setup_pb2

#: Seconds without a sign of life after which anybody counts as silent, and those that naming it may take besides.
SILENCE_S, MARGIN_S = 6.0, 5.0


@dataclass
class Sockets:
    """A federation of real processes, and what was found and measured on it."""

    federation: LocalFederation
    order: setup_pb2.JobSpec
    trees: int
    wrong: Callable[[str], str]  #: what is wrong with a finished job's model; empty: nothing
    rng: random.Random
    findings: list[str] = field(default_factory=list)
    named_s: dict[str, float] = field(default_factory=dict)  #: the longest time until each kind of fault was named
    faults: int = 0
    jobs: int = 0

    def train(self) -> str:
        """Submit a job; returns its name."""
        self.jobs += 1
        job = f"job-{self.jobs}"
        self.federation.operator.submit(jobs_pb2.SubmitRequest(job=job, spec=self.order))
        return job

    def at_some_moment(self, job: str) -> None:
        """Wait until the job is somewhere in its trees."""
        until = self.rng.randrange(1, max(self.trees - 4, self.trees // 2))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            status = self.federation.operator.status(job)[0]
            if status.state != "running" or (status.phase == "train" and status.round >= until):
                return
            time.sleep(0.02)

    def disturb(self, kind: str, victim: str, hurt: Callable[[], None], heal: Callable[[], None], word: str) -> None:
        """One fault in the middle of a job: it is named in time, and the healed job comes out as an undisturbed one."""
        self.faults += 1
        job = self.train()
        self.at_some_moment(job)
        hurt()
        begun = time.monotonic()
        status = ended(self.federation, job)
        took = time.monotonic() - begun
        heal()
        if status.state != "finished":
            self.named_s[kind] = max(self.named_s.get(kind, 0.0), took)
            if took > SILENCE_S + MARGIN_S:
                self.findings.append(f"{kind}, {victim}: named only after {took:.1f} s")
            if status.state != "interrupted" or victim not in status.error or word not in status.error:
                self.findings.append(f"{kind}, {victim}: {status.state}: {status.error!r} does not name it")
            self.resume(kind, job)
        if says := self.wrong(job):
            self.findings.append(f"{kind}, {victim}: {job} {says}")

    def resume(self, kind: str, job: str) -> None:
        """Go on with a job until it is finished."""
        for _ in range(5):
            with suppress(TreetapError):
                self.federation.operator.resume(job)
            if (status := ended(self.federation, job)).state == "finished":
                return
            time.sleep(1.0)
        self.findings.append(f"{kind}: {job} cannot be finished: {status.error!r}")


def disturb_all(here: Sockets, times: int, tell: Callable[[str], None]) -> None:
    """Every party suspended and killed, the coordinator killed, each in the middle of a job."""
    for turn in range(times):
        tell(f"processes suspended, killed: turn {turn + 1} of {times}")
        for victim in PARTIES:
            _suspended(here, victim)
            _killed(here, victim)
        _coordinator_killed(here)


def _suspended(here: Sockets, victim: str) -> None:
    pid = here.federation.pid(victim)
    here.disturb(
        "suspended process", victim, lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT), ""
    )


def _killed(here: Sockets, victim: str) -> None:
    here.disturb(
        "killed process", victim, lambda: here.federation.kill(victim), lambda: here.federation.restart(victim), ""
    )


def _coordinator_killed(here: Sockets) -> None:
    here.faults += 1
    job = here.train()
    here.at_some_moment(job)
    here.federation.kill("coordinator")
    here.federation.restart("coordinator")
    if here.federation.operator.status(job)[0].state != "finished":
        here.resume("killed coordinator", job)
    if says := here.wrong(job):
        here.findings.append(f"killed coordinator: {job} {says}")


def logs(here: Sockets) -> None:
    for log in here.federation.folder.glob("**/log.txt"):
        text = log.read_text(errors="replace")
        if "Traceback (most recent call last)" in text:
            at = text.index("Traceback (most recent call last)")
            here.findings.append(f"{log.parent.name} logged a traceback: ...{text[at : at + 1500]}")
