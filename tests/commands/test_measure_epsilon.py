"""`treetap measure-epsilon`: honest noise is not accused, and planted mistakes are.

Every bound of a file that can accuse is at a level of 1e-6 over the number of them, so that a file of honest mechanisms
is accused with probability 1e-6 at most. That mistakes are seen is counted for the least of them, √2 too little noise
at ε = 8: μ is 1.45, and 2.05 by mistake. Two ways and two rates leave 2.5e-7 for a rate, 5.0 deviations. Of 4000 runs,
a quarter of which choose the threshold, 1500 are measured on a neighbour, and Φ⁻¹ of a rate has a deviation of
1.52/√1500 = 0.04: the bound is 2 · 5.0 · 0.04 = 0.4 below μ and has a deviation of 0.055. It lies 0.2 above 1.45, 3.6
deviations: such a mistake is missed with probability 2e-4, and greater ones with less.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.pivodl import leaf_weights
from party.pivodl.leaf_weights import NoiseLedger
from tests.commands.command import refused, treetap, treetap_here, write
from treetap.commands.epsilon import measuring, mechanisms
from treetap.commands.epsilon.measuring import Result, measured
from treetap.privacy.column_privacy import ColumnPrivacy, Draws, drawn_sums
from treetap.privacy.discrete_gaussian import discrete_gaussians
from treetap.privacy.label_dp import Ints, Priors, RandBelow, staged
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.trees.candidates import CandidateList
from treetap.trees.noised_sums import SumNoise

LABELS = {"mechanism": "label_dp", "epsilon": 1.0, "runs": 1000, "canaries": 4000}
WEIGHTS = {"mechanism": "pivodl", "epsilon": 8.0, "runs": 4000}
SUMS = {"mechanism": "column_privacy", "epsilon": 8.0, "runs": 4000}
Patch = pytest.MonkeyPatch


def of(folder: Path, *rows: dict[str, Any], **head: Any) -> list[Result]:
    """The results of a file with these tables."""
    folder.mkdir(exist_ok=True)
    return measured(write(folder / "noise.toml", {**head, "measure": list(rows)}), folder / "kept")[1]


def test_honest_noise_is_bounded_and_not_accused(tmp_path: Path) -> None:
    """Each bound is well above 0 and not above what the mechanism has, with priors and more classes too."""
    staged_labels = {**LABELS, "stages": 2, "runs": 0}
    four = {**LABELS, "epsilon": 4.0, "classes": 4}
    results = of(tmp_path, LABELS, staged_labels, four, WEIGHTS, seed=3)
    assert [result.broken for result in results] == [False] * 4
    assert all(result.finished and result.at_least <= result.by_noise for result in results)
    labels, with_priors, classes, weights = (result.at_least for result in results)
    assert labels > 0.85
    assert with_priors > 0.75
    assert classes > 3.0
    assert weights > 5.5
    assert results[3].by_noise == pytest.approx(6.7635, abs=1e-4)  # the rest of 8 is slack of zCDP


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


PLANTS = [half, without_root_of_2, forgetful, forgetful_after_a_restart, no_clip, clip_of_each_number]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("plant", PLANTS)
def test_mistakes_in_the_noise_of_leaf_weights_are_found(
    plant: Callable[[Patch], None], tmp_path: Path, monkeypatch: Patch
) -> None:
    """ε by the noise is computed apart from the code that draws it."""
    plant(monkeypatch)
    (result,) = of(tmp_path, WEIGHTS)
    assert result.broken
    assert result.surely > result.by_noise
    assert (result.claimed, result.by_noise) == (8.0, pytest.approx(6.7635, abs=1e-4))


@pytest.mark.second_tier
def test_honest_noise_on_sums_is_not_accused(tmp_path: Path) -> None:
    """By cells nearly all of its ε is seen; by prefixes, and by siblings, less."""
    views = [{**SUMS, "view": view} for view in ("cells", "sums", "siblings")]
    cells, sums, siblings = of(tmp_path, *views)
    assert [result.broken for result in (cells, sums, siblings)] == [False] * 3
    assert cells.by_noise >= cells.at_least > 5.5
    assert cells.at_least > sums.at_least > siblings.at_least > 2


def half_of_sums(patch: Patch) -> None:
    """Have σ of sums be half of what it should be."""
    variance = ColumnPrivacy.variance
    patch.setattr(ColumnPrivacy, "variance", lambda *given: variance(*given) / 4)


def after_prefixes(patch: Patch) -> None:
    """Have each prefix get a draw of its own, in the place of each cell."""

    def wrong(candidates: CandidateList, noise: SumNoise, nodes: int, draws: Draws) -> np.ndarray[Any, Any]:
        of_slots = [draws(nodes * len(candidates), noise.variance * bound**2) for bound in noise.bounds]
        return np.stack(of_slots, axis=1).reshape(nodes, len(candidates), -1)

    patch.setattr(mechanisms, "drawn_sums", wrong)


def used_again(patch: Patch) -> None:
    """Have a node and the one beside it get the same noise, so that a difference has none."""
    patch.setattr(mechanisms, "drawn_sums", lambda *given: np.tile(drawn_sums(*given)[: given[2] // 2], (2, 1, 1)))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("plant", "view"), [(half_of_sums, "cells"), (after_prefixes, "sums"), (used_again, "siblings")]
)
def test_mistakes_in_the_noise_of_sums_are_found(
    plant: Callable[[Patch], None], view: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Each by the view that it shows in."""
    plant(monkeypatch)
    (result,) = of(tmp_path, {**SUMS, "view": view})
    assert result.broken
    assert result.surely > result.by_noise


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


