"""What a party of a PIVODL job has, what announced gains and known sums give away, and what messages disclose.

Claims on the columns of other parties are scored against these parties' own tables: the truth is here alone, and what
makes the claims (`treetap.attacks.pivodl.opened_sums`) is given a view and own labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.attacks.pivodl.bin_domains import UNPLACED
from treetap.attacks.pivodl.opened_sums import Onlooker, SourceClaims, claims
from treetap.attacks.pivodl.schema import (
    DifferentialFigures,
    DisclosedFigures,
    GainInversionFigures,
    InvertedTreeFigures,
    SourceColumns,
    SourceFigures,
)
from treetap.attacks.pivodl.solved_gains import InvertedTree, SolvedGains, closed
from treetap.attacks.scores import UNKNOWN, midranks
from treetap.attacks.verdict import Compared, compared_cells, compared_places
from treetap.attacks.view.pivodl_view import PivodlTree, PivodlView
from treetap.errors import DataError
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.trees.binning import bin_table
from treetap.trees.ensemble import ROOT
from treetap.trees.loss import UNIT
from treetap.trees.pivodl_rules import barred

#: Weights by (tree, leaf).
Weights = Mapping[tuple[int, int], Floats]


@dataclass(frozen=True, eq=False)
class SharedLabelEvidence:
    """All that the attacks use.

    Attributes:
        records: N.
        features: the party's own columns (N, d), for a model of its own labels.
        labels: of all records, for scoring; the attacker's model is fitted on those that the party has itself.
        exact: exact weights of all leaves that some audited party received, to tell what the noise hides.
        columns: the bins (N, d) of other audited parties' columns, for scoring alone.
        compared: guesses without and with the training, which attacks write down for the verdict.
    """

    view: PivodlView
    records: int
    features: Floats | None = field(default=None, repr=False)
    labels: Labels | None = field(default=None, repr=False)
    exact: Weights = field(default_factory=dict, repr=False)
    columns: Mapping[str, Ints] = field(default_factory=dict, repr=False)
    compared: list[Compared] = field(default_factory=list, repr=False)

    @cached_property
    def truth(self) -> Ints | None:
        """Labels (N,) as numbers of the job's classes; None for a regression or other classes."""
        names = self.view.params.class_names
        if self.labels is None or not set(self.labels.classes) <= set(names):
            return None
        numbers = np.array([names.index(label) for label in self.labels.classes], dtype=np.int64)
        return np.asarray(numbers[self.labels.values], dtype=np.int64)

    @cached_property
    def solved(self) -> SolvedGains:
        """The gains that give sums away."""
        return SolvedGains(self.view, self.records, self.truth)


def exact_weights(views: Mapping[str, PivodlView]) -> dict[tuple[int, int], Floats]:
    """Exact weights by (tree, leaf) that some party received."""
    return {
        (tree.view.index, leaf): weight.value
        for view in views.values()
        for tree in view.trees
        for leaf, weight in tree.weights.items()
        if weight.exact
    }


# Figures of gain inversion: how many splits' gains give sums away, and how much noise the exact weights undo.


def gain_inversion(evidence: SharedLabelEvidence) -> GainInversionFigures:
    """Count what `SolvedGains` solved, and of it by the labels what is right."""
    view, solved, truth = evidence.view, evidence.solved, evidence.truth
    by_tree = [_of_tree(tree, truth) for tree in solved.trees]
    noise_removed = 0  # leaves that came with noise and whose exact weight follows from gains, not from sums alone
    for seen, tree in zip(view.trees, solved.trees, strict=True):
        told = closed(seen.sums, seen.splits)
        noised = [leaf for leaf, weight in seen.weights.items() if not weight.exact]
        noise_removed += sum(leaf in tree.weights and leaf not in told for leaf in noised)
    return GainInversionFigures(
        possible=solved.possible and view.params.gain_comparison == "announce",
        splits=sum(tree.splits for tree in by_tree),
        announced=sum(tree.announced for tree in by_tree),
        tried=sum(tree.tried for tree in by_tree),
        solved=sum(tree.solved for tree in by_tree),
        exact=None if truth is None else sum(tree.exact or 0 for tree in by_tree),
        noised_weights=sum(not weight.exact for tree in view.trees for weight in tree.weights.values()),
        noise_removed=noise_removed,
        by_tree=by_tree,
    )


def _of_tree(tree: InvertedTree, truth: Ints | None) -> InvertedTreeFigures:
    right = None
    if truth is not None:
        right = sum(int((truth[records] == 1).sum()) == positives for records, positives in tree.solved)
    return InvertedTreeFigures(
        tree=tree.index,
        splits=tree.splits,
        announced=tree.announced,
        tried=tree.tried,
        solved=len(tree.solved),
        exact=right,
    )


