"""The reverse sum attack on the columns of a feature party: cells of records that crafted g and h mark.

Weng et al., "Practical Privacy Attacks on Vertical Federated Learning" (arXiv 2011.09290): a label holder hides numbers
in low digits of g and h. Here a mark is a bit of g or h that is 1 in one record alone, as are all bits below it
(`treetap.trees.reverse_sum.marks_of`): of any opened sum it says whether the record is in it, whatever else was summed.
The attack finds marks by the label holder's own summands; those of an honest training have none, or few by chance.

1. Read the marks at the root: of each candidate, which marked records are left of it.
2. Link candidates over trees, and put those of one column in order (`linking`): a marked record lies in the first cell
   that ends behind it.
"""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits

from attacks.sums.attack import SumsEvidence, unread
from attacks.sums.linking import Identities, chains
from attacks.sums.propagation import Knowledge, Linked, node_groups
from attacks.sums.schema import MarkedCells
from attacks.sums.scoring import Truth, cells_read
from attacks.sums.sketches import Ints, PartySums, sums_of
from treetap.errors import BadInput
from treetap.trees.reverse_sum import marks_of

#: The reason for which nothing is read of an honest training.
HONEST = "no bit of g or h marks a record: they are as labels make them"


def read_marks(evidence: SumsEvidence) -> MarkedCells:
    """Attack, and score.

    Raises:
        BadInput: the table is not the one that the party trained on.
    """
    with threadpool_limits(1):  # the products are small: threads would wait for each other
        return _read_marks(evidence)


def _read_marks(evidence: SumsEvidence) -> MarkedCells:
    begun, opened, columns = time.process_time(), evidence.opened, evidence.truth
    trees = sums_of(evidence.party, opened.trees, lambda tree: opened.params.drawn(tree, opened.records))
    marks = [_marks(tree) for tree in trees]
    rows = np.concatenate([of_tree[:, 2] for of_tree in marks] or [np.empty(0, dtype=np.int64)])
    reasons = {} if (why := unread(evidence, trees)) is None else {"sums": why}
    if not (len(rows) or reasons):
        reasons["marks"] = HONEST
    figures = MarkedCells(
        trees=sum(len(of_tree) > 0 for of_tree in marks),
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

    def identified() -> Ints:
        sampled, most = opened.params.colsample_bytree < 1, evidence.settings.most_candidates
        return Identities(trees, sampled=sampled, most=most).places

    given = Linked(trees, *truth.given_links())
    bound = cells_read(_cells(given, marks), truth.named(given.identities, given.chains), columns)
    try:
        identities = Identities.given(evidence.kept.array("places", identified))
    except BadInput as fault:
        return figures.model_copy(update={"given": bound, "reasons": {"links": str(fault)}})
    own = Linked(trees, identities, chains(trees, identities))
    read = cells_read(_cells(own, marks), truth.named(own.identities, own.chains), columns)
    return figures.model_copy(update={"read": read, "given": bound, "seconds": time.process_time() - begun})


def _marks(tree: PartySums) -> Ints:
    """(marks, 3): slot, bit, and the record that the bit marks among those that were summed."""
    drawn = np.flatnonzero(tree.draws > 0)
    listed = [
        (slot, bit, drawn[row])
        for slot, of_slot in enumerate(marks_of(tree.values[drawn]))
        for bit, row in enumerate(of_slot)
        if row >= 0
    ]
    return np.array(listed, dtype=np.int64).reshape(-1, 3)


def _cells(linked: Linked, marks: list[Ints]) -> Ints:
    """The cell (N, chains) of its chain in which each marked record is, -1: not known.

    A record that is not left of all candidates from one on shows that they are linked wrongly, and is left out.
    """
    knowledge = Knowledge.nothing(linked.records, linked.chains)
    for number, (tree, of_tree) in enumerate(zip(linked.trees, marks, strict=True)):
        slots, bits, rows = of_tree.T
        root = tree.lefts[0]
        for chain in range(len(linked.chains)):
            positions, places = linked.borders(number, chain)
            if not len(places) or not len(rows):
                continue
            left = root[places][:, slots] >> bits & 1 == 1  # (borders, marks)
            ordered = (left[1:] >= left[:-1]).all(axis=0)
            starts = np.concatenate([[0], positions + 1])
            counts = np.diff(np.concatenate([[0], tree.counts[0][places], [int(tree.draws.sum())]]))
            groups = node_groups(counts) if tree.least else np.arange(len(starts))
            first = (~left).sum(axis=0)  # the delimited part in which each marked record is
            group = np.searchsorted(groups, first, side="right") - 1
            begins, ends = starts[groups], np.append(starts[groups[1:]], len(linked.chains[chain]) + 1)
            cells = np.arange(len(linked.chains[chain]) + 1)
            mask = (cells >= begins[group][:, None]) & (cells < ends[group][:, None])
            knowledge.keep(rows[ordered], chain, mask[ordered])
    return knowledge.known
