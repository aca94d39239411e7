"""Labels that follow from gradients and few known labels, beside what own columns tell with the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from treetap.arrays import Bools, Ints
from treetap.attacks.known_labels.evidence import Rows, standardised
from treetap.attacks.known_labels.names import Named, compared, named_by
from treetap.attacks.known_labels.naming import regressed
from treetap.attacks.scores import UNKNOWN
from treetap.attacks.verdict import MOST_FREQUENT, Compared, paired_error

if TYPE_CHECKING:
    from treetap.attacks.networks.evidence import Evidence
    from treetap.attacks.networks.schema import CompletionFigures, Measured, NetworkFigures


def compared_network(
    evidence: Evidence, figures: NetworkFigures, columns: Any, own: Bools | None
) -> Iterator[Compared]:
    """The comparisons of a party of a split network: labels from gradients, groups of them, and its completed model.

    Args:
        columns: (N, d) the party's own, NaN where missing; None where they are not at hand.
        own: (N,) the records that groups of own columns name right; None without such.
    """
    yield from _inferred(evidence, columns)
    yield from _grouped(evidence, own)
    if figures.completion is not None:
        yield from _completed(figures.completion)


def _grouped(evidence: Evidence, own: Bools | None) -> Iterator[Compared]:
    """Groups without a label beside those of own columns or the most frequent class."""
    if not evidence.grouped:
        return
    records, right = max(evidence.grouped, key=lambda pair: float(pair[1].mean()))
    truth = evidence.known.truth[records]
    before, how = truth == np.bincount(truth).argmax(), MOST_FREQUENT
    if own is not None and own[records].mean() > before.mean():
        before, how = own[records], "own columns"
    yield Compared(
        measure="accuracy",
        before=float(before.mean()),
        before_how=how,
        reached=float(right.mean()),
        reached_how="groups of gradients",
        error=paired_error(right.astype(np.int64) - before),
        tries=len(evidence.grouped),
        details="network",
    )


def _completed(completion: CompletionFigures) -> Iterator[Compared]:
    """The completed model on other records beside the most frequent class or models that need no federation.

    The draws' figures are means, so that the error is that of two guesses without any relation, which is larger.
    """
    rows = completion.rows
    if not rows or not completion.records:
        return
    best = max(rows, key=lambda row: row.completed.accuracy)
    alone = [it for row in rows for it in (row.untrained, row.scratch, row.scratch_all) if it is not None]
    own: Measured | None = max(alone, key=lambda it: it.accuracy)
    assert own is not None
    before, how = own.accuracy, "a model of own columns"
    if completion.majority > before:
        before, how, own = completion.majority, MOST_FREQUENT, None
    spread = [(it.deviation or 0.0) / sqrt(it.draws) for it in (best.completed, own) if it is not None and it.draws > 1]
    over_records = [sqrt(value * (1 - value) / completion.records) for value in (before, best.completed.accuracy)]
    yield Compared(
        measure="accuracy",
        before=before,
        before_how=f"{how}, of other records",
        reached=best.completed.accuracy,
        reached_how="its published model, completed",
        error=hypot(*over_records, *spread, 0.5 / completion.records),
        tries=len(rows),
        known=best.known,
        details="network",
    )


def _inferred(evidence: Evidence, columns: Any) -> Iterator[Compared]:
    """Labels that follow from gradients and known ones, of the training records whose label is at hand."""
    known, truth = evidence.known, evidence.known.truth
    drawn, alone = list[tuple[Ints, Any]](), list[tuple[Ints, Any]]()
    own = standardised(columns)
    for places, (records, labels) in zip(evidence.draws, evidence.inferred, strict=False):
        scored = ~np.isin(records, places) & (truth[records] != UNKNOWN)
        named, chances = records[scored], np.zeros((int(scored.sum()), len(known.classes)))
        chances[np.arange(len(named)), labels[scored]] = 1.0
        drawn.append((named, chances))
        if own is not None:
            rows = Rows.of(csr_matrix((len(named), 0)), own[named])
            classes, likely = regressed(own[places], rows, truth[places])
            chances = np.zeros_like(chances)
            chances[:, classes] = likely[rows.alike]
            alone.append((named, chances))
    if not any(len(named) for named, _ in drawn):
        return
    taking_part = np.unique(np.concatenate([named for named, _ in drawn]))
    if len(np.unique(truth[taking_part])) < 2:
        return

    def names_of(pairs: list[tuple[Ints, Any]]) -> Named:
        within = [(np.searchsorted(taking_part, rows), chances, None) for rows, chances in pairs]
        return named_by(within, truth[taking_part], 0, 1)

    yield compared(
        {"gradients": names_of(drawn)},
        [names_of(alone)] if alone else [],
        truth[taking_part],
        known=len(evidence.draws[0]),
        first=None,
        details="network",
    )
