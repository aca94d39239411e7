"""Information on the label of the sets of records that each feature party comes to know, tree by tree as they grow.

Per set the bound of Eq. 6 of Takahashi, Liu, Liu (2023) on its mutual information with the label. Bounds do not add up
to one for all sets together; so beside them stands the mutual information of the label and the party's *signature*, the
partition of the records by all sets that it knows, with the part that small groups explain by chance. All figures are
computed from labels and stay in the label holder's own files, log and metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treetap.errors import Refused
from treetap.models.store import LEAKAGE
from treetap.party.policy import Policy
from treetap.party.runtime.job_store import JobStore
from treetap.trees.information import (
    class_counts,
    class_entropy,
    mutual_information,
    node_bounds,
    numbered,
    permuted_information,
)

if TYPE_CHECKING:
    from treetap.party.runtime.metrics import PartyMetrics

log = logging.getLogger(__name__)
Ints = npt.NDArray[np.int64]
#: The arrays with the signatures after the last stored tree.
SIGNATURES = "signatures"


@dataclass
class _KnownSets:
    """The sets of one tree that one party knows: the deepest of each record (N,), their number, the worst bound."""

    deepest: Ints
    count: int = 0
    nats: float = 0.0
    node: int | None = None


@dataclass
class ReleasedSets:
    """The account of one job.

    Args:
        job: its name.
        party: the label holder.
        labels: (N,) class numbers that the training uses: under label differential privacy the noisy ones, since what
            is stopped or withdrawn depends on them.
        classes: C.
        clean: (N,) the true ones, where they differ.
    """

    job: str
    party: str
    labels: Ints
    classes: int
    feature_parties: Sequence[str]
    store: JobStore
    policy: Policy
    metrics: PartyMetrics
    clean: Ints | None = None
    _sets: dict[str, _KnownSets] = field(default_factory=dict)
    _signatures: dict[str, Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._totals = class_counts(self.labels, self.classes)
        stored = self.store.load_arrays(SIGNATURES) or {}
        # those of a tree that is grown again are refined by the same sets, which changes nothing
        none = np.zeros(len(self.labels), dtype=np.int64)
        self._signatures = {name: stored.get(name, none) for name in self.feature_parties}

    def open_tree(self) -> None:
        """Every party knows the root, and no more yet."""
        self._sets = {name: _KnownSets(np.ones(len(self.labels), dtype=np.int64)) for name in self.feature_parties}

    def release(self, party: str, tree: int, sets: Mapping[int, Ints]) -> None:
        """Account for the sets, by node, that a party comes to know at a level.

        Raises:
            Refused: one of them exceeds the policy's `max_leakage`; no figure is in the error, which others get.
        """
        if not sets:
            return
        counts = np.array([class_counts(self.labels[rows], self.classes) for rows in sets.values()])
        bounds = node_bounds(counts, self._totals).larger
        known, worst = self._sets[party], int(bounds.argmax())
        known.count += len(sets)
        for node, rows in sets.items():
            known.deepest[rows] = node
        if bounds[worst] > known.nats:
            known.nats, known.node = float(bounds[worst]), list(sets)[worst]
            self.metrics.leakage(party, known.nats)
        most = self.policy.max_leakage
        if most is not None and self.policy.on_max_leakage == "stop" and bounds[worst] > most:
            log.error(
                "job %s: stopped at tree %d: the records of node %d, which %s would know, bear up to %.4f nats on the "
                "label, and the policy says max_leakage = %g",
                self.job, tree, list(sets)[worst], party, float(bounds[worst]), most,
            )  # fmt: skip
            raise Refused(
                f"{self.party} has stopped job {self.job}: its policy has a limit on what sets of records may tell; "
                f"{self.party}'s own log has more"
            )

    def close_tree(self, tree: int) -> None:
        """Refine the signatures by the tree's sets, and store the figures after it."""
        rows: dict[str, Any] = {}
        for name in self.feature_parties:
            known, before = self._sets[name], self._signatures[name]
            refined = before * np.int64(known.deepest.max() + 1) + known.deepest
            self._signatures[name] = numbered(refined)[0]
            said = self._said(name, self.labels)
            rows[name] = {"sets": known.count, "bound_nats": known.nats, "node": known.node, **said}
            if self.clean is not None:
                rows[name]["clean"] = self._said(name, self.clean)
            self.metrics.signature(name, said["information_nats"], said["by_chance_nats"], said["excess_share"])
            log.info(
                "job %s, tree %d: %s knows %d sets, each with at most %.4f nats on the label (per node, not joint); "
                "all together have %.1f %% of the label's entropy beyond chance",
                self.job, tree, name, known.count, known.nats, 100 * said["excess_share"],
            )  # fmt: skip
        entropy = class_entropy(self._totals)
        line = {"tree": tree, "noisy_labels": self.clean is not None, "entropy_nats": entropy, "parties": rows}
        self.store.lines(LEAKAGE).put(line, tree)
        self.store.save_arrays(SIGNATURES, self._signatures)

    def _said(self, party: str, labels: Ints) -> dict[str, Any]:
        """The information of a party's signature on labels (N,): plug-in, by chance, their difference over H(Y)."""
        groups = self._signatures[party]
        information = mutual_information(labels, groups)
        chance = permuted_information(labels, groups, np.random.default_rng())
        entropy = class_entropy(class_counts(labels, self.classes))
        return {
            "signatures": int(groups.max()) + 1,
            "information_nats": information,
            "by_chance_nats": chance,
            "excess_share": (information - chance) / entropy if entropy else 0.0,
        }
