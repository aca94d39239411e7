"""The evidence of an attacker who knows few labels: the nodes that each record lies in, and its own columns.

The control asks whether the training told what an attack scores, or what was there before it: labels are reassigned
after the training, so that its structure stays and knows nothing of them. It is in the spirit of the task reassignment
of Liu, Xu, Guo, Cao and Wang, "Revisiting Label Inference Attacks in Vertical Federated Learning: Why They Are
Vulnerable and How to Defend" (arXiv 2603.18680, 2026), which trains anew on other labels; an audit cannot train anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Floats, Ints
from treetap.attacks.id2graph.clustering import OwnCut
from treetap.attacks.id2graph.schema import DrawnLabels, KnownSettings
from treetap.attacks.known_labels.names import KnownLabels, Named, compared
from treetap.attacks.known_labels.rows import Members, Rows
from treetap.attacks.scores import majority, midranks
from treetap.attacks.verdict import Compared, FirstNamed
from treetap.attacks.view.known_trees import TreeView
from treetap.attacks.view.received_rows import attack_draws, some_of
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.ensemble import ROOT
from treetap.trees.loss import outcome_of
from treetap.trees.params import BoostingParams

#: Memberships of records in nodes that are in memory at most.
_MOST_MEMBERSHIPS = 20_000_000
#: Records between which the control exchanges labels, and parts of the records, each judged by a model of the others.
_EXCHANGED, _PARTS = 20, 2
#: By which own columns foretell a class.
_BOOSTED = BoostingParams(n_estimators=10, max_depth=4, max_bin=32)


@dataclass(frozen=True)
class SignatureEvidence:
    """All that the attacks use.

    Attributes:
        trees: those that the party knows nodes of.
        known: labels at hand, and places of those that the party may know.
        columns: (N, d) the party's own columns, NaN where missing; None where they are not at hand.
        regression: the label is a number.
        reasons: attack → why it is left out, which attacks write down.
        named: (attack, kind of rows) → what it named, which attacks write down for the verdict.
        left_out: what → how many of them did not fit into an attack's memory.
    """

    trees: Sequence[TreeView] = field(repr=False)
    known: KnownLabels
    columns: Floats | None = field(repr=False)
    settings: KnownSettings
    regression: bool = False
    reasons: dict[str, str] = field(default_factory=dict)
    named: dict[tuple[str, str], Named] = field(default_factory=dict, repr=False)
    left_out: Counter[str] = field(default_factory=Counter, repr=False)

    @cached_property
    def nodes(self) -> list[Ints]:
        """Sets of records that tell some apart: known nodes, and sides of own splits elsewhere, the same ones once."""
        sets = [node.records for tree in self.trees for node in tree.nodes.values() if node.node != ROOT]
        sides = {
            sha256(rows.tobytes()).digest(): rows
            for tree in self.trees
            for cut in (tree.own_cuts() if tree.cuts else ())
            if cut.node not in tree.nodes
            for rows in (cut.left, cut.right)
        }
        sets += sides.values()
        return [rows for rows in sets if 0 < len(rows) < len(self.known.truth)]

    @cached_property
    def draws(self) -> list[Ints]:
        """Places of the known labels, by draw."""
        return self.known.draws(self.settings, np.zeros(0, dtype=np.int64))

    @cached_property
    def places(self) -> Ints:
        """Places of the records that take part, ascending: all known ones, and as many others as bounds allow."""
        total = len(self.known.truth)
        memberships = sum(map(len, self.nodes)) / max(1, total)
        most = min(self.settings.most_records, int(_MOST_MEMBERSHIPS / max(1.0, memberships)))
        others = some_of(self.known.by_id(self.known.scored), most, attack_draws(self.settings.seed), "named")
        return np.unique(np.concatenate([others, *self.draws])).astype(np.int64)

    @cached_property
    def truth(self) -> Ints:
        """Classes (n,) of the records that take part."""
        return self.known.truth[self.places]

    @cached_property
    def drawn(self) -> list[tuple[Ints, Ints]]:
        """Of each draw the known and the named records, as places among those that take part."""
        # a party that labels records itself names those of the others
        own = [] if len(self.known.pool) == len(self.known.scored) else self._placed(self.known.pool)
        pairs = []
        for places in self.draws:
            known = self._placed(places)
            named = np.ones(len(self.places), dtype=bool)
            named[known] = named[own] = False
            pairs.append((known, np.flatnonzero(named)))
        return pairs

    @cached_property
    def memberships(self) -> Members:
        """Nodes that records (n,) are in: rows of length 1, in which a node weighs √ln(N ÷ its records) before.

        The squared distance of two rows is thus a weighted Hamming distance, in which small nodes count most.
        """
        weights = np.sqrt(np.log(len(self.known.truth) / np.array([len(records) for records in self.nodes])))
        return self.inside(self.nodes, weights, unit=True)

    def inside(self, sets: Sequence[Ints], weights: npt.ArrayLike, *, unit: bool = False) -> Members:
        """The sets, with these weights, of the records that take part."""
        return Members.of([self._placed(records) for records in sets], weights, len(self.places), unit=unit)

    @cached_property
    def leaves(self) -> list[tuple[int, Ints]]:
        """The party's leaves but roots, each with the number of its tree."""
        return [
            (number, leaf.records)
            for number, tree in enumerate(self.trees)
            for leaf in tree.leaves()
            if leaf.node != ROOT and len(leaf.records)
        ]

    @cached_property
    def own_cuts(self) -> list[list[OwnCut]]:
        """Own splits by tree, of the records that take part."""
        return [
            [OwnCut(it.node, self._placed(it.left), self._placed(it.right)) for it in tree.own_cuts()]
            for tree in self.trees
        ]

    @cached_property
    def _at(self) -> npt.NDArray[np.int32]:
        """Of each record of the job (N,) its place among those that take part; -1 for another one."""
        at = np.full(len(self.known.truth), -1, dtype=np.int32)
        at[self.places] = np.arange(len(self.places), dtype=np.int32)
        return at

    def _placed(self, records: Ints) -> Any:
        """Places of those of these records that take part."""
        places = self._at[records]
        return places[places >= 0]

    @cached_property
    def named_rows(self) -> Ints:
        """Places of the records that some draw names."""
        return np.unique(np.concatenate([named for _, named in self.drawn]))

    @cached_property
    def standardised(self) -> Floats | None:
        """Own columns (n, d) of the records that take part; None where there are none."""
        every = standardised(self.columns)
        return None if every is None else every[self.places]

    @cached_property
    def ranks(self) -> Floats | None:
        """The same as ranks."""
        if self.columns is None or not self.columns.shape[1]:
            return None
        return standardised(np.stack([midranks(column) for column in self.columns[self.places].T], axis=1))

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """Kind → rows by which records are named; without own columns the nodes alone."""
        rows = {"nodes": Rows.of(self.memberships, np.empty((len(self.places), 0), dtype=np.float32))}
        if (own := self.standardised) is not None:
            rows |= {"columns": Rows.of(None, own), "both": Rows.of(self.memberships, own)}
        return rows

    @cached_property
    def reassigned(self) -> Ints:
        """Classes (n,) that keep their relation to the party's own columns, and have none to anything else.

        Records are ordered by what a model of own columns says of their class, fitted to the other half of the records,
        and each next twenty exchange their labels at random: every class keeps its count. Without columns all exchange.
        """
        draw = np.random.default_rng([self.settings.seed, 33])
        truth = self.truth
        if self.columns is None or not self.columns.shape[1]:
            return np.asarray(draw.permutation(truth), dtype=np.int64)
        chances = _by_others(self.columns[self.places], truth, len(self.known.classes), draw)
        named = chances.argmax(axis=1) if chances.shape[1] > 2 else np.zeros(len(truth), dtype=np.int64)
        order = np.lexsort((draw.random(len(truth)), chances[np.arange(len(truth)), np.maximum(named, 1)], named))
        given = truth.copy()
        for start in range(0, len(order), _EXCHANGED):
            some = order[start : start + _EXCHANGED]
            given[some] = truth[draw.permutation(some)]
        return given

    def described(self) -> DrawnLabels | None:
        """The known labels, and what guessing scores; None where no attack can run."""
        if self.obstacle:
            return None
        known, named = self.drawn[0]
        counts = np.bincount(self.truth[named], minlength=len(self.known.classes))
        unseen = [len(self.known.classes) - len(np.unique(self.truth[rows])) for rows, _ in self.drawn]
        return DrawnLabels(
            known=len(known),
            draws=len(self.drawn),
            unseen=float(np.mean(unseen)),
            records=len(named),
            left_out=len(self.known.truth) - len(known) - len(named),
            nodes=len(self.nodes),
            rarest=self.known.classes[self.rarest],
            first=min(self.settings.first, len(named)),
            chance=float(counts[self.rarest] / len(named)),
            majority=majority(self.truth[named]),
        )

    @cached_property
    def rarest(self) -> int:
        """The class with the fewest of the records that take part, but some; the last one of several."""
        counts = np.bincount(self.truth, minlength=len(self.known.classes))
        present = np.flatnonzero(counts)
        return int(present[::-1][np.argmin(counts[present[::-1]])])

    @cached_property
    def obstacle(self) -> str:
        """The reason why no attack can run; empty where they can."""
        if self.regression:
            return "the label is a number, and these attacks name classes"
        if not self.nodes:
            return "the party knows no node but roots, and won no split"
        if len(np.unique(self.known.truth[self.known.scored])) < 2:
            return "labels of two classes or more are needed: give [label] or [known], --labels or --known-labels"
        if not self.draws:
            return "no label is known: say [label], or [known]"
        if not all(len(named) for _, named in self.drawn):
            return (
                f"all {len(self.draws[0])} labels at hand are known ones, and none is left to score by: lower known = "
                f"{self.settings.known}"
            )
        return ""


