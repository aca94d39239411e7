"""A party's file, policy and tables read again while it serves: what holds when, and faults that change nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.replay import HERE, JOB, SUBMISSION, with_word
from tests.replay import ask as ask_party
from tests.serving.served import IDS, ask, scores, serving, without
from tests.simulator import Federation, Message
from tests.worlds import PARTIES
from treetap.errors import BadInput, Refused
from treetap.party.config import PartyConfig, read
from treetap.party.server.main import follow, reread
from treetap.party.serving.registry import OwnPaths
from treetap.process import lifecycle, limits
from treetap.wire.v2 import serving_pb2

LABEL_HOLDER, FEATURE, _ = PARTIES
TABLE = '[tables.train]\npath = "t.csv"\nid = "id"\ncolumns = ["{column}"]\n'


def _written(folder: Path, file: str = "", policy: str = "", column: str = "x") -> Path:
    """A party's file and its policy, in a folder."""
    path = folder / "party.toml"
    head = 'name = "bank"\nstate = "state"\ninsecure = true\npolicy = "policy.toml"\n'
    path.write_text(head + file + TABLE.format(column=column))
    (folder / "policy.toml").write_text(policy)
    return path


def test_keys_that_jobs_read_change_and_others_wait_for_a_restart(tmp_path: Path) -> None:
    """Of `[serve]`, whom it answers; not where it listens."""
    serve = '[serve]\nclients = ["{}"]\nlisten = "127.0.0.1:{}"\n'
    running = read(_written(tmp_path, "workers = 1\n" + serve.format("app", 7000)))
    more = "workers = 2\nmost_jobs = 5\n[defences]\nlabel_dp = {epsilon = 1.0}\n" + serve.format("other", 7001)
    config, changed, left = reread(_written(tmp_path, more, '[people]\npeers = ["telco"]\n', "z"), running)
    assert changed == ["most_jobs", "tables", "defences", "serve.clients", "policy.people.peers"]
    assert left == ["workers", "serve.listen"]
    assert (config.tables["train"].columns, config.policy.people.peers, config.most_jobs) == (["z"], ["telco"], 5)
    assert config.serve is not None
    assert (config.workers, config.serve.clients, config.serve.listen) == (1, ["other"], "127.0.0.1:7000")


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("file", "policy", "named"),
    [
        ("", "[people]\npeers = 3\n", "people.peers"),
        ("", 'peerz = ["telco"]\n', "peerz"),
        ("most_jobs = 0\n", "", "most_jobs"),
        pytest.param(f"most_jobs = {'9' * 5000}\n", "", "cannot be read: Exceeds the limit", id="a long number"),
        ('data = "nowhere"\n', "", "there is no such folder"),
    ],
)
async def test_a_fault_changes_nothing_and_is_logged(
    file: str, policy: str, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does anything of the other file, which has none."""
    path = _written(tmp_path)
    running = read(path)
    federation = Federation(tmp_path / "federation", HERE.tables)
    node = federation.node(FEATURE)
    node.config = running
    _written(tmp_path, file, policy, column="z")
    with caplog.at_level(logging.ERROR, "treetap.party.server.main"):
        await follow(path, node)
    assert node.config is running
    await federation.close()
    (record,) = caplog.records
    assert "nothing has changed" in record.message
    assert named in record.message


def test_a_client_that_is_still_answered_becomes_no_party(tmp_path: Path) -> None:
    """Where `[serve]` is taken out of the file, clients are answered until the restart."""
    running = read(_written(tmp_path, '[serve]\nclients = ["app"]\nlisten = "127.0.0.1:7000"\n'))
    path = _written(tmp_path, policy='[people]\npeers = ["app"]\n')
    with pytest.raises(BadInput, match="both name app"):
        reread(path, running)
    assert reread(_written(tmp_path), running)[2] == ["serve"]


def test_folders_of_a_table_that_came_later_stay_hidden_in_errors(tmp_path: Path) -> None:
    """As do those of the tables before, which jobs under way name."""
    before = read(_written(tmp_path))
    hide = OwnPaths(before)
    (tmp_path / "more").mkdir()
    text = _written(tmp_path).read_text().replace('"t.csv"', '"more/u.csv"')
    (tmp_path / "party.toml").write_text(text)
    hide.add(reread(tmp_path / "party.toml", before)[0])
    assert hide(f"{tmp_path}/more/u.csv: no; {tmp_path}/t.csv: no") == "u.csv: no; t.csv: no"


def _under(federation: Federation, party: str, **policy: Any) -> PartyConfig:
    """A party's configuration with other lines in its policy."""
    config = federation.configs[party]
    return config.under(config.policy.with_lines(policy))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    "line",
    [{"people": {"label_holders": []}}, {"people": {"coordinators": ["another"]}}, {"emits": {"CANDIDATE_SUM": []}}],
)
async def test_a_job_under_way_keeps_the_policy_that_it_began_with(line: dict[str, Any], tmp_path: Path) -> None:
    """The same model; the next job of that coordinator is refused."""
    federation = Federation(tmp_path, HERE.tables)
    stricter = _under(federation, FEATURE, **line)

    def change(message: Message) -> None:
        if message.word == "build_histograms" and not message.served:
            federation.hook = None
            federation.node(FEATURE).go_by(stricter)

    federation.hook = change
    first = await federation.train(JOB, "first")
    assert (first.state, first.error, federation.hook) == ("finished", "", None)
    refused = await federation.train(JOB, "second")
    assert refused.state == "failed"
    assert refused.error.startswith("Refused: ")
    assert FEATURE in refused.error
    assert not federation.node(FEATURE)._sessions


