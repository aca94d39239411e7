"""The choice by shares is that of the rule in fractions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.shares.parties import GAMMA, KINDS, UNIT, Rule, chosen, drawn, plain
from treetap.shares.choice import Stage


def trial(rng: np.random.Generator, rule: Rule, nodes: int, candidates: int, kinds: Sequence[str] = KINDS) -> int:
    """Choose in random nodes, some with an own split as good as a candidate's; how many the feature party won."""
    classes = rule.targets if rule.targets > 1 else 0
    made = [drawn(rng, str(rng.choice(kinds)), candidates, classes) for _ in range(nodes)]
    if not rule.records and not classes:
        made = [*map(plain, made)]
    floors = []
    for node in made:
        left = node.left[rng.integers(candidates)]
        equal = rng.integers(7) == 6 and rule.allows(node, left)
        floors.append(rule.fraction(node, left) if equal else rule.floor(node, 0 if classes else GAMMA))
    widths = rule.widths(made, candidates)
    own, want = rule.own(made, floors, widths)
    assert chosen(Stage(widths, candidates, nodes, nodes), made, own, rule) == want
    return sum(number > 0 for number in want)


def drawn_rule(rng: np.random.Generator) -> Rule:
    """λ from one unit on, least weights from none on, counted records or not, or ten classes with any least size."""
    if rng.integers(5) == 0:
        return Rule(0, int(rng.integers(1, 4)), 0, 10)
    weight = max(1, int(rng.choice([0, 0, 1, 0.3]) * UNIT))
    return Rule(int(rng.choice([1, 1, UNIT, 3 << 30])), weight, int(rng.choice([0, 0, 2, 5])))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.second_tier) for seed in range(1, 17))])
def test_winners_are_those_of_the_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    won = sum(trial(rng, drawn_rule(rng), 100, int(rng.integers(1, 60))) for _ in range(15))
    assert 300 < won < 1_200
