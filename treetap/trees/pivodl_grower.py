"""One tree of PIVODL on a joined table, level by level, by the rules of its parties and without their ciphertexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treetap.trees.candidates import Candidate
from treetap.trees.ensemble import ROOT
from treetap.trees.fixed_gains import Best, best_of
from treetap.trees.histogram import left_sums
from treetap.trees.label_thresholds import admissible, stopped_by
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.role_draws import able_sources
from treetap.trees.tree_bins import GlobalBins, goes_left

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SourceSplit:
    """A split: its source, the candidate by the source's own column, the threshold, and the gain in units of 2^-24.

    A record goes left if its value is below `threshold`; ∞ where only missing values go right.
    """

    source: str
    candidate: Candidate
    threshold: float
    gain: int


class PivodlGrower:
    """Grows one tree.

    Which party opens whose candidates changes no model, except that a source offers none where no party may. With
    centralised labels no party opens any.

    Args:
        bins: the parties' columns by name, in the order of ties.
        gradients: (N, 2K) fixed-point g and h of all records.
        scale: that of g, see `treetap.trees.shared_label_loss`.
        ownership: the records that each party with labels labels, a partition.
    """

    def __init__(
        self,
        bins: Sequence[tuple[str, GlobalBins]],
        gradients: Ints,
        scale: float,
        ownership: Mapping[str, Ints],
        params: PivodlParams,
    ) -> None:
        self._bins, self._scale, self._params = bins, scale, params
        self._owners = list(ownership)
        self._slots = gradients.shape[1]
        labelled = np.zeros((len(gradients), len(self._owners)), dtype=np.int64)
        for place, rows in enumerate(ownership.values()):
            labelled[rows, place] = 1
        self._values = np.concatenate([gradients, labelled], axis=1)
        self.rows: dict[int, Ints] = {ROOT: np.arange(len(gradients))}
        self.splits: dict[int, SourceSplit] = {}
        self.leaves: dict[int, Ints] = {}
        self.divisible: set[int] = set()

    def grow(self) -> None:
        """Grow the tree: `splits` by node, `leaves` → (2K,) sums of g and h, `rows` → the records of each leaf.

        `divisible` are the nodes that the stopping rules let be split, also those for which no split was found.
        """
        level = [ROOT] if self._continues(ROOT) else []
        if not level:
            self._end(ROOT)
        while level:
            self.divisible |= set(level)
            chosen = self._winners(level)
            children = [child for node in chosen for child in (2 * node, 2 * node + 1)]
            for node, (place, found) in chosen.items():
                self._divide(node, place, found)
            for node in [node for node in level if node not in chosen]:
                self._end(node)
            level = [child for child in children if self._continues(child)]
            for child in children:
                if child not in level:
                    self._end(child)

    def _continues(self, node: int) -> bool:
        """True for a node that may be split: it is not too deep, and has enough records of each party with labels."""
        rows, params = self.rows[node], self._params
        if node.bit_length() > params.max_depth or len(rows) < params.min_samples:
            return False
        if params.instance_check == "paper":
            return True
        return not stopped_by(self._labelled(self._total(node)), params.instance_threshold)

    def _winners(self, level: Sequence[int]) -> dict[int, tuple[int, Best]]:
        """node → (place of the source, its best candidates by place in canonical order), of nodes with a winner."""
        names = [name for name, _ in self._bins]
        sources = {node: split.source for node, split in self.splits.items()}
        guarded = self._params.split_draws == "guarded" and not self._params.centralised_labels
        able = {node: able_sources(names, node, sources, self.leaves, guarded=guarded) for node in level}
        rows = [self.rows[node] for node in level]
        winners: dict[int, tuple[int, Best]] = {}
        for place, (name, bins) in enumerate(self._bins):
            lefts = left_sums(bins.all_codes, bins.candidates, self._values, rows)
            for node, left in zip(level, lefts, strict=True):
                best = self._best(name, left, self._total(node)) if name in able[node] else None
                if best is not None and (node not in winners or best.gain > winners[node][1].gain):
                    winners[node] = place, best
        return {node: winners[node] for node in level if node in winners}

    def _best(self, source: str, left: Ints, total: Ints) -> Best | None:
        """The best of those candidates of a source that all parties with labels permit."""
        params = self._params
        permitted = np.flatnonzero(
            admissible(
                {owner: left[:, self._slots + place] for place, owner in enumerate(self._owners)},
                self._labelled(total),
                source,
                params.instance_threshold,
                paper=params.instance_check == "paper",
            )
        )
        best = best_of(left[permitted, : self._slots], total[: self._slots], self._scale, params)
        return best and Best(best.gain, [int(permitted[place]) for place in best.places])

    def _labelled(self, total: Ints) -> dict[str, int]:
        """Labelled records by party, of the sums of a node."""
        return {owner: int(total[self._slots + place]) for place, owner in enumerate(self._owners)}

    def _total(self, node: int) -> Ints:
        found: Ints = self._values[self.rows[node]].sum(axis=0)
        return found

    def _divide(self, node: int, place: int, found: Best) -> None:
        """Enter a split, by the lowest of the tied candidates, and pass the records to the children."""
        name, bins = self._bins[place]
        candidate = bins.candidates.at(min(found.places))
        self.splits[node] = SourceSplit(name, candidate, bins.cut(node, candidate), found.gain)
        rows = self.rows.pop(node)
        left = goes_left(bins, node, rows, candidate)
        self.rows[2 * node], self.rows[2 * node + 1] = rows[left], rows[~left]

    def _end(self, node: int) -> None:
        self.leaves[node] = self._total(node)[: self._slots]
