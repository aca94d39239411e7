"""`treetap doctor --bundle`: what helps is in the archive, and nothing of a table or a secret."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pydantic import BaseModel

from tests.commands.command import refused, treetap
from treetap import logs
from treetap.errors import BadInput
from treetap.ops.doctor.bundle import said, write_bundle
from treetap.process import limits

#: An id, a cell, a label's and two columns' names, a password, a path, a job's name, a table's.
CANARIES = [
    "Meier-4711",
    "3141.592653",
    "Defaulted27",
    "incomeXY",
    "Grünwald",
    "hunter2secret",
    "vault17",
    "job-of-xyz",
]
PARTY = """
name = "bank"
listen = "127.0.0.1:0"
state = "vault17"
insecure = true
arithmetic = "plain"
engine = "process"
policy = "policy.toml"
silence_s = 12.5
[tables.walnut]
path = "vault17/Meier-4711.csv"
id = "Meier-4711"
label = "Defaulted27"
columns = ["incomeXY", "Grünwald"]
duplicates = "first"
cuts = { incomeXY = [3141.592653] }
"""


POLICY = """
[people]
coordinators = ["hunter2secret"]
approval = "manual"
approvers = ["hunter2secret"]
[columns]
references = { incomeXY = 3141.592653, "Grünwald" = true }
[emits]
PREDICTION = ["job-of-xyz", "clients"]
"""


def _members(archive: Path) -> dict[str, Any]:
    with ZipFile(archive) as file:
        return {name: json.loads(file.read(name)) for name in file.namelist()}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A party's file in which each text, name and number of its owner is a canary, and its state."""
    path = tmp_path / "party.toml"
    path.write_text(PARTY, encoding="utf-8")
    path.with_name("policy.toml").write_text(POLICY, encoding="utf-8")
    (state := tmp_path / "vault17").mkdir()
    (state / "Meier-4711.csv").write_text(",".join(CANARIES), encoding="utf-8")
    (model := state / "models" / "job-of-xyz").mkdir(parents=True)
    (model / "manifest.json").write_text("{}", encoding="utf-8")
    return path


