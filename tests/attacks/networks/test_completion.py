"""Model completion of planted bottoms, and the draws of known labels."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

import torch

from treetap.attacks.known_labels.names import KnownLabels
from treetap.attacks.networks.completion import Completions, completions
from treetap.attacks.networks.evidence import Evaluation
from treetap.attacks.networks.schema import NetworkSettings
from treetap.attacks.view.received_rows import attack_draws
from treetap.errors import BadInput
from treetap.neural.architectures import InputShape, bottom_model
from treetap.neural.inputs import Inputs
from treetap.neural.params import Bottom
from treetap.tables.labels import Labels

pytestmark = pytest.mark.second_tier

RECORDS, COLUMNS, CLASSES = 400, 30, 3
SHAPE = InputShape(COLUMNS)
SETTINGS = Bottom(width=2)


@pytest.fixture(scope="module")
def planted() -> tuple[Inputs, np.ndarray[tuple[int], np.dtype[np.int64]], torch.nn.Module]:
    """Records of which two columns of thirty tell the class, their classes, and a bottom that takes these two alone."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, CLASSES, RECORDS)
    values = draw.normal(size=(RECORDS, COLUMNS))
    values[:, :2] = 0.3 * values[:, :2] + np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, -2.0]])[labels]
    bottom = bottom_model(SETTINGS, SHAPE, attack_draws(0), "planted")
    with torch.no_grad():
        for name, weight in bottom.named_parameters():
            weight.zero_()
            if name.endswith("weight"):
                weight[0, 0] = weight[1, 1] = 1.0
    return Inputs(values.astype(np.float32), [], [], SHAPE), labels, bottom


def test_a_bottom_that_tells_the_class_is_completed(
    planted: tuple[Inputs, np.ndarray[tuple[int], np.dtype[np.int64]], torch.nn.Module],
) -> None:
    """With few labels by either head; an untrained bottom of two random sums and training from scratch are far behind.

    The published bottom stays as it is, and a repetition gives the same accuracies.
    """
    inputs, labels, bottom = planted
    before = deepcopy(bottom.state_dict())
    places = np.arange(RECORDS, dtype=np.int64)
    evaluation = Evaluation(inputs, places[200:], labels[200:])
    draws = [(places[start : start + 20], labels[start : start + 20]) for start in (0, 20)]

    def found(**only: Any) -> Completions:
        def untrained(draw: int) -> torch.nn.Module:
            return bottom_model(SETTINGS, SHAPE, attack_draws(1), draw)

        return completions(bottom, untrained, inputs, draws, CLASSES, evaluation, **only)

    first = found()
    assert len(first) == 8
    for head in ("mlp", "linear"):
        assert min(first[head, "published", False]) > 0.97
        assert max(first[head, "untrained", False]) < 0.8
        assert max(first[head, "untrained", True]) < min(first[head, "published", True])
    assert all(torch.equal(before[name], weight) for name, weight in bottom.state_dict().items())
    again = found(heads=["mlp"], tuned=False)
    assert again == {way: first[way] for way in again}


@pytest.mark.campaign
def test_from_scratch_with_all_labels_is_a_strong_floor(
    planted: tuple[Inputs, np.ndarray[tuple[int], np.dtype[np.int64]], torch.nn.Module],
) -> None:
    """Training from scratch is given steps enough, also for a small bottom and few records."""
    inputs, labels, bottom = planted
    places = np.arange(RECORDS, dtype=np.int64)
    known, evaluation = (places[:200], labels[:200]), Evaluation(inputs, places[200:], labels[200:])
    made = completions(
        bottom, lambda draw: bottom_model(SETTINGS, SHAPE, attack_draws(1), draw), inputs, [known], CLASSES, evaluation
    )
    assert min(made[head, "untrained", True][0] for head in ("mlp", "linear")) > 0.93


def test_draws_of_known_labels() -> None:
    """As many as the settings say, apart from the records of evaluation; a file of them is drawn from too."""
    labels = Labels(np.arange(100) % 2, ["no", "yes"])
    settings = NetworkSettings(known=10, draws=3)
    from_all = KnownLabels.of(100, labels, None)
    aside = from_all.evaluated(settings)
    assert len(aside) == 20
    draws = from_all.draws(settings, aside)
    assert [len(each) for each in draws] == [10, 10, 10]
    assert len({tuple(each) for each in draws}) == 3
    assert not np.isin(np.concatenate(draws), aside).any()
    known = (np.arange(30), Labels(np.arange(30) % 3, ["yes", "no", "other"]))
    own = KnownLabels.of(100, labels, known)
    assert own.classes == ["no", "yes", "other"]
    assert own.truth[:3].tolist() == [1, 0, 2]
    assert own.all
    assert own.evaluated(settings).min() >= 30
    assert all(each.max() < 30 for each in own.draws(settings, own.evaluated(settings)))
    alone = KnownLabels.of(100, None, known)
    assert (len(alone.evaluated(settings)), alone.all) == (6, False)
    few = KnownLabels.of(100, None, (np.arange(4), Labels(np.arange(4) % 2, ["a", "b"])))
    assert [len(each) for each in few.draws(settings, np.zeros(0, dtype=np.int64))] == [4]
    assert KnownLabels.of(100, None, None).draws(settings, np.zeros(0, dtype=np.int64)) == []


def test_settings_are_checked() -> None:
    """An unknown one, and one out of its range, by name."""
    with pytest.raises(BadInput, match="unknown: knwon"):
        NetworkSettings.read({"knwon": 3})
    with pytest.raises(BadInput, match="known must be a whole number in"):
        NetworkSettings.read({"known": 0})
