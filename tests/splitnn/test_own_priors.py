"""Priors of labels by the label holder's own model of a network, from noisy labels of other records."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from treetap.neural.centralised import OwnNetwork
from treetap.neural.draws import Draws
from treetap.neural.params import Bottom, SplitnnParams
from treetap.privacy.label_dp import staged
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

pytestmark = pytest.mark.second_tier

N = 90
MLP = SplitnnParams(epochs=20, batch_size=10, learning_rate=0.1, bottom={"a": Bottom(hidden=(8,), width=4)})
THREE = replace(MLP, objective="multi:softprob")
IMAGES = replace(THREE, bottom={"a": Bottom("cnn", channels=(4,), width=8, norm="batch")})


def _table(classes: int, *, images: bool) -> tuple[Table, np.ndarray[Any, np.dtype[np.int64]]]:
    """A table whose first column, or the brightness of whose images, is the label; the second column has gaps."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, classes, N)
    features = np.column_stack([labels + 0.2 * rng.normal(size=N), rng.normal(size=N)])
    features[::7, 1] = np.nan
    cells = (60 * labels[:, None, None] + rng.integers(0, 60, size=(N, 4, 4))).astype(np.uint8)
    ids, rows, path = [f"r{place:03d}" for place in range(N)], np.arange(N), Path("own.parquet")
    if images:
        return Table(path, Ids.of(ids), [], Held(np.zeros((N, 0))), None, rows, tensors={"image": cells}), labels
    return Table(path, Ids.of(ids), ["x", "noise"], Held(features), None, rows), labels


@pytest.mark.parametrize(("params", "classes"), [(MLP, 2), (THREE, 3), (IMAGES, 3)], ids=["two", "three", "images"])
def test_priors_never_use_the_records_own_label(params: SplitnnParams, classes: int) -> None:
    """Another label of a record leaves the priors of its part and of earlier ones as they were, and moves later ones.

    They are better than none: they name the class of most records.
    """
    table, labels = _table(classes, images=params is IMAGES)

    def asked(values: np.ndarray[Any, np.dtype[np.int64]]) -> list[tuple[list[int], np.ndarray[Any, Any]]]:
        own, found = OwnNetwork(table, classes, "a", params, Draws(b"key")), []

        def priors(before: Any, drawn: Any, following: Any) -> Any:
            prior = own.of(following, before, drawn)
            found.append((following.tolist(), prior))
            return prior

        staged(values, classes, 30.0, 3, priors, random.Random(2).randrange)
        return found

    as_it_was = asked(labels)
    for stage, (part, priors) in enumerate(as_it_was):
        assert priors.shape == (len(part), classes)
        assert priors.sum(axis=1) == pytest.approx(1.0, abs=1e-6)
        assert np.mean(np.argmax(priors, axis=1) == labels[part]) > 0.8
        other = labels.copy()
        other[part[0]] = (other[part[0]] + 1) % classes
        changed = asked(other)
        for before, after in zip(as_it_was[: stage + 1], changed[: stage + 1], strict=True):
            assert np.array_equal(before[1], after[1])
        assert stage == 1 or not np.array_equal(changed[stage + 1][1], as_it_was[stage + 1][1])


def test_few_known_records_make_one_batch() -> None:
    """Fewer than a batch of the job, and early stopping, which would set some of them aside, is none of theirs."""
    table, _ = _table(2, images=False)
    params = replace(MLP, batch_size=4096, early_stopping_rounds=1, validation_share=0.5)
    found = OwnNetwork(table, 2, "a", params, Draws(b"key")).of(np.arange(5), np.arange(10, 13), np.array([0, 1, 1]))
    assert found.shape == (5, 2)
    assert (found > 0).all()


def test_known_records_of_one_class_give_priors_too() -> None:
    """Shares with one record more of each class, so that no class is excluded."""
    table, _ = _table(3, images=False)
    found = OwnNetwork(table, 3, "a", THREE, Draws(b"key")).of(np.arange(2), np.arange(5, 9), np.array([1, 1, 1, 1]))
    assert found == pytest.approx(np.tile([1 / 7, 5 / 7, 1 / 7], (2, 1)))
