"""A label holder's attack on the columns of one feature party, by the sums that it opened in a training of trees.

1. Link candidates of all trees, and put those of one column in order (`sketches`). Where parties' columns go round, a
   tree has one column's alone, and those of other columns are not linked.
2. Read cells that follow exactly, from left sets and from differences of few records (`propagation`).
3. Estimate the others by least squares over all equations (`least_squares`).

The audit scores what is claimed (`scoring`), and repeats 2 and 3 with links given: a bound for better links. Of sums
with noise no cell follows exactly: with links given, each cell's chances are sampled (`noised`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from treetap.arrays import Bools, Floats, Ints, Singles
from treetap.attacks.sums.least_squares import SURE, LearnedCuts, even, learned_cuts, shares
from treetap.attacks.sums.noised import NoisedCells, posteriors, sweeps_within
from treetap.attacks.sums.propagation import PASSES, Kept, Knowledge, Linked, differences, left_sets
from treetap.attacks.sums.schema import (
    NOT_RECORDED,
    NOTHING_OFFERED,
    ColumnFigures,
    NoiseFigures,
    PlacedAfter,
    SumsSettings,
)
from treetap.attacks.sums.scoring import (
    Named,
    TrueColumns,
    Truth,
    best_column,
    cells_guessed,
    cells_read,
    links_right,
    places_expected,
)
from treetap.attacks.sums.sketches import COMPARED, PartySums, chains, linked_in_turns, linked_places, sums_of
from treetap.attacks.verdict import cells_right, compared_cells, compared_places
from treetap.attacks.view.opened_sums import OpenedSums
from treetap.errors import BadInput
from treetap.privacy.column_privacy import largest_guess
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams
from treetap.trees.placed_cells import steps_to

Say = Callable[[str], None]
#: The section of the report.
DETAILS = "columns"
#: Guesses of all cells: where nothing is claimed, the most frequent bin that left sets do not exclude.
ALONE, UNREAD, READ = "left sets alone", "left sets alone, the sums were not read", "all that it read"
LIKELIEST, NOISED = "the likeliest bin by all that it read", "left sets and noised sums, links given"
#: The reason for which own links of noised sums have no figures.
NOISED_LINKS = "which noised sums are neighbours on one column is given by the audit: own links are not tried"
_NOISED_FLOOR = "a floor, by the noised sums of some trees within a bound of work"
#: Weight of a bin that no record has.
_RARE = 1e-9


@dataclass(frozen=True, eq=False)
class SumsEvidence:
    """The view of the label holder on one feature party, and, for the audit's scores alone, that party's table.

    Attributes:
        truth: of the records in the common order.
        kept: results of steps that a run before has finished.
    """

    party: str
    opened: OpenedSums = field(repr=False)
    truth: TrueColumns = field(repr=False)
    settings: SumsSettings
    say: Say
    kept: Kept


@dataclass(frozen=True, eq=False)
class Claims:
    """Claims of one way of reading.

    Attributes:
        cells: (N, chains) the cell of its chain in which each record is, −1: no claim.
        likeliest: (N, chains) the likeliest cell.
        positions: of each chain (N,) the expected place of each record.
    """

    cells: Ints
    likeliest: Ints
    positions: list[Floats]

    @classmethod
    def of(cls, shares: Singles, first: Ints, known: Ints) -> Claims:
        """By the shares (N, cells) of cells of chains, each of which begins at `first`, and those `known` before."""
        parts = [shares[:, start:end] for start, end in pairwise(first)]
        likeliest = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        rows = np.arange(len(shares))
        sure = np.stack([part[rows, at] > SURE for part, at in zip(parts, likeliest.T, strict=True)], axis=1)
        positions = [(part @ np.arange(part.shape[1])).astype(np.float64) for part in parts]
        return cls(np.where(sure, likeliest, known), np.where(known < 0, likeliest, known), positions)


def read_columns(evidence: SumsEvidence) -> ColumnFigures:
    """Attack, and score.

    Raises:
        BadInput: the table is not the one that the party trained on.
    """
    begun, opened, say = time.process_time(), evidence.opened, evidence.say
    params, records, columns = opened.params, opened.records, evidence.truth
    trees = sums_of(evidence.party, opened.trees, lambda tree: params.drawn(tree, records))
    noise = opened.noised.get(evidence.party)
    reasons = {} if (why := unread(evidence, trees)) is None else {"sums": why}
    trees = [] if reasons else trees
    settings, most = evidence.settings, max((tree.candidates for tree in trees), default=0)
    if most > settings.most_candidates:
        reasons["sums"] = f"a tree has {most} candidates to link: most_candidates = {settings.most_candidates}"
    elif (size := records * (most + len(columns.names))) > settings.most_cells:
        reasons["sums"] = f"{size} cells are to be kept at a time: most_cells = {settings.most_cells}"
    if reasons:
        trees = []
    size = records * (most + len(columns.names))
    noises: list[SumNoise] = []
    if noise is None:
        trees, passes = _within(settings.work, size, trees, reasons)
        truth = Truth.of(columns, trees, evidence.party) if trees else None
    else:
        trees, passes = _of_numbers(evidence, trees, most + len(columns.names), reasons)
        noises = [noise.noise_of_tree(params, evidence.party, tree.values) for tree in trees]
        truth = Truth.of_noised(columns, trees, noises, evidence.party) if trees else None
    learned = _by_left_sets(evidence, reasons)
    figures = ColumnFigures(
        party=evidence.party,
        records=records,
        columns=len(columns.names),
        trees=len(trees),
        candidates=max((tree.candidates for tree in trees), default=0),
        equations=sum(len(tree.equations.nodes) for tree in trees if noise is None),
        left_sets=learned.cells,
        cuts=learned.by_column,
        placed_after=_placed_after(evidence) if params.additive else None,
        differences=None,
        together=None,
        given=None,
        links=None,
        contradictions=0,
        **(_by_left_sets_alone(learned, columns) if truth is None else {}),
        best=None,
        rank_correlation=None,
        given_correlation=None,
        picture=None,
        seconds=0.0,
        reasons=reasons,
    )
    if truth is None:
        return figures
    if noises:
        read = _of_noised(evidence, truth, Linked(trees, *truth.given_links()), noises, passes, learned)
        return figures.model_copy(update=read | {"seconds": time.process_time() - begun})
    say("links between trees")

    in_turn = isinstance(params, BoostingParams) and params.cycle
    # of more columns than trees the turn's is that of the number of the turn
    turns = [int(params.columns(it.index, evidence.party, it.index + 1)[0]) for it in trees] if in_turn else []

    def linked() -> Ints:
        if turns:
            return linked_in_turns(trees, turns, settings.most_candidates)
        sampled = params.colsample_bytree < 1
        return linked_places(trees, sampled=sampled, most=settings.most_candidates)

    try:
        places = evidence.kept.array("places", linked)
    except BadInput as fault:
        return figures.model_copy(update={"reasons": {"sums": str(fault)}})
    own = Linked(trees, places, chains(trees, places, len(turns) or COMPARED))
    named = truth.named(own)
    by_differences, together, contradictions = claims_of(own, "own", evidence, passes)
    best = best_column(together.positions, named, columns, settings.pictured)
    guesses = {ALONE: _nothing(columns), READ: cells_guessed(together.cells, named, columns)}
    guesses |= {LIKELIEST: cells_guessed(together.likeliest, named, columns)} if settings.steps else {}
    # the reader of a floor knows that a larger attack reads more
    whole = settings.steps and passes == PASSES and "trees" not in reasons
    floor = "" if whole else "a floor, by left sets and differences of few records within a bound of work"
    judged = _judged(guesses, {READ: (together.positions, named)}, learned, columns, floor)
    bound = (
        _with_links_given(evidence, passes, Linked(trees, *truth.given_links()), truth, learned)
        if settings.steps
        else {}
    )
    return figures.model_copy(
        update={
            "differences": cells_read(by_differences, named, columns),
            "together": cells_read(together.cells, named, columns) if settings.steps else None,
            "links": links_right(named, columns),
            "contradictions": contradictions,
            "best": best and best[0],
            "rank_correlation": best and best[1],
            "picture": best and best[2],
            "seconds": time.process_time() - begun,
            **bound,
            **judged,
        }
    )


def unread(evidence: SumsEvidence, trees: list[PartySums]) -> str | None:
    """The reason for which no sums of the party are read; None if they are."""
    opened = evidence.opened
    if not opened.recorded:
        return NOT_RECORDED
    if opened.params.bins_per_node:
        return "bins are made anew in every node, in an order of its own, so that no sums can be linked"
    return None if trees else NOTHING_OFFERED


def _within(work: int, size: int, trees: list[PartySums], reasons: dict[str, str]) -> tuple[list[PartySums], int]:
    """The trees and passes for differences that are within `work`; `reasons` gets which trees are left out.

    `size`: of a pass through one tree, records times cells.
    """
    if not trees or work >= size * len(trees):
        return trees, min(PASSES, work // max(1, size * len(trees)))
    count = max(1, work // size)
    _name_left_out(count, len(trees), f"work = {work}", reasons)
    return trees[:count], 1


def _of_numbers(
    evidence: SumsEvidence, trees: list[PartySums], cells: int, reasons: dict[str, str]
) -> tuple[list[PartySums], int]:
    """The trees of noised sums, and sweeps, within bounds; `reasons` gets what is left out. `cells`: of a record."""
    columns, every = evidence.truth, len(trees)
    if texts := len(columns.texts):
        reasons["categories"] = f"noised sums of {texts} columns of categories are not read: left sets alone are"
    if not trees or texts == len(columns.names):
        return [], 0
    reasons["links"] = NOISED_LINKS
    trees, sweeps = sweeps_within(evidence.settings, cells, trees)
    _name_left_out(len(trees), every, "work, products and most_cells", reasons)
    return trees, sweeps


def _name_left_out(count: int, every: int, bound: str, reasons: dict[str, str]) -> None:
    """`reasons` gets that `bound`, of the settings, suffices for the first trees alone, unless it does for all."""
    if 0 < count < every:
        reasons["trees"] = f"the first {count} of {every} are read: {bound} in [sums] suffices for no more"


def _with_links_given(
    evidence: SumsEvidence, passes: int, given: Linked, truth: Truth, learned: LearnedCuts
) -> dict[str, Any]:
    """The bound by links that are given."""
    named = truth.named(given)
    _, bound, _ = claims_of(given, "given", evidence, passes)
    columns = evidence.truth
    best = best_column(bound.positions, named, columns, evidence.settings.pictured)
    judged = _judged({}, {READ: (bound.positions, named)}, learned, columns)["explained"]
    return {
        "given": cells_read(bound.cells, named, columns),
        "given_correlation": best and best[1],
        "given_explained": judged and judged.reached,
    }


def _nothing(columns: TrueColumns) -> Ints:
    """No claim on any cell: what left sets exclude is used all the same."""
    return np.full_like(columns.codes, -1)


def _judged(
    guesses: Mapping[str, Ints],
    placed: Mapping[str, tuple[Sequence[Floats], Sequence[Named]]],
    learned: LearnedCuts,
    columns: TrueColumns,
    floor: str = "",
) -> dict[str, Any]:
    """The comparisons of exact bins and of explained variance, and the share of cells right by each guess.

    `guesses`: how → claims (N, d). `placed`: how → the expected places of chains, and these as the audit knows them.
    """
    counts = [
        np.bincount(column, minlength=it.shape[1]) for column, it in zip(columns.codes.T, learned.possible, strict=True)
    ]
    by_left_sets = np.stack([_mean_places(it, of) for of, it in zip(counts, learned.possible, strict=True)], axis=1)
    expected = {ALONE: by_left_sets} | {
        how: places_expected(positions, named, by_left_sets) for how, (positions, named) in placed.items()
    }
    numbers = [number for number in range(len(columns.names)) if number not in columns.texts]
    both = {
        "compared": compared_cells(guesses, columns.codes, DETAILS, learned.possible),
        "explained": compared_places(expected, columns.codes, numbers, DETAILS),
    }
    right = cells_right(guesses, columns.codes, learned.possible)
    return {
        **{name: it and it.model_copy(update={"floor": floor}) for name, it in both.items()},
        "named": {how: float(of.mean()) if of.size else 0.0 for how, of in right.items()},
    }


def _mean_places(possible: Bools, counts: Ints) -> Floats:
    """The mean place (N,) of the records in the bins of a column that are possible (N, bins)."""
    weights = np.maximum(counts, _RARE)
    sums: Floats = possible.astype(np.float64) @ np.stack([weights * np.arange(len(weights)), weights], axis=1)
    return np.asarray(sums[:, 0] / sums[:, 1])


def _by_left_sets_alone(learned: LearnedCuts, columns: TrueColumns) -> dict[str, Any]:
    """The same where no sum was read: none if left sets tell nothing, since what sums tell is not known."""
    judged = _judged({UNREAD: _nothing(columns)}, {}, learned, columns)
    told = [it for it in (judged["compared"], judged["explained"]) if it is not None and it.word != "nothing found"]
    return judged if told else {"compared": None, "explained": None, "named": {}}


def _of_noised(
    evidence: SumsEvidence, truth: Truth, linked: Linked, noises: Sequence[SumNoise], sweeps: int, learned: LearnedCuts
) -> dict[str, Any]:
    """The fields of the figures that noised sums tell of columns of numbers, with links given.

    `noises`: of each tree.
    """
    columns, privacy = evidence.truth, evidence.opened.noised[evidence.party]
    named, cells = truth.named(linked), NoisedCells.of(linked, noises)
    left = [learned.possible[it.column] @ it.cells(columns).T for it in named]
    chances = evidence.kept.array(
        f"noised-{linked.digest}-{sweeps}",
        lambda: posteriors(cells, np.concatenate(left, axis=1), sweeps, evidence.say),
    )
    claims = Claims.of(chances, cells.first, np.full((linked.records, len(named)), -1, dtype=np.int64))
    best = best_column(claims.positions, named, columns, evidence.settings.pictured)
    guesses = {ALONE: _nothing(columns), NOISED: cells_guessed(claims.likeliest, named, columns)}
    floor = _NOISED_FLOOR if len(linked.trees) < len(evidence.opened.trees) else ""
    # The largest share of all cells that (ε, δ) of one column lets anybody name, given the left sets.
    rates = []
    for codes in columns.codes.T:
        sizes = np.bincount(codes)
        bins = int((sizes > 0).sum())
        rates.append(largest_guess(privacy.epsilon, privacy.delta, float(sizes.max() / sizes.sum()), bins))
    allowed = float(np.mean(rates))
    z = float(noises[0].variance) ** 0.5
    return {
        "equations": len(cells.sums),
        "given": cells_read(claims.cells, named, columns),
        "given_correlation": best and best[1],
        "best": best and best[0],
        "rank_correlation": best and best[1],
        "picture": best and best[2],
        "noise": NoiseFigures(epsilon=privacy.epsilon, delta=privacy.delta, z=z, sweeps=sweeps, allowed=allowed),
        **_judged(guesses, {NOISED: (claims.positions, named)}, learned, columns, floor),
    }


def _by_left_sets(evidence: SumsEvidence, reasons: dict[str, str]) -> LearnedCuts:
    """The cuts that left sets alone tell; `reasons` gets why some tell nothing.

    Raises:
        BadInput: the table is not the one that the party trained on.
    """
    opened, columns = evidence.opened, evidence.truth
    answers = [answer for answer in opened.left_sets if answer.party == evidence.party]
    # with bins of each node no cut is one of the table's bins
    constrained = evidence.party in opened.constrained
    learned = learned_cuts([] if opened.params.bins_per_node else answers, columns, mirrored=constrained)
    if 2 * learned.foreign > len(answers) and not columns.texts:
        raise BadInput(
            f"[[victim]] {evidence.party}: {learned.foreign} of its {len(answers)} left sets are of no column of "
            "truth = …: it is not the table that the party trained on, or lacks columns of it"
        )
    if learned.unknown:
        reasons["left sets"] = (
            f"{learned.unknown} of {len(answers)} are of nodes whose records are not in the transcript: record_sums = "
            "true in the label holder's policy keeps its own splits"
        )
    return learned


def _placed_after(evidence: SumsEvidence) -> list[PlacedAfter]:
    """The cells that left sets of roots alone place, after more and more trees."""
    opened, party = evidence.opened, evidence.party
    last, shares = max((it.index for it in opened.trees), default=0), list[PlacedAfter]()
    last = max(last, max((answer.tree for answer in opened.left_sets), default=0))
    for trees in steps_to(last + 1):
        answers = [it for it in opened.left_sets if it.party == party and it.tree < trees]
        learned = learned_cuts(answers, evidence.truth, mirrored=party in opened.constrained)
        shares.append(PlacedAfter(trees=trees, placed=learned.cells.placed))
    return shares


def claims_of(linked: Linked, links: str, evidence: SumsEvidence, passes: int) -> tuple[Ints, Claims, int]:
    """Claims by differences, those of all equations together, and contradictions.

    `links`: the word for them. `passes`: through the sums for differences. Nothing here reads the victim's table.
    """

    def say(what: str) -> None:
        evidence.say(f"{what} ({links} links)")

    def read() -> Knowledge:
        knowledge = Knowledge.nothing(linked.records, linked.chains)
        left_sets(linked, knowledge)
        differences(linked, knowledge, say, passes)
        return knowledge

    settings = evidence.settings
    name = f"{links}-{linked.digest}"  # other links, as of another table, are another step
    knowledge = evidence.kept.knowledge(f"differences-{name}", linked.chains, read)

    def estimated() -> Singles:
        return shares(linked, knowledge, settings.seconds, settings.steps, say)

    estimate = even(knowledge.possible, knowledge.first)
    if settings.steps:
        estimate = evidence.kept.array(f"shares-{name}", estimated)
    return knowledge.known, Claims.of(estimate, knowledge.first, knowledge.known), knowledge.contradictions
