"""The sums of all records at the root of a tree: added up by the aggregation party, opened by the encryption party."""

from __future__ import annotations

import numpy as np

from party.pivodl.growing_tree import GrowingTree
from party.pivodl.leaf_weights import received_sums
from party.pivodl.own_labels import OwnLabels
from party.pivodl.party_keys import PartyKeys
from party.pivodl.setting import Setting
from treetap.additive.paillier.shared_sums import SharedSums
from treetap.errors import Malformed
from treetap.trees.ensemble import ROOT
from treetap.wire.v2 import pivodl_pb2


async def open_root(setting: Setting, t: int, own: OwnLabels, keys: PartyKeys, sums: SharedSums) -> None:
    """Begin tree `t`; every party learns its G and H (§III-B).

    1. Every party with labels encrypts its sums of g and h under the encryption party's key, for the aggregation party.
    2. The aggregation party multiplies and re-randomises them, for the encryption party.
    3. The encryption party opens them, and sends them to all.
    """
    aggregator, opener = setting.draws.aggregation_party(t), setting.draws.encryption_party(t)
    setting.tree = tree = GrowingTree(t, setting.records, opener)
    key, slots, send = keys.of(opener), setting.slots(), setting.context.outbox.send
    mine = b""
    if setting.me in setting.owners:
        mine = await sums.encrypt(key, slots.encode(list(own.derivatives.sum(axis=0)[:, np.newaxis])))
        if setting.me != aggregator:
            await send(aggregator, "label_sums", [pivodl_pb2.LabelSums(ciphertexts=mine)], round=t)
    if setting.me == aggregator:
        shares = [mine] if mine else []
        for party in setting.owners:
            if party != setting.me:
                shares.append((await setting.received_once(party, "label_sums", t)).ciphertexts)
        if any(len(share) != key.ciphertext_bytes for share in shares):
            raise Malformed("the sums of a root are one ciphertext")
        joint = await sums.add(key, shares, slots.bits, 1, [0])
        await send(opener, "joint_sums", [pivodl_pb2.JointSums(ciphertexts=joint)], round=t)
    if setting.me == opener:
        joint = (await setting.received_once(aggregator, "joint_sums", t)).ciphertexts
        tree.sums[ROOT] = (await keys.holder.open(joint, 1))[0]
        opened = pivodl_pb2.SumsOfNode(node=ROOT, sums=[int(each) for each in tree.sums[ROOT]])
        await setting.broadcast("node_sums", [pivodl_pb2.NodeSums(nodes=[opened])], t)
    else:
        found = await received_sums(setting, opener, 0)
        if list(found) != [ROOT]:
            raise Malformed(f"{opener} sent sums of nodes {sorted(found)}, not of the root")
        tree.sums |= found
