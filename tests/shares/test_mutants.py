"""What goes wrong if a step of the choice on shares is wrong: each mutant is caught by a check that the code passes."""

from __future__ import annotations

import inspect
import sys
import textwrap
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.shares.parties import KINDS, UNIT, Rule
from tests.shares.test_choice import trial
from treetap.errors import Malformed
from treetap.shares import products, signs, tournament, widths

#: Rules that together notice each mutant: cross products of few units, heavy sides, counted records, classes.
RULES = Rule(1, 1), Rule(UNIT, UNIT), Rule(UNIT, 1, 4), Rule(0, 2, 0, 10)


def mutate(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, old: str, new: str) -> None:
    """Put a function or property with another text in its place, wherever it has been imported."""
    found = inspect.getattr_static(owner, name)
    source: Any = found.fget if isinstance(found, property) else found
    text = textwrap.dedent(inspect.getsource(source))
    assert text.count(old) >= 1, f"{name} has no {old!r}"
    module = owner if isinstance(owner, ModuleType) else sys.modules[owner.__module__]
    made = dict(vars(module))
    exec(compile(text.replace(old, new), f"mutant of {name}", "exec"), made)
    if not isinstance(owner, ModuleType):
        monkeypatch.setattr(owner, name, made[name])
        return
    for other in [*sys.modules.values()]:
        if (
            getattr(other, "__name__", "").startswith(("treetap.shares", "tests.shares"))
            and getattr(other, name, None) is found
        ):
            monkeypatch.setattr(other, name, made[name])


def caught() -> bool:
    """Whether some node has another winner than the rule says."""
    rng = np.random.default_rng(7)
    try:
        for _ in range(3):
            for rule in RULES:
                trial(rng, rule, 60, int(rng.integers(20, 60)), KINDS)
            trial(rng, RULES[0], 200, 60, ["units"])
    except (AssertionError, Malformed):
        return True
    return False


Edit = tuple[Any, str, str, str]
CONTEST, TESTED = (tournament, "contest"), (tournament, "_tested")
EDITS: dict[str, list[Edit]] = {
    "nothing": [],
    "equal ones win by chance": [
        (
            *CONTEST,
            "sub(numbers.take(i, 1), numbers.take(j, 1))",
            "np.zeros((nodes, len(i), w), np.uint64)",
        )
    ],
    "numbers of the level before": [(*CONTEST, "take(numbers, best)", "numbers[:, : best.shape[1]].copy()")],
    "light ones win": [(*CONTEST, "wins = yield from outcome", "yield from outcome")],
    "a least weight of one unit more": [
        (
            *CONTEST,
            "sub(shares[1], least)",
            "sub(shares[1], least + np.eye(1, w, dtype=np.uint64) * np.uint64(side.first))",
        )
    ],
    "the highest bit of a slot is not known": [(widths, "lift", "offset + bits - 1, 1", "offset + bits - 2, 1")],
    "sums wrap the wrong way": [(widths, "lift", "wraps = _at_least", "wraps = ~_at_least")],
    "no carry between slots": [(widths, "lift", "values[1:] = add(values[1:], carries[:-1])", "pass")],
    "signed sums stay shifted": [
        (widths, "lift", "values[: widths.signed] = sub(values[: widths.signed], shifts)", "pass")
    ],
    "numerators are wider than compared": [(widths.Widths, "numerator", "self.weight + 1", "self.weight - 12")],
    "cross products have no room for numbers": [(widths.Widths, "cross", "+ self.number", "- 8")],
    "numbers are wider than compared": [(widths.Widths, "number", "bit_length()", "bit_length() - 4")],
    "weights are wider than compared": [(*TESTED, "widths.denominator", "widths.denominator - 4")],
    "counts are wider than compared": [(*TESTED, "widths.count + 1", "widths.count - 1")],
    "records are not counted": [(*CONTEST, "conjunction(side, passed)", "conjunction(side, passed[[0, 0, 0]])")],
    "no digits below stop carries": [
        (
            signs,
            "sign",
            "bits_of(numbers, bits, 1 + DIGIT * digits)",
            "np.roll(bits_of(numbers, bits, 1 + DIGIT * digits), bits, 0)",
        )
    ],
    "a term of a carry is lost": [
        (signs, "sign", "table, mine ^", "table * (np.arange(len(table)) < len(table) - 1)[:, None, None], mine ^")
    ],
    "light ones win by comparison": [(signs, "outcome", "[ex, ey, ~ew]", "[ex, ey, ew]")],
    "a factor of two is lost": [(products, "scores", "return add(num, add(twice, twice))", "return add(num, twice)")],
    "a product of masks is lost": [(products, "scores", "sub(alpha_a[k], gamma_b[k])", "alpha_a[k].copy()")],
    "one of several targets counts": [(products, "scores", "zip(ex, eg,", "zip(ex[:1], eg[:1],")],
    "places are not those before a shuffle": [(*CONTEST, "take(order[..., None], at[..., 0])[:, 0, 0]", "at[:, 0, 0]")],
}


@pytest.mark.second_tier(but=8)
@pytest.mark.parametrize("name", EDITS)
def test_a_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for edit in EDITS[name]:
        mutate(monkeypatch, *edit)
    assert caught() == (name != "nothing")
