"""`treetap measure-epsilon`: honest noise is not accused, and planted mistakes are.

Every bound of a file that can accuse is at a level of 1e-6 over the number of them, so that a file of honest mechanisms
is accused with probability 1e-6 at most, whatever its score is. That mistakes are seen is counted for the least of
them, √2 too little noise at ε = 8: μ is 1.45, and 2.05 by mistake. Two ways and two rates leave 2.5e-7 for a rate, 5.0
deviations. Of 4000 runs, a quarter of which choose the threshold, 1500 are measured on a neighbour, and Φ⁻¹ of a rate
has a deviation of 1.52/√1500 = 0.04: the bound is 2 · 5.0 · 0.04 = 0.4 below μ and has a deviation of 0.055. The
measured covariance costs 0.05. It lies 0.15 above 1.45, 2.7 deviations: such a mistake is missed with probability 4e-3,
and greater ones with less. Noise that is shared leaves a sum of numbers in which it cancels; some dozens of runs do.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands.command import refused, treetap, treetap_here, write
from treetap.additive.sums.kernels import CandidateSums
from treetap.arrays import Ints
from treetap.lab.epsilon import measuring, mechanisms
from treetap.lab.epsilon.measuring import Result, measured
from treetap.party.forest import ciphers
from treetap.party.growth import column_noise, lattice_sums
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.pivodl import leaf_weights
from treetap.party.pivodl.leaf_weights import NoiseLedger
from treetap.privacy import column_privacy, label_dp
from treetap.privacy.column_privacy import ColumnPrivacy, Draws
from treetap.privacy.discrete_gaussian import discrete_gaussians
from treetap.privacy.label_dp import Priors, RandBelow, staged
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.trees.candidates import CandidateList
from treetap.trees.noised_sums import SumNoise

LABELS = {"mechanism": "label_dp", "epsilon": 1.0, "runs": 1000, "canaries": 4000}
WEIGHTS = {"mechanism": "pivodl", "epsilon": 8.0, "runs": 4000}
SUMS = {"mechanism": "column_privacy", "epsilon": 0.5, "bins": 2, "runs": 1000}
Patch = pytest.MonkeyPatch


def of(folder: Path, *rows: dict[str, Any], **head: Any) -> list[Result]:
    """The results of a file with these tables."""
    folder.mkdir(exist_ok=True)
    return measured(write(folder / "noise.toml", {**head, "measure": list(rows)}), folder / "kept")[1]


TABLES = SUMS | {"epsilon": 8.0}
#: By mechanism: tables of which honest code is bounded well above 0, and how far.
HONEST: dict[str, tuple[dict[str, Any], float]] = {
    "leaf weights": (WEIGHTS | {"runs": 1000}, 3.5),
    "labels": (LABELS, 0.85),
    "labels with priors": ({**LABELS, "stages": 2, "runs": 0}, 0.75),
    "labels of four classes": ({**LABELS, "epsilon": 4.0, "classes": 4}, 3.0),
    "sums of boosting": (TABLES | {"max_depth": 1, "runs": 400}, 1.0),
    "sums of a forest": (TABLES | {"forest": True}, 2.0),
    "sums on a lattice": (TABLES | {"scheme": "lattice", "trees": 2}, 2.0),
    "sums of a forest on a lattice": (TABLES | {"scheme": "lattice", "forest": True}, 2.0),
    "gradients": ({"mechanism": "dp_sgd", "noise": 1.0, "epochs": 2, "runs": 400}, 3.0),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", HONEST)
def test_honest_noise_is_bounded_and_not_accused(case: str, tmp_path: Path) -> None:
    """Each bound is well above 0 and not above what the mechanism has."""
    row, least = HONEST[case]
    if row["mechanism"] == "dp_sgd":
        pytest.importorskip("torch", reason="needs treetap[neural]")
    (result,) = of(tmp_path, row, seed=3)
    assert not result.broken
    assert result.finished
    assert least < result.at_least <= result.by_noise
    if row["mechanism"] == "pivodl":
        assert result.by_noise == pytest.approx(6.7635, abs=1e-4)  # the rest of 8 is slack of zCDP


@pytest.mark.campaign
@pytest.mark.parametrize("case", HONEST)
def test_no_sure_bound_of_honest_code_is_above_its_claim(case: str, tmp_path: Path) -> None:
    """In 200 measurements of each: an accusation of one has a probability of 1e-6."""
    row, _ = HONEST[case]
    for seed in range(200):
        (result,) = of(tmp_path / str(seed), row | ({"runs": 400} if row["runs"] else {}), seed=seed)
        assert result.surely <= min(result.claimed, result.by_noise), seed


def half(patch: Patch) -> None:
    """Have σ be half of what it should be."""
    sigma = LeafWeightPrivacy.sigma.fget
    assert sigma is not None
    patch.setattr(LeafWeightPrivacy, "sigma", property(lambda self: sigma(self) / 2))


def without_root_of_2(patch: Patch) -> None:
    """Have σ be √(L/ρ)/2, where √(L/2ρ) is right."""
    wrong = property(lambda self: math.sqrt(self.releases / self.rho) / 2)
    patch.setattr(LeafWeightPrivacy, "sigma", wrong)


def forgetful(patch: Patch) -> None:
    """Have a party draw a leaf's noise anew whenever it is asked."""
    released = NoiseLedger.released

    def anew(self: NoiseLedger, tree: int, leaf: int, weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self._held = {}
        return released(self, tree, leaf, weight)

    patch.setattr(NoiseLedger, "released", anew)


def forgetful_after_a_restart(patch: Patch) -> None:
    """Have a party find no ledger when it is started again."""
    patch.setattr(mechanisms._Lines, "read", lambda _: [])


def no_clip(patch: Patch) -> None:
    """Have weights go out at their full size."""
    clipped = leaf_weights.clipped
    patch.setattr(leaf_weights, "clipped", lambda weight, unit, clip: clipped(weight, unit, 100 * clip))


def clip_of_each_number(patch: Patch) -> None:
    """Have each of a weight's numbers be clipped alone, so that their norm is √2 times too large."""
    clipped = leaf_weights.clipped
    patch.setattr(leaf_weights, "clipped", lambda weight, *of: [clipped(number[None], *of)[0] for number in weight])


def one_draw_for_all_leaves(patch: Patch) -> None:
    """Have all numbers of a job's leaves get the same noise."""
    released, drawn = NoiseLedger.released, leaf_weights.discrete_gaussian

    def wrong(self: Any, *of: Any) -> np.ndarray[Any, Any]:
        one = vars(self).setdefault("_one", drawn(self._variance, self._randbelow))
        patch.setattr(leaf_weights, "discrete_gaussian", lambda *_: one)
        return released(self, *of)

    patch.setattr(NoiseLedger, "released", wrong)


PLANTS = [half, one_draw_for_all_leaves, without_root_of_2, forgetful, forgetful_after_a_restart]
PLANTS += [no_clip, clip_of_each_number]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("plant", PLANTS)
def test_mistakes_in_the_noise_of_leaf_weights_are_found(
    plant: Callable[[Patch], None], tmp_path: Path, monkeypatch: Patch
) -> None:
    """ε by the noise is computed apart from the code that draws it."""
    plant(monkeypatch)
    small = plant in {without_root_of_2, forgetful, forgetful_after_a_restart, clip_of_each_number}
    (result,) = of(tmp_path, WEIGHTS | {"runs": 8000 if small else 600})
    assert result.broken
    assert result.surely > result.by_noise
    assert (result.claimed, result.by_noise) == (8.0, pytest.approx(6.7635, abs=1e-4))


def half_of_sums(patch: Patch) -> None:
    """Have σ of sums be half of what it should be."""
    variance = ColumnPrivacy.variance
    patch.setattr(ColumnPrivacy, "variance", lambda *given: variance(*given) / 4)


def after_prefixes(patch: Patch) -> None:
    """Have each prefix get a draw of its own, in the place of each cell."""

    def wrong(candidates: CandidateList, noise: SumNoise, nodes: int, draws: Draws) -> np.ndarray[Any, Any]:
        of_slots = [draws(nodes * len(candidates), noise.variance * bound**2) for bound in noise.bounds]
        return np.stack(of_slots, axis=1).reshape(nodes, len(candidates), -1)

    patch.setattr(column_noise, "drawn_sums", wrong)


def one_draw_for_all_slots(patch: Patch) -> None:
    """Have the slots of a cell share a draw, in units of their bounds."""
    drawn_cells = column_privacy.drawn_cells

    def wrong(candidates: CandidateList, noise: SumNoise, nodes: int, draws: Draws) -> np.ndarray[Any, Any]:
        one = drawn_cells(candidates, noise, nodes, draws)[:1]
        return np.rint(one * (np.array(noise.bounds) / noise.bounds[0])[:, None, None]).astype(np.int64)

    patch.setattr(column_privacy, "drawn_cells", wrong)


def changed_of(patch: Patch, change: Callable[..., Any]) -> None:
    """Have `change` make another noise of what a party draws for nodes, with the noise and where it is for."""
    honest = ColumnNoise.of

    async def wrong(self: ColumnNoise, tree: Any, stage: int, nodes: list[int]) -> Any:
        drawn = await honest(self, tree, stage, nodes)
        return change(drawn, self, stage, nodes)

    patch.setattr(ColumnNoise, "of", wrong)


def one_draw_for_all_nodes(patch: Patch) -> None:
    """Have the nodes of a stage share a draw, so that a child less its sibling has no noise."""
    changed_of(patch, lambda drawn, _, __, nodes: np.tile(drawn[: len(drawn) // len(nodes)], (len(nodes), 1)))


def one_draw_for_all_trees(patch: Patch) -> None:
    """Have a stage of each tree of an attempt get the noise of the first."""

    def first(drawn: Any, noise: Any, stage: int, _: Any) -> Any:
        return vars(noise).setdefault("_first", {}).setdefault(stage, drawn)

    changed_of(patch, first)


def one_draw_for_all_candidates(patch: Patch) -> None:
    """Have a lattice add the noise of one candidate to all of a node."""
    added = lattice_sums.added
    patch.setattr(lattice_sums, "added", lambda agreed, noise: added(agreed, np.tile(noise[:1], (len(noise), 1))))


def one_draw_for_all_ciphertexts(patch: Patch) -> None:
    """Have Paillier add the noise of the first candidate to all of a stage."""
    plaintexts = CandidateSums._plaintexts
    patch.setattr(
        CandidateSums, "_plaintexts", lambda self, noise: plaintexts(self, np.tile(noise[:1], (len(noise), 1)))
    )


def twice_in_a_stage(patch: Patch) -> None:
    """Have a party answer again, with noise that is drawn anew."""
    patch.setattr(ColumnNoise, "_check", lambda *_: None)


def seed_used_again(patch: Patch) -> None:
    """Have each draw of an attempt begin with the same random bytes."""
    begin = ColumnNoise.__init__

    def wrong(self: Any, *about: Any) -> None:
        begin(self, *about)
        key = self._draws(4, Fraction(1 << 60)).tobytes()
        self._draws = lambda count, of: discrete_gaussians(count, of, random.Random(key).randbytes)

    patch.setattr(ColumnNoise, "__init__", wrong)


def draws_as_in_boosting(patch: Patch) -> None:
    """Have a forest count each record once a tree."""
    patch.setattr(ciphers, "most_draws", lambda params, *_: params.n_estimators)


LEVEL = {"max_depth": 1, "scheme": "lattice"}
#: Mistakes in the noise of sums: the plant, the job, runs.
OF_SUMS: list[tuple[Callable[[Patch], None], dict[str, Any], int]] = [
    (one_draw_for_all_slots, LEVEL, 600),
    (one_draw_for_all_nodes, {"scheme": "lattice"}, 80),
    (one_draw_for_all_slots, {"max_depth": 1}, 1000),
    (one_draw_for_all_nodes, {"forest": True}, 80),
    (one_draw_for_all_slots, LEVEL | {"forest": True}, 80),
    (one_draw_for_all_trees, LEVEL | {"forest": True, "trees": 2}, 400),
    (one_draw_for_all_candidates, LEVEL | {"bins": 4}, 400),
    (one_draw_for_all_ciphertexts, {"bins": 4, "max_depth": 1}, 400),
    (seed_used_again, LEVEL | {"trees": 2}, 400),
    (twice_in_a_stage, LEVEL | {"epsilon": 8.0}, 4000),
    (draws_as_in_boosting, LEVEL | {"forest": True, "trees": 3, "epsilon": 8.0}, 800),
    (half_of_sums, LEVEL | {"epsilon": 8.0}, 800),
    (after_prefixes, LEVEL | {"bins": 20, "epsilon": 8.0}, 2000),
]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("plant", "job", "runs"), OF_SUMS)
def test_mistakes_in_the_noise_of_sums_are_found(
    plant: Callable[[Patch], None], job: dict[str, Any], runs: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Of slots, nodes, siblings, trees and candidates that share noise, and of too little of it."""
    plant(monkeypatch)
    (result,) = of(tmp_path, SUMS | job | {"runs": runs})
    assert result.broken
    assert result.surely > result.by_noise


@pytest.mark.second_tier
def test_the_published_accounting_is_no_bound(tmp_path: Path) -> None:
    """One release per tree is accounted for, and one label can move eight: the code says so, and the bound shows it."""
    job = {**WEIGHTS, "max_depth": 3, "runs": 400}
    honest, published = of(tmp_path, job, {**job, "as_published": True})
    assert (honest.broken, published.broken) == (False, True)
    assert published.surely > 8.0


def own_label(patch: Patch, share: float) -> None:
    """Have the prior of a record give its own label this probability."""

    def leaky(labels: Ints, classes: int, epsilon: float, stages: int, _: Priors, randbelow: RandBelow) -> Ints:
        def priors(before: Ints, noisy: Ints, following: Ints) -> np.ndarray[Any, Any]:
            found = np.full((len(following), classes), (1 - share) / (classes - 1))
            found[np.arange(len(following)), labels[following]] = share
            return found

        return staged(labels, classes, epsilon, stages, priors, randbelow)

    patch.setattr(mechanisms, "staged", leaky)


def test_a_prior_that_uses_its_own_label_is_found(tmp_path: Path, monkeypatch: Patch) -> None:
    """Half of the records come out as they are: of 4000 guesses 87 % are right, where 73 % ± 5 · 0.7 % are honest.

    A prior that says no more of the label than the noise itself keeps both classes, and breaks nothing.
    """
    one_run = {**LABELS, "stages": 2, "runs": 0}
    own_label(monkeypatch, 0.9)
    (result,) = of(tmp_path / "wrong", one_run)
    assert result.broken
    assert result.surely > 1.5
    own_label(monkeypatch, 0.7)
    assert not of(tmp_path / "harmless", one_run)[0].broken


def test_one_draw_for_all_labels_is_found(tmp_path: Path, monkeypatch: Patch) -> None:
    """Each label is kept as often as it should be; beside others of its class a canary's shows whether it was."""
    drawn = label_dp.rr_with_prior

    def wrong(labels: Ints, priors: Any, epsilon: float, randbelow: RandBelow) -> Ints:
        one = randbelow(1 << 128)
        return drawn(labels, priors, epsilon, lambda below: one % below)

    monkeypatch.setattr(label_dp, "rr_with_prior", wrong)
    (result,) = of(tmp_path, LABELS | {"runs": 400, "canaries": 0})
    assert result.broken
    assert result.surely > 1.5


@pytest.mark.campaign
def test_a_forest_of_exact_labels_with_its_own_is_found(tmp_path: Path, monkeypatch: Patch) -> None:
    """One neighbour's forest is sure of the canary's label, and no other label can come out; the other's is not.

    Of 300 runs on either, 23 % and none show this: at a level of 5e-7 ε is above 0.9. With honest
    priors nothing is found.
    """
    row = {**LABELS, "epsilon": 0.5, "stages": 2, "canaries": 0, "runs": 800}

    def learned(labels: Ints, classes: int, epsilon: float, stages: int, priors: Priors, randbelow: RandBelow) -> Ints:
        known = np.arange(len(labels))
        return staged(labels, classes, epsilon, stages, lambda _, __, part: priors(known, labels, part), randbelow)

    assert not of(tmp_path / "honest", row | {"runs": 80})[0].broken
    monkeypatch.setattr(mechanisms, "staged", learned)
    (wrong,) = of(tmp_path / "wrong", row)
    assert wrong.broken


@pytest.mark.second_tier
def test_runs_of_other_code_do_not_count(tmp_path: Path, monkeypatch: Patch) -> None:
    """A mistake that is mended, or made, shows with the next call in the same folder."""
    assert not of(tmp_path, WEIGHTS | {"runs": 400})[0].broken
    monkeypatch.setattr(mechanisms.LeafWeightNoise, "code", classmethod(lambda _: "other"))
    no_clip(monkeypatch)
    assert of(tmp_path, WEIGHTS | {"runs": 400})[0].broken


def test_labels_that_are_kept_too_often_are_found_in_both_ways(tmp_path: Path, monkeypatch: Patch) -> None:
    """Noise for 2ε in the place of ε, by repeated runs and by one run."""
    monkeypatch.setattr(mechanisms, "staged", lambda labels, classes, epsilon, *more: staged(labels, classes, 2, *more))
    (result,) = of(tmp_path, {**LABELS, "runs": 2000})
    assert {estimate.way for estimate in result.estimates if estimate.surely > 1.0} == {"runs", "one_run"}


def test_a_seed_repeats_a_measurement_and_more_runs_add_to_it(tmp_path: Path) -> None:
    """Another seed gives other figures; runs that are there are not made again, and the whole is as made at once."""
    rows = LABELS | {"runs": 200}, LABELS | {"runs": 400}
    assert of(tmp_path / "a", rows[0])[0].estimates == of(tmp_path / "b", rows[0])[0].estimates
    assert of(tmp_path / "c", rows[0], seed=1)[0].estimates != of(tmp_path / "a", rows[0])[0].estimates
    before = next((tmp_path / "a" / "kept").glob("label_dp-runs-*.jsonl")).read_bytes()
    more = of(tmp_path / "a", rows[1])[0]
    after = next((tmp_path / "a" / "kept").glob("label_dp-runs-*.jsonl")).read_bytes()
    assert after.startswith(before)
    assert len(after) > len(before)
    assert more.estimates == of(tmp_path / "d", rows[1])[0].estimates


def test_an_interrupted_measurement_goes_on(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C and the time limit leave what is finished; the whole is as without them."""
    row, neighbours = LABELS | {"runs": 400}, mechanisms.LabelNoise.neighbours
    plays: list[bool] = []

    def cut(row: mechanisms.LabelNoise, chance: random.Random) -> Any:
        change, play = neighbours(row, chance)

        def counted(given: bool, *about: Any) -> Any:
            plays.append(given)
            if len(plays) == 18:  # ten to measure the noise, and of four batches all but the last half
                raise KeyboardInterrupt
            return play(given, *about)

        return change, counted

    with monkeypatch.context() as patch:
        patch.setattr(mechanisms.LabelNoise, "neighbours", cut)
        with pytest.raises(KeyboardInterrupt):
            of(tmp_path, row)
        assert "the same command goes on" in capsys.readouterr().err
        patch.setattr(measuring.time, "monotonic", lambda: float(len(plays)))
        (late,) = of(tmp_path, row, limit_s=4)
        assert (late.finished, late.runs) == (False, 5 * 40)
    assert of(tmp_path, row)[0].estimates == of(tmp_path / "whole", row)[0].estimates


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Patch) -> None:
    """A line per mechanism and status 0; status 1, and why, where a guarantee is broken; the report as JSON."""
    file = write(tmp_path / "noise.toml", {"measure": [LABELS, WEIGHTS | {"runs": 600}]})
    words = ("measure-epsilon", file, "--workdir", tmp_path / "kept")
    shown = treetap(*words, "--details")
    assert shown.status == 0, shown
    lines = shown.out.splitlines()
    assert lines[0].startswith("label_dp: claimed 1; at least 0.")
    assert "(95 %)" in lines[0]
    assert any(line.startswith("pivodl: claimed 8 at δ = 1e-05, 6.76 by its noise; at least ") for line in lines)
    for word in ("one run", "noise taken for Gaussian", "guesses 4,000", "tpr", "but for false alarms"):
        assert word in shown.out
    told = json.loads(treetap(*words, "--json").out)
    assert told == json.loads((tmp_path / "kept" / "epsilon.json").read_text())
    assert [(it["mechanism"], it["broken"]) for it in told["measured"]] == [("label_dp", False), ("pivodl", False)]
    assert (told["confidence"], told["false_alarm"], told["seed"]) == (0.95, 1e-6, 0)
    half(monkeypatch)
    assert treetap_here("measure-epsilon", str(file), "--workdir", str(tmp_path / "broken")) == 1
    assert "BROKEN: ε is at least " in capsys.readouterr().out


def test_input_that_cannot_be(tmp_path: Path) -> None:
    """All faults of a file at once; a folder that is a file; finished runs that were damaged."""
    rows = [
        {"mechanism": "labels"},
        {"mechanism": "label_dp", "epsilon": 0, "runs": 0, "canaries": 0},
        {"mechanism": "pivodl", "epsilon": 1.0, "canaries": 5},
        {"mechanism": "pivodl", "epsilon": 1.0, "n_estimators": 1000, "max_depth": 10},
        {"mechanism": "label_dp", "epsilon": 1.0, "runs": 0, "canaries": 0},
        {"mechanism": "label_dp", "epsilon": 1.0, "stages": 4, "canaries": 3},
        {"mechanism": "label_dp", "epsilon": 1.0, "stages": 4, "classes": 1000, "canaries": 1001},
        {"mechanism": "dp_sgd", "noise": 1.0, "epochs": 10_000},
    ]
    file = write(tmp_path / "noise.toml", {"measure": rows, "limit": 3.0})
    said = refused(treetap("measure-epsilon", file))
    for fault in (
        "measure.[1]: mechanism must be 'label_dp', 'pivodl', 'dp_sgd' or 'column_privacy'",
        "measure.[2].label_dp.epsilon: ",
        "canaries: leave it out: all leaves of a job are one canary's",
        "numbers, and 256 are the most: measure a smaller job",
        "nothing is measured: give runs = 2000",
        "canaries: fewer than stages (4): give canaries = 2000",
        "canaries: too many for so many stages and classes: give canaries = 1000 or fewer",
        "canaries: too many for so many epochs: give canaries = 632 or fewer",
        "limit: unknown key; did you mean 'limit_s'?",
    ):
        assert fault in said
    file = write(tmp_path / "noise.toml", {"measure": [LABELS | {"runs": 40}]})
    assert "cannot be used" in refused(treetap("measure-epsilon", file, "--workdir", file))
    assert treetap("measure-epsilon", file, folder=tmp_path).status == 0
    kept = next((tmp_path / "runs" / "noise").glob("label_dp-runs-*.jsonl"))
    kept.write_text(kept.read_text().replace("0", "1", 1))
    assert f"{kept.name}: line 1 is damaged" in refused(treetap("measure-epsilon", file, folder=tmp_path))
    assert "absent.toml: there is no such file" in refused(treetap("measure-epsilon", "absent.toml"))


def scaled_noise(patch: Patch, factor: float) -> None:
    """Have the noise of gradients be so many times what it should be."""
    _change_noise(patch, lambda noise, _: {name: factor * of for name, of in noise.items()})


def one_draw_for_all_weights(patch: Patch) -> None:
    """Have all weights get the first one's noise."""

    def first(noise: dict[str, Any], _: Any) -> dict[str, Any]:
        one = next(iter(noise.values())).ravel()[0]
        return {name: 0 * of + one for name, of in noise.items()}

    _change_noise(patch, first)


def one_draw_for_all_epochs(patch: Patch) -> None:
    """Have the gradients of a game's epochs get the noise of the first."""
    kept: dict[int, Any] = {}
    _change_noise(patch, lambda noise, draws: kept.setdefault(id(draws), (noise, draws))[0])


def _change_noise(patch: Patch, change: Callable[..., Any]) -> None:
    from treetap.neural import own_step

    honest = own_step.noised_gradients

    def wrong(model: Any, x: Any, gradient: Any, defence: Any, draws: Any, *path: Any) -> Any:
        exact = own_step.clipped_sum(model, x, gradient, defence.clip)
        sent = honest(model, x, gradient, defence, draws, *path)
        noise = {name: len(x) * sent[name] - of for name, of in exact.items()}
        changed = change(noise, draws)
        return {name: (of + changed[name]) / len(x) for name, of in exact.items()}

    patch.setattr(own_step, "noised_gradients", wrong)


def gradients_without_a_clip(patch: Patch) -> None:
    """Have gradients be clipped to a hundred times the bound."""
    from treetap.neural import own_step

    clipped_sum = own_step.clipped_sum
    patch.setattr(own_step, "clipped_sum", lambda *about: clipped_sum(*about[:3], 100 * about[3]))


#: Mistakes in the noise of gradients, σ, and runs.
OF_GRADIENTS: list[tuple[Callable[[Patch], None], float, int]] = [
    (one_draw_for_all_weights, 4.0, 160),
    (one_draw_for_all_epochs, 4.0, 400),
    (lambda patch: scaled_noise(patch, 0.5**0.5), 1.0, 4000),
    (lambda patch: scaled_noise(patch, 0.5), 1.0, 1000),
    (gradients_without_a_clip, 1.0, 200),
]


@pytest.mark.second_tier
@pytest.mark.parametrize(("plant", "sigma", "runs"), OF_GRADIENTS)
def test_mistakes_in_the_noise_of_gradients_are_found(
    plant: Callable[[Patch], None], sigma: float, runs: int, tmp_path: Path, monkeypatch: Patch
) -> None:
    """At σ = 1 and two epochs μ is 1.41, so that the count above holds here too."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    plant(monkeypatch)
    (wrong,) = of(tmp_path, {"mechanism": "dp_sgd", "noise": sigma, "epochs": 2, "runs": runs, "canaries": 0})
    assert wrong.broken
    assert wrong.claimed == pytest.approx(wrong.by_noise)


#: Packages in which noise, its size and what it is added to are made: of these all that is carried out is declared.
MEASURED = ("treetap.party.", "treetap.privacy.", "treetap.additive.sums.", "treetap.lattice.", "treetap.neural.")
#: Of these what makes no noise: budgets that nothing is charged to, files, messages, keys, records, rules, networks.
CARRIERS = (
    *(
        "treetap.party.defences.",
        "treetap.party.runtime.",
        "treetap.party.setup.",
        "treetap.party.growth.feature_party",
        "treetap.party.growth.rule",
        "treetap.party.policy",
    ),
    *("treetap.additive.sums.key_holder", "treetap.neural.architectures", "treetap.neural.params"),
)


@pytest.mark.parametrize(
    "case",
    [
        [LABELS | {"stages": 2, "canaries": 0}],
        [WEIGHTS],
        [SUMS | {"forest": forest, "scheme": scheme} for forest in (False, True) for scheme in ("paillier", "lattice")],
        pytest.param([{"mechanism": "dp_sgd", "noise": 1.0}], marks=pytest.mark.second_tier),
    ],
    ids=lambda rows: rows[0]["mechanism"],
)
def test_a_mechanism_names_the_modules_that_its_plays_carry_out(case: list[dict[str, Any]]) -> None:
    """By a trace of calls."""
    if case[0]["mechanism"] == "dp_sgd":
        pytest.importorskip("torch", reason="needs treetap[neural]")
    called = set[str]()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            called.add(frame.f_globals.get("__name__", ""))

    for content in case:
        row = measuring.MeasureFile(measure=[content]).measure[0]
        chance = random.Random(1)
        row.neighbours(chance)[1](True, 1, chance)  # imports are over
        sys.setprofile(note)
        try:
            row.neighbours(chance)[1](True, 1, chance)
        finally:
            sys.setprofile(None)
    declared = set(type(row).carried_out)
    assert declared <= called
    assert {name for name in called if name.startswith(MEASURED) and not name.startswith(CARRIERS)} <= declared
