"""A label holder's attack on the columns of one feature party, by the sums that it opened in a training of trees.

1. Link candidates of all trees, and put those of one column in order (`linking`).
2. Read cells that follow exactly, from left sets and from differences of few records (`propagation`).
3. Estimate the others by least squares over all equations (`least_squares`).

The audit scores what is claimed (`scoring`), and repeats 2 and 3 with links given: a bound for better links.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from attacks.sums.kept import Kept
from attacks.sums.learned_cuts import LearnedCuts, learned_cuts
from attacks.sums.least_squares import SURE, Singles, even, shares
from attacks.sums.linking import Identities, chains
from attacks.sums.propagation import PASSES, Knowledge, Linked, differences, left_sets
from attacks.sums.schema import NOT_RECORDED, NOTHING_OFFERED, ColumnFigures, SumsSettings
from attacks.sums.scoring import TrueColumns, Truth, best_column, cells_guessed, cells_read, links_right
from attacks.sums.sketches import Floats, Ints, PartySums, sums_of
from attacks.verdict import Compared, compared_cells
from attacks.view.opened_sums import OpenedSums
from treetap.errors import BadInput

Say = Callable[[str], None]
#: The section of the report.
DETAILS = "columns"


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
        positions: of each chain (N,) the expected place of each record.
    """

    cells: Ints
    positions: list[Floats]


class Steps(NamedTuple):
    """The frame of the steps of an attack: its settings, progress, results of finished steps.

    `passes`: through the sums for differences.
    """

    settings: SumsSettings
    passes: int
    say: Say
    kept: Kept


def read_columns(evidence: SumsEvidence) -> ColumnFigures:
    """Attack, and score.

    Raises:
        BadInput: the table is not the one that the party trained on.
    """
    with threadpool_limits(1):  # the products are small: threads would wait for each other
        return _read_columns(evidence)


def _read_columns(evidence: SumsEvidence) -> ColumnFigures:
    begun, opened, say = time.process_time(), evidence.opened, evidence.say
    params, records, columns = opened.params, opened.records, evidence.truth
    trees = sums_of(evidence.party, opened.trees, lambda tree: params.drawn(tree, records))
    reasons = {} if (why := unread(evidence, trees)) is None else {"sums": why}
    trees = [] if reasons else trees
    settings, most = evidence.settings, max((tree.candidates for tree in trees), default=0)
    if most > settings.most_candidates:
        reasons["sums"] = f"a tree has {most} candidates to link: most_candidates = {settings.most_candidates}"
    elif (size := records * (most + len(columns.names))) > settings.most_cells:
        reasons["sums"] = f"{size} cells are to be kept at a time: most_cells = {settings.most_cells}"
    if reasons:
        trees = []
    trees, passes = _within(settings.work, records * (most + len(columns.names)), trees, reasons)
    truth = Truth.of(columns, trees, evidence.party) if trees else None
    learned = _by_left_sets(evidence, reasons)
    figures = ColumnFigures(
        party=evidence.party,
        records=records,
        columns=len(columns.names),
        trees=len(trees),
        candidates=max((tree.candidates for tree in trees), default=0),
        equations=sum(len(tree.equations.nodes) for tree in trees),
        over_all=opened.over_all,
        left_sets=learned.cells,
        cuts=learned.by_column,
        differences=None,
        together=None,
        given=None,
        links=None,
        contradictions=0,
        compared=_by_left_sets_alone(learned, columns),
        best=None,
        rank_correlation=None,
        given_correlation=None,
        picture=None,
        seconds=0.0,
        reasons=reasons,
    )
    if truth is None:
        return figures
    say("links between trees")

    def linked() -> Ints:
        sampled = params.colsample_bytree < 1
        return Identities(trees, sampled=sampled, most=settings.most_candidates).places

    try:
        identities = Identities.given(evidence.kept.array("places", linked))
    except BadInput as fault:
        return figures.model_copy(update={"reasons": {"sums": str(fault)}})
    own = Linked(trees, identities, chains(trees, identities))
    named = truth.named(own.identities, own.chains)
    steps = Steps(settings, passes, say, evidence.kept)
    by_differences, together, contradictions = claims_of(own, steps, "own")
    best = best_column(together.positions, named, columns, settings.pictured)
    compared = compared_cells(
        {"left sets alone": learned.guessed, "all that it read": cells_guessed(together.cells, named, columns)},
        columns.codes,
        DETAILS,
    )
    bound = _with_links_given(steps, Linked(trees, *truth.given_links()), truth, columns) if settings.steps else {}
    return figures.model_copy(
        update={
            "differences": cells_read(by_differences, named, columns),
            "together": cells_read(together.cells, named, columns) if settings.steps else None,
            "links": links_right(named, columns),
            "contradictions": contradictions,
            "compared": compared and compared.model_copy(update={"floor": _floor(reasons, steps)}),
            "best": best and best[0],
            "rank_correlation": best and best[1],
            "picture": best and best[2],
            "seconds": time.process_time() - begun,
            **bound,
        }
    )


