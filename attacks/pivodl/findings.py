"""All attacks of PIVODL on one party's view, as the audit document has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.pivodl import own_label_model
from attacks.pivodl.differential import UNKNOWN, recovered, sets_of_transcript
from attacks.pivodl.disclosed import disclosed
from attacks.pivodl.gain_inversion import GainInversion
from attacks.pivodl.known_sums import closed
from attacks.pivodl.label_guess import (
    Guess,
    Weights,
    after_each_tree,
    exact_only,
    from_own_splits,
    in_place_of,
    score,
    summed,
)
from attacks.view.known_trees import Ints
from attacks.view.pivodl_view import PivodlView
from treetap.tables.labels import Labels

#: The attacks, one line each.
ATTACKS = {
    "label_guess": "sign of the leaf weights that a party received, over records that it does not label",
    "gain_inversion": "exact leaf weights from announced gains",
    "differential": "labels from sums over sets that differ in few records",
    "disclosed": "counts of what the messages disclose: bins, records of nodes, sums",
}


def findings(
    view: PivodlView,
    records: int,
    features: npt.NDArray[np.float64] | None,
    labels: Labels | None,
    exact: Weights | None = None,
    only: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Run every attack, or `only` one; the result of each under its name.

    Args:
        features: the party's own columns (N, d), for a model of its own labels.
        labels: of all records, for scoring; the attacker's model is fitted on those that the party has itself.
        exact: exact weights of all leaves that some audited party received, to tell what the noise hides.
    """
    truth = None if labels is None else _numbers(view, labels)
    inversion = GainInversion(view, records, truth)
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "label_guess": lambda: _guess(view, records, features, truth, inversion, exact or {}),
        "gain_inversion": lambda: _inversion(view, inversion, truth),
        "differential": lambda: _differential(view, inversion, records, truth),
        "disclosed": lambda: asdict(disclosed(view)),
    }
    return {name: make() for name, make in made.items() if only in (None, name)}


def exact_weights(views: Mapping[str, PivodlView]) -> dict[tuple[int, int], npt.NDArray[np.float64]]:
    """Exact weights by (tree, leaf) that some party received."""
    return {
        (tree.view.index, leaf): weight.value
        for view in views.values()
        for tree in view.trees
        for leaf, weight in tree.weights.items()
        if weight.exact
    }


def _numbers(view: PivodlView, labels: Labels) -> Ints | None:
    """Labels (N,) as numbers of the job's classes; None for a regression or other classes."""
    names = view.params.class_names
    if not set(labels.classes) <= set(names):
        return None
    numbers = np.array([names.index(each) for each in labels.classes], dtype=np.int64)
    found: Ints = numbers[labels.values]
    return found


def _guess(
    view: PivodlView,
    records: int,
    features: npt.NDArray[np.float64] | None,
    truth: Ints | None,
    inversion: GainInversion,
    exact: Weights,
) -> dict[str, Any]:
    if view.params.regression:
        truth = None
    whole = summed(view, records)
    inverted = {(tree.index, leaf): value for tree in inversion.trees for leaf, value in tree.weights.items()}
    steps = after_each_tree(view, records, truth)
    noise = view.params.epsilon is not None
    hides = noise and all((tree.view.index, leaf) in exact for tree in view.trees for leaf in tree.weights)
    return {
        **asdict(score(whole, truth)),
        "others": records - len(view.own),
        "epsilon": view.params.epsilon,
        "as_source": asdict(score(summed(view, records, from_own_splits(view)), truth)),
        "exact": asdict(score(summed(view, records, exact_only), truth)) if noise else None,
        "without_noise": asdict(score(summed(view, records, in_place_of(exact)), truth)) if hides else None,
        "after_inversion": asdict(score(summed(view, records, in_place_of(inverted)), truth)) if noise else None,
        "own_labels_and_spaces": _plain(None if truth is None else own_label_model.by_spaces(view, truth)),
        "own_labels_and_columns": _plain(
            None if truth is None or features is None else own_label_model.by_columns(view, features, truth)
        ),
        "accuracy_by_tree": [step.accuracy for step in steps],
        "auc_by_tree": [step.auc for step in steps],
    }


def _plain(guess: Guess | None) -> dict[str, Any] | None:
    return None if guess is None else asdict(guess)


def _inversion(view: PivodlView, inversion: GainInversion, truth: Ints | None) -> dict[str, Any]:
    by_tree = []
    for tree in inversion.trees:
        right = None
        if truth is not None:
            right = sum(int((truth[each.records] == 1).sum()) == each.positives for each in tree.solved)
        by_tree.append(
            {
                "tree": tree.index,
                "splits": tree.splits,
                "announced": tree.announced,
                "tried": tree.tried,
                "solved": len(tree.solved),
                "exact": right,
            }
        )
    removed = 0
    for seen, solved in zip(view.trees, inversion.trees, strict=True):
        told = closed(seen.sums, seen.splits)  # these weights follow without a gain: `exact_weight_known`
        removed += sum(
            not seen.weights[leaf].exact for leaf in solved.weights if leaf in seen.weights and leaf not in told
        )
    return {
        "possible": inversion.possible and view.params.gain_comparison == "announce",
        **{key: sum(row[key] for row in by_tree) for key in ("splits", "announced", "tried", "solved")},
        "exact": None if truth is None else sum(row["exact"] for row in by_tree),
        "noised_weights": sum(not weight.exact for tree in view.trees for weight in tree.weights.values()),
        "noise_removed": removed,
        "by_tree": by_tree,
    }


def _differential(view: PivodlView, inversion: GainInversion, records: int, truth: Ints | None) -> dict[str, Any]:
    sets = sets_of_transcript(view, inversion)
    return {
        "opened_by_source": sum(tree.opened_by_source for tree in view.trees),
        "known_sums": len(sets),
        "smallest_set": min((len(rows) for rows, _ in sets), default=None),
        **_revealed(view, recovered(sets, records), truth, ""),
        **_revealed(
            view, recovered(sets_of_transcript(view, inversion, inverted=True), records), truth, "_by_inversion"
        ),
    }


def _revealed(view: PivodlView, found: Ints, truth: Ints | None, name: str) -> dict[str, Any]:
    """Records of other parties whose label follows, and how many of these labels are right."""
    found[view.own] = UNKNOWN
    known = found != UNKNOWN
    return {
        f"labels{name}": int(known.sum()),
        f"labels_right{name}": None if truth is None else int((found[known] == truth[known]).sum()),
    }
