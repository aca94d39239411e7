"""How an experiment ends: finished seeds are told, JSON is JSON, errors give no vain advice, nothing is left."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.commands.command import end
from tests.commands.experiment_documents import run
from treetap.errors import Interrupted, TreetapError
from treetap.lab.experiment import all_runs, command
from treetap.lab.experiment import run as one_run
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.results import Results, RunResult
from treetap.lab.local_federation import LocalFederation, clean_end
from treetap.process.fork_server import FORKS, Child

pytestmark = pytest.mark.second_tier

FILE = """[data]\npath = "t.csv"\nlabel = "y"\nseed = [4, 5]
[[party]]\nname = "clinic"\nlabels = true\ncolumns = ["a"]\n[[party]]\nname = "lab"\ncolumns = ["b"]
[job]\nkey_bits = 2048\nn_estimators = 400\n"""
UNDEFINED = {"test": {"auc": math.nan}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment of two seeds that takes long."""
    rows = [f"{i % 90},{i % 7},{i % 2}" for i in range(400)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    (tmp_path / "exp.toml").write_text(FILE)
    return tmp_path / "exp.toml"


@pytest.mark.parametrize(
    ("failure", "failing", "finished"),
    [
        (Interrupted("lab is gone"), 4, []),
        (Interrupted("x"), 5, [4]),
        (KeyboardInterrupt(), 5, [4]),
        (SystemExit(143), 5, [4]),
    ],
)
def test_the_seeds_that_finished_are_printed(
    failure: BaseException,
    failing: int,
    finished: list[int],
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A failure, Ctrl-C or SIGTERM in the second seed leaves the first one's result as one document."""

    def run_seed(_: Any, __: Any, seed: int, *___: Any, **____: Any) -> RunResult:
        if seed == failing:
            raise failure
        return run(seed, metrics=UNDEFINED)

    monkeypatch.setattr(all_runs, "run_seed", run_seed)
    monkeypatch.setattr(all_runs, "add_other", lambda *_, **__: None)
    with pytest.raises(type(failure)) as raised:
        command.run_file(file, as_json=True, discard=True)
    assert raised.value is failure
    printed = capsys.readouterr().out
    assert [each["seed"] for each in json.loads(printed or '{"runs": []}')["runs"]] == finished


def test_people_see_each_report_as_its_run_ends(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first seed's line is out before the second seed begins, and each is printed once."""
    seen: list[str] = []

    def run_seed(_: Any, __: Any, seed: int, *___: Any, **____: Any) -> RunResult:
        seen.append(capsys.readouterr().err)
        return run(seed, metrics=UNDEFINED)

    monkeypatch.setattr(all_runs, "run_seed", run_seed)
    monkeypatch.setattr(all_runs, "add_other", lambda *_, **__: None)
    command.run_file(file, as_json=False, discard=True)
    seen.append(capsys.readouterr().err)
    assert seen == ["", "trained 1 of 2\n", "trained 2 of 2\n"]


def test_undefined_measures_are_null() -> None:
    """A measure that JSON has no number for becomes null; what a run does not have is no key; the rest stays."""
    odd = {"auc": math.nan, "rmse": math.inf, "ks": 0.5}
    row = {"party": "lab", "feature": "c", "weight": 2, "gain": -math.inf, "cover": 1.0}
    result = run(4, metrics={"test": odd}, importance=[row], audit=None, audit_fault="no label")
    printed = Results.of([result]).written()
    (plain,) = json.loads(printed, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))["runs"]
    assert plain["metrics"] == {"test": {"auc": None, "rmse": None, "ks": 0.5}}
    assert plain["importance"] == [row | {"gain": None}]
    assert (plain["seed"], plain["audit"], plain["audit_fault"]) == (4, None, "no label")
    assert not plain.keys() & {"fold", "epochs", "predict", "defences", "privacy", "xgboost", "audit_report"}
    assert plain["traffic"][0].keys() == {"from", "to", "step", "class", "messages", "bytes"}


def test_an_overflow_is_a_measure_without_a_warning() -> None:
    """Squared errors beyond double precision are undefined, and numpy has nothing to say about it."""
    parties = [{"name": "a", "columns": ["a"], "labels": True}, {"name": "b", "columns": ["b"]}]
    content = {"data": {"path": "t", "label": "y"}, "party": parties, "job": {"objective": "reg:squarederror"}}
    scores = pa.table({"treetap_id": ["1", "2"], "prediction": [1e200, -1e200]})
    rows = pa.table({"treetap_id": ["2", "1"], "y": [1e200, 1e200]})
    with warnings.catch_warnings(), np.errstate(all="warn"):
        warnings.simplefilter("error")
        _, found, _ = one_run.evaluated(ExperimentFile.model_validate(content), {}, scores, rows)
    assert found == {"rmse": None}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("lab said nothing for 60 s; then: treetap resume experiment", "lab said nothing for 60 s"),
        ("a; b: no file; mend it, then: treetap resume experiment", "a; b: no file"),
        ("gone; when it is back: treetap resume experiment", "gone"),
        ("nothing any more; see: treetap status experiment-predict", "nothing any more"),
        ("encode it; or drop it", "encode it; or drop it"),
    ],
)
def test_no_advice_to_resume_what_is_gone(
    said: str, told: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The federation ends with the experiment, so that an error does not send anybody to it."""

    def fail(*_: Any, **__: Any) -> None:
        raise Interrupted(said)

    monkeypatch.setattr(one_run, "LocalFederation", fail)
    with pytest.raises(Interrupted) as raised:
        command.run_file(file, as_json=True, workdir=tmp_path / "work")
    assert str(raised.value) == told


def test_a_full_disk_is_told(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says about a file that cannot be written becomes one message with its path."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(one_run.pq, "write_table", full)
    with pytest.raises(TreetapError, match=r"work/seed-4/clinic/train.parquet: No space left on device"):
        command.run_file(file, as_json=True, workdir=tmp_path / "work")


@pytest.mark.parametrize("word", ["experiment", "demo"])
def test_sigterm_leaves_neither_folder_nor_process(word: str, file: Path, tmp_path: Path) -> None:
    """SIGTERM while parties work ends them and removes the temporary folder with tables, labels and keys."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = [
        sys.executable,
        "-m",
        "treetap",
        word,
        *([str(file), "--discard"] if word == "experiment" else []),
        "--json",
    ]
    # processes that it starts have the places of modules in their command line
    own = {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join((os.getcwd(), str(temporary)))}
    process = subprocess.Popen(words, env=os.environ | own, text=True, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1)
    deadline = time.monotonic() + 60
    while not list(temporary.glob("**/coordinator/log.txt")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    assert len(_commands(temporary)) >= len(["the fork server", "a party", "another"])
    process.send_signal(signal.SIGTERM)
    outcome = end(process)
    assert (outcome.status, outcome.out, outcome.err) == (143, "", "")
    assert list(temporary.glob("treetap-*")) == []
    assert _commands(temporary) == []


@pytest.mark.usefixtures("own_server")
def test_a_process_that_starts_as_the_signal_comes_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM between the start of a party's process and its entry in the federation's books ends that party too."""
    started, fork = [], FORKS.fork

    def late(*args: Any, **more: Any) -> Child:
        """A process that comes to life, and is known a while after."""
        started.append(fork(*args, **more))
        os.kill(os.getpid(), signal.SIGTERM)
        started[0].pipe.poll(30)
        return started[0]

    monkeypatch.setattr(FORKS, "fork", late)
    with pytest.raises(SystemExit) as raised, clean_end(), LocalFederation(tmp_path, {"clinic": {}, "lab": {}}):
        pytest.fail("nobody ended the federation")
    assert raised.value.code == 128 + signal.SIGTERM
    assert [process.exitcode for process in started] == [0]


def _commands(part: Path) -> list[bytes]:
    """The command lines of processes that have a path in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has just ended
            found.append(path.read_bytes())
    return [each for each in found if str(part).encode() in each]
