"""The campaign's own machinery: it finds what is planted, repeats itself, and makes failing plans small."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import stages
from tests.campaign.campaign import Summary
from tests.campaign.cipher import _stored
from tests.campaign.disk import Disk, DiskFault, How
from tests.campaign.file_calls import Disks
from tests.campaign.plans import PREDICTIONS, Plan, drawn
from tests.campaign.schedule import carry_out
from tests.campaign.shrink import shrunk
from treetap.errors import Unreachable
from treetap.models.durable import append, write_whole
from treetap.party.defences.budgets import LabelBudget
from treetap.party.defences.noisy_labels import NoisyLabels
from treetap.party.growth.rules.released_sets import ReleasedSets
from treetap.party.growth.rules.repair import Repair
from treetap.party.node import PartyNode
from treetap.party.pivodl.leaf_weights import NoiseLedger
from treetap.party.runtime.job_store import JobStore
from treetap.trees.boosting_criterion import BoostingCriterion

pytestmark = pytest.mark.second_tier

PLAIN = Plan(1, "boosting", "train")


def test_nothing_is_found_where_nothing_breaks(tmp_path: Path) -> None:
    """Every story on every stage that it can be told on, without faults."""
    for number, (story, asked) in enumerate(
        {
            "train": {},
            "predict": {"prediction": {"protocol": "eini", "key_bits": 1024, "attributions": True}},
            "cancel": {"at": 40},
            "two-jobs": {},
            "two-coordinators": {"at": 30, "cancels": True},
            "serve": {"prediction": {"protocol": "interactive"}},
        }.items()
    ):
        outcome = carry_out(Plan(number, "boosting", story, asked, record=True), tmp_path / story)
        assert outcome.findings == [], story
        assert (outcome.hits, outcome.killed) == (0, 0)


@pytest.mark.parametrize("stage", ["boosting-withheld", "forest-noisy"])
def test_nothing_is_found_where_labels_are_defended(stage: str, tmp_path: Path) -> None:
    """Jobs of one draw, of which each is charged once; and predictions with private values."""
    for number, (story, asked) in enumerate(
        [("two-jobs", {}), *(("predict", {"prediction": each}) for each in (PREDICTIONS[0], PREDICTIONS[2]))]
    ):
        assert carry_out(Plan(number, stage, story, asked), tmp_path / story).findings == [], asked


def test_plans_are_data(tmp_path: Path) -> None:
    """From a seed always the same, and through a file unchanged."""
    for seed in range(50):
        (tmp_path / "plan.json").write_text(drawn(seed).to_json())
        assert Plan.read(tmp_path / "plan.json") == drawn(seed) == drawn(seed)


def _planted(what: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plant a fault into the product; what the finding says."""
    if what == "wrong weight":
        right = BoostingCriterion.leaf
        monkeypatch.setattr(BoostingCriterion, "leaf", lambda self, *given: right(self, *given) + 1e-6)
        return "is not the oracle's"
    if what == "traceback":
        logging_node = PartyNode._expect_more
        monkeypatch.setattr(
            PartyNode,
            "_expect_more",
            lambda self, session: (logging_node(self, session), logging.exception("defect"))[0],
        )
        return "in the log of root"
    if what == "key on disk":
        publish = JobStore.publish

        def leaky(self: JobStore, *given: Any) -> None:
            publish(self, *given)
            (self.model / "names.json").write_text(hex(_stored[1024][0]._p))

        monkeypatch.setattr(JobStore, "publish", leaky)
        return "holds a secret key"
    if what == "left file":
        close = JobStore.publish
        monkeypatch.setattr(
            JobStore, "publish", lambda self, *given: (close(self, *given), (self.model / "x.part").touch())[0]
        )
        return "has kept models/job/x.part"
    if what == "task":

        async def forever() -> None:
            await asyncio.sleep(1e6)

        own = PartyNode.close
        monkeypatch.setattr(PartyNode, "close", lambda self: (asyncio.ensure_future(forever()), own(self))[1])
        return "tasks are left"
    if what == "lost error":

        async def failing() -> None:
            raise Unreachable("no route")

        own = PartyNode.close
        kept: list[asyncio.Future[None]] = []

        def close(self: PartyNode) -> Any:
            kept.append(asyncio.ensure_future(failing()))
            return own(self)

        monkeypatch.setattr(PartyNode, "close", close)
        return "no task retrieved the error of _planted.<locals>.failing: Unreachable('no route')"
    raise ValueError(what)


