"""Matching of embeddings by a model that is known: what is bounded, what is free, and smooth images."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

import torch

from tests.attacks.features.planted import table_of
from treetap.attacks.features.evidence import Records, RecordSpace
from treetap.attacks.features.guesses import matched, surrogate
from treetap.attacks.view.received_rows import attack_draws
from treetap.neural.inputs import ImageScaler, InputScaler
from treetap.neural.params import Bottom

pytestmark = pytest.mark.second_tier

DRAWS = attack_draws(0)
TABLE = InputScaler(("free", "text"), (0.0, 0.0), (1.0, 1.0), (1,), {})
IMAGES = InputScaler((), (), (), (), {"face": ImageScaler((1, 6, 4), (0.25,), (0.5,))})


def found(scaler: InputScaler, embeddings: torch.Tensor, variation: float = 0.0) -> Records:
    """Records whose inputs are nearest to these embeddings (v, inputs), by a model that changes nothing."""
    bounded = np.array([False, True])[: len(scaler.columns)]
    return matched(lambda inputs: inputs.flatten(1), scaler, bounded, embeddings, 200, variation, DRAWS, "m")


def test_numbers_of_texts_lie_between_0_and_1() -> None:
    """Others are where the embedding is, on either side; an indicator of missing cells is no column."""
    guess = found(TABLE, torch.tensor([[3.0, 2.0, 0.0], [-3.0, -2.0, 1.0], [0.5, 0.5, 9.0]]))
    assert guess.numbers.shape == (3, 2)
    assert np.allclose(guess.numbers, [[3.0, 1.0], [-3.0, 0.0], [0.5, 0.5]], atol=0.01)


def test_pixels_lie_between_0_and_1_and_are_standardised_for_the_model() -> None:
    """Those that the embedding asks for beyond are at the bound."""
    wanted = torch.tensor([-1.0, 0.1, 0.75, 3.0]).repeat_interleave(6)
    guess = found(IMAGES, ((wanted - 0.25) / 0.5)[None])
    assert guess.images["face"].shape == (1, 1, 6, 4)
    assert np.allclose(guess.images["face"].reshape(-1), wanted.clamp(0.0, 1.0), atol=0.01)


def test_total_variation_smooths_images() -> None:
    """A lone bright pixel fades, the more the larger the weight; a flat image stays as it is."""
    lone = torch.zeros(2, 24)
    lone[0, 9] = 1.0
    heights = [float(found(IMAGES, (lone - 0.25) / 0.5, weight).images["face"][0].max()) for weight in (0.0, 0.2, 10.0)]
    assert heights[0] > 0.98
    assert heights[0] - 0.05 > heights[1] > heights[2] + 0.05
    flat = found(IMAGES, (lone - 0.25) / 0.5, 0.2).images["face"][1]
    assert float(flat.max()) < 0.02


def test_a_surrogate_keeps_its_statistics() -> None:
    """Of batch normalisation, so that a victim's embedding does not depend on the others that are matched."""
    cells = np.random.default_rng(0).integers(0, 255, (9, 6, 4), dtype=np.uint8)
    inputs = RecordSpace.of(table_of({"face": cells})).inputs
    model = surrogate(Bottom("cnn", channels=(2,), width=2, norm="batch"), inputs, torch.ones(9, 2), DRAWS, "s")
    both, one = model(inputs.batch(np.arange(9))), model(inputs.batch(np.arange(1)))
    assert torch.allclose(both[:1], one, atol=1e-5)