def unread(evidence: SumsEvidence, trees: list[PartySums]) -> str | None:
    """The reason for which no sums of the party are read; None if they are."""
    opened = evidence.opened
    if not opened.recorded:
        return NOT_RECORDED
    if evidence.party in opened.noised:
        return "the sums have noise (column_privacy): left sets alone are read"
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
    reasons["trees"] = f"the first {count} of {len(trees)} are read: work = {work} in [sums] suffices for no more"
    return trees[:count], 1


def _floor(reasons: Mapping[str, str], steps: Steps) -> str:
    """The sentence by which a reader of the figure knows that a larger attack reads more; empty where none does."""
    if steps.settings.steps and steps.passes == PASSES and "trees" not in reasons:
        return ""
    return "a floor, by left sets and differences of few records within a bound of work"


def _with_links_given(steps: Steps, given: Linked, truth: Truth, columns: TrueColumns) -> dict[str, Any]:
    """The bound by links that are given."""
    named = truth.named(given.identities, given.chains)
    _, bound, _ = claims_of(given, steps, "given")
    best = best_column(bound.positions, named, columns, steps.settings.pictured)
    return {"given": cells_read(bound.cells, named, columns), "given_correlation": best and best[1]}


def _by_left_sets_alone(learned: LearnedCuts, columns: TrueColumns) -> Compared | None:
    """The comparison where no sum was read: None if left sets tell nothing, since what sums tell is not known."""
    compared = compared_cells({"left sets alone, the sums were not read": learned.guessed}, columns.codes, DETAILS)
    return None if compared is None or compared.word == "nothing found" else compared


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


def claims_of(linked: Linked, steps: Steps, links: str) -> tuple[Ints, Claims, int]:
    """Claims by differences, those of all equations together, and contradictions.

    `links`: the word for them. Nothing here has the victim's table.
    """

    def say(what: str) -> None:
        steps.say(f"{what} ({links} links)")

    def read() -> Knowledge:
        knowledge = Knowledge.nothing(linked.records, linked.chains)
        left_sets(linked, knowledge)
        differences(linked, knowledge, say, steps.passes)
        return knowledge

    settings = steps.settings
    name = f"{links}-{linked.digest}"  # other links, as of another table, are another step
    knowledge = steps.kept.knowledge(f"differences-{name}", linked.chains, read)

    def estimated() -> Singles:
        return shares(linked, knowledge, settings.seconds, settings.steps, say)

    estimate = even(knowledge.possible, knowledge.first)
    if settings.steps:
        estimate = steps.kept.array(f"shares-{name}", estimated)
    cells, positions = knowledge.known.copy(), []
    for chain, (start, end) in enumerate(pairwise(knowledge.first)):
        part = estimate[:, start:end]
        cells[:, chain] = np.where(part.max(axis=1) > SURE, part.argmax(axis=1), -1)
        positions.append((part @ np.arange(end - start)).astype(np.float64))
    return knowledge.known, Claims(cells, positions), knowledge.contradictions