@pytest.mark.parametrize("what", ["wrong weight", "traceback", "key on disk", "left file", "task", "lost error"])
def test_what_is_planted_is_found(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checker sees the fault that it is there for."""
    stages.after_training("boosting")  # kept for later tests, so not with the fault
    said = _planted(what, monkeypatch)
    findings = carry_out(Plan(1, "boosting", "train"), tmp_path / "x").findings
    assert any(said in finding for finding in findings), findings


def _planted_in_a_defence(what: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plant a fault into the defences of labels; what the finding says."""
    if what == "labels drawn for every job":
        stored = NoisyLabels._stored
        met: Counter[NoisyLabels] = Counter()

        def forgetful(self: NoisyLabels, *given: Any) -> Any:
            met[self] += 1
            return stored(self, *given) if met[self] > 2 else None

        monkeypatch.setattr(NoisyLabels, "_stored", forgetful)
        return "2 are stored"
    if what == "a charge without a draw":
        charge = LabelBudget.charge
        monkeypatch.setattr(LabelBudget, "charge", lambda self, *given: (charge(self, *given), charge(self, *given))[1])
        return "2 charges after 0 faults"
    if what == "another repair":
        lines = Repair.lines
        monkeypatch.setattr(
            Repair, "lines", lambda self, stored: [{**each, "refit": each["grafting"]} for each in lines(self, stored)]
        )
        return "repairs are others"
    if what == "an account of clean labels":
        said = ReleasedSets._said
        monkeypatch.setattr(ReleasedSets, "_said", lambda self, party, labels: said(self, party, self.clean))
        return "the account has other figures"
    raise ValueError(what)


@pytest.mark.parametrize(
    "what", ["labels drawn for every job", "a charge without a draw", "another repair", "an account of clean labels"]
)
def test_what_is_planted_in_a_defence_is_found(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checker of defences sees the fault that it is there for."""
    stages.after_training("forest-noisy")  # kept for later tests, so not with the fault
    said = _planted_in_a_defence(what, monkeypatch)
    findings = carry_out(Plan(1, "forest-noisy", "two-jobs"), tmp_path / "x").findings
    assert any(said in finding for finding in findings), findings


def test_noise_that_is_drawn_again_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that forgets what it has released sends a second value when a tree is grown again."""
    monkeypatch.setattr(NoiseLedger, "_known", lambda self: {})
    fault = {"kind": "kill", "who": "label-holder", "at": 155, "served": False, "back_s": 0.0}
    plan = Plan(3, "pivodl-noise", "train", {"draws": 0}, faults=(fault,))
    findings = carry_out(plan, tmp_path / "x").findings
    assert any(" 2 weights of leaf " in finding for finding in findings), findings


def test_a_summary_counts_what_was_found(tmp_path: Path) -> None:
    """Figures are those of the schedules that were carried out."""
    kill = {"kind": "kill", "who": "feature-b", "at": 60, "served": False, "back_s": 0.0}
    crash = {"kind": "disk", "who": "feature-c", "at": 9, "how": "after", "for_s": 0.0, "back_s": 0.0}
    slow = {"kind": "worker", "who": "label-holder", "at": 0, "how": "slow", "for_s": 1.0}
    never = {**kill, "at": 10_000}
    summary = Summary("some")
    for faults in ((kill, slow, never), (crash,)):
        plan = Plan(3, "boosting", "train", faults=faults)
        summary.add(plan, carry_out(plan, tmp_path / "x"))
    assert (summary.schedules, summary.crashes, summary.faults) == (2, 2, 3)
    assert summary.as_json()["findings"] == 0


def test_a_failing_plan_is_made_small() -> None:
    """The parts of a plan that do not matter for its finding are removed."""
    matters = {"kind": "kill", "who": "feature-b", "at": 7, "served": True, "back_s": 0.0}
    big = Plan(5, "forest", "train", real=True, record=True, faults=(*drawn(8).faults, matters, *drawn(9).faults))
    small = shrunk(big, lambda plan: matters in plan.faults)
    assert small == Plan(5, "boosting", "train", faults=(matters,))


def _on_disk(folder: Path, seed: int, how: How, at: int) -> tuple[bytes, list[str]]:
    """The content of a file that is written, replaced and grown, after a fault at an operation; and all names."""
    (folder / "p").mkdir(parents=True)
    dead: list[bool] = []
    disks = Disks(folder)
    disks.of["p"] = Disk(
        folder / "p", lambda: bool(dead), lambda: dead.append(True), lambda: 0.0, random.Random(seed),
        [DiskFault(at, how)],
    )  # fmt: skip
    path = folder / "p" / "file"
    with disks.active():
        try:
            write_whole(path, b"old\n")
            write_whole(path, b"new\n")
            append(path, b"more\n")
        except asyncio.CancelledError:
            assert dead
    return path.read_bytes() if path.exists() else b"", sorted(os.listdir(folder / "p"))


@pytest.mark.parametrize("how", ["before", "after", "torn", "power-ext4", "power-strict"])
def test_durable_files_survive_every_crash_whole(how: How, tmp_path: Path) -> None:
    """A file is there with its old or its new content, and what was appended is there up to somewhere."""
    seen = set()
    for at in range(14):
        for seed in range(4):
            content, names = _on_disk(tmp_path / f"{at}-{seed}", seed, how, at)
            seen.add(content)
            assert set(names) <= {"file", "file.part"}
            assert content in (b"", b"old\n") or content.startswith(b"new\n")
            assert content.strip(b"\0") in b"new\nmore\n" or content == b"old\n"
    assert {b"", b"old\n", b"new\n"} <= seen


def test_a_disk_that_forgets_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsync a power failure takes what was acknowledged: the layer would show it."""
    monkeypatch.setattr(Disk, "synced", lambda self, inode: None)
    found = {_on_disk(tmp_path / str(seed), seed, "power-strict", 12)[0] for seed in range(12)}
    assert b"" in found or b"old\n" in found