def standardised(columns: Floats | None) -> Floats | None:
    """Columns (N, d) with mean 0 and deviation 1, a missing cell as the mean, over √d; None without any."""
    if columns is None or not columns.shape[1]:
        return None
    present = np.isfinite(columns)
    filled = np.where(present, columns, 0.0)
    mean = filled.sum(axis=0) / np.maximum(1, present.sum(axis=0))
    centred = np.where(present, columns - mean, 0.0)
    deviation = centred.std(axis=0)
    return np.asarray(centred / np.where(deviation > 0, deviation, 1.0) / np.sqrt(columns.shape[1]), dtype=np.float64)


def _by_others(columns: Floats, truth: Ints, classes: int, draw: np.random.Generator) -> Floats:
    """Chances (n, classes) of each record's class by its columns, from trees that were boosted on the other half."""
    chances, part = np.zeros((len(truth), classes)), draw.permutation(len(truth)) % _PARTS
    names = [str(number) for number in range(columns.shape[1])]
    table = bin_table(columns, names, _BOOSTED.max_bin, may_be_constant=names)
    for number in range(_PARTS):
        fitted, judged = part != number, part == number
        present, labels = np.unique(truth[fitted], return_inverse=True)
        if len(present) < 2:
            chances[np.ix_(judged, present)] = 1.0
            continue
        params = replace(_BOOSTED, objective="binary:logistic" if len(present) == 2 else "multi:softprob")
        model = train([("", replace(table, codes=table.codes[fitted]))], labels, params, len(present))
        scores = model.predict([("", replace(table, codes=table.codes[judged]))])
        likely = outcome_of(params.objective, len(present), scores)
        chances[np.ix_(judged, present)] = likely if len(present) > 2 else np.stack([1 - likely, likely], axis=1)
    return chances


