"""The reverse sum attack on the columns of a feature party: cells of records that crafted g and h mark.

Weng et al., "Practical Privacy Attacks on Vertical Federated Learning" (arXiv 2011.09290): a label holder hides numbers
in low digits of g and h. Here a mark is a bit of g or h that is 1 in one record alone, as are all bits below it
(`marks_of`): of any opened sum it says whether the record is in it, whatever else was summed. The attack finds marks by
the label holder's own summands; those of an honest training have none, or few by chance.

1. Read the marks at the root: of each candidate, which marked records are left of it.
2. Link candidates over trees, and put those of one column in order (`linking`), by the root's sums with a slot for each
   mark: anchors, records that all trees mark, foretell what a candidate has in the next tree.
3. A marked record lies in the first cell that ends behind it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from treetap.arrays import Bools, Ints
from treetap.attacks.sums.attack import SumsEvidence, unread
from treetap.attacks.sums.propagation import Knowledge, Linked, node_groups
from treetap.attacks.sums.schema import MarkedCells
from treetap.attacks.sums.scoring import Truth, cells_read
from treetap.attacks.sums.sketches import PartySums, chains, linked_places, sums_of
from treetap.errors import BadInput

#: The reason for which nothing is read of an honest training.
HONEST = "no bit of g or h marks a record: they are as labels make them"


def marks_of(values: Ints) -> list[Ints]:
    """Of each slot of summed values (n, S) the record that each low bit marks, -1: none; as many bits as can be read.

    A bit can be read in any sum if it and all bits below it are 1 in one record at most: then no sum of them carries.
    """
    of_slots = []
    for column in values.T:
        places: list[int] = []
        for bit in range(np.iinfo(np.int64).bits - 1):
            having = np.flatnonzero(column >> bit & 1)
            if len(having) > 1:
                break
            places.append(int(having[0]) if len(having) else -1)
        of_slots.append(np.array(places, dtype=np.int64))
    return of_slots


@dataclass(frozen=True, eq=False)
class Marked:
    """The marks that the summands of one tree have, at its root.

    Attributes:
        rows: (marks,) the marked records.
        left: (candidates, marks) True for those that are left of a candidate.
    """

    rows: Ints = field(repr=False)
    left: Bools = field(repr=False)

    @classmethod
    def of(cls, tree: PartySums) -> Marked:
        """Read them."""
        drawn = np.flatnonzero(tree.draws > 0)
        of_slots = marks_of(tree.values[drawn])
        listed = [(slot, bit) for slot, bits in enumerate(of_slots) for bit in np.flatnonzero(bits >= 0)]
        slots, bits = np.array(listed, dtype=np.int64).reshape(-1, 2).T
        rows = np.array([drawn[of_slots[slot][bit]] for slot, bit in listed], dtype=np.int64)
        return cls(rows, tree.lefts[0][:, slots] >> bits & 1 == 1)

    def told_apart(self, tree: PartySums) -> PartySums:
        """The root's sums of the tree, with a further slot for each mark."""
        ones = np.zeros((len(tree.values), len(self.rows)), dtype=np.int64)
        ones[self.rows, np.arange(len(self.rows))] = 1
        return replace(
            tree,
            values=np.concatenate([tree.values, ones], axis=1),
            counting=np.concatenate([tree.counting, np.zeros(len(self.rows), dtype=bool)]),
            nodes=tree.nodes[:1],
            lefts=np.concatenate([tree.lefts[:1], self.left[np.newaxis].astype(np.int64)], axis=2),
            least=0,  # of the root alone, whose cells are the same in every tree that draws the same records
        )


def read_marks(evidence: SumsEvidence) -> MarkedCells:
    """Attack, and score.

    Raises:
        BadInput: the table is not the one that the party trained on.
    """
    begun, opened, columns = time.process_time(), evidence.opened, evidence.truth
    trees = sums_of(evidence.party, opened.trees, lambda tree: opened.params.drawn(tree, opened.records))
    marks = [Marked.of(tree) for tree in trees]
    rows = np.concatenate([np.empty(0, dtype=np.int64), *(of_tree.rows for of_tree in marks)])
    reasons = {} if (why := unread(evidence, trees)) is None else {"sums": why}
    if trees and evidence.party in opened.noised:
        reasons["sums"] = "the sums have noise (column_privacy): marks are not read"
    if not (len(rows) or reasons):
        reasons["marks"] = HONEST
    figures = MarkedCells(
        trees=sum(len(of_tree.rows) > 0 for of_tree in marks),
        marks=len(rows),
        records=len(np.unique(rows)),
        read=None,
        given=None,
        seconds=0.0,
        reasons=reasons,
    )
    if reasons:
        return figures
    evidence.say("marked records")
    truth = Truth.of(columns, trees, evidence.party)
    given = Linked(trees, *truth.given_links())
    bound = cells_read(_cells(given, marks), truth.named(given), columns)
    sampled, most = opened.params.colsample_bytree < 1, evidence.settings.most_candidates
    apart = [of_tree.told_apart(tree) for tree, of_tree in zip(trees, marks, strict=True)]
    try:
        places = linked_places(apart, sampled=sampled, most=most)
    except BadInput as fault:
        return figures.model_copy(update={"given": bound, "reasons": {"links": str(fault)}})
    own = Linked(trees, places, chains(apart, places))
    read = cells_read(_cells(own, marks), truth.named(own), columns)
    return figures.model_copy(update={"read": read, "given": bound, "seconds": time.process_time() - begun})


def _cells(linked: Linked, marks: list[Marked]) -> Ints:
    """The cell (N, chains) of its chain in which each marked record is, -1: not known.

    A record that is not left of all candidates from one on shows that they are linked wrongly, and is left out.
    """
    knowledge = Knowledge.nothing(linked.records, linked.chains)
    for number, (tree, of_tree) in enumerate(zip(linked.trees, marks, strict=True)):
        for chain in range(len(linked.chains)):
            positions, places = linked.borders(number, chain)
            if not len(places) or not len(of_tree.rows):
                continue
            left = of_tree.left[places]
            ordered = (left[1:] >= left[:-1]).all(axis=0)
            starts = np.concatenate([[0], positions + 1])
            counts = np.diff(np.concatenate([[0], tree.counts[0][places], [int(tree.draws.sum())]]))
            groups = node_groups(counts) if tree.least else np.arange(len(starts))
            first = (~left).sum(axis=0)  # the delimited part in which each marked record is
            group = np.searchsorted(groups, first, side="right") - 1
            begins, ends = starts[groups], np.append(starts[groups[1:]], len(linked.chains[chain]) + 1)
            cells = np.arange(len(linked.chains[chain]) + 1)
            mask = (cells >= begins[group][:, None]) & (cells < ends[group][:, None])
            knowledge.keep(of_tree.rows[ordered], chain, mask[ordered])
    return knowledge.known
