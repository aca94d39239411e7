"""Two parties of a stage in one process, random nodes with what makes them hard, and the rule in fractions."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from treetap.arrays import Words
from treetap.native.rings import add
from treetap.shares.choice import Stage, answer, choose, tell
from treetap.shares.products import numbers
from treetap.shares.streams import Dealer, Round, Rounds, Side
from treetap.shares.tournament import Champions
from treetap.shares.widths import Widths, lift

#: Units of a gradient of 1, and the least gain, 1e-6 rounded up.
UNIT, GAMMA = 1 << 32, 4295
Numbers = tuple[int, ...]

# ---- running parties


def run(last: Rounds[Any], first: Rounds[Any], seen: list[tuple[Round, Round]] | None = None) -> tuple[Any, Any]:
    """Both parties' results, round by round, each message of the length that its reader says."""
    parties, results = (last, first), [None, None]
    got: list[bytes | None] = [None, None]
    while True:
        rounds: list[Round] = []
        for number, (party, message) in enumerate(zip(parties, got, strict=True)):
            try:
                rounds.append(next(party) if message is None else party.send(message))
            except StopIteration as end:
                results[number] = end.value
        if not rounds:
            return results[0], results[1]
        one, other = rounds
        assert (one.due, other.due) == (len(other.send), len(one.send))
        if seen is not None:
            seen.append((one, other))
        got = [other.send, one.send]


def sides(dealer: Dealer) -> tuple[Side, Side]:
    """The last and the first, with what was dealt."""
    last, first = (Side(bool(k), dealer.seeds[k], b"".join(dealer.corrections[k])) for k in (0, 1))
    return last, first


def integers(shares: Words) -> list[int]:
    """Signed numbers of rows of words."""
    size = 8 * shares.shape[-1]
    raw = np.ascontiguousarray(shares).tobytes()
    return [int.from_bytes(raw[at : at + size], "little", signed=True) for at in range(0, len(raw), size)]


def split(values: Sequence[int], modulus: int, w: int) -> tuple[Words, Words]:
    """Values plus uniform masks modulo a number, and the masks' negatives."""
    masks = [secrets.randbelow(modulus) for _ in values]
    masked = [(value + mask) % modulus for value, mask in zip(values, masks, strict=True)]
    return numbers(masked, w), numbers([-mask % modulus for mask in masks], w)


# ---- nodes and the rule


