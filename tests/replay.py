"""A job that was conducted once, conducted again request by request, with a pause for questions after each wave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from tests.simulator import COORDINATOR, Federation, Message, run
from tests.worlds import PARTIES, World, spec, world
from treetap.protocols.agreement import job_digest
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import filled, name_of
from treetap.wire.v2 import control_pb2, jobs_pb2, setup_pb2

Conducted = list[tuple[Literal["begin", "end"], str, control_pb2.StepRequest]]
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=3, min_child_weight=0.1)
#: A world in which all three parties win splits, in both trees.
HERE = world(16, (1, 1, 1), seed=25, fresh=6)
ORACLE = HERE.oracle(PARAMS)
#: Without tables to build, which take most of the time of so small a job.
JOB = spec(PARAMS, obfuscation="standard")
#: What the coordinator calls its submission of the job.
SUBMISSION = "replayed"
#: What parties put into each message of the job of that submission.
DIGEST = job_digest("job", setup_pb2.Prepare(spec=JOB, submission=SUBMISSION))
#: Steps that end a job or only report on it.
CLOSING = ("account", "leave")


def conducted(folder: Path, here: World = HERE, job: setup_pb2.JobSpec = JOB) -> tuple[Conducted, Conducted]:
    """The steps that a coordinator asks for in a training, and in a prediction of the new records by blocks of four."""

    async def main() -> tuple[Conducted, Conducted]:
        federation = Federation(folder, here.tables)
        assert (await federation.train(job)).state == "finished"
        training = list(federation.conducted)
        request = predict_request(model="job", job="predict", block=4)
        assert (await federation.predict(request)).state == "finished"
        prediction = federation.conducted[len(training) :]
        await federation.close()
        return _without_closing(training), _without_closing(prediction)

    return run(main())


async def steps_of(federation: Federation, job: setup_pb2.JobSpec) -> Conducted:
    """The steps that a coordinator asks for in a training."""
    assert (await federation.train(job)).state == "finished"
    return _without_closing(federation.conducted)


def _without_closing(events: Conducted) -> Conducted:
    return [event for event in events if name_of(event[2]) not in CLOSING]


def faultless(folder: Path, here: World = HERE, job: setup_pb2.JobSpec = JOB) -> list[Message]:
    """Every message of a training that nothing disturbs."""

    async def main() -> list[Message]:
        federation = Federation(folder, here.tables)
        assert (await federation.train(job)).state == "finished"
        return federation.log

    return run(main())


def asked(job: str = "", protocol: str = "eini", **changes: Any) -> jobs_pb2.PredictRequest:
    """A prediction of the new records by blocks of four, without a protocol's name by Fed-EINI."""
    return predict_request(protocol, model="job", job=job, **({"block": 4} | changes))


def with_word(name: str, job: str = "job", attempt: int = 1) -> control_pb2.StepRequest:
    """A request with this step's word and, where a job is opened, just enough to be heard."""
    request = control_pb2.StepRequest(job=job, attempt=attempt)
    filled(request, name)
    if name == "prepare":
        request.setup.prepare.spec.CopyFrom(JOB)
        request.setup.prepare.submission = SUBMISSION
        for party in PARTIES:
            request.setup.prepare.peers.add(name=party, address=f"{party}:1")
    elif name == "leave":
        request.setup.leave.submission = SUBMISSION
    elif name == "open_model":
        request.prediction.open_model.recipient = PARTIES[0]
        request.prediction.open_model.feature_parties.extend(PARTIES[1:])
        request.prediction.open_model.model = "nothing"
        request.prediction.open_model.parameters.interactive.form = "batched"
        request.prediction.open_model.away_policy = "fail"
    return request


async def ask(
    federation: Federation, party: str, request: control_pb2.StepRequest, caller: str = COORDINATOR
) -> control_pb2.StepResult:
    """Have a party do a step; its result without the count of bytes sent, which grows."""
    result = None
    async for event in federation.node(party).step(caller, request):
        if event.HasField("result"):
            result = control_pb2.StepResult.FromString(event.result.SerializeToString())
    assert result is not None
    result.bytes = 0
    return result


class Replay:
    """Conducts again; `answers` holds what each party was asked and has answered so far, in order.

    Everything but the places of the winning candidates is the same again; those are permuted afresh in every run.
    """

    def __init__(self, federation: Federation, events: Conducted) -> None:
        self.federation, self._events = federation, events
        self.answers: dict[str, list[tuple[control_pb2.StepRequest, control_pb2.StepResult]]] = {
            party: [] for party in federation.configs
        }

    def vocabulary(self, party: str) -> list[control_pb2.StepRequest]:
        """Every request that this party gets in the job."""
        return [request for kind, to, request in self._events if kind == "begin" and to == party]

    async def waves(self, before: str | None = None) -> AsyncIterator[None]:
        """Go on to the next moment at which no step is under way; `before` stops at a wave that begins with a word."""
        running: dict[tuple[str, bytes], tuple[control_pb2.StepRequest, asyncio.Task[control_pb2.StepResult]]] = {}
        for kind, to, recorded in self._events:
            key = (to, recorded.SerializeToString())
            if kind == "begin":
                if not running:
                    yield
                    if name_of(recorded) == before:
                        return
                request = self._of_this_run(to, recorded)
                running[key] = (request, asyncio.ensure_future(ask(self.federation, to, request)))
            else:
                request, task = running.pop(key)
                result = await task
                self.answers[to].append((request, result))
        yield

    async def to(self, before: str | None = None) -> None:
        """Replay everything, or up to the first wave that begins with a word."""
        async for _ in self.waves(before):
            pass

    def _of_this_run(self, to: str, recorded: control_pb2.StepRequest) -> control_pb2.StepRequest:
        request = control_pb2.StepRequest.FromString(recorded.SerializeToString())
        if name_of(request) == "prepare":
            request.setup.prepare.submission = SUBMISSION
        if name_of(request) == "open_model":  # of whichever job the model here was trained by
            job = self.federation.state(to) / "models" / request.prediction.open_model.model / "job.json"
            request.prediction.open_model.submission = json.loads(job.read_text())["submission"]
        return request