async def test_a_coordinator_that_is_obeyed_no_longer_ends_its_job_and_begins_no_attempt(tmp_path: Path) -> None:
    """Of the job under its own name neither; nor has it a job checked."""
    federation = Federation(tmp_path, HERE.tables)
    await ask_party(federation, FEATURE, with_word("prepare"))
    federation.node(FEATURE).go_by(_under(federation, FEATURE, people={"coordinators": ["another"]}))
    for word in ("prepare", "check_job"):
        with pytest.raises(Refused, match="coordinator is not a coordinator that feature-b obeys"):
            await ask_party(federation, FEATURE, with_word(word, attempt=2))
    await ask_party(federation, FEATURE, with_word("account"))
    request = with_word("leave")
    request.setup.leave.submission = SUBMISSION
    await ask_party(federation, FEATURE, request)
    with pytest.raises(Refused, match="is not a coordinator that feature-b obeys"):
        await ask_party(federation, FEATURE, request)


async def test_a_transcript_is_kept_as_the_job_began(tmp_path: Path) -> None:
    """The mode of a job under way stays; a job that begins later has the new one."""
    federation = Federation(tmp_path, HERE.tables, record="off")
    recorded = _under(federation, FEATURE, people={"record": "received"})

    def change(message: Message) -> None:
        if message.word == "build_histograms" and not message.served:
            federation.hook = None
            federation.node(FEATURE).go_by(recorded)

    federation.hook = change
    transcripts = federation.state(FEATURE) / "transcripts"
    for job, kept in (("first", False), ("second", True)):
        assert (await federation.train(JOB, job)).state == "finished"
        assert (transcripts / job).exists() is kept


async def test_a_served_model_answers_about_customers_that_came_later(tmp_path: Path) -> None:
    """All parties read their tables again, and align them, in another attempt; clients of another list are refused."""
    new = IDS[-1]

    tables = HERE.tables
    for party in PARTIES:
        tables = without(tables, party, [new])
    async with serving(tmp_path, {}, tables) as federation:
        (unknown,) = (await ask(federation, new)).predictions
        assert unknown.status == serving_pb2.UNKNOWN_ID
        for party in PARTIES:
            pq.write_table(HERE.tables[party][1]["predict"], federation.configs[party].tables["predict"].path)
        config = federation.configs[LABEL_HOLDER]
        assert config.serve is not None
        serve = config.serve.model_copy(update={"clients": ["app", "second"]})
        federation.node(LABEL_HOLDER).go_by(config.model_copy(update={"serve": serve}))
        await asyncio.sleep(60)
        (status,) = federation.jobs.status("s")
        assert (status.state, status.phase, status.attempt) == ("running", "serve", 2)
        answers = [await ask(federation, new, client=client) for client in ("app", "second")]
        assert [answer.predictions[0].status for answer in answers] == [serving_pb2.PREDICTED] * 2
        assert len(set(scores(answers))) == 1
        await asyncio.sleep(60)
        assert federation.jobs.status("s")[0].attempt == 2  # asked for once, begun once


@pytest.mark.second_tier
def test_sighup_has_a_process_read_again_and_the_end_of_a_terminal_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several at once, as while it reads, count once more; under `nohup` a closed terminal does not stop it.

    A defect in one reading keeps the next from nothing. One that comes before the process serves is heard then.
    """
    calls: list[int] = []

    async def serve(*, terminal: list[bool], nohup: bool = False, early: bool = False) -> None:
        def has_terminal() -> bool:
            return terminal.pop(0) if len(terminal) > 1 else terminal[0]

        for module in (lifecycle, limits):
            monkeypatch.setattr(module, "has_terminal", has_terminal)
        calls.clear()

        async def again() -> None:
            calls.append(1)
            await asyncio.sleep(0.05)
            raise KeyError("a defect")

        before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        try:
            in_terminal, where = limits.hold_hangup(), {"name": "p", "address": "a"}
            if early:
                signal.raise_signal(signal.SIGHUP)  # to this thread: others of the tests' process do not hold it back
            serving = lifecycle.serve_until_stopped(
                "party", where, until_stdin_closes=False, reread=again, in_terminal=in_terminal
            )
            task = asyncio.ensure_future(serving)
            await asyncio.sleep(0.2)
            for pause in () if early else (0.02, 0.01, 0.2):
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.sleep(pause)
            if not task.done():
                os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(task, 5)
        finally:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGHUP, before)

    monkeypatch.setattr(lifecycle, "give_memory_back", lambda: asyncio.sleep(60))
    for terminal, nohup, expected in (([False], False, 2), ([True, False], False, 0), ([True, False], True, 2)):
        asyncio.run(serve(terminal=list(terminal), nohup=nohup))
        assert len(calls) == expected, (terminal, nohup)
        asyncio.run(serve(terminal=list(terminal), nohup=nohup, early=True))
        assert len(calls) == min(expected, 1), (terminal, nohup)


def test_a_hang_up_while_a_party_starts_does_not_end_it(tmp_path: Path) -> None:
    """It comes while the file is read, long before the party serves; what ends the party is its empty file."""
    path = tmp_path / "party.toml"
    os.mkfifo(path)
    party = subprocess.Popen(
        [sys.executable, "-m", "treetap", "party", "--config", str(path)], stderr=subprocess.PIPE, text=True
    )
    with path.open("w"):  # once the party opens it
        party.send_signal(signal.SIGHUP)
        time.sleep(0.2)
    _, said = party.communicate(timeout=60)
    assert (party.returncode, "party.toml" in said) == (2, True), said


def test_reread_takes_faults_as_bad_input(tmp_path: Path) -> None:
    """A missing policy file too."""
    path = _written(tmp_path)
    running = read(path)
    (tmp_path / "policy.toml").unlink()
    with pytest.raises(BadInput, match=r"policy\.toml"):
        reread(path, running)
