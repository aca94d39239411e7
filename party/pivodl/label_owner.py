"""A party as owner of labels: sums of its gradients by the candidates of every source, under split parties' keys.

It sees bins of the records that it labels, and no sum of another party.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from party.growth.split_table import TreeColumns
from party.pivodl.candidate_bins import (
    SourceBins,
    candidate_sets,
    left_sums_of_sets,
    own_bins,
    receive_bins,
    send_bins,
)
from party.pivodl.own_labels import OwnLabels
from party.pivodl.party_keys import PartyKeys
from party.pivodl.setting import Setting
from treetap.additive.paillier.shared_sums import SharedSums
from treetap.process.together import together
from treetap.trees.label_thresholds import permits
from treetap.wire.v2 import pivodl_pb2

Ints = npt.NDArray[np.int64]
#: Bytes of ciphertexts in one message.
SHARE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class OwnSums:
    """This party's part of a source's candidates at a node.

    Attributes:
        left: (candidates, 2K) sums of g and h left of each.
        counts: (candidates,) labelled records left of each.
        total: labelled records in the node.
    """

    left: Ints
    counts: Ints
    total: int


class LabelOwner:
    """Sums over the records that this party labels."""

    def __init__(self, setting: Setting, keys: PartyKeys, sums: SharedSums) -> None:
        self._setting, self._keys, self._sums = setting, keys, sums
        self._bins: dict[str, SourceBins] = {}

    async def share_bins(self, own: OwnLabels, columns: TreeColumns) -> None:
        """Exchange bins: as source send each party with labels those of its records, as owner receive them.

        In the paper's wire form nothing is sent now.
        """
        setting = self._setting
        self._bins = {setting.me: own_bins(columns, own.rows)}
        if setting.params.wire_form == "paper":
            return
        owners = [party for party in setting.owners if party != setting.me]
        await together(*(send_bins(setting, columns, party, setting.ownership[party]) for party in owners))
        if len(own.rows):
            for source in setting.others:
                self._bins[source] = await receive_bins(setting, source, len(own.rows))

    async def own_sums(self, source: str, own: OwnLabels, level: int) -> dict[int, OwnSums]:
        """The sums by a source's candidates, by node, of the open nodes where some party opens them."""
        setting = self._setting
        nodes = [
            (node, own.places(setting.tree.rows[node]))
            for node in setting.tree.open
            if setting.split_party(node, source) is not None
        ]
        if not nodes:
            return {}  # the source has sent nothing either
        values = np.concatenate([own.derivatives, np.ones((len(own.rows), 1), dtype=np.int64)], axis=1)
        if source != setting.me and setting.params.wire_form == "paper":
            lists = setting.received(source, "candidate_records", setting.tree.index, level)
            lefts = await left_sums_of_sets(lists, source, values, nodes)
        else:
            lefts = self._bins[source].left_sums(values, [places for _, places in nodes])
        return {
            node: OwnSums(left[:, :-1], left[:, -1], len(places))
            for (node, places), left in zip(nodes, lefts, strict=True)
        }

    def _permitted(self, found: OwnSums) -> list[Ints]:
        """The sums, slot by slot, of the candidates that this party's threshold permits."""
        params = self._setting.params
        mask = permits(found.counts, found.total, params.instance_threshold, paper=params.instance_check == "paper")
        return [np.ascontiguousarray(found.left[mask, slot]) for slot in range(found.left.shape[1])]

    async def send_shares(self, own: OwnLabels, level: int) -> None:
        """Send every other source this party's sums of each open node, a ciphertext for each permitted candidate."""
        for source in self._setting.others:
            await self._send_to(source, own, level)

    async def _send_to(self, source: str, own: OwnLabels, level: int) -> None:
        setting = self._setting
        found = await self.own_sums(source, own, level)
        if not found:
            return
        series = setting.context.outbox.open(source, "candidate_shares", setting.tree.index, level)
        for node, sums in found.items():
            to = str(setting.split_party(node, source))
            key, columns = self._keys.of(to), self._permitted(sums)
            if to == setting.me:  # encrypts faster with the secret key
                blocks = [block async for _, block in self._keys.holder.encrypt_blocks(columns)]
                ciphertexts = b"".join(blocks)
                setting.context.costs.operations["encryptions"] += len(columns[0])
            else:
                ciphertexts = await self._sums.encrypt(key, setting.slots().encode(columns))
            setting.context.costs.ciphertexts["candidate_shares"] += len(columns[0])
            step = SHARE_BYTES // key.ciphertext_bytes * key.ciphertext_bytes
            for start in range(0, max(len(ciphertexts), 1), step):
                part = ciphertexts[start : start + step]
                await series.put(pivodl_pb2.CandidateShares(node=node, ciphertexts=part))
        await series.close()


async def send_candidate_records(setting: Setting, columns: TreeColumns, level: int) -> None:
    """Source, in the paper's wire form: send each party with labels its records left of every candidate."""
    if setting.params.wire_form != "paper":
        return
    open_nodes = [node for node in setting.tree.open if setting.split_party(node, setting.me) is not None]
    for party in setting.owners:
        if party == setting.me or not open_nodes:
            continue
        labelled = setting.ownership[party]
        bins = own_bins(columns, labelled)
        nodes = [(node, np.flatnonzero(np.isin(labelled, setting.tree.rows[node]))) for node in open_nodes]
        sets = candidate_sets(bins, nodes)
        await setting.context.outbox.send(party, "candidate_records", sets, round=setting.tree.index, stage=level)
