"""Untrue answers to the coordinator: a model is published only when all its trees are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.fuzz_cases import intercept
from tests.campaign.small_jobs import FOREST
from tests.replay import HERE, JOB, ORACLE, PARAMS
from tests.simulator import Federation, run
from tests.trainings import oracle
from tests.worlds import PARTIES, assert_oracles_model, spec
from treetap.trees.params import TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import growth_pb2

LABEL_HOLDER, B, C = PARTIES
TOLD = "feature-b cannot have published a model of which the label holder has stored 0 of 2 rounds"


def _published_at_b(sender: str, event: object) -> None:
    if sender == B and name_of(event.result) == "prepared":
        event.result.setup.prepared.published = True


def _no_rounds(sender: str, event: object) -> None:
    if name_of(event.result) == "binned":
        event.result.setup.binned.Clear()


def _stopped(sender: str, event: object) -> None:
    if name_of(event.result) == "binned":
        event.result.setup.binned.stopped = True


def _stop_after_one(sender: str, event: object) -> None:
    if name_of(event.result) == "finished_tree":
        event.result.growth.finished_tree.stop = True


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize("params", [PARAMS, FOREST], ids=["boosting", "forest"])
@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (_published_at_b, TOLD),
        (_no_rounds, "label-holder says that the job has no rounds"),
        (_stopped, "publish cannot come now: 0 of 2 trees are stored"),
        (_stop_after_one, "publish cannot come now: 1 of 2 trees are stored"),
    ],
)
async def test_no_model_without_its_trees(
    lie: Callable[[str, object], None], says: str, params: TreeParams, tmp_path: Path
) -> None:
    """The job ends by name, and the label holder has no model: not of none, and not of the first trees."""
    federation = Federation(tmp_path, HERE.tables)

    def alter(way: str, sender: str, to: str, message: object) -> object:
        if way == "event":
            lie(sender, message)
        return message

    intercept(federation, alter)
    status = await federation.train(spec(params, obfuscation="standard"))
    if lie in (_stopped, _stop_after_one) and params is FOREST:  # a forest never stops early
        assert status.state == "finished"
        assert_oracles_model(federation.states, oracle(HERE, params))
    else:
        assert status.state == "failed"
        assert says in status.error
        assert not (federation.state(LABEL_HOLDER) / "models" / "job").exists()


async def test_more_bytes_than_a_status_can_hold(tmp_path: Path) -> None:
    """Parties that claim to have sent 2^64 - 1 bytes each end no job."""
    federation = Federation(tmp_path, HERE.tables)

    def alter(way: str, sender: str, to: str, message: object) -> object:
        if way == "event" and message.HasField("result"):
            message.result.bytes = 2**64 - 1
        return message

    intercept(federation, alter)
    status = await federation.train(JOB)
    assert (status.state, status.bytes) == ("finished", 2**64 - 1)
    assert_oracles_model(federation.states, ORACLE)


def _error_of(folder: Path, answer: str, untrue: Callable[[Any], None]) -> str:
    """The error with which a job fails where the label holder's answers of a kind are made untrue."""

    async def main() -> str:
        federation = Federation(folder, HERE.tables)

        def alter(way: str, sender: str, to: str, message: object) -> object:
            if way == "event" and name_of(message.result) == answer:
                untrue(getattr(message.result.growth, answer))
            return message

        intercept(federation, alter)
        status = await federation.train(JOB)
        assert status.state == "failed"
        return status.error

    return run(main())


def test_an_owner_that_is_no_party(tmp_path: Path) -> None:
    """A job ends with an error if the label holder names a split's owner that is no party of the job; it names both."""

    def untrue(chosen: Any) -> None:
        for decision in chosen.decisions:
            decision.owner = "stranger"

    error = _error_of(tmp_path, "chosen_splits", untrue)
    assert "apply_splits is to be done by 'stranger', which is no party of job job" in error


def test_a_node_that_no_tree_has(tmp_path: Path) -> None:
    """A job ends with an error that names the label holder, if that has node 0 built."""

    def untrue(children: Any) -> None:
        children.build[:] = [0]

    error = _error_of(tmp_path, "relayed_children", untrue)
    assert "label-holder has node 0 of tree 0 built, but a tree begins with node 1" in error


async def test_a_coordinator_that_changes_who_won_gets_no_set(tmp_path: Path) -> None:
    """Winning candidates come from the label holder: a party that did not win waits in vain and sends nothing."""
    sent: list[str] = []

    federation = Federation(tmp_path, HERE.tables)

    def alter(way: str, sender: str, to: str, message: object) -> object:
        if way == "event" and name_of(message.result) == "chosen_splits":
            for decision in message.result.growth.chosen_splits.decisions:
                decision.owner = {B: C, C: B}.get(decision.owner, decision.owner)
        if way == "message":
            sent.append(name_of(message))
        return message

    intercept(federation, alter)
    status = await federation.train(JOB)
    assert status.state == "interrupted"
    assert "for won_splits of label-holder, in vain" in status.error
    assert "won_splits" in sent
    assert "children" not in sent
    await federation.close()
    assert not growth_pb2.ApplySplits.DESCRIPTOR.fields
    assert [field.name for field in growth_pb2.Decision.DESCRIPTOR.fields] == ["node", "owner"]


async def test_an_answer_to_another_step(tmp_path: Path) -> None:
    """A result without the content that its step has counts as nothing: it is not read as one of zeros."""
    federation = Federation(tmp_path, HERE.tables)

    def alter(way: str, sender: str, to: str, message: object) -> object:
        if way == "event" and name_of(message.result) == "binned":
            message.result.setup.done.SetInParent()
        return message

    intercept(federation, alter)
    status = await federation.train(JOB)
    assert status.error == "Malformed: label-holder answered with done, not with binned"


@pytest.mark.parametrize("nodes", [[], [1, 1]])
@pytest.mark.parametrize("params", [PARAMS, FOREST], ids=["boosting", "forest"])
async def test_sums_of_no_nodes(params: TreeParams, nodes: list[int], tmp_path: Path) -> None:
    """A step that asks for the sums of no nodes, or of one twice, is refused by name."""
    federation = Federation(tmp_path, HERE.tables)

    def alter(way: str, sender: str, to: str, message: object) -> object:
        if way == "request" and name_of(message) == "build_histograms":
            message.growth.build_histograms.nodes[:] = nodes
        return message

    intercept(federation, alter)
    status = await federation.train(spec(params, obfuscation="standard"))
    assert "Malformed: build_histograms asks for no nodes, or for one of them twice" in status.error
