"""Spans that leave a process, as collectors get them: one trace a job, bytes by class, and nothing of the data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.blindness.coordinator_view import secrets_of, with_long_names
from tests.simulator import COORDINATOR, Federation, Message, run
from tests.telemetry.collecting import Taking, attributes, export, metrics_of, taking
from tests.worlds import PARTIES, spec, world
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.disclosure import CLASSES

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("telemetry")]

PARAMS = BoostingParams(objective="reg:squarederror", n_estimators=2, max_depth=2, max_bin=8)
PROCESSES = (COORDINATOR, *PARTIES)
#: Attributes that a span may have, beside bytes of classes.
NAMED = {"treetap.process", "treetap.job", "treetap.attempt", "treetap.step", "treetap.peer", "treetap.outcome"}
BYTES = {f"treetap.{way}.{name}" for way in ("sent", "received") for name in CLASSES}
OF_PROCESS = {"service.namespace", "service.name", "service.version"}


class Exported(NamedTuple):
    """What each process's collector got of a training that was resumed and a prediction."""

    collectors: dict[str, Taking]
    traces: dict[str, str]
    secrets: dict[str, list[bytes]]
    sent: dict[str, Counter[str]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """Every process exports to its own collector."""
    here = with_long_names(world(40, (2, 2, 1), objective="reg:squarederror", missing=0.1, seed=8))

    async def main(collectors: dict[str, Taking]) -> Exported:
        federation = Federation(tmp_path_factory.mktemp("traced") / "federation", here.tables, record="both")
        killed = list[int]()

        def start(name: str) -> None:
            federation.start(name)
            export(federation, name, collectors[name].endpoint)

        def kill_once(message: Message) -> None:
            if message.word == "candidate_sums" and not killed:
                killed.append(message.number)
                metrics_of(federation, PARTIES[1]).close()
                federation.kill(PARTIES[1])
                start(PARTIES[1])

        for name in PROCESSES:
            export(federation, name, collectors[name].endpoint)
        federation.hook = kill_once
        assert (await federation.train(spec(PARAMS, obfuscation="standard"))).state == "interrupted"
        assert (await federation.resume()).state == "finished"
        assert (await federation.predict(predict_request(model="job", job="eini", protocol="eini"))).state == "finished"
        traces = {job: federation.jobs._journal.submitted(job).trace for job in ("job", "eini")}
        secrets, sent = secrets_of(federation, here, tuple(traces)), defaultdict[str, Counter[str]](Counter)
        await federation.close()
        for name in PROCESSES:
            metrics = metrics_of(federation, name)
            for sample, labels, value in metrics.samples("treetap_sent_bytes_total"):
                assert sample == "treetap_sent_bytes_total"
                sent[name][labels["disclosure"]] += int(value)
            metrics.close()
        return Exported(collectors, traces, secrets, sent)

    with ExitStack() as stack:
        yield run(main({name: stack.enter_context(taking()) for name in PROCESSES}))


def _of(span: Span, what: str) -> str | int:
    return attributes(span)[f"treetap.{what}"]


def test_a_job_is_one_trace_at_all_processes(exported: Exported) -> None:
    """Of each job every process begins spans of its own: no id of a span crosses, and no state of a trace."""
    ids = Counter[bytes]()
    for name, collector in exported.collectors.items():
        assert {span.trace_id.hex() for span in collector.spans} == set(exported.traces.values()), name
        of_jobs = [span for span in collector.spans if span.name == "job"]
        own = {span.span_id for span in of_jobs}
        assert all(not span.parent_span_id for span in of_jobs)
        steps = [span for span in collector.spans if span.name != "job"]
        if name == PARTIES[1]:  # the span of the attempt in which it was killed has no end
            steps = [span for span in steps if (_of(span, "job"), _of(span, "attempt")) != ("job", 1)]
        assert all(span.parent_span_id in own for span in steps)
        assert not any(span.trace_state or span.links or span.events or span.status.message for span in collector.spans)
        ids.update({span.span_id for span in collector.spans})
    assert set(ids.values()) == {1}


def test_spans_have_the_names_of_steps_and_both_attempts(exported: Exported) -> None:
    """At parties and at the coordinator, which names the party that it asked; a failure is one by its code alone."""
    party = exported.collectors[PARTIES[0]].spans
    of_job = [span for span in party if _of(span, "job") == "job"]
    assert {"job", "prepare", "make_keys", "begin_tree", "choose_splits", "publish"} <= {span.name for span in of_job}
    assert {_of(span, "attempt") for span in of_job} == {1, 2}
    assert all(_of(span, "step") == span.name for span in party if span.name != "job")
    asked = [span for span in exported.collectors[COORDINATOR].spans if span.name == "prepare"]
    assert {_of(span, "peer") for span in asked} == set(PARTIES)
    outcomes = {_of(span, "outcome") for span in exported.collectors[COORDINATOR].spans}
    assert outcomes == {"done", "failed", "interrupted", "finished"}


def test_bytes_of_spans_are_those_that_were_counted(exported: Exported) -> None:
    """What a party's steps have sent is what its metrics count, but for what it sends between steps."""
    for name in PARTIES[2:]:
        sums = Counter[str]()
        for span in exported.collectors[name].spans:
            if span.name != "job":
                sums.update({key: size for key, size in attributes(span).items() if isinstance(size, int)})
        counted = exported.sent[name]
        for disclosure in ("CIPHERTEXT", "CANDIDATE_SUM", "BLINDED_ID"):
            assert sums[f"treetap.sent.{disclosure}"] == counted[disclosure], (name, disclosure)
        assert sums["treetap.sent.CANDIDATE_SUM"] > 0
        assert sums["treetap.received.CIPHERTEXT"] > 0


@pytest.mark.parametrize(
    "what", ["ids", "columns", "ciphertexts", "keys", "features", "labels", "thresholds", "weights"]
)
def test_nothing_of_the_data_is_exported(exported: Exported, what: str) -> None:
    """Whatever a collector was sent, bodies and headers, has none of the canaries in any form."""
    for name, collector in exported.collectors.items():
        content = b"\n".join([*collector.bodies, *(repr(head).encode() for head in collector.heads)])
        assert name.encode() in content
        assert [secret for secret in exported.secrets[what] if secret in content] == []
    assert exported.secrets[what]


def test_attributes_are_few_and_known(exported: Exported) -> None:
    """Names, an attempt, an outcome and bytes by class; of a process its name and release. None counts records."""
    assert not any("record" in key for key in NAMED)
    for collector in exported.collectors.values():
        assert {key for span in collector.spans for key in attributes(span)} <= NAMED | BYTES
        received = {key for span in collector.spans for key in attributes(span) if "received" in key}
        assert not received & {"treetap.received.INSTANCE_SPACE", "treetap.received.SPLIT_DIRECTION"}
        for body in collector.bodies:
            resources = ExportTraceServiceRequest.FromString(body).resource_spans
            assert {one.key for resource in resources for one in resource.resource.attributes} == OF_PROCESS
