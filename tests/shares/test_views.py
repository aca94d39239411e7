"""What a party sees tells it no more than its output: simulated from that, and not without each of the steps that hide.

1. Of two runs with the same seed and the same input of one party, and all else drawn anew, no word that it receives, or
   that its own and a received one open, is in both: given what it has itself, its view is uniform.
2. The opened order is uniform in its own numbering of places, whatever the data: an order drawn with the winner at the
   place that is told has the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from tests.shares.parties import GAMMA, UNIT, Node, Rule, drawn, masked_sums, pair, plain, run, sides
from tests.shares.test_mutants import mutate
from treetap.arrays import Array, Ints, Words
from treetap.errors import Malformed
from treetap.shares import choice, products, shuffle, signs, tournament
from treetap.shares.choice import Stage, hand_over
from treetap.shares.streams import Dealer, Round, Stream

RULE = Rule(UNIT, UNIT)
#: As many nodes as fill all lanes of words of bits.
NODES = 64


def stage_of(nodes: list[Node]) -> tuple[Stage, list[Any]]:
    """Its layout, and the label holder's own."""
    widths = RULE.widths(nodes, len(nodes[0].left))
    own, _ = RULE.own(nodes, [RULE.floor(node, GAMMA) for node in nodes], widths)
    return Stage(widths, len(nodes[0].left), len(nodes), len(nodes)), own


# ---- 1. words


def words_seen(party: int, dealer: Dealer, stage: Stage, own: list[Any], sums: tuple[Words, Words]) -> list[int]:
    """The words that a party receives, and that it opens with its own ones."""
    seen: list[tuple[Round, Round]] = []
    last, first = sides(dealer)
    with suppress(Malformed):  # a mutant's outcomes contradict each other
        run(pair(last, sums[0], stage, own, RULE), pair(first, sums[1], stage, None, RULE), seen)
    words = [np.frombuffer(b"".join(dealer.corrections[party]), np.uint64)]
    for said in seen:
        mine, theirs = (np.frombuffer(said[one].send, np.uint64) for one in (party, 1 - party))
        both = min(len(mine), len(theirs))
        words += [theirs, mine[:both] ^ theirs[:both], mine[:both] + theirs[:both]]
    joined: list[int] = np.concatenate(words).tolist()
    return joined


def common(party: int) -> int:
    """How many words two views of a party have in common."""
    rng = np.random.default_rng(3)
    nodes = [plain(drawn(rng, "any", 7)) for _ in range(NODES)]
    stage, own = stage_of(nodes)
    sums, seed = masked_sums(stage, nodes), bytes(32)
    views = []
    for _ in range(2):
        seeds = list(Dealer().seeds)
        seeds[party] = seed
        dealer = Dealer((seeds[0], seeds[1]))
        stage.deal(dealer)
        views.append({*words_seen(party, dealer, stage, own, sums)})
    return len(views[0] & views[1])


def same_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that take the same streams."""
    begin = Stream.__init__
    monkeypatch.setattr(Stream, "__init__", lambda self, _: begin(self, bytes(32)))


def unmasked(function: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A step without its masks."""
    module = products if function == "scores" else shuffle
    return lambda monkeypatch: mutate(monkeypatch, module, function, old, new)


@pytest.mark.parametrize(
    ("party", "change"),
    [
        (0, None),
        (1, None),
        pytest.param(0, same_streams, id="a stream twice"),
        pytest.param(0, unmasked("shuffle", "add(take(x, order), mask)", "take(x, order)"), id="no masks in a shuffle"),
        pytest.param(1, unmasked("open_masked", "sub(shares, masks)", "shares"), id="shares are opened"),
        pytest.param(1, unmasked("scores", "sub(x, a)", "x"), id="sums are opened"),
    ],
)
def test_views_have_no_word_in_common(
    monkeypatch: pytest.MonkeyPatch, party: int, change: Callable[[pytest.MonkeyPatch], None] | None
) -> None:
    if change:
        change(monkeypatch)
    assert bool(common(party)) == bool(change)


# ---- 2. orders

DATA: dict[str, list[tuple[int, ...]]] = {
    "ascending": [(k * UNIT, 20 * UNIT) for k in (1, 2, 3)],
    "equal": [(5 * UNIT, 20 * UNIT)] * 3,
    "light": [(5 * UNIT, 0), (5 * UNIT, 20 * UNIT), (UNIT, 0)],
}


