"""Telemetry: faults of the table `[telemetry]`, what the environment may say, and the trace id of a job."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.simulator import COORDINATOR, Federation, Message
from tests.worlds import PARTIES, spec, world
from treetap import logs
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError, Malformed
from treetap.logs import pin_libraries, restore_variables_of_spans
from treetap.metrics import ProcessMetrics
from treetap.party.config import read as read_party
from treetap.party.runtime.attempts import SUBMISSIONS
from treetap.process.config import Secret, TelemetryConfig
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2

NEAR, FAR = "http://127.0.0.1:4318/v1/traces", "https://collector.example:4318/v1/traces"
PARTY = 'name = "bank"\nstate = "state"\ninsecure = true\n[telemetry]\n'
COORDINATOR_FILE = 'state = "state"\ninsecure = true\nparties = {}\n[telemetry]\n'


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"endpoint": FAR}, "ca goes with https://"),
        ({"endpoint": NEAR, "ca": "ca.crt"}, "ca goes with https://"),
        ({"endpoint": "http://collector.example:4318/v1/traces"}, "use https:// and ca"),
        ({"endpoint": "collector:4318"}, "is an address such as"),
        ({"endpoint": "http://127.0.0.1:many/"}, "Port could not be cast"),
        ({"endpoint": "http://127.0.0.1/?token=t"}, "is an address such as"),
        ({"endpoint": NEAR, "headers": {"file": "h", "command": ["cat"]}}, "name one of"),
        ({"endpoint": NEAR, "headers": {"authorization": "t"}}, "Extra inputs"),
    ],
    ids=["no-ca", "ca-in-vain", "plain-and-far", "no-scheme", "port", "query", "two-sources", "inline"],
)
def test_faults_of_the_table(keys: dict[str, object], fault: str) -> None:
    """Each is refused by what is wrong; secrets have no key."""
    with pytest.raises(ValidationError, match=fault):
        TelemetryConfig.model_validate(keys)


def test_a_password_in_the_address_is_not_shown(tmp_path: Path) -> None:
    """Both kinds of files read the table, take paths from their folder, and name the key of a fault."""
    file = tmp_path / "party.toml"
    file.write_text(f'{PARTY}endpoint = "https://us:geheim@collector/"\n')
    with pytest.raises(ConfigError, match=r"telemetry\.endpoint: is an address without a user") as fault:
        read_party(file)
    assert "geheim" not in str(fault.value)
    for head, read in ((PARTY, read_party), (COORDINATOR_FILE, CoordinatorConfig.from_file)):
        file.write_text(f'{head}endpoint = "{FAR}"\nca = "ca.crt"\nheaders = {{ file = "/run/secrets/headers" }}\n')
        read_now = read(file).telemetry
        assert read_now is not None
        assert (read_now.ca, read_now.headers) == (tmp_path / "ca.crt", Secret(file=Path("/run/secrets/headers")))


def test_without_the_extra_a_process_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the party, the table and the command that installs it; without the table none is needed."""
    for name in ("spans",):
        monkeypatch.delitem(sys.modules, f"treetap.process.{name}", raising=False)
    for name in ["opentelemetry", *(name for name in sys.modules if name.startswith("opentelemetry."))]:
        monkeypatch.setitem(sys.modules, name, None)
    metrics = ProcessMetrics("party", "bank")
    metrics.export_spans(None)
    assert metrics.spans is None
    said = r"\[telemetry\] needs (opentelemetry\S*|requests): .*\[telemetry\]'"
    with pytest.raises(ConfigError, match=said) as fault:
        metrics.export_spans(TelemetryConfig(endpoint=NEAR))
    assert fault.value.party == "bank"


def test_variables_are_ignored_unless_the_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are taken from the environment before any library is imported, and given back by name."""
    monkeypatch.setattr(logs, "_of_spans", {})
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "a=b")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://else.where")
    pin_libraries()
    assert not [name for name in os.environ if name.startswith("OTEL_")]
    restore_variables_of_spans()
    assert os.environ["OTEL_RESOURCE_ATTRIBUTES"] == "a=b"


# ---- The trace id of a job: one at all its processes and attempts, random, and in the lines of logs as JSON


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
