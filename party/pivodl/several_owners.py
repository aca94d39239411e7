"""The role of a party where several parties have labels: all parts of PIVODL, in the order of their steps.

step                 as
exchange_party_keys  every party           keys of this attempt, commitment to the nonce
open_nonces          every party           the nonces, which decide the draws of parties
share_ownership      every party           which records it labels
share_moments        owner, the drawn two  scales of a regression (moments.py)
share_bins           source, owner         bins of the owner's records (candidate_bins.py)
open_root            owner, the drawn two  G and H of the root (root.py)
sum_candidates       owner                 its sums by candidate, encrypted (label_owner.py)
forward_sums         source                sums of all, shuffled (source.py)
open_sums            split party           gains (split_party.py)
compare_gains        split party           the order of gains alone (secure_gains.py)
divide_nodes         split party, source   splits and records (division.py)
settle_children      split party, owner    sums of children, weights of leaves (leaf_weights.py)
close_tree           owner, aggregation    scores and metrics (metrics.py)
store_tree           every party           its part of the tree on disk
"""

from __future__ import annotations

from collections.abc import Mapping

from party.alignment.steps import ALIGNED, ALIGNMENT
from party.config import PartyConfig
from party.growth.split_table import TreeColumns
from party.pivodl.division import Divisions
from party.pivodl.expected import of_spread_labels
from party.pivodl.job import PivodlJob
from party.pivodl.label_owner import LabelOwner, send_candidate_records
from party.pivodl.leaf_weights import Settlement
from party.pivodl.metrics import add_up_metrics, closed
from party.pivodl.moments import share_moments
from party.pivodl.noise_ledger import NoiseLedger
from party.pivodl.ownership import share_ownership
from party.pivodl.party_keys import PartyKeys
from party.pivodl.root import open_root
from party.pivodl.secure_gains import SecureGains
from party.pivodl.setting import Setting
from party.pivodl.source import Source
from party.pivodl.split_party import SplitParty, Winner
from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import Receives
from party.runtime.step_order import (
    NEXT_ROUND,
    NEXT_STAGE,
    OPENING,
    RESUMED,
    SAME,
    THIS_ROUND,
    Next,
    StepTable,
    steps_of_phase,
)
from party.runtime.steps import Step
from party.setup.steps import PUBLISHED, UNPUBLISHED
from treetap.additive.paillier.shared_sums import SharedSums
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.protocols.job_spec import params_as
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.frame import result
from treetap.wire.v2 import control_pb2, pivodl_pb2, setup_pb2

ANNOUNCED = "gains are announced"
SECURE = "gains are compared in secret"
OPEN = "a child may be split"
NONE_OPEN = "no child may be split"

STEPS: StepTable = {
    OPENING: (Next("prepare"),),
    "prepare": (Next(ALIGNMENT, when=UNPUBLISHED), Next("bin", when=ALIGNED), Next("publish", when=PUBLISHED)),
    ALIGNMENT: (Next("bin"),),
    "bin": (Next("exchange_party_keys"), Next("publish")),
    "exchange_party_keys": (Next("open_nonces"),),
    "open_nonces": (Next("share_ownership"),),
    "share_ownership": (Next("share_moments"),),
    "share_moments": (Next("share_bins"),),
    "share_bins": (Next("open_root", RESUMED), Next("publish")),
    "open_root": (Next("sum_candidates", THIS_ROUND),),
    "sum_candidates": (Next("forward_sums", SAME),),
    "forward_sums": (Next("open_sums", SAME),),
    "open_sums": (Next("divide_nodes", SAME, ANNOUNCED), Next("compare_gains", SAME, SECURE)),
    "compare_gains": (Next("divide_nodes", SAME),),
    "divide_nodes": (Next("settle_children", SAME),),
    "settle_children": (Next("sum_candidates", NEXT_STAGE, OPEN), Next("close_tree", THIS_ROUND, NONE_OPEN)),
    "close_tree": (Next("store_tree", THIS_ROUND),),
    "store_tree": (Next("open_root", NEXT_ROUND), Next("publish")),
    "publish": (),
}


