"""A federation as those see it who look after it: its metrics, and its logs as JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from tests.certificates import dns_of
from tests.sockets import dialling
from tests.system.federations import ended, settings, until
from tests.worlds import PARTIES, spec, world
from treetap.errors import Refused
from treetap.lab.local_federation import LocalFederation
from treetap.ops.doctor.connections import check_metrics
from treetap.trees.params import BoostingParams
from treetap.wire.frame import filled
from treetap.wire.ports import Address
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, jobs_pb2, setup_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("operations"), pytest.mark.usefixtures("own_server")]

HERE = world(20, (1, 1, 1))
SPEC = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2))
PROCESSES = [*PARTIES, "coordinator"]
JOB = "a-job-that-is-looked-at"
SENT, CAME_IN = "treetap_sent_bytes_total", "treetap_received_bytes_total"


def _refused_step(federation: LocalFederation) -> None:
    """feature-b asks feature-c for a step, which only a coordinator may."""
    certs = federation.folder / "certs"
    tls = TlsFiles(certs / "ca.crt", certs / "feature-b.crt", certs / "feature-b.key")
    request = filled(control_pb2.StepRequest(job="none", attempt=1), "prepare", setup_pb2.Prepare(spec=SPEC))

    async def main() -> None:
        async with dialling(tls) as dialer:
            async for _ in dialer.step(Address("feature-c", federation.addresses["feature-c"]), request):
                pass

    with pytest.raises(Refused):
        asyncio.run(main())


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties and a coordinator with metrics and JSON logs, one trained job, and two who were turned away."""
    folder = tmp_path_factory.mktemp("operations")
    parties = {name: {**own, "metrics": "127.0.0.1:0"} for name, own in settings(folder, {"train": HERE}).items()}
    options = ("--log-format", "json", "--log-level", "debug")
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.delenv("GRPC_VERBOSITY", raising=False)  # as a process that nobody told to be quiet
        running = stack.enter_context(LocalFederation(folder, parties, {"metrics": "127.0.0.1:0"}, options))
        running.operator.submit(jobs_pb2.SubmitRequest(job=JOB, spec=SPEC))
        assert ended(running, JOB).state == "finished"
        _refused_step(running)
        # Somebody without a certificate knocks at feature-c.
        ca = (running.folder / "certs" / "ca.crt").read_bytes()
        named = (("grpc.ssl_target_name_override", dns_of("feature-c")),)
        channel = grpc.secure_channel(running.addresses["feature-c"], grpc.ssl_channel_credentials(ca), named)
        with channel, pytest.raises(grpc.RpcError):
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        yield running


def _lines(federation: LocalFederation, name: str) -> list[dict[str, Any]]:
    """A process's log; a line that is not a JSON object fails."""
    text = (federation.folder / name / "log.txt").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(line, dict) for line in lines)
    return lines


def _scrape(federation: LocalFederation, name: str) -> tuple[str, dict[tuple[str, ...], float]]:
    """A process's metrics as text, and as (name, label values in the order of label names…) → value."""
    said = [line["message"] for line in _lines(federation, name) if line["logger"] == "treetap.metrics"]
    with urlopen(said[-1].removeprefix("metrics at "), timeout=10) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return text, {(s.name, *(s.labels[key] for key in sorted(s.labels))): s.value for s in samples}


@pytest.mark.parametrize("process", PROCESSES)
def test_logs_are_json(process: str, federation: LocalFederation) -> None:
    """Every line of a run, a refused call and a refused handshake included, has time, level, logger and message."""
    for line in _lines(federation, process):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
        assert line["level"] in ("debug", "info", "warning", "error")
        assert line["logger"]
        assert line["message"]