# The differential attack (Zhu et al. 2023, Theorem 2): sums over two sets that differ in a few records.
#
# With known scores a sum of g = p − y over known records is the number k of records of the second class among them. Two
# nested sets give the number in their difference, and where that is 0, or all, the labels of the records.
#
# A source whose candidates' sums are open to it has such sets: consecutive candidates of a column differ in the records
# of one bin. In PIVODL the split party opens them, which knows no record of a candidate; a transcript of an honest run
# holds no sum of a candidate, and the sets that are left are nodes of trees, of at least as many records as the
# thresholds permit.


#: Records, and how many of them are of the second class.
Count = tuple[Ints, int]


def counted(records: Ints, sums: Ints, negative: Ints) -> Count | None:
    """The records of the second class behind a sum (2,) of g and h over records with known scores.

    `negative`: (n, 2) their g and h if all were of the first class. None where the sum is none of these records.
    """
    positives = round((int(negative[:, 0].sum()) - int(sums[0])) / UNIT)
    return (records, positives) if 0 <= positives <= len(records) else None


def recovered(counts: Iterable[Count], total: int) -> Ints:
    """(N,) labels 0 and 1 of the records in sets of one class; `UNKNOWN` of others."""
    labels = np.full(total, UNKNOWN, dtype=np.int64)
    for records, positives in counts:
        if len(records) and positives in (0, len(records)):
            labels[records] = 1 if positives else 0
    return labels


def differential(evidence: SharedLabelEvidence) -> DifferentialFigures:
    """The attack on the sets of a transcript: by messages alone, and with the sums that solved gains give away."""
    sets, inverted = _sets(evidence, inverted=False), _sets(evidence, inverted=True)
    labels, right = _revealed(evidence, sets)
    by_inversion, right_by_inversion = _revealed(evidence, inverted)
    return DifferentialFigures(
        opened_by_source=sum(tree.opened_by_source for tree in evidence.view.trees),
        known_sums=len(sets),
        smallest_set=min((len(rows) for rows, _ in sets), default=None),
        labels=labels,
        labels_right=right,
        labels_by_inversion=by_inversion,
        labels_right_by_inversion=right_by_inversion,
    )


def _revealed(evidence: SharedLabelEvidence, sets: list[Count]) -> tuple[int, int | None]:
    """The number of records of other parties whose label follows, and how many of these labels are right."""
    labels, truth = recovered(sets, evidence.records), evidence.truth
    labels[evidence.view.own] = UNKNOWN
    known = labels != UNKNOWN
    return int(known.sum()), None if truth is None else int((labels[known] == truth[known]).sum())


def _sets(evidence: SharedLabelEvidence, *, inverted: bool) -> list[Count]:
    """The known nodes with known sums, whose records' scores are known: by messages, or by solved gains as well."""
    solved, counts = evidence.solved, []
    for tree, scores, solution in zip(evidence.view.trees, solved.scores, solved.trees, strict=True):
        sums = solution.sums if inverted else tree.sums
        counts += [count for node in sums if (count := _of_node(solved, tree, node, sums[node], scores)) is not None]
    return counts


def _of_node(solved: SolvedGains, tree: PivodlTree, node: int, sums: Ints, scores: Floats) -> Count | None:
    rows = tree.records(node)
    if rows is None or np.isnan(scores[rows]).any():
        return None
    return counted(rows, sums, solved.negative(rows, scores))


# What PIVODL discloses to a party by its messages: bins, records of nodes, and sums that give exact weights away.


def disclosed(evidence: SharedLabelEvidence) -> DisclosedFigures:
    """Count it."""
    view = evidence.view
    # open nodes that another party's split made
    continuing = [
        tree.view.nodes[node].records
        for tree in view.trees
        for node in tree.open
        if node != ROOT and tree.source_above(node) != view.party
    ]
    leaves = [(tree, leaf) for tree in view.trees for leaf in tree.leaves]
    sums = {tree.view.index: closed(tree.sums, tree.splits) for tree in view.trees}
    own = [(tree, leaf) for tree, leaf in leaves if tree.source_above(leaf) == view.party]
    barred_at = [_barred(view, tree, node) for tree in view.trees for node in tree.open]
    return DisclosedFigures(
        bins=sum(view.bins.values()),
        bins_from=dict(view.bins),
        listed=view.listed,
        continuing_nodes=len(continuing),
        continuing_ids=sum(map(len, continuing)),
        leaves=len(leaves),
        leaves_as_source=len(own),
        exact_weight_known=sum(leaf in sums[tree.view.index] for tree, leaf in own),
        exact_beside_open=sum(_exact_beside_open(view, tree, leaf) for tree, leaf in leaves),
        barred=sum(view.party in names for names in barred_at),
        without_split_party=sum(set(view.parties) - {view.party} <= names for names in barred_at),
    )


