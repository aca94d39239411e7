"""Hostile text in names, errors, certificates and files: it stays text, on every screen, page and log."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import grpc
import pytest
from pydantic import BaseModel

from tests.attacks.documents import made
from tests.commands.command import treetap_here, write
from treetap import logs, terminal
from treetap.attacks.report.page import html, print_summary
from treetap.commands import health
from treetap.commands.jobs import progress_view
from treetap.commands.model.view import page, print_model
from treetap.errors import Unreachable
from treetap.ops.doctor import configuration, connections
from treetap.ops.doctor.connections import Finding
from treetap.wire import callers
from treetap.wire.callers import ERROR_KEY
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import jobs_pb2, jobs_pb2_grpc, serving_pb2, transcript_pb2, types_pb2

#: Markup, an emoji's name, sequences that clear and colour a screen, a carriage return, a forged line, text from right
#: to left.
FORGED = "2026-11-22 10:00:00,000 INFO treetap forged"
HOSTILE = f"[red]:AB:\x1b[2J\x9b31m\x07\r{FORGED}\n{FORGED}\u202e\u2028{{task.total}}"
SHOWN = f"[red]:AB:\\x1b[2J\\x9b31m\\x07\\r{FORGED}\\n{FORGED}\\u202e\\u2028{{task.total}}"


def _assert_harmless(text: str, lines: int = 1) -> None:
    """Nothing controls the terminal, no line is forged, and the text itself is there that many times."""
    assert all(letter.isprintable() or letter == "\n" for letter in text), text
    assert not [line for line in text.splitlines() if line.startswith(FORGED)]
    assert re.sub(r"\s", "", text).count(re.sub(r"\s", "", SHOWN)) >= lines, text


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Both streams of a wide terminal that would show colours."""
    text = io.StringIO()
    for name in ("out", "err"):
        monkeypatch.setattr(terminal, name, terminal.PlainConsole(file=text, width=2000))
    return text


def _status(**more: Any) -> jobs_pb2.JobStatus:
    status = jobs_pb2.JobStatus(
        **{"job": HOSTILE, "kind": HOSTILE, "state": "failed", "phase": HOSTILE, "error": HOSTILE, **more},
        predictions=HOSTILE,
        explanations=HOSTILE,
        attributions=HOSTILE,
        withheld=[HOSTILE],
        away=[HOSTILE],
    )
    status.metrics.add(name=f"{HOSTILE}auc", value=1)
    status.phases.add(name=HOSTILE, amount=1)
    status.accounts.add(party=HOSTILE).account.seconds.add(name=HOSTILE)
    return status


class _HostileCoordinator(jobs_pb2_grpc.JobsServicer):
    """Accepts every job, and says hostile things of it."""

    def Submit(self, request: Any, context: Any) -> Any:
        if request.job == "refused":
            context.set_trailing_metadata(((ERROR_KEY, "ConfigError"),))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, HOSTILE)
        return jobs_pb2.JobAccepted(job="job")

    def Check(self, request: Any, context: Any) -> Iterator[Any]:
        yield jobs_pb2.CheckReply()
        yield jobs_pb2.CheckReply(answers=[jobs_pb2.Checked(party=HOSTILE, error=HOSTILE, bad_input=True)])
        yield jobs_pb2.CheckReply(answers=[jobs_pb2.Checked(party="telco")])

    def Predict(self, request: Any, context: Any) -> Any:
        if request.serve:
            return jobs_pb2.JobAccepted(job="served")
        return jobs_pb2.JobAccepted(job="job")

    def Resume(self, request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.INTERNAL, HOSTILE)

    def Watch(self, request: Any, context: Any) -> Iterator[Any]:
        figures = serving_pb2.ServingFigures(grpc=HOSTILE)
        if request.job == "served":
            yield _status(kind="serve", state="running", phase="serve", serving=figures)
        yield _status()

    def Status(self, request: Any, context: Any) -> Iterator[Any]:
        yield jobs_pb2.StatusReply(jobs=[_status()])

    def Cancel(self, request: Any, context: Any) -> Any:
        return _status(state="cancelled")


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of an operator whose coordinator is hostile."""
    server = grpc.server(ThreadPoolExecutor(2))
    jobs_pb2_grpc.add_JobsServicer_to_server(_HostileCoordinator(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    content = {"coordinator": f"127.0.0.1:{port}", "insecure": True}
    yield write(tmp_path_factory.mktemp("operator") / "operator.toml", content)
    server.stop(None)


@pytest.mark.parametrize(
    ("words", "times"),
    [
        ("status", 8),
        ("status job", 8),
        ("cancel job", 8),
        ("train {job}", 8),
        ("train {refused}", 1),
        ("train {job} --check", 3),
        ("predict model", 8),
        ("serve model", 3),
        ("resume job", 1),
    ],
)
def test_a_hostile_coordinator(
    words: str, times: int, operator: Path, tmp_path: Path, screen: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    """Statuses, errors and addresses on the operator's screen, whatever the coordinator or a party put into them."""
    files = {}
    for name in ("job", "refused"):
        job = {"label_holder": "bank", "feature_parties": ["telco"], "n_estimators": 1}
        files[name] = write(tmp_path / f"{name}.toml", {"name": name, "job": job})
    treetap_here(*words.format(**files).split(), "--operator", str(operator))
    said = capsys.readouterr()
    _assert_harmless(screen.getvalue() + said.out + said.err, times)