@pytest.mark.parametrize("party", PARTIES)
def test_a_partys_lines_bear_their_subject(party: str, federation: LocalFederation) -> None:
    """Each step of the job begins and ends with job, attempt, step and coordinator, and the end says seconds."""
    steps = [
        line
        for line in _lines(federation, party)
        if line["logger"] == "treetap.party.runtime.metrics" and line.get("job") == JOB
    ]
    ends = [line for line in steps if line["level"] == "info"]
    assert {line["step"] for line in ends} > {"prepare", "bin", "store_tree", "publish"}
    assert len(ends) == len([line for line in steps if line["level"] == "debug"])
    for line in ends:
        assert (line["attempt"], line["peer"], line["job"]) == (1, "coordinator", JOB)
        assert line["seconds"] >= 0.0
    opened = [line for line in _lines(federation, party) if line["logger"] == "treetap.party.node"]
    assert {line["job"] for line in opened} == {JOB}


def test_the_coordinators_lines_bear_their_subject(federation: LocalFederation) -> None:
    """A job begins and ends without its operator's name on it, and each step names the party that it was asked of."""
    lines = [line for line in _lines(federation, "coordinator") if line.get("job") == JOB]
    own = [line for line in lines if line["logger"] == "treetap.coordinator.attempt"]
    assert own[0]["message"].endswith("begins")
    assert own[-1]["message"].endswith("finished")
    assert all("peer" not in line and line["attempt"] == 1 for line in own)
    asked = [line for line in lines if line["logger"] == "treetap.coordinator.runtime.roster"]
    assert {line["peer"] for line in asked} == set(PARTIES)
    assert {"prepare", "publish", "account", "leave"} < {line["step"] for line in asked}


def test_a_refused_call_names_its_caller(federation: LocalFederation) -> None:
    """Who was turned away is a field, beside the cause."""
    lines = _lines(federation, "feature-c")
    refused = [line for line in lines if line["message"].startswith("refused: Refused: feature-b is not a coordinator")]
    assert [(line["level"], line["peer"]) for line in refused] == [("warning", "feature-b")]


def test_a_refused_handshake_is_told(federation: LocalFederation) -> None:
    """What gRPC says of a caller without a certificate is a warning among the lines."""

    def told() -> list[dict[str, Any]]:
        start = "refused TLS handshake: Handshake failed with error"
        return [line for line in _lines(federation, "feature-c") if line["message"].startswith(start)]

    until(lambda: bool(told()), "gRPC's line is in the log")
    assert {(line["logger"], line["level"]) for line in told()} == {("grpc", "warning")}
    assert "CERTIFICATE" in told()[0]["message"]


@pytest.mark.parametrize("process", PROCESSES)
def test_nothing_of_the_data_is_logged_or_measured(process: str, federation: LocalFederation) -> None:
    """No record's id is in a log or a metric, and no metric has the name of a job."""
    log = (federation.folder / process / "log.txt").read_text(encoding="utf-8")
    metrics, _ = _scrape(federation, process)
    assert JOB in log
    assert JOB not in metrics
    for i in range(len(HERE.y)):
        assert f"r{i:05d}" not in log + metrics


def test_metrics_agree_with_the_accounts(federation: LocalFederation) -> None:
    """Bytes by peer and class, ciphertexts and operations are those that the job's own accounts have."""
    for account in federation.operator.status(JOB)[0].accounts:
        _, measured = _scrape(federation, account.party)
        sent: Counter[tuple[str, str]] = Counter()
        for row in account.account.traffic:
            sent[row.disclosure, row.to] += row.bytes
        found = {key[1:]: value for key, value in measured.items() if key[0] == "treetap_sent_bytes_total"}
        if account.party == "coordinator":  # goes on sending after its accounts are closed
            assert found.keys() == sent.keys()
            assert all(found[key] >= sent[key] for key in sent)
        else:
            assert found == dict(sent)
        for metric, counts in (
            ("treetap_ciphertext_operations_total", account.account.operations),
            ("treetap_ciphertexts_total", account.account.ciphertexts),
        ):
            assert {key[1]: value for key, value in measured.items() if key[0] == metric} == {
                row.name: row.count for row in counts
            }


