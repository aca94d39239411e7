"""A party as source of candidates: adds up encrypted sums, hides their order, and divides nodes that it wins.

It never holds a plaintext sum of its candidates. Which of them are permitted it computes itself, since it knows its own
bins and which party labels which record.
"""

from __future__ import annotations

import secrets
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from party.growth.split_table import TreeColumns
from party.pivodl.label_owner import SHARE_BYTES, LabelOwner, OwnSums
from party.pivodl.own_labels import OwnLabels
from party.pivodl.party_keys import PartyKeys
from party.pivodl.setting import Rows, Setting
from treetap.additive.paillier.shared_sums import SharedSums
from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit
from treetap.trees.histogram import left_sums
from treetap.trees.label_thresholds import permits
from treetap.wire.v2 import pivodl_pb2

Bools = npt.NDArray[np.bool_]


class Source:
    """This party's candidates in the tree under construction."""

    def __init__(self, setting: Setting, keys: PartyKeys, sums: SharedSums) -> None:
        self._setting, self._keys, self._sums = setting, keys, sums
        self._offered: dict[int, Rows] = {}  # node → canonical number of the candidate at each place

    async def forward(self, own: OwnLabels, owner: LabelOwner, columns: TreeColumns, level: int) -> None:
        """Send each open node's split party the sums of all parties, in a secret order.

        1. Receive the ciphertexts of every other party with labels.
        2. Keep the candidates that every party permits; add this party's own sums.
        3. Shuffle, pack, re-randomise with standard obfuscators, send.
        """
        setting = self._setting
        self._offered = {}
        mine = await owner.own_sums(setting.me, own, level)
        shares = {
            party: await self._received(party, level, bool(mine)) for party in setting.owners if party != setting.me
        }
        bodies: defaultdict[str, list[pivodl_pb2.ForwardedSums]] = defaultdict(list)
        for node, sums in mine.items():
            to = str(setting.split_party(node, setting.me))
            bodies[to] += await self._forwarded(node, to, sums, columns, shares)
        for to, parts in bodies.items():
            await setting.context.outbox.send(to, "forwarded_sums", parts, round=setting.tree.index, stage=level)

    async def _received(self, party: str, level: int, expected: bool) -> dict[int, bytes]:
        """Ciphertexts of a party by node."""
        found: defaultdict[int, list[bytes]] = defaultdict(list)
        if expected:
            async for message in self._setting.received(party, "candidate_shares", self._setting.tree.index, level):
                found[message.node].append(message.ciphertexts)
        return {node: b"".join(parts) for node, parts in found.items()}

    async def _forwarded(
        self,
        node: int,
        to: str,
        mine: OwnSums,
        columns: TreeColumns,
        shares: dict[str, dict[int, bytes]],
    ) -> list[pivodl_pb2.ForwardedSums]:
        setting, key = self._setting, self._keys.of(to)
        masks = self._masks(node, columns)
        joint = np.ones(len(columns.candidates), dtype=bool)
        for mask in masks.values():
            joint &= mask
        chosen = np.flatnonzero(joint)
        width = key.ciphertext_bytes
        parts = []
        for party, by_node in shares.items():
            mask = masks.get(party, np.zeros(0, dtype=bool))
            sent = by_node.get(node, b"")
            if len(sent) != int(mask.sum()) * width:
                raise Malformed(f"{party} sent sums of other candidates of node {node} than its threshold permits")
            place = np.cumsum(mask) - 1  # of each permitted candidate among the ciphertexts sent
            parts.append(b"".join(sent[at * width : (at + 1) * width] for at in place[chosen].tolist()))
        own = setting.slots().encode([np.ascontiguousarray(column) for column in mine.left[chosen].T])
        order = list(range(len(chosen)))
        secrets.SystemRandom().shuffle(order)
        self._offered[node] = chosen[order]
        slots = setting.slots()
        groups = slots.groups_per_plaintext(key.plain_bits)
        packed = await self._sums.add(key, parts, slots.bits, groups, order, own) if order else b""
        setting.context.costs.ciphertexts["forwarded_sums"] += len(packed) // width
        step = SHARE_BYTES // width * width
        return [
            pivodl_pb2.ForwardedSums(node=node, candidates=len(order), ciphertexts=packed[start : start + step])
            for start in range(0, max(len(packed), 1), step)
        ]

    def _masks(self, node: int, columns: TreeColumns) -> dict[str, Bools]:
        """The candidates that each party's threshold permits at a node, from the own bins and the parties' records."""
        setting, params = self._setting, self._setting.params
        inside = np.zeros(setting.records, dtype=bool)
        inside[setting.tree.rows[node]] = True
        ones = np.ones((setting.records, 1), dtype=np.int64)
        paper = params.instance_check == "paper"
        asked = [party for party in setting.owners if not (paper and party == setting.me)]
        rows = [labelled[inside[labelled]] for labelled in (setting.ownership[party] for party in asked)]
        counts = left_sums(columns.codes, columns.candidates, ones, rows)[:, :, 0]
        return {
            party: permits(count, len(labelled), params.instance_threshold, paper=paper)
            for party, labelled, count in zip(asked, rows, counts, strict=True)
        }

    def divide(self, node: int, places: list[int], columns: TreeColumns) -> tuple[OwnSplit, Rows, int]:
        """Enter the lowest of the tied winners in the split table; returns it, the rows that go left, and its place."""
        offered = self._offered.get(node)
        if offered is None or not places or max(places) >= len(offered) or len(set(places)) < len(places):
            raise Malformed(f"node {node}: the winning candidates are not among those that were offered")
        place = min(places, key=lambda each: int(offered[each]))
        split, left = columns.split(node, self._setting.tree.rows[node], [int(offered[place])])
        return split, left, place
