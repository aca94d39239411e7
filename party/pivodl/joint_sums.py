"""Sums over the parties with labels, of which no party sees another's share.

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
from treetap.party.growth.recorded_sums import RecordedSums
from treetap.party.pivodl.growing_tree import GrowingTree
from treetap.party.pivodl.labels import Ownership, OwnLabels
from treetap.party.pivodl.leaf_weights import received_sums
from treetap.party.pivodl.participant import Participant
from treetap.party.pivodl.party_keys import PartyKeys
from treetap.privacy.masks import decode, encode
from treetap.trees.ensemble import ROOT
from treetap.trees.shared_label_loss import Moments, SharedLabelLoss
from treetap.wire.v2 import pivodl_pb2

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
            opened = await me.received_once(opener, "label_moments")
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
                    message = await me.received_once(party, of_share, t)
                    shares.append(_checked(message.ciphertexts, party, count, key.ciphertext_bytes))
            product = await self._sums.add(key, shares, bits, 1, range(count))
            await send(opener, of_joint, [_BODIES[of_joint](ciphertexts=product)], round=t)
        if me.name != opener:
            return None
        joint = await me.received_once(aggregator, of_joint, t)
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
                values = (await me.received_once(party, "metric_share", t)).values
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
