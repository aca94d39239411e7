"""Defences of gradients, each by hand."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from treetap.neural.defences import GradientDefence  # noqa: E402
from treetap.neural.draws import Draws  # noqa: E402
from treetap.neural.gradient_defences import applied, digest_of  # noqa: E402

pytestmark = pytest.mark.second_tier

DRAWS = Draws(b"the label holder's")
GRADIENT = torch.tensor([[0.5, -2.0, 0.1], [0.0, 1.0, -0.3]])
PATH = ("gradient", "shop", 3, 1)


def named(defence: GradientDefence, gradient: torch.Tensor) -> tuple[str | int, ...]:
    """The name of the draws for a gradient."""
    return (*PATH, digest_of(gradient), repr(defence))


def sent(defence: GradientDefence, gradient: torch.Tensor = GRADIENT, *path: str | int) -> np.ndarray:
    """The gradient that a feature party gets."""
    found = applied(defence, gradient, DRAWS, *(path or PATH))
    assert found.shape == gradient.shape
    assert found.dtype == torch.float32
    return np.asarray(found.numpy())


def test_noise_is_that_of_the_draw_with_this_name() -> None:
    """Added number by number; another batch, party or key has other noise; the same one the same, in any order."""
    noise = GradientDefence("noise", scale=0.25)
    expected = GRADIENT.numpy() + DRAWS.laplace(0.25, 6, *named(noise, GRADIENT)).reshape(2, 3).astype(np.float32)
    other = sent(noise, GRADIENT, "gradient", "shop", 3, 2)
    assert np.array_equal(sent(noise), expected)
    assert not np.isclose(other, expected).any()
    assert not np.isclose(sent(noise, GRADIENT, "gradient", "telco", 3, 1), expected).any()
    assert not np.isclose(applied(noise, GRADIENT, Draws(b"k"), *PATH).numpy(), expected).any()


def test_another_gradient_of_the_same_batch_has_other_noise() -> None:
    """Else whoever has a batch repeated with other embeddings would see the difference of two gradients as it is."""
    noise, other = GradientDefence("noise", scale=0.25), GRADIENT.clone()
    other[1, 2] += 1e-6
    assert np.abs(sent(noise, other) - sent(noise)).min() > 1e-4
    assert np.array_equal(sent(noise, GRADIENT.clone()), sent(noise))


def test_another_scale_has_other_noise() -> None:
    """Else two scales of one noise, before and after a restart of the label holder, would give the gradient."""
    small, large = (sent(GradientDefence("noise", scale=scale)) - GRADIENT.numpy() for scale in (0.25, 0.5))
    assert np.abs(large - 2 * small).min() > 1e-3


def test_a_scale_of_0_changes_nothing() -> None:
    """No noise, and no negative zero."""
    assert np.array_equal(sent(GradientDefence("noise")), GRADIENT.numpy())


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, [[0.5, -2.0, 0.1], [0.0, 1.0, -0.3]]),
        (0.5, [[0.5, -2.0, 0.0], [0.0, 1.0, 0.0]]),
        (0.9, [[0.0, -2.0, 0.0], [0.0, 0.0, 0.0]]),
        (1.0, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    ],
)
def test_compression_keeps_the_largest(share: float, expected: list[list[float]]) -> None:
    """By size over the whole batch: of six numbers, this share becomes 0."""
    assert np.array_equal(sent(GradientDefence("compression", share=share)), np.array(expected, dtype=np.float32))
    assert np.array_equal(GRADIENT.numpy()[0], np.array([0.5, -2.0, 0.1], dtype=np.float32))


def test_of_equal_sizes_compression_drops_the_first() -> None:
    """The order of equal numbers is the same on every machine."""
    equal = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    assert sent(GradientDefence("compression", share=0.5), equal).tolist() == [[0.0, 0.0], [1.0, -1.0]]


def test_levels_beside_a_rule_by_hand() -> None:
    """Other numbers: the deviation over the whole batch, and noise after it if there is a scale."""
    values = GRADIENT.numpy().astype(np.float64)
    step = 4 * values.std() / 2
    expected = np.round(values / step) * step
    assert sent(GradientDefence("levels", levels=2)) == pytest.approx(expected, rel=1e-6)
    defence = GradientDefence("levels", levels=2, scale=0.1)
    noise = DRAWS.laplace(0.1, 6, *named(defence, GRADIENT)).reshape(2, 3)
    assert sent(defence) == pytest.approx(expected + noise, rel=1e-5)
    assert sent(GradientDefence("levels", levels=2), torch.ones(2, 2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def ppdl_by_hand(defence: GradientDefence, gradient: np.ndarray) -> np.ndarray:
    """In a random order, numbers whose noisy size reaches the noisy threshold are sent with noise, up to a share."""
    flat = gradient.reshape(-1).astype(np.float64)
    path = named(defence, torch.from_numpy(gradient))
    noise = {name: DRAWS.laplace(defence.scale, len(flat), *path, name) for name in ("threshold", "size", "sent")}
    found, left = np.zeros(len(flat)), int(np.ceil(defence.share * len(flat)))
    for place in DRAWS.order(len(flat), *path, "order"):
        if left and abs(flat[place]) + noise["size"][place] >= defence.threshold + noise["threshold"][place]:
            found[place] = flat[place] + noise["sent"][place]
            left -= 1
    return found.reshape(gradient.shape)


@pytest.mark.parametrize("share", [0.0, 0.12, 0.5, 1.0])
@pytest.mark.parametrize("threshold", [0.0, 0.4, 10.0])
def test_ppdl_by_hand(share: float, threshold: float) -> None:
    """Against a loop over 60 numbers, with noise in three places."""
    gradient = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    defence = GradientDefence("ppdl", scale=0.2, share=share, threshold=threshold)
    found = sent(defence, torch.from_numpy(gradient))
    assert found == pytest.approx(ppdl_by_hand(defence, gradient), abs=1e-6)
    assert np.count_nonzero(found) <= np.ceil(share * 60)


def test_ppdl_without_noise_is_a_threshold() -> None:
    """All numbers that reach it, as they are."""
    found = sent(GradientDefence("ppdl", share=1.0, threshold=0.5))
    assert np.array_equal(found, np.array([[0.5, -2.0, 0.0], [0.0, 1.0, 0.0]], dtype=np.float32))
