"""A served model as its clients meet it: real processes, gRPC and HTTP under mutual TLS, and `treetap serve`."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import grpc
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import treetap as treetap_api
from tests.certificates import dns_of
from tests.commands.command import Outcome, end, start, treetap
from tests.oracle import oracle_predict
from tests.system.federations import ended, settings, until, write_operator_file
from tests.worlds import PARTIES, spec, world
from treetap.commands.certs.authority import issue
from treetap.errors import Refused, Silent, UnknownJob
from treetap.lab.local_federation import LocalFederation
from treetap.ops.doctor.connections import check_http, check_listen
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import jobs_pb2, serving_pb2, serving_pb2_grpc

pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")

pytestmark = pytest.mark.xdist_group("serving")
LABEL_HOLDER, B, C = PARTIES
HOLDER, GATEWAY = Identity(LABEL_HOLDER, Role.PARTY), Identity("gateway", Role.GATEWAY)
HERE = world(24, (1, 1, 1), fresh=6, seed=25)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
SILENCE_S = 6.0
IDS = [f"r{24 + i:05d}" for i in range(6)]
EXACT = [score for (score,) in oracle_predict(HERE.oracle(PARAMS), HERE.newcomers)]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties, a coordinator and a trained model; `app`, `batch` and `stranger` have certificates too."""
    folder = tmp_path_factory.mktemp("serving")
    parties = settings(folder, {"here": HERE})
    serve = {
        "clients": ["app", "batch"],
        "listen": "127.0.0.1:0",
        "gateway": GATEWAY.name,
        "most_ids": 4,
        "window_ms": 250,
        "decision_days": 9,
    }
    parties[LABEL_HOLDER] |= {"serve": serve, "metrics": "127.0.0.1:0"}
    with LocalFederation(folder, parties) as running:
        for name in ("app", "batch", "stranger"):
            issue(folder / "certs", name, Role.CLIENT, days=2)
        write_operator_file(running)
        running.operator.submit(jobs_pb2.SubmitRequest(job="here", spec=spec(PARAMS, table="here")))
        assert ended(running, "here").state == "finished"
        yield running


class Served:
    """A model that is served, and how it is asked."""

    def __init__(self, federation: LocalFederation, told: dict[str, Any]) -> None:
        self.job, self.grpc = told["job"], told["grpc"]
        self.http = federation.start_gateway(LABEL_HOLDER, most_ids=4)
        self.certs = federation.folder / "certs"

    def tls(self, client: str | None, ca: Path | None = None) -> ssl.SSLContext:
        """A client's side of HTTPS."""
        context = ssl.create_default_context(cafile=str(ca or self.certs / "ca.crt"))
        context.check_hostname = True
        if client is not None:
            context.load_cert_chain(self.certs / f"{client}.crt", self.certs / f"{client}.key")
        return context

    def ask(
        self, method: str, path: str, body: Any = None, client: str | None = "app", **headers: str
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """One HTTP request: status, JSON, headers."""
        host, _, port = self.http.rpartition(":")
        connection = HTTPSConnection(host, int(port), context=self.tls(client), timeout=20)
        try:
            sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), dict(answer.headers)
        finally:
            connection.close()

    def stub(self, client: str) -> tuple[grpc.Channel, serving_pb2_grpc.ServingStub]:
        """The same over gRPC, as a program without treetap would."""
        ca, certificate, key = (self.certs / name for name in ("ca.crt", f"{client}.crt", f"{client}.key"))
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), certificate.read_bytes())
        named = (("grpc.ssl_target_name_override", dns_of(LABEL_HOLDER)),)
        channel = grpc.secure_channel(self.grpc, credentials, named)
        return channel, serving_pb2_grpc.ServingStub(channel)


@pytest.fixture(scope="module")
def served(federation: LocalFederation) -> Iterator[Served]:
    """The model, served by `treetap serve --detach`."""
    told = _serve(federation, "--detach")
    yield Served(federation, json.loads(told.out))
    assert treetap("cancel", json.loads(told.out)["job"], folder=federation.folder).status == 0


