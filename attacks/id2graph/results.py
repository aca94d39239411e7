"""The results of attacks that group records, in the audit document."""

from __future__ import annotations

from typing import Any, Literal

from attacks.findings import Count, Findings


class AttackResult(Findings):
    """One attack on one party's view. Scores compare its clusters with the labels: null where there are none.

    All figures but the lists are those after `after_trees` trees: the number with the largest V-measure, since an
    attacker may stop after any tree; without labels all trees; null for an attack that uses no tree. `accuracy` is that
    of the best one-to-one matching of clusters and classes; `named_accuracy` that of a matching by the order of their
    sizes, null in documents of versions without it. `groups`: communities or components before k-means, null for an
    attack that forms none. `by_tree`, `accuracy_by_tree`: V-measure and accuracy after the first tree, the first two,
    ...; null without labels, an entry null where it was not computed.
    """

    after_trees: Count | None
    v_measure: float | None
    homogeneity: float | None
    completeness: float | None
    ari: float | None
    nmi: float | None
    accuracy: float | None
    named_accuracy: float | None = None
    seconds: float
    groups: Count | None
    clusters: Count
    parameters: dict[str, Any]
    by_tree: list[float | None] | None
    accuracy_by_tree: list[float | None] | None

    def largest(self, measure: Literal["v_measure", "accuracy"]) -> tuple[int | None, float] | None:
        """The number of trees with the largest figure, the first of several, and that figure; None without scores.

        The number is None for an attack that uses no tree.
        """
        steps = self.by_tree if measure == "v_measure" else self.accuracy_by_tree
        steps_scored: list[tuple[int | None, float]] = [
            (trees, value) for trees, value in enumerate(steps or [], start=1) if value is not None
        ]
        whole: float | None = getattr(self, measure)
        if self.after_trees is None or not steps_scored:
            return None if whole is None else (self.after_trees, whole)
        return max(steps_scored, key=lambda figure: figure[1])