class SeveralOwners:
    """One party's part in a job whose labels are spread."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        params = params_as(spec, PivodlParams)
        setting = self._setting = Setting(context, spec, params)
        self._job = job = PivodlJob(config, setting, STEPS)
        self._keys = PartyKeys(setting)
        self._sums = SharedSums(context.key_engine, spec.obfuscation, f"{context.job}/{context.attempt}")
        self._owner = LabelOwner(setting, self._keys, self._sums)
        self._source = Source(setting, self._keys, self._sums)
        self._split_party = SplitParty(setting, self._keys)
        privacy = LeafWeightPrivacy.of(params)
        self._noise = NoiseLedger(context.store, privacy) if privacy is not None else None
        self._columns: TreeColumns | None = None
        self._winners: Mapping[int, Winner] = {}
        self._divisions: Divisions | None = None
        self.steps: Mapping[str, Step] = {
            "prepare": job.prepare,
            **steps_of_phase(job.order, job.alignment),
            "bin": job.bin,
            "exchange_party_keys": self.exchange_party_keys,
            "open_nonces": self.open_nonces,
            "share_ownership": self.share_ownership,
            "share_moments": self.share_moments,
            "share_bins": self.share_bins,
            "open_root": self.open_root,
            "sum_candidates": self.sum_candidates,
            "forward_sums": self.forward_sums,
            "open_sums": self.open_sums,
            "compare_gains": self.compare_gains,
            "divide_nodes": self.divide_nodes,
            "settle_children": self.settle_children,
            "close_tree": self.close_tree,
            "store_tree": job.store_tree,
            "publish": job.publish,
        }

    @property
    def receives(self) -> Receives:
        """See `Role.receives`."""
        return {**self._job.receives, **of_spread_labels(self._setting, self._job.records)}

    async def exchange_party_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Make this attempt's keys, and exchange their public halves and commitments to nonces."""
        self._job.order.check(request)
        await self._keys.exchange()
        self._job.order.done(request)
        return empty_result()

    async def open_nonces(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Open the nonces; the parties' roles are drawn from them and the job's seed."""
        self._job.order.check(request)
        await self._keys.open_nonces()
        self._job.order.done(request)
        return empty_result()

    async def share_ownership(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Exchange which party labels which records; they must be a partition that permits a split of the root."""
        self._job.order.check(request)
        await share_ownership(self._setting, self._job.own)
        self._job.order.done(request)
        return empty_result()

    async def share_moments(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Find the scales of a regression that the job leaves open, and begin the scores of the own labels."""
        self._job.order.check(request)
        await share_moments(self._setting, self._job.own, self._keys, self._sums)
        self._job.begin_scores()
        self._count()
        self._job.order.done(request)
        return empty_result()

    async def share_bins(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Exchange the bins of labelled records, once per job."""
        self._job.order.check(request)
        columns = self._job.split_table.columns_of_tree(0, self._setting.params, permuted=False)
        await self._owner.share_bins(self._job.own, columns)
        self._job.order.first_rounds = self._job.own.rounds
        self._job.order.done(request)
        return empty_result()

    async def open_root(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Begin a tree: all parties learn the sums of its root."""
        self._job.order.check(request)
        t, split_table = request.round, self._job.split_table
        self._job.own.begin_tree(t)
        split_table.next_handle_is(self._job.stored.first_handle(t))
        self._columns = split_table.columns_of_tree(t, self._setting.params, permuted=False)
        await open_root(self._setting, t, self._job.own, self._keys, self._sums)
        self._count()
        self._job.order.done(request)
        return empty_result()

    async def sum_candidates(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """As owner: send every other source the encrypted sums of its candidates."""
        self._job.order.check(request)
        level = request.stage
        await send_candidate_records(self._setting, required(self._columns), level)
        if self._setting.me in self._setting.owners:
            await self._owner.send_shares(self._job.own, level)
        self._count()
        self._job.order.done(request)
        return empty_result()

    async def forward_sums(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """As source: send each node's split party the sums of all parties."""
        self._job.order.check(request)
        await self._source.forward(self._job.own, self._owner, required(self._columns), request.stage)
        self._count()
        self._job.order.done(request)
        return empty_result()

    async def open_sums(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """As split party: open sums, compute gains, and announce the best unless they are compared in secret."""
        self._job.order.check(request)
        await self._split_party.open(request.stage)
        secure = self._setting.params.gain_comparison == "secure"
        if not secure:
            self._winners = await self._split_party.announce(request.stage)
        self._job.order.done(request, SECURE if secure else ANNOUNCED)
        return empty_result()

    async def compare_gains(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """As split party: compare the best gains in secret; every party learns who wins."""
        self._job.order.check(request)
        comparison = SecureGains(self._setting, self._keys)
        self._winners = await comparison.winners(request.stage, self._split_party.opened)
        self._job.order.done(request)
        return empty_result()

    async def divide_nodes(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """As winning split party and source: divide the nodes that have a winner."""
        self._job.order.check(request)
        self._divisions = Divisions(self._setting, self._job.own)
        await self._divisions.divide(
            request.stage, self._winners, self._split_party, self._source, required(self._columns)
        )
        self._job.order.done(request)
        return empty_result()

    async def settle_children(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """As winning split party: send sums of children and weights of leaves; as owner: add weights to the scores."""
        self._job.order.check(request)
        settlement = Settlement(self._setting, self._job.own, self._noise)
        await settlement.settle(request.stage, required(self._divisions), self._split_party)
        nodes = self._setting.tree.open
        self._job.order.done(request, OPEN if nodes else NONE_OPEN)
        return result(pivodl_pb2.SettledLevel(open=nodes))

    async def close_tree(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Add up the metrics; the tree's aggregation party reports them."""
        self._job.order.check(request)
        found = await add_up_metrics(self._setting, self._job.own, self._keys)
        self._job.own.metrics = found
        self._job.order.done(request)
        return result(closed(found))

    async def close(self) -> None:
        """Delete keys and tables in the workers."""
        await self._keys.close()
        await self._sums.close()

    def _count(self) -> None:
        """Move the operations on ciphertexts to the cost account."""
        self._setting.context.costs.operations.update(self._sums.operations)
        self._sums.operations = dict.fromkeys(self._sums.operations, 0)
