"""DP-SGD: gradients of single records, clipping, noise and its account."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

import torch
from torch import nn

from treetap.errors import BadInput
from treetap.neural import own_step
from treetap.neural.architectures import InputShape, bottom_model
from treetap.neural.defences import DpSgd, FeatureDefences, epsilon, meaning_of
from treetap.neural.draws import Draws
from treetap.neural.own_step import clipped_sum, noised_gradients, record_gradients
from treetap.neural.params import Bottom

pytestmark = pytest.mark.second_tier

DRAWS = Draws(b"dp")
IMAGES = InputShape(0, ((1, 6, 4),))
MODELS = {
    "mlp": (Bottom(hidden=(6, 5), width=3), InputShape(4)),
    "cnn": (Bottom("cnn", channels=(3,), width=4), IMAGES),
    "resnet": (Bottom("resnet", channels=(2,), blocks=(1, 1), width=3), IMAGES),
}
RECORDS = 7


def made(case: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model, inputs, and gradients that returned."""
    settings, shape = MODELS[case]
    torch.manual_seed(2)
    sizes = shape.images[0] if shape.images else (shape.columns,)
    x, gradient = torch.randn(RECORDS, *sizes), torch.randn(RECORDS, settings.width) / RECORDS
    return bottom_model(settings, shape, DRAWS, case).train(), x, gradient


def one_by_one(model: nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """The gradient of each record's loss by a batch of that record alone."""
    found = []
    for record in range(len(x)):
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(model(x[[record]]), len(x) * gradient[[record]])
        found.append({name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None})
    return found


@pytest.mark.parametrize("case", MODELS)
def test_gradients_are_those_of_single_records(case: str) -> None:
    """All at once as one by one."""
    model, x, gradient = made(case)
    found = record_gradients(model, x, len(x) * gradient, [name for name, _ in model.named_parameters()])
    for record, expected in enumerate(one_by_one(model, x, gradient)):
        assert set(expected) == set(found)
        for name, each in expected.items():
            torch.testing.assert_close(found[name][record], each, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", MODELS)
@pytest.mark.parametrize("held", [1 << 25, 1], ids=["at once", "in pieces"])
def test_the_sum_is_of_gradients_clipped_one_by_one(case: str, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a bound between the smallest and the largest norm; at one above both it is the batch's gradient."""
    monkeypatch.setattr(own_step, "_HELD", held)
    model, x, gradient = made(case)
    singles = one_by_one(model, x, gradient)
    lengths = [math.sqrt(sum(float(each.square().sum()) for each in single.values())) for single in singles]
    clip = float(np.median(lengths))
    assert min(lengths) < clip < max(lengths)
    found = clipped_sum(model, x, gradient, clip)
    for name, each in found.items():
        expected = sum(single[name] * min(1.0, clip / length) for single, length in zip(singles, lengths, strict=True))
        torch.testing.assert_close(each.float(), expected, rtol=1e-4, atol=1e-4)
    model.zero_grad(set_to_none=True)
    torch.autograd.backward(model(x), gradient)
    for name, each in clipped_sum(model, x, gradient, 2 * max(lengths)).items():
        torch.testing.assert_close(each.float() / len(x), model.get_parameter(name).grad, rtol=1e-4, atol=1e-4)


def test_noise_has_the_deviation_and_is_named_by_what_it_hides() -> None:
    """σ·C over the records, of each weight; the same sum has the same noise, another one has other noise."""
    model, x, gradient = made("mlp")
    defence = DpSgd(clip=2.0, noise=500.0)
    plain = {name: each / RECORDS for name, each in clipped_sum(model, x, gradient, 2.0).items()}
    first, again = (noised_gradients(model, x, gradient, defence, DRAWS, "n", 0, 1) for _ in range(2))
    other = noised_gradients(model, x, gradient * 1.5, defence, DRAWS, "n", 0, 1)
    noise = torch.cat([(first[name] - plain[name]).flatten() for name in plain])
    assert float(noise.std()) == pytest.approx(500.0 * 2.0 / RECORDS, rel=0.25)
    assert all(torch.equal(first[name], again[name]) for name in first)
    difference = first["linear0.weight"] - other["linear0.weight"]
    assert float(difference.abs().min()) > 1e-3 * 500.0 * 2.0 / RECORDS


def test_signs_and_bytes_of_a_name() -> None:
    """Half of 100,000 signs are 1; further bytes of a name follow those before, and another name has others."""
    signs = Draws(b"signs").signs(100_001, "n")
    assert set(signs.tolist()) == {1.0, -1.0}
    assert abs(signs.mean()) < 0.015
    first, again, other = (Draws(b"signs").source("n", number) for number in (0, 0, 1))
    assert first(5) + first(11) == again(16) != other(16)


def test_defences_that_do_not_fit_are_refused() -> None:
    """Wherever they come from: J's gradient would have no noise, and an unknown norm would be read as another."""
    with pytest.raises(BadInput, match="do not go together"):
        FeatureDefences(0.1, dp_sgd=DpSgd(1.0, 0.1))
    with pytest.raises(BadInput, match="sensitivity_norm is 'spectral': choose record or batch"):
        FeatureDefences(0.1, "spectral")


def test_epsilon_is_that_of_the_gaussian_mechanism() -> None:
    """Balle and Wang 2018: σ 3.730632 has ε 1 at δ 1e-5; E epochs are as one with σ/√E; small noise has a finite ε."""
    assert epsilon(DpSgd(1.0, 3.730631634816464), 1) == pytest.approx(1.0, rel=1e-9)
    assert epsilon(DpSgd(7.0, 3.730631634816464 * 3), 9) == pytest.approx(1.0, rel=1e-9)
    assert epsilon(DpSgd(1.0, 1e6), 1) == 0.0
    sizes = [epsilon(DpSgd(1.0, noise), 5) for noise in (12.8, 1.0, 0.1, 0.01)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == pytest.approx(0.5 * 5 / 0.01**2, rel=0.05)  # μ²/2 is the largest part of it
    assert epsilon(DpSgd(1.0, 1e-6), 1000) == pytest.approx(0.5 * 1000 / 1e-6**2, rel=0.01)
    sentence = meaning_of(DpSgd(1.0, 0.1), 5)
    assert "does not cover embeddings" in sentence
    assert "noise 0.1" in sentence
