"""DP-SGD on a grid: a record's share of a sum, the noise upon it, and what low bits of float32 tell of a record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

import torch

from tests.library.neural.test_dp_sgd import RECORDS, made
from treetap.neural import own_step
from treetap.neural.architectures import InputShape, bottom_model
from treetap.neural.defences import DpSgd
from treetap.neural.draws import Draws
from treetap.neural.own_step import clipped_sum, noised_gradients
from treetap.neural.params import Bottom
from treetap.privacy.discrete_gaussian import discrete_gaussians

pytestmark = pytest.mark.second_tier

#: Outputs of one linear layer; bits at the end of a small float32 that are 0 where it lies on a coarse grid.
WIDTH, ZEROS, SMALL = 1024, 8, 2.0**-11


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
