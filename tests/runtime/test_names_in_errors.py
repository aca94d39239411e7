"""Errors name the party where they happened, once, however short its name is."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, PARAMS
from tests.simulator import Federation, Message
from tests.worlds import spec
from treetap.errors import DataError, Interrupted, Silent, Unreachable
from treetap.party.runtime.context import StepContext
from treetap.party.setup.steps import bin_features
from treetap.protocols.prediction import predict_request
from treetap.trees.binning import BinnedTable

#: Names whose letters stand in almost every message; the label holder's first.
SHORT = ("e", "a", "no")
TABLES = dict(zip(SHORT, HERE.tables.values(), strict=True))
JOB = spec(PARAMS, obfuscation="standard", aggregator=SHORT[0], feature_parties=SHORT[1:])


@pytest.mark.parametrize("party", SHORT)
def test_an_error_gets_its_party_once(party: str) -> None:
    """Whatever stands in its message: what says where it happened is an attribute, which further callers see."""
    for error in (Silent("waited 5 s for no one, e or a, in vain"), DataError(f"/state/{party}/x.csv: has no rows")):
        placed = error.at(party)
        assert (type(placed), str(placed)) == (type(error), f"{party}: {error}")
        assert placed.at(party) is placed
    said = Interrupted(f"{party} cannot reach b", party=party)
    assert said.at(party) is said


async def test_an_opening_that_fails_says_where(tmp_path: Path) -> None:
    """Each party in turn lacks its model: the operator learns which one."""

    federation = Federation(tmp_path, TABLES)
    assert (await federation.train(JOB)).state == "finished"
    for party in SHORT:
        models = federation.state(party) / "models"
        away = models.rename(models.with_name("elsewhere"))
        failed = await federation.predict(predict_request(model="job"))
        assert (failed.state, failed.bad_input) == ("failed", True)
        assert failed.error == f"{party}: there is no model 'job' in {models}; bring a back-up of it back"
        away.rename(models)


async def test_a_step_that_is_interrupted_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, whose message names no party; then a peer out of reach, whose message begins with one."""

    async def full(context: StepContext, *about: Any, **more: Any) -> BinnedTable:
        if context.party == "a":
            raise OSError(errno.ENOSPC, "No space left on device", "trees.jsonl")
        return await bin_features(context, *about, **more)

    monkeypatch.setattr("treetap.party.growth.feature_party_job.bin_features", full)

    def cut(message: Message) -> None:
        if (message.sender, message.to) == ("a", "e"):
            raise Unreachable("the line is cut")

    federation = Federation(tmp_path, TABLES)
    status = await federation.train(JOB)
    assert (status.state, status.error) == (
        "interrupted",
        "a: bin of round 0, stage 0: No space left on device: trees.jsonl; then: treetap resume job",
    )
    federation.hook = cut
    status = await federation.train(JOB, "other")
    assert (status.state, status.error) == (
        "interrupted",
        "a cannot reach e; details are in the log of a; then: treetap resume other",
    )