@pytest.mark.second_tier
def test_a_forest_of_exact_labels_with_its_own_is_found(tmp_path: Path, monkeypatch: Patch) -> None:
    """One neighbour's forest is sure of the canary's label, and no other label can come out; the other's is not.

    Of 150 runs on either, 43 % and none show this: at a level of 5e-7 ε is above ln(0.24/0.1) = 0.9. With honest
    priors nothing is found.
    """
    row = {**LABELS, "epsilon": 0.5, "stages": 2, "canaries": 0, "runs": 400}

    def learned(labels: Ints, classes: int, epsilon: float, stages: int, priors: Priors, randbelow: RandBelow) -> Ints:
        known = np.arange(len(labels))
        return staged(labels, classes, epsilon, stages, lambda _, __, part: priors(known, labels, part), randbelow)

    assert not of(tmp_path / "honest", row)[0].broken
    monkeypatch.setattr(mechanisms, "staged", learned)
    (wrong,) = of(tmp_path / "wrong", row)
    assert wrong.broken


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
    row, play = LABELS | {"runs": 400}, mechanisms.LabelNoise.play
    plays: list[bool] = []

    def cut(self: mechanisms.LabelNoise, given: bool, *about: Any) -> list[float]:
        plays.append(given)
        if len(plays) == 8:
            raise KeyboardInterrupt
        return play(self, given, *about)

    with monkeypatch.context() as patch:
        patch.setattr(mechanisms.LabelNoise, "play", cut)
        with pytest.raises(KeyboardInterrupt):
            of(tmp_path, row)
        assert "the same command goes on" in capsys.readouterr().err
        patch.setattr(measuring.time, "monotonic", lambda: float(len(plays)))
        (late,) = of(tmp_path, row, limit_s=4)
        assert (late.finished, late.runs) == (False, 5 * 40)
    assert of(tmp_path, row)[0].estimates == of(tmp_path / "whole", row)[0].estimates


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Patch) -> None:
    """A line per mechanism and status 0; status 1, and why, where a guarantee is broken; the report as JSON."""
    file = write(tmp_path / "noise.toml", {"measure": [LABELS, WEIGHTS | {"runs": 2000}]})
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
        "more than 10000 leaves: measure a smaller job",
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
    kept = next((tmp_path / "noise-epsilon").glob("label_dp-runs-*.jsonl"))
    kept.write_text(kept.read_text().replace("1.0", "-1.0", 1))
    assert f"{kept.name}: line 1 is damaged" in refused(treetap("measure-epsilon", file, folder=tmp_path))
    assert "absent.toml: there is no such file" in refused(treetap("measure-epsilon", "absent.toml"))


@pytest.mark.second_tier
def test_the_noise_of_gradients(tmp_path: Path, monkeypatch: Patch) -> None:
    """DP-SGD of a feature party: honest over two epochs; too little noise by √2 and by half, and no clip, are found.

    At σ = 1 and two epochs μ is 1.41, so that the count above holds here too.
    """
    pytest.importorskip("torch", reason="needs treetap[neural]")
    from treetap.neural import own_step

    row = {"mechanism": "dp_sgd", "noise": 1.0, "epochs": 2, "runs": 2000}
    (honest,) = of(tmp_path / "honest", row)
    assert not honest.broken
    assert honest.claimed == honest.by_noise == pytest.approx(6.57, abs=0.01)
    assert 4.5 < honest.at_least <= honest.claimed
    clipped_sum = own_step.clipped_sum
    for factor in (2**0.5, 2.0):
        with monkeypatch.context() as patch:
            less = Fraction(factor) ** 2
            patch.setattr(
                own_step, "discrete_gaussians", lambda n, of, by, less=less: discrete_gaussians(n, of / less, by)
            )
            (wrong,) = of(tmp_path / f"{factor}", row | {"runs": 4000 if factor < 2 else 1000})
            assert wrong.broken, factor
    monkeypatch.setattr(own_step, "clipped_sum", lambda *about: clipped_sum(*about[:3], 100 * about[3]))
    assert of(tmp_path / "clip", row | {"runs": 200})[0].broken
