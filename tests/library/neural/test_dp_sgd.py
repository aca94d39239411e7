"""DP-SGD and its noise on a grid.

- DP-SGD: gradients of single records, clipping, noise and its account.
- DP-SGD on a grid: a record's share of a sum, the noise upon it, and what low bits of float32 tell of a record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

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
from treetap.privacy.discrete_gaussian import discrete_gaussians

pytestmark = pytest.mark.second_tier

DRAWS = Draws(b"dp")
IMAGES = InputShape(0, ((1, 6, 4),))
MODELS = {
    "mlp": (Bottom(hidden=(6, 5), width=3), InputShape(4)),
    "cnn": (Bottom("cnn", channels=(3,), width=4), IMAGES),
    "resnet": (Bottom("resnet", channels=(2,), blocks=(1, 1), width=3), IMAGES),
}
RECORDS = 7
#: Outputs of one linear layer; bits at the end of a small float32 that are 0 where it lies on a coarse grid.
WIDTH, ZEROS, SMALL = 1024, 8, 2.0**-11


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


def flat(sums: dict[str, torch.Tensor]) -> torch.Tensor:
    """All weights' numbers."""
    return torch.cat([each.flatten() for each in sums.values()])


@pytest.mark.parametrize(("case", "clip"), [("mlp", 1e-6), ("mlp", 0.7), ("mlp", 1e6), ("cnn", 0.7), ("resnet", 0.7)])
def test_a_records_share_is_its_own_and_no_longer_than_the_clip(case: str, clip: float) -> None:
    """To the last bit it is the same whatever the others' gradients are, a multiple of the grid, and at most C long."""
    model, x, gradient = made(case)
    grid = DpSgd(clip, 1.0).grid
    for record in (0, RECORDS - 1):
        shares = []
        for others in (1.0, -3.7, 0.0):
            with_it, without = gradient * others, gradient * others
            with_it[record], without[record] = 100 * clip * gradient[record], 0.0
            sums = [flat(clipped_sum(model, x, each, clip)) / grid for each in (with_it, without)]
            shares.append(sums[0] - sums[1])
        assert all(torch.equal(share, shares[0]) for share in shares)
        assert torch.equal(shares[0], shares[0].round())
        length = Fraction(grid) ** 2 * sum(int(number) ** 2 for number in shares[0].tolist())
        assert Fraction(0.99 * clip) ** 2 < length <= Fraction(clip) ** 2


def test_a_number_that_is_not_finite_counts_as_0() -> None:
    """A record whose gradient overflows adds what its finite numbers do, and no other record's share changes."""
    model, x, gradient = made("mlp")
    gradient[2] = torch.tensor([math.inf, math.nan, -math.inf])
    empty = gradient.clone()
    empty[2] = 0.0
    assert torch.equal(flat(clipped_sum(model, x, gradient, 1.0)), flat(clipped_sum(model, x, empty, 1.0)))


def test_sums_that_are_not_exact_are_refused() -> None:
    """Too many records, and a grid so fine that partial sums need more than 53 bits."""
    model, x, gradient = made("mlp")
    finest = DpSgd(1.0, 1.0).grid
    with pytest.raises(ValueError, match="7 records on a grid"):
        clipped_sum(model, x, gradient, 1.0, finest / 2)
    many = 1 + (1 << 16)
    with pytest.raises(ValueError, match="65537 records"):
        clipped_sum(model, torch.zeros(many, 4), torch.zeros(many, 3), 1.0)


@pytest.mark.parametrize("noise", [1e-6, 0.1, 511.0, 512.0, 1e6])
def test_noise_is_a_discrete_gaussian_on_the_grid(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn is whole, of τ = σC/γ within the sampler's range, and is added to whole sums."""
    model, x, gradient = made("mlp")
    defence, drawn = DpSgd(3.0, noise), list[np.ndarray]()
    assert math.log2(defence.grid).is_integer()
    assert defence.variance == (Fraction(noise) * 3 / Fraction(defence.grid)) ** 2

    def kept(count: int, variance: Fraction, source: Callable[[int], bytes]) -> np.ndarray:
        assert variance == defence.variance
        drawn.append(discrete_gaussians(count, variance, source))
        return drawn[-1]

    monkeypatch.setattr(own_step, "discrete_gaussians", kept)
    noised = noised_gradients(model, x, gradient, defence, Draws(b"n"), "n")
    sums = flat(clipped_sum(model, x, gradient, 3.0, defence.grid)).numpy() / defence.grid
    expected = (sums.astype(np.int64) + drawn[0]) * (defence.grid / RECORDS)
    assert flat(noised).numpy().tolist() == expected.astype(np.float32).tolist()
    assert np.sqrt(np.mean(drawn[0].astype(float) ** 2)) == pytest.approx(math.sqrt(defence.variance), rel=0.4)


def in_floats(count: int, variance: Fraction, source: Callable[[int], bytes]) -> np.ndarray:
    """Normal noise in float64 (Box, Muller 1958), as DP-SGD is mostly written."""
    length, angle = (
        (np.frombuffer(source(8 * count), dtype="<u8") >> 11) * 2.0**-53,
        np.frombuffer(source(8 * count), "<u8"),
    )
    return np.asarray(math.sqrt(variance) * np.sqrt(-2.0 * np.log1p(-length)) * np.cos(angle * (2.0**-63 * np.pi)))


def hits(noise: float, plays: int, *, floating: bool) -> Iterator[int]:
    """Small outputs that end in zero bits, in all plays: without a record, and with it.

    One input is 1 of that record and 0 of the other. Without the record the sum below its noise is 0; with it float32
    rounds sum and noise to the sum's last bit.
    """
    model = bottom_model(Bottom(width=WIDTH), InputShape(1), Draws(b"model"), "bottom")
    x = torch.tensor([[1.0], [0.0]])
    given = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))
    without = given.clone()
    without[0] = 0.0
    for world, gradient in enumerate((without, given)):
        found = 0
        for play in range(plays):
            draws, defence = Draws(f"play {world} {play}".encode()), DpSgd(1.0, noise)
            if floating:
                total = clipped_sum(model, x, gradient, 1.0)["linear0.weight"][:, 0].float().numpy()
                sums = total + in_floats(WIDTH, Fraction(noise) ** 2, draws.source("n")).astype(np.float32)
            else:
                sums = 2 * noised_gradients(model, x, gradient, defence, draws, "n")["linear0.weight"][:, 0].numpy()
            small = sums[(np.abs(sums) < SMALL) & (sums != 0)]
            found += int((((small.view(np.uint32) & 0x7FFFFF) | 0x800000) % (1 << ZEROS) == 0).sum())
        yield found


def chance(without: int, given: int) -> float:
    """The probability of at least `given` of all hits with the record, if either world is as likely to have one."""
    total = without + given
    return float(Fraction(sum(math.comb(total, more) for more in range(given, total + 1)), 2**total))


def test_low_bits_tell_a_record_from_noise_in_floats_and_not_from_noise_on_a_grid() -> None:
    """In floats the record's world has the hits. On a grid both have some: a weight moves by .03 of the noise alone."""
    assert chance(*hits(1.0, 120, floating=True)) < 1e-4
    assert chance(*hits(1.0, 120, floating=False)) > 0.01


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("noise", [4.0, 10.0])
def test_low_bits_tell_nothing_in_10000_plays(noise: float) -> None:
    """The same at an ε of .93 and of .34."""
    without, given = hits(noise, 10_000, floating=False)
    assert min(without, given) > 0
    assert min(chance(without, given), chance(given, without)) > 1e-3