def of_others(known: KnownLabels, own: Ints) -> KnownLabels:
    """The labels at hand of a party that labels some records itself: it knows of those, and names the others."""
    return replace(known, pool=np.intersect1d(known.scored, own)) if len(own) else known


#: Kind of rows or points → its words in a verdict.
_TRAINED = {
    "nodes": "the nodes that it knows",
    "both": "nodes and own columns",
    "leaves": "the leaves that it knows",
    "splits": "its own splits",
    "splits-alike": "its own splits, all trees alike",
}
#: Attack → its words in a verdict.
_ATTACKS = {
    "known-neighbours": "nearest neighbours by",
    "known-regression": "a regression by",
    "first-component": "the first component of",
    "vote": "a vote of",
    "heaviest-cut": "the heaviest of",
}


def compared_names(evidence: SignatureEvidence) -> Iterator[Compared]:
    """The best attack by the nodes and own splits of trees beside the best one without; none where none could run."""
    trained = {
        ", ".join(filter(None, (f"{_ATTACKS[attack]} {_TRAINED[kind]}", it.told))): it
        for (attack, kind), it in evidence.named.items()
        if kind in _TRAINED
    }
    if (drawn := evidence.described()) is None or not trained:
        return
    alone = [it for (_, kind), it in evidence.named.items() if kind not in _TRAINED]
    # among the first, too, a party can always go by its own columns
    before = max((it.first for it in alone), default=drawn.chance)
    first = FirstNamed(
        first=drawn.first,
        rarest=drawn.rarest,
        before=before,
        after=max(before, *(it.first for it in trained.values())),
        chance=drawn.chance,
    )
    best = compared(trained, alone, evidence.truth, known=drawn.known, first=first, details="known")
    # by which a reader of the figures knows that a larger attack reads more
    said = []
    if (some := len(evidence.places)) < (many := len(evidence.known.scored)):
        said.append(f"{some:,} of {many:,} records")
    if left := evidence.left_out["splits"]:
        said.append(f"own splits without the {left:,} lightest, which do not fit")
    # more records, or as many as leave room for all splits
    paste = f"; to read more:\n    most_records = {many if some < many else some // 2}  # in [known_labels]"
    yield best.model_copy(update={"floor": f"a floor, by {' and '.join(said)}{paste}" if said else ""})
