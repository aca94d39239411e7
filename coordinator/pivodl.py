"""PIVODL: boosting with labels that several parties hold (docs/protocol-pivodl.md).

Every party does every step; which of its roles it has there is drawn by the parties, and the coordinator does not know
the draws. It sees nodes, and the metrics that a tree's aggregation party publishes.
"""

from __future__ import annotations

from treetap.coordinator.protocols import Plan, TrainingCourse, plan_rounds
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.errors import Malformed, ProtocolError
from treetap.protocols.job_spec import params_as
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.v2 import growth_pb2, setup_pb2


async def train(roster: Roster, spec: setup_pb2.JobSpec, plan: Plan, progress: Progress) -> None:
    """Exchange keys, ownership and bins, then grow the trees that are not stored yet."""
    params = params_as(spec, PivodlParams)
    progress.phase("keys")
    await roster.ask_all(roster.names, "exchange_party_keys")
    progress.binding = True  # a submission under the same name would draw the roles again
    for step in ("open_nonces", "share_ownership", "share_moments", "share_bins"):
        await roster.ask_all(roster.names, step)
    progress.phase("train")
    for tree in range(plan.first, plan.rounds):
        progress.round(tree, plan.rounds)
        await _grow_tree(roster, params, tree, progress)
        # Add up the metrics, then have every party store the tree, the aggregator last.
        closed = await roster.ask_all(roster.names, "close_tree", None, tree)
        await roster.ask_all(list(spec.feature_parties), "store_tree", growth_pb2.StoreTree(), tree)
        await roster.ask(spec.aggregator, "store_tree", growth_pb2.StoreTree(), tree)
        progress.grown(tree + 1)
        for party, answer in closed.items():
            if metrics := answered(party, answer, "closed_tree").metrics:
                progress.measured(metrics)


async def _grow_tree(roster: Roster, params: PivodlParams, tree: int, progress: Progress) -> None:
    """Grow one tree, level by level.

    1. The parties add up the root's gradients; one opens the sum.
    2. At each level parties with labels send encrypted sums to the sources,
    3. these forward them in a secret order to split parties,
    4. which open them and announce gains, or compare them in secret.
    5. The winners' sources divide the nodes,
    6. and the parties that opened them send sums of children and weights of leaves.
    """
    everyone = roster.names
    await roster.ask_all(everyone, "open_root", None, tree)
    for level in range(params.max_depth):
        progress.stage(level)
        for step in ("sum_candidates", "forward_sums", "open_sums"):
            await roster.ask_all(everyone, step, None, tree, level)
        if params.gain_comparison == "secure":
            await roster.ask_all(everyone, "compare_gains", None, tree, level)
        await roster.ask_all(everyone, "divide_nodes", None, tree, level)
        settled = await roster.ask_all(everyone, "settle_children", None, tree, level)
        frontiers = {tuple(answered(party, answer, "settled_level").open) for party, answer in settled.items()}
        if len(frontiers) > 1:
            raise ProtocolError(
                f"the parties disagree on the nodes of tree {tree} that may be split after level {level}"
            )
        if frontiers == {()}:
            return
    raise Malformed(f"the parties still split nodes of tree {tree} below its largest depth")


TRAINING = TrainingCourse(plan_rounds, train)
