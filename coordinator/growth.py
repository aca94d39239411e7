"""The growth of one tree, stage by stage, for every training protocol (docs/protocol-boosting.md).

The coordinator calls the steps. It sees owners and node numbers, and the metrics that the label holder publishes.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.protocols.growth import sums_shared
from treetap.protocols.job_spec import params_as, taking_part
from treetap.trees.ensemble import ROOT
from treetap.trees.params import TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2

#: The answer of the label holder's step that ends a tree's growth.
FINISHED = "finished_tree"


async def grow_tree(
    roster: Roster, spec: setup_pb2.JobSpec, tree: int, progress: Progress, *, alone: bool = False
) -> bool:
    """Grow one tree; returns True if it is the last.

    1. The label holder sends the sampled records and, in boosting, streams their ⟦g, h⟧. The feature parties work on
       the root while messages still arrive.
    2. At each stage the feature parties send the candidate sums of the nodes to build,
    3. the label holder chooses the splits, and sends their owners the winning candidates.
       Where sums are shared, the feature parties choose with it, by randomness that a dealer has sent meanwhile,
    4. their owners apply them,
    5. and the label holder applies its own, at once where it won all, and relays the children that may be split. When
       none may be, it computes the leaf weights;
    6. then every party stores the tree, the label holder last.

    A stage is a level of the tree. Under `grow_policy = "lossguide"` it is the next split, with those behind it that no
    comparison need precede; nodes of earlier stages may win there.

    A feature party that the tree drops (party-wise dropout) only stores it. With `alone` all do: the label holder
    grows the whole tree in step 1. With `pad_trees` every party applies splits at every stage, and the label holder
    says neither whose they are nor where.
    """
    label_holder, begin = spec.aggregator, growth_pb2.BeginTree()
    ended = await (
        roster.ask(label_holder, "begin_tree", begin, tree) if alone else _by_stages(roster, spec, tree, progress)
    )
    finished: growth_pb2.FinishedTree = answered(label_holder, ended, FINISHED)
    await roster.ask_all(list(spec.feature_parties), "store_tree", growth_pb2.StoreTree(), tree)
    await roster.ask(label_holder, "store_tree", growth_pb2.StoreTree(), tree)
    progress.grown(tree + 1)
    progress.measured(finished.metrics)
    return finished.stop


async def _by_stages(roster: Roster, spec: setup_pb2.JobSpec, tree: int, progress: Progress) -> control_pb2.StepResult:
    """Steps 1 to 5 of a tree in which others may take part; returns the label holder's answer that has finished it."""
    label_holder, features = spec.aggregator, taking_part(spec, tree)
    padded = params_as(spec, TreeParams).pad_trees  # type: ignore[type-abstract] # of either protocol
    shared = sums_shared(spec)
    build, stage = [ROOT], 0
    while True:
        progress.stage(build[0].bit_length() - 1)  # the depth
        ready: list[Coroutine[Any, Any, object]] = [
            roster.ask_all(features, "build_histograms", growth_pb2.BuildHistograms(nodes=build), tree, stage)
        ]
        if stage == 0:
            ready.append(roster.ask(label_holder, "begin_tree", growth_pb2.BeginTree(), tree))
        if shared and features:
            ready.append(roster.ask(spec.dealer, "deal", growth_pb2.Deal(nodes=build), tree, stage))
        await together(*ready)
        choosing = [roster.ask(label_holder, "choose_splits", growth_pb2.ChooseSplits(), tree, stage)]
        if shared and features:
            choice = growth_pb2.ChooseShares()
            choosing += [roster.ask(party, "choose_shares", choice, tree, stage) for party in features]
            choosing.append(roster.ask(spec.dealer, "deal_again", growth_pb2.DealAgain(), tree, stage))
        answer, *_ = await together(*choosing)
        if name_of(answer) == "chosen_splits":
            decisions = answered(label_holder, answer, "chosen_splits").decisions
            owners = dict.fromkeys(decision.owner for decision in decisions if decision.owner != label_holder)
            applying = features if padded else owners
            await roster.ask_all(applying, "apply_splits", growth_pb2.ApplySplits(), tree, stage)
            answer = await roster.ask(label_holder, "relay_children", growth_pb2.RelayChildren(), tree, stage)
        if name_of(answer) == FINISHED:
            return answer
        build, stage = list(answered(label_holder, answer, "relayed_children").build), stage + 1
        if not build or 0 in build:
            raise Malformed(
                f"{label_holder} has nodes {build} of tree {tree} built, but a tree begins with node {ROOT}"
            )
