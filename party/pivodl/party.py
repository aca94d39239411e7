"""The role of every party: all parts of PIVODL, in the order of their steps.

step                 as
exchange_party_keys  every party           keys of this attempt, commitment to the nonce (party_keys.py)
open_nonces          every party           the nonces, which decide the draws of parties
share_ownership      every party           which records it labels (labels.py)
share_moments        owner, the drawn two  scales of a regression (joint_sums.py)
share_bins           source, owner         bins of the owner's records (candidate_bins.py)
open_root            owner, the drawn two  G and H of the root (joint_sums.py)
sum_candidates       owner                 its sums by candidate, encrypted (label_owner.py)
forward_sums         source                sums of all, shuffled (source.py)
open_sums            split party           gains (split_party.py)
compare_gains        split party           the order of gains alone (secure_gains.py)
divide_nodes         split party, source   splits and records (division.py)
settle_children      split party, owner    sums of children, weights of leaves (leaf_weights.py)
close_tree           owner, aggregation    scores and metrics (joint_sums.py)
store_tree           every party           its part of the tree on disk (job.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treetap.additive.paillier.shared_sums import SharedSums
from treetap.party.alignment.steps import ALIGNMENT
from treetap.party.config import PartyConfig
from treetap.party.pivodl.division import Divisions
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.job import PivodlJob
from treetap.party.pivodl.joint_sums import JointSums
from treetap.party.pivodl.label_owner import LabelOwner, share_bins
from treetap.party.pivodl.labels import Ownership, share_ownership
from treetap.party.pivodl.leaf_weights import NoiseLedger, Settlement
from treetap.party.pivodl.participant import Participant
from treetap.party.pivodl.party_keys import PartyKeys
from treetap.party.pivodl.secure_gains import SecureGains
from treetap.party.pivodl.source import Source
from treetap.party.pivodl.split_party import SplitParty, Winner
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.step_order import (
    NEXT_ROUND,
    NEXT_STAGE,
    OPENING,
    RESUMED,
    SAME,
    THIS_ROUND,
    Next,
    Outcome,
    role,
    step,
    steps_of,
)
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.protocols.job_spec import params_as
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.v2 import control_pb2, pivodl_pb2, setup_pb2, types_pb2

ANNOUNCED = "gains are announced"
SECURE = "gains are compared in secret"
OPEN = "a child may be split"
NONE_OPEN = "no child may be split"


@dataclass
class _Roles:
    """This party's roles in the tree under construction.

    Attributes:
        winners: node → the winner of the level, of nodes that are split.
    """

    tree: GrowingTree
    source: Source
    split_party: SplitParty
    divisions: Divisions
    settlement: Settlement
    winners: Mapping[int, Winner]


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, PivodlJob)
class Party:
    """One party's part in a job."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        params = params_as(spec, PivodlParams)
        self._me = Participant(context, spec, params)
        self._job = job = PivodlJob(config, self._me)
        self._keys = PartyKeys(self._me)
        self._sums = SharedSums(context.engine, spec.obfuscation, f"{context.job}/{context.attempt}")
        privacy = LeafWeightPrivacy.of(params)
        self._noise = NoiseLedger(context.store, privacy) if privacy is not None else None
        self._ownership: Ownership | None = None  # from share_ownership
        self._owner: LabelOwner | None = None  # from share_bins
        self._roles: _Roles | None = None  # from open_root, tree by tree
        self.sizes = job.sizes
        self.steps = steps_of(self, job, phases={ALIGNMENT: job.alignment})

    def _joint_sums(self) -> JointSums:
        return JointSums(self._me, self._keys, self._sums, required(self._ownership), self._job.own)

    @step(Next("open_nonces"))
    async def exchange_party_keys(self) -> None:
        """Make this attempt's keys, and exchange their public halves and commitments to nonces."""
        await self._keys.exchange(self._job.own.records)

    @step(Next("share_ownership"))
    async def open_nonces(self) -> None:
        """Open the nonces; the parties' roles are drawn from them and the job's seed."""
        await self._keys.open_nonces()

    @step(Next("share_moments"))
    async def share_ownership(self) -> None:
        """Exchange which party labels which records; they must be a partition that permits a split of the root."""
        self._ownership = await share_ownership(self._me, self._job.own)

    @step(Next("share_bins"))
    async def share_moments(self) -> None:
        """Add up the scales of a regression that the job leaves open, and begin the scores of the own labels."""
        self._job.begin_scores(await self._joint_sums().loss())
        self._count()

    @step(Next("open_root", RESUMED), Next("publish"))
    async def share_bins(self) -> Outcome:
        """Exchange the bins of labelled records, once per job."""
        me, own = self._me, self._job.own
        columns = self._job.split_table.columns_of_tree(0, me.params, permuted=False)
        bins = await share_bins(me, required(self._ownership), own, columns)
        self._owner = LabelOwner(me, self._keys, self._sums, own, bins)
        return Outcome(first_rounds=own.rounds)

    @step(Next("sum_candidates", THIS_ROUND))
    async def open_root(self, request: control_pb2.StepRequest) -> None:
        """Begin a tree: all parties learn the sums of its root."""
        t, split_table = request.round, self._job.split_table
        self._job.own.open_tree(t)
        split_table.next_handle_is(self._job.stored.first_handle(t))
        columns = split_table.columns_of_tree(t, self._me.params, permuted=False)
        tree = await self._joint_sums().root(t)
        me, own, ownership = self._me, self._job.own, required(self._ownership)
        source = Source(me, self._keys, self._sums, ownership, tree, columns)
        split_party = SplitParty(me, self._keys, tree, own.loss.scale)
        divisions = Divisions(me, ownership, tree, source, split_party)
        settlement = Settlement(me, self._keys.slots, own, ownership.owners, self._noise, tree)
        self._roles = _Roles(tree, source, split_party, divisions, settlement, {})
        self._count()

    @step(Next("forward_sums", SAME))
    async def sum_candidates(self, request: control_pb2.StepRequest) -> None:
        """As owner: send every other source the encrypted sums of its candidates."""
        roles = required(self._roles)
        if self._me.params.as_published:
            await roles.source.send_lists(request.stage)
        if len(self._job.own.rows):
            await required(self._owner).send_shares(roles.tree, request.stage)
        self._count()

    @step(Next("open_sums", SAME))
    async def forward_sums(self, request: control_pb2.StepRequest) -> None:
        """As source: send each node's split party the sums of all parties."""
        await required(self._roles).source.forward(required(self._owner), request.stage)
        self._count()

    @step(Next("compare_gains", SAME, SECURE), Next("divide_nodes", SAME, ANNOUNCED))
    async def open_sums(self, request: control_pb2.StepRequest) -> Outcome:
        """As split party: open sums, compute gains, and announce the best unless they are compared in secret."""
        roles = required(self._roles)
        await roles.split_party.open(request.stage)
        secure = self._me.params.gain_comparison == "secure"
        if not secure:
            roles.winners = await roles.split_party.announce(request.stage)
        return Outcome(SECURE if secure else ANNOUNCED)

    @step(Next("divide_nodes", SAME))
    async def compare_gains(self, request: control_pb2.StepRequest) -> None:
        """As split party: compare the best gains in secret; every party learns who wins."""
        roles = required(self._roles)
        comparison = SecureGains(self._me, self._keys, roles.tree)
        roles.winners = await comparison.winners(request.stage, roles.split_party.opened)

    @step(Next("settle_children", SAME))
    async def divide_nodes(self, request: control_pb2.StepRequest) -> None:
        """As winning split party and source: divide the nodes that have a winner."""
        roles = required(self._roles)
        await roles.divisions.divide(request.stage, roles.winners)

    @step(Next("sum_candidates", NEXT_STAGE, OPEN), Next("close_tree", THIS_ROUND, NONE_OPEN))
    async def settle_children(self, request: control_pb2.StepRequest) -> Outcome:
        """As winning split party: send sums of children and weights of leaves; as owner: add weights to the scores."""
        roles = required(self._roles)
        await roles.settlement.settle(request.stage, roles.divisions, roles.split_party.opened)
        nodes = roles.tree.open
        return Outcome(OPEN if nodes else NONE_OPEN, answer=pivodl_pb2.SettledLevel(open=nodes))

    @step(Next("store_tree", THIS_ROUND))
    async def close_tree(self, request: control_pb2.StepRequest) -> pivodl_pb2.ClosedTree:
        """Add up the metrics; the tree's aggregation party reports them."""
        metrics = self._job.own.metrics = await self._joint_sums().metrics(request.round)
        named = [types_pb2.NamedMetric(name=name, value=value) for name, value in metrics.items()]
        return pivodl_pb2.ClosedTree(metrics=named)

    @step(Next("open_root", NEXT_ROUND), Next("publish"))
    async def store_tree(self) -> None:
        """Store this party's part of the tree, then the scores that include it, before answering."""
        self._job.store(required(self._roles).tree)

    async def close(self) -> None:
        """Delete keys and tables in the workers."""
        await self._keys.close()
        await self._sums.close()

    def _count(self) -> None:
        """Move the operations on ciphertexts to the cost account."""
        self._me.context.costs.operations.update(self._sums.operations)
        self._sums.operations = dict.fromkeys(self._sums.operations, 0)
