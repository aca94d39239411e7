"""Optimisers: steps by hand, a state to continue from, the amplified one of an audit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.commands.command import python  # noqa: E402
from treetap.neural.architectures import InputShape, bottom_model  # noqa: E402
from treetap.neural.draws import Draws  # noqa: E402
from treetap.neural.optimiser import GradientDescent, Optimiser, load_weights, weights_of  # noqa: E402
from treetap.neural.params import Bottom, SplitnnParams  # noqa: E402

pytestmark = pytest.mark.second_tier

SGD = SplitnnParams(optimizer="sgd", momentum=0.9, weight_decay=0.01)
ADAM = SplitnnParams(optimizer="adam", weight_decay=0.01)
PLAIN = SplitnnParams(optimizer="sgd", momentum=0.0)
CNN, IMAGES = Bottom(kind="cnn", channels=(2,), width=2, norm="batch"), InputShape(0, ((1, 4, 4),))


def one_weight(value: float) -> torch.nn.Module:
    """A model of one weight and one bias."""
    model = torch.nn.utils.skip_init(torch.nn.Linear, 1, 1)
    with torch.no_grad():
        model.weight.fill_(value)
        model.bias.fill_(0.0)
    return model


def stepped(
    params: SplitnnParams, gradients: list[float | None], rates: list[float], *, amplified: bool = False
) -> list[float]:
    """The weight, which begins at 1, after each step with these gradients."""
    model = one_weight(1.0)
    optimiser, found = Optimiser({"m": model}, params, amplified=amplified), []
    for gradient, rate in zip(gradients, rates, strict=True):
        optimiser.clear()
        model.weight.grad = None if gradient is None else torch.tensor([[gradient]])
        optimiser.step(rate)
        found.append(float(model.weight.detach()))
    return found


def test_steps_by_hand() -> None:
    """With another rate for each batch, and decay added to the gradient.

    SGD with momentum is v ← μ v + (g + λ w), w ← w − rate v; Adam is Kingma and Ba's Algorithm 1, β 0.9 and 0.999,
    ε 1e-8.
    """
    gradients, rates = [0.5, -0.2, 0.3], [0.1, 0.05, 0.0]
    of_sgd, of_adam, velocity, m, v = [1.0], [1.0], 0.0, 0.0, 0.0
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        velocity = 0.9 * velocity + gradient + 0.01 * of_sgd[-1]
        of_sgd.append(of_sgd[-1] - rate * velocity)
        g = gradient + 0.01 * of_adam[-1]
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        of_adam.append(of_adam[-1] - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8))
    assert stepped(SGD, list(gradients), rates) == pytest.approx(of_sgd[1:], rel=1e-6)
    assert stepped(ADAM, list(gradients), rates) == pytest.approx(of_adam[1:], rel=1e-5)


def test_fused_adam_differs_by_rounding_alone() -> None:
    """Attacks take the fused steps, parties the others."""
    found = []
    for fused in (False, True):
        model = one_weight(1.0)
        descent = GradientDescent(dict(model.named_parameters()), fused=fused)
        for gradient, rate in ((0.5, 0.1), (-0.2, 0.05), (0.3, 0.02)):
            descent.clear()
            model.weight.grad = torch.tensor([[gradient]])
            descent.step(rate)
        found.append(float(model.weight.detach()))
    assert found[0] != 1.0
    assert found[1] == pytest.approx(found[0], rel=1e-6)


@pytest.mark.parametrize("params", [SGD, ADAM])
def test_a_weight_without_a_gradient_stays(params: SplitnnParams) -> None:
    """Neither momentum nor decay moves it: a batch that a party sits out changes nothing."""
    first, second, third = stepped(params, [0.5, None, None], [0.1, 0.1, 0.1])
    assert first != 1.0
    assert first == second == third


def test_the_amplified_factor_by_hand() -> None:
    """clamp(1 + g_t / g_{t−1}, 1, 5) of the plain gradients; 1 at first, after a change of sign, and of 0 after 0."""
    gradients = [1.0, 2.0, -2.0, -0.5, -100.0, 0.0, 0.0, 3.0]
    factors = [1.0, 3.0, 1.0, 1.25, 5.0, 1.0, 1.0, 5.0]
    expected = 1.0 - 0.1 * np.cumsum(np.multiply(gradients, factors))
    assert stepped(PLAIN, list(gradients), [0.1] * 8, amplified=True) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("amplified", [False, True])
@pytest.mark.parametrize("params", [SGD, ADAM])
def test_a_state_continues_bit_by_bit(params: SplitnnParams, amplified: bool) -> None:
    """Weights, buffers and optimiser after three batches: two more give the same numbers as without the break."""

    def batches(model: torch.nn.Module, optimiser: Optimiser, numbers: range) -> None:
        model.train()
        for number in numbers:
            optimiser.clear()
            x = torch.from_numpy(np.random.default_rng(number).normal(size=(4, 1, 4, 4)).astype(np.float32))
            model(x).pow(2).sum().backward()
            optimiser.step(0.01)

    whole = bottom_model(CNN, IMAGES, Draws(b"k"))
    straight = Optimiser({"m": whole}, params, amplified=amplified)
    batches(whole, straight, range(3))
    weights, state = weights_of({"m": whole}), straight.state()
    again = bottom_model(CNN, IMAGES, Draws(b"other"))
    resumed = Optimiser({"m": again}, params, amplified=amplified)
    load_weights({"m": again}, weights)
    resumed.load(state)
    batches(whole, straight, range(3, 5))
    batches(again, resumed, range(3, 5))
    assert_same(weights_of({"m": whole}), weights_of({"m": again}))
    assert_same(straight.state(), resumed.state())
    assert {name for name in state if name.endswith("/before")} == (
        {f"m/{name}/before" for name, _ in whole.named_parameters()} if amplified else set()
    )


def assert_same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> None:
    """The same names, and under each the same bits."""
    assert set(one) == set(other)
    for name, values in one.items():
        assert np.array_equal(values, other[name]), name
        assert values.dtype == other[name].dtype


def test_a_state_is_a_copy() -> None:
    """Later batches change neither the arrays that were returned nor those that were loaded."""
    model = one_weight(1.0)
    optimiser = Optimiser({"m": model}, SGD)
    model.weight.grad = torch.ones(1, 1)
    optimiser.step(0.1)
    state, weights = optimiser.state(), weights_of({"m": model})
    before = {name: values.copy() for name, values in {**state, **weights}.items()}
    optimiser.load(state)
    optimiser.step(0.1)
    assert_same({**state, **weights}, before)
    assert not np.array_equal(weights["m/weight"], weights_of({"m": model})["m/weight"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda arrays: arrays.pop("m/bias"), "weights of m: .*bias.* missing or superfluous"),
        (lambda arrays: arrays.update({"m/more": np.zeros(1)}), "weights of m: .*more.* missing or superfluous"),
        (
            lambda arrays: arrays.update({"m/weight": np.zeros((1, 2))}),
            r"weight m/weight: shape \(1, 2\), not \(1, 1\)",
        ),
        (
            lambda arrays: arrays.update({"m/weight": np.array([["1"]])}),
            "weight m/weight: numbers of <U1, not float32",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, said: str) -> None:
    """A file of another model is no reason to train on something else."""
    arrays = dict(weights_of({"m": one_weight(1.0)}))
    change(arrays)
    with pytest.raises(ValueError, match=said):
        load_weights({"m": one_weight(2.0)}, arrays)


@pytest.mark.parametrize("name", ["m/other/momentum_buffer", "momentum_buffer", "m/weight/momentum_buffer"])
def test_the_state_of_another_optimiser_is_refused(name: str) -> None:
    """A momentum of no weight, or of another shape."""
    with pytest.raises(ValueError, match=f"state {name} of an optimiser is of no weight of this model"):
        Optimiser({"m": one_weight(1.0)}, SGD).load({name: np.zeros((2, 2), dtype=np.float32)})


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_steps_do_not_import_the_compiler_of_pytorch(name: str) -> None:
    """It takes every process that trains two seconds, and nothing is compiled."""
    code = f"""
import sys
import torch
from treetap.neural.optimiser import Optimiser
from treetap.neural.params import SplitnnParams
model = torch.nn.Linear(2, 1)
optimiser = Optimiser({{"m": model}}, SplitnnParams(optimizer={name!r}))
model(torch.ones(3, 2)).sum().backward()
before = model.weight.detach().clone()
optimiser.step(0.1)
print(bool((model.weight != before).all()), "torch._dynamo" in sys.modules)
"""
    done = python("-c", code)
    assert done.out.split() == ["True", "False"], done.err
