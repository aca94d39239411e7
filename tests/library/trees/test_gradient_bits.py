"""g and h in few bits: rounding, steps, exact leaves, constraints that hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from party.boosting.layout import implied, layout
from party.pivodl.party_keys import slots_of
from tests.library.trees.tables import Case, cases, encoded, labels_for, signal, table
from tests.library.trees.test_oracle import assert_same
from tests.oracle import oracle_train
from treetap.errors import ConfigError, DataError
from treetap.trees.binning import BinnedTable
from treetap.trees.boosting_criterion import BoostingCriterion, leaf_weights, open_sums
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.centralised import CentralModel, train
from treetap.trees.gradient_bits import Steps, most_units, round_tree
from treetap.trees.loss import UNIT
from treetap.trees.monotone import Monotone
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.slots import Slots

ONE_TREE: dict[str, Any] = {"n_estimators": 1, "learning_rate": 1.0, "max_bin": 8, "subsample": 0.8}


def _bits(params: BoostingParams) -> int:
    """Four, or as many as the job's weights need."""
    return next(bits for bits in range(4, 33) if params.largest_factor <= most_units(bits)[0])


@pytest.mark.second_tier(but=12)
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_trainer_equals_the_oracle(case: Case) -> None:
    """Sampling, absent parties, missing values, weights, penalties, early stopping; every objective and strategy."""
    params = replace(case.params, gradient_bits=_bits(case.params))
    tables = encoded(case.parties, params.max_bin)
    model = train(tables, case.labels, params, case.classes, weights=case.weights)
    oracle = oracle_train(case.parties, case.labels, params, case.classes, weights=case.weights)
    assert_same(model, oracle, tables)
    assert model.ensemble.best_round == oracle.best_round
    exact = train(tables, case.labels, case.params, case.classes, weights=case.weights)
    assert [tree.splits for tree in model.ensemble.trees] != [tree.splits for tree in exact.ensemble.trees]


def _values(n: int = 400, seed: int = 0) -> Any:
    """Summands of two outputs, of which every fifth record has none and some have h of a unit."""
    rng = np.random.default_rng(seed)
    g, h = rng.normal(size=(n, 2)), rng.uniform(0.001, 0.25, size=(n, 2))
    values = np.concatenate([np.rint(g * UNIT), np.rint(h * UNIT), np.ones((n, 1))], axis=1).astype(np.int64)
    values[7::20, 2:4] = 1
    values[::5] = 0
    return values


def test_rounding_is_unbiased_and_of_so_many_bits() -> None:
    """Over many trees the mean of a record's units is its number by the step; h is at least 1 where it counts."""
    values, trees, bits = _values(), 600, 4
    g_most, h_most = most_units(bits)
    made = [round_tree(values, 2.0, bits, 3, tree, (0, 1)) for tree in range(trees)]
    rounded = np.stack([units for units, _ in made])
    steps = made[0][1]
    assert isinstance(steps, Steps)
    assert np.abs(rounded[..., :2]).max() == g_most == 7
    assert rounded[..., 2:4].max() == h_most == 15
    assert (rounded[..., 4] == values[:, 4]).all()
    counts = values[:, 4] > 0
    assert (rounded[:, ~counts] == 0).all()
    assert (rounded[:, counts, 2:4] >= 1).all()
    exact = values / (np.concatenate([steps.g / 2.0, steps.h, [1.0 / UNIT]]) * UNIT)
    mean = rounded.mean(axis=0)
    error = 4.5 * 0.5 / np.sqrt(trees)  # the deviation of a rounded number is at most ½
    assert np.abs(mean[:, :2] - exact[:, :2])[counts].max() < error
    above = counts[:, None] & (exact[:, 2:4] >= 1)
    assert np.abs(mean[:, 2:4] - exact[:, 2:4])[above].max() < error
    assert (rounded[:, 7, 2:4] == 1).all()
    G, H, _ = open_sums(rounded.sum(axis=1).mean(axis=0)[None], steps)
    assert G[0] == pytest.approx(values[:, :2].sum(axis=0) * (2.0 / UNIT), abs=20 * float(steps.g.max()))
    assert (H[0] > values[:, 2:4].sum(axis=0) / UNIT).all()


