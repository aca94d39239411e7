"""Bounds of what a job needs, and its memory.

- Messages of a tree are no longer than its nodes and candidates make them; those that are right are never refused.
- Memory of a training in the parties' main processes: it grows by few bytes with each record, and with no copies.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign.small_jobs import FOREST
from tests.replay import HERE, PARAMS
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, spec
from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.kernels import HeldTree
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.lattice.histogram_scheme import parameters_of
from treetap.party.growth.split_table import SplitTable
from treetap.party.growth.stored_trees import SCORES, resumed
from treetap.party.runtime import mailbox
from treetap.party.runtime.job_store import Store
from treetap.protocols.growth import GROWTH, TreeSizes, sums_of_nodes, words_of_nodes
from treetap.protocols.key_options import LATTICE, PAILLIER, KeyKind
from treetap.protocols.messages import Members, Series
from treetap.protocols.prediction import predict_request
from treetap.tables.labels import Labels
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.growing_tree import GrowingTree, with_zeros
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.slots import Slots, width_for
from treetap.trees.tree_bins import left_sums_of
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, growth_pb2

COLUMNS, BLOCK = 8, 256


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("params", "scheme"),
    [(PARAMS, PAILLIER), (FOREST, PAILLIER), (PARAMS, LATTICE), (FOREST, LATTICE)],
    ids=["boosting", "forest", "boosting on a lattice", "forest on a lattice"],
)
async def test_what_a_job_needs_is_within_its_bounds(
    params: TreeParams, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they leave next to nothing beside the contents, in a training and an encrypted prediction."""
    monkeypatch.setattr(mailbox, "ALLOWANCE", 3 * mailbox.OVERHEAD)

    federation = Federation(tmp_path, HERE.tables)
    finished(await federation.train(spec(params, scheme=scheme)))
    asked = predict_request(model="job", protocol="eini")
    asked.parameters.eini.key_bits = 1024
    finished(await federation.predict(asked))


def test_a_party_without_candidates_may_name_all_nodes_of_a_level() -> None:
    """Its columns are constant: a level's message has the numbers of its nodes, three bytes each from 16,384 on."""
    params = ForestParams(1, max_depth=17, max_bin=4)
    members, key = Members("coordinator", PARTIES[0], PARTIES[1:]), KeyKind.of(spec(params))
    sizes = TreeSizes(members=members, key=key, params=params, records=1 << 20, offered={PARTIES[1]: (0, 0)})
    sums = growth_pb2.CandidateSums(nodes=range(1 << 16, 1 << 17))
    bound = mailbox.expected_of(GROWTH, PARTIES[0], sizes)["candidate_sums"]
    assert bound.most(PARTIES[1], 0, 16) > len(sums.SerializeToString())


async def test_sums_below_the_root_are_bounded_by_those_of_the_root(tmp_path: Path) -> None:
    """A party's number of candidates, which the label holder cannot know, is known from the tree's first level on."""
    federation = Federation(tmp_path, HERE.tables)

    def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "candidate_sums" and parcel.stage == 1:
            parcel.growth.candidate_sums.ciphertexts += bytes(1 << 20)
        return parcel

    federation.tamper = tamper
    status = await federation.train(spec(PARAMS, obfuscation="standard"))
    assert status.state != "finished"
    assert "round 0, stage 1 has more than the" in status.error