@pytest.mark.parametrize("party", PARTIES)
def test_a_partys_steps_and_queue(party: str, federation: LocalFederation) -> None:
    """Every step is over and was done once, took time, and no parcel waits any more."""
    _, measured = _scrape(federation, party)
    assert measured["treetap_steps_total", "done", "prepare"] == 1
    assert measured["treetap_step_seconds_total", "prepare"] > 0
    assert all(value == 0 for key, value in measured.items() if key[0] == "treetap_steps_running")
    assert not [key for key in measured if key[0] == "treetap_steps_total" and key[1] != "done"]
    places = ("file", "memory")
    assert [measured["treetap_mailbox_bytes", place] for place in places] == [0, 0]
    assert measured["treetap_openings_total", "opened"] == 1
    assert [measured[name,] for name in ("treetap_limits_read", "treetap_approvals_waiting")] == [1, 0]


@pytest.mark.parametrize("party", PARTIES)
def test_what_came_in_was_sent(party: str, federation: LocalFederation) -> None:
    """By class, from each other party: all but what came once its tree was stored here."""
    _, measured = _scrape(federation, party)
    for peer in {*PARTIES} - {party}:
        _, there = _scrape(federation, peer)
        sent = {key[1]: size for key, size in there.items() if (key[0], key[2:]) == (SENT, (party,))}
        came = {key[1]: size for key, size in measured.items() if (key[0], key[2:]) == (CAME_IN, (peer,))}
        assert came.keys() == sent.keys()
        assert 0.9 * sum(sent.values()) <= sum(came.values())
        assert all(came[name] <= sent[name] for name in sent)


def test_the_coordinators_jobs(federation: LocalFederation) -> None:
    """Jobs by state, and each party's steps, which took at least as long here as there; a restart knows the jobs."""
    _, measured = _scrape(federation, "coordinator")
    for party in PARTIES:
        assert measured["treetap_asked_steps_total", party, "prepare"] == 1
        assert measured["treetap_asked_steps_running", party, "prepare"] == 0
        _, there = _scrape(federation, party)
        assert (
            measured["treetap_asked_step_seconds_total", party, "prepare"]
            >= there["treetap_step_seconds_total", "prepare"]
        )
    running = spec(BoostingParams(n_estimators=5000, max_depth=1, max_bin=2))
    federation.operator.submit(jobs_pb2.SubmitRequest(job="long", spec=running))
    states = ("running", "finished", "interrupted", "cancelled", "failed")
    _, measured = _scrape(federation, "coordinator")
    assert [measured["treetap_jobs", state] for state in states] == [1, 1, 0, 0, 0]
    federation.kill("coordinator")
    federation.restart("coordinator")
    _, measured = _scrape(federation, "coordinator")
    assert [measured["treetap_jobs", state] for state in states] == [0, 1, 1, 0, 0]
    federation.operator.cancel("long")
    until(lambda: _scrape(federation, "coordinator")[1]["treetap_jobs", "cancelled"] == 1, "the cancelled job counts")


def test_the_doctor_knows_who_answers(federation: LocalFederation) -> None:
    """A port for metrics that the process itself has is well; another process's name there is a fault."""
    said = [line["message"] for line in _lines(federation, "feature-b") if line["logger"] == "treetap.metrics"]
    address = said[-1].removeprefix("metrics at http://").removesuffix("/metrics")
    assert [each.level for each in check_metrics("feature-b", address)] == ["ok"]
    assert [each.level for each in check_metrics("feature-c", address)] == ["fault"]


def test_every_metric_is_described(federation: LocalFederation) -> None:
    """Each says what it counts; tests.watch compares them with boards and alerts."""
    scraped = [_scrape(federation, process)[0] for process in PROCESSES]
    declared = {name for text in scraped for name in re.findall(r"^# TYPE (treetap_\w+)", text, re.MULTILINE)}
    said = {name for text in scraped for name in re.findall(r"^# HELP (treetap_\w+) \w.*\.$", text, re.MULTILINE)}
    assert len(declared) > 20
    assert declared == said