def orders(monkeypatch: pytest.MonkeyPatch, nodes: list[Node], still: int | None) -> list[float]:
    """χ² (23 degrees of freedom) of orders of four: of places, and of what the last and the first party take them for.

    Args:
        still: the party that does not permute.
    """
    outcomes: list[Array] = []
    shuffled: list[Ints] = []
    decide, begin, permute = tournament.winners, Stream.__init__, Stream.permutations
    dealer = Dealer()

    def permuted(stream: Any, count: int, n: int) -> Ints:
        order = permute(stream, count, n)
        at_rest = still is not None and stream.seed == dealer.seeds[still]
        shuffled.append(np.broadcast_to(np.arange(n), order.shape) if at_rest else order)
        return shuffled[-1]

    def seeded(stream: Any, seed: bytes) -> None:
        begin(stream, seed)
        stream.seed = seed

    def decided(given: Array, n: int, size: int) -> Ints:
        outcomes.append(given)
        return decide(given, n, size)

    monkeypatch.setattr(tournament, "winners", decided)
    monkeypatch.setattr(Stream, "__init__", seeded)
    monkeypatch.setattr(Stream, "permutations", permuted)
    stage, own = stage_of(nodes)
    dealer = Dealer(dealer.seeds)
    stage.deal(dealer)
    (last, first), sums = sides(dealer), masked_sums(stage, nodes)
    run(pair(last, sums[0], stage, own, RULE), pair(first, sums[1], stage, None, RULE))
    won = np.zeros((len(nodes), 4), np.int64)
    for column, (i, j) in zip(outcomes[0].T, zip(*tournament.pairs(4, 4), strict=True), strict=True):
        won[:, i] += column
        won[:, j] += 1 - column
    numbers = {order: k for k, order in enumerate(permutations(range(4)))}
    found = []
    for order in (np.broadcast_to(np.arange(4), won.shape), *shuffled[2:]):
        taken = np.empty_like(won)
        np.put_along_axis(taken, order, won, 1)
        counts = np.bincount([numbers[tuple(row)] for row in taken.tolist()], minlength=24)
        found.append(float(((counts - len(won) / 24) ** 2 / (len(won) / 24)).sum()))
    return found


@pytest.mark.parametrize(
    ("data", "still", "edit", "seen"),
    [
        *((data, None, None, set()) for data in DATA),
        pytest.param("ascending", 0, None, {2}, id="the last does not permute"),
        pytest.param("equal", 1, None, {1}, id="the first does not permute"),
        pytest.param("light", None, ("& order", "& (order ^ order)"), {0}, id="light ones have no order"),
    ],
)
def test_the_opened_order_is_uniform(
    monkeypatch: pytest.MonkeyPatch, data: str, still: int | None, edit: tuple[str, str] | None, seen: set[int]
) -> None:
    if edit:
        mutate(monkeypatch, signs, "deal_outcome", *edit)
    found = orders(monkeypatch, [Node((0, 40 * UNIT), DATA[data])] * 2_400, still)
    assert {k for k, chi in enumerate(found) if chi > 100} == seen  # 1e-11 of uniform ones exceed it


# ---- shares that are handed on


@pytest.mark.parametrize("fresh", [True, False])
def test_the_dealer_finds_nothing_of_its_own_among_shares_that_are_handed_on(
    monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    if not fresh:
        monkeypatch.setattr(choice, "urandom", bytes)
    words: list[Words] = []
    draw = Stream.words

    def drawn_words(stream: Stream, *shape: int) -> Words:
        words.append(draw(stream, *shape))
        return words[-1]

    monkeypatch.setattr(Stream, "words", drawn_words)
    nodes = [plain(drawn(np.random.default_rng(3), "any", 7)) for _ in range(NODES)]
    stage, own = stage_of(nodes)
    dealer = Dealer()
    stage.deal(dealer)
    dealt = {*np.concatenate([part.ravel() for part in words]).tolist()}
    (last, first), sums = sides(dealer), masked_sums(stage, nodes)
    found = run(pair(last, sums[0], stage, own, RULE), pair(first, sums[1], stage, None, RULE))
    _, handed = run(hand_over(last, found[0]), hand_over(first, found[1]))
    assert dealt.isdisjoint(handed.ravel().tolist()) == fresh
