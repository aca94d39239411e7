"""`treetap trail`: what a party's people see of it, export, verify and acknowledge."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from party.runtime.ledger import LEDGER
from party.trail.journal import TRAIL, Trail
from tests.commands.command import refused, treetap, write
from tests.replay import HERE
from tests.simulator import Federation, run
from tests.trail.previews import HOLDER, B, C, previewed, rewritten, without_last
from tests.worlds import PARTIES


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folders of three parties after two previews, with transcripts."""
    folder = tmp_path_factory.mktemp("states")

    async def main() -> None:
        policies: dict[str, Any] = {name: {"preview": "count"} for name in PARTIES}
        federation = Federation(folder / "federation", HERE.tables, policies=policies, record="both")
        await previewed(federation, "p1", "p2")
        await federation.close()
        for name in PARTIES:
            shutil.copytree(federation.state(name), folder / name)

    run(main())
    return folder


@pytest.fixture
def config(states: Path, tmp_path: Path) -> Path:
    """The file of party B, whose state is its own copy."""
    shutil.copytree(states / B, tmp_path / "state")
    return write(tmp_path / "b.toml", {"name": B, "state": "state", "insecure": True})


def test_lines_are_shown_in_words(config: Path) -> None:
    """A line each, with time and head."""
    ended = treetap("trail", "--config", config)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].endswith("the trail begins; the ledger has 0 lines, there are 0 decisions")
    assert f"job p1, attempt 1 opens for coordinator with {HOLDER}, {C}: " in lines[1]
    assert lines[2].endswith(f"job p1, attempt 1: heads of {HOLDER}, {C}")
    assert lines[3].endswith("job p1, attempt 1: its result is there")
    assert lines[4].endswith("job p1, attempt 1 is left")
    assert len(lines) == 9


def test_the_export_is_the_trail_itself(config: Path) -> None:
    """Every line with its checksum; for one partner, its own heads alone."""
    ended = treetap("trail", "--config", config, "--json")
    assert ended.out == (config.parent / "state" / TRAIL).read_text()
    ended = treetap("trail", "--config", config, "--json", "--partner", C)
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert [(row["kind"], row["party"], row["of"], row["job"]) for row in rows] == [
        ("held", B, C, job) for job in ("p1", "p1", "p2", "p2")
    ]
    assert "--partner goes with --json" in refused(treetap("trail", "--config", config, "--partner", C))


def test_everything_fits(config: Path, states: Path, tmp_path: Path) -> None:
    """The chain, the ledger, transcripts, and what two partners hold: whole exports, and those for this party alone."""
    files = []
    for name in (HOLDER, C):
        own = write(tmp_path / f"{name}.toml", {"name": name, "state": str(states / name), "insecure": True})
        for options in ([], ["--partner", B]):
            files.append(tmp_path / f"{name}{len(options)}.jsonl")
            files[-1].write_text(treetap("trail", "--config", own, "--json", *options).out)
    held = [word for file in files for word in ("--held", file)]
    ended = treetap("trail", "--config", config, "--verify", *held)
    assert (ended.status, ended.out) == (0, f"{B}: everything fits\n"), ended.err


def _cut_ledger(state: Path) -> None:
    whole = (state / LEDGER).read_bytes().splitlines(keepends=True)
    (state / LEDGER).write_bytes(b"".join(whole[:1]))


def _cut_transcript(state: Path) -> None:
    for path in sorted((state / "transcripts" / "p2").iterdir()):
        path.write_bytes(path.read_bytes()[:200])


WRONG = {
    "ledger": (_cut_ledger, "ledger.jsonl: is an older state than trail.jsonl knows"),
    "no trail": (lambda state: (state / TRAIL).unlink(), "there is none: no job has opened here, or it was taken away"),
    "transcript": (_cut_transcript, "which the trail has: an older state was brought back"),
    "no transcript": (lambda state: shutil.rmtree(state / "transcripts" / "p1"), "it was moved away or deleted"),
    "damage": (lambda state: (state / TRAIL).write_bytes(b"{}\n"), "line 1 is damaged"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_said(what: str, config: Path) -> None:
    """Exit status 1."""
    change, says = WRONG[what]
    change(config.parent / "state")
    ended = treetap("trail", "--config", config, "--verify")
    assert ended.status == 1
    assert says in ended.out


@pytest.mark.parametrize("way", ["pruned", "rewritten"])
def test_a_partner_s_export_shows_what_is_missing_here(way: str, config: Path, states: Path, tmp_path: Path) -> None:
    """By date, job and partner, even where the checksums were computed anew."""
    own = write(tmp_path / "c.toml", {"name": C, "state": str(states / C), "insecure": True})
    export = tmp_path / "c.jsonl"
    export.write_text(treetap("trail", "--config", own, "--json", "--partner", B).out)
    change = without_last(2) if way == "pruned" else rewritten(lambda lines: [{**lines[0], "party": "x"}, *lines[1:]])
    change(config.parent / "state")
    ended = treetap("trail", "--config", config, "--held", export)
    assert ended.status == 1
    faults = ended.out.splitlines()
    assert len(faults) == (1 if way == "pruned" else 4)
    assert all(f", which {C} holds: lines were pruned or rewritten, or an older state" in fault for fault in faults)
    assert "UTC (job p2)" in faults[-1]


def test_an_older_state_is_acknowledged(config: Path) -> None:
    """With a reason that partners hear, as one more line."""
    assert treetap("trail", "--config", config, "--restored", "the disk broke").status == 0
    trail = Trail(B, config.parent / "state")
    assert trail.lines()[-1][0]["why"] == trail.restored(C) == trail.restored("a new one") == "the disk broke"
    assert treetap("trail", "--config", config).out.endswith("an older state was brought back: the disk broke\n")
    assert "a reason has at most 400 characters" in refused(
        treetap("trail", "--config", config, "--restored", "x" * 401)
    )


def test_a_damaged_export_does_not_fit_and_the_own_one_is_refused(config: Path, states: Path, tmp_path: Path) -> None:
    """The first is named beside what --verify finds."""
    damaged, own = tmp_path / "damaged.jsonl", config.parent / "state" / TRAIL
    damaged.write_text((states / C / TRAIL).read_text().replace("coordinator", "c0ordinator", 1))
    _cut_ledger(config.parent / "state")
    ended = treetap("trail", "--config", config, "--verify", "--held", damaged)
    assert ended.status == 1
    assert f"{damaged}: line 2 is damaged" in ended.out
    assert "ledger.jsonl: is an older state" in ended.out
    assert f"{own}: is the export of {B} itself" in refused(treetap("trail", "--config", config, "--held", own))


def test_what_is_no_export_is_refused(config: Path, tmp_path: Path) -> None:
    """As is one that has nothing of this party."""
    for number, content in enumerate(("", "{}\n", "text\n", '{"kind":"held","party":"c","of":"d"}\n')):
        file = tmp_path / f"{number}.jsonl"
        file.write_text(content)
        assert f"{file}: " in refused(treetap("trail", "--config", config, "--held", file))
