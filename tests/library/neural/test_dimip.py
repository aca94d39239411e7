"""DIMIP against a calculation without PyTorch, in its order of steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")


from treetap.errors import ConfigError  # noqa: E402
from treetap.neural.draws import Draws  # noqa: E402
from treetap.neural.gradient_defences import HIDDEN, RATE, Dimip  # noqa: E402

pytestmark = pytest.mark.second_tier

#: Three records with embeddings of two numbers, and three classes.
EMBEDDINGS = np.array([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])
LABELS = np.array([2, 0, 1])
LAMBDA = 0.7
KEY = b"the label holder's"


def term(*, random_labels: bool = True, weight: float = LAMBDA) -> Dimip:
    """The term of one feature party, in float64."""
    found = Dimip("shop", 2, 3, weight, Draws(KEY), random_labels=random_labels)
    found.predictor.double()
    return found


class Predictor:
    """q_ψ in numpy: three layers with ReLU, and the gradients of its mean cross-entropy."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.w = [np.array(weights[f"predictor/linear{place}.weight"]) for place in range(3)]
        self.b = [np.array(weights[f"predictor/linear{place}.bias"]) for place in range(3)]

    def gradients(self, e: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """∂loss/∂e, ∂loss/∂w of each layer, ∂loss/∂b of each layer."""
        x = self._layers(e)
        chances = np.exp(x[3]) / np.exp(x[3]).sum(axis=1, keepdims=True)
        back = (chances - np.eye(chances.shape[1])[labels]) / len(e)
        w, b = [], []
        for place in (2, 1, 0):
            w.insert(0, back.T @ x[place])
            b.insert(0, back.sum(axis=0))
            back = back @ self.w[place]
            if place:
                back = back * (x[place] > 0)
        return back, w, b

    def step(self, e: np.ndarray, labels: np.ndarray) -> None:
        """The first step of Adam: rate · g / (|g| + ε), as both means are corrected for their beginning at 0."""
        _, w, b = self.gradients(e, labels)
        for own, gradient in zip([*self.w, *self.b], [*w, *b], strict=True):
            own[...] = own - RATE * gradient / (np.abs(gradient) + 1e-8)

    def _layers(self, e: np.ndarray) -> list[np.ndarray]:
        first = np.maximum(e @ self.w[0].T + self.b[0], 0)
        second = np.maximum(first @ self.w[1].T + self.b[1], 0)
        return [e, first, second, second @ self.w[2].T + self.b[2]]


def gradient_of(which: Dimip, epoch: int = 0, batch: int = 4) -> np.ndarray:
    """The term's gradient at the three records."""
    return np.asarray(which.gradient(torch.from_numpy(EMBEDDINGS), LABELS, epoch, batch).numpy())


def random_labels(epoch: int = 0, batch: int = 4) -> np.ndarray:
    """The labels y_k of a batch, k uniform over it."""
    return LABELS[Draws(KEY).integers(3, 3, "dimip", "shop", epoch, batch)]


@pytest.mark.parametrize("with_random_labels", [True, False])
def test_three_records_by_hand(with_random_labels: bool) -> None:
    """λ (−∂CE(q(e), y)/∂e + ∂CE(q(e), y_k)/∂e), q after its step; without L_R the first term alone."""
    which = term(random_labels=with_random_labels)
    expected = Predictor(which.state())
    expected.step(EMBEDDINGS, LABELS)
    by_hand = -expected.gradients(EMBEDDINGS, LABELS)[0]
    if with_random_labels:
        assert not np.array_equal(random_labels(), LABELS)
        by_hand = by_hand + expected.gradients(EMBEDDINGS, random_labels())[0]
    assert gradient_of(which) == pytest.approx(LAMBDA * by_hand, rel=1e-6)
    assert np.abs(by_hand).max() > 1e-3
    for place, weights in enumerate(expected.w):
        assert which.state()[f"predictor/linear{place}.weight"] == pytest.approx(weights, rel=1e-6, abs=1e-9)


def test_the_gradient_is_proportional_to_lambda_and_follows_from_the_batch() -> None:
    """Twice λ is twice the gradient; another batch has other random labels; the predictor's weights have no part."""
    one, two, other = gradient_of(term(weight=0.1)), gradient_of(term(weight=0.2)), gradient_of(term(), batch=5)
    assert two == pytest.approx(2 * one)
    drawn = [random_labels(batch=batch).tolist() for batch in range(6)]
    assert len({tuple(each) for each in drawn}) > 1
    assert (random_labels(batch=5).tolist() == random_labels().tolist()) == np.allclose(other, 7 * one)


def test_a_state_continues_bit_by_bit() -> None:
    """q_ψ and its Adam after two batches: a third gives the same gradient as without the break."""
    straight, resumed = term(), Dimip("shop", 2, 3, LAMBDA, Draws(KEY))
    resumed.predictor.double()
    gradient_of(straight, batch=0)
    gradient_of(straight, batch=1)
    resumed.load(straight.state())
    assert np.array_equal(gradient_of(straight, batch=2), gradient_of(resumed, batch=2))
    again, expected = resumed.state(), straight.state()
    assert set(again) == set(expected)
    assert all(np.array_equal(values, again[name]) for name, values in expected.items())


def test_the_predictor_is_an_mlp_of_three_layers() -> None:
    """As many outputs as classes, and other initial weights for another party."""
    one, other = (Dimip(name, 2, 3, LAMBDA, Draws(KEY)).state() for name in ("shop", "telco"))
    shapes = {name.removeprefix("predictor/"): each.shape for name, each in one.items()}
    assert shapes == {
        "linear0.weight": (HIDDEN, 2), "linear0.bias": (HIDDEN,), "linear1.weight": (HIDDEN, HIDDEN),
        "linear1.bias": (HIDDEN,), "linear2.weight": (3, HIDDEN), "linear2.bias": (3,),
    }  # fmt: skip
    assert not np.array_equal(one["predictor/linear0.weight"], other["predictor/linear0.weight"])


def test_labels_that_are_numbers_are_refused() -> None:
    """The predictor is one of classes."""
    with pytest.raises(
        ConfigError, match="defences: dimip of shop: the labels must be classes, and this job's are num"
    ):
        Dimip("shop", 2, 0, LAMBDA, Draws(KEY))
