"""Faults that only real processes have: suspended ones, hung workers, slow lines, clients over HTTP. Over sockets."""

from __future__ import annotations

import json
import os
import random
import signal
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from benchmarks.delay import DelayProxy
from tests.oracle import oracle_predict
from tests.system.federations import ended, settings, shards, states
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.commands.certs.authority import issue
from treetap.commands.local_federation import LocalFederation
from treetap.errors import TreetapError
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.roles import Role
from treetap.wire.v2 import jobs_pb2

HERE = world(120, (2, 2, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=12, max_depth=3, max_bin=8, subsample=0.9)
ORACLE = HERE.oracle(PARAMS)
SCORES = [score for (score,) in oracle_predict(ORACLE, HERE.newcomers)]
IDS = [f"r{len(HERE.y) + i:05d}" for i in range(len(SCORES))]
CLIENT = "app"
#: Seconds without a sign of life after which anybody counts as silent, and those that naming it may take besides.
SILENCE_S, MARGIN_S = 6.0, 5.0
#: Milliseconds of a round trip.
ROUND_TRIPS = (60, 120, 200, 300, 600)
#: How often each thing is done to each process.
TIMES = 2


@dataclass
class Sockets:
    """A federation of real processes, and what was found and measured on it."""

    federation: LocalFederation
    undisturbed: dict[str, bytes]
    rng: random.Random
    findings: list[str] = field(default_factory=list)
    named_s: dict[str, float] = field(default_factory=dict)  #: the longest time until each kind of fault was named
    faults: int = 0
    jobs: int = 0

    def train(self) -> str:
        """Submit a job; returns its name."""
        self.jobs += 1
        job = f"job-{self.jobs}"
        self.federation.operator.submit(jobs_pb2.SubmitRequest(job=job, spec=spec(PARAMS)))
        return job

    def at_some_moment(self, job: str) -> None:
        """Wait until the job is somewhere in its trees."""
        until = self.rng.randrange(1, PARAMS.n_estimators - 4)
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
        if shards(self.federation, HERE, job) != self.undisturbed:
            self.findings.append(f"{kind}, {victim}: {job} is not the model of an undisturbed job")

    def resume(self, kind: str, job: str) -> None:
        """Go on with a job until it is finished."""
        for _ in range(5):
            with suppress(TreetapError):
                self.federation.operator.resume(job)
            if (status := ended(self.federation, job)).state == "finished":
                return
            time.sleep(1.0)
        self.findings.append(f"{kind}: {job} cannot be finished: {status.error!r}")

    def worker_of(self, party: str) -> int:
        """The process id of a party's compute worker."""
        parent = self.federation.pid(party)
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_bytes()
                if int(fields[1]) == parent and b"spawn_main" in command:
                    return int(folder.name)
        raise AssertionError(f"{party} has no worker")


def conduct(folder: Path, seed: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """All of them; returns a summary."""
    parties = settings(folder, {"train": HERE})
    for each in parties.values():
        each["silence_s"] = SILENCE_S
    parties[PARTIES[0]]["serve"] = {"clients": [CLIENT], "http": "127.0.0.1:0"}
    measures: dict[str, Any] = {}
    with LocalFederation(folder / "federation", parties, {"silence_s": SILENCE_S}) as federation:
        issue(federation.folder / "certs", CLIENT, Role.CLIENT, days=2)
        federation.operator.submit(jobs_pb2.SubmitRequest(job="undisturbed", spec=spec(PARAMS)))
        assert ended(federation, "undisturbed").state == "finished"
        assert_oracles_model(states(federation, HERE), ORACLE, "undisturbed")
        here = Sockets(federation, shards(federation, HERE, "undisturbed"), random.Random(seed))
        for turn in range(TIMES):
            tell(f"processes suspended, killed; workers suspended, killed: turn {turn + 1} of {TIMES}")
            for victim in PARTIES:
                _suspended(here, victim)
                _killed(here, victim)
                _worker(here, victim, signal.SIGSTOP)
                _worker(here, victim, signal.SIGKILL)
            _coordinator_killed(here)
        tell("clients over HTTP while processes are suspended and killed")
        measures["http_answers"] = _clients(here)
        tell("SIGTERM beside a suspended worker")
        measures["sigterm_s"] = _sigterm(here)
        _logs(here)
    findings = here.findings
    trained: dict[str, float] = {}
    for milliseconds in ROUND_TRIPS:
        tell(f"training with a round trip of {milliseconds} ms")
        _slow_line(folder / f"rtt-{milliseconds}", milliseconds, findings, trained)
    return {
        "seed": seed,
        "faults": here.faults,
        "jobs": here.jobs + len(ROUND_TRIPS),
        "named_within_s": {kind: round(seconds, 1) for kind, seconds in here.named_s.items()},
        "silence_s": SILENCE_S,
        "trained_at_round_trip_ms": trained,
        **measures,
        "findings": len(findings),
        "failing": findings,
    }


def _suspended(here: Sockets, victim: str) -> None:
    pid = here.federation.pid(victim)
    here.disturb(
        "suspended process", victim, lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT), ""
    )


def _killed(here: Sockets, victim: str) -> None:
    here.disturb(
        "killed process", victim, lambda: here.federation.kill(victim), lambda: here.federation.restart(victim), ""
    )


def _worker(here: Sockets, victim: str, how: signal.Signals) -> None:
    """The party starts a lost worker again by itself."""
    kind = "suspended worker" if how is signal.SIGSTOP else "killed worker"
    here.disturb(kind, victim, lambda: os.kill(here.worker_of(victim), how), lambda: None, "compute worker")


def _coordinator_killed(here: Sockets) -> None:
    here.faults += 1
    job = here.train()
    here.at_some_moment(job)
    here.federation.kill("coordinator")
    here.federation.restart("coordinator")
    if here.federation.operator.status(job)[0].state != "finished":
        here.resume("killed coordinator", job)
    if shards(here.federation, HERE, job) != here.undisturbed:
        here.findings.append(f"killed coordinator: {job} is not the model of an undisturbed job")


class _Client:
    """A client of the served model over HTTP."""

    def __init__(self, here: Sockets, address: str) -> None:
        certs = here.federation.folder / "certs"
        self._tls = ssl.create_default_context(cafile=str(certs / "ca.crt"))
        self._tls.load_cert_chain(certs / f"{CLIENT}.crt", certs / f"{CLIENT}.key")
        self._host, _, port = address.rpartition(":")
        self._port = int(port)

    def ask(self, k: int) -> tuple[int, float | None]:
        """Status, and the score of record k; 0 where nobody answers."""
        connection = HTTPSConnection(self._host, self._port, context=self._tls, timeout=30)
        try:
            body = json.dumps({"ids": [IDS[k]], "deadline_s": 5.0}).encode()
            connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found = json.loads(answer.read())
            return answer.status, found["predictions"][0]["score"] if answer.status == 200 else None
        except (OSError, HTTPException):
            return 0, None
        finally:
            connection.close()


def _clients(here: Sockets) -> dict[str, int]:
    """Every answer is the oracle's score or an error in time; when all is whole again there are answers again."""
    federation = here.federation
    asked = {"model": "undisturbed", "job": "served", "table": "train-new", "serve": True}
    federation.operator.predict(predict_request(**asked, away_policy="retry", away_deadline_s=60.0))
    statuses: dict[str, int] = {}
    address, deadline = "", time.monotonic() + 60
    while not address and time.monotonic() < deadline:
        address = federation.operator.status("served")[0].serving.http
        time.sleep(0.1)
    client = _Client(here, address)

    def ask(times: int) -> int:
        good = 0
        for number in range(times):
            begun = time.monotonic()
            status, score = client.ask(number % len(IDS))
            statuses[str(status)] = statuses.get(str(status), 0) + 1
            if time.monotonic() - begun > 5.0 + MARGIN_S:
                here.findings.append(f"a client waited {time.monotonic() - begun:.1f} s for {status}")
            if score is not None and abs(score - SCORES[number % len(IDS)]) > 1e-9:
                here.findings.append(f"a client got {score}, not {SCORES[number % len(IDS)]}")
            good += status == 200
        return good

    def recovers(what: str) -> None:
        until = time.monotonic() + 90
        while time.monotonic() < until:
            if ask(1):
                return
            time.sleep(1.0)
        here.findings.append(f"no client is answered after {what}")

    recovers("the start")
    for victim in PARTIES[1:]:
        here.faults += 2
        os.kill(federation.pid(victim), signal.SIGSTOP)
        ask(3)
        os.kill(federation.pid(victim), signal.SIGCONT)
        recovers(f"{victim} was suspended")
        federation.kill(victim)
        ask(2)
        federation.restart(victim)
        recovers(f"{victim} was killed")
    federation.operator.cancel("served")
    return statuses


def _sigterm(here: Sockets) -> float:
    """A party ends at SIGTERM though its worker is suspended in the middle of a job."""
    job = here.train()
    here.at_some_moment(job)
    here.faults += 1
    os.kill(here.worker_of(PARTIES[1]), signal.SIGSTOP)
    time.sleep(0.5)
    process = here.federation._processes[PARTIES[1]]
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    took = round(time.monotonic() - begun, 2)
    if took > MARGIN_S:
        here.findings.append(f"SIGTERM beside a suspended worker took {took} s")
    here.federation.restart(PARTIES[1])
    if ended(here.federation, job).state != "finished":
        here.resume("SIGTERM", job)
    return took


def _logs(here: Sockets) -> None:
    for log in here.federation.folder.glob("*/log.txt"):
        text = log.read_text(errors="replace")
        if "Traceback (most recent call last)" in text:
            at = text.index("Traceback (most recent call last)")
            here.findings.append(f"{log.parent.name} logged a traceback: ...{text[at : at + 1500]}")


def _slow_line(folder: Path, milliseconds: int, findings: list[str], trained: dict[str, float]) -> None:
    """Every line to a party has the round trip, from the first packet of the first connection on."""
    proxies: list[DelayProxy] = []

    def reached(address: str) -> str:
        proxies.append(DelayProxy(address, milliseconds / 2000))
        return proxies[-1].address

    params = BoostingParams(n_estimators=1, max_depth=2, max_bin=8)
    here = settings(folder, {"train": HERE})
    with LocalFederation(folder / "federation", here, reached=reached) as federation:
        begun = time.monotonic()
        federation.operator.submit(jobs_pb2.SubmitRequest(job="far", spec=spec(params)))
        status = ended(federation, "far")
        trained[str(milliseconds)] = round(time.monotonic() - begun, 1)
        if status.state != "finished":
            findings.append(f"no training with a round trip of {milliseconds} ms: {status.error}")
        else:
            assert_oracles_model(states(federation, HERE), HERE.oracle(params), "far")
    for proxy in proxies:
        proxy.close()
