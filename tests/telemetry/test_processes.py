"""Real processes that export spans, each to its own collector, whatever their environment says."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.system.federations import ended, settings
from tests.telemetry.collecting import taking
from tests.worlds import PARTIES, spec, world
from treetap.lab.local_federation import LocalFederation
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("telemetry"), pytest.mark.usefixtures("own_server")]

HERE = world(16, (1, 1, 1))
PROCESSES = ("coordinator", *PARTIES)


def test_each_process_exports_to_its_own_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One trace, also in the logs; variables count at the one party whose file says so, for attributes alone."""
    with ExitStack() as stack:
        collectors = {name: stack.enter_context(taking()) for name in PROCESSES}
        elsewhere = stack.enter_context(taking())
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", elsewhere.endpoint)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "site=north")
        keys = {name: {"endpoint": collector.endpoint} for name, collector in collectors.items()}
        parties = {
            party: {**own, "telemetry": {**keys[party], "environment": party == PARTIES[2]}}
            for party, own in settings(tmp_path, {"w": HERE}).items()
        }
        options = ("--log-format", "json")
        with LocalFederation(tmp_path / "f", parties, {"telemetry": keys["coordinator"]}, options) as federation:
            job = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2), table="w")
            federation.operator.submit(jobs_pb2.SubmitRequest(job="job", spec=job))
            assert ended(federation, "job").state == "finished"
        traces = {span.trace_id.hex() for collector in collectors.values() for span in collector.spans}
        assert len(traces) == 1
        for name, collector in collectors.items():
            requests = [ExportTraceServiceRequest.FromString(body) for body in collector.bodies]
            about = {one.key: one.value.string_value for one in requests[0].resource_spans[0].resource.attributes}
            assert about["service.name"] == name
            assert about.get("site") == ("north" if name == PARTIES[2] else None)
            assert {"job", "prepare", "publish"} <= {span.name for span in collector.spans}
            lines = [json.loads(line) for line in (tmp_path / "f" / name / "log.txt").read_text().splitlines()]
            assert {line["trace"] for line in lines if "trace" in line} == traces
        assert elsewhere.paths == []
