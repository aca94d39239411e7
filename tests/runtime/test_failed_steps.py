"""A step that fails ends the attempt at its party; the next attempt goes on from what is on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB, ORACLE, Conducted, Replay, ask, with_word
from tests.simulator import Faults, Federation
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import DataError, Interrupted, Malformed
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.step_order import id_of
from treetap.party.setup.steps import bin_features
from treetap.trees.binning import BinnedTable
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, _ = PARTIES


def cut_sums(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
    """Candidate sums of one feature party come without what they are about."""
    if sender == FEATURE and name_of(parcel) == "candidate_sums":
        parcel.growth.candidate_sums.Clear()
        parcel.growth.candidate_sums.SetInParent()


async def test_after_a_failure_the_attempt_is_over_at_that_party(
    jobs: tuple[Conducted, Conducted], tmp_path: Path
) -> None:
    """No step but repeats, until the next attempt; the costs of the job are reported, and the party can be left."""

    federation = Federation(tmp_path, HERE.tables)
    replay = Replay(federation, jobs[0])
    federation.tamper = cut_sums
    with pytest.raises(Malformed) as first:
        await replay.to()
    (choose,) = [
        request
        for kind, to, request in jobs[0]
        if (kind, to, *id_of(request)) == ("begin", LABEL_HOLDER, "choose_splits", 0, 0)
    ]
    with pytest.raises(Malformed) as again:
        await ask(federation, LABEL_HOLDER, choose)
    assert str(again.value) == str(first.value)
    for name in ("relay_children", "finish_tree", "publish"):
        with pytest.raises(Interrupted) as refused:
            await ask(federation, LABEL_HOLDER, with_word(name))
        assert str(refused.value) == (
            f"label-holder: the attempt has ended before {name} of round 0, stage 0: "
            f"choose_splits of round 0, stage 0 failed: {first.value}; resume the job for a new one"
        )
    account = await ask(federation, LABEL_HOLDER, with_word("account"))
    assert {row.disclosure for row in account.setup.accounted.traffic} >= {"CIPHERTEXT"}
    federation.tamper = None
    prepare = with_word("prepare", attempt=2)
    assert (await ask(federation, LABEL_HOLDER, prepare)).setup.prepared.aligned_attempt == 1
    await ask(federation, LABEL_HOLDER, with_word("leave", attempt=2))
    assert federation.node(LABEL_HOLDER)._sessions == {}


async def test_a_failure_whose_answer_was_lost_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request comes twice, unheard first: the step fails once, and whoever asks next gets that error."""
    failed: list[str] = []

    async def spoilt(context: StepContext, *about: Any, **more: Any) -> BinnedTable:
        if context.party != FEATURE:
            return await bin_features(context, *about, **more)
        failed.append(context.job)
        raise DataError("column b0 is spoilt").at(context.party)

    federation = Federation(tmp_path, HERE.tables, faults=Faults(double=1.0, delay_s=2.0, seed=1))
    with monkeypatch.context() as patch:
        patch.setattr("treetap.party.growth.feature_party_job.bin_features", spoilt)
        status = await federation.train(JOB)
    assert (status.state, status.bad_input) == ("failed", True)
    assert status.error == "feature-b: column b0 is spoilt"
    assert failed == ["job"]
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)
