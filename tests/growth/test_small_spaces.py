"""`min_instance_space` holds for every node that a feature party can work out, not only for those it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec, world
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.v2.exchange_pb2 import PeerMessage

LABEL_HOLDER, FEATURE, OTHER = PARTIES
N = 20
PARAMS = BoostingParams(n_estimators=1, max_depth=2, max_bin=32, min_child_weight=0.0, objective="reg:squarederror")
Nodes = dict[int, frozenset[int]]


class Watched(Federation):
    """A federation that notes, of one tree, the instance spaces that each feature party is sent or makes itself."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sent: dict[str, Nodes] = {FEATURE: {}, OTHER: {}}
        self.made: dict[str, Nodes] = {FEATURE: {}, OTHER: {}}
        self.tamper = self._note

    def _note(self, sender: str, to: str, parcel: PeerMessage) -> PeerMessage:
        total = len(next(iter(self.tables.values()))[1]["train"])
        if name_of(parcel) == "instance_spaces":
            for space in parcel.growth.instance_spaces.spaces:
                rows = frozenset(rows_of([space.records], total).tolist())
                self.sent[to][space.node] = self.sent[to].get(space.node, frozenset()) | rows
        if name_of(parcel) == "children":
            for child in parcel.growth.children.children:
                self.made[sender][2 * child.node] = frozenset(rows_of([child.left], total).tolist())
        return parcel

    def named(self, party: str, total: int) -> Nodes:
        """The nodes that others' splits made and that the party knows: sent, or the rest of a parent that it knows."""
        known: Nodes = {1: frozenset(range(total)), **self.sent[party]}
        others: Nodes = dict(self.sent[party])
        for left, rows in sorted(self.made[party].items()):
            known |= {left: rows, left + 1: known[left // 2] - rows}
        for node, rows in self.sent[party].items():
            others.setdefault(node ^ 1, known[node // 2] - rows)
        return others


def _tables(owner: str) -> dict[str, Any]:
    """One record lies far from the others, by a column of `owner`; a column of feature-b tells those apart a little."""
    rng = np.random.default_rng(3)
    sides = np.arange(N) % 2
    ids = [f"r{i:02d}" for i in range(N)]
    far = np.where(np.arange(N) == 0, 9.0, rng.normal(size=N))
    columns = {LABEL_HOLDER: rng.normal(size=N), FEATURE: sides + 0.1 * rng.normal(size=N), OTHER: rng.normal(size=N)}
    columns[owner] = far
    found: dict[str, Any] = {}
    for party, values in columns.items():
        content: dict[str, Any] = {"id": ids, "x": values}
        if party == LABEL_HOLDER:
            content["y"] = np.where(np.arange(N) == 0, 100.0, sides + 0.1 * rng.normal(size=N))
        found[party] = (["x"], {"train": pa.table(content)})
    return found


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("owner", [LABEL_HOLDER, OTHER])
def test_the_small_sibling_of_a_node_that_is_sent(owner: str, tmp_path: Path) -> None:
    """The nineteen other records are sent, and so the one is known: a policy that wants two lets neither go."""

    async def main(least: int) -> tuple[Watched, str]:
        policies = {LABEL_HOLDER: {"columns": {"min_instance_space": least}}}
        federation = Watched(tmp_path / str(least), _tables(owner), policies=policies)
        status = await federation.train(spec(PARAMS))
        await federation.close()
        return federation, status.error

    federation, error = run(main(1))
    assert error == ""
    assert sorted(len(rows) for rows in federation.named(FEATURE, N).values()) == [1, 19]
    federation, error = run(main(2))
    assert f"Refused: {LABEL_HOLDER} does not send {FEATURE} the records of node" in error
    assert "min_instance_space = 2" in error
    assert federation.sent == {FEATURE: {}, OTHER: {}}


@pytest.mark.second_tier
async def test_no_party_knows_a_node_smaller_than_the_policy_says(tmp_path: Path) -> None:
    """Whatever the tree: a training that ends has shown no smaller node to any party, and one that would is refused."""
    ended = set()
    for seed in range(5):
        here = world(40, (2, 2, 2), seed=seed)
        params = BoostingParams(n_estimators=1, max_depth=3, max_bin=8, min_child_weight=1.0)
        policies = {LABEL_HOLDER: {"columns": {"min_instance_space": 7}}}
        federation = Watched(tmp_path / str(seed), here.tables, policies=policies)
        error = (await federation.train(spec(params))).error
        assert error == "" or "min_instance_space = 7" in error
        ended.add(error == "")
        sizes = [len(rows) for party in PARTIES[1:] for rows in federation.named(party, 40).values()]
        assert all(size >= 7 for size in sizes), (seed, sizes)
    assert ended == {True, False}
