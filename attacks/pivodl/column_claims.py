"""Claims of one owner of labels on the columns of the other parties of a PIVODL job.

1. The bins of the records that it labels were sent to it.
2. The sets that other parties' splits send left and right bound the bins of all records
   (`treetap.attacks.pivodl.bin_domains`).
3. As split party it has opened sums, if it recorded them (`treetap.attacks.pivodl.opened_sums`); what they tell narrows
   the sets' columns, scores and sums again.

An `Onlooker` holds no table of another party, and no label of a record that another party labels: claims are scored
elsewhere (`treetap.attacks.pivodl.evidence`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.pivodl.bin_domains import BinDomains, KnownCuts, possible_scores
from treetap.attacks.pivodl.opened_sums import NodeReader
from treetap.attacks.view.pivodl_view import PivodlView
from treetap.trees.job_params import BINARY
from treetap.trees.pivodl_rules import SharedLabelLoss

#: Most passes over all opened sums.
_PASSES = 3


@dataclass(frozen=True, eq=False)
class Onlooker:
    """The attacker: a party's view of N records, and its labels (m,), as numbers of classes, of those that are its own.

    `labels` None: it has none at hand, or the job is no classification, and opened sums are not attacked.
    """

    view: PivodlView
    records: int
    labels: Ints | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError for bins or labels of records that the party does not label: it was sent none of these."""
        own = len(self.view.own)
        if wrong := [source for source, bins in self.view.columns.items() if len(bins.codes) != own]:
            raise ValueError(f"the bins of {wrong[0]} are of other records than those that the attacker labels")
        if self.view.party in self.view.columns or (self.labels is not None and len(self.labels) != own):
            raise ValueError("the attacker is to have labels of its own records alone, and bins of other parties")

    @property
    def reads_sums(self) -> bool:
        """True if it can tell what its own records add to a sum, and which g and h others can have."""
        return self.labels is not None and self.view.params.objective in BINARY


@dataclass(frozen=True, eq=False)
class SourceClaims:
    """Claims of an attacker on one source's columns.

    Attributes:
        placed: (N, d) bins, its own records' included; `UNPLACED` where it claims none.
        by_left_sets: those that follow without opened sums.
        expected: (N, d) the mean of the bins that each cell can have.
        possible: of each column (N, bins) those that each cell can have.
        linked: candidates of opened sums that it has named, of `opened` in all.
        contradictions: cells of which two claims left no bin.
    """

    placed: Ints = field(repr=False)
    by_left_sets: Ints = field(repr=False)
    expected: Floats = field(repr=False)
    possible: list[Bools] = field(repr=False)
    opened: int
    linked: int
    contradictions: int


def claims(attacker: Onlooker) -> dict[str, SourceClaims]:
    """Its claims by source, of all sources that sent it bins."""
    view = attacker.view
    domains = {source: BinDomains(attacker.records, view.own, bins) for source, bins in view.columns.items()}
    cuts = KnownCuts(view, domains)
    cuts.learn()
    by_left_sets = {source: it.placed() for source, it in domains.items()}
    linked, generator = dict.fromkeys(domains, 0), np.random.default_rng(0)
    for _ in range(_PASSES if attacker.reads_sums else 0):
        narrowed = 0
        linked = dict.fromkeys(domains, 0)
        for source, reader in _readers(attacker, cuts, domains):
            reader.link(generator)
            linked[source] += len(reader.links)
            narrowed += reader.read()
        if not narrowed + cuts.learn():
            break
    return {
        source: SourceClaims(
            placed=it.placed(),
            by_left_sets=by_left_sets[source],
            expected=it.expected(view.own),
            possible=it.possible,
            opened=sum(len(sums) for tree in view.trees for (_, of), sums in tree.opened.items() if of == source),
            linked=linked[source],
            contradictions=it.contradictions,
        )
        for source, it in domains.items()
    }


def _readers(attacker: Onlooker, cuts: KnownCuts, domains: dict[str, BinDomains]) -> Iterator[tuple[str, NodeReader]]:
    """The attack on each opened node, by its source."""
    view, loss = attacker.view, SharedLabelLoss(attacker.view.params)
    assert attacker.labels is not None
    labels = np.full(attacker.records, -1, dtype=np.int64)
    labels[view.own] = attacker.labels
    scores = possible_scores(view, attacker.records, loss, cuts, domains)
    for tree, before in zip(view.trees, scores, strict=True):
        for (node, source), sums in tree.opened.items():
            rows = tree.records(node)
            if rows is None or source not in domains or not len(sums):
                continue
            own = rows[labels[rows] >= 0]
            mine = before.of(own, attacker.records)
            if not np.array_equal(mine.records, own):  # it lacks a weight that it keeps itself
                continue
            others = rows[labels[rows] < 0]
            codes = view.columns[source].codes[np.searchsorted(view.own, own)]
            known = loss.gradients(mine.scores[:, np.newaxis], labels[own]), codes
            possible = before.of(others, attacker.records)
            threshold = view.params.instance_threshold
            yield source, NodeReader(sums, known, others, possible, threshold, domains[source], loss)
