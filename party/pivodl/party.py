"""The role of every party: all parts of PIVODL, in the order of their steps.

step                 as
exchange_party_keys  every party           keys of this attempt, commitment to the nonce (participant.py)
open_nonces          every party           the nonces, which decide the draws of parties
share_ownership      every party           which records it labels (labels.py)
share_moments        owner, the drawn two  scales of a regression (joint_sums.py)
share_bins           source, owner         bins of the owner's records (candidate_bins.py)
open_root            owner, the drawn two  G and H of the root (joint_sums.py)
sum_candidates       owner                 its sums by candidate, encrypted (label_owner.py)
forward_sums         source                sums of all, shuffled (source.py)
open_sums            split party           gains (split_party.py)
compare_gains        split party           the order of gains alone (split_party.py)
divide_nodes         split party, source   splits and records (division.py)
settle_children      split party, owner    sums of children, weights of leaves (leaf_weights.py)
close_tree           owner, aggregation    scores and metrics (joint_sums.py)
store_tree           every party           its part of the tree on disk (job.py)

Sums over the parties with labels, of which no party sees another's share.

moments   of a regression's labels, under the first tree's encryption party's key
root      G and H of all records of a tree, under its encryption party's key (§III-B)
metrics   of the training after a tree, under pairwise masks

Ciphertexts go the same way for moments and roots:

1. Every party with labels encrypts its numbers under the encryption party's key, for the aggregation party.
2. The aggregation party multiplies and re-randomises them, for the encryption party.
3. The encryption party opens them, and sends the sums to all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from google.protobuf.message import Message

from treetap.additive.paillier.shared_sums import SharedSums
from treetap.errors import Malformed
from treetap.party.config import PartyConfig
from treetap.party.growth.offered_candidates import RecordedSums
from treetap.party.pivodl.division import Divisions, Source
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.job import PivodlJob
from treetap.party.pivodl.label_owner import LabelOwner, share_bins
from treetap.party.pivodl.leaf_weights import NoiseLedger, Settlement, received_sums
from treetap.party.pivodl.participant import Ownership, OwnLabels, Participant, PartyKeys, share_ownership
from treetap.party.pivodl.split_party import SplitParty
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.step_order import (
    ALIGNMENT,
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
from treetap.privacy.masks import decode, encode
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.protocols.job_spec import params_as
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import Moments, SharedLabelLoss
from treetap.wire.v2 import control_pb2, pivodl_pb2, setup_pb2, types_pb2

#: Σy, Σy² and the number of records.
NUMBERS = 3
#: Bytes of an opened sum, of whatever size: 2^31 squares of labels up to 2^40 in units of 2^-64 take 176 bits.
NUMBER_BYTES = 24
#: Loss and correct classes.
FIGURES = 2
#: Fractional bits of a share: few, since squared errors of scaled labels reach 2^24 for each record.
FRACTION = 16


#: Messages of ciphertexts by name.
_BODIES: Mapping[str, Callable[..., Message]] = {
    "moment_share": pivodl_pb2.MomentShare,
    "joint_moments": pivodl_pb2.JointMoments,
    "label_sums": pivodl_pb2.LabelSums,
    "joint_sums": pivodl_pb2.JointSums,
}


class JointSums:
    """This party's part in them, whatever it is drawn for.

    Args:
        own: the labels whose numbers are its share.
    """

    def __init__(
        self, me: Participant, keys: PartyKeys, sums: SharedSums, ownership: Ownership, own: OwnLabels
    ) -> None:
        self._me, self._keys, self._sums, self._ownership, self._own = me, keys, sums, ownership, own

    async def loss(self) -> SharedLabelLoss:
        """The loss; where its scales are open, they come from sums of y and y² over all parties.

        Raises:
            DataError: a label is too large.
        """
        me, keys, records = self._me, self._keys, self._ownership.records
        if not me.params.needs_moments:
            return SharedLabelLoss(me.params)
        opener = keys.draws.encryption_party(0)
        key, share = keys.of(opener), b""
        if me.name in self._ownership.owners:
            own = Moments.of(self._own.values)
            share = await self._sums.encrypt(key, [own.total, own.squares, own.count])
        joint = await self._joint(0, ("moment_share", "joint_moments"), share, NUMBERS, key.bits)
        if joint is not None:
            total, squares, count = await keys.holder.open_numbers(joint)
            if count != records:
                raise Malformed(f"the parties have added up {count} labels of {records} records")
            await me.broadcast(
                "label_moments", [pivodl_pb2.LabelMoments(sum=_signed(total), sum_of_squares=_signed(squares))]
            )
        else:
            opened = await me.context.mailbox.only(opener, "label_moments")
            sent = opened.sum, opened.sum_of_squares
            total, squares = (int.from_bytes(number, "big", signed=True) for number in sent)
        if squares * records < total * total:
            raise Malformed(f"{opener} has opened a sum of squares that is too small for its sum of labels")
        return SharedLabelLoss(me.params, Moments(total, squares, records))

    async def root(self, t: int) -> GrowingTree:
        """Tree `t` with the sums of its root, which every party learns."""
        me, keys = self._me, self._keys
        tree = GrowingTree(t, self._ownership.records, keys.draws, guarded=not me.params.as_published)
        opener = keys.draws.encryption_party(t)
        key, share = keys.of(opener), b""
        if me.name in self._ownership.owners:
            own = keys.slots.encode(list(self._own.derivatives.sum(axis=0)[:, np.newaxis]))
            share = await self._sums.encrypt(key, own)
        joint = await self._joint(t, ("label_sums", "joint_sums"), share, 1, keys.slots.bits)
        if joint is not None:
            sums_of_root = await keys.holder.open(joint, 1)
            RecordedSums(me.context).offered(t, 0, me.name, [ROOT], sums_of_root[np.newaxis], [])
            tree.sums[ROOT] = sums_of_root[0]
            opened = pivodl_pb2.SumsOfNode(node=ROOT, sums=[int(number) for number in tree.sums[ROOT]])
            await me.broadcast("node_sums", [pivodl_pb2.NodeSums(nodes=[opened])], t)
        else:
            sums = await received_sums(me, keys.slots, opener, t, 0)
            if list(sums) != [ROOT]:
                raise Malformed(f"{opener} sent sums of nodes {sorted(sums)}, not of the root")
            tree.sums |= sums
        return tree

    async def _joint(self, t: int, kinds: tuple[str, str], share: bytes, count: int, bits: int) -> bytes | None:
        """The product of the parties' ciphertexts, at tree `t`'s encryption party; None elsewhere.

        Args:
            kinds: the message of a share, and the one of the product.
            share: this party's `count` ciphertexts, empty if it labels nothing.
            bits: width of a sum.
        """
        me, draws, send = self._me, self._keys.draws, self._me.context.outbox.send
        aggregator, opener = draws.aggregation_party(t), draws.encryption_party(t)
        key, (of_share, of_joint) = self._keys.of(opener), kinds
        if share and me.name != aggregator:
            await send(aggregator, of_share, [_BODIES[of_share](ciphertexts=share)], round=t)
        if me.name == aggregator:
            shares = [share] if share else []
            for party in self._ownership.owners:
                if party != me.name:
                    message = await me.context.mailbox.only(party, of_share, t)
                    shares.append(_checked(message.ciphertexts, party, count, key.ciphertext_bytes))
            product = await self._sums.add(key, shares, bits, 1, range(count))
            await send(opener, of_joint, [_BODIES[of_joint](ciphertexts=product)], round=t)
        if me.name != opener:
            return None
        joint = await me.context.mailbox.only(aggregator, of_joint, t)
        return _checked(joint.ciphertexts, aggregator, count, key.ciphertext_bytes)

    async def metrics(self, t: int) -> dict[str, float]:
        """Send this party's share of tree `t`'s metrics; at the aggregation party, those of all shares, by name.

        A party with fewer than `LEAST_MEASURED` labels adds no share, so that its own loss does not follow from two
        sums.
        """
        me, present, aggregator = self._me, self._ownership.measured, self._keys.draws.aggregation_party(t)
        if not present:
            return {}
        share = np.zeros(FIGURES, dtype=np.uint64)
        if me.name in present:
            # masks cancel only if all that are present add a share, in the same fixed point
            figures = encode(np.array(self._own.figures()), len(present), FRACTION)
            share = self._keys.masks.masked(figures, "metrics", t, present)
            if me.name != aggregator:
                body = pivodl_pb2.MetricShare(values=[int(value) for value in share])
                await me.context.outbox.send(aggregator, "metric_share", [body], round=t)
        if me.name != aggregator:
            return {}
        for party in present:
            if party != me.name:
                values = (await me.context.mailbox.only(party, "metric_share", t)).values
                if len(values) != FIGURES:
                    raise Malformed(f"{party} sent {len(values)} figures, not {FIGURES}")
                share = share + np.array(values, dtype=np.uint64)
        records = sum(len(self._ownership.rows[party]) for party in present)
        loss, correct = (float(figure) for figure in decode(share, FRACTION))
        if me.params.regression:
            return {"train_rmse": math.sqrt(max(loss, 0.0) / records) * self._own.loss.label_scale}
        return {"train_logloss": loss / records, "train_accuracy": correct / records}


def _signed(number: int) -> bytes:
    return number.to_bytes(NUMBER_BYTES, "big", signed=True)


def _checked(ciphertexts: bytes, sender: str, count: int, width: int) -> bytes:
    """These ciphertexts; `Malformed` unless they are `count`."""
    if len(ciphertexts) != count * width:
        raise Malformed(f"{sender} sent another number of ciphertexts than {count}")
    return ciphertexts


ANNOUNCED = "gains are announced"
SECURE = "gains are compared in secret"
OPEN = "a child may be split"
NONE_OPEN = "no child may be split"


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, PivodlJob)
class Party:
    """One party's part in a job."""

    _ownership: Ownership  #: from `share_ownership`
    _joint: JointSums
    _owner: LabelOwner  #: from `share_bins`
    _tree: GrowingTree  #: from `open_root`, as what follows, tree by tree
    _source: Source
    _split_party: SplitParty
    _divisions: Divisions
    _settlement: Settlement

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        params = params_as(spec, PivodlParams)
        self._me = Participant(context, spec, params)
        self._job = job = PivodlJob(config, self._me)
        self._keys = PartyKeys(self._me)
        self._sums = SharedSums(context.engine, spec.obfuscation)
        context.held.push_async_callback(self._sums.close)
        privacy = LeafWeightPrivacy.of(params)
        self._noise = NoiseLedger(context.store, privacy) if privacy is not None else None
        self.sizes = job.sizes
        self.steps = steps_of(self, job, phases={ALIGNMENT: job.alignment})

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
        ownership = self._ownership = await share_ownership(self._me, self._job.own)
        self._joint = JointSums(self._me, self._keys, self._sums, ownership, self._job.own)

    @step(Next("share_bins"))
    async def share_moments(self) -> None:
        """Add up the scales of a regression that the job leaves open, and begin the scores of the own labels."""
        self._job.begin_scores(await self._joint.loss())
        self._count()

    @step(Next("open_root", RESUMED), Next("publish"))
    async def share_bins(self) -> Outcome:
        """Exchange the bins of labelled records, once per job."""
        me, own = self._me, self._job.own
        columns = self._job.split_table.columns_of_tree(0, me.params, permuted=False)
        bins = await share_bins(me, self._ownership, own, columns)
        self._owner = LabelOwner(me, self._keys, self._sums, own, bins)
        return Outcome(first_rounds=own.rounds)

    @step(Next("sum_candidates", THIS_ROUND))
    async def open_root(self, request: control_pb2.StepRequest) -> None:
        """Begin a tree: all parties learn the sums of its root."""
        t, split_table = request.round, self._job.split_table
        self._job.own.open_tree(t)
        split_table.next_handle_is(self._job.stored.first_handle(t))
        columns = split_table.columns_of_tree(t, self._me.params, permuted=False)
        tree = self._tree = await self._joint.root(t)
        me, keys, own, ownership = self._me, self._keys, self._job.own, self._ownership
        source = self._source = Source(me, keys, self._sums, ownership, tree, columns)
        split_party = self._split_party = SplitParty(me, keys, tree, own.loss.scale)
        self._divisions = Divisions(me, ownership, tree, source, split_party)
        self._settlement = Settlement(me, keys.slots, own, ownership.owners, self._noise, tree)
        self._count()

    @step(Next("forward_sums", SAME))
    async def sum_candidates(self, request: control_pb2.StepRequest) -> None:
        """As owner: send every other source the encrypted sums of its candidates."""
        if self._me.params.as_published:
            await self._source.send_lists(request.stage)
        if len(self._job.own.rows):
            await self._owner.send_shares(self._tree, request.stage)
        self._count()

    @step(Next("open_sums", SAME))
    async def forward_sums(self, request: control_pb2.StepRequest) -> None:
        """As source: send each node's split party the sums of all parties."""
        await self._source.forward(self._owner, request.stage)
        self._count()

    @step(Next("compare_gains", SAME, SECURE), Next("divide_nodes", SAME, ANNOUNCED))
    async def open_sums(self, request: control_pb2.StepRequest) -> Outcome:
        """As split party: open sums, compute gains, and announce the best unless they are compared in secret."""
        await self._split_party.open(request.stage)
        secure = self._me.params.gain_comparison == "secure"
        if not secure:
            await self._split_party.announce(request.stage)
        return Outcome(SECURE if secure else ANNOUNCED)

    @step(Next("divide_nodes", SAME))
    async def compare_gains(self, request: control_pb2.StepRequest) -> None:
        """As split party: compare the best gains in secret; every party learns who wins."""
        await self._split_party.compare(request.stage)

    @step(Next("settle_children", SAME))
    async def divide_nodes(self, request: control_pb2.StepRequest) -> None:
        """As winning split party and source: divide the nodes that have a winner."""
        await self._divisions.divide(request.stage)

    @step(Next("sum_candidates", NEXT_STAGE, OPEN), Next("close_tree", THIS_ROUND, NONE_OPEN))
    async def settle_children(self, request: control_pb2.StepRequest) -> Outcome:
        """As winning split party: send sums of children and weights of leaves; as owner: add weights to the scores."""
        await self._settlement.settle(request.stage, self._divisions, self._split_party.opened)
        nodes = self._tree.open
        return Outcome(OPEN if nodes else NONE_OPEN, answer=pivodl_pb2.SettledLevel(open=nodes))

    @step(Next("store_tree", THIS_ROUND))
    async def close_tree(self, request: control_pb2.StepRequest) -> pivodl_pb2.ClosedTree:
        """Add up the metrics; the tree's aggregation party reports them."""
        metrics = self._job.own.metrics = await self._joint.metrics(request.round)
        named = [types_pb2.NamedMetric(name=name, value=value) for name, value in metrics.items()]
        return pivodl_pb2.ClosedTree(metrics=named)

    @step(Next("open_root", NEXT_ROUND), Next("publish"))
    async def store_tree(self) -> None:
        """Store this party's part of the tree, then the scores that include it, before answering."""
        self._job.store(self._tree)

    def _count(self) -> None:
        """Move the operations on ciphertexts to the cost account."""
        self._me.context.costs.operations.update(self._sums.operations)
        self._sums.operations = dict.fromkeys(self._sums.operations, 0)
