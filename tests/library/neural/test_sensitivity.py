"""SensFL's norm of the Jacobian, against Jacobians that are worked out record by record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from treetap.neural import own_step as module
from treetap.neural.architectures import InputShape, bottom_model, held_statistics
from treetap.neural.defences import BATCH, RECORD, FeatureDefences
from treetap.neural.draws import Draws
from treetap.neural.own_step import own_gradients, sensitivity
from treetap.neural.params import Bottom

pytest.importorskip("torch", reason="needs treetap[neural]")


pytestmark = pytest.mark.second_tier

DRAWS = Draws(b"sensitivity")
IMAGES = InputShape(0, ((1, 6, 4),))
MODELS = {
    "linear": (Bottom(width=3), InputShape(5)),
    "more outputs than inputs": (Bottom(hidden=(6,), width=7), InputShape(4)),
    "more inputs than outputs": (Bottom(hidden=(6, 5), width=3), InputShape(8)),
    "cnn, group": (Bottom("cnn", channels=(3,), width=4), IMAGES),
    "cnn, batch": (Bottom("cnn", channels=(3,), width=4, norm="batch"), IMAGES),
    "resnet, batch": (Bottom("resnet", channels=(2,), blocks=(1, 1), width=3, norm="batch"), IMAGES),
}


def made(case: str, records: int = 6) -> tuple[nn.Module, torch.Tensor]:
    """A model in training with its initial weights, and inputs."""
    settings, shape = MODELS[case]
    model = bottom_model(settings, shape, DRAWS, case)
    sizes = shape.images[0] if shape.images else (shape.columns,)
    torch.manual_seed(1)
    return model.train().double(), torch.randn(records, *sizes, dtype=torch.float64)


def step_by_j(model: nn.Module, x: torch.Tensor, defences: FeatureDefences) -> None:
    """Add the gradients of ε·J to the weights' own; the label holder's gradient is 0."""
    x = x.detach().requires_grad_()
    embeddings = model(x)
    own_gradients(model, x, embeddings, torch.zeros_like(embeddings), defences, DRAWS, "j")


def norms(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """(n,) the Frobenius norm of every record's Jacobian, from all of the batch with its statistics held fixed."""
    with held_statistics(model):
        whole = torch.autograd.functional.jacobian(model, x)
    rows = [whole[record, :, record].flatten() for record in range(len(x))]
    return torch.stack(rows).norm(dim=1)


def slope(model: nn.Module, x: torch.Tensor, weight: torch.Tensor, place: int, defences: FeatureDefences) -> float:
    """That of λJ in one number of the model, by finite differences."""
    flat, step, values = weight.detach().reshape(-1), 1e-6, []
    for change in (step, -2 * step):
        flat[place] += change
        values.append(defences.sensitivity * sensitivity(model, x, defences, DRAWS, "sensitivity", "j").item())
    flat[place] += step
    return (values[0] - values[1]) / (2 * step)


@pytest.fixture(autouse=True)
def _double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of 64 bits, so that finite differences have some digits left."""
    monkeypatch.setattr(torch, "eye", lambda n, eye=torch.eye: eye(n, dtype=torch.float64))


@pytest.mark.parametrize("case", MODELS)
def test_j_is_the_norm_of_the_explicit_jacobian(case: str) -> None:
    """In both readings: the mean over records, and the norm of all records' rows together."""
    model, x = made(case)
    expected = norms(model, x)
    assert float(expected.min()) > 0
    for name, value in ((RECORD, expected.mean()), (BATCH, expected.square().sum().sqrt())):
        found = sensitivity(model, x, FeatureDefences(1.0, name), DRAWS, "j")
        assert float(found.detach()) == pytest.approx(float(value), rel=1e-9)


def test_statistics_of_a_batch_are_held_and_stay_as_they_were() -> None:
    """A record's norm is that of the layer as an affine map; passing a batch for J leaves the running means alone."""
    model, x = made("cnn, batch")
    with held_statistics(model):
        held = model(x)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    sensitivity(model, x, FeatureDefences(1.0), DRAWS, "j")
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    torch.testing.assert_close(held, model(x))
    whole = torch.autograd.functional.jacobian(model, x)
    assert float(whole[0, :, 1].abs().max()) > 0  # with moving statistics records depend on each other


