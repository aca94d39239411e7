"""The decision log: every answer and refusal is on disk before it leaves, whole, in order and for its days.

- Served over the simulator: what a line says of answers and refusals, one sync a round, a disk that is full.
- By itself: crashes at every operation, rotation, retention, a clock that is set back, tampering, guessed ids.
- `treetap decisions`, and what `treetap forget` leaves.
"""

from __future__ import annotations

import asyncio
import csv
import errno
import hashlib
import hmac
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.campaign.disk import CRASHES, REFUSALS, Disk, DiskFault, How
from tests.campaign.file_calls import Disks
from tests.commands.command import treetap_here, write
from tests.replay import HERE, PARAMS
from tests.serving.served import EXACT, IDS, LABEL_HOLDER, WAYS, B, C, ask, config, expect, serve, serving, without
from tests.simulator import Federation, in_place
from tests.worlds import spec
from treetap.errors import BadInput, ConfigError, DataError, NotServed, Overloaded, Refused, Silent, UnknownJob
from treetap.models.line_file import Line, checked_line, first
from treetap.ops.forget.forgetting import forget
from treetap.party.config import PartyConfig, read
from treetap.party.server.main import reread
from treetap.party.serving import decisions
from treetap.party.serving.decisions import DecisionLog, days_of, decisions_of, hashed, key_of
from treetap.protocols.prediction import predict_request
from treetap.tables.record_ids import Ids
from treetap.trees.params import BoostingParams

FOLDER = "decisions"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def logged(state: Path) -> list[Line]:
    """The lines of a state folder."""
    return list(decisions_of(state))


def told(lines: Sequence[Line], *keys: str) -> list[tuple[Any, ...]]:
    """Some fields of each line."""
    return [tuple(line[key] for key in keys) for line in lines]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", WAYS)
