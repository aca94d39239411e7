"""Stages with several feature parties, at their edges, of equal lengths, and with wrong messages."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.shares.parties import (
    GAMMA,
    KINDS,
    UNIT,
    Node,
    Rule,
    chosen,
    drawn,
    integers,
    masked_sums,
    pair,
    plain,
    run,
    sides,
)
from treetap.errors import Malformed
from treetap.native.rings import add
from treetap.shares import choice
from treetap.shares.choice import Owners, Stage, choose_owner, hand_over, inspect, tell
from treetap.shares.streams import Dealer, Round, Side, exchange, together
from treetap.shares.tournament import Champions, winners

RULE = Rule(UNIT, UNIT)
PLAIN = [(-4, 5), (3, 2), (4, 5), (0, 0), (2, 10)]


def tiny(g: int, h: int, left: list[tuple[int, int]]) -> Node:
    """A node by numbers of units."""
    return Node((g * UNIT, h * UNIT), [(x * UNIT, y * UNIT) for x, y in left])


def choice_of(nodes: list[Node], rule: Rule, gain: int = GAMMA, seen: Any = None) -> tuple[list[int], list[int]]:
    """What was chosen, and what the rule says."""
    widths = rule.widths(nodes, max(len(nodes[0].left), 1))
    own, want = rule.own(nodes, [rule.floor(node, gain) for node in nodes], widths)
    return chosen(Stage(widths, len(nodes[0].left), len(nodes), len(nodes)), nodes, own, rule, seen), want


@pytest.mark.parametrize(
    ("nodes", "rule", "gain", "winner"),
    [
        pytest.param([tiny(2, 10, PLAIN)], RULE, GAMMA, 1, id="plain"),
        pytest.param([tiny(2, 10, PLAIN)], Rule(1, 1), GAMMA, 1, id="a penalty of one unit"),
        pytest.param([tiny(2, 10, PLAIN)], Rule(0, 1), GAMMA, 1, id="no penalty: empty sets are 0/0"),
        pytest.param([tiny(2, 10, PLAIN)], RULE, 99 * UNIT, 0, id="the least gain is above every gain"),
        pytest.param([tiny(2, 10, PLAIN)], RULE, UNIT**3, 0, id="and wider than a score"),
        pytest.param([tiny(2, 10, PLAIN)], Rule(UNIT, 6 * UNIT), GAMMA, 0, id="the node is too light"),
        pytest.param([tiny(2, 12, [(1, 5), (1, 7), (0, 0)])], Rule(UNIT, 6 * UNIT), GAMMA, 0, id="all are too light"),
        pytest.param([tiny(0, 2, [(1, 1), (-1, 1)])], RULE, GAMMA, 1, id="two records and a tie"),
        pytest.param([tiny(2, 10, [(-4, 5)])], RULE, GAMMA, 1, id="one candidate"),
        pytest.param([tiny(2, 10, [])], RULE, GAMMA, 0, id="no candidate"),
        pytest.param([tiny(2, 10, PLAIN)] * 65, RULE, GAMMA, 1, id="lanes stay empty"),
        pytest.param([Node((0, 90, 5), [(9, 45, 2), (7, 45, 3)])], Rule(1, 1, 3), 0, 0, id="2m - 1 records"),
        pytest.param([Node((0, 90, 6), [(9, 45, 2), (7, 45, 3)])], Rule(1, 1, 3), 0, 2, id="2m records"),
    ],
)
def test_edges(nodes: list[Node], rule: Rule, gain: int, winner: int) -> None:
    got, want = choice_of(nodes, rule, gain)
    assert got == want == [winner] * len(nodes)


@pytest.mark.second_tier
def test_a_hundred_thousand_candidates() -> None:
    got, want = choice_of([plain(drawn(np.random.default_rng(5), "any", 100_000))], RULE)
    assert got == want


def test_several_parties_of_whom_the_lowest_of_equals_wins() -> None:
    """Each party's candidates are some of the same ones, so that equal winners are common."""
    rng, parties, nodes = np.random.default_rng(6), 3, 60
    drawn_nodes = [plain(drawn(rng, str(rng.choice(KINDS[:-1])), 12)) for _ in range(nodes)]
    widths = replace(RULE.widths(drawn_nodes, 12), numbers=12)
    floors = [
        RULE.fraction(node, node.left[0]) if k % 3 == 0 and RULE.allows(node, node.left[0]) else RULE.floor(node)
        for k, node in enumerate(drawn_nodes)
    ]
    of_parties = [[Node(node.whole, node.left[k : k + 9]) for node in drawn_nodes] for k in range(parties)]
    stage, dealt = Stage(widths, 9, nodes, nodes), []
    handed: tuple[list[Any], list[Any]] = [], []
    for offered in of_parties:
        own, _ = RULE.own(offered, floors, widths)
        dealer = Dealer()
        stage.deal(dealer)
        last, first = sides(dealer)
        sums = masked_sums(stage, offered)
        found = run(pair(last, sums[0], stage, own, RULE), pair(first, sums[1], stage, None, RULE))
        for mine, theirs in zip(handed, run(hand_over(last, found[0]), hand_over(first, found[1])), strict=True):
            mine.append(theirs)
        dealt.append((last, first, *found))
    layout, dealer = Owners(widths, parties, nodes), Dealer()
    layout.deal(dealer)
    assert tuple(sum(map(len, part)) for part in dealer.corrections) == layout.dealt_bytes
    last, first = sides(dealer)
    nothing, owners = run(
        choose_owner(last, handed[1], None, widths), choose_owner(first, handed[0], [row[:5] for row in own], widths)
    )
    assert nothing is None
    told = [
        run(tell(last, mine, owners == number), tell(first, theirs))[1].tolist()
        for number, (last, first, mine, theirs) in enumerate(dealt, start=1)
    ]
    for k, floor in enumerate(floors):
        best, want = Fraction(*floor), (0, 0)
        if RULE.side(drawn_nodes[k].whole) < 2 * RULE.weight:
            best = Fraction(1 << widths.numerator)
        for number, offered in enumerate(of_parties, start=1):
            place = RULE.winner(offered[k], (best.numerator, best.denominator))
            if place:
                best, want = Fraction(*RULE.fraction(offered[k], offered[k].left[place - 1])), (number, place)
        assert (owners[k], [column[k] for column in told]) == (want[0], [want[1] * (n == want[0]) for n in (1, 2, 3)])


