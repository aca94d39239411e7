"""The accountant of PIVODL's partial differential privacy: how much noise a job's leaf weights need.

A party that splits a leaf's parent gets the leaf's weight clipped to the ℓ2 norm C and with Gaussian noise (Zhu et al.
2023, §III-C, which leaves the constant of σ open). Each release is ρ-zero-concentrated differentially private with

    ρ per release = 1 / (2σ²)   for noise N(0, (2Cσ)²) per coordinate: 2C bounds what one label changes

(Bun and Steinke 2016, Proposition 1.6). L releases add up to Lρ, and a total ρ gives (ε, δ) for every δ with
ε = ρ + 2·√(ρ·ln(1/δ)) (Proposition 1.3), solved here for ρ. One label enters the gradients of all later trees, so that
every leaf of the job can depend on it: L = T·2^depth, fixed before the job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treetap.trees.pivodl_params import PivodlParams


def rho_of(epsilon: float, delta: float) -> float:
    """The ρ that gives (ε, δ): (√(ln(1/δ) + ε) − √(ln(1/δ)))², written without the difference of near numbers."""
    least = -math.log(delta)
    return (epsilon / (math.sqrt(least + epsilon) + math.sqrt(least))) ** 2


def epsilon_of(rho: float, delta: float) -> float:
    """The ε that ρ gives with this δ: ρ + 2 · √(ρ · ln(1 / δ))."""
    return rho + 2 * math.sqrt(rho * -math.log(delta))


@dataclass(frozen=True)
class LeafWeightPrivacy:
    """The partial differential privacy of one job's leaf weights.

    Attributes:
        epsilon, delta: of all releases together.
        clip: bound C of the ℓ2 norm of a leaf weight W = −G/(H + λ), in units of the scaled label.
        releases: L, the releases that are accounted for.
        leaves: the most leaves that the job can have.
        rate: the learning rate η. The paper clips W and adds ηW to scores (Theorem 3, Algorithm 4); parties send ηW, so
            that clip and noise of what they send are η times those of W.
    """

    epsilon: float
    delta: float
    clip: float
    releases: int
    leaves: int
    rate: float = 1.0

    @classmethod
    def of(cls, params: PivodlParams) -> LeafWeightPrivacy | None:
        """That of a job; None without `epsilon`. As published one release per tree counts, which is no bound."""
        if params.epsilon is None:
            return None
        leaves = params.n_estimators << params.max_depth
        releases = params.n_estimators if params.as_published else leaves
        return cls(params.epsilon, params.delta, params.clip, releases, leaves, params.learning_rate)

    @property
    def rho(self) -> float:
        """The ρ of all releases."""
        return rho_of(self.epsilon, self.delta)

    @property
    def sigma(self) -> float:
        """σ = √(L / 2ρ), the noise multiplier."""
        return math.sqrt(self.releases / (2 * self.rho))

    @property
    def sent_clip(self) -> float:
        """ηC, the bound of the ℓ2 norm of a weight as it is sent and added to scores."""
        return self.rate * self.clip

    @property
    def deviation(self) -> float:
        """The standard deviation 2ηCσ of the noise of a coordinate as it is sent, in units of the scaled label."""
        return 2 * self.sent_clip * self.sigma

    @property
    def bounds(self) -> bool:
        """True if no job can release more leaf weights than are accounted for."""
        return self.releases >= self.leaves


def statement(params: PivodlParams) -> list[str]:
    """What the job's noise covers, as sentences for the terminal and the model card."""
    privacy = LeafWeightPrivacy.of(params)
    if privacy is None:
        return ["Leaf weights are exact: the job has no epsilon, and so no differential privacy."]
    accounting = f"L = {privacy.releases} releases are accounted for" + (
        f", every leaf of {params.n_estimators} trees of depth {params.max_depth}."
        if privacy.bounds
        else f": one release per tree; not a bound, since the job can release {privacy.leaves}."
    )
    return [
        f"Partial differential privacy of leaf weights: epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, "
        f"clip C {privacy.clip:g} (l2 norm of a leaf weight, in units of the scaled label, before the learning rate).",
        f"Zero-concentrated accounting: rho {privacy.rho / privacy.releases:.4g} per release, "
        f"sigma {privacy.sigma:.4g}, noise of standard deviation 2*C*sigma = {2 * privacy.clip * privacy.sigma:.4g} "
        f"on every coordinate, times the learning rate {privacy.rate:g} as the weight itself; {accounting}",
        "It covers the values of LEAF_WEIGHT that the parties which split the leaves' parents receive, given the "
        "structure of the trees, and nothing else: announced gains, sums of nodes, sets of records and exact weights "
        "at other parties are outside it.",
        "Measures of the training records are of scores with this noise, which the parties add up while they train; "
        "predictions use the exact weights, unless they are asked for with noised ones.",
    ]
