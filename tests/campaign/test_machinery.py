"""The campaign's own machinery: it finds what is planted, repeats itself, and makes failing plans small."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import stages
from tests.campaign.cipher import _stored
from tests.campaign.disk import Disk, DiskFault, How
from tests.campaign.file_calls import Disks
from tests.campaign.plans import Plan
from tests.campaign.schedule import carry_out
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


def _besides(what: Callable[[Any], object]) -> Callable[..., Any]:
    """Makes of a method one that does something more."""

    def made(right: Callable[..., Any]) -> Callable[..., Any]:
        def done(self: Any, *given: Any) -> Any:
            found = right(self, *given)
            what(self)
            return found

        return done

    return made


async def _forever() -> None:
    await asyncio.sleep(1e6)


async def _failing() -> None:
    raise Unreachable("no route")


def _forgetful(stored: Callable[..., Any]) -> Callable[..., Any]:
    """Labels that were drawn are found for the first job alone."""
    met: Counter[NoisyLabels] = Counter()

    def found(self: NoisyLabels, *given: Any) -> Any:
        met[self] += 1
        return stored(self, *given) if met[self] > 2 else None

    return found


KEPT: list[asyncio.Future[None]] = []
#: Fault → where it is planted, what is made of the right function, and what the finding says.
PLANTS: dict[str, tuple[type, str, Callable[[Any], Any], str]] = {
    "wrong weight": (
        BoostingCriterion,
        "leaf",
        lambda right: lambda self, *given: right(self, *given) + 1e-6,
        "is not the oracle's",
    ),
    "traceback": (PartyNode, "_expect_more", _besides(lambda _: logging.exception("defect")), "in the log of root"),
    "key on disk": (
        JobStore,
        "publish",
        _besides(lambda job: (job.model / "names.json").write_text(hex(_stored[1024][0]._p))),
        "holds a secret key",
    ),
    "left file": (
        JobStore,
        "publish",
        _besides(lambda job: (job.model / "x.part").touch()),
        "has kept models/job/x.part",
    ),
    "task": (PartyNode, "close", _besides(lambda _: asyncio.ensure_future(_forever())), "tasks are left"),
    "lost error": (
        PartyNode,
        "close",
        _besides(lambda _: KEPT.append(asyncio.ensure_future(_failing()))),
        "no task retrieved the error of _failing: Unreachable('no route')",
    ),
}
OF_DEFENCES: dict[str, tuple[type, str, Callable[[Any], Any], str]] = {
    "labels drawn for every job": (NoisyLabels, "_stored", _forgetful, "2 are stored"),
    "a charge without a draw": (
        LabelBudget,
        "charge",
        lambda right: lambda self, *given: (right(self, *given), right(self, *given))[1],
        "2 charges after 0 faults",
    ),
    "another repair": (
        Repair,
        "lines",
        lambda right: lambda self, stored: [{**each, "refit": each["grafting"]} for each in right(self, stored)],
        "repairs are others",
    ),
    "an account of clean labels": (
        ReleasedSets,
        "_said",
        lambda right: lambda self, party, labels: right(self, party, self.clean),
        "the account has other figures",
    ),
}


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        *((Plan(1, "boosting", "train"), what) for what in PLANTS),
        *((Plan(1, "forest-noisy", "two-jobs"), what) for what in OF_DEFENCES),
    ],
)
def test_what_is_planted_is_found(plan: Plan, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each checker, of defences of labels too, sees the fault that it is there for."""
    stages.after_training(plan.stage)  # kept for later tests, so not with the fault
    owner, name, make, said = (PLANTS | OF_DEFENCES)[what]
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))
    findings = carry_out(plan, tmp_path / "x").findings
    assert any(said in finding for finding in findings), findings


def test_noise_that_is_drawn_again_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that forgets what it has released sends a second value when a tree is grown again."""
    monkeypatch.setattr(NoiseLedger, "_known", lambda self: {})
    fault = {"kind": "kill", "who": "label-holder", "at": 155, "served": False, "back_s": 0.0}
    plan = Plan(3, "pivodl-noise", "train", {"draws": 0}, faults=(fault,))
    findings = carry_out(plan, tmp_path / "x").findings
    assert any(" 2 weights of leaf " in finding for finding in findings), findings


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
