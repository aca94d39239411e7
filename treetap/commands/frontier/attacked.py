"""The attacks on what the feature parties saw of a training, scored against the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attacks.id2graph.leaves import Leaves
from attacks.id2graph.settings import Settings, usual_discount
from attacks.registry import EXACT_UP_TO, attack
from attacks.scores import score
from treetap.commands.frontier.frontier_file import REFERENCE, FrontierFile
from treetap.trees.local_values import Floats, Ints

#: The attacks of the paper's Figures 8 and 9 that use the trees, but for ID2Graph itself.
_OTHERS = ("uni", "uni+cl")


def attacks_of(experiment: FrontierFile, records: int) -> list[str]:
    """The attacks on trainings of `records` records; the reference is the last."""
    usual = ("id2graph" if records <= EXACT_UP_TO else "id2graph-quotient", *_OTHERS)
    chosen = experiment.frontier.attacks or usual
    return [*(name for name in chosen if name != REFERENCE), REFERENCE]


def v_measures(
    experiment: FrontierFile,
    names: Sequence[str],
    views: Mapping[str, Leaves],
    features: Mapping[str, Floats],
    labels: Ints,
    classes: int,
) -> dict[str, dict[str, float]]:
    """Feature party → attack → V-measure, as an audit finds it from the whole training.

    `views`: per party its leaves of every tree. `features`: per party its columns (N, d), categories one-hot. `labels`:
    class numbers (N,), which only score.
    """
    given: dict[str, Any] = {"discount": usual_discount(experiment.job.protocol)} | experiment.frontier.settings
    settings = Settings.read(given)
    found: dict[str, dict[str, float]] = {}
    for party, leaves in views.items():
        outcomes = {name: attack(name, leaves, len(labels), features[party], classes, settings) for name in names}
        found[party] = {name: score(labels, each.clusters).v_measure for name, each in outcomes.items()}
    return found
