"""Information on the label of the sets of records that each feature party comes to know, tree by tree as they grow.

Per set the bound of Eq. 6 of Takahashi, Liu, Liu (2023) on its mutual information with the label. Bounds do not add up
to one for all sets together; so beside them stands the mutual information of the label and the party's *signature*, the
partition of the records by all sets that it knows, with the part that small groups explain by chance. All figures are
computed from labels and stay in the label holder's own files, log and metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetap.arrays import Array, Ints
from treetap.errors import Refused
from treetap.models.line_file import Line
from treetap.models.store import LEAKAGE
from treetap.party.growth.rule import Rule
from treetap.party.growth.stored_trees import KNOWN, known_sets
from treetap.party.setup.labelled_table import LabelledTable
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.information import (
    class_counts,
    class_entropy,
    mutual_information,
    node_bounds,
    numbered,
    permuted_information,
)

log = logging.getLogger(__name__)


@dataclass
class _KnownSets:
    """The sets of one tree that one party knows: the deepest of each record (N,), their number, the worst bound."""

    deepest: Ints
    count: int = 0
    nats: float = 0.0
    node: int | None = None


class ReleasedSets(Rule):
    """The account of one job; there is none where labels are no classes.

    Attributes:
        clean: (N,) the true class numbers, where the training uses others: under label differential privacy what is
            stopped or withdrawn depends on the noisy ones.
    """

    _signatures: dict[str, Ints] | None = None
    _line: Line = {}

    def selected(self, data: LabelledTable) -> None:
        self._labels, self._classes = data.labels.values, len(data.labels.classes)
        self.clean: Ints | None = None if data.clean is None else data.known.values

    def planted(self, growing: GrowingTree, *, alone: bool) -> None:
        """Every party knows the root, and no more yet."""
        del growing, alone
        if not self._classes:
            return
        names, none = list(self.part.spec.feature_parties), np.zeros(len(self._labels), dtype=np.int64)
        if self._signatures is None:
            self._totals = class_counts(self._labels, self._classes)
            stored = known_sets(self.part.context.store)
            self._signatures = {name: stored.get(name, none) for name in names}
        self._sets = {name: _KnownSets(none + 1) for name in names}

    def release(self, party: str, tree: int, sets: Mapping[int, Ints]) -> None:
        """Account for the sets, by node, that a party comes to know at a level.

        Raises:
            Refused: one of them exceeds the policy's `max_leakage`; no figure is in the error, which others get.
        """
        if not sets or not self._classes:
            return
        context, policy = self.part.context, self.part.context.policy
        counts = np.array([class_counts(self._labels[rows], self._classes) for rows in sets.values()])
        bounds = node_bounds(counts, self._totals).larger
        known, worst = self._sets[party], int(bounds.argmax())
        known.count += len(sets)
        for node, rows in sets.items():
            known.deepest[rows] = node
        if bounds[worst] > known.nats:
            known.nats, known.node = float(bounds[worst]), list(sets)[worst]
            context.metrics.leakage_bound.labels(party).set(known.nats)
        most = policy.labels.max_leakage
        if most is not None and policy.labels.on_max_leakage == "stop" and bounds[worst] > most:
            log.error(
                "job %s: stopped at tree %d: the records of node %d, which %s would know, bear up to %.4f nats on the "
                "label, and the policy says max_leakage = %g",
                context.job, tree, list(sets)[worst], party, float(bounds[worst]), most,
            )  # fmt: skip
            raise Refused(
                f"{context.party} has stopped job {context.job}: its policy has a limit on what sets of records may "
                f"tell; {context.party}'s own log has more"
            )

    def finish(self, tree: int, growing: GrowingTree) -> None:
        """Refine the signatures by the tree's sets, and compute the figures after it."""
        del growing
        rows: dict[str, Any] = {}
        context, signatures = self.part.context, self._signatures
        if signatures is None:
            return
        for name, known in self._sets.items():
            refined = signatures[name] * np.int64(known.deepest.max() + 1) + known.deepest
            signatures[name] = numbered(refined)[0]
            said = self._said(name, self._labels)
            rows[name] = {"sets": known.count, "bound_nats": known.nats, "node": known.node, **said}
            if self.clean is not None:
                rows[name]["clean"] = self._said(name, self.clean)
            context.metrics.signature(name, said["information_nats"], said["by_chance_nats"], said["excess_share"])
            log.info(
                "job %s, tree %d: %s knows %d sets, each with at most %.4f nats on the label (per node, not joint); "
                "all together have %.1f %% of the label's entropy beyond chance",
                context.job, tree, name, known.count, known.nats, 100 * said["excess_share"],
            )  # fmt: skip
        entropy = class_entropy(self._totals)
        noisy = self.clean is not None
        self._line = {LEAKAGE: {"tree": tree, "noisy_labels": noisy, "entropy_nats": entropy, "parties": rows}}

    def kept(self) -> Line:
        return self._line

    def arrays(self) -> dict[str, Array]:
        return {f"{KNOWN}{name}": array for name, array in (self._signatures or {}).items()}

    def _said(self, party: str, labels: Ints) -> dict[str, Any]:
        """The information of a party's signature on labels (N,): plug-in, by chance, their difference over H(Y)."""
        groups = (self._signatures or {})[party]
        information = mutual_information(labels, groups)
        chance = permuted_information(labels, groups, np.random.default_rng())
        entropy = class_entropy(class_counts(labels, self._classes))
        return {
            "signatures": int(groups.max()) + 1,
            "information_nats": information,
            "by_chance_nats": chance,
            "excess_share": (information - chance) / entropy if entropy else 0.0,
        }
