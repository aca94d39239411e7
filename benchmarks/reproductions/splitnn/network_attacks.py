"""Attacks by the feature party on its own model and on its log after a training, and the floors without a federation.

Completion is measured on the test records, by five draws of 40 known labels and by all labels of the training records;
clusters and inferred labels of gradients on the training records.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from copy import deepcopy
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from divided_sets import Split
from feature_log import FeatureLog
from network_cells import Cell
from network_sets import FEATURE
from network_settings import params_of

from treetap.attacks.networks.completion import completed, named
from treetap.attacks.networks.gradients import gradient_clusters, gradient_labels
from treetap.attacks.scores import score
from treetap.attacks.view.received_rows import EpochRows, attack_draws
from treetap.neural.architectures import bottom_model
from treetap.neural.draws import Draws
from treetap.neural.numbers import pin

Ints = npt.NDArray[np.int64]
#: Known labels, and draws of them.
KNOWN, DRAWS = 40, 5
HEADS = ("mlp", "linear")


def attacked(cell: Cell, log: FeatureLog, split: Split) -> dict[str, Any]:
    """Figures of the attacks after a training: completion of the frozen bottom, and what the gradients tell."""
    assert log.bottom is not None  # the training is done
    begun = time.monotonic()
    found = _completions(log.bottom, split, cell.seed, (False,))
    found |= _gradients(log.epochs(), split, cell.seed)
    return found | {"attack_seconds": time.monotonic() - begun}


def floors(cell: Cell, split: Split) -> dict[str, Any]:
    """Completion of an untrained bottom, frozen, and tuned with its head, which is training from scratch."""
    return _completions(untrained(cell, split), split, cell.seed, (False, True))


def untrained(cell: Cell, split: Split, *, resnet: bool = False) -> torch.nn.Module:
    """The feature party's bottom with weights that no training has had."""
    settings, shape = params_of(cell, resnet=resnet).bottom_of(FEATURE), split.inputs["train"][FEATURE].shape
    draws = Draws.reproducible(cell.seed, f"{FEATURE} untrained")
    return bottom_model(settings, shape, draws, "bottom", FEATURE)


def _completions(bottom: torch.nn.Module, split: Split, seed: int, ways: Iterable[bool]) -> dict[str, Any]:
    """By head, way and number of known labels the mean accuracy on the test records, and its deviation."""
    pin(1)
    found: dict[str, Any] = {}
    for tuned in ways:
        for head in HEADS if not tuned else HEADS[:1]:
            for name, draws in (("", range(DRAWS)), ("_all", range(1))):
                rates = [
                    _completion(bottom, split, seed, head, draw, everything=bool(name), tuned=tuned) for draw in draws
                ]
                key = f"completion_{head}{'_tuned' if tuned else ''}{name}"
                found[key] = fmean(rates)
                if len(rates) > 1:
                    found[f"{key}_sd"] = pstdev(rates)
    return found


def _completion(
    bottom: torch.nn.Module, split: Split, seed: int, head: str, draw: int, *, everything: bool, tuned: bool
) -> float:
    labels, inputs = split.labels["train"], split.inputs["train"][FEATURE]
    records = np.arange(len(labels)) if everything else _known(len(labels), seed, draw)
    known, model = (records, labels[records]), deepcopy(bottom)
    classifier = completed(model, inputs, known, split.classes, head, tuned=tuned, seed=seed, draw=draw)
    places, truth = np.arange(len(split.labels["test"])), split.labels["test"]
    return float(np.mean(named(classifier, split.inputs["test"][FEATURE], places) == truth))


def _known(records: int, seed: int, draw: int) -> Ints:
    """Places of the records whose labels the feature party knows."""
    return np.sort(attack_draws(seed).order(records, "known", draw)[:KNOWN])


def _gradients(epochs: list[EpochRows], split: Split, seed: int) -> dict[str, Any]:
    """The V-measure of clusters of the first epoch's gradients; the share of training labels that follows from 40."""
    labels, first = split.labels["train"], epochs[0]
    outcome, groups, _ = gradient_clusters(first, split.classes, seed)
    found: dict[str, Any] = {
        "clusters": score(labels[first.records], groups).v_measure,
        "outcome": outcome,
    }
    shares = []
    for draw in range(DRAWS):
        known = _known(len(labels), seed, draw)
        inferred = gradient_labels(epochs, dict(zip(known.tolist(), labels[known].tolist(), strict=True)))
        right = np.zeros(len(labels), dtype=bool)
        if inferred is not None:
            right[inferred.records] = inferred.labels == labels[inferred.records]
        unknown = np.setdiff1d(np.arange(len(labels)), known)
        shares.append(float(right[unknown].mean()))
    return found | {"gradient_labels": fmean(shares), "gradient_labels_sd": pstdev(shares)}
