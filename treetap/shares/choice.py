"""The choice of one stage by a label holder (L) and a feature party (F), who keep shares of all sums.

What these and the dealer call for a stage of a tree and a pair L-F, in which F's `Side` is the first:

    dealer    Stage(...).deal(Dealer())       seeds and corrections; `Stage.dealt_bytes` says how many
    L, F      inspect(side, ...)              one of ten batches is opened, and another one dealt in its place
    L, F      lift(side, masked, widths)      shares of the numbers in masked sums, of the nodes that were built;
                                              of their siblings by subtraction (`treetap.native.rings.sub`)
    L, F      choose(side, x, y, own, ...)    winners of all nodes among F's candidates and number 0, which is L's own
    L, F      tell(side, champions)           F learns their numbers
    L, F      answer(side, told, nodes)       and with one feature party L learns which nodes F has won

With several, F_1, F_2, ..., each F_k hands its share of its winners to F_1 (`hand_over`). L and F_1 choose among these
with turned roles, L's side being the first (`choose_owner`, dealt by `Owners`), and L alone learns the owners. It then
tells each F_k, in the pair with it, the places of the nodes that F_k has won (`tell` with `asked`).

All of these are generators (see `streams`). The lengths of their rounds follow from the layout, and no message is used
before its length has been compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import urandom

import numpy as np

from treetap.arrays import Bools, Ints, Words
from treetap.errors import Malformed
from treetap.native.rings import add, sub
from treetap.shares.products import deal_scores, numbers, scores
from treetap.shares.streams import SEED_BYTES, Dealer, Rounds, Side, exchange, packed, trade, unpacked, words_of
from treetap.shares.tournament import Champions, contest, contest_words, deal_contest
from treetap.shares.widths import Widths, deal_lift

#: The label holder's own of a node, in units of the slots: A = H + 2λ′, G_k for each target k, the Den that a candidate
#: must have, and Num and Den of number 0, which candidates must exceed; this Den is at least the least.
Bound = tuple[int, Sequence[int], int, int, int]
#: A batch is opened in one of so many stages.
ONE_OF = 10


@dataclass(frozen=True)
class Stage:
    """The layout of a stage for the label holder and one feature party.

    Attributes:
        candidates: of the feature party, in each node.
        built: nodes whose sums come masked; the others are differences.
        nodes: nodes among whose candidates is chosen.
    """

    widths: Widths
    candidates: int
    built: int
    nodes: int

    def deal(self, dealer: Dealer) -> None:
        """What `lift` and `choose` take."""
        deal_lift(dealer, self.built * self.candidates, self.widths)
        deal_scores(dealer, self.widths.targets, self.nodes, self.candidates, self.widths.words)
        deal_contest(dealer, 3 if self.widths.count else 1, self.nodes, 1 + self.candidates, self.widths)

    @property
    def dealt_bytes(self) -> tuple[int, int]:
        """Bytes of corrections to the last and to the first party."""
        w, widths = self.widths.words, self.widths
        last, first = contest_words(3 if widths.count else 1, self.nodes, 1 + self.candidates, widths)
        first += self.built * self.candidates * (widths.sum_words + len(widths.slots) * w)
        first += (3 * widths.targets + 4) * self.nodes * self.candidates * w
        return 8 * last, 8 * first


@dataclass(frozen=True)
class Owners:
    """The layout of the choice among the winners of several feature parties."""

    widths: Widths
    parties: int
    nodes: int

    def deal(self, dealer: Dealer) -> None:
        """What `choose_owner` takes."""
        deal_contest(dealer, 0, self.nodes, 1 + self.parties, self.widths)

    @property
    def dealt_bytes(self) -> tuple[int, int]:
        """Bytes of corrections to the last and to the first party."""
        last, first = contest_words(0, self.nodes, 1 + self.parties, self.widths)
        return 8 * last, 8 * first


def choose(
    side: Side,
    x: Words,
    y: Words,
    own: Sequence[Bound] | None,
    widths: Widths,
    left: Words | None = None,
    drawn: Sequence[int] = (),
    fewest: int = 0,
    order: Sequence[int] = (),
) -> Rounds[Champions]:
    """The winners of nodes among a feature party's candidates and number 0.

    Args:
        x: shares (targets, nodes, n, w) of the x_k.
        y: shares (nodes, n, w), in which the label holder has added λ′.
        own: the label holder's, by node; None at the feature party.
        left: where records are counted, shares (nodes, n, 1) of how many go left.
        drawn: the label holder's own, where they are counted: how many each node has.
        fewest: the feature party's own number of records that go left at least, and right.
        order: the feature party's own, the numbers of its candidates by which ties go; else their places.
    """
    nodes, n, w = y.shape
    rows = [(A, T, N0, D0, *G) for A, G, T, N0, D0 in own] if own else [(0,) * (4 + len(x))] * nodes
    whole, least, num, den, *targets = (numbers(column, w)[:, None] for column in zip(*rows, strict=True))
    of_candidates = yield from scores(side, x, y, whole, np.stack(targets))
    fractions = np.concatenate([np.stack([num, den]), np.stack(of_candidates)], axis=2)
    counts = np.zeros((0 if left is None else 2, nodes, 1 + n, 1), np.uint64)
    if left is not None:
        right = numbers(drawn or [0] * nodes, 1)[:, None] - left
        counts[:, :, 1:] = np.stack([left, right]) - np.uint64(fewest)
    ties = np.array([0, *(1 + number for number in order or range(n))])
    return (yield from contest(side, fractions, least, counts, widths, ties))


def tell(side: Side, champions: Champions, asked: Bools | None = None) -> Rounds[Ints | None]:
    """The last party tells the first the winners' places, of which this one makes their numbers, (nodes,); one message.

    Args:
        asked: at the last, which nodes it tells of (all, if it is None); the number of another is 0 at the first.
    """
    nodes = len(champions.places)
    if not side.first:
        told = champions.places + 1
        yield from trade([np.where(True if asked is None else asked, told, 0).astype(np.uint64)], [])
        return None
    (places,) = yield from trade([], [(nodes,)])
    if (places > champions.places.shape[1]).any():
        raise Malformed("the place of a winner is beyond the last candidate")
    numbers_ = np.concatenate([np.zeros((nodes, 1), np.int64), champions.places], axis=1)
    return np.take_along_axis(numbers_, places.astype(np.int64)[:, None], 1)[:, 0]


def answer(side: Side, told: Ints | None, nodes: int) -> Rounds[Bools]:
    """Which nodes (nodes,) the first party's candidates won, as the numbers say that `tell` gave it."""
    if side.first:
        assert told is not None
        won: Bools = told > 0
        yield from trade([packed(won)], [])
        return won
    (bits,) = yield from trade([], [(words_of(nodes),)])
    return unpacked(bits, nodes).astype(bool)


