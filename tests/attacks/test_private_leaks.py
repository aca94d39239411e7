"""What remains to those who collude or lie in a job whose sums are shared, tried on what it sent."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.recorded import transcript
from tests.growth.test_shared_sums import SMALL, job_of
from tests.shares.parties import integers
from tests.simulator import DEALER, Federation, failed, finished
from tests.worlds import PARTIES, world
from treetap.arrays import Words
from treetap.native.rings import add
from treetap.shares.choice import hand_over
from treetap.shares.dealing import widths_in
from treetap.shares.streams import Dealer, Rounds, Side, words_of
from treetap.shares.tournament import Champions
from treetap.shares.widths import deal_lift
from treetap.transfers.extension import send
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.cell_merging import bins_of
from treetap.trees.tree_bins import left_sums_of
from treetap.wire.transcript import TranscriptReader, open_message

HOLDER, FEATURE, SECOND = PARTIES
ONE = replace(SMALL, n_estimators=1, subsample=1.0)
HERE = world(90, (1, 2, 2), seed=0)


def of_first_root(federation: Federation, party: str, step: str) -> list[tuple[int, str, Any]]:
    """Kinds, peers and messages of a step of the first tree's first stage in a transcript."""
    kept = (it for it in TranscriptReader(transcript(federation.states | {DEALER: federation.state(DEALER)}, party)))
    here = [it for it in kept if (it.step, it.round, it.stage) == (step, 0, 0)]
    return [(it.kind, it.peer, getattr(open_message(it).growth, step)) for it in here]  # type: ignore[attr-defined]


def sums_read(federation: Federation, party: str, seeds: dict[str, bytes]) -> list[tuple[int, int]]:
    """Σg and Σh + λ′ of the second feature party's candidates, by masks of the seeds and what a transcript opens.

    The numbers are those that both parties send behind the coins and the bits of the lift (`treetap.shares`).
    """
    ((_, _, sizes),) = of_first_root(federation, DEALER, "dealt_sizes")
    widths, count, sent = widths_in(sizes.widths), sizes.candidates[1], {1: b"", 2: b""}
    for kind, peer, message in of_first_root(federation, party, "shares"):
        if {peer, party} == {HOLDER, SECOND}:
            sent[kind] += message.numbers
    dealer, shape = Dealer((seeds[HOLDER], seeds[SECOND])), (2, count, widths.words)
    deal_lift(dealer, count, widths)
    before = 1 + words_of(count) + words_of(count * len(widths.slots))
    opened = [np.frombuffer(it, np.uint64)[before:][: np.prod(shape)].reshape(shape) for it in sent.values()]
    masks = add(dealer.last.words(*shape), dealer.first.words(*shape))
    x, y = map(integers, add(masks, add(*opened)))
    return sorted(zip(x, y, strict=True))


async def test_what_two_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dealer and either party of a pair: all sums, which neither has with a seed of its own alone.

    The label holder and the first feature party: the score of another's best candidate.
    """
    handed = list[Words]()

    def kept(side: Side, champions: Champions) -> Rounds[Words]:
        handed.append((yield from hand_over(side, champions)))
        return handed[-1]

    monkeypatch.setattr("treetap.party.growth.shared_choice.hand_over", kept)
    monkeypatch.setattr("treetap.shares.choice.ONE_OF", 1 << 62)  # no part is opened
    federation = Federation(tmp_path, HERE.tables, dealer=True, record="both")
    finished(await federation.train(job_of(ONE)))
    dealt = of_first_root(federation, DEALER, "correlations")
    seeds = {to: it.seed for _, to, it in dealt if it.pair == SECOND and it.seed}
    binned = bin_table(HERE.blocks[2], ["0", "1"], ONE.max_bin)
    values, scale, _ = BoostingRounds(ONE, 2, HERE.y).derivatives(0)
    sums = left_sums_of(bins_of(binned, np.arange(2), 0), values, [1], [np.arange(len(values))])[0]
    truth = sorted((g, h + ONE.penalty) for g, h, _ in sums.tolist())
    for party, other in ((HOLDER, SECOND), (SECOND, HOLDER)):
        assert sums_read(federation, party, seeds) == truth
        assert not {*sums_read(federation, party, seeds | {other: bytes(32)})} & {*truth}
    rule = present(BoostingCriterion(scale, ONE).exact_rule(3))
    bound = rule.bound(values.sum(axis=0))
    best = max(
        (it for it in (rule.score(bound, left) for left in sums) if it[1] >= bound.T), key=lambda it: Fraction(*it)
    )
    ((_, _, share),) = (it for it in of_first_root(federation, FEATURE, "champion_share") if it[1] == SECOND)
    theirs = np.frombuffer(share.numbers, np.uint64).reshape(handed[0].shape)
    assert best in {tuple(integers(add(mine, theirs)[:, 0])) for mine in handed[:4]}


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("place", [0, -1])
async def test_an_abort_tells_whether_a_garbled_record_is_in_the_node(
    inside: bool, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A feature party that turns the left bit of one record learns by the label holder's check if it is in the node."""
    (tree,) = HERE.oracle(ONE)
    members = HERE.members(tree)
    node = max(u for u in members if getattr(tree.nodes[u], "owner", HOLDER) != HOLDER)
    record = [*members[node]][place] if inside else [*np.setdiff1d(members[1], members[node])][place]

    def garbled(seeds: Any, stream: Any, message: bytes, left: Any) -> bytes:
        left[record] ^= stream == (0, node)
        return send(seeds, stream, message, left)

    monkeypatch.setattr("treetap.party.growth.left_bits.send", garbled)
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    status = await federation.train(job_of(ONE))
    failed(status, "Disputed", f"left records of node {node}") if inside else finished(status)