@pytest.mark.parametrize("case", ["more inputs than outputs", "cnn, batch"])
@pytest.mark.parametrize("name", [RECORD, BATCH])
def test_gradients_are_those_of_finite_differences(case: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact and by projections: ε times the slope of J in a weight is added to the gradient that is there."""
    model, x = made(case)
    for exact in (20_000, 0):
        monkeypatch.setattr(module, "EXACT", exact)
        monkeypatch.setattr(Draws, "signs", _double_signs)
        defences, weight = FeatureDefences(0.3, name, projections=2), next(model.parameters())
        model.zero_grad(set_to_none=True)
        for each in model.parameters():
            each.grad = torch.ones_like(each)
        step_by_j(model, x, defences)
        added = (weight.grad - 1).reshape(-1)  # type: ignore[operator]
        place = int(added.abs().argmax())
        assert float(added[place]) != 0
        if case != "cnn, batch":  # differences move the statistics, which the gradient holds
            assert float(added[place]) == pytest.approx(slope(model, x, weight, place, defences), rel=1e-5)


_SIGNS = Draws.signs


def _double_signs(draws: Draws, count: int, *path: str | int) -> object:
    return _SIGNS(draws, count, *path).astype("f8")


def test_held_statistics_have_no_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a weight before the normalisation: differences at the statistics of the first pass give the same gradient."""
    model, x = made("cnn, batch")
    model.zero_grad(set_to_none=True)
    step_by_j(model, x, FeatureDefences(0.3))
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    statistics = torch.var_mean

    def first(*given: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if not seen:
            seen.append(statistics(*given, **options))
        return seen[0]

    monkeypatch.setattr(torch, "var_mean", first)
    assert sensitivity(model, x, FeatureDefences(0.3), DRAWS, "sensitivity", "j") > 0
    after = model.get_parameter("linear.weight")  # on which no statistic depends
    places = [(model.get_parameter("conv0.weight"), place) for place in range(3)]
    for weight, place in [*places, (after, int(after.grad.abs().argmax()))]:  # type: ignore[union-attr]
        found = float(weight.grad.reshape(-1)[place])  # type: ignore[union-attr]
        assert abs(found) > 1e-4
        assert found == pytest.approx(slope(model, x, weight, place, FeatureDefences(0.3)), rel=1e-4)


def test_the_mean_square_of_a_projection_is_that_of_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over 20,000 draws, within four standard errors; the mean of its root is smaller than the norm."""
    model, x = made("more inputs than outputs", records=1)
    expected = float(norms(model, x)[0])
    copies = x.expand(20_000, *x.shape[1:]).clone()
    monkeypatch.setattr(module, "EXACT", 0)
    monkeypatch.setattr(Draws, "signs", _double_signs)
    seen: list[torch.Tensor] = []
    rows = module._projected
    monkeypatch.setattr(module, "_projected", lambda *given: seen.append(rows(*given)) or seen[-1])  # type: ignore[func-returns-value]
    mean = sensitivity(model, copies, FeatureDefences(1.0), DRAWS, "j").item()
    squares = seen[0].square().sum(dim=1).detach()
    error = float(squares.std()) / len(squares) ** 0.5
    assert error > 0
    assert abs(float(squares.mean()) - expected**2) < 4 * error
    assert 0.5 * expected < mean < expected


def test_the_root_of_one_projection_of_rank_one_is_four_fifths_of_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """√(2/π) of it, as of a normal distribution, where the outputs are many and alike in size."""
    monkeypatch.setattr(module, "EXACT", 0)
    monkeypatch.setattr(Draws, "signs", _double_signs)
    model = nn.Linear(3, 200, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.linspace(1, 2, 200, dtype=torch.float64)[:, None] * torch.tensor([[1.0, 2.0, 3.0]]))
    x = torch.zeros(5000, 3, dtype=torch.float64)
    exact = float(model.weight.detach().norm())
    factors = {m: sensitivity(model, x, FeatureDefences(1.0, projections=m), DRAWS, "r").item() / exact for m in (1, 8)}
    assert factors[1] == pytest.approx(0.798, abs=0.03)
    assert 0.95 < factors[8] < 1.0


def test_records_whose_units_are_all_off_have_a_gradient() -> None:
    """A Jacobian of zeros has the norm 0, whose slope is 0, and not undefined."""
    model, x = made("more inputs than outputs")
    with torch.no_grad():
        model.get_parameter("linear0.bias").fill_(-1e3)
    for name in (RECORD, BATCH):
        model.zero_grad(set_to_none=True)
        step_by_j(model, x, FeatureDefences(1.0, name))
        assert all(each.grad is None or bool(each.grad.isfinite().all()) for each in model.parameters())


def test_projections_differ_by_batch_and_repeat() -> None:
    """The same name gives the same signs."""
    model, x = made("more inputs than outputs")
    model.float()
    found = FeatureDefences(1.0, RECORD, projections=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXACT", 0)
        one, again, other = (sensitivity(model, x.float(), found, DRAWS, "j", each).item() for each in (0, 0, 1))
        more = sensitivity(model, x.float(), replace(found, projections=1), DRAWS, "j", 0).item()
    assert one == again != other
    assert more != one
