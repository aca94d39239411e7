"""What a terminal gets: nothing cut where it is narrow, one message where standard output takes no more."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.commands.command import refused, screen, treetap
from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.terminal import PlainConsole
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import jobs_pb2, transcript_pb2, types_pb2

PATH = "/srv/federation/state/of/the/label/holder/predictions/predict-a-model-0123abcd.parquet"
ERROR = "the coordinator knows no party 'stranger' (its [parties] are: bank, telco, shop); mend it and go on [bold]"
STATUSES = [
    jobs_pb2.JobStatus(
        job="predict-a-model-0123abcd", kind="predict", state="finished", phase="write", scored=12, records=12
    ),
    jobs_pb2.JobStatus(
        job="x" * 63, kind="train", state="interrupted", phase="publish", round=100, rounds=100, stage=6
    ),
]
STATUSES[0].predictions = PATH
STATUSES[1].error = ERROR


def _printed(monkeypatch: pytest.MonkeyPatch, width: int, *, errors: bool = True) -> str:
    text = screen(monkeypatch, "out", width)
    progress_view.print_statuses(STATUSES, errors=errors)
    return text.getvalue()


def test_statuses_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where names are of usual length each job is one line, and no state or phase is cut."""
    monkeypatch.setattr(sys.modules[__name__], "STATUSES", STATUSES[:1])
    lines = _printed(monkeypatch, 80).splitlines()
    assert max(map(len, lines[:6])) <= 80
    (row,) = [line.split() for line in lines if "finished" in line]
    assert row[:7] == ["predict-a-model-0123abcd", "predict", "finished", "write", "12", "of", "12"]


def test_metrics_by_noisy_labels_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the figures of a training, with the file of those by clean labels."""
    metrics = [types_pb2.NamedMetric(name="train_auc", value=0.7, noisy=True)]
    monkeypatch.setattr(
        sys.modules[__name__], "STATUSES", [jobs_pb2.JobStatus(job="first", kind="train", metrics=metrics)]
    )
    said = "first: train_auc 0.7000\nfirst: these are by noisy labels; by clean ones: clean_metrics.json at the label "
    assert said in _printed(monkeypatch, 160)


def test_serving_at_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """How it goes is a line without a bar, one request is no requests, and who is missing is named."""
    status = jobs_pb2.JobStatus(job="s", kind="serve", state="running", phase="serve", bytes=1500)
    told = status.serving
    told.requests, told.refused, told.records, told.p50_s, told.p99_s, told.records_per_s = 12345, 7, 1, 0.04, 0.12, 99
    text = screen(monkeypatch, "err", 80, force_terminal=True, color_system=None)
    with progress_view.serving() as update:
        update(status)
        told.requests, told.refused = 1, 0
        said = ["1 request", "99 % within 120 ms", "1 record scored", "1.5 kB sent"]
        assert progress_view.served_in_all(status) == said
        update(status)
        status.away.append("telco")
        update(status)
    assert "serving 12,345 requests, 7 refused, 99 % within 120 ms 0:00:00" in text.getvalue()
    text.truncate(0)
    monkeypatch.setattr(terminal, "out", PlainConsole(file=text, width=160))
    progress_view.print_statuses([status])
    assert "s: waits for telco" in text.getvalue()
    assert "1 request, 99 % within 120 ms" in text.getvalue()
    assert progress_view.status_dict(status)["serving"]["requests"] == 1
    assert "serving" not in progress_view.status_dict(STATUSES[0])


def test_serving_without_a_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party without which it serves is no party that it waits for, unless it does not serve at the time."""
    status = jobs_pb2.JobStatus(job="s", kind="serve", state="running", phase="serve", away=["telco"])
    status.serving.requests, status.serving.away[:] = 2, ["telco"]
    text = screen(monkeypatch, "err", 120, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "out", PlainConsole(file=text, width=160))
    with progress_view.serving() as update:
        update(status)
    assert "2 requests, 99 % within 0 ms, without telco" in text.getvalue()
    progress_view.print_statuses([status])
    assert "s: answers without telco, which is asked again" in text.getvalue()
    status.away.append("shop")
    progress_view.print_statuses([status])
    assert "s: waits for shop" in text.getvalue()
    status.phase = "wait"
    progress_view.print_statuses([status])
    assert "s: waits for telco, shop" in text.getvalue()
    assert progress_view.status_dict(status)["serving"]["away"] == ["telco"]