def test_a_draw_is_of_the_seed_the_tree_the_output_and_the_place() -> None:
    """Each changes it; other records do not, nor does a repetition."""
    values = _values(60)
    values[:] = [UNIT, UNIT, UNIT // 4, UNIT // 4, 1]
    values[0, :4] *= 2  # by which the steps are set

    def rounded(n: int = 60, seed: int = 3, tree: int = 5, outputs: tuple[int, int] = (0, 1)) -> Any:
        return round_tree(values[:n], 1.0, 3, seed, tree, outputs)[0]

    first = rounded()
    assert (rounded() == first).all()
    assert (rounded(40) == first[:40]).all()
    for other in (rounded(seed=4), rounded(tree=6), rounded(outputs=(2, 3))):
        assert (other[:, :4] != first[:, :4]).any(axis=0).all()
    assert (rounded(outputs=(1, 0))[:, [1, 0, 3, 2]] == first[:, :4]).all()
    assert not (first[:, 0] == first[:, 1]).all()


def test_without_bits_nothing_is_changed() -> None:
    """The summands are the very array, and their scale is a number."""
    values = _values()
    units, scale = round_tree(values, 2.0, None, 3, 0, (0, 1))
    assert units is values
    assert scale == 2.0


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_leaves_have_the_weights_of_exact_sums(objective: str) -> None:
    """At two bits too: each leaf's weight is −G/(H + λ) of its records' own g and h, which rounded ones do not give."""
    parties = table(3, 80, [2, 2])
    labels = labels_for(objective, signal(parties, 4), 2)
    params = BoostingParams(objective=objective, gradient_bits=2, max_depth=3, base_score=0.3, **ONE_TREE)
    tables = encoded(parties, params.max_bin)
    model = train(tables, labels, params)
    (tree,) = model.ensemble.trees
    scores = model.predict(tables)[:, 0] - model.ensemble.base_margin[0]
    exact = BoostingRounds(replace(params, gradient_bits=None), 2, labels)
    values, scale, sampled = exact.derivatives(0)
    rounded, steps, _ = BoostingRounds(params, 2, labels).derivatives(0)
    assert len(tree.leaves) > 2
    by_rounded = []
    for leaf in tree.leaves:
        rows = np.flatnonzero(np.isclose(scores, leaf.weights[0], rtol=0, atol=1e-12))
        G, H, count = open_sums(values[rows].sum(axis=0), scale)
        assert leaf.weights[0] == pytest.approx(float(-G[0] / (H[0] + params.reg_lambda)), rel=1e-12)
        assert count == sampled[rows].sum() > 0
        G, H, _ = open_sums(rounded[rows].sum(axis=0), steps)
        by_rounded.append(-G[0] / (H[0] + params.reg_lambda))
    assert not np.allclose(by_rounded, [leaf.weights[0] for leaf in tree.leaves], rtol=0.01)


def _along(model: CentralModel, tables: list[tuple[str, BinnedTable]], column: int) -> Any:
    """Scores of every record with each bin of the first party's column in turn, (bins, N)."""
    name, first = tables[0]
    scores = []
    for code in range(first.features[column].n_bins):
        codes = first.codes.copy()
        codes[:, column] = code
        scores.append(model.predict([(name, replace(first, codes=codes)), *tables[1:]])[:, 0])
    return np.stack(scores)


def _unbounded(self: Monotone, node: int, sums: Any, rows: Any) -> Any:
    del node
    return leaf_weights(sums, self.criterion.scale, self.criterion.params, rows=rows)


@pytest.mark.parametrize("bits", [2, 4])
def test_constraints_hold_though_weights_are_of_exact_sums(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every record a prediction only rises along a constrained column; without the bounds some would fall."""
    parties = table(1, 120, [2, 2])
    labels = labels_for("reg:squarederror", signal(parties, 4), 2)
    params = BoostingParams(objective="reg:squarederror", n_estimators=4, max_depth=4, max_bin=8, gradient_bits=bits)
    params = replace(params, min_child_weight=0.0, reg_lambda=0.1, learning_rate=1.0)
    tables, directions = encoded(parties, params.max_bin), [1, -1]
    tables[0] = (tables[0][0], replace(tables[0][1], directions=np.array(directions)))
    model = train(tables, labels, params)
    assert_same(model, oracle_train(parties, labels, params, monotone={tables[0][0]: directions}), tables)

    def falls(model: CentralModel) -> int:
        along = (np.diff(_along(model, tables, column), axis=0) for column in (0, 1))
        return sum(int((direction * steps < 0).sum()) for direction, steps in zip(directions, along, strict=True))

    assert falls(model) == 0
    monkeypatch.setattr(Monotone, "leaf", _unbounded)
    assert falls(train(tables, labels, params)) > 0


@pytest.mark.parametrize("bits", [2, 5, 32])
def test_slots_are_as_wide_as_sums_of_so_many_bits(bits: int) -> None:
    """Whatever weights there are; the feature party expects the same, and of no other number of bits."""
    params, records = BoostingParams(gradient_bits=bits), 1000
    g_most, h_most = most_units(bits)
    slots = layout(params, records, 1)
    assert slots == Slots(((records * g_most).bit_length() + 1, (records * h_most).bit_length() + 1, 11))
    heavier = replace(params, max_sample_weight=float(min(g_most, 1000)))
    assert layout(heavier, records, 1) == slots == implied(params, records, 3, 0)
    assert bits == 32 or slots.bits < layout(BoostingParams(), records, 1).bits
    assert implied(replace(params, gradient_bits=bits - 1 if bits > 2 else 3), records, 3, 0) != slots
    assert slots_of(PivodlParams(gradient_bits=bits), records) == Slots(slots.widths[:2])
    for sign in (1, -1):
        sums = [sign * records * g_most, records * h_most, records]
        (plain,) = slots.encode([np.array([number]) for number in sums])
        assert slots.decode(plain, 1).tolist() == [sums]
    assert [bounds.tolist() for bounds in BoostingCriterion(1.0, params).ranges(3)] == [[-g_most, 0], [g_most, h_most]]


def test_without_bits_slots_are_those_of_fixed_point() -> None:
    """1000 records, by the widths that there were before."""
    assert layout(BoostingParams(), 1000, 1) == Slots((43, 41, 11))
    assert slots_of(PivodlParams(), 1000) == Slots((43, 41))


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        (BoostingParams(gradient_bits=1), r"gradient_bits must be a whole number in \[2, 32\], not 1$"),
        (BoostingParams(gradient_bits=33), "not 33$"),
        (BoostingParams(gradient_bits=4.0), "not 4.0$"),  # type: ignore[arg-type]
        (PivodlParams(gradient_bits=True), "not True$"),
        (
            BoostingParams(gradient_bits=5, max_sample_weight=16.0),
            "gradient_bits = 5 has 15 units for the largest .g., which is up to 16 times that of an ordinary record "
            r"\(max_sample_weight, .* use gradient_bits = 6, or leave it out$",
        ),
        (BoostingParams(gradient_bits=5, max_sample_weight=2.0, scale_pos_weight=8.0), "gradient_bits = 6"),
        (BoostingParams(gradient_bits=32, max_sample_weight=1e12), "rounded to nothing; leave gradient_bits out$"),
        (PivodlParams(objective="reg:squarederror", gradient_bits=13), "4096 label_scale.*use gradient_bits = 14"),
    ],
)
def test_bits_that_leave_nothing_are_refused(params: BoostingParams | PivodlParams, fault: str) -> None:
    """Out of range, or fewer than one unit for a record of weight 1 whose g is the largest."""
    with pytest.raises(ConfigError, match=fault):
        params.validate()


def test_the_least_bits_that_are_enough_are_not_refused() -> None:
    """As many units as the largest factor, and no bits at all whatever the weights."""
    for params in (
        BoostingParams(gradient_bits=5, max_sample_weight=15.0),
        BoostingParams(gradient_bits=2, scale_pos_weight=0.1),
        BoostingParams(max_sample_weight=1e12),
        PivodlParams(objective="reg:squarederror", gradient_bits=14),
        PivodlParams(gradient_bits=2),
    ):
        params.validate()


def test_weights_by_which_most_records_would_be_lost_are_refused() -> None:
    """By the median of the training's weights above 0, whatever the bound of the job permits."""
    params, labels = BoostingParams(gradient_bits=4, max_sample_weight=7.0), np.arange(20) % 2
    weights = np.full(20, 1.0)
    weights[0], weights[1:4] = 7.0, 0.0
    BoostingRounds(params, 2, labels, weights)
    weights[4:] = 0.99
    with pytest.raises(DataError, match=r"sample weights are so unlike that gradient_bits = 4 rounds g of most"):
        BoostingRounds(params, 2, labels, weights)
    BoostingRounds(replace(params, gradient_bits=None), 2, labels, weights)


def test_the_bits_of_what_is_summed() -> None:
    """Of boosting and PIVODL those of the job; of a forest one for a class, and a number as it is."""
    assert [BoostingParams(gradient_bits=bits).summed_bits for bits in (None, 7)] == [None, 7]
    assert [PivodlParams(gradient_bits=bits).summed_bits for bits in (None, 7)] == [None, 7]
    assert ForestParams().summed_bits == 1
    assert ForestParams(criterion="squared_error").summed_bits is None