def moduli(slots: Sequence[int]) -> Numbers:
    """Two coprime moduli of the fewest bits that hold slots."""
    bits = -(-(sum(slots) + 1) // 2)
    return 1 << bits, (1 << bits) - 1


@dataclass(frozen=True)
class Rule:
    """What decides of a node: λ′, the least weight and the least records of a side, and how many x_k there are.

    Numbers of a node and of left sets are x_1, ..., x_K, the weight, and the records where these are counted. Of
    classes (K > 1) the weight is the sum of the x_k.
    """

    lam: int
    weight: int
    records: int = 0
    targets: int = 1

    def widths(self, nodes: Sequence[Node], candidates: int) -> Widths:
        """The least that hold all numbers of these nodes."""
        columns = [*zip(*(left for node in nodes for left in node.all), strict=True)]
        sizes = [max(map(abs, column)).bit_length() for column in columns]
        if self.targets > 1:
            whole = max(sum(node.whole) for node in nodes).bit_length()
            slots, value, weight, signed = tuple(size + 1 for size in sizes), whole, whole + 1, 0
        else:
            value, weight = sizes[0], (max(node.whole[1] for node in nodes) + self.lam + 1).bit_length()
            slots, signed = (value + 2, *(size + 1 for size in sizes[1:])), 1
        count = sizes[2] if self.records else 0
        return Widths(slots, signed, moduli(slots), value, weight, self.targets, count, candidates)

    def side(self, left: Numbers) -> int:
        """The weight of a set."""
        return sum(left) if self.targets > 1 else left[1]

    def allows(self, node: Node, left: Numbers) -> bool:
        """Whether both sides are heavy enough."""
        y = self.side(left)
        if not self.weight <= y <= self.side(node.whole) - self.weight:
            return False
        return not self.records or self.records <= left[2] <= node.whole[2] - self.records

    def fraction(self, node: Node, left: Numbers) -> tuple[int, int]:
        """Num and Den of a left set."""
        y, other = self.side(left) + self.lam, self.side(node.whole) - self.side(left) + self.lam
        sums = [*zip(left, node.whole, strict=True)][: self.targets]
        return sum(x * x for x, _ in sums) * other + sum((g - x) ** 2 for x, g in sums) * y, y * other

    def winner(self, node: Node, floor: Numbers) -> int:
        """The number of the first best candidate, 0 if none exceeds the floor."""
        best, number = Fraction(*floor), 0
        for k, left in enumerate(node.left, 1):
            if self.allows(node, left) and Fraction(*self.fraction(node, left)) > best:
                best, number = Fraction(*self.fraction(node, left)), k
        return number

    def floor(self, node: Node, gain: int = GAMMA) -> Numbers:
        """What candidates must exceed: the node's own score, and the least gain more."""
        whole = self.side(node.whole) + self.lam
        return sum(g * g for g in node.whole[: self.targets]) + gain * whole, whole

    def own(self, nodes: Sequence[Node], floors: Sequence[Numbers], widths: Widths) -> tuple[list[Any], list[int]]:
        """What the label holder gives, and the winners; a node too light for any split cannot be won."""
        rows, want = list[Any](), []
        for node, (num, den) in zip(nodes, floors, strict=True):
            whole, c = self.side(node.whole) + 2 * self.lam, self.weight + self.lam
            least = c * (whole - c)
            times = -(-least // den) if self.side(node.whole) >= 2 * self.weight else 0
            if times and num * times < 1 << widths.numerator:
                rows.append((whole, node.whole[: self.targets], least, num * times, den * times, node.whole[-1]))
                want.append(self.winner(node, (num, den)))
            else:
                rows.append((whole, node.whole[: self.targets], 1, (1 << widths.numerator) - 1, 1, node.whole[-1]))
                want.append(0)
        return rows, want


@dataclass(frozen=True)
class Node:
    """Numbers of a node's records, and of the left sets of all candidates."""

    whole: Numbers
    left: list[Numbers]

    @property
    def all(self) -> list[Numbers]:
        """Of the node itself too."""
        return [*self.left, self.whole]


#: What the values of a node's records are: any, of one magnitude, many zeros, few records, two, full widths, few units.
KINDS = ("any", "equal", "zeros", "two", "full", "units")


def drawn(rng: np.random.Generator, kind: str, candidates: int, classes: int = 0) -> Node:
    """A node with empty and full left sets, equal ones and complements among its candidates.

    Args:
        classes: of how many its records are, in the place of g and h.
    """
    records = {"two": 2, "full": 40, "units": int(rng.integers(2, 7))}.get(kind, int(rng.integers(2, 40)))
    g, h = rng.integers(-UNIT, UNIT + 1, records), rng.integers(0, UNIT // 4 + 1, records)
    if kind == "equal":
        g, h = rng.choice([-UNIT // 2, UNIT // 2], records), np.full(records, UNIT // 4)
    if kind == "full":
        g = rng.choice([-UNIT, UNIT], records) if rng.integers(2) else np.full(records, UNIT * rng.choice([-1, 1]))
        h = np.full(records, UNIT // 4)
    if kind == "zeros":
        g, h = g * rng.integers(0, 2, records), h * rng.integers(0, 2, records)
    if kind == "units":
        g, h = rng.integers(-2, 3, records), rng.integers(0, 3, records)
    values = np.stack([g, h, np.ones(records, np.int64)], axis=1)
    if classes:
        values = (
            np.eye(classes, dtype=np.int64)[rng.integers(0, classes, records)] * rng.integers(0, 4, records)[:, None]
        )
    sets = rng.random((candidates, records)) < rng.random((candidates, 1))
    sets[rng.integers(0, candidates, candidates // 4)] = False
    sets[rng.integers(0, candidates, candidates // 4)] = True
    source, target = rng.integers(0, candidates, (2, candidates // 2))
    sets[target] = sets[source]
    target = rng.integers(0, candidates, candidates // 4)
    sets[target] = ~sets[source[: len(target)]]
    return Node(tuple(values.sum(axis=0).tolist()), [tuple(row) for row in (sets @ values).tolist()])


def plain(node: Node) -> Node:
    """Without its numbers of records."""
    return Node(node.whole[:2], [left[:2] for left in node.left])


# ---- a stage


def pair(side: Side, masked: Words, stage: Stage, own: list[Any] | None, rule: Rule) -> Rounds[Champions]:
    """The choice of a stage of which all nodes are built."""
    widths, nodes, targets = stage.widths, stage.nodes, stage.widths.targets
    values = (yield from lift(side, masked, widths)).reshape(len(widths.slots), nodes, -1, widths.words)
    y = values[1] if targets == 1 else reduce(add, values)
    left = values[2, ..., :1] if widths.count else None
    y = y if side.first else add(y, numbers([rule.lam], widths.words))
    bounds, drawn = (None, []) if own is None else ([row[:5] for row in own], [row[5] for row in own])
    fewest = rule.records if side.first else 0
    return (yield from choose(side, values[:targets], y, bounds, widths, left, drawn, fewest))


def whole(side: Side, masked: Words, stage: Stage, own: list[Any] | None, rule: Rule) -> Rounds[Any]:
    """The same, and what is told: at the first the winners' numbers, at the last which nodes the first party won."""
    champions = yield from pair(side, masked, stage, own, rule)
    told = yield from tell(side, champions)
    won = yield from answer(side, told, stage.nodes)
    return told if side.first else won


def masked_sums(stage: Stage, nodes: Sequence[Node]) -> tuple[Words, Words]:
    """Both parties' shares of the packed sums."""
    widths = stage.widths
    rows = [left for node in nodes for left in node.left]
    values = [sum(value << offset for value, offset in zip(row, widths.offsets, strict=False)) for row in rows]
    return split(values, widths.product, widths.sum_words)


def chosen(stage: Stage, nodes: Sequence[Node], own: list[Any], rule: Rule, seen: Any = None) -> list[int]:
    """The winners' numbers as the feature party learns them."""
    dealer = Dealer()
    stage.deal(dealer)
    assert tuple(sum(map(len, part)) for part in dealer.corrections) == stage.dealt_bytes
    last, first = (
        whole(side, masked, stage, None if side.first else own, rule)
        for side, masked in zip(sides(dealer), masked_sums(stage, nodes), strict=True)
    )
    won, told = run(last, first, seen)
    assert won.tolist() == (told > 0).tolist()
    numbers_: list[int] = told.tolist()
    return numbers_