def test_winners_sums_open_to_those_of_the_left_set() -> None:
    nodes = [plain(drawn(np.random.default_rng(8), "any", 9)) for _ in range(5)]
    widths = RULE.widths(nodes, 9)
    own, want = RULE.own(nodes, [RULE.floor(node) for node in nodes], widths)
    stage, dealer = Stage(widths, 9, 5, 5), Dealer()
    stage.deal(dealer)
    sums, held = masked_sums(stage, nodes), sides(dealer)
    last, first = run(pair(held[0], sums[0], stage, own, RULE), pair(held[1], sums[1], stage, None, RULE))
    num, den = (integers(column) for column in add(last.fractions, first.fractions))
    for k, number in enumerate(want):
        opened = own[k][3:5]
        assert (num[k], den[k]) == (RULE.fraction(nodes[k], nodes[k].left[number - 1]) if number else opened)


def lengths(nodes: list[Node]) -> list[tuple[int, int]]:
    """Of all rounds."""
    seen: list[tuple[Round, Round]] = []
    choice_of(nodes, RULE, seen=seen)
    return [(len(one.send), len(other.send)) for one, other in seen]


def test_lengths_follow_from_the_layout() -> None:
    full = Node((UNIT * 40, UNIT * 10), [(UNIT * 30, UNIT * 5)] * 7)
    one, other = [full, Node((0, UNIT * 10), [(0, 0)] * 7)], [full, Node((UNIT, UNIT * 9), [(UNIT, UNIT)] * 7)]
    assert lengths(one) == lengths(other)


# ---- what is wrong


@pytest.mark.parametrize("got", [b"1234567", b"123456789", b""])
def test_a_message_of_another_length_is_refused(got: bytes) -> None:
    for party in (exchange(b"", 8), together(exchange(b"1", 3), exchange(b"2", 5))):
        assert next(party).due == 8
        with pytest.raises(Malformed, match=f"has {len(got)} bytes, 8 were due"):
            party.send(got)


def test_corrections_that_end_early_are_refused() -> None:
    with pytest.raises(Malformed, match="corrections end after 15 bytes"):
        Side(True, bytes(32), bytes(15)).dealt(2)


def test_outcomes_that_contradict_each_other_are_refused() -> None:
    circle = np.array([[1, 0, 1]])  # 0 beats 1, 1 beats 2, and 2 beats 0
    assert winners(np.array([[0, 1, 1]]), 3, 3).tolist() == [[1]]
    with pytest.raises(Malformed, match="contradict each other"):
        winners(circle, 3, 3)


def test_a_place_beyond_the_last_is_refused() -> None:
    told = tell(Side(True, bytes(32), b""), Champions(np.zeros((2, 1, 1), np.uint64), np.arange(3)[None]))
    next(told)
    with pytest.raises(Malformed, match="beyond the last candidate"):
        told.send(np.array([4], np.uint64).tobytes())


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("opens", [False, True])
def test_one_of_ten_batches_is_opened_and_dealt_again(
    monkeypatch: pytest.MonkeyPatch, wrong: bool, opens: bool
) -> None:
    layout, dealer = Stage(RULE.widths([tiny(2, 10, PLAIN)], 5), 5, 1, 2), Dealer()
    layout.deal(dealer)
    corrections = [b"".join(parts) for parts in dealer.corrections]
    if wrong:
        corrections[1] = corrections[1][:-1] + bytes([corrections[1][-1] ^ 1])
    monkeypatch.setattr(choice, "urandom", lambda count: bytes(count - 1) + bytes([5 if opens else 7]))
    last, first = (inspect(side, layout, dealer.seeds[side.first], corrections[side.first]) for side in sides(dealer))
    if wrong and opens:
        with pytest.raises(Malformed, match="deals wrong numbers"):
            run(last, first)
    else:
        assert run(last, first) == (opens, opens)