def _serve(federation: LocalFederation, *words: str) -> Outcome:
    outcome = treetap("serve", "here", "--table", "here-new", "--json", *words, folder=federation.folder)
    assert outcome.status == 0, outcome
    return outcome


def test_http_answers_and_faults(served: Served) -> None:
    """One record and several, with the oracle's scores; every fault has its status and a reason."""
    status, found, _ = served.ask("POST", "/v1/predict", {"ids": IDS[:1]})
    assert (status, found["model"], found["job"]) == (200, "here", served.job)
    (one,) = found["predictions"]
    assert one["score"] == pytest.approx(EXACT[0], abs=1e-9)
    assert set(one) == {"id", "status", "prediction", "probability_1", "score"}
    status, found, _ = served.ask("POST", "/v1/predict", {"ids": [IDS[1], "nobody", IDS[2]], "model": "here"})
    assert [each["status"] for each in found["predictions"]] == ["predicted", "unknown_id", "predicted"]
    assert [each.get("score") for each in found["predictions"]] == [
        pytest.approx(EXACT[1], abs=1e-9),
        None,
        pytest.approx(EXACT[2], abs=1e-9),
    ]
    cases: list[tuple[int, str, str, Any, dict[str, str]]] = [
        (200, "POST", "/v1/predict", {"ids": [f" {IDS[0]}\t"]}, {}),
        (422, "POST", "/v1/predict", {"ids": ["  "]}, {}),
        (404, "POST", "/v1/predict", {"ids": ["nobody"]}, {}),
        (404, "POST", "/v1/predict", {"ids": IDS[:1], "model": "other"}, {}),
        (422, "POST", "/v1/predict", {"ids": []}, {}),
        (422, "POST", "/v1/predict", {"ids": IDS}, {}),
        (404, "POST", "/v1/predict", {"ids": [7]}, {}),
        (422, "POST", "/v1/predict", {"ids": [7.5]}, {}),
        (422, "POST", "/v1/predict", {"ids": [True]}, {}),
        (422, "POST", "/v1/predict", {"ids": [2**64]}, {}),
        (422, "POST", "/v1/predict", {"ids": IDS[:1], "id": 1}, {}),
        (422, "POST", "/v1/predict", b"{", {}),
        (413, "POST", "/v1/predict", b" " * (1024 * 1024 + 1), {}),
        (415, "POST", "/v1/predict", b"r1", {"Content-Type": "text/plain"}),
        (504, "POST", "/v1/predict", {"ids": IDS[:1], "deadline_s": 1e-6}, {}),
        (405, "GET", "/v1/predict", None, {}),
        (404, "GET", "/nothing", None, {}),
    ]
    for expected, method, path, body, headers in cases:
        status, problem, told = served.ask(method, path, body, **headers)
        if expected == 200:
            assert (status, problem["predictions"][0]["id"]) == (200, IDS[0])
            continue
        assert (status, problem["status"]) == (expected, expected), (path, body, problem)
        assert problem["detail"]
        assert told["Content-Type"].startswith("application/problem+json")


