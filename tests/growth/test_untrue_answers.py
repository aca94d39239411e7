"""Untrue answers to the coordinator: a model is published only when all its trees are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.fuzz_cases import intercept
from tests.campaign.small_jobs import FOREST
from tests.replay import HERE, JOB, ORACLE, PARAMS
from tests.simulator import Federation
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


def _stranger(message: Any) -> None:
    for decision in message.result.growth.chosen_splits.decisions:
        decision.owner = "stranger"


def _node_zero(message: Any) -> None:
    message.result.growth.relayed_children.build[:] = [0]


def _another_content(message: Any) -> None:
    message.result.setup.done.SetInParent()


def _no_nodes(message: Any) -> None:
    del message.growth.build_histograms.nodes[:]


def _a_node_twice(message: Any) -> None:
    message.growth.build_histograms.nodes[:] = [1, 1]


NO_NODES = "build_histograms asks for no nodes, or for one of them twice"


@pytest.mark.parametrize(
    ("params", "kind", "change", "error"),
    [
        (PARAMS, "chosen_splits", _stranger, "apply_splits is to be done by 'stranger', which is no party of job job"),
        (PARAMS, "relayed_children", _node_zero, "label-holder has nodes [0] of tree 0 built, but a tree begins"),
        # it counts as nothing, and is not read as one of zeros
        (PARAMS, "binned", _another_content, "label-holder answered with done, not with binned"),
        (PARAMS, "build_histograms", _no_nodes, NO_NODES),
        (FOREST, "build_histograms", _no_nodes, NO_NODES),
        (PARAMS, "build_histograms", _a_node_twice, NO_NODES),
        (FOREST, "build_histograms", _a_node_twice, NO_NODES),
    ],
)
async def test_what_no_job_has_is_named(
    params: TreeParams, kind: str, change: Callable[[Any], None], error: str, tmp_path: Path
) -> None:
    """A stranger as a split's owner, a node that no tree has, the answer to another step, a request for no sums."""
    federation = Federation(tmp_path, HERE.tables)

    def alter(way: str, sender: str, to: str, message: Any) -> object:
        if (way == "request" and name_of(message) == kind) or (way == "event" and name_of(message.result) == kind):
            change(message)
        return message

    intercept(federation, alter)
    status = await federation.train(spec(params, obfuscation="standard"))
    assert status.state == "failed"
    assert error in status.error


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
