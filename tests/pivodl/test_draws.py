"""Draws of parties: by the seed and every party's nonce alone, uniform, never the source, never a barred party."""

from __future__ import annotations

import inspect
import itertools
import random

import pytest

from treetap.trees.pivodl_rules import RoleDraws, able_sources, barred, commitment

PARTIES = ["a", "b", "c", "d"]
NONCES = {party: bytes([place]) * 32 for place, party in enumerate(PARTIES)}
DRAWS = RoleDraws(0, PARTIES, NONCES)
#: χ² of 3 degrees of freedom is larger in one case of a million.
ONE_IN_A_MILLION = 30.7


def _all(draws: RoleDraws, count: int = 40) -> list[object]:
    found: list[object] = []
    for tree in range(count):
        found += [draws.aggregation_party(tree), draws.encryption_party(tree)]
        found += [draws.split_party(tree, node, source, ()) for node in (1, 2, 7) for source in PARTIES]
    return found


def test_a_draw_is_the_same_whenever_it_is_asked_for() -> None:
    """Other draws between, another object, another order of nonces: the same. No attempt is among its arguments."""
    again = RoleDraws(0, PARTIES, dict(reversed(list(NONCES.items()))))
    backwards = [again.split_party(tree, 3, "b", ()) for tree in reversed(range(40))]
    assert backwards[::-1] == [DRAWS.split_party(tree, 3, "b", ()) for tree in range(40)]
    assert _all(again) == _all(DRAWS) == _all(DRAWS)
    for draw in (RoleDraws, RoleDraws.aggregation_party, RoleDraws.encryption_party, RoleDraws.split_party):
        assert "attempt" not in inspect.signature(draw).parameters


@pytest.mark.parametrize("party", PARTIES)
def test_any_one_nonce_changes_the_draws(party: str) -> None:
    """One bit of one party's nonce, whichever party's."""
    nonce = NONCES[party]
    for other in (bytes([nonce[0] ^ 1]) + nonce[1:], nonce[:-1] + bytes([nonce[-1] ^ 128])):
        changed = RoleDraws(0, PARTIES, {**NONCES, party: other})
        differing = sum(one != two for one, two in zip(_all(changed), _all(DRAWS), strict=True))
        assert differing > len(_all(DRAWS)) / 2


def test_the_seed_and_the_parties_names_change_the_draws() -> None:
    """So do two nonces that are exchanged."""
    swapped = {**NONCES, "a": NONCES["b"], "b": NONCES["a"]}
    for other in (RoleDraws(1, PARTIES, NONCES), RoleDraws(0, PARTIES, swapped)):
        assert _all(other) != _all(DRAWS)


def test_every_draw_is_its_own() -> None:
    """Those of trees, nodes and sources that differ in one alone differ as chance has it."""
    found = {
        (tree, node, source): DRAWS.split_party(tree, node, source, {"a", "b"})
        for tree, node, source in itertools.product(range(8), range(1, 9), "ab")
    }
    for (tree, node, source), party in found.items():
        assert party in ("c", "d")
        for place, others in enumerate((range(8), range(1, 9))):
            name = [tree, node, source]
            assert {found[(*name[:place], other, *name[place + 1 :])] for other in others} == {"c", "d"}  # type: ignore[index]
    differing = sum(found[tree, node, "a"] != found[tree, node, "b"] for tree in range(8) for node in range(1, 9))
    assert 16 < differing < 48


def test_draws_are_uniform() -> None:
    """Counts over many trees: all parties for aggregation, three for the encryption and split parties."""
    trees = 4000

    def chi_square(drawn: list[str | None], able: list[str]) -> float:
        assert set(drawn) == set(able)
        expected = len(drawn) / len(able)
        return sum((drawn.count(party) - expected) ** 2 / expected for party in able)

    assert chi_square([DRAWS.aggregation_party(tree) for tree in range(trees)], PARTIES) < ONE_IN_A_MILLION
    for source in PARTIES:
        able = [party for party in PARTIES if party != source]
        drawn = [DRAWS.split_party(tree, 5, source, ()) for tree in range(trees)]
        assert chi_square(drawn, able) < ONE_IN_A_MILLION
        encrypting = [DRAWS.encryption_party(tree) for tree in range(trees) if DRAWS.aggregation_party(tree) == source]
        assert chi_square(list(encrypting), able) < ONE_IN_A_MILLION


def test_roles_that_must_differ_do() -> None:
    """Aggregation and encryption party; source and split party; barred parties are never drawn."""
    rng = random.Random(0)
    for _ in range(300):
        count = rng.randint(2, 6)
        parties = [f"p{place}" for place in range(count)]
        draws = RoleDraws(rng.getrandbits(60), parties, {party: rng.randbytes(32) for party in parties})
        tree, node, source = rng.randrange(9), rng.randrange(1, 64), rng.choice(parties)
        assert draws.aggregation_party(tree) != draws.encryption_party(tree)
        out = set(rng.sample(parties, rng.randrange(count)))
        split_party = draws.split_party(tree, node, source, out)
        assert (split_party is None) == (not set(parties) - out - {source})
        assert split_party not in {*out, source}


def test_a_commitment_binds_party_and_nonce() -> None:
    """Another party cannot repeat it, and another nonce has another."""
    assert commitment("a", NONCES["a"]) == commitment("a", NONCES["a"])
    assert len({commitment(party, nonce) for party in PARTIES for nonce in NONCES.values()}) == 16


def test_sources_above_a_leafs_sibling_are_barred() -> None:
    """Below the sibling too, not elsewhere; a source for which no party is left to open its sums offers none."""
    sources, leaves = {1: "a", 3: "b", 6: "c"}, {2, 13}
    assert barred(1, sources, leaves) == frozenset()
    assert barred(3, sources, leaves) == {"a"}
    assert barred(6, sources, leaves) == {"a"}
    assert barred(7, sources, leaves) == {"a"}
    assert barred(12, sources, leaves) == {"a", "c"}
    two = {1: "a", 3: "b"}
    assert able_sources(["a", "b"], 3, two, {2}, guarded=True) == ["a"]
    assert able_sources(["a", "b"], 3, two, {2}, guarded=False) == ["a", "b"]
    assert able_sources(["a", "b", "c"], 3, two, {2}, guarded=True) == ["a", "b", "c"]
    assert able_sources(["a", "b"], 7, two, {2, 6}, guarded=True) == []
