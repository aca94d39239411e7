"""Collectors that are away, slow, hostile or ask for a token: what they cost a process, which is spans alone."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.simulator import COORDINATOR, Federation
from tests.telemetry.collecting import PATH, attributes, export, metrics_of, taking
from tests.worlds import PARTIES, spec, world
from treetap import logs
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import ConfigError
from treetap.ops.doctor.connections import check_telemetry
from treetap.process import spans as module
from treetap.process.config import Secret, TelemetryConfig
from treetap.process.spans import Exporter, Spans
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Role

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("telemetry")]
TRACE = "0af7651916cd43dd8448eb211c80319c"


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """The endpoint of a server that does this with each connection, within the block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened = list[socket.socket]()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    opened.append(server.accept()[0])
                    answer(opened[-1])

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}{PATH}"
        for one in (server, *opened):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _drip(opened: socket.socket) -> None:
    """Answer a header line every moment, for ever."""
    with suppress(OSError), opened:
        opened.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            opened.sendall(b"x-more: 1\r\n")
            time.sleep(0.02)


def _flood(opened: socket.socket) -> None:
    """Answer with a body that has no end."""
    with suppress(OSError), opened:
        opened.recv(1 << 20)
        opened.sendall(b"HTTP/1.1 503 geheim\r\n\r\n")
        while True:
            opened.sendall(bytes(1 << 20))


def _asked(config: TelemetryConfig, within_s: float = 10.0) -> str:
    """The reason for which a collector does not take a request; empty where it does."""
    exporter = Exporter("bank", config, lambda _: None, within_s)
    exporter.export([])
    return exporter.why


@pytest.mark.parametrize("answer", [lambda _: None, _flood], ids=["silence", "flood"])
def test_a_request_has_a_deadline_and_no_content_is_read(
    answer: Callable[[socket.socket], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A request ends in time, and nothing of the answer is repeated, in the log neither."""
    caplog.set_level(logging.DEBUG)
    with listening(answer) as endpoint:
        began = time.monotonic()
        why = _asked(TelemetryConfig(endpoint=endpoint), 0.3)
        assert time.monotonic() - began < 3
        assert re.fullmatch(r"there is no answer \(\w+\)|it answers with status 503", why)
    assert [record for record in caplog.records if "geheim" in record.getMessage()] == []


@pytest.mark.parametrize("answer", [_drip, lambda _: None, _flood], ids=["drip", "silence", "flood"])
def test_the_end_of_a_process_does_not_wait(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slowly the collector answers; what it has not taken is counted."""
    monkeypatch.setattr(module, "CLOSE_S", 0.3)
    dropped = list[int]()
    with listening(answer) as endpoint:
        spans = Spans("bank", TelemetryConfig(endpoint=endpoint), dropped.append)
        spans.job("j", 1, TRACE).end("finished")
        began = time.monotonic()
        spans.close()
        assert time.monotonic() - began < 2
        assert sum(dropped) == 1


def test_a_redirect_is_not_followed() -> None:
    """A collector cannot send a process elsewhere, such as to its neighbours; the spans count as lost."""
    dropped = list[int]()
    with taking() as other, taking((307, {"Location": other.endpoint})) as first:
        spans = Spans("bank", TelemetryConfig(endpoint=first.endpoint), dropped.append)
        spans.job("j", 1, TRACE).end("finished")
        spans.close()
        assert (first.paths, other.paths, sum(dropped)) == ([PATH], [], 1)


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector is called directly, whatever is set there."""
    with taking() as server, taking() as proxy:
        at = f"http://127.0.0.1:{proxy.server_port}"
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, at)
        monkeypatch.delenv("no_proxy", raising=False)
        assert _asked(TelemetryConfig(endpoint=server.endpoint)) == ""
        assert (server.paths, proxy.paths) == ([PATH], [])


async def test_a_job_does_not_notice_a_collector_that_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Spans beyond the queue are counted, the loss is said once, and the job ends as without."""
    caplog.set_level(logging.WARNING, logger="treetap.process.spans")

    here = world(16, (1, 1))
    federation = Federation(tmp_path, here.tables)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}{PATH}"
    for name in (COORDINATOR, *PARTIES[:2]):
        export(federation, name, endpoint)
    job = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=4), parties=2)
    assert (await federation.train(job)).state == "finished"
    await federation.close()
    for name in (COORDINATOR, *PARTIES[:2]):
        metrics_of(federation, name).close()
    ((_, _, dropped),) = metrics_of(federation, PARTIES[0]).samples("treetap_dropped_spans_total")
    assert dropped > 5
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert all("spans do not reach the collector" in line for line in said)


def test_a_full_queue_drops_and_counts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The queue has a bound while the collector keeps a request waiting; ending a span never waits for it."""
    for most in ("QUEUE", "BATCH"):
        monkeypatch.setattr(module, most, 10)
    monkeypatch.setattr(module, "CLOSE_S", 0.1)
    dropped = list[int]()
    with listening(lambda _: None) as endpoint:
        spans = Spans("bank", TelemetryConfig(endpoint=endpoint), dropped.append)
        began = time.monotonic()
        with logs.about(attempt=1):
            job = spans.job("j", 1, TRACE)
            for _ in range(50):
                job.step("bin").end("done")
        assert sum(dropped) == 40
        assert time.monotonic() - began < 1
        spans.close()
        assert sum(dropped) == 50
    assert [record.getMessage() for record in caplog.records if "said once" in record.getMessage()] != []


def test_spans_that_could_not_leave_leave_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is busy gets the same spans again; one that refuses them does not."""
    monkeypatch.setattr(module, "PAUSE_S", 0.02)
    for status, number in ((503, 1), (400, 1)):
        dropped = list[int]()
        with taking((status, {})) as server:
            spans = Spans("bank", TelemetryConfig(endpoint=server.endpoint), dropped.append)
            spans.job("j", 1, TRACE).end("finished")
            _until(lambda server=server, number=number: len(server.bodies) >= number)  # type: ignore[misc]
            server.answer = (200, {})
            spans.close()
        names = [attributes(span)["treetap.job"] for span in server.spans]
        assert (names.count("j") >= 2, sum(dropped)) == ((True, 0) if status == 503 else (False, 1))


