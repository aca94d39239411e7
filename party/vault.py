"""What a party must not lose to anybody: its columns, bins and split table.

Cannot be pickled, so it cannot reach a worker, a message or a file by accident; what leaves goes through
the typed messages of the protocols, and what is stored goes through `Store` field by field.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from treetap.errors import Malformed
from treetap.trees import sampling
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import Candidate, CandidateList
from treetap.trees.params import BoostingParams

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True)
class OwnSplit:
    """A row of a party's look-up table: what a handle means. Left: value < threshold, or missing if `missing_left`."""

    handle: int
    node: int
    feature: int
    bin: int
    threshold: float
    missing_left: bool

    def goes_left(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Bools:
        """Which of these raw values (n,) of the split's column go left."""
        return np.where(np.isnan(values), self.missing_left, values < self.threshold)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a threshold above every value, which parts missing cells from the others, is null."""
        return {**vars(self), "threshold": None if math.isinf(self.threshold) else self.threshold}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> OwnSplit:
        """Back from JSON types."""
        threshold = math.inf if content["threshold"] is None else content["threshold"]
        return cls(**{**content, "threshold": threshold})


class Vault:
    """A party's binned columns and its split table."""

    def __init__(self, party: str, columns: list[str], binned: BinnedTable) -> None:
        self.party = party
        self.columns = columns
        self.binned = binned
        self._splits = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("a vault does not leave its process")

    def __repr__(self) -> str:
        return f"<Vault of {self.party}>"

    def next_handle_is(self, handle: int) -> None:
        """Continue the numbering of handles, so that a regrown tree gets the same ones."""
        self._splits = handle

    def columns_of_tree(self, tree: int, params: BoostingParams, *, permuted: bool) -> TreeColumns:
        """The columns that a tree may use, with its candidates in an order of its own where they leave the party."""
        kept = sampling.columns(params.seed, tree, self.party, len(self.columns), params.colsample_bytree)
        return TreeColumns(self, kept, permuted=permuted)

    def keep(self, node: int, candidate: Candidate) -> OwnSplit:
        """Enter a split (its feature numbered among all the party's columns) into the table."""
        cuts = self.binned.features[candidate.feature].cuts
        threshold = float(cuts[candidate.bin]) if candidate.bin < len(cuts) else math.inf
        split = OwnSplit(self._splits, node, candidate.feature, candidate.bin, threshold, candidate.missing_left)
        self._splits += 1
        return split


class TreeColumns:
    """One party's columns as one tree sees them: sampled, their candidates permuted.

    `permutation[place]` is the canonical candidate that stands at a place. It is drawn from the operating
    system's randomness, kept for the tree and told to nobody.
    """

    def __init__(self, vault: Vault, kept: Rows, *, permuted: bool) -> None:
        self._vault = vault
        self._kept = kept
        self.codes = vault.binned.codes[:, kept]
        self.candidates = CandidateList([vault.binned.shapes[j] for j in kept])
        order = list(range(len(self.candidates)))
        if permuted:
            secrets.SystemRandom().shuffle(order)
        self.permutation = np.array(order, dtype=np.int64)

    def split(self, node: int, rows: Rows, places: list[int]) -> tuple[OwnSplit, Rows]:
        """Keep the lowest of the tied winners; returns it with the rows (n,) of the node that go left."""
        if not places or max(places) >= len(self.permutation):
            raise Malformed(f"node {node}: the winning candidates are not among those that were offered")
        candidate = self.candidates.at(int(self.permutation[places].min()))
        left = self.candidates.goes_left(self.codes[rows], candidate)
        own = Candidate(int(self._kept[candidate.feature]), candidate.bin, candidate.missing_left)
        return self._vault.keep(node, own), rows[left]