def _log(path: Path, formatter: logging.Formatter) -> Path:
    """A log with lines of treetap's own, of others, and a traceback, all with canaries."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(formatter)
    log = logging.getLogger(limits.__name__)
    other = logging.getLogger("hunter2secret")
    for each in (log, other):
        each.addHandler(handler)
        each.propagate = False
    try:
        with logs.about(job="job-of-xyz", peer="Grünwald"):
            log.warning("the limit of file descriptors stays as it is: %s", " ".join(CANARIES))
            log.warning("%s", "Meier-4711")
            other.error("Meier-4711 has incomeXY")
            try:
                raise ValueError("3141.592653 of incomeXY")
            except ValueError:
                log.exception("no text of the source: Meier-4711")
        handler.stream.write(json.dumps({"level": "error", "time": "3141.592653"}) + "\n")
    finally:
        for each in (log, other):
            each.removeHandler(handler)
            each.propagate = True
        handler.close()
    return path


@pytest.mark.parametrize("kind", [logs.TextLines, logs.JsonLines])
@pytest.mark.parametrize("fault", ["", "silence_s = 'Meier-4711'\n"])
def test_a_bundle_helps_and_has_no_canary(kind: type[logging.Formatter], fault: str, config: Path) -> None:
    config.write_text(fault + config.read_text("utf-8").replace("silence_s = 12.5\n" if fault else "\0", ""), "utf-8")
    log = _log(config.with_name("party.log"), kind())
    archive = config.with_name("support.zip")
    done = treetap("doctor", "--config", config, "--bundle", archive, "--log", log)
    assert done.status == 2
    assert f"bundle: {archive}" in done.out
    members = _members(archive)
    for name, member in members.items():
        text = json.dumps(member, ensure_ascii=False)
        assert not [canary for canary in CANARIES if canary in text], name
    shown = members["configuration.json"]
    assert shown["engine"] == "process"
    assert shown["insecure"] is True
    assert shown["silence_s"] == ("<str of 10>" if fault else 12.5)
    assert shown["tables"] == {
        "<1>": {
            **{
                "id": "<str of 10>",
                "label": "<str of 11>",
                "columns": ["<str of 8>", "<str of 8>"],
                "duplicates": "first",
            },
            **{"path": "<str of 22>", "cuts": {"<1>": ["<float of 11>"]}},
        }
    }
    policy = members["policy.json"]
    assert policy["people"]["approval"] == "manual"
    assert policy["emits"] == {"PREDICTION": ["<str of 10>", "clients"]}
    assert policy["columns"] == {"references": {"<1>": "<float of 11>", "<2>": "<bool>"}}
    assert members["state.json"] == {
        "folders": {"models": {"files": 1, "bytes": 2}, "other": {"files": 1, "bytes": 86}},
        "models": 1,
    }
    lines = members["log-1.json"]
    assert [line["level"] for line in lines if "level" in line] == ["warning", "warning", "error", "error", "error"]
    assert lines[0]["text"] == "the limit of file descriptors stays as it is: %s"
    assert lines[0]["logger"] == limits.__name__
    assert lines[2]["logger"] == "another"
    assert any("test_bundle.py" in frame for line in lines for frame in line.get("frames", ()))
    assert members["versions.json"]["libraries"]["grpcio"]
    subjects = {finding["subject"] for finding in members["findings.json"]}
    assert subjects == {"configuration"} if fault else {"a table", "state", "policy"} <= subjects


def test_every_text_of_a_log_is_found_again() -> None:
    modules, texts = said()
    assert {"treetap.party.server.main", "treetap.ops.doctor.bundle", "treetap.logs"} <= modules
    assert len(texts) > 100
    assert all(pattern.fullmatch(text) for text, pattern in texts)


def test_without_a_configuration_versions_and_kernels(tmp_path: Path) -> None:
    assert treetap("doctor", "--bundle", tmp_path / "a.zip").status == 0
    assert set(_members(tmp_path / "a.zip")) == {"versions.json", "findings.json"}


def test_what_is_there_stays(tmp_path: Path) -> None:
    """An archive that cannot be written is one more finding."""
    (there := tmp_path / "a.zip").write_bytes(b"mine")
    os.mkfifo(pipe := tmp_path / "pipe.log")
    assert "--log goes with --bundle" in refused(treetap("doctor", "--log", there))
    for archive, log, says in [
        (there, [], "is there already"),
        (tmp_path / "b.zip", ["--log", str(tmp_path / "no.log")], "no.log: cannot be read"),
        (tmp_path / "b.zip", ["--log", str(pipe)], "pipe.log: is no file; write its lines into one first"),
        (tmp_path / "no" / "b.zip", [], "is no folder"),
    ]:
        done = treetap("doctor", "--bundle", archive, *log, "--json")
        assert done.status == 2
        *others, last = json.loads(done.out)["findings"]
        assert others
        assert last["level"] == "fault"
        assert says in last["message"]
    assert there.read_bytes() == b"mine"
    assert set(tmp_path.iterdir()) == {there, pipe}


AGES = "a: after : job " * 400


@pytest.mark.parametrize("before", ["", "Dec 01 16:55:38 host treetap[12]: ", "\x1b[36mbank_1 |\x1b[0m "])
@pytest.mark.parametrize(
    "line",
    [
        f"2026-12-01 16:55:38,478 WARNING x [job=a step=leave] {AGES}",
        json.dumps({"level": "warning", "step": "leave", "message": AGES}),
    ],
)
def test_a_line_is_told_behind_words_of_a_journal(before: str, line: str, tmp_path: Path) -> None:
    """One that would fit a text in ages of ways, or is nested without end, holds nothing up."""
    (log := tmp_path / "a.log").write_text(f"{before}{line}\n{'[' * 10**5}\n", "utf-8")
    write_bundle(tmp_path / "a.zip", None, BaseModel, [], [log])
    (shown,) = _members(tmp_path / "a.zip")["log-1.json"]
    assert (shown["level"], shown["step"], shown["logger"]) == ("warning", "leave", "another")


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(BadInput, match=rf"{tmp_path}/b.zip.*No space left"):
        write_bundle(tmp_path / "b.zip", None, BaseModel, [], [])
    assert not list(tmp_path.iterdir())