@pytest.mark.parametrize("records", [40, 50_000])
def test_words_and_halves_of_a_lattice_are_bounded_by_their_layout(records: int) -> None:
    """What is due passes, and bounds are no more than some times as much."""
    params = BoostingParams(n_estimators=5, max_depth=5, max_bin=32)
    members, (holder, party) = Members("coordinator", PARTIES[0], PARTIES[1:]), PARTIES[:2]
    slots = Slots((width_for(records, 1 << 32), width_for(records, 1 << 30), width_for(records, 1)))
    agreed = parameters_of(records, slots, 32, 64, 128, 1)
    key, words, nodes = KeyKind(LATTICE, 0), agreed.words, 8  # as many as are built of 16
    sizes = TreeSizes(members=members, key=key, params=params, records=records, words=words, offered={party: (0, 62)})
    query = sum(
        growth_pb2.EncryptedWords(node=31, first=first, count=count, ciphertexts=bytes(13 * words * count)).ByteSize()
        for first, count in ((0, records), (records, 4096))
    )
    due, bound = nodes * query, words_of_nodes(sizes, Series(holder, party, 0, 4))
    assert due <= bound <= 2 * due + nodes * 64  # of siblings both, by the nodes that may be compared
    firsts = bytes(nodes * -(-62 * words * agreed.reply_bits // 8))
    seconds = bytes(nodes * 62 * agreed.second_half_bytes)
    halves = growth_pb2.CandidateSums(nodes=range(16, 32), candidates=62, ciphertexts=firsts, second_halves=seconds)
    assert halves.ByteSize() <= sums_of_nodes(sizes, Series(party, holder, 0, 4)) <= 4 * halves.ByteSize()
    # at the root a party has said how many candidates it has
    root, first = Series(party, holder, 0, 0), 62 * (agreed.second_half_bytes + 8 * words)
    sizes.announced[party] = 62
    assert first <= sums_of_nodes(sizes, root) <= 2 * first


def by_records(peak: Callable[[int], int]) -> float:
    """Bytes by which the peak grows with a record; modules that the first call imports do not count."""
    few, many = 20_000, 40_000
    peak(few)
    return (peak(many) - peak(few)) / (many - few)


def traced(work: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy hold at once for some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def split_table(records: int) -> SplitTable:
    """Columns of 30 values, in bins."""
    values = np.random.default_rng(records).integers(0, 30, (records, COLUMNS)).astype(np.float64)
    names = [f"x{column}" for column in range(COLUMNS)]
    return SplitTable("label-holder", names, bin_table(values, names, 32))


def test_a_tree_at_the_label_holder(tmp_path: Path) -> None:
    """Gradients, the sums of the own columns and the scores after a tree take less than 115 bytes a record."""
    params = BoostingParams(max_depth=2)

    def peak(records: int) -> int:
        table = split_table(records)
        labels = Labels(np.arange(records) % 2, ["0", "1"])
        store = Store(tmp_path / str(records)).job("job")

        def tree() -> None:
            state = resumed(BoostingRounds(params, len(labels.classes), labels.values), store)
            values, scale, _ = state.derivatives(0)
            values = with_zeros(values, records)
            columns = table.columns_of_tree(0, params, permuted=False)
            growing = GrowingTree(values, BoostingCriterion(scale, params), params.expansion, subtract=True)
            left_sums_of(columns.bins, values, growing.build, [growing.rows[node] for node in growing.build])
            store.save_arrays(SCORES, state.state())

        return traced(tree)

    assert by_records(peak) < 115


class Workers:
    """Two workers that keep no ciphertext: they count those that each got."""

    workers = 2

    def __init__(self) -> None:
        self._kept = [0, 0]

    async def call(self, worker: int, kernel: Callable[..., Any], *args: Any) -> Any:
        if kernel is not HeldTree.add:
            return None
        _, codes, _ = args
        self._kept[worker] += len(codes)
        return self._kept[worker] - len(codes), 0

    def begin(self, worker: int, kernel: Callable[..., Any], *args: Any) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is left."""


def test_a_tree_at_a_feature_party() -> None:
    """Beside its bins the main process takes less than 20 bytes for each record whose ciphertext went to a worker."""
    public = PublicKey((1 << 1023) + 1)  # no worker computes with it

    def peak(records: int) -> int:
        columns = split_table(records).columns_of_tree(0, BoostingParams(), permuted=True)
        block = bytes(BLOCK * public.ciphertext_bytes)

        async def tree() -> None:
            shapes = columns.candidates.shapes
            sums = EncryptedSums(Workers(), public, Slots((60, 60, 30)), columns.codes, shapes)
            for first in range(0, records, BLOCK):
                rows = np.arange(first, min(first + BLOCK, records))
                await sums.add_block(rows, block[: len(rows) * public.ciphertext_bytes])
            await sums.close()

        return traced(lambda: asyncio.run(tree()))

    assert by_records(peak) < 20