async def test_every_record_that_is_answered_has_a_line(way: str, tmp_path: Path) -> None:
    """With its outcome, what the client was told, who lacks it or answers no more about it, the model and the job."""
    limit = {"partners": {LABEL_HOLDER: {"queries_per_record": 1}}}
    tables, served = without(HERE.tables, B, IDS[2:3]), {LABEL_HOLDER: config(decision_days=9)}
    federation = Federation(tmp_path, tables, serve=served, policies={C: limit})
    assert (await federation.train(spec(PARAMS, alignment="psi"))).state == "finished"
    await serve(federation, **WAYS[way])
    answers = [await ask(federation, *ids) for ids in ((IDS[0], "nobody", IDS[2]), (IDS[0],))]
    state = federation.state(LABEL_HOLDER)
    lines, key = logged(state), key_of(state / FOLDER)
    assert [(line["n"], line["client"]) for line in lines] == [(n, "app") for n in range(1, 5)]
    assert told(lines, "status", "ids", "lacked_by", "spent_by", "reasons", "away") == [
        ("predicted", [hashed(key, IDS[0])], [], [], [], []),
        ("unknown_id", [hashed(key, "nobody")], [], [], [], []),
        ("not_common", [hashed(key, IDS[2])], [B, C], [], [], []),
        ("queries_spent", [hashed(key, IDS[0])], [], [C], [], []),
    ]
    entries = [entry for answer in answers for entry in answer.predictions]
    assert told(lines, "prediction", "scores") == [(entry.label or None, list(entry.scores)) for entry in entries]
    model, (status,) = state / "models" / "job", federation.jobs.status("s")
    digest = hashlib.sha256((model / "trees.jsonl").read_bytes()).hexdigest()
    assert set(told(lines, "model", "model_digest", "job")) == {("job", digest, status.job)}
    assert {len(line["job_digest"]) for line in lines} == {64}
    files = [path for path in (state / FOLDER).iterdir() if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert not [value for value in IDS for path in files if value.encode() in path.read_bytes()]


async def test_a_round_is_one_sync_and_no_answer_leaves_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty requests of one round are one writing; while it lasts nobody has an answer."""
    async with serving(tmp_path, {}, decision_days=9) as federation:
        log, written, gate = federation.node(LABEL_HOLDER).served_models.decisions, list[int](), asyncio.Event()
        assert log is not None

        async def slow(work: Callable[[], Any], **_: Any) -> Any:
            await gate.wait()
            written.append(len(work.args[0].lines))  # type: ignore[attr-defined] # of a partial
            return work()

        monkeypatch.setattr(log, "_offload", slow)
        asked = [ask(federation, IDS[k % 6]) for k in range(30)]
        done, _ = await asyncio.wait(asked, timeout=2)
        assert (done, written) == (set(), [])
        gate.set()
        answers = await asyncio.gather(*asked)
        assert written == [30]
        assert [each.predictions[0].scores[0] for each in answers] == pytest.approx([EXACT[k % 6] for k in range(30)])
        assert len(logged(federation.state(LABEL_HOLDER))) == 30


async def test_every_refusal_has_a_line(tmp_path: Path) -> None:
    """With its reason; ids of those alone who may ask, and not of requests that are too long."""
    async with serving(tmp_path, {}, most_ids=2, queue=3, decision_days=9) as federation:
        await expect(federation, 3)
        state = federation.state(LABEL_HOLDER)
        began = len(logged(state))
        for end, kind in (
            (ask(federation, IDS[0], client="stranger"), Refused),
            (ask(federation, *IDS[:3]), BadInput),
            (ask(federation, IDS[0], model="other"), UnknownJob),
            (ask(federation, IDS[0], model="No Model\n" * 99), UnknownJob),
            (ask(federation, IDS[1], within_s=1e-6), Silent),
        ):
            with pytest.raises(kind):
                await end
        await expect(federation, 3)
        kept = [ask(federation, *IDS[:2]), ask(federation, IDS[3])]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await ask(federation, IDS[4], IDS[5])
        await asyncio.gather(*kept)
        lines = [line for line in logged(state)[began:] if line["status"] != "predicted"]
        key = key_of(state / FOLDER)
        assert told(lines, "client", "status", "model", "ids") == [
            ("stranger", "refused", "job", []),
            ("app", "malformed", "job", []),
            ("app", "unknown_model", "other", []),
            ("app", "unknown_model", "", []),
            ("app", "late", "job", [hashed(key, IDS[1])]),
            ("app", "queue_full", "job", [hashed(key, value) for value in IDS[4:]]),
        ]
        assert {(line["job"], line["prediction"]) for line in lines if line["model"] == "job"} == {("s", None)}


@pytest.mark.parametrize("code", [getattr(errno, how) for how in REFUSALS])
async def test_a_disk_that_takes_no_line_refuses_requests(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By name, whether they would be answered or refused, half a line on disk; once there is room all goes on."""
    real = os.fsync

    def full(descriptor: int) -> None:
        if FOLDER in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    async with serving(tmp_path, {}, decision_days=9) as federation:
        await ask(federation, IDS[0])
        says = rf"label-holder answers nobody, as its decision log cannot be written \({os.strerror(code)}\)"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            for request in (ask(federation, IDS[1]), ask(federation, IDS[1], client="stranger")):
                with pytest.raises(NotServed, match=says):
                    await request
        assert len([record for record in caplog.records if "no client is answered until" in record.message]) == 1
        await ask(federation, IDS[2])
        await asyncio.sleep(3)
        told_operator = federation.jobs.status("s")[0].serving
        assert (told_operator.requests, told_operator.refused) == (2, 2)
        state = federation.state(LABEL_HOLDER)
        key = key_of(state / FOLDER)
        assert told(logged(state), "n", "ids") == [(1, [hashed(key, IDS[0])]), (2, [hashed(key, IDS[2])])]


def log_of(state: Path, days: int = 9) -> DecisionLog:
    """The log of a party that starts."""
    return DecisionLog("bank", state, days, in_place)


def enter(log: DecisionLog, *ids: str) -> None:
    """Write a batch of lines about these records."""
    lines = [{"client": "app", "status": "predicted", "ids": [log.hashed(each)]} for each in ids]
    asyncio.run(log.write(lines))


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize("how", [*("power-strict", "torn", "power-ext4"), "before", "after"])
def test_a_crash_at_any_operation_loses_no_answer(
    how: How, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was confirmed is there when the party starts again, in order, and the log goes on; half a line is said."""
    assert how in CRASHES
    torn = 0
    for at in range(40):
        for seed in range(4):
            folder, dead, confirmed = tmp_path / f"{at}-{seed}", list[bool](), 0
            (folder / "p").mkdir(parents=True)
            disks = Disks(folder)
            disks.of["p"] = Disk(
                folder / "p", lambda dead=dead: bool(dead), lambda dead=dead: dead.append(True), lambda: 0.0,
                random.Random(seed), [DiskFault(at, how)],
            )  # fmt: skip
            caplog.clear()
            with disks.active():
                try:
                    log = log_of(folder / "p")
                    for number in range(6):
                        monkeypatch.setattr(decisions, "_now", lambda k=number: NOON + timedelta(days=k // 4))
                        enter(log, *(f"{number}-{k}" for k in range(2)))
                        confirmed += 2
                except asyncio.CancelledError:
                    assert dead
            again = log_of(folder / "p")
            lines = logged(folder / "p")
            assert confirmed <= len(lines) <= confirmed + 2
            assert told(lines, "n", "ids") == [(n + 1, [again.hashed(f"{n // 2}-{n % 2}")]) for n in range(len(lines))]
            torn += "no whole line" in caplog.text
            caplog.clear()
            enter(log_of(folder / "p"), "more")
            assert caplog.text == ""
            assert len(logged(folder / "p")) == len(lines) + 1
    assert bool(torn) == (how in ("torn", "power-strict"))  # ext4 keeps the data of a file that was renamed


def test_files_are_of_days_and_end_after_the_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is kept for all of its days; a clock that is set back changes no order; numbers go on."""
    days = {"now": 0.0}
    monkeypatch.setattr(decisions, "_now", lambda: NOON + timedelta(days=days["now"]))
    log, key = log_of(tmp_path, days=2), key_of(tmp_path / FOLDER)
    for number, day in enumerate((0, 0.49, 0.51, 0.2, 1, 2)):  # a clock that was set back at 0.2
        days["now"] = day
        enter(log, str(number))
    kept = [[int(line["n"]) for line in decisions_of(tmp_path, path.stem)] for path in days_of(tmp_path / FOLDER)]
    assert kept == [[1, 2], [3, 4, 5], [6]]
    assert [path.stem for path in days_of(tmp_path / FOLDER)] == ["2026-03-01", "2026-03-02", "2026-03-03"]
    days["now"] = 2.49  # two days after the last moment of the first one
    log = log_of(tmp_path, days=2)
    assert [line["n"] for line in logged(tmp_path)] == [1, 2, 3, 4, 5, 6]
    days["now"] = 3
    enter(log, "later")
    assert [line["n"] for line in logged(tmp_path)] == [3, 4, 5, 6, 7]
    days["now"] = 30
    log_of(tmp_path, days=2)
    assert logged(tmp_path) == []
    assert key_of(tmp_path / FOLDER) == key


TAMPERED: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a changed line": lambda lines: [lines[0], lines[1].replace(b"predicted", b"declined_"), *lines[2:]],
    "a missing line": lambda lines: [lines[0], *lines[2:]],
    "a missing first line": lambda lines: lines[1:],
    "a doubled line": lambda lines: [lines[0], *lines],
    "moved lines": lambda lines: [lines[1], lines[0], *lines[2:]],
    "a line of another hand": lambda lines: [*lines, checked_line({"n": 4, "ids": []}, first("x"))[0]],
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_tampering_shows(how: str, tmp_path: Path) -> None:
    """The commands and the next start name the file and the line."""
    enter(log_of(tmp_path), "a", "b", "c")
    (path,) = days_of(tmp_path / FOLDER)
    path.write_bytes(b"".join(TAMPERED[how](path.read_bytes().splitlines(keepends=True))))
    for look in (logged, log_of):
        with pytest.raises(DataError, match=rf"{path}: line \d is damaged"):
            look(tmp_path)


def test_what_else_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day between two and the end of one that is not the newest are found, the end of the newest one is not."""
    for day in range(3):
        monkeypatch.setattr(decisions, "_now", lambda day=day: NOON + timedelta(days=day))
        enter(log_of(tmp_path), "a", "b")
    early, between, newest = days_of(tmp_path / FOLDER)
    newest.write_bytes(newest.read_bytes().splitlines(keepends=True)[0])
    assert [line["n"] for line in logged(tmp_path)] == [1, 2, 3, 4, 5]
    content = between.read_bytes()
    for left in (b"", content.splitlines(keepends=True)[0]):
        between.write_bytes(left) if left else between.unlink()
        with pytest.raises(DataError, match=rf"{newest}: begins with line 5, and [34] is due"):
            logged(tmp_path)
    early.rename(between)
    with pytest.raises(DataError, match=rf"{between}: line 1 is damaged"):
        logged(tmp_path)
    (tmp_path / FOLDER / "key.json").unlink()
    with pytest.raises(DataError, match="no line is found by its id without this key: bring a back-up of it back"):
        log_of(tmp_path)


async def test_guessed_ids(tmp_path: Path) -> None:
    """With the key every id is read off a list of customers; without it none is, but a line is by scores that differ.

    Without the key one sees which lines are about one person, and who has everybody's scores knows whom.
    """
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config(decision_days=9)})
    assert (await federation.train(spec(BoostingParams(n_estimators=6, max_depth=3, min_child_weight=0.1)))).error == ""
    await serve(federation)
    for value in (*IDS, IDS[0]):
        await ask(federation, value)
    status = await federation.predict(predict_request(model="job"))
    state = federation.state(LABEL_HOLDER)
    lines, key = logged(state), key_of(state / FOLDER)
    hashes = [line["ids"][0] for line in lines]
    customers = [f"r{number:05d}" for number in range(1000)]
    tried: dict[str, Callable[[bytes], str]] = {
        "sha256": lambda text: hashlib.sha256(text).hexdigest(),
        "no key": lambda text: hmac.digest(bytes(32), text, "sha256").hex(),
        "another party's key": lambda text: hmac.digest(b"k" * 32, text, "sha256").hex(),
        "the key": lambda text: hmac.digest(key, text, "sha256").hex(),
    }
    read_off = {
        name: [guess for guess in customers if make(guess.encode())[:32] in hashes] for name, make in tried.items()
    }
    assert read_off == {"sha256": [], "no key": [], "another party's key": [], "the key": IDS}
    assert [hashes.index(value) for value, times in Counter(hashes).items() if times > 1] == [0]  # linked
    table = pq.read_table(status.predictions).to_pylist()
    of_score = Counter(row["score"] for row in table)
    by_score = {row["score"]: row["id"] for row in table if of_score[row["score"]] == 1}
    known = {by_score[line["scores"][0]]: line["ids"][0] for line in lines if line["scores"][0] in by_score}
    assert len(known) == len(by_score) > 0
    assert all(hashed(key, record) == value for record, value in known.items())


def bank(folder: Path, policy: str = "", serve_lines: str = "") -> Path:
    """A bank's file."""
    (folder / "policy.toml").write_text(policy)
    served = f'[serve]\nclients = ["app"]\nlisten = "127.0.0.1:0"\n{serve_lines}'
    path = folder / "bank.toml"
    path.write_text(f'name = "bank"\nstate = "state"\ninsecure = true\npolicy = "policy.toml"\n{served}')
    return path


def test_a_policy_asks_for_a_log(tmp_path: Path) -> None:
    """A retention below the policy's is refused when the party starts and when it reads its files again."""
    asks = "[people]\nmin_decision_days = 183\n"
    for days in (0, 182):
        with pytest.raises(ConfigError, match=rf"serve\.decision_days = {days}: bank's policy says min_decision_days"):
            read(bank(tmp_path, asks, f"decision_days = {days}\n"))
    running = read(bank(tmp_path, asks, "decision_days = 183\n"))
    _, changed, left = reread(bank(tmp_path, asks, "decision_days = 200\n"), running)
    assert (changed, left) == ([], ["serve.decision_days"])
    with pytest.raises(ConfigError, match="write decision_days = 184 under"):
        reread(bank(tmp_path, asks.replace("183", "184"), "decision_days = 200\n"), running)


def _kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bank's file, whose log has decisions of two days and two clients."""
    state = folder / "state"
    log = log_of(state)
    for day, client, ids in ((0, "app", ["ann", "bob"]), (1, "app", ["ann"]), (1, "shop", ["cy"])):
        monkeypatch.setattr(decisions, "_now", lambda day=day: NOON + timedelta(days=day))
        lines = [
            {"client": client, "status": "predicted", "ids": [log.hashed(each)], "prediction": "1", "scores": [0.1, 2]}
            for each in ids
        ]
        asyncio.run(log.write(lines))
    asyncio.run(log.write([{"client": "app", "status": "late", "ids": [log.hashed("bob"), log.hashed("ann")]}]))
    return write(folder / "bank.toml", {"name": "bank", "state": "state", "insecure": True})


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines by day, client and id; counts with the last line; the same rows as CSV and as Parquet."""
    config_file = str(_kept(tmp_path, monkeypatch))

    def said(*words: str, status: int = 0) -> str:
        assert treetap_here("decisions", *words, "--config", config_file) == status
        heard = capsys.readouterr()
        return heard.err if status else heard.out

    numbers = {(): [1, 2, 3, 4, 5], ("--id", "ann"): [1, 3, 5], ("--client", "shop"): [4], ("--id", "x"): []}
    numbers |= {
        ("--day", "2026-03-02"): [3, 4, 5],
        ("--day", "2026-03-01", "--id", "bob"): [2],
        ("--day", "2020-01-01"): [],
    }
    for words, expected in numbers.items():
        assert [line["n"] for line in json.loads(said("list", *words, "--json"))] == expected, words
    first_line, *_, last_line = said("list").splitlines()
    assert first_line == "1 2026-03-01T12:00:00+00:00 app predicted 1 0.1 2"
    assert last_line == "5 2026-03-02T12:00:00+00:00 app late"
    counted = json.loads(said("count", "--json"))
    assert (counted["decisions"], counted["last"]["n"], len(counted["counts"])) == (5, 5, 4)
    assert f"the last one is number 5, sha256 {counted['last']['sha256']}" in said("count")
    for form in ("csv", "parquet"):
        out = tmp_path / f"decisions.{form}"
        assert said("export", str(out), "--client", "app") == f"{out}: 4 decisions\n"
    rows = pq.read_table(tmp_path / "decisions.parquet").to_pylist()
    with (tmp_path / "decisions.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{name: cell or "" for name, cell in row.items()} for row in rows]
    assert (rows[0]["scores"], len(rows[-1]["ids"].split())) == ("0.1 2", 2)
    assert "is no day; write it as 2026-01-31" in said("list", "--day", "1 March", status=2)
    assert "end the file's name with .csv or .parquet" in said("export", "decisions.xlsx", status=2)
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    assert "bank notes them while it serves with decision_days under [serve]" in said("list", status=2)


def test_a_partners_name_of_a_column_forges_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does it control the terminal of whoever reads the log."""
    config_file, log = str(_kept(tmp_path, monkeypatch)), log_of(tmp_path / "state")
    asyncio.run(
        log.write([{"client": "app", "status": "predicted", "reasons": ["b:x\n6 2026-03-03 app\x1b[2J\u202e"]}])
    )
    assert treetap_here("decisions", "list", "--config", config_file) == 0
    *_, last = (heard := capsys.readouterr().out).splitlines()
    assert last.endswith("reasons=b:x\\n6 2026-03-03 app\\x1b[2J\\u202e")
    assert heard.count("\n") == 6


def test_a_forgotten_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes go, of one of two ids too, with a mark; all else stays, checksums fit, and the party goes on."""
    party = PartyConfig.from_file(_kept(tmp_path, monkeypatch))
    before = logged(party.state)
    outcome = forget(party, Ids.of(["ann"]), dry=False, transcripts=False)
    assert {place: had for place, (_, had, _) in outcome.files.items()} == {
        "decisions/2026-03-01.jsonl": 1,
        "decisions/2026-03-02.jsonl": 2,
    }
    after, key = logged(party.state), key_of(party.state / FOLDER)
    assert told(after, "n", "at", "client", "prediction", "scores") == told(
        before, "n", "at", "client", "prediction", "scores"
    )
    assert [line["ids"] for line in after] == [
        [""],
        [hashed(key, "bob")],
        [""],
        [hashed(key, "cy")],
        [hashed(key, "bob"), ""],
    ]
    assert [line.get("forgotten", False) for line in after] == [True, False, True, False, True]
    enter(log_of(party.state), "dan")
    assert len(logged(party.state)) == 6
    assert forget(party, Ids.of(["ann"]), dry=False, transcripts=False).files == {}