@pytest.mark.parametrize("width", [30, 80])
def test_statuses_are_never_cut(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long cells go on in the next line; a path and an error have a line of their own, whole, brackets too."""
    printed = _printed(monkeypatch, width)
    assert "…" not in printed
    assert printed.count("x") >= 2 * 63
    lines = printed.splitlines()
    assert f"predict-a-model-0123abcd: {PATH}" in lines
    assert f"{'x' * 63}: {ERROR}" in lines
    assert ERROR not in _printed(monkeypatch, width, errors=False)


def test_a_transcript_on_a_narrow_terminal(tmp_path: Path) -> None:
    """Peers and classes of a transcript's table are not cut either."""
    peer = "a-party-with-a-name-of-quite-some-length-indeed"
    with TranscriptWriter(tmp_path) as log:
        log.append(
            transcript_pb2.TranscriptRecord.RECEIVED, peer, "step", "job", 1, 0, 0, types_pb2.NamedMetric(name="v")
        )
    environment = {**os.environ, "COLUMNS": "50", "TERM": "dumb"}
    command = [sys.executable, "-m", "treetap", "transcript", str(tmp_path)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "…" not in out
    lines = out.splitlines()
    (header,) = [line for line in lines if "peer" in line]
    first, last = header.index("peer"), header.index("step")
    below = lines[lines.index(header) + 2 : -2]
    assert "".join(line[first:last].strip() for line in below) == peer


@pytest.mark.parametrize("plain", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_a_narrow_terminal_without_colours(plain: dict[str, str]) -> None:
    """It is as wide as it says, a dumb one too, and gets no escape sequence."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 60, 0, 0))
    says = "from treetap import terminal; from treetap.pages.printing import print_words as say; "
    command = [sys.executable, "-c", f"{says}say(terminal.out, 'nine more ' * 20)"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | plain
    subprocess.run(command, env=environment, stdin=theirs, stdout=theirs, check=True, timeout=60)
    os.close(theirs)
    lines = os.read(ours, 4096).decode().splitlines()
    os.close(ours)
    assert max(map(len, lines)) in range(50, 61)
    assert "\x1b" not in "".join(lines)


def test_a_folder_without_a_transcript(tmp_path: Path) -> None:
    """Nothing is not an intact transcript: status 2, and the folders below that have some are named."""
    message = refused(treetap("transcript", tmp_path))
    assert message.startswith(f"{tmp_path}: holds no transcript, and no folder within 3 levels below it does")
    for job in ("first", "second"):
        TranscriptWriter(tmp_path / "state" / "transcripts" / job).close()
    message = refused(treetap("transcript", tmp_path))
    below = tmp_path / "state" / "transcripts"
    assert message == f"{tmp_path}: holds no transcript; these do: {below / 'first'}, {below / 'second'}\n"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("buffering", ["", "1"])
@pytest.mark.parametrize("words", ["--help", "--version", "protocol", "protocol --json"])
def test_an_output_that_is_full(words: str, buffering: str) -> None:
    """A report that cannot be written is one message and status 1, whether Python holds output back or not."""
    environment = {**os.environ, "PYTHONUNBUFFERED": buffering}
    command = [sys.executable, "-m", "treetap", *words.split()]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, env=environment, stdout=full, stderr=-1, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "treetap: standard output cannot be written: No space left on device\n"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_reader_who_went_away(buffering: str) -> None:
    """Output that nobody reads any more ends the command without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONUNBUFFERED": buffering}
    command = [sys.executable, "-m", "treetap", "protocol", "--json"]
    ended = subprocess.run(command, env=environment, stdout=writing, stderr=-1, text=True, check=False, timeout=60)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_the_version() -> None:
    """`treetap --version` says which one is installed."""
    outcome = treetap("--version")
    assert (outcome.status, outcome.out, outcome.err) == (0, f"treetap {version('treetap')}\n", "")


def test_a_prediction_counts_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress line tells how many records have their score, of how many."""
    written = screen(monkeypatch, "err", 200, force_terminal=True)
    with progress_view.live("p") as update:
        status = jobs_pb2.JobStatus(kind="predict", state="running", phase="align", seconds=4)
        update(status)
        status = jobs_pb2.JobStatus(kind="predict", state="running", phase="predict", seconds=10, records=900)
        update(status)
        status.seconds, status.scored = 12, 300
        update(status)
        time.sleep(0.3)  # the line is drawn ten times a second
    assert "scored 300 of 900" in written.getvalue()


@pytest.mark.parametrize("terminal_", [True, False])
def test_each_change_of_a_jobs_state_is_a_line(terminal_: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a terminal and of a pipe; what it waits for is said, and nothing twice."""
    written = screen(monkeypatch, "err", 120, force_terminal=terminal_)
    heard = [*[("waiting", "waiting for approval of telco")] * 2, ("waiting", "waits\n"), *[("running", "")] * 2]
    with progress_view.live("first") as update:
        say = progress_view.saying_changes("first", update)
        for state, error in [*heard, ("interrupted", "telco is away"), ("finished", "")]:
            say(jobs_pb2.JobStatus(kind="train", state=state, error=error, planned_bytes=12 * 10**9, planned_mib=1536))
    lines = re.findall(r"first: [^\r\n\x1b]+", written.getvalue())
    much = "an attempt will send at most 12.00 GB of ciphertexts", "a party will hold some 1.5 GiB"
    assert [line.strip() for line in lines] == [
        f"first: {it}" for it in (*much, "waiting for approval of telco", "waits\\n", "running", "interrupted")
    ]


def test_without_a_terminal_each_tenth_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a long training shows that it goes on, in as many lines as a short one's."""
    written = screen(monkeypatch, "err", 60)
    with progress_view.live("first") as update:
        say = progress_view.saying_changes("first", update)
        for trees in range(401):
            say(jobs_pb2.JobStatus(kind="train", state="running", phase="train", rounds=400, stored_trees=trees))
    first, *lines = written.getvalue().splitlines()
    assert first == "first: running"
    assert lines == [f"first: trained {trees} of 400" for trees in range(40, 401, 40)]


@pytest.mark.parametrize("width", [60, 80, 133])
def test_a_progress_line_keeps_its_time(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Title, place and seconds are whole where the terminal is narrow; what comes behind them is cut."""
    text = screen(monkeypatch, "err", width, force_terminal=True, color_system=None)
    status = jobs_pb2.JobStatus(
        kind="train", state="running", phase="train", protocol="boosting", stored_trees=9, rounds=10
    )
    with progress_view.live("A split network") as update:
        update(status)
    with progress_view.steps("audit") as step:
        step(3, 7, "feature-b: ID2Graph in chunks, as the paper has it for many records")
    lines = re.split(r"[\r\n]|\x1b\[\S*?[A-Za-z]", text.getvalue())
    assert max(map(len, lines)) <= width
    assert any(re.match(r"A split network .*trained 9 of 10 +0:00:00\b", line) for line in lines)
    assert any(re.match(r"audit .*3 of 7 +0:00:00 +feature-b", line) for line in lines)
