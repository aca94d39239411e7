"""Faults that only real processes have: suspended ones, slow lines, clients over HTTP. Over sockets."""

from __future__ import annotations

import json
import os
import random
import signal
import ssl
import time
from collections.abc import Callable
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

from benchmarks.delay import DelayProxy
from tests.campaign import sockets_of_spread_labels
from tests.campaign.disturbances import MARGIN_S, SILENCE_S, Sockets, disturb_all, logs
from tests.oracle import oracle_predict
from tests.system.federations import ended, settings, shards, states
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.commands.certs.authority import issue
from treetap.lab.local_federation import LocalFederation
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Role
from treetap.wire.v2 import jobs_pb2

HERE = world(120, (2, 2, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=12, max_depth=3, max_bin=8, subsample=0.9)
ORACLE = HERE.oracle(PARAMS)
SCORES = [score for (score,) in oracle_predict(ORACLE, HERE.newcomers)]
IDS = [f"r{len(HERE.y) + i:05d}" for i in range(len(SCORES))]
CLIENT = "app"
#: Milliseconds of a round trip.
ROUND_TRIPS = (60, 120, 200, 300, 600)
#: How often each thing is done to each process.
TIMES = 2


def conduct(folder: Path, seed: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """All of them; returns a summary."""
    parties = settings(folder, {"train": HERE})
    for each in parties.values():
        each["silence_s"] = SILENCE_S
    parties[PARTIES[0]]["serve"] = {"clients": [CLIENT], "listen": "127.0.0.1:0", "gateway": "gateway"}
    measures: dict[str, Any] = {}
    with LocalFederation(folder / "federation", parties, {"silence_s": SILENCE_S}) as federation:
        issue(federation.folder / "certs", CLIENT, Role.CLIENT, days=2)
        federation.operator.submit(jobs_pb2.SubmitRequest(job="undisturbed", spec=spec(PARAMS)))
        assert ended(federation, "undisturbed").state == "finished"
        assert_oracles_model(states(federation, HERE), ORACLE, "undisturbed")
        undisturbed = shards(federation, HERE, "undisturbed")

        def wrong(job: str) -> str:
            return "" if shards(federation, HERE, job) == undisturbed else "is not the model of an undisturbed job"

        here = Sockets(federation, spec(PARAMS), PARAMS.n_estimators, wrong, random.Random(seed))
        disturb_all(here, TIMES, tell)
        tell("clients over HTTP while processes are suspended and killed")
        measures["http_answers"] = _clients(here)
        tell("SIGTERM")
        measures["sigterm_s"] = _sigterm(here)
        logs(here)
    spread = sockets_of_spread_labels.conduct(folder / "spread", seed, tell)
    findings = here.findings + spread.findings
    trained: dict[str, float] = {}
    for milliseconds in ROUND_TRIPS:
        tell(f"training with a round trip of {milliseconds} ms")
        _slow_line(folder / f"rtt-{milliseconds}", milliseconds, findings, trained)
    return {
        "seed": seed,
        "faults": here.faults + spread.faults,
        "jobs": here.jobs + spread.jobs + len(ROUND_TRIPS),
        "of_spread_labels": {"faults": spread.faults, "jobs": spread.jobs, "named_within_s": spread.named_s},
        "named_within_s": {kind: round(seconds, 1) for kind, seconds in here.named_s.items()},
        "silence_s": SILENCE_S,
        "trained_at_round_trip_ms": trained,
        **measures,
        "findings": len(findings),
        "failing": findings,
    }


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
    deadline = time.monotonic() + 60
    while not federation.operator.status("served")[0].serving.grpc and time.monotonic() < deadline:
        time.sleep(0.1)
    client = _Client(here, federation.start_gateway(PARTIES[0]))

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
    """A party ends at SIGTERM in the middle of a job."""
    job = here.train()
    here.at_some_moment(job)
    here.faults += 1
    process = here.federation._processes[PARTIES[1]]
    begun = time.monotonic()
    process.send(signal.SIGTERM)
    process.ended(60)
    took = round(time.monotonic() - begun, 2)
    if took > MARGIN_S:
        here.findings.append(f"SIGTERM took {took} s")
    here.federation.restart(PARTIES[1])
    if ended(here.federation, job).state != "finished":
        here.resume("SIGTERM", job)
    return took


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