def test_the_python_client_has_the_same_answers(served: Served) -> None:
    """Of more ids than a request has, of ids that are nowhere, alone and among others, and of what is refused."""
    with treetap_api.Client(f"https://{served.http}", served.certs, client="app") as client:
        found = client.predict([*IDS, "nobody"])
        assert list(found.columns) == ["id", "status", "prediction", "probability_1", "score"]
        assert found["id"].tolist() == [*IDS, "nobody"]
        assert found["status"].tolist() == ["predicted"] * 6 + ["unknown_id"]
        assert found["score"].tolist()[:6] == pytest.approx(EXACT, abs=1e-9)
        assert found["probability_1"].tolist()[:6] == pytest.approx([1 / (1 + math.exp(-s)) for s in EXACT], abs=1e-9)
        alone = client.predict(["nobody"], model="here")
        assert alone.to_dict("records") == [{"id": "nobody", "status": "unknown_id"}]
        assert client.model()["most_ids"] == 4
        with pytest.raises(UnknownJob, match=r"\(status 404\)"):
            client.predict(IDS, model="other")
        with pytest.raises(Silent, match=r"\(status 504\)"):
            client.predict(IDS[:1], deadline_s=1e-6)
        with pytest.raises(ValueError, match="deadline_s: must be a number of seconds above 0"):
            client.predict(IDS[:1], deadline_s=-1)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda k: client.predict([IDS[k % 6]])["score"][0], range(24)))
        assert answers == pytest.approx([EXACT[k % 6] for k in range(24)], abs=1e-9)
    with pytest.raises(Refused, match="stranger is not a client of label-holder"):
        treetap_api.Client(served.http, served.certs, client="stranger").predict(IDS)