def _until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def _with_headers(endpoint: str, place: Secret) -> TelemetryConfig:
    return TelemetryConfig(endpoint=endpoint, headers=place)


def test_headers_of_a_file_and_of_a_command(tmp_path: Path) -> None:
    """They go with each request; after a refusal they are read again. A fault shows none of them."""
    file = tmp_path / "headers"
    file.write_text("authorization: Bearer one\nx-scope-orgid: bank\n")
    with taking((401, {})) as server:
        exporter = Exporter("bank", _with_headers(server.endpoint, Secret(file=file)), lambda _: None)
        file.write_text("authorization: Bearer two\n")
        exporter.export([])
        assert exporter.why == "it answers with status 401"
        server.answer = (200, {})
        exporter.export([])
        command = (sys.executable, "-c", "print('authorization: Bearer three')")
        assert _asked(_with_headers(server.endpoint, Secret(command=command))) == ""
        assert [head["authorization"] for head in server.heads] == [
            f"Bearer {n}" for n in ("one", "two", "two", "three")
        ]
        assert [head.get("x-scope-orgid") for head in server.heads] == ["bank", None, None, None]
        file.write_text("authorization: geheim\ngeheim\n")
        with pytest.raises(ConfigError, match=r"telemetry\.headers: line 2 is no header") as fault:
            _asked(_with_headers(server.endpoint, Secret(file=file)))
        assert "geheim" not in str(fault.value)
        with pytest.raises(ConfigError, match=r"telemetry\.headers: command 'false': ended with status 1"):
            _asked(_with_headers(server.endpoint, Secret(command=("false",))))


def test_only_the_named_authority_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector of another authority gets nothing; one of the named authority is asked by its host's name."""
    own, other = tmp_path / "own", tmp_path / "other"
    for certs in (own, other):
        create_authority(certs)
    issue(own, "bank", Role.PARTY, hosts=["127.0.0.1"], days=30)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(own / "ca.crt"))
    with taking() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own / "bank.crt", own / "bank.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        at = f"https://127.0.0.1:{server.server_port}{PATH}"
        assert _asked(TelemetryConfig(endpoint=at, ca=own / "ca.crt")) == ""
        for endpoint, ca in ((at, other / "ca.crt"), (at.replace("127.0.0.1", "localhost"), own / "ca.crt")):
            assert "certificate verify failed" in _asked(TelemetryConfig(endpoint=endpoint, ca=ca), 1.0)
        assert len(server.bodies) == 1
        with pytest.raises(ConfigError, match=r"telemetry\.ca: .*nothing: No such file"):
            _asked(TelemetryConfig(endpoint=at, ca=tmp_path / "nothing"))


def test_doctor_asks_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request without spans is taken, or the finding says why not; the variables that are in effect are named."""
    with taking() as server:
        config = TelemetryConfig(endpoint=server.endpoint)
        (found,) = check_telemetry("bank", config)
        assert (found.level, found.message) == ("ok", "the collector takes spans")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        assert check_telemetry("bank", config)[0].message.endswith("in effect: OTEL_TRACES_SAMPLER")
    (found,) = check_telemetry("bank", config)
    assert found.level == "warning"
    assert found.message.startswith("the collector takes no spans: there is no answer (")


def test_variables_decide_only_where_the_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes of the process come from the environment then; where spans go, and with what headers, does not."""
    with taking() as server, taking() as elsewhere:
        given = {
            "OTEL_RESOURCE_ATTRIBUTES": "site=north",
            "OTEL_EXPORTER_OTLP_ENDPOINT": elsewhere.endpoint,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-more=geheim",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(logs, "_of_spans", {})
        logs.pin_libraries()
        for environment in (False, True):
            spans = Spans("bank", TelemetryConfig(endpoint=server.endpoint, environment=environment), lambda _: None)
            spans.job("j", 1, TRACE).end("finished")
            spans.close()
        assert [b"north" in body for body in server.bodies] == [False, True]
        assert elsewhere.bodies == []
        assert [head for head in server.heads if "x-more" in head] == []


def test_a_variable_without_sense_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an error that names the party, the key and the variable."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "few")
    config = TelemetryConfig(endpoint="http://127.0.0.1:9/v1/traces", environment=True)
    with pytest.raises(ConfigError, match=r"telemetry\.environment: OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT .* few: ") as fault:
        Spans("bank", config, lambda _: None)
    assert fault.value.party == "bank"


def test_a_trace_that_was_not_drawn_is_drawn_here() -> None:
    """Of a job without a trace id a process draws its own, another for each attempt."""
    with taking() as server:
        spans = Spans("bank", TelemetryConfig(endpoint=server.endpoint), lambda _: None)
        for attempt in (1, 2):
            spans.job("j", attempt, "").end("finished")
        spans.close()
        assert len({span.trace_id for span in server.spans}) == 2
        assert {len(span.trace_id) for span in server.spans} == {16}