def hand_over(side: Side, champions: Champions) -> Rounds[Words]:
    """Fresh shares (2, nodes, w) of the winners: the feature party's are for another party, the last keeps its own.

    Without that whoever dealt the shares would find its own words among those handed over.
    """
    fractions = champions.fractions
    if side.first:
        fresh = np.frombuffer(urandom(fractions.nbytes), np.uint64).reshape(fractions.shape)
        yield from trade([fresh], [])
        return add(fractions, fresh)
    (fresh,) = yield from trade([], [fractions.shape])
    return sub(fractions, fresh)


def choose_owner(
    side: Side, champions: Sequence[Words], own: Sequence[Bound] | None, widths: Widths
) -> Rounds[Ints | None]:
    """The party (1, 2, ...) of each node's winner, 0 being the label holder: it alone, the first here, learns them.

    Args:
        champions: shares (2, nodes, w) of each party's winners, in the order of the parties, w at least `widths.words`.
        own: the label holder's, by node.
    """
    w, bounds = widths.words, [bound[3:] for bound in own] if own else [(0, 0)] * champions[0].shape[1]
    fraction = np.stack([numbers(column, w)[:, None] for column in zip(*bounds, strict=True)])
    rows = np.concatenate([fraction, np.stack([one[..., :w] for one in champions], axis=2)], axis=2)
    best = yield from contest(
        side, rows, None, np.zeros((0, *rows.shape[1:3], 1), np.uint64), widths, np.arange(rows.shape[2])
    )
    return (yield from tell(side, best))


def inspect(side: Side, layout: Stage | Owners, seed: bytes, corrections: bytes) -> Rounds[bool]:
    """Whether the batch must not be used, since both parties opened it and found it right; one round, or two.

    A coin of both, which the dealer cannot know when it deals, says of one of `ONE_OF` batches that it is opened: the
    parties show each other their seeds, deal by them again and compare. One wrong batch is found with probability
    1/`ONE_OF`; docs/cryptography.md has what one that passes gives.

    Args:
        seed, corrections: what the side was made of.

    Raises:
        Malformed: the dealer's corrections are not what the seeds give.
    """
    coin = urandom(8)
    other = yield from exchange(coin, len(coin))
    if (int.from_bytes(coin) + int.from_bytes(other)) % ONE_OF:
        return False
    peer = yield from exchange(seed, SEED_BYTES)
    again = Dealer((peer, seed) if side.first else (seed, peer))
    layout.deal(again)
    if b"".join(again.corrections[side.first]) != corrections:
        raise Malformed("the dealer's corrections are not what the seeds give: it deals wrong numbers")
    return True
