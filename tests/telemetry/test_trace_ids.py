"""The trace id of a job: one at all its processes and attempts, random, and in the lines of logs as JSON."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from tests.simulator import COORDINATOR, Federation, Message
from tests.worlds import PARTIES, spec, world
from treetap import logs
from treetap.errors import Malformed
from treetap.party.runtime.attempts import SUBMISSIONS
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2

HERE = world(16, (1, 1, 1))
JOB = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=4))
PREDICTION = predict_request(model="job")


def _requests(federation: Federation, *, opening: bool) -> list[control_pb2.StepRequest]:
    """The requests that the coordinator made, those that open a job or the others."""
    began = [request for when, _, request in federation.conducted if when == "begin"]
    return [request for request in began if (name_of(request) in SUBMISSIONS) == opening]


async def test_a_resumed_job_keeps_its_trace_and_another_job_has_its_own(tmp_path: Path) -> None:
    """Every session has the id of the journal, over a coordinator's death, which crosses in openings alone."""
    federation = Federation(tmp_path, HERE.tables)
    killed = list[int]()

    def kill_once(message: Message) -> None:
        if message.word == "candidate_sums" and not killed:
            killed.append(message.number)
            federation.restart(PARTIES[1])

    federation.hook = kill_once
    assert (await federation.train(JOB)).state == "interrupted"
    federation.restart(COORDINATOR)
    assert (await federation.resume()).state == "finished"
    trace = bytes.fromhex(federation.jobs._journal.submitted("job").trace)
    openings = _requests(federation, opening=True)
    assert {request.attempt for request in openings} == {1, 2}
    assert {request.trace for request in openings} == {trace}
    assert len(trace) == 16
    assert (await federation.predict(PREDICTION)).state == "finished"
    others = {request.trace for request in _requests(federation, opening=True)} - {trace}
    assert [len(other) for other in others] == [16]
    assert {request.trace for request in _requests(federation, opening=False)} == {b""}
    assert bytes_by_class(control_pb2.StepRequest(trace=trace)) == {"CONTROL": 18}


@pytest.mark.parametrize("trace", [bytes(15), bytes(17), bytes(1_000_000)], ids=["short", "long", "longest"])
async def test_a_trace_of_another_length_is_refused(trace: bytes, tmp_path: Path) -> None:
    """No session opens, and the error does not repeat it."""
    federation = Federation(tmp_path, HERE.tables)
    request = control_pb2.StepRequest(job="job", attempt=1, trace=trace)
    request.setup.prepare.spec.CopyFrom(JOB)
    with pytest.raises(Malformed, match=rf"a trace id has 16 bytes, not {len(trace)}$"):
        _ = [event async for event in federation.node(PARTIES[0]).step(COORDINATOR, request)]
    assert not federation.node(PARTIES[0])._sessions


async def test_lines_of_json_have_the_trace_beside_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of the coordinator and of every party, of steps and of messages between parties; text is as it was."""
    as_json, as_text = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    for target, formatter in ((as_json, logs.JsonLines()), (as_text, logs.TextLines())):
        handler = logging.StreamHandler(target)
        handler.setFormatter(formatter)
        root.addHandler(handler)
    caplog.set_level(logging.INFO)

    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(JOB)).state == "finished"
    trace = federation.jobs._journal.submitted("job").trace
    await federation.close()
    lines = [json.loads(line) for line in as_json.getvalue().splitlines()]
    of_steps = [line for line in lines if "seconds" in line]
    assert {line["logger"].split(".")[1] for line in of_steps} == {"coordinator", "party"}
    with_trace = [line for line in of_steps if line.get("trace") == trace]
    assert [line for line in of_steps if line not in with_trace and line["step"] != "leave"] == []
    assert next(iter(with_trace)).keys() >= {"job", "trace", "attempt", "step", "peer"}
    assert trace not in as_text.getvalue()
    assert "[job=job attempt=1 step=prepare" in as_text.getvalue()