def _exact_beside_open(view: PivodlView, tree: PivodlTree, leaf: int) -> bool:
    """True for a leaf below another party's split whose records and exact weight the party knows."""
    weight = tree.weights.get(leaf)
    known = weight is not None and weight.exact and tree.records(leaf) is not None
    return known and tree.source_above(leaf) not in (None, view.party)


def _barred(view: PivodlView, tree: PivodlTree, node: int) -> frozenset[str]:
    """The parties that no draw names at a node, by the leaves that were known when its level began."""
    if view.params.as_published:
        return frozenset()
    sources = {split: it.source for split, it in tree.splits.items()}
    may_be_split = set(tree.open)
    level = node.bit_length()
    known = [
        leaf
        for leaf in tree.leaves
        if leaf.bit_length() < level or (leaf.bit_length() == level and leaf not in may_be_split)
    ]
    return barred(node, sources, known)


_READ = "all that it read"
_WHY_NOT = "this needs two classes, and the labels that the reader has itself"


def true_columns(views: Mapping[str, PivodlView], tables: Mapping[str, Table]) -> dict[str, Ints]:
    """Party → the bins (N, d) of its columns, as the job makes them of its own table.

    A table that cannot be put in bins has none, and nothing is scored by it.
    """
    columns = {}
    for name, view in views.items():
        if (table := tables.get(name)) is not None and table.columns:
            try:
                bins = bin_table(table.features, table.columns, view.params.max_bin)
            except DataError:
                continue
            columns[name] = bins.codes.astype(np.int64)
    return columns


def source_columns(evidence: SharedLabelEvidence) -> SourceColumns:
    """The attack of one party on the columns of all others, and what of it is right."""
    view, labels = evidence.view, evidence.truth
    attacker = Onlooker(view, evidence.records, None if labels is None else labels[view.own])
    others = np.setdiff1d(np.arange(evidence.records), view.own)
    sources: dict[str, SourceFigures] = {}
    reasons: dict[str, str] = {}
    for source, claimed in claims(attacker).items():
        truth, why = evidence.columns.get(source), []
        if truth is None:
            why.append("not scored: no table of this party is given that can be put in the job's bins")
        elif not np.array_equal(truth[view.own], claimed.placed[view.own]):
            truth = None
            why.append("not scored: its table has other bins than those that it sent")
        if claimed.opened and not attacker.reads_sums:
            why.append(f"opened sums are not attacked: {_WHY_NOT}")
        sources[source] = scored(claimed, view.own, others, truth)
        reasons |= {source: "; ".join(why)} if why else {}
    return SourceColumns(sources=sources, reasons=reasons)


def scored(claimed: SourceClaims, own: Ints, others: Ints, truth: Ints | None) -> SourceFigures:
    """Claims on one source, of records that the attacker does not label; by its true codes (N, d) the wrong ones."""
    placed, by_left_sets = claimed.placed[others], claimed.by_left_sets[others]
    true, possible = None if truth is None else truth[others], [it[others] for it in claimed.possible]
    best, rank = (None, None) if true is None else best_column(claimed.expected[others], true)
    return SourceFigures(
        records=len(others),
        columns=placed.shape[1],
        cells=placed.size,
        received=len(own) * placed.shape[1],
        by_left_sets=int((by_left_sets != UNPLACED).sum()),
        by_left_sets_wrong=_wrong(by_left_sets, true),
        placed=int((placed != UNPLACED).sum()),
        wrong=_wrong(placed, true),
        opened=claimed.opened,
        linked=claimed.linked,
        contradictions=claimed.contradictions,
        best_column=best,
        rank_correlation=rank,
        compared=None if true is None else compared_cells({_READ: placed}, true, "shared", possible),
        explained=None
        if true is None
        else compared_places({_READ: claimed.expected[others]}, true, range(true.shape[1]), "shared"),
    )


def _wrong(placed: Ints, true: Ints | None) -> int | None:
    return None if true is None else int(((placed != UNPLACED) & (placed != true)).sum())


def best_column(expected: Floats, true: Ints) -> tuple[int | None, float | None]:
    """The column whose expected bins (n, d) are most like the true ones, and their rank correlation (Spearman's).

    None where no column differs between records, in truth or as expected.
    """
    ranks = {}
    for column in range(true.shape[1]):
        one, other = midranks(expected[:, column]), midranks(true[:, column])
        if len(one) and one.std() > 0 and other.std() > 0:
            ranks[column] = float(np.corrcoef(one, other)[0, 1])
    best = max(ranks, key=ranks.__getitem__, default=None)
    return best, None if best is None else ranks[best]