def test_the_client_of_the_page_runs(served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The block of docs/serving.md, with this federation's address, folder and ids."""
    for name in ("ca.crt", "app.crt", "app.key"):
        (tmp_path / name).write_bytes((served.certs / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n# client\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for ours, here in (("bank.example.org:8443", served.http), ('"certs"', repr(str(tmp_path))), ("c030", "r0002")):
        assert ours in block
        block = block.replace(ours, here)
    exec(compile(block.replace("r00021", IDS[0]).replace("r00022", IDS[1]), "serving.md", "exec"), {})  # our own text
    printed = capsys.readouterr().out
    assert printed.split()[:5] == ["id", "status", "prediction", "probability_1", "score"]
    assert IDS[1] in printed


def test_grpc_answers_and_faults(served: Served) -> None:
    """A client that knows serving.proto and nothing else of treetap gets the same answers."""
    channel, stub = served.stub("app")
    with channel:
        answer = stub.Predict(serving_pb2.PredictRecords(ids=[*IDS[:2], "nobody"]), timeout=20)
        assert [each.scores[0] for each in answer.predictions[:2]] == pytest.approx(EXACT[:2], abs=1e-9)
        assert answer.predictions[2].status == serving_pb2.UNKNOWN_ID
        assert list(answer.classes) == ["0", "1"]
        found = stub.Describe(serving_pb2.DescribeModel(), timeout=20)
        assert (found.model, found.records, found.most_ids, found.deadline_s) == ("here", 6, 4, 10.0)
        cases = {
            grpc.StatusCode.NOT_FOUND: serving_pb2.PredictRecords(ids=IDS[:1], model="other"),
            grpc.StatusCode.INVALID_ARGUMENT: serving_pb2.PredictRecords(ids=IDS),
            grpc.StatusCode.RESOURCE_EXHAUSTED: serving_pb2.PredictRecords(ids=["x" * 2_000_000]),
        }
        for code, request in cases.items():
            with pytest.raises(grpc.RpcError) as failure:
                stub.Predict(request, timeout=20)
            assert failure.value.code() is code  # type: ignore[attr-defined]
        with pytest.raises(grpc.RpcError) as failure:
            stub.Predict(serving_pb2.PredictRecords(ids=IDS[:1]), timeout=1e-4)
        assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]


@pytest.mark.second_tier
def test_both_ways_are_in_the_decision_log(served: Served, federation: LocalFederation) -> None:
    """Under the client's own name, be it by the gateway or not; a stranger is there too, without an id."""
    log = ("decisions", "list", "--json", "--config", federation.folder / LABEL_HOLDER / "config.toml")
    began = len(json.loads(treetap(*log).out))
    assert served.ask("POST", "/v1/predict", {"ids": [IDS[4]]}, client="batch")[0] == 200
    for client, status in (("app", grpc.StatusCode.OK), ("stranger", grpc.StatusCode.PERMISSION_DENIED)):
        channel, stub = served.stub(client)
        with channel:
            call = stub.Predict.future(serving_pb2.PredictRecords(ids=[IDS[4]]), timeout=20)
            assert call.code() is status
    assert served.ask("POST", "/v1/predict", {"ids": [IDS[4]]}, client="stranger")[0] == 403
    lines = json.loads(treetap(*log).out)[began:]
    told = [(line["client"], line["status"]) for line in lines]
    assert told == [("batch", "predicted"), ("app", "predicted"), ("stranger", "refused"), ("stranger", "refused")]
    assert [len(line["ids"]) for line in lines] == [1, 1, 0, 0]
    assert lines[0]["ids"] == lines[1]["ids"]
    assert [line["scores"] for line in lines[:2]] == [pytest.approx([EXACT[4]], abs=1e-9)] * 2


@pytest.mark.second_tier
def test_the_openapi_document_is_valid_and_true(served: Served) -> None:
    """It is OpenAPI 3.1, has the server's own limit, and describes what the endpoint really answers."""
    status, document, _ = served.ask("GET", "/openapi.json")
    assert status == 200
    OpenAPIV31SpecValidator(document).validate()
    assert set(document["paths"]) == {"/v1/predict", "/v1/model", "/healthz"}
    schemas = document["components"]["schemas"]
    assert schemas["PredictRequest"]["properties"]["ids"]["maxItems"] == 4
    assert schemas["PredictRequest"]["additionalProperties"] is False
    for path, name in (("/v1/model", "ModelReply"), ("/healthz", "HealthReply")):
        status, found, _ = served.ask("GET", path, client="batch")
        assert status == 200
        assert set(found) == set(schemas[name]["properties"])
    assert document["security"] == [{"certificate": []}]


@pytest.mark.second_tier
def test_the_doctor_knows_both_places(served: Served, federation: LocalFederation) -> None:
    """Each is told to be this very process's; somebody else at the port is a fault, a free one is well."""
    certs = federation.folder / "certs"
    tls, own = (
        TlsFiles(certs / "ca.crt", certs / f"{name}.crt", certs / f"{name}.key") for name in (LABEL_HOLDER, "gateway")
    )
    assert check_listen(HOLDER, served.grpc, tls, "serve.listen")[0].level == "ok"
    (found,) = check_http(GATEWAY, served.http, own)
    assert (found.level, found.message) == ("ok", "gateway runs: it is serving")
    assert [each.level for each in check_http(Identity(B, Role.GATEWAY), served.http, own)] == ["fault"]
    assert [each.level for each in check_http(GATEWAY, served.grpc, own)] == ["fault"]
    assert [each.level for each in check_http(GATEWAY, "127.0.0.1:0", own)] == ["ok"]
    file = federation.folder / LABEL_HOLDER / "gateway" / "config.toml"
    assert f"{LABEL_HOLDER} at {served.grpc}: answers and serves" in treetap("doctor", "--config", file).out
    assert treetap("health", "--config", file, "--address", served.http).status == 0
    assert treetap("health", "--config", file, "--address", served.grpc).status == 1


@pytest.mark.second_tier
def test_ctrl_c_cancels(tmp_path: Path) -> None:
    """`treetap serve` says where, stays, and ends the job when it is told to stop; clients then hear 503.

    Over plain HTTP on loopback, where names are believed.
    """
    parties = settings(tmp_path, {"here": HERE})
    for each in parties.values():
        each["silence_s"] = SILENCE_S
    parties[LABEL_HOLDER]["serve"] = {"clients": ["app"], "listen": "127.0.0.1:0", "gateway": "gateway"}
    with LocalFederation(tmp_path, parties, {"silence_s": SILENCE_S}) as running:
        write_operator_file(running)
        running.operator.submit(jobs_pb2.SubmitRequest(job="here", spec=spec(PARAMS, table="here")))
        assert ended(running, "here").state == "finished"
        for number, job in ((signal.SIGINT, "s"), (signal.SIGTERM, "t"), (signal.SIGHUP, "u")):
            command = start("serve", "here", "--table", "here-new", "--name", job, folder=running.folder)
            assert command.stdout is not None
            lines = [command.stdout.readline().strip() for _ in range(2)]
            assert lines == [f"{job} serves; clients ask by gRPC at:", running.serving[LABEL_HOLDER]]
            address = running.start_gateway(LABEL_HOLDER, plain_http=True)
            assert [_plainly(address, name)[0] for name in ("app", "stranger", None)] == [200, 403, 403]
            command.send_signal(number)
            outcome = end(command, 30)
            said = "\n".join(outcome.err.strip().splitlines()[-6:])
            ends = (
                "cancelled by an operator",
                "1 request",
                "1 refused",
                r"99 % within \d+ ms",
                "1 record scored",
                ".* sent",
            )
            assert (outcome.status, bool(re.fullmatch("\n".join(f"{job}: {it}" for it in ends), said))) == (0, True)
            (found,) = running.operator.status(job)
            assert (found.state, found.serving.requests, len(found.accounts)) == ("cancelled", 1, 3)
            status, problem = _plainly(address, "app")
            assert (status, problem["detail"]) == (503, "label-holder serves no model now; ask again later")
        _closes_its_terminal(running)
        _outlives_its_coordinator(running)


def _closes_its_terminal(running: LocalFederation) -> None:
    """Where the terminal goes, its line cannot be drawn any more; that must not keep the job from being ended."""
    ours, terminal = os.openpty()
    words = [sys.executable, "-m", "treetap", "serve", "here", "--table", "here-new", "--name", "closed"]
    command = subprocess.Popen(
        ["setsid", "--ctty", *words], cwd=running.folder, stdin=terminal, stdout=-1, stderr=terminal, text=True
    )
    os.close(terminal)
    assert command.stdout is not None
    assert command.stdout.readline() == "closed serves; clients ask by gRPC at:\n"
    os.close(ours)
    until(lambda: running.operator.status("closed")[0].state == "cancelled", "the job is ended", 30)
    end(command, 30)


def _outlives_its_coordinator(running: LocalFederation) -> None:
    """`treetap serve` and `treetap resume` stay while the coordinator is away, and end the job, or not, as they say."""
    serving = start("serve", "here", "--table", "here-new", "--name", "long", folder=running.folder)
    assert serving.stdout is not None
    assert serving.stdout.readline() == "long serves; clients ask by gRPC at:\n"
    running.kill("coordinator")
    assert serving.stderr is not None  # a coordinator that is back at once would not be missed
    assert serving.stderr.readline() == "long: the coordinator is away; long serves on by itself when it is back\n"
    running.restart("coordinator")
    until(lambda: running.operator.status("long")[0].phase == "serve", "it serves again", 30)
    running.kill(B)
    outcome = end(serving, 60)
    assert outcome.status == 1
    assert B in outcome.err
    running.restart(B)
    resumed = start("resume", "long", folder=running.folder)
    assert resumed.stdout is not None
    assert resumed.stdout.readline() == "long serves; clients ask by gRPC at:\n"
    assert resumed.stdout.readline().startswith("    127.0.0.1:")
    resumed.send_signal(signal.SIGINT)
    outcome = end(resumed, 30)
    assert (outcome.status, outcome.err.splitlines()[-1]) == (130, "long serves on; treetap cancel long ends it")
    assert running.operator.status("long")[0].state == "running"


def _plainly(address: str, client: str | None) -> tuple[int, dict[str, Any]]:
    """A request over plain HTTP, as curl sends it."""
    named = [] if client is None else ["-H", f"treetap-name: {client}"]
    body = json.dumps({"ids": IDS[:1]})
    words = ["curl", "-s", "-w", "\n%{http_code}", "--json", body, *named, f"http://{address}/v1/predict"]
    found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20)
    body, _, status = found.stdout.rpartition("\n")
    return int(status), json.loads(body)