@pytest.mark.parametrize("words", ["status", "train"])
def test_json_has_no_control_characters(
    words: str, operator: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither as they are nor as JSON's escapes, which the next program would undo; a file's path stays whole."""
    job = {"label_holder": "bank", "feature_parties": ["telco"], "n_estimators": 1}
    file = [str(write(tmp_path / "job.toml", {"job": job}))] if words == "train" else []
    treetap_here(words, *file, "--operator", str(operator), "--json")
    found = json.loads(capsys.readouterr().out)
    status = found["jobs"][0] if words == "status" else found
    assert (status["job"], status["error"], status["withheld"]) == (SHOWN, SHOWN, [SHOWN])
    assert (status["phases"], list(status["metrics"])) == ({SHOWN: 1.0}, [f"{SHOWN}auc"])
    assert status["predictions"] == HOSTILE


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress line of a job, on a terminal that takes control sequences: only the line's own arrive."""
    text = io.StringIO()
    console = terminal.PlainConsole(file=text, width=2000, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "err", console)
    for title in (HOSTILE, "job"):
        with progress_view.live(title) as update:
            update(_status())
    with progress_view.serving() as update:
        update(_status())
    with progress_view.steps(HOSTILE) as step:
        step(1, 2, HOSTILE)
    own = re.sub(r"\x1b\[(\?25[lh]|2K|1A|\d*[A-G])|\r", "", text.getvalue())
    _assert_harmless(own, 4)


def test_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding about another process, with the fields of its certificate."""

    def leave(status: int) -> NoReturn:
        raise SystemExit(status)

    monkeypatch.setattr(connections.os, "_exit", leave)  # with which doctor leaves hanging threads behind
    findings = [Finding("fault", HOSTILE, HOSTILE)]
    monkeypatch.setitem(configuration.CHECKS, "party", (lambda _: {"check": lambda: findings}, BaseModel))
    treetap_here("doctor", "--config", str(write(tmp_path / "party.toml", {"state": "state"})))
    said = re.sub(rf"{FORGED}(\\n)?", FORGED, capsys.readouterr().out)
    assert all(letter.isprintable() or letter == "\n" for letter in said)
    assert len(said.splitlines()) == 1
    assert said.count("[red]:AB:") == 2


def test_health(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The error of a health check, which a container engine stores."""

    def ask(*_: object) -> None:
        raise Unreachable(HOSTILE.replace("\n", " "))

    monkeypatch.setattr(health, "ask", ask)
    write(tmp_path / "party.toml", {"insecure": True, "name": "bank", "listen": "127.0.0.1:1"})
    assert treetap_here("health", "--config", str(tmp_path / "party.toml")) == 1
    said = capsys.readouterr().err
    assert all(letter.isprintable() or letter == "\n" for letter in said)
    assert "[red]:AB:\\x1b[2J" in said


def test_the_audit(screen: io.StringIO) -> None:
    """Names of parties, columns, steps and files, in the terminal and on the page."""
    content = made(trees=1, depth=2, records=100, parties=[HOSTILE], columns=[HOSTILE, "age"]).plain()
    content |= {"job": HOSTILE, "label_holder": HOSTILE, "treetap": HOSTILE}
    content["parties"][HOSTILE] |= {"transcript": HOSTILE, "faults": [HOSTILE]}
    content["parties"][HOSTILE]["attacks"]["id2graph"]["parameters"] = {HOSTILE: HOSTILE}
    for row in content["traffic"]:
        row["step"] = HOSTILE
    print_summary(content, terminal.out)
    _assert_harmless(screen.getvalue(), 6)
    written = html(content)
    assert SHOWN in written
    assert not [line for line in written.splitlines() if line.startswith(FORGED)]
    assert all(letter.isprintable() or letter == "\n" for letter in written)


def test_models(screen: io.StringIO) -> None:
    """Names of parties and columns; the card's page."""
    ranked = [{"name": HOSTILE, "weight": 1, "gain": 1.0, "cover": 1.0, "total_gain": 1.0}]
    found = {
        **{"model": HOSTILE, "party": HOSTILE, "role": "label_holder", "protocol": HOSTILE, "objective": HOSTILE},
        **{"feature_parties": [HOSTILE], "metrics": {HOSTILE: 1.0}, "importance": {"parties": ranked}},
    }
    print_model(found)
    _assert_harmless(screen.getvalue(), 7)
    card = {
        **{"model": HOSTILE, "format": 2, "treetap": "0", "protocol": HOSTILE, "objective": HOSTILE, "classes": 2},
        **{"parties": {"label_holder": HOSTILE, "feature_parties": [HOSTILE]}, "parameters": {HOSTILE: HOSTILE}},
        **{"metrics": {HOSTILE: 1.0}, "trees": {"stored": 1, "used": 1}, "importance": {"parties": ranked}},
        **{"topology": [], "disclosure": {"classes": [], "transcript": None}, "card": 1},
    }
    written = page(card)
    assert SHOWN in written
    assert all(letter.isprintable() or letter == "\n" for letter in written)


@pytest.mark.second_tier
def test_a_transcript(tmp_path: Path, screen: io.StringIO) -> None:
    """A transcript of another host may hold any peer and step."""
    with TranscriptWriter(tmp_path) as log:
        message = types_pb2.NamedMetric(name="v")
        log.append(transcript_pb2.TranscriptRecord.RECEIVED, HOSTILE, HOSTILE, "job", 1, 0, 0, message)
    treetap_here("transcript", str(tmp_path))
    _assert_harmless(screen.getvalue(), 2)


def _logged(formatter: logging.Formatter) -> str:
    """A message, a subject and an exception, all hostile, as a log has them."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(formatter)
    log = logging.Logger("treetap.x")
    log.addHandler(handler)
    with logs.about(job="job", attempt=1, step="bin", peer=HOSTILE):
        log.warning("refused: %s", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("a defect")
    return text.getvalue()


def test_lines_of_text_cannot_be_forged() -> None:
    """Each line begins with time, level, logger and subject, or is an indented line of a traceback."""
    found = _logged(logs.TextLines())
    _assert_harmless(found, 3)
    lines = found.splitlines()
    begin = re.compile(r"[\d-]{10} [\d:]{8},\d{3} (WARNING|ERROR) treetap\.x \[job=job attempt=1 step=bin peer=")
    assert [bool(begin.match(line)) for line in lines[:2]] == [True, True]
    assert lines[1].endswith("] a defect")
    assert all(line.startswith("    ") for line in lines[2:])
    assert any("Traceback (most recent call last)" in line for line in lines)


@pytest.mark.parametrize("kind", [logs.TextLines, logs.JsonLines])
@pytest.mark.parametrize("letters", ["\x00", "\U0001f600", "a\n"])
def test_a_line_of_the_log_is_no_longer_than_the_limit(kind: type[logging.Formatter], letters: str) -> None:
    """Whatever another process has put into its message, its subject and the exception of a defect."""
    text = letters * 500_000
    record = logging.LogRecord("treetap.x", logging.WARNING, "", 0, "refused: %s", (text,), None)
    with logs.about(job=text, attempt=1, step=text, peer=text):
        line = kind().format(record)
        try:
            raise SystemError(text)
        except SystemError:
            record.exc_info = sys.exc_info()
            traced = kind().format(record)
    assert len(line.encode()) <= logs.LONGEST_LINE
    assert "refused: " in line
    assert len(traced) < 12 * logs.LONGEST_TRACEBACK + logs.LONGEST_LINE
    assert "raise SystemError(text)" in traced


def test_what_is_cut_from_details_is_never_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a megabyte's length takes no more time than one that nearly fits."""
    quoted: list[str] = []
    monkeypatch.setattr(callers, "quote", lambda text: quoted.append(text) or quote(text))
    for letter in ("a", "\U0001f600"):
        details = callers.details_of(letter * 1_000_000)
        assert details.endswith(f"{letter} …")
        assert len(quote(details)) < callers.LONGEST_DETAILS + 20
    assert callers.details_of("b" * callers.LONGEST_DETAILS) == "b" * callers.LONGEST_DETAILS
    assert max(map(len, quoted)) <= callers.LONGEST_DETAILS


def test_an_error_of_several_lines_travels_as_one() -> None:
    """The faults of a file stand side by side, so that no escaped end of a line comes to the operator's screen."""
    fault = "tables/a.toml: 2 wrong:\n  columns: names 'x' twice\n  colums: unknown key"
    assert callers.details_of(fault) == "tables/a.toml: 2 wrong: columns: names 'x' twice; colums: unknown key"


def test_lines_of_json_cannot_be_forged() -> None:
    """One object a line, with no character that a reader of the decoded message would obey."""
    lines = _logged(logs.JsonLines()).splitlines()
    first, second = (json.loads(line) for line in lines)
    assert (first["message"], first["peer"]) == (f"refused: {SHOWN}", SHOWN)
    assert "\\x1b[2J" in second["traceback"]
    assert all(letter.isprintable() or letter == "\n" for letter in second["traceback"])
