"""Noise on the sums of a feature party's columns: how much (ε, δ) asks for, and its draws.

docs/column-privacy.md has the proof. A record's numbers, each divided by its bound, have squares of at most R in all:
the number of slots, or 1 where one slot alone holds the record. A node costs ρ = R / z², and a record lies in at most
`max_depth` nodes of a tree that are summed. Trees cost ρ = D · max_depth · R / z², where D is their number or, where
draws follow from the job alone, the largest sum of squares of one record's. That is given the left sets of the splits
that the party wins, and for two tables that differ in the bin of one record in one column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from treetap.arrays import Ints
from treetap.errors import Malformed
from treetap.privacy.discrete_gaussian import discrete_gaussians
from treetap.privacy.zcdp import rho_of
from treetap.trees.candidates import CandidateList
from treetap.trees.loss import UNIT, record_bounds
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.tree_bins import accumulate_cells

#: Draws of a discrete Gaussian: (their number, σ²) → (number,).
Draws = Callable[[int, Fraction], Ints]
#: Most sums of a node, by which the room for noise is computed.
MOST_SUMS = 1 << 25
#: z² is rounded up to a multiple of 2^−20, so that it does not depend on the last bit of a logarithm.
_UNIT = 1 << 20


@dataclass(frozen=True)
class ColumnPrivacy:
    """(ε, δ) of what a job's label holder gets of a party's sums in one attempt.

    Attributes:
        epsilon, delta: given the left sets.
        trees: the most trees that the party sends sums of.
    """

    epsilon: float
    delta: float
    trees: int

    @classmethod
    def said(cls, party: str, epsilon: float, delta: float, trees: int) -> ColumnPrivacy:
        """What a party says of its noise. Raises `Malformed` for numbers that no party's file can have."""
        if not (0 < epsilon <= 1e6 and 0 < delta < 0.1 and 1 <= trees <= 1_000_000):
            raise Malformed(f"{party} says that its sums have noise, with numbers that are out of range")
        return cls(epsilon, delta, trees)

    @property
    def rho(self) -> float:
        """The ρ of an attempt."""
        return rho_of(self.epsilon, self.delta)

    @property
    def hiding_bits(self) -> int:
        """The bits h of hiding by which a lattice adds at most δ / 100: (1 + e^ε) · 2^−h."""
        return math.ceil(
            (self.epsilon + math.log1p(math.exp(-self.epsilon)) - math.log(self.delta / 100)) / math.log(2)
        )

    def variance(self, cost: int) -> Fraction:
        """z² of an attempt that costs ρ = `cost` at z = 1, rounded up."""
        return Fraction(math.ceil(cost / self.rho * _UNIT), _UNIT)

    def noise(self, params: BoostingParams, outputs: int) -> SumNoise:
        """The noise on the sums of boosting, by the number of outputs of its trees."""
        g_most, h_most = record_bounds(params.objective, params.largest_factor)
        bounds = (*[g_most] * outputs, *[h_most] * outputs, 1)
        return self.noise_on(params, bounds, self.trees * len(bounds))

    def noise_of_forest(self, params: ForestParams, slots: int, draws: int) -> SumNoise:
        """The noise on a forest's sums of records in this number of slots; `draws`: see `most_draws`."""
        if params.criterion == "gini":
            return self.noise_on(params, (1,) * slots, draws, counted=True)  # a record has one class
        return self.noise_on(params, (UNIT, 1), 2 * draws)

    def noise_of_tree(self, params: TreeParams, party: str, values: Ints) -> SumNoise:
        """The noise on a party's sums of a tree's values (N, S), the further slot of `SumNoise.counted` among them."""
        slots = values.shape[1]
        if isinstance(params, BoostingParams):
            return self.noise(params, (slots - 1) // 2)
        assert isinstance(params, ForestParams)
        draws = most_draws(params, party, len(values))
        return self.noise_of_forest(params, slots - (params.criterion == "gini"), draws)

    def noise_on(self, params: TreeParams, bounds: tuple[int, ...], cost: int, *, counted: bool = False) -> SumNoise:
        """The noise on sums of records with these bounds; `cost`: D · R. Of `counted` see `SumNoise`."""
        numbers = MOST_SUMS * (len(bounds) + counted) * self.trees << params.max_depth
        return SumNoise(self.variance(cost * params.max_depth), bounds, params.max_bin + 1, numbers, counted)


def largest_guess(epsilon: float, delta: float, most: float, bins: int) -> float:
    """The largest chance of naming a record's bin in one column that (ε, δ) allows, given the left sets.

    `most`: the share p of the most frequent of W = `bins` bins. Whatever else the reader knows, it names each bin u
    rightly with a chance a(u) ≤ e^ε · b(u) + δ, b(u) its chance of naming u where another bin is true; summed over
    bins as they occur the two make up all that it names, so that Σ π(u) · a(u) is at most

        p · (e^ε + (W − 1) · δ) / (p · e^ε + 1 − p).
    """
    factor = math.exp(-epsilon)
    return min(1.0, most * (1 + (bins - 1) * delta * factor) / (most + (1 - most) * factor))


def most_draws(params: TreeParams, party: str, records: int) -> int:
    """D by the draws of the job's seed: a record's largest Σ of squares over the trees of a party, at least 1."""
    squares = np.zeros(records, dtype=np.int64)
    for t in range(params.n_estimators):
        if params.takes_part(t, party):
            squares += params.drawn(t, records) ** 2
    return max(int(squares.max(initial=1)), 1)


def sentences(of_parties: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The meaning for the terminal, the model card and reports; by party the entry of a label holder's manifest."""
    return [
        f"Column privacy of {party}: its sums have noise in every cell, a discrete Gaussian of z = {said['z']:.4g} "
        f"times a record's largest value. It gives epsilon {said['epsilon']:g}, delta {said['delta']:g} (rho "
        f"{said['rho']:.4g}) in one attempt of at most {said['trees']:g} trees for one record's bin in one column, "
        f"given the left sets of the splits that {party} won, which are exact. A record that differs in all columns "
        "has their number times that rho. Bins are fixed, and encrypted values lie in the job's range."
        for party, said in of_parties.items()
    ]


def drawn_cells(candidates: CandidateList, noise: SumNoise, nodes: int, draws: Draws = discrete_gaussians) -> Ints:
    """Noise of the cells of nodes, (S, nodes, width) in the layout of `CandidateList.cell`.

    A draw for each bin of each column, then a W-th part of the column's whole noise is taken off each, rounded so that
    the parts add up: the noise of a column's W bins is 0 in all.
    """
    shapes = candidates.shapes
    widths = np.array([shape.n_bins + shape.has_missing for shape in shapes], dtype=np.int64)
    column = np.repeat(np.arange(len(shapes)), widths)
    first = np.cumsum(widths) - widths
    number = np.arange(len(column)) - first[column]
    cells = np.zeros((len(noise.bounds), nodes, int(candidates.cell[-1])), dtype=np.int64)
    if not len(column):
        return cells
    place = candidates.cell[column] + number
    for slot, bound in enumerate(noise.bounds):
        drawn = draws(nodes * len(column), noise.variance * bound * bound).reshape(nodes, len(column))
        part, rest = np.divmod(np.add.reduceat(drawn, first, axis=1), widths)
        cells[slot][:, place] = drawn - part[:, column] - (number < rest[:, column])
    return cells


def drawn_sums(candidates: CandidateList, noise: SumNoise, nodes: int, draws: Draws = discrete_gaussians) -> Ints:
    """Noise of the left sums of nodes, (nodes, candidates, S), in the canonical order."""
    return accumulate_cells(drawn_cells(candidates, noise, nodes, draws), candidates)
