"""The accountant of leaf weights: the stated σ, and that ρ gives the (ε, δ) it was solved for."""

from __future__ import annotations

import math

import pytest

from treetap.privacy.zcdp import LeafWeightPrivacy, statement
from treetap.trees.pivodl_params import PivodlParams


@pytest.mark.parametrize(("as_published", "sigma", "releases"), [(False, 4.37, 40), (True, 1.54, 5)])
def test_sigma_is_the_stated_one(as_published: bool, sigma: float, releases: int) -> None:
    """Five trees of depth three at ε 8, δ 1e-5."""
    privacy = LeafWeightPrivacy.of(PivodlParams(epsilon=8.0, as_published=as_published))
    assert privacy is not None
    assert round(privacy.sigma, 2) == sigma
    assert privacy.releases == releases
    assert privacy.bounds != as_published
    assert privacy.deviation == pytest.approx(0.3 * 4 * privacy.sigma)  # the default rate, twice the default clip


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 2.0, 10.0, 1e5])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_rho_gives_epsilon_back(epsilon: float, delta: float) -> None:
    """ε = ρ + 2·√(ρ·ln(1/δ)), which does not suffer from cancellation at small ε; releases of 1/2σ² add up to ρ."""
    privacy = LeafWeightPrivacy(epsilon, delta, 1.0, 7, 7)
    assert privacy.rho + 2 * math.sqrt(privacy.rho * -math.log(delta)) == pytest.approx(epsilon, rel=1e-9)
    assert 7 / (2 * privacy.sigma**2) == pytest.approx(privacy.rho, rel=1e-12)


def test_the_statement_has_every_figure_and_its_limits() -> None:
    """It names ε, δ, C, ρ, σ, L and that only LEAF_WEIGHT is covered; the paper's accounting is called no bound."""
    text = " ".join(statement(PivodlParams(epsilon=8.0)))
    says = ("epsilon 8", "delta 1e-05", "clip C 2", "rho 0.02623", "sigma 4.366", "L = 40", "nothing else")
    for part in (*says, "Measures of the training records are of scores with this noise"):
        assert part in text
    assert "not a bound" not in text
    assert "one release per tree; not a bound" in " ".join(statement(PivodlParams(epsilon=8.0, as_published=True)))
    assert "exact" in " ".join(statement(PivodlParams()))
